"""Operations that are only carried through: as text, in generic form, with regions."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TypeVar

from gehost_linalg.generic import Template, Value
from gehost_linalg.mlir.types import TypeReader
from gehost_linalg.operations import OPERATIONS
from gehost_mlir.attributes import written_out
from gehost_mlir.source import NAME, STRING, attribute_end, balanced

T = TypeVar("T")

_WORD = re.compile(rf"{STRING.pattern}|//[^\n]*|%{NAME}(?:#[0-9]+)?")
_LAST = re.compile(rf"{STRING.pattern}|//[^\n]*|->|[()\[\]{{}}<>]|(?<![\w:]):(?!:)|\b(?:in)?to\b")
_RESULT = rf"%{NAME}(?:\s*:\s*[0-9]+)?\s*"
_BEGIN = re.compile(
    rf"\s*(?:{_RESULT}(?:,\s*{_RESULT})*=|[\"^}})#!]|[A-Za-z_][\w$]*\.\w"
    r"|(?:return|call|call_indirect|module)\b|$)"
)
"""What follows a whole statement."""


_WHOLE = {
    "arith": {*OPERATIONS, "arith.constant"},
    "math": OPERATIONS,
    "tensor": {
        f"tensor.{name}"
        for name in (
            "bitcast", "cast", "collapse_shape", "concat", "dim", "empty", "expand_shape",
            "extract", "extract_slice", "from_elements", "gather", "generate", "insert",
            "insert_slice", "pad", "parallel_insert_slice", "rank", "reshape", "scatter", "splat",
            "yield", "pack", "unpack",
        )
    },
}  # fmt: skip
"""Dialects whose operations are known: another name is a slip."""


def check_known(reader: TypeReader, name: str, at: int) -> None:
    """Refuse an operation that its dialect has not.

    Raises:
        MlirError: it has not.
    """
    if name not in _WHOLE.get(name.partition(".")[0], {name}):
        raise reader.error(f"operation {name} is not known", at)


def end_of_statement(reader: TypeReader, *, is_generic: bool = False) -> int:
    """The end of what stands behind an operation's name.

    Of a generic form, its types; else the end of the line or of the brackets that it opens, before
    what begins a statement.
    """
    text, start = reader.text, reader.position
    if is_generic:
        while any(map(reader.peek, "([{<")):
            reader.position = balanced(text, reader.position)
        reader.expect(":")
        end = attribute_end(text, reader.position)
        reader.position = start
        return end
    end = balanced(text, start, "\n")
    while not _BEGIN.match(text, end):
        end = balanced(text, end + 1, "\n")
    return end


def template_of(
    reader: TypeReader, begin: int, end: int, resolve: Callable[[str], T | None]
) -> tuple[Template, list[T]]:
    """A text with numbers in place of the values that ``resolve`` knows, and these values."""
    text = written_out(reader.text[begin:end].rstrip(), reader.aliases)
    parts: list[str | int] = []
    values: list[T] = []
    own: dict[str, None] = {}
    last = 0
    for match in _WORD.finditer(text):
        name = match.group()
        if not name.startswith("%"):
            continue
        value = resolve(name)
        if value is None:
            own[name.partition("#")[0]] = None
            continue
        parts += [text[last : match.start()], len(values)]
        values.append(value)
        last = match.end()
    return Template((*parts, text[last:]), tuple(own)), values


def template_text(template: Template, operands: list[str], fresh: Callable[[str], str]) -> str:
    """The text with names of operands; its own values get other names."""
    names = {name: fresh(name[1:]) for name in template.own}

    def renamed(match: re.Match[str]) -> str:
        base, sign, number = match.group().partition("#")
        return names.get(base, base) + sign + number

    return "".join(
        [
            operands[part] if isinstance(part, int) else _WORD.sub(renamed, part)
            for part in template.parts
        ]
    )


def result_types(reader: TypeReader, begin: int, end: int, names: list[str]) -> list[Value]:
    """The types at the end of a statement: ``-> T``, else ``to T``, else ``: T``.

    A type that stands behind ``:`` alone may be that of an operand: a use decides.

    Raises:
        MlirError: there are not as many as results.
    """
    place, depth, sign = -1, 0, ""
    for match in _LAST.finditer(reader.text, begin, end):
        token = match.group()
        if token in {"(", "[", "{", "<"}:
            depth += 1
        elif token in {")", "]", "}", ">"}:
            depth -= 1
        elif depth == 0 and token[0] not in {'"', "/"}:
            place, sign = match.end(), token
    if not names:
        return []
    results: list[Value] = []
    if place >= 0 and reader.text[place:end].strip():
        reader.position = place
        if sign == "->" and reader.peek("("):
            results = reader.result_types(names)
        else:
            results = [reader.type(names[0][1:])]
            while len(results) < len(names) and reader.accept(","):
                results.append(reader.type(names[len(results)][1:]))
        if reader.peek("{") or reader.peek("attributes"):
            reader.position = end
    if len(results) != len(names) or reader.skip() < end:
        raise reader.error(
            'the types of its results do not stand at its end; write it in generic form, "NAME"(…)',
            begin,
        )
    if sign == ":":
        reader.guessed.update(results)
    return results
