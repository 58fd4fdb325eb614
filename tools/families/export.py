"""Export families of models, small and with random weights; a file with the reason for each that fails.

In an environment of its own (``make -C tools families``)::

    python -m tools.families.export OUT [FAMILY...]

writes OUT/FAMILY.ts.onnx (TorchScript, opset 17, attention spelled out) and OUT/FAMILY.dyn.onnx (dynamo, opset 20,
attention by torch's own function), or OUT/FAMILY.ts.txt.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import sys
import warnings
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import onnx
import torch
import transformers
from torch import nn

from tools.families.recipes import FAMILIES, PAST, SMALL, Family
from tools.models.export import fill, strip

EXPORTERS = ("ts", "dyn")
BATCH, LENGTH, OTHER = 2, 6, 5
IMPLEMENTATION = {"ts": "eager", "dyn": "sdpa"}


def configured(config: Any, own: dict[str, Any]) -> Any:
    """Return a configuration with small sizes, also in its parts."""
    default = config()
    small: dict[str, Any] = {}
    for name, value in default.to_dict().items():
        if name not in SMALL:
            continue
        if not isinstance(value, list | tuple):
            small[name] = SMALL[name]
        elif name == "image_size":
            small[name] = [SMALL[name]] * 2
    small |= {name: value for name, value in own.items() if value != "resnet"}
    if "resnet" in own.values():
        small["backbone_config"] = transformers.ResNetConfig(
            embedding_size=8, hidden_sizes=[8, 16], depths=[1, 1], out_features=["stage2"]
        )
    for name, part in vars(default).items():
        if isinstance(part, transformers.PreTrainedConfig) and name not in small:
            retained = {
                item: getattr(part, item) for item in ("out_features",) if hasattr(part, item)
            }
            small[name] = configured(type(part), retained)
    return config(**small)


class Text(nn.Module):
    """A model that is called by names, with a past after its inputs if it has one."""

    def __init__(self, model: Any, names: list[str], past: int = 0) -> None:
        super().__init__()
        self.model, self.names, self.past = model, names, past

    def forward(self, *tensors: torch.Tensor) -> Any:
        inputs: dict[str, Any] = dict(zip(self.names, tensors, strict=False))
        if self.past:
            cache = transformers.DynamicCache(config=self.model.config)
            rest = tensors[len(self.names) :]
            for layer in range(self.past):
                cache.update(rest[2 * layer], rest[2 * layer + 1], layer)
            inputs |= {"past_key_values": cache, "use_cache": True}
        result = self.model(**inputs)
        match = _tensors(result)
        if self.past:
            return match[0], *(
                item
                for layer in result.past_key_values.layers
                for item in (layer.keys, layer.values)
            )
        return tuple(match[:2])


def _tensors(result: Any) -> list[torch.Tensor]:
    if isinstance(result, torch.Tensor):
        return [result]
    values = result.values() if isinstance(result, dict) else result
    return [value for value in values if isinstance(value, torch.Tensor)]


def ids(*shape: int) -> torch.Tensor:
    return torch.randint(3, 90, shape)


Inputs: TypeAlias = dict[str, tuple[torch.Tensor, dict[int, str]]]
"""Tensors by their name, each with its open axes."""


def inputs_of(kind: str, config: Any) -> Inputs:
    """Return example inputs of a kind."""
    tokens, batch, target = {0: "batch", 1: "length"}, {0: "batch"}, {0: "batch", 1: "target"}
    mask = torch.ones(BATCH, LENGTH, dtype=torch.int64)
    mask[1, -2:] = 0
    text: Inputs = {"input_ids": (ids(BATCH, LENGTH), tokens), "attention_mask": (mask, tokens)}
    size = getattr(config, "image_size", 32)
    height, width = size if isinstance(size, list | tuple) else (size, size)
    channels = getattr(config, "num_channels", 3)
    normal = torch.randn
    latent = {"hidden_states": (normal(BATCH, 4, 8, 8), batch), "timestep": (ids(BATCH), batch)}
    context = {"encoder_hidden_states": (normal(BATCH, LENGTH, 32), tokens)}
    decoder = {"decoder_input_ids": (ids(BATCH, OTHER), target)}
    pooled = {"pooled_projections": (normal(BATCH, 32), batch)}
    kinds: dict[str, Inputs] = {
        "text": text,
        "boxes": {**text, "bbox": (torch.randint(0, 30, (BATCH, LENGTH, 4)).sort(-1).values, tokens)},
        "hidden": {"src": (normal(BATCH, LENGTH, 32), tokens)},
        "seq2seq": {**text, **decoder},
        "image": {"pixel_values": (normal(BATCH, channels, height, width), batch)},
        "pixels": {"hidden_states": (normal(BATCH, 3, 32, 32), batch)},
        "sample": {"sample": (normal(BATCH, 3, 16, 16), batch)},
        "image64": {"x": (normal(BATCH, 3, 64, 64), batch)},
        "video": {"pixel_values": (normal(BATCH, 4, 3, 32, 32), batch)},
        "patches": {
            "pixel_values": (normal(BATCH, 16, 48), batch),
            "pixel_attention_mask": (torch.ones(BATCH, 16, dtype=torch.int64), batch),
            "spatial_shapes": (torch.tensor([[4, 4]] * BATCH), batch),
        },
        "mels": {
            "input_features": (normal(BATCH, 40, 16), tokens),
            "attention_mask": (torch.ones(BATCH, 40, dtype=torch.int64), tokens),
        },
        "spectrogram": {"input_values": (normal(BATCH, 32, 16), batch)},
        "series": {"past_values": (normal(BATCH, 32, 2), batch)},
        "waves": {"input_values": (normal(BATCH, 400), tokens)},
        "wave2seq": {"input_values": (normal(BATCH, 4000), batch), **decoder},
        "whisper": {"input_features": (normal(BATCH, 16, 32), batch), **decoder},
        "codes": {"input_ids": (ids(BATCH * 2, LENGTH), {1: "length"})},
        "dit": {**latent, "class_labels": (ids(BATCH), batch)},
        "unet": {
            "sample": (normal(BATCH, 4, 8, 8), batch), "timestep": (ids(BATCH), batch), **context,
        },
        "sd3": {"hidden_states": latent["hidden_states"], **context, **pooled, "timestep": latent["timestep"]},
        "pixart": {**latent, **context, "encoder_attention_mask": (mask, tokens)},
        "flux": {
            "hidden_states": (normal(BATCH, 16, 4), batch),
            **context,
            **pooled,
            "timestep": (torch.rand(BATCH), batch),
            "img_ids": (normal(16, 3), {}),
            "txt_ids": (normal(LENGTH, 3), {0: "length"}),
        },
    }  # fmt: skip
    return kinds[kind]


def built(family: Family, implementation: str) -> tuple[nn.Module, Any]:
    """Return a model and its configuration."""
    own = dict(family.own)
    if family.model.startswith("timm:"):
        import timm

        name = family.model.removeprefix("timm:")
        try:
            return timm.create_model(name, img_size=64), None
        except TypeError:
            return timm.create_model(name), None
    if family.model.startswith("diffusers."):
        import diffusers

        return getattr(diffusers, family.model.removeprefix("diffusers."))(**own), None
    if family.model == "torch.nn.TransformerEncoder":
        layer = nn.TransformerEncoderLayer(32, 4, 64, batch_first=True)
        return nn.TransformerEncoder(layer, 2, enable_nested_tensor=False), None
    named = family.config or family.model.removesuffix("Model") + "Config"
    if hasattr(transformers, named):
        config = configured(getattr(transformers, named), own)
        model = _class(family.model, type(config))
    else:
        raise LookupError(f"transformers has no {named}")
    with contextlib.suppress(ValueError):
        config._attn_implementation = implementation
    config._experts_implementation = "eager"
    try:
        return model(config), config
    except ValueError:  # no sdpa
        config._attn_implementation = "eager"
        return model(config), config


def _class(name: str, config: Any) -> Any:
    """Return a class of transformers, also one that its package does not name."""
    if hasattr(transformers, name):
        return getattr(transformers, name)
    module = config.__module__.replace("configuration_", "modeling_")
    return getattr(__import__(module, fromlist=[name]), name)


def exported(name: str, exporter: str, example: Path) -> onnx.ModelProto:
    """Export a family; ``NAME_past`` with a past; write the example's inputs and their open axes."""
    has_past = name.endswith("_past")
    family = FAMILIES[name.removesuffix("_past") if has_past else name]
    torch.manual_seed(0)
    model, config = built(family, IMPLEMENTATION[exporter])
    fill(model, 0)
    example_inputs = inputs_of(family.kind, config)
    inputs = {key: tensor for key, (tensor, _) in example_inputs.items()}
    axes = {key: dict(own) for key, (_, own) in example_inputs.items()}
    if (
        family.kind in ("text", "seq2seq", "codes")
        and not has_past
        and hasattr(config, "use_cache")
    ):
        config.use_cache = False
    past = config.num_hidden_layers if has_past else 0
    module = Text(model.eval(), list(inputs), past)
    if past:
        heads = getattr(config, "num_key_value_heads", None) or config.num_attention_heads
        head = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
        inputs["attention_mask"] = torch.ones(BATCH, LENGTH + 3, dtype=torch.int64)
        axes = {**axes, "attention_mask": {0: "batch", 1: "past + length"}}
        for layer in range(past):
            for kind in ("key", "value"):
                inputs[f"past_{kind}_{layer}"] = torch.randn(BATCH, heads, 3, head)
                axes[f"past_{kind}_{layer}"] = {0: "batch", 2: "past"}
    with torch.no_grad():
        module(*inputs.values())
        arrays = {key: tensor.numpy() for key, tensor in inputs.items()}
        np.savez(example, **arrays, axes=np.array(json.dumps(axes)))
        file = io.BytesIO()
        if exporter == "ts":
            torch.onnx.export(
                module,
                tuple(inputs.values()),
                file,
                dynamo=False,
                opset_version=17,
                input_names=list(inputs),
                dynamic_axes=axes,
            )
            return onnx.load_from_string(file.getvalue())
        dims = {key: torch.export.Dim.DYNAMIC for own in axes.values() for key in own.values()}
        shapes = (tuple({axis: dims[key] for axis, key in axes[one].items()} for one in inputs),)
        program = torch.onnx.export(
            module,
            tuple(inputs.values()),
            None,
            dynamo=True,
            opset_version=20,
            input_names=list(inputs),
            dynamic_shapes=shapes,
            verbose=False,
        )
    assert program is not None
    return program.model_proto


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("out", type=Path)
    parser.add_argument("families", nargs="*", help="all by default")
    parser.add_argument("--exporters", default=",".join(EXPORTERS))
    options = parser.parse_intermixed_args()
    warnings.simplefilter("ignore")
    transformers.logging.set_verbosity_error()
    torch.backends.mha.set_fastpath_enabled(
        False
    )  # an operator of its own, which no exporter knows
    options.out.mkdir(parents=True, exist_ok=True)
    for name in options.families or [*FAMILIES, *(f"{item}_past" for item in PAST)]:
        for exporter in options.exporters.split(","):
            path = options.out / f"{name}.{exporter}.onnx"
            reason = path.with_suffix(".txt")
            if path.exists() or reason.exists():
                continue
            try:
                with (
                    contextlib.redirect_stdout(io.StringIO()),
                    contextlib.redirect_stderr(io.StringIO()),
                ):
                    model = exported(name, exporter, options.out / f"{name}.npz")
                strip(model)
                onnx.save(model, path)
                print(f"{path.stem:30} {len(model.graph.node)} nodes", flush=True)
            except Exception as error:  # noqa: BLE001 - exporters raise whatever they like
                text = f"{type(error).__name__}: {error}"
                reason.write_text(text)
                print(f"{path.stem:30} not exported: {' '.join(text.split())[:150]}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
