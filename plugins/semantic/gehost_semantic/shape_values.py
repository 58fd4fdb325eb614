"""Elements and shapes that the host's inference leaves open, from those of a graph's views."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, TypeAlias

from gehost import Node, Value
from gehost_semantic.extents import Extent

if TYPE_CHECKING:
    from gehost_semantic.views import Views

Vector: TypeAlias = list[Extent | None]

_DEPTH = 32
_MOST = 64
_UNCHANGED = frozenset({"Cast", "Flatten", "Identity", "Reshape", "Squeeze", "Unsqueeze"})
_SAME_SHAPE = frozenset(
    {
        "Abs", "Cast", "Ceil", "Clip", "Cos", "CumSum", "Elu", "Erf", "Exp", "Floor", "Gelu",
        "IsNaN", "LayerNormalization", "LeakyRelu", "Log", "Neg", "Not", "RMSNormalization",
        "Reciprocal", "Relu", "Round", "Sigmoid", "Sign", "Sin", "Softmax", "Sqrt", "Tanh", "Trilu",
    }
)  # fmt: skip
BROADCAST = frozenset(
    {
        "Add", "And", "Div", "Equal", "Greater", "GreaterOrEqual", "Less", "LessOrEqual", "Max",
        "Min", "Mod", "Mul", "Or", "Pow", "Sub", "Sum", "Where",
    }
)  # fmt: skip


def elements(views: Views, value: Value | None, depth: int = _DEPTH) -> Vector | None:
    """Return the elements of an integer vector or scalar; None where one is unknown."""
    found = views.extents.of_elements(value)
    if value is None or depth == 0 or (found is not None and None not in found):
        return found
    if value.dtype is not None and value.dtype.is_float:
        return found
    node = value.producer
    if node is None or value.rank not in (0, 1, None):
        return found
    computed = _computed(views, node, depth)
    return found if computed is None else computed


def _computed(views: Views, node: Node, depth: int) -> Vector | None:
    if node.op == "Shape":
        shape = views.shape(node.input(0))
        if shape is None:
            return None
        return list(shape[node.attrs.get("start", 0) : node.attrs.get("end")])
    if node.op == "If":
        branch = views.branch(node)
        return None if branch is None else elements(views, branch.outputs[0], depth - 1)
    if node.op not in _UNCHANGED | {"Concat", "Gather", "Slice", *_OPERATIONS}:
        return None
    inputs = [elements(views, operand, depth - 1) for operand in node.inputs]
    if not inputs or inputs[0] is None:
        return None
    first = inputs[0]
    if node.op in _UNCHANGED:
        return first
    if node.op == "Concat":
        joined = [size for part in inputs if part is not None for size in part]
        return None if None in inputs or len(joined) > _MOST else joined
    if node.op == "Gather":
        places = inputs[1]
        if places is None or not all(
            isinstance(place, int) and -len(first) <= place < len(first) for place in places
        ):
            return None
        return [first[place] for place in places if isinstance(place, int)]
    if node.op == "Slice":
        numbers: Vector = [part[0] if part else None for part in inputs[1:]]
        start, end = numbers[0], numbers[1]
        step = numbers[3] if len(numbers) > 3 else 1
        if not isinstance(start, int) or not isinstance(end, int) or step != 1:
            return None
        return first[start:end]
    operands = [part for part in inputs if part is not None]
    count = max(map(len, operands))
    if len(operands) < len(inputs) or any(len(part) not in (1, count) for part in operands):
        return None
    wide = [part if len(part) == count else part * count for part in operands]
    return [
        None if None in entries else _OPERATIONS[node.op](views, entries)
        for entries in zip(*wide, strict=True)
    ]


def _divided(views: Views, args: Sequence[Extent]) -> Extent | None:
    """ONNX's division rounds toward zero."""
    a, b = args
    extents = views.extents
    if b == 0 or not (extents.at_least(a, 0) and extents.at_least(b, 0)):
        return None
    return extents.scope.floordiv(a, b)


def _rest(views: Views, args: Sequence[Extent]) -> Extent | None:
    a, b = args
    return None if b == 0 else views.extents.scope.mod(a, b)


_OPERATIONS: Mapping[str, Callable[[Views, Sequence[Extent]], Extent | None]] = {
    "Add": lambda _, args: args[0] + args[1],
    "Div": _divided,
    "Max": lambda views, args: views.extents.scope.max(*args),
    "Min": lambda views, args: views.extents.scope.min(*args),
    "Mod": _rest,
    "Mul": lambda _, args: args[0] * args[1],
    "Neg": lambda _, args: -args[0],
    "Sub": lambda _, args: args[0] - args[1],
}


def shape(views: Views, value: Value) -> tuple[Extent, ...] | None:
    """Return the sizes of a result without a known rank."""
    node = value.producer
    if node is None or value.index:
        return None
    if node.op in _SAME_SHAPE:
        return views.shape(node.input(0))
    if node.op == "Concat":
        return _joined(views, node)
    if node.op == "Reshape":
        return _reshaped(views, node)
    if node.op not in BROADCAST | {"Einsum", "MatMul"}:
        return None
    shapes = [views.shape(operand) for operand in node.inputs]
    known = [each for each in shapes if each is not None]
    if len(known) < len(shapes):
        return None
    if node.op == "Einsum":
        return _einsum(views, str(node.attrs["equation"]), known)
    if node.op == "MatMul":
        left, right = known
        if len(left) < 2 or len(right) < 2:
            return None
        outer = _broadcast(views, [left[:-2], right[:-2]])
        return (*outer, left[-2], right[-1])
    return _broadcast(views, known)


def _broadcast(views: Views, shapes: Sequence[tuple[Extent, ...]]) -> tuple[Extent, ...]:
    rank = max(map(len, shapes))
    wide = [(1,) * (rank - len(each)) + each for each in shapes]
    return tuple(views.extents.broadcast(*sizes) for sizes in zip(*wide, strict=True))


def _einsum(
    views: Views, equation: str, shapes: Sequence[tuple[Extent, ...]]
) -> tuple[Extent, ...] | None:
    operands, arrow, result = equation.replace(" ", "").partition("->")
    terms = operands.split(",")
    if not arrow or "." in equation or list(map(len, terms)) != list(map(len, shapes)):
        return None
    sizes: dict[str, Extent] = {}
    for letters, own in zip(terms, shapes, strict=True):
        for letter, size in zip(letters, own, strict=True):
            sizes[letter] = views.extents.broadcast(sizes.get(letter, 1), size)
    return tuple(sizes[letter] for letter in result)


def _joined(views: Views, node: Node) -> tuple[Extent, ...] | None:
    shapes = [views.shape(operand) for operand in node.inputs]
    first = shapes[0]
    if first is None or None in shapes:
        return None
    axis: int = node.attrs["axis"] % len(first)
    size: Extent = sum([each[axis] for each in shapes if each is not None], start=0)
    return (*first[:axis], size, *first[axis + 1 :])


def _reshaped(views: Views, node: Node) -> tuple[Extent, ...] | None:
    target = elements(views, node.input(1))
    if target is None or None in target or any(size in (0, -1) for size in target):
        return None
    return tuple(size for size in target if size is not None)
