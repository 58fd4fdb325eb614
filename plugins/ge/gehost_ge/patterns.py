"""Patterns, the strictness of matching, and matches with GE's Python names.

Source: the documented Python interface of GE (Passes) and its guides.
"""

from __future__ import annotations

from typing import Any

import gehost
from gehost import es
from gehost_ge.builder import TensorHolder
from gehost_ge.drafts import DraftNode
from gehost_ge.errors import GeError, checked, origin
from gehost_ge.graph import Graph, Node, NodeIo


class PatternMatcherConfig:
    """Requirements of a pattern besides its structure."""

    def __init__(self, *, const_value_match: bool = False, ir_attr_match: bool = False) -> None:
        self._const_value_match = const_value_match
        self._ir_attr_match = ir_attr_match

    def is_enable_const_value_match(self) -> bool:
        return self._const_value_match

    def is_enable_ir_attr_match(self) -> bool:
        return self._ir_attr_match

    @property
    def host_config(self) -> gehost.PatternMatcherConfig:
        builder = gehost.PatternMatcherConfigBuilder()
        if self._const_value_match:
            builder = builder.EnableConstValueMatch()
        if self._ir_attr_match:
            builder = builder.EnableIrAttrMatch()
        return builder.Build()


class PatternMatcherConfigBuilder:
    """Builds a ``PatternMatcherConfig`` step by step."""

    def __init__(self) -> None:
        self._options: dict[str, bool] = {}

    def enable_const_value_match(self) -> PatternMatcherConfigBuilder:
        """Let a constant of a pattern match an equal one only: same type, shape and numbers."""
        self._options["const_value_match"] = True
        return self

    def enable_ir_attr_match(self) -> PatternMatcherConfigBuilder:
        """Let attributes count."""
        self._options["ir_attr_match"] = True
        return self

    def build(self) -> PatternMatcherConfig:
        return PatternMatcherConfig(**self._options)


class Pattern:
    """A graph to search for, and the tensors that the pass asks for."""

    def __init__(self, graph: Graph) -> None:
        """Take a built graph over.

        Raises:
            TypeError: it is none.
            GeError: another pattern took it over.
        """
        self.draft = checked(graph, Graph, "the result of build_and_reset").draft
        if self.draft.is_pattern:
            raise GeError(f'"{self.draft.name}" is a pattern already, which took the graph over')
        self.draft.is_pattern = True
        with es.written_at(origin()):
            self.host_pattern = gehost.Pattern(self.draft.graph)
        self._captures: list[Any] = []

    def __repr__(self) -> str:
        return f"<Pattern {self.name}>"

    @property
    def name(self) -> str:
        return self.host_pattern.graph.name

    @property
    def captures(self) -> int:
        """Number of captured tensors."""
        return len(self._captures)

    def capture_tensor(self, source: Any, index: int | None = None) -> Pattern:
        """Capture a tensor under the next number.

        Args:
            source: a tensor, operator or ``NodeIo`` of the pattern.
            index: the output, where ``source`` is an operator of the pattern.
        """
        if isinstance(source, NodeIo):
            source, index = source.node, source.index
        checked(source, (TensorHolder, Node), "a tensor or operator of the pattern")
        tensor: es.EsTensor
        if isinstance(source, TensorHolder):
            tensor = source.tensor
        else:
            drafted = checked(source.inner, DraftNode, "an operator of the pattern")
            tensor = es.EsTensor(drafted.producer)
        if index is not None:
            tensor = es.EsTensor(tensor.producer, index)
        with es.written_at(origin()):
            self.host_pattern.CaptureTensor(tensor)
        self._captures.append(tensor)
        return self

    def get_captured_tensors(self) -> list[NodeIo]:
        """Return the captured tensors; the nodes are operators of the pattern."""
        return [
            NodeIo(Node(DraftNode(tensor.producer, self.draft)), tensor.index)
            for tensor in self._captures
        ]


def create_pattern(graph: Graph) -> Pattern:
    """Return the pattern of a built graph."""
    return Pattern(graph)


def create_replacement(graph: Graph) -> Graph:
    """Return a built graph as it is; raises ``TypeError`` for anything else."""
    checked(graph, Graph, "the result of build_and_reset")
    _ = graph.built
    return graph


def capture_tensor(tensor: TensorHolder) -> TensorHolder:
    """Return a tensor that a ``@pattern`` method also wants captured.

    Published examples call it; the captured tensors of ``@pattern`` are its inputs and results.
    """
    return checked(tensor, TensorHolder, "a tensor of the pattern")


class MatchResult:
    """One match: the model's nodes and tensors for the pattern's; valid during the call."""

    def __init__(self, match: gehost.MatchResult, pattern: Pattern, constants: list[int]) -> None:
        """Wrap a match; ``constants`` are numbers of hidden captures, by constant."""
        self._match = match
        self._pattern = pattern
        self._constants = constants
        self._forms = {
            match.GetMatchedNode(node): form
            for node, form in pattern.draft.forms.items()
            if node in pattern.host_pattern.graph.nodes
        }
        """The operators as the pattern calls them, by node of the model."""
        self.is_over = False
        """Whether the call that got the match has ended."""

    def __str__(self) -> str:
        names = ", ".join(node.name for node in self.get_matched_nodes())
        return f"{self.get_pattern_graph_name()}: {names}"

    @property
    def host_match(self) -> gehost.MatchResult:
        """The host's match; raises ``GeError`` after the call that got it."""
        if self.is_over:
            raise GeError("a match is valid during the call that gets it; keep what you need of it")
        return self._match

    def get_pattern_graph_name(self) -> str:
        return self.host_match.pattern.graph.name

    def get_captured_tensor(self, index: int) -> NodeIo:
        """Return the tensor captured under a number.

        Raises:
            GeError: the pattern captured fewer.
        """
        checked(index, int, "the number of a captured tensor")
        if not 0 <= index < self._pattern.captures:
            raise GeError(
                f"captured tensor {index}: {self._pattern.name} captured {self._pattern.captures}"
            )
        io = self.host_match.GetCapturedTensor(index)
        return NodeIo(Node(io.node, self._forms), io.index)

    def get_matched_nodes(self) -> list[Node]:
        """Return the nodes in the pattern's order, each constant before its first user."""
        graph = self._pattern.host_pattern.graph
        numbers = iter(self._constants)
        nodes: dict[Any, None] = {}
        visited: set[Any] = set()
        for node in graph.nodes:
            for operand in node.inputs:
                producer = None if operand is None else operand.producer
                is_constant = producer is not None and hasattr(producer, "array")
                if is_constant and producer not in visited:
                    visited.add(producer)
                    nodes[self.host_match.GetCapturedTensor(next(numbers)).node] = None
            nodes[self.host_match.GetMatchedNode(node)] = None
        return [Node(node, self._forms) for node in nodes]


def capture_constants(pattern: Pattern) -> list[int]:
    """Capture the constants of a pattern behind the author's tensors; return their numbers."""
    host = pattern.host_pattern
    constants: dict[Any, es.EsTensor] = {}
    for node in host.graph.nodes:
        for operand in node.inputs:
            if operand is not None and hasattr(operand.producer, "array"):
                constants.setdefault(operand.producer, operand)
    numbers: list[int] = []
    for tensor in constants.values():
        numbers.append(len(host.captures))
        host.CaptureTensor(tensor)
    return numbers
