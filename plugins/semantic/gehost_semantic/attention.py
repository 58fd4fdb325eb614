"""The description of an attention: what it computes from which tensors."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TypeAlias

from gehost import Node, Value
from gehost_semantic.atoms import Atom, Operand
from gehost_semantic.extents import Extent, total


class Role(StrEnum):
    """The meaning of an axis; its value is the letter in a layout."""

    BATCH = "b"
    HEAD = "h"
    GROUP = "g"
    """Heads of q that share a head of k and v."""
    QUERY = "s"
    KEY = "t"
    HEAD_SIZE = "d"
    VALUE_SIZE = "v"


@dataclass(frozen=True, slots=True)
class Add:
    """An addend of the scores, times a number."""

    operand: Operand
    factor: float = 1.0


@dataclass(frozen=True, slots=True)
class Select:
    """A boolean mask: scores of other positions become ``fill``."""

    operand: Operand
    keeps: bool
    """Whether the mask is true at the positions that stay, or at the others."""
    fill: float


@dataclass(frozen=True, slots=True)
class Floor:
    """The least value of a score."""

    least: float


After: TypeAlias = Add | Select | Floor


@dataclass(frozen=True, slots=True)
class Limit:
    """A proven condition on the positions that are kept: ``key <= query + at_most`` (causal),
    or ``query - key <= at_most`` (window).
    """

    is_window: bool
    at_most: Extent

    def __str__(self) -> str:
        difference = "s - t" if self.is_window else "t - s"
        return f"{'window' if self.is_window else 'causal'} ({difference} <= {self.at_most})"


@dataclass(frozen=True, slots=True)
class MaskMeaning:
    """What the addends and masks mean."""

    limits: tuple[Limit, ...] = ()
    """Index comparisons that hold for every kept position."""
    rest: tuple[tuple[str, frozenset[Role]], ...] = ()
    """Other masks and addends (``bias``), with the axes that they depend on: ``keep``, or
    ``pattern`` where positions or constants decide.
    """
    fill: float = -math.inf
    """The highest score of a position that masks exclude."""

    @property
    def causal(self) -> Extent | None:
        """``c`` where each query ``s`` sees keys up to ``s + c``; None if that is not proven."""
        return next((limit.at_most for limit in self.limits if not limit.is_window), None)

    @property
    def window(self) -> Extent | None:
        """``c`` where each query ``s`` sees keys from ``s - c`` on; None if that is not proven."""
        return next((limit.at_most for limit in self.limits if limit.is_window), None)


@dataclass(frozen=True, slots=True)
class Cache:
    """Keys or values of a past and the new ones."""

    past: Value
    new: Value
    present: Value
    is_static: bool = False
    """Whether the new ones are written into the past, whose length stays; else they follow it."""


@dataclass(frozen=True)
class Attention:
    """``softmax(q·kᵀ·scale, then addends and masks)·v``.

    Its operands are views in named atoms; ``roles`` and ``sizes`` are those of the atoms.
    """

    softmax: Node
    q: Operand
    k: Operand
    v: Operand
    output: Operand
    """The result of the product with v."""
    result: Operand
    """The output, or what layout operators alone make of it."""
    roles: Mapping[Atom, Role]
    sizes: Mapping[Atom, Extent]
    scale: float
    scales: tuple[tuple[Operand, bool], ...]
    """Tensors that multiply the scores before all else, or divide them (True)."""
    softcap: float | None
    after: tuple[After, ...]
    """Addends, masks and least values, in order."""
    zero_empty_rows: bool
    """Whether a row without kept positions gives 0, not NaN."""
    probability_readers: tuple[str, ...]
    """The users of the probabilities besides the product."""
    past: tuple[Cache | None, Cache | None]
    """Of k and v."""
    assumed: tuple[tuple[Extent, Extent], ...]
    """Sizes that are equal in every run that does not fail."""
    mask: MaskMeaning = field(default_factory=MaskMeaning)

    def atoms(self, role: Role) -> list[Atom]:
        return [atom for atom, own in self.roles.items() if own is role]

    def size(self, role: Role) -> Extent:
        return total(self.sizes[atom] for atom in self.atoms(role))

    @property
    def batch(self) -> Extent:
        return self.size(Role.BATCH)

    @property
    def heads(self) -> Extent:
        """The number of heads of q."""
        return self.size(Role.HEAD) * self.size(Role.GROUP)

    @property
    def key_heads(self) -> Extent:
        """The number of heads of k and v."""
        return self.size(Role.HEAD)

    @property
    def groups(self) -> Extent:
        """The number of heads of q for each head of k and v."""
        return self.size(Role.GROUP)

    @property
    def queries(self) -> Extent:
        return self.size(Role.QUERY)

    @property
    def keys(self) -> Extent:
        return self.size(Role.KEY)

    @property
    def head_size(self) -> Extent:
        return self.size(Role.HEAD_SIZE)

    @property
    def value_size(self) -> Extent:
        return self.size(Role.VALUE_SIZE)

    def layout(self, operand: Operand) -> str:
        """Return the layout of an operand's base, as in ``b t (h d)``."""
        names = self._names()
        axes: dict[int | None, list[tuple[Atom, Extent]]] = {}
        for dim in operand.dims:
            for index in dim:
                axes.setdefault(index.axis, []).append((index.atom, index.stride))
        results: list[str] = []
        for axis, offset in enumerate(operand.offsets):
            terms = sorted(
                axes.get(axis, []),
                key=lambda term: term[1] if isinstance(term[1], int) else 1 << 40,
                reverse=True,
            )
            inner: Extent = 1
            has_gap = False
            for atom, stride in reversed(terms):
                has_gap |= stride != inner
                inner = stride * self.sizes.get(atom, 1)
            words = [
                f"{names.get(atom, '?')}*{stride}" if has_gap else names.get(atom, "?")
                for atom, stride in terms
            ]
            text = f"({' '.join(words)})" if len(words) > 1 else words[0] if words else "1"
            results.append(text + (f"@{offset}" if offset != 0 else ""))
        repeated = [names.get(atom, "?") for atom, _ in axes.get(None, [])]
        return " ".join(results) + (f" [{' '.join(repeated)} repeated]" if repeated else "")

    def result_layout(self) -> str:
        """Return the layout of the result, as in ``b s (h v)``."""
        names = self._names()
        words: list[str] = []
        for dim in self.result.dims:
            inner = [names.get(index.atom, "?") for index in dim]
            words.append(f"({' '.join(inner)})" if len(inner) > 1 else inner[0] if inner else "1")
        return " ".join(words)

    def summary(self) -> str:
        """Return one line: layouts, scale, softcap, masks, cache."""
        operands = " | ".join(
            f"{name} {self.layout(operand)}"
            for name, operand in (("q", self.q), ("k", self.k), ("v", self.v))
        )
        parts = [f"{self.softmax.label}: {operands} -> {self.result_layout()}"]
        parts.append(f"scale {self.scale:.4g}")
        parts += [
            f'{"divided by" if divides else "times"} "{tensor.value.name}"'
            for tensor, divides in self.scales
        ]
        if self.softcap is not None:
            parts.append(f"softcap {self.softcap:g}")
        parts += [str(limit) for limit in self.mask.limits]
        parts += [
            f"{kind} over {' '.join(sorted(roles)) or 'nothing'}" for kind, roles in self.mask.rest
        ]
        if self.zero_empty_rows:
            parts.append("empty rows give 0")
        parts += [
            f'{name}: {"static" if cache.is_static else "past"} "{cache.past.name}"'
            for name, cache in zip("kv", self.past, strict=True)
            if cache is not None
        ]
        if self.probability_readers:
            parts.append(f"probabilities read by {', '.join(self.probability_readers)}")
        return ", ".join(parts)

    def _names(self) -> dict[Atom, str]:
        names: dict[Atom, str] = {}
        for role in Role:
            atoms = self.atoms(role)
            for number, atom in enumerate(atoms):
                names[atom] = role.value + (str(number) if len(atoms) > 1 else "")
        return names
