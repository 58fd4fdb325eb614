"""Reads modules and functions of a text."""

from __future__ import annotations

import re
from collections.abc import Sequence

from gehost_linalg.generic import Value
from gehost_linalg.mlir.function import Function
from gehost_linalg.mlir.opaque import end_of_statement
from gehost_linalg.mlir.reader import LABEL, Reader, Rows
from gehost_mlir.attributes import integers, shown, value
from gehost_mlir.source import (
    ALIAS,
    OPERATION,
    SSA,
    STRING,
    SYMBOL,
    TYPE_ALIAS,
    alias_definitions,
    attribute_end,
)

_FUNCTIONS = ("func.func", "util.func")
_RETURNS = ("return", "func.return", "util.return")


class ModuleReader(Reader):
    """Reads modules, their functions, and what else stands in them."""

    def __init__(self, text: str, rows: Rows) -> None:
        super().__init__(text, rows)
        self._around: list[str] = []
        self._ends: list[str] = []
        """What closes the open modules."""

    def functions(self) -> list[Function]:
        _collect_aliases(self)
        results: list[Function] = []
        while not self.at_end():
            start = self.skip()
            result = self._item()
            if result is None:
                continue
            if any(item.name == result.name for item in results):
                raise self.error(f"function @{result.name} is defined twice", start)
            result.around, self._around = self._around, []
            results.append(result)
        if self._ends:
            raise self.error("expected '}'")
        if results:
            results[-1].around += self._around
        return results

    def _item(self) -> Function | None:
        """An alias, a module's begin or end, a function, or the global of another dialect."""
        start = self.skip()
        if self.match(ALIAS) is not None or self.match(TYPE_ALIAS) is not None:
            self.expect("=")
            self.position = attribute_end(self.text, self.skip())
            return None
        if self._ends and self.accept("}"):
            if self._ends.pop() == "})":
                self.expect(")")
                _skip_attributes(self)
                self._expect_nothing()
            return None
        quoted = self.match(STRING)
        if quoted == '"builtin.module"':
            self._open_generic_module()
            return None
        if quoted is not None and quoted[1:-1] in _FUNCTIONS:
            return self._generic_function(quoted[1:-1])
        if quoted is None and self._accept_module():
            return None
        kind = next((word for word in _FUNCTIONS if self.accept(word)), None)
        if kind is not None:
            return self._function(kind)
        name = None if quoted is not None else self.match(OPERATION)
        if quoted is None and (name is None or "." not in name):
            self.position = start
            raise self.error(f"expected a function, found {self.shown()}")
        self.position = start
        self.position = end_of_statement(self)
        self._around.append(self.text[start : self.position].rstrip())
        return None

    def _accept_module(self) -> bool:
        if not (self.accept("module") or self.accept("builtin.module")):
            return False
        self.match(SYMBOL)
        if self.accept("attributes"):
            _skip_attributes(self)
        self.expect("{")
        self._ends.append("}")
        return True

    def _open_generic_module(self) -> None:
        self.expect("(")
        self.expect(")")
        if self.has_properties():
            self.dictionary()
        self.expect("(")
        self.expect("{")
        self.match(LABEL)
        self.accept(":")
        self._ends.append("})")

    def _expect_nothing(self) -> None:
        for literal in (":", "(", ")", "->", "(", ")"):
            self.expect(literal)

    def _function(self, kind: str) -> Function:
        self.values, self.ops = {}, []
        visibility = next((word for word in ("private", "public") if self.accept(word)), "")
        name = self.take(SYMBOL, "the function's name")[1:].strip('"')
        attributes: dict[Value | int | str, str] = {}
        is_declaration = not re.compile(r"\(\s*(%|\))").match(self.text, self.skip())
        arguments = self.listed(
            "(", ")", lambda: self._argument(attributes, is_named=not is_declaration)
        )
        results: list[Value] = []
        if self.accept("->"):
            if self.peek("("):
                self.listed("(", ")", lambda: self._result(results, attributes))
            else:
                results.append(self.type("result"))
        if self.accept("attributes"):
            attributes[""] = shown(self.dictionary())
        result = Function(
            name, arguments, [], results, attributes=attributes, kind=kind, visibility=visibility
        )
        if not self.peek("{"):
            result.is_declaration = True
            return result
        self.expect("{")
        start = self.skip()
        while not any(map(self.accept, _RETURNS)):
            self.statement()
            start = self.skip()
        result.outputs = self.operands(until=("}",))
        result.ops = self.ops
        self._check_returned(result, results, start)
        self.expect("}")
        return result

    def _check_returned(self, function: Function, results: Sequence[Value], start: int) -> None:
        returned = ", ".join(output.type_text for output in function.outputs)
        declared = ", ".join(result.type_text for result in results)
        if returned != declared:
            message = f"@{function.name} returns ({returned}), its type has ({declared})"
            raise self.error(message, start)

    def _argument(self, attributes: dict[Value | int | str, str], *, is_named: bool) -> Value:
        ssa = self.take(SSA, "an argument") if is_named else f"%arg{len(attributes)}"
        if is_named:
            self.expect(":")
        result = self.type(ssa[1:])
        if is_named:
            self.define(ssa, result)
        if self.peek("{"):
            attributes[result] = shown(self.dictionary())
        return result

    def _result(self, results: list[Value], attributes: dict[Value | int | str, str]) -> None:
        results.append(self.type("result"))
        if self.peek("{"):
            attributes[len(results) - 1] = shown(self.dictionary())

    def _generic_function(self, kind: str) -> Function:
        start = self.skip()
        self.values, self.ops = {}, []
        self.expect("(")
        self.expect(")")
        argument = self.dictionary() if self.has_properties() else {}
        name, type_text = (
            argument.pop("sym_name", '""').strip('"'),
            argument.pop("function_type", ""),
        )
        visibility = argument.pop("sym_visibility", '""').strip('"')
        if not {*integers(argument.get("tied_operands", ""))} - {-1}:
            argument.pop("tied_operands", None)  # no result of a util.func is an operand
        attributes: dict[Value | int | str, str] = {}
        arguments_of, results_of = (
            _dictionaries(self, argument.pop(f"{item}_attrs", "")) for item in ("arg", "res")
        )
        self.expect("(")
        self.expect("{")
        arguments: list[Value] = []
        outputs: list[Value] | None = None
        if self.match(LABEL):
            if self.peek("("):
                arguments = self.listed("(", ")", self.block_argument)
            self.expect(":")
        while not self.accept("}"):
            quoted = self.match(STRING)
            if quoted is not None and quoted[1:-1] in _RETURNS:
                outputs = self.listed("(", ")", self.use)
                self.typed(outputs)
                self.expect("->")
                self.expect("(")
                self.expect(")")
                continue
            self.position -= len(quoted or "")
            self.statement()
        self.expect(")")
        rest = self.dictionary() if self.peek("{") else {}
        self._expect_nothing()
        typed = self.part(type_text, start)
        inputs = typed.listed("(", ")", lambda: typed.type("arg"))
        typed.expect("->")
        declared = typed.result_types([])
        attributes.update(zip(arguments or inputs, arguments_of, strict=False))
        attributes.update(enumerate(results_of))
        attributes[""] = shown({**argument, **rest})
        results = {key: text for key, text in attributes.items() if text not in {"", "{}"}}
        result = Function(
            name, arguments, self.ops, outputs or [], attributes=results, kind=kind,
            visibility=visibility,
        )  # fmt: skip
        if outputs is None:
            result.arguments, result.outputs, result.is_declaration = inputs, declared, True
        else:
            self._check_returned(result, declared, start)
        return result


def _collect_aliases(reader: Reader) -> None:
    """Read the aliases of the whole text first; a printer may put them behind their uses."""
    for alias, start, end in alias_definitions(reader.text):
        reader.position = end
        begin = reader.skip()
        if alias in reader.aliases or alias in reader.types:
            raise reader.error(f"{alias} is defined twice", start)
        if reader.peek("affine_map"):
            reader.maps[alias] = reader.any_map()
        else:
            reader.position = attribute_end(reader.text, begin)
        known = reader.aliases if alias[0] == "#" else reader.types
        known[alias] = reader.text[begin : reader.position]
    reader.position = 0


def _skip_attributes(reader: Reader) -> None:
    """Those of modules mean nothing to fusion."""
    if reader.peek("{"):
        reader.dictionary()


def _dictionaries(whole: Reader, text: str) -> list[str]:
    """``[{a}, {}]``."""
    if not text:
        return []
    reader = whole.part(text, whole.position)
    return reader.listed("[", "]", lambda: value(reader, whole.aliases))
