"""Reductions against ONNX Runtime."""

from __future__ import annotations

import numpy as np
import pytest

from gehost.testing import parse

from ..models import check, graph, lowered

X = np.random.default_rng(1).uniform(0.5, 2, size=(2, 3, 4)).astype(np.float32)
OPS = ["Sum", "Mean", "Prod", "Max", "Min", "SumSquare", "L1", "L2", "LogSum", "LogSumExp"]


@pytest.mark.parametrize("op", OPS)
@pytest.mark.parametrize("sizes", ["2,3,4", "a,b,c"])
def test_last_axis(op: str, sizes: str) -> None:
    body = f"n = Neg(x)\nm = Neg(n)\na = Constant<value = int64[1] {{-1}}>()\nr = Reduce{op}(m, a)\ny = Mul(m, r)"
    check(graph(body, f"float[{sizes}] x", f"float[{sizes}] y"), {"x": X})


@pytest.mark.parametrize("op", OPS[:6])
@pytest.mark.parametrize(("axes", "shape"), [("0", "3,4"), ("0, 2", "3"), ("1", "2,4")])
def test_dropped_axes(op: str, axes: str, shape: str) -> None:
    count = axes.count(",") + 1
    body = f"a = Constant<value = int64[{count}] {{{axes}}}>()\nr = Reduce{op}<keepdims=0>(x, a)\ny = Neg(r)"
    check(graph(body, "float[2,3,4] x", f"float[{shape}] y"), {"x": X})


def test_every_axis_and_attributes() -> None:
    check(
        graph("r = ReduceSum<keepdims=0>(x)\ny = Exp(r)", "float[2,3,4] x", "float y"),
        {"x": X / 24},
    )
    check(graph("y = ReduceMean<axes=[1,2]>(x)", "float[2,3,4] x", "float[2,1,1] y", 13), {"x": X})


def test_not_a_number_is_kept() -> None:
    odd = np.array([[1, np.nan, 3], [np.inf, -np.inf, 0]], np.float32)
    check(
        graph(
            "a = Constant<value = int64[1] {1}>()\ny = ReduceMax(x, a)",
            "float[2,3] x",
            "float[2,1] y",
        ),
        {"x": odd[1:].repeat(2, 0)},
    )
    check(
        graph(
            "a = Constant<value = int64[1] {1}>()\ny = ReduceSum(x, a)",
            "float[2,3] x",
            "float[2,1] y",
        ),
        {"x": odd},
    )


def test_a_mean_of_no_elements() -> None:
    body = "a = Constant<value = int64[1] {1}>()\nr = ReduceMean(x, a)\ny = Exp(r)"
    check(graph(body, "float[n,m] x", "float[n,1] y"), {"x": np.zeros((2, 0), np.float32)})
    _, result = lowered(parse(graph(body, "float[2,0] x", "float[2,1] y")))
    assert list(result.reasons.values()) == ["not-lowered: ReduceMean of an axis of size 0"]
