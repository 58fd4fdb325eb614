"""Each pass fires, leaves near misses alone with the reason, keeps the numbers, and changes nothing a second time."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import onnx
import pytest

from gehost.testing import assert_equal_numbers, assert_refuses, parse, run_pass

OWN = Path(__file__).parents[3] / "vendors" / "openxla"
HEAD = '<ir_version: 10, opset_import: ["" : 21]>\n'


@pytest.fixture(scope="session")
def alone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("vendors")
    (root / OWN.name).symlink_to(OWN)
    return root


def model(text: str) -> onnx.ModelProto:
    """A model with the types of all tensors, as an import has them."""
    return onnx.shape_inference.infer_shapes(parse(HEAD + text), data_prop=True)


def fuses(text: str, name: str, expected: dict[str, int], alone: Path, count: int = 1) -> None:
    before = model(text)
    after, record = run_pass(before, name, vendors=alone)
    assert record.replaced == count, dict(record.rejected)
    onnx.checker.check_model(after)
    result = Counter(node.op_type for node in after.graph.node)
    del result["Constant"]
    assert result == expected
    assert_equal_numbers(before, after)
    _, again = run_pass(after, name, vendors=alone)
    assert again.replaced == 0


KEPT = """g (float[2,3,4] x) => (float[2,1,4] y) <int64[1] axes = {{1}}, int64[3] shape = {{{shape}}}> {{
  r = {op} <keepdims = {keep}> (x, axes)
  y = Reshape(r, shape)
}}"""


@pytest.mark.parametrize("op", ["ReduceSum", "ReduceMax", "ReduceMin", "ReduceProd", "ReduceMean"])
def test_reduced_axes_are_kept(op: str, alone: Path) -> None:
    fuses(KEPT.format(op=op, keep=0, shape="2, 1, 4"), "KeepReducedAxesPass", {op: 1}, alone)


def test_axes_that_are_kept_already_do_not_match(alone: Path) -> None:
    assert_refuses(
        model(KEPT.format(op="ReduceSum", keep=1, shape="2, 1, 4")),
        "KeepReducedAxesPass",
        vendors=alone,
    )


def test_a_reshape_to_another_place_is_left(alone: Path) -> None:
    text = KEPT.format(op="ReduceSum", keep=0, shape="1, 2, 4").replace(
        "float[2,1,4] y", "float[1,2,4] y"
    )
    assert_refuses(model(text), "KeepReducedAxesPass", "shape", vendors=alone)


def test_unknown_sizes_are_left(alone: Path) -> None:
    text = KEPT.format(op="ReduceSum", keep=0, shape="2, 1, 4").replace(
        "float[2,3,4] x", "float[N,3,4] x"
    )
    assert_refuses(model(text), "KeepReducedAxesPass", "shape", vendors=alone)


def test_a_reduction_of_no_axis_is_left(alone: Path) -> None:
    reduced = "r = ReduceSum <keepdims = 0, noop_with_empty_axes = 1> (x)"
    retained = f"g (float[2,6] x) => (float[2,6] y) <int64[2] shape = {{2, 6}}> {{ {reduced} y = Reshape(r, shape) }}"
    assert_refuses(model(retained), "KeepReducedAxesPass", "axes", vendors=alone)
    divided = f"g (float[2,6] x) => (float[2,6] y) <float n = {{1}}> {{ {reduced} y = Div(r, n) }}"
    assert_refuses(model(divided), "MeanOfSumPass", "axes", vendors=alone)


def test_a_reduction_that_is_read_elsewhere_is_left(alone: Path) -> None:
    text = """g (float[2,3] x) => (float[2,1] y, float[2] r) <int64[1] axes = {1}, int64[2] shape = {2, 1}> {
      r = ReduceSum <keepdims = 0> (x, axes)
      y = Reshape(r, shape)
    }"""
    assert_refuses(model(text), "KeepReducedAxesPass", vendors=alone)


MEAN = """g (float[2,3,4] x) => (float[2,3,1] y) <int64[1] axes = {{2}}, {kind} n = {{{n}}}> {{
  s = ReduceSum(x, axes)
  y = {op}(s, n)
}}"""


@pytest.mark.parametrize(("op", "n"), [("Div", "4"), ("Mul", "0.25")])
def test_a_sum_by_its_count_is_a_mean(op: str, n: str, alone: Path) -> None:
    fuses(MEAN.format(kind="float", op=op, n=n), "MeanOfSumPass", {"ReduceMean": 1}, alone)


def test_a_mean_without_the_axis_stays_without_it(alone: Path) -> None:
    text = (
        MEAN.format(kind="float", op="Div", n="4")
        .replace("ReduceSum(", "ReduceSum <keepdims = 0> (")
        .replace("[2,3,1]", "[2,3]")
    )
    fuses(text, "MeanOfSumPass", {"ReduceMean": 1}, alone)


@pytest.mark.parametrize(
    ("op", "n"), [("Div", "5"), ("Mul", "0.2501"), ("Div", "0"), ("Div", "-4"), ("Div", "4.0001")]
)
def test_another_count_is_left(op: str, n: str, alone: Path) -> None:
    assert_refuses(
        model(MEAN.format(kind="float", op=op, n=n)), "MeanOfSumPass", "count", vendors=alone
    )


def test_a_count_that_widens_is_left(alone: Path) -> None:
    text = MEAN.format(kind="float[1,1,1,1]", op="Div", n="4").replace(
        "float[2,3,1] y", "float[1,2,3,1] y"
    )
    assert_refuses(model(text), "MeanOfSumPass", "scalar", vendors=alone)


def test_integers_are_left(alone: Path) -> None:
    text = MEAN.format(kind="int32", op="Div", n="4").replace("float", "int32")
    assert_refuses(model(text), "MeanOfSumPass", "dtype", vendors=alone)


RESHAPES = """g (float[2,6] x) => (float[{out}] y) <int64[1] a = {{12}}, int64[2] b = {{{out}}}> {{
  r = Reshape(x, a)
  y = Reshape(r, b)
}}"""


def test_two_reshapes_are_one(alone: Path) -> None:
    fuses(RESHAPES.format(out="3, 4"), "MergeReshapesPass", {"Reshape": 1}, alone)


def test_reshapes_there_and_back_are_none(alone: Path) -> None:
    fuses(RESHAPES.format(out="2, 6"), "MergeReshapesPass", {"Identity": 1}, alone)


def test_a_zero_in_the_second_shape_counts_from_the_first_result(alone: Path) -> None:
    text = """g (float[2,6] x) => (float[3,2,2] y) <int64[2] a = {3, 4}, int64[3] b = {0, 2, -1}> {
      r = Reshape(x, a)
      y = Reshape(r, b)
    }"""
    fuses(text, "MergeReshapesPass", {"Reshape": 1}, alone)


def test_an_unknown_shape_is_left(alone: Path) -> None:
    text = """g (float[N,6] x) => (float[M] y) <int64[2] a = {6, -1}, int64[1] b = {-1}> {
      r = Reshape(x, a)
      y = Reshape(r, b)
    }"""
    assert_refuses(model(text), "MergeReshapesPass", "shape", vendors=alone)


ROOT = """g (float[4] x) => (float[4] y) <{kind} one = {{{one}}}> {{
  r = Sqrt(x)
  y = Div(one, r)
}}"""


def test_one_by_a_root_is_its_reciprocal(alone: Path) -> None:
    fuses(
        ROOT.format(kind="float", one="1"),
        "ReciprocalSqrtPass",
        {"Sqrt": 1, "Reciprocal": 1},
        alone,
    )


def test_another_numerator_does_not_match(alone: Path) -> None:
    assert_refuses(model(ROOT.format(kind="float", one="2")), "ReciprocalSqrtPass", vendors=alone)


def test_a_one_that_widens_is_left(alone: Path) -> None:
    text = ROOT.format(kind="float[1,1]", one="1").replace("float[4] y", "float[1,4] y")
    assert_refuses(model(text), "ReciprocalSqrtPass", "scalar", vendors=alone)


def test_a_difference_is_computed_once(alone: Path) -> None:
    text = """g (float[2,4] x) => (float[2,4] y) <int64[1] axes = {1}> {
      m = ReduceMean(x, axes)
      d = Sub(x, m)
      e = Sub(x, m)
      y = Mul(d, e)
    }"""
    fuses(text, "ShareDifferencesPass", {"ReduceMean": 1, "Sub": 1, "Mul": 1}, alone)


def test_differences_of_other_operands_do_not_match(alone: Path) -> None:
    text = """g (float[2,4] x, float[2,4] z) => (float[2,4] y) {
      d = Sub(x, z)
      e = Sub(z, x)
      y = Mul(d, e)
    }"""
    assert_refuses(model(text), "ShareDifferencesPass", vendors=alone)


def softmax(
    *,
    guarded: bool,
    bounded: bool,
    reshaped: bool,
    axis: int = 1,
    sum_axis: int = 1,
    low: str = "-inf",
) -> str:
    retained = ["2", "3"]
    retained[axis] = "1"
    keep = 0 if reshaped else 1
    lines = [f"p = ReduceMax <keepdims = {keep}> (x, axes)"]
    last = "p"
    if guarded:
        lines += [
            "i = IsNaN(x)",
            f"j = ReduceMax <keepdims = {keep}> (i, axes)",
            "q = Where(j, nan, p)",
        ]
        last = "q"
    if bounded:
        lines.append(f"b = Max({last}, low)")
        last = "b"
    if reshaped:
        lines.append(f"r = Reshape({last}, shape)")
        last = "r"
    lines += [f"d = Sub(x, {last})", "e = Exp(d)", "s = ReduceSum(e, sum_axes)", "y = Div(e, s)"]
    weights = f"int64[1] axes = {{{axis}}}, int64[1] sum_axes = {{{sum_axis}}}, int64[2] shape = {{{', '.join(retained)}}}, float nan = {{nan}}, float low = {{{low}}}"
    return f"g (float[2,3] x) => (float[2,3] y) <{weights}> {{\n" + "\n".join(lines) + "\n}"


@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("reshaped", [True, False])
@pytest.mark.parametrize("bounded", [True, False])
@pytest.mark.parametrize("guarded", [True, False])
def test_softmax(guarded: bool, bounded: bool, reshaped: bool, axis: int, alone: Path) -> None:
    text = softmax(guarded=guarded, bounded=bounded, reshaped=reshaped, axis=axis, sum_axis=axis)
    fuses(text, "SoftmaxFusionPass", {"Softmax": 1}, alone)


def test_a_sum_over_another_axis_is_left(alone: Path) -> None:
    text = softmax(guarded=False, bounded=False, reshaped=False, axis=1, sum_axis=0)
    assert_refuses(model(text), "SoftmaxFusionPass", "axes", vendors=alone)


def test_a_bound_above_minus_infinity_is_left(alone: Path) -> None:
    text = softmax(guarded=False, bounded=True, reshaped=True, low="-100")
    assert_refuses(model(text), "SoftmaxFusionPass", "guard", vendors=alone)


def test_an_exponential_that_is_read_elsewhere_does_not_match(alone: Path) -> None:
    text = softmax(guarded=False, bounded=False, reshaped=False).replace(
        "(float[2,3] y)", "(float[2,3] y, float[2,3] e)"
    )
    assert_refuses(model(text), "SoftmaxFusionPass", vendors=alone)


def test_half_of_a_softmax_does_not_match(alone: Path) -> None:
    text = softmax(guarded=False, bounded=False, reshaped=False).replace(
        "y = Div(e, s)", "y = Div(s, e)"
    )
    assert_refuses(model(text), "SoftmaxFusionPass", vendors=alone)


def test_a_reduction_without_axes_that_does_nothing_is_left(alone: Path) -> None:
    text = """g (float[3] x) => (float[3] y) {
      p = ReduceMax <keepdims = 1, noop_with_empty_axes = 1> (x)
      d = Sub(x, p)
      e = Exp(d)
      s = ReduceSum <keepdims = 1, noop_with_empty_axes = 1> (e)
      y = Div(e, s)
    }"""
    assert_refuses(model(text), "SoftmaxFusionPass", "axes", vendors=alone)


def test_a_sum_without_axes_goes_over_all_of_them(alone: Path) -> None:
    text = (
        "g (float[2,3] x) => (float[1,1] y) <float n = {6}> {\n s = ReduceSum(x)\n y = Div(s, n)\n}"
    )
    fuses(text, "MeanOfSumPass", {"ReduceMean": 1}, alone)
    none = text.replace("ReduceSum(", "ReduceSum <noop_with_empty_axes = 1> (").replace(
        "[1,1]", "[2,3]"
    )
    assert_refuses(model(none), "MeanOfSumPass", "axes", vendors=alone)


@pytest.mark.parametrize("axes", ["-1", "0", "2"])
def test_a_sum_over_an_axis_that_a_scalar_lacks_is_left(axes: str, alone: Path) -> None:
    """ONNX's inference and the reference let it pass."""
    text = f"""g (double x) => (double y) <double half = {{0.5}}, int64[1] axes = {{{axes}}}> {{
      r = ReduceSum(x, axes)
      y = Mul(r, half)
    }}"""
    assert_refuses(parse(HEAD + text), "MeanOfSumPass", "axes", vendors=alone)
