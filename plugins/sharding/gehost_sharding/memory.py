"""Bytes of tensors that a device holds at once while it runs its part of a plan."""

from __future__ import annotations

import itertools

from gehost_sharding.assignment import Assignment
from gehost_sharding.sharding import Sharding, local_elements


def activation_bytes(assignment: Assignment) -> int:
    """The largest sum of inputs, results and redistributed copies that are alive at once.

    Operators run in the order of the model. A tensor lives until its last reader ran, an output
    until the end, a redistributed copy from its first reader to its last. Pieces on the way of a
    redistribution of several moves are left out, and so is a runtime's work space in an operator.
    """
    graph = assignment.graph
    end = max(len(graph.operators) - 1, 0)
    change = [0] * (end + 2)

    def alive(name: str, sharding: Sharding, first: int, last: int) -> None:
        tensor = graph.tensors[name]
        elements = local_elements(assignment.mesh, tensor.shape, sharding)
        size = elements * tensor.dtype.itemsize
        change[first] += size
        change[last + 1] -= size

    for name in {*graph.inputs, *graph.producer}:
        wanted: dict[Sharding, list[int]] = {}
        for operator, slot in graph.readers.get(name, ()):
            sharding = assignment.strategy(operator).operands[slot]
            if sharding is not None:
                wanted.setdefault(sharding, []).append(operator)
        made, kept = 0, assignment.input_sharding(name)
        if name in graph.producer:
            made, kept = graph.producer[name][0], assignment.specs[name]
            if assignment.own(name) != kept:
                alive(name, assignment.own(name), made, made)
        last = max((max(operators) for operators in wanted.values()), default=made)
        alive(name, kept, made, end if name in graph.outputs else last)
        for sharding, operators in wanted.items():
            if sharding != kept:
                alive(name, sharding, min(operators), max(operators))
    return max(itertools.accumulate(change))
