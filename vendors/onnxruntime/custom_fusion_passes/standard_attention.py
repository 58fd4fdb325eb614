"""Attention of opset 23 in the place of ONNX Runtime's MultiHeadAttention.

``q, k, v, (bias), (mask) → com.microsoft::MultiHeadAttention → (Where rows, ·, 0)``
``==>   q, k, v, (mask') → Attention``

``k → Unsqueeze → Expand → Reshape → k'`` and the same for v, which repeat heads, are absorbed: the
kernel reads each head of k and v for several of q.

The kernel (1.31) leaves a position out where the mask is -inf or the lowest float32, and a row
without positions becomes 0. Elsewhere such a row averages v over the lowest fill, and is NaN over
-inf, or 0 behind a guard. So ``mask'`` has the next larger number in place of the lowest, the 0 of
a guard is the kernel's own, and an unguarded mask must be proven to hold no -inf.

Of width 64 at [2, 16] with a mask 14 µs, where MultiHeadAttention takes 24; of width 768 at
[1, 128] 756 and 884 µs; at [1, 512] 10.7 and 11.6 ms (one thread, medians).
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
    PassOption,
    Region,
    Rejection,
    TensorType,
    es,
    hookimpl,
)

from ._attention import HEADS_SECOND
from ._heads import keys_and_values
from ._instances import CONSTANTS, KEEP, QKV, instance
from ._instances import KERNEL as CALL
from ._numbers import numbers
from ._sizes import GraphSizes, remove_dead

if TYPE_CHECKING:
    from collections.abc import Iterator

    import onnx

    from gehost import CustomPassContext, EsTensor, Graph, Node, Value

KERNEL = "com.microsoft::MultiHeadAttention"
LOWEST = np.finfo(np.float32).min
NEXT = np.nextafter(LOWEST, np.float32(0))
"""It leaves nothing of a score, as the lowest, and the kernel computes with it."""


@REG_FUSION_PASS(
    stage=CustomPassStage.kAfterOriginGraphOptimize,
    default=False,
    min_opset=23,
    options=[
        PassOption(
            "no_empty_rows",
            bool,
            False,  # noqa: FBT003 - the default
            "each row of a mask has a position to attend to",
            assumption=True,
        )
    ],
)
class OrtStandardAttentionPass(FusionBasePass):
    """Fuse attention into ``Attention`` of opset 23.

    Forms: all that ``OrtAttentionPass`` fuses; heads of k and v that Unsqueeze, Expand and Reshape
    repeat are read by several heads of q.
    Shapes: q, k and v [B, S, N·H], or k and v [B, N, T, H].
    Keeps: the numbers, for at least one key. A mask that may hold the lowest float32 gets the next
    larger number there.
    Refuses: ``length``: a size of k is known to be 0; ``mask``: not proven to hold no -inf, where
    no guard makes rows without positions 0: ``--assume no-empty-rows`` takes it for granted.
    Source: Attention-23 of ONNX; the kernel of ONNX Runtime.
    """

    def Run(self, graph: Graph, context: CustomPassContext) -> None:
        if graph.depth:
            return
        sizes = GraphSizes(graph)
        masks: dict[str, Value] = {}
        for kernel in graph.nodes_of(KERNEL):
            if 0 in (sizes.of(kernel.inputs[1]) or ()):
                context.refuse(kernel, "length: there are no keys, and the kernel takes none such")
                continue
            guard = _guard(kernel)
            mask = kernel.input(5)
            if mask is not None:
                held = numbers(mask)
                never_infinite = held is not None and not held.may_be(-np.inf)
                if not (guard or never_infinite or context.options["no_empty_rows"]):
                    context.refuse(
                        kernel,
                        "mask: a row may hold -inf throughout, which gives NaN and here 0; "
                        "--assume no-empty-rows takes it for granted that none does",
                    )
                    continue
                if held is None or held.may_be(float(LOWEST)):
                    if mask.name not in masks:
                        masks[mask.name] = _raised(graph, mask)
                    _replace_input(kernel, mask, masks[mask.name])
            _fuse(context, kernel, guard, sizes)
        remove_dead(graph)

    def Instances(self) -> Iterator[onnx.ModelProto]:
        """Yield models with a bias and a mask, and with repeated heads, at opset 23."""
        yield instance(
            f"{QKV}, {KEEP}",
            f"mask = Where (keep, zero, low) {CALL} (q, k, v, bias, , mask)",
            opset=23,
            bias=(24,),
        )
        repeated = " ".join(
            f"{name}u = Unsqueeze ({name}, two) {name}e = Expand ({name}u, times) "
            f"{name}r = Reshape ({name}e, spread)"
            for name in "kv"
        )
        yield instance(
            "float[B, S, 8] q, float[B, 1, T, 4] k, float[B, 1, T, 4] v",
            f"{repeated} {CALL} (q, kr, vr)",
            constants=f"""{CONSTANTS}, int64[1] two = {{2}}, int64[5] times = {{1, 1, 2, 1, 1}},
            int64[4] spread = {{0, 2, -1, 4}}""",
            opset=23,
        )


def _guard(kernel: Node) -> Node | None:
    """Return the Where of ``OrtAttentionPass`` that zeroes rows without positions."""
    made, mask = kernel.outputs[0], kernel.input(5)
    if made is None or mask is None or made.is_graph_output or len(made.consumers()) != 1:
        return None
    ((where, slot),) = made.consumers()
    if where.op != "Where" or slot != 1 or not _is(where.inputs[2], 0.0):
        return None
    test = where.inputs[0] and where.inputs[0].producer
    if test is None or test.op != "Greater" or not _is(test.inputs[1], -np.inf):
        return None
    squeeze = test.inputs[0] and test.inputs[0].producer
    most = squeeze and squeeze.inputs[0] and squeeze.inputs[0].producer
    if squeeze is None or most is None or (squeeze.op, most.op) != ("Squeeze", "ReduceMax"):
        return None
    return where if most.inputs[0] is mask and _last_axis(most) else None


def _last_axis(reduce: Node) -> bool:
    given = reduce.input(1)
    array = None if given is None else given.array
    axes = reduce.attrs.get("axes") if array is None else array.tolist()
    return list(axes or ()) == [-1]


def _is(value: Value | None, number: float) -> bool:
    array = None if value is None else value.array
    return array is not None and array.size == 1 and float(array.reshape(-1)[0]) == number


def _raised(graph: Graph, mask: Value) -> Value:
    """Return the mask with the lowest number raised to the next one.

    -inf stays.
    """

    def added(op: str, inputs: list[Value], dtype: DataType) -> Value:
        name = graph.model.fresh_name(f"OrtStandardAttentionPass_{op}")
        producers = [value.producer for value in inputs if value.producer is not None]
        after = max(producers, key=lambda node: node.order, default=None)
        made = graph.add_node(op, inputs, [name], {}, name=name, after=after).outputs[0]
        assert made is not None
        graph.set_type(made, TensorType(dtype, mask.shape))
        return made

    def constant(number: np.float32) -> Value:
        name = graph.model.fresh_name("OrtStandardAttentionPass_c")
        return graph.add_initializer(np.array(number, np.float32), name)

    lowest = added("Equal", [mask, constant(LOWEST)], DataType.BOOL)
    return added("Where", [lowest, constant(NEXT), mask], DataType.FLOAT)


def _replace_input(kernel: Node, old: Value, new: Value) -> None:
    for slot in kernel.slots_of(old):
        kernel.graph.set_input(kernel, slot, new)


def _fuse(context: CustomPassContext, kernel: Node, guard: Node | None, sizes: GraphSizes) -> None:
    heads = int(kernel.attrs["num_heads"])
    keys, values = keys_and_values(kernel, sizes)
    nodes = [*keys.nodes, *values.nodes, kernel, *([guard] if guard is not None else [])]
    region = Region.of_nodes(dict.fromkeys(nodes))
    if not region:
        context.refuse(kernel, region.reason)
        return
    assert not isinstance(region, Rejection)
    builder = EsGraphBuilder("standard_attention")
    inputs = dict(zip(region.inputs, builder.CreateInputs(len(region.inputs)), strict=True))
    query = kernel.inputs[0]
    assert query is not None
    parts = [inputs[query], inputs[keys.value], inputs[values.value]]
    bias = kernel.input(3)
    if bias is not None and bias.array is not None:
        added = _split(bias.array, kernel, sizes)
        parts = [one + part for one, part in zip(parts, added, strict=True)]
    mask = kernel.input(5)
    made: EsTensor = parts[0]
    if keys.apart:
        split = np.array([0, 0, heads, -1])
        made = es.Transpose(es.Reshape(made, split), perm=HEADS_SECOND)
    counts: dict[str, int] = {} if keys.apart else {"q_num_heads": heads, "kv_num_heads": heads}
    made = es.op("Attention")(
        made,
        *parts[1:],
        None if mask is None else inputs[mask],
        scale=kernel.attrs["scale"],
        **counts,
    )
    if keys.apart:
        made = es.Reshape(es.Transpose(made, perm=HEADS_SECOND), np.array([0, 0, -1]))
    new = context.replace(region, builder.BuildAndReset([made]), keep_shared=True)
    for node in () if isinstance(new, Rejection) else new:
        if node.op == "Attention":  # other runtimes may do otherwise with rows without positions
            node.graph.set_metadata(node, "gehost.provided_by", "onnxruntime>=1.31")


def _split(bias: np.ndarray, kernel: Node, sizes: GraphSizes) -> list[np.ndarray]:
    """Return the biases of q, k and v, which the kernel takes in one.

    k is as wide as q.
    """
    dims = sizes.of(kernel.inputs[0])
    width = None if dims is None else dims[-1]
    assert isinstance(width, int)
    return [bias[:width], bias[width : 2 * width], bias[2 * width :]]


@hookimpl
def gehost_tune_kinds(registry: Any) -> None:
    """Standard attention, where attention is kept."""
    registry.add("standard attention", ["OrtStandardAttentionPass"])
