"""RegisterPass's published spellings."""

from __future__ import annotations

import onnx
import pytest

from gehost import PatternError
from gehost_register_pass import PassDesc, RegisterPass, op

SUM = """<ir_version: 8, opset_import: ["" : 17]>
g (float[2] x, float[2] y, float[2] z) => (float[2] s) { t = Add(x, y) s = Add(t, z) }"""


def pattern(x, y, z):
    return op.Add(op.Add(x, y), z)


def by_name(x, y, z):
    return PassDesc.OP.Sum(X=[x, y, z])


def by_position(x, y, z):
    return PassDesc.OP.Sum(x, y, z)


def test_one_tensor_by_name_for_an_input_that_takes_several(run, ops):
    @RegisterPass
    def one():
        return lambda x: op.Neg(op.Neg(x)), lambda x: PassDesc.OP.Sum(X=x)

    text = SUM.replace("t = Add(x, y) s = Add(t, z)", "t = Neg(x) s = Neg(t)")
    assert ops(run(text, one)[0]) == ["Sum"]


def generated():
    yield pattern, by_name
    yield [pattern, by_position]


@pytest.mark.parametrize(
    ("returned", "pairs"),
    [
        ([pattern, by_name], 1),
        ((pattern, by_position), 1),
        ([(pattern, by_name), (pattern, by_position)], 2),
        (((pattern, by_name), (pattern, by_position)), 2),
        ([[pattern, by_name]], 1),
        (generated, 2),
    ],
)
def test_a_pair_or_any_iterable_of_pairs(run, ops, returned, pairs):
    @RegisterPass
    def sums():
        return returned() if returned is generated else returned

    assert len(sums.rule.pairs) == pairs
    assert ops(run(SUM, sums)[0]) == ["Sum"]


@pytest.mark.parametrize("returned", [[], [pattern], [(pattern,)], "ab", 3, [pattern] * 3])
def test_what_holds_no_pair_is_refused(returned):
    @RegisterPass
    def sums():
        return returned

    with pytest.raises(PatternError, match=r"must return \(pattern, replace\), or an iterable"):
        sums.rule


def test_a_list_of_tensors_is_for_a_variadic_input():
    @RegisterPass
    def wrong():
        return lambda x, y: op.Relu(X=[x, y]), lambda x, y: x

    with pytest.raises(PatternError, match="Relu has no input that takes several tensors"):
        wrong.rule

    @RegisterPass
    def twice():
        return lambda x, y: op.Sum(x, X=[x, y]), lambda x, y: x

    with pytest.raises(PatternError, match="by position and as X; give them once"):
        twice.rule


TOPK = """<ir_version: 8, opset_import: ["" : 17]>
g (float[4] x) => (float[2] v, int64[2] i) <int64[1] k = {2}> {
    n = Neg(x) m = Neg(n) v, i = TopK(m, k) }"""


def test_an_operator_of_several_outputs_is_not_returned_whole(run, ops):
    @RegisterPass
    def whole():
        return lambda x, k: op.TopK(X=op.Neg(op.Neg(x)), K=k), lambda x, k: op.TopK(X=x, K=k)

    with pytest.raises(
        PatternError,
        match=r"pattern returns the whole of TopK, which has 2 outputs \(Values, Indices\); return "
        r'some: .Output\("Values"\), or all of them: .Outputs\(\)',
    ):
        whole.rule

    @RegisterPass
    def chosen():
        def pattern(x, k):
            top = PassDesc.OP.TopK(X=op.Neg(op.Neg(x)), K=k)
            return [top.Output("Values"), top.Output("Indices")]

        return pattern, lambda x, k: PassDesc.OP.TopK(X=x, K=k).Outputs()

    assert ops(run(TOPK, chosen)[0]) == ["TopK"]


CONCAT = """<ir_version: 8, opset_import: ["" : 17]>
g (float[2,3] x, float[2,3] y) => (float[4,3] s) {
    a = Relu(x) b = Relu(y) s = Concat <axis = 0> (a, b) }"""


def test_mapped_pattern_of_an_operator_and_of_an_argument(run, ops):
    @RegisterPass
    def mapped():
        def replace(x, y):
            joined = op.Concat(x, y)
            joined.Attr("axis").MappedPattern(op="Concat", index=0)
            return op.Relu(joined)

        return lambda x, y: op.Concat(op.Relu(x), op.Relu(y)), replace

    assert ops(run(CONCAT, mapped)[0]) == ["Concat", "Relu"]

    @RegisterPass
    def from_argument():
        def replace(x):
            flat = op.Flatten(op.Relu(x))
            flat.Attr("axis").MappedPattern(var="x", name="shape", element_index=0)
            return flat

        return lambda x: op.Relu(op.Flatten(x, axis=2)), replace

    text = """<ir_version: 8, opset_import: ["" : 17]>
    g (float[2,3,4] x) => (float[6,4] s) { f = Flatten <axis = 2> (x) s = Relu(f) }"""
    model, _ = run(text, from_argument)
    (flatten,) = [node for node in model.graph.node if node.op_type == "Flatten"]
    assert onnx.helper.get_node_attr_value(flatten, "axis") == 2


def test_both_var_and_op_is_a_value_error():
    @RegisterPass
    def both():
        def replace(x):
            result = op.Relu(x)
            with pytest.raises(ValueError, match='op="Relu" or var="x", and not both'):
                result.Attr("axis").MappedPattern(op="Relu", var="x")
            with pytest.raises(PatternError, match='no argument "q"; its arguments are x'):
                result.Attr("axis").MappedPattern(var="q", name="shape")
            return result

        return lambda x: op.Relu(op.Relu(x)), replace

    assert both.rule


def test_printing_shows_the_operator_its_inputs_and_attributes(capsys):
    @RegisterPass
    def printed():
        def pattern(x, y):
            total = PassDesc.OP.LeakyRelu(op.Add(A=x, B=y), alpha=0.5)
            print(total, total.Output(0), x, op.TopK)
            return total

        return pattern, lambda x, y: op.Add(x, y)

    assert printed.rule
    text = "LeakyRelu(Add(A=x, B=y), alpha=0.5)"
    assert capsys.readouterr().out == f"{text} {text} x TopK\n"


def test_the_function_can_still_be_called():
    @RegisterPass(name="other")
    def sums():
        return pattern, by_name

    assert sums() == (pattern, by_name)
