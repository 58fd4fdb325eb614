"""Count indirect clauses of prose, and participles that are names, in code and tests.

Clauses are "what …", told/said and the like, in docstrings, comments and messages. A participle
(``found``) tells what happened to a thing and is no name for it.
Run with ``python -m tools.words [--list] [PATH…]``; clauses are no rule; tests/test_words.py holds names.
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


PARTICIPLES = frozenset(
    (
        *("found", "given", "made", "known", "each", "wanted", "kept", "stated", "taken", "left"),
        *("asked", "seen", "held", "told", "written", "listed", "done", "got", "meant", "drawn"),
    )
)
"""No names of things; a compound such as ``known_type`` is one."""


def bound_names(tree: ast.AST) -> Iterator[str]:
    """Each name that code gives: variables, parameters, attributes, functions and classes.

    The ``left`` beside a ``right`` of the same function is ``left side``.
    """
    names = {node: name for node in ast.walk(tree) if (name := _bound_name(node))}
    sides: set[ast.AST] = set()
    for function in names if {"left", "right"} <= {*names.values()} else ():
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
            nodes = [node for node in ast.walk(function) if node in names]
            if any(names[node] == "right" for node in nodes):
                sides.update(node for node in nodes if names[node] == "left")
    for node, name in names.items():
        yield "left side" if node in sides else name


def _bound_name(node: ast.AST) -> str:
    match node:
        case ast.Name(name, ast.Store()) | ast.Attribute(_, name, ast.Store()) | ast.arg(name):
            return name
        case ast.FunctionDef(name) | ast.AsyncFunctionDef(name) | ast.ClassDef(name):
            return name
        case _:
            return ""


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
        for match in WORDS.finditer(text):
            yield line + text[: match.start()].count("\n"), match.group()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--list", action="store_true", help="List each clause.")
    parser.add_argument(
        "paths", nargs="*", default=["gehost", "plugins", "vendors", "tests", "tools"]
    )
    options = parser.parse_args()
    counts: Counter[str] = Counter()
    names: Counter[str] = Counter()
    for root in map(Path, options.paths):
        for path in sorted(root.rglob("*.py")) if root.is_dir() else [root]:
            names.update(bound_names(ast.parse(path.read_text(encoding="utf-8"))))
            for line, words in clauses(path):
                counts["/".join(path.parts[:2])] += 1
                if options.list:
                    print(f"{path}:{line}: {words}")
    for area, count in sorted(counts.items()):
        print(f"{count:5} {area}")
    print(f"{counts.total():5} clauses")
    participles = {name: count for name, count in names.most_common() if name in PARTICIPLES}
    total = sum(participles.values())
    print(f"{total:5} participles, {100 * total / names.total():.2f} % of {names.total()} names")
    print("     ", ", ".join(f"{name} {count}" for name, count in participles.items()))


if __name__ == "__main__":
    main()
