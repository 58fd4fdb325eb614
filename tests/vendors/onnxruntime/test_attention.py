"""Attention to ONNX Runtime's kernel: every form, the exactness of masks, and near misses with their reasons."""

from __future__ import annotations

import math
from collections import Counter
from typing import Any

import numpy as np
import onnx
import pytest

from gehost import Host
from gehost.diagnose.explain.findings import Outcome
from gehost.diagnose.explain.run import explain
from gehost.testing import parse
from gehost.verify import Runner, compare_outputs

pytest.importorskip("onnxruntime")

LOWEST = float(np.finfo(np.float32).min)
FORMS: dict[str, str] = {
    "scale at the product": "kk = Transpose <perm = [0, 1, 3, 2]> (kt) m = MatMul (qt, kk) s = Mul (m, scale)",
    "scale as Div": "kk = Transpose <perm = [0, 1, 3, 2]> (kt) m = MatMul (qt, kk) s = Div (m, inverse)",
    "roots of the scale": """kk = Transpose <perm = [0, 2, 3, 1]> (kh) ks = Mul (kk, root) qs = Mul (root, qt)
        s = MatMul (qs, ks)""",
    "no scale": "kk = Transpose <perm = [0, 2, 3, 1]> (kh) s = MatMul (qt, kk)",
    "k by Reshape, Transpose, Reshape": """kf = Reshape (kt, flat) kft = Transpose <perm = [0, 2, 1]> (kf)
        kk = Reshape (kft, turned) m = MatMul (qt, kk) s = Mul (m, scale)""",
}
MASKS = {
    "": "a = Identity (s)",
    "B1ST": "a = Add (s, mask)",
    "B11T": "a = Add (row_mask, s)",
    "masked_fill": "no = Not (keep) a = Where (no, lowest, s)",
}
SOFTMAX = "p = Softmax <axis = -1> (a)"
MIX = "y = MatMul (p, vt) yt = Transpose <perm = [0, 2, 1, 3]> (y) out = Reshape (yt, joined)"
GUARD = "p0 = Softmax <axis = -1> (a) nan = IsNaN (p0) p = Where (nan, zero, p0)"


def model(
    scores: str = FORMS["scale at the product"],
    mask: str = MASKS["B1ST"],
    softmax: str = SOFTMAX,
    mix: str = MIX,
    *,
    opset: int = 17,
    fill: str = "lowest",
    extra: str = "",
    outputs: str = "float[B, S, 8] out",
    heads: tuple[int, int, int] = (2, 2, 2),
    length: str = "S",
    dtype: str = "float",
    far: float = -math.inf,
) -> onnx.ModelProto:
    """Attention over 2 heads of size 4; the mask is chosen by ``keep`` [B, 1, S, T]."""
    q, k, v = heads
    lowest = LOWEST if dtype != "float16" else -65504.0
    contents = {"scale": 0.5, "inverse": 2.0, "root": math.sqrt(0.5), "negative": -0.5, "low": -6e4}
    contents |= {"zero": 0.0, "lowest": lowest}
    texts = [f"{dtype} {name} = {{{number}}}, " for name, number in contents.items()]
    # the parser has no float16 numbers
    half = dtype == "float16"
    weights = {name: np.array(number, np.float16) for name, number in contents.items() if half}
    weights["far"] = np.array(far, np.float32)  # the parser has no infinity
    numbers = "" if half else "".join(texts)
    text = f"""<ir_version: 8, opset_import: ["" : {opset}]>
    main ({dtype}[B, S, {4 * q}] q, {dtype}[B, {length}, {4 * k}] k, {dtype}[B, {length}, {4 * v}] v,
          bool[B, 1, S, {length}] keep, bool[B, 1, 1, {length}] keep_row) => ({outputs})
    <int64[4] heads = {{0, 0, 2, 4}}, int64[4] k_heads = {{0, 0, {k}, 4}}, int64[4] v_heads = {{0, 0, {v}, 4}}, int64[3] joined = {{0, 0, 8}}, int64[1] last = {{3}},
     {numbers}
     int64[1] i0 = {{0}}, int64[1] i2 = {{2}}, int64[1] i1 = {{1}}, int64[1] i4 = {{4}}, int64[1] i8 = {{8}}, int64[1] minus = {{-1}}, int64 j0 = {{0}}, int64 j2 = {{2}}> {{
        qh = Reshape (q, heads) qt = Transpose <perm = [0, 2, 1, 3]> (qh)
        kh = Reshape (k, k_heads) kt = Transpose <perm = [0, 2, 1, 3]> (kh)
        vh = Reshape (v, v_heads) vt = Transpose <perm = [0, 2, 1, 3]> (vh)
        inf = Log (zero) turned_k = Transpose <perm = [0, 1, 3, 2]> (kt)
        shape = Shape (kt) size = Slice (shape, last, i4) rows = Slice (shape, i2, last) front = Slice (shape, i0, i2)
        flat = Concat <axis = 0> (minus, rows, size) turned = Concat <axis = 0> (front, size, rows)
        mask = Where (keep, zero, {fill}) row_mask = Where (keep_row, zero, {fill})
        {scores} {mask} {softmax} {mix} {extra}
    }}"""
    return parse(text, weights)


def feeds(batch: int = 2, rows: int = 3, columns: int | None = None, heads: int = 2) -> Any:
    """Random q, k, v; a mask that is ragged, with one row masked throughout."""
    rng = np.random.default_rng(0)
    columns = rows if columns is None else columns
    keep = rng.random((batch, 1, rows, columns)) < 0.6
    keep[..., 0] = True
    keep[0, :, -1] = False
    keep_row = np.ones((batch, 1, 1, columns), bool)
    keep_row[0, ..., 0] = False
    keep_row[-1] = False
    shapes = {"q": (batch, rows, 8), "k": (batch, columns, 4 * heads), "v": (batch, columns, 8)}
    drawing = {name: rng.normal(size=shape).astype(np.float32) for name, shape in shapes.items()}
    return {**drawing, "keep": keep, "keep_row": keep_row}


def fused(host: Host, run: Any, model: onnx.ModelProto, **sizes: int) -> Counter[str]:
    """Compile, compare numbers in the runtime and in the reference; the operators."""
    compiled, report = host.run(model)
    counts = Counter(node.op_type for node in compiled.graph.node)
    assert counts["MultiHeadAttention"] == 1, [record.rejected for record in report.passes]
    assert not counts["Softmax"]
    for shape in ({}, {"batch": 1}, {"rows": 1}):
        inputs = feeds(**{**sizes, **shape})
        expected = Runner(model).run(inputs)
        for result in (run(compiled, inputs), Runner(compiled, engine="reference").run(inputs)):
            for one in compare_outputs(expected, result, rtol=1e-3, atol=1e-4):
                assert one.equal, one
    return counts


def refusal(host: Host, model: onnx.ModelProto) -> str:
    compiled, report = host.run(model)
    assert not any(node.op_type == "MultiHeadAttention" for node in compiled.graph.node)
    (record,) = [record for record in report.passes if record.name == "OrtAttentionPass"]
    (reason,) = record.rejected
    return reason


@pytest.mark.parametrize("scores", FORMS.values(), ids=FORMS)
@pytest.mark.parametrize("mask", MASKS.values(), ids=MASKS)
def test_every_form_is_fused(host: Host, run: Any, scores: str, mask: str) -> None:
    counts = fused(host, run, model(scores, mask))
    assert not counts["Transpose"]  # those of the projections are absorbed
    assert not counts["MatMul"]


@pytest.mark.parametrize("opset", [13, 17, 20])
@pytest.mark.parametrize("fill", ["lowest", "inf"])
@pytest.mark.parametrize("mask", ["B1ST", "B11T"])
def test_a_guarded_row_without_positions_is_0(
    host: Host, run: Any, opset: int, fill: str, mask: str
) -> None:
    """Over -inf the guard makes it 0; over a finite fill it never acts, and the row averages v."""
    values = model(mask=MASKS[mask], softmax=GUARD, fill=fill, opset=opset)
    counts = fused(host, run, values)
    assert counts["Where"] == (2 if fill == "inf" else 1)  # the mask; the rows
    inputs = feeds()
    empty = (
        run(host.run(values)[0], inputs)["out"][0, -1]
        if mask == "B1ST"
        else run(host.run(values)[0], inputs)["out"][-1, 0]
    )
    assert bool(np.all(empty == 0)) is (fill == "inf")


def test_an_unguarded_row_of_minus_infinity_stays_nan(host: Host, run: Any) -> None:
    inputs = model(fill="inf")
    fused(host, run, inputs)
    assert np.isnan(run(host.run(inputs)[0], feeds())["out"][0, -1]).all()


def test_values_of_another_width_and_cross_attention(host: Host, run: Any) -> None:
    """T ≠ S with a mask [B, 1, S, T]."""
    fused(host, run, model(length="T"), columns=5)


def test_heads_that_are_no_projection_stay_apart(host: Host, run: Any) -> None:
    """k and v as [B, N, T, H], as after rotary or repeated heads."""
    scores = """turn = Neg (kt) kk = Transpose <perm = [0, 1, 3, 2]> (turn) qr = Neg (qt)
        m = MatMul (qr, kk) s = Mul (m, scale)"""
    counts = fused(host, run, model(scores))
    assert counts["Transpose"] == 4  # q, k, v apart; q together


ROTATED = """qr = Neg (qh) kr = Neg (kh) qrt = Transpose <perm = [0, 2, 1, 3]> (qr) kk = Transpose <perm = [0, 2, 3, 1]> (kr)
    m = MatMul (qrt, kk) s = Mul (m, scale)"""
"""q and k are no projections while their heads are third, as where GPT-J rotates a part of each."""


@pytest.mark.parametrize(
    "mix",
    [MIX, f"vr = Neg (vh) vrt = Transpose <perm = [0, 2, 1, 3]> (vr) {MIX}".replace("vt)", "vrt)")],
    ids=["v a projection", "v like q and k"],
)
def test_heads_that_are_third_are_put_together(host: Host, run: Any, mix: str) -> None:
    counts = fused(host, run, model(ROTATED, mix=mix))
    assert not counts["Transpose"]
    fused(host, run, model(ROTATED, mix=mix, length="T"), columns=5)


def test_keys_rotated_and_read_by_others_too(host: Host, run: Any) -> None:
    keys = ROTATED.replace("kk =", "krt = Transpose <perm = [0, 2, 1, 3]> (kr) kk =")
    keys = keys.replace("[0, 2, 3, 1]> (kr)", "[0, 1, 3, 2]> (krt)")
    outputs = "float[B, S, 8] out, float[B, 2, S, 4] krt"
    assert fused(host, run, model(keys, outputs=outputs))["Transpose"] == 1


CUT = """eights = Concat <axis = 0> (i1, i1, i8, i8) full = Expand (scale, eights) tri = Trilu <upper = 0> (full)
    below = Cast <to = 9> (tri) b0 = Slice (below, i0, least, i2) cut = Slice (b0, i0, least, last)"""
LEAST = """of_q = Shape (q) one = Slice (of_q, i0, i1) two = Slice (of_q, i1, i2) r0 = Squeeze (two) most = Squeeze (i8) smaller = Min (r0, most)
    least = Reshape (smaller, minus)"""


def test_lengths_up_to_the_most_positions(host: Host, run: Any) -> None:
    """The mask is a part of a constant [1, 1, 8, 8], and shapes hold min(8, S), as in GPT-Neo."""
    scores = f"""{LEAST} four = Concat <axis = 0> (one, least, i2, i4) qx = Reshape (q, four)
        qxt = Transpose <perm = [0, 2, 1, 3]> (qx) s = MatMul (qxt, turned_k)"""
    mask = f"{CUT} w = Where (cut, s, lowest) a = Add (w, mask)"
    joined = "three = Concat <axis = 0> (one, least, minus) out = Reshape (yt, three)"
    values = model(scores, mask, mix=MIX.replace("out = Reshape (yt, joined)", joined))
    fused(host, run, values)
    for rows in (8, 9):  # of nine neither runs: the mask has eight
        compiled, inputs = host.run(values)[0], feeds(rows=rows)
        if rows == 9:
            with pytest.raises(Exception, match="hape|broadcast|size"):
                run(values, inputs)
            with pytest.raises(Exception, match="hape|broadcast|size"):
                run(compiled, inputs)
        else:
            expected, result = Runner(values).run(inputs), run(compiled, inputs)
            assert all(one.equal for one in compare_outputs(expected, result, atol=1e-5))


def test_mask_as_wide_as_the_scores(host: Host, run: Any) -> None:
    """Keys are the last 3 of the past and all new ones, min(P + S, S + 3); the mask has S + 3."""
    model = parse("""<ir_version: 8, opset_import: ["" : 17]>
        main (float[B, S, 8] q, float[B, S, 8] k, float[B, P, 8] past) => (float[B, S, 8] out)
        <int64[4] heads = {0, 0, 2, 4}, int64[3] joined = {0, 0, 8}, int64[1] i0 = {0},
         int64[1] i1 = {1}, int64[1] i2 = {2}, int64[1] back = {-3}, int64[1] end = {9223372036854775807},
         int64[1] three = {3}, int64 j0 = {0}, int64 j1 = {1}, int64 j3 = {3}, float zero = {0},
         float low = {-60000}, float scale = {0.5}, int64[3] row_axes = {0, 1, 3}, int64[3] column_axes = {0, 1, 2}> {
            qh = Reshape (q, heads) qt = Transpose <perm = [0, 2, 1, 3]> (qh)
            last = Slice (past, back, end, i1) all = Concat <axis = 1> (last, k)
            kh = Reshape (all, heads) kt = Transpose <perm = [0, 2, 1, 3]> (kh)
            kk = Transpose <perm = [0, 1, 3, 2]> (kt) m = MatMul (qt, kk) s = Mul (m, scale)
            shape = Shape (q) rows = Slice (shape, i1, i2) count = Squeeze (rows) columns = Add (count, j3)
            row = Range (j0, count, j1) column = Range (j0, columns, j1)
            rowu = Unsqueeze (row, row_axes) columnu = Unsqueeze (column, column_axes)
            shifted = Add (rowu, j3) keep = LessOrEqual (columnu, shifted) mask = Where (keep, zero, low)
            a = Add (s, mask) p = Softmax <axis = -1> (a) y = MatMul (p, kt)
            yt = Transpose <perm = [0, 2, 1, 3]> (y) out = Reshape (yt, joined)
        }""")
    compiled, report = host.run(model)
    counts = Counter(node.op_type for node in compiled.graph.node)
    assert counts["MultiHeadAttention"] == 1, [record.rejected for record in report.passes]
    rng = np.random.default_rng(0)
    for past in (3, 5):  # with fewer the mask is wider than the scores, and neither runs
        inputs = {
            name: rng.normal(size=(2, rows, 8)).astype(np.float32)
            for name, rows in (("q", 4), ("k", 4), ("past", past))
        }
        expected, result = Runner(model).run(inputs), run(compiled, inputs)
        assert all(one.equal for one in compare_outputs(expected, result, atol=1e-5))


SUFFIX = """wide = Concat <axis = 0> (i1, i1, i8, i1) table = Expand (scale, wide) begin = Reshape (start, minus)
    end = Constant <value_ints = [9223372036854775807]> () of_rows = Slice (table, begin, end, i2)
    t = Add (s, of_rows) a = Add (t, mask)"""
SUFFIXES = {
    "Sub": "over = Sub (most, r0) start = Max (j0, over)",
    "Add of a product with -1": """less = Squeeze (minus) negated = Mul (r0, less) over = Add (most, negated)
        start = Max (over, j0)""",
    "of at most seven rows": "j1 = Squeeze (i1) over = Sub (most, r0) start = Max (j1, over)",
}


@pytest.mark.parametrize("start", SUFFIXES.values(), ids=SUFFIXES)
def test_a_bias_cut_from_its_end(host: Host, run: Any, start: str) -> None:
    """Of min(8, S) rows, as in MPT."""
    fused(host, run, model(mask=f"{LEAST} {start} {SUFFIX}"))


@pytest.mark.parametrize(
    "start",
    [
        "seven = Sub (most, j1) over = Sub (seven, r0) start = Max (j0, over)",
        "over = Sub (r0, most) start = Max (j0, over)",
    ],
    ids=["of another size", "the other way round"],
)
def test_a_bias_cut_otherwise_is_refused(host: Host, start: str) -> None:
    inputs = model(mask=f"{LEAST} j1 = Squeeze (i1) {start} {SUFFIX}")
    assert refusal(host, inputs) == "scores"


@pytest.mark.parametrize(
    "mask", ["c = Tanh (s) d = Mul (c, scale) a = Add (d, mask)", "a = Tanh (s)"]
)
def test_a_feature_that_the_kernel_lacks_is_refused_by_its_name(host: Host, mask: str) -> None:
    findings = explain(model(mask=mask), "OrtAttentionPass", host.options).findings
    assert [finding.reason for finding in findings] == ["softcap: the kernel takes none"]


@pytest.mark.parametrize("softmax", [SOFTMAX, GUARD], ids=["", "guard"])
@pytest.mark.parametrize("added", ["a = Identity (w)", "a = Add (row_mask, w)"], ids=["", "mask"])
@pytest.mark.parametrize(
    "where", ["Where (keep, s, far)", "Where (no, far, s)", "Where (keep, s, lowest)"]
)
def test_filled_scores_and_a_mask_behind(
    host: Host, run: Any, where: str, added: str, softmax: str
) -> None:
    """Over -inf, a row without positions is NaN, or 0 behind a guard, as before."""
    fused(host, run, model(mask=f"no = Not (keep) w = {where} {added}", softmax=softmax))


def test_the_mask_of_filled_scores_is_made_once(host: Host, run: Any) -> None:
    layer = """m_ = MatMul (qt, kk) a_ = Where (keep, m_, lowest) p_ = Softmax <axis = -1> (a_) y_ = MatMul (p_, vt)
        yt_ = Transpose <perm = [0, 2, 1, 3]> (y_) out_ = Reshape (yt_, joined)"""
    both = "float[B, S, 8] out, float[B, S, 8] out_"
    inputs = model(mask="a = Where (keep, s, lowest)", extra=layer, outputs=both)
    compiled, _ = host.run(inputs)
    counts = Counter(node.op_type for node in compiled.graph.node)
    assert (counts["MultiHeadAttention"], counts["Where"], counts["Softmax"]) == (2, 1, 0)
    for one in compare_outputs(Runner(inputs).run(feeds()), run(compiled, feeds())):
        assert one.equal, one


@pytest.mark.parametrize(
    ("key", "changes"),
    [
        ("mask", {"mask": "a = Where (keep, s, low)"}),
        (
            "scale",
            {
                "scores": FORMS["scale at the product"].replace("scale", "lowest"),
                "mask": "a = Where (keep, s, lowest)",
            },
        ),
        ("mask", {"mask": "tops = ReduceMax <keepdims = 0> (q) a = Where (keep, s, tops)"}),
        (
            "dtype",
            {
                "mask": "a = Where (keep, s, lowest)",
                "dtype": "double",
                "outputs": "double[B, S, 8] out",
            },
        ),
    ],
)
def test_scores_filled_otherwise_are_refused(host: Host, key: str, changes: Any) -> None:
    """Over -6e4, a row without positions is not the same: a sum keeps a part of the scores."""
    assert refusal(host, model(**changes)) == key


FOLDED = """qf = Reshape (qt, flat) kf = Reshape (kt, flat) kk = Transpose <perm = [0, 2, 1]> (kf) m = MatMul (qf, kk)
    unfolded = Concat <axis = 0> (front, rows, rows) folded = Concat <axis = 0> (minus, rows, rows)"""
FOLDED_MASK = "s4 = Reshape (s, unfolded) a4 = Add (s4, mask) a = Reshape (a4, folded)"
FOLDED_MIX = """vf = Reshape (vt, flat) yf = MatMul (p, vf) two = Slice (shape, i1, i2) apart = Concat <axis = 0> (minus, two, rows, size) y = Reshape (yf, apart)
    yt = Transpose <perm = [0, 2, 1, 3]> (y) out = Reshape (yt, joined)"""
FOLDED_FORMS: dict[str, tuple[str, str, str]] = {
    "a mask": (f"{FOLDED} s = Mul (m, scale)", FOLDED_MASK, SOFTMAX),
    "a mask on the left, guard": (
        f"{FOLDED} s = Mul (scale, m)",
        "s4 = Reshape (s, unfolded) a4 = Add (row_mask, s4) a = Reshape (a4, folded)",
        GUARD,
    ),
    "no mask": (f"{FOLDED} s = Div (m, inverse)", MASKS[""], SOFTMAX),
    "softmax of rank 4": (
        f"{FOLDED} s = Reshape (m, unfolded)",
        MASKS["B1ST"],
        "p4 = Softmax <axis = 3> (a) p = Reshape (p4, folded)",
    ),
    "a mask of the positions": (
        f"{FOLDED} s = Mul (m, scale)",
        "e = ReduceMin <axes = [0], keepdims = 1> (mask) e3 = Squeeze (e, i1) a = Add (s, e3)",
        SOFTMAX,
    ),
    "scale of q, k transposed with its heads": (
        """unfolded = Concat <axis = 0> (front, rows, rows) folded = Concat <axis = 0> (minus, rows, rows)
        flat_k = Concat <axis = 0> (minus, size, rows) qs = Mul (qt, scale) qf = Reshape (qs, flat) qr = Mul (qf, root)
        kk = Transpose <perm = [0, 2, 3, 1]> (kh) kf = Reshape (kk, flat_k) s = MatMul (qr, kf)""",
        FOLDED_MASK,
        SOFTMAX,
    ),
}


@pytest.mark.parametrize("form", FOLDED_FORMS.values(), ids=FOLDED_FORMS)
@pytest.mark.parametrize("fill", ["lowest", "inf"])
def test_products_over_batch_and_heads_in_one_axis(
    host: Host, run: Any, form: tuple[str, str, str], fill: str
) -> None:
    counts = fused(host, run, model(*form, FOLDED_MIX, fill=fill))
    assert not counts["Transpose"]
    assert not counts["MatMul"]
    assert not counts["Reshape"]  # the first axis, B·2 and then -1, is proven to be B


def test_a_batch_is_followed_through_the_axis_of_batch_and_heads(host: Host, run: Any) -> None:
    """q and k of the second attention come from the first one, v from an input."""
    second = """whole = Concat <axis = 0> (minus, rows, i8) o1 = Reshape (yt, whole) q2 = Reshape (o1, heads)
        qt2 = Transpose <perm = [0, 2, 1, 3]> (q2) kt2 = Transpose <perm = [0, 2, 3, 1]> (q2) s2 = MatMul (qt2, kt2)
        p2 = Softmax <axis = -1> (s2) y2 = MatMul (p2, vt) yt2 = Transpose <perm = [0, 2, 1, 3]> (y2) out = Reshape (yt2, joined)"""
    first = FOLDED_MIX.replace("out = Reshape (yt, joined)", second)
    inputs = model(f"{FOLDED} s = Mul (m, scale)", FOLDED_MASK, mix=first)
    compiled, report = host.run(inputs)
    counts = Counter(node.op_type for node in compiled.graph.node)
    assert counts["MultiHeadAttention"] == 2, [record.rejected for record in report.passes]
    for one in compare_outputs(Runner(inputs).run(feeds()), run(compiled, feeds())):
        assert one.equal, one


def test_sizes_of_slices_and_of_resized_tensors(host: Host, run: Any) -> None:
    mask = """kept = Cast <to = 1> (keep) all = ReduceMax <axes = [0]> (kept) more = CumSum (all, j2)
        eights = Concat <axis = 0> (i1, i1, i8, i8) e8 = Resize <mode = "nearest"> (more, , , eights)
        edge = Slice (e8, minus, i8, last) one_row = Concat <axis = 0> (i1, i1, rows, i1)
        e = Resize <mode = "nearest"> (edge, , , one_row) a = Add (s, e)"""
    fused(host, run, model(mask=mask))


FOLDED_OTHERWISE: dict[str, dict[str, str]] = {
    "heads before the batch": {
        "mix": """vf = Reshape (vt, flat) yf = MatMul (p, vf) two = Slice (shape, i1, i2) apart = Concat <axis = 0> (two, minus, rows, size)
        y = Reshape (yf, apart) yt = Transpose <perm = [0, 2, 1, 3]> (y) whole = Concat <axis = 0> (minus, rows, i8) out = Reshape (yt, whole)"""
    },
    "a mask of all heads in one axis": {
        "mask": "all = Concat <axis = 0> (front, rows, rows) e4 = Expand (mask, all) e = Reshape (e4, folded) a = Add (s, e)"
    },
    "v not of heads": {
        "mix": """vf0 = Reshape (vt, flat) vf = Neg (vf0) yf = MatMul (p, vf) apart = Concat <axis = 0> (front, rows, size)
        y = Reshape (yf, apart) yt = Transpose <perm = [0, 2, 1, 3]> (y) out = Reshape (yt, joined)"""
    },
}


@pytest.mark.parametrize("changes", FOLDED_OTHERWISE.values(), ids=list(FOLDED_OTHERWISE))
def test_batch_and_heads_in_one_axis_otherwise(host: Host, run: Any, changes: Any) -> None:
    parts: dict[str, Any] = {"mask": FOLDED_MASK, "mix": FOLDED_MIX, **changes}
    fused(host, run, model(f"{FOLDED} s = Mul (m, scale)", **parts))


def test_scores_apart_in_another_order_are_refused(host: Host) -> None:
    mask = {
        "mask": """first = Slice (shape, i0, i1) count = Slice (shape, i1, i2) other = Concat <axis = 0> (first, rows, count, rows)
        s4 = Reshape (s, other) e = ReduceMin <axes = [0, 2]> (mask) a4 = Add (s4, e) a = Reshape (a4, folded)"""
    }
    inputs = model(f"{FOLDED} s = Mul (m, scale)", mix=FOLDED_MIX, **mask)
    assert refusal(host, inputs) == "scores"


OTHER_FORMS: dict[str, Any] = {
    "a scale that is a tensor": {
        "scores": "kk = Transpose <perm = [0, 1, 3, 2]> (kt) m = MatMul (qt, kk) e = ReduceMax <keepdims = 0> (q) s = Mul (m, e)"
    },
    "a mask of rank 3": {"mask": "e = Squeeze (row_mask, i1) a = Add (s, e)"},
    "a mask of each head, whose rows a guard makes 0": {
        "mask": "e = Concat <axis = 1> (mask, mask) a = Add (s, e)",
        "softmax": GUARD,
        "fill": "inf",
    },
    "heads of k third, those of v second and no projection": {
        "scores": ROTATED,
        "mix": "vr = Neg (vt) " + MIX.replace("(p, vt)", "(p, vr)"),
    },
    "heads put together in another order": {
        "mix": "y = MatMul (p, vt) yt = Transpose <perm = [0, 2, 3, 1]> (y) out = Reshape (yt, joined)"
    },
    "the keys not transposed": {
        "scores": "kk = Neg (turned_k) m = MatMul (qt, kk) s = Mul (m, scale)"
    },
}


@pytest.mark.parametrize("changes", OTHER_FORMS.values(), ids=OTHER_FORMS)
def test_other_forms_are_fused(host: Host, run: Any, changes: Any) -> None:
    fused(host, run, model(**changes))


COMPUTED_ROWS = {
    "mask": MASKS["B11T"],
    "scores": """nz = NonZero (q) first = Gather (nz, j0) picked = Gather <axis = 1> (q, first)
        qx = Reshape (picked, heads) qxt = Transpose <perm = [0, 2, 1, 3]> (qx)
        kk = Transpose <perm = [0, 1, 3, 2]> (kt) m = MatMul (qxt, kk) s = Mul (m, scale)""",
}


@pytest.mark.parametrize(
    ("changes", "width"),
    [({"heads": (2, 1, 1)}, 4), (COMPUTED_ROWS, 8)],
    ids=["one head of k and v is repeated", "a mask of a row, expanded to a computed size"],
)
def test_what_is_expanded(host: Host, run: Any, changes: Any, width: int) -> None:
    values = model(**changes)
    compiled, _ = host.run(values)
    assert Counter(node.op_type for node in compiled.graph.node)["MultiHeadAttention"] == 1
    inputs = feeds()
    inputs |= {name: inputs[name][..., :width] for name in "kv"}
    for one in compare_outputs(Runner(values).run(inputs), run(compiled, inputs)):
        assert one.equal, one


NEAR_MISSES: dict[str, tuple[str, Any]] = {
    "scale after a mask that may hold any number": (
        "mask",
        {"mask": "a0 = Add (s, mask) a = Mul (a0, scale)", "fill": "low"},
    ),
    "softmax over another axis": ("values", {"softmax": "p = Softmax <axis = 2> (a)"}),
    "probabilities that are also read": (
        "probabilities",
        {"extra": "twice = Neg (p)", "outputs": "float[B, S, 8] out, float[B, 2, S, S] twice"},
    ),
    "probabilities that are an output": (
        "probabilities",
        {"outputs": "float[B, S, 8] out, float[B, 2, S, S] p"},
    ),
    "a mask whose sizes are not proven": (
        "addend",
        {"mask": "e = Transpose <perm = [2, 1, 0, 3]> (mask) a = Add (s, e)"},
    ),
    "a scale of 0, which a kernel takes for its default": (
        "scale",
        {"scores": "m = MatMul (qt, turned_k) s = Mul (m, zero)"},
    ),
    "a negative scale": (
        "scale",
        {"scores": "m = MatMul (qt, turned_k) s = Mul (m, negative)"},
    ),
    "scores in float64": (
        "dtype",
        {
            "mask": "s64 = Cast <to = 11> (s) m64 = Cast <to = 11> (mask) a = Add (s64, m64)",
            "softmax": "p64 = Softmax <axis = -1> (a) p = Cast <to = 1> (p64)",
        },
    ),
    "another dtype": ("dtype", {"dtype": "double", "outputs": "double[B, S, 8] out"}),
}


@pytest.mark.parametrize(("key", "changes"), NEAR_MISSES.values(), ids=NEAR_MISSES)
def test_near_misses_are_refused_with_the_reason(host: Host, key: str, changes: Any) -> None:
    assert refusal(host, model(**changes)) == key


@pytest.mark.parametrize(("key", "changes"), NEAR_MISSES.values(), ids=NEAR_MISSES)
def test_explain_shows_the_reason(host: Host, key: str, changes: Any) -> None:
    findings = explain(model(**changes), "OrtAttentionPass", host.options).findings
    (refused,) = [finding for finding in findings if finding.outcome is Outcome.REFUSED]
    assert refused.op == "Softmax"
    assert refused.reason.startswith(f"{key}: ")


def test_attention_in_bodies_is_fused(host: Host, run: Any) -> None:
    inner = model()
    body = onnx.GraphProto()
    body.CopyFrom(inner.graph)
    del body.input[:]
    result = onnx.helper.make_node("If", ["c"], ["y"], then_branch=body, else_branch=body)
    outer = onnx.ModelProto()
    outer.CopyFrom(inner)
    outer.graph.ClearField("initializer")
    outer.graph.ClearField("node")
    outer.graph.ClearField("value_info")
    outer.graph.node.append(result)
    outer.graph.input.append(onnx.helper.make_tensor_value_info("c", onnx.TensorProto.BOOL, []))
    outer.graph.output[0].name = "y"
    compiled, report = host.run(outer)
    (record,) = [one for one in report.passes if one.name == "OrtAttentionPass"]
    assert record.replaced == 2
    for chosen in (True, False):
        inputs = {**feeds(), "c": np.array(chosen)}
        for one in compare_outputs(Runner(outer).run(inputs), run(compiled, inputs)):
            assert one.equal, one


def test_below_opset_13_it_says_so(host: Host) -> None:
    model = parse(
        '<ir_version: 8, opset_import: ["" : 12]> g (float[2] x) => (float[2] y) { y = Relu (x) }'
    )
    _, report = host.run(model)
    (record,) = [one for one in report.passes if one.name == "OrtAttentionPass"]
    assert record.message == "needs opset 13 or newer, the model has 12"
