"""What authors meet of a match, and finding matches one after another."""

from __future__ import annotations

import pytest

from gehost import es
from gehost.errors import PatternError
from gehost.es.graph import EsGraphBuilder
from gehost.es.opset import NotApplicable
from gehost.ir.ge import NodeIo
from gehost.pattern.match import PatternMatcher, Rejection
from gehost.pattern.pattern import Pattern, PatternMatcherConfig, PatternMatcherConfigBuilder
from gehost.status import FAILED

TEXT = """g (float[2, 2] p, float[2, 2] q) => (float[2, 2] y, float[2, 2] z) <float[2, 2] w = {1, 2, 3, 4}> {
    [first] t = MatMul(p, q) [sum] y = Add(t, w) [second] s = MatMul(y, w) [total] z = Add(s, q) }"""


class Linear:
    """``Add(MatMul(a, b), c)`` with everything that can be captured."""

    def __init__(self) -> None:
        builder = EsGraphBuilder("linear")
        self.a, self.b, self.c = builder.CreateInputs(3)
        self.product = es.MatMul(self.a, self.b)
        self.total = es.Add(self.product, self.c)
        self.pattern = Pattern(builder.BuildAndReset([self.total]))


# -- matches --------------------------------------------------------------------------------------------------------


def test_matches_come_in_topological_order(find):
    linear = Linear()
    matcher = PatternMatcher(linear.pattern, find.load(TEXT))
    first, second = matcher.MatchNext(), matcher.MatchNext()
    assert [[node.name for node in match.GetMatchedNodes()] for match in (first, second)] == [
        ["first", "sum"],
        ["second", "total"],
    ]
    assert matcher.MatchNext() is None
    assert matcher.MatchNext() is None
    unsorted = TEXT.replace("[first] t = MatMul(p, q) [sum] y = Add(t, w)", "").replace(
        "z = Add(s, q)", "z = Add(s, q) [sum] y = Add(t, w) [first] t = MatMul(p, q)"
    )
    assert [
        match.outputs[0].name for match in PatternMatcher(linear.pattern, find.load(unsorted).graph)
    ] == ["y", "z"]


def test_what_a_match_shows(find):
    linear = Linear()
    match = PatternMatcher(linear.pattern, find.load(TEXT)).MatchNext()
    assert match.graph is find.model.graph
    assert [value.name for value in match.inputs] == ["p", "q", "w"]
    assert [value.name for value in match.outputs] == ["y"]
    assert match.GetMatchedNode(linear.product).name == "first"
    assert match.GetMatchedNode(linear.total.producer).name == "sum"
    assert match.GetMatchedNode(0).name == "first"
    assert match.GetMatchedNode(1).name == "sum"
    assert repr(match) == "<MatchResult linear: first, sum>"
    region = match.region()
    assert ([v.name for v in region.inputs], [n.name for n in region.nodes]) == (
        ["p", "q", "w"],
        ["first", "sum"],
    )
    again = match.ToSubgraphBoundary().region()
    assert (again.inputs, again.outputs, again.nodes) == (
        region.inputs,
        region.outputs,
        region.nodes,
    )
    for foreign in (linear.a, Linear().total, linear.a.producer):
        with pytest.raises(
            PatternError,
            match=r"test_match.py:\d+: GetMatchedNode needs an operator of the pattern",
        ):
            match.GetMatchedNode(foreign)


def test_captured_tensors(find):
    linear = Linear()
    returned = linear.pattern.CaptureTensor(linear.product).CaptureTensor(
        NodeIo(linear.c.GetProducer(), 0)
    )
    assert returned is linear.pattern
    linear.pattern.CaptureTensor(NodeIo(linear.total.GetProducer(), 0)).CaptureTensor(
        linear.product
    )
    match = PatternMatcher(linear.pattern, find.load(TEXT)).MatchNext()
    found = [match.GetCapturedTensor(index) for index in range(4)]
    assert [io.value.name for io in found] == ["t", "w", "y", "t"]
    assert found[0] == NodeIo(match.GetMatchedNode(0), 0)
    assert (found[1].node.op_type, found[1].node.name) == ("Const", "w")
    for index in (4, -1):
        with pytest.raises(IndexError, match=f"captured tensor {index}: the pattern captured 4"):
            match.GetCapturedTensor(index)
        io = NodeIo()
        assert match.GetCapturedTensor(index, io) is FAILED
        assert io == NodeIo()


def test_a_captured_placeholder_is_the_outer_tensor(find):
    linear = Linear()
    linear.pattern.CaptureTensor(linear.a)
    _, second = PatternMatcher(linear.pattern, find.load(TEXT))
    io = second.GetCapturedTensor(0)
    assert (io.node.name, io.index, io.value.name) == ("sum", 0, "y")


def test_a_captured_constant(find):
    builder = EsGraphBuilder("constant")
    x, one = builder.CreateInput(0), builder.CreateScalar(1.0)
    pattern = (
        Pattern(builder.BuildAndReset(es.Add(x, one)))
        .CaptureTensor(one)
        .CaptureTensor(NodeIo(one.GetProducer(), 0))
    )
    (match,) = PatternMatcher(pattern, find.load(TEXT))
    assert [match.GetCapturedTensor(index).value.numpy().tolist() for index in (0, 1)] == [
        [[1, 2], [3, 4]]
    ] * 2


def test_what_cannot_be_captured():
    builder = EsGraphBuilder("spare")
    x, spare = builder.CreateInput(0), builder.CreateScalar(1.0)
    relu = es.Relu(x)
    pattern = Pattern(builder.BuildAndReset(relu))
    for tensor, message in [
        (spare, "the captured tensor is not one of pattern 'spare'"),
        (Linear().total, "the captured tensor is not one of pattern"),
        (NodeIo(relu.GetProducer(), 1), "Relu has no output 1"),
        (
            NodeIo(None, 0),
            r"CaptureTensor needs an EsTensor or NodeIo\(tensor.GetProducer\(\), index\)",
        ),
    ]:
        with pytest.raises(PatternError, match=message) as caught:
            pattern.CaptureTensor(tensor)
        assert str(caught.value).startswith(f"{__file__}:")
    assert pattern.captures == []


def test_a_pattern_is_what_a_builder_built():
    with pytest.raises(
        PatternError, match="Pattern needs the result of BuildAndReset, got EsTensor"
    ):
        Pattern(EsGraphBuilder("x").CreateInput(0))
    builder = EsGraphBuilder("bare")
    bare = builder.BuildAndReset(builder.CreateInput(0))
    with pytest.raises(PatternError, match="has no operator"):
        Pattern(bare)


def test_a_rejection_is_false_and_says_why(find):
    match = PatternMatcher(Linear().pattern, find.load(TEXT)).MatchNext()
    rejection = match.reject("rank: no matrix")
    assert not rejection
    assert rejection == Rejection("rank: no matrix")
    assert rejection.reason == "rank: no matrix"


# -- the matcher ----------------------------------------------------------------------------------------------------


def test_nodes_that_go_between_two_matches_are_not_matched(find):
    model = find.load(
        "g (float[2] x) => (float[2] z) { a = Relu(x) b = Neg(a) c = Relu(b) z = Relu(c) }"
    )
    matcher = PatternMatcher(find.pattern(es.Relu), model)
    assert matcher.MatchNext().outputs[0].name == "a"
    third = model.graph.values["c"].producer
    model.graph.redirect(model.graph.values["c"], model.graph.values["b"])
    model.graph.remove_node(third)
    assert [match.outputs[0].name for match in matcher] == ["z"]


def test_matching_changes_nothing(find):
    model = find.load(TEXT)
    before = model.proto.SerializeToString(deterministic=True)
    assert len(list(PatternMatcher(Linear().pattern, model))) == 2
    assert (model.mark(), model.graph.dirty) == (0, False)
    assert model.flush().SerializeToString(deterministic=True) == before


def test_a_pattern_that_the_opset_lacks(find):
    with pytest.raises(NotApplicable, match="Gelu needs opset 20, the model has 17"):
        PatternMatcher(find.pattern(es.Gelu), find.load(TEXT))


def test_the_configuration_is_built_step_by_step():
    builder = PatternMatcherConfigBuilder()
    assert builder.Build() == PatternMatcherConfig() == PatternMatcherConfig(False, False, False)
    assert builder.EnableConstValueMatch().Build() == PatternMatcherConfig(const_value_match=True)
    assert builder.EnableIrAttrMatch().EnableCommutativeMatch().Build() == PatternMatcherConfig(
        True, True, True
    )


# -- attribute variables --------------------------------------------------------------------------------------------

PERMS = "g (float[2, 2] x) => (float y) {{ t = Transpose<perm = {first}>(x)  y = Transpose<perm = {second}>(t) }}"


def twice(first, second):
    return lambda x: es.constrain(
        es.Transpose(es.constrain(es.Transpose(x), perm=first)), perm=second
    )


@pytest.mark.parametrize(
    ("first", "second", "count"), [("[1, 0]", "[1, 0]", 1), ("[1, 0]", "[0, 1]", 0)]
)
def test_a_variable_at_two_places_wants_equal_values(find, first, second, count):
    matches = find.matches(
        PERMS.format(first=first, second=second), twice(es.Bind("p"), es.Bind("p"))
    )
    assert [match.attributes for match in matches] == [{"p": [1, 0]}] * count


def test_variables_of_two_names_hold_each_its_value(find):
    (match,) = find.matches(
        PERMS.format(first="[1, 0]", second="[0, 1]"), twice(es.Bind("p"), es.Bind("q"))
    )
    assert match.attributes == {"p": [1, 0], "q": [0, 1]}


def test_a_variable_holds_the_default_of_an_absent_attribute(find):
    (match,) = find.matches(
        "g (float[2] x) => (float y) { y = Softmax(x) }",
        lambda x: es.constrain(es.Softmax(x), axis=es.Bind("a")),
    )
    assert match.attributes == {"a": -1}
