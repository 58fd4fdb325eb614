"""Gelu with a bias, and by a sigmoid, for ONNX Runtime's kernels.

``x, b → Add → Gelu   ==>   x, b → com.microsoft::BiasGelu``
``x → Mul α → Sigmoid → s;  x, s → Mul   ==>   x → com.microsoft::QuickGelu``

The runtime's own optimizer makes both of float32 on a CPU; a file made ahead of time has them in
every type for which the target has a kernel. Without the Mul, α is 1: SiLU.
"""

from __future__ import annotations

from math import sqrt
from typing import TYPE_CHECKING, Any

from gehost import (
    REG_FUSION_PASS,
    CustomPassStage,
    EsGraphBuilder,
    FusionBasePass,
    Refusal,
    Region,
    es,
    hookimpl,
    ops,
)

from ._attention import added_constant, factor_of
from ._instances import instance
from ._types import HALVES, no_kernel, not_float

if TYPE_CHECKING:
    from collections.abc import Iterator

    import onnx

    from gehost import CustomPassContext, EsTensor, Graph, Node, Value

BIAS, QUICK = "com.microsoft::BiasGelu", "com.microsoft::QuickGelu"


@ops.register(BIAS, provided_by="onnxruntime>=1.21.1")
def bias_gelu(a: EsTensor, b: EsTensor) -> EsTensor:
    """Gelu, by erf, of a + b.

    Shapes: a [..., D], b [D]. Both of one type.
    """
    x = a + b
    return x * 0.5 * (es.Erf(x / sqrt(2.0)) + 1.0)


@ops.register(QUICK, provided_by="onnxruntime>=1.21.1")
def quick_gelu(x: EsTensor, *, alpha: float = 1.702) -> EsTensor:
    """Product of x and sigmoid(α · x)."""
    return x * es.Sigmoid(x * alpha)


@REG_FUSION_PASS(stage=CustomPassStage.kAfterOriginGraphOptimize, default=False)
class OrtBiasGeluPass(FusionBasePass):
    """Fuse Gelu with the bias that is added before it.

    Forms: Gelu of opset 20 and ``gehost::Gelu``, by erf; the bias as either operand.
    Shapes: x [..., D], bias [D].
    Keeps: the numbers but for rounding.
    Refuses: ``bias``: no constant [D] is added before; ``tanh``: Gelu is approximated by tanh;
    ``constants``: ``gehost::Gelu`` in half, whose body rounds √2 as the model does; ``shared``: the
    sum is read by others, too; ``dtype``: not float32, float16 or bfloat16; ``kernel``: the target
    has none of the type.
    Source: com.microsoft.BiasGelu-1.
    """

    def Run(self, graph: Graph, context: CustomPassContext) -> None:
        for node in graph.nodes_of("Gelu", "gehost::Gelu"):
            total = node.inputs[0]
            add = None if total is None else total.producer
            last = None if total is None or not total.shape else total.shape[-1]
            result = (
                added_constant(add, last) if add is not None and isinstance(last, int) else None
            )
            problem = not_float(total) or no_kernel(context, BIAS, total)
            if add is None or result is None:
                problem = "bias: no constant [D] is added before"
            elif result[0].shape is None or result[0].shape[-1:] != (last,):
                problem = "bias: it widens the tensor"
            elif node.attrs.get("approximate", "none") != "none":
                problem = "tanh: approximated by tanh"
            elif node.op == "gehost::Gelu" and total is not None and total.dtype in HALVES:
                problem = "constants: of half, which the kernel does not round"
            if problem or add is None or result is None:
                context.refuse(node, problem)
                continue
            _replace(context, [add, node], result[0], result[1])

    def Instances(self) -> Iterator[onnx.ModelProto]:
        """Yield a model of a bias on the right."""
        yield instance(
            "float[B, S, 8] x", "a = Add (x, b) y = Gelu (a)", constants="", opset=20, b=(8,)
        )


@REG_FUSION_PASS(stage=CustomPassStage.kAfterOriginGraphOptimize, default=False)
class OrtQuickGeluPass(FusionBasePass):
    """Fuse ``x · sigmoid(α · x)``.

    Forms: α as a constant number on either side, or none (SiLU); operands in any order.
    Keeps: the numbers but for rounding.
    Refuses: ``product``: the sigmoid is not multiplied by its own x; ``shared``: a tensor inside is
    read by others, too; ``dtype``: not float32, float16 or bfloat16; ``kernel``: the target has
    none of the type.
    Source: com.microsoft.QuickGelu-1.
    """

    def Run(self, graph: Graph, context: CustomPassContext) -> None:
        for sigmoid in graph.nodes_of("Sigmoid"):
            scaled, output = sigmoid.inputs[0], sigmoid.outputs[0]
            if scaled is None or output is None or len(output.consumers()) != 1:
                context.refuse(sigmoid, "shared: others read the sigmoid, too")
                continue
            ((product, _),) = output.consumers()
            others = [one for one in product.inputs if one is not output]
            x = others[0] if product.op == "Mul" and len(others) == 1 else None
            scale = scaled.producer
            factor = factor_of(scale) if scale is not None and scale.op in ("Mul", "Div") else None
            if x is not None and x is scaled:
                nodes, alpha = [sigmoid, product], 1.0
            elif x is not None and scale is not None and factor is not None and factor[0] is x:
                nodes, alpha = [scale, sigmoid, product], factor[1]
            else:
                context.refuse(sigmoid, "product: the sigmoid is not multiplied by its own input")
                continue
            problem = not_float(x) or no_kernel(context, QUICK, x)
            if problem:
                context.refuse(sigmoid, problem)
                continue
            _replace(context, nodes, x, alpha)

    def Instances(self) -> Iterator[onnx.ModelProto]:
        """Yield models with a factor, and of SiLU."""
        for lines in (
            "a = Mul (x, k) s = Sigmoid (a) y = Mul (x, s)",
            "s = Sigmoid (x) y = Mul (s, x)",
        ):
            yield instance("float[B, S, 8] x", lines, constants="float k = {1.702}")


def _replace(context: CustomPassContext, nodes: list[Node], x: Value, constant: Any) -> None:
    """Put the kernel in the place of nodes: BiasGelu for a bias, QuickGelu for a factor."""
    region = Region.of_nodes(nodes)
    if isinstance(region, Refusal):
        context.refuse(nodes[-1], region.reason)
        return
    if len(region.outputs) != 1:
        context.refuse(nodes[-1], "shared: a tensor inside is read by others, too")
        return
    builder = EsGraphBuilder("gelu")
    inputs = dict(zip(region.inputs, builder.CreateInputs(len(region.inputs)), strict=True))
    if isinstance(constant, float):
        result = es.op(QUICK)(inputs[x], alpha=constant)
    else:
        result = es.op(BIAS)(inputs[x], constant)
    context.replace(region, builder.BuildAndReset([result]))


@hookimpl
def gehost_tune_kinds(registry: Any) -> None:
    """Activations."""
    registry.add("activation", ["OrtBiasGeluPass", "OrtQuickGeluPass"])
