"""Nearest names, for messages about a name that does not exist."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable

_SIMILAR = 0.85
"""Least similarity of a misspelled name and the intended one."""
_SIMILAR_FUNCTION = 0.8
"""Least similarity for methods of a class or hooks of a file, which are few."""
_NUMBER = r"v?\d+"
_NEAR = 0.6
"""Least similarity of names that are near."""
_SELDOM = 0.3
"""Least weight of words in common: a word that three names have weighs a third."""
_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+")
_PART = 4
"""Least letters of a part of a name that stands for it."""
_SHORT = 5
"""Names shorter than this must be equal but for case: Add and AddN are two names."""


def nearest(name: str, names: Iterable[str], most: int = 1) -> list[str]:
    """Return the known names most like ``name``, best first.

    Case and domain count little.

    Examples:
        >>> nearest("silu", ["acme::SiLU", "Relu"])
        ['acme::SiLU']
    """
    spelled: dict[str, str] = {}
    for item in sorted(names):
        spelled.setdefault(item.lower(), item)
        if "::" not in name:
            spelled.setdefault(item.rpartition("::")[2].lower(), item)
    near = difflib.get_close_matches(name.lower(), spelled, 2 * most)
    if len(name) >= _PART:  # Gelu is part of GeluFusionPass
        near += [item for item in spelled if name.lower() in item]
    return list(dict.fromkeys(spelled[item] for item in near))[:most]


def nearest_by_words(name: str, names: Iterable[str], most: int = 3) -> list[str]:
    """Return the names that share letters or seldom words with ``name``, best first.

    If some differ by a letter or two, only these.
    Words are those of ``SkipNormPass`` or ``skip_norm``; a beginning counts as the word.

    Examples:
        >>> nearest_by_words("SkipLayerNorm", ["OrtSkipNormPass", "LayerNormPass", "NormPass"])[0]
        'OrtSkipNormPass'
    """
    by_name = {item: _words(item) for item in names}
    users = {
        word: [item for item, words in by_name.items() if any(_same(word, one) for one in words)]
        for word in _words(name)
    }
    scores: dict[str, float] = {}
    for item in by_name:
        ratio = difflib.SequenceMatcher(None, name.lower(), item.lower()).ratio()
        seldom = sum(1 / len(items) for items in users.values() if item in items)
        is_part = len(name) >= _PART and name.lower() in item.lower()
        if ratio >= _NEAR or seldom >= _SELDOM or is_part:
            scores[item] = ratio + seldom
    slips = [item for item in scores if is_similar(name, item, _SIMILAR)]
    return sorted(slips or scores, key=lambda item: (-scores[item], item))[:most]


def _words(name: str) -> set[str]:
    return {word.lower() for word in _WORD.findall(name)} - {"fusion", "pass"}


def _same(word: str, other: str) -> bool:
    """Whether words are equal, or one is the beginning of the other: Norm, Normalization."""
    short, long = sorted((word, other), key=len)
    return short == long or (len(short) >= _PART and long.startswith(short))


def hint(name: str, names: Iterable[str], most: int = 1) -> str:
    """Return ``; did you mean X or Y?``, or "" without any."""
    near = nearest(name, names, most)
    return f"; did you mean {' or '.join(near)}?" if near else ""


def counted(count: int, noun: str, plural: str = "") -> str:
    """Return ``1 file``, ``2 files``.

    Examples:
        >>> counted(2, "pass", "passes")
        '2 passes'
    """
    return f"{count} {noun if count == 1 else plural or f'{noun}s'}"


def is_misspelled(name: str, near: str) -> bool:
    """Whether ``name`` is probably a slip for ``near``.

    A slip is one of case, underscores, or a letter or two.

    Names that differ only in a number are two names (``Conv1D`` and ``Conv2D``); short names must
    be equal but for case.
    """
    a, b = (item.replace("_", "").lower() for item in (name, near))
    if a == b:
        return name != near
    if min(len(a), len(b)) < _SHORT or abs(len(a) - len(b)) > 2:
        return False
    if re.sub(_NUMBER, "", a) == re.sub(_NUMBER, "", b):
        return False
    return sorted(a) == sorted(b) or is_similar(a, b, _SIMILAR)


def is_similar(a: str, b: str, least: float = _SIMILAR_FUNCTION) -> bool:
    """Whether two names share at least this part of their letters."""
    return difflib.SequenceMatcher(None, a.lower(), b.lower()).ratio() >= least


def nearest_functions(name: str, functions: Iterable[str]) -> list[str]:
    """Return the functions that a public name probably means, best first.

    For methods of a class and hooks of a module.

    ``meet_requirements`` is ``MeetRequirements``; ``Requirements`` is near, ``Helper`` is not.
    """
    spelled = {function.replace("_", "").lower(): function for function in sorted(functions)}
    result = difflib.get_close_matches(name.replace("_", "").lower(), spelled, 3, _SIMILAR_FUNCTION)
    return [spelled[function] for function in result]
