"""Attributes as texts by their names, and the numbers in them."""

from __future__ import annotations

import re
from collections.abc import Mapping

from gehost_mlir.scanner import Scanner
from gehost_mlir.source import ALIAS, OPERATION, STRING, balanced, spaced

DYNAMIC = -(1 << 63)
"""Stands for a computed size or offset in ``array<i64: …>``."""
_INTEGER = re.compile(r"-?[0-9]+")


def dictionary(scanner: Scanner, aliases: Mapping[str, str]) -> dict[str, str]:
    """``{a = 1, b}`` or ``<{a = 1, b}>``, aliases written out; an attribute without value is ""."""
    are_properties = scanner.accept("<")
    scanner.expect("{")
    results: dict[str, str] = {}
    while not scanner.accept("}"):
        if results:
            scanner.expect(",")
        start = scanner.skip()
        quoted = scanner.match(STRING)
        name = scanner.take(OPERATION, "an attribute") if quoted is None else quoted[1:-1]
        if name in results:
            raise scanner.error(f"{name} is given twice", start)
        results[name] = value(scanner, aliases) if scanner.accept("=") else ""
    if are_properties:
        scanner.expect(">")
    return results


def value(scanner: Scanner, aliases: Mapping[str, str]) -> str:
    """The text of an attribute, to the next comma or closing bracket."""
    begin = scanner.skip()
    scanner.position = balanced(scanner.text, begin, ",")
    return written_out(spaced(scanner.text[begin : scanner.position].strip()), aliases)


def written_out(text: str, aliases: Mapping[str, str]) -> str:
    """A text with the attributes that its aliases stand for; one that names itself stays."""

    def of(match: re.Match[str]) -> str:
        alias = match.group()
        if alias not in aliases:
            return alias
        rest = {name: other for name, other in aliases.items() if name != alias}
        return written_out(aliases[alias], rest)

    return re.sub(rf"{STRING.pattern}|{ALIAS.pattern}", of, text) if "#" in text else text


def shown(attributes: Mapping[str, str]) -> str:
    """The attributes as a dictionary in braces, "" without any."""
    if not attributes:
        return ""
    item = [f"{name} = {text}" if text else name for name, text in attributes.items()]
    return f"{{{', '.join(item)}}}"


def integers(text: str) -> list[int]:
    """The numbers of ``array<i64: 1, 2>``, ``[1, 2]`` or ``2 : i64``."""
    body = text.partition(":")[2] if text.startswith("array<") else text.partition(" : ")[0]
    return [int(item) for item in _INTEGER.findall(body)]
