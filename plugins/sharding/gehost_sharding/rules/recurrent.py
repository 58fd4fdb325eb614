"""Rules of recurrent operators: batch and direction pass; time, gates and inputs must be whole."""

from __future__ import annotations

import math

from gehost_sharding.rules.rule import NEED, Factors, Instance, Layout, LocalNode, Rule, replicate


def recurrent(instance: Instance) -> Rule:
    """(t, b, i), (d, g·h, i), (d, g·h, h)… -> (t, d, b, h), (d, b, h): batch and direction pass.

    A rank that has one of two directions runs that one alone.
    """
    x, weights, state = instance.shape(0), instance.shape(1), instance.shape(2)[2]
    is_batch_first = instance.attribute("layout", 0)
    if {"activation_alpha", "activation_beta"} & instance.attributes.keys():
        return replicate(instance)  # one list, with an entry for each activation that needs one
    factors = Factors()
    directions = factors.add(weights[0])
    batch = factors.add(x[0 if is_batch_first else 1])
    time = factors.add(x[1 if is_batch_first else 0], NEED)
    hidden = factors.add(state, NEED)

    def states(*last: tuple[int, ...]) -> Layout:
        return (batch, directions, *last) if is_batch_first else (directions, batch, *last)

    operands: list[Layout | None] = []
    for slot, shape in enumerate(instance.operands):
        if shape is None:
            operands.append(None)
        elif slot == 0:
            inner = factors.add(shape[2], NEED)
            operands.append((batch, time, inner) if is_batch_first else (time, batch, inner))
        elif slot == 4:
            operands.append((batch,))
        elif slot in {5, 6}:
            operands.append(states(hidden))
        else:
            operands.append((directions, *(factors.add(size, NEED) for size in shape[1:])))
    every: Layout = (batch, time, directions, hidden)
    if not is_batch_first:
        every = (time, directions, batch, hidden)
    flops = 2 * math.prod(x[:2]) * math.prod(weights[:2]) * (x[2] + state)
    return factors.rule(operands, [every, states(hidden), states(hidden)], flops)


def own_direction(local: LocalNode) -> None:
    """Name the one direction that this rank has of two, and its activations."""
    layout = local.rule.operands[1]
    if layout is None or not layout[0] or local.pieces(layout[0][0]) == 1:
        return
    place = local.position(layout[0][0])
    local.set_attribute("direction", "reverse" if place else "forward")
    activations = local.instance.attribute("activations", None)
    if activations:
        half = len(activations) // 2
        own = activations[half * place : half * (place + 1)]
        local.set_attribute("activations", own)
