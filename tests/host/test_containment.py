"""The process is as it was after somebody's file was loaded (what vendor files do is in test_vendors.py)."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import numpy as np
import pytest

from gehost.host.containment import contained


def test_an_error_inside_goes_through_after_all_was_put_back(tmp_path: Path) -> None:
    before, path = os.getcwd(), list(sys.path)
    with pytest.raises(ZeroDivisionError), contained():  # noqa: PT012 - both lines are what is tested
        os.chdir(tmp_path)
        sys.path = ["/elsewhere"]
        _ = 1 / 0
    assert (os.getcwd(), sys.path) == (before, path)


def test_a_directory_that_is_gone_is_no_reason_to_fail(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    with contained():
        os.chdir(tmp_path)
        gone.rmdir()
    assert os.getcwd() == str(tmp_path)
    gone.mkdir()
    os.chdir(gone)
    gone.rmdir()
    with contained():
        os.chdir(tmp_path)


def test_a_seed_that_is_drawn_from_further_stays_so() -> None:
    np.random.seed(3)
    first = np.random.random()
    with contained():
        np.random.seed(99)
    second = np.random.random()
    np.random.seed(3)
    assert (np.random.random(), np.random.random()) == (first, second)
