"""Imports go down the layers of docs/architecture.md; products see only what gehost exports.

An import is a statement, at the top or inside a function, or a text given to ``import_module``.
Each test lists all offenders.
"""

from __future__ import annotations

import ast
import re
import tomllib
from collections import deque
from collections.abc import Iterator
from functools import cache
from os.path import commonpath
from pathlib import Path

import networkx as nx
import pytest

import gehost

pytestmark = pytest.mark.sources

ROOT = Path(gehost.__file__).parent
REPOSITORY = Path(__file__).parents[1]

LAYERS = [
    ["activity", "location", "products", "spelling"],
    ["errors"],
    ["quoting", "refusal", "shipped"],
    ["stages", "status", "options", "settings", "sizes"],
    ["ir"],
    ["ops", "expressions", "kernels"],
    ["infer"],
    ["es", "opset"],
    ["pattern"],
    ["rewrite"],
    ["verify"],
    ["half", "passes"],
    ["page"],
    ["host"],
    ["diagnose", "tune"],
    ["optimizing", "scaffold"],
    ["testing"],
    ["cli"],
    ["__main__"],
]
"""Lowest first. Members of one layer do not import each other; a package is free inside."""

LEVEL = {name: level for level, names in enumerate(LAYERS) for name in names}
EXPORTED = {*gehost.__all__, "__version__"}
CALLS = ("importlib.import_module", "__import__")
READERS_OF_MLIR = {"gehost_linalg", "gehost_hlo"}
"""Products that share MLIR's syntax, which ships with gehost."""
STYLES = {"gehost_drr", "gehost_register_pass", "drr", "paddle", "register_pass", "registerpass"}
NAMES_OF_RUNTIMES = {
    # options of the command line, lists of versions, and the types of operators that files hold
    "gehost.cli.verify", "gehost.infer.doubtful_sizes", "gehost.diagnose.report.file",
    "gehost.infer.runtime_operators",
}  # fmt: skip
NAMES_OF_MODULES = {
    # a rule's file may name a function of any package
    "gehost_register_pass.serial",
}


def module_of(file: Path, parent: Path) -> str:
    """The dotted name: ``gehost.ir.graph``, and ``gehost.ir`` for the package itself."""
    parts = file.relative_to(parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


@cache
def parsed(file: Path) -> ast.Module:
    return ast.parse(file.read_text(encoding="utf-8"))


def trees(files: dict[str, Path]) -> dict[str, ast.Module]:
    return {name: parsed(file) for name, file in files.items()}


MODULES = {module_of(file, ROOT.parent): file for file in sorted(ROOT.rglob("*.py"))}
PRODUCTS = {
    module_of(file, package.parent): file
    for package in sorted((REPOSITORY / "plugins").rglob("gehost_*"))
    if package.is_dir()
    for file in sorted(package.rglob("*.py"))
}


def imports(
    tree: ast.AST, module: str, *, is_package: bool, typing: bool = True
) -> Iterator[tuple[str, str]]:
    """Every module that a tree imports, with a name of it or ""; "?" for one that no text names.

    ``typing``: with those for the type checker alone.
    """
    nodes = deque([tree])
    while nodes:
        node = nodes.popleft()
        is_for_types = isinstance(node, ast.If) and dotted(node.test).endswith("TYPE_CHECKING")
        if is_for_types and not typing:
            continue
        nodes += ast.iter_child_nodes(node)
        if isinstance(node, ast.Import):
            yield from ((alias.name, "") for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                parents = module.split(".")[: len(module.split(".")) - node.level + is_package]
                base = ".".join([*parents, *filter(None, [base])])
            yield from (
                ("?" if f"{base}.{alias.name}" in CALLS else base, alias.name)
                for alias in node.names
            )
        elif isinstance(node, ast.Call) and dotted(node.func) in CALLS:
            yield named_by(node.args[0] if node.args else node), ""


def dotted(node: ast.expr) -> str:
    """``importlib.import_module``; "" for what is no name."""
    match node:
        case ast.Name(name):
            return name
        case ast.Attribute(value, name):
            return f"{dotted(value)}.{name}"
        case _:
            return ""


def named_by(argument: ast.expr) -> str:
    """The module that a text names, or starts to name: ``gehost_drr.`` of ``f"gehost_drr.{x}"``."""
    if isinstance(argument, ast.JoinedStr):
        argument = argument.values[0]
    is_text = isinstance(argument, ast.Constant) and isinstance(argument.value, str)
    return argument.value if is_text else "?"


def imported_by(module: str, *, typing: bool = True) -> set[str]:
    """The modules of gehost that one of them imports."""
    return {
        name
        for name in imported_among(MODULES, module, typing=typing)
        if name.split(".")[0] in ("gehost", "?")
    }


def imported_among(files: dict[str, Path], module: str, *, typing: bool) -> set[str]:
    """The modules that one of ``files`` imports; a name of a package may be a module of it."""
    is_package = files[module].name == "__init__.py"
    return {
        f"{base}.{name}" if f"{base}.{name}" in files else base
        for base, name in imports(
            parsed(files[module]), module, is_package=is_package, typing=typing
        )
    }


def circles(files: dict[str, Path], *, typing: bool) -> list[list[str]]:
    """Sets of modules that import each other, ``gehost`` itself left out."""
    graph = nx.DiGraph(
        (module, other)
        for module in files.keys() - {"gehost"}
        for other in imported_among(files, module, typing=typing)
        if other in files and other not in ("gehost", module)
    )
    return sorted(sorted(item) for item in nx.strongly_connected_components(graph) if len(item) > 1)


def part(module: str) -> str:
    """The package, or module of the top level, that a module is in."""
    return module.split(".")[1] if "." in module else ""


def offences(module: str) -> Iterator[str]:
    """Imports that do not go down."""
    for other in sorted(imported_by(module)):
        if other == "gehost" and part(module) not in ("cli", "__main__"):
            yield f"{module} imports the package that gathers everything"
        elif other == "?":
            yield f"{module} imports what no text names"
        elif other != "gehost" and part(other) != part(module):
            below = LEVEL.get(part(other), len(LAYERS)) < LEVEL[part(module)]
            yield from () if below else (f"{module} imports {other}, which is not below it",)


def test_imports_go_down() -> None:
    assert {part(module) for module in MODULES} - {""} <= LEVEL.keys()
    assert [line for module in MODULES if module != "gehost" for line in offences(module)] == []


CIRCLES_OF_TYPES = {"gehost.ir"}
"""Packages with one circle each, through imports for types alone or inside functions."""


def test_imports_have_no_circle() -> None:
    """Of the core none is needed at run time; a graph's parts name each other in their types."""
    assert circles(MODULES, typing=False) == []
    actual = [
        commonpath([module.replace(".", "/") for module in circle]).replace("/", ".")
        for circle in circles({**MODULES, **PRODUCTS}, typing=True)
    ]
    assert len(actual) == len(set(actual))
    assert set(actual) <= CIRCLES_OF_TYPES


def words_in(tree: ast.AST) -> Iterator[str]:
    """Every name, and every word of a text, of a tree's code; docstrings are not code."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            continue
        for _, field in ast.iter_fields(node):
            for text in field if isinstance(field, list) else [field]:
                if isinstance(text, str):
                    yield from re.findall(r"[a-z0-9_]+", text.lower())
        yield from words_in(node)


def runtimes_in(tree: ast.AST) -> Iterator[str]:
    """Imports of a runtime and texts that are its name or its operators' domain."""
    for node in ast.walk(tree):
        names = [node.module or ""] if isinstance(node, ast.ImportFrom) else []
        names += [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        yield from (name for name in names if name.split(".")[0] == "onnxruntime")
        text = node.value if isinstance(node, ast.Constant) else None
        if isinstance(text, str) and (text == "onnxruntime" or "com.microsoft" in text):
            yield text


def foreign_words(module: str, tree: ast.AST) -> Iterator[str]:
    """What the core should not know: the environment, styles of rules, a runtime."""
    for node in ast.walk(tree) if module != "gehost.options" else ():
        if isinstance(node, ast.Attribute) and node.attr in ("environ", "getenv"):
            yield f"{module}:{node.lineno} reads the environment"
    yield from (f"{module} knows {word}" for word in sorted(STYLES & set(words_in(tree))))
    if part(module) not in ("verify", "tune") and module not in NAMES_OF_RUNTIMES:
        yield from (f"{module} knows {name}" for name in runtimes_in(tree))


def test_core_does_not_depend_on_environment_styles_or_runtimes() -> None:
    assert [
        line for module, tree in trees(MODULES).items() for line in foreign_words(module, tree)
    ] == []


def deep_imports(module: str, tree: ast.AST, *, is_package: bool) -> Iterator[str]:
    """Imports of a product, or a vendor's file, that are neither its own nor exported."""
    own = module.split(".")[0]
    for base, name in imports(tree, module, is_package=is_package):
        if base == "?" and module not in NAMES_OF_MODULES:
            yield f"{module} imports what no text names"
        elif base == "gehost" and name and name not in EXPORTED:
            yield f"{module} imports {name}, which gehost does not export"
        elif base.startswith("gehost_mlir") and own in READERS_OF_MLIR:
            continue
        elif base.startswith("gehost") and base.split(".")[0] not in ("gehost", own):
            if module in PRODUCTS or "." in base:
                yield f"{module} imports {base} of another product"
        elif base.startswith("gehost."):
            yield f"{module} imports {base}, which is inside gehost"
    for node in ast.walk(tree):
        is_gehosts = isinstance(node, ast.Attribute) and dotted(node.value) == "gehost"
        if is_gehosts and node.attr not in EXPORTED:
            yield f"{module} uses gehost.{node.attr}, which gehost does not export"


def inner_entry_points(project: Path) -> Iterator[str]:
    """Plugins that a distribution announces and that are not a whole product."""
    groups = tomllib.loads(project.read_text(encoding="utf-8"))["project"].get("entry-points", {})
    packages = {module.split(".")[0] for module in PRODUCTS}
    for group, plugins in groups.items():
        for name, target in plugins.items():
            if target.partition(":")[0] not in packages:
                yield f"{project.relative_to(REPOSITORY)}: {group}: {name} = {target}"


def test_products_import_only_what_gehost_exports() -> None:
    style = REPOSITORY / "tests/plugins/text_style.py"
    files = {**PRODUCTS, "text_style": style}
    vendors = REPOSITORY / "vendors"
    files |= {f"vendors.{module_of(file, vendors)}": file for file in vendors.rglob("*.py")}
    actual = [
        line
        for module, tree in trees(files).items()
        for line in deep_imports(module, tree, is_package=files[module].name == "__init__.py")
    ]
    projects = [REPOSITORY / "pyproject.toml", *(REPOSITORY / "plugins").glob("*/pyproject.toml")]
    assert actual + [line for project in projects for line in inner_entry_points(project)] == []
    assert len({module.split(".")[0] for module in PRODUCTS}) >= 8


def absent_parameters(tree: ast.AST) -> Iterator[str]:
    """What docstrings describe under ``Args:`` that no parameter has as its name."""
    for node in ast.walk(tree):
        if not isinstance(node, ast.FunctionDef):
            continue
        _, _, text = (ast.get_docstring(node) or "").partition("Args:\n")
        section = re.split(r"^\S", text, maxsplit=1, flags=re.MULTILINE)[0]
        names = {item.arg for item in ast.walk(node.args) if isinstance(item, ast.arg)}
        for name in re.findall(r"^ {4}\**(\w+)(?: \([^)]*\))?:", section, re.MULTILINE):
            if name not in names:
                yield f"{node.name}: {name}"


def test_docstrings_describe_parameters_that_exist() -> None:
    """``make docs`` refuses others."""
    assert [
        line for tree in trees(MODULES | PRODUCTS).values() for line in absent_parameters(tree)
    ] == []


def test_planted_offenders_are_seen() -> None:
    tree = ast.parse(
        "import gehost.ir.graph\n"
        "from gehost.errors import ModelError\n"
        "from .edits import Names\n"
        "if TYPE_CHECKING:\n    from gehost.host.host import Host\n"
        "def f():\n    from gehost import Model, cli\n    importlib.import_module('gehost.tune')\n"
        "    importlib.import_module(f'gehost.es.{x}')\n    __import__(name)\n"
    )
    always = {
        ("gehost.ir.graph", ""), ("gehost.errors", "ModelError"), ("gehost.ir.edits", "Names"),
        ("gehost", "Model"), ("gehost", "cli"), ("gehost.tune", ""), ("gehost.es.", ""), ("?", ""),
    }  # fmt: skip
    assert set(imports(tree, "gehost.ir.new", is_package=False, typing=False)) == always
    typed = {*always, ("gehost.host.host", "Host")}
    assert set(imports(tree, "gehost.ir.new", is_package=False)) == typed
    own = imports(ast.parse("from .graph import Graph"), "gehost.ir", is_package=True)
    assert set(own) == {("gehost.ir.graph", "Graph")}
    deep = [*deep_imports("gehost_linalg.new", tree, is_package=False)]
    assert [line.split(" imports ")[1].split(",")[0] for line in deep] == [
        "gehost.ir.graph", "gehost.errors", "gehost.host.host", "cli", "gehost.tune", "gehost.es.",
        "what no text names",
    ]  # fmt: skip
    code = ast.parse('"""one"""\nfrom two import three\nx.four = f(five=f"six {k}")\nk == "Se-Ven"')
    words = {"two", "three", "x", "four", "f", "five", "six", "k", "se", "ven"}
    assert set(words_in(code)) == words
    described = ast.parse(
        'def f(a, *b):\n    """Do.\n\n    Args:\n        a: one.\n        *b: two.\n'
        '        c: three.\n\n    Raises:\n        d: four.\n    """'
    )
    assert [*absent_parameters(described)] == ["f: c"]
    runtime = ast.parse("import onnxruntime.tools\nx = 'com.microsoft::Gelu', 'onnxruntime>=1'")
    assert [*runtimes_in(runtime)] == ["onnxruntime.tools", "com.microsoft::Gelu"]
