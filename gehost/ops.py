"""Custom operators: declared by vendor files, kept by the host that loads them.

``register`` only leaves a mark in the module that calls it. The host that loads the module reads
the marks into its own ``OpRegistry``; nothing enters ONNX's process-wide registry and two hosts
share nothing.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from types import CodeType, FunctionType
from typing import Any, TypeAlias

from gehost.errors import VendorError
from gehost.ir.types import TensorType

MARK = "__gehost_ops__"

ShapeFunction: TypeAlias = Callable[
    [Sequence[TensorType | None], Mapping[str, Any]], Sequence[TensorType | None]
]


@dataclass(frozen=True)
class OpDef:
    """A custom operator: its signature and, optionally, shape function and body.

    ``body`` takes the inputs as ``EsTensor`` by position and the attributes by keyword, and returns
    the output tensors. With a body the operator is written into compiled models as a model-local
    function, so that any runtime runs it.
    """

    name: str
    version: int
    inputs: tuple[str, ...]
    required: int
    outputs: tuple[str, ...]
    attributes: Mapping[str, Any]
    body: Callable[..., Any] | None
    shape: ShapeFunction | None
    traits: frozenset[str]
    origin: str

    @property
    def defaults(self) -> dict[str, Any]:
        """The attributes that may be left out, and what they are then."""
        return {
            name: value
            for name, value in self.attributes.items()
            if value is not inspect.Parameter.empty
        }


def register(
    name: str,
    *,
    inputs: Sequence[str] = (),
    outputs: Sequence[str] = ("output",),
    attributes: Mapping[str, Any] | None = None,
    version: int = 1,
    shape: ShapeFunction | None = None,
    traits: Iterable[str] = (),
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Declare the operator ``domain::Type`` for the host that loads the calling module.

    As a decorator of the body, inputs and attributes are its signature: positional parameters are
    inputs (a default of None makes one optional), keyword-only parameters are attributes with their
    defaults. Without a body, say them here.

    Args:
        name: ``domain::Type``; bodies in ONNX's own domain are refused.
        outputs: names of the outputs.
        shape: gives the output types from the input types and attributes; without one, types
            come from the body.
        traits: ``"stateful"`` or ``"random"`` keep clean-up away from the operator.

    Raises:
        VendorError: the name has no domain, the module declares it twice, or the body takes any
            number of arguments.
    """
    frame = inspect.currentframe()
    caller = frame.f_back if frame is not None else None
    assert caller is not None
    origin = f"{caller.f_code.co_filename}:{caller.f_lineno}"
    if "::" not in name or name.startswith(("::", "ai.onnx::")):
        raise VendorError(
            f'{origin}: operator "{name}" needs a domain of its own, as in '
            f'"acme::{name.rpartition("::")[2]}"'
        )
    definition = OpDef(
        name,
        version,
        tuple(inputs),
        len(inputs),
        tuple(outputs),
        dict(attributes or {}),
        None,
        shape,
        frozenset(traits),
        origin,
    )
    marks: dict[str, OpDef] = caller.f_globals.setdefault(MARK, {})
    if name in marks and marks[name].origin != origin:
        raise VendorError(
            f'{origin}: operator "{name}" is registered already at {marks[name].origin}'
        )
    marks[name] = definition

    def with_body(body: Callable[..., Any]) -> Callable[..., Any]:
        parameters = inspect.signature(body).parameters.values()
        if any(p.kind in (p.VAR_POSITIONAL, p.VAR_KEYWORD) for p in parameters):
            raise VendorError(
                f"{origin}: the body of {name} must name its inputs and attributes, "
                "without * and **"
            )
        positional = [
            p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)
        ]
        marks[name] = replace(
            definition,
            inputs=tuple(p.name for p in positional),
            required=sum(p.default is p.empty for p in positional),
            attributes={p.name: p.default for p in parameters if p.kind is p.KEYWORD_ONLY},
            body=body,
        )
        return body

    return with_body


class OpRegistry:
    """The custom operators of one host."""

    def __init__(self) -> None:
        self._ops: dict[str, OpDef] = {}

    def __iter__(self) -> Iterator[OpDef]:
        return iter(self._ops.values())

    def __len__(self) -> int:
        return len(self._ops)

    def __bool__(self) -> bool:
        return True

    def add(self, definition: OpDef) -> None:
        """Add an operator; an identical declaration of a second vendor is the same operator.

        Raises:
            VendorError: it is declared differently already; the message names both places.
        """
        known = self._ops.get(definition.name)
        if known is not None and not _same_operator(known, definition):
            raise VendorError(
                f'{definition.origin}: operator "{definition.name}" is declared differently '
                f"at {known.origin}; rename one, or make them identical"
            )
        self._ops.setdefault(definition.name, definition)

    def add_marked(self, namespace: Mapping[str, Any], *, replace: bool = True) -> None:
        """Add the operators that ``register`` marked in a module's namespace.

        Args:
            namespace: ``vars(module)``.
            replace: False leaves out operators that are declared already, however.
        """
        marks: dict[str, OpDef] = namespace.get(MARK, {})
        for definition in marks.values():
            if replace or definition.name not in self._ops:
                self.add(definition)

    def get(self, op: str) -> OpDef | None:
        return self._ops.get(op)

    def resolve(self, op: str) -> str | None:
        """The full name of an operator given without its domain (``GEMM`` → ``ge::GEMM``); None unless exactly one fits."""
        found = [name for name in self._ops if name.rpartition("::")[2] == op]
        return found[0] if len(found) == 1 else None


def _same_operator(one: OpDef, other: OpDef) -> bool:
    """Whether two declarations are identical: same signature, and functions of the same code."""
    signature = replace(one, body=None, shape=None, origin="") == replace(
        other, body=None, shape=None, origin=""
    )
    return (
        signature
        and _same_function(one.body, other.body)
        and _same_function(one.shape, other.shape)
    )


def _same_function(one: Any, other: Any) -> bool:
    if one is other:
        return True
    if not isinstance(one, FunctionType) or not isinstance(other, FunctionType):
        return False
    return (
        _same_code(one.__code__, other.__code__)
        and one.__defaults__ == other.__defaults__
        and one.__kwdefaults__ == other.__kwdefaults__
        and all(
            _same_global(one.__globals__.get(name), other.__globals__.get(name))
            for name in one.__code__.co_names
        )
        and [_cell(cell) for cell in one.__closure__ or ()]
        == [_cell(cell) for cell in other.__closure__ or ()]
    )


def _same_code(one: CodeType, other: CodeType) -> bool:
    """Whether two functions compute the same; docstrings and line numbers may differ."""

    def constants(code: CodeType) -> list[Any]:
        # a function's first constant is its docstring, or None
        return [value for value in code.co_consts[1:] if not isinstance(value, CodeType)]

    def nested(code: CodeType) -> list[CodeType]:
        return [value for value in code.co_consts if isinstance(value, CodeType)]

    return (
        (one.co_code, one.co_names, one.co_varnames, one.co_freevars)
        == (other.co_code, other.co_names, other.co_varnames, other.co_freevars)
        and repr(constants(one)) == repr(constants(other))
        and len(nested(one)) == len(nested(other))
        and all(map(_same_code, nested(one), nested(other)))
    )


def _same_global(one: Any, other: Any) -> bool:
    """Whether a name means the same in two modules; helper functions are compared by code."""
    if isinstance(one, FunctionType) and isinstance(other, FunctionType):
        return one is other or _same_code(one.__code__, other.__code__)
    return bool(one is other or (isinstance(one, int | float | str) and one == other))


def _cell(cell: Any) -> Any:
    return cell.cell_contents
