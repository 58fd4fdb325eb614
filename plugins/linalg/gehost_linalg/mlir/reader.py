"""Reads an MLIR text: module, functions and statements."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, TypeAlias

from gehost import quoting
from gehost_linalg.generic import Opaque, Value
from gehost_linalg.mlir.function import Function, Parts, Statement
from gehost_linalg.mlir.opaque import check_known, end_of_statement, result_types, template_of
from gehost_linalg.mlir.types import TypeReader
from gehost_mlir.attributes import integers, shown, value
from gehost_mlir.scanner import MlirError
from gehost_mlir.source import ALIAS, OPERATION, SSA, STRING, SYMBOL, TYPE_ALIAS, balanced

_LABEL = re.compile(r"\^[A-Za-z0-9_$.-]+")
_FUNCTIONS = ("func.func", "util.func")
_RETURNS = ("return", "func.return", "util.return")


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
    """Reads functions; what stands behind an operation's name is read by its row of the syntax."""

    def __init__(self, text: str, rows: Rows) -> None:
        super().__init__(text)
        self._rows = rows
        self._around: list[str] = []
        self._ends: list[str] = []
        """What closes the open modules."""

    # -- modules and functions

    def functions(self) -> list[Function]:
        self._collect_aliases()
        found: list[Function] = []
        while not self.at_end():
            start = self.skip()
            made = self._item()
            if made is None:
                continue
            if any(each.name == made.name for each in found):
                raise self.error(f"function @{made.name} is defined twice", start)
            made.around, self._around = self._around, []
            found.append(made)
        if self._ends:
            raise self.error("expected '}'")
        if found:
            found[-1].around += self._around
        return found

    def _item(self) -> Function | None:
        """An alias, a module's begin or end, a function, or the global of another dialect."""
        start = self.skip()
        if self.match(ALIAS) is not None or self.match(TYPE_ALIAS) is not None:
            self.position = balanced(self.text, start, "\n")
            return None
        if self._ends and self.accept("}"):
            if self._ends.pop() == "})":
                self.expect(")")
                self._skip_attributes()
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
        self.position = balanced(self.text, start, "\n")
        self._around.append(self.text[start : self.position].rstrip())
        return None

    def _accept_module(self) -> bool:
        if not (self.accept("module") or self.accept("builtin.module")):
            return False
        self.match(SYMBOL)
        if self.accept("attributes"):
            self._skip_attributes()
        self.expect("{")
        self._ends.append("}")
        return True

    def _open_generic_module(self) -> None:
        self.expect("(")
        self.expect(")")
        if self.peek("<{"):
            self.dictionary()
        self.expect("(")
        self.expect("{")
        self.match(_LABEL)
        self.accept(":")
        self._ends.append("})")

    def _expect_nothing(self) -> None:
        for literal in (":", "(", ")", "->", "(", ")"):
            self.expect(literal)

    def _collect_aliases(self) -> None:
        """Read the aliases of the whole text first; a printer may put them behind their uses."""
        for found in re.finditer(r"^[ ]*([#!][A-Za-z_][\w$.-]*)[ ]*=", self.text, re.MULTILINE):
            alias = found[1]
            self.position = found.end()
            begin = self.skip()
            if alias in self.aliases or alias in self.types:
                raise self.error(f"{alias} is defined twice", found.start(1))
            if self.peek("affine_map"):
                self.maps[alias] = self.any_map()
                self.aliases[alias] = self.text[begin : self.position]
                continue
            end = balanced(self.text, begin, "\n")
            (self.aliases if alias[0] == "#" else self.types)[alias] = self.text[begin:end].strip()
        self.position = 0

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
        made = Function(
            name, arguments, [], results, attributes=attributes, kind=kind, visibility=visibility
        )
        if not self.peek("{"):
            made.is_declaration = True
            return made
        self.expect("{")
        start = self.skip()
        while not any(map(self.accept, _RETURNS)):
            self.statement()
            start = self.skip()
        made.outputs = self.operands(until=("}",))
        made.ops = self.ops
        self._check_returned(name, made.outputs, [each.type_text for each in results], start)
        self.expect("}")
        return made

    def _check_returned(
        self, name: str, outputs: Sequence[Value], declared: list[str], start: int
    ) -> None:
        returned = [each.type_text for each in outputs]
        if returned != declared:
            raise self.error(
                f"@{name} returns ({', '.join(returned)}), its type has ({', '.join(declared)})",
                start,
            )

    def _argument(self, attributes: dict[Value | int | str, str], *, is_named: bool) -> Value:
        ssa = self.take(SSA, "an argument") if is_named else f"%arg{len(attributes)}"
        if is_named:
            self.expect(":")
        made = self.type(ssa[1:])
        if is_named:
            self.define(ssa, made)
        if self.peek("{"):
            attributes[made] = shown(self.dictionary())
        return made

    def _result(self, results: list[Value], attributes: dict[Value | int | str, str]) -> None:
        results.append(self.type("result"))
        if self.peek("{"):
            attributes[len(results) - 1] = shown(self.dictionary())

    def _skip_attributes(self) -> None:
        """Those of modules mean nothing to fusion."""
        if self.peek("{"):
            self.dictionary()

    def _generic_function(self, kind: str) -> Function:
        start = self.skip()
        self.values, self.ops = {}, []
        self.expect("(")
        self.expect(")")
        given = self.dictionary() if self.peek("<{") else {}
        name, type_text = given.pop("sym_name", '""').strip('"'), given.pop("function_type", "")
        visibility = given.pop("sym_visibility", '""').strip('"')
        if not {*integers(given.get("tied_operands", ""))} - {-1}:
            given.pop("tied_operands", None)  # no result of a util.func is an operand
        attributes: dict[Value | int | str, str] = {}
        arguments_of, results_of = (
            self._dictionaries(given.pop(f"{each}_attrs", "")) for each in ("arg", "res")
        )
        self.expect("(")
        self.expect("{")
        arguments: list[Value] = []
        outputs: list[Value] | None = None
        if self.match(_LABEL):
            if self.peek("("):
                arguments = self.listed("(", ")", self._block_argument)
            self.expect(":")
        while not self.accept("}"):
            quoted = self.match(STRING)
            if quoted is not None and quoted[1:-1] in _RETURNS:
                outputs = self.listed("(", ")", self.use)
                self._typed(outputs)
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
        attributes[""] = shown({**given, **rest})
        found = {key: text for key, text in attributes.items() if text not in {"", "{}"}}
        made = Function(
            name, arguments, self.ops, outputs or [], attributes=found, kind=kind,
            visibility=visibility,
        )  # fmt: skip
        if outputs is None:
            made.arguments, made.outputs, made.is_declaration = inputs, declared, True
        else:
            self._check_returned(name, outputs, [each.type_text for each in declared], start)
        return made

    def _dictionaries(self, text: str) -> list[str]:
        """``[{a}, {}]``."""
        if not text:
            return []
        reader = self.part(text, self.position)
        return reader.listed("[", "]", lambda: value(reader, self.aliases))

    def _block_argument(self) -> Value:
        ssa = self.take(SSA, "an argument")
        self.expect(":")
        return self.define(ssa, self.type(ssa[1:]))

    # -- statements

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
            made = self._in_generic_form(statement)
        elif name in self._rows.pretty:
            made = self._rows.pretty[name](self, statement)
        elif "." in name:
            check_known(self, name, at)
            made = self.as_text(statement)
        else:
            raise self.error(
                f'operation {name} is not supported; write it in generic form, "{name}"(…)', at
            )
        if len(made) != len(names):
            raise self.error(f"{name} has {len(made)} results, {len(names)} are named", start)
        for ssa, each in zip(names, made, strict=True):
            self.define(ssa, each, start)

    def as_text(self, statement: Statement, begin: int | None = None) -> list[Value]:
        """An operation of another dialect, or of a form that fusion does not know."""
        begin = self.position if begin is None else begin
        self.position = begin
        end = end_of_statement(self)
        template, operands = template_of(self, begin, end, self.values.get)
        made = result_types(self, begin, end, list(statement.results))
        self.position = end
        self.ops.append(Opaque(statement.name, tuple(operands), tuple(made), template))
        return made

    def _in_generic_form(self, statement: Statement) -> list[Value]:
        begin = self.position
        operands = self.listed("(", ")", self.use)
        if self.peek("["):  # it ends a block of several
            return self._generic_text(statement, begin)
        attributes = self.dictionary() if self.peek("<{") else {}
        make = self._rows.generic.get(statement.name)
        count, values = len(self.ops), dict(self.values)
        has_regions = self.peek("(")
        try:
            if has_regions:
                with_region = self._rows.with_region(statement.name)
                if with_region is None:
                    self.regions(statement, operands)
                else:
                    make = with_region(self, statement, operands, attributes)
        except KeptAsText:
            del self.ops[count:]
            self.values = values
            return self._generic_text(statement, begin)
        if self.peek("{"):
            attributes |= self.dictionary()
        self.expect(":")
        self._typed(operands, is_behind=False)
        self.expect("->")
        made = self.result_types(statement.results)
        if make is not None:
            return make(self, statement, Parts(operands, attributes, made))
        if has_regions:
            self.ops.append(
                Opaque(statement.name, (), tuple(made), _properties(attributes), part="close")
            )
        else:
            self.ops.append(
                Opaque(statement.name, tuple(operands), tuple(made), _properties(attributes))
            )
        return made

    def _typed(self, values: list[Value], *, is_behind: bool = True) -> None:
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
        made: list[Value] = []
        for ssa, each in (arguments or {}).items():
            made.append(self.define(ssa, each, start))
        if self.match(_LABEL):
            if self.peek("("):
                made += self.listed("(", ")", self._block_argument)
            self.expect(":")
        part = "next" if operands is None else "open"
        self.ops.append(Opaque(name, tuple(operands or ()), tuple(made), part=part))
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
