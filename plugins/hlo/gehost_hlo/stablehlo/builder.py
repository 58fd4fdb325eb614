"""Builds the computations of an HLO module from operations."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from gehost_hlo.module import HloComputation, HloInstruction, Literal, Operand, Shape
from gehost_hlo.stablehlo.attributes import braces
from gehost_hlo.stablehlo.types import TypeTextError, shape_of
from gehost_mlir.operations import Block, Operation, OperationReader

_ODD = re.compile(r"[^A-Za-z0-9_.-]")
_CHEAP = frozenset(
    {"stablehlo.constant", "chlo.constant", "stablehlo.iota", "stablehlo.broadcast_in_dim"}
)
"""Operations that a region repeats where it reads their results."""


def free_values(block: Block) -> list[str]:
    """The values that a region reads from outside, in their order."""
    own = {name for name, _ in block.arguments}
    results: dict[str, None] = {}
    for operation in block.operations:
        reads = [
            *operation.operands,
            *(name for inner in operation.regions for name in free_values(inner)),
        ]
        results |= dict.fromkeys(name for name in reads if name not in own)
        own |= set(operation.results)
    return list(results)


@dataclass
class Names:
    """Distinct names, as HLO allows them."""

    taken: set[str] = field(default_factory=set[str])

    def choose(self, preferred: str) -> str:
        name = _ODD.sub("_", preferred)
        if not (name[:1].isalpha() or name[:1] == "_"):
            name = f"v{name}"
        candidate, number = name, 1
        while candidate in self.taken:
            candidate, number = f"{name}.{number}", number + 1
        self.taken.add(candidate)
        return candidate


class Builder:
    """One computation while it is built."""

    def __init__(self, reader: OperationReader, name: str) -> None:
        self.reader = reader
        self.name = name
        self.instructions: list[HloInstruction] = []
        self.values: dict[str, HloInstruction] = {}
        self.definitions: dict[str, Operation] = {}
        self.places: dict[str, int] = {}
        """Positions of instructions in the text."""
        self.operation = Operation("", 0)
        """The one that is being translated."""
        self._names = Names()

    def shape(self, kind: str) -> Shape:
        """The shape of a type; an error at the operation if HLO has none."""
        try:
            return shape_of(kind)
        except TypeTextError as error:
            raise self.reader.error(str(error), self.operation.position) from None

    def parameter(self, name: str, shape: Shape) -> HloInstruction:
        number = sum(instruction.opcode == "parameter" for instruction in self.instructions)
        return self._append(
            HloInstruction(
                self._names.choose(name),
                shape,
                "parameter",
                (Operand(literal=Literal(str(number))),),
                {},
            )
        )

    def constant(self, text: str, shape: Shape, name: str = "") -> HloInstruction:
        operands = (Operand(literal=Literal(text)),)
        return self._append(
            HloInstruction(self._names.choose(name or "constant"), shape, "constant", operands, {})
        )

    def add(
        self,
        opcode: str,
        operands: Sequence[HloInstruction],
        shape: Shape,
        attributes: Mapping[str, str] | None = None,
        name: str = "",
    ) -> HloInstruction:
        """Append an instruction; without ``name`` it has that of the operation's result."""
        name = name or self.named(opcode)
        return self._append(
            HloInstruction(
                self._names.choose(name),
                shape,
                opcode,
                tuple(Operand(operand.name) for operand in operands),
                {key: text for key, text in (attributes or {}).items() if text},
            )
        )

    def named(self, opcode: str) -> str:
        """The name of the operation's result: ``cst_0`` of %cst_0, ``add.5`` of %5."""
        results = self.operation.results
        own = results[0].partition("#")[0] if results else ""
        if own and not own.isdigit() and len(results) == 1:
            return own
        return f"{opcode}.{own}" if own else opcode

    def scalar(self, number: str, shape: Shape) -> HloInstruction:
        """A constant of a shape that holds one number."""
        one = self.constant(number, Shape(shape.type), f"{self.named('constant')}.constant")
        if not shape.dimensions:
            return one
        return self.add("broadcast", [one], shape, {"dimensions": "{}"}, f"{one.name}.broadcast")

    def broadcast(self, x: HloInstruction, shape: Shape, axes: Sequence[int]) -> HloInstruction:
        """Broadcast along new dimensions, and along those of size 1."""
        assert x.shape is not None
        if len(axes) != x.shape.rank or any(not 0 <= axis < shape.rank for axis in axes):
            raise self.reader.error(
                f"{list(axes)} are no dimensions of {shape} for {x.shape}", self.operation.position
            )
        retained = [
            (size, axis)
            for size, axis in zip(x.shape.dimensions, axes, strict=True)
            if size == shape.dimensions[axis]
        ]
        if len(retained) < len(axes):
            sizes = tuple(size for size, _ in retained)
            x = self.add(
                "reshape", [x], Shape(shape.type, sizes), name=f"{self.named('broadcast')}.operand"
            )
        dimensions = braces([axis for _, axis in retained])
        return self.add("broadcast", [x], shape, {"dimensions": dimensions})

    def _append(self, instruction: HloInstruction) -> HloInstruction:
        self.instructions.append(instruction)
        self.places[instruction.name] = self.operation.position
        return instruction

    def value(self, name: str) -> HloInstruction:
        """The instruction of a value."""
        cached = self.values.get(name)
        if cached is None:
            raise self.reader.error(f"%{name} is not defined above", self.operation.position)
        return cached

    def cheap(self, name: str) -> Operation | None:
        """The operation of a constant, or of a broadcast one."""
        operation = self.definitions.get(name)
        if operation is None or operation.name not in _CHEAP or operation.regions:
            return None
        if any(self.cheap(operand) is None for operand in operation.operands):
            return None
        return operation

    def element(self, whole: HloInstruction, index: int, name: str = "") -> HloInstruction:
        """One array of a tuple."""
        assert whole.shape is not None
        assert whole.shape.elements is not None
        return self.add(
            "get-tuple-element",
            [whole],
            whole.shape.elements[index],
            {"index": str(index)},
            name or f"{whole.name}.{index}",
        )

    def tuple(self, parts: Sequence[HloInstruction], name: str = "tuple") -> HloInstruction:
        shapes = [part.shape for part in parts]
        elements = tuple(shape for shape in shapes if shape is not None)
        return self.add("tuple", parts, Shape("tuple", elements=elements), name=name)

    def finish(self, root: HloInstruction) -> HloComputation:
        root.is_root = True
        return HloComputation(self.name, tuple(self.instructions))


class Converter(Protocol):
    """What the operations need of the module around them."""

    reader: OperationReader
    meshes: dict[str, str]

    def function(self, name: str, position: int) -> HloComputation:
        """The computation of a function."""
        ...

    def captures(self, b: Builder, blocks: Sequence[Block]) -> list[str]:
        """The values from outside that the regions get as parameters."""
        ...

    def region(
        self, outer: Builder, block: Block, title: str, captured: Sequence[str], *, packed: bool
    ) -> HloComputation:
        """The computation of a region."""
        ...
