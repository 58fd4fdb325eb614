"""Two masks that are added one after the other, as one sum.

``s = q·kᵀ (· scale);  s, a → Add → t;  t, m → Add → Softmax``
``==>   a, m → Add → mask;  s, mask → Add → Softmax``

MPNet adds the bias a of relative positions and the mask m of padding like this, with one bias for
all layers; BLOOM adds a before heads are put apart (``t → Reshape [B, N, S, T] → Add``), which
then is done to s and a. Both orders of float32 sums agree where m holds 0 and numbers of at most
−1e30, which absorb scores and bias in either order; or a is at most 256 and m holds such numbers,
too, or numbers of at least 1e30. Of a number between, as −1e4 or −1e9, they do not (5e-4): a row
of it throughout rounds the sums to its neighbours.

A scale behind the mask, as in CodeGen, goes to scores and mask where m is as in the first case:

``s, m → Add → Div c → Softmax   ==>   s / c, m / c → Add → Softmax``

Attention in 2 of 2 layers of mpnet and bloom, 0 without this pass, from both exporters. Of width 32
from TorchScript: mpnet 136 nodes → 95, 1.17 (1.12, 1.27) times as fast; bloom 160 → 129, 1.06
(1.02, 1.09) (CPU time of one thread, 5 session pairs, 95 % intervals).
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from gehost import (
    REG_FUSION_PASS,
    CustomPassStage,
    DataType,
    EsGraphBuilder,
    FusionBasePass,
    Refusal,
    Region,
    es,
)

from ._attention import factor_of, is_product
from ._instances import ATTENTION, KEEP, QKV, instance
from ._numbers import FAR, NEAR, is_near, is_near_or_far, is_zero_or_far_below
from ._scores import BiasedScores, biased_scores, read_once
from ._shapes import remove_dead
from ._types import dtype_name, not_float

if TYPE_CHECKING:
    from collections.abc import Iterator

    import onnx

    from gehost import CustomPassContext, Graph, Node, Value

_LARGEST_SCALE = 1e6


@REG_FUSION_PASS(stage=CustomPassStage.kAfterBuiltinFusionPass, default=False)
class OrtMaskSumPass(FusionBasePass):
    """Add two masks, or scale a mask, before they are added to the scores of attention.

    Forms: each operand of either Add, a Reshape from [B·N, S, T] between them; a Mul
    or Div by a constant number behind one Add; at any opset.
    Keeps: the numbers for scores and biases below 1e22, but for the rounding of a sum in another
    order.
    Refuses: where the outer one is not proven to hold 0 and numbers of at most −1e30 alone:
    ``bias``: the inner one is not proven to be within 256; ``mask``: the outer one is not proven
    to be within 256, or 0 or at least 1e30 in magnitude, or a scale is behind it. ``dtype``: not
    float32; ``shared``: the inner sum is read by others; ``scale``: one behind the mask is
    more than 1e6, so that scores may be infinite, which a scaled mask makes NaN.
    Source: the definition of float32 sums.
    """

    shape_proven = True
    """Both broadcast the same tensors; ``biased_scores`` proves the Reshape of one."""

    def Run(self, graph: Graph, context: CustomPassContext) -> None:
        if graph.depth:
            return
        for softmax in graph.nodes_of("Softmax"):
            scaled = _scaled_sum(softmax)
            if scaled is not None:
                _scale_before(context, *scaled)
                continue
            outer = _add(softmax.inputs[0])
            found = None if outer is None else _sums(outer)
            if outer is None or found is None:
                continue
            inner, mask = found
            between = inner.add.outputs[0]
            if not_float(inner.product):
                context.refuse(outer, not_float(inner.product))
            elif between is None or not read_once(between):
                context.refuse(outer, "shared: the inner sum is read by others, too")
            elif is_zero_or_far_below(mask):
                _fuse(context, outer, inner, mask)
            elif not is_near(inner.bias):
                context.refuse(outer, f"bias: not proven to be within {NEAR:g}")
            elif not is_near_or_far(mask):
                context.refuse(outer, f"mask: may hold numbers between {NEAR:g} and {FAR:g}")
            else:
                _fuse(context, outer, inner, mask)
        remove_dead(graph)

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


def _sums(outer: Node) -> tuple[BiasedScores, Value] | None:
    """Return the inner sum, and the mask."""
    for slot in (0, 1):
        inner, mask = biased_scores(outer.inputs[slot]), outer.inputs[1 - slot]
        if inner is not None and mask is not None:
            return inner, mask
    return None


def _scaled_sum(softmax: Node) -> tuple[Node, Node, int] | None:
    """Return a scale behind the sum of scores and mask, that sum, and the slot of the scores."""
    value = softmax.inputs[0]
    scale = None if value is None else value.producer
    factor = factor_of(scale) if scale is not None and scale.op in {"Div", "Mul"} else None
    total = None if factor is None else _add(factor[0])
    if scale is None or total is None:
        return None
    slot = next((slot for slot in (0, 1) if is_product(total.inputs[slot])), None)
    return None if slot is None else (scale, total, slot)


def _scale_before(context: CustomPassContext, scale: Node, total: Node, slot: int) -> None:
    """Scale scores and mask instead of their sum."""
    scores, mask, between = total.inputs[slot], total.inputs[1 - slot], total.outputs[0]
    number = next(one for one in scale.inputs if one is not between)
    assert scores is not None
    assert mask is not None
    assert between is not None
    if scores.dtype != DataType.FLOAT:
        context.refuse(scale, f"dtype: {dtype_name(scores.dtype)}, wanted float32")
    elif abs((factor_of(scale) or (None, math.inf))[1]) > _LARGEST_SCALE:
        context.refuse(scale, f"scale: more than {_LARGEST_SCALE:g}, scores may be infinite")
    elif not read_once(between):
        context.refuse(scale, "shared: the sum is read by others, too")
    elif not is_zero_or_far_below(mask):
        context.refuse(scale, f"mask: under a scale, not proven to hold 0 and at most {-FAR:g}")
    else:
        array = None if number is None else number.array
        assert array is not None
        region = Region.of_nodes([total, scale])
        if isinstance(region, Refusal):
            context.refuse(scale, region.reason)
            return
        builder = EsGraphBuilder("scaled_mask")
        inputs = dict(zip(region.inputs, builder.CreateInputs(len(region.inputs)), strict=True))
        apply = es.Mul if scale.op == "Mul" else es.Div
        made = apply(inputs[scores], array) + apply(inputs[mask], array)
        context.replace(region, builder.BuildAndReset([made]), keep_shared=True)


def _fuse(context: CustomPassContext, outer: Node, inner: BiasedScores, mask: Value) -> None:
    region = Region.of_nodes([outer])
    if isinstance(region, Refusal):
        context.refuse(outer, region.reason)
        return
    # the parts of the scores are read besides
    given = [*(one for one in region.inputs if one is not None), *inner.read]
    region = Region(region.graph, given, region.results, region.nodes)
    builder = EsGraphBuilder("mask_sum")
    inputs = dict(zip(given, builder.CreateInputs(len(given)), strict=True))
    product, bias = inner.parts(inputs)
    context.replace(region, builder.BuildAndReset([product + (bias + inputs[mask])]))
