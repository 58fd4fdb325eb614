"""Laws of sizes on random expressions: their normal forms, bounds and answers hold on numbers."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gehost.sizes import Answer, Known, Scope

from .questions import Campaign, Expression, built, scope_of_names, sympy_knows, sympy_proves

MOST_STEPS = 4096
"""Of one construction of the campaign, a dozen operations."""

leaves: st.SearchStrategy[Expression] = st.one_of(
    st.sampled_from(["b", "s", "t", "w", "n"]), st.integers(-4, 9)
)
expressions: st.SearchStrategy[Expression] = st.recursive(
    leaves,
    lambda part: st.one_of(
        st.tuples(
            st.sampled_from(["+", "-", "*", "min", "max", "broadcast", "either"]), part, part
        ),
        st.tuples(st.sampled_from(["//", "%", "ceil"]), part, st.sampled_from([2, 3, 8, "w", "n"])),
    ),
    max_leaves=6,
)
everyday = settings(max_examples=25, deadline=None, derandomize=True)

LAWS: dict[str, Callable[[Scope, Known, Known, Known], tuple[Known, Known]]] = {
    "a sum's order": lambda _, a, b, c: ((a + b) + c, c + (b + a)),
    "a difference": lambda _, a, b, c: (a - (b + c), (a - c) - b),
    "a minimum's order": lambda s, a, b, _: (s.min(a, b), s.min(b, a)),
    "min and max": lambda s, a, b, _: (s.min(a, b) + s.max(a, b), a + b),
    "a rest": lambda s, a, b, _: (s.mod(a, 5) + 5 * s.floordiv(a, 5), a),
    "ceiling": lambda s, a, b, _: (s.ceildiv(a, 4), s.floordiv(a + 3, 4)),
    "a multiple": lambda s, a, b, _: (s.floordiv(a + 6 * b, 6), s.floordiv(a, 6) + b),
    "nested quotients": lambda s, a, b, _: (s.floordiv(s.floordiv(a, 3), 4), s.floordiv(a, 12)),
    "a broadcast's order": lambda s, a, b, c: (s.broadcast(a, b, c), s.broadcast(c, b, a)),
}


@pytest.mark.parametrize("law", LAWS)
@everyday
@given(first=expressions, second=expressions, third=expressions)
def test_both_sides_of_a_law_are_equal(
    law: str, first: Expression, second: Expression, third: Expression
) -> None:
    scope = scope_of_names()
    try:
        sizes = [built(scope, e) for e in (first, second, third)]
        left, right = LAWS[law](scope, *sizes)
    except ZeroDivisionError:
        return
    cut_off = any(str(side).count("?") for side in (left, right, *sizes))
    assert scope.equal(left, right) is Answer.YES or cut_off, (str(left), str(right))


def test_answers_hold_on_numbers() -> None:
    campaign = Campaign(seed=1, valuations=200)
    pairs = list(campaign.run(300))
    assert campaign.wrong == []
    assert len(campaign.missed) <= 0.02 * len(pairs)
    assert campaign.steps <= MOST_STEPS


@pytest.mark.nightly
@pytest.mark.parametrize("seed", range(10))
def test_answers_hold_on_numbers_in_a_campaign(seed: int) -> None:
    campaign = Campaign(seed=100 + seed)
    pairs = list(campaign.run(20_000))
    assert campaign.wrong == []
    assert len(campaign.missed) <= 0.01 * len(pairs)
    assert campaign.steps <= MOST_STEPS


@pytest.mark.nightly
def test_what_sympy_proves_is_proven() -> None:
    pairs = [
        (answer, sympy_proves(first, second, 2))
        for first, second, answer in Campaign(seed=3, valuations=300).run(1600)
        if sympy_knows(first) and sympy_knows(second)
    ]
    proven = [answer for answer, proof in pairs if proof]
    assert len(pairs) >= 500
    assert proven.count(Answer.YES) >= 0.99 * len(proven) > 0
