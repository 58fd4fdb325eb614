"""Fusing to a fixed point: control functions, other readers of a producer, cycles."""

from __future__ import annotations

import numpy as np
import pytest

from gehost.testing import parse as parse_onnx
from gehost_linalg.control import ControlError
from gehost_linalg.driver import MLIR_COMPANIONS, MOST_SCALAR_OPS, Block, fuse_all, fuse_block
from gehost_linalg.generic import INDEX, Generic, Opaque, Res
from gehost_linalg.interpret import interpret
from gehost_linalg.mlir import Function, parse, print_function

from .conftest import Case, maps, payload
from .dags import random_function
from .models import graph, lowered

I2 = "d0, d1"


def test_three_muls_with_four_operands_fuse_the_first_alone() -> None:
    first, second, third = Case("three_muls").fused("max-operands=4")
    assert [value.name for value in third.ins] == ["a0", "a1", "1", "2"]
    assert payload(first) == payload(second) == ["mulf"]
    assert payload(third) == ["mulf", "addf", "addf"]


def test_the_operations_of_the_producer_fused_last_come_first() -> None:
    op = Case("three_muls").one()
    assert [value.name for value in op.ins] == ["a0", "a1", "b0", "b1", "c0", "c1"]
    assert payload(op) == ["mulf", "mulf", "mulf", "addf", "addf"]
    products = [[ref.index for ref in item.operands] for item in op.payload.ops[:3]]
    assert products == [[4, 5], [2, 3], [0, 1]]


def test_an_unread_result_goes() -> None:
    op = Case("unread_result").one()
    assert (maps(op), payload(op), len(op.results)) == ([I2, I2], ["tanh", "sqrt"], 1)


def test_results_that_are_read_elsewhere_are_results_of_the_fused_operation() -> None:
    case = Case("results_read_elsewhere")
    assert len(case.fused()) == 2
    function = case.fused_function("always", "share")
    (op,) = function.ops
    assert isinstance(op, Generic)
    assert maps(op) == [I2] * 4
    assert function.outputs == list(op.results)
    assert len(op.results) == 3


class TestDiamond:
    """P → X → C and P → C, where X is no Generic."""

    def test_one_use_fuses_nothing(self) -> None:
        assert [payload(op) for op in Case("diamond").fused()] == [["exp"], ["addf"]]
        assert "control: the producer has 2 uses" in Case("diamond").refusals()

    def test_duplicate_leaves_the_producer_and_gives_the_consumer_a_copy(self) -> None:
        assert [payload(op) for op in Case("diamond").fused("always", "duplicate")] == [
            ["exp"],
            ["exp", "addf"],
        ]

    def test_share_is_refused_with_the_path(self) -> None:
        assert [payload(op) for op in Case("diamond").fused("always", "share")] == [
            ["exp"],
            ["addf"],
        ]
        assert "cycle: through test.opaque" in Case("diamond").refusals("always", "share")

    def test_refuse_is_the_default_of_every_control_function(self) -> None:
        assert len(Case("diamond").fused("always")) == 2
        assert "control: the producer has 2 uses, and multi-use is refuse" in Case(
            "diamond"
        ).refusals("always")


def _along(result: str, op: str, ins: str, maps: str = "(d0)") -> str:
    """A Generic along one loop of 4; an in has the name of its argument of the payload."""
    names = ins.split()
    read = [f"affine_map<(d0) -> {maps}>", *["affine_map<(d0) -> (d0)>"] * len(names)]
    types = ", ".join("tensor<7xf32>" if name == "a" else "tensor<4xf32>" for name in names)
    arguments = ", ".join(f"%{result}{name}" for name in names)
    return f"""
  %{result} = linalg.generic {{indexing_maps = [{", ".join(read)}], iterator_types = ["parallel"]}}
    ins({", ".join(f"%{name}" for name in names)} : {types}) outs(%e : tensor<4xf32>) {{
  ^bb0({", ".join(f"%{result}{name}: f32" for name in names)}, %{result}out: f32):
    %{result}r = {op} {arguments} : f32
    linalg.yield %{result}r : f32
  }} -> tensor<4xf32>"""


@pytest.mark.parametrize(
    ("between", "last", "expected"),
    [
        # Without the dead reader, exp is fused into tanh; tanh in the sum would leave exp alone.
        ("", "c", [["exp", "tanh"], ["addf"]]),
        # Then both into erf, which was visited before the reader: it has a new producer.
        (_along("d", "math.erf", "c"), "d", [["exp", "tanh", "erf"], ["addf"]]),
    ],
)
def test_a_dead_reader_goes_before_later_operations_are_fused(
    between: str, last: str, expected: list[list[str]]
) -> None:
    """As in MLIR."""
    text = f"""func.func @f(%a: tensor<7xf32>, %s: tensor<f32>) -> tensor<f32> {{
  %e = tensor.empty() : tensor<4xf32>
  {_along("p", "math.exp", "a", "(d0 * 2)")}{_along("c", "math.tanh", "p")}{between}
  {_along("dead", "arith.addf", "c p")}
  %r = linalg.generic {{indexing_maps = [affine_map<(d0) -> (d0)>, affine_map<(d0) -> ()>], iterator_types = ["reduction"]}}
    ins(%{last} : tensor<4xf32>) outs(%s : tensor<f32>) {{
  ^bb0(%x3: f32, %o3: f32):
    %y3 = arith.addf %x3, %o3 : f32
    linalg.yield %y3 : f32
  }} -> tensor<f32>
  return %r : tensor<f32>
}}"""
    function = parse(text)[0]
    block = fuse_block(function.ops, outputs=function.outputs)
    assert [payload(op) for op in block.ops] == expected


@pytest.mark.parametrize(
    ("name", "operations"),
    [
        # The dead producer of the product still reads erf's result, which has two readers then.
        ("dead_producer", [1, 12, 5, 2]),
        # An out that only carries itself is dropped before a reader is fused.
        ("unused_cycle_order", [1, 14]),
        # The fusion of the first operand fails, and no other is tried.
        ("lost_bounds_first", [1, 1, 1]),
    ],
)
def test_operations_are_visited_in_the_order_of_mlir(name: str, operations: list[int]) -> None:
    """The numbers are those of ``linalg-fuse-elementwise-ops``."""
    fused = Case(name).fused(coverage="upstream")
    counts = [sum(yield_.name != INDEX for yield_ in op.payload.ops) for op in fused]
    assert counts == operations
    assert all(isinstance(yield_, Res) for op in fused for yield_ in op.payload.yields)


def test_operands_behind_one_that_loses_bounds_are_fused() -> None:
    """MLIR leaves them."""
    assert [payload(op) for op in Case("lost_bounds_first").fused()] == [["exp"], ["tanh", "mulf"]]


def test_share_moves_other_readers_behind_the_fused_operation() -> None:
    """P, X(P), C(P): X reads what the fused operation makes, so that it must come after it."""
    case = Case("diamond")
    producer, other, consumer = case.function.ops
    assert isinstance(consumer, Generic)
    assert isinstance(other, Opaque)
    from dataclasses import replace

    alone = replace(consumer, ins=(consumer.ins[0], case.function.arguments[0]))
    ops = fuse_all(
        [producer, other, alone], "always", "share", outputs=[*alone.results, *other.results]
    )
    assert [type(op).__name__ for op in ops] == ["Generic", "Opaque"]
    assert ops[1].operands[0] in ops[0].results


@pytest.mark.parametrize(("control", "multi_use"), [("one-use", "refuse"), ("always", "duplicate"), ("always", "share"), ("cost", "duplicate"),
                                                    ("no-recompute", "share"), ("max-live=4", "duplicate")])  # fmt: skip
def test_fused_and_unfused_give_the_same_numbers(control: str, multi_use: str) -> None:
    for seed in range(12):
        function = random_function(seed)
        random = np.random.default_rng(seed)
        inputs = {
            value: random.uniform(-1, 1, size=value.shape).astype(np.float32)
            for value in function.arguments
        }
        expected = interpret(function.ops, inputs, function.outputs)
        block = Block(function.ops, function.outputs)
        from gehost_linalg.control import control_named, multi_use_named
        from gehost_linalg.driver import Driver

        Driver(block, control_named(control), multi_use_named(multi_use)).run()
        for values, other in zip(
            interpret(block.ops, inputs, block.outputs), expected, strict=True
        ):
            np.testing.assert_array_equal(values, other)


def test_the_order_of_operations_is_checked() -> None:
    case = Case("add_mul")
    with pytest.raises(ValueError, match="read before it is made"):
        fuse_all(case.function.ops[::-1])


def test_unknown_names_list_the_nearest() -> None:
    with pytest.raises(ControlError, match="no control is called 'one-used'; nearest: one-use"):
        fuse_all([], "one-used")
    with pytest.raises(ControlError, match="no multi-use is called 'shared'; nearest: share"):
        fuse_all([], "always", "shared")
    with pytest.raises(ValueError, match="no companion is called 'dedupe'; nearest: dedup"):
        fuse_all([], companions=("dedupe",))


def test_a_long_chain_is_fused_in_one_walk() -> None:
    """A chain of 400 operations, far deeper than Python's stack allows for recursion at each."""
    case = Case("add_mul")
    first = case.function.ops[1]
    assert isinstance(first, Generic)
    from dataclasses import replace

    from gehost_linalg.generic import Value

    ops, value = [case.function.ops[0]], case.function.ops[0].results[0]
    for number in range(400):
        result = Value(f"c{number}", "f32", (4, 4))
        ops.append(replace(first, ins=(value, case.function.arguments[2]), results=(result,)))
        value = result
    (op,) = fuse_all(ops, outputs=[value])
    assert len(op.payload.ops) == 401
    assert len(op.ins) == 3


SIZES_OF_A_RESULT = """
#id = affine_map<(d0) -> (d0)>
func.func @f(%a: tensor<?xf32>) -> (tensor<?xf32>, tensor<?xf32>) {
  %c0 = arith.constant 0 : index
  %n = tensor.dim %a, %c0 : tensor<?xf32>
  %e = tensor.empty(%n) : tensor<?xf32>
  %p = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel"]} ins(%a : tensor<?xf32>) outs(%e : tensor<?xf32>) {
  ^bb0(%x: f32, %o: f32):
    %r = math.exp %x : f32
    linalg.yield %r : f32
  } -> tensor<?xf32>
  %m = tensor.dim %p, %c0 : tensor<?xf32>
  %g = tensor.empty(%m) : tensor<?xf32>
  %q = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel"]} ins(%p : tensor<?xf32>) outs(%g : tensor<?xf32>) {
  ^bb0(%x: f32, %o: f32):
    %r = math.tanh %x : f32
    linalg.yield %r : f32
  } -> tensor<?xf32>
  return %p, %q : tensor<?xf32>, tensor<?xf32>
}
"""


def test_a_consumer_whose_sizes_depend_on_the_producer_does_not_share_it() -> None:
    """The fused operation would need the size of its own result."""
    (function,) = parse(SIZES_OF_A_RESULT)
    block = fuse_block(function.ops, "always", "share", outputs=function.outputs)
    assert [payload(op) for op in block.ops if isinstance(op, Generic)] == [["exp"], ["tanh"]]
    reasons = [str(refusal) for result in block.refusals.values() for _, refusal in result]
    assert reasons == ["consumer-not-generic: tensor.dim", "cycle: through tensor.dim"]
    after = Function(function.name, function.arguments, block.ops, block.outputs)
    assert print_function(parse(print_function(after))[0]) == print_function(after)


def test_duplication_ends_before_payloads_double_without_end() -> None:
    """Each of 30 layers reads the one below twice: copied throughout, the last would have 2 ** 30 operations."""
    layers = "\n".join(f"t{i} = Transpose(v{i})\nv{i + 1} = Add(v{i}, t{i})" for i in range(30))
    _, result = lowered(
        parse_onnx(graph(f"v0 = Neg(x)\n{layers}\ny = Neg(v30)", "float[3,3] x", "float[3,3] y"))
    )
    block = fuse_block(result.ops, "always", "duplicate", outputs=result.outputs)
    sizes = [len(op.payload.ops) for op in block.ops if isinstance(op, Generic)]
    assert 100 < max(sizes) <= 2 * MOST_SCALAR_OPS
    reasons = [str(refusal) for result in block.refusals.values() for _, refusal in result]
    assert f"too-large: more than {MOST_SCALAR_OPS} scalar operations" in reasons
    x = np.random.default_rng(0).normal(size=(3, 3)).astype(np.float32)
    (value,) = [item for tensor, item in result.values.items() if tensor.name == "x"]
    before = interpret(result.ops, {value: x}, result.outputs, result.names.rules)
    after = interpret(block.ops, {value: x}, block.outputs, result.names.rules)
    np.testing.assert_allclose(after[0], before[0], rtol=1e-5)


def test_the_parts_of_a_split_operation_are_fused() -> None:
    body = "c = Concat<axis = 0>(x, y)\ne = Exp(c)\nz = Add(e, c)"
    _, result = lowered(parse_onnx(graph(body, "float[1] x, float[1] y", "float[2] z")))
    block = fuse_block(result.ops, outputs=result.outputs)
    fused = [payload(op) for op in block.ops if isinstance(op, Generic)]
    assert fused == [["exp", "addf"]] * 2


REPLACED = {
    "undone reshapes": """%r = tensor.expand_shape %x [[0, 1]] output_shape [4, 1] : tensor<4xf32> into tensor<4x1xf32>
    %s = tensor.collapse_shape %r [[0, 1]] : tensor<4x1xf32> into tensor<4xf32>""",
    "a copy": """%e = tensor.empty() : tensor<4xf32>
    %s = linalg.generic {indexing_maps = [affine_map<(d0) -> (d0)>, affine_map<(d0) -> (d0)>], iterator_types = ["parallel"]} ins(%x : tensor<4xf32>) outs(%e : tensor<4xf32>) {
    ^bb0(%in: f32, %out: f32):
    linalg.yield %in : f32
    } -> tensor<4xf32>""",
}


@pytest.mark.parametrize("first", REPLACED)
def test_the_readers_of_a_replaced_value_are_visited_again(first: str) -> None:
    """What they read instead is an argument; the two splats are folded one at a time."""
    text = f"""func.func @f(%x: tensor<4xf32>) -> (tensor<4xf32>, tensor<4xf32>) {{
    {REPLACED[first]}
    %c = arith.constant dense<2.0> : tensor<4xf32>
    %d = arith.constant dense<3.0> : tensor<4xf32>
    %o = tensor.empty() : tensor<4xf32>
    %z = linalg.generic {{indexing_maps = [{", ".join(["affine_map<(d0) -> (d0)>"] * 4)}], iterator_types = ["parallel"]}} ins(%s, %c, %d : tensor<4xf32>, tensor<4xf32>, tensor<4xf32>) outs(%o : tensor<4xf32>) {{
    ^bb0(%l: f32, %m: f32, %n: f32, %out1: f32):
    %p = arith.mulf %l, %m : f32
    %q = arith.addf %p, %n : f32
    linalg.yield %q : f32
    }} -> tensor<4xf32>
    return %z, %s : tensor<4xf32>, tensor<4xf32>
    }}"""
    function = parse(text)[0]
    block = fuse_block(function.ops, outputs=function.outputs, companions=MLIR_COMPANIONS)
    (op,) = [item for item in block.ops if isinstance(item, Generic)]
    assert [value.name for value in op.ins] == ["x"]
