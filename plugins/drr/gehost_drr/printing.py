"""A graph as text, one operation a line.

The form is that of Paddle's IR.

``(%2) = "MatMul" (%0, %1) {…} : (tensor<1x300x256xf32>, tensor<256x256xf32>) ->
tensor<1x300x256xf32>``
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from types import MappingProxyType
from typing import Any, cast

import numpy as np

from gehost import DataType, Graph, Node, Value

_SHORT = MappingProxyType(
    {
        DataType.FLOAT: "f32",
        DataType.DOUBLE: "f64",
        DataType.FLOAT16: "f16",
        DataType.BFLOAT16: "bf16",
        DataType.INT8: "i8",
        DataType.INT16: "i16",
        DataType.INT32: "i32",
        DataType.INT64: "i64",
        DataType.UINT8: "ui8",
        DataType.BOOL: "b",
    }
)
_INDENT = "    "
_TYPES = ("to", "dtype")
_MOST_SHOWN = 16


def print_graph(graph: Graph) -> str:
    """Print inputs, operations and outputs of the graph with its bodies."""
    return "\n".join(["{", *_lines(graph, _Numbers(), _INDENT), "}"])


class _Numbers:
    """``%k`` for values, in the order in which they are met."""

    def __init__(self) -> None:
        self._known: dict[Value, int] = {}

    def of(self, value: Value | None) -> str:
        return (
            "<<NULL VALUE>>"
            if value is None
            else f"%{self._known.setdefault(value, len(self._known))}"
        )

    def all(self, values: Sequence[Value | None]) -> str:
        return f"({', '.join(map(self.of, values))})"


def _lines(graph: Graph, numbers: _Numbers, indent: str) -> Iterator[str]:
    for value in graph.inputs:
        yield (
            f'{indent}({numbers.of(value)}) = "builtin.input" () {{name: '
            f"{_quoted(value.name)}}} : () -> {type_text(value)}"
        )
    for value in graph.values.values():
        if value.initializer is not None and not value.is_input:
            name = _quoted(value.name)
            yield (
                f'{indent}({numbers.of(value)}) = "builtin.parameter" () {{name: {name}}} : () '
                f"-> {type_text(value)}"
            )
    for node in graph.nodes:
        yield f"{indent}{_operation(node, numbers)}"
        for body in node.bodies:
            yield f"{indent}{{"
            yield from _lines(body, numbers, indent + _INDENT)
            yield f"{indent}}}"
    outputs = list[Value | None](graph.outputs)
    yield (
        f'{indent}() = "builtin.output" {numbers.all(outputs)} : {_types(outputs, always=True)} ->'
    )


def _operation(node: Node, numbers: _Numbers) -> str:
    result, read = numbers.all(node.outputs), numbers.all(node.inputs)
    attributes = ", ".join(
        f"{name}: {_type_of(value) if name in _TYPES else _attribute(value)}"
        for name, value in sorted(node.attrs.items())
    )
    return (
        f"{result} = {_quoted(node.op)} {read} {{{attributes}}} : "
        f"{_types(node.inputs, always=True)} -> {_types(node.outputs)}"
    )


def _types(values: Sequence[Value | None], *, always: bool = False) -> str:
    listing = ", ".join("<<NULL TYPE>>" if value is None else type_text(value) for value in values)
    return f"({listing})" if always or len(values) != 1 else listing


def type_text(value: Value) -> str:
    """Return a type such as ``tensor<1x-1xf32>``.

    A size that is no number is -1; ``*`` stands for an unknown rank.
    """
    dtype = "?" if value.dtype is None else _SHORT.get(value.dtype, value.dtype.name.lower())
    if value.shape is None:
        return f"tensor<*x{dtype}>"
    dims = (f"{dim if isinstance(dim, int) else -1}x" for dim in value.shape)
    return f"tensor<{''.join(dims)}{dtype}>"


def _quoted(text: str) -> str:
    """A text of the model, which may hold anything, on one line."""
    return json.dumps(text, ensure_ascii=False)


def _attribute(value: Any) -> str:
    if isinstance(value, Graph):
        return f"region {value.name}"
    if isinstance(value, np.ndarray):
        array = cast("np.ndarray[Any, Any]", value)
        text = np.array2string(array, separator=",", threshold=8).replace("\n", "")
        return f"{text} : {array.dtype.name}"
    if isinstance(value, str):
        return _quoted(value)
    if isinstance(value, float):
        return str(np.float32(value))  # ONNX holds it so: 0.2, not 0.20000000298023224
    if isinstance(value, list | tuple):
        items = list(cast("Sequence[Any]", value))
        shown = [*map(_attribute, items[:_MOST_SHOWN]), *(["…"] if items[_MOST_SHOWN:] else [])]
        return f"[{', '.join(shown)}]"
    return str(value)


def _type_of(value: Any) -> str:
    """Return the element type that a number stands for, the number itself if it is none."""
    entry = isinstance(value, int) and value in DataType.__members__.values()
    return _SHORT.get(DataType(value), DataType(value).name.lower()) if entry else str(value)
