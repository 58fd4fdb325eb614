"""Products between reshapes to products of rows; near misses with their reasons."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest

from gehost import Host
from gehost.testing import parse
from gehost.verify import compare

GEMM = "g = Gemm (f, w, b)"
WEIGHTS = {
    "w": np.random.default_rng(0).normal(size=(8, 6)).astype(np.float32),
    "wt": np.random.default_rng(1).normal(size=(6, 8)).astype(np.float32),
    "b": np.arange(6, dtype=np.float32),
    "one": np.arange(1, dtype=np.float32) + 1,
    "flat": np.array([-1, 8]),
    "other": np.array([-1, 4]),
    "heads": np.array([0, 0, 2, 3]),
}


def model(
    gemm: str = GEMM,
    *,
    x: str = "float[B, S, 8]",
    flat: str = "flat",
    rows: str = "B, S",
    outputs: str = "float[B, S, 6] y",
    extra: str = "",
) -> Any:
    """x flattened, projected, and put back into the rows that ``rows`` names."""
    front = {"B, S": "(x, zero, two)", "S, B": "(x, zero, two)"}[rows]
    order = "e" if rows == "B, S" else "turned"
    return parse(
        f"""<ir_version: 8, opset_import: ["" : 17]>
    main ({x} x) => ({outputs})
    <int64[1] zero = {{0}}, int64[1] one_ = {{1}}, int64[1] two = {{2}}, int64[1] six = {{6}}> {{
        s = Shape (x) e = Slice {front.replace("x", "s")} e0 = Slice (s, zero, one_) e1 = Slice (s, one_, two)
        turned = Concat <axis = 0> (e1, e0) t = Concat <axis = 0> ({order}, six)
        f = Reshape (x, {flat}) {gemm} y = Reshape (g, t) {extra} }}""",
        WEIGHTS,
    )


def found(host: Host, argument: Any) -> tuple[Counter[str], list[str]]:
    compiled, report = host.run(argument)
    result = compare(argument, compiled)
    assert result.equal, result.summary()
    (record,) = [record for record in report.passes if record.name == "OrtProjectionPass"]
    return Counter(node.op_type for node in compiled.graph.node), list(record.rejected)


@pytest.mark.parametrize(
    ("gemm", "operators"),
    [
        (GEMM, {"MatMul": 1, "Add": 1}),
        ("g = Gemm (f, w)", {"MatMul": 1}),
        ("g = Gemm <transB = 1> (f, wt, b)", {"MatMul": 1, "Add": 1}),
    ],
    ids=["bias", "no bias", "transposed"],
)
def test_reshapes_go(host: Host, gemm: str, operators: dict[str, int]) -> None:
    assert found(host, model(gemm)) == (operators, [])


def test_heads_are_put_together(host: Host) -> None:
    """[B, S, 2, 4] flattened at once."""
    counts, _ = found(host, model(x="float[B, S, 2, 4]"))
    assert (counts["Gemm"], counts["MatMul"], counts["Reshape"]) == (0, 1, 1)


def test_a_width_that_is_a_number_where_no_tensor_is_empty(host: Host) -> None:
    """x is [B, either(S, 2), 8 * S // either(S, 2)], since a 0 in the shape of a Reshape copies a size."""
    model = parse(
        """<ir_version: 8, opset_import: ["" : 17]>
        main (float[B, 2, S, 4] q) => (float[B, S, 6] y)
        <int64[2] rows = {0, 2}, int64[1] zero = {0}, int64[1] two = {2}, int64[1] six = {6}, int64[1] rest = {-1}> {
            qs = Shape (q) bs = Gather (qs, rows) j = Concat <axis = 0> (bs, rest) r = Relu (q) x = Reshape (r, j)
            s = Shape (x) e = Slice (s, zero, two) t = Concat <axis = 0> (e, six)
            f = Reshape (x, flat) g = Gemm (f, w, b) y = Reshape (g, t) }""",
        {name: WEIGHTS[name] for name in ("w", "b", "flat")},
    )
    counts, rejected = found(host, model)
    assert (counts["Gemm"], counts["MatMul"], rejected) == (0, 1, [])


def test_a_flattened_tensor_that_others_read_stays(host: Host) -> None:
    counts, _ = found(host, model(outputs="float[B, S, 6] y, float[R, 8] f"))
    assert (counts["Gemm"], counts["MatMul"], counts["Reshape"]) == (0, 1, 1)


NEAR_MISSES: dict[str, tuple[str, Any]] = {
    "rows in another order": ("rows", {"rows": "S, B", "outputs": "float[S, B, 6] y"}),
    "a width that is not known": ("rows", {"x": "float[B, S, D]"}),
    "alpha": ("attributes", {"gemm": "g = Gemm <alpha = 2.0> (f, w, b)"}),
    "beta": ("attributes", {"gemm": "g = Gemm <beta = 2.0> (f, w, b)"}),
    "a bias that is broadcast": ("weights", {"gemm": "g = Gemm (f, w, one)"}),
    "a weight that is computed": (
        "weights",
        {"gemm": "v0 = ReduceSum <keepdims = 0> (x) v = Mul (w, v0) g = Gemm (f, v)"},
    ),
    "a product that is an output": ("shared", {"outputs": "float[B, S, 6] y, float[R, 6] g"}),
}


@pytest.mark.parametrize(("key", "changes"), NEAR_MISSES.values(), ids=NEAR_MISSES)
def test_near_misses(host: Host, key: str, changes: Any) -> None:
    counts, reasons = found(host, model(**changes))
    assert reasons == [key]
    assert counts["Gemm"] == 1
