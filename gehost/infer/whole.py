"""Inference of a whole model, node by node.

The result goes into the index, never into the file.

ONNX's inference functions infer single nodes (``local``), once for all nodes with equal operator,
attributes and input types; computed shapes are traced back from their uses (``refined``). So
the cost depends on the number of different nodes, no weight is read, and large tensors are never
written out.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

import onnx

from gehost.errors import ModelError
from gehost.infer.local import Inferrer, is_scan, small_array
from gehost.ir.gc_policy import gc_disabled
from gehost.ir.graph import Graph, Node, Value
from gehost.ir.integers import taken_branch
from gehost.ir.model import Model
from gehost.ir.types import (
    DataType,
    Dim,
    OtherType,
    TensorType,
    ValueType,
    encode_type,
    more_specific,
)
from gehost.ops import OpRegistry
from gehost.refusal import Refused

_Types: TypeAlias = Sequence[ValueType | None]

_TRIALS = 3
"""Number of attempts to prove which sizes the states of a body keep."""
_DEEPEST_TRIED = 2
"""Deepest body for which sizes are proven, as each attempt repeats the bodies inside."""


def infer_model(model: Model, inferrer: Inferrer | None = None) -> None:
    """Set the type of every value, as far as inference knows.

    Commits all edits so far.

    Args:
        model: its graph and bodies are inferred.
        inferrer: has the operators of the vendors, which ONNX does not know.

    Raises:
        VendorError: the shape function of a vendor's operator failed.
    """
    model.commit()
    inferrer = inferrer or Inferrer(model, OpRegistry())
    inferrer.walk = infer_graph
    with gc_disabled():
        for value in model.graph.inputs:
            inferrer.take_names(value.type)
        for value in model.graph.inputs:
            value.known_type = inferrer.named(_by_facts(value), value=value)
        infer_graph(model.graph, inferrer)


def _by_facts(value: Value) -> ValueType | None:
    """Return the type of an input, with its sizes as the facts about their names have them."""
    value_type, scope = value.type, value.graph.model.sizes
    if (
        not isinstance(value_type, TensorType)
        or value_type.shape is None
        or not value.graph.model.facts
    ):
        return value_type
    sizes = scope.parse_all(value_type.shape)
    dims = [size if size is None or isinstance(size, int) else str(size) for size in sizes]
    return TensorType(value_type.dtype, tuple(dims))


def infer_graph(graph: Graph, inferrer: Inferrer) -> None:
    """Infer one graph of a model, with the bodies in it."""
    for node in graph.nodes:
        try:
            types = _with_bodies(node, inferrer) if node.bodies else inferrer.node(node)
        except (Refused, ModelError) as error:  # impossible types, unreadable constants
            text = error.message if isinstance(error, Refused) else str(error)
            inferrer.failures[node] = text
            continue
        if inferrer.failures:  # a body may be inferred again with other types
            inferrer.failures.pop(node, None)
        for value, value_type in zip(node.outputs, types):  # noqa: B905 - a body may return too few values
            if value is not None:
                _learn(value, value_type, inferrer)


def _learn(value: Value, value_type: ValueType | None, inferrer: Inferrer) -> None:
    """Set a value's inferred type, replacing the one declared in the file.

    A model runs regardless of the sizes that the file declares for computed tensors, so such sizes
    are ignored, and a declared name is only a label: it does not make two sizes equal. A declared
    type stays only if inference does not know the operator.
    """
    declared = value.type
    if value_type is None:
        value_type, declared = declared, None
    elif isinstance(value_type, TensorType) and isinstance(declared, TensorType):
        value_type = TensorType(value_type.dtype or declared.dtype, value_type.shape)
    if value_type is not None:
        value.known_type = inferrer.named(value_type, declared, value)


# nodes with bodies


def _with_bodies(node: Node, inferrer: Inferrer) -> _Types:
    """Return the output types of a node after inferring its bodies."""
    model = node.graph.model
    op = "" if model.function(node.op) is not None else node.op
    if op == "Loop":
        return _of_loop(node, inferrer)
    if is_scan(op, model.opset()):
        return _of_scan(node, inferrer)
    for body in node.bodies:
        infer_graph(body, inferrer)
    if op != "If":
        return inferrer.node(node)
    branch = taken_branch(node)
    if branch is not None:
        return [value.type for value in branch.outputs]
    first, *others = [[value.type for value in body.outputs] for body in node.bodies]
    for other in others:
        first = list(map(_either, first, other))
    return first


def _of_loop(node: Node, inferrer: Inferrer) -> _Types:
    begin = [None if value is None else value.type for value in node.inputs[2:]]
    counted = [TensorType(DataType.INT64, None), TensorType(DataType.BOOL, None)]
    end = _in_repeated(node.bodies[0], 1, inferrer, begin, before=counted)
    scanned = [_with_axis(value_type, 0, None) for value_type in end[len(begin) :]]
    limits = [value for value in (node.input(0), node.input(1)) if value is not None]
    arrays = [small_array(value) for value in limits]
    if not all(array is not None and array.size == 1 and array.item() > 0 for array in arrays):
        # without an iteration, ONNX Runtime makes all sizes of these outputs 0
        scanned = [
            TensorType(value_type.dtype, (None,) * len(value_type.shape))
            if isinstance(value_type, TensorType) and value_type.shape is not None
            else value_type
            for value_type in scanned
        ]
    return [*map(_either, begin, end), *scanned]


def _of_scan(node: Node, inferrer: Inferrer) -> _Types:
    attributes = node.attrs
    types = [None if value is None else value.type for value in node.inputs]
    count = len(types) - attributes.get("num_scan_inputs", 0)
    begin, scanned = types[:count], types[count:]
    axes = attributes.get("scan_input_axes") or [0] * len(scanned)
    slices: list[ValueType | None] = []
    length: Dim = None  # the number of slices
    for value_type, axis in zip(scanned, axes, strict=False):
        if (
            isinstance(value_type, TensorType)
            and value_type.shape is not None
            and -len(value_type.shape) <= axis < len(value_type.shape)
        ):
            dims = list(value_type.shape)
            length = more_specific(length, dims.pop(axis))
            slices.append(TensorType(value_type.dtype, tuple(dims)))
        else:
            slices.append(_of_any_shape(value_type))
    end = _in_repeated(node.bodies[0], 0, inferrer, begin, behind=slices)
    places = attributes.get("scan_output_axes") or [0] * (len(end) - count)
    stacked = [
        _with_axis(value_type, axis, length)
        for value_type, axis in zip(end[count:], places, strict=False)
    ]
    return [*map(_either, begin, end), *stacked]


def _in_repeated(
    body: Graph,
    skipped: int,
    inferrer: Inferrer,
    begin: _Types,
    *,
    before: _Types = (),
    behind: _Types = (),
) -> _Types:
    """Infer a body that runs repeatedly; return the types after ``skipped``.

    States begin with the types ``begin``. A size that an iteration changes becomes unknown, and the
    body is inferred again; if they still differ, the shapes of all states become unknown.
    """
    inputs = body.inputs[len(before) : len(before) + len(begin)]
    states, vague = list(begin), list(map(_of_any_shape, begin))
    declared = [
        (value, value.known_type)
        for graph in (body, *body.subgraphs())
        for value in graph.values.values()
    ]
    for _ in range(_TRIALS if body.depth <= _DEEPEST_TRIED else 0):
        if states == vague:
            break
        proven = False
        try:
            _in_body(body, [*before, *states, *behind], inferrer)
            end = [value.type for value in body.outputs[skipped:]]
            entering = [
                _forget_open_sizes(value.type, state)
                for value, state in zip(inputs, states, strict=False)
            ]
            leaving = list(map(_either, entering, end))
            proven = leaving == entering and len(entering) == len(begin)
            if proven:
                return end
        finally:
            if not proven:
                for value, value_type in declared:
                    value.known_type = value_type
                body.model.integers.forget()
        states = leaving if len(leaving) == len(begin) else vague
    _in_body(body, [*before, *vague, *behind], inferrer)
    return [value.type for value in body.outputs[skipped:]]


def _forget_open_sizes(value_type: ValueType | None, other: ValueType | None) -> ValueType | None:
    """Return a type without the sizes that ``other`` leaves open."""
    if not isinstance(value_type, TensorType) or not isinstance(other, TensorType):
        return value_type
    if value_type.shape is None or other.shape is None or len(value_type.shape) != len(other.shape):
        return value_type
    pairs = zip(value_type.shape, other.shape, strict=True)
    return TensorType(value_type.dtype, tuple([None if b is None else a for a, b in pairs]))


def _in_body(body: Graph, entering: _Types, inferrer: Inferrer) -> None:
    for value, value_type in zip(body.inputs, entering, strict=False):
        _learn(value, value_type, inferrer)
    infer_graph(body, inferrer)


def _of_any_shape(value_type: ValueType | None) -> ValueType | None:
    """Return the type of a value whose shape an iteration may change."""
    if isinstance(value_type, TensorType):
        return TensorType(value_type.dtype, None)
    if value_type is None:
        return None
    proto = encode_type(value_type)
    _forget_shapes(proto)
    return OtherType(proto.SerializeToString(deterministic=True))


def _forget_shapes(proto: onnx.TypeProto) -> None:
    kind = proto.WhichOneof("value")
    if kind in ("tensor_type", "sparse_tensor_type"):
        getattr(proto, kind).ClearField("shape")
    elif kind in ("sequence_type", "optional_type"):
        _forget_shapes(getattr(proto, kind).elem_type)
    elif kind == "map_type":
        _forget_shapes(proto.map_type.value_type)


def _either(one: ValueType | None, other: ValueType | None) -> ValueType | None:
    """Return the common part of two types that a value may have."""
    if one == other or one is None or other is None:
        return one if one == other else None
    if not isinstance(one, TensorType) or not isinstance(other, TensorType):
        one, other = _of_any_shape(one), _of_any_shape(other)
        return one if one == other else None
    if one.dtype != other.dtype:
        return None
    if one.shape is None or other.shape is None or len(one.shape) != len(other.shape):
        return TensorType(one.dtype, None)
    return TensorType(
        one.dtype,
        tuple([a if a == b else None for a, b in zip(one.shape, other.shape, strict=True)]),
    )


def _with_axis(value_type: ValueType | None, axis: int, length: Dim) -> ValueType | None:
    """Return the type of a tensor of ``length`` slices."""
    if (
        not isinstance(value_type, TensorType)
        or value_type.shape is None
        or not -len(value_type.shape) <= axis + (axis < 0) <= len(value_type.shape)
    ):
        return _of_any_shape(value_type)
    axis %= len(value_type.shape) + 1
    return TensorType(
        value_type.dtype, (*value_type.shape[:axis], length, *value_type.shape[axis:])
    )
