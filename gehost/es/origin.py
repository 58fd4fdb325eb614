"""The source locations of authors' code."""

from __future__ import annotations

import os
import sys
from contextvars import ContextVar
from typing import Final

from gehost.location import SourceLocation

_OURS: Final = os.path.dirname(os.path.dirname(__file__)) + os.sep
_OWN_FRAMES: Final = int(__file__.endswith(".py"))
"""Number of frames that a call of ``author_origin`` adds: machine code adds none."""
_written: Final[ContextVar[SourceLocation | None]] = ContextVar("gehost_written_at", default=None)


def author_origin(plugin: str = "") -> SourceLocation:
    """Return file and line of the nearest caller outside gehost.

    A plugin passes its own directory as ``plugin`` to be skipped, too.
    """
    written = _written.get()
    if written is not None:
        return written
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
