"""Runs cases in warm child processes; one that dies or hangs ends one case."""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from tools.fuzz.workers import Outcome, outcomes

BATCH = 100
PATIENCE = 300.0
"""Seconds for a batch, the start of its process included, which takes long on a busy machine."""
_MOST = 10.0
"""Seconds of processor time for one case; one that takes more ends its process."""

Look = Callable[[int], Any]


def _one(look: Look, number: int) -> Any:
    signal.setitimer(signal.ITIMER_PROF, _MOST)
    try:
        return look(number)
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)


def _batch(look: Look, end: int, start: int) -> list[Any]:
    return [_one(look, number) for number in range(start, min(start + BATCH, end))]


def each(look: Look, numbers: range, processes: int) -> Iterator[Outcome]:
    """Run each number; those of a batch that failed one at a time."""
    batches = iter(range(numbers.start, numbers.stop, BATCH))
    for outcome in outcomes(partial(_batch, look, numbers.stop), batches, processes, PATIENCE):
        if not outcome.failure:
            for place, result in enumerate(outcome.result):
                yield Outcome(outcome.number + place, result)
            continue
        sys.stderr.write(f"batch {outcome.number}: {outcome.failure.strip().splitlines()[-1]}\n")
        alone = range(outcome.number, min(outcome.number + BATCH, numbers.stop))
        yield from outcomes(partial(_one, look), iter(alone), 1, PATIENCE)
