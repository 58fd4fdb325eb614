"""Numbers and masks that follow from sizes, as TorchScript computes them."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import onnx
import pytest

from gehost import Host
from gehost.testing import parse
from gehost.verify import Runner, compare_outputs

pytest.importorskip("onnxruntime")

ROOTS = """size = Shape (qt) h = Slice (size, three, endless) f = Cast <to = 1> (h) r = Sqrt (f)
    d = Div (one, r) e = Sqrt (d) qs = Mul (qt, e) ks = Mul (kt, e) a = MatMul (qs, ks)"""
"""1/√H as a root at q and at k: scaled_dot_product_attention."""
TAIL = """size = Shape (qt) rows = Gather (size, two) less = Neg (rows) start = Unsqueeze (less, zero)
    bias = Slice (mask, start, {end}, at {step}) s = MatMul (qt, kt) a = Add (s, bias)"""
"""The last S rows of a mask of S rows: the bias of T5."""


def model(
    scores: str, *, mask: str = "1, 2, S, S", dtype: str = "float", outputs: str = ""
) -> onnx.ModelProto:
    """Attention of two heads of size 4, with ``a`` as its scores."""
    return parse(
        f"""<ir_version: 8, opset_import: ["" : 17]>
    main (float[B, S, 8] q, {dtype}[{mask}] mask) => (float[B, S, 8] y {outputs})
    <int64[4] heads = {{0, 0, 2, 4}}, int64[3] joined = {{0, 0, 8}}, int64[1] three = {{3}}, int64 two = {{2}},
     int64[1] zero = {{0}}, int64[1] at = {{2}}, int64[1] endless = {{9223372036854775807}},
     int64[1] minus = {{-1}}, int64[1] five = {{5}}, int64[1] step = {{1}}, int64[1] double = {{2}}, float one = {{1}}> {{
        h0 = Reshape (q, heads) qt = Transpose <perm = [0, 2, 1, 3]> (h0)
        kt = Transpose <perm = [0, 2, 3, 1]> (h0) {scores} o = Softmax <axis = -1> (a)
        v = MatMul (o, qt) vt = Transpose <perm = [0, 2, 1, 3]> (v) y = Reshape (vt, joined) }}"""
    )


def check(host: Host, run: Any, model: onnx.ModelProto, rows: int, masks: int) -> Counter[str]:
    """Compile, compare numbers, return the operators."""
    compiled, _ = host.run(model)
    drawing = np.random.default_rng(rows)
    inputs = {
        "q": drawing.normal(size=(2, rows, 8)).astype(np.float32),
        "mask": drawing.normal(size=(1, 2, masks, rows)).astype(np.float32),
    }
    expected = Runner(model).run(inputs)
    for one in compare_outputs(expected, run(compiled, inputs), rtol=1e-3, atol=1e-4):
        assert one.equal, one
    return Counter(node.op_type for node in compiled.graph.node)


def test_the_scale_follows_from_the_size_of_a_head(host: Host, run: Any) -> None:
    counts = check(host, run, model(ROOTS), 3, 3)
    assert not counts["Softmax"]
    assert not counts["Sqrt"]


def test_a_number_that_is_an_output_stays(host: Host, run: Any) -> None:
    check(host, run, model(ROOTS, outputs=", float[1] e"), 3, 3)


@pytest.mark.parametrize(("end", "step"), [("endless", ", step"), ("endless", "")])
def test_the_last_rows_of_as_many_are_all(host: Host, run: Any, end: str, step: str) -> None:
    inputs = model(TAIL.format(end=end, step=step))
    for rows in (1, 4):
        assert not check(host, run, inputs, rows, rows)["Softmax"]


@pytest.mark.parametrize(
    ("end", "step", "mask", "rows", "masks"),
    [
        ("endless", ", step", "1, 2, T, S", 3, 5),
        ("endless", ", double", "1, 2, S, S", 1, 1),
        ("minus", ", step", "1, 2, S, S", 2, 2),
        ("five", ", step", "1, 2, S, S", 3, 3),
    ],
    ids=["of more rows", "every second", "without the last", "up to the fifth"],
)
def test_other_rows_are_not_proven(
    host: Host, run: Any, end: str, step: str, mask: str, rows: int, masks: int
) -> None:
    inputs = model(TAIL.format(end=end, step=step), mask=mask)
    assert check(host, run, inputs, rows, masks)["Softmax"] == 1
