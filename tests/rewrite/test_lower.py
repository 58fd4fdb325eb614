"""One spelling at every opset: the same numbers, and the same pattern finds it again."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import pytest

from gehost import es
from gehost.errors import PatternError
from gehost.es import schemas
from gehost.es.graph import EsConst, EsGraphBuilder, EsTensor
from gehost.infer.local import array_type
from gehost.ir.attributes import encode_attribute
from gehost.ir.effective import newest_spelling
from gehost.ir.model import Model
from gehost.ir.schemas import history
from gehost.ir.types import DataType, TensorType
from gehost.ops import OpDef, OpRegistry
from gehost.pattern.match import PatternMatcher
from gehost.pattern.pattern import Pattern, PatternMatcherConfig
from gehost.refusal import Refused
from gehost.rewrite.lower import LoweredNode, lower_node

ort = pytest.importorskip("onnxruntime")

X = np.random.default_rng(0).permutation(24).reshape(2, 3, 4).astype(np.float32) / 4 - 2
OPSETS = range(9, 21)
Make = Callable[..., Any]


def empty(opset: int) -> Model:
    return Model(
        onnx.parser.parse_model(f'<ir_version: 7, opset_import: ["": {opset}]> g () => () {{ }}')
    )


def lower(
    make: Make,
    opset: int,
    kind: TensorType | None = None,
    registry: OpRegistry | None = None,
    inputs: int = 1,
) -> LoweredNode:
    """One operator on placeholders of one type."""
    builder = EsGraphBuilder("made")
    result = make(*builder.CreateInputs(inputs))
    tensor = result if isinstance(result, EsTensor) else result[0]

    def type_of(actual: EsTensor) -> TensorType | None:
        return array_type(actual.producer.array) if isinstance(actual.producer, EsConst) else kind

    return lower_node(tensor.producer, empty(opset), registry or OpRegistry(), type_of)


def assemble(make: Make, opset: int, x: np.ndarray = X) -> onnx.ModelProto:
    """A model of one lowered operator, of ``x``."""
    lowered = lower(make, opset, array_type(x))
    result = make(EsGraphBuilder("again").CreateInput(0))
    count = 1 if isinstance(result, EsTensor) else len(result)
    model = empty(opset).proto
    graph = model.graph
    graph.input.append(
        onnx.helper.make_tensor_value_info(
            "x", onnx.helper.np_dtype_to_tensor_dtype(x.dtype), x.shape
        )
    )
    node = graph.node.add(op_type=lowered.op)
    for slot, operand in enumerate(lowered.inputs):
        if isinstance(operand, np.ndarray):
            graph.initializer.append(onnx.numpy_helper.from_array(operand, f"c{slot}"))
        node.input.append(
            "" if operand is None else f"c{slot}" if isinstance(operand, np.ndarray) else "x"
        )
    node.attribute.extend(
        encode_attribute(name, value) for name, value in lowered.attributes.items()
    )
    for slot in range(count):
        node.output.append(f"y{slot}")
        graph.output.add(name=f"y{slot}")
    return model


def run(model: onnx.ModelProto, x: np.ndarray = X) -> list[np.ndarray]:
    model = onnx.shape_inference.infer_shapes(model)
    onnx.checker.check_model(model)
    options = ort.SessionOptions()
    options.log_severity_level = 3
    session = ort.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    return session.run(None, {"x": x})


@pytest.mark.parametrize("opset", [11, 12, 13, 19])
def test_resize_has_empty_inputs_where_an_opset_wants_them(opset: int) -> None:
    x = X[None]
    scales, sizes = np.float32([1, 1, 2, 2]), np.int64([1, 2, 6, 8])
    for make in (
        lambda x: es.Resize(x, None, scales, mode="nearest"),
        lambda x: es.Resize(x, None, None, sizes, mode="nearest"),
    ):
        (result,) = run(assemble(make, opset, x), x)
        assert result.shape == (1, 2, 6, 8)


def matches(make: Make, model: onnx.ModelProto) -> int:
    builder = EsGraphBuilder("pattern")
    result = make(builder.CreateInput(0))
    pattern = Pattern(builder.BuildAndReset(list(result) if isinstance(result, tuple) else result))
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    return len(list(PatternMatcher(pattern, Model(copy), PatternMatcherConfig(ir_attr_match=True))))


CASES: dict[str, tuple[Make, list[np.ndarray], Make | None]] = {
    "mean": (lambda x: es.ReduceMean(x, axes=[-1], keepdims=0), [X.mean(-1)], lambda x: es.ReduceMean(x, axes=[1], keepdims=0)),
    "mean-of-all": (lambda x: es.ReduceMean(x), [X.mean(keepdims=True)], lambda x: es.ReduceMean(x, axes=[0, 1])),
    "sum": (lambda x: es.ReduceSum(x, axes=[0, -1]), [X.sum((0, 2), keepdims=True)], lambda x: es.ReduceSum(x, axes=[0])),
    "max": (lambda x: es.ReduceMax(x, axes=(1,)), [X.max(1, keepdims=True)], lambda x: es.ReduceMax(x, axes=(1,), keepdims=0)),
    "unsqueeze": (lambda x: es.Unsqueeze(x, axes=[0, -1]), [X[None, ..., None]], lambda x: es.Unsqueeze(x, axes=[0, 1])),
    "clip": (lambda x: es.Clip(x, min=-1, max=1.5), [X.clip(-1, 1.5)], lambda x: es.Clip(x, min=-1, max=1.0)),
    "clip-above": (lambda x: es.Clip(x, max=1), [np.minimum(X, 1)], lambda x: es.Clip(x, min=0, max=1)),
    "split": (lambda x: es.Split(x, num_outputs=2, axis=-1), np.split(X, 2, -1), lambda x: es.Split(x, num_outputs=2, axis=0)),
    "split-sizes": (lambda x: es.Split(x, split=[1, 3], axis=2), np.split(X, [1], 2), lambda x: es.Split(x, split=[3, 1], axis=2)),
    "pad": (
        lambda x: es.Pad(x, pads=[0, 0, 1, 0, 1, 0], constant_value=2.5),
        [np.pad(X, ((0, 0), (0, 1), (1, 0)), constant_values=2.5)],
        lambda x: es.Pad(x, pads=[0, 0, 1, 0, 1, 0]),
    ),
    "pad-zero": (
        lambda x: es.Pad(x, pads=[0, 0, 1, 0, 0, 0]), [np.pad(X, ((0, 0), (0, 0), (1, 0)))], lambda x: es.Pad(x, pads=[0, 0, 0, 0, 0, 1])
    ),
    "topk": (
        lambda x: es.TopK(x, K=2, axis=-1), [np.sort(X)[..., :-3:-1], np.argsort(X)[..., :-3:-1]], lambda x: es.TopK(x, K=3, axis=-1)
    ),
    "slice": (
        lambda x: es.Slice(x, starts=[1, 0], ends=[3, 2], axes=[1, 2]),
        [X[:, 1:3, :2]],
        lambda x: es.Slice(x, starts=[1, 0], ends=[3, 2], axes=[2, 1]),
    ),
    "softmax": (lambda x: es.Softmax(x, axis=-1), [np.exp(X) / np.exp(X).sum(-1, keepdims=True)], None),
    "reshape": (lambda x: es.Reshape(x, shape=[4, -1]), [X.reshape(4, -1)], lambda x: es.Reshape(x, shape=[-1, 4])),
    "dropout": (lambda x: es.Dropout(x, ratio=0.25), [X], lambda x: es.Dropout(x)),
    "concat": (lambda x: es.Concat(x, x, axis=-2), [np.concatenate([X, X], 1)], lambda x: es.Concat(x, x, axis=2)),
    "gather": (lambda x: es.Gather(x, [2, 0], axis=-1), [X[..., [2, 0]]], lambda x: es.Gather(x, [2, 0], axis=1)),
    "where-less": (lambda x: es.Greater(x, 0.5), [X > 0.5], None),
    "power": (lambda x: es.Pow(x, 2), [X**2], None),
}  # fmt: skip


@pytest.mark.parametrize("opset", OPSETS)
@pytest.mark.parametrize("case", CASES)
def test_one_spelling_gives_the_same_numbers_and_is_found_again(case, opset):
    make, expected, other = CASES[case]
    model = assemble(make, opset)
    actual = run(model)
    assert len(actual) == len(expected)
    for one, two in zip(actual, expected, strict=True):
        assert one.shape == two.shape
        np.testing.assert_allclose(one, two, rtol=1e-5, atol=1e-6)
    assert matches(make, model) == 1
    if other is not None:
        assert matches(other, model) == 0


@pytest.mark.parametrize(
    ("make", "opset", "attributes", "constants"),
    [
        (lambda x: es.ReduceMean(x, axes=[-1]), 10, {"axes": [2]}, []),
        (lambda x: es.ReduceMean(x, axes=[-1]), 11, {"axes": [-1]}, []),
        (lambda x: es.ReduceMean(x, axes=[-1]), 18, {}, [[-1]]),
        (lambda x: es.Unsqueeze(x, axes=[-1, 0]), 10, {"axes": [4, 0]}, []),
        (lambda x: es.TopK(x, K=3), 9, {"k": 3}, []),
        (lambda x: es.TopK(x, K=3), 10, {}, [[3]]),
        (lambda x: es.Clip(x, max=6), 10, {"max": 6.0}, []),
        (lambda x: es.Clip(x, max=6), 11, {}, [None, 6.0]),
        (lambda x: es.Clip(x, None, 6.0), 10, {"max": 6.0}, []),
        (lambda x: es.Clip(x, None, 6.0), 11, {}, [None, 6.0]),
        (lambda x: es.Clip(x, None, None), 10, {}, []),
        (lambda x: es.Clip(x, 0.5, None), 10, {"min": 0.5}, []),
        (lambda x: es.ReduceMean(x, axes=None, keepdims=None), 18, {}, []),
        (
            lambda x: es.Pad(x, pads=[1, 1], constant_value=2),
            10,
            {"pads": [1, 1], "value": 2.0},
            [],
        ),
        (lambda x: es.Pad(x, pads=np.array([1, 1]), mode="edge"), 18, {"mode": "edge"}, [[1, 1]]),
        (lambda x: es.Split(x, num_outputs=3), 17, {}, []),
        (lambda x: es.Split(x, num_outputs=3), 18, {"num_outputs": 3}, []),
        (lambda x: es.Split(x, split=[1, 2]), 18, {}, [[1, 2]]),
        (lambda x: es.Split(x, [1, 2], num_outputs=2), 18, {}, [[1, 2]]),
        (lambda x: es.Softmax(x), 12, {"axis": 2}, []),
        (lambda x: es.Softmax(x), 13, {}, []),
        (lambda x: es.DFT(x, axis=1), 17, {"axis": 1}, []),
        (lambda x: es.DFT(x, axis=1), 20, {}, [None, 1]),
        (lambda x: es.LeakyRelu(x, alpha=1), 17, {"alpha": 1.0}, []),
        (lambda x: es.Transpose(x, perm=np.array([2, 0, 1])), 17, {"perm": [2, 0, 1]}, []),
        (lambda x: es.Upsample(x, scales=(1, 2, 2)), 7, {"scales": [1.0, 2.0, 2.0]}, []),
        (lambda x: es.ReduceMean(x, noop_with_empty_axes=0), 17, {}, []),
    ],
)
def test_what_becomes_of_a_parameter(make, opset, attributes, constants):
    lowered = lower(make, opset, array_type(X))
    assert lowered.attributes == attributes
    assert [type(value) for value in lowered.attributes.values()] == [
        type(value) for value in attributes.values()
    ]
    assert [
        None if operand is None else operand.tolist() for operand in lowered.inputs[1:]
    ] == constants


@pytest.mark.parametrize("axis", [2, -1, np.int64(-1), 2.0, np.array(-1)])
def test_the_axis_of_a_softmax_that_flattens_may_be_any_number(axis):
    assert lower(lambda x: es.Softmax(x, axis=axis), 12, array_type(X)).attributes == {"axis": 2}


@pytest.mark.parametrize(
    ("make", "opset", "kind", "reason"),
    [
        (es.Gelu, 19, X, "not applicable: Gelu needs opset 20, the model has 19"),
        (
            lambda x: es.ReduceMean(x, noop_with_empty_axes=1),
            17,
            X,
            "not applicable: ReduceMean of opset 17 has no parameter",
        ),
        (lambda x: es.Clip(x, x), 10, X, "not applicable: Clip of opset 10 has no input 1"),
        (
            es.op("ai.onnx.ml::Scaler"),
            17,
            X,
            "not applicable: ai.onnx.ml::Scaler needs a domain that the model does not import",
        ),
        (lambda x: es.Softmax(x, axis=1), 12, X, "softmax: Softmax below opset 13 flattens"),
        (es.Softmax, 12, None, "softmax: "),
        (es.Softmax, 12, np.float32(1), "softmax: "),
        (
            lambda x: es.ReduceMean(x, axes=[-1]),
            10,
            None,
            "axes: ReduceMean of opset 10 accepts no negative axes, and the rank is unknown",
        ),
        (
            lambda x: x + 1.0,
            17,
            None,
            "literal: the dtype of the partner of a literal of Add is unknown .before kAfterInferShape",
        ),
        (
            lambda x: x + 0.5,
            17,
            np.int32(1),
            r"literal: 0.5 of Add at .*test_lower.py:\d+ is no int32",
        ),
        (lambda x: x + 300, 17, np.uint8(1), "literal: 300 of Add"),
        (lambda x: x * 1e9, 17, np.float16(1), "literal: 1000000000.0 of Mul"),
        (lambda x: x * 2, 17, np.array("text", object), "literal: 2 of Mul at .* is no string"),
        (lambda x: es.op("acme::F")(x, 2), 17, None, "literal: the dtype of the partner"),
        (lambda x: es.Pow(x, 2), 17, None, "literal: the dtype of the partner"),
        (
            lambda x: es.CastLike(1.0, x),
            14,
            None,
            "dtype: CastLike below opset 15 needs a known dtype",
        ),
        (lambda x: es.Clip(x, min=0.5), 11, np.int64(1), "literal: 0.5 of Clip"),
        (
            lambda x: es.Max(x, 0.0),
            7,
            X,
            r"broadcast: Max of opset 7 takes inputs of one shape, got float\[2,3,4\], float\[\]; "
            r"it broadcasts from opset 8 on \(--opset\)",
        ),
        (lambda x: es.Sum(x, x), 7, None, "broadcast: Sum of opset 7 .* got unknown, unknown"),
        (lambda x: es.Mul(x, 2.0), 6, X, "broadcast: Mul of opset 6"),
    ],
)
def test_what_the_opset_cannot_say_is_refused(make, opset, kind, reason):
    with pytest.raises(Refused, match=reason):
        lower(make, opset, None if kind is None else array_type(np.asarray(kind)))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (es.AnyOf("Relu", "Neg"), r"Relu\|Neg: only a pattern can accept several operators"),
        (es.Relux, "neither ONNX nor a vendor file has an operator Relux"),
        (lambda x: es.Cast(x), "Cast of opset 17 needs to"),
        (lambda x: es.Unsqueeze(x), "Unsqueeze of opset 17 needs axes"),
        (lambda x: es.Where(x, None, x), "Where of opset 17 needs X"),
        (lambda x: es.TopK(x, K=[2], num_outputs=1), "TopK of opset 17 needs 2 outputs"),
        (lambda x: es.Softmax(x, axis="last"), "Softmax: axis must be int, got 'last'"),
        (lambda x: es.Softmax(x, axis=0.5), "Softmax: axis must be int, got 0.5"),
        (lambda x: es.Softmax(x, axis=[1, 2]), "Softmax: axis must be int"),
        (lambda x: es.Transpose(x, perm=[[1], [2, 3]]), "Transpose: perm must be ints"),
        (lambda x: es.LeakyRelu(x, alpha="much"), "LeakyRelu: alpha must be float, got 'much'"),
    ],
)
def test_what_no_opset_can_say_is_an_error_with_its_line(make, message):
    with pytest.raises(PatternError, match=message) as caught:
        lower(make, 17, array_type(X))
    assert str(caught.value).startswith(f"{__file__}:")


@pytest.mark.parametrize(
    ("make", "dtype", "expected"),
    [
        (lambda x: x * 2, np.float16, np.float16),
        (lambda x: 2.0 * x, ml_dtypes.bfloat16, ml_dtypes.bfloat16),
        (lambda x: x + 1.0, np.int64, np.int64),
        (lambda x: es.Pow(x, 0.5), np.float32, np.float32),
        (lambda x: es.Pow(x, 2), np.float64, np.float64),
        (lambda x: es.Pow(x, 0.5), np.int32, np.float32),
        (lambda x: es.Where(es.Greater(x, x), x, 0), np.float16, np.float16),
        (lambda x: es.Gather(x, 1), np.float32, np.int64),
        (lambda x: es.Gather(x, [0, 1]), np.int32, np.int64),
        (lambda x: es.Expand(x, [2, 2]), np.float16, np.int64),
        (lambda x: es.Dropout(x, ratio=0.5), np.float64, np.float64),
        (lambda x: es.Dropout(x, 0.5, True), np.float16, np.float16),
        (lambda x: es.Equal(x, 1), np.bool_, np.bool_),
        (lambda x: es.op("acme::F")(x, 3), np.int8, np.int8),
        (lambda x: es.QuantizeLinear(x, 0.5), np.float32, np.float32),
        (lambda x: es.Max(1.0, x), np.float64, np.float64),
    ],
)
def test_a_number_takes_the_dtype_of_the_tensor_beside_it(make, dtype, expected):
    lowered = lower(
        make, 17, TensorType(DataType(onnx.helper.np_dtype_to_tensor_dtype(np.dtype(dtype))), (2,))
    )
    (first, *_) = [operand for operand in lowered.inputs if isinstance(operand, np.ndarray)]
    assert first.dtype == np.dtype(expected)


@pytest.mark.parametrize(("number", "dtype"), [(0.5, np.int64), (300, np.uint8), (1e9, np.float16)])
def test_a_number_that_the_dtype_cannot_hold_is_refused(number, dtype):
    kind = TensorType(DataType(onnx.helper.np_dtype_to_tensor_dtype(np.dtype(dtype))), (2,))
    with pytest.raises(Refused, match=r"literal: .* of Add at .* is no "):
        lower(lambda x: x + number, 17, kind)


@pytest.mark.parametrize(
    ("make", "opset", "shape"),
    [
        (lambda x: es.Max(x, 0.0), 8, (2, "n")),
        (lambda x: es.Max(x, 0.0), 7, ()),
        (lambda x: es.Max(x, x), 7, (2, "n")),
        (lambda x: es.Max(x), 7, (2, None)),
        (lambda x: es.Add(x, x), 6, (2, "n")),
        (lambda x: es.Add(x, 1.0, broadcast=1), 6, (2, "n")),
    ],
)
def test_inputs_of_one_shape_need_no_broadcast(make, opset, shape):
    lower(make, opset, TensorType(DataType.FLOAT, shape))


def test_an_open_size_is_not_equal_to_itself():
    with pytest.raises(Refused, match="broadcast: Max of opset 7"):
        lower(lambda x: es.Max(x, x), 7, TensorType(DataType.FLOAT, (2, None)))


def test_axes_from_the_front_need_no_rank():
    assert lower(lambda x: es.ReduceMean(x, axes=[0]), 9).attributes == {"axes": [0]}
    assert lower(lambda x: es.Concat(x, x, axis=0), 9).attributes == {"axis": 0}
    assert lower(lambda x: es.ArgMax(x, axis=-1), 11).attributes == {"axis": -1}


def test_a_root_is_taken_of_floats():
    np.testing.assert_allclose(
        run(assemble(lambda x: es.Pow(x, 0.5), 17, np.abs(X)), np.abs(X))[0],
        np.abs(X) ** 0.5,
        rtol=1e-6,
    )


def test_the_dtype_comes_from_a_tensor_of_the_same_type():
    builder = EsGraphBuilder("made")
    c, y = builder.CreateInputs(2)
    kinds = {0: array_type(np.zeros(2, np.bool_)), 1: array_type(np.zeros(2, np.float16))}
    node = es.Where(c, 1.5, y).producer
    lowered = lower_node(node, empty(17), OpRegistry(), lambda tensor: kinds[tensor.producer.index])
    assert (lowered.inputs[0], lowered.inputs[1].dtype, lowered.inputs[2]) == (c, np.float16, y)


def test_cast_like_below_15_casts_to_what_is_known():
    like = array_type(np.zeros(2, np.float16))
    lowered = lower(lambda x: es.CastLike(2.0, x), 14, like)
    assert (lowered.op, lowered.attributes, lowered.inputs[0].tolist()) == ("Cast", {"to": 10}, 2.0)
    assert lower(lambda x: es.CastLike(2.0, x), 15, like).op == "CastLike"


def test_a_registered_operator_has_its_name_and_float_attributes():
    registry = OpRegistry()
    registry.add(
        OpDef(
            "ge::GEMM",
            1,
            ("a",),
            1,
            ("y",),
            {"alpha": 1.0, "mode": "x", "count": 2},
            None,
            None,
            frozenset(),
            "here",
        )
    )
    lowered = lower(lambda x: es.GEMM(x, alpha=2, count=3, mode=None), 17, array_type(X), registry)
    assert (lowered.op, lowered.attributes) == ("ge::GEMM", {"alpha": 2.0, "count": 3})
    assert [type(value) for value in lowered.attributes.values()] == [float, int]


def test_empty_lists_are_of_the_kind_that_the_operator_has():
    lowered = lower(lambda x: es.Upsample(x, scales=[]), 7, array_type(X))
    assert (
        encode_attribute("scales", lowered.attributes["scales"]).type == onnx.AttributeProto.FLOATS
    )
    lowered = lower(lambda x: es.ReduceMean(x, axes=[]), 17, array_type(X))
    assert encode_attribute("axes", lowered.attributes["axes"]).type == onnx.AttributeProto.INTS


# defaults and values that opsets have in common, or not


def signatures():
    """Every operator at every opset from 7 on with another form."""
    for op in sorted(schemas.operator_names()):
        for opset in sorted({max(7, item.since_version) for item in history("", op)}):
            known_signature = schemas.signature("", op, opset)
            if known_signature is not None:
                yield op, opset, known_signature


def test_defaults_that_differ_from_the_newest_are_these_alone():
    """What the lowering writes or refuses: another default, or a new attribute that changed the operator."""
    differ = {
        (op, opset, name)
        for op, opset, declared in signatures()
        for name, default in declared.attributes.items()
        if default is not None
        and name not in declared.old_names.values()
        and newest_spelling(op, name, default) != schemas.newest_default("", op, name)
    }
    softmax = {
        (op, opset, "axis") for op in ("Softmax", "LogSoftmax", "Hardmax") for opset in (7, 11)
    }
    assert differ == {*softmax, ("DFT", 17, "axis")}


@pytest.mark.parametrize("opset", [17, 18, 19, 20])
def test_dft_is_along_the_axis_of_the_newest_default(opset):
    x = np.random.default_rng(0).normal(size=(2, 3, 8, 2)).astype(np.float32)
    actual = ort.InferenceSession(
        assemble(es.DFT, opset, x).SerializeToString(), providers=["CPUExecutionProvider"]
    ).run(None, {"x": x})[0]
    expected = np.fft.fft(x[..., 0] + 1j * x[..., 1], axis=2)
    np.testing.assert_allclose(actual, np.stack([expected.real, expected.imag], -1), 1e-4, 1e-4)
    pattern = EsGraphBuilder("p")
    result = PatternMatcher(
        Pattern(pattern.BuildAndReset([es.constrain(es.DFT(pattern.CreateInput(0)), axis=-2)])),
        Model(assemble(es.DFT, opset, x)),
    )
    assert len(list(result)) == 1


@pytest.mark.parametrize(
    ("make", "opset", "attributes"),
    [
        (lambda x: es.GridSample(x, x, mode="linear"), 16, {"mode": "bilinear"}),
        (lambda x: es.GridSample(x, x, mode="cubic"), 19, {"mode": "bicubic"}),
        (lambda x: es.GridSample(x, x, mode="bilinear"), 20, {"mode": "linear"}),
        (lambda x: es.GridSample(x, x, mode="nearest"), 16, {"mode": "nearest"}),
        (lambda x: es.Pad(x, [0] * 6, mode="wrap"), 19, {"mode": "wrap"}),
        (lambda x: es.ScatterND(x, x, x, reduction="max"), 18, {"reduction": "max"}),
        (lambda x: es.ScatterND(x, x, x, reduction="none"), 13, {}),
        (lambda x: es.RoiAlign(x, x, x, coordinate_transformation_mode="output_half_pixel"), 10, {}),
        (lambda x: es.AveragePool(x, kernel_shape=[2], dilations=[1]), 11, {"kernel_shape": [2]}),
    ],
)  # fmt: skip
def test_values_have_the_spelling_of_the_opset(make, opset, attributes):
    assert lower(make, opset, array_type(X)).attributes == attributes


@pytest.mark.parametrize(
    ("make", "opset", "reason"),
    [
        (lambda x: es.Pad(x, [0] * 6, mode="wrap"), 18, "Pad of opset 18 has no mode 'wrap'"),
        (lambda x: es.Resize(x, None, x, coordinate_transformation_mode="half_pixel_symmetric"), 18,
         "Resize of opset 18 has no coordinate_transformation_mode 'half_pixel_symmetric'"),
        (lambda x: es.Resize(x, None, x, coordinate_transformation_mode="tf_half_pixel_for_nn"), 13,
         "Resize of opset 13 has no coordinate_transformation_mode 'tf_half_pixel_for_nn'"),
        (lambda x: es.Resize(x, None, x, mode="cubic"), 10, "Resize of opset 10 has no input 2"),
        (lambda x: es.Resize(x, None, x), 10, "Resize of opset 10 has no input 2"),
        (lambda x: es.ScatterElements(x, x, x, reduction="min"), 17, "ScatterElements of opset 17 has no reduction 'min'"),
        (lambda x: es.ScatterND(x, x, x, reduction="max"), 16, "ScatterND of opset 16 has no reduction 'max'"),
        (lambda x: es.ScatterND(x, x, x, reduction="add"), 15, "ScatterND of opset 15 has no parameter reduction"),
        (lambda x: es.RoiAlign(x, x, x), 15, "RoiAlign of opset 15 has no coordinate_transformation_mode, and does what 'output_half_pixel' means"),
        (lambda x: es.RoiAlign(x, x, x, coordinate_transformation_mode="half_pixel"), 10, "RoiAlign of opset 10 has no parameter coordinate_transformation_mode"),
        (lambda x: es.AveragePool(x, kernel_shape=[2], dilations=[2]), 11, "AveragePool of opset 11 has no parameter dilations"),
        (lambda x: es.GroupNormalization(x, x, x, num_groups=1), 18, "opset 18 has no GroupNormalization"),
        (lambda x: es.Cast(x, to=1, round_mode="down"), 23, "Cast of opset 23 has no parameter round_mode"),
        (lambda x: es.SpaceToDepth(x, blocksize=2, mode="CRD"), 27, "SpaceToDepth of opset 27 has no parameter mode"),
    ],
)  # fmt: skip
def test_values_that_the_opset_lacks_are_refused(make, opset, reason):
    if opset == 27 and "mode" not in schemas.operator("", "SpaceToDepth").attributes:
        pytest.skip("this onnx has no SpaceToDepth of opset 28")
    with pytest.raises(Refused, match="not applicable: ") as raised:
        lower(make, opset, array_type(X))
    assert str(raised.value) == f"not applicable: {reason}"


@pytest.mark.parametrize(
    ("literal", "dtype"), [([2], np.int64), ([2.5], np.float32), ([True], np.bool_)]
)
def test_a_literal_without_a_tensor_beside_it(literal, dtype):
    lowered = lower(lambda x: x.graph.add_node(("Identity",), [literal], {})[0], 17)
    (operand,) = lowered.inputs
    assert isinstance(operand, np.ndarray)
    assert (operand.dtype, operand.tolist()) == (np.dtype(dtype), literal)
