"""Relu after Concat  ==>  Relu before it.

``x₁ … xₙ → Concat → Relu   ==>   (x₁ → Relu) … (xₙ → Relu) → Concat``
"""

from collections.abc import Iterator, Sequence

import onnx
import onnx.parser

from gehost import (
    NOT_CHANGED,
    REG_FUSION_PASS,
    SUCCESS,
    CustomPassContext,
    CustomPassStage,
    EsGraph,
    EsGraphBuilder,
    FusionBasePass,
    Graph,
    Node,
    NodeIo,
    Status,
    SubgraphBoundary,
    SubgraphInput,
    SubgraphOutput,
    SubgraphRewriter,
    Value,
    es,
)

_AXIS_OF_CONCAT_1 = 1
"""The default of ``axis``, which Concat has until opset 3."""


@REG_FUSION_PASS(stage=CustomPassStage.kAfterInferShape, default=False)
class MoveReluBeforeConcatPass(FusionBasePass):
    """Give every operand of a Concat its own Relu.

    The producers of the operands may then take it in.

    Off by default: where nothing takes the Relus in, a model has more nodes than before.
    Written as a whole-graph pass: it finds the sites itself and marks each out with a
    ``SubgraphBoundary``.

    Shapes: x₁ … xₙ any that Concat takes.
    Keeps: dtype, axis, and the name of the result. A Concat of Concats is followed to its ends at
    once, so that a second run finds nothing; an operand that stands twice gets one Relu, one that
    is the result of a Relu none, so that a chain of Concat and Relu takes one step for each.
    Refuses: a Concat whose result has another reader, is a graph output or is read by a nested
    body: it would stay.
    Source: GE's example "move Relu before Concat"; max(0, ·) goes element by element.
    """

    def Run(self, graph: Graph, context: CustomPassContext) -> Status:
        changed = False
        rectified: set[Value] = set()
        for relu in graph.nodes_of("Relu"):
            concat = _concat_before(relu)
            if concat is None:
                continue
            if len(_result(concat).readers) > 1:
                context.refuse(relu, "readers: the Concat is also read by others")
                continue
            tree = _tree(concat, rectified)
            readers = _readers(tree)
            boundary = SubgraphBoundary()
            for index, nodes in enumerate(readers.values()):
                boundary.AddInput(index, SubgraphInput(nodes))
            boundary.AddOutput(0, SubgraphOutput(NodeIo(relu, 0)))
            replacement = _relus_then_concat(tree, list(readers), rectified)
            rectified.add(_result(relu))
            SubgraphRewriter.Replace(boundary, replacement)
            changed = True
        return SUCCESS if changed else NOT_CHANGED

    def Instances(self) -> Iterator[onnx.ModelProto]:
        """Yield models of one Concat, and of a nested one.

        Each has an operand that stands twice and a rectified one.
        """
        for lines in (
            "c = Concat <axis = 1> (a, b) y = Relu (c)",
            "r = Relu (b) c = Concat <axis = 1> (a, r) d = Concat <axis = 1> (c, a) y = Relu (d)",
        ):
            yield onnx.parser.parse_model(
                '<ir_version: 8, opset_import: ["": 17]> g (float[2,3] a, float[2,N] b) '
                f"=> (float[2,M] y) {{ {lines} }}"
            )


def _result(node: Node) -> Value:
    (result,) = node.outputs
    assert result is not None
    return result


def _is_rectified(value: Value, rectified: set[Value]) -> bool:
    """Whether another Relu would change nothing: Relu(Relu(x)) = Relu(x)."""
    return value in rectified or (value.producer is not None and value.producer.op == "Relu")


def _concat_before(relu: Node) -> Node | None:
    source = relu.inputs[0]
    producer = source.producer if source is not None else None
    return (
        producer
        if producer is not None and producer.op == "Concat" and producer.graph is relu.graph
        else None
    )


def _tree(concat: Node, rectified: set[Value]) -> list[Node]:
    """Return the Concat and those below it, in topological order.

    All their readers are among them, and none joins results of Relu already.
    """
    results = {concat: None}
    grown = [concat]
    for node in grown:  # grows while it is walked; the last reader of a Concat brings it in
        for value in node.inputs:
            inner = None if value is None or value in rectified else value.producer
            if (
                inner is not None
                and inner.op == "Concat"
                and inner.graph is node.graph
                and inner not in results
                and results.keys() >= set(_result(inner).readers)
            ):
                results[inner] = None
                grown.append(inner)
    return sorted(results, key=lambda node: node.order)


def _readers(tree: Sequence[Node]) -> dict[Value, list[NodeIo]]:
    """Return each tensor that enters the tree, with its inputs."""
    inner = {_result(node) for node in tree}
    readers: dict[Value, list[NodeIo]] = {}
    for node in tree:
        for slot, value in enumerate(node.inputs):
            if value is not None and value not in inner:
                readers.setdefault(value, []).append(NodeIo(node, slot))
    return readers


def _relus_then_concat(
    tree: Sequence[Node], entering: Sequence[Value], rectified: set[Value]
) -> EsGraph:
    builder = EsGraphBuilder("relus_concat")
    inputs = zip(entering, builder.CreateInputs(len(entering)), strict=True)
    results = {
        value: tensor if _is_rectified(value, rectified) else es.Relu(tensor)
        for value, tensor in inputs
    }
    for node in tree:
        results[_result(node)] = es.Concat(
            *(results[value] for value in node.inputs),
            axis=node.attrs.get("axis", _AXIS_OF_CONCAT_1),
        )
    return builder.BuildAndReset([results[_result(tree[-1])]])
