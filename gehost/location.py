"""File and line of source code, for errors, passes and operators."""

from __future__ import annotations

import os
import sys
from contextvars import ContextVar
from types import CodeType
from typing import Any, Final

_OURS: Final = os.path.dirname(__file__) + os.sep
_OWN_FRAMES: Final = int(__file__.endswith(".py"))
"""Number of frames that a call of ``author_origin`` adds: machine code adds none."""


class SourceLocation:
    """A line of a file, shown as ``path:line`` and compared by both.

    Made from an instruction of a code object, it computes the line on first use.
    """

    __slots__ = ("_code", "_offset", "path")

    def __init__(self, path: str, line: int, code: CodeType | None = None) -> None:
        """With ``code``, ``line`` is the offset of an instruction in it."""
        self.path = path
        self._offset = line
        self._code = code

    @classmethod
    def parse(cls, text: str) -> SourceLocation:
        """Read ``path:line``.

        A text without a line number is a path with line 0.
        """
        path, _, line = text.rpartition(":")
        return SourceLocation(path, int(line)) if line.isdigit() else SourceLocation(text, 0)

    @property
    def line(self) -> int:
        code, offset = self._code, self._offset
        if code is not None:
            results = [line or 0 for start, end, line in code.co_lines() if start <= offset < end]
            self._offset, self._code = results[0] if results else code.co_firstlineno, None
        return self._offset

    def __reduce__(self) -> Any:
        return SourceLocation, (self.path, self.line)

    def __str__(self) -> str:
        return f"{self.path}:{self.line}"

    def __repr__(self) -> str:
        return f"SourceLocation({self.path!r}, {self.line})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, SourceLocation) and str(self) == str(other)

    def __hash__(self) -> int:
        return hash(str(self))


_written: Final[ContextVar[SourceLocation | None]] = ContextVar("gehost_written_at", default=None)


def author_origin(plugin: str = "") -> SourceLocation:
    """Return file and line of the nearest caller outside gehost.

    A plugin passes its own directory as ``plugin`` to be skipped, too.
    """
    output = _written.get()
    if output is not None:
        return output
    frame = sys._getframe(_OWN_FRAMES)  # noqa: SLF001 # pyright: ignore[reportPrivateUsage] - inspect.currentframe cannot skip frames
    code = frame.f_code
    path = code.co_filename
    while (
        path.startswith(_OURS) or (plugin and path.startswith(plugin))
    ) and frame.f_back is not None:
        frame = frame.f_back
        code = frame.f_code
        path = code.co_filename
    return SourceLocation(path, frame.f_lasti, code)


class written_at:  # noqa: N801 - reads like a statement; not a generator, as it runs for each operator of each replacement
    """Set the source location of all that the block builds.

    Styles use it that build a graph after their author's function returned.
    """

    __slots__ = ("_origin", "_token")

    def __init__(self, origin: SourceLocation) -> None:
        self._origin = origin

    def __enter__(self) -> None:
        self._token = _written.set(self._origin)

    def __exit__(self, *error: object) -> None:
        _written.reset(self._token)
