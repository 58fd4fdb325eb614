"""Where ONNX's inference is wrong, gehost says less or what is right; ``tools/backend`` has the numbers."""

from __future__ import annotations

import re

import onnx
import pytest

from gehost.infer import Inferrer, infer_model
from gehost.ir.model import Model
from gehost.ops import OpRegistry

HEADS = "q_num_heads = 3, kv_num_heads = 3"


def model_of(text: str, opset: int = 23) -> Model:
    return Model(
        onnx.parser.parse_model(f'<ir_version: 10, opset_import: ["": {opset}, "f": 1]> {text}')
    )


def inferred(text: str, opset: int = 23) -> dict[str, str]:
    """The types of a model's tensors; node by node they come out the same."""
    model = model_of(text, opset)
    inferrer = Inferrer(model, OpRegistry())
    infer_model(model, inferrer)
    types = {
        name: re.sub(r"\?\d+", "?", str(value.type))
        for graph in model.graphs
        for name, value in graph.values.items()
    }
    for node in model.graph.nodes:
        if not node.bodies:
            result = [re.sub(r"\?\d+", "?", str(type_)) for type_ in inferrer.node(node)]
            assert result == [
                "None" if value is None else types[value.name] for value in node.outputs
            ]
    return types


@pytest.mark.parametrize(
    ("attributes", "inputs", "expected"),
    [
        ("", "float[2, 3, 4, 8] q, float[2, 3, 6, 8] k, float[2, 3, 6, 10] v", "float[2,3,4,10]"),
        ("", "float[B, 3, S, 8] q, float[B, 3, T, 8] k, float[B, 3, T, D] v", "float[B,3,S,D]"),
        ("", "float[B, 3, ?, 8] q, float[B, 3, T, 8] k, float[B, 3, T, 10] v", "float[B,3,?,10]"),
        (HEADS, "float[B, S, 24] q, float[B, T, 24] k, float[B, T, 30] v", "float[B,S,30]"),
        (HEADS, "float[B, S, 24] q, float[B, T, 24] k, float[B, T, W] v", "float[B,S,W]"),
        (HEADS, "float[B, S, ?] q, float[B, T, ?] k, float[B, T, ?] v", "float[B,S,?]"),
    ],
)
def test_attention_without_all_sizes(attributes: str, inputs: str, expected: str) -> None:
    text = f"g ({inputs.replace('float k', 'seq(float) ks')}) => (int64[?] y) {{ a = Attention<{attributes}>(q, k, v) y = Shape(a) }}"
    assert inferred(text.replace("<>", ""))["a"] == expected


def test_attention_without_a_rank() -> None:
    text = """g (float[2, 3, 4, 8] q, float[96] x, int64[4] s, int64[?] u) => (int64[?] y) {
        k = Reshape(x, u) a = Attention(q, k, q) y = Shape(a) }"""
    assert inferred(text)["a"] == "float[*]"


def test_lengths_of_past_and_present_are_not_added_where_one_is_unknown() -> None:
    text = """g (float[2, 3, 4, 8] q, float[2, 3, {kv}, 8] k, float[2, 3, {kv}, 8] v, float[2, 3, {past}, 8] pk, float[2, 3, {past}, 8] pv)
        => (int64[?] y) {{ a, ck, cv = Attention(q, k, v, "", pk, pv) y = Shape(a) }}"""
    assert inferred(text.format(kv=6, past=12))["ck"] == "float[2,3,18,8]"
    for sizes in (
        {"kv": 6, "past": "P"},
        {"kv": "T", "past": 12},
        {"kv": "T", "past": "P"},
        {"kv": "?", "past": "?"},
    ):
        types = inferred(text.format(**sizes))
        assert [types[name] for name in ("a", "ck", "cv")] == [
            "float[2,3,4,8]",
            "float[2,3,?,8]",
            "float[2,3,?,8]",
        ]


@pytest.mark.parametrize(
    ("attribute", "expected"), [("", 9), ("<onesided = 1>", 9), ("<onesided = 0>", 16)]
)
def test_stft_is_onesided_by_default(attribute: str, expected: int) -> None:
    text = f"""g (float[1, 128, 1] x) => (int64[?] y) <int64 step = {{8}}, int64 length = {{16}}>
        {{ s = STFT{attribute}(x, step, "", length) y = Shape(s) }}"""
    assert inferred(text, 17)["s"] == f"float[1,15,{expected},2]"


def test_in_bodies_and_functions() -> None:
    text = """g (bool c, float[B, 3, S, 8] q, float[B, 3, T, 8] k, float[1, 128, 1] x) => (int64[?] y, int64[?] z, int64[?] w)
        <int64 step = {8}, int64 length = {16}> {
            y = If(c) <then_branch = t () => (int64[?] t2) { t1 = Attention(q, k, k) t2 = Shape(t1) }, else_branch = e () => (int64[?] e1) { e1 = Shape(q) }>
            z1 = f.A(q, k) z = Shape(z1)
            w1 = f.S(x, step, length) w = Shape(w1)
        }
        <domain: "f", opset_import: ["": 23]> A (q, k) => (r) { r = Attention(q, k, k) }
        <domain: "f", opset_import: ["": 23]> S (x, step, length) => (r) { r = STFT(x, step, "", length) }"""
    types = inferred(text)
    assert [types[name] for name in ("t1", "z1", "w1")] == [
        "float[B,3,S,8]",
        "float[B,3,S,8]",
        "float[1,15,9,2]",
    ]


def test_the_model_is_not_changed() -> None:
    model = model_of(
        "g (float[B, 3, S, 8] q) => (int64[?] y) { a = Attention(q, q, q) y = Shape(a) }"
    )
    before = model.proto.SerializeToString(deterministic=True)
    infer_model(model, Inferrer(model, OpRegistry()))
    assert model.flush().SerializeToString(deterministic=True) == before
