"""The edits of a graph, each beside its inverse for the journal.

An edit first records its inverse, then writes protobuf and index together. Inverses are idempotent
and accept a partial edit, so that an error or interrupt at any line can be undone. ``Graph``'s
methods check their arguments and call these functions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

import onnx

from gehost.errors import GehostError
from gehost.ir.flush import arrange
from gehost.ir.node import Node, NodeTemplate, Value
from gehost.ir.types import ValueType
from gehost.ir.wide import with_entry

if TYPE_CHECKING:
    from gehost.ir.graph import Graph
    from gehost.ir.model import Model

ORDER_GAP: Final = 1 << 24
"""Distance of the order numbers of neighbouring nodes."""


class Journal:
    """The inverse of each edit, oldest first.

    Marks stay valid until a commit passes them.

    An entry is recorded before its edit, so that an error or interrupt at any point of the edit can
    be undone: undo functions are idempotent and accept a partial edit.
    """

    def __init__(self) -> None:
        self._entries: list[tuple[Callable[..., object], tuple[Any, ...]]] = []
        self._committed = 0

    def record(self, undo: Callable[..., object], *arguments: Any) -> None:
        """Record that ``undo(*arguments)`` undoes the edit that comes next."""
        self._entries.append((undo, arguments))

    def mark(self) -> int:
        """Return the current position; it grows with every edit."""
        return self._committed + len(self._entries)

    @property
    def last(self) -> tuple[int, object]:
        """The current position and the last entry.

        Two readings are equal only if nothing was edited between them.
        """
        return self.mark(), self._entries[-1] if self._entries else None

    @property
    def is_pending(self) -> bool:
        """True while there are edits that can be undone."""
        return bool(self._entries)

    def since(self, mark: int) -> list[tuple[Callable[..., object], tuple[Any, ...]]]:
        """Return the uncommitted entries since ``mark``, oldest first."""
        return self._entries[max(mark - self._committed, 0) :]

    def undo(self, mark: int) -> None:
        """Undo every edit since ``mark``, the last one first.

        Raises:
            GehostError: some of them were committed; nothing is undone.
        """
        if mark < self._committed:
            raise GehostError(
                f"{self._committed - mark} edits cannot be undone any more: the graph was "
                "written in between"
            )
        while self.mark() > mark:
            undo, arguments = self._entries[-1]
            undo(*arguments)
            del self._entries[-1]

    def commit(self) -> None:
        """Keep every edit so far: it can no longer be undone."""
        self._committed += len(self._entries)
        self._entries.clear()


class Names:
    """The names that a model uses.

    They are read from its graphs before the first edit that needs one.
    """

    def __init__(self, model: Model, journal: Journal) -> None:
        self._model = model
        self._journal = journal
        self._used: set[str] | None = None
        """Names that end in a digit; only these can collide with fresh ones."""
        self._next: dict[str, int] = {}

    def fresh(self, stem: str) -> str:
        """Return ``<stem>_<k>`` with the first free k, and mark it as used."""
        used = self._known()
        count = first = self._next.get(stem, 0)
        while (name := f"{stem}_{count}") in used:
            count += 1
        self._journal.record(self._give_back, stem, first, name)
        self._next[stem] = count + 1
        used.add(name)
        return name

    def use(self, name: str) -> None:
        """Register a name that a caller chose."""
        used = self._known()
        if name[-1:].isdigit() and name not in used:
            self._journal.record(used.discard, name)
            used.add(name)

    def put_back(self, names: Iterable[str]) -> None:
        """Register names that an undo restores.

        A scan while they were absent did not find them.
        """
        if self._used is not None:
            self._used.update([name for name in names if name[-1:].isdigit()])

    def _known(self) -> set[str]:
        if self._used is None:
            used = set[str]()
            for graph in self._model.graphs:
                used.update([name for name in graph.values if name[-1:].isdigit()])
                # a leftover entry would give its type to a new tensor of that name
                used.update(
                    [info.name for info in graph.proto.value_info if info.name[-1:].isdigit()]
                )
                # names of removed nodes are free
                names = graph.table.names
                if graph.dirty or len(names) < len(graph.protos):
                    names = [node.name for node in graph.nodes]
                used.update([name for name in names if name[-1:].isdigit()])
            self._used = used
        return self._used

    def _give_back(self, stem: str, first: int, name: str) -> None:
        self._next[stem] = first
        self._known().discard(name)


# values


def new_value(graph: Graph, name: str) -> Value:
    """Add a value without a producer; its name must be free."""
    value = Value(graph, name)
    graph.model.journal.record(_undo_new_value, value, name in graph.remade)
    graph.values[name] = value
    graph.remade.add(name)
    return value


def _undo_new_value(value: Value, remade: bool) -> None:
    graph = value.graph
    graph.values.pop(value.name, None)
    if not remade:
        graph.remade.discard(value.name)


def release(value: Value, substitute: Value) -> None:
    """Separate ``value`` from its producer, which then defines ``substitute``."""
    node, slot = value.producer, value.index
    assert node is not None
    value.graph.model.journal.record(_put_output, node, slot, value)
    _put_output(node, slot, substitute)


def _put_output(node: Node, slot: int, value: Value) -> None:
    old = node.outputs[slot]
    if old is not None and old.producer is node:
        old.producer, old.index = None, 0
    node.outputs = with_entry(node.outputs, slot, value)
    node.proto.output[slot] = value.name
    value.producer, value.index = node, slot


def set_type(value: Value, value_type: ValueType | None) -> None:
    """Set the type of a value, in the index only."""
    value.graph.model.journal.record(setattr, value, "known_type", value.known_type)
    value.known_type = value_type


def redefine(value: Value, value_type: ValueType | None) -> None:
    """Give a value that stands for another tensor now the type of that."""
    graph = value.graph
    graph.model.journal.record(_undo_redefine, value, value.known_type, value.name in graph.remade)
    graph.remade.add(value.name)
    graph.dirty = True
    value.known_type = value_type


def _undo_redefine(
    value: Value, value_type: ValueType | onnx.TypeProto | None, remade: bool
) -> None:
    graph = value.graph
    value.known_type = value_type
    if not remade:
        graph.remade.discard(value.name)


# nodes


def add_node(
    graph: Graph,
    template: NodeTemplate,
    inputs: Sequence[Value | None],
    outputs: Sequence[Value | None],
    name: str,
    after: Node | None,
    open_text: str,
) -> Node:
    """Add a node after ``after`` (None: first).

    The node becomes the producer of ``outputs``; ``record_producer`` has to come first for those
    that have another.

    ``open_text`` is the metadata text that the template leaves open.
    """
    journal = graph.model.journal
    graph.dirty = True  # if the node is not linked, flushing drops the new protobuf
    place, proto = len(graph.protos), graph.protos.add()
    proto.MergeFromString(template.content)
    if template.blank is not None:
        proto.metadata_props[template.blank].value = open_text
    if name:
        graph.model.names.use(name)
        proto.name = name
    node = Node(graph, place, template.op)
    node.is_traced = True
    journal.record(undo_add_node, node)
    proto.input.extend([value.name if value is not None else "" for value in inputs])
    proto.output.extend([value.name if value is not None else "" for value in outputs])
    node.inputs, node.outputs = tuple(inputs), tuple(outputs)
    for slot, value in enumerate(outputs):
        if value is not None:
            value.producer, value.index = node, slot
    link(graph, node, after)
    if template.has_bodies:
        graph.model.index_bodies(node)
    _use_inputs(node)
    return node


def undo_add_node(node: Node) -> None:
    _disuse_inputs([node])
    unlink(node.graph, [node])


def changed_nodes(
    entries: Iterable[tuple[Callable[..., object], tuple[Any, ...]]],
) -> dict[Node, bool]:
    """Return the nodes whose outputs may have other types after these edits of a journal.

    They are True where an attribute was set. A new node is one of them if an output has a name of
    the file.
    """
    changed: dict[Node, bool] = {}
    for undo, arguments in entries:
        if undo is _put_attribute:
            changed[arguments[0]] = True
        elif undo is _put_input or undo is _put_output or undo is undo_add_node:
            node: Node = arguments[0]
            if undo is not undo_add_node or any(
                value is not None and value.name not in value.graph.remade for value in node.outputs
            ):
                changed.setdefault(node, False)
    return changed


def record_producer(value: Value) -> None:
    """Record the producer of a value before a new node replaces it."""
    value.graph.model.journal.record(_put_producer, value, value.producer, value.index)


def _put_producer(value: Value, producer: Node | None, index: int) -> None:
    value.producer, value.index = producer, index


def remove_nodes(graph: Graph, nodes: Sequence[Node]) -> None:
    """Remove nodes, given in order, whose outputs only they use.

    Raises:
        GehostError: an output is still used; none is removed.
    """
    journal = graph.model.journal
    mark = journal.mark()
    journal.record(_undo_remove_nodes, nodes, [node.prev for node in nodes])
    _disuse_inputs(nodes)
    for node in nodes:
        for value in node.outputs:
            if value is not None and value.producer is node:
                if value.read_by is not None:
                    journal.undo(mark)
                    raise GehostError(
                        f'{node!r} cannot be removed: tensor "{value.name}" is still read'
                    )
                del graph.values[value.name]
                # a reference cycle would keep both alive until the collector runs
                value.producer = None
    unlink(graph, nodes)


def _undo_remove_nodes(nodes: Sequence[Node], before: Sequence[Node | None]) -> None:
    """Insert nodes after those that preceded them."""
    for node, earlier in zip(nodes, before, strict=True):
        unlink(node.graph, [node])
        for value in node.outputs:
            if value is not None:
                value.graph.values[value.name] = value
                if value.producer is None:
                    value.producer = node
        link(node.graph, node, earlier)
        _use_inputs(node)
        names = [node.name, *[value.name for value in node.outputs if value is not None]]
        for body in node.bodies:
            for inner in (body, *body.subgraphs()):
                names += [*inner.values, *[inner_node.name for inner_node in inner.nodes]]
        node.graph.model.names.put_back(names)


def move_after(graph: Graph, node: Node, anchor: Node | None) -> None:
    """Move a node after ``anchor`` (None: to the front)."""
    graph.model.journal.record(_undo_move, node, node.prev)
    unlink(graph, [node])
    link(graph, node, anchor)


def _undo_move(node: Node, before: Node | None) -> None:
    unlink(node.graph, [node])
    link(node.graph, node, before)


def set_input(node: Node, slot: int, value: Value | None) -> None:
    """Make a node read ``value`` at ``slot``."""
    old = node.inputs[slot]
    node.graph.model.journal.record(_put_input, node, slot, old, value)
    _put_input(node, slot, value, old)


def _put_input(node: Node, slot: int, value: Value | None, old: Value | None) -> None:
    """Make a node read ``value`` at ``slot`` in place of ``old``."""
    # an edit from vendor code may have been given any object; its undo gets that object here
    before = old if isinstance(old, Value) else None
    node.inputs = with_entry(node.inputs, slot, value)
    if node.slots is not None:
        node.slots.put(slot, value, before)
    node.proto.input[slot] = "" if value is None else value.name
    if before is not None and not node.reads(before):
        before.drop_reader(node)
    if value is not None:
        value.add_reader(node)


def _use_inputs(node: Node) -> None:
    """Register a node, and the readers in its bodies, as readers."""
    for value in node.inputs:
        if value is not None:
            if value.read_by is None:
                value.read_by = node
            else:
                value.add_reader(node)
    for body in node.bodies:
        for reader, _, value in body.captured():
            value.add_reader(reader)


def _disuse_inputs(nodes: Sequence[Node]) -> None:
    for node in nodes:
        for value in node.inputs:
            if value is not None:
                if value.read_by is node:
                    value.read_by = None
                else:
                    value.drop_reader(node)
        for body in node.bodies:
            for reader, _, value in body.captured():
                value.drop_reader(reader)


# attributes and metadata


def set_attribute(
    node: Node,
    name: str,
    new: onnx.AttributeProto | None,
    old: onnx.AttributeProto | None,
    position: int | None,
) -> None:
    """Set, add or remove (None) an attribute, now ``old`` at ``position``."""
    node.graph.model.journal.record(_put_attribute, node, name, old, position)
    _put_attribute(node, name, new)


def _put_attribute(
    node: Node, name: str, attribute: onnx.AttributeProto | None, position: int | None = None
) -> None:
    """Set, add (at ``position``, or last) or remove (None) an attribute."""
    entries = node.proto.attribute
    present = find_entry([entry.name for entry in entries], name)
    if attribute is None:
        if present is not None:
            del entries[present]
    elif present is None:
        entries.append(attribute)
        present = len(entries) - 1
    else:
        entries[present].CopyFrom(attribute)
    if position is not None and present is not None and present != position:
        alive = list(entries)
        moved = alive.pop(present)
        arrange(entries, [*alive[:position], moved, *alive[position:]])
    node.forget_attrs()


def set_metadata(model: Model, owner: Node | Model, key: str, text: str | None) -> None:
    """Set or remove (None) a ``metadata_props`` entry of node or model."""
    old = next((prop.value for prop in owner.proto.metadata_props if prop.key == key), None)
    model.journal.record(_put_metadata, owner, key, old)
    if isinstance(owner, Node):
        owner.is_traced = True
    _put_metadata(owner, key, text)


def _put_metadata(owner: Node | Model, key: str, text: str | None) -> None:
    entries = owner.proto.metadata_props
    present = find_entry([prop.key for prop in entries], key)
    if text is None:
        if present is not None:
            del entries[present]
    elif present is None:
        entries.add(key=key, value=text)
    else:
        entries[present].value = text


def set_device_configurations(
    node: Node, configurations: Sequence[onnx.NodeDeviceConfigurationProto]
) -> None:
    """Replace the device configurations of a node."""
    model = node.graph.model
    model.journal.record(_put_device_configurations, node, node.device_configurations)
    model.has_device_configurations = True
    _put_device_configurations(node, configurations)


def _put_device_configurations(
    node: Node, configurations: Sequence[onnx.NodeDeviceConfigurationProto]
) -> None:
    entries = node.proto.device_configurations
    del entries[:]
    entries.extend(configurations)


def find_entry(names: Sequence[str], name: str) -> int | None:
    return names.index(name) if name in names else None


# initializers


def add_initializer(value: Value, tensor: onnx.TensorProto) -> None:
    """Make a new value a constant; the tensor is copied."""
    graph = value.graph
    graph.model.journal.record(_undo_add_initializer, value)
    value.initializer = graph.proto.initializer.add()
    value.initializer.CopyFrom(tensor)


def _undo_add_initializer(value: Value) -> None:
    if value.initializer is not None:
        value.graph.dropped.append(value.initializer)
        value.graph.dirty = True


def remove_initializer(value: Value) -> None:
    """Remove an initializer without users."""
    graph = value.graph
    assert value.initializer is not None
    graph.model.journal.record(_undo_remove_initializer, value)
    del graph.values[value.name]
    graph.dropped.append(value.initializer)
    graph.dirty = True


def _undo_remove_initializer(value: Value) -> None:
    assert value.initializer is not None
    value.graph.values[value.name] = value
    value.graph.model.names.put_back([value.name])
    value.graph.dropped = [entry for entry in value.graph.dropped if entry is not value.initializer]


def added_constants(
    entries: Iterable[tuple[Callable[..., object], tuple[Any, ...]]],
) -> Iterator[tuple[int, Value | Node]]:
    """Yield initializers and Constant nodes that edits of a journal added (1) or removed (-1)."""
    for undo, arguments in entries:
        if undo is _undo_add_initializer or undo is _undo_remove_initializer:
            yield 1 if undo is _undo_add_initializer else -1, arguments[0]
        elif undo is undo_add_node and arguments[0].op == "Constant":
            yield 1, arguments[0]
        elif undo is _undo_remove_nodes:
            yield from ((-1, node) for node in arguments[0] if node.op == "Constant")


# the list of nodes: doubly linked, with increasing order numbers; the edits above record it


def link(graph: Graph, node: Node, after: Node | None) -> None:
    """Insert a node after ``after`` (None: first)."""
    following = graph.head if after is None else after.next
    if after is None:
        node.order = ORDER_GAP if following is None else following.order - ORDER_GAP
    elif following is None:
        node.order = after.order + ORDER_GAP
    else:
        if following.order - after.order < 2:
            _renumber(graph)
        node.order = (after.order + following.order) // 2
    node.prev, node.next = after, following
    if after is None:
        graph.head = node
    else:
        after.next = node
    if following is None:
        graph.tail = node
    else:
        following.prev = node
    group = graph.by_op.get(node.op)
    if group is None:
        group = graph.by_op[node.op] = {}
    group[node] = None
    graph.dirty = True


def unlink(graph: Graph, nodes: Sequence[Node]) -> None:
    """Remove nodes from the list.

    Accepts nodes that are only partly linked, or not at all.
    """
    graph.dirty = True
    for node in nodes:
        before, following = node.prev, node.next
        if before is None:
            if graph.head is node:
                graph.head = following
        elif before.next is node:
            before.next = following
        if following is None:
            if graph.tail is node:
                graph.tail = before
        elif following.prev is node:
            following.prev = before
        group = graph.by_op.get(node.op)
        if group is not None:
            group.pop(node, None)


def _renumber(graph: Graph) -> None:
    """Raise the nodes' numbers, last first, so that they increase throughout."""
    node = graph.tail
    assert node is not None
    order = (node.order // ORDER_GAP + len(graph)) * ORDER_GAP
    while node is not None:
        node.order = order
        order -= ORDER_GAP
        node = node.prev
    graph.model.renumbered += 1
