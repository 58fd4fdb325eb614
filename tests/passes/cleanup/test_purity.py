"""Which operators are trusted."""

from __future__ import annotations

import onnx
import onnx.defs
import pytest

from gehost.ir import schemas
from gehost.ir.model import Model
from gehost.ops import OpDef, OpRegistry
from gehost.passes.cleanup.purity import Purity, Trust


def trust(
    node: str, functions: str = "", opset: int = 21, registry: OpRegistry | None = None
) -> Trust:
    text = (
        f'<ir_version: 10, opset_import: ["": {opset}, "local": 1, "acme": 1, "ai.onnx.ml": 5]>'
        f"g (float[2] x, float r, bool t, float[1] w = {{1}}) => (float[2] y) <bool f = {{0}}> {{ {node} }} {functions}"
    )
    model = Model(onnx.parser.parse_model(text))
    return Purity(model, registry or OpRegistry()).of(next(iter(model.graph.nodes)))


def test_random_operators_are_those_that_onnx_calls_non_deterministic() -> None:
    """``Dropout`` is judged by its mode; what holds bodies, or a body with an ``If``, is not known to be either."""
    kinds = {
        schema.name
        for schema in onnx.defs.get_all_schemas_with_history()
        if getattr(schema, "node_determinism", None)
        == onnx.defs.OpSchema.NodeDeterminism.NonDeterministic
    }
    assert kinds - {"Dropout", "If", "Loop", "Scan", "SequenceMap", "AffineGrid"} <= schemas.RANDOM
    assert {schema.name for schema in onnx.defs.get_all_schemas()} >= schemas.RANDOM


@pytest.mark.parametrize(
    ("node", "opset", "expected"),
    [
        ("y = Relu(x)", 21, Trust.PURE),
        ("y = Gelu(x)", 19, Trust.OPAQUE),
        ('y = Upsample <mode = "nearest"> (x, w)', 9, Trust.PURE),
        ('y = Upsample <mode = "nearest"> (x, w)', 10, Trust.OPAQUE),
        ("y = RandomNormalLike(x)", 21, Trust.RANDOM),
        ("y = Bernoulli(x)", 21, Trust.RANDOM),
        ("y = Dropout(x)", 21, Trust.PURE),
        ("y = Dropout(x, r)", 21, Trust.PURE),
        ("y = Dropout(x, r, t)", 21, Trust.RANDOM),
        ("y = Dropout(x, r, f)", 21, Trust.PURE),
        ("y = Dropout(x)", 10, Trust.PURE),
        ("y = Dropout(x)", 6, Trust.RANDOM),
        ("y = acme.Anything(x)", 21, Trust.OPAQUE),
        ("y = ai.onnx.ml.Binarizer(x)", 21, Trust.PURE),
        (
            "y = If (t) <then_branch = p () => (a) { a = Relu(x) }, else_branch = q () => (b) { b = Neg(x) }>",
            21,
            Trust.PURE,
        ),
        (
            "y = If (t) <then_branch = p () => (a) { a = Bernoulli(x) }, else_branch = q () => (b) { b = Neg(x) }>",
            21,
            Trust.RANDOM,
        ),
        (
            "y = If (t) <then_branch = p () => (a) { a = acme.F(x) }, else_branch = q () => (b) { b = Bernoulli(x) }>",
            21,
            Trust.OPAQUE,
        ),
        ("y = SequenceMap (x) <body = p (i) => (a) { a = Relu(i) }>", 21, Trust.OPAQUE),
        ("y = acme.Kernel (x) <body = p (i) => (a) { a = Relu(i) }>", 21, Trust.OPAQUE),
    ],
)
def test_nodes(node: str, opset: int, expected: Trust) -> None:
    assert trust(node, opset=opset) == expected


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("q = Neg(p)", Trust.PURE),
        ("q = Bernoulli(p)", Trust.RANDOM),
        ("q = Dropout(p)", Trust.PURE),
        (
            "r = Constant <value = float {0.5}> ()  t = Constant <value = bool {1}> ()  q = Dropout(p, r, t)",
            Trust.RANDOM,
        ),
        ("q = acme.F(p)", Trust.OPAQUE),
        ("q = local.f(p)", Trust.OPAQUE),
        ("q = local.h(p)", Trust.RANDOM),
        (
            "q = If (p) <then_branch = u () => (a) { a = Bernoulli(p) }, else_branch = v () => (b) { b = Neg(p) }>",
            Trust.RANDOM,
        ),
        (
            "s = SequenceConstruct(p)  q = SequenceMap (s) <body = u (i) => (a) { a = Neg(i) }>",
            Trust.OPAQUE,
        ),
        ("q = acme.K (p) <body = u () => (a) { a = Neg(p) }>", Trust.OPAQUE),
    ],
)
def test_functions(body: str, expected: Trust) -> None:
    functions = (
        f'<domain: "local", opset_import: ["": 21, "acme": 1, "local": 1]> f (p) => (q) {{ {body} }} '
        '<domain: "local", opset_import: ["": 21]> h (p) => (q) { q = RandomUniformLike(p) }'
    )
    assert trust("y = local.f(x)", functions) == expected


def test_a_registered_operator_in_a_function() -> None:
    registry = OpRegistry()
    registry.add(
        OpDef("acme::F", 1, ("x",), 1, ("y",), {}, None, None, frozenset({"stateful"}), "t:1")
    )
    registry.add(OpDef("acme::G", 1, ("x",), 1, ("y",), {}, None, None, frozenset(), "t:2"))
    function = (
        '<domain: "local", opset_import: ["": 21, "acme": 1]> f (p) => (q) { q = acme.%s(p) }'
    )
    assert trust("y = local.f(x)", function % "F", registry=registry) == Trust.OPAQUE
    assert trust("y = local.f(x)", function % "G", registry=registry) == Trust.PURE


def test_overloads_are_functions_of_their_own() -> None:
    model = onnx.parser.parse_model(
        '<ir_version: 10, opset_import: ["": 21, "local": 1]> g (float[2] x) => (float[2] y) { a = local.f(x) y = local.f(a) }'
        '<domain: "local", opset_import: ["": 21]> f (p) => (q) { q = Neg(p) }'
    )
    function = model.functions.add()
    function.CopyFrom(model.functions[0])
    function.overload, function.node[0].op_type = "noisy", "Bernoulli"
    model.graph.node[1].overload = "noisy"
    indexed = Model(model)
    purity = Purity(indexed, OpRegistry())
    assert [purity.of(node) for node in indexed.graph.nodes] == [Trust.PURE, Trust.RANDOM]
