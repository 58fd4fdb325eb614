"""Two masks added one after the other: forms, hard rows, near misses with their reasons."""

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
     float one = {{1}}, float zero = {{0}}> {{
        h = Reshape (q, heads) qt = Transpose <perm = [0, 2, 1, 3]> (h) kt = Transpose <perm = [0, 2, 3, 1]> (h)
        p = MatMul (qt, kt) s = Mul (p, scale) {mask}
        g = Gather (table, near) gt = Transpose <perm = [2, 0, 1]> (g) a = Unsqueeze (gt, first)
        {sums} o = Softmax <axis = -1> (m) v = MatMul (o, qt) vt = Transpose <perm = [0, 2, 1, 3]> (v)
        y = Reshape (vt, joined) }}"""
    return parse(text, {"table": np.asarray(table), "far": np.array(far, np.float32)})


def feeds(batch: int, rows: int) -> Any:
    """The first positions masked, and one sequence throughout."""
    drawn = np.random.default_rng(rows)
    keep = np.ones((batch, 1, 1, rows), np.int64)
    keep[0, ..., : rows // 3] = 0
    keep[-1] = 0
    return {
        "q": drawn.normal(size=(batch, rows, 8)).astype(np.float32),
        "keep": keep,
        "near": drawn.integers(0, 7, (rows, rows)),
        "free": drawn.normal(size=(1, 2, rows, rows)).astype(np.float32),
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
    given = model(sums, mask, far=far)
    compiled, _ = host.run(given)
    assert not any(node.op_type == "Softmax" for node in compiled.graph.node)
    for sizes in ((3, 6), (2, 1), (1, 5)):
        inputs = feeds(*sizes)
        expected = Runner(given).run(inputs)
        for found in (run(compiled, inputs), Runner(compiled, engine="reference").run(inputs)):
            for one in compare_outputs(expected, found, rtol=1e-3, atol=1e-4):
                assert one.equal, one


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        (model(far=-1e9), "mask"),
        (model(mask=CHOSEN, far=-1e9), "mask"),
        (model(mask=CHOSEN, far=-1e4), "mask"),
        (model(far=-1.0), "mask"),
        (model("t = Add (s, a) m = Add (t, free)"), "mask"),
        (model("t = Add (s, free) m = Add (t, mask)"), "bias"),
        (model(table=TABLE * np.float32(1e5)), "bias"),
        (model(table=TABLE * np.float32(np.nan)), "bias"),
        (model(outputs=", float[B, 2, S, S] t"), "shared"),
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
        "the inner sum is an output",
        "no whole numbers",
    ],
)
def test_near_misses(host: Host, run: Any, given: onnx.ModelProto, reason: str) -> None:
    compiled, report = host.run(given)
    (record,) = [record for record in report.passes if record.name == "OrtMaskSumPass"]
    assert list(record.rejected) == [reason]
    inputs = feeds(2, 4)
    expected, found = Runner(given).run(inputs), run(compiled, inputs)
    assert all(one.equal for one in compare_outputs(expected, found, rtol=1e-3, atol=1e-4))
