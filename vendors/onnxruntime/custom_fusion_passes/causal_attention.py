"""Causal attention for ONNX Runtime's GroupQueryAttention, which keeps no scores of all positions.

``q, k, v, mask → attention``, where the mask is proven to be causal and nothing else
``==>   q, k, v, (past), lengths, length → com.microsoft::GroupQueryAttention, (present)``

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
    PassOption,
    Refused,
    TensorType,
    es,
    hookimpl,
    ops,
)
from gehost_semantic import NO_EMPTY_INPUTS, empty_problem

from ._attention import HEADS_SECOND
from ._instances import ATTENTION, CONSTANTS, QKV, instance
from ._kernel_pass import KernelPass
from ._types import RUNTIME

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    import onnx

    from gehost import EsTensor, Graph, Node
    from gehost_semantic import AttentionCall


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
    past_key: EsTensor | None = None,
    past_value: EsTensor | None = None,
    seqlens_k: EsTensor | None = None,  # noqa: ARG001 - all positions are used here
    total_sequence_length: EsTensor | None = None,  # noqa: ARG001 - that of key
    *,
    num_heads: int,
    kv_num_heads: int,
    scale: float,
    local_window_size: int = -1,
    softcap: float = 0.0,
) -> tuple[EsTensor, EsTensor, EsTensor]:
    """Causal attention, also after a past; a head of key and value serves N / M of query.

    A query sees itself and local_window_size - 1 positions before it; -1: all. Scores s become
    softcap · tanh(s / softcap); 0: they stay.

    Shapes: query [B, S, N·H], key and value [B, S, M·H]; past [B, M, P, H]; seqlens_k [B] int32,
    the last position; total_sequence_length int32, P + S; results [B, S, N·H] and keys and values
    [B, M, P + S, H]. All of one type.
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
        for one, heads in (
            (query, num_heads),
            (key, kv_num_heads),
            (value, kv_num_heads),
        )
    )
    last: EsTensor | np.int64 = np.int64(0)
    if past_key is not None and past_value is not None:
        k, v = es.Concat(past_key, k, axis=2), es.Concat(past_value, v, axis=2)
        last = es.Squeeze(es.Slice(es.Shape(past_key), [2], [3]), [0])
    scores = es.MatMul(q, es.Transpose(repeated(k), perm=[0, 1, 3, 2])) * scale
    if softcap > 0:
        scores = es.Tanh(scores / softcap) * softcap
    sizes = es.Slice(es.Shape(scores), [2], [4])
    retained = es.Trilu(es.Expand(np.ones((1, 1), np.float32), sizes), last, upper=0)
    if local_window_size > 0:
        retained = es.Trilu(retained, last - (local_window_size - 1), upper=1)
    scores = es.Where(es.Cast(retained, to=DataType.BOOL), scores, -np.inf)
    mixed = es.MatMul(es.Softmax(scores, axis=-1), repeated(v))
    joined = es.Reshape(es.Transpose(mixed, perm=HEADS_SECOND), np.array([0, 0, -1]))
    return joined, k, v


@REG_FUSION_PASS(
    stage=CustomPassStage.kAfterOriginGraphOptimize,
    default=False,
    options=[
        NO_EMPTY_INPUTS,
        PassOption(
            "no_padding",
            bool,
            False,  # noqa: FBT003 - the default
            "no mask leaves out a key of a sequence",
            assumption=True,
        ),
    ],
)
class OrtCausalAttentionPass(KernelPass):
    """Fuse attention whose mask is proven to be causal and nothing else.

    Forms: those of ``OrtAttentionPass`` with a mask of Trilu, of comparisons of positions, or
    constant, also with a window of so many keys; −inf or a finite fill of at most −1e30 (float16:
    −6e4); scores capped by Tanh. Heads of k and v that are repeated are read once. A past that a
    Concat puts before new keys and values [B, M, S, H] becomes the kernel's own, and both presents
    its results.
    Shapes: the head size is a multiple of 8.
    Keeps: the numbers but for rounding.
    Refuses: what ``OrtAttentionPass`` refuses; ``mask``: none, or not proven to be causal alone: of
    a mask over batch and keys (padding) besides, ``--assume no-padding`` takes it for granted that
    it keeps each key; ``batch``: it may be more than 1 with several queries and a past, which the
    kernel refuses; ``past``: its length is a number, or a present is no output; ``length``: of q
    and k not proven equal; ``head size``: not a multiple of 8, or that of v differs; ``empty``: B
    or S may be 0, which the kernel refuses, or ends the process at: ``--assume no-empty-inputs``
    takes it for granted that neither is; ``local_window_size``: a window, where the target is older
    than 1.24.1; ``softcap``: the target is no CPU.
    Source: com.microsoft.GroupQueryAttention-1 of ONNX Runtime.
    """

    takes = frozenset({"causal", "groups", "past", "softcap", "window"})
    kernel = KERNEL

    def calls(self, graph: Graph) -> Iterator[tuple[Node, AttentionCall | Refused]]:
        for node, call in super().calls(graph):
            if not isinstance(call, Refused):
                call.ignores_padding = self.context.options["no_padding"]
            yield node, call

    def problem(self, attention: AttentionCall) -> str:
        description = attention.description
        if not attention.is_causal:
            return "mask: there is none, and several queries"
        if description.queries + attention.past_length != description.keys:
            return f"length: {description.queries} of q, {description.keys} of k: not proven equal"
        outputs = [
            cache is not None and cache.present.is_graph_output for cache in description.past
        ]
        if attention.has_past and not (all(outputs) and not isinstance(attention.past_length, int)):
            # the runtime takes the past's length for the present's when it plans and folds
            return "past: its length is a number, or a present is no output of the graph"
        if attention.has_past and description.batch != 1 and description.queries != 1:
            return (
                f"batch: {description.batch} with {description.queries} queries and a past; "
                "the kernel takes one of them only: --dim fixes it"
            )
        if attention.head_size % 8 or attention.head_size != attention.value_size:
            return (
                f"head size: {attention.head_size} of q, {attention.value_size} of v; "
                "a multiple of 8 each"
            )
        kernel = self.context.target.kernel(KERNEL, attention.dtype, RUNTIME)
        if attention.softcap is not None and kernel is not None and kernel.provider != "cpu":
            return f"softcap: its numbers on {kernel.provider} are not measured"
        if attention.window is not None:
            attributes = ("local_window_size",)
            problem = self.context.target.why_not(
                KERNEL, attention.dtype, RUNTIME, attributes=attributes
            )
            if problem:
                return problem
        sizes = {"batch": description.batch, "length": description.queries}
        return empty_problem(sizes, assumed=self.context.options["no_empty_inputs"])

    def Replacement(self, attention: AttentionCall) -> EsTensor | Sequence[EsTensor]:
        total = es.Cast(attention.length("t"), to=DataType.INT32)
        last = es.Expand(es.Sub(total, np.array([1], np.int32)), attention.length("b"))
        softcap = attention.softcap or 0.0
        optional: dict[str, Any] = {"softcap": softcap} if softcap else {}
        if attention.window is not None:
            optional["local_window_size"] = attention.window
        # without the outputs for a later step the runtime computes all scores at once
        result = es.op(KERNEL)(
            attention.q,
            attention.k,
            attention.v,
            attention.past_k,
            attention.past_v,
            last,
            es.Squeeze(total, axes=[0]),
            num_heads=attention.heads,
            kv_num_heads=attention.key_heads,
            scale=attention.scale * (softcap or 1.0),
            num_outputs=3,
            **optional,
        )
        return [result[0], result[1], result[2]] if attention.has_past else result[0]

    def Instances(self) -> Iterator[onnx.ModelProto]:
        """Yield models of heads of size 8 with a mask of comparisons, and with one of Trilu."""
        positions = "size = Shape <start = 1, end = 2> (q) n = Squeeze (size) "
        constants = CONSTANTS.replace("2, 4}", "2, 8}").replace("0, 8}", "0, 16}")
        for mask in (
            """columns = Range (first, n, step) rows = Unsqueeze (columns, axis)
            le = LessOrEqual (columns, rows) w = Where (le, zero, low) a = Add (s, w)""",
            """square = Concat <axis = 0> (size, size) lows = Expand (low, square)
            w = Trilu <upper = 1> (lows, step) a = Add (s, w)""",
        ):
            yield instance(
                QKV.replace("B, S, 8", "2, 3, 16"),
                positions + ATTENTION.format(masked=mask),
                result="float[2, 3, 16] y",
                constants=f"""{constants}, int64 first = {{0}}, int64 step = {{1}},
                int64[1] axis = {{1}}""",
            )


@hookimpl
def gehost_tune_kinds(registry: Any) -> None:
    """Causal attention, where attention is kept."""
    registry.add("causal attention", ["OrtCausalAttentionPass"])
