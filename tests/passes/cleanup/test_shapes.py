"""Computed shapes become constants, and sizes are read from the model's inputs."""

from __future__ import annotations

from typing import Any

import numpy as np
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
    ("target", "expected"),
    [
        ("un, um, two, four", [0, 0, 2, 4]),
        ("two, um, four, un", None),  # two that are not at their places
        ("one, two, four, last", None),  # a constant already, once it is folded
        ("one, nm, two, four", [1, -1, 2, 4]),
        ("un, two, um, four", None),  # -1 beside a size that may be 0
        ("un, um, last, four", [0, 0, 2, 4]),  # 8 / 4
        ("un, last, four", [0, -1, 4]),  # M * 8 / 4; the model's own -1 stays
        ("um, last, four", None),  # two that are not known
    ],
)
def test_computed_targets(clean: Any, target: str, expected: list[int] | None) -> None:
    rank = target.count(",") + 1
    cleaned = clean(
        text(
            SIZES + f"nm = Mul(un, um)  t = Concat <axis = 0> ({target})  "
            "r = Reshape(h, t)  y = Neg(r)",
            output=f"float[{', '.join('PQRS'[:rank])}] y",
        )
    )
    (reshape,) = cleaned.model.graph.nodes_of("Reshape")
    if expected is None:
        assert not reshape.input(1).name.startswith("cleanup_shape")
    else:
        assert reshape.input(1).array.tolist() == expected
        assert cleaned.ops == ["Neg", "Reshape", "Neg"]


@pytest.mark.parametrize("batch", [0, 3])
@pytest.mark.parametrize(
    "target", ["un, um, two, four", "un, um, last, four", "un, last, two, four"]
)
def test_a_copy_takes_the_place_of_allowzero(clean: Any, target: str, batch: int) -> None:
    cleaned = clean(
        text(
            SIZES + f"t = Concat <axis = 0> ({target})  "
            "r = Reshape <allowzero = 1> (h, t)  y = Neg(r)"
        ),
        feeds={"x": np.ones((batch, 5, 8), np.float32)},
    )
    (reshape,) = cleaned.model.graph.nodes_of("Reshape")
    assert reshape.input(1).array.tolist() == [0, 0, 2, 4]
    assert not reshape.attrs["allowzero"]


@pytest.mark.parametrize("rows", [3, 7])
def test_an_open_size_beside_an_empty_axis(clean: Any, rows: int) -> None:
    """Beside N = 0 any size fits, which 12 / 4 does not show."""
    cleaned = clean(
        "g (float[N, 12] x, float[N, M, 4] w) => (float[N, M, 4] y) "
        "{ s = Shape(w)  h = Neg(x)  r = Reshape(h, s)  y = Add(r, w) }",
        feeds={"x": np.ones((0, 12), np.float32), "w": np.ones((0, rows, 4), np.float32)},
    )
    assert cleaned.ops == ["Shape", "Neg", "Reshape", "Add"]


@pytest.mark.parametrize("target", ["un, um, two, zero", "un, last, four"])
def test_allowzero_stays_beside_a_zero_or_an_open_size(clean: Any, target: str) -> None:
    rank = target.count(",") + 1
    cleaned = clean(
        text(
            SIZES + f"t = Concat <axis = 0> ({target})  "
            "r = Reshape <allowzero = 1> (h, t)  y = Neg(r)",
            output=f"float[{', '.join('PQRS'[:rank])}] y",
        ),
        runs="zero" not in target,
    )
    assert "Concat" in cleaned.ops
    (reshape,) = cleaned.model.graph.nodes_of("Reshape")
    assert reshape.attrs["allowzero"]


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


def test_a_tensor_of_unknown_rank_is_no_scalar(clean: Any) -> None:
    """Squeeze without axes: its result may have any number of elements."""
    cleaned = clean(
        text(
            "s = Shape(x)  n = Slice(s, zero, one)  t = Concat <axis = 0> (n, one)  "
            "h = Squeeze(x)  r = Reshape(h, t)  y = Neg(r)",
            inputs="float[N, M] x",
            output="float[P, Q] y",
        ),
        feeds={"x": np.arange(3, dtype=np.float32).reshape(3, 1)},
    )
    (reshape,) = cleaned.model.graph.nodes_of("Reshape")
    assert reshape.input(1).array.tolist() == [-1, 1]
