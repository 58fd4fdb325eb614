"""Companion patterns, each alone."""

from __future__ import annotations

import numpy as np
import pytest

from gehost_linalg.companions import COMPANIONS
from gehost_linalg.driver import fuse_all
from gehost_linalg.generic import Arg, Generic, Literal, Opaque
from gehost_linalg.interpret import interpret
from gehost_linalg.mlir import Function, parse

from .conftest import maps, payload

I1, I2 = "affine_map<(d0) -> (d0)>", "affine_map<(d0, d1) -> (d0, d1)>"


def tidied(text: str, *companions: str) -> tuple[Function, list[Generic | Opaque]]:
    """What some companions alone make of a text; the numbers stay what they were."""
    function = parse(text)[0]
    ops = fuse_all(
        function.ops, lambda _: "not now", outputs=function.outputs, companions=companions
    )
    inputs = {
        value: np.arange(1, 1 + int(np.prod(value.shape or ())), dtype=np.float32).reshape(
            value.shape or ()
        )
        for value in function.arguments
    }
    for argument, expected in zip(
        interpret(ops, inputs, function.outputs) if _kept(function, ops) else (),
        interpret(function.ops, inputs, function.outputs),
        strict=False,
    ):
        np.testing.assert_array_equal(argument, expected)
    return function, ops


def _kept(function: Function, ops: list[Generic | Opaque]) -> bool:
    return {value for op in ops for value in op.results} >= set(function.outputs)


def one(
    name: str,
    signature: str,
    ins: str,
    maps_: str,
    outs: str,
    body: str,
    result: str,
    head: str = "",
) -> str:
    return f"""func.func @f({signature}) -> {result} {{
  {head}
  %r = linalg.generic {{indexing_maps = [{maps_}], iterator_types = ["{name}"]}} {ins} outs({outs}) {{
  {body}
  }} -> {result}
  return %r : {result}
}}"""


V = "tensor<4xf32>"


def test_fold_fill_reads_the_scalar_and_the_fill_still_gives_the_size() -> None:
    head = f"%e = tensor.empty() : {V}\n  %k = arith.constant 2.5 : f32\n  %f = linalg.fill ins(%k : f32) outs(%e : {V}) -> {V}"
    body = "^bb0(%x: f32, %y: f32, %o: f32):\n    %s = arith.mulf %x, %y : f32\n    linalg.yield %s : f32"
    text = one(
        "parallel",
        f"%a: {V}",
        f"ins(%a, %f : {V}, {V})",
        f"{I1}, {I1}, {I1}",
        f"%e : {V}",
        body,
        V,
        head,
    )
    _, (op,) = tidied(text, "fold-fill")
    assert isinstance(op, Generic)
    assert (len(op.ins), op.payload.reads) == (2, {0})
    _, (op,) = tidied(text, "fold-fill", "dedup")
    assert isinstance(op, Generic)
    assert len(op.ins) == 1


def test_fold_fill_of_a_scalar_argument() -> None:
    head = f"%e = tensor.empty() : {V}\n  %f = linalg.fill ins(%k : f32) outs(%e : {V}) -> {V}"
    body = "^bb0(%x: f32, %y: f32, %o: f32):\n    %s = arith.mulf %x, %y : f32\n    linalg.yield %s : f32"
    text = one(
        "parallel",
        f"%a: {V}, %k: f32",
        f"ins(%a, %f : {V}, {V})",
        f"{I1}, {I1}, {I1}",
        f"%e : {V}",
        body,
        V,
        head,
    )
    function, (op,) = tidied(text, "fold-fill", "dedup")
    assert isinstance(op, Generic)
    assert function.arguments[1] in op.payload.ops[0].operands


def test_fold_splat_stays_where_it_alone_gives_a_size() -> None:
    head = f"%k = arith.constant dense<42.0> : {V}"
    body = "^bb0(%x: f32, %o: f32):\n    %s = arith.addf %o, %x : f32\n    linalg.yield %s : f32"
    text = one(
        "reduction",
        "%acc: tensor<f32>",
        f"ins(%k : {V})",
        f"{I1}, affine_map<(d0) -> ()>",
        "%acc : tensor<f32>",
        body,
        "tensor<f32>",
        head,
    )
    _, (op,) = tidied(text, "fold-splat")
    assert isinstance(op, Generic)
    assert maps(op) == ["d0", ""]


def test_an_out_that_is_only_a_shape_is_no_dependency() -> None:
    body = "^bb0(%x: f32, %o: f32):\n    %s = math.exp %x : f32\n    linalg.yield %s : f32"
    text = one(
        "parallel", f"%a: {V}, %b: {V}", f"ins(%a : {V})", f"{I1}, {I1}", f"%b : {V}", body, V
    )
    _, (op,) = tidied(text, "outs-dependency")
    assert isinstance(op, Generic)
    assert op.outs[0].kind == "empty"


def test_dedup_merges_equal_operands_and_drops_what_is_not_read() -> None:
    body = """^bb0(%x: f32, %y: f32, %z: f32, %o: f32):
    %s = arith.mulf %x, %y : f32
    linalg.yield %s : f32"""
    text = one(
        "parallel",
        f"%a: {V}, %b: {V}",
        f"ins(%a, %a, %b : {V}, {V}, {V})",
        f"{I1}, {I1}, {I1}, {I1}",
        f"%b : {V}",
        body,
        V,
    )
    _, (op,) = tidied(text, "dedup")
    assert isinstance(op, Generic)
    assert [value.name for value in op.ins] == ["a"]
    assert len(set(op.payload.ops[0].operands)) == 1


def test_dedup_merges_equal_results() -> None:
    text = f"""func.func @f(%a: {V}) -> ({V}, {V}) {{
  %e = tensor.empty() : {V}
  %r:2 = linalg.generic {{indexing_maps = [{I1}, {I1}, {I1}], iterator_types = ["parallel"]}} ins(%a : {V}) outs(%e, %e : {V}, {V}) {{
  ^bb0(%x: f32, %o: f32, %p: f32):
    %s = math.exp %x : f32
    linalg.yield %s, %s : f32, f32
  }} -> ({V}, {V})
  return %r#0, %r#1 : {V}, {V}
}}"""
    _, (op,) = tidied(text, "dedup")
    assert len(op.results) == 1


def test_an_unused_cycle_goes_with_dedup() -> None:
    text = f"""func.func @f(%a: {V}, %o: {V}) -> {V} {{
  %e = tensor.empty() : {V}
  %r:2 = linalg.generic {{indexing_maps = [{I1}, {I1}, {I1}], iterator_types = ["parallel"]}} ins(%a : {V}) outs(%e, %o : {V}, {V}) {{
  ^bb0(%x: f32, %y: f32, %z: f32):
    %s = math.exp %x : f32
    %t = arith.addf %z, %s : f32
    linalg.yield %s, %t : f32, f32
  }} -> ({V}, {V})
  return %r#0 : {V}
}}"""
    _, (op,) = tidied(text, "unused-cycle")
    assert isinstance(op, Generic)
    assert (len(op.results), payload(op)) == (2, ["exp"])
    _, (op,) = tidied(text, "unused-cycle", "dedup")
    assert len(op.results) == 1
    _, (op,) = tidied(text, "dedup")
    assert len(op.results) == 2


def test_a_transposed_constant_is_folded() -> None:
    text = """func.func @f(%b: tensor<3x2xf32>) -> tensor<3x2xf32> {
  %k = arith.constant dense<[[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]]> : tensor<2x3xf32>
  %e = tensor.empty() : tensor<3x2xf32>
  %t = linalg.generic {indexing_maps = [affine_map<(d0, d1) -> (d1, d0)>, affine_map<(d0, d1) -> (d0, d1)>],
    iterator_types = ["parallel", "parallel"]} ins(%k : tensor<2x3xf32>) outs(%e : tensor<3x2xf32>) {
  ^bb0(%x: f32, %o: f32):
    linalg.yield %x : f32
  } -> tensor<3x2xf32>
  %r = linalg.generic {indexing_maps = [affine_map<(d0, d1) -> (d0, d1)>, affine_map<(d0, d1) -> (d0, d1)>,
    affine_map<(d0, d1) -> (d0, d1)>], iterator_types = ["parallel", "parallel"]}
    ins(%t, %b : tensor<3x2xf32>, tensor<3x2xf32>) outs(%e : tensor<3x2xf32>) {
  ^bb0(%x: f32, %y: f32, %o: f32):
    %s = arith.addf %x, %y : f32
    linalg.yield %s : f32
  } -> tensor<3x2xf32>
  return %r : tensor<3x2xf32>
}"""
    _, (op,) = tidied(text, "fold-transpose")
    assert isinstance(op, Generic)
    assert op.ins[0].constant is not None
    assert op.ins[0].constant.tolist() == [[1, 4], [2, 5], [3, 6]]


CONCAT = f"""func.func @f(%a: {V}, %b: tensor<2xf32>, %c: {V}, %d: tensor<2xf32>) -> tensor<6xf32> {{
  %p = tensor.concat dim(0) %a, %b : ({V}, tensor<2xf32>) -> tensor<6xf32>
  %q = tensor.concat dim(0) %c, %d : ({V}, tensor<2xf32>) -> tensor<6xf32>
  %e = tensor.empty() : tensor<6xf32>
  %r = linalg.generic {{indexing_maps = [{I1}, {I1}, {I1}], iterator_types = ["parallel"]}}
    ins(%p, %q : tensor<6xf32>, tensor<6xf32>) outs(%e : tensor<6xf32>) {{
  ^bb0(%x: f32, %y: f32, %o: f32):
    %s = arith.mulf %x, %y : f32
    linalg.yield %s : f32
  }} -> tensor<6xf32>
  return %r : tensor<6xf32>
}}"""


def test_concats_of_equal_parts_are_split() -> None:
    _, ops = tidied(CONCAT, "split-concat")
    assert [op.name if isinstance(op, Opaque) else payload(op) for op in ops] == [
        ["mulf"],
        ["mulf"],
        "tensor.concat",
    ]


def test_concats_of_other_parts_are_not() -> None:
    other = CONCAT.replace(f"%c: {V}, %d: tensor<2xf32>", f"%c: tensor<2xf32>, %d: {V}").replace(
        f"%c, %d : ({V}, tensor<2xf32>)", f"%c, %d : (tensor<2xf32>, {V})"
    )
    _, ops = tidied(other, "split-concat")
    assert [type(op).__name__ for op in ops] == ["Opaque", "Opaque", "Generic"]


def test_a_copy_is_erased() -> None:
    body = "^bb0(%x: f32, %o: f32):\n    linalg.yield %x : f32"
    text = one(
        "parallel", f"%a: {V}, %b: {V}", f"ins(%a : {V})", f"{I1}, {I1}", f"%b : {V}", body, V
    )
    function = parse(text)[0]
    assert fuse_all(function.ops, outputs=function.outputs, companions=("erase-copy",)) == []


@pytest.mark.parametrize("name", COMPANIONS)
def test_each_can_be_left_out(name: str) -> None:
    rest = [item for item in COMPANIONS if item != name]
    function, ops = tidied(CONCAT, *rest)
    assert ops
    assert function.outputs


@pytest.mark.parametrize(
    ("body", "names"),
    [
        (
            "%c = complex.create %x, %y : complex<f32>\n%r = complex.re %c : complex<f32>\n%i = complex.im %c : complex<f32>\n%s = arith.subf %i, %r : f32",
            ["arith.subf"],
        ),
        ("%c = complex.create %x, %y : complex<f32>\n%s = complex.abs %c : complex<f32>", None),
    ],
)
def test_parts_of_a_complex_number_are_folded(body: str, names: list[str] | None) -> None:
    text = one(
        "parallel",
        f"%a: {V}, %b: {V}, %e: {V}",
        f"ins(%a, %b : {V}, {V})",
        f"{I1}, {I1}, {I1}",
        f"%e : {V}",
        f"^bb0(%x: f32, %y: f32, %o: f32):\n{body}\nlinalg.yield %s : f32",
        V,
    )
    function = parse(text)[0]
    (op,) = fuse_all(function.ops, outputs=function.outputs, companions=("fold-complex",))
    assert isinstance(op, Generic)
    results = [item.name for item in op.payload.ops]
    assert results == (names or ["complex.create", "complex.abs"])
    if names:
        assert [ref.index for ref in op.payload.ops[0].operands if isinstance(ref, Arg)] == [1, 0]


SCALARS = [
    ("arith.addi %i, %c0", "%i"), ("arith.addi %c0, %i", "%i"), ("arith.subi %i, %i", "0"),
    ("arith.muli %i, %c0", "0"), ("arith.muli %c1, %i", "%i"), ("arith.andi %i, %cm", "%i"),
    ("arith.andi %c0, %i", "0"), ("arith.ori %i, %cm", "-1"), ("arith.xori %i, %i", "0"),
    ("arith.floordivsi %i, %c1", "%i"), ("arith.divui %i, %i", "1"), ("arith.remsi %i, %c1", "0"),
    ("arith.divsi %c5, %cm", "-5"), ("arith.divsi %c5, %c0", None), ("arith.divsi %cl, %cm", None),
    ("arith.ceildivsi %c0, %i", "0"), ("arith.shli %i, %c0", "%i"), ("arith.shrui %c0, %i", "0"), ("arith.shrsi %i, %i", "0"), ("arith.remui %c0, %i", "0"),
    ("arith.divsi %c0, %c0", "0"), ("arith.ceildivui %c0, %c0", "0"), ("arith.divui %c0, %i", "0"),
    ("arith.shrui %c0, %cm", "0"), ("arith.shli %c0, %cm", "0"), ("arith.shrsi %cm, %i", "-1"),
    ("arith.shli %c1, %c5", "32"), ("arith.shli %c1, %cm", None), ("arith.maxsi %i, %cl", "%i"),
    ("arith.minui %i, %c0", "0"), ("arith.minsi %i, %i", "%i"), ("arith.maxui %i, %c1", None),
    ("arith.select %t, %i, %c1", "%i"), ("arith.select %b, %i, %i", "%i"),
]  # fmt: skip


@pytest.mark.parametrize(("operation", "expected"), SCALARS)
def test_scalars_are_folded(operation: str, expected: str | None) -> None:
    kind = "i1, i32" if "select" in operation else "i32"
    _check_folded(operation, kind.rpartition(" ")[2], expected)


FLOATS = [
    ("arith.addf %f, %n0", "%f"), ("arith.addf %f, %f0", None), ("arith.subf %f, %f0", "%f"),
    ("arith.subf %f, %n0", None), ("arith.mulf %f1, %f", "%f"), ("arith.mulf %f, %f0", None),
    ("arith.divf %f, %f1", "%f"), ("arith.subf %f, %f", None), ("arith.maximumf %f, %f", "%f"),
    ("arith.addf %f1, %f1", "2.0"), ("arith.divf %f1, %f0", "inf"),
]  # fmt: skip


@pytest.mark.parametrize(("operation", "expected"), FLOATS)
def test_floats_are_folded_where_each_number_stays(operation: str, expected: str | None) -> None:
    _check_folded(operation, "f32", expected)


TRUTHS = [
    ("arith.cmpi ne, %c0, %c0 : i32", "False"), ("arith.cmpi sle, %i, %i : i32", "True"),
    ("arith.cmpi ult, %i, %i : i32", "False"), ("arith.cmpi ult, %c1, %cm : i32", "True"),
    ("arith.cmpi slt, %c1, %i : i32", None), ("arith.cmpf oeq, %f, %f : f32", None),
    ("arith.cmpf olt, %f0, %f1 : f32", "True"), ("arith.select %b, %t, %u : i1", "%b"),
    ("arith.select %b, %u, %t : i1", None), ("arith.xori %b, %b : i1", "False"),
    ("arith.cmpi ne, %b, %u : i1", "%b"), ("arith.cmpi eq, %t, %b : i1", "%b"),
    ("arith.cmpi eq, %b, %u : i1", None),
    ("arith.andi %b, %t : i1", "%b"), ("arith.trunci %c5 : i32 to i1", "True"),
]  # fmt: skip


@pytest.mark.parametrize(("operation", "expected"), TRUTHS)
def test_truth_values_are_folded(operation: str, expected: str | None) -> None:
    _check_folded(operation, "i1", expected)


def _check_folded(operation: str, kind: str, expected: str | None) -> None:
    types = ["i32", "f32", "i1", kind]
    typed = operation if " : " in operation else f"{operation} : {kind}"
    maps = ", ".join(["affine_map<(d0) -> (d0)>"] * 4)
    text = f"""func.func @f(%a: tensor<4xi32>, %d: tensor<4xf32>, %m: tensor<4xi1>, %e: tensor<4x{kind}>) -> tensor<4x{kind}> {{
  %c0 = arith.constant 0 : i32
  %c1 = arith.constant 1 : i32
  %c5 = arith.constant 5 : i32
  %cm = arith.constant -1 : i32
  %cl = arith.constant -2147483648 : i32
  %f0 = arith.constant 0.0 : f32
  %n0 = arith.constant -0.0 : f32
  %f1 = arith.constant 1.0 : f32
  %t = arith.constant true
  %u = arith.constant false
  %x = linalg.generic {{indexing_maps = [{maps}], iterator_types = ["parallel"]}} ins(%a, %d, %m : tensor<4xi32>, tensor<4xf32>, tensor<4xi1>) outs(%e : tensor<4x{kind}>) {{
  ^bb0(%i: i32, %f: f32, %b: i1, %o: {types[-1]}):
    %r = {typed}
    linalg.yield %r : {kind}
  }} -> tensor<4x{kind}>
  return %x : tensor<4x{kind}>
}}
"""
    function = parse(text)[0]
    (op,) = fuse_all(function.ops, outputs=function.outputs, companions=("fold-scalars",))
    assert isinstance(op, Generic)
    (result,) = op.payload.yields
    names = ["%i", "%f", "%b"]
    shown = (
        names[result.index]
        if isinstance(result, Arg)
        else str(result.value)
        if isinstance(result, Literal)
        else None
    )
    assert shown == expected
