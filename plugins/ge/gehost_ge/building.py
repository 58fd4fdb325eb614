"""Whether the graphs that are built are patterns."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from contextvars import ContextVar

_is_pattern: ContextVar[bool] = ContextVar("gehost_ge_is_pattern", default=False)


@contextmanager
def building_patterns() -> Generator[None]:
    """Let numbers of the block's graphs match any constant, as GE's patterns do."""
    token = _is_pattern.set(True)
    try:
        yield
    finally:
        _is_pattern.reset(token)


def in_pattern() -> bool:
    """Whether the graphs that are built are patterns: their numbers stand for any constant."""
    return _is_pattern.get()
