"""A graph as GE's readable dump prints it.

Source: the documented readable dump of GE: ``%n : [#users=1] = Node[type=T] (inputs = (x=%a))``.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, cast

import numpy as np

from gehost.errors import one_line
from gehost.es.schemas import operator
from gehost.ir.graph import Graph, Node, Value


def readable(graph: Graph) -> str:
    """Return the text of a graph: a line for each input, constant and node."""
    names = _Names()
    lines = [f'graph("{one_line(graph.name)}"):']
    sources: dict[Value, None] = {}
    for node in graph.nodes:
        for value in node.inputs:
            if value is not None and value.producer is None:
                sources[value] = None
    for value in sources:
        kind = "Data" if value.is_input else "Const"
        users = len(value.readers)
        lines.append(f"  %{names.of(value)} : [#users={users}] = Node[type={kind}] ()")
    for node in graph.nodes:
        lines += _lines_of(node, names)
    returned = ", ".join(f"%{names.of(value)}" for value in graph.outputs)
    return "\n".join([*lines, "", f"  return ({returned})", ""])


def _lines_of(node: Node, names: _Names) -> list[str]:
    slots = _slot_names(node)
    inputs = ", ".join(
        f"{slots[slot] if slot < len(slots) else f'input{slot}'}=%{names.of(value)}"
        for slot, value in enumerate(node.inputs)
        if value is not None
    )
    parts = [f"inputs = ({inputs})"] if inputs else []
    if node.attrs:
        attributes = ", ".join(f"{name}: {_text(value)}" for name, value in node.attrs.items())
        parts.append(f"attrs = {{{attributes}}}")
    outputs = [value for value in node.outputs if value is not None]
    users = sum(len(value.readers) for value in outputs)
    body = f"[#users={users}] = Node[type={one_line(node.op_type)}] ({', '.join(parts)})"
    if len(node.outputs) == 1 and outputs:
        return [f"  %{names.of(outputs[0])} : {body}"]
    whole = names.new(node.label)
    return [
        f"  %{whole} : {body}",
        *(
            f"  %{names.of(value)} : [users={len(value.readers)}] = "
            f"get_element[node=%{whole}]({value.index})"
            for value in outputs
        ),
    ]


def _slot_names(node: Node) -> Sequence[str]:
    schema = operator(node.domain, node.op_type)
    return () if schema is None else schema.inputs


def _text(value: Any) -> str:
    if isinstance(value, np.ndarray):
        return f"Tensor{np.shape(cast('Any', value))}"
    return one_line(str(value))


class _Names:
    """Names of values as identifiers, each once."""

    def __init__(self) -> None:
        self._names: dict[Value, str] = {}
        self._used: set[str] = set()

    def of(self, value: Value) -> str:
        if value not in self._names:
            self._names[value] = self.new(value.name)
        return self._names[value]

    def new(self, name: str) -> str:
        plain = re.sub(r"\W", "_", name) or "unnamed"
        number = 0
        text = plain
        while text in self._used:
            number += 1
            text = f"{plain}_{number}"
        self._used.add(text)
        return text
