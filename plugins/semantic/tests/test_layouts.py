"""Layouts that a kernel asks for, masks of all rows, and tensors that a replacement removes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from gehost import REG_FUSION_PASS, CustomPassStage, EsTensor, PassError, es
from gehost.ir.model import Model
from gehost.testing import parse, run_pass
from gehost_semantic import PLAIN, AttentionCall, AttentionFusionPass
from tools.semantic.check import random_feed

from .test_passes import PLAIN as SCORES
from .test_passes import QKV, REST, assert_equal, calls, model, run

MODELS = Path(__file__).parents[3] / "tests" / "models"
AFTER = CustomPassStage.kAfterInferShape
SIZES = {"batch": 2, "seq": 7}


@REG_FUSION_PASS(stage=AFTER)
class Rows(AttentionFusionPass):
    layouts = {"q": "b s (h d)", "k": "b t (h d)", "v": "b t (h v)", "result": "b s (h v)"}  # noqa: RUF012

    def Replacement(self, attention: AttentionCall) -> EsTensor:
        return es.op("npu::Rows")(
            attention.q,
            attention.k,
            attention.v,
            attention.full_mask,
            heads=attention.heads,
            scale=attention.scale,
        )


@REG_FUSION_PASS(stage=AFTER)
class Mixed(Rows):
    takes = ("groups", "mask")
    layouts = {"q": "b s h d", "k": "b h d t", "v": "b h t v", "result": "s b (h v)"}  # noqa: RUF012


@REG_FUSION_PASS(stage=AFTER)
class Misspelled(Rows):
    layouts = {"q": "b s (h e)"}  # noqa: RUF012


@pytest.mark.parametrize("kind", [Rows, Mixed])
@pytest.mark.parametrize("name", ["bert.ts17", "gpt2.dyn20", "llama.ts17", "vit.ts13"])
def test_a_kernel_gets_its_layouts(name: str, kind: type[AttentionFusionPass]) -> None:
    """The body is the formula of these layouts, so that the numbers show each of them."""
    inputs = onnx.load(MODELS / f"{name}.onnx")
    result, record = run_pass(inputs, kind)
    assert record.replaced == 2, dict(record.rejected)
    assert len(calls(result)) == 2
    assert_equal(inputs, result, SIZES)


def test_rows_that_the_graph_has_are_read() -> None:
    """Of bert's layers, no Transpose and no Reshape stays."""
    result, _ = run_pass(onnx.load(MODELS / "bert.ts17.onnx"), Rows)
    (function,) = [item for item in result.functions if item.name == "Rows"]
    assert any(node.op_type == "Transpose" for node in function.node)
    assert not any(node.op_type == "Transpose" for node in result.graph.node)


def test_a_layout_that_names_another_axis_is_the_authors_error() -> None:
    with pytest.raises(PassError, match=r"'b s \(h e\)' must name each of b, h, s, d once"):
        run_pass(model(SCORES + REST % "scaled"), Misspelled)


MASKS = {
    "a row for all": "float[b, 1, 1, t] m",
    "of rank 2": "float[s, t] m",
    "a column for all": "float[1, 4, s, 1] m",
    "all": "float[b, 4, s, t] m",
    "one or all rows": "float[b, 1, r, t] m",
}


@pytest.mark.parametrize("mask", MASKS.values(), ids=MASKS)
def test_a_full_mask_has_all_rows_and_columns(mask: str) -> None:
    inputs = model(SCORES + "a = Add (scaled, m)" + REST % "a", f"{QKV}, {mask}")
    result, record = run_pass(inputs, Rows)
    if "r, t" in mask:  # a size that is not known to broadcast
        assert list(record.rejected) == ["scores"]
        return
    assert record.replaced == 1
    read = calls(result)[0].input[3]
    result.graph.output.append(onnx.ValueInfoProto(name=read))
    for b, s, t in ((2, 3, 5), (1, 1, 1), (2, 3, 1), (2, 1, 4), (0, 3, 5)):
        feed = feed_of(inputs, {"b": b, "s": s, "t": t})
        (want,), (actual, visited) = run(inputs, feed), run(result, feed)
        np.testing.assert_allclose(actual, want, rtol=1e-4, atol=1e-5)
        assert visited.shape[2:] == (s, t)


WINDOWS = """
apart = Constant <value_ints = [-1, 3, 4, 2, 5]> () joined = Constant <value_ints = [-1, 4, 2, 5]> ()
wide = Reshape (scaled, apart) masked = Add (wide, m) a = Reshape (masked, joined)
"""


@pytest.mark.parametrize("mask", ["float[1, 3, 1, 2, 5] m", "float[3, 4, 2, 5] m", "float[5] m"])
def test_a_mask_of_a_part_of_the_batch_is_spread(mask: str) -> None:
    """Three windows of each image, as in Swin."""
    windows = """q_ = Constant <value_ints = [-1, 4, 2, 8]> () q = Reshape (q0, q_)
    k_ = Constant <value_ints = [-1, 4, 5, 8]> () k = Reshape (k0, k_)
    v_ = Constant <value_ints = [-1, 4, 5, 6]> () v = Reshape (v0, v_)"""
    images = "float[n, 12, 2, 8] q0, float[n, 12, 5, 8] k0, float[n, 12, 5, 6] v0"
    inputs = model(windows + SCORES + WINDOWS + REST % "a", f"{images}, {mask}")
    result, record = run_pass(inputs, Rows)
    assert record.replaced == 1, dict(record.rejected)
    for count in (1, 2):
        feed = feed_of(inputs, {"n": count})
        np.testing.assert_allclose(run(result, feed)[0], run(inputs, feed)[0], rtol=1e-4, atol=1e-5)


def test_a_tensor_between_two_layers_may_go() -> None:
    """The first rewrite removes the tensor that the second would have read."""
    body = f"""{SCORES} p = Softmax <axis = -1> (scaled) y1 = MatMul (p, v)
    turned = Transpose <perm = [0, 2, 1, 3]> (y1) rows = Constant <value_ints = [0, 0, 24]> ()
    o = Reshape (turned, rows) heads = Constant <value_ints = [0, 0, 4, 6]> () h = Reshape (o, heads)
    q2 = Transpose <perm = [0, 2, 1, 3]> (h) k2 = Transpose <perm = [0, 2, 3, 1]> (h)
    s2 = MatMul (q2, k2) p2 = Softmax <axis = -1> (s2) y = MatMul (p2, q2)"""
    inputs = model(body)
    result, record = run_pass(inputs, Rows)
    assert record.replaced == 2
    feed = feed_of(inputs, {"b": 2, "s": 3, "t": 5})
    np.testing.assert_allclose(run(result, feed)[0], run(inputs, feed)[0], rtol=1e-4, atol=1e-5)


ROOTS = """
    q4 = Constant <value_ints = [0, 0, 4, 8]> () k4 = Constant <value_ints = [0, 0, %d, 8]> ()
    two = Constant <value_ints = [2]> () times = Constant <value_ints = [1, 1, 2, 1, 1]> ()
    wide = Constant <value_ints = [0, 4, -1, 8]> ()
    number = Constant <value = float {0.35355338}> () root = CastLike (number, x)
    q0 = Reshape (x, q4) q1 = Transpose <perm = [0, 2, 1, 3]> (q0) q = Mul (q1, root)
    k0 = Reshape (z, k4) %s k = Mul (k1, root)
    v0 = Reshape (z, k4) v1 = Transpose <perm = [0, 2, 1, 3]> (v0) %s
    m = MatMul (q, k) p = Softmax <axis = -1> (m) o = MatMul (p, v)"""
"""The roots of a scale at q and k, as torch's scaled_dot_product_attention."""
EACH = "k1 = Transpose <perm = [0, 2, 3, 1]> (k0)", "v = Identity (v1)"
SHARED = (
    """kt = Transpose <perm = [0, 2, 1, 3]> (k0) ku = Unsqueeze (kt, two) ke = Expand (ku, times)
    kw = Reshape (ke, wide) k1 = Transpose <perm = [0, 1, 3, 2]> (kw)""",
    "vu = Unsqueeze (v1, two) ve = Expand (vu, times) v = Reshape (ve, wide)",
)
"""Heads of k and v for each head of q, or one for two."""


@REG_FUSION_PASS(stage=AFTER)
class WholeScale(Rows):
    layouts = PLAIN

    def MeetRequirements(self, attention: AttentionCall) -> bool:
        return abs(attention.scale - 0.125) < 1e-4


@REG_FUSION_PASS(stage=AFTER)
class WholeScaleOfGroups(WholeScale):
    takes = ("groups", "mask")


@pytest.mark.parametrize("kernel", [WholeScale, WholeScaleOfGroups])
@pytest.mark.parametrize("dtype", ["float", "float16"])
@pytest.mark.parametrize("place", ["root", "body"])
@pytest.mark.parametrize("heads", [4, 2])
def test_a_kernel_gets_the_whole_scale(
    heads: int, place: str, dtype: str, kernel: type[WholeScale]
) -> None:
    lines, result = ROOTS % (heads, *(EACH if heads == 4 else SHARED)), f"{dtype}[b, 4, s, 8]"
    inputs = f"{dtype}[b, s, 32] x, {dtype}[b, t, {8 * heads}] z"
    body = f"{lines} y = Identity (o)"
    if place == "body":
        body = f"""y = If (c) <then_branch = yes () => ({result} o) {{ {lines} }},
            else_branch = no () => ({result} w) {{ w = Identity (e) }}>"""
        inputs += f", bool c, {result} e"
    head = f'<ir_version: 9, opset_import: ["" : 18]> g ({inputs}) => ({result} y)'
    before = parse(f"{head} {{ {body} }}")
    after, record = run_pass(before, kernel, cleanup=True)
    assert record.replaced == 1, dict(record.rejected)
    (graph,) = [graph for graph in graphs(after.graph) if any(n.domain for n in graph.node)]
    operators = [node.op_type for node in graph.node]
    assert "Mul" not in operators
    assert operators.count("Transpose") == 2  # k and v are of one tensor
    feed = random_feed(Model(before).graph, {"b": 2, "s": 3, "t": 5}, np.random.default_rng(0))
    tolerance = 1e-4 if dtype == "float" else 1e-2
    (want,), (actual,) = run(before, feed), run(after, feed)
    np.testing.assert_allclose(actual, want, rtol=tolerance, atol=tolerance)


@REG_FUSION_PASS(stage=AFTER)
class OtherLayouts(Rows):
    def Replacement(self, attention: AttentionCall) -> EsTensor:
        q, k, v = (attention.operand(name, PLAIN[name]) for name in "qkv")
        scores = es.MatMul(q, es.Transpose(k, perm=[0, 1, 3, 2])) * attention.scale
        mixed = es.MatMul(es.Softmax(scores, axis=-1), v)
        return es.Reshape(es.Transpose(mixed, perm=[0, 2, 1, 3]), [0, 0, 32])


@pytest.mark.parametrize("side", ["q", "k"])
def test_a_factor_between_two_layouts_of_an_operand_is_kept(side: str) -> None:
    """The scale is that of the layouts that the pass states."""
    other = "kt" if side == "q" else "qt"
    lines = (ROOTS % (4, *EACH)).replace(f"{side}0 =", f"{other} =")
    lines = lines.replace(f"{side}1 =", f"{side}0 = Mul ({other}, number) {side}1 =")
    before = model(f"{lines} y = Identity (o)", "float[b, s, 32] x, float[b, t, 32] z")
    after, record = run_pass(before, OtherLayouts)
    assert record.replaced == 1, dict(record.rejected)
    assert_equal(before, after, {"b": 2, "s": 3, "t": 5})


def graphs(graph: onnx.GraphProto) -> Iterator[onnx.GraphProto]:
    """Yield a graph and the bodies in it."""
    yield graph
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.HasField("g"):
                yield from graphs(attribute.g)


def feed_of(model: onnx.ModelProto, sizes: dict[str, int]) -> dict[str, Any]:
    rng = np.random.default_rng(0)
    return {
        value.name: rng.normal(
            size=[
                sizes[dim.dim_param] if dim.dim_param else dim.dim_value
                for dim in value.type.tensor_type.shape.dim
            ]
        ).astype(np.float32)
        for value in model.graph.input
    }
