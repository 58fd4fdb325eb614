"""Running somebody's code without letting it change the process around it."""

from __future__ import annotations

import locale
import os
import random
import signal
import sys
import threading
import warnings
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from functools import partial
from operator import is_
from typing import Any, Final, TextIO

import numpy as np

_NUMPY_RANDOM = "numpy.random"


_PROCESS: Final = threading.RLock()
"""Held while the state of the process is another one: one thread at a time."""


@contextmanager
def exclusive() -> Generator[None]:
    """Keep other threads from compiling meanwhile; the thread that is in it may enter again."""
    with _PROCESS:
        yield


@contextmanager
def contained() -> Generator[None]:
    """Put back what vendor code may change of the process, however it ends.

    That is: the working directory, ``sys.path``, modules that were loaded before, the standard
    streams, the recursion limit, warning filters, numpy's error state, the locale, the handlers of
    interrupts, and the state of the global random generators. Environment variables stay: what sets
    them for a library, sets them for its later calls too. Threads and ``atexit`` are not looked at.
    """
    kept = list(_state())
    try:
        with warnings.catch_warnings(), np.errstate():
            yield
    finally:
        failures: list[BaseException] = []
        for put_back in reversed(kept):
            try:
                put_back()
            except BaseException as failure:  # noqa: BLE001 - whatever comes of one, the others are put back
                failures.append(failure)
        if failures:
            raise failures[0]


@contextmanager
def output_on_stderr() -> Generator[None]:
    """Send what is written to standard output, also by native code and child processes, to standard
    error.

    For a process of one's own only: descriptors belong to the whole process.
    """
    if sys.__stdout__ is None or sys.__stderr__ is None:  # the process was started without one
        yield
        return
    _flush()
    kept = {number: os.dup(number) for number in (1, 2)}
    os.dup2(2, 1)
    try:
        yield
    finally:
        _flush()
        for number, copy in kept.items():
            os.dup2(copy, number)
            os.close(copy)


def _flush() -> None:
    for stream in {sys.stdout, sys.__stdout__}:
        if stream is not None and not stream.closed:
            with suppress(OSError):  # told when the command writes for itself
                stream.flush()


def _state() -> Generator[Callable[[], Any]]:
    """What puts back each thing that is kept."""
    yield partial(random.setstate, random.getstate())
    yield partial(
        _put_numpy_state,
        np.random.get_state(legacy=False) if _NUMPY_RANDOM in sys.modules else None,
    )
    yield partial(_put_path, sys.path, list(sys.path))
    yield partial(_put_modules, sys.modules, sys.modules.copy())
    yield partial(setattr, sys, "stdin", sys.stdin)
    for number, name in ((1, "stdout"), (2, "stderr")):
        stream: TextIO | None = getattr(sys, name)
        yield partial(
            _put_stream, name, stream, None if stream is None or stream.closed else number
        )
    yield partial(sys.setrecursionlimit, sys.getrecursionlimit())
    yield partial(_put_locale, locale.setlocale(locale.LC_ALL))
    if threading.current_thread() is threading.main_thread():  # no other may set handlers
        for number in (signal.SIGINT, signal.SIGTERM):
            yield partial(_put_handler, number, signal.getsignal(number))
    with suppress(OSError):  # it was removed while we stood in it
        yield partial(_put_directory, os.getcwd())


def _put_numpy_state(state: Any) -> None:
    """As it was; where nobody had asked for it (numpy loads this when it is used), as nobody
    knows it.
    """
    if state is not None:
        np.random.set_state(state)
    elif _NUMPY_RANDOM in sys.modules:
        np.random.seed()


def _put_path(listed: list[str], entries: list[str]) -> None:
    sys.path = listed
    # without comparing them, as they may be of classes that claim to be equal to anything
    listed[:] = entries


def _put_modules(table: dict[str, Any], before: dict[str, Any]) -> None:
    """What was imported since stays; what was there and was replaced or removed comes back."""
    sys.modules = table
    # what replaced one may claim to be equal
    if list(table) == list(before) and all(map(is_, table.values(), before.values())):
        return
    table.update({name: module for name, module in before.items() if table.get(name) is not module})
    for name in [name for name in table if not isinstance(name, str)]:  # pyright: ignore[reportUnnecessaryIsInstance]
        del table[name]


def _put_stream(name: str, stream: TextIO | None, number: int | None) -> None:
    """Put a stream back; one that was closed meanwhile is opened anew at its descriptor, which
    Python leaves open.
    """
    if stream is not None and stream.closed and number is not None:
        stream = open(number, "w", encoding="utf-8", errors="backslashreplace", closefd=False)  # noqa: SIM115 - it stays open
    setattr(sys, name, stream)


def _put_locale(name: str) -> None:
    if locale.setlocale(locale.LC_ALL) != name:
        locale.setlocale(locale.LC_ALL, name)


def _put_handler(number: signal.Signals, handler: Any) -> None:
    # None: it was not set by Python
    if handler is not None and signal.getsignal(number) is not handler:
        signal.signal(number, handler)


def _put_directory(path: str) -> None:
    with suppress(OSError):
        if os.getcwd() == path:
            return
    with suppress(OSError):
        os.chdir(path)
