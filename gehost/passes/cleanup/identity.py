"""Remove nodes that return their first input.

1. ``Identity(x)``                                   ==>   x
2. ``Cast(x, to=dtype of x)``, also ``CastLike``     ==>   x
3. ``Transpose(x, perm=[0, 1, …])``                  ==>   x
4. ``Reshape(x, s)``: every entry of the constant s keeps its dimension: it is 0 (without
   ``allowzero``) or the known size, or the only -1 beside known, positive sizes   ==>   x
5. ``Expand(x, s)``: s has no more entries than x dimensions, each 1 or the known size   ==>   x
6. ``Dropout(x)`` in inference mode, its mask unused ==>   x
7. ``Concat(x)``, also Max, Mean, Min, Sum of one    ==>   x
8. ``Reshape``, ``Expand``, ``Slice`` with steps of 1: the result has the shape of x, by names that
   inference proves equal                            ==>   x
9. ``Flatten(x)`` of two axes, ``Pad(x)`` by nothing, ``Split(x)`` in one part, ``Tile(x)`` once
                                                     ==>   x
10. arithmetic with a neutral constant: ``neutral``  ==>   x
Keeps: the known type of the output, which x then has.
Refused: the result is a graph output (which keeps its name), a nested body hides the name of x, or
the types of x and the result contradict each other.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

from gehost.errors import ModelError
from gehost.ir.constants import SMALL, elements, stored_bytes
from gehost.ir.graph import Node, Value
from gehost.ir.types import TensorType
from gehost.passes.cleanup import neutral
from gehost.passes.cleanup.dead import retire
from gehost.passes.cleanup.state import State
from gehost.refusal import Refused


def eliminate(state: State, node: Node) -> bool:
    """Remove a node that returns its input.

    Returns False if it does not, or must stay.
    """
    gives_back = _FORMS.get(node.op)
    if gives_back is not None:
        source = node.input(0)
        if source is None or not _is_plain(state, node) or not gives_back(state, node, source):
            return False
    elif node.op in neutral.OPERATORS:
        source = neutral.unchanged_operand(state, node)
        if source is None or not _is_plain(state, node):
            return False
    else:
        return False
    return forward_operand(state, node, source)


def _is_plain(state: State, node: Node) -> bool:
    """Whether a node is what ONNX says of its operator."""
    return state.purity.is_builtin(node.op) and state.purity.is_well_formed(node)


def forward_operand(state: State, node: Node, source: Value) -> bool:
    """Let the readers of a node's first result read an equal value; the node goes.

    Returns False if it must stay.
    """
    result = node.outputs[0] if node.outputs else None
    if result is None or any(
        value is not None and (value.readers or value.name in state.protected)
        for value in node.outputs[1:]
    ):
        return False
    if not state.can_forward(result, source):
        return False
    state.forward(result, source)
    state.counts.identities += 1
    retire(state, node)
    return True


def _keeps_dtype(_state: State, node: Node, source: Value) -> bool:
    producer = source.producer
    if producer is not None and producer.op == "Constant" and "value" not in producer.attrs:
        return False  # folded instead: onnxslim reads ``value_float`` as a double
    if node.op == "Cast":
        return source.dtype is not None and node.attrs.get("to") == int(source.dtype)
    like = node.input(1)
    return source.dtype is not None and like is not None and like.dtype == source.dtype


def _keeps_order(_state: State, node: Node, _source: Value) -> bool:
    order = node.attrs.get("perm")
    return (
        order is not None
        and len(order) > 0
        and all(axis == place for place, axis in enumerate(order))
    )


def _has_the_shape_of(state: State, node: Node, source: Value) -> bool:
    """Whether the result always has the source's shape.

    Runs in which the node fails do not count.
    """
    shape = source.shape
    if shape is None or None in shape:
        return False
    try:
        (entry,) = state.inferrer.node(node)
    except (Refused, ModelError, ValueError):
        return False
    return isinstance(entry, TensorType) and entry.shape == shape


def _keeps_all(state: State, node: Node, source: Value) -> bool:
    """Whether a ``Slice`` takes every element, in order."""
    steps = node.input(4)
    if steps is not None and set(steps.elements or [None]) != {1}:
        return False
    return _has_the_shape_of(state, node, source)


def _keeps_shape(state: State, node: Node, source: Value) -> bool:
    return state.opset >= 5 and (
        _keeps_entries(node, source) or _has_the_shape_of(state, node, source)
    )


def _keeps_entries(node: Node, source: Value) -> bool:
    target, shape = _target(node.input(1)), source.shape
    if target is None or shape is None or len(target) != len(shape):
        return False
    copies_zero = not node.attrs.get("allowzero", 0)
    inferred = 0
    for expected, dim in zip(target, shape, strict=True):
        if expected == -1:
            inferred += 1
        elif not (expected == 0 and copies_zero) and expected != dim:
            return False
    return inferred == 0 or (
        inferred == 1
        and all(
            isinstance(dim, int) and dim > 0
            for expected, dim in zip(target, shape, strict=True)
            if expected != -1
        )
    )


def _widens_nothing(state: State, node: Node, source: Value) -> bool:
    target, shape = _target(node.input(1)), source.shape
    if target is not None and shape is not None and len(target) <= len(shape):
        pairs = zip(reversed(target), reversed(shape), strict=False)
        if all(expected in (1, dim) for expected, dim in pairs):
            return True
    return _has_the_shape_of(state, node, source)


def _pads_nothing(state: State, node: Node, _source: Value) -> bool:
    if state.opset < 11:
        pads = node.attrs.get("pads")
        return pads is not None and not any(pads)
    amounts = _target(node.input(1))
    return amounts is not None and not any(amounts)


def _repeats_once(state: State, node: Node, _source: Value) -> bool:
    repeats = _target(node.input(1))
    return state.opset >= 6 and repeats is not None and {*repeats} <= {1}


def _flattens_nothing(_state: State, node: Node, source: Value) -> bool:
    return source.rank == 2 and node.attrs.get("axis", 1) in (1, -1)


def _has_one_input(state: State, node: Node, _source: Value) -> bool:
    return len(node.inputs) == 1 and (node.op == "Concat" or state.opset >= 8)


def _target(shape: Value | None) -> list[int] | None:
    """Return the entries of a constant shape, or None."""
    if shape is None or not shape.is_constant or (stored_bytes(shape) or 0) > SMALL:
        return None
    array = elements(shape)
    return (
        None
        if array is None or array.ndim != 1 or array.dtype.kind != "i"
        else [int(entry) for entry in array]
    )


_FORMS: Mapping[str, Callable[[State, Node, Value], bool]] = MappingProxyType(
    {
        "Identity": lambda _state, _node, _source: True,
        "Cast": _keeps_dtype,
        "CastLike": _keeps_dtype,
        "Transpose": _keeps_order,
        "Reshape": _keeps_shape,
        "Expand": _widens_nothing,
        "Dropout": lambda state, node, _source: state.purity.drops_nothing(node),
        "Flatten": _flattens_nothing,
        "Pad": _pads_nothing,
        "Split": lambda state, node, x: (
            len(node.outputs) == 1 and _has_the_shape_of(state, node, x)
        ),
        "Tile": _repeats_once,
        **dict.fromkeys(("Concat", "Max", "Mean", "Min", "Sum"), _has_one_input),
        "Slice": _keeps_all,
    }
)

OPERATORS: frozenset[str] = frozenset((*_FORMS, *neutral.OPERATORS))
