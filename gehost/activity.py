"""Which model runs, for whoever watches the process."""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import contextmanager
from contextvars import ContextVar

INFERENCE = "inference"
"""The role of a model whose types ONNX infers."""
_watcher: ContextVar[Callable[[str], None] | None] = ContextVar("gehost_activity", default=None)


@contextmanager
def reporting_to(watcher: Callable[[str], None]) -> Generator[None]:
    """Call ``watcher`` with the role and name of each model that begins to run, "" after it."""
    token = _watcher.set(watcher)
    try:
        yield
    finally:
        _watcher.reset(token)


@contextmanager
def running(role: str, name: str) -> Generator[None]:
    """Report a model while it is loaded or runs."""
    watcher = _watcher.get()
    if watcher is None:
        yield
        return
    watcher(f"{role} {name}")
    try:
        yield
    finally:
        watcher("")
