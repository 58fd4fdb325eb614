"""Wrap the prose of the Markdown pages at 100 columns: ``python -m tools.pages``.

Tables, headings, code and HTML stay; a link or a piece of code is not broken. Only a paragraph that
has a longer line changes. ``--check`` lists such lines instead.
"""

from __future__ import annotations

import argparse
import re
import sys
import textwrap
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path

ROOT = Path(__file__).parents[1]
WIDTH = 100
GENERATED = ("docs/reference/names.md", "CHANGELOG.md")
"""The list of names has a line a name; the changelog has fragments as they were written."""

_WHOLE = re.compile(r"`[^`]+`|!?\[[^\]]*\]\([^)]*\)")
_OTHER = re.compile(r"\s*(\||#|<|!\[|\[[^\]]+\]:|:::|---|```|~~~|$)")
_ITEM = re.compile(r"\s*(?:[-*+]|\d+\.)\s+|\s*>\s?|\s*")
_STARTS_A_BLOCK = re.compile(r"\s*(?:[-*+]|\d+\.)\s")


def pages() -> list[Path]:
    """The pages that people write."""
    folders = ("docs", "plugins", "tests", "tools", "vendors")
    items = [
        *ROOT.glob("*.md"),
        *(page for name in folders for page in (ROOT / name).rglob("*.md")),
    ]
    return sorted(page for page in items if str(page.relative_to(ROOT)) not in GENERATED)


def long_lines(text: str) -> list[int]:
    """The numbers of prose lines that could be shorter."""
    return [
        first + place
        for first, block in _prose(text.splitlines())
        if "\n".join(block) != "\n".join(_wrap(block))
        for place, line in enumerate(block)
        if len(line) > WIDTH
    ]


def wrapped(text: str) -> str:
    """The page with its long paragraphs wrapped."""
    lines = text.splitlines()
    for first, block in reversed(list(_prose(lines))):
        lines[first - 1 : first - 1 + len(block)] = _wrap(block)
    return "\n".join(lines) + "\n"


def _prose(lines: list[str]) -> Iterator[tuple[int, list[str]]]:
    """Each paragraph or item that has a long line, with the number of its first line."""
    fence, number, kinds = "", 0, list[tuple[int, int, str]]()
    for at, line in enumerate(lines, 1):
        mark = line.strip()[:3]
        if fence or mark in ("```", "~~~"):
            fence = ("" if mark == fence else fence) if fence else mark
            kinds.append((-1, at, line))
            continue
        if _OTHER.match(line):
            kinds.append((-1, at, line))
            continue
        before = kinds[-1][0] if kinds else -1
        if before == -1 or _STARTS_A_BLOCK.match(line):
            number += 1
        kinds.append((number, at, line))
    for block, group in groupby(kinds, key=lambda kind: kind[0]):
        items = [(at, line) for _, at, line in group]
        if block != -1 and any(len(line) > WIDTH for _, line in items):
            yield items[0][0], [line for _, line in items]


def _wrap(block: list[str]) -> list[str]:
    """The lines of a paragraph or item, none longer than ``WIDTH`` if its words allow."""
    if any(line.endswith(("  ", "\\")) for line in block[:-1]) or block[0].startswith("    "):
        return block  # lines that end where they do on purpose, and code
    match = _ITEM.match(block[0])
    start = match[0] if match is not None else ""
    indent = start if ">" in start else " " * len(start)
    text = " ".join([block[0][len(start) :], *(line.strip().lstrip("> ") for line in block[1:])])
    retained = _WHOLE.sub(lambda item: item[0].replace(" ", "\0"), text)
    retained = re.sub(r" (?=(?:[-*+#>=]|\d+\.) )", "\0", retained)  # would start another block
    lines = textwrap.wrap(
        retained,
        WIDTH,
        initial_indent=start,
        subsequent_indent=indent,
        break_long_words=False,
        break_on_hyphens=False,
    )
    return [line.replace("\0", " ") for line in lines]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="List long lines.")
    check = parser.parse_args().check
    result = False
    for page in pages():
        text = page.read_text(encoding="utf-8")
        for line in long_lines(text):
            result = True
            if check:
                print(f"{page.relative_to(ROOT)}:{line}")
        if not check and wrapped(text) != text:
            page.write_text(wrapped(text), encoding="utf-8")
    sys.exit(check and result)


if __name__ == "__main__":
    main()
