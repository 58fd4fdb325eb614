"""Names of models in texts of other languages.

A name in a model is any text. What writes a program, a graph or a page passes each of them through
one of these functions; ``gehost.errors.printable`` is that of terminals, Jinja escapes in HTML and
SVG.
"""

from __future__ import annotations

import json
import keyword
import re
from collections.abc import Mapping

from gehost.errors import one_line, printable


def python_string(text: str) -> str:
    """Return a text as a Python string in double quotes, without invisible characters."""
    single = repr(f'{text}"')  # a text with " alone is written in ', where \' stands for '
    inside = single[1:-2].replace("\\'", "'").replace('"', '\\"')
    return f'"{inside}"'


def in_docstring(text: str) -> str:
    """Return a text that reads as itself on a line of a docstring."""
    return one_line(text).replace("\\", "\\\\").replace('"', '\\"')


def is_plain(name: str) -> bool:
    """Whether a name can be written as it is: of ASCII letters, digits and _, no keyword."""
    plain = re.fullmatch("[A-Za-z][A-Za-z0-9_]*", name)
    return plain is not None and not keyword.iskeyword(name)


def keywords(values: Mapping[str, str]) -> list[str]:
    """Return arguments ``name=value``, and those of other names as ``**{"na me": value}``."""
    others = {name: text for name, text in values.items() if not is_plain(name)}
    plain = [f"{name}={text}" for name, text in values.items() if is_plain(name)]
    return [*plain, f"**{{{entries(others)}}}"] if others else plain


def entries(values: Mapping[str, str]) -> str:
    """Return the inside of a dict, from names to Python text."""
    return ", ".join(f"{python_string(name)}: {text}" for name, text in values.items())


def dot_string(*lines: str) -> str:
    """Return lines as a string of Graphviz's DOT."""
    return json.dumps("\n".join(map(printable, lines)), ensure_ascii=False)


def mlir_string(text: str) -> str:
    """Return a text as a string of MLIR, other characters than ASCII's as bytes."""
    return '"' + re.sub(r'[^ -~]|["\\]', _as_bytes, text) + '"'


def _as_bytes(match: re.Match[str]) -> str:
    return "".join(f"\\{byte:02X}" for byte in match[0].encode())


def text_of_mlir(string: str) -> str:
    """Return what a string of MLIR stands for."""
    parts = re.split(r"\\([0-9A-Fa-f]{2}|.)", string[1:-1])
    escapes = {"n": b"\n", "t": b"\t"}
    content = b"".join(
        part.encode()
        if place % 2 == 0
        else escapes.get(part) or (bytes.fromhex(part) if len(part) == 2 else part.encode())
        for place, part in enumerate(parts)
    )
    return content.decode(errors="replace")
