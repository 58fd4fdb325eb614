"""A residual sum and the normalization after it, for ONNX Runtime's kernels.

``a, b → Add → s → LayerNormalization``
``==>  a, b → com.microsoft::SkipLayerNormalization → y, s``
``a, b → Add → s → Pow 2 → ReduceMean → Add ε → Sqrt → r;  s, 1/r → Mul scale``
``==>  a, b → com.microsoft::SkipSimplifiedLayerNormalization → y, s``

A constant that was added to a (the bias of a projection) goes to the kernel, too. The sum may have
other readers: it is the kernel's last output. A root mean square with nothing added before it gets
its quotient in the form that the runtime fuses itself:

``s → Pow 2 → ReduceMean → Add ε → Sqrt → Reciprocal → r;  s, r → Mul``
``==>  … → Sqrt → r;  1, r → Div → q;  s, q → Mul``

On a CPU the residual kernels are slower than Add and the normalization by itself ([2, 16, 64]: 12
µs against 3.3; [1, 128, 768]: 506 against 89; ONNX Runtime 1.31.1), so that ``gehost tune`` often
leaves them off, and the runtime's own SkipLayerNormFusion, too. Whole models with them, other
passes equal: bert.ts 238 nodes → 190, 0.86 (0.82, 0.89) of the speed; of width 768 at 128 bert 68 →
52, 0.96 (0.95, 0.99), llama 207 → 151, 1.00 (0.97, 1.06) (CPU time of one thread, 5 session pairs,
95 % intervals).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

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

from ._attention import added_constant
from ._instances import instance
from ._shapes import all_same, shape_of
from ._types import HALVES, RUNTIME, dtype_name, no_kernel, not_float

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    import onnx

    from gehost import CustomPassContext, EsTensor, Graph, Node, TensorType, Value

OUTPUTS = ["output", "mean", "inv_std_var", "input_skip_bias_sum"]


def _shape(
    inputs: Sequence[TensorType | None], _attributes: Mapping[str, Any]
) -> Sequence[TensorType | None]:
    """The outputs that are used have the shape of the first input."""
    return [inputs[0], None, None, inputs[0]]


@ops.register(
    "com.microsoft::SkipLayerNormalization",
    outputs=OUTPUTS,
    shape=_shape,
    provided_by="onnxruntime>=1.21.1",
)
def skip_layer_normalization(
    input: EsTensor,  # noqa: A002 - the kernel's signature
    skip: EsTensor,
    gamma: EsTensor,
    beta: EsTensor | None = None,
    bias: EsTensor | None = None,
    *,
    epsilon: float = 1e-12,
) -> tuple[EsTensor, EsTensor, EsTensor, EsTensor]:
    """LayerNormalization of input + skip (+ bias) over the last axis, and the sum.

    Shapes: input and skip [B, S, D], the others [D]. All of one type; it normalizes in float32.
    """
    total = input + skip if bias is None else input + skip + bias
    wide = es.Cast(total, to=DataType.FLOAT)
    mean = es.ReduceMean(wide, axes=[-1], keepdims=1)
    apart = wide - mean
    scale = es.Reciprocal(es.Sqrt(es.ReduceMean(apart * apart, axes=[-1], keepdims=1) + epsilon))
    result = es.CastLike(apart * scale, input) * gamma
    return (result if beta is None else result + beta), mean, scale, total


@ops.register(
    "com.microsoft::SkipSimplifiedLayerNormalization",
    outputs=OUTPUTS,
    shape=_shape,
    provided_by="onnxruntime>=1.21.1",
)
def skip_simplified_layer_normalization(
    input: EsTensor,  # noqa: A002 - the kernel's signature
    skip: EsTensor,
    gamma: EsTensor,
    bias: EsTensor | None = None,
    *,
    epsilon: float = 1e-6,
) -> tuple[EsTensor, EsTensor, EsTensor, EsTensor]:
    """RMSNormalization of input + skip (+ bias) over the last axis, and the sum.

    Shapes as above.
    """
    total = input + skip if bias is None else input + skip + bias
    wide = es.Cast(total, to=DataType.FLOAT)
    square = es.ReduceMean(wide * wide, axes=[-1], keepdims=1)
    scale = es.Reciprocal(es.Sqrt(square + epsilon))
    return es.CastLike(wide * scale, input) * gamma, square, scale, total


_BY_PARTS = "q = Pow (s, two) m = ReduceMean <axes = [-1]> (q) e = Add (m, eps) r = Sqrt (e)"


def _instance(lines: str) -> onnx.ModelProto:
    """Return a model of x and z [B, S, 8], with weights g, b and c [8]."""
    return instance(
        "float[B, S, 8] x, float[B, S, 8] z",
        lines,
        constants="float two = {2}, float eps = {1e-5}",
        g=(8,),
        b=(8,),
        c=(8,),
    )


@dataclass
class _Norm:
    """A normalization over the last axis."""

    x: Value
    gamma: Value
    beta: Value | None
    epsilon: float
    result: Node
    nodes: list[Node] = field(default_factory=list["Node"])
    by_reciprocal: bool = False
    widened: bool = False
    """Whether it computes in float32, of a tensor of half."""
    cast: DataType | None = None
    """The half type to which it casts before the scale, None where it does not."""


def _kernel_of(norm: _Norm) -> str:
    """Return the kernel of a residual sum and a normalization."""
    simplified = "" if norm.result.op == "LayerNormalization" else "Simplified"
    return f"com.microsoft::Skip{simplified}LayerNormalization"


@REG_FUSION_PASS(stage=CustomPassStage.kAfterOriginGraphOptimize, default=False)
class OrtSkipNormPass(FusionBasePass):
    """Fuse a residual sum with the normalization after it.

    Forms: LayerNormalization; the root mean square by parts (the square as Pow or Mul; the quotient
    as Div, by Reciprocal or 1/√) or as ``gehost::RMSNormalization``; operands in any order; with
    and without a bias before the sum; a root mean square of float32 that is cast to half before its
    scale, whose product is then rounded once, behind the kernel.
    Keeps: the numbers but for rounding; the sum, where others read it.
    Refuses: ``dtype``: not float32, float16 or bfloat16, or not of one type; ``kernel``: the target
    has none of the type; ``precision``: normalized in float32, and the kernel is not known to;
    ``axis``: not the last; ``scale``: not [D]; ``sum``: nothing is
    added before, or the addends are not proven to be two [B, S, D]; ``cast``: the sum is in half,
    the normalization with its scale in float32, as converters keep it.
    Source: com.microsoft.SkipLayerNormalization-1, SkipSimplifiedLayerNormalization-1.
    """

    def Run(self, graph: Graph, context: CustomPassContext) -> None:
        if graph.depth:
            return
        for node in graph.nodes_of("LayerNormalization", "ReduceMean", "gehost::RMSNormalization"):
            norm = _found(node)
            if norm is None:
                if island := _island(node):
                    context.refuse(node, island)
                continue
            problem = _problem(norm) or self._no_kernel(context, norm)
            if problem:
                context.refuse(node, problem)
                continue
            self._fuse(context, norm)

    def Instances(self) -> Iterator[onnx.ModelProto]:
        """Yield models of a layer normalization after a bias, and of a root mean square."""
        yield _instance(
            "t = Add (x, c) s = Add (t, z) y = LayerNormalization <epsilon = 1e-5> (s, g, b)"
        )
        yield _instance(f"s = Add (x, z) {_BY_PARTS} n = Div (s, r) y = Mul (n, g)")

    def _no_kernel(self, context: CustomPassContext, norm: _Norm) -> str:
        """Return why the target has no kernel as precise as the model, or ""."""
        operator = _kernel_of(norm)
        kernel = context.target.kernel(operator, norm.x.dtype, RUNTIME)
        if kernel is not None and norm.widened and kernel.inside != "float32":
            release = context.target.version and f" {context.target.version}"
            return (
                f"precision: float32 inside, which {operator} on {kernel.provider}{release} "
                "may not have"
            )
        return no_kernel(context, operator, norm.x)

    def _fuse(self, context: CustomPassContext, norm: _Norm) -> None:
        total = norm.x.producer
        addends = None if total is None or total.op != "Add" else list(total.inputs)
        if total is None or addends is None or not _are_rows(addends):
            problem = _cast_sum(norm) or "sum: no two tensors [B, S, D] are added before"
            context.refuse(norm.result, problem)
            return
        nodes = [*norm.nodes, total]
        bias: np.ndarray | None = None
        dims = shape_of(norm.x)
        for place, addend in enumerate(addends):
            inner = None if addend is None else addend.producer
            if addend is None or inner is None or dims is None or not isinstance(dims[-1], int):
                continue
            result = added_constant(inner, dims[-1])
            if result is not None and not addend.is_graph_output and len(addend.uses) == 1:
                addends[place], bias = result
                nodes.append(inner)
                break
        region = Region.of_nodes(nodes)
        if not region:
            context.refuse(norm.result, region.reason)
            return
        assert not isinstance(region, Refusal)
        builder = EsGraphBuilder("skip_normalization")
        inputs = dict(zip(region.inputs, builder.CreateInputs(len(region.inputs)), strict=True))
        first, second = (inputs[addend] for addend in addends if addend is not None)
        outputs = 4 if norm.x in region.outputs else 1
        gamma = inputs[norm.gamma]
        if norm.result.op == "LayerNormalization":
            output = es.op(_kernel_of(norm))(
                first,
                second,
                gamma,
                None if norm.beta is None else inputs[norm.beta],
                bias,
                epsilon=norm.epsilon,
                num_outputs=outputs,
            )
        else:
            output = es.op(_kernel_of(norm))(
                first,
                second,
                gamma if norm.cast is None else es.Cast(gamma, to=DataType.FLOAT),
                bias,
                epsilon=norm.epsilon,
                num_outputs=outputs,
            )
        normalized = output[0] if outputs == 4 else output
        if norm.cast is not None:
            normalized = es.Cast(normalized, to=norm.cast)
        results = {norm.result.outputs[0]: normalized}
        if outputs == 4:
            results[norm.x] = output[3]
        if set(region.outputs) != set(results):
            context.refuse(norm.result, "shared: a tensor inside is read by others, too")
            return
        context.replace(region, builder.BuildAndReset([results[one] for one in region.outputs]))


@REG_FUSION_PASS(stage=CustomPassStage.kAfterOriginGraphOptimize, default=False)
class OrtRmsNormPass(FusionBasePass):
    """Write a root mean square by parts as ``x · (1 / √…) · scale``, which the runtime fuses.

    Forms: the quotient by Reciprocal; the square as Pow or Mul; operands in any order.
    Keeps: the numbers but for rounding.
    Refuses: ``dtype``: as above; ``rank``: not [B, S, D]; ``scale``: not [D]; ``readers``: a
    step between is also a graph output or read by others.
    Source: SimplifiedLayerNormFusion of ONNX Runtime.
    """

    def Run(self, graph: Graph, context: CustomPassContext) -> None:
        if graph.depth:
            return
        for node in graph.nodes_of("ReduceMean"):
            norm = _found(node)
            if norm is None and (island := _island(node)):
                context.refuse(node, island)
            if norm is None or not norm.by_reciprocal:
                continue
            problem = _problem(norm) if norm.cast is None else "dtype: cast before the scale"
            if problem:
                context.refuse(node, problem)
                continue
            _by_quotient(context, norm)

    def Instances(self) -> Iterator[onnx.ModelProto]:
        """Yield models with the square as Pow and as Mul."""
        for square in ("Pow (s, two)", "Mul (s, s)"):
            parts = _BY_PARTS.replace("Pow (s, two)", square)
            yield _instance(
                f"s = Sub (x, z) {parts} i = Reciprocal (r) n = Mul (i, s) y = Mul (n, g)"
            )


def _by_quotient(context: CustomPassContext, norm: _Norm) -> None:
    region = Region.of_nodes(norm.nodes)
    if not region:
        context.refuse(norm.result, region.reason)
        return
    assert not isinstance(region, Refusal)
    if len(region.outputs) != 1:
        context.refuse(norm.result, "readers: another node reads a step of it")
        return
    builder = EsGraphBuilder("quotient")
    inputs = dict(zip(region.inputs, builder.CreateInputs(len(region.inputs)), strict=True))
    x = inputs[norm.x]
    mean = es.ReduceMean(es.Pow(x, 2.0), axes=[-1], keepdims=1)
    result = x * es.Div(1.0, es.Sqrt(mean + norm.epsilon)) * inputs[norm.gamma]
    context.replace(region, builder.BuildAndReset([result]))


def _found(node: Node) -> _Norm | None:
    """The normalization at a node; None where the node is none."""
    if node.op == "ReduceMean":
        return _by_parts(node)
    x, gamma = node.inputs[:2]
    if x is None or gamma is None or any(one is not None for one in node.outputs[1:]):
        return None
    if node.attrs.get("axis", -1) != -1:
        return None
    beta = node.inputs[2] if len(node.inputs) > 2 else None
    widened = node.attrs.get("stash_type", DataType.FLOAT) != x.dtype
    epsilon = float(node.attrs.get("epsilon", 1e-5))
    return _Norm(x, gamma, beta, epsilon, node, [node], widened=widened)


class _Quotient(NamedTuple):
    """``x / √(mean(x²) + ε)``."""

    x: Value
    epsilon: float
    nodes: list[Node]
    """In their order, so that the last one's output is the quotient."""
    by_reciprocal: bool


def _by_parts(mean: Node) -> _Norm | None:
    """``x / √(mean(x²) + ε) · scale`` around its mean, perhaps with a Cast before the scale."""
    result = _quotient(mean)
    if result is None:
        return None
    before = result.x.producer
    cast = _only_reader(result.nodes[-1], "Cast")
    if cast is not None and (before is None or before.op == "Cast"):
        return None  # an island
    nodes = result.nodes if cast is None else [*result.nodes, cast]
    last, output = _only_reader(nodes[-1], "Mul"), nodes[-1].outputs[0]
    gamma = None if last is None else next((one for one in last.inputs if one is not output), None)
    if last is None or output is None or gamma is None:
        return None
    return _Norm(
        result.x,
        gamma,
        None,
        result.epsilon,
        last,
        [*nodes, last],
        by_reciprocal=result.by_reciprocal,
        cast=None if cast is None else output.dtype,
    )


def _island(node: Node) -> str:
    """Why a mean is that of a normalization which these passes do not take, or ""."""
    result = _quotient(node) if node.op == "ReduceMean" else None
    if result is None or _only_reader(result.nodes[-1], "Cast") is None:
        return ""
    return "dtype: float32, cast to half and back; RMSNormalizationFusionPass makes it one node"


def _quotient(mean: Node) -> _Quotient | None:
    axes = mean.attrs.get("axes") if len(mean.inputs) < 2 else _integers(mean.inputs[1])
    square = None if mean.inputs[0] is None else mean.inputs[0].producer
    if axes != [-1] or not mean.attrs.get("keepdims", 1) or square is None:
        return None
    if square.op not in ("Pow", "Mul"):
        return None
    x = square.inputs[0]
    if square.op == "Pow":
        exponent = square.inputs[1]
        if exponent is None or exponent.array is None or not np.all(exponent.array == 2):
            return None
    elif square.inputs[1] is not x:
        return None
    add = _only_reader(mean, "Add")
    root = None if add is None else _only_reader(add, "Sqrt")
    if x is None or add is None or root is None:
        return None
    epsilon = _constant_operand(add)
    inverse = _only_reader(root, "Reciprocal") or _only_reader(root, "Div")
    if epsilon is None or epsilon.size != 1 or inverse is None:
        return None
    nodes = [square, mean, add, root, inverse]
    if inverse.op == "Div" and inverse.inputs[0] is x:
        normalized = inverse
    else:
        one = inverse.inputs[0] if inverse.op == "Div" else None
        if inverse.op == "Div" and (one is None or one.array is None or not np.all(one.array == 1)):
            return None
        product = _only_reader(inverse, "Mul")
        if product is None or x not in product.inputs:
            return None
        normalized = product
    if normalized not in nodes:
        nodes.append(normalized)
    number = float(epsilon.reshape(-1)[0])
    return _Quotient(x, number, nodes, inverse.op == "Reciprocal")


def _only_reader(node: Node, op: str) -> Node | None:
    """Return the only reader of a result if it is of this operator."""
    output = node.outputs[0]
    if output is None or output.is_graph_output or len(output.uses) != 1:
        return None
    ((reader, _),) = output.consumers() or [(node, 0)]
    return reader if reader.op == op else None


def _constant_operand(node: Node) -> np.ndarray | None:
    return next((one.array for one in node.inputs if one is not None and one.is_constant), None)


def _integers(value: Value | None) -> list[int] | None:
    array = None if value is None else value.array
    return None if array is None else [int(one) for one in array.reshape(-1)]


def _problem(norm: _Norm) -> str:
    """Why the kernels do not compute a normalization; "" if they do."""
    if not_float(norm.x):
        return not_float(norm.x)
    kind = norm.x.dtype if norm.cast is None else norm.cast
    others = [norm.gamma, norm.result.outputs[0], *([] if norm.beta is None else [norm.beta])]
    if any(one is None or one.dtype != kind for one in others):
        return f"dtype: {dtype_name(norm.x.dtype)}, but not all of it"
    if norm.cast is not None and (norm.x.dtype != DataType.FLOAT or norm.cast not in HALVES):
        return f"dtype: {dtype_name(norm.x.dtype)}, cast to {dtype_name(norm.cast)}"
    dims = shape_of(norm.x)
    if dims is None or len(dims) != 3 or not isinstance(dims[-1], int):
        return "rank: not [B, S, D]"
    if dims[-1] < 2:  # its kernels refuse 0, and before 1.24.1 also 1
        return f"rank: normalized over {dims[-1]} elements"
    for one in (norm.gamma, norm.beta):
        if one is not None and shape_of(one) != (dims[-1],):
            return f"scale: {shape_of(one)} is not [{dims[-1]}]"
    return ""


def _cast_sum(norm: _Norm) -> str:
    """Why a sum of half before a normalization kept in float32 does not go to the kernel, or ""."""
    cast = norm.x.producer
    total = None if cast is None or cast.op != "Cast" else cast.inputs[0]
    if total is None or total.dtype not in HALVES or total.producer is None:
        return ""
    if total.producer.op != "Add":
        return ""
    kind = dtype_name(total.dtype)
    return f"cast: the sum is {kind}, and cast to {dtype_name(norm.x.dtype)} for the norm alone"


def _are_rows(addends: Sequence[Value | None]) -> bool:
    """Whether two tensors, neither constant, provably have one shape [B, S, D]."""
    if any(one is None or one.is_constant for one in addends):
        return False
    first, second = (shape_of(one) for one in addends)
    return first is not None and len(first) == 3 and all_same(first, second)


@hookimpl
def gehost_tune_kinds(registry: Any) -> None:
    """The two by themselves: often one pays and the other does not."""
    registry.add("normalization", ["OrtRmsNormPass"])
    registry.add("residual normalization", ["OrtSkipNormPass"])
