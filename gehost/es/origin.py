"""Where an author wrote something."""

from __future__ import annotations

import os
import sys
from contextvars import ContextVar
from types import CodeType
from typing import Any, Final


class Origin:
    """Where an author wrote something. The line is looked up when somebody asks, which is
    seldom.
    """

    __slots__ = ("_code", "_offset", "path")

    def __init__(self, path: str, line: int, code: CodeType | None = None) -> None:
        """With ``code``, ``line`` is the offset of an instruction in it."""
        self.path = path
        self._offset = line
        self._code = code

    @property
    def line(self) -> int:
        code, offset = self._code, self._offset
        if code is not None:
            found = [line or 0 for start, end, line in code.co_lines() if start <= offset < end]
            self._offset, self._code = found[0] if found else code.co_firstlineno, None
        return self._offset

    def __reduce__(self) -> Any:
        return Origin, (self.path, self.line)

    def __str__(self) -> str:
        return f"{self.path}:{self.line}"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Origin) and str(self) == str(other)

    def __hash__(self) -> int:
        return hash(str(self))


_OURS: Final = os.path.dirname(os.path.dirname(__file__)) + os.sep
_OWN_FRAMES: Final = int(__file__.endswith(".py"))
"""How many frames a call of ``author_origin`` has: machine code has none."""
_written: Final[ContextVar[Origin | None]] = ContextVar("gehost_written_at", default=None)


def author_origin(plugin: str = _OURS) -> Origin:
    """File and line of the nearest caller outside gehost itself, and outside the directory of a
    ``plugin`` that asks.
    """
    said = _written.get()
    if said is not None:
        return said
    frame = sys._getframe(_OWN_FRAMES)  # noqa: SLF001 # pyright: ignore[reportPrivateUsage] - what inspect.currentframe calls
    code = frame.f_code
    path = code.co_filename
    while (
        path.startswith(_OURS) or (plugin is not _OURS and path.startswith(plugin))
    ) and frame.f_back is not None:
        frame = frame.f_back
        code = frame.f_code
        path = code.co_filename
    return Origin(path, frame.f_lasti, code)


class written_at:  # noqa: N801 - a statement's word; a class, because rules say it for each operator of each replacement
    """Whatever is built meanwhile was written there: for styles that build a graph after its
    author's call returned.
    """

    __slots__ = ("_origin", "_token")

    def __init__(self, origin: Origin) -> None:
        self._origin = origin

    def __enter__(self) -> None:
        self._token = _written.set(self._origin)

    def __exit__(self, *error: object) -> None:
        _written.reset(self._token)
