"""Calls of functions: none in a circle, not too many written out."""

from __future__ import annotations

import onnx
import pytest

from gehost.errors import ModelError
from gehost.ir.calls import check_calls


def functions(**calls: str) -> dict[str, onnx.FunctionProto]:
    """Functions of domain ``f`` by name; each calls those named by its letters, in a row."""
    return {
        f"f::{name}": onnx.helper.make_function(
            "f",
            name,
            ["x"],
            ["y"],
            [onnx.helper.make_node(op, ["x"], ["y"], domain="f") for op in called],
            [],
        )
        for name, called in calls.items()
    }


@pytest.mark.parametrize(
    "calls", [{"A": "A"}, {"A": "B", "B": "A"}, {"A": "BC", "B": "", "C": "D", "D": "BA"}]
)
def test_functions_that_come_back_to_themselves(calls):
    with pytest.raises(
        ModelError, match=r'function "f::\w" calls itself, which ONNX does not allow'
    ):
        check_calls(functions(**calls), {})


def test_calls_in_bodies_count():
    table = functions(A="")
    body = onnx.helper.make_graph(
        [onnx.helper.make_node("A", ["x"], ["y"], domain="f")], "b", [], []
    )
    table["f::A"].node.append(
        onnx.helper.make_node("If", ["c"], ["y"], then_branch=body, else_branch=body)
    )
    with pytest.raises(ModelError, match='"f::A" calls itself'):
        check_calls(table, {})


def test_functions_may_share_what_they_call_and_call_what_is_none():
    check_calls(functions(A="BC", B="D", C="D", D="Relu"), {"f::A": 1000, "Relu": 10})


@pytest.mark.parametrize(("levels", "fits"), [(18, True), (20, False), (5000, False)])
def test_doubling_is_counted_and_not_written_out(levels, fits):
    table = functions(A0="RR")
    for level in range(1, levels):
        table |= {f"f::A{level}": onnx.FunctionProto()}
        table[f"f::A{level}"].node.extend([onnx.NodeProto(op_type=f"A{level - 1}", domain="f")] * 2)
    nodes = {f"f::A{levels - 1}": 1}
    if fits:
        check_calls(table, nodes)
        return
    with pytest.raises(ModelError, match="stand for more than 1,000,000 nodes"):
        check_calls(table, nodes)
