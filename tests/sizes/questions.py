"""Random questions about sizes, checked on numbers: ``python tests/sizes/questions.py 200000``.

An expression is a nested tuple of operation and operands; numpy computes it for many valuations at
once. ``--sympy N`` also asks sympy about N pairs that are equal for all valuations. Exit code 1
where an answer is wrong, or under 99 % of the equal pairs are proven.
"""

from __future__ import annotations

import argparse
import random
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from importlib import import_module
from types import FrameType, MappingProxyType
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from gehost.sizes import Answer, Known, Scope, Size
from gehost.sizes.size import Atom

Expression: TypeAlias = "int | str | tuple[str, Expression, Expression]"
Numbers: TypeAlias = NDArray[np.int64]

NAMES: Mapping[str, int] = MappingProxyType({"b": 0, "s": 0, "t": 0, "w": 1, "n": 2})
"""Symbols and their least values."""
LARGEST = 1 << 40
"""Beyond, 64 bits may not suffice."""


def scope_of_names() -> Scope:
    """A scope with the facts of ``NAMES``."""
    scope = Scope()
    for name, least in NAMES.items():
        scope.assume(f"{name} >= {least}")
    return scope


def leaf(r: random.Random) -> Expression:
    if r.random() < 0.7:
        return r.choice(list(NAMES))
    return r.choice([0, 1, 1, 2, 2, 3, 4, 8, -1, -2])


def expression(r: random.Random, depth: int) -> Expression:
    """A random expression, whose divisors are mostly positive."""
    if depth == 0 or r.random() < 0.15:
        return leaf(r)
    op = r.choice(
        [
            "+",
            "+",
            "+",
            "-",
            "-",
            "*",
            "*",
            "//",
            "//",
            "%",
            "ceil",
            "min",
            "max",
            "broadcast",
            "either",
        ]
    )
    rest = expression(r, depth - 1)
    if op in ("//", "%", "ceil"):
        divisors: list[Expression] = [1, 2, 2, 3, 4, 8, "w", "n", "s", ("+", "s", 1)]
        return op, rest, r.choice([*divisors, ("*", 2, "w"), -2])
    return op, rest, expression(r, depth - 1)


def rewritten(r: random.Random, e: Expression) -> Expression:
    """An expression that is equal by laws of arithmetic, at random places."""
    if not isinstance(e, tuple):
        return e
    op, a, b = e[0], rewritten(r, e[1]), rewritten(r, e[2])
    k: Expression = r.choice([1, 2, 3, 4, "w", "n"])
    laws: list[Expression] = [(op, a, b)]
    if op in ("+", "*", "min", "max", "broadcast"):
        laws.append((op, b, a))
    if op == "*" and isinstance(b, tuple) and b[0] in ("+", "-"):
        laws.append((b[0], ("*", a, b[1]), ("*", a, b[2])))
    if op == "-":
        laws.append(("+", a, ("*", -1, b)))
    if op == "//":
        laws.append(("-", ("//", ("+", a, ("*", k, b)), b), k))
        laws.append(("//", ("*", a, k), ("*", b, k)))
        if isinstance(b, int) and b in (4, 8):
            laws.append(("//", ("//", a, 2), b // 2))
    if op == "%":
        laws.append(("-", a, ("*", b, ("//", a, b))))
    if op == "ceil":
        laws.append(("*", -1, ("//", ("*", -1, a), b)))
        if isinstance(b, int) and b > 0:
            laws.append(("//", ("+", a, b - 1), b))
    if op == "max":
        laws.append(("-", ("+", a, b), ("min", a, b)))
        laws.append(("*", -1, ("min", ("*", -1, a), ("*", -1, b))))
    if op == "min":
        laws.append(("+", b, ("min", ("-", a, b), 0)))
        laws.append(("-", ("+", a, b), ("max", b, a)))
    return r.choice(laws)


def question(r: random.Random) -> tuple[Expression, Expression]:
    """Two expressions, mostly equal ones."""
    first, kind = expression(r, r.choice([2, 3, 3, 4])), r.random()
    if kind < 0.6:
        return first, rewritten(r, first)
    if kind < 0.7:
        return first, expression(r, 3)
    if kind < 0.8:
        return first, ("+", rewritten(r, first), r.choice([1, -1, "w"]))
    return first, leaf(r)


def built(scope: Scope, e: Expression) -> Known:
    """The size of an expression."""
    if isinstance(e, int):
        return e
    if isinstance(e, str):
        return scope.symbol(e)
    functions: dict[str, Callable[[Known, Known], Known]] = {
        "+": scope.add, "-": scope.sub, "*": scope.mul, "//": scope.floordiv, "%": scope.mod,
        "ceil": scope.ceildiv, "min": scope.min, "max": scope.max,
        "broadcast": scope.broadcast, "either": scope.either,
    }  # fmt: skip
    return functions[e[0]](built(scope, e[1]), built(scope, e[2]))


def computed(op: str, a: Numbers, b: Numbers, fails: NDArray[np.bool_]) -> Numbers:
    """The numbers of one operation; ``fails`` marks where no run has any."""
    if op in ("//", "%", "ceil"):
        fails |= b == 0
        b = np.where(b == 0, 1, b)
        return a // b if op == "//" else a % b if op == "%" else -(-a // b)
    if op == "broadcast":
        fails |= (a != b) & (a != 1) & (b != 1)
        return np.where(a == 1, b, a)
    if op == "either":
        return np.where(a == 0, b, a)
    functions = {
        "+": np.add, "-": np.subtract, "*": np.multiply, "min": np.minimum, "max": np.maximum,
    }  # fmt: skip
    return functions[op](a, b)


def numbers_of(
    e: Expression, at: Mapping[str, Numbers], fails: NDArray[np.bool_], large: NDArray[np.bool_]
) -> Numbers:
    """What an expression is for each valuation; ``large`` marks those that 64 bits may not hold."""
    if isinstance(e, int):
        return np.full(fails.shape, e, np.int64)
    if isinstance(e, str):
        return at[e]
    left, right = (numbers_of(part, at, fails, large) for part in e[1:])
    result = computed(e[0], left, right, fails)
    large |= np.abs(result) > LARGEST
    return np.where(large, 1, result)


def numbers_of_size(scope: Scope, size: Known, at: Mapping[str, Numbers]) -> Numbers | None:
    """What a normal form is for each valuation; None beside a size that was cut off."""
    shape = at["s"].shape
    if isinstance(size, int):
        return np.full(shape, size, np.int64)
    total = np.zeros(shape, np.int64)
    for monomial, factor in size.terms:
        part = np.full(shape, factor, np.int64)
        for number in monomial:
            values = numbers_of_atom(scope, scope.atoms[number], at)
            if values is None:
                return None
            part = part * values
        total = total + part
    return total


def numbers_of_atom(scope: Scope, atom: Atom, at: Mapping[str, Numbers]) -> Numbers | None:
    """What an atom is for each valuation, as ``numbers_of_size``."""
    if atom.kind == "symbol":
        return at.get(atom.name)
    args = [numbers_of_size(scope, arg, at) for arg in atom.args]
    op = "//" if atom.kind == "floor" else atom.kind
    values = args[0]
    for other in args[1:]:
        if values is None or other is None:
            return None
        values = computed(op, values, other, np.zeros(other.shape, bool))
    return values


class Campaign:
    """Asks four questions about random pairs, and counts and compares the answers."""

    def __init__(self, seed: int = 0, valuations: int = 1000) -> None:
        self.answers = Counter[tuple[str, str]]()
        self.wrong = list[tuple[object, ...]]()
        self.missed = list[tuple[object, ...]]()
        """Equal for all valuations, and not proven."""
        self.steps = 0
        """Most of one construction."""
        self._random = random.Random(seed)
        self._numpy = np.random.default_rng(seed)
        self._valuations = valuations

    def run(self, count: int) -> Iterator[tuple[Expression, Expression, Answer]]:
        """Ask; yield the pairs that are equal for all valuations."""
        scope, at = scope_of_names(), self._drawn()
        for number in range(count):
            if number % 200 == 199:
                scope, at = scope_of_names(), self._drawn()
            first, second = question(self._random)
            answer = self.ask(scope, at, first, second)
            if answer is not None:
                yield first, second, answer

    def _drawn(self) -> dict[str, Numbers]:
        near = self._numpy.random(self._valuations) < 0.5
        return {
            name: np.where(
                near,
                self._numpy.integers(least, least + 6, self._valuations),
                self._numpy.integers(least, 200, self._valuations),
            )
            for name, least in NAMES.items()
        }

    def ask(
        self, scope: Scope, at: Mapping[str, Numbers], first: Expression, second: Expression
    ) -> Answer | None:
        """Compare the answers about one pair; return that of ``equal`` if all valuations are."""
        fails, large = (np.zeros(at["s"].shape, bool) for _ in range(2))
        x, y = (numbers_of(e, at, fails, large) for e in (first, second))
        try:
            a, b = (self._built(scope, e) for e in (first, second))
        except ZeroDivisionError:  # of the number 0
            self.answers["built", "division by 0"] += 1
            return None
        runs = ~fails & ~large
        self._check_form(scope, at, first, a, x, runs)
        x, y = x[runs], y[runs]
        nonzero = y != 0
        equal = scope.equal(a, b)
        holds = {
            "equal": (equal, x == y),
            "nonnegative": (scope.nonnegative(scope.sub(a, b)), x >= y),
            "divides": (scope.divides(b, a), (x % np.where(nonzero, y, 1) == 0)[nonzero]),
            "broadcastable": (scope.broadcastable(a, b), (x == y) | (x == 1) | (y == 1)),
        }
        for name, (answer, content) in holds.items():
            self.answers[name, answer.value] += 1
            if (answer is Answer.YES and not content.all()) or (
                answer is Answer.NO and content.any()
            ):
                self.wrong.append((name, answer, first, second, str(a), str(b)))
        if len(x) < self._valuations // 10 or not (x == y).all():
            return None
        if equal is not Answer.YES:
            self.missed.append((first, second, str(a), str(b)))
        return equal

    def _built(self, scope: Scope, e: Expression) -> Known:
        before = scope.steps
        size = built(scope, e)
        self.steps = max(self.steps, scope.steps - before)
        return size

    def _check_form(
        self,
        scope: Scope,
        at: Mapping[str, Numbers],
        e: Expression,
        size: Known,
        numbers: Numbers,
        runs: NDArray[np.bool_],
    ) -> None:
        form = numbers_of_size(scope, size, at)
        if form is not None and (form != numbers)[runs].any():
            self.wrong.append(("form", e, str(size)))
        low, high = scope.bounds(size)
        if (numbers[runs] < low).any() or (numbers[runs] > high).any():
            self.wrong.append(("bounds", e, str(size), low, high))
        if scope.parse(str(size)) is not size and isinstance(size, Size):
            self.wrong.append(("text", e, str(size)))


class _LateError(Exception):
    pass


def sympy_proves(first: Expression, second: Expression, seconds: float) -> bool | None:
    """Whether sympy proves two expressions equal; None if it fails or is late."""
    sympy: Any = import_module("sympy")  # takes a second; pyright knows half of its types

    symbols = {
        name: sympy.Symbol(name, integer=True, nonnegative=True, positive=least > 0 or None)
        for name, least in NAMES.items()
    }

    def result(e: Expression) -> Any:
        if isinstance(e, int):
            return sympy.Integer(e)
        if isinstance(e, str):
            return symbols[e]
        a, b = result(e[1]), result(e[2])
        functions: dict[str, Callable[[], Any]] = {
            "+": lambda: a + b, "-": lambda: a - b, "*": lambda: a * b,
            "//": lambda: sympy.floor(a / b), "%": lambda: sympy.Mod(a, b),
            "ceil": lambda: sympy.ceiling(a / b), "min": lambda: sympy.Min(a, b),
            "max": lambda: sympy.Max(a, b),
        }  # fmt: skip
        return functions[e[0]]()

    def late(number: int, frame: FrameType | None) -> None:
        raise _LateError

    signal.signal(signal.SIGALRM, late)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        difference = result(first) - result(second)
        return bool(sympy.expand(difference) == 0 or sympy.simplify(difference) == 0)
    except Exception:  # noqa: BLE001  # sympy raises many kinds
        return None
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)


def sympy_knows(e: Expression) -> bool:
    """Whether sympy has all functions of an expression."""
    if not isinstance(e, tuple):
        return True
    return e[0] not in ("broadcast", "either") and all(map(sympy_knows, e[1:]))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("count", type=int)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--valuations", type=int, default=1000)
    parser.add_argument("--sympy", type=int, default=0, metavar="N")
    parser.add_argument("--seconds", type=float, default=2, help="of sympy for a pair")
    args = parser.parse_args()
    campaign, proven = Campaign(args.seed, args.valuations), Counter[tuple[object, Answer]]()
    pairs = yes = 0
    begin = time.perf_counter()
    for first, second, answer in campaign.run(args.count):
        pairs += 1
        yes += answer is Answer.YES
        if pairs <= args.sympy and sympy_knows(first) and sympy_knows(second):
            proof = sympy_proves(first, second, args.seconds)
            proven[proof, answer] += 1
            if proof and answer is not Answer.YES:
                print("sympy proves", first, second, sep=" | ")
    for key, number in sorted(campaign.answers.items()):
        print(number, *key)
    for key, number in proven.items():
        print(number, "sympy", *key)
    print(f"{pairs} equal pairs, {yes} proven; {len(campaign.wrong)} wrong answers;"
          f" at most {campaign.steps} steps; {time.perf_counter() - begin:.0f} s")  # fmt: skip
    for line in campaign.wrong[:8]:
        print("WRONG", *line, sep=" | ")
    for line in campaign.missed[:8]:
        print("missed", *line, sep=" | ")
    return 1 if campaign.wrong or yes < 0.99 * pairs else 0


if __name__ == "__main__":
    raise SystemExit(main())
