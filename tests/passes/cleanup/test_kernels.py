"""Every kernel gives, bit by bit, what ONNX Runtime computes; what it declines is left to the runtime."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import onnx.helper
import pytest

from gehost.infer import Inferrer
from gehost.ir.model import Model
from gehost.ops import OpRegistry
from gehost.passes.cleanup import clean_up
from gehost.passes.cleanup.arithmetic import ARITHMETIC
from gehost.passes.cleanup.movement import MOVEMENT

Array = np.ndarray[Any, Any]
INT32, INT64, FLOAT, HALF, DOUBLE, BOOL = (
    np.dtype(name) for name in ("int32", "int64", "float32", "float16", "float64", "bool")
)


ROOM = onnx.numpy_helper.from_array(np.zeros(1 << 16, np.int8), "room")
"""A constant that nothing reads: results may be as large."""


def ints(*numbers: int) -> Array:
    return np.array(numbers, np.int64)


def box(*shape: int, dtype: Any = FLOAT) -> Array:
    """Distinct elements."""
    return np.arange(int(np.prod(shape)), dtype=np.int64).reshape(shape).astype(dtype)


def made(
    op: str, inputs: Sequence[Array | None], opset: int = 21, outputs: int = 1, **attributes: Any
) -> tuple[onnx.ModelProto, int]:
    """A model in which one node reads initializers; each of its outputs goes through a node that is not folded."""
    names = [f"x{i}" if array is not None else "" for i, array in enumerate(inputs)]
    results = [f"y{i}" for i in range(outputs)]
    nodes = [onnx.helper.make_node(op, names, results, **attributes)]
    nodes += [
        onnx.helper.make_node("Identity", [result], [f"z{i}"]) for i, result in enumerate(results)
    ]
    graph = onnx.helper.make_graph(
        nodes,
        "g",
        [],
        [onnx.ValueInfoProto(name=f"z{i}") for i in range(outputs)],
        [
            onnx.numpy_helper.from_array(array, name)
            for array, name in zip(inputs, names, strict=True)
            if array is not None
        ]
        + [ROOM],
    )
    return onnx.helper.make_model(
        graph, ir_version=10, opset_imports=[onnx.helper.make_opsetid("", opset)]
    ), outputs


def folded(model: onnx.ModelProto) -> list[Array] | None:
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    indexed = Model(copy)
    result = clean_up(indexed, OpRegistry(), Inferrer(indexed, OpRegistry()))
    if not result.folded:
        return None
    assert {node.op for node in indexed.graph.nodes} == {"Identity"}
    return [node.inputs[0].numpy() for node in indexed.graph.nodes]


def computed(model: onnx.ModelProto) -> list[Array]:
    ort = pytest.importorskip("onnxruntime")
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 4
    return ort.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    ).run(None, {})


def assert_same(ours: Sequence[Array], theirs: Sequence[Array]) -> None:
    for left, right in zip(ours, theirs, strict=True):
        assert left.dtype == right.dtype
        assert left.shape == right.shape
        assert left.dtype == object or left.tobytes() == np.ascontiguousarray(right).tobytes(), (
            left,
            right,
        )
        np.testing.assert_array_equal(left, right)


CUBE = box(2, 3, 4)
TEXT = np.array([["a", "bc"], ["", "d"]], object)
MIXED = np.array([-7, 7, -1, 0, 5, 2**30], np.int64)
REAL = np.array([-7.5, 0.1, -0.0, 3e-39, 5.25, 1e30], FLOAT)

CASES: list[tuple[Any, ...]] = [
    ("Concat", [CUBE, box(2, 1, 4)], {"axis": 1}),
    ("Concat", [CUBE, box(2, 3, 0)], {"axis": -1}),
    ("Concat", [TEXT, TEXT], {"axis": 0}),
    ("ConstantOfShape", [ints(2, 3)], {}),
    ("ConstantOfShape", [ints(2, 0)], {"value": onnx.helper.make_tensor("", 7, [1], [5])}),
    (
        "ConstantOfShape",
        [np.array([], INT64)],
        {"value": onnx.helper.make_tensor("", 9, [1], [True])},
    ),
    ("Expand", [box(3, 1), ints(2, 1, 4)], {}),
    ("Expand", [box(3, 1), ints(1, 1, 1)], {}),
    ("Expand", [box(1, 3), ints(0, 1)], {}),
    ("Flatten", [CUBE], {}),
    ("Flatten", [CUBE], {"axis": 0}),
    ("Flatten", [CUBE], {"axis": 3}),
    ("Flatten", [CUBE], {"axis": -1}),
    ("Gather", [CUBE, ints(1, -1, 0)], {"axis": 1}),
    ("Gather", [CUBE, np.array(-2, INT32)], {"axis": -1}),
    ("Gather", [TEXT, np.array([[1], [0]], INT64)], {"axis": 1}),
    ("Reshape", [CUBE, ints(0, -1, 2)], {}),
    ("Reshape", [CUBE, ints(-1)], {}),
    ("Reshape", [box(0, 3), ints(3, 0)], {"allowzero": 1}),
    ("Reshape", [box(1), np.array([], INT64)], {}),
    ("Reshape", [TEXT, ints(4)], {}),
    ("Slice", [CUBE, ints(1, -3), ints(2, 2**62), ints(1, 2)], {}),
    ("Slice", [CUBE, ints(-1), ints(-(2**62)), ints(2), ints(-2)], {}),
    ("Slice", [CUBE, ints(3), ints(0), ints(-1), ints(-1)], {}),
    ("Slice", [CUBE, ints(1), ints(1)], {}),
    ("Slice", [CUBE, ints(0, 0), ints(9, 9), None, ints(1, 2)], {}),
    ("Slice", [CUBE], {"starts": [1, -9], "ends": [9, -1], "axes": [1, 2], "opset": 9}),
    ("Slice", [CUBE], {"starts": [1], "ends": [2], "opset": 1}),
    ("Split", [CUBE, ints(1, 2)], {"axis": 1, "outputs": 2}),
    ("Split", [box(7)], {"num_outputs": 3, "outputs": 3}),
    ("Split", [CUBE], {"axis": -1, "outputs": 2, "opset": 13}),
    ("Split", [CUBE], {"axis": 2, "split": [1, 3], "outputs": 2, "opset": 11}),
    ("Split", [CUBE], {"axis": 2, "outputs": 4, "opset": 2}),
    ("Squeeze", [box(1, 3, 1)], {}),
    ("Squeeze", [box(1, 3, 1), ints(-1)], {}),
    ("Squeeze", [box(1, 3, 1)], {"axes": [0], "opset": 11}),
    ("Tile", [box(2, 1), ints(2, 3)], {}),
    ("Tile", [box(2, 1), ints(0, 3)], {}),
    ("Transpose", [CUBE], {}),
    ("Transpose", [CUBE], {"perm": [1, 2, 0]}),
    ("Unsqueeze", [box(3), ints(0, -1)], {}),
    ("Unsqueeze", [box(3)], {"axes": [0, 2], "opset": 11}),
    ("Where", [np.array([[True], [False]]), box(3), -box(3)], {}),
    ("Where", [np.array([True, False]), TEXT, np.array("z", object)], {}),
    ("Where", [np.array([True, False]), box(2, dtype=INT64), ints(-1, -2)], {}),
    ("Add", [MIXED, MIXED[::-1].copy()], {}),
    ("Add", [REAL, REAL[::-1].copy()], {}),
    ("Sub", [MIXED.astype(INT32), np.array(3, INT32)], {}),
    ("Sub", [REAL.astype(DOUBLE), np.array([[0.1], [1e-300]])], {}),
    ("Mul", [MIXED, ints(-3)], {}),
    ("Mul", [REAL, REAL], {}),
    ("Div", [ints(-7, 7, -7, 7, -8, 0), ints(2, 2, -2, -2, 4, 5)], {}),
    ("Div", [np.array([-7, 7], INT32), np.array([[2], [-3]], INT32)], {}),
    ("Div", [REAL, np.array([3, -7, 11, 0.3, 1e-3, 9], FLOAT)], {}),
    ("Div", [np.array([1, -1], FLOAT), np.array([0, 0], FLOAT)], {}),
    ("Pow", [REAL[:5], np.array(2, FLOAT)], {}),
    ("Pow", [box(3, 1) * np.float32(1.1), np.array([2, 2], INT64)], {}),
    ("Neg", [REAL], {}),
    ("Neg", [MIXED], {}),
    ("Sqrt", [np.abs(REAL)], {}),
    ("Sqrt", [np.array([2, 3, 0.0, 1e300])], {}),
    ("Floor", [REAL], {}),
    ("Ceil", [REAL], {}),
    ("Min", [MIXED, ints(1), ints(3)], {}),
    ("Max", [MIXED.astype(INT32), np.array([[1], [9]], INT32)], {}),
    ("Equal", [MIXED, ints(7)], {}),
    ("Equal", [np.array([np.nan, 1], FLOAT), np.array([np.nan, 1], FLOAT)], {}),
    ("Equal", [np.array([True, False]), np.array(True)], {}),
    ("Less", [REAL, np.array(0, FLOAT)], {}),
    ("LessOrEqual", [MIXED, ints(5)], {}),
    ("Greater", [MIXED, ints(5)], {}),
    ("GreaterOrEqual", [np.array([np.nan, 1]), np.array([1.0, 1.0])], {}),
    ("And", [np.array([[True], [False]]), np.array([True, False])], {}),
    ("Or", [np.array([[True], [False]]), np.array([True, False])], {}),
    ("Not", [np.array([True, False])], {}),
    ("Mod", [MIXED, ints(-3)], {}),
    ("Mod", [MIXED, ints(3)], {"fmod": 1}),
    ("Mod", [np.array([-7, 7, 5], INT32), np.array([2, -4, 5], INT32)], {"opset": 10}),
    ("Mod", [np.array([200, 7, 250, 4], np.uint8), np.array([3, 100, 7, 5], np.uint8)], {}),
    ("Mod", [np.array([-7.5, 7.25, 5.5], FLOAT), np.array([2, -4, 0.75], FLOAT)], {"fmod": 1}),
    ("Range", [np.array(0), np.array(7), np.array(3)], {}),
    ("Range", [np.array(5, INT32), np.array(-6, INT32), np.array(-2, INT32)], {}),
    ("Range", [np.array(5), np.array(5), np.array(1)], {}),
    ("Range", [np.array(5), np.array(9), np.array(-1)], {}),
    ("ReduceProd", [ints(2, 3, -4)], {}),
    ("ReduceProd", [box(2, 3, dtype=INT64) + 1, ints(-1)], {"keepdims": 0}),
    ("ReduceProd", [box(2, 3, dtype=INT32)], {"axes": [0], "opset": 13}),
    ("Cast", [REAL[:5]], {"to": 7}),
    ("Cast", [np.array([0, 255.9, -0.5], FLOAT)], {"to": 2}),
    ("Cast", [REAL], {"to": 11}),
    ("Cast", [REAL], {"to": 9}),
    ("Cast", [np.array([1e-8, 0.1, 65504, 2049, 2051, -1e-7, np.inf], FLOAT)], {"to": 10}),
    ("Cast", [np.array([0.1, 6e-8, 65504, -np.inf], HALF)], {"to": 1}),
    ("Cast", [np.array([0.1, 6e-8, 65504], HALF)], {"to": 7}),
    ("Cast", [np.array([0.1, 1e-320, 1e-46, 3.4e38])], {"to": 1}),
    ("Cast", [np.array([2**53 + 1, -(2**62) - 1, 16777217])], {"to": 1}),
    ("Cast", [np.array([2**53 + 1, 2**62 + 1])], {"to": 11}),
    ("Cast", [np.array([2**64 - 1, 2**63 + 12345], np.uint64)], {"to": 1}),
    ("Cast", [np.array([-7, 127])], {"to": 3}),
    ("Cast", [np.array([True, False])], {"to": 1}),
    ("Cast", [np.array([True, False])], {"to": 10}),
    ("Cast", [np.array([3, 0, -1])], {"to": 9}),
    ("Cast", [np.array([2048, -7])], {"to": 10}),
]


def call(case: tuple[Any, ...]) -> onnx.ModelProto:
    op, inputs, options = case
    return made(op, inputs, **options)[0]


@pytest.mark.parametrize("case", CASES, ids=[f"{i}-{case[0]}" for i, case in enumerate(CASES)])
def test_as_onnx_runtime(case: tuple[Any, ...]) -> None:
    model = call(case)
    ours = folded(model)
    assert ours is not None
    assert_same(ours, computed(model))


def test_every_kernel_has_a_case() -> None:
    assert {case[0] for case in CASES} == {*MOVEMENT, *ARITHMETIC}


NAN, INF = float("nan"), float("inf")

DECLINED: list[tuple[Any, ...]] = [
    ("Add", [np.array([2**62 + 1]), np.array([2**62])], {}),
    ("Add", [np.array([2**31 - 1], INT32), np.array([1], INT32)], {}),
    ("Mul", [np.array([2**40]), np.array([2**40])], {}),
    ("Sub", [np.array([INF], FLOAT), np.array([INF], FLOAT)], {}),
    ("Add", [box(2, dtype=HALF), box(2, dtype=HALF)], {}),
    ("Add", [box(2, dtype=np.int8), box(2, dtype=np.int8)], {}),
    ("Add", [box(2), box(2)], {"opset": 6}),
    ("Add", [box(2), box(3)], {}),
    ("Div", [ints(1, 2), ints(1, 0)], {}),
    ("Mod", [ints(1, 2), ints(1, 0)], {}),
    ("Mod", [box(2), box(2) + 1], {}),
    ("Div", [np.array([-(2**63)]), ints(-1)], {}),
    ("Neg", [np.array([-(2**63)])], {}),
    ("Sqrt", [np.array([-1], FLOAT)], {}),
    ("Pow", [box(3), np.array(3, FLOAT)], {}),
    ("Pow", [box(3, dtype=DOUBLE), np.array(2, FLOAT)], {}),
    ("Min", [box(2), box(2)], {}),
    ("Range", [np.array(0, FLOAT), np.array(1, FLOAT), np.array(0.1, FLOAT)], {}),
    ("Range", [np.array(0), np.array(1), np.array(0)], {}),
    ("ReduceProd", [box(2)], {}),
    ("ReduceProd", [np.full(5, 2**20)], {}),
    ("ReduceProd", [ints(0, 2**40, 2**40)], {}),
    ("ReduceProd", [ints(1, 2), np.array([], INT64)], {"noop_with_empty_axes": 1}),
    ("Cast", [np.array([NAN], FLOAT)], {"to": 7}),
    ("Cast", [np.array([INF], FLOAT)], {"to": 6}),
    ("Cast", [np.array([NAN], FLOAT)], {"to": 11}),
    ("Cast", [np.array([2.0**63])], {"to": 7}),
    ("Cast", [np.array([-1], FLOAT)], {"to": 2}),
    ("Cast", [np.array([128])], {"to": 3}),
    ("Cast", [np.array([-1])], {"to": 13}),
    ("Cast", [np.array([1e39])], {"to": 1}),
    ("Cast", [np.array([1e5], FLOAT)], {"to": 10}),
    ("Cast", [np.array([0.1])], {"to": 10}),
    ("Cast", [np.array([2049])], {"to": 10}),
    ("Cast", [np.array([1.5], FLOAT)], {"to": 16}),
    ("Cast", [np.array([1.5], FLOAT)], {"to": 17}),
    ("Cast", [np.array([1.5], FLOAT)], {"to": 8}),
    ("Cast", [np.array(["1"], object)], {"to": 1}),
    ("Cast", [np.array([1.5], ml_dtypes.float8_e4m3fn)], {"to": 1}),
    ("Cast", [np.array([1.5], FLOAT)], {"to": 99}),
    ("Equal", [TEXT, TEXT], {}),
    ("Gather", [box(3), ints(3)], {}),
    ("Gather", [box(3), ints(-4)], {}),
    ("Gather", [box(3), ints(0)], {"axis": 1}),
    ("Reshape", [box(3), ints(2)], {}),
    ("Reshape", [box(3), ints(-2)], {}),
    ("Reshape", [box(3), ints(3, 0)], {}),
    ("Slice", [box(3), ints(0), ints(2), ints(0), ints(0)], {}),
    ("Slice", [box(3, 3), ints(0, 0), ints(2, 2), ints(0, 0)], {}),
    ("Slice", [box(3), ints(0), ints(2), ints(1)], {}),
    ("Slice", [box(3), ints(0, 1), ints(2)], {}),
    ("Split", [box(7)], {"outputs": 2, "opset": 13}),
    ("Split", [box(3)], {"num_outputs": 5, "outputs": 5}),
    ("Split", [box(7), ints(3, 3)], {"outputs": 2}),
    ("Squeeze", [box(2, 1), ints(0)], {}),
    ("Squeeze", [box(1, 1), np.array([], INT64)], {}),
    ("Tile", [box(2), ints(2, 2)], {}),
    ("Tile", [box(2), ints(-1)], {}),
    ("Transpose", [box(2, 3)], {"perm": [0]}),
    ("Unsqueeze", [box(2), ints(0, 0)], {}),
    ("Concat", [box(2), box(2, dtype=INT64)], {"axis": 0}),
    ("Concat", [box(2, 1), box(3, 2)], {"axis": 0}),
    ("Expand", [box(2), ints(3)], {}),
    ("Where", [box(2), box(2), box(2)], {}),
    ("Flatten", [CUBE], {"axis": 4}),
    ("Flatten", [np.array(1, FLOAT)], {}),
    ("ConstantOfShape", [ints(2)], {"value": onnx.helper.make_tensor("", 1, [2], [1, 2])}),
]


@pytest.mark.parametrize(
    "case", DECLINED, ids=[f"{i}-{case[0]}" for i, case in enumerate(DECLINED)]
)
def test_declined(case: tuple[Any, ...]) -> None:
    assert folded(call(case)) is None


@pytest.mark.parametrize(
    "dtype",
    [
        HALF,
        ml_dtypes.bfloat16,
        ml_dtypes.float8_e4m3fn,
        ml_dtypes.int4,
        np.uint16,
        np.complex64,
        BOOL,
    ],
    ids=str,
)
def test_movement_of_any_type(dtype: Any) -> None:
    """ONNX Runtime moves few of these; numpy's own bits are the measure."""
    array = np.arange(6).reshape(2, 3).astype(dtype)
    for case, expected in [
        (("Transpose", [array], {}), array.T),
        (("Gather", [array, ints(1, 0)], {"axis": 1}), array[:, [1, 0]]),
        (("Concat", [array, array], {"axis": 0}), np.concatenate([array, array])),
        (("Slice", [array, ints(1), ints(3), ints(1)], {}), array[:, 1:3]),
        (
            ("Where", [np.array([True, False, True]), array, np.roll(array, 1, 1)], {}),
            array[:, [0, 0, 2]],
        ),
        (("Expand", [array, ints(2, 1, 1)], {}), np.stack([array, array])),
        (("Tile", [array, ints(1, 2)], {}), np.concatenate([array, array], 1)),
    ]:
        ours = folded(call(case))
        assert ours is not None, case[0]
        assert ours[0].dtype == array.dtype
        assert ours[0].shape == expected.shape
        assert ours[0].tobytes() == np.ascontiguousarray(expected).tobytes()


def test_bfloat16_is_widened() -> None:
    array = np.array([1.5, -3e38, 1e-40, np.inf], ml_dtypes.bfloat16)
    ours = folded(call(("Cast", [array], {"to": 1})))
    assert ours is not None
    assert_same(ours, [array.astype(FLOAT)])


def test_random_slices() -> None:
    """Starts, ends and steps of every sign, inside and outside."""
    rng = np.random.default_rng(7)
    nodes, tensors = [], [onnx.numpy_helper.from_array(box(4, 5), "x")]
    for i in range(200):
        axes = rng.permutation(2)[: rng.integers(1, 3)] - 2 * rng.integers(0, 2)
        starts, ends = (rng.integers(-8, 9, len(axes)) for _ in range(2))
        steps = rng.choice([-3, -2, -1, 1, 2, 3], len(axes))
        for name, numbers in zip("seat", (starts, ends, axes, steps), strict=True):
            tensors.append(
                onnx.numpy_helper.from_array(np.asarray(numbers, np.int64), f"{name}{i}")
            )
        nodes.append(
            onnx.helper.make_node("Slice", ["x", f"s{i}", f"e{i}", f"a{i}", f"t{i}"], [f"y{i}"])
        )
        nodes.append(onnx.helper.make_node("Identity", [f"y{i}"], [f"z{i}"]))
    graph = onnx.helper.make_graph(
        nodes, "g", [], [onnx.ValueInfoProto(name=f"z{i}") for i in range(200)], tensors
    )
    model = onnx.helper.make_model(
        graph, ir_version=10, opset_imports=[onnx.helper.make_opsetid("", 21)]
    )
    ours = folded(model)
    assert ours is not None
    assert_same(ours, computed(model))


def test_random_numbers() -> None:
    """Rounding, in arithmetic and in casts, over random bits."""
    rng = np.random.default_rng(8)
    bits = rng.integers(0, 2**32, (2, 4096), dtype=np.uint64).astype(np.uint32).view(FLOAT)
    left, right = np.where(np.isfinite(bits), bits, np.float32(1))
    moderate = np.clip(left, -60000, 60000)
    whole = rng.integers(-(2**31), 2**31, 4096)
    for case in [
        ("Add", [left, right], {}),
        ("Sub", [left, right], {}),
        ("Mul", [left, right], {}),
        ("Div", [left, np.where(right == 0, np.float32(3), right)], {}),
        ("Sqrt", [np.abs(left)], {}),
        ("Floor", [left], {}),
        ("Cast", [moderate], {"to": 10}),
        ("Cast", [moderate], {"to": 7}),
        ("Cast", [left], {"to": 11}),
        ("Cast", [whole], {"to": 1}),
        ("Cast", [whole * 2**31 + whole[::-1]], {"to": 1}),
        ("Cast", [whole * 2**31 + whole[::-1]], {"to": 11}),
        ("Div", [whole, np.roll(whole, 1) // 2**16 * 2 + 1], {}),
        ("Less", [left, right], {}),
    ]:
        ours = folded(call(case))
        assert ours is not None, case[0]
        assert_same(ours, computed(call(case)))
