"""MLIR text, printed and read back; what is malformed."""

from __future__ import annotations

import numpy as np
import pytest

from gehost_linalg import MlirError
from gehost_linalg.driver import fuse_block
from gehost_linalg.generic import Generic, GenericError, Literal, Value
from gehost_linalg.mlir import Function, literal_text, parse, print_function, print_generic

from .conftest import CASES, Case
from .dags import random_function
from .oracle import signatures


@pytest.mark.parametrize("name", sorted(path.stem for path in CASES.glob("*.mlir")))
def test_every_case_is_printed_as_it_is_read(name: str) -> None:
    function = Case(name).function
    again = parse(print_function(function))[0]
    assert signatures(again) == signatures(function)
    assert [value.type_text for value in again.outputs] == [
        value.type_text for value in function.outputs
    ]
    assert print_function(parse(print_function(again))[0]) == print_function(again)


def test_random_functions_and_their_fusions_are_printed_and_read() -> None:
    for seed in range(40):
        function = random_function(seed)
        block = fuse_block(function.ops, outputs=function.outputs)
        for item in (function, Function("g", function.arguments, block.ops, block.outputs)):
            assert signatures(parse(print_function(item))[0]) == signatures(item)


def test_a_generic_alone_is_a_function_of_what_it_reads() -> None:
    op = Case("two_scalars").one()
    function = parse(print_generic(op))[0]
    assert [value.type_text for value in function.arguments] == ["tensor<4x4xf32>", "f32", "f32"]


@pytest.mark.parametrize(
    ("literal", "text"),
    [
        (Literal(42.0, "f32"), "42.0"), (Literal(2.0**100, "f32"), "1.2676506002282294e+30"), (Literal(-1.5e-7, "f64"), "-1.5e-07"), (Literal(True, "i1"), "true"),
        (Literal(-3, "i64"), "-3"), (Literal(float("inf"), "f32"), "0x7F800000"), (Literal(float("-inf"), "f16"), "0xFC00"),
        (Literal(float("nan"), "bf16"), "0x7FC0"), (Literal(float("inf"), "f64"), "0x7FF0000000000000"), (Literal(-0.0, "f32"), "-0.0"),
    ],
)  # fmt: skip
def test_constants(literal: Literal, text: str) -> None:
    assert literal_text(literal) == text
    typed = "" if literal.dtype == "i1" else f" : {literal.dtype}"
    read = parse(
        f"func.func @f() -> {literal.dtype} {{\n %c = arith.constant {text}{typed}\n return %c : {literal.dtype}\n}}"
    )
    assert read[0].outputs[0].splat == literal


def test_dense_constants_keep_their_elements() -> None:
    text = "func.func @f() -> tensor<2x2xi64> {\n %c = arith.constant dense<[[1, 2], [3, 4]]> : tensor<2x2xi64>\n return %c : tensor<2x2xi64>\n}"
    (value,) = parse(text)[0].outputs
    np.testing.assert_array_equal(value.constant, [[1, 2], [3, 4]])
    assert parse(print_function(parse(text)[0]))[0].outputs[0].constant.tolist() == [[1, 2], [3, 4]]


def test_aliases_dims_fills_and_modules_are_read() -> None:
    text = """// a comment
#map = affine_map<(d0) -> (d0)>
module {
  func.func @f(%a: tensor<?xf32>) -> tensor<?xf32> {
    %c0 = arith.constant 0 : index
    %d = tensor.dim %a, %c0 : tensor<?xf32>
    %e = tensor.empty(%d) : tensor<?xf32>
    %z = arith.constant 1.0 : f32
    %f = linalg.fill ins(%z : f32) outs(%e : tensor<?xf32>) -> tensor<?xf32>
    %r = linalg.generic {indexing_maps = [#map, #map, #map], iterator_types = ["parallel"]}
      ins(%a, %f : tensor<?xf32>, tensor<?xf32>) outs(%e : tensor<?xf32>) {
    ^bb0(%x: f32, %y: f32, %o: f32):
      %i = linalg.index 0 : index
      %j = affine.apply affine_map<(d0) -> (d0 * 2)>(%i)
      %k = arith.index_cast %j : index to i64
      %l = arith.sitofp %k : i64 to f32
      %s = arith.addf %x, %l : f32
      linalg.yield %s : f32
    } -> tensor<?xf32>
    return %r : tensor<?xf32>
  }
}"""
    (function,) = parse(text)
    op = function.ops[-1]
    assert isinstance(op, Generic)
    assert [str(index) for index in op.payload.indices] == ["d0 * 2"]
    assert op.ins[1].kind == "fill"
    assert signatures(parse(print_function(function))[0]) == signatures(function)


CONSTANT = "func.func @f() -> {0} {{\n  %c = arith.constant {1} : {0}\n  return %c : {0}\n}}\n"


@pytest.mark.parametrize(
    ("dtype", "text", "value"),
    [
        ("i8", "200", -56), ("i32", "4294967295", -1), ("i64", "18446744073709551615", -1),
        ("i8", "-128", -128), ("index", "7", 7), ("i1", "1", True), ("i8", "0xFF", -1),
    ],
)  # fmt: skip
def test_integers_are_read_as_their_bits(dtype: str, text: str, value: int) -> None:
    (function,) = parse(CONSTANT.format(dtype, text))
    (constant,) = function.outputs
    assert constant.constant is not None
    assert constant.constant.item() == value


@pytest.mark.parametrize(
    ("dtype", "text"),
    [("i8", "300"), ("i8", "-129"), ("i1", "2"), ("index", "1" + "0" * 21), ("i32", "9" * 5000)],
)
def test_an_integer_that_does_not_fit_has_its_place(dtype: str, text: str) -> None:
    with pytest.raises(MlirError, match=f"line 2, column [0-9]+: [-0-9]+ does not fit {dtype}"):
        parse(CONSTANT.format(dtype, text))


GOOD = (CASES / "add_mul.mlir").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("old", "new", "line", "reason"),
    [
        ("arith.addf", "arith.addg", 5, "operation arith.addg is not known"),
        ("%x0, %x1", "%x0, %x9", 5, "%x9 is not defined above"),
        ("tensor<4x4xf32>)", "tensor<4x4xq32>)", 1, "q32 is no element type"),
        ("(d0, d1)>", "(d0, d2)>", 3, "'d2' is not a loop of this map"),
        ("return %1", "return %7", 13, "%7 is not defined above"),
        ('"parallel", "parallel"', '"parallel"', 3, "has 2 dims, the Generic 1 loops"),
        ('"parallel", "parallel"', '"parallel", "vector"', 3, "iterator types are parallel or reduction"),
        ("ins(%a, %b : tensor<4x4xf32>", "ins(%a, %b : tensor<4x5xf32>", 3, "%a is tensor<4x4xf32>, not tensor<4x5xf32>"),
        ("^bb0(%x0: f32, %x1: f32", "^bb0(%x0: f32, %x1: i32", 4, "argument 1 of the payload is i32, its operand has f32"),
        ("%e = tensor.empty()", "%e = tensor.full()", 2, "operation tensor.full is not known"),
        ("linalg.yield %r : f32\n  }", "linalg.yield : f32\n  }", 6, "expected '}'"),
        ("indexing_maps = [", "indexing_maps = [#m, ", 3, "map #m is not defined above"),
        ("return %1 : tensor<4x4xf32>\n}", "return %1 : tensor<4x4xf32>", 14, "expected '}', found the end of the text"),
        ("%0 = linalg", "%0:2 = linalg", 3, "linalg.generic has 1 results, 2 are named"),
        ("%0 = linalg", "%a = linalg", 3, "%a is defined twice"),
        ("arith.addf %x0, %x1 : f32", "arith.addi %x0, %x1 : i32", 5, "arith.addi of f32, f32, its type is i32"),
    ],
)  # fmt: skip
def test_malformed_texts_name_line_and_column_with_a_caret(
    old: str, new: str, line: int, reason: str
) -> None:
    assert old in GOOD
    with pytest.raises(MlirError) as caught:
        parse(GOOD.replace(old, new, 1))
    assert reason in str(caught.value)
    assert caught.value.line == line
    _, shown, caret = str(caught.value).splitlines()
    assert len(caret) == min(caught.value.column, 161)
    assert shown in GOOD.replace(old, new, 1)


def test_no_damage_ends_in_another_exception() -> None:
    for position in range(0, len(GOOD), 3):
        for damaged in (
            GOOD[:position] + GOOD[position + 1 :],
            GOOD[:position] + "}" + GOOD[position:],
            GOOD[:position],
        ):
            try:
                parse(damaged)
            except MlirError:
                continue


def test_an_unknown_size_is_an_error() -> None:
    from gehost_linalg.generic import Arg, Payload

    out = Value("o", "f32", (None,), kind="empty")
    op = Generic.of(
        [Value("s", "f32", ())],
        [out],
        ["affine_map<(d0) -> ()>", "affine_map<(d0) -> (d0)>"],
        ["parallel"],
        Payload((), (Arg(0),)),
    )
    with pytest.raises(GenericError, match="size of axis 0 is unknown: %o"):
        print_generic(op)


PLAIN = """#map = affine_map<(d0, d1) -> (d0, d1)>
#kinds = ["parallel", "parallel"]
!t = tensor<4x8xf32>
module {
  util.global private @g = dense<1.0> : tensor<2xf32>
  func.func @f(%a: !t, %i: index) -> tensor<2x8xf32> {
    %e = tensor.empty() : tensor<2x8xf32>
    %x = my.op %a {n = 1 : i32} : tensor<4x8xf32> -> tensor<4x8xf32>
    %s = "tensor.extract_slice"(%x, %i) <{operandSegmentSizes = array<i32: 1, 1, 0, 0>, static_offsets = array<i64: -9223372036854775808, 0>, static_sizes = array<i64: 2, 8>, static_strides = array<i64: 1, 1>}> : (tensor<4x8xf32>, index) -> tensor<2x8xf32>
    %y = "linalg.generic"(%s, %e) <{indexing_maps = [#map, #map], iterator_types = [#linalg.iterator_type<parallel>, #linalg.iterator_type<parallel>], operandSegmentSizes = array<i32: 1, 1>}> ({
    ^bb0(%l: f32, %o: f32):
      %p = "my.scalar"(%l) : (f32) -> f32
      "linalg.yield"(%p) : (f32) -> ()
    }) : (tensor<2x8xf32>, tensor<2x8xf32>) -> tensor<2x8xf32>
    return %y : tensor<2x8xf32>
  }
}
"""
SPACED = """// a note: "module"
#map // of both
= affine_map
<( d0,d1)->(d0, d1 )> #kinds=[ "parallel",
"parallel"] !t =tensor< 4x8xf32 >
module{
  util.global private @g = dense<1.0> :
    tensor<2xf32>
  func.func @f( %a:!t,%i // an index
:index)->tensor<2x8xf32>{ %e = tensor.empty ( ):tensor<2x8xf32> %x = my.op %a {n = 1 : i32} :
tensor<4x8xf32> -> tensor<4x8xf32>
%s="tensor.extract_slice" (%x,%i)< // properties
{operandSegmentSizes = array
<i32 :1,1, 0, 0>, static_offsets=array< i64:-9223372036854775808, 0>,static_sizes
= array<i64:2,8>, static_strides = array<i64 : 1, 1 >} >:( tensor<4x8xf32>,index )->tensor<2x8xf32> %y
= "linalg.generic"(%s,%e)<{indexing_maps=[ #map,#map ], iterator_types = [#linalg.iterator_type< parallel>,
#linalg.iterator_type<parallel >], operandSegmentSizes = array<i32:1,1>}> ( { ^bb0 ( %l:f32,%o : f32 ):
%p="my.scalar"(%l):(f32)->f32 "linalg.yield"(%p)
:(f32)->() } ) : (tensor<2x8xf32>,tensor<2x8xf32>)->
tensor<2x8xf32> return %y:tensor<2x8xf32>}}"""


def test_blanks_and_comments_may_stand_anywhere() -> None:
    plain, spaced = (print_function(parse(text)[0]) for text in (PLAIN, SPACED))
    assert "".join(spaced.split()) == "".join(plain.split())
