"""Answers to questions about sizes, within a counted number of steps."""

from __future__ import annotations

from math import gcd, inf

from gehost.sizes.size import (
    Algebra,
    Answer,
    Atom,
    Known,
    Size,
    constant_of,
    mapped,
    terms_of,
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
    factor, rest = scope.division(size, atom.size)
    is_squared = any(atom.number in m for m, _ in terms_of(factor))
    if atom.kind == "floor":
        return not is_squared and _quotient_helps(scope, rest, atom, factor, depth)
    # the size falls with a min: its largest operand is any of them
    falls = atom.kind == "min" and not is_squared and scope.bounds(factor)[1] <= 0
    proven = (at_least(scope, _replaced(scope, size, atom, arg), 0, depth - 1) for arg in atom.args)
    return any(proven) if falls else all(proven)


def _quotient_helps(scope: Algebra, rest: Known, atom: Atom, factor: Known, depth: int) -> bool:
    """Prove ``rest + factor * (x // y) >= 0`` by ``x - y + 1 <= y * (x // y) <= x``, y positive."""
    x, y = atom.args
    low, high = scope.bounds(factor)
    if scope.bounds(y)[0] < 0 or low < 0 < high:
        return False
    bound = x if high <= 0 else scope.add(scope.sub(x, y), 1)
    whole, remaining = scope.division(factor, y)
    if remaining == 0:
        return at_least(scope, scope.add(rest, scope.mul(whole, bound)), 0, depth - 1)
    # size is at least the total over y, and more than -1 suffices
    total = scope.add(scope.mul(y, rest), scope.mul(factor, bound))
    return at_least(scope, scope.add(total, scope.sub(y, 1)), 0, depth - 1)


def _replaced(scope: Algebra, size: Known, atom: Atom, by: Known) -> Known:
    """``size`` with another size for an atom."""
    return mapped(scope, size, lambda other: by if other is atom else other.size)
