"""Fuses one producer into one consumer."""

from __future__ import annotations

from dataclasses import dataclass

from gehost_linalg.affine import Const, Dim, Expr, substitute
from gehost_linalg.fusability import (
    OpOperand,
    Refusal,
    are_elementwise_ops_fusable,
    bounds_are_known,
    fused_map,
    preserved_producer_results,
)
from gehost_linalg.generic import (
    INDEX,
    Generic,
    Literal,
    Payload,
    Ref,
    ScalarOp,
    Value,
    arg,
    expr_of,
    renumbered,
    res,
)


@dataclass(frozen=True, eq=False)
class Fused:
    """The fused operation, and the results that it replaces.

    Attributes:
        generic: the fused operation; it reads the ins of both.
        replaced: each preserved result of the producer, and each of the consumer, by its new value.
    """

    generic: Generic
    replaced: dict[Value, Value]


def fuse_elementwise_ops(operand: OpOperand, coverage: str = "preserved") -> Fused | Refusal:
    """Fuse the producer of an operand into its consumer.

    The consumer's loops stay. Operands are: the consumer's ins before the operand, the producer's
    ins, the consumer's ins after it, the producer's preserved outs, the consumer's outs.

    Args:
        operand: the consumer's operand that the producer makes.
        coverage: see ``reductions_are_covered``.
    """
    return are_elementwise_ops_fusable(operand, coverage) or fuse_checked(operand)


def fuse_checked(operand: OpOperand) -> Fused | Refusal:
    """Fuse where all conditions but that of the bounds hold."""
    producer, consumer = operand.generics()
    k = operand.index
    retained = preserved_producer_results(operand)
    count = len(producer.ins)
    ins = consumer.ins[:k] + producer.ins + consumer.ins[k + 1 :]
    outs = tuple([producer.outs[result] for result in retained]) + consumer.outs
    positions = [*range(count), *[count + result for result in retained]]
    maps = [fused_map(operand, position) for position in positions]
    fused_maps = (
        *consumer.maps[:k],
        *maps[:count],
        *consumer.maps[k + 1 : len(consumer.ins)],
        *maps[count:],
        *consumer.maps[len(consumer.ins) :],
    )
    replaced = {producer.results[r]: _copy(producer.results[r]) for r in retained}
    results = (*replaced.values(), *consumer.results)
    fused = Generic(
        ins,
        outs,
        fused_maps,
        consumer.iterators,
        _payload(operand, retained, len(ins)),
        results,
        _maybe(operand, positions),
        tuple(dict.fromkeys(producer.origins + consumer.origins)),
        consumer.label,
    )
    refusal = bounds_are_known(operand, fused)
    if refusal is not None:
        return refusal
    return Fused(fused, {**replaced, **{item: item for item in consumer.results}})


def _copy(value: Value) -> Value:
    return Value(value.name, value.dtype, value.shape)


def _maybe(operand: OpOperand, positions: list[int]) -> tuple[frozenset[int], ...]:
    """The fused operands' axes whose stride is decided at run time."""
    producer, consumer = operand.generics()
    if not producer.maybe_broadcast and not consumer.maybe_broadcast:
        return ()
    k, count, ins = operand.index, len(producer.ins), len(consumer.ins)
    read = consumer.maybe_broadcast_axes
    loops = {loop for loop, axis in enumerate(operand.axes) if axis in read[k]}
    created: list[frozenset[int]] = []
    for position in positions:
        results = producer.maps[position].results
        through = {
            axis
            for axis, result in enumerate(results)
            if isinstance(result, Dim) and result.index in loops
        }
        created.append(producer.maybe_broadcast_axes[position] | through)
    return (*read[:k], *created[:count], *read[k + 1 : ins], *created[count:], *read[ins:])


def _payload(operand: OpOperand, retained: list[int], ins: int) -> Payload:
    """The producer's operations, then the consumer's.

    The consumer's read the yielded value instead of the operand.
    """
    producer, consumer = operand.generics()
    k, count = operand.index, len(producer.ins)
    args: dict[int, Ref] = {index: arg(k + index) for index in range(count)}
    args.update({count + result: arg(ins + place) for place, result in enumerate(retained)})
    ops: list[ScalarOp] = []
    payload = producer.payload
    if not payload.indices and all(args[index] == arg(index) for index in payload.reads):
        ops.extend(payload.ops)  # they keep their numbers: a chain is not rewritten at each link
        yields = payload.yields
    else:
        values = _indices(operand, ops)
        for place, op in enumerate(payload.ops):
            if op.name != INDEX:
                values[place] = res(len(ops))
                ops.append(op.renumbered(args, values))
        yields = renumbered(payload.yields, args, values)
    own: dict[int, Ref] = {k: yields[operand.result]}
    own.update({index: arg(index - 1 + count) for index in range(k + 1, len(consumer.ins))})
    shift = ins + len(retained) - len(consumer.ins)
    own.update({out: arg(out + shift) for out in range(len(consumer.ins), len(consumer.operands))})
    after: dict[int, Ref] = {
        place: res(len(ops) + place) for place in range(len(consumer.payload.ops))
    }
    moved = consumer.payload.renumbered(own, after)
    output = Payload((*ops, *moved.ops), (*[yields[result] for result in retained], *moved.yields))
    return output if len(producer.outs) == 1 else output.live()


def _indices(operand: OpOperand, ops: list[ScalarOp]) -> dict[int, Ref]:
    """Add the producer's indices over the consumer's loops.

    Returns the value of each operation.
    """
    producer, consumer = operand.generics()
    results: dict[int, Ref] = {}
    if not producer.payload.indices:
        return results
    read = consumer.maps[operand.index].results
    values = [read[axis] for axis in operand.axes]
    entries: dict[Expr, Ref] = {}
    for place, op in enumerate(producer.payload.ops):
        if op.name != INDEX:
            continue
        expr = substitute(expr_of(op), values)
        if isinstance(expr, Const):
            entries[expr] = Literal(expr.value, "index")
        elif expr not in entries:
            entries[expr] = res(len(ops))
            ops.append(ScalarOp(INDEX, (), "index", expr))
        results[place] = entries[expr]
    return results
