"""Open dimensions are fixed wherever their symbol stands; a size that cannot be is refused in one line."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.parser
import pytest

from gehost import Host, HostOptions, UsageError
from gehost.cli import run
from gehost.ir.dims import fix_dims

HEAD = '<ir_version: 8, opset_import: ["": 17]>'
MODEL = """g (float[batch, seq, 4] x, float[past, 4] m, float[?, 4] u, float[3, 4] c) => (float[batch, seq, 4] y, float[A, 4] z, float[?] r)
    <float[batch, seq, 4] a, float[B, batch] e, float[C] f, float[D, 4] o> {
    a = Relu(x)
    y = Neg(a)
    z = Abs(m)
    r = ReduceSum<keepdims=0>(u)
}"""


EXPRESSIONS = {"A": "past + seq", "B": "2*seq", "C": "batch - 3", "D": "floor(seq)"}
"""ONNX text has no expressions: these stand for them."""


def load(text: str = MODEL) -> onnx.ModelProto:
    model = onnx.parser.parse_model(HEAD + text)
    for entry in (*model.graph.output, *model.graph.value_info):
        for dim in entry.type.tensor_type.shape.dim:
            if dim.dim_param in EXPRESSIONS:
                dim.dim_param = EXPRESSIONS[dim.dim_param]
    return model


def dims_of(model: onnx.ModelProto) -> dict[str, list[Any]]:
    graph = model.graph
    return {
        entry.name: [
            dim.dim_param or (dim.dim_value if dim.HasField("dim_value") else None)
            for dim in entry.type.tensor_type.shape.dim
        ]
        for entry in (*graph.input, *graph.output, *graph.value_info)
    }


def fixed(dims: dict[str, int], text: str = MODEL) -> dict[str, list[Any]]:
    model = load(text)
    fix_dims(model, dims)
    return dims_of(model)


def test_a_symbol_has_its_size_wherever_it_stands() -> None:
    actual = fixed({"seq": 5, "batch": 7})
    assert actual["x"] == actual["a"] == actual["y"] == [7, 5, 4]
    assert actual["z"] == ["past + 5", 4]
    assert actual["e"] == [10, 7]
    assert actual["f"] == [4]
    assert actual["o"] == [5, 4]
    assert actual["m"] == ["past", 4]
    assert fixed({"past": 1, "seq": 2})["z"] == [3, 4]


def test_an_axis_of_an_input_names_its_symbol_or_itself_alone() -> None:
    assert fixed({"x:1": 5}) == fixed({"seq": 5}) == fixed({"x:-2": 5, "seq": 5})
    actual = fixed({"u:0": 6, "c:0": 3})
    assert (actual["u"], actual["c"], actual["x"]) == ([6, 4], [3, 4], ["batch", "seq", 4])


def test_nested_bodies_are_fixed_too() -> None:
    text = """g (bool k, float[n] x) => (float[n] y) {
        y = If(k) <then_branch = t () => (float[n] p) <float[n] q> { q = Neg(x) p = Abs(q) },
                   else_branch = e () => (float[n] s) { s = Relu(x) }>
    }"""
    model = load(text)
    fix_dims(model, {"n": 3})
    bodies = [attribute.g for attribute in model.graph.node[0].attribute]
    entries = [entry for body in bodies for entry in (*body.output, *body.value_info)]
    assert len(entries) == 3
    assert all(entry.type.tensor_type.shape.dim[0].dim_value == 3 for entry in entries)


MATMUL = "g (float[n, k] x) => (float[n, 5] y) <float[4, 5] w> { y = MatMul(x, w) }"
RESHAPE = "g (float[n, 4] x) => (float[2, 8] y) <int64[2] s = {2, 8}> { y = Reshape(x, s) }"
OPEN = "g (float[n, m] x) => (float[3, 4] y) <int64[2] s = {3, 4}> { y = Reshape(x, s) }"
SHAPES = """g (float[n, m] x, bool c) => (float[3, 4] y, float[?, ?] z) <int64[2] t = {3, 4}> { y = Reshape(x, t)
    z = If (c) <then_branch = p () => (float[?, ?] a) { s = Shape(x) a = Reshape(x, s) },
                else_branch = q () => (float[?, ?] b) { s = Shape(x) b = Reshape(x, s) }> }"""
SAME = "g (float[n] x, float[m] z) => (float[n] y) { y = Add(x, z) }"


def with_weight(text: str) -> onnx.ModelProto:
    model = load(text)
    for info in list(model.graph.value_info):
        array = np.ones([dim.dim_value for dim in info.type.tensor_type.shape.dim], np.float32)
        model.graph.initializer.append(onnx.numpy_helper.from_array(array, info.name))
    return model


@pytest.mark.parametrize(
    ("text", "dims", "message"),
    [
        (MODEL, {"batsh": 2}, "--dim batsh=2: no input has an open dimension of this name; did you mean batch?"),
        (MODEL, {"zzz": 2}, "open are batch, past, seq, u:0"),
        ("g (float[2] x) => (float[2] y) { y = Relu(x) }", {"n": 1}, "none is open"),
        (MODEL, {"x:7": 2}, '--dim x:7=2: input "x" has 3 dimensions'),
        (MODEL, {"c:0": 2}, "--dim c:0=2: this dimension is 3"),
        (MODEL, {"seq": 2, "x:1": 3}, '--dim x:1=3: --dim seq=2 makes "seq" 2'),
        (MODEL, {"batch": 2}, '--dim: "batch - 3", a dimension of "f", would be -1'),
        (MATMUL, {"k": 3}, "--dim k=3: the model contradicts it: (op_type:MatMul, node name: y): Incompatible dimensions"),
        (RESHAPE, {"n": 3}, 'the model contradicts it: Reshape of "x" from [3, 4] to [2, 8]'),
        (OPEN, {"n": 0}, 'the model contradicts it: Reshape of "x" from [0, ?] to [3, 4]'),
        (OPEN, {"m": 5}, 'the model contradicts it: Reshape of "x" from [?, 5] to [3, 4]'),
        (SHAPES, {"n": 2, "m": 3}, 'the model contradicts it: Reshape of "x" from [2, 3] to [3, 4]'),
        (MODEL, {"z:0": 2}, "--dim z:0=2: no input has"),
        (SAME, {"n": 3, "m": 2}, "--dim n=3, m=2: the model contradicts it: (op_type:Add, node name: y): Incompatible"),
    ],
)  # fmt: skip
def test_a_name_or_size_that_does_not_fit_is_refused(text: str, dims: Any, message: str) -> None:
    model = with_weight(text) if text == MATMUL else load(text)
    with pytest.raises(UsageError) as caught:
        fix_dims(model, dims)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_sizes_that_fit_are_not_refused() -> None:
    fix_dims(with_weight(MATMUL), {"k": 4, "n": 0})
    fix_dims(load(RESHAPE), {"n": 4})
    fix_dims(load(SAME), {"n": 3, "m": 3})
    fix_dims(load(SAME), {"n": 3, "m": 1})
    fix_dims(load(OPEN), {"m": 6})
    fix_dims(load(SHAPES), {"n": 2, "m": 6})


def test_a_dimension_that_is_an_expression_is_fixed_by_its_symbols() -> None:
    model = load("g (float[n] x, float[B] z) => (float[n] y) { y = Neg(x) }")
    model.graph.input[1].type.tensor_type.shape.dim[0].dim_param = "2*n"
    with pytest.raises(UsageError, match=r'--dim z:0=5: this dimension is "2\*n"; give n'):
        fix_dims(model, {"z:0": 5})


def test_an_operator_that_onnx_does_not_know_hides_no_contradiction() -> None:
    text = HEAD.replace("17]", '17, "acme": 1]') + (
        "g (float[n] x, float[m] z) => (float[n] y, float[?] w)"
        "{ a = acme.F(x) w = Neg(a) y = Add(x, z) }"
    )
    with pytest.raises(UsageError, match=r"contradicts it: types of y \(Add\): "):
        Host(HostOptions(dims={"n": 3, "m": 2}, plugins=False)).run(onnx.parser.parse_model(text))


def test_an_initializer_has_the_size_that_its_symbol_gets() -> None:
    text = "g (float[n] x, float[n] w) => (float[n] y) { y = Add(x, w) }"
    model = load(text)
    model.graph.initializer.append(onnx.numpy_helper.from_array(np.ones(3, np.float32), "w"))
    with pytest.raises(UsageError, match='dimension 0 of initializer "w" is 3, not 2'):
        fix_dims(model, {"n": 2})


def test_a_model_that_contradicts_itself_already_can_be_fixed() -> None:
    model = load("g (float[n, 3] x, float[4] z) => (float[n, 3] y) { y = Add(x, z) }")
    fix_dims(model, {"n": 2})
    assert dims_of(model)["y"] == [2, 3]


# -- of a compile -----------------------------------------------------------------------------------------------------

SLICED = "g (float[n, 4] x) => (float[n, 4] y) { s = Shape(x) y = Reshape(x, s) }"


def test_a_compile_fixes_them_first_and_verifies_with_them(tmp_path: Path, capsys: Any) -> None:
    source, output = tmp_path / "m.onnx", tmp_path / "out.onnx"
    onnx.save(load("g (float[n, 4] x) => (float[n, 4] y) { y = Relu(x) }"), source)
    options = HostOptions(plugins=False, dims={"n": 6}, verify=True)
    report = Host(options).compile(source, output)
    assert report.verify["equal"] is True
    assert report.as_dict()["options"]["dims"] == {"n": 6}
    assert dims_of(onnx.load(output)) == {"x": [6, 4], "y": [6, 4]}
    result, report = Host(options).run(onnx.load(source))
    assert (dims_of(result)["y"], report.verify["equal"]) == ([6, 4], True)
    assert dims_of(onnx.load(source))["x"] == ["n", 4]

    value = ["compile", str(source), "-o", str(output), "--vendors", str(tmp_path)]
    assert run([*value, "--dim", "x:0=3", "--verify"]) == 0
    assert dims_of(onnx.load(output))["y"] == [3, 4]
    capsys.readouterr()
    assert run([*value, "--dim", "m=3"]) == 2
    message = (
        f"gehost: {source}: --dim m=3: no input has an open dimension of this name; open are n\n"
    )
    assert capsys.readouterr().err == message


@pytest.mark.parametrize("value", ["n", "n=", "=3", "n=-1", "n=1.5", "n=" + 5000 * "9"])
def test_what_is_no_size_is_a_usage_error(tmp_path: Path, capsys: Any, value: str) -> None:
    onnx.save(load(SLICED), tmp_path / "m.onnx")
    compile_ = ["compile", str(tmp_path / "m.onnx"), "-o", str(tmp_path / "o.onnx")]
    assert run([*compile_, "--vendors", str(tmp_path), "--dim", value]) == 2
    assert "wanted NAME=SIZE, a whole number from 0" in capsys.readouterr().err


def test_a_size_that_no_file_can_hold_is_a_usage_error(tmp_path: Path, capsys: Any) -> None:
    onnx.save(load(SLICED), tmp_path / "m.onnx")
    value = ["compile", str(tmp_path / "m.onnx"), "-o", str(tmp_path / "o.onnx"), "--dim"]
    assert run([*value, f"n={1 << 63}"]) == 2
    message = f"gehost: dim n={1 << 63}: wanted a whole number from 0 to 2**63 - 1\n"
    assert capsys.readouterr().err == message
    with pytest.raises(
        UsageError, match=r'"2\*seq", a dimension of "e", would be 9223372036854775808'
    ):
        fix_dims(load(), {"seq": 1 << 62})


def test_one_name_with_two_sizes_is_a_usage_error(tmp_path: Path, capsys: Any) -> None:
    value = ["--dim", "n=1", "--dim", "n=2"]
    assert run(["compile", "m.onnx", "-o", "o.onnx", "--vendors", str(tmp_path), *value]) == 2
    assert "n is given twice, 1 and 2; give one" in capsys.readouterr().err


def test_bisect_compares_with_the_fixed_model(vendors: Any, tmp_path: Path) -> None:
    vendors.write("acme/a.py", vendors.swap("P", "Relu", "Abs"))
    onnx.save(load("g (float[n, 4] x) => (float[n, 4] y) { y = Relu(x) }"), tmp_path / "m.onnx")
    actual = ["bisect", str(tmp_path / "m.onnx"), "-o", str(tmp_path / "found"), "--dim", "n=3"]
    assert run([*actual, "--vendors", str(vendors.root)]) == 6
    assert dims_of(onnx.load(tmp_path / "found" / "before.onnx"))["x"] == [3, 4]
