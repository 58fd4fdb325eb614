"""Two masks that are added one after the other, as one sum.

``s = q·kᵀ (· scale);  s, a → Add → t;  t, m → Add → Softmax``
``==>   a, m → Add → mask;  s, mask → Add → Softmax``

MPNet adds the bias a of relative positions and the mask m of padding like this, with one bias for
all layers. Both orders of float32 sums agree where a is at most 256 and m holds such numbers, too,
or numbers of at least 1e30, which absorb scores and bias in either order. Of a number between,
as −1e4 or −1e9, they do not (5e-4): a row of it throughout rounds the sums to its neighbours.

mpnet (2 layers): attention in 2 of 2 layers, 0 without this pass, from both exporters.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gehost import (
    REG_FUSION_PASS,
    CustomPassStage,
    DataType,
    EsGraphBuilder,
    FusionBasePass,
    Region,
    Rejection,
)

from ._attention import is_product
from ._instances import ATTENTION, KEEP, QKV, instance
from ._numbers import FAR, NEAR, is_near, is_near_or_far

if TYPE_CHECKING:
    from collections.abc import Iterator

    import onnx

    from gehost import CustomPassContext, Graph, Node, Value


@REG_FUSION_PASS(stage=CustomPassStage.kAfterBuiltinFusionPass, default=False)
class OrtMaskSumPass(FusionBasePass):
    """Add two masks before they are added to the scores of attention.

    Forms: each operand of either Add, at any opset.
    Keeps: the numbers for scores below 1e22, but for the rounding of a sum in another order.
    Refuses: ``bias``: the inner one is not proven to be within 256; ``mask``: the outer one is not
    proven to be within 256, or 0 or at least 1e30; ``dtype``: not float32; ``shared``: the inner
    sum is read by others.
    Source: the definition of float32 sums.
    """

    def Run(self, graph: Graph, context: CustomPassContext) -> None:
        for softmax in graph.nodes_of("Softmax"):
            outer = _add(softmax.inputs[0])
            found = None if outer is None else _sums(outer)
            if outer is None or found is None:
                continue
            inner, scores, bias, mask = found
            between = inner.outputs[0]
            if scores.dtype != DataType.FLOAT:
                context.refuse(outer, "dtype: float32 only")
            elif between is None or between.is_graph_output or len(between.consumers()) != 1:
                context.refuse(outer, "shared: the inner sum is read by others, too")
            elif not is_near(bias):
                context.refuse(outer, f"bias: not proven to be within {NEAR:g}")
            elif not is_near_or_far(mask):
                context.refuse(outer, f"mask: may hold numbers between {NEAR:g} and {FAR:g}")
            else:
                _fuse(context, [inner, outer], scores, bias, mask)

    def Instances(self) -> Iterator[onnx.ModelProto]:
        """Yield a model with a bias of positions and a mask of padding."""
        yield instance(
            f"{QKV}, {KEEP}",
            ATTENTION.format(
                masked="mask = Where (keep, zero, low) t = Add (s, bias) a = Add (t, mask)"
            ),
            bias=(1, 2, 1, 1),
        )


def _add(value: Value | None) -> Node | None:
    node = None if value is None else value.producer
    return node if node is not None and node.op == "Add" else None


def _sums(outer: Node) -> tuple[Node, Value, Value, Value] | None:
    """Return the inner Add, the scores, the bias, and the mask."""
    for slot in (0, 1):
        inner, mask = _add(outer.inputs[slot]), outer.inputs[1 - slot]
        if inner is None or mask is None:
            continue
        for place in (0, 1):
            scores, bias = inner.inputs[place], inner.inputs[1 - place]
            if scores is not None and bias is not None and is_product(scores):
                return inner, scores, bias, mask
    return None


def _fuse(
    context: CustomPassContext, nodes: list[Node], scores: Value, bias: Value, mask: Value
) -> None:
    region = Region.of_nodes(nodes)
    if isinstance(region, Rejection):
        context.refuse(nodes[-1], region.reason)
        return
    builder = EsGraphBuilder("mask_sum")
    inputs = dict(zip(region.inputs, builder.CreateInputs(len(region.inputs)), strict=True))
    made = inputs[scores] + (inputs[bias] + inputs[mask])
    context.replace(region, builder.BuildAndReset([made]))
