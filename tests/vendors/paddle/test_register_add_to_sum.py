"""Chains of Add become one Sum."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import gehost_drr
import gehost_register_pass
from gehost import Host, HostOptions
from gehost.testing import (
    assert_equal_numbers,
    assert_fuses,
    assert_refuses,
    check_pass,
    parse,
    random_weights,
)

STYLES: dict[str, Any] = {"plugins": [("register_pass", gehost_register_pass)]}
PASS = "add_to_sum"


def chain(
    body: str,
    *,
    opset: int = 17,
    dtype: str = "float",
    outputs: str = "",
    x: str = "2, 3",
    rows: int = 2,
) -> Any:
    text = f"""<ir_version: 8, opset_import: ["" : {opset}]>
    main ({dtype}[{x}] x, {dtype}[{x}] u) => ({dtype}[{x}] y{outputs}) {{ {body} }}"""
    numpy = {"float": np.float32, "double": np.float64, "float16": np.float16, "int64": np.int64}[
        dtype
    ]
    weights = random_weights({"b": [3], "c": [rows, 3], "d": [1]})
    return parse(
        text,
        {
            name: (array * 10).astype(numpy)
            for name, array in weights.items()
            if f"{name})" in body or f"({name}" in body
        },
    )


def inputs(model: Any) -> list[tuple[str, list[str]]]:
    return [(node.op_type, list(node.input)) for node in model.graph.node]


@pytest.mark.parametrize("opset", [8, 13, 17, 21])
@pytest.mark.parametrize("dtype", ["float", "double"])
def test_two_adds(alone, opset: int, dtype: str) -> None:
    after = assert_fuses(
        chain("s = Add(x, b) y = Add(s, u)", opset=opset, dtype=dtype), "add_to_sum", **alone
    )
    assert inputs(after) == [("Sum", ["x", "b", "u"])]


@pytest.mark.parametrize("last", ["Add(t, c)", "Add(c, t)"])
@pytest.mark.parametrize("middle", ["Add(s, u)", "Add(u, s)"])
def test_three_adds_are_one_sum_whichever_operand_is_the_sum_so_far(
    alone, middle: str, last: str
) -> None:
    after = assert_fuses(chain(f"s = Add(x, b) t = {middle} y = {last}"), "add_to_sum", **alone)
    assert inputs(after) == [("Sum", ["x", "b", "u", "c"])]


def test_operands_that_broadcast_and_named_sizes(alone) -> None:
    after = assert_fuses(
        chain("s = Add(x, b) t = Add(s, d) y = Add(t, u)", x="N, 3"), "add_to_sum", **alone
    )
    assert inputs(after) == [("Sum", ["x", "b", "d", "u"])]


def test_sizes_that_are_named_or_not_known(alone) -> None:
    model = chain("s = Add(x, b) y = Add(s, u)", x="N, 3")
    for entry in model.graph.input:
        entry.type.tensor_type.shape.dim[0].dim_param = entry.name
    for entry in model.graph.output:
        entry.type.tensor_type.shape.dim[0].Clear()
    assert [op for op, _ in inputs(assert_fuses(model, "add_to_sum", **alone))] == ["Sum"]


def test_longer_chains_are_taken_in_parts(alone) -> None:
    after = assert_fuses(
        chain("s = Add(x, b) t = Add(s, u) v = Add(t, c) w = Add(v, d) y = Add(w, x)"),
        "add_to_sum",
        2,
        **alone,
    )
    assert inputs(after) == [
        ("Sum", ["x", "b", "u", "c"]),
        ("Sum", [after.graph.node[0].output[0], "d", "x"]),
    ]


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({"body": "s = Add(x, b) y = Add(s, u)", "dtype": "int64"}, "condition"),
        ({"body": "s = Add(x, b) y = Add(s, u)", "dtype": "float16"}, "condition"),
        ({"body": "s = Add(x, b) y = Add(s, u)", "opset": 7}, "needs opset 8"),
        ({"body": "s = Sub(x, b) y = Add(s, u)"}, None),
        ({"body": "y = Add(x, u)"}, None),
        ({"body": "s = Add(x, b) y = Add(s, u)", "outputs": ", float[2, 3] s"}, None),
        ({"body": "s = Add(x, b) n = Neg(s) y = Add(s, n)"}, None),
    ],
)
def test_near_misses(alone, changed: dict[str, Any], reason: str | None) -> None:
    assert_refuses(chain(**changed), "add_to_sum", reason, **alone)


def test_instances_and_changes_of_the_pattern_keep_their_numbers(alone) -> None:
    check_pass("add_to_sum", **alone)


def test_a_bias_goes_to_the_fusion_that_takes_it_and_what_is_left_to_the_sum(paddle) -> None:
    text = """<ir_version: 8, opset_import: ["" : 17]> main (float[2, 3] x, float[2, 3] u) => (float[2, 3] y) {
        m = MatMul(x, w) l = Add(m, b) s = Add(l, x) y = Add(s, u)
    }"""
    before = parse(text, random_weights({"w": [3, 3], "b": [3]}))
    plugins = [*STYLES["plugins"], ("drr", gehost_drr)]
    after, _ = Host(HostOptions(vendors=[paddle.root], plugins=False), plugins=plugins).run(before)
    assert [node.op_type for node in after.graph.node] == ["fused_gemm_epilogue", "Sum"]
    assert_equal_numbers(before, after)
