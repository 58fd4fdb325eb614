"""Inline the branch that an ``If`` of a constant condition takes.

``If(constant) { then: A, else: B }``   ==>   the nodes of A (or B)
Keeps: the names of the results. Names inside stay where they are the only ones of the model; others
are made unique.
Refused: a branch with sparse constants or quantization annotations, or with constants below IR
version 4 that a node cannot hold; models with device configurations, which name tensors.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import TypeAlias

import onnx

from gehost.ir import edits
from gehost.ir.constants import elements
from gehost.ir.graph import GRAPH_KINDS, Graph, Node, NodeTemplate, Value
from gehost.passes.cleanup.dead import retire
from gehost.passes.cleanup.state import State

_Key: TypeAlias = tuple[bool, str]
"""Whether it is a node's, and the name."""


class Branches:
    """Inlines branches of one model."""

    def __init__(self, state: State) -> None:
        self._state = state
        self._uses: Counter[_Key] | None = None
        """How many tensors and nodes have a name; counted for the first branch."""

    def inline(self, node: Node) -> list[Value] | None:
        """Replace an ``If`` by the branch it takes; None if it stays.

        Returns the constants of the branch, which may equal others.
        """
        body = self._taken(node)
        if body is None:
            return None
        graph, state = node.graph, self._state
        self._release_names(node)
        values: dict[Value, Value] = {}
        results = {value: out for out, value in self._results(node, body)}
        for value in list(body.values.values()):
            if value.initializer is not None:
                values[value] = self._constant(graph, value, self._unique(value.name))
        anchor, new_nodes = node, list[Node]()
        for inner in body.nodes:
            outputs: list[Value | str | None] = []
            for output in inner.outputs:
                if output is None:
                    outputs.append(None)
                else:
                    outputs.append(results.get(output) or self._unique(output.name))
            inputs = [None if read is None else values.get(read, read) for read in inner.inputs]
            anchor = graph.add_like(
                self._template(inner, values),
                inputs,
                outputs,
                name=self._unique(inner.name, of_node=True) if inner.name else "",
                after=anchor,
            )
            new_nodes.append(anchor)
            for old, new in zip(inner.outputs, anchor.outputs, strict=True):
                if old is not None and new is not None:
                    values[old] = new
                    graph.set_type(new, old.type or new.type)
            for old_body, new_body in zip(inner.bodies, anchor.bodies, strict=True):
                _copy_types(old_body, new_body)
                self._count(new_body)
        for out, value in zip(node.outputs, body.outputs, strict=False):
            if out is not None and results.get(value) is not out:
                name = state.model.fresh_name("cleanup_Identity")
                source = values.get(value, value)
                anchor = graph.add_node("Identity", [source], [out], name=name, after=anchor)
                graph.set_type(out, source.type or out.type)
                new_nodes.append(anchor)
        constants = [values[old] for old in values if old.initializer is not None]
        return constants + self._finish(node, new_nodes)

    def _finish(self, node: Node, new_nodes: list[Node]) -> list[Value]:
        """Remove the ``If``, queue the new nodes; return the constants of their bodies."""
        state, constants = self._state, list[Value]()
        for out in node.outputs:
            if out is not None:
                state.touch_readers(out, stale=True)
        state.counts.folded += 1
        retire(state, node)
        for new in new_nodes:
            state.push(new)
            if new.bodies and state.purity.has_open_bodies(new):
                for inner in new.bodies:
                    for item in state.open_graph(inner):
                        state.push(item)
                    for graph in (inner, *inner.subgraphs()):
                        content = graph.values.values() if graph in state.open else ()
                        constants += [value for value in content if value.initializer is not None]
        return constants

    def _taken(self, node: Node) -> Graph | None:
        """Return the body that a node runs, if it can be inlined."""
        state, condition = self._state, node.input(0)
        if (
            node.op != "If"
            or not state.purity.has_open_bodies(node)
            or not state.purity.is_well_formed(node)
            or condition is None
            or not condition.is_constant
            or state.model.has_device_configurations
        ):
            return None
        array = elements(condition)
        if array is None or array.size != 1 or array.dtype.kind != "b":
            return None
        expected = "then_branch" if array.item() else "else_branch"
        kinds = [entry for entry in node.proto.attribute[:] if entry.type in GRAPH_KINDS]
        names = [entry.name for entry in kinds]
        if expected not in names or len(names) != len(node.bodies):
            return None
        body = node.bodies[names.index(expected)]
        return body if self._can_move(body, node) else None

    def _can_move(self, body: Graph, node: Node) -> bool:
        inner = [body, *body.subgraphs()]
        if body.inputs or len(body.outputs) < len(node.outputs):
            return False
        if any(item.proto.quantization_annotation for item in inner):
            return False
        for item in inner:
            for value in item.values.values():
                tensor = value.initializer
                if value.name in self._state.protected or isinstance(
                    tensor, onnx.SparseTensorProto
                ):
                    return False
                if item is body and tensor is not None and body.model.ir_version < 4:
                    array = elements(value)
                    if array is None or not body.takes_constant(array.dtype):
                        return False
        return True

    def _results(self, node: Node, body: Graph) -> Iterator[tuple[Value, Value]]:
        """Yield the outputs that a node of the branch can compute itself, with its result."""
        visited = set[Value]()
        for out, value in zip(node.outputs, body.outputs, strict=False):
            if out is not None and value.producer is not None and value.graph is body:
                if value not in visited:
                    yield out, value
                visited.add(value)

    # -- copies

    def _constant(self, graph: Graph, value: Value, name: str) -> Value:
        tensor = value.initializer
        assert isinstance(tensor, onnx.TensorProto)
        if graph.model.ir_version < 4:
            array = elements(value)
            assert array is not None
            return graph.add_initializer(array, name)
        result, copy = graph.new_value(name), onnx.TensorProto()
        copy.CopyFrom(tensor)
        copy.name = name
        edits.add_initializer(result, copy)
        result.known_type = value.type
        self._state.made.add(result)
        return result

    def _template(self, node: Node, values: dict[Value, Value]) -> NodeTemplate:
        proto = _copied(node, values)
        for field in ("name", "input", "output"):
            proto.ClearField(field)
        return NodeTemplate(node.op, proto.SerializeToString(), has_bodies=bool(node.bodies))

    # -- names

    def _release_names(self, node: Node) -> None:
        """Free the names inside an ``If``, which goes."""
        if self._uses is None:
            self._uses = Counter()
            self._count(self._state.model.graph)
        for body in node.bodies:
            self._count(body, -1)

    def _count(self, graph: Graph, change: int = 1) -> None:
        assert self._uses is not None
        for subgraph in (graph, *graph.subgraphs()):
            for name in subgraph.values:
                self._uses[False, name] += change
            for node in subgraph.nodes:
                self._uses[True, node.name] += change

    def _unique(self, name: str, *, of_node: bool = False) -> str:
        """Return the name if nothing else has it, else a new one."""
        assert self._uses is not None
        if self._uses[of_node, name] > 0:
            name = self._state.model.fresh_name(name)
        self._uses[of_node, name] += 1
        return name


def _copy_types(old: Graph, new: Graph) -> None:
    """Give the values of a copied body, and of those in it, their inferred types."""
    for before, after in zip((old, *old.subgraphs()), (new, *new.subgraphs()), strict=True):
        for name, value in before.values.items():
            after.values[name].known_type = value.type


def _copied(node: Node, values: dict[Value, Value]) -> onnx.NodeProto:
    """Return a copy of a node and its bodies that reads the new values."""
    copy = onnx.NodeProto()
    copy.CopyFrom(node.proto)
    for slot, read in enumerate(node.inputs):
        if read in values:
            copy.input[slot] = values[read].name
    bodies = iter(node.bodies)
    for entry in copy.attribute:
        if entry.type == onnx.AttributeProto.GRAPH:
            entry.g.CopyFrom(_copied_body(next(bodies), values))
        elif entry.type == onnx.AttributeProto.GRAPHS:
            for place in range(len(entry.graphs)):
                entry.graphs[place].CopyFrom(_copied_body(next(bodies), values))
    return copy


def _copied_body(body: Graph, values: dict[Value, Value]) -> onnx.GraphProto:
    """Return the protobuf of a body as its index is now."""
    copy = onnx.GraphProto(name=body.name, doc_string=body.proto.doc_string)
    copy.input.extend(body.proto.input)
    copy.node.extend(_copied(node, values) for node in body.nodes)
    for value in body.values.values():
        if isinstance(value.initializer, onnx.TensorProto):
            copy.initializer.append(value.initializer)
    for info, value in zip(body.proto.output, body.outputs, strict=True):
        entry = copy.output.add()
        entry.CopyFrom(info)
        entry.name = values.get(value, value).name
    copy.value_info.extend(
        info
        for info in body.proto.value_info
        if info.name in body.values and info.name not in body.remade
    )
    copy.metadata_props.extend(body.proto.metadata_props)
    return copy
