"""Scatters by any computation, in the order of the updates."""

from __future__ import annotations

import numpy as np
import pytest

from .recorded import imported, run

TEXT = """f {{ a = {kind}[] parameter(0) b = {kind}[] parameter(1) {body} }}
ENTRY e {{
  x = {kind}[5,2] parameter(0)
  i = s32[4,1] parameter(1)
  u = {kind}[4,2] parameter(2)
  ROOT s = {kind}[5,2] scatter(x, i, u), update_window_dims={{1}}, inserted_window_dims={{0}},
    scatter_dims_to_operand_dims={{0}}, index_vector_dim=1{extra}, to_apply=f
}}"""
FLOATS = "m = f32[] multiply(a, b) ROOT r = f32[] subtract(m, b)"


@pytest.mark.parametrize(
    ("rows", "extra"), [([1, 3, 1, 9], ""), ([1, 3, 0, 9], ", unique_indices=true")]
)
def test_windows_that_meet_are_combined_in_order(rows: list[int], extra: str) -> None:
    draw = np.random.default_rng(1)
    x, u = draw.standard_normal((5, 2)), draw.standard_normal((4, 2))
    x, u = x.astype(np.float32), u.astype(np.float32)
    expected = x.copy()
    for row, update in zip(rows, u, strict=True):
        if row < 5:
            expected[row] = expected[row] * update - update
    text = TEXT.format(kind="f32", body=FLOATS, extra=extra)
    (actual,) = run(imported(text), [x, np.array(rows, np.int32)[:, None], u])
    np.testing.assert_allclose(actual, expected, rtol=1e-6)


def test_a_computation_that_ignores_the_update() -> None:
    text = TEXT.format(kind="f32", body="ROOT r = f32[] sine(a)", extra="")
    x, u = np.ones((5, 2), np.float32), np.zeros((4, 2), np.float32)
    (actual,) = run(imported(text), [x, np.array([[1], [3], [1], [9]], np.int32), u])
    expected = x.copy()
    expected[1], expected[3] = np.sin(np.sin(1)), np.sin(1)
    np.testing.assert_allclose(actual, expected, rtol=1e-6)


def test_pred_and_bits() -> None:
    rows = np.array([[1], [3], [1], [9]], np.int32)
    x, u = np.zeros((5, 2), bool), np.ones((4, 2), bool)
    (actual,) = run(
        imported(TEXT.format(kind="pred", body="ROOT r = pred[] xor(a, b)", extra="")), [x, rows, u]
    )
    assert actual.sum(1).tolist() == [0, 0, 0, 2, 0]
    x, u = np.full((5, 2), 6, np.uint16), np.full((4, 2), 3, np.uint16)
    (actual,) = run(
        imported(TEXT.format(kind="u16", body="ROOT r = u16[] and(a, b)", extra="")), [x, rows, u]
    )
    assert actual[:, 0].tolist() == [6, 2, 6, 2, 6]


def test_several_operands() -> None:
    text = """f { a = f32[] parameter(0) k = s32[] parameter(1) b = f32[] parameter(2) l = s32[] parameter(3)
  c = pred[] compare(b, a), direction=GT
  v = f32[] select(c, b, a) w = s32[] select(c, l, k) ROOT t = (f32[], s32[]) tuple(v, w) }
ENTRY e { x = f32[4] parameter(0) k = s32[4] parameter(1) i = s32[3,1] parameter(2) u = f32[3] parameter(3) l = s32[3] parameter(4)
  ROOT s = (f32[4], s32[4]) scatter(x, k, i, u, l), update_window_dims={}, inserted_window_dims={0}, scatter_dims_to_operand_dims={0}, index_vector_dim=1, to_apply=f }"""
    x, k = np.zeros(4, np.float32), np.arange(4, dtype=np.int32)
    i, u = np.array([[2], [2], [0]], np.int32), np.array([5, 3, -1], np.float32)
    values, places = run(imported(text), [x, k, i, u, np.array([7, 8, 9], np.int32)])
    assert values.tolist() == [0, 0, 5, 0]
    assert places.tolist() == [0, 1, 7, 3]
