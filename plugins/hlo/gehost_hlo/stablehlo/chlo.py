"""Operations of CHLO: opcodes of HLO, or arithmetic in their place."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from gehost_hlo.module import HloInstruction, Shape
from gehost_hlo.stablehlo.attributes import attribute, integers, word
from gehost_hlo.stablehlo.builder import Builder, Converter
from gehost_mlir.operations import Operation

_OPCODES = frozenset(["acos", "acosh", "asin", "asinh", "atanh", "cosh", "sinh", "erf", "tan"])
_NARROW = frozenset({"f16", "bf16"})


class Expression:
    """A value in arithmetic, with Python's operators."""

    def __init__(self, b: Builder, value: HloInstruction) -> None:
        self.b = b
        self.value = value

    @property
    def shape(self) -> Shape:
        assert self.value.shape is not None
        return self.value.shape

    def _other(self, other: Expression | float | str) -> HloInstruction:
        return (
            other.value if isinstance(other, Expression) else self.b.scalar(str(other), self.shape)
        )

    def apply(
        self, opcode: str, *others: Expression | float | str, **attributes: str
    ) -> Expression:
        operands = [self.value, *map(self._other, others)]
        shape = self.shape
        if opcode in {"compare", "is-finite"}:
            shape = Shape("pred", self.shape.dimensions)
        name = f"{self.b.named('chlo')}.{opcode}"
        return Expression(self.b, self.b.add(opcode, operands, shape, attributes, name))

    def __add__(self, other: Expression | float | str) -> Expression:
        return self.apply("add", other)

    def __sub__(self, other: Expression | float | str) -> Expression:
        return self.apply("subtract", other)

    def __mul__(self, other: Expression | float | str) -> Expression:
        return self.apply("multiply", other)

    def __truediv__(self, other: Expression | float | str) -> Expression:
        return self.apply("divide", other)

    def __neg__(self) -> Expression:
        return self.apply("negate")

    def compare(self, direction: str, other: Expression | float | str) -> Expression:
        return self.apply("compare", other, direction=direction)

    def choose(self, yes: Expression | float | str, no: Expression) -> Expression:
        """Where this predicate is true, ``yes``."""
        first = yes.value if isinstance(yes, Expression) else self.b.scalar(str(yes), no.shape)
        name = f"{self.b.named('chlo')}.select"
        result = self.b.add("select", [self.value, first, no.value], no.shape, name=name)
        return Expression(self.b, result)

    def bits(self, kind: str) -> Expression:
        shape = Shape(kind, self.shape.dimensions)
        name = f"{self.b.named('chlo')}.bits"
        result = self.b.add("bitcast-convert", [self.value], shape, name=name)
        return Expression(self.b, result)

    def to(self, kind: str) -> Expression:
        if kind == self.shape.type:
            return self
        shape = Shape(kind, self.shape.dimensions)
        name = f"{self.b.named('chlo')}.convert"
        return Expression(self.b, self.b.add("convert", [self.value], shape, name=name))


def convert(c: Converter, b: Builder, o: Operation, name: str) -> Sequence[HloInstruction]:
    """Make the instructions of ``chlo.name``; returns those of its results."""
    if name in {"top_k", "topk"}:
        return top_k(b, o)
    operands = [b.value(operand) for operand in o.operands]
    if name.startswith("broadcast_"):
        return [_broadcasting(b, o, name.removeprefix("broadcast_"), operands)]
    if name == "mulhi":
        return [b.add("mulhi", operands, b.shape(o.result_types[0]))]
    if name in _OPCODES and len(operands) == 1:
        return [b.add(name, operands, b.shape(o.result_types[0]))]
    if name == "next_after" and [operand.shape for operand in operands] == [operands[0].shape] * 2:
        return [_next_after(*(Expression(b, operand) for operand in operands)).value]
    function = _FUNCTIONS.get(name)
    if function is None or len(operands) != 1:
        raise c.reader.error(f"{o.name} is not translated", o.position)
    x = Expression(b, operands[0])
    kind = x.shape.type
    if kind not in {"f32", "f64", *_NARROW} or (kind, name) == ("f64", "erf_inv"):
        raise c.reader.error(f"{o.name} of {kind} is not translated", o.position)
    wide = x.to("f32") if kind in _NARROW else x  # rounded once
    return [function(wide).to(b.shape(o.result_types[0]).type).value]


def top_k(b: Builder, o: Operation) -> Sequence[HloInstruction]:
    """HLO's topk: values and indices along the last dimension."""
    shape = Shape("tuple", elements=tuple(map(b.shape, o.result_types)))
    text = attribute(o, "k", default="")
    k = integers(text)[0] if text else b.shape(o.result_types[0]).dimensions[-1]
    operands = [b.value(o.operands[0])]
    whole = b.add("topk", operands, shape, {"k": str(k), "largest": "true"}, b.named("topk"))
    return [
        b.element(whole, index, name) for index, name in enumerate(map(_result_name, o.results))
    ]


def _result_name(name: str) -> str:
    return "" if name.partition("#")[0].isdigit() else name


def _broadcasting(
    b: Builder, o: Operation, name: str, operands: list[HloInstruction]
) -> HloInstruction:
    """Operands of several ranks: the last dimensions are aligned."""
    result = b.shape(o.result_types[0])
    aligned: list[HloInstruction] = []
    for operand in operands:
        assert operand.shape is not None
        shape = Shape(operand.shape.type, result.dimensions)
        axes = range(result.rank - operand.shape.rank, result.rank)
        same = operand.shape.dimensions == result.dimensions
        aligned.append(operand if same else b.broadcast(operand, shape, axes))
    attributes: dict[str, str] = {}
    if name == "compare":
        attributes["direction"] = word(attribute(o, "comparison_direction"))
    return b.add(name.replace("_", "-"), aligned, result, attributes)


# Functions of one float


def _polynomial(x: Expression, *coefficients: float) -> Expression:
    """Horner's scheme, the highest power first."""
    value = x * 0.0 + coefficients[0]
    for coefficient in coefficients[1:]:
        value = value * x + coefficient
    return value


def _log_gamma(x: Expression) -> Expression:
    """Lanczos's sum of g = 7 for x ≥ ½; reflection below."""
    low = x.compare("LT", 0.5)
    z = low.choose(-x, x - 1.0)
    total = z * 0.0 + _LANCZOS[0]
    for place, coefficient in enumerate(_LANCZOS[1:], 1):
        total = total + (z * 0.0 + coefficient) / (z + float(place))
    half = z + 0.5
    log_t = ((z / 7.5).apply("log-plus-one")) + math.log(7.5)
    t = z + 7.5
    value = half * log_t - t + total.apply("log") + 0.5 * math.log(2 * math.pi)
    size = x.apply("abs")
    rest = size - size.apply("floor")
    rest = rest.compare("GT", 0.5).choose(-rest + 1.0, rest)
    sine = (rest * math.pi).apply("sine").apply("log")
    reflected = sine.apply("is-finite").choose(-sine + math.log(math.pi) - value, -sine)
    result = low.choose(reflected, value)
    return size.compare("EQ", math.inf).choose(math.inf, result)


_LANCZOS = (
    0.99999999999980993227684700473478,
    676.520368121885098567009190444019,
    -1259.13921672240287047156078755283,
    771.3234287776530788486528258894,
    -176.61502916214059906584551354,
    12.507343278686904814458936853,
    -0.13857109526572011689554707,
    9.984369578019570859563e-6,
    1.50563273514931155834e-7,
)


def _digamma(x: Expression) -> Expression:
    """The asymptotic series behind ten steps of the recurrence; reflection below ½."""
    low = x.compare("LT", 0.5)
    y = low.choose(-x + 1.0, x)
    shifted = y * 0.0
    for _ in range(10):
        small = y.compare("LT", 10.0)
        shifted = small.choose(shifted - (y * 0.0 + 1.0) / y, shifted)
        y = small.choose(y + 1.0, y)
    square = (y * 0.0 + 1.0) / (y * y)
    series = square * _polynomial(square, -1 / 132, 1 / 240, -1 / 252, 1 / 120, -1 / 12)
    value = shifted + y.apply("log") - (y * 0.0 + 0.5) / y + series
    rest = x - x.apply("round-nearest-even")
    angle = rest * math.pi
    reflected = value - (angle.apply("cosine") / angle.apply("sine")) * math.pi
    result = low.choose(reflected, value)
    at_pole = x.compare("LE", 0.0).apply("and", x.compare("EQ", x.apply("floor")))
    return at_pole.choose(math.nan, result)


def _erfc(x: Expression) -> Expression:
    """1 - erf below 1; a continued fraction of exp(-x²) above, where that loses digits."""
    size = x.apply("abs")
    large = size.compare("GT", 2.0)
    y = large.choose(size, size * 0.0 + 2.0)
    fraction = y * 0.0
    for place in range(24, 0, -1):
        fraction = (y * 0.0 + place / 2) / (y + fraction)
    tail = (-(y * y)).apply("exponential") / ((y + fraction) * math.sqrt(math.pi))
    tail = x.compare("LT", 0.0).choose(-tail + 2.0, tail)
    return large.choose(tail, -x.apply("erf") + 1.0)


def _erf_inv(x: Expression) -> Expression:
    """Giles's polynomials in w = -log(1 - x²)."""
    w = -((-(x * x)).apply("log-plus-one"))
    near = _polynomial(w - 2.5, *_GILES_NEAR)
    far = _polynomial(w.apply("sqrt") - 3.0, *_GILES_FAR)
    value = w.compare("LT", 5.0).choose(near, far) * x
    return x.apply("abs").compare("EQ", 1.0).choose(x * math.inf, value)


_GILES_NEAR = (
    2.81022636e-08,
    3.43273939e-07,
    -3.5233877e-06,
    -4.39150654e-06,
    0.00021858087,
    -0.00125372503,
    -0.00417768164,
    0.246640727,
    1.50140941,
)
_GILES_FAR = (
    -0.000200214257,
    0.000100950558,
    0.00134934322,
    -0.00367342844,
    0.00573950773,
    -0.0076224613,
    0.00943887047,
    1.00167406,
    2.83297682,
)


def _next_after(x: Expression, y: Expression) -> Expression:
    """The next f32 towards y: one more or one less in the bits."""
    if x.shape.type != "f32":
        raise ValueError(f"of {x.shape.type} it is not translated")
    away = x.compare("LT", y).compare("EQ", x.compare("GT", 0))
    whole = x.bits("s32")
    moved = away.choose(whole + 1, whole - 1).bits("f32")
    tiny = y.compare("GT", 0).choose("1e-45", y * 0.0 + "-1e-45")
    moved = x.compare("EQ", 0).choose(tiny, moved)
    moved = x.compare("EQ", y).choose(y, moved)
    odd = x.compare("NE", x).apply("or", y.compare("NE", y))
    return odd.choose(math.nan, moved)


def _is_inf(x: Expression) -> Expression:
    return x.apply("abs").compare("EQ", math.inf)


_FUNCTIONS: dict[str, Callable[[Expression], Expression]] = {
    "square": lambda x: x * x,
    "atan": lambda x: x.apply("atan2", 1.0),
    "lgamma": _log_gamma,
    "digamma": _digamma,
    "erfc": _erfc,
    "erf_inv": _erf_inv,
    "is_inf": _is_inf,
    "is_pos_inf": lambda x: x.compare("EQ", math.inf),
    "is_neg_inf": lambda x: x.compare("EQ", -math.inf),
}
