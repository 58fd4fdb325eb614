"""An ``If`` whose condition is constant is the branch that it takes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

import numpy as np
import onnx
import pytest

from gehost import Host, HostOptions
from gehost.testing import parse
from gehost.verify import compare

HEAD = '<ir_version: 8, opset_import: ["" : 17]>\n'
SIMPLE = """g (float[2] x) => (float[2] y) <bool c = {CONDITION}> {
    y = If (c) <then_branch = t () => (float[2] u) { u = Neg(x) },
                else_branch = e () => (float[2] v) { a = Abs(x) v = Exp(a) }> }"""


def cleaned(text: str | onnx.ModelProto, **options: Any) -> onnx.ModelProto:
    model = parse(HEAD + text) if isinstance(text, str) else text
    onnx.checker.check_model(model, full_check=True)
    host = Host(HostOptions(plugins=False, **options))
    result, _ = host.run(model)
    onnx.checker.check_model(result, full_check=True)
    assert unique(result)
    assert compare(model, result).equal
    again, _ = host.run(result)
    assert again.SerializeToString() == result.SerializeToString()
    return result


def unique(model: onnx.ModelProto) -> bool:
    """Whether no two tensors, and no two nodes, have one name."""

    def names(graph: onnx.GraphProto) -> Iterator[tuple[str, str]]:
        outer = {entry.name for entry in (*graph.input, *graph.initializer)}
        yield from (("tensor", name) for name in outer)
        for node in graph.node:
            yield "node", node.name or node.output[0]
            yield from (("tensor", name) for name in node.output if name)
            for attribute in node.attribute:
                if attribute.HasField("g"):
                    yield from names(attribute.g)

    return max(Counter(names(model.graph)).values()) == 1


def ops(model: onnx.ModelProto) -> list[str]:
    return [node.op_type for node in model.graph.node]


@pytest.mark.parametrize(("condition", "expected"), [("1", ["Neg"]), ("0", ["Abs", "Exp"])])
def test_the_branch_that_is_taken_stays(condition: str, expected: list[str]) -> None:
    result = cleaned(SIMPLE.replace("CONDITION", condition))
    assert ops(result) == expected
    assert not result.graph.initializer
    assert result.graph.node[-1].output == ["y"]


def test_a_condition_that_the_clean_up_computes() -> None:
    text = """g (float[2, 3] x) => (float[2, 3] y) <int64 two = {2}, int64 zero = {0}> {
        s = Shape(x) n = Gather(s, zero) c = Equal(n, two)
        y = If (c) <then_branch = t () => (float[2, 3] u) { u = Neg(x) },
                    else_branch = e () => (float[2, 3] v) { v = Abs(x) }> }"""
    assert ops(cleaned(text)) == ["Neg"]


@pytest.mark.parametrize("condition", ["bool c", "bool c = {1}"], ids=["input", "overridable"])
def test_a_condition_of_the_caller_stays(condition: str) -> None:
    model = parse(HEAD + SIMPLE.replace("CONDITION", "1"))
    model.graph.input.append(onnx.helper.make_tensor_value_info("c", onnx.TensorProto.BOOL, []))
    if "=" not in condition:
        del model.graph.initializer[:]
    assert ops(cleaned(model)) == ["If"]


def test_names_inside_become_unique() -> None:
    """Of the other branch, of the graph, of a body beside it; nested bodies read the new names."""
    text = """g (float[2] x, bool d) => (float[2] y, float[2] z) <bool c = {1}> {
        a = Neg(x)
        p, q = If (c) <then_branch = t () => (float[2] u, float[2] v) <float[2] k = {1, 2}> {
            b = Add(a, k)
            u = If (d) <then_branch = t2 () => (float[2] w) { w = Mul(b, k) },
                        else_branch = e2 () => (float[2] w2) { w2 = Sub(b, k) }>
            v = Exp(b) }, else_branch = e () => (float[2] b, float[2] v) { b = Abs(x) v = Neg(b) }>
        y = Mul(p, q)
        r = If (d) <then_branch = t3 () => (float[2] b) { b = Abs(x) },
                    else_branch = e3 () => (float[2] k) { k = Neg(x) }>
        z = Sub(r, q) }"""
    result = cleaned(text)
    assert ops(result) == ["Neg", "Add", "If", "Exp", "Mul", "If", "Sub"]
    assert [node.output[0] for node in result.graph.node] == ["a", "b_0", "p", "q", "y", "r", "z"]


def test_names_that_nothing_else_has_stay() -> None:
    text = """g (float[2] x) => (float[2] y) <bool c = {1}> {
        y = If (c) <then_branch = t () => (float[2] u) { inner = Neg(x) u = Exp(inner) },
                    else_branch = e () => (float[2] v) { inner = Abs(x) v = Exp(inner) }> }"""
    result = cleaned(text)
    assert [node.output[0] for node in result.graph.node] == ["inner", "y"]


@pytest.mark.parametrize(
    ("inner", "expected"),
    [
        ("(float[2] u, float[2] v) { u = Exp(x) v = Identity(u) }", ["Neg", "Exp", "Identity"]),
        ("(float[2] k, float[2] u) <float[2] k = {1, 2}> { u = Add(x, k) }", ["Neg", "Add", "Identity"]),
        ("(float[2] u, float[2] v) { u = Identity(x) v = Identity(a) }", ["Neg", "Identity", "Identity"]),
    ],
    ids=["one of the other", "constant", "outer"],
)  # fmt: skip
def test_results_that_are_outputs_of_the_graph(inner: str, expected: list[str]) -> None:
    text = f"""g (float[2] x) => (float[2] y, float[2] z, float[2] a) <bool c = {{1}}> {{
        a = Neg(x)
        y, z = If (c) <then_branch = t () => {inner},
            else_branch = e () => (float[2] e0, float[2] e1) {{ e0 = Abs(x) e1 = Exp(x) }}> }}"""
    assert ops(cleaned(text)) == expected


def test_a_result_that_is_two_outputs() -> None:
    """ONNX Runtime itself fails at such an ``If``, so that no numbers are compared."""
    text = """g (float[2] x) => (float[2] y, float[2] z) <bool c = {1}> {
        y, z = If (c) <then_branch = t () => (float[2] u, float[2] u) { u = Neg(x) },
            else_branch = e () => (float[2] e0, float[2] e1) { e0 = Abs(x) e1 = Exp(x) }> }"""
    result, _ = Host(HostOptions(plugins=False)).run(parse(HEAD + text))
    assert [(node.op_type, *node.input, *node.output) for node in result.graph.node] == [
        ("Neg", "x", "y"),
        ("Identity", "y", "z"),
    ]


def test_a_branch_in_a_branch_and_in_a_loop() -> None:
    text = """g (float[2] x, bool d) => (float[2] y) <bool c = {1}, int64 n = {2}> {
        y = Loop (n, d, x) <body = l (int64 i, bool go, float[2] s) => (bool go2, float[2] s2) {
            go2 = Identity(go)
            s2 = If (c) <then_branch = t () => (float[2] u) {
                u = If (c) <then_branch = t2 () => (float[2] w) { w = Neg(s) },
                            else_branch = e2 () => (float[2] w) { w = Abs(s) }> },
                else_branch = e () => (float[2] u) { u = Exp(s) }> }> }"""
    result = cleaned(text)
    (loop,) = result.graph.node
    body = next(entry.g for entry in loop.attribute if entry.name == "body")
    assert [node.op_type for node in body.node] == ["Identity", "Neg"]


def test_the_type_of_the_branch_is_known() -> None:
    text = """g (float[2, 3] x) => (int64[R] s) <bool c = {1}> {
        y = If (c) <then_branch = t () => (float[A, B] u) { u = Transpose(x) },
                    else_branch = e () => (float[C] v) <int64[1] m = {-1}> { v = Reshape(x, m) }>
        s = Shape(y) }"""
    result = cleaned(text)
    assert ops(result) == ["Constant"]


@pytest.mark.parametrize("opset", [7, 8, 11])
def test_below_ir_version_4_constants_become_nodes(opset: int) -> None:
    text = """g (float[2] x, bool c) => (float[2] y) <bool c = {1}> {
        y = If (c) <then_branch = t () => (float[2] u) { k = Constant<value = float[2] {1, 2}>()
                u = Add(x, k) },
            else_branch = e () => (float[2] v) { v = Neg(x) }> }"""
    model = parse(f'<ir_version: 3, opset_import: ["" : {opset}]>\n{text}')
    assert ops(cleaned(model)) == ["Constant", "Add"]


@pytest.mark.parametrize(
    ("expression", "value"),
    [
        ("y = Transpose(w)", [[1, 3], [2, 4]]),
        ("a = Transpose(w) b = Flatten(a) y = Transpose(b)", [[1, 2], [3, 4]]),
    ],
)
def test_an_output_computed_from_constants_is_one(expression: str, value: Any) -> None:
    result = cleaned(
        f"""g (float[2, 2] x) => (float[2, 2] y, float[2, 2] z) <float[2, 2] w = {{1, 2, 3, 4}}> {{
        {expression} z = Neg(x) }}"""
    )
    (constant,) = (node for node in result.graph.node if node.op_type == "Constant")
    assert constant.output == ["y"]
    actual = onnx.numpy_helper.to_array(constant.attribute[0].t)
    np.testing.assert_array_equal(actual, np.array(value, np.float32))
    assert not result.graph.initializer


def test_an_output_of_another_declared_shape_stays() -> None:
    """The compile must not show what the file states wrongly."""
    model = parse(
        HEAD
        + """g (float[2] x) => (float[3] y, float[2] z) <int64[2] s = {2, 2}, int64[2] o = {0, 0}> {
        t = Max(s, o) y = ConstantOfShape(t) z = Neg(x) }"""
    )
    model.graph.output[0].type.tensor_type.shape.dim.add(dim_value=2)
    result, _ = Host(HostOptions(plugins=False)).run(model)
    assert "Constant" not in ops(result)
