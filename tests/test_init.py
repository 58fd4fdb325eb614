"""What ``from gehost import *`` gives, and that importing the package costs nothing."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import gehost

AUTHORS = [
    *(
        "CustomPassContext",
        "CustomPassStage",
        "DecomposePass",
        "EsGraphBuilder",
        "EsTensor",
        "FusionBasePass",
        "GNode",
        "GeUtils",
    ),
    *(
        "MatchResult",
        "NodeIo",
        "Pattern",
        "PatternFusionPass",
        "PatternMatcher",
        "PatternMatcherConfig",
    ),
    *(
        "PatternMatcherConfigBuilder",
        "REG_DECOMPOSE_PASS",
        "REG_FUSION_PASS",
        "SubgraphBoundary",
        "SubgraphInput",
    ),
    *(
        "SubgraphOutput",
        "SubgraphRewriter",
        "TensorDesc",
        "es",
        "kernels",
        "ops",
        "shapes",
        "hookimpl",
        "Host",
        "HostOptions",
    ),
]


def test_every_name_is_there_under_its_own_name() -> None:
    assert sorted(gehost.__all__) == sorted(set(gehost.__all__))
    classes = {
        name: getattr(gehost, name)
        for name in gehost.__all__
        if isinstance(getattr(gehost, name), type)
    }
    assert {name for name, actual in classes.items() if actual.__name__ != name} == {"GNode"}


def test_a_star_gives_authors_what_they_need() -> None:
    scope: dict[str, object] = {}
    exec("from gehost import *", scope)
    assert set(AUTHORS) <= set(scope)
    assert set(scope) - {"__builtins__"} == set(gehost.__all__)
    assert gehost.GNode is gehost.Node


def test_type_checkers_see_the_same_names() -> None:
    tree = ast.parse(Path(gehost.__file__).read_text(encoding="utf-8"))
    (guarded,) = (node for node in tree.body if isinstance(node, ast.If))
    statements = [
        alias.asname or alias.name
        for node in guarded.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    ]
    assert sorted(statements) == sorted(gehost.__all__)


def test_another_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="module 'gehost' has no attribute 'NoSuchName'"):
        _ = gehost.NoSuchName


def test_importing_the_package_imports_nothing_heavy() -> None:
    code = "import sys, gehost; print(sorted({'onnx', 'numpy', 'networkx', 'pluggy', 'click', 'rich'} & set(sys.modules)))"
    assert (
        subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, check=True
        ).stdout
        == "[]\n"
    )
