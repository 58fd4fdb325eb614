"""``half``: the compiled model in float16, from a file, in memory and on the command line."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from gehost import Host, HostOptions, NumbersDifferError, UsageError
from gehost.host import in_half as module
from gehost.verify import Runner

MODELS = Path(__file__).parents[1] / "models"
FLOAT, FLOAT16 = onnx.TensorProto.FLOAT, onnx.TensorProto.FLOAT16


def types_of(model: onnx.ModelProto) -> list[int]:
    values = (*model.graph.input, *model.graph.output)
    return [value.type.tensor_type.elem_type for value in values]


@pytest.mark.parametrize("keep", [False, True])
def test_a_file_is_fused_converted_and_compared(tmp_path: Path, keep: bool) -> None:
    options = HostOptions(half=True, keep_io_types=keep, verify=True)
    report = Host(options).compile(MODELS / "vit.ts17.onnx", tmp_path / "half.onnx")
    result = onnx.load(tmp_path / "half.onnx")
    assert set(types_of(result)) == {FLOAT if keep else FLOAT16}
    assert report.nodes_after == len(result.graph.node)
    assert any(
        note.startswith("half: equal: ") and "float16 is off by" in note for note in report.notes
    )


def test_external_weights_are_read_and_written(tmp_path: Path) -> None:
    host = Host(HostOptions(half=True, keep_io_types=True, plugins=False))
    host.compile(MODELS / "external.onnx", tmp_path / "half.onnx")
    x = {
        value.name: np.ones(
            [1 if not d.dim_value else d.dim_value for d in value.type.tensor_type.shape.dim],
            np.float32,
        )
        for value in onnx.load(MODELS / "external.onnx").graph.input
    }
    before, after = Runner(MODELS / "external.onnx").run(x), Runner(tmp_path / "half.onnx").run(x)
    for name, array in before.items():
        np.testing.assert_allclose(after[name], array, rtol=1e-2, atol=1e-3)


def test_a_model_in_memory_stays_as_it_is() -> None:
    model = onnx.load(MODELS / "vit.ts17.onnx")
    content = model.SerializeToString(deterministic=True)
    result, _ = Host(HostOptions(half=True, plugins=False)).run(model)
    assert model.SerializeToString(deterministic=True) == content
    assert set(types_of(result)) == {FLOAT16}


def test_a_conversion_with_other_numbers_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    convert: Any = module.to_float16

    def wrong(*arguments: Any, **options: Any) -> Any:
        conversion = convert(*arguments, **options)
        for node in conversion.model.graph.node:
            for entry in node.attribute:
                if entry.name == "epsilon":
                    entry.f = 1e-3
        return conversion

    monkeypatch.setattr(module, "to_float16", wrong)
    with pytest.raises(
        NumbersDifferError, match=r"float16 gives other numbers: differ: .*--keep-float32"
    ):
        Host(HostOptions(half=True, verify=True)).run(onnx.load(MODELS / "vit.dyn20.onnx"))


def test_options_of_the_conversion_need_it() -> None:
    with pytest.raises(UsageError, match="keep_io_types: only used by half; turn half on"):
        HostOptions(keep_io_types=True)
    with pytest.raises(UsageError, match="keep_float32: only used by half; turn half on"):
        HostOptions(keep_float32=["Softmax"])
