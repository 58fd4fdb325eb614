"""Conv with the activation behind it, for ONNX Runtime's kernel.

``x, w, (b) → Conv → Relu   ==>   x, w, (b) → com.microsoft::FusedConv``

The runtime's own optimizer does so when a session starts; a file made ahead of time has fewer nodes
and starts sooner. The runtime puts the kernel's blocked form in its place as it does for Conv.
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
    Refusal,
    Region,
    es,
    hookimpl,
    ops,
)

from ._instances import instance
from ._types import no_kernel

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import onnx

    from gehost import CustomPassContext, EsTensor, Graph, Node, Value

KERNEL = "com.microsoft::FusedConv"
_DEFAULTS = {"LeakyRelu": {"alpha": 0.01}, "HardSigmoid": {"alpha": 0.2, "beta": 0.5}}
"""Numbers of an activation that are attributes, in the kernel's order."""
_LARGEST = 3.4028234663852886e38
_ACTIVATIONS = ("Relu", "Clip", "LeakyRelu", "HardSigmoid", "Sigmoid", "Tanh")


@ops.register(KERNEL, provided_by="onnxruntime>=1.21.1")
def fused_conv(
    X: EsTensor,
    W: EsTensor,
    B: EsTensor | None = None,
    *,
    activation: str,
    activation_params: Sequence[float] | None = None,
    auto_pad: str = "NOTSET",
    dilations: Sequence[int] | None = None,
    group: int = 1,
    kernel_shape: Sequence[int] | None = None,
    pads: Sequence[int] | None = None,
    strides: Sequence[int] | None = None,
) -> EsTensor:
    """Conv, then an activation.

    Shapes: X [N, C, …], W [M, C/group, …], B [M].
    """
    lists = {"dilations": dilations, "kernel_shape": kernel_shape, "pads": pads, "strides": strides}
    sizes: dict[str, Any] = {name: list(row) for name, row in lists.items() if row is not None}
    result = es.Conv(X, W, B, auto_pad=auto_pad, group=group, **sizes)
    params = () if activation_params is None else map(float, activation_params)
    if activation == "Clip":
        low, high = params
        return es.op("Clip")(result, low, high)
    names = _DEFAULTS.get(activation, {})
    numbers: dict[str, Any] = dict(zip(names, params, strict=True))
    return es.op(activation)(result, **numbers)


@REG_FUSION_PASS(stage=CustomPassStage.kAfterOriginGraphOptimize, default=False)
class OrtConvActivationPass(FusionBasePass):
    """Fuse a Conv with the activation behind it.

    Forms: Relu, Clip, LeakyRelu, HardSigmoid, Sigmoid, Tanh; bounds of Clip constant, or none.
    Shapes: x [N, C, …], w [M, C/group, …]; any attributes of Conv.
    Keeps: the numbers.
    Refuses: ``shared``: the product is read by others; ``bounds``: of Clip, not constant numbers;
    ``dtype``: not float32; ``kernel``: the target has none.
    Source: com.microsoft.FusedConv-1.
    """

    shape_proven = True
    """An activation keeps the shape of the Conv."""

    def Run(self, graph: Graph, context: CustomPassContext) -> None:
        for node in graph.nodes_of(*_ACTIVATIONS):
            value = node.inputs[0]
            conv = None if value is None else value.producer
            if value is None or conv is None or conv.op != "Conv":
                continue
            params = _numbers_of(node)
            problem = no_kernel(context, KERNEL, value)
            if value.dtype != DataType.FLOAT:
                problem = "dtype: not float32"
            elif value.is_graph_output or len(value.uses) != 1:
                problem = "shared: the product is read by others, too"
            elif params is None:
                problem = "bounds: of Clip, not constant numbers"
            region = Region.of_nodes([conv, node])
            if problem or params is None or isinstance(region, Refusal):
                reason = region.reason if isinstance(region, Refusal) else ""
                context.refuse(node, problem or reason)
                continue
            builder = EsGraphBuilder("fused")
            inputs = dict(zip(region.inputs, builder.CreateInputs(len(region.inputs)), strict=True))
            operands = [None if one is None else inputs[one] for one in conv.inputs]
            attributes: dict[str, Any] = {
                name: given
                for name, given in conv.attrs.items()
                if name not in ("group", "dilations") or np.any(np.asarray(given) != 1)
            }
            attributes["activation"] = node.op
            if params:
                attributes["activation_params"] = params
            result = es.op(KERNEL)(*operands, **attributes)
            context.replace(region, builder.BuildAndReset([result]))

    def Instances(self) -> Iterator[onnx.ModelProto]:
        """Yield models with and without numbers."""
        for last in ("y = Relu (c)", "y = Clip (c, zero, one)", "y = LeakyRelu <alpha = 0.2> (c)"):
            yield instance(
                "float[N, 2, H, W] x",
                f"c = Conv <pads = [1, 1, 1, 1]> (x, w, b) {last}",
                result="float[N, 3, H, W] y",
                w=(3, 2, 3, 3),
                b=(3,),
            )


def _numbers_of(node: Node) -> list[float] | None:
    """Return the numbers of an activation in the kernel's order; None if they are not constant."""
    if node.op != "Clip":
        numbers = _DEFAULTS.get(node.op, {})
        return [float(node.attrs.get(name, value)) for name, value in numbers.items()]
    results: list[float] = []
    for slot, (name, default) in enumerate((("min", -_LARGEST), ("max", _LARGEST)), start=1):
        bound = node.inputs[slot] if len(node.inputs) > slot else None
        number = float(node.attrs.get(name, default)) if bound is None else _number(bound)
        if number is None:
            return None
        results.append(number)
    return results


def _number(value: Value) -> float | None:
    array = value.array
    return None if array is None or array.size != 1 else float(array.reshape(-1)[0])


@hookimpl
def gehost_tune_kinds(registry: Any) -> None:
    """Convolutions."""
    registry.add("convolution", ["OrtConvActivationPass"])
