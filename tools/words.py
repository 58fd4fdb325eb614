"""Count clauses in "what …", told/said and the like, in docstrings, comments and messages.

Run with ``python -m tools.words [--list] [PATH…]``; not a test, and no rule: it shows where prose is indirect.
"""

from __future__ import annotations

import argparse
import ast
import io
import re
import tokenize
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
WORDS = re.compile(
    r"""
    \b(?:what|whatever|whoever)\ (?!(?:to|is\ it|for)\b)[a-z`]+   # "what it makes", "what a pass did"
    | \b(?:told|tells?|telling|said|says?|saying)\b
    | \b(?:made\ out|anew|alike|by\ hand|nobody|somebody)\b
    """,
    re.IGNORECASE | re.VERBOSE,
)


def texts(path: Path) -> Iterator[tuple[int, str]]:
    """Line and text of each docstring, other text with a space in it, and comment."""
    source = path.read_text(encoding="utf-8")
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and " " in node.value:
            yield node.lineno, node.value
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            yield token.start[0], token.string


def clauses(path: Path) -> Iterator[tuple[int, str]]:
    """Line and words of each clause in a file."""
    for line, text in texts(path):
        for found in WORDS.finditer(text):
            yield line + text[: found.start()].count("\n"), found.group()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--list", action="store_true", help="List each clause.")
    parser.add_argument("paths", nargs="*", default=["gehost"])
    given = parser.parse_args()
    counts: Counter[str] = Counter()
    for root in map(Path, given.paths):
        for path in sorted(root.rglob("*.py")) if root.is_dir() else [root]:
            for line, words in clauses(path):
                counts["/".join(path.parts[:2])] += 1
                if given.list:
                    print(f"{path}:{line}: {words}")
    for area, count in sorted(counts.items()):
        print(f"{count:5} {area}")
    print(f"{counts.total():5} clauses")


if __name__ == "__main__":
    main()
