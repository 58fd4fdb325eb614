"""The vocabulary of the translations.

Operators on tensors that have HLO's shapes and types.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

import numpy as np

from gehost import Refused
from gehost_hlo.emit import Body, Tensor, Value
from gehost_hlo.kernels import carrier
from gehost_hlo.literals import NUMPY, ONNX, Array
from gehost_hlo.module import HloComputation, HloInstruction, HloModule, Shape

Translator: TypeAlias = Callable[["Context", HloInstruction, "list[Value]"], Value]


@dataclass(frozen=True)
class Settings:
    """Options of an import.

    Attributes:
        fusions: ``functions`` or ``inline``.
        constants: values of elided constants by instruction; None without them.
        random_constants: draw elided constants.
        assume_reductions: take a missing ``to_apply`` from ``op_type``.
        unroll: loops of at most so many iterations, as far as the text tells, are unrolled.
    """

    fusions: str = "functions"
    constants: Mapping[str, Array] | None = None
    random_constants: bool = False
    assume_reductions: bool = False
    unroll: int = 0


@dataclass(eq=False)
class Context:
    """One computation that is being translated into a body.

    Attributes:
        scope: prefix of names that are taken; "" in the entry.
        batch: dims that scalars stand for, where the body of a reduction runs on whole tensors;
            None elsewhere.
        call: translates another computation into the same body.
        function: makes the model-local function of a fusion's computation, which has its name.
        find: returns a computation by name.
        instruction: translates one instruction on its operands.
        call_on_all: translates a computation for the operands of several devices.
        devices: how many devices the computation is translated for; 0 outside of a shard_map.
    """

    module: HloModule
    settings: Settings
    body: Body
    computation: HloComputation
    scope: str
    call: Callable[[Context, HloComputation, Sequence[Value], str, tuple[int, ...] | None], Value]
    function: Callable[[Context, HloComputation, Sequence[Value]], None]
    find: Callable[[str], HloComputation]
    instruction: Callable[[Context, HloInstruction, list[Value]], Value]
    call_on_all: Callable[[Context, HloComputation, list[list[Value]], str], list[Value]]
    batch: tuple[int, ...] | None = None
    active: tuple[str, ...] = ()
    """Computations that are being translated, outermost first."""
    defined: Mapping[str, HloInstruction] = field(default_factory=dict[str, HloInstruction])
    """The instructions of the computation by name."""
    devices: int = 0
    shards: dict[str, list[Value]] = field(default_factory=dict[str, "list[Value]"])
    """The values of instructions on each device, where they differ."""

    def nested(self, scope: str) -> Context:
        """Return a context for a body of Loop or If.

        The body may read all tensors of this one.
        """
        return replace(self, body=Body(self.body.names), scope=scope)

    # Shapes and constants

    def dims(self, instruction: HloInstruction) -> tuple[int, ...]:
        """Dims of an array that an instruction makes."""
        shape = array_shape(instruction.shape)
        if self.batch is None:
            return shape.dimensions
        if shape.dimensions:
            raise Refused(
                "unsupported",
                "it makes an array inside a computation that is applied to single elements",
            )
        return self.batch

    def number(self, value: Any, kind: str, dims: tuple[int, ...] = ()) -> Tensor:
        """Return a constant that holds one number throughout."""
        return Tensor("", kind, dims, (), np.array(value, NUMPY[kind]))

    def array(self, array: Array, kind: str) -> Tensor:
        return Tensor("", kind, array.shape, array.shape, array.astype(NUMPY[kind]))

    # Operators that broadcast

    def apply(
        self, op: str, args: Sequence[Tensor], kind: str | None = None, **attributes: Any
    ) -> Tensor:
        """Add an elementwise operator; all operands have one shape, apart from scalars.

        Args:
            op: of ONNX.
            args: of one element type; it is cast to one that has a kernel, and the result back.
            kind: element type of the result, where it is not that of the operands.
        """
        dims = max((arg.dims for arg in args), key=len)
        if any(arg.dims not in {dims, ()} for arg in args):
            raise Refused(
                "invalid",
                "its operands have different shapes: "
                f"{', '.join(str(list(arg.dims)) for arg in args)}",
            )
        own = args[0].type
        if any(arg.type != own for arg in args):
            raise Refused(
                "invalid",
                f"its operands have different types: {', '.join(arg.type for arg in args)}",
            )
        if op in {"Max", "Min"} and own == "s64":
            return self.where(
                self.apply("Less" if op == "Max" else "Greater", args, "pred"), args[1], args[0]
            )
        run = self.carrier(op, own)
        names = [self.body.held(self.cast(arg, run)) for arg in args]
        stored = np.broadcast_shapes(*[arg.stored for arg in args])
        (name,) = self.body.op(op, names, **attributes)
        if kind is not None:
            return self.body.typed(name, kind, dims, stored)
        return self.cast(self.body.typed(name, run, dims, stored), own)

    def carrier(self, op: str, kind: str) -> str:
        type_ = carrier(op, kind)
        if type_ is None:
            raise Refused("unsupported", f"ONNX Runtime has no {op} for {kind}")
        return type_

    def cast(self, tensor: Tensor, kind: str) -> Tensor:
        """Convert as ONNX's Cast does.

        HLO's convert differs where a float is too large for an integer.
        """
        if tensor.type == kind:
            return tensor
        if tensor.constant is not None:
            return Tensor("", kind, tensor.dims, tensor.stored, tensor.constant.astype(NUMPY[kind]))
        options: dict[str, Any] = {"saturate": 0} if kind.startswith("f8") else {}  # nan or inf
        (name,) = self.body.op("Cast", [self.body.held(tensor)], to=ONNX[kind], **options)
        return self.body.typed(name, kind, tensor.dims, tensor.stored)

    def where(self, condition: Tensor, yes: Tensor, no: Tensor) -> Tensor:
        """Choose elementwise; the condition is pred."""
        if yes.type == "pred":  # ONNX Runtime has no Where of bool
            if yes.number is not None and no.number is not None and condition.dims == yes.dims:
                if yes.number == no.number:
                    return yes
                return condition if yes.number else self.apply("Not", [condition])
            chosen = self.apply("And", [condition, yes])
            return self.apply(
                "Or", [chosen, self.apply("And", [self.apply("Not", [condition]), no])]
            )
        dims = max((tensor.dims for tensor in (condition, yes, no)), key=len)
        run = self.carrier("Where", yes.type)
        names = [
            self.body.held(condition),
            self.body.held(self.cast(yes, run)),
            self.body.held(self.cast(no, run)),
        ]
        stored = np.broadcast_shapes(condition.stored, yes.stored, no.stored)
        (name,) = self.body.op("Where", names)
        return self.cast(self.body.typed(name, run, dims, stored), yes.type)

    # Operators that move elements

    def move(
        self, op: str, tensor: Tensor, others: Sequence[str], dims: Sequence[int], **attributes: Any
    ) -> Tensor:
        """Add an operator that moves elements of a tensor."""
        run = self.carrier(op, tensor.type)
        source = self.cast(tensor, run)
        moved = self.body.tensor(op, [self.body.full(source), *others], run, dims, **attributes)
        return self.cast(moved, tensor.type)

    def reshape(self, tensor: Tensor, dims: Sequence[int]) -> Tensor:
        """Reshape; of a chain one Reshape is left.

        A tensor of one number stays one.
        """
        shape = tuple(dims)
        if tensor.dims == shape:
            return tensor
        lazy = tensor.stored != tensor.dims
        if tensor.constant is not None:
            if tensor.constant.size == 1:
                return Tensor("", tensor.type, shape, (), tensor.constant.reshape(()), tensor.hint)
            if not lazy or tensor.size <= _LARGE:
                whole = np.broadcast_to(tensor.constant, tensor.dims).reshape(shape)
                return Tensor("", tensor.type, shape, shape, whole)
        if lazy and [size for size in tensor.dims if size != 1] == [
            size for size in shape if size != 1
        ]:
            return self._unit_dims(tensor, shape)
        if lazy and math.prod(tensor.stored) == 1:
            scalar = self._reshaped(self.body.held(tensor), tensor.type, tensor.stored, ())
            return Tensor(scalar, tensor.type, shape, ())
        return Tensor(
            self._reshaped(self.body.full(tensor), tensor.type, tensor.dims, shape),
            tensor.type,
            shape,
            shape,
        )

    def _unit_dims(self, tensor: Tensor, shape: tuple[int, ...]) -> Tensor:
        """Add or remove dimensions of size 1.

        The tensor's readers broadcast it.
        """
        stored = (1,) * (tensor.rank - len(tensor.stored)) + tensor.stored
        sizes = iter([size for axis, size in enumerate(stored) if tensor.dims[axis] != 1])
        aligned = [1 if size == 1 else next(sizes) for size in shape]
        trimmed = _trimmed(aligned)
        name = self._reshaped(self.body.held(tensor), tensor.type, tensor.stored, trimmed)
        return Tensor(name, tensor.type, shape, trimmed)

    def _reshaped(self, name: str, kind: str, dims: tuple[int, ...], shape: tuple[int, ...]) -> str:
        """Reshape an ONNX tensor of ``dims``.

        Starts from the first tensor of a chain of reshapes.
        """
        if dims == shape:
            return name
        root, root_dims = self.body.roots.get(self.body.names.resolve(name), (name, dims))
        if root_dims == shape:
            return root
        allowzero = 1 if 0 in shape else None
        run = self.carrier("Reshape", kind)
        source = self.body.held(self.cast(Tensor(root, kind, root_dims, root_dims), run))
        moved = self.body.tensor(
            "Reshape", [source, self.body.ints(shape)], run, shape, allowzero=allowzero
        )
        result = self.cast(moved, kind)
        self.body.roots[result.name] = (root, root_dims)
        return result.name

    def transpose(self, tensor: Tensor, permutation: Sequence[int]) -> Tensor:
        if list(permutation) == list(range(tensor.rank)):
            return tensor
        dims = [tensor.dims[axis] for axis in permutation]
        if math.prod(tensor.stored) == 1:
            return (
                self.reshape(tensor, dims)
                if tensor.stored == ()
                else self.reshape(self.reshape(tensor, ()), dims)
            )
        return self.move("Transpose", tensor, [], dims, perm=list(permutation))

    def slice(self, tensor: Tensor, rows: Sequence[tuple[int, int, int]]) -> Tensor:
        """Slice by (start, limit, stride) in each dimension."""
        axes = [axis for axis, row in enumerate(rows) if row != (0, tensor.dims[axis], 1)]
        if not axes:
            return tensor
        dims = [max(0, -(-(limit - start) // stride)) for start, limit, stride in rows]
        ints = self.body.ints
        others = [
            ints(rows[axis][0] for axis in axes),
            ints(rows[axis][1] for axis in axes),
            ints(axes),
        ]
        others.append(ints(rows[axis][2] for axis in axes))
        return self.move("Slice", tensor, others, dims)

    def reverse(self, tensor: Tensor, axes: Sequence[int]) -> Tensor:
        if not axes:
            return tensor
        ints = self.body.ints
        lowest = [-(2**63) + 1] * len(axes)
        others = [ints([-1] * len(axes)), ints(lowest), ints(axes), ints([-1] * len(axes))]
        return self.move("Slice", tensor, others, tensor.dims)

    def concat(self, tensors: Sequence[Tensor], axis: int) -> Tensor:
        if len(tensors) == 1:
            return tensors[0]
        kind = tensors[0].type
        run = self.carrier("Concat", kind)
        names = [self.body.full(self.cast(tensor, run)) for tensor in tensors]
        dims = list(tensors[0].dims)
        dims[axis] = sum(tensor.dims[axis] for tensor in tensors)
        return self.cast(self.body.tensor("Concat", names, run, dims, axis=axis), kind)

    def pad(self, tensor: Tensor, value: Tensor, rows: Sequence[tuple[int, int, int]]) -> Tensor:
        """Pad by (low, high, interior) in each dimension.

        A negative low or high removes elements.
        """
        if any(interior and tensor.dims[axis] > 1 for axis, (_, _, interior) in enumerate(rows)):
            split = [size for size in tensor.dims for size in (size, 1)]
            widths = [
                (0, 0, 0) if even else (0, rows[axis][2], 0)
                for axis in range(tensor.rank)
                for even in (True, False)
            ]
            wide = self.pad(self.reshape(tensor, split), value, widths)
            whole = self.reshape(
                wide,
                [
                    size * (interior + 1)
                    for size, (_, _, interior) in zip(tensor.dims, rows, strict=True)
                ],
            )
            limits = [
                (size - 1) * (row[2] + 1) + 1 if size else 0
                for size, row in zip(tensor.dims, rows, strict=True)
            ]
            tensor = self.slice(whole, [(0, limit, 1) for limit in limits])
        low, high = [max(0, row[0]) for row in rows], [max(0, row[1]) for row in rows]
        dims = [size + a + b for size, a, b in zip(tensor.dims, low, high, strict=True)]
        if any(low) or any(high):
            run = self.carrier("Pad", tensor.type)
            filler = self.body.full(self.cast(value, run))
            source = self.body.full(self.cast(tensor, run))
            padded = self.body.tensor(
                "Pad", [source, self.body.ints([*low, *high]), filler], run, dims
            )
            tensor = self.cast(padded, tensor.type)
        inner = [
            (max(0, -row[0]), size - max(0, -row[1]), 1)
            for size, row in zip(dims, rows, strict=True)
        ]
        return self.slice(tensor, inner)

    def broadcast(self, tensor: Tensor, dims: Sequence[int], axes: Sequence[int]) -> Tensor:
        """Broadcast: dimension i of ``tensor`` becomes dimension ``axes[i]``; nothing is copied
        where readers broadcast.
        """
        shape = tuple(dims)
        if tensor.stored == ():
            return Tensor(tensor.name, tensor.type, shape, (), tensor.constant, tensor.hint)
        order = sorted(range(len(axes)), key=lambda index: axes[index])
        tensor = self.transpose(tensor, order)
        places = [axes[index] for index in order]
        stored = (1,) * (tensor.rank - len(tensor.stored)) + tensor.stored
        aligned = [1] * len(shape)
        for index, axis in enumerate(places):
            aligned[axis] = stored[index]
        trimmed = _trimmed(aligned)
        if tensor.constant is not None:
            return Tensor("", tensor.type, shape, trimmed, tensor.constant.reshape(trimmed))
        if trimmed == tensor.stored:
            return Tensor(tensor.name, tensor.type, shape, trimmed)
        return Tensor(
            self._reshaped(tensor.name, tensor.type, tensor.stored, trimmed),
            tensor.type,
            shape,
            trimmed,
        )

    def expanded(self, tensor: Tensor) -> Tensor:
        """Return the same tensor with an ONNX tensor of its dims."""
        if tensor.stored == tensor.dims and tensor.constant is None:
            return tensor
        return Tensor(self.body.full(tensor), tensor.type, tensor.dims, tensor.dims)

    def iota(self, dims: Sequence[int], axis: int, kind: str) -> Tensor:
        """Return the index along an axis."""
        return self.broadcast(self.line(dims[axis], kind), dims, [axis])

    def line(self, size: int, kind: str, stride: int = 1) -> Tensor:
        """Return the vector 0, stride, 2·stride, … of ``size`` numbers.

        The model computes a long one.
        """
        if size <= _LARGE:
            return self.array(np.arange(size, dtype=np.int64) * stride, kind)
        steps = [self.body.scalar(number, "s64") for number in (0, size * stride, stride)]
        return self.cast(self.body.tensor("Range", steps, "s64", [size]), kind)


_LARGE = 65536
"""Elements of a constant that is made for an iota or a broadcast, at most."""
_LARGEST = 2**40
"""Elements of an array, at most."""


def array_shape(shape: Shape | None) -> Shape:
    """Return the shape of an array that ONNX can hold.

    Raises:
        Refused: it has none, is a tuple, is dynamic, or has a type that ONNX does not have.
    """
    if shape is None:
        raise Refused("missing", "its shape is not written")
    if shape.elements is not None:
        raise Refused("invalid", f"it is a {shape.type}, expected an array")
    if shape.type not in ONNX:
        raise Refused("unsupported", f"{shape.type} has no ONNX type")
    if shape.size > _LARGEST:
        raise Refused("unsupported", f"{shape} has more than 2^40 elements")
    if shape.dynamic or -1 in shape.dimensions:
        raise Refused("unsupported", f"{shape} has a dynamic dimension")
    return shape


def _trimmed(aligned: Sequence[int]) -> tuple[int, ...]:
    """Leave out leading dimensions of size 1, which broadcasting adds."""
    first = next((axis for axis, size in enumerate(aligned) if size != 1), len(aligned))
    return tuple(aligned[first:])
