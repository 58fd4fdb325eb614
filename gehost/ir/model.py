"""A loaded model: protobuf, indexed graphs, names, functions and journal."""

from __future__ import annotations

import os
from collections.abc import Collection, Hashable, Iterable, Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import onnx
from google.protobuf.message import DecodeError

from gehost.errors import GehostError, ModelError
from gehost.ir.check import check_graph
from gehost.ir.edits import Journal, Names, set_metadata
from gehost.ir.files.save import save_model, write_pieces_atomic
from gehost.ir.files.utf8 import check_utf8
from gehost.ir.flush import arrange, flush_tables
from gehost.ir.gc_policy import LARGE, gc_disabled
from gehost.ir.graph import Graph, Node, iter_graphs, op_name
from gehost.ir.index import index_bodies, index_model
from gehost.ir.integers import IntegersOfModel
from gehost.ir.types import TensorType, ValueType
from gehost.sizes import Scope

_PARSED = 4
"""Bytes that parsing takes at most for a byte of a file, roughly."""
_IR_OF_DEVICES = 11
"""The version that introduced device configurations; they name one of the model's."""


class Model:
    """An ONNX model: indexed graphs, names, functions, and journal of edits."""

    def __init__(
        self, proto: onnx.ModelProto, *, path: str | None = None, is_traced: bool = True
    ) -> None:
        """Index ``proto``, which this object then owns and edits in place.

        Args:
            proto: the model.
            path: the file it was read from; external data is beside it.
            is_traced: whether nodes may have metadata that gehost wrote.

        Raises:
            ModelError: there is no graph, a tensor is undefined or defined twice, or the nodes have
                a cycle.
        """
        self.proto = proto
        self.path = path
        self.is_traced = is_traced
        self.size = 0
        """Bytes of the file that ``load`` read; 0 for a model made in memory."""
        self.base_dir = os.path.dirname(os.path.abspath(path)) if path else None
        try:
            self._read(proto)
        except TypeError as error:
            # protobuf returns texts that are not UTF-8 as bytes, which the index may not be able
            # to use; those that it can use, ``validate`` finds
            try:
                check_utf8(proto)
            except ModelError as problem:
                raise ModelError(problem, where=str(self)) from error
            raise

    def _read(self, proto: onnx.ModelProto) -> None:
        self.ir_version = proto.ir_version
        self.opsets = {
            opset.domain if opset.domain != "ai.onnx" else "": opset.version
            for opset in proto.opset_import
        }
        self.functions = {
            op_name(function.domain, function.name, function.overload): function
            for function in proto.functions
        }
        self._original_functions = len(proto.functions)
        self.new_functions: dict[str, onnx.FunctionProto] = {}
        """Bodies that were offered since loading; if a node calls one, it is written."""
        self.withheld: set[str] = set()
        """Operators of a runtime whose calls need several bodies, so that none is written."""
        self.has_bodies_apart = False
        """Whether these have a name for each body, too: to run where that runtime is not there."""
        self.journal = Journal()
        self.names = Names(self, self.journal)
        self.integers = IntegersOfModel()
        self.facts: tuple[str, ...] = ()
        """What ``--assume`` states about the names of sizes."""
        self.answers: dict[Hashable, object] = {}
        """What a plugin computed about the model, by a key of its own; freed with it."""
        self.renumbered = 0
        self.body_ops: set[str] = set()
        """Operators with a node that has, or had, a body."""
        self.ops_with_tensors: set[str] = set()
        """Operators with a node in the file that has a tensor, graph or type as an attribute."""
        if not proto.HasField("graph"):
            raise ModelError("the model has no graph; is this an ONNX model file?", where=str(self))
        with gc_disabled():
            self.graph = index_model(self, proto.graph)
        self.original_ops = frozenset(op for graph in self.graphs for op in graph.by_op)
        """The operators of the model when it was loaded."""
        self.original_domains = frozenset(self.opsets)
        """The domains that the model imported when it was loaded."""
        self._interface = _interface(proto.graph)

    def __reduce__(self) -> Any:
        """Copy the model, with its inferred types.

        Raises:
            TypeError: a pass is running, whose edits may be undone.
        """
        if self.journal.is_pending:
            raise TypeError(f"{self}: cannot copy a model while a pass edits it")
        types = [
            {name: value_type for name, value in graph.values.items() if (value_type := value.type)}
            for graph in self.graphs
        ]
        return _restored, (self.flush().SerializeToString(), self.path, self.is_traced, types)

    def __str__(self) -> str:
        return self.path or "the model"

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Model:
        """Read and index a model file; external data stays where it is.

        Raises:
            ModelError: the file cannot be read, is not an ONNX model, or is not valid.
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
                "cannot read the model: its name has a NUL character", where=path
            ) from error
        if not content:
            raise ModelError("the file is empty", where=path, hint="give an ONNX model")
        proto = onnx.ModelProto()
        try:
            proto.ParseFromString(content)
        except (DecodeError, RecursionError) as error:
            _ = bytearray(_PARSED * len(content))  # MemoryError: that was the cause
            raise ModelError(
                "not an ONNX model: the protobuf cannot be parsed", where=path
            ) from error
        is_traced, size = b"gehost." in content, len(content)
        del content  # frees memory before the index needs it
        model = cls(proto, path=path, is_traced=is_traced)
        model.size = size
        return model

    @property
    def graphs(self) -> Iterator[Graph]:
        """Yield the root graph, then every nested body, depth first."""
        return iter_graphs([self.graph])

    def opset(self, domain: str = "") -> int | None:
        """Return the opset that the model imports for a domain, or None."""
        return self.opsets.get("" if domain == "ai.onnx" else domain)

    def import_domain(self, domain: str, version: int) -> None:
        """Import a domain unless the model imports it already, in any version."""
        if domain not in self.opsets:
            self.journal.record(self._forget_import, domain, len(self.proto.opset_import))
            self.opsets[domain] = version
            self.proto.opset_import.add(domain=domain, version=version)

    def _forget_import(self, domain: str, count: int) -> None:
        self.opsets.pop(domain, None)
        del self.proto.opset_import[count:]

    # devices

    @property
    def configurations(self) -> tuple[onnx.DeviceConfigurationProto, ...]:
        """The sets of devices that nodes refer to by name.

        They are copies; assign to change them.
        """
        result = onnx.ModelProto()
        result.configuration.extend(self.proto.configuration)
        return tuple(result.configuration)

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

    @cached_property
    def has_device_configurations(self) -> bool:
        """Whether a node has, or had, device configurations; computed on demand."""
        may_have = self.ir_version >= _IR_OF_DEVICES or bool(self.proto.configuration)
        return may_have and any(
            proto.device_configurations for graph in self.graphs for proto in graph.proto.node
        )

    @cached_property
    def sizes(self) -> Scope:
        """The sizes of the model's tensors; each text in a type is one of them."""
        return self._scope()

    def assume(self, facts: Sequence[str]) -> None:
        """Take facts about the names of sizes, before any type is inferred.

        Raises:
            UsageError: one is no fact, or contradicts another one.
        """
        self.facts = tuple(facts)
        self.sizes = self._scope()

    def _scope(self) -> Scope:
        scope = Scope()
        scope.assume_all(self.facts)
        scope.declare(
            dim for value in self.graph.inputs for dim in value.shape or () if isinstance(dim, str)
        )
        return scope

    def fresh_name(self, stem: str) -> str:
        """Return ``<stem>_<k>`` with the first k unused in model and bodies."""
        return self.names.fresh(stem)

    def index_bodies(self, node: Node) -> None:
        """Index the graph attributes of a new node."""
        for body in index_bodies(node):
            for name in (*body.values, *(inner.name for inner in body.nodes)):
                self.names.use(name)

    # metadata

    def metadata(self, key: str) -> str | None:
        """Return one ``metadata_props`` entry of the model, or None."""
        return next((prop.value for prop in self.proto.metadata_props if prop.key == key), None)

    def set_metadata(self, key: str, text: str | None) -> None:
        """Set one ``metadata_props`` entry of the model; None removes it."""
        set_metadata(self, self, key, text)

    # functions

    def function(self, op: str) -> onnx.FunctionProto | None:
        """Return the operator's body: the model's own or one offered since."""
        own = self.functions.get(op)
        return self.new_functions.get(op) if own is None else own

    def variants_of(self, op: str) -> list[str]:
        """Return the names that ``add_function`` gave to further bodies of an operator."""
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
        """Offer a body for an operator, written if a node calls it."""
        if self.function(op) is None and op not in self.withheld:
            self.journal.record(self.new_functions.pop, op, None)
            self.new_functions[op] = function

    def withhold_function(self, op: str) -> None:
        """Withdraw an operator's offered body; no other is accepted."""
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
        used[op] = used.pop(op)  # after those that it calls, as onnx.reference requires

    def remove_functions(self, ops: Collection[str]) -> None:
        """Remove uncalled functions that came with the model, and commit."""
        self.commit()
        others = [
            function
            for function in self.proto.functions[: self._original_functions]
            if op_name(function.domain, function.name, function.overload) not in ops
        ]
        arrange(self.proto.functions, [*others, *self.proto.functions[self._original_functions :]])
        self._original_functions = len(others)
        for op in ops:
            del self.functions[op]

    def remove_imports(self, domains: Collection[str]) -> None:
        """Remove imports of unused domains, and commit."""
        self.commit()
        rest = [opset for opset in self.proto.opset_import if opset.domain not in domains]
        arrange(self.proto.opset_import, rest)
        for domain in domains:
            del self.opsets[domain]

    # transactions

    def mark(self) -> int:
        """Return the current position in the journal, for ``undo``."""
        return self.journal.mark()

    def undo(self, mark: int) -> None:
        """Undo every edit since ``mark``, last first, in index and bytes.

        Raises:
            GehostError: an edit since ``mark`` was committed, or written by ``flush``.
        """
        self.journal.undo(mark)

    def commit(self) -> None:
        """Keep every edit so far: they can no longer be undone."""
        self.journal.commit()

    # writing

    def flush(self) -> onnx.ModelProto:
        """Commit, update the protobuf from the index, and return it.

        The returned protobuf still belongs to this object.
        """
        with gc_disabled():  # creates an object for each node
            self.graph.flush()
        self._flush_all_but_nodes()
        return self.proto

    def _flush_all_but_nodes(self) -> None:
        """Flush everything but the nodes of the root graph."""
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
            copy = self.proto.functions.add()
            copy.CopyFrom(function)
            self.functions[op] = copy
            for needed in function.opset_import:
                self.import_domain(needed.domain, needed.version)
        self.commit()

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the model atomically; for external data see ``save_model``."""
        # putting so many nodes in order takes memory
        if self.graph.dirty and len(self.graph.protos) >= LARGE:
            from gehost.ir.files.pieces import pieces_with_nodes  # most compiles do not need it

            self._flush_all_but_nodes()
            pieces = pieces_with_nodes(self.proto, (node.proto for node in self.graph.nodes))
            # "location" may mean external data, which save_model handles
            if pieces is not None and not any(b"location" in piece for piece in pieces):
                write_pieces_atomic(path, pieces)
                return
        save_model(self.flush(), path, self.base_dir)

    def check(self) -> None:
        """Check the index: topological order, single definitions, consistent uses, unchanged
        interface.

        Raises:
            ModelError: an error, with its place.
        """
        if _interface(self.proto.graph) != self._interface:
            raise ModelError("the graph's inputs or outputs were changed", where=str(self))
        for graph in self.graphs:
            check_graph(graph)

    def close(self) -> None:
        """Break the index's reference cycles, which frees its memory at once."""
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
    """Build a model from the arguments that ``Model.__reduce__`` returns."""
    proto = onnx.ModelProto()
    proto.ParseFromString(content)
    model = Model(proto, path=path, is_traced=is_traced)
    for graph, types_by_name in zip(model.graphs, types, strict=True):
        for name, value_type in types_by_name.items():
            graph.values[name].known_type = value_type
            if isinstance(value_type, TensorType):
                model.sizes.parse_all(
                    value_type.shape or ()
                )  # so that no new size gets such a name
    return model


def _interface(graph: onnx.GraphProto) -> tuple[list[bytes], list[bytes]]:
    return (
        [entry.SerializeToString(deterministic=True) for entry in graph.input],
        [entry.SerializeToString(deterministic=True) for entry in graph.output],
    )
