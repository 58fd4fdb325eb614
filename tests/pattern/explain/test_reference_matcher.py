"""Why a pattern does not match: the true cause of near misses of every kind."""

from __future__ import annotations

import re

import onnx
import pytest

from gehost import DataType, es
from gehost.es.graph import EsGraphBuilder
from gehost.ir.model import Model
from gehost.ops import OpRegistry
from gehost.pattern.explain.reference_matcher import MatchFailure, ReferenceMatcher
from gehost.pattern.lower import LoweredPattern
from gehost.pattern.match import PatternMatcher
from gehost.pattern.pattern import Pattern, PatternMatcherConfig

TEXT = """g (float[2, 3] x, float[3, 4] w, float[2, 4] b, bool c) => (float[2, 4] y, float[2, 4] s, float[?, ?] t, float[2, 4] u, float[2, 4] v) {
    [mm] m = MatMul(x, w) [add] y = Add(m, b)
    n = MatMul(x, w) [other] s = Add(n, b) [reader] u = Neg(n)
    p = Transpose <perm = [1, 0]> (b) [back] t = Transpose <perm = [1, 0]> (p)
    two = Constant <value = float {2}> () [twice] q = Mul(b, two) [clip] v = Clip(q, , two)
}"""


def source_of(pattern, model):
    return LoweredPattern(pattern, PatternMatcherConfig(), model, OpRegistry()).source


def facts(actual):
    if not isinstance(actual, MatchFailure):
        return actual
    return str(actual), actual.graph_node, actual.depth, actual.size, actual.closeness


@pytest.mark.parametrize(
    ("make", "inputs", "at", "depth", "reason"),
    [
        (lambda x, w, b: es.MatMul(x, w) + b, 3, "add", None, None),
        (lambda x, w, b: es.Gemm(x, w) + b, 3, "add", 1, 'Add "add" input 0: wanted Gemm, got MatMul'),
        (lambda x, w, b: es.MatMul(x, w) + b, 3, "twice", 0, "wanted Add, got Mul"),
        (lambda x, w, b: es.MatMul(x, w) + b, 3, "other", 2, 'tensor "n" is also read by "reader"'),
        (lambda x, b: b + es.Neg(x), 2, "add", 1, 'Add "add" input 1: wanted Neg, got "b", an input of the graph'),
        (lambda x: es.constrain(es.Transpose(x), perm=[0, 1]), 1, "back", 0, "perm: wanted [0, 1], got [1, 0]"),
        (lambda x: es.constrain(es.Transpose(x), perm=len), 1, "back", None, None),
        (lambda x: es.constrain(es.Transpose(x), perm=lambda perm: False), 1, "back", 0, "perm: wanted a value that its condition accepts, got"),
        (lambda x: x * 3.0, 1, "twice", 0, 'input 1: wanted the constant 3.0, got "two", 2.0'),
        (lambda x: x + 3.0, 1, "add", 0, 'input 1: wanted a constant, got "b", an input of the graph'),
        (lambda x: x * x, 1, "twice", 0, 'input 1: wanted "b" again, got "two"'),
        (lambda x, low: es.Clip(x, low), 2, "clip", 0, "input 1: it is absent"),
        (lambda x: es.Clip(x, None, None), 1, "clip", 0, 'input 2: wanted none, got "two"'),
        (lambda x: [-x, es.Relu(x)], 1, "reader", 1, 'tensor "n": wanted Relu to read it; it is read by Add, Neg'),
        (lambda x: [-x, -x], 1, "reader", 1, 'Neg "reader" stands for another operator of the pattern already'),
        (lambda x, w: es.Commutative(es.Relu(x) + w), 2, "add", 1, "wanted Relu, got"),
        (lambda x: es.Neg(es.Alternatives(es.Relu(x), es.Abs(x))), 1, "reader", 1, "wanted Relu or Abs, got MatMul"),
        (lambda x: es.Alternatives(es.Cos(x), es.Tan(x)), 1, "reader", 0, '"reader": wanted Cos or Tan, got Neg'),
        (lambda x: es.Commutative(x * 3.0), 1, "twice", 0,
         'input 0: wanted a constant, got "b", an input of the graph; input 1: wanted the constant 3.0, got "two", 2.0'),
        (lambda x: es.Alternatives(x * 3.0, x * 4.0), 1, "twice", 0, "input 1: wanted the constant 3.0 or the constant 4.0, got"),
        (lambda x: es.Sum(x, x, x), 1, "add", 0, "wanted Sum, got Add"),
    ],
)  # fmt: skip
def test_the_reason_is_the_true_one(find, make, inputs, at, depth, reason):
    model = find.load(TEXT)
    matcher = PatternMatcher(find.pattern(make, inputs), model)
    node = next(node for node in model.graph.nodes if node.name == at)
    failure = matcher.why_not(node)
    if reason is None:
        assert failure is None
        return
    assert failure is not None
    assert re.search(reason.replace("[", r"\[").replace("]", r"\]"), failure.reason), failure.reason
    assert failure.depth == depth
    assert str(failure).startswith(
        f"{failure.pattern_node.origin.path}:{failure.pattern_node.origin.line}: {failure.pattern_node.label}"
    )


@pytest.mark.parametrize(
    ("pattern", "reason"),
    [
        (lambda x: es.constrain(es.Cast(x), to=DataType.FLOAT16), "to: wanted float16, got float64"),
        (lambda x: es.constrain(es.Cast(x), to=16), "to: wanted bfloat16, got float64"),
        (lambda x: es.constrain(es.Cast(x), to=lambda to: to == 6), "accepts, got float64"),
        (lambda x: es.constrain(es.EyeLike(x), dtype=DataType.DOUBLE), "wanted float64, got nothing"),
        (lambda x: es.constrain(es.EyeLike(x), dtype=99), "dtype: wanted 99, got nothing"),
        (lambda x: es.constrain(es.HannWindow(x), output_datatype=11), "wanted float64, got float32"),
        (lambda x: es.constrain(es.op("ge::Cast")(x), to=10), "to: wanted 10, got 11"),
        (lambda x: es.constrain(es.op("ge::Cast")(x), to=DataType.FLOAT16), "wanted float16, got 11"),
    ],
)  # fmt: skip
def test_an_element_type_has_its_name(find, pattern, reason):
    model = find.load("""g (float[2, 2] x, int64 n) => (double[2, 2] c, float[2, 2] e, float[?] h, float[?] a) {
        c = Cast <to = 11> (x) e = EyeLike(x) h = HannWindow <output_datatype = 1> (n) a = ge.Cast <to = 11> (x)
    }""")
    of = find.pattern(pattern)
    (root,) = source_of(of, model).ops[0].ops
    (node,) = (node for node in model.graph.nodes if node.op == root)
    failure = PatternMatcher(of, model).why_not(node)
    assert failure is not None
    assert failure.reason.endswith(reason)


def test_a_placeholder_that_asks(find):
    model = find.load(TEXT)
    builder = EsGraphBuilder("asking")
    pattern = Pattern(
        builder.BuildAndReset(es.Neg(builder.CreateInput(0, dtype=DataType.DOUBLE, rank=3)))
    )
    (node,) = model.graph.nodes_of("Neg")
    failure = PatternMatcher(pattern, model).why_not(node)
    assert failure is not None
    assert (
        failure.reason
        == 'Neg "reader" input 0: wanted dtype DOUBLE, rank 3, got "n", of which nothing is known'
    )


def test_a_cycle_and_who_made_a_node(find):
    model = find.load(
        "g (float[2] x) => (float[2] y, float[2] z) { a = Relu(x) b = Exp(a) y = Abs(a) z = Neg(b) }"
    )
    pattern = find.pattern(lambda x, w: [es.Abs(es.Relu(x)), es.Neg(w)], 2)
    nodes = {node.op: node for node in model.graph.nodes}
    assert "also read" in str(PatternMatcher(pattern, model).why_not(nodes["Abs"]))
    pattern = find.pattern(lambda x, w: [es.Relu(x), es.Neg(w)], 2)
    failure = PatternMatcher(pattern, model).why_not(nodes["Relu"])
    assert failure is not None
    assert failure.reason == 'would make a cycle through Exp "b"'
    model.graph.set_metadata(nodes["Exp"], "written by", "an author")
    model.graph.set_metadata(nodes["Exp"], "gehost.pass", "LinearFusePass")
    failure = PatternMatcher(find.pattern(lambda x: -es.Relu(x)), model).why_not(nodes["Neg"])
    assert failure is not None
    assert failure.reason == 'Neg "z" input 0: wanted Relu, got Exp (made by LinearFusePass)'
    assert failure.graph_node is nodes["Exp"]


def test_all_parameters_are_told_where_all_are_asked(find):
    model = find.load("g (float[2, 2] x) => (float[2, 2] y) { y = Gemm <alpha = 2.0> (x, x) }")
    matcher = PatternMatcher(
        find.pattern(lambda x: es.Gemm(x, x)), model, PatternMatcherConfig(ir_attr_match=True)
    )
    assert str(matcher.why_not(next(model.graph.nodes))).endswith("alpha: wanted 1.0, got 2.0")


TWO_READERS = (
    "g (float[2] x) => (float[2] y) { a = Relu(x) b = Exp(a) [neg] c = Neg(b) [add] y = Add(c, x) }"
)


@pytest.mark.parametrize(
    ("at", "reason"),
    [
        ("neg", 'Neg "neg" input 0: wanted Relu, got Exp'),
        ("a", 'tensor "a": wanted Neg to read it; it is read by Exp'),
        ("add", 'Neg "neg" input 0: wanted Relu, got Exp'),
    ],
)
def test_a_node_may_stand_for_any_operator_of_the_pattern(find, at, reason):
    model = find.load(TWO_READERS)
    tracer = ReferenceMatcher(source_of(find.pattern(lambda x, w: -es.Relu(x) + w, 2), model))
    node = next(node for node in model.graph.nodes if node.label == at)
    assert str(tracer.around(node)).endswith(f": {reason}")


def test_around_the_node_that_makes_output_0_the_operators_are_placed_in_the_same_order(find):
    model = find.load("g (float[2] x) => (float[2] y) { b = Sin(x) n = Neg(b) y = Add(n, b) }")
    tracer = ReferenceMatcher(
        source_of(find.pattern(lambda x, w: -es.Exp(x) + es.Relu(w), 2), model)
    )
    (add,) = model.graph.nodes_of("Add")
    assert facts(tracer.around(add)) == facts(tracer.at(add))


def test_a_node_of_no_operator_of_the_pattern_stands_for_none(find):
    model = find.load(TWO_READERS)
    tracer = ReferenceMatcher(source_of(find.pattern(lambda x: -es.Relu(x)), model))
    (exp,) = model.graph.nodes_of("Exp")
    assert tracer.around(exp) is None


def test_around_a_node_of_a_match_the_one_that_makes_output_0_comes_first(find):
    model = find.load("g (float[2] x) => (float[2] y) { a = Relu(x) b = Exp(a) y = Neg(b) }")
    tracer = ReferenceMatcher(source_of(find.pattern(lambda x: -es.Exp(es.Relu(x))), model))
    for node in model.graph.nodes:
        first, *others = [actual.op for actual in tracer.around(node)]
        assert (first, sorted(others)) == ("Neg", ["Exp", "Relu"])


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("y = Add(b, x)", "input 0: wanted Relu, got Exp"),
        ("y = Add(x, b)", "input 1: wanted Relu, got Exp"),
        ("r = Relu(x) y = Add(b, r)", ""),
    ],
)
def test_of_two_operands_the_one_that_a_node_makes_is_nearer_than_an_input(find, text, reason):
    model = find.load(f"g (float[2] x) => (float[2] y) {{ b = Exp(x) {text} }}")
    (add,) = model.graph.nodes_of("Add")
    failure = PatternMatcher(
        find.pattern(lambda x, w: es.Commutative(es.Relu(x) + w), 2), model
    ).why_not(add)
    assert (failure is None) == (not reason)
    assert failure is None or failure.reason == f'Add "y" {reason}'


def swap(x, w):
    return es.Commutative(es.Relu(x) + w)


def swap_either(x, w):
    return es.Commutative(es.Alternatives(es.Relu(x), es.Abs(x)) + w)


def either_side(x, w):
    return es.Alternatives(es.Relu(x) + w, w + es.Abs(x))


@pytest.mark.parametrize(
    ("make", "text", "reason"),
    [
        (
            swap,
            "b = Exp(x) c = Sin(x) y = Add(b, c)",
            "inputs 0 and 1: wanted Relu, got Exp and Sin",
        ),
        (swap, "b = Exp(x) y = Add(b, b)", "inputs 0 and 1: wanted Relu, got Exp and Exp"),
        (
            swap,
            "y = Add(x, z)",
            'inputs 0 and 1: wanted Relu, got "x", an input of the graph, and "z", an input of the graph',
        ),
        (
            swap_either,
            "b = Exp(x) c = Sin(x) y = Add(b, c)",
            "inputs 0 and 1: wanted Relu or Abs, got Exp and Sin",
        ),
        (
            either_side,
            "b = Exp(x) c = Sin(x) y = Add(b, c)",
            "input 0: wanted Relu, got Exp; input 1: wanted Abs, got Sin",
        ),
    ],
)
def test_all_tries_that_are_equally_near_are_told(find, make, text, reason):
    model = find.load(f"g (float[2] x, float[2] z) => (float[2] y) {{ {text} }}")
    (add,) = model.graph.nodes_of("Add")
    failure = PatternMatcher(find.pattern(make, 2), model).why_not(add)
    assert failure is not None
    assert failure.reason == f'Add "y" {reason}'


def test_another_output_of_the_right_operator_is_nearer_than_another_operator(find):
    model = find.load(
        "g (float[4] x) => (float[2] y, float[2] c) { a, c = Split <axis = 0> (x) y = Neg(a) }"
    )
    (neg,) = model.graph.nodes_of("Neg")
    pattern = find.pattern(
        lambda x: -es.Alternatives(es.Relu(x), es.Split(x, num_outputs=2, axis=0)[1])
    )
    failure = PatternMatcher(pattern, model).why_not(neg)
    assert failure is not None
    assert failure.reason == 'Neg "y" input 0: wanted output 1 of Split, got "a", output 0'


def test_of_two_operands_the_right_operator_with_a_wrong_parameter_is_nearer_than_another_operator(
    find,
):
    model = find.load(
        "g (float[2] x) => (float[2] y) { b = Exp(x) r = Elu <alpha = 2.0> (x) y = Add(b, r) }"
    )
    (add,) = model.graph.nodes_of("Add")
    pattern = find.pattern(lambda x, w: es.Commutative(es.constrain(es.Elu(x), alpha=1.0) + w), 2)
    failure = PatternMatcher(pattern, model).why_not(add)
    assert failure is not None
    assert failure.reason == 'Elu "r" alpha: wanted 1.0, got 2.0'


FIRST_OPERANDS = """g (float[2, 2] x, float[2, 2] z) => (float[2, 2] y) {
    two = Constant <value = float {2}> ()
    a = MatMul(x, z) b = Relu(a) c = Sin(x) d, e = Split(x)
    p0 = Add(b, c) p1 = Add(c, c) p2 = Add(x, c) p3 = Add(x, two) p4 = Add(a, c) p5 = Add(c, a) p6 = Add(d, e) p7 = Add(a, a)
    q0 = Mul(c, two) q1 = Mul(two, c) q2 = Mul(b, x) q3 = Mul(a, two) q4 = Mul(c, z) q5 = Mul(x, two) q6 = Mul(x, x)
    r = Clip(c, , two) s = Clip(b) t = Clip(c, two, two) u = Softmax <axis = 0> (c) v = Dropout(c) o, n = Split(c) y = Sum(b, c, x)
}"""


@pytest.mark.parametrize(
    "make",
    [
        lambda x, w: es.MatMul(x, w) + w,
        lambda x, w: es.Commutative(es.MatMul(x, w) + w),
        lambda x, w: es.Commutative(w + es.MatMul(x, w)),
        lambda x, w: w + es.MatMul(x, w),
        lambda x, w: es.Relu(es.MatMul(x, w)) * 2.0,
        lambda x, w: es.Commutative(es.Relu(es.MatMul(x, w)) * 2.0),
        lambda x, w: es.Commutative(2.0 * es.Relu(es.MatMul(x, w))),
        lambda x, w: es.Commutative((d := es.MatMul(x, w)) * d),
        lambda x, w: (d := es.MatMul(x, w)) * d,
        lambda x, w: es.Commutative(es.Split(x, num_outputs=2)[1] + w),
        lambda x, w: [es.Split(x, num_outputs=2)[1] + w],
        lambda x, w: es.Clip(es.MatMul(x, w), None, 2.0),
        lambda x, w: es.Clip(es.MatMul(x, w), x, w),
        lambda x, w: es.Commutative(es.Sum(es.MatMul(x, w), x, w)),
        lambda x, w: es.constrain(es.Softmax(es.MatMul(x, w)), axis=1),
        lambda x, w: list(es.Dropout(es.MatMul(x, w), num_outputs=2)),
        lambda x, w: es.Split(es.MatMul(x, w), num_outputs=1),
    ],
)
def test_all_nodes_at_once_are_explained_as_each_alone(find, make):
    model = find.load(FIRST_OPERANDS, opset=18)
    nodes = model.graph.nodes_of("Add", "Sum", "Mul", "Softmax", "Split", "Clip", "Dropout")
    tracer = ReferenceMatcher(source_of(find.pattern(make, 2), model))
    together = [(node, facts(actual)) for node, actual in tracer.at_each(nodes)]
    assert together == [(node, facts(tracer.at(node))) for node in nodes]


def test_an_absent_output_is_told_before_the_inputs(find):
    model = find.load("g (float[2] x) => (float[2] y) { y = Exp(x) }").proto
    model.graph.node.append(onnx.NodeProto(op_type="Neg", name="neg", input=["y"], output=[""]))
    model = Model(model)
    failure = PatternMatcher(find.pattern(lambda x: -es.Relu(x)), model).why_not(
        model.graph.nodes_of("Neg")[0]
    )
    assert failure is not None
    assert failure.reason == 'Neg "neg" output 0: it is absent'


def test_the_matches_are_those_that_a_search_finds(find):
    text = "m = MatMul(x, z) b = Relu(x) c = Sin(x) p = Add(c, m) q = Add(b, c) r = Add(c, x) s = MatMul(x, z) t = Add(s, s)"
    model = find.load(
        f"g (float[2, 2] x, float[2, 2] z) => (float[2, 2] y) {{ {text} u = Max(p, q, r, s, t) y = Add(u, m) }}"
    )
    pattern = find.pattern(
        lambda x, w: es.Commutative(
            es.Alternatives(es.MatMul(x, w), es.Neg(es.Relu(x)), es.Relu(x)) + w
        ),
        2,
    )
    tracer = ReferenceMatcher(source_of(pattern, model))
    searched = {
        node: actual for node in model.graph.nodes if isinstance(actual := tracer.at(node), list)
    }
    assert [[node.op for node in actual] for actual in searched.values()] == [["Add", "Relu"]]
    assert tracer.matches(model.graph) == searched
