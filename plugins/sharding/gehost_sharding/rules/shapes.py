"""Rules of operators that move or copy elements: shapes, slices, joins."""

from __future__ import annotations

import math

import numpy as np

from gehost_sharding.rules.elementwise import align
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


def common_factors(a: Shape, b: Shape, factors: Factors) -> tuple[Layout, Layout]:
    """Factor two shapes of equal size from the left: (64), (4, 16) -> ((4·16), (4), (16)).

    Parts without a common factor must be whole.
    """
    layouts: tuple[list[list[int]], list[list[int]]] = ([[] for _ in a], [[] for _ in b])
    if 0 in a or 0 in b:
        for layout, shape in zip(layouts, (a, b), strict=True):
            for dim, size in zip(layout, shape, strict=True):
                dim.extend(factors.add(size, NEED))
        return _frozen(layouts[0]), _frozen(layouts[1])
    i = j = 0
    left_a, left_b = 1, 1
    while True:
        while left_a == 1 and i < len(a):
            left_a, i = a[i], i + 1
        while left_b == 1 and j < len(b):
            left_b, j = b[j], j + 1
        if left_a == 1 and left_b == 1:
            break
        common = math.gcd(left_a, left_b)
        if common > 1:
            (factor,) = factors.add(common)
            layouts[0][i - 1].append(factor)
            layouts[1][j - 1].append(factor)
            left_a, left_b = left_a // common, left_b // common
            continue
        layouts[0][i - 1].extend(factors.add(left_a, NEED))
        layouts[1][j - 1].extend(factors.add(left_b, NEED))
        while left_a != left_b:  # go on where both have covered the same number of elements
            if left_a < left_b:
                layouts[0][i].extend(factors.add(a[i], NEED))
                left_a, i = left_a * a[i], i + 1
            else:
                layouts[1][j].extend(factors.add(b[j], NEED))
                left_b, j = left_b * b[j], j + 1
        left_a = left_b = 1
    return _frozen(layouts[0]), _frozen(layouts[1])


def _frozen(layout: list[list[int]]) -> Layout:
    return tuple(tuple(dim) for dim in layout)


def reshape(instance: Instance) -> Rule:
    """Reshape, Flatten, Squeeze, Unsqueeze: common factors from the left."""
    factors = Factors()
    data, result = common_factors(instance.shape(0), instance.results[0], factors)
    operands = [data, *(factors.need(extra) for extra in instance.operands[1:])]
    return factors.rule(operands, [result], 0)


def local_result_shape(local: LocalNode) -> None:
    """Make a Reshape or Expand write the local shape."""
    if local.instance.op == "Reshape" and local.instance.opset < 5:
        local.set_attribute("shape", list(local.result_shapes[0]))
        return
    shape = np.array(local.result_shapes[0], np.int64)
    local.node.input[1] = local.add_constant(shape, f"{local.node.output[0]}/shape")
    if local.instance.op == "Reshape" and 0 in local.result_shapes[0]:
        local.set_attribute("allowzero", 1)


def squeeze_by_reshape(local: LocalNode) -> None:
    """Make a Squeeze a Reshape: a local dimension of size 1 need not be one of the whole."""
    local.node.op_type = "Reshape"
    del local.node.attribute[:]
    shape = np.array(local.result_shapes[0], np.int64)
    del local.node.input[1:]
    local.node.input.append(local.add_constant(shape, f"{local.node.output[0]}/shape"))


def local_fill_shape(local: LocalNode) -> None:
    """Make a ConstantOfShape fill the local shape."""
    shape = np.array(local.result_shapes[0], np.int64)
    local.node.input[0] = local.add_constant(shape, f"{local.node.output[0]}/shape")


def constant_of_shape(instance: Instance) -> Rule:
    """All result dimensions pass; the shape operand is not split."""
    factors = Factors()
    result = tuple(factors.add(size) for size in instance.results[0])
    return factors.rule([factors.need(instance.operand(0))], [result], 0)


def expand(instance: Instance) -> Rule:
    """As elementwise in operand 0; the shape operand is not split."""
    factors = Factors()
    shape = instance.results[0]
    result = tuple(factors.add(size) for size in shape)
    data = align(result, shape, instance.shape(0))
    return factors.rule([data, factors.need(instance.operand(1))], [result], 0)


def transpose(instance: Instance) -> Rule:
    """Permuted dimensions."""
    shape = instance.shape(0)
    order = instance.attribute("perm", None) or range(len(shape) - 1, -1, -1)
    factors = Factors()
    data = tuple(factors.add(size) for size in shape)
    return factors.rule([data], [tuple(data[dim] for dim in order)], 0)


def _equal_sizes(instance: Instance, whole: set[int]) -> Rule:
    """Dimensions of equal size in operand 0 and the results pass, unless they are in ``whole``."""
    shape = instance.shape(0)
    factors = Factors()
    data: list[Dim] = []
    for dim, size in enumerate(shape):
        same = all(result[dim] == size for result in instance.results)
        data.append(factors.add(size, PASS if same and dim not in whole else NEED))
    results = [
        tuple(
            data[dim] if size == shape[dim] else factors.add(size, NEED)
            for dim, size in enumerate(result)
        )
        for result in instance.results
    ]
    operands = [tuple(data), *(factors.need(extra) for extra in instance.operands[1:])]
    return factors.rule(operands, results, 0)


def split(instance: Instance) -> Rule:
    """The axis must be whole."""
    rank = len(instance.shape(0))
    return _equal_sizes(instance, {instance.attribute("axis", 0) % rank})


def slice_(instance: Instance) -> Rule:
    """Dimensions that are cut, stepped or reversed must be whole; the rest pass."""
    rank = len(instance.shape(0))
    if instance.opset < 10:
        starts = instance.attribute("starts", ())
        axes = instance.attribute("axes", None) or range(len(starts))
        return _equal_sizes(instance, {axis % rank for axis in axes})
    if instance.operand(3) is not None:
        axes_input = instance.constants.get(3)
        if axes_input is None:
            return replicate(instance)
        return _equal_sizes(instance, {int(axis) % rank for axis in axes_input.reshape(-1)})
    count = math.prod(instance.shape(1))
    return _equal_sizes(instance, set(range(count)))


def pad(instance: Instance) -> Rule:
    """Dimensions that are padded must be whole; the rest pass."""
    rank = len(instance.shape(0))
    if instance.opset < 11:
        given_pads = instance.attribute("pads", None) or instance.attribute("paddings", ())
        pads = [int(value) for value in given_pads]
    else:
        amounts = instance.constants.get(1)
        axes = instance.constants.get(3)
        if amounts is None or (instance.operand(3) is not None and axes is None):
            return replicate(instance)
        pads = [0] * (2 * rank)
        chosen = range(rank) if axes is None else [int(axis) % rank for axis in axes.reshape(-1)]
        values = [int(value) for value in amounts.reshape(-1)]
        for index, dim in enumerate(chosen):
            pads[dim], pads[rank + dim] = values[index], values[len(values) // 2 + index]
    return _equal_sizes(instance, {dim for dim in range(rank) if pads[dim] or pads[rank + dim]})


def tile(instance: Instance) -> Rule:
    """Dimensions that are repeated must be whole; the rest pass."""
    return _equal_sizes(instance, set())


def trilu(instance: Instance) -> Rule:
    """The matrix must be whole; leading dimensions pass."""
    rank = len(instance.shape(0))
    return _equal_sizes(instance, {rank - 2, rank - 1})


def reverse_sequence(instance: Instance) -> Rule:
    """Time must be whole; batch passes, in the lengths too."""
    time: int = instance.attribute("time_axis", 0)
    batch: int = instance.attribute("batch_axis", 1)
    factors = Factors()
    data = tuple(
        factors.add(size, NEED if dim == time else PASS)
        for dim, size in enumerate(instance.shape(0))
    )
    return factors.rule([data, (data[batch],)], [data], 0)


def concat(instance: Instance) -> Rule:
    """The axis must be whole; the rest pass."""
    result_shape = instance.results[0]
    axis: int = instance.attribute("axis", 1) % len(result_shape)
    factors = Factors()
    dims = [() if dim == axis else factors.add(size) for dim, size in enumerate(result_shape)]

    def layout(shape: Shape) -> Layout:
        own = factors.add(shape[axis], NEED)
        return tuple(own if dim == axis else dims[dim] for dim in range(len(shape)))

    operands = [None if shape is None else layout(shape) for shape in instance.operands]
    return factors.rule(operands, [layout(result_shape)], 0)


def depth_space(instance: Instance) -> Rule:
    """DepthToSpace, SpaceToDepth: n passes."""
    shape = instance.shape(0)
    factors = Factors()
    n = factors.add(shape[0])
    data = (n, *(factors.add(size, NEED) for size in shape[1:]))
    result = (n, *(factors.add(size, NEED) for size in instance.results[0][1:]))
    return factors.rule([data], [result], 0)
