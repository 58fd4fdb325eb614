"""Operator functions: arity, names, positions, and patterns of several operators."""

from __future__ import annotations

import pytest

from gehost import es
from gehost.errors import PatternError
from gehost.es.functions import COMMUTATIVE, OpFunction
from gehost.es.graph import EsConst, EsGraphBuilder, EsNode, EsTensor


@pytest.fixture
def a() -> EsTensor:
    return EsGraphBuilder("made").CreateInput(0)


def node(tensor: EsTensor) -> EsNode:
    assert isinstance(tensor.producer, EsNode)
    return tensor.producer


def test_every_operator_has_a_function_and_other_names_are_left_open(a):
    assert repr(es.MatMul) == "es.MatMul"
    assert es.Relu is es.Relu
    assert node(es.GEMM(a)).ops == ("GEMM",)
    assert node(es.op("ge::GEMM")(a, alpha=1.0)).params == {"alpha": 1.0}
    assert node(es.op("ai.onnx::Relu")(a)).ops == ("Relu",)
    assert isinstance(es.op("MatMul"), OpFunction)
    with pytest.raises(AttributeError, match="gehost.es has no 'relu'"):
        es.relu


def test_literals_and_absent_inputs_keep_their_position(a):
    clip = node(es.Clip(a, None, 6.0))
    assert clip.inputs[:2] == [a, None]
    assert isinstance(clip.inputs[2].producer, EsConst)
    assert (clip.inputs[2].producer.array.item(), clip.inputs[2].producer.literal) == (6.0, True)
    assert clip.open_slots == frozenset()


def test_a_parameter_that_wandered_stays_a_parameter_unless_it_is_a_tensor(a):
    mean = node(es.ReduceMean(a, axes=[-1], keepdims=0))
    assert (mean.inputs, mean.params) == ([a], {"axes": [-1], "keepdims": 0})
    x, t = EsGraphBuilder("other").CreateInputs(2)
    mean = node(es.ReduceMean(x, axes=t, keepdims=0))
    assert (mean.inputs, mean.params) == ([x, t], {"keepdims": 0})
    pad = node(es.Pad(x, pads=[1, 1], constant_value=t))
    assert (pad.inputs, pad.params, pad.open_slots) == ([x, None, t], {"pads": [1, 1]}, {1})


def test_an_input_that_is_given_by_name_after_a_later_one_is_no_longer_open():
    x, v, p = EsGraphBuilder("made").CreateInputs(3)
    pad = node(es.Pad(x, constant_value=v, pads=p))
    assert (pad.inputs, pad.open_slots) == ([x, p, v], frozenset())


def test_inputs_by_name_take_their_place():
    x, low, high = EsGraphBuilder("made").CreateInputs(3)
    assert node(es.Where(low, Y=high, X=x)).inputs == [low, x, high]
    resize = node(es.Resize(x, sizes=[1, 2]))
    assert resize.inputs[:3] == [x, None, None]
    assert (resize.inputs[3].producer.array.tolist(), resize.open_slots) == ([1, 2], {1, 2})


def test_several_outputs_are_a_tuple_with_the_schema_s_names(a):
    values, indices = actual = es.TopK(a, K=3)
    assert (actual.Values, actual.Indices) == (values, indices)
    assert isinstance(actual, tuple)
    with pytest.raises(
        AttributeError, match="there is no output 'values'; there are Values, Indices"
    ):
        actual.values
    out, mask = es.Dropout(a, num_outputs=2)
    assert (out.index, mask.index, out.producer) == (0, 1, mask.producer)
    assert isinstance(es.Dropout(a), EsTensor)
    parts = es.Split(a, num_outputs=3, axis=1)
    assert (len(parts), parts.output2.index, node(parts[0]).params) == (
        3,
        2,
        {"axis": 1, "num_outputs": 3},
    )
    assert len(es.Split(a, split=[1, 2])) == 2
    assert len(es.op("acme::Two")(a, num_outputs=2)) == 2
    (first, second) = es.Split(a, split=EsTensor(a.producer), num_outputs=2)
    assert (node(first).inputs[1].producer, second.index) == (a.producer, 1)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda a: es.ReduceMean(a, axis=[1]),
            'ReduceMean has no parameter "axis"; did you mean axes?',
        ),
        (lambda a: es.Relu(a, slope=1), 'Relu has no parameter "slope"; it has '),
        (lambda a: es.AnyOf("ge::X", "Relu")(a, slope=1), 'Relu has no parameter "slope"'),
        (lambda a: es.MatMul(a), "MatMul takes at least 2 inputs, got 1"),
        (lambda a: es.Relu(a, a), "Relu takes at most 1 inputs, got 2"),
        (lambda a: es.Split(a), "Split needs num_outputs= or split="),
        (lambda a: es.Split(a, split=[1, 2], num_outputs=3), "Split into 2 sizes has no 3 outputs"),
        (lambda a: es.Dropout(a, num_outputs=3), "Dropout has at most 2 outputs, not 3"),
        (lambda a: es.Relu(a, num_outputs=0), "Relu has at most 1 outputs, not 0"),
        (
            lambda a: es.ReduceMean(a, [1], axes=[1]),
            'ReduceMean is given "axes" twice, by position and by name',
        ),
        (lambda a: es.Where(a, a, a, X=a), 'Where is given "X" twice'),
        (lambda a: es.Add(1, 2), "Add needs at least one tensor among its inputs"),
        (lambda a: es.Commutative(es.Sub(a, a)), "Sub is not known to commute"),
        (lambda a: es.Commutative(a), "Commutative wants the output of an operator"),
        (
            lambda a: es.Commutative(es.AnyOf("Add", "Sub")(a, a)),
            r"Add\|Sub is not known to commute",
        ),
        (lambda a: es.constrain(a, axis=1), "constrain wants the output of an operator"),
        (lambda a: es.Commutative("a"), "Commutative wants the output of an operator"),
        (lambda a: es.constrain(None, axis=1), "constrain wants the output of an operator"),
        (lambda a: es.AnyOf(), "AnyOf wants names of operators"),
        (lambda a: es.AnyOf("Relu", 5)(a), "AnyOf wants names of operators"),
        (
            lambda a: es.constrain(es.Softmax(a), axes=1),
            'Softmax has no parameter "axes" in any opset',
        ),
    ],
)
def test_what_no_opset_has_is_refused_where_it_is_written(a, call, message):
    with pytest.raises(PatternError, match=message) as caught:
        call(a)
    assert str(caught.value).startswith(f"{__file__}:")


def test_several_operators_and_constraints(a):
    either = es.AnyOf("Relu", "ge::Relu6")(a)
    assert (node(either).ops, node(either).GetType()) == (("Relu", "ge::Relu6"), "Relu")
    total = es.Commutative(es.Add(a, a))
    assert node(total).commutative
    assert not node(es.Add(a, a)).commutative
    softmax = es.Softmax(a)
    assert es.constrain(softmax, axis=-1) is softmax
    assert node(softmax).constraints == {"axis": -1}
    assert node(es.constrain(es.op("ge::X")(a), anything=1)).constraints == {"anything": 1}
    assert "Sub" not in COMMUTATIVE


@pytest.mark.parametrize(
    ("inputs", "params", "message"),
    [
        (1, {"axis": -1}, "takes at least 2 inputs, got 1"),
        (4, {"axis": -1}, "takes at most 3 inputs, got 4"),
        (2, {"axes": -1}, 'has no parameter "axes"; did you mean axis'),
    ],
)
def test_what_differs_from_a_call_that_was_right_is_checked(a, inputs, params, message):
    norm = OpFunction("LayerNormalization")
    for axis in (-1, -2):
        assert node(norm(a, a, axis=axis)).params == {"axis": axis}
    with pytest.raises(PatternError, match=message):
        norm(*[a] * inputs, **params)


def test_an_input_by_name_is_one_each_time(a):
    clip = OpFunction("Clip")
    for _ in range(2):
        assert (len(node(clip(a, min=a)).inputs), node(clip(a, min=0.0)).params) == (
            2,
            {"min": 0.0},
        )
        clip(a, None, a, min=0.0)
        with pytest.raises(PatternError, match='Clip is given "min" twice'):
            clip(a, a, a, min=0.0)


@pytest.mark.parametrize("name", [3, None])
def test_a_variable_wants_a_name(name):
    with pytest.raises(
        PatternError, match=rf"{__file__}:\d+: es.Bind wants the name of a variable"
    ):
        es.Bind(name)
    assert es.Bind("p") == es.Bind("p") != es.Bind("q")
