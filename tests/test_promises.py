"""The promises of the pages stand where ``promises.toml`` lists them, and the tests that hold them exist."""

from __future__ import annotations

import ast
import re
import tomllib
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PROMISES: dict[str, dict[str, list[str]]] = tomllib.loads(
    (ROOT / "tests/promises.toml").read_text(encoding="utf-8")
)
NO_PROMISE = PROMISES.pop("no promise")
"""Pages of which each sentence is reviewed, with the sentences that promise nothing."""
LISTED = [(page, words) for page, promises in PROMISES.items() for words in promises]


def spaced(text: str) -> str:
    return " ".join(text.split())


@cache
def page_text(page: str) -> str:
    return spaced((ROOT / page).read_text(encoding="utf-8"))


@cache
def names_in(file: str) -> frozenset[str]:
    tree = ast.parse((ROOT / file).read_text(encoding="utf-8"))
    return frozenset(node.name for node in tree.body if isinstance(node, ast.FunctionDef))


@cache
def targets() -> frozenset[str]:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    return frozenset(re.findall(r"^([\w-]+):", makefile, re.MULTILINE))


@pytest.mark.parametrize(("page", "words"), LISTED, ids=lambda text: text[:40])
def test_a_promise_stands_on_its_page_and_its_tests_exist(page: str, words: str) -> None:
    assert spaced(words) in page_text(page)
    held_by = PROMISES[page][words]
    assert held_by
    for test in held_by:
        if test.startswith("make "):
            assert test.removeprefix("make ") in targets()
        else:
            file, _, name = test.partition("::")
            assert name in names_in(file), test


def sentences(page: str) -> list[str]:
    """Return the sentences of a page, without headings, pictures and blocks of code."""
    text = re.sub(r"```.*?```", "\n\n", (ROOT / page).read_text(encoding="utf-8"), flags=re.DOTALL)
    found: list[str] = []
    for block in re.split(r"\n\s*\n|\n(?=[-#|])", text):
        line = spaced(block)
        if not line.startswith(("#", "![")) and line.strip("|- "):
            found += re.split(r"(?<=[.;:!?])\s+(?=[A-Z`*\"(\[])", line.strip("- "))
    return found


@pytest.mark.parametrize("page", NO_PROMISE)
def test_every_sentence_is_a_listed_promise_or_listed_as_none(page: str) -> None:
    promised = [spaced(words) for words in PROMISES[page]]
    others = [
        sentence
        for sentence in sentences(page)
        if not any(words in sentence or sentence in words for words in promised)
    ]
    assert others == NO_PROMISE[page]
