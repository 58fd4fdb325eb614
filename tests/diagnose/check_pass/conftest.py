"""Fixtures of the tests of check-pass."""

from __future__ import annotations

import pytest

from gehost.diagnose.check_pass import run as run_module


@pytest.fixture
def few_draws(monkeypatch: pytest.MonkeyPatch) -> None:
    """Give a pattern up after 40 draws that it does not accept, not 400."""
    monkeypatch.setattr(run_module, "_DRAWS", 40)
