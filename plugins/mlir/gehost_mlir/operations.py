"""Operations in MLIR's generic form, with their regions; a subclass reads pretty forms."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from gehost_mlir.attributes import dictionary, value
from gehost_mlir.scanner import Scanner
from gehost_mlir.source import (
    ALIAS,
    OPERATION,
    SSA,
    STRING,
    SYMBOL,
    TYPE_ALIAS,
    attribute_end,
    balanced,
    resources_of,
    spaced,
    without_comments,
    without_locations,
)

_BLOCK = re.compile(r"\^[A-Za-z0-9_$.-]+")
_DEFINED = re.compile(r"%([0-9]+|[A-Za-z_$.-][A-Za-z0-9_$.-]*)(?:\s*:\s*([0-9]+))?")
_NAMED_TYPE = re.compile(r"!?[A-Za-z_][A-Za-z0-9_.$]*")
_DEPTH = 100
"""Regions within each other, at most."""


@dataclass
class Block:
    """The one block of a region; arguments are (name, type)."""

    arguments: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])
    operations: list[Operation] = field(default_factory=list["Operation"])


@dataclass
class Operation:
    """One operation; names of values are without ``%``, ``5#1`` is the second result of ``%5:2``.

    Attributes:
        name: with its dialect, as ``stablehlo.add``.
        attributes: as texts, aliases written out; "" of one without a value.
        position: of its name in the text.
    """

    name: str
    position: int
    results: tuple[str, ...] = ()
    operands: list[str] = field(default_factory=list[str])
    attributes: dict[str, str] = field(default_factory=dict[str, str])
    regions: list[Block] = field(default_factory=list[Block])
    operand_types: list[str] = field(default_factory=list[str])
    result_types: list[str] = field(default_factory=list[str])


class OperationReader(Scanner):
    """Reads a text of operations; ``pretty`` reads those that are not in generic form."""

    def __init__(self, text: str) -> None:
        plain, self.resources = resources_of(without_locations(without_comments(text)))
        super().__init__(plain)
        self.aliases: dict[str, str] = {}
        self._regions = 0

    def operations(self) -> list[Operation]:
        """All operations of the text."""
        results: list[Operation] = []
        while not self.at_end():
            if not self.alias():
                results.append(self.operation())
        return results

    def alias(self) -> bool:
        """Read ``#name = attribute`` or ``!name = type``, if it comes next."""
        name = self.match(ALIAS) or self.match(TYPE_ALIAS)
        if name is None:
            return False
        self.expect("=")
        begin = self.skip()
        self.position = attribute_end(self.text, begin)
        self.aliases[name] = spaced(self.text[begin : self.position])
        return True

    def operation(self) -> Operation:
        """Read ``%a, %b:2 = name …``."""
        results: list[str] = []
        start = self.skip()
        while (match := _DEFINED.match(self.text, self.skip())) is not None:
            self.position = match.end()
            count = 1 if match[2] is None else int(match[2][:4])
            numbers = [""] if match[2] is None else [f"#{k}" for k in range(count)]
            results += [f"{match[1]}{number}" for number in numbers]
            if not self.accept(","):
                break
        if results:
            self.expect("=")
        position = self.skip()
        if self.peek('"'):
            name = self.take(STRING, "an operation")[1:-1]
            operation = Operation(name, position, tuple(results))
            self._generic(operation)
        else:
            name = self.take(OPERATION, "an operation")
            operation = Operation(name, position, tuple(results))
            self.pretty(operation)
        if len(operation.result_types) != len(results):
            count = len(operation.result_types)
            if results:
                raise self.error(f"{name} has {count} results, {len(results)} names", start)
        return operation

    def pretty(self, operation: Operation) -> None:
        """Read what follows the name of an operation."""
        raise self.error(f"{operation.name} is not known", operation.position)

    def _generic(self, operation: Operation) -> None:
        """``(%a, %b) <{…}> ({region}) {…} : (types) -> types``."""
        operation.operands = self.listed("(", ")", self.operand)
        if self.accept("["):
            raise self.error(f"{operation.name} has successor blocks", operation.position)
        if self.has_properties():
            operation.attributes |= dictionary(self, self.aliases)
        if self.accept("("):
            while True:
                operation.regions.append(self.region())
                if self.accept(")"):
                    break
                self.expect(",")
        if self.peek("{"):
            operation.attributes |= dictionary(self, self.aliases)
        self.expect(":")
        self.signature(operation)
        if len(operation.operand_types) != len(operation.operands):
            raise self.error(
                f"{operation.name} has {len(operation.operands)} operands, "
                f"{len(operation.operand_types)} types",
                operation.position,
            )

    def operand(self) -> str:
        return self.take(SSA, "a value")[1:]

    def symbol(self) -> str:
        """``@name`` without the sign and quotes."""
        return self.take(SYMBOL, "a symbol")[1:].strip('"')

    def region(self, arguments: list[tuple[str, str]] | None = None) -> Block:
        """Read ``{ ^bb0(%a: type): … }``; a region has one block.

        Args:
            arguments: of the block, where they stand before the region.
        """
        start = self.skip()
        self._regions += 1
        if self._regions > _DEPTH:
            raise self.error(f"regions are nested more than {_DEPTH} deep", start)
        self.expect("{")
        block = Block(list(arguments or ()))
        if self.match(_BLOCK) is not None:
            if self.peek("("):
                block.arguments += self.listed("(", ")", self.argument)
            self.expect(":")
        while not self.accept("}"):
            if self.at_end():
                raise self.error("expected '}' at the end of the region", start)
            if self.peek("^"):
                raise self.error("a region of several blocks is not read")
            block.operations.append(self.operation())
        self._regions -= 1
        return block

    def argument(self) -> tuple[str, str]:
        """``%name: type``, with attributes that are left out."""
        name = self.operand()
        self.expect(":")
        kind = self.type()
        if self.peek("{"):
            dictionary(self, self.aliases)
        return name, kind

    def signature(self, operation: Operation) -> None:
        """``(types) -> types``, or the types of an operation whose operands have them as well."""
        first = self.types()
        if self.accept("->"):
            operation.operand_types, operation.result_types = first, self.types()
        else:
            operation.result_types = first

    def types(self) -> list[str]:
        """``type, type`` or ``(type {attributes}, type)``; the attributes are left out."""
        if self.peek("("):
            return self.listed("(", ")", self._attributed)
        results = [self.type()]
        while self.accept(","):
            results.append(self.type())
        return results

    def _attributed(self) -> str:
        kind = self.type()
        if self.peek("{"):
            dictionary(self, self.aliases)
        return kind

    def type(self) -> str:
        """The text of a type, aliases written out."""
        begin = self.skip()
        if self.text.startswith("(", begin):
            self.listed("(", ")", self.type)
            self.expect("->")
            self.types()
            return spaced(self.text[begin : self.position])
        name = self.take(_NAMED_TYPE, "a type")
        if self.peek("<"):
            self.position = balanced(self.text, self.position)
        return self.aliases.get(name, spaced(self.text[begin : self.position]))

    def value(self, until: str = ",") -> str:
        """The text of an attribute, to one of ``until`` or a closing bracket."""
        if until == ",":
            return value(self, self.aliases)
        begin = self.skip()
        self.position = balanced(self.text, begin, until)
        return spaced(self.text[begin : self.position].strip())
