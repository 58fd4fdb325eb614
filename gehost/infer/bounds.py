"""Keeps whole-model inference from what it cannot hold: shapes that a few nodes blow up beyond all memory.

ONNX's inference writes every dimension out. ``Concat(s, s)`` over a shape doubles what it propagates, and forty in a row
take a terabyte; so do ranks that come from the length of a vector, and ``Gather(x, x)``. A ``Slice`` with a step beyond
32 bits makes it count in circles, and a ``Split`` with more outputs than it says ends the process. Bounds are cheap to tell
beforehand. A node of which no good bound is known is left out here; node by node inference, which sees the types and
propagates nothing, has its turn later.
"""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Iterable, MutableMapping, Sequence
from functools import cache
from math import inf, prod
from typing import NamedTuple

import onnx

from gehost.errors import ModelError
from gehost.ir import tensors

MOST = 4096
"""Elements of a shape, and dimensions of a tensor."""

_PASSED_ON = frozenset({"Abs", "Cast", "CastLike", "Flatten", "Identity", "Neg", "Not", "Slice", "Squeeze"})
_ELEMENTWISE = frozenset(
    {"Add", "And", "Div", "Equal", "Greater", "GreaterOrEqual", "Less", "LessOrEqual", "Max", "Min", "Mod", "Mul", "Or", "Pow"}
    | {"Sub", "Where"}
)
GROWING = frozenset({"Concat", "ConstantOfShape", "Expand", "Gather", "GatherND", "Reshape", "Unsqueeze"})
"""Operators whose results may have more elements or dimensions than all of their inputs."""
_PROPAGATING = frozenset({"Add", "Cast", "Concat", "Gather", "Mul", "Slice", "Squeeze", "Sub", "Unsqueeze"})
"""What inference computes with the elements of, writing out as many as there are stated to be."""
WATCHED = GROWING | {"Slice", "Split"}
_COMPUTED = GROWING | _PASSED_ON | _ELEMENTWISE | {"Shape", "Size"}
_LARGEST_STEP = 2**31


class _Bound(NamedTuple):
    """What a tensor has at most: elements, infinitely many where nothing is known, and dimensions."""

    size: float
    rank: float
    product: float = inf
    """Of the elements."""
    constant: onnx.TensorProto | None = None


_Scope = MutableMapping[str, _Bound]
_UNKNOWN = _Bound(inf, 8)
_ARGUMENT = _Bound(64, 8)


def leave_out(model: onnx.ModelProto) -> None:
    """Change a copy of a model so that ONNX's inference of it as a whole finds no node that may blow up."""
    _in_graph(model.graph, {})
    for function in model.functions:
        _in_nodes(function.node, dict.fromkeys(function.input, _ARGUMENT))


def grows_too_much(op: str, shapes: Iterable[tuple[object, ...] | None]) -> bool:
    """Whether the result of a node would have more dimensions than anybody writes out, by the shapes of its inputs."""
    if op not in GROWING:
        return False
    known = [shape for shape in shapes if shape is not None]
    return any(isinstance(size, int) and size > MOST for shape in known for size in shape[:1] if len(shape) == 1) or (
        sum(map(len, known)) > MOST
    )


def miscounts_outputs(node: onnx.NodeProto) -> bool:
    """Whether a ``Split`` says another number of outputs than it has, which ONNX's inference believes beyond all memory."""
    return node.op_type == "Split" and any(
        attribute.name == "num_outputs" and attribute.i != len(node.output) for attribute in node.attribute
    )


def _in_graph(graph: onnx.GraphProto, outer: _Scope) -> None:
    scope: _Scope = ChainMap({}, outer) if outer else {}
    for info in (*graph.value_info, *graph.output, *graph.input):
        shape = info.type.tensor_type.shape.dim
        known = all(dim.HasField("dim_value") for dim in shape) and info.type.tensor_type.HasField("shape")
        scope[info.name] = _Bound(prod(dim.dim_value for dim in shape) if known else inf, max(len(shape), 1))
    for tensor in graph.initializer:
        scope[tensor.name] = _of_tensor(tensor)
    _in_nodes(graph.node, scope)


def _in_nodes(nodes: Iterable[onnx.NodeProto], scope: _Scope) -> None:
    for node in nodes:
        op, attributes = node.op_type, node.attribute[:]
        for attribute in attributes:
            if attribute.HasField("g"):
                _in_graph(attribute.g, scope)
            for body in attribute.graphs[:]:
                _in_graph(body, scope)
        inputs = [scope.get(name, _UNKNOWN) for name in node.input[:]]
        bound = _bound(op, attributes, inputs)
        if (
            bound.rank > MOST
            or (op in _PROPAGATING and _is_long(inputs, bound))
            or (op == "Split" and miscounts_outputs(node))
            or (op == "Slice" and len(inputs) > 4 and not _is_small(inputs[4].constant))
        ):
            node.op_type += " that ONNX does not know"
            bound = _UNKNOWN
        for name in node.output[:]:
            stated = scope.get(name)
            scope[name] = bound if stated is None else _believed(bound, stated)


def _believed(bound: _Bound, stated: _Bound) -> _Bound:
    """Of a tensor whose type the file states: inference believes a size, whatever makes the tensor."""
    size = bound.size if stated.size == inf else max(bound.size, stated.size)
    return bound._replace(size=size, rank=max(bound.rank, stated.rank))


def _of_tensor(tensor: onnx.TensorProto) -> _Bound:
    dims = tensor.dims[:]
    return _Bound(prod(dims), len(dims), constant=tensor)


def _is_long(inputs: Sequence[_Bound], output: _Bound) -> bool:
    """Whether inference would write out the elements of a vector too long."""
    for one in inputs:
        if one.rank > 1:
            return False
    return any(MOST < one.size < inf for one in (*inputs, output))


def _is_small(steps: onnx.TensorProto | None) -> bool:
    """Whether the numbers of a constant are known to fit 32 bits."""
    if steps is None or steps.data_type not in (onnx.TensorProto.INT32, onnx.TensorProto.INT64):
        return False
    try:
        return all(abs(number) < _LARGEST_STEP for number in tensors.to_numpy(steps, None).flat)
    except ModelError:  # its data is elsewhere, or was left out of the copy
        return False


def _product(*sizes: float) -> float:
    """Of sizes, infinite where it is beyond every float: unlike an integer it stays small while it grows from node to node."""
    try:
        return 0 if 0 in sizes else prod(map(float, sizes))
    except OverflowError:
        return inf


def _bound(op: str, attributes: Iterable[onnx.AttributeProto], inputs: Sequence[_Bound]) -> _Bound:
    """Of the outputs of a node; it may be in any state, and of any domain."""
    if op == "Constant":
        return _of_constant(attributes)
    if not inputs:
        return _UNKNOWN
    rank = max([bound.rank for bound in inputs])
    if op not in _COMPUTED:
        return _of_rank(rank + (op == "OneHot"))
    first, second = inputs[0], inputs[1] if len(inputs) > 1 else _Bound(0, 0)
    if op == "Shape":
        return _Bound(first.rank, 1, first.size)
    if op == "Size":
        return _Bound(1, 0)
    if op == "Concat":
        return _Bound(sum(bound.size for bound in inputs), rank)
    if op == "Gather":
        return _Bound(second.size if first.rank <= 1 else _product(first.size, second.size), first.rank + second.rank)
    if op == "GatherND":
        return _Bound(inf, first.rank + second.rank)
    if op == "Unsqueeze":
        axes = max((len(attribute.ints) for attribute in attributes), default=0)
        return _Bound(first.size, first.rank + max(axes, second.size))
    if op == "Reshape":
        return _Bound(first.size, second.size)
    if op == "ConstantOfShape":
        return _Bound(first.product, first.size)
    if op == "Expand":
        return _Bound(inf, max(rank, second.size))
    if op in _PASSED_ON:
        return first if op in ("Cast", "Identity") else _Bound(first.size, rank)
    sizes = [bound.size for bound in inputs]
    return _Bound(max(sizes) if rank <= 1 else _product(*sizes), rank)


def _of_constant(attributes: Iterable[onnx.AttributeProto]) -> _Bound:
    lengths = [_of_tensor(entry.t) if entry.HasField("t") else _Bound(len(entry.ints) + 1, 1) for entry in attributes]
    return max(lengths, key=lambda bound: bound.size, default=_UNKNOWN)


@cache
def _of_rank(rank: float) -> _Bound:
    """Of a tensor of which only the rank is bounded; there are many of each."""
    return _Bound(inf, rank)
