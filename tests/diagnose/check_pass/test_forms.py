"""Each form of a pattern's operators is tried: a pass that forgets one is wrong there."""

from __future__ import annotations

from typing import Any

import onnx
import pytest

from gehost import DecomposePass, EsGraphBuilder, es, testing
from gehost.diagnose.check_pass import trial
from gehost.diagnose.check_pass.engines import Engine
from gehost.diagnose.check_pass.shapes import shape_fault
from gehost.diagnose.check_pass.trial import Reference, UnsteadyError
from gehost.testing import parse
from tests.diagnose.check_pass.test_run import FoldBatchNorm


class Forgets(DecomposePass):
    """Writes its operator behind an Identity, without some attributes, inputs or outputs."""

    attributes: tuple[str, ...] = ()
    inputs = 9

    def MeetRequirements(self, node: Any) -> bool:
        producer = node.inputs[0].producer
        return producer is None or producer.op != "Identity"

    def Replacement(self, node: Any) -> Any:
        builder = EsGraphBuilder("same")
        first, *others = builder.CreateInputs(len(node.inputs))
        argument = [
            tensor if value is not None else None
            for tensor, value in zip(others, node.inputs[1:], strict=True)
        ][: self.inputs - 1]
        attributes = {
            name: value for name, value in node.attrs.items() if name not in self.attributes
        }
        result = first.graph.add_node(
            (node.op,), [es.Identity(first), *argument], attributes, len(node.outputs)
        )
        return builder.BuildAndReset(result)


FORGETFUL = [
    ("AveragePool", "count_include_pad"),
    ("AveragePool", "dilations"),
    ("BatchNormalization", "epsilon"),
    ("BatchNormalization", "spatial"),
    ("Conv", "auto_pad"),
    ("Conv", "group"),
    ("Conv", "pads"),
    ("CumSum", "exclusive"),
    ("CumSum", "reverse"),
    ("DepthToSpace", "mode"),
    ("Gather", "axis"),
    ("Gelu", "approximate"),
    ("Gemm", "alpha"),
    ("Gemm", "transB"),
    ("LayerNormalization", "axis"),
    ("Pad", "mode"),
    ("Softmax", "axis"),
    ("TopK", "largest"),
]


@pytest.mark.parametrize(("op", "attribute"), FORGETFUL)
def test_a_pass_that_forgets_an_attribute_is_wrong(op: str, attribute: str) -> None:
    forgets = type("ForgetsAttribute", (Forgets,), {"op_types": (op,), "attributes": (attribute,)})
    with pytest.raises(AssertionError, match="numbers differ|the pass fails"):
        testing.check_pass(forgets, instances=12, mutations=20)


WINDOW = (
    "auto_pad", "ceil_mode", "count_include_pad", "dilations", "output_padding", "output_shape",
    "pads", "storage_order", "strides",
)  # fmt: skip


@pytest.mark.parametrize("op", ["AveragePool", "MaxPool", "ConvTranspose"])
def test_a_pass_that_forgets_all_of_a_window_is_wrong(op: str) -> None:
    forgets = type("ForgetsWindow", (Forgets,), {"op_types": (op,), "attributes": WINDOW})
    with pytest.raises(AssertionError, match="numbers differ"):
        testing.check_pass(forgets, instances=12, mutations=20)


@pytest.mark.parametrize(
    ("op", "attributes"),
    [
        ("ArgMax", ("axis",)),
        ("DequantizeLinear", ("axis",)),
        ("EyeLike", ("k",)),
        ("ReverseSequence", ("batch_axis", "time_axis")),
        ("ScatterND", ("reduction",)),
    ],
)
def test_instances_on_which_an_attribute_matters_are_built(
    op: str, attributes: tuple[str, ...]
) -> None:
    forgets = type("ForgetsSome", (Forgets,), {"op_types": (op,), "attributes": attributes})
    with pytest.raises(AssertionError, match="numbers differ"):
        testing.check_pass(forgets, instances=4, mutations=12)


@pytest.mark.parametrize(("op", "inputs"), [("Conv", 2), ("Gemm", 2), ("LayerNormalization", 2)])
def test_a_pass_that_forgets_an_optional_input_is_wrong(op: str, inputs: int) -> None:
    forgets = type("ForgetsInput", (Forgets,), {"op_types": (op,), "inputs": inputs})
    with pytest.raises(AssertionError, match="numbers differ"):
        testing.check_pass(forgets, instances=4, mutations=20)


class FoldsTraining(FoldBatchNorm):
    """Forgets that BatchNormalization may compute the statistics itself."""

    def MeetRequirements(self, match: Any) -> bool:
        values = [match.GetCapturedTensor(place).value for place in range(5)]
        return all(value.array is not None for value in values)


def test_a_fold_that_forgets_training_is_wrong_in_each_form_of_it() -> None:
    with pytest.raises(AssertionError) as caught:
        testing.check_pass(FoldsTraining, instances=6, mutations=20)
    text = str(caught.value)
    assert "training_mode set to 1" in text
    assert "output saved_var added" in text or "output saved_mean added" in text
    assert ", computed by ONNX Runtime " in text


def test_what_was_not_varied_is_listed_and_the_engine_named() -> None:
    result = testing.check_pass(FoldBatchNorm, instances=4, mutations=20)
    assert result.verdict == "ok"
    assert "computed by ONNX Runtime" in result.summary()
    few = testing.check_pass(FoldBatchNorm, instances=1, mutations=1)
    (line,) = [line for line in few.lines() if ": not varied: " in line]
    assert "training_mode" in line
    assert "opset " in line
    assert few.as_dict()["not_varied"] == few.not_varied


def test_ok_without_a_mutation_is_not_checked() -> None:
    result = testing.check_pass(FoldBatchNorm, instances=1, mutations=0)
    assert (result.ok, result.verdict) == (True, "not checked")


def folded(opset: int, element: str, shapes: str = "") -> tuple[Any, Any]:
    """A BatchNormalization, and the same as a product and a sum."""
    head = f'<ir_version: 7, opset_import: ["": {opset}]>'
    signature = f"g ({element}[2,3,4] x) => ({element}[2,3,4] y)"
    weights = f"""<{element}[3] s = {{1, 2, 3}}, {element}[3] b = {{3, 1, 2}},
        {element}[3] m = {{1, 2, 1}}, {element}[3] v = {{4, 1, 9}}>"""
    norm = "{ y = BatchNormalization <epsilon = 0.0> (x, s, b, m, v) }"
    pair = f"""<{element}[3,1] f = {{0.5, 2, 1}}, {element}[3,1] c = {{2.5, -3, 1}}>
        {{ p = Mul (x, f) y = Add (p, c) }}"""
    return parse(f"{head} {signature} {weights} {norm}"), parse(f"{head} {signature} {pair}")


@pytest.mark.parametrize(
    ("opset", "element", "engine"),
    [
        (11, "float", Engine.RUNTIME),
        (17, "float", Engine.RUNTIME),
        (11, "double", Engine.RUNTIME),
    ],
)
def test_a_right_fold_is_equal_and_the_engine_named(
    opset: int, element: str, engine: Engine
) -> None:
    before, after = folded(opset, element)
    reference = Reference(before, 0)
    assert reference.compare(after).difference == ""
    assert reference.engine is engine


CONV = "c = Conv (x, w) y = BatchNormalization <epsilon = 0.0> (c, s, b, m, v)"


def test_where_the_reference_is_wrong_the_runtime_computes_in_float32() -> None:
    """ONNX Runtime has no Conv of doubles, the reference no BatchNormalization-9."""
    text = """<ir_version: 7, opset_import: ["": OPSET]> g (double[1,1,4] x) => (double[1,1,4] y)
        <double[1,1,1] w = {1}, double[1] s = {2}, double[1] b = {1}, double[1] m = {1},
         double[1] v = {4}, double[1] o = {0}> { BODY }"""
    for opset, engine in ((11, Engine.SINGLE), (17, Engine.REFERENCE)):
        before = parse(text.replace("OPSET", str(opset)).replace("BODY", CONV))
        after = parse(text.replace("OPSET", str(opset)).replace("BODY", "y = Conv (x, w, o)"))
        reference = Reference(before, 0)
        assert reference.engine is engine
        assert reference.compare(after).difference == ""


def test_where_no_engine_is_right_nothing_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    before, _ = folded(11, "double")
    monkeypatch.setattr(trial, "load", lambda _model, _engine: None)
    with pytest.raises(UnsteadyError, match="wrong .BatchNormalization of opset 9"):
        Reference(before, 0)


@pytest.mark.parametrize(
    ("op", "shapes", "right"),
    [
        ("Conv", [(1, 2, 4, 4), (3, 2, 1, 1), (3,)], True),
        ("Conv", [(1, 2, 4, 4), (3, 2)], False),
        ("Conv", [(1, 2, 4, 4), (3, 2, 1)], False),
        ("Conv", [(1, 2, 4, 4), (3, 2, 1, 1), ()], False),
        ("Conv", [(1, 2, 4, 4), (3, 1, 1, 1)], False),
        ("Conv", [(2, 4), (3, 4)], False),
        ("ConvTranspose", [(1, 2, 4), (2, 3, 1), (3,)], True),
        ("ConvTranspose", [(1, 2, 4), (3, 2, 1)], False),
        ("BatchNormalization", [(2, 3, 4), (3,), (3,), (3,), (3,)], True),
        ("BatchNormalization", [(2, "C", 4), (3,), (3,), (3,), (3,)], True),
        ("BatchNormalization", [(2, 3, 4), (3,), (3,), (3,), ()], False),
        ("BatchNormalization", [(2, 3, 4), (3,), (3,), (3,), (1,)], False),
        ("BatchNormalization", [(2, 3, 4), (3, 1), (3,), (3,), (3,)], False),
        ("InstanceNormalization", [(2, 3, 4), (3,), ()], False),
        ("LayerNormalization", [(2, 3, 4), (4,), (3, 4)], True),
        ("LayerNormalization", [(2, 3), (2, 2, 3)], False),
        ("PRelu", [(2, 3), (2, 2, 3)], False),
        ("Gemm", [(2, 3), (3, 4), (4,)], True),
        ("Gemm", [(2, 3), (3, 4), (1, 2, 4)], False),
        ("Gemm", [(2, 3, 4), (4, 4)], False),
        ("MaxPool", [(2, 3)], False),
        ("DepthToSpace", [(2, 4, 3)], False),
    ],
)
def test_shapes_that_no_specification_allows(
    op: str, shapes: list[tuple[Any, ...]], right: bool
) -> None:
    names = [f"i{slot}" for slot in range(len(shapes))]
    node = onnx.helper.make_node(op, names, ["y"])
    fault = shape_fault([node], dict(zip(names, shapes, strict=True)))
    assert (fault == "") is right
    assert right or fault.startswith(f"{op}: ")
