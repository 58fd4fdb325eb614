"""Prints functions as MLIR text."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from math import prod
from typing import Any, TypeAlias

from gehost import printable, quoting
from gehost_linalg.affine import Dim
from gehost_linalg.generic import Generic, GenericError, Literal, Opaque, Size, Value, is_known
from gehost_linalg.interpret import Broadcast, Part, Split
from gehost_linalg.mlir.function import Function
from gehost_linalg.mlir.literals import dense_text, literal_text
from gehost_linalg.operations import FLOATS

_PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_$.]*|[0-9]+")


class Printer:
    """Names values, and prints operations by their rows of the syntax.

    Attributes:
        lines: of the function's body.
        names: of values, with ``%``.
        sizes: where sizes of tensors come from.
    """

    def __init__(self, function: Function, syntax: Mapping[str, Print]) -> None:
        self.function = function
        self.names: dict[Value, str] = {}
        self.lines: list[str] = []
        self.sizes = Sizes(self)
        self._syntax = syntax
        self._used: set[str] = set()
        self._constants: dict[tuple[Any, ...], str] = {}

    def text(self) -> str:
        function = self.function
        arguments = ", ".join(
            f"{self.name(value)}: {value.type_text}" for value in function.arguments
        )
        for op in function.ops:
            notes = [line for note in function.notes.get(op, ()) for line in note.splitlines()]
            self.lines += [f"  // {printable(line)}" for line in notes]
            write = self._syntax.get("linalg.generic" if isinstance(op, Generic) else op.name)
            if write is not None:
                write(self, op)
            elif isinstance(op, Opaque):
                self._in_generic_form(op)
        outputs = [self.value(value) for value in function.outputs]
        types = ", ".join(value.type_text for value in function.outputs)
        result = "" if not outputs else f" -> {types}" if len(outputs) == 1 else f" -> ({types})"
        self.lines.append(f"  return {', '.join(outputs)} : {types}" if outputs else "  return")
        head = f"func.func @{_symbol(function.name)}({arguments}){result} {{"
        return "\n".join([head, *self.lines, "}"]) + "\n"

    def fresh(self, stem: str) -> str:
        stem = (
            stem
            if _PLAIN.fullmatch(stem) and not stem.isdecimal()
            else "v_" + re.sub(r"[^A-Za-z0-9_]", "_", stem)
        )
        name, count = stem, 0
        while name in self._used:
            count += 1
            name = f"{stem}_{count}"
        self._used.add(name)
        return f"%{name}"

    def name(self, value: Value) -> str:
        if value not in self.names:
            self.names[value] = self.fresh(value.name)
        return self.names[value]

    def constant(
        self, literal: Literal, shape: tuple[Size, ...] | None = None, text: str = ""
    ) -> str:
        type_text = literal.dtype if shape is None else Value("", literal.dtype, shape).type_text
        shown = text or literal_text(literal)
        key = (shown, type_text)
        if key not in self._constants:
            name = self._constants[key] = self.fresh("cst" if literal.dtype in FLOATS else "c")
            content = shown if shape is None else f"dense<{shown}>"
            typed = "" if content in {"true", "false"} else f" : {type_text}"
            self.lines.append(f"  {name} = arith.constant {content}{typed}")
        return self._constants[key]

    def value(self, value: Value, op: Generic | None = None) -> str:
        """The name of an operand.

        Constants, empties and fills are defined at their first use.
        """
        if value in self.names:
            return self.names[value]
        if value.kind == "extent":
            named = self.sizes.named(value.name)
            if named is None:
                raise GenericError(f"nothing gives the size {value.name}")
            return named
        if value.kind in {"empty", "fill"}:
            unknown = [axis for axis, size in enumerate(value.shape or ()) if not is_known(size)]
            sizes = self.sizes.of_tensor(value, unknown, op)
            empty = self.fresh(value.name) if value.kind == "empty" else self.fresh("empty")
            self.lines.append(f"  {empty} = tensor.empty({', '.join(sizes)}) : {value.type_text}")
            if value.kind == "empty":
                self.names[value] = empty
                return empty
            assert value.fill is not None
            scalar = (
                self.constant(value.fill)
                if isinstance(value.fill, Literal)
                else self.value(value.fill)
            )
            name = self.names[value] = self.fresh(value.name)
            tensor = value.type_text
            types = f"ins({scalar} : {value.dtype}) outs({empty} : {tensor}) -> {tensor}"
            self.lines.append(f"  {name} = linalg.fill {types}")
            return name
        if value.constant is not None:
            elements = value.constant.reshape(-1)
            if value.is_scalar:
                return self.constant(Literal(elements[0].item(), value.dtype))
            splat = value.splat
            text = "" if splat is not None else dense_text(value.constant, value.dtype)
            name = self.constant(splat or Literal(0, value.dtype), value.shape, text)
            self.names[value] = name
            return name
        return self.name(value)

    def _in_generic_form(self, op: Opaque) -> None:
        operands = ", ".join([self.value(value) for value in op.operands])
        results = ", ".join([self.name(value) for value in op.results])
        given = ", ".join([value.type_text for value in op.operands])
        made = ", ".join([value.type_text for value in op.results])
        equals = f"{results} = " if results else ""
        attribute = f" {op.attribute}" if op.attribute else ""
        name = quoting.mlir_string(op.name)
        self.lines.append(f"  {equals}{name}({operands}){attribute} : ({given}) -> ({made})")


class Sizes:
    """The sizes of axes as scalars of the text."""

    def __init__(self, printer: Printer) -> None:
        self._printer = printer
        self.known: dict[tuple[Value, int] | str, str] = {}
        """The sizes of axes, and sizes by their names."""
        self.roots: dict[tuple[Value, int], tuple[Value, int]] = {}
        """For an axis of a result, that of another tensor of its size."""
        self.merged: dict[tuple[Value, int], tuple[Value, list[int]]] = {}
        """For an axis of a collapsed tensor, the axes that it merges."""

    def of_tensor(self, value: Value, unknown: Sequence[int], op: Generic | None) -> list[str]:
        """The unknown sizes of an empty or filled tensor, in order."""
        if value.sizes:
            sizes = [self._printer.value(size) for size in value.sizes]
        else:
            sizes = [self.of_axis(value, axis, op) for axis in unknown]
        self.known.update({(value, axis): size for axis, size in zip(unknown, sizes, strict=True)})
        return sizes

    def of_axis(self, value: Value, axis: int, op: Generic | None) -> str:
        """The size of an axis, by name or from an operand.

        The same loop walks along that operand.
        """
        size = None if value.shape is None else value.shape[axis]
        named = self.named(size) if isinstance(size, str) else None
        if named is not None:
            return named
        if op is not None and value in op.operands:
            wanted = op.maps[op.operands.index(value)].results[axis]
            found = [
                (maybe_broadcast, other, at)
                for _, other, at, result, maybe_broadcast in op.axes()
                if result == wanted
                and other.kind == "tensor"
                and other.constant is None
                and other is not value
            ]
            if isinstance(wanted, Dim) and found:
                _, other, at = min(found, key=lambda each: each[0])
                return self.dim(other, at)
        raise GenericError(f"nothing gives the size of axis {axis} of {value!r}")

    def dim(self, value: Value, axis: int) -> str:
        """The size of an axis of a tensor."""
        value, axis = self.roots.get((value, axis), (value, axis))
        if (value, axis) in self.merged:
            source, group = self.merged.pop((value, axis))
            self.known[value, axis] = self._product(source, group)
        if (value, axis) not in self.known:
            source, number = (
                self._printer.value(value),
                self._printer.constant(Literal(axis, "index")),
            )
            name = self.known[value, axis] = self._printer.fresh("dim")
            self._printer.lines.append(
                f"  {name} = tensor.dim {source}, {number} : {value.type_text}"
            )
        return self.known[value, axis]

    def _product(self, value: Value, axes: Sequence[int]) -> str:
        """The size of merged axes, of which one is not known."""
        shape = value.shape or ()
        first, *others = [self.dim(value, axis) for axis in axes if not is_known(shape[axis])]
        known = prod([int(shape[axis] or 0) for axis in axes if is_known(shape[axis])])
        for other in others:
            first = self.index_op("muli", first, other)
        return self.index_op("muli", first, known) if known != 1 else first

    def named(self, size: str) -> str | None:
        """A size by its name, from a tensor or computed.

        Arguments come first, then results, then parts and broadcasts of other sizes.
        """
        if size.isdecimal():
            return self._printer.constant(Literal(int(size), "index"))
        for value in self._printer.names:  # arguments come first
            if value.kind == "tensor" and value.shape is not None and size in value.shape:
                return self.dim(value, value.shape.index(size))
        part = self._printer.function.rules.get(size)
        if isinstance(part, Broadcast):  # the text is that of equal sizes
            return next(filter(None, [self.named(str(each)) for each in part.sizes]), None)
        if part is None or part.whole is None or (isinstance(part, Part) and part.end < 0):
            return None
        whole = self.named(str(part.whole))
        if whole is None:
            return None
        if size not in self.known and isinstance(part, Split):
            self.known[size] = self.index_op("divsi", whole, part.of)
        elif size not in self.known and isinstance(part, Part):
            made = self.index_op("minsi", whole, part.end) if part.end < 2**31 else whole
            if part.start != part.step - 1:
                made = self.index_op("subi", made, part.start - part.step + 1)
            if part.start >= part.step:  # it may begin behind the end
                made = self.index_op("maxsi", made, 0)
            self.known[size] = self.index_op("divsi", made, part.step) if part.step > 1 else made
        return self.known[size]

    def index_op(self, name: str, operand: str, other: str | int) -> str:
        if isinstance(other, int):
            other = self._printer.constant(Literal(other, "index"))
        made = self._printer.fresh("size")
        self._printer.lines.append(f"  {made} = arith.{name} {operand}, {other} : index")
        return made


def _symbol(name: str) -> str:
    return (
        name
        if _PLAIN.fullmatch(name) and not name.isdecimal()
        else '"' + re.sub(r'[^ -~]|["\\]', "_", name) + '"'
    )


Print: TypeAlias = Callable[[Printer, Any], None]
"""Writes the lines of an operation."""
