"""A kernel's function as data: what each stage loads, computes, accumulates and stores.

``c.py`` writes it. Every part is frozen; a scalar is equal to itself alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal as OneOf
from typing import NamedTuple, TypeAlias

Part: TypeAlias = OneOf["before", "body", "after"]
"""Of a stage: before its loop, in it, behind it."""


class Axis(NamedTuple):
    """An axis of a view: sums of (loop, scale), an offset; whether its size is the loop's or 1."""

    terms: tuple[tuple[int, int], ...]
    offset: int
    is_whole: bool
    maybe_one: bool


class View(NamedTuple):
    """A tensor as loops walk it; sizes by number."""

    tensor: int
    bytes: int
    along_row: bool
    sizes: tuple[int, ...]
    axes: tuple[Axis, ...]


# -- memory


class Output(NamedTuple):
    """A row of an output."""

    view: int
    dtype: str


class Buffer(NamedTuple):
    """A row of the thread's memory."""

    number: int
    dtype: str


class Inside(NamedTuple):
    """A place in the row of a concatenation, behind rows of some lengths and single elements."""

    whole: Output | Buffer
    lengths: tuple[int, ...]
    ones: int


@dataclass(frozen=True, eq=False)
class Widen:
    """A row of one element repeated to a row of another size."""

    source: Memory
    own: int
    row: int
    buffer: Buffer


Memory: TypeAlias = Output | Buffer | Inside | Widen

# -- scalars


@dataclass(frozen=True, eq=False)
class Constant:
    """A number."""

    value: bool | int | float
    dtype: str


@dataclass(frozen=True, eq=False)
class Extent:
    """A size, by number."""

    size: int


@dataclass(frozen=True, eq=False)
class Load:
    """An element of an input; ``masked`` is the row that a padded loop may leave."""

    view: int
    dtype: str
    along_row: bool
    masked: int | None


@dataclass(frozen=True, eq=False)
class Stored:
    """An element of a row that an earlier stage stored, at ``i * scale + offset``."""

    memory: Memory
    scale: int
    offset: int
    masked: int | None


@dataclass(frozen=True, eq=False)
class Index:
    """The value of an index: a constant, and (factor, loop, size) where the size is not 1."""

    start: int
    terms: tuple[tuple[int, int, int], ...]
    loops: int


@dataclass(frozen=True, eq=False)
class Op:
    """A scalar operation.

    Attributes:
        is_named: it is read several times, or its name rounds a double.
        is_whole: it is an expression that is written where it is read, however long.
    """

    name: str
    operands: tuple[Scalar, ...]
    dtype: str
    attribute: str = ""
    varies: bool = False
    is_named: bool = False
    is_whole: bool = False


@dataclass(frozen=True, eq=False)
class Name:
    """A scalar with a name, so that it is computed once."""

    value: Scalar
    dtype: str
    varies: bool


@dataclass(frozen=True, eq=False)
class Narrow:
    """A double that stands for a float, as a float."""

    value: Scalar


@dataclass(frozen=True, eq=False)
class Accumulate:
    """A row reduced to one number.

    Attributes:
        sign: ``+``, ``*``, ``max`` or ``min``.
        start: the initial value.
        is_wide: it is accumulated in double.
        row: the size of the row.
        is_masked: the loop may go beyond the row.
    """

    sign: str
    element: Scalar
    start: Constant
    dtype: str
    is_wide: bool
    row: int
    is_masked: bool


Scalar: TypeAlias = Constant | Extent | Load | Stored | Index | Op | Name | Narrow | Accumulate

# -- statements


@dataclass(frozen=True, eq=False)
class Declare:
    """A row of memory that the function uses."""

    memory: Output | Buffer


@dataclass(frozen=True, eq=False)
class Store:
    """A scalar written to a row: each element, or the first alone."""

    memory: Memory
    value: Scalar
    along_row: bool


class Line(NamedTuple):
    """A statement, or a scalar where it is computed."""

    stage: int
    part: Part
    item: Scalar | Declare | Store | Widen


@dataclass(frozen=True)
class Nest:
    """The function of some outputs.

    Attributes:
        rows: the row of each stage, by number.
        lines: in the order in which they are computed.
        views: of its operands, by number.
        outer: the sizes of the outer loops.
        widths: the sizes of rows.
        lengths: the sizes that places in concatenations need.
        padded: the stages that walk a short row up to a whole vector.
        buffers: how many rows of memory.
        flat: any piece of a row can be computed on its own.
        ordered: the indices of outer loops are read.
    """

    rows: tuple[int, ...]
    lines: tuple[Line, ...]
    views: tuple[View, ...]
    outer: tuple[int, ...]
    widths: tuple[int, ...]
    lengths: tuple[int, ...]
    padded: frozenset[int]
    buffers: int
    flat: bool
    ordered: bool
