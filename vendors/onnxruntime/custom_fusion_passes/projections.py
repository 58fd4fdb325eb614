"""Projections of rows as one product, without reshapes to a matrix.

``x [B, S, D] → Reshape [-1, D] → Gemm w, b → Reshape [B, S, M]   ==>   x, w → MatMul → Add b``

Small models spend more time in the two reshapes than in the product. Attention then finds its
projections, and the kernels behind take the bias: attention, Gelu, the residual normalization.

gpt2.dynopt: 48 of 48 products, so that attention is fused in 12 of 12 layers. At width 768 and 128
rows a matrix [128, 768] beside [1, 128, 768] changes nothing that shows: 1.02 (0.99, 1.06).
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from gehost import (
    REG_FUSION_PASS,
    CustomPassStage,
    EsGraphBuilder,
    FusionBasePass,
    Refusal,
    Region,
    es,
)

from ._instances import instance
from ._shapes import all_same, remove_dead, shape_of
from ._types import not_float

if TYPE_CHECKING:
    from collections.abc import Iterator

    import onnx

    from gehost import CustomPassContext, Graph, Node, Value


@REG_FUSION_PASS(stage=CustomPassStage.kAfterBuiltinFusionPass, default=False)
class OrtProjectionPass(FusionBasePass):
    """Write a Gemm between reshapes as a MatMul of rows and an Add.

    Forms: with and without bias; the weight as it stands or transposed; rows of any rank; heads
    that the first reshape also puts together.
    Shapes: x [..., D]; w [D, M], with transB [M, D]; b [M].
    Keeps: the numbers but for rounding.
    Refuses: ``dtype``: not float32; ``attributes``: alpha or beta other than 1, or transA;
    ``weights``: not constant, or not of these shapes; ``rows``: not proven that the reshapes only
    flatten and restore the rows; ``shared``: the product is read by others, too.
    Source: ONNX Gemm-13.
    """

    shape_proven = True
    """The result has the rows of x and the columns of w: ``_rows`` proves it."""

    def Run(self, graph: Graph, context: CustomPassContext) -> None:
        if graph.depth:
            return
        for node in graph.nodes_of("Gemm"):
            before = None if node.inputs[0] is None else node.inputs[0].producer
            after = _only_reader(node)
            if before is None or before.op != "Reshape":
                continue  # a matrix
            if after is None or after.op != "Reshape" or after.inputs[0] is not node.outputs[0]:
                context.refuse(node, "shared: the product does not go to one Reshape alone")
                continue
            result = _weights(node)
            shape = result if isinstance(result, str) else _rows(before, after, result[0])
            if isinstance(result, str) or isinstance(shape, str):
                context.refuse(node, str(shape))
                continue
            self._fuse(context, [before, node, after], shape, *result)
        remove_dead(graph)

    def Instances(self) -> Iterator[onnx.ModelProto]:
        """Yield models with a bias, and with a transposed weight and none."""
        for gemm in ("Gemm (f, w, b)", "Gemm <transB = 1> (f, w)"):
            yield instance(
                "float[B, S, 8] x",
                f"""size = Shape <end = 2> (x) rows = Concat <axis = 0> (size, width)
                f = Reshape (x, flat) g = {gemm} y = Reshape (g, rows)""",
                constants="int64[2] flat = {-1, 8}, int64[1] width = {8}",
                w=(8, 8),
                b=(8,),
            )

    def _fuse(
        self,
        context: CustomPassContext,
        nodes: list[Node],
        shape: list[int] | None,
        weight: Value | np.ndarray,
        bias: Value | None,
    ) -> None:
        region = Region.of_nodes(nodes)
        if not region:
            context.refuse(nodes[1], region.reason)
            return
        assert not isinstance(region, Refusal)
        builder = EsGraphBuilder("projection")
        inputs = dict(zip(region.inputs, builder.CreateInputs(len(region.inputs)), strict=True))
        x = nodes[0].inputs[0]
        assert x is not None
        rows = inputs[x] if shape is None else es.Reshape(inputs[x], np.array(shape))
        factor = weight if isinstance(weight, np.ndarray) else inputs[weight]
        result = es.MatMul(rows, factor)
        if bias is not None:
            result = result + inputs[bias]
        context.replace(region, builder.BuildAndReset([result]), keep_shared=True)


def _weights(node: Node) -> tuple[Value | np.ndarray, Value | None] | str:
    """Return the weight as [D, M] and the bias, or why they misfit."""
    x, weight = node.inputs[:2]
    bias = node.inputs[2] if len(node.inputs) > 2 else None
    if not_float(x):
        return not_float(x)
    attrs = node.attrs
    beta = attrs.get("beta", 1.0) if bias is not None else 1.0
    if attrs.get("transA") or attrs.get("alpha", 1.0) != 1.0 or beta != 1.0:
        return "attributes: alpha or beta other than 1, or transA"
    array = None if weight is None else weight.array
    if weight is None or array is None or array.ndim != 2:
        return "weights: not constant, or no matrix"
    columns = array.shape[0 if attrs.get("transB") else 1]
    if bias is not None and (bias.array is None or bias.array.shape != (columns,)):
        return f"weights: the bias is no constant [{columns}]"
    return (np.ascontiguousarray(array.T) if attrs.get("transB") else weight), bias


def _rows(before: Node, after: Node, weight: Value | np.ndarray) -> list[int] | str | None:
    """Return the shape that makes rows of x, None without need.

    Returns a text if these may not be the rows of x.
    """
    rows, columns = weight.shape if isinstance(weight, np.ndarray) else shape_of(weight) or (0, 0)
    argument, output = shape_of(before.inputs[0]), shape_of(after.outputs[0])
    flat = shape_of(before.outputs[0])
    if argument is None or output is None or flat is None or len(flat) != 2 or flat[1] != rows:
        return f"rows: {argument} is not proven to be flattened to [-1, {rows}]"
    front = len(output) - 1
    tail = [size if isinstance(size, int) else 0 for size in argument[front:]]
    if math.prod(tail) != rows or not all_same(output, (*argument[:front], columns)):
        return f"rows: {list(output)} is not proven to be the rows of {list(argument)}"
    return None if len(tail) == 1 else [*[0] * front, math.prod(tail)]


def _only_reader(node: Node) -> Node | None:
    output = node.outputs[0]
    if output is None or output.is_graph_output or len(output.consumers()) != 1:
        return None
    return output.consumers()[0][0]
