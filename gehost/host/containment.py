"""Run vendor and plugin code, and undo its changes to the process."""

from __future__ import annotations

import locale
import os
import random
import signal
import sys
import threading
import warnings
from collections.abc import Callable, Generator
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from functools import partial
from operator import is_
from typing import Any, Final, TextIO

import numpy as np

from gehost.host.plugins import Hook

_NUMPY_RANDOM = "numpy.random"


_PROCESS: Final = threading.RLock()
"""Held by the one thread that may change the state of the process."""


@contextmanager
def exclusive() -> Generator[None]:
    """Keep other threads from compiling inside the block.

    The lock is re-entrant for its own thread.
    """
    with _PROCESS:
        yield


@contextmanager
def process_state_restored() -> Generator[None]:
    """Restore what vendor code may change, at the block's end and on errors.

    That is the working directory, ``sys.path``, modules that were loaded before, the standard
    streams, the recursion limit, warning filters, numpy's error state, the locale, the handlers of
    interrupts, and the state of the global random generators. Environment variables stay, because
    a library that sets them needs them in later calls, too. Threads and ``atexit`` handlers are
    not tracked.
    """
    retained = list(_state())
    try:
        with warnings.catch_warnings(), np.errstate():
            yield
    finally:
        failures: list[BaseException] = []
        for put_back in reversed(retained):
            try:
                put_back()
            except BaseException as failure:  # noqa: BLE001 - one failure must not keep the others from being restored
                failures.append(failure)
        if failures:
            raise failures[0]


@contextmanager
def process_state_restored_lazily() -> Generator[Callable[[], None]]:
    """Restore as ``process_state_restored``, from the first call of the yielded function on.

    A pass whose operators the graph lacks runs no vendor code and pays for nothing.
    """
    with ExitStack() as stack:
        is_noted = False

        def take() -> None:
            nonlocal is_noted
            if not is_noted:
                is_noted = True
                stack.enter_context(process_state_restored())

        yield take


@contextmanager
def contained(hook: Hook) -> Generator[None]:
    """Restore what a foreign hook changes; its exceptions become those of ``Hook.blamed``."""
    with nullcontext() if hook.own else process_state_restored(), hook.blamed():
        yield


@contextmanager
def output_on_stderr() -> Generator[None]:
    """Redirect standard output to standard error.

    This includes native code and child processes. The whole process shares the file
    descriptors, so this is only for a process that belongs to the caller.
    """
    if sys.__stdout__ is None or sys.__stderr__ is None:  # the process was started without one
        yield
        return
    _flush()
    retained = {number: os.dup(number) for number in (1, 2)}
    os.dup2(2, 1)
    try:
        yield
    finally:
        _flush()
        for number, copy in retained.items():
            os.dup2(copy, number)
            os.close(copy)


def _flush() -> None:
    for stream in {sys.stdout, sys.__stdout__}:
        if stream is not None and not stream.closed:
            with suppress(OSError):  # the command reports it when it writes its own output
                stream.flush()


def _state() -> Generator[Callable[[], Any]]:
    """Yield, for each part of the state, a function that restores it."""
    yield partial(random.setstate, random.getstate())
    yield partial(
        _put_numpy_state,
        np.random.get_state(legacy=False) if _NUMPY_RANDOM in sys.modules else None,
    )
    yield partial(_put_path, sys.path, list(sys.path))
    yield partial(_put_modules, sys.modules, list(sys.modules), list(sys.modules.values()))
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
    with suppress(OSError):  # the working directory was removed
        yield partial(_put_directory, os.getcwd())


def _put_numpy_state(state: Any) -> None:
    """Restore numpy's generator; reseed it if numpy.random was loaded since.

    ``state`` is None where numpy.random, which numpy loads on first use, was not loaded yet.
    """
    if state is not None:
        np.random.set_state(state)
    elif _NUMPY_RANDOM in sys.modules:
        np.random.seed()


def _put_path(items: list[str], entries: list[str]) -> None:
    sys.path = items
    # not compared first: entries may be objects that claim to be equal to anything
    items[:] = entries


def _put_modules(table: dict[str, Any], names: list[str], modules: list[Any]) -> None:
    """Restore replaced and removed modules; modules imported since stay."""
    sys.modules = table
    results, count = list(table), len(names)
    # compared by identity: a replacement may claim to be equal
    if results[:count] == names and all(map(is_, table.values(), modules)):
        results = results[count:]
    else:
        for name, module in zip(names, modules, strict=True):
            if table.get(name) is not module:
                table[name] = module
    for name in results:
        if not isinstance(name, str):  # pyright: ignore[reportUnnecessaryIsInstance]
            del table[name]


def _put_stream(name: str, stream: TextIO | None, number: int | None) -> None:
    """Restore a standard stream; open a closed one again at its descriptor.

    Python leaves the descriptors of the standard streams open.
    """
    if stream is not None and stream.closed and number is not None:
        stream = open(number, "w", encoding="utf-8", errors="backslashreplace", closefd=False)  # noqa: SIM115 - it stays open
    setattr(sys, name, stream)


def _put_locale(name: str) -> None:
    if locale.setlocale(locale.LC_ALL) != name:
        locale.setlocale(locale.LC_ALL, name)


def _put_handler(number: signal.Signals, handler: Any) -> None:
    # None: the handler was not set by Python
    if handler is not None and signal.getsignal(number) is not handler:
        signal.signal(number, handler)


def _put_directory(path: str) -> None:
    with suppress(OSError):
        if os.getcwd() == path:
            return
    with suppress(OSError):
        os.chdir(path)
