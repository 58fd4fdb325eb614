"""An operator under GE's name: its published signature, and what it becomes."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from gehost import EsTensor, Node, es
from gehost_ge.attributes import REQUIRED, Attribute, array_of, fixed, whole_numbers
from gehost_ge.building import in_pattern
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
        name: GE's.
        call: builds it; its signature is the published one. Parameters annotated as ``EsTensor``
            are inputs.
        onnx: the operator of a model that GE's name stands for, ``""`` if it is several.
        misfit: says why a node of ``onnx`` is none of GE's operator, ``""`` if it is.
        attributes: GE's attributes, as a node of ``onnx`` has them.
        here: what it becomes, for the page.
        beside: misfits of the other nodes that a call writes, by their operators.
        parameters: the published ones where ``call`` takes any.
        free: values of a pattern's attributes that ONNX lacks.
    """

    name: str
    call: Callable[..., Any]
    onnx: str
    misfit: Callable[[Node], str] = _fits
    attributes: Mapping[str, Attribute] = field(default_factory=dict[str, Attribute])
    here: str = ""
    beside: Mapping[str, Callable[[Node], str]] = field(
        default_factory=dict[str, Callable[[Node], str]]
    )
    parameters: tuple[inspect.Parameter, ...] = ()
    free: Mapping[str, Any] = field(default_factory=dict[str, Any])

    @property
    def signature(self) -> inspect.Signature:
        if not self.parameters:
            return inspect.signature(self.call)
        return inspect.Signature(self.parameters)

    @property
    def published(self) -> str:
        """The parameters as GE documents them."""
        return ", ".join(map(_text, self.signature.parameters.values()))

    def is_input(self, parameter: inspect.Parameter) -> bool:
        """Whether numbers of a pattern stand for any constant there."""
        return "EsTensor" in str(parameter.annotation)

    def stands_for(self, node: Node) -> bool:
        """Whether a node of a model is one of GE's operator."""
        return node.op == self.onnx and not self.misfit(node)

    def other_attribute(self, node: Node) -> str:
        """Return why the attributes of a call are not those of a node, where ONNX has one value."""
        for name, value in self.free.items():
            own = self.attributes[name].read(node)
            return f"{name}: the pattern has {value!r}, ONNX {own!r}"
        return ""

    def of_other(self, op: str) -> Form | None:
        """Return what another node stands for that a call writes, if it has a misfit."""
        misfit = self.beside.get(op)
        return None if misfit is None else Form(op, self.call, op, misfit)

    def as_called(self, arguments: Mapping[str, Any]) -> Form:
        """Return the form with the attributes for which this call writes nodes.

        Where a call gives a tensor for an attribute, a node that computes it is no misfit.
        """
        if not self.attributes:
            return self
        attributes = dict(self.attributes)
        free: dict[str, Any] = {}
        for name, attribute in self.attributes.items():
            value = arguments.get(name)
            if attribute.is_structure:
                attributes[name] = fixed(value)
            elif attribute.free is not REQUIRED and value == attribute.free:
                free[name] = value
        tensors = [arguments.get(name) for name in self.attributes]
        is_computed = any(isinstance(t, EsTensor) and array_of(t) is None for t in tensors)
        misfit = _fits if is_computed else self.misfit
        return replace(self, attributes=attributes, free=free, misfit=misfit)

    def write(self, name: str, value: Any) -> Mapping[str, Any]:
        """Return ONNX's attributes for one of GE's.

        Raises:
            TypeError, ValueError: ONNX has no such value.
        """
        try:
            return self.attributes[name].write(value)
        except (TypeError, ValueError) as error:
            raise type(error)(f"{self.name}: {name}: {error}") from None


FORMS: dict[str, Form] = {}
"""All operators that are called with GE's signature; ``forms`` fills it."""


def form(
    *names: str,
    onnx: str = "",
    here: str = "",
    misfit: Callable[[Node], str] = _fits,
    beside: Mapping[str, Callable[[Node], str]] | None = None,
    **attributes: Attribute,
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Register what an operator becomes, under GE's names for it."""

    def register(call: Callable[..., Any]) -> Callable[..., Any]:
        text = here or (call.__doc__ or "").partition("\n")[0].removesuffix(".")
        for name in names:
            FORMS[name] = Form(name, call, onnx, misfit, attributes, text, beside or {})
        return call

    return register


def operator(
    name: str,
    inputs: str,
    onnx: str = "",
    here: str = "",
    misfit: Callable[[Node], str] = _fits,
    outputs: str = "",
    **attributes: Attribute,
) -> None:
    """Register an operator that is one of ONNX's, with the same inputs in the same order.

    Args:
        name: GE's name.
        inputs: GE's names of the inputs; the optional ones end in ``?``.
        onnx: ONNX's operator, by default of the same name.
        here: what it becomes, for the page.
        misfit: says why a node of ONNX's operator is none of GE's.
        outputs: GE's name of the output, where the others are not ONNX's.
        **attributes: GE's attributes in the published order.
    """
    onnx = onnx or name
    entries = [
        inspect.Parameter(
            entry.removesuffix("?"),
            inspect.Parameter.POSITIONAL_OR_KEYWORD,
            default=None if entry.endswith("?") else inspect.Parameter.empty,
            annotation="EsTensor",
        )
        for entry in inputs.split()
    ]
    count = len(entries)
    entries += [
        inspect.Parameter(
            entry,
            inspect.Parameter.POSITIONAL_OR_KEYWORD,
            default=inspect.Parameter.empty if attribute.default is REQUIRED else attribute.default,
        )
        for entry, attribute in attributes.items()
    ]

    def call(*arguments: Any) -> Any:
        operands = list(arguments[:count])
        while operands[-1] is None:
            operands.pop()
        written: dict[str, Any] = {}
        for attribute, value in zip(attributes, arguments[count:], strict=True):
            written |= FORMS[name].write(attribute, value)
        result = es.op(onnx)(*operands, **written)
        return {outputs: result} if outputs else result

    text = here or f"`{onnx}`"
    FORMS[name] = Form(name, call, onnx, misfit, attributes, text, parameters=tuple(entries))


def has_only(name: str, onnx: str, **values: Any) -> Callable[[Node], str]:
    """Return the misfit of an operator whose attributes of ONNX GE does not have."""

    def misfit(node: Node) -> str:
        for attribute, value in values.items():
            if node.attr(attribute) != value:
                return f"{attribute}: GE's {name} has {value!r} alone; {own_form(onnx)}"
        return ""

    return misfit


def row_misfit(name: str) -> Callable[[Node], str]:
    """Return the misfit of an ``Add`` that adds one number for each last index.

    ``Add`` broadcasts both operands.
    """

    def misfit(node: Node) -> str:
        x, bias = (None if value is None else value.shape for value in node.inputs[:2])
        if x is None or bias is None:
            return f"rank: the bias of {name} needs known ranks of both operands"
        if len(bias) != 1 or len(x) < 2:
            return f"rank: the bias of {name} has rank 1, added to rank 2 or more; use Add"
        if x[-1] is None or x[-1] != bias[0]:
            return f"channels: {name} has one number of bias for each last index; use Add"
        return ""

    return misfit


def own_form(name: str) -> str:
    return f"ONNX's is ge.es.custom.{name}"


def check_only(name: str, **arguments: tuple[Any, Any]) -> None:
    """Check the attributes of which ONNX has one value."""
    for argument, (value, expected) in arguments.items():
        if value != expected:
            raise ValueError(f"{name}: {argument}: ONNX has {expected!r} only, got {value!r}")


def counted(name: str, x: Sequence[Any], count: int | None) -> None:
    if count not in (None, len(x)):
        raise ValueError(f"{name}: N is {count}, but {len(x)} tensors are given")


def axes_of(value: Any) -> EsTensor | list[int]:
    """Return numbers, which old opsets take as an attribute; another tensor stays."""
    is_computed = isinstance(value, EsTensor) and array_of(value) is None
    return value if is_computed else whole_numbers(value)


def swapped(tensor: Any) -> Any:
    """Return a matrix with its axes exchanged; a pattern matches this permutation alone.

    Numbers of a replacement stay numbers, which get their partner's type.
    """
    if not isinstance(tensor, EsTensor):
        matrix = np.asarray(tensor)
        if matrix.ndim != 2:
            raise ValueError(f"a matrix is transposed, got numbers of rank {matrix.ndim}")
        return matrix.T if isinstance(tensor, np.ndarray) else matrix.T.tolist()
    result = es.Transpose(tensor, perm=[1, 0])
    return es.constrain(result, perm=[1, 0]) if in_pattern() else result
