"""Estimate the memory of a run's tensors: the most that are alive at a time."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import onnx

from gehost.ir.files.external import element_bits
from gehost.ir.graph import Node
from gehost.ir.types import TensorType
from gehost.verify.feeds import without_weights
from gehost.verify.retype import inferred

if TYPE_CHECKING:
    from numpy.typing import NDArray


def activation_bytes(
    model: onnx.ModelProto, feeds: Mapping[str, NDArray[Any]], types: Mapping[int, int]
) -> int:
    """Return the bytes of the tensors alive at the worst node of a run, in the new ``types``.

    Tensors without a size that inference knows do not count, nor those inside bodies.
    """
    fixed = without_weights(model)
    for value in fixed.graph.input:
        array = feeds.get(value.name)
        if array is not None:
            del value.type.tensor_type.shape.dim[:]
            for size in array.shape:
                value.type.tensor_type.shape.dim.add(dim_value=size)
    graph = inferred(fixed).graph
    nodes = list(graph.nodes)
    place = {node: number for number, node in enumerate(nodes)}
    dies: dict[int, int] = defaultdict(int)
    alive = most = 0
    for number, node in enumerate(nodes):
        for value in node.outputs:
            kind = None if value is None else value.type
            if value is None or not isinstance(kind, TensorType) or kind.size is None:
                continue
            size = kind.size * element_bits(types.get(int(kind.dtype), int(kind.dtype))) // 8
            readers = [
                place.get(reader, len(nodes))
                for reader in value.readers
                if isinstance(reader, Node)
            ]
            end = len(nodes) if value.is_graph_output else max(readers, default=number)
            dies[end] += size
            alive += size
        most = max(most, alive)
        alive -= dies.pop(number, 0)
    return most
