"""Softmax from its steps.

``x → ReduceMax → m;  x, m → Sub → Exp → e → ReduceSum → s;  e, s → Div   ==>   x → Softmax``
"""

from __future__ import annotations

from itertools import product
from math import inf, isnan, nan
from typing import TYPE_CHECKING

import onnx
import onnx.parser
import onnx.shape_inference

from gehost import REG_FUSION_PASS, CustomPassStage, EsGraphBuilder, Pattern, PatternFusionPass, es

from ._conditions import kept_shape, number, reduced_axes, static_shape

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gehost import EsGraph, EsTensor, MatchResult, Node, Refusal, Value


@REG_FUSION_PASS(stage=CustomPassStage.kBeforeInferShape)
class SoftmaxFusionPass(PatternFusionPass):
    """Fuse ``exp(x - max(x)) / sum(exp(x - max(x)))``.

    Forms: the maximum as a reduction that keeps its axis, or one that is reshaped; with the
    importer's ``Where(any nan, nan, max)``, which Softmax makes without it; with jax's
    ``Max(max, -inf)``.
    Shapes: x static where the maximum is reshaped; one axis; the result that of x.
    Keeps: dtype.
    Refuses: ``dtype``: not floating point; ``axes``: maximum and sum go over different axes, or
    over several; ``shape``: the Reshape puts the maximum elsewhere, or x is not static; ``guard``:
        the
    numbers are not nan and -inf. An exponential that is read elsewhere, as gradients do, does not
    match.
    Source: ONNX Softmax-13.
    """

    def Patterns(self) -> list[Pattern]:
        return [_pattern(reshaped=False), _pattern(reshaped=True)]

    def MeetRequirements(self, match: MatchResult) -> bool | Refusal:
        x = match.inputs[0]
        if x.dtype is None or not x.dtype.is_float:
            return match.reject(f'dtype: "{x.name}" is not known to be floating point')
        axis = _axis(match)
        if axis is None:
            return match.reject("axes: maximum and sum do not go over one and the same axis")
        peak = match.GetCapturedTensor(0)
        expected = kept_shape(x, (axis,))
        if peak.node.op == "Reshape" and (expected is None or static_shape(peak.value) != expected):
            return match.reject("shape: the Reshape is not known to put the maximum along the axis")
        if not all(_is_guard(node) for node in match.GetMatchedNodes()):
            return match.reject("guard: the numbers beside the maximum are not nan and -inf")
        return True

    def Replacement(self, match: MatchResult) -> EsGraph:
        builder = EsGraphBuilder("softmax")
        x, *_ = builder.CreateInputs(len(match.inputs))
        return builder.BuildAndReset([es.Softmax(x, axis=_axis(match))])

    def Instances(self) -> Iterator[onnx.ModelProto]:
        """Yield a model of each form.

        Random draws hardly ever meet its axes and its nan and -inf.
        """
        for form in product((True, False), repeat=3):
            yield _instance(*form)


def _pattern(*, reshaped: bool) -> Pattern:
    builder = EsGraphBuilder("softmax")
    x = builder.CreateInput(0)
    no_number, bound = builder.CreateScalar(0.0), builder.CreateScalar(0.0)
    maximum = _maximum(x, reshaped)
    peak = es.Optional(lambda m: es.Where(_maximum(es.IsNaN(x), reshaped), no_number, m), maximum)
    peak = es.Optional(lambda m: es.Commutative(es.Max(m, bound)), peak)
    if reshaped:
        peak = es.Reshape(peak, builder.CreateInput(1))
    e = es.Exp(es.Sub(x, peak))
    total: EsTensor = es.constrain(es.ReduceSum(e), keepdims=1)
    return Pattern(builder.BuildAndReset([es.Div(e, total)])).CaptureTensor(peak)


def _maximum(x: EsTensor, reshaped: bool) -> EsTensor:
    return es.constrain(es.ReduceMax(x), keepdims=0 if reshaped else 1)


def _axis(match: MatchResult) -> int | None:
    """Return the axis that all reductions of a match go over.

    Returns None where they differ.
    """
    x = match.inputs[0]
    results = {
        reduced_axes(node, x)
        for node in match.GetMatchedNodes()
        if node.op in {"ReduceMax", "ReduceSum"}
    }
    axes = results.pop() if len(results) == 1 else None
    return axes[0] if axes is not None and len(axes) == 1 else None


def _is_guard(node: Node) -> bool:
    """Whether a Where or Max leaves the maximum as it is."""
    if node.op not in {"Where", "Max"}:
        return True
    constants: list[Value] = [
        value for value in node.inputs if value is not None and value.is_constant
    ]
    numbers = [number(value) for value in constants]
    if len(numbers) != 1 or numbers[0] is None or (constants[0].rank or 0) > 0:
        return False
    return isnan(numbers[0]) if node.op == "Where" else numbers[0] == -inf


def _instance(guarded: bool, bounded: bool, reshaped: bool) -> onnx.ModelProto:
    """Return a model of one form at opset 20.

    It is the first with a ReduceMax of truth values; x [2, 3, 4].
    """
    keepdims = f"<keepdims = {int(not reshaped)}>"
    lines = [f"m0 = ReduceMax {keepdims} (x, last)"]
    if guarded:
        lines += ["odd = IsNaN (x)", f"any = ReduceMax {keepdims} (odd, last)"]
        lines.append("m1 = Where (any, nan, m0)")
    if bounded:
        lines.append(f"m2 = Max ({'m1' if guarded else 'm0'}, low)")
    peak = "m2" if bounded else "m1" if guarded else "m0"
    if reshaped:
        lines.append(f"m3 = Reshape ({peak}, kept)")
        peak = "m3"
    lines += [f"d = Sub (x, {peak})", "e = Exp (d)", "s = ReduceSum <keepdims = 1> (e, last)"]
    model = onnx.parser.parse_model(
        '<ir_version: 9, opset_import: ["": 20]> softmax (float[2,3,4] x) => (float[2,3,4] y) '
        "<int64[1] last = {2}, int64[3] kept = {2, 3, 1}> "
        f"{{ {' '.join(lines)} y = Div (e, s) }}"
    )
    for name, value in (("nan", nan), ("low", -inf)):
        if any(name in node.input for node in model.graph.node):
            model.graph.initializer.append(
                onnx.helper.make_tensor(name, onnx.TensorProto.FLOAT, [], [value])
            )
    return onnx.shape_inference.infer_shapes(model)  # the pass runs before the host infers types
