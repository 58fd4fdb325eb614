"""A loaded model: its protobuf, the graphs indexed over it, its names, functions and journal."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import onnx
from google.protobuf.message import DecodeError

from gehost.errors import GehostError, ModelError
from gehost.ir.check import check_graph
from gehost.ir.edits import Journal, set_metadata
from gehost.ir.elements import ElementsOfModel
from gehost.ir.files.save import save_model, write_pieces_atomic
from gehost.ir.files.utf8 import check_utf8
from gehost.ir.flush import arrange, flush_tables
from gehost.ir.gc_policy import LARGE, gc_disabled
from gehost.ir.graph import Graph, Node, iter_graphs, op_name
from gehost.ir.index import index_bodies, index_model
from gehost.ir.names import Names
from gehost.ir.types import ValueType


class Model:
    """An ONNX model with an index over its graphs; owns names, functions and the journal of
    edits.
    """

    def __init__(
        self, proto: onnx.ModelProto, *, path: str | None = None, is_traced: bool = True
    ) -> None:
        """Index ``proto``, which this object then owns and edits in place.

        Args:
            proto: the model.
            path: where it was read from; external data is found beside it.
            is_traced: whether nodes may carry metadata that gehost wrote.

        Raises:
            ModelError: no graph, an undefined or doubly defined tensor, a cycle.
        """
        self.proto = proto
        self.path = path
        self.is_traced = is_traced
        self.base_dir = os.path.dirname(os.path.abspath(path)) if path else None
        try:
            self._read(proto)
        except TypeError as error:
            _check_text(self, error)
            raise

    def _read(self, proto: onnx.ModelProto) -> None:
        self.ir_version = proto.ir_version
        self.opsets = {
            entry.domain if entry.domain != "ai.onnx" else "": entry.version
            for entry in proto.opset_import
        }
        self.functions = {
            op_name(function.domain, function.name, function.overload): function
            for function in proto.functions
        }
        self._original_functions = len(proto.functions)
        self.new_functions: dict[str, onnx.FunctionProto] = {}
        self.withheld: set[str] = set()
        """Operators of a runtime whose calls need several bodies, so that none is written."""
        """Bodies that were offered since; those that a node calls are written to the protobuf."""
        self.journal = Journal()
        self.names = Names(self, self.journal)
        self.elements = ElementsOfModel()
        self._sizes = 0
        """Sizes that were named so far."""
        self.renumbered = 0
        self.body_ops: set[str] = set()
        """Operators of which a node has had a body."""
        self.ops_with_tensors: set[str] = set()
        """Operators of which a node of the file holds an attribute that is no number or text: a
        tensor, a graph, a type.
        """
        if not proto.HasField("graph"):
            raise ModelError("the model has no graph; is this an ONNX model file?", where=str(self))
        with gc_disabled():
            self.graph = index_model(self, proto.graph)
        self.original_ops = frozenset(op for graph in self.graphs for op in graph.by_op)
        """The operators that the model had when it was loaded."""
        self._has_device_configurations: bool | None = None
        self.original_domains = frozenset(self.opsets)
        """The domains that the model imported when it was loaded."""
        self._interface = _interface(proto.graph)

    def __reduce__(self) -> Any:
        """A copy, with the types that inference found.

        Raises:
            TypeError: there are edits that may still be undone: a pass is running.
        """
        if self.journal.is_pending:
            raise TypeError(f"{self}: cannot copy a model while a pass edits it")
        types = [
            {name: known for name, value in graph.values.items() if (known := value.type)}
            for graph in self.graphs
        ]
        return _restored, (self.flush().SerializeToString(), self.path, self.is_traced, types)

    def __str__(self) -> str:
        return self.path or "the model"

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Model:
        """Read and index a model file; external data stays where it is.

        Raises:
            ModelError: the file cannot be read, is no ONNX model, or is not valid.
        """
        path = os.fspath(path)
        try:
            content = Path(path).read_bytes()
        except OSError as error:
            raise ModelError(
                f"cannot read the model: {error.strerror or error}", where=path
            ) from error
        except ValueError as error:
            raise ModelError(
                "cannot read the model: its name holds a NUL character", where=path
            ) from error
        if not content:
            raise ModelError("the file is empty", where=path, hint="give an ONNX model")
        proto = onnx.ModelProto()
        try:
            proto.ParseFromString(content)
        except (DecodeError, RecursionError) as error:
            raise ModelError(
                "not an ONNX model: the protobuf cannot be parsed", where=path
            ) from error
        is_traced = b"gehost." in content
        del content  # before the index takes memory
        return cls(proto, path=path, is_traced=is_traced)

    @property
    def graphs(self) -> Iterator[Graph]:
        """The root graph, then every nested body, depth first."""
        return iter_graphs([self.graph])

    def opset(self, domain: str = "") -> int | None:
        """The version of a domain's operators that the model imports; None where it imports
        none.
        """
        return self.opsets.get("" if domain == "ai.onnx" else domain)

    def import_domain(self, domain: str, version: int) -> None:
        """Import a domain that the model does not import yet; an imported one keeps its version."""
        if domain not in self.opsets:
            self.journal.record(self._forget_import, domain, len(self.proto.opset_import))
            self.opsets[domain] = version
            self.proto.opset_import.add(domain=domain, version=version)

    def _forget_import(self, domain: str, count: int) -> None:
        self.opsets.pop(domain, None)
        del self.proto.opset_import[count:]

    # -- devices
    # ----------------------------------------------------------------------------------------------------

    @property
    def configurations(self) -> tuple[onnx.DeviceConfigurationProto, ...]:
        """The sets of devices that nodes refer to by name: copies; assign to change them."""
        found = onnx.ModelProto()
        found.configuration.extend(self.proto.configuration)
        return tuple(found.configuration)

    @configurations.setter
    def configurations(self, configurations: tuple[onnx.DeviceConfigurationProto, ...]) -> None:
        new = onnx.ModelProto(configuration=configurations)
        self.journal.record(self._put_configurations, self.configurations)
        self._put_configurations(new.configuration)

    def _put_configurations(self, configurations: Iterable[onnx.DeviceConfigurationProto]) -> None:
        del self.proto.configuration[:]
        self.proto.configuration.extend(configurations)

    def raise_ir_version(self, version: int) -> None:
        """Raise the IR version to at least ``version``.

        Raises:
            GehostError: the model is below IR version 4, whose initializers mean something else.
        """
        if self.ir_version >= version:
            return
        if self.ir_version < 4:
            raise GehostError(f"{self}: IR version {self.ir_version} cannot be raised")
        self.journal.record(self._put_ir_version, self.ir_version)
        self._put_ir_version(version)

    def _put_ir_version(self, version: int) -> None:
        self.ir_version = self.proto.ir_version = version

    @property
    def has_device_configurations(self) -> bool:
        """Whether a node has device configurations, or had some; found out when asked for."""
        if self._has_device_configurations is None:
            self._has_device_configurations = any(
                proto.device_configurations for graph in self.graphs for proto in graph.proto.node
            )
        return self._has_device_configurations

    def note_device_configurations(self) -> None:
        """Note that a node gets device configurations."""
        self._has_device_configurations = True

    def new_size(self) -> str:
        """Name a size of which nothing is known; no other size of the model has the name."""
        self._sizes += 1
        return f"?{self._sizes}"

    def fresh_name(self, stem: str) -> str:
        """``<stem>_<k>`` with the first k that no node or tensor of the model uses, nested
        bodies included.
        """
        return self.names.fresh(stem)

    def index_bodies(self, node: Node) -> None:
        """Index the graph attributes of a new node."""
        for body in index_bodies(node):
            for name in (*body.values, *(inner.name for inner in body.nodes)):
                self.names.use(name)

    # -- metadata
    # ---------------------------------------------------------------------------------------------------

    def metadata(self, key: str) -> str | None:
        """One ``metadata_props`` entry of the model; None where it has none."""
        return next((entry.value for entry in self.proto.metadata_props if entry.key == key), None)

    def set_metadata(self, key: str, text: str | None) -> None:
        """Set one ``metadata_props`` entry of the model; None removes it."""
        set_metadata(self, self, key, text)

    # -- functions
    # --------------------------------------------------------------------------------------------------

    def function(self, op: str) -> onnx.FunctionProto | None:
        """The body of an operator: one that came with the model, or one that was offered since."""
        came = self.functions.get(op)
        return self.new_functions.get(op) if came is None else came

    def variants_of(self, op: str) -> list[str]:
        """The names under which nodes call other bodies of an operator, as ``add_function`` gives
        them.
        """
        return sorted(
            {
                called
                for graph in self.graphs
                for called, nodes in graph.by_op.items()
                if called.startswith(f"{op}__")
                and any(node.metadata.get("gehost.op") == op for node in nodes)
            }
        )

    def offer_function(self, op: str, function: onnx.FunctionProto) -> None:
        """Offer a body for an operator that has none; it is written when a node of the model
        calls it.
        """
        if self.function(op) is None and op not in self.withheld:
            self.journal.record(self._withdraw_function, op)
            self.new_functions[op] = function

    def _withdraw_function(self, op: str) -> None:
        self.new_functions.pop(op, None)

    def withhold_function(self, op: str) -> None:
        """Take back the body that was offered for an operator, and take no other one."""
        self.journal.record(self._offer_again, op, self.new_functions.get(op))
        self.new_functions.pop(op, None)
        self.withheld.add(op)

    def _offer_again(self, op: str, function: onnx.FunctionProto | None) -> None:
        self.withheld.discard(op)
        if function is not None:
            self.new_functions[op] = function

    def _collect_function(self, op: str, used: dict[str, onnx.FunctionProto]) -> None:
        if op in used or op not in self.new_functions:
            return
        used[op] = self.new_functions[op]
        for node in used[op].node:
            self._collect_function(op_name(node.domain, node.op_type, node.overload), used)
        used[op] = used.pop(op)  # behind those that it calls, as onnx.reference wants it

    def remove_functions(self, ops: Collection[str]) -> None:
        """Remove functions that came with the model, and commit; nothing may call them."""
        self.commit()
        kept = [
            function
            for function in self.proto.functions[: self._original_functions]
            if op_name(function.domain, function.name, function.overload) not in ops
        ]
        arrange(self.proto.functions, [*kept, *self.proto.functions[self._original_functions :]])
        self._original_functions = len(kept)
        for op in ops:
            del self.functions[op]

    def remove_imports(self, domains: Collection[str]) -> None:
        """Remove imports of domains, and commit; nothing may use them."""
        self.commit()
        kept = [entry for entry in self.proto.opset_import if entry.domain not in domains]
        arrange(self.proto.opset_import, kept)
        for domain in domains:
            del self.opsets[domain]

    # -- transactions
    # -----------------------------------------------------------------------------------------------

    def mark(self) -> int:
        """The present point of the journal, for ``undo``."""
        return self.journal.mark()

    def undo(self, mark: int) -> None:
        """Take back every edit since ``mark``, last first; the index and the bytes are as they
        were.

        Raises:
            GehostError: an edit since ``mark`` was committed, or written by ``flush``.
        """
        self.journal.undo(mark)

    def commit(self) -> None:
        """Keep every edit so far: they can no longer be undone."""
        self.journal.commit()

    # -- writing
    # ----------------------------------------------------------------------------------------------------

    def flush(self) -> onnx.ModelProto:
        """Commit, and bring the protobuf in line with the index. The protobuf stays this
        object's.
        """
        with gc_disabled():  # it makes an object for each node
            self.graph.flush()
        self._flush_all_but_nodes()
        return self.proto

    def _flush_all_but_nodes(self) -> None:
        """The same but for the nodes of the root graph."""
        if self.graph.dirty:
            flush_tables(self.graph)
        used: dict[str, onnx.FunctionProto] = {}
        for graph in self.graphs:
            if graph is not self.graph:
                with gc_disabled():
                    graph.flush()
            for op, nodes in graph.by_op.items():
                if nodes and op in self.new_functions:
                    self._collect_function(op, used)
        del self.proto.functions[self._original_functions :]
        for op in self.new_functions:
            self.functions.pop(op, None)
        for op, function in used.items():
            entry = self.proto.functions.add()
            entry.CopyFrom(function)
            self.functions[op] = entry
            for needed in function.opset_import:
                self.import_domain(needed.domain, needed.version)
        self.commit()

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the model atomically; see ``save_model`` for what happens to external data."""
        # it takes memory to put that many in order
        if self.graph.dirty and len(self.graph.protos) >= LARGE:
            from gehost.ir.files.pieces import pieces_with_nodes  # a whole compile does without

            self._flush_all_but_nodes()
            pieces = pieces_with_nodes(self.proto, (node.proto for node in self.graph.nodes))
            # else there may be external data
            if pieces is not None and not any(b"location" in piece for piece in pieces):
                write_pieces_atomic(path, pieces)
                return
        save_model(self.flush(), path, self.base_dir)

    def check(self) -> None:
        """Prove the index: topological order, single definitions, uses in step, interface as
        loaded.

        Raises:
            ModelError: what is wrong, and where.
        """
        if _interface(self.proto.graph) != self._interface:
            raise ModelError("the graph's inputs or outputs were changed", where=str(self))
        for graph in self.graphs:
            check_graph(graph)

    def close(self) -> None:
        """Break the index's reference cycles, so that memory goes back at once."""
        for graph in list(self.graphs):
            node = graph.head
            while node is not None:
                following = node.next
                node.prev = node.next = None
                node.inputs = node.outputs = node.bodies = ()
                node = following
            for value in graph.values.values():
                value.read_by = value.producer = None
            graph.values.clear()
            graph.by_op.clear()
            graph.inputs, graph.outputs = [], []
            graph.head = graph.tail = None
        self.journal.commit()


def _restored(
    content: bytes, path: str | None, is_traced: bool, types: Sequence[dict[str, ValueType]]
) -> Model:
    """A model from what ``Model.__reduce__`` keeps."""
    proto = onnx.ModelProto()
    proto.ParseFromString(content)
    model = Model(proto, path=path, is_traced=is_traced)
    for graph, known in zip(model.graphs, types, strict=True):
        for name, stated in known.items():
            graph.values[name].stated = stated
    return model


def _check_text(model: Model, error: TypeError) -> None:
    """A text that is not UTF-8 comes as bytes, which the index may stumble on; where it does not,
    ``validate`` finds it.

    Raises:
        ModelError: there is such a text; says where.
    """
    try:
        check_utf8(model.proto)
    except ModelError as problem:
        raise ModelError(problem, where=str(model)) from error


def _interface(graph: onnx.GraphProto) -> tuple[list[bytes], list[bytes]]:
    return (
        [entry.SerializeToString(deterministic=True) for entry in graph.input],
        [entry.SerializeToString(deterministic=True) for entry in graph.output],
    )
