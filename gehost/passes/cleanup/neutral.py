"""Find operands that an operator with a neutral constant returns unchanged.

1. ``Mul(x, 1)``, ``Div(x, 1)``, ``Pow(x, 1)``                                  ==>   x
2. ``Add(x, -0.0)``, ``Sub(x, 0.0)``; of integers any 0                         ==>   x
3. ``And(x, true)``, ``Or(x, false)``                                           ==>   x
   ``And(x, c)`` with a constant c that is false, ``Or(x, c)`` with one true    ==>   c
4. ``Where(c, x, x)``; ``Where(c, x, y)`` with a constant c that is true (false)  ==>   x (y)
Keeps: every bit. ``x + 0.0`` is another number where x is -0.0, and stays.
Refused: a constant, condition or other operand that widens x, or may; constants above 8 KiB.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

import numpy as np
import onnx

from gehost.ir.constants import Array, elements, stored_bytes
from gehost.ir.graph import Node, Value
from gehost.ir.shapes import broadcasts_into
from gehost.passes.cleanup.state import State

SMALL = 8192
"""Bytes up to which a constant is read."""
_SINCE = 7
"""The first opset whose arithmetic broadcasts without an attribute."""


_STARTS: Mapping[int, tuple[bytes, ...]] = MappingProxyType(
    {
        onnx.TensorProto.FLOAT: tuple(
            np.array(number, "<f4").tobytes() for number in (1.0, 0.0, -0.0)
        ),
        onnx.TensorProto.DOUBLE: tuple(
            np.array(number, "<f8").tobytes() for number in (1.0, 0.0, -0.0)
        ),
        onnx.TensorProto.INT64: tuple(np.array(number, "<i8").tobytes() for number in (1, 0)),
    }
)
"""Element type → the bytes with which neutral constants of it start."""


def unchanged_operand(state: State, node: Node) -> Value | None:
    """Return the operand that a node's result always equals, None if there is none."""
    if state.opset < _SINCE:
        return None
    if node.op == "Where":
        return _choice(node)
    slots, is_neutral = _NEUTRAL[node.op]
    for slot in slots:
        constant = node.inputs[slot] if slot < len(node.inputs) else None
        producer = None if constant is None else constant.producer
        if (
            constant is None
            or constant in state.ordinary
            or (producer is not None and producer.op != "Constant")
        ):
            continue
        array, operand = _small(constant), node.input(1 - slot)
        if array is None or not (array.dtype == np.bool_ or is_neutral(array)):
            if producer is None:
                state.ordinary.add(constant)
            continue
        if operand is None:
            continue
        if is_neutral(array) and _leaves_shape(constant, operand):
            return operand
        if array.dtype == np.bool_ and _decides(node, array) and _leaves_shape(operand, constant):
            return constant
    return None


def _choice(node: Node) -> Value | None:
    """Return the operand that a ``Where`` always takes."""
    condition, left, right = (node.input(slot) for slot in range(3))
    if condition is None or left is None or right is None:
        return None
    choice = left if left is right else None
    if choice is None:
        array = _small(condition)
        if array is None or array.dtype != np.bool_ or array.min() != array.max():
            return None
        choice = left if array.all() else right
    others = (condition, left, right)
    return choice if all(_leaves_shape(other, choice) for other in others) else None


def _leaves_shape(other: Value, operand: Value) -> bool:
    return other is operand or other.rank == 0 or broadcasts_into(other, operand)


def _small(constant: Value) -> Array | None:
    """Return the elements of a small constant that is not empty and starts like a neutral one."""
    tensor = constant.initializer
    if isinstance(tensor, onnx.TensorProto):
        starts = _STARTS.get(tensor.data_type)
        if tensor.ByteSize() > SMALL or (
            # most constants are weights: their first element is enough
            starts is not None
            and tensor.raw_data
            and tensor.raw_data[: len(starts[0])] not in starts
        ):
            return None
    if not constant.is_constant or (stored_bytes(constant) or SMALL) >= SMALL:
        return None
    array = elements(constant)
    return array if array is not None and array.size else None


def _is_one(array: Array) -> bool:
    return array.dtype.kind != "b" and bool((array == 1).all())


def _is_zero(array: Array, *, negative: bool) -> bool:
    if array.dtype.kind in "iu":
        return not array.any()
    # of other floats than numpy's own, too
    wide = array.astype(np.float64) if array.dtype.kind in "fV" else None
    return wide is not None and not wide.any() and bool((np.signbit(wide) == negative).all())


def _decides(node: Node, array: Array) -> bool:
    """Whether a constant is the result, whatever the other operand is."""
    return (node.op == "And" and not array.any()) or (node.op == "Or" and bool(array.all()))


_NEUTRAL: Mapping[str, tuple[tuple[int, ...], Callable[[Array], bool]]] = MappingProxyType(
    {
        "Add": ((1, 0), lambda array: _is_zero(array, negative=True)),
        "And": ((1, 0), lambda array: bool(array.all())),
        "Div": ((1,), _is_one),
        "Mul": ((1, 0), _is_one),
        "Or": ((1, 0), lambda array: not array.any()),
        "Pow": ((1,), _is_one),
        "Sub": ((1,), lambda array: _is_zero(array, negative=False)),
    }
)
"""Operator → slots of the constant, and whether it is neutral."""

OPERATORS: frozenset[str] = frozenset((*_NEUTRAL, "Where"))
