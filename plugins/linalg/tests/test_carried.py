"""Operations that fusion only carries through, and texts of jax programs that IREE's tools lowered."""

from __future__ import annotations

from pathlib import Path

import pytest

from gehost_linalg import MlirError
from gehost_linalg.driver import fuse_block
from gehost_linalg.generic import Generic, Opaque
from gehost_linalg.mlir import Function, parse, print_function
from gehost_linalg.mlir.carried import STRIDED

from .oracle import Iree, signatures

TEXTS = Path(__file__).parent / "texts"
ARGUMENTS = (
    "%a: tensor<4x8xf32>, %b: tensor<8x5xf32>, %c: tensor<4x5xf32>, %i: index, %s: f32, "
    "%p: tensor<2x8xf32>, %u: tensor<?x8xf32>"
)


def function(statement: str, result: str) -> str:
    return f"func.func @f({ARGUMENTS}) -> {result} {{\n  {statement}\n  return %r : {result}\n}}\n"


STATEMENTS = [
    ("%r = linalg.matmul ins(%a, %b : tensor<4x8xf32>, tensor<8x5xf32>) outs(%c : tensor<4x5xf32>) -> tensor<4x5xf32>", "tensor<4x5xf32>", "linalg.matmul"),
    ("%r = linalg.matmul {cast = #linalg.type_fn<cast_signed>} ins(%a, %b : tensor<4x8xf32>, tensor<8x5xf32>) outs(%c : tensor<4x5xf32>) -> tensor<4x5xf32>", "tensor<4x5xf32>", "linalg.matmul"),
    ("%r = tensor.extract_slice %a[0, 1] [4, 3] [1, 2] : tensor<4x8xf32> to tensor<4x3xf32>", "tensor<4x3xf32>", STRIDED),
    ("%r = tensor.extract_slice %a[0, 0] [1, 8] [1, 1] : tensor<4x8xf32> to tensor<8xf32>", "tensor<8xf32>", STRIDED),
    ("%r = tensor.extract_slice %a[%i, 0] [2, 8] [1, 1] : tensor<4x8xf32> to tensor<2x8xf32>", "tensor<2x8xf32>", STRIDED),
    ("%r = tensor.insert_slice %p into %a[%i, 0] [2, 8] [1, 1] : tensor<2x8xf32> into tensor<4x8xf32>", "tensor<4x8xf32>", "tensor.insert_slice"),
    ("%r = tensor.extract %a[%i, %i] : tensor<4x8xf32>", "f32", "tensor.extract"),
    ("%r = tensor.pad %a low[1, %i] high[0, 2] {\n  ^bb0(%x: index, %y: index):\n    tensor.yield %s : f32\n  } : tensor<4x8xf32> to tensor<5x?xf32>", "tensor<5x?xf32>", "tensor.pad"),
]  # fmt: skip


@pytest.mark.parametrize(("statement", "result", "name"), STATEMENTS)
def test_a_statement_is_read_and_printed(statement: str, result: str, name: str) -> None:
    (read,) = parse(function(statement, result))
    (op,) = read.ops
    assert (op.name if isinstance(op, Opaque) else op.named and op.named.name) == name
    printed = print_function(read)
    lines = [line.strip() for line in statement.splitlines() if "^bb0" not in line]
    assert all(line in printed for line in lines), printed
    assert print_function(parse(printed)[0]) == printed


@pytest.mark.parametrize(
    ("statement", "result", "reason"),
    [
        ("%r = tensor.extract_slice %a[0, 1] [4, 4] [1, 3] : tensor<4x8xf32> to tensor<4x4xf32>", "tensor<4x4xf32>", "4 from 1 is beyond"),
        ("%r = tensor.extract_slice %a[0, 0] [1, 8] [1, 1] : tensor<4x8xf32> to tensor<4xf32>", "tensor<4xf32>", "do not make"),
        ("%r = tensor.extract %a[%i] : tensor<4x8xf32>", "f32", "has 2 indices"),
        ("%r = tensor.insert_slice %s into %a[0, 0] [1, 1] [1, 1] : f32 into tensor<4x8xf32>", "tensor<4x8xf32>", "is no part of"),
        ("%r = tensor.pad %a low[1, 0] high[0, 2] {\n  ^bb0(%x: index, %y: index):\n    tensor.yield %s : f32\n  } : tensor<4x8xf32> to tensor<5x11xf32>", "tensor<5x11xf32>", "is not padded"),
        ("%r = linalg.matmul ins(%a, %b : tensor<4x8xf32>, tensor<8x5xf32>) outs(%c : tensor<4x5xf32>) -> tensor<4x4xf32>", "tensor<4x4xf32>", "the types of its outs"),
    ],
)  # fmt: skip
def test_what_means_nothing_is_refused(statement: str, result: str, reason: str) -> None:
    with pytest.raises(MlirError, match=reason):
        parse(function(statement, result))


def test_maps_of_a_product_are_written_out() -> None:
    text = """#a = affine_map<(d0, d1, d2) -> (d2, d0)>
#b = affine_map<(d0, d1, d2) -> (d2, d1)>
#c = affine_map<(d0, d1, d2) -> (d0, d1)>
func.func @f(%a: tensor<8x4xf32>, %b: tensor<8x5xf32>, %c: tensor<4x5xf32>) -> tensor<4x5xf32> {
  %r = linalg.matmul indexing_maps = [#a, #b, #c] ins(%a, %b : tensor<8x4xf32>, tensor<8x5xf32>) outs(%c : tensor<4x5xf32>) -> tensor<4x5xf32>
  return %r : tensor<4x5xf32>
}
"""
    printed = print_function(parse(text)[0])
    assert "[affine_map<(d0, d1, d2) -> (d2, d0)>, " in printed
    assert print_function(parse(printed)[0]) == printed


def test_attributes_of_arguments_results_and_modules_are_skipped() -> None:
    text = """module @m attributes {a.b = 1 : i32} {
  func.func @f(%a: tensor<4xf32> {jax.x = "}"}) -> (tensor<4xf32> {jax.result_info = ""}) attributes {c} {
    return %a : tensor<4xf32>
  }
}
"""
    (read,) = parse(text)
    assert [value.type_text for value in read.outputs] == ["tensor<4xf32>"]


def fused(read: Function) -> Function:
    block = fuse_block(read.ops, outputs=read.outputs)
    return Function(read.name, read.arguments, block.ops, block.outputs)


@pytest.mark.parametrize(
    ("name", "before", "after"),
    [("attention", 9, 6), ("conv", 1, 1), ("pad_slice", 1, 1), ("rotary", 8, 4)],
)
def test_texts_of_jax_programs(name: str, before: int, after: int) -> None:
    (read,) = parse((TEXTS / f"{name}.linalg.mlir").read_text(encoding="utf-8"))
    result = fused(read)
    generics = [
        sum(isinstance(op, Generic) and op.named is None for op in item.ops)
        for item in (read, result)
    ]
    assert generics == [before, after]
    printed = print_function(result)
    assert print_function(parse(printed)[0]) == printed


# MLIR makes Generics of attention's products, to move them over the reshapes beside them
@pytest.mark.parametrize("name", ["conv", "pad_slice", "rotary"])
def test_mlir_fuses_them_to_the_same(name: str) -> None:
    pytest.importorskip("iree.compiler")
    text, iree = (TEXTS / f"{name}.linalg.mlir").read_text(encoding="utf-8"), Iree()
    (read,) = parse(text)
    iree.verify(print_function(fused(read)))
    (theirs,) = iree.fused_functions(text)
    assert signatures(fused(read)) == signatures(theirs)


@pytest.mark.parametrize(
    ("dtype", "value"), [("i3", "2"), ("i128", "2"), ("f8E4M3FN", "2.000000e+00"), ("f80", "2.0")]
)
@pytest.mark.parametrize("is_generic", [True, False])
def test_constants_of_a_payload_whose_type_has_no_numbers_here(
    dtype: str, value: str, is_generic: bool
) -> None:
    constant = (
        f'"arith.constant"() <{{value = {value} : {dtype}}}> : () -> {dtype}'
        if is_generic
        else f"arith.constant {value} : {dtype}"
    )
    multiply = "arith.mulf" if dtype.startswith("f") else "arith.muli"
    tensor = f"tensor<4x{dtype}>"
    text = f"""#map = affine_map<(d0) -> (d0)>
    func.func @f(%a: {tensor}) -> {tensor} {{
      %0 = tensor.empty() : {tensor}
      %1 = linalg.generic {{indexing_maps = [#map, #map], iterator_types = ["parallel"]}}
        ins(%a : {tensor}) outs(%0 : {tensor}) {{
      ^bb0(%in: {dtype}, %out: {dtype}):
        %c = {constant}
        %m = {multiply} %in, %c : {dtype}
        linalg.yield %m : {dtype}
      }} -> {tensor}
      return %1 : {tensor}
    }}"""
    (read,) = parse(text)
    again = print_function(read)
    assert constant in again
    assert print_function(parse(again)[0]) == again
