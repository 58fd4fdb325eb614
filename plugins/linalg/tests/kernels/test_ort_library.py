"""``--ort-library`` with a real library: operators that no body of the model computes."""

from __future__ import annotations

from pathlib import Path

import onnx
import pytest

from gehost.cli import run
from gehost.testing import parse
from gehost_linalg.kernels.library import write_library

from .fused_models import Case, fused_model

CASE = Case("float[N, 64] x, float[N, 64] z", "s = Add(x, z)\ny = Tanh(s)")


@pytest.fixture(scope="module")
def folder(cc: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model, one whose only node is in the library alone, and the library."""
    folder = tmp_path_factory.mktemp("library")
    fused = fused_model([CASE])
    onnx.save(fused, folder / "with_body.onnx")
    write_library(str(folder / "with_body.onnx"), str(folder / "kernels.so"))
    del fused.functions[:]
    onnx.save(fused, folder / "fused.onnx")
    names = [entry.name for entry in (*fused.graph.input, *fused.graph.output)]
    for name, last in (("model", "Tanh"), ("wrong", "Sigmoid")):
        lines = f"{{ s = Add({names[0]}, {names[1]}) {names[2]} = {last}(s) }}"
        text = f"g (float[N, 64] {names[0]}, float[N, 64] {names[1]}) => (float[N, 64] {names[2]}) {lines}"
        onnx.save(
            parse(f'<ir_version: 10, opset_import: ["": 20]> {text}'), folder / f"{name}.onnx"
        )
    return folder


def test_the_library_computes_what_the_model_does(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model, wrong, fused, library = (
        str(folder / name) for name in ("model.onnx", "wrong.onnx", "fused.onnx", "kernels.so")
    )
    assert run(["verify", model, fused]) == 3
    error = capsys.readouterr().err
    assert "has no body in the model and ONNX Runtime" in error
    assert "--ort-library" in error
    assert run(["verify", model, fused, "--ort-library", library, "--special-values"]) == 0
    assert run(["verify", wrong, fused, "--ort-library", library]) == 6


def test_compile_and_bisect_with_the_library(folder: Path) -> None:
    fused, library = str(folder / "fused.onnx"), str(folder / "kernels.so")
    out, result = str(folder / "out.onnx"), str(folder / "found")
    vendors = ["--vendors", str(folder), "--verify"]
    assert run(["compile", fused, "-o", out, *vendors]) == 3
    assert run(["compile", fused, "-o", out, *vendors, "--ort-library", library]) == 0
    assert [node.op_type for node in onnx.load(out).graph.node] == [
        node.op_type for node in onnx.load(fused).graph.node
    ]
    bisect = ["bisect", fused, "-o", result, "--vendors", str(folder), "--ort-library", library]
    assert run(bisect) == 0
