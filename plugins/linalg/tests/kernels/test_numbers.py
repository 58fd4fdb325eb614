"""Kernels against bodies: special values for every function and reduction, sizes, layouts, threads."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest

from .cases import CASES, ELEMENT_WISE, LAYOUTS, ROWS
from .conftest import Built
from .fused_models import Array, fused_model, run, session

SPECIAL = np.array(
    [np.nan, np.inf, -np.inf, 0.0, -0.0, 1e-40, -1e-40, 88.5, -88.5, 88.73, -87.5, -103.9, -105, 1e38, -1e38, 1, -1, 2, -2, 0.5,
     -0.5, 1.5, 2.5, -1.5, 3, -3, 1e10, -1e10, 2**31, -(2**31), 9.3e18, 0.3, -0.7, 17, -17, -20, 30,
     *np.array([0x7FC00001, 0xFFC12345], np.uint32).view(np.float32)],  # NaNs with a payload
    np.float32,
)  # fmt: skip


class Pair:
    """One case alone, by its body and by its kernel of the library."""

    def __init__(self, built: Built, name: str, threads: int = 1) -> None:
        model = fused_model([CASES[name]])
        self.names = [value.name for value in model.graph.input]
        assert model.functions[0].name in {kernel.name for kernel in built.found.kernels}
        self.body, self.kernel = session(model), session(model, built.library, threads)

    def run(self, *arrays: Array) -> list[tuple[Array, Array]]:
        feeds = dict(zip(self.names, arrays, strict=True))
        argument, expected = run(self.kernel, feeds), run(self.body, feeds)
        return [(argument[name], expected[name]) for name in expected]

    def check(self, *arrays: Array, rtol: float = 1e-5, atol: float = 1e-6) -> None:
        for argument, expected in self.run(*arrays):
            assert (argument.dtype, argument.shape) == (expected.dtype, expected.shape)
            np.testing.assert_allclose(argument, expected, rtol=rtol, atol=atol)


def drawn(*shape: int, seed: int = 0) -> Array:
    return np.random.default_rng([seed, *shape]).standard_normal(shape).astype(np.float32)


def test_every_case_has_a_kernel(built: Built) -> None:
    assert built.found.left == []


def test_kernels_run_and_not_bodies(built: Built, tmp_path: Path) -> None:
    options = onnxruntime.SessionOptions()
    options.enable_profiling = True
    options.profile_file_prefix = str(tmp_path / "profile")
    options.register_custom_ops_library(str(built.library))
    model = fused_model([CASES["residual"]])
    result = onnxruntime.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    run(
        result,
        {
            value.name: drawn(*([2, 3, 8] if index < 2 else [8]))
            for index, value in enumerate(model.graph.input)
        },
    )
    events = json.loads(Path(result.end_profiling()).read_text(encoding="utf-8"))
    ops = [
        event["args"]["op_name"]
        for event in events
        if event.get("cat") == "Node" and event["name"].endswith("_kernel_time")
    ]
    assert ops == [model.functions[0].name]


# What ONNX Runtime computes otherwise than C: MLAS gives 0 for Sigmoid below -18, and loses digits of tanh at denormals.
_LOOSE = {"Sigmoid": 1e-7, "Gelu": 1e-7, "Gelu tanh": 1e-6, "Mish": 1e-36, "Tanh": 1e-43}


@pytest.mark.parametrize("name", [name for name in ELEMENT_WISE if name != "double"])
def test_special_values_of_functions(built: Built, name: str) -> None:
    pair = Pair(built, name)
    x, z = (item.ravel() for item in np.meshgrid(SPECIAL, SPECIAL))
    (both,) = pair.run(*([x] if len(pair.names) == 1 else [x, z]))
    inputs, expected = both
    np.testing.assert_allclose(inputs, expected, rtol=1e-5, atol=_LOOSE.get(name, 0))
    signs = (
        np.ones_like(expected, np.bool_)
        if expected.dtype.kind != "f"
        else (expected == 0) & (inputs == 0)
    )
    np.testing.assert_array_equal(
        np.signbit(inputs[signs].astype(np.float64)), np.signbit(expected[signs].astype(np.float64))
    )


def test_a_quotient_that_is_rounded_is_exact(built: Built) -> None:
    """7 * (1 / 7) may be 0.99999994."""
    x = np.arange(-7000, 7000, dtype=np.float32)
    ((inputs, _),) = Pair(built, "Floor of a quotient").run(x)
    np.testing.assert_array_equal(inputs, -np.floor(x / np.float32(7)))


@pytest.mark.parametrize("name", ["Floor", "Comparison"])
def test_a_quotient_by_a_root_that_is_rounded_is_exact(built: Built, name: str) -> None:
    """A sum of one number is exact, and 41 * (1 / 41) is 0.99999994."""
    x = np.zeros((99, 4), np.float32)
    x[:, 1] = np.arange(1, 100)
    ((inputs, _),) = Pair(built, f"{name} of a quotient by a root").run(x)
    np.testing.assert_array_equal(inputs, x > 0)


def special_rows(length: int) -> Array:
    rows = [np.full(length, item, np.float32) for item in SPECIAL]
    for place in (0, length // 3, length - 2):
        for values in (
            [np.nan],
            [np.inf],
            [-np.inf],
            [np.inf, -np.inf],
            [np.nan, np.inf],
            [-0.0],
            [1e38, 1e38],
            [88.5],
            [-88.5],
        ):
            row = drawn(length, seed=place)
            row[place : place + len(values)] = values[: length - place]
            rows.append(row)
    return np.array(rows)


@pytest.mark.parametrize("name", list(ROWS))
@pytest.mark.parametrize("length", [3, 12, 19, 40, 64])
def test_special_values_of_rows(built: Built, name: str, length: int) -> None:
    x = special_rows(length)
    pair = Pair(built, name)
    more = [np.ones(length, np.float32), np.zeros(length, np.float32)][: len(pair.names) - 1]
    ((inputs, expected),) = pair.run(x, *more)
    if name in {
        "ReduceMax",
        "ReduceMin",
    }:  # ONNX Runtime loses a NaN that does not come first; a kernel keeps it
        has_nan = np.isnan(x).any(axis=1, keepdims=True)
        assert np.isnan(inputs[has_nan]).all()
        inputs, expected = inputs[~has_nan], expected[~has_nan]
    np.testing.assert_allclose(inputs, expected, rtol=1e-5, atol=2e-6)


def test_double(built: Built) -> None:
    Pair(built, "double").check(np.linspace(-700, 700, 99), rtol=1e-14, atol=0)


# -- sizes and layouts ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "shape", [(1, 1, 1), (2, 3, 64), (1, 5, 17), (3, 1, 768), (2, 2, 20_000), (0, 3, 8)]
)
def test_residual(built: Built, shape: tuple[int, ...]) -> None:
    vector = drawn(shape[-1], seed=3)
    Pair(built, "residual").check(
        drawn(*shape), drawn(*shape, seed=1), vector, vector + 1, atol=2e-5
    )


@pytest.mark.parametrize(
    "shapes",
    [
        ((2, 3, 5), (2, 3, 5), (5,)), ((2, 3, 5), (1, 3, 5), (1,)), ((2, 1, 5), (2, 3, 1), (5,)), ((1, 1, 1), (4, 3, 5), (1,)),
        ((1, 1, 1), (1, 1, 1), (7,)), ((2, 3, 1), (1, 1, 1), (6,)), ((1, 1, 1), (1, 1, 1), (1,)), ((3, 70, 200), (3, 70, 200), (1,)),
        ((3, 70, 200), (3, 70, 200), (200,)), ((0, 3, 5), (1, 3, 5), (5,)), ((2, 3, 1), (2, 3, 0), (1,)), ((1, 1, 50_000),) * 2 + ((1,),),
    ],
)  # fmt: skip
@pytest.mark.parametrize("threads", [1, 3])
def test_broadcasting_is_decided_at_run_time(
    built: Built, shapes: tuple[tuple[int, ...], ...], threads: int
) -> None:
    Pair(built, "broadcast", threads).check(
        *[drawn(*shape, seed=place) for place, shape in enumerate(shapes)]
    )


@pytest.mark.parametrize(
    ("p", "q"),
    [
        ((2, 3, 4, 9), (2, 1, 4, 9)),
        ((2, 3, 4, 9), (1, 1, 1, 9)),
        ((1, 3, 4, 9), (2, 1, 4, 1)),
        ((2, 3, 1, 1), (2, 1, 4, 9)),
    ],
)
def test_masked_softmax(built: Built, p: tuple[int, ...], q: tuple[int, ...]) -> None:
    mask = np.where(drawn(*q) > 0, np.float32(0), np.float32(-np.inf))
    mask[..., 0] = 0
    Pair(built, "masked softmax").check(drawn(*p), mask)


@pytest.mark.parametrize(
    ("m", "q"),
    [
        ((2, 4, 9), (2, 4, 9)),
        ((1, 4, 9), (5, 4, 9)),
        ((2, 1, 1), (1, 4, 9)),
        ((2, 4, 9), (1, 1, 1)),
    ],
)
def test_outputs_of_two_sizes(built: Built, m: tuple[int, ...], q: tuple[int, ...]) -> None:
    Pair(built, "outputs of two sizes").check(drawn(*m) > 0, drawn(*q))


@pytest.mark.parametrize(("rows", "size"), [(5, 8), (1, 8), (40, 8)])
def test_rotary(built: Built, rows: int, size: int) -> None:
    table = drawn(1, 1, rows, size)
    Pair(built, "rotary").check(drawn(2, rows, 3, size), table, table + 1)


@pytest.mark.parametrize(("rows", "size"), [(5, 8), (1, 8), (40, 8)])
def test_a_reduction_before_a_transposition(built: Built, rows: int, size: int) -> None:
    table = drawn(1, 1, rows, size)
    Pair(built, "norm then rotary").check(
        drawn(2, rows, 3, size), drawn(size, seed=1), table, table + 1
    )


@pytest.mark.parametrize(("batch", "rows"), [(2, 5), (1, 1), (2, 400), (0, 3), (3, 0)])
@pytest.mark.parametrize("bias", [24, 1])
def test_a_last_axis_that_is_split(built: Built, batch: int, rows: int, bias: int) -> None:
    p, q, table = drawn(batch, rows, 24), drawn(bias), drawn(1, 1, rows, 8)
    Pair(built, "heads").check(p, q)
    if batch and rows:  # ONNX Runtime has no rest beside an empty axis
        Pair(built, "heads of keys").check(p, q)
        Pair(built, "heads").check(drawn(batch, rows, 1), drawn(24))
    Pair(built, "heads in three").check(drawn(rows, 24))
    Pair(built, "rotary of heads").check(p, table, table + 1)
    for name in ("queries of three", "keys of three"):
        Pair(built, name).check(p, q)
        Pair(built, name).check(drawn(batch, rows, 1), drawn(24))
    Pair(built, "one head").check(p)
    Pair(built, "last heads").check(drawn(rows, 24), q)
    Pair(built, "last heads").check(drawn(rows, 1), drawn(24))


@pytest.mark.parametrize(
    ("name", "p", "parts"),
    [
        ("heads", (2, 5, 25), "25 is split into parts of 8"),
        ("heads", (2, 5, 32), "32 is split into parts of 8"),
        ("heads", (2, 5, 1), "1 is split into parts of 8"),
        ("heads of keys", (2, 5, 12), "12 is split into parts of 8"),
        ("heads in three", (5, 36), "36 is split into parts of 12"),
        ("rotary of heads", (1, 1, 32), "32 is split into parts of 8"),
    ],
)
def test_a_split_that_does_not_fit(built: Built, name: str, p: tuple[int, ...], parts: str) -> None:
    pair = Pair(built, name)
    others = {"q": drawn(1), "r": drawn(1, 1, 1, 8)}
    if name.startswith("rotary"):
        others["q"] = others["r"]
    feeds = {item: drawn(*p) if item[0] == "p" else others[item[0]] for item in pair.names}
    with pytest.raises(Exception, match=f"an axis of size {parts}"):
        run(pair.kernel, feeds)
    with pytest.raises(Exception, match="cannot be reshaped"):
        run(pair.body, feeds)


@pytest.mark.parametrize("shape", [(3, 4, 2, 9), (1, 1, 1, 9), (1, 4, 2, 9), (3, 1, 2, 1)])
def test_outer_axes_in_another_order(built: Built, shape: tuple[int, ...]) -> None:
    """A permutation that is not its own inverse, with axes that may be broadcast."""
    Pair(built, "three axes turned").check(drawn(2, 3, 4, 9), drawn(3, 4, 2, 9))
    p = drawn(*shape[2:3], *shape[:2], shape[3], seed=1)
    Pair(built, "three axes turned").check(p, drawn(3, 4, 2, 9))


def test_rows_that_are_not_contiguous(built: Built) -> None:
    Pair(built, "transposed").check(drawn(2, 5, 33), drawn(33, 5))
    Pair(built, "strided").check(drawn(3, 12))
    Pair(built, "strided").check(drawn(3, 13))


@pytest.mark.parametrize("rows", [1, 2, 15, 16, 17, 40])
@pytest.mark.parametrize("length", [1, 7, 16, 31, 33, 512, 530])
def test_columns(built: Built, rows: int, length: int) -> None:
    """16 x 16 elements at once, and what is left of them."""
    p, q = drawn(2, length, rows), drawn(rows)
    ((inputs, _),) = Pair(built, "columns").run(p, q)
    np.testing.assert_array_equal(inputs, (p + q).transpose(0, 2, 1))
    ((inputs, _),) = Pair(built, "columns of doubles").run(p[0].astype(np.float64))
    np.testing.assert_array_equal(inputs, -p[0].T.astype(np.float64))
    ((inputs, _),) = Pair(built, "columns of bools").run(p[0] > 0)
    np.testing.assert_array_equal(inputs, ~(p[0].T > 0))
    for other in (p[1], p[1, :1], p[1, :, :1]):
        Pair(built, "softmax of columns").check(p[0], other, drawn(length))
        Pair(built, "softmax of columns").check(other, p[0], drawn(length))


@pytest.mark.parametrize(("rows", "length"), [(3, 20000), (700, 30), (40, 1030), (0, 20), (20, 0)])
def test_columns_in_several_tasks(built: Built, rows: int, length: int) -> None:
    p, q = drawn(1, length, rows), drawn(rows)
    for threads in (1, 2):
        ((inputs, _),) = Pair(built, "columns", threads).run(p, q)
        np.testing.assert_array_equal(inputs, (p + q).transpose(0, 2, 1))
        if length:
            pair = Pair(built, "softmax of columns", threads)
            pair.check(p[0], p[0], drawn(length))


def test_the_epsilon_of_doubles_is_a_float32(built: Built) -> None:
    d = 1e-3 * np.random.default_rng(1).standard_normal((3, 9))
    Pair(built, "norm of doubles").check(d, rtol=1e-13, atol=0)


def test_places_of_an_axis(built: Built) -> None:
    Pair(built, "recurrence").check(drawn(2, 5, 3, 9), drawn(2, 5, 4, 9, seed=1), drawn(2, 5, 9))
    Pair(built, "recurrence").check(drawn(1, 1, 7, 1), drawn(1, 1, 3, 1, seed=1), drawn(1, 1, 1))
    for size in (1, 4):
        Pair(built, "first place").check(drawn(3, size, 9))


def test_a_place_behind_the_end_is_an_error(built: Built) -> None:
    pair = Pair(built, "recurrence")
    feeds = dict(
        zip(pair.names, (drawn(2, 5, 2, 9), drawn(2, 5, 3, 9), drawn(2, 5, 9)), strict=True)
    )
    with pytest.raises(Exception, match="axis 2 of input 0 has size 2, which does not fit"):
        run(pair.kernel, feeds)
    pair = Pair(built, "first place")
    with pytest.raises(Exception, match="axis 1 of input 0 has size 0, which does not fit"):
        run(pair.kernel, dict(zip(pair.names, (drawn(3, 0, 9),), strict=True)))


def test_positions(built: Built) -> None:
    Pair(built, "triangle").check(drawn(2, 7, 9))


def test_the_least_number_of_32_bits_is_one_of_64(built: Built) -> None:
    Pair(built, "least of 32 bits").check(np.array([1, -3, 2**40]))


@pytest.mark.parametrize("shapes", [((3, 5), (3, 5)), ((1, 5), (3, 1)), ((3, 1), (1, 1))])
def test_a_row_whose_operands_may_all_broadcast_is_reduced(
    built: Built, shapes: tuple[tuple[int, ...], tuple[int, ...]]
) -> None:
    Pair(built, "sum of broadcast").check(*(drawn(*shape) for shape in shapes))


def test_numbers_without_axes(built: Built) -> None:
    Pair(built, "numbers").check(np.array(6), np.array(-7))
    Pair(built, "shape").check(np.array(6), np.array(-7))


@pytest.mark.parametrize(
    ("p", "q"), [((4, 1), (4, 9)), ((4, 9), (4, 9)), ((4, 9), (1, 1)), ((1, 1), (3, 5))]
)
def test_a_row_of_one_is_reduced_before_it_broadcasts(
    built: Built, p: tuple[int, ...], q: tuple[int, ...]
) -> None:
    Pair(built, "row of one reduced").check(drawn(*p), drawn(*q))


def test_sizes_that_do_not_fit(built: Built) -> None:
    pair = Pair(built, "broadcast")
    arrays: Mapping[str, Array] = dict(
        zip(pair.names, (drawn(2, 3, 5), drawn(2, 4, 5), drawn(5)), strict=True)
    )
    with pytest.raises(onnxruntime.capi.onnxruntime_pybind11_state.InvalidArgument) as error:
        run(pair.kernel, arrays)
    assert "gehost.linalg::Add_Mul_Sub_" in str(error.value)
    assert "sizes 3 and 4 of its operands do not broadcast" in str(error.value)


def test_all_layouts_are_tried(built: Built) -> None:
    assert set(LAYOUTS) <= set(built.nodes)
    onnx.checker.check_model(onnx.load(built.model))
