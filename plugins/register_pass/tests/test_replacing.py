"""What a replacement takes from the match: attributes, sizes, values of constants, and what Python functions make of them."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest

from gehost.testing import assert_equal_numbers, parse, random_weights
from gehost_register_pass import MappedPattern, ParamAttr, PassDesc, RegisterPass, native, op

TRANSPOSES = """<ir_version: 8, opset_import: ["" : 17]>
main (float[5, 2, 3] x) => (float[3, 2, 5] y) {
    t = Transpose<perm = [1, 0, 2]>(x)
    y = Transpose<perm = [2, 0, 1]>(t)
}"""


def attributes(node: onnx.NodeProto) -> dict[str, Any]:
    return {entry.name: onnx.helper.get_attribute_value(entry) for entry in node.attribute}


@native
def compose(first: list[int], second: list[int]) -> list[int]:
    return [first[axis] for axis in second]


def two_transposes(x):
    return op.Transpose(op.Transpose(x))


def test_a_python_function_computes_an_attribute(run) -> None:
    calls: list[int] = []

    def counted(first: list[int], second: list[int]) -> list[int]:
        calls.append(1)
        return compose(first, second)

    def replace(x):
        first, second = (MappedPattern("Transpose", index, "perm") for index in (0, 1))
        return op.Transpose(x, perm=native(counted)(first, second))

    before = parse(TRANSPOSES)
    after, record = run(before, (two_transposes, replace))
    assert record.replaced == len(calls) == 1
    assert [attributes(node) for node in after.graph.node] == [{"perm": [2, 1, 0]}]
    assert_equal_numbers(before, after)


def test_a_native_function_is_itself_outside_a_trace() -> None:
    assert compose([1, 0, 2], [2, 0, 1]) == [2, 1, 0]


def test_a_native_function_is_itself_where_no_match_is_asked_and_sees_lists_as_lists(run) -> None:
    """Within a trace too; what it is given of a match are Python's lists, also those that the author wrote."""
    received: list[Any] = []

    def spy(*arguments: Any) -> bool:
        received.extend(arguments)
        return True

    def pattern(x):
        transpose = op.Transpose(op.Transpose(x, perm=compose([1, 0, 2], second=[0, 1, 2])))
        native(spy)([0, 1], transpose.Attr("perm"), [transpose.Attr("perm")[0], [2]]).Holds()
        return transpose

    assert run(TRANSPOSES, (pattern, lambda x: op.Transpose(x, perm=[2, 1, 0])))[1].replaced == 1
    assert received == [[0, 1], [2, 0, 1], [2, [2]]]


@pytest.mark.parametrize(
    ("source", "perm"),
    [
        ({}, [1, 0, 2]),
        ({"index": 1}, [2, 0, 1]),
        ({"op": "Transpose", "index": 1, "name": "perm"}, [2, 0, 1]),
    ],
)
@pytest.mark.parametrize("before", [True, False])
def test_an_attribute_is_mapped_from_the_pattern(
    run, source: dict[str, Any], perm: list[int], before: bool
) -> None:
    def replace(x):
        transpose = PassDesc.OP.Transpose
        if before:
            transpose.Attr("perm").MappedPattern(**source)
        transpose(data=x)
        if not before:
            transpose.Attr("perm").MappedPattern(**source)
        return op.Identity(transpose)

    after, record = run(
        TRANSPOSES.replace("[3, 2, 5]", "[2, 2, 2]").replace("[5, 2, 3]", "[2, 2, 2]"),
        (two_transposes, replace),
    )
    assert record.replaced == 1
    assert attributes(after.graph.node[0])["perm"] == perm


def test_an_element_of_an_attribute_is_mapped_to_another_name(run) -> None:
    def replace(x):
        softmax = PassDesc.OP.Softmax(input=x)
        softmax.Attr("axis").MappedPattern(op="Transpose", index=0, name="perm", element_index=2)
        return softmax

    text = TRANSPOSES.replace("t = Transpose<perm = [1, 0, 2]>(x)", "t = Relu(x)").replace(
        "[3, 2, 5] y", "[5, 2, 3] y"
    )
    text = text.replace("perm = [2, 0, 1]", "perm = [0, 1, 2]")
    after, record = run(text, (lambda x: op.Transpose(op.Relu(x)), replace))
    assert record.replaced == 1
    assert attributes(after.graph.node[0]) == {"axis": 2}


def test_sizes_and_constants_of_the_match_become_attributes_and_operands(run) -> None:
    text = """<ir_version: 8, opset_import: ["" : 17]> main (float[4, 6] x) => (float[4, 6] y) {
        s = Mul(x, scale)
        y = Relu(s)
    }"""

    def replace(x, scale):
        flat = op.Reshape(x, [1, x.shape[0] * x.shape[1]])
        scaled = op.LeakyRelu(flat, alpha=scale.Attr("value")[0] / 4)
        return op.Reshape(op.Max(op.Mul(scaled, scale.Attr("value")[0]), 0.0), x.shape)

    before = parse(text, {"scale": np.array([0.5], np.float32)})
    after, record = run(
        before, (lambda x, scale: op.Relu(op.Mul(x, scale)), replace), scale=ParamAttr()
    )
    assert record.replaced == 1
    assert attributes(after.graph.node[1]) == {"alpha": 0.125}
    assert_equal_numbers(before, after)


def test_what_a_replacement_needs_and_nobody_knows_refuses_the_match(run) -> None:
    text = '<ir_version: 8, opset_import: ["" : 17]> main (float[N, 6] x) => (float[N, 6] y) { t = Abs(x) y = Relu(t) }'
    pair = (lambda x: op.Relu(op.Abs(x)), lambda x: op.LeakyRelu(op.Abs(x), alpha=x.shape[0] / 8))
    _, record = run(text, pair)
    assert (record.replaced, dict(record.rejected)) == (0, {"unknown": 1})


@pytest.mark.parametrize(
    "replace",
    [
        lambda x: op.Reshape(op.Abs(x), x.shape),
        lambda x: op.Reshape(op.Abs(x), [x.shape[0], 6]),
        lambda x: op.Transpose(op.Abs(x), perm=[[x.shape[0], 0][0], 1]),
        lambda x: op.Add(op.Abs(x), nothing(1, x.shape[1])),
        lambda x: op.LeakyRelu(op.Abs(x), alpha=nothing(1, x.shape[1])),
    ],
)
@pytest.mark.parametrize("is_known", [True, False])
def test_a_size_or_a_result_that_is_nothing_refuses_the_match(
    run, replace: Any, is_known: bool
) -> None:
    text = '<ir_version: 8, opset_import: ["" : 17]> main (float[N, 6] x) => (float[N, 6] y) { t = Abs(x) y = Relu(t) }'
    before = parse(text)
    if not is_known:
        before.graph.input[0].type.tensor_type.shape.dim[0].Clear()
    _, record = run(before, (lambda x: op.Relu(op.Abs(x)), replace))
    assert (record.replaced, dict(record.rejected)) == (0, {"unknown": 1})


@native
def nothing(*sizes: int) -> None:
    return None


def test_the_dtype_of_an_argument_becomes_an_attribute(run) -> None:
    text = '<ir_version: 8, opset_import: ["" : 17]> main (float16[2] x) => (float16[2] y) { t = Abs(x) y = Relu(t) }'
    before = parse(text)
    after, record = run(
        before,
        (lambda x: op.Relu(op.Abs(x)), lambda x: op.Cast(op.Abs(op.Cast(x, to=1)), to=x.dtype)),
    )
    assert record.replaced == 1
    assert attributes(after.graph.node[-1]) == {"to": 10}
    assert_equal_numbers(before, after)


def test_an_attribute_that_the_node_lacks_and_that_has_no_default_refuses_the_match(run) -> None:
    def replace(x):
        return op.Softmax(op.Identity(x), axis=MappedPattern("Dropout", 0, "seed"))

    text = '<ir_version: 8, opset_import: ["" : 17]> main (float[2, 3] x) => (float[2, 3] y) { t = Relu(x) y = Dropout(t) }'
    _, record = run(text, (lambda x: op.Dropout(op.Relu(x)), replace))
    assert (record.replaced, dict(record.rejected)) == (0, {"unknown": 1})


def test_a_default_that_the_specification_describes_counts(run) -> None:
    """A Transpose without perm reverses the axes."""

    def replace(x):
        return op.Transpose(op.Identity(x), perm=MappedPattern("Transpose", 0, "perm"))

    text = '<ir_version: 8, opset_import: ["" : 17]> main (float[2, 3] x) => (float[3, 2] y) { t = Relu(x) y = Transpose(t) }'
    after, record = run(text, (lambda x: op.Transpose(op.Relu(x)), replace))
    assert record.replaced == 1
    assert attributes(after.graph.node[-1])["perm"] == [1, 0]


def test_a_default_counts_as_the_attribute(run) -> None:
    """ReduceMean keeps its axes unless it says otherwise."""

    def replace(x):
        return op.ReduceSum(x, axes=[1], keepdims=MappedPattern("ReduceMean", 0, "keepdims"))

    text = '<ir_version: 8, opset_import: ["" : 17]> main (float[2, 3] x) => (float[2, 1] y) { t = Relu(x) y = ReduceMean<axes = [1]>(t) }'
    after, record = run(text, (lambda x: op.ReduceMean(op.Relu(x)), replace))
    assert record.replaced == 1
    assert attributes(after.graph.node[0])["keepdims"] == 1


def test_an_attribute_that_the_pattern_names_is_what_it_names(run) -> None:
    """The node says 1, which is the last axis, as the pattern wants it."""

    def replace(x):
        return op.LogSoftmax(op.Abs(x), axis=MappedPattern("Softmax", 0, "axis"))

    text = '<ir_version: 8, opset_import: ["" : 17]> main (float[2, 3] x) => (float[2, 3] y) { t = Abs(x) y = Softmax<axis = 1>(t) }'
    after, record = run(text, (lambda x: op.Softmax(op.Abs(x), axis=-1), replace))
    assert record.replaced == 1
    assert attributes(after.graph.node[-1]) == {"axis": -1}


def test_a_replacement_of_other_shape_is_refused_by_the_core(run) -> None:
    _, record = run(TRANSPOSES, (two_transposes, lambda x: x))
    assert dict(record.rejected) == {"shape": 1}


@pytest.mark.parametrize(("proven", "rejected"), [(False, {"unproven": 1}), (True, {})])
def test_sizes_that_the_host_cannot_compare_need_the_authors_word(
    run, proven: bool, rejected: dict[str, int]
) -> None:
    @RegisterPass(shape_proven=proven)
    def rule():
        return lambda a, shape: op.Reshape(a, shape), lambda a, shape: op.Neg(op.Neg(a))

    text = """<ir_version: 8, opset_import: ["" : 17]> main (float[A] a, int64[1] shape) => (float[Y] y) {
        y = Reshape(a, shape)
    }"""
    assert dict(run(text, rule)[1].rejected) == rejected


def test_operators_of_other_domains(run) -> None:
    text = """<ir_version: 8, opset_import: ["" : 17, "acme" : 1]> main (float[2] x) => (float[2] y) {
        g = acme.Gate<power = 2>(x, w)
        y = Neg(g)
    }"""

    def replace(x, w):
        return op("acme::NegGate")(x, w, power=MappedPattern("acme::Gate", 0, "power"))

    model = parse(text, random_weights({"w": [2]}))
    after, record = run(model, (lambda x, w: op.Neg(op("acme::Gate")(x, w)), replace))
    assert record.replaced == 1, record
    assert attributes(after.graph.node[0]) == {"power": 2}


def test_a_pass_runs_in_the_stage_and_opsets_that_it_names() -> None:
    from gehost import CustomPassStage

    @RegisterPass(
        stage=CustomPassStage.kAfterBuiltinFusionPass, name="Other", min_opset=9, max_opset=12
    )
    def rule():
        return two_transposes, lambda x: x

    spec = rule.spec()
    assert (spec.name, spec.stage, spec.min_opset, spec.max_opset) == (
        "Other",
        CustomPassStage.kAfterBuiltinFusionPass,
        9,
        12,
    )

    @RegisterPass
    def plain():
        return two_transposes, lambda x: x

    assert (plain.spec().name, plain.spec().stage) == ("plain", CustomPassStage.kAfterInferShape)


def test_an_output_of_a_custom_operator_needs_no_number_of_outputs(run) -> None:
    text = """<ir_version: 8, opset_import: ["" : 17, "acme" : 1]>
main (float[2] x) => (float[2] y) { low, high = acme.Halves(x) y = Neg(high) }"""

    def pattern(x):
        return op.Neg(op("acme::Halves")(x).Output(1))

    def replace(x):
        halves = op("acme::Halves")(x)
        return op.Sub(halves.Output(0), halves.Output(1))

    after, record = run(text, (pattern, replace))
    assert record.replaced == 1
    assert [len(node.output) for node in after.graph.node] == [2, 1]
