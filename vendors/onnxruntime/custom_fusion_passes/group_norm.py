"""Normalization by groups of channels for CUDA's kernels, with the sum before and SiLU after.

``x → Reshape [0, G, −1] → InstanceNormalization → Reshape → Mul γ → Add β → (SiLU)``
``==>  x → Transpose → com.microsoft::GroupNorm → Transpose``
``a, b → Add → the same   ==>   a, b → Transpose → com.microsoft::SkipGroupNorm → Transpose``

The kernels take [N, H, W, C] alone, and scale and shift in float32 whatever the images are; ONNX
Runtime has them for CUDA, not for the CPU. They sum x and x² in float32, so that where a group's
mean is far above its deviation a float32 model loses digits (half has none there).
"""

from __future__ import annotations

from dataclasses import dataclass
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
from ._kernels import NO_EMPTY_INPUTS, empty_sizes
from ._shapes import all_same, elements_of, same, shape_of
from ._types import dtype_name, no_kernel

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    import onnx

    from gehost import CustomPassContext, EsTensor, Graph, Node, TensorType, Value

GROUP, SKIP = "com.microsoft::GroupNorm", "com.microsoft::SkipGroupNorm"
LAST, FIRST = [0, 2, 3, 1], [0, 3, 1, 2]
"""Permutations that put the channels last, and first again."""
_STANDARD_SINCE = 21
"""GroupNormalization has a scale for each channel from here on, for each group before."""


def _like_first(
    inputs: Sequence[TensorType | None], _attributes: Mapping[str, Any]
) -> Sequence[TensorType | None]:
    """All outputs have the type and the shape of the first input."""
    return [inputs[0], inputs[0]]


@ops.register(GROUP, shape=_like_first, provided_by="onnxruntime>=1.21.1")
def group_norm(
    x: EsTensor,
    gamma: EsTensor,
    beta: EsTensor,
    *,
    epsilon: float = 1e-5,
    groups: int,
    activation: int,
) -> EsTensor:
    """Normalize each of ``groups`` groups of channels; ``activation`` 1 is SiLU.

    Shapes: x [N, H, W, C]; gamma and beta [C], float32. It computes in float32.
    """
    shape = es.Shape(x)
    apart = es.Concat(
        es.Gather(shape, [0]),
        [-1, groups],
        es.Div(es.Gather(shape, [3]), [groups]),
        axis=0,
    )
    wide = es.Reshape(es.Cast(x, to=DataType.FLOAT), apart)
    centered = wide - es.ReduceMean(wide, axes=[1, 3], keepdims=1)
    variance = es.ReduceMean(centered * centered, axes=[1, 3], keepdims=1)
    normal = es.Reshape(centered / es.Sqrt(variance + epsilon), shape) * gamma + beta
    return es.CastLike(normal * es.Sigmoid(normal) if activation else normal, x)


@ops.register(SKIP, outputs=["Y", "S"], shape=_like_first, provided_by="onnxruntime>=1.21.1")
def skip_group_norm(
    x: EsTensor,
    gamma: EsTensor,
    beta: EsTensor,
    skip: EsTensor,
    *,
    epsilon: float = 1e-5,
    groups: int,
    activation: int,
) -> tuple[EsTensor, EsTensor]:
    """GroupNorm of x + skip, and the sum.

    Shapes: as above; skip [N, H, W, C] or [N, 1, 1, C].
    """
    total = x + skip
    result = group_norm(total, gamma, beta, epsilon=epsilon, groups=groups, activation=activation)
    return result, total


@dataclass
class _Norm:
    """A normalization by groups, in float32 or float16."""

    x: Value
    groups: int
    epsilon: float
    gamma: np.ndarray
    beta: np.ndarray
    nodes: list[Node]
    silu: bool = False


@REG_FUSION_PASS(
    stage=CustomPassStage.kAfterBuiltinFusionPass, default=False, options=[NO_EMPTY_INPUTS]
)
class OrtGroupNormPass(FusionBasePass):
    """Fuse a normalization by groups of channels, with the sum before it and the SiLU after.

    Forms: InstanceNormalization between two reshapes, with or without scale and shift behind, as
    constants in any order; GroupNormalization from opset 21 on; SiLU as x · sigmoid(x).
    Shapes: x [N, C, H, W], C known; of two addends one has the shape of the sum, the other, too, or
    [N, C, 1, 1].
    Keeps: the numbers but for rounding; the sum, where others read it.
    Refuses: ``dtype``: not float32 or float16; ``kernel``: the target has none of the type;
    ``rank``: not [N, C, H, W]; ``groups``: they do not divide the channels, or have an odd number
    of them; ``scale``: not by constants [C]; ``empty``: sizes may be 0; ``shared``: a tensor
    inside is read by others, too.
    Source: com.microsoft.GroupNorm-1, SkipGroupNorm-1.
    """

    shape_proven = True  # the result of a normalization by channels has the shape of x, and so has
    # the sum of two addends that are proven to have it, or [N, C, 1, 1]

    def Run(self, graph: Graph, context: CustomPassContext) -> None:
        if graph.depth:
            return
        for node in graph.nodes_of("InstanceNormalization", "GroupNormalization"):
            norm = _by_parts(node) if node.op[0] == "I" else _standard(node)
            if norm is None:
                continue
            if isinstance(norm, str):
                context.refuse(node, norm)
                continue
            _add_silu(norm)
            problem = _problem(norm, context)
            if problem:
                context.refuse(node, problem)
                continue
            addends = _addends(norm)
            if addends and _fuse(context, norm, addends):
                continue
            _fuse(context, norm, [norm.x])

    def Instances(self) -> Iterator[onnx.ModelProto]:
        """Yield models by parts and by GroupNormalization."""
        parts = """r = Reshape (s, groups) i = InstanceNormalization <epsilon = 1e-5> (r, one, zero)
            sh = Shape (s) b = Reshape (i, sh) m = Mul (b, gamma)"""
        constants = (
            """int64[3] groups = {0, 2, -1}, float[2] one = {1, 1}, float[2] zero = {0, 0}"""
        )
        image = "float[2, 8, 4, 4]"
        for lines in (
            f"s = Neg (x) {parts} y = Add (m, beta)",
            f"s = Add (x, z) {parts} n = Add (m, beta) g = Sigmoid (n) y = Mul (n, g)",
        ):
            yield instance(
                f"{image} x, {image} z",
                lines,
                result=f"{image} y",
                constants=constants,
                gamma=(8, 1, 1),
                beta=(8, 1, 1),
            )


def _standard(node: Node) -> _Norm | str | None:
    """The normalization that a GroupNormalization computes."""
    x, gamma, beta = (*node.inputs, None, None)[:3]
    if x is None or (node.graph.model.opset() or 0) < _STANDARD_SINCE:
        return "scale: for each group, below opset 21"
    arrays = [None if one is None else one.array for one in (gamma, beta)]
    if arrays[0] is None or arrays[1] is None:
        return "scale: no constants [C]"
    if node.attrs.get("stash_type", 1) != 1:
        return "dtype: it normalizes in another type than float32"
    epsilon = float(node.attrs.get("epsilon", 1e-5))
    groups = int(node.attrs["num_groups"])
    return _Norm(x, groups, epsilon, arrays[0], arrays[1], [node])


def _by_parts(node: Node) -> _Norm | str | None:
    """The normalization around an InstanceNormalization; None where there is none by groups."""
    apart, scale, shift = node.inputs
    before = None if apart is None else apart.producer
    after = _only_reader(node, "Reshape")
    if before is None or before.op != "Reshape" or after is None:
        return None
    x, result = before.inputs[0], after.outputs[0]
    dims, target = shape_of(x), elements_of(before.inputs[1])
    if x is None or dims is None or target is None or len(target) != 3 or len(dims) != 4:
        return "rank: no [N, C, H, W] is reshaped to [N, G, ·]"
    first, groups, _ = target
    copied = first == 0 and not before.attrs.get("allowzero", 0)
    if not isinstance(groups, int) or groups < 1 or not (copied or same(first, dims[0])):
        return "groups: of no known number"
    if not isinstance(dims[1], int) or dims[1] % groups:
        return f"groups: {groups} do not divide {dims[1]} channels"
    if not (_is_shape_of(after.inputs[1], x) or all_same(shape_of(result), dims)):
        return "rank: the result is not proven to have the shape of x"
    plain = [None if one is None else one.array for one in (scale, shift)]
    if any(
        array is None or not np.all(array == number)
        for array, number in zip(plain, (1, 0), strict=True)
    ):
        return "scale: each group has its own"
    epsilon = float(node.attrs.get("epsilon", 1e-5))
    channels = dims[1]
    gamma, beta = np.ones(channels, np.float32), np.zeros(channels, np.float32)
    norm = _Norm(x, groups, epsilon, gamma, beta, [before, node, after])
    shape = None if after.inputs[1] is None else after.inputs[1].producer
    if shape is not None and shape.inputs[0] is x and _only_reader(shape, "Reshape") is after:
        norm.nodes.insert(0, shape)  # else it would lie between a sum and the kernel
    scaled = _by_channel(norm, "Mul", channels)
    if scaled is not None:
        norm.gamma = scaled
    shifted = _by_channel(norm, "Add", channels)
    if shifted is not None:
        norm.beta = shifted
    return norm


def _by_channel(norm: _Norm, op: str, channels: int) -> np.ndarray | None:
    """Take the next node if it is of this operator, with a constant for each channel."""
    node, output = _only_reader(norm.nodes[-1], op), norm.nodes[-1].outputs[0]
    if node is None:
        return None
    other = next((one for one in node.inputs if one is not output), None)
    array = None if other is None else other.array
    if array is None or array.shape not in ((channels, 1, 1), (1, channels, 1, 1)):
        return None
    norm.nodes.append(node)
    return array.reshape(channels)


def _add_silu(norm: _Norm) -> None:
    """Take a product with its own sigmoid, if nothing else reads the result."""
    output = norm.nodes[-1].outputs[0]
    readers = [] if output is None or output.is_graph_output else output.consumers()
    sigmoid = next((reader for reader, _ in readers if reader.op == "Sigmoid"), None)
    product = None if sigmoid is None else _only_reader(sigmoid, "Mul")
    if output is None or sigmoid is None or product is None or len(output.uses) != 2:
        return
    if output in product.inputs and sigmoid.outputs[0] in product.inputs:
        norm.nodes += [sigmoid, product]
        norm.silu = True


def _problem(norm: _Norm, context: CustomPassContext) -> str:
    """Why the kernels do not compute a normalization; "" if they do."""
    dims, x = shape_of(norm.x), norm.x
    if x.dtype not in (DataType.FLOAT, DataType.FLOAT16):
        return f"dtype: {dtype_name(x.dtype)}, wanted float32 or float16"
    result = norm.nodes[-1].outputs[0]
    if result is None or result.dtype != x.dtype:
        return f"dtype: {dtype_name(x.dtype)}, but not all of it"
    if dims is None or len(dims) != 4 or not isinstance(dims[1], int):
        return "rank: not [N, C, H, W] with C known"
    if dims[1] % norm.groups or (dims[1] // norm.groups) % 2:
        return f"groups: {dims[1]} channels in {norm.groups}; the kernel takes an even number each"
    if norm.gamma.shape != (dims[1],) or norm.beta.shape != (dims[1],):
        return "scale: no constants [C]"
    named = dict(zip(("batch", "height", "width"), (dims[0], *dims[2:]), strict=True))
    return no_kernel(context, GROUP, x) or empty_sizes(
        named, assumed=context.options["no_empty_inputs"]
    )


def _addends(norm: _Norm) -> list[Value]:
    """The two tensors whose sum is normalized: of the sum's shape, and that or [N, C, 1, 1]."""
    add, dims = norm.x.producer, shape_of(norm.x)
    if add is None or add.op != "Add" or dims is None:
        return []
    for first, second in (add.inputs, add.inputs[::-1]):
        if first is None or second is None or first.is_constant or second.is_constant:
            return []
        small = (*dims[:2], 1, 1)
        if all_same(shape_of(first), dims) and (
            all_same(shape_of(second), dims) or all_same(shape_of(second), small)
        ):
            return [first, second]
    return []


def _fuse(context: CustomPassContext, norm: _Norm, addends: Sequence[Value]) -> bool:
    """Put the kernel in the place of a normalization, and of the sum of two addends."""
    add = norm.x.producer
    nodes = [add, *norm.nodes] if len(addends) == 2 and add is not None else norm.nodes
    region = Region.of_nodes(nodes)
    if isinstance(region, Refusal):
        context.refuse(norm.nodes[0], region.reason)
        return False
    result = norm.nodes[-1].outputs[0]
    expected = {result, norm.x} if len(addends) == 2 else {result}
    if not set(region.outputs) <= expected:
        context.refuse(norm.nodes[0], "shared: a tensor inside is read by others, too")
        return False
    builder = EsGraphBuilder("group_norm")
    inputs = dict(zip(region.inputs, builder.CreateInputs(len(region.inputs)), strict=True))
    images = [es.Transpose(inputs[one], perm=LAST) for one in addends]
    attributes: dict[str, Any] = {
        "epsilon": norm.epsilon,
        "groups": norm.groups,
        "activation": int(norm.silu),
    }
    gamma, beta = (
        builder.CreateConst(item.astype(np.float32), dtype=DataType.FLOAT)
        for item in (norm.gamma, norm.beta)
    )
    created: dict[Any, EsTensor] = {}
    if len(addends) == 1:
        created[result] = es.op(GROUP)(images[0], gamma, beta, **attributes)
    else:
        count = 2 if norm.x in region.outputs else 1
        outputs = es.op(SKIP)(images[0], gamma, beta, images[1], **attributes, num_outputs=count)
        created[result] = outputs[0] if count == 2 else outputs
        if count == 2:
            created[norm.x] = outputs[1]
    results = [es.Transpose(created[one], perm=FIRST) for one in region.outputs]
    context.replace(region, builder.BuildAndReset(results))
    return True


def _is_shape_of(value: Value | None, x: Value) -> bool:
    """Whether a value is the whole shape of another."""
    shape = None if value is None else value.producer
    return (
        shape is not None
        and shape.op == "Shape"
        and shape.inputs[0] is x
        and not shape.attrs.get("start", 0)
        and shape.attrs.get("end") is None
    )


def _only_reader(node: Node, op: str) -> Node | None:
    """Return the only reader of a result if it is of this operator."""
    output = node.outputs[0]
    if output is None or output.is_graph_output or len(output.uses) != 1:
        return None
    ((reader, _),) = output.consumers() or [(node, 0)]
    return reader if reader.op == op else None


@hookimpl
def gehost_tune_kinds(registry: Any) -> None:
    """By itself: its transposes may cost more than it saves."""
    registry.add("normalization by groups", ["OrtGroupNormPass"])
