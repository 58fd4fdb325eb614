"""A plugin that records a picture of each rewrite for the report."""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterable, Sequence
from itertools import islice
from operator import itemgetter
from typing import Any, cast

import numpy as np

from gehost.host.context import CompileContext
from gehost.host.hookspecs import hookimpl
from gehost.host.report import Report
from gehost.ir.graph import Graph, Node, Value
from gehost.ir.region import Region
from gehost.ir.types import TensorType
from gehost.ir.wide import WIDE
from gehost.passes.context import PassRecord, Rewrite
from gehost.passes.snapshots import (
    Picture,
    PictureNode,
    PictureTensor,
    Refusals,
    RewriteGroup,
    RewriteNames,
    Role,
    Source,
)

_MOST_NODES = 40
_MOST_INPUTS = 12
"""Largest number of drawn inputs of a node; the others are counted."""
_MOST_READERS = 3
"""Largest number of drawn users of an output; the others are counted."""
_MOST_ELEMENTS = 6
"""Largest size of a constant whose elements are shown."""
_LONGEST_VALUE = 60


class RewriteRecorder:
    """Fills in ``PassRecord.rewrites`` and ``PassRecord.refusals`` of one compile.

    Examples:
        >>> host = Host(options, plugins=[("recorder", RewriteRecorder())])  # doctest: +SKIP
        >>> host.compile("m.onnx", "out.onnx")  # doctest: +SKIP
    """

    def __init__(self) -> None:
        self.report: Report | None = None
        """Of the compile from its start; partial if it fails."""
        self._before = Picture((), ())
        self._names: tuple[str, ...] = ()
        self._readers: list[tuple[Node, int]] = []
        self._record: PassRecord | None = None
        self._groups: dict[Hashable, RewriteGroup] = {}
        self._refusals: dict[str, Refusals] = {}

    @hookimpl
    def gehost_compile_started(self, context: CompileContext) -> None:
        self.report = context.report

    @hookimpl
    def gehost_before_rewrite(self, rewrite: Rewrite) -> None:
        region = rewrite.region
        self._before = _before(region)
        self._names = tuple(node.label for node in region.nodes)
        outputs = region.outputs[:_MOST_INPUTS]
        self._readers = [use for value in outputs for use in _readers_outside(region, value)]

    @hookimpl
    def gehost_after_rewrite(self, rewrite: Rewrite) -> None:
        before, after = self._before, _after(rewrite, self._readers)
        self._turn_to(rewrite.record)
        key = _group_key(before), _group_key(after)
        group = self._groups.get(key)
        if group is None:
            group = self._groups[key] = RewriteGroup(before, after)
            rewrite.record.rewrites.append(group)
        labels = tuple(node.label for node in rewrite.made)
        group.matches.append(RewriteNames(rewrite.number, self._names, labels))

    @hookimpl
    def gehost_match_refused(self, record: PassRecord, node: Node, reason: str) -> None:
        self._turn_to(record)
        refusals = self._refusals.get(reason)
        if refusals is None:
            refusals = self._refusals[reason] = Refusals(reason)
            record.refusals.append(refusals)
        refusals.nodes.append(node.label)

    def _turn_to(self, record: PassRecord) -> None:
        if record is not self._record:
            self._record = record
            self._groups, self._refusals = {}, {}


def picture_of(
    graph: Graph, nodes: Sequence[Node], centres: Collection[Node], most: int = _MOST_NODES
) -> Picture:
    """Return a picture of nodes and their neighbours, with centres highlighted."""
    sketch = _Sketch(graph, nodes)
    for node in nodes[:most]:
        sketch.add(node, "matched" if node in centres else "kept")
    for node in nodes[:most]:
        for value in node.outputs[:_MOST_INPUTS]:
            if value is not None:
                uses = [use for use in value.uses if isinstance(use[0], Node)]
                sketch.add_readers(value, cast("list[tuple[Node, int]]", uses))
    sketch.add_producers()
    return sketch.picture(len(nodes[most:]))


def _before(region: Region) -> Picture:
    sketch = _Sketch(region.graph, region.nodes)
    for node in region.nodes[:_MOST_NODES]:
        sketch.add(node, "matched")
    for value in region.outputs[:_MOST_INPUTS]:
        sketch.add_readers(value, _readers_outside(region, value))
    sketch.add_producers()
    return sketch.picture(len(region.nodes[_MOST_NODES:]))


def _after(rewrite: Rewrite, readers: list[tuple[Node, int]]) -> Picture:
    """Return the picture after a rewrite.

    ``readers`` are users of the region's outputs.
    """
    region = rewrite.region
    nodes = {node: None for node in region.nodes if node.in_graph}
    inside = sorted([*nodes, *rewrite.made], key=lambda node: node.order)
    sketch = _Sketch(region.graph, inside)
    for node in inside[:_MOST_NODES]:
        sketch.add(node, "kept" if node in nodes else "new")
    reads: dict[Value, list[tuple[Node, int]]] = {}
    for reader, slot in readers:
        value = reader.inputs[slot] if reader.in_graph else None
        if value is not None:
            reads.setdefault(value, []).append((reader, slot))
    for value, uses in reads.items():
        sketch.add_readers(value, uses)
    sketch.add_producers()
    return sketch.picture(len(inside[_MOST_NODES:]))


def _readers_outside(region: Region, value: Value) -> list[tuple[Node, int]]:
    """Return the uses of ``value`` by outside nodes, also in bodies."""
    uses = [(reader, slot) for reader, slot in value.uses if isinstance(reader, Node)]
    return [use for use in uses if not region.holds(region.graph.level_of(use[0]))]


class _Sketch:
    """A picture under construction."""

    def __init__(self, graph: Graph, inside: Iterable[Node]) -> None:
        self._graph = graph
        self._inside = set(inside)
        self._tensors: dict[Value, int] = {}
        self._other_uses: dict[Value, int] = {}
        self._nodes: dict[Node, tuple[Role, list[int | None], list[int | None]]] = {}

    def _tensor(self, value: Value) -> int:
        return self._tensors.setdefault(value, len(self._tensors))

    def add(self, node: Node, role: Role) -> None:
        """Add a node with its input and output tensors."""
        reads = [
            *node.inputs,
            *dict.fromkeys(value for body in node.bodies for _, _, value in body.captured()),
        ]
        inputs = [None if value is None else self._tensor(value) for value in reads[:_MOST_INPUTS]]
        outputs = [
            None if value is None else self._tensor(value) for value in node.outputs[:_MOST_INPUTS]
        ]
        self._nodes[node] = role, inputs, outputs

    def add_readers(self, value: Value, uses: Iterable[tuple[Node, int]]) -> None:
        """Add some outside users of ``value``, and count the others."""
        tensor = self._tensor(value)
        readers = list(dict.fromkeys(self._graph.level_of(reader) for reader, _ in uses))
        for reader in readers[:_MOST_READERS]:
            if reader not in self._inside:
                self._around(reader)[1].append(tensor)
        self._other_uses[value] = self._other_uses.get(value, 0) + len(readers[_MOST_READERS:])

    def add_producers(self) -> None:
        """Add the outside producers of the picture's tensors.

        Other tensors of the picture that outside nodes read are added, too.
        """
        for value, tensor in list(self._tensors.items()):
            producer = value.producer
            if (
                producer is not None
                and self._source(value) == "node"
                and producer not in self._inside
            ):
                self._around(producer)[2].append(tensor)
        for node, (role, inputs, _) in self._nodes.items():
            if role == "around":
                read = node.inputs
                if len(read) > WIDE:
                    slots = [(node.slots_of(v)[0], v) for v in self._tensors if node.reads(v)]
                    read = [value for _, value in sorted(slots, key=itemgetter(0))]
                boxes = (self._tensors.get(value) for value in read if value is not None)
                inputs[:] = dict.fromkeys(
                    [*inputs, *(tensor for tensor in boxes if tensor is not None)]
                )

    def _around(self, node: Node) -> tuple[Role, list[int | None], list[int | None]]:
        return self._nodes.setdefault(node, ("around", [], []))

    def _source(self, value: Value) -> Source:
        if value.is_constant:
            return "constant"
        if value.graph is not self._graph:
            return "outer"
        return "input" if value.producer is None else "node"

    def picture(self, left_out: int) -> Picture:
        tensors = (
            PictureTensor(
                value.name,
                str(value.type or ""),
                self._source(value),
                constant_text(value),
                # other tensors may have too many uses to search
                value.producer in self._nodes and value.is_graph_output,
                self._other_uses.get(value, 0),
            )
            for value in self._tensors
        )
        nodes = (
            PictureNode(
                node.label,
                node.op,
                role,
                tuple(inputs),
                tuple(outputs),
                {} if role == "around" else attribute_texts(node),
                0 if role == "around" else max(0, len(node.inputs) - _MOST_INPUTS),
            )
            for node, (role, inputs, outputs) in self._nodes.items()
        )
        return Picture(tuple(nodes), tuple(tensors), left_out)


def _group_key(picture: Picture) -> Hashable:
    """Return a key of inner nodes and wiring, shared by equal-shaped rewrites."""
    nodes = tuple(
        (node.op, node.role, node.inputs, node.outputs, node.more_inputs)
        for node in picture.nodes
        if node.role != "around"
    )
    last = max(
        (tensor for node in nodes for tensor in (*node[2], *node[3]) if tensor is not None),
        default=-1,
    )
    return (
        nodes,
        tuple(tensor.source == "constant" for tensor in picture.tensors[: last + 1]),
        picture.left_out,
    )


def constant_text(value: Value) -> str:
    """Return the elements of a small constant; "" for a large one."""
    type_ = value.type
    if not value.is_constant:
        return ""
    if isinstance(type_, TensorType) and (type_.size or 0) > _MOST_ELEMENTS:
        return ""  # without reading it
    array = value.array
    return "" if array is None or array.size > _MOST_ELEMENTS else _text(array)


def attribute_texts(node: Node) -> dict[str, str]:
    """Return the first attributes of a node as short texts."""
    return {name: _text(node.attrs[name]) for name in islice(node.attrs, _MOST_INPUTS)}


def _text(value: Any) -> str:
    """Return a constant or an attribute in a few characters."""
    if isinstance(value, np.ndarray):
        array = cast("np.ndarray[Any, Any]", value)
        if array.size > _MOST_ELEMENTS:
            text = f"{array.dtype}[{','.join(map(str, array.shape))}]"
        else:
            elements = [_short(str(element)) for element in array.reshape(-1)]
            text = f"[{', '.join(elements)}]" if array.ndim else elements[0]
    elif isinstance(value, Graph):
        text = f'graph "{value.name}"'
    elif isinstance(value, list):
        items = cast("list[Any]", value)
        more = ", …" if len(items) > _MOST_INPUTS else ""
        text = f"[{', '.join(_text(item) for item in items[:_MOST_INPUTS])}{more}]"
    elif isinstance(value, float):
        text = f"{value:.7g}"
    elif isinstance(value, int | str | bytes):
        text = str(value)
    else:
        text = type(value).__name__
    return _short(text)


def _short(text: str) -> str:
    return text if len(text) <= _LONGEST_VALUE else f"{text[:_LONGEST_VALUE]}…"
