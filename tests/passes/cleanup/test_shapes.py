"""Computed shapes become constants, and sizes are read from the model's inputs."""

from __future__ import annotations

from typing import Any

import pytest

GIVEN = (
    "int64[1] zero = {0}, int64[1] one = {1}, int64[1] two = {2}, int64[1] last = {-1}, "
    "int64[1] four = {4}, int64[1] eight = {8}, int64 i0 = {0}, int64 i1 = {1}"
)


def text(nodes: str, inputs: str = "float[N, M, 8] x", output: str = "float[P, Q, R, S] y") -> str:
    return f"g ({inputs}) => ({output}) <{GIVEN}> {{ {nodes} }}"


SIZES = (
    "h = Neg(x)  s = Shape(h)  n = Gather(s, i0)  m = Gather(s, i1)  "
    "un = Unsqueeze(n, zero)  um = Unsqueeze(m, zero)  "
)


@pytest.mark.parametrize(
    ("target", "wanted"),
    [
        ("un, um, two, four", [0, 0, 2, 4]),
        ("two, um, four, un", None),  # two that are not at their places
        ("one, two, four, last", None),  # a constant already, once it is folded
        ("one, nm, two, four", [1, -1, 2, 4]),
        ("un, two, um, four", None),  # -1 beside a size that may be 0
    ],
)
def test_computed_targets(clean: Any, target: str, wanted: list[int] | None) -> None:
    cleaned = clean(
        text(
            SIZES + f"nm = Mul(un, um)  t = Concat <axis = 0> ({target})  "
            "r = Reshape(h, t)  y = Neg(r)"
        )
    )
    (reshape,) = cleaned.model.graph.nodes_of("Reshape")
    if wanted is None:
        assert not reshape.input(1).name.startswith("cleanup_shape")
    else:
        assert reshape.input(1).array.tolist() == wanted
        assert cleaned.ops == ["Neg", "Reshape", "Neg"]


def test_copies_beside_allowzero_are_not_written(clean: Any) -> None:
    cleaned = clean(
        text(
            SIZES + "t = Concat <axis = 0> (un, um, two, four)  "
            "r = Reshape <allowzero = 1> (h, t)  y = Neg(r)"
        )
    )
    assert "Concat" in cleaned.ops


@pytest.mark.parametrize(
    "node",
    [
        "r = Reshape(h, s)",
        "t = Concat <axis = 0> (un, um, one)  r = Expand(h, t)",
        "r = Slice(h, zero, um, one)",
        "r = Slice(h, zero, um, one, one)",
    ],
)
def test_what_changes_nothing(clean: Any, node: str) -> None:
    cleaned = clean(text(SIZES + node + "  y = Exp(r)", output="float[N, M, P] y"))
    assert cleaned.ops == ["Neg", "Exp"]


@pytest.mark.parametrize(
    "node",
    [
        "r = Slice(h, zero, un, one)",
        "r = Slice(h, last, min, one, last)",  # backwards: the same size, another order
        "t = Concat <axis = 0> (um, un, one)  w = Transpose <perm = [1, 0, 2]> (h)  r = Expand(w, t)  z = Add(r, h)",
    ],
)
def test_what_changes_something(clean: Any, node: str) -> None:
    more = "  min = Constant <value = int64[1] {-9223372036854775807}> ()  "
    cleaned = clean(
        text(SIZES + more + node + "  y = Exp(r)", output="float[A, B, C] y"),
        runs="z" not in node,
    )
    assert {"Slice", "Transpose"} & set(cleaned.ops)


def test_sizes_are_read_from_the_model_s_inputs(clean: Any) -> None:
    cleaned = clean(
        text(
            SIZES + "c = Concat <axis = 0> (um, un)  e = Exp(h)",
            "float[N, M, 8] x",
            "int64[2] c, float[N, M, 8] e",
        )
    )
    (shape,) = cleaned.model.graph.nodes_of("Shape")
    assert shape.input(0).name == "x"


def test_a_shape_that_is_read_whole_stays(clean: Any) -> None:
    cleaned = clean(
        text(
            SIZES + "a = Add(s, un)  b = Add(a, um)  e = Exp(h)",
            "float[N, M, 8] x",
            "int64[3] b, float[N, M, 8] e",
        )
    )
    (shape,) = cleaned.model.graph.nodes_of("Shape")
    assert shape.input(0).name == "h"
