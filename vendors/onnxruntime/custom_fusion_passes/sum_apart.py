"""A sum before a LayerNormalization, in a form that ONNX Runtime does not fuse.

``a, b → Add → s → LayerNormalization``
``==>  a, b → Sum → s → LayerNormalization``

When a session starts, the runtime fuses an Add of two tensors of equal sizes and a normalization to
SkipLayerNormalization, which is slower on a CPU than both by themselves from ONNX Runtime 1.30 on
(figures: ``skip_normalization.py``). A session can be kept from it, but not by an option that
travels in the file; Sum of two tensors computes what Add does, and is not fused.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gehost import (
    REG_FUSION_PASS,
    CustomPassStage,
    DataType,
    EsGraphBuilder,
    FusionBasePass,
    Refusal,
    Region,
    es,
    hookimpl,
)

from ._instances import instance

if TYPE_CHECKING:
    from collections.abc import Iterator

    import onnx

    from gehost import CustomPassContext, Graph, Value


@REG_FUSION_PASS(stage=CustomPassStage.kAfterOriginGraphOptimize, default=False)
class OrtResidualSumPass(FusionBasePass):
    """Write the Add before a layer normalization as Sum.

    Late: other passes look for Add.
    Forms: a normalization as an operator, or by parts, which begin with x and its mean.
    Keeps: the numbers to the bit.
    Refuses: ``sum``: not float32 [B, S, D], or an operand is a vector, a bias that the runtime
    fuses with other operators.
    Source: SkipLayerNormFusion of ONNX Runtime.
    """

    shape_proven = True
    """Sum broadcasts as Add does."""

    def Run(self, graph: Graph, context: CustomPassContext) -> None:
        for add in graph.nodes_of("Add"):
            result = add.outputs[0]
            if result is None or not _is_normalized(result):
                continue
            context.record.matched += 1
            ranks = [0 if one is None else one.rank or 0 for one in add.inputs]
            if result.dtype != DataType.FLOAT or result.rank != 3 or min(ranks) < 2:
                context.refuse(add, "sum: no two tensors [B, S, D] of float32")
                continue
            region = Region.of_nodes([add])
            assert not isinstance(region, Refusal)
            builder = EsGraphBuilder("sum")
            inputs = dict(zip(region.inputs, builder.CreateInputs(len(region.inputs)), strict=True))
            total = es.Sum(*(inputs[one] for one in add.inputs if one is not None))
            context.replace(region, builder.BuildAndReset([total]))

    def Instances(self) -> Iterator[onnx.ModelProto]:
        """Yield models with a normalization as an operator, and by parts."""
        argument = "float[B, S, 8] x, float[B, S, 8] z"
        yield instance(argument, "s = Add (x, z) y = LayerNormalization (s, g)", g=(8,))
        yield instance(
            argument,
            """s = Add (x, z) m = ReduceMean <axes = [-1]> (s) d = Sub (s, m) q = Mul (d, d)
            v = ReduceMean <axes = [-1]> (q) e = Add (v, one) r = Sqrt (e) y = Div (d, r)""",
        )


def _is_normalized(value: Value) -> bool:
    """Whether a layer normalization reads a tensor, as an operator or by parts."""
    for node, position in value.consumers():
        if node.op == "LayerNormalization" and position == 0:
            return True
        mean = node.outputs[0] if node.op == "ReduceMean" else None
        if mean is not None and any(
            one.op == "Sub" and one.inputs[0] is value for one, _ in mean.consumers()
        ):
            return True
    return False


@hookimpl
def gehost_tune_kinds(registry: Any) -> None:
    """Sums that the runtime would fuse with normalizations."""
    registry.add("residual sums apart", ["OrtResidualSumPass"])
