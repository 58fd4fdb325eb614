"""A declarative rule, checked when defined; then pattern and replacement."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, ClassVar

import numpy as np
import onnx

from gehost import (
    CustomPassContext,
    CustomPassStage,
    EsGraph,
    EsGraphBuilder,
    EsTensor,
    Graph,
    MatchResult,
    PassError,
    PassSpec,
    Pattern,
    PatternError,
    PatternFusionPass,
    Refusal,
    Status,
    Value,
    VariadicPattern,
    es,
    expressions,
)
from gehost_drr.checks import check, check_options
from gehost_drr.constants import ConstantSource, filled
from gehost_drr.expressions import HERE, Expression, Variable
from gehost_drr.graph import Application, Const, Native, NoneTensor, PatternGraph
from gehost_drr.matched import MatchContext
from gehost_drr.patterns import DrrPatternContext


@dataclass(frozen=True, eq=False)
class DrrRule:
    """A rule as its author defined it.

    The pattern and replacement are built from it.
    """

    name: str
    origin: es.Origin
    module: str
    source: PatternGraph
    result: PatternGraph
    inputs: tuple[str, ...]
    """The tensors that the match takes, by index."""
    outputs: tuple[str, ...]
    """The tensors that are replaced."""
    tensors: Mapping[str, int]
    """Under which index the pattern captures each tensor."""
    pattern: Pattern
    stage: CustomPassStage = CustomPassStage.kAfterInferShape
    benefit: int = 1
    labels: frozenset[str] = frozenset()
    min_opset: int | None = None
    max_opset: int | None = None
    shape_proven: bool = False
    default: bool = True
    instances: Callable[[], Iterable[onnx.ModelProto]] | None = None
    """Gives models that the rule rewrites, for ``check-pass``."""
    of: Callable[[int], DrrRule] | None = None
    """The rule for another number of operands; this one is for the least."""
    variadic: VariadicPattern | None = None
    """The patterns for all numbers, where there is ``of``."""

    @property
    def searched(self) -> Pattern | VariadicPattern:
        """The pattern for which a pass searches."""
        return self.pattern if self.variadic is None else self.variadic

    @cached_property
    def computed(self) -> tuple[Expression, ...]:
        """Values that attributes of the result are computed from.

        They must be known; a variable's value may be absent.
        """
        values = (
            value
            for application in self.result.applications
            for value in application.attributes.values()
        )
        return tuple(
            value
            for value in values
            if isinstance(value, Expression) and not isinstance(value, Variable)
        )

    @cached_property
    def variables(self) -> Mapping[str, tuple[ConstantSource, str]]:
        """The attribute variables that a constant of the source binds."""
        return {
            value.name: (constant, name)
            for constant in self.source.constants
            for name, value in constant.attributes.items()
            if isinstance(value, Variable)
        }

    @cached_property
    def _in_order(self) -> Sequence[Application]:
        return self.result.in_order()

    @cached_property
    def _values(self) -> Sequence[Callable[[MatchContext], Any]]:
        """The values that a replacement reads from a match.

        They are in the order of ``_apply``.
        """
        arguments = [
            value
            for item in self._in_order
            for value in (*item.attributes.values(), *item.constants)
        ]
        return [compute for value in arguments if (compute := _computation(value)) is not None]

    @cached_property
    def _has_lists(self) -> bool:
        """Whether the result reads a list or array.

        Its author may fill it for each match.
        """
        return any(
            isinstance(operand, list | np.ndarray)
            for item in self._in_order
            for operand in item.inputs
        )

    @cached_property
    def _recipe(self) -> es.Recipe:
        return es.Recipe(self._build)

    @classmethod
    def defined(
        cls, name: str, origin: es.Origin, module: str, context: DrrPatternContext, **options: Any
    ) -> DrrRule:
        """The rule that an author wrote into ``context``.

        Raises:
            PatternError: it is not well-formed; names the file and line at fault.
        """
        source, result = context.source, context.result
        check_options(name, origin, options)
        check(name, origin, source, result)
        outputs = tuple(
            maker
            for maker in dict.fromkeys((*result.makers, *result.forwards))
            if maker in source.makers
        )
        with es.written_at(origin):
            pattern, inputs, tensors = _as_pattern(name, source, outputs)
            _dry_run(name, result, inputs)
        options["labels"] = frozenset(options["labels"])
        return cls(
            name, origin, module, source, result, inputs, outputs, tensors, pattern, **options
        )

    def __repr__(self) -> str:
        return f"<DrrRule {self.name} at {self.origin}>"

    def __str__(self) -> str:
        """The rule as one may read it: source, conditions, result."""
        parts = [f"benefit {self.benefit}", *sorted(self.labels)]
        if self.min_opset is not None or self.max_opset is not None:
            parts.append(f"opsets {self.min_opset or 'any'} to {self.max_opset or 'any'}")
        lines = [f"{self.name} ({', '.join(parts)}) at {self.origin}"]
        lines += [f"  match    {application}" for application in self.source.applications]
        lines += [f"  where    {application}" for application in self.source.conditions]
        lines += [f"  replace  {application}" for application in self.result.applications]
        lines += [
            f"  replace  {target} = {tensor}"
            for target, (tensor, _) in self.result.forwards.items()
        ]
        return "\n".join(lines)

    def unfit_for(self, opset: int) -> str:
        """Why the rule is not for an opset; "" where it is."""
        if self.min_opset is not None and opset < self.min_opset:
            return f"needs opset {self.min_opset} or newer, the model has {opset}"
        if self.max_opset is not None and opset > self.max_opset:
            return f"is for opsets up to {self.max_opset}, the model has {opset}"
        return ""

    def spec(self) -> PassSpec:
        """The rule as a pass of its own."""
        return PassSpec(
            self.name,
            self.stage,
            str(self.origin),
            "drr",
            partial(DrrPass, self),
            min_opset=self.min_opset,
            max_opset=self.max_opset,
            benefit=self.benefit,
            labels=self.labels,
            trusted=True,
            default=self.default,
        )

    def refusal(self, matched: MatchContext) -> Refusal | None:
        """Why a match may not be replaced; None where it may."""
        for constant in self.source.constants:
            value = matched.value(constant.tensor)
            if value.array is None:
                return matched.reject(f"constant: the tensor at {constant.op} is computed")
            for name, attribute in constant.attributes.items():
                result = constant.attribute(name, value)
                if result is None or not (
                    isinstance(attribute, Variable)
                    or (attribute(result) if callable(attribute) else _equal(result, attribute))
                ):
                    return matched.reject(f"constant: {name} of {constant.op} is {result}")
        for condition in self.source.conditions:
            test = condition.test
            if isinstance(test, Expression):
                try:
                    problem = "" if test.at(matched) is True else f"{test} is false"
                except expressions.Unknown as reason:
                    problem = f"{test} is not known: {reason}"
                if problem:
                    return matched.reject(condition.reason or f"where: {problem}")
                continue
            answer = test(matched)
            if isinstance(answer, Refusal):
                return answer
            if not isinstance(answer, int | np.bool_ | None):
                raise PassError(
                    f"the native call at {condition.origin} must return True, False or "
                    f"m.reject(reason), got {answer!r}"
                )
            if answer is None:
                return matched.reject(f"native call: the one at {condition.origin} returned None")
            if not answer:
                return matched.reject(condition.reason)
        for expression in self.computed:
            try:
                expressions.known(expression.at(matched))
            except expressions.Unknown as reason:
                return matched.reject(f"result: {expression} is not known: {reason}")
        return None

    def replacement(self, matched: MatchContext) -> EsGraph:
        """Build the replacement of a match."""
        values = [compute(matched) for compute in self._values]
        return self._build(values) if self._has_lists else self._recipe.graph(values)

    def _build(self, values: Sequence[Any]) -> EsGraph:
        computed = iter(values)
        with es.written_at(self.origin):
            builder = EsGraphBuilder(self.name)
            results: dict[str, EsTensor] = dict(
                zip(self.inputs, builder.CreateInputs(len(self.inputs)), strict=True)
            )
        for application in self._in_order:
            params = {
                name: _value(value, computed) for name, value in application.attributes.items()
            }
            _apply(application, builder, results, params, lambda const: _value(const, computed))
        for target, (tensor, _) in self.result.forwards.items():
            results[target] = results[tensor]
        return builder.BuildAndReset([results[name] for name in self.outputs])


class DrrPass(PatternFusionPass):
    """One rule as a pass."""

    kind: ClassVar[str] = "drr"

    def __init__(self, rule: DrrRule, *, bottom_up: bool = False) -> None:
        super().__init__()
        self.rule = rule
        self.shape_proven = rule.shape_proven  # pyright: ignore[reportAttributeAccessIssue] - set by each rule
        self.bottom_up = bottom_up  # pyright: ignore[reportAttributeAccessIssue] - set by the caller
        self._constants: dict[Value, None] = {}
        """The constants of nodes that replaced matches read."""
        self._asked: tuple[MatchResult, MatchContext] | None = None
        """The match of the last query, which is mostly the one to be replaced."""

    def Patterns(self) -> Sequence[Pattern | VariadicPattern]:
        return [self.rule.searched]

    def Instances(self) -> Iterable[onnx.ModelProto]:
        """The models that the rule offers to ``check-pass``."""
        return () if self.rule.instances is None else self.rule.instances()

    def MeetRequirements(self, match: MatchResult) -> bool | Refusal:
        refusal = self._rule_of(match).refusal(self._context(match))
        return True if refusal is None else refusal

    def Replacement(self, match: MatchResult) -> EsGraph:
        self._constants.update(
            (value, None)
            for value in match.inputs
            if value.producer is not None and value.producer.op == "Constant"
        )
        return self._rule_of(match).replacement(self._context(match))

    def Run(self, graph: Graph, context: CustomPassContext) -> Status | bool | None:
        """Replace the matches; a constant node goes with the last match that read it."""
        status = super().Run(graph, context)
        for value in self._constants:
            if value.producer is not None and not value.readers and value.producer.in_graph:
                value.producer.graph.remove_node(value.producer)
        self._constants.clear()
        return status

    def end_compile(self) -> bool:
        """Keep the lowered pattern for the next compile: it depends on the rule alone."""
        super().end_compile()
        self._asked = None
        return True

    def _context(self, match: MatchResult) -> MatchContext:
        if self._asked is None or self._asked[0] is not match:
            rule = self._rule_of(match)
            self._asked = match, MatchContext(match, rule.tensors, rule.variables)
        return self._asked[1]

    def _rule_of(self, match: MatchResult) -> DrrRule:
        of, number = self.rule.of, match.number
        return self.rule if of is None or number is None else of(number)


CLASSES = "__gehost_drr_classes__"
"""Under which a module keeps its rule and pass classes, also those that another one hides."""


def note_class(cls: type) -> None:
    """Note a class of a module's own in this module."""
    if cls.__qualname__ == cls.__name__ and cls.__module__ in sys.modules:
        vars(sys.modules[cls.__module__]).setdefault(CLASSES, []).append(cls)


class DrrPatternBase:
    """A rule as a class.

    Override ``__call__``, which defines the patterns on ``ctx``. Collected from vendor files.
    """

    name: ClassVar[str] = ""
    """Default: the class's name."""
    benefit: ClassVar[int] = 1
    labels: ClassVar[Iterable[str]] = ()
    stage: ClassVar[CustomPassStage] = CustomPassStage.kAfterInferShape
    min_opset: ClassVar[int | None] = None
    max_opset: ClassVar[int | None] = None
    shape_proven: ClassVar[bool] = False
    """The rule proves output sizes that the host cannot compare."""
    default: ClassVar[bool] = True
    """False for a rule that runs only where ``--enable`` or a switch file names it."""
    origin: ClassVar[es.Origin]

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        cls.origin = es.author_origin(HERE)
        note_class(cls)

    def __call__(self, ctx: DrrPatternContext) -> None:
        del ctx
        raise PatternError(
            f"{type(self).__name__} does not define __call__(self, ctx)", where=self.origin
        )

    def Instances(self) -> Iterable[onnx.ModelProto]:
        """Return models that the rule rewrites.

        ``check-pass`` checks them besides those it draws.
        """
        return ()

    def Build(self, context: Any = None) -> DrrRule:
        """The rule, as published code builds it; the context is not needed."""
        del context
        return self.rule()

    def rule(self) -> DrrRule:
        """Define the rule; raises ``PatternError`` where it is not well-formed."""
        context = DrrPatternContext()
        self(context)
        return DrrRule.defined(
            self.name or type(self).__name__,
            self.origin,
            type(self).__module__,
            context,
            benefit=self.benefit,
            labels=self.labels,
            stage=self.stage,
            min_opset=self.min_opset,
            max_opset=self.max_opset,
            shape_proven=self.shape_proven,
            default=self.default,
            instances=self.Instances,
        )


# -- from the author's patterns to gehost's
# --------------------------------------------------------------------------------------------------


def _as_pattern(
    name: str, source: PatternGraph, outputs: Sequence[str]
) -> tuple[Pattern, tuple[str, ...], dict[str, int]]:
    """Return the pattern, its inputs by index, and captures by tensor.

    Captures have their index as value.
    """
    builder = EsGraphBuilder(name)
    ordered = source.in_order()
    inputs = dict.fromkeys(
        read for key in ordered for read in key.reads if read not in source.makers
    )
    results = {read: builder.CreateInput(index, read) for index, read in enumerate(inputs)}
    for application in ordered:
        tensors = _apply(application, builder, results, {}, lambda const: const)
        attributes = {
            key: es.Bind(attribute.name) if isinstance(attribute, Variable) else attribute
            for key, attribute in application.attributes.items()
        }
        with es.written_at(application.origin):
            es.constrain(tensors[0], **attributes)
            if application.commutative:
                es.Commutative(tensors[0])
    pattern = Pattern(builder.BuildAndReset([results[output] for output in outputs]))
    captured: dict[str, int] = {}
    for index, (tensor, result) in enumerate(results.items()):
        pattern.CaptureTensor(result)
        captured[tensor] = index
    captured.update({old: captured[new] for old, new in source.renamed.items()})
    return pattern, tuple(inputs), captured


def _apply(
    application: Application,
    builder: EsGraphBuilder,
    results: dict[str, EsTensor],
    params: Mapping[str, Any],
    constant: Callable[[Const], Any],
) -> Sequence[EsTensor]:
    """Build one operator; add its outputs to ``results`` under their names."""
    with es.written_at(application.origin):
        operands: list[Any] = []
        for argument, name in application.operands:
            if name is not None:
                operands.append(results[name])
            elif isinstance(argument, Const):
                value = constant(argument)  # a bare number takes its partner's dtype
                bare = isinstance(value, int | float | list | tuple) and bool(application.reads)
                operands.append(value if bare else builder.CreateConst(value))
            else:
                operands.append(None if isinstance(argument, NoneTensor) else argument)
        count = len(application.outputs)
        if application.is_fill:
            returned = builder.CreateConst(filled(application.ops[0], params))
        elif operands:
            returned = application.function(*operands, num_outputs=count, **params)
        else:
            returned = application.function.on(builder, num_outputs=count, **params)
        tensors = [returned] if isinstance(returned, EsTensor) else list(returned)
    results.update(
        (name, tensor) for name, tensor in zip(application.outputs, tensors, strict=True) if name
    )
    return tensors


def _dry_run(name: str, result: PatternGraph, inputs: Sequence[str]) -> None:
    """Build the result once without its values.

    This shows parameters and numbers of inputs that do not exist.
    """
    builder = EsGraphBuilder(name)
    results: dict[str, EsTensor] = dict(zip(inputs, builder.CreateInputs(len(inputs)), strict=True))
    for application in result.in_order():
        if len(application.ops) > 1:
            raise PatternError(
                "a result must name one operator",
                where=application.origin,
                subject="|".join(application.ops),
            )
        _apply(application, builder, results, dict.fromkeys(application.attributes), lambda _: 0)


def _equal(result: Any, expected: Any) -> bool:
    return bool(np.array_equal(np.asarray(result), np.asarray(expected)))


def _computation(argument: Any) -> Callable[[MatchContext], Any] | None:
    """Return the function that computes a part of the result.

    It computes an attribute or input from a match; it is None for a plain value.
    """
    if isinstance(argument, Native | Const):
        return argument.compute
    if isinstance(argument, Variable):
        return lambda matched: matched.Attr(argument.name)
    if isinstance(argument, Expression):
        return lambda matched: expressions.plain(expressions.known(argument.at(matched)))
    return argument if callable(argument) else None


def _value(argument: Any, computed: Iterator[Any]) -> Any:
    return argument if _computation(argument) is None else next(computed)
