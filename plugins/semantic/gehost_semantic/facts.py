"""Equalities of sizes that a graph's operators prove: each would fail without."""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Mapping, Sequence

from gehost import Graph, Node
from gehost import sizes as algebra
from gehost_semantic.extents import Extent, total
from gehost_semantic.reader import Reader
from gehost_semantic.view import Unknown


def learn(views: Reader) -> bool:
    """Note the equalities that the operators prove; return whether one is new.

    Operators of equal shapes prove the same, so that one of them is asked.
    """
    is_new = False
    live: Collection[Node] | None = None
    request: set[Hashable] = set()
    for node in views.graph.nodes:
        rule = _PROVING.get(node.op)
        if rule is None:
            continue
        shapes = [None if value is None else value.shape for value in node.inputs]
        equation = node.attrs.get("equation") if node.op == "Einsum" else None
        key = node.op, equation, *shapes, *[v and v.shape for v in node.outputs]
        if key in request:
            continue
        # a runtime drops an operator that no output depends on
        live = _live(views.graph) if live is None else live
        if node not in live:
            continue
        request.add(key)
        try:
            is_new |= rule(views, node)
        except Unknown:
            continue
    return is_new


def _live(graph: Graph) -> Collection[Node]:
    """Return the nodes that the graph's outputs depend on."""
    visited: set[Node] = set()
    todo = [value.producer for value in graph.outputs if value.graph is graph]
    while todo:
        node = todo.pop()
        if node is None or node in visited:
            continue
        visited.add(node)
        read = [value for value in node.inputs if value is not None]
        for body in node.bodies:
            read.extend(value for _, _, value in body.captured())
        todo.extend(value.producer for value in read if value.graph is graph)
    return visited


def _matmul_fact(views: Reader, node: Node) -> bool:
    left, right = views.shape(node.input(0)), views.shape(node.input(1))
    if left is None or right is None or len(left) < 1 or len(right) < 2:
        return False
    is_new = views.extents.learn(left[-1], right[-2])
    return is_new | _spread_fact(views, node, (*left[:-1], 1), (*right[:-2], 1, right[-1]))


def _broadcast_fact(views: Reader, node: Node) -> bool:
    shapes = [views.shape(value) for value in node.inputs]
    entries = [shape for shape in shapes if shape is not None]
    return len(entries) == len(shapes) and _spread_fact(views, node, *entries)


def _einsum_fact(views: Reader, node: Node) -> bool:
    """Name the sizes of a result by those of its letters; a size 1 spreads."""
    operands, arrow, result = str(node.attrs["equation"]).replace(" ", "").partition("->")
    shapes = [views.shape(value) for value in node.inputs]
    output = views.shape(node.outputs[0])
    if not arrow or "." in operands + result or output is None or None in shapes:
        return False
    sizes: dict[str, Extent] = {}
    for letters, shape in zip(operands.split(","), shapes, strict=True):
        for letter, size in zip(letters, shape or (), strict=False):
            sizes[letter] = views.extents.broadcast(sizes.get(letter, 1), size)
    is_new = False
    for letter, size in zip(result, output, strict=False):
        is_new |= views.extents.learn(size, sizes[letter])
    return is_new


def _spread_fact(views: Reader, node: Node, *operands: Sequence[Extent]) -> bool:
    """Name the sizes that inference left open by those of the operands."""
    output = node.outputs[0]
    sizes = None if output is None else views.extents.of_shape(output)
    if output is None or sizes is None or not any(map(is_open, output.shape or ())):
        return False
    is_new = False
    for place, size in enumerate(reversed(sizes), 1):
        own = [operand[-place] for operand in operands if len(operand) >= place]
        is_new |= bool(own) and views.extents.learn(size, views.extents.broadcast(*own))
    return is_new


def _concat_fact(views: Reader, node: Node) -> bool:
    shapes = [views.shape(value) for value in node.inputs]
    first, is_new = shapes[0], False
    if first is None:
        return False
    axis: int = node.attrs["axis"] % max(1, len(first))
    for shape in shapes[1:]:
        if shape is not None and len(shape) == len(first):
            for place, (a, b) in enumerate(zip(first, shape, strict=True)):
                if place != axis and a != b:
                    is_new |= views.extents.learn(b, a)
    return is_new


def _reshape_fact(views: Reader, node: Node) -> bool:
    source = views.shape(node.input(0))
    result = views.shape(node.outputs[0])
    if source is None or result is None:
        return False
    is_new = False
    target = views.elements(node.input(1))
    output = node.outputs[0]
    inferred = None if output is None else views.extents.of_shape(output)
    if target is not None and inferred is not None and len(target) == len(inferred):
        for size, expected in zip(inferred, target, strict=True):
            if expected not in (None, 0, -1, size):
                is_new |= views.extents.learn(size, expected)
    if target is not None and -1 not in target and None not in target:
        is_new |= views.extents.learn_product(total(result), total(source))
    return is_new | _layout_fact(views, node)


def _layout_fact(views: Reader, node: Node) -> bool:
    """Compare the sizes of a view with those that inference found."""
    is_new = False
    for value in node.outputs:
        view = views.of(value)
        if value is None or view is None or view.base is value:
            continue
        inferred = views.extents.of_shape(value)
        if inferred is not None and len(inferred) == len(view.dims):
            for size, other in zip(view.shape, inferred, strict=True):
                if size != other:
                    is_new |= views.extents.learn(other, size)
    return is_new


def _window_fact(views: Reader, node: Node) -> bool:
    """Compute the sizes of a convolution that inference left open."""
    source, weights = views.shape(node.input(0)), views.shape(node.input(1))
    result = views.shape(node.outputs[0])
    if source is None or weights is None or result is None:
        return False
    attrs, count, is_new = node.attrs, len(source) - 2, False
    if attrs.get("auto_pad", "NOTSET") != "NOTSET":
        return False
    pads = attrs.get("pads", [0] * 2 * count)
    strides = attrs.get("strides", [1] * count)
    dilations = attrs.get("dilations", [1] * count)
    for place in range(count):
        padded = source[2 + place] + pads[place] + pads[count + place]
        reach = dilations[place] * (weights[2 + place] - 1) + 1
        size = views.extents.scope.floordiv(padded - reach, strides[place]) + 1
        if result[2 + place] != size:
            is_new |= views.extents.learn(result[2 + place], size)
    return is_new


def is_open(dim: int | str | None) -> bool:
    """Whether a size has a part that inference has no name for."""
    return dim is None or algebra.is_invented(dim)


_PROVING: Mapping[str, Callable[[Reader, Node], bool]] = {
    "Conv": _window_fact,
    "Einsum": _einsum_fact,
    "MatMul": _matmul_fact,
    **dict.fromkeys(["Add", "And", "Div", "Mul", "Sub", "Where"], _broadcast_fact),
    "Concat": _concat_fact,
    "Reshape": _reshape_fact,
    "Expand": _layout_fact,
    "Slice": _layout_fact,
    "Split": _layout_fact,
    "Squeeze": _layout_fact,
    "Flatten": _layout_fact,
    "Gather": _layout_fact,
}
