"""Parameters at every opset, axes, constants by bytes, by value and within a tolerance, types of placeholders."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import onnx
import pytest

from gehost import es
from gehost.es.graph import EsGraphBuilder
from gehost.es.schemas import signature
from gehost.ir.model import Model
from gehost.ir.types import DataType
from gehost.pattern.fits import ABSENT, UNREADABLE, constant_holds, parameter, parameter_holds
from gehost.pattern.match import PatternMatcher
from gehost.pattern.pattern import Pattern, PatternMatcherConfig
from gehost.pattern.source import ConstantPattern, Constraint, Kind

STRICT = {"ir_attr_match": True}
ATTRIBUTE = "g (float[2, 3, 4] x) => (float y) { y = ReduceMean<axes = [1, -1], keepdims = 0>(x) }"
INPUT = "g (float[2, 3, 4] x) => (float y) <int64[2] w = {1, -1}> { y = ReduceMean<keepdims = 0>(x, w) }"
EITHER = [(ATTRIBUTE, 13), (ATTRIBUTE, 17), (INPUT, 18), (INPUT, 20)]


# -- parameters -----------------------------------------------------------------------------------------------------


def first(x):
    return es.constrain(es.ReduceMean(x), axes=[-3])


@pytest.mark.parametrize(("text", "opset"), EITHER)
def test_a_parameter_is_read_where_the_opset_has_it(find, text, opset):
    def constrained(**expected):
        return find.outputs(
            text, lambda x: es.constrain(es.ReduceMean(x), **expected), opset=opset
        ) == [["y"]]

    assert constrained(axes=[1, -1])
    assert constrained(axes=[-1, 1], keepdims=0)
    assert constrained(axes=(1, 2)), "axes are normalised by rank"
    assert constrained(axes=[-1, -2]), "and they are a set"
    assert not constrained(axes=[1])
    assert not constrained(axes=[0, 1])
    assert not constrained(axes=[1, 2], keepdims=1)
    assert find.outputs(
        text.replace("[1, -1]", "[0]").replace("int64[2] w = {1, -1}", "int64[1] w = {0}"),
        first,
        opset=opset,
    ) == [["y"]]
    assert not constrained(axes=None)
    assert constrained(axes=lambda axes: len(axes) == 2)
    assert not constrained(axes=lambda axes: 0 in axes)


@pytest.mark.parametrize(
    ("text", "opset"),
    [
        ("g (float[2, 3, 4] x) => (float y) { y = ReduceMean(x) }", 17),
        ("g (float[2, 3, 4] x) => (float y) { y = ReduceMean(x) }", 18),
        ("g (float[2, 3, 4] x) => (float y) { y = ReduceMean(x, ) }", 18),
    ],
)
def test_an_absent_parameter_is_absent_or_its_default(find, text, opset):
    def constrained(**expected):
        return find.outputs(
            text, lambda x: es.constrain(es.ReduceMean(x), **expected), opset=opset
        ) == [["y"]]

    assert constrained(axes=None)
    assert constrained(keepdims=1)
    assert constrained(keepdims=None)
    assert not constrained(keepdims=0)
    assert not constrained(axes=[0])
    assert constrained(axes=lambda axes: axes == [0, 1, 2]), "a function is asked of what counts"
    assert not constrained(axes=lambda axes: axes == [0])


def test_axes_that_are_no_list_satisfy_nothing(find):
    text = (
        "g (float[2, 3, 4] x) => (float y) <int64[2, 1] axes = {0, 1}> { y = ReduceMean(x, axes) }"
    )
    assert find.outputs(text, lambda x: es.constrain(es.ReduceMean(x), axes=[0, 1]), opset=18) == []


def test_what_no_constant_gives_satisfies_nothing(find):
    text = "g (float[2] x, int64[1] t) => (float y) { y = ReduceMean(x, t) }"
    for expected in ([0], None, lambda axes: True):
        assert (
            find.outputs(
                text,
                lambda x, expected=expected: es.constrain(es.ReduceMean(x), axes=expected),
                opset=18,
            )
            == []
        )
    assert (
        parameter(next(find.model.graph.nodes), "axes", signature("", "ReduceMean", 18))
        is UNREADABLE
    )
    assert (
        parameter(next(find.model.graph.nodes), "keepdims", signature("", "ReduceMean", 18))
        is ABSENT
    )


def test_defaults_of_parameters_that_became_inputs(find):
    absent = "g (float[2] x) => (float[2] y) { y = Dropout(x) }"
    value = "g (float[2] x) => (float[2] y) <float w = {0.5}> { y = Dropout(x, w) }"
    other = "g (float[2] x) => (float[2] y) <float w = {0.25}> { y = Dropout(x, w) }"
    for text, holds in ((absent, True), (value, True), (other, False)):
        assert bool(find.outputs(text, es.Dropout, **STRICT)) is holds
        assert bool(find.outputs(text, lambda x: es.Dropout(x, ratio=0.5), **STRICT)) is holds
        assert find.outputs(text, es.Dropout) == [["y"]]
    old = "g (float[2] x) => (float[4] y) { y = Pad<pads = [1, 1], value = 0.0>(x) }"
    assert find.outputs(old, lambda x: es.Pad(x, pads=[1, 1]), opset=10, **STRICT) == [["y"]]
    assert (
        find.outputs(old, lambda x: es.Pad(x, pads=[1, 1], constant_value=1.0), opset=10, **STRICT)
        == []
    )
    assert find.outputs(
        old, lambda x: es.constrain(es.Pad(x), constant_value=0, pads=[1, 1]), opset=10
    ) == [["y"]]


@pytest.mark.parametrize("opset", [9, 11])
def test_a_single_number_is_a_list_of_it_where_the_opset_has_a_list(find, opset):
    text = "g (float[9] x) => (float[3] y, int64[3] i) { y, i = TopK<k = 3>(x) }"
    if opset > 9:
        text = "g (float[9] x) => (float[3] y, int64[3] i) <int64[1] k = {3}> { y, i = TopK(x, k) }"

    def top(x, k):
        values, indices = es.TopK(x, K=k)
        return [values, indices]

    assert find.outputs(text, lambda x: top(x, 3), opset=opset, **STRICT) == [["y", "i"]]
    assert find.outputs(text, lambda x: top(x, 4), opset=opset, **STRICT) == []


def test_all_parameters_must_be_equal_when_asked_for(find):
    text = "g (float[2, 2] a, float[2, 2] b) => (float[2, 2] y, float[2, 2] z) { y = Gemm<alpha = 1.0, beta = 1.0, transA = 0>(a, b) z = Gemm<transB = 1>(a, b) }"
    assert find.outputs(text, es.Gemm, 2) == [["y"], ["z"]]
    assert find.outputs(text, es.Gemm, 2, **STRICT) == [["y"]]
    assert find.outputs(text, lambda a, b: es.Gemm(a, b, transB=True), 2, **STRICT) == [["z"]]
    assert find.outputs(text, lambda a, b: es.Gemm(a, b, alpha=0.1), 2, **STRICT) == []
    leaky = "g (float[2] x) => (float[2] y) { y = LeakyRelu<alpha = 0.1>(x) }"
    assert find.outputs(leaky, lambda x: es.LeakyRelu(x, alpha=0.1), **STRICT) == [["y"]], (
        "as the float32 that ONNX stores"
    )
    words = 'g (float[1, 1, 4] x) => (float[1, 1, 2] y) { y = MaxPool<kernel_shape = [2], auto_pad = "VALID", strides = [2]>(x) }'
    assert find.outputs(
        words, lambda x: es.MaxPool(x, kernel_shape=[2], strides=[2], auto_pad="VALID"), **STRICT
    ) == [["y"]]
    assert (
        find.outputs(
            words,
            lambda x: es.MaxPool(x, kernel_shape=[2], strides=[2], auto_pad="SAME_UPPER"),
            **STRICT,
        )
        == []
    )


def test_split_says_its_count_by_its_outputs(find):
    equal = "g (float[4] x) => (float[2] a, float[2] b) { a, b = Split(x) }"
    counted = "g (float[4] x) => (float[2] a, float[2] b) { a, b = Split<num_outputs = 2>(x) }"
    sized = (
        "g (float[4] x) => (float[2] a, float[2] b) <int64[2] s = {1, 3}> { a, b = Split(x, s) }"
    )

    def halves(x):
        return list(es.Split(x, num_outputs=2))

    assert find.outputs(equal, halves, opset=13, **STRICT) == [["a", "b"]]
    assert find.outputs(counted, halves, opset=18, **STRICT) == [["a", "b"]]
    assert find.outputs(sized, halves, opset=18, **STRICT) == []
    assert find.outputs(sized, lambda x: list(es.Split(x, split=[1, 3])), opset=18, **STRICT) == [
        ["a", "b"]
    ]
    assert find.outputs(sized, halves, opset=18) == [["a", "b"]]


@pytest.mark.parametrize(
    ("node", "expected", "holds"),
    [
        ("Softmax<axis = 2>(x)", -1, True), ("Softmax<axis = -1>(x)", 2, True), ("Softmax<axis = 1>(x)", 1, False),
        ("Softmax<axis = 1>(x)", 2, False), ("Softmax(x)", 1, False), ("Softmax(x)", -1, False), ("Softmax<axis = 2>(x)", 1, False),
    ],
)  # fmt: skip
def test_a_flattening_softmax_is_the_one_that_is_meant_on_the_last_axis_only(
    find, node, expected, holds
):
    text = f"g (float[2, 3, 4] x) => (float[2, 3, 4] y) {{ y = {node} }}"
    assert (
        bool(find.outputs(text, lambda x: es.constrain(es.Softmax(x), axis=expected), opset=11))
        is holds
    )
    if expected == -1:
        assert bool(find.outputs(text, es.Softmax, opset=11, **STRICT)) is holds
    assert find.outputs(text, es.Softmax, opset=11) == [["y"]]
    matrix = text.replace("[2, 3, 4]", "[3, 4]").replace("axis = 2", "axis = 1")
    assert (
        bool(find.outputs(matrix, lambda x: es.constrain(es.Softmax(x), axis=-1), opset=11)) is True
    )
    unknown = text.replace("[2, 3, 4]", "[]")
    assert (
        find.outputs(unknown, lambda x: es.constrain(es.Softmax(x), axis=expected), opset=11) == []
    )


def test_a_softmax_of_today_works_on_any_axis(find):
    text = "g (float[2, 3, 4] x) => (float[2, 3, 4] y) { y = Softmax<axis = 1>(x) }"
    assert find.outputs(text, lambda x: es.constrain(es.Softmax(x), axis=-2), opset=13) == [["y"]]


@pytest.mark.parametrize(
    ("node", "expected", "holds"),
    [
        ("Unsqueeze(x, w)", [0, -1], True), ("Unsqueeze(x, w)", [0, 4], True), ("Unsqueeze(x, w)", [0, 2], False),
        ("Slice(x, w, s, w)", [0, -1], True), ("Slice(x, w, s, w)", [0, 2], True), ("Slice(x, w, s, w)", [-1, 0], False),
    ],
)  # fmt: skip
def test_axes_are_a_set_only_where_they_are(find, node, expected, holds):
    text = f"g (float[2, 3, 4] x) => (float y) <int64[2] w = {{0, -1}}, int64[2] s = {{1, 1}}> {{ y = {node} }}"
    op = es.op(node.partition("(")[0])
    assert (
        bool(
            find.outputs(
                text,
                lambda x: (
                    es.constrain(op(x), axes=expected)
                    if op.ops == ("Unsqueeze",)
                    else sliced(x, expected)
                ),
            )
        )
        is holds
    )


def sliced(x, axes):
    return es.constrain(es.Slice(x, starts=[0, -1], ends=[1, 1]), axes=axes)


def test_variables_bind_one_value():
    text = '<ir_version: 10, opset_import: ["": 17]> g (float[2] x) => (float[2] y) { a = LeakyRelu<alpha = 0.5>(x) b = LeakyRelu<alpha = 0.5>(a) y = Elu(b) }'
    first, second, third = Model(onnx.parser.parse_model(text)).graph.nodes
    bound: dict[str, object] = {}
    schema = signature("", "LeakyRelu", 17)
    bind = Constraint("alpha", Kind.BIND, "a")
    assert parameter_holds(bind, first, schema, bound)
    assert bound == {"a": 0.5}
    assert parameter_holds(bind, second, schema, bound)
    assert not parameter_holds(bind, third, signature("", "Elu", 17), bound)
    assert str(bind) == "alpha: bind a"
    assert str(Constraint("alpha", Kind.EQUALS, 1)) == "alpha=1"


# -- constants ------------------------------------------------------------------------------------------------------


def constant(array) -> object:
    proto = onnx.parser.parse_model(
        '<ir_version: 10, opset_import: ["": 17]> g (float[2] x) => (float[2] y) { y = Add(x, w) }'
    )
    proto.graph.initializer.append(onnx.numpy_helper.from_array(np.asarray(array), "w"))
    return Model(proto).graph.values["w"]


def literal(value) -> ConstantPattern:
    return ConstantPattern(np.asarray(value), by_value=True)


@pytest.mark.parametrize(
    ("expected", "array", "holds"),
    [
        (0.5, np.float32(0.5), True),
        (0.1, np.float32(0.1), True),
        (0.1, np.float16(0.1), True),
        (0.1, np.array(0.1, ml_dtypes.bfloat16), True),
        (0.5, np.int64(0), False),
        (1.0, np.int64(1), True),
        (1, np.float32(1), True),
        (1, np.float32(1.5), False),
        (300, np.uint8(44), False),
        (-1, np.uint8(255), False),
        (2, np.array([[2, 2], [2, 2]], np.float32), True),
        (2, np.array([[2, 2], [2, 3]], np.float32), False),
        (2, np.array([3, 2], np.float32), False),
        (2, np.zeros((0, 3), np.float32), False),
        ([], np.zeros(0, np.float32), False),
        ([1, 2], np.array([1, 2], np.int32), True),
        ([1, 2], np.array([1, 3], np.int32), False),
        ([1, 2], np.array([[1, 2]], np.int32), False),
        ([1, 1], np.array(1, np.int32), False),
        ([2], np.array([2], np.int64), True),
        (float("nan"), np.float32("nan"), True),
        (float("nan"), np.array([np.nan, np.nan], np.float32), True),
        (float("nan"), np.array([np.nan, 1], np.float32), False),
        (float("nan"), np.float32(0), False),
        (float("-inf"), np.float32("-inf"), True),
        (-1e9, np.float16("-inf"), False),
        (1, np.array(["1"], object), False),
        (True, np.bool_(True), True),
        (3, np.array(3, ml_dtypes.int4), True),
        (11, np.array(-5, ml_dtypes.int4), False),
    ],
)
def test_numbers_match_by_value_in_the_constant_s_dtype(expected, array, holds):
    value = constant(array)
    for _ in range(2):
        assert constant_holds(literal(expected), value) is holds


@pytest.mark.parametrize(
    ("expected", "array", "holds"),
    [
        (np.float32([1, 2]), np.float32([1, 2]), True),
        (np.float32([1, 2]), np.float32([1, 3]), False),
        (np.float32([1, 2]), np.float64([1, 2]), False),
        (np.float32([1, 2]), np.float32([[1, 2]]), False),
        (np.float32(0.0), np.float32(-0.0), False),
        (np.float32("nan"), np.float32("nan"), True),
        (np.float32(1), np.float32([1]), False),
        (np.zeros((0,), np.float32), np.zeros((0,), np.float32), True),
    ],
)
def test_exact_constants_match_by_dtype_shape_and_bytes(expected, array, holds):
    assert constant_holds(ConstantPattern(expected), constant(array)) is holds
    assert constant_holds(ConstantPattern(), constant(array))


@pytest.mark.parametrize("dtype", [np.float32, np.float16, ml_dtypes.bfloat16, np.complex64])
def test_a_tolerance(dtype):
    near = ConstantPattern(np.array([100, 1], dtype), rtol=0.01)
    assert constant_holds(near, constant(np.array([100.5, 1], dtype)))
    assert not constant_holds(near, constant(np.array([104, 1], dtype)))
    assert not constant_holds(near, constant(np.array([100.5, 1, 1], dtype)))
    assert not constant_holds(near, constant(np.array([100.5, 1], np.float64)))
    assert constant_holds(
        ConstantPattern(np.array([100, 1], dtype), atol=5), constant(np.array([104, 2], dtype))
    )


def test_what_is_no_constant_is_none(find):
    text = "g (float[2] x, float[2] w = {1, 1}) => (float[2] y) { a = Relu(x) y = Add(a, w) }"
    assert find.outputs(text, lambda x: x + 1.0) == []
    assert find.outputs(text, lambda x: x + 1.0, ir=3) == [["y"]]
    nested = """g (float[2] x, bool c) => (float[2] y) <float[2] w = {1, 1}> { k = Constant<value_float = 2.0>()
        y = If(c) <then_branch = t () => (float[2] p) { q = Mul(x, k) p = Add(q, w) }, else_branch = e () => (float[2] x) { }> }"""
    body = find.load(nested).graph.subgraphs()[0]
    (match,) = PatternMatcher(find.pattern(lambda x: x * 2.0 + 1.0), body)
    assert [value.name for value in match.outputs] == ["p"]
    assert list(PatternMatcher(find.pattern(lambda x: x * 2.0 + 3.0), body)) == []


def test_large_weights_are_not_read_when_their_shape_tells(find, tmp_path):
    proto = onnx.parser.parse_model(
        '<ir_version: 10, opset_import: ["": 17]> g (float[2] x) => (float[2] y) { y = Add(x, w) }'
    )
    tensor = proto.graph.initializer.add(
        name="w", data_type=1, dims=[2], data_location=onnx.TensorProto.EXTERNAL
    )
    tensor.external_data.add(key="location", value="missing.bin")
    model = Model(proto, path=str(tmp_path / "m.onnx"))
    assert list(PatternMatcher(find.pattern(lambda x: x + [1.0, 2.0, 3.0]), model)) == []
    builder = EsGraphBuilder("pattern")
    exact = Pattern(builder.BuildAndReset(builder.CreateInput(0) + builder.CreateConst([1.0])))
    assert list(PatternMatcher(exact, model, PatternMatcherConfig(const_value_match=True))) == []
    assert len(list(PatternMatcher(exact, model))) == 1


# -- placeholders ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("expected", "names"),
    [
        ({}, ["a", "b", "c", "d"]),
        ({"dtype": DataType.DT_FLOAT}, ["a", "b"]),
        ({"rank": 2}, ["a", "c"]),
        ({"shape": [2, 3]}, ["a"]),
        ({"shape": [None, 3]}, ["a", "c"]),
        ({"shape": ["N", 3]}, ["c"]),
        ({"dtype": DataType.DT_FLOAT16, "shape": ["N", None]}, ["c"]),
        ({"rank": 0}, []),
    ],
)
def test_an_input_must_be_known_to_be_what_is_asked(find, expected, names):
    text = """g (float[2, 3] a, float[3] b, float16[N, 3] c, float e) => (float y, float z, float u, float v) {
        d = ge.Unknown(e) y = Relu(a) z = Relu(b) u = Relu(c) v = Relu(d) }"""
    builder = EsGraphBuilder("pattern")
    pattern = Pattern(builder.BuildAndReset(es.Relu(builder.CreateInput(0, **expected))))
    actual = [match.inputs[0].name for match in PatternMatcher(pattern, find.load(text))]
    assert actual == names
