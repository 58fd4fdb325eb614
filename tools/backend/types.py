"""Whether what gehost inferred of a tensor is true of the tensor that an engine computed."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import onnx

from gehost import hookimpl
from gehost.host.context import CompileContext
from gehost.ir.graph import Graph
from gehost.ir.tensors import elem_type
from gehost.ir.types import DataType, Dim, TensorType, ValueType, decode_type
from gehost.stages import CustomPassStage
from tools.backend.cases import Values

Types = dict[str, ValueType]


class TypeRecorder:
    """A plugin that notes the types of all tensors of the root graph after inference, and at the end of the compile."""

    inferred: Types
    final: Types

    @hookimpl
    def gehost_compile_started(self) -> None:
        self.inferred, self.final = {}, {}

    @hookimpl
    def gehost_stage_finished(self, graph: Graph, context: CompileContext) -> None:
        if context.stage is CustomPassStage.kAfterInferShape:
            self.inferred = _types(graph)

    @hookimpl
    def gehost_compile_finished(self, graph: Graph) -> None:
        self.final = _types(graph)


def _types(graph: Graph) -> Types:
    return {name: value.type for name, value in graph.values.items() if value.type is not None}


def contradictions(types: Types, values: Values) -> list[str]:
    """What is said of the values that is not true of them; a name of a size has to mean one size throughout."""
    sizes: dict[str, int] = {}
    return [
        f"{name} is said to be {said}, but is {value.dtype}{list(value.shape)}"
        for name, whole in types.items()
        if name in values
        for said, value in _pairs(whole, values[name])
        if not _fits(said, value, sizes)
    ]


def _pairs(said: ValueType | None, value: Any) -> Iterator[tuple[TensorType, np.ndarray[Any, Any]]]:
    """The tensors of a value, each with what is said of it.

    Of the elements of a sequence that is the element type alone: a name of a size means another one in each of them, and
    what test_loop13_seq itself says of theirs is wrong.
    """
    if isinstance(said, TensorType):
        yield said, np.asarray(value)
    elif said is not None and value is not None:
        proto = onnx.TypeProto.FromString(said.serialized)
        if proto.HasField("optional_type"):
            yield from _pairs(decode_type(proto.optional_type.elem_type), value)
        elif proto.HasField("sequence_type"):
            inside = decode_type(proto.sequence_type.elem_type)
            for element in value:
                yield from _pairs(
                    TensorType(inside.dtype, None) if isinstance(inside, TensorType) else inside,
                    element,
                )


def _fits(said: TensorType, value: np.ndarray[Any, Any], sizes: dict[str, int]) -> bool:
    if said.dtype not in (elem_type(value.dtype), DataType.UNDEFINED):
        return False
    if said.shape is None:
        return True
    return len(said.shape) == value.ndim and all(
        _is(dim, size, sizes) for dim, size in zip(said.shape, value.shape, strict=True)
    )


def _is(dim: Dim, size: int, sizes: dict[str, int]) -> bool:
    if isinstance(dim, str):
        return sizes.setdefault(dim, size) == size
    return dim in (None, size)
