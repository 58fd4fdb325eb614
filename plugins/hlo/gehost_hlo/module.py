"""The parts of an HLO program, as its text holds them."""

from __future__ import annotations

import math

import msgspec


class Layout(msgspec.Struct, frozen=True):
    """Order of a shape's dimensions in memory, minor to major."""

    minor_to_major: tuple[int, ...]
    rest: str | None = None
    """Text behind the colon as written, as ``T(8,128)S(1)``: tiles, memory space and others; None
    without a colon.
    """

    def __str__(self) -> str:
        order = ",".join(map(str, self.minor_to_major))
        return f"{{{order}}}" if self.rest is None else f"{{{order}:{self.rest}}}"


class Shape(msgspec.Struct, frozen=True):
    """Type of a result: an array, a tuple, or a buffer ``b(…)``.

    Attributes:
        type: element type as ``f32``; ``tuple`` and ``buffer`` with ``elements``.
        dimensions: sizes; an upper bound where the dimension is dynamic, -1 for ``?``.
        layout: None where the text has none.
        dynamic: indices of the dimensions written ``<=n``.
        elements: of a tuple or a buffer; None for an array.
    """

    type: str
    dimensions: tuple[int, ...] = ()
    layout: Layout | None = None
    dynamic: tuple[int, ...] = ()
    elements: tuple[Shape, ...] | None = None

    @property
    def is_tuple(self) -> bool:
        return self.type == "tuple"

    @property
    def rank(self) -> int:
        return len(self.dimensions)

    @property
    def size(self) -> int:
        """Number of elements of an array."""
        return math.prod(self.dimensions)

    def leaves(self) -> tuple[Shape, ...]:
        """Return the arrays of a tuple, depth first.

        An array is its own leaf.
        """
        if self.elements is None:
            return (self,)
        return tuple(leaf for element in self.elements for leaf in element.leaves())

    def compatible(self, other: Shape) -> bool:
        """Whether types and sizes agree; layouts may differ."""
        if self is other:
            return True
        if self.elements is None or other.elements is None:
            return (
                self.elements is other.elements
                and self.type == other.type
                and self.dimensions == other.dimensions
            )
        return (
            self.type == other.type
            and len(self.elements) == len(other.elements)
            and all(a.compatible(b) for a, b in zip(self.elements, other.elements, strict=True))
        )

    def __str__(self) -> str:
        if self.elements is not None:
            inside = ", ".join(map(str, self.elements))
            return f"({inside})" if self.type == "tuple" else f"b({inside})"
        dims = ",".join(
            "?" if size < 0 else f"<={size}" if axis in self.dynamic else str(size)
            for axis, size in enumerate(self.dimensions)
        )
        return f"{self.type}[{dims}]{'' if self.layout is None else self.layout}"


class Literal(msgspec.Struct, frozen=True):
    """Text between the parentheses of ``constant(…)`` and ``parameter(…)``, as written."""

    text: str

    @property
    def is_elided(self) -> bool:
        return "..." in self.text


class Operand(msgspec.Struct, frozen=True):
    """One operand: a name, a literal, or an instruction written in place.

    Attributes:
        name: of the instruction that it refers to, without ``%``; "" for the other two forms.
        shape: None where the text has none.
        percent: whether ``%`` stands before the name.
    """

    name: str = ""
    shape: Shape | None = None
    literal: Literal | None = None
    instruction: HloInstruction | None = None
    percent: bool = False


class HloInstruction(msgspec.Struct):
    """One assignment.

    Attributes:
        name: without ``%``; "" for one that stands in place of an operand.
        shape: of the result; None where the text has none.
        attributes: name to value, as written.
        is_root: whether its result is that of the computation, with or without ``ROOT``.
    """

    name: str
    shape: Shape | None
    opcode: str
    operands: tuple[Operand, ...]
    attributes: dict[str, str]
    is_root: bool = False
    percent: bool = False

    @property
    def literal(self) -> str:
        """Text in the parentheses of a constant or parameter."""
        first = self.operands[0].literal if self.operands else None
        return "" if first is None else first.text


class Parameter(msgspec.Struct, frozen=True):
    """One parameter of a computation's signature."""

    name: str
    shape: Shape
    percent: bool = False


class HloComputation(msgspec.Struct):
    """A function of its parameters; it captures nothing.

    Attributes:
        is_entry: with or without ``ENTRY``.
        signature: parameters before the ``{``; None without a signature.
        result: shape behind ``->``; None without a signature.
        attributes: those behind ``}``.
        root_marked: whether ``ROOT`` is written.
    """

    name: str
    instructions: tuple[HloInstruction, ...]
    is_entry: bool = False
    signature: tuple[Parameter, ...] | None = None
    result: Shape | None = None
    attributes: dict[str, str] = {}
    root_marked: bool = True
    percent: bool = False

    @property
    def root(self) -> HloInstruction:
        return next(instruction for instruction in self.instructions if instruction.is_root)

    @property
    def parameters(self) -> tuple[HloInstruction, ...]:
        """The parameter instructions by number."""
        rows = [
            instruction for instruction in self.instructions if instruction.opcode == "parameter"
        ]
        return tuple(sorted(rows, key=lambda instruction: int(instruction.literal)))


class Table(msgspec.Struct, frozen=True):
    """One of the tables behind the header, as ``FileNames``."""

    name: str
    entries: tuple[tuple[int, str], ...]


class HloModule(msgspec.Struct):
    """A program.

    Attributes:
        name: "" without a header.
        attributes: of the header, as written.
        entry_marked: whether ``ENTRY`` is written.
        places: of instructions in a text that is not HLO, by computation and instruction.
    """

    name: str
    computations: tuple[HloComputation, ...]
    attributes: dict[str, str] = {}
    tables: tuple[Table, ...] = ()
    entry_marked: bool = True
    places: dict[tuple[str, str], int] = {}

    @property
    def entry(self) -> HloComputation:
        return next(computation for computation in self.computations if computation.is_entry)

    def find(self, name: str) -> HloComputation | None:
        """Return the computation of a name (with or without ``%``), or None."""
        name = name.removeprefix("%")
        return next(
            (computation for computation in self.computations if computation.name == name), None
        )
