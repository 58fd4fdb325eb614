"""Long lists of inputs or outputs.

The cost of an edit does not grow with their length.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from itertools import chain
from typing import Any, Final, Generic, TypeVar, overload

T = TypeVar("T")
K = TypeVar("K", bound=Hashable)

WIDE: Final = 64
"""Sequences with more entries than this are wide."""

_CHUNK: Final = 256


class Wide(Sequence[T]):
    """A tuple in chunks.

    A copy with one other entry shares all chunks but one.

    It equals, and hashes like, the tuple of its entries.
    """

    __slots__ = ("_chunks", "_length")

    def __init__(self, chunks: tuple[tuple[T, ...], ...], length: int) -> None:
        self._chunks = chunks
        self._length = length

    @classmethod
    def of(cls, values: Sequence[T]) -> Wide[T]:
        """Split a sequence into chunks."""
        starts = range(0, len(values), _CHUNK)
        return cls(tuple([tuple(values[start : start + _CHUNK]) for start in starts]), len(values))

    def replaced(self, slot: int, value: T) -> Wide[T]:
        """Return a copy with ``value`` at ``slot``, counted from the front."""
        if not 0 <= slot < self._length:
            raise IndexError(f"slot {slot} of {self._length}")
        number, place = divmod(slot, _CHUNK)
        chunks = self._chunks
        chunk = _with_entry(chunks[number], place, value)
        return Wide(_with_entry(chunks, number, chunk), self._length)

    def __len__(self) -> int:
        return self._length

    def __iter__(self) -> Iterator[T]:
        return chain.from_iterable(self._chunks)

    @overload
    def __getitem__(self, index: int) -> T: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[T, ...]: ...
    def __getitem__(self, index: int | slice) -> T | tuple[T, ...]:
        if isinstance(index, slice):
            return tuple(self)[index]
        slot = index + self._length if index < 0 else index
        if not 0 <= slot < self._length:
            raise IndexError("tuple index out of range")
        return self._chunks[slot // _CHUNK][slot % _CHUNK]

    def __add__(self, other: tuple[T, ...]) -> tuple[T, ...]:
        return (*self, *other)

    def __radd__(self, other: tuple[T, ...]) -> tuple[T, ...]:
        return (*other, *self)

    def __eq__(self, other: object) -> bool:
        if isinstance(other, Wide):
            return self._chunks == other._chunks  # pyright: ignore[reportUnknownMemberType]
        return isinstance(other, tuple) and tuple(self) == other

    def __hash__(self) -> int:
        return hash(tuple(self))

    def __repr__(self) -> str:
        return repr(tuple(self))


def with_entry(values: Sequence[T], slot: int, value: T) -> Sequence[T]:
    """Return ``values`` with another entry at ``slot``; ``values`` itself does not change."""
    if len(values) <= WIDE:
        return _with_entry(values, slot, value)
    wide = values if isinstance(values, Wide) else Wide[T].of(values)
    return wide.replaced(slot, value)


def _with_entry(values: Sequence[Any], slot: int, value: Any) -> tuple[Any, ...]:
    return (*values[:slot], value, *values[slot + 1 :])


class Slots(Generic[K]):
    """Index from each value to its slots in a wide list."""

    __slots__ = ("_found",)

    def __init__(self, values: Sequence[K | None]) -> None:
        self._found: dict[K, int | set[int]] = {}
        """Most values are read at one slot."""
        for slot, value in enumerate(values):
            if value is not None:
                self._add(value, slot)

    def __contains__(self, value: K) -> bool:
        return value in self._found

    def of(self, value: K) -> list[int]:
        """Return the slots of a value, in order."""
        slots = self._found.get(value)
        if slots is None:
            return []
        return [slots] if isinstance(slots, int) else sorted(slots)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Slots) and self._found == other._found  # pyright: ignore[reportUnknownMemberType]

    __hash__ = None  # type: ignore[assignment]

    def put(self, slot: int, value: K | None, old: K | None) -> None:
        """Record that ``slot`` reads ``value`` in place of ``old``; idempotent."""
        slots = None if old is None else self._found.get(old)
        if old is not None and slots == slot:
            del self._found[old]
        elif old is not None and isinstance(slots, set):
            slots.discard(slot)
            if len(slots) == 1:
                self._found[old] = slots.pop()
        if value is not None:
            self._add(value, slot)

    def _add(self, value: K, slot: int) -> None:
        slots = self._found.setdefault(value, slot)
        if isinstance(slots, set):
            slots.add(slot)
        elif slots != slot:
            self._found[value] = {slots, slot}
