"""AddCustom of zero  ==>  nothing:   x, 0 → ge::AddCustom   ==>   x."""

from gehost import (
    REG_FUSION_PASS,
    CustomPassStage,
    DataType,
    EsGraph,
    EsGraphBuilder,
    EsTensor,
    Graph,
    MatchResult,
    Pattern,
    PatternFusionPass,
    Refusal,
    es,
    ops,
    shapes,
)

ADD_CUSTOM = "ge::AddCustom"


@ops.register(ADD_CUSTOM, outputs=["z"])
def add_custom(x: EsTensor, y: EsTensor) -> EsTensor:
    """The sum of x and y, as an operator of its own."""
    return es.Add(x, y)


@REG_FUSION_PASS(stage=CustomPassStage.kAfterInferShape)
class RemoveAddCustomZeroPass(PatternFusionPass):
    """Replace ``ge::AddCustom(x, 0)`` or ``ge::AddCustom(0, x)`` with x.

    The operator is not ONNX's, so that the matcher does not know it to commute: each order is a
    pattern.

    Shapes: x any; the zeros broadcast into x without widening it, which proves the sum to have the
    shape of x even where nothing is known of the operator's result (``shape_proven``).
    Keeps: dtype; a graph output keeps its name behind an Identity.
    Refuses: zeros that widen x, or may; bool; a model that brings an ``AddCustom`` of its own that
    is not this sum.
    Source: GE's example "remove Add of zero in a custom operator"; x + 0 = x.
    """

    shape_proven = True

    def Patterns(self) -> list[Pattern]:
        patterns: list[Pattern] = []
        for zero_first in (False, True):
            builder = EsGraphBuilder("zero_add_custom" if zero_first else "add_custom_zero")
            x = builder.CreateInput(0)
            patterns.append(
                Pattern(
                    builder.BuildAndReset(
                        [es.AddCustom(0, x) if zero_first else es.AddCustom(x, 0)]
                    )
                )
            )
        return patterns

    def MeetRequirements(self, match: MatchResult) -> bool | Refusal:
        (x,) = match.inputs
        if not _is_the_sum(match.graph):
            return match.reject("operator: the model brings another AddCustom")
        for operand in match.GetMatchedNode(0).inputs:
            if operand is None or operand.dtype is DataType.BOOL:
                return match.reject("dtype: bool has no zero to add")
            if operand is not x and operand.rank != 0 and not shapes.broadcasts_into(operand, x):
                return match.reject("zeros: they widen x, or may")
        return True

    def Replacement(self, _match: MatchResult) -> EsGraph:
        builder = EsGraphBuilder("x")
        return builder.BuildAndReset([builder.CreateInput(0)])


def _is_the_sum(graph: Graph) -> bool:
    """Whether the operator has no function, or this sum.

    The function must have two inputs and one output, made by ONNX's ``Add`` (of opset 7 or newer,
    which broadcasts as this one) from both inputs. Between them only ``Identity`` may stand.
    """
    function = graph.model.functions.get(ADD_CUSTOM)
    if function is None:
        return True
    if len(function.input) != 2 or len(function.output) != 1:
        return False
    opsets = {entry.domain or "ai.onnx": entry.version for entry in function.opset_import}
    if opsets.get("ai.onnx", 0) < 7:
        return False
    sums: dict[str, list[str]] = {}
    copies = {name: name for name in function.input}
    for node in function.node:
        if node.domain not in ("", "ai.onnx") or node.attribute or len(node.output) != 1:
            return False
        if node.op_type == "Identity" and len(node.input) == 1:
            source, (copy,) = node.input[0], node.output
            copies[copy] = copies.get(source, source)
        elif node.op_type == "Add":
            sums[node.output[0]] = sorted(copies.get(name, name) for name in node.input)
        else:
            return False
    (output,) = function.output
    return sums.get(copies.get(output, output)) == sorted(function.input)
