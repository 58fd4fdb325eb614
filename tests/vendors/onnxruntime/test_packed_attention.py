"""Attention with its projections to one kernel; near misses with their reasons."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest

from gehost import Host
from gehost.testing import parse
from gehost.verify import Runner, compare_outputs

pytest.importorskip("onnxruntime")

RNG = np.random.default_rng(0)
WEIGHTS = {
    **{name: RNG.normal(size=(6, 8)).astype(np.float32) for name in ("wq", "wk")},
    "wv": RNG.normal(size=(6, 12)).astype(np.float32),
    "w": RNG.normal(size=(6, 28)).astype(np.float32),
    "b": RNG.normal(size=28).astype(np.float32),
    **{name: RNG.normal(size=8).astype(np.float32) for name in ("bq", "bk")},
    "bv": RNG.normal(size=12).astype(np.float32),
}
THREE = "q = MatMul (x, wq) k = MatMul (x, wk) v = MatMul (x, wv)"
BIASES = """q0 = MatMul (x, wq) q = Add (q0, bq) k0 = MatMul (x, wk) k = Add (bk, k0)
    v0 = MatMul (x, wv) v = Add (v0, bv)"""
ONE = "p = MatMul (x, w) q, k, v = Split <axis = 2> (p, parts)"
ONE_BIAS = "p0 = MatMul (x, w) p = Add (b, p0) q, k, v = Split <axis = -1> (p, parts)"


def model(
    projections: str = THREE, *, mask: bool = False, outputs: str = "", keys: str = ""
) -> Any:
    """Attention over 2 heads of q and k of size 4 and v of size 6."""
    scores = "a = Add (s, mask)" if mask else "a = Identity (s)"
    return parse(
        f"""<ir_version: 8, opset_import: ["" : 17]>
    main (float[B, S, 6] x, float[B, S, 6] z, bool[B, 1, S, S] keep) => (float[B, S, 12] out{outputs})
    <int64[4] heads = {{0, 0, 2, 4}}, int64[4] v_heads = {{0, 0, 2, 6}}, int64[3] joined = {{0, 0, 12}},
     int64[3] parts = {{8, 8, 12}}, float scale = {{0.5}}, float nothing = {{0}}, float lowest = {{-3.4e38}}> {{
        {projections}
        qh = Reshape (q, heads) qt = Transpose <perm = [0, 2, 1, 3]> (qh)
        kh = Reshape (k, heads) kt0 = Transpose <perm = [0, 2, 1, 3]> (kh) kt = {keys or "Identity"} (kt0)
        vh = Reshape (v, v_heads) vt = Transpose <perm = [0, 2, 1, 3]> (vh)
        mask = Where (keep, nothing, lowest)
        kk = Transpose <perm = [0, 1, 3, 2]> (kt) m = MatMul (qt, kk) s = Mul (m, scale) {scores}
        p_ = Softmax <axis = -1> (a) y = MatMul (p_, vt) yt = Transpose <perm = [0, 2, 1, 3]> (y)
        out = Reshape (yt, joined) }}""",
        WEIGHTS,
    )


@pytest.mark.parametrize("mask", [False, True], ids=["no mask", "mask"])
@pytest.mark.parametrize(
    "projections", [THREE, BIASES, ONE, ONE_BIAS], ids=["three", "biases", "one", "one, bias"]
)
def test_projections_are_packed(host: Host, run: Any, projections: str, mask: bool) -> None:
    values = model(projections, mask=mask)
    compiled, _ = host.run(values)
    counts = Counter(node.op_type for node in compiled.graph.node)
    assert counts == ({"Attention": 1, "Where": 1} if mask else {"Attention": 1})
    for batch, rows in ((2, 5), (1, 5), (2, 1)):
        keep = RNG.random((batch, 1, rows, rows)) < 0.6
        keep[0, :, -1] = False  # a row without positions
        x = RNG.normal(size=(batch, rows, 6)).astype(np.float32)
        inputs = {"x": x, "z": x, "keep": keep}
        expected = Runner(values).run(inputs)
        for result in (run(compiled, inputs), Runner(compiled, engine="reference").run(inputs)):
            for one in compare_outputs(expected, result, rtol=1e-3, atol=1e-4):
                assert one.equal, one


NEAR_MISSES: dict[str, tuple[str, Any]] = {
    "keys that are rotated": ("layout", {"keys": "Neg"}),
    "cross attention": ("input", {"projections": THREE.replace("k = MatMul (x", "k = MatMul (z")}),
    "a projection that is an output": ("shared", {"outputs": ", float[B, S, 8] k"}),
    "a product that is an output": (  # so that its sum with the bias is no part of it
        "layout",
        {"projections": ONE_BIAS, "outputs": ", float[B, S, 28] p0"},
    ),
    "a weight that is computed": (
        "weight",
        {
            "projections": "n = ReduceSum <keepdims = 0> (z) wn = Mul (wq, n) "
            + THREE.replace("(x, wq)", "(x, wn)")
        },
    ),
    "parts in another order": ("layout", {"projections": ONE.replace("q, k, v", "k, q, v")}),
}


@pytest.mark.parametrize(("key", "changes"), NEAR_MISSES.values(), ids=NEAR_MISSES)
def test_near_misses(host: Host, key: str, changes: Any) -> None:
    compiled, report = host.run(model(**changes))
    assert not any(node.op_type == "Attention" for node in compiled.graph.node)
    (record,) = [record for record in report.passes if record.name == "OrtPackedAttentionPass"]
    assert list(record.rejected) == [key]
