"""``make bench-models``: exports that the corpus lacks, into ``build/models``, from configurations alone.

Weights are random and seeded; nothing is fetched. ``*.768.*`` have the width of base models and four layers, the others are narrow with
full structure. For each size there is a file of inputs; ``manifest.json`` names the files, or the reason why a model was not built.
It runs in an environment of its own (the extra ``models``); no test needs it.
"""

from __future__ import annotations

import argparse
import json
import logging
import re
import sys
import time
import traceback
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import torch
import transformers

SEED = 18
VOCABULARY = 1000
WIDE: dict[str, int] = {
    "hidden_size": 768,
    "num_hidden_layers": 4,
    "num_attention_heads": 12,
    "intermediate_size": 3072,
}
NARROW: dict[str, int] = {
    "hidden_size": 64,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "intermediate_size": 128,
}
TEXT: dict[str, int] = {"vocab_size": VOCABULARY, "max_position_embeddings": 2048}


@dataclass(frozen=True)
class Build:
    """How a model is made, and what it is run with."""

    make: Callable[[], torch.nn.Module]
    inputs: tuple[str, ...]
    """Of ``input_ids``, ``attention_mask`` and ``pixel_values``."""
    sizes: tuple[int, ...]
    """Lengths of the text, or edges of the image."""
    batch: int = 1
    fixed: bool = False
    """For one length of the text alone."""


def _auto(config: Any, attention: str = "eager") -> Callable[[], torch.nn.Module]:
    def make() -> torch.nn.Module:
        return transformers.AutoModel.from_config(config(), attn_implementation=attention)

    return make


def _bert(**sizes: int) -> Any:
    return transformers.BertConfig(**TEXT, **sizes)


def _gpt2(**sizes: int) -> Any:
    return transformers.GPT2Config(
        vocab_size=VOCABULARY,
        n_positions=2048,
        n_embd=sizes["hidden_size"],
        n_layer=sizes["num_hidden_layers"],
        n_head=sizes["num_attention_heads"],
        use_cache=False,
    )


def _llama(**sizes: int) -> Any:
    return transformers.LlamaConfig(
        **TEXT, **sizes, num_key_value_heads=sizes["num_attention_heads"] // 2, use_cache=False
    )


def _qwen(kind: Any) -> Any:
    return kind(**TEXT, **NARROW, num_key_value_heads=2, head_dim=16, use_cache=False)


def _vit(**sizes: int) -> Any:
    return transformers.ViTConfig(image_size=224, **sizes)


def _swin() -> Any:
    return transformers.SwinConfig(
        image_size=64, patch_size=2, embed_dim=16, depths=[2, 2], num_heads=[2, 4], window_size=4
    )


def _detr() -> Any:
    backbone = transformers.ResNetConfig(
        embedding_size=16, hidden_sizes=[16, 32], depths=[1, 1], out_features=["stage2"]
    )
    return transformers.DetrConfig(
        use_timm_backbone=False,
        use_pretrained_backbone=False,
        backbone=None,
        backbone_config=backbone,
        d_model=64,
        encoder_layers=2,
        decoder_layers=2,
        encoder_attention_heads=4,
        decoder_attention_heads=4,
        encoder_ffn_dim=128,
        decoder_ffn_dim=128,
        num_queries=10,
    )


def _convnext() -> Any:
    return transformers.ConvNextConfig(hidden_sizes=[16, 32, 48, 64], depths=[1, 1, 2, 1])


def _mamba() -> Any:
    return transformers.MambaConfig(
        vocab_size=VOCABULARY, hidden_size=64, num_hidden_layers=2, state_size=8, use_cache=False
    )


class _Layer(torch.nn.Module):
    """A layer of a decoder whose attention is causal and nothing else."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norms = torch.nn.ModuleList(torch.nn.LayerNorm(width) for _ in range(2))
        self.projections = torch.nn.ModuleList(torch.nn.Linear(width, width) for _ in range(4))
        self.up, self.down = torch.nn.Linear(width, 4 * width), torch.nn.Linear(4 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, rows, width = x.shape
        normed = self.norms[0](x)
        q, k, v = (
            one(normed).view(batch, rows, self.heads, width // self.heads).transpose(1, 2)
            for one in self.projections[:3]
        )
        mixed = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.projections[3](mixed.transpose(1, 2).reshape(batch, rows, width))
        return x + self.down(torch.nn.functional.gelu(self.up(self.norms[1](x))))


class _Decoder(torch.nn.Module):
    """A decoder without padding: it has no mask but the causal one, and no input for another.

    The classes of transformers ask at run time whether sequences are packed into one row, so that
    their mask is not causal alone.
    """

    def __init__(self, width: int, heads: int, layers: int) -> None:
        super().__init__()
        self.words = torch.nn.Embedding(VOCABULARY, width)
        self.positions = torch.nn.Embedding(2048, width)
        self.layers = torch.nn.ModuleList(_Layer(width, heads) for _ in range(layers))

    def forward(self, input_ids: torch.Tensor, **_: Any) -> tuple[torch.Tensor]:
        x = self.words(input_ids) + self.positions(torch.arange(input_ids.shape[1]))
        for layer in self.layers:
            x = layer(x)
        return (x,)


_MASKED = ("input_ids", "attention_mask")
BUILDS: dict[str, Build] = {
    "bert.768.dynopt": Build(_auto(lambda: _bert(**WIDE)), _MASKED, (128, 512)),
    "gpt2.768.dynopt": Build(_auto(lambda: _gpt2(**WIDE), "sdpa"), _MASKED, (128, 512)),
    "llama.768.dynopt": Build(_auto(lambda: _llama(**WIDE), "sdpa"), _MASKED, (128, 512)),
    "vit.768.dynopt": Build(_auto(lambda: _vit(**WIDE), "sdpa"), ("pixel_values",), (224,)),
    "decoder.768.dynopt": Build(lambda: _Decoder(768, 12, 2), ("input_ids",), (2048,)),
    "qwen2.dynopt": Build(
        _auto(lambda: _qwen(transformers.Qwen2Config), "sdpa"), _MASKED, (12,), batch=2
    ),
    "qwen3.dynopt": Build(
        _auto(lambda: _qwen(transformers.Qwen3Config), "sdpa"), _MASKED, (12,), batch=2
    ),
    "swin.dynopt": Build(_auto(_swin), ("pixel_values",), (64,), batch=2),
    "detr.dynopt": Build(_auto(_detr), ("pixel_values",), (64,), batch=2),
    "convnext.dynopt": Build(_auto(_convnext, "eager"), ("pixel_values",), (64,), batch=2),
    "mamba.dynopt": Build(_auto(_mamba, "eager"), ("input_ids",), (12,), batch=2, fixed=True),
}


class _Plain(torch.nn.Module):
    """A model that takes tensors by position and returns its first tensor."""

    def __init__(self, model: torch.nn.Module, inputs: tuple[str, ...]) -> None:
        super().__init__()
        self.model, self.inputs = model, inputs

    def forward(self, *argument: torch.Tensor) -> torch.Tensor:
        return self.model(**dict(zip(self.inputs, argument, strict=True)), return_dict=False)[0]


def _inputs(build: Build, size: int, batch: int) -> dict[str, torch.Tensor]:
    """Seeded inputs; no position is masked."""
    drawing = torch.Generator().manual_seed(SEED)
    results: dict[str, torch.Tensor] = {
        "input_ids": torch.randint(VOCABULARY, (batch, size), generator=drawing),
        "attention_mask": torch.ones((batch, size), dtype=torch.int64),
        "pixel_values": torch.randn((batch, 3, size, size), generator=drawing),
    }
    return {name: results[name] for name in build.inputs}


def _perturb(model: torch.nn.Module) -> None:
    """Move biases and scales from their constant start, so that a dropped one shows."""
    drawing = torch.Generator().manual_seed(SEED + 1)
    with torch.no_grad():
        for weight in model.parameters():
            if weight.ndim == 1:
                weight.add_(torch.randn(weight.shape, generator=drawing) * 0.1)


def build_model(name: str, directory: Path) -> dict[str, Any]:
    """Build one model and its inputs; what the manifest has of it."""
    build = BUILDS[name]
    torch.manual_seed(SEED)
    model = build.make().eval()
    _perturb(model)
    plain = _Plain(model, build.inputs).eval()
    # an export from a batch of 1 would be for that batch alone
    argument = _inputs(build, build.sizes[0], 2)
    axes: dict[int, Any] = {0: torch.export.Dim.DYNAMIC}
    if "input_ids" in build.inputs and not build.fixed:
        axes[1] = torch.export.Dim.DYNAMIC
    path = directory / f"{name}.onnx"
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(
            plain,
            tuple(argument.values()),
            str(path),
            dynamo=True,
            optimize=True,
            opset_version=20,
            external_data=False,
            input_names=list(argument),
            dynamic_shapes=(tuple(axes for _ in argument),),
            verbose=False,
        )
    files: list[str] = []
    for size in build.sizes:
        results = {key: tensor.numpy() for key, tensor in _inputs(build, size, build.batch).items()}
        feeds = directory / f"{name}.{size}.npz"
        with feeds.open("wb") as file:
            np.savez(file, **results)  # pyright: ignore[reportArgumentType]
        files.append(feeds.name)
    nodes = len(onnx.load(path, load_external_data=False).graph.node)
    return {"file": path.name, "feeds": files, "nodes": nodes}


def _reason(error: Exception) -> str:
    """The last cause of a failure, in a line."""
    while error.__cause__ is not None and isinstance(error.__cause__, Exception):
        error = error.__cause__
    text = re.sub(r"\x1b\[\d*m", "", f"{type(error).__name__}: {error}".strip())
    return text.splitlines()[0][:300]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("models", nargs="*", metavar="MODEL", help=f"of {', '.join(BUILDS)}")
    parser.add_argument("-o", "--output", type=Path, default=Path("build/models"))
    parser.add_argument("--traceback", action="store_true", help="where a build failed")
    argument = parser.parse_args()
    unknown = set(argument.models).difference(BUILDS)
    if unknown:
        parser.error(f"no model {', '.join(sorted(unknown))}: there are {', '.join(BUILDS)}")
    argument.output.mkdir(parents=True, exist_ok=True)
    logging.disable(logging.WARNING)
    manifest = argument.output / "manifest.json"
    entries: dict[str, Any] = json.loads(manifest.read_text()) if manifest.exists() else {}
    for name in argument.models or BUILDS:
        start = time.process_time()
        try:
            entries[name] = build_model(name, argument.output)
        except Exception as error:  # noqa: BLE001 - a model that cannot be built is reported
            if argument.traceback:
                traceback.print_exc()
            entries[name] = {"failed": _reason(error)}
        manifest.write_text(json.dumps(entries, indent=1) + "\n")
        result = entries[name]
        message = result.get("failed") or f"{result['nodes']} nodes"
        print(f"{name}: {message} ({time.process_time() - start:.0f} s of CPU)", flush=True)
    print(f"torch {torch.__version__}, transformers {transformers.__version__}")
    return int(any("failed" in entries[name] for name in argument.models or BUILDS))


if __name__ == "__main__":
    sys.exit(main())
