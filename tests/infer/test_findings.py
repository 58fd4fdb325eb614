"""A type that cannot be is reported, in the report and on stderr; the compile goes on."""

from __future__ import annotations

import re
from pathlib import Path

import onnx
import pytest

from gehost import Host, HostOptions, ModelError
from gehost.cli import run

HEAD = '<ir_version: 8, opset_import: ["" : 17]> '


def warnings_of(text: str, edit: tuple[str, int] | None = None) -> list[str]:
    model = onnx.parser.parse_model(HEAD + text)
    if edit is not None:
        for info in (*model.graph.input, *model.graph.output):
            if info.name in edit[0]:
                info.type.tensor_type.elem_type = edit[1]
    with pytest.raises((onnx.checker.ValidationError, onnx.shape_inference.InferenceError)):
        onnx.checker.check_model(model, full_check=True)
    return Host(HostOptions(plugins=False)).run(model)[1].warnings


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("g (float[2, 3] x, float[4, 5] w) => (float[2, 5] y) { y = MatMul(x, w) }", "MatMul"),
        ("g (int32[2] x) => (int32[2] y) { y = Sin(x) }", "Sin"),
        ("g (float[2] x, float c) => (float[2] y) { y = If (c) <then_branch = t () => (float[2] u)"
         " { u = Neg(x) }, else_branch = e () => (float[2] v) { v = Neg(x) }> }", "If"),
        ("g (float[2] x, bool c) => (float[2] y) { y = If (c) <then_branch = t () => (float[2] u)"
         " { u = Not(x) }, else_branch = e () => (float[2] v) { v = Neg(x) }> }", "Not"),
    ],
)  # fmt: skip
def test_a_node_that_does_not_take_its_inputs(text: str, message: str) -> None:
    (line,) = warnings_of(text)
    assert f"({message}): " in line


def test_an_element_type_that_the_opset_lacks() -> None:
    (line,) = warnings_of("g (float[2] x) => (float[2] y) { y = Identity(x) }", ("xy", 26))
    assert "(Identity): " in line
    assert "tensor(int2)" in line


def test_a_negative_size(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = onnx.parser.parse_model(HEAD + "g (float[2] x) => (float[2] y) { y = Neg(x) }")
    model.graph.input[0].type.tensor_type.shape.dim[0].dim_value = -7
    onnx.save(model, tmp_path / "m.onnx")
    assert run(["compile", str(tmp_path / "m.onnx"), "-o", str(tmp_path / "out.onnx")]) == 0
    assert '"x" has the negative size -7' in capsys.readouterr().err
    assert (tmp_path / "out.onnx").exists()


@pytest.mark.parametrize(
    ("declared", "inferred"),
    [("float[3]", "float[2]"), ("float[2,1]", "float[2]")],
)
def test_a_stated_type_that_inference_contradicts(declared: str, inferred: str) -> None:
    (line,) = warnings_of(f"g (float[2] x) => ({declared} y) {{ y = Relu(x) }}")
    assert line == f'types: "y" is stated as {declared}, and inferred as {inferred}'
    inner = f"g (float[2] x) => (float[2] y) <{declared} t> {{ t = Relu(x) y = Relu(t) }}"
    (line,) = warnings_of(inner)
    assert line == f'types: "t" is stated as {declared}, and inferred as {inferred}'


CLASHES = [
    ("g (float[2] x, string[2] s) => (float[2] y) { y = Add(x, s) }",
     'Add "y": input 0 is float32 and input 1 string'),
    ("g (float[2] x) => (float[2] y) { a = Cast<to = 8>(x) y = Mul(x, a) }",
     'Mul "y": input 0 is float32 and input 1 string'),
    ("g (float16[2] x, float[2] m) => (float[2] y) { s = Exp(x) y = Add(s, m) }",
     'Add "y": input 0 is float16 and input 1 float32'),
    ("g (float16[2] x, float16[2] z, float[2] m) => (float[6] y) { y = Concat<axis = 0>(x, z, m) }",
     'Concat "y": input 0 is float16 and input 2 float32'),
    ("g (float[2] x) => (int64[2] y) { y = Relu(x) }",
     'Relu "y": "y" is declared int64, and the node makes float32'),
    ("g (float[2] x) => (float16[2] y) <float16[2] t> { t = Cast<to = 1>(x) y = Relu(t) }",
     'Cast "t": "t" is declared float16, and the node makes float32'),
]  # fmt: skip


@pytest.mark.parametrize(("text", "message"), CLASHES)
def test_two_element_types_that_meet_are_refused(
    text: str, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """No runtime loads them; converters to half leave such nodes."""
    onnx.save(onnx.parser.parse_model(HEAD + text), tmp_path / "m.onnx")
    assert run(["compile", str(tmp_path / "m.onnx"), "-o", str(tmp_path / "out.onnx")]) == 3
    (line,) = capsys.readouterr().err.splitlines()
    assert f"{message}; no runtime loads that; export or convert the model again" in line
    assert not (tmp_path / "out.onnx").exists()


UNTAKEN = [
    (21, "g (bfloat16[1, 3, 8, 8] x, bfloat16[4, 3, 3, 3] w) => (bfloat16[1, 4, 6, 6] y) { y = Conv(x, w) }",
     'Conv "y": input 0 is bfloat16, which it takes from opset 22 on; no runtime loads that; '
     "raise the model (--opset 22), or export it in float16"),
    (8, "g (float16[2] x, float16[2] z) => (bool[2] y) { a = Add(x, z) y = Equal(a, z) }",
     'Equal "y": input 0 is float16, which it takes from opset 11 on; no runtime loads that; '
     "raise the model (--opset 11)"),
    (21, "g (float16[2] x) => (float[2] y) { y = BitwiseNot(x) }",
     'BitwiseNot "y": input 0 is float16, which it does not take; no runtime loads that; '
     "put a Cast before the node"),
]  # fmt: skip


@pytest.mark.parametrize(("opset", "text", "line"), UNTAKEN)
def test_a_half_type_that_the_operator_does_not_take_is_refused(
    opset: int, text: str, line: str
) -> None:
    """Exporters write Conv of bfloat16 at opsets whose Conv has none."""
    model = onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["": {opset}]> {text}')
    with pytest.raises(ModelError, match=re.escape(line)):
        Host(HostOptions(plugins=False)).run(model)


def test_raised_to_an_opset_that_takes_it() -> None:
    text = f'<ir_version: 8, opset_import: ["": {UNTAKEN[0][0]}]> {UNTAKEN[0][1]}'
    result, _ = Host(HostOptions(plugins=False, opset=22)).run(onnx.parser.parse_model(text))
    onnx.checker.check_model(result, full_check=True)


def test_what_is_right_has_no_warning() -> None:
    text = HEAD + "g (float[N] x, float[?] z) => (float[?] y) { y = Concat<axis = 0>(x, z) }"
    assert Host(HostOptions(plugins=False)).run(onnx.parser.parse_model(text))[1].warnings == []
