"""The classes that pass authors derive from, and their registration.

Source: the documented Python interface of GE (Passes; Python Fusion Pass Development Guide).
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any, ClassVar, TypeVar

import gehost
from gehost_ge.errors import checked, items_of, origin
from gehost_ge.graph import Graph, Node
from gehost_ge.patterns import MatchResult, Pattern, PatternMatcherConfig
from gehost_ge.registered import DESCRIPTOR, PassDescriptor, PassStage, register
from gehost_ge.rewriting import PassContext

__all__ = [
    "DecomposePass",
    "FusionBasePass",
    "PassStage",
    "PatternFusionPass",
    "pattern",
    "register_decompose_pass",
    "register_fusion_pass",
]

_PATTERN = "__ge_pattern__"
_Method = TypeVar("_Method", bound=Callable[..., Any])
_Pass = TypeVar("_Pass", bound=type[Any])


def pattern(method: _Method) -> _Method:
    """Mark a method ``(self, inputs)`` that returns the results of one pattern."""
    if not callable(method):
        raise TypeError(f"@pattern marks a method, got {method!r}")
    if inspect.iscoroutinefunction(method):
        raise TypeError(f"{method.__qualname__} is async; a pass has plain methods")
    setattr(method, _PATTERN, True)
    return method


class FusionBasePass:
    """A pass on the whole graph."""

    def run(self, graph: Graph, context: PassContext) -> Any:
        """Change the graph; return ``False`` or 0 for a failure."""
        raise NotImplementedError


class _WithoutRun:
    """Base of the classes whose ``run`` is the host's."""

    def __init_subclass__(cls, **named: Any) -> None:
        super().__init_subclass__(**named)
        if "run" in vars(cls):
            raise TypeError(
                f"{cls.__name__} defines run; derive from FusionBasePass to walk the graph"
            )


class PatternFusionPass(_WithoutRun):
    """Replaces each match of its patterns by a graph.

    Patterns are methods marked with ``@pattern``, or the list that ``patterns`` returns.
    """

    pattern_methods: ClassVar[tuple[str, ...]] = ()
    """Names of the methods marked with ``@pattern``, in order of definition."""

    def __init__(self, matcher_config: PatternMatcherConfig | None = None) -> None:
        if matcher_config is not None:
            checked(matcher_config, PatternMatcherConfig, "the result of build()")
        self.matcher_config = matcher_config or PatternMatcherConfig()

    def __init_subclass__(cls, **named: Any) -> None:
        super().__init_subclass__(**named)
        marked = {
            name: None
            for base in reversed(cls.__mro__)
            for name, method in vars(base).items()
            if getattr(method, _PATTERN, False)
        }
        cls.pattern_methods = tuple(marked)
        own = cls.patterns is not PatternFusionPass.patterns
        if own and marked:
            raise TypeError(
                f"{cls.__name__} has patterns and @pattern methods ({', '.join(marked)}); "
                "keep one form"
            )
        if own and len(_parameters(cls.patterns)) > 1:
            raise TypeError(
                f"{cls.__name__}.patterns takes self alone; mark a method (self, inputs) with "
                "@pattern"
            )

    def patterns(self) -> Sequence[Pattern | Graph]:
        """Return the patterns, tried in this order."""
        raise NotImplementedError

    def meet_requirements(self, match_result: MatchResult) -> bool:
        """Return whether a match may be replaced."""
        del match_result
        return True

    def replacement(self, match_result: MatchResult) -> Graph:
        """Return a match's replacement; with ``@pattern`` also ``(self, inputs)``."""
        raise NotImplementedError


class DecomposePass(_WithoutRun):
    """Replaces single nodes of some operators by graphs."""

    op_types: Sequence[str] = ()

    def meet_requirements(self, node: Node) -> bool:
        """Return whether a node is to be replaced."""
        del node
        return True

    def replacement(self, node: Node) -> Graph:
        """Return the node's replacement: inputs and outputs by position."""
        raise NotImplementedError


BASES = (FusionBasePass, PatternFusionPass, DecomposePass)
RESERVED = frozenset({"op_types", "pattern_methods"})
"""Attributes of the base classes that are no methods of authors."""


def pass_classes(module: ModuleType) -> list[type[Any]]:
    """Return the complete pass classes of a module that are not registered."""
    return [
        var
        for var in vars(module).values()
        if isinstance(var, type)
        and issubclass(var, BASES)
        and var.__module__ == module.__name__
        and DESCRIPTOR not in vars(var)
        and not _missing_methods(var)
    ]


def register_fusion_pass(
    *, name: str, stage: PassStage, kind: str | None = None
) -> Callable[[_Pass], _Pass]:
    """Register a ``PatternFusionPass`` or ``FusionBasePass``.

    A class that derives from a base class of gehost or of its plugins, such as
    ``AttentionFusionPass``, may have GE's Python names of its methods, too.

    Raises:
        TypeError: the class derives from neither, or an argument is of another type.
        ValueError: the name is empty, or ``kind`` is not the class's.
    """
    where = origin()
    _check(name, stage)

    def mark(cls: Any) -> Any:
        bases = PatternFusionPass | FusionBasePass | gehost.FusionBasePass
        if not isinstance(cls, type) or not issubclass(cls, bases):
            raise TypeError(
                f"{name}: a fusion pass derives from PatternFusionPass or FusionBasePass"
            )
        patterns = PatternFusionPass | gehost.PatternFusionPass
        own = "pattern_fusion" if issubclass(cls, patterns) else "fusion_base"
        if kind not in (None, own):
            raise ValueError(f'{name}: kind is "{own}" for this class, not {kind!r}')
        _take_over_methods(cls)
        _check_methods(cls)
        register(
            PassDescriptor(name, stage, own, cls.__module__, cls.__name__, cls=cls, origin=where)
        )
        return cls

    return mark


def register_decompose_pass(
    *, name: str, stage: PassStage, op_types: Sequence[str]
) -> Callable[[_Pass], _Pass]:
    """Register a ``DecomposePass`` for some operators.

    Raises:
        TypeError: the class does not derive from it, or an argument is of another type.
        ValueError: a name or ``op_types`` is empty.
    """
    where = origin()
    _check(name, stage)
    items = items_of(op_types)
    if items is None or not all(isinstance(op, str) for op in items):
        raise TypeError(f"{name}: op_types is a list of names, got {op_types!r}")
    if not items or not all(items):
        raise ValueError(f"{name}: op_types names no operator")

    def mark(cls: Any) -> Any:
        if not isinstance(cls, type) or not issubclass(cls, DecomposePass):
            raise TypeError(f"{name}: a decompose pass derives from DecomposePass")
        _check_methods(cls)
        cls.op_types = items
        register(
            PassDescriptor(
                name,
                stage,
                "decompose",
                cls.__module__,
                cls.__name__,
                tuple(items),
                cls=cls,
                origin=where,
            )
        )
        return cls

    return mark


def _check(name: Any, stage: Any) -> None:
    if not isinstance(name, str):
        raise TypeError(f"a pass has a name as text, got {name!r}")
    if not name:
        raise ValueError("a pass needs a name")
    if not isinstance(stage, PassStage):
        raise TypeError(
            f"{name}: stage is one of PassStage.{', PassStage.'.join(PassStage.__members__)}, "
            f"got {stage!r}"
        )


def _check_methods(cls: type[Any]) -> None:
    missing = _missing_methods(cls)
    if missing:
        raise TypeError(f"{cls.__name__} does not define {' and '.join(missing)}")


METHOD_NAMES = {
    "Patterns": "patterns",
    "MeetRequirements": "meet_requirements",
    "Replacement": "replacement",
    "Run": "run",
}
"""GE's Python names of the host's methods."""


def _take_over_methods(cls: type[Any]) -> None:
    """Give the methods of a class of the host's bases the host's names."""
    if not issubclass(cls, gehost.FusionBasePass):
        return
    for name, own in METHOD_NAMES.items():
        if own in vars(cls):
            setattr(cls, name, vars(cls)[own])


def _missing_methods(cls: type[Any]) -> list[str]:
    """Return the methods that a class must define and does not."""
    if issubclass(cls, gehost.FusionBasePass):
        homes = {
            name: next(base for base in cls.__mro__ if name in vars(base))
            for name in cls.required_methods
        }
        return [
            METHOD_NAMES[name] for name, home in homes.items() if "required_methods" in vars(home)
        ]
    if issubclass(cls, FusionBasePass):
        return ["run"] if cls.run is FusionBasePass.run else []
    if issubclass(cls, PatternFusionPass):
        has_patterns = cls.pattern_methods or cls.patterns is not PatternFusionPass.patterns
        missing = [] if has_patterns else ["a @pattern method or patterns"]
        if cls.replacement is PatternFusionPass.replacement:
            missing.append("replacement")
        return missing
    return ["replacement"] if cls.replacement is DecomposePass.replacement else []


def _parameters(function: Callable[..., Any]) -> list[inspect.Parameter]:
    return list(inspect.signature(function).parameters.values())


def arguments_of(method: Callable[..., Any]) -> list[str]:
    """Return the names of a bound method's parameters by position."""
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return [parameter.name for parameter in _parameters(method) if parameter.kind in kinds]
