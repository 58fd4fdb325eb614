"""Symbols get sizes: one size each, sums computed, hidden relations guessed."""

from __future__ import annotations

import itertools

import pytest

from gehost.verify.sizes import Sizes, tie_plans

SHAPES = [("batch", "seq"), ("batch", 4, "past", 16), ("batch", "past + seq"), ("2*batch", "7")]


@pytest.mark.parametrize("variant", range(12))
def test_symbols_are_consistent_distinct_and_not_fixed_sizes(variant: int) -> None:
    sizes = Sizes(SHAPES, variant, {})
    batch, seq, past = (sizes[symbol] for symbol in ("batch", "seq", "past"))
    assert len({batch, seq, past, 4, 16}) == 5
    assert sizes["past + seq"] == sizes["past+seq"] == past + seq
    assert sizes["2*batch"] == 2 * batch
    assert sizes["7"] == sizes[7] == 7
    assert batch <= 5


def test_variants_differ_and_the_second_has_a_batch_of_one() -> None:
    results = [
        tuple(Sizes(SHAPES, variant, {})[s] for s in ("batch", "seq", "past"))
        for variant in range(12)
    ]
    assert len(set(results)) == 12
    assert results[1][0] == 1
    assert all(seq % 32 == 0 for _, seq, _ in results[6:9])


@pytest.mark.parametrize("text", ["batch-size", "s0//2", "floor(s0/2)", "a b", "input:1", "+"])
def test_any_other_text_is_one_symbol(text: str) -> None:
    sizes = Sizes([(text, "other")], 0, {})
    assert {sizes[text], sizes["other"]} == {2, 3}
    assert sizes.known(("unk__0", text, 5)) == [sizes[text], 5]


def test_tie_is_a_sum() -> None:
    sizes = Sizes([("a", "b", "c")], 0, {"c": ("a", "b")})
    assert sizes["c"] == sizes["a"] + sizes["b"]
    assert Sizes([("a", "b")], 0, {"b": ("a",)})["b"] == 2


def test_plans_reach_what_models_hide() -> None:
    cached = [
        ("s1", "s21"),
        ("s86", "s12"),
        ("s1", 4, "s16", 16),
    ]  # ids, mask over past and present, cache
    plans = list(tie_plans(cached, changes=1))
    assert plans[:2] == [{}, {"s86": ("s1",), "s12": ("s21",)}]
    assert {"s86": ("s1",), "s12": ("s21", "s16")} in plans
    assert {"s12": ("s21",)} in plans
    assert len(plans) < 40


def test_plans_are_never_circular() -> None:
    for plan in itertools.chain(
        tie_plans([("a", "b", "c"), ("c", "a", "d")], 2), tie_plans([("a", "b"), ("b", "a")], 2)
    ):
        assert not set(plan) & {part for target in plan.values() for part in target}
    assert list(tie_plans([(2, 3)], changes=2)) == [{}]
