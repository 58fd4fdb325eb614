"""Grouped Conv  ==>  Split + Convs + Concat.

``x, w, b → Conv[group=g]   ==>   (x, w, b → Split) → g × Conv → Concat``
"""

from collections.abc import Sequence
from typing import Any

from gehost import (
    REG_DECOMPOSE_PASS,
    CustomPassStage,
    DecomposePass,
    EsGraph,
    EsGraphBuilder,
    Node,
    Refusal,
    Value,
    es,
)

MAX_GROUPS = 32
"""A depthwise convolution of hundreds of channels would become as many nodes; targets have a
kernel for those.
"""


@REG_DECOMPOSE_PASS(["Conv"], stage=CustomPassStage.kAfterInferShape, default=False)
class DecomposeGroupedConvPass(DecomposePass):
    """Replace a Conv of g groups by g Convs of one group.

    Each works on its part of the channels.

    Off by default: for targets without a kernel for groups, others lose by it.

    Shapes: x [N, C, d…], w [M, C/g, k…], b [M] or absent, any number of spatial axes; result [N, M,
    o…]. N and d may be unknown. ``shape_proven``: the parts have the batch and spatial sizes of x
    and the attributes of the Conv, so that each result is [N, M/g, o…] with the same o, and the g
    of them are M channels.
    Keeps: dtype, all attributes but ``group``; weights need not be constant (clean-up folds the
    Split of those that are).
    Refuses: one group; more than ``MAX_GROUPS``; M or C/g not known; M that g does not divide; x
    with another number of channels than w.
    Source: GE's example "grouped Conv → Split + Convs + Concat"; ONNX Conv-11.
    """

    shape_proven = True

    def MeetRequirements(self, node: Node) -> bool | Refusal:
        groups = node.attrs.get("group", 1)
        if groups < 2:
            return node.reject(f"group: {groups}; there is nothing to take apart")
        if groups > MAX_GROUPS:
            return node.reject(f"groups: {groups} are more than {MAX_GROUPS}")
        result, read = _channels(node.inputs[1])
        if not isinstance(result, int) or not isinstance(read, int):
            return node.reject("channels: the weights do not have their number")
        argument = _channels(node.inputs[0])[1]
        if result % groups or (isinstance(argument, int) and argument != read * groups):
            return node.reject(f"channels: {groups} groups do not divide them")
        return True

    def Replacement(self, node: Node) -> EsGraph:
        attributes = dict(node.attrs)
        groups = attributes.pop("group")
        result, read = _channels(node.inputs[1])
        builder = EsGraphBuilder("split_convs_concat")
        image, kernel, *bias = builder.CreateInputs(3 if node.input(2) is not None else 2)
        images = es.Split(image, split=[read] * groups, axis=1)
        kernels = es.Split(kernel, split=[result // groups] * groups, axis=0)
        biases = (
            es.Split(bias[0], split=[result // groups] * groups, axis=0)
            if bias
            else [None] * groups
        )
        parts = [
            es.Conv(x, w, b, **attributes) for x, w, b in zip(images, kernels, biases, strict=True)
        ]
        return builder.BuildAndReset([es.Concat(*parts, axis=1)])


def _channels(value: Value | None) -> Sequence[Any]:
    """Return the first two sizes.

    They are, of weights, the channels that are made and that a group reads; of an image, N and
    C.
    """
    shape = value.shape if value is not None else None
    return shape[:2] if shape is not None and len(shape) > 1 else (None, None)
