"""Passes of the pass manager, and their registration from a vendor file."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, ClassVar, NamedTuple, TypeVar, cast

import onnx

from gehost import (
    CustomPassContext,
    CustomPassStage,
    Graph,
    PassError,
    PassOption,
    PassSpec,
    Pattern,
    PatternError,
    PatternFusionPass,
    Status,
    VariadicPattern,
    VendorError,
    es,
)
from gehost_drr.expressions import HERE
from gehost_drr.greedy import (
    ApplyPatternsGreedily,
    Driven,
    FrozenRewritePatternSet,
    GreedyRewriteConfig,
    RewritePatternSet,
    driving,
    is_rule,
)
from gehost_drr.operation import GraphOperation
from gehost_drr.rule import DrrPatternBase, DrrRule, note_class

_MARK = "__gehost_drr_pass__"


class Registration(NamedTuple):
    """How ``REG_IR_PASS`` registers a class."""

    name: str
    default: bool
    options: tuple[PassOption, ...]


class Pass:
    """A pass over a graph and its nested bodies, one by one.

    Override ``Run``.

    Name and level are class attributes, or arguments of the constructor:
    ``super().__init__("fused_linear_pass", 2)``.
    """

    name: str = ""
    opt_level: int = 1
    """A manager of a lower level leaves the pass out."""
    labels: ClassVar[Iterable[str]] = ()
    stage: ClassVar[CustomPassStage] = CustomPassStage.kAfterInferShape
    origin: ClassVar[es.Origin]
    context: CustomPassContext
    """Of the pass while it runs."""

    def __init__(self, name: str = "", opt_level: int | None = None) -> None:
        if name:
            self.name = name
        if opt_level is not None:
            self.opt_level = opt_level

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        cls.origin = es.author_origin(HERE)
        note_class(cls)

    def Initialize(self, context: CustomPassContext) -> bool | None:
        """Called once a compile, before the first ``Run``; False fails the pass."""
        del context

    def CanApplyOn(self, op: GraphOperation) -> bool:
        """Whether to run on a graph."""
        del op
        return True

    def Run(self, op: GraphOperation) -> Status | bool | None:
        """Work on one graph; False fails the pass.

        Use ``ApplyPatternsGreedily``, or edit the graph.

        Args:
            op: the graph as Paddle's operation (``op.region(0)``); it has gehost's ``Graph``
                methods too.
        """
        del op
        raise PassError(f"{type(self).__name__} does not define Run(self, op)")

    def Instances(self) -> Iterable[onnx.ModelProto]:
        """Return models that the pass rewrites.

        ``check-pass`` checks them besides those it draws.
        """
        return ()

    def AddStatistics(self, count: int) -> None:
        """Note how much was done, for passes that do it by themselves."""
        self.context.record.replaced += count

    def pass_name(self) -> str:
        """Return the constructor's name, else the registration's, else the class's."""
        return (
            vars(self).get("name")
            or getattr(registration(type(self)), "name", "")
            or self.name
            or type(self).__name__
        )


class PatternRewritePass(Pass):
    """A pass that applies a set of rules greedily.

    Give ``patterns``, or override ``InitializePatterns``.
    """

    patterns: ClassVar[Sequence[DrrRule | DrrPatternBase | type[DrrPatternBase]]] = ()
    _frozen: FrozenRewritePatternSet | None = None

    def __init_subclass__(cls, **options: Any) -> None:
        """Raises ``PatternError`` where ``patterns`` is no list of rules."""
        super().__init_subclass__(**options)
        items: Any = cls.patterns
        if not isinstance(items, list | tuple) or not all(
            map(is_rule, cast("Iterable[Any]", items))
        ):
            raise PatternError(
                f"patterns must be a list of rules, got {items!r}",
                where=cls.origin,
                subject=cls.__name__,
            )

    def InitializePatterns(self, context: CustomPassContext) -> RewritePatternSet:
        del context
        return RewritePatternSet(*self.patterns)

    def InitializeConfig(self) -> GreedyRewriteConfig:
        return GreedyRewriteConfig()

    def Initialize(self, context: CustomPassContext) -> bool | None:
        """Freeze the rules; one that overrides it calls it.

        Raises:
            PassError: there are no rules.
        """
        patterns = self.InitializePatterns(context)
        if not patterns.rules:
            raise PassError("it has no rules: define patterns, or override InitializePatterns")
        self._frozen = FrozenRewritePatternSet(patterns)

    def Run(self, op: GraphOperation) -> Status | bool | None:
        if self._frozen is None:
            raise PassError("its Initialize does not call super().Initialize(context)")
        ApplyPatternsGreedily(op, self._frozen, self.InitializeConfig())

    def forget_compile(self) -> None:
        """Drop what belongs to a model; the rules stay frozen."""
        vars(self).pop("context", None)
        if self._frozen is not None:
            self._frozen.end_compile()


_METHODS = ("__init__", "Initialize", "InitializePatterns", "InitializeConfig", "CanApplyOn", "Run")
"""Where a class could change a graph in another way than by rules, or give its objects other
methods.
"""


class RunningPass:
    """A ``Pass`` as the host runs it.

    It runs for each graph of a model in turn.
    """

    def __init__(self, pass_: Pass, driven: dict[str, Driven] | None = None) -> None:
        """``driven``: receives the results of drivers, by pass."""
        self.subject = pass_
        self._noted = {} if driven is None else driven
        self._driven: Driven | None = None

    def Instances(self) -> Iterable[onnx.ModelProto]:
        """The models that the pass offers to ``check-pass``."""
        return self.subject.Instances()

    def Run(self, graph: Graph, context: CustomPassContext) -> Status | bool | None:
        pass_, returned = self.subject, None
        if self._driven is None:
            pass_.context = context
            self._initialize(context)
            self._driven = self._noted[context.record.name] = Driven(context)
        op = GraphOperation(graph)
        if not pass_.CanApplyOn(op):
            self._driven.notes[f'CanApplyOn refused graph "{graph.name}"'] = None
        else:
            with driving(self._driven):
                returned = pass_.Run(op)
        context.record.message = "; ".join(self._driven.notes)
        return returned

    def _initialize(self, context: CustomPassContext) -> None:
        if self.subject.Initialize(context) is False:
            raise PassError("Initialize returned False")


class RunningRules(RunningPass, PatternFusionPass):
    """A ``PatternRewritePass`` as the host runs it.

    It has patterns, so that ``check-pass`` can build instances of them.
    """

    subject: PatternRewritePass

    def __init__(self, pass_: PatternRewritePass, *, only_rules: bool) -> None:
        """``only_rules``: its class overrides none of ``_METHODS``."""
        super().__init__(pass_)
        self._only_rules = only_rules
        self._initialized = False

    def _initialize(self, context: CustomPassContext) -> None:
        if not self._initialized:
            super()._initialize(context)
            self._initialized = True

    def end_compile(self) -> bool:
        """Keep the rules and their lowered patterns, unless the class has methods of its own."""
        self._driven, self._noted = None, {}
        self.subject.forget_compile()
        return self._only_rules

    def Patterns(self) -> Sequence[Pattern | VariadicPattern]:
        return [rule.searched for rule in self._rules_listed()]

    def Instances(self) -> Iterable[onnx.ModelProto]:
        """The models that the pass and its rules offer to ``check-pass``."""
        yield from self.subject.Instances()
        for rule in self._rules_listed():
            yield from () if rule.instances is None else rule.instances()

    def _rules_listed(self) -> Sequence[DrrRule]:
        return RewritePatternSet(*self.subject.patterns).rules


_Pass = TypeVar("_Pass", bound=type[Pass])


def REG_IR_PASS(
    name: str = "", *, default: bool = True, options: Sequence[PassOption] = ()
) -> Callable[[_Pass], _Pass]:
    """Register a pass of a vendor file: ``@REG_IR_PASS("fused_linear_pass")`` on a subclass of
    ``Pass``.

    Args:
        name: the class's name unless given.
        default: False for a pass that runs only where ``--enable`` or a switch file names it.
        options: the options of ``--set NAME.option=value``; ``self.context.options`` has values.

    Raises:
        VendorError: the class is none, or does not define ``Run``.
    """

    def mark(cls: _Pass) -> _Pass:
        origin = es.author_origin(HERE)
        if not isinstance(cls, type) or not issubclass(cls, Pass):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise VendorError(
                f"REG_IR_PASS wants a subclass of gehost_drr.Pass, got {cls!r}", where=origin
            )
        if cls.Run is Pass.Run:
            raise VendorError(f"{cls.__name__} does not define Run(self, op)", where=origin)
        registered = Registration(name or cls.name or cls.__name__, default, tuple(options))
        setattr(cls, _MARK, registered)
        return cls

    return mark


def registration(cls: type[Pass]) -> Registration | None:
    """How a class itself was registered; None where it was not."""
    return cls.__dict__.get(_MARK)


def spec_of(cls: type[Pass], registered: Registration) -> PassSpec:
    """The registration of a pass class."""

    def factory() -> RunningPass:
        result = cls()
        return (
            RunningRules(result, only_rules=trusted)
            if isinstance(result, PatternRewritePass) and result.patterns
            else RunningPass(result)
        )

    trusted = issubclass(cls, PatternRewritePass) and all(
        getattr(cls, item) is getattr(PatternRewritePass, item) for item in _METHODS
    )
    return PassSpec(
        registered.name,
        cls.stage,
        str(cls.origin),
        "drr",
        factory,
        labels=frozenset(cls.labels),
        trusted=trusted,
        default=registered.default,
        options=registered.options,
    )
