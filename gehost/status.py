"""Status values of GE's methods; Python code raises errors instead."""

from __future__ import annotations

from enum import Enum


class Status(Enum):
    """A return value of ``Run``, besides None, True (success) and False (failure)."""

    SUCCESS = 0
    FAILED = 1
    NOT_CHANGED = 2


SUCCESS, FAILED, NOT_CHANGED = Status.SUCCESS, Status.FAILED, Status.NOT_CHANGED
GRAPH_SUCCESS, GRAPH_FAILED = SUCCESS, FAILED
"""GE's names of the same values."""
