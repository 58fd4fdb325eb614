"""What stands around the operations of a text: locations, aliases and resources."""

from __future__ import annotations

import re

from gehost_mlir.scanner import MlirError

NAME = r"([0-9]+|[A-Za-z_$.-][A-Za-z0-9_$.-]*)"
SSA = re.compile(rf"%{NAME}(#[0-9]+)?(?![A-Za-z0-9_$.-])")
SYMBOL = re.compile(r'@(?:[A-Za-z_][A-Za-z0-9_$.]*|"(?:[^"\\\n]|\\.)*")')
OPERATION = re.compile(r"[A-Za-z_][A-Za-z0-9_.$]*")
STRING = re.compile(r'"(?:[^"\\\n]|\\.)*"')
ALIAS = re.compile(r"#[A-Za-z_][A-Za-z0-9_$.-]*")
TYPE_ALIAS = re.compile(r"![A-Za-z_][A-Za-z0-9_$.-]*")

_SKIPPED = r'"(?:[^"\\\n]|\\.)*"|//[^\n]*'
_COMMENT = re.compile(r'"(?:[^"\\\n]|\\.)*"|(//[^\n]*)')
_LOCATION = re.compile(rf"{_SKIPPED}|(?P<loc>(?:#[\w$.-]+\s*=\s*)?(?<![\w$.%@#!-])loc\s*\()")
_IN_LOCATION = re.compile(rf"{_SKIPPED}|[()]")
_METADATA = re.compile(rf"{_SKIPPED}|(?P<begin>\{{-#)")
_DEFINITION = re.compile(rf"{_SKIPPED}|(?P<alias>[#!][A-Za-z_][\w$.-]*)\s*=(?!=)")
_ITEM = re.compile(rf"{STRING.pattern}|[\w$.@#!+-]+(?:::[\w$.@#!+-]+)*")
_CONTINUED = re.compile(r"\s*(?P<next>[<(\[]|->|:(?!:))")
_ODD = re.compile(r"[\t\r\n]|  |[(\[{<]\s|\s[)\]}>,<]|[^\s:\"]:[^\s:]|\s:\S|[^\s>]: ")
"""A text that may have other blanks than MLIR's."""
_SPACED = re.compile(rf"{_SKIPPED}|\s+|::|[<>=!]=|\w+|.", re.DOTALL)
_NO_BLANK_BEHIND = frozenset(["", " ", "(", "[", "{", "<"])
_NO_BLANK_BEFORE = frozenset(["<", ")", "]", "}", ">", ","])
_RESOURCE = re.compile(rf'{NAME}\s*:\s*"0x([0-9A-Fa-f]*)"')
_BRACKETS = {"(": ")", "[": "]", "{": "}", "<": ">"}
_TOKEN = re.compile(rf"{_SKIPPED}|->|::|[()\[\]{{}}<>,:\n]|=|[^\s()\[\]{{}}<>,:=\"/-]+|\s|.")


def without_comments(text: str) -> str:
    """The text with blanks for comments; positions stay."""
    if "//" not in text:
        return text
    return _COMMENT.sub(lambda match: _blank(match[1]) if match[1] else match.group(), text)


def without_locations(text: str) -> str:
    """The text with blanks for ``loc(…)`` and their aliases; positions stay.

    Raises:
        MlirError: a location does not end.
    """
    if "loc" not in text:
        return text
    parts: list[str] = []
    end = 0
    for match in _LOCATION.finditer(text):
        if match.group("loc") is None or match.start() < end:
            continue
        depth, after = 1, match.end()
        while depth:
            bracket = _IN_LOCATION.search(text, after)
            if bracket is None:
                raise MlirError("expected ')' at the end of the location", text, match.start())
            depth += (bracket.group() == "(") - (bracket.group() == ")")
            after = bracket.end()
        parts += [text[end : match.start()], _blank(text[match.start() : after])]
        end = after
    return "".join([*parts, text[end:]])


def _blank(text: str) -> str:
    return re.sub(r"[^\n]", " ", text)


def alias_definitions(text: str) -> list[tuple[str, int, int]]:
    """Names that stand before ``=`` in a text, where they begin, and where ``=`` ends."""
    return [
        (match["alias"], match.start("alias"), match.end())
        for match in _DEFINITION.finditer(text)
        if match["alias"]
    ]


def attribute_end(text: str, start: int) -> int:
    """The position after the attribute or type at ``start``, on as many lines as it has.

    Raises:
        MlirError: a bracket is not closed.
    """
    position = start
    while True:
        position = _after_blanks(text, position)
        if text[position : position + 1] in _BRACKETS:
            position = balanced(text, position)
        else:
            item = _ITEM.match(text, position)
            position = item.end() if item is not None else position + 1
        after = _CONTINUED.match(text, position)
        while after is not None and after["next"] in _BRACKETS:
            position = balanced(text, after.start("next"))
            after = _CONTINUED.match(text, position)
        if after is None:
            return position
        position = after.end()


def spaced(text: str) -> str:
    """An attribute or type as MLIR spaces it."""
    if not _ODD.search(text):
        return text
    parts = [""]
    for match in _SPACED.finditer(text):
        part = match.group()
        if part.isspace():
            if parts[-1] not in _NO_BLANK_BEHIND:
                parts.append(" ")
            continue
        is_colon = part == ":" and not parts[-1].endswith('"')
        if parts[-1] == " " and (is_colon or part in _NO_BLANK_BEFORE):
            parts.pop()
        if is_colon:  # array<i64: 1>, but 1 : i64
            parts += [":", " "] if parts[-3:-1] == ["array", "<"] else [" ", ":", " "]
        else:
            parts.append(part)
    return "".join(parts).rstrip()


def _after_blanks(text: str, position: int) -> int:
    while text[position : position + 1].isspace():
        position += 1
    return position


def resources_of(text: str) -> tuple[str, dict[str, bytes]]:
    """The text without its ``{-# … #-}``, and the bytes of the dense resources there."""
    result = next((match for match in _METADATA.finditer(text) if match.group("begin")), None)
    if result is None:
        return text, {}
    end = text.find("#-}", result.end())
    if end < 0:
        raise MlirError("expected '#-}'", text, result.start())
    section = text[result.end() : end]
    blobs = {match[1]: bytes.fromhex(match[2]) for match in _RESOURCE.finditer(section)}
    blank = _blank(text[result.start() : end + 3])
    return text[: result.start()] + blank + text[end + 3 :], blobs


def balanced(text: str, start: int, until: str = "") -> int:
    """The position after the brackets that open at ``start``.

    With ``until``, of the first of these letters outside of brackets, or the end of the text.

    Raises:
        MlirError: a bracket is not closed.
    """
    stack: list[str] = []
    position = start
    while position < len(text):
        match = _TOKEN.match(text, position)
        assert match is not None
        part = match.group()
        if not stack and part in until and until:
            return position
        if part in _BRACKETS:
            stack.append(_BRACKETS[part])
        elif stack and part == stack[-1]:
            stack.pop()
            if not stack and not until:
                return match.end()
        elif part in {")", "]", "}"}:
            if until and not stack:
                return position
            raise MlirError(f"expected '{stack[-1] if stack else 'a bracket'}'", text, position)
        position = match.end()
    if stack or not until:
        raise MlirError(f"expected '{stack[-1] if stack else 'a bracket'}'", text, position)
    return position
