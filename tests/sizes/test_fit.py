"""Doubts are fitted to cases: all that are wrong, few that are right."""

from __future__ import annotations

import numpy as np
import pytest

from gehost.infer.doubts import Doubt
from tools.sizes.cases import Case, node_of
from tools.sizes.fit import fit, fit_of, in_doubt, statement_of, table
from tools.sizes.sweep import Seen
from tools.sizes.witnesses import (
    AGREE,
    ALONE,
    DISAGREE,
    OPEN,
    Shapes,
    actual_shapes,
    gehost_shapes,
    judge,
)


def pool(number: int, size: int, opset: int = 13, **attributes: object) -> Seen:
    """A pool with what the runtime makes of it."""
    x = [np.zeros((1, 2, size), np.float32)]
    case = Case(node_of("MaxPool", x, {"kernel_shape": [2], **attributes}, 1), opset, x)
    inferred = gehost_shapes(case, case.model(), {})
    actual, refused = actual_shapes(case, case.model())
    verdict = judge(case, inferred, actual)
    return Seen(number, "MaxPool", opset, case, inferred, inferred, actual, refused, verdict)


UP = {"strides": [2], "pads": [1, 1], "ceil_mode": 1}


def test_the_condition_that_holds_for_the_wrong_ones_alone() -> None:
    visited = [pool(size, size, **UP) for size in range(2, 12)]
    visited += [pool(size, size, strides=[2]) for size in range(20, 30)]
    assert {s.number for s in visited if s.verdict == DISAGREE} == {3, 5, 7, 9, 11}
    rules, beyond = fit(visited)
    assert [rule.doubt.when for rule in rules] == [("pool_output_size_differs",)]
    assert (rules[0].wrong, rules[0].right, rules[0].doubt.certain) == ([3, 5, 7, 9, 11], 0, 2)
    assert (rules[0].doubt.first, beyond) == (12, [])
    assert [s.number for s in visited if in_doubt(rules, s)] == [3, 5, 7, 9, 11]
    case = visited[1].case
    assert case is not None
    assert gehost_shapes(case, case.model(), table(rules)) == [(1, 2, None)]


def test_more_cases_of_an_operator_change_its_rules_alone() -> None:
    visited = [pool(size, size, **UP) for size in (3, 4)]
    other = fit(visited)[0][0]
    retained = other.__class__("Other", Doubt(1, None, ("any_node",), 0), [99], 0, 0)
    rules, _ = fit_of([other, retained], [*visited, pool(5, 5, **UP)], {"MaxPool"})
    assert [(rule.op, rule.wrong) for rule in rules] == [("MaxPool", [3, 5]), ("Other", [99])]


def test_a_right_case_that_one_witness_runs_is_counted_apart() -> None:
    visited = [pool(size, size, **UP) for size in (3, 4, 5, 7)]
    assert visited[2].actual is not None
    visited[2].verdict = visited[3].verdict = AGREE
    del visited[2].actual["reference"]
    (rule,), _ = fit(visited)
    assert (rule.wrong, rule.right, rule.half_seen, rule.share) == ([3], 1, 1, 0.5)


def test_operators_of_one_function_have_each_others_doubts() -> None:
    def conv(number: int, op: str, opset: int, *, wrong: bool) -> Seen:
        kind = np.float32 if op == "Conv" else np.uint8
        arrays = [np.zeros((1, 1, 6), kind), np.zeros((1, 1, 2), kind)]
        attributes = {"auto_pad": "VALID", "pads": [1 if wrong else 0, 0]}
        case = Case(node_of(op, arrays, attributes, 1), opset, arrays)
        shapes: Shapes = [(1, 1, 5)]
        return Seen(
            number, op, opset, case, shapes, shapes, {"a": shapes}, {}, DISAGREE if wrong else AGREE
        )

    cases = [conv(0, "Conv", 7, wrong=True)]
    cases += [conv(number, "ConvInteger", 13, wrong=False) for number in range(1, 9)]
    rules, _ = fit(cases)
    assert {rule.op: (rule.doubt.first, rule.doubt.when, rule.wrong) for rule in rules} == {
        "Conv": (1, ("pads_beside_auto_pad",), [0]),
        "ConvInteger": (10, ("pads_beside_auto_pad",), []),
        "QLinearConv": (10, ("pads_beside_auto_pad",), []),
    }


def test_a_statement_is_what_inference_is_asked_to_believe() -> None:
    statement = statement_of(pool(0, 7, **UP))
    assert statement is not None
    assert (statement.attributes["ceil_mode"], statement.result()) == (1, (1, 2, 5))


@pytest.mark.parametrize(
    ("inferred", "actual", "verdict"),
    [
        ([(1, "N")], {"a": [(1, 3)]}, AGREE),
        ([(1, "N")], {"a": [(1, 2)]}, DISAGREE),
        ([(1, None)], {"a": [(1, 2)], "b": [(2, 2)]}, DISAGREE),
        ([(1, None)], {"a": [(1,)]}, DISAGREE),
        ([(None, None)], {"a": [(1, 2)]}, OPEN),
        ([None], {"a": [(1, 2)]}, OPEN),
        ([()], {"a": [(1,)]}, DISAGREE),
        ([(1,)], {}, ALONE),
    ],
)
def test_verdicts(inferred: Shapes, actual: dict[str, Shapes], verdict: str) -> None:
    x = [np.zeros(3, np.float32)]
    case = Case(node_of("Relu", x, {}, 1), 13, x, dims={0: ("N",)})
    assert judge(case, inferred, actual) == verdict
