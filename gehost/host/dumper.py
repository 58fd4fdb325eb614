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
from gehost.host.readable import readable
from gehost.host.registry import PassSpec
from gehost.ir.bodies import bodies_of
from gehost.ir.files.save import write_bytes_atomic
from gehost.ir.files.skeleton import skeleton
from gehost.ir.graph import Graph
from gehost.ir.types import encode_type
from gehost.options import DumpFormat, HostOptions
from gehost.passes.context import PassRecord

_STAGE_NAMES = {row.stage: row.dump for row in PIPELINE}
_ENCODERS: dict[DumpFormat, Callable[[Graph, int], bytes]] = {
    "pbtxt": lambda graph, level: text_format.MessageToString(dump_proto(graph, level)).encode(),
    "onnx": lambda graph, level: dump_proto(graph, level).SerializeToString(),
    "readable": lambda graph, _: readable(graph).encode(),
}
_FILES = {"pbtxt": ("onnx", "pbtxt"), "onnx": ("onnx", "onnx"), "readable": ("readable", "txt")}
"""The part of a file name that is the kind, and the suffix."""
_DUMPED = re.compile(
    r"ge_(onnx|readable)_\d{8}_graph_0_"
    rf"(PreRunBegin|{'|'.join(_STAGE_NAMES.values())}|Pass_.*|Build)\.(pbtxt|onnx|txt)"
)
"""File names of dumps."""
_CONSTANT_LIMIT = 1024
"""Largest size in bytes of attributes, and of tensors in nested bodies, that dumps without weights
keep; shapes are part of the structure.
"""


class Dumper:
    """Dumps of one compile: ``ge_onnx_<number>_graph_0_<stage>.<format>``.

    Readable ones are ``ge_readable_<number>_graph_0_<stage>.txt``.
    """

    def __init__(self, directory: str, options: HostOptions) -> None:
        self._directory = Path(directory)
        self._level = options.dump_level
        self._formats = options.dump_formats
        self._each_pass = options.dump_passes
        self._stages = options.dump_stages
        self._without_effect = dict.fromkeys(options.dump_stages)
        self._number = 0
        self._context: CompileContext | None = None

    @hookimpl
    def gehost_compile_started(self, graph: Graph, context: CompileContext) -> None:
        """Replace the dumps of an earlier compile; files of stages that only GE has stay.

        Raises:
            OutputError: a file cannot be removed or written.
        """
        self._number, self._context = 0, context
        for path in self._directory.glob("ge_*_graph_0_*"):
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
        if self._without_effect and self._context is not None:
            self._context.report.notes.append(
                f"dumps: no stage has {', '.join(self._without_effect)} in its name; there are "
                f"PreRunBegin, {', '.join(_STAGE_NAMES.values())}, Build"
            )

    def _write(self, graph: Graph, stage: str) -> None:
        number, self._number = self._number, self._number + 1
        parts = [part for part in self._stages if _contains(stage, part)]
        if self._stages and not parts:
            return
        for part in parts:
            self._without_effect.pop(part, None)
        safe = re.sub(r"[^A-Za-z0-9_.-]", "_", stage)[:100]
        try:
            self._directory.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise OutputError(
                f"cannot make the directory for dumps: {error.strerror}", where=self._directory
            ) from error
        for dump_format in self._formats:
            kind, suffix = _FILES[dump_format]
            path = self._directory / f"ge_{kind}_{number:08d}_graph_0_{safe}.{suffix}"
            write_bytes_atomic(path, _ENCODERS[dump_format](graph, self._level))
            if self._context is not None:
                self._context.report.dumps.append(str(path))


def _contains(stage: str, part: str) -> bool:
    """Whether a stage's name contains a text; underscores and case do not count."""
    return part.replace("_", "").lower() in stage.replace("_", "").lower()


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
    declared = {
        info.name for entries in (proto.value_info, proto.input, proto.output) for info in entries
    }
    for name, value in graph.values.items():
        value_type = value.type if name not in declared and value.producer is not None else None
        if value_type is not None:
            proto.value_info.add(name=name, type=encode_type(value_type))
    for node, copy in zip(graph.nodes, proto.node, strict=True):
        for body, inner in zip(node.bodies, bodies_of(copy), strict=True):
            _write_types(body, inner)


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
        for body in bodies_of(node):
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
