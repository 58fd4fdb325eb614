"""sort and topk: TopK on the key, GatherElements on operands.

ONNX Runtime's TopK keeps the order of equal keys. A comparator of a function of one operand
sorts by that function of the whole operand.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping

from msgspec.structs import replace

from gehost import Refused
from gehost_hlo.attributes import dimension, integer
from gehost_hlo.context import Context, Translator
from gehost_hlo.emit import Tensor, Value
from gehost_hlo.literals import bits, is_float, is_integer, is_unsigned
from gehost_hlo.module import HloComputation, HloInstruction
from gehost_hlo.translate.elementwise import results, signbit, tensors
from gehost_hlo.translate.reduction import combine, expression

_KEY = (
    r"(?:select\(NE\(p{0},p{0}\),nan,select\(EQ\(p{0},0\),0,p{0}\)\)"
    r"|select\(EQ\(p{0},0\),0,p{0}\)|p{0})"
)


_LARGEST = "(?:32767|2147483647|9223372036854775807)"
_INTEGER_KEY = re.compile(
    r"select\(LT\((bitcast(?:-convert)?)\((.{1,90}?)\),0\),"
    rf"(?:\1\()?(?:xor|subtract)\((?:{_LARGEST},\1\(\2\)|\1\(\2\),{_LARGEST})\)\)?,"
    r"\1\(\2\)\)"
)
"""XLA's form of a total order of floats: their bits as integers, those of negative numbers turned
round.
"""


def keys(
    comparator: HloComputation, find: Callable[[str], HloComputation]
) -> tuple[list[int], bool] | None:
    """Return the operands that a comparator orders by.

    The first comes first; also whether the largest come first.

    Known are ``a < b`` and ``a > b`` of one operand, with jax's treatment of nan and -0 before it,
    and jax's order by several keys: the first decides, and where it is equal the next. A total
    order of floats that may be -0 is not known.
    """
    text_ = expression(comparator, find)
    text = _INTEGER_KEY.sub(r"\2", text_)
    total = text != text_ or ".TOTALORDER" in text
    text = text.replace(".TOTALORDER", "")
    single = re.fullmatch(rf"(LT|GT)\(({_any_key()}),({_any_key()})\)", text)
    if single is not None:
        pair = _pair(single[2], single[3])
        keys_ = None if pair is None else ([pair], single[1] == "GT")
    else:
        keys_ = _lexicographic(text)
    if keys_ is None or not total:
        return keys_
    types = {
        int(parameter.literal): parameter.shape.type
        for parameter in comparator.parameters
        if parameter.shape is not None
    }
    raw = any(
        is_float(types.get(2 * key, "f32")) and not _without_negative_zero(text, 2 * key)
        for key in keys_[0]
    )
    return None if raw else keys_


def _without_negative_zero(text: str, parameter: int) -> bool:
    return f"(EQ(p{parameter},0)" in text


def _any_key() -> str:
    return _KEY.replace("{0}", r"[0-9]+")


def _pair(left: str, right: str) -> int | None:
    """Return k if the sides are the same key of a pair.

    They are of parameters 2k and 2k + 1.
    """
    match = re.search(r"p([0-9]+)", left)
    if match is None or int(match[1]) % 2:
        return None
    number = int(match[1])
    key = re.fullmatch(_KEY.replace("{0}", str(number)), left)
    return number // 2 if key and right == left.replace(f"p{number}", f"p{number + 1}") else None


def _lexicographic(text: str) -> tuple[list[int], bool] | None:
    """Read ``or(LT(a,b),and(EQ(a,b),…))`` or ``select(EQ(a,b),…,LT(a,b))``."""
    rest, numbers = text, list[int]()
    while True:
        last = re.fullmatch(rf"LT\(({_any_key()}),({_any_key()})\)", rest)
        if last is not None:
            pair = _pair(last[1], last[2])
            return None if pair is None else ([*numbers, pair], False)
        match = re.match(rf"or\(LT\(({_any_key()}),({_any_key()})\),and\(EQ\(\1,\2\),", rest)
        if match is not None and rest.endswith("))"):
            pair, rest = _pair(match[1], match[2]), rest[match.end() : -2]
        else:
            match = re.match(rf"select\(EQ\(({_any_key()}),({_any_key()})\),", rest)
            tail = "" if match is None else f",LT({match[1]},{match[2]}))"
            if match is None or not rest.endswith(tail):
                return None
            pair, rest = _pair(match[1], match[2]), rest[match.end() : -len(tail)]
        if pair is None:
            return None
        numbers.append(pair)


def _sort(c: Context, i: HloInstruction, args: list[Value]) -> Value:
    operands = tensors(args, max(1, len(args)))
    comparator = c.find(i.attributes.get("to_apply", ""))
    axis = dimension(i, operands[0].rank)
    if any(operand.dims != operands[0].dims for operand in operands):
        raise Refused("invalid", "its operands differ in shape")
    order = keys(comparator, c.find)
    if order is None:
        return results(i, _by_function(c, comparator, operands, axis))
    by, descending = order
    for key in reversed(by):
        operands = _ordered(c, operands, _operand(operands, key, comparator), axis, descending)
    return results(i, operands)


def _operand(operands: list[Tensor], number: int, comparator: HloComputation) -> Tensor:
    if number >= len(operands):
        raise Refused(
            "invalid",
            f"its comparator {comparator.name} is of operand {number}, it has {len(operands)}",
        )
    return operands[number]


def _by_function(
    c: Context, comparator: HloComputation, operands: list[Tensor], axis: int
) -> list[Tensor]:
    """Sort by f of one operand, where the comparator is f(a) < f(b) or f(a) > f(b)."""
    refusal = Refused(
        "unsupported",
        f"its comparator {comparator.name} is not known: expected f(a) < f(b) or f(a) > f(b) of "
        "one operand",
    )
    root, defined = comparator.root, {item.name: item for item in comparator.instructions}
    direction = root.attributes.get("direction")
    sides = [defined.get(operand.name) for operand in root.operands]
    if root.opcode != "compare" or direction not in {"LT", "GT"} or None in sides:
        raise refusal
    floats = [_ordered_float(comparator, side, defined, c.find) for side in sides if side]
    total = None not in floats
    functions = [_rooted(comparator, side) for side in (floats if total else sides) if side]
    left, right = (expression(function, c.find) for function in functions)
    numbers = {int(number) for number in re.findall(r"\bp([0-9]+)", left)}
    if len(numbers) != 1 or min(numbers) % 2:
        raise refusal
    (number,) = numbers
    if re.sub(r"\bp[0-9]+", f"p{number + 1}", left) != right:
        raise refusal
    total = total or root.attributes.get("type") == "TOTALORDER"
    source = _operand(operands, number // 2, comparator)
    pairs = [item for operand in operands for item in (operand, operand)]
    key = source
    if left != f"p{number}":
        (key,) = combine(c, functions[0], pairs, [], source.dims)
    signed = total and not _without_negative_zero(left, number)
    return _ordered(c, operands, key, axis, direction == "GT", signed=signed)


def _ordered_float(
    comparator: HloComputation,
    side: HloInstruction,
    defined: Mapping[str, HloInstruction],
    find: Callable[[str], HloComputation],
) -> HloInstruction | None:
    """Return the float whose bits a side turns into an integer of the same order."""
    if not _INTEGER_KEY.fullmatch(expression(_rooted(comparator, side), find)):
        return None
    bits_of = defined.get(side.operands[-1].name)
    source = defined.get(bits_of.operands[0].name) if bits_of and bits_of.operands else None
    kind = source.shape.type if source and source.shape else ""
    return source if is_float(kind) else None


def _rooted(computation: HloComputation, root: HloInstruction) -> HloComputation:
    """Return the part of a computation that makes one of its instructions, and all parameters."""
    needed = {root.name}
    live: list[HloInstruction] = []
    for instruction in reversed(computation.instructions):
        if instruction.name in needed:
            needed.update(operand.name for operand in instruction.operands)
        elif instruction.opcode != "parameter":
            continue
        live.append(replace(instruction, is_root=instruction is root))
    return replace(computation, instructions=tuple(reversed(live)))


def _ordered(
    c: Context,
    operands: list[Tensor],
    key: Tensor,
    axis: int,
    descending: bool,
    *,
    signed: bool = False,
) -> list[Tensor]:
    """Sort all operands by a key.

    Equal keys keep their order; nan is above all numbers. If ``signed``, -0 is below 0.
    """
    first, nan = _sortable(c, key)
    if nan is not None and signed:
        first = _with_negative_zero(c, first)
    if nan is None:
        return _by(c, operands, first, axis, descending)
    finite = c.where(nan, c.number(-math.inf if descending else math.inf, first.type), first)
    *moved, flags = _by(c, [*operands, c.cast(nan, "s32")], finite, axis, descending)
    return _by(c, moved, flags, axis, descending)


def _with_negative_zero(c: Context, key: Tensor) -> Tensor:
    """Take -0 for the first number below 0, which only f64 has."""
    wide = c.cast(key, "f64")
    zero = c.apply("Equal", [wide, c.number(0, "f64")], "pred")
    below = c.apply("And", [zero, signbit(c, wide)])
    return c.where(below, c.number(-(2.0**-1074), "f64"), wide)


def _sortable(c: Context, key: Tensor) -> tuple[Tensor, Tensor | None]:
    """Return the key in a type that TopK takes, and its nans.

    The second result is true where the key is nan.
    """
    kind = key.type
    if is_float(kind):
        key = key if kind in {"f32", "f64"} else c.cast(key, "f32")
        return key, c.apply("IsNaN", [key], "pred")
    if kind == "u64":  # the same order in s64, half of the range lower
        half = c.number(-(2**63), "s64")
        return c.apply("BitwiseXor", [c.cast(key, "s64"), half]), None
    if kind == "pred" or (is_integer(kind) and bits(kind) < 32):
        return c.cast(key, "s32"), None
    return c.cast(key, "s64") if is_unsigned(kind) else key, None


def _by(
    c: Context, operands: list[Tensor], key: Tensor, axis: int, descending: bool
) -> list[Tensor]:
    size = key.dims[axis]
    dims = key.dims
    names = [c.body.full(key), c.body.ints([size])]
    _, order = c.body.op("TopK", names, outputs=2, axis=axis, largest=int(descending), sorted=1)
    return [c.move("GatherElements", operand, [order], dims, axis=axis) for operand in operands]


def _topk(c: Context, i: HloInstruction, args: list[Value]) -> Value:
    """The k largest along the last dimension.

    nan counts as larger than all numbers.
    """
    (x,) = tensors(args, 1)
    k = integer(i, "k")
    largest = i.attributes.get("largest", "true") == "true"
    return top(c, x, k, largest)


def top(c: Context, x: Tensor, k: int, largest: bool) -> Value:
    """Return the k largest (smallest) along the last dimension, and their indices."""
    if not 0 <= k <= (x.dims[-1] if x.rank else -1):
        raise Refused("invalid", f"k={k} does not fit {list(x.dims)}")
    axis = x.rank - 1
    line = c.expanded(c.iota(x.dims, axis, "s32"))
    cut = [(0, size, 1) for size in x.dims[:-1]] + [(0, k, 1)]
    return tuple(
        c.slice(result, cut) for result in _ordered(c, [x, line], x, axis, largest, signed=True)
    )


TABLE: dict[str, Translator] = {"sort": _sort, "topk": _topk}
