"""Sums with zeros go, unless the zeros widen x."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import onnx
import pytest

HEAD = '<ir_version: 10, opset_import: ["": {0}]> '


def model(node: str, constant: str = "float zero = {0}", opset: int = 17) -> onnx.ModelProto:
    return onnx.parser.parse_model(
        HEAD.format(opset)
        + f"g (float[N, 3] x) => (float[P, 3] y) <{constant}> {{ a = {node} y = Neg(a) }}"
    )


@pytest.mark.parametrize("opset", [7, 13, 17, 21])
@pytest.mark.parametrize("node", ["Add(x, zero)", "Add(zero, x)"])
@pytest.mark.parametrize(
    "constant", ["float zero = {0}", "float[3] zero = {0, 0, 0}", "float[1, 1] zero = {0}"]
)
def test_goes(fuses: Callable[..., Any], node: str, constant: str, opset: int) -> None:
    fuses(model(node, constant, opset), "AddZeroPass", "Neg", left=1)


@pytest.mark.parametrize(
    "constant", ["float[1, 1, 1] zero = {0}", "float[4, 1] zero = {0, 0, 0, 0}"]
)
def test_zeros_that_widen_stay(refuses: Callable[..., None], constant: str) -> None:
    source = model("Add(x, zero)", constant)
    if "1, 1, 1" in constant:
        source.graph.output[0].type.tensor_type.shape.dim.add()
    refuses(source, "AddZeroPass", "zeros")


def test_other_constants_stay(refuses: Callable[..., None]) -> None:
    refuses(model("Add(x, zero)", "float zero = {1}"), "AddZeroPass", None)
    refuses(model("Sub(zero, x)"), "AddZeroPass", None)
