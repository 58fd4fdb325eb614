"""A Transpose of the last two axes, between a Reshape that merges the others and one that splits them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

GIVEN = (
    "int64[1] first = {0}, int64[1] last = {-1}, int64[1] before = {-2}, "
    "int64[1] end = {9223372036854775807}"
)
SIZES = (
    "h = Neg(x)  s = Shape(h)  lead = Slice(s, first, before)  a = Slice(s, before, last)  "
    "b = Slice(s, last, end)  "
)
TURNED = (
    "i = Concat <axis = 0> (last, a, b)  j = Concat <axis = 0> (lead, b, a)  m = Reshape(h, i)  "
    "t = Transpose <perm = [0, 2, 1]> (m)  "
)


def text(
    nodes: str, inputs: str = "float[N, 2, M, 4] x", output: str = "float[P, Q, R, S] y"
) -> str:
    return f"g ({inputs}) => ({output}) <{GIVEN}> {{ {nodes} }}"


@pytest.mark.parametrize(
    ("shape", "sizes", "perm"),
    [
        ("N, 2, M, 4", (3, 2, 5, 4), [0, 1, 3, 2]),
        ("N, 2, M, 4", (0, 2, 5, 4), [0, 1, 3, 2]),
        ("M, N, 4", (2, 3, 4), [0, 2, 1]),
        ("N, 2, 3, M, 4", (2, 2, 3, 5, 4), [0, 1, 2, 4, 3]),
    ],
)
def test_leading_axes_stay(clean: Any, shape: str, sizes: tuple[int, ...], perm: list[int]) -> None:
    cleaned = clean(
        text(
            SIZES + TURNED + "r = Reshape(t, j)  y = Neg(r)",
            f"float[{shape}] x",
            f"float[{', '.join('PQRST'[: len(perm)])}] y",
        ),
        feeds={"x": np.random.default_rng(0).standard_normal(sizes).astype(np.float32)},
    )
    assert cleaned.ops == ["Neg", "Transpose", "Neg"]
    (node,) = cleaned.model.graph.nodes_of("Transpose")
    assert node.attrs["perm"] == perm


@pytest.mark.parametrize(
    "nodes",
    [
        TURNED + "y = Reshape(t, j)",  # an output keeps its name
        TURNED + "r = Reshape(t, j)  u = Exp(t)  v = Reshape(u, j)  y = Add(r, v)",  # read twice
        TURNED
        + "q = Concat <axis = 0> (lead, a, b)  r = Reshape(t, q)  y = Neg(r)",  # not turned back
        "i = Concat <axis = 0> (last, b, a)  j = Concat <axis = 0> (lead, a, b)  m = Reshape(h, i)  "
        "t = Transpose <perm = [0, 2, 1]> (m)  r = Reshape(t, j)  y = Neg(r)",  # other rows
        "i = Concat <axis = 0> (last, a, b)  j = Concat <axis = 0> (lead, a, b)  m = Reshape(h, i)  "
        "t = Transpose <perm = [1, 0, 2]> (m)  r = Reshape(t, j)  y = Neg(r)",  # other axes
    ],
)
def test_what_stays(clean: Any, nodes: str) -> None:
    cleaned = clean(text(SIZES + nodes))
    assert cleaned.ops.count("Reshape") >= 2


@pytest.mark.parametrize("shape", ["N, M, 2, 4", "N, 2, 4, M"])
def test_sizes_that_may_be_zero_stay(clean: Any, shape: str) -> None:
    """A 0 in a target copies, which another result may not have failed at."""
    cleaned = clean(text(SIZES + TURNED + "r = Reshape(t, j)  y = Neg(r)", f"float[{shape}] x"))
    assert cleaned.ops.count("Reshape") == 2
