"""Attention of opset 23 in the place of ONNX Runtime's MultiHeadAttention.

``q, k, v, (mask) → attention → (Where rows, ·, 0)   ==>   q, k, v, (mask') → Attention``

Heads of k and v that are repeated are read once, each for several heads of q.

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
    PassOption,
    Refusal,
    es,
    hookimpl,
)
from gehost_semantic import NO_EMPTY_INPUTS, PLAIN, empty_problem

from ._attention import HEADS_SECOND
from ._instances import ATTENTION, CONSTANTS, KEEP, QKV, instance
from ._kernel_pass import ROWS, KernelPass
from ._masks import held_by
from ._shapes import shape_of
from ._types import dtype_name

if TYPE_CHECKING:
    from collections.abc import Iterator

    import onnx

    from gehost import CustomPassContext, EsTensor, Graph, Value
    from gehost_semantic import AttentionCall

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
class OrtStandardAttentionPass(KernelPass):
    """Fuse attention into ``Attention`` of opset 23.

    Forms: all that ``OrtAttentionPass`` fuses, and what it leaves, as scores capped by Tanh; heads
    of k and v that are repeated are read by several heads of q.
    Keeps: the numbers. A mask that may hold the lowest float32 gets the next larger number there.
    Refuses: what ``OrtAttentionPass`` refuses; ``dtype``: not float32; ``empty``: a batch or length
    may be 0, which the kernel refuses: ``--assume no-empty-inputs`` takes it for granted that none
    is; ``batch``, ``rows``, ``length``: it is 0; ``mask``: not proven to hold no -inf, where no
    guard makes rows without positions 0: ``--assume no-empty-rows`` takes it for granted.
    Source: Attention-23 of ONNX; the kernel of ONNX Runtime.
    """

    takes = frozenset({"empty rows", "groups", "mask", "softcap"})
    kernel = "Attention"

    def Run(self, graph: Graph, context: CustomPassContext) -> Any:
        if graph.depth:
            return NOT_CHANGED
        own = set(graph.nodes_of("Attention"))
        status = super().Run(graph, context)
        for kernel in graph.nodes_of("Attention"):
            if kernel not in own:
                # others may do otherwise with rows without positions
                graph.set_metadata(kernel, "gehost.provided_by", "onnxruntime>=1.28.0")
        return status

    def MeetRequirements(self, attention: AttentionCall) -> bool | Refusal:
        answer = super().MeetRequirements(attention)
        is_zero = attention.description.zero_empty_rows or self.context.options["no_empty_rows"]
        if answer is True and attention.may_have_empty_rows and not is_zero:
            return attention.reject(_NO_PROOF)
        return answer

    def problem(self, attention: AttentionCall) -> str:
        description = attention.description
        if attention.dtype != DataType.FLOAT:  # how it treats masks of others is not known
            return f"dtype: {dtype_name(attention.dtype)}, wanted float32"
        sizes = {
            "batch": description.batch,
            "rows": description.queries,
            "length": description.keys,
        }
        return empty_problem(sizes, assumed=self.context.options["no_empty_inputs"])

    def Replacement(self, attention: AttentionCall) -> EsTensor:
        mask = attention.full_mask
        content = held_by(attention)
        if mask is not None and (content is None or content.may_be(float(LOWEST))):
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
        result = es.op("Attention")(
            *(attention.operand(name, PLAIN[name]) for name in "qkv"), mask, **attributes
        )
        return es.Reshape(es.Transpose(result, perm=HEADS_SECOND), np.array([0, 0, -1]))

    def Instances(self) -> Iterator[onnx.ModelProto]:
        """Yield models with a mask, and with repeated heads, at opset 23."""
        mask = "mask = Where (keep, zero, low) a = Add (s, mask)"
        yield instance(
            f"{QKV}, {KEEP}".translate(_SIZES),
            ATTENTION.format(masked=mask),
            result="float[2, 5, 8] y",
            opset=23,
        )
        repeated = " ".join(
            f"{name}u = Unsqueeze ({name}1, two) {name}e = Expand ({name}u, times) "
            f"{name} = Reshape ({name}e, spread)"
            for name in "kv"
        )
        yield instance(
            "float[B, S, 8] q, float[B, 1, T, 4] k1, float[B, 1, T, 4] v1".translate(_SIZES),
            f"""{repeated} qh = Reshape (q, heads) qt = Transpose <perm = [0, 2, 1, 3]> (qh)
            kt = Transpose <perm = [0, 1, 3, 2]> (k) m = MatMul (qt, kt) s = Mul (m, scale)
            p = Softmax <axis = -1> (s) mixed = MatMul (p, v)
            turned = Transpose <perm = [0, 2, 1, 3]> (mixed) y = Reshape (turned, joined)""",
            result="float[2, 5, 8] y",
            constants=f"""{CONSTANTS}, int64[1] two = {{2}}, int64[5] times = {{1, 1, 2, 1, 1}},
            int64[4] spread = {{0, 2, -1, 4}}""",
            opset=23,
        )


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


@hookimpl
def gehost_tune_kinds(registry: Any) -> None:
    """Standard attention, where attention is kept."""
    registry.add("standard attention", ["OrtStandardAttentionPass"])
