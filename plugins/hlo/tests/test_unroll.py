"""Loops whose number of iterations is in the text, unrolled on request."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from gehost_hlo import import_file

from .recorded import imported, run

LOOP = """condition {{ s = (s32[], f32[2]) parameter(0) i = s32[] get-tuple-element(s), index=0 n = s32[] constant({limit})
  ROOT c = pred[] compare(i, n), direction=LT }}
body {{ s = (s32[], f32[2]) parameter(0) i = s32[] get-tuple-element(s), index=0 x = f32[2] get-tuple-element(s), index=1
  one = s32[] constant(2) j = s32[] add(i, one) f = f32[] convert(j) b = f32[2] broadcast(f), dimensions={{}} y = f32[2] multiply(x, b)
  ROOT t = (s32[], f32[2]) tuple(j, y) }}
ENTRY e {{ x = f32[2] parameter(0) {start} t = (s32[], f32[2]) tuple(i, x)
  w = (s32[], f32[2]) while(t), condition=condition, body=body
  ROOT r = f32[2] get-tuple-element(w), index=1 }}"""
X = np.array([1.0, -3.0], np.float32)


@pytest.mark.parametrize(("limit", "loops"), [(0, 0), (5, 0), (8, 0), (9, 1)])
def test_loops_of_few_iterations_are_unrolled(limit: int, loops: int) -> None:
    text = LOOP.format(limit=limit, start="i = s32[] constant(0)")
    model = imported(text, unroll=4)
    assert sum(node.op_type == "Loop" for node in model.graph.node) == loops
    (actual,) = run(model, [X])
    (expected,) = run(imported(text), [X])
    np.testing.assert_allclose(actual, expected, rtol=1e-6)


def test_a_loop_from_an_input_stays() -> None:
    text = LOOP.format(limit=5, start="i = s32[] parameter(1)")
    model = imported(text, unroll=100)
    assert any(node.op_type == "Loop" for node in model.graph.node)


def test_stablehlo_loops_are_unrolled(tmp_path: Path) -> None:
    path = tmp_path / "loop.mlir"
    path.write_text("""module @m { func.func public @main(%arg0: tensor<2xf32>) -> tensor<2xf32> {
  %c = stablehlo.constant dense<0> : tensor<i32>
  %n = stablehlo.constant dense<3> : tensor<i32>
  %0:2 = stablehlo.while(%i = %c, %x = %arg0) : tensor<i32>, tensor<2xf32>
   cond {
    %1 = stablehlo.compare LT, %i, %n, SIGNED : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.return %1 : tensor<i1>
  } do {
    %one = stablehlo.constant dense<1> : tensor<i32>
    %2 = stablehlo.add %i, %one : tensor<i32>
    %3 = stablehlo.add %x, %x : tensor<2xf32>
    stablehlo.return %2, %3 : tensor<i32>, tensor<2xf32>
  }
  return %0#1 : tensor<2xf32>
} }""")
    model = import_file(path, unroll=3)
    assert {node.op_type for node in model.graph.node} == {"Add", "Identity"}
    np.testing.assert_array_equal(run(model, [X])[0], X * 8)
