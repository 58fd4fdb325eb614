"""Scalar operations of payloads, one row each: numpy, MLIR's assembly, C, ONNX.

A new operation is a row here; reader, printer, interpreter, kernels and the lowering of ONNX
operators with the same operands read it.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from typing import Any, Literal, TypeAlias, cast

import ml_dtypes
import numpy as np

NUMPY: Mapping[str, Any] = {
    "f4E2M1FN": ml_dtypes.float4_e2m1fn,
    "f6E2M3FN": ml_dtypes.float6_e2m3fn,
    "f6E3M2FN": ml_dtypes.float6_e3m2fn,
    "f8E3M4": ml_dtypes.float8_e3m4,
    "f8E4M3": ml_dtypes.float8_e4m3,
    "f8E4M3B11FNUZ": ml_dtypes.float8_e4m3b11fnuz,
    "f8E4M3FN": ml_dtypes.float8_e4m3fn,
    "f8E4M3FNUZ": ml_dtypes.float8_e4m3fnuz,
    "f8E5M2": ml_dtypes.float8_e5m2,
    "f8E5M2FNUZ": ml_dtypes.float8_e5m2fnuz,
    "f8E8M0FNU": ml_dtypes.float8_e8m0fnu,
    "f16": np.float16,
    "bf16": ml_dtypes.bfloat16,
    "f32": np.float32,
    "f64": np.float64,
    "complex<f32>": np.complex64,
    "complex<f64>": np.complex128,
    "i1": np.bool_,
    "i2": ml_dtypes.int2,
    "i4": ml_dtypes.int4,
    "i8": np.int8,
    "i16": np.int16,
    "i32": np.int32,
    "i64": np.int64,
    "index": np.int64,
}
"""The numpy types of element types."""

FLOATS = frozenset({"f16", "bf16", "f32", "f64"})
"""The types that constants and kernels have; ``is_float`` knows the narrow ones too."""


def is_float(dtype: str) -> bool:
    """Whether an element type is a floating-point one, of any width."""
    return dtype.startswith(("f", "bf", "tf"))


def is_integer(dtype: str) -> bool:
    """Whether an element type is an integer or ``index``."""
    return dtype == "index" or dtype.lstrip("su")[:1] == "i"


def bits_of(dtype: str) -> int:
    """The width of a scalar type."""
    return 64 if dtype == "index" else int(re.findall("[0-9]+", dtype)[0])


Form: TypeAlias = Literal[
    "plain", "compare", "select", "cast", "test", "power", "clamp", "pair", "overflow", "scale"
]
"""MLIR's assembly, and the types of the results.

``plain``: ``%a, %b : T``. ``compare``: a predicate before it, ``i1``. ``select``: ``i1`` first.
``cast``: ``%a : S to T``. ``test``: ``%a : T``, ``i1``. ``power``: ``%a, %n : T, I``. ``clamp``:
``%a to [%low, %high] : T``. ``pair``: two results of type T. ``overflow``: ``%a, %b : T, i1``, two
results. ``scale``: ``%a, %scale : S, F to T``.
"""

Flag: TypeAlias = Literal["rounding", "fastmath", "overflow", "exact", "nneg"]
"""What may stand between operands and types, in this order."""

ROUNDINGS = ("to_nearest_even", "downward", "upward", "toward_zero", "to_nearest_away")
"""By their numbers in the generic form."""


@dataclass(frozen=True)
class Operation:
    """A scalar operation.

    Attributes:
        numpy: takes numpy scalars; of a comparison also the predicate, of a cast the target.
        types: the element types of its operands: ``float``, ``integer`` or ``any``.
        c: an expression of ``{0}``, ``{1}``, …, ``{t}`` (element type), ``{f}`` (C's suffix of
            functions), ``{c}`` (C's type); "" has no kernel.
        onnx: operators with the same operands and results; of plain rows of one or two operands.
        c_types: results with a kernel; empty for all.
        reduces: what OpenMP calls a reduction by it.
        is_costly: it costs more than a load.
        is_step: an ulp of an operand may change its result by a whole number, or a truth value.
        flags: the attributes that it may have.
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
    flags: tuple[Flag, ...] = ()

    @property
    def results(self) -> int:
        """How many results it has."""
        return 2 if self.form in {"pair", "overflow"} else 1


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
        result = compute(int(a) % 2**bits, int(b) % 2**bits)
        return type(a)(result - 2**bits if bits > 1 and result >= 2 ** (bits - 1) else result)

    return apply


def _ceiling(a: Any, b: Any) -> Any:
    return type(a)(-(int(a) // -int(b)))


def _bits(a: Any) -> int:
    """An integer's bits as an unsigned number."""
    return int(a) % 2 ** _width(a)


def _width(a: Any) -> int:
    return 1 if a.dtype == np.bool_ else a.dtype.itemsize * 8


def _signed(number: int, like: Any) -> Any:
    """The integer of these bits."""
    width = _width(like)
    number %= 2**width
    if width == 1:
        return np.bool_(number)
    return type(like)(number - 2**width if number >= 2 ** (width - 1) else number)


def _product(a: Any, b: Any, *, unsigned: bool) -> tuple[Any, Any]:
    """The low and the high half of a product."""
    product = _bits(a) * _bits(b) if unsigned else int(a) * int(b)
    return _signed(product, a), _signed(product >> _width(a), a)


def _sum_carried(a: Any, b: Any, *, sign: int) -> tuple[Any, Any]:
    """A sum or difference of unsigned numbers, and whether it leaves the type."""
    total = _bits(a) + sign * _bits(b)
    return _signed(total, a), not 0 <= total < 2 ** _width(a)


def _leading(a: Any) -> Any:
    return type(a)(_width(a) - _bits(a).bit_length())


def _trailing(a: Any) -> Any:
    bits = _bits(a)
    return type(a)((bits & -bits).bit_length() - 1 if bits else _width(a))


def _integer_power(a: Any, n: Any) -> Any:
    if n < 0:
        return type(a)({1: 1, -1: 1 if n % 2 == 0 else -1}.get(int(a), 0))
    base, exponent, modulus = int(a), int(n), 1 << _width(a)
    return _signed(pow(base, exponent, modulus), a)


def _float_power(a: Any, n: Any) -> Any:
    return a ** type(a)(n)


def _population(a: Any) -> Any:
    return type(a)(_bits(a).bit_count())


def _sine_and_cosine(a: Any) -> tuple[Any, Any]:
    return np.sin(a), np.cos(a)


def _multiply_add(a: Any, b: Any, c: Any) -> Any:
    """``a * b + c`` rounded once."""
    if not (np.isfinite(a) and np.isfinite(b) and np.isfinite(c)):
        return a * b + c
    exact = Fraction(float(a)) * Fraction(float(b)) + Fraction(float(c))
    if a.dtype == np.float64 and exact:
        return np.float64(float(exact))
    return type(a)(float(exact)) if exact else a * b + c


_FINFO = cast("Any", ml_dtypes.finfo)


def _flushed(a: Any) -> Any:
    """Zero of the same sign for a denormal number."""
    return np.copysign(type(a)(0), a) if _is_denormal(a) else a


def _is_denormal(a: Any) -> bool:
    return bool(a != 0 and abs(a) < _FINFO(a.dtype).smallest_normal)


def _is_normal(a: Any) -> bool:
    return bool(np.isfinite(a) and a != 0 and not _is_denormal(a))


def _clamped(a: Any, low: Any, high: Any) -> Any:
    return _nan_first(_minimum)(_nan_first(_maximum)(a, low), high)


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
    if predicate in {"true", "false"}:
        return predicate == "true"
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


def _scaled(target: str, value: Any, scale: Any) -> Any:
    return _cast(target, float(value) * float(scale))


def _unscaled(target: str, value: Any, scale: Any) -> Any:
    return _cast(target, float(value) / float(scale))


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

_FAST: tuple[Flag, ...] = ("fastmath",)
_ROUNDED: tuple[Flag, ...] = ("rounding", "fastmath")


def _number(
    numpy: Callable[..., Any],
    c: str = "",
    *onnx: str,
    operands: int = 1,
    flags: tuple[Flag, ...] = _FAST,
    **others: Any,
) -> Operation:
    """An operation on floating-point numbers."""
    types = frozenset({"f32", "f64"} if "{t}" in c or "{f}" in c else ())
    return Operation(numpy, "float", operands, c=c, onnx=onnx, c_types=types, flags=flags, **others)


def _integer(
    numpy: Callable[..., Any], c: str = "", *onnx: str, operands: int = 2, **others: Any
) -> Operation:
    """An operation on integers; infix operators of C take all of them."""
    types = frozenset({"i32", "i64"} if "{t}" in c else ())
    return Operation(numpy, "integer", operands, c=c, onnx=onnx, c_types=types, **others)


def _costly(numpy: Callable[..., Any], c: str = "", *onnx: str, operands: int = 1) -> Operation:
    return _number(numpy, c, *onnx, operands=operands, is_costly=True)


def _cast_of(
    numpy: Callable[..., Any],
    types: Literal["float", "integer"],
    c: str = "",
    *c_types: str,
    flags: tuple[Flag, ...] = (),
) -> Operation:
    return Operation(
        numpy, types, 1, "cast", c, c_types=frozenset(c_types), is_step="to_" in c, flags=flags
    )


def _test(numpy: Callable[..., Any]) -> Operation:
    """A property of a number."""
    return _number(numpy, form="test", is_step=True)


OPERATIONS: Mapping[str, Operation] = {
    "arith.addf": _number(np.add, "({0} + {1})", "Add", operands=2, reduces="+", flags=_ROUNDED),
    "arith.subf": _number(np.subtract, "({0} - {1})", "Sub", operands=2, flags=_ROUNDED),
    "arith.mulf": _number(np.multiply, "({0} * {1})", "Mul", operands=2, reduces="*",
                          flags=_ROUNDED),
    "arith.divf": _number(np.divide, "({0} / {1})", "Div", operands=2, flags=_ROUNDED),
    "arith.remf": _number(np.fmod, "fmod{f}({0}, {1})", operands=2, is_step=True),
    "arith.maximumf": _number(_nan_first(_maximum), "max_{t}({0}, {1})", "Max",
                               operands=2, reduces="max"),
    "arith.minimumf": _number(_nan_first(_minimum), "min_{t}({0}, {1})", "Min",
                               operands=2, reduces="min"),
    "arith.maxnumf": _number(_number_first(_maximum), operands=2),
    "arith.minnumf": _number(_number_first(_minimum), operands=2),
    "arith.maximumnumf": _number(_number_first(_maximum), operands=2),
    "arith.minimumnumf": _number(_number_first(_minimum), operands=2),
    "arith.negf": _number(np.negative, "(-{0})", "Neg"),
    "arith.flush_denormals": _number(_flushed),
    "arith.addi": _integer(np.add, "add_{t}({0}, {1})", "Add", flags=("overflow",)),
    "arith.subi": _integer(np.subtract, "sub_{t}({0}, {1})", "Sub", flags=("overflow",)),
    "arith.muli": _integer(np.multiply, "mul_{t}({0}, {1})", "Mul", flags=("overflow",)),
    "arith.addui_extended": _integer(partial(_sum_carried, sign=1),
                                     form="overflow"),
    "arith.subui_extended": _integer(partial(_sum_carried, sign=-1),
                                     form="overflow"),
    "arith.mulsi_extended": _integer(partial(_product, unsigned=False), form="pair"),
    "arith.mului_extended": _integer(partial(_product, unsigned=True), form="pair"),
    "arith.divsi": _integer(_truncated, "div_{t}({0}, {1})", "Div", flags=("exact",)),
    "arith.divui": _integer(_unsigned(lambda a, b: a // b), flags=("exact",)),
    "arith.ceildivsi": _integer(_ceiling),
    "arith.ceildivui": _integer(_unsigned(lambda a, b: -(a // -b))),
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
    "arith.shli": _integer(np.left_shift, flags=("overflow",)),
    "arith.shrsi": _integer(np.right_shift, flags=("exact",)),
    "arith.shrui": _integer(_unsigned(lambda a, b: a >> b), flags=("exact",)),
    "arith.cmpf": Operation(_compare_floats, "float", 2, "compare", is_step=True, flags=_FAST),
    "arith.cmpi": Operation(_compare_integers, "integer", 2, "compare"),
    "arith.select": Operation(_select, "any", 3, "select", "({0} ? {1} : {2})"),
    "arith.extf": _cast_of(_cast, "float", "({c}){0}", flags=_FAST),
    "arith.truncf": _cast_of(_cast, "float", "({c}){0}", flags=_ROUNDED),
    "arith.convertf": _cast_of(_cast, "float", flags=_ROUNDED),
    "arith.scaling_extf": Operation(_scaled, "float", 2, "scale", flags=_FAST),
    "arith.scaling_truncf": Operation(_unscaled, "float", 2, "scale", flags=_ROUNDED),
    "arith.sitofp": _cast_of(_cast_signed, "integer", "({c}){0}"),
    "arith.uitofp": _cast_of(_cast_unsigned, "integer", "({c}){0}", flags=("nneg",)),
    "arith.fptosi": _cast_of(_cast, "float", "to_{t}({0})", "i32", "i64"),
    "arith.fptoui": _cast_of(_cast, "float"),
    "arith.extsi": _cast_of(_cast_signed, "integer", "({c}){0}"),
    "arith.extui": _cast_of(_cast_unsigned, "integer", "({c}){0}", flags=("nneg",)),
    "arith.trunci": _cast_of(_truncate_integer, "integer", "({c}){0}", flags=("overflow",)),
    "arith.index_cast": _cast_of(_cast, "integer", "{0}", "i64"),
    "arith.index_castui": _cast_of(_cast_unsigned, "integer", flags=("nneg",)),
    "arith.bitcast": Operation(_bitcast, "any", 1, "cast"),
    "math.powf": _costly(_power, "pow_{t}({0}, {1})", operands=2),
    "math.fpowi": _number(_float_power, operands=2, form="power", is_costly=True),
    "math.ipowi": _integer(_integer_power, is_costly=True),
    "math.fma": _number(_multiply_add, operands=3),
    "math.clampf": _number(_clamped, operands=3, form="clamp"),
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
    "math.ctlz": _integer(_leading, operands=1),
    "math.ctpop": _integer(_population, operands=1),
    "math.cttz": _integer(_trailing, operands=1),
    "math.erf": _costly(_erf, "erf{f}({0})", "Erf"),
    "math.erfc": _costly(_erfc, "erfc{f}({0})"),
    "math.exp": _costly(np.exp, "exp{f}({0})", "Exp"),
    "math.exp2": _costly(np.exp2),
    "math.expm1": _costly(np.expm1, "expm1{f}({0})"),
    "math.floor": _number(np.floor, "floor{f}({0})", "Floor", is_step=True),
    "math.isfinite": _test(np.isfinite),
    "math.isinf": _test(np.isinf),
    "math.isnan": _test(np.isnan),
    "math.isnormal": _test(_is_normal),
    "math.log": _costly(np.log, "log{f}({0})", "Log"),
    "math.log10": _costly(np.log10),
    "math.log1p": _costly(np.log1p, "log1p{f}({0})"),
    "math.log2": _costly(np.log2),
    "math.round": _number(_round),
    "math.roundeven": _number(np.rint, "rint{f}({0})", "Round", is_step=True),
    "math.rsqrt": _costly(_rsqrt),
    "math.sin": _costly(np.sin, "sin{f}({0})", "Sin"),
    "math.sincos": _number(_sine_and_cosine, form="pair", is_costly=True),
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
            (
                "false",
                "true",
                "ord",
                "one",
                *[f"u{each}" for each in ("eq", "gt", "ge", "lt", "le")],
            ),
            "",
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
    kind = OPERATIONS[name].types
    return kind == "any" or (is_float(dtype) if kind == "float" else is_integer(dtype))


def casts(name: str, source: str, target: str) -> bool:
    """Whether a cast takes one element type to another."""
    if not all(is_float(item) or is_integer(item) for item in (source, target)):
        return name == "arith.bitcast"
    floats = is_float(source), is_float(target)
    if name.startswith("arith.index_cast"):
        return not any(floats) and (source == "index") != (target == "index")
    if "index" in {source, target}:
        return False
    bits = bits_of(source), bits_of(target)
    wider = bits[0] < bits[1]
    return {
        "arith.extf": all(floats) and wider,
        "arith.scaling_extf": all(floats) and wider,
        "arith.truncf": all(floats) and bits[0] > bits[1],
        "arith.scaling_truncf": all(floats) and bits[0] > bits[1],
        "arith.convertf": all(floats) and source != target and bits[0] == bits[1],
        "arith.sitofp": floats == (False, True),
        "arith.uitofp": floats == (False, True),
        "arith.fptosi": floats == (True, False),
        "arith.fptoui": floats == (True, False),
        "arith.extsi": not any(floats) and wider,
        "arith.extui": not any(floats) and wider,
        "arith.trunci": not any(floats) and bits[0] > bits[1],
        "arith.bitcast": bits[0] == bits[1],
    }[name]


def compute(
    name: str,
    operands: tuple[Any, ...] | list[Any],
    dtype: str,
    attribute: object,
    flags: str = "",
) -> Any:
    """One operation on numpy scalars.

    ``fastmath`` and ``overflow`` permit results that are not used here.

    Raises:
        ValueError: the operation, its type or its rounding has no numpy.
    """
    operation = OPERATIONS.get(name)
    if operation is None or dtype not in NUMPY:
        raise ValueError(f"{name} of {dtype} cannot be interpreted")
    rounding = next((item for item in ROUNDINGS[1:] if item in flags), None)
    if rounding is not None:
        raise ValueError(f"{name} {rounding} cannot be interpreted")
    if operation.form == "compare":
        result = operation.numpy(str(attribute), *operands)
    elif operation.form in {"cast", "scale"}:
        result = operation.numpy(dtype, *operands)
    else:
        result = operation.numpy(*operands)
    if operation.results > 1:
        result = result[int(str(attribute))]
    return NUMPY[dtype](result)
