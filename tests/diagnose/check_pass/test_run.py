"""``check-pass``: shipped passes are right, planted bugs are found, and what cannot be checked is said."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gehost import (
    REG_DECOMPOSE_PASS,
    REG_FUSION_PASS,
    CustomPassStage,
    DataType,
    DecomposePass,
    EsGraphBuilder,
    FusionBasePass,
    Host,
    HostOptions,
    Pattern,
    PatternFusionPass,
    es,
    testing,
)
from gehost.cli import run
from gehost.diagnose.check_pass import run as run_module
from gehost.errors import PassError
from gehost.testing import parse
from tests.diagnose.check_pass import planted_patterns as planted

VENDORS = Path(__file__).parents[3] / "vendors"
SHIPPED = {spec.name: spec.kind for spec in Host(HostOptions(vendors=[VENDORS])).passes}


def check_pass(pass_: Any, **options: Any) -> Any:
    """As in ``gehost.testing``, with fewer instances and mutations, which suffice here."""
    return testing.check_pass(pass_, **{"instances": 4, "mutations": 8, **options})


def findings(pass_: Any, **options: Any) -> str:
    with pytest.raises(AssertionError) as caught:
        check_pass(pass_, **options)
    return str(caught.value)


# -- what is right, and what is wrong -----------------------------------------------------------------------------------


NOT_RUN = {"OrtGroupNormPass", "SwiGLUFusionPass"}
"""A kernel that no CPU has, and an operator of an opset that no runtime runs: see their tests."""


@pytest.mark.parametrize("name", [name for name in SHIPPED if name not in NOT_RUN])
def test_every_shipped_pass_fires_on_each_of_its_patterns_and_is_right(name):
    result = check_pass(name, vendors=VENDORS, instances=2, mutations=12)
    fired, patterns = result.patterns
    assert fired == patterns
    assert (patterns == 0) == (SHIPPED[name] == "fusion")
    assert result.instances >= max(1, patterns)
    assert result.equal > 0
    assert result.notes == []


def test_a_pass_for_later_opsets_than_a_check_has_is_not_checked():
    why = "not checked: it is for opset 28 and later ones, checks end at 26"
    with pytest.raises(AssertionError, match=why):
        check_pass("SwiGLUFusionPass", vendors=VENDORS)


@pytest.mark.parametrize(("wrong", "right"), planted.PLANTED, ids=lambda cls: cls.__name__)
def test_a_planted_bug_is_found_without_a_model(wrong, right):
    assert "numbers differ: opset" in findings(wrong)
    assert check_pass(right).ok


def test_no_opset_is_newer_than_the_installed_onnx(monkeypatch):
    """onnx 1.19 refuses models of opset 25."""

    class Shorter(PatternFusionPass):
        def Patterns(self):
            builder = EsGraphBuilder("p")
            return [Pattern(builder.BuildAndReset([es.Relu(es.Relu(builder.CreateInput(0)))]))]

        def Replacement(self, match):
            builder = EsGraphBuilder("r")
            return builder.BuildAndReset([es.Relu(builder.CreateInput(0))])

    opsets = set()
    identity = run_module._identity
    monkeypatch.setattr(run_module, "_identity", lambda opset: opsets.add(opset) or identity(opset))
    check_pass(Shorter)
    assert max(opsets) == 26
    opsets.clear()
    monkeypatch.setattr(run_module.onnx.defs, "onnx_opset_version", lambda: 24)
    check_pass(Shorter)
    assert max(opsets) == 24


def test_a_condition_that_only_a_changed_instance_gets_past():
    class FirstIsOne(planted.Rewrites):
        """Multiplies by a vector of ones, of which it looks at the first."""

        inputs = 1

        def Patterns(self):
            builder = EsGraphBuilder("pattern")
            x, ones = builder.CreateInput(0), builder.CreateVector([1.0, 1.0, 1.0])
            return [Pattern(builder.BuildAndReset([es.Mul(x, ones)])).CaptureTensor(ones)]

        def MeetRequirements(self, match):
            return bool(match.GetCapturedTensor(0).value.array.flat[0] == 1) or match.reject(
                "scale: not one"
            )

        def after(self, _match, x):
            return x

    assert check_pass(FirstIsOne, instances=2, mutations=0).ok
    assert "with another last element: output0" in findings(FirstIsOne, instances=2, mutations=60)


class SquareOfMatrix(planted.Rewrites):
    """The product of a matrix with itself, element by element, becomes Pow."""

    inputs = 1

    def before(self, x):
        return es.Mul(x, x)

    def after(self, match, x):
        return es.Pow(x, 2.0)

    def MeetRequirements(self, match):
        return match.inputs[0].rank == 2


class LengthOfShape(SquareOfMatrix):
    """The shape is None before shape inference, unless the exporter states it."""

    def MeetRequirements(self, match):
        return len(match.inputs[0].shape) == 2


def test_a_pass_before_inference_meets_operands_of_unknown_type():
    for cls in (SquareOfMatrix, LengthOfShape):
        REG_FUSION_PASS(stage=CustomPassStage.kBeforeInferShape)(cls)
    assert check_pass(SquareOfMatrix, instances=2, mutations=2).ok
    actual = findings(LengthOfShape, instances=2, mutations=2)
    assert "the pass fails: opset " in actual
    assert (
        "between Identities, the types of all but the model's inputs and outputs unknown" in actual
    )
    assert "object of type 'NoneType' has no len()" in actual

    @REG_FUSION_PASS(stage=CustomPassStage.kAfterInferShape)
    class Later(LengthOfShape):
        pass

    assert check_pass(Later, instances=2, mutations=2).ok


PROVIDED = """
from gehost import *

@ops.register("acme::Scale", provided_by="acmert>=1")
def scale(x, *, k: int = 1):
    return x + x if k == 1 else x * 1.0

@REG_FUSION_PASS(stage=CustomPassStage.kAfterInferShape)
class ScalePass(PatternFusionPass):
    def Patterns(self):
        builder = EsGraphBuilder("pattern")
        x = builder.CreateInput(0)
        return [Pattern(builder.BuildAndReset([es.Add(x, x)]))]

    def Replacement(self, match):
        builder = EsGraphBuilder("replacement")
        scale = es.op("acme::Scale")
        return builder.BuildAndReset([scale(scale(builder.CreateInput(0), k=1), k=2)])
"""


def test_results_that_this_runtime_cannot_run_are_not_checked(tmp_path, capsys):
    """Two bodies, so that the model carries none, and no kernel."""
    folder = tmp_path / "acme" / "custom_fusion_passes"
    folder.mkdir(parents=True)
    (folder / "scale.py").write_text(PROVIDED)
    command = ["check-pass", str(folder), "--instances", "2"]
    assert run(command) == 0
    out = capsys.readouterr().out
    assert "not checked: its results cannot be compared: after the rewrite " in out
    assert "operator acme::Scale has no body in the model" in out
    assert run([*command, "--strict"]) == 5


class FoldBatchNorm(planted.Rewrites):
    """Conv and BatchNormalization become a Conv of other weights, all of which are constants."""

    inputs = 6
    dtype: Any = np.float32

    def Patterns(self):
        builder = EsGraphBuilder("conv_bn")
        x, *weights = builder.CreateInputs(6)
        self.conv = es.Conv(x, weights[0])
        self.norm = es.BatchNormalization(self.conv, *weights[1:])
        pattern = Pattern(builder.BuildAndReset([self.norm]))
        for weight in weights:
            pattern.CaptureTensor(weight)
        return [pattern]

    def MeetRequirements(self, match):
        values = [match.GetCapturedTensor(place).value for place in range(5)]
        if any(value.array is None for value in values):
            return match.reject("weights: not constant")
        norm = match.GetMatchedNode(self.norm)
        if norm.attrs.get("training_mode", 0) or len(norm.outputs) > 1:
            return match.reject("training: computes the statistics")
        if not norm.attrs.get("spatial", 1):
            return match.reject("spatial: has a factor for each element")
        return values[0].dtype is DataType.FLOAT or match.reject("dtype: no float")

    def Replacement(self, match):
        builder = EsGraphBuilder("conv")
        x, *_ = builder.CreateInputs(6)
        w, s, b, m, v = (
            match.GetCapturedTensor(place).value.numpy().astype(np.float64) for place in range(5)
        )
        epsilon = match.GetMatchedNode(self.norm).attrs.get("epsilon", 1e-5)
        factor = s / np.sqrt(v + epsilon)
        shift = self.shifted(b, m, factor)
        weight = w * factor.reshape(-1, *[1] * (w.ndim - 1))
        attributes = dict(match.GetMatchedNode(self.conv).attrs)
        weights = [builder.CreateConst(item.astype(self.dtype)) for item in (weight, shift)]
        return builder.BuildAndReset([es.Conv(x, *weights, **attributes)])

    def shifted(self, b, m, factor):
        return b - m * factor


class WrongShift(FoldBatchNorm):
    """Has the mean's sign wrong."""

    def shifted(self, b, m, factor):
        return b + m * factor


def test_a_fold_of_weights_is_checked_where_all_of_them_are_constant():
    result = check_pass(FoldBatchNorm, instances=4, mutations=10)
    assert (result.patterns, result.instances, result.notes) == ((1, 1), 4, [])
    assert result.equal > 0
    assert "numbers differ: opset" in findings(WrongShift, instances=2, mutations=0)


class FoldFactor(planted.Rewrites):
    """Conv times one constant for each channel becomes a Conv of other weights."""

    inputs = 3

    def Patterns(self):
        builder = EsGraphBuilder("conv_mul")
        x, w, c = builder.CreateInputs(3)
        self.conv = es.Conv(x, w)
        result = es.Mul(self.conv, c)
        return [Pattern(builder.BuildAndReset([result])).CaptureTensor(w).CaptureTensor(c)]

    def MeetRequirements(self, match):
        w, c = (match.GetCapturedTensor(place).value.array for place in range(2))
        if w is None or c is None:
            return match.reject("constant: w and c")
        per_channel = (w.shape[0], *[1] * (w.ndim - 2))
        return c.shape == per_channel or match.reject("shape: c is not per channel")

    def Replacement(self, match):
        builder = EsGraphBuilder("conv")
        x, *_ = builder.CreateInputs(3)
        w, c = (match.GetCapturedTensor(place).value.array for place in range(2))
        weight = builder.CreateConst(self.scaled(w, c))
        return builder.BuildAndReset([es.Conv(x, weight, **match.GetMatchedNode(self.conv).attrs)])

    def scaled(self, w, c):
        return w * c.reshape(-1, *[1] * (w.ndim - 1))


class WrongFactor(FoldFactor):
    """Scales all channels by the factor of the first one."""

    def scaled(self, w, c):
        return w * c.reshape(-1)[0]


class FoldShift(FoldFactor):
    """Conv plus one constant for each channel becomes a Conv with a bias."""

    def Patterns(self):
        builder = EsGraphBuilder("conv_add")
        x, w, c = builder.CreateInputs(3)
        self.conv = es.Conv(x, w)
        result = es.Add(self.conv, c)
        return [Pattern(builder.BuildAndReset([result])).CaptureTensor(w).CaptureTensor(c)]

    def Replacement(self, match):
        builder = EsGraphBuilder("conv")
        x, w, _ = builder.CreateInputs(3)
        bias = builder.CreateConst(match.GetCapturedTensor(1).value.array.reshape(-1))
        attributes = match.GetMatchedNode(self.conv).attrs
        return builder.BuildAndReset([es.Conv(x, w, bias, **attributes)])


@pytest.mark.parametrize("fold", [FoldFactor, FoldShift])
def test_a_fold_of_one_constant_for_each_channel_is_checked(fold):
    for seed in range(2):
        result = check_pass(fold, mutations=4, seed=seed)
        assert (result.patterns, result.instances, result.notes) == ((1, 1), 4, [])
    assert result.equal > 0


def test_a_fold_that_scales_all_channels_alike_is_found():
    assert "numbers differ: opset" in findings(WrongFactor, instances=3, mutations=0)


class Sevens(planted.NegatedDifference):
    """Takes only what is hardly ever drawn, and offers an instance of it."""

    text = "g (float[7,7] a, float[7,7] b) => (float[7,7] y) { c = Sub(a, b) y = Neg(c) }"

    def MeetRequirements(self, match):
        return match.inputs[0].shape == (7, 7) or match.reject("shape: not of sevens")

    def Instances(self):
        return [parse(f'<ir_version: 8, opset_import: ["": 17]> {self.text}')]


class WrongSevens(Sevens):
    def after(self, _match, a, b):
        return es.Sub(a, b)


class NotOfSevens(Sevens):
    text = Sevens.text.replace("7", "6")


class NoModels(Sevens):
    def Instances(self):
        return [7]


class WalkingSevens(FusionBasePass):
    """Has no pattern; what it offers is checked all the same."""

    def Instances(self):
        return Sevens().Instances()

    def Run(self, graph, context):
        return None


class FoldAnyFloat(FoldBatchNorm):
    """The fold in double precision, for which ONNX Runtime has no kernel of Conv."""

    def MeetRequirements(self, match):
        return all(match.GetCapturedTensor(place).value.array is not None for place in range(5))

    def Replacement(self, match):
        self.dtype = match.GetCapturedTensor(0).value.numpy().dtype
        return super().Replacement(match)

    def Instances(self):
        yield parse(
            """<ir_version: 8, opset_import: ["" : 17]> g (double[1, 4, 3, 3] x) => (double[1, 4, 3, 3] y)
            <double[4, 2, 1, 1] w = {1, 2, 3, 4, 5, 6, 7, 8}, double[4] s = {1, 2, 3, 4},
             double[4] b = {4, 3, 2, 1}, double[4] m = {1, 0, 1, 0}, double[4] v = {1, 2, 3, 4}>
            { c = Conv<group = 2>(x, w) y = BatchNormalization(c, s, b, m, v) }"""
        )


class FoldAnyFloatWrongly(FoldAnyFloat):
    def shifted(self, b, m, factor):
        return b + m * factor


def test_what_the_reference_alone_sees_is_no_finding(monkeypatch):
    from onnx.reference.ops import op_conv

    right = op_conv.Conv._run

    def wrong_without_bias(self, x, w, b=None, **attributes):
        (actual,) = right(self, x, w, b, **attributes)
        return (actual if b is not None else actual * 2,)

    monkeypatch.setattr(op_conv.Conv, "_run", wrong_without_bias)
    assert check_pass(FoldAnyFloat, instances=1, mutations=0).ok
    assert "numbers differ: instance 0" in findings(FoldAnyFloatWrongly, instances=1, mutations=0)


@pytest.mark.usefixtures("few_draws")
def test_a_pass_may_offer_instances():
    result = check_pass(Sevens, instances=1, mutations=5)
    assert (result.instances, result.patterns, result.notes) == (1, (1, 1), [])
    assert result.opsets == {17}
    message = findings(WrongSevens, instances=1, mutations=5)
    assert "numbers differ: instance 0 of Instances(): output" in message or "y[" in message
    never = "never fires: instance 0 of Instances(): "
    assert f"{never}shape: not of sevens" in findings(NotOfSevens, instances=1, mutations=5)
    assert f"{never}it does not match" in findings(WalkingSevens, instances=1, mutations=5)
    with pytest.raises(PassError, match=r"NoModels .*Instances must give models .*got int"):
        check_pass(NoModels, instances=1, mutations=5)


class OptionalBias(PatternFusionPass):
    """Relu(t)  ==>  (t + Abs(t)) * 0.5 for t = Abs(x) [+ bias]."""

    def Patterns(self):
        builder = EsGraphBuilder("pattern")
        x, bias = builder.CreateInputs("x", "bias")
        result = es.Relu(es.Optional(lambda part: es.Add(part, bias), es.Abs(x)))
        return [Pattern(builder.BuildAndReset([result]))]

    def Replacement(self, match):
        builder = EsGraphBuilder("replacement")
        x, bias = builder.CreateInputs("x", "bias")
        part = es.Add(es.Abs(x), bias) if "bias" in match else es.Abs(x)
        return builder.BuildAndReset([(part + es.Abs(part)) * 0.5])

    def MeetRequirements(self, match):
        return match.inputs[0].dtype is DataType.FLOAT or match.reject("dtype")


def test_an_input_that_only_an_optional_part_reads_may_be_absent():
    result = check_pass(OptionalBias, instances=6, mutations=1)
    assert (result.instances, result.notes) == (6, [])


def test_one_seed_gives_one_answer():
    message = findings(planted.DroppedBias, seed=3)
    assert message == findings(planted.DroppedBias, seed=3)
    assert message != findings(planted.DroppedBias, seed=4)


# -- what does not fire, fails, or cannot be checked --------------------------------------------------------------------


class Picky(planted.NegatedDifference):
    """Takes nothing."""

    def MeetRequirements(self, match):
        return match.reject(f"moon: not full over {match.inputs[0].name}")


class Unsatisfiable(planted.NegatedDifference):
    def before(self, a, b):
        return es.constrain(es.Concat(a, b, axis=0), axis=lambda axis: axis == 77)


class NeedsNonZeros(planted.Rewrites):
    """Right. Inference accepts models that no engine runs on the operands that are drawn."""

    inputs = 1

    def before(self, x):
        return es.Neg(es.Cast(es.Reshape(es.NonZero(x), [7, 1009]), to=1))

    def after(self, _match, x):
        return es.Mul(es.Cast(es.Reshape(es.NonZero(x), [7, 1009]), to=1), -1.0)


class NeedsScalars(planted.Rewrites):
    """Right. Inference accepts operands that no engine runs: all three must be single numbers."""

    inputs = 3

    def before(self, *inputs):
        return es.Neg(es.Cast(es.Range(*inputs), to=1))

    def after(self, _match, *inputs):
        return es.Mul(es.Cast(es.Range(*inputs), to=1), -1.0)


class Random(planted.Rewrites):
    """Right, and other numbers come of it."""

    inputs = 1
    op = "Bernoulli"

    def before(self, x):
        return es.Neg(es.Cast(es.op(self.op)(x), to=1))

    def after(self, _match, x):
        return es.Mul(es.Cast(es.op(self.op)(x), to=1), -1.0)


class RandomNormal(Random):
    op = "RandomNormalLike"


class FailingOnRandom(Random):
    def after(self, _match, x):
        raise ValueError("no")


class RefusingRandom(Random):
    def MeetRequirements(self, match):
        return match.reject("moon: not full")


class Endless(planted.NegatedDifference):
    def after(self, _match, a, b):
        return es.Neg(es.Neg(es.Neg(es.Sub(a, b))))


class Failing(planted.NegatedDifference):
    def after(self, _match, a, b):
        raise ValueError("no")


class FailingAtOnce(planted.NegatedDifference):
    def Patterns(self):
        raise ValueError("no pattern today")


@REG_DECOMPOSE_PASS(["Relu"])
class Growing(DecomposePass):
    """Relu(x) becomes Relu(Relu(x)), whenever it is run."""

    def Replacement(self, _node):
        builder = EsGraphBuilder("relus")
        return builder.BuildAndReset([es.Relu(es.Relu(builder.CreateInput(0)))])


class Walking(FusionBasePass):
    def Run(self, graph, context):
        return None


@pytest.mark.parametrize(
    ("cls", "message"),
    [
        (
            Picky,
            r"not checked: pattern 1 of 1: could not build an instance that it accepts: \d+ × refused: moon: not full over",
        ),
        (
            Unsatisfiable,
            r"not checked: pattern 1 of 1: no runnable instance was found: \d+ × Concat cannot be built",
        ),
        (
            NeedsNonZeros,
            r"not checked: pattern 1 of 1: no runnable instance was found: \d+ × it does not run: .*Reshape",
        ),
        (
            Random,
            r"not checked: pattern 1 of 1: numbers cannot be compared: \d+ × it draws random numbers \(Bernoulli\)",
        ),
        (
            RandomNormal,
            "not checked: pattern 1 of 1: numbers cannot be compared: .*(RandomNormalLike)",
        ),
        (FailingOnRandom, "the pass fails: opset .*: ValueError: no"),
        (
            RefusingRandom,
            r"not checked: pattern 1 of 1: could not build an instance that it accepts: \d+ × refused: moon",
        ),
        (
            Failing,
            r"the pass fails: opset 17, .*: Failing \(.*test_run.py:\d+\): Replacement at node .*: ValueError: no",
        ),
        (FailingAtOnce, "the pass fails: FailingAtOnce"),
        (Growing, "a second run changes it again: opset"),
        (Walking, "not checked: it has no pattern"),
    ],
)
@pytest.mark.usefixtures("few_draws")
def test_what_is_wrong_is_said(cls, message):
    assert re.search(message, findings(cls, mutations=2))


def test_a_pass_of_single_numbers_is_checked():
    assert check_pass(NeedsScalars, mutations=2).instances == 4


def test_a_pass_that_fires_endlessly_is_told_as_that_and_soon():
    message = findings(Endless)
    assert "the pass fails: opset 17" in message
    assert "rewrites feed each other without end" in message
    assert "never fires" not in message


@pytest.mark.usefixtures("few_draws")
def test_a_pattern_that_never_fires_beside_one_that_does_is_noted():
    class Half(planted.NegatedDifference):
        def Patterns(self):
            builder = EsGraphBuilder("never")
            a, b = builder.CreateInputs(2)
            return [*super().Patterns(), Pattern(builder.BuildAndReset([es.Abs(es.Sub(a, b))]))]

        def MeetRequirements(self, match):
            return "Abs" not in {node.op for node in match.GetMatchedNodes()} or match.reject(
                "abs: not negated"
            )

    result = check_pass(Half, mutations=2)
    assert result.patterns == (1, 2)
    (note,) = result.notes
    assert note.startswith("pattern 2 of 2: could not build an instance that it accepts: ")
    assert "refused: abs: not negated" in note
    assert result.lines()[-1].endswith(f": not checked: {note}")


@pytest.mark.parametrize(
    ("op", "forms"),
    [
        ("Conv", 2),
        ("Clip", 1),
        ("Concat", 4),
        ("Reshape", 1),
        ("ReduceSum", 1),
        ("Elu", 1),
        ("Split", 1),
        ("Gemm", 2),
    ],
)
def test_a_decompose_pass_is_checked_on_each_form_of_its_operator(op, forms):
    class Same(DecomposePass):
        """Behind an Identity, so that something changes once."""

        op_types = (op,)

        def MeetRequirements(self, node):
            producer = node.inputs[0].producer
            return producer is None or producer.op != "Identity"

        def Replacement(self, node):
            builder = EsGraphBuilder("same")
            first, *others = builder.CreateInputs(len(node.inputs))
            argument = [
                tensor if value is not None else None
                for tensor, value in zip(others, node.inputs[1:], strict=True)
            ]
            output = first.graph.add_node(
                (op,), [es.Identity(first), *argument], dict(node.attrs), len(node.outputs)
            )
            return builder.BuildAndReset(output)

    result = check_pass(Same, mutations=2)
    assert result.patterns == (forms, forms)
