"""Random parts of a model as patterns, described in plain values: the same plan makes the same pass again."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from gehost.ir.graph import Graph, Node, Value
from gehost.ir.model import Model
from gehost.pattern.pattern import PatternMatcherConfig
from gehost.stages import CustomPassStage

COMMUTING = frozenset({"Add", "Mul", "And", "Or", "Xor"})
ALIKE = (
    ("Neg", "Abs", "Relu", "Floor", "Ceil", "Identity", "Tanh", "Sigmoid"),
    ("Add", "Sub", "Mul", "Div"),
    ("Less", "Greater"),
)
"""Operators of which a pattern may leave open which one it is."""
_REDUCTIONS = ("ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin")
PARAMETERS = {
    **dict.fromkeys(("Squeeze", "Unsqueeze", "Split", "TopK", *_REDUCTIONS), range(1, 2)),
    **dict.fromkeys(("Pad", "Clip"), range(1, 3)),
    "Slice": range(1, 4),
}
"""The inputs that other opsets hold in attributes; of these a pattern may say nothing."""


@dataclass(frozen=True)
class Given:
    """Placeholder ``index``, and what is asked of it."""

    index: int


@dataclass(frozen=True)
class Fixed:
    """Constant ``index`` of the plan."""

    index: int


@dataclass(frozen=True)
class Made:
    """Output ``slot`` of an earlier step."""

    step: int
    slot: int
    maybe_identity: bool = False
    """An Identity may stand on the way."""


Ref = Given | Fixed | Made | None


@dataclass(frozen=True)
class Step:
    """An operator of the pattern; its operands may end before the inputs that are attributes elsewhere."""

    ops: tuple[str, ...]
    operands: tuple[Ref, ...]
    outputs: int
    constraints: dict[str, Any]
    commutative: bool
    substitute: bool
    """Written with other operators in the replacement, where there is a way."""


@dataclass(frozen=True)
class Plan:
    """A pattern and how its replacement is written."""

    name: str
    stage: CustomPassStage
    steps: tuple[Step, ...]
    outputs: tuple[Made, ...]
    inputs: tuple[dict[str, Any], ...]
    """What is asked of each placeholder."""
    constants: tuple[np.ndarray, ...]
    """Those that were cut out; by default any constant may stand there."""
    config: PatternMatcherConfig
    call: bool
    """Replaced by one operator that has no body."""
    finish: tuple[int | None, ...]
    """Which way each output goes on and changes nothing; None: none."""
    wraps: dict[tuple[int, int], int] = field(default_factory=dict)
    """The same for operands."""


def random_plan(model: Model, rng: random.Random, name: str, most: int = 4) -> Plan | None:
    """A pattern that stands somewhere in the model, mostly; None where there is nothing to cut out."""
    graphs = [graph for graph in model.graphs if _candidates(graph)]
    if not graphs:
        return None
    graph = graphs[0] if rng.random() < 0.8 and graphs[0] is model.graph else rng.choice(graphs)
    nodes = _part(graph, rng, most)
    return _Writer(graph, nodes, rng).plan(name)


def _candidates(graph: Graph) -> list[Node]:
    return [
        node
        for node in graph.nodes
        if not node.bodies and node.op != "Constant" and any(node.inputs)
    ]


def _part(graph: Graph, rng: random.Random, most: int) -> list[Node]:
    """A few nodes that hang together, by what they read as well."""
    candidates = _candidates(graph)
    repeated = [node for node in candidates if sum(other.op == node.op for other in candidates) > 2]
    results = [rng.choice(repeated if repeated and rng.random() < 0.5 else candidates)]
    size = rng.choice([1, 1, 2, 2, 3, most])
    while len(results) < size:
        near: list[Node | None] = [
            value.producer for node in results for value in node.inputs if value is not None
        ]
        created = [value for node in results for value in node.outputs if value is not None]
        shared = (
            [value for node in results for value in node.inputs if value is not None]
            if rng.random() < 0.2
            else []
        )
        near += [reader for value in (*created, *shared) for reader, _ in value.consumers()]
        fitting = [
            node for node in dict.fromkeys(near) if node in candidates and node not in results
        ]
        if not fitting:
            break
        results.append(rng.choice(fitting))
    return sorted(results, key=lambda node: node.order)


class _Writer:
    def __init__(self, graph: Graph, nodes: list[Node], rng: random.Random) -> None:
        self._graph = graph
        self._nodes = nodes
        self._rng = rng
        self._inputs: dict[Value, Given] = {}
        self._asked: list[dict[str, Any]] = []
        self._constants: dict[Value, Fixed] = {}
        self._arrays: list[np.ndarray] = []

    def plan(self, name: str) -> Plan | None:
        """The plan; None when an operator leads to no output, as only a parameter that is left out reads it."""
        rng = self._rng
        config = PatternMatcherConfig(
            const_value_match=rng.random() < 0.15,
            ir_attr_match=rng.random() < 0.15,
            commutative_match=rng.random() < 0.1,
        )
        outputs = self._outputs()
        steps = tuple(self._step(node, outputs) for node in self._nodes)
        expected = {self._nodes.index(value.producer) for value in outputs if value.producer}
        for number in reversed(range(len(steps))):
            if number in expected:
                expected.update(ref.step for ref in steps[number].operands if isinstance(ref, Made))
        if len(expected) < len(steps):
            return None
        before = rng.random() < 0.15
        return Plan(
            name=name,
            stage=CustomPassStage.kBeforeInferShape if before else CustomPassStage.kAfterInferShape,
            steps=steps,
            outputs=tuple(
                Made(self._nodes.index(value.producer), value.index)
                for value in outputs
                if value.producer
            ),
            inputs=tuple(self._asked),
            constants=tuple(self._arrays),
            config=config,
            call=rng.random() < 0.15 and bool(self._inputs),
            finish=tuple(rng.randrange(60) if rng.random() < 0.6 else None for _ in outputs),
            wraps={
                (number, slot): rng.randrange(60)
                for number, step in enumerate(steps)
                for slot, ref in enumerate(step.operands)
                if ref is not None and rng.random() < 0.15
            },
        )

    def _outputs(self) -> list[Value]:
        """What others read, what nobody reads, sometimes more, seldom less: then the pattern does not stand here."""
        rng, nodes = self._rng, self._nodes
        results: list[Value] = []
        for node in reversed(nodes):
            inner = False
            for value in node.outputs:
                if value is None:
                    continue
                readers = [self._graph.reading_node(reader) for reader in value.readers]
                inner = inner or any(reader in nodes for reader in readers)
                outer = any(reader not in nodes for reader in readers)
                if rng.random() < (0.97 if outer and inner else 1.0 if outer else 0.05):
                    results.append(value)
            if not inner and not any(value in results for value in node.outputs):
                results.append(next(value for value in node.outputs if value is not None))
        if rng.random() < 0.3:
            rng.shuffle(results)
        return results

    def _step(self, node: Node, outputs: list[Value]) -> Step:
        rng = self._rng
        open_slots = PARAMETERS.get(node.op, range(0))
        open_parameters = rng.random() < 0.5 and 1 < len(node.inputs) <= open_slots.stop
        slots = range(open_slots.start if open_parameters else len(node.inputs))
        constraints = {
            key: value
            for key, value in node.attrs.items()
            if rng.random() < 0.1
            and isinstance(value, int | float | list)
            and key not in ("split", "k", "value", "num_outputs")
        }
        choices = next((group for group in ALIKE if node.op in group), ())
        ops = (node.op, rng.choice(choices)) if choices and rng.random() < 0.12 else (node.op,)
        read = {value for other in self._nodes for value in other.inputs}.union(outputs)
        used = [slot for slot, value in enumerate(node.outputs) if value in read]
        count = (
            len(node.outputs)
            if node.op in ("Split", "TopK") or node.domain
            else max(used, default=0) + 1
        )
        return Step(
            ops=tuple(dict.fromkeys(ops)),
            operands=tuple(self._ref(node, slot, outputs) for slot in slots),
            outputs=count,
            constraints=constraints,
            commutative=all(op in COMMUTING for op in ops) and rng.random() < 0.2,
            substitute=rng.random() < 0.6,
        )

    def _ref(self, node: Node, slot: int, outputs: list[Value]) -> Ref:
        value, rng = node.inputs[slot], self._rng
        if value is None:
            return None
        if value.producer in self._nodes:
            return Made(
                self._nodes.index(value.producer),
                value.index,
                value not in outputs and rng.random() < 0.06,
            )
        if (
            _is_numeric(value)
            and value not in self._inputs
            and (value in self._constants or rng.random() < 0.35)
        ):
            if value not in self._constants:
                self._constants[value] = Fixed(len(self._arrays))
                self._arrays.append(value.numpy())
            return self._constants[value]
        if value not in self._inputs:
            self._inputs[value] = Given(len(self._asked))
            request: dict[str, Any] = {}
            if rng.random() < 0.15 and value.dtype is not None:
                request["dtype"] = value.dtype
            if rng.random() < 0.15 and value.rank is not None:
                request["rank"] = value.rank
            self._asked.append(request)
        return self._inputs[value]


def _is_numeric(value: Value) -> bool:
    """Whether a value is a constant that an author can write down."""
    return value.array is not None and value.array.dtype != object
