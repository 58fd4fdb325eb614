"""Scalar operations of payloads, one row each: numpy, MLIR's assembly, C, ONNX.

A new operation is a row here; reader, printer, interpreter, kernels and the lowering of ONNX
operators with the same operands read it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import ml_dtypes
import numpy as np

NUMPY: Mapping[str, Any] = {
    "f16": np.float16,
    "bf16": ml_dtypes.bfloat16,
    "f32": np.float32,
    "f64": np.float64,
    "i1": np.bool_,
    "i8": np.int8,
    "i16": np.int16,
    "i32": np.int32,
    "i64": np.int64,
    "index": np.int64,
}
"""The numpy types of element types."""

FLOATS = frozenset({"f16", "bf16", "f32", "f64"})

Form: TypeAlias = Literal["plain", "compare", "select", "cast"]
"""MLIR's assembly: ``%a, %b : T``; a predicate before it; ``i1`` first; ``%a : S to T``."""


@dataclass(frozen=True)
class Operation:
    """A scalar operation.

    Attributes:
        numpy: takes numpy scalars; of a comparison also the predicate, of a cast the target.
        types: the element types of its operands: ``float``, ``integer`` or ``any``.
        c: an expression of ``{0}``, ``{1}``, …, ``{t}`` (element type), ``{f}`` (C's suffix of
            functions), ``{c}`` (C's type); "" has no kernel.
        onnx: operators with the same operands and results.
        c_types: results with a kernel; empty for all.
        reduces: what OpenMP calls a reduction by it.
        is_costly: it costs more than a load.
        is_step: an ulp of an operand may change its result by a whole number, or a truth value.
    """

    numpy: Callable[..., Any]
    types: Literal["float", "integer", "any"]
    operands: int = 1
    form: Form = "plain"
    c: str = ""
    onnx: tuple[str, ...] = ()
    c_types: frozenset[str] = frozenset()
    reduces: str = ""
    is_costly: bool = False
    is_step: bool = False


# -- what numpy has not, or computes otherwise


def _nan_first(choose: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    return lambda a, b: a if a != a else b if b != b else choose(a, b)  # noqa: PLR0124 - NaN alone differs from itself


def _number_first(choose: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    return lambda a, b: b if np.isnan(a) else a if np.isnan(b) else choose(a, b)


def _truncated(a: Any, b: Any) -> Any:
    """Integer division towards zero."""
    quotient = abs(int(a)) // abs(int(b))
    return type(a)(quotient if (a < 0) == (b < 0) else -quotient)


def _remainder(a: Any, b: Any) -> Any:
    return type(a)(int(a) - int(_truncated(a, b)) * int(b))


def _maximum(a: Any, b: Any) -> Any:
    if a == b:
        return b if np.signbit(a) else a  # 0.0 is more than -0.0
    return max(b, a)


def _minimum(a: Any, b: Any) -> Any:
    if a == b:
        return a if np.signbit(a) else b
    return min(b, a)


def _unsigned(compute: Callable[[int, int], int]) -> Callable[[Any, Any], Any]:
    """The same on the bits as unsigned numbers."""

    def apply(a: Any, b: Any) -> Any:
        bits = 1 if a.dtype == np.bool_ else a.dtype.itemsize * 8
        made = compute(int(a) % 2**bits, int(b) % 2**bits)
        return type(a)(made - 2**bits if bits > 1 and made >= 2 ** (bits - 1) else made)

    return apply


_ORDERED: Mapping[str, Callable[[Any, Any], Any]] = {
    "eq": np.equal,
    "ne": np.not_equal,
    "lt": np.less,
    "le": np.less_equal,
    "gt": np.greater,
    "ge": np.greater_equal,
}


def _compare_floats(predicate: str, a: Any, b: Any) -> bool:
    """``oeq`` is false where an operand is NaN, ``une`` is true there."""
    is_nan = bool(np.isnan(a) or np.isnan(b))
    if predicate in {"ord", "uno"}:
        return is_nan == (predicate == "uno")
    return predicate.startswith("u") if is_nan else bool(_ORDERED[predicate[1:]](a, b))


def _compare_integers(predicate: str, a: Any, b: Any) -> bool:
    if predicate.startswith("u"):
        size = a.dtype.itemsize * 8
        return bool(_ORDERED[predicate[1:]](int(a) % 2**size, int(b) % 2**size))
    return bool(_ORDERED[predicate.removeprefix("s")](a, b))


def _cast(target: str, value: Any) -> Any:
    return np.asarray(value).astype(NUMPY[target])[()]


def _cast_unsigned(target: str, value: Any) -> Any:
    bits = 1 if value.dtype == np.bool_ else value.dtype.itemsize * 8
    return NUMPY[target](int(value) % 2**bits)


def _cast_signed(target: str, value: Any) -> Any:
    return NUMPY[target](-int(value)) if value.dtype == np.bool_ else _cast(target, value)


def _truncate_integer(target: str, value: Any) -> Any:
    return NUMPY[target](int(value) & 1) if target == "i1" else _cast(target, value)


def _bitcast(target: str, value: Any) -> Any:
    return np.asarray(value).view(NUMPY[target])[()]


def _select(condition: Any, a: Any, b: Any) -> Any:
    return a if condition else b


def _power(a: Any, b: Any) -> Any:
    return a**b  # np.power takes the root for 0.5, which -inf and -0.0 have not


def _erf(x: Any) -> Any:
    return type(x)(math.erf(float(x)))


def _erfc(x: Any) -> Any:
    return type(x)(math.erfc(float(x)))


def _round(x: Any) -> Any:
    return np.copysign(np.floor(np.abs(x) + type(x)(0.5)), x)


def _rsqrt(x: Any) -> Any:
    return type(x)(1) / np.sqrt(x)


# -- the table


def _number(
    numpy: Callable[..., Any], c: str = "", *onnx: str, operands: int = 1, **others: Any
) -> Operation:
    """An operation on floating-point numbers."""
    types = frozenset({"f32", "f64"} if "{t}" in c or "{f}" in c else ())
    return Operation(numpy, "float", operands, c=c, onnx=onnx, c_types=types, **others)


def _integer(
    numpy: Callable[..., Any], c: str = "", *onnx: str, operands: int = 2, **others: Any
) -> Operation:
    """An operation on integers; infix operators of C take all of them."""
    types = frozenset({"i32", "i64"} if "{t}" in c else ())
    return Operation(numpy, "integer", operands, c=c, onnx=onnx, c_types=types, **others)


def _costly(numpy: Callable[..., Any], c: str = "", *onnx: str, operands: int = 1) -> Operation:
    return _number(numpy, c, *onnx, operands=operands, is_costly=True)


def _cast_of(
    numpy: Callable[..., Any], types: Literal["float", "integer"], c: str = "", *c_types: str
) -> Operation:
    return Operation(numpy, types, 1, "cast", c, c_types=frozenset(c_types), is_step="to_" in c)


OPERATIONS: Mapping[str, Operation] = {
    "arith.addf": _number(np.add, "({0} + {1})", "Add", operands=2, reduces="+"),
    "arith.subf": _number(np.subtract, "({0} - {1})", "Sub", operands=2),
    "arith.mulf": _number(np.multiply, "({0} * {1})", "Mul", operands=2, reduces="*"),
    "arith.divf": _number(np.divide, "({0} / {1})", "Div", operands=2),
    "arith.remf": _number(np.fmod, "fmod{f}({0}, {1})", operands=2, is_step=True),
    "arith.maximumf": _number(_nan_first(_maximum), "max_{t}({0}, {1})", "Max",
                               operands=2, reduces="max"),
    "arith.minimumf": _number(_nan_first(_minimum), "min_{t}({0}, {1})", "Min",
                               operands=2, reduces="min"),
    "arith.maxnumf": _number(_number_first(_maximum), operands=2),
    "arith.minnumf": _number(_number_first(_minimum), operands=2),
    "arith.negf": _number(np.negative, "(-{0})", "Neg"),
    "arith.addi": _integer(np.add, "add_{t}({0}, {1})", "Add"),
    "arith.subi": _integer(np.subtract, "sub_{t}({0}, {1})", "Sub"),
    "arith.muli": _integer(np.multiply, "mul_{t}({0}, {1})", "Mul"),
    "arith.divsi": _integer(_truncated, "div_{t}({0}, {1})", "Div"),
    "arith.divui": _integer(_unsigned(lambda a, b: a // b)),
    "arith.floordivsi": _integer(np.floor_divide),
    "arith.remsi": _integer(_remainder, "rem_{t}({0}, {1})"),
    "arith.remui": _integer(_unsigned(lambda a, b: a % b)),
    "arith.maxsi": _integer(np.maximum, "max_{t}({0}, {1})", "Max"),
    "arith.minsi": _integer(np.minimum, "min_{t}({0}, {1})", "Min"),
    "arith.maxui": _integer(_unsigned(max)),
    "arith.minui": _integer(_unsigned(min)),
    "arith.andi": _integer(np.bitwise_and, "({0} & {1})", "And", "BitwiseAnd"),
    "arith.ori": _integer(np.bitwise_or, "({0} | {1})", "Or", "BitwiseOr"),
    "arith.xori": _integer(np.bitwise_xor, "({0} ^ {1})", "Xor", "BitwiseXor"),
    "arith.shli": _integer(np.left_shift),
    "arith.shrsi": _integer(np.right_shift),
    "arith.shrui": _integer(_unsigned(lambda a, b: a >> b)),
    "arith.cmpf": Operation(_compare_floats, "float", 2, "compare", is_step=True),
    "arith.cmpi": Operation(_compare_integers, "integer", 2, "compare"),
    "arith.select": Operation(_select, "any", 3, "select", "({0} ? {1} : {2})"),
    "arith.extf": _cast_of(_cast, "float", "({c}){0}"),
    "arith.truncf": _cast_of(_cast, "float", "({c}){0}"),
    "arith.sitofp": _cast_of(_cast_signed, "integer", "({c}){0}"),
    "arith.uitofp": _cast_of(_cast_unsigned, "integer", "({c}){0}"),
    "arith.fptosi": _cast_of(_cast, "float", "to_{t}({0})", "i32", "i64"),
    "arith.fptoui": _cast_of(_cast, "float"),
    "arith.extsi": _cast_of(_cast_signed, "integer", "({c}){0}"),
    "arith.extui": _cast_of(_cast_unsigned, "integer", "({c}){0}"),
    "arith.trunci": _cast_of(_truncate_integer, "integer", "({c}){0}"),
    "arith.index_cast": _cast_of(_cast, "integer", "{0}", "i64"),
    "arith.bitcast": Operation(_bitcast, "any", 1, "cast"),
    "math.powf": _costly(_power, "pow_{t}({0}, {1})", operands=2),
    "math.atan2": _costly(np.arctan2, operands=2),
    "math.copysign": _number(np.copysign, operands=2),
    "math.absf": _number(np.abs, "fabs{f}({0})", "Abs"),
    "math.absi": _integer(np.abs, "abs_{t}({0})", "Abs", operands=1),
    "math.acos": _costly(np.arccos, "acos{f}({0})", "Acos"),
    "math.acosh": _costly(np.arccosh, "acosh{f}({0})", "Acosh"),
    "math.asin": _costly(np.arcsin, "asin{f}({0})", "Asin"),
    "math.asinh": _costly(np.arcsinh, "asinh{f}({0})", "Asinh"),
    "math.atan": _costly(np.arctan, "atan{f}({0})", "Atan"),
    "math.atanh": _costly(np.arctanh, "atanh{f}({0})", "Atanh"),
    "math.cbrt": _costly(np.cbrt),
    "math.ceil": _number(np.ceil, "ceil{f}({0})", "Ceil", is_step=True),
    "math.cos": _costly(np.cos, "cos{f}({0})", "Cos"),
    "math.cosh": _costly(np.cosh, "cosh{f}({0})", "Cosh"),
    "math.erf": _costly(_erf, "erf{f}({0})", "Erf"),
    "math.erfc": _costly(_erfc, "erfc{f}({0})"),
    "math.exp": _costly(np.exp, "exp{f}({0})", "Exp"),
    "math.exp2": _costly(np.exp2),
    "math.expm1": _costly(np.expm1, "expm1{f}({0})"),
    "math.floor": _number(np.floor, "floor{f}({0})", "Floor", is_step=True),
    "math.log": _costly(np.log, "log{f}({0})", "Log"),
    "math.log10": _costly(np.log10),
    "math.log1p": _costly(np.log1p, "log1p{f}({0})"),
    "math.log2": _costly(np.log2),
    "math.round": _number(_round),
    "math.roundeven": _number(np.rint, "rint{f}({0})", "Round", is_step=True),
    "math.rsqrt": _costly(_rsqrt),
    "math.sin": _costly(np.sin, "sin{f}({0})", "Sin"),
    "math.sinh": _costly(np.sinh, "sinh{f}({0})", "Sinh"),
    "math.sqrt": _costly(np.sqrt, "sqrt{f}({0})", "Sqrt"),
    "math.tan": _costly(np.tan, "tan{f}({0})", "Tan"),
    "math.tanh": _costly(np.tanh, "tanh{f}({0})", "Tanh"),
    "math.trunc": _number(np.trunc, "trunc{f}({0})", is_step=True),
}  # fmt: skip
"""By MLIR's names."""

_RELATIONS = {"lt": "<", "le": "<=", "gt": ">", "ge": ">="}

PREDICATES: Mapping[str, Mapping[str, str]] = {
    "arith.cmpf": {
        **dict.fromkeys(
            ("ord", "one", *[f"u{each}" for each in ("eq", "gt", "ge", "lt", "le")]), ""
        ),
        "oeq": "({0} == {1})",
        "une": "({0} != {1})",
        "uno": "({0} != {0} || {1} != {1})",
        **{f"o{each}": f"({{0}} {sign} {{1}})" for each, sign in _RELATIONS.items()},
    },
    "arith.cmpi": {
        "eq": "({0} == {1})",
        "ne": "({0} != {1})",
        **{
            f"{kind}{each}": f"({{0}} {sign} {{1}})"
            for kind in "su"
            for each, sign in _RELATIONS.items()
        },
    },
}
"""The predicates of comparisons, each in C; "" has no kernel."""


def is_cast(name: str) -> bool:
    """Whether an operation takes one element type to another."""
    return name in OPERATIONS and OPERATIONS[name].form == "cast"


def takes(name: str, dtype: str) -> bool:
    """Whether an operation takes operands of an element type."""
    return OPERATIONS[name].types in {"any", "float" if dtype in FLOATS else "integer"}


def casts(name: str, source: str, target: str) -> bool:
    """Whether a cast takes one element type to another."""
    floats = source in FLOATS, target in FLOATS
    bits = [64 if each == "index" else int(each.lstrip("bfi")) for each in (source, target)]
    if name == "arith.index_cast":
        return not any(floats) and (source == "index") != (target == "index")
    if "index" in {source, target}:
        return False
    wider = bits[0] < bits[1]
    return {
        "arith.extf": all(floats) and wider,
        "arith.truncf": all(floats) and bits[0] > bits[1],
        "arith.sitofp": floats == (False, True),
        "arith.uitofp": floats == (False, True),
        "arith.fptosi": floats == (True, False),
        "arith.fptoui": floats == (True, False),
        "arith.extsi": not any(floats) and wider,
        "arith.extui": not any(floats) and wider,
        "arith.trunci": not any(floats) and bits[0] > bits[1],
        "arith.bitcast": bits[0] == bits[1],
    }[name]


def compute(name: str, operands: tuple[Any, ...] | list[Any], dtype: str, attribute: object) -> Any:
    """One operation on numpy scalars."""
    operation = OPERATIONS[name]
    if operation.form == "compare":
        made = operation.numpy(str(attribute), *operands)
    elif operation.form == "cast":
        made = operation.numpy(dtype, *operands)
    else:
        made = operation.numpy(*operands)
    return NUMPY[dtype](made)
