"""Functions are traced to rules: operators, arguments by name, several pairs; and only what they say is asked."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from gehost.testing import assert_equal_numbers, parse, random_weights
from gehost_register_pass import PassDesc, RegisterPass, op

ADD_RELU = """<ir_version: 8, opset_import: ["" : 17]>
main (float[2, 3] x) => (float[2, 3] y) {
    s = Add(x, b)
    y = Relu(s)
}"""


def model(text: str = ADD_RELU, **shapes: Any) -> Any:
    return parse(text, random_weights(shapes or {"b": [3]}))


def published(x, y):
    return PassDesc.OP.Relu(X=PassDesc.OP.Add(A=x, B=y))


def short(x, y):
    return op.Relu(op.Add(x, y))


def by_steps(x, y):
    relu, add = PassDesc.OP.Relu, PassDesc.OP.Add
    return relu(X=add(A=x, B=y).Output("C")).Output("Y")


@pytest.mark.parametrize("pattern", [published, short, by_steps])
def test_every_spelling_matches_and_is_replaced(run, ops, pattern) -> None:
    before = model()
    after, record = run(before, (pattern, lambda x, y: op.Max(op.Add(x, y), 0.0)))
    assert (record.replaced, record.kind) == (1, "register_pass")
    assert ops(after) == ["Add", "Max"]
    assert_equal_numbers(before, after)


def test_arguments_are_matched_by_name_not_by_position(run) -> None:
    text = ADD_RELU.replace("Add(x, b)", "Sub(x, b)")
    before = model(text)
    after, record = run(
        before, (lambda p, q: op.Relu(op.Sub(p, q)), lambda q, p: op.Relu(op.Add(p, op.Neg(q))))
    )
    assert record.replaced == 1
    assert_equal_numbers(before, after)


def test_a_replacement_may_leave_arguments_out(run, ops) -> None:
    after, record = run(model(), (short, lambda y: op.Expand(y, [2, 3])))
    assert record.replaced == 1
    assert ops(after) == ["Expand"]
    assert after.graph.node[0].input[0] == "b"


def test_a_replacement_that_returns_its_argument_deletes(run, ops) -> None:
    text = """<ir_version: 8, opset_import: ["" : 17]> main (float[2] x) => (float[2] y) {
        a = Abs(x)
        b = Neg(a)
        c = Neg(b)
        y = Relu(c)
    }"""
    before = parse(text)
    after, record = run(before, (lambda x: op.Neg(op.Neg(x)), lambda x: x))
    assert record.replaced == 1
    assert ops(after) == ["Abs", "Relu"]
    assert_equal_numbers(before, after)


def test_several_pairs_are_tried_in_order(run, ops) -> None:
    def rule():
        def pair(depth):
            def pattern(x):
                for _ in range(depth):
                    x = op.Neg(x)
                return x

            return pattern, lambda x: op.Identity(x) if depth == 2 else op.Abs(x)

        return [pair(2), pair(1)]

    text = '<ir_version: 8, opset_import: ["" : 17]> main (float[2] x) => (float[2] y) { a = Neg(x) b = Neg(a) y = Neg(b) }'
    after, record = run(text, RegisterPass(rule))
    assert record.replaced == 2
    assert ops(after) == ["Identity", "Abs"]


def test_several_outputs_are_replaced_together(run, ops) -> None:
    text = """<ir_version: 8, opset_import: ["" : 17]> main (float[2, 3] x) => (float[2, 4] y, float[2, 4] z) {
        y = MatMul(x, a)
        z = MatMul(x, b)
    }"""

    def pattern(x, a, b):
        return op.MatMul(x, a), op.MatMul(x, b)

    def replace(x, a, b):
        parts = op.Split(op.MatMul(x, op.Concat(a, b, axis=1)), num_outputs=2, axis=1)
        return parts.Output(0), parts.Output(1)

    before = model(text, a=[3, 4], b=[3, 4])
    after, record = run(before, (pattern, replace))
    assert record.replaced == 1
    assert ops(after) == ["Concat", "MatMul", "Split"]
    assert_equal_numbers(before, after)


def test_a_parameter_with_a_default_stands_for_no_tensor(run) -> None:
    from functools import partial

    def pattern(x, y, relu):
        added = op.Add(x, y)
        return op.Relu(added) if relu else added

    _, record = run(model(), (partial(pattern, relu=True), lambda x, y: op.Max(op.Add(x, y), 0.0)))
    assert record.replaced == 1


TRANSPOSE = '<ir_version: 8, opset_import: ["" : 17]> main (float[2, 3] x) => (float[3, 2] y) { y = Transpose<perm = [1, 0]>(x) }'


@pytest.mark.parametrize(
    ("attribute", "matches"), [({}, True), ({"perm": [1, 0]}, True), ({"perm": [0, 1]}, False)]
)
@pytest.mark.parametrize("set_attr", [True, False])
def test_attributes_are_asked_for_only_where_they_are_written(
    run, attribute: Any, matches: bool, set_attr: bool
) -> None:
    def pattern(x):
        if not set_attr:
            return op.Transpose(x, **attribute)
        transpose = PassDesc.OP.Transpose(data=x)
        for name, value in attribute.items():
            transpose.SetAttr(name, value)
        return transpose

    _, record = run(TRANSPOSE, (pattern, lambda x: op.Einsum(x, equation="ij->ji")))
    assert record.replaced == matches


def test_operands_in_any_order_where_that_is_said(run) -> None:
    def bias(commutative):
        def pattern(x, b):
            added = op.Add(b, op.Abs(x))
            return added.Commutative() if commutative else added

        return pattern, lambda x, b: op.Sub(op.Abs(x), op.Neg(b))

    text = (
        ADD_RELU.replace("Relu(s)", "Neg(s)")
        .replace("Add(x, b)", "Abs(x)")
        .replace("Neg(s)", "Add(s, b)")
    )
    assert run(model(text), bias(commutative=False))[1].matched == 0
    assert run(model(text), bias(commutative=True))[1].replaced == 1


def test_numbers_of_a_pattern_are_matched_by_value(run) -> None:
    text = ADD_RELU.replace("Relu(s)", "Mul(s, two)")
    pair = (lambda x: op.Mul(x, 2.0), lambda x: op.Add(x, x))
    for value, replaced in ((2.0, 1), (2.5, 0)):
        before = parse(text, {**random_weights({"b": [3]}), "two": np.array(value, np.float32)})
        after, record = run(before, pair)
        assert record.replaced == replaced
        assert_equal_numbers(before, after)


@pytest.mark.parametrize(
    ("opset", "node"), [(6, "Clip<max = 6.0>(s)"), (11, "Clip(s, , six)"), (17, "Clip(s, , six)")]
)
@pytest.mark.parametrize(("most", "matches"), [(6.0, True), (5.0, False)])
def test_a_number_by_the_name_of_an_input(
    run, opset: int, node: str, most: float, matches: bool
) -> None:
    """One that some opsets have as an attribute, and one that none has."""
    text = f'<ir_version: 8, opset_import: ["" : {opset}]> main (float[2, 3] x) => (float[2, 3] y) {{ s = Pow(x, two) y = {node} }}'
    weights = {"two": np.array(2.0, np.float32), "six": np.array(6.0, np.float32)}
    before = parse(text, {name: array for name, array in weights.items() if name in text})

    def pattern(x):
        return op.Clip(PassDesc.OP.Pow(X=x, Y=2.0), max=most)

    after, record = run(before, (pattern, lambda x: op.Clip(PassDesc.OP.Mul(A=x, B=x), max=6.0)))
    assert record.replaced == matches
    assert_equal_numbers(before, after)
    assert run(before, (lambda x: op.Clip(op.Pow(X=x, Y=3.0)), lambda x: x))[1].matched == 0


def test_a_function_is_traced_when_its_rule_is_wanted_not_before() -> None:
    calls: list[str] = []

    @RegisterPass
    def rule():
        calls.append("traced")
        return short, lambda x, y: op.Add(x, y)

    assert calls == []
    assert rule.rule is rule.rule
    rule.spec()
    assert calls == ["traced"]
