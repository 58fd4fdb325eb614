"""The fact that would make two sizes one."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import islice

from gehost.errors import UsageError
from gehost.sizes.scope import Scope
from gehost.sizes.size import Known
from gehost.sizes.texts import is_invented

_MOST_TRIALS = 200
"""Each takes some 0.3 ms."""
_NUMBER = re.compile(r"(?<![\w.])\d+")


def fact_for(scope: Scope, left: str, right: str) -> str:
    """Return what ``--assume`` takes to make two sizes one, "" if nothing simple does.

    A name equals another one, or a size, or is at most a number, as in a minimum.
    """
    texts = left, right
    names = [name for name in scope.names_in(left) | scope.names_in(right) if not is_invented(name)]
    facts = islice(_facts(scope, texts, sorted(names)), _MOST_TRIALS)
    return next((fact for fact in facts if _proves(fact, texts, names)), "")


def _facts(scope: Scope, texts: tuple[str, str], names: list[str]) -> Iterator[str]:
    yield from (f"{name} == {other}" for name in names for other in names if name != other)
    for number in _NUMBER.findall(" ".join(texts)):
        yield from (f"{name} <= {number}" for name in names)
    parts = {str(part): None for text in texts for part in _parts(scope, scope.parse(text))}
    for part in parts:
        inside = scope.names_in(part)
        if inside and not any(map(is_invented, inside)):
            yield from (f"{name} == {part}" for name in names if name not in inside)


def _parts(scope: Scope, size: Known) -> list[Known]:
    """Return a size and the operands of functions in it."""
    if isinstance(size, int):
        return [size]
    return [size, *[arg for m, _ in size.terms for i in m for arg in scope.atoms[i].args]]


def _proves(fact: str, texts: tuple[str, str], names: list[str]) -> bool:
    trial = Scope()
    try:
        trial.assume_all([fact])
    except UsageError:  # a name that an option cannot have, as with a space
        return False
    trial.declare(names)
    return trial.parse(texts[0]) == trial.parse(texts[1])
