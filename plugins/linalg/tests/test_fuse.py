"""The required cases of fusing one producer into one consumer, each stored as MLIR text."""

from __future__ import annotations

import pytest

from gehost_linalg import AffineMap, are_elementwise_ops_fusable, fuse_elementwise_ops
from gehost_linalg.block import Block
from gehost_linalg.fuse import Fused
from gehost_linalg.generic import Arg, Literal, Res

from .conftest import Case, maps, payload

I2, T, R0 = "d0, d1", "d1, d0", "d0"


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("add_mul", [I2, I2, I2, I2]),
        ("add_transposed_mul", [I2, T, I2, I2]),
        ("read_transposed", [T, I2, I2, I2]),
        ("broadcast_read", [R0, R0, I2, I2]),
        ("rank_zero", ["", "", "", ""]),
        ("one_row_reduced", ["0, d0", "0, d0", "0"]),
        ("covered_reduction", ["", I2, R0]),
        ("exp_matmul", ["d0, d2", "d2, d1", "d0, d1"]),
        ("strided_read", ["d0 * 2", "d0"]),
        ("constant_row", ["2, d0", "d0"]),
        ("other_result_not_a_permutation", [I2, I2]),
        ("two_scalars", [I2, "", "", I2]),
        ("indices_of_the_consumer", [I2, I2]),
    ],
)
def test_maps_of_the_fused_operation(name: str, expected: list[str]) -> None:
    assert maps(Case(name).one()) == expected


def test_iterators_are_those_of_the_consumer() -> None:
    assert Case("rank_zero").one().iterators == ()
    assert Case("one_row_reduced").one().iterators == ("reduction",)
    assert Case("exp_matmul").one().iterators == ("parallel", "parallel", "reduction")


def test_a_constant_with_one_value_is_part_of_the_payload() -> None:
    op = Case("constant_throughout").one()
    assert maps(op) == ["d0, d1, d2", "d0, d1, d2"]
    assert op.payload.ops[0].operands == (Arg(0), Literal(42.0, "f32"))


def test_indices_of_a_transposed_producer_are_swapped_and_those_of_the_consumer_stay() -> None:
    op = Case("indices_of_transposed").one()
    assert maps(op) == [I2, I2, I2]
    reads = [
        cast.operands[1] for cast in op.payload.ops if cast.name in {"arith.addi", "arith.subi"}
    ]
    casts = [op.payload.ops[ref.index] for ref in reads if isinstance(ref, Res)]
    loops = [
        str(op.payload.ops[ref.index].attribute)
        for cast in casts
        for ref in cast.operands
        if isinstance(ref, Res)
    ]
    assert loops[:2] == ["d1", "d0"]
    assert sorted(cast for cast in payload(op) if cast.startswith("index d")) == [
        "index d0",
        "index d0",
        "index d1",
        "index d1",
    ]


def test_an_index_read_by_the_second_loop() -> None:
    op = Case("index_read_by_r1").one()
    assert maps(op) == ["d1", I2, I2]
    assert [item for item in payload(op) if item.startswith("index d")] == ["index d1"]


def test_an_index_read_at_a_constant_is_a_constant() -> None:
    op = Case("constant_row").one()
    assert [item for item in payload(op) if item.startswith("index d")] == ["index d0"]
    assert [ref.value for ref in op.payload.refs if isinstance(ref, Literal)][:1] == [2]


def test_the_producers_operations_come_first() -> None:
    assert payload(Case("add_mul").one()) == ["addf", "mulf"]
    assert payload(Case("indices_of_the_consumer").one()) == [
        "muli",
        "index d0",
        "index d1",
        "index_cast",
        "index_cast",
        "addi",
        "subi",
    ]


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("uncovered_reduction", "reduction-dim-uncovered: d1"),
        ("reduction_then_sqrt", "producer-not-parallel: loop 1 is a reduction"),
        ("producer_of_an_out", "operand-is-init"),
        ("result_not_a_permutation", "result-map-not-permutation: (d0, d1) -> (d0)"),
    ],
)
def test_refusals(name: str, reason: str) -> None:
    case = Case(name)
    assert len(case.fused()) == 2
    assert case.refusals() == [reason]


def test_a_constant_alone_under_a_reduction_stays() -> None:
    op = Case("constant_under_reduction").one()
    assert maps(op) == [I2, R0]


def test_a_loop_point_reads_and_writes() -> None:
    a, b, out = Case("loop_point").one().maps
    assert (a(2, 3), b(2, 3), out(2, 3)) == ((2, 3), (3, 2), (2, 3))


def test_a_preserved_out_covers_a_reduction() -> None:
    """P gives two results from a scalar; the one that others read gives loop d1 its size. MLIR refuses this."""
    from gehost_linalg.mlir import parse

    text = """
func.func @f(%s: tensor<f32>, %o: tensor<4xf32>, %e: tensor<4x4xf32>) -> (tensor<4x4xf32>, tensor<4xf32>) {
  %0 = linalg.generic {indexing_maps = [affine_map<(d0, d1) -> ()>, affine_map<(d0, d1) -> (d0, d1)>],
    iterator_types = ["parallel", "parallel"]} ins(%s : tensor<f32>) outs(%e : tensor<4x4xf32>) {
  ^bb0(%x: f32, %y: f32):
    %r = arith.addf %x, %y : f32
    linalg.yield %r : f32
  } -> tensor<4x4xf32>
  %1 = linalg.generic {indexing_maps = [affine_map<(d0, d1) -> (d0, d1)>, affine_map<(d0, d1) -> (d0)>],
    iterator_types = ["parallel", "reduction"]} ins(%0 : tensor<4x4xf32>) outs(%o : tensor<4xf32>) {
  ^bb0(%x: f32, %y: f32):
    %r = arith.addf %x, %y : f32
    linalg.yield %r : f32
  } -> tensor<4xf32>
  return %0, %1 : tensor<4x4xf32>, tensor<4xf32>
}"""
    function = parse(text)[0]
    operand = Block(function.ops, function.outputs).operand(function.ops[1], 0)
    assert are_elementwise_ops_fusable(operand) is None
    assert str(are_elementwise_ops_fusable(operand, "upstream")) == "reduction-dim-uncovered: d1"
    fused = fuse_elementwise_ops(operand)
    assert isinstance(fused, Fused)
    assert maps(fused.generic) == ["", I2, R0]
    assert [value.name for value in fused.replaced] == ["0", "1"]


def test_the_function_gives_the_fused_generic_or_the_refusal() -> None:
    case = Case("add_mul")
    block = Block(case.function.ops, case.function.outputs)
    fused = fuse_elementwise_ops(block.operand(case.function.ops[1], 0))
    assert isinstance(fused, Fused)
    assert fused.generic.maps == (AffineMap.identity(2),) * 4
    assert fused.generic.results == case.function.ops[1].results
    refusal = fuse_elementwise_ops(block.operand(case.function.ops[1], 1))
    assert str(refusal) == "producer-not-generic"
