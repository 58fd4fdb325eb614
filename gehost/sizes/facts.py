"""Facts about named sizes, as a user states them: ``--dim`` and ``--assume``."""

from __future__ import annotations

import re
from collections.abc import Iterable
from math import inf, lcm

from gehost.errors import UsageError
from gehost.sizes.size import ALL, Algebra
from gehost.sizes.texts import is_name, names, parsed, renamed

_FACT = re.compile(r"(.+?)\s*(==|<=|>=|<|>)\s*(.+)")
_MULTIPLE = re.compile(r"(.+?)\s*%\s*(\d+)")
_FORMS = 'write "total == past + seq", "seq <= 4096", "seq % 8 == 0" or "sizes >= 1"'


def is_fact(text: str) -> bool:
    """Whether an assumption is about sizes: it has a comparison."""
    return _FACT.fullmatch(text.strip()) is not None


def name_of(fact: str) -> str:
    """Return the name that a fact is about, "" for all sizes."""
    match = _FACT.fullmatch(fact.strip())
    name = match[1] if match is not None else fact
    multiple = _MULTIPLE.fullmatch(name)
    name = name if multiple is None else multiple[1]
    return "" if name == ALL else name


def assume_all(scope: Algebra, declared: Iterable[str]) -> None:
    """Take facts in any order.

    Facts about names that are equal are about the first of them. A name is defined before the sizes
    that use it.

    Raises:
        UsageError: as ``assume``.
    """
    facts = list(declared)
    first = _first_names(facts)
    definitions: list[tuple[str, str]] = []
    for fact in (renamed(fact, first) for fact in facts):
        name, right = _equality(fact)
        if not name:
            assume(scope, fact)
        elif name != right and (name, right) not in definitions:
            definitions.append((name, right))
    while definitions:
        rest = {name for name, _ in definitions}
        ready = (pair for pair in definitions if not rest.intersection(names(pair[1])))
        name, right = pair = next(ready, definitions[0])
        definitions.remove(pair)
        assume(scope, f"{name} == {right}")
    for name, one in first.items():
        if name != one:
            assume(scope, f"{name} == {one}")


def _equality(fact: str) -> tuple[str, str]:
    """Return the name and the size that a fact has as equal, two empty texts for another fact."""
    match = _FACT.fullmatch(fact.strip())
    is_one = match is not None and match[2] == "==" and not _MULTIPLE.fullmatch(match[1])
    return (match[1], match[3]) if match is not None and is_one else ("", "")


def _first_names(facts: Iterable[str]) -> dict[str, str]:
    """Return for each name that equals another one the first of all that are equal."""
    first: dict[str, str] = {}
    for left, right in map(_equality, facts):
        if left and is_name(left) and is_name(right):
            one, other = first.setdefault(left, left), first.setdefault(right, right)
            first.update({name: one for name, old in first.items() if old == other})
    return first


def assume(scope: Algebra, fact: str) -> None:
    """Take a fact.

    Raises:
        UsageError: it is none, comes too late, or contradicts another one.
    """
    where = f"--assume {fact!r}"
    match = _FACT.fullmatch(fact.strip())
    if match is None:
        raise UsageError(f"{where}: no fact about a size", hint=_FORMS)
    name, relation, right = match.groups()
    multiple = _MULTIPLE.fullmatch(name)
    if multiple is not None:
        if (relation, right) != ("==", "0"):
            raise UsageError(f"{where}: a remainder other than 0", hint=_FORMS)
        name = multiple[1]
    if relation == "==" and name in names(right):
        raise UsageError(f'{where}: "{name}" is on both sides')
    if name in scope.symbols():
        raise UsageError(f'{where}: "{name}" is in use; facts come before sizes')
    number = int(right) if right.isdecimal() else None
    facts = scope.facts
    if multiple is not None:
        if int(multiple[2]) == 0:
            raise UsageError(f"{where}: nothing is a multiple of 0")
        facts.step[name] = lcm(facts.step.get(name, 1), int(multiple[2]))
    elif relation == "==":
        for part in names(right):
            scope.symbol(part)
        size = number if number is not None else parsed(right, scope)
        if size is None and not is_name(right):
            raise UsageError(f"{where}: the right side is no size", hint=_FORMS)
        if size is None:
            size = scope.symbol(right)
        if name in facts.least or name in facts.most or name in facts.step:
            raise UsageError(f'{where}: another fact is about "{name}", too')
        scope.define(name, size)
    elif number is None:
        raise UsageError(f"{where}: no number on the right", hint=_FORMS)
    elif relation in (">=", ">"):
        number += relation == ">"
        facts.least[name] = max(number, facts.least.get(name, 0))
    else:
        number -= relation == "<"
        facts.most[name] = min(number, facts.most.get(name, inf))
    least, most, _ = facts.of(name)
    if least > most:
        raise UsageError(f'{where}: "{name}" has no value then')
