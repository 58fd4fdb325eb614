"""Matches as authors see them, and ``PatternMatcher``, which finds matches without rewriting."""

from __future__ import annotations

import operator
from collections.abc import Collection, Iterator
from typing import Any, SupportsIndex, overload

from gehost.errors import PatternError
from gehost.es.graph import EsChoice, EsConst, EsGraph, EsInput, EsNode, EsTensor
from gehost.ir.ge import NodeIo
from gehost.ir.graph import Graph, Node, Value
from gehost.ir.model import Model
from gehost.ir.node import in_order
from gehost.ir.region import Region, SubgraphBoundary
from gehost.location import author_origin
from gehost.ops import OpRegistry
from gehost.pattern.explain.reference_matcher import MatchFailure, why_not
from gehost.pattern.fits import RANK_OF
from gehost.pattern.lower import LoweredPattern
from gehost.pattern.matcher import Binding, CompiledPattern
from gehost.pattern.pattern import Pattern, PatternMatcherConfig
from gehost.refusal import Refusal, refusal_by
from gehost.spelling import hint
from gehost.status import FAILED, SUCCESS, Status


class MatchResult:
    """One match: the model's nodes and tensors for the pattern's."""

    def __init__(
        self, binding: Binding, pattern: Pattern, all_names: Collection[str] = frozenset()
    ) -> None:
        """Take a binding of a pattern; ``all_names`` are those of all patterns of the pass."""
        self._binding = binding
        self._all_names = all_names
        self._source = binding.source
        self._pattern = pattern
        self._nodes: list[Node] | None = None
        self.constants: list[tuple[Value, float]] = []
        """Constants that the replacement has exact; see ``replaces_constant``."""
        self.folded_weights: list[Value] = []
        """Tensors of which the replacement has folded weights; see ``folds_weight``."""
        self.attributes: dict[str, Any] = {
            name: value
            for name, value in binding.attributes.items()
            if not name.startswith(RANK_OF)
        }
        """Values of the pattern's attribute variables."""

    def __repr__(self) -> str:
        return (
            f"<MatchResult {self._source.name}: "
            f"{', '.join(node.label for node in self.GetMatchedNodes())}>"
        )

    @property
    def graph(self) -> Graph:
        return self._binding.graph

    @property
    def pattern(self) -> Pattern:
        """The pattern that matched."""
        return self._pattern

    @property
    def number(self) -> int | None:
        """The number for which a ``VariadicPattern`` built the pattern; None of others."""
        return self._pattern.number

    @property
    def inputs(self) -> list[Value]:
        """The tensors at the pattern's inputs by index, None for unused ones."""
        values: list[Any] = self._binding.values
        return [values[index] for index in self._source.inputs]

    @property
    def outputs(self) -> list[Value]:
        """The tensors at the pattern's outputs, by position."""
        values: list[Any] = self._binding.values
        return [values[index] for index in self._source.outputs]

    # Any: the type is checked here, with an error of ours; mypyc would check a declared type first
    def get(self, name: str | Any) -> Value | None:
        """Return the input or captured tensor of a name of the pattern.

        Returns None if it belongs to an alternative or optional part that is not in this
        match, or to another pattern of the pass.

        Raises:
            PatternError: no pattern of the pass has a tensor of this name.
        """
        names = self._source.names
        if name not in names:
            if name in self._all_names:
                return None
            near = hint(name, [*names, *self._all_names]) if isinstance(name, str) else ""
            near = near or f"; it has {', '.join(names)}"
            raise PatternError(
                f"pattern {self._source.name!r} has no tensor named {name!r}{near}",
                where=author_origin(),
            )
        index = names[name]
        return None if index is None else self._binding.values[index]

    def __getitem__(self, name: str) -> Value:
        """Return the tensor of a name, which must be in this match.

        Raises:
            PatternError: no pattern of the pass has a tensor of this name, or it is not in this
                match.
        """
        value = self.get(name)
        if value is None:
            raise PatternError(
                f'"{name}" is not in this match; match.get("{name}") is None then',
                where=author_origin(),
            )
        return value

    def __contains__(self, name: str) -> bool:
        return self.get(name) is not None

    @overload
    def GetCapturedTensor(self, index: SupportsIndex) -> NodeIo: ...
    @overload
    def GetCapturedTensor(self, index: SupportsIndex, io: NodeIo) -> Status: ...
    def GetCapturedTensor(self, index: SupportsIndex, io: NodeIo | None = None) -> NodeIo | Status:
        """Return the tensor captured ``index``-th, or write it to ``io``.

        With ``io`` the result is a status: ``FAILED`` where there is no such tensor.

        Raises:
            IndexError: without ``io``: the pattern captured fewer tensors, or this one is in an
                alternative that did not match.
        """
        captures, place = self._source.captures, operator.index(index)
        exists = 0 <= place < len(captures)
        captured = captures[place] if exists else None
        value = None if captured is None else self._binding.values[captured]
        if value is not None:
            capture = NodeIo.of(value)
            if io is None:
                return capture
            io.node, io.index, io.tensor = capture.node, capture.index, capture.tensor
            return SUCCESS
        if io is not None:
            return FAILED
        if not exists:
            raise IndexError(f"captured tensor {index}: the pattern captured {len(captures)}")
        raise IndexError(
            f"captured tensor {index}: it is in an alternative that did not match; ask has() before"
        )

    # Any: the type is checked below, with an error of ours; mypyc would check a declared type first
    def has(self, node: EsNode | EsTensor | Any) -> bool:
        """Whether this match has a part of the pattern.

        That is an operator, a placeholder, a constant, or a choice by ``Alternatives``,
        ``Optional`` or ``AnyOf``.
        """
        producer = node.producer if isinstance(node, EsTensor) else node
        if not isinstance(producer, EsNode | EsInput | EsConst | EsChoice):
            raise PatternError(f"match.has needs a tensor of the pattern, got {node!r}")
        if isinstance(producer, EsNode):
            nodes = self._source.nodes
            return producer in nodes and self._binding.nodes[nodes.index(producer)] is not None
        index = self._source.others.get(producer)
        return index is not None and self._binding.values[index] is not None

    def GetMatchedNodes(self) -> list[Node]:
        """Return the matched nodes in topological order, without constants."""
        if self._nodes is None:
            self._nodes = in_order([node for node in self._binding.nodes if node is not None])
        return list(self._nodes)

    def GetMatchedNode(self, node: EsNode | EsTensor | SupportsIndex | Any) -> Node:  # Any: see get
        """Return the node of an operator of the pattern.

        The operator is given by itself, by its output, or by its position.
        """
        if isinstance(node, SupportsIndex):
            matched_node = self._binding.nodes[operator.index(node)]
        else:
            producer = node.producer if isinstance(node, EsTensor) else node
            if not isinstance(producer, EsNode) or producer.draft is not self._pattern.graph.draft:
                raise PatternError(
                    "GetMatchedNode needs an operator of the pattern that matched",
                    where=author_origin(),
                )
            nodes = self._source.nodes
            matched_node = self._binding.nodes[nodes.index(producer)] if producer in nodes else None
        if matched_node is None:
            raise PatternError(
                f"{node} is in an alternative that did not match", where=author_origin()
            )
        return matched_node

    def check_names(self, replacement: EsGraph) -> None:
        """Check the names of a replacement's inputs against the pattern's, by index.

        Raises:
            PatternError: the pattern uses the name of an input for another tensor.
        """
        names = self._source.names
        # the replacement may use fewer; mypyc calls zip if strict is given
        for index, tensor in zip(self._source.inputs, replacement.inputs):  # noqa: B905
            placeholder = tensor.producer
            assert isinstance(placeholder, EsInput)
            name = placeholder.name
            if names.get(name, index) != index:
                raise PatternError(
                    f'the replacement\'s input "{name}" stands for another '
                    f'tensor than "{name}" of the pattern: inputs correspond by index',
                    where=placeholder.origin,
                )

    def reject(self, reason: str | Any) -> Refusal:  # Any: as above
        """Refuse this match: ``return match.reject("rank: Gemm takes matrices")``.

        Refusals are counted by the text before the colon.
        """
        return refusal_by(reason, "match.reject")

    def replaces_constant(self, value: Value, exact: float) -> None:
        """Note that the replacement has ``exact`` for a constant that its type had rounded.

        ``gehost verify`` then judges the numbers as equal within rounding.
        """
        self.constants.append((value, exact))

    def folds_weight(self, value: Value) -> None:
        """Note that the replacement has new weights computed from ``value``, in its type."""
        self.folded_weights.append(value)

    def region(self) -> Region:
        """Return the matched region, for its replacement."""
        nodes: list[Node] = []
        closed = True
        ops = self._source.ops
        for index, node in enumerate(self._binding.nodes):
            if node is not None:
                nodes.append(node)
                closed = closed and len(node.outputs) <= len(ops[index].outputs)
        # sorted now, as rewrites may move nodes
        return Region(self._binding.graph, self.inputs, self.outputs, in_order(nodes), closed)

    def ToSubgraphBoundary(self) -> SubgraphBoundary:
        """Return the boundary of this match, for ``SubgraphRewriter.Replace``."""
        return SubgraphBoundary.of_region(self.region())


class PatternMatcher:
    """Finds a pattern in a graph without rewriting.

    Use ``while (match := matcher.MatchNext()) is not None: …``.
    """

    def __init__(
        self,
        pattern: Pattern,
        graph: Graph | Model,
        config: PatternMatcherConfig | None = None,
        registry: OpRegistry | None = None,
    ) -> None:
        """Lower the pattern; raises ``Refused`` if the model's opset lacks an operator.

        Of a ``VariadicPattern``, give the pattern for one number: ``variadic.of(3)``.
        """
        if isinstance(graph, Model):
            graph = graph.graph
        self._graph = graph
        self._pattern = pattern
        source = LoweredPattern(
            pattern, config or PatternMatcherConfig(), graph.model, registry or OpRegistry()
        ).source
        self._compiled = CompiledPattern(source)
        self._matches = self._find()
        self._made_of = pattern, graph, config, registry

    def __reduce__(self) -> Any:
        """Copying starts again with the first match."""
        return PatternMatcher, self._made_of

    def MatchNext(self) -> MatchResult | None:
        """Return the next match; None at the end.

        Matches are in topological order of output 0's node.
        """
        return next(self._matches, None)

    def __iter__(self) -> Iterator[MatchResult]:
        return self._matches

    def why_not(self, node: Node) -> MatchFailure | None:
        """Return why ``node`` does not produce output 0, or None."""
        return why_not(self._compiled.source, node)

    def _find(self) -> Iterator[MatchResult]:
        for node in self._graph.nodes_of(*self._compiled.root_ops):
            if node.in_graph:
                binding, _ = self._compiled.match_at(node)
                if binding is not None:
                    yield MatchResult(binding, self._pattern)
