"""Choose sizes for the symbolic dimensions of a signature.

Equal symbols get equal sizes, different symbols different ones, so that mixed-up axes show.
Sums and products of symbols (``past + seq``, ``2*s0``) are computed; any other text counts as one
symbol.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType

from gehost.sizes import Scope, texts

Dims = tuple[int | str, ...]
Ties = dict[str, tuple[str, ...]]
NO_SIZES: Mapping[str, int] = MappingProxyType({})

# Three variants of small sizes, then three for each of these units: all but the leading
# dimensions are multiples of it.
UNITS = (1, 8, 32, 224)


class Sizes:
    """The sizes of all symbols in one variant.

    Args:
        shapes: Of all inputs, in order.
        variant: 0, 1, 2: small sizes, in 1 the first symbol (usually the batch) is 1; from 3
            on larger ones.
        ties: Equalities that the signature hides: symbol → the symbols whose sum it is.
        chosen: Sizes of symbols, in place of the variant's.
    """

    def __init__(
        self,
        shapes: Sequence[Dims],
        variant: int,
        ties: Mapping[str, Sequence[str]],
        chosen: Mapping[str, int] = NO_SIZES,
    ) -> None:
        scale, choice = divmod(variant, 3)
        unit = UNITS[min(scale, len(UNITS) - 1)]
        leading = {symbol for dims in shapes for symbol in _symbols(*dims[:1])}
        fixed = {dim for dims in shapes for dim in dims}
        # Primes, so that no Reshape fits by chance; and different from all fixed dimensions.
        start = (2, 5, 3)[choice]
        small = (
            n for n in itertools.count(start) if n not in fixed and all(n % k for k in range(2, n))
        )
        large = (n for n in itertools.count(unit * (1 + choice), unit) if n not in fixed)
        symbols = list(dict.fromkeys(symbol for dims in shapes for symbol in _symbols(*dims)))
        self._sizes = {s: next(small if unit == 1 or s in leading else large) for s in symbols}
        if choice == 1 and symbols:
            self._sizes[symbols[0]] = 1
        self._sizes |= chosen
        self._sums = {
            symbol: sum(self._sizes[part] for part in parts)
            for symbol, parts in ties.items()
            if all(part in self._sizes for part in parts)
        }
        self._scope = Scope()
        self._scope.declare({**self._sizes, **self._sums})

    def __getitem__(self, dim: int | str) -> int:
        if isinstance(dim, int):
            return dim
        if dim in self._sums:
            return self._sums[dim]
        if dim in self._sizes:
            return self._sizes[dim]
        size = texts.parsed(dim, self._scope)  # that of a name of digits may well be its number
        if size is None:
            size = self._scope.parse(dim)
        return self._scope.value(size, {**self._sizes, **self._sums})

    def known(self, dims: Dims) -> list[int]:
        """Return the sizes of those dimensions whose symbols are known.

        Others come from shape inference, which creates symbols of its own.
        """
        results: list[int] = []
        for dim in dims:
            try:
                results.append(self[dim])
            except KeyError:
                continue
        return results


def tie_plans(shapes: Sequence[Dims], changes: int) -> Iterator[Ties]:
    """Guess equalities and sums between symbols.

    A model may need them, and its signature hides them.

    First none; then symbols on the same axis of inputs of the same rank are equal; then, starting
    from that, up to ``changes`` symbols are free, equal to another symbol or to the sum of two
    others. Never circular: only free symbols are used.
    """
    aligned = _aligned(shapes)
    yield {}
    if aligned:
        yield aligned
    order = list(dict.fromkeys(symbol for dims in shapes for symbol in _symbols(*dims)))
    free = [symbol for symbol in order if symbol not in aligned]
    moves: list[tuple[str, tuple[str, ...]]] = []
    for symbol in reversed(order):
        others = [f for f in free if f != symbol]
        targets = [(), *((f,) for f in others), *itertools.combinations(others, 2)]
        moves += [(symbol, target) for target in targets if target != aligned.get(symbol, ())]
    for count in range(1, changes + 1):
        for chosen in itertools.combinations(moves, count):
            changed = dict(chosen)
            ties = {symbol: target for symbol, target in {**aligned, **changed}.items() if target}
            if len(changed) == count and not any(
                part in ties for target in ties.values() for part in target
            ):
                yield ties


def _aligned(shapes: Sequence[Dims]) -> Ties:
    """Tie each symbol to the first one on the same axis.

    Only inputs of the same rank count.
    """
    order = list(dict.fromkeys(symbol for dims in shapes for symbol in _symbols(*dims)))
    leaders: dict[tuple[int, int], str] = {}
    earlier: dict[str, str] = {}
    for dims in shapes:
        for axis, dim in enumerate(dims):
            if isinstance(dim, str) and dim in order:
                leader = leaders.setdefault((len(dims), axis), dim)
                if order.index(leader) < order.index(dim):
                    earlier.setdefault(dim, leader)
    aligned: Ties = {}
    for symbol in order:  # its leader comes earlier in the order
        if symbol in earlier:
            aligned[symbol] = aligned.get(earlier[symbol], (earlier[symbol],))
    return aligned


def _symbols(*dims: int | str) -> Iterator[str]:
    """Yield the symbols of dimensions.

    They are the parts of sums and products, or the whole text.
    """
    for dim in dims:
        if isinstance(dim, str):
            yield from (part for part in texts.parts(dim) if not part.isdecimal())
