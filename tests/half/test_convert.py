"""A model in float16: its types, its constants, its functions, and the numbers of its runs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import onnx.checker
import onnx.numpy_helper
import onnx.parser
import pytest

from gehost.half import to_float16
from gehost.verify import Runner, make_feeds
from gehost.verify.retype import element_types
from gehost.verify.widen import widened

MODELS = Path(__file__).parents[1] / "models"
FLOAT, FLOAT16 = onnx.TensorProto.FLOAT, onnx.TensorProto.FLOAT16


def graph(
    inputs: str, body: str, *, result: str = "float[N, 4] y", weights: str = "", opset: int = 20
) -> onnx.ModelProto:
    weights = f"<{weights}>" if weights else ""
    return onnx.parser.parse_model(
        f'<ir_version: 10, opset_import: ["": {opset}, "com.microsoft": 1]> '
        f"g ({inputs}) => ({result}) {weights} {{ {body} }}"
    )


def converted(model: onnx.ModelProto, **options: Any) -> onnx.ModelProto:
    result = to_float16(model, **options).model
    onnx.checker.check_model(result, full_check=True)
    return result


def kinds(model: onnx.ModelProto) -> dict[str, int]:
    return element_types(model)


def nodes(model: onnx.ModelProto) -> list[str]:
    return [node.op_type for node in model.graph.node]


def weight(model: onnx.ModelProto, name: str) -> np.ndarray[Any, Any]:
    return next(
        onnx.numpy_helper.to_array(tensor)
        for tensor in model.graph.initializer
        if tensor.name == name
    )


@pytest.mark.parametrize("keep_io", [False, True])
@pytest.mark.parametrize(
    "name",
    [
        "bert.ts17",
        "gpt2.dyn20",
        "if",
        "ir3",
        "llama.ts17",
        "local_function",
        "loop",
        "scan",
        "vit.ts13",
    ],
)
def test_exports_convert_and_compute_the_same_function(name: str, keep_io: bool) -> None:
    model = onnx.load(MODELS / f"{name}.onnx")
    result = to_float16(model, keep_io=keep_io).model
    onnx.checker.check_model(result)
    weights = {tensor.name for tensor in model.graph.initializer}
    for before, after in zip(
        (*model.graph.input, *model.graph.output),
        (*result.graph.input, *result.graph.output),
        strict=True,
    ):
        half = before.type.tensor_type.elem_type == FLOAT and (
            not keep_io or before.name in weights
        )
        expected = FLOAT16 if half else before.type.tensor_type.elem_type
        assert after.type.tensor_type.elem_type == expected, before.name
    feeds = make_feeds(model)
    Runner(result)  # ONNX Runtime loads it
    numbers, wide = Runner(model).run(feeds), Runner(widened(result)).run(feeds)
    for output, array in numbers.items():
        scale = float(np.abs(array).max(initial=0.0)) or 1.0
        np.testing.assert_allclose(wide[output] / scale, array / scale, atol=4e-3, err_msg=output)


def test_weights_and_nodes_become_half_and_keep_their_names() -> None:
    model = graph(
        "float[N, 2] x",
        "y = MatMul (x, w)",
        result="float[N, 2] y",
        weights="float[2, 2] w = {1, 2, 3, 0.1}",
    )
    result = converted(model)
    assert nodes(result) == ["MatMul"]
    assert weight(result, "w").dtype == np.float16
    assert result.graph.input[0].type.tensor_type.elem_type == FLOAT16


def test_an_epsilon_stays_float32_in_attributes_and_constants() -> None:
    model = graph(
        "float[N, 4] x",
        """s = Mul (x, x) m = ReduceMean <keepdims = 1> (s, axes) e = Add (m, eps)
        r = Sqrt (e) n = Div (x, r) y = LayerNormalization <epsilon: float = 1e-12> (n, g)""",
        weights="int64[1] axes = {-1}, float eps = {1e-6}, float[4] g = {1, 1, 1, 1}",
    )
    result = converted(model)
    assert weight(result, "eps") == np.float32(1e-6)
    last = result.graph.node[-1]
    assert last.op_type == "LayerNormalization"
    assert last.attribute[0].f == np.float32(1e-12)
    types = kinds(result)
    assert [types[name] for name in ("s", "m", "e", "r", "n", "y")] == [FLOAT] * 5 + [FLOAT16]


@pytest.mark.parametrize(
    ("operator", "kind"),
    [
        ("Clip <min = 0.000000000001> (x)", onnx.TensorProto.FLOAT),
        ("Clip <min = -1000000.0> (x)", onnx.TensorProto.FLOAT),
        ("Pad <pads = [0, 1], value = 1000000.0> (x)", onnx.TensorProto.FLOAT),
        ("Clip <min = 0.0, max = 6.0> (x)", onnx.TensorProto.FLOAT16),
    ],
)
def test_attributes_count_as_constants(operator: str, kind: int) -> None:
    """A bound that is an attribute is half where its operator computes in it."""
    model = onnx.parser.parse_model(
        f"""<ir_version: 8, opset_import: ["": 10]>
        g (float[4] x) => (float[N] z) {{ y = {operator} z = Neg (y) }}"""
    )
    half = to_float16(onnx.shape_inference.infer_shapes(model)).model
    assert kinds(half).get("y (float32)", kinds(half).get("y")) == kind


def test_squares_do_not_overflow() -> None:
    model = graph(
        "float[N, 4] x",
        "s = Mul (x, x) m = ReduceMean <keepdims = 1> (s, axes) r = Sqrt (m) y = Div (x, r)",
        weights="int64[1] axes = {-1}",
    )
    result = converted(model)
    large = np.array([[300, 1000, -500, 2]], np.float16)
    match = Runner(result).run({"x": large})["y"]
    expected = Runner(model).run({"x": large.astype(np.float32)})["y"]
    np.testing.assert_allclose(match, expected, rtol=1e-3)


def test_a_fill_becomes_the_lowest_number_not_infinity() -> None:
    model = graph(
        "float[N, 4] x, bool[N, 4] keep",
        "y = Where (keep, x, low)",
        weights="float low = {-3.4028235e38}",
    )
    assert weight(converted(model), "low") == np.float16(-65504)


def test_a_mask_made_in_float32_is_bounded_before_its_cast() -> None:
    model = graph(
        "float[N, 4] x, int64[N, 4] mask",
        """f = Cast <to = 1> (mask) n = Sub (one, f) m = Mul (n, low) t = Add (m, m)
        y = Add (x, t)""",
        weights="float one = {1}, float low = {-3.4028235e38}",
    )
    result = converted(model)
    mask = np.array([[1, 0, 1, 0]])
    match = Runner(result).run({"x": np.zeros((1, 4), np.float16), "mask": mask})["y"]
    # the sum of two fills is an infinity of float32 already
    assert match.tolist() == [[0, -65504, 0, -65504]]


def test_positions_are_counted_in_float32() -> None:
    model = graph(
        "float[N] x, int64 n",
        """p = Range (zero, n, one) f = Cast <to = 1> (p) a = Mul (f, frequency) c = Cos (a)
        y = Mul (x, c)""",
        result="float[N] y",
        weights="int64 zero = {0}, int64 one = {1}, float frequency = {0.37}",
    )
    types = kinds(converted(model))
    assert [types[name] for name in ("f", "a", "c", "y")] == [FLOAT, FLOAT, FLOAT, FLOAT16]


@pytest.mark.parametrize("move", ["Identity (x)", "Reshape (x, size)", "Concat <axis = 0> (x, x)"])
@pytest.mark.parametrize("moves", [1, 2])
def test_an_angle_that_is_only_moved_is_not_rounded(move: str, moves: int) -> None:
    """An input of float32 was rounded before a move, and cast back before the cosine."""
    second = " b = Identity (m)" if moves == 2 else ""
    model = graph(
        "float[N] x",
        f"m = {move}{second} y = Cos ({'b' if moves == 2 else 'm'})",
        result="float[M] y",
        weights="int64[1] size = {-1}",
    )
    result = converted(model, keep_io=True)
    assert "Cast" not in {node.op_type for node in result.graph.node}


READERS = {
    "index": "g = Div (f, two) h = Floor (g) y = Cast <to = 7> (h)",
    "moved": "g = Div (f, two) h = Floor (g) m = Reshape (h, rows) y = Cast <to = 7> (m)",
    "comparison": "g = Mul (f, two) b = Equal (g, odd) y = Cast <to = 7> (b)",
    "with an input": "v = Abs (x) b = Less (v, f) y = Cast <to = 7> (b)",
    "bucket": "g = Div (f, two) l = Log (g) h = Mul (l, five) y = Cast <to = 7> (h)",
    "largest": "g = Div (f, two) y = ArgMax <axis = 0, keepdims = 0> (g)",
    "branch": """y = If (c) <then_branch = t () => (int64[n] p)
        { g = Div (f, two) p = Cast <to = 7> (g) }, else_branch = e () => (int64[n] q)
        { h = Mul (f, two) q = Cast <to = 7> (h) }>""",
}


@pytest.mark.parametrize("keep_io", [False, True])
@pytest.mark.parametrize("body", READERS.values(), ids=READERS)
def test_integers_are_made_of_positions_in_float32(body: str, keep_io: bool) -> None:
    """Half has no odd numbers from 2049 on."""
    model = graph(
        "int64[M] i, float[1] x, bool c",
        f"f = Cast <to = 1> (i) {body}",
        result="int64[K] y",
        weights="float two = {2}, float[1] odd = {8198}, float five = {5.3}, int64[1] rows = {-1}",
    )
    if "ArgMax" in body:
        del model.graph.output[0].type.tensor_type.shape.dim[:]
    feed: dict[str, Any] = {
        "i": np.array([*range(3, 5000, 7), 4097, 4099, 4100, 4098, 9998, 9999], np.int64),
        "x": np.array([4096], np.float32),
        "c": np.array(True),
    }
    expected = Runner(model).run(feed)["y"]
    result = converted(model, keep_io=keep_io)
    if not keep_io:
        feed["x"] = feed["x"].astype(np.float16)
    assert np.array_equal(Runner(result).run(feed)["y"], expected)


def test_the_size_of_a_weight_needs_no_float32() -> None:
    model = graph(
        "float[N, 4] x",
        "a = MatMul (x, w) s = Shape (w) b = Reshape (a, s) y = Relu (b)",
        weights="float[4, 4] w = {1, 2, 3, 4, 5, 6, 7, 8, 9, 1, 2, 3, 4, 5, 6, 7}",
    )
    assert FLOAT not in {tensor.data_type for tensor in converted(model).graph.initializer}


def test_integer_kernels_keep_their_chain() -> None:
    model = graph(
        "float[N, 4] x",
        """h = Relu (x) q, s, z = DynamicQuantizeLinear (h) i = MatMulInteger (q, w, z, wz)
        f = Cast <to = 1> (i) k = Mul (s, ws) m = Mul (f, k) b = Add (m, bias) y = Relu (b)""",
        result="float[N, 2] y",
        weights="uint8[4, 2] w = {1, 2, 3, 4, 5, 6, 7, 8}, uint8 wz = {3}, float ws = {0.02}, "
        "float[2] bias = {0.1, 0.2}",
    )
    types = kinds(converted(model))
    assert [types[name] for name in ("h", "m", "b", "y")] == [FLOAT16, FLOAT, FLOAT, FLOAT16]


def test_a_function_keeps_its_epsilon_inside() -> None:
    model = onnx.parser.parse_model(
        """<ir_version: 10, opset_import: ["": 20, "acme": 1]>
        g (float[N, 4] x) => (float[N, 4] y) <float[4] g = {1, 2, 3, 4}> { y = acme.Norm (x, g) }
        <domain: "acme", opset_import: ["": 20]>
        Norm (x, g) => (y) {
            s = Mul (x, x) axes = Constant <value = int64[1] {-1}> ()
            m = ReduceMean <keepdims = 1> (s, axes) e = Constant <value = float {1e-6}> ()
            d = Add (m, e) r = Sqrt (d) n = Div (x, r) y = Mul (n, g) }"""
    )
    result = converted(model)
    body = result.functions[0]
    constants = {
        node.output[0]: node.attribute[0].t for node in body.node if node.op_type == "Constant"
    }
    assert onnx.numpy_helper.to_array(constants["e"]) == np.float32(1e-6)
    x = np.array([[300, 1000, -500, 2]], np.float16)
    match = Runner(result).run({"x": x})["y"]
    np.testing.assert_allclose(
        match, Runner(model).run({"x": x.astype(np.float32)})["y"], rtol=2e-3
    )


def test_a_function_that_is_called_with_other_types_keeps_float32() -> None:
    model = onnx.parser.parse_model(
        """<ir_version: 10, opset_import: ["": 20, "acme": 1]>
        g (float[N] x, int64[N] i) => (float[N] y, int64[N] j)
        { y = acme.Twice (x) j = acme.Twice (i) }
        <domain: "acme", opset_import: ["": 20]> Twice (x) => (y) { y = Add (x, x) }"""
    )
    result = converted(model)
    assert nodes(result) == ["Cast", "Twice", "Twice", "Cast"]


def test_kernels_of_the_runtime_are_half_where_its_table_has_them() -> None:
    model = graph(
        "float[2, 3, 8] q, float[2, 3, 8] k, float[2, 3, 8] v",
        """a = com.microsoft.MultiHeadAttention <num_heads = 2> (q, k, v)
        y = com.microsoft.Unheard (a)""",
        result="float[2, 3, 8] y",
    )
    result = to_float16(model).model
    assert nodes(result) == ["MultiHeadAttention", "Cast", "Unheard", "Cast"]


def test_named_nodes_and_operators_keep_float32() -> None:
    model = graph("float[N, 4] x", "a = Relu (x) b = Tanh (a) y = Relu (b)")
    types = kinds(converted(model, keep_float32=["Tanh"]))
    assert [types[name] for name in ("a", "b", "y")] == [FLOAT16, FLOAT, FLOAT16]


def test_a_weight_beyond_the_range_is_not_cut() -> None:
    model = graph("float[N, 4] x", "y = Mul (x, w)", weights="float w = {100000}")
    conversion = to_float16(model)
    assert weight(conversion.model, "w") == 100000
    assert conversion.notes == (
        'half: 1 node keeps float32 (constants too large for float16): Mul "y"',
    )
    assert conversion.kept == {"constants too large for float16": ['Mul "y"']}


def test_a_small_weight_of_both_types_is_in_the_file_twice() -> None:
    model = graph(
        "float[N, 4] x",
        "a = Tanh (x) b = Mul (a, w) c = Relu (b) y = Mul (c, w)",
        weights="float w = {3}",
    )
    result = converted(model)
    assert {tensor.name: tensor.data_type for tensor in result.graph.initializer} == {"w": FLOAT16}
    model.graph.node[3].name = "last"
    result = converted(model, keep_float32=["last"])
    assert {tensor.name: tensor.data_type for tensor in result.graph.initializer} == {
        "w": FLOAT,
        "w (float16)": FLOAT16,
    }


def test_weights_of_a_body_keep_their_names() -> None:
    """Passes put the constants of a replacement in a body there, as its weights."""
    model = graph(
        "float[N, 4] x, bool c",
        """y = If (c) <
            then_branch = t () => (float[N, 4] a) <float[4] w = {1, 2, 3, 4}> { a = Mul (x, w) },
            else_branch = e () => (float[N, 4] b) <float[4] v = {4, 3, 2, 1}> { b = Add (x, v) }>""",
    )
    result = converted(model)
    named = {
        tensor.name: tensor.data_type
        for entry in result.graph.node[-1].attribute
        for tensor in entry.g.initializer
    }
    assert named == {"w": FLOAT16, "v": FLOAT16}
    feeds = make_feeds(result)
    wide = {"x": feeds["x"].astype(np.float32), "c": feeds["c"]}
    np.testing.assert_allclose(
        Runner(result).run(feeds)["y"], Runner(model).run(wide)["y"], rtol=2e-3
    )


def test_nodes_of_a_body_read_values_of_the_graph_around_it() -> None:
    model = onnx.parser.parse_model(
        """<ir_version: 10, opset_import: ["": 20]>
        g (float[N] x, bool c) => (float[N] y) <float w = {100000}, float v = {2}> {
            a = Relu (x)
            y = If (c) <
                then_branch = t () => (float[N] p) { p = Mul (a, w) },
                else_branch = e () => (float[N] q) { q = Mul (a, v) }>
        }"""
    )
    result = converted(model)
    feeds = {"x": np.array([0.5, 0.25], np.float16)}
    for selected, expected in ((True, [50000, 25000]), (False, [1, 0.5])):
        match = Runner(result).run(feeds | {"c": np.array(selected)})["y"]
        np.testing.assert_allclose(match, expected, rtol=1e-3)


def test_a_model_in_half_stays_as_it_is() -> None:
    model = graph("float[N, 4] x", "h = Cast <to = 10> (x) r = Relu (h) y = Cast <to = 1> (r)")
    conversion = to_float16(model)
    assert conversion.model == model
    assert conversion.notes == (
        "half: the model has tensors of float16 already, and stays as it is",
    )
    assert not conversion.is_converted


def test_numbers_out_of_range_on_feeds_are_named_and_stay_float32() -> None:
    model = graph(
        "float[N, 4] x", "a = Mul (x, w) b = Tanh (a) y = Relu (b)", weights="float w = {1000}"
    )
    model.graph.node[0].name = "scaled"
    conversion = to_float16(model, feeds=[{"x": np.full((1, 4), 90.0, np.float32)}])
    assert conversion.notes[0] == ('half: Mul "scaled" reaches 9e+04, above 65504: kept in float32')
    types = kinds(conversion.model)
    assert [types[name] for name in ("a", "b", "y")] == [FLOAT, FLOAT, FLOAT16]


def test_bfloat16_counts_as_half() -> None:
    model = graph("float[N, 4] x", "y = Mul (x, x)")
    array = np.ones(2, ml_dtypes.bfloat16)
    model.graph.initializer.append(onnx.numpy_helper.from_array(array, "b"))
    assert to_float16(model).model == model


def test_a_kernel_that_reads_a_number_out_of_range_stays_float32() -> None:
    model = graph(
        "float[N, 4] x",
        "a = Mul (x, w) y = com.microsoft.QuickGelu (a)",
        weights="float w = {1000}",
    )
    conversion = to_float16(model, feeds=[{"x": np.full((1, 4), 90.0, np.float32)}])
    assert conversion.kept == {"numbers outside of float16's range": ['Mul "a"', 'QuickGelu "y"']}


def test_a_function_that_reads_a_number_out_of_range_has_that_reason() -> None:
    model = graph(
        "float[N, 4] x",
        "a = Mul (x, w) b = acme.Twice (a) c = Div (b, w) y = acme.Twice (c)",
        weights="float w = {1000}",
    )
    model.opset_import.append(onnx.helper.make_opsetid("acme", 1))
    model.functions.append(
        onnx.parser.parse_function(
            '<domain: "acme", opset_import: ["": 20]> Twice (x) => (y) { y = Add (x, x) }'
        )
    )
    conversion = to_float16(model, feeds=[{"x": np.full((1, 4), 90.0, np.float32)}])
    assert conversion.kept == {
        "numbers outside of float16's range": ['Mul "a"', 'Twice "b"', 'Div "c"'],
        "functions, of which one call needs it": ['Twice "y"'],
    }


def test_many_nodes_are_few_lines_and_all_in_the_data() -> None:
    body = " ".join(f"h{i + 1} = Mul (h{i}, w)" for i in range(40))
    model = graph("float[N, 4] h0", f"{body} y = Relu (h40)", weights="float w = {1.001}")
    feeds = [{"h0": np.full((1, 4), 1e5, np.float32)}]
    conversion = to_float16(model, feeds=feeds)
    assert len(conversion.notes) < 10
    assert 'half: Mul "h1" reaches 1e+05, above 65504: kept in float32' in conversion.notes
    assert max(map(len, conversion.notes)) < 250
    (labels,) = conversion.kept.values()
    assert len(labels) == 41
    assert " and 35 more" in conversion.notes[-1]


@pytest.mark.parametrize(
    "operator",
    [
        "w = HannWindow (k)",
        "w = HammingWindow <output_datatype = 1> (k)",
        "w = BlackmanWindow <output_datatype = 1> (k)",
        "w = MelWeightMatrix (k, k, rate, low, high)",
        "w = AffineGrid (x, k2)",
    ],
)
def test_what_no_kernel_makes_in_half_stays_float32(operator: str) -> None:
    """It names its type in an attribute of another name, or is a function of parts without one."""
    model = onnx.parser.parse_model(
        f"""<ir_version: 10, opset_import: ["": 20]>
        g (float[1, 2, 3] x) => (y, z) <int64 k = {{8}}, int64 rate = {{8192}}, float low = {{10}},
            float high = {{4001}}, int64[4] k2 = {{1, 1, 4, 4}}>
        {{ y = Relu (x) {operator} z = Mul (w, one) one = Identity (low) }}"""
    )
    model.graph.node.insert(0, model.graph.node.pop())
    model = onnx.shape_inference.infer_shapes(model)
    half = to_float16(model)
    onnx.checker.check_model(half.model, full_check=True)
    feeds = {"x": np.ones((1, 2, 3), np.float32)}
    expected = Runner(model).run(feeds)["z"]
    result = Runner(half.model).run({"x": feeds["x"].astype(np.float16)})["z"]
    np.testing.assert_allclose(result, expected, rtol=2e-3, atol=2e-3)
    assert kinds(half.model)["y"] == onnx.TensorProto.FLOAT16
