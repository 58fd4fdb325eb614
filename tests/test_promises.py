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
