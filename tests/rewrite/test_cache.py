"""A replacement that was made out once is put in by plan where it is alike; what may differ shows in the numbers."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest

from gehost import REG_FUSION_PASS, CustomPassStage, EsGraphBuilder, Pattern, PatternFusionPass, es
from gehost.ir.model import Model
from gehost.ir.region import Region
from gehost.ops import OpDef, OpRegistry
from gehost.passes.context import PassRecord
from gehost.rewrite.insert import Insertion
from gehost.rewrite.provenance import Author
from gehost.rewrite.replace import replace_region
from gehost.rewrite.session import RewriteSession
from gehost.testing import assert_equal_numbers, parse, run_pass


@pytest.fixture
def planned(monkeypatch: pytest.MonkeyPatch, interpreted: None) -> list[int]:
    """Gets an entry for each rewrite that is done by plan."""
    result: list[int] = []
    insert = Insertion.insert_cached
    monkeypatch.setattr(
        Insertion,
        "insert_cached",
        lambda self, lowered: (result.append(len(lowered)), insert(self, lowered))[1],
    )
    return result


def model_of(text: str, **weights: Any) -> onnx.ModelProto:
    return parse(f'<ir_version: 10, opset_import: ["": 17]> {text}', weights)


def a_pass(pattern: Any, replacement: Any) -> type[PatternFusionPass]:
    """``pattern`` and ``replacement`` are given a builder, and the latter the match; both return outputs."""

    @REG_FUSION_PASS(name="Planned", stage=CustomPassStage.kAfterInferShape)
    class Planned(PatternFusionPass):
        def Patterns(self):
            builder = EsGraphBuilder()
            outputs, captured = pattern(builder)
            result = Pattern(builder.BuildAndReset(outputs))
            for tensor in captured:
                result.CaptureTensor(tensor)
            return [result]

        def Replacement(self, match):
            builder = EsGraphBuilder()
            return builder.BuildAndReset(replacement(builder, match))

    return Planned


def rewritten(
    text: str, pass_: type[PatternFusionPass], count: int, **weights: Any
) -> tuple[onnx.ModelProto, PassRecord]:
    model = model_of(text, **weights)
    result, record = run_pass(model, pass_)
    assert (record.replaced, dict(record.rejected)) == (count, {})
    assert_equal_numbers(model, result)
    return result, record


def negated_sum(builder):
    a, b = builder.CreateInputs(2)
    return es.Neg(es.Add(a, b)), ()


@pytest.mark.parametrize("first", ["y", "x"], ids=["two tensors", "one tensor twice"])
def test_the_second_of_its_kind_is_done_by_plan(planned, first):
    """One tensor at two inputs is no example for two."""

    def replacement(builder, match):
        a, b = builder.CreateInputs(2)
        return es.Sub(es.Neg(a), b)

    rewritten(
        f"g (float[2] x, float[2] y) => (float[2] z) {{ a = Add(x, {first}) b = Neg(a) c = Add(b, y) z = Neg(c) }}",
        a_pass(negated_sum, replacement),
        2,
    )
    assert planned == [2]


def scaled(builder):
    x = builder.CreateInput(0)
    factor = builder.CreateConst(1.0)
    return es.Neg(es.Mul(x, factor)), (factor,)


@pytest.mark.parametrize("shape", [(), (2,), (300,)])
def test_constants_of_the_match_are_its_own(planned, shape):
    def replacement(builder, match):
        factor = match.GetCapturedTensor(0).value.numpy()
        return es.Mul(builder.CreateInput(0), builder.CreateConst(-factor))

    size = max(shape, default=2)
    generator = np.random.default_rng(0)
    weights = {
        name: generator.standard_normal(shape).astype(np.float32) for name in ("p", "q", "r")
    }
    weights["r"] = weights["p"]
    rewritten(
        f"g (float[{size}] x) => (float[{size}] z) {{ a = Mul(x, p) b = Neg(a) c = Mul(b, q) d = Neg(c) e = Mul(d, r) z = Neg(e) }}",
        a_pass(scaled, replacement),
        3,
        **weights,
    )
    assert len(planned) == (0 if shape == (300,) else 1)  # what is too large is made out anew


def test_an_author_may_use_an_array_again(planned):
    arrays = [np.zeros(2, np.float32), np.zeros(2, np.float32)]
    count = iter(range(3))

    def replacement(builder, match):
        array = arrays[next(count) // 2]  # the first one twice
        array[:] = -match.GetCapturedTensor(0).value.numpy()
        return es.Mul(builder.CreateInput(0), builder.CreateConst(array))

    weights = {
        name: np.full(2, value, np.float32) for name, value in (("p", 2), ("q", 3), ("r", 2))
    }
    rewritten(
        "g (float[2] x) => (float[2] z) { a = Mul(x, p) b = Neg(a) c = Mul(b, q) d = Neg(c) e = Mul(d, r) z = Neg(e) }",
        a_pass(scaled, replacement),
        3,
        **weights,
    )
    assert len(planned) == 1


def test_a_constant_that_two_operators_read_is_one_in_each_rewrite(planned):
    def replacement(builder, match):
        x, two = builder.CreateInput(0), builder.CreateConst(np.float32(2.0))
        return es.Sub(es.Sub(es.Neg(x), two), es.Neg(two))

    result, _ = rewritten(
        "g (float[2] x) => (float[2] z) { a = Neg(x) b = Identity(a) c = Exp(b) d = Neg(c) z = Identity(d) }",
        a_pass(lambda builder: (es.Identity(es.Neg(builder.CreateInput(0))), ()), replacement),
        2,
    )
    assert len(planned) == 1
    assert len(result.graph.initializer) == 2


def one_input(a, b, *, swapped):
    return es.Mul(b if swapped else a, 1.0)


def one_node(a, b, *, swapped):
    one, other = es.Mul(a, 1.0), es.Mul(b, 1.0)
    if swapped:
        one, other = other, one
    return es.Sub(one, es.Mul(other, 0.0))


@pytest.mark.parametrize("chosen", [one_input, one_node])
def test_what_is_read_is_the_match_s_own(planned, chosen):
    def pattern(builder):
        a, b = builder.CreateInputs(2)
        p, q = builder.CreateConst(1.0), builder.CreateConst(0.0)
        return es.Add(es.Mul(a, p), es.Mul(b, q)), (p, q)

    def replacement(builder, match):
        return chosen(
            *builder.CreateInputs(2), swapped=match.GetCapturedTensor(0).value.numpy() == 0
        )

    rewritten(
        """g (float[2] x, float[2] y) => (float[2] z) {
           a = Mul(x, one) b = Mul(y, zero) c = Add(a, b) d = Mul(c, zero) e = Mul(y, one) z = Add(d, e) }""",
        a_pass(pattern, replacement),
        2,
        one=np.float32(1),
        zero=np.float32(0),
    )
    assert planned == []


@pytest.mark.parametrize("spelled", [lambda axis: axis, lambda axis: np.int64(axis)])
def test_parameters_of_the_match_are_its_own(spelled):
    def pattern(builder):
        return es.Neg(
            es.Neg(es.constrain(es.Softmax(builder.CreateInput(0)), axis=es.Bind("axis")))
        ), ()

    def replacement(builder, match):
        return es.Softmax(builder.CreateInput(0), axis=spelled(match.attributes["axis"]))

    rewritten(
        """g (float[2, 2] x) => (float[2, 2] z) { a = Softmax<axis = 0>(x) b = Neg(a) c = Neg(b)
           d = Softmax<axis = 1>(c) e = Neg(d) z = Neg(e) }""",
        a_pass(pattern, replacement),
        2,
    )


def test_the_order_of_outputs_is_the_match_s_own(planned):
    def pattern(builder):
        x = builder.CreateInput(0)
        return [
            es.Neg(es.constrain(es.Softmax(x), axis=es.Bind("p"))),
            es.Neg(es.constrain(es.Softmax(x), axis=es.Bind("q"))),
        ], ()

    def replacement(builder, match):
        x = builder.CreateInput(0)
        columns, rows = es.Softmax(x, axis=0), es.Softmax(x, axis=1)
        columns, rows = (
            es.Mul(softmax, es.Sub(es.Mul(softmax, 0.0), 1.0)) for softmax in (columns, rows)
        )
        return [columns, rows] if match.attributes["p"] == 0 else [rows, columns]

    rewritten(
        """g (float[2, 2] x) => (float[2, 2] z) {
           a = Softmax<axis = 0>(x) b = Neg(a) c = Softmax<axis = 1>(x) d = Neg(c) y = Sub(b, d)
           e = Softmax<axis = 1>(y) f = Neg(e) g = Softmax<axis = 0>(y) h = Neg(g) z = Sub(f, h) }""",
        a_pass(pattern, replacement),
        2,
    )


def test_a_literal_takes_the_dtype_of_its_own_partner():
    result, _ = rewritten(
        """g (float[2] x, int64[2] i) => (float[2] y, int64[2] j) {
           a = Abs(x) b = Abs(a) y = Neg(b) c = Abs(i) d = Abs(c) j = Neg(d) }""",
        a_pass(
            lambda builder: (es.Neg(es.Abs(es.Abs(builder.CreateInput(0)))), ()),
            lambda builder, match: es.Mul(es.Abs(builder.CreateInput(0)), -1),
        ),
        2,
    )
    assert [onnx.numpy_helper.to_array(tensor).dtype for tensor in result.graph.initializer] == [
        np.float32,
        np.int64,
    ]


def test_what_a_plan_would_put_in_may_stand_there_already(planned):
    pass_ = a_pass(
        lambda builder: (es.Neg(es.Softmax(builder.CreateInput(0))), ()),
        lambda builder, match: es.Neg(es.Softmax(builder.CreateInput(0), axis=-1)),
    )
    text = "g (float[2, 2] x) => (float[2, 2] z) { a = Softmax<axis = 1>(x) b = Neg(a) c = Softmax<axis = -1>(b) z = Neg(c) }"
    _, record = run_pass(model_of(text), pass_)
    assert (record.replaced, set(record.rejected)) == (1, {"no change"})
    assert planned


def test_a_body_that_was_taken_back_is_offered_again(planned):
    registry = OpRegistry()
    body = OpDef(
        "ge::Minus",
        1,
        ("x",),
        1,
        ("y",),
        {},
        lambda x: es.Mul(x, -1.0),
        None,
        frozenset(),
        "here:1",
    )
    registry.add(body)
    model = Model(model_of("g (float[2] x) => (float[2] z) { z = Neg(x) }"))
    session, mark = RewriteSession(model, registry, Author("P")), model.mark()
    for again in range(2):
        model.undo(mark)
        (neg,) = model.graph.nodes
        builder = EsGraphBuilder()
        replacement = builder.BuildAndReset(es.op("ge::Minus")(builder.CreateInput(0)))
        replace_region(
            session,
            Region(model.graph, [model.graph.inputs[0]], [model.graph.outputs[0]], [neg]),
            replacement,
        )
        assert session.cache._entries
        assert model.function("ge::Minus") is not None, again
    assert planned == []


def test_a_tensor_inside_has_the_type_that_its_own_surroundings_tell(rewriting, planned):
    """What a Reshape gives depends on where its target comes from, of which a plan knows nothing."""
    work = rewriting(
        """g (float[2,3] a, float[3,2] b, float[6] x) => (float p, float q) {
           s = Shape(a) t = Shape(b) c = Reshape(x, s) d = Abs(c) p = ReduceSum<keepdims = 0>(d)
           e = Reshape(x, t) f = Abs(e) q = ReduceSum<keepdims = 0>(f) }"""
    )
    work.replace(
        lambda x, s: es.ReduceSum(es.Abs(es.Reshape(x, s)), keepdims=0),
        lambda x, s: es.ReduceSum(es.Abs(es.Abs(es.Reshape(x, s))), keepdims=0),
        inputs=2,
    )
    result = [node.outputs[0].shape for node in work.model.graph.nodes if node.op == "Reshape"]
    assert (result, planned) == ([(2, 3), (3, 2)], [])
    work.assert_equal()


def linear(builder):
    x, weight, bias = builder.CreateInputs(3)
    return es.Add(es.MatMul(x, weight), bias), ()


LINEARS = """g (float[2,2] x) => (float[2,2] z) {
    a = MatMul(x, p) b = Add(a, s) c = Relu(b) d = MatMul(c, q) e = Add(d, t)
    f = Relu(e) h = MatMul(f, r) z = Add(h, u) }"""


@pytest.mark.parametrize("has_body", [False, True])
def test_the_contents_of_weights_are_in_no_key(planned, has_body, monkeypatch):
    """Small weights, which inference would be shown; the operator's body has no use for them."""
    generator = np.random.default_rng(3)
    weights = {name: generator.normal(size=(2, 2)).astype(np.float32) for name in "pqr"}
    weights |= {name: generator.normal(size=2).astype(np.float32) for name in "stu"}

    def body(x: Any, weight: Any, bias: Any) -> Any:
        return es.Add(es.MatMul(x, weight), bias)

    definition = OpDef(
        "acme::Linear", 1, ("x", "w", "b"), 3, ("y",), {}, body, None, frozenset(), "here:1"
    )
    if has_body:
        init = OpRegistry.__init__

        def with_linear(self: OpRegistry) -> None:
            init(self)
            self.add(definition)

        monkeypatch.setattr(OpRegistry, "__init__", with_linear)

    result, _ = rewritten(
        LINEARS,
        a_pass(linear, lambda builder, _: es.op("acme::Linear")(*builder.CreateInputs(3))),
        3,
        **weights,
    )
    assert len(result.functions) == 1
    assert planned == [1, 1]


@pytest.mark.parametrize("size", [1, 6, 300], ids=["small", "beyond inference", "large"])
def test_a_body_that_inlines_a_constant_is_that_of_its_match(planned, size):
    """The new node does not take the scale, so that each body holds its own, equal ones once."""
    generator = np.random.default_rng(4)
    weights = {name: generator.normal(size=size).astype(np.float32) for name in "pq"}
    weights["r"] = weights["p"]
    result, _ = rewritten(
        f"g (float[{size}] x) => (float[{size}] z) {{ a = Mul(x, p) b = Neg(a) c = Mul(b, q) "
        "d = Neg(c) e = Mul(d, r) z = Neg(e) }",
        a_pass(
            lambda builder: (es.Neg(es.Mul(*builder.CreateInputs(2))), ()),
            lambda builder, _: es.op("acme::Scaled")(builder.CreateInputs(2)[0]),
        ),
        3,
        **weights,
    )
    assert len(result.functions) == 2
    assert planned == [1]


def test_a_constant_at_two_inputs_of_which_one_is_taken_is_not_inlined(planned):
    generator = np.random.default_rng(5)
    weights = {name: generator.normal(size=2).astype(np.float32) for name in "pq"}

    def pattern(builder: Any) -> Any:
        x, first, second = builder.CreateInputs(3)
        return es.Sub(es.Mul(x, first), second), ()

    result, _ = rewritten(
        "g (float[2] x) => (float[2] z) { a = Mul(x, p) b = Sub(a, p) c = Relu(b) d = Mul(c, q) z = Sub(d, q) }",
        a_pass(pattern, lambda builder, _: es.op("acme::Odd")(*builder.CreateInputs(3)[:2])),
        2,
        **weights,
    )
    assert len(result.functions) == 1
    assert planned == [1]


def test_bodies_of_matches_that_differ_are_not_taken_for_each_other(planned):
    """One replacement, equal types at its ends; the attribute inside is not asked for."""
    result, _ = rewritten(
        """g (float[2,2] x) => (float[2,2] z) {
           a = LeakyRelu<alpha = 0.1>(x) b = Neg(a) c = LeakyRelu<alpha = 0.2>(b) d = Neg(c)
           e = LeakyRelu<alpha = 0.1>(d) z = Neg(e) }""",
        a_pass(
            lambda builder: (es.Neg(es.LeakyRelu(builder.CreateInput(0))), ()),
            lambda builder, _: es.op("acme::Leaky")(builder.CreateInput(0)),
        ),
        3,
    )
    assert len(result.functions) == 2
    assert planned == [1]
