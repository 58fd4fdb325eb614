"""Texts of sizes: printing, and reading those of files and users.

Python's operators and ``min``, ``max``, ``ceildiv``, ``broadcast``, ``either``; PyTorch's ``Min``,
``Max``, ``Mod`` and ``floor`` are read, too. A name with operators in it is quoted.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from math import gcd, prod
from types import MappingProxyType

from gehost.sizes.minima import single
from gehost.sizes.size import (
    Algebra,
    Atom,
    Dim,
    Known,
    Monomial,
    Size,
    divided,
    shared_by,
    terms_of,
)

_NAME = re.compile(r"""[^\s\d*+\-/%(),"<>=!][^\s*+\-/%(),"<>=!]*""")
_TOKEN = re.compile(
    rf"""\s*(?:(\d+)|({_NAME.pattern})|"((?:[^"\\]|\\.)*)"|(//|\*\*|[*+\-/%(),]))"""
)
_SUM = re.compile(r"[\w.]+(\s*[+*]\s*[\w.]+)*")
_LONGEST = 1024
_DEEPEST = 32
_MOST_POWER = 8


class NoExpressionError(Exception):
    """A text is no expression of names that the scope has."""


# printing


def written(scope: Algebra, size: Size) -> str:
    """Return a size's text."""
    for m, c in size.terms:  # rest + min(0, x) is min(rest, rest + x)
        atom = scope.atoms[m[0]] if len(m) == 1 else None
        if atom is not None and atom.kind == "min" and abs(c) == 1:
            rest = scope.of({n: d for n, d in size.terms if n != m}, ("rest", size, m))
            parts = [str(scope.add(rest, scope.mul(arg, c))) for arg in atom.args]
            return f"{'min' if c > 0 else 'max'}({', '.join(sorted(parts))})"
    text = _one_quotient(scope, size) or _multiple(scope, size)
    if text:
        return text
    if len(size.terms) == 1:
        atom = single(scope, size)
        if atom is not None and atom.kind == "symbol":
            return atom.name
    terms = sorted(_term(scope, m, c) for m, c in size.terms)
    for _, factors, c in terms:
        sign = (" - " if c < 0 else " + ") if text else ("-" if c < 0 else "")
        number = [str(abs(c))] if abs(c) != 1 or not factors else []
        text += sign + "*".join([*number, *filter(None, [factors])])
    return text


def _term(scope: Algebra, monomial: Monomial, factor: int) -> tuple[int, str, int]:
    """Return the place, text and coefficient of a term."""
    name, step = scope.multiples.get(monomial, ("", 1))
    if name and factor % step == 0:
        return -len(monomial), name, factor // step
    factors = sorted([_factor(scope.atoms[i]) for i in monomial])
    return -len(monomial), "*".join(factors), factor


def _multiple(scope: Algebra, size: Size) -> str:
    """What a quotient's size is a multiple of goes before it: ``2*ceildiv(n, 4)``."""
    shared, g = shared_by([m for m, _ in size.terms]), gcd(*[c for _, c in size.terms])
    if len(size.terms) < 2 or not (shared or g > 1):
        return ""
    part = scope.of(divided(dict(size.terms), shared, g), ("/", g, shared, size))
    text = _one_quotient(scope, part) if isinstance(part, Size) else ""
    if not text:
        return ""
    factors = [_factor(scope.atoms[i]) for i in shared]
    return "*".join([str(g)] * (g > 1) + [text if text[-1] == ")" else f"({text})", *factors])


def _one_quotient(scope: Algebra, size: Size) -> str:
    """What is beside a quotient goes inside, where the text gets no longer."""
    atoms = [scope.atoms[i] for m, _ in size.terms for i in m]
    if sum(atom.kind != "symbol" for atom in atoms) != 1:
        return ""
    for m, c in size.terms:
        atom = scope.atoms[m[0]] if len(m) == 1 else None
        if atom is not None and atom.kind == "floor" and abs(c) == 1:
            x, y = atom.args
            rest = scope.of({n: d for n, d in size.terms if n != m}, ("rest", size, m))
            inside = scope.add(scope.mul(rest, y), scope.mul(x, c))
            if c < 0 and isinstance(y, int):
                inside = scope.add(inside, y - 1)
            if len(terms_of(inside)) >= len(size.terms) + len(terms_of(x)):
                return ""
            if c > 0 or isinstance(y, int):
                return _floor(scope, inside, y)
            return f"ceildiv({inside}, {y})"
    return ""


def _floor(scope: Algebra, x: Known, y: Known) -> str:
    above = scope.sub(x, scope.sub(y, 1))
    if len(terms_of(above)) < len(terms_of(x)):
        return f"ceildiv({above}, {y})"
    return f"{_operand(scope, x)} // {_operand(scope, y)}"


def _operand(scope: Algebra, size: Known) -> str:
    if isinstance(size, int):
        return str(size)
    atom = single(scope, size)
    return f"({size})" if atom is None else _factor(atom)


def _factor(atom: Atom) -> str:
    """Text of an atom inside a product."""
    if atom.kind == "symbol":
        if _NAME.fullmatch(atom.name):
            return atom.name
        escaped = re.sub(r'(["\\])', r"\\\1", atom.name)
        return f'"{escaped}"'
    if atom.kind == "floor":
        scope = next(arg.scope for arg in atom.args if isinstance(arg, Size))
        text = _floor(scope, *atom.args)
        return text if text[-1] == ")" and text.startswith("ceildiv(") else f"({text})"
    return f"{atom.kind}({', '.join(map(str, atom.args))})"


def described(scope: Algebra, size: Dim) -> str:
    """Return a size's text with the origins of its unnamed sizes."""
    if not isinstance(size, Size):
        return "an unknown size" if size is None else str(size)
    atom = single(scope, size)
    if atom is not None and atom.origin is not None and atom.name.startswith("?"):
        return str(atom.origin)
    origins = [
        f"{atom.name} is {atom.origin}"
        for atom in symbols_in(scope, size)
        if atom.origin is not None and atom.name.startswith("?")
    ]
    return f"{size}" + (f", where {' and '.join(origins)}" if origins else "")


def symbols_in(scope: Algebra, size: Known) -> list[Atom]:
    """The symbols of a size, those inside functions included, each once."""
    symbols = dict[int, Atom]()
    waiting = [size]
    while waiting:
        for m, _ in terms_of(waiting.pop()):
            for atom in [scope.atoms[i] for i in m]:
                if atom.kind == "symbol":
                    symbols[atom.number] = atom
                waiting.extend(atom.args)
    return [symbols[number] for number in sorted(symbols)]


def value(scope: Algebra, size: Known, numbers: Mapping[str, int]) -> int:
    """Return a size in a run."""
    if isinstance(size, int):
        return size
    return sum(c * prod([_value(scope, scope.atoms[i], numbers) for i in m]) for m, c in size.terms)


def _value(scope: Algebra, atom: Atom, numbers: Mapping[str, int]) -> int:
    args = [value(scope, arg, numbers) for arg in atom.args]
    match atom.kind:
        case "symbol":
            return numbers[atom.name]
        case "floor":
            return args[0] // args[1]
        case "min":
            return min(args)
        case "either":
            return args[0] or args[1]
        case "broadcast":
            return next((arg for arg in args if arg != 1), 1)


# reading


def parts(text: str) -> list[str]:
    """Return the names of a sum or product of names and numbers, else the text itself."""
    if not _SUM.fullmatch(text):
        return [text]
    return [part for part in re.split(r"\s*[+*]\s*", text) if not part.isdecimal()]


def names(text: str) -> list[str]:
    """Return the names in an expression of a user, whether a scope has them or not."""
    return [
        match[2] or _unquoted(match[3])
        for match in _TOKEN.finditer(text)
        if match[3] or (match[2] and not text[match.end() :].lstrip().startswith("("))
    ]


def _unquoted(text: str) -> str:
    return re.sub(r"\\(.)", r"\1", text)


def is_invented(text: object) -> bool:
    """Whether a dimension contains a name that inference invented."""
    return isinstance(text, str) and "?" in text


def is_name(text: str) -> bool:
    """Whether a text is a name without operators."""
    return _NAME.fullmatch(text) is not None


def parsed(text: str, scope: Algebra) -> Known | None:
    """Return the size of an expression of the scope's names, None if it is none."""
    if len(text) > _LONGEST or _NAME.fullmatch(text):
        return None
    try:
        return _Reader(text, scope).size()
    except (NoExpressionError, ZeroDivisionError):
        return None


class _Reader:
    """Recursive descent; a value is a numerator and a denominator, for PyTorch's ``floor(s/2)``."""

    def __init__(self, text: str, scope: Algebra) -> None:
        self._scope = scope
        self._depth = 0
        self._at = 0
        self._tokens = list[tuple[str, str]]()
        """Kind and text: ``1`` a number, ``a`` a name, else an operator twice."""
        place = 0
        text = text.rstrip()
        while place < len(text):
            match = _TOKEN.match(text, place)
            if match is None:
                raise NoExpressionError
            number, name, quoted, operator = match.groups()
            if quoted is not None:
                name = _unquoted(quoted)
            token = ("1", number) if number else ("a", name) if name else (operator, operator)
            self._tokens.append(token)
            place = match.end()

    def size(self) -> Known:
        size = self._whole(self._sum())
        if self._at < len(self._tokens):
            raise NoExpressionError
        return size

    def _whole(self, value: tuple[Known, Known]) -> Known:
        top, bottom = value
        if bottom == 1:
            return top
        whole, rest = self._scope.division(top, bottom)
        if rest != 0:
            raise NoExpressionError
        return whole

    def _next(self, *operators: str) -> str:
        """Take the next token if it is one of some operators."""
        kind = self._tokens[self._at][0] if self._at < len(self._tokens) else ""
        if kind and kind in operators:
            self._at += 1
            return kind
        return ""

    def _expect(self, operator: str) -> None:
        if not self._next(operator):
            raise NoExpressionError

    def _sum(self) -> tuple[Known, Known]:
        scope = self._scope
        top, bottom = self._product()
        while operator := self._next("+", "-"):
            other, below = self._product()
            both = scope.add if operator == "+" else scope.sub
            if bottom is below or bottom == below:
                top = both(top, other)
            else:
                top = both(scope.mul(top, below), scope.mul(other, bottom))
                bottom = scope.mul(bottom, below)
        return top, bottom

    def _product(self) -> tuple[Known, Known]:
        scope = self._scope
        top, bottom = self._signed()
        while operator := self._next("*", "//", "/", "%"):
            other, below = self._signed()
            if operator == "*":
                top, bottom = scope.mul(top, other), scope.mul(bottom, below)
            elif operator == "/":
                if other == 0:
                    raise NoExpressionError
                top, bottom = scope.mul(top, below), scope.mul(bottom, other)
            else:
                function = scope.floordiv if operator == "//" else scope.mod
                top, bottom = function(self._whole((top, bottom)), self._whole((other, below))), 1
        return top, bottom

    def _signed(self) -> tuple[Known, Known]:
        self._depth += 1
        if self._depth > _DEEPEST:
            raise NoExpressionError
        if self._next("-"):
            top, bottom = self._signed()
            value = self._scope.mul(top, -1), bottom
        else:
            value = self._operand()
            if self._next("**"):
                power = self._operand()[0]
                if not isinstance(power, int) or power > _MOST_POWER or value[1] != 1:
                    raise NoExpressionError
                base, value = value[0], (1, 1)
                for _ in range(power):
                    value = self._scope.mul(value[0], base), 1
        self._depth -= 1
        return value

    def _operand(self) -> tuple[Known, Known]:
        if self._next("("):
            value = self._sum()
            self._expect(")")
            return value
        kind, text = self._tokens[self._at] if self._at < len(self._tokens) else ("", "")
        self._at += 1
        if kind == "1":
            return int(text), 1
        if kind != "a":
            raise NoExpressionError
        if self._next("("):
            return self._call(text), 1
        size = self._scope.named(text)
        if size is None:
            raise NoExpressionError
        return size, 1

    def _call(self, name: str) -> Known:
        scope = self._scope
        values = [self._sum()]
        while self._next(","):
            values.append(self._sum())
        self._expect(")")
        if name in ("floor", "ceil", "ceiling") and len(values) == 1:
            ((top, bottom),) = values
            return scope.floordiv(top, bottom) if name == "floor" else scope.ceildiv(top, bottom)
        args = [self._whole(value) for value in values]
        if name in ("min", "Min"):
            return scope.min(*args)
        if name in ("max", "Max"):
            return scope.max(*args)
        if name == "broadcast":
            return scope.broadcast(*args)
        functions: Mapping[str, Callable[[Known, Known], Known]] = MappingProxyType(
            {
                "ceildiv": scope.ceildiv,
                "either": scope.either,
                "Mod": scope.mod,
                "PythonMod": scope.mod,
                "FloorDiv": scope.floordiv,
                "CeilDiv": scope.ceildiv,
            }
        )
        if name not in functions or len(args) != 2:
            raise NoExpressionError
        return functions[name](*args)
