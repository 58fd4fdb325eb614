"""Rules of convolutions and pools."""

from __future__ import annotations

import math

from gehost_sharding.rules.contraction import add_bias_once
from gehost_sharding.rules.rule import (
    NEED,
    REDUCE,
    Factors,
    Instance,
    Layout,
    LocalNode,
    Rule,
    replicate,
)


def conv(instance: Instance) -> Rule:
    """N and Cout pass, Cin is *reduce*; with groups, the group passes and the rest is *need*.

    Windows reach over the edge of a piece, so spatial dimensions must be whole, unless the kernel
    has one element, the stride is 1 and nothing is padded.
    """
    x, w, y = instance.shape(0), instance.shape(1), instance.results[0]
    group = instance.attribute("group", 1)
    factors = Factors()
    n = factors.add(x[0])
    if group == 1:
        cin, cout = factors.add(x[1], REDUCE), factors.add(y[1])
        of_x, of_w, of_y = (n, cin), (cout, cin), (n, cout)
    else:
        of_group = factors.add(group)
        cin, cout = factors.add(x[1] // group, NEED), factors.add(y[1] // group, NEED)
        of_x, of_w, of_y = (n, of_group + cin), (of_group + cout, cin), (n, of_group + cout)
    is_pointwise = (
        set(w[2:]) == {1}
        and set(instance.attribute("strides", ())) <= {1}
        and x[2:] == y[2:]
        and not any(instance.attribute("pads", ()))
    )
    spatial_x: Layout
    spatial_y: Layout
    if is_pointwise:
        spatial_x = spatial_y = tuple(factors.add(size) for size in x[2:])
    else:
        spatial_x = tuple(factors.add(size, NEED) for size in x[2:])
        spatial_y = tuple(factors.add(size, NEED) for size in y[2:])
    kernel = tuple(factors.add(size, NEED) for size in w[2:])
    operands: list[Layout | None] = [(*of_x, *spatial_x), (*of_w, *kernel)]
    if len(instance.operands) > 2:
        operands.append(None if instance.operands[2] is None else (of_y[1],))
    flops = 2 * math.prod(y) * math.prod(w[1:])
    return factors.rule(operands, [(*of_y, *spatial_y)], flops)


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
    add_bias_once(local)


def pool(instance: Instance) -> Rule:
    """MaxPool, AveragePool, LpPool and the global ones: N and C pass, the rest must be whole."""
    x, y = instance.shape(0), instance.results[0]
    if len(instance.results) > 1:  # indices count in the whole tensor
        return replicate(instance)
    factors = Factors()
    n, c = factors.add(x[0]), factors.add(x[1])
    of_x = (n, c, *(factors.add(size, NEED) for size in x[2:]))
    of_y = (n, c, *(factors.add(size, NEED) for size in y[2:]))
    window = math.prod(instance.attribute("kernel_shape", None) or x[2:])
    return factors.rule([of_x], [of_y], math.prod(y) * window)
