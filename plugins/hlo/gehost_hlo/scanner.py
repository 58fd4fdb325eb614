"""Reads HLO text in place.

Uses anchored expressions from a position, without a list of tokens.

Every repetition is possessive or splits its input in one way only, so that each expression takes
linear time.
"""

from __future__ import annotations

import re

from gehost_hlo.errors import HloSyntaxError

_SPACE = r"[ \t\r\n\f\v]++|/\*(?:[^*]++|\*(?!/))*+\*/|//[^\n]*+"
BLANK = rf"(?:{_SPACE}|\#[^\n]*+)*+"
"""White space and comments."""
BLANK_OF_VALUE = rf"(?:{_SPACE})*+"
"""The same before a value, which may begin with ``#``."""
NAME = r"[A-Za-z_][A-Za-z0-9_.-]*+"
ARRAY_TYPE = r"[a-z][a-z0-9]*+"
ARRAY_SIZES = r"\[[0-9,<=? ]*+\]"
ARRAY = ARRAY_TYPE + ARRAY_SIZES + r"(?:\{(?=[0-9:}])[0-9, ]*+(?::[^{}]*+)?+\})?+"
"""Shape of an array without nested braces in its layout."""
STRING = r'"(?:[^"\\]++|\\.)*+"'

BLANKS = re.compile(BLANK)
NAMES = re.compile(NAME)
STRINGS = re.compile(STRING, re.DOTALL)
_FOUND = re.compile(r"[A-Za-z0-9_.%-]++|.", re.DOTALL)
_NEXT_BRACKET = re.compile(r"[^{}()\[\]\"/]*+")
_CLOSING = {"{": "}", "(": ")", "[": "]"}

DEPTH = 100
"""Brackets and shapes within each other, at most."""


class Scanner:
    """A text and a position in it."""

    __slots__ = ("position", "text")

    def __init__(self, text: str) -> None:
        self.text = text
        self.position = 0

    def error(self, problem: str, position: int | None = None) -> HloSyntaxError:
        return HloSyntaxError(self.text, self.position if position is None else position, problem)

    def expected(self, what: str) -> HloSyntaxError:
        """Return an error at the position, with the word that stands there."""
        match = _FOUND.match(self.text, self.position)
        token = (
            "the end of the text"
            if match is None
            else f'"{match[0][:40]}"'
            if match[0].isprintable()
            else repr(match[0])
        )
        return self.error(f"expected {what}, found {token}")

    def skip(self) -> None:
        """Go beyond white space and comments."""
        match = BLANKS.match(self.text, self.position)
        if match is not None:
            self.position = match.end()

    def peek(self, word: str) -> bool:
        """Whether ``word`` comes next, beyond white space and comments."""
        self.skip()
        return self.text.startswith(word, self.position)

    def take(self, word: str) -> bool:
        """Go beyond ``word`` if it comes next."""
        if self.peek(word):
            self.position += len(word)
            return True
        return False

    def take_word(self, word: str) -> bool:
        """Go beyond a whole word that another name follows."""
        self.skip()
        match = NAMES.match(self.text, self.position)
        if match is None or match[0] != word:
            return False
        after = BLANKS.match(self.text, match.end())
        if after is None or not re.match(r"[%A-Za-z_]", self.text[after.end() : after.end() + 1]):
            return False
        self.position = after.end()
        return True

    def expect(self, word: str, what: str = "") -> None:
        if not self.take(word):
            raise self.expected(what or f'"{word}"')

    def pattern(self, pattern: re.Pattern[str], what: str) -> str:
        """Return the match of ``pattern`` at the position, and go beyond it."""
        match = pattern.match(self.text, self.position)
        if match is None:
            raise self.expected(what)
        self.position = match.end()
        return match[0]

    def name(self, what: str) -> tuple[str, bool]:
        """Read a name; returns it without ``%``, and whether that is there."""
        percent = self.take("%")
        return self.pattern(NAMES, what), percent

    def balanced(self) -> str:
        """Read from a bracket to the one that closes it.

        Strings and comments count as one character each.

        Raises:
            HloSyntaxError: a bracket is missing or of the wrong kind, or brackets are nested too
                deep.
        """
        text, start = self.text, self.position
        open_at: list[int] = []
        position = start
        while True:
            match = _NEXT_BRACKET.match(text, position)
            position = position if match is None else match.end()
            character = text[position : position + 1]
            if character == '"':
                string = STRINGS.match(text, position)
                if string is None:
                    raise self.error("this string has no end", position)
                position = string.end()
            elif character == "/":
                comment = BLANKS.match(text, position)
                position = (
                    position + 1 if comment is None or comment.end() == position else comment.end()
                )
            elif character in _CLOSING:
                open_at.append(position)
                if len(open_at) > DEPTH:
                    raise self.error(f"brackets are nested more than {DEPTH} deep", position)
                position += 1
            elif character and open_at and character == _CLOSING[text[open_at[-1]]]:
                open_at.pop()
                position += 1
                if not open_at:
                    self.position = position
                    return text[start:position]
            elif not character:
                raise self.error(f'"{text[open_at[-1]]}" is not closed', open_at[-1])
            else:
                raise self.error(
                    f'expected "{_CLOSING[text[open_at[-1]]]}", found "{character}"', position
                )
