"""The public names, and what the core may import."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import gehost_linalg
from gehost_linalg import (
    AffineMap,
    Fused,
    Generic,
    Refusal,
    are_elementwise_ops_fusable,
    fuse_all,
    fuse_elementwise_ops,
    preserved_producer_results,
    producer_map_in_fused_coordinates,
)
from gehost_linalg.block import Block
from gehost_linalg.fusability import OpOperand

from .conftest import Case

PACKAGE = Path(gehost_linalg.__file__).parent
CORE = ("block", "units", "worklist", "affine", "generic", "fusability", "fuse", "operations", "reshape", "companions", "scalar_folding", "control", "driver", "interpret")  # fmt: skip
GRAPHS = {"inline.py", "passes.py", "splits.py", "commands.py"}
"""What knows graphs, beside ``lower``, ``groups`` and ``kernels``."""


def operand(name: str, index: int = 0) -> OpOperand:
    function = Case(name).function
    return Block(function.ops, function.outputs).operand(function.ops[-1], index)


def test_two_operations_are_fused_by_the_functions_of_the_package() -> None:
    swap = AffineMap.parse("affine_map<(d0, d1) -> (d1, d0)>")
    assert swap(2, 3) == (3, 2)
    read = operand("add_transposed_mul")
    assert are_elementwise_ops_fusable(read) is None
    assert preserved_producer_results(read) == []
    identity = AffineMap.identity(2)
    assert producer_map_in_fused_coordinates(swap, identity, swap) == identity
    fused = fuse_elementwise_ops(read)
    assert isinstance(fused, Fused)
    assert isinstance(fused.generic, Generic)
    assert list(fused.replaced) == list(read.consumer.results)


def test_a_refusal_has_a_key_and_a_text() -> None:
    refusal = fuse_elementwise_ops(operand("reduction_then_sqrt"))
    assert isinstance(refusal, Refusal)
    assert refusal == are_elementwise_ops_fusable(operand("reduction_then_sqrt"))
    assert str(refusal) == "producer-not-parallel: loop 1 is a reduction"


def test_fuse_all_takes_a_function_as_control() -> None:
    function = Case("add_mul").function
    assert len(fuse_all(function.ops, lambda _: True, "refuse", outputs=function.outputs)) == 1
    function = Case("add_mul").function
    assert len(fuse_all(function.ops, lambda _: "no", outputs=function.outputs)) == 2


@pytest.mark.parametrize("module", CORE)
def test_the_core_imports_neither_onnx_nor_gehost(module: str) -> None:
    allowed = {f"gehost_linalg.{name}" for name in CORE}
    result = _imported(PACKAGE / f"{module}.py")
    assert {name for name in result if name.partition(".")[0] in {"gehost", "onnx"}} == set()
    assert {name for name in result if name.startswith("gehost_linalg")} <= allowed


def test_only_some_modules_know_graphs() -> None:
    knowing = {
        path.name
        for path in PACKAGE.glob("*.py")
        if {"onnx", "gehost"} & {name.partition(".")[0] for name in _imported(path)}
    }
    # cli.py takes functions for texts alone, as mlir does
    assert knowing - {"__init__.py", "cli.py"} == GRAPHS


def _imported(path: Path) -> set[str]:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    results = {node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    plain = [item for node in ast.walk(tree) if isinstance(node, ast.Import) for item in node.names]
    return {name for name in results if name} | {item.name for item in plain}
