"""The conditions for fusing a producer into a consumer, one function each.

They have the numbers of reference.md, section "Conditions of fusion".
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

from gehost_linalg.affine import AffineMap, Const, Dim, dims_of
from gehost_linalg.generic import PARALLEL, Generic, Op, Value


class Refusal(NamedTuple):
    """Why a fusion is not done: a key and the particular reason."""

    key: str
    detail: str = ""

    def __str__(self) -> str:
        return f"{self.key}: {self.detail}" if self.detail else self.key


@dataclass(frozen=True, eq=False)
class OpOperand:
    """Operand ``index`` (ins, then outs) of ``consumer``, which ``producer`` makes.

    Attributes:
        producer: the operation that makes the operand; None for an input or a constant.
        consumer: the operation that reads it.
        index: the operand's number.
        uses: how often all results of the producer are read together; a result of the whole counts
            as a use.
        shared: the producer's results that something other than the consumer reads.
    """

    producer: Op | None
    consumer: Op
    index: int
    uses: int = 1
    shared: frozenset[int] = frozenset()

    @property
    def value(self) -> Value:
        return self.consumer.operands[self.index]

    @property
    def result(self) -> int:
        """Which result of the producer the operand is."""
        assert self.producer is not None
        return self.producer.results.index(self.value)

    @property
    def axes(self) -> list[int]:
        """For each loop of the producer its axis of the operand.

        It is known only after condition 8 holds.
        """
        producer, _ = self.generics()
        inverse = producer.out_map(self.result).inverse()
        assert inverse is not None
        return [axis.index for axis in inverse.results if isinstance(axis, Dim)]

    def generics(self) -> tuple[Generic, Generic]:
        """Producer and consumer; only after conditions 1 and 2 hold."""
        assert isinstance(self.producer, Generic)
        assert isinstance(self.consumer, Generic)
        return self.producer, self.consumer


@lru_cache(maxsize=1 << 14)
def producer_map_in_fused_coordinates(
    map_: AffineMap, result: AffineMap, read: AffineMap
) -> AffineMap:
    """A map of the producer over the consumer's loops.

    Args:
        map_: of the producer's operand.
        result: of the producer's result, a permutation.
        read: the consumer's map of that result.
    """
    inverse = result.inverse()
    if inverse is None:
        raise ValueError(f"{result} has no inverse")
    return map_.compose(inverse).compose(read)


def fused_map(operand: OpOperand, position: int) -> AffineMap:
    """The map of operand ``position`` of the producer over the consumer's loops."""
    producer, consumer = operand.generics()
    read = consumer.maps[operand.index]
    return producer_map_in_fused_coordinates(
        producer.maps[position], producer.out_map(operand.result), read
    )


def preserved_producer_results(operand: OpOperand) -> list[int]:
    """The results of the producer that the fused operation keeps.

    A result goes unless the payload reads its out, dropping it loses a loop, or something else
    reads it.
    """
    producer, consumer = operand.generics()
    rest = [map_ for index, map_ in enumerate(consumer.maps) if index != operand.index]
    rest += producer.maps[: len(producer.ins)]
    outs = dict(enumerate(producer.maps[len(producer.ins) :]))
    retained: list[int] = []
    for result in list(outs):
        without = [*rest, *[map_ for other, map_ in outs.items() if other != result]]
        needed = not _cover(without) or (not without and bool(producer.loops or consumer.loops))
        if producer.reads_out(result) or needed or result in operand.shared:
            retained.append(result)
        else:
            del outs[result]
    return retained


def _cover(maps: Iterable[AffineMap]) -> bool:
    """Whether the maps together have an inverse, loops aligned by number."""
    results: set[int] = set()
    dims = 0
    for map_ in maps:
        results |= map_.loops
        dims = max(dims, map_.dims)
    return len(results) == dims


def producer_is_generic(operand: OpOperand) -> Refusal | None:
    """Condition 1: a Generic computes the operand."""
    producer = operand.producer
    if isinstance(producer, Generic) and producer.named is None:
        return None
    return Refusal("producer-not-generic", "" if producer is None else _spelled(producer))


def consumer_is_generic(operand: OpOperand) -> Refusal | None:
    """Condition 2: a Generic reads the operand."""
    consumer = operand.consumer
    if isinstance(consumer, Generic) and consumer.named is None:
        return None
    return Refusal("consumer-not-generic", _spelled(consumer))


def _spelled(op: Op) -> str:
    """The name of an operation; of a Generic that has one, as ``linalg.matmul``."""
    return op.named.name if isinstance(op, Generic) and op.named is not None else op.name


def operand_is_ranked(operand: OpOperand) -> Refusal | None:
    """Condition 4: the operand is a tensor of known rank."""
    value = operand.value
    return (
        Refusal("operand-unranked", value.name) if value.is_scalar or value.shape is None else None
    )


def producer_is_parallel(operand: OpOperand) -> Refusal | None:
    """Condition 5: all loops of the producer are parallel."""
    producer, _ = operand.generics()
    for loop, kind in enumerate(producer.iterators):
        if kind != PARALLEL:
            return Refusal("producer-not-parallel", f"loop {loop} is a {kind}")
    return None


def operand_is_in(operand: OpOperand) -> Refusal | None:
    """Condition 6: the operand is an in, not an initial value."""
    _, consumer = operand.generics()
    return None if operand.index < len(consumer.ins) else Refusal("operand-is-init")


def ranks_match(operand: OpOperand) -> Refusal | None:
    """Condition 7: the consumer reads one index for each loop of the producer."""
    producer, consumer = operand.generics()
    results = len(consumer.maps[operand.index].results)
    if results == producer.loops:
        return None
    return Refusal(
        "rank-mismatch", f"{_counted(results, 'result')}, {_counted(producer.loops, 'loop')}"
    )


def _counted(count: int, noun: str) -> str:
    return f"{count} {noun}{'' if count == 1 else 's'}"


def result_map_is_permutation(operand: OpOperand) -> Refusal | None:
    """Condition 8: the map of the producer's result is a permutation."""
    producer, _ = operand.generics()
    map_ = producer.out_map(operand.result)
    return None if map_.is_permutation else Refusal("result-map-not-permutation", map_.body())


def reductions_are_covered(operand: OpOperand, coverage: str = "preserved") -> Refusal | None:
    """Condition 9: each loop of a reducing consumer has a size.

    An operand that stays, or an operand of the producer, gives it.

    Args:
        operand: the result of the producer that is to be fused.
        coverage: ``preserved`` counts the producer's outs that are read, by the payload or by
            others; ``upstream`` follows MLIR.
    """
    producer, consumer = operand.generics()
    if not consumer.reduces:
        return None
    covered: set[int] = set()
    for value, map_ in zip(consumer.operands, consumer.maps, strict=True):
        if value is not operand.value:
            covered |= map_.loops
    positions = list(range(len(producer.ins)))
    if coverage == "preserved":
        retained = [
            r for r in range(len(producer.outs)) if producer.reads_out(r) or r in operand.shared
        ]
        positions += [len(producer.ins) + result for result in retained]
    for position in positions:
        covered |= fused_map(operand, position).loops
    missing = set(range(consumer.loops)) - covered
    return Refusal("reduction-dim-uncovered", f"d{min(missing)}") if missing else None


def broadcast_is_simple(operand: OpOperand) -> Refusal | None:
    """Refuse an index whose loop may be broadcast at run time.

    The loop of the producer then has size 1 or the consumer's, and a stride of 0 or 1 stands for
    both.
    """
    producer, consumer = operand.generics()
    maybe_broadcast = consumer.maybe_broadcast_axes[operand.index]
    if not maybe_broadcast:
        return None
    loops = {loop for loop, axis in enumerate(operand.axes) if axis in maybe_broadcast}
    strided = [
        result for map_ in producer.maps for result in map_.results if not isinstance(result, Dim)
    ]
    for expr in (*strided, *producer.payload.indices):
        if dims_of(expr) & loops:
            return Refusal("maybe-broadcast", f"the producer uses the index {expr}")
    return None


def outs_are_updated_once(operand: OpOperand) -> Refusal | None:
    """Refuse a producer that would read its out twice for a point.

    It would add to the out again. This is not a rule of MLIR's.
    """
    producer, consumer = operand.generics()
    if not any(map(producer.reads_out, range(len(producer.outs)))):
        return None
    read = _loops_of(consumer, operand.index)
    if read is not None and all(
        loop in read or size == 1 for loop, size in enumerate(consumer.extents())
    ):
        return None
    return Refusal("out-updated-again", f"read by {consumer.maps[operand.index].body()}")


def results_are_complete(operand: OpOperand) -> Refusal | None:
    """Refuse a consumer that reads part of a result with other readers.

    Others need all points of the producer. This is not a rule of MLIR's; it applies only to
    ``share``.
    """
    _, consumer = operand.generics()
    if _loops_of(consumer, operand.index) is not None:
        return None
    return Refusal("result-incomplete", f"read by {consumer.maps[operand.index].body()}")


def _loops_of(consumer: Generic, index: int) -> set[int] | None:
    """The loops that walk along an operand, None unless each axis has one of its own.

    Axes of size 1 do not count.
    """
    map_ = consumer.maps[index]
    shape = consumer.operands[index].shape or (None,) * len(map_.results)
    rest = [
        result
        for axis, result in enumerate(map_.results)
        if not (isinstance(result, Const) and shape[axis] == 1)
    ]
    loops = {result.index for result in rest if isinstance(result, Dim)}
    return loops if len(loops) == len(rest) and not consumer.maybe_broadcast_axes[index] else None


def bounds_are_known(operand: OpOperand, fused: Generic) -> Refusal | None:
    """Condition 11: the maps of the fused operation together have an inverse."""
    missing = set(range(fused.loops)).difference(*[map_.loops for map_ in fused.maps])
    if not missing and fused.maybe_broadcast:
        axes = fused.axes()
        sure = {
            map_.index
            for _, _, _, map_, maybe_broadcast in axes
            if isinstance(map_, Dim) and not maybe_broadcast
        }
        missing = _unsure(operand) - sure
    return Refusal("bounds-lost", f"d{min(missing)}") if missing else None


def bare_loops_are_whole(operand: OpOperand) -> Refusal | None:
    """Refuse a bare loop that would stand for part of an axis.

    ``d0 * 4 + d1`` read at (0, d1) is d1, which would give the loop the size of the whole axis.
    This is not a rule of MLIR's.
    """
    producer, consumer = operand.generics()
    read = consumer.maps[operand.index].results
    one_place = {
        loop
        for loop, (axis, size) in enumerate(zip(operand.axes, producer.extents(), strict=True))
        if isinstance(read[axis], Const) and size != 1
    }
    for position in range(len(producer.ins) if one_place else 0):
        fused = fused_map(operand, position).results
        for axis, result in enumerate(producer.maps[position].results):
            if isinstance(fused[axis], Dim) and dims_of(result) & one_place:
                return Refusal("axis-in-part", f"axis {axis} of an operand is read at {result}")
    return None


def _unsure(operand: OpOperand) -> set[int]:
    """The consumer's loops that only the producer's result gives a size."""
    producer, consumer = operand.generics()
    entries = set[int]()
    for map_ in producer.maps[: len(producer.ins)]:
        entries |= map_.loops
    read = consumer.maps[operand.index].results
    arguments = [read[axis] for loop, axis in enumerate(operand.axes) if loop not in entries]
    return {item.index for item in arguments if isinstance(item, Dim)}


BASIC = (
    producer_is_generic,
    consumer_is_generic,
    operand_is_ranked,
    producer_is_parallel,
    operand_is_in,
)


def are_elementwise_ops_fusable(operand: OpOperand, coverage: str = "preserved") -> Refusal | None:
    """Check whether the producer may be fused into the consumer.

    Returns None, or the first condition that does not hold. Bounds (condition 11) are checked by
    ``fuse_elementwise_ops``, cycles (condition 12) by the driver.
    """
    for condition in BASIC:
        refusal = condition(operand)
        if refusal is not None:
            return refusal
    producer, _ = operand.generics()
    ranks, permutation = ranks_match(operand), result_map_is_permutation(operand)
    if permutation is not None and len(producer.results) > 1:
        return permutation  # names the map that is at fault
    if ranks is not None or permutation is not None:
        return ranks or permutation
    refusal = reductions_are_covered(operand, coverage) or broadcast_is_simple(operand)
    if refusal is not None or coverage != "preserved":
        return refusal
    return outs_are_updated_once(operand) or bare_loops_are_whole(operand)
