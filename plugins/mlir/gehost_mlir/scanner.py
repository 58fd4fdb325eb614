"""Reads MLIR's text item by item; errors show line and column."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

DIGITS = re.compile(r"[0-9]+")
_BEYOND = 1 << 63


class MlirError(ValueError):
    """Malformed text, with its place.

    ``line`` and ``column`` count from 1; the message shows the line with a caret, of a long line
    the part around it.
    """

    def __init__(self, message: str, text: str, position: int) -> None:
        self.line = text.count("\n", 0, position) + 1
        begin = text.rfind("\n", 0, position) + 1
        self.column = position - begin + 1
        self.reason = message
        end = text.find("\n", position)
        begin, end = max(begin, position - 160), end if end >= 0 else len(text)
        shown = text[begin : min(end, position + 160)]
        caret = re.sub(r"[^\t]", " ", shown[: position - begin]) + "^"
        super().__init__(f"line {self.line}, column {self.column}: {message}\n{shown}\n{caret}")


class Scanner:
    """Reads a text from left to right.

    It skips blanks and ``//`` comments before each item.
    """

    _BLANK = re.compile(r"(?:\s+|//[^\n]*)*", re.ASCII)
    _PROPERTIES = re.compile(r"<(?:\s|//[^\n]*)*+\{", re.ASCII)

    def __init__(self, text: str) -> None:
        self.text = text
        self.position: int = 0
        self.depth = 0
        """How many brackets of an expression are open."""

    def skip(self) -> int:
        """Skip blanks and comments; returns the position of the next item."""
        match = self._BLANK.match(self.text, self.position)
        if match is not None:
            self.position = match.end()
        return self.position

    def at_end(self) -> bool:
        return self.skip() == len(self.text)

    def peek(self, literal: str) -> bool:
        start = self.skip()
        if not self.text.startswith(literal, start):
            return False
        end = start + len(literal)
        return not (
            literal[-1].isalnum()
            and end < len(self.text)
            and (self.text[end].isalnum() or self.text[end] == "_")
        )

    def has_properties(self) -> bool:
        """Whether ``<{`` comes next, which may have blanks inside."""
        return self._PROPERTIES.match(self.text, self.skip()) is not None

    def accept(self, literal: str) -> bool:
        """Step over ``literal`` if it comes next."""
        if not self.peek(literal):
            return False
        self.position += len(literal)
        return True

    def expect(self, literal: str) -> None:
        """Step over ``literal``; ``MlirError`` if something else comes next."""
        if not self.accept(literal):
            raise self.error(f"expected '{literal}', found {self.shown()}")

    def match(self, pattern: re.Pattern[str]) -> str | None:
        """Step over the text that ``pattern`` matches here, and return it."""
        result = pattern.match(self.text, self.skip())
        if result is None or not result.group():
            return None
        self.position = result.end()
        return result.group()

    def take(self, pattern: re.Pattern[str], expected: str) -> str:
        """The text that ``pattern`` matches here; ``MlirError`` if it does not."""
        match = self.match(pattern)
        if match is None:
            raise self.error(f"expected {expected}, found {self.shown()}")
        return match

    def integer(self, expected: str, pattern: re.Pattern[str] = DIGITS) -> int:
        """The number here; ``MlirError`` if there is none, or it has more than 64 bits."""
        start = self.skip()
        return self.bounded(self.take(pattern, expected), start)

    def bounded(self, digits: str, start: int) -> int:
        """The number of a text that begins at ``start``; ``MlirError`` beyond 64 bits."""
        number = int(digits) if len(digits) < 20 else _BEYOND
        if abs(number) >= _BEYOND:
            raise self.error(f"{digits[:30]}{'…' * (len(digits) > 30)} does not fit 64 bits", start)
        return number

    def listed(self, opening: str, closing: str, read: Callable[[], T]) -> list[T]:
        """Read items between two brackets, with commas between them.

        ``read`` takes one item.
        """
        self.expect(opening)
        results: list[T] = []
        while not self.accept(closing):
            if results:
                self.expect(",")
            results.append(read())
        return results

    def shown(self) -> str:
        """The next item, for a message."""
        match = re.compile(r"[\w.%#@^!-]+|\S|$").match(self.text, self.skip())
        return (
            f"'{match.group()}'" if match is not None and match.group() else "the end of the text"
        )

    def error(self, message: str, position: int | None = None) -> MlirError:
        return MlirError(message, self.text, self.skip() if position is None else position)
