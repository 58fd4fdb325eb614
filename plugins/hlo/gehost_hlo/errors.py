"""Errors of this plugin.

ModelError                           3   of gehost
├── HloSyntaxError                       the text breaks the grammar, or contradicts itself
└── UntranslatableError                  instructions without a translation, all of them
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from gehost import ModelError, Refusal

_LINE = 160
"""Characters of a line that an error quotes."""


class HloSyntaxError(ModelError):
    """Text that is not HLO, with the place and the line.

    Attributes:
        line: of the fault, from 1.
        column: of the fault, from 1.
        problem: the expected text and the one found.
        excerpt: the line (at most 160 characters of it) and a caret below.
    """

    def __init__(self, text: str, position: int, problem: str, path: str = "") -> None:
        self.line = text.count("\n", 0, position) + 1
        start = text.rfind("\n", 0, position) + 1
        self.column = position - start + 1
        self.problem = problem
        end = text.find("\n", position)
        line = text[start : len(text) if end < 0 else end].expandtabs(1)
        first = max(0, self.column - 1 - _LINE // 2)
        quoted = line[first : first + _LINE].replace("\r", " ")
        self.excerpt = f"{quoted}\n{' ' * (self.column - 1 - first)}^"
        self.path = path
        super().__init__(
            f"{path or 'HLO text'}:{self.line}:{self.column}: {problem}\n{self.excerpt}"
        )

    @property
    def summary(self) -> str:
        """The error without the quoted line."""
        return f"{self.path or 'HLO text'}:{self.line}:{self.column}: {self.problem}"

    def in_file(self, path: str) -> HloSyntaxError:
        """Return the same error with the path of the file."""
        self.path = path
        self.args = (f"{self.summary}\n{self.excerpt}",)
        return self


class UntranslatableError(ModelError):
    """Instructions that have no translation to ONNX.

    Attributes:
        problems: (computation, instruction, refusal) of each; the keys are ``invalid``, ``missing``
            and ``unsupported``.
    """

    def __init__(
        self,
        problems: Sequence[tuple[str, str, Refusal]],
        path: str = "",
        text: str = "",
        places: Mapping[tuple[str, str], int] | None = None,
    ) -> None:
        """Say all problems at once.

        Args:
            problems: (computation, instruction, refusal) of each.
            path: of the text.
            text: where the message has lines and columns of the instructions from.
            places: of the instructions in a text that is not HLO.
        """
        self.problems = tuple(problems)
        by_reason: dict[str, list[str]] = {}
        for computation, instruction, refusal in self.problems:
            place = (places or {}).get((computation, instruction))
            if place is None:
                place = _place_of(text, computation, instruction)
            where = "" if place is None else f" ({_line_and_column(text, place)})"
            by_reason.setdefault(refusal.message, []).append(
                f"{instruction} of {computation}{where}"
            )
        reasons = "; ".join(f"{', '.join(names)}: {reason}" for reason, names in by_reason.items())
        count = len(self.problems)
        super().__init__(
            f"{f'{path}: ' if path else ''}{count} instruction{'s have' if count > 1 else ' has'} "
            f"no translation to ONNX: {reasons}"
        )


def _line_and_column(text: str, place: int) -> str:
    line, start = text.count("\n", 0, place) + 1, text.rfind("\n", 0, place) + 1
    return f"line {line}, column {place - start + 1}"


def _place_of(text: str, computation: str, instruction: str) -> int | None:
    """Return where an instruction of an HLO text is defined."""
    header = rf"^[ \t]*(?:ENTRY[ \t]+)?%?{re.escape(computation)}[ \t]*[({{]"
    start = re.search(header, text, re.MULTILINE)
    if start is None:
        return None
    definition = re.compile(rf"(?<![\w.-]){re.escape(instruction)}[ \t]+=")
    match = definition.search(text, start.end())
    return None if match is None else match.start()
