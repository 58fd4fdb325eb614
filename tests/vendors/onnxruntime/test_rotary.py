"""Rotary embedding to ONNX Runtime's kernel; near misses with their reasons."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from gehost import Host
from gehost.testing import parse
from gehost.verify import Runner, compare_outputs

ROTATION = """low = Slice (x, i0, i4, i3, i1) high = Slice (x, i4, far, i3, i1) minus = Neg (high)
    r = Concat <axis = -1> (minus, low) a = Mul (x, cos) b = Mul (r, sin) y = Add (a, b)"""


def model(
    rotation: str = ROTATION,
    angles: str = "twice = Concat <axis = -1> (f, f)",
    frequencies: str = "1, S, 4",
    split: str = "xs = Reshape (q, heads)",
    outputs: str = "float[B, 2, S, 8] y",
) -> Any:
    return parse(
        f"""<ir_version: 8, opset_import: ["" : 17]>
    main (float[B, S, 16] q, float[{frequencies}] f) => ({outputs})
    <int64[4] heads = {{0, 0, 2, 8}}, int64[1] i0 = {{0}}, int64[1] i1 = {{1}}, int64[1] i2 = {{2}}, int64[1] i3 = {{3}}, int64[1] i4 = {{4}},
     int64[1] i5 = {{5}}, int64[4] as_x = {{0, 0, 0, 8}}, int64[3] flat = {{0, 0, -1}}, int64[4] first = {{0, 0, 0, 0}}, int64[4] last = {{0, 0, 0, 4}}, int64[4] to_4 = {{99, 99, 99, 4}},
     int64[4] to_end = {{99, 99, 99, 99}}, int64[1] far = {{9223372036854775807}}, float scale = {{1.5}}> {{
        {split} x = Transpose <perm = [0, 2, 1, 3]> (xs) {angles}
        c = Cos (twice) cs = Mul (c, scale) cos = Unsqueeze (cs, i1) s = Sin (twice) sin = Unsqueeze (s, i1)
        {rotation}
    }}"""
    )


@pytest.mark.parametrize("extra", ["", " twice_read = Neg (high)"], ids=["plain", "a half is read"])
def test_rotation(host: Host, run: Any, extra: str) -> None:
    outputs = "float[B, 2, S, 8] y" + (", float[B, 2, S, 4] twice_read" if extra else "")
    inputs = model(ROTATION + extra, outputs=outputs)
    compiled, _ = host.run(inputs)
    counts = Counter(node.op_type for node in compiled.graph.node)
    assert counts["RotaryEmbedding"] == 1
    assert not counts["Add"]
    rng = np.random.default_rng(0)
    for rows in (1, 3):
        feeds = {
            "q": rng.normal(size=(2, rows, 16)).astype(np.float32),
            "f": rng.normal(size=(1, rows, 4)).astype(np.float32),
        }
        expected = Runner(inputs).run(feeds)
        for result in (run(compiled, feeds), Runner(compiled, engine="reference").run(feeds)):
            for one in compare_outputs(expected, result, rtol=1e-3, atol=1e-4):
                assert one.equal, one


PAIRS = """low = Slice (x, i0, far, i3, i2) high = Slice (x, i1, far, i3, i2) minus = Neg (high)
    m4 = Unsqueeze (minus, i4) l4 = Unsqueeze (low, i4) both = Concat <axis = 4> (m4, l4)
    r = Reshape (both, as_x) a = Mul (x, cos) b = Mul (r, sin) y = Add (a, b)"""
PART = """part = Slice (x, i0, i4, i3, i1) rest = Slice (x, i4, far, i3, i1)
    low = Slice (part, i0, i2, i3, i1) high = Slice (part, i2, i4, i3, i1) minus = Neg (high)
    r = Concat <axis = -1> (minus, low) a = Mul (part, cos) b = Mul (r, sin) turned = Add (a, b)
    y = Concat <axis = -1> (turned, rest)"""
TWICE = "f5 = Unsqueeze (f, i3) pairs = Concat <axis = 3> (f5, f5) twice = Reshape (pairs, flat)"
FORMS: dict[str, Any] = {
    "a norm on the heads": {"split": "xn = Reshape (q, heads) xs = Sigmoid (xn)"},
    "pairs side by side": {"rotation": PAIRS, "angles": TWICE},
    "a part of x": {"rotation": PART, "frequencies": "1, S, 2"},
    "angles that differ in the batch": {"frequencies": "B, S, 4"},
}


@pytest.mark.parametrize("changes", FORMS.values(), ids=FORMS)
def test_forms(host: Host, run: Any, changes: Any) -> None:
    before = model(**changes)
    compiled, _ = host.run(before)
    assert [node.op_type for node in compiled.graph.node].count("RotaryEmbedding") == 1
    batch, _, half = before.graph.input[1].type.tensor_type.shape.dim
    rng = np.random.default_rng(0)
    for rows in (1, 3):
        feeds = {
            "q": rng.normal(size=(2, rows, 16)).astype(np.float32),
            "f": rng.normal(size=(batch.dim_value or 2, rows, half.dim_value)).astype(np.float32),
        }
        expected = Runner(before).run(feeds)
        for result in (run(compiled, feeds), Runner(compiled, engine="reference").run(feeds)):
            for one in compare_outputs(expected, result, rtol=1e-3, atol=1e-4):
                assert one.equal, one


NEAR_MISSES: dict[str, tuple[list[str], Any]] = {
    "angles that differ in the halves": (
        ["halves"],
        {"angles": "g = Neg (f) twice = Concat <axis = -1> (f, g)"},
    ),
    "angles of another length": (["angles"], {"frequencies": "1, T, 4"}),
    "angles of another batch": (["angles"], {"frequencies": "C, S, 4"}),
    "slices that are no halves": ([], {"rotation": ROTATION.replace("i0, i4", "i1, i5")}),
    "slices of all axes": (
        [],
        {
            "rotation": ROTATION.replace("i0, i4, i3, i1", "first, to_4").replace(
                "i4, far, i3, i1", "last, to_end"
            )
        },
    ),
    "no angles": ([], {"rotation": ROTATION.replace("Mul (x, cos)", "Mul (x, x)")}),
}


@pytest.mark.parametrize(("keys", "changes"), NEAR_MISSES.values(), ids=NEAR_MISSES)
def test_near_misses(host: Host, keys: list[str], changes: Any) -> None:
    compiled, report = host.run(model(**changes))
    assert not any(node.op_type == "RotaryEmbedding" for node in compiled.graph.node)
    (record,) = [record for record in report.passes if record.name == "OrtRotaryPass"]
    assert list(record.rejected) == keys


def test_a_batch_that_may_be_empty(host: Host) -> None:
    _, report = Host(replace(host.options, assume=[])).run(model(frequencies="B, S, 4"))
    (record,) = [record for record in report.passes if record.name == "OrtRotaryPass"]
    assert list(record.rejected) == ["empty"]
