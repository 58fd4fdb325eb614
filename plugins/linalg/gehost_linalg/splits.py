"""Targets of Reshapes that split the last axis, in the form that a body shows without sizes.

``[-1, 17, 4, 16]`` of ``[batch, 17, 64]``   ==>   ``[0, 0, 4, 16]``
"""

from __future__ import annotations

import math

import numpy as np

from gehost import CustomPassContext, EsGraphBuilder, Graph, Node, Region, es
from gehost_linalg.groups.grouping import reorders_axes


def state_splits(graph: Graph, context: CustomPassContext) -> None:
    """Write 0 for the sizes that a Reshape before a Transpose copies."""
    for node in list(graph.nodes_of("Reshape")):
        target = _split_target(node)
        if target is None:
            continue
        region = Region.of_nodes([node])
        if isinstance(region, Region):
            builder = EsGraphBuilder(node.op)
            placeholders = builder.CreateInputs(len(region.inputs))
            data = placeholders[region.inputs.index(node.inputs[0])]
            result = es.Reshape(data, builder.CreateConst(np.array(target, np.int64)))
            context.replace(region, builder.BuildAndReset([result]))


def _split_target(node: Node) -> list[int] | None:
    """Return the target with a 0 for each copied size, where that splits the last axis."""
    source, declared = node.input(0), node.input(1)
    out = node.outputs[0]
    if source is None or declared is None or not declared.is_constant or out is None:
        return None
    before, after = source.shape, out.shape
    if not before or after is None or out.is_graph_output or not out.readers:
        return None
    retained = len(before) - 1
    parts = [size for size in after[retained:] if isinstance(size, int)]
    if (
        len(parts) < 2
        or len(parts) < len(after) - retained
        or math.prod(parts) != before[retained]
        or min(parts) < 1
        or None in before
        or before[:retained] != after[:retained]
        or not all(isinstance(reader, Node) and reorders_axes(reader) for reader in out.readers)
    ):
        return None
    target = [0] * retained + parts
    return None if declared.numpy().tolist() == target else target
