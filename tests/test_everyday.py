"""The tables of everyday shares and of pinned tests name tests that exist."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.everyday import SHARES
from tests.pinned import NEWER, PINNED
from tests.test_corpus import CORPUS, ENTRIES

ROOT = Path(__file__).parents[1]


def test_each_test_of_the_tables_exists() -> None:
    missing = [
        f"{file}::{name}"
        for table in (SHARES, PINNED, NEWER)
        for file, tests in table.items()
        for name in tests
        if f"def {name.partition('[')[0]}(" not in (ROOT / file).read_text(encoding="utf-8")
    ]
    assert missing == []


@pytest.mark.skipif(not CORPUS.is_dir(), reason="no ../shared/corpus")
def test_each_family_of_the_corpus_runs_every_day() -> None:
    families = {name.partition(".")[0].partition("_")[0] for name in ENTRIES}
    for share in SHARES["tests/test_corpus.py"].values():
        if isinstance(share, tuple):
            assert set(share) <= ENTRIES.keys()
            assert {name.partition(".")[0].partition("_")[0] for name in share} == families
