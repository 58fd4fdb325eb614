"""The tolerance follows the scale of an output: rounding of large terms is let pass, small errors in small outputs are not."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest

from gehost.testing import parse, random_weights
from gehost.verify import Baseline, compare, compare_outputs
from gehost.verify.tolerance import scales_of, tolerance

RESNET = Path(__file__).parents[3] / "shared" / "corpus" / "models" / "resnet50.ts.onnx"
F32 = np.dtype(np.float32)


def agree(a: np.ndarray, b: np.ndarray) -> bool:
    (result,) = compare_outputs({"y": a.astype(np.float32)}, {"y": b.astype(np.float32)})
    return result.equal


def test_the_scale_is_that_of_a_typical_element() -> None:
    assert scales_of(np.array([0, 0, 0, 2, 3, 4e9, np.inf, np.nan]))[1] == [3]
    assert scales_of(np.array([0.0, np.nan]))[1] == [1]


def test_elements_of_another_size_have_their_own_scale() -> None:
    bounds, scales = scales_of(np.array([700, 1e-4, 1, 2, 3, 400, 2, 600.0]))
    assert (bounds.tolist(), scales) == ([400], [2, 600])
    assert scales_of(np.array([1e-4, 2e-4, 3e-4, 400, 600, 700, 800.0]))[1] == [
        400
    ]  # three may be small by chance
    assert scales_of(np.array([1e308, 1.5e308]))[1] == [1e308]


@pytest.mark.parametrize(
    ("scale", "atol"), [(40, 4e-4), (1, 1e-5), (0.3, 3e-6), (1e-3, 1e-6), (0, 1e-6)]
)
def test_the_absolute_part_follows_the_scale_and_ends_at_a_few_units_in_the_last_place(
    scale: float, atol: float
) -> None:
    assert tolerance(F32, scale=scale) == (1e-4, pytest.approx(atol))


@pytest.mark.parametrize("dtype", ["double", "float16", "bfloat16", "float8_e4m3fn"])
def test_of_other_types_it_only_grows(dtype: str) -> None:
    kind = onnx.helper.tensor_dtype_to_np_dtype(
        onnx.TensorProto.DataType.Value(dtype.upper().replace("_", ""))
    )
    assert tolerance(kind, scale=1e-6) == tolerance(kind)
    assert tolerance(kind, scale=10)[1] == pytest.approx(10 * tolerance(kind)[1])


def test_what_the_caller_gives_is_not_scaled() -> None:
    assert tolerance(F32, 0.5, 0.25, scale=1000) == (0.5, 0.25)


def test_a_small_element_among_large_ones_may_carry_their_rounding() -> None:
    a = np.array([280.0, -40, 35, 0.01])
    assert agree(a, a + 1.8e-4)
    assert not agree(a, a + [0, 0, 0, 1e-3])


def test_one_huge_element_does_not_hide_the_others() -> None:
    a = np.array([-1e9, 1.0, 0.5, -0.7, 0.9])
    assert not agree(a, a + [0, 0, 2e-4, 0, 0])


@pytest.mark.parametrize("fill", [-1e9, -1e4, float(np.finfo(np.float32).min)])
@pytest.mark.parametrize("masked", [60, 95])
def test_what_a_mask_fills_in_does_not_hide_the_others(fill: float, masked: int) -> None:
    values = np.random.default_rng(0).normal(size=100)
    for a in (
        np.where(np.arange(100) < masked, fill, values),
        np.where(np.arange(100) < masked, fill + values, values),
    ):
        assert agree(a, a)
        assert not agree(a, np.where(np.arange(100) < masked, a, -a))
        assert not agree(a, a + 1e-3 * (np.arange(100) == 99))


def test_where_nothing_but_fill_is_left_a_zero_stays_one() -> None:
    a = np.repeat([0.0, -1e9, -2e9], 20)
    assert not agree(a, a + (np.arange(60) == 0))


def test_a_percent_of_a_softmax_over_many_classes_shows() -> None:
    logits = np.random.default_rng(0).normal(size=1000)
    off = logits + 0.01 * (np.arange(1000) == 0)
    softmax = [np.exp(values) / np.exp(values).sum() for values in (logits, off)]
    assert (
        np.abs(softmax[0] - softmax[1]).max() < 1e-5
    )  # a tolerance of 1e-5 for all would not see it
    assert not agree(*softmax)


# -- fifty convolutions in a row ------------------------------------------------------------------------------------


def deep() -> onnx.ModelProto:
    """Fifty times Conv and Relu."""
    steps = [
        f"c{i} = Conv <pads = [1, 1, 1, 1]> (r{i}, w{i}, b{i})\n    r{i + 1} = Relu(c{i})"
        for i in range(50)
    ]
    names = ", ".join(f"float[8, 8, 3, 3] w{i}, float[8] b{i}" for i in range(50))
    weights = random_weights(
        {f"w{i}": (8, 8, 3, 3) for i in range(50)} | {f"b{i}": (8,) for i in range(50)}
    )
    weights = {name: array * (0.2 if name[0] == "w" else 0.1) for name, array in weights.items()}
    lines = "\n    ".join([*steps, "y = Identity(r50)"])
    return parse(
        f'<ir_version: 10, opset_import: ["": 21]> g (float[n, 8, 6, 6] r0, {names}) => (float[n, 8, 6, 6] y) {{\n{lines}\n}}',
        weights,
    )


def changed(model: onnx.ModelProto, name: str, change: Any) -> onnx.ModelProto:
    other = copy.deepcopy(model)
    (tensor,) = (tensor for tensor in other.graph.initializer if tensor.name == name)
    tensor.CopyFrom(
        onnx.numpy_helper.from_array(
            change(onnx.numpy_helper.to_array(tensor)).astype(np.float32), name
        )
    )
    return other


def test_small_errors_in_a_deep_network_show() -> None:
    model = deep()
    assert compare(model, model).equal
    assert not compare(model, changed(model, "b49", lambda bias: bias * 0)).equal
    assert not compare(model, changed(model, "w20", lambda weight: weight * 1.001)).equal


@pytest.mark.skipif(not RESNET.is_file(), reason="no ../shared/corpus")
def test_the_optimized_kernels_of_onnxruntime_agree_on_a_deep_network() -> None:
    baseline = Baseline.of(RESNET)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(str(RESNET), options)
    names = [output.name for output in session.get_outputs()]
    results = [
        difference
        for feeds, expected in baseline.runs
        for difference in compare_outputs(
            expected, dict(zip(names, session.run(names, dict(feeds)), strict=True))
        )
    ]
    assert all(difference.equal for difference in results)
    assert max(difference.max_abs for difference in results) > 1e-5
