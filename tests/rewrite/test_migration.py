"""The operators whose parameters moved from attributes to inputs: one pattern and one replacement at every opset that has them.

The models are written here by hand, from the operators' change logs: an attribute below the opset that moved it, an input from there on.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
import pytest

from gehost import EsGraphBuilder, Pattern, PatternFusionPass, PatternMatcherConfig, es
from gehost.es import schemas
from gehost.ir.graph import split_op
from gehost.testing import run_pass

ort = pytest.importorskip("onnxruntime")

X = (np.random.default_rng(0).permutation(24).reshape(2, 3, 4).astype(np.float32) + 1) / 8
OPSETS = range(7, 25)
Call = Callable[..., Any]


@dataclass(frozen=True)
class Case:
    """One operator.

    Attributes:
        call: what an author writes, at no opset.
        other: the same with another value, which must not be found.
        wanted: what NumPy says of ``x``.
        moved: for each parameter that moved its value, the slot, the first opset that has it as an input, and its attribute's name.
        fixed: the attributes that stayed.
        opsets: where the operator exists.
    """

    call: Call
    other: Call
    wanted: list[np.ndarray]
    moved: dict[str, tuple[Any, int, int, str]]
    fixed: dict[str, Any] = field(default_factory=dict)
    opsets: range = OPSETS
    x: np.ndarray = field(default_factory=lambda: X)


def reduce(op: str, expected: Callable[..., np.ndarray], since: int = 18) -> Case:
    function = es.op(op)
    return Case(
        lambda x: function(x, axes=[0, 2], keepdims=0),
        lambda x: function(x, axes=[0, 1], keepdims=0),
        [np.asarray(expected(X, axis=(0, 2)), np.float32)],
        {"axes": ([0, 2], 1, since, "axes")},
        {"keepdims": 0},
    )


FIXED_PAD = [0, 0, 1, 0, 1, 0]
CASES: dict[str, Case] = {
    "Clip": Case(
        lambda x: es.Clip(x, min=0.5, max=2.0),
        lambda x: es.Clip(x, min=0.5, max=2.5),
        [X.clip(0.5, 2.0)],
        {"min": (0.5, 1, 11, "min"), "max": (2.0, 2, 11, "max")},
    ),
    "DFT": Case(
        lambda x: es.DFT(x, axis=1),
        lambda x: es.DFT(x, axis=2),
        [(lambda f: np.stack([f.real, f.imag], -1).astype(np.float32))(np.fft.fft(X, axis=1))],
        {"axis": (1, 2, 20, "axis")},
        opsets=range(17, 25),
        x=X[..., None],
    ),
    "Dropout": Case(lambda x: es.Dropout(x, ratio=0.25), lambda x: es.Dropout(x, ratio=0.5), [X], {"ratio": (0.25, 1, 12, "ratio")}),
    "Pad": Case(
        lambda x: es.Pad(x, pads=FIXED_PAD, constant_value=2.5),
        lambda x: es.Pad(x, pads=FIXED_PAD, constant_value=1.5),
        [np.pad(X, ((0, 0), (0, 1), (1, 0)), constant_values=2.5)],
        {"pads": (FIXED_PAD, 1, 11, "pads"), "constant_value": (2.5, 2, 11, "value")},
    ),
    "ReduceL1": reduce("ReduceL1", lambda x, axis: np.abs(x).sum(axis)),
    "ReduceL2": reduce("ReduceL2", lambda x, axis: np.sqrt((x * x).sum(axis))),
    "ReduceLogSum": reduce("ReduceLogSum", lambda x, axis: np.log(x.sum(axis))),
    "ReduceLogSumExp": reduce("ReduceLogSumExp", lambda x, axis: np.log(np.exp(x).sum(axis))),
    "ReduceMax": reduce("ReduceMax", np.max),
    "ReduceMean": reduce("ReduceMean", np.mean),
    "ReduceMin": reduce("ReduceMin", np.min),
    "ReduceProd": reduce("ReduceProd", np.prod),
    "ReduceSum": reduce("ReduceSum", np.sum, 13),
    "ReduceSumSquare": reduce("ReduceSumSquare", lambda x, axis: (x * x).sum(axis)),
    "Reshape": Case(
        lambda x: es.Reshape(x, shape=[4, -1]),
        lambda x: es.Reshape(x, shape=[-1, 4]),
        [X.reshape(4, 6)],
        {"shape": ([4, -1], 1, 5, "shape")},
    ),
    "Slice": Case(
        lambda x: es.Slice(x, starts=[1, 0], ends=[3, 2], axes=[1, 2]),
        lambda x: es.Slice(x, starts=[1, 1], ends=[3, 2], axes=[1, 2]),
        [X[:, 1:3, :2]],
        {"starts": ([1, 0], 1, 10, "starts"), "ends": ([3, 2], 2, 10, "ends"), "axes": ([1, 2], 3, 10, "axes")},
    ),
    "Split": Case(
        lambda x: es.Split(x, split=[1, 3], axis=2),
        lambda x: es.Split(x, split=[3, 1], axis=2),
        np.split(X, [1], 2),
        {"split": ([1, 3], 1, 13, "split")},
        {"axis": 2},
    ),
    "Squeeze": Case(
        lambda x: es.Squeeze(x, axes=[0]),
        lambda x: es.Squeeze(x, axes=[3]),
        [X[..., None]],
        {"axes": ([0], 1, 13, "axes")},
        x=X[None, ..., None],
    ),
    "TopK": Case(
        lambda x: es.TopK(x, K=2, axis=1),
        lambda x: es.TopK(x, K=1, axis=1),
        [-np.sort(-X, axis=1)[:, :2], np.argsort(-X, axis=1)[:, :2]],
        {"K": ([2], 1, 10, "k")},
        {"axis": 1},
    ),
    "Unsqueeze": Case(
        lambda x: es.Unsqueeze(x, axes=[0, 2]),
        lambda x: es.Unsqueeze(x, axes=[0, 1]),
        [X[None][:, :, None]],
        {"axes": ([0, 2], 1, 13, "axes")},
    ),
    "Upsample": Case(
        lambda x: es.Upsample(x, scales=[1.0, 2.0, 3.0]),
        lambda x: es.Upsample(x, scales=[1.0, 3.0, 2.0]),
        [X.repeat(2, 1).repeat(3, 2)],
        {"scales": ([1.0, 2.0, 3.0], 1, 9, "scales")},
        opsets=range(7, 10),
    ),
}  # fmt: skip


def test_the_table_has_every_operator_that_migrates():
    operators = {op: schemas.operator(*split_op(op)) for op in schemas.operator_names()}
    assert sorted(
        op for op, actual in operators.items() if actual is not None and actual.migrating
    ) == sorted(CASES)


def model_of(op: str, opset: int) -> onnx.ModelProto:
    """``y = Identity(op(x))`` for each result, with every parameter as this opset spells it."""
    case = CASES[op]
    inputs, attributes, initializers = ["x"], dict(case.fixed), []
    for name, (value, slot, since, attribute) in case.moved.items():
        if opset < since:
            attributes[attribute] = value[0] if attribute == "k" else value
            continue
        dtype = np.float32 if isinstance(np.ravel(value)[0], float) else np.int64
        initializers.append(onnx.numpy_helper.from_array(np.asarray(value, dtype), name))
        inputs.extend([""] * (slot + 1 - len(inputs)))
        inputs[slot] = name
    results = [f"r{index}" for index in range(len(case.wanted))]
    nodes = [onnx.helper.make_node(op, inputs, results, **attributes)]
    nodes += [
        onnx.helper.make_node("Identity", [result], [f"y{index}"])
        for index, result in enumerate(results)
    ]
    graph = onnx.helper.make_graph(
        nodes,
        "main",
        [onnx.helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, case.x.shape)],
        [
            onnx.helper.make_tensor_value_info(
                f"y{index}", onnx.helper.np_dtype_to_tensor_dtype(expected.dtype), expected.shape
            )
            for index, expected in enumerate(case.wanted)
        ],
        initializers,
    )
    model = onnx.helper.make_model(
        graph,
        opset_imports=[onnx.helper.make_opsetid("", opset)],
        ir_version=7 if opset < 20 else 10,
    )
    onnx.checker.check_model(model, full_check=True)
    return model


def without_identity(call: Call, results: int, *, exact: bool = True) -> type[PatternFusionPass]:
    """``Identity(op(x))`` → ``op(x)``, for each result; ``exact`` compares all parameters, else those that are written."""

    def build(*, pattern: bool) -> Any:
        builder = EsGraphBuilder("migrating")
        result = call(builder.CreateInput(0))
        tensors = list(result)[:results] if isinstance(result, tuple) else [result]
        if pattern and not exact:
            es.constrain(tensors[0], **tensors[0].producer.params)
        return builder.BuildAndReset(
            [es.Identity(tensor) if pattern else tensor for tensor in tensors]
        )

    class WithoutIdentity(PatternFusionPass):
        def __init__(self) -> None:
            super().__init__(PatternMatcherConfig(ir_attr_match=exact))

        def Patterns(self) -> Any:
            return Pattern(build(pattern=True))

        def Replacement(self, match: Any) -> Any:
            return build(pattern=False)

    return WithoutIdentity


def run(model: onnx.ModelProto, x: np.ndarray) -> list[np.ndarray]:
    options = ort.SessionOptions()
    options.log_severity_level = 3
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    return ort.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    ).run(None, {"x": x})


@pytest.mark.parametrize("exact", [False, True], ids=["constrained", "all-attributes"])
@pytest.mark.parametrize(
    ("op", "opset"), [(op, opset) for op, case in CASES.items() for opset in case.opsets]
)
def test_one_pattern_and_one_replacement_at_every_opset(op, opset, exact):
    case = CASES[op]
    model = model_of(op, opset)
    result, record = run_pass(model, without_identity(case.call, len(case.wanted), exact=exact))
    assert record.replaced == 1, record
    assert [node.op_type for node in result.graph.node] == [op]
    assert result.opset_import == model.opset_import
    onnx.checker.check_model(result, full_check=True)
    for before, after, expected in zip(
        run(model, case.x), run(result, case.x), case.wanted, strict=True
    ):
        np.testing.assert_array_equal(before, after, strict=True)
        np.testing.assert_allclose(after, expected, rtol=1e-5, atol=1e-5)
    _, other = run_pass(model, without_identity(case.other, len(case.wanted), exact=exact))
    assert (other.matched, other.replaced) == (0, 0), "another value is another computation"


@pytest.mark.parametrize(
    ("op", "opset"),
    [(op, opset) for op, case in CASES.items() for opset in OPSETS if opset not in case.opsets],
)
def test_where_an_operator_does_not_exist_the_pattern_is_not_applicable(op, opset):
    case = CASES[op]
    model = onnx.parser.parse_model(
        f'<ir_version: 7, opset_import: ["": {opset}]> g (float[2] x) => (float[2] y) {{ y = Relu(x) }}'
    )
    _, record = run_pass(model, without_identity(case.call, 1))
    assert record.status == "not applicable"
    assert op in record.message
    assert str(opset) in record.message
