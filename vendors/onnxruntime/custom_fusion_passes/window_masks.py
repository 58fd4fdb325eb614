"""Masks of windows, added behind a Reshape, as part of the mask that the attention passes read.

``s [B·W, N, S, T], a → Add → Reshape [B, W, N, S, T];  c → Add → Reshape [B·W, N, S, T]``
``==>   c → Expand [B, W, 1, S, T] → Reshape [B·W, 1, S, T] → m;  a, m → Add → mask;``
``s, mask → Add``

Swin's shifted windows export like this: a is the bias of relative positions, c a constant
[1, W, 1, S, T] of −100 between parts of the image that are no neighbours. The mask of windows is
repeated for each image of the batch.

swin.dynopt: attention in 4 of 4 layers, 2 without this pass; 205 nodes → 124 (154), 9.5e-07 from
the original for batches of 1 to 3. Of TorchScript's export, which counts windows, too.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from gehost import (
    REG_FUSION_PASS,
    CustomPassStage,
    EsGraphBuilder,
    FusionBasePass,
    Refusal,
    Region,
    es,
)

from ._instances import instance
from ._numbers import FAR, NEAR, is_near, is_near_or_far
from ._shapes import Sources, shape_of, sources_of
from ._types import not_float

if TYPE_CHECKING:
    from collections.abc import Iterator

    import onnx

    from gehost import CustomPassContext, EsTensor, Graph, Node, Value


@REG_FUSION_PASS(stage=CustomPassStage.kAfterBuiltinFusionPass, default=False)
class OrtWindowMaskPass(FusionBasePass):
    """Add the mask of shifted windows to the bias of positions.

    Forms: with and without bias; constants as either addend. Opset 13 and later.
    Keeps: the numbers, but for the rounding of a sum in another order.
    Refuses: ``mask``: no constant [1, W, 1 or N, S, T], or with numbers between 256 and 1e30;
    ``bias``: no constant [1, N, S, T] up to 256; ``layout``: sizes that are not proven to be those
    of the picture; ``batch``: the number of images is no size of an input; ``dtype``: not float32.
    Source: the definition of Reshape, which keeps the order of elements.
    """

    def Run(self, graph: Graph, context: CustomPassContext) -> None:
        if graph.depth or (graph.model.opset() or 0) < 13:
            return
        sources = sources_of(graph)
        for softmax in graph.nodes_of("Softmax"):
            windows = _windows(softmax)
            if windows is None:
                continue
            reason = _refusal(windows, sources)
            if reason:
                context.refuse(softmax, reason)
            else:
                _fuse(context, windows, sources)

    def Instances(self) -> Iterator[onnx.ModelProto]:
        """Yield models of four windows, with a bias of positions and without one."""
        for bias in ("a = Add (s, near)", "a = Identity (s)"):
            yield instance(
                "float[B, 4, 6] q, float[B, 4, 6] k",
                f"""qs = Reshape (q, rows) ks = Reshape (k, columns) s = MatMul (qs, ks) {bias}
                w = Reshape (a, apart) m = Add (w, part) t = Reshape (m, joined)
                y = Softmax <axis = -1> (t)""",
                result="float[C, 2, 3, 3] y",
                constants="""int64[4] rows = {-1, 2, 3, 1}, int64[4] columns = {-1, 2, 1, 3},
                int64[5] apart = {-1, 4, 2, 3, 3}, int64[4] joined = {-1, 2, 3, 3}""",
                near=(1, 2, 3, 3),
                part=(1, 4, 1, 3, 3),
            )


@dataclass(frozen=True)
class _Windows:
    nodes: list[Node]
    """(Add), Reshape, Add, Reshape."""
    scores: Value
    bias: Value | None
    apart: Value
    """[B, W, N, S, T]."""
    mask: Value
    joined: Value


def _windows(softmax: Node) -> _Windows | None:
    """Find scores that a Reshape takes apart for a mask of rank 5."""
    joined = softmax.inputs[0]
    last = None if joined is None else joined.producer
    add = _made(last, 0) if last is not None and last.op == "Reshape" else None
    if joined is None or last is None or add is None or add.op != "Add":
        return None
    for slot in (0, 1):
        first, mask = _made(add, slot), add.inputs[1 - slot]
        apart = add.inputs[slot]
        if first is None or first.op != "Reshape" or mask is None or apart is None:
            continue
        if (mask.rank or 0) < 4 or apart.rank != 5:
            continue
        scores, bias, nodes = first.inputs[0], None, [first, add, last]
        before = None if scores is None else scores.producer
        if before is not None and before.op == "Add":
            pair = sorted(before.inputs, key=lambda value: value is not None and value.is_constant)
            scores, bias = pair
            nodes.insert(0, before)
        return None if scores is None else _Windows(nodes, scores, bias, apart, mask, joined)
    return None


def _made(node: Node | None, slot: int) -> Node | None:
    value = None if node is None else node.inputs[slot]
    return None if value is None else value.producer


def _refusal(windows: _Windows, sources: Sources) -> str | None:
    """Return why a mask cannot be moved, None where it can."""
    if not_float(windows.scores):
        return not_float(windows.scores)
    given, apart, joined = (
        shape_of(one) for one in (windows.scores, windows.apart, windows.joined)
    )
    if given is None or apart is None or joined is None or len(given) != 4 or len(joined) != 4:
        return "layout: the scores are not of rank 4"
    numbers = [size for size in apart[1:] if isinstance(size, int) and size > 0]
    # with these equal, the first axes follow from the number of elements
    if len(numbers) < 4 or not tuple(numbers[1:]) == given[1:] == joined[1:]:
        return f"layout: {list(given)}, {list(apart)} and {list(joined)} are no windows"
    if not _fits(windows.mask, (1, *numbers)):
        return f"mask: no constant [1, {numbers[0]}, 1 or {numbers[1]}, {numbers[2]}, {numbers[3]}]"
    if windows.bias is not None:
        if not _fits(windows.bias, (1, *numbers[1:])):
            return f"bias: no constant {[1, *numbers[1:]]}"
        if not is_near(windows.bias):
            return f"bias: not all of it within {NEAR:g}"
        if not is_near_or_far(windows.mask):
            return f"mask: numbers between {NEAR:g} and {FAR:g}"
    batch = apart[0]
    if not isinstance(batch, int) and str(batch) not in sources:
        return f"batch: {batch} is no size of an input"
    return None


def _fits(value: Value, wanted: tuple[int, ...]) -> bool:
    """Whether a constant is added without making other axes longer."""
    array = value.array if value.is_constant else None
    if array is None or array.ndim > len(wanted):
        return False
    shape = (1,) * (len(wanted) - array.ndim) + array.shape
    return all(size in (1, most) for size, most in zip(shape, wanted, strict=True))


def _fuse(context: CustomPassContext, windows: _Windows, sources: Sources) -> None:
    region = Region.of_nodes(windows.nodes)
    if not region:
        context.refuse(windows.nodes[0], region.reason)
        return
    assert not isinstance(region, Refusal)
    apart, array = shape_of(windows.apart), windows.mask.array
    assert apart is not None
    assert array is not None
    batch, *inner = apart
    axes = array.reshape((1,) * (5 - array.ndim) + array.shape).shape
    inner = [int(size or 0) for size in inner]
    inner[1] = axes[2]  # each head's or one for all
    given = list(region.inputs)
    source = None if isinstance(batch, int) else sources[str(batch)]
    if source is not None and source[0] not in given:
        given.append(source[0])
    region = Region(region.graph, given, region.results, region.nodes)
    builder = EsGraphBuilder("window_mask")
    inputs = dict(zip(given, builder.CreateInputs(len(given)), strict=True))
    shape: EsTensor | np.ndarray
    if source is None:
        shape = np.array([batch, *inner])
    else:
        count = es.Gather(es.Shape(inputs[source[0]]), np.array([source[1]]))
        shape = es.Concat(count, np.array(inner), axis=0)
    mask = es.Reshape(es.Expand(inputs[windows.mask], shape), np.array([-1, *inner[1:]]))
    if windows.bias is not None:
        mask = inputs[windows.bias] + mask
    total = inputs[windows.scores] + mask
    context.replace(region, builder.BuildAndReset([total]), keep_shared=True)
