"""Whether a replacement's tensor has the type of the one that it replaces, as far as can be known.

A known size must stay. Where sizes are not known, both sides are inferred once more from inputs
whose unknown sizes have been given names of their own: what then comes out with one name came from
the same input dimension, unchanged, or from the same computation. Two unknown sizes are not equal
for being unknown.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from gehost.infer.local import InferenceFailed, Inferrer
from gehost.ir.graph import Node, Value
from gehost.ir.types import Dim, TensorType, ValueType
from gehost.rewrite.lower import Refused
from gehost.rewrite.trace import Trace, is_input_size


class Step(NamedTuple):
    """A node with the values that it read and made at a certain moment."""

    node: Node
    inputs: tuple[Value | None, ...]
    outputs: tuple[Value | None, ...]

    @classmethod
    def of(cls, node: Node) -> Step:
        return cls(node, tuple(node.inputs), tuple(node.outputs))


class TypeProof:
    """Compares old and new types of one rewrite.

    Args:
        inputs: the region's inputs.
        old: gives the matched nodes as they were before anything was changed.
        inferrer: infers both sides.
        shape_proven: the rule's author vouches for sizes that cannot be compared.
    """

    def __init__(
        self,
        inputs: Sequence[Value | None],
        old: Callable[[], Sequence[Step]],
        inferrer: Inferrer,
        *,
        shape_proven: bool,
    ) -> None:
        self._shape_proven = shape_proven
        self._old = old
        self._inputs = inputs
        self._inferrer = inferrer
        self._old_types: dict[Value, ValueType | None] | None = None
        self._new_types: dict[Value, ValueType | None] | None = None

    def settle(
        self,
        old: Value,
        old_type: ValueType | None,
        new: Value,
        new_type: ValueType | None,
        made: Sequence[Step],
    ) -> ValueType | None:
        """The type of ``old`` after it has been replaced by ``new``.

        Args:
            old: the tensor that is replaced.
            old_type: what was known of it.
            new: the tensor that stands in its place; the same object where it takes over the name.
            new_type: what is known of it.
            made: the new nodes, the same in every call.

        Raises:
            Refused: the types disagree, or cannot be proven to agree.
        """
        where = f'"{old.name}"'
        before, after = self._named(old, new, made)
        if old_type is None:
            old_type = _anonymous(before)
        if old_type is None:
            if new_type is None or self._shape_proven:
                return new_type
            raise Refused(
                f"unproven: the type of {where} is unknown, the replacement would have {new_type}"
            )
        if new_type is None:
            return old_type
        if not isinstance(old_type, TensorType) or not isinstance(new_type, TensorType):
            if old_type != new_type:
                raise Refused(f"type: {where} was {old_type}, would be {new_type}")
            return old_type
        if old_type.dtype and new_type.dtype and old_type.dtype != new_type.dtype:
            raise Refused(f"dtype: {where} was {old_type}, would be {new_type}")
        if new_type.dtype and not old_type.dtype and not self._shape_proven:
            raise Refused(
                f"unproven: the dtype of {where} is unknown, the replacement would have {new_type}"
            )
        shape = self._shape(old_type.shape, new_type.shape, before, after, where)
        return TensorType(old_type.dtype or new_type.dtype, shape)

    def _shape(
        self,
        old: tuple[Dim, ...] | None,
        new: tuple[Dim, ...] | None,
        before: ValueType | None,
        after: ValueType | None,
        where: str,
    ) -> tuple[Dim, ...] | None:
        if new is None:
            return old
        if old is None:
            if self._shape_proven:
                return new
            raise Refused(
                f"unproven: the rank of {where} is unknown, the replacement would have {len(new)}"
            )
        if len(old) != len(new):
            raise Refused(f"rank: {where} had {len(old)} dimensions, would have {len(new)}")
        named_old = _dims(before, len(old))
        named_new = _dims(after, len(new))
        return tuple(
            self._dim(a, b, p, q, f"dimension {position} of {where}")
            for position, (a, b, p, q) in enumerate(
                zip(old, new, named_old, named_new, strict=True)
            )
        )

    def _dim(self, old: Dim, new: Dim, before: Dim, after: Dim, where: str) -> Dim:
        if isinstance(old, int):
            if isinstance(new, int) and new != old:
                raise Refused(f"shape: {where} was {old}, would be {new}")
            if (
                not isinstance(new, int)
                and is_input_size(after)
                and before != after
                and not self._shape_proven
            ):
                raise Refused(
                    f"unproven: {where} was {old}, would be that of an input, {new or 'unknown'}"
                )
            return old
        equal = (old is not None and old == new) or (before is not None and before == after)
        if not equal and not self._shape_proven:
            raise Refused(f"unproven: {where} was {old or 'unknown'}, would be {new or 'unknown'}")
        return old if old is not None else new

    def _named(
        self, old: Value, new: Value, made: Sequence[Step]
    ) -> tuple[ValueType | None, ValueType | None]:
        """Both sides' types, inferred from inputs in which every unknown size has a name."""
        if self._old_types is None or self._new_types is None:
            trace = Trace(self._inputs, self._inferrer)
            self._old_types, self._new_types = _infer(self._old(), trace), _infer(made, trace)
        return self._old_types.get(old), self._new_types.get(new)


def is_whole(known: ValueType | None) -> bool:
    """Whether dtype and every size have a number or a name."""
    return (
        isinstance(known, TensorType)
        and bool(known.dtype)
        and known.shape is not None
        and None not in known.shape
    )


def _infer(steps: Sequence[Step], trace: Trace) -> dict[Value, ValueType | None]:
    side = trace.side()
    for step in steps:
        try:
            side.step(step.node, step.inputs, step.outputs)
        except InferenceFailed:
            side.unknown(step.outputs)
    return side.types()


def _dims(known: ValueType | None, rank: int) -> tuple[Dim, ...]:
    if isinstance(known, TensorType) and known.shape is not None and len(known.shape) == rank:
        return known.shape
    return (None,) * rank


def _anonymous(known: ValueType | None) -> ValueType | None:
    """A type whose invented names are unknown again."""
    if isinstance(known, TensorType) and known.shape is not None:
        return TensorType(
            known.dtype, tuple(dim if isinstance(dim, int) else None for dim in known.shape)
        )
    return known
