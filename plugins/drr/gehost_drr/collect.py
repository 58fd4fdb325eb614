"""Collect the declarative rules and passes of a vendor file."""

from __future__ import annotations

import traceback
from types import ModuleType

from gehost import GehostError, PassRegistry, PatternError
from gehost_drr.drr import DEFINED
from gehost_drr.passes import Pass, PatternRewritePass, Registration, registration, spec_of
from gehost_drr.rule import CLASSES, DrrPatternBase, DrrRule

_BASES = (Pass, PatternRewritePass, DrrPatternBase)
_RESERVED = frozenset({"AddStatistics", "context", "origin", "pass_name", "rule"})
"""Public names of these that are not for authors to define."""


def collect(module: ModuleType, registry: PassRegistry) -> None:
    """Register the rules and passes that a module or package defines.

    Rules that a registered ``PatternRewritePass`` of the module lists run in it alone. Names with
    ``_`` in front are the file's own. The others run by benefit, then as they were written.

    Raises:
        PatternError: a rule is not well-formed, or hidden by another.
        VendorError: a pass of the name is registered already.
    """
    _check_names(module)
    public = [value for name, value in vars(module).items() if not name.startswith("_")]
    # a class of another file that this one imports is that file's
    own = [
        value
        for value in dict.fromkeys(value for value in public if isinstance(value, type | DrrRule))
        if _is_of(value.module if isinstance(value, DrrRule) else value.__module__, module)
    ]
    classes = [value for value in own if isinstance(value, type)]
    for cls in classes:
        if issubclass(cls, Pass | DrrPatternBase):
            registry.check_method_names(cls, _BASES, _RESERVED, cls.origin)
    registered: list[tuple[type[Pass], Registration]] = []
    for cls in classes:
        if not issubclass(cls, Pass):
            continue
        if (how := registration(cls)) is not None:
            registered.append((cls, how))
        elif _has_work(cls):
            registry.suspect(cls, "put @REG_IR_PASS() above it, or a _ in front of its name")
    listed = {
        type(rule) if isinstance(rule, DrrPatternBase) else rule
        for cls, _ in registered
        if issubclass(cls, PatternRewritePass)
        for rule in cls.patterns
    }
    rules = [
        value if isinstance(value, DrrRule) else _defined(value)
        for value in own
        if value not in listed and (isinstance(value, DrrRule) or issubclass(value, DrrPatternBase))
    ]
    for rule in sorted(rules, key=lambda rule: -rule.benefit):
        registry.add(rule.spec())
    for cls, how in registered:
        registry.add(spec_of(cls, how))


def _check_names(module: ModuleType) -> None:
    """Raise a ``PatternError`` where a later definition took a rule's name."""
    for name, rule in vars(module).get(DEFINED, ()):
        other = vars(module).get(name)
        if isinstance(other, DrrRule) and other is not rule:
            raise PatternError(
                f"the function {name} hides the rule at {rule.origin}",
                where=other.origin,
                hint="rename one",
            )
    for cls in vars(module).get(CLASSES, ()):
        other = vars(module).get(cls.__name__)
        if (
            isinstance(other, type)
            and issubclass(other, Pass | DrrPatternBase)
            and other is not cls
        ):
            raise PatternError(
                f"the class {cls.__name__} hides the one at {cls.origin}",
                where=other.origin,
                hint="rename one",
            )


def _has_work(cls: type[Pass]) -> bool:
    """Whether an unregistered pass overrides what would rewrite: it is no base class then."""
    if not issubclass(cls, PatternRewritePass):
        return cls.Run is not Pass.Run
    return bool(cls.patterns) or (
        cls.InitializePatterns is not PatternRewritePass.InitializePatterns
    )


def _defined(cls: type[DrrPatternBase]) -> DrrRule:
    """Build the rule of a class.

    An exception of its code becomes an error at its line.
    """
    try:
        return cls().rule()
    except GehostError:
        raise
    except Exception as error:
        frames = [
            frame
            for frame in traceback.extract_tb(error.__traceback__)
            if frame.filename == cls.origin.path
        ]
        where = f"{cls.origin.path}:{frames[-1].lineno}" if frames else cls.origin
        raise PatternError(
            f"{cls.__name__}: {type(error).__name__}: {error}", where=where
        ) from error


def _is_of(defined_in: str, module: ModuleType) -> bool:
    return f"{defined_in}.".startswith(f"{module.__name__}.")
