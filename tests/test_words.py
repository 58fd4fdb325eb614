"""Names are nouns where the names were gone through: a participle is at most one name in 200."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from tools.words import PARTICIPLES, bound_names

ROOT = Path(__file__).parents[1]
AREAS = ["gehost", "plugins", "tests", "tools", "vendors"]


@pytest.mark.parametrize("area", AREAS)
def test_names_are_nouns(area: str) -> None:
    names = [
        (file.relative_to(ROOT).as_posix(), name)
        for file in sorted((ROOT / area).rglob("*.py"))
        for name in bound_names(ast.parse(file.read_text(encoding="utf-8")))
    ]
    participles = [(file, name) for file, name in names if name in PARTICIPLES]
    assert 200 * len(participles) <= len(names), participles


def test_left_beside_right_is_a_side() -> None:
    code = "def f(left, right): pass\ndef g(left): made = left\n"
    assert sorted(bound_names(ast.parse(code))) == [
        "f", "g", "left", "left side", "made", "right",
    ]  # fmt: skip
