"""The process is as it was after somebody's file was loaded (what vendor files do is in test_vendors.py)."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from gehost.host import containment
from gehost.host.containment import process_state_restored


def test_an_error_inside_goes_through_after_all_was_put_back(tmp_path: Path) -> None:
    before, path = os.getcwd(), list(sys.path)
    with pytest.raises(ZeroDivisionError), process_state_restored():  # noqa: PT012 - both lines are what is tested
        os.chdir(tmp_path)
        sys.path = ["/elsewhere"]
        _ = 1 / 0
    assert (os.getcwd(), sys.path) == (before, path)


def test_a_directory_that_is_gone_is_no_reason_to_fail(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    with process_state_restored():
        os.chdir(tmp_path)
        gone.rmdir()
    assert os.getcwd() == str(tmp_path)
    gone.mkdir()
    os.chdir(gone)
    gone.rmdir()
    with process_state_restored():
        os.chdir(tmp_path)


def test_a_seed_that_is_drawn_from_further_stays_so() -> None:
    np.random.seed(3)
    first = np.random.random()
    with process_state_restored():
        np.random.seed(99)
    second = np.random.random()
    np.random.seed(3)
    assert (np.random.random(), np.random.random()) == (first, second)


def test_numpy_draws_by_chance_after_a_file_that_was_the_first_to_seed_it() -> None:
    code = """
from gehost.host.containment import process_state_restored
import numpy as np

with process_state_restored():
    np.random.seed(5)
drawn = np.random.random()
np.random.seed(5)
assert drawn != np.random.random(), "the seed was left"
"""
    process = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False
    )
    assert process.returncode == 0, process.stderr


def test_modules_that_were_replaced_or_taken_away_come_back_and_new_ones_stay(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in ("one", "two"):
        monkeypatch.setitem(sys.modules, name, ModuleType(name))
    one, two = sys.modules["one"], sys.modules["two"]
    monkeypatch.delitem(sys.modules, "three", raising=False)
    with process_state_restored():
        sys.modules["one"] = ModuleType("one")
    assert sys.modules["one"] is one
    with process_state_restored():
        del sys.modules["two"]
        new = sys.modules["three"] = ModuleType("three")
    assert (sys.modules["two"], sys.modules.pop("three")) == (two, new)


@pytest.mark.parametrize("answer", [True, np.zeros(2), ZeroDivisionError])
def test_what_claims_to_be_equal_or_cannot_be_compared_is_put_back_too(
    answer: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Odd:
        def __eq__(self, other: object) -> Any:
            if isinstance(answer, type):
                raise answer
            return answer

        __hash__ = object.__hash__

    one = ModuleType("one")
    monkeypatch.setitem(sys.modules, "one", one)
    monkeypatch.setattr(sys, "path", [*sys.path])
    paths, entries = sys.path, list(sys.path)
    with process_state_restored():
        sys.modules["one"] = Odd()  # type: ignore[assignment]
        sys.path[0] = Odd()  # type: ignore[call-overload]
    assert sys.modules["one"] is one
    assert sys.path is paths
    assert list(map(id, paths)) == list(map(id, entries))


@pytest.mark.parametrize("failing", ["_put_directory", "_put_path", "_put_modules"])
def test_what_cannot_be_put_back_is_told_and_the_rest_is(
    failing: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: object) -> None:
        raise OSError(failing)

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(containment, failing, fails)
    stream, limit, path = sys.stderr, sys.getrecursionlimit(), sys.path
    with pytest.raises(OSError, match=failing), process_state_restored():  # noqa: PT012 - all of it is what is tested
        sys.setrecursionlimit(limit + 1)
        sys.stderr = None
        if failing != "_put_path":
            sys.path = ["/elsewhere"]
    assert (sys.stderr, sys.getrecursionlimit(), sys.path) == (stream, limit, path)
