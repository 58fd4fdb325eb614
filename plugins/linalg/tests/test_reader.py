"""Texts that MLIR refuses, or that gehost does not read: a line, a column and a reason for each."""

from __future__ import annotations

import numpy as np
import pytest

from gehost_linalg import MlirError
from gehost_linalg.mlir import parse, print_function

DIGITS = "9" * 5000
"""More than Python reads as an integer."""

ARGUMENTS = "%a: tensor<4xf32>, %u: tensor<?xf32>, %w: tensor<2x3xf32>, %t: tensor<4xi32>, %s: f32, %i: index, %n: i32"


def refused(text: str, place: str, reason: str) -> None:
    with pytest.raises(MlirError) as caught:
        parse(text)
    shown = str(caught.value)
    assert shown.startswith(f"{place}: "), shown
    assert reason in shown
    line, caret = shown.splitlines()[1:]
    assert len(line) <= 320
    assert len(caret) == min(caught.value.column, 161)


@pytest.mark.parametrize(
    ("statement", "column", "reason"),
    [
        ("%c = arith.constant dense<1.0> : tensor<?xf32>", 23, "known sizes; without it, a scalar type, not tensor<?xf32>"),
        ("%c = arith.constant dense<1.0> : tensor<*xf32>", 23, "not tensor<*xf32>"), ("%c = arith.constant dense<1.0> : f32", 23, "not f32"),
        ("%c = arith.constant 1.0 : tensor<4xf32>", 23, "not tensor<4xf32>"), ("%c = arith.constant 1 : f32", 23, "1 is no f32"),
        ("%c = arith.constant 1", 3, "expected ':' and a type"), ("%c = arith.constant true : i32", 23, "true is no i32"),
        ("%c = arith.constant 0x1FFFFFFFF : f32", 23, "0x1FFFFFFFF is no f32"), ("%c = arith.constant 0x7F800000 : f16", 23, "is no f16"),
        (f"%c = arith.constant {DIGITS} : i32", 23, "does not fit i32"), (f"%c = arith.constant dense<[{DIGITS}]> : tensor<1xi64>", 23, "does not fit i64"),
        ("%d = tensor.dim %a, %n : tensor<4xf32>", 23, "%n is i32, not index"), ("%e = tensor.empty(%s) : tensor<?xf32>", 21, "%s is f32, not index"),
        ("%e = tensor.empty() : tensor<*xf32>", 25, "tensor.empty makes a tensor with a rank, not tensor<*xf32>"), ("%e = tensor.empty() : f32", 25, "not f32"),
        (f"%e = tensor.empty() : tensor<{DIGITS}xf32>", 32, "does not fit 64 bits"),
        ("%f = linalg.fill ins(%a : tensor<4xf32>) outs(%a : tensor<4xf32>) -> tensor<4xf32>", 20, "linalg.fill of tensor<4xf32> with tensor<4xf32>"),
        ("%c = tensor.concat dim(5) %a, %a : (tensor<4xf32>, tensor<4xf32>) -> tensor<8xf32>", 72, "do not make tensor<8xf32> along 5"),
        ("%c = tensor.concat dim(0) %a, %a : (tensor<4xf32>, tensor<4xf32>) -> tensor<9xf32>", 72, "sizes [4, 4] do not make 9"),
        ("%c = tensor.concat dim(0) %a, %t : (tensor<4xf32>, tensor<4xi32>) -> tensor<8xf32>", 72, "do not make"),
        ("%c = tensor.concat dim(0) %a, %w : (tensor<4xf32>, tensor<2x3xf32>) -> tensor<?xf32>", 74, "do not make"),
        (f"%c = tensor.concat dim({DIGITS}) %a, %a : (tensor<4xf32>, tensor<4xf32>) -> tensor<8xf32>", 26, "does not fit 64 bits"),
        ("%p = tensor.extract_slice %a[2] [4] [1] : tensor<4xf32> to tensor<4xf32>", 31, "4 from 2 is beyond tensor<4xf32>"),
        ("%p = tensor.extract_slice %a[0] [2] [1] : tensor<4xf32> to tensor<2xi32>", 62, "sizes [2] of tensor<4xf32> do not make tensor<2xi32>"),
        ("%p = tensor.extract_slice %a[-1] [2] [1] : tensor<4xf32> to tensor<2xf32>", 32, "expected a size, found '-1'"),
        ("%p = tensor.extract_slice %u[0] [%n] [1] : tensor<?xf32> to tensor<?xf32>", 36, "%n is i32, not index"),
        ("%p = tensor.cast %a : tensor<4xf32> to tensor<?xi32>", 42, "tensor<4xf32> is not cast to tensor<?xi32>"), ("%p = tensor.cast %a : tensor<4xf32> to tensor<5xf32>", 42, "is not cast"),
        ("%p = tensor.cast %s : f32 to f32", 32, "f32 is not cast to f32"),
        ("%p = tensor.expand_shape %a [[0, 1]] output_shape [4, 1] : tensor<4xf32> into tensor<2x2xf32>", 81, "sizes [4, 1] of tensor<4xf32> do not make tensor<2x2xf32>"),
        ("%p = tensor.expand_shape %a [[0, 1]] output_shape [2, 2] : tensor<4xf32> into tensor<2x2xi32>", 81, "do not make tensor<2x2xi32>"),
        ("%p = tensor.expand_shape %a [[0, 1]] : tensor<4xf32> into tensor<2x2xf32>", 40, "expected 'output_shape'"),
        ("%p = tensor.collapse_shape %s [] : f32 into tensor<f32>", 33, "does not give each axis"),
        ("%p = arith.minsi %s, %s : f32", 19, "arith.minsi does not compute with f32"), ("%p = arith.mini %s, %s : f32", 8, "operation arith.mini is not known"),
        ("%p:1000000000000 = linalg.fill ins(%s : f32) outs(%a : tensor<4xf32>) -> tensor<4xf32>", 6, "too many results: 1000000000000"),
        (f"%p:{DIGITS} = linalg.fill ins(%s : f32) outs(%a : tensor<4xf32>) -> tensor<4xf32>", 6, "does not fit 64 bits"),
        ("\u00a0%c = arith.constant true", 3, "expected an operation"),
    ],
)  # fmt: skip
def test_statements(statement: str, column: int, reason: str) -> None:
    line = 3 if reason.startswith("expected ':'") else 2  # the next item is at fault
    text = f"func.func @f({ARGUMENTS}) {{\n  {statement}\n  return\n}}\n"
    refused(text, f"line {line}, column {column}", reason)


def generic(line: str, dtype: str = "f32", result: str = "f32") -> str:
    operand, out = f"tensor<4x{dtype}>", f"tensor<4x{result}>"
    maps = ", ".join(["affine_map<(d0) -> (d0)>"] * 2)
    return f"""func.func @f(%a: {operand}, %e: {out}) -> {out} {{
  %r = linalg.generic {{indexing_maps = [{maps}], iterator_types = ["parallel"]}} ins(%a : {operand}) outs(%e : {out}) {{
  ^bb0(%x: {dtype}, %o: {result}):
    {line}
    linalg.yield %z : {result}
  }} -> {out}
  return %r : {out}
}}
"""


CASTS = [
    ("extf", "f64", "f32"), ("extf", "bf16", "f16"), ("truncf", "f32", "f64"), ("trunci", "f32", "i8"), ("sitofp", "f32", "f64"),
    ("fptosi", "i32", "i8"), ("extsi", "i32", "i8"), ("extui", "i8", "index"), ("index_cast", "i32", "i64"), ("bitcast", "i32", "f64"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("line", "reason", "dtype"),
    [
        ("%z = arith.addi %x, %x : f32", "arith.addi does not compute with f32", "f32"), ("%z = arith.addf %x, %x : i32", "arith.addf does not compute with i32", "i32"),
        ("%z = math.exp %x : i32", "math.exp does not compute with i32", "i32"), ("%z = math.absi %x : f32", "math.absi does not compute with f32", "f32"),
        ("%z = arith.cmpi slt, %x, %x : f32", "arith.cmpi does not compute with f32", "f32"), ("%z = arith.cmpf slt, %x, %x : f32", "arith.cmpf has the predicates false, oeq,", "f32"),
        ("%z = arith.select %x, %x, %x : f32", "arith.select of f32, f32, f32, its type is f32", "f32"), (f"%z = linalg.index {DIGITS} : index", "does not fit 64 bits", "f32"),
        ("%z = affine.apply affine_map<()[s0] -> (s0)>(%x)", "affine.apply takes indices", "f32"),
        *[(f"%z = arith.{name} %x : {source} to {target}", f"arith.{name} does not take {source} to {target}", source) for name, source, target in CASTS],
    ],
)  # fmt: skip
def test_payloads(line: str, reason: str, dtype: str) -> None:
    with pytest.raises(MlirError, match=r"^line 4, column") as caught:
        parse(generic(line, dtype))
    assert reason in str(caught.value)


GOOD = generic("%z = math.exp %x : f32")


@pytest.mark.parametrize(
    ("old", "new", "place", "reason"),
    [
        ("(d0) -> (d0)", f"(d0) -> (d0 + {DIGITS})", "line 2, column 66", "does not fit 64 bits"),
        ("(d0) -> (d0)", "(d0) -> (d0 * 9223372036854775807 * 2)", "line 2, column 86", "18446744073709551614 does not fit"),
        ("(d0) -> (d0)", "(d0)[s0] -> (d0)", "line 2, column 41", "an indexing map has no symbols"),
        ("func.func", "#m = affine_map<(d0) -> (d0)>\n#m = affine_map<(d0) -> (d0)>\nfunc.func", "line 2, column 1", "#m is defined twice"),
        ("iterator_types", "indexing_maps = [], iterator_types", "line 2, column 94", "indexing_maps is given twice"),
        ("], iterator_types", "] iterator_types", "line 2, column 93", "expected ',', found 'iterator_types'"),
        ("^bb0", "^0bb", "line 3, column 3", "expected the payload's block"), ("@f", "@f-g", "line 1, column 13", "expected '('"),
        ("%z : f32", "%z, : f32", "line 5, column 22", "expected a value"), ("%x: f32", "%0x: f32", "line 3, column 8", "expected an argument"),
        ("linalg.yield %z : f32", "linalg.yield %z : i32", "line 5, column 23", "yield 0 is f32, not i32"),
        (") -> tensor<4xf32> {\n  %r", ") {\n  %r", "line 7, column 3", "@f returns (tensor<4xf32>), its type has ()"),
        (") -> tensor<4xf32> {\n  %r", ") -> tensor<5xf32> {\n  %r", "line 7, column 3", "its type has (tensor<5xf32>)"),
        (") -> tensor<4xf32> {\n  %r", ") -> (tensor<4xf32>, f32) {\n  %r", "line 7, column 3", "its type has (tensor<4xf32>, f32)"),
        ("return %r : tensor<4xf32>", "return", "line 7, column 3", "@f returns (), its type has (tensor<4xf32>)"),
    ],
)  # fmt: skip
def test_functions_and_maps(old: str, new: str, place: str, reason: str) -> None:
    assert old in GOOD
    refused(GOOD.replace(old, new, 1), place, reason)


def test_an_operand_without_a_rank() -> None:
    text = GOOD.replace("%a: tensor<4xf32>", "%a: tensor<*xf32>").replace(
        "ins(%a : tensor<4xf32>", "ins(%a : tensor<*xf32>"
    )
    refused(text, "line 2, column 125", "an operand has no rank")


def test_symbols_of_affine_apply_are_read() -> None:
    text = generic(
        "%q = linalg.index 0 : index\n    %p = affine.apply #m(%q)[%q]\n    %z = arith.index_cast %p : index to i32",
        "i32", "i32",
    )  # fmt: skip
    (function,) = parse("#m = affine_map<(d0)[s0] -> (d0 + s0 * 2)>\n" + text)
    printed = print_function(function)
    assert "affine.apply affine_map<(d0) -> (d0 * 3)>" in printed
    assert print_function(parse(printed)[0]).count("linalg.index") == 1
    refused(
        "#m = affine_map<(d0)[s0] -> (d0 + s0 * 2)>\n" + text.replace("#m(%q)[%q]", "#m(%q, %q)"),
        "line 6, column 23", "affine.apply of affine_map<(d0, d1) -> (d0 + d1 * 2)> with 2 indices",
    )  # fmt: skip


@pytest.mark.parametrize("text", ["07 : index", "-07 : i32", "dense<07> : tensor<4xi32>"])
def test_a_number_may_begin_with_0(text: str) -> None:
    (function,) = parse(f"func.func @f() {{ %c = arith.constant {text} return }}")
    assert function.name == "f"


def test_a_number_beyond_its_type_is_infinite() -> None:
    text = "func.func @f() -> f16 {\n  %c = arith.constant 100000.0 : f16\n  return %c : f16\n}\n"
    (value,) = parse(text)[0].outputs
    np.testing.assert_array_equal(value.constant, np.float16("inf"))
