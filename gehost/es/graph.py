"""Graphs that authors build, without model or opset.

They have operators, inputs by position and parameters by name.

An ``EsGraph`` is a pattern, a replacement or an operator's body. It has no version: it is lowered
to the model's opset when it is used. Classes with an instance for each rewrite are plain classes:
machine code leaves the ``__init__`` of a dataclass to Python.
"""

from __future__ import annotations

import operator
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, SupportsIndex, TypeAlias, cast

import numpy as np

from gehost.errors import PatternError
from gehost.es import schemas
from gehost.ir import tensors
from gehost.ir.graph import split_op
from gehost.ir.types import DataType, Dim, TensorType, plain_shape
from gehost.location import SourceLocation, author_origin
from gehost.ops import OpDef, declared


class Draft:
    """Shared state of a graph's tensors; holds the graph until built.

    Clearing it then leaves no reference cycles.
    """

    __slots__ = ("graph",)

    def __init__(self, graph: EsGraph) -> None:
        self.graph: EsGraph | None = graph


class EsInput:
    """A placeholder: input ``index`` of the graph.

    In a pattern it matches any tensor that fits its constraints.
    """

    __slots__ = ("draft", "dtype", "index", "name", "origin", "rank", "shape")

    def __init__(
        self,
        draft: Draft,
        index: int,
        origin: SourceLocation,
        name: str,
        dtype: DataType | None = None,
        rank: int | None = None,
        shape: tuple[Dim, ...] | None = None,
    ) -> None:
        self.draft = draft
        self.index = index
        self.origin = origin
        self.name = name
        self.dtype = dtype
        self.rank = rank
        self.shape = shape

    def __repr__(self) -> str:
        return f"<EsInput {self.index} ({self.name}) at {self.origin}>"


@dataclass(eq=False, slots=True)
class EsConst:
    """A constant.

    A ``literal`` takes its partner's dtype and is matched by value in a pattern.
    """

    draft: Draft
    array: np.ndarray[Any, Any]
    origin: SourceLocation
    literal: bool = False
    rtol: float = 0.0
    atol: float = 0.0


class EsNode:
    """An operator application; in a pattern ``ops`` may hold several accepted operators.

    ``open_slots`` are inputs that the author left out because a later one was given by name.
    """

    __slots__ = (
        "bare",
        "commutative",
        "constraints",
        "count",
        "draft",
        "inputs",
        "open_slots",
        "ops",
        "origin",
        "params",
    )

    def __init__(
        self,
        draft: Draft,
        ops: tuple[str, ...],
        inputs: list[EsTensor | None],
        params: dict[str, Any],
        origin: SourceLocation,
        count: int = 1,
        open_slots: frozenset[int] = frozenset(),
        *,
        bare: bool = False,
    ) -> None:
        self.draft = draft
        self.ops = ops
        self.inputs = inputs
        self.params = params
        self.origin = origin
        self.open_slots = open_slots
        self.count = count
        """Number of outputs."""
        self.bare = bare
        """Written ``es.Name``, which may also mean a registered operator."""
        self.constraints: dict[str, Any] = {}
        self.commutative = False

    def __repr__(self) -> str:
        return f"<EsNode {'|'.join(self.ops)} at {self.origin}>"

    @property
    def outputs(self) -> list[EsTensor]:
        return (
            [EsTensor(self)]
            if self.count == 1
            else [EsTensor(self, index) for index in range(self.count)]
        )

    def GetType(self) -> str:
        """The operator's type, without its domain."""
        return self.ops[0].rpartition("::")[2]


@dataclass(eq=False, slots=True)
class EsChoice:
    """A choice between several tensors in a pattern; matching decides."""

    draft: Draft
    options: tuple[EsTensor, ...]
    origin: SourceLocation
    kind: str = "Alternatives"


class EsTensor:
    """A tensor of a graph under construction: output ``index`` of its producer.

    Arithmetic on it adds nodes.
    """

    __slots__ = ("index", "producer")

    __array_ufunc__: ClassVar[None] = None
    """Keeps numpy from iterating over the tensor in ``array * tensor``."""

    def __init__(self, producer: EsNode | EsInput | EsConst | EsChoice, index: int = 0) -> None:
        self.producer = producer
        self.index = index

    def __repr__(self) -> str:
        return f"<EsTensor {self.index} of {self.producer!r}>"

    @property
    def graph(self) -> EsGraph:
        """The graph under construction.

        Raises:
            PatternError: the graph is built already.
        """
        graph = self.producer.draft.graph
        if graph is None:
            raise PatternError(
                f"{self!r} belongs to a graph that is built already",
                where=author_origin(),
                hint="begin another one",
            )
        return graph

    def GetProducer(self) -> EsNode | EsInput | EsConst | EsChoice:
        return self.producer

    def __getitem__(self, index: SupportsIndex) -> EsTensor:
        """Return output ``index`` of the custom operator that produces this tensor.

        The operator's declaration is checked when the graph meets a model.

        Raises:
            PatternError: the producer is not a custom operator.
        """
        expected, node = operator.index(index), self.producer
        if not isinstance(node, EsNode) or any(
            schemas.operator(*split_op(op)) is not None for op in node.ops
        ):
            raise PatternError(
                "only outputs of custom operators have an index", where=author_origin()
            )
        if expected < 0:
            raise PatternError(
                f"outputs are counted from 0, got [{expected}]", where=author_origin()
            )
        node.count = max(node.count, expected + 1)
        return EsTensor(node, expected)

    def __iter__(self) -> Iterator[EsTensor]:
        """Iterate over all outputs of a custom operator whose registration names them."""
        node = self.producer
        definition = declared(node.ops[0]) if isinstance(node, EsNode) else None
        if definition is not None and definition.fixes_outputs:
            return iter([self[index] for index in range(len(definition.outputs))])
        raise PatternError(
            "write [0], [1], … for the outputs of a custom operator, or give num_outputs=",
            where=author_origin(),
        )

    def __add__(self, other: Operand) -> EsTensor:
        return _binary("Add", self, other)

    def __radd__(self, other: Operand) -> EsTensor:
        return _binary("Add", other, self)

    def __sub__(self, other: Operand) -> EsTensor:
        return _binary("Sub", self, other)

    def __rsub__(self, other: Operand) -> EsTensor:
        return _binary("Sub", other, self)

    def __mul__(self, other: Operand) -> EsTensor:
        return _binary("Mul", self, other)

    def __rmul__(self, other: Operand) -> EsTensor:
        return _binary("Mul", other, self)

    def __truediv__(self, other: Operand) -> EsTensor:
        return _binary("Div", self, other)

    def __rtruediv__(self, other: Operand) -> EsTensor:
        return _binary("Div", other, self)

    def __pow__(self, other: Operand) -> EsTensor:
        return _binary("Pow", self, other)

    def __matmul__(self, other: Operand) -> EsTensor:
        return _binary("MatMul", self, other)

    def __neg__(self) -> EsTensor:
        return self.graph.add_node(("Neg",), [self], {})[0]


Literal: TypeAlias = (
    bool | int | float | Sequence[int] | Sequence[float] | np.ndarray[Any, Any] | np.generic
)
Operand: TypeAlias = "EsTensor | Literal"


def _binary(op: str, left: Operand, right: Operand) -> EsTensor:
    graph = next(side.graph for side in (left, right) if isinstance(side, EsTensor))
    return graph.add_node((op,), [left, right], {})[0]


class EsGraph:
    """A built graph: ordered inputs and outputs over a DAG of ``EsNode``."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.draft = Draft(self)
        self.nodes: list[EsNode] = []
        self.outputs: list[EsTensor] = []
        self.origin = author_origin()
        self.next_input = 0
        """The index after the last placeholder."""
        self.captures: dict[str, EsTensor] = {}
        """Tensors named with ``es.Name``, for patterns."""
        self.definitions: dict[str, OpDef] = {}
        """What operators compute here that no vendor registers with a body, by name."""
        self._inputs: dict[int, EsTensor] = {}
        self._in_order: list[EsTensor] | None = None

    def __repr__(self) -> str:
        return f"<EsGraph {self.name}: {len(self.nodes)} nodes>"

    @property
    def inputs(self) -> list[EsTensor]:
        """The placeholders in the order of their index.

        Raises:
            PatternError: their indices leave a gap.
        """
        if self._in_order is None:
            result = self._inputs
            if len(result) < self.next_input:
                raise PatternError(
                    f"the inputs {sorted(result)} of {self.name!r} leave a gap; number them from 0",
                    where=self.origin,
                )
            self._in_order = [result[index] for index in range(len(result))]
        return self._in_order

    def add_input(self, producer: EsInput) -> EsTensor:
        """Add a placeholder at its index.

        Raises:
            PatternError: the index is in use.
        """
        index = producer.index
        if index in self._inputs:
            raise PatternError(
                f"input {index} of {self.name!r} exists already", where=producer.origin
            )
        result = self._inputs[index] = EsTensor(producer)
        if index >= self.next_input:
            self.next_input = index + 1
        self._in_order = None
        return result

    def add_inputs(self, names: Sequence[str], origin: SourceLocation) -> list[EsTensor]:
        """Add placeholders after the last one; "" is named after its index."""
        results: list[EsTensor] = []
        for index, name in enumerate(names, self.next_input):
            tensor = self._inputs[index] = EsTensor(
                EsInput(self.draft, index, origin, name or f"input{index}")
            )
            results.append(tensor)
        self.next_input += len(results)
        self._in_order = None
        return results

    def add_node(
        self,
        ops: tuple[str, ...],
        inputs: Sequence[Operand | None],
        params: dict[str, Any],
        outputs: int = 1,
        open_slots: frozenset[int] = frozenset(),
        *,
        bare: bool = False,
    ) -> list[EsTensor]:
        """Add an operator; Python numbers and lists among the inputs become literals.

        Raises:
            PatternError: an input belongs to another graph, or cannot be an operand.
        """
        origin = author_origin()
        operands: list[EsTensor | None] = []
        for slot, operand in enumerate(inputs):
            if type(operand) is EsTensor:
                if operand.producer.draft is not self.draft:
                    raise PatternError(
                        f"input {slot} of {ops[0]} was made by another builder", where=origin
                    )
                operands.append(operand)
            elif operand is None:
                operands.append(None)
            else:
                array = as_array(operand, origin, f"input {slot} of {ops[0]}")
                operands.append(EsTensor(EsConst(self.draft, array, origin, literal=True)))
        node = EsNode(self.draft, ops, operands, params, origin, outputs, open_slots, bare=bare)
        self.nodes.append(node)
        return node.outputs

    def delivering(self, outputs: Sequence[EsTensor]) -> EsGraph:
        """Return a graph of the same nodes and inputs with other outputs."""
        result = EsGraph(self.name)
        result.origin, result.draft, result.nodes, result._inputs = (
            self.origin,
            self.draft,
            self.nodes,
            self._inputs,
        )
        result.outputs = list(outputs)
        result.definitions = self.definitions
        return result

    def reachable(
        self, options: Mapping[EsChoice, Sequence[EsTensor]] | None = None
    ) -> list[EsNode]:
        """Return the nodes that outputs depend on, in order of building.

        Args:
            options: the considered options of each choice; None: all of them.
        """
        if len(self.nodes) == len(self.outputs) == 1 and self.outputs[0].producer is self.nodes[0]:
            return list(self.nodes)
        reachable: set[EsNode] = set()
        stack = list(self.outputs)
        while stack:
            producer = stack.pop().producer
            if isinstance(producer, EsChoice):
                stack.extend(producer.options if options is None else options[producer])
            elif isinstance(producer, EsNode) and producer not in reachable:
                reachable.add(producer)
                stack.extend(tensor for tensor in producer.inputs if tensor is not None)
        return [node for node in self.nodes if node in reachable]


class EsGraphBuilder:
    """Builds one ``EsGraph`` after another.

    Examples:
        >>> builder = EsGraphBuilder("pattern")
        >>> a, b = builder.CreateInputs(2)
        >>> graph = builder.BuildAndReset([a + b])
    """

    # Any: so that machine code takes it here, and the error is ours
    def __init__(self, name: str | Any = "graph") -> None:
        if not isinstance(name, str):
            raise PatternError(
                f'EsGraphBuilder wants a name, as in "pattern", got {name!r}', where=author_origin()
            )
        self.name = name
        self._begun: EsGraph | None = EsGraph(name)

    @property
    def graph(self) -> EsGraph:
        """The graph that is being built."""
        if self._begun is None:
            self._begun = EsGraph(self.name)
        return self._begun

    def CreateInput(
        self,
        index: SupportsIndex,
        name: str = "",
        # Any: so that machine code takes it here, and the error is ours
        dtype: DataType | Any = None,
        shape: Sequence[Dim] | None = None,
        *,
        rank: SupportsIndex | None = None,
    ) -> EsTensor:
        """Create the placeholder at ``index``.

        In a pattern, dtype, rank and shape (None: any size) restrict the tensors it matches.

        Raises:
            PatternError: that input exists already, its index is negative, or rank and shape
                contradict each other.
        """
        origin = author_origin()
        position = operator.index(index)
        if position < 0:
            raise PatternError(
                f"input {index} of {self.name!r}: inputs are numbered from 0", where=origin
            )
        if isinstance(shape, TensorType):
            raise PatternError(
                f"input {index} of {self.name!r}: wanted a shape, got the type {shape}",
                where=origin,
                hint="give its shape",
            )
        try:
            dims = plain_shape(shape)
        except TypeError as error:
            raise PatternError(f"input {index} of {self.name!r}: {error}", where=origin) from error
        request = None if rank is None else operator.index(rank)
        if dims is not None:
            if request not in (None, len(dims)):
                raise PatternError(
                    f"input {index} of {self.name!r}: rank {rank}, but a shape of {len(dims)}",
                    where=origin,
                )
            request = len(dims)
        entry = (
            None
            if dtype is None
            else element_type(dtype, origin, f"input {index} of {self.name!r}")
        )
        return self.graph.add_input(
            EsInput(
                self.graph.draft, position, origin, name or f"input{position}", entry, request, dims
            )
        )

    # Any: so that machine code takes it here, and the error is ours
    def CreateInputs(self, *names: str | SupportsIndex | Any) -> tuple[EsTensor, ...]:
        """Create the next placeholders: ``CreateInputs("x", "w")``, or ``CreateInputs(2)``.

        Raises:
            PatternError: the arguments are neither one number nor names.
        """
        origin = author_origin()
        if len(names) == 1 and not isinstance(names[0], str):
            items = [""] * operator.index(names[0])
        else:
            items = [name for name in names if isinstance(name, str) and name]
            if not items or len(items) < len(names):
                raise PatternError(
                    'CreateInputs wants one number or names, as in CreateInputs("x", "w")',
                    where=origin,
                )
        return tuple(self.graph.add_inputs(items, origin))

    def CreateConst(
        self,
        value: Any,
        dtype: DataType | Any = None,
        shape: Sequence[int] | None = None,
        *,
        rtol: float | Any = 0.0,  # Any: as in CreateInput
        atol: float | Any = 0.0,
    ) -> EsTensor:
        """Create a constant; without ``dtype``, Python floats are float32 and ints int64.

        Args:
            value: number, nested list or numpy array.
            dtype: its element type, or ONNX's number of the type.
            shape: the value is reshaped to it.
            rtol: relative tolerance where a pattern matches constants by value.
            atol: absolute tolerance, likewise.

        Raises:
            PatternError: the value is not numeric, or does not fit the dtype or the shape; a
                tolerance is not a number >= 0.
        """
        origin = author_origin()
        for tolerance in (rtol, atol):
            if (
                not isinstance(tolerance, float | int | np.floating | np.integer)
                or not tolerance >= 0
            ):
                raise PatternError(
                    f"constant: a tolerance must be a number >= 0, got {tolerance!r}", where=origin
                )
        array = as_array(value, origin, "constant")
        if dtype is not None:
            expected = element_type(dtype, origin, "constant")
            cast = in_dtype(array, expected.numpy)
            if cast is None:
                raise PatternError(f"constant: {expected.name} cannot hold {value!r}", where=origin)
            array = cast
        elif not isinstance(value, np.ndarray | np.generic):
            array = array.astype(
                {"f": np.float32, "i": np.int64, "u": np.int64}.get(array.dtype.kind, array.dtype)
            )
        if shape is not None:
            try:
                array = array.reshape(tuple(shape))
            except ValueError as error:
                raise PatternError(
                    f"constant: {array.size} elements do not make shape {tuple(shape)}",
                    where=origin,
                ) from error
        return EsTensor(
            EsConst(self.graph.draft, array, origin, rtol=float(rtol), atol=float(atol))
        )

    def CreateScalar(self, value: Any, dtype: DataType | Any = None) -> EsTensor:
        """Create a constant of rank 0."""
        return self.CreateConst(value, dtype, shape=())

    def CreateVector(self, values: Any, dtype: DataType | Any = None) -> EsTensor:
        """Create a constant of rank 1."""
        return self.CreateConst(values, dtype, shape=(-1,))

    def BuildAndReset(self, outputs: Sequence[EsTensor] | EsTensor) -> EsGraph:
        """Return the finished graph with these outputs; empty the builder.

        Raises:
            PatternError: no outputs, an output of another graph, or a gap between input indices.
        """
        graph, self._begun = self.graph, None
        items: list[Any] = [outputs] if isinstance(outputs, EsTensor) else list(outputs)
        _ = graph.inputs  # raises if there is a gap
        if not items:
            raise PatternError(f"graph {self.name!r} has no outputs", where=author_origin())
        for position, tensor in enumerate(items):
            if not isinstance(tensor, EsTensor):
                kind = type(tensor).__name__
                raise PatternError(
                    f"output {position} of {self.name!r}: wanted an EsTensor, got {kind}",
                    where=author_origin(),
                )
            if tensor.producer.draft is not graph.draft:
                raise PatternError(
                    f"output {position} of {self.name!r} was made by another builder",
                    where=author_origin(),
                )
        graph.outputs = items
        graph.draft.graph = None
        return graph


# values of operands and parameters

_PLAIN: frozenset[object] = frozenset({bool, int, float, str, bytes, DataType, type(None)})


def as_array(value: Any, where: SourceLocation, subject: str) -> np.ndarray[Any, Any]:
    """Convert a number, a list or an array to an array.

    Raises:
        PatternError: it is none of these, or ONNX lacks the element type.
    """
    expected = "wanted a tensor, a number or a list of numbers, got"
    try:
        array = np.asarray(value)
    except ValueError as error:
        if isinstance(value, TensorType):  # a tuple, which numpy treats as rows
            raise PatternError(f"{expected} TensorType", where=where, subject=subject) from error
        raise PatternError(
            "its rows differ in length",
            where=where,
            subject=subject,
            hint="give a list that is as long in every row",
        ) from error
    try:
        entry = array.dtype.kind not in "OSU" and tensors.elem_type(array.dtype)
    except TypeError:
        entry = False
    if not entry:
        raise PatternError(f"{expected} {type(value).__name__}", where=where, subject=subject)
    return array


def element_type(argument: Any, where: SourceLocation, subject: str) -> DataType:
    """Return a ``DataType``, given also as ONNX's number (``TensorProto.FLOAT``).

    Raises:
        PatternError: it is neither.
    """
    try:
        return DataType(argument)
    except ValueError as error:
        raise PatternError(
            f"wanted a DataType, got {argument!r}", where=where, subject=subject
        ) from error


def in_dtype(array: np.ndarray[Any, Any], dtype: np.dtype[Any]) -> np.ndarray[Any, Any] | None:
    """Return the same numbers in a dtype that holds them, or None.

    Not held: 0.5 or 300 as uint8, 1e9 as float16, 2j as either. Rounding to a float is allowed.
    """
    if array.dtype.kind == "c" and dtype.kind != "c":
        if np.any(array.imag):
            return None
        array = array.real
    with np.errstate(all="ignore"):
        cast = array.astype(dtype)
        if "float" in dtype.name or dtype.kind == "c":
            fits = np.isfinite(cast.astype(np.complex128)) | ~np.isfinite(
                array.astype(np.complex128)
            )
        else:
            fits = cast.astype(array.dtype) == array
    return cast if np.all(fits) else None


def exact(value: Any) -> str | None:
    """Return a type-exact cache key, None for other types.

    1, 1.0 and True have different keys.
    """
    if type(value) in (list, tuple):  # a subclass may define its own repr
        if not _PLAIN.issuperset(map(type, cast("Sequence[Any]", value))):
            return None
    elif type(value) is float:
        return value.hex()  # four times as fast as repr
    elif type(value) not in _PLAIN:
        return None
    return repr(cast("object", value))
