"""Symbols, facts and sizes of one model, and what is computed with them.

Every law holds for the runs that do not fail: those in which no divisor is 0 and sizes broadcast.
A normal form depends on the operands alone, not on earlier questions: else the order of passes
would decide whether equal sizes look equal.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from math import inf

from gehost.sizes import facts, minima, proofs, quotients, texts
from gehost.sizes.size import (
    Answer,
    Atom,
    Dim,
    Facts,
    Kind,
    Known,
    Monomial,
    Origin,
    Size,
    Terms,
    constant_of,
    leading,
    lower,
    order,
    terms_of,
    times,
    upper,
    without,
)

MOST_WEIGHT = 64
"""Terms plus weights of their atoms; a heavier result is a symbol of its own.

Equal operations on equal operands share it, so equal computations stay equal.
"""
_LARGEST = 1 << 62
"""Limit of coefficients."""
_LONGEST_TEXT = 256
"""A longer text is an unnamed one, which no file gets."""


class Scope:
    """The sizes of one model. Facts come before the sizes that they are about."""

    def __init__(self) -> None:
        """Start without symbols."""
        self.atoms: list[Atom] = []
        self.steps = 0
        """Operations so far, without remembered ones: what a construction costs."""
        self.results: dict[Hashable, Known] = {}
        self.proofs: dict[tuple[Size, int], bool] = {}
        self.budget = 0
        self.facts = Facts()
        self.chosen: dict[int, Known] = {}
        """Minima that are one of their operands where no tensor is empty."""
        self.reshapes: dict[Hashable, tuple[Dim, ...]] = {}
        """Results of ``lengths.reshaped``."""
        self.multiples: dict[Monomial, tuple[str, int]] = {}
        """Names whose sizes are multiples of a number, by their only monomial."""
        self._filled: dict[Known, Known] = {}
        self._answers: dict[Size, Answer] = {}
        self._signs: dict[Size, Answer] = {}
        self._atoms: dict[tuple[Kind, Hashable], Size] = {}
        self._sizes: dict[Terms, Size] = {}
        self._symbols: dict[str, Known] = {}
        self._texts: dict[str, Known] = {}
        self._unnamed = 0

    # symbols

    def symbol(self, name: str, origin: Origin | None = None) -> Known:
        """Return the size of a name, as the facts have it."""
        size = self._symbols.get(name)
        if size is None:
            least, most, step = self.facts.of(name)
            if least == most:
                size = int(least)
            elif step > 1:
                most = most if most == inf else most // step
                part = f"{name} // {step}"
                size = self.mul(self.atom("symbol", name, least // step, most, part, origin), step)
                if isinstance(size, Size):
                    size.text = name
                    self._texts[name] = size
                    self.multiples[size.terms[0][0]] = name, step
            else:
                size = self.atom("symbol", name, least, most, name, origin)
            self._symbols[name] = size
        return size

    def keyed(
        self,
        key: Hashable,
        *,
        least: float = 0,
        most: float = inf,
        origin: Origin | None = None,
    ) -> Size:
        """Return a size that only a key decides: an operation and its operands."""
        size = self._atoms.get(("symbol", ("key", key)))
        if size is None:
            name = self.unnamed()
            size = self.atom("symbol", ("key", key), least, most, name, origin)
            self._texts[name] = size
        return size

    def unnamed(self) -> str:
        """Return a new name that is not the model's."""
        while True:
            self._unnamed += 1
            name = f"?{self._unnamed}"
            if name not in self._symbols and name not in self._texts:
                return name

    def named(self, name: str) -> Known | None:
        """Return the size of a name in use, None if it is in none."""
        size = self._symbols.get(name)
        if size is None and name.startswith("?"):  # of this scope, or of the one that it copies
            return self.parse(name)
        return size

    def symbols(self) -> Mapping[str, Known]:
        """Return the names of the model and their sizes."""
        return self._symbols

    # polynomials

    def atom(
        self,
        kind: Kind,
        key: Hashable,
        least: float,
        most: float,
        name: str = "",
        origin: Origin | None = None,
        args: tuple[Known, ...] = (),
    ) -> Size:
        """Return the size that is one atom: the same one for the same kind and key."""
        size = self._atoms.get((kind, key))
        if size is None:
            atom = Atom(len(self.atoms), kind, args, lower(least), upper(most), name, origin)
            if atom.weight > MOST_WEIGHT:
                atom = Atom(atom.number, "symbol", (), atom.least, atom.most, self.unnamed())
            self.atoms.append(atom)
            size = self._atoms[kind, key] = atom.size = self._size((((atom.number,), 1),))
        return size

    def call(self, kind: Kind, args: tuple[Known, ...], least: float, most: float) -> Size:
        """Return the atom of a function of sizes."""
        return self.atom(kind, args, least, most, args=args)

    def of(self, terms: Mapping[Monomial, int], key: Hashable) -> Known:
        """Return the size of a polynomial; ``key`` names it if it is too large."""
        self.steps += 1
        items = tuple(sorted([term for term in terms.items() if term[1]]))
        if not items:
            return 0
        if len(items) == 1 and not items[0][0]:
            return items[0][1]
        size = self._size(items)
        if size.weight > MOST_WEIGHT or any(not -_LARGEST < c < _LARGEST for _, c in items):
            least, most = self.bounds(size)
            return self.keyed(key, least=least, most=most)
        return size

    def _size(self, terms: Terms) -> Size:
        size = self._sizes.get(terms)
        if size is None:
            size = self._sizes[terms] = Size(self, terms)
        return size

    def add(self, a: Known, b: Known) -> Known:
        """Return ``a + b``."""
        if isinstance(a, int):
            if isinstance(b, int):
                return a + b
            a, b = b, a
        if isinstance(b, int):
            if b == 0:
                return a
            total = constant_of(a) + b
            rest = a.terms if a.terms[0][0] else a.terms[1:]
            if -_LARGEST < total < _LARGEST and len(rest) < MOST_WEIGHT // 2:
                return self._size((((), total), *rest) if total else rest)
        key = ("+", a, b) if isinstance(b, int) or id(a) < id(b) else ("+", b, a)
        size = self.results.get(key)
        if size is None:
            poly = dict(a.terms)
            for m, c in terms_of(b):
                poly[m] = poly.get(m, 0) + c
            size = self.results[key] = self.of(poly, key)
        return size

    def sub(self, a: Known, b: Known) -> Known:
        """Return ``a - b``, which may be negative."""
        return 0 if a is b else self.add(a, self.mul(b, -1))

    def mul(self, a: Known, b: Known) -> Known:
        """Return ``a * b``."""
        if isinstance(a, int):
            if isinstance(b, int):
                return a * b
            a, b = b, a
        if isinstance(b, int) and b in (0, 1):
            return a if b else 0
        key = ("*", a, b) if isinstance(b, int) or id(a) < id(b) else ("*", b, a)
        size = self.results.get(key)
        if size is None:
            poly: dict[Monomial, int] = {}
            for m, c in a.terms:
                for n, d in terms_of(b):
                    both = tuple(sorted(m + n)) if m and n else m or n
                    poly[both] = poly.get(both, 0) + c * d
            size = self.results[key] = self.of(poly, key)
        return size

    def division(self, a: Known, b: Known) -> tuple[Known, Known]:
        """Divide with remainder: ``a = whole * b + rest``, in one order of monomials."""
        poly = dict(terms_of(a))
        if isinstance(b, int):
            wholes = {m: c // b for m, c in poly.items()}
            rests = {m: c % b for m, c in poly.items()}
            return self.of(wholes, ("whole", a, b)), self.of(rests, ("rest", a, b))
        lead, factor = leading(b)
        waiting = sorted(poly, key=order)
        wholes = dict[Monomial, int]()
        steps = 0
        while waiting:
            monomial = waiting.pop()
            count = poly.get(monomial, 0) // factor
            rest = without(monomial, lead) if count else None
            if rest is None:
                continue
            steps += 1
            if steps > MOST_WEIGHT:
                return 0, a
            wholes[rest] = wholes.get(rest, 0) + count
            for m, c in b.terms:
                both = tuple(sorted(m + rest))
                if both not in poly:
                    poly[both] = 0
                    waiting.append(both)
                    waiting.sort(key=order)
                poly[both] -= count * c
        return self.of(wholes, ("whole", a, b)), self.of(poly, ("rest", a, b))

    # functions

    def floordiv(self, a: Known, b: Known) -> Known:
        """Return ``a // b``, rounded down.

        A node that divides by 0 fails, so that a ``b`` of at least 0 is at least 1.

        Raises:
            ZeroDivisionError: ``b`` is the number 0.
        """
        if isinstance(a, int) and isinstance(b, int):
            return a // b
        if (isinstance(b, int) and b == 1) or (isinstance(a, int) and a == 0):
            return a
        key = ("//", a, b)
        size = self.results.get(key)
        if size is None:
            size = self.results[key] = quotients.quotient(self, a, b)
        return size

    def ceildiv(self, a: Known, b: Known) -> Known:
        """Return ``a / b``, rounded up; otherwise as ``floordiv``."""
        return self.mul(self.floordiv(self.mul(a, -1), b), -1)

    def mod(self, a: Known, b: Known) -> Known:
        """Return ``a % b`` with the sign of ``b``; otherwise as ``floordiv``."""
        return self.sub(a, self.mul(b, self.floordiv(a, b)))

    def min(self, *sizes: Known) -> Known:
        """Return the least of some sizes."""
        if len(sizes) == 1:
            return sizes[0]
        key = ("min", frozenset(sizes))
        size = self.results.get(key)
        if size is None:
            size = self.results[key] = minima.least(self, sizes)
        return size

    def max(self, *sizes: Known) -> Known:
        """Return the greatest of some sizes."""
        return self.mul(self.min(*[self.mul(size, -1) for size in sizes]), -1)

    def broadcast(self, *sizes: Known) -> Known:
        """Return the size of an axis that broadcasts: 1 gives way, others are equal."""
        return minima.broadcast(self, sizes)

    def either(self, a: Known, b: Known) -> Known:
        """Return ``a``, or ``b`` where ``a`` is 0: what Reshape's 0 copies."""
        return minima.either(self, a, b)

    def filled(self, size: Known) -> Known:
        """Return a size as it is where no tensor is empty: ``either(a, b)`` is ``a``."""
        result = self._filled.get(size)
        if result is None:
            result = self._filled[size] = minima.filled(self, size)
        return result

    def learn(self, one: Known, other: Known) -> None:
        """Note that two products are equal, for ``filled``: those of a Reshape's sizes."""
        one, other = self.filled(one), self.filled(other)
        if isinstance(one, Size) and isinstance(other, Size) and one is not other:
            entry = len(self.chosen)
            minima.learn(self, one, other)
            if len(self.chosen) > entry:
                self._filled.clear()

    # questions

    def bounds(self, size: Known) -> tuple[float, float]:
        """Return the least and the largest value that intervals prove."""
        if isinstance(size, int):
            return size, size
        if size.bounds is None:
            low = high = 0
            for m, c in size.terms:
                least = most = c
                for i in m:
                    atom = self.atoms[i]
                    ends = [times(x, y) for x in {least, most} for y in {atom.least, atom.most}]
                    least, most = lower(min(ends)), upper(max(ends))
                low, high = low + least, high + most
            size.bounds = lower(low), upper(high)
        return size.bounds

    def equal(self, a: Known, b: Known) -> Answer:
        """Return whether two sizes are equal."""
        difference = self.sub(a, b)
        if isinstance(difference, int):
            return Answer.NO if difference else Answer.YES
        answer = self._answers.get(difference)
        if answer is None:
            answer = proofs.is_zero(self, difference)
            if answer is not Answer.UNKNOWN or self.budget >= 0:
                self._answers[difference] = answer
        return answer

    def nonnegative(self, size: Known) -> Answer:
        """Return whether a size is at least 0."""
        if isinstance(size, int):
            return Answer.NO if size < 0 else Answer.YES
        answer = self._signs.get(size)
        if answer is None:
            answer = proofs.nonnegative(self, size)
            if answer is not Answer.UNKNOWN or self.budget >= 0:
                self._signs[size] = answer
        return answer

    def divides(self, part: Known, total: Known) -> Answer:
        """Return whether ``total`` is a multiple of ``part``; unknown for the number 0."""
        return Answer.UNKNOWN if part == 0 else self.equal(self.mod(total, part), 0)

    def broadcastable(self, a: Known, b: Known) -> Answer:
        """Return whether two sizes broadcast: they are equal, or one is 1."""
        same, ones = self.equal(a, b), [self.equal(size, 1) for size in (a, b)]
        if Answer.YES in (same, *ones):
            return Answer.YES
        return Answer.NO if same is Answer.NO and ones == [Answer.NO] * 2 else Answer.UNKNOWN

    # texts

    def written(self, size: Size) -> str:
        """Return the text of a size; ``parse`` reads it as the same object."""
        if not size.text:
            text = texts.written(self, size)
            if len(text) > _LONGEST_TEXT and text not in self._symbols:
                text = self.unnamed()
            if self._texts.setdefault(text, size) is not size:
                text = self.unnamed()  # one text cannot be two sizes
                self._texts[text] = size
            size.text = text
        return size.text

    def parse(self, text: str, origin: Origin | None = None) -> Known:
        """Return the size of a text of this scope, or of a file.

        It is an expression if it has names and this scope has all of them, else one name: a file
        may call a size ``3``.
        """
        size = self._texts.get(text)
        if size is None:
            size = texts.parsed(text, self) if texts.names(text) else None
            if size is None:
                size = self.symbol(text, origin)
            self._texts[text] = size
        return size

    def parse_all(self, shape: Iterable[int | str | None]) -> list[Dim]:
        """Return the sizes of a shape of texts."""
        return [self.parse(dim) if isinstance(dim, str) else dim for dim in shape]

    def declare(self, names: Iterable[str]) -> None:
        """Make names of inputs known: first those that are no expressions."""
        waiting = list(names)
        for name in [name for name in waiting if texts.is_name(name)]:
            self.symbol(name)
        for text in waiting:
            self.parse(text)

    def value(self, size: Known, numbers: Mapping[str, int]) -> int:
        """Return a size in a run with these numbers for its names.

        Raises:
            KeyError: a name has no number.
            ZeroDivisionError: a divisor is 0.
        """
        return texts.value(self, size, numbers)

    def names_in(self, text: str) -> frozenset[str]:
        """Return the names of the symbols in the text of a size."""
        size = self.parse(text)
        return frozenset(atom.name for atom in texts.symbols_in(self, size))

    def described(self, size: Dim) -> str:
        """Return a size's text, and where its unnamed sizes come from, for a message."""
        return texts.described(self, size)

    # facts

    def assume(self, fact: str) -> None:
        """Take a fact: ``total == past + seq``, ``seq <= 4096``, ``seq % 8 == 0``.

        ``sizes >= 1`` is about all sizes of inputs.

        Raises:
            UsageError: it is no such fact, or its name is already in use.
        """
        facts.assume(self, fact)

    def assume_all(self, declared: Iterable[str]) -> None:
        """Take facts in any order, as ``assume``."""
        facts.assume_all(self, declared)

    def define(self, name: str, size: Known) -> None:
        """Make a name a spelling of a size; a caller checks that the name is not in use."""
        self._symbols[name] = size
