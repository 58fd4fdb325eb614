"""Rotary embedding to ONNX Runtime's kernel; near misses with their reasons."""

from __future__ import annotations

from collections import Counter
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
    <int64[4] heads = {{0, 0, 2, 8}}, int64[1] i0 = {{0}}, int64[1] i1 = {{1}}, int64[1] i3 = {{3}}, int64[1] i4 = {{4}},
     int64[1] i5 = {{5}}, int64[4] first = {{0, 0, 0, 0}}, int64[4] last = {{0, 0, 0, 4}}, int64[4] to_4 = {{99, 99, 99, 4}},
     int64[4] to_end = {{99, 99, 99, 99}}, int64[1] far = {{9223372036854775807}}, float scale = {{1.5}}> {{
        {split} x = Transpose <perm = [0, 2, 1, 3]> (xs) {angles}
        c = Cos (twice) cs = Mul (c, scale) cos = Unsqueeze (cs, i1) s = Sin (twice) sin = Unsqueeze (s, i1)
        {rotation}
    }}"""
    )


@pytest.mark.parametrize("extra", ["", " twice_read = Neg (high)"], ids=["plain", "a half is read"])
def test_rotation(host: Host, run: Any, extra: str) -> None:
    outputs = "float[B, 2, S, 8] y" + (", float[B, 2, S, 4] twice_read" if extra else "")
    given = model(ROTATION + extra, outputs=outputs)
    compiled, _ = host.run(given)
    counts = Counter(node.op_type for node in compiled.graph.node)
    assert counts["RotaryEmbedding"] == 1
    assert not counts["Add"]
    rng = np.random.default_rng(0)
    for rows in (1, 3):
        feeds = {
            "q": rng.normal(size=(2, rows, 16)).astype(np.float32),
            "f": rng.normal(size=(1, rows, 4)).astype(np.float32),
        }
        expected = Runner(given).run(feeds)
        for found in (run(compiled, feeds), Runner(compiled, engine="reference").run(feeds)):
            for one in compare_outputs(expected, found, rtol=1e-3, atol=1e-4):
                assert one.equal, one


NEAR_MISSES: dict[str, tuple[str, Any]] = {
    "angles that differ in the halves": (
        "halves",
        {"angles": "g = Neg (f) twice = Concat <axis = -1> (f, g)"},
    ),
    "angles that differ in the batch": ("batch", {"frequencies": "B, S, 4"}),
    "angles of another length": ("batch", {"frequencies": "1, T, 4"}),
    "slices that are no halves": ("slices", {"rotation": ROTATION.replace("i0, i4", "i1, i5")}),
    "slices of all axes": (
        "slices",
        {
            "rotation": ROTATION.replace("i0, i4, i3, i1", "first, to_4").replace(
                "i4, far, i3, i1", "last, to_end"
            )
        },
    ),
    "no angles": ("halves", {"rotation": ROTATION.replace("Mul (x, cos)", "Mul (x, x)")}),
    "no projection": ("layout", {"split": "xn = Reshape (q, heads) xs = Neg (xn)"}),
}


@pytest.mark.parametrize(("key", "changes"), NEAR_MISSES.values(), ids=NEAR_MISSES)
def test_near_misses(host: Host, key: str, changes: Any) -> None:
    compiled, report = host.run(model(**changes))
    assert not any(node.op_type == "RotaryEmbedding" for node in compiled.graph.node)
    (record,) = [record for record in report.passes if record.name == "OrtRotaryPass"]
    assert list(record.rejected) == [key]
