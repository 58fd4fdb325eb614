"""Commands that run models do so in a child process: a crash of the runtime gives one line.

ONNX Runtime ends the process on some models, and the kernel does where memory runs out. Neither
leaves Python a chance to say so.
"""

from __future__ import annotations

import mmap
import os
import signal
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from gehost.activity import INFERENCE, reporting_to
from gehost.cli.output import print_notes

_ALWAYS = frozenset(("optimize", "verify", "bisect", "tune", "check-pass"))
_SIZE = 4096
_PR_SET_PDEATHSIG = 1


def runs_models(arguments: Sequence[str]) -> bool:
    """Whether a command line runs models; ``compile`` does with ``--verify``."""
    command = next((argument for argument in arguments if not argument.startswith("-")), "")
    return command in _ALWAYS or (command == "compile" and "--verify" in arguments)


def run_in_child(run: Callable[[], int]) -> int:
    """Return the exit code of ``run``; where it ends by a signal, print which model ran.

    The child begins before anything has started threads, which do not survive a fork: with those of
    ONNX Runtime, the child would abort at its end.
    """
    if not hasattr(os, "fork") or _has_threads():
        return run()
    shared = mmap.mmap(-1, _SIZE)
    try:
        child = os.fork()
    except OSError:  # no memory or no processes: a crash would have no line of its own
        return run()
    if child == 0:
        _end_with_parent()
        with reporting_to(lambda text: _write(shared, text)):
            return run()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the child has it, too, and reports it
    signal.signal(signal.SIGTERM, lambda number, _: os.kill(child, number))
    _, status = os.waitpid(child, 0)
    code = os.waitstatus_to_exitcode(status)
    return code if code >= 0 else _report(signal.Signals(-code), _read(shared))


def _has_threads() -> bool:
    """Whether this process has threads besides its first, also such that Python does not know."""
    tasks = Path("/proc/self/task")
    return tasks.is_dir() and len(list(tasks.iterdir())) > 1


def _report(cause: signal.Signals, activity: str) -> int:
    """Print one line on a process that ended by a signal; return the exit code."""
    role, _, model = activity.partition(" ")
    if cause == signal.SIGTERM:
        print_notes(["terminated"])
        return 143
    during = f" while it ran {model}" if model else ""
    if cause == signal.SIGKILL:
        line = f"the process was killed{during}; if nobody did, there was not enough memory"
        code = 2
    elif not model:
        line, code = f"internal error: the process ended by {cause.name}", 1
    elif role == INFERENCE:
        line, code = f"ONNX's shape inference ended the process ({cause.name}) on {model}", 1
    else:
        line = f"ONNX Runtime ended the process ({cause.name}){during}"
        code = 6 if role == "result" else 3
    print_notes([line])
    return code


def _end_with_parent() -> None:
    """Let Linux end this process when its parent ends."""
    if sys.platform == "linux":
        import ctypes

        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)


def _write(shared: mmap.mmap, text: str) -> None:
    content = text.encode(errors="backslashreplace")[: _SIZE - 1]
    shared[: len(content) + 1] = content + b"\0"


def _read(shared: mmap.mmap) -> str:
    return bytes(shared[:]).split(b"\0", 1)[0].decode(errors="ignore")
