"""Reshapes that move by merging loops, and loops of size 1 that go."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest

from gehost_linalg.control import ControlError
from gehost_linalg.driver import COMPANIONS, MLIR_COMPANIONS, fuse_block
from gehost_linalg.fusability import OpOperand
from gehost_linalg.generic import Generic, verify
from gehost_linalg.interpret import interpret
from gehost_linalg.mlir import Function, parse, print_function
from gehost_linalg.passes import companions_named
from gehost_linalg.reshape import MERGING
from gehost_linalg.units import UNITS

from . import dags
from .dags import function_with_reshapes, random_function
from .oracle import Iree, signatures
from .test_reshape import random_function as pair_with_a_reshape

COLLAPSING = "func.func(iree-codegen-convolution-to-igemm)"
"""The pass of iree-opt that has MLIR's patterns of fusion by collapsing."""


def rewritten(text: str, *companions: str, fuses: bool = True) -> Function:
    (read,) = parse(text)
    block = fuse_block(
        read.ops,
        "one-use" if fuses else _never,
        outputs=read.outputs,
        companions=companions,
        coverage="upstream",
    )
    for op in block.ops:
        if isinstance(op, Generic):
            verify(op)
    return Function(read.name, read.arguments, block.ops, block.outputs)


def _never(operand: OpOperand) -> str:
    return f"{operand.index}: no fusion"


def _loops(function: Function) -> Counter[tuple[Any, ...]]:
    """Maps and iterators; MLIR folds index arithmetic further."""
    counts: Counter[tuple[Any, ...]] = Counter()
    for signature, count in signatures(function).items():
        counts[signature[:2]] += count
    return counts


TEXT = """func.func @f(%a: tensor<6x3xf32>, %b: tensor<2x3x3xf32>) -> tensor<2x3x3xf32> {
  %x = tensor.expand_shape %a [[0, 1], [2]] output_shape [2, 3, 3] : tensor<6x3xf32> into tensor<2x3x3xf32>
  %e = tensor.empty() : tensor<2x3x3xf32>
  %y = linalg.generic {indexing_maps = [affine_map<(d0, d1, d2) -> (d0, d1, d2)>, affine_map<(d0, d1, d2) -> (d0, d1, d2)>, affine_map<(d0, d1, d2) -> (d0, d1, d2)>], iterator_types = ["parallel", "parallel", "parallel"]} ins(%x, %b : tensor<2x3x3xf32>, tensor<2x3x3xf32>) outs(%e : tensor<2x3x3xf32>) {
  ^bb0(%l: f32, %m: f32, %o: f32):
    %s = arith.addf %l, %m : f32
    linalg.yield %s : f32
  } -> tensor<2x3x3xf32>
  return %y : tensor<2x3x3xf32>
}
"""


def test_a_split_moves_down_over_merged_loops() -> None:
    printed = print_function(rewritten(TEXT, MERGING))
    assert "tensor.collapse_shape %b [[0, 1], [2]]" in printed
    assert printed.count('iterator_types = ["parallel", "parallel"]') == 1
    assert printed.rstrip().splitlines()[-3].lstrip().startswith("%y = tensor.expand_shape")


TWICE = """func.func @f(%a: tensor<6x3xf32>) -> tensor<2x3x3xf32> {
  %e = tensor.empty() : tensor<6x3xf32>
  %y = linalg.generic {indexing_maps = [affine_map<(d0, d1) -> (d0, d1)>, affine_map<(d0, d1) -> (d0, d1)>, affine_map<(d0, d1) -> (d0, d1)>], iterator_types = ["parallel", "parallel"]} ins(%a, %a : tensor<6x3xf32>, tensor<6x3xf32>) outs(%e : tensor<6x3xf32>) {
  ^bb0(%l: f32, %m: f32, %o: f32):
    %s = arith.addf %l, %m : f32
    linalg.yield %s : f32
  } -> tensor<6x3xf32>
  %z = tensor.expand_shape %y [[0, 1], [2]] output_shape [2, 3, 3] : tensor<6x3xf32> into tensor<2x3x3xf32>
  return %z : tensor<2x3x3xf32>
}
"""


def test_an_operand_that_is_read_twice_is_reshaped_once() -> None:
    """So that companions merge the two, whatever comes first."""
    moved = rewritten(TWICE, "expand-reshapes")
    assert print_function(moved).count("tensor.expand_shape %a") == 1
    (op,) = [item for item in moved.ops if isinstance(item, Generic)]
    assert op.ins[0] is op.ins[1]
    transposed = TWICE.replace("6x3", "6x6").replace("2x3x3", "2x3x6").replace(" 3]", " 6]")
    transposed = transposed.replace("(d0, d1)>, affine", "(d1, d0)>, affine", 1)
    assert print_function(rewritten(transposed, "expand-reshapes")).count("expand_shape %a") == 2


def test_merging_takes_the_place_of_splitting() -> None:
    assert "expand-reshapes" not in companions_named(MERGING, MLIR_COMPANIONS)
    with pytest.raises(ControlError, match="undo each other"):
        companions_named(f"{MERGING},expand-reshapes", MLIR_COMPANIONS)
    with pytest.raises(ValueError, match="undo each other"):
        rewritten(TEXT, MERGING, "expand-reshapes")


def test_numbers_stay_where_reshapes_move() -> None:
    for seed in range(25):
        text = print_function(function_with_reshapes(seed))
        before, after = parse(text)[0], rewritten(text, *COMPANIONS, MERGING)
        random = np.random.default_rng(seed)
        inputs = [random.uniform(0.1, 0.4, size=argument.shape) for argument in before.arguments]
        results = [
            interpret(
                argument.ops,
                dict(zip(argument.arguments, [np.float32(x) for x in inputs], strict=True)),
                argument.outputs,
            )
            for argument in (before, after)
        ]
        for expected, value in zip(*results, strict=True):
            np.testing.assert_allclose(value, expected, rtol=1e-4)


def test_mlir_merges_the_same_loops() -> None:
    pytest.importorskip("iree.compiler")
    iree, moved = Iree(), 0
    for seed in range(60):
        text = print_function(pair_with_a_reshape(seed))
        result = rewritten(text, MERGING, fuses=False)
        iree.verify(print_function(result))
        assert _loops(result) == _loops(parse(iree.fused(text, COLLAPSING))[0]), seed
        moved += _loops(result) != _loops(parse(text)[0])
    assert moved > 8


def test_mlir_drops_the_same_units(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("iree.compiler")
    monkeypatch.setattr(dags, "SIZES", (1, 1, 2, 3))
    iree = Iree()
    for seed in range(40):
        text = print_function(random_function(seed))
        result = rewritten(text, *MLIR_COMPANIONS, UNITS)
        iree.verify(print_function(result))
        passes = "linalg-fuse-elementwise-ops,linalg-fold-unit-extent-dims"
        assert signatures(result) == signatures(parse(iree.fused(text, passes))[0]), seed


def test_an_out_that_is_read_is_an_in_before_units_go() -> None:
    """As in MLIR; the sum over a loop keeps its out."""
    text = TEXT.replace("ins(%x, %b", "ins(%b, %b").replace("outs(%e", "outs(%x")
    text = text.replace("arith.addf %l, %m", "arith.addf %l, %o")
    result = rewritten(text, *COMPANIONS, UNITS)
    (op,) = [item for item in result.ops if isinstance(item, Generic)]
    assert [value.kind for value in op.outs] == ["empty"]
    assert [value.name for value in op.ins] == ["b", "x"]
