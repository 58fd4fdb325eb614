"""Patterns that find nothing in the decoder graph, as plain data, so that every rewriter gets the same ones.

Each is a chain from a root down to its producers. All links but the last are found in the graph, so that a matcher must
walk; the last one never is. Every fifth ends in an operator that the graph does not have at all.
"""

from __future__ import annotations

import random

Chain = tuple[tuple[str, int], ...]
"""Operators from the root down; with each, the slot in which it reads the next one."""

PRODUCERS = {
    "ReduceMean": [("Add", 0), ("Pow", 0)],
    "Sub": [("Add", 0), ("ReduceMean", 1)],
    "Pow": [("Sub", 0)],
    "Add": [("Mul", 0), ("MatMul", 0), ("ReduceMean", 0), ("Erf", 0)],
    "Sqrt": [("Add", 0)],
    "Div": [("Sub", 0), ("Sqrt", 1), ("Add", 0)],
    "Mul": [("Div", 0), ("Mul", 0), ("Add", 0), ("Add", 1)],
    "MatMul": [("Add", 0)],
    "Erf": [("Div", 0)],
}
"""What each operator of a decoder block reads, in which slot."""

BINARY = frozenset({"Sub", "Pow", "Add", "Div", "Mul", "MatMul"})
ABSENT = ("Softmax", "Tanh", "Sigmoid", "Relu")
PRESENT_PAIR: Chain = (("Erf", 0), ("Sqrt", 0))
"""Both operators occur, never one behind the other."""
ABSENT_PAIR: Chain = (("Tanh", 0), ("Softmax", 0))
IDLE_COPIES = 20
"""A rule that matches nothing is measured in so many copies in one stage; the figure is that of one."""


def chains(count: int) -> list[Chain]:
    """So many different chains of 2 to 9 operators."""
    choose = random.Random(0)
    results: dict[Chain, None] = {}
    while len(results) < count:
        results[_chain(choose, 2 + len(results) % 8, absent=len(results) % 5 == 4)] = None
    return list(results)


def _chain(choose: random.Random, length: int, *, absent: bool) -> Chain:
    op = choose.choice(list(PRODUCERS))
    links: list[tuple[str, int]] = []
    for _ in range(length - 2):
        producer, slot = choose.choice(PRODUCERS[op])
        links.append((op, slot))
        op = producer
    wrong = ABSENT if absent else [other for other in PRODUCERS if (other, 0) not in PRODUCERS[op]]
    return (*links, (op, 0), (choose.choice(wrong), 0))
