"""Instructions that work on each element by itself.

Operands and result have one shape.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Callable
from typing import Any

import numpy as np

from gehost import Refused
from gehost_hlo.context import Context, Translator, array_shape
from gehost_hlo.emit import Tensor, Value
from gehost_hlo.literals import NUMPY, array_of, bits, is_float, is_integer, is_unsigned
from gehost_hlo.module import HloInstruction

_Unary = Callable[[Context, Tensor], Tensor]
_Binary = Callable[[Context, Tensor, Tensor], Tensor]


def tensors(args: list[Value], count: int) -> list[Tensor]:
    """Return the operands as arrays.

    Raises:
        Refused: there are more or fewer, or one is a tuple.
    """
    if len(args) != count:
        raise Refused("invalid", f"it has {len(args)} operands, expected {count}")
    operands = [arg for arg in args if isinstance(arg, Tensor)]
    if len(operands) != count:
        raise Refused("invalid", "an operand is a tuple, expected an array")
    return operands


def results(i: HloInstruction, values: list[Tensor]) -> Value:
    """Return the arrays that an instruction makes: a tuple if there are several."""
    single = len(values) == 1 and not (i.shape is not None and i.shape.is_tuple)
    return values[0] if single else tuple(values)


def _one(function: _Unary) -> Translator:
    def translate(c: Context, _i: HloInstruction, args: list[Value]) -> Value:
        (x,) = tensors(args, 1)
        return function(c, x)

    return translate


def _two(function: _Binary) -> Translator:
    def translate(c: Context, i: HloInstruction, args: list[Value]) -> Value:
        a, b = tensors(args, 2)
        if a.dims != b.dims or a.type != b.type:
            raise Refused(
                "invalid", f"its operands differ: {a.type}{list(a.dims)} and {b.type}{list(b.dims)}"
            )
        constant = _folded(i.opcode, a, b)
        return function(c, a, b) if constant is None else constant

    return translate


def _unary(op: str) -> Translator:
    """An operator on floats."""

    def run(c: Context, x: Tensor) -> Tensor:
        if not is_float(x.type):
            raise Refused("invalid", f"its operand is {x.type}, expected a float")
        return c.apply(op, [x])

    return _one(run)


def _of_numbers(function: _Unary) -> Translator:
    def run(c: Context, x: Tensor) -> Tensor:
        _check_number(x)
        return function(c, x)

    return _one(run)


def _of_integers(function: _Unary) -> Translator:
    def run(c: Context, x: Tensor) -> Tensor:
        if not is_integer(x.type):
            raise Refused("invalid", f"its operand is {x.type}, expected an integer")
        return function(c, x)

    return _one(run)


def _check_number(x: Tensor) -> None:
    if x.type == "pred":
        raise Refused("invalid", "it has no meaning for pred")


def _binary(op: str, logical: str = "", bitwise: str = "") -> Translator:
    """An operator on numbers; ``logical`` on pred, ``bitwise`` on integers."""

    def run(c: Context, a: Tensor, b: Tensor) -> Tensor:
        name = logical if a.type == "pred" else bitwise if bitwise and is_integer(a.type) else op
        if not name:
            raise Refused("invalid", f"it has no meaning for {a.type}")
        return c.apply(name, [a, b])

    return _two(run)


# Folding: numbers that jax computes from shapes, as the count of a variance.

FOLD: dict[str, Callable[[Any, Any], Any]] = {
    "add": np.add,
    "subtract": np.subtract,
    "multiply": np.multiply,
    "maximum": np.maximum,
    "minimum": np.minimum,
    "and": np.bitwise_and,
    "or": np.bitwise_or,
}
COMPARE: dict[str, tuple[str, Callable[[Any, Any], Any]]] = {
    "EQ": ("Equal", np.equal),
    "NE": ("Equal", np.not_equal),
    "LT": ("Less", np.less),
    "GT": ("Greater", np.greater),
    "LE": ("LessOrEqual", np.less_equal),
    "GE": ("GreaterOrEqual", np.greater_equal),
}


def _folded(opcode: str, a: Tensor, b: Tensor) -> Tensor | None:
    """Compute an operator on two constants of one number each."""
    x, y = a.number, b.number
    if x is None or y is None or a.type not in NUMPY:
        return None
    with np.errstate(all="ignore"):
        if opcode in FOLD and a.type != "pred":
            if opcode in {"and", "or"} and is_float(a.type):
                return None
            value = FOLD[opcode](x, y)
        elif opcode == "divide" and is_float(a.type):
            value = np.divide(x, y)
        else:
            return None
    return Tensor("", a.type, a.dims, (), np.asarray(value, NUMPY[a.type]).reshape(()))


# Arithmetic


def _divide(c: Context, a: Tensor, b: Tensor) -> Tensor:
    """Divide, integers towards zero.

    An integer by zero gives -1 (all ones); the lowest by -1 gives the lowest.
    """
    _check_number(a)
    if not is_integer(a.type):
        return c.apply("Div", [a, b])
    safe, minus_one, zero = _safe_divisor(c, b)
    quotient = c.apply("Div", [a, safe])
    if minus_one is not None:
        quotient = c.where(minus_one, c.apply("Sub", [c.number(0, a.type), a]), quotient)
    ones = -1 if not is_unsigned(a.type) else (1 << bits(a.type)) - 1
    return quotient if zero is None else c.where(zero, c.number(ones, a.type), quotient)


def _remainder(c: Context, a: Tensor, b: Tensor) -> Tensor:
    """The sign of the dividend; integers by zero give the dividend."""
    _check_number(a)
    if not is_integer(a.type):
        return c.apply("Mod", [a, b], fmod=1)
    safe, _, zero = _safe_divisor(c, b)
    if bits(a.type) == 64:  # fmod=1 is computed in f64
        rest = c.apply("Sub", [a, c.apply("Mul", [c.apply("Div", [a, safe]), safe])])
    else:
        rest = c.apply("Mod", [a, safe], fmod=1)
    return rest if zero is None else c.where(zero, a, rest)


def _safe_divisor(c: Context, b: Tensor) -> tuple[Tensor, Tensor | None, Tensor | None]:
    """Replace 0 and -1, on which processors trap, by 1.

    Returns the divisor, where it was -1, where it was 0.
    """
    if b.constant is not None and not np.isin(b.constant, [0, -1]).any():
        return b, None, None
    zero = c.apply("Equal", [b, c.number(0, b.type)], "pred")
    one = c.number(1, b.type)
    if is_unsigned(b.type):
        return c.where(zero, one, b), None, zero
    minus_one = c.apply("Equal", [b, c.number(-1, b.type)], "pred")
    return c.where(c.apply("Or", [zero, minus_one]), one, b), minus_one, zero


def negate(c: Context, x: Tensor) -> Tensor:
    if is_unsigned(x.type):
        return c.apply("Sub", [c.number(0, x.type, x.dims), x])
    return c.apply("Neg", [x])


def _power(c: Context, a: Tensor, b: Tensor) -> Tensor:
    if not is_float(a.type):
        raise Refused(
            "unsupported",
            f"ONNX Runtime computes Pow of {a.type} in floating point, which is not exact",
        )
    return c.apply("Pow", [a, b])


# Functions


def _rsqrt(c: Context, x: Tensor) -> Tensor:
    return _in_float(c, x, lambda c, x: c.apply("Reciprocal", [c.apply("Sqrt", [x])]))


def _log_plus_one(c: Context, x: Tensor) -> Tensor:
    """log(u)·x/(u - 1) with u = 1 + x.

    It is exact where 1 + x rounds; log(u) for larger x.
    """
    return _in_float(c, x, _log1p)


def _log1p(c: Context, x: Tensor) -> Tensor:
    one = c.number(1, x.type)
    u = c.apply("Add", [x, one])
    log = c.apply("Log", [u])
    rounded = c.apply("Sub", [u, one])
    none = c.apply("Equal", [rounded, c.number(0, x.type)], "pred")
    exact = c.apply("Mul", [log, c.apply("Div", [x, c.where(none, one, rounded)])])
    small = c.apply("Less", [c.apply("Abs", [x]), c.number(0.5, x.type)], "pred")
    return c.where(none, x, c.where(small, exact, log))


def _exponential_minus_one(c: Context, x: Tensor) -> Tensor:
    """2t/(1 - t) with t = tanh(x/2).

    It is exact near 0; exp(x) - 1 for larger x.
    """
    return _in_float(c, x, _expm1)


def _expm1(c: Context, x: Tensor) -> Tensor:
    small = c.apply("Less", [c.apply("Abs", [x]), c.number(0.5, x.type)], "pred")
    t = c.apply(
        "Tanh", [c.apply("Mul", [c.where(small, x, c.number(0, x.type)), c.number(0.5, x.type)])]
    )
    near = c.apply("Div", [c.apply("Add", [t, t]), c.apply("Sub", [c.number(1, x.type), t])])
    return c.where(small, near, c.apply("Sub", [c.apply("Exp", [x]), c.number(1, x.type)]))


def _cbrt(c: Context, x: Tensor) -> Tensor:
    return _in_float(c, x, _cube_root)


def _cube_root(c: Context, x: Tensor) -> Tensor:
    root = c.apply("Pow", [c.apply("Abs", [x]), c.number(1 / 3, x.type)])
    return c.apply("Mul", [c.apply("Sign", [x]), root])


def _in_float(c: Context, x: Tensor, run: _Unary) -> Tensor:
    """Run several steps of a 16-bit float in f32, rounding once."""
    if not is_float(x.type):
        raise Refused("invalid", f"its operand is {x.type}, expected a float")
    return run(c, x) if x.type in {"f32", "f64"} else c.cast(run(c, c.cast(x, "f32")), x.type)


def _is_finite(c: Context, x: Tensor) -> Tensor:
    x = x if c.carrier("IsNaN", x.type) == x.type else c.cast(x, "f32")
    odd = c.apply("Or", [c.apply("IsNaN", [x], "pred"), c.apply("IsInf", [x], "pred")])
    return c.apply("Not", [odd])


def _sign(c: Context, x: Tensor) -> Tensor:
    if x.type != "s64":
        return c.apply("Sign", [x])
    zero = c.number(0, "s64")
    above, below = (c.cast(c.apply(op, [x, zero], "pred"), "s64") for op in ("Greater", "Less"))
    return c.apply("Sub", [above, below])


def _round_away(c: Context, x: Tensor) -> Tensor:
    """Halves go away from zero.

    The fraction is exact, whereas |x| + ½ may round up.
    """
    return _in_float(c, x, _round_afz)


def _round_afz(c: Context, x: Tensor) -> Tensor:
    size = c.apply("Abs", [x])
    whole = c.apply("Floor", [size])
    up = c.apply("GreaterOrEqual", [c.apply("Sub", [size, whole]), c.number(0.5, x.type)], "pred")
    rounded = c.apply("Add", [whole, c.cast(up, x.type)])
    return c.where(
        c.apply("Less", [x, c.number(0, x.type)], "pred"), c.apply("Neg", [rounded]), rounded
    )


def _atan2(c: Context, y: Tensor, x: Tensor) -> Tensor:
    """By quadrant: atan(y/x), and π where x is negative.

    π has the sign of y.
    """
    if not is_float(y.type):
        raise Refused("invalid", f"its operands are {y.type}, expected floats")
    if y.type not in {"f32", "f64"}:
        return c.cast(_atan2(c, c.cast(y, "f32"), c.cast(x, "f32")), y.type)
    kind = y.type
    zero, one = c.number(0, kind), c.number(1, kind)
    y_negative = signbit(c, y)
    x_negative = signbit(c, x)
    size_y, size_x = c.apply("Abs", [y]), c.apply("Abs", [x])
    steep = c.apply("Greater", [size_y, size_x], "pred")
    low, high = c.where(steep, size_x, size_y), c.where(steep, size_y, size_x)
    equal = c.apply("Equal", [low, high], "pred")  # also both infinite, both zero
    at_zero = c.apply("Equal", [high, zero], "pred")
    ratio = c.where(equal, one, c.apply("Div", [low, c.where(at_zero, one, high)]))
    angle = c.apply("Atan", [c.where(at_zero, zero, ratio)])
    angle = c.where(steep, c.apply("Sub", [c.number(math.pi / 2, kind), angle]), angle)
    angle = c.where(x_negative, c.apply("Sub", [c.number(math.pi, kind), angle]), angle)
    angle = c.where(y_negative, c.apply("Neg", [angle]), angle)
    odd = c.apply("Or", [c.apply("IsNaN", [x], "pred"), c.apply("IsNaN", [y], "pred")])
    return c.where(odd, c.number(math.nan, kind), angle)


def signbit(c: Context, x: Tensor) -> Tensor:
    """Whether x is below zero or -0; of nan, no. ONNX Runtime's Where loses the sign of -0."""
    zero, one = c.number(0, x.type), c.number(1, x.type)
    below = c.apply("Less", [x, zero], "pred")
    return c.apply("Or", [below, c.apply("Less", [c.apply("Div", [one, x]), zero], "pred")])


def _tan(c: Context, x: Tensor) -> Tensor:
    if x.type == "f64":
        return c.apply("Div", [c.apply("Sin", [x]), c.apply("Cos", [x])])
    return c.apply("Tan", [x])


# Logic and bits


def _not(c: Context, x: Tensor) -> Tensor:
    return c.apply("Not" if x.type == "pred" else "BitwiseNot", [x])


def unsigned(kind: str) -> str:
    return "u" + kind[1:]


def shift(c: Context, a: Tensor, b: Tensor, direction: str) -> Tensor:
    """Shift by 0 to width - 1.

    By more, or by a negative number, nothing is left.
    """
    if not is_integer(a.type):
        raise Refused("invalid", f"it has no meaning for {a.type}")
    width, kind = bits(a.type), a.type
    value, count = c.cast(a, unsigned(kind)), c.cast(b, unsigned(kind))
    if b.number is not None and 0 <= int(b.number) < width:
        return c.cast(c.apply("BitShift", [value, count], direction=direction), kind)
    inside = c.apply("Less", [count, c.number(width, unsigned(kind))], "pred")
    zero = c.number(0, unsigned(kind))
    shifted = c.apply("BitShift", [value, c.where(inside, count, zero)], direction=direction)
    return c.cast(c.where(inside, shifted, zero), kind)


def _shift_left(c: Context, a: Tensor, b: Tensor) -> Tensor:
    return shift(c, a, b, "LEFT")


def _shift_right_logical(c: Context, a: Tensor, b: Tensor) -> Tensor:
    return shift(c, a, b, "RIGHT")


def _shift_right_arithmetic(c: Context, a: Tensor, b: Tensor) -> Tensor:
    """Of a negative number, the complement of its shifted complement."""
    if is_unsigned(a.type):  # the sign is the highest bit there, too
        signed = "s" + a.type[1:]
        return c.cast(_shift_right_arithmetic(c, c.cast(a, signed), c.cast(b, signed)), a.type)
    negative = c.apply("Less", [a, c.number(0, a.type)], "pred")
    shifted = shift(c, c.where(negative, c.apply("BitwiseNot", [a]), a), b, "RIGHT")
    return c.where(negative, c.apply("BitwiseNot", [shifted]), shifted)


def _popcnt(c: Context, x: Tensor) -> Tensor:
    """Add neighbouring bits, pairs, and so on."""
    kind = x.type
    return c.cast(_count_ones(c, c.cast(c.cast(x, unsigned(kind)), "u64")), kind)


def _count_ones(c: Context, wide: Tensor) -> Tensor:
    for step, mask in ((1, 0x5555555555555555), (2, 0x3333333333333333), (4, 0x0F0F0F0F0F0F0F0F)):
        low = c.apply("BitwiseAnd", [wide, c.number(mask, "u64")])
        high = c.apply("BitShift", [wide, c.number(step, "u64")], direction="RIGHT")
        wide = c.apply("Add", [low, c.apply("BitwiseAnd", [high, c.number(mask, "u64")])])
    total = c.apply("Mul", [wide, c.number(0x0101010101010101, "u64")])
    return c.apply("BitShift", [total, c.number(56, "u64")], direction="RIGHT")


def _count_leading_zeros(c: Context, x: Tensor) -> Tensor:
    """Fill all bits below the first one.

    Then count those that are left.
    """
    kind = x.type
    wide = c.cast(c.cast(x, unsigned(kind)), "u64")
    for step in (1, 2, 4, 8, 16, 32):
        wide = c.apply(
            "BitwiseOr",
            [wide, c.apply("BitShift", [wide, c.number(step, "u64")], direction="RIGHT")],
        )
    return c.apply("Sub", [c.number(bits(kind), kind), c.cast(_count_ones(c, wide), kind)])


# Choice and conversion


def _compare(c: Context, i: HloInstruction, args: list[Value]) -> Value:
    a, b = tensors(args, 2)
    direction = i.attributes.get("direction", "")
    if direction not in COMPARE:
        raise Refused("invalid", f'direction="{direction}" is not known')
    total = is_float(a.type) and i.attributes.get("type") == "TOTALORDER"
    if a.dims != b.dims or a.type != b.type:
        raise Refused(
            "invalid", f"its operands differ: {a.type}{list(a.dims)} and {b.type}{list(b.dims)}"
        )
    if total:
        signed = not all(_is_canonical(c, operand.name) for operand in i.operands)
        return _total_order(c, a, b, direction, signed=signed)
    op, function = COMPARE[direction]
    if a.number is not None and b.number is not None:
        return Tensor("", "pred", a.dims, (), np.asarray(function(a.number, b.number), np.bool_))
    if a.type == "pred" and op != "Equal":  # false < true
        a, b = c.cast(a, "u8"), c.cast(b, "u8")
    result = c.apply(op, [a, b], "pred")
    return c.apply("Not", [result]) if direction == "NE" else result


def _is_canonical(c: Context, name: str) -> bool:
    """Whether an operand has one nan and no -0.

    It went through ``select(x != x, nan, select(x == 0, 0, x))``; nan is above all numbers.
    """
    outer = c.defined.get(name)
    if outer is None or outer.opcode != "select":
        return False
    is_nan, nan, rest = (c.defined.get(operand.name) for operand in outer.operands)
    if is_nan is None or nan is None or rest is None or rest.opcode != "select":
        return False
    is_zero, zero, plain = (c.defined.get(operand.name) for operand in rest.operands)
    if is_zero is None or zero is None or plain is None:
        return False
    sides = [operand.name for operand in is_nan.operands]
    return (
        (is_nan.opcode, is_nan.attributes.get("direction"), sides)
        == ("compare", "NE", [plain.name] * 2)
        and (is_zero.opcode, is_zero.attributes.get("direction")) == ("compare", "EQ")
        and [operand.name for operand in is_zero.operands]
        in ([plain.name, zero.name], [zero.name, plain.name])
        and _literal_of(c, nan) == "nan"
        and _literal_of(c, zero) == "0"
    )


def _literal_of(c: Context, instruction: HloInstruction) -> str:
    """Return a scalar constant's literal, also where broadcast; "" for others."""
    if instruction.opcode in {"broadcast", "reshape"} and instruction.operands:
        return _literal_of(c, c.defined[instruction.operands[0].name])
    return instruction.literal if instruction.opcode == "constant" else ""


def _total_order(c: Context, a: Tensor, b: Tensor, direction: str, *, signed: bool) -> Tensor:
    """Compare in an order where nan is above all numbers.

    Args:
        c: the context.
        a: the left side.
        b: the right side.
        direction: of the comparison.
        signed: whether there may be a -0, which is below 0.
    """
    if direction in {"GE", "LE", "NE"}:
        opposite = {"GE": "LT", "LE": "GT", "NE": "EQ"}[direction]
        return c.apply("Not", [_total_order(c, a, b, opposite, signed=signed)])
    if direction == "GT":
        a, b = b, a
    a, b = (x if x.type in {"f32", "f64"} else c.cast(x, "f32") for x in (a, b))
    nan_a, nan_b = (c.apply("IsNaN", [x], "pred") for x in (a, b))
    equal = c.apply("Equal", [a, b], "pred")
    if direction == "EQ":
        if signed:
            differ = c.apply("Xor", [signbit(c, a), signbit(c, b)])
            equal = c.apply("And", [equal, c.apply("Not", [differ])])
        return c.apply("Or", [equal, c.apply("And", [nan_a, nan_b])])
    below = c.apply("Less", [a, b], "pred")
    if signed:
        zeros = c.apply("And", [signbit(c, a), c.apply("Not", [signbit(c, b)])])
        below = c.apply("Or", [below, c.apply("And", [equal, zeros])])
    return c.apply("Or", [below, c.apply("And", [nan_b, c.apply("Not", [nan_a])])])


def _select(c: Context, _i: HloInstruction, args: list[Value]) -> Value:
    condition, yes, no = tensors(args, 3)
    if condition.type != "pred" or yes.type != no.type or yes.dims != no.dims:
        raise Refused("invalid", "expected a pred and two operands of one type and shape")
    if condition.dims not in {yes.dims, ()}:
        raise Refused(
            "invalid", f"its condition is {list(condition.dims)}, its operands are {list(yes.dims)}"
        )
    if condition.number is not None:
        return yes if condition.number else no
    if condition.dims != yes.dims:
        condition = c.broadcast(condition, yes.dims, [])
    return c.where(condition, yes, no)


def _clamp(c: Context, _i: HloInstruction, args: list[Value]) -> Value:
    low, x, high = tensors(args, 3)
    if low.type != x.type or high.type != x.type:
        raise Refused("invalid", "its operands have different types")
    bounds = [
        bound if bound.dims == x.dims else c.broadcast(bound, x.dims, [])
        for bound in (low, high)
        if bound.dims in {x.dims, ()}
    ]
    if len(bounds) != 2:
        raise Refused("invalid", "its bounds are neither scalars nor of the operand's shape")
    return c.apply("Min", [c.apply("Max", [x, bounds[0]]), bounds[1]])


def _convert(c: Context, i: HloInstruction, args: list[Value]) -> Value:
    (x,) = tensors(args, 1)
    return convert(c, x, array_shape(i.shape).type)


def convert(c: Context, x: Tensor, kind: str) -> Tensor:
    """Convert as HLO does.

    A float that is too large for an integer becomes its limit, nan becomes 0, pred is "≠ 0".
    """
    if kind == "pred" and x.type.startswith("f8"):  # ONNX Runtime takes -0 for true
        x = c.cast(x, "f32")
    if not is_float(x.type) or kind == "pred" or is_float(kind):
        return c.cast(x, kind)
    width = bits(kind)
    low, high = (
        (0, (1 << width) - 1) if is_unsigned(kind) else (-(1 << width - 1), (1 << width - 1) - 1)
    )
    if x.number is not None:
        number = float(x.number)
        value = (
            0
            if math.isnan(number)
            else low
            if number <= low
            else high
            if number >= high
            else int(number)
        )
        return c.number(value, kind, x.dims)
    wide = c.cast(x, "f64")
    without_nan = c.where(c.apply("IsNaN", [wide], "pred"), c.number(0, "f64"), wide)
    if width <= 32:
        bounded = c.apply(
            "Min", [c.apply("Max", [without_nan, c.number(low, "f64")]), c.number(high, "f64")]
        )
        if width < 8:  # ONNX Runtime rounds to 4 bits, XLA truncates
            bounded = c.cast(bounded, "s8" if low else "u8")
        return c.cast(bounded, kind)
    too_large = c.apply("GreaterOrEqual", [without_nan, c.number(float(high), "f64")], "pred")
    too_small = c.apply("Less", [without_nan, c.number(low, "f64")], "pred")
    inside = c.where(c.apply("Or", [too_large, too_small]), c.number(0, "f64"), without_nan)
    whole = c.cast(inside, kind)
    if kind == "u64":  # ONNX Runtime casts by s64 where the number is below 2⁶³
        half = c.apply("GreaterOrEqual", [inside, c.number(2.0**63, "f64")], "pred")
        upper = c.cast(
            c.apply("Sub", [inside, c.where(half, c.number(2.0**63, "f64"), c.number(0, "f64"))]),
            "s64",
        )
        offset = c.where(half, c.number(-(2**63), "s64"), c.number(0, "s64"))
        whole = c.cast(c.apply("BitwiseXor", [upper, offset]), "u64")
        limited = c.where(too_large, c.number(-1, "s64"), c.cast(whole, "s64"))
        return c.cast(c.where(too_small, c.number(0, "s64"), limited), "u64")
    return c.where(too_small, c.number(low, kind), c.where(too_large, c.number(high, kind), whole))


# Constants


def _constant(c: Context, i: HloInstruction, _args: list[Value]) -> Value:
    shape = array_shape(i.shape)
    if i.operands[0].literal is not None and i.operands[0].literal.is_elided:
        array = _elided(c, i)
    else:
        try:
            array = array_of(i.literal, shape)
        except ValueError as error:
            raise Refused(
                "invalid", f"its literal is no {shape.type}{list(shape.dimensions)}: {error}"
            ) from error
    if c.batch is not None:
        if shape.dimensions:
            raise Refused(
                "unsupported",
                "it makes an array inside a computation that is applied to single elements",
            )
        return Tensor("", shape.type, c.batch, (), array)
    return Tensor("", shape.type, shape.dimensions, shape.dimensions, array, c.body.instruction)


def _elided(c: Context, i: HloInstruction) -> Any:
    """Return the value that the user gave for ``constant({...})``."""
    shape = array_shape(i.shape)
    dtype = NUMPY[shape.type]
    if c.settings.random_constants:
        draw = np.random.default_rng(zlib.crc32(i.name.encode()))
        if shape.type == "pred":
            return draw.integers(0, 2, shape.dimensions).astype(dtype)
        if is_integer(shape.type):
            return draw.integers(0, 4, shape.dimensions).astype(dtype)
        return draw.standard_normal(shape.dimensions).astype(dtype)
    arrays = c.settings.constants
    if arrays is None:
        raise Refused(
            "missing",
            "elided: print with print_large_constants, or give --constants (gehost hlo import)",
        )
    if i.name not in arrays:
        raise Refused("missing", "elided, and the file of --constants has no array of its name")
    array = arrays[i.name]
    if array.shape != shape.dimensions or not np.can_cast(array.dtype, dtype, "same_kind"):
        raise Refused(
            "invalid",
            f"the array of --constants is {array.dtype}{list(array.shape)}, expected {shape}",
        )
    return array.astype(dtype)


TABLE: dict[str, Translator] = {
    "add": _binary("Add", logical="Or"),
    "subtract": _binary("Sub"),
    "multiply": _binary("Mul", logical="And"),
    "divide": _two(_divide),
    "remainder": _two(_remainder),
    "maximum": _binary("Max", logical="Or"),
    "minimum": _binary("Min", logical="And"),
    "power": _two(_power),
    "atan2": _two(_atan2),
    "and": _binary("", logical="And", bitwise="BitwiseAnd"),
    "or": _binary("", logical="Or", bitwise="BitwiseOr"),
    "xor": _binary("", logical="Xor", bitwise="BitwiseXor"),
    "not": _one(_not),
    "shift-left": _two(_shift_left),
    "shift-right-logical": _two(_shift_right_logical),
    "shift-right-arithmetic": _two(_shift_right_arithmetic),
    "popcnt": _of_integers(_popcnt),
    "count-leading-zeros": _of_integers(_count_leading_zeros),
    "negate": _of_numbers(negate),
    "abs": _of_numbers(lambda c, x: c.apply("Abs", [x])),
    "sign": _of_numbers(_sign),
    "exponential": _unary("Exp"),
    "exponential-minus-one": _one(_exponential_minus_one),
    "log": _unary("Log"),
    "log-plus-one": _one(_log_plus_one),
    "logistic": _unary("Sigmoid"),
    "tanh": _unary("Tanh"),
    "sine": _unary("Sin"),
    "cosine": _unary("Cos"),
    "tan": _one(_tan),
    "acos": _unary("Acos"),
    "acosh": _unary("Acosh"),
    "asin": _unary("Asin"),
    "asinh": _unary("Asinh"),
    "atanh": _unary("Atanh"),
    "cosh": _unary("Cosh"),
    "sinh": _unary("Sinh"),
    "erf": _unary("Erf"),
    "sqrt": _unary("Sqrt"),
    "rsqrt": _one(_rsqrt),
    "cbrt": _one(_cbrt),
    "floor": _unary("Floor"),
    "ceil": _unary("Ceil"),
    "round-nearest-even": _unary("Round"),
    "round-nearest-afz": _one(_round_away),
    "is-finite": _one(_is_finite),
    "compare": _compare,
    "select": _select,
    "clamp": _clamp,
    "convert": _convert,
    "constant": _constant,
}
