"""The bits of numbers: reduce-precision, bitcast-convert, the high half of a product."""

from __future__ import annotations

import math

import numpy as np

from gehost import Refused
from gehost_hlo.attributes import integer
from gehost_hlo.context import Context, Translator, array_shape
from gehost_hlo.emit import Tensor, Value
from gehost_hlo.literals import bits, is_integer, is_unsigned
from gehost_hlo.module import HloInstruction
from gehost_hlo.translate.elementwise import shift, signbit, tensors, unsigned

_EXPONENT = {"f32": 8, "f16": 5, "bf16": 8}
_MANTISSA = {"f32": 23, "f16": 10, "bf16": 7}


def _reduce_precision(c: Context, i: HloInstruction, args: list[Value]) -> Value:
    """Round the bits to those of a narrower float.

    A number too large for it becomes infinite, one below its smallest normal number 0.
    """
    (x,) = tensors(args, 1)
    exponent, mantissa = integer(i, "exponent_bits"), integer(i, "mantissa_bits")
    kind = x.type
    if kind not in _EXPONENT or exponent < 1 or mantissa < 0:
        raise Refused("unsupported", f"of {kind} to e{exponent}m{mantissa} it is not translated")
    exponent, mantissa = min(exponent, _EXPONENT[kind]), min(mantissa, _MANTISSA[kind])
    if (exponent, mantissa) == (_EXPONENT[kind], _MANTISSA[kind]):
        return x
    if (exponent, mantissa, kind) == (8, 7, "f32"):
        return c.cast(c.cast(x, "bf16"), kind)
    word = "u32" if kind == "f32" else "u16"
    whole = c.cast(reinterpret(c, x, word), "u32")
    reduced = _rounded(c, whole, kind, exponent, mantissa)
    result = reinterpret(c, c.cast(reduced, word), kind)
    wide = x if c.carrier("IsNaN", kind) == kind else c.cast(x, "f32")
    return c.where(c.apply("IsNaN", [wide], "pred"), x, result)


def _rounded(c: Context, whole: Tensor, kind: str, exponent: int, mantissa: int) -> Tensor:
    """The bits of a float, rounded half to even, with fewer bits of exponent and mantissa."""

    def number(value: int) -> Tensor:
        return c.number(value, "u32")

    places = _MANTISSA[kind]
    sign = c.apply("BitwiseAnd", [whole, number(1 << (bits_of(kind) - 1))])
    size = c.apply("BitwiseAnd", [whole, number((1 << (bits_of(kind) - 1)) - 1)])
    infinity = ((1 << _EXPONENT[kind]) - 1) << places
    dropped = places - mantissa
    if dropped:
        last = c.apply("BitShift", [size, number(dropped)], direction="RIGHT")
        bias = c.apply(
            "Add", [c.apply("BitwiseAnd", [last, number(1)]), number((1 << dropped - 1) - 1)]
        )
        size = c.apply(
            "BitwiseAnd", [c.apply("Add", [size, bias]), number(0xFFFFFFFF ^ ((1 << dropped) - 1))]
        )
    if exponent < _EXPONENT[kind]:
        own, other = ((1 << width - 1) - 1 for width in (_EXPONENT[kind], exponent))
        field = c.apply("BitwiseAnd", [size, number(infinity)])
        above = c.apply("Greater", [field, number((own + other) << places)], "pred")
        below = c.apply("LessOrEqual", [field, number((own - other) << places)], "pred")
        size = c.where(below, number(0), c.where(above, number(infinity), size))
    return c.apply("BitwiseOr", [sign, size])


def bits_of(kind: str) -> int:
    """The width of a float."""
    return 1 + _EXPONENT[kind] + _MANTISSA[kind]


def _bitcast_convert(c: Context, i: HloInstruction, args: list[Value]) -> Value:
    """Of other widths, there is a last dimension of the parts, the lowest bits first."""
    (x,) = tensors(args, 1)
    kind = array_shape(i.shape).type
    width, own = _width(kind), _width(x.type)
    if width == own or min(width, own) < 8:
        return reinterpret(c, x, kind)
    if width < own:
        whole = reinterpret(c, x, f"u{own}")
        return reinterpret(c, _cut_bits(c, whole, f"u{width}"), kind)
    if not x.rank:
        raise Refused("unsupported", f"a scalar of {x.type} has too few bits for {kind}")
    return reinterpret(c, _joined_bits(c, reinterpret(c, x, f"u{own}"), f"u{width}"), kind)


def _width(kind: str) -> int:
    if is_integer(kind):
        return bits(kind)
    if kind.startswith("f8"):
        return 8
    widths = {"f16": 16, "bf16": 16, "f32": 32, "f64": 64}
    if kind not in widths:
        raise Refused("unsupported", f"ONNX cannot read the bits of {kind}")
    return widths[kind]


def _cut_bits(c: Context, x: Tensor, kind: str) -> Tensor:
    """Make integers of fewer bits, along a new last dimension; the lowest bits come first."""
    whole, part = c.cast(x, unsigned(x.type)), unsigned(kind)
    mask = c.number((1 << bits(kind)) - 1, whole.type)
    parts = [
        c.apply("BitwiseAnd", [shift(c, whole, c.number(low, whole.type), "RIGHT"), mask])
        for low in range(0, bits(x.type), bits(kind))
    ]
    rows = [c.reshape(c.cast(part_, part), [*x.dims, 1]) for part_ in parts]
    return c.cast(c.concat(rows, x.rank), kind)


def _joined_bits(c: Context, x: Tensor, kind: str) -> Tensor:
    """Make integers of more bits of those along the last dimension."""
    wide = c.cast(c.cast(x, unsigned(x.type)), unsigned(kind))
    rows = [(0, size, 1) for size in x.dims[:-1]]
    whole = c.number(0, wide.type, x.dims[:-1])
    for place in range(bits(kind) // bits(x.type)):
        part = c.reshape(c.slice(wide, [*rows, (place, place + 1, 1)]), x.dims[:-1])
        count = c.number(place * bits(x.type), wide.type)
        whole = c.apply("BitwiseOr", [whole, shift(c, part, count, "LEFT")])
    return c.cast(whole, kind)


def reinterpret(c: Context, x: Tensor, kind: str) -> Tensor:
    """Read a tensor's bits as another type of the same width.

    Raises:
        Refused: ONNX has no operator for it, and none can be made of arithmetic that is exact
            for every number.
    """
    if kind == x.type:
        return x
    if is_integer(kind) and is_integer(x.type) and bits(kind) == bits(x.type):
        return c.cast(x, kind)
    if kind == "f32" and x.type in {"u32", "s32"}:
        return _float_of_bits(c, c.cast(x, "u32"))
    if x.type == "f32" and kind in {"u32", "s32"}:
        return c.cast(_bits_of_float(c, x), kind)
    if x.type == "bf16" and kind in {"u16", "s16"}:  # the upper half of an f32
        wide = _bits_of_float(c, c.cast(x, "f32"))
        return c.cast(c.apply("BitShift", [wide, c.number(16, "u32")], direction="RIGHT"), kind)
    if kind == "bf16" and x.type in {"u16", "s16"}:
        wide = c.cast(c.cast(x, "u16"), "u32")
        upper = c.apply("BitShift", [wide, c.number(16, "u32")], direction="LEFT")
        return c.cast(_float_of_bits(c, upper), kind)
    if x.type == "f16" and kind in {"u16", "s16"}:
        return c.cast(_bits_of_half(c, x), kind)
    if kind == "f16" and x.type in {"u16", "s16"}:
        return _half_of_bits(c, c.cast(c.cast(x, "u16"), "u32"))
    raise Refused("unsupported", f"ONNX cannot read the bits of {x.type} as {kind}")


def _bits_of_half(c: Context, x: Tensor) -> Tensor:
    """The 16 bits of an f16, in u32.

    Those of its f32 with another bias of the exponent; below 2^-14, how often 2^-24 is in it.
    """
    wide = c.cast(x, "f32")
    whole = _bits_of_float(c, wide)
    sign = c.apply("BitShift", [whole, c.number(31, "u32")], direction="RIGHT")
    size = c.apply("BitwiseAnd", [whole, c.number(0x7FFFFFFF, "u32")])
    places = c.apply("BitShift", [size, c.number(13, "u32")], direction="RIGHT")
    odd = c.apply("GreaterOrEqual", [size, c.number(0x7F800000, "u32")], "pred")
    bias = c.where(odd, c.number((255 - 31) << 10, "u32"), c.number((127 - 15) << 10, "u32"))
    small = c.apply("Less", [size, c.number((127 - 14) << 23, "u32")], "pred")
    count = c.where(small, c.apply("Abs", [wide]), c.number(0, "f32"))
    steps = c.cast(c.apply("Mul", [count, c.number(2.0**24, "f32")]), "u32")
    usual = c.apply("Sub", [c.where(small, bias, places), bias])
    half = c.where(small, steps, usual)
    return c.apply(
        "BitwiseOr", [half, c.apply("BitShift", [sign, c.number(15, "u32")], direction="LEFT")]
    )


def _half_of_bits(c: Context, whole: Tensor) -> Tensor:
    """The f16 of 16 bits in u32; nan loses its payload."""
    size = c.apply("BitwiseAnd", [whole, c.number(0x7FFF, "u32")])
    small = c.apply("Less", [size, c.number(1 << 10, "u32")], "pred")
    odd = c.apply("GreaterOrEqual", [size, c.number(31 << 10, "u32")], "pred")
    bias = c.where(odd, c.number((255 - 31) << 10, "u32"), c.number((127 - 15) << 10, "u32"))
    place = c.apply("Add", [size, bias])
    usual = _float_of_bits(c, c.apply("BitShift", [place, c.number(13, "u32")], direction="LEFT"))
    value = c.where(small, c.apply("Mul", [c.cast(size, "f32"), c.number(2.0**-24, "f32")]), usual)
    negative = c.apply("GreaterOrEqual", [whole, c.number(1 << 15, "u32")], "pred")
    return c.cast(_signed(c, value, negative), "f16")


def _bits_of_float(c: Context, x: Tensor) -> Tensor:
    """Compute the 32 bits of an f32, exactly.

    In f64 every f32 is normal, and powers of two divide it without rounding.

    nan becomes 0x7fc00000; its sign and payload are lost.
    """
    size = c.cast(c.apply("Abs", [x]), "f64")
    nan = c.apply("IsNaN", [size], "pred")
    infinite = c.apply("Equal", [size, c.number(math.inf, "f64")], "pred")
    odd = c.apply("Or", [nan, infinite])
    tiny = c.apply("Less", [size, c.number(2.0**-126, "f64")], "pred")
    usual = c.where(c.apply("Or", [odd, tiny]), c.number(1, "f64"), size)
    power = c.apply(
        "Floor", [c.apply("Mul", [c.apply("Log", [usual]), c.number(1 / math.log(2), "f64")])]
    )
    power = c.apply("Min", [c.apply("Max", [power, c.number(-126, "f64")]), c.number(127, "f64")])
    scale = _power_of_two(c, power)
    high = c.apply(
        "GreaterOrEqual", [usual, c.apply("Add", [scale, scale])], "pred"
    )  # the logarithm is rounded
    low = c.apply("Less", [usual, scale], "pred")
    power = c.apply("Sub", [c.apply("Add", [power, c.cast(high, "f64")]), c.cast(low, "f64")])
    power = c.where(tiny, c.number(-126, "f64"), power)
    mantissa = c.apply("Div", [c.where(odd, c.number(1, "f64"), size), _power_of_two(c, power)])
    steps = c.apply("Add", [c.apply("Add", [power, c.number(126, "f64")]), mantissa])
    bits = c.apply("Mul", [steps, c.number(2.0**23, "f64")])
    bits = c.where(
        infinite, c.number(0x7F800000, "f64"), c.where(nan, c.number(0x7FC00000, "f64"), bits)
    )
    sign = c.apply("Mul", [c.cast(signbit(c, x), "f64"), c.number(2.0**31, "f64")])
    return c.cast(c.apply("Add", [bits, sign]), "u32")


def _power_of_two(c: Context, power: Tensor) -> Tensor:
    """Return 2^power for whole numbers from -127 to 128."""
    table = c.body.constant(np.array([2.0**e for e in range(-127, 129)], np.float64))
    index = c.cast(c.apply("Add", [power, c.number(127, "f64")]), "s32")
    (element,) = c.body.op("Gather", [table, c.body.held(index)])
    return Tensor(element, "f64", power.dims, index.stored)


def _float_of_bits(c: Context, x: Tensor) -> Tensor:
    """Compute the f32 that 32 bits mean, exactly.

    mantissa · 2^(exponent - 150), with the hidden bit; nan loses its payload.
    """
    exponent = c.apply(
        "BitwiseAnd",
        [c.apply("BitShift", [x, c.number(23, "u32")], direction="RIGHT"), c.number(255, "u32")],
    )
    fraction = c.apply("BitwiseAnd", [x, c.number(0x7FFFFF, "u32")])
    denormal = c.apply("Equal", [exponent, c.number(0, "u32")], "pred")
    special = c.apply("Equal", [exponent, c.number(255, "u32")], "pred")
    hidden = c.where(denormal, c.number(0, "u32"), c.number(1 << 23, "u32"))
    mantissa = c.cast(c.apply("Add", [fraction, hidden]), "f64")
    table = c.body.constant(
        np.array([2.0**-149, *(2.0 ** (e - 150) for e in range(1, 255)), math.inf], np.float64)
    )
    index = c.cast(exponent, "s32")
    (scale,) = c.body.op("Gather", [table, c.body.held(index)])
    size = c.apply("Mul", [mantissa, Tensor(scale, "f64", x.dims, index.stored)])
    payload = c.apply("And", [special, c.apply("Greater", [fraction, c.number(0, "u32")], "pred")])
    size = c.where(payload, c.number(math.nan, "f64"), size)
    negative = c.apply("GreaterOrEqual", [x, c.number(1 << 31, "u32")], "pred")
    return c.cast(_signed(c, size, negative), "f32")


def _signed(c: Context, size: Tensor, negative: Tensor) -> Tensor:
    """Multiply by -1 where ``negative``: ONNX Runtime's Where loses the sign of -0."""
    minus, plus = c.number(-1, size.type), c.number(1, size.type)
    return c.apply("Mul", [size, c.where(negative, minus, plus)])


def _high_product(c: Context, _i: HloInstruction, args: list[Value]) -> Value:
    """The upper half of a product of integers, from products of half as many bits."""
    a, b = tensors(args, 2)
    kind = a.type
    if not is_integer(kind) or a.type != b.type or a.dims != b.dims or bits(kind) < 8:
        raise Refused("invalid", "its operands are no integers of one type and shape")
    if bits(kind) < 64:
        wide = "u64" if is_unsigned(kind) else "s64"
        product = c.apply("Mul", [c.cast(a, wide), c.cast(b, wide)])
        upper = shift(c, product, c.number(bits(kind), wide), "RIGHT")
        return c.cast(c.cast(upper, f"u{bits(kind)}"), kind)
    x, y = c.cast(a, "u64"), c.cast(b, "u64")
    mask, half = c.number(0xFFFFFFFF, "u64"), c.number(32, "u64")

    def upper_half(value: Tensor) -> Tensor:
        return c.apply("BitShift", [value, half], direction="RIGHT")

    def lower_half(value: Tensor) -> Tensor:
        return c.apply("BitwiseAnd", [value, mask])

    low = c.apply("Mul", [lower_half(x), lower_half(y)])
    first = c.apply("Add", [c.apply("Mul", [upper_half(x), lower_half(y)]), upper_half(low)])
    second = c.apply("Add", [c.apply("Mul", [lower_half(x), upper_half(y)]), lower_half(first)])
    top = c.apply("Add", [c.apply("Mul", [upper_half(x), upper_half(y)]), upper_half(first)])
    top = c.apply("Add", [top, upper_half(second)])
    if is_unsigned(kind):
        return top
    result = c.cast(top, "s64")  # a negative factor was taken 2^64 too large
    zero = c.number(0, "s64")
    for one, other in ((a, b), (b, a)):
        negative = c.apply("Less", [one, zero], "pred")
        result = c.apply("Sub", [result, c.where(negative, other, zero)])
    return result


TABLE: dict[str, Translator] = {
    "reduce-precision": _reduce_precision,
    "bitcast-convert": _bitcast_convert,
    "mulhi": _high_product,
}
