"""Placeholders and captured tensors by name."""

from __future__ import annotations

import pytest

from gehost import es
from gehost.errors import PassError, PatternError
from gehost.es.graph import EsGraphBuilder
from gehost.ir.types import DataType
from gehost.passes.base import PatternFusionPass
from gehost.pattern.match import PatternMatcher
from gehost.pattern.pattern import Pattern
from gehost.testing import run_pass

TEXT = """g (float[2,3] x, float[3,4] w) => (float[2,4] y)
    <float[4] bias = {1.0, 2.0, 3.0, 4.0}> { p = MatMul(x, w) y = Add(p, bias) }"""


def linear(name="product", *inputs):
    builder = EsGraphBuilder("linear")
    x, w, bias = builder.CreateInputs(*inputs or ("x", "w", "bias"))
    product = es.MatMul(x, w)
    return Pattern(builder.BuildAndReset(es.Add(product, bias))).CaptureTensor(product, name)


def one_match(find, pattern, text=TEXT):
    (match,) = PatternMatcher(pattern, find.load(text))
    return match


def test_names_and_numbers_mean_the_same_tensors(find):
    match = one_match(find, linear())
    names = ("x", "w", "bias", "product")
    assert [match[name].name for name in names] == ["x", "w", "bias", "p"]
    assert [match.get(name) for name in names[:3]] == match.inputs
    assert match["product"] is match.GetCapturedTensor(0).value
    assert match["bias"].array.tolist() == [1.0, 2.0, 3.0, 4.0]


def test_a_tensor_is_named_where_it_is_made(find):
    builder = EsGraphBuilder("linear")
    x, w, bias = builder.CreateInputs(3)
    graph = builder.BuildAndReset(es.Add(es.Name("product", es.MatMul(x, w)), bias))
    match = one_match(find, Pattern(graph))
    assert match["product"].name == "p"
    with pytest.raises(IndexError, match="the pattern captured 0"):
        match.GetCapturedTensor(0)


def test_a_constant_may_be_named(find):
    builder = EsGraphBuilder("added")
    x = builder.CreateInput(0)
    one = es.Name("shift", builder.CreateConst(0.0))
    match = one_match(find, Pattern(builder.BuildAndReset(es.Add(x, one))))
    assert match["shift"].name == "bias"


def test_what_a_match_has_not_is_absent(find):
    def either(x, z):
        return es.Exp(es.Alternatives(es.Name("relu", es.Relu(x)), es.Abs(z)))

    text = "g (float[2] x) => (float[2] a, float[2] b) { p = Relu(x) a = Exp(p) q = Abs(x) b = Exp(q) }"
    builder = EsGraphBuilder("either")
    pattern = Pattern(builder.BuildAndReset(either(*builder.CreateInputs("x", "z"))))
    first, second = PatternMatcher(pattern, find.load(text))
    assert (first["relu"].name, first.get("z"), "z" in first) == ("p", None, False)
    assert (second.get("relu"), second["z"].name, "z" in second) == (None, "x", True)
    with pytest.raises(PatternError, match=r'"relu" is not in this match; match.get\("relu"\)'):
        second["relu"]


def test_a_misspelled_name_is_an_error(find):
    match = one_match(find, linear())
    for ask in (match.get, match.__getitem__, match.__contains__):
        with pytest.raises(
            PatternError, match="no tensor named 'biass'; did you mean bias"
        ) as error:
            ask("biass")
        assert str(error.value).startswith(f"{__file__}:")


@pytest.mark.usefixtures("interpreted")  # machine code: TypeError, a name is a text
def test_a_match_has_no_positions(find):
    match = one_match(find, linear())
    with pytest.raises(PatternError, match="no tensor named 0; it has x, w, bias, product"):
        match[0]
    with pytest.raises(PatternError, match="no tensor named 0"):
        list(match)


class TwoPatternsPass(PatternFusionPass):
    """Exp(Relu(x)) and Exp(z + 1), with names that only one pattern has."""

    def Patterns(self):
        builder = EsGraphBuilder("relu")
        self.relu = es.Name("relu", es.Relu(builder.CreateInput(0, "x")))
        first = Pattern(builder.BuildAndReset(es.Exp(self.relu)))
        builder = EsGraphBuilder("plus")
        one = es.Name("one", builder.CreateConst(0.0))
        self.total = es.Add(builder.CreateInput(0, "z"), one)
        second = Pattern(builder.BuildAndReset(es.Exp(self.total))).CaptureTensor(
            self.total, "total"
        )
        # no model of opset 17 has this operator, so that this pattern is not applicable
        builder = EsGraphBuilder("newer")
        newer = es.Gelu(builder.CreateInput(0, "g"))
        return [first, second, Pattern(builder.BuildAndReset(newer))]

    def MeetRequirements(self, match):
        names = ("relu", "x", "z", "one", "total", "g")
        seen.append(
            (
                [name for name in names if name in match],
                [name for name in names if match.get(name) is None],
                match.has(self.relu),
                match.has(self.total),
            )
        )
        absent = "z" if match.has(self.relu) else "relu"
        with pytest.raises(PatternError, match=f'"{absent}" is not in this match'):
            match[absent]
        with pytest.raises(PatternError, match="no tensor named 'relux'; did you mean relu"):
            match.get("relux")
        with pytest.raises(PatternError, match="no tensor named 'gg'"):
            match.get("gg")
        return match.reject("seen: it is not replaced")

    def Replacement(self, match):
        raise NotImplementedError


seen = []


def test_a_name_of_another_pattern_of_the_pass_is_absent():
    seen.clear()
    text = """g (float[2] x) => (float[2] a, float[2] b)
        <float[2] c = {1.0, 2.0}> { p = Relu(x) a = Exp(p) q = Add(x, c) b = Exp(q) }"""
    run_pass(f'<ir_version: 10, opset_import: ["": 17]> {text}', TwoPatternsPass)
    assert seen == [
        (["relu", "x"], ["z", "one", "total", "g"], True, False),
        (["z", "one", "total"], ["relu", "x", "g"], False, True),
    ]


class SwappedPass(PatternFusionPass):
    def Patterns(self):
        return [linear()]

    def Replacement(self, match):
        builder = EsGraphBuilder("swapped")
        w, x, bias = builder.CreateInputs("w", "x", "bias")
        return builder.BuildAndReset(es.Gemm(x, w, bias))


def test_names_of_a_replacement_do_not_contradict_those_of_the_pattern():
    message = 'the replacement\'s input "w" stands for another tensor than "w" of the pattern'
    with pytest.raises(PassError, match=message):
        run_pass(f'<ir_version: 10, opset_import: ["": 17]> {TEXT}', SwappedPass)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: linear("bias"), "two tensors of pattern 'linear' are named \"bias\""),
        (lambda: linear("p", "x", "x", "w"), "two tensors of pattern 'linear' are named \"x\""),
        (lambda: EsGraphBuilder().CreateInputs(), "wants one number or names"),
        (lambda: EsGraphBuilder().CreateInputs("x", 2), "wants one number or names"),
        (lambda: EsGraphBuilder().CreateInputs("x", ""), "wants one number or names"),
        (lambda: es.Name("t", 1.0), "Name wants a name and a tensor"),
        (
            lambda: (lambda x: es.Name("t", es.Name("t", x)))(EsGraphBuilder().CreateInput(0)),
            'another tensor is named "t"',
        ),
        (
            lambda: linear().CaptureTensor(EsGraphBuilder().CreateInput(0), "other"),
            "is not one of pattern",
        ),
    ],
)
def test_names_that_cannot_be(make, message):
    with pytest.raises(PatternError, match=message) as caught:
        make()
    assert str(caught.value).startswith(f"{__file__}:")


def test_an_unread_constant_has_no_name():
    builder = EsGraphBuilder("unread")
    es.Name("c", builder.CreateConst(0.0))
    graph = builder.BuildAndReset(es.Relu(builder.CreateInput(0)))
    with pytest.raises(PatternError, match="no operator of pattern 'unread' reads constant \"c\""):
        Pattern(graph)


def test_every_tensor_has_a_producer_to_query(find):
    match = one_match(find, linear())
    kinds = {name: match[name].node.GetType() for name in ("x", "w", "bias", "product")}
    assert kinds == {"x": "Data", "w": "Data", "bias": "Const", "product": "MatMul"}
    for name, dims in {"x": [2, 3], "bias": [4], "product": [-2]}.items():
        described = match[name].node.GetOutputDesc(0)
        assert described.GetShape().GetDims() == dims
    bias = match["bias"].node
    assert (bias.GetName(), bias.GetInputsSize(), bias.GetOutputsSize()) == ("bias", 0, 1)
    assert bias.GetAttr("value").tolist() == [1.0, 2.0, 3.0, 4.0]
    assert match["x"].node.GetOutputDesc(0).GetDataType() is DataType.FLOAT
    assert [value.node.GetOutputsSize() for value in match.inputs] == [1, 1, 1]
