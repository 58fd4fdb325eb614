"""Runs numbered cases in processes of their own, so that one that hangs or dies is found and told."""

from __future__ import annotations

import multiprocessing
import time
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from typing import Any

Run = Callable[[int], Any]


@dataclass(frozen=True)
class Outcome:
    """What became of one case: its result, or how it failed."""

    number: int
    result: Any = None
    failure: str = ""


class _Worker:
    def __init__(self, run: Run) -> None:
        context = multiprocessing.get_context("spawn")
        self.pipe, theirs = context.Pipe()
        self.process = context.Process(target=_serve, args=(run, theirs), daemon=True)
        self.process.start()
        theirs.close()
        self.number: int | None = None
        self.since = 0.0

    def give(self, number: int) -> None:
        self.number, self.since = number, time.monotonic()
        self.pipe.send(number)

    def stop(self) -> None:
        self.process.kill()
        self.process.join()
        self.pipe.close()


def _serve(run: Run, pipe: Connection) -> None:
    while True:
        try:
            number = pipe.recv()
        except EOFError:
            return
        try:
            outcome = Outcome(number, run(number))
        except Exception:  # noqa: BLE001 - whatever it is, it is told
            outcome = Outcome(number, failure=traceback.format_exc())
        try:
            pipe.send(outcome)
        except BrokenPipeError:  # nobody waits any more
            return


def outcomes(run: Run, numbers: Iterator[int], count: int, patience: float) -> Iterator[Outcome]:
    """Run the cases in ``count`` processes; one that takes longer than ``patience`` seconds, or dies, has failed."""
    workers = [_Worker(run) for _ in range(count)]
    try:
        for worker in workers:
            _next(worker, numbers)
        while busy := [worker for worker in workers if worker.number is not None]:
            ready = wait([worker.pipe for worker in busy], timeout=1.0)
            for place, worker in enumerate(workers):
                outcome = _outcome(worker, ready, patience)
                if outcome is None:
                    continue
                if not worker.process.is_alive():
                    worker.stop()
                    workers[place] = worker = _Worker(run)
                _next(worker, numbers)
                yield outcome
    finally:
        for worker in workers:
            worker.stop()


def _next(worker: _Worker, numbers: Iterator[int]) -> None:
    number = next(numbers, None)
    worker.number = None
    if number is not None:
        worker.give(number)


def _outcome(worker: _Worker, ready: list[Any], patience: float) -> Outcome | None:
    if worker.number is None:
        return None
    if worker.pipe in ready:
        try:
            return worker.pipe.recv()
        except (EOFError, ConnectionResetError):
            worker.process.join()
            return Outcome(
                worker.number,
                failure=f"died: the process ended with code {worker.process.exitcode}",
            )
    if time.monotonic() - worker.since > patience:
        worker.process.kill()
        worker.process.join()
        return Outcome(worker.number, failure=f"hang: no answer after {patience:g} seconds")
    return None
