"""Export the families of this directory in half precision, and convert their float32 twins.

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

from tools.models import export

TYPES = {"f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16}


def exported(
    family: export.Family, attention: str, exporter: str, form: str, path: Path
) -> onnx.ModelProto:
    """Export a family in a type."""
    module = family.build()
    module.model.config._attn_implementation = attention
    export.fill(module, export.SEED)
    module.eval().to(TYPES[form])
    example = family.feed(export.EXPORT_SIZE, 0, True)
    tensors = tuple(torch.from_numpy(array) for array in example.values())
    tensors = tuple(each.to(TYPES[form]) if each.is_floating_point() else each for each in tensors)
    names: dict[str, Any] = {"input_names": list(example), "output_names": list(family.outputs)}
    if exporter == "ts":
        axes = {**dict.fromkeys(example, family.axes), **family.outputs}
        torch.onnx.export(
            module, tensors, str(path), dynamo=False, opset_version=17, dynamic_axes=axes, **names
        )
        return onnx.load(path)
    shapes = {name: dict(family.axes) for name in example}
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
    out: Path = parser.parse_args().out
    out.mkdir(parents=True, exist_ok=True)
    warnings.simplefilter("ignore")
    scratch = out / "scratch"
    for family in export.FAMILIES:
        if family.name == "convnet":
            continue
        np.savez(out / f"{family.name}.npz", **family.feed((2, 13), 1, False))
        for attention in ("eager", "sdpa"):
            for exporter in ("dyn", "ts"):
                stem = f"{family.name}.{attention}.{exporter}"
                twin = None
                for form in TYPES:
                    name = f"{stem}.{form}"
                    make = partial(exported, family, attention, exporter, form, scratch)
                    made = attempt(name, make, out)
                    twin = made if form == "f32" else twin
                for form, convert in CONVERTERS.items():
                    if twin is not None:
                        copy = onnx.ModelProto()
                        copy.CopyFrom(twin)
                        attempt(f"{stem}.{form}", partial(convert, copy), out)
    scratch.unlink(missing_ok=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
