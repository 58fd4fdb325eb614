"""Custom operators: vendor files declare them, their host holds them.

``register`` only leaves a mark in the module that calls it. The host that loads the module adds
the marked operators to its own ``OpRegistry``; ONNX's process-wide registry stays unchanged, and
two hosts share nothing.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain
from operator import index
from types import CodeType, FunctionType
from typing import Any, TypeAlias, cast

import numpy as np
import onnx

from gehost.errors import VendorError
from gehost.ir.attributes import encode_attribute
from gehost.ir.types import TensorType
from gehost.location import SourceLocation
from gehost.spelling import hint, is_misspelled, is_similar

MARK = "__gehost_ops__"

TRAITS = frozenset({"commutative", "random", "stateful"})
"""Traits of an operator: its inputs may be in any order; it draws random numbers; it has state."""
IMPURE = frozenset({"random", "stateful"})
"""Traits of operators that clean-up leaves alone."""

PROVIDER = re.compile(r"[A-Za-z][\w.-]*((>=|<=|==|!=|<|>)\d+(\.\d+)*(,(?=[<>=!])|$))*")

ShapeFunction: TypeAlias = Callable[
    [Sequence[TensorType | None], Mapping[str, Any]], Sequence[TensorType | None]
]


_LIST = re.compile(r"[\w.]*\b(?:list|List|tuple|Sequence)\[(?P<entry>\w+)(?:, \.\.\.)?\]")
"""An annotation of a list."""
_OPTIONAL = re.compile(
    r"[\w.]*\bOptional\[(?P<plain>.*)\]|None \| (?P<second>.*)|(?P<first>.*) \| None"
)

_FLAG: tuple[type[Any], ...] = (bool, np.bool_)
_INTEGER: tuple[type[Any], ...] = (int, np.integer, *_FLAG)
_NUMBER: tuple[type[Any], ...] = (float, np.floating, int, np.integer)


@dataclass(frozen=True)
class _Kind:
    """The accepted values of an attribute."""

    wanted: str
    accepts: Callable[[Any], bool]


_SCALARS: dict[type[Any], _Kind] = {
    bool: _Kind(
        "True or False",
        lambda value: isinstance(value, _FLAG) or (isinstance(value, _INTEGER) and value in (0, 1)),
    ),
    int: _Kind("an integer", lambda value: isinstance(value, _INTEGER)),
    float: _Kind(
        "a number", lambda value: isinstance(value, _NUMBER) and not isinstance(value, bool)
    ),
    str: _Kind("a string", lambda value: isinstance(value, str | bytes)),
}


def _kind_of(default: Any) -> _Kind | None:
    """Return the kind of an attribute's default, None if unclear."""
    if isinstance(default, np.generic):
        default = cast("np.generic[Any]", default).item()
    for base, kind in _SCALARS.items():  # bool first: it is an int
        if isinstance(default, base):
            return kind
    if isinstance(default, onnx.TensorProto | np.ndarray):
        return _Kind("an array", lambda value: isinstance(value, onnx.TensorProto | np.ndarray))
    if isinstance(default, list | tuple):
        return _list_of([_kind_of(entry) for entry in cast("Sequence[Any]", default)])
    return None


def _list_of(kinds: Sequence[_Kind | None]) -> _Kind:
    """Return the kind of a list with these entries.

    ``[1, 0.5]`` is a list of numbers.
    """
    entry = next((kind for kind in kinds if kind is _SCALARS[float]), next(iter(kinds), None))

    def accepts(value: Any) -> bool:
        if isinstance(value, np.ndarray) and cast("np.ndarray[Any, Any]", value).ndim == 1:
            value = cast("np.ndarray[Any, Any]", value).tolist()
        return isinstance(value, list | tuple) and (
            entry is None or all(map(entry.accepts, cast("Sequence[Any]", value)))
        )

    return _Kind("a list" if entry is None else f"a list, each entry {entry.wanted}", accepts)


def _kind_of_annotation(annotation: Any) -> _Kind | None:
    """Return the kind of a plain, list or optional annotation, else None."""
    name = annotation.__name__ if isinstance(annotation, type) else str(annotation)
    if optional := _OPTIONAL.fullmatch(name):
        name = optional["plain"] or optional["first"] or optional["second"]
    match = _LIST.fullmatch(name)
    entry = match["entry"] if match else name
    kind = next((kind for base, kind in _SCALARS.items() if base.__name__ == entry), None)
    return _list_of([kind]) if match and kind else kind


@dataclass(frozen=True)
class OpDef:
    """A custom operator: its signature and, optionally, shape function and body.

    ``body`` takes the inputs as ``EsTensor`` by position and the attributes by keyword, and returns
    the output tensors. An operator with a body is written into compiled models as a model-local
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
    provided_by: str = ""
    """The runtime, with versions, that has a kernel for the operator; its name never changes."""

    @property
    def impure(self) -> bool:
        """Whether two equal calls may give two results."""
        return not IMPURE.isdisjoint(self.traits)

    @property
    def op_type(self) -> str:
        return self.name.rpartition("::")[2]

    @cached_property
    def kinds(self) -> Mapping[str, _Kind]:
        """The kind of each attribute, from default or the body's annotation."""
        annotations: Mapping[str, inspect.Parameter] = (
            {} if self.body is None else inspect.signature(self.body).parameters
        )
        results: dict[str, _Kind] = {}
        for name, default in self.attributes.items():
            kind = _kind_of(default)
            if kind is None and name in annotations:
                kind = _kind_of_annotation(annotations[name].annotation)
            if kind is not None:
                results[name] = kind
        return results

    def problem(self, attributes: Mapping[str, Any]) -> str:
        """Return the error in the attributes of a call, or "".

        An operator that declares neither a body nor attributes takes any. None means absent.
        """
        if self.body is None and not self.attributes:
            return ""
        for name, value in attributes.items():
            if name not in self.attributes:
                listing = ", ".join(sorted(self.attributes)) or "none"
                return (
                    f'{self.name} has no attribute "{name}"'
                    f"{hint(name, self.attributes) or f'; it has {listing}'}"
                )
            kind = self.kinds.get(name)
            if kind is not None and value is not None and not kind.accepts(value):
                return f'{self.name}: attribute "{name}" must be {kind.wanted}, got {value!r}'
        return ""

    def output_problem(self, count: int) -> str:
        """Return why a call cannot have this many outputs, or ""."""
        if count <= len(self.outputs) or not self.fixes_outputs:
            return ""
        return f"{self.name} has outputs {', '.join(self.outputs)}, no output {count - 1}"

    @property
    def fixes_outputs(self) -> bool:
        """Whether a call has at most the declared outputs.

        An operator that declares neither a body nor inputs may have any number.
        """
        return self.body is not None or bool(self.inputs)

    @property
    def defaults(self) -> dict[str, Any]:
        """The attributes that may be left out, with their defaults."""
        return {
            name: value
            for name, value in self.attributes.items()
            if value is not inspect.Parameter.empty
        }


def register(
    name: str | Any,  # Any: checked below, with an error of ours
    *,
    inputs: Sequence[str] = (),
    outputs: Sequence[str] = ("output",),
    attributes: Mapping[str, Any] | None = None,
    version: int = 1,
    shape: ShapeFunction | None = None,
    traits: Iterable[str] = (),
    provided_by: str = "",
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Declare the operator ``domain::Type`` for the host that loads the calling module.

    As a decorator of the body, inputs and attributes are its signature: positional parameters are
    inputs (a default of None makes one optional), keyword-only parameters are attributes with their
    defaults. Without a body, give them as arguments.

    Args:
        name: ``domain::Type``; bodies in ONNX's own domain are refused.
        outputs: names of the outputs.
        shape: returns the output types from the input types and attributes; default: types come
            from the body.
        traits: some of ``"commutative"`` (any order of the inputs gives the same result:
            ``es.Commutative`` accepts the operator), ``"random"`` and ``"stateful"`` (clean-up
            leaves the operator alone).
        provided_by: the runtime that has a kernel for the operator, with the versions for which
            the body is exact: ``"onnxruntime>=1.31"``, or alone where it holds for all of them.
            Such an operator is never renamed. The model carries its body if all calls share one;
            if not, the report notes it.

    Raises:
        VendorError: the name has no domain, the module declares it twice, a trait does not exist,
            ``provided_by`` is no name, alone or with versions, ONNX has no type for an attribute's
            default, or the body has ``*`` or ``**`` parameters.
    """
    frame = inspect.currentframe()
    caller = frame.f_back if frame is not None else None
    assert caller is not None
    origin = f"{caller.f_code.co_filename}:{caller.f_lineno}"
    if not isinstance(name, str):
        raise VendorError(
            f'wanted the name of an operator, as in "acme::Op", got {name!r}', where=origin
        )
    if "::" not in name or name.startswith(("::", "ai.onnx::")):
        base = name.rpartition("::")[2]
        raise VendorError(
            f'operator "{name}" needs a domain of its own, as in "acme::{base}"',
            where=origin,
        )
    for kind, names in (("inputs", inputs), ("outputs", outputs)):
        if isinstance(names, str):
            raise VendorError(
                f'{kind} must be a list, as in ["{names}"]',
                where=origin,
                subject=f'operator "{name}"',
            )
        if not isinstance(names, Iterable):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise VendorError(
                f"{kind} must be a list of names, got {names!r}",
                where=origin,
                subject=f'operator "{name}"',
            )
    definition = OpDef(
        name,
        index(version),
        tuple(inputs),
        len(inputs),
        tuple(outputs),
        dict(attributes or {}),
        None,
        shape,
        frozenset(traits),
        origin,
        provided_by,
    )
    _check_traits(definition, traits)
    if provided_by and not PROVIDER.fullmatch(provided_by):
        raise VendorError(
            f'provided_by must be a runtime, as in "onnxruntime" or "onnxruntime>=1.31", got '
            f"{provided_by!r}",
            where=origin,
            subject=f'operator "{name}"',
        )
    _check_defaults(definition)
    marks: dict[str, OpDef] = caller.f_globals.setdefault(MARK, {})
    if name in marks:
        raise VendorError(
            f'operator "{name}" is registered already at {marks[name].origin}', where=origin
        )
    marks[name] = definition

    def with_body(body: Callable[..., Any]) -> Callable[..., Any]:
        parameters = inspect.signature(body).parameters.values()
        if any(p.kind in (p.VAR_POSITIONAL, p.VAR_KEYWORD) for p in parameters):
            raise VendorError(
                f"the body of {name} must name its inputs and attributes, without * and **",
                where=origin,
            )
        positional = [
            p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)
        ]
        declared = replace(
            definition,
            inputs=tuple(p.name for p in positional),
            required=sum(p.default is p.empty for p in positional),
            attributes={p.name: p.default for p in parameters if p.kind is p.KEYWORD_ONLY},
            body=body,
        )
        _check_defaults(declared)
        marks[name] = declared
        return body

    return with_body


def _check_traits(definition: OpDef, argument: object) -> None:
    where = f'{definition.origin}: operator "{definition.name}"'
    if isinstance(argument, str):
        raise VendorError(f'traits must be a list, as in ["{argument}"]', where=where)
    for trait in sorted(map(str, definition.traits - TRAITS)):
        near = hint(trait, TRAITS) or f"; there are {', '.join(sorted(TRAITS))}"
        raise VendorError(f'there is no trait "{trait}"{near}', where=where)


def _check_defaults(definition: OpDef) -> None:
    for name, default in definition.defaults.items():
        if default is None:
            continue
        try:
            encode_attribute(name, default)
        except TypeError as error:
            raise VendorError(
                str(error),
                where=definition.origin,
                subject=f'operator "{definition.name}"',
                hint="give a number, a string, a list of these or an array",
            ) from error


def _vendor_of(origin: str) -> str:
    """Return the vendor's directory of a source line, or ""."""
    before, result, _ = origin.replace("\\", "/").partition("/custom_fusion_passes/")
    return before if result else ""


def declares_operators(namespace: Mapping[str, Any]) -> bool:
    """Whether ``register`` marked something in a module's namespace."""
    return MARK in namespace


class OpRegistry:
    """The custom operators of one host."""

    def __init__(self) -> None:
        self._ops: dict[str, OpDef] = {}
        self._by_type: dict[str, list[OpDef]] = {}
        """All declarations, including identical ones of several vendors."""
        self._suspects: dict[str, list[OpDef]] = {}
        """Registered operators that an unknown name may misspell."""

    def copy(self) -> OpRegistry:
        """Return a registry of its own with the same entries."""
        other = OpRegistry()
        other._ops = dict(self._ops)
        other._by_type = {op_type: list(result) for op_type, result in self._by_type.items()}
        return other

    def __iter__(self) -> Iterator[OpDef]:
        return iter(self._ops.values())

    def __len__(self) -> int:
        return len(self._ops)

    def __bool__(self) -> bool:
        return True

    def add(self, definition: OpDef) -> None:
        """Add an operator.

        An identical declaration of a second vendor is the same operator.

        Raises:
            VendorError: it is already declared differently; the message names both places.
        """
        cached = self._ops.get(definition.name)
        if cached is not None and not _same_operator(cached, definition):
            raise VendorError(
                f'operator "{definition.name}" is declared differently at {cached.origin}',
                where=definition.origin,
                hint="rename one, or make them identical",
            )
        self._ops.setdefault(definition.name, definition)
        self._by_type.setdefault(definition.op_type, []).append(definition)
        self._suspects.clear()

    def define(self, definition: OpDef) -> None:
        """Add an operator, or give one that is declared without a body this one."""
        present = self._ops.get(definition.name)
        if present is None:
            self.add(definition)
        elif present.body is None:
            self._ops[definition.name] = definition

    def add_marked(self, namespace: Mapping[str, Any], *, replace: bool = True) -> None:
        """Add the operators that ``register`` marked in a module's namespace.

        Args:
            namespace: ``vars(module)``.
            replace: False skips operators that are declared already, even differently.
        """
        marks: dict[str, OpDef] = namespace.get(MARK, {})
        for definition in marks.values():
            if replace or definition.name not in self._ops:
                self.add(definition)

    def get(self, op: str) -> OpDef | None:
        return self._ops.get(op)

    def resolve(self, op: str, where: object = "") -> str | None:
        """Return the full name of an operator without domain.

        ``GEMM`` gives ``ge::GEMM``.

        Of several, the one that the vendor of ``where`` registers; None unless exactly one fits.
        """
        result = self.namesakes(op)
        if len(result) > 1:
            result = list({namesake.name: None for namesake in self.own_namesakes(op, where)})
        return result[0] if len(result) == 1 else None

    def namesakes(self, op_type: str) -> Sequence[str]:
        """Return the names of the operators of this type in all domains."""
        return list({item.name: None for item in self._by_type.get(op_type, ())})

    def own_namesakes(self, op_type: str, where: object) -> Sequence[OpDef]:
        """Return this type's operators registered by vendor or file ``where``."""
        cached = self._by_type.get(op_type, ())
        if not cached:
            return ()
        line = str(where)
        vendor, path = _vendor_of(line), SourceLocation.parse(line).path
        return [
            item
            for item in cached
            if SourceLocation.parse(item.origin).path == path
            or (vendor and _vendor_of(item.origin) == vendor)
        ]

    def meant_by(self, op: str, where: object) -> OpDef | None:
        """Return the registered operator that the unknown name ``op`` probably misspells.

        Operators of other vendors do not count.
        """
        suspects = self._suspects.get(op)
        if suspects is None:
            domain, _, op_type = op.rpartition("::")
            suspects = list[OpDef]()
            for suspect in chain.from_iterable(self._by_type.values()):
                known_domain = suspect.name.rpartition("::")[0]
                if domain == known_domain:
                    is_near = is_misspelled(op_type, suspect.op_type)
                else:
                    is_near = op_type == suspect.op_type and is_similar(domain, known_domain)
                if is_near:
                    suspects.append(suspect)
            self._suspects[op] = suspects
        if not suspects:
            return None
        vendor = _vendor_of(str(where))
        return next(
            (suspect for suspect in suspects if _vendor_of(suspect.origin) in ("", vendor)),
            None,
        )


_NOTHING: frozenset[tuple[Any, Any]] = frozenset()


def _same_operator(one: OpDef, other: OpDef) -> bool:
    """Whether two declarations have one signature and functions of equal code."""
    signature = replace(one, body=None, shape=None, origin="") == replace(
        other, body=None, shape=None, origin=""
    )
    return (
        signature
        and _same_function(one.body, other.body)
        and _same_function(one.shape, other.shape)
    )


def _same_function(one: Any, other: Any, compared: frozenset[tuple[Any, Any]] = _NOTHING) -> bool:
    """Whether two functions have equal code, defaults, closures and globals.

    ``compared`` has the pairs under comparison: functions may call each other.
    """
    if one is other or (one, other) in compared:
        return True
    if not isinstance(one, FunctionType) or not isinstance(other, FunctionType):
        return False
    compared |= {(one, other)}
    return (
        _same_code(one.__code__, other.__code__)
        and _same_value(one.__defaults__, other.__defaults__, compared)
        and _same_value(one.__kwdefaults__, other.__kwdefaults__, compared)
        and _same_value(_cells(one), _cells(other), compared)
        and all(
            _same_value(one.__globals__.get(name), other.__globals__.get(name), compared)
            for name in _names(one.__code__)
        )
    )


def _names(code: CodeType) -> set[str]:
    """Return globals and attributes used in a function and nested ones."""
    nested = [value for value in code.co_consts if isinstance(value, CodeType)]
    return set(code.co_names).union(*map(_names, nested))


def _cells(function: FunctionType) -> list[Any]:
    """Return the closure variables of a function.

    An unset one is represented by its cell.
    """
    results: list[Any] = []
    for cell in function.__closure__ or ():
        try:
            results.append(cell.cell_contents)
        except ValueError:
            results.append(cell)
    return results


def _same_value(one: Any, other: Any, compared: frozenset[tuple[Any, Any]]) -> bool:
    """Whether two values are certainly equal; arrays are compared by element."""
    if one is other:
        return True
    if isinstance(one, FunctionType):
        return _same_function(one, other, compared)
    if type(one) is not type(other):
        return False
    if isinstance(one, np.ndarray):
        array = cast("np.ndarray[Any, Any]", one)
        return array.dtype == other.dtype and np.array_equal(array, other)
    if isinstance(one, list | tuple):
        entries = cast("Sequence[Any]", one)
        return len(entries) == len(other) and all(
            _same_value(left, right, compared) for left, right in zip(entries, other, strict=True)
        )
    if isinstance(one, dict):
        items = cast("dict[Any, Any]", one)
        return items.keys() == other.keys() and all(
            _same_value(value, other[key], compared) for key, value in items.items()
        )
    return isinstance(one, int | float | str | bytes | np.generic) and bool(one == other)


def _same_code(one: CodeType, other: CodeType) -> bool:
    """Whether two code objects are equal but for docstrings and line numbers."""

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


_of_this_host: ContextVar[OpRegistry | None] = ContextVar("gehost_operators", default=None)


@contextmanager
def declared_in(registry: OpRegistry) -> Generator[None]:
    """Let ``declared`` find the operators of a host, whose authors' code the block runs."""
    token = _of_this_host.set(registry)
    try:
        yield
    finally:
        _of_this_host.reset(token)


def declared(op: str) -> OpDef | None:
    """Return the declaration of an operator while code of a pass runs.

    None if there is none, or no pass runs.
    """
    registry = _of_this_host.get()
    if registry is None:
        return None
    return registry.get(op if "::" in op else registry.resolve(op) or op)
