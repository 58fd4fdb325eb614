"""Fusion through reshapes, in the core and in models."""

from __future__ import annotations

from random import Random
from typing import Any

import numpy as np
import onnx
import pytest

from gehost import Host, HostOptions
from gehost.testing import parse as parse_onnx
from gehost_linalg import AffineMap, Generic, MlirError
from gehost_linalg.affine import Dim
from gehost_linalg.block import Block
from gehost_linalg.driver import DEFAULT_COMPANIONS, fuse_block
from gehost_linalg.generic import (
    INDEX,
    PARALLEL,
    REDUCTION,
    Arg,
    Opaque,
    Payload,
    Res,
    ScalarOp,
    Value,
    verify,
)
from gehost_linalg.interpret import interpret
from gehost_linalg.mlir import Function, parse, print_function
from gehost_linalg.passes import NAME
from gehost_linalg.reshape import RESHAPE

from .conftest import maps, payload
from .models import graph, run_runtime


def generic(
    ins: str, maps_: list[str], out: str, kinds: str, name: str = "addf", index: int | None = None
) -> str:
    """The text of a Generic of two operands; ``index`` multiplies the result by a loop's index."""
    listing = ", ".join(f"affine_map<{item}>" for item in maps_)
    iterators = ", ".join(f'"{PARALLEL if kind == "p" else REDUCTION}"' for kind in kinds)
    lines = [f"%r = arith.{name} %p, %q : f32"]
    if index is not None:
        lines += [f"%i = linalg.index {index} : index", "%j = arith.index_cast %i : index to i64"]
        lines += ["%k = arith.sitofp %j : i64 to f32", "%s = arith.mulf %r, %k : f32"]
    lines.append(f"linalg.yield {'%r' if index is None else '%s'} : f32")
    body = "\n".join(lines)
    return (
        f"linalg.generic {{indexing_maps = [{listing}], iterator_types = [{iterators}]}} {ins} "
        f"outs({out}) {{\n^bb0(%p: f32, %q: f32, %o: f32):\n{body}\n}}"
    )


I2, I3 = "(d0, d1) -> (d0, d1)", "(d0, d1, d2) -> (d0, d1, d2)"
SMALL, LARGE = "tensor<3x8xf32>", "tensor<3x4x2xf32>"
SPLIT = f"tensor.expand_shape %0 [[0], [1, 2]] output_shape [3, 4, 2] : {SMALL} into {LARGE}"
MERGE = f"tensor.collapse_shape %0 [[0], [1, 2]] : {LARGE} into {SMALL}"


def split(
    read: str = I3, kinds: str = "ppp", index: int | None = None, consumer: int | None = None
) -> str:
    """A sum over [3, 8], split to [3, 4, 2], and a product that reads it by ``read``."""
    first = generic(
        f"ins(%x, %b : {SMALL}, tensor<8xf32>)",
        [I2, "(d0, d1) -> (d1)", I2],
        f"%e : {SMALL}",
        "pp",
        index=index,
    )
    second = generic(
        f"ins(%1, %c : {LARGE}, {LARGE})",
        [read, I3, I3],
        f"%f : {LARGE}",
        kinds,
        "mulf",
        consumer,
    )
    return f"""func.func @f(%x: {SMALL}, %b: tensor<8xf32>, %c: {LARGE}) -> {LARGE} {{
  %e = tensor.empty() : {SMALL}
  %0 = {first} -> {SMALL}
  %1 = {SPLIT}
  %f = tensor.empty() : {LARGE}
  %2 = {second} -> {LARGE}
  return %2 : {LARGE}
}}"""


def merge(read: str = I3, index: int | None = None, out: str = I2, kinds: str = "pp") -> str:
    """A product over [3, 4, 2] by ``read``, merged to [3, 8], and a sum that reads it."""
    first = generic(
        f"ins(%c, %d : {LARGE}, {LARGE})", [read, I3, I3], f"%f : {LARGE}", "ppp", "mulf"
    )
    reduced = kinds != "pp"
    result = "tensor<3xf32>" if reduced else SMALL
    second = generic(
        f"ins(%1, %b : {SMALL}, tensor<8xf32>)",
        [I2, "(d0, d1) -> (d1)", "(d0, d1) -> (d0)" if reduced else out],
        f"%e : {result}",
        kinds,
        index=index,
    )
    return f"""func.func @f(%c: {LARGE}, %d: {LARGE}, %b: tensor<8xf32>) -> {result} {{
  %f = tensor.empty() : {LARGE}
  %0 = {first} -> {LARGE}
  %1 = {MERGE}
  %e = tensor.empty() : {result}
  %2 = {second} -> {result}
  return %2 : {result}
}}"""


def fused(function: Function, *, on: bool = True) -> Block:
    """Fused, verified, printed and read, and with equal numbers."""
    companions = (*DEFAULT_COMPANIONS, *([RESHAPE] if on else []))
    block = fuse_block(function.ops, outputs=function.outputs, companions=companions)
    for op in block.ops:
        if isinstance(op, Generic):
            verify(op)
    again = Function("again", function.arguments, block.ops, block.outputs)
    assert print_function(parse(print_function(again))[0])
    random = np.random.default_rng(0)
    inputs = {
        value: random.normal(size=value.shape).astype(np.float32) for value in function.arguments
    }
    expected = interpret(function.ops, inputs, function.outputs)
    for argument, other in zip(interpret(block.ops, inputs, block.outputs), expected, strict=True):
        np.testing.assert_allclose(argument, other, rtol=1e-5, atol=1e-5)
    return block


def counts(block: Block) -> tuple[int, int]:
    """Generics and reshapes."""
    generics = sum(isinstance(op, Generic) for op in block.ops)
    return generics, len(block.ops) - generics


def last(block: Block) -> Generic:
    return next(op for op in reversed(block.ops) if isinstance(op, Generic))


def test_it_is_off_by_default() -> None:
    assert counts(fused(parse(split())[0], on=False)) == (2, 1)


def test_the_producer_of_a_split_is_computed_over_the_new_axes() -> None:
    """By expansion; the consumer, which reads it transposed, stays."""
    block = fused(parse(split("(d0, d1, d2) -> (d0, d1, d2)"))[0])
    assert counts(block) == (1, 2)
    assert maps(last(block)) == ["d0, d1, d2", "d1, d2", "d0, d1, d2", "d0, d1, d2"]


def test_an_index_of_a_split_loop_is_put_together() -> None:
    assert "index d1 * 2 + d2" in payload(last(fused(parse(split(index=1))[0])))


def test_the_consumer_of_merged_axes_is_computed_over_those_before() -> None:
    """By expansion, as the producer reads its axes in another order."""
    function = parse(merge().replace(f"[affine_map<{I3}>", "[affine_map<(d0, d1, d2) -> (d0, d1, d2)>", 1))[0]  # fmt: skip
    assert counts(fused(function)) == (1, 2)
    transposed = merge("(d0, d1, d2) -> (d0, d2, d1)").replace(
        f"%c: {LARGE}", "%c: tensor<3x2x4xf32>"
    )
    transposed = transposed.replace(f"ins(%c, %d : {LARGE}", "ins(%c, %d : tensor<3x2x4xf32>")
    block = fused(parse(transposed)[0])
    assert counts(block) == (1, 2)  # the bias is split, the result merged
    assert maps(last(block)) == ["d0, d2, d1", "d0, d1, d2", "d1, d2", "d0, d1, d2"]


def test_a_producer_of_merged_axes_is_collapsed() -> None:
    block = fused(parse(merge())[0])
    assert maps(last(block)) == ["d0, d1", "d0, d1", "d1", "d0, d1"]
    assert last(block).loops == 2


def test_an_index_of_merged_loops_is_taken_apart() -> None:
    """The producer of the split reads its axes in another order, so that the consumer is collapsed."""
    text = split(consumer=2).replace(
        f"ins(%x, %b : {SMALL}, tensor<8xf32>)", f"ins(%x, %b : {SMALL}, tensor<8xf32>)"
    )
    text = text.replace("affine_map<(d0, d1) -> (d1)>", "affine_map<(d0, d1) -> (d1 floordiv 2)>")
    text = text.replace("%b: tensor<8xf32>", "%b: tensor<4xf32>").replace(
        "tensor<8xf32>)", "tensor<4xf32>)"
    )
    block = fused(parse(text)[0])
    assert counts(block) == (1, 2)
    assert "index d1 mod 2" in payload(last(block))


def test_a_consumer_that_reduces_merged_axes_is_expanded_or_its_producer_collapsed() -> None:
    block = fused(parse(merge(kinds="pr"))[0])
    assert counts(block)[0] == 1
    assert last(block).iterators == (PARALLEL, REDUCTION)


def test_what_has_several_readers_stays() -> None:
    text = split().replace(f"return %2 : {LARGE}", f"return %2, %0 : {LARGE}, {SMALL}")
    text = text.replace(f"-> {LARGE} {{\n  %e", f"-> ({LARGE}, {SMALL}) {{\n  %e")
    block = fused(parse(text)[0])
    assert counts(block) == (2, 1)
    reasons = [str(reason) for op in block.ops for _, reason in block.refusals.get(op, ())]
    assert "reshape: something else reads it, or its operand" in reasons


def test_neither_side_has_reasons() -> None:
    """The producer's map is no projected permutation, the consumer reads the split axes apart."""
    text = split("(d0, d1, d2) -> (d1, d0, d2)").replace(f"(%1, %c : {LARGE}", f"(%1, %c : {LARGE}")
    text = text.replace(
        "affine_map<(d0, d1) -> (d1)>", "affine_map<(d0, d1) -> (d1 floordiv 2)>"
    ).replace("tensor<8xf32>", "tensor<4xf32>")
    text = (
        text.replace(f"%c: {LARGE}) -> {LARGE}", "%c: tensor<4x3x2xf32>) -> tensor<4x3x2xf32>")
        .replace(f"(%1, %c : {LARGE}, {LARGE})", f"(%1, %c : {LARGE}, tensor<4x3x2xf32>)")
        .replace(f"%f = tensor.empty() : {LARGE}", "%f = tensor.empty() : tensor<4x3x2xf32>")
        .replace(f"outs(%f : {LARGE})", "outs(%f : tensor<4x3x2xf32>)")
        .replace(f"}} -> {LARGE}", "} -> tensor<4x3x2xf32>")
        .replace(f"return %2 : {LARGE}", "return %2 : tensor<4x3x2xf32>")
    )
    block = fused(parse(text)[0])
    assert counts(block) == (2, 1)
    reasons = [str(reason) for op in block.ops for _, reason in block.refusals.get(op, ())]
    assert any("the producer stays: (d0, d1) -> (d1 floordiv 2) is no" in item for item in reasons)
    assert "reshape: the consumer stays: d0, d2 are not neighbouring loops" in reasons


def random_function(seed: int) -> Function:
    """A producer, a reshape and a consumer, with maps, reductions and indices of any kind."""
    random = Random(seed)
    small = [random.randint(1, 4), random.randint(1, 3) * 2]
    groups, large = [], []
    for size in small:
        parts = [size]
        if size % 2 == 0 and random.random() < 0.8:
            parts = random.choice(([2, size // 2], [size // 2, 2], [1, size]))
        groups.append(list(range(len(large), len(large) + len(parts))))
        large += parts
    splits = random.random() < 0.5
    before, after = (small, large) if splits else (large, small)
    arguments: list[Value] = []
    first = _random_generic(random, "p", before, None, arguments)
    result = Value("r", "f32", after)
    name = "tensor.expand_shape" if splits else "tensor.collapse_shape"
    reshape = Opaque(name, first.results, (result,), str(groups))
    second = _random_generic(random, "c", after, result, arguments)
    return Function("f", arguments, [first, reshape, second], list(second.results))


def _random_generic(
    random: Random, name: str, sizes: list[int], read: Value | None, arguments: list[Value]
) -> Generic:
    rank = len(sizes)
    order = list(range(rank))
    if read is not None:
        random.shuffle(order)
    extents = [sizes[order.index(loop)] for loop in range(rank)]
    ins, items = [], []
    if read is not None:
        ins.append(read)
        items.append(AffineMap(rank, order))
    for number in range(random.randint(1, 2)):
        loops = [loop for loop in range(rank) if random.random() < 0.7]
        if random.random() < 0.3:
            random.shuffle(loops)
        ins.append(Value(f"{name}{number}", "f32", [extents[loop] for loop in loops]))
        items.append(AffineMap(rank, loops))
        arguments.append(ins[-1])
    reduced = {rank - 1} if read is not None and rank > 1 and random.random() < 0.3 else set()
    retained = [loop for loop in range(rank) if loop not in reduced]
    shape = [extents[loop] for loop in retained]
    ops = [ScalarOp("arith.addf", (Arg(0), Arg(len(ins) - 1)), "f32")]
    if random.random() < 0.4:
        ops += [
            ScalarOp(INDEX, (), "index", Dim(random.randrange(rank))),
            ScalarOp("arith.index_cast", (Res(1),), "i64"),
            ScalarOp("arith.sitofp", (Res(2),), "f32"),
            ScalarOp("arith.mulf", (Res(0), Res(3)), "f32"),
        ]
    out = Value(f"{name}_out", "f32", shape, kind="empty")
    if reduced:
        out = Value(f"{name}_out", "f32", shape)
        arguments.append(out)
        ops.append(ScalarOp("arith.addf", (Res(len(ops) - 1), Arg(len(ins))), "f32"))
    kinds = tuple([REDUCTION if loop in reduced else PARALLEL for loop in range(rank)])
    result = Value(f"{name}_made", "f32", shape)
    items.append(AffineMap(rank, retained))
    body = Payload(tuple(ops), (Res(len(ops) - 1),))
    op = Generic(tuple(ins), (out,), tuple(items), kinds, body, (result,), label=name)
    verify(op)
    return op


def test_random_pairs_keep_their_numbers() -> None:
    through = sum(counts(fused(random_function(seed)))[0] == 1 for seed in range(150))
    assert through > 100


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        ("[[0], [1, 2]] output", "[[0], [1]] output", "does not give each axis of tensor<3x4x2xf32>"),
        ("output_shape [3, 4, 2] : tensor<3x8xf32> into tensor<3x4x2xf32>", "output_shape [3, 4, 3] : tensor<3x8xf32> into tensor<3x4x3xf32>", "sizes [4, 3] do not make 8"),
        (": tensor<3x8xf32> into tensor<3x4x2xf32>", ": tensor<3x8xf32> into tensor<3x0x2xf32>", "sizes [0, 2] do not make 8"),
        (": tensor<3x8xf32> into tensor<3x4x2xf32>", ": tensor<3x8xf32> into tensor<3x?x?xf32>", "a size is unknown at one side"),
    ],
)  # fmt: skip
def test_malformed_reshapes_name_line_and_column(old: str, new: str, reason: str) -> None:
    assert old in split()
    with pytest.raises(MlirError) as caught:
        parse(split().replace(old, new, 1))
    assert reason in str(caught.value)
    assert caught.value.line > 4


def test_reshapes_of_rank_0() -> None:
    """They are read, printed and left alone: there is no axis to split or merge."""
    body = "^bb0(%in: f32, %out: f32):\n%r = arith.negf %in : f32\nlinalg.yield %r : f32\n}"
    text = f"""func.func @f(%a: tensor<1x1xf32>, %s: tensor<f32>, %d: tensor<1x1xf32>) -> tensor<1x1xf32> {{
    %c = tensor.collapse_shape %a [] : tensor<1x1xf32> into tensor<f32>
    %n = linalg.generic {{indexing_maps = [affine_map<() -> ()>, affine_map<() -> ()>], iterator_types = []}} ins(%c : tensor<f32>) outs(%s : tensor<f32>) {{
    {body} -> tensor<f32>
    %e = tensor.expand_shape %n [] output_shape [1, 1] : tensor<f32> into tensor<1x1xf32>
    %m = linalg.generic {{indexing_maps = [affine_map<{I2}>, affine_map<{I2}>], iterator_types = ["parallel", "parallel"]}} ins(%e : tensor<1x1xf32>) outs(%d : tensor<1x1xf32>) {{
    {body} -> tensor<1x1xf32>
    return %m : tensor<1x1xf32>
    }}"""
    (function,) = parse(text)
    assert "output_shape [1, 1]" in print_function(function)
    assert counts(fused(function)) == (2, 2)


@pytest.mark.parametrize(
    ("old", "new"), [("tensor<1x1xf32> into", "tensor<2x1xf32> into"), ("a [] :", "a [[0, 1]] :")]
)
def test_malformed_reshapes_of_rank_0(old: str, new: str) -> None:
    text = """func.func @f(%a: tensor<1x1xf32>) -> tensor<f32> {
    %c = tensor.collapse_shape %a [] : tensor<1x1xf32> into tensor<f32>
    return %c : tensor<f32>
    }"""
    parse(text)
    text = text.replace(
        "%a: tensor<1x1xf32>", "%a: tensor<2x1xf32>" if "2x1" in new else "%a: tensor<1x1xf32>"
    )
    with pytest.raises(MlirError, match="does not give each axis"):
        parse(text.replace(old, new))


def test_the_pair_of_reshapes_that_a_fusion_leaves_cancels() -> None:
    """Both operands of a product are reshaped copies: the second fuses, too."""
    i3, i4 = "(d0, d1, d2) -> (d0, d1, d2)", "(d0, d1, d2, d3) -> (d0, d1, d2, d3)"
    wide, narrow = "tensor<2x5x3x4xf32>", "tensor<10x3x4xf32>"

    def copy(ssa: str, source: str, out: str) -> str:
        return f"""%{ssa} = linalg.generic {{indexing_maps = [affine_map<(d0, d1, d2, d3) -> (d1, d0, d2, d3)>, affine_map<{i4}>], iterator_types = ["parallel", "parallel", "parallel", "parallel"]}} ins(%{source} : tensor<5x2x3x4xf32>) outs(%{out} : {wide}) {{
        ^bb0(%in: f32, %out: f32):
        linalg.yield %in : f32
        }} -> {wide}
        %{ssa}c = tensor.collapse_shape %{ssa} [[0, 1], [2], [3]] : {wide} into {narrow}"""

    text = f"""func.func @f(%a: tensor<5x2x3x4xf32>, %b: tensor<5x2x3x4xf32>, %o: {wide}, %p: {wide}, %q: {narrow}) -> {narrow} {{
    {copy("x", "a", "o")}
    {copy("y", "b", "p")}
    %z = linalg.generic {{indexing_maps = [affine_map<{i3}>, affine_map<{i3}>, affine_map<{i3}>], iterator_types = ["parallel", "parallel", "parallel"]}} ins(%xc, %yc : {narrow}, {narrow}) outs(%q : {narrow}) {{
    ^bb0(%l: f32, %r: f32, %out: f32):
    %s = arith.mulf %l, %r : f32
    linalg.yield %s : f32
    }} -> {narrow}
    return %z : {narrow}
    }}"""
    assert counts(fused(parse(text)[0])) == (1, 1)


HEADS = graph(
    "k = Constant<value = int64[4] {0, 0, 4, 2}>()\na = Add(x, b)\nr = Reshape(a, k)\n"
    "t = Transpose<perm=[0,2,1,3]>(r)\ny = Mul(t, c)\nz = Exp(y)",
    "float[n,3,8] x, float[8] b, float[n,4,3,2] c",
    "float[n,4,3,2] z",
)


ROWS = graph(
    "k = Constant<value = int64[4] {0, 16, 4, 3}>()\na = Add(x, b)\nr = Reshape(a, k)\n"
    "t = Transpose<perm=[0,2,3,1]>(r)\ny = Mul(t, c)\nz = Exp(y)",
    "float[n,64,3] x, float[3] b, float[n,4,3,16] c",
    "float[n,4,3,16] z",
)
"""Another axis than the last is split."""


@pytest.mark.parametrize(
    ("text", "companions", "count"), [(ROWS, "", 3), (ROWS, "reshape", 1), (HEADS, "", 1)]
)
def test_a_model_is_fused_through_reshape(text: str, companions: str, count: int) -> None:
    result, report = _run(text, companions)
    nodes = [node.op_type for node in result.graph.node if node.op_type != "Constant"]
    assert len(nodes) == count
    rows, last = ((2, 64, 3), 16) if text is ROWS else ((2, 3, 8), 2)
    random = np.random.default_rng(1)
    feeds = {
        name: random.normal(size=size).astype(np.float32)
        for name, size in (("x", rows), ("b", rows[2:]), ("c", (2, 4, 3, last)))
    }
    for inputs, expected in zip(
        run_runtime(result, feeds), run_runtime(parse_onnx(text), feeds), strict=True
    ):
        np.testing.assert_array_equal(inputs, expected)
    again, _ = _run(result, companions)
    assert [node.op_type for node in again.graph.node if node.op_type != "Constant"] == nodes
    assert report.rejected["not-lowered"] == (count == 3)


def test_a_reshape_that_mixes_axes_is_left_alone_with_a_reason() -> None:
    text = graph(
        "k = Constant<value = int64[2] {6, 4}>()\na = Exp(x)\nr = Reshape(a, k)\nz = Tanh(r)",
        "float[3,8] x",
        "float[6,4] z",
    )
    result, report = _run(text, "reshape")
    assert not result.functions
    assert report.rejected["reshape"] == 1


def _run(text: str | onnx.ModelProto, companions: str) -> tuple[onnx.ModelProto, Any]:
    host = Host(
        HostOptions(vendors=(), enable=(NAME,), settings={f"{NAME}.companions": companions})
    )
    result, report = host.run(parse_onnx(text) if isinstance(text, str) else text)
    onnx.checker.check_model(result)
    return result, next(pass_ for pass_ in report.passes if pass_.name == NAME)
