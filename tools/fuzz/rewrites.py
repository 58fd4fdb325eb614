"""Passes made of plans: the pattern as it was cut out, and the same computation written otherwise.

Every replacement gives the same bits, NaN, infinities and signed zeros included, so that nothing has to be tolerated.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from gehost import (
    DataType,
    DecomposePass,
    EsGraphBuilder,
    FusionBasePass,
    MatchResult,
    Pattern,
    PatternFusionPass,
    SubgraphRewriter,
    es,
)
from gehost.errors import PassError
from gehost.es.graph import EsGraph, EsTensor
from gehost.host.registry import PassSpec
from gehost.ir.graph import Graph, Node, Value
from gehost.ops import OpDef
from gehost.passes.context import CustomPassContext
from gehost.pattern.match import PatternMatcher
from gehost.refusal import Refusal, Refused
from gehost.stages import CustomPassStage
from tools.fuzz.equivalents import SUBSTITUTES, Call, same
from tools.fuzz.plans import Fixed, Given, Made, Plan, Ref, Step

ORIGIN = f"{__file__}:1"


def spec_of(plan: Plan) -> PassSpec:
    """How a host is given the pass of a plan."""
    return PassSpec(
        plan.name, plan.stage, ORIGIN, "pattern", lambda: FuzzedFusion(plan), trusted=True
    )


def spec_by_hand(plan: Plan) -> PassSpec:
    """The same as a pass that searches and replaces by itself."""
    return PassSpec(plan.name, plan.stage, ORIGIN, "fusion", lambda: FuzzedByHand(plan))


def decomposition(name: str, op_types: Sequence[str], choice: int) -> PassSpec:
    """A pass that writes every node of some operators otherwise."""
    return PassSpec(
        name,
        CustomPassStage.kAfterInferShape,
        ORIGIN,
        "decompose",
        lambda: FuzzedDecompose(name, op_types, choice),
        trusted=True,
    )


def operators() -> list[OpDef]:
    """The custom operators that replacements use; both are the identity."""

    def same(x: EsTensor) -> EsTensor:
        return es.Identity(x)

    def scale(x: EsTensor, *, factor: float) -> EsTensor:
        return x * factor

    common: dict[str, Any] = {
        "version": 1,
        "inputs": ("x",),
        "required": 1,
        "outputs": ("y",),
        "shape": None,
        "origin": ORIGIN,
    }
    return [
        OpDef("fz::Same", attributes={}, body=same, traits=frozenset(), **common),
        OpDef("fz::Scale", attributes={"factor": 1.0}, body=scale, traits=frozenset(), **common),
    ]


class FuzzedFusion(PatternFusionPass):
    """Matches the plan's pattern; what it made itself it leaves alone, so that a second run finds nothing."""

    def __init__(self, plan: Plan) -> None:
        super().__init__(plan.config)
        self._plan = plan
        self._nodes: list[Any] = []

    def Patterns(self) -> list[Pattern]:
        plan, builder = self._plan, EsGraphBuilder("pattern")
        arguments = [
            builder.CreateInput(index, **operand) for index, operand in enumerate(plan.inputs)
        ]
        fixed = [builder.CreateConst(array) for array in plan.constants]
        results: list[Sequence[EsTensor]] = []

        def tensor(ref: Ref) -> EsTensor | None:
            if isinstance(ref, Made):
                result = results[ref.step][ref.slot]
                return (
                    es.Alternatives(es.Identity(result), result) if ref.maybe_identity else result
                )
            return (
                None
                if ref is None
                else arguments[ref.index]
                if isinstance(ref, Given)
                else fixed[ref.index]
            )

        self._nodes = []
        for step in plan.steps:
            results.append(
                _tuple(es.AnyOf(*step.ops)(*map(tensor, step.operands), num_outputs=step.outputs))
            )
            self._nodes.append(results[-1][0].producer)
            es.constrain(results[-1][0], **step.constraints)
            if step.commutative:
                es.Commutative(results[-1][0])
        pattern = Pattern(
            builder.BuildAndReset([results[ref.step][ref.slot] for ref in plan.outputs])
        )
        for constant in fixed:
            pattern.CaptureTensor(constant)
        return [pattern]

    def MeetRequirements(self, match: MatchResult) -> bool | Refusal:
        if any(_is_own(node, self._plan.name) for node in match.GetMatchedNodes()):
            return match.reject("own: this pass made it")
        for step, pattern_node in zip(self._plan.steps, self._nodes, strict=True):
            parameters = _parameters(match.GetMatchedNode(pattern_node), len(step.operands))
            if any(array is None for array in parameters.values()):
                return match.reject("parameter: no constant")
        if any(
            match.GetCapturedTensor(index).value.dtype is DataType.STRING
            for index in range(len(self._plan.constants))
        ):
            return match.reject("string: CreateConst takes numbers")
        return True

    def Replacement(self, match: MatchResult) -> EsGraph:
        plan, builder = self._plan, EsGraphBuilder("replacement")
        placeholders = builder.CreateInputs(len(plan.inputs))
        if plan.call:
            return builder.BuildAndReset(
                list(
                    _tuple(es.op(f"fz::{plan.name}")(*placeholders, num_outputs=len(plan.outputs)))
                )
            )
        fixed = [
            builder.CreateConst(match.GetCapturedTensor(index).value.numpy())
            for index in range(len(plan.constants))
        ]
        results: list[Sequence[EsTensor]] = []

        def tensor(ref: Ref) -> EsTensor | None:
            if isinstance(ref, Made):
                return results[ref.step][ref.slot]
            return (
                placeholders[ref.index]
                if isinstance(ref, Given)
                else fixed[ref.index]
                if isinstance(ref, Fixed)
                else None
            )

        for number, (step, pattern_node) in enumerate(zip(plan.steps, self._nodes, strict=True)):
            node = match.GetMatchedNode(pattern_node)
            operands = [tensor(ref) for ref in step.operands]
            for slot, ref in enumerate(step.operands):
                if (number, slot) in plan.wraps:
                    operands[slot] = same(
                        operands[slot], self._value(match, ref), plan.wraps[number, slot]
                    )
            results.append(_rebuilt(step, node, operands))
        outputs = [
            results[ref.step][ref.slot]
            if way is None
            else same(results[ref.step][ref.slot], value, way)
            for ref, value, way in zip(plan.outputs, match.outputs, plan.finish, strict=True)
        ]
        return builder.BuildAndReset(outputs)

    def _value(self, match: MatchResult, ref: Ref) -> Value | None:
        """What stands for an operand in the model."""
        if isinstance(ref, Made):
            return match.GetMatchedNode(self._nodes[ref.step]).outputs[ref.slot]
        if isinstance(ref, Given):
            return match.inputs[ref.index]
        return match.GetCapturedTensor(ref.index).value if isinstance(ref, Fixed) else None


class FuzzedByHand(FusionBasePass):
    """Finds the matches of a plan and gives their boundaries to ``SubgraphRewriter``."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._fusion = FuzzedFusion(plan)

    def Run(self, graph: Graph, context: CustomPassContext) -> None:
        (pattern,) = self._fusion.Patterns()
        try:
            matcher = PatternMatcher(pattern, graph, self._plan.config, context.registry)
        except Refused:
            return
        for match in matcher:
            if self._fusion.MeetRequirements(match):
                try:
                    SubgraphRewriter.Replace(
                        match.ToSubgraphBoundary(), self._fusion.Replacement(match)
                    )
                except PassError as error:
                    if not isinstance(error.__cause__, Refused):
                        raise
                    context.refuse(match.GetMatchedNode(0), f"by hand: {error}")


class FuzzedDecompose(DecomposePass):
    """Writes single nodes otherwise."""

    def __init__(self, name: str, op_types: Sequence[str], choice: int) -> None:
        super().__init__(op_types)
        self._name = name
        self._choice = choice

    def MeetRequirements(self, node: Node) -> bool | Refusal:
        if _is_own(node, self._name):
            return Refusal.of("own: this pass made it")
        return not node.bodies

    def Replacement(self, node: Node) -> EsGraph:
        builder = EsGraphBuilder("replacement")
        placeholders = builder.CreateInputs(len(node.inputs))
        operands = [
            None if value is None else tensor
            for value, tensor in zip(node.inputs, placeholders, strict=True)
        ]
        step = Step((node.op,), (), len(node.outputs), {}, commutative=False, substitute=True)
        result = _rebuilt(step, node, operands)
        outputs = [
            tensor if value is None else same(tensor, value, self._choice)
            for tensor, value in zip(result, node.outputs, strict=True)
        ]
        return builder.BuildAndReset(outputs)


def _is_own(node: Node, name: str) -> bool:
    return node.metadata.get("gehost.pass") == name


def _tuple(result: Any) -> Sequence[EsTensor]:
    return (result,) if isinstance(result, EsTensor) else tuple(result)


# -- the same operator again, or written with others ----------------------------------------------------------------


def _rebuilt(step: Step, node: Node, operands: list[EsTensor | None]) -> Sequence[EsTensor]:
    parameters = _attributes(node)
    parameters |= {
        name: array.tolist()
        for name, array in _parameters(node, len(operands)).items()
        if array is not None
    }
    if step.substitute and node.op in SUBSTITUTES and step.outputs == 1:
        call = Call(node, [operand for operand in operands if operand is not None], parameters)
        output = SUBSTITUTES[node.op](call)
        if output is not None:
            return (output,)
    return _tuple(es.op(node.op)(*operands, num_outputs=step.outputs, **parameters))


_NEW_NAMES = {("Pad", "value"): "constant_value", ("TopK", "k"): "K"}
_INPUT_NAMES = {
    "Squeeze": ("data", "axes"),
    "Unsqueeze": ("data", "axes"),
    "Split": ("input", "split"),
    "Pad": ("data", "pads", "constant_value", "axes"),
    "TopK": ("X", "K"),
    "Slice": ("data", "starts", "ends", "axes", "steps"),
    "Clip": ("input", "min", "max"),
}


def _attributes(node: Node) -> dict[str, Any]:
    """The attributes under the names of the newest opset."""
    results = {
        _NEW_NAMES.get((node.op, name), name): value
        for name, value in node.attrs.items()
        if name != "num_outputs"
    }
    version = node.graph.model.opset() or 0
    if node.op in ("Softmax", "LogSoftmax") and version < 13:
        results.setdefault("axis", 1)
    return results


def _parameters(node: Node, start: int) -> dict[str, np.ndarray | None]:
    """The inputs from ``start`` on, which are attributes in other opsets and of which the pattern asks nothing; None where one is no constant."""
    names = _INPUT_NAMES.get(node.op, ("data", "axes"))
    return {
        names[slot]: value.array
        for slot, value in enumerate(node.inputs)
        if slot >= start and value is not None
    }
