"""A slow matcher that says what a pattern's matches are, by subgraph monomorphisms of networkx.

It reads the protobuf and knows nothing of ``gehost.pattern``. Operators, the slots of their inputs and outputs, and
tensors are the vertices; what cannot be said by structure (placeholders, constants, readers outside, cycles) is asked
of each monomorphism afterwards.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass, replace

import networkx as nx
import numpy as np
import onnx
from networkx.algorithms.isomorphism import DiGraphMatcher

from gehost.es.functions import COMMUTATIVE
from gehost.pattern.pattern import PatternMatcherConfig
from tools.fuzz.plans import PARAMETERS, Fixed, Given, Made, Plan, Ref, Step

Assignment = tuple[int, ...]
"""The position of the node that stands for each operator."""


def simplified(plan: Plan) -> Plan:
    """The plan without what depends on types and attributes, which the oracle does not know."""
    steps = tuple(replace(step, constraints={}) for step in plan.steps)
    config = PatternMatcherConfig(
        const_value_match=plan.config.const_value_match,
        commutative_match=plan.config.commutative_match,
    )
    return replace(plan, steps=steps, inputs=({},) * len(plan.inputs), config=config)


def matches(graph: onnx.GraphProto, plan: Plan, ir_version: int) -> dict[int, set[frozenset[int]]]:
    """The node sets that match, by the position of the node that makes output 0."""
    host = _Host(graph, ir_version)
    results: dict[int, set[frozenset[int]]] = {}
    for pattern in _variants(plan):
        expected = pattern.structure()
        matcher = DiGraphMatcher(host.structure, expected, node_match=_labels_match)
        for mapping in matcher.subgraph_monomorphisms_iter():
            back = {wanted_vertex: vertex for vertex, wanted_vertex in mapping.items()}
            nodes = tuple(back["op", number][1] for number in range(len(pattern.steps)))
            if host.holds(pattern, nodes):
                results.setdefault(nodes[pattern.outputs[0].step], set()).add(frozenset(nodes))
    return results


def _labels_match(here: dict[str, object], expected: dict[str, object]) -> bool:
    options = expected["label"]
    return here["label"] in options if isinstance(options, frozenset) else here["label"] == options


@dataclass(frozen=True)
class _Variant:
    """A pattern in which no choice is left but the operators' names."""

    plan: Plan
    steps: tuple[Step, ...]
    outputs: tuple[Made, ...]

    def structure(self) -> nx.DiGraph:
        graph = nx.DiGraph()
        for number, step in enumerate(self.steps):
            graph.add_node(("op", number), label=frozenset(step.ops))
        for number, step in enumerate(self.steps):
            for slot, ref in enumerate(step.operands):
                if isinstance(ref, Made):
                    _connect(
                        graph,
                        ("op", ref.step),
                        ref.slot,
                        ("t", ref.step, ref.slot),
                        ("op", number),
                        slot,
                    )
        return graph


def _connect(
    graph: nx.DiGraph, maker: tuple, out: int, tensor: tuple, reader: tuple, slot: int
) -> None:
    graph.add_node(tensor, label="tensor")
    for vertex, label in (
        ((maker, "out", out), f"out {out}"),
        ((reader, "in", slot), f"in {slot}"),
    ):
        graph.add_node(vertex, label=label)
    graph.add_edges_from([(maker, (maker, "out", out)), ((maker, "out", out), tensor)])
    graph.add_edges_from([(tensor, (reader, "in", slot)), ((reader, "in", slot), reader)])


def _variants(plan: Plan) -> Iterator[_Variant]:
    """Every way to choose between with and without an Identity, and every order of operands that may swap."""
    places = [
        (n, s)
        for n, step in enumerate(plan.steps)
        for s, ref in enumerate(step.operands)
        if _may_detour(ref)
    ]
    for chosen in itertools.product([True, False], repeat=len(places)):
        steps = list(plan.steps)
        for (number, slot), detour in zip(places, chosen, strict=True):
            if detour:
                ref = steps[number].operands[slot]
                assert isinstance(ref, Made)
                identity = Step(
                    ("Identity",),
                    (Made(ref.step, ref.slot),),
                    1,
                    {},
                    commutative=False,
                    substitute=False,
                )
                steps.append(identity)
                operands = list(steps[number].operands)
                operands[slot] = Made(len(steps) - 1, 0)
                steps[number] = replace(steps[number], operands=tuple(operands))
        swapping = [
            n
            for n, step in enumerate(steps)
            if _swaps(step, plan.config) and len(step.operands) == 2
        ]
        for swapped in itertools.product([False, True], repeat=len(swapping)):
            ordered = list(steps)
            for number, swap in zip(swapping, swapped, strict=True):
                if swap:
                    ordered[number] = replace(
                        ordered[number], operands=ordered[number].operands[::-1]
                    )
            yield _Variant(plan, tuple(ordered), plan.outputs)


def _may_detour(ref: Ref) -> bool:
    return isinstance(ref, Made) and ref.maybe_identity


def _swaps(step: Step, config: PatternMatcherConfig) -> bool:
    return step.commutative or (
        config.commutative_match and all(op in COMMUTATIVE for op in step.ops)
    )


class _Host:
    """The graph that is searched, without its bodies; what these read counts as read by their node."""

    def __init__(self, graph: onnx.GraphProto, ir_version: int) -> None:
        self._nodes = list(graph.node)
        self._outputs = {info.name for info in graph.output}
        self._makers = {
            name: (at, slot)
            for at, node in enumerate(graph.node)
            for slot, name in enumerate(node.output)
            if name
        }
        self._constants = _constants(graph, ir_version)
        self._readers: dict[str, set[int]] = {}
        self._nested: set[str] = set()
        for at, node in enumerate(graph.node):
            inner = captured(node)
            self._nested |= inner
            for name in {*node.input, *inner}:
                self._readers.setdefault(name, set()).add(at)
        self.structure = nx.DiGraph()
        for at, node in enumerate(graph.node):
            label = (
                node.op_type if node.domain in ("", "ai.onnx") else f"{node.domain}::{node.op_type}"
            )
            self.structure.add_node(("op", at), label=label)
        for at, node in enumerate(graph.node):
            for slot, name in enumerate(node.input):
                if name in self._makers:
                    maker, out = self._makers[name]
                    _connect(self.structure, ("op", maker), out, ("t", name), ("op", at), slot)

    def holds(self, pattern: _Variant, nodes: Assignment) -> bool:
        """Whether what structure does not say holds too."""
        arguments: dict[int, str] = {}
        for step, at in zip(pattern.steps, nodes, strict=True):
            node = self._nodes[at]
            if node.op_type == "Split" and len(node.output) != step.outputs:
                return False
            if not self._inputs_hold(pattern, step, node, arguments):
                return False
        inner: set[str] = set()
        outputs: set[str] = set()
        for number, (step, at) in enumerate(zip(pattern.steps, nodes, strict=True)):
            for slot in range(step.outputs):
                name = self._nodes[at].output[slot] if slot < len(self._nodes[at].output) else ""
                is_output = any((ref.step, ref.slot) == (number, slot) for ref in pattern.outputs)
                if is_output and not name:
                    return False
                (outputs if is_output else inner).add(name)
        inner.discard("")
        for name in inner:
            if (
                name in self._outputs
                or name in self._nested
                or not self._readers.get(name, set()) <= set(nodes)
            ):
                return False
        return not self._closes_cycle(set(nodes), outputs, set(arguments.values()))

    def _inputs_hold(
        self, pattern: _Variant, step: Step, node: onnx.NodeProto, arguments: dict[int, str]
    ) -> bool:
        names = list(node.input)
        unasked = range(len(step.operands), len(names))
        if any(names[slot] and slot not in PARAMETERS.get(node.op_type, ()) for slot in unasked):
            return False
        for slot, ref in enumerate(step.operands):
            name = names[slot] if slot < len(names) else ""
            if isinstance(ref, Given):
                if not name or arguments.setdefault(ref.index, name) != name:
                    return False
            elif isinstance(ref, Fixed):
                if not self._is_constant(name, pattern.plan, ref.index, arguments):
                    return False
            elif ref is None and name:
                return False
        return True

    def _is_constant(self, name: str, plan: Plan, index: int, bound: dict[int, str]) -> bool:
        """Whether a name is a constant, the same one wherever the plan means one."""
        array = self._constants.get(name)
        if array is None or bound.setdefault(-1 - index, name) != name:
            return False
        expected = plan.constants[index]
        if not plan.config.const_value_match:
            return True
        return (array.dtype, array.shape, array.tobytes()) == (
            expected.dtype,
            expected.shape,
            expected.tobytes(),
        )

    def _closes_cycle(self, nodes: set[int], outputs: set[str], inputs: set[str]) -> bool:
        if outputs & inputs:
            return True
        visited: set[int] = set()
        waiting = [
            reader
            for name in outputs
            for reader in self._readers.get(name, ())
            if reader not in nodes
        ]
        while waiting:
            at = waiting.pop()
            if at in nodes:
                return True
            if at not in visited:
                visited.add(at)
                waiting.extend(
                    reader
                    for name in self._nodes[at].output
                    if name
                    for reader in self._readers.get(name, ())
                )
        return False


def _constants(graph: onnx.GraphProto, ir_version: int) -> dict[str, np.ndarray]:
    overridable = {info.name for info in graph.input} if ir_version >= 4 else set()
    results = {
        tensor.name: onnx.numpy_helper.to_array(tensor)
        for tensor in graph.initializer
        if tensor.name not in overridable
    }
    for node in graph.node:
        if node.op_type == "Constant":
            results[node.output[0]] = onnx.numpy_helper.to_array(node.attribute[0].t)
    return results


def captured(node: onnx.NodeProto) -> set[str]:
    """What the bodies of a node read from outside of them."""
    results: set[str] = set()
    for attribute in node.attribute:
        if attribute.type == onnx.AttributeProto.GRAPH:
            body = attribute.g
            own = {info.name for info in body.input} | {tensor.name for tensor in body.initializer}
            own.update(name for inner in body.node for name in inner.output)
            read = {info.name for info in body.output}
            for inner in body.node:
                read |= set(inner.input) | captured(inner)
            results |= read - own
    return results - {""}
