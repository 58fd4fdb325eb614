"""Inputs are made from the signature, inside what the model can take."""

from __future__ import annotations

import zipfile
from pathlib import Path

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from gehost.errors import UsageError
from gehost.verify import Runner, find_feeds, load_feeds, make_feeds, save_feeds
from gehost.verify.feeds import with_declared_types, with_special_values

HEAD = '<ir_version: 10, opset_import: ["": 21, "local": 1]>'


def parse(text: str) -> onnx.ModelProto:
    return onnx.parser.parse_model(HEAD + text)


def made(text: str, **kwargs: int) -> dict[str, np.ndarray]:
    return make_feeds(parse(text), **kwargs)


def test_seed_and_variant_decide_and_nothing_else() -> None:
    text = "g (float[n, k] x, float[n, k] y) => (float[n, k] z) { z = Add(x, y) }"
    first, again = made(text), made(text)
    assert list(first) == ["x", "y"]
    assert all(np.array_equal(first[name], again[name]) for name in first)
    assert not np.array_equal(first["x"], first["y"])
    assert not np.array_equal(first["x"], made(text, seed=1)["x"])
    assert first["x"].dtype == np.float32
    assert first["x"].shape == (2, 3)
    assert made(text, variant=1)["x"].shape == (1, 7)
    fixed = "g (float[2] x) => (float[2] y) { y = Identity(x) }"
    assert len({made(fixed, variant=variant)["x"].tobytes() for variant in range(3)}) == 3
    swapped = made("g (float[n, k] y, float[n, k] x) => (float[n, k] z) { z = Add(x, y) }")
    assert np.array_equal(first["x"], swapped["x"])


def test_initialized_inputs_are_not_fed() -> None:
    assert list(made("g (float[2] x, float[2] w = {1, 2}) => (float[2] y) { y = Mul(x, w) }")) == [
        "x"
    ]


def test_scalars_empty_tensors_and_unnamed_dimensions() -> None:
    feeds = made("g (float x, float[0, 3] e, float[?, ?, 2] u) => (float y) { y = Identity(x) }")
    assert feeds["x"].shape == ()
    assert feeds["e"].shape == (0, 3)
    assert len({2, *feeds["u"].shape}) == 3


@pytest.mark.parametrize(
    ("body", "rows"),
    [
        ("y = Gather(table, i)", 50),
        ("y = Gather <axis = 1> (table, i)", 3),
        ("y = Gather <axis = -1> (table, i)", 3),
        ("c = Cast <to = 6> (i) one = Constant <value_ints = [-1]> () r = Reshape(c, one) y = Gather(table, r)", 50),
        ("t = Transpose <perm = [1, 0]> (table) y = Gather(t, i)", 3),
        ("y = local.lookup(table, i)", 50),
        ("a = Gather(table, i) b = Gather <axis = 1> (table, i) y = Concat <axis = -1> (a, b)", 3),
        ("y = GatherElements(rows, i)", 2),
        (("b = Constant <value_int = 1> () t = Cast <to = 9> (b) y = If (t) <then_branch = g1 () => (float[m, n] o) "
         "{ o = Gather(table, i) }, else_branch = g2 () => (float[m, n] p) { p = Gather(table, i) }>"), 50),
    ],
)  # fmt: skip
def test_an_index_stays_in_its_table(body: str, rows: int) -> None:
    values = ", ".join(str(k) for k in range(150))
    model = parse(
        f"g (int64[40, 2] i, float[2, 3] rows) => (float y) <float[50, 3] table = {{{values}}}> {{ {body} }}"
        '<domain: "local", opset_import: ["": 21]> lookup (t, j) => (o) { k = Identity(j) o = Gather(t, k) }'
    )
    index = make_feeds(model)["i"]
    assert index.dtype == np.int64
    assert index.min() >= 0
    assert rows * 0.6 <= index.max() + 1 <= rows


@pytest.mark.parametrize("version", [3, 10])
@pytest.mark.parametrize("declared", ["", ", int64[2] s"])
def test_an_index_into_a_table_whose_shape_is_an_initializer(version: int, declared: str) -> None:
    values = ", ".join(str(k) for k in range(150))
    model = parse(
        f"g (int64[400] i, float[n] d{declared}) => (float y) <float[50, 3] table = {{{values}}}, int64[2] s = {{75, -1}}> "
        "{ t = Reshape(table, s) y = Gather(t, i) }"
    )
    model.ir_version = version
    assert make_feeds(model)["i"].max() == 74


def test_an_index_into_a_symbolic_axis() -> None:
    for variant in range(3):
        feeds = made(
            "g (float[n, k] x, int64[30] i) => (float[30, k] y) { y = Gather(x, i) }",
            variant=variant,
        )
        assert feeds["i"].max() < feeds["x"].shape[0]


@pytest.mark.parametrize(
    ("name", "body"),
    [
        ("attention_mask", "y = Cast <to = 1> (attention_mask)"),
        ("keep", "y = Cast <to = 9> (keep)"),
        ("keep", "zero = Constant <value_int = 0> () y = Equal(keep, zero)"),
        ("keep", "f = Cast <to = 1> (keep) one = Constant <value_float = 1.0> () y = Sub(one, f)"),
        ("keep", "one = Constant <value = int64 {1}> () s = Shape(keep) y = Sub(one, keep)"),
    ],
)
def test_a_mask_is_zero_or_one_and_no_row_is_empty(name: str, body: str) -> None:
    mask = made(f"g (int64[40, 3] {name}) => (float[40, 3] y) {{ {body} }}")[name]
    assert set(np.unique(mask)) == {0, 1}
    assert mask.max(axis=-1).min() == 1


@pytest.mark.parametrize(
    "body",
    [
        "y = Cast <to = 1> (i)",
        "two = Constant <value_int = 2> () y = Sub(two, i)",
        "z = Constant <value_int = 0> () b = Equal(i, z) y = Mul(i, z)",
    ],
)
def test_other_integers_are_small(body: str) -> None:
    assert set(np.unique(made(f"g (int32[40, 3] i) => (float[40, 3] y) {{ {body} }}")["i"])) == {
        0,
        1,
        2,
        3,
    }


def test_every_element_type() -> None:
    for element in TensorProto.DataType.values():
        if element == TensorProto.UNDEFINED:
            continue
        value = helper.make_tensor_value_info("x", element, [20, 3])
        graph = helper.make_graph([], "g", [value], [])
        array = make_feeds(helper.make_model(graph))["x"]
        assert array.shape == (20, 3)
        assert len({str(value) for value in array.ravel()}) > 1
        if element == TensorProto.STRING:
            assert set(array.ravel()) <= set("abcdef")
        else:
            assert array.dtype == helper.tensor_dtype_to_np_dtype(element)
    assert (
        made("g (bfloat16[3] x) => (bfloat16[3] y) { y = Identity(x) }")["x"].dtype
        == ml_dtypes.bfloat16
    )
    assert made("g (uint8[40] x) => (uint8[40] y) { y = Identity(x) }")["x"].max() > 100


@pytest.mark.parametrize(
    ("declared", "said"),
    [
        ("seq(float[2]) s", "'s' is a sequence; give --feeds"),
        ("optional(float[2]) s", "'s' is a optional; give --feeds"),
        ("float s", "'s' has no declared rank; give --feeds"),
    ],
)
def test_what_cannot_be_made_is_refused(declared: str, said: str) -> None:
    model = parse(f"g ({declared}) => (float y) {{ y = Identity(s) }}")
    if declared == "float s":
        model.graph.input[0].type.tensor_type.ClearField("shape")
    with pytest.raises(UsageError, match=said):
        make_feeds(model)


def test_weights_need_not_be_there() -> None:
    model = parse("g (int64[40] i) => (float y) { y = Gather(table, i) }")
    table = TensorProto(
        name="table", data_type=TensorProto.FLOAT, dims=[9, 4], data_location=TensorProto.EXTERNAL
    )
    table.external_data.add(key="location", value="nowhere.data")
    model.graph.initializer.append(table)
    before = model.SerializeToString()
    assert make_feeds(model)["i"].max() == 8
    assert model.SerializeToString() == before


def test_feeds_from_a_file(tmp_path: Path) -> None:
    np.savez(tmp_path / "good.npz", x=np.arange(3), y=np.ones(2))
    assert {name: list(array) for name, array in load_feeds(tmp_path / "good.npz").items()} == {
        "x": [0, 1, 2],
        "y": [1, 1],
    }
    np.savez(tmp_path / "pickled.npz", x=np.array([{}], dtype=object))
    np.save(tmp_path / "one.npy", np.arange(3))
    (tmp_path / "text.npz").write_text("hello")
    (tmp_path / "empty.npz").write_text("")
    with zipfile.ZipFile(tmp_path / "other.npz", "w") as archive:
        archive.writestr("x.txt", "hello")
    for name in ("pickled.npz", "one.npy", "text.npz", "empty.npz", "other.npz"):
        with pytest.raises(
            UsageError,
            match=rf"{name} is not an \.npz file with one array of numbers or text for each input$",
        ):
            load_feeds(tmp_path / name)
    with pytest.raises(UsageError, match=r"none\.npz: there is no such file$"):
        load_feeds(tmp_path / "none.npz")
    with pytest.raises(UsageError, match=r" cannot be read: Is a directory$"):
        load_feeds(tmp_path)


@pytest.mark.parametrize(
    "name", ["x", "file", "/m/layer.0/out", "../../up", "a.npy", "é", "allow_pickle"]
)
def test_feeds_of_any_name_come_back(name: str, tmp_path: Path) -> None:
    feeds = {name: np.arange(6, dtype=np.float32).reshape(2, 3).T, f"{name}2": np.array(7)}
    (tmp_path / "f.npz").write_bytes(save_feeds(feeds))
    loaded = load_feeds(tmp_path / "f.npz")
    assert list(loaded) == list(feeds)
    for key, array in feeds.items():
        assert np.array_equal(loaded[key], array)
        assert (loaded[key].dtype, loaded[key].shape) == (array.dtype, array.shape)


@pytest.mark.parametrize("element", ["bfloat16", "float8e4m3fn", "int4"])
def test_types_that_numpy_files_lack_come_back_by_the_model(element: str, tmp_path: Path) -> None:
    model = parse(
        f"g ({element}[2] x, float[2] z, string[2] s) => ({element}[2] y) {{ y = Identity(x) }}"
    )
    dtype = onnx.helper.tensor_dtype_to_np_dtype(model.graph.input[0].type.tensor_type.elem_type)
    feeds = {
        "x": np.array([1, 2]).astype(dtype),
        "z": np.ones(2, np.float32),
        "s": np.array(["a", "bc"], object),
    }
    (tmp_path / "f.npz").write_bytes(save_feeds(feeds))
    loaded = with_declared_types(load_feeds(tmp_path / "f.npz"), model)
    assert loaded["x"].dtype == dtype
    assert {name: array.tolist() for name, array in loaded.items()} == {
        name: array.tolist() for name, array in feeds.items()
    }


# -- special values -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["float64", "float32", "float16", "bfloat16"])
def test_special_values_are_put_into_floats_alone(dtype: str) -> None:
    kind = np.dtype(getattr(ml_dtypes, dtype, dtype))
    feeds = {"x": np.ones((8, 8)).astype(kind), "i": np.ones((8, 8), np.int64)}
    results = list(with_special_values(feeds, seed=3))
    again = list(with_special_values(feeds, seed=3))
    values = [np.unique(item["x"].astype(np.float64)[item["x"] != 1]) for item in results]
    assert len(results) == 7
    assert np.isnan(values[0]).all()
    assert [list(value) for value in values[1:3]] == [[np.inf], [-np.inf]]
    assert np.signbit(values[3]).all()
    assert list(values[3]) == [0]
    low, high = values[4]
    assert -1e-4 < low < 0 < high < 1e-4
    assert np.abs(values[5]).max() == pytest.approx(88.5, rel=1e-2)
    largest = 65504 if dtype == "float16" else 1e38
    assert list(np.abs(values[6])) == pytest.approx([largest, largest], rel=1e-2)
    for item, other in zip(results, again, strict=True):
        assert item["x"].tobytes() == other["x"].tobytes()
        assert item["i"] is feeds["i"]
        changed = (item["x"].view(np.uint8) != feeds["x"].view(np.uint8)).any(axis=-1)
        assert changed.any()
        assert (item["x"] == 1).sum() > 32


def test_a_scalar_gets_each_special_value() -> None:
    results = [value["x"][()] for value in with_special_values({"x": np.ones((), np.float32)})]
    assert np.isnan(results[0])
    assert np.isinf(results[1])
    assert 0 < abs(results[4]) < np.finfo(np.float32).tiny


# -- inputs that do not fit into memory -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("shape", "problem"),
    [
        ("9223372036854775", "float32[9223372036854775] needs 36,893,488,147,419,100 bytes"),
        ("9223372036854775807, 2", "needs more than 2**63 bytes"),
        (", ".join(f"N{axis}" for axis in range(40)), "float32 of 40 axes needs more than 2**63"),
    ],
)
def test_an_input_that_cannot_be_allocated_has_one_line(shape: str, problem: str) -> None:
    model = parse(f"g (float[{shape}] x) => (float[{shape}] y) {{ y = Relu(x) }}")
    with pytest.raises(UsageError) as caught:
        make_feeds(model)
    assert str(caught.value).startswith("input 'x' as ")
    assert problem in str(caught.value)
    assert ("--dim" in str(caught.value)) == ("N0" in shape)


def test_an_input_of_65_axes_has_one_line() -> None:
    sizes = ", ".join("1" * 65)
    with pytest.raises(UsageError, match="input 'x' has 65 axes, and numpy's arrays have 64"):
        make_feeds(parse(f"g (float[{sizes}] x) => (float y) {{ y = ReduceSum(x) }}"))


def test_sizes_that_cannot_be_allocated_are_left_out_where_others_can(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The first variant has 2 elements, the second 1, the third 3."""
    rng = np.random.default_rng

    class Generator:
        def __init__(self, seed: list[int]) -> None:
            self._rng = rng(seed)

        def standard_normal(self, shape: tuple[int, ...]) -> np.ndarray:
            if shape == (3,):
                raise MemoryError
            return self._rng.standard_normal(shape)

    monkeypatch.setattr(np.random, "default_rng", Generator)
    model = parse("g (float[N] x) => (float[N] y) { y = Relu(x) }")
    assert [len(inputs["x"]) for inputs, _ in find_feeds(Runner(model))] == [2, 1]
