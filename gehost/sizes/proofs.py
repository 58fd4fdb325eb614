"""Answers to questions about sizes, within a counted number of steps."""

from __future__ import annotations

from math import gcd, inf

from gehost.sizes.size import (
    Algebra,
    Answer,
    Atom,
    Known,
    Monomial,
    Size,
    constant_of,
    terms_of,
    without,
)

_BUDGET = 64
"""Steps of a question; beyond, its answer is unknown and not remembered."""
_DEPTH = 3
"""How many atoms of a size are replaced by their bounds. Normal forms replace one, unbudgeted."""


def is_zero(scope: Algebra, difference: Size) -> Answer:
    """Return whether a size is 0."""
    scope.budget = _BUDGET
    low, high = scope.bounds(difference)
    divisor = gcd(*[c for m, c in difference.terms if m])
    if low > 0 or high < 0 or constant_of(difference) % divisor:
        return Answer.NO
    opposite = scope.mul(difference, -1)
    up = at_least(scope, difference, 0, _DEPTH)
    down = at_least(scope, opposite, 0, _DEPTH)
    if up and down:
        return Answer.YES
    if (up and at_least(scope, difference, 1, _DEPTH)) or (
        down and at_least(scope, opposite, 1, _DEPTH)
    ):
        return Answer.NO
    return Answer.UNKNOWN


def nonnegative(scope: Algebra, size: Known) -> Answer:
    """Return whether a size is at least 0."""
    scope.budget = _BUDGET
    if at_least(scope, size, 0, _DEPTH):
        return Answer.YES
    if at_least(scope, scope.mul(size, -1), 1, _DEPTH):
        return Answer.NO
    return Answer.UNKNOWN


def at_least(scope: Algebra, size: Known, least: int, depth: int) -> bool:
    """Prove ``size >= least``; False is unknown."""
    size = scope.sub(size, least)
    low, high = scope.bounds(size)
    if low >= 0 or high < 0 or isinstance(size, int):
        return low >= 0
    key = (size, depth)
    proof = scope.proofs.get(key)
    if proof is None:
        scope.steps += 1
        if depth > 1:
            scope.budget -= 1
            if scope.budget < 0:
                return False
        proof = _is_nonnegative(scope, size, depth)
        if proof or depth <= 1 or scope.budget >= 0:
            scope.proofs[key] = proof
    return proof


def _is_nonnegative(scope: Algebra, size: Size, depth: int) -> bool:
    atoms = [scope.atoms[i] for i in sorted({i for m, _ in size.terms for i in m}, reverse=True)]
    if scope.bounds(_counted_from_least(scope, size, atoms))[0] >= 0:
        return True
    return depth > 0 and any(_bound_helps(scope, size, atom, depth) for atom in atoms)


def _counted_from_least(scope: Algebra, size: Known, atoms: list[Atom]) -> Known:
    """``size`` with each atom of a least value counted from there: ``n`` is ``1 + n'``."""
    for atom in atoms:
        if atom.least not in (0, -inf) and len(terms_of(size)) > 1:
            least = int(atom.least)
            key = ("from", atom.number)
            more = scope.atom("symbol", key, 0, atom.most - least, f"?from{atom.number}")
            size = _replaced(scope, size, atom, scope.add(more, least))
    return size


def _bound_helps(scope: Algebra, size: Size, atom: Atom, depth: int) -> bool:
    """Whether one atom, replaced by what it may be, or by its bound, proves ``size >= 0``."""
    if atom.kind == "symbol":
        return False
    factor = _factor(scope, size, atom)
    if atom.kind == "floor":
        return factor is not None and _quotient_helps(scope, size, atom, factor, depth)
    # the size falls with a min: its largest operand is any of them
    falls = atom.kind == "min" and factor is not None and scope.bounds(factor)[1] <= 0
    proven = (at_least(scope, _replaced(scope, size, atom, arg), 0, depth - 1) for arg in atom.args)
    return any(proven) if falls else all(proven)


def _quotient_helps(scope: Algebra, size: Size, atom: Atom, factor: Known, depth: int) -> bool:
    """Use ``x - y + 1 <= y * (x // y) <= x`` for positive y."""
    x, y = atom.args
    low, high = scope.bounds(factor)
    if scope.bounds(y)[0] < 0 or low < 0 < high:
        return False
    others = {m: c for m, c in size.terms if atom.number not in m}
    rest = scope.of(others, ("rest", size, atom.number))
    bound = x if high <= 0 else scope.add(scope.sub(x, y), 1)
    whole, remaining = scope.division(factor, y)
    if remaining == 0:
        return at_least(scope, scope.add(rest, scope.mul(whole, bound)), 0, depth - 1)
    # size is at least the total over y, and more than -1 suffices
    total = scope.add(scope.mul(y, rest), scope.mul(factor, bound))
    return at_least(scope, scope.add(total, scope.sub(y, 1)), 0, depth - 1)


def _factor(scope: Algebra, size: Size, atom: Atom) -> Known | None:
    """The polynomial before an atom; None if it occurs squared."""
    poly = dict[Monomial, int]()
    for m, c in size.terms:
        rest = without(m, (atom.number,))
        if rest is not None:
            if atom.number in rest:
                return None
            poly[rest] = c
    return scope.of(poly, ("factor", size, atom.number))


def _replaced(scope: Algebra, size: Known, atom: Atom, by: Known) -> Known:
    """``size`` with another size for an atom."""
    others = {m: c for m, c in terms_of(size) if atom.number not in m}
    total = scope.of(others, ("rest", size, atom.number))
    for m, c in terms_of(size):
        if atom.number in m:
            rest = tuple([i for i in m if i != atom.number])
            part = scope.of({rest: c}, ("term", rest, c))
            for _ in range(len(m) - len(rest)):
                part = scope.mul(part, by)
            total = scope.add(total, part)
    return total
