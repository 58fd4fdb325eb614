"""The tokens of a text, with their places: what the readers see of a text that they refuse."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from gehost_hlo.errors import HloSyntaxError
from gehost_hlo.scanner import BLANK, NAME, STRING

_NUMBER = r"-?(?:0x[0-9A-Fa-f]++|[0-9]++(?:\.[0-9]*+)?+(?:[eE][-+]?[0-9]++)?+)"
_PUNCTUATION = r"->|::|<=|[{}()\[\]<>,:=/*?+.#@!;^|&-]"
_HLO = re.compile(
    rf"(?P<blank>{BLANK})(?:(?P<string>{STRING})|(?P<name>%?{NAME})|(?P<number>{_NUMBER})"
    rf"|(?P<punctuation>{_PUNCTUATION}))",
    re.DOTALL,
)
_MLIR_BLANK = r"(?:[ \t\r\n]++|//[^\n]*+)*+"
_MLIR = re.compile(
    rf"(?P<blank>{_MLIR_BLANK})(?:(?P<string>{STRING})"
    rf"|(?P<name>[%@#!^]?[A-Za-z_$][\w$.-]*+|[%^][0-9]++(?:\#[0-9]++)?+)|(?P<number>{_NUMBER})"
    rf"|(?P<punctuation>{_PUNCTUATION}))",
    re.DOTALL,
)
_KINDS = ("string", "name", "number", "punctuation")


class Token(NamedTuple):
    """One token; line and column start at 1."""

    line: int
    column: int
    kind: str
    text: str


def tokens(text: str, *, is_mlir: bool = False) -> Iterator[Token]:
    """Yield the tokens of a text without comments.

    Raises:
        HloSyntaxError: a character begins no token.
    """
    pattern = _MLIR if is_mlir else _HLO
    blank = re.compile(_MLIR_BLANK if is_mlir else BLANK)
    line, begin, position = 1, 0, 0
    while (match := pattern.match(text, position)) is not None:
        kind = next(name for name in _KINDS if match[name] is not None)
        start = match.start(kind)
        line += text.count("\n", position, start)
        begin = max(begin, text.rfind("\n", 0, start) + 1)
        yield Token(line, start - begin + 1, kind, match[kind])
        line += match[kind].count("\n")
        position = match.end()
    rest = blank.match(text, position)
    end = position if rest is None else rest.end()
    if end < len(text):
        raise HloSyntaxError(text, end, f"no token begins with {text[end]!r}")
