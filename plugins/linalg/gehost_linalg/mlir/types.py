"""Reads types, maps and uses of values."""

from __future__ import annotations

import re
from collections.abc import Sequence

from gehost_linalg.affine import AffineMap, parse_map
from gehost_linalg.generic import Op, Value
from gehost_mlir.attributes import dictionary
from gehost_mlir.scanner import MlirError, Scanner
from gehost_mlir.source import (
    ALIAS,
    OPERATION,
    SSA,
    TYPE_ALIAS,
    balanced,
    resources_of,
    without_comments,
    without_locations,
)

_TENSOR = re.compile(r"(?:\*x|(?:(?:[0-9]+|\?)x)*)(?=[A-Za-z!])")
_DTYPE = re.compile(
    r"[su]?i[1-9][0-9]{0,7}|index|bf16|tf32|f(?:16|32|64|80|128)|f[468]E[0-9]+M[0-9]+[A-Z0-9]*"
)


class TypeReader(Scanner):
    """Reads what operations share.

    Attributes:
        ops: the operations of the function so far.
        values: by their names, with ``%``.
        maps: aliases of maps, with the number of symbols.
        aliases: the texts of all aliases of attributes.
        resources: bytes of dense resources, by name.
        guessed: results of unknown operations, whose type their first typed use gives.
    """

    def __init__(self, text: str) -> None:
        text, self.resources = resources_of(text)
        super().__init__(without_locations(without_comments(text)))
        self.maps: dict[str, tuple[AffineMap, int]] = {}
        self.aliases: dict[str, str] = {}
        self.types: dict[str, str] = {}
        self.values: dict[str, Value] = {}
        self.ops: list[Op] = []
        self.guessed: set[Value] = set()

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
                name, dtype, [None if size == "?" else self.bounded(size, at) for size in sizes]
            )
        if self.peek("memref") or self.peek("vector"):
            raise self.error(f"{self.shown()} is not supported: operands are tensors", start)
        if self.peek("!"):
            return self._other_type(name, start)
        return Value(name, self.dtype(), kind="scalar")

    def _other_type(self, name: str, start: int) -> Value:
        """An alias, or the type of another dialect, which is carried through."""
        word = self.take(TYPE_ALIAS, "a type")
        if word in self.types:
            return self.part(self.types[word], start).type(name)
        return Value(name, word + self._angles(), kind="scalar")

    def part(self, text: str, start: int) -> TypeReader:
        """A reader of a text that stands for something at ``start``, with the same aliases."""
        return _PartReader(self, text, start)

    def dtype(self) -> str:
        start = self.skip()
        if self.peek("!"):
            word = self.take(TYPE_ALIAS, "a type")
            if word in self.types:
                return self.part(self.types[word], start).dtype()
            return word + self._angles()
        dtype = self.take(OPERATION, "an element type")
        if dtype == "complex":
            self.expect("<")
            dtype = f"complex<{self.dtype()}>"
            self.expect(">")
        elif not _DTYPE.fullmatch(dtype):
            raise self.error(
                f"{dtype} is no element type: f32, bf16, f8E4M3FN, i8, index, …", start
            )
        return dtype

    def _angles(self) -> str:
        begin = self.position
        if self.text.startswith("<", begin):
            self.position = balanced(self.text, begin)
        return self.text[begin : self.position]

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
        results = [self.use()]
        while self.accept(","):
            results.append(self.use())
        self.expect(":")
        self.check_types(results)
        return results

    def check_types(self, values: Sequence[Value]) -> None:
        for place, value in enumerate(values):
            if place:
                self.expect(",")
            self.check_type(value)

    def check_type(self, value: Value) -> Value:
        start = self.skip()
        declared = self.type(value.name)
        if declared.type_text != value.type_text:
            if value not in self.guessed:
                raise self.error(
                    f"%{value.name} is {value.type_text}, not {declared.type_text}", start
                )
            value.dtype, value.shape = declared.dtype, declared.shape
            value.kind = declared.kind
        self.guessed.discard(value)
        return declared

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
        result = self.operands(until=(")",))
        self.expect(")")
        return result

    def sizes(self) -> list[int | Value]:
        """``[2, %n]``."""
        return self.listed(
            "[", "]", lambda: self.index() if self.peek("%") else self.integer("a size")
        )

    def dictionary(self) -> dict[str, str]:
        """A dictionary of attributes by their names, as texts without aliases."""
        return dictionary(self, self.aliases)


class _PartReader(TypeReader):
    """A reader of a text that stands elsewhere; its errors show the place in the whole."""

    def __init__(self, whole: TypeReader, text: str, start: int) -> None:
        super().__init__(text)
        self.maps, self.aliases, self.types = whole.maps, whole.aliases, whole.types
        self.resources = whole.resources
        self._whole, self._start = whole, start

    def error(self, message: str, position: int | None = None) -> MlirError:
        del position
        return self._whole.error(message, self._start)
