"""Custom operators become model-local functions that stock ONNX Runtime runs."""

from __future__ import annotations

import re

import numpy as np
import onnx
import pytest
from onnx.reference import ReferenceEvaluator

from gehost import es, ops
from gehost.errors import GehostError, PatternError, VendorError
from gehost.es.graph import EsConst, EsTensor
from gehost.infer import Inferrer
from gehost.ir import tensors
from gehost.ir.model import Model
from gehost.ir.region import Region
from gehost.ir.types import DataType, TensorType
from gehost.location import SourceLocation
from gehost.ops import OpRegistry
from gehost.refusal import Refused
from gehost.rewrite.functions import FunctionCache, add_function, function_of_region, op_with_body
from gehost.rewrite.shape_proof import NodeState
from gehost.verify import make_feeds

LINEAR = "g (float[2, 3] x) => (float[2, 4] y, float[2, 4] z) { t = MatMul(x, w) y = Add(t, b) s = MatMul(x, v) z = Add(s, b) }"
WEIGHTS = {"w": (3, 4), "v": (3, 4), "b": (4,)}


def registry(body=None, name: str = "ge::GEMM", outputs=("y",), **options) -> OpRegistry:
    """A registry of one operator, and of one that doubles."""
    namespace = {
        "ops": ops,
        "body": body,
        "name": name,
        "outputs": outputs,
        "options": options,
        "es": es,
    }
    exec("found = ops.register(name, outputs=outputs, **options)", namespace)
    if body is not None:
        exec("found(body)", namespace)
    result = OpRegistry()
    result.add_marked(namespace)
    return result


def gemm_body(a, b, c, *, alpha=1.0, beta=1.0):
    """alpha · a · b + beta · c."""
    return es.MatMul(a, b) * alpha + c * beta


def matmul_add(a, b, c):
    return es.Add(es.MatMul(a, b), c)


def functions(model: onnx.ModelProto) -> dict[str, list[str]]:
    return {function.name: [node.op_type for node in function.node] for function in model.functions}


# -- registered bodies ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("opset", [9, 13, 17, 20])
def test_a_body_runs_in_onnx_runtime_and_equals_the_original(rewriting, opset):
    work = rewriting(LINEAR, opset, ir=8, **WEIGHTS).replace(
        matmul_add, lambda a, b, c: es.GEMM(a, b, c), 3, registry=registry(gemm_body)
    )
    assert work.ops == ["ge::GEMM", "ge::GEMM"]
    result = work.assert_equal()
    (function,) = result.functions
    assert (function.domain, function.name, list(function.input), list(function.output)) == (
        "ge",
        "GEMM",
        ["a", "b", "c"],
        ["y"],
    )
    assert function.doc_string == "alpha · a · b + beta · c."
    assert {entry.domain: entry.version for entry in function.opset_import} == {"": opset}
    assert all("gehost.op" not in node.metadata for node in work.model.graph.nodes)


def test_nodes_of_a_body_have_names_of_their_own(rewriting):
    """Before 1.22 ONNX Runtime splits two unnamed Slices of each call into nodes of one name."""

    def body(a, b, c):
        product = es.MatMul(a, b)
        left, right = (es.Slice(product, [at], [at + 2], [1]) for at in (0, 2))
        return es.Concat(left, right, axis=1) + c

    work = rewriting(LINEAR, 17, ir=8, **WEIGHTS).replace(
        matmul_add, lambda a, b, c: es.GEMM(a, b, c), 3, registry=registry(body)
    )
    (function,) = work.assert_equal().functions
    names = [node.name for node in function.node if node.op_type != "Constant"]
    assert all(names)
    assert len(set(names)) == len(names)


def declared(function: onnx.FunctionProto) -> dict[str, object]:
    """The attributes of a function with their defaults; None for one without."""
    types = {item.name: onnx.helper.get_attribute_value(item) for item in function.attribute_proto}
    return {**dict.fromkeys(function.attribute), **types}


def assert_reference_runs(before: onnx.ModelProto, after: onnx.ModelProto) -> None:
    feeds = make_feeds(before)
    for expected, actual in zip(
        ReferenceEvaluator(before).run(None, feeds),
        ReferenceEvaluator(after).run(None, feeds),
        strict=True,
    ):
        np.testing.assert_allclose(actual, expected, rtol=1e-4, atol=1e-5)


def many(a, b, c, *, need, flag=True, sizes=(1, 2), text="none", none=None, alpha=1.0):
    """Of every kind of attribute."""
    del need, flag, sizes, text, none
    return es.MatMul(a, b) * alpha + c


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ({"need": 3}, {"need": None, "flag": 1, "sizes": [1, 2], "text": b"none", "alpha": 1.0}),
        ({"need": 3, "none": 2.5, "text": "t"}, {"none": 2.5, "text": b"t"}),
        ({"need": 3, "alpha": 1.0, "sizes": [4]}, {"sizes": [4], "alpha": 1.0}),
    ],
)
@pytest.mark.parametrize("ir", [8, 10])
def test_a_function_declares_what_a_call_may_leave_out(rewriting, value, expected, ir):
    """With the value that the body was made for, as only calls with it have this body."""
    work = rewriting(LINEAR, ir=ir, **WEIGHTS).replace(
        matmul_add, lambda a, b, c: es.GEMM(a, b, c, **value), 3, registry=registry(many)
    )
    result = work.assert_equal()
    (function,) = result.functions
    actual = declared(function)
    assert {name: actual[name] for name in expected} == expected
    assert ("none" in actual) is ("none" in value)
    onnx.checker.check_model(result)
    assert_reference_runs(work.before, result)


def test_a_function_has_the_inputs_that_its_calls_give(rewriting):
    def body(a, b, c=None, d=None):
        product = es.MatMul(a, b)
        return product if c is None else product + c

    operators = registry(body)
    work = rewriting(LINEAR.replace("z = Add(s, b)", "z = Neg(s)"), **WEIGHTS)
    work.replace(matmul_add, lambda a, b, c: es.GEMM(a, b, c), 3, registry=operators)
    work.replace(lambda a, b: es.MatMul(a, b), lambda a, b: es.GEMM(a, b), 2, registry=operators)
    result = work.assert_equal()
    assert sorted(len(function.input) for function in result.functions) == [2, 3]
    assert_reference_runs(work.before, result)


def test_a_function_stands_behind_those_that_it_calls(rewriting):
    operators = registry(lambda x: es.Abs(x), "ge::Inner", outputs=("o",))
    outer = registry(lambda a, b, c: es.op("ge::Middle")(es.MatMul(a, b) + c))
    middle = registry(lambda x: es.op("ge::Inner")(x), "ge::Middle", outputs=("o",))
    for item in (*outer, *middle):
        operators.add(item)
    work = rewriting(LINEAR.replace("y = Add(t, b)", "u = Add(t, b) y = Abs(u)"), **WEIGHTS)
    work.replace(
        lambda a, b, c: es.Abs(matmul_add(a, b, c)),
        lambda a, b, c: es.GEMM(a, b, c),
        3,
        registry=operators,
    )
    result = work.assert_equal()
    assert [function.name for function in result.functions] == ["Inner", "Middle", "GEMM"]
    assert_reference_runs(work.before, result)


def test_another_body_gets_another_name(rewriting):
    operators = registry(gemm_body)
    text = "g (float[2, 3] x) => (float[2, 4] y, float[2, 4] z) { t = MatMul(x, w) y = Add(t, b) s = MatMul(x, v) u = Mul(s, two) z = Add(u, b) }"
    work = rewriting(text, **WEIGHTS, two=np.float32(2.0))
    work.replace(
        lambda a, b, c: es.MatMul(a, b) * 2.0 + c,
        lambda a, b, c: es.GEMM(a, b, c, alpha=2),
        3,
        registry=operators,
    )
    work.replace(matmul_add, es.GEMM, 3, registry=operators)
    plain, doubled = (
        work.model.graph.nodes_of("ge::GEMM"),
        [op for op in work.ops if op != "ge::GEMM"],
    )
    assert len(plain) == 1
    assert "gehost.op" not in plain[0].metadata
    assert re.fullmatch("ge::GEMM__[0-9a-f]{8}", doubled[0])
    assert work.model.graph.nodes_of(doubled[0])[0].metadata["gehost.op"] == "ge::GEMM"
    result = work.assert_equal()
    assert sorted(functions(result)) == ["GEMM", doubled[0].removeprefix("ge::")]
    assert all(not function.overload for function in result.functions)


def test_another_body_gets_another_name_also_after_the_model_was_written(rewriting):
    result = registry(gemm_body)
    work = rewriting(LINEAR.replace("z = Add(s, b)", "z = Sub(s, b)"), **WEIGHTS)
    work.replace(matmul_add, es.GEMM, 3, registry=result)
    assert len(work.model.flush().functions) == 1
    work.replace(
        lambda a, b, c: es.Sub(es.MatMul(a, b), c),
        lambda a, b, c: es.GEMM(a, b, c, beta=-1.0),
        3,
        registry=result,
    )
    assert work.ops[0] == "ge::GEMM"
    assert work.ops[1].startswith("ge::GEMM__")
    work.assert_equal()


def test_equal_bodies_are_one(rewriting):
    result = registry(gemm_body)
    work = rewriting(LINEAR, **WEIGHTS)
    work.replace(
        matmul_add, lambda a, b, c: es.GEMM(a, b, c, alpha=1, beta=1.0), 3, registry=result
    )
    assert work.ops == ["ge::GEMM", "ge::GEMM"]
    work.model.flush()
    again = rewriting(work.model.proto)
    again.replace(
        lambda a, b, c: es.GEMM(a, b, c), lambda a, b, c: es.GEMM(b, a, c), 3, registry=result
    )
    assert again.refused != [], "the shapes do not fit the other way round"
    assert len(again.finish().functions) == 1


def test_a_body_that_came_with_the_model_keeps_its_name(rewriting):
    proto = onnx.parser.parse_model(
        '<ir_version: 10, opset_import: ["": 17, "ge": 1]> g (float[2] x) => (float[2] y, float[2] z) { a = ge.F(x) y = Neg(a) z = Relu(x) }'
        '<domain: "ge", opset_import: ["": 17]> F (p) => (q) { q = Mul(p, p) }'
    )
    work = rewriting(proto).replace(es.Relu, es.op("ge::F"))
    assert work.ops == ["ge::F", "Neg", "ge::F"], (
        "without a body of our own it is the model's operator"
    )
    assert len(work.model.flush().functions) == 1
    copy = onnx.ModelProto()
    copy.CopyFrom(work.before)

    def body(p):
        return es.Max(p, 0.0)

    own = rewriting(copy).replace(es.Relu, es.op("ge::F"), registry=registry(body, "ge::F", ("q",)))
    assert own.ops[2].startswith("ge::F__")
    own.assert_equal()


def test_optional_inputs_and_literals_that_only_types_tell(rewriting):
    def body(x, scale=None, bias=None):
        scaled = x if scale is None else x * scale
        return scaled + 1.5 if bias is None else scaled + bias

    operators = registry(body, "ge::Scale")
    text = "g (float16[4] x, float16[4] v) => (float16[4] y, float16[4] z) { a = Mul(x, v) y = Add(a, k) z = Add(x, v) }"
    work = rewriting(text, k=np.float16(1.5))
    work.replace(lambda x, s: x * s + 1.5, es.op("ge::Scale"), 2, registry=operators)
    work.replace(es.Add, lambda x, b: es.op("ge::Scale")(x, None, b), 2, registry=operators)
    first, second = work.model.graph.nodes
    assert [
        [None if value is None else value.name for value in node.inputs] for node in (first, second)
    ] == [
        ["x", "v"],
        ["x", None, "v"],
    ]
    assert first.op != second.op
    result = work.assert_equal()
    constant = next(node for node in result.functions[0].node if node.op_type == "Constant")
    assert constant.attribute[0].t.data_type == onnx.TensorProto.FLOAT16


def test_bodies_that_call_each_other(rewriting):
    def outer(x, *, times=2):
        for _ in range(times):
            x = es.op("ge::Inner")(x, by=2.0)
        return [x, es.op("ge::Inner")(x)]

    def inner(x, *, by=1.0):
        return x * by

    operators = registry(outer, "ge::Outer", ("a", "b"))
    for definition in registry(inner, "ge::Inner"):
        operators.add(definition)
    text = "g (float[4] x) => (float[4] y, float[4] z) { y = Mul(x, four) z = Mul(x, four) }"
    work = rewriting(text, four=np.float32(4))
    work.replace(
        lambda x: [x * 4.0, x * 4.0],
        lambda x: es.op("ge::Outer")(x, num_outputs=2),
        registry=operators,
    )
    result = work.assert_equal()
    assert len(result.functions) == 3
    doubled = next(function for function in result.functions if function.name.startswith("Inner__"))
    outer_function = next(function for function in result.functions if function.name == "Outer")
    calls = [node for node in outer_function.node if node.op_type == doubled.name]
    assert [entry.value for node in calls for entry in node.metadata_props] == ["ge::Inner"]
    assert {entry.domain for entry in outer_function.opset_import} == {"", "ge"}


def test_a_body_is_written_once_for_equal_calls_as_long_as_the_model_has_it(rewriting):
    called = []

    def outer(x, *, times=1.0):
        called.append(times)
        return es.op("ge::Inner")(x, by=2.0) * times

    result = registry(outer, "ge::Outer")
    for definition in registry(lambda x, *, by=1.0: x * by, "ge::Inner"):
        result.add(definition)
    model = rewriting("g (float[4] x) => (float[4] y) { y = Relu(x) }").model
    inferrer, x = Inferrer(model, result), TensorType(DataType.FLOAT, (4,))
    cache = FunctionCache(model)

    def name_of(op, operand=x, **attributes):
        return op_with_body(op, [operand], attributes, model, result, inferrer, cache=cache)

    mark = model.mark()
    assert [
        name_of("ge::Outer"),
        name_of("ge::Outer"),
        name_of("ge::Outer", TensorType(DataType.FLOAT, (5,))),
    ] == ["ge::Outer"] * 3
    assert name_of("ge::Outer", times=3.0) == name_of("ge::Outer", times=3.0) != "ge::Outer"
    assert called == [1.0, 1.0, 3.0]
    model.undo(mark)
    assert name_of("ge::Inner", by=5.0) == "ge::Inner"
    (call,) = [node for node in model.function(name_of("ge::Outer")).node if node.domain == "ge"]
    inner = model.function(f"ge::{call.op_type}")
    (factor,) = [
        tensors.to_numpy(node.attribute[0].t, None)
        for node in inner.node
        if node.op_type == "Constant"
    ]
    assert factor == 2.0, "the name of what it calls was given to another meanwhile"


@pytest.mark.parametrize(
    ("one", "other"),
    [(1e-50, 0.0), (0.1, float(np.float32(0.1))), (1e300, float("inf")), (True, 1), ("a", b"a")],
)
def test_calls_whose_attributes_are_encoded_alike_have_bodies_of_their_own(rewriting, one, other):
    called = []

    def body(x, *, by=1.0):
        called.append(by)
        return x * (by if isinstance(by, float) else float(type(by) is type(one)))

    result, x = registry(body, "ge::Scale"), TensorType(DataType.DOUBLE, (4,))
    model = rewriting("g (double[4] x) => (double[4] y) { y = Relu(x) }").model
    inferrer, cache = Inferrer(model, result), FunctionCache(model)
    names = [
        op_with_body("ge::Scale", [x], {"by": by}, model, result, inferrer, cache=cache)
        for by in (one, other, one, other)
    ]
    assert (names[:2] == names[2:], len(set(names)), called) == (True, 2, [one, other])


def test_a_body_that_came_with_the_model_needs_its_domain_imported_after_an_undo_too(rewriting):
    result, x = registry(lambda x: x * 2.0, "ge::Twice"), TensorType(DataType.FLOAT, (4,))
    text = "g (float[4] x) => (float[4] y) { y = Relu(x) }"
    first = rewriting(text).model
    op_with_body("ge::Twice", [x], {}, first, result, Inferrer(first, result))
    first.proto.functions.append(first.function("ge::Twice"))
    del first.proto.opset_import[1:]
    model = Model(first.proto)
    inferrer, mark = Inferrer(model, result), model.mark()
    for _ in range(2):
        assert op_with_body("ge::Twice", [x], {}, model, result, inferrer) == "ge::Twice"
        assert model.opset("ge") == 1
        model.undo(mark)
        assert model.opset("ge") is None


def test_a_body_may_hand_on_inputs_and_constants(rewriting):
    def body(x, z):
        return [
            z,
            EsTensor(EsConst(x.producer.draft, np.float32([1, 2]), SourceLocation("", 0))),
            x + 0.0,
        ]

    text = "g (float[2] x, float[2] z) => (float[2] a, float[2] b, float[2] c) { a = Identity(z) k = Constant<value_floats = [1.0, 2.0]>() b = Identity(k) c = Abs(x) }"
    result = registry(body, "ge::Three", ("p", "q", "r"))
    work = rewriting(text)
    work.replace(
        lambda x, z: [es.Identity(z), es.Abs(x)],
        lambda x, z: (lambda o: [o[0], o[2]])(es.op("ge::Three")(x, z, num_outputs=3)),
        2,
        registry=result,
    )
    assert work.ops.count("ge::Three") == 1
    work.finish()
    assert functions(work.model.proto)["Three"] == [
        "Constant",
        "Add",
        "Identity",
        "Constant",
        "Identity",
        "Identity",
    ]


@pytest.mark.parametrize(
    ("body", "call", "error", "message"),
    [
        (
            gemm_body,
            lambda a, b, c: es.GEMM(a, b, c, gamma=1),
            VendorError,
            'ge::GEMM has no attribute "gamma"; it has alpha, beta',
        ),
        (gemm_body, lambda a, b, c: es.GEMM(a, b), VendorError, "ge::GEMM takes 3 inputs, got 2"),
        (
            gemm_body,
            lambda a, b, c: es.GEMM(a, b, c, c),
            VendorError,
            "ge::GEMM takes 3 inputs, got 4",
        ),
        (gemm_body, lambda a, b, c: es.GEMM(a, None, c), VendorError, "ge::GEMM needs input 'b'"),
        (lambda a, b, c, *, need: a, es.GEMM, VendorError, "ge::GEMM needs attribute 'need'"),
        (
            lambda a, b, c: 1 / 0,
            es.GEMM,
            VendorError,
            "the body of ge::GEMM failed: ZeroDivisionError: division by zero",
        ),
        (
            lambda a, b, c: None,
            es.GEMM,
            VendorError,
            "the body of ge::GEMM must return its output tensors, got None",
        ),
        (
            lambda a, b, c: [a, b],
            es.GEMM,
            VendorError,
            "the body of ge::GEMM returns 2 outputs, declared is y",
        ),
        (
            lambda a, b, c: es.GEMM(a, b, c),
            es.GEMM,
            VendorError,
            "ge::GEMM calls itself in its body",
        ),
        (
            lambda a, b, c: es.MatMul(a, b, c),
            es.GEMM,
            PatternError,
            "MatMul takes at most 2 inputs",
        ),
    ],
)
def test_a_wrong_body_is_an_error_with_its_line(rewriting, describe, body, call, error, message):
    work = rewriting(LINEAR, **WEIGHTS)
    before = describe(work.model)
    with pytest.raises(error, match=re.escape(message)) as caught:
        work.replace(matmul_add, call, 3, registry=registry(body))
    assert re.match(r"\S+:\d+: ", str(caught.value))
    assert describe(work.model) == before
    assert (work.model.function("ge::GEMM"), isinstance(caught.value, GehostError)) == (None, True)


def test_a_body_that_the_opset_cannot_express_is_refused(rewriting):
    work = rewriting(LINEAR, **WEIGHTS).replace(
        matmul_add, es.GEMM, 3, registry=registry(lambda a, b, c: es.Gelu(gemm_body(a, b, c)))
    )
    assert set(work.refused) == {"not applicable: Gelu needs opset 20, the model has 17"}
    work = rewriting(LINEAR, **WEIGHTS).replace(
        matmul_add, es.GEMM, 3, registry=registry(lambda a, b, c: es.MatMul(b, a) + c)
    )
    assert {reason.partition(":")[0] for reason in work.refused} == {"types"}


def test_types_come_from_the_shape_function_else_from_the_body(rewriting):
    def shape(types, attributes):
        a, b, _ = types
        assert attributes == {"alpha": 1.0, "beta": 1.0}
        return [TensorType(a.dtype, (a.shape[0], b.shape[1]))]

    for result in (registry(gemm_body, shape=shape), registry(gemm_body)):
        work = rewriting(LINEAR, **WEIGHTS).replace(matmul_add, es.GEMM, 3, registry=result)
        assert len(work.made) == 2
    wrong = registry(gemm_body, shape=lambda types, attributes: [TensorType(DataType.FLOAT, (7,))])
    work = rewriting(LINEAR, **WEIGHTS).replace(matmul_add, es.GEMM, 3, registry=wrong)
    assert [reason.partition(":")[0] for reason in work.refused] == ["rank", "rank"]


# -- the match as the body ------------------------------------------------------------------------------------------


def test_the_match_becomes_the_body_when_none_is_given(rewriting):
    text = "g (float[2, 3] x) => (float[2, 4] y) { t = MatMul(x, w) s = Add(t, b) u = Mul(s, two) y = Relu(u) }"
    work = rewriting(text, **WEIGHTS, two=np.float32(2.0))

    def find(a, b, c):
        return es.Relu(matmul_add(a, b, c) * 2.0)

    work.replace(find, lambda a, b, c: es.op("ge::Fused")(b, a, c, alpha=0.5, mode="x"), 3)
    assert work.ops == ["ge::Fused"]
    result = work.assert_equal()
    (function,) = result.functions
    assert [node.op_type for node in function.node] == ["MatMul", "Add", "Constant", "Mul", "Relu"]
    assert list(function.attribute) == ["alpha", "mode"]
    assert {entry.domain: entry.version for entry in result.opset_import}["ge"] == 1
    assert next(work.model.graph.nodes).attrs["alpha"] == 0.5


def test_matches_that_differ_become_bodies_that_differ(rewriting):
    text = "g (float[4] x) => (float[4] y, float[4] z, float[4] u) { y = LeakyRelu<alpha = 0.5>(x) z = LeakyRelu<alpha = 0.25>(x) u = LeakyRelu<alpha = 0.5>(x) }"
    work = rewriting(text).replace(es.LeakyRelu, es.op("acme::Act"))
    first, second, third = work.ops
    assert (first, third) == ("acme::Act", "acme::Act")
    assert second.startswith("acme::Act__")
    work.assert_equal()
    again = rewriting(text.replace("z = LeakyRelu<alpha = 0.25>", "z = Neg"))
    again.replace(es.LeakyRelu, es.op("acme::Act"))
    again.model.flush()
    again.replace(es.Neg, es.op("acme::Act"))
    assert again.ops[1].startswith("acme::Act__")
    again.assert_equal()


def test_absent_inputs_and_outputs_in_any_order(rewriting):
    text = "g (float[4] x, float[4] v) => (float[4] y, float[4] z) { y = Relu(x) z = Mul(x, v) }"
    work = rewriting(text)

    def put(x, v):
        result = es.op("acme::Two")(x, None, v, num_outputs=2)
        return [result[1], result[0]]

    work.replace(lambda x, v: [es.Relu(x), es.Mul(x, v)], put, 2)
    assert work.ops == ["acme::Two"]
    (node,) = work.model.graph.nodes
    assert [value.name for value in node.outputs] == ["z", "y"]
    (function,) = work.model.flush().functions
    assert list(function.input) == ["input_0", "input_1", "input_2"]
    assert [list(node.output) for node in function.node] == [["output_1"], ["output_0"]]
    work.assert_equal()


def test_an_operator_that_the_model_has_needs_no_body(rewriting):
    work = rewriting(
        "g (float[4] x) => (float[4] y, float[4] z) { y = com.microsoft.FastGelu(x) z = Relu(x) }"
    )
    work.replace(es.Relu, es.op("com.microsoft::FastGelu"))
    assert work.ops == ["com.microsoft::FastGelu", "com.microsoft::FastGelu"]
    assert len(work.model.flush().functions) == 0


@pytest.mark.parametrize(
    ("text", "find", "put", "reason"),
    [
        ("y = Relu(x)", es.Relu, lambda x: es.Neg(es.op("acme::F")(x)), "acme::F has none, and the replacement is more than this node"),
        ("y = Add(x, v)", es.Add, lambda x, v: es.op("acme::F")(x), 'the match reads "v", which the new node does not take'),
        ("y = Add(x, large)", lambda x, v: es.Add(x, v), lambda x, v: es.op("acme::F")(x), 'constant "large" is too large'),
        ("y = Relu(x) z = Neg(x)", lambda x, v: [es.Relu(x), es.Neg(v)], lambda x, v: [es.op("acme::F")(x, v), v], "its outputs are not those of the match"),
        ("y = Relu(x)", es.Relu, lambda x: es.op("acme::F")(x, num_outputs=2)[0], "its outputs are not those of the match"),
    ],
)  # fmt: skip
def test_when_the_match_cannot_be_a_body(rewriting, text, find, put, reason):
    outputs = "float[1030] y, float[1030] z" if "z =" in text else "float[1030] y"
    work = rewriting(f"g (float[1030] x, float[1030] v) => ({outputs}) {{ {text} }}", large=(1030,))
    work.replace(find, put, 1 if find is es.Relu else 2)
    assert work.made == []
    assert len(work.refused) == 1
    assert work.refused[0].startswith("needs a function body: ")
    assert reason in work.refused[0]
    assert work.model.function("acme::F") is None


@pytest.mark.parametrize(("size", "fits"), [(1024, True), (1025, False)])
def test_four_kibibytes_of_constants_become_part_of_a_body(rewriting, size, fits):
    work = rewriting(f"g (float[{size}] x) => (float[{size}] y) {{ y = Add(x, w) }}", w=(size,))
    work.replace(es.Add, lambda x, w: es.op("acme::F")(x), 2)
    assert (len(work.made), len(work.refused)) == (fits, not fits)
    work.assert_equal()


@pytest.mark.parametrize(("opset", "refused"), [(8, ["not applicable"]), (9, [])])
def test_where_constants_are_floats_only_a_body_has_no_integer(rewriting, opset, refused):
    work = rewriting(
        "g (float[2, 3] x) => (float[3, 2] y) <int64[2] s = {3, 2}> { t = Neg(x) y = Reshape(t, s) }",
        opset,
        ir=8,
    )
    work.replace(lambda x: es.Reshape(-x, [3, 2]), es.op("acme::F"))
    assert [reason.partition(":")[0] for reason in work.refused] == refused
    work.assert_equal()


def test_bodies_and_imports_of_a_refused_rewrite_are_gone(rewriting):
    work = rewriting("g (float[4] x) => (float[4] y) { y = Relu(x) }")
    mark = work.model.mark()
    work.replace(es.Relu, es.op("acme::F"))
    assert work.model.function("acme::F") is not None
    work.model.undo(mark)
    assert (work.model.function("acme::F"), work.model.opset("acme")) == (None, None)
    work.replace(es.Relu, lambda x: es.op("acme::F")(x, alpha=2.0), name="Q")
    assert work.model.graph.nodes_of("acme::F")[0].attrs["alpha"] == 2.0, (
        "the first body leaves no claim to the name"
    )


# -- pieces ---------------------------------------------------------------------------------------------------------


def test_a_function_is_offered_under_a_free_name(rewriting):
    model = rewriting("g (float[4] x) => (float[4] y) { y = Relu(x) }").model

    def function(*nodes):
        result = onnx.FunctionProto(input=["p"], output=["q"])
        for node in nodes:
            result.node.add(op_type=node, input=["p"], output=["q"])
        return result

    assert add_function("acme::F", function("Relu"), model, 2) == "acme::F"
    assert add_function("acme::F", function("Relu"), model) == "acme::F"
    other = add_function("acme::F", function("Neg"), model)
    assert re.fullmatch("acme::F__[0-9a-f]{8}", other)
    assert add_function("acme::F", function("Neg"), model) == other
    assert (model.function(other).name, model.opset("acme")) == (other.removeprefix("acme::"), 2)


def test_an_operator_without_body_has_none(rewriting):
    model = rewriting("g (float[4] x) => (float[4] y) { y = Relu(x) }").model
    result = registry(None, inputs=["a"])
    assert op_with_body("ge::GEMM", [None], {}, model, result, Inferrer(model, result)) is None
    assert op_with_body("ge::Other", [None], {}, model, result, Inferrer(model, result)) is None


def test_a_control_flow_node_is_no_body(rewriting):
    text = "g (float[2] x, bool c) => (float[2] y) { y = If(c) <then_branch = t () => (float[2] p) { p = Neg(x) }, else_branch = e () => (float[2] x) { }> }"
    graph = rewriting(text).model.graph
    (node,) = graph.nodes
    with pytest.raises(Refused, match="needs a function body: y holds nested graphs"):
        function_of_region(
            Region(graph, [graph.values["c"]], [graph.values["y"]], [node]),
            [NodeState(node)],
            [graph.values["c"]],
        )
