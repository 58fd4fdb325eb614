"""Passes of GE's Python interface as passes of the host.

The host's matcher, type proof, transaction, explain, check-pass and switches serve them.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from typing import Any, cast

import numpy as np

import gehost
from gehost import (
    CustomPassContext,
    EsGraph,
    Node,
    PassSpec,
    PatternError,
    Refusal,
    es,
)
from gehost_ge import passes
from gehost_ge.builder import GraphBuilder, TensorHolder
from gehost_ge.building import building_patterns
from gehost_ge.drafts import current_inputs
from gehost_ge.errors import GeError, checked, items_of, origin_of, plain_function
from gehost_ge.forms import FORMS
from gehost_ge.graph import Graph
from gehost_ge.graph import Node as GeNode
from gehost_ge.patterns import MatchResult, Pattern, PatternMatcherConfig, capture_constants
from gehost_ge.registered import PassDescriptor
from gehost_ge.rewriting import PassContext


class PassInputs:
    """Inputs of a pattern or replacement, made on first use: ``inputs[0]``, ``inputs[:3]``."""

    def __init__(self, builder: GraphBuilder, most: int | None = None) -> None:
        """Make inputs of ``builder``, at most ``most`` of them."""
        self._builder = builder
        self._most = most
        self.made: dict[int, TensorHolder] = {}

    def __getitem__(self, index: int | slice) -> Any:
        if isinstance(index, slice):
            if index.start not in (None, 0) or index.step not in (None, 1) or index.stop is None:
                raise GeError("inputs are taken from the first: inputs[:3]")
            return [self[number] for number in range(index.stop)]
        checked(index, int, "the number of an input")
        if index < 0 or (self._most is not None and index >= self._most):
            most = "" if self._most is None else f"; the pattern has {self._most}"
            raise GeError(f"there is no input {index}{most}")
        if index not in self.made:
            self.made[index] = self._builder.create_input(index)
        return self.made[index]

    def __iter__(self) -> Any:
        raise TypeError("inputs have no end; write inputs[:3] for the first three")


class _Author:
    """An author's pass object and the context of its current run."""

    def __init__(self, cls: type[Any]) -> None:
        self.owner = cls()
        self.context: PassContext | None = None

    def call(self, method: Callable[..., Any], *arguments: Any) -> Any:
        """Call a method; one whose last parameter is ``context`` also gets the context."""
        if passes.arguments_of(method)[-1:] == ["context"]:
            return method(*arguments, self.context)
        return method(*arguments)

    def refusal(self, answer: Any) -> bool | Refusal:
        """Return the answer of ``meet_requirements``, with the context's message as reason."""
        if not isinstance(answer, bool | int | np.bool_):
            raise PatternError(f"meet_requirements must return True or False, got {answer!r}")
        message = "" if self.context is None else self.context.get_error_message()
        if self.context is not None:
            self.context.set_error_message("")
        is_met = bool(cast("int", answer))
        return is_met or Refusal.of(message or "meet_requirements")


class PatternAdapter(gehost.PatternFusionPass):
    """A ``ge.passes.PatternFusionPass``."""

    def __init__(self, cls: type[passes.PatternFusionPass]) -> None:
        self._author = _Author(cls)
        config = getattr(self._author.owner, "matcher_config", None)
        if not isinstance(config, PatternMatcherConfig):
            raise PatternError(
                "it does not call super().__init__(), with or without a PatternMatcherConfig"
            )
        super().__init__(config.host_config)
        self._by_pattern: dict[gehost.Pattern, tuple[Pattern, list[int]]] = {}

    def end_compile(self) -> bool:
        return False  # GE's pass objects live for one run

    def Run(self, graph: gehost.Graph, context: CustomPassContext) -> Any:
        self._author.context = PassContext(context)
        return super().Run(graph, context)

    def Patterns(self) -> Sequence[gehost.Pattern]:
        owner = self._author.owner
        with building_patterns():
            if owner.pattern_methods:
                items = [self._traced(name) for name in owner.pattern_methods]
            else:
                items = _as_patterns(owner.patterns())
        if owner.matcher_config.is_enable_const_value_match():
            for pattern in items:
                _constrain_numbers(pattern)
        self._by_pattern = {
            pattern.host_pattern: (pattern, capture_constants(pattern)) for pattern in items
        }
        return [pattern.host_pattern for pattern in items]

    def MeetRequirements(self, match: gehost.MatchResult) -> bool | Refusal:
        pattern, _ = self._by_pattern[match.pattern]
        for node in pattern.host_pattern.graph.nodes:
            form = pattern.draft.forms.get(node)
            if form is None:
                continue
            matched = match.GetMatchedNode(node)
            reason = form.misfit(matched)
            if not reason and self._author.owner.matcher_config.is_enable_ir_attr_match():
                reason = form.other_attribute(matched)
            if reason:
                return Refusal.of(reason)
        token = current_inputs.set(match.inputs)
        try:
            author = self._author
            with self._result(match) as result:
                return author.refusal(author.call(author.owner.meet_requirements, result))
        finally:
            current_inputs.reset(token)

    def Replacement(self, match: gehost.MatchResult) -> EsGraph:
        token = current_inputs.set(match.inputs)
        try:
            with self._result(match) as result:
                return self._replacement(match, result)
        finally:
            current_inputs.reset(token)

    def _replacement(self, match: gehost.MatchResult, result: MatchResult) -> EsGraph:
        author = self._author
        method = author.owner.replacement
        names = [name for name in passes.arguments_of(method) if name != "context"]
        if names[:1] != ["inputs"]:
            return _built(author.call(method, result))
        if not author.owner.pattern_methods:
            raise PatternError("replacement(self, inputs) goes with @pattern methods")
        with es.written_at(origin_of(method)):
            builder = GraphBuilder("replacement")
        count = len(match.inputs)
        inputs = PassInputs(builder, count)
        returned = author.call(method, inputs, *([result] if len(names) > 1 else []))
        outputs = _tensors(returned, method)
        for index in range(count):
            _ = inputs[index]  # the host counts a replacement's inputs without a gap
        return builder.build_and_reset(outputs).built

    @contextmanager
    def _result(self, match: gehost.MatchResult) -> Generator[MatchResult]:
        result = MatchResult(match, *self._by_pattern[match.pattern])
        try:
            yield result
        finally:
            result.is_over = True

    def _traced(self, name: str) -> Pattern:
        owner = self._author.owner
        method = getattr(owner, name)
        where = origin_of(method)
        with es.written_at(where):
            builder = GraphBuilder(f"{type(owner).__name__}_{name}_pattern")
        inputs = PassInputs(builder)
        outputs = _tensors(method(inputs), method)
        for tensor in outputs:
            if not isinstance(tensor.tensor.producer, es.EsNode):
                raise PatternError(
                    f"it returns {tensor.name}, which no operator of the pattern makes; "
                    "return results alone (inputs are captured anyway, before them)",
                    where=where,
                )
        with es.written_at(where):
            pattern = Pattern(builder.build_and_reset(outputs))
        for index in sorted(inputs.made):
            pattern.capture_tensor(inputs.made[index])
        for tensor in outputs:
            pattern.capture_tensor(tensor)
        return pattern


class DecomposeAdapter(gehost.DecomposePass):
    """A ``ge.passes.DecomposePass``."""

    def __init__(self, cls: type[passes.DecomposePass]) -> None:
        self._author = _Author(cls)
        self._forms = {onnx_name(op): FORMS.get(op) for op in cls.op_types}
        super().__init__(list(self._forms))

    def Run(self, graph: gehost.Graph, context: CustomPassContext) -> Any:
        self._author.context = PassContext(context)
        return super().Run(graph, context)

    def MeetRequirements(self, node: Node) -> bool | Refusal:
        form = self._forms.get(node.op)
        if form is not None and (reason := form.misfit(node)):
            return Refusal.of(reason)
        token = current_inputs.set(list(node.inputs))
        try:
            author = self._author
            return author.refusal(author.call(author.owner.meet_requirements, self._node(node)))
        finally:
            current_inputs.reset(token)

    def Replacement(self, node: Node) -> EsGraph:
        token = current_inputs.set(list(node.inputs))
        try:
            return _built(self._author.call(self._author.owner.replacement, self._node(node)))
        finally:
            current_inputs.reset(token)

    def _node(self, node: Node) -> GeNode:
        form = self._forms.get(node.op)
        return GeNode(node, {} if form is None else {node: form})


class GraphAdapter(gehost.FusionBasePass):
    """A ``ge.passes.FusionBasePass``, which runs once a compile on the whole graph."""

    def __init__(self, cls: type[passes.FusionBasePass]) -> None:
        self._author = _Author(cls)

    def Run(self, graph: gehost.Graph, context: CustomPassContext) -> bool:
        if graph.owner is not None:
            return True  # the author's run reaches bodies by get_all_nodes
        author = self._author
        author.context = PassContext(context)
        answer = author.owner.run(Graph(graph), author.context)
        context.SetErrorMessage(author.context.get_error_message() or f"it returned {answer!r}")
        return answer is None or bool(answer)


def onnx_name(op: str) -> str:
    """Return the ONNX operator that a name of ``op_types`` stands for.

    Raises:
        PatternError: it stands for several nodes, or ONNX means another operator by it.
    """
    form = FORMS.get(op)
    if form is None or form.onnx:
        return op if form is None else form.onnx
    raise PatternError(f"op_types: {op} is no single node here, but {form.here}")


def _as_patterns(returned: Any) -> list[Pattern]:
    items = items_of(returned)
    if items is None:
        raise PatternError(f"patterns must return a list of patterns, got {returned!r}")
    return [pattern if isinstance(pattern, Pattern) else Pattern(pattern) for pattern in items]


def _constrain_numbers(pattern: Pattern) -> None:
    """Compare numbers of inputs in GE that are attributes in ONNX as other constants are."""
    for node in pattern.host_pattern.graph.nodes:
        if _NUMBERED.intersection(node.ops):
            numbers = {name: node.params[name] for name in _NUMBERS if name in node.params}
            node.constraints.update(numbers)


_NUMBERS = ("axes", "axis", "perm")
_NUMBERED = frozenset(
    (
        *("ArgMax", "ArgMin", "Concat", "Gather", "ReduceL1", "ReduceL2", "ReduceLogSum"),
        *("ReduceLogSumExp", "ReduceMax", "ReduceMean", "ReduceMin", "ReduceProd", "ReduceSum"),
        *("ReduceSumSquare", "Split", "Squeeze", "Transpose", "Unsqueeze"),
    )
)


def _tensors(returned: Any, method: Callable[..., Any]) -> list[TensorHolder]:
    items = [returned] if isinstance(returned, TensorHolder) else items_of(returned)
    if not items or not all(isinstance(tensor, TensorHolder) for tensor in items):
        name = getattr(plain_function(method), "__name__", repr(method))
        raise PatternError(
            f"{name} must return a tensor or a list of tensors, got {returned!r}",
            where=origin_of(method),
        )
    return items


def _built(returned: Any) -> EsGraph:
    if not isinstance(returned, Graph):
        raise PatternError(
            f"replacement must return the result of build_and_reset, got {returned!r}"
        )
    return returned.built


_ADAPTERS: dict[str, Callable[[Any], Any]] = {
    "pattern_fusion": PatternAdapter,
    "decompose": DecomposeAdapter,
    "fusion_base": GraphAdapter,
}


def spec_of(descriptor: PassDescriptor) -> PassSpec:
    """Return a pass as the host registers it."""
    cls, adapter = descriptor.cls, _ADAPTERS[descriptor.kind]
    names = dict(passes.METHOD_NAMES)
    if issubclass(cls, gehost.FusionBasePass):  # the host runs it as it is
        names = names if any(hasattr(cls, own) for own in names.values()) else {}
    else:
        names["Patterns"] = " or ".join(getattr(cls, "pattern_methods", ())) or "patterns"
    return PassSpec(
        name=descriptor.name,
        stage=descriptor.stage.host_stage,
        origin=str(descriptor.origin),
        kind=descriptor.kind,
        factory=cls if issubclass(cls, gehost.FusionBasePass) else lambda: adapter(cls),
        trusted=issubclass(cls, passes.PatternFusionPass | passes.DecomposePass),
        any_option=True,
        method_names=names,
        author=cls,
    )
