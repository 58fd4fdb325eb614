"""What authors meet of a match, and finding matches one after another."""

from __future__ import annotations

import pytest

from gehost import es
from gehost.errors import PatternError
from gehost.es.graph import EsGraphBuilder
from gehost.ir.ge import NodeIo
from gehost.pattern.match import PatternMatcher
from gehost.pattern.pattern import Pattern, PatternMatcherConfig, PatternMatcherConfigBuilder
from gehost.refusal import Refusal, Refused
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
    actual = [match.GetCapturedTensor(index) for index in range(4)]
    assert [io.value.name for io in actual] == ["t", "w", "y", "t"]
    assert actual[0] == NodeIo(match.GetMatchedNode(0), 0)
    assert (actual[1].node.op_type, actual[1].node.name) == ("Const", "w")
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
    assert rejection == Refusal.of("rank: no matrix")
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
    with pytest.raises(Refused, match="Gelu needs opset 20, the model has 17"):
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


# -- what attributes mean that are absent, or spelled otherwise ------------------------------------------------------

IMAGES = "(float[1, 2, 8, 8] x, float[2, 2, 3, 3] w, float[2, 1, 3, 3] d) => (float[A, B, C, D] y)"


@pytest.mark.parametrize("expected", [[1, 1], (1, 1), lambda strides: list(strides) == [1, 1]])
@pytest.mark.parametrize(
    ("node", "matches"),
    [("y = Conv(x, w)", 1), ("y = Conv<strides = [1, 1]>(x, w)", 1), ("y = Conv<strides = [1, 2]>(x, w)", 0)],
)  # fmt: skip
def test_strides_left_out_are_ones(find, node, matches, expected):
    actual = find.matches(
        f"g {IMAGES} {{ {node} }}", lambda x, w: es.constrain(es.Conv(x, w), strides=expected), 2
    )
    assert len(actual) == matches


@pytest.mark.parametrize(
    ("expected", "matches"),
    [
        ({"pads": [0, 0, 0, 0]}, 1), ({"pads": [1, 1, 1, 1]}, 0), ({"dilations": [1, 1]}, 1), ({"group": 1}, 1), ({"group": 2}, 0),
        ({"kernel_shape": [3, 3]}, 1), ({"auto_pad": "NOTSET"}, 1), ({"pads": lambda pads: not any(pads)}, 1), ({"dilations": [1]}, 0),
        ({"strides": None}, 1),
    ],
)  # fmt: skip
def test_a_convolution_without_attributes_has_their_defaults(find, expected, matches):
    actual = find.matches(
        f"g {IMAGES} {{ y = Conv(x, w) }}",
        lambda x, w: es.constrain(es.Conv(x, w), **expected),
        2,
    )
    assert len(actual) == matches


def test_defaults_of_convolutions_in_one_graph_differ_by_their_weights(find):
    """What counts depends on the weights, while results for equal attributes are cached."""
    text = """g (float[N] a, float[1, 2, 8, 8] x, float[2, 2, 3, 3] w, float[2, 2, 1, 1] v) => (float[A, B, C, D] y)
        { t = Conv(x, w) u = Conv(x, v) s = Conv(x, w) m = Add(t, u) y = Add(m, s) }"""
    actual = find.matches(text, lambda x, w: es.constrain(es.Conv(x, w), kernel_shape=[3, 3]), 2)
    assert [match.outputs[0].name for match in actual] == ["t", "s"]


@pytest.mark.parametrize("node", ["y = Conv(x, w)", "y = Conv<strides = [1, 1], dilations = [1, 1], group = 1, kernel_shape = [3, 3], pads = [0, 0, 0, 0]>(x, w)"])  # fmt: skip
def test_strict_attributes_accept_written_defaults(find, node):
    text = f"g {IMAGES} {{ {node} }}"
    assert len(find.matches(text, es.Conv, 2, ir_attr_match=True)) == 1
    other = text.replace("strides = [1, 1]", "strides = [1, 2]")
    assert len(find.matches(other, es.Conv, 2, ir_attr_match=True)) == (other == text)


def test_a_reversing_transpose_needs_no_perm(find):
    text = "g (float[2, 3] x) => (float[3, 2] y) { y = Transpose(x) }"
    for expected, matches in (([1, 0], 1), ([0, 1], 0)):
        assert (
            len(find.matches(text, lambda x, p=expected: es.constrain(es.Transpose(x), perm=p)))
            == matches
        )


@pytest.mark.parametrize("opset", [16, 20])
@pytest.mark.parametrize("expected", ["linear", "bilinear", lambda mode: mode == "linear"])
@pytest.mark.parametrize("declared", [True, False])
def test_a_value_has_its_newest_spelling(find, opset, expected, declared):
    mode = f'<mode = "{"bilinear" if opset < 20 else "linear"}">' if declared else ""
    text = f"g (float[1, 2, 8, 8] x, float[1, 3, 3, 2] w) => (float[A, B, C, D] y) {{ y = GridSample{mode}(x, w) }}"
    make = lambda x, w: es.constrain(es.GridSample(x, w), mode=expected)  # noqa: E731
    assert len(find.matches(text, make, 2, opset=opset)) == 1
    other = (
        text.replace("GridSample<", "GridSample <").replace(mode, '<mode = "nearest">')
        if declared
        else text.replace("GridSample(", 'GridSample<mode = "nearest">(')
    )
    assert len(find.matches(other, make, 2, opset=opset)) == 0


@pytest.mark.parametrize(("opset", "matches"), [(10, 0), (16, 1)])
def test_an_operator_before_it_had_an_attribute(find, opset, matches):
    text = "g (float[1, 2, 8, 8] x, float[1, 4] w, int64[1] d) => (float[A, B, C, D] y) { y = RoiAlign(x, w, d) }"
    mode = "coordinate_transformation_mode"
    half = lambda x, w, d: es.constrain(es.RoiAlign(x, w, d), **{mode: lambda v: v == "half_pixel"})  # noqa: E731
    plain = lambda x, w, d: es.constrain(es.RoiAlign(x, w, d), **{mode: es.Bind("m")})  # noqa: E731
    if opset >= 16:
        assert len(find.matches(text, half, 3, opset=opset)) == matches
        assert find.matches(text, plain, 3, opset=opset)[0].attributes == {"m": "half_pixel"}


AXES = "g ({shape} x) => ({shape} y) <{shape} t> {{ t = LogSoftmax<axis = {first}>(x) y = Softmax<axis = {second}>(t) }}"


@pytest.mark.parametrize(
    ("shape", "first", "second", "matches"),
    [
        ("float[N, 4]", 1, -1, 1), ("float[N, 4]", -1, 1, 1), ("float[N, 4]", -2, 0, 1), ("float[N, 4]", 0, -1, 0), ("float[N, 4]", -1, -1, 1),
        ("float[N, 4, 2]", 1, -1, 0), ("float[N, 4, 2]", 1, -2, 1), ("float", -1, -1, 1), ("float", 1, -1, 0),
    ],
)  # fmt: skip
def test_a_variable_is_one_axis_counted_from_either_end(find, shape, first, second, matches):
    text = AXES.format(shape=shape, first=first, second=second)
    if shape == "float":  # of unknown rank
        text = (
            text.replace(" <float t>", "")
            .replace("{ t", "{ z = ge.F(x) t")
            .replace("(x) y", "(z) y")
        )

    def make(x):
        inner = es.constrain(es.LogSoftmax(x), axis=es.Bind("a"))
        return es.constrain(es.Softmax(inner), axis=es.Bind("a"))

    actual = find.matches(text, make)
    assert [match.attributes["a"] in (first, second) for match in actual] == [True] * matches


def test_axes_of_tensors_of_other_ranks_are_equal_as_written_alone(find):
    text = "g (float[2, 3, 4] x) => (float[A, B] y) {{ t = LogSoftmax<axis = {first}>(x) s = ReduceSum<keepdims = 0>(t, a) y = Softmax<axis = {second}>(s) }}".replace(
        "=> (float[A, B] y)",
        "=> (float[A, B] y) <int64[1] a = {{1}}, float[2, 3, 4] t, float[2, 4] s>",
    )

    def make(x, a):
        inner = es.constrain(es.LogSoftmax(x), axis=es.Bind("a"))
        return es.constrain(es.Softmax(es.ReduceSum(inner, a, keepdims=0)), axis=es.Bind("a"))

    for first, second, matches in ((-1, -1, 1), (1, -1, 0), (-1, 1, 0), (2, -1, 0), (1, 1, 1)):
        assert len(find.matches(text.format(first=first, second=second), make, 2)) == matches, (
            first,
            second,
        )


def test_a_variable_of_axes_is_one_set(find):
    text = """g (float[2, 3, 4] x) => (float[A, B, C] y) <int64[2] a = {{0, 2}}, int64[2] b = {b}, float[1, 3, 1] t>
        {{ t = ReduceMax<keepdims = 1>(x, a) y = ReduceMin<keepdims = 1>(t, b) }}"""

    def make(x):
        inner = es.constrain(es.ReduceMax(x), axes=es.Bind("a"))
        return es.constrain(es.ReduceMin(inner), axes=es.Bind("a"))

    for other, matches in (("{-1, 0}", 1), ("{0, 2}", 1), ("{0, 1}", 0)):
        assert len(find.matches(text.format(b=other), make, opset=18)) == matches
