"""reduce: a reduction of ONNX, ArgMax, or a tree.

A body of one operator is one of ONNX's reductions; the tree has the body itself.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Sequence
from typing import Any

import ml_dtypes
import numpy as np

from gehost import Refused
from gehost_hlo.attributes import dimensions, metadata
from gehost_hlo.context import Context, Translator
from gehost_hlo.emit import Tensor, Value, leaves
from gehost_hlo.kernels import carrier
from gehost_hlo.literals import NUMPY, is_float
from gehost_hlo.module import HloComputation, HloInstruction
from gehost_hlo.translate.elementwise import results

_ONNX = {
    "add": "ReduceSum",
    "maximum": "ReduceMax",
    "minimum": "ReduceMin",
    "multiply": "ReduceProd",
}
_PAIR = {"add": "Add", "maximum": "Max", "minimum": "Min", "multiply": "Mul"}
_LOGICAL = {
    "and": "ReduceMin",
    "or": "ReduceMax",
    "add": "ReduceMax",
    "maximum": "ReduceMax",
    "minimum": "ReduceMin",
    "multiply": "ReduceMin",
}
_LOGICAL_PAIR = {"ReduceMin": "And", "ReduceMax": "Or"}
_ASSUMED = {
    "Sum": "add",
    "BiasAddGrad": "add",
    "Max": "maximum",
    "Min": "minimum",
    "Prod": "multiply",
    "All": "and",
    "Any": "or",
}
"""Reductions of TensorFlow by ``op_type``."""


def reducer(c: Context, i: HloInstruction) -> HloComputation | str:
    """Return the computation of ``to_apply``, or its opcode.

    It is the opcode where the text lacks the computation and the user lets it be assumed.
    """
    name = i.attributes.get("to_apply", "").removeprefix("%")
    with contextlib.suppress(Refused):
        return c.find(name)
    op_type = metadata(i).get("op_type", "")
    assumed = _ASSUMED.get(op_type)
    if assumed is None:
        raise Refused(
            "missing",
            f'its to_apply "{name}" is not in the text, and op_type="{op_type}" does not tell the '
            "reduction",
        )
    if not c.settings.assume_reductions:
        raise Refused(
            "missing",
            f'its to_apply "{name}" is not in the text; --assume-reductions takes it as {assumed}, '
            f'from op_type="{op_type}"',
        )
    return assumed


def opcode_of(computation: HloComputation | str) -> str:
    """Return the opcode of a computation of one instruction.

    It reads the two parameters in order; "" of others.
    """
    if isinstance(computation, str):
        return computation
    root = computation.root
    if len(computation.instructions) != 3 or len(root.operands) != 2:
        return ""
    names = [operand.name for operand in root.operands]
    expected = [parameter.name for parameter in computation.parameters]
    return root.opcode if names in (expected, expected[::-1]) and len(expected) == 2 else ""


def neutral(opcode: str, kind: str) -> Any:
    """Return the number that changes nothing in a reduction.

    Returns None where there is none.
    """
    if kind == "pred":
        return {
            "and": True,
            "multiply": True,
            "minimum": True,
            "or": False,
            "add": False,
            "maximum": False,
        }.get(opcode)
    dtype = NUMPY[kind]
    if opcode in {"add", "multiply"}:
        return dtype.type(1 if opcode == "multiply" else 0)
    if opcode not in {"maximum", "minimum"}:
        return None
    if is_float(kind):
        return dtype.type(-math.inf if opcode == "maximum" else math.inf)
    limits = ml_dtypes.iinfo(dtype)
    return dtype.type(limits.min if opcode == "maximum" else limits.max)


def is_neutral(opcode: str, initial: Tensor) -> bool:
    number = initial.number
    neutral_number = neutral(opcode, initial.type)
    return number is not None and neutral_number is not None and bool(number == neutral_number)


def _reduce(c: Context, i: HloInstruction, args: list[Value]) -> Value:
    operands, initials, axes = _operands(i, args)
    computation = reducer(c, i)
    dims = tuple(size for axis, size in enumerate(operands[0].dims) if axis not in axes)
    if 0 in [operands[0].dims[axis] for axis in axes]:
        return results(i, [c.broadcast(initial, dims, []) for initial in initials])
    opcode = opcode_of(computation)
    if len(operands) == 1 and opcode:
        single = reduce_by(c, opcode, operands[0], initials[0], axes, dims)
        if single is not None:
            return results(i, [single])
    if isinstance(computation, str):
        raise Refused(
            "unsupported",
            f"{computation} of {operands[0].type} is not translated without its computation",
        )
    if len(operands) == 2 and len(axes) == 1:
        result = _argument(c, computation, operands, initials, axes[0], dims)
        if result is not None:
            return results(i, result)
    return results(i, _tree(c, computation, operands, initials, axes, dims))


def _operands(
    i: HloInstruction, args: list[Value]
) -> tuple[list[Tensor], list[Tensor], tuple[int, ...]]:
    count = len(args) // 2
    arrays = [arg for arg in args if isinstance(arg, Tensor)]
    if len(arrays) != len(args) or len(args) % 2 or not count:
        raise Refused(
            "invalid", f"it has {len(args)} operands, expected arrays and as many initial values"
        )
    axes = dimensions(i)
    operands, initials = arrays[:count], arrays[count:]
    if any(operand.dims != operands[0].dims for operand in operands) or any(
        initial.dims != () for initial in initials
    ):
        raise Refused("invalid", "its operands differ in shape, or an initial value is no scalar")
    if any(a.type != b.type for a, b in zip(operands, initials, strict=True)):
        raise Refused("invalid", "an initial value has another type than its operand")
    if len(set(axes)) != len(axes) or any(not 0 <= axis < operands[0].rank for axis in axes):
        raise Refused("invalid", f"it reduces dimensions {list(axes)} of {operands[0].rank}")
    return operands, initials, tuple(sorted(axes))


def reduce_by(
    c: Context, opcode: str, x: Tensor, initial: Tensor, axes: Sequence[int], dims: Sequence[int]
) -> Tensor | None:
    """Reduce by one of ONNX's reductions; add the initial value.

    Returns None where there is none for the type.
    """
    if not axes:
        result = x
    elif x.type == "pred":
        op = _LOGICAL.get(opcode)
        if op is None:
            return None
        result = c.move(op, x, [c.body.ints(axes)], dims, keepdims=0)
    else:
        op = _ONNX.get(opcode)
        if op is None:
            return None
        if x.type in {"s64", "u64"} and op == "ReduceSum":
            return _plus(c, opcode, initial, _wide_sum(c, x, axes, dims), dims)
        if carrier(op, x.type) is None:
            return None
        result = c.move(op, x, [c.body.ints(axes)], dims, keepdims=0)
        if opcode in {"maximum", "minimum"} and is_float(x.type):
            result = _with_nan(c, x, result, axes, dims)
    return _plus(c, opcode, initial, result, dims)


def _plus(
    c: Context, opcode: str, initial: Tensor, result: Tensor, dims: Sequence[int]
) -> Tensor | None:
    """Add the initial value, unless it changes nothing."""
    if is_neutral(opcode, initial):
        return result
    pair = (
        _LOGICAL_PAIR[_LOGICAL[opcode]]
        if result.type == "pred" and opcode in _LOGICAL
        else _PAIR.get(opcode)
    )
    return None if pair is None else c.apply(pair, [c.broadcast(initial, dims, []), result])


def _wide_sum(c: Context, x: Tensor, axes: Sequence[int], dims: Sequence[int]) -> Tensor:
    """Add 64-bit integers by MatMul with ones, which wraps.

    ONNX Runtime's ReduceSum adds them in f64.
    """
    rest = [axis for axis in range(x.rank) if axis not in axes]
    count = math.prod(x.dims[axis] for axis in axes)
    rows = c.reshape(c.transpose(x, [*rest, *axes]), [*dims, count])
    ones = c.body.constant(np.ones(count, NUMPY[x.type]))
    return c.body.tensor("MatMul", [c.body.full(rows), ones], x.type, dims)


def _with_nan(
    c: Context, x: Tensor, result: Tensor, axes: Sequence[int], dims: Sequence[int]
) -> Tensor:
    """ONNX Runtime's ReduceMax drops nan, HLO's maximum keeps it."""
    odd = c.apply("IsNaN", [x if x.type != "bf16" else c.cast(x, "f32")], "pred")
    any_odd = c.move("ReduceMax", odd, [c.body.ints(axes)], dims, keepdims=0)
    return c.where(any_odd, c.number(math.nan, x.type), result)


# Arg-max


def _argument(
    c: Context,
    computation: HloComputation,
    operands: list[Tensor],
    initials: list[Tensor],
    axis: int,
    dims: Sequence[int],
) -> list[Tensor] | None:
    """ArgMax or ArgMin.

    The body prefers nan, then the larger (smaller) value, then the lower index.
    """
    values, indices = operands
    opcode = _ARGUMENTS.get(expression(computation, c.find))
    if (
        opcode is None
        or not is_neutral(opcode, initials[0])
        or initials[1].number is None
        or int(initials[1].number) != 0
    ):
        return None
    line = np.arange(values.dims[axis]).reshape([-1] + [1] * (values.rank - axis - 1))
    constant = indices.constant
    if constant is None or constant.shape != line.shape or not (constant == line).all():
        return None
    kind = values.type
    op = "ArgMax" if opcode == "maximum" else "ArgMin"
    run = carrier(op, kind)
    if run is None or carrier(_ONNX[opcode], kind) is None:
        return None
    source = c.expanded(c.cast(values, run))
    best = c.body.tensor(op, [source.name], "s64", dims, axis=axis, keepdims=0)
    extreme = c.move(_ONNX[opcode], values, [c.body.ints([axis])], dims, keepdims=0)
    if is_float(kind):
        odd = c.apply("IsNaN", [source], "pred")
        any_odd = c.move("ReduceMax", odd, [c.body.ints([axis])], dims, keepdims=0)
        first = c.body.tensor(
            "ArgMax", [c.body.full(c.cast(odd, "u8"))], "s64", dims, axis=axis, keepdims=0
        )
        best = c.where(any_odd, first, best)
        extreme = c.where(any_odd, c.number(math.nan, kind), extreme)
    return [extreme, c.cast(best, indices.type)]


def expression(
    computation: HloComputation,
    find: Callable[[str], HloComputation],
    arguments: Sequence[str] | None = None,
    depth: int = 8,
) -> str:
    """Return the root of a computation as one expression.

    Its parameters are ``p0``, ``p1`` and so on; "" of a long or deep one.

    Args:
        computation: the computation to write.
        find: gives a computation by name; fusions and calls are written as their results.
        arguments: texts for the parameters.
        depth: how many fusions and calls may be inside each other.
    """
    texts: dict[str, str] = {}
    for instruction in computation.instructions:
        texts_ = [texts.get(operand.name, "?") for operand in instruction.operands]
        if instruction.opcode == "parameter":
            number = int(instruction.literal)
            text = f"p{number}" if arguments is None else arguments[number]
        elif instruction.opcode == "constant":
            text = instruction.literal
        elif _moves_scalar(instruction):
            text = texts_[0]
        elif instruction.opcode in {"fusion", "call"}:
            key = "calls" if instruction.opcode == "fusion" else "to_apply"
            called = find(instruction.attributes.get(key, ""))
            text = expression(called, find, texts_, depth - 1) if depth else ""
            if not text:
                return ""
        else:
            inside = ",".join(texts_)
            head = instruction.attributes.get("direction") or instruction.opcode
            if instruction.attributes.get("type") == "TOTALORDER":
                head += ".TOTALORDER"
            text = f"{head}({inside})"
        if len(text) > 1000:
            return ""
        texts[instruction.name] = text
    return texts[computation.root.name]


def _moves_scalar(i: HloInstruction) -> bool:
    shape = i.shape
    is_scalar = shape is not None and shape.elements is None and not shape.dimensions
    return i.opcode in {"broadcast", "reshape", "transpose", "copy"} and is_scalar


def _argument_expressions(direction: str) -> list[str]:
    better = f"or({direction}(p0,p2),NE(p0,p0))"
    first = f"or({better},and(EQ(p0,p2),LT(p1,p3)))"
    plain = f"{direction}(p0,p2)"
    plain_first = f"or({plain},and(EQ(p0,p2),LT(p1,p3)))"
    return [
        f"tuple(select({better},p0,p2),select({first},p1,p3))",
        f"tuple(select({plain},p0,p2),select({plain_first},p1,p3))",
    ]


_ARGUMENTS = {
    **dict.fromkeys(_argument_expressions("GT"), "maximum"),
    **dict.fromkeys(_argument_expressions("LT"), "minimum"),
}


# Any body


def _tree(
    c: Context,
    computation: HloComputation,
    operands: list[Tensor],
    initials: list[Tensor],
    axes: Sequence[int],
    dims: tuple[int, ...],
) -> list[Tensor]:
    """Combine halves of the reduced elements until one is left.

    HLO leaves the order open.
    """
    outer = [axis for axis in range(operands[0].rank) if axis not in axes]
    count = math.prod(operands[0].dims[axis] for axis in axes)
    parts = [
        c.reshape(c.transpose(operand, [*axes, *outer]), [count, *dims]) for operand in operands
    ]
    while count > 1:
        half = count // 2
        left = [_rows(c, part, 0, half) for part in parts]
        right = [_rows(c, part, half, 2 * half) for part in parts]
        halves = combine(c, computation, left, right, (half, *dims))
        rest = [_rows(c, part, 2 * half, count) for part in parts] if count % 2 else []
        parts = [c.concat([a, b], 0) for a, b in zip(halves, rest, strict=True)] if rest else halves
        count = half + count % 2
    last = [c.reshape(part, dims) for part in parts]
    first = [c.broadcast(initial, dims, []) for initial in initials]
    if len(last) == 1 and is_neutral(opcode_of(computation), initials[0]):
        return last
    return combine(c, computation, first, last, dims)


def _rows(c: Context, tensor: Tensor, start: int, limit: int) -> Tensor:
    return c.slice(tensor, [(start, limit, 1), *((0, size, 1) for size in tensor.dims[1:])])


def combine(
    c: Context,
    computation: HloComputation,
    left: Sequence[Tensor],
    right: Sequence[Tensor],
    dims: tuple[int, ...],
) -> list[Tensor]:
    """Run the scalar computation of a reduction on whole tensors of ``dims``."""
    results = leaves(c.call(c, computation, [*left, *right], c.body.instruction, dims))
    return [c.expanded(result) for result in results]


TABLE: dict[str, Translator] = {"reduce": _reduce}
