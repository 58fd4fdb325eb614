"""Shardy's rules and its propagation beside ours. jaxlib has Shardy; it runs in a child process."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from gehost_sharding.mesh import Mesh
from gehost_sharding.model_graph import read_model
from gehost_sharding.propagation import Pin, Propagation
from gehost_sharding.rules.rule import NEED, PASS, Layout
from gehost_sharding.rules.table import RuleTable
from gehost_sharding.sharding import Sharding

from .conftest import graph_of

PYTHON = os.environ.get("GEHOST_JAX_PYTHON", sys.executable)
"""An interpreter that has jax; the extra ``hlo-tests`` installs it into this one."""
FUSED = Path(__file__).parents[4] / "shared" / "hlo" / "fused_3461.hlo"

pytestmark = pytest.mark.skipif(
    sys.executable == PYTHON and importlib.util.find_spec("jax") is None, reason="no jax here"
)

RULES_CHILD = """
import json, re, sys
from jax._src.interpreters import mlir
from jaxlib.mlir import ir, passmanager
found = {}
with mlir.make_ir_context():
    for name, text in json.load(sys.stdin).items():
        module = ir.Module.parse(text)
        passmanager.PassManager.parse(
            "builtin.module(func.func(sdy-populate-op-sharding-rules))"
        ).run(module.operation)
        rules = re.findall(r"op_sharding_rule<(\\\\(.*?\\\\)->\\\\(.*?\\\\) \\\\{.*?)>", str(module))
        found[name] = rules[-1]
json.dump(found, sys.stdout)
""".replace("\\\\", "\\")
PROPAGATION_CHILD = """
import json, re, sys
from jax._src.interpreters import mlir
from jaxlib import _hlo, _jax
from jaxlib.mlir import ir, passmanager
given = json.load(sys.stdin)
found = []
proto = _hlo.hlo_module_from_text(given["text"]).as_serialized_hlo_module_proto()
with mlir.make_ir_context():
    head, _, rest = str(ir.Module.parse(_jax.mlir.hlo_to_stablehlo(proto))).partition("\\n")
    for number, rank, dim in given["pins"]:
        dims = ", ".join('{"x", ?}' if each == dim else "{?}" for each in range(rank))
        pinned = re.sub(
            rf"(%arg{number}: tensor<[^>]*>)",
            rf"\\1 {{sdy.sharding = #sdy.sharding<@mesh, [{dims}]>}}", rest, count=1,
        )
        module = ir.Module.parse(f'{head}\\nsdy.mesh @mesh = <["x"=5]>\\n{pinned}')
        passmanager.PassManager.parse("builtin.module(sdy-basic-propagate)").run(module.operation)
        text = str(module)
        signature = text[text.index("func.func") : text.index(") ->")]
        found.append({
            int(arg): dims for arg, dims in
            re.findall(r"%arg(\\d+): tensor<[^>]*>(?: \\{[^\\[]*\\[(.*?)\\]>)?", signature)
        })
json.dump(found, sys.stdout)
"""


def child(code: str, arguments: Any, directory: Path) -> Any:
    process = subprocess.run(
        [PYTHON, "-c", code],
        input=json.dumps(arguments),
        capture_output=True,
        text=True,
        cwd=directory,
        check=False,
    )
    assert process.returncode == 0, process.stderr[-2000:]
    return json.loads(process.stdout)


def function(operands: Sequence[str], result: str, line: str) -> str:
    """One StableHLO operator as a module."""
    arguments = ", ".join(f"%{'abc'[k]}: tensor<{kind}>" for k, kind in enumerate(operands))
    return (
        f"func.func @main({arguments}) -> tensor<{result}> {{\n"
        f"  %r = {line}\n  return %r : tensor<{result}>\n}}"
    )


def reduced(op: str) -> str:
    return function(
        ["4x8x6xf32", "f32"],
        "4x6xf32",
        f"stablehlo.reduce(%a init: %b) applies stablehlo.{op} across dimensions = [1] :"
        " (tensor<4x8x6xf32>, tensor<f32>) -> tensor<4x6xf32>",
    )


def convolution(kernel: str, groups: int = 1) -> str:
    return function(
        ["2x4x8x8xf32", kernel],
        f"2x{kernel[0]}x8x8xf32",
        "stablehlo.convolution(%a, %b) dim_numbers = [b, f, 0, 1]x[o, i, 0, 1]->[b, f, 0, 1],"
        f" window = {{pad = [[{(n := int(kernel[4]) // 2)}, {n}], [{n}, {n}]]}}"
        f" {{batch_group_count = 1 : i64, feature_group_count = {groups} : i64}} :"
        f" (tensor<2x4x8x8xf32>, tensor<{kernel}>) -> tensor<2x{kernel[0]}x8x8xf32>",
    )


CASES = {
    "matmul": (
        function(
            ["2x4x8xf32", "2x8x6xf32"],
            "2x4x6xf32",
            "stablehlo.dot_general %a, %b, batching_dims = [0] x [0], contracting_dims = [2] x [1]"
            " : (tensor<2x4x8xf32>, tensor<2x8x6xf32>) -> tensor<2x4x6xf32>",
        ),
        "(float[2,4,8] a, float[2,8,6] b) => (float[2,4,6] r) { r = MatMul (a, b) }",
    ),
    "add": (
        function(["4x8xf32"] * 2, "4x8xf32", "stablehlo.add %a, %b : tensor<4x8xf32>"),
        "(float[4,8] a, float[4,8] b) => (float[4,8] r) { r = Add (a, b) }",
    ),
    "where": (
        function(
            ["4x8xi1", "4x8xf32", "4x8xf32"],
            "4x8xf32",
            "stablehlo.select %a, %b, %c : tensor<4x8xi1>, tensor<4x8xf32>",
        ),
        "(bool[4,8] a, float[4,8] b, float[4,8] c) => (float[4,8] r) { r = Where (a, b, c) }",
    ),
    "sum": (
        reduced("add"),
        "(float[4,8,6] a) => (float[4,6] r) <int64[1] x = {1}> {"
        " r = ReduceSum <keepdims = 0> (a, x) }",
    ),
    "max": (
        reduced("maximum"),
        "(float[4,8,6] a) => (float[4,6] r) <int64[1] x = {1}> {"
        " r = ReduceMax <keepdims = 0> (a, x) }",
    ),
    "transpose": (
        function(
            ["4x8x6xf32"],
            "8x6x4xf32",
            "stablehlo.transpose %a, dims = [1, 2, 0] : (tensor<4x8x6xf32>) -> tensor<8x6x4xf32>",
        ),
        "(float[4,8,6] a) => (float[8,6,4] r) { r = Transpose <perm = [1, 2, 0]> (a) }",
    ),
    "heads": (
        function(
            ["2x8x64xf32"],
            "2x8x4x16xf32",
            "stablehlo.reshape %a : (tensor<2x8x64xf32>) -> tensor<2x8x4x16xf32>",
        ),
        "(float[2,8,64] a) => (float[2,8,4,16] r) <int64[4] s = {2, 8, 4, 16}> {"
        " r = Reshape (a, s) }",
    ),
    "flatten": (
        function(
            ["2x8x64xf32"],
            "16x64xf32",
            "stablehlo.reshape %a : (tensor<2x8x64xf32>) -> tensor<16x64xf32>",
        ),
        "(float[2,8,64] a) => (float[16,64] r) <int64[2] s = {16, 64}> { r = Reshape (a, s) }",
    ),
    "concat": (
        function(
            ["4x8xf32"] * 2,
            "4x16xf32",
            "stablehlo.concatenate %a, %b, dim = 1 :"
            " (tensor<4x8xf32>, tensor<4x8xf32>) -> tensor<4x16xf32>",
        ),
        "(float[4,8] a, float[4,8] b) => (float[4,16] r) { r = Concat <axis = 1> (a, b) }",
    ),
    "slice": (
        function(
            ["4x8xf32"],
            "4x4xf32",
            "stablehlo.slice %a [0:4, 2:6] : (tensor<4x8xf32>) -> tensor<4x4xf32>",
        ),
        "(float[4,8] a) => (float[4,4] r) <int64[1] s = {2}, int64[1] e = {6}, int64[1] x = {1}> {"
        " r = Slice (a, s, e, x) }",
    ),
    "expand": (
        function(
            ["4x1x6xf32"],
            "4x8x6xf32",
            "stablehlo.broadcast_in_dim %a, dims = [0, 1, 2] :"
            " (tensor<4x1x6xf32>) -> tensor<4x8x6xf32>",
        ),
        "(float[4,1,6] a) => (float[4,8,6] r) <int64[3] s = {4, 8, 6}> { r = Expand (a, s) }",
    ),
    "convolution": (
        convolution("6x4x3x3xf32"),
        "(float[2,4,8,8] a, float[6,4,3,3] b) => (float[2,6,8,8] r) {"
        " r = Conv <pads = [1, 1, 1, 1]> (a, b) }",
    ),
    "depthwise": (
        convolution("4x1x3x3xf32", 4),
        "(float[2,4,8,8] a, float[4,1,3,3] b) => (float[2,4,8,8] r) {"
        " r = Conv <pads = [1, 1, 1, 1], group = 4> (a, b) }",
    ),
}
"""One operator in StableHLO and in ONNX; Shardy's further operands, such as the start of a
reduction, have no counterpart."""

WHOLE = "whole"
Form = tuple[list[list[list[str]]], dict[str, str]]


def canonical(tensors: Sequence[Sequence[Sequence[Any]]], kinds: dict[Any, str]) -> Form:
    """Factors renamed in the order of occurrence; those that must be whole have no name."""
    names: dict[Any, str] = {}
    for factor in (factor_ for tensor in tensors for dim in tensor for factor_ in dim):
        if kinds[factor] != WHOLE:
            names.setdefault(factor, f"f{len(names)}")
    renamed = [
        [[names.get(factor_, WHOLE) for factor_ in dim] for dim in tensor] for tensor in tensors
    ]
    return renamed, {name: kinds[factor] for factor, name in names.items()}


def theirs(rule: str, operands: int) -> Form:
    factor = r"[a-z](?:_\d+)?"
    left, right, tail = re.fullmatch(r"\((.*)\)->\((.*)\) (\{.*)", rule).groups()  # pyright: ignore[reportOptionalMemberAccess]
    tensors = [
        [re.findall(factor, dim) for dim in tensor.split(", ")] if tensor else []
        for side, count in ((left, operands), (right, None))
        for tensor in re.findall(r"\[(.*?)\]", side)[:count]
    ]
    sizes = {name: int(size) for name, size in re.findall(rf"({factor})=(\d+)", tail)}
    kinds = dict.fromkeys(sizes, PASS)
    for word, kind in (
        ("reduction", "reduce"),
        ("need_replication", WHOLE),
        ("permutation", WHOLE),
    ):
        for names in re.findall(rf"{word}=\{{(.*?)\}}", tail):
            kinds |= dict.fromkeys(re.findall(factor, names), kind)
    long_axes = [
        [[axis for axis in dim if sizes[axis] > 1] for dim in tensor] for tensor in tensors
    ]
    return canonical(long_axes, kinds)


def ours(text: str) -> tuple[Form, int]:
    graph = graph_of(text)
    (operator,) = graph.operators
    rule = RuleTable().rule(graph.instance(operator))
    count = sum(not graph.is_constant(name) for name in operator.node.input)
    layouts: list[Layout | None] = [*rule.operands[:count], *rule.results]
    kinds = {
        number: WHOLE if factor.kind == NEED else factor.kind
        for number, factor in enumerate(rule.factors)
    }
    return canonical([layout or () for layout in layouts], kinds), count


def test_rules_are_shardys(tmp_path: Path) -> None:
    actual = child(RULES_CHILD, {name: text for name, (text, _) in CASES.items()}, tmp_path)
    for name, (_, onnx_text) in CASES.items():
        own, count = ours(onnx_text)
        other = theirs(actual[name], count)
        if name in {"convolution", "depthwise"}:  # Shardy gives windows factors of their own
            other = without_windows(other)
            own = without_windows(own)
        assert own == other, name


def without_windows(form: Form) -> Form:
    """Leave out the two last dimensions of a convolution's operands."""
    return [tensor[:2] for tensor in form[0]], form[1]


@pytest.mark.skipif(not FUSED.exists(), reason="the texts of 2020 are not here")
def test_propagation_is_shardys(tmp_path: Path) -> None:
    from gehost_hlo import read_module, to_text

    graph = read_model(str(FUSED))
    mesh = Mesh.symbolic()
    pins = [(14, 2, 0), (14, 2, 1), (9, 3, 0), (9, 3, 1), (9, 3, 2)]
    text = to_text(read_module(FUSED))
    if not text.startswith("HloModule"):
        text = f"HloModule fused\n\nENTRY {text}"
    actual = child(PROPAGATION_CHILD, {"text": text, "pins": pins}, tmp_path)
    for (number, _, dim), other in zip(pins, actual, strict=True):
        pin = Pin.parse(f"{graph.inputs[number]}={dim}:x", graph, mesh)
        (solution,) = Propagation(graph, mesh, RuleTable()).solutions([pin])
        assert [solution.inputs[name] for name in graph.inputs] == [
            _placed(other[str(place)]) for place in range(len(graph.inputs))
        ]


def _placed(dims: str) -> Sharding:
    """The dimension that Shardy's axis splits, as a sharding."""
    split = [axis for axis, dim in enumerate(dims.split("}, {")) if '"x"' in dim]
    return (split[0] if split else -1,)
