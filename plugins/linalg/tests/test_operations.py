"""Each row of the table: read, printed, computed, and its C."""

from __future__ import annotations

import importlib
import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import onnx
import pytest

from gehost_linalg.generic import Generic
from gehost_linalg.interpret import run_generic
from gehost_linalg.kernels import math_c
from gehost_linalg.lower.elementwise import LOWERINGS
from gehost_linalg.mlir import parse, print_function
from gehost_linalg.operations import FLOATS, NUMPY, OPERATIONS, PREDICATES, casts

TYPES = ("f32", "f64", "i1", "i8", "i32", "i64", "index")


def text(name: str, source: str, target: str, flags: Sequence[str] = ()) -> str:
    """A function that applies an operation to each element of its operands."""
    row = OPERATIONS[name]
    types = [source] * row.operands
    if row.form == "select":
        types = ["i1", source, source]
    elif row.form == "power":
        types[1] = "i32"
    elif row.form == "scale":
        types[1] = "f8E8M0FNU"
    tensors = [f"tensor<4x{type_}>" for type_ in (*types, target)]
    arguments = ", ".join(f"%a{n}: {type_}" for n, type_ in enumerate(tensors))
    names = [f"%a{n}" for n in range(row.operands)]
    elements = [f"%x{n}" for n in range(row.operands)]
    block = ", ".join(
        f"{x}: {type_}" for x, type_ in zip((*elements, "%o"), (*types, target), strict=True)
    )
    predicate = f"{next(iter(PREDICATES[name]))}, " if row.form == "compare" else ""
    kind = {
        "cast": f"{source} to {target}",
        "power": f"{source}, i32",
        "scale": f"{source}, {types[-1]} to {target}",
        "overflow": f"{source}, i1",
    }.get(row.form, source)
    listing = "%x0 to [%x1, %x2]" if row.form == "clamp" else ", ".join(elements)
    ins = f"ins({', '.join(names)} : {', '.join(tensors[:-1])})"
    maps = ", ".join(["affine_map<(d0) -> (d0)>"] * (row.operands + 1))
    return f"""func.func @f({arguments}) -> {tensors[-1]} {{
  %r = linalg.generic {{indexing_maps = [{maps}], iterator_types = ["parallel"]}} {ins} outs(%a{row.operands} : {tensors[-1]}) {{
  ^bb0({block}):
    {", ".join(["%z", "%w"][: row.results])} = {name} {predicate}{listing}{"".join(f" {type_}" for type_ in flags)} : {kind}
    linalg.yield %z : {target}
  }} -> {tensors[-1]}
  return %r : {tensors[-1]}
}}
"""


TYPES_OF = {
    "arith.convertf": ("f16", "bf16"),
    "arith.scaling_extf": ("f8E4M3FN", "f32"),
    "arith.scaling_truncf": ("f32", "f8E4M3FN"),
}
FLAGS = {
    "rounding": "to_nearest_even",
    "fastmath": "fastmath<nnan,ninf>",
    "overflow": "overflow<nsw, nuw>",
    "exact": "exact",
    "nneg": "nneg",
}


def types_of(name: str) -> tuple[str, str]:
    """Element types that an operation takes and makes."""
    row = OPERATIONS[name]
    if name in TYPES_OF:
        return TYPES_OF[name]
    if row.form == "cast":
        pairs = [(a, b) for a in TYPES for b in TYPES if a != b]
        return next(pair for pair in pairs if casts(name, *pair))
    source = "i32" if row.types == "integer" else "f32"
    return source, "i1" if row.form in {"compare", "test"} else source


@pytest.mark.parametrize("name", [name for name, row in OPERATIONS.items() if row.flags])
def test_flags_are_kept(name: str) -> None:
    flags = [FLAGS[flag] for flag in OPERATIONS[name].flags]
    (function,) = parse(text(name, *types_of(name), flags=flags))
    op = function.ops[0]
    assert isinstance(op, Generic)
    assert op.payload.ops[0].flags == " ".join(flags)
    assert f" {' '.join(flags)} : " in print_function(function)


@pytest.mark.parametrize("name", OPERATIONS)
def test_a_row_is_read_printed_and_computed(name: str) -> None:
    source, target = types_of(name)
    (function,) = parse(text(name, source, target))
    printed = print_function(function)
    assert f" {name} " in printed
    assert print_function(parse(printed)[0]) == printed
    op = function.ops[0]
    assert isinstance(op, Generic)
    arrays = [
        np.array([1, 1, 0, 1] if place == 0 else [1, 1, 1, 1], NUMPY[value.dtype])
        for place, value in enumerate(op.operands)
    ]
    (result,) = run_generic(op, arrays, {})
    assert result.dtype == NUMPY[target]
    assert result.shape == (4,)


def test_predicates_have_the_c_of_comparisons() -> None:
    assert [name for name, row in OPERATIONS.items() if row.form == "compare" and row.c] == []


def test_the_operators_of_rows_are_those_of_onnx_and_are_lowered() -> None:
    rows = [(row, operator) for row in OPERATIONS.values() for operator in row.onnx]
    unknown = [operator for _, operator in rows if not onnx.defs.has(operator)]
    assert unknown == []
    assert [op for row, op in rows if (row.form, row.operands > 2) != ("plain", False)] == []
    assert {operator for _, operator in rows} <= set(LOWERINGS)


@pytest.mark.parametrize(
    "name", [name for name in OPERATIONS if hasattr(math, name.removeprefix("math."))]
)
def test_numpy_computes_what_python_does(name: str) -> None:
    row, short = OPERATIONS[name], name.removeprefix("math.")
    operands = (
        [1.25, -3.5][: row.operands]
        if short in ("acosh", "copysign", "atan2")
        else [0.25, 1.5, 2.5][: row.operands]
    )
    expected = getattr(math, short)(*operands)
    assert float(row.numpy(*map(np.float64, operands))) == pytest.approx(float(expected), rel=1e-14)


def test_functions_of_our_own_are_of_rows() -> None:
    assert {f"math.{name.removesuffix('_f32')}" for name in math_c.FUNCTIONS} <= set(OPERATIONS)


@pytest.mark.parametrize(
    ("name", "operands", "result"),
    [
        ("math.erfc", [np.float64(0.25)], math.erfc(0.25)),
        ("arith.bitcast", [np.float32(1.0)], 0x3F800000),
        ("arith.divui", [np.int8(-1), np.int8(2)], 127),
        ("arith.remui", [np.int8(-1), np.int8(2)], 1),
        ("arith.maxui", [np.int8(-1), np.int8(2)], -1),
        ("arith.minui", [np.int32(-1), np.int32(2)], 2),
        ("arith.shrui", [np.int8(-2), np.int8(1)], 127),
        ("arith.ceildivsi", [np.int8(-7), np.int8(2)], -3),
        ("arith.ceildivui", [np.int8(-1), np.int8(2)], -128),
        ("arith.addui_extended", [np.int8(-1), np.int8(2)], (1, True)),
        ("arith.subui_extended", [np.int8(1), np.int8(2)], (-1, True)),
        ("arith.mulsi_extended", [np.int8(-128), np.int8(2)], (0, -1)),
        ("arith.mului_extended", [np.int8(-1), np.int8(-1)], (1, -2)),
        ("math.ctlz", [np.int16(1)], 15),
        ("math.cttz", [np.int16(0)], 16),
        ("math.ctpop", [np.int8(-1)], 8),
        ("math.ipowi", [np.int8(3), np.int8(5)], -13),
        ("math.ipowi", [np.int32(-1), np.int32(-3)], -1),
        ("math.fpowi", [np.float32(2), np.int32(-2)], 0.25),
        (
            "math.fma",
            [np.float32(1 + 2**-12), np.float32(1 + 2**-12), np.float32(-1)],
            2**-11 + 2**-24,
        ),
        ("math.clampf", [np.float32(3), np.float32(0), np.float32(2)], 2),
        ("math.isnormal", [np.float32(1e-40)], False),
        ("arith.flush_denormals", [np.float32(1e-40)], 0),
        ("arith.maximumnumf", [np.float32(math.nan), np.float32(2)], 2),
    ],
)
def test_numbers(name: str, operands: list[np.generic], result: float) -> None:
    row = OPERATIONS[name]
    output = row.numpy("i32", *operands) if row.form == "cast" else row.numpy(*operands)
    assert output == result


def test_floats_are_types_of_numpy() -> None:
    assert set(NUMPY) >= FLOATS


def test_all_of_arith_and_math_have_a_row() -> None:
    """The list is that of LLVM 24 in iree-base-compiler 3.13."""
    items = (Path(__file__).parent / "payload_operations.txt").read_text(encoding="utf-8")
    assert set(items.split()) <= set(OPERATIONS)


def test_the_list_is_that_of_the_tool() -> None:
    pytest.importorskip("iree.compiler")
    names: set[str] = set()
    for dialect in ("arith", "math"):
        generated = importlib.import_module(f"iree.compiler.dialects._{dialect}_ops_gen")
        results = [getattr(var, "OPERATION_NAME", None) for var in vars(generated).values()]
        names |= {name for name in results if isinstance(name, str)}
    assert names - {"arith.constant"} <= set(OPERATIONS)
