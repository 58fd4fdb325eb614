"""Attention of opset 23: every form, rows without positions, repeated heads, and which masks are refused."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

import numpy as np
import onnx
import pytest

from gehost import Host
from gehost.testing import parse
from gehost.tune.run import _requires  # pyright: ignore[reportPrivateUsage]
from gehost.verify import Runner, compare_outputs

from .test_attention import FORMS, GUARD, MASKS, SOFTMAX, feeds, model

pytest.importorskip("onnxruntime")

OFF = ["OrtPackedAttentionPass", "OrtCausalAttentionPass"]
REPEATED = """ku = Unsqueeze (kt, i2) ke = Expand (ku, times) kr = Reshape (ke, spread)
    vu = Unsqueeze (vt, i2) ve = Expand (vu, times) vr = Reshape (ve, spread)"""


@pytest.fixture(scope="module")
def standard(host: Host) -> Host:
    """The vendor's host, without the other kernels of attention."""
    on = [name for name in host.options.enable if name not in OFF]
    return Host(replace(host.options, enable=on))


@pytest.fixture(scope="module")
def assuming(standard: Host) -> Host:
    return Host(replace(standard.options, assume=["no-empty-rows", "no-empty-inputs"]))


def full(argument: Any) -> Any:
    """The same feeds with a position in each row."""
    keep, keep_row = argument["keep"].copy(), argument["keep_row"].copy()
    keep[..., 0] = keep_row[..., -1] = True
    return {**argument, "keep": keep, "keep_row": keep_row}


def operators(result: onnx.ModelProto) -> Counter[str]:
    return Counter(node.op_type for node in result.graph.node)


def fused(
    host: Host, run: Any, model: onnx.ModelProto, *, empty: bool = True, **sizes: int
) -> Counter[str]:
    """Compile; compare numbers in the runtime, and in the reference where it has no empty rows."""
    compiled, report = host.run(model)
    counts = operators(compiled)
    assert counts["Attention"] == 1, [record.rejected for record in report.passes]
    assert not counts["Softmax"] + counts["MultiHeadAttention"]
    for shape in ({}, {"batch": 1}, {"rows": 1}):
        inputs = feeds(**{**sizes, **shape})
        for drawing in (inputs, full(inputs)) if empty else (full(inputs),):
            assert_equal(Runner(model).run(drawing), run(compiled, drawing))
        drawing = full(inputs)
        assert_equal(Runner(model).run(drawing), Runner(compiled, engine="reference").run(drawing))
    return counts


def assert_equal(expected: Any, result: Any) -> None:
    for one in compare_outputs(expected, result, rtol=1e-3, atol=1e-4):
        assert one.equal, one


def refusal(host: Host, model: onnx.ModelProto) -> str:
    compiled, report = host.run(model)
    assert operators(compiled)["MultiHeadAttention"] == 1
    (record,) = [one for one in report.passes if one.name == "OrtStandardAttentionPass"]
    (reason,) = record.rejected
    return reason


@pytest.mark.parametrize("scores", FORMS.values(), ids=FORMS)
@pytest.mark.parametrize("mask", MASKS.values(), ids=MASKS)
def test_every_form_is_fused(standard: Host, run: Any, scores: str, mask: str) -> None:
    """Also on a row that the lowest float32 fills throughout, which averages v."""
    counts = fused(standard, run, model(scores, mask, opset=23))
    assert not counts["Transpose"] + counts["MatMul"]


@pytest.mark.parametrize("opset", [23, 24])
@pytest.mark.parametrize("mask", ["B1ST", "B11T"])
def test_the_zero_of_a_guard_is_the_kernels_own(
    standard: Host, run: Any, opset: int, mask: str
) -> None:
    inputs = model(mask=MASKS[mask], softmax=GUARD, fill="far", opset=opset)
    counts = fused(standard, run, inputs)
    assert not counts["IsNaN"] + counts["ReduceMax"]
    assert counts["Where"] == 1  # the mask


@pytest.mark.parametrize("mask", ["B1ST", "B11T"])
def test_a_guard_over_the_lowest_never_acts(standard: Host, run: Any, mask: str) -> None:
    counts = fused(standard, run, model(mask=MASKS[mask], softmax=GUARD, opset=23))
    assert counts["Where"] == 2  # the mask; the next number in place of the lowest


@pytest.mark.parametrize("far", [-10000.0, -1e30, -3.4028e38])
def test_a_mask_without_the_lowest_is_taken_as_it_is(standard: Host, run: Any, far: float) -> None:
    inputs = model(fill="far", far=far, opset=23)
    assert fused(standard, run, inputs)["Where"] == 1


UNPROVEN = {
    "-inf without a guard": {"fill": "far"},
    "two lowest, which add up to -inf": {"mask": "twice = Add (mask, row_mask) a = Add (s, twice)"},
    "a product with unknown numbers": {
        "mask": "top = ReduceMax <keepdims = 0> (q) t = Mul (mask, top) a = Add (s, t)"
    },
    "-inf that is computed": {"fill": "inf"},
}


@pytest.mark.parametrize("changes", UNPROVEN.values(), ids=UNPROVEN)
def test_a_mask_that_may_hold_minus_infinity_is_refused(
    standard: Host, changes: dict[str, str]
) -> None:
    assert refusal(standard, model(opset=23, **changes)) == "mask"  # pyright: ignore[reportArgumentType]


def test_no_empty_rows_may_be_assumed(assuming: Host, run: Any) -> None:
    inputs = model(opset=23, fill="far")
    fused(assuming, run, inputs, empty=False)
    compiled, _ = assuming.run(inputs)
    assert [entry.value for entry in compiled.metadata_props] == [
        "no-empty-inputs, no-empty-rows",
        "onnxruntime>=1.28.0",
    ]


def test_older_opsets_do_not_apply(standard: Host) -> None:
    _, report = standard.run(model(opset=22))
    (record,) = [one for one in report.passes if one.name == "OrtStandardAttentionPass"]
    assert record.status == "not applicable"


def grouped(
    times: str = "{1, 1, 2, 1, 1}", repeat: str = REPEATED, scores: str = "s = MatMul (qt, kk)"
) -> onnx.ModelProto:
    """Two heads of q for each of k and v."""
    return parse(f"""<ir_version: 8, opset_import: ["" : 23]>
    main (float[B, S, 16] q, float[B, S, 8] k, float[B, S, 8] v, bool[B, 1, S, S] keep) => (float[B, S, 16] out)
    <int64[4] heads = {{0, 0, 4, 4}}, int64[4] few = {{0, 0, 2, 4}}, int64[4] spread = {{0, 4, -1, 4}}, int64[5] times = {times},
     int64[1] i2 = {{2}}, int64[1] i1 = {{1}}, int64[3] joined = {{0, 0, 16}}, float zero = {{0.0}}, float lowest = {{-1e30}}> {{
        qh = Reshape (q, heads) qt = Transpose <perm = [0, 2, 1, 3]> (qh)
        kh = Reshape (k, few) kt = Transpose <perm = [0, 2, 1, 3]> (kh)
        vh = Reshape (v, few) vt = Transpose <perm = [0, 2, 1, 3]> (vh)
        {repeat}
        kk = Transpose <perm = [0, 1, 3, 2]> (kr) {scores}
        mask = Where (keep, zero, lowest) a = Add (s, mask) {SOFTMAX}
        y = MatMul (p, vr) yt = Transpose <perm = [0, 2, 1, 3]> (y) out = Reshape (yt, joined)
    }}""")


def grouped_feeds() -> Any:
    argument = feeds()
    rng = np.random.default_rng(1)
    return {
        "q": rng.normal(size=(2, 3, 16)).astype(np.float32) * 3,
        **{name: argument[name] for name in ("k", "v", "keep")},
    }


def test_repeated_heads_are_the_kernels(standard: Host, run: Any) -> None:
    values = grouped()
    compiled, _ = standard.run(values)
    counts = operators(compiled)
    assert counts["Attention"] == 1
    assert not counts["Expand"] + counts["Softmax"]
    inputs = grouped_feeds()
    assert_equal(Runner(values).run(inputs), run(compiled, inputs))
    assert_equal(Runner(values).run(inputs), Runner(compiled, engine="reference").run(inputs))


@pytest.mark.parametrize(
    "repeat",
    [
        # heads in turn, not each repeated
        REPEATED.replace("(kt, i2)", "(kt, i1)").replace("(vt, i2)", "(vt, i1)"),
        # k alone
        REPEATED.replace("(vt, i2)", "(vt, i1)"),
    ],
)
def test_heads_that_are_repeated_otherwise(standard: Host, run: Any, repeat: str) -> None:
    times = "{1, 2, 1, 1, 1}"
    if repeat.count("i2"):
        repeat = repeat.replace("Expand (ku, times)", "Expand (ku, each)")
    values = grouped(
        times, repeat.replace("ku = ", "each = Constant <value_ints = [1, 1, 2, 1, 1]> () ku = ")
    )
    compiled, _ = standard.run(values)
    assert operators(compiled)["Attention"] == 1
    inputs = grouped_feeds()
    assert_equal(Runner(values).run(inputs), run(compiled, inputs))


PRODUCT = FORMS["no scale"].replace("s = ", "m = ")
CAPS = {
    "a scale before the cap": f"{PRODUCT} n = Mul (m, scale) d = Div (n, inverse) t = Tanh (d) s = Mul (t, inverse)",
    "the cap on the left": f"{PRODUCT} d = Mul (root, m) t = Tanh (d) s = Mul (inverse, t)",
    "both factors negative": f"{PRODUCT} d = Mul (m, negative) t = Tanh (d) s = Mul (t, negative)",
    "no factor behind": f"{PRODUCT} s = Tanh (m)",
    "k by Reshape, Transpose, Reshape": FORMS["k by Reshape, Transpose, Reshape"].replace(
        "s = Mul (m, scale)", "t = Tanh (m) s = Mul (t, inverse)"
    ),
    "heads that are no projection": """qr = Neg (qt) kr = Neg (kt) kk = Transpose <perm = [0, 1, 3, 2]> (kr)
        m = MatMul (qr, kk) t = Tanh (m) s = Mul (t, inverse)""",
    "heads that are third": """qr = Neg (qh) kr = Neg (kh) qrt = Transpose <perm = [0, 2, 1, 3]> (qr)
        kk = Transpose <perm = [0, 2, 3, 1]> (kr) m = MatMul (qrt, kk) t = Tanh (m) s = Mul (t, inverse)""",
}


@pytest.mark.parametrize("scores", CAPS.values(), ids=list(CAPS))
@pytest.mark.parametrize("mask", ["", "B1ST", "B11T"])
def test_capped_scores_are_the_kernels(standard: Host, run: Any, scores: str, mask: str) -> None:
    """Tanh of the scores, as in Gemma 2; the mask is added behind it."""
    counts = fused(standard, run, model(scores, MASKS[mask], opset=23))
    assert not counts["Tanh"] + counts["MatMul"]


@pytest.mark.parametrize("opset", [23, 24])
@pytest.mark.parametrize("mask", ["B1ST", "B11T"])
def test_capped_scores_behind_a_guard(standard: Host, run: Any, opset: int, mask: str) -> None:
    inputs = model(CAPS["no factor behind"], MASKS[mask], GUARD, fill="far", opset=opset)
    assert not fused(standard, run, inputs)["IsNaN"]


def test_capped_scores_of_repeated_heads(standard: Host, run: Any) -> None:
    values = grouped(scores="m = MatMul (qt, kk) s = Tanh (m)")
    compiled, _ = standard.run(values)
    assert operators(compiled)["Attention"] == 1
    assert not operators(compiled)["Expand"] + operators(compiled)["Tanh"]
    inputs = grouped_feeds()
    assert_equal(Runner(values).run(inputs), run(compiled, inputs))
    assert_equal(Runner(values).run(inputs), Runner(compiled, engine="reference").run(inputs))


CAPPED = CAPS["the cap on the left"]
CAPPED_NEAR_MISSES: dict[str, tuple[str, Any]] = {
    "the mask inside the cap": (
        "softcap",
        {"scores": PRODUCT, "mask": "x = Add (m, mask) s = Tanh (x) a = Add (s, mask)"},
    ),
    "one factor negative": (
        "scale",
        {"scores": f"{PRODUCT} t = Tanh (m) s = Mul (t, negative)"},
    ),
    "the other one negative": (
        "scale",
        {"scores": f"{PRODUCT} d = Mul (m, negative) t = Tanh (d) s = Mul (t, inverse)"},
    ),
    "a negative cap of a masked score": (
        "scale",
        {
            "scores": f"{PRODUCT} d = Mul (m, negative) t = Tanh (d)",
            "mask": "x = Add (t, mask) a = Mul (x, negative)",
        },
    ),
    "-inf without a guard": ("mask", {"scores": CAPPED, "fill": "far"}),
    "no keys": ("length", {"scores": CAPPED, "mask": MASKS[""], "length": "0"}),
    "probabilities that are an output": (
        "probabilities",
        {"scores": CAPPED, "outputs": "float[B, S, 8] out, float[B, 2, S, S] p"},
    ),
}


@pytest.mark.parametrize(
    ("key", "changes"), CAPPED_NEAR_MISSES.values(), ids=list(CAPPED_NEAR_MISSES)
)
def test_capped_near_misses(standard: Host, run: Any, key: str, changes: Any) -> None:
    values = model(opset=23, **changes)
    compiled, report = standard.run(values)
    (record,) = [one for one in report.passes if one.name == "OrtStandardAttentionPass"]
    assert operators(compiled)["Softmax"] == 1
    assert list(record.rejected) == [key]
    if key == "length":
        return  # the feeds have keys
    inputs = feeds()
    for name, heads in zip("kv", changes.get("heads", (2, 2, 2))[1:], strict=True):
        inputs[name] = inputs[name][..., : 4 * heads]
    assert_equal(Runner(values).run(inputs), run(compiled, inputs))


def test_the_runtime_is_recorded(standard: Host, tmp_path: Any) -> None:
    path = tmp_path / "m.onnx"
    onnx.save(standard.run(model(opset=23))[0], path)
    assert _requires(str(path)) == ("onnxruntime>=1.28.0",)
