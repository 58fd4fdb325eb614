"""Prints functions as MLIR text."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from math import prod
from typing import Any, NamedTuple, TypeAlias

from gehost import printable, quoting
from gehost_linalg.affine import Dim
from gehost_linalg.generic import (
    Generic,
    GenericError,
    Literal,
    Op,
    Opaque,
    Size,
    Template,
    Value,
    is_known,
)
from gehost_linalg.interpret import Broadcast, Part, Split
from gehost_linalg.mlir.function import Function, head_of, is_bare
from gehost_linalg.mlir.literals import dense_text, literal_text
from gehost_linalg.mlir.opaque import template_text
from gehost_linalg.operations import FLOATS


class _Scope(NamedTuple):
    """What is named before a region.

    Attributes:
        operands: of the operation that has the region.
        names: of values.
        constants: by their text and type.
        sizes: of axes.
    """

    operands: tuple[Value, ...]
    names: dict[Value, str]
    constants: dict[tuple[Any, ...], str]
    sizes: dict[tuple[Value, int] | str, str]


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
        self._scopes: list[_Scope] = []

    def text(self) -> str:
        """The function, with what stands around it in its module."""
        function = self.function
        head = head_of(function, self.name)
        if function.is_declaration:
            return "\n".join([*function.around, head]) + "\n"
        for place, op in enumerate(function.ops):
            notes = [line for note in function.notes.get(op, ()) for line in note.splitlines()]
            self.lines += [f"  // {printable(line)}" for line in notes]
            self._operation(op, place)
        outputs = [self.value(value) for value in function.outputs]
        types = ", ".join(value.type_text for value in function.outputs)
        word = "return" if function.kind == "func.func" else "util.return"
        self.lines.append(f"  {word} {', '.join(outputs)} : {types}" if outputs else f"  {word}")
        return "\n".join([*function.around, f"{head} {{", *self.lines, "}"]) + "\n"

    def _operation(self, op: Op, place: int) -> None:
        if isinstance(op, Generic):
            self._syntax["linalg.generic" if op.named is None else op.named.name](self, op)
        elif op.part:
            self._part(op, place)
        elif isinstance(op.attribute, Template):
            operands = [self.value(value) for value in op.operands]
            text = template_text(op.attribute, operands, self.fresh)
            name = op.name.partition(" of ")[0]
            self.lines.append(f"  {self.results(op.results)}{name}{text}")
        elif op.name in self._syntax and not (
            isinstance(op.attribute, str) and op.attribute.startswith("<{")
        ):
            self._syntax[op.name](self, op)
        else:
            self._in_generic_form(op)

    def results(self, values: Sequence[Value]) -> str:
        """The names before an operation; several share one, with numbers."""
        if len(values) < 2:
            return f"{self.name(values[0])} = " if values else ""
        name = self.fresh(values[0].name.partition("#")[0])
        self.names.update({value: f"{name}#{place}" for place, value in enumerate(values)})
        return f"{name}:{len(values)} = "

    def outside(self, ref: object) -> str | None:
        """The name of an operand of a payload that is not its own."""
        if isinstance(ref, Literal):
            return self.constant(ref)
        return self.value(ref) if isinstance(ref, Value) else None

    # -- operations with regions: names and constants of a region are not seen behind it

    def _part(self, op: Opaque, place: int) -> None:
        if op.part == "open":
            operands = [self.value(value) for value in op.operands]
            close = _close_of(self.function.ops[place:])
            names = self.results(close.results)
            name = quoting.mlir_string(op.name)
            attribute = f" {close.attribute}" if close.attribute else ""
            self.lines.append(f"  {names}{name}({', '.join(operands)}){attribute} ({{")
            self._scopes.append(_Scope(op.operands, {}, {}, {}))
        elif op.part == "next":
            self._leave()
            self.lines.append("  }, {")
        else:
            self._leave()
            operand_types = ", ".join(
                [operand.type_text for operand in self._scopes.pop().operands]
            )
            types = ", ".join([value.type_text for value in op.results])
            self.lines.append(f"  }}) : ({operand_types}) -> ({types})")
            return
        scope = self._scopes[-1]
        self._scopes[-1] = _Scope(
            scope.operands, dict(self.names), dict(self._constants), dict(self.sizes.known)
        )
        if op.results:
            block = ", ".join(f"{self.name(value)}: {value.type_text}" for value in op.results)
            self.lines.append(f"  ^bb0({block}):")

    def _leave(self) -> None:
        scope = self._scopes[-1]
        self.names, self._constants = dict(scope.names), dict(scope.constants)
        self.sizes.known = dict(scope.sizes)

    def fresh(self, stem: str) -> str:
        if not is_bare(stem):
            stem = "v_" + re.sub(r"[^A-Za-z0-9_]", "_", stem)
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
                raise GenericError(f"size {value.name} is unknown")
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
        argument = ", ".join([value.type_text for value in op.operands])
        result = ", ".join([value.type_text for value in op.results])
        equals = self.results(op.results)
        attribute = f" {op.attribute}" if op.attribute else ""
        name = quoting.mlir_string(op.name)
        self.lines.append(f"  {equals}{name}({operands}){attribute} : ({argument}) -> ({result})")


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
            expected = op.maps[op.operands.index(value)].results[axis]
            results = [
                (maybe_broadcast, other, at)
                for _, other, at, result, maybe_broadcast in op.axes()
                if result == expected
                and other.kind == "tensor"
                and other.constant is None
                and other is not value
            ]
            if isinstance(expected, Dim) and results:
                _, other, at = min(results, key=lambda item: item[0])
                return self.dim(other, at)
        raise GenericError(f"size of axis {axis} is unknown: {value!r}")

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
        entry = prod([int(shape[axis] or 0) for axis in axes if is_known(shape[axis])])
        for other in others:
            first = self.index_op("muli", first, other)
        return self.index_op("muli", first, entry) if entry != 1 else first

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
            return next(filter(None, [self.named(str(item)) for item in part.sizes]), None)
        if part is None or part.whole is None or (isinstance(part, Part) and part.end < 0):
            return None
        whole = self.named(str(part.whole))
        if whole is None:
            return None
        if size not in self.known and isinstance(part, Split):
            self.known[size] = self.index_op("divsi", whole, part.of)
        elif size not in self.known and isinstance(part, Part):
            result = self.index_op("minsi", whole, part.end) if part.end < 2**31 else whole
            if part.start != part.step - 1:
                result = self.index_op("subi", result, part.start - part.step + 1)
            if part.start >= part.step:  # it may begin behind the end
                result = self.index_op("maxsi", result, 0)
            self.known[size] = (
                self.index_op("divsi", result, part.step) if part.step > 1 else result
            )
        return self.known[size]

    def index_op(self, name: str, operand: str, other: str | int) -> str:
        if isinstance(other, int):
            other = self._printer.constant(Literal(other, "index"))
        result = self._printer.fresh("size")
        self._printer.lines.append(f"  {result} = arith.{name} {operand}, {other} : index")
        return result


Print: TypeAlias = Callable[[Printer, Any], None]
"""Writes the lines of an operation."""


def _close_of(ops: Sequence[Op]) -> Opaque:
    """The last part of the operation with regions that begins ``ops``."""
    depth = 0
    for op in ops:
        if isinstance(op, Opaque):
            depth += (op.part == "open") - (op.part == "close")
            if depth == 0:
                return op
    raise GenericError(f"{ops[0]} has no end")
