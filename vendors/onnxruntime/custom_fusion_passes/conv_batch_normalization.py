"""Batch normalization folded into the convolution before it.

``x, w, (b) → Conv → BatchNormalization scale, β, mean, var``
``==>   x, w·k, (b − mean)·k + β → Conv``   with k = scale / √(var + ε)

resnet50.dyn: 53 of 53, 174 nodes → 121; mobilenetv2.dyn: 52 of 52, 209 → 157. ONNX Runtime folds
them itself when it loads a model: no gain in its runs, 1.01 (0.95, 1.06) and 1.00 (0.98, 1.04) (CPU
time of one thread, 5 session pairs, 95 % intervals).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from gehost import (
    REG_FUSION_PASS,
    CustomPassStage,
    DataType,
    EsGraphBuilder,
    FusionBasePass,
    Region,
    Rejection,
    es,
    hookimpl,
)

from ._instances import instance

if TYPE_CHECKING:
    from collections.abc import Iterator

    import onnx

    from gehost import CustomPassContext, Graph, Node


@REG_FUSION_PASS(stage=CustomPassStage.kAfterBuiltinFusionPass, default=False)
class OrtConvBatchNormPass(FusionBasePass):
    """Fold BatchNormalization into the weights of a Conv.

    Forms: with and without a bias; any rank, groups, pads and strides.
    Shapes: w [M, C/group, …]; bias, scale, β, mean and variance [M].
    Keeps: the numbers but for rounding; new weights are computed in float64.
    Refuses: ``training``: in training mode, or with further outputs; ``weights``: not constant, or
    not of these shapes; ``shared``: the convolution is read by others, too; ``overflow``: a new
    weight is not finite; ``dtype``: not float32.
    Source: ONNX Conv-11, BatchNormalization-15.
    """

    shape_proven = True
    """BatchNormalization keeps the shape, and the new Conv has the shape of the old one."""

    def Run(self, graph: Graph, context: CustomPassContext) -> None:
        for node in graph.nodes_of("BatchNormalization"):
            value = node.inputs[0]
            conv = None if value is None else value.producer
            if conv is None or conv.op != "Conv":
                continue
            problem = _problem(node, conv)
            if problem:
                context.refuse(node, problem)
                continue
            weights = _folded(node, conv)
            if isinstance(weights, str):
                context.refuse(node, weights)
                continue
            region = Region.of_nodes([conv, node])
            if not region:
                context.refuse(node, region.reason)
                continue
            assert not isinstance(region, Rejection)
            builder = EsGraphBuilder("conv")
            inputs = dict(zip(region.inputs, builder.CreateInputs(len(region.inputs)), strict=True))
            x = conv.inputs[0]
            assert x is not None
            made = es.Conv(inputs[x], *weights, **conv.attrs)
            context.replace(region, builder.BuildAndReset([made]))

    def Instances(self) -> Iterator[onnx.ModelProto]:
        """Yield models of one axis, with groups and a bias, and of two axes."""
        one, two = "Conv <pads = [1, 1], group = 2> (x, w, b)", "Conv <strides = [2, 1]> (x, w)"
        for axes, conv, weight in (("L", one, (4, 2, 3)), ("L, 4", two, (4, 4, 1, 3))):
            yield instance(
                f"float[N, 4, {axes}] x",
                f"c = {conv} y = BatchNormalization (c, scale, beta, mean, variance)",
                result="float y",
                constants="",
                scale=(4,),
                beta=(4,),
                mean=(4,),
                variance=(4,),
                w=weight,
                b=(4,),
            )


def _problem(node: Node, conv: Node) -> str:
    if node.attrs.get("training_mode") or any(one is not None for one in node.outputs[1:]):
        return "training: it has more than one output"
    made = conv.outputs[0]
    if made is None or made.is_graph_output or len(made.uses) != 1:
        return "shared: the convolution is read by others, too"
    x = conv.inputs[0]
    if x is None or x.dtype != DataType.FLOAT:
        return f"dtype: float32 only, got {None if x is None else x.dtype}"
    return ""


def _folded(node: Node, conv: Node) -> tuple[np.ndarray, np.ndarray] | str:
    """The new weights and bias, or why there are none."""
    arrays = [None if one is None else one.array for one in (*conv.inputs[1:], *node.inputs[1:])]
    if any(array is None for array in arrays):
        return "weights: not constant"
    w, *others = (np.asarray(array, np.float64) for array in arrays)
    bias, (scale, beta, mean, variance) = others[:-4], others[-4:]
    count = w.shape[0] if w.ndim > 2 else 0
    if any(one.shape != (count,) for one in others):
        return "weights: scale, bias, mean and variance are not all [M]"
    with np.errstate(all="ignore"):
        factor = scale / np.sqrt(variance + float(node.attrs.get("epsilon", 1e-5)))
        shifted = ((bias[0] if bias else 0.0) - mean) * factor + beta
        new = (w * factor.reshape(-1, *[1] * (w.ndim - 1))).astype(np.float32)
        new_bias = shifted.astype(np.float32)
    if not (np.isfinite(new).all() and np.isfinite(new_bias).all()):
        return "overflow: a new weight is not finite"
    return new, new_bias


@hookimpl
def gehost_tune_kinds(registry: Any) -> None:
    """The runtime folds most of them itself."""
    registry.add("convolution", ["OrtConvBatchNormPass"])
