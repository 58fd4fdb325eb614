"""What lowerings read and write: a node of ONNX, names of sizes, payloads."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, cast

import numpy as np

from gehost import DataType, Refused
from gehost_linalg.affine import AffineMap, Const, Dim, Expr
from gehost_linalg.generic import (
    PARALLEL,
    REDUCTION,
    Arg,
    Generic,
    Literal,
    Op,
    Opaque,
    Payload,
    Ref,
    Res,
    ScalarOp,
    Size,
    Value,
    is_known,
)
from gehost_linalg.interpret import Broadcast, Part, Rule, Split

MLIR_DTYPES: Mapping[DataType, str] = {
    DataType.FLOAT: "f32",
    DataType.DOUBLE: "f64",
    DataType.FLOAT16: "f16",
    DataType.BFLOAT16: "bf16",
    DataType.INT8: "i8",
    DataType.INT16: "i16",
    DataType.INT32: "i32",
    DataType.INT64: "i64",
    DataType.BOOL: "i1",
}
"""Element types that have a signless MLIR type; the unsigned ones have none."""

FLOAT_DTYPES = frozenset({"f16", "bf16", "f32", "f64"})


class Scalars:
    """Builds a payload, operation by operation."""

    def __init__(self) -> None:
        self.ops: list[ScalarOp] = []

    def add(
        self, name: str, *operands: Ref, dtype: str, attribute: str | Expr | None = None
    ) -> Ref:
        self.ops.append(ScalarOp(name, operands, dtype, attribute))
        return Res(len(self.ops) - 1)

    def index(self, loop: int) -> Ref:
        """The value of a loop as i64."""
        return self.add(
            "arith.index_cast",
            self.add("linalg.index", dtype="index", attribute=Dim(loop)),
            dtype="i64",
        )

    def payload(self, *yields: Ref) -> Payload:
        return Payload(tuple(self.ops), yields)


class Names:
    """Names that are used once, of values and of unknown sizes."""

    def __init__(self) -> None:
        self._count = 0
        self._extents: dict[Size, Value] = {}
        self.rules: dict[str, Rule] = {}
        """Sizes that are computed from others, by name."""

    def extent(self, size: Size) -> Literal | Value:
        """The size of an axis as a scalar, constant if known."""
        if isinstance(size, int) or (size is not None and size.isdecimal()):
            return Literal(int(size), "index")
        if size not in self._extents:
            self._extents[size] = Value(str(size), "index", kind="extent")
        return self._extents[size]

    def part(self, whole: Size, start: int, end: int, step: int) -> str:
        """A name for the size of a slice."""
        name = self.size()
        self.rules[name] = Part(whole, start, end, step)
        return name

    def split(self, whole: Size, of: int, number: int | None) -> str:
        """A name for the number of parts of size ``of``, which a kernel checks."""
        name = self.size()
        self.rules[name] = Split(whole, of, number)
        return name

    def broadcast(self, sizes: Sequence[Size]) -> str:
        """A name for the size that several sizes broadcast to."""
        name = self.size()
        self.rules[name] = Broadcast(tuple(sizes))
        return name

    def size(self) -> str:
        """A name for one unknown size, which is equal to no other."""
        self._count += 1
        return f"?{self._count}"


@dataclass
class OnnxOp:
    """One ONNX node to be lowered.

    Attributes:
        op: the operator's name.
        version: the opset of its domain.
        inputs: None where one is absent.
        outputs: None where one is absent; lowering fills in shapes and element types.
        attributes: decoded.
        constants: the elements of inputs that decide about maps (axes, starts, shapes, …), by
            position.
        origin: the node that the Generics are labelled with.
        names: for sizes.
    """

    op: str
    version: int
    inputs: Sequence[Value | None]
    outputs: Sequence[Value | None]
    attributes: Mapping[str, Any]
    constants: Mapping[int, np.ndarray[Any, Any]]
    origin: Any
    names: Names
    made: list[Op] = field(default_factory=list[Op])

    @property
    def label(self) -> str:
        first = next((value.name for value in self.outputs if value is not None), "")
        return f"{self.op} {first}".strip()

    def input(self, index: int) -> Value:
        """The value at input ``index``.

        ``Refused`` if it is absent or of unknown rank.
        """
        value = self.inputs[index] if index < len(self.inputs) else None
        if value is None:
            raise Refused("not-lowered", f"{self.op} without input {index}")
        if value.shape is None:
            raise Refused("operand-unranked", value.name)
        return value

    def optional(self, index: int) -> Value | None:
        if index >= len(self.inputs) or self.inputs[index] is None:
            return None
        return self.input(index)

    def shape(self, index: int = 0) -> tuple[Size, ...]:
        shape = self.input(index).shape
        assert shape is not None
        return shape

    def single_output(self) -> Value:
        """The only output that is present; ``Refused`` if there are others."""
        results = [value for value in self.outputs if value is not None]
        if len(results) != 1 or results[0] is not self.outputs[0]:
            raise Refused("not-lowered", f"{self.op} with {len(results)} outputs")
        return results[0]

    def parameter(self, index: int, attribute: str) -> list[int] | None:
        """Numbers that are an input or, in older opsets, an attribute.

        Raises:
            Refused: the input is not a constant.
        """
        if attribute in self.attributes:
            argument = self.attributes[attribute]
            items = (
                cast("list[Any]", argument) if isinstance(argument, list | tuple) else [argument]
            )
            return [int(item) for item in items]
        if index >= len(self.inputs) or self.inputs[index] is None:
            return None
        if index not in self.constants:
            raise Refused("not-lowered", f"{self.op} with {attribute} that are computed")
        return [int(item) for item in self.constants[index].reshape(-1)]

    def axes(self, arguments: Sequence[int], rank: int) -> list[int]:
        """Count axes from the front.

        ``Refused`` if one is out of range or occurs twice.
        """
        results = [axis + rank if axis < 0 else axis for axis in arguments]
        if any(not 0 <= axis < rank for axis in results) or len(set(results)) < len(results):
            raise Refused("not-lowered", f"{self.op} with axes {list(arguments)} of rank {rank}")
        return results

    def assign_type(self, value: Value, shape: Sequence[Size], dtype: str | None = None) -> Value:
        """Assign shape and dtype of an output.

        Where the loops do not know a size, the model's is taken, else a new name.
        """
        declared = (
            value.shape
            if value.shape is not None and len(value.shape) == len(shape)
            else (None,) * len(shape)
        )
        value.shape = tuple(
            [
                other
                if other is not None and (item is None or (is_known(other) and not is_known(item)))
                else item or self.names.size()
                for item, other in zip(shape, declared, strict=True)
            ]
        )
        if dtype is not None:
            value.dtype = dtype
        return value

    def temporary(self, name: str, dtype: str, shape: Sequence[Size]) -> Value:
        """A value between two Generics of this node."""
        out = self.outputs[0]
        return Value(f"{out.name if out is not None else self.op}_{name}", dtype, shape)

    def generic(
        self,
        ins: Sequence[tuple[Value, Sequence[Expr]]],
        out: Value,
        out_map: Sequence[Expr],
        loops: int,
        payload: Payload,
        *,
        reduced: Sequence[int] = (),
        init: Literal | None = None,
        maybe_broadcast: Mapping[int, frozenset[int]] | None = None,
    ) -> Value:
        """Add a Generic with one result."""
        kind = "empty" if init is None else "fill"
        provided = Value(f"{out.name}_init", out.dtype, out.shape, kind=kind, fill=init)
        maps = tuple([_map(loops, tuple(item)) for item in (*[item for _, item in ins], out_map)])
        axes = (
            tuple([maybe_broadcast.get(index, frozenset()) for index in range(len(maps))])
            if maybe_broadcast
            else ()
        )
        kinds = tuple([REDUCTION if loop in reduced else PARALLEL for loop in range(loops)])
        values = tuple([value for value, _ in ins])
        self.made.append(
            Generic(
                values,
                (provided,),
                maps,
                kinds,
                payload,
                (out,),
                axes,
                (self.origin,),
                self.label,
            )
        )
        return out

    def same_loops(self, ins: Sequence[Value], out: Value, payload: Payload) -> Value:
        """Add a Generic with one loop per axis of the broadcast shape."""
        shapes = tuple([value.shape or () for value in ins])
        shape, maps, maybe_broadcast = broadcast(shapes)
        if maybe_broadcast and out.shape is not None and len(out.shape) == len(shape):
            shape, maybe_broadcast = _refined(shape, maybe_broadcast, shapes, out.shape)
        if None in shape:
            shape = tuple(
                [
                    self._size_at(shapes, loop - len(shape)) if item is None else item
                    for loop, item in enumerate(shape)
                ]
            )
        self.assign_type(out, shape)
        items = list(zip(ins, maps, strict=True))
        identity = AffineMap.identity(len(shape)).results
        return self.generic(
            items, out, identity, len(shape), payload, maybe_broadcast=maybe_broadcast
        )

    def _size_at(self, shapes: Sequence[Sequence[Size]], axis: int) -> str:
        at = dict.fromkeys([shape[axis] for shape in shapes if len(shape) >= -axis])
        return self.names.broadcast([size for size in at if size != 1])


@lru_cache(maxsize=1 << 12)
def _map(loops: int, results: tuple[Expr, ...]) -> AffineMap:
    return AffineMap(loops, results)


@lru_cache(maxsize=1 << 12)
def broadcast(
    shapes: tuple[tuple[Size, ...], ...],
) -> tuple[tuple[Size, ...], tuple[tuple[Expr, ...], ...], dict[int, frozenset[int]]]:
    """The loops of an n-ary operator.

    Returns:
        The size of each loop, each operand's map, and the operands' axes whose stride is decided at
            run time.
    """
    rank = max((len(shape) for shape in shapes), default=0)
    sizes: list[Size] = []
    maps: list[list[Expr]] = [[] for _ in shapes]
    maybe_broadcast: dict[int, set[int]] = {}
    for loop in range(rank):
        at = [
            (place, shape[loop - rank])
            for place, shape in enumerate(shapes)
            if loop >= rank - len(shape)
        ]
        more = [size for _, size in at if size != 1]
        entry = next(filter(is_known, more), None)
        agreed = len(set(more)) == 1 and more[0] is not None
        sure = (
            1
            if not more
            else entry
            if entry is not None
            else more[0]
            if agreed or len(more) == 1
            else None
        )
        sizes.append(sure)
        for place, size in at:
            axis = len(maps[place])
            maps[place].append(Const(0) if size == 1 and more else Dim(loop))
            if len(more) > 1 and size not in {1, sure}:
                maybe_broadcast.setdefault(place, set()).add(axis)
    return (
        tuple(sizes),
        tuple(map(tuple, maps)),
        {place: frozenset(axes) for place, axes in maybe_broadcast.items()},
    )


def _refined(
    sizes: Sequence[Size],
    maybe_broadcast: Mapping[int, frozenset[int]],
    shapes: Sequence[Sequence[Size]],
    declared: Sequence[Size],
) -> tuple[tuple[Size, ...], dict[int, frozenset[int]]]:
    """Merge sizes; axes of the stated size do not broadcast."""
    merged = tuple(
        [size if size is not None else other for size, other in zip(sizes, declared, strict=True)]
    )
    rank = len(sizes)
    remaining: dict[int, frozenset[int]] = {}
    for place, axes in maybe_broadcast.items():
        shape = shapes[place]
        rest = frozenset(
            axis
            for axis in axes
            if shape[axis] != merged[rank - len(shape) + axis] or shape[axis] is None
        )
        if rest:
            remaining[place] = rest
    return merged, remaining


Lowering = Callable[[OnnxOp], None]


def args(count: int) -> tuple[Ref, ...]:
    return tuple(Arg(index) for index in range(count))


__all__ = [
    "FLOAT_DTYPES",
    "MLIR_DTYPES",
    "Lowering",
    "Names",
    "OnnxOp",
    "Opaque",
    "Scalars",
    "args",
    "broadcast",
]
