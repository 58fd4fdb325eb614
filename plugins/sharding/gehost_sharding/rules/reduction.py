"""Rules of reductions and of operators that see a whole axis."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import onnx

from gehost_sharding.rules.elementwise import align
from gehost_sharding.rules.rule import (
    NEED,
    PASS,
    REDUCE,
    Dim,
    Factors,
    Instance,
    Layout,
    LocalNode,
    Rule,
    replicate,
)
from gehost_sharding.sharding import (
    PARTIAL_MAX,
    PARTIAL_MIN,
    PARTIAL_PROD,
    PARTIAL_SUM,
    Shape,
)

COMBINERS = {
    "ReduceSum": PARTIAL_SUM,
    "ReduceMean": PARTIAL_SUM,
    "ReduceL1": PARTIAL_SUM,
    "ReduceSumSquare": PARTIAL_SUM,
    "ReduceMax": PARTIAL_MAX,
    "ReduceMin": PARTIAL_MIN,
    "ReduceProd": PARTIAL_PROD,
    "ReduceL2": None,
    "ReduceLogSum": None,
    "ReduceLogSumExp": None,
}
"""How partial results combine; None if they do not, so that reduced dimensions must be whole."""


def reduce_axes(instance: Instance) -> tuple[int, ...] | None:
    """Reduced dimensions of a Reduce operator; None if they are not constant."""
    rank = len(instance.shape(0))
    if instance.operand(1) is not None:
        axes_input = instance.constants.get(1)
        if axes_input is None:
            return None
        axes = [int(axis) for axis in axes_input.reshape(-1)]
    else:
        axes = [int(axis) for axis in instance.attribute("axes", ())]
    if not axes:
        return () if instance.attribute("noop_with_empty_axes", 0) else tuple(range(rank))
    return tuple(sorted({axis % rank for axis in axes}))


def _reduced(factors: Factors, size: int, combiner: int | None) -> Dim:
    return factors.add(size, NEED) if combiner is None else factors.add(size, REDUCE, combiner)


def reduce(instance: Instance) -> Rule:
    """Kept dimensions pass; reduced ones are *reduce* if partial results combine, else *need*."""
    axes = reduce_axes(instance)
    if axes is None:
        return replicate(instance)
    shape = instance.shape(0)
    combiner = COMBINERS[instance.op]
    dtype = instance.dtypes[0]
    if instance.op == "ReduceMean" and (dtype is None or dtype.kind in "iu"):
        combiner = None  # a mean of integers is rounded, a sum of rounded means differs
    factors = Factors()
    data = tuple(
        _reduced(factors, size, combiner) if dim in axes else factors.add(size)
        for dim, size in enumerate(shape)
    )
    keeps = instance.attribute("keepdims", 1)
    result = tuple(
        () if dim in axes else layout for dim, layout in enumerate(data) if keeps or dim not in axes
    )
    operands = [data, *(factors.need(shape) for shape in instance.operands[1:])]
    return factors.rule(operands, [result], math.prod(shape))


def divide_mean(local: LocalNode) -> None:
    """Divide the mean of one rank's piece by the number of pieces; their sum is the whole mean."""
    pieces = math.prod(
        local.pieces(index)
        for index, factor in enumerate(local.rule.factors)
        if factor.kind == REDUCE
    )
    if pieces == 1:
        return
    result = local.node.output[0]
    scale = local.add_constant(np.array(1 / pieces, local.instance.dtypes[0]), f"{result}/share")
    local.node.output[0] = f"{result}/mean_of_piece"
    local.after.append(onnx.helper.make_node("Mul", [local.node.output[0], scale], [result]))


def _whole(is_whole: Callable[[int, int], bool], instance: Instance) -> Rule:
    """All dimensions pass but those that ``is_whole(dim, rank)`` picks; results as the operand."""
    shape = instance.shape(0)
    factors = Factors()
    data = tuple(
        factors.add(size, NEED if is_whole(dim, len(shape)) else PASS)
        for dim, size in enumerate(shape)
    )
    operands = [data, *(factors.need(extra) for extra in instance.operands[1:])]
    return factors.rule(operands, [data] * len(instance.results), 5 * math.prod(shape))


def softmax(instance: Instance) -> Rule:
    """Softmax, LogSoftmax, Hardmax: the axis must be whole; below opset 13 all from it on."""
    if instance.opset < 13:
        axis = instance.attribute("axis", 1)
        return _whole(lambda dim, rank: dim >= axis % max(rank, 1), instance)
    axis: int = instance.attribute("axis", -1)
    return _whole(lambda dim, rank: dim == axis % rank, instance)


def cumsum(instance: Instance) -> Rule:
    """CumSum, CumProd: the axis must be whole."""
    axis = instance.constants.get(1)
    if axis is None:
        return replicate(instance)
    return _whole(lambda dim, rank: dim == int(axis.reshape(-1)[0]) % rank, instance)


def layer_normalization(instance: Instance) -> Rule:
    """Dimensions from ``axis`` on must be whole, in scale and bias too; the rest pass."""
    shape = instance.shape(0)
    rank = len(shape)
    axis: int = instance.attribute("axis", -1) % rank
    factors = Factors()
    data = tuple(factors.add(size, NEED if dim >= axis else PASS) for dim, size in enumerate(shape))
    operands: list[tuple[Dim, ...] | None] = [data]
    for extra in instance.operands[1:]:
        if extra is None:
            operands.append(None)
            continue
        offset = rank - len(extra)
        operands.append(
            tuple(() if size == 1 else data[offset + dim] for dim, size in enumerate(extra))
        )
    statistics = tuple(layout if dim < axis else () for dim, layout in enumerate(data))
    return factors.rule(operands, [data, statistics, statistics], 8 * math.prod(shape))


def skip_normalization(instance: Instance) -> Rule:
    """(…, h), skip, (h)… -> (…, h), statistics, the sum: h must be whole; the rest pass."""
    shape = instance.shape(0)
    factors = Factors()
    data = (*(factors.add(size) for size in shape[:-1]), factors.add(shape[-1], NEED))
    operands: list[Layout | None] = [
        None if extra is None else align(data, shape, extra) for extra in instance.operands
    ]
    statistics = (*data[:-1], ())
    return factors.rule(operands, [data, statistics, statistics, data], 8 * math.prod(shape))


def lp_normalization(instance: Instance) -> Rule:
    """LpNormalization: the axis must be whole."""
    axis: int = instance.attribute("axis", -1)
    return _whole(lambda dim, rank: dim == axis % rank, instance)


def instance_normalization(instance: Instance) -> Rule:
    """(n, c, d…), (c), (c): n and c pass; the rest must be whole."""
    shape = instance.shape(0)
    factors = Factors()
    data = tuple(factors.add(size, PASS if dim < 2 else NEED) for dim, size in enumerate(shape))
    return factors.rule([data, (data[1],), (data[1],)], [data], 8 * math.prod(shape))


def group_normalization(instance: Instance) -> Rule:
    """(n, g·c, d…) with a scale and bias of (g) or (g·c): n and the groups pass."""
    return _grouped(instance, instance.attribute("num_groups", 1), channel=1)


def group_norm(instance: Instance) -> Rule:
    """GroupNorm, SkipGroupNorm of com.microsoft: as GroupNormalization; channels may be last."""
    last = instance.attribute("channels_last", 1)
    return _grouped(instance, instance.attribute("groups", 1), channel=-1 if last else 1)


def _grouped(instance: Instance, groups: int, channel: int) -> Rule:
    shape = instance.shape(0)
    channel %= len(shape)
    factors = Factors()
    group = factors.add(groups)
    channels = group + factors.add(shape[channel] // groups, NEED)
    data = tuple(
        channels if dim == channel else factors.add(size, NEED if dim else PASS)
        for dim, size in enumerate(shape)
    )

    def layout(extra: Shape) -> Layout:
        if len(extra) == 1:
            return (group if extra[0] == groups else channels,)
        if len(extra) == len(shape):
            return align(data, shape, extra)
        return (data[0], channels)

    operands = [None if extra is None else layout(extra) for extra in instance.operands[1:]]
    return factors.rule([data, *operands], [data, data], 8 * math.prod(shape))


def divide_groups(local: LocalNode) -> None:
    """Divide the number of groups among the pieces."""
    name = "num_groups" if local.instance.op == "GroupNormalization" else "groups"
    groups = local.instance.attribute(name, 1)
    if groups > 1:  # the first factor
        local.set_attribute(name, groups // local.pieces(0))


def local_response(instance: Instance) -> Rule:
    """LRN: sums over neighbouring channels, so c must be whole."""
    return _whole(lambda dim, _rank: dim == 1, instance)


def arg_reduce(instance: Instance) -> Rule:
    """ArgMax, ArgMin: the axis must be whole."""
    shape = instance.shape(0)
    axis: int = instance.attribute("axis", 0) % max(len(shape), 1)
    factors = Factors()
    data = tuple(factors.add(size, NEED if dim == axis else PASS) for dim, size in enumerate(shape))
    keeps = instance.attribute("keepdims", 1)
    result = tuple(
        () if dim == axis else layout for dim, layout in enumerate(data) if keeps or dim != axis
    )
    return factors.rule([data], [result], math.prod(shape))


def top_k(instance: Instance) -> Rule:
    """TopK: the axis must be whole; the number is an operand that is not split."""
    shape = instance.shape(0)
    axis: int = instance.attribute("axis", -1) % len(shape)
    factors = Factors()
    data = tuple(factors.add(size, NEED if dim == axis else PASS) for dim, size in enumerate(shape))
    chosen = factors.add(instance.results[0][axis], NEED)
    result = (*data[:axis], chosen, *data[axis + 1 :])
    operands = [data, *(factors.need(extra) for extra in instance.operands[1:])]
    return factors.rule(operands, [result, result], 4 * math.prod(shape))
