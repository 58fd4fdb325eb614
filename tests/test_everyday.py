"""The table of everyday shares names tests that exist."""

from __future__ import annotations

from pathlib import Path

from tests.everyday import SHARES

ROOT = Path(__file__).parents[1]


def test_each_test_of_the_table_exists() -> None:
    missing = [
        f"{file}::{name}"
        for file, tests in SHARES.items()
        for name in tests
        if f"def {name}(" not in (ROOT / file).read_text(encoding="utf-8")
    ]
    assert missing == []
