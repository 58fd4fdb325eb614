"""Calls, fusions, tuples, and instructions that are kept but not run."""

from __future__ import annotations

import re

from msgspec import structs

from gehost import Refused
from gehost_hlo.attributes import dimension, integer
from gehost_hlo.context import Context, Translator
from gehost_hlo.emit import DOMAIN, Tensor, Value, leaves
from gehost_hlo.module import HloInstruction
from gehost_hlo.translate import devices
from gehost_hlo.translate.control import packed, results_of
from gehost_hlo.translate.elementwise import tensors
from gehost_hlo.translate.sorting import top

_SHARDING_TARGETS = {
    "Sharding",
    "xla.sdy.FuncResultSharding",
    "xla.sdy.ShardingConstraint",
}
_COLLECTIVES = {
    "all-reduce": "AllReduce",
    "all-gather": "AllGather",
    "reduce-scatter": "ReduceScatter",
    "all-to-all": "AllToAll",
    "collective-permute": "CollectivePermute",
    "collective-broadcast": "CollectiveBroadcast",
    "partition-id": "PartitionId",
    "replica-id": "ReplicaId",
}
_ALONE = frozenset({"all-reduce", "all-gather", "reduce-scatter", "all-to-all"})
"""Collectives that do nothing in groups of one device."""
_KEPT = (
    "replica_groups",
    "source_target_pairs",
    "channel_id",
    "use_global_device_ids",
    "dimensions",
    "split_dimension",
    "to_apply",
)


def _call(c: Context, i: HloInstruction, args: list[Value]) -> Value:
    computation = c.find(i.attributes.get("to_apply", ""))
    return c.call(c, computation, args, c.body.instruction, c.batch)


def _map(c: Context, i: HloInstruction, args: list[Value]) -> Value:
    operands = tensors(args, max(1, len(args)))
    computation = c.find(i.attributes.get("to_apply", ""))
    return c.call(c, computation, operands, c.body.instruction, operands[0].dims)


def _fusion(c: Context, i: HloInstruction, args: list[Value]) -> Value:
    computation = c.find(i.attributes.get("calls", ""))
    if c.settings.fusions == "inline" or c.batch is not None:
        return c.call(c, computation, args, c.body.instruction, c.batch)
    c.function(c, computation, args)
    return _kept(c, computation.name, computation.root, args)


def _kept(
    c: Context, op: str, made_by: HloInstruction, args: list[Value], **attributes: str
) -> Value:
    """Add a node of domain hlo whose outputs are the arrays that ``made_by`` makes."""
    shapes = results_of(made_by)
    assert made_by.shape is not None
    inputs = [c.body.full(leaf) for arg in args for leaf in leaves(arg)]
    names = c.body.op(op, inputs, outputs=len(shapes), domain=DOMAIN, **attributes)
    results = [
        Tensor(name, shape.type, shape.dimensions, shape.dimensions)
        for name, shape in zip(names, shapes, strict=True)
    ]
    return packed(made_by.shape, results)


def _tuple(_c: Context, _i: HloInstruction, args: list[Value]) -> Value:
    return tuple(args)


def _get_tuple_element(_c: Context, i: HloInstruction, args: list[Value]) -> Value:
    index = integer(i, "index")
    if len(args) != 1 or isinstance(args[0], Tensor) or not 0 <= index < len(args[0]):
        raise Refused("invalid", f"its operand has no element {index}")
    return args[0][index]


def _same(_c: Context, _i: HloInstruction, args: list[Value]) -> Value:
    if len(args) != 1:
        raise Refused("invalid", f"it has {len(args)} operands, expected 1")
    return args[0]


def _custom_call(c: Context, i: HloInstruction, args: list[Value]) -> Value:
    """Keep annotations of a sharding as metadata.

    Other targets belong to libraries.
    """
    target = i.attributes.get("custom_call_target", "").strip('"')
    if target in _SHARDING_TARGETS and len(args) == 1:
        c.body.metadata = {**c.body.metadata, "hlo.custom_call_target": target}
        x = args[0]
        if not isinstance(x, Tensor):
            return x
        return c.body.tensor("Identity", [c.body.full(x)], x.type, x.dims)
    if target == "SetBound" and args:  # a hint: the value of its first operand
        return args[0]
    if target == "TopK":
        (x,) = tensors(args, 1)
        shapes = results_of(i)
        k = shapes[0].dimensions[-1] if shapes and shapes[0].dimensions else -1
        return top(c, x, k, largest=True)
    if target in devices.BOUNDARIES:
        return devices.BOUNDARIES[target](c, i, args)
    raise Refused("unsupported", f'a custom call of "{target}"')


def _collective(c: Context, i: HloInstruction, args: list[Value]) -> Value:
    """A node of domain hlo, which is shown and not run.

    It stands for the program of one rank.
    """
    groups = re.fullmatch(r"\{(\{[0-9]+\},?)+\}", i.attributes.get("replica_groups", ""))
    if groups is not None and i.opcode in _ALONE:  # each device by itself
        return args[0] if len(args) == 1 else tuple(args)
    attributes = {name: i.attributes[name] for name in _KEPT if name in i.attributes}
    return _kept(c, _COLLECTIVES[i.opcode], i, args, **attributes)


_PLACE_OF_RESULT = {
    "all-reduce": None,
    "all-gather": 1,
    "collective-permute": 1,
    "copy": 0,
    "async": 1,
}
"""Where the result of a -start instruction stands in its tuple; None where it is all of it."""


def _start(c: Context, i: HloInstruction, args: list[Value]) -> Value:
    """The first half of a pair does all the work; its contexts are zeros."""
    opcode = i.opcode.removesuffix("-start")
    place, shape = _PLACE_OF_RESULT[opcode], i.shape
    if shape is None:
        raise Refused("missing", "its shape is not written")
    if place is not None and (shape.elements is None or len(shape.elements) < 2):
        raise Refused("invalid", f"{shape} holds no operand and result")
    if opcode == "async":
        result = c.call(c, c.find(i.attributes.get("calls", "")), args, c.body.instruction, c.batch)
    elif opcode == "copy":
        result = _same(c, i, args)
    else:
        own = shape if place is None or shape.elements is None else shape.elements[place]
        result = _collective(c, structs.replace(i, opcode=opcode, shape=own), args)
    if place is None:
        return result
    assert shape.elements is not None
    operands = tuple(args) if shape.elements[1 - place].elements is not None else args[0]
    pair = (operands, result) if place else (result, operands)
    contexts = [
        packed(part, [c.number(0, leaf.type, leaf.dimensions) for leaf in part.leaves()])
        for part in shape.elements[2:]
    ]
    return (*pair, *contexts)


def _done(_c: Context, i: HloInstruction, args: list[Value]) -> Value:
    opcode = i.opcode.removesuffix("-done")
    place = _PLACE_OF_RESULT[opcode]
    if len(args) != 1 or (place is not None and isinstance(args[0], Tensor)):
        raise Refused("invalid", "its operand is no result of a -start instruction")
    return args[0] if place is None or isinstance(args[0], Tensor) else args[0][place]


def _dimension_size(c: Context, i: HloInstruction, args: list[Value]) -> Value:
    (x,) = tensors(args, 1)
    return c.number(x.dims[dimension(i, x.rank)], "s32")


TABLE: dict[str, Translator] = {
    "call": _call,
    "map": _map,
    "fusion": _fusion,
    "tuple": _tuple,
    "get-tuple-element": _get_tuple_element,
    "copy": _same,
    "opt-barrier": _same,
    "custom-call": _custom_call,
    "get-dimension-size": _dimension_size,
    **dict.fromkeys(_COLLECTIVES, _collective),
    **dict.fromkeys([f"{opcode}-start" for opcode in _PLACE_OF_RESULT], _start),
    **dict.fromkeys([f"{opcode}-done" for opcode in _PLACE_OF_RESULT], _done),
    "async-update": _same,
}
