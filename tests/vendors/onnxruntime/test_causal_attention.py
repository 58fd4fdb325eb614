"""Attention with a causal mask to the kernel without scores; masks that are not causal alone are refused."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest

from gehost import Host
from gehost.testing import parse
from gehost.verify import Runner, compare_outputs
from tests.conftest import is_older

from .conftest import capped

pytest.importorskip("onnxruntime")

RNG = np.random.default_rng(0)
BIASES = {name: RNG.normal(size=16).astype(np.float32) for name in ("bq", "bk", "bv")}
POSITIONS = """cols = Range (j0, length, j1) flat_rows = Unsqueeze (cols, i1)
    row4 = Reshape (cols, as_rows) col4 = Unsqueeze (cols, front)"""
FORMS = {
    "Trilu": "t = Trilu <upper = 0> (ones) no = Equal (t, nothing) mask = Where (no, lowest, nothing)",
    "Trilu of -inf": "f = Mul (ones, minus_inf) mask = Trilu <upper = 1> (f, j1)",
    "column <= row": "le = LessOrEqual (cols, flat_rows) mask = Where (le, nothing, lowest)",
    "row >= column": "ge = GreaterOrEqual (row4, col4) mask = Where (ge, nothing, minus_inf)",
    "column > row": "gt = Greater (col4, row4) mask = Where (gt, lowest, nothing)",
    "row < column": "lt = Less (row4, col4) keep_ = Not (lt) mask = Where (keep_, nothing, lowest)",
    "and true": "le = LessOrEqual (cols, flat_rows) yes = Cast <to = 9> (ones) a_ = And (le, yes) mask = Where (a_, nothing, lowest)",
    "1 - keep, scaled": """le = LessOrEqual (cols, flat_rows) f = Cast <to = 1> (le) d = Sub (one, f)
        mask = Mul (d, lowest)""",
}
NO_FORMS: dict[str, tuple[str, str]] = {
    "padding besides": (
        "mask",
        "le = LessOrEqual (cols, flat_rows) a_ = And (le, keep) mask = Where (a_, nothing, lowest)",
    ),
    "an unknown fill": ("mask", "le = LessOrEqual (cols, flat_rows) mask = Where (le, nothing, z)"),
    "a fill that leaves something": (
        "mask",
        "le = LessOrEqual (cols, flat_rows) mask = Where (le, nothing, small)",
    ),
    "without the diagonal": (
        "mask",
        "lt = Less (cols, flat_rows) mask = Where (lt, nothing, lowest)",
    ),
    "of the future": (
        "mask",
        "t = Trilu <upper = 1> (ones) no = Equal (t, nothing) mask = Where (no, lowest, nothing)",
    ),
    "a wider band": ("mask", "f = Mul (ones, lowest) mask = Trilu <upper = 1> (f, j2)"),
    "added below the diagonal": (
        "mask",
        "le = LessOrEqual (cols, flat_rows) mask = Where (le, one, lowest)",
    ),
    "rows that start elsewhere": (
        "mask",
        "late = Range (j1, length1, j1) le = LessOrEqual (late, flat_rows) mask = Where (le, nothing, lowest)",
    ),
    "unsigned numbers, where 0 - 1 is 255": (
        "mask",
        """ones8 = Expand (one8, square) t = Trilu <upper = 0> (ones8) d = Sub (t, one8) f = Cast <to = 1> (d)
        mask = Mul (f, large)""",
    ),
    "no mask": ("mask", ""),
}


def model(
    mask: str, *, size: int = 8, biases: bool = False, keys: str = "", length: str = "S"
) -> Any:
    """Attention over 2 heads."""
    names = ("qb", "kb", "vb") if biases else ("q", "k", "v")
    added = "qb = Add (q, bq) kb = Add (k, bk) vb = Add (v, bv)" if biases else ""
    scores = "a = Add (s, mask)" if mask else "a = Identity (s)"
    return parse(
        f"""<ir_version: 8, opset_import: ["" : 17]>
    main (float[B, S, {2 * size}] q, float[B, {length}, {2 * size}] k, float[B, {length}, {2 * size}] v,
          bool[B, 1, S, {length}] keep, float z) => (float[B, S, {2 * size}] out)
    <int64[4] heads = {{0, 0, 2, {size}}}, int64[3] joined = {{0, 0, {2 * size}}}, int64[4] as_rows = {{1, 1, -1, 1}},
     int64[3] front = {{0, 1, 2}}, int64[1] i1 = {{1}}, int64[1] i2 = {{2}}, int64 j0 = {{0}}, int64 j1 = {{1}}, int64 j2 = {{2}}, int64 j3 = {{3}}, int64 jm2 = {{-2}},
     float minus = {{-1}}, float tiny = {{2e-38}}, float half = {{0.5}},
     float scale = {{0.5}}, float nothing = {{0}}, float lowest = {{-3.4e38}}, float small = {{-10000}}, float one = {{1}},
     uint8 one8 = {{1}}, float large = {{1e30}}> {{
        shape = Shape (q) vec = Slice (shape, i1, i2) length = Squeeze (vec) length1 = Add (length, j1)
        square = Concat <axis = 0> (vec, vec) ones = Expand (one, square)
        {POSITIONS} {added} {mask}
        qh = Reshape ({names[0]}, heads) qt = Transpose <perm = [0, 2, 1, 3]> (qh)
        kh = Reshape ({names[1]}, heads) kt0 = Transpose <perm = [0, 2, 1, 3]> (kh) kt = {keys or "Identity"} (kt0)
        vh = Reshape ({names[2]}, heads) vt = Transpose <perm = [0, 2, 1, 3]> (vh)
        kk = Transpose <perm = [0, 1, 3, 2]> (kt) m = MatMul (qt, kk) s = Mul (m, scale) {scores}
        p_ = Softmax <axis = -1> (a) y = MatMul (p_, vt) yt = Transpose <perm = [0, 2, 1, 3]> (y)
        out = Reshape (yt, joined) }}""",
        {
            **(BIASES if biases else {}),
            **({"minus_inf": np.array(-np.inf, np.float32)} if "minus_inf" in mask else {}),
        },
    )


def feeds(batch: int, rows: int) -> Any:
    drawing = {
        name: RNG.normal(size=(batch, rows, 16)).astype(np.float32) for name in ("q", "k", "v")
    }
    return {
        **drawing,
        "keep": np.ones((batch, 1, rows, rows), bool),
        "z": np.array(-1e9, np.float32),
    }


@pytest.mark.parametrize("biases", [False, True], ids=["", "biases"])
@pytest.mark.parametrize("mask", FORMS.values(), ids=FORMS)
def test_causal_masks(host: Host, run: Any, mask: str, biases: bool) -> None:
    inputs = model(mask, biases=biases)
    compiled, _ = host.run(inputs)
    counts = Counter(node.op_type for node in compiled.graph.node)
    assert (counts["GroupQueryAttention"], counts["Softmax"]) == (1, 0)
    assert not counts["Where"] + counts["Trilu"]  # the mask is gone
    (kernel,) = [node for node in compiled.graph.node if node.op_type == "GroupQueryAttention"]
    assert all(kernel.output)  # with fewer outputs the runtime computes all scores at once
    assert len(kernel.output) == 3
    assert_equal_runs(inputs, compiled, run)


@pytest.mark.parametrize(("first", "second"), [(2, 2), (-2, -2), (5, 0.5)])
def test_capped_scores(host: Host, run: Any, first: float, second: float) -> None:
    inputs = capped(model(FORMS["Trilu"]), first, second)
    compiled, _ = host.run(inputs)
    counts = Counter(node.op_type for node in compiled.graph.node)
    assert (counts["GroupQueryAttention"], counts["Softmax"], counts["Tanh"]) == (1, 0, 0)
    (kernel,) = [node for node in compiled.graph.node if node.op_type == "GroupQueryAttention"]
    assert {item.name: item.f for item in kernel.attribute}["softcap"] == abs(first)
    assert_equal_runs(inputs, compiled, run)


@pytest.mark.parametrize(("first", "second"), [(-2, 2), (2, -2)])
def test_one_negative_cap_is_refused(host: Host, first: float, second: float) -> None:
    assert refusals(host, capped(model(FORMS["Trilu"]), first, second)) == ["scale"]


REPEATED = "ku = Unsqueeze (kt0, i2) ke = Expand (ku, times) kt = Reshape (ke, spread)"


@pytest.mark.parametrize("heads", [1, 2])
@pytest.mark.parametrize("mask", [FORMS["Trilu"], FORMS["row >= column"]])
@pytest.mark.parametrize("is_capped", [False, True])
def test_heads_apart_and_repeated_heads(
    host: Host, run: Any, mask: str, heads: int, is_capped: bool
) -> None:
    """k and v as [B, M, S, H]: as they are after rotary, and each for several heads of q."""
    values = capped(grouped(mask, heads)) if is_capped else grouped(mask, heads)
    compiled, _ = host.run(values)
    (kernel,) = [node for node in compiled.graph.node if node.op_type == "GroupQueryAttention"]
    contents = {entry.name: entry.i for entry in kernel.attribute}
    assert (contents["num_heads"], contents["kv_num_heads"]) == (4, heads)
    assert "ke" not in {name for node in compiled.graph.node for name in node.output}
    for batch, rows in ((2, 5), (1, 70), (2, 1)):
        inputs = {
            name: RNG.normal(size=(batch, rows, 8 * count)).astype(np.float32)
            for name, count in (("q", 4), ("k", heads), ("v", heads))
        }
        expected = Runner(values).run(inputs)
        for result in (run(compiled, inputs), Runner(compiled, engine="reference").run(inputs)):
            for one in compare_outputs(expected, result, rtol=1e-3, atol=1e-4):
                assert one.equal, one


def grouped(mask: str, heads: int) -> Any:
    """Four heads of q, negated keys and values apart, each repeated."""
    return parse(
        f"""<ir_version: 8, opset_import: ["" : 17]>
    main (float[B, S, 32] q, float[B, S, {8 * heads}] k, float[B, S, {8 * heads}] v) => (float[B, S, 32] out)
    <int64[4] heads = {{0, 0, 4, 8}}, int64[4] few = {{0, 0, {heads}, 8}}, int64[3] joined = {{0, 0, 32}}, int64[4] as_rows = {{1, 1, -1, 1}},
     int64[4] spread = {{0, 4, -1, 8}}, int64[5] times = {{1, 1, {4 // heads}, 1, 1}},
     int64[3] front = {{0, 1, 2}}, int64[1] i1 = {{1}}, int64[1] i2 = {{2}}, int64 j0 = {{0}}, int64 j1 = {{1}},
     float scale = {{0.5}}, float nothing = {{0}}, float lowest = {{-3.4e38}}, float one = {{1}}> {{
        shape = Shape (q) vec = Slice (shape, i1, i2) length = Squeeze (vec)
        square = Concat <axis = 0> (vec, vec) ones = Expand (one, square)
        {POSITIONS} {mask}
        qh = Reshape (q, heads) qt = Transpose <perm = [0, 2, 1, 3]> (qh)
        kh = Reshape (k, few) kt1 = Transpose <perm = [0, 2, 1, 3]> (kh) kt0 = Neg (kt1)
        vh = Reshape (v, few) vt1 = Transpose <perm = [0, 2, 1, 3]> (vh) vt0 = Neg (vt1)
        {REPEATED} {REPEATED.replace("k", "v")}
        kk = Transpose <perm = [0, 1, 3, 2]> (kt) m = MatMul (qt, kk) s = Mul (m, scale) a = Add (s, mask)
        p_ = Softmax <axis = -1> (a) y = MatMul (p_, vt) yt = Transpose <perm = [0, 2, 1, 3]> (y)
        out = Reshape (yt, joined) }}""",
        {"minus_inf": np.array(-np.inf, np.float32)} if "minus_inf" in mask else {},
    )


def refusals(host: Host, argument: Any) -> list[str]:
    compiled, report = host.run(argument)
    assert not any(node.op_type == "GroupQueryAttention" for node in compiled.graph.node)
    (record,) = [record for record in report.passes if record.name == "OrtCausalAttentionPass"]
    return list(record.rejected)


@pytest.mark.parametrize(("key", "mask"), NO_FORMS.values(), ids=NO_FORMS)
def test_other_masks_are_refused(host: Host, key: str, mask: str) -> None:
    assert refusals(host, model(mask)) == [key]


def test_what_the_kernel_does_not_take(host: Host) -> None:
    assert refusals(host, model(FORMS["Trilu"], size=4)) == ["head size"]


CROSS = """shape_k = Shape (k) vec_k = Slice (shape_k, i1, i2) length_k = Squeeze (vec_k)
        cols_k = Range (j0, length_k, j1) le = LessOrEqual (cols_k, flat_rows)
        mask = Where (le, nothing, lowest)"""
"""Causal from the first key on, of T keys and S queries."""


def test_cross_attention_is_refused(host: Host) -> None:
    assert refusals(host, model(CROSS, length="T")) == ["mask"]


def test_the_mask_of_other_lengths_stays(host: Host) -> None:
    """The kernel lets the last query see the last key."""
    one = host.with_options(enable=["OrtAttentionPass"])
    compiled, _ = one.run(model(CROSS, length="T"))
    (kernel,) = [n for n in compiled.graph.node if n.op_type == "MultiHeadAttention"]
    assert "unidirectional" not in {attribute.name for attribute in kernel.attribute}
    assert kernel.input[5]


WINDOWS = {
    "s - t < 3": "d = Sub (flat_rows, cols) near = Less (d, j3)",
    "s - 3 < t": "first = Sub (flat_rows, j3) near = Greater (cols, first)",
    "Trilu of a band": "band = Trilu <upper = 1> (ones, jm2) near = Cast <to = 9> (band)",
}


@pytest.mark.parametrize("window", WINDOWS.values(), ids=WINDOWS)
@pytest.mark.parametrize("is_one", [True, False], ids=["And", "two addends"])
def test_windows(host: Host, run: Any, window: str, is_one: bool) -> None:
    """Each position sees itself and the two before it."""
    causal = f"le = LessOrEqual (cols, flat_rows) {window} "
    if is_one:
        causal += "a_ = And (le, near) mask = Where (a_, nothing, lowest)"
    else:
        causal += "m0 = Where (le, nothing, lowest) m1 = Where (near, nothing, lowest) mask = Add (m0, m1)"
    inputs = model(causal)
    compiled, report = host.run(inputs)
    (kernel,) = [node for node in compiled.graph.node if node.op_type == "GroupQueryAttention"]
    assert {entry.name: entry.i for entry in kernel.attribute}["local_window_size"] == 3
    assert report.needs == ["onnxruntime>=1.24.1"]  # older ones see one position more
    if not is_older("1.24.1"):
        assert_equal_runs(inputs, compiled, run)
    old, report = host.with_options(target="cpu:1.23.2").run(inputs)
    assert "GroupQueryAttention" not in {node.op_type for node in old.graph.node}
    (record,) = [one for one in report.passes if one.name == "OrtCausalAttentionPass"]
    assert list(record.rejected) == ["local_window_size"]


FOLLOWED_WRONGLY = {
    "the other half, by a negative factor": (
        "le = LessOrEqual (cols, flat_rows) w_ = Where (le, lowest, nothing) mask = Mul (w_, minus)"
    ),
    "a mask that is scaled to a bias": (
        "le = LessOrEqual (cols, flat_rows) w_ = Where (le, nothing, lowest) mask = Mul (w_, tiny)"
    ),
    "half of a truth, rounded to 0": """le = LessOrEqual (cols, flat_rows) f = Cast <to = 1> (le)
        h = Mul (f, half) w = Cast <to = 7> (h) b = Cast <to = 9> (w) mask = Where (b, nothing, lowest)""",
    "positions that wrap at 256": """c8 = Cast <to = 2> (cols) r8 = Cast <to = 2> (flat_rows)
        c = Cast <to = 7> (c8) r = Cast <to = 7> (r8) le = LessOrEqual (c, r) mask = Where (le, nothing, lowest)""",
    "a window of no width": """le = LessOrEqual (cols, flat_rows) ge = Greater (cols, flat_rows)
        a_ = And (le, ge) mask = Where (a_, nothing, lowest)""",
    "a window of an input": """le = LessOrEqual (cols, flat_rows) w = Cast <to = 7> (z) d = Sub (flat_rows, cols)
        near = Less (d, w) a_ = And (le, near) mask = Where (a_, nothing, lowest)""",
}


@pytest.mark.parametrize("mask", FOLLOWED_WRONGLY.values(), ids=FOLLOWED_WRONGLY)
def test_masks_that_look_causal(host: Host, run: Any, mask: str) -> None:
    inputs = model(mask)
    compiled, _ = host.run(inputs)
    assert not any(node.op_type == "GroupQueryAttention" for node in compiled.graph.node)
    assert_equal_runs(inputs, compiled, run, ((2, 5), (1, 1)))


def assert_equal_runs(
    argument: Any, compiled: Any, run: Any, sizes: Any = ((2, 13), (3, 1), (1, 70))
) -> None:
    for batch, rows in sizes:
        inputs = feeds(batch, rows)
        expected = Runner(argument).run(inputs)
        for result in (run(compiled, inputs), Runner(compiled, engine="reference").run(inputs)):
            for one in compare_outputs(expected, result, rtol=1e-3, atol=1e-4):
                assert one.equal, one
