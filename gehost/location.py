"""File and line of source code, for errors, passes and operators."""

from __future__ import annotations

from types import CodeType
from typing import Any


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
            found = [line or 0 for start, end, line in code.co_lines() if start <= offset < end]
            self._offset, self._code = found[0] if found else code.co_firstlineno, None
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
