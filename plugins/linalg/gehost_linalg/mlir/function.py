"""Functions of a text, and a statement that is being read."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from gehost_linalg.generic import Op, Value
from gehost_linalg.interpret import Rule

_BARE = re.compile(r"[A-Za-z_][A-Za-z0-9_$.]*")


@dataclass(eq=False)
class Function:
    """A ``func.func``: arguments, operations in order, and outputs.

    Attributes:
        name: without ``@``.
        arguments: its inputs.
        ops: an operation with regions is several in a row.
        outputs: what it returns.
        notes: comments above operations.
        rules: sizes that are computed from others, by name.
        attributes: texts of dictionaries: of arguments by their value, of results by their number,
            of the function by "".
        kind: ``func.func`` or ``util.func``.
        visibility: ``private``, ``public`` or "".
        is_declaration: whether it has no body; its outputs are the types of its results.
        around: texts of the module that stand before it: globals of other dialects.
    """

    name: str
    arguments: list[Value]
    ops: list[Op]
    outputs: list[Value]
    notes: dict[Op, list[str]] = field(default_factory=dict[Op, list[str]])
    rules: Mapping[str, Rule] = field(default_factory=dict[str, Rule])
    attributes: dict[Value | int | str, str] = field(default_factory=dict["Value | int | str", str])
    kind: str = "func.func"
    visibility: str = ""
    is_declaration: bool = False
    around: list[str] = field(default_factory=list[str])


def head_of(function: Function, name_of: Callable[[Value], str]) -> str:
    """The text of a function before its body; a declaration does not name its arguments."""
    shown = {key: f" {text}" for key, text in function.attributes.items()}
    arguments = [
        f"{'' if function.is_declaration else f'{name_of(value)}: '}{value.type_text}"
        f"{shown.get(value, '')}"
        for value in function.arguments
    ]
    types = [
        f"{value.type_text}{shown.get(place, '')}" for place, value in enumerate(function.outputs)
    ]
    has_one_type = len(types) == 1 and 0 not in shown
    result = f" -> {types[0]}" if has_one_type else f" -> ({', '.join(types)})" if types else ""
    visibility = f"{function.visibility} " if function.visibility else ""
    rest = f" attributes{shown['']}" if "" in shown else ""
    symbol = _symbol(function.name)
    return f"{function.kind} {visibility}@{symbol}({', '.join(arguments)}){result}{rest}"


def is_bare(name: str) -> bool:
    """Whether a name stands in a text as it is."""
    return _BARE.fullmatch(name) is not None


def _symbol(name: str) -> str:
    return name if is_bare(name) else '"' + re.sub(r'[^ -~]|["\\]', "_", name) + '"'


class Statement(NamedTuple):
    """An operation that is being read.

    Attributes:
        name: of the operation.
        results: the names of its results, with ``%``.
        start: where the statement begins.
    """

    name: str
    results: Sequence[str]
    start: int

    def result(self, default: str) -> str:
        """The name of the first result."""
        return self.results[0][1:] if self.results else default


class Parts(NamedTuple):
    """An operation in generic form, without its regions.

    Attributes:
        operands: in order, of all segments.
        attributes: properties and attributes as texts.
        results: values of the types that stand at its end.
    """

    operands: list[Value]
    attributes: dict[str, str]
    results: list[Value]
