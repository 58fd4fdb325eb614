"""Fold constants: compute results that depend on constants only.

1. A node with a kernel (``movement``, ``arithmetic``) and constant inputs.
2. ``Shape(x)`` and ``Size(x)`` if the needed dimensions are known, for any x;
   ``Gather(Shape(x), i)`` likewise.
3. ``CastLike(c, x)`` with a constant c if the element type of x is known.
Keeps: the name of each result, which becomes an initializer (below IR version 4, and where it is a
graph output or a body of another operator reads it, a ``Constant``).
Refused: results that a kernel declines, or that contradict the model's types; a second copy of an
embedding that a Gather reads (tied weights, above 4 KiB); growth. A result
grows the model by its bytes less those of constants without other users. All growth together is at
most ``growth_limit``; results that grow it by more than 4 KiB wait until everything else is done.
Nothing is computed before it is known to fit. At most 64 MiB of external data are read, as results
are stored in the model file.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

import numpy as np
import onnx

from gehost.errors import ModelError
from gehost.infer.findings import contradicts
from gehost.ir import tensors
from gehost.ir.constants import Array, bytes_for, bytes_of, elements, external_bytes, stored_bytes
from gehost.ir.graph import Graph, Node, Value
from gehost.ir.types import DataType, Dim, TensorType
from gehost.passes.cleanup.arithmetic import ARITHMETIC, convert
from gehost.passes.cleanup.call import Call, DeclinedError, TooLargeError
from gehost.passes.cleanup.dead import reap
from gehost.passes.cleanup.movement import MOVEMENT, Kernel
from gehost.passes.cleanup.state import ContradictionError, State, join

EAGER_LIMIT = 4096
EXTERNAL_LIMIT = 64 << 20

_READ_DIMENSIONS = frozenset({"Gather", "Shape", "Size"})
_KERNELS: Mapping[str, tuple[int, Kernel]] = MappingProxyType({**MOVEMENT, **ARITHMETIC})


class Folded(NamedTuple):
    """A constant that replaced a result, and the model's growth in bytes."""

    value: Value
    growth: int


class Folder:
    """Folds nodes within one budget for growth."""

    def __init__(self, state: State, growth_limit: int, grown: int = 0) -> None:
        self._state = state
        self._version = state.model.opset() or 0
        self._growth_limit = growth_limit
        self._growth_left = max(0, growth_limit - grown)
        self._external_left = EXTERNAL_LIMIT
        self._waiting: dict[Node, None] = {}
        """Nodes whose results would grow the model by more than a little."""
        self._starved: dict[Node, None] = {}
        """Nodes that would fit the whole limit, but not the rest of it."""

    def fold(self, node: Node) -> Sequence[Folded]:
        """Replace a node by its results, returned (empty if it stays)."""
        return self._fold(node, min(EAGER_LIMIT, self._growth_left))

    def fold_waiting(self) -> Sequence[Folded] | None:
        """Fold the next node that waited for its size, None without one."""
        while self._waiting:
            node = next(iter(self._waiting))
            del self._waiting[node]
            if self._state.alive(node):
                made = self._fold(node, self._growth_left)
                if self._waiting.pop(node, self) is None:
                    self._starved[node] = None
                return made
        return None

    @property
    def is_starved(self) -> bool:
        """Whether a node stays only because earlier folding exhausted the limit."""
        return any(map(self._state.alive, self._starved))

    def _fold(self, node: Node, allowance: int) -> Sequence[Folded]:
        if not self._state.purity.is_builtin(node.op):
            return ()
        try:
            known = _from_dimensions(node, self._version)
        except (TypeError, OverflowError):
            return ()
        operands = self._operands(node) if known is None else []
        if operands is None:
            return ()
        results = [value for value in node.outputs if value is not None and value.readers]
        if any(value.name in self._state.protected for value in results):
            return ()
        if known is None and any(_is_tied(value, node) for value in operands):
            return ()
        owner = node.graph.owner
        if owner is not None and any(owner.graph.find(value.name) is not None for value in results):
            return ()  # no new value can have a name that an enclosing graph uses
        if not self._state.purity.is_well_formed(node):
            return ()
        movable = all(map(self._state.may_leave, results))
        freed = sum(
            stored_bytes(value) or 0 for value in _inputs(node) if self._goes_with(value, node)
        )
        external = sum(map(external_bytes, operands))
        if external > self._external_left:
            return ()
        room = freed + allowance
        size = sum(map(_declared_bytes, results))
        try:
            if size > room:
                raise TooLargeError
            with np.errstate(all="ignore"):
                outputs = [known] if known is not None else self._compute(node, room)
            arrays = [outputs[value.index] for value in results]
            takes = node.graph.takes_constant if movable else node.graph.takes_constant_node
            if not all(takes(array.dtype) for array in arrays):
                return ()
            size = sum(map(bytes_of, arrays))
            if size > room:
                raise TooLargeError
            for value, array in zip(results, arrays, strict=True):
                result = TensorType(DataType(tensors.elem_type(array.dtype)), array.shape)
                join(value.type, result)
                if any(contradicts(declared, result) for declared in _declared_outputs(value)):
                    raise ContradictionError
        except TooLargeError:
            if size <= freed + self._growth_limit:
                self._waiting[node] = None
            return ()
        except (
            DeclinedError,
            ContradictionError,
            ModelError,
            ValueError,
            IndexError,
            TypeError,
            ArithmeticError,
        ):
            return ()
        growth = max(0, size - freed)
        self._grow(growth)
        self._external_left -= external
        replace = self._replace if movable else self._replace_in_place
        made: list[Folded] = []
        for value, array in zip(replace(node, results, arrays), arrays, strict=True):
            made.append(Folded(value, min(growth, bytes_of(array))))
            growth -= made[-1].growth
        return made

    def give_back(self, folded: Folded) -> None:
        """Return a result's growth to the budget, since an equal constant existed."""
        self._grow(-folded.growth)

    def _grow(self, growth: int) -> None:
        self._growth_left -= growth
        self._state.counts.grown += growth

    def _operands(self, node: Node) -> list[Value] | None:
        """Return the constants that the kernel reads, None if not foldable."""
        if node.op == "CastLike":
            source, like = node.input(0), node.input(1)
            return (
                [source]
                if source is not None and source.is_constant and like is not None and like.dtype
                else None
            )
        first, _ = _KERNELS.get(node.op, (None, None))
        if first is None or first > self._version:
            return None
        for value in node.inputs:
            if value is not None and not value.is_constant:
                return None
        return _inputs(node) or None

    def _compute(self, node: Node, room: int) -> list[Array]:
        if node.op == "CastLike":
            source, like = node.inputs
            assert source is not None
            assert like is not None
            assert like.dtype is not None
            call = Call(node, self._version, [elements(source)], room)
            return [convert(call, call.array(0), like.dtype)]
        arrays = [None if value is None else elements(value) for value in node.inputs]
        if any(
            value is not None and array is None
            for value, array in zip(node.inputs, arrays, strict=True)
        ):
            raise DeclinedError
        return _KERNELS[node.op][1](Call(node, self._version, arrays, room))

    def _goes_with(self, value: Value, node: Node) -> bool:
        """Whether a constant becomes unused when the node goes."""
        if (
            not value.is_constant
            or value.is_input
            or value.name in self._state.protected
            or value.graph not in self._state.open
        ):
            return False
        return all(reader is node for reader in value.readers)

    def _replace(
        self, node: Node, results: Sequence[Value], arrays: Sequence[Array]
    ) -> list[Value]:
        graph, lost = node.graph, _inputs(node)
        moved = [(value.name, value.uses) for value in results]
        for _, readers in moved:
            _read(graph, readers, None)
        graph.remove_node(node)
        made: list[Value] = []
        for (name, readers), array in zip(moved, arrays, strict=True):
            value = graph.add_initializer(array, name)
            _read(graph, readers, value)
            self._state.touch_readers(value, stale=True)
            made.append(value)
        self._state.made.update(made)
        self._state.counts.folded += 1
        reap(self._state, lost)
        return made

    def _replace_in_place(
        self, node: Node, results: Sequence[Value], arrays: Sequence[Array]
    ) -> list[Value]:
        """Let ``Constant`` nodes compute the results, whose users cannot all read another value."""
        graph, lost = node.graph, _inputs(node)
        for value, array in zip(results, arrays, strict=True):
            tensor = tensors.from_numpy(array, value.name)
            name = self._state.model.fresh_name("cleanup_Constant")
            # first, so that users of any equal constant may read it
            graph.add_node("Constant", [], [value], {"value": tensor}, name=name)
            graph.set_type(value, TensorType(DataType(tensor.data_type), array.shape))
            self._state.touch_readers(value, stale=True)
        graph.remove_node(node)
        self._state.made.update(results)
        self._state.counts.folded += 1
        reap(self._state, lost)
        return list(results)


def _is_tied(value: Value, node: Node) -> bool:
    """Whether a large constant stays for a look-up of its rows when the node goes."""
    return (stored_bytes(value) or 0) > EAGER_LIMIT and any(
        isinstance(reader, Node)
        and reader is not node
        and reader.op.rpartition("::")[2].startswith("Gather")
        and slot == 0
        and not all(other is None or other.is_constant for other in reader.inputs)
        for reader, slot in value.uses
    )


def _declared_outputs(value: Value) -> list[onnx.TypeProto]:
    """Return the types that graphs declare for a value as their output."""
    return [
        reader.proto.output[slot].type for reader, slot in value.uses if isinstance(reader, Graph)
    ]


def _inputs(node: Node) -> list[Value]:
    """Return the input values of a node, each once."""
    return [value for value in dict.fromkeys(node.inputs) if value is not None]


def _read(graph: Graph, readers: Sequence[tuple[Node | Graph, int]], value: Value | None) -> None:
    for reader, slot in readers:
        assert isinstance(reader, Node)
        graph.set_input(reader, slot, value)


def _declared_bytes(value: Value) -> int:
    """Size of a value by its type; 0 if incomplete."""
    known = value.type
    if (
        not isinstance(known, TensorType)
        or known.size is None
        or known.dtype in (DataType.UNDEFINED, DataType.STRING)
    ):
        return 0
    return bytes_for(known.size, known.dtype.numpy)


def _from_dimensions(node: Node, version: int) -> Array | None:
    """Return the result of a node that depends only on dimensions.

    Returns None if the dimensions are unknown.
    """
    if node.op not in _READ_DIMENSIONS:
        return None
    if node.op == "Shape":
        return _vector(_dimensions(node, version))
    if node.op == "Size":
        source = node.input(0)
        size = (
            source.type.size if source is not None and isinstance(source.type, TensorType) else None
        )
        return None if size is None else np.array(size, np.int64)
    source, indices = node.input(0), node.input(1)
    if node.attrs.get("axis", 0) not in (0, -1) or source is None or indices is None:
        return None
    if source.producer is None or source.producer.op != "Shape":
        return None
    dimensions, wanted = (
        _dimensions(source.producer, version),
        elements(indices) if indices.is_constant else None,
    )
    if dimensions is None or wanted is None or wanted.dtype.kind != "i":
        return None
    positions = [int(index) for index in wanted.flat]
    if not all(-len(dimensions) <= position < len(dimensions) for position in positions):
        return None
    found = _vector([dimensions[position] for position in positions])
    if found is None or (0 in found and _vector(dimensions) is None):
        return None  # beside a constant 0, ONNX Runtime puts -1 for the size that stays computed
    return found.reshape(wanted.shape)


def _dimensions(shape: Node, version: int) -> Sequence[Dim] | None:
    """Return the dimensions that a ``Shape`` returns."""
    source = shape.input(0)
    if source is None or source.shape is None:
        return None
    return (
        source.shape
        if version < 15
        else source.shape[shape.attrs.get("start", 0) : shape.attrs.get("end")]
    )


def _vector(dimensions: Sequence[Dim] | None) -> Array | None:
    if dimensions is None or not all(isinstance(dim, int) for dim in dimensions):
        return None
    return np.array(dimensions, np.int64)
