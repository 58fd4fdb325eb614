"""Arithmetic with a neutral constant goes where every bit stays."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest

from .conftest import parse

GOES = {
    "mul": "b = Mul(x, one)",
    "mul_left": "b = Mul(one, x)",
    "div": "b = Div(x, one)",
    "pow": "b = Pow(x, one)",
    "pow_integer": "b = Pow(x, ione)",
    "sub": "b = Sub(x, zero)",
    "add_minus_zero": "b = Add(x, minus)",
    "add_left": "b = Add(minus, x)",
    "row": "b = Mul(x, row)",
    "where_same": "b = Where(flag, x, x)",
    "where_true": "t = Constant <value = bool {1}> ()  b = Where(t, x, one)",
    "where_false": "t = Constant <value = bool[1, 3] {0, 0, 0}> ()  b = Where(t, one, x)",
}
STAYS = {
    "add_zero": "b = Add(x, zero)",  # -0.0 becomes 0.0
    "sub_minus_zero": "b = Sub(x, minus)",
    "one_over": "b = Div(one, x)",
    "zero_minus": "b = Sub(zero, x)",
    "power_of_one": "b = Pow(one, x)",
    "mostly_ones": "b = Mul(x, mostly)",
    "wider": "b = Mul(x, wide)",
    "higher": "b = Mul(x, high)",
    "where_mixed": "t = Constant <value = bool[1, 3] {0, 1, 0}> ()  b = Where(t, one, x)",
    "where_wider": "t = Constant <value = bool {1}> ()  b = Where(t, x, high)",
    "where_wider_condition": "b = Where(flags, x, x)",
}
TEXT = (
    "g (float[2, 3] x, bool flag, bool[4, 1, 1] flags) => (float{shape} y) "
    "<float one = {{1}}, int64 ione = {{1}}, float zero = {{0}}, float minus = {{-0.0}}, float[3] row = {{1, 1, 1}}, "
    "float[3] mostly = {{1, 1, 2}}, float[1, 1, 3] high = {{1, 1, 1}}, float[2, 1, 1] wide = {{1, 1}}> "
    "{{ {node}  y = Neg(b) }}"
)


def model(node: str, shape: str) -> onnx.ModelProto:
    text = TEXT.format(node=node, shape=shape).replace("{-0.0}", "{1}")
    parsed = parse(text)
    for tensor in parsed.graph.initializer:
        if tensor.name == "minus":
            tensor.CopyFrom(onnx.numpy_helper.from_array(np.array(-0.0, np.float32), "minus"))
    return parsed


@pytest.mark.parametrize("name", GOES)
def test_goes(clean: Any, name: str) -> None:
    source = model(GOES[name], "[2, 3]")
    x = np.array([[0.0, -0.0, np.nan], [np.inf, 1e-45, -3]], np.float32)
    feeds = {"x": x, "flag": np.array(True), "flags": np.ones((4, 1, 1), bool)}
    cleaned = clean(source, feeds=feeds)
    assert cleaned.ops == ["Neg"]
    assert cleaned.result.identities == 1


@pytest.mark.parametrize("name", STAYS)
def test_stays(clean: Any, name: str) -> None:
    wide = any(word in STAYS[name] for word in ("high", "wide", "flags"))
    cleaned = clean(model(STAYS[name], "[P, Q, R]" if wide else "[P, Q]"))
    assert len([op for op in cleaned.ops if op != "Constant"]) == 2
    assert cleaned.result.identities == 0


@pytest.mark.parametrize("shape", ["", "[1]", "[1, 1]"])
@pytest.mark.parametrize("opset", [7, 13, 21])
def test_a_constant_must_not_widen_an_open_size(clean: Any, shape: str, opset: int) -> None:
    count = "{1}"
    cleaned = clean(
        f"g (float[N] x) => (float{'[P, N]' if shape == '[1, 1]' else '[N]'} y) <float{shape} one = {count}> "
        "{ b = Mul(x, one)  y = Neg(b) }",
        opset=opset,
    )
    assert cleaned.ops == (["Mul", "Neg"] if shape == "[1, 1]" else ["Neg"])


def test_a_row_of_ones_stays_beside_an_open_size(clean: Any) -> None:
    """The size may be 1."""
    text = "g (float[N] x) => (float[3] y) <float[3] ones = {1, 1, 1}> { b = Mul(x, ones)  y = Neg(b) }"
    assert clean(text, feeds={"x": np.ones(1, np.float32)}).ops == ["Mul", "Neg"]


ONE_BITS = {"float16": 0x3C00, "bfloat16": 0x3F80}
"""How the parser takes a 1 of half precision."""


@pytest.mark.parametrize(
    ("kind", "node"),
    [
        ("int64", "Add(x, n)"),
        ("int64", "Add(n, x)"),
        ("int64", "Sub(x, n)"),
        ("int32", "Add(x, n)"),
        ("float16", "Sub(x, n)"),
        ("bfloat16", "Sub(x, n)"),
        ("double", "Sub(x, n)"),
        ("float16", "Mul(x, o)"),
        ("bfloat16", "Div(x, o)"),
    ],
)
def test_every_type(clean: Any, kind: str, node: str) -> None:
    cleaned = clean(
        f"g ({kind}[N] x) => ({kind}[N] y) <{kind} n = {{0}}, {kind} o = {{{ONE_BITS.get(kind, 1)}}}> {{ b = {node}  y = Abs(b) }}",
        runs=False,
    )
    assert cleaned.ops == ["Abs"]


def test_booleans(clean: Any) -> None:
    text = "g (bool[N] x) => (bool[N] y) <bool t = {1}, bool f = {0}> { a = And(x, t)  b = Or(f, a)  c = And(b, f)  y = Not(c) }"
    cleaned = clean(text)
    assert cleaned.ops == ["And", "Not"]


def test_a_default_that_may_be_overridden_is_none(clean: Any) -> None:
    assert clean(
        "g (float[N] x, float one = {1}) => (float[N] y) { b = Mul(x, one)  y = Neg(b) }"
    ).ops == ["Mul", "Neg"]


def test_a_function_of_this_name_stays(clean: Any) -> None:
    def own(model: Any) -> None:
        for entry in (model.graph.node[0], *model.functions):
            entry.domain = ""

    cleaned = clean(
        "g (float[N] x) => (float[N] y) <float one = {1}> { b = local.Mul(x, one)  y = Neg(b) }"
        '<domain: "local", opset_import: ["": 21]> Mul (p, q) => (r) { r = Sub(p, q) }',
        edit=own,
        runs=False,
        check=False,
        infer=False,
    )
    assert cleaned.ops == ["Mul", "Neg"]


def test_below_opset_7_arithmetic_broadcasts_by_an_attribute(clean: Any) -> None:
    cleaned = clean(
        "g (float[2] x) => (float[2] y) <float[2] one = {1, 1}> { b = Mul(x, one)  y = Neg(b) }",
        opset=6,
        runs=False,
    )
    assert cleaned.ops == ["Mul", "Neg"]


@pytest.mark.parametrize(
    ("node", "goes"),
    [
        ("And(flags, no)", True), ("Or(yes, flags)", True), ("And(no, flag)", True), ("Or(flag, yes)", True),
        ("And(flags, none)", False), ("Or(flags, one)", False), ("And(flags, mixed)", False), ("Or(flags, mixed)", False),
    ],
)  # fmt: skip
def test_a_constant_that_decides(clean: Any, node: str, goes: bool) -> None:
    """Unless the other operand widens it, or the operator wants the other truth."""
    source = parse(
        f"""g (bool flag, bool[2, 1] flags) => (bool[P, Q] y) <bool[2, 1] no = {{0, 0}}, bool[2, 1] yes = {{1, 1}},
            bool none = {{0}}, bool one = {{1}}, bool[2, 1] mixed = {{0, 1}}, bool[1, 3] wide = {{1, 0, 1}}>
            {{ b = {node}  c = Not(b)  y = Xor(c, wide) }}"""
    )
    cleaned = clean(source, feeds={"flag": np.array(True), "flags": np.array([[True], [False]])})
    assert ("And" in cleaned.ops or "Or" in cleaned.ops) != goes
