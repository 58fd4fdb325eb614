"""Keys and values of a past as the kernel's own, and its results as both presents."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

import numpy as np
import onnx
import pytest

from gehost import Host
from gehost.testing import parse
from gehost.verify import Runner, compare_outputs
from tests.conftest import is_older

from .conftest import capped

pytest.importorskip("onnxruntime")

CAUSAL = "kept = LessOrEqual (columns, rows)"
MASKS = {
    "causal": CAUSAL,
    "padding": "le = LessOrEqual (columns, rows) pad = Unsqueeze (keep, front) kept = And (le, pad)",
    "window": """le = LessOrEqual (columns, rows) d = Sub (rows, columns) near = Less (d, three)
        kept = And (le, near)""",
}
ASSUMED = ["no-empty-inputs", "no-padding"]


def model(
    mask: str = CAUSAL,
    *,
    batch: str = "B",
    length: str = "S",
    past_v: str = "P",
    outputs: bool = True,
) -> onnx.ModelProto:
    """Attention of four heads over two of keys and values, after a past."""
    presents = ", float[B, 2, T, 8] present_k, float[B, 2, T, 8] present_v" if outputs else ""
    repeated = " ".join(
        f"{item}u = Unsqueeze (present_{item}, i2) {item}e = Expand ({item}u, times) {item}r = Reshape ({item}e, spread)"
        for item in "kv"
    )
    text = f"""<ir_version: 8, opset_import: ["" : 17]>
    main (float[B, S, 32] q, float[B, S, 16] k, float[B, S, 16] v, float[B, 2, P, 8] past_k, float[B, 2, {past_v}, 8] past_v,
          bool[B, T] keep) => (float[B, S, 32] out{presents})
    <int64[4] heads = {{0, 0, 4, 8}}, int64[4] few = {{0, 0, 2, 8}}, int64[3] joined = {{0, 0, 32}}, int64 j0 = {{0}}, int64 j1 = {{1}},
     int64 three = {{3}}, int64[1] i1 = {{1}}, int64[1] i2 = {{2}}, int64[2] front = {{1, 2}}, int64[5] times = {{1, 1, 2, 1, 1}},
     int64[4] spread = {{0, 4, -1, 8}}, float scale = {{0.3}}, float zero = {{0}}, float low = {{-3.4e38}}> {{
        qh = Reshape (q, heads) qt = Transpose <perm = [0, 2, 1, 3]> (qh)
        kh = Reshape (k, few) kt = Transpose <perm = [0, 2, 1, 3]> (kh) present_k = Concat <axis = 2> (past_k, kt)
        vh = Reshape (v, few) vt = Transpose <perm = [0, 2, 1, 3]> (vh) present_v = Concat <axis = -2> (past_v, vt)
        {repeated} kk = Transpose <perm = [0, 1, 3, 2]> (kr) m = MatMul (qt, kk) s = Mul (m, scale)
        p1 = Shape <start = 2, end = 3> (past_k) p0 = Squeeze (p1) n1 = Shape <start = 1, end = 2> (q) n0 = Squeeze (n1)
        t0 = Add (p0, n0) columns = Range (j0, t0, j1) r = Range (p0, t0, j1) rows = Unsqueeze (r, i1)
        {mask} w = Where (kept, zero, low) a = Add (s, w) pr = Softmax <axis = -1> (a)
        y = MatMul (pr, vr) yt = Transpose <perm = [0, 2, 1, 3]> (y) out = Reshape (yt, joined) }}"""
    if "pad" in mask:
        text = text.replace("a = Add (s, w)", "w4 = Unsqueeze (w, i1) a = Add (s, w4)")
        text = text.replace("int64[2] front = {1, 2}", "int64[1] front = {1}")
    text = text.replace("[B,", f"[{batch},").replace(", S,", f", {length},")
    return parse(text)


def feeds(batch: int, rows: int, past: int) -> dict[str, Any]:
    rng = np.random.default_rng(0)
    shapes = {
        "q": (batch, rows, 32),
        "k": (batch, rows, 16),
        "v": (batch, rows, 16),
        **dict.fromkeys(("past_k", "past_v"), (batch, 2, past, 8)),
    }
    drawing = {name: rng.normal(size=shape).astype(np.float32) for name, shape in shapes.items()}
    return {**drawing, "keep": np.ones((batch, past + rows), bool)}


def assert_equal(
    model: onnx.ModelProto, result: onnx.ModelProto, run: Any, inputs: dict[str, Any]
) -> None:
    expected = Runner(model).run(inputs)
    for match in (run(result, inputs), Runner(result, engine="reference").run(inputs)):
        for one in compare_outputs(expected, match, rtol=1e-3, atol=1e-4):
            assert one.equal, one
        for name in match.keys() - {"out"}:
            assert (match[name] == expected[name]).all()


def refusal(host: Host, model: onnx.ModelProto) -> str:
    result, report = host.run(model)
    assert "GroupQueryAttention" not in {node.op_type for node in result.graph.node}
    (record,) = [one for one in report.passes if one.name == "OrtCausalAttentionPass"]
    (reason,) = record.rejected
    return reason


@pytest.fixture(scope="module")
def sure(host: Host) -> Host:
    return Host(replace(host.options, assume=ASSUMED))


@pytest.mark.parametrize("sizes", [{"batch": "1"}, {"length": "1"}], ids=["one batch", "one query"])
@pytest.mark.parametrize("mask", [*MASKS.values(), "softcap"], ids=[*MASKS, "softcap"])
def test_the_past_is_the_kernels(sure: Host, run: Any, mask: str, sizes: dict[str, str]) -> None:
    inputs = capped(model(**sizes)) if mask == "softcap" else model(mask, **sizes)
    result, report = sure.run(inputs)
    counts = Counter(node.op_type for node in result.graph.node)
    assert counts["GroupQueryAttention"] == 1
    assert (
        not counts["Concat"]
        + counts["Softmax"]
        + counts["Transpose"]
        + counts["Expand"]
        - ("length" in sizes)
    )
    is_window = mask == MASKS["window"]
    assert report.needs == [f"onnxruntime>={'1.24.1' if is_window else '1.21.1'}"]
    if is_window and is_older("1.24.1"):
        return
    pairs = [(1, 1), (1, 13)] if "batch" in sizes else [(1, 1), (3, 1)]
    for batch, rows in pairs:
        for past in (0, 3, 11):
            assert_equal(inputs, result, run, feeds(batch, rows, past))


def test_a_present_of_a_wrong_size_for_the_runtime_is_refused(sure: Host) -> None:
    """It reads the length of the past as that of the present, in its plans and folded shapes."""
    assert refusal(sure, model(batch="1", outputs=False)) == "past"
    fixed = sure.with_options(dims={"P": 3})
    assert refusal(fixed, model(batch="1")) == "past"


def test_pasts_of_two_names_are_proven_equal(sure: Host, run: Any) -> None:
    """The product with the values fails where they are not."""
    inputs = model(batch="1", past_v="PV")
    result, _ = sure.run(inputs)
    assert "GroupQueryAttention" in {node.op_type for node in result.graph.node}
    assert_equal(inputs, result, run, feeds(1, 5, 3))


def test_several_batches_and_queries_are_refused(sure: Host) -> None:
    assert refusal(sure, model()) == "batch"


def test_padding_is_no_causal_mask(host: Host) -> None:
    assert refusal(host, model(MASKS["padding"], batch="1")) == "mask"


def test_a_mask_that_begins_elsewhere_is_refused(sure: Host) -> None:
    late = "later = Add (rows, j1) kept = LessOrEqual (columns, later)"
    assert refusal(sure, model(late, batch="1")) == "mask"


def test_the_past_behind_the_new_ones_is_refused(sure: Host, run: Any) -> None:
    inputs = model(batch="1")
    for node in inputs.graph.node:
        if node.op_type == "Concat":
            node.input[:] = reversed(node.input)
    result, _ = sure.run(inputs)
    onnx.checker.check_model(result)
    assert_equal(inputs, result, run, feeds(1, 5, 3))
