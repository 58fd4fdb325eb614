"""Reads an MLIR text: module, functions and statements."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import TypeAlias

from gehost import quoting
from gehost_linalg.generic import Opaque, Value
from gehost_linalg.mlir.function import Function, Statement
from gehost_linalg.mlir.types import ALIAS, OPERATION, SSA, STRING, TypeReader

_SYMBOL = re.compile(r'@(?:[A-Za-z_][A-Za-z0-9_$.]*|"(?:[^"\\\n]|\\.)*")')


class Reader(TypeReader):
    """Reads functions; what stands behind an operation's name is read by its row of the syntax."""

    def __init__(self, text: str, syntax: Mapping[str, Read]) -> None:
        super().__init__(text)
        self._syntax = syntax

    def functions(self) -> list[Function]:
        found: list[Function] = []
        closing = 0
        while not self.at_end():
            start = self.skip()
            alias = self.match(ALIAS)
            if alias is not None:
                if alias in self.maps:
                    raise self.error(f"map {alias} is defined twice", start)
                self.expect("=")
                self.maps[alias] = self.any_map()
            elif self.accept("module"):
                self.match(_SYMBOL)
                if self.accept("attributes"):
                    self._skip_attributes()
                self.expect("{")
                closing += 1
            elif closing and self.accept("}"):
                closing -= 1
            elif self.accept("func.func"):
                start = self.skip()
                made = self._function()
                if any(each.name == made.name for each in found):
                    raise self.error(f"function @{made.name} is defined twice", start)
                found.append(made)
            else:
                raise self.error(f"expected a function, found {self.shown()}")
        if closing:
            raise self.error("expected '}'")
        return found

    def _function(self) -> Function:
        self.values, self.ops = {}, []
        for word in ("private", "public"):
            self.accept(word)
        name = self.take(_SYMBOL, "the function's name")[1:].strip('"')
        arguments = self.listed("(", ")", self._argument)
        declared: list[str] = []
        if self.accept("->"):
            types = (
                self.listed("(", ")", self._declared) if self.peek("(") else [self.type("result")]
            )
            declared = [each.type_text for each in types]
        if self.accept("attributes"):
            self._skip_attributes()
        self.expect("{")
        start = self.skip()
        while not (self.accept("return") or self.accept("func.return")):
            self._statement()
            start = self.skip()
        outputs = self.operands(until=("}",))
        returned = [each.type_text for each in outputs]
        if returned != declared:
            raise self.error(
                f"@{name} returns ({', '.join(returned)}), its type has ({', '.join(declared)})",
                start,
            )
        self.expect("}")
        return Function(name, arguments, self.ops, outputs)

    def _argument(self) -> Value:
        ssa = self.take(SSA, "an argument")
        self.expect(":")
        value = self._define(ssa, self.type(ssa[1:]))
        self._skip_attributes()
        return value

    def _skip_attributes(self) -> None:
        """Those of arguments, results, functions and modules mean nothing to fusion."""
        if self.peek("{"):
            self.braces()

    def _declared(self) -> Value:
        value = self.type("result")
        self._skip_attributes()
        return value

    def _define(self, ssa: str, value: Value, start: int | None = None) -> Value:
        if ssa in self.values:
            raise self.error(f"{ssa} is defined twice", start)
        self.values[ssa] = value
        return value

    def _statement(self) -> None:
        start = self.skip()
        names: list[str] = []
        count = 1
        if self.peek("%"):
            names.append(self.take(SSA, "a result"))
            if self.accept(":"):
                at = self.skip()
                count = self.integer("the number of results")
                if count > len(self.text):  # each has a type in the text
                    raise self.error(f"too many results: {count}", at)
            while self.accept(","):
                names.append(self.take(SSA, "a result"))
            self.expect("=")
        results = [f"{names[0]}#{index}" for index in range(count)] if count > 1 else names
        at = self.skip()
        quoted = self.match(STRING)
        name = (
            self.take(OPERATION, "an operation") if quoted is None else quoting.text_of_mlir(quoted)
        )
        statement = Statement(name, results, start)
        if quoted is not None:
            made = self._in_generic_form(statement)
        elif name in self._syntax:
            made = self._syntax[name](self, statement)
        else:
            raise self.error(
                f'operation {name} is not supported; write it in generic form, "{name}"(…)', at
            )
        if len(made) != len(results):
            raise self.error(f"{name} has {len(made)} results, {len(results)} are named", start)
        for ssa, value in zip(results, made, strict=True):
            self._define(ssa, value, start)

    def _in_generic_form(self, statement: Statement) -> list[Value]:
        operands = self.listed("(", ")", self.use)
        attribute = self.braces() if self.peek("{") or self.peek("<{") else ""
        self.expect(":")
        self.expect("(")
        self.check_types(operands)
        self.expect(")")
        self.expect("->")
        made = self.result_types(statement.results)
        self.ops.append(Opaque(statement.name, tuple(operands), tuple(made), attribute))
        return made


Read: TypeAlias = Callable[[Reader, Statement], list[Value]]
"""Reads what stands behind an operation's name, returns its results."""
