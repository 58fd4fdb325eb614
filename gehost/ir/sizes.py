"""Sums, products and quotients of named sizes, as normalized texts.

A size of a tensor is a number, a name or an expression such as ``2*batch + 1``. Expressions are
polynomials with integer coefficients in a fixed order, so that equal texts are equal sizes.
``div(a, b)``, ``min(a, b)`` and ``or(a, b)`` (``a``, or ``b`` if ``a`` is 0) count as names in
them. A name that starts with ``?`` was invented by inference for an unknown size; it is never
written to a file.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from types import MappingProxyType
from typing import TypeAlias

from gehost.ir.types import Dim

_Monomial: TypeAlias = tuple[str, ...]
"""Names in order; a name that occurs twice is squared."""
_Terms: TypeAlias = Mapping[_Monomial, int]
"""A polynomial: non-zero coefficients by monomial; that of ``()`` is the constant."""

_NAME = re.compile(r"[^\s\d*+\-/(),][^\s*+\-/(),]*")
_CALL = re.compile(r"(div|min|or)\(")
_MOST_TERMS = 8
_MOST_NAMES = 8
"""Largest number of names in one monomial."""
_LARGEST = 1 << 31
"""Limit of coefficients, so that results fit 64 bits."""
_LONGEST = 256


def plus(first: Dim, second: Dim) -> Dim:
    """Add two sizes, None if either is unknown or the sum overlong."""
    a, b = _terms(first), _terms(second)
    if a is None or b is None:
        return second if first == 0 else first if second == 0 else None
    total = dict(a)
    for monomial, factor in b.items():
        total[monomial] = total.get(monomial, 0) + factor
    return _written(total)


def minus(first: Dim, second: Dim) -> Dim:
    """Subtract two sizes; the result may be negative. None as for ``plus``."""
    return first if second == 0 else plus(first, times(second, -1))


def times(first: Dim, second: Dim) -> Dim:
    """Multiply two sizes; None as for ``plus``."""
    a, b = _terms(first), _terms(second)
    if a is None or b is None:
        return second if first == 1 else first if second == 1 else None
    product: dict[_Monomial, int] = {}
    for one, factor in a.items():
        for other, by in b.items():
            monomial = tuple(sorted((*one, *other)))
            product[monomial] = product.get(monomial, 0) + factor * by
    return _written(product)


def product(sizes: Iterable[Dim]) -> Dim:
    """Multiply any number of sizes; 1 for none. None as for ``plus``."""
    found: Dim = 1
    for size in sizes:
        found = times(found, size)
    return found


def quotient(total: Dim, part: Dim) -> Dim:
    """Divide two sizes, rounding down.

    Returns None if either may be negative, as ONNX's ``Div`` rounds toward zero.

    ``a*b`` over ``b`` is ``a``: a node that divides by 0 fails in ONNX Runtime.
    """
    if part == 1:
        return total
    if total is None or part is None or not (is_size(total) and is_size(part)) or part == 0:
        return None
    if isinstance(total, int) and isinstance(part, int):
        return total // part
    a, b = _terms(total), _terms(part)
    if a is None or b is None:
        return None
    exact = _exact_quotient(a, b)
    return _called("div", total, part) if exact is None else _written(exact)


def _exact_quotient(total: _Terms, part: _Terms) -> _Terms | None:
    """Divide by one term or an equal polynomial; None if not exact."""
    if len(part) != 1:
        return {(): 1} if total == part else None
    ((divisor, by),) = part.items()
    found: dict[_Monomial, int] = {}
    for monomial, factor in total.items():
        rest = list(monomial)
        for name in divisor:
            if name not in rest:
                return None
            rest.remove(name)
        if factor % by:
            return None
        found[tuple(rest)] = factor // by
    return found


def least(first: Dim, second: Dim) -> Dim:
    """Return the smaller of two sizes; None if one is unknown."""
    if first is None or second is None or first == second:
        return first if first == second else None
    if isinstance(first, int) and isinstance(second, int):
        return min(first, second)
    difference = minus(first, second)
    if is_size(difference):
        return second
    if is_size(minus(second, first)):
        return first
    if isinstance(first, int) or (isinstance(second, str) and second < first):
        first, second = second, first
    return _called("min", first, second)


def or_copied(size: Dim, copied: Dim) -> Dim:
    """Return ``Reshape``'s size for entry ``size``: ``copied`` if it is 0."""
    if size is None or copied is None:
        return size if size is not None and is_positive(size) else None
    if is_positive(size) or vanishes_with(copied, size):
        return size
    if size == 0:
        return copied
    return _called("or", size, copied)


def or_another(size: Dim, *causes: Dim) -> Dim:
    """``size``, or where it is 0 some other size that ``causes`` decide."""
    name = "?" + ":".join(map(str, causes))
    is_unique = None not in causes and name.count(":") == len(causes) - 1
    return _called("or", size, name) if is_unique and _NAME.fullmatch(name) else None


def settled_by(first: Dim, second: Dim) -> Dim:
    """Return the only possible result of broadcasting two sizes, or None.

    The result is one of the two sizes.

    ``min(n, c)`` beside ``n``, with a positive c, is ``n``: if n were larger, the sizes c and n
    would differ and not broadcast, unless c is 1. ``or(n, c)`` beside ``n`` is ``n`` for any c:
    beside 0, only 0 and 1 are broadcast, to 0.
    """
    for size, call in ((first, second), (second, first)):
        if isinstance(size, str) and isinstance(call, str) and call.startswith(("min(", "or(")):
            terms = _terms(call)
            if terms is not None and len(terms) == 1 and (call,) in terms:
                parts = _arguments(call)
                if call.startswith("or(") and size == parts[0]:
                    return size
                if size in parts and any(isinstance(part, int) and part > 0 for part in parts):
                    return size
    return None


def is_size(size: Dim) -> bool:
    """Whether no coefficient is negative, so that the size is not negative."""
    terms = _terms(size)
    return isinstance(size, str) if terms is None else all(factor >= 0 for factor in terms.values())


def is_positive(size: Dim) -> bool:
    """Whether a size is at least 1 for all its names' values."""
    terms = _terms(size)
    return (
        terms is not None
        and is_size(size)
        and any(
            all(
                name.startswith("or(") and any(map(is_positive, _arguments(name))) for name in names
            )
            for names in terms
        )
    )


def vanishes_with(size: Dim, cause: Dim) -> bool:
    """Whether ``size`` is 0 whenever ``cause`` is."""
    if size is None or cause is None:
        return False
    if size == cause:
        return True
    a, b = _terms(size), _terms(cause)
    if a is None or b is None or not is_size(cause):
        return False
    zeros = [set(monomial) for monomial in b]
    if set() in zeros:  # never 0
        return True
    return all(
        any(zero.issubset(monomial) for zero in zeros)
        or any(_call_vanishes(name, cause) for name in monomial)
        for monomial in a
    )


def _call_vanishes(name: str, cause: Dim) -> bool:
    """Whether a call is 0 whenever ``cause`` is."""
    if not _CALL.match(name):
        return False
    first, second = (vanishes_with(part, cause) for part in _arguments(name))
    if name.startswith("or("):
        return first and second
    return first or (second and name.startswith("min("))


def names_in(size: Dim) -> Iterator[str]:
    """Yield the names in a size, also those inside calls."""
    if not isinstance(size, str):
        return
    terms = _terms(size)
    if terms is None:
        yield size
        return
    for monomial in terms:
        for name in monomial:
            if _CALL.match(name):
                for part in _arguments(name):
                    yield from names_in(part)
            else:
                yield name


# texts


def _called(function: str, first: Dim, second: Dim) -> Dim:
    text = f"{function}({first}, {second})"
    return text if len(text) <= _LONGEST and is_size(first) and is_size(second) else None


def _arguments(call: str) -> list[Dim]:
    """Return the two sizes in a call."""
    inside = call[call.index("(") + 1 : -1]
    return [int(part) if part.isdecimal() else part for part in _split(inside, ", ")]


def _terms(size: Dim) -> _Terms | None:
    """Return a size's polynomial, None if unknown or not normalized."""
    if isinstance(size, int):
        return {(): size} if size else {}
    return None if size is None else _parse(size)


@lru_cache(1 << 14)
def _parse(text: str) -> _Terms | None:
    if _NAME.fullmatch(text):
        return MappingProxyType({(text,): 1})
    if len(text) > _LONGEST:
        return None
    found: dict[_Monomial, int] = {}
    for place, added in enumerate(_split(text, " + ")):
        for number, term in enumerate(_split(added, " - ")):
            sign = -1 if number else 1
            if not place and not number and term.startswith("-"):
                sign, term = -1, term[1:]
            factors = _split(term, "*")
            if factors[0].isdecimal():
                sign *= int(factors.pop(0))
            if not all(map(_is_factor, factors)) or tuple(factors) in found:
                return None
            found[tuple(factors)] = sign
    return MappingProxyType(found) if _written(found) == text else None


def _is_factor(factor: str) -> bool:
    if _NAME.fullmatch(factor):
        return True
    if not _CALL.match(factor) or not factor.endswith(")"):
        return False
    parts = _arguments(factor)
    return len(parts) == 2 and all(_terms(part) is not None for part in parts)


def _split(text: str, at: str) -> list[str]:
    """Split a text at ``at`` outside parentheses."""
    parts, depth, begin = list[str](), 0, 0
    for place, char in enumerate(text):
        depth += (char == "(") - (char == ")")
        if not depth and place >= begin and text.startswith(at, place):
            parts.append(text[begin:place])
            begin = place + len(at)
    return [*parts, text[begin:]]


def _written(terms: _Terms) -> Dim:
    """Format a polynomial, longest monomials first; None if it is too long."""
    ordered = sorted(
        ((m, f) for m, f in terms.items() if f), key=lambda term: (-len(term[0]), term[0])
    )
    if not ordered:
        return 0
    if len(ordered) > _MOST_TERMS or any(
        len(monomial) > _MOST_NAMES or abs(factor) >= _LARGEST for monomial, factor in ordered
    ):
        return ordered[0][1] if len(ordered) == 1 and not ordered[0][0] else None
    if not ordered[0][0]:
        return ordered[0][1]
    text = ""
    for monomial, factor in ordered:
        sign = (" - " if factor < 0 else " + ") if text else ("-" if factor < 0 else "")
        number = [str(abs(factor))] if abs(factor) != 1 or not monomial else []
        text += sign + "*".join([*number, *monomial])
    return text if len(text) <= _LONGEST else None
