"""Generics: loops over indexing maps with a scalar payload, after MLIR's ``linalg.generic``."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import product
from typing import Any, NamedTuple, TypeAlias
from typing import Literal as Literal_

import numpy as np

from gehost_linalg.affine import AffineMap, Binary, Const, Dim, Expr, dims_of, evaluate

Size: TypeAlias = int | str | None
"""A known size, a name that stands for one size everywhere, or unknown (equal to nothing)."""


def is_known(size: Size) -> bool:
    """Whether a size is a number, or the text of one."""
    return isinstance(size, int) or (size is not None and size.isdecimal())


DTYPES = ("f16", "bf16", "f32", "f64", "i1", "i8", "i16", "i32", "i64", "index")

PARALLEL = "parallel"
REDUCTION = "reduction"


class Value:
    """A tensor, or a scalar: ``shape`` is None for an unranked tensor.

    Attributes:
        kind: ``tensor``, ``scalar``, ``empty`` (``tensor.empty``: a shape without contents),
            ``fill`` (every
            element is ``fill``) or ``extent`` (a scalar: the size that shapes call by its name).
        constant: the elements, where they are known; one element stands for all of them (a splat).
        fill: the element of a ``fill``: a literal or a scalar.
        sizes: scalars with the unknown sizes of an ``empty`` or ``fill``, where a text names them.
    """

    __slots__ = ("constant", "dtype", "fill", "kind", "name", "shape", "sizes")

    def __init__(
        self,
        name: str,
        dtype: str,
        shape: Sequence[Size] | None = None,
        *,
        kind: str = "tensor",
        constant: np.ndarray[Any, Any] | None = None,
        fill: Literal | Value | None = None,
        sizes: tuple[Value, ...] = (),
    ) -> None:
        self.name = name
        self.dtype = dtype
        self.shape: tuple[Size, ...] | None = None if shape is None else tuple(shape)
        if kind in {"scalar", "extent"}:
            self.shape = ()
        self.kind = kind
        self.constant = constant
        self.fill = fill
        self.sizes = sizes

    @property
    def is_scalar(self) -> bool:
        return self.kind in {"scalar", "extent"}

    @property
    def rank(self) -> int | None:
        return None if self.shape is None else len(self.shape)

    @property
    def splat(self) -> Literal | None:
        """The one value that all elements of this constant have."""
        if self.constant is None or self.constant.size == 0:
            return None
        elements = self.constant.reshape(-1)
        first = elements[:1].tobytes()  # by bytes: 0.0 is not -0.0, and a NaN equals itself
        if elements.size > 1 and elements.tobytes() != first * elements.size:
            return None
        return Literal(elements[0].item(), self.dtype)

    @property
    def type_text(self) -> str:
        """``tensor<4x?xf32>``, or ``f32`` for a scalar."""
        if self.is_scalar:
            return self.dtype
        if self.shape is None:
            return f"tensor<*x{self.dtype}>"
        sizes = [str(size) if is_known(size) else "?" for size in self.shape]
        return f"tensor<{'x'.join([*sizes, self.dtype])}>"

    def __repr__(self) -> str:
        return f"%{self.name}: {self.type_text}"


@dataclass(frozen=True, slots=True)
class Arg:
    """The element of operand ``index`` (ins, then outs) at the current point."""

    index: int


@dataclass(frozen=True, slots=True)
class Res:
    """The result of operation ``index`` of the payload."""

    index: int


@dataclass(frozen=True, slots=True, eq=False)
class Literal:
    """A constant scalar of the payload."""

    value: bool | int | float
    dtype: str

    @property
    def key(self) -> tuple[str, str]:
        """Equal for equal constants only: 0.0 and -0.0 differ, NaN equals itself."""
        return repr(self.value), self.dtype

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Literal) and self.key == other.key

    def __hash__(self) -> int:
        return hash(self.key)


@lru_cache(maxsize=4096)
def arg(index: int) -> Arg:
    """The same object for each argument of a number, which are many."""
    return Arg(index)


@lru_cache(maxsize=4096)
def res(index: int) -> Res:
    """The same object for each result of a number."""
    return Res(index)


Ref: TypeAlias = Arg | Res | Literal | Value
"""An operand of a scalar operation; a ``Value`` is a scalar from outside of the Generic."""


def renumbered(
    refs: Iterable[Ref], args: Mapping[int, Ref], results: Mapping[int, Ref]
) -> tuple[Ref, ...]:
    """The references with some arguments and results replaced, by their numbers."""
    return tuple(
        [
            args.get(ref.index, ref)
            if isinstance(ref, Arg)
            else results.get(ref.index, ref)
            if isinstance(ref, Res)
            else ref
            for ref in refs
        ]
    )


@dataclass(frozen=True)
class Template:
    """The text of an operation that is only carried through.

    Attributes:
        parts: texts, and between them the numbers of operands.
        own: the names of values that the text itself defines, with ``%``.
    """

    parts: tuple[str | int, ...]
    own: tuple[str, ...] = ()


class ScalarOp(NamedTuple):
    """An operation of ``arith`` or ``math`` by MLIR's name, ``linalg.index``, or any other.

    ``attribute`` is the predicate of a comparison, the expression over the loops whose value an
    index is, which result this is of an operation with two, or the text of an unknown operation.
    ``flags`` are ``fastmath<…>``, ``overflow<…>``, a rounding mode, …, as MLIR writes them.
    """

    name: str
    operands: tuple[Ref, ...]
    dtype: str
    attribute: str | int | Expr | Template | None = None
    flags: str = ""

    def renumbered(self, args: Mapping[int, Ref], results: Mapping[int, Ref]) -> ScalarOp:
        """The same operation with other operands."""
        operands = renumbered(self.operands, args, results)
        return ScalarOp(self.name, operands, self.dtype, self.attribute, self.flags)


INDEX = "linalg.index"


def expr_of(op: ScalarOp) -> Expr:
    """The expression over the loops of a ``linalg.index``."""
    assert isinstance(op.attribute, Dim | Const | Binary)
    return op.attribute


_NONE = frozenset[int]()


@dataclass(frozen=True)
class Payload:
    """Scalar operations in order, and one yielded value for each out."""

    ops: tuple[ScalarOp, ...]
    yields: tuple[Ref, ...]

    @cached_property
    def refs(self) -> list[Ref]:
        """The operands of all operations, and the yields."""
        return [*[operand for op in self.ops for operand in op.operands], *self.yields]

    @cached_property
    def reads(self) -> frozenset[int]:
        """The operands whose elements are read."""
        return frozenset([ref.index for ref in self.refs if isinstance(ref, Arg)])

    @property
    def indices(self) -> tuple[Expr, ...]:
        """The expressions of its ``linalg.index`` operations."""
        return tuple([expr_of(op) for op in self.ops if op.name == INDEX])

    @property
    def captured(self) -> tuple[Value, ...]:
        """The scalars that it reads from outside the operation."""
        return tuple([ref for ref in self.refs if isinstance(ref, Value)])

    def renumbered(
        self, args: Mapping[int, Ref], results: Mapping[int, Ref] | None = None
    ) -> Payload:
        """The same operations with arguments and results replaced."""
        ops = [op.renumbered(args, results or {}) for op in self.ops]
        return Payload(tuple(ops), renumbered(self.yields, args, results or {}))

    def live(self) -> Payload:
        """The same without operations whose results nothing uses."""
        used = {ref.index for ref in self.refs if isinstance(ref, Res)}
        if len(used) == len(self.ops):  # each is used by a later one, the last by a yield
            return self
        expected: set[int] = set()
        stack = [ref.index for ref in self.yields if isinstance(ref, Res)]
        while stack:
            index = stack.pop()
            if index not in expected:
                expected.add(index)
                stack.extend(ref.index for ref in self.ops[index].operands if isinstance(ref, Res))
        places = sorted(expected)
        results = {old: res(new) for new, old in enumerate(places)}
        retained = Payload(tuple([self.ops[old] for old in places]), self.yields)
        return retained.renumbered({}, results)


def scalars_of(values: Iterable[Value]) -> tuple[Value, ...]:
    """The sizes of empty and filled tensors, and the filling scalars."""
    results: list[Value] = []
    for value in values:
        results += value.sizes
        if isinstance(value.fill, Value):
            results.append(value.fill)
    return tuple(results)


class Named(NamedTuple):
    """The spelling of a Generic that is a named operation, as ``linalg.matmul``.

    Attributes:
        name: the operation's name.
        before: the text before its operands.
        after: the text behind them; a body that is printed from the payload is not part of it.
        has_body: whether its payload is written.
    """

    name: str
    before: str = ""
    after: str = ""
    has_body: bool = False


@dataclass(frozen=True, eq=False)
class Generic:
    """A loop nest over operands with indexing maps.

    For each point, load the operands at their maps, run the payload, store the yields at the out
    maps.

    Attributes:
        ins: the values that are read.
        outs: initial values; one that the payload does not read only provides a shape.
        maps: of the ins, then of the outs.
        iterators: ``parallel`` or ``reduction`` for each loop.
        payload: the scalar operations.
        results: one for each out.
        maybe_broadcast: for each operand the axes that may turn out to be broadcast: their size is
            1 (stride 0) or the loop's, which only the run shows.
        origins: the nodes that this computes, in the order of their first operation.
        label: its name in messages.
    """

    ins: tuple[Value, ...]
    outs: tuple[Value, ...]
    maps: tuple[AffineMap, ...]
    iterators: tuple[str, ...]
    payload: Payload
    results: tuple[Value, ...]
    maybe_broadcast: tuple[frozenset[int], ...] = ()
    origins: tuple[Any, ...] = ()
    label: str = ""
    named: Named | None = None
    """Its spelling; one that is fused or has other loops has none."""

    @classmethod
    def of(
        cls,
        ins: Iterable[Value],
        outs: Iterable[Value],
        maps: Iterable[AffineMap | str],
        iterators: Iterable[str],
        payload: Payload,
        results: Iterable[Value] = (),
        label: str = "",
    ) -> Generic:
        """Make a verified Generic.

        Maps may be texts; results are named after the outs unless given.

        Raises:
            GenericError: it means nothing.
            MlirError: a map's text is malformed.
        """
        provided = tuple(outs)
        named = [
            Value(f"{label or out.name}_{i}", out.dtype, out.shape)
            for i, out in enumerate(provided)
        ]
        parsed = [AffineMap.parse(map_) if isinstance(map_, str) else map_ for map_ in maps]
        result = tuple(results) or tuple(named)
        op = cls(
            tuple(ins), provided, tuple(parsed), tuple(iterators), payload, result, label=label
        )
        verify(op)
        return op

    @cached_property
    def operands(self) -> tuple[Value, ...]:
        return self.ins + self.outs

    @cached_property
    def scalars(self) -> tuple[Value, ...]:
        """Values that are read and are no operands.

        They are sizes, fills, and scalars of the payload.
        """
        return (*scalars_of(self.operands), *self.payload.captured)

    @property
    def maybe_broadcast_axes(self) -> tuple[frozenset[int], ...]:
        """``maybe_broadcast`` with an entry for every operand."""
        return self.maybe_broadcast or (_NONE,) * len(self.maps)

    @property
    def reduces(self) -> bool:
        """Whether a loop is not parallel."""
        return self.iterators.count(PARALLEL) < len(self.iterators)

    @property
    def loops(self) -> int:
        return len(self.iterators)

    def out_map(self, result: int) -> AffineMap:
        return self.maps[len(self.ins) + result]

    def reads_out(self, result: int) -> bool:
        """Whether the payload reads the initial value of an out."""
        return len(self.ins) + result in self.payload.reads

    @property
    def name(self) -> str:
        """The label, else the first result's name."""
        return self.label or (self.results[0].name if self.results else "generic")

    def axes(self) -> Iterator[tuple[int, Value, int, Expr, bool]]:
        """Yield every axis of every operand.

        A tuple: operand, its value, axis, map result, whether its stride is decided at run time.
        """
        operands = zip(self.operands, self.maps, self.maybe_broadcast_axes, strict=True)
        for position, (value, map_, maybe_broadcast) in enumerate(operands):
            for axis, result in enumerate(map_.results):
                yield position, value, axis, result, axis in maybe_broadcast

    def extents(self) -> list[Size]:
        """The size of each loop, a number where an axis has one.

        Elsewhere it is a name, or None.
        """
        results: list[Size] = [None] * self.loops
        fixed: set[int] = set()
        for _, value, axis, result, maybe_broadcast in self.axes():
            if not isinstance(result, Dim) or value.shape is None:
                continue
            size, dim = value.shape[axis], result.index
            if maybe_broadcast:  # 1 is not the loop's size, and another size is not sure
                if dim not in fixed and isinstance(size, int) and size != 1:
                    results[dim] = size
            elif dim not in fixed or (isinstance(size, int) and not isinstance(results[dim], int)):
                results[dim] = results[dim] if size is None and dim in fixed else size
                fixed.add(dim)
        return results


@dataclass(frozen=True, eq=False)
class Opaque:
    """An operation that is no Generic and bounds fusion.

    It is ``tensor.empty``, ``linalg.fill``, or anything else.

    Attributes:
        name: the operation's name.
        operands: the values that it reads.
        results: the values that it makes.
        attribute: the axis of ``tensor.dim`` and ``tensor.concat``, the offsets of
            ``tensor.extract_slice``; the text of an operation that is only carried through; of a
            scalar operation outside of a payload the predicate and flags.
        label: its name in messages.
        origins: the nodes that this computes.
        part: an operation with regions is several in a row: ``open`` reads its operands and makes
            the arguments of the first region, whose operations follow; ``next`` those of the next
            region; ``close`` makes its results.
    """

    name: str
    operands: tuple[Value, ...]
    results: tuple[Value, ...]
    attribute: int | str | Template | ScalarOp = ""
    label: str = ""
    origins: tuple[Any, ...] = ()
    part: Literal_["", "open", "next", "close"] = ""

    @property
    def axis(self) -> int:
        """The axis of ``tensor.dim`` and ``tensor.concat``."""
        assert isinstance(self.attribute, int)
        return self.attribute

    @cached_property
    def scalars(self) -> tuple[Value, ...]:
        """Sizes and fills of its operands."""
        return scalars_of(self.operands)


Op: TypeAlias = Generic | Opaque


class GenericError(ValueError):
    """An invalid Generic; the message names it and the fault."""


def verify(op: Generic) -> None:
    """Check a Generic.

    Raises:
        GenericError: maps, loops, ranks, sizes or payload do not fit each other.
    """
    problem = next(_problems(op), None)
    if problem is not None:
        raise GenericError(f"{op.name}: {problem}")


def _problems(op: Generic) -> Iterator[str]:
    operands, loops = op.operands, op.loops
    if len(op.maps) != len(operands):
        yield f"{len(op.maps)} indexing maps for {len(operands)} operands"
        return
    if len(op.results) != len(op.outs) or len(op.payload.yields) != len(op.outs):
        yield (
            f"{len(op.outs)} outs, {len(op.results)} results "
            f"and {len(op.payload.yields)} yielded values"
        )
    if any(iterator not in {PARALLEL, REDUCTION, "window"} for iterator in op.iterators):
        yield f"iterator types are parallel or reduction, got {', '.join(op.iterators)}"
    for value, map_ in zip(operands, op.maps, strict=True):
        if map_.dims != loops:
            yield f"{map_} has {map_.dims} dims, the Generic {loops} loops"
            return
        if value.rank is not None and len(map_.results) != value.rank:
            yield f"{map_} has {len(map_.results)} results, operand {value!r} has rank {value.rank}"
            return
    for out, result in zip(op.outs, op.results, strict=True):
        if out.type_text != result.type_text:
            yield f"result {result!r} is not of the type of its out, {out.type_text}"
    yield from _uncovered(op)
    yield from _wrong_sizes(op)
    yield from _wrong_payload(op)


def _uncovered(op: Generic) -> Iterator[str]:
    missing = set(range(op.loops)).difference(*[map_.loops for map_ in op.maps])
    if missing:
        yield f"loop d{min(missing)} is no bare result of an indexing map: its size is unknown"


def _wrong_sizes(op: Generic) -> Iterator[str]:
    extents: dict[int, int] = {}
    for _, value, axis, result, maybe_broadcast in op.axes():
        size = None if value.shape is None else value.shape[axis]
        if not isinstance(result, Dim) or not isinstance(size, int) or maybe_broadcast:
            continue
        if extents.setdefault(result.index, size) != size:
            yield f"loop {result} has size {extents[result.index]} and, by {value!r}, {size}"
            return
    for _, value, axis, result, _ in op.axes():
        size = None if value.shape is None else value.shape[axis]
        loops = sorted(dims_of(result))
        if (
            isinstance(result, Dim)
            or not isinstance(size, int)
            or not all(dim in extents for dim in loops)
        ):
            continue
        if any(extents[dim] == 0 for dim in loops):
            continue  # nothing is read
        corners = product(*[(0, extents[dim] - 1) for dim in loops])
        for corner in corners:
            point = [0] * op.loops
            for dim, at in zip(loops, corner, strict=True):
                point[dim] = at
            if not 0 <= evaluate(result, point) < size:
                index = evaluate(result, point)
                yield f"{result} reaches index {index} of axis {axis} of {value!r}"
                return


def _wrong_payload(op: Generic) -> Iterator[str]:
    for position, item in enumerate(op.payload.ops):
        reads = f"operation {position} of the payload reads"
        if item.name == INDEX:
            if not isinstance(item.attribute, Dim | Const | Binary):
                yield "linalg.index names no loop"
            elif any(not 0 <= dim < op.loops for dim in dims_of(item.attribute)):
                yield f"index {item.attribute} is no loop: there are {op.loops}"
        for ref in item.operands:
            if isinstance(ref, Res) and not 0 <= ref.index < position:
                yield f"{reads} result {ref.index}, which is not computed yet"
            if isinstance(ref, Arg) and not 0 <= ref.index < len(op.operands):
                yield f"{reads} argument {ref.index} of {len(op.operands)}"
    for place, (ref, out) in enumerate(zip(op.payload.yields, op.outs, strict=False)):
        if isinstance(ref, Res) and not 0 <= ref.index < len(op.payload.ops):
            yield f"yield {place} is result {ref.index} of {len(op.payload.ops)}"
        elif isinstance(ref, Arg) and not 0 <= ref.index < len(op.operands):
            yield f"yield {place} is argument {ref.index} of {len(op.operands)}"
        elif dtype_of(op, ref) != out.dtype:
            yield f"yield {place} is {dtype_of(op, ref)}, its out {out.dtype}"


def dtype_of(op: Generic, ref: Ref) -> str:
    """The element type of an operand of a scalar operation."""
    if isinstance(ref, Arg):
        return op.operands[ref.index].dtype
    return op.payload.ops[ref.index].dtype if isinstance(ref, Res) else ref.dtype
