"""Rules of convolutions and pools.

A spatial dimension may be split where each piece of the result needs an equal piece of the operand.
Windows that reach over the edge of a piece read rows of the neighbour: a halo.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from gehost_sharding.rules.contraction import add_bias_once
from gehost_sharding.rules.rule import (
    NEED,
    REDUCE,
    Dim,
    Factors,
    Halo,
    Instance,
    Layout,
    LocalNode,
    Rule,
    replicate,
)
from gehost_sharding.sharding import PARTIAL_MAX, PARTIAL_SUM


class _Window(NamedTuple):
    """The windows along one spatial dimension."""

    kernel: int
    stride: int
    dilation: int
    before: int
    """Padding."""
    after: int


def _windows(instance: Instance, kernel: Sequence[int]) -> list[_Window] | None:
    """Windows of each spatial dimension; None if the attributes leave them open."""
    rank = len(kernel)
    x, y = instance.shape(0)[2:], instance.results[0][2:]
    strides = instance.attribute("strides", None) or [1] * rank
    dilations = instance.attribute("dilations", None) or [1] * rank
    pads = list(instance.attribute("pads", None) or [0] * (2 * rank))
    auto = instance.attribute("auto_pad", b"NOTSET")
    auto = auto.decode() if isinstance(auto, bytes) else auto
    if instance.attribute("ceil_mode", 0) or auto not in {
        "NOTSET",
        "VALID",
        "SAME_UPPER",
        "SAME_LOWER",
    }:
        return None
    if auto != "NOTSET":
        pads = [0] * (2 * rank)
    if auto.startswith("SAME"):
        for dim in range(rank):
            reach = (y[dim] - 1) * strides[dim] + (kernel[dim] - 1) * dilations[dim] + 1
            total = max(reach - x[dim], 0)
            pads[dim] = total // 2 if auto == "SAME_UPPER" else total - total // 2
            pads[rank + dim] = total - pads[dim]
    return [
        _Window(kernel[dim], strides[dim], dilations[dim], pads[dim], pads[rank + dim])
        for dim in range(rank)
    ]


def _spatial(
    instance: Instance, factors: Factors, kernel: Sequence[int]
) -> tuple[Layout, Layout, list[Halo]]:
    """Spatial dimensions of operand and result, and the rows that a piece reads of others.

    They pass where the operand is the result's size times the stride.
    """
    x, y = instance.shape(0)[2:], instance.results[0][2:]
    windows = _windows(instance, kernel)
    of_x: list[Dim] = []
    of_y: list[Dim] = []
    halos: list[Halo] = []
    for dim, (size, result) in enumerate(zip(x, y, strict=True)):
        window = windows[dim] if windows is not None else None
        reach = (window.kernel - 1) * window.dilation if window is not None else 0
        if window is None or size != result * window.stride or window.before > reach or result == 1:
            of_x.append(factors.add(size, NEED))
            of_y.append(factors.add(result, NEED))
            continue
        rows = factors.add(result)
        of_x.append(rows + factors.add(window.stride, NEED))
        of_y.append(rows)
        behind = max(reach - window.before - window.stride + 1, 0)
        if window.before or behind:
            halos.append(Halo(rows[0], dim + 2, window.before, behind))
    return tuple(of_x), tuple(of_y), halos


def conv(instance: Instance) -> Rule:
    """N, Cout and spatial dimensions pass, Cin is *reduce*; with groups they pass in its place.

    FusedConv of com.microsoft is not linear in Cin, which then must be whole.
    """
    x, w, y = instance.shape(0), instance.shape(1), instance.results[0]
    group = instance.attribute("group", 1)
    factors = Factors()
    n = factors.add(x[0])
    if group == 1:
        is_linear = instance.op == "Conv"
        cin, cout = factors.add(x[1], REDUCE if is_linear else NEED), factors.add(y[1])
        of_x, of_w, of_y = (n, cin), (cout, cin), (n, cout)
    else:
        of_group = factors.add(group)
        cin, cout = factors.add(x[1] // group, NEED), factors.add(y[1] // group, NEED)
        of_x, of_w, of_y = (n, of_group + cin), (of_group + cout, cin), (n, of_group + cout)
    spatial_x, spatial_y, halos = _spatial(instance, factors, w[2:])
    kernel = tuple(factors.add(size, NEED) for size in w[2:])
    operands: list[Layout | None] = [(*of_x, *spatial_x), (*of_w, *kernel)]
    result = (*of_y, *spatial_y)
    if len(instance.operands) > 2:
        operands.append(None if instance.operands[2] is None else (of_y[1],))
    if len(instance.operands) > 3:  # a sum that FusedConv adds
        operands.append(None if instance.operands[3] is None else result)
    flops = 2 * math.prod(y) * math.prod(w[1:])
    return factors.rule(operands, [result], flops, halos)


def conv_transpose(instance: Instance) -> Rule:
    """N and Cout pass, Cin is *reduce*; grouped ones pass N only."""
    x, w, y = instance.shape(0), instance.shape(1), instance.results[0]
    factors = Factors()
    n = factors.add(x[0])
    is_grouped = instance.attribute("group", 1) != 1
    cin = factors.add(x[1], NEED if is_grouped else REDUCE)
    cout = factors.add(y[1], NEED) if is_grouped else factors.add(y[1])
    of_w = (factors.add(w[0], NEED), factors.add(w[1], NEED)) if is_grouped else (cin, cout)
    operands: list[Layout | None] = [
        (n, cin, *(factors.add(size, NEED) for size in x[2:])),
        (*of_w, *(factors.add(size, NEED) for size in w[2:])),
    ]
    if len(instance.operands) > 2:
        operands.append(None if instance.operands[2] is None else (cout,))
    result = (n, cout, *(factors.add(size, NEED) for size in y[2:]))
    return factors.rule(operands, [result], 2 * math.prod(x) * math.prod(w[1:]))


def localize_conv(local: LocalNode) -> None:
    """Divide the number of groups among the pieces; only one summand of Cin adds the bias."""
    group = local.instance.attribute("group", 1)
    if group > 1:
        of_group = local.rule.operands[0]
        assert of_group is not None
        local.set_attribute("group", group // local.pieces(of_group[1][0]))
    pad_own_edges(local)
    if local.instance.op == "Conv":
        add_bias_once(local)


def pad_own_edges(local: LocalNode) -> None:
    """Pad a split spatial dimension at the ends of the whole alone."""
    split = {halo.dim for halo in local.rule.halos if local.pieces(halo.factor) > 1}
    if not split:
        return
    kernel = local.instance.attribute("kernel_shape", None) or local.instance.shape(1)[2:]
    windows = _windows(local.instance, kernel)
    assert windows is not None
    before = [window.before for window in windows]
    after = [window.after for window in windows]
    for halo in local.rule.halos:
        if halo.dim in split:
            place, pieces = local.position(halo.factor), local.pieces(halo.factor)
            before[halo.dim - 2] = halo.before if place == 0 else 0
            after[halo.dim - 2] = halo.after if place == pieces - 1 else 0
    for index in reversed(range(len(local.node.attribute))):
        if local.node.attribute[index].name == "auto_pad":
            del local.node.attribute[index]
    local.set_attribute("pads", [*before, *after])


def pool(instance: Instance) -> Rule:
    """MaxPool, AveragePool, LpPool: N, C and spatial dimensions pass."""
    x, y = instance.shape(0), instance.results[0]
    if len(instance.results) > 1:  # indices count in the whole tensor
        return replicate(instance)
    factors = Factors()
    n, c = factors.add(x[0]), factors.add(x[1])
    kernel = instance.attribute("kernel_shape", ())
    spatial_x, spatial_y, halos = _spatial(instance, factors, kernel)
    flops = math.prod(y) * math.prod(kernel)
    return factors.rule([(n, c, *spatial_x)], [(n, c, *spatial_y)], flops, halos)


def global_pool(instance: Instance) -> Rule:
    """N and C pass; the rest is *reduce* in GlobalAveragePool and GlobalMaxPool, else *need*."""
    x = instance.shape(0)
    factors = Factors()
    n, c = factors.add(x[0]), factors.add(x[1])
    kind = NEED if instance.op == "GlobalLpPool" else REDUCE
    combine = PARTIAL_MAX if instance.op == "GlobalMaxPool" else PARTIAL_SUM
    spatial = [factors.add(size, kind, combine) for size in x[2:]]
    return factors.rule([(n, c, *spatial)], [(n, c, *((),) * len(spatial))], math.prod(x))
