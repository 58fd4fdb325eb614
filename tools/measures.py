"""Print the measures of the repository's form, one row each, for the core, the products and tests.

Run with ``python -m tools.measures [TREE]``; a tree is a checkout of any commit, by default this one.
"""

from __future__ import annotations

import argparse
import ast
import io
import tokenize
from collections.abc import Iterator
from pathlib import Path

from tools.words import PARTICIPLES, bound_names

ROOT = Path(__file__).parents[1]
LONG = 60
"""Lines from which a function counts as long."""


class Area:
    """The Python files of one part of the tree."""

    def __init__(self, files: list[Path]) -> None:
        self.files = files
        self.sources = [file.read_text(encoding="utf-8") for file in files]
        self.trees = [ast.parse(source) for source in self.sources]

    def lines(self) -> int:
        return sum(source.count("\n") for source in self.sources)

    def long_functions(self) -> int:
        return sum(
            (node.end_lineno or node.lineno) - node.lineno + 1 > LONG
            for node in self.nodes()
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        )

    def longest_file(self) -> int:
        return max((source.count("\n") for source in self.sources), default=0)

    def comments_per_100(self) -> str:
        comments = sum(
            token.type == tokenize.COMMENT
            for source in self.sources
            for token in tokenize.generate_tokens(io.StringIO(source).readline)
        )
        return f"{100 * comments / max(self.lines(), 1):.1f}"

    def participles(self) -> str:
        names = [name for tree in self.trees for name in bound_names(tree)]
        share = sum(name in PARTICIPLES for name in names) / max(len(names), 1)
        return f"{100 * share:.2f} %"

    def graphs(self) -> int:
        return sum(name.endswith("Graph") for name, _ in self.classes())

    def kinds_of_no(self) -> int:
        """Classes of refusals: exceptions that are no error, and ``Refusal``-like data."""
        words = ("Refus", "Reject", "NotApplicable", "NotEmitted", "NotLowered", "NoMatch")
        return sum(
            (name.lstrip("_").startswith(words) and not name.endswith("s"))
            or (bases == ["Exception"] and not name.endswith("Error"))
            for name, bases in self.classes()
        )

    def classes(self) -> Iterator[tuple[str, list[str]]]:
        for node in self.nodes():
            if isinstance(node, ast.ClassDef):
                yield node.name, [ast.unparse(base) for base in node.bases]

    def nodes(self) -> Iterator[ast.AST]:
        for tree in self.trees:
            yield from ast.walk(tree)


ROWS = {
    "lines": Area.lines,
    f"functions over {LONG} lines": Area.long_functions,
    "longest file": Area.longest_file,
    "comments per 100 lines": Area.comments_per_100,
    "participles among names": Area.participles,
    "classes of graphs": Area.graphs,
    "kinds of no": Area.kinds_of_no,
}


def areas(tree: Path) -> dict[str, Area]:
    """The core, the products without their tests, and all tests and tools of a tree."""
    tests = {"tests", "tools"}
    inside = {
        "core": sorted((tree / "gehost").rglob("*.py")),
        "products": sorted(
            file
            for file in (tree / "plugins").rglob("*.py")
            if not tests & set(file.relative_to(tree).parts)
        ),
        "tests": sorted(
            file
            for part in ("tests", "plugins")
            for file in (tree / part).rglob("*.py")
            if "tests" in file.relative_to(tree).parts
        ),
        "tools": sorted(
            file
            for part in ("tools", "plugins")
            for file in (tree / part).rglob("*.py")
            if "tools" in file.relative_to(tree).parts
        ),
        "vendors": sorted((tree / "vendors").rglob("*.py")),
    }
    return {name: Area(files) for name, files in inside.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("tree", nargs="?", type=Path, default=ROOT)
    measured = areas(parser.parse_args().tree)
    print(f"{'':26}" + "".join(f"{name:>10}" for name in measured))
    for title, measure in ROWS.items():
        print(f"{title:26}" + "".join(f"{measure(area)!s:>10}" for area in measured.values()))


if __name__ == "__main__":
    main()
