"""Causal attention for ONNX Runtime's GroupQueryAttention, which keeps no scores of all positions.

``q, k, v, (bias), mask → com.microsoft::MultiHeadAttention``, where the mask is only causal
``==>   q, k, v, lengths, length → com.microsoft::GroupQueryAttention``

The kernel goes over the keys in blocks and skips those behind the row: at 12 heads of 64 and 2048
positions 113 ms and 31 MiB, where MultiHeadAttention with a mask takes 180 ms and 233 MiB
(ONNX Runtime 1.31.1, one thread). A decoder of two layers (``decoder.768.dynopt``): the run takes
182 MiB instead of 541.
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
    TensorType,
    es,
    hookimpl,
    ops,
)

from ._attention import HEADS_SECOND
from ._causal import is_causal
from ._heads import Heads, keys_and_values
from ._instances import CONSTANTS, instance
from ._instances import KERNEL as CALL
from ._kernels import NO_EMPTY_INPUTS, empty_sizes
from ._shapes import Size, remove_dead, same, shape_of, sources_of
from ._types import no_kernel
from .attention import unlike_ours

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    import onnx

    from gehost import CustomPassContext, EsTensor, Graph, Node, Value


KERNEL = "com.microsoft::GroupQueryAttention"


def _shape(
    inputs: Sequence[TensorType | None], _attributes: Mapping[str, Any]
) -> Sequence[TensorType | None]:
    # without a key, query holds q, k and v
    return [inputs[0] if inputs[1] is not None else None, None, None]


@ops.register(
    KERNEL,
    outputs=["output", "present_key", "present_value"],
    shape=_shape,
    provided_by="onnxruntime>=1.21.1",
)
def group_query_attention(
    query: EsTensor,
    key: EsTensor,
    value: EsTensor,
    past_key: EsTensor | None = None,  # noqa: ARG001 - the kernel's signature
    past_value: EsTensor | None = None,  # noqa: ARG001 - the kernel's signature
    seqlens_k: EsTensor | None = None,  # noqa: ARG001 - all positions are used here
    total_sequence_length: EsTensor | None = None,  # noqa: ARG001 - that of key
    *,
    num_heads: int,
    kv_num_heads: int,
    scale: float,
) -> tuple[EsTensor, EsTensor, EsTensor]:
    """Causal attention without a past; a head of key and value serves N / M of query.

    Shapes: query [B, S, N·H], key and value [B, S, M·H] float32; seqlens_k [B] int32, the last
    position; total_sequence_length int32, S; results [B, S, N·H] and keys and values [B, M, S, H].
    """

    def split(one: EsTensor, heads: int) -> EsTensor:
        return es.Transpose(es.Reshape(one, np.array([0, 0, heads, -1])), perm=HEADS_SECOND)

    def repeated(one: EsTensor) -> EsTensor:
        """[B, N, S, H] of [B, M, S, H]."""
        if num_heads == kv_num_heads:
            return one
        times = np.array([1, 1, num_heads // kv_num_heads, 1, 1])
        apart = es.Expand(es.Unsqueeze(one, [2]), times)
        shape = es.Concat(
            es.Slice(es.Shape(one), [0], [1]),
            np.array([num_heads]),
            es.Slice(es.Shape(one), [2], [4]),
            axis=0,
        )
        return es.Reshape(apart, shape)

    q, k, v = (
        split(one, heads)
        for one, heads in ((query, num_heads), (key, kv_num_heads), (value, kv_num_heads))
    )
    scores = es.MatMul(q, es.Transpose(repeated(k), perm=[0, 1, 3, 2])) * scale
    rows = es.Slice(es.Shape(q), [2], [3])
    ones = es.Expand(np.ones((1, 1), np.float32), es.Concat(rows, rows, axis=0))
    scores = es.Where(es.Cast(es.Trilu(ones, upper=0), to=DataType.BOOL), scores, -np.inf)
    mixed = es.MatMul(es.Softmax(scores, axis=-1), repeated(v))
    joined = es.Reshape(es.Transpose(mixed, perm=HEADS_SECOND), np.array([0, 0, -1]))
    return joined, k, v


@REG_FUSION_PASS(
    stage=CustomPassStage.kAfterOriginGraphOptimize, default=False, options=[NO_EMPTY_INPUTS]
)
class OrtCausalAttentionPass(FusionBasePass):
    """Fuse attention whose mask is proven to be causal and nothing else.

    Forms: the mask from Trilu, from comparisons of positions, or constant; −inf or a finite fill of
    at most −1e30; with and without biases of the projections.
    Shapes: q [B, S, N·H]; k and v [B, S, N·H], or [B, N, S, H], also repeated of [B, M, S, H]; H a
    multiple of 8.
    Keeps: the numbers but for rounding.
    Refuses: ``kernel``: a MultiHeadAttention of the model's own with other inputs or attributes;
    ``mask``: none, or not proven to be causal alone; ``length``: of q and k not proven
    equal; ``layout``: ranks that do not fit; ``head size``: not a multiple of 8, or that of v
    differs; ``empty``: B or S may be 0, which the kernel refuses, or ends the process at:
    ``--assume no-empty-inputs`` takes it for granted that neither is; ``batch``: B is 0, or B or S
    is none of an input.
    Source: com.microsoft.GroupQueryAttention-1 of ONNX Runtime.
    """

    def Run(self, graph: Graph, context: CustomPassContext) -> None:
        if graph.depth:
            return
        lengths = _Lengths(graph)
        for kernel in graph.nodes_of("com.microsoft::MultiHeadAttention"):
            batch, rows = (shape_of(kernel.inputs[0]) or (None, None))[:2]
            problem = (
                unlike_ours(kernel)
                or _problem(kernel)
                or empty_sizes(
                    {"batch": batch, "length": rows}, assumed=context.options["no_empty_inputs"]
                )
                or no_kernel(context, KERNEL, kernel.inputs[0])
            )
            if problem:
                context.refuse(kernel, problem)
                continue
            made = lengths.of(batch, rows)
            if made is None:
                context.refuse(kernel, f"batch: {batch} or {rows} is none of an input")
                continue
            _fuse(context, kernel, keys_and_values(kernel), *made)
        remove_dead(graph)

    def Instances(self) -> Iterator[onnx.ModelProto]:
        """Yield models with a mask of comparisons and a bias, and with Trilu and repeated heads."""
        positions = "size = Shape <start = 1, end = 2> (q) n = Squeeze (size) "
        yield instance(
            ", ".join(f"float[2, 3, 16] {name}" for name in "qkv"),
            f"""{positions} columns = Range (first, n, step) rows = Unsqueeze (columns, axis)
            le = LessOrEqual (columns, rows) m = Where (le, zero, low) mask = Unsqueeze (m, front)
            {CALL} (q, k, v, bias, , mask)""",
            result="float[2, 3, 16] y",
            constants=f"""{CONSTANTS}, int64 first = {{0}}, int64 step = {{1}},
            int64[1] axis = {{1}}, int64[2] front = {{0, 1}}""",
            bias=(48,),
        )
        repeated = " ".join(
            f"{name}u = Unsqueeze ({name}, two) {name}e = Expand ({name}u, times) "
            f"{name}r = Reshape ({name}e, spread)"
            for name in "kv"
        )
        yield instance(
            "float[2, 3, 16] q, float[2, 1, 3, 8] k, float[2, 1, 3, 8] v",
            f"""{positions} square = Concat <axis = 0> (front, size, size)
            lows = Expand (low, square) mask = Trilu <upper = 1> (lows, step)
            {repeated} {CALL} (q, kr, vr, , , mask)""",
            result="float[2, 3, 16] y",
            constants=f"""{CONSTANTS}, int64 step = {{1}}, int64[2] front = {{1, 1}},
            int64[1] two = {{2}}, int64[5] times = {{1, 1, 2, 1, 1}},
            int64[4] spread = {{0, 2, -1, 8}}""",
        )


def _problem(kernel: Node) -> str:
    """Return why the causal kernel does not compute an attention, or ""."""
    q, k, v = (shape_of(one) for one in kernel.inputs[:3])
    mask = kernel.input(5)
    if q is None or k is None or v is None or len(q) != 3 or len(k) != len(v):
        return "layout: q is not [B, S, N·H], or k and v differ in rank"
    if mask is None:
        return "mask: there is none"
    heads = int(kernel.attrs["num_heads"])
    columns, width = (k[1], v[2]) if len(k) == 3 else (k[2], _times(v[3], heads))
    if not same(q[1], columns):
        return f"length: {q[1]} of q, {columns} of k: not proven equal"
    if not isinstance(q[2], int) or q[2] != width or q[2] % (8 * heads):
        return f"head size: {q[2]} of q and {width} of v for {heads} heads; a multiple of 8 each"
    if not is_causal(mask, q[1], columns):
        return "mask: not proven to be causal and nothing else"
    return ""


def _times(size: Size, heads: int) -> Size:
    return size * heads if isinstance(size, int) else size


def _fuse(
    context: CustomPassContext,
    kernel: Node,
    keys_values: tuple[Heads, Heads],
    last: Value,
    total: Value,
) -> None:
    keys, values = keys_values
    region = Region.of_nodes(dict.fromkeys([*keys.nodes, *values.nodes, kernel]))
    if not region:
        context.refuse(kernel, region.reason)
        return
    assert not isinstance(region, Refusal)
    builder = EsGraphBuilder("causal_attention")
    # the lengths are read besides
    given = [*region.inputs, last, total]
    region = Region(region.graph, given, region.results, region.nodes)
    inputs = dict(zip(given, builder.CreateInputs(len(given)), strict=True))
    query = kernel.inputs[0]
    assert query is not None
    parts = [inputs[query], *(_rows(inputs[one.value], one) for one in keys_values)]
    bias = kernel.input(3)
    if bias is not None and bias.array is not None:
        parts = [one + part for one, part in zip(parts, np.split(bias.array, 3), strict=True)]
    heads = kernel.attrs["num_heads"]
    # without the outputs for a later step the runtime computes all scores at once
    made = es.op(KERNEL)(
        *parts,
        None,
        None,
        inputs[last],
        inputs[total],
        num_heads=heads,
        kv_num_heads=keys.count,
        scale=kernel.attrs["scale"],
        num_outputs=3,
    )
    context.replace(region, builder.BuildAndReset([made[0]]), keep_shared=True)


def _rows(given: EsTensor, heads: Heads) -> EsTensor:
    """Return [B, S, M·H] of [B, M, S, H], or joined heads as given."""
    if not heads.apart:
        return given
    return es.Reshape(es.Transpose(given, perm=HEADS_SECOND), np.array([0, 0, -1]))


class _Lengths:
    """The kernel's inputs that depend on B and S, shared by all layers."""

    def __init__(self, graph: Graph) -> None:
        self._graph, self._sources = graph, sources_of(graph)
        self._made: dict[tuple[Size, Size], tuple[Value, Value] | None] = {}

    def of(self, batch: Size, rows: Size) -> tuple[Value, Value] | None:
        """Return the last position as [B] int32 and S, or None.

        It is None where a size is none of an input.
        """
        key = batch, rows
        if key not in self._made:
            sequences, length = self._size(batch), self._size(rows)
            if sequences is None or length is None:
                self._made[key] = None
            else:
                self._made[key] = self._computed(sequences, length)
        return self._made[key]

    def _computed(self, batch: Value, rows: Value) -> tuple[Value, Value]:
        count = self._added("Cast", [rows], (1,), DataType.INT32, to=int(DataType.INT32))
        one = self._constant(np.array([1], np.int32))
        last = self._added("Sub", [count, one], (1,), DataType.INT32)
        scalar = self._constant(np.array([], np.int64))
        total = self._added("Reshape", [count, scalar], (), DataType.INT32)
        return self._added("Expand", [last, batch], (None,), DataType.INT32), total

    def _size(self, size: Size) -> Value | None:
        """A size as a vector."""
        if isinstance(size, int):
            return self._constant(np.array([size]))
        source = self._sources.get(str(size))
        if source is None:
            return None
        value, axis = source
        rank = len(shape_of(value) or ())
        shape = self._added("Shape", [value], (rank,), DataType.INT64)
        index = self._constant(np.array([axis]))
        return self._added("Gather", [shape, index], (1,), DataType.INT64)

    def _constant(self, array: np.ndarray) -> Value:
        name = self._graph.model.fresh_name("OrtCausalAttentionPass_c")
        return self._graph.add_initializer(array, name)

    def _added(
        self,
        op: str,
        inputs: list[Value],
        shape: tuple[int | None, ...],
        dtype: DataType,
        **attributes: int,
    ) -> Value:
        name = self._graph.model.fresh_name(f"OrtCausalAttentionPass_{op}")
        producers = [value.producer for value in inputs if value.producer is not None]
        after = max(producers, key=lambda node: node.order, default=None)
        node = self._graph.add_node(op, inputs, [name], attributes, name=name, after=after)
        made = node.outputs[0]
        assert made is not None
        self._graph.set_type(made, TensorType(dtype, shape))
        return made


@hookimpl
def gehost_tune_kinds(registry: Any) -> None:
    """Causal attention, where attention is kept."""
    registry.add("causal attention", ["OrtCausalAttentionPass"])
