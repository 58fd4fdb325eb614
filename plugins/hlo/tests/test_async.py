"""Pairs of -start and -done, as XLA's scheduler writes them."""

from __future__ import annotations

import numpy as np
import pytest

from gehost_hlo import UntranslatableError

from .recorded import imported, run

X = np.arange(6, dtype=np.float32).reshape(2, 3)


def test_async_start_runs_its_computation() -> None:
    text = """wrapped { p = f32[2,3] parameter(0) ROOT s = f32[2,3] sine(p) }
ENTRY e { x = f32[2,3] parameter(0)
  a = ((f32[2,3]), f32[2,3], u32[]) async-start(x), calls=wrapped, async_execution_thread="main"
  b = ((f32[2,3]), f32[2,3], u32[]) async-update(a), calls=wrapped
  n = f32[2,3] negate(x)
  d = f32[2,3] async-done(b), calls=wrapped
  ROOT r = f32[2,3] add(d, n) }"""
    (actual,) = run(imported(text), [X])
    np.testing.assert_allclose(actual, np.sin(X) - X, rtol=1e-6)


def test_copy_start() -> None:
    text = """ENTRY e { x = f32[2,3]{1,0} parameter(0)
  c = (f32[2,3]{1,0:S(5)}, f32[2,3]{1,0}, u32[]) copy-start(x)
  d = f32[2,3]{1,0:S(5)} copy-done(c)
  ROOT r = f32[2,3]{1,0} negate(d) }"""
    np.testing.assert_array_equal(run(imported(text), [X])[0], -X)


SUM = "sum { a = f32[] parameter(0) b = f32[] parameter(1) ROOT s = f32[] add(a, b) }\n"


@pytest.mark.parametrize(
    ("start", "outcome", "op"),
    [
        ("f32[2,3] all-reduce-start(x), replica_groups={{0,1}}, to_apply=sum", "all-reduce-done", "AllReduce"),
        ("(f32[2,3], f32[4,3]) all-gather-start(x), replica_groups={{0,1}}, dimensions={0}", "all-gather-done", "AllGather"),
        ("(f32[2,3], f32[2,3], u32[], u32[]) collective-permute-start(x), source_target_pairs={{0,1}}", "collective-permute-done", "CollectivePermute"),
    ],
)  # fmt: skip
def test_collectives_in_two_halves_are_one_node(start: str, outcome: str, op: str) -> None:
    shape = "f32[4,3]" if "gather" in start else "f32[2,3]"
    model = imported(
        f"{SUM}ENTRY e {{ x = f32[2,3] parameter(0) s = {start}\n ROOT r = {shape} {outcome}(s) }}"
    )
    assert [node.op_type for node in model.graph.node] == [op, "Identity"]


def test_a_pair_without_its_tuple_is_refused() -> None:
    with pytest.raises(UntranslatableError, match="holds no operand and result"):
        imported("ENTRY e { x = f32[2] parameter(0) ROOT c = f32[2] copy-start(x) }")
