"""Half-precision exports for `cuda.py`: graphs without their large weights.

`python cuda_models.py DIRECTORY [NAME …]` writes `NAME.onnx`, with torch's dynamo exporter in
float16. Floating-point weights of more than 4,096 elements are left out (they are random anyway):
`fill` draws them where the model runs, so that a graph is a few hundred kilobytes. `genai` is the
graph of onnxruntime-genai's model builder for the same decoder, where that package is installed.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx

SMALL = 4096
DROPPED = "cuda_models.dropped"


@dataclass(frozen=True)
class Shape:
    """Widths of a transformer."""

    hidden: int
    layers: int
    heads: int
    kv_heads: int
    inner: int
    vocabulary: int = 32000

    @property
    def head(self) -> int:
        return self.hidden // self.heads


BASE = Shape(768, 12, 12, 12, 3072, 30522)
LLAMA = Shape(2048, 8, 32, 4, 5632)
SMALL_SHAPE = Shape(64, 2, 4, 2, 128, 500)


def _bert(shape: Shape) -> Any:
    import transformers

    config = transformers.BertConfig(
        vocab_size=shape.vocabulary,
        hidden_size=shape.hidden,
        num_hidden_layers=shape.layers,
        num_attention_heads=shape.heads,
        intermediate_size=shape.inner,
    )
    return transformers.AutoModel.from_config(config, attn_implementation="sdpa")


def _vit(shape: Shape) -> Any:
    import transformers

    config = transformers.ViTConfig(
        hidden_size=shape.hidden,
        num_hidden_layers=shape.layers,
        num_attention_heads=shape.heads,
        intermediate_size=shape.inner,
    )
    return transformers.AutoModel.from_config(config, attn_implementation="sdpa")


def _llama_config(shape: Shape) -> Any:
    import transformers

    return transformers.LlamaConfig(
        vocab_size=shape.vocabulary,
        hidden_size=shape.hidden,
        num_hidden_layers=shape.layers,
        num_attention_heads=shape.heads,
        num_key_value_heads=shape.kv_heads,
        intermediate_size=shape.inner,
        max_position_embeddings=16384,
    )


def _llama(shape: Shape) -> Any:
    import transformers

    config = _llama_config(shape)
    return transformers.AutoModel.from_config(config, attn_implementation="sdpa")


FAMILIES: dict[str, Callable[[Shape], Any]] = {
    "bert": _bert,
    "vit": _vit,
    "llama": _llama,
    "decode": _llama,
}


def inputs(name: str, shape: Shape, batch: int, length: int, past: int) -> dict[str, np.ndarray]:
    """Feeds of a row: random ids or pixels, a mask of ones, caches of `past` tokens."""
    draw = np.random.default_rng(0)
    if name == "vit":
        return {"pixel_values": draw.standard_normal((batch, 3, 224, 224)).astype(np.float16)}
    feeds = {
        "input_ids": draw.integers(3, shape.vocabulary, (batch, length)),
        "attention_mask": np.ones((batch, past + length), np.int64),
    }
    if name in {"decode", "genai"}:
        cache = (batch, shape.kv_heads, past, shape.head)
        for layer in range(shape.layers):
            for part in ("key", "value"):
                block = draw.standard_normal(cache, np.float32).astype(np.float16)
                feeds[f"past_key_values.{layer}.{part}"] = block
    return feeds


def module(name: str, shape: Shape) -> Any:
    """Build the torch module of a family; `decode` takes and returns the cache as tensors."""
    import torch
    import transformers

    torch.manual_seed(0)
    model = FAMILIES[name](shape).half().eval()
    for key, parameter in model.named_parameters():
        if key.endswith("bias"):  # zeros, which a clean-up removes
            torch.nn.init.normal_(parameter, std=0.02)

    class Plain(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = model

        def forward(self, *tensors: torch.Tensor) -> Any:
            if name == "vit":
                return self.model(pixel_values=tensors[0]).last_hidden_state
            ids, mask, *pasts = tensors
            if name == "bert":
                return self.model(input_ids=ids, attention_mask=mask).last_hidden_state
            if name == "llama":
                out = self.model(input_ids=ids, attention_mask=mask, use_cache=False)
                return out.last_hidden_state
            cache = transformers.DynamicCache()
            for layer in range(len(pasts) // 2):
                cache.update(pasts[2 * layer], pasts[2 * layer + 1], layer)
            out = self.model(
                input_ids=ids, attention_mask=mask, past_key_values=cache, use_cache=True
            )
            presents = []
            for layer in out.past_key_values.layers:
                presents += [layer.keys, layer.values]
            return (out.last_hidden_state, *presents)

    return Plain().eval()


def export(name: str, shape: Shape) -> onnx.ModelProto:
    """Export a family with open batch and length."""
    import torch

    batch, length, past = (2, 8, 6) if name != "decode" else (2, 1, 6)
    feeds = inputs(name, shape, batch, length, past if name == "decode" else 0)
    tensors = tuple(torch.from_numpy(value) for value in feeds.values())
    b, s = torch.export.Dim("batch"), torch.export.Dim("length")
    names = ["last_hidden_state"]
    sizes: list[dict[int, Any]] = [{0: b}] if name == "vit" else [{0: b, 1: s}, {0: b, 1: s}]
    if name == "decode":
        names += [key.replace("past_key_values", "present") for key in list(feeds)[2:]]
        p = torch.export.Dim("past")
        sizes = [{0: b}, {0: b, 1: p + 1}, *({0: b, 2: p} for _ in list(feeds)[2:])]
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")
        program = torch.onnx.export(
            module(name, shape),
            tensors,
            input_names=list(feeds),
            output_names=names,
            dynamic_shapes=(tuple(sizes),),
            dynamo=True,
            verbose=False,
        )
    return program.model_proto


def build_genai(shape: Shape) -> onnx.ModelProto:
    """Write the decoder with onnxruntime-genai's model builder, for CUDA in float16."""
    import tokenizers
    import transformers

    with tempfile.TemporaryDirectory() as directory:
        source, target = Path(directory, "in"), Path(directory, "out")
        config = _llama_config(shape)
        config.bos_token_id, config.eos_token_id, config.pad_token_id = 1, 2, 0
        transformers.LlamaForCausalLM(config).half().save_pretrained(source)
        words = tokenizers.models.WordLevel({"0": 0, "1": 1, "2": 2}, unk_token="0")
        tokenizer = tokenizers.Tokenizer(words)
        transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizer).save_pretrained(source)
        builder = [sys.executable, "-m", "onnxruntime_genai.models.builder"]
        places = ["-i", str(source), "-o", str(target), "-c", str(Path(directory, "cache"))]
        kind = ["-p", "fp16", "-e", "cuda", "--extra_options", "exclude_lm_head=true"]
        subprocess.run([*builder, *places, *kind], check=True, capture_output=True)
        return onnx.load(target / "model.onnx")


def drop_weights(model: onnx.ModelProto) -> None:
    """Remove the bytes of large float weights and the exporter's metadata."""
    dropped = []
    for tensor in model.graph.initializer:
        floating = tensor.data_type in {onnx.TensorProto.FLOAT16, onnx.TensorProto.FLOAT}
        if floating and np.prod(tensor.dims) > SMALL:
            tensor.ClearField("raw_data")
            tensor.ClearField("external_data")
            tensor.ClearField("data_location")
            tensor.ClearField("float_data")
            tensor.ClearField("int32_data")
            dropped.append(tensor.name)
    for node in model.graph.node:
        del node.metadata_props[:]
    model.metadata_props.add(key=DROPPED, value=json.dumps(dropped))


def fill(model: onnx.ModelProto) -> None:
    """Draw the weights that `drop_weights` removed: normal, of deviation 0.02."""
    entry = next((one for one in model.metadata_props if one.key == DROPPED), None)
    if entry is None:
        return
    dropped = set(json.loads(entry.value))
    model.metadata_props.remove(entry)
    draw = np.random.default_rng(1)
    for tensor in model.graph.initializer:
        if tensor.name in dropped:
            kind = onnx.helper.tensor_dtype_to_np_dtype(tensor.data_type)
            values = draw.standard_normal(tuple(tensor.dims), np.float32) * np.float32(0.02)
            tensor.raw_data = values.astype(kind).tobytes()


def shape_of(name: str, small: bool) -> Shape:
    if small:
        return SMALL_SHAPE
    return BASE if name in {"bert", "vit"} else LLAMA


def write(directory: Path, name: str, small: bool) -> Path:
    shape = shape_of(name, small)
    model = build_genai(shape) if name == "genai" else export(name, shape)
    drop_weights(model)
    path = directory / f"{name}.onnx"
    onnx.save(model, path)
    return path


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("directory", type=Path)
    parser.add_argument("names", nargs="*", default=list(FAMILIES))
    parser.add_argument("--small", action="store_true", help="two layers, width 64")
    options = parser.parse_args()
    options.directory.mkdir(parents=True, exist_ok=True)
    for name in options.names:
        path = write(options.directory, name, options.small)
        print(f"{path}: {len(onnx.load(path).graph.node)} nodes, {path.stat().st_size} bytes")


if __name__ == "__main__":
    main()
