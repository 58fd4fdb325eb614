"""The normal forms of min, broadcast and either; max is written with min."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import gcd

from gehost.sizes import proofs
from gehost.sizes.size import (
    Algebra,
    Atom,
    Kind,
    Known,
    Size,
    divided,
    in_order,
    mapped,
    rank,
    shared_by,
    terms_of,
)

_MOST_OPERANDS = 4
MOST_NESTED = 2
"""Minima inside the operands of a flat one. Beyond both, a min is a symbol of its own."""


def least(scope: Algebra, sizes: Sequence[Known]) -> Known:
    """Return the least of at least two sizes."""
    numbers = [size for size in sizes if isinstance(size, int)]
    if len(numbers) == len(sizes):
        return min(numbers)
    ordered = in_order(dict.fromkeys(sizes))
    flat = [part for size in ordered for part in parts_of_min(scope, size)]
    if len(flat) > 2 * _MOST_OPERANDS or minima_in(scope, flat) > 2 * MOST_NESTED:
        return _opaque(scope, ordered)
    operands = _undominated(scope, flat)
    if len(operands) == 1:
        return operands[0]
    nested = minima_in(scope, operands)
    if nested:
        # min(3 - x, 0), where x is a min, is (3 - x) + min(0, x - 3), which is flat
        for base in operands:
            shifted = [
                part for size in operands for part in parts_of_min(scope, scope.sub(size, base))
            ]
            if minima_in(scope, shifted) < nested:
                return scope.add(base, scope.min(*shifted))
    if len(operands) > _MOST_OPERANDS or nested > MOST_NESTED:
        return _opaque(scope, ordered)
    # min(a, b) = a + min(0, b - a): one of the operands is chosen as the base
    spelled = [([scope.sub(size, base) for size in operands], base) for base in operands]
    ranks = [sorted(map(rank, differences)) for differences, _ in spelled]
    best = [item for item, ranked in zip(spelled, ranks, strict=True) if ranked == min(ranks)]
    differences, base = (
        best[0] if len(best) == 1 else min(best, key=lambda item: sorted(map(str, item[0])))
    )
    g = gcd(*[c for size in differences for _, c in terms_of(size)])
    args = tuple(
        [
            scope.of({m: c // g for m, c in terms_of(size)}, ("/", g, (), size))
            for size in in_order(differences)
        ]
    )
    low, high = _least_bounds(scope, args)
    return scope.add(base, scope.mul(scope.call("min", args, low, high), g))


def _opaque(scope: Algebra, sizes: Sequence[Known]) -> Size:
    low, high = _least_bounds(scope, sizes)
    return scope.keyed(("min", frozenset(sizes)), least=low, most=high)


def _least_bounds(scope: Algebra, sizes: Sequence[Known]) -> tuple[float, float]:
    bounds = [scope.bounds(size) for size in sizes]
    return min(low for low, _ in bounds), min(high for _, high in bounds)


def _undominated(scope: Algebra, sizes: Sequence[Known]) -> list[Known]:
    """Without the operands that another one never exceeds."""
    operands = list(dict.fromkeys(sizes))
    for size in list(operands):
        if any(
            other is not size and proofs.at_least(scope, scope.sub(size, other), 0, 1)
            for other in operands
        ):
            operands.remove(size)
    return operands


def minima_in(scope: Algebra, sizes: Sequence[Known]) -> int:
    """The number of minima in some sizes."""
    return sum(scope.atoms[i].kind == "min" for size in sizes for m, _ in terms_of(size) for i in m)


def parts_of_min(scope: Algebra, size: Known) -> list[Known]:
    """The operands of which a size is the least, itself if it is no min."""
    for atom, c in terms_of_kind(scope, size, "min"):
        if c > 0:
            rest = scope.sub(size, scope.mul(atom.size, c))
            return [scope.add(rest, scope.mul(arg, c)) for arg in atom.args]
    return [size]


def terms_of_kind(scope: Algebra, size: Known, kind: Kind) -> Iterator[tuple[Atom, int]]:
    """Yield the atoms of a kind that are terms of a size, and their coefficients."""
    for m, c in terms_of(size):
        if len(m) == 1 and scope.atoms[m[0]].kind == kind:
            yield scope.atoms[m[0]], c


def broadcast(scope: Algebra, sizes: Sequence[Known]) -> Known:
    """Return the size of an axis that broadcasts. It is no max: 0 beside 1 is 0."""
    flat = dict[Known, None]()
    for size in sizes:
        atom = single(scope, size)
        for part in atom.args if atom is not None and atom.kind == "broadcast" else (size,):
            if part != 1:
                flat[part] = None
    operands = in_order(flat)
    for size in operands:
        low, high = scope.bounds(size)
        if low > 1 or high == 0:  # not 1, so it is the result
            return size
    for size in list(operands):
        if any(other is not size and _gives_way(scope, size, other) for other in operands):
            operands.remove(size)
    if len(operands) < 2:
        return operands[0] if operands else 1
    bounds = [scope.bounds(size) for size in operands]
    low, high = min(low for low, _ in bounds), max(high for _, high in bounds)
    return scope.call("broadcast", tuple(operands), low, high)


def _gives_way(scope: Algebra, size: Known, other: Known) -> bool:
    """Whether ``size`` is 1 or ``other`` wherever the two broadcast, so that ``other`` results.

    ``min(n, c)`` with a positive number c: were n larger, c and n would differ and not broadcast,
    unless c is 1. ``either(n, c)``: beside 0, only 0 and 1 broadcast, to 0.
    """
    atom = single(scope, size)
    if atom is not None and atom.kind == "either":
        return atom.args[0] is other
    parts = parts_of_min(scope, size)
    return (
        len(parts) > 1
        and other in parts
        and all(part is other or (isinstance(part, int) and part >= 1) for part in parts)
    )


def either(scope: Algebra, a: Known, b: Known) -> Known:
    """Return ``a``, or ``b`` where ``a`` is 0."""
    if isinstance(a, int):
        return a or b
    low, high = scope.bounds(a)
    if low > 0 or high < 0 or vanishes_with(scope, b, a):
        return a
    least, most = scope.bounds(b)
    return scope.call("either", (a, b), min(1 if low == 0 else low, least), max(high, most))


def filled(scope: Algebra, size: Known) -> Known:
    """Return a size with ``a`` for each ``either(a, b)``, and minima as ``learn`` has them."""

    def image(atom: Atom) -> Known:
        if atom.number in scope.chosen:
            return filled(scope, scope.chosen[atom.number])
        if atom.kind == "either":
            return filled(scope, atom.args[0])
        return applied(scope, atom, [filled(scope, arg) for arg in atom.args])

    return mapped(scope, size, image)


def applied(scope: Algebra, atom: Atom, args: Sequence[Known]) -> Known:
    """Return the function that an atom is, of other sizes; a symbol is itself."""
    match atom.kind:
        case "floor":
            return scope.floordiv(*args)
        case "min":
            return scope.min(*args)
        case "broadcast":
            return scope.broadcast(*args)
        case "either":
            return scope.either(*args)
        case "symbol":
            return atom.size


def learn(scope: Algebra, one: Size, other: Size) -> None:
    """Note minima that are one of their operands, as two products are equal and not 0."""
    shared = shared_by([m for size in (one, other) for m, _ in size.terms])
    g = gcd(*[c for size in (one, other) for _, c in size.terms])
    first, second = [
        scope.of(divided(dict(size.terms), shared, g), ("/", g, shared, size))
        for size in (one, other)
    ]
    for size, equal in ((first, second), (second, first)):
        parts = parts_of_min(scope, size)
        if len(parts) > 1 and equal in parts:
            atom = next(atom for atom, c in terms_of_kind(scope, size, "min") if c > 0)
            scope.chosen[atom.number] = atom.args[parts.index(equal)]


def vanishes_with(scope: Algebra, size: Known, cause: Known) -> bool:
    """Whether ``size`` is 0 wherever ``cause`` is, as their terms show."""
    if size is cause or (isinstance(cause, int) and cause):
        return True
    parts = parts_of_min(scope, cause)
    if len(parts) > 1 and all(scope.bounds(part)[0] >= 0 for part in parts):
        return all(vanishes_with(scope, size, part) for part in parts)
    zeros = [set(m) for m, _ in terms_of(cause)]
    is_sum = len({c > 0 for _, c in terms_of(cause)}) == 1
    if len(zeros) > 1 and not (
        is_sum and all(scope.atoms[i].least >= 0 for zero in zeros for i in zero)
    ):
        return False  # 0 in other ways, too

    def remaining(part: Known) -> Known:
        terms = {m: c for m, c in terms_of(part) if not any(zero <= {*m} for zero in zeros)}
        rest = scope.of(terms, ("where 0", part, cause))
        return mapped(scope, rest, lambda atom: applied(scope, atom, [*map(remaining, atom.args)]))

    try:
        return remaining(size) == 0
    except ZeroDivisionError:
        return True  # no run has such a cause


def single(scope: Algebra, size: Known) -> Atom | None:
    """The atom that a size is, if it is one."""
    terms = terms_of(size)
    monomial, factor = terms[0]
    return scope.atoms[monomial[0]] if (len(terms), factor, len(monomial)) == (1, 1, 1) else None
