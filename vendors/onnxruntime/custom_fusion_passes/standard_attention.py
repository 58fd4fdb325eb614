"""Attention of opset 23 in the place of ONNX Runtime's MultiHeadAttention.

``q, k, v, (bias), (mask) → com.microsoft::MultiHeadAttention → (Where rows, ·, 0)``
``==>   q, k, v, (mask') → Attention``

``k → Unsqueeze → Expand → Reshape → k'`` and the same for v, which repeat heads, are absorbed: the
kernel reads each head of k and v for several of q.

Scores that are capped (Gemma 2), for which MultiHeadAttention has no input:

``q, kᵀ → MatMul → (Mul) → Tanh → Mul c → (Add mask) → Softmax → …   ==>   Attention <softcap = c>``

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
    NOT_CHANGED,
    REG_FUSION_PASS,
    CustomPassStage,
    DataType,
    EsGraphBuilder,
    PassOption,
    Refusal,
    Region,
    TensorType,
    es,
    hookimpl,
)
from gehost_semantic import PLAIN, AttentionFusionPass

from ._attention import HEADS_SECOND
from ._heads import keys_and_values
from ._instances import CONSTANTS, KEEP, QKV, instance
from ._instances import KERNEL as CALL
from ._kernels import NO_EMPTY_INPUTS, dim_of, empty_sizes
from ._masks import held_by, mask_problem, problem_of_types
from ._numbers import numbers
from ._shapes import remove_dead, shape_of
from ._types import dtype_name
from .attention import ROWS, unlike_ours

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import onnx

    from gehost import CustomPassContext, EsTensor, Graph, Node, Value
    from gehost_semantic import AttentionCall

KERNEL = "com.microsoft::MultiHeadAttention"
LOWEST = np.finfo(np.float32).min
_NO_PROOF = (
    "mask: a row may hold -inf throughout, which gives NaN and here 0; "
    "--assume no-empty-rows takes it for granted that none does"
)
NEXT = np.nextafter(LOWEST, np.float32(0))
"""It leaves nothing of a score, as the lowest, and the kernel computes with it."""

_SIZES = str.maketrans("BST", "253")
"""Sizes of instances: the kernel takes no tensor that may be empty."""


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
        ),
        NO_EMPTY_INPUTS,
    ],
)
class OrtStandardAttentionPass(AttentionFusionPass):
    """Fuse attention into ``Attention`` of opset 23.

    Forms: all that ``OrtAttentionPass`` fuses, and what it leaves, as scores capped by Tanh; heads
    of k and v that are repeated are read by several heads of q.
    Shapes: q, k and v [B, S, N·H], or k and v [B, N, T, H].
    Keeps: the numbers. A mask that may hold the lowest float32 gets the next larger number there.
    Refuses: ``kernel``: a MultiHeadAttention of the model's own with other inputs or attributes;
    ``empty``: a batch or length may be 0, which the kernel refuses: ``--assume no-empty-inputs``
    takes it for granted that none is; ``batch``, ``rows``, ``length``: it is 0; ``rank``,
    ``value``: of q, k or v, or the width of v, is unknown; ``mask``: not proven to hold no -inf,
    where no guard makes rows without positions 0: ``--assume no-empty-rows`` takes it for granted;
    of other attention as ``OrtAttentionPass``.
    Source: Attention-23 of ONNX; the kernel of ONNX Runtime.
    """

    takes = frozenset({"empty rows", "groups", "mask", "softcap"})
    layouts = ROWS

    def Run(self, graph: Graph, context: CustomPassContext) -> Any:
        if graph.depth:
            return NOT_CHANGED
        self._context = context
        raised: dict[str, Value] = {}
        for kernel in graph.nodes_of(KERNEL):
            problem = unlike_ours(kernel) or _not_float32(kernel.inputs[0])
            if problem:
                context.refuse(kernel, problem)
                continue
            problem = self._problem(kernel, context)
            if problem:
                context.refuse(kernel, problem)
                continue
            guard = _guard(kernel)
            mask = kernel.input(5)
            if mask is not None:
                exact = self._exact_mask(graph, context, kernel, mask, raised, zero=bool(guard))
                if exact is None:
                    continue
                if exact is not mask:
                    _replace_input(kernel, mask, exact)
            _fuse(context, kernel, guard)
        own = set(graph.nodes_of("Attention"))
        status = super().Run(graph, context)
        for kernel in graph.nodes_of("Attention"):
            if kernel not in own:
                _note_release(kernel)
        remove_dead(graph)
        return status

    def MeetRequirements(self, attention: AttentionCall) -> bool | Refusal:
        found = attention.description
        problem = (
            _not_float32(found.q.value)
            or problem_of_types(attention)
            or mask_problem(attention)
            or empty_sizes(
                {
                    "batch": dim_of(found.batch),
                    "rows": dim_of(found.queries),
                    "length": dim_of(found.keys),
                },
                assumed=self._context.options["no_empty_inputs"],
            )
            or self._rows_problem(attention)
        )
        return attention.reject(problem) if problem else True

    def _rows_problem(self, attention: AttentionCall) -> str:
        is_zero = attention.description.zero_empty_rows or self._context.options["no_empty_rows"]
        return _NO_PROOF if attention.may_have_empty_rows and not is_zero else ""

    def Replacement(self, attention: AttentionCall) -> EsTensor:
        mask = attention.full_mask
        held = held_by(attention)
        if mask is not None and (held is None or held.may_be(float(LOWEST))):
            mask = es.Where(es.Equal(mask, LOWEST), NEXT, mask)
        values = attention.value("v", ROWS["v"])
        softcap = attention.softcap or 0.0
        attributes: dict[str, Any] = {"scale": attention.scale * (softcap or 1.0)}
        if softcap:
            attributes["softcap"] = softcap
        if attention.value("k", ROWS["k"]) is not None and values is not None:
            return es.op("Attention")(
                attention.q,
                attention.k,
                _of_stated_width(values, attention.v),
                mask,
                q_num_heads=attention.heads,
                kv_num_heads=attention.key_heads,
                **attributes,
            )
        made = es.op("Attention")(
            *(attention.operand(name, PLAIN[name]) for name in "qkv"), mask, **attributes
        )
        return es.Reshape(es.Transpose(made, perm=HEADS_SECOND), np.array([0, 0, -1]))

    def _problem(self, kernel: Node, context: CustomPassContext) -> str:
        """Return why ``Attention`` does not take what a MultiHeadAttention takes, or ""."""
        q, k, v = (shape_of(one) for one in kernel.inputs[:3])
        if q is None or k is None or v is None:
            return "rank: of q, k or v is unknown"
        if not isinstance(v[-1], int):
            return "value: its last size is unknown"
        return empty_sizes(
            {"batch": q[0], "rows": q[1], "length": k[-2 if len(k) == 4 else 1]},
            assumed=context.options["no_empty_inputs"],
        )

    def _exact_mask(
        self,
        graph: Graph,
        context: CustomPassContext,
        node: Node,
        mask: Value,
        raised: dict[str, Value],
        *,
        zero: bool,
    ) -> Value | None:
        """Return the mask without the lowest number, None where it is refused.

        ``zero``: a row without positions is 0, as the kernel makes it.
        """
        held = numbers(mask)
        never_infinite = held is not None and not held.may_be(-np.inf)
        if not (zero or never_infinite or context.options["no_empty_rows"]):
            context.refuse(node, _NO_PROOF)
            return None
        if held is not None and not held.may_be(float(LOWEST)):
            return mask
        if mask.name not in raised:
            raised[mask.name] = _raised(graph, mask)
        return raised[mask.name]

    def Instances(self) -> Iterator[onnx.ModelProto]:
        """Yield models with a bias and a mask, and with repeated heads, at opset 23."""
        yield instance(
            f"{QKV}, {KEEP}".translate(_SIZES),
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
            "float[B, S, 8] q, float[B, 1, T, 4] k, float[B, 1, T, 4] v".translate(_SIZES),
            f"{repeated} {CALL} (q, kr, vr)",
            constants=f"""{CONSTANTS}, int64[1] two = {{2}}, int64[5] times = {{1, 1, 2, 1, 1}},
            int64[4] spread = {{0, 2, -1, 4}}""",
            opset=23,
        )


def _not_float32(value: Value | None) -> str:
    """Return why the kernel's treatment of masks is not known for a type, or ""."""
    dtype = None if value is None else value.dtype
    return "" if dtype == DataType.FLOAT else f"dtype: {dtype_name(dtype)}, wanted float32"


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
    top = test.inputs[0] and test.inputs[0].producer
    if top is not None and top.op == "Squeeze":
        top = top.inputs[0] and top.inputs[0].producer
    if top is None or top.op != "ReduceMax":
        return None
    expand = mask.producer
    whole = expand.inputs[0] if expand is not None and expand.op == "Expand" else mask
    return where if top.inputs[0] in (mask, whole) else None


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


def _fuse(context: CustomPassContext, kernel: Node, guard: Node | None) -> None:
    heads = int(kernel.attrs["num_heads"])
    keys, values = keys_and_values(kernel)
    nodes = [*keys.nodes, *values.nodes, kernel, *([guard] if guard is not None else [])]
    region = Region.of_nodes(dict.fromkeys(nodes))
    if not region:
        context.refuse(kernel, region.reason)
        return
    assert not isinstance(region, Refusal)
    builder = EsGraphBuilder("standard_attention")
    inputs = dict(zip(region.inputs, builder.CreateInputs(len(region.inputs)), strict=True))
    query = kernel.inputs[0]
    assert query is not None
    parts = [
        inputs[query],
        inputs[keys.value],
        _of_stated_width(values.value, inputs[values.value]),
    ]
    bias = kernel.input(3)
    if bias is not None and bias.array is not None:
        added = _split(bias.array, query)
        parts = [one + part for one, part in zip(parts, added, strict=True)]
    mask = kernel.input(5)
    made = _kernel(
        parts,
        None if mask is None else inputs[mask],
        heads=heads,
        apart=keys.apart,
        scale=kernel.attrs["scale"],
    )
    _replace(context, region, builder.BuildAndReset([made]))


def _of_stated_width(value: Value, tensor: EsTensor) -> EsTensor:
    """The tensor, behind a Reshape where ONNX's inference may not know the width of [B, T, M·V].

    It reads an unknown width as 0, and the result's as well, which no reader fits.
    """
    dims = shape_of(value)
    if dims is None or len(dims) != 3 or _width_is_inferred(value):
        return tensor
    return es.Reshape(tensor, np.array([0, 0, dims[2]]))


def _width_is_inferred(value: Value) -> bool:
    """Whether the last size follows from a weight or an input, with any inference of ONNX."""
    node = value.producer
    if node is None:
        return value.shape is not None and isinstance(value.shape[-1], int)
    if node.op == "Add":
        return any(one is not None and _width_is_inferred(one) for one in node.inputs)
    weight = node.input(1)
    if node.op == "MatMul":
        return weight is not None and weight.array is not None and weight.array.ndim == 2
    parts = weight is not None and weight.array is not None
    return node.op == "Split" and parts and node.attrs.get("axis", 0) in (-1, 2)


def _kernel(
    parts: Sequence[EsTensor],
    mask: EsTensor | None,
    *,
    heads: int,
    apart: bool,
    scale: float,
) -> EsTensor:
    """Attention [B, S, N·V] of q [B, S, N·H], k and v; ``apart``: these are [B, M, T, H]."""
    query, key, value = parts
    if apart:
        split = np.array([0, 0, heads, -1])
        query = es.Transpose(es.Reshape(query, split), perm=HEADS_SECOND)
    attributes: dict[str, Any] = {} if apart else {"q_num_heads": heads, "kv_num_heads": heads}
    made = es.op("Attention")(query, key, value, mask, scale=scale, **attributes)
    if apart:
        made = es.Reshape(es.Transpose(made, perm=HEADS_SECOND), np.array([0, 0, -1]))
    return made


def _replace(context: CustomPassContext, region: Region, replacement: Any) -> None:
    new = context.replace(region, replacement, keep_shared=True)
    for node in () if isinstance(new, Refusal) else new:
        if node.op == "Attention":
            _note_release(node)


def _note_release(node: Node) -> None:
    """Name the runtime: others may do otherwise with rows without positions."""
    node.graph.set_metadata(node, "gehost.provided_by", "onnxruntime>=1.28.0")


def _split(bias: np.ndarray, query: Value) -> list[np.ndarray]:
    """Return the biases of q, k and v, which the kernel takes in one.

    k is as wide as q.
    """
    dims = shape_of(query)
    width = None if dims is None else dims[-1]
    assert isinstance(width, int)
    return [bias[:width], bias[width : 2 * width], bias[2 * width :]]


@hookimpl
def gehost_tune_kinds(registry: Any) -> None:
    """Standard attention, where attention is kept."""
    registry.add("standard attention", ["OrtStandardAttentionPass"])
