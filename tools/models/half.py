"""Export families of models in half precision, and convert their float32 twins.

In the environment of ``export.py``, with onnxconverter-common beside it: ``python -m tools.models.half DIR``. Then, in
that of the repository, ``make half HALF_ARGS=DIR`` compiles the files. A file's name is FAMILY.ATTENTION.EXPORTER.FORM:

- attention: ``eager`` or ``sdpa``; exporter: ``dyn`` (opset 20) or ``ts`` (TorchScript, opset 17);
- form: ``f32``; ``f16`` and ``bf16``, by ``.half()`` and ``.bfloat16()``; ``occ`` and ``ortc``, the float32 file by
  onnxconverter-common and by ONNX Runtime's converter.
"""

from __future__ import annotations

import argparse
import sys
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import torch
import transformers
from torch import nn

from tools.models import export

TYPES = {"f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16}


class T5Encoder(nn.Module):
    """The encoder of T5: a bias of positions, root mean squares."""

    def __init__(self) -> None:
        super().__init__()
        self.model = transformers.T5EncoderModel(
            transformers.T5Config(
                vocab_size=export.VOCAB,
                d_model=export.HIDDEN,
                d_kv=export.HIDDEN // export.HEADS,
                d_ff=export.INNER,
                num_layers=export.LAYERS,
                num_heads=export.HEADS,
            )
        )

    def forward(self, input_ids: torch.Tensor, attention_mask: torch.Tensor) -> torch.Tensor:
        """Return the last hidden state."""
        state: torch.Tensor = self.model(
            input_ids=input_ids, attention_mask=attention_mask
        ).last_hidden_state
        return state


class WithCache(nn.Module):
    """A decoder that reads and returns keys and values of earlier positions."""

    def __init__(self, decoder: Callable[[], nn.Module]) -> None:
        super().__init__()
        self.model: Any = decoder().model

    def forward(
        self, input_ids: torch.Tensor, attention_mask: torch.Tensor, *past: torch.Tensor
    ) -> tuple[torch.Tensor, ...]:
        """Return the logits, and keys and values of all positions."""
        cache = transformers.DynamicCache()
        for layer in range(export.LAYERS):
            cache.update(past[2 * layer], past[2 * layer + 1], layer)
        result = self.model(
            input_ids=input_ids,
            attention_mask=attention_mask,
            past_key_values=cache,
            use_cache=True,
        )
        layers = result.past_key_values.layers
        return result.logits, *(item for layer in layers for item in (layer.keys, layer.values))


class Images(nn.Module):
    """A classifier of images of transformers, with small sizes."""

    def __init__(self, model: type[Any], config: Any) -> None:
        super().__init__()
        self.model: Any = model(config)

    def forward(self, pixel_values: torch.Tensor) -> torch.Tensor:
        """Return the logits."""
        logits: torch.Tensor = self.model(pixel_values=pixel_values).logits
        return logits


def resnet() -> nn.Module:
    config = transformers.ResNetConfig(
        embedding_size=16, hidden_sizes=[16, 32], depths=[2, 2], num_labels=export.CLASSES
    )
    return Images(transformers.ResNetForImageClassification, config)


def mobilenet() -> nn.Module:
    config = transformers.MobileNetV2Config(
        image_size=64, depth_multiplier=0.35, num_labels=export.CLASSES
    )
    return Images(transformers.MobileNetV2ForImageClassification, config)


def efficientnet() -> nn.Module:
    config = transformers.EfficientNetConfig(
        image_size=64,
        width_coefficient=0.25,
        depth_coefficient=0.25,
        hidden_dim=320,
        num_labels=export.CLASSES,
    )
    return Images(transformers.EfficientNetForImageClassification, config)


def images(size: tuple[int, int], seed: int, masked: bool) -> export.Feed:
    """Return images large enough for five halvings."""
    del masked
    return {"pixel_values": export.normal(seed, size[0], 3, 64, 64)}


def cached(heads: int) -> Callable[[tuple[int, int], int, bool], export.Feed]:
    """Return the feed of a decoder with keys and values of 7 earlier positions."""

    def feed(size: tuple[int, int], seed: int, masked: bool) -> export.Feed:
        result = export.decoder_feed(size, seed, masked)
        result["attention_mask"] = np.ones((size[0], size[1] + PAST), np.int64)
        for layer in range(export.LAYERS):
            for number, name in enumerate(("key", "value")):
                result[f"past_{name}_{layer}"] = export.normal(
                    seed + 2 * layer + number,
                    size[0],
                    heads,
                    PAST,
                    export.HIDDEN // export.HEADS,
                )
        return result

    return feed


PAST = 7
CACHE = {
    f"{kind}_{each}_{layer}": {0: "batch", 2: f"{kind}_length"}
    for kind in ("past", "present")
    for layer in range(export.LAYERS)
    for each in ("key", "value")
}
LOGITS = {"logits": export.TOKENS}
PRESENT = {name: axes for name, axes in CACHE.items() if name.startswith("present")}
FAMILIES = (
    *(family for family in export.FAMILIES if family.name != "convnet"),
    export.Family(
        "t5", T5Encoder, export.decoder_feed, export.TOKENS, {"state": export.TOKENS}, {}
    ),
    export.Family(
        "gpt2past",
        partial(WithCache, export.Gpt2),
        cached(export.HEADS),
        export.TOKENS,
        LOGITS | PRESENT,
        {},
    ),
    export.Family(
        "llamapast",
        partial(WithCache, export.Llama),
        cached(export.HEADS // 2),
        export.TOKENS,
        LOGITS | PRESENT,
        {},
    ),
    *(
        export.Family(name, build, images, export.BATCH, {"logits": export.BATCH}, {})
        for name, build in (
            ("resnet", resnet),
            ("mobilenet", mobilenet),
            ("efficientnet", efficientnet),
        )
    ),
)
WITHOUT_ATTENTION = ("resnet", "mobilenet", "efficientnet")


def axes_of(family: export.Family, name: str) -> export.Axes:
    """Return the open sizes of an input."""
    if name == "attention_mask" and family.name.endswith("past"):
        return {0: "batch", 1: "present_length"}
    return CACHE.get(name, family.axes)


def exported(
    family: export.Family, attention: str, exporter: str, form: str, path: Path
) -> onnx.ModelProto:
    """Export a family in a type."""
    module: Any = family.build()
    module.model.config._attn_implementation = attention
    export.fill(module, export.SEED)
    module.eval().to(TYPES[form])
    example = family.feed(export.EXPORT_SIZE, 0, True)
    tensors = tuple(torch.from_numpy(array) for array in example.values())
    tensors = tuple(
        tensor.to(TYPES[form]) if tensor.is_floating_point() else tensor for tensor in tensors
    )
    names: dict[str, Any] = {"input_names": list(example), "output_names": list(family.outputs)}
    if exporter == "ts":
        axes = {**{name: axes_of(family, name) for name in example}, **family.outputs}
        torch.onnx.export(
            module, tensors, str(path), dynamo=False, opset_version=17, dynamic_axes=axes, **names
        )
        return onnx.load(path)
    open_sizes = [dict(axes_of(family, name)) for name in example]
    shapes: Any = dict(zip(example, open_sizes, strict=True))
    if family.name.endswith("past"):
        shapes = (*open_sizes[:2], tuple(open_sizes[2:]))
    program = torch.onnx.export(
        module,
        tensors,
        None,
        dynamo=True,
        opset_version=20,
        dynamic_shapes=shapes,
        verbose=False,
        **names,
    )
    assert program is not None
    return program.model_proto


def by_occ(model: onnx.ModelProto) -> onnx.ModelProto:
    from onnxconverter_common import float16

    return float16.convert_float_to_float16(model)


def by_ortc(model: onnx.ModelProto) -> onnx.ModelProto:
    from onnxruntime.transformers import float16

    return float16.convert_float_to_float16(model)


CONVERTERS: dict[str, Callable[[onnx.ModelProto], onnx.ModelProto]] = {
    "occ": by_occ,
    "ortc": by_ortc,
}


def attempt(name: str, make: Callable[[], onnx.ModelProto], out: Path) -> onnx.ModelProto | None:
    """Write a model; where it cannot be made, print why."""
    try:
        model = make()
    except Exception as error:  # noqa: BLE001 - exporters and converters raise whatever they like
        print(
            f"{name}: not made: {type(error).__name__}: {str(error).splitlines()[0][:120] if str(error) else ''}"
        )
        return None
    export.strip(model)
    onnx.save(model, out / f"{name}.onnx")
    return model


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path)
    parser.add_argument("--only", default="", help="families whose name starts so")
    options = parser.parse_args()
    out: Path = options.out
    out.mkdir(parents=True, exist_ok=True)
    warnings.simplefilter("ignore")
    scratch = out / "scratch"
    for family in FAMILIES:
        if not family.name.startswith(options.only):
            continue
        np.savez(out / f"{family.name}.npz", **family.feed((2, 13), 1, False))
        for attention in ("eager",) if family.name in WITHOUT_ATTENTION else ("eager", "sdpa"):
            for exporter in ("dyn", "ts"):
                stem = f"{family.name}.{attention}.{exporter}"
                twin = None
                for form in TYPES:
                    name = f"{stem}.{form}"
                    make = partial(exported, family, attention, exporter, form, scratch)
                    result = attempt(name, make, out)
                    twin = result if form == "f32" else twin
                for form, convert in CONVERTERS.items():
                    if twin is not None:
                        copy = onnx.ModelProto()
                        copy.CopyFrom(twin)
                        attempt(f"{stem}.{form}", partial(convert, copy), out)
    scratch.unlink(missing_ok=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
