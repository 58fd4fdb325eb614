"""Control Python's cyclic garbage collector while large models are in memory."""

from __future__ import annotations

import gc
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from gehost.ir.model import Model

LARGE: Final = 10_000
"""Number of nodes from which the collector costs more than its garbage; memory grows with nodes."""

_YOUNG = 20_000
"""New objects per collection of the youngest during a compile; Python's is 700."""

_SELDOM = 100
"""Collections of the middle generation per full collection during a compile."""


@contextmanager
def gc_disabled() -> Generator[None]:
    """Disable the collector while many long-lived objects are created."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def gc_unfrozen() -> bool:
    """Whether the process has no frozen objects (``gc.freeze``).

    Python 3.12 itself starts with some hundred frozen objects, which do not count.
    """
    return gc.get_freeze_count() < 1000


@contextmanager
def gc_frozen_models(*, own_process: bool) -> Generator[Callable[[Model], None]]:
    """Keep the collector from walking models repeatedly.

    Inside the block it runs seldom, as a model's objects live until the end.

    Yields a function to call with each loaded model; it freezes a large one.

    Args:
        own_process: ``gc.freeze``, which is undone at the end, is used by no other code. Otherwise
            a large model is frozen only if nothing is: counting frozen objects walks them all, so
            a small model does not ask.
    """
    thresholds = young, middle, old = gc.get_threshold()
    is_frozen = False

    def freeze(model: Model) -> None:
        nonlocal is_frozen
        if len(model.graph) >= LARGE and (own_process or gc_unfrozen()):
            gc.freeze()
            is_frozen = True

    # 0 turns the collector off
    gc.set_threshold(max(young, _YOUNG) if young else 0, middle, max(old, _SELDOM))
    try:
        yield freeze
    finally:
        gc.set_threshold(*thresholds)
        if is_frozen:
            gc.unfreeze()
            gc.collect()  # frozen objects do not count towards the next collection
