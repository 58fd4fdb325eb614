"""Attention for ONNX Runtime's MultiHeadAttention.

``q, kᵀ → MatMul → (Mul) → (Add mask) → Softmax → (Where IsNaN 0) → p;``
``p, v → MatMul → Transpose → Reshape``
``==>   q, k, v, (mask) → com.microsoft::MultiHeadAttention → Reshape``

A row without a position to attend to: over a finite fill (−3.4e38) the operators average v, and so
does the kernel. Over −inf both give NaN, unless a guard replaces it: then the result is 0 there,
which a Where puts back (``rows``: the row of the mask has a finite entry).

All 164 layers of the 13 transformers of the corpus. Kept by ``gehost tune``, with the packed
projections: bert.ts 1.24 (1.16, 1.32), gpt2.ts 1.37 (1.13, 1.57), vit.ts 1.24 (1.15, 1.33),
llama.ts with rotary embedding 1.21 (1.17, 1.25) times as fast (CPU time of one thread, 95 %
intervals).
"""

from __future__ import annotations

import math
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

from ._attention import HEADS_SECOND, Attention, NoMatch, find_attention
from ._instances import ATTENTION, KEEP, QKV, instance
from ._kernels import NO_EMPTY_INPUTS, takes_heads_apart
from ._numbers import numbers, rounded
from ._shapes import Sizes, all_same, remove_dead, same, shape_of, sources_of
from ._types import HALVES, dtype_name, no_kernel

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    import onnx

    from gehost import CustomPassContext, EsTensor, Graph, Node, Value


def _shape(
    inputs: Sequence[TensorType | None], attributes: Mapping[str, Any]
) -> Sequence[TensorType | None]:
    """[B, S, N·V] of query [B, S, N·H] and value [B, T, N·V] or [B, N, T, V]."""
    query, value = inputs[0], inputs[2]
    if query is None or query.shape is None or len(query.shape) != 3:
        return [None]
    width = None
    if value is not None and value.shape is not None:
        last = value.shape[-1]
        if len(value.shape) == 3:
            width = last
        elif isinstance(last, int):
            width = last * int(attributes["num_heads"])
    return [TensorType(query.dtype, (*query.shape[:2], width))]


KERNEL = "com.microsoft::MultiHeadAttention"


@ops.register(KERNEL, shape=_shape, provided_by="onnxruntime>=1.21.1")
def multi_head_attention(
    query: EsTensor,
    key: EsTensor,
    value: EsTensor,
    bias: EsTensor | None = None,
    key_padding_mask: EsTensor | None = None,  # noqa: ARG001 - the kernel's signature
    attention_bias: EsTensor | None = None,
    *,
    num_heads: int,
    scale: float,
) -> EsTensor:
    """Attention over heads; key_padding_mask is not used here.

    Shapes: query [B, S, N·H]; key [B, T, N·H] or [B, N, T, H], value [B, T, N·V] or [B, N, T, V];
    bias [2·N·H + N·V], with key and value of rank 3; attention_bias [B or 1, N or 1, S, T];
    result [B, S, N·V]. All of one type.
    """
    count = np.array([num_heads])
    shape = es.Shape(query)
    if bias is not None:
        width = es.Slice(shape, [2], [3])
        query = query + es.Slice(bias, [0], width)
        key = key + es.Slice(bias, width, es.Mul(width, 2))
        value = value + es.Slice(bias, es.Mul(width, 2), [np.iinfo(np.int64).max])
    batch = es.Slice(shape, [0], [1])
    head = es.Div(es.Slice(shape, [2], [3]), count)
    any_ = np.array([-1])
    q = es.Transpose(
        es.Reshape(query, es.Concat(batch, any_, count, head, axis=0)), perm=[0, 2, 1, 3]
    )

    def split(given: EsTensor, by_head: EsTensor, by_row: EsTensor) -> EsTensor:
        """[B, N, T, H] of either layout; its rank shows which it is."""
        apart = es.Equal(es.Size(es.Shape(given)), 4)
        rows_first = es.Transpose(es.Reshape(given, by_row), perm=[0, 2, 1, 3])
        return es.Where(apart, es.Reshape(given, by_head), rows_first)

    k = split(
        key,
        es.Concat(batch, count, any_, head, axis=0),
        es.Concat(batch, any_, count, head, axis=0),
    )
    length = es.Slice(es.Shape(k), [2], [3])
    v = split(
        value,
        es.Concat(batch, count, length, any_, axis=0),
        es.Concat(batch, length, count, any_, axis=0),
    )
    scores = es.MatMul(q, es.Transpose(k, perm=[0, 1, 3, 2])) * scale
    if attention_bias is not None:
        scores = scores + attention_bias
    mixed = es.MatMul(es.Softmax(scores, axis=-1), v)
    return es.Reshape(es.Transpose(mixed, perm=[0, 2, 1, 3]), np.array([0, 0, -1]))


def unlike_ours(kernel: Node) -> str:
    """Return why a MultiHeadAttention is none that ``OrtAttentionPass`` makes, or "".

    A model may hold others, of other tools: with a padding mask, a past, packed q, k and v.
    """
    if None in (kernel.input(0), kernel.input(1), kernel.input(2)):
        return "kernel: q, k and v in one input"
    for place, value in enumerate(kernel.inputs):
        if value is not None and place not in _OURS:
            return f"kernel: it reads input {place}"
    if set(kernel.attrs) != {"num_heads", "scale"}:
        return f"kernel: attributes {', '.join(sorted(kernel.attrs))}; wanted num_heads and scale"
    if any(value is not None for value in kernel.outputs[1:]):
        return "kernel: it gives keys and values, too"
    bias = kernel.input(3)
    return "kernel: its bias is not constant" if bias is not None and bias.array is None else ""


_OURS = {0, 1, 2, 3, 5}
"""q, k, v, bias, attention_bias."""


@REG_FUSION_PASS(
    stage=CustomPassStage.kAfterOriginGraphOptimize,
    default=False,
    min_opset=13,
    options=[NO_EMPTY_INPUTS],
)
class OrtAttentionPass(FusionBasePass):
    """Fuse attention into ``com.microsoft::MultiHeadAttention``.

    Forms: float32, float16 and bfloat16, also with scores and mask cast to float32;
    the scale as Mul or Div of the product, or its root at q and k; k transposed at once,
    with its heads, or by Reshape, Transpose, Reshape; products over [B, N, S, H] or [B·N, S, H];
    with and without mask; with and without the guard ``Where(IsNaN(p), 0, p)``. q, k and v as
    projections, which the kernel splits into heads, or split already (rotary, repeated heads,
    past), with heads second or third, put together for the kernel where those of v have another
    size; biases of projections go to the kernel.
    Keeps: the numbers for finite scores. A guard also hides NaN that comes from q, k or infinite
    products; the kernel shows it.
    Refuses: ``axis``: softmax over another axis than the last; ``scores``: another operator between
    the product and Softmax, as a scale that is no constant scalar; ``scale``: not positive;
    ``mask``: not proven to be [B or 1, N or 1, S or 1, T] or a tail of that, where a mask of one
    row is expanded, or of each head where a guard makes rows 0; ``shared``: probabilities or others
    are read outside; ``heads``, ``head size``, ``batch``, ``length``: not proven equal, or 0;
    ``layout``: heads of k third, and those of v second; ``dtype``: not float32, float16 or
    bfloat16, or not of one type; ``kernel``: the target has none of the type; ``empty``: a size may
    be 0, which ends the process in the target's release; ``graph``: in a body of If, Loop or Scan.
    Source: com.microsoft.MultiHeadAttention-1 of ONNX Runtime.
    """

    shape_proven = True
    """The kernel's result is [B, S, N·V], like the transposition's: ``_attention`` proves it."""

    def Run(self, graph: Graph, context: CustomPassContext) -> None:
        if graph.depth:
            for softmax in graph.nodes_of("Softmax"):
                context.refuse(softmax, "graph: in a body of If, Loop or Scan")
            return
        masks = Masks(graph, context)
        for softmax in graph.nodes_of("Softmax"):
            try:
                found = find_attention(softmax)
            except NoMatch as reason:
                context.refuse(softmax, str(reason))
                continue
            problem = no_kernel(context, KERNEL, found.q)
            if problem:
                context.refuse(softmax, problem)
                continue
            self._fuse(graph, context, found, masks)
        remove_dead(graph)

    def Instances(self) -> Iterator[onnx.ModelProto]:
        """Yield models without a mask, with an added one, and with a guard against empty rows."""
        mask = "mask = Where (keep, zero, low) a = Add (s, mask)"
        yield instance(QKV, ATTENTION.format(masked="").replace("(a)", "(s)"))
        yield instance(f"{QKV}, {KEEP}", ATTENTION.format(masked=mask))
        guarded = ATTENTION.replace("p = Softmax", "p0 = Softmax").replace(
            "mixed", "nan = IsNaN (p0) p = Where (nan, zero, p0) mixed", 1
        )
        yield instance(f"{QKV}, {KEEP}", guarded.format(masked=mask))

    def _fuse(
        self, graph: Graph, context: CustomPassContext, found: Attention, masks: Masks
    ) -> None:
        rows = None
        problem = masks.attach(graph, found)
        if problem:
            context.refuse(found.softmax, problem)
            return
        if found.mask is not None and found.guarded and not masks.is_finite(found.mask):
            if (shape_of(found.mask) or ())[1:2] != (1,):
                context.refuse(found.softmax, "mask: of each head, where a guard makes rows 0")
                return
            rows = masks.rows(found.mask)
        region = Region.of_nodes(unshared(found))
        if not region:
            context.refuse(found.softmax, region.reason)
            return
        assert not isinstance(region, Refusal)
        result = found.last.outputs[0]
        if result is None or region.results != [result]:
            context.refuse(found.softmax, "shared: a tensor inside is read by others, too")
            return
        target = found.joining.inputs[1]
        assert target is not None
        read = [found.q, found.k, found.v, target, *([] if found.mask is None else [found.mask])]
        given = list(dict.fromkeys([*region.inputs, *read]))
        region = Region(region.graph, given, region.results, region.nodes)
        builder = EsGraphBuilder("attention")
        inputs = dict(zip(given, builder.CreateInputs(len(given)), strict=True))
        query = in_rows(found.q, inputs, found)
        apart = takes_heads_apart(found.k, found.v)
        key, value = (
            inputs[one] if apart and one not in found.rows_first else in_rows(one, inputs, found)
            for one in (found.k, found.v)
        )
        made = es.op(KERNEL)(
            query,
            key,
            value,
            found.bias,
            None,
            None if found.mask is None else inputs[found.mask],
            num_heads=found.heads,
            scale=found.scale,
        )
        if not self._is_joined(found):
            made = es.Reshape(made, inputs[target])
        if result.dtype != found.q.dtype:
            made = es.Cast(made, to=result.dtype)
        replacement = builder.BuildAndReset([made])
        new = context.replace(region, replacement, keep_shared=True)
        if not new:
            return
        assert not isinstance(new, Refusal)
        (kernel,) = [node for node in new if node.op == KERNEL]
        if rows is not None:
            _zero_rows(graph, kernel, rows)

    def _is_joined(self, found: Attention) -> bool:
        """Whether the last Reshape makes the kernel's own shape [B, S, N·V]."""
        before, after = shape_of(found.joining.inputs[0]), shape_of(found.joining.outputs[0])
        if before is None or after is None or len(after) != 3 or not isinstance(before[3], int):
            return False
        return all_same(after, (*before[:2], found.heads * before[3]))


def unshared(found: Attention) -> list[Node]:
    """The nodes that nothing else needs: of others, the kernel's inputs are read besides."""
    inside = set(found.nodes)
    for node in sorted(inside, key=lambda one: one.order, reverse=True):
        outputs = [one for one in node.outputs if one is not None]
        readers = {reader for one in outputs for reader, _ in one.consumers()}
        if node is not found.last and not readers <= inside:
            inside.remove(node)
    return [node for node in found.nodes if node in inside]


def in_rows(value: Value, inputs: Mapping[Value, EsTensor], found: Attention) -> EsTensor:
    """[B, S, N·H] of q, k or v of an attention, in whatever form it is."""
    dims, tensor = shape_of(value), inputs[value]
    if value in found.rows_first:
        return together(tensor, found.heads, dims)
    if len(dims or ()) == 4:
        return together(es.Transpose(tensor, perm=HEADS_SECOND), found.heads, dims)
    return tensor


def together(rows: EsTensor, heads: int, dims: Sizes | None) -> EsTensor:
    """[B, S, N·H] of [B, S, N, H]; ``dims`` end with H."""
    assert dims is not None
    assert isinstance(dims[3], int)
    return es.Reshape(rows, np.array([0, 0, heads * dims[3]]))


def _zero_rows(graph: Graph, kernel: Node, rows: Value) -> None:
    """Put 0 where a mask's row has no position, as the guard does."""
    made = kernel.outputs[0]
    assert made is not None
    assert made.dtype is not None
    zero = graph.add_initializer(
        np.zeros((), made.dtype.numpy), graph.model.fresh_name("OrtAttentionPass_zero")
    )
    inner = graph.release(made)
    name = graph.model.fresh_name("OrtAttentionPass_Where")
    graph.add_node("Where", [rows, inner, zero], [made], name=name, after=kernel)


class Masks:
    """Masks as the kernel takes them, each made once, with the original sizes."""

    def __init__(self, graph: Graph, context: CustomPassContext) -> None:
        self._graph = graph
        self._context = context
        self._sources = sources_of(graph)
        self._expanded: dict[tuple[str, object], Value] = {}
        self._rows: dict[str, Value] = {}
        self._padded: dict[str, Value] = {}
        self._narrowed: dict[str, Value] = {}

    def attach(self, graph: Graph, found: Attention) -> str:
        """Give an attention its mask with all axes; return why that cannot be, or ""."""
        if found.mask is None or found.mask_reader is None:
            return ""
        if not self._narrow(found):
            return f"mask: not proven to hold numbers of {dtype_name(found.q.dtype)} alone"
        mask = self.expanded(found)
        if mask is None:
            return "mask: to be expanded to a size that is none of an input"
        if mask is not found.mask and mask.dtype == found.mask_reader.outputs[0].dtype:
            (slot,) = found.mask_reader.slots_of(found.mask)
            graph.set_input(found.mask_reader, slot, mask)
        found.mask = mask
        return ""

    def _narrow(self, found: Attention) -> bool:
        """Cast a float32 mask to the type of q; whether that changes no number."""
        mask, dtype = found.mask, found.q.dtype
        assert mask is not None
        assert dtype is not None
        if mask.dtype == dtype:
            return True
        held = numbers(mask)
        if held is None or held.between:
            return False
        if any(rounded(number, dtype) != number for number in held.known):
            return False
        if mask.name not in self._narrowed:
            self._narrowed[mask.name] = self._added("Cast", [mask], {"to": int(dtype)}, dtype)
        found.mask = self._narrowed[mask.name]
        return True

    def expanded(self, found: Attention) -> Value | None:
        """Return the mask with all axes, None where sizes cannot be read."""
        assert found.mask is not None
        assert found.mask_reader is not None
        mask = self._of_rank_4(found.mask)
        dims, (*_, rows, columns) = shape_of(mask), found.sizes
        assert dims is not None
        # as wide as the sum: it has T columns, or the product with v fails
        is_wide = same(dims[3], (shape_of(found.mask_reader.outputs[0]) or (None,))[-1])
        wanted = (
            1 if same(dims[2], rows) else rows,
            1 if is_wide or same(dims[3], columns) else columns,
        )
        if wanted == (1, 1):
            return mask
        key = (mask.name, wanted)
        if key not in self._expanded:
            one = self._constant(np.array([1], np.int64))
            counts = [one if size == 1 else self._count(size) for size in wanted]
            known = [count for count in counts if count is not None]
            if len(known) < len(counts):
                return None
            shape = self._added(
                "Concat", [one, one, *known], {"axis": 0}, DataType.INT64, after=mask
            )
            self._expanded[key] = self._added("Expand", [mask, shape], {}, mask.dtype)
        return self._expanded[key]

    def _of_rank_4(self, mask: Value) -> Value:
        rank = len(shape_of(mask) or ())
        if rank == 4:
            return mask
        if mask.name not in self._padded:
            axes = list(range(4 - rank))
            attributes = {} if self._opset >= 13 else {"axes": axes}
            given = [self._constant(np.array(axes))] if self._opset >= 13 else []
            self._padded[mask.name] = self._added(
                "Unsqueeze", [mask, *given], attributes, mask.dtype
            )
        return self._padded[mask.name]

    def _count(self, size: object) -> Value | None:
        """Return a size as a vector, None where it is none of an input."""
        if isinstance(size, int):
            return self._constant(np.array([size], np.int64))
        source = self._sources.get(str(size))
        if source is None:
            return None
        shape = self._added("Shape", [source[0]], {}, DataType.INT64)
        index = self._constant(np.array([source[1]], np.int64))
        return self._added("Gather", [shape, index], {}, DataType.INT64)

    def rows(self, mask: Value) -> Value:
        """Return [B, S, 1]: whether a mask's row has an entry above -inf."""
        if mask.name not in self._rows:
            wide = mask
            if mask.dtype in HALVES:  # few providers compare them
                wide = self._added("Cast", [mask], {"to": int(DataType.FLOAT)}, DataType.FLOAT)
            least = self._constant(np.array(-np.inf, np.float32))
            # ONNX Runtime reduces no empty tensor: without sequences, rows or columns it gives the
            # tensor itself. So a column is added, and one is taken of the result.
            column = self._constant(np.array([0, 0, 0, 0, 0, 0, 0, 1]))
            filled = self._added("Pad", [wide, column, least], {}, DataType.FLOAT)
            zero, one, last = (self._constant(np.array([number])) for number in (0, 1, -1))
            axes = {} if self._opset >= 18 else {"axes": [-1]}
            reduced = [filled, last] if self._opset >= 18 else [filled]
            most = self._added("ReduceMax", reduced, axes, DataType.FLOAT)
            self._graph.set_type(most, TensorType(DataType.FLOAT, (None,) * 4))  # as stated above
            single = self._added("Slice", [most, zero, one, last], {}, DataType.FLOAT)
            flat = self._added("Squeeze", [single, one], {}, DataType.FLOAT)
            self._rows[mask.name] = self._added("Greater", [flat, least], {}, DataType.BOOL)
        return self._rows[mask.name]

    def is_finite(self, mask: Value) -> bool:
        """Proven to hold no infinity."""
        held = numbers(mask)
        return held is not None and all(map(math.isfinite, held.known))

    @property
    def _opset(self) -> int:
        return self._graph.model.opset() or 0

    def _constant(self, array: np.ndarray) -> Value:
        name = self._graph.model.fresh_name("OrtAttentionPass_c")
        return self._graph.add_initializer(array, name)

    def _added(
        self,
        op: str,
        inputs: list[Value],
        attributes: dict[str, Any],
        dtype: DataType | None,
        after: Value | None = None,
    ) -> Value:
        assert dtype is not None
        name = self._graph.model.fresh_name(f"OrtAttentionPass_{op}")
        read = [*inputs, *([] if after is None else [after])]
        producers = [value.producer for value in read if value.producer is not None]
        behind = max(producers, key=lambda node: node.order, default=None)
        node = self._graph.add_node(op, inputs, [name], attributes, name=name, after=behind)
        made = node.outputs[0]
        assert made is not None
        self._context.infer(node)
        return made


@hookimpl
def gehost_tune_kinds(registry: Any) -> None:
    """Attention with all that it pays with: plain sizes, rotations before split heads, packing."""
    registry.add(
        "attention",
        [
            "OrtSizesPass",
            "OrtProjectionPass",
            "OrtMaskedFillPass",
            "OrtWindowMaskPass",
            "OrtMaskSumPass",
            "OrtRotaryPass",
            "OrtAttentionPass",
            "OrtPackedAttentionPass",
        ],
    )
