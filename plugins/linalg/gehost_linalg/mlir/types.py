"""Reads types, maps and uses of values."""

from __future__ import annotations

import re
from collections.abc import Sequence

from gehost_linalg.affine import AffineMap, parse_map
from gehost_linalg.generic import DTYPES, Op, Value
from gehost_linalg.scanner import Scanner

NAME = r"([0-9]+|[A-Za-z_$.-][A-Za-z0-9_$.-]*)"
SSA = re.compile(rf"%{NAME}(#[0-9]+)?(?![A-Za-z0-9_$.-])")
OPERATION = re.compile(r"[A-Za-z_][A-Za-z0-9_.$]*")
STRING = re.compile(r'"(?:[^"\\\n]|\\.)*"')
ALIAS = re.compile(r"#[A-Za-z_][A-Za-z0-9_$.-]*")
_TENSOR = re.compile(r"(?:\*x|(?:(?:[0-9]+|\?)x)*)(?=[A-Za-z])")


class TypeReader(Scanner):
    """Reads what operations share.

    Attributes:
        ops: the operations of the function so far.
        values: by their names, with ``%``.
        maps: aliases, with the number of symbols.
    """

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.maps: dict[str, tuple[AffineMap, int]] = {}
        self.values: dict[str, Value] = {}
        self.ops: list[Op] = []

    def map(self) -> AffineMap:
        """An indexing map, which has no symbols."""
        start = self.skip()
        map_, symbols = self.any_map()
        if symbols:
            raise self.error("an indexing map has no symbols", start)
        return map_

    def any_map(self) -> tuple[AffineMap, int]:
        """A map or its alias, with the number of its symbols, which are its last dims."""
        start = self.skip()
        alias = self.match(ALIAS)
        if alias is None:
            if not self.peek("affine_map"):
                raise self.error(f"expected an affine_map, found {self.shown()}")
            return parse_map(self, symbols=True)
        if alias not in self.maps:
            raise self.error(f"map {alias} is not defined above", start)
        return self.maps[alias]

    def result_types(self, names: Sequence[str]) -> list[Value]:
        """One type, or several in brackets."""
        rest = iter(names)

        def read() -> Value:
            return self.type(next(rest, "%result")[1:])

        return self.listed("(", ")", read) if self.peek("(") else [read()]

    def type(self, name: str) -> Value:
        """A tensor type or a scalar type, as a value of that type."""
        start = self.skip()
        if self.accept("tensor"):
            self.expect("<")
            at = self.skip()
            text = self.match(_TENSOR) or ""
            dtype = self.dtype()
            self.expect(">")
            if text.startswith("*"):
                return Value(name, dtype, None)
            sizes = text.split("x")[:-1]
            return Value(
                name, dtype, [None if each == "?" else self.bounded(each, at) for each in sizes]
            )
        if self.peek("memref") or self.peek("vector"):
            raise self.error(f"{self.shown()} is not supported: operands are tensors", start)
        if self.accept("!"):  # the type of another dialect, carried through
            return Value(name, "!" + self.take(OPERATION, "a type"), kind="scalar")
        return Value(name, self.dtype(), kind="scalar")

    def dtype(self) -> str:
        start = self.skip()
        dtype = self.take(OPERATION, "an element type")
        if dtype not in DTYPES:
            raise self.error(
                f"element type {dtype} is not supported; use one of {', '.join(DTYPES)}", start
            )
        return dtype

    def use(self) -> Value:
        start = self.skip()
        ssa = self.take(SSA, "a value")
        if ssa not in self.values:
            raise self.error(f"{ssa} is not defined above", start)
        return self.values[ssa]

    def operands(self, until: tuple[str, ...]) -> list[Value]:
        """``%a, %b : type, type``, or nothing."""
        if any(map(self.peek, until)):
            return []
        found = [self.use()]
        while self.accept(","):
            found.append(self.use())
        self.expect(":")
        self.check_types(found)
        return found

    def check_types(self, values: Sequence[Value]) -> None:
        for place, value in enumerate(values):
            if place:
                self.expect(",")
            self.check_type(value)

    def check_type(self, value: Value) -> Value:
        start = self.skip()
        stated = self.type(value.name)
        if stated.type_text != value.type_text:
            raise self.error(f"%{value.name} is {value.type_text}, not {stated.type_text}", start)
        return stated

    def index(self) -> Value:
        """A scalar of type ``index``."""
        start = self.skip()
        value = self.use()
        if value.type_text != "index":
            raise self.error(f"%{value.name} is {value.type_text}, not index", start)
        return value

    def listed_operands(self, word: str) -> list[Value]:
        """``ins(%a, %b : types)``, or nothing."""
        if not self.accept(word):
            return []
        self.expect("(")
        found = self.operands(until=(")",))
        self.expect(")")
        return found

    def sizes(self) -> list[int | Value]:
        """``[2, %n]``."""
        return self.listed(
            "[", "]", lambda: self.index() if self.peek("%") else self.integer("a size")
        )

    def braces(self) -> str:
        """A dictionary of attributes, as it is written."""
        start, depth = self.skip(), 0
        while self.position < len(self.text):
            letter = self.text[self.position]
            if letter == '"':
                self.take(STRING, "a string")
                continue
            depth += (letter in "{<") - (letter in "}>")
            self.position += 1
            if depth == 0:
                return self.text[start : self.position]
        raise self.error("expected '}'", start)
