"""Fold constants: compute results that depend on constants only.

1. A node with a kernel (``movement``, ``arithmetic``) and constant inputs.
2. ``Shape(x)`` and ``Size(x)`` if the needed dimensions are known, for any x;
   ``Gather(Shape(x), i)`` likewise.
3. ``CastLike(c, x)`` with a constant c if the element type of x is known.
4. Any other deterministic operator on constants, by ``reference``. Its floats may differ from a
   runtime's in the last bit, which no clean-up of another kind does.
Keeps: the name of each result, which becomes an initializer (below IR version 4, and where it is a
graph output or a body of another operator reads it, a ``Constant``).
Refused: results that a kernel declines, or that contradict the model's types; a second copy of an
embedding that a Gather reads (tied weights, above 4 KiB); growth. A result grows the model by its
bytes less those of the nodes and constants that go with it. One that adds more than a shape is
held: those that are computed from it may be smaller. Held results are stored at the end, the
smallest first, as far as the clean-up has freed their bytes, so that no model grows. Nothing is
computed before it is known to fit. At most 64 MiB of external data are read, as results are stored
in the model file.
"""

from __future__ import annotations

import heapq
from collections.abc import Mapping, Sequence
from types import MappingProxyType

import numpy as np
import onnx

from gehost.errors import ModelError
from gehost.infer.findings import contradicts
from gehost.ir import tensors
from gehost.ir.constants import (
    SMALL,
    Array,
    bytes_for,
    bytes_of,
    elements,
    external_bytes,
    stored_bytes,
)
from gehost.ir.graph import Graph, Node, Value
from gehost.ir.types import DataType, Dim, TensorType
from gehost.passes.cleanup import reference
from gehost.passes.cleanup.arithmetic import ARITHMETIC, convert
from gehost.passes.cleanup.call import Call, DeclinedError, TooLargeError
from gehost.passes.cleanup.dead import reap
from gehost.passes.cleanup.movement import MOVEMENT, Kernel
from gehost.passes.cleanup.state import ContradictionError, State, join

EAGER_LIMIT = 128
"""Growth in bytes of results that are stored at once: numbers and shapes."""
EXTERNAL_LIMIT = 64 << 20
HELD_LIMIT = 16 << 20
"""Bytes of results that are held in memory."""
COSTLY = "gehost.costly"
"""Metadata key of a node that stays as its expression takes too many operations."""

_INITIALIZER_BYTES = 16
"""Bytes of an initializer beside its elements and name."""
_CONSTANT_BYTES = 48
"""The same for a ``Constant`` node."""
_READ_DIMENSIONS = frozenset({"Gather", "Shape", "Size"})
_KERNELS: Mapping[str, tuple[int, Kernel]] = MappingProxyType({**MOVEMENT, **ARITHMETIC})


class Folder:
    """Folds the nodes of one model, which never grows by it."""

    def __init__(self, state: State) -> None:
        self._state = state
        self._version = state.opset
        self._external_left = EXTERNAL_LIMIT
        self._held: dict[Node, list[Value]] = {}
        """Results that would grow the model."""
        self._arrays: dict[Value, Array] = {}
        """What they are."""
        self._held_left = HELD_LIMIT
        self._waiting: list[tuple[int, int, Node]] = []
        """A heap of held nodes by their growth."""
        self._shared: dict[Value, None] = {}
        """Constants that held nodes read beside others."""
        self._costs: list[int] = []
        """Operations of each run of the reference evaluator."""
        self._runs: dict[Value, frozenset[int]] = {}
        """The runs that a constant depends on, as places in the list; each counts once."""
        self._operations_left = reference.ALL_OPERATIONS

    def fold(self, node: Node) -> Sequence[Value]:
        """Replace a node by its results, returned (empty if it stays)."""
        results: Sequence[Value] = ()
        arrays = None
        if node in self._held:
            results = _results_of(node)
            arrays = self._held_arrays(node, results)
        if arrays is None:
            entry = _from_dimensions(node, self._version)
            operands = self._operands(node) if entry is None else []
            if operands is None or not self._state.purity.is_builtin(node.op):
                return ()
            self._let_go(node)
            results = _results_of(node)
            arrays = self._results(node, results, operands, entry)
            if arrays is None:
                return ()
        growth = self._growth(node, results, arrays)
        if growth <= EAGER_LIMIT:
            return self._store(node, results, arrays, growth)
        self._hold(node, results, arrays, growth)
        return ()

    def fold_waiting(self) -> Sequence[Value] | None:
        """Fold the smallest held node for which there is room, None without one."""
        while self._waiting:
            _, _, node = heapq.heappop(self._waiting)
            results = _results_of(node)
            arrays = self._held_arrays(node, results)
            if arrays is None or not self._state.alive(node):
                continue
            growth = self._growth(node, results, arrays)
            if growth <= self._state.freed:
                return self._store(node, results, arrays, growth)
        return self._fold_readers()

    def _fold_readers(self) -> Sequence[Value] | None:
        """Fold all readers of a constant, such as slices, which free it together."""
        while self._shared:
            constant, _ = self._shared.popitem()
            readers = [reader for reader in constant.readers if isinstance(reader, Node)]
            if len(readers) != len(constant.readers) or not all(map(self._state.alive, readers)):
                continue
            growth = -(stored_bytes(constant) or 0)
            results = [_results_of(reader) for reader in readers]
            arrays = [
                one
                for reader, values in zip(readers, results, strict=True)
                if (one := self._held_arrays(reader, values)) is not None
            ]
            if len(arrays) < len(readers):
                continue
            for reader, values, one in zip(readers, results, arrays, strict=True):
                growth += self._growth(reader, values, one)
            if growth > self._state.freed:
                continue
            created: list[Value] = []
            for reader, one in zip(readers, arrays, strict=True):
                created += self._store(reader, _results_of(reader), one, 0)
            self._state.counts.grown += max(0, growth)
            return created
        return None

    def _hold(self, node: Node, results: Sequence[Value], arrays: list[Array], growth: int) -> None:
        """Let the readers of a result compute with it, and wait for room."""
        if node not in self._held:
            size = sum(map(bytes_of, arrays))
            if size > self._held_left:
                return
            self._held_left -= size
            self._held[node] = list(results)
            for value, array in zip(results, arrays, strict=True):
                self._arrays[value] = array
                self._state.touch_readers(value, stale=False)
            for value in _inputs(node):
                if value.initializer is not None and not value.is_input and len(value.readers) > 1:
                    self._shared[value] = None
        heapq.heappush(self._waiting, (growth, len(self._waiting), node))

    def _held_arrays(self, node: Node, results: Sequence[Value]) -> list[Array] | None:
        """Return the held arrays of a node's results; None if a rewrite gave it another one."""
        if node in self._held and all(value in self._arrays for value in results):
            return [self._arrays[value] for value in results]
        return None

    def _let_go(self, node: Node) -> None:
        for value in self._held.pop(node, ()):
            self._held_left += bytes_of(self._arrays.pop(value))

    def _store(
        self, node: Node, results: Sequence[Value], arrays: Sequence[Array], growth: int
    ) -> list[Value]:
        """Replace a node by its results."""
        state = self._state
        self._let_go(node)
        runs = self._runs_of(node.outputs) | self._runs_of(node.inputs)
        movable = all(map(state.may_leave, results))
        state.freed += state.node_bytes(node) - self._added(results, arrays, movable=movable)
        state.counts.grown += max(0, growth)
        replace = self._replace if movable else self._replace_in_place
        result = replace(node, results, arrays)
        if runs:
            self._runs.update(dict.fromkeys(result, runs))
        return result

    def _runs_of(self, values: Sequence[Value | None]) -> frozenset[int]:
        results: set[int] = set()
        for value in values:
            results.update(() if value is None else self._runs.get(value, ()))
        return frozenset(results)

    def _growth(self, node: Node, results: Sequence[Value], arrays: Sequence[Array]) -> int:
        """Return the bytes by which the model grows if results take a node's place."""
        movable = all(map(self._state.may_leave, results))
        return self._added(results, arrays, movable=movable) - self._freed_with(node)

    def _added(self, results: Sequence[Value], arrays: Sequence[Array], *, movable: bool) -> int:
        beside = _INITIALIZER_BYTES if movable else _CONSTANT_BYTES
        return sum(
            bytes_of(array) + beside + len(value.name)
            for value, array in zip(results, arrays, strict=True)
        )

    def _freed_with(self, node: Node) -> int:
        """Return the bytes of a node, and of the constants and held nodes that it alone reads."""
        state, gone, counted = self._state, {node}, set[Value]()
        waiting, freed = [node], 0
        while waiting:
            output = waiting.pop()
            freed += state.node_bytes(output)
            for value in _inputs(output):
                if (
                    value in counted
                    or value.is_input
                    or value.name in state.protected
                    or value.graph not in state.open
                    or not all(reader in gone for reader in value.readers)
                ):
                    continue
                producer = value.producer
                if value.is_constant:
                    counted.add(value)
                    freed += (stored_bytes(value) or 0) + _INITIALIZER_BYTES + len(value.name)
                elif producer is not None and producer in self._held and producer not in gone:
                    outputs = [output for output in producer.outputs if output is not None]
                    if all(reader in gone for output in outputs for reader in output.readers):
                        counted.update(outputs)
                        gone.add(producer)
                        waiting.append(producer)
        return freed

    def _results(
        self,
        node: Node,
        results: Sequence[Value],
        operands: Sequence[Value],
        entry: Array | None,
    ) -> list[Array] | None:
        """Compute the results of a node that can be replaced; None if it stays."""
        state = self._state
        if any(value.name in state.protected for value in results):
            return None
        if any(_is_tied(value, node) for value in operands):
            return None
        owner = node.graph.owner
        if owner is not None and any(owner.graph.find(value.name) is not None for value in results):
            return None  # no new value can have a name that an enclosing graph uses
        if not state.purity.is_well_formed(node):
            return None
        external = sum(map(external_bytes, operands))
        if external > self._external_left:
            return None
        movable = all(map(state.may_leave, results))
        bodies = [graph for graph in state.model.graphs if graph is not node.graph]
        if any(value.name in body.values for value in results for body in bodies):
            return None  # results go first, where a later body must not use their names
        room = self._freed_with(node) + self._held_left
        try:
            if sum(map(_declared_bytes, results)) > room:
                return None
            with np.errstate(all="ignore"):
                outputs = [entry] if entry is not None else self._compute(node, room)
            arrays = [outputs[value.index] for value in results]
            takes = node.graph.takes_constant if movable else node.graph.takes_constant_node
            if not all(takes(array.dtype) for array in arrays):
                return None
            if sum(map(bytes_of, arrays)) > room:
                return None
            for value, array in zip(results, arrays, strict=True):
                result = TensorType(DataType(tensors.elem_type(array.dtype)), array.shape)
                join(value.type, result)
                if any(contradicts(declared, result) for declared in _declared_outputs(value)):
                    return None
        except (
            DeclinedError,
            TooLargeError,
            ContradictionError,
            ModelError,
            ValueError,
            IndexError,
            TypeError,
            ArithmeticError,
        ):
            return None
        self._external_left -= external
        return arrays

    def _operands(self, node: Node) -> list[Value] | None:
        """Return the constants that a kernel reads, None if not foldable."""
        if node.op == "CastLike":
            source, like = node.input(0), node.input(1)
            return (
                [source]
                if source is not None and self._is_known(source) and like is not None and like.dtype
                else None
            )
        for value in node.inputs:
            if value is not None and not value.is_constant and value not in self._arrays:
                return None
        operands = _inputs(node)
        if not operands or not (
            self._has_kernel(node) or reference.can_compute(node, self._version)
        ):
            return None
        return operands

    def _is_known(self, value: Value) -> bool:
        return value.is_constant or value in self._arrays

    def _has_kernel(self, node: Node) -> bool:
        first, _ = _KERNELS.get(node.op, (None, None))
        return first is not None and first <= self._version

    def _elements(self, value: Value) -> Array:
        content = self._arrays.get(value)
        array = elements(value) if content is None else content
        if array is None:
            raise DeclinedError
        return array

    def _compute(self, node: Node, room: int) -> list[Array]:
        if node.op == "CastLike":
            source, like = node.inputs
            assert source is not None
            assert like is not None
            assert like.dtype is not None
            call = Call(node, self._version, [self._elements(source)], room)
            return [convert(call, call.array(0), like.dtype)]
        arrays = [None if value is None else self._elements(value) for value in node.inputs]
        call = Call(node, self._version, arrays, room)
        if not self._has_kernel(node):
            return self._by_reference(call)
        try:
            return _KERNELS[node.op][1](call)
        except DeclinedError:
            # integers and what moves elements have one right result, which the kernel returns
            if node.op in MOVEMENT or not any(
                array is not None and array.dtype.kind not in "iub" for array in arrays
            ):
                raise
            return self._by_reference(call)

    def _by_reference(self, call: Call) -> list[Array]:
        """Compute a node with the reference evaluator, within the limits of operations."""
        node = call.node
        if not reference.can_compute(node, self._version) or COSTLY in node.metadata:
            raise DeclinedError
        own = reference.operations(node)
        runs = self._runs_of(node.inputs)
        if own > reference.OPERATIONS:
            raise DeclinedError
        before = sum(self._costs[run] for run in runs)
        if own + before > reference.OPERATIONS or own > self._operations_left:
            # the next compile, which cannot see what was spent, must not go on here
            node.graph.set_metadata(node, COSTLY, "1")
            raise DeclinedError
        self._operations_left -= own
        outputs = reference.evaluate(call)
        runs |= {len(self._costs)}
        self._costs.append(own)
        self._runs.update((value, runs) for value in node.outputs if value is not None)
        return outputs

    def _replace(
        self, node: Node, results: Sequence[Value], arrays: Sequence[Array]
    ) -> list[Value]:
        graph, lost = node.graph, _inputs(node)
        moved = [(value.name, value.uses) for value in results]
        for _, readers in moved:
            _read(graph, readers, None)
        graph.remove_node(node)
        created: list[Value] = []
        for (name, readers), array in zip(moved, arrays, strict=True):
            value = graph.add_initializer(array, name)
            _read(graph, readers, value)
            self._state.touch_readers(value, stale=True)
            created.append(value)
        self._state.made.update(created)
        self._state.counts.folded += 1
        reap(self._state, lost)
        return created

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
    return (stored_bytes(value) or 0) > SMALL and any(
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


def _results_of(node: Node) -> list[Value]:
    """Return the results of a node that something reads."""
    return [value for value in node.outputs if value is not None and value.readers]


def _inputs(node: Node) -> list[Value]:
    """Return the input values of a node, each once."""
    return [value for value in dict.fromkeys(node.inputs) if value is not None]


def _read(graph: Graph, readers: Sequence[tuple[Node | Graph, int]], value: Value | None) -> None:
    for reader, slot in readers:
        assert isinstance(reader, Node)
        graph.set_input(reader, slot, value)


def _declared_bytes(value: Value) -> int:
    """Size of a value by its type; 0 if incomplete."""
    value_type = value.type
    if (
        not isinstance(value_type, TensorType)
        or value_type.size is None
        or value_type.dtype in (DataType.UNDEFINED, DataType.STRING)
    ):
        return 0
    return bytes_for(value_type.size, value_type.dtype.numpy)


def _from_dimensions(node: Node, version: int) -> Array | None:
    """Return the result of a node that depends only on dimensions.

    Returns None if the dimensions are unknown.
    """
    if node.op not in _READ_DIMENSIONS:
        return None
    try:
        return _of_dimensions(node, version)
    except (TypeError, OverflowError):
        return None


def _of_dimensions(node: Node, version: int) -> Array | None:
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
    dimensions, expected = (
        _dimensions(source.producer, version),
        elements(indices) if indices.is_constant else None,
    )
    if dimensions is None or expected is None or expected.dtype.kind != "i":
        return None
    positions = [int(index) for index in expected.flat]
    if not all(-len(dimensions) <= position < len(dimensions) for position in positions):
        return None
    result = _vector([dimensions[position] for position in positions])
    if result is None or (0 in result and _vector(dimensions) is None):
        return None  # beside a constant 0, ONNX Runtime puts -1 for the size that stays computed
    return result.reshape(expected.shape)


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
