"""A pattern as its author builds it, and the strictness of matching."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

from gehost.errors import PatternError
from gehost.es.graph import EsChoice, EsConst, EsGraph, EsInput, EsNode, EsTensor
from gehost.ir.ge import NodeIo
from gehost.ir.graph import split_op
from gehost.location import author_origin

_CONTROL_FLOW = frozenset({"If", "Loop", "Scan", "SequenceMap"})


@dataclass(frozen=True, slots=True)
class PatternMatcherConfig:
    """Requirements of a pattern besides its structure; by default none."""

    const_value_match: bool = False
    """Constants must have equal dtype, shape and bytes (or lie within their tolerance)."""
    ir_attr_match: bool = False
    """All attributes must be equal; an absent one counts as its default."""
    commutative_match: bool = False
    """Operands of operators known to commute may be in any order."""


class PatternMatcherConfigBuilder:
    """Builds a ``PatternMatcherConfig`` step by step."""

    def __init__(self) -> None:
        self._config = PatternMatcherConfig()

    def EnableConstValueMatch(self) -> PatternMatcherConfigBuilder:
        self._config = replace(self._config, const_value_match=True)
        return self

    def EnableIrAttrMatch(self) -> PatternMatcherConfigBuilder:
        self._config = replace(self._config, ir_attr_match=True)
        return self

    def EnableCommutativeMatch(self) -> PatternMatcherConfigBuilder:
        self._config = replace(self._config, commutative_match=True)
        return self

    def Build(self) -> PatternMatcherConfig:
        return self._config


class Pattern:
    """A graph to search for, with the tensors that the pass needs."""

    # Any: the type is checked here, with an error of ours; mypyc would check a declared type first
    def __init__(self, graph: EsGraph | Any) -> None:
        """Take a graph.

        Raises ``PatternError`` (file and line) if it is not a valid pattern.
        """
        if not isinstance(graph, EsGraph):
            raise PatternError(
                f"Pattern needs the result of BuildAndReset, got {type(graph).__name__}",
                where=author_origin(),
            )
        check_pattern(graph)
        self.graph = graph
        self.number: int | None = None
        """The number for which a ``VariadicPattern`` built it."""
        self._read = _operands(graph)
        self.choices = [
            producer
            for producer in _operands(graph, graph.outputs)
            if isinstance(producer, EsChoice)
        ]
        """Choices that an operator reads or that are outputs."""
        self.captures: list[EsTensor] = []
        """Captured tensors by index."""
        self.names: dict[str, EsTensor] = {}
        """Named placeholders and tensors, for ``match[name]``."""
        for tensor in graph.inputs:
            assert isinstance(tensor.producer, EsInput)
            self._name(tensor.producer.name, tensor)
        for name, tensor in graph.captures.items():
            if isinstance(tensor.producer, EsConst) and tensor.producer not in self._read:
                raise PatternError(
                    f'no operator of pattern {graph.name!r} reads constant "{name}"',
                    where=graph.origin,
                )
            self._name(name, tensor)

    def _name(self, name: str, tensor: EsTensor) -> None:
        if name in self.names:
            raise PatternError(
                f'two tensors of pattern {self.graph.name!r} are named "{name}"',
                where=author_origin(),
            )
        self.names[name] = tensor

    def CaptureTensor(self, tensor: EsTensor | NodeIo | tuple[Any, int], name: str = "") -> Pattern:
        """Capture a tensor under the next index; return the pattern.

        Args:
            tensor: an ``EsTensor``, ``NodeIo(tensor.GetProducer(), index)``, or the same two as a
                tuple.
            name: for ``match[name]``.

        Raises:
            PatternError: the tensor does not belong to this pattern, or the name is in use.
        """
        captured = _as_tensor(tensor)
        if captured.producer.draft is not self.graph.draft or (
            isinstance(captured.producer, EsConst) and captured.producer not in self._read
        ):
            raise PatternError(
                f"the captured tensor is not one of pattern {self.graph.name!r}",
                where=author_origin(),
            )
        if name:
            self._name(name, captured)
        self.captures.append(captured)
        return self


class VariadicPattern:
    """A pattern in which an operator has any number of inputs or outputs.

    It is a pattern for each number, and matches what one of them matches.

    Args:
        op: the operator, as in ``es.op``: ``Concat``, ``Split``, ``acme::Stack``.
        build: returns the pattern for a number. In it, ``op`` has an input (or else an output) more
            for each 1 more.
        least: the smallest number.
    """

    # Any: the types are checked here, with an error of ours
    def __init__(
        self, op: str | Any, build: Callable[[int], Pattern] | Any, *, least: int = 1
    ) -> None:
        """Build the two smallest patterns.

        Raises:
            PatternError: ``op`` does not grow with the number, or what ``build`` returns is no
                pattern.
        """
        self.op = op
        self.least = least
        self.origin = author_origin()
        self._build = build
        self._patterns: dict[int, Pattern] = {}
        first, second = self.of(least), self.of(least + 1)
        self.counts_outputs = False
        extra = self._extra(first, least) & self._extra(second, least + 1)
        if not extra:
            self.counts_outputs = True
            extra = self._extra(first, least) & self._extra(second, least + 1)
        if not extra:
            raise PatternError(
                f"pattern {first.graph.name!r} for {least + 1} has no {op} with one input or "
                f"output more than for {least}",
                where=self.origin,
                subject="VariadicPattern",
            )
        self.extra = extra
        """How many more than the number ``op`` has, for each of its places in the pattern."""

    def of(self, number: int) -> Pattern:
        """Return the pattern for a number.

        Raises:
            PatternError: ``build`` returns something else.
        """
        pattern = self._patterns.get(number)
        if pattern is None:
            pattern = self._build(number)
            if not isinstance(pattern, Pattern):
                raise PatternError(
                    f"the pattern for {number} is {pattern!r}, not a Pattern",
                    where=self.origin,
                    subject="VariadicPattern",
                )
            pattern.number = number
            self._patterns[number] = pattern
        return pattern

    def _extra(self, pattern: Pattern, number: int) -> set[int]:
        return {
            (node.count if self.counts_outputs else len(node.inputs)) - number
            for node in pattern.graph.nodes
            if self.op in node.ops
        }


def _as_tensor(tensor: EsTensor | NodeIo | tuple[Any, int] | Any) -> EsTensor:
    if isinstance(tensor, EsTensor):
        return tensor
    if isinstance(tensor, tuple) and len(tensor) == 2:  # pyright: ignore[reportUnknownArgumentType]
        tensor = NodeIo(*cast("tuple[Any, int]", tensor))
    producer, index = (tensor.node, tensor.index) if isinstance(tensor, NodeIo) else (None, 0)
    if isinstance(producer, EsNode):
        if not 0 <= index < producer.count:
            raise PatternError(f"{producer.ops[0]} has no output {index}", where=author_origin())
        return EsTensor(producer, index)
    if isinstance(producer, EsInput | EsConst | EsChoice):
        return EsTensor(producer)
    raise PatternError(
        "CaptureTensor needs an EsTensor or NodeIo(tensor.GetProducer(), index)",
        where=author_origin(),
    )


def check_pattern(graph: EsGraph) -> None:
    """Check a pattern as far as possible without a model.

    Raises:
        PatternError: there is no operator; an operator reaches no output or reads a later one; an
            input is read in no variant; an output has no operator in some variant.
    """
    if not graph.nodes:
        raise PatternError(f"pattern {graph.name!r} has no operator", where=graph.origin)
    reachable = set(graph.reachable())
    for node in graph.nodes:
        if node not in reachable:
            raise PatternError(
                f"{node.ops[0]} of pattern {graph.name!r} reaches no output", where=node.origin
            )
        for name in node.ops:
            if split_op(name)[1] in _CONTROL_FLOW:
                raise PatternError(
                    f"{name} has nested graphs and is not allowed in a pattern", where=node.origin
                )
    _check_order(graph)
    read = _operands(graph)
    for tensor in graph.inputs:
        if tensor.producer not in read:
            assert isinstance(tensor.producer, EsInput)
            raise PatternError(
                f"no operator of pattern {graph.name!r} reads input {tensor.producer.name}",
                where=tensor.producer.origin,
            )
    _check_outputs(graph)


def _check_outputs(graph: EsGraph) -> None:
    """Check that outputs differ and have an operator in all variants."""
    visited: set[tuple[EsNode, int]] = set()
    for position, output in enumerate(graph.outputs):
        pattern = f"pattern {graph.name!r}"
        if isinstance(output.producer, EsChoice):
            pattern = f"one variant of {pattern}"
        leaves: set[tuple[EsNode, int]] = set()
        waiting = [output]
        for tensor in waiting:  # grows during the loop
            if isinstance(tensor.producer, EsChoice):
                waiting.extend(tensor.producer.options)
                continue
            if not isinstance(tensor.producer, EsNode):
                raise PatternError(
                    f"output {position} of {pattern} has no operator", where=graph.origin
                )
            leaves.add((tensor.producer, tensor.index))
        if leaves & visited:
            raise PatternError(f"output {position} of {pattern} is given twice", where=graph.origin)
        visited |= leaves


def _operands(
    graph: EsGraph, outputs: Sequence[EsTensor] = ()
) -> dict[EsNode | EsInput | EsConst | EsChoice, None]:
    """Return producers of all operands, also in alternatives, and some outputs."""
    waiting = [tensor for node in graph.nodes for tensor in node.inputs if tensor is not None]
    waiting.extend(outputs)
    for tensor in waiting:  # grows during the loop
        if isinstance(tensor.producer, EsChoice):
            waiting.extend(tensor.producer.options)
    return dict.fromkeys([tensor.producer for tensor in waiting])


def _check_order(graph: EsGraph) -> None:
    """Refuse a cycle, which changing a built operator's operands can make."""
    built: set[EsNode] = set()
    for node in graph.nodes:
        waiting = [tensor for tensor in node.inputs if tensor is not None]
        for tensor in waiting:  # grows during the loop
            if isinstance(tensor.producer, EsChoice):
                waiting.extend(tensor.producer.options)
            elif isinstance(tensor.producer, EsNode) and tensor.producer not in built:
                raise PatternError(
                    f"{node.ops[0]} of pattern {graph.name!r} reads the output of a later operator",
                    where=node.origin,
                )
        built.add(node)
