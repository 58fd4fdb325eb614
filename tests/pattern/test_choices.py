"""Patterns that leave open which of several sub-patterns stands somewhere."""

from __future__ import annotations

import pytest

from gehost import es
from gehost.errors import PatternError
from gehost.es.graph import EsGraphBuilder
from gehost.ir.ge import NodeIo
from gehost.pattern.match import PatternMatcher
from gehost.pattern.pattern import Pattern
from gehost.refusal import Refused

TEXT = """g (float[2] x, float[2] z) => (float[2] a, float[2] b, float[2] c, float[2] d) {
    p = Relu(x) a = Exp(p) q = Neg(x) b = Exp(q) c = Exp(z) r = Abs(x) d = Exp(r) }"""


def activated(x):
    return es.Exp(es.Alternatives(es.Relu(x), es.Neg(x)))


def test_any_of_the_sub_patterns_matches(find):
    assert find.outputs(TEXT, activated) == [["a"], ["b"]]
    assert find.bound(TEXT, activated) == [["x"], ["x"]]


def test_a_placeholder_among_them_makes_the_others_optional(find):
    assert find.bound(TEXT, lambda x: es.Exp(es.Alternatives(es.Relu(x), x))) == [
        ["x"],
        ["q"],
        ["z"],
        ["r"],
    ]
    assert find.bound(TEXT, lambda x: es.Exp(es.Alternatives(x, es.Relu(x)))) == [
        ["p"],
        ["q"],
        ["z"],
        ["r"],
    ], "the first that fits"


def test_a_variant_that_is_not_self_contained_gives_way_to_one_that_is(find):
    text = "g (float[2] x) => (float[2] a, float[2] p) { p = Relu(x) a = Exp(p) }"
    assert find.bound(text, lambda x: es.Exp(es.Alternatives(es.Relu(x), x))) == [["p"]]


def test_outputs_and_operands_may_be_left_open(find):
    def either(x):
        return es.Alternatives(es.Exp(es.Relu(x)), es.Exp(es.Neg(x)), es.Abs(x))

    assert find.outputs(TEXT, either) == [["a"], ["b"], ["r"]]

    def both(x):
        return [es.Alternatives(es.Relu(x), es.Abs(x)), es.Alternatives(es.Neg(x), es.Sqrt(x))]

    assert find.outputs(TEXT, both) == [["p", "q"], ["r", "q"]]


def test_an_input_that_a_variant_does_not_read_is_absent(find):
    actual = find.matches(TEXT, lambda x, z: es.Exp(es.Alternatives(es.Relu(x), z)), 2)
    assert [[value and value.name for value in match.inputs] for match in actual] == [
        ["x", None],
        [None, "q"],
        [None, "z"],
        [None, "r"],
    ]


def test_choices_in_choices(find):
    def nested(x):
        return es.Exp(es.Alternatives(es.Relu(es.Alternatives(es.Abs(x), es.Neg(x))), es.Neg(x)))

    assert find.outputs(TEXT, nested) == [["b"]]
    deep = "g (float[2] x) => (float[2] a) { p = Neg(x) q = Relu(p) a = Exp(q) }"
    (match,) = find.matches(deep, nested)
    assert [node.op for node in match.GetMatchedNodes()] == ["Neg", "Relu", "Exp"]


def test_one_choice_is_made_once(find):
    def shared(x):
        either = es.Alternatives(es.Relu(x), es.Neg(x))
        return es.Add(either, es.Exp(either))

    same = "g (float[2] x) => (float[2] y) { p = Neg(x) e = Exp(p) y = Add(p, e) }"
    mixed = "g (float[2] x) => (float[2] y) { p = Neg(x) q = Relu(x) e = Exp(p) y = Add(q, e) }"
    assert (find.outputs(same, shared), find.outputs(mixed, shared)) == ([["y"]], [])


def test_what_a_match_shows_of_its_variant(find):
    builder = EsGraphBuilder("open")
    x = builder.CreateInput(0)
    relu, neg, one = es.Relu(x), es.Neg(x), builder.CreateScalar(1.0)
    either = es.Alternatives(relu, neg, es.Add(x, one))
    exp = es.Exp(either)
    pattern = Pattern(builder.BuildAndReset(exp))
    for tensor in (
        either,
        relu,
        NodeIo(neg.GetProducer(), 0),
        NodeIo(either.GetProducer(), 0),
        x,
        one,
    ):
        pattern.CaptureTensor(tensor)
    first, second = PatternMatcher(pattern, find.load(TEXT))
    assert [first.GetCapturedTensor(i).value.name for i in (0, 1, 3, 4)] == ["p", "p", "p", "x"]
    assert [second.GetCapturedTensor(i).value.name for i in (0, 2)] == ["q", "q"]
    assert [first.has(relu), first.has(neg), first.has(exp.producer), second.has(neg)] == [
        True,
        False,
        True,
        True,
    ]
    for index in (2, 5):
        with pytest.raises(
            IndexError,
            match=f"captured tensor {index}: it is in an alternative that did not match",
        ):
            first.GetCapturedTensor(index)
    assert (
        first.GetMatchedNode(relu).op,
        second.GetMatchedNode(neg).op,
        second.GetMatchedNode(exp).op,
    ) == ("Relu", "Neg", "Exp")
    with pytest.raises(PatternError, match="is in an alternative that did not match"):
        first.GetMatchedNode(neg)


def test_a_match_has_what_its_variant_reads(find):
    builder = EsGraphBuilder("open")
    x, other = builder.CreateInput(0), builder.CreateInput(1)
    one, two = builder.CreateScalar(1.0), builder.CreateScalar(2.0)
    inner = es.Alternatives(es.Mul(x, one), x)
    outer = es.Alternatives(es.Relu(inner), es.Add(other, two))
    pattern = Pattern(builder.BuildAndReset(es.Exp(outer)))
    parts = [outer, inner, x, one, other, two]
    text = """g (float[2] x) => (float[2] a, float[2] b, float[2] c) <float one = {1.0}> {
    p = Relu(x) a = Exp(p)
    q = Add(x, one) b = Exp(q)
    m = Mul(x, one) r = Relu(m) c = Exp(r)
}"""
    actual = [
        [match.has(part) for part in parts] for match in PatternMatcher(pattern, find.load(text))
    ]
    assert actual == [
        [True, True, True, False, False, False],
        [True, False, False, False, True, True],
        [True, True, True, True, False, False],
    ]


def test_variants_that_the_opset_lacks_are_left_out(find):
    assert find.outputs(TEXT, lambda x: es.Exp(es.Alternatives(es.Gelu(x), es.Neg(x)))) == [["b"]]
    with pytest.raises(Refused, match="Gelu needs opset 20"):
        find.outputs(TEXT, lambda x: es.Exp(es.Alternatives(es.Gelu(x), es.Mish(x))))


def test_matches_come_in_order_whatever_the_variant(find):
    text = "g (float[2] x) => (float[2] a, float[2] b, float[2] c) { a = Neg(x) b = Relu(x) c = Neg(x) }"
    assert find.outputs(text, lambda x: es.Alternatives(es.Relu(x), es.Neg(x))) == [
        ["a"],
        ["b"],
        ["c"],
    ]


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            lambda x, z: [x + z, es.Alternatives(-x, z)],
            "output 1 of one variant of pattern 'pattern' has no operator",
        ),
        (
            lambda x, z: (lambda s: [s, es.Alternatives(s, -s)])(x + z),
            "output 1 of one variant of pattern 'pattern' is given twice",
        ),
        (lambda x, z: es.Alternatives(1.0, x), "Alternatives wants tensors, got float"),
        (lambda x, z: es.Alternatives(), "Alternatives wants at least one tensor"),
        (
            lambda x, z: es.Alternatives(x, EsGraphBuilder("other").CreateInput(0)),
            "Alternatives of tensors of two builders",
        ),
        (
            lambda x, z: es.constrain(es.Alternatives(x + z, x - z), axis=1),
            "constrain wants the output of an operator",
        ),
    ],
)
def test_what_is_no_pattern(find, make, message):
    with pytest.raises(PatternError, match=message) as caught:
        find.pattern(make, 2)
    assert str(caught.value).startswith(f"{__file__}:") or "conftest" in str(caught.value)


def test_there_may_be_any_number_of_variants(find):
    def many(x):
        for _ in range(12):
            x = es.Optional(es.Relu, es.Optional(es.Neg, x))
        return es.Exp(x)

    text = " ".join(f"t{i + 1} = {op} (t{i})" for i, op in enumerate(["Neg", "Relu"] * 11))
    (match,) = find.matches(
        f"g (float[2] t0) => (float[2] y) {{ {text} t23 = Neg (t22) y = Exp (t23) }}", many
    )
    assert len(match.GetMatchedNodes()) == 24
    assert match.inputs[0].name == "t0"
