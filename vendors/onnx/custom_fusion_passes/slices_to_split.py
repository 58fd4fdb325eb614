"""Slices that cut one tensor into its parts  ==>  one Split.

``x → Slice [:, :4], x → Slice [:, 4:]   ==>   x → Split (4, 4)``
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from gehost import (
    REG_FUSION_PASS,
    CustomPassStage,
    EsGraphBuilder,
    FusionBasePass,
    Refusal,
    Region,
    es,
    hookimpl,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    import onnx

    from gehost import CustomPassContext, Graph, Node, Value


@REG_FUSION_PASS(stage=CustomPassStage.kAfterOriginGraphOptimize, default=False, min_opset=13)
class SlicesToSplitPass(FusionBasePass):
    """Replace Slices that cut a tensor into all its parts with one Split.

    Off by default, and late: passes that look for halves look for Slices.
    Forms: two or more Slices of one tensor along one axis, in steps of 1, constant.
    Shapes: the axis is known, and each of its positions is in exactly one part.
    Keeps: the numbers to the bit.
    Refuses: ``parts``: they leave a position out, or overlap; ``axis``: its size is open.
    Source: ONNX Slice-13, Split-13.
    """

    shape_proven = True
    """The parts have the sizes of the slices."""

    def Run(self, graph: Graph, context: CustomPassContext) -> None:
        slices: dict[tuple[Value, int], list[tuple[int, int, Node]]] = {}
        for node in graph.nodes_of("Slice"):
            part = _part(node)
            if part is not None:
                x, axis, start, end = part
                slices.setdefault((x, axis), []).append((start, end, node))
        for (x, axis), parts in slices.items():
            if len(parts) < 2:
                continue
            parts.sort(key=lambda part: part[:2])
            size = None if x.shape is None else x.shape[axis]
            ends = [0, *(end for _, end, _ in parts)]
            starts = [start for start, _, _ in parts]
            nodes = [node for _, _, node in parts]
            if [*starts, size] != ends or any(s >= e for s, e, _ in parts):
                context.refuse(nodes[-1], "parts: they leave a position out, or overlap")
                continue
            region = Region.of_nodes(nodes)
            if isinstance(region, Refusal):
                context.refuse(nodes[-1], region.reason)
                continue
            builder = EsGraphBuilder("split")
            inputs = dict(zip(region.inputs, builder.CreateInputs(len(region.inputs)), strict=True))
            sizes = np.diff(ends).tolist()
            result = es.Split(inputs[x], split=sizes, axis=axis)
            by_value = {node.outputs[0]: one for node, one in zip(nodes, result, strict=True)}
            context.replace(region, builder.BuildAndReset([by_value[v] for v in region.outputs]))

    def Instances(self) -> Iterator[onnx.ModelProto]:
        """Yield a model of two parts."""
        import onnx

        yield onnx.parser.parse_model(
            """<ir_version: 10, opset_import: ["": 17]>
            g (float[N, 6] x) => (float[N, 4] y, float[N, 2] z)
            <int64[1] zero = {0}, int64[1] four = {4}, int64[1] six = {6}, int64[1] one = {1}> {
                n = Neg (x)
                z = Slice (n, four, six, one)
                y = Slice (n, zero, four, one) }"""
        )


def _part(node: Node) -> tuple[Value, int, int, int] | None:
    """Return the tensor, the axis, the start and the end of a Slice; None where one is open."""
    x, *operands = node.inputs
    arrays = [None if one is None else one.array for one in operands]
    if x is None or x.rank is None or x.shape is None or len(arrays) < 2:
        return None
    if any(
        one is not None and (array is None or array.size != 1)
        for one, array in zip(operands, arrays, strict=True)
    ):
        return None
    start, end, axis, step = (
        _number(arrays, place, default) for place, default in ((0, 0), (1, 0), (2, 0), (3, 1))
    )
    axis = axis + x.rank if axis < 0 else axis
    size = x.shape[axis] if axis < x.rank else None
    if step != 1 or not isinstance(size, int) or isinstance(size, bool):
        return None
    low, high = (min(max(one + size if one < 0 else one, 0), size) for one in (start, end))
    return x, axis, low, high


def _number(arrays: list[Any], place: int, default: int) -> int:
    array = arrays[place] if place < len(arrays) else None
    return default if array is None else int(array.reshape(-1)[0])


@hookimpl
def gehost_tune_kinds(registry: Any) -> None:
    """Layout."""
    registry.add("layout", ["SlicesToSplitPass"])
