"""From an author's graph to a source pattern at the model's opset, and why that cannot be."""

from __future__ import annotations

import numpy as np
import pytest

from gehost import DataType, es, ops
from gehost.errors import PatternError
from gehost.es.graph import EsGraphBuilder
from gehost.es.opset import resolve_op
from gehost.ops import OpRegistry
from gehost.pattern.lower import LoweredPattern
from gehost.pattern.pattern import Pattern, PatternMatcherConfig, check_pattern
from gehost.pattern.source import ANY, Kind, SourcePattern
from gehost.refusal import Refused

EMPTY = "g (float[2] x) => (float[2] y) { y = Relu(x) }"
STRICT = PatternMatcherConfig(ir_attr_match=True)


@pytest.fixture
def source(find):
    def build(
        make,
        opset: int = 17,
        inputs: int = 1,
        config: PatternMatcherConfig | None = None,
        registry=None,
    ) -> SourcePattern:
        builder = EsGraphBuilder("pattern")
        graph = builder.BuildAndReset(make(*builder.CreateInputs(inputs)))
        return LoweredPattern(
            Pattern(graph),
            config or PatternMatcherConfig(),
            find.load(EMPTY, opset),
            registry or OpRegistry(),
        ).source

    return build


def asked(pattern: SourcePattern) -> dict[str, object]:
    """What the first operator's constraints ask, by parameter; ``absent`` where it must be absent."""
    return {
        c.name: "absent" if c.kind in (Kind.ABSENT, Kind.AS_ABSENT) else c.wanted
        for c in pattern.ops[0].constraints
    }


@pytest.fixture
def registry() -> OpRegistry:
    namespace = {"ops": ops}
    exec(
        "ops.register('ge::GEMM', inputs=['a', 'b'], attributes={'alpha': 1.0, 'beta': 0.5})",
        namespace,
    )
    result = OpRegistry()
    result.add_marked(namespace)
    return result


# -- what is no pattern ---------------------------------------------------------------------------------------------


def unread(a, b):
    return es.Relu(a)


def loose(a, b):
    es.Neg(b)
    return es.Relu(a) + b


def twice(a, b):
    result = es.Relu(a + b)
    return [result, result]


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda a, b: a, "has no operator"),
        (unread, "no operator of pattern 'pattern' reads input input1"),
        (loose, "Neg of pattern 'pattern' reaches no output"),
        (
            lambda a, b: [es.Add(a, b), a],
            "output 1 of pattern 'pattern' has no operator",
        ),
        (twice, "output 1 of pattern 'pattern' is given twice"),
        (
            lambda a, b: es.If(a + b, num_outputs=1),
            "If has nested graphs and is not allowed in a pattern",
        ),
        (lambda a, b: es.AnyOf("Sum", "Loop")(a, b, a), "Loop has nested graphs"),
    ],
)
def test_what_is_no_pattern_is_refused_with_its_line(make, message):
    builder = EsGraphBuilder("pattern")
    graph = builder.BuildAndReset(make(*builder.CreateInputs(2)))
    with pytest.raises(PatternError, match=message) as caught:
        check_pattern(graph)
    assert str(caught.value).startswith(f"{__file__}:")


def test_operators_that_nobody_knows_are_named(source, registry, find):
    with pytest.raises(
        PatternError,
        match=r"test_lower.py:\d+: neither ONNX nor a vendor file has an operator Relux; did you mean Relu\?",
    ):
        source(es.Relux)
    with pytest.raises(PatternError, match="has an operator GEMM"):
        source(es.GEMM, inputs=2)
    assert list(source(es.GEMM, inputs=2, registry=registry).ops[0].ops) == ["ge::GEMM"]
    assert resolve_op("GEMM", registry, "here") == "ge::GEMM"
    assert resolve_op("ai.onnx::Relu", registry, "here") == "Relu"
    assert resolve_op("acme::X", registry, "here") == "acme::X"


# -- what this opset lacks ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("make", "opset", "reason"),
    [
        (es.Gelu, 19, "Gelu needs opset 20, the model has 19"),
        (lambda x: es.Upsample(x, mode="nearest"), 10, "opset 10 has no Upsample"),
        (
            es.op("ai.onnx.ml::Scaler"),
            17,
            "ai.onnx.ml::Scaler needs a domain that the model does not import",
        ),
        (
            lambda x: es.ReduceMean(x, noop_with_empty_axes=1),
            17,
            "ReduceMean of opset 17 has no parameter noop_with_empty_axes",
        ),
        (lambda x: es.Relu(es.Reshape(x, x)), 4, "Reshape of opset 4 has no input 1"),
        (
            lambda x: es.constrain(es.Split(x, num_outputs=2)[0], num_outputs=2),
            13,
            "Split of opset 13 has no parameter num_outputs",
        ),
        (lambda x: es.Clip(x, x), 10, "Clip of opset 10 has no input 1"),
        (es.AnyOf("Gelu", "Mish"), 17, "Mish needs opset 18, the model has 17"),
    ],
)
def test_what_the_opset_lacks_makes_a_pattern_not_applicable(source, make, opset, reason):
    with pytest.raises(Refused) as caught:
        source(make, opset)
    assert caught.value.message == reason


def test_what_the_opset_lacks_is_absent(source):
    source(lambda x: es.constrain(es.MaxPool(x), dilations=None), 9)
    with pytest.raises(Refused, match="MaxPool of opset 9 has no parameter dilations"):
        source(lambda x: es.constrain(es.MaxPool(x), dilations=[2, 1]), 9)


def test_a_parameter_that_is_given_its_default_is_not_needed(source):
    assert source(lambda x: es.ReduceMean(x, noop_with_empty_axes=0), 17).ops
    assert source(lambda x: es.BatchNormalization(x, x, x, x, x, training_mode=0), 9).ops


def test_of_several_operators_those_that_the_opset_has_remain(source):
    assert list(source(es.AnyOf("Gelu", "Relu", "ge::Gelu"), 17).ops[0].ops) == ["Relu", "ge::Gelu"]
    assert list(source(es.AnyOf("Gelu", "Relu", "ge::Gelu"), 20).ops[0].ops) == [
        "Gelu",
        "Relu",
        "ge::Gelu",
    ]


# -- parameters -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("opset", [9, 11, 13, 17, 18, 20])
def test_parameters_are_not_asked_about_unless_they_are_constrained(source, opset):
    assert asked(source(lambda x: es.ReduceMean(x, axes=[1], keepdims=0), opset)) == {}
    result = source(lambda x: es.constrain(es.ReduceMean(x), axes=[1], keepdims=None), opset)
    assert asked(result) == {"axes": [1], "keepdims": "absent"}
    assert len(result.ops[0].inputs) == 1


@pytest.mark.parametrize("opset", [11, 17])
def test_a_function_or_variable_as_argument_is_a_constraint(source, opset):
    """No attribute has such a value, so it would be ignored in silence."""
    accepts, variable = (lambda axes: axes == [1]), es.Bind("a")
    result = source(lambda x: es.ReduceSum(x, axes=accepts, keepdims=variable), opset)
    assert asked(result) == {"axes": accepts, "keepdims": "a"}


def test_a_number_by_position_is_asked_about_at_every_opset(source):
    old, new = (source(lambda x: es.Clip(x, None, 6.0), opset) for opset in (10, 11))
    assert (asked(old), len(old.ops[0].inputs)) == ({"max": 6.0, "min": "absent"}, 1)
    low, high = new.ops[0].inputs[1:]
    assert (asked(new), low) == ({}, None)
    assert high.constant.by_value
    assert asked(source(lambda x: es.Pad(x, [1, 1]), 10)) == {"pads": [1, 1]}


def test_an_input_of_which_nothing_was_said_is_open_only_where_it_is_a_parameter(source):
    pad = source(lambda x, v: es.Pad(x, constant_value=v), 17, 2).ops[0]
    assert [pad.inputs[1] is ANY, pad.inputs[1] is None] == [True, False]
    pad = source(lambda x, v: es.Pad(x, None, v), 17, 2).ops[0]
    assert pad.inputs[1] is None
    resize = source(lambda x, s: es.Resize(x, sizes=s), 17, 2).ops[0]
    assert resize.inputs[1:3] == (None, None)


def test_strict_parameters_are_those_of_the_opset_with_their_defaults(source):
    assert asked(source(lambda x: es.ReduceMean(x, axes=[-1]), 13, config=STRICT)) == {
        "axes": [-1],
        "keepdims": 1,
    }
    assert asked(source(lambda x: es.ReduceMean(x, axes=[-1]), 18, config=STRICT)) == {
        "axes": [-1], "keepdims": 1, "noop_with_empty_axes": 0
    }  # fmt: skip
    assert asked(source(lambda x: es.ReduceMean(x), 18, config=STRICT))["axes"] == "absent"
    assert asked(source(lambda x: es.Dropout(x), 13, config=STRICT)) == {
        "ratio": 0.5,
        "seed": "absent",
    }
    assert asked(source(lambda x: es.Pad(x, pads=[1, 1]), 10, config=STRICT)) == {
        "pads": [1, 1],
        "constant_value": 0.0,
        "mode": "constant",
    }
    assert asked(source(lambda x: es.Split(x, num_outputs=2)[0], 18, config=STRICT)) == {
        "axis": 0,
        "split": "absent",
    }
    assert asked(source(lambda x: es.Softmax(x), 11, config=STRICT)) == {"axis": -1}
    assert asked(source(lambda x: es.Softmax(x), 13, config=STRICT)) == {"axis": -1}
    result = source(lambda x: es.constrain(es.Gemm(x, x, alpha=2.0), transB=1), 13, config=STRICT)
    assert asked(result) == {"transB": 1, "alpha": 2.0, "beta": 1.0, "transA": 0}
    assert result.ops[0].exact_attributes is None


def test_an_operator_without_schema_carries_no_other_attributes(source, registry):
    result = source(lambda x: es.op("acme::F")(x, a=1), config=STRICT)
    assert (asked(result), result.ops[0].exact_attributes) == ({"a": 1}, {"a"})
    result = source(lambda x: es.GEMM(x, x, beta=2.0), config=STRICT, registry=registry)
    assert (asked(result), result.ops[0].exact_attributes) == (
        {"alpha": 1.0, "beta": 2.0},
        {"alpha", "beta"},
    )
    assert source(lambda x: es.op("acme::F")(x, a=1)).ops[0].exact_attributes is None


# -- tensors --------------------------------------------------------------------------------------------------------


def test_constants_ask_what_the_configuration_says(find):
    builder = EsGraphBuilder("pattern")
    x = builder.CreateInput(0)
    graph = builder.BuildAndReset(
        (x + builder.CreateScalar(1.0)) * 2.0 - builder.CreateConst(3.0, rtol=0.1)
    )
    for strict in (False, True):
        config = PatternMatcherConfig(const_value_match=strict)
        result = LoweredPattern(Pattern(graph), config, find.load(EMPTY), OpRegistry()).source
        exact, literal, near = (op.inputs[1].constant for op in result.ops)
        assert (exact.array is not None, exact.by_value) == (strict, False)
        assert (literal.by_value, literal.array.item()) == (True, 2.0)
        assert (near.by_value, near.rtol, near.array.item()) == (False, 0.1, 3.0)


def test_tensors_are_numbered_once(source):
    result = source(lambda a, b: es.Add(es.MatMul(a, b), a), inputs=2)
    assert [tensor.index for tensor in result.tensors] == [0, 1, 2, 3]
    assert (result.inputs, result.outputs, result.inner) == ((0, 1), (3,), (2,))
    assert [t.index for t in result.ops[1].inputs] == [2, 0]
    assert result.needed == {0, 1, 2, 3}
    top = source(lambda x: es.TopK(x, K=1)[1])
    assert top.needed == {0, 2}


@pytest.mark.parametrize(
    ("make", "problem"),
    [
        (
            lambda x: es.Transpose(x, perm=[1.0, 0.0]),
            "perm must be integers, got .*; write .1, 0.$",
        ),
        (lambda x: es.constrain(es.Transpose(x), perm=[0, 0.5]), "must be integers, got .0, 0.5.$"),
        (lambda x: es.constrain(es.Transpose(x), perm=[[0], [1, 2]]), "perm must be integers"),
        (lambda x: es.constrain(es.Transpose(x), perm="10"), "perm must be integers, got '10'"),
        (lambda x: es.constrain(es.Softmax(x), axis=1.0), "axis must be an integer, .*; write 1$"),
        (
            lambda x: es.constrain(es.Softmax(x), axis=[0, 1]),
            "axis must be an integer, got .0, 1.$",
        ),
        (lambda x: es.LeakyRelu(x, alpha=[0.0, 1.0]), "alpha must be a number, got .0.0, 1.0.$"),
        (
            lambda x: es.constrain(es.ReduceSum(x), axes=[1.0]),
            "axes must be integers, .*write .1.$",
        ),
        (lambda x: es.constrain(es.Pad(x, x), mode=1), "mode must be a text, got 1"),
        (
            lambda x: es.constrain(es.Transpose(x), perm=[1e30]),
            "perm must be integers, got .1e.30.$",
        ),
    ],
)
def test_a_value_that_no_node_has_is_an_error_with_its_line(source, make, problem):
    with pytest.raises(PatternError, match=rf"{__file__}:\d+: \w+: .*{problem}"):
        source(make)


@pytest.mark.parametrize(
    "make",
    [
        lambda x: es.Transpose(x, perm=np.array([1, 0])),
        lambda x: es.constrain(es.ReduceSum(x), axes=1, keepdims=True),
        lambda x: es.constrain(es.ReduceSum(x), axes=[]),
        lambda x: es.constrain(es.Softmax(x), axis=[1]),
        lambda x: es.constrain(es.LeakyRelu(x), alpha=1),
        lambda x: es.constrain(es.Pad(x, x), mode=b"edge"),
        lambda x: es.constrain(es.Cast(x), to=DataType.FLOAT),
        lambda x: es.constrain(es.Transpose(x), perm=lambda p: p == [1.0, 0.0]),
    ],
)
def test_values_of_an_attributes_kind(source, make):
    source(make)


@pytest.mark.parametrize("opset", [9, 17])
def test_an_input_given_as_none_is_absent_also_where_it_is_an_attribute(find, opset: int) -> None:
    def clip(bounds: str) -> str:
        if opset == 9:
            return f"g (float[2] x) => (float[2] y) {{ y = Clip <{bounds}> (x) }}"
        low = "l" if "min" in bounds else ""
        return (
            "g (float[2] x) => (float[2] y) { l = Constant <value_float = 0.5> () "
            f"h = Constant <value_float = 6.0> () y = Clip (x, {low}, h) }}"
        )

    for bounds, count in (("max = 6.0", 1), ("min = 0.5, max = 6.0", 0)):
        actual = find.matches(clip(bounds), lambda x: [es.Clip(x, None, 6.0)], opset=opset)
        assert len(actual) == count
