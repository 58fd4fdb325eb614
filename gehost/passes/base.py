"""The classes that pass authors derive from."""

from __future__ import annotations

import inspect
from collections.abc import Collection, Mapping, Sequence
from typing import Any, ClassVar, Self

from gehost.errors import PatternError, VendorError
from gehost.es.graph import EsGraph
from gehost.ir.graph import Graph, Node
from gehost.ir.model import Model
from gehost.location import author_origin
from gehost.passes import driver
from gehost.passes.author_errors import author_errors
from gehost.passes.context import CustomPassContext
from gehost.passes.registration import check_stage, mark_of
from gehost.pattern.match import MatchResult
from gehost.pattern.pattern import Pattern, PatternMatcherConfig, VariadicPattern
from gehost.refusal import Refusal
from gehost.settings import NO_OPTIONS
from gehost.spelling import nearest_functions
from gehost.stages import CustomPassStage
from gehost.status import NOT_CHANGED, SUCCESS, Status


class FusionBasePass:
    """A pass on the whole graph, by ``SubgraphRewriter`` or ``Graph``'s methods."""

    rewrite_kind: ClassVar[str] = "fusion"
    required_methods: ClassVar[tuple[str, ...]] = ("Run",)
    """Methods that a subclass must define."""
    shape_proven: ClassVar[bool] = False
    """True if the pass itself proves output sizes that the host cannot compare; its rewrites are
    then not refused for these.
    """
    names_refusals: ClassVar[bool] = False
    """True if ``Run`` gives a reason for each candidate that it leaves, so that ``explain`` need
    not say that it may not.
    """
    options: Mapping[str, Any] = NO_OPTIONS
    """The pass's options, equal to ``context.options``; set by the host before ``Run``."""

    def Run(self, graph: Graph, context: CustomPassContext) -> Status | bool | None:
        """Called for the root graph and then for every nested body."""
        raise NotImplementedError

    def absence(self, model: Model) -> str:
        """Return why ``Run`` found nothing in a model, for ``explain``; "" to say nothing."""
        del model
        return ""

    @classmethod
    def Stage(cls, stage: CustomPassStage) -> type[Self]:
        """Set the stage of a registered class:
        ``REG_FUSION_PASS(Cls).Stage(CustomPassStage.kAfterInferShape)``.

        Raises:
            VendorError: the class was not marked, or fusion passes cannot run at the stage.
        """
        origin = str(author_origin())
        mark = mark_of(cls)
        if mark is None:
            raise VendorError(
                f"{cls.__name__}.Stage() needs a class marked with REG_FUSION_PASS or "
                "REG_DECOMPOSE_PASS",
                where=origin,
            )
        check_stage(stage, origin, mark.name)
        mark.stage = stage
        return cls


class PatternFusionPass(FusionBasePass):
    """Replaces each match of its patterns by a graph.

    A subclass defines ``Patterns`` and ``Replacement`` and, if structure alone does not prove the
    rewrite right, ``MeetRequirements``. Set ``shape_proven = True`` on the class if
    ``MeetRequirements`` or the construction proves output sizes that the host cannot compare.
    """

    rewrite_kind: ClassVar[str] = "pattern"
    required_methods: ClassVar[tuple[str, ...]] = ("Patterns", "Replacement")
    shape_proven: ClassVar[bool] = False
    bottom_up: ClassVar[bool] = False
    """Replace the matches that exist when ``Run`` begins, from outputs to inputs; for passes that
    are run repeatedly until nothing changes.
    """
    _config: PatternMatcherConfig = PatternMatcherConfig()
    _patterns: driver.PassPatterns | None = None
    _rules: driver.PatternRules | None = None

    def __init__(self, config: PatternMatcherConfig | None = None) -> None:
        """Take a configuration.

        Raises:
            PatternError: it is not one, such as a builder without ``Build()``.
        """
        if config is None:
            return
        if not isinstance(config, PatternMatcherConfig):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise PatternError(
                "wanted the result of PatternMatcherConfigBuilder().Build(), got "
                f"{type(config).__name__}"
            )
        self._config = config

    @property
    def matcher_config(self) -> PatternMatcherConfig:
        """The strictness with which the patterns match."""
        return self._config

    def Patterns(self) -> Sequence[Pattern | VariadicPattern]:
        """Return the patterns, tried in this order; called once per pass object."""
        raise NotImplementedError

    def MeetRequirements(self, match: MatchResult) -> bool | Refusal:
        """Return whether a match may be replaced; ``match.reject("key: text")`` gives a reason."""
        del match
        return True

    def Replacement(self, match: MatchResult) -> EsGraph | Refusal:
        """Return a match's replacement: same outputs, and inputs by index.

        Return ``match.reject("key: text")`` to refuse the match after all, for example if
        ``GeUtils.CheckNodeSupport`` refuses a node of the replacement.
        """
        raise NotImplementedError

    def Run(self, graph: Graph, context: CustomPassContext) -> Status | bool | None:
        if self._rules is None:
            with author_errors(context, "Patterns", edits=False):
                if self._patterns is None:
                    self._patterns = driver.PassPatterns(self)
                lowered = self._patterns.lower(self._config, context.model, context.registry)
            self._rules = driver.PatternRules(self, lowered, context)
        return SUCCESS if self._rules.apply(graph) else NOT_CHANGED

    def end_compile(self) -> bool:
        """Forget the compile; return whether the next one may use this object.

        A new object is needed if this one has attributes of its own, which hold results of
        the compile.
        """
        self._rules = None
        return vars(self).keys() <= _SET_BY_HOST and not any(
            "__slots__" in vars(item) for item in type(self).__mro__
        )


_SET_BY_HOST = frozenset({"_config", "_patterns", "_rules", "options"})


class DecomposePass(FusionBasePass):
    """Replaces single nodes of given operators by graphs, not visited again."""

    rewrite_kind: ClassVar[str] = "decompose"
    required_methods: ClassVar[tuple[str, ...]] = ("Replacement",)
    shape_proven: ClassVar[bool] = False
    op_types: Sequence[str] = ()
    """Operators to be replaced; default: those of the registration."""

    def __init__(self, op_types: Sequence[str] = ()) -> None:
        if op_types:
            self.op_types = op_types

    def MeetRequirements(self, node: Node) -> bool | Refusal:
        """Return whether to replace a node; ``node.reject("key: text")`` gives a reason."""
        del node
        return True

    def Replacement(self, node: Node) -> EsGraph | Refusal:
        """Return the node's replacement: inputs and outputs by position.

        Return ``node.reject("key: text")`` to refuse the node after all.
        """
        raise NotImplementedError

    @property
    def replaced_ops(self) -> Sequence[str]:
        """The replaced operators, from class, constructor or registration."""
        mark = mark_of(type(self))
        return self.op_types or (mark.op_types if mark is not None else ())

    def Run(self, graph: Graph, context: CustomPassContext) -> Status | bool | None:
        return SUCCESS if driver.decompose(self, self.replaced_ops, graph, context) else NOT_CHANGED


def missing_methods(cls: type[FusionBasePass]) -> list[str]:
    """Return the methods that a pass class must define and does not."""
    styles = (PatternFusionPass, DecomposePass)
    style = next((base for base in styles if issubclass(cls, base)), FusionBasePass)
    return [name for name in style.required_methods if getattr(cls, name) is getattr(style, name)]


_RESERVED = frozenset(
    {
        "Stage",
        "end_compile",
        "rewrite_kind",
        "matcher_config",
        "options",
        "replaced_ops",
        "required_methods",
    }
)
"""Public names of the base classes that authors do not define, nor misspell."""


def method_problem(
    cls: type, bases: Sequence[type], reserved: Collection[str] = _RESERVED
) -> str | None:
    """Describe an async method, or a public name that probably misspells one; or return None.

    A method that the class also defines under its right name is not misspelled.

    Args:
        cls: a class of an author.
        bases: the base classes for passes; the attributes of those that ``cls`` derives from are
            the methods to define.
        reserved: attributes of the bases that authors must not define.
    """
    inherited = [base for base in bases if issubclass(cls, base)]
    methods = {name for base in inherited for name in vars(base) if not name.startswith("_")}
    own = [base for base in cls.__mro__ if not any(issubclass(entry, base) for entry in inherited)]
    for name in sorted(methods):
        if inspect.iscoroutinefunction(getattr(cls, name)):
            return f"{cls.__name__}.{name} is async; a pass has plain methods"
    missing = methods.difference(reserved, *(vars(base) for base in own))
    for base in reversed(own):
        for name in vars(base):
            if not name.startswith("_") and name not in methods:
                for function in nearest_functions(name, missing):
                    return f"{base.__name__} defines {name}; did you mean {function}?"
    return None
