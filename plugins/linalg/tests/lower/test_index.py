"""Operators whose payload reads the index of a loop, against ONNX Runtime."""

from __future__ import annotations

import numpy as np
import pytest

from ..models import check, graph

X = np.random.default_rng(4).normal(size=(2, 3, 4)).astype(np.float32)


@pytest.mark.parametrize("upper", [0, 1])
@pytest.mark.parametrize("k", [None, -1, 0, 2])
def test_trilu(upper: int, k: int | None) -> None:
    inputs = "" if k is None else f"k = Constant<value = int64 {{{k}}}>()\n"
    body = f"{inputs}e = Exp(x)\ny = Trilu<upper={upper}>(e{'' if k is None else ', k'})"
    check(graph(body, "float[a,b,c] x", "float[a,b,c] y"), {"x": X})


@pytest.mark.parametrize("k", [0, 1, -2])
def test_eye_like(k: int) -> None:
    check(graph(f"y = EyeLike<k={k}>(x)", "float[3,4] x", "float[3,4] y"), {"x": X[0]})


@pytest.mark.parametrize(("axis", "shape"), [(-1, "2,2,5"), (0, "5,2,2"), (1, "2,5,2")])
def test_one_hot(axis: int, shape: str) -> None:
    body = f"d = Constant<value = int64 {{5}}>()\no = OneHot<axis={axis}>(i, d, v)\ny = Exp(o)"
    feeds = {"i": np.array([[0, -1], [4, 7]]), "v": np.array([0.25, 2.0], np.float32)}
    check(graph(body, "int64[2,2] i, float[2] v", f"float[{shape}] y"), feeds)


def test_range_and_a_causal_mask() -> None:
    body = """z = Constant<value = int64 {0}>()
l = Constant<value = int64 {4}>()
t = Constant<value = int64 {1}>()
a = Constant<value = int64[1] {1}>()
r = Range(z, l, t)
c = Unsqueeze(r, a)
m = LessOrEqual(r, c)
n = Constant<value = float {-10000.0}>()
y = Where(m, x, n)"""
    check(graph(body, "float[4,4] x", "float[4,4] y"), {"x": X[0, :, :].repeat(2, 0)[:4]})
