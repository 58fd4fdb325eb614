"""Attributes of GE's operators, as nodes of ONNX have them: read, and written."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, cast

import numpy as np

import gehost
from gehost import EsTensor
from gehost_ge.building import in_pattern
from gehost_ge.errors import GeError, items_of
from gehost_ge.types import DataType, from_onnx, to_onnx

REQUIRED: Any = object()
"""The default of an attribute that a call must give."""


@dataclass(frozen=True)
class Attribute:
    """An attribute of GE's operator.

    Attributes:
        read: returns its value, of a node of ONNX's operator.
        write: returns ONNX's attributes for a value; raises ``ValueError`` if ONNX has none.
        default: its value in a call that leaves it out.
        free: a value that ONNX lacks, and a pattern may have unless attributes count.
        is_structure: other nodes beside ONNX's operator stand for it, as a call writes them.
    """

    read: Callable[[Any], Any]
    write: Callable[[Any], Mapping[str, Any]]
    default: Any = REQUIRED
    free: Any = REQUIRED
    is_structure: bool = False


def _read(node: Any, name: str) -> Any:
    value = node.attr(name)
    if value is None:
        raise GeError(f'{name} of {node.op_type} "{node.label}" is not known here')
    return value


def renamed(
    name: str,
    kind: Callable[[Any], Any],
    default: Any = REQUIRED,
    encode: Callable[[Any], Any] | None = None,
) -> Attribute:
    """Return an attribute that has another name in ONNX, or another type."""
    return Attribute(
        lambda node: kind(_read(node, name)), lambda value: {name: (encode or kind)(value)}, default
    )


def number(name: str, default: Any = REQUIRED) -> Attribute:
    """Return a float."""
    return renamed(name, float, default, _number)


def whole(name: str, default: Any = REQUIRED) -> Attribute:
    """Return a whole number; of a call it may be a constant."""
    return renamed(name, int, default, one)


def flag(name: str, default: Any = REQUIRED) -> Attribute:
    """Return ``True`` or ``False``, which ONNX has as 1 or 0."""
    return renamed(name, bool, default, lambda value: int(bool(_plain(value, "True or False"))))


def text(name: str, default: Any = REQUIRED) -> Attribute:
    """Return a text."""
    return renamed(name, str, default, lambda value: str(_plain(value, "a text")))


def numbers(name: str, default: Any = REQUIRED) -> Attribute:
    """Return whole numbers, which are an input from some opset on, or an attribute."""
    return Attribute(
        lambda node: numbers_of(node, name), lambda value: {name: whole_numbers(value)}, default
    )


def derived(read: Callable[[Any], Any]) -> Attribute:
    """Return what the node's inputs, outputs or types say; nothing sets it."""

    def write(value: Any) -> Mapping[str, Any]:
        raise ValueError(f"the node's inputs and outputs say it, and {value!r} is another value")

    return Attribute(read, write, None)


def fixed(value: Any, reason: str = "", *, default: Any = REQUIRED) -> Attribute:
    """Return an attribute of which ONNX's operator has one value.

    A pattern may leave it out, where GE's ``default`` is another one.
    """

    def write(expected: Any) -> Mapping[str, Any]:
        is_left_out = in_pattern() and expected == default
        if expected != value and not is_left_out:
            raise ValueError(
                f"ONNX has {value!r} only, got {shown(expected)}{reason and '; '}{reason}"
            )
        return {}

    shown_default = value if default is REQUIRED else default
    return Attribute(lambda _: value, write, shown_default, free=default)


def structure(value: Any) -> Attribute:
    """Return an attribute for which a call writes other nodes."""
    return Attribute(lambda _: value, fixed(value).write, value, is_structure=True)


COUNT = derived(lambda node: len(node.inputs))
"""``N`` of an operator with variable inputs."""
LAYOUT = fixed("NCHW", default="NHWC")
"""``data_format`` of an operator that ONNX has for NCHW, and GE by default for NHWC."""


def data_type(name: str) -> Attribute:
    """Return an element type with GE's number."""
    return renamed(
        name,
        lambda value: from_onnx(gehost.DataType(value)),
        encode=lambda value: to_onnx(ge_type(value)),
    )


def ge_type(value: Any) -> Any:
    """Return GE's element type of a number; anything else stays, for its check."""
    is_number = isinstance(value, int) and value in list(DataType)
    return DataType(value) if is_number else value


def shown(value: Any) -> str:
    """Return a value as a message shows it."""
    return "a tensor" if isinstance(value, EsTensor) else repr(value)


def _plain(value: Any, expected: str) -> Any:
    if isinstance(value, EsTensor) or value is None:
        raise TypeError(f"{expected} is expected, got {shown(value)}")
    return value


def _number(value: Any) -> float:
    if isinstance(value, int | float | np.floating | np.integer):
        return float(cast("float", value))
    raise TypeError(f"a number is expected, got {shown(value)}")


def one(value: Any) -> int:
    """Return a whole number, of a number or a constant."""
    numbers = whole_numbers(value, "a number")
    if len(numbers) != 1:
        raise TypeError(f"one number is expected, got {numbers}")
    return numbers[0]


def whole_numbers(value: Any, expected: str = "numbers") -> list[int]:
    """Return whole numbers, of numbers or a constant."""
    array = array_of(value)
    if array is None:
        raise TypeError(f"an attribute takes {expected}, got a tensor that the model computes")
    if array.size and array.dtype.kind not in "iu":
        raise TypeError(f"whole numbers are expected, got {shown(value)}")
    return [int(item) for item in array.reshape(-1)]


def array_of(value: Any) -> np.ndarray[Any, Any] | None:
    """Return the numbers of a literal or a constant of the builder."""
    if isinstance(value, EsTensor):
        return getattr(value.producer, "array", None)
    return np.asarray(value)


def numbers_of(node: Any, name: str, slot: int = 1) -> list[int]:
    """Return numbers that are an attribute or an input, by opset; all axes where both are absent.

    Raises:
        GeError: the model computes them, or the rank that says them is not known.
    """
    value = node.attr(name)
    tensor = node.inputs[slot] if len(node.inputs) > slot else None
    if value is None and tensor is not None:
        if tensor.array is None:
            raise GeError(f'{name} of {node.op_type} "{node.label}": the model computes them')
        value = tensor.array.reshape(-1)
    if value is None:
        shape = node.inputs[0].shape
        if shape is None:
            raise GeError(f'{name} of {node.op_type} "{node.label}": all, and the rank is unknown')
        value = range(len(shape))
    return [int(item) for item in items_of(value) or list(value)]
