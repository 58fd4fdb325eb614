"""Conditions hold, or refuse with what they are and what was there; what is not known refuses too."""

from __future__ import annotations

import operator
from typing import Any

import numpy as np
import onnx
import pytest

from gehost import DataType
from gehost.testing import assert_equal_numbers, parse
from gehost_register_pass import InputSpec, ParamAttr, native, op

MODEL = """<ir_version: 8, opset_import: ["" : 17]>
main (float[{x}] x, float[{y}] y) => (float[{z}] z) {{
    t = Relu(x)
    z = Add(t, y)
}}"""


def model(x: str = "6, 4", y: str | None = None, z: str | None = None) -> Any:
    return parse(MODEL.format(x=x, y=x if y is None else y, z=x if z is None else z))


def where(condition: Any) -> Any:
    def pattern(x, y):
        condition(x, y)
        return op.Add(op.Relu(x), y)

    return pattern, lambda x, y: op.Add(y, op.Relu(x))


def shape(tensor: Any) -> Any:
    return tensor.Attr("shape")


RELATIONS = {
    "EQ": operator.eq,
    "NE": operator.ne,
    "LT": operator.lt,
    "LE": operator.le,
    "GT": operator.gt,
    "GE": operator.ge,
}


@pytest.mark.parametrize("number", [5, 6, 7])
@pytest.mark.parametrize("name", RELATIONS)
def test_all_six_comparisons_in_both_spellings(run, name: str, number: int) -> None:
    relation = RELATIONS[name]
    for condition in (
        lambda x, _: getattr(shape(x)[0], name)(number),
        lambda x, _: relation(x.shape[0], number),
    ):
        _, record = run(model(), where(condition))
        assert (record.replaced, sum(record.rejected.values())) == (
            (1, 0) if relation(6, number) else (0, 1)
        )


@pytest.mark.parametrize(
    "condition",
    [
        lambda x, y: shape(x)[0].Mod(3).EQ(0),
        lambda x, y: shape(x)[0].Add(1).EQ(7),
        lambda x, y: shape(x)[0].Sub(shape(y)[1]).EQ(2),
        lambda x, y: shape(x)[0].Mul(2).Div(4).EQ(3),
        lambda x, y: shape(x)[0] // 4 == 1,
        lambda x, y: 13 % shape(x)[0] == 1,
        lambda x, y: 1 + shape(x)[0] * 2 - 1 == 12,
        lambda x, y: 3 / shape(x)[0] == 0.5,
        lambda x, y: 10 - shape(x)[0] == 4,
        lambda x, y: 13 // shape(x)[0] == 2,
        lambda x, y: 2 * shape(x)[0] == 12,
        lambda x, y: -shape(x)[-1] == -4,
        lambda x, y: shape(x).Size().EQ(2),
        lambda x, y: shape(x).EQ([6, 4]),
        lambda x, y: shape(x).EQ(shape(y)),
        lambda x, y: shape(x).NE([4, 6]),
        lambda x, y: shape(x).NE([6]),
        lambda x, y: x.Attr("dtype").EQ("float32"),
        lambda x, y: x.dtype == DataType.FLOAT,
    ],
)
def test_what_holds_lets_the_match_pass(run, condition: Any) -> None:
    _, record = run(model(), where(condition))
    assert (record.replaced, dict(record.rejected)) == (1, {})


@pytest.mark.parametrize(
    ("condition", "reason"),
    [
        (
            lambda x, y: shape(x)[0].Mod(32).EQ(0),
            'condition: (x.Attr("shape")[0] % 32) == 0 does not hold: 6 == 0',
        ),
        (
            lambda x, y: shape(x).EQ([6, 5]),
            'condition: x.Attr("shape") == [6, 5] does not hold: [6, 4] == [6, 5]',
        ),
        (
            lambda x, y: shape(x).Size() > 2,
            'condition: x.Attr("shape").Size() > 2 does not hold: 2 > 2',
        ),
        (
            lambda x, y: y.dtype == "float16",
            'condition: y.Attr("dtype") == "float16" does not hold: float32 == float16',
        ),
        (
            lambda x, y: shape(x)[2].EQ(1),
            'unknown: x.Attr("shape")[2] == 1: there is no element 2 among 2',
        ),
        (
            lambda x, y: (shape(x)[0] % 0).EQ(1),
            'unknown: (x.Attr("shape")[0] % 0) == 1: 6 % 0 has no value',
        ),
        (
            lambda x, y: native(nothing)(y.dtype).Holds(),
            'unknown: nothing(y.Attr("dtype")).Holds(): nothing returned None',
        ),
        (
            lambda x, y: y.Attr("value")[0].EQ(1),
            'unknown: y.Attr("value")[0] == 1: "y" is no constant',
        ),
    ],
)
def test_what_does_not_hold_is_told_as_it_is_written(refused, condition: Any, reason: str) -> None:
    assert refused(model(), where(condition)) == [reason]


def nothing(dtype: str) -> None:
    return None


@pytest.fixture
def refused(run, monkeypatch, interpreted):
    """The whole reasons for which matches are refused."""
    from gehost import CustomPassContext

    reasons: list[str] = []
    refuse = CustomPassContext.refuse
    monkeypatch.setattr(
        CustomPassContext,
        "refuse",
        lambda context, node, reason: (
            reasons.append(str(reason)),
            refuse(context, node, reason),
        )[1],
    )

    def of(model: Any, pair: Any, **specs: Any) -> list[str]:
        assert run(model, pair, **specs)[1].replaced == 0
        return reasons

    return of


@pytest.mark.parametrize("number", [np.int64(6), np.float32(6)])
def test_numbers_of_numpy_on_either_side(run, number: Any) -> None:
    for condition in (lambda x, _: number == x.shape[0], lambda x, _: number * x.shape[0] == 36):
        assert run(model(), where(condition))[1].replaced == 1
    assert run(model(), where(lambda x, _: np.array([6, 4]) == x.shape))[1].replaced == 1


def test_a_reason_stays_on_one_line(refused) -> None:
    before = parse(MODEL.format(x="200", y="200", z="200"), {"y": np.arange(200, dtype=np.float32)})
    (reason,) = refused(before, where(lambda x, y: y.Attr("value").EQ([1])))
    assert reason.endswith(
        "does not hold: [0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, … 200 in all] == [1]"
    )


NAMED = {"x": "N, M", "y": "N, M"}


@pytest.mark.parametrize(
    ("condition", "passes"),
    [
        (lambda x, y: shape(x).EQ(shape(y)), True),
        (lambda x, y: shape(x)[0] <= shape(y)[0], True),
        (lambda x, y: shape(x)[0] < shape(y)[0], False),
        (lambda x, y: shape(x)[0].NE(shape(y)[0]), False),
        (lambda x, y: shape(x)[0].EQ(shape(x)[1]), False),
        (lambda x, y: shape(x)[0].NE(shape(x)[1]), False),
        (lambda x, y: shape(x)[0].EQ(2), False),
        (lambda x, y: shape(x)[0].NE(2), False),
        (lambda x, y: shape(x)[0] * 2 > 0, False),
        (lambda x, y: shape(x).Size().EQ(2), True),
        (lambda x, y: shape(x).NE([1, 2, 3]), True),
    ],
)
def test_names_of_sizes_are_equal_to_themselves_and_nothing_else_is_known(
    run, condition: Any, passes: bool
) -> None:
    _, record = run(model(**NAMED), where(condition))
    assert record.replaced == passes


@pytest.mark.parametrize(
    "condition",
    [
        lambda x, y: shape(x)[0].EQ(shape(y)[0]),
        lambda x, y: shape(x)[0].NE(1),
        lambda x, y: shape(x).EQ(shape(y)),
        lambda x, y: shape(x)[0] > 0,
        lambda x, y: native(bool)(shape(x)[0]).Holds(),
        lambda x, y: native(lambda shapes: True)([[shape(x)]]).Holds(),
    ],
)
def test_an_unknown_size_satisfies_nothing(run, condition: Any) -> None:
    before = model("N, 4", "N, 4", "N, 4")
    for entry in (*before.graph.input, *before.graph.output):
        entry.type.tensor_type.shape.dim[0].Clear()
    _, record = run(before, where(condition))
    assert (record.replaced, dict(record.rejected)) == (0, {"unknown": 1})


def test_an_unknown_size_is_itself(run) -> None:
    before = model("N, 4", "N, 4", "N, 4")
    for entry in (*before.graph.input, *before.graph.output):
        entry.type.tensor_type.shape.dim[0].Clear()
    _, record = run(before, where(lambda x, y: shape(x)[0].EQ(shape(x)[0])))
    assert record.replaced == 1


@pytest.mark.parametrize(
    ("spec", "matches"),
    [
        (InputSpec([6, 4]), True),
        (InputSpec([None, 4]), True),
        (InputSpec([-1, 4]), True),
        (InputSpec(dtype="float32"), True),
        (InputSpec([6, 4], DataType.FLOAT), True),
        (InputSpec([4, 6]), False),
        (InputSpec([6, 4, 1]), False),
        (InputSpec(dtype="float16"), False),
    ],
)
def test_input_specs_are_asked_of_the_tensor(run, spec: InputSpec, matches: bool) -> None:
    _, record = run(model(), where(lambda x, y: None), x=spec)
    assert (record.matched, record.replaced) == (matches, matches)


def test_a_weight_must_be_a_constant(refused) -> None:
    assert refused(model(), where(lambda x, y: None), y=ParamAttr()) == [
        'weight: y is "y", which is no constant'
    ]


def test_a_weight_that_is_one_passes_and_may_be_looked_into(run) -> None:
    def pattern(x, y):
        y.Attr("value").EQ(y.Attr("value"))
        y.Attr("value").Size().EQ(4)
        y.Attr("value")[-1].EQ(3.5)
        return op.Add(op.Relu(x), y)

    before = parse(
        MODEL.format(x="6, 4", y="4", z="6, 4"), {"y": np.array([0, 1, 2, 3.5], np.float32)}
    )
    _, record = run(before, (pattern, lambda x, y: op.Add(y, op.Relu(x))), y=ParamAttr())
    assert record.replaced == 1


def test_a_default_that_callers_may_override_is_no_constant(refused) -> None:
    before = model("4")
    before.graph.initializer.append(onnx.numpy_helper.from_array(np.ones(4, np.float32), "y"))
    (reason,) = refused(before, where(lambda x, y: y.Attr("value")[0].EQ(1)))
    assert reason.endswith('"y" is no constant')


@pytest.mark.parametrize("body", ["Mul(x, s)", "Mul(s, x)"])
@pytest.mark.parametrize(
    ("specs", "condition"),
    [
        ({"c": ParamAttr()}, lambda a, c: None),
        ({}, lambda a, c: shape(c).EQ([1])),
        ({}, lambda a, c: native(lambda sizes: len(sizes) == 2)(shape(a)).Holds()),
    ],
)
def test_conditions_tell_operands_apart_that_commute(
    run, body: str, specs: Any, condition: Any
) -> None:
    def pattern(a, c):
        condition(a, c)
        return op.Mul(a, c).Commutative()

    text = f'<ir_version: 8, opset_import: ["" : 17]> main (float[2, 3] x) => (float[2, 3] y) {{ y = {body} }}'
    before = parse(text, {"s": np.array([3.0], np.float32)})
    after, record = run(before, (pattern, lambda a, c: op.Div(a, op.Div(1.0, c))), **specs)
    assert (record.matched, record.replaced) == (1, 1)
    assert ["s" in node.input for node in after.graph.node if node.op_type == "Div"] == [
        True,
        False,
    ]
    assert_equal_numbers(before, after)


@pytest.mark.parametrize(
    ("read", "first", "second", "count"),
    [
        ("r", "s", "x", 0),
        ("r", "x", "x", 0),
        ("r", "s", "r", 1),
        ("r", "r", "s", 1),
        ("s", "s", "x", 0),
        ("s", "x", "s", 0),
    ],
)
def test_operands_that_something_tells_apart_are_not_exchanged(
    run, read: str, first: str, second: str, count: int
) -> None:
    """``a`` is what Relu reads too, whichever the order."""

    def pattern(a, c):
        c.shape.EQ([1])
        return op.Sub(op.Relu(a), op.Mul(a, c).Commutative())

    text = f"""<ir_version: 8, opset_import: ["" : 17]> main (float[2, 3] x) => (float[2, 3] y) {{
        r = Neg(x) t = Relu({read}) m = Mul({first}, {second}) y = Sub(t, m)
    }}"""
    before = parse(text, {"s": np.array([3.0], np.float32)} if "s" in (first, second) else {})
    after, record = run(before, (pattern, lambda a, c: op.Sub(op.Max(a, 0.0), op.Mul(c, a))))
    assert record.replaced == count
    assert_equal_numbers(before, after)


def test_operands_that_do_not_commute_are_not_exchanged(run) -> None:
    def pattern(a, c):
        c.shape.EQ([1])
        return op.Sub(a, c)

    text = '<ir_version: 8, opset_import: ["" : 17]> main (float[2, 3] x) => (float[2, 3] y) { y = Sub(s, x) }'
    before = parse(text, {"s": np.array([3.0], np.float32)})
    assert dict(run(before, (pattern, lambda a, c: op.Add(a, op.Neg(c))))[1].rejected) == {
        "condition": 1
    }


@pytest.mark.parametrize("spec", [InputSpec([2, 3]), ParamAttr(), ParamAttr("z")])
def test_what_an_argument_asks_holds_in_every_order_of_the_operands(run, spec: Any) -> None:
    """``c`` alone may be x."""

    def pattern(a, c):
        c.shape.EQ([2, 3])
        return op.Add(a, c).Commutative()

    text = '<ir_version: 8, opset_import: ["" : 17]> main (float[2, 3] x) => (float[2, 3] y) { y = Add(x, s) }'
    before = parse(text, {"s": np.array([3.0], np.float32)})
    assert run(before, (pattern, lambda a, c: op.Sub(c, op.Neg(a))), a=spec)[1].replaced == (
        spec.__class__ is ParamAttr
    )


def test_attributes_of_two_operators_are_compared(run) -> None:
    def pattern(x):
        first = op.Transpose(x)
        second = op.Transpose(first)
        second.Attr("perm").EQ(first.Attr("perm"))
        return second

    text = """<ir_version: 8, opset_import: ["" : 17]> main (float[2, 2, 2] x) => (float[2, 2, 2] y) {{
        t = Transpose<perm = [1, 0, 2]>(x)
        y = Transpose{perm}(t)
    }}"""
    pair = (pattern, lambda x: x)
    assert run(text.format(perm="<perm = [1, 0, 2]>"), pair)[1].replaced == 1
    assert dict(run(text.format(perm="<perm = [2, 0, 1]>"), pair)[1].rejected) == {"condition": 1}
    # without perm, the axes are reversed
    assert dict(run(text.format(perm=""), pair)[1].rejected) == {"condition": 1}


def test_a_computed_attribute_in_a_pattern_is_a_condition(run) -> None:
    def pattern(x):
        first = op.Softmax(op.Relu(x))
        first.SetAttr("axis", x.shape.Size() - 1)
        return first

    text = '<ir_version: 8, opset_import: ["" : 17]> main (float[2, 3] x) => (float[2, 3] y) {{ r = Relu(x) y = Softmax<axis = {}>(r) }}'
    pair = (pattern, lambda x: op.Softmax(op.Max(x, 0.0), axis=1))
    assert run(text.format(1), pair)[1].replaced == 1
    assert dict(run(text.format(0), pair)[1].rejected) == {"condition": 1}


@pytest.mark.parametrize("opset", [11, 13])
def test_an_attribute_that_other_opsets_have_as_an_input(run, opset: int) -> None:
    def pattern(x):
        squeezed = op.Squeeze(op.Unsqueeze(x))
        squeezed.Attr("axes").Size().EQ(1)
        squeezed.Attr("axes")[0].GE(0)
        return squeezed

    axes = ("<axes = [1]>(x)", "<axes = [1]>(u)") if opset == 11 else ("(x, one)", "(u, one)")
    text = f'<ir_version: 8, opset_import: ["" : {opset}]> main (float[2] x) => (float[2] y) {{ u = Unsqueeze{axes[0]} y = Squeeze{axes[1]} }}'
    before = parse(text, {"one": np.array([1])} if opset == 13 else {})
    assert run(before, (pattern, lambda x: x))[1].replaced == 1


def test_the_shape_of_an_inner_tensor(run) -> None:
    def pattern(x, y):
        product = op.MatMul(x, y)
        product.Output().shape[1].EQ(5)
        return op.Relu(product)

    text = '<ir_version: 8, opset_import: ["" : 17]> main (float[2, 3] x, float[3, {n}] y) => (float[2, {n}] z) {{ p = MatMul(x, y) z = Relu(p) }}'
    pair = (pattern, lambda x, y: op.Max(op.MatMul(x, y), 0.0))
    assert run(text.format(n=5), pair)[1].replaced == 1
    assert dict(run(text.format(n=6), pair)[1].rejected) == {"condition": 1}
