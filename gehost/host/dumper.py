"""A plugin that writes the graph after each stage.

Files have GE's names; Netron opens them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from pathlib import Path

import onnx
from google.protobuf import text_format

from gehost.errors import OutputError
from gehost.host.context import CompileContext
from gehost.host.hookspecs import hookimpl
from gehost.host.pipeline import PIPELINE
from gehost.host.registry import PassSpec
from gehost.ir.files.save import write_bytes_atomic
from gehost.ir.files.skeleton import skeleton
from gehost.ir.graph import Graph
from gehost.ir.types import encode_type
from gehost.options import DumpFormat
from gehost.passes.context import PassRecord

_STAGE_NAMES = {row.stage: row.dump for row in PIPELINE}
_ENCODERS: dict[DumpFormat, Callable[[onnx.ModelProto], bytes]] = {
    "pbtxt": lambda proto: text_format.MessageToString(proto).encode(),
    "onnx": onnx.ModelProto.SerializeToString,
}
_DUMPED = re.compile(
    r"ge_onnx_\d{8}_graph_0_"
    rf"(PreRunBegin|{'|'.join(_STAGE_NAMES.values())}|Pass_.*|Build)\.({'|'.join(_ENCODERS)})"
)
"""File names of dumps."""
_CONSTANT_LIMIT = 1024
"""Largest size in bytes of attributes, and of tensors in nested bodies, that dumps without weights
keep; shapes are part of the structure.
"""


class Dumper:
    """Dumps of one compile: ``ge_onnx_<number>_graph_0_<stage>.<format>``."""

    def __init__(
        self, directory: str, level: int, file_format: DumpFormat, *, each_pass: bool
    ) -> None:
        self._directory = Path(directory)
        self._level = level
        self._format: DumpFormat = file_format
        self._each_pass = each_pass
        self._number = 0
        self._context: CompileContext | None = None

    @hookimpl
    def gehost_compile_started(self, graph: Graph, context: CompileContext) -> None:
        """Replace the dumps of an earlier compile; files of stages that only GE has stay.

        Raises:
            OutputError: a file cannot be removed or written.
        """
        self._number, self._context = 0, context
        for path in self._directory.glob("ge_onnx_*_graph_0_*"):
            if _DUMPED.fullmatch(path.name):
                try:
                    path.unlink()
                except OSError as error:
                    raise OutputError(
                        f"cannot remove the dump of an earlier compile: {error.strerror}",
                        where=path,
                    ) from error
        self._write(graph, "PreRunBegin")

    @hookimpl(trylast=True)
    def gehost_stage_finished(self, graph: Graph, context: CompileContext) -> None:
        if context.stage is not None:
            self._write(graph, _STAGE_NAMES[context.stage])

    @hookimpl(trylast=True)
    def gehost_after_pass(self, spec: PassSpec, graph: Graph, record: PassRecord) -> None:
        if self._each_pass and record.status == "done":
            self._write(graph, f"Pass_{spec.name}")

    @hookimpl(trylast=True)
    def gehost_compile_finished(self, graph: Graph) -> None:
        self._write(graph, "Build")

    def _write(self, graph: Graph, stage: str) -> None:
        safe = re.sub(r"[^A-Za-z0-9_.-]", "_", stage)[:100]
        path = self._directory / f"ge_onnx_{self._number:08d}_graph_0_{safe}.{self._format}"
        content = _ENCODERS[self._format](dump_proto(graph, self._level))
        try:
            self._directory.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise OutputError(
                f"cannot make the directory for dumps: {error.strerror}", where=self._directory
            ) from error
        write_bytes_atomic(path, content)
        self._number += 1
        if self._context is not None:
            self._context.report.dumps.append(str(path))


def dump_proto(graph: Graph, level: int) -> onnx.ModelProto:
    """Return a copy of the model with the index's types, for viewing.

    Level 1 keeps the weights; level 3 has no types.
    """
    model = graph.model
    copy = skeleton(model.flush(), lambda _: level == 1)
    if level < 3:
        _write_types(graph, copy.graph)
    else:
        del copy.graph.value_info[:], copy.graph.initializer[:], copy.graph.sparse_initializer[:]
    if level > 1:
        for tensor in copy.graph.sparse_initializer:
            _drop_elements(tensor.values, limit=0)
            _drop_elements(tensor.indices, limit=0)
        for nodes in (copy.graph.node, *(function.node for function in copy.functions)):
            _drop_constants(nodes)
    return copy


def _write_types(graph: Graph, proto: onnx.GraphProto) -> None:
    stated = {
        info.name for entries in (proto.value_info, proto.input, proto.output) for info in entries
    }
    for name, value in graph.values.items():
        known = value.type if name not in stated and value.producer is not None else None
        if known is not None:
            proto.value_info.add(name=name, type=encode_type(known))
    for node, copy in zip(graph.nodes, proto.node, strict=True):
        for body, inner in zip(node.bodies, _bodies(copy), strict=True):
            _write_types(body, inner)


def _bodies(node: onnx.NodeProto) -> list[onnx.GraphProto]:
    return [
        graph
        for entry in node.attribute
        for graph in ([entry.g] if entry.HasField("g") else entry.graphs)
    ]


def _drop_constants(nodes: Iterable[onnx.NodeProto]) -> None:
    """Remove the elements of larger constants from attributes and nested bodies."""
    for node in nodes:
        for entry in node.attribute:
            for tensor in (*([entry.t] if entry.HasField("t") else []), *entry.tensors):
                _drop_elements(tensor)
            for tensor in (
                *([entry.sparse_tensor] if entry.HasField("sparse_tensor") else []),
                *entry.sparse_tensors,
            ):
                _drop_elements(tensor.values)
                _drop_elements(tensor.indices)
            if entry.ByteSize() > _CONSTANT_LIMIT:
                for field in ("floats", "ints", "strings", "s"):
                    entry.ClearField(field)
        for body in _bodies(node):
            for tensor in body.initializer:
                _drop_elements(tensor)
            _drop_constants(body.node)


def _drop_elements(tensor: onnx.TensorProto, limit: int = _CONSTANT_LIMIT) -> None:
    """Remove elements above ``limit`` bytes; keep name, dtype and shape."""
    if tensor.ByteSize() > limit:
        for field in (
            "raw_data",
            "float_data",
            "int32_data",
            "string_data",
            "int64_data",
            "double_data",
            "uint64_data",
        ):
            tensor.ClearField(field)
