"""Texts as compilers print them: generic form, regions, calls, locations, aliases, other dialects."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from gehost_linalg import MlirError
from gehost_linalg.driver import MLIR_COMPANIONS, fuse_block
from gehost_linalg.generic import Generic, Opaque
from gehost_linalg.mlir import Function, parse, print_function

from .oracle import Iree, signatures

TEXTS = Path(__file__).parent / "texts"

MAP = "affine_map<(d0) -> (d0)>"
NEGATE = f"""%e = tensor.empty() : tensor<4xf32>
  %x = linalg.generic {{indexing_maps = [{MAP}, {MAP}], iterator_types = ["parallel"]}} ins(%a : tensor<4xf32>) outs(%e : tensor<4xf32>) {{
  ^bb0(%in: f32, %out: f32):
    %neg = arith.negf %in : f32
    linalg.yield %neg : f32
  }} -> tensor<4xf32>
"""


def fused(read: Function) -> Function:
    block = fuse_block(read.ops, outputs=read.outputs, companions=MLIR_COMPANIONS)
    return Function(read.name, read.arguments, block.ops, block.outputs)


def generics(function: Function) -> int:
    return sum(isinstance(op, Generic) and op.named is None for op in function.ops)


def again(text: str) -> str:
    """Read, printed, read and printed: the two texts are equal."""
    printed = "\n".join(map(print_function, parse(text)))
    assert "\n".join(map(print_function, parse(printed))) == printed
    return printed


# -- texts of jax programs; the counts are those of iree-opt --linalg-fuse-elementwise-ops

COUNTS = {
    "attention.linalg": (9, 6),
    "attention.generic": (9, 6),
    "batchmean_norm.linalg": (20, 5),
    "conv.linalg": (1, 1),
    "embed.linalg": (4, 1),
    "pad_slice.linalg": (1, 1),
    "rotary.linalg": (8, 4),
    "scan_loop.linalg": (2, 1),
}


@pytest.mark.parametrize("name", COUNTS)
def test_texts_of_jax_programs_have_as_many_generics_as_mlir_leaves(name: str) -> None:
    text = (TEXTS / f"{name}.mlir").read_text(encoding="utf-8")
    (read,) = parse(text)
    result = fused(read)
    assert (generics(read), generics(result)) == COUNTS[name]
    again(print_function(result))


@pytest.mark.parametrize("name", COUNTS)
def test_mlir_fuses_the_same_texts_to_the_same(name: str) -> None:
    pytest.importorskip("iree.compiler")
    text, iree = (TEXTS / f"{name}.mlir").read_text(encoding="utf-8"), Iree()
    (read,) = parse(text)
    iree.verify(print_function(fused(read)))
    (theirs,) = iree.fused_functions(text)
    ours = fused(read)
    assert signatures(ours) == signatures(theirs)


# -- generic form


def test_a_region_of_the_generic_form_is_a_payload() -> None:
    (read,) = parse(
        """"builtin.module"() ({
  "func.func"() <{function_type = (tensor<4xf32>) -> tensor<4xf32>, sym_name = "f", arg_attrs = [{a.b}], res_attrs = [{c = 1 : i32}]}> ({
  ^bb0(%a: tensor<4xf32>):
    %e = "tensor.empty"() : () -> tensor<4xf32>
    %x = "linalg.generic"(%a, %e) <{indexing_maps = [affine_map<(d0) -> (d0)>, affine_map<(d0) -> (d0)>], iterator_types = [#linalg.iterator_type<parallel>], operandSegmentSizes = array<i32: 1, 1>}> ({
    ^bb0(%in: f32, %out: f32):
      %c = "arith.constant"() <{value = 2.0 : f32}> : () -> f32
      %p = "arith.cmpf"(%in, %c) <{predicate = 4 : i64, fastmath = #arith.fastmath<nnan,ninf>}> : (f32, f32) -> i1
      %i = "linalg.index"() <{dim = 0 : i64}> : () -> index
      %s = "arith.select"(%p, %in, %c) : (i1, f32, f32) -> f32
      "linalg.yield"(%s) : (f32) -> ()
    }) : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
    "func.return"(%x) : (tensor<4xf32>) -> ()
  }) : () -> ()
}) : () -> ()
"""
    )
    printed = print_function(read)
    assert "func.func @f(%a: tensor<4xf32> {a.b}) -> (tensor<4xf32> {c = 1 : i32}) {" in printed
    assert "arith.cmpf olt, %in, %cst fastmath<nnan,ninf> : f32" in printed
    again(printed)


def test_functions_of_iree_are_read_in_both_forms() -> None:
    body = "%a: tensor<4xf32>) -> tensor<4xf32>"
    pretty = f"util.func public @f({body} {{\n  util.return %a : tensor<4xf32>\n}}\n"
    generic = """"util.func"() <{function_type = (tensor<4xf32>) -> tensor<4xf32>, sym_name = "f", sym_visibility = "public", tied_operands = [-1 : index]}> ({
^bb0(%a: tensor<4xf32>):
  "util.return"(%a) : (tensor<4xf32>) -> ()
}) : () -> ()
"""
    assert again(pretty) == again(generic) == pretty


@pytest.mark.parametrize(
    ("form", "pretty"),
    [
        ('"tensor.extract_slice"(%a, %i) <{operandSegmentSizes = array<i32: 1, 1, 0, 0>, static_offsets = array<i64: -9223372036854775808>, static_sizes = array<i64: 2>, static_strides = array<i64: 1>}> : (tensor<4xf32>, index) -> tensor<2xf32>', "tensor.extract_slice %a[%i] [2] [1] : tensor<4xf32> to tensor<2xf32>"),
        ('"tensor.insert_slice"(%b, %a) <{operandSegmentSizes = array<i32: 1, 1, 0, 0, 0>, static_offsets = array<i64: 1>, static_sizes = array<i64: 2>, static_strides = array<i64: 1>}> : (tensor<2xf32>, tensor<4xf32>) -> tensor<4xf32>', "tensor.insert_slice %b into %a[1] [2] [1] : tensor<2xf32> into tensor<4xf32>"),
        ('"tensor.extract"(%a, %i) : (tensor<4xf32>, index) -> f32', "tensor.extract %a[%i] : tensor<4xf32>"),
        ('"tensor.concat"(%a, %b) <{dim = 0 : i64}> : (tensor<4xf32>, tensor<2xf32>) -> tensor<6xf32>', "tensor.concat dim(0) %a, %b : (tensor<4xf32>, tensor<2xf32>) -> tensor<6xf32>"),
        ('"tensor.expand_shape"(%a) <{reassociation = [[0, 1]], static_output_shape = array<i64: 2, 2>}> : (tensor<4xf32>) -> tensor<2x2xf32>', "tensor.expand_shape %a [[0, 1]] output_shape [2, 2] : tensor<4xf32> into tensor<2x2xf32>"),
        ('"tensor.cast"(%a) : (tensor<4xf32>) -> tensor<?xf32>', "tensor.cast %a : tensor<4xf32> to tensor<?xf32>"),
        ('"tensor.pad"(%a) <{operandSegmentSizes = array<i32: 1, 0, 0>, static_high = array<i64: 1>, static_low = array<i64: 1>}> ({\n ^bb0(%k: index):\n "tensor.yield"(%s) : (f32) -> ()\n }) : (tensor<4xf32>) -> tensor<6xf32>', "tensor.pad %a low[1] high[1] {"),
        ('"linalg.transpose"(%m, %n) <{permutation = array<i64: 1, 0>, operandSegmentSizes = array<i32: 1, 1>}> ({\n ^bb0(%k: f32, %l: f32):\n "linalg.yield"(%k) : (f32) -> ()\n }) : (tensor<2x3xf32>, tensor<3x2xf32>) -> tensor<3x2xf32>', "linalg.transpose ins(%m : tensor<2x3xf32>) outs(%n : tensor<3x2xf32>) permutation = [1, 0]"),
        ('"arith.addi"(%i, %i) <{overflowFlags = #arith.overflow<nsw, nuw>}> : (index, index) -> index', "arith.addi %i, %i overflow<nsw, nuw> : index"),
    ],
)  # fmt: skip
def test_generic_forms_are_the_operations_that_they_write(form: str, pretty: str) -> None:
    kind = form.rpartition("-> ")[2]
    text = f"""func.func @f(%a: tensor<4xf32>, %b: tensor<2xf32>, %m: tensor<2x3xf32>, %n: tensor<3x2xf32>, %i: index, %s: f32) -> {kind} {{
  %r = {form}
  return %r : {kind}
}}
"""
    printed = again(text)
    assert pretty in printed


_BLOCK = '({\n ^bb0(%k: f32, %l: f32):\n %x = "arith.mulf"(%k, %l) : (f32, f32) -> f32\n "linalg.yield"(%x) : (f32) -> ()\n })'
_COPY = '({\n ^bb0(%k: f32, %l: f32):\n "linalg.yield"(%k) : (f32) -> ()\n })'
_NEGATED = '({\n ^bb0(%k: f32):\n %x = "arith.negf"(%k) : (f32) -> f32\n "linalg.yield"(%x) : (f32) -> ()\n })'
_ONE = '({\n %x = "arith.constant"() <{value = 1.0 : f32}> : () -> f32\n "linalg.yield"(%x) : (f32) -> ()\n })'
_PAIRS = '({\n ^bb0(%k: f32, %l: f32, %o: f32, %p: f32):\n %x = "arith.addf"(%k, %o) : (f32, f32) -> f32\n "linalg.yield"(%x, %l) : (f32, f32) -> ()\n })'
_MAPS = "affine_map<(d0) -> (d0)>, affine_map<(d0) -> (d0)>"
_TYPES = "(tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>"
_BY_ROWS = "(tensor<2x3xf32>, tensor<2xf32>) -> tensor<2xf32>"

WITHOUT_SIZES = [
    (f'"linalg.broadcast"(%b, %m) <{{dimensions = array<i64: 1>}}> {_COPY} : (tensor<2xf32>, tensor<2x3xf32>) -> tensor<2x3xf32>', "ins(%b : tensor<2xf32>) outs(%m : tensor<2x3xf32>) dimensions = [1]"),
    (f'"linalg.transpose"(%m, %n) <{{permutation = array<i64: 1, 0>}}> {_COPY} : (tensor<2x3xf32>, tensor<3x2xf32>) -> tensor<3x2xf32>', "ins(%m : tensor<2x3xf32>) outs(%n : tensor<3x2xf32>) permutation = [1, 0]"),
    (f'"linalg.reduce"(%m, %b) <{{dimensions = array<i64: 1>}}> {_BLOCK} : {_BY_ROWS}', "ins(%m : tensor<2x3xf32>) outs(%b : tensor<2xf32>) dimensions = [1]"),
    (f'"linalg.reduce"(%m, %m, %b, %b) <{{dimensions = array<i64: 1>}}> {_PAIRS} : (tensor<2x3xf32>, tensor<2x3xf32>, tensor<2xf32>, tensor<2xf32>) -> (tensor<2xf32>, tensor<2xf32>)', "ins(%m, %m : tensor<2x3xf32>, tensor<2x3xf32>) outs(%b, %b : tensor<2xf32>, tensor<2xf32>) dimensions = [1]"),
    (f'"linalg.map"(%a) {_ONE} : (tensor<4xf32>) -> tensor<4xf32>', "linalg.map outs(%a : tensor<4xf32>)"),
    (f'"linalg.map"(%a, %c) {_BLOCK} : {_TYPES}', "linalg.map ins(%a : tensor<4xf32>) outs(%c : tensor<4xf32>)"),
    (f'"linalg.map"(%a, %a, %c) {_BLOCK} : (tensor<4xf32>, tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>', "linalg.map ins(%a, %a : tensor<4xf32>, tensor<4xf32>) outs(%c : tensor<4xf32>)"),
    (f'"linalg.map"(%a, %c) {_NEGATED} : {_TYPES}', "linalg.map ins(%a : tensor<4xf32>) outs(%c : tensor<4xf32>)"),  # before 2025
    # all attributes behind the region, as LLVM before 17 prints them
    (f'"linalg.reduce"(%m, %b) {_BLOCK} {{dimensions = array<i64: 1>}} : {_BY_ROWS}', "ins(%m : tensor<2x3xf32>) outs(%b : tensor<2xf32>) dimensions = [1]"),
    (f'"linalg.generic"(%a, %c) {_BLOCK} {{indexing_maps = [{_MAPS}], iterator_types = [#linalg.iterator_type<parallel>], operand_segment_sizes = array<i32: 1, 1>}} : {_TYPES}', f'{{indexing_maps = [{_MAPS}], iterator_types = ["parallel"]}} ins(%a'),
    (f'"linalg.generic"(%a, %c) {_BLOCK} {{indexing_maps = [{_MAPS}], iterator_types = ["parallel"], operand_segment_sizes = dense<1> : vector<2xi32>}} : {_TYPES}', f'{{indexing_maps = [{_MAPS}], iterator_types = ["parallel"]}} ins(%a'),
    (f'"linalg.exp"(%a, %c) {_COPY} {{linalg.memoized_indexing_maps = [{_MAPS}], operand_segment_sizes = dense<[1, 1]> : vector<2xi32>}} : {_TYPES}', "linalg.exp ins(%a : tensor<4xf32>) outs(%c : tensor<4xf32>)"),
]  # fmt: skip


@pytest.mark.parametrize(("form", "pretty"), WITHOUT_SIZES)
def test_generic_forms_without_segment_sizes_have_ins_and_outs(form: str, pretty: str) -> None:
    kinds = form.rpartition("-> ")[2].strip("()")
    results = "%r#0, %r#1" if "," in kinds else "%r"
    text = f"""func.func @f(%a: tensor<4xf32>, %c: tensor<4xf32>, %b: tensor<2xf32>, %m: tensor<2x3xf32>, %n: tensor<3x2xf32>) -> ({kinds}) {{
  %r{":2" if "," in kinds else ""} = {form}
  return {results} : {kinds}
}}
"""
    assert pretty in again(text)


def test_unknown_operations_with_regions_are_carried_through() -> None:
    text = """func.func @f(%a: tensor<4xf32>, %g: i1) -> tensor<4xf32> {
  %r:2 = "my.scan"(%a, %a) <{dimension = 0 : i64}> ({
  ^bb0(%x: f32, %y: f32):
    %z = "arith.addf"(%x, %y) <{fastmath = #arith.fastmath<none>}> : (f32, f32) -> f32
    "my.yield"(%z) : (f32) -> ()
  }) : (tensor<4xf32>, tensor<4xf32>) -> (tensor<4xf32>, tensor<f32>)
  %s = "my.branches"(%a) ({
  ^bb0(%x: f32):
    "cf.cond_br"(%g, %x)[^bb1, ^bb1] : (i1, f32) -> ()
  ^bb1(%y: f32):
    "my.yield"(%y) : (f32) -> ()
  }) : (tensor<4xf32>) -> tensor<4xf32>
  return %s : tensor<4xf32>
}
"""
    printed = again(text)
    assert '"my.scan"(%a, %a) <{dimension = 0 : i64}> ({' in printed
    assert "arith.addf %x, %y : f32" in printed
    assert '"cf.cond_br"(%g, ' in printed


# -- regions


def test_producers_are_fused_into_loops_as_mlir_does() -> None:
    text = f"""func.func @f(%a: tensor<4xf32>, %n: index) -> tensor<4xf32> {{
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  {NEGATE}
  %r = scf.for %i = %c0 to %n step %c1 iter_args(%v = %a) -> (tensor<4xf32>) {{
    %e2 = tensor.empty() : tensor<4xf32>
    %y = linalg.generic {{indexing_maps = [{MAP}, {MAP}, {MAP}], iterator_types = ["parallel"]}} ins(%x, %v : tensor<4xf32>, tensor<4xf32>) outs(%e2 : tensor<4xf32>) {{
    ^bb0(%in: f32, %in2: f32, %out: f32):
      %n2 = arith.addf %in, %in2 : f32
      linalg.yield %n2 : f32
    }} -> tensor<4xf32>
    scf.yield %y : tensor<4xf32>
  }}
  return %r : tensor<4xf32>
}}
"""
    (read,) = parse(text)
    result = fused(read)
    assert (generics(read), generics(result)) == (2, 1)
    printed = again(print_function(result))
    assert printed.index("scf.for") < printed.index("arith.negf")


LOOPS = [
    ("%r = scf.if %g -> (tensor<4xf32>) {\n scf.yield %a : tensor<4xf32>\n } else {\n scf.yield %b : tensor<4xf32>\n }", '"scf.if"(%g) ({'),
    ("%r = scf.while (%v = %a) : (tensor<4xf32>) -> tensor<4xf32> {\n scf.condition(%g) %v : tensor<4xf32>\n } do {\n ^bb0(%w: tensor<4xf32>):\n scf.yield %w : tensor<4xf32>\n }", '"scf.condition"(%g, %v)'),
    ("%r = scf.index_switch %i -> tensor<4xf32>\n case 2 {\n scf.yield %a : tensor<4xf32>\n }\n default {\n scf.yield %b : tensor<4xf32>\n }", "<{cases = array<i64: 2>}>"),
    ('scf.if %g {\n "my.effect"() : () -> ()\n }\n %r = tensor.cast %a : tensor<4xf32> to tensor<4xf32>', '"my.effect"()'),
    ("%r = scf.for %k = %i to %i step %i iter_args(%v = %a) -> (tensor<4xf32>) {\n %q = arith.addi %k, %i : index\n scf.yield %v : tensor<4xf32>\n }", "^bb0(%k: index, %v: tensor<4xf32>)"),
]  # fmt: skip


@pytest.mark.parametrize(("statement", "shown"), LOOPS)
def test_loops_and_conditions_are_read(statement: str, shown: str) -> None:
    text = f"func.func @f(%a: tensor<4xf32>, %b: tensor<4xf32>, %g: i1, %i: index) -> tensor<4xf32> {{\n  {statement}\n  return %r : tensor<4xf32>\n}}\n"
    assert shown in again(text)


def test_a_constant_of_a_region_is_not_seen_behind_it() -> None:
    body = "%c = arith.constant 1.0 : f32\n %t = tensor.from_elements %c, %c : tensor<2xf32>\n"
    text = f"""func.func @f(%g: i1) -> tensor<2xf32> {{
  scf.if %g {{
    {body}
  }}
  {body}
  return %t : tensor<2xf32>
}}
"""
    assert again(text).count("arith.constant") == 2


# -- functions, locations and aliases


def test_calls_of_private_functions_are_inlined() -> None:
    text = f"""module {{
  func.func public @main(%a: tensor<4xf32>) -> tensor<4xf32> {{
    %0 = call @twice(%a) : (tensor<4xf32>) -> tensor<4xf32>
    %1 = func.call @outside(%0) : (tensor<4xf32>) -> tensor<4xf32>
    return %1 : tensor<4xf32>
  }}
  func.func private @outside(tensor<4xf32>) -> tensor<4xf32>
  func.func private @twice(%a: tensor<4xf32>) -> tensor<4xf32> {{
    %0 = call @negated(%a) : (tensor<4xf32>) -> tensor<4xf32>
    %1 = call @negated(%0) : (tensor<4xf32>) -> tensor<4xf32>
    return %1 : tensor<4xf32>
  }}
  func.func private @negated(%a: tensor<4xf32>) -> tensor<4xf32> {{
    {NEGATE}
    return %x : tensor<4xf32>
  }}
}}
"""
    main, outside = parse(text)
    assert [generics(main), generics(fused(main))] == [2, 0]  # negated twice
    assert outside.is_declaration
    printed = again(text)
    assert '"func.call"(%x_1) <{callee = @outside}>' in printed
    assert "func.func private @outside(tensor<4xf32>) -> tensor<4xf32>\n" in printed


def test_a_function_that_calls_itself_stays() -> None:
    text = """func.func @main(%a: f32) -> f32 {
  %0 = call @again(%a) : (f32) -> f32
  return %0 : f32
}
func.func private @again(%a: f32) -> f32 {
  %0 = call @again(%a) : (f32) -> f32
  return %0 : f32
}
"""
    assert [item.name for item in parse(text)] == ["main", "again"]


def test_locations_and_aliases_are_read() -> None:
    text = f"""#map = {MAP}
#loc = loc("f.py":1:1)
#set = {{x = 1}}
!t = tensor<4xf32>
module attributes {{m}} {{
  func.func @f(%a: !t loc("a"("f.py":1:2))) -> (tensor<4x!e> {{r}}) attributes {{k = #set}} {{
    %0 = "my.op"(%a) {{map = #map}} : (!t) -> tensor<4x!e> loc(#loc)
    return %0 : tensor<4x!e> loc(fused<"x">[#loc, "b"])
  }} loc(#loc)
}} loc(#loc1)
!e = i8
#loc1 = loc(unknown)
"""
    printed = again(text)
    assert f'"my.op"(%a) <{{map = {MAP}}}> : (tensor<4xf32>) -> (tensor<4xi8>)' in printed
    assert "(%a: tensor<4xf32>) -> (tensor<4xi8> {r}) attributes {k = {x = 1}}" in printed


# -- other dialects and types


@pytest.mark.parametrize(
    ("statement", "kind"),
    [
        ("%r = util.optimization_barrier %a : tensor<4xf32>", "tensor<4xf32>"),
        ("%r = tensor.splat %s : tensor<4xf32>", "tensor<4xf32>"),
        ("%r = tensor.rank %a : tensor<4xf32>", "index"),
        (
            "%r = tensor.generate %i {\n  ^bb0(%k: index):\n    %z = tensor.extract %a[%k] : tensor<4xf32>\n    tensor.yield %z : f32\n  } : tensor<?xf32>",
            "tensor<?xf32>",
        ),
        (
            "%r = linalg.conv_1d ins(%a, %a : tensor<4xf32>, tensor<4xf32>) outs(%b : tensor<1xf32>) -> tensor<1xf32>",
            "tensor<1xf32>",
        ),
        (
            "%r = linalg.softmax dimension(0) ins(%a : tensor<4xf32>) outs(%a : tensor<4xf32>) -> tensor<4xf32>",
            "tensor<4xf32>",
        ),
        ("%r = my.cast %a {x = #m<[1]>} : tensor<4xf32> to tensor<?xf32>", "tensor<?xf32>"),
        ("%r = arith.constant dense<(1.0,2.0)> : tensor<2xcomplex<f32>>", "tensor<2xcomplex<f32>>"),
        ("%r = arith.constant dense<1> : tensor<2xi4>", "tensor<2xi4>"),
        ("%r = arith.constant 1.0 : f8E4M3FN", "f8E4M3FN"),
        ("%r = arith.constant dense_resource<w> : tensor<2xf32>", "tensor<2xf32>"),
        ("%r = complex.re %z : complex<f32>", "f32"),
        ("%q, %r = my.two %a : !my.state<3>, tensor<4xf32>", "tensor<4xf32>"),
    ],
)
def test_operations_of_other_dialects_are_carried_through(statement: str, kind: str) -> None:
    text = f"func.func @f(%a: tensor<4xf32>, %b: tensor<1xf32>, %s: f32, %i: index, %z: complex<f32>) -> {kind} {{\n  {statement}\n  return %r : {kind}\n}}\n"
    printed = again(text)
    (op,) = [item for item in parse(text)[0].ops if not (isinstance(item, Opaque) and item.part)][
        :1
    ]
    assert isinstance(op, Opaque)
    assert op.results[-1].type_text == kind
    first = re.sub(r"%[a-z]+(, %r)? = ", "", statement.splitlines()[0].replace("%z", "%z"))
    assert first in printed


def test_resources_are_constants() -> None:
    text = """func.func @f() -> tensor<2xf32> {
  %r = arith.constant dense_resource<w> : tensor<2xf32>
  return %r : tensor<2xf32>
}
{-#
  dialect_resources: {
    builtin: {
      w: "0x040000000000803F00000040"
    }
  }
#-}
"""
    assert "dense<[1.0, 2.0]> : tensor<2xf32>" in again(text)


@pytest.mark.parametrize(
    "dtype", ["f8E4M3FN", "i4", "complex<f32>", "ui8", "!quant.uniform<i8:f32, 0.5>"]
)
def test_other_element_types_are_carried_through(dtype: str) -> None:
    text = NEGATE.replace("f32", dtype).replace("arith.negf", "my.op")
    text = f"func.func @f(%a: tensor<4x{dtype}>) -> tensor<4x{dtype}> {{\n  {text}  return %x : tensor<4x{dtype}>\n}}\n"
    assert f"my.op %in : {dtype}" in again(text)


def test_payloads_may_read_tensors() -> None:
    text = f"""func.func @f(%t: tensor<9xf32>, %a: tensor<4xindex>) -> tensor<4xf32> {{
  %e = tensor.empty() : tensor<4xf32>
  %x = linalg.generic {{indexing_maps = [{MAP}, {MAP}], iterator_types = ["parallel"]}} ins(%a : tensor<4xindex>) outs(%e : tensor<4xf32>) {{
  ^bb0(%in: index, %out: f32):
    %n = tensor.extract %t[%in] : tensor<9xf32>
    linalg.yield %n : f32
  }} -> tensor<4xf32>
  return %x : tensor<4xf32>
}}
"""
    assert "tensor.extract %t[%in] : tensor<9xf32>" in again(text)


# -- named operations

NAMED = [
    "linalg.matmul ins(%m, %n : tensor<2x3xf32>, tensor<3x2xf32>) outs(%q : tensor<2x2xf32>) -> tensor<2x2xf32>",
    "linalg.matmul indexing_maps = [affine_map<(d0, d1, d2) -> (d2, d0)>, affine_map<(d0, d1, d2) -> (d1, d2)>, affine_map<(d0, d1, d2) -> (d0, d1)>] ins(%n, %m : tensor<3x2xf32>, tensor<2x3xf32>) outs(%q : tensor<2x2xf32>) -> tensor<2x2xf32>",
    "linalg.contract indexing_maps = [affine_map<(d0, d1, d2) -> (d0, d2)>, affine_map<(d0, d1, d2) -> (d2, d1)>, affine_map<(d0, d1, d2) -> (d0, d1)>] ins(%m, %n : tensor<2x3xf32>, tensor<3x2xf32>) outs(%q : tensor<2x2xf32>) -> tensor<2x2xf32>",
    "linalg.elementwise <add> ins(%q, %q : tensor<2x2xf32>, tensor<2x2xf32>) outs(%q : tensor<2x2xf32>) -> tensor<2x2xf32>",
    "linalg.exp ins(%q : tensor<2x2xf32>) outs(%q : tensor<2x2xf32>) -> tensor<2x2xf32>",
    "linalg.transpose ins(%q : tensor<2x2xf32>) outs(%q : tensor<2x2xf32>) permutation = [1, 0]",
    "linalg.broadcast ins(%v : tensor<2xf32>) outs(%q : tensor<2x2xf32>) dimensions = [0]",
    "linalg.map { math.exp } ins(%q : tensor<2x2xf32>) outs(%q : tensor<2x2xf32>)",
    "linalg.reduce { arith.addf } ins(%p : tensor<2x2x5xf32>) outs(%q : tensor<2x2xf32>) dimensions = [2]",
    "linalg.reduce ins(%p : tensor<2x2x5xf32>) outs(%q : tensor<2x2xf32>) dimensions = [2]\n (%x: f32, %y: f32) {\n %z = arith.mulf %x, %y : f32\n linalg.yield %z : f32\n }",
    "linalg.batch_matmul_transpose_b ins(%p, %p : tensor<2x2x5xf32>, tensor<2x2x5xf32>) outs(%b : tensor<2x2x2xf32>) -> tensor<2x2x2xf32>",
]  # fmt: skip


@pytest.mark.parametrize("statement", NAMED)
def test_named_operations_have_loops(statement: str) -> None:
    kind = "tensor<2x2x2xf32>" if "2x2x2" in statement else "tensor<2x2xf32>"
    arguments = "%m: tensor<2x3xf32>, %n: tensor<3x2xf32>, %q: tensor<2x2xf32>, %v: tensor<2xf32>, %p: tensor<2x2x5xf32>, %b: tensor<2x2x2xf32>"
    text = f"func.func @f({arguments}) -> {kind} {{\n  %r = {statement}\n  return %r : {kind}\n}}\n"
    (read,) = parse(text)
    (op,) = read.ops
    assert isinstance(op, Generic)
    assert op.named is not None
    if "{" not in statement:
        assert statement in again(text)
    again(text)


def test_short_bodies_keep_their_flags() -> None:
    text = """func.func @f(%q: tensor<2xf32>) -> tensor<2xf32> {
  %r = linalg.map { arith.addf {fastmath = #arith.fastmath<nnan,ninf>} } ins(%q, %q : tensor<2xf32>, tensor<2xf32>) outs(%q : tensor<2xf32>)
  return %r : tensor<2xf32>
}
"""
    assert "arith.addf %in, %in_1 fastmath<nnan,ninf> : f32" in again(text)


def test_a_transposition_keeps_its_name_over_other_axes() -> None:
    text = """func.func @f(%a: tensor<2x4x5xf32>, %c: tensor<5x8xf32>) -> tensor<5x8xf32> {
  %m = tensor.collapse_shape %a [[0, 1], [2]] : tensor<2x4x5xf32> into tensor<8x5xf32>
  %r = linalg.transpose ins(%m : tensor<8x5xf32>) outs(%c : tensor<5x8xf32>) permutation = [1, 0]
  return %r : tensor<5x8xf32>
}
"""
    printed = again(print_function(fused(parse(text)[0])))
    assert "outs(%c_reshaped : tensor<5x2x4xf32>) permutation = [2, 0, 1]" in printed


def test_kinds_of_older_texts_are_read() -> None:
    text = """func.func @f(%q: tensor<2xf32>, %s: f32) -> tensor<2xf32> {
  %r = linalg.elementwise kind=#linalg.elementwise_kind<mul> indexing_maps = [affine_map<(d0) -> (d0)>, affine_map<(d0) -> ()>, affine_map<(d0) -> (d0)>] ins(%q, %s : tensor<2xf32>, f32) outs(%q : tensor<2xf32>) -> tensor<2xf32>
  return %r : tensor<2xf32>
}
"""
    assert "linalg.elementwise <mul> indexing_maps = [affine_map<(d0) -> (d0)>, " in again(text)


def test_a_product_is_moved_over_a_reshape_as_a_generic() -> None:
    text = """func.func @f(%a: tensor<2x4x5xf32>, %b: tensor<5x3xf32>, %c: tensor<8x3xf32>) -> tensor<8x3xf32> {
  %m = tensor.collapse_shape %a [[0, 1], [2]] : tensor<2x4x5xf32> into tensor<8x5xf32>
  %r = linalg.matmul ins(%m, %b : tensor<8x5xf32>, tensor<5x3xf32>) outs(%c : tensor<8x3xf32>) -> tensor<8x3xf32>
  return %r : tensor<8x3xf32>
}
"""
    result = fused(parse(text)[0])
    (op,) = [op for op in result.ops if isinstance(op, Generic)]
    assert op.named is None
    assert [str(map_.body()) for map_ in op.maps] == [
        "(d0, d1, d2, d3) -> (d0, d1, d3)",
        "(d0, d1, d2, d3) -> (d3, d2)",
        "(d0, d1, d2, d3) -> (d0, d1, d2)",
    ]


UNITS_TEXT = """func.func @f(%a: tensor<1x4x1xf32>, %b: tensor<1x1x1xf32>, %c: tensor<1xf32>) -> (tensor<1x4x1xf32>, tensor<1xf32>) {
  %e = tensor.empty() : tensor<1x4x1xf32>
  %x = linalg.generic {indexing_maps = [affine_map<(d0, d1, d2) -> (d0, d1, d2)>, affine_map<(d0, d1, d2) -> (d0, 0, d2)>, affine_map<(d0, d1, d2) -> (d0, d1, d2)>], iterator_types = ["parallel", "parallel", "parallel"]} ins(%a, %b : tensor<1x4x1xf32>, tensor<1x1x1xf32>) outs(%e : tensor<1x4x1xf32>) {
  ^bb0(%in: f32, %in2: f32, %out: f32):
    %n = arith.addf %in, %in2 : f32
    %k = linalg.index 0 : index
    %q = arith.index_cast %k : index to i32
    %s = arith.sitofp %q : i32 to f32
    %z = arith.addf %n, %s : f32
    linalg.yield %z : f32
  } -> tensor<1x4x1xf32>
  %y = linalg.generic {indexing_maps = [affine_map<(d0, d1, d2) -> (d0, d1, d2)>, affine_map<(d0, d1, d2) -> (d0)>], iterator_types = ["parallel", "reduction", "reduction"]} ins(%x : tensor<1x4x1xf32>) outs(%c : tensor<1xf32>) {
  ^bb0(%in: f32, %out: f32):
    %n = arith.addf %in, %out : f32
    linalg.yield %n : f32
  } -> tensor<1xf32>
  return %x, %y : tensor<1x4x1xf32>, tensor<1xf32>
}
"""


def without_units(text: str) -> Function:
    (read,) = parse(text)
    companions = (*MLIR_COMPANIONS, "fold-unit-dims")
    block = fuse_block(read.ops, outputs=read.outputs, companions=companions)
    return Function(read.name, read.arguments, block.ops, block.outputs)


def test_loops_of_size_1_are_dropped() -> None:
    result = without_units(UNITS_TEXT)
    results = [[map_.body() for map_ in op.maps] for op in result.ops if isinstance(op, Generic)]
    assert results == [
        ["(d0) -> (d0)", "(d0) -> ()", "(d0) -> (d0)"],
        ["(d0) -> (d0)", "(d0) -> ()"],
    ]
    printed = again(print_function(result))
    assert "tensor.collapse_shape %b [] : tensor<1x1x1xf32> into tensor<f32>" in printed
    assert "linalg.index" not in printed


def test_mlir_drops_the_same_loops() -> None:
    pytest.importorskip("iree.compiler")
    passes = "linalg-fuse-elementwise-ops,linalg-fold-unit-extent-dims"
    (theirs,) = parse(Iree().fused(UNITS_TEXT, passes))
    assert signatures(without_units(UNITS_TEXT)) == signatures(theirs)


@pytest.mark.parametrize(
    ("statement", "reason"),
    [
        ("%r = arith.addg %s, %s : f32", "operation arith.addg is not known"),
        ("%r = my.op %a", "the types of its results do not stand at its end"),
        ("%r = arith.constant 0 :\n %q = my.op %a : f32", "the types of its results do not stand at its end"),
        ("%r = arith.addf %s, %s fastmath<sure> : f32", "expected a flag, found 'sure'"),
        ('%r = "tensor.collapse_shape"(%a) <{reassociation = [[0, x]]}> : (tensor<4xf32>) -> tensor<4xf32>', "is no list of groups of axes"),
        ("linalg.exp ins(%a : tensor<4xf32>) outs(%a : tensor<4xf32>) -> tensor<4xf32>", "linalg.exp has 1 results"),
        ("%r = scf.for %k = %s to %i step %i iter_args(%v = %s) -> (f32) {\n scf.yield %v : f32\n }", "%s is f32, not index"),
        ('%r = "arith.cmpf"(%s, %s) <{predicate = 99 : i64}> : (f32, f32) -> i1', "no predicate 99"),
        ('%r = "tensor.extract_slice"(%a) <{static_offsets = array<i64: -9223372036854775808>, static_sizes = array<i64: 2>, static_strides = array<i64: 1>}> : (tensor<4xf32>) -> tensor<2xf32>', "needs 1 computed numbers, got 0"),
        ("%r = tensor.pad %a low[1, 2] high[1] {\n ^bb0(%k: index):\n tensor.yield %s : f32\n } : tensor<4xf32> to tensor<6xf32>", "tensor<4xf32> is padded along 1 axes"),
        ('%r = "linalg.generic"(%a) <{indexing_maps = [affine_map<(d0) -> (d0)>], iterator_types = [#linalg.iterator_type<parallel>], operandSegmentSizes = array<i32: 0, 1>}> ({\n ^bb0(%o: f32):\n %k = "linalg.index"() <{dim = x}> : () -> index\n "linalg.yield"(%o) : (f32) -> ()\n }) : (tensor<4xf32>) -> tensor<4xf32>', "expected the number of a loop"),
    ],
)  # fmt: skip
def test_what_means_nothing_is_refused(statement: str, reason: str) -> None:
    text = f"func.func @f(%a: tensor<4xf32>, %s: f32, %i: index) {{\n  {statement}\n  return\n}}\n"
    with pytest.raises(MlirError, match=re.escape(reason)):
        parse(text)
