"""Structure: positions, identity of tensors and nodes, operands in any order, several outputs, what may be read outside."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from gehost import es, ops
from gehost.es.graph import EsGraphBuilder
from gehost.ir.model import Model
from gehost.ops import OpRegistry
from gehost.pattern.lower import LoweredPattern
from gehost.pattern.match import PatternMatcher
from gehost.pattern.matcher import Binding, CompiledPattern
from gehost.pattern.pattern import Pattern, PatternMatcherConfig
from gehost.pattern.source import ANY, Constraint, Kind
from gehost.testing import parse


def matmul_add(a, b, c):
    return es.Add(es.MatMul(a, b), c)


# -- positions ------------------------------------------------------------------------------------------------------


def test_operands_match_by_position(find):
    text = "g (float[2, 2] p, float[2, 2] q, float[2, 2] r) => (float[2, 2] y, float[2, 2] z) { t = MatMul(p, q) y = Add(t, r) s = MatMul(p, q) z = Add(r, s) }"
    assert find.outputs(text, matmul_add, 3) == [["y"]]
    assert find.bound(text, lambda a, b, c: es.Add(c, es.MatMul(a, b)), 3) == [["p", "q", "r"]]


def test_a_placeholder_takes_any_tensor(find):
    text = """g (float[2] p, float[2] g = {1, 2}) => (float[2] y) <float[2] w = {1, 2}> {
        k = Constant<value = float[2] {1, 1}>() a = Add(p, g) b = Add(a, w) y = Add(b, k) }"""
    assert find.bound(text, es.Add, 2) == [["p", "g"], ["a", "w"], ["b", "k"]]


def test_an_absent_input_matches_an_absent_input_only(find):
    text = """g (float[2] x, float l, float h) => (float[2] a, float[2] b, float[2] c, float[2] d, float[2] e) {
        a = Clip(x, l, h) b = Clip(x, , h) c = Clip(x, l) d = Clip(x) e = Clip(x, l, ) }"""
    assert find.outputs(text, lambda x, h: es.Clip(x, None, h), 2) == [["b"]]
    assert find.outputs(text, lambda x, low, high: es.Clip(x, low, high), 3) == [["a"]]
    assert find.outputs(
        "g (float[2] x) => (float[2] y) { y = ge.F(x, ) }", lambda x: es.op("ge::F")(x)
    ) == [["y"]]
    assert find.outputs(
        "g (float[2] x) => (float[2] y) { y = ge.F(x) }", lambda x: es.op("ge::F")(x, None)
    ) == [["y"]]
    assert (
        find.outputs(
            "g (float[2] x) => (float[2] y) { y = ge.F(x, x) }", lambda x: es.op("ge::F")(x)
        )
        == []
    )
    assert (
        find.outputs(
            "g (float[2] x) => (float[2] y) { y = ge.F(, x) }", lambda x: es.op("ge::F")(x)
        )
        == []
    )


def test_a_parameter_in_an_input_is_not_asked_about(find):
    text = "g (float[2] x, int64[1] t) => (float a, float b) <int64[1] w = {0}> { a = ReduceMean(x, w) b = ReduceMean(x, t) }"
    assert find.outputs(text, es.ReduceMean, opset=18) == [["a"], ["b"]]
    assert find.outputs(
        "g (float[2] x) => (float a) { a = ReduceMean<axes = [0]>(x) }", es.ReduceMean
    ) == [["a"]]
    pads = "g (float[2] x, int64[2] p, float v) => (float[4] y, float[4] z) { y = Pad(x, p, v) z = Pad(x, p) }"
    assert find.outputs(pads, lambda x, v: es.Pad(x, constant_value=v), 2) == [["y"]]
    assert find.outputs(pads, lambda x, p: es.Pad(x, p), 2) == [["y"], ["z"]]
    assert find.outputs(pads, lambda x, p: es.Pad(x, p, None), 2) == [["z"]], (
        "None says that it is absent"
    )
    train = "g (float[2] x, float r, bool t) => (float[2] y, float[2] z) { y = Dropout(x, r, t) z = Dropout(x, r) }"
    assert find.outputs(train, es.Dropout) == [["z"]], "training_mode is an input in every opset"


def test_a_variadic_operator_has_the_count_that_is_written(find):
    text = "g (float[2] p, float[2] q, float[2] r) => (float[4] y, float[6] z) { y = Concat<axis = 0>(p, q) z = Concat<axis = 0>(p, q, r) }"
    assert find.outputs(text, lambda a, b: es.Concat(a, b, axis=0), 2) == [["y"]]
    assert find.outputs(text, lambda a, b, c: es.Concat(a, b, c, axis=0), 3) == [["z"]]
    split = "g (float[6] x) => (float[3] a, float[2] c) { a, b = Split(x) c, d, e = Split(x) }"
    for opset in (11, 17):
        assert find.outputs(split, lambda x: es.Split(x, num_outputs=2)[0], opset=opset) == [["a"]]
        assert find.outputs(split, lambda x: es.Split(x, num_outputs=3)[0], opset=opset) == [["c"]]


def test_operators_are_told_apart_by_domain(find):
    text = "g (float[2] x) => (float[2] y, float[2] z) { y = Relu(x) z = ge.Relu(x) }"
    assert find.outputs(text, es.Relu) == [["y"]]
    assert find.outputs(text, es.op("ge::Relu")) == [["z"]]
    assert find.outputs(text, es.AnyOf("ge::Relu", "Relu")) == [["y"], ["z"]]
    assert find.outputs(text.replace("y = Relu", "y = ai.onnx.Relu"), es.op("ai.onnx::Relu")) == [
        ["y"]
    ]


# -- identity -------------------------------------------------------------------------------------------------------


def test_one_placeholder_is_one_tensor(find):
    text = "g (float[2] p, float[2] q) => (float[2] y, float[2] z) { y = Mul(p, p) z = Mul(p, q) }"
    assert find.outputs(text, lambda a: es.Mul(a, a)) == [["y"]]
    assert find.outputs(text, es.Mul, 2) == [["y"], ["z"]], "two placeholders may be one tensor"
    deep = "g (float[4] p, float[4] q) => (float[4] y, float[4] z) { a = Relu(p) b = Neg(a) y = Add(b, p) c = Relu(p) d = Neg(c) z = Add(d, q) }"
    assert find.outputs(deep, lambda x: es.Neg(es.Relu(x)) + x) == [["y"]]
    parts = "g (float[4] p) => (float[2] y, float[2] z) { a, b = Split(p) y = Mul(a, a) c, d = Split(p) z = Mul(c, d) }"
    assert find.outputs(
        parts, lambda x: (lambda s: es.Mul(s[0], s[1]))(es.Split(x, num_outputs=2))
    ) == [["z"]]
    assert (
        find.outputs(parts, lambda x: (lambda s: es.Mul(s[1], s[0]))(es.Split(x, num_outputs=2)))
        == []
    )


def test_different_operators_are_different_nodes(find):
    one = "g (float[2] p) => (float[2] y) { a = Relu(p) y = Add(a, a) }"
    two = "g (float[2] p) => (float[2] y) { a = Relu(p) b = Relu(p) y = Add(a, b) }"

    def pair(x):
        return es.Add(es.Relu(x), es.Relu(x))

    def both(x):
        shared = es.Relu(x)
        return es.Add(shared, shared)

    assert (find.outputs(one, pair), find.outputs(two, pair)) == ([], [["y"]])
    assert (find.outputs(one, both), find.outputs(two, both)) == ([["y"]], [])


def test_only_nodes_of_the_graph_that_is_searched(find):
    text = """g (float[2] x, bool c) => (float[2] y) { a = Relu(x)
        y = If(c) <then_branch = t () => (float[2] p) { b = Neg(a) p = Abs(b) }, else_branch = e () => (float[2] q) { r = Neg(x) q = Abs(r) }> }"""
    assert find.outputs(text, lambda x: es.Abs(es.Neg(x))) == []
    assert find.outputs(text, lambda x: es.Neg(es.Relu(x))) == []
    bodies = find.model.graph.subgraphs()
    actual = [
        list(PatternMatcher(find.pattern(lambda x: es.Abs(es.Neg(x))), body)) for body in bodies
    ]
    assert [[value.name for value in match.inputs] for (match,) in actual] == [["a"], ["x"]]
    assert list(PatternMatcher(find.pattern(lambda x: es.Abs(es.Neg(es.Relu(x)))), bodies[0])) == []


# -- any order ------------------------------------------------------------------------------------------------------


def test_operands_that_commute(find):
    text = "g (float[2, 2] p, float[2, 2] q, float[2, 2] r) => (float[2, 2] y, float[2, 2] z) { t = MatMul(p, q) y = Add(t, r) s = MatMul(q, p) z = Add(r, s) }"

    def either(a, b, c):
        return es.Commutative(es.Add(es.MatMul(a, b), c))

    assert find.bound(text, either, 3) == [["p", "q", "r"], ["q", "p", "r"]]
    assert find.outputs(text, matmul_add, 3, commutative_match=True) == [["y"], ["z"]]
    assert (
        find.outputs(text, lambda a, b, c: es.Sub(es.MatMul(a, b), c), 3, commutative_match=True)
        == []
    )


@pytest.mark.parametrize(
    ("inputs", "expected"), [("p, q", ["p", "q"]), ("p, , q", ["p", "q"]), ("p", None)]
)
def test_operands_that_commute_may_be_left_out(find, inputs, expected):
    """A node that does not write its last inputs is one whose last inputs are absent."""
    namespace = {"ops": ops}
    exec("ops.register('ge::F', inputs=list('abc'), traits=['commutative'])", namespace)
    registry = OpRegistry()
    registry.add_marked(namespace)
    text = f"g (float[2] p, float[2] q) => (y) {{ y = ge.F({inputs}) }}"

    def pair(x, z):
        return es.Commutative(es.op("ge::F")(x, z, None))

    actual = find.matches(text, pair, 2, registry=registry)
    bound = [[value.name for value in match.inputs] for match in actual]
    assert bound == ([] if expected is None else [expected])


def orders_of(find, make, count: int, operands: str) -> list[list[str]]:
    """The orders of a Sum's operands that the compiled matcher tries."""
    inputs = ", ".join(f"float[2] p{i}" for i in range(count))
    makers = " ".join(f"r{i} = Relu(p{i})" for i in range(count))
    text = f"g ({inputs}) => (float[2] y) {{ {makers} y = Sum({operands}) }}"
    pattern, graph = compiled(find, lambda *x: es.Commutative(make(*x)), text, count)
    binding, node = Binding(graph, pattern.source), graph.values["y"].producer
    total = pattern._ops[pattern.source.tensors[pattern.source.outputs[0]].producer]
    return [[value.name for value in order] for order in total.orders(binding, node)]


def with_ranks(a, b, c, d, e):
    b.producer.rank = d.producer.rank = 1  # as CreateInput(…, rank=1)
    return es.Sum(a, b, c, d, e)


@pytest.mark.parametrize(
    ("make", "operands", "orders"),
    [
        (lambda a, b, c: es.Sum(a, b, c), "p0, p1, p2", 1),
        (lambda a, *x: es.Sum(es.Relu(a), *x), "r0, r1, r2, r3, r4, r5, r6, r7", 8),
        (lambda a, *x: es.Sum(*x, es.Relu(a)), "r0, r1, r2, r3, r4, r5, r6, r7", 8),
        (with_ranks, "p0, p1, p2, p3, p4", 10),
        (lambda a, b: es.Sum(a, a, b), "p0, p1, r0", 6),
        (lambda a, b, c: es.Sum(es.Relu(a), es.Relu(b), es.Relu(c)), "r0, r1, r2", 6),
        (lambda a, b, c: es.Sum(es.Relu(a), es.Relu(b), es.Relu(c)), "r0, r1, r0", 3),
        (lambda a, b, c: es.Sum(es.Neg(a), b, c), "p0, p1, p2", 0),
    ],
    ids=[
        *("placeholders", "an operator first", "an operator last", "two kinds", "read twice"),
        *("operators", "equal inputs", "none fits"),
    ],
)
def test_orders_that_only_swap_equal_operands_are_not_tried(find, make, operands, orders):
    count = make.__code__.co_argcount
    count = len(operands.split(",")) if make.__code__.co_flags & 4 else count
    tried = orders_of(find, make, count, operands)
    assert len(tried) == orders
    assert len({tuple(order) for order in tried}) == orders


def test_the_first_order_that_fits_is_the_match(find):
    text = "g (float[2] p, float[2] q) => (float[2] y) { r = Relu(p) y = Sum(q, r, p, r, q) }"

    def total(a, b, c, d, e):
        return es.Commutative(es.Sum(a, b, es.Relu(c), d, e))

    assert find.bound(text, total, 5) == [["q", "r", "p", "p", "q"]]


def test_a_choice_deep_inside_is_taken_back(find):
    # Only with the inner Add's operands swapped, and the outer one's too, does one tensor stand at both places of x.
    text = """g (float[2] p, float[2] q) => (float[2] y) {
        a = Relu(p) b = Relu(q) s = Add(a, b) t = Neg(q) y = Add(t, s) }"""

    def deep(x, z):
        inner = es.Commutative(es.Add(es.Relu(x), es.Relu(z)))
        return es.Commutative(es.Add(inner, es.Neg(x)))

    assert find.bound(text, deep, 2) == [["q", "p"]]
    assert find.bound(text.replace("Neg(q)", "Neg(p)"), deep, 2) == [["p", "q"]]
    assert find.bound(text.replace("Neg(q)", "Neg(b)"), deep, 2) == []


def test_many_operands_in_any_order(find):
    names = [f"x{i}" for i in range(9)]
    shuffled = [names[i] for i in (4, 8, 0, 2, 7, 1, 3, 6, 5)]
    producers = " ".join(
        f"{name} = {op}(p)"
        for name, op in zip(
            names, ["Relu", "Neg", "Abs", "Exp", "Sqrt", "Log", "Tanh", "Sin", "Cos"], strict=True
        )
    )
    text = f"g (float[2] p) => (float[2] y) {{ {producers} y = Sum({', '.join(shuffled)}) }}"

    def total(x):
        result = [
            f(x)
            for f in (es.Cos, es.Sin, es.Tanh, es.Log, es.Sqrt, es.Exp, es.Abs, es.Neg, es.Relu)
        ]
        return es.Commutative(es.Sum(*result))

    assert find.outputs(text, total) == [["y"]]
    assert find.outputs(text.replace("Cos", "Tan"), total) == []
    assert (
        find.outputs(
            "g (float[2] p) => (float[2] y) { y = Sum(p) }",
            lambda a, b: es.Commutative(es.Sum(a, b)),
            2,
        )
        == []
    )
    assert (
        find.outputs(
            "g (float[2] p) => (float[2] y) { y = Sum(p, p, p) }",
            lambda a, b: es.Commutative(es.Sum(a, b)),
            2,
        )
        == []
    )


# -- several outputs ------------------------------------------------------------------------------------------------


def test_siblings_that_share_an_input_are_different_nodes(find):
    text = "g (float[2] p) => (float[2] a, float[2] b, float[2] c) { a = Relu(p) b = Relu(p) c = Neg(p) }"
    assert find.outputs(text, lambda x: [es.Relu(x), es.Relu(x)]) == [["a", "b"], ["b", "a"]]
    assert find.outputs(text, lambda x: [es.Relu(x), es.Neg(x)]) == [["a", "c"], ["b", "c"]]
    assert find.outputs(text, lambda x: [es.Neg(x), es.Neg(x)]) == []


def test_further_outputs_are_found_by_trying(find):
    text = """g (float[2] p, float[2] q) => (float[2] a, float[2] b, float[2] c) {
        a = Relu(p) d = Neg(p) b = Mul(d, q) e = Neg(p) c = Add(e, q) }"""
    assert find.outputs(text, lambda x, z: [es.Relu(x), es.Add(es.Neg(x), z)], 2) == [["a", "c"]]
    assert find.outputs(text, lambda x, z: [es.Relu(x), es.Mul(es.Neg(x), z)], 2) == [["a", "b"]]
    assert find.outputs(text, lambda x, z: [es.Relu(x), es.Mul(es.Neg(z), x)], 2) == []


def test_outputs_without_a_common_input_are_looked_for_everywhere(find):
    text = "g (float[2] p, float[2] q) => (float[2] a, float[2] b, float[2] c) { a = Relu(p) b = Neg(q) c = Neg(p) }"
    assert find.outputs(text, lambda x, z: [es.Relu(x), es.Neg(z)], 2) == [["a", "b"]]
    assert find.bound(text, lambda x, z: [es.Neg(x), es.Neg(z)], 2) == [["q", "p"], ["p", "q"]]


def test_an_output_may_be_read_inside_too(find):
    text = "g (float[2] p) => (float[2] a, float[2] y) { a = Relu(p) y = Neg(a) }"

    def chain(x):
        inner = es.Relu(x)
        return [es.Neg(inner), inner]

    assert find.outputs(text, chain) == [["y", "a"]]
    assert find.outputs(text, lambda x: es.Neg(es.Relu(x))) == []


def test_a_match_that_would_close_a_cycle_is_passed_over_for_one_that_does_not(find):
    text = "g (float[2] p) => (float[2] a, float[2] b) { a = Relu(p) m = Exp(a) b = Add(p, m) }"
    assert find.outputs(text, lambda x, z: [es.Relu(x), es.Add(x, z)], 2) == []
    text = "g (float[2] p, float[2] q) => (float[2] a, float[2] b, float[2] c) { a = Relu(p) m = Exp(a) b = Add(p, m) c = Add(p, q) }"
    assert find.outputs(text, lambda x, z: [es.Relu(x), es.Add(x, z)], 2) == [["a", "c"]]
    direct = "g (float[2] p) => (float[2] a, float[2] b) { a = Relu(p) b = Add(p, a) }"
    assert find.outputs(direct, lambda x, z: [es.Relu(x), es.Add(x, z)], 2) == [], (
        "z would be what the match itself makes"
    )


# -- readers outside ------------------------------------------------------------------------------------------------

INNER = "t = MatMul(p, q) y = Add(t, r)"


@pytest.mark.parametrize(
    ("outputs", "more"),
    [
        ("float[2, 2] y, float[2, 2] t", ""),
        ("float[2, 2] y, float[2, 2] z", "z = Relu(t)"),
        (
            "float[2, 2] y, float[2, 2] z",
            "z = If(c) <then_branch = b () => (float[2, 2] u) { u = Neg(t) }, else_branch = e () => (float[2, 2] r) { }>",
        ),
        (
            "float[2, 2] y, float[2, 2] z",
            "z = If(c) <then_branch = b () => (float[2, 2] t) { }, else_branch = e () => (float[2, 2] r) { }>",
        ),
    ],
)
def test_an_inner_tensor_that_is_read_outside_blocks(find, outputs, more):
    text = f"g (float[2, 2] p, float[2, 2] q, float[2, 2] r, bool c) => ({outputs}) {{ {INNER} {more} }}"
    assert find.outputs(text, matmul_add, 3) == []
    (source,) = [
        LoweredPattern(
            find.pattern(matmul_add, 3), PatternMatcherConfig(), find.model, OpRegistry()
        ).source
    ]
    values = find.model.graph.values
    assert CompiledPattern(source).match_at(values["y"].producer) == (None, [values["t"]])
    assert CompiledPattern(source).match_at(values["t"].producer) == (None, [])


def test_an_input_or_output_may_be_read_outside(find):
    text = f"g (float[2, 2] p, float[2, 2] q, float[2, 2] r) => (float[2, 2] y, float[2, 2] z, float[2, 2] r) {{ {INNER} z = Neg(y) n = Abs(p) }}"
    assert find.outputs(text, matmul_add, 3) == [["y"]]


def test_constants_may_be_shared(find):
    text = "g (float[2] p) => (float[2] y, float[2] z, float[2] w) <float[2] w = {1, 2}> { y = Add(p, w) z = Mul(p, w) }"
    builder = EsGraphBuilder("pattern")
    pattern = Pattern(
        builder.BuildAndReset(es.Add(builder.CreateInput(0), builder.CreateScalar(0.0)))
    )
    (match,) = PatternMatcher(pattern, find.load(text))
    assert [value.name for value in match.outputs] == ["y"]


def test_the_rule_is_per_tensor(find):
    text = "g (float[2] p) => (float[2] y, bool[2] z) { a, mask = Dropout(p) y = Relu(a) z = Not(mask) }"
    assert find.outputs(text, lambda x: es.Relu(es.Dropout(x))) == [["y"]], (
        "of the mask the pattern says nothing"
    )
    assert find.outputs(text, lambda x: es.Relu(es.Dropout(x, num_outputs=2)[0])) == [], (
        "here it is an inner tensor"
    )

    def both(x):
        out, mask = es.Dropout(x, num_outputs=2)
        return [es.Relu(out), mask]

    assert find.outputs(text, both) == [["y", "mask"]]


def test_an_output_that_nobody_asks_for_may_be_absent(find):
    text = "g (float[9] x, int64[1] k) => (int64[3] y) { , i = TopK(x, k) y = Neg(i) }"
    assert find.outputs(text, lambda x, k: es.Neg(es.TopK(x, k).Indices), 2) == [["y"]]
    assert (
        find.outputs(text, lambda x, k: [es.Neg(es.TopK(x, k).Indices), es.TopK(x, k).Values], 2)
        == []
    )


# -- by hand --------------------------------------------------------------------------------------------------------


def test_any_operand_is_not_even_asked_to_be_there(find):
    model = find.load(
        "g (float[2] x, float l) => (float[2] y, float[2] z) { y = ge.F(x, l) z = ge.F(x) }"
    )
    source = LoweredPattern(
        find.pattern(lambda x, a: es.op("ge::F")(x, a), 2),
        PatternMatcherConfig(),
        model,
        OpRegistry(),
    ).source
    op = replace(source.ops[0], inputs=(source.ops[0].inputs[0], ANY))
    source = replace(source, ops=(op,), inputs=source.inputs[:1])
    actual = [CompiledPattern(source).match_at(node)[0] for node in model.graph.nodes]
    assert all(binding is not None for binding in actual)


def test_variables_are_bound_anew_on_every_try(find):
    text = """g (float[2] x) => (float[2] a, float[2] b, float[2] c) {
        a = LeakyRelu<alpha = 0.25>(x) b = Elu<alpha = 0.5>(x) c = Elu<alpha = 0.25>(x) }"""
    model = find.load(text)
    source = LoweredPattern(
        find.pattern(lambda x: [es.LeakyRelu(x), es.Elu(x)]),
        PatternMatcherConfig(),
        model,
        OpRegistry(),
    ).source
    bind = Constraint("alpha", Kind.BIND, "same")
    bound = replace(source, ops=tuple(replace(op, constraints=(bind,)) for op in source.ops))
    binding, _ = CompiledPattern(bound).match_at(next(model.graph.nodes))
    assert [value.name for value in binding.values[1:]] == ["a", "c"]
    assert binding.attributes == {"same": 0.25}
    other = Constraint("alpha", Kind.BIND, "other")
    free = replace(bound, ops=(bound.ops[0], replace(bound.ops[1], constraints=(other, bind))))
    binding, _ = CompiledPattern(free).match_at(next(model.graph.nodes))
    assert binding.attributes == {"same": 0.25, "other": 0.25}, "what the first try bound is gone"


def test_an_output_that_the_node_has_not(find):
    text = "g (float[2] p) => (float[2] y) { y = Dropout(p) }"
    assert find.outputs(text, lambda x: list(es.Dropout(x, num_outputs=2))) == []
    assert find.outputs(text, lambda x: es.Dropout(x, num_outputs=2)[0]) == [["y"]], (
        "nobody asks for the mask"
    )


CHAINS = "g (float[2] x) => (float[2] y, float[2] z, float[2] w) { a = Exp(x) b = Neg(a) y = Relu(b) z = Relu(x) c = Exp(z) w = Relu(c) }"


def compiled(find, describe, text=CHAINS, inputs=1):
    model = find.load(text)
    pattern = find.pattern(describe, inputs)
    return CompiledPattern(
        LoweredPattern(pattern, PatternMatcherConfig(), model, OpRegistry()).source
    ), model.graph


@pytest.mark.parametrize(
    ("describe", "expected", "complete"),
    [
        (lambda x: es.Relu(es.Neg(es.Exp(x))), ["y"], False),
        (lambda x: es.Relu(es.Neg(x)), ["y"], False),
        (lambda x: es.Commutative(es.Add(es.Neg(x), x)), [], False),
        (lambda x: es.Relu(x), ["y", "z", "w"], True),
        (lambda x: es.Relu(es.Exp(x)), ["w"], False),
        (lambda x: es.Relu(es.Alternatives(es.Neg(x), x)), ["y", "z", "w"], True),
        (lambda x: es.AnyOf("Relu", "Sigmoid")(es.Neg(x)), ["y"], False),
        (lambda x: [es.Relu(x), es.Tanh(x)], [], False),
    ],
    ids=["chain", "rare", "absent", "one", "fed", "alternatives", "any-of", "second-output"],
)
def test_candidates_are_reached_from_the_rarest_operator(find, describe, expected, complete):
    pattern, graph = compiled(find, describe)
    actual, all_of_them = pattern.candidates(graph)
    assert ([node.label for node in actual], all_of_them) == (expected, complete)


def test_candidates_that_a_new_node_brings(find):
    pattern, graph = compiled(find, lambda x: es.Relu(es.Neg(es.Exp(x))))
    nodes = {node.label: node for node in graph.nodes}
    assert [[node.label for node in pattern.reached_from(nodes[name])] for name in ("a", "b", "y", "c", "z")] == [
        ["y"], ["y"], ["y"], [], ["z"]
    ]  # fmt: skip


def test_a_reader_in_a_body_is_no_candidate(find):
    text = """g (bool c, float[2] x) => (float[2] y, float[2] z) { n = Neg(x) y = Relu(n) u = Relu(x) v = Relu(u)
        z = If (c) <then_branch = t () => (float[2] p) { p = Relu(n) }, else_branch = e () => (float[2] q) { q = Neg(v) }> }"""
    pattern, graph = compiled(find, lambda x: es.Relu(es.Neg(x)), text)
    assert [node.label for node in pattern.candidates(graph)[0]] == ["y"]


def test_a_commuting_reader_is_reached_through_any_operand(find):
    text = "g (float[2] x, float[2] z) => (float[2] y, float[2] u, float[2] v) { n = Neg(x) y = Add(z, n) u = Add(x, z) v = Add(z, z) }"
    pattern, graph = compiled(find, lambda x, z: es.Commutative(es.Neg(x) + z), text, 2)
    assert [node.label for node in pattern.candidates(graph)[0]] == ["y"]


def test_a_variable_of_one_order_of_operands_is_free_in_the_next():
    """In the first order that is tried the variable gets the first Elu's alpha, which then does not lead on."""
    model = Model(
        parse(
            """<ir_version: 8, opset_import: ["" : 17]> g (float[2] x) => (float[2] y) {
                r = Relu(x) p = Elu <alpha = 1.0> (r) q = Elu <alpha = 2.0> (x) y = Add(p, q) }"""
        )
    )
    builder = EsGraphBuilder("p")
    x, z = builder.CreateInputs(2)
    first = es.Elu(x)
    graph = builder.BuildAndReset([es.Commutative(es.Add(first, es.Elu(es.Relu(z))))])
    source = LoweredPattern(Pattern(graph), PatternMatcherConfig(), model, OpRegistry()).source
    place = source.nodes.index(first.GetProducer())
    alpha = (Constraint("alpha", Kind.BIND, "v"),)
    source = replace(
        source,
        ops=tuple(replace(op, constraints=alpha) if op.index == place else op for op in source.ops),
    )
    binding, _ = CompiledPattern(source).match_at(model.graph.values["y"].producer)
    assert binding is not None
    assert binding.attributes == {"v": 2.0}
