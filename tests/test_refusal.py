"""The one type of a "no", and the exception that raises it."""

from __future__ import annotations

import pickle

import pytest

from gehost.errors import PassError
from gehost.refusal import Refusal, Refused, refusal_by


@pytest.mark.parametrize(
    ("text", "key", "message"),
    [
        ("rank: 3", "rank", "3"),
        ("rank : 4", "rank", "4"),
        ("rank", "rank", ""),
        ("a: b: c", "a", "b: c"),
        ("", "unspecified", ""),
        (":", "unspecified", ""),
    ],
)
def test_text_before_the_first_colon_is_the_key(text: str, key: str, message: str) -> None:
    refusal = Refusal.of(text)
    assert (refusal.key, refusal.message) == (key, message)
    assert refusal.reason == str(refusal) == (f"{key}: {message}" if message else key)
    assert not refusal


def test_raised_refusal_has_its_text() -> None:
    raised = Refused("rank", "3", where="p.py:1", subject="Add")
    assert raised.refusal == Refusal("rank", "3", "p.py:1", "Add")
    assert (str(raised), raised.message) == ("rank: 3", "3")
    assert Refused(raised.refusal).refusal is raised.refusal
    assert pickle.loads(pickle.dumps(raised)).refusal == raised.refusal


def test_reason_of_an_author_is_a_text() -> None:
    with pytest.raises(PassError, match='match.reject wants a reason as text, "key: text", got 3'):
        refusal_by(3, "match.reject")
