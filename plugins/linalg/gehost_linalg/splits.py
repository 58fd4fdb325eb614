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
            given = builder.CreateInputs(len(region.inputs))
            data = given[region.inputs.index(node.inputs[0])]
            made = es.Reshape(data, builder.CreateConst(np.array(target, np.int64)))
            context.replace(region, builder.BuildAndReset([made]))


def _split_target(node: Node) -> list[int] | None:
    """Return the target with a 0 for each copied size, where that splits the last axis."""
    source, stated = node.input(0), node.input(1)
    out = node.outputs[0]
    if source is None or stated is None or not stated.is_constant or out is None:
        return None
    before, after = source.shape, out.shape
    if not before or after is None or out.is_graph_output or not out.readers:
        return None
    kept = len(before) - 1
    parts = [size for size in after[kept:] if isinstance(size, int)]
    if (
        len(parts) < 2
        or len(parts) < len(after) - kept
        or math.prod(parts) != before[kept]
        or min(parts) < 1
        or None in before
        or before[:kept] != after[:kept]
        or not all(isinstance(each, Node) and reorders_axes(each) for each in out.readers)
    ):
        return None
    target = [0] * kept + parts
    return None if stated.numpy().tolist() == target else target
