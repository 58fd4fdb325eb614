"""Several masks as one addend: forms, hard rows, near misses with their reasons."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest

from gehost import Host
from gehost.testing import parse
from gehost.verify import Runner, compare_outputs

pytest.importorskip("onnxruntime")

LOWEST = float(np.finfo(np.float32).min)
SUMS = "t = Add (s, a) m = Add (t, mask)"
PADDING = "c = Cast <to = 1> (keep) n = Sub (one, c) mask = Mul (n, far)"
CHOSEN = "b = Cast <to = 9> (keep) mask = Where (b, zero, far)"
TABLE = np.random.default_rng(0).normal(size=(7, 2)).astype(np.float32)


def model(
    sums: str = SUMS,
    mask: str = PADDING,
    *,
    far: float = LOWEST,
    table: Any = TABLE,
    outputs: str = "",
    opset: int = 17,
) -> onnx.ModelProto:
    """Attention of two heads of size 4; the bias a is read from a table, as in MPNet."""
    text = f"""<ir_version: 8, opset_import: ["" : {opset}]>
    main (float[B, S, 8] q, int64[B, 1, 1, S] keep, int64[S, S] near, float[1, 2, S, S] free) => (float[B, S, 8] y {outputs})
    <int64[4] heads = {{0, 0, 2, 4}}, int64[3] joined = {{0, 0, 8}}, int64[1] first = {{0}}, float scale = {{0.5}},
     float one = {{1}}, float zero = {{0}}, float slope = {{3}}, float huge = {{1e7}}> {{
        h = Reshape (q, heads) qt = Transpose <perm = [0, 2, 1, 3]> (h) kt = Transpose <perm = [0, 2, 3, 1]> (h)
        p = MatMul (qt, kt) s = Mul (p, scale) {mask}
        g = Gather (table, near) gt = Transpose <perm = [2, 0, 1]> (g) a = Unsqueeze (gt, first)
        {sums} o = Softmax <axis = -1> (m) v = MatMul (o, qt) vt = Transpose <perm = [0, 2, 1, 3]> (v)
        y = Reshape (vt, joined) }}"""
    return parse(text, {"table": np.asarray(table), "far": np.array(far, np.float32)})


def feeds(batch: int, rows: int) -> Any:
    """The first positions masked, and one sequence throughout."""
    drawing = np.random.default_rng(rows)
    keep = np.ones((batch, 1, 1, rows), np.int64)
    keep[0, ..., : rows // 3] = 0
    keep[-1] = 0
    return {
        "q": drawing.normal(size=(batch, rows, 8)).astype(np.float32),
        "keep": keep,
        "near": drawing.integers(0, 7, (rows, rows)),
        "free": drawing.normal(size=(1, 2, rows, rows)).astype(np.float32),
    }


@pytest.mark.parametrize(
    ("mask", "far"),
    [
        *((PADDING, far) for far in (LOWEST, -1e30)),
        *((CHOSEN, far) for far in (LOWEST, -1e30, -256.0, 0.0)),
    ],
)
@pytest.mark.parametrize("sums", [SUMS, "t = Add (a, s) m = Add (mask, t)"])
def test_two_masks_are_one(host: Host, run: Any, sums: str, mask: str, far: float) -> None:
    inputs = model(sums, mask, far=far)
    compiled, _ = host.run(inputs)
    assert not any(node.op_type == "Softmax" for node in compiled.graph.node)
    assert_equal(inputs, compiled, run)


def test_biases_that_are_products(host: Host, run: Any) -> None:
    """As of relative positions along both axes of an image."""
    sums = """r = MatMul (free, free) u = MatMul (r, free) t0 = Add (s, r) t = Add (t0, u)
        m = Add (t, mask)"""
    before = model(sums)
    compiled, _ = host.run(before)
    assert not any(node.op_type == "Softmax" for node in compiled.graph.node)
    assert_equal(before, compiled, run)


def test_a_bias_that_is_a_large_product_is_refused(host: Host) -> None:
    sums = """r = MatMul (free, free) u = Mul (r, huge) t0 = Add (s, r) t = Add (t0, u)
        m = Add (t, mask)"""
    _, report = host.run(model(sums))
    (record,) = [record for record in report.passes if record.name == "OrtAttentionPass"]
    assert dict(record.rejected) == {"mask": 1}


@pytest.mark.parametrize(
    ("values", "reason"),
    [
        (model(far=-1e9), "mask"),
        (model(mask=CHOSEN, far=-1e9), "mask"),
        (model(mask=CHOSEN, far=-1e4), "mask"),
        (model(far=-1.0), "mask"),
        (model("t = Add (s, a) m = Add (t, free)"), "mask"),
        (model("t = Add (s, free) m = Add (t, mask)"), "mask"),
        (model(table=TABLE * np.float32(1e5)), "mask"),
        (model(table=TABLE * np.float32(np.nan)), "mask"),
        (model(mask="c = Cast <to = 1> (free) mask = Mul (c, far)"), "mask"),
    ],
    ids=[
        "-1e9, whose neighbours are 64 apart",
        "-1e9, chosen",
        "-1e4, whose neighbours are 1e-3 apart",
        "-1 times an integer",
        "mask of an input",
        "bias of an input",
        "large bias",
        "bias that is no number",
        "no whole numbers",
    ],
)
def test_near_misses(host: Host, run: Any, values: onnx.ModelProto, reason: str) -> None:
    compiled = refused(host, values, reason)
    inputs = feeds(2, 4)
    expected, result = Runner(values).run(inputs), run(compiled, inputs)
    assert all(one.equal for one in compare_outputs(expected, result, rtol=1e-3, atol=1e-4))


SCALED = {
    "Mul": "t = Add (s, mask) m = Mul (t, scale)",
    "Mul on the left": "t = Add (mask, s) m = Mul (scale, t)",
    "Div": "t = Add (p, mask) m = Div (t, scale)",
    "Div, a scale below it, too": "t = Add (mask, s) m = Div (t, slope)",
}


@pytest.mark.parametrize("sums", SCALED.values(), ids=SCALED)
@pytest.mark.parametrize("far", [LOWEST, -1e30, -np.inf, 0.0])
def test_a_scale_behind_the_mask(host: Host, run: Any, sums: str, far: float) -> None:
    """As in CodeGen; -3.4e38 / 0.5 is -inf, fused and not."""
    inputs = model(sums, CHOSEN, far=far)
    compiled, report = host.run(inputs)
    rest = {node.op_type for node in compiled.graph.node}
    assert "Softmax" not in rest, [record.rejected for record in report.passes]
    assert_equal(inputs, compiled, run)


@pytest.mark.parametrize(
    ("inputs", "reason"),
    [
        (model(SCALED["Div"], CHOSEN, far=-1e9), "mask"),
        (model(SCALED["Div"], CHOSEN, far=-1e4), "mask"),
        (model("t = Add (s, free) m = Mul (t, scale)"), "mask"),
        (model("t = Add (s, mask) m = Mul (t, huge)", CHOSEN), "scale"),
    ],
    ids=["-1e9", "-1e4, of which a score shows", "mask of an input", "1e7"],
)
def test_a_scale_behind_another_mask_stays(
    host: Host, run: Any, inputs: onnx.ModelProto, reason: str
) -> None:
    compiled = refused(host, inputs, reason)
    assert_equal(inputs, compiled, run)


def folded(
    masked: str = "m = Add (t4, mask)",
    *,
    bias: str = "alibi",
    apart: str = "one, two, rows, minus",
    far: float = LOWEST,
    outputs: str = "",
) -> onnx.ModelProto:
    """Attention whose products and bias have batch and heads in one axis, as in BLOOM and DeBERTa."""
    text = f"""<ir_version: 8, opset_import: ["" : 17]>
    main (float[B, S, 8] q, int64[B, 1, 1, S] keep, int64[S, S] near, float[1, 2, S, S] free) => (float[B, S, 8] y {outputs})
    <int64[4] heads = {{0, 0, 2, 4}}, int64[3] joined = {{0, 0, 8}}, int64[1] i0 = {{0}}, int64[1] i1 = {{1}},
     int64[1] i2 = {{2}}, int64[1] minus = {{-1}}, int64[1] two = {{2}}, int64[1] four = {{4}},
     float scale = {{0.5}}, float zero = {{0}}, float[2, 1] slopes = {{3e4, 0.25}}> {{
        h = Reshape (q, heads) qt = Transpose <perm = [0, 2, 1, 3]> (h)
        of_q = Shape (q) one = Slice (of_q, i0, i1) rows = Slice (of_q, i1, i2) both = Mul (one, two)
        flat = Concat <axis = 0> (both, rows, four) qf = Reshape (qt, flat) kk = Transpose <perm = [0, 2, 1]> (qf)
        p = MatMul (qf, kk) s = Mul (p, scale)
        c = Cast <to = 1> (keep) c3 = Squeeze (c, i1) wide = Mul (c3, slopes)
        flat_bias = Concat <axis = 0> (both, i1, rows) alibi = Reshape (wide, flat_bias)
        other = Neg (qf) turned = Transpose <perm = [0, 2, 1]> (other) positions = MatMul (qf, turned)
        b = Cast <to = 9> (keep) mask = Where (b, zero, far) row = ReduceMax <axes = [0]> (positions)
        t = Add (s, {bias}) shape = Concat <axis = 0> ({apart}) t4 = Reshape (t, shape) {masked}
        o = Softmax <axis = -1> (m) back = Concat <axis = 0> (both, rows, minus) of = Reshape (o, back)
        v = MatMul (of, qf) whole = Concat <axis = 0> (one, two, rows, four) v4 = Reshape (v, whole)
        vt = Transpose <perm = [0, 2, 1, 3]> (v4) y = Reshape (vt, joined) }}"""
    return parse(text, {"far": np.array(far, np.float32)})


@pytest.mark.parametrize(
    "masked", ["m = Add (t4, mask)", "m = Add (mask, t4)", "m = Where (b, t4, far)"]
)
@pytest.mark.parametrize("bias", ["alibi", "positions"])
@pytest.mark.parametrize("far", [LOWEST, -1e30, -np.inf])
def test_a_bias_before_heads_are_apart(
    host: Host, run: Any, masked: str, bias: str, far: float
) -> None:
    """Of any size where the mask holds 0 and such numbers; also one that is computed from q."""
    inputs = folded(masked, bias=bias, far=far)
    compiled, report = host.run(inputs)
    rest = {node.op_type for node in compiled.graph.node}
    assert "Softmax" not in rest, [record.rejected for record in report.passes]
    assert_equal(inputs, compiled, run)


@pytest.mark.parametrize(
    "changes",
    [{"bias": "row"}, {"outputs": ", float[C, S, S] t"}],
    ids=["one bias for all heads and sequences", "the biased scores are an output"],
)
def test_biases_of_other_forms(host: Host, run: Any, changes: Any) -> None:
    inputs = folded(**changes)
    compiled, _ = host.run(inputs)
    assert not any(node.op_type == "Softmax" for node in compiled.graph.node)
    assert_equal(inputs, compiled, run)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"far": -1e9}, "mask"),
        ({"far": 1e30}, "mask"),
        ({"masked": "m = Add (t4, free)"}, "mask"),
        ({"masked": "m = Where (b, t4, far)", "far": -1e4}, "mask"),
        ({"apart": "rows, two, one, rows", "bias": "positions"}, "probabilities"),
    ],
    ids=[
        "-1e9, whose neighbours are 64 apart",
        "1e30, which a bias may cancel",
        "mask of an input",
        "filled with -1e4",
        "heads between rows and the batch",
    ],
)
def test_near_misses_before_heads_are_apart(
    host: Host, run: Any, changes: Any, reason: str
) -> None:
    inputs = folded(**changes)
    compiled = refused(host, inputs, reason)
    if "apart" in changes:
        assert_equal(inputs, compiled, run, [(1, 5)])  # of one sequence it runs
    else:
        assert_equal(inputs, compiled, run)


def refused(host: Host, model: onnx.ModelProto, reason: str) -> onnx.ModelProto:
    compiled, report = host.run(model)
    assert any(node.op_type == "Softmax" for node in compiled.graph.node)
    (record,) = [record for record in report.passes if record.name == "OrtAttentionPass"]
    assert list(record.rejected) == [reason]
    return compiled


def assert_equal(
    model: onnx.ModelProto,
    compiled: onnx.ModelProto,
    run: Any,
    sizes: Any = ((3, 6), (2, 1), (1, 5)),
) -> None:
    for size in sizes:
        inputs = feeds(*size)
        expected = Runner(model).run(inputs)
        for result in (run(compiled, inputs), Runner(compiled, engine="reference").run(inputs)):
            for one in compare_outputs(expected, result, rtol=1e-3, atol=1e-4):
                assert one.equal, one
