"""Keep types true to the nodes that edits changed.

A rule proves the types of its results. An edit through ``Graph`` proves nothing: after such edits
the nodes are inferred again (``infer_edited``), and no type of the file that contradicts the index
is written (``drop_false_types``).
"""

from __future__ import annotations

import heapq

from gehost.errors import ModelError
from gehost.infer.local import Inferrer
from gehost.ir.edits import changed_nodes
from gehost.ir.graph import Node
from gehost.ir.model import Model
from gehost.ir.types import Dim, TensorType, ValueType, decode_type
from gehost.refusal import Refused


def drop_false_types(model: Model) -> None:
    """Drop the types of inner tensors that the file declares and the index contradicts."""
    for graph in model.graphs:
        find = graph.values.get
        for info in graph.proto.value_info[:]:
            value = find(info.name)
            if value is None or value.producer is None:
                continue
            value_type, declared = value.known_type, decode_type(info.type)
            if value_type == declared or not isinstance(value_type, TensorType):
                continue
            if _differs(declared, value_type, names=False) and value.name not in graph.remade:
                graph.redefine(value, value_type)


def infer_edited(model: Model, inferrer: Inferrer, mark: int) -> None:
    """Replace the types that edits since ``mark`` made wrong.

    Nodes with another attribute, input or output are inferred again, and so are the users of
    results with another type. A known size stays where inference gives none.

    Raises:
        VendorError: the shape function of a vendor's operator failed.
    """
    renewed = changed_nodes(model.journal.since(mark))
    waiting = [(node.path_from(model.graph), id(node), node) for node in renewed if node.in_graph]
    heapq.heapify(waiting)
    visited = set[Node]()
    while waiting:
        _, _, node = heapq.heappop(waiting)
        if node in visited or node.bodies:
            continue
        visited.add(node)
        try:
            types = inferrer.node(node)
        except (Refused, ModelError):
            continue  # the operator does not take its inputs; their types are not the cause
        for value, inferred in zip(node.outputs, types, strict=False):
            if value is None or not _differs(value.type, inferred, names=renewed[node]):
                continue
            value.graph.redefine(value, inferrer.named(_with_sizes(inferred, value.type)))
            for reader in value.readers:
                if isinstance(reader, Node):
                    renewed[reader] = True
                    visited.discard(reader)
                    heapq.heappush(waiting, (reader.path_from(model.graph), id(reader), reader))


def _differs(before: ValueType | None, now: ValueType | None, *, names: bool) -> bool:
    """Whether a tensor with the type ``now`` cannot have the type ``before``.

    Args:
        before: the type in the index.
        now: the inferred type.
        names: whether sizes of different names differ, too. Elsewhere a name may be a label that
            the file or a proof gave to an equal size.
    """
    if now is None or before == now:
        return False
    if not isinstance(before, TensorType) or not isinstance(now, TensorType):
        return before is not None
    if before.dtype and now.dtype and before.dtype != now.dtype:
        return True
    if before.shape is None or now.shape is None:
        return False
    if len(before.shape) != len(now.shape):
        return True
    for old, new in zip(before.shape, now.shape, strict=True):
        if isinstance(old, int):
            if isinstance(new, int) and old != new:
                return True
        elif names and old is not None and old != new:
            return True
    return False


def _with_sizes(now: ValueType | None, before: ValueType | None) -> ValueType | None:
    """Return the type ``now`` with known sizes of ``before`` where it has none."""
    if (
        not isinstance(now, TensorType)
        or not isinstance(before, TensorType)
        or now.shape is None
        or before.shape is None
        or len(now.shape) != len(before.shape)
    ):
        return now
    dims: list[Dim] = []
    for old, new in zip(before.shape, now.shape, strict=True):
        dims.append(old if new is None and isinstance(old, int) else new)
    return TensorType(now.dtype, tuple(dims))
