"""Nothing outside ``gehost.sizes`` takes the text of a size apart or puts one together."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
_NAMES = {"dim", "dim_param", "dims", "size", "symbol"}
"""What such texts are called."""
_METHODS = {
    "endswith", "partition", "removeprefix", "removesuffix", "replace", "rpartition", "rsplit",
    "split", "startswith",
}  # fmt: skip
_MODULES = {"ast", "re"}
OTHERS = {
    "plugins/hlo/gehost_hlo/reader.py": "the syntax of HLO",
    "plugins/linalg/gehost_linalg/groups/lowered.py": "linalg's own names of sizes",
}
"""Modules whose texts are no sizes of gehost's, and why."""


def _name(node: ast.expr) -> str:
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else ""


def handled_texts(tree: ast.AST) -> Iterator[int]:
    """Yield the lines that split, search or build the text of a size."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            owner = _name(node.func.value)
            is_split = node.func.attr in _METHODS and owner in _NAMES
            is_read = owner in _MODULES or node.func.attr in ("fullmatch", "match", "search")
            if is_split or (is_read and any(_name(arg) in _NAMES for arg in node.args)):
                yield node.lineno
        elif isinstance(node, ast.Compare) and isinstance(node.ops[0], ast.In | ast.NotIn):
            text = node.left.value if isinstance(node.left, ast.Constant) else None
            if isinstance(text, str) and _name(node.comparators[0]) in _NAMES - {"dims"}:
                yield node.lineno
        elif isinstance(node, ast.JoinedStr):
            parts = [part for part in node.values if isinstance(part, ast.FormattedValue)]
            signs = "".join(
                str(part.value) for part in node.values if isinstance(part, ast.Constant)
            )
            is_sum = signs.strip() in ("+", "-", "*", "//", "%", "×")
            if is_sum and any(_name(part.value) in _NAMES for part in parts):
                yield node.lineno


@pytest.mark.parametrize("root", ["gehost", "vendors", "plugins"])
def test_texts_of_sizes_stay_whole(root: str) -> None:
    results: list[str] = []
    for path in sorted((ROOT / root).rglob("*.py")):
        name = path.relative_to(ROOT).as_posix()
        if name.startswith("gehost/sizes/") or "/tests/" in name or name in OTHERS:
            continue
        lines = handled_texts(ast.parse(path.read_text(encoding="utf-8")))
        results += [f"{name}:{line}" for line in lines]
    assert not results, "ask gehost.sizes"


@pytest.mark.skipif(not (ROOT / "gehost").is_dir(), reason="no sources beside the tests")
def test_each_exception_is_needed() -> None:
    for name in OTHERS:
        tree = ast.parse((ROOT / name).read_text(encoding="utf-8"))
        assert list(handled_texts(tree)), name


@pytest.mark.parametrize(
    "code",
    [
        'dim.split("+")', 're.split("[*]", dim)', "ast.parse(text.dim_param)", '"?" in dim',
        'f"{size}*{other}"', "PATTERN.fullmatch(symbol)", 'value.dim_param.partition(" ")',
    ],
)  # fmt: skip
def test_the_test_sees(code: str) -> None:
    assert list(handled_texts(ast.parse(code))) == [1]
