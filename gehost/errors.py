"""Every error that gehost raises on purpose, with its exit code.

GehostError                      1
├── UsageError                   2   wrong options, unknown pass name, a file that cannot be written
│   └── OutputError              2   the output, a dump or a report cannot be written
├── ModelError                   3   the model is at fault
│   └── UnsupportedModelError    3   this machine's runtime lacks an operator, opset or IR version
├── VendorError                  4   a vendor or plugin file is at fault
│   ├── PatternError             4   a pattern is not well-formed
│   └── PluginError              4   a plugin's hook or importer failed
├── PassError                    5   a pass failed while it ran
└── NumbersDifferError           6   two models that should agree do not
"""

from __future__ import annotations

import errno
import os
import re
import traceback
from typing import Any

from gehost.location import SourceLocation

_LONGEST = 2000
"""Longest message in characters; messages are read in a terminal."""


class GehostError(Exception):
    """An error that a user can cause, rendered here as one line.

    The text is ``WHERE: SUBJECT: MESSAGE; HINT``, without the missing parts. Each part is an
    attribute.

    Args:
        message: the problem: wanted and found.
        where: the file, with its line if known, of the model, pass or option.
        subject: the operator, node, input or option that the message is about.
        hint: what to do.
    """

    exit_code = 1
    subject_first = False
    """True for ``SUBJECT (WHERE): …``, as the pass or plugin is what a reader knows by name."""

    def __init__(
        self,
        message: object = "",
        *,
        where: object | None = None,
        subject: object | None = None,
        hint: str = "",
    ) -> None:
        super().__init__(message)
        self.where = where
        self.subject = subject
        self.hint = hint

    @property
    def message(self) -> object:
        """The problem alone, without location, subject and hint."""
        return self.args[0] if self.args else ""

    def __str__(self) -> str:
        return self.rendered()

    def rendered(self, context: object | None = None) -> str:
        """Return the text, without the location if it is ``context``."""
        here = context is not None and str(self.where) == str(context)
        place = None if here else self.where
        parts = [str(part) for part in self._head(place) if part is not None]
        text = ": ".join([*parts, str(self.message)])
        return f"{text}; {self.hint}" if self.hint else text

    def _head(self, where: object | None) -> list[object | None]:
        if self.subject_first and self.subject is not None and where is not None:
            return [f"{self.subject} ({where})"]
        return [where, self.subject]


class UsageError(GehostError):
    """An option, a name or a file of the caller is wrong."""

    exit_code = 2


class OutputError(UsageError):
    """A file could not be written; an existing file is unchanged."""


class ModelError(GehostError):
    """The model is not valid, or unreadable for this host."""

    exit_code = 3


class UnsupportedModelError(ModelError):
    """A model that the installed runtime cannot run.

    The runtime lacks an operator, the opset or the IR version, so nothing is known about the
    numbers.
    """


class VendorError(GehostError):
    """A vendor or plugin file failed to load; names file and line."""

    exit_code = 4


class PatternError(VendorError):
    """A pattern or replacement is malformed; names file and line."""


class PluginError(VendorError):
    """A hook or an importer failed while running; names it and its line."""

    subject_first = True


class PassError(GehostError):
    """A pass failed while running; names it, its line and the node."""

    exit_code = 5
    subject_first = True
    named = False
    """True once the error names the pass."""


class NumbersDifferError(GehostError):
    """Two models that were compared give different numbers.

    ``report`` is the ``Report`` of the verified compile, ``model`` the refused ``ModelProto`` if
    ``Host.run`` compiled it; otherwise they are None.
    """

    exit_code = 6
    report: Any = None
    model: Any = None


_BLAMED = (1, ModelError.exit_code, VendorError.exit_code, NumbersDifferError.exit_code)
_LACKS = {
    errno.ENOMEM: "memory",
    errno.EMFILE: "file descriptors",
    errno.ENFILE: "file descriptors",
    errno.EAGAIN: "processes",
    errno.ENOSPC: "space on disk",
    errno.EDQUOT: "space on disk",
}
_LACKS_BY_TEXT = {
    "memory": r"(bad_alloc|bad allocation|annot allocate memory"
    r"|failed to map segment from shared object|Arena alloc failed)$"
    r"|Failed to allocate memory for requested buffer",
    "file descriptors": r"(Too many open files|cannot open shared object file: Error 24)$",
    "threads": r"can't start new thread$",
}
"""Of the loader, C++, protobuf and ONNX Runtime, whose errors have other types."""
_LARGEST_MESSAGE = 2**31 - 1
"""Bytes of one protobuf message; it cannot be written where it is larger, or where memory lacks."""


def deepest_line(error: BaseException, inside: str) -> SourceLocation | None:
    """Find ``error``'s deepest frame in a file, or below a directory."""
    below = os.path.join(inside, "")
    frames = traceback.extract_tb(error.__traceback__)
    lines = [
        SourceLocation(frame.filename, frame.lineno or 0)
        for frame in frames
        if frame.filename == inside or frame.filename.startswith(below)
    ]
    return lines[-1] if lines else None


def outcome(error: BaseException) -> tuple[int, str]:
    """Return the exit code and the line of an error that ends a command.

    What the machine lacks is the fault of no model, vendor or plugin, and no internal error.
    """
    if isinstance(error, GehostError):
        lack = _shortage(error) if error.exit_code in _BLAMED else None
        return (2, f"not enough {lack[0]}: {error}") if lack else (error.exit_code, str(error))
    lack = _shortage(error)
    if lack is None:
        return 1, f"internal error: {described(error)}"
    return 2, f"not enough {lack[0]}: {described(lack[1])}"


def _shortage(error: BaseException) -> tuple[str, BaseException] | None:
    """Return what the machine lacks and the error that shows it: this one or one of its causes."""
    item: BaseException | None = error
    while item is not None:
        if isinstance(item, MemoryError):
            return "memory", item
        if type(item).__name__ == "EncodeError" and not _has_room(_LARGEST_MESSAGE):
            return "memory", item
        if isinstance(item, OSError) and item.errno in _LACKS:
            return _LACKS[item.errno], item
        text = "" if isinstance(item, GehostError) else _text_of(item).strip()
        for lack, pattern in _LACKS_BY_TEXT.items():
            if re.search(pattern, text):
                return lack, item
        item = item.__cause__ or (None if item.__suppress_context__ else item.__context__)
    return None


def _has_room(size: int) -> bool:
    try:
        _ = bytearray(size)
    except MemoryError:
        return False
    return True


def _text_of(error: BaseException, context: object | None = None) -> str:
    try:
        return error.rendered(context) if isinstance(error, GehostError) else str(error)
    except KeyboardInterrupt:
        raise
    except BaseException as fault:  # noqa: BLE001 - an author's __str__ may raise anything
        return f"(its message cannot be read: {type(fault).__name__})"


def described(error: BaseException, context: object | None = None) -> str:
    """Return an error's text, shortened, with its type unless it is gehost's.

    Args:
        error: any error.
        context: a location that the reader knows and that is left out.
    """
    text = _text_of(error, context)
    if len(text) > _LONGEST:
        text = f"{text[:_LONGEST]}… ({len(text)} characters)"
    if isinstance(error, GehostError):
        return text
    if isinstance(error, TypeError) and " object expected; got " in text:  # worded by mypyc
        text = re.sub(
            r"\bgehost\.[\w.]*\.",
            "",
            "wanted {}, got {}".format(*text.split(" object expected; got ", 1)),
        )
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def one_line(text: str) -> str:
    """Return a text on one line for a terminal, as ``printable``, without double blanks."""
    return printable(" ".join(text.split()))


def printable(line: str) -> str:
    """Return a line with escapes for control characters, line breaks and bidirectional marks.

    Names come from models: they neither steer a terminal nor look like lines of ours.
    """
    if line.isprintable():
        return line
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in line)
