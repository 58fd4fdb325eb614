"""A description as numbers: attention computed in float64 from its operands' arrays."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from string import ascii_letters
from typing import Any, TypeAlias

import numpy as np

from gehost import Graph, Value, sizes
from gehost_semantic.atoms import Atom, Operand
from gehost_semantic.attention import Add, Attention, Floor, Role
from gehost_semantic.extents import Extent, Extents
from gehost_semantic.masks import MOST_OF_A_MASK

Array: TypeAlias = np.ndarray[Any, Any]
Arrays: TypeAlias = Mapping[Value, Array]


def bases(attention: Attention) -> list[Value]:
    """Return the tensors that ``recomputed`` reads."""
    operands = [attention.q, attention.k, attention.v, attention.result]
    operands += [operand for operand, _ in attention.scales]
    operands += [step.operand for step in attention.after if not isinstance(step, Floor)]
    return list(dict.fromkeys(operand.base for operand in operands))


def sources(graph: Graph) -> dict[str, tuple[Value, int]]:
    """Return a tensor and an axis that have the size of each name."""
    results: dict[str, tuple[Value, int]] = {}
    for value in [*graph.inputs, *(v for node in graph.nodes for v in node.outputs)]:
        for axis, dim in enumerate((None if value is None else value.shape) or ()):
            if isinstance(dim, str) and value is not None:
                results.setdefault(dim, (value, axis))
    scope = graph.model.sizes
    return {
        text: source
        for text, source in results.items()
        if isinstance(size := scope.parse(text), sizes.Size)
        and len(size.terms) == 1
        and str(size) == scope.atoms[size.terms[0][0][0]].name
    }


def sizes_of_run(graph: Graph, arrays: Arrays) -> dict[str, int]:
    """Return the value of each named size in a run."""
    return {
        name: int(arrays[value].shape[axis])
        for name, (value, axis) in sources(graph).items()
        if value in arrays
    }


def evaluate(scope: sizes.Scope, size: Extent, names: Mapping[str, int]) -> int:
    """Return the value of a size in a run.

    Raises:
        KeyError: the value of a name is missing.
    """
    if isinstance(size, int):
        return size
    return sum(
        factor * prod(_of_run(scope, atom, names) for atom in monomial)
        for monomial, factor in size.terms
    )


def _of_run(scope: sizes.Scope, number: int, names: Mapping[str, int]) -> int:
    atom = scope.atoms[number]
    if atom.kind == "symbol":
        return names[atom.name]
    args = [evaluate(scope, arg, names) for arg in atom.args]
    match atom.kind:
        case "min":
            return min(args)
        case "broadcast":
            return next((arg for arg in args if arg != 1), 1)
        case "either":
            return args[0] or args[1]
        case _:
            return args[0] // args[1]


class Recomputed:
    """One attention in one run."""

    def __init__(
        self, attention: Attention, extents: Extents, arrays: Arrays, sizes: Mapping[str, int]
    ) -> None:
        self._attention = attention
        self._arrays = arrays
        self._scope, self._names = extents.scope, sizes
        self._sizes = {atom: self._evaluate(size) for atom, size in attention.sizes.items()}
        self._letters = dict(zip(attention.roles, ascii_letters, strict=False))
        self._axes = [
            atom
            for atom, role in attention.roles.items()
            if role not in (Role.HEAD_SIZE, Role.VALUE_SIZE)
        ]
        """The axes of the scores."""

    def _evaluate(self, size: Extent) -> int:
        return evaluate(self._scope, size, self._names)

    def expected(self) -> Array:
        """Return the result as the graph computed it, with an axis for each atom."""
        return self._array(self._attention.result).astype(np.float64)

    def result(self) -> Array:
        """Return the result from q, k, v and masks."""
        attention = self._attention
        scores = self.scores()
        axes = tuple(
            place for place, atom in enumerate(self._axes) if attention.roles[atom] is Role.KEY
        )
        with np.errstate(all="ignore"):
            if scores.size:
                powers = np.exp(scores - scores.max(axis=axes, keepdims=True))
                scores = powers / powers.sum(axis=axes, keepdims=True)
        if attention.zero_empty_rows:
            scores = np.where(np.isnan(scores), 0, scores)
        v, result = attention.v, attention.result
        values = self._array(v).astype(np.float64) * v.factor
        return np.einsum(
            f"{self._text(self._axes)},{self._text(v.atoms)}->{self._text(result.atoms)}",
            scores,
            values,
        )

    def scores(self) -> Array:
        """Return the scores before the Softmax."""
        attention = self._attention
        q, k = attention.q, attention.k
        present = [atom for atom in self._axes if atom in q.atoms or atom in k.atoms]
        scores = np.einsum(
            f"{self._text(q.atoms)},{self._text(k.atoms)}->{self._text(present)}",
            self._array(q).astype(np.float64),
            self._array(k).astype(np.float64),
        )
        scores = self._spread(scores * attention.scale, present)
        for operand, divides in attention.scales:
            other = self._wide(operand)
            scores = scores / other if divides else scores * other
        if attention.softcap is not None:
            scores = attention.softcap * np.tanh(scores)
        scores = np.broadcast_to(scores, [self._sizes[atom] for atom in self._axes])
        for step in attention.after:
            if isinstance(step, Floor):
                scores = np.maximum(scores, step.least)
            elif isinstance(step, Add):
                scores = scores + self._wide(step.operand) * step.factor
            else:
                mask = self._wide(step.operand).astype(bool)
                scores = np.where(mask if step.keeps else ~mask, scores, step.fill)
        return scores

    def false_claims(self) -> list[str]:
        """Return what the numbers of the masks contradict: empty if all is right."""
        attention, scores, results = self._attention, self.scores(), list[str]()
        if not attention.mask.limits:
            return results
        query, key = (self._axes.index(attention.atoms(role)[0]) for role in (Role.QUERY, Role.KEY))
        retained = np.ones(scores.shape, bool)
        keys = np.array(range(scores.shape[key]), np.int64)
        queries = np.array(range(scores.shape[query]), np.int64)
        distance = _along(keys, key, scores.ndim) - _along(queries, query, scores.ndim)
        for limit in attention.mask.limits:
            most = self._evaluate(limit.at_most)
            retained &= (-distance if limit.is_window else distance) <= most
        if (scores[~retained] > MOST_OF_A_MASK / 2).any():
            results.append("a position that a limit excludes has a score")
        if not attention.mask.rest and (scores[retained] <= MOST_OF_A_MASK).any():
            results.append("a position that all limits keep is masked")
        return results

    def _array(self, operand: Operand) -> Array:
        """Return an operand with an axis for each of its atoms."""
        base = self._arrays[operand.base]
        sizes = [self._sizes[atom] for atom in operand.atoms]
        terms = [index for dim in operand.dims for index in dim]
        places: list[Array] = []
        for axis in range(base.ndim):
            place = np.full((1,) * len(sizes), self._evaluate(operand.offsets[axis]))
            for number, index in enumerate(terms):
                if index.axis == axis and base.shape[axis] != 1:
                    steps = self._evaluate(index.stride) * np.arange(sizes[number])
                    shape = [-1 if n == number else 1 for n in range(len(sizes))]
                    place = place + steps.reshape(shape)
            places.append(place)
        result = base[tuple(np.broadcast_arrays(*places))] if places else base
        return np.broadcast_to(result, sizes) if result.ndim else np.full(sizes, result)

    def _wide(self, operand: Operand) -> Array:
        """Return an operand that spreads over the axes of the scores."""
        array = self._array(operand)
        order = [atom for atom in self._axes if atom in operand.atoms]
        array = array.transpose([operand.atoms.index(atom) for atom in order])
        if array.dtype != bool:
            array = array.astype(np.float64) * operand.factor
        return self._spread(array, order)

    def _spread(self, array: Array, atoms: Sequence[Atom]) -> Array:
        sizes = dict(zip(atoms, array.shape, strict=True))
        return array.reshape([sizes.get(atom, 1) for atom in self._axes])

    def _text(self, atoms: Sequence[Atom]) -> str:
        return "".join(self._letters[atom] for atom in atoms)


def _along(numbers: Array, axis: int, rank: int) -> Array:
    return numbers.reshape([-1 if place == axis else 1 for place in range(rank)])


def difference(expected: Array, actual: Array) -> float:
    """Return the largest difference in terms of the largest number; NaN where only one has NaN."""
    if expected.shape != actual.shape:
        return float("inf")
    empty = np.isnan(expected)
    if (np.isnan(actual) != empty).any() or (empty.size and empty.all()):
        return float("nan")
    if not expected.size:
        return 0.0
    return float(
        np.abs(actual - expected)[~empty].max() / max(1e-6, np.abs(expected[~empty]).max())
    )
