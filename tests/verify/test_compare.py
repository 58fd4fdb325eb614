"""Two models are compared: what agrees, what differs, and where."""

from __future__ import annotations

import dataclasses
import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import onnxruntime
import pytest

from gehost.cli import run
from gehost.errors import ModelError, UnsupportedModelError, UsageError
from gehost.verify import Runner, compare, compare_outputs, find_feeds, tolerance
from gehost.verify.compare import OutputDifference
from gehost.verify.forms import Forms

ENGINE = f"ONNX Runtime {onnxruntime.__version__}"
HEAD = '<ir_version: 10, opset_import: ["": 21]>'
MODELS = Path(__file__).parents[1] / "models"


def parse(text: str) -> onnx.ModelProto:
    return onnx.parser.parse_model(HEAD + text)


def one(a: np.ndarray, b: np.ndarray, **kwargs: float) -> OutputDifference:
    (result,) = compare_outputs({"y": np.asarray(a)}, {"y": np.asarray(b)}, **kwargs)
    return result


LIBRARY = """
#include <stdio.h>
void *RegisterCustomOps(void *options, const void *api) {
    FILE *mark = fopen(MARK, "a");
    fputs("x", mark);
    fclose(mark);
    return 0;
}
"""


@pytest.fixture
def library(tmp_path: Path) -> Path:
    """A library without operators, which appends to ``mark`` beside it each time that it is asked for them."""
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("there is no C compiler")
    source, built = tmp_path / "ops.c", tmp_path / "ops.so"
    source.write_text(LIBRARY)
    mark = f'-DMARK="{tmp_path / "mark"}"'
    subprocess.run([compiler, "-shared", "-fPIC", mark, str(source), "-o", str(built)], check=True)
    return built


LINEAR = "g (float[n, 3] x, float[3, 4] w, float[4] c) => (float[n, 4] y) {{ {} }}"
GOOD = LINEAR.format("p = MatMul(x, w) y = Add(p, c)")


@pytest.mark.parametrize("engine", ["onnxruntime", "reference"])
@pytest.mark.parametrize(
    ("body", "equal"),
    [
        ("y = Gemm(x, w, c)", True),
        ("p = MatMul(x, w) y = Add(c, p)", True),
        ("y = MatMul(x, w)", False),
        ("y = Gemm <alpha = 1.001> (x, w, c)", False),
        ("y = Gemm <beta = 0.999> (x, w, c)", False),
        ("p = MatMul(x, w) y = Sub(p, c)", False),
        ("z = Neg(x) p = MatMul(z, w) y = Add(p, c)", False),
    ],
)
def test_planted_bugs(engine: str, body: str, equal: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if engine == "reference":
        monkeypatch.setitem(sys.modules, "onnxruntime", None)
    result = compare(parse(GOOD), parse(LINEAR.format(body)))
    assert result.equal is equal
    assert result.engine == engine
    assert result.feeds == 3
    assert [output.feed for output in result.outputs] == [0, 1, 2]
    assert result.summary().startswith("equal: 3 feeds, 1 output, " if equal else "differ: y[")


def test_mixed_up_axes_show() -> None:
    """Two symbols of one size would hide it."""
    a = parse("g (float[n, k] x, float[k, n] w) => (float[n, n] y) { y = MatMul(x, w) }")
    b = parse("g (float[n, k] x, float[k, n] w) => (float[n, n] y) { y = MatMul(w, x) }")
    assert (
        compare(a, b).summary()
        == "differ: y of feed 0: shape [3, 3], wanted [2, 2]; 3 of 3 comparisons differ"
    )


def test_a_batch_of_one_is_among_the_feeds() -> None:
    a = parse("g (float[n, 3] x) => (float[n, 3] y) { y = Identity(x) }")
    b = parse(
        "g (float[n, 3] x) => (float[3] y) { zero = Constant <value_ints = [0]> () y = Squeeze(x, zero) }"
    )
    assert not compare(a, b).equal
    assert {feeds["x"].shape[0] for feeds, _ in find_feeds(Runner(a))} == {1, 2, 5}


def test_worst_element_is_named() -> None:
    a = np.zeros((2, 3), np.float32)
    a[0, 1] = 1000
    b = a.copy()
    b[0, 1] += 0.05  # the largest distance, and inside rtol
    b[1, 2] += 0.01
    b[1, 0] += 0.02
    result = one(a, b)
    assert not result.equal
    assert result.index == (1, 0)
    assert (result.a, result.b) == (0.0, pytest.approx(0.02))
    assert result.max_abs == pytest.approx(0.02)
    assert result.place == "y[1,0]"
    b[1] = 0
    result = one(a, b)
    assert result.equal
    assert result.index == (0, 1)
    assert result.max_rel == pytest.approx(5e-5, rel=1e-2)


def test_nan_and_infinity_agree_only_with_themselves() -> None:
    special = np.array([np.nan, np.inf, -np.inf, 1.0], np.float32)
    assert one(special, special.copy()).equal
    for place, value in [
        (0, 1.0),
        (1, np.nan),
        (1, 3e38),
        (1, -np.inf),
        (2, np.inf),
        (3, np.nan),
        (3, np.inf),
    ]:
        other = special.copy()
        other[place] = value
        result = one(special, other, rtol=1e30, atol=1e30)
        assert not result.equal
        assert result.index == (place,)
        assert result.max_abs == np.inf
    assert one(special, special.copy(), rtol=0.0, atol=0.0).equal


@pytest.mark.parametrize(
    ("dtype", "near", "far"),
    [
        (np.float64, 1.00000005, 1.0000002),
        (np.float32, 1.0001, 1.00013),
        (np.float16, 1.01, 1.02),
        (ml_dtypes.bfloat16, 1.05, 1.08),
        (ml_dtypes.float8_e4m3fn, 1.25, 1.5),
        (np.complex64, 1 + 1e-4j, 1 + 2e-4j),
        (np.int32, 1, 2),
        (np.uint8, 1, 0),
        (ml_dtypes.int4, 1, 2),
        (np.bool_, True, False),
    ],
)
def test_tolerance_by_dtype(dtype: type, near: float, far: float) -> None:
    ones = np.ones(3, dtype)
    other = ones.copy()
    other[1] = near
    assert one(ones, other).equal
    other[1] = far
    result = one(ones, other)
    assert not result.equal
    assert result.index == (1,)
    assert result.max_abs > 0


def test_small_values_have_an_absolute_tolerance() -> None:
    zero = np.zeros(2, np.float32)
    assert one(zero, zero + np.float32(9e-6)).equal
    assert not one(zero, zero + np.float32(2e-5)).equal
    assert one(zero, zero + np.float32(2e-5), atol=1e-4).equal
    assert not one(zero, zero + np.float32(9e-6), atol=0.0).equal
    assert tolerance(np.dtype(np.int64), rtol=1.0, atol=5.0) == (0.0, 0.0)


def test_integers_are_compared_exactly() -> None:
    big = np.array([2**63 - 1, -(2**63)])
    assert one(big, big.copy()).equal
    assert not one(np.array([2**62]), np.array([2**62 + 1]), rtol=1.0, atol=9.0).equal
    assert one(np.array([2**62]), np.array([2**62 + 1])).max_abs == 1
    assert one(big, big[::-1].copy()).max_abs == pytest.approx(2.0**64)
    assert not one(np.array([2**64 - 1], np.uint64), np.array([0], np.uint64)).equal
    assert one(np.array(5), np.array(-3)).max_abs == 8, "without a warning"


def test_strings() -> None:
    words = np.array(["a", "b"], object)
    assert one(words, words.copy()).equal
    result = one(words, np.array(["a", "c"], object))
    assert (result.equal, result.index, result.a, result.b) == (False, (1,), "b", "c")


def test_dtype_shape_name_and_order_have_to_be_the_same() -> None:
    ones = np.ones((2, 1), np.float32)
    assert one(ones, ones.astype(np.float64)).reason == "dtype float64, wanted float32"
    assert one(ones, ones.T).reason == "shape [1, 2], wanted [2, 1]"
    assert not one(ones, ones[0]).equal
    assert one(ones[:0], ones[:0]).equal
    result = compare_outputs({"a": ones, "b": ones}, {"b": ones, "a": ones})
    assert [f.reason for f in result] == [
        "output 0 is 'b', wanted 'a'",
        "output 1 is 'a', wanted 'b'",
    ]
    assert [f.equal for f in compare_outputs({"a": ones, "b": ones}, {"a": ones})] == [True, False]
    assert [f.equal for f in compare_outputs({"a": ones}, {"a": ones, "b": ones})] == [True, False]


def test_result_is_json() -> None:
    a = parse("g (float[2] x) => (float[2] y) { y = Identity(x) }")
    b = parse("g (float[2] x) => (float[2] y) { z = Sub(x, x) y = Div(x, z) }")
    result = compare(a, b, seed=3)
    data = json.loads(json.dumps(result.as_dict(), allow_nan=False))
    assert data["equal"] is False
    assert data["seed"] == 3
    assert data["summary"] == result.summary()
    assert data["outputs"][0]["max_abs"] == "inf"
    assert {field.name for field in dataclasses.fields(result)} < set(data)
    json.dumps(
        compare(a, parse("g (float[3] x) => (float[2] y) { y = Identity(x) }")).as_dict(),
        allow_nan=False,
    )


def test_summaries() -> None:
    a = parse("g (float[2] x) => (float[2] y, float[2] z) { y = Identity(x) z = Neg(x) }")
    assert compare(a, a).summary() == (
        f"equal: 3 feeds, 2 outputs, no difference; computed by {ENGINE}"
    )
    b = parse(
        "g (float[2] x) => (float[2] y, float[2] z)"
        "{ k = Constant <value = float[2] {0, 0.000004}> () y = Identity(x) n = Neg(x) z = Add(n, k) }"
    )
    feeds = {"x": np.array([1, 2], np.float32)}
    assert compare(a, b, [feeds], rtol=1e-4).summary() == (
        "equal: 1 feed, 2 outputs, worst |a-b| 4.1e-06 at z[1] (rtol 0.0001, atol 1e-05); "
        f"decided by the given tolerances; computed by {ENGINE}"
    )
    assert compare(a, b, [feeds]).summary() == (
        "differ: z[1] of feed 0: a -2, b -1.99999595, |a-b| 4.1e-06 (error 4.1e-06, allowed "
        "1.2e-06); 1 of 2 comparisons differ"
    )
    text = compare(a, b, [feeds], rtol=0.0, atol=0.0).summary()
    assert (
        text
        == "differ: z[1] of feed 0: a -2, b -1.99999595, |a-b| 4.1e-06 (rtol 0, atol 0); 1 of 2 comparisons differ"
    )


def test_it_says_when_agreement_proves_little() -> None:
    flat = parse("g (float[2, 3] x) => (float[2, 3] y) { z = Sub(x, x) y = Softmax(z) }")
    nothing = parse("g (float[2, 3] x) => (float[2, 3] y) { z = Sub(x, x) y = Div(z, z) }")
    scalar = parse("g (float[2, 3] x) => (float y) { y = ReduceSum <keepdims = 0> (x) }")
    for model, note in [(flat, True), (nothing, True), (scalar, False)]:
        result = compare(model, model)
        assert result.equal
        assert ("proves little: y" in result.summary()) is note


def test_a_failure_of_a_is_an_error_and_of_b_a_difference() -> None:
    good = parse("g (float[2] x) => (float[2] y) { y = Identity(x) }")
    unknown = parse("h (float[2] x) => (float[2] y) { y = NoSuch(x) }")
    fails = parse(
        "h (float[2] x) => (float[5] y) { s = Constant <value_ints = [5]> () y = Reshape(x, s) }"
    )
    for bad, said in [(unknown, "model 'h' does not load"), (fails, "model 'h' does not run")]:
        with pytest.raises(ModelError, match=said):
            compare(bad, good)
        result = compare(good, bad)
        assert not result.equal
        assert result.summary().startswith(f"differ: {said}: ")
        assert "\n" not in result.summary()
    with pytest.raises(ModelError, match="give --feeds"):
        compare(fails, good)
    other = compare(good, parse("h (float[2] z) => (float[2] y) { y = Identity(z) }"))
    assert other.error == "model 'h' has no input 'x'; its inputs are 'z'"
    with pytest.raises(UsageError, match="no input 'q'"):
        compare(good, good, [{"q": np.ones(2, np.float32)}])
    with pytest.raises(UsageError, match="no feeds"):
        compare(good, good, [])


@pytest.mark.parametrize(
    ("head", "op", "lack"),
    [
        ('8, opset_import: ["": 17, "acme": 1]', "acme.F", "operator acme::F has no body in the"),
        ('8, opset_import: ["": 17, "com.microsoft": 1]', "com.microsoft.NoSuch", "no kernel for"),
        ('13, opset_import: ["": 28, "acme": 1]', "acme.F", "it has opset 28 of ai.onnx, and "),
    ],
)
def test_what_the_runtime_lacks_is_no_difference(head: str, op: str, lack: str) -> None:
    pytest.importorskip("onnxruntime")
    good = parse("g (float[2] x) => (float[2] y) { y = Identity(x) }")
    lacking = onnx.parser.parse_model(
        f"<ir_version: {head}> h (float[2] x) => (float[2] y) {{ y = {op}(x) }}"
    )
    for pair in ((good, lacking), (lacking, good)):
        with pytest.raises(UnsupportedModelError, match=f"model 'h' cannot run here: .*{lack}"):
            compare(*pair)


def test_two_engines_are_named() -> None:
    pytest.importorskip("onnxruntime")
    a = parse(
        "g (double[2] x) => (double[2] y) { z = Constant <value = double {0}> () y = Max(x, z) }"
    )
    b = parse("g (double[2] x) => (double[2] y) { y = ThresholdedRelu <alpha = 0.0> (x) }")
    assert compare(a, b).engine == "onnxruntime, reference"
    assert compare(a, b).equal


def test_given_feeds_are_used_as_they_are() -> None:
    a = parse("g (float[n] x) => (float[n] y) { y = Abs(x) }")
    b = parse("g (float[n] x) => (float[n] y) { y = Identity(x) }")
    feeds = [{"x": np.ones(4, np.float32)}, {"x": np.array([1, -1, 2], np.float32)}]
    result = compare(a, b, feeds)
    assert [output.equal for output in result.outputs] == [True, False]
    assert result.outputs[1].index == (1,)
    assert compare(a, b, feeds[:1]).equal


def test_no_inputs_is_one_feed() -> None:
    model = parse("g () => (float[2] y) { y = Constant <value = float[2] {1, 2}> () }")
    assert compare(model, model).feeds == 1


@pytest.mark.parametrize(
    "text",
    [
        "g (float[a, 3] x, float[b, 3] y) => (float[n, 3] z) { z = Add(x, y) }",
        "g (float[a, s] x, float[a, p] c, float[b, t] m) => (float[n, k] z) { y = Concat <axis = 1> (c, x) z = Add(y, m) }",
        (
            "g (float[a, d] x, float[b, e, 5] h, float[c, f] m) => (float[n, k] z, float[v, w, 1] q)"
            " { z = Concat <axis = 0> (x, x) o = Constant <value_ints = [2]> () u = Unsqueeze(m, o) q = Mul(h, u) }"
        ),
        "g (float[n, 3, h, w] x, float[4, 3, 9, 9] k) => (float[n, 4, i, j] y) { y = Conv(x, k) }",
        (
            "g (float[1, 1, h, w] x, float[50176, 2] k) => (float[1, 2] y)"
            "{ s = Constant <value_ints = [1, -1]> () f = Reshape(x, s) y = MatMul(f, k) }"
        ),
        "g (float[?, 3] x, float[?, 3] y) => (float[n, 3] z) { z = Add(x, y) }",
    ],
    ids=["equal", "sum", "other axis", "least size", "square image", "unnamed"],
)
def test_hidden_relations_between_sizes_are_found(text: str) -> None:
    assert compare(parse(text), parse(text)).equal


def test_sizes_that_are_tried_stay_small() -> None:
    """Four axes of some 224 would be 10 GB."""
    results: list[int] = []

    class Watched(Runner):
        def run(self, feeds: Any) -> Any:
            results.append(sum(array.size for array in feeds.values()))
            return super().run(feeds)

    text = "g (float[a, b, c, d] x) => (float[k] y) { s = Constant <value = int64[1] {7}> () y = Reshape(x, s) }"
    with pytest.raises(ModelError, match="give --feeds"):
        find_feeds(Watched(parse(text)))
    assert len(results) > 10
    assert max(results) <= 1 << 22


@pytest.mark.parametrize("head", ['13, opset_import: ["": 28]', '14, opset_import: ["": 17]'])
def test_a_model_too_new_for_the_runtime_runs_in_the_reference(head: str) -> None:
    pytest.importorskip("onnxruntime")
    model, other = (
        onnx.parser.parse_model(
            f"<ir_version: {head}> g (float[2] x) => (float[2] y) {{ y = {op}(x) }}"
        )
        for op in ("Relu", "Neg")
    )
    result = compare(model, model)
    assert (result.equal, result.engine) == (True, "reference")
    assert "computed by onnx.reference" in result.summary()
    assert not compare(model, other).equal


@pytest.mark.parametrize("path", sorted(MODELS.glob("*.onnx")), ids=lambda path: path.stem)
def test_real_models_run_on_what_is_made_for_them(path: Path) -> None:
    runner = Runner(path)
    runs = find_feeds(runner)
    assert len(runs) == 3
    assert compare(runner, path, [feeds for feeds, _ in runs]).equal
    scaled = runner.proto()
    weight = next(
        (
            t
            for t in scaled.graph.initializer
            if t.data_type == 1 and len(t.dims) == 2 and t.raw_data
        ),
        None,
    )
    if weight is not None:
        weight.raw_data = np.multiply(
            onnx.numpy_helper.to_array(weight), 1.01, dtype=np.float32
        ).tobytes()
        assert not compare(runner, Runner(scaled, base_dir=path.parent)).equal


# -- special values -------------------------------------------------------------------------------------------------

ZERO = "g (float[n, 4] x) => (float[n, 4] y) <float zero = {{0}}, float one = {{1}}> {{ {} }}"
SUBTRACTED = ZERO.format("y = Sub(x, x)")


def test_special_values_show_what_ordinary_ones_hide() -> None:
    clipped = ZERO.format("z = Clip(x, zero, one) y = Mul(z, zero)")
    plain = compare(parse(SUBTRACTED), parse(clipped))
    assert plain.equal
    result = compare(parse(SUBTRACTED), parse(clipped), special_values=True)
    assert not result.equal
    assert result.feeds == plain.feeds + 7
    assert {output.feed for output in result.outputs if not output.equal} <= {3, 4, 5}


def test_nan_is_equal_to_nan() -> None:
    result = compare(parse(SUBTRACTED), parse(ZERO.format("y = Mul(x, zero)")), special_values=True)
    assert result.equal
    inputs = {"x": np.full((2, 4), 2, np.float32)}
    result = compare(parse(SUBTRACTED), parse(SUBTRACTED), [inputs], special_values=True)
    assert (result.equal, result.feeds) == (True, 8)


def test_without_a_float_there_are_no_special_values() -> None:
    model = parse("g (int64[2] x) => (int64[2] y) { y = Neg(x) }")
    result = compare(model, model, special_values=True)
    assert result.equal
    assert "no special values, as no input is a float" in result.summary()


# -- libraries of operators -----------------------------------------------------------------------------------------


def test_both_models_get_the_libraries(library: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mark = library.with_name("mark")
    result = compare(parse(GOOD), parse(GOOD), libraries=[library])
    assert result.equal
    assert mark.read_text() == "xx"
    runner = Runner(parse(GOOD), libraries=[str(library)])
    assert runner.libraries == (str(library),)
    assert mark.read_text() == "xxx"


def test_a_library_that_does_not_load_is_named(tmp_path: Path) -> None:
    for path in (tmp_path / "missing.so", tmp_path / "text.so"):
        (tmp_path / "text.so").write_text("no library")
        with pytest.raises(UsageError, match=f"^library {path} cannot be loaded: "):
            compare(parse(GOOD), parse(GOOD), libraries=[path])


def test_an_output_too_large_for_the_memory_is_named() -> None:
    huge = {"y": np.broadcast_to(np.float32(0), (1 << 45, 1))}
    expected = r"output 'y', float32\[35184372088832, 1\], is too large to be compared"
    with pytest.raises(UsageError, match=expected):
        compare_outputs(huge, huge)


def test_only_onnx_runtime_takes_libraries(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    with pytest.raises(UsageError, match="only ONNX Runtime takes libraries of operators: "):
        compare(parse(GOOD), parse(GOOD), libraries=[tmp_path / "a.so"])


def test_the_command_line_takes_libraries_and_special_values(
    library: Path, tmp_path: Path, vendors: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    a, b, out = (str(tmp_path / name) for name in ("a.onnx", "b.onnx", "out.onnx"))
    onnx.save(parse(SUBTRACTED), a)
    onnx.save(parse(ZERO.format("z = Clip(x, zero, one) y = Mul(z, zero)")), b)
    assert run(["verify", a, b]) == 0
    assert run(["verify", a, b, "--special-values", "--ort-library", str(library)]) == 6
    assert library.with_name("mark").read_text().startswith("xx")
    assert run(["verify", a, a, "--ort-library", "missing.so"]) == 2
    inputs = ["--vendors", str(vendors.root), "--special-values", "--ort-library", str(library)]
    assert run(["compile", a, "-o", out, *inputs]) == 2
    assert run(["compile", a, "-o", out, *inputs, "--verify"]) == 0
    assert "10 feeds" in capsys.readouterr().out


def test_bisect_finds_a_rewrite_that_special_values_show(
    library: Path, tmp_path: Path, vendors: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    # x * 0 is 0 for all finite numbers
    vendors.write(
        "acme/a.py",
        """
        @REG_FUSION_PASS(stage=CustomPassStage.kAfterInferShape)
        class Zero(PatternFusionPass):
            def Patterns(self):
                builder = EsGraphBuilder("p")
                return [Pattern(builder.BuildAndReset([es.Mul(es.Relu(builder.CreateInput(0)), 0.0)]))]

            def Replacement(self, match):
                builder = EsGraphBuilder("r")
                x = builder.CreateInput(0)
                return builder.BuildAndReset([es.Mul(es.Clip(x, 0.0, 1.0), 0.0)])
        """,
    )
    model = str(tmp_path / "m.onnx")
    onnx.save(parse(ZERO.format("z = Relu(x) y = Mul(z, zero)")), model)
    results = ["bisect", model, "-o", str(tmp_path / "found"), "--vendors", str(vendors.root)]
    assert run(results) == 0
    assert run([*results, "--special-values", "--ort-library", str(library)]) == 6
    assert f"--ort-library {library}" in capsys.readouterr().out
    assert "Zero" in (tmp_path / "found" / "README.md").read_text()


@pytest.mark.parametrize(("factor", "equal"), [(1 + 2**-23, True), (1.0001, False)])
def test_without_a_run_in_float64_a_last_bit_is_no_difference(
    factor: float, *, equal: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_: Forms) -> None:
        raise ModelError("no float64 form of the model loads")

    monkeypatch.setattr(Forms, "precise", fail)
    text = (
        "g (int64[4] i) => (float[4] y) <float c = {%s}> { x = Cast <to = 1> (i) y = Mul (x, c) }"
    )
    before, after = (parse(text % number) for number in (0.7, np.float32(0.7 * factor)))
    result = compare(before, after, [{"i": np.arange(4)}])  # which no feed nudges
    assert "in float64 fails" in result.note
    assert result.equal is equal
