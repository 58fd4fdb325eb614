"""Rules of Gather and its relatives."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import onnx
from onnx import helper

from gehost_sharding.rules.rule import (
    NEED,
    PASS,
    REDUCE,
    Dim,
    Factors,
    Instance,
    LocalNode,
    Rule,
    replicate,
)

_BY_EXPERTS = (
    "it chooses among all of its experts; a mixture is split by experts where the model has the"
    " dispatch and the sum as Einsums around a MatMul by expert"
)


def gather(instance: Instance) -> Rule:
    """All dimensions pass but the axis, which is *reduce* in a table of numbers.

    A rank that holds some rows looks up those that it has and writes zeros for the others.
    """
    data_shape, index_shape = instance.shape(0), instance.shape(1)
    axis: int = instance.attribute("axis", 0) % len(data_shape)
    factors = Factors()
    kind = REDUCE if _is_table(instance, axis) else NEED
    data = tuple(
        factors.add(size, kind if dim == axis else PASS) for dim, size in enumerate(data_shape)
    )
    indices = tuple(factors.add(size) for size in index_shape)
    return factors.rule([data, indices], [(*data[:axis], *indices, *data[axis + 1 :])], 0)


def _is_table(instance: Instance, axis: int) -> bool:
    """Return True for rows of floats by indices that the model computes."""
    dtype = instance.dtypes[0]
    is_float = dtype is not None and dtype.kind == "f" and dtype.itemsize > 1
    has_rows = len(instance.shape(0)) > 1 and axis == 0
    return is_float and has_rows and 1 not in instance.constants and instance.opset >= 9


def look_up_own_rows(local: LocalNode) -> None:
    """Make a Gather of some rows give zeros for the indices of others."""
    data = local.rule.operands[0]
    assert data is not None
    axis: int = local.instance.attribute("axis", 0) % len(data)
    if not data[axis] or local.pieces(data[axis][0]) == 1:
        return
    whole, rows = local.instance.shape(0)[axis], local.local_operand(0)[axis]
    first = local.position(data[axis][0]) * rows
    dtype = local.instance.dtypes[1] or np.dtype(np.int64)
    indices, result = local.node.input[1], local.node.output[0]

    def constant(value: int, name: str) -> str:
        return local.add_constant(np.array(value, dtype), f"{result}/{name}")

    def add(op: str, operands: list[str], name: str) -> str:
        local.before.append(helper.make_node(op, operands, [f"{result}/{name}"]))
        return f"{result}/{name}"

    zero = constant(0, "zero")
    from_end = add("Less", [indices, zero], "counts_from_end")
    moved = add("Add", [indices, constant(whole, "all_rows")], "from_start")
    place = add("Where", [from_end, moved, indices], "place")
    own = add("Sub", [place, constant(first, "first_row")], "own")
    before = add("Less", [own, zero], "is_before")
    within = add("Less", [own, constant(rows, "rows")], "is_not_behind")
    inside = add("And", [add("Not", [before], "is_not_before"), within], "is_own")
    local.node.input[1] = add("Where", [inside, own, zero], "row")
    # the mask has the dimensions of the indices, the result also those of the data
    count = len(local.result_shapes[0]) - axis
    mask = (*local.local_operand(1), *(1,) * (count - len(local.local_operand(1))))
    shape = local.add_constant(np.array(mask, np.int64), f"{result}/mask_shape")
    column = add("Reshape", [inside, shape], "mask")
    zeros = local.add_constant(np.zeros((), local.instance.dtypes[0]), f"{result}/zero_row")
    local.node.output[0] = f"{result}/looked_up"
    local.after.append(helper.make_node("Where", [column, local.node.output[0], zeros], [result]))


def gather_elements(instance: Instance) -> Rule:
    """Dimensions of equal size pass, but the axis of the data, which must be whole."""
    data_shape, index_shape = instance.shape(0), instance.shape(1)
    axis: int = instance.attribute("axis", 0) % len(data_shape)
    factors = Factors()
    data: list[tuple[int, ...]] = []
    indices: list[tuple[int, ...]] = []
    for dim, (size, count) in enumerate(zip(data_shape, index_shape, strict=True)):
        if dim == axis:
            data.append(factors.add(size, NEED))
            indices.append(factors.add(count))
        elif size == count:
            data.append(factors.add(size))
            indices.append(data[-1])
        else:
            data.append(factors.add(size, NEED))
            indices.append(factors.add(count, NEED))
    return factors.rule([tuple(data), tuple(indices)], [tuple(indices)], 0)


def gather_nd(instance: Instance) -> Rule:
    """Indexed dimensions of the data must be whole; the others, and those of the indices, pass."""
    data_shape, index_shape = instance.shape(0), instance.shape(1)
    batches: int = instance.attribute("batch_dims", 0)
    indexed = batches + index_shape[-1]
    factors = Factors()
    data = tuple(
        factors.add(size, NEED if batches <= dim < indexed else PASS)
        for dim, size in enumerate(data_shape)
    )
    places = (
        *data[:batches],
        *(factors.add(size) for size in index_shape[batches:-1]),
    )
    indices = (*places, factors.add(index_shape[-1], NEED))
    return factors.rule([data, indices], [(*places, *data[indexed:])], 0)


def scatter_elements(instance: Instance) -> Rule:
    """Dimensions of equal size pass, but the axis, which must be whole."""
    data_shape, index_shape = instance.shape(0), instance.shape(1)
    axis: int = instance.attribute("axis", 0) % len(data_shape)
    factors = Factors()
    data: list[Dim] = []
    indices: list[Dim] = []
    for dim, (size, count) in enumerate(zip(data_shape, index_shape, strict=True)):
        passes = dim != axis and size == count
        data.append(factors.add(size, PASS if passes else NEED))
        indices.append(data[-1] if passes else factors.add(count, NEED))
    updates = tuple(indices)
    return factors.rule([tuple(data), updates, updates], [tuple(data)], 0)


def scatter_nd(instance: Instance) -> Rule:
    """Indexed dimensions and those of the indices must be whole; the rest of the data passes."""
    data_shape, index_shape = instance.shape(0), instance.shape(1)
    indexed = index_shape[-1]
    factors = Factors()
    data = tuple(
        factors.add(size, NEED if dim < indexed else PASS) for dim, size in enumerate(data_shape)
    )
    places = tuple(factors.add(size, NEED) for size in index_shape[:-1])
    indices = (*places, factors.add(indexed, NEED))
    return factors.rule([data, indices, (*places, *data[indexed:])], [data], 0)


def tensor_scatter(instance: Instance) -> Rule:
    """TensorScatter: the axis that is written at must be whole; the rest passes."""
    cache, update = instance.shape(0), instance.shape(1)
    axis: int = instance.attribute("axis", -2) % len(cache)
    factors = Factors()
    data = tuple(factors.add(size, NEED if dim == axis else PASS) for dim, size in enumerate(cache))
    output = (*data[:axis], factors.add(update[axis], NEED), *data[axis + 1 :])
    operands = [data, output, *[(data[0],)] * (len(instance.operands) - 2)]
    return factors.rule(operands, [data], 0)


def experts(instance: Instance) -> Rule:
    """MoE and QMoE of com.microsoft: tokens pass; each needs all experts to choose from."""
    x, router = instance.shape(0), instance.shape(1)
    if math.prod(router[:-1]) != math.prod(x[:-1]) or instance.operand(14) is not None:
        return replicate(instance)  # weights of the router of their own
    factors = Factors()
    tokens = [factors.add(size) for size in x[:-1]]
    data = (*tokens, factors.add(x[-1], NEED))
    rows = tuple([factor for dim in tokens for factor in dim])
    choice = (rows, factors.add(router[-1], NEED))
    others = [factors.need(shape) for shape in instance.operands[2:]]
    weights = [math.prod(shape[1:]) for shape in instance.operands[2:] if shape and len(shape) == 3]
    flops = 2 * instance.attribute("k", 1) * math.prod(x[:-1]) * sum(weights)
    rule = factors.rule([data, choice, *others], [data], flops)
    return replace(rule, advice=_BY_EXPERTS)


def read_behind(node: onnx.NodeProto, is_true: str) -> onnx.NodeProto:
    """Return a Where behind a MoE that reads its input too, and has its result.

    ONNX Runtime to 1.31.1 gives the result the memory of an input that nothing reads later, and
    clears it first: the result is zeros.
    """
    result = node.output[0]
    node.output[0] = f"{result}/mixed"
    return helper.make_node("Where", [is_true, node.output[0], node.input[0]], [result])


def keep_input(local: LocalNode) -> None:
    """Keep the input of a MoE, which may be a piece that nothing else reads."""
    is_true = local.add_constant(np.ones((), bool), f"{local.node.output[0]}/true")
    local.after.append(read_behind(local.node, is_true))


def one_hot(instance: Instance) -> Rule:
    """Dimensions of the indices pass; the new one must be whole."""
    shape = instance.shape(0)
    rank = len(shape) + 1
    axis: int = instance.attribute("axis", -1) % rank
    factors = Factors()
    indices = tuple(factors.add(size) for size in shape)
    depth = factors.add(instance.results[0][axis], NEED)
    others = [factors.need(extra) for extra in instance.operands[1:]]
    return factors.rule([indices, *others], [(*indices[:axis], depth, *indices[axis:])], 0)
