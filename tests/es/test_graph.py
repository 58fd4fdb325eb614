"""Graphs under construction, and what is wrong with them by file and line."""

from __future__ import annotations

import gc
import sys

import ml_dtypes
import numpy as np
import pytest
from onnx import TensorProto

from gehost import es
from gehost.errors import PatternError
from gehost.es.graph import EsConst, EsGraph, EsGraphBuilder, EsInput, EsNode, EsTensor, in_dtype
from gehost.ir.types import DataType, TensorType
from gehost.location import author_origin


@pytest.fixture
def builder() -> EsGraphBuilder:
    return EsGraphBuilder("made")


def here(offset: int = 0) -> str:
    frame = sys._getframe(1)
    return f"{frame.f_code.co_filename}:{frame.f_lineno + offset}"


def inputs_of(tensor: EsTensor) -> list[EsTensor | None]:
    assert isinstance(tensor.producer, EsNode)
    return tensor.producer.inputs


def const(tensor: EsTensor | None) -> EsConst:
    assert tensor is not None
    assert isinstance(tensor.producer, EsConst)
    return tensor.producer


# -- building -------------------------------------------------------------------------------------------------------


def test_a_graph_holds_what_was_said_and_the_builder_is_empty_after_it(builder):
    a, b = builder.CreateInputs(2)
    c = builder.CreateInput(2, "bias")
    total = es.Add(es.MatMul(a, b), c)
    graph = builder.BuildAndReset([total, total])
    assert isinstance(graph, EsGraph)
    assert graph.name == "made"
    assert [node.GetType() for node in graph.nodes] == ["MatMul", "Add"]
    assert graph.inputs == [a, b, c]
    assert [tensor.producer.name for tensor in graph.inputs] == ["input0", "input1", "bias"]
    assert graph.outputs == [total, total]
    assert graph.reachable() == graph.nodes
    other = builder.CreateInput(0)
    assert builder.BuildAndReset(es.Relu(other)).inputs == [other]
    assert graph.inputs == [a, b, c]


def test_only_what_an_output_depends_on_is_reachable(builder):
    a = builder.CreateInput(0)
    first, second = es.Relu(a), es.Neg(a)
    es.Abs(second)
    last = es.Exp(first)
    assert [node.GetType() for node in builder.BuildAndReset(last).reachable()] == ["Relu", "Exp"]


def test_inputs_are_ordered_by_index_whatever_the_order_of_the_calls(builder):
    second, first = builder.CreateInput(1), builder.CreateInput(0)
    (third,) = builder.CreateInputs(1)
    graph = builder.BuildAndReset(es.Sum(second, first, third))
    assert graph.inputs == [first, second, third]
    assert [tensor.producer.index for tensor in graph.inputs] == [0, 1, 2]


def test_what_an_input_must_be(builder):
    a = builder.CreateInput(0, dtype=DataType.DT_FLOAT16, shape=[None, 3, "N"])
    b = builder.CreateInput(1, rank=2)
    producer = a.GetProducer()
    assert isinstance(producer, EsInput)
    assert (producer.dtype, producer.rank, producer.shape) == (DataType.FLOAT16, 3, (None, 3, "N"))
    assert (b.producer.dtype, b.producer.rank, b.producer.shape) == (None, 2, None)


def test_arithmetic_builds_nodes_in_the_order_of_its_operands(builder):
    a, b = builder.CreateInputs(2)
    for result, op, left, right in [
        (a + b, "Add", a, b), (a - b, "Sub", a, b), (a * b, "Mul", a, b), (a / b, "Div", a, b), (a @ b, "MatMul", a, b), (a**b, "Pow", a, b)
    ]:  # fmt: skip
        assert (result.producer.ops, inputs_of(result)) == ((op,), [left, right])
    for result, op in [(2 + a, "Add"), (2 - a, "Sub"), (2 * a, "Mul"), (2 / a, "Div")]:
        assert result.producer.ops == (op,)
        assert const(inputs_of(result)[0]).array.tolist() == 2
        assert inputs_of(result)[1] is a
    assert (-a).producer.ops == ("Neg",)


@pytest.mark.parametrize("number", [np.float32(2.5), np.array([1.5, 2.5]), np.int64(3)])
def test_numpy_on_the_left_does_not_take_the_tensor_apart(builder, number):
    a = builder.CreateInput(0)
    result = number * a
    assert isinstance(result, EsTensor)
    literal = const(inputs_of(result)[0])
    assert (literal.array == number).all()
    assert literal.literal


# -- constants ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "dtype", "expected", "shape"),
    [
        (1.5, None, np.float32, ()),
        (3, None, np.int64, ()),
        (True, None, np.bool_, ()),
        ([[1, 2]], None, np.int64, (1, 2)),
        ([1, 2.5], None, np.float32, (2,)),
        (np.float64(1.5), None, np.float64, ()),
        (np.array([1], np.int8), None, np.int8, (1,)),
        (np.array([1.5], ml_dtypes.bfloat16), None, ml_dtypes.bfloat16, (1,)),
        (2, DataType.DT_FLOAT16, np.float16, ()),
        (0.5, DataType.DT_BF16, ml_dtypes.bfloat16, ()),
        (-3, DataType.INT4, ml_dtypes.int4, ()),
    ],
)
def test_constants_have_the_dtype_that_was_meant(builder, value, dtype, expected, shape):
    array = const(builder.CreateConst(value, dtype)).array
    assert (array.dtype, array.shape) == (np.dtype(expected), shape)
    assert array.tolist() == np.asarray(value).tolist()


def test_scalars_vectors_and_shapes(builder):
    assert const(builder.CreateScalar([2.0])).array.shape == ()
    assert const(builder.CreateVector([[1, 2], [3, 4]])).array.tolist() == [1, 2, 3, 4]
    assert const(builder.CreateVector(7)).array.tolist() == [7]
    assert const(builder.CreateConst([1, 2, 3, 4], DataType.FLOAT, [2, 2])).array.tolist() == [
        [1, 2],
        [3, 4],
    ]
    assert const(builder.CreateScalar(1, TensorProto.FLOAT16)).array.dtype == np.float16
    assert builder.CreateInput(0, dtype=TensorProto.DOUBLE).producer.dtype is DataType.DOUBLE
    near = const(builder.CreateConst(1.0, rtol=1e-3, atol=1e-4))
    assert (near.rtol, near.atol, near.literal) == (1e-3, 1e-4, False)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            lambda b: b.CreateConst("text"),
            "wanted a tensor, a number or a list of numbers, got str",
        ),
        (lambda b: b.CreateConst(object()), "got object"),
        (lambda b: b.CreateConst([[1], [2, 3]]), "its rows differ in length"),
        (
            lambda b: b.CreateConst(TensorType(DataType.FLOAT, (2,))),
            "a number or a list of numbers, got TensorType",
        ),
        (lambda b: b.CreateConst(np.zeros(2, "i4,i4")), "got ndarray"),
        (lambda b: b.CreateConst(0.5, DataType.INT64), "INT64 cannot hold 0.5"),
        (lambda b: b.CreateConst(300, DataType.UINT8), "UINT8 cannot hold 300"),
        (lambda b: b.CreateConst(1e9, DataType.FLOAT16), "FLOAT16 cannot hold"),
        (lambda b: b.CreateConst(1 + 2j, DataType.FLOAT), "FLOAT cannot hold"),
        (lambda b: b.CreateConst(1, "float32"), "constant: wanted a DataType, got 'float32'"),
        (lambda b: b.CreateVector([1], 5.5), "constant: wanted a DataType, got 5.5"),
        (
            lambda b: b.CreateInput(0, dtype=np.float32),
            "input 0 of .*: wanted a DataType, got <class 'numpy.float32'>",
        ),
        (
            lambda b: b.CreateConst([1, 2, 3], shape=[2, 2]),
            r"3 elements do not make shape \(2, 2\)",
        ),
        (lambda b: b.CreateScalar([1, 2]), r"2 elements do not make shape \(\)"),
    ],
)
def test_what_is_no_constant_is_refused(builder, make, message):
    with pytest.raises(PatternError, match=message):
        make(builder)


# -- errors ---------------------------------------------------------------------------------------------------------


def test_errors_name_the_author_s_line(builder):
    a = builder.CreateInput(0)
    line = here(2)
    with pytest.raises(PatternError) as caught:
        a + "text"
    expected = "input 1 of Add: wanted a tensor, a number or a list of numbers, got str"
    assert str(caught.value) == f"{line}: {expected}"
    line = here(1)
    node = es.Relu(a).producer
    assert str(node.origin) == line
    assert author_origin() == es.Origin(__file__, sys._getframe().f_lineno)


def test_tensors_of_two_builders_do_not_mix(builder):
    a, b = builder.CreateInput(0), EsGraphBuilder("other").CreateInput(0)
    with pytest.raises(PatternError, match="input 1 of Add was made by another builder"):
        es.Add(a, b)
    with pytest.raises(PatternError, match="output 1 of 'made' was made by another builder"):
        builder.BuildAndReset([es.Relu(a), b])
    stale = EsGraphBuilder("stale")
    first = stale.CreateInput(0)
    stale.BuildAndReset(es.Relu(first))
    with pytest.raises(PatternError, match="made by another builder"):
        es.Add(stale.CreateInput(0), first)


def test_a_built_graph_takes_no_more_operators(builder):
    a, b = builder.CreateInputs(2)
    builder.BuildAndReset([a + b])
    for more in (lambda: a * b, lambda: es.Relu(a), lambda: -a):
        with pytest.raises(
            PatternError,
            match="EsTensor 0 of .* belongs to a graph that is built already; begin another one$",
        ):
            more()


def test_a_built_graph_goes_without_the_collector(builder):
    def alive() -> int:
        return sum(isinstance(item, EsGraph | EsTensor) for item in gc.get_objects())

    gc.collect()
    gc.disable()
    try:
        before = alive()
        a, b = builder.CreateInputs(2)
        parts = es.Split(a, num_outputs=2)
        graph = builder.BuildAndReset([parts[0] + b * 2.0, parts[1]])
        assert len(graph.inputs) == 2
        assert alive() > before
        del a, b, parts, graph
        assert alive() <= before
    finally:
        gc.enable()


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda b, a: b.BuildAndReset([]), "graph 'made' has no outputs"),
        (lambda b, a: b.BuildAndReset([a, 1]), "output 1 of 'made': wanted an EsTensor, got int"),
        (lambda b, a: b.CreateInput(0), "input 0 of 'made' exists already"),
        (lambda b, a: b.CreateInput(-1), "inputs are numbered from 0"),
        (
            lambda b, a: [b.CreateInput(2), b.BuildAndReset(es.Relu(a))],
            r"inputs \[0, 2\] of 'made' leave a gap",
        ),
        (lambda b, a: b.CreateInput(1, shape=[1, 2], rank=3), "rank 3, but a shape of 2"),
        (
            lambda b, a: b.CreateInput(1, shape=TensorType(DataType.FLOAT, (2,))),
            r"wanted a shape, got the type float\[2\]",
        ),
    ],
)
def test_what_is_no_graph_is_refused(builder, make, message):
    a = builder.CreateInput(0)
    with pytest.raises(PatternError, match=message):
        make(builder, a)
    assert es.Relu(builder.CreateInput(3)) is not None, "the builder still works"


# -- where something was written ------------------------------------------------------------------------------------


def test_what_is_built_later_was_written_where_its_author_said():
    builder = EsGraphBuilder("later")
    x = builder.CreateInput(0)
    with es.written_at(es.Origin("rules.py", 7)):
        result = es.Relu(x)
        with pytest.raises(PatternError, match=r"^rules.py:7: Relu has no parameter"):
            es.Relu(x, alpha=1)
    assert str(result.producer.origin) == "rules.py:7"
    assert es.Relu(x).producer.origin.path == __file__, "only meanwhile"


def test_a_plugin_that_asks_is_not_the_author():
    origin = es.author_origin(__file__)
    assert origin.path != __file__
    assert es.author_origin().path == __file__


@pytest.mark.parametrize("name", [3, None, ["p"]])
def test_a_builder_wants_a_name(name):
    with pytest.raises(PatternError, match=rf"{__file__}:\d+: EsGraphBuilder wants a name"):
        EsGraphBuilder(name)


# -- Python numbers in the element type of the tensor beside them ----------------------------------------------------

INF = float("inf")


@pytest.mark.parametrize(
    "dtype", [np.float16, np.float32, np.float64, ml_dtypes.bfloat16, np.complex64]
)
@pytest.mark.parametrize("value", [0.5, 3, True, -1, INF, [1, 2.5]])
def test_a_float_holds_numbers_and_rounds(value, dtype):
    actual = in_dtype(np.asarray(value), np.dtype(dtype))
    assert actual is not None
    assert (actual.dtype, actual.shape) == (np.dtype(dtype), np.shape(value))
    assert actual.astype(np.complex128).tolist() == np.asarray(value, np.complex128).tolist()


@pytest.mark.parametrize(
    ("value", "dtype"),
    [
        (0.5, np.int64), ([1, 0.5], np.int32), (-1, np.uint8), (300, np.uint8), (2**40, np.int32), (3, np.bool_), (INF, np.int64),
        (float("nan"), np.int64), (8, ml_dtypes.int4), (-1, ml_dtypes.uint4), (1e9, np.float16), (-1e39, np.float32), (1e39, ml_dtypes.bfloat16),
        (1 + 2j, np.float32), (2j, np.int64),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_not_bent(value, dtype):
    assert in_dtype(np.asarray(value), np.dtype(dtype)) is None


def test_integers_that_fit():
    assert in_dtype(np.asarray([1.0, 7.0]), np.dtype(ml_dtypes.int4)).tolist() == [1, 7]
    assert in_dtype(np.asarray(2**62 + 1), np.dtype(np.int64)) == 2**62 + 1
    assert in_dtype(np.asarray(7 + 0j), np.dtype(np.int32)) == 7
    assert in_dtype(np.asarray([], float), np.dtype(np.int64)).shape == (0,)
