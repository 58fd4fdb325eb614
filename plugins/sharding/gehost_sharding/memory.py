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
        ends: dict[Sharding, list[int]] = {}
        for operator, slot in graph.readers.get(name, ()):
            sharding = assignment.strategy(operator).operands[slot]
            if sharding is not None:
                ends.setdefault(sharding, []).append(operator)
        start, source = 0, assignment.input_sharding(name)
        if name in graph.producer:
            start, source = graph.producer[name][0], assignment.specs[name]
            if assignment.own(name) != source:
                alive(name, assignment.own(name), start, start)
        last = max((max(operators) for operators in ends.values()), default=start)
        alive(name, source, start, end if name in graph.outputs else last)
        for sharding, operators in ends.items():
            if sharding != source:
                alive(name, sharding, min(operators), max(operators))
    return max(itertools.accumulate(change))
