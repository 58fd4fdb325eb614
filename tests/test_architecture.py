"""Imports go down the layers of docs/architecture.md, also those inside functions; no cycle; no style in the core."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from graphlib import TopologicalSorter
from pathlib import Path

import networkx as nx
import pytest

import gehost
import gehost_drr

ROOT = Path(gehost.__file__).parent
PLUGINS = Path(gehost_drr.__file__).parents[1]

LAYERS = [
    ["location", "native", "spelling"],
    ["errors"],
    ["shipped"],
    ["stages", "status", "options", "settings"],
    ["ir"],
    ["ops", "expressions"],
    ["infer"],
    ["es"],
    ["pattern"],
    ["rewrite"],
    ["verify"],
    ["passes"],
    ["host"],
    ["diagnose", "tune"],
    ["scaffold"],
    ["testing"],
    ["cli"],
    ["__main__"],
]
"""Lowest first. What stands in one layer may not import each other, but within itself a package may do as it likes."""

LEVEL = {name: level for level, names in enumerate(LAYERS) for name in names}
FILES = sorted(ROOT.rglob("*.py"))


def module_of(file: Path) -> str:
    """The dotted name: ``gehost.ir.graph``, and ``gehost.ir`` for the package itself."""
    parts = file.relative_to(ROOT.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {module_of(file): file for file in FILES}


def imports(tree: ast.AST, module: str, *, is_package: bool, typing: bool = True) -> Iterator[str]:
    """Every module of gehost that is imported anywhere in a tree; ``typing`` with those for the type checker alone."""
    for node in ast.iter_child_nodes(tree):
        if (
            not typing
            and isinstance(node, ast.If)
            and ast.unparse(node.test).endswith("TYPE_CHECKING")
        ):
            continue
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name.split(".")[0] == "gehost")
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                parents = module.split(".")[: len(module.split(".")) - node.level + is_package]
                base = ".".join([*parents, *filter(None, [base])])
            if base.split(".")[0] == "gehost":
                for alias in node.names:
                    full = f"{base}.{alias.name}"
                    yield full if full in MODULES else base
        yield from imports(node, module, is_package=is_package, typing=typing)


def imported_by(module: str, *, typing: bool = True) -> set[str]:
    file = MODULES[module]
    tree = ast.parse(file.read_text(encoding="utf-8"))
    return set(imports(tree, module, is_package=file.name == "__init__.py", typing=typing))


def part(module: str) -> str:
    """The package, or module of the top level, that a module is in."""
    return module.split(".")[1] if "." in module else ""


def test_every_part_has_its_layer():
    assert {part(module) for module in MODULES} - {""} <= LEVEL.keys()


@pytest.mark.parametrize("module", [module for module in MODULES if module != "gehost"])
def test_imports_go_down(module):
    own = LEVEL[part(module)]
    for found in sorted(imported_by(module)):
        if found == "gehost":
            assert part(module) in ("cli", "__main__"), (
                f"{module} imports the package that gathers everything"
            )
        elif part(found) != part(module):
            assert LEVEL[part(found)] < own, f"{module} imports {found}, which is not below it"


def test_no_module_needs_itself():
    graph = {
        module: imported_by(module, typing=False) & MODULES.keys() - {module}
        for module in MODULES
        if module != "gehost"
    }
    list(TopologicalSorter(graph).static_order())


def test_only_the_parts_of_a_graph_name_each_other_as_types():
    imports = nx.DiGraph(
        [(module, other) for module in MODULES for other in imported_by(module) & MODULES.keys()]
    )
    imports.remove_node("gehost")
    cycles = [each for each in nx.strongly_connected_components(imports) if len(each) > 1]
    assert len(cycles) == 1
    assert {module.rpartition(".")[0] for module in cycles[0]} <= {"gehost.ir", "gehost.ir.files"}


@pytest.mark.parametrize("module", [module for module in MODULES if module != "gehost.options"])
def test_only_options_reads_the_environment(module):
    for node in ast.walk(ast.parse(MODULES[module].read_text(encoding="utf-8"))):
        if isinstance(node, ast.Attribute):
            assert node.attr not in ("environ", "getenv"), (
                f"{module}:{node.lineno} reads the environment"
            )


STYLES = ("gehost_drr", "gehost_register_pass", "drr", "paddle", "register_pass", "registerpass")


def names_in(tree: ast.AST) -> Iterator[str]:
    """Every name, and every word of a text, that the code of a tree holds; docstrings are not code."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            continue
        for _, held in ast.iter_fields(node):
            for text in held if isinstance(held, list) else [held]:
                if isinstance(text, str):
                    yield from re.findall(r"[a-z0-9_]+", text.lower())
        yield from names_in(node)


@pytest.mark.parametrize("module", MODULES)
def test_no_module_knows_in_which_style_a_rule_was_said(module):
    named = set(names_in(ast.parse(MODULES[module].read_text(encoding="utf-8"))))
    assert not named & set(STYLES)


SAYINGS = [
    *PLUGINS.glob("gehost_*/*.py"),
    Path(__file__).parent / "plugins" / "text_style.py",
]


@pytest.mark.parametrize("file", SAYINGS, ids=lambda file: f"{file.parent.name}/{file.stem}")
def test_a_style_takes_only_what_gehost_exports(file):
    own = file.parent.name
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        found = [node.module or ""] if isinstance(node, ast.ImportFrom) and not node.level else []
        found += [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        for name in found:
            assert not name.startswith("gehost") or name == "gehost" or name.split(".")[0] == own


def test_the_finder_finds():
    tree = ast.parse(
        "import gehost.ir.graph\n"
        "from gehost.es import functions, op\n"
        "from gehost.errors import ModelError\n"
        "from . import region\n"
        "from .edits import Names\n"
        "if TYPE_CHECKING:\n    from gehost.host.host import Host\n"
        "def f():\n    from gehost import cli\n"
    )
    always = {
        "gehost.ir.graph", "gehost.es.functions", "gehost.es", "gehost.errors", "gehost.ir.region", "gehost.ir.edits", "gehost.cli"
    }  # fmt: skip
    assert set(imports(tree, "gehost.ir.made_up", is_package=False, typing=False)) == always
    assert set(imports(tree, "gehost.ir.made_up", is_package=False)) == {
        *always,
        "gehost.host.host",
    }
    assert set(imports(ast.parse("from .graph import Graph"), "gehost.ir", is_package=True)) == {
        "gehost.ir.graph"
    }
    named = ast.parse(
        '"""one"""\nfrom two import three\nx.four = f(five=f"six {seven}")\nif k == "eight-Nine": pass'
    )
    assert set(names_in(named)) == {
        "two",
        "three",
        "x",
        "four",
        "f",
        "five",
        "six",
        "seven",
        "k",
        "eight",
        "nine",
    }


RUNTIME = ("verify", "tune")
NAMED = {"cli/verify.py", "infer/doubtful_sizes.py", "diagnose/report/file.py"}
"""Options of the command line, and lists of versions."""


def runtime_names(tree: ast.AST) -> Iterator[str]:
    """Imports of a runtime and texts that are its name or its operators' domain; docstrings and messages are neither."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield node.module or ""
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            named = node.value == "onnxruntime" or "com.microsoft" in node.value
            yield from [node.value] if named else []


@pytest.mark.parametrize("module", [m for m in MODULES if part(m) not in RUNTIME])
def test_the_core_knows_no_runtime(module):
    file = MODULES[module]
    found = [
        name
        for name in runtime_names(ast.parse(file.read_text(encoding="utf-8")))
        if name.split(".")[0] == "onnxruntime" or "com.microsoft" in name
    ]
    assert not found or file.relative_to(ROOT).as_posix() in NAMED


def test_the_finder_of_runtimes_finds():
    text = "def f():\n    import onnxruntime.tools\n    return 'com.microsoft::Gelu', 'onnxruntime', 'onnxruntime>=1'"
    assert list(runtime_names(ast.parse(text))) == [
        "onnxruntime.tools",
        "com.microsoft::Gelu",
        "onnxruntime",
    ]
