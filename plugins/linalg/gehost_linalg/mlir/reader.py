"""Reads statements: operations in any form, and their regions."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, TypeAlias

from gehost import quoting
from gehost_linalg.generic import Opaque, Value
from gehost_linalg.mlir.function import Parts, Statement
from gehost_linalg.mlir.opaque import check_known, end_of_statement, result_types, template_of
from gehost_linalg.mlir.types import TypeReader
from gehost_mlir.attributes import shown
from gehost_mlir.scanner import MlirError
from gehost_mlir.source import OPERATION, SSA, STRING, balanced

LABEL = re.compile(r"\^[A-Za-z0-9_$.-]+")


class KeptAsText(MlirError):  # noqa: N818 - it changes how an operation is read
    """An operation that is carried through as the text of its generic form."""


class Rows(NamedTuple):
    """How operations are read, by their names.

    Attributes:
        pretty: reads what stands behind a name.
        generic: makes the operation of a generic form; regions are read before it.
        with_region: what reads the region of a generic form, of an operation whose region is no
            list of operations; it returns what makes the operation.
    """

    pretty: Mapping[str, Read]
    generic: Mapping[str, Make]
    with_region: Callable[[str], ReadRegion | None]


class Reader(TypeReader):
    """Reads statements; what stands behind an operation's name is read by its row of the syntax."""

    def __init__(self, text: str, rows: Rows) -> None:
        super().__init__(text)
        self._rows = rows

    def block_argument(self) -> Value:
        ssa = self.take(SSA, "an argument")
        self.expect(":")
        return self.define(ssa, self.type(ssa[1:]))

    def define(self, ssa: str, value: Value, start: int | None = None) -> Value:
        if ssa in self.values:
            raise self.error(f"{ssa} is defined twice", start)
        self.values[ssa] = value
        return value

    def statement(self) -> None:
        """Read one operation with the names of its results."""
        start = self.skip()
        names: list[str] = []
        while not names or self.accept(","):
            if not self.peek("%"):
                break
            ssa = self.take(SSA, "a result")
            count = 1
            if self.accept(":"):
                at = self.skip()
                count = self.integer("the number of results")
                if count > len(self.text):  # each has a type in the text
                    raise self.error(f"too many results: {count}", at)
            names += [f"{ssa}#{index}" for index in range(count)] if count > 1 else [ssa]
        if names:
            self.expect("=")
        at = self.skip()
        quoted = self.match(STRING)
        name = (
            self.take(OPERATION, "an operation") if quoted is None else quoting.text_of_mlir(quoted)
        )
        statement = Statement(name, names, start)
        if quoted is not None:
            result = self._in_generic_form(statement)
        elif name in self._rows.pretty:
            result = self._rows.pretty[name](self, statement)
        elif "." in name:
            check_known(self, name, at)
            result = self.as_text(statement)
        else:
            raise self.error(
                f'operation {name} is not supported; write it in generic form, "{name}"(…)', at
            )
        if len(result) != len(names):
            raise self.error(f"{name} has {len(result)} results, {len(names)} are named", start)
        for ssa, item in zip(names, result, strict=True):
            self.define(ssa, item, start)

    def as_text(self, statement: Statement, begin: int | None = None) -> list[Value]:
        """An operation of another dialect, or of a form that fusion does not know."""
        begin = self.position if begin is None else begin
        self.position = begin
        end = end_of_statement(self, is_generic=statement.name.startswith('"'))
        template, operands = template_of(self, begin, end, self.values.get)
        results = result_types(self, begin, end, list(statement.results))
        self.position = end
        self.ops.append(Opaque(statement.name, tuple(operands), tuple(results), template))
        return results

    def _in_generic_form(self, statement: Statement) -> list[Value]:
        begin = self.position
        operands = self.listed("(", ")", self.use)
        if self.peek("["):  # it ends a block of several
            return self._generic_text(statement, begin)
        attributes = self.dictionary() if self.has_properties() else {}
        make = self._rows.generic.get(statement.name)
        count, values = len(self.ops), dict(self.values)
        has_regions = self.peek("(")
        try:
            if has_regions:
                with_region = self._rows.with_region(statement.name)
                if with_region is None:
                    self.regions(statement, operands)
                else:
                    attributes = attributes or self._attributes_behind()
                    make = with_region(self, statement, operands, attributes)
        except KeptAsText:
            del self.ops[count:]
            self.values = values
            return self._generic_text(statement, begin)
        if self.peek("{"):
            attributes |= self.dictionary()
        self.expect(":")
        self.typed(operands, is_behind=False)
        self.expect("->")
        results = self.result_types(statement.results)
        if make is not None:
            return make(self, statement, Parts(operands, attributes, results))
        if has_regions:
            self.ops.append(
                Opaque(statement.name, (), tuple(results), _properties(attributes), part="close")
            )
        else:
            self.ops.append(
                Opaque(statement.name, tuple(operands), tuple(results), _properties(attributes))
            )
        return results

    def _attributes_behind(self) -> dict[str, str]:
        """The dictionary behind the regions, where texts of LLVM before 17 have all attributes."""
        start = self.skip()
        self.position = balanced(self.text, start)
        attributes = self.dictionary() if self.peek("{") else {}
        self.position = start
        return attributes

    def typed(self, values: list[Value], *, is_behind: bool = True) -> None:
        """``: (type, type)``."""
        if is_behind:
            self.expect(":")
        self.expect("(")
        self.check_types(values)
        self.expect(")")

    def _generic_text(self, statement: Statement, begin: int) -> list[Value]:
        """A generic form whose regions are kept as text."""
        quoted = Statement(quoting.mlir_string(statement.name), statement.results, statement.start)
        return self.as_text(quoted, begin)

    def regions(self, statement: Statement, operands: Sequence[Value]) -> None:
        """``({…}, {…})``: their operations go into the function's list, between the parts."""
        self.expect("(")
        self.region(statement.name, operands)
        while self.accept(","):
            self.region(statement.name, None)
        self.expect(")")

    def region(
        self,
        name: str,
        operands: Sequence[Value] | None,
        arguments: Mapping[str, Value] | None = None,
        terminator: str = "",
    ) -> None:
        """A region of one block; ``operands`` of the operation come with the first.

        ``arguments`` are those that stand before it; ``terminator`` is added where none stands.
        """
        self.expect("{")
        outer = dict(self.values)
        start = self.skip()
        results: list[Value] = []
        for ssa, argument in (arguments or {}).items():
            results.append(self.define(ssa, argument, start))
        if self.match(LABEL):
            if self.peek("("):
                results += self.listed("(", ")", self.block_argument)
            self.expect(":")
        part = "next" if operands is None else "open"
        self.ops.append(Opaque(name, tuple(operands or ()), tuple(results), part=part))
        count = len(self.ops)
        while not self.accept("}"):
            if self.peek("^"):
                raise KeptAsText(f"a region of {name} has several blocks", self.text, start)
            self.statement()
        last = self.ops[-1]
        is_ended = len(self.ops) > count and not last.results and not isinstance(last, Opaque)
        is_ended |= isinstance(last, Opaque) and last.name.endswith((".yield", ".condition"))
        if terminator and not (is_ended and len(self.ops) > count):
            self.ops.append(Opaque(terminator, (), ()))
        self.values = outer


def _properties(attributes: Mapping[str, str]) -> str:
    text = shown(attributes)
    return f"<{text}>" if text else ""


Read: TypeAlias = Callable[[Reader, Statement], list[Value]]
"""Reads what stands behind an operation's name, returns its results."""
ReadRegion: TypeAlias = Callable[[Reader, Statement, list[Value], dict[str, str]], "Make"]
Make: TypeAlias = Callable[[Reader, Statement, Parts], list[Value]]
"""Makes the operation of a generic form, returns its results."""
