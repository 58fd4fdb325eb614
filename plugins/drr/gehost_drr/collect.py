"""Collect the declarative rules and passes of a vendor file."""

from __future__ import annotations

import traceback
from types import ModuleType

from gehost import GehostError, PassRegistry, PatternError
from gehost_drr.drr import DEFINED
from gehost_drr.passes import Pass, PatternRewritePass, registration, spec_of
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
    named = [value for name, value in vars(module).items() if not name.startswith("_")]
    results = list(dict.fromkeys(value for value in named if isinstance(value, type | DrrRule)))
    passes = [
        pass_
        for pass_ in results
        if isinstance(pass_, type) and issubclass(pass_, Pass) and _is_of(pass_.__module__, module)
    ]
    for pass_ in results:
        if (
            isinstance(pass_, type)
            and issubclass(pass_, Pass | DrrPatternBase)
            and _is_of(pass_.__module__, module)
        ):
            registry.check_method_names(pass_, _BASES, _RESERVED, pass_.origin)
    for pass_ in passes:
        if registration(pass_) is None and (
            pass_.Run is not Pass.Run
            if not issubclass(pass_, PatternRewritePass)
            else pass_.patterns
            or pass_.InitializePatterns is not PatternRewritePass.InitializePatterns
        ):
            registry.suspect(pass_, "put @REG_IR_PASS() above it, or a _ in front of its name")
    registered = [(pass_, how) for pass_ in passes if (how := registration(pass_)) is not None]
    patterns = [
        rule
        for pass_, _ in registered
        if issubclass(pass_, PatternRewritePass)
        for rule in pass_.patterns
    ]
    items = {type(rule) if isinstance(rule, DrrPatternBase) else rule for rule in patterns}
    rules: list[DrrRule] = []
    for pass_ in results:
        if pass_ in items:
            continue
        if isinstance(pass_, DrrRule) and _is_of(pass_.module, module):
            rules.append(pass_)
        elif (
            isinstance(pass_, type)
            and issubclass(pass_, DrrPatternBase)
            and _is_of(pass_.__module__, module)
        ):
            rules.append(_defined(pass_))
    for rule in sorted(rules, key=lambda rule: -rule.benefit):
        registry.add(rule.spec())
    for pass_, how in registered:
        registry.add(spec_of(pass_, how))


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
