"""The normal form of quotients, rounded down."""

from __future__ import annotations

from math import gcd, inf

from gehost.sizes import proofs
from gehost.sizes.minima import MOST_NESTED, minima_in, parts_of_min
from gehost.sizes.size import (
    Algebra,
    Known,
    Size,
    divided,
    in_order,
    leading,
    shared_by,
    terms_of,
)


def quotient(scope: Algebra, a: Known, b: Known) -> Known:
    """Return ``a // b``; a ``b`` of at least 0 is at least 1."""
    if (b if isinstance(b, int) else leading(b)[1]) < 0:
        return scope.floordiv(scope.mul(a, -1), scope.mul(b, -1))
    is_positive = scope.bounds(b)[0] >= 0
    whole, rest = scope.division(a, b)
    if is_positive and rest != 0 and isinstance(a, Size):
        # a sum of n minima would become a minimum of 2**n quotients
        for sign in (
            (1, -1) if minima_in(scope, [a]) <= MOST_NESTED else ()
        ):  # rounding down is monotone: it goes into min and max
            parts = parts_of_min(scope, scope.mul(a, sign))
            if len(parts) > 1:
                quotients = [scope.floordiv(scope.mul(part, sign), b) for part in parts]
                return scope.min(*quotients) if sign > 0 else scope.max(*quotients)
        nested = _nested(scope, a, b)
        if nested is not None:
            return nested
    return scope.add(whole, _proper(scope, rest, b, is_positive=is_positive))


def _nested(scope: Algebra, a: Size, b: Known) -> Known | None:
    """``(z + x // y) // b = (y*z + x) // (y*b)`` for positive y and b.

    ``z - x // y`` is ``(y*z - x + y - 1) // y``.
    """
    inner = [term for term in a.terms if any(scope.atoms[i].kind == "floor" for i in term[0])]
    if len(inner) != 1 or len(inner[0][0]) > 1 or inner[0][1] not in (1, -1):
        return None
    ((monomial, factor),) = inner
    x, y = scope.atoms[monomial[0]].args
    if scope.bounds(y)[0] < 0:
        return None
    z = scope.of({m: c for m, c in a.terms if m != monomial}, ("rest", a, monomial))
    inside = scope.add(scope.mul(y, z), scope.mul(x, factor))
    if factor < 0:
        inside = scope.add(inside, scope.sub(y, 1))
    return scope.floordiv(inside, scope.mul(y, b))


def _proper(scope: Algebra, a: Known, b: Known, *, is_positive: bool) -> Known:
    """Return ``a // b`` for the rest ``a`` of a division by ``b``."""
    if a == 0 or (isinstance(a, int) and isinstance(b, int)):
        return scope.floordiv(a, b)
    top, bottom = dict(terms_of(a)), dict(terms_of(b))
    # g cancels; a constant beside multiples of g is rounded down to one, if b > 0
    g = gcd(*bottom.values(), *[c for m, c in top.items() if m or not is_positive])
    shared = shared_by([*top, *bottom])
    if g > 1 or shared:
        key = ("/", g, shared)
        return scope.floordiv(
            scope.of(divided(top, shared, g), (*key, a)),
            scope.of(divided(bottom, shared, g), (*key, b)),
        )
    if is_positive:
        low, high = scope.bounds(a)
        if low >= 0 and (
            high < scope.bounds(b)[0]
            or (isinstance(b, Size) and proofs.at_least(scope, scope.sub(b, a), 1, 1))
        ):
            return 0
        # a // b = -((b - 1 - a) // b): one of the two spellings is chosen
        whole, other = scope.division(scope.sub(scope.sub(b, 1), a), b)
        if other == 0:
            return scope.mul(whole, -1)
        if in_order([other, a])[0] is not a:
            return scope.mul(scope.add(whole, _floor(scope, other, b)), -1)
    return _floor(scope, a, b)


def _floor(scope: Algebra, a: Known, b: Known) -> Size:
    (low, high), (least, most) = scope.bounds(a), scope.bounds(b)
    if least < 0:
        return scope.call("floor", (a, b), -inf, inf)
    least, most = max(least, 1), max(most, 1)
    return scope.call(
        "floor",
        (a, b),
        _rounded(low, most if low >= 0 else least),
        _rounded(high, least if high >= 0 else most),
    )


def _rounded(bound: float, by: float) -> float:
    if bound in (inf, -inf):
        return bound
    if by == inf:
        return 0 if bound >= 0 else -1
    return bound // by
