"""Rules of attention: batch and heads pass, keys must be whole, queries pass where all see all.

Heads are a factor of the hidden dimension, major to the elements of a head. Where several heads of
the queries share one of the keys, that one is the factor and its group is minor to it.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from onnx import helper

from gehost_sharding.rules.rule import (
    NEED,
    PASS,
    Dim,
    Factors,
    Instance,
    Layout,
    LocalNode,
    Rule,
    replicate,
)
from gehost_sharding.sharding import Shape


class _Parts(NamedTuple):
    """Factors of one attention; lengths and head sizes are those of the layouts."""

    batch: Dim
    heads: Dim
    kv_heads: Dim
    queries: Dim
    keys: Dim


def _broadcast(factors: Factors, shape: Shape, layout: Layout) -> Layout:
    """Lay out an operand that broadcasts into ``layout``; other sizes are factors of their own."""
    dims = layout[len(layout) - len(shape) :]
    sizes = [math.prod(factors.factors[factor].size for factor in dim) for dim in dims]
    return tuple(
        dim if size == own else factors.add(size, NEED)
        for dim, size, own in zip(dims, shape, sizes, strict=True)
    )


def attention(instance: Instance) -> Rule:
    """ONNX's Attention: (b, h, q, d), (b, h, k, d), (b, h, k, v) -> (b, h, q, v), or (b, q, h·d).

    Queries must be whole where a query's position decides which keys it sees.
    """
    q, k, v = instance.shape(0), instance.shape(1), instance.shape(2)
    is_flat = len(q) == 3
    heads = instance.attribute("q_num_heads", 0) if is_flat else q[1]
    kv_heads = instance.attribute("kv_num_heads", 0) if is_flat else k[1]
    if not heads or not kv_heads or heads % kv_heads:
        return replicate(instance)
    size, value_size = (q[2] // heads, v[2] // kv_heads) if is_flat else (q[3], v[3])
    windows = [instance.attribute(f"{side}_window_size", -1) for side in ("left", "right")]
    sees_all = not instance.attribute("is_causal", 0) and max(windows) < 0
    factors = Factors()
    of_kv = factors.add(kv_heads)
    parts = _Parts(
        factors.add(q[0]),
        of_kv + factors.add(heads // kv_heads),
        of_kv,
        factors.add(q[-2], PASS if sees_all else NEED),
        factors.add(k[-2], NEED),
    )
    d, dv = factors.add(size, NEED), factors.add(value_size, NEED)

    def layout(of_heads: Dim, length: Dim, element: Dim) -> Layout:
        if is_flat:
            return (parts.batch, length, of_heads + element)
        return (parts.batch, of_heads, length, element)

    past, total = instance.operand(4), parts.keys
    if past is not None:
        total = factors.add(k[-2] + past[2], NEED)
    operands: list[Layout | None] = [
        layout(parts.heads, parts.queries, d),
        layout(parts.kv_heads, parts.keys, d),
        layout(parts.kv_heads, parts.keys, dv),
    ]
    scores = (parts.batch, parts.heads, parts.queries, total)
    for slot, shape in enumerate(instance.operands[3:], start=3):
        if shape is None:
            operands.append(None)
        elif slot == 3:
            operands.append(_broadcast(factors, shape, scores))
        elif slot in {4, 5}:
            element = d if slot == 4 else dv
            operands.append((parts.batch, of_kv, factors.add(shape[2], NEED), element))
        else:
            operands.append((parts.batch,))
    results = [
        layout(parts.heads, parts.queries, dv),
        (parts.batch, of_kv, total, d),
        (parts.batch, of_kv, total, dv),
        scores,
    ]
    whole = k[-2] + (past[2] if past is not None else 0)
    flops = 2 * q[0] * heads * q[-2] * whole * (size + value_size)
    return factors.rule(operands, results, flops)


def multi_head_attention(instance: Instance) -> Rule:
    """MultiHeadAttention of com.microsoft: (b, q, h·d), (b, k, h·d) or (b, h, k, d) -> (b, q, h·v).

    The bias of q, k and v in one is whole; a rank takes the elements of its heads from it.
    """
    q, k, v = instance.shape(0), instance.operand(1), instance.operand(2)
    heads = instance.attribute("num_heads", 1)
    mask, past = instance.operand(4), instance.operand(6)
    if k is None or v is None or len(k) == 5:  # packed
        return replicate(instance)
    if any(instance.operands[8:]):  # a buffer that past and present share
        return replicate(instance)
    size, value_size = q[2] // heads, v[3] if len(v) == 4 else v[2] // heads
    length = k[-2]
    total_size = length + (past[2] if past is not None else 0)
    factors = Factors()
    has_lengths = mask is not None and len(mask) == 1
    batch = factors.add(q[0], NEED if has_lengths and mask != (q[0],) else PASS)
    of_heads = factors.add(heads)
    queries = factors.add(q[1], NEED if instance.attribute("unidirectional", 0) else PASS)
    keys = factors.add(length, NEED)
    d, dv = factors.add(size, NEED), factors.add(value_size, NEED)
    total = keys if past is None else factors.add(total_size, NEED)
    scores = (batch, of_heads, queries, total)

    def read(shape: Shape, element: Dim) -> Layout:
        if len(shape) == 4:
            return (batch, of_heads, keys, element)
        return (batch, keys, of_heads + element)

    bias = instance.operand(5)
    operands: list[Layout | None] = [
        (batch, queries, of_heads + d),
        read(k, d),
        read(v, dv),
        factors.need(instance.operand(3)),
        None if mask is None else _mask(factors, mask, batch, queries),
        None if bias is None else _broadcast(factors, bias, scores),
    ]
    for slot, element in ((6, d), (7, dv)):
        shape = instance.operand(slot)
        before = () if shape is None else factors.add(shape[2], NEED)
        operands.append(None if shape is None else (batch, of_heads, before, element))
    operands += [None] * (len(instance.operands) - 8)
    results = [
        (batch, queries, of_heads + dv),
        (batch, of_heads, total, d),
        (batch, of_heads, total, dv),
        scores,
    ]
    flops = 2 * q[0] * heads * q[1] * total_size * (size + value_size)
    return factors.rule(operands[: len(instance.operands)], results, flops)


def _mask(factors: Factors, shape: Shape, batch: Dim, queries: Dim) -> Layout:
    """Lay out a mask of keys: (b), (b, k), (b, q, k), or another that is whole but for b."""
    dims = [
        batch
        if dim == 0 and batch and factors.factors[batch[0]].size == size
        else queries
        if dim == 1 and len(shape) == 3 and size > 1
        else factors.add(size, NEED)
        for dim, size in enumerate(shape)
    ]
    return tuple(dims)


def packed_attention(instance: Instance) -> Rule:
    """Attention of com.microsoft: (b, s, i), (i, q+k+v) -> (b, s, h·d), with the projection inside.

    Weights and bias of q, k and v in one are whole; a rank takes the columns of its heads.
    """
    x, weights = instance.shape(0), instance.shape(1)
    heads = instance.attribute("num_heads", 1)
    sizes = instance.attribute("qkv_hidden_sizes", None) or [weights[1] // 3] * 3
    mask, past = instance.operand(3), instance.operand(4)
    if any(instance.operands[6:]):
        return replicate(instance)
    factors = Factors()
    has_lengths = mask is not None and len(mask) == 1
    batch = factors.add(x[0], NEED if has_lengths and mask != (x[0],) else PASS)
    of_heads = factors.add(heads)
    length = factors.add(x[1], NEED)
    inner = factors.add(x[2], NEED)
    dv = factors.add(sizes[2] // heads, NEED)
    total_size = x[1] + (past[3] if past is not None else 0)
    total = length if past is None else factors.add(total_size, NEED)
    operands: list[Layout | None] = [
        (batch, length, inner),
        (inner, factors.add(weights[1], NEED)),
        factors.need(instance.operand(2)),
        None if mask is None else _mask(factors, mask, batch, length),
    ]
    if past is None:
        operands.append(None)
    else:
        size = factors.add(past[4], NEED)
        before = factors.add(past[3], NEED)
        operands.append((factors.add(2, NEED), batch, of_heads, before, size))
    bias = instance.operand(5)
    scores = (batch, of_heads, length, total)
    operands.append(None if bias is None else _broadcast(factors, bias, scores))
    operands += [None] * (len(instance.operands) - 6)
    present = (factors.add(2, NEED), batch, of_heads, total, factors.add(sizes[0] // heads, NEED))
    flops = 2 * x[0] * x[1] * (math.prod(weights) + total_size * (sizes[0] + sizes[2]))
    results = [(batch, length, of_heads + dv), present]
    return factors.rule(operands[: len(instance.operands)], results, flops)


def group_query_attention(instance: Instance) -> Rule:
    """GroupQueryAttention of com.microsoft: batch and heads of the keys pass.

    Queries must be whole: it is causal. Packed q, k and v have no heads that a piece could hold.
    """
    q, k, v = instance.shape(0), instance.operand(1), instance.operand(2)
    heads, kv_heads = instance.attribute("num_heads", 1), instance.attribute("kv_num_heads", 1)
    is_packed = k is None
    size = q[2] // (heads + 2 * kv_heads if is_packed else heads)
    factors = Factors()
    of_kv = factors.add(kv_heads, NEED if is_packed else PASS)
    group = factors.add(heads // kv_heads, NEED if is_packed else PASS)
    batch, queries, d = factors.add(q[0]), factors.add(q[1], NEED), factors.add(size, NEED)
    of_q = factors.add(q[2], NEED) if is_packed else of_kv + group + d
    keys: Layout = (batch, queries, of_kv + d)
    operands: list[Layout | None] = [(batch, queries, of_q)]
    operands += [None if shape is None else keys for shape in (k, v)]
    past = instance.operand(3)
    before = factors.add(past[2], NEED) if past is not None else ()
    for slot, shape in enumerate(instance.operands[3:], start=3):
        if shape is None:
            operands.append(None)
        elif slot in {3, 4}:
            operands.append((batch, of_kv, before, d))
        elif slot == 5:  # lengths: (b) or (b, 1)
            operands.append((batch, *((),) * (len(shape) - 1)))
        elif slot == 9:
            operands.append(_broadcast(factors, shape, (batch, queries)))
        elif slot == 10 and len(shape) == 4:
            whole = factors.add(shape[3], NEED)
            operands.append(_broadcast(factors, shape, (batch, of_kv + group, queries, whole)))
        elif slot == 11:
            operands.append(_broadcast(factors, shape, (of_kv + group,)))
        else:
            operands.append(factors.need(shape))
    results: list[Layout] = [(batch, queries, of_kv + group + d)]
    for shape in instance.results[1:]:
        if len(shape) != 4 or shape[1] != kv_heads:
            return replicate(instance)
        results.append((batch, of_kv, factors.add(shape[2], NEED), d))
    total = max([q[1], *(shape[2] for shape in instance.results[1:])])
    return factors.rule(operands, results, 4 * q[0] * heads * q[1] * total * size)


def divide_heads(local: LocalNode) -> None:
    """Divide the numbers of heads among the pieces; cut weights and biases of q, k and v in one."""
    rule, instance = local.rule, local.instance
    result = rule.results[0]
    if len(result) == 4:  # no attribute has the number
        return
    pieces = _pieces(local, result[2])
    for name in ("num_heads", "q_num_heads"):
        if name in instance.attributes:
            local.set_attribute(name, instance.attributes[name] // pieces)
    if "kv_num_heads" in instance.attributes:
        keys = rule.operands[1]
        of_keys = _pieces(local, keys[2]) if keys is not None else 1
        local.set_attribute("kv_num_heads", instance.attributes["kv_num_heads"] // of_keys)
    if pieces == 1:
        return
    if instance.op == "com.microsoft::MultiHeadAttention" and instance.operand(3) is not None:
        hidden = instance.shape(0)[2]
        sizes = [hidden, hidden, instance.shape(3)[0] - 2 * hidden]
        _take_heads(local, 3, sizes, result[2][0])
    if instance.op == "com.microsoft::Attention":
        columns = instance.shape(1)[1]
        sizes = instance.attribute("qkv_hidden_sizes", None) or [columns // 3] * 3
        for slot in (1, 2):
            if instance.operand(slot) is not None:
                _take_heads(local, slot, sizes, result[2][0])
        if "qkv_hidden_sizes" in instance.attributes:
            local.set_attribute("qkv_hidden_sizes", [size // pieces for size in sizes])


def _pieces(local: LocalNode, dim: Dim) -> int:
    return local.pieces(dim[0]) if dim else 1


def _take_heads(local: LocalNode, slot: int, sizes: list[int], heads: int) -> None:
    """Take this rank's share of each of the parts that the last dimension of an operand has."""
    pieces, place = local.pieces(heads), local.position(heads)
    starts = np.cumsum([0, *sizes[:-1]])
    own = [
        start + np.arange(place * size // pieces, (place + 1) * size // pieces)
        for start, size in zip(starts, sizes, strict=True)
    ]
    name = f"{local.node.output[0]}/heads_of_operand_{slot}"
    indices = local.add_constant(np.concatenate(own).astype(np.int64), f"{name}/indices")
    axis = len(local.instance.shape(slot)) - 1
    local.before.append(
        helper.make_node("Gather", [local.node.input[slot], indices], [name], axis=axis)
    )
    local.node.input[slot] = name


def rotary_embedding(instance: Instance) -> Rule:
    """RotaryEmbedding of ONNX and com.microsoft: all passes but the elements of a head.

    Positions may be left out: then the tables have one row for each.
    """
    x = instance.shape(0)
    is_contrib = instance.op.startswith("com.microsoft")
    if instance.attribute("is_packed_batching", 0):
        return replicate(instance)
    tables = (2, 3) if is_contrib else (1, 2)
    heads = instance.attribute("num_heads", 0)
    if len(x) == 3 and not heads:
        rotated = instance.attribute("rotary_embedding_dim", 0)
        heads = 1 if rotated else x[2] // (2 * instance.shape(tables[0])[-1])
    positions = instance.operand(1 if is_contrib else 3)
    factors = Factors()
    batch = factors.add(x[0])
    # one number: where the sequence starts
    starts = is_contrib and positions is not None and math.prod(positions) == 1
    steps = factors.add(x[-2], NEED if starts else PASS)
    if len(x) == 4:
        data = (batch, factors.add(x[1]), steps, factors.add(x[3], NEED))
    else:
        data = (batch, steps, factors.add(heads) + factors.add(x[2] // heads, NEED))
    operands: list[Layout | None] = [data]
    for slot, shape in enumerate(instance.operands[1:], start=1):
        if shape is None:
            operands.append(None)
        elif slot in tables:  # (positions, elements), or (b, s, elements)
            steps_of = shape[:-1] if len(shape) == 3 else ()
            laid = _broadcast(factors, steps_of, (batch, steps))
            operands.append((*laid, *(factors.add(size, NEED) for size in shape[len(laid) :])))
        else:
            laid = (batch, steps) if len(shape) == 2 else (steps,)
            operands.append(_broadcast(factors, shape, laid))
    return factors.rule(operands, [data], 6 * math.prod(x))


def divide_rotary_heads(local: LocalNode) -> None:
    """Divide the number of heads of a RotaryEmbedding among the pieces."""
    heads = local.instance.attribute("num_heads", 0)
    layout = local.rule.results[0]
    if heads and len(layout) == 3:
        local.set_attribute("num_heads", heads // _pieces(local, layout[2]))
    elif heads:
        local.set_attribute("num_heads", heads // _pieces(local, layout[1]))
