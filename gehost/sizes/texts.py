"""Texts of sizes: printing, and reading those of files and users.

Python's operators and ``min``, ``max``, ``ceildiv``, ``broadcast``, ``either``; PyTorch's ``Min``,
``Max``, ``Mod`` and ``floor`` are read, too. A name with operators in it is quoted.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Mapping
from functools import reduce
from math import gcd
from types import MappingProxyType

from gehost.sizes.minima import applied, single, terms_of_kind
from gehost.sizes.size import (
    Algebra,
    Atom,
    Dim,
    Known,
    Monomial,
    Size,
    divided,
    mapped,
    shared_by,
    terms_of,
)

_NAME = re.compile(r"""[^\s\d*+\-/%(),"<>=!][^\s*+\-/%(),"<>=!]*""")
_NAME_OR_QUOTED = re.compile(rf"""({_NAME.pattern})|"((?:[^"\\]|\\.)*)\"""")
_SUM = re.compile(r"[\w.]+(\s*[+*]\s*[\w.]+)*")
_LONGEST = 1024
_DEEPEST = 32
_MOST_POWER = 8


class NoExpressionError(Exception):
    """A text is no expression of names that the scope has."""


# printing


def written(scope: Algebra, size: Size) -> str:
    """Return a size's text."""
    for atom, c in terms_of_kind(scope, size, "min"):  # rest + min(0, x) is min(rest, rest + x)
        if abs(c) == 1:
            rest = scope.sub(size, scope.mul(atom.size, c))
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
    for atom, c in terms_of_kind(scope, size, "floor"):
        if abs(c) == 1:
            x, y = atom.args
            rest = scope.sub(size, scope.mul(atom.size, c))
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

    def number(atom: Atom) -> Known:
        if atom.kind == "symbol":
            return numbers[atom.name]
        return applied(scope, atom, [value(scope, arg, numbers) for arg in atom.args])

    result = mapped(scope, size, number)
    assert isinstance(result, int)
    return result


# reading


def parts(text: str) -> list[str]:
    """Return the names of a sum or product of names and numbers, else the text itself."""
    if not _SUM.fullmatch(text):
        return [text]
    return [part for part in re.split(r"\s*[+*]\s*", text) if not part.isdecimal()]


def names(text: str) -> list[str]:
    """Return the names in an expression of a user, whether a scope has them or not."""
    return [
        match[1] or _unquoted(match[2])
        for match in _NAME_OR_QUOTED.finditer(text)
        if match[2] or (match[1] and not text[match.end() :].lstrip().startswith("("))
    ]


def renamed(text: str, new: Mapping[str, str]) -> str:
    """Return an expression of a user with other names."""
    return _NAME_OR_QUOTED.sub(lambda match: new.get(match[1], match[0]), text)


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
    except (NoExpressionError, SyntaxError, RecursionError, ZeroDivisionError):
        return None


class _Reader:
    """Evaluates what Python's parser reads.

    A value is a numerator and a denominator, for PyTorch's ``floor(s/2)``.
    """

    def __init__(self, text: str, scope: Algebra) -> None:
        self._scope = scope
        self._names = list[str]()
        """Each is ``_0``, ``_1``, ... in the text that Python reads."""
        self._functions: Mapping[str, Callable[..., Known]] = MappingProxyType(
            {
                **dict.fromkeys(("min", "Min"), scope.min),
                **dict.fromkeys(("max", "Max"), scope.max),
                **dict.fromkeys(("Mod", "PythonMod"), scope.mod),
                **dict.fromkeys(("ceildiv", "CeilDiv"), scope.ceildiv),
                "FloorDiv": scope.floordiv,
                "broadcast": scope.broadcast,
                "either": scope.either,
            }
        )
        source = _NAME_OR_QUOTED.sub(self._placeholder, text)
        self._tree = ast.parse(source.strip(), mode="eval").body

    def _placeholder(self, match: re.Match[str]) -> str:
        self._names.append(match[1] or _unquoted(match[2]))
        return f" _{len(self._names) - 1} "

    def size(self) -> Known:
        return self._whole(self._value(self._tree, 0))

    def _whole(self, value: tuple[Known, Known]) -> Known:
        top, bottom = value
        if bottom == 1:
            return top
        whole, rest = self._scope.division(top, bottom)
        if rest != 0:
            raise NoExpressionError
        return whole

    def _value(self, node: ast.expr, depth: int) -> tuple[Known, Known]:
        if depth > _DEEPEST:
            raise NoExpressionError
        later = list[tuple[ast.operator, ast.expr]]()
        while isinstance(node, ast.BinOp):  # a long sum is deep on its left side
            later.append((node.op, node.right))
            node = node.left
        value = self._operand(node, depth + 1)
        for operator, operand in reversed(later):
            value = self._operation(operator, value, self._value(operand, depth + 1))
        return value

    def _operand(self, node: ast.expr, depth: int) -> tuple[Known, Known]:
        match node:
            case ast.Constant(int(number)):
                return number, 1
            case ast.Name(place):
                size = self._scope.named(self._names[int(place[1:])])
                if size is None:
                    raise NoExpressionError
                return size, 1
            case ast.UnaryOp(ast.USub(), of):
                top, bottom = self._value(of, depth)
                return self._scope.mul(top, -1), bottom
            case ast.Call(ast.Name(place), arguments, []):
                values = [self._value(argument, depth) for argument in arguments]
                return self._call(self._names[int(place[1:])], values), 1
            case _:
                raise NoExpressionError

    def _operation(
        self, sign: ast.operator, left: tuple[Known, Known], right: tuple[Known, Known]
    ) -> tuple[Known, Known]:
        scope, (top, bottom), (other, below) = self._scope, left, right
        match sign:
            case ast.Add() | ast.Sub():
                both = scope.add if isinstance(sign, ast.Add) else scope.sub
                if bottom == below:
                    return both(top, other), bottom
                total = both(scope.mul(top, below), scope.mul(other, bottom))
                return total, scope.mul(bottom, below)
            case ast.Mult():
                return scope.mul(top, other), scope.mul(bottom, below)
            case ast.Div() if other != 0:
                return scope.mul(top, below), scope.mul(bottom, other)
            case ast.FloorDiv() | ast.Mod():
                return self._call(type(sign).__name__, [left, right]), 1
            case ast.Pow() if isinstance(other, int) and 0 <= other <= _MOST_POWER and bottom == 1:
                return reduce(scope.mul, [top] * other, 1), 1
            case _:
                raise NoExpressionError

    def _call(self, name: str, values: list[tuple[Known, Known]]) -> Known:
        if name in ("floor", "ceil", "ceiling") and len(values) == 1:
            scope = self._scope
            return (scope.floordiv if name == "floor" else scope.ceildiv)(*values[0])
        function, args = self._functions.get(name), list(map(self._whole, values))
        takes_any = name.lower() in ("min", "max", "broadcast")
        if function is None or not args or (len(args) != 2 and not takes_any):
            raise NoExpressionError
        return function(*args)
