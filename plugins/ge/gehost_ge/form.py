"""An operator under GE's name: its published signature, and what it becomes."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from gehost import EsTensor, Node
from gehost_ge.builder import in_pattern
from gehost_ge.types import DataType as GeDataType


def _text(parameter: inspect.Parameter) -> str:
    default = parameter.default
    if isinstance(default, GeDataType):
        return f"{parameter.name}={default.name}"
    return parameter.name if default is parameter.empty else f"{parameter.name}={default!r}"


def _fits(node: Node) -> str:
    del node
    return ""


@dataclass(frozen=True)
class Form:
    """An operator under GE's name.

    Attributes:
        call: builds it; its signature is the published one. Parameters annotated as ``EsTensor``
            are inputs.
        onnx: the operator of a model that GE's name stands for, ``""`` if it is several.
        misfit: says why a node of ``onnx`` is none of GE's operator, ``""`` if it is.
        inputs: the published inputs of an operator without attributes, where ``call`` takes any.
    """

    call: Callable[..., Any]
    onnx: str
    misfit: Callable[[Node], str] = _fits
    inputs: str = ""

    @property
    def signature(self) -> inspect.Signature:
        if not self.inputs:
            return inspect.signature(self.call)
        kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
        return inspect.Signature(
            [inspect.Parameter(name, kind, annotation="EsTensor") for name in self.inputs.split()]
        )

    @property
    def published(self) -> str:
        """The parameters as GE documents them."""
        return ", ".join(map(_text, self.signature.parameters.values()))

    @property
    def here(self) -> str:
        """What it becomes, for the page."""
        return (self.call.__doc__ or f"`{self.onnx}`").partition("\n")[0].removesuffix(".")

    def is_input(self, parameter: inspect.Parameter) -> bool:
        """Whether numbers of a pattern stand for any constant there."""
        return "EsTensor" in str(parameter.annotation)


FORMS: dict[str, Form] = {}
"""All operators that are called with GE's signature; ``forms`` fills it."""


def form(
    *names: str, onnx: str = "", misfit: Callable[[Node], str] = _fits
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Register what an operator becomes, under GE's names for it."""

    def register(call: Callable[..., Any]) -> Callable[..., Any]:
        FORMS.update(dict.fromkeys(names, Form(call, onnx, misfit)))
        return call

    return register


def has_only(name: str, onnx: str, **values: Any) -> Callable[[Node], str]:
    """Return the misfit of an operator whose attributes of ONNX GE does not have."""

    def misfit(node: Node) -> str:
        for attribute, value in values.items():
            if node.attr(attribute) != value:
                return f"{attribute}: GE's {name} has {value!r} alone; {own_form(onnx)}"
        return ""

    return misfit


def own_form(name: str) -> str:
    return f"ONNX's is ge.es.custom.{name}"


def only(name: str, **arguments: tuple[Any, Any]) -> None:
    """Check the attributes of which ONNX has one value."""
    for argument, (value, expected) in arguments.items():
        if value != expected and not (in_pattern() and argument in _FREE):
            raise ValueError(f"{name}: ONNX has {argument}={expected!r} only, got {value!r}")


_FREE = frozenset({"data_format", "is_training"})
"""Attributes whose default in GE ONNX does not have; a pattern may leave them out."""


def counted(name: str, x: Sequence[Any], count: int | None) -> None:
    if count not in (None, len(x)):
        raise ValueError(f"{name}: N is {count}, but {len(x)} tensors are given")


def array_of(value: Any) -> np.ndarray[Any, Any] | None:
    """Return the numbers of a literal or a constant of the builder."""
    if isinstance(value, EsTensor):
        return getattr(value.producer, "array", None)
    return np.asarray(value)


def constant(name: str, argument: str, value: Any) -> int:
    numbers = constants(name, argument, value, what="a number")
    if len(numbers) != 1:
        raise TypeError(f"{name}: {argument} must be one number, got {numbers}")
    return numbers[0]


def constants(name: str, argument: str, value: Any, what: str = "numbers") -> list[int]:
    array = array_of(value)
    if array is None:
        raise TypeError(f"{name}: {argument} must be {what}, as ONNX has it as an attribute")
    if array.size and array.dtype.kind not in "iu":
        raise TypeError(f"{name}: {argument} must be whole numbers, got {value!r}")
    return [int(number) for number in array.reshape(-1)]


def axes_of(value: Any) -> EsTensor | list[int]:
    """Return numbers, which old opsets take as an attribute; another tensor stays."""
    is_computed = isinstance(value, EsTensor) and array_of(value) is None
    return value if is_computed else constants("an operator", "axes", value)
