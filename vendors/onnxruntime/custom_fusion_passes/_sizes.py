"""Sizes of a graph in its inputs' sizes, found in one walk.

A size is a number, a symbol of a graph input (``batch``; ``input_ids:1`` without one), or None.
Shape inference loses symbols where an exporter computes a shape from parts (Shape, Gather, Concat,
Where, Expand); here the contents of such small integer tensors are followed, too. Two sizes are
equal if they are the same number or the same symbol; None is equal to nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Self

import numpy as np

if TYPE_CHECKING:
    from gehost import Graph, Node, Value

Size = int | str | None

Sizes = tuple[Size, ...]

_MOST = 16
"""Elements of a tensor whose contents are followed."""
_ENDLESS = np.iinfo(np.int32).max
"""An end of a slice that exporters write for the last element."""
_LIKE_FIRST = frozenset(
    (
        *(
            "Abs",
            "Cast",
            "Clip",
            "Cos",
            "CumSum",
            "Dropout",
            "Elu",
            "Erf",
            "Exp",
            "Gelu",
            "Identity",
            "IsNaN",
        ),
        *("LayerNormalization", "LeakyRelu", "Log", "Neg", "Not", "Reciprocal", "Relu"),
        *("RMSNormalization", "Sigmoid", "SimplifiedLayerNormalization", "Sin", "Softmax", "Sqrt"),
        *("Tanh", "gehost::Gelu", "gehost::RMSNormalization", "com.microsoft::RotaryEmbedding"),
    )
)
_BROADCAST = frozenset(
    (
        *("Add", "And", "Div", "Equal", "Greater", "GreaterOrEqual", "Less", "LessOrEqual", "Max"),
        *("Min", "Mul", "Or", "Pow", "Sub", "Where", "Xor"),
    )
)


class Cut(str):
    """The smaller of a size and a number that is at least 1."""

    __slots__ = ("most", "of")

    def __new__(cls, of: str, most: int) -> Self:
        if isinstance(of, Cut):  # cut off before
            of, most = of.of, min(of.most, most)
        made = super().__new__(cls, f"min({of}, {most})")
        made.of, made.most = of, most
        return made


class Times(str):
    """A multiple of a size, as of two axes in one."""

    __slots__ = ("factor", "of")

    def __new__(cls, of: str, factor: int) -> Self:
        made = super().__new__(cls, f"{factor}×{of}")
        made.of, made.factor = of, factor
        return made


def same(left: Size, right: Size) -> bool:
    """Proven equal."""
    return left is not None and left == right


def all_same(left: Sequence[Size] | None, right: Sequence[Size] | None) -> bool:
    """Both known, of one length, and equal size by size."""
    return (
        left is not None
        and right is not None
        and len(left) == len(right)
        and all(map(same, left, right))
    )


class GraphSizes:
    """Sizes of a root graph's values, and contents of small integer tensors."""

    def __init__(self, graph: Graph) -> None:
        self._sizes: dict[str, Sizes] = {}
        self._contents: dict[str, tuple[int, list[Size]]] = {}
        self.sources: dict[str, tuple[Value, int]] = {}
        """Where a symbol can be read: an input of the graph, and its axis."""
        for value in graph.inputs:
            if value.shape is not None and not value.is_constant:
                self._sizes[value.name] = tuple(
                    f"{value.name}:{axis}" if size is None else size
                    for axis, size in enumerate(value.shape)
                )
                for axis, size in enumerate(self._sizes[value.name]):
                    if isinstance(size, str):
                        self.sources.setdefault(size, (value, axis))
        for node in graph.nodes:
            self.visit(node)

    def of(self, value: Value | None) -> Sizes | None:
        """The sizes of a value; None where its rank is unknown."""
        if value is None:
            return None
        known = self._sizes.get(value.name)
        return known if known is not None else value.shape

    def contents(self, value: Value | None) -> tuple[int, list[Size]] | None:
        """Rank (0 or 1) and elements of a small integer tensor."""
        if value is None:
            return None
        array = value.array if value.is_constant else None
        if array is not None:
            if array.dtype.kind not in "iu" or array.ndim > 1 or array.size > _MOST:
                return None
            return array.ndim, [int(element) for element in array.reshape(-1)]
        return self._contents.get(value.name)

    def visit(self, node: Node) -> None:
        """Work out a node's outputs from its inputs."""
        for index, output in enumerate(node.outputs):
            if output is None:
                continue
            found, stated = self._rule(node, index), output.shape
            if found is None:
                found = stated
            elif stated is not None and len(stated) == len(found):
                found = tuple(
                    other if isinstance(other, int) or own is None else own
                    for own, other in zip(found, stated, strict=True)
                )
            if found is not None:
                self._sizes[output.name] = found
        output = node.outputs[0]
        contents = None if output is None else self._content_rule(node)
        if output is not None and contents is not None and len(contents[1]) <= _MOST:
            self._contents[output.name] = contents

    def _rule(self, node: Node, index: int) -> Sizes | None:
        op = node.op
        if index == 0 and op in _LIKE_FIRST:
            return self.of(node.inputs[0])
        if op in _BROADCAST:
            return _broadcast([self.of(value) for value in node.inputs])
        rule = _RULES.get(op)
        return None if rule is None else rule(self, node, index)

    def _content_rule(self, node: Node) -> tuple[int, list[Size]] | None:
        rule = _CONTENTS.get(node.op)
        return None if rule is None else rule(self, node)


def remove_dead(graph: Graph) -> None:
    """Remove nodes without readers."""
    for node in reversed(list(graph.nodes)):
        if all(out is None or not (out.readers or out.is_graph_output) for out in node.outputs):
            graph.remove_node(node)


def _broadcast(given: Sequence[Sizes | None]) -> Sizes | None:
    if any(sizes is None for sizes in given):
        return None
    known = [sizes for sizes in given if sizes is not None]
    rank = max(map(len, known))
    padded = [(1,) * (rank - len(sizes)) + sizes for sizes in known]
    return tuple(_wider(column) for column in zip(*padded, strict=True))


def _wider(column: Sequence[Size]) -> Size:
    others = {size for size in column if size != 1}
    # a size cut off at another one fits that one, or no size fits
    others -= {size for size in others if isinstance(size, Cut) and size.of in others}
    if not others:
        return 1
    if len(others) == 1:
        return others.pop()
    numbers = [size for size in others if isinstance(size, int)]
    return numbers[0] if len(numbers) == 1 else None  # a number other than 1 wins


def _transpose(sizes: GraphSizes, node: Node, _index: int) -> Sizes | None:
    given = sizes.of(node.inputs[0])
    if given is None:
        return None
    perm = node.attrs.get("perm") or list(range(len(given)))[::-1]
    return tuple(given[axis] for axis in perm)


def _matmul(sizes: GraphSizes, node: Node, _index: int) -> Sizes | None:
    a, b = (sizes.of(value) for value in node.inputs)
    if a is None or b is None or len(a) < 2 or len(b) < 2:
        return None
    batch = _broadcast([a[:-2], b[:-2]])
    return None if batch is None else (*batch, a[-2], b[-1])


def _gemm(sizes: GraphSizes, node: Node, _index: int) -> Sizes | None:
    a, b = (sizes.of(value) for value in node.inputs[:2])
    if a is None or b is None or len(a) != 2 or len(b) != 2:
        return None
    attrs = node.attrs
    return a[1 if attrs.get("transA") else 0], b[0 if attrs.get("transB") else 1]


def _gather(sizes: GraphSizes, node: Node, _index: int) -> Sizes | None:
    data, indices = (sizes.of(value) for value in node.inputs)
    if data is None or indices is None:
        return None
    axis = int(node.attrs.get("axis") or 0) % len(data)
    return (*data[:axis], *indices, *data[axis + 1 :])


def _reshape(sizes: GraphSizes, node: Node, _index: int) -> Sizes | None:
    given, target = sizes.of(node.inputs[0]), sizes.contents(node.inputs[1])
    if target is None:
        return None
    found = list(target[1])
    for axis, size in enumerate(found):
        if size == 0:
            if node.attrs.get("allowzero") or given is None or axis >= len(given):
                return None
            found[axis] = given[axis]
    if -1 in found:
        found[found.index(-1)] = None if given is None else _rest(given, found)
    elif given is not None:
        # as many elements before as behind: nothing is cut off where only the whole fits
        whole = [size.of if isinstance(size, Cut) else size for size in found]
        return tuple(whole) if _rest(given, whole) == 1 else tuple(found)
    return tuple(found)


def _rest(given: Sizes, target: list[Size]) -> Size:
    """Return the size that -1 stands for, after cancelling equal symbols."""
    left: list[Size] = list(given)
    numbers = 1
    for size in target:
        if size == -1:
            continue
        if isinstance(size, int):
            numbers *= size
        elif size is not None and size in left:
            left.remove(size)
        elif isinstance(size, Times) and size.of in left:
            left.remove(size.of)
            numbers *= size.factor
        else:
            multiple = next(
                (one for one in left if isinstance(one, Times) and one.of == size), None
            )
            if multiple is None:
                return None
            left[left.index(multiple)] = multiple.factor
    symbols = [size for size in left if not isinstance(size, int)]
    factors = [size for size in left if isinstance(size, int)]
    factors += [size.factor for size in symbols if isinstance(size, Times)]
    count = int(np.prod(factors, dtype=np.int64))
    if not numbers or not count or count % numbers or len(symbols) > 1:
        return None
    count //= numbers
    if not symbols:
        return count
    # a symbol may be 0, and then the runtime decides on -1
    symbol = symbols[0].of if isinstance(symbols[0], Times) else symbols[0]
    return symbol if symbol is None or count == 1 else Times(symbol, count)


def _expand(sizes: GraphSizes, node: Node, _index: int) -> Sizes | None:
    target = sizes.contents(node.inputs[1])
    return None if target is None else _broadcast([sizes.of(node.inputs[0]), tuple(target[1])])


def _axes(sizes: GraphSizes, node: Node) -> list[int] | None:
    if len(node.inputs) > 1:
        found = sizes.contents(node.inputs[1])
        axes = None if found is None else found[1]
    else:
        axes = node.attrs.get("axes")
    if axes is None or any(not isinstance(axis, int) for axis in axes):
        return None
    return [int(axis) for axis in axes if isinstance(axis, int)]


def _unsqueeze(sizes: GraphSizes, node: Node, _index: int) -> Sizes | None:
    given, axes = sizes.of(node.inputs[0]), _axes(sizes, node)
    if given is None or axes is None:
        return None
    rank = len(given) + len(axes)
    new = {axis % rank for axis in axes}
    old = iter(given)
    return tuple(1 if axis in new else next(old) for axis in range(rank))


def _squeeze(sizes: GraphSizes, node: Node, _index: int) -> Sizes | None:
    given, axes = sizes.of(node.inputs[0]), _axes(sizes, node)
    if given is None or axes is None:
        return None
    gone = {axis % len(given) for axis in axes}
    return tuple(size for axis, size in enumerate(given) if axis not in gone)


def _concat(sizes: GraphSizes, node: Node, _index: int) -> Sizes | None:
    given = [sizes.of(value) for value in node.inputs]
    if any(one is None for one in given):
        return None
    known = [one for one in given if one is not None]
    axis = int(node.attrs.get("axis") or 0) % len(known[0])
    along = [one[axis] for one in known]
    numbers = [size for size in along if isinstance(size, int)]
    total = sum(numbers) if len(numbers) == len(along) else None
    others = tuple(
        next((one[place] for one in known if one[place] is not None), None)
        for place in range(len(known[0]))
    )
    return (*others[:axis], total, *others[axis + 1 :])


def _split(sizes: GraphSizes, node: Node, index: int) -> Sizes | None:
    given, output = sizes.of(node.inputs[0]), node.outputs[index]
    if given is None or output is None:
        return None
    axis = int(node.attrs.get("axis") or 0) % len(given)
    stated = output.shape
    return (*given[:axis], None if stated is None else stated[axis], *given[axis + 1 :])


def _slice(sizes: GraphSizes, node: Node, _index: int) -> Sizes | None:
    given = sizes.of(node.inputs[0])
    axes = sizes.contents(node.inputs[3]) if len(node.inputs) > 3 else None
    if given is None or axes is None or any(not isinstance(axis, int) for axis in axes[1]):
        return None
    count = len(axes[1])
    starts, ends = sizes.contents(node.inputs[1]), sizes.contents(node.inputs[2])
    steps = sizes.contents(node.inputs[4]) if len(node.inputs) > 4 else (1, [1] * count)
    found = list(given)
    for place, axis in enumerate(axes[1]):
        assert isinstance(axis, int)
        size, found[axis] = given[axis], None
        if count == 1:
            found[axis] = _last(sizes, node, size)
        if starts is None or ends is None or steps is None:
            continue
        start, end, step = starts[1][place], ends[1][place], steps[1][place]
        if not isinstance(start, int) or not isinstance(step, int) or not isinstance(size, int):
            continue
        if isinstance(end, int) and step > 0:
            found[axis] = len(range(size)[start:end:step])
        elif isinstance(end, str) and (start, step) == (0, 1) and size:
            found[axis] = Cut(end, size)
    return tuple(found)


def _last(sizes: GraphSizes, node: Node, size: Size) -> Size:
    """Return what a Slice of one axis keeps of its end, None where it is none such.

    ``[-n:]`` of n elements keeps all; ``[max(0, size - n):]`` keeps the smaller of n and size.
    """
    end = sizes.contents(node.inputs[2])
    steps = sizes.contents(node.inputs[4]) if len(node.inputs) > 4 else (1, [1])
    if end is None or steps is None or steps[1] != [1] or len(end[1]) != 1:
        return None
    start, last = _scalar(node.inputs[1]), end[1][0]
    maker = None if start is None else start.producer
    if maker is None or not isinstance(last, int) or last < _ENDLESS:
        return None
    if maker.op == "Neg":
        count = _only(sizes, maker.inputs[0])
        return size if same(count, size) else None
    if maker.op != "Max" or len(maker.inputs) != 2 or not isinstance(size, int) or size < 1:
        return None
    for slot in (0, 1):
        if _only(sizes, maker.inputs[slot]) == 0:
            count = _subtracted(sizes, maker.inputs[1 - slot], size)
            return Cut(count, size) if isinstance(count, str) else None
    return None


def _subtracted(sizes: GraphSizes, value: Value | None, size: int) -> Size:
    """Return n where a value is ``size - n`` or ``size + n · -1``."""
    maker = None if value is None else value.producer
    if maker is None or maker.op not in {"Add", "Sub"} or _only(sizes, maker.inputs[0]) != size:
        return None
    other = maker.inputs[1]
    if maker.op == "Sub":
        return _only(sizes, other)
    minus = None if other is None else other.producer
    if minus is None or minus.op != "Mul":
        return None
    left, right = (_only(sizes, one) for one in minus.inputs)
    return right if left == -1 else left if right == -1 else None


def _scalar(value: Value | None) -> Value | None:
    """The number that a Reshape or Unsqueeze makes a vector; as given without one."""
    maker = None if value is None else value.producer
    return maker.inputs[0] if maker is not None and maker.op in {"Reshape", "Unsqueeze"} else value


def _only(sizes: GraphSizes, value: Value | None) -> Size:
    """The one element of a tensor that is followed."""
    found = sizes.contents(value)
    return found[1][0] if found is not None and len(found[1]) == 1 else None


def _range(sizes: GraphSizes, node: Node, _index: int) -> Sizes | None:
    start, limit, delta = (sizes.contents(value) for value in node.inputs)
    if start == (0, [0]) and delta == (0, [1]) and limit is not None:
        return (limit[1][0],)
    return (None,)


def _resize(sizes: GraphSizes, node: Node, _index: int) -> Sizes | None:
    target = sizes.contents(node.input(3))
    whole = node.attrs.get("axes") is None
    stretched = node.attrs.get("keep_aspect_ratio_policy", "stretch") == "stretch"
    return tuple(target[1]) if target is not None and whole and stretched else None


def _reduce(sizes: GraphSizes, node: Node, _index: int) -> Sizes | None:
    given, axes = sizes.of(node.inputs[0]), _axes(sizes, node)
    if given is None or not axes:
        return None
    gone = {axis % len(given) for axis in axes}
    if node.attrs.get("keepdims", 1):
        return tuple(1 if axis in gone else size for axis, size in enumerate(given))
    return tuple(size for axis, size in enumerate(given) if axis not in gone)


def _gather_elements(sizes: GraphSizes, node: Node, _index: int) -> Sizes | None:
    return sizes.of(node.inputs[1])


def _gather_nd(sizes: GraphSizes, node: Node, _index: int) -> Sizes | None:
    data, indices = (sizes.of(value) for value in node.inputs)
    if data is None or indices is None or node.attrs.get("batch_dims"):
        return None
    depth = indices[-1]
    return (*indices[:-1], *data[depth:]) if isinstance(depth, int) else None


def _pad(sizes: GraphSizes, node: Node, _index: int) -> Sizes | None:
    given, pads = sizes.of(node.inputs[0]), sizes.contents(node.input(1))
    if given is None or pads is None or node.input(3) is not None:
        return None
    before, after = pads[1][: len(given)], pads[1][len(given) :]
    return tuple(
        size if (left, right) == (0, 0) else _sum(size, left, right)
        for size, left, right in zip(given, before, after, strict=True)
    )


def _sum(*sizes: Size) -> Size:
    numbers = [size for size in sizes if isinstance(size, int)]
    return sum(numbers) if len(numbers) == len(sizes) else None


def _constant_of_shape(sizes: GraphSizes, node: Node, _index: int) -> Sizes | None:
    target = sizes.contents(node.inputs[0])
    return None if target is None else tuple(target[1])


def _attention(sizes: GraphSizes, node: Node, index: int) -> Sizes | None:
    query, output = sizes.of(node.inputs[0]), node.outputs[0]
    stated = None if output is None else output.shape
    if query is None or index:
        return None
    return (*query[:2], None if stated is None else stated[-1])


def _skip(sizes: GraphSizes, node: Node, index: int) -> Sizes | None:
    return sizes.of(node.inputs[0]) if index in {0, 3} else None


_RULES: dict[str, Callable[[GraphSizes, Node, int], Sizes | None]] = {
    "Concat": _concat,
    "ConstantOfShape": _constant_of_shape,
    "Expand": _expand,
    "Gather": _gather,
    "GatherElements": _gather_elements,
    "GatherND": _gather_nd,
    "Gemm": _gemm,
    "MatMul": _matmul,
    "Pad": _pad,
    "Range": _range,
    "ReduceMax": _reduce,
    "ReduceMean": _reduce,
    "ReduceSum": _reduce,
    "Reshape": _reshape,
    "Resize": _resize,
    "Slice": _slice,
    "Split": _split,
    "Squeeze": _squeeze,
    "Transpose": _transpose,
    "Unsqueeze": _unsqueeze,
    "com.microsoft::MultiHeadAttention": _attention,
    "com.microsoft::SkipLayerNormalization": _skip,
    "com.microsoft::SkipSimplifiedLayerNormalization": _skip,
}

_Contents = tuple[int, list[Size]] | None


def _shape_contents(sizes: GraphSizes, node: Node) -> _Contents:
    given = sizes.of(node.inputs[0])
    if given is None:
        return None
    end = node.attrs.get("end")
    return 1, list(given[node.attrs.get("start") or 0 : len(given) if end is None else end])


def _gather_contents(sizes: GraphSizes, node: Node) -> _Contents:
    given, index = sizes.contents(node.inputs[0]), sizes.contents(node.inputs[1])
    if given is None or given[0] != 1 or index is None or node.attrs.get("axis"):
        return None
    if any(not isinstance(i, int) or not -len(given[1]) <= i < len(given[1]) for i in index[1]):
        return None
    return index[0], [given[1][i] for i in index[1] if isinstance(i, int)]


def _as_vector(sizes: GraphSizes, node: Node) -> _Contents:
    given = sizes.contents(node.inputs[0])
    rank = sizes.of(node.outputs[0])
    return None if given is None or rank is None or len(rank) > 1 else (len(rank), given[1])


def _cast_contents(sizes: GraphSizes, node: Node) -> _Contents:
    integer = node.op == "Identity" or node.attrs.get("to") in (6, 7)
    return sizes.contents(node.inputs[0]) if integer else None


def _concat_contents(sizes: GraphSizes, node: Node) -> _Contents:
    parts = [sizes.contents(value) for value in node.inputs]
    if any(part is None or part[0] != 1 for part in parts):
        return None
    return 1, [size for part in parts if part is not None for size in part[1]]


def _div_contents(sizes: GraphSizes, node: Node) -> _Contents:
    """Quotients of sizes by one number, as the images of a count of windows."""
    given, by = sizes.contents(node.inputs[0]), sizes.contents(node.inputs[1])
    if given is None or by is None or len(by[1]) != 1:
        return None
    divisor = by[1][0]
    if not isinstance(divisor, int) or divisor < 1:
        return None
    return max(given[0], by[0]), [_quotient(size, divisor) for size in given[1]]


def _mul_contents(sizes: GraphSizes, node: Node) -> _Contents:
    """Multiples of a size, as of batch and heads in one axis."""
    left, right = (sizes.contents(value) for value in node.inputs)
    if left is None or right is None or len(left[1]) != 1 or len(right[1]) != 1:
        return None
    return max(left[0], right[0]), [_product(left[1][0], right[1][0])]


def _product(left: Size, right: Size) -> Size:
    if isinstance(left, int) and isinstance(right, int):
        return left * right
    for factor, size in ((left, right), (right, left)):
        if not isinstance(factor, int) or not isinstance(size, str) or factor < 1:
            continue
        whole = size.of if isinstance(size, Times) else size
        count = factor * size.factor if isinstance(size, Times) else factor
        return whole if count == 1 else Times(whole, count)
    return None


def _quotient(size: Size, divisor: int) -> Size:
    if isinstance(size, int):
        return size // divisor if size >= 0 else None
    if not isinstance(size, Times) or size.factor % divisor:
        return None
    factor = size.factor // divisor
    return size.of if factor == 1 else Times(size.of, factor)


def _min_contents(sizes: GraphSizes, node: Node) -> _Contents:
    """The smaller of a size and a number, as of a length and the most positions."""
    known = [sizes.contents(value) for value in node.inputs]
    found = [one[1][0] for one in known if one is not None and one[0] == 0]
    if len(found) != 2 or len(known) != 2:
        return None
    numbers = [size for size in found if isinstance(size, int)]
    symbols = [size for size in found if isinstance(size, str)]
    if len(numbers) == 2:
        return 0, [min(numbers)]
    return (0, [Cut(symbols[0], numbers[0])]) if numbers and symbols and numbers[0] >= 1 else None


def _slice_contents(sizes: GraphSizes, node: Node) -> _Contents:
    given, *ends = (sizes.contents(value) for value in node.inputs)
    if given is None or given[0] != 1 or len(ends) < 2:
        return None
    numbers = [end[1][0] if end is not None and len(end[1]) == 1 else None for end in ends]
    start, stop = numbers[0], numbers[1]
    step = numbers[3] if len(numbers) > 3 else 1
    if not isinstance(start, int) or not isinstance(stop, int) or step != 1:
        return None
    return 1, given[1][start:stop]


def _where_contents(sizes: GraphSizes, node: Node) -> _Contents:
    """``Where(Equal(x, -1), 1, x)``: a size from the graph's inputs is never -1."""
    condition, ones, given = node.inputs
    equal = None if condition is None else condition.producer
    known = sizes.contents(given)
    if equal is None or equal.op != "Equal" or given is None or known is None:
        return None
    other = [value for value in equal.inputs if value is not given]
    minus, one = sizes.contents(other[0]) if len(other) == 1 else None, sizes.contents(ones)
    if minus is None or one is None or set(minus[1]) != {-1} or set(one[1]) != {1}:
        return None
    return known[0], [1 if size == -1 else size for size in known[1]]


_CONTENTS: dict[str, Callable[[GraphSizes, Node], _Contents]] = {
    "Cast": _cast_contents,
    "Concat": _concat_contents,
    "Div": _div_contents,
    "Gather": _gather_contents,
    "Identity": _cast_contents,
    "Min": _min_contents,
    "Mul": _mul_contents,
    "Reshape": _as_vector,
    "Shape": _shape_contents,
    "Slice": _slice_contents,
    "Squeeze": _as_vector,
    "Unsqueeze": _as_vector,
    "Where": _where_contents,
}
