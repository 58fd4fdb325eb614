"""Random graphs, random parts of them as patterns, replaced by the same computation written otherwise."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest

from gehost import es
from gehost.es.graph import EsTensor
from gehost.ir.graph import Node, Value
from gehost.ir.model import Model

UNARY = ["Relu", "Neg", "Abs", "Tanh"]
BINARY = ["Add", "Sub", "Max", "Min"]


def text_of(rng: random.Random) -> str:
    """A graph of float[4] tensors with shared inputs, second outputs that are read, branches that capture, and more than one sink."""
    made, masks, nodes, read = ["x", "z"], ["f"], [], set()

    def some() -> str:
        name = rng.choice(made[-5:] + made[:1])
        read.add(name)
        return name

    for number in range(rng.randint(6, 14)):
        kind = rng.random()
        name = f"t{number}"
        if kind < 0.35:
            nodes.append(f"{name} = {rng.choice(UNARY)}({some()})")
        elif kind < 0.7:
            nodes.append(f"{name} = {rng.choice(BINARY)}({some()}, {some()})")
        elif kind < 0.82:
            nodes.append(f"{name}, m{number} = Dropout({some()})")
            masks.append(f"m{number}")
        elif kind < 0.92:
            nodes.append(f"{name} = Where({rng.choice(masks)}, {some()}, {some()})")
        else:
            nodes.append(
                f"{name} = If(c) <then_branch = a{number} () => (float[4] p{number}) {{ p{number} = {rng.choice(UNARY)}({some()}) }}, "
                f"else_branch = b{number} () => (float[4] q{number}) {{ q{number} = Add({some()}, {some()}) }}>"
            )
        made.append(name)
    outputs = [name for name in made[2:] if name not in read or rng.random() < 0.15]
    declared = ", ".join(f"float[4] {name}" for name in outputs)
    return f"g (float[4] x, float[4] z, bool[4] f, bool c) => ({declared}) {{ {' '.join(nodes)} }}"


def part_of(model: Model, rng: random.Random) -> list[Node]:
    """A few nodes of the main graph that hang together by what they read."""
    candidates = [node for node in model.graph.nodes if not node.bodies]
    found = [rng.choice(candidates)]
    for _ in range(rng.randint(0, 4)):
        near = [value.producer for node in found for value in node.inputs if value is not None]
        near += [reader for node in found for value in node.outputs if value is not None for reader, _ in value.consumers()]
        fitting = [
            node for node in near if node is not None and node.graph is model.graph and not node.bodies and node not in found
        ]
        if fitting:
            found.append(rng.choice(fitting))
    return sorted(found, key=lambda node: node.order)


def computation(
    nodes: list[Node], inputs: list[Value], outputs: list[Value], finish: Callable[[EsTensor], EsTensor]
) -> Callable[..., Any]:
    """What builds these nodes, as they are now, with ``es`` from placeholders, one for each of ``inputs``."""
    read = {value for node in nodes for value in node.inputs}.union(outputs)
    steps = [
        (node.op, list(node.inputs), [value for place, value in enumerate(node.outputs) if place == 0 or value in read])
        for node in nodes
    ]

    def build(*placeholders: EsTensor) -> list[EsTensor]:
        known: dict[Value | None, EsTensor] = dict(zip(inputs, placeholders, strict=True))
        for op, operands, results in steps:
            made = es.op(op)(*[known[value] for value in operands], num_outputs=len(results))
            known.update(zip(results, [made] if len(results) == 1 else made, strict=True))
        return [finish(known[value]) if value.name.startswith("t") else known[value] for value in outputs]

    return build


def chosen(model: Model, rng: random.Random) -> tuple[list[Node], list[Value], list[Value]]:
    """The nodes of a pattern, what they read outside, and what others read of them: all the floats, some of the masks."""
    nodes = part_of(model, rng)

    def is_outer(value: Value) -> bool:
        return any(model.graph.reading_node(reader) not in nodes for reader, _ in value.uses)

    made = [value for node in nodes for value in node.outputs if value is not None]
    outputs = [value for value in made if is_outer(value) and (value.name.startswith("t") or rng.random() < 0.5)]
    if not any(value.name.startswith("t") for value in outputs):
        outputs.append(next(value for value in reversed(made) if value.name.startswith("t")))
    read = {value for node in nodes for value in node.inputs}.union(outputs)
    nodes = [node for node in nodes if read.intersection(node.outputs)]
    made = [value for node in nodes for value in node.outputs]
    return nodes, list(dict.fromkeys(v for node in nodes for v in node.inputs if v is not None and v not in made)), outputs


@pytest.mark.parametrize("seed", range(60))
def test_numbers_stay_whatever_is_replaced(rewriting, seed):
    rng = random.Random(seed)
    work = rewriting(text_of(rng))
    nodes, inputs, outputs = chosen(work.model, rng)
    find = computation(nodes, inputs, outputs, lambda tensor: tensor)
    put = computation(nodes, inputs, outputs, lambda tensor: tensor * 1.0 + 0.0)
    work.replace(find, put, len(inputs))
    assert work.refused == []
    work.assert_equal()
