"""Any deterministic operator on constants is computed, within limits, and rounded once."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import onnx
import pytest

from gehost.infer import Inferrer, infer_model
from gehost.ir.model import Model
from gehost.ops import OpRegistry
from gehost.passes.cleanup import clean_up, reference

from .conftest import parse, run

CONSTANTS = (
    "float[2, 3] w = {0.1, -2, 3, 0.7, 5, -0.6}, float[3] s = {0.5, 1, 2}, int64[4] i = {7, -7, 8, 12}, "
    "int64[4] j = {4, 4, -3, 5}, int64[1] axis = {1}, float[1, 1, 3, 3] image = {1, 2, 3, 4, 5, 6, 7, 8, 9}, "
    "float[1, 1, 2, 2] kernel = {1, 2, 3, 4}, int64[1, 1] at = {1}, float[1, 3] row = {9, 8, 7}"
)
FOLDED = [
    "c = Softmax(w)",
    "c = LayerNormalization(w, s)",
    "c = MatMul(w, t)",
    "c = Gemm <alpha = 0.5, transB = 1> (w, w)",
    "c = Conv(image, kernel)",
    "c = Exp(w)",
    "c = Tanh(w)",
    "c = Erf(w)",
    "c = Pow(s, w)",
    "c = ReduceMean <keepdims = 0> (w, axis)",
    "c = ReduceSum(w, axis)",
    "c = Clip(w, zero)",
    "c = Clip(masked, zero, zero)",
    "c = Sigmoid(w)",
    "c = Gelu(w)",
    "c = Where(flags, w, s)",
    "c = CumSum(w, axis0)",
    "c = Trilu(w)",
    "c = ScatterND(w, at, row)",
    "c = ArgMax <axis = 1> (w)",
    "c = Max(w, s)",
    "c = Mod(i, j)",
    "c = Mod <fmod = 1> (i, j)",
    "c = Mod <fmod = 1> (w, s)",
]


def model(node: str, opset: int = 21) -> onnx.ModelProto:
    parsed = parse(
        f"g (float x) => (float y) <{CONSTANTS}, float zero = {{0}}, float[2] masked = {{0, -inf}}, int64 axis0 = {{0}}, bool[3] flags = {{1, 0, 1}}, float[3, 2] t = {{1, 2, 3, 4, 5, 6}}> "
        f"{{ {node}  f = Cast <to = 1> (c)  y = acme.F(x, f) }}",
        opset,
    )
    parsed.graph.initializer.add(name="room", data_type=2, dims=[4096], raw_data=bytes(4096))
    return parsed


@pytest.mark.parametrize("node", FOLDED)
def test_folds_as_onnx_runtime_computes(clean: Any, node: str) -> None:
    cleaned = clean(model(node), runs=False)
    assert cleaned.ops == ["acme::F"]
    original = model(node)
    del original.graph.node[2:], original.graph.output[:], original.opset_import[1:]
    original.graph.output.add(name="f")
    original.graph.output[0].type.tensor_type.elem_type = 1
    (expected,) = run(original, {"x": np.zeros((), np.float32)})
    array = cleaned.model.graph.tail.inputs[1].numpy()
    np.testing.assert_allclose(array, expected, rtol=1e-6, atol=1e-7, strict=True)


def test_a_clip_below_opset_11_has_both_bounds(clean: Any) -> None:
    cleaned = clean(model("c = Clip <max = 0.5> (masked)", 10), runs=False)
    assert cleaned.ops == ["acme::F"]
    array = cleaned.model.graph.tail.inputs[1].numpy()
    np.testing.assert_array_equal(array, [0, np.finfo(np.float32).min])


@pytest.mark.parametrize(
    "node",
    [
        "c = RandomNormalLike(w)",
        "c = Mod(i, zeros)",
        "c = Log(w)",  # NaN
        "c = Exp(large)",  # infinite, though no operand is
        "c = Max(w, minus)",
        "c = Clip(endless)",
        "c = Clip(endless, half)",
        "c = Clip(endless, , half)",
        "c = Dropout(w, half, yes)",
        "c = acme.G(w)",
        "c = local.G(w)",
        "c = NonZero(w)",  # a shape that depends on the elements
        "c = QuantizeLinear(w, half)",
        "c = DequantizeLinear(bytes, half)",
        "c = MaxPool <kernel_shape = [2, 2]> (image)",  # the evaluator is wrong in some cases
    ],
)
def test_stays(clean: Any, node: str) -> None:
    source = model(node)
    source.MergeFrom(
        parse(
            "g () => () <int64[4] zeros = {0, 1, 1, 1}, float[2] large = {1000, 1}, float[2] endless = {inf, -inf}, float half = {0.5}, bool yes = {1}, uint8[2] bytes = {1, 2}> { } "
            '<domain: "local", opset_import: ["": 21]> G (p) => (q) { q = Neg(p) }'
        )
    )
    del source.opset_import[3:]
    source.graph.initializer.append(
        onnx.numpy_helper.from_array(np.array(-0.0, np.float32), "minus")
    )
    cleaned = clean(source, runs=False, infer="zeros" not in node, check=False)
    assert len(cleaned.ops) >= 2


@pytest.mark.parametrize("kind", ["float16", "bfloat16"])
def test_half_precision_is_rounded_once(clean: Any, kind: str) -> None:
    """A sum of many terms is exact until the end."""
    dtype = np.dtype("float16") if kind == "float16" else np.dtype(ml_dtypes.bfloat16)
    left, right = (
        np.random.default_rng(seed).standard_normal(shape).astype(dtype)
        for seed, shape in ((0, (4, 300)), (1, (300, 4)))
    )
    source = parse(f"g ({kind}[4, 4] x) => ({kind}[4, 4] y) {{ c = MatMul(a, b)  y = Add(x, c) }}")
    source.graph.initializer.append(onnx.numpy_helper.from_array(left, "a"))
    source.graph.initializer.append(onnx.numpy_helper.from_array(right, "b"))
    cleaned = clean(source, runs=False)
    assert cleaned.ops == ["Add"]
    exact = (left.astype(np.float64) @ right.astype(np.float64)).astype(dtype)
    assert cleaned.array("c").tobytes() == exact.tobytes()


def test_a_declared_type_that_is_another_one(clean: Any) -> None:
    def declare(entry: onnx.ModelProto) -> None:
        entry.graph.value_info.append(onnx.helper.make_tensor_value_info("c", 1, [2, 4]))

    assert clean(model("c = Softmax(w)"), edit=declare, infer=False, runs=False).result.folded == 0


def squares(count: int, size: int) -> Model:
    """A model with a chain of products of constants, whose rows are added to x."""
    steps = "  ".join(f"m{n + 1} = MatMul(m{n}, m{n})" for n in range(count))
    source = parse(
        f"g (float[{size}] x) => (float[{size}] y) {{ {steps}  r = ReduceMax <keepdims = 0> (m{count}, axes)  y = Add(x, r) }}"
    )
    identity = np.eye(size, dtype=np.float32)
    source.graph.initializer.append(onnx.numpy_helper.from_array(identity, "m0"))
    source.graph.initializer.append(onnx.numpy_helper.from_array(np.array([0]), "axes"))
    indexed = Model(source)
    infer_model(indexed)
    return indexed


@pytest.mark.parametrize("limit", ["OPERATIONS", "ALL_OPERATIONS"])
def test_an_expression_takes_so_many_operations(
    monkeypatch: pytest.MonkeyPatch, limit: str
) -> None:
    """The compile after the next does not go on where this one stopped."""
    monkeypatch.setattr(reference, limit, 4 * 20**3)
    indexed = squares(8, 20)
    result = clean_up(indexed, OpRegistry(), Inferrer(indexed, OpRegistry()))
    assert 0 < result.folded < 5
    ops = [node.op for node in indexed.graph.nodes]
    again = Model(onnx.ModelProto.FromString(indexed.flush().SerializeToString()))
    infer_model(again)
    assert clean_up(again, OpRegistry(), Inferrer(again, OpRegistry())).total == 0
    assert [node.op for node in again.graph.nodes] == ops
    monkeypatch.undo()
    free = squares(8, 20)
    assert clean_up(free, OpRegistry(), Inferrer(free, OpRegistry())).folded == 9


def test_a_shared_part_of_an_expression_counts_once() -> None:
    """A chain whose steps read their predecessor twice is no tree of 2**n products."""
    indexed = squares(24, 20)
    assert clean_up(indexed, OpRegistry(), Inferrer(indexed, OpRegistry())).folded == 25


def test_what_takes_too_many_is_not_begun(monkeypatch: pytest.MonkeyPatch) -> None:
    def never(_call: Any) -> Any:
        raise AssertionError

    monkeypatch.setattr(reference, "evaluate", never)
    monkeypatch.setattr(reference, "OPERATIONS", 20**3)
    indexed = squares(1, 20)
    assert clean_up(indexed, OpRegistry(), Inferrer(indexed, OpRegistry())).folded == 0
