"""Commands run without default vendors."""

from __future__ import annotations

import pytest


@pytest.fixture(autouse=True)
def no_default_vendors(monkeypatch: pytest.MonkeyPatch) -> None:
    """Commands run without vendors unless a test names some."""
    monkeypatch.setattr("gehost.options.shipped_vendors", lambda _group: [])
