"""The table of sizes, which are computed when a node runs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, cast

from gehost import Refused
from gehost_linalg.generic import Size
from gehost_linalg.interpret import Broadcast, Part, Split
from gehost_linalg.kernels.steps import MOST_SIZES, Steps

LARGEST = 2**63 - 1

Key = Any
"""Identity of a size; sizes with one key are equal for all inputs."""


class SizeRow(NamedTuple):
    """A row of the runtime's table: a kind, two places of other rows or axes, three numbers.

    ``b`` is None for a part that goes to the end.
    """

    kind: str
    first: int = 0
    second: int = 0
    a: int = 0
    b: int | None = 0
    c: int = 0


class Sizes:
    """The table of sizes, which are computed when a node runs."""

    def __init__(self, steps: Steps) -> None:
        self.steps = steps
        self.rows: list[SizeRow] = []
        self._numbers: dict[Key, int] = {}
        self._keys: dict[str | None, Key] = {}
        self._axes: dict[str, tuple[int, int]] = {}
        for value, number in steps.inputs.items():
            for axis, size in enumerate(value.shape or ()):
                if isinstance(size, str):
                    self._axes.setdefault(size, (number, axis))
        for size, rule in steps.rules.items():
            if isinstance(rule, Split):  # it is checked, also where the number is known
                self.number(size)

    def key(self, size: Size) -> Key:
        """The key of a size, made of the sizes behind it."""
        if isinstance(size, int):
            return size
        if size not in self._keys:
            self._keys[size] = self._key(size)
        return self._keys[size]

    def _key(self, size: str | None) -> Key:
        if size is None:
            raise Refused("not-emitted", "a size is unknown")
        if size.isdecimal():
            return int(size)
        if size in self._axes:
            return self._axes[size]
        if size in self.steps.sums:
            return ("sum", tuple([self.key(sum_) for sum_ in self.steps.sums[size]]))
        rule = self.steps.rules.get(size)
        if isinstance(rule, Part):
            return ("part", self.key(rule.whole), rule.start, rule.end, rule.step)
        if isinstance(rule, Split):
            return ("split", self.key(rule.whole), rule.number or 0, rule.of)
        if not isinstance(rule, Broadcast):
            raise Refused("not-emitted", f"size {size} is unknown")
        leaves: set[Key] = set()
        for sum_ in rule.sizes:
            key = self.key(sum_)
            leaves |= key if isinstance(key, frozenset) else {key}
        leaves.discard(1)
        return next(iter(leaves), 1) if len(leaves) < 2 else frozenset(leaves)

    def number(self, size: Size) -> int:
        """The place of a size in the table."""
        return self._place(self.key(size))

    def _place(self, key: Key) -> int:
        if key in self._numbers:
            return self._numbers[key]
        if isinstance(key, int):
            row = SizeRow("NUMBER", a=key)
        elif isinstance(key, frozenset):
            row = self._folded("BROADCAST", sorted(cast("frozenset[Key]", key), key=repr))
        elif key[0] == "sum":
            row = self._folded("SUM", key[1])
        elif key[0] == "part":
            start, end, step = (max(-LARGEST, min(item, LARGEST)) for item in key[2:])
            row = SizeRow("PART", self._place(key[1]), 0, start, end, step)
        elif key[0] == "split":
            row = SizeRow("SPLIT", self._place(key[1]), 0, key[3], key[2])
        else:
            row = SizeRow("AXIS", key[0], key[1])
        self.rows.append(row)
        if len(self.rows) > MOST_SIZES:
            raise Refused("not-emitted", f"more than {MOST_SIZES} sizes")
        self._numbers[key] = len(self.rows) - 1
        return self._numbers[key]

    def _folded(self, kind: str, keys: Sequence[Key]) -> SizeRow:
        at = self._place(keys[0])
        for key in keys[1:-1]:
            self.rows.append(SizeRow(kind, at, self._place(key)))
            at = len(self.rows) - 1
        if len(keys) == 1:
            return SizeRow("PART", at, 0, 0, None, 1)
        return SizeRow(kind, at, self._place(keys[-1]))
