"""Groups of ONNX nodes: lowered, fused and joined by rows.

A group is also derived from a function body alone.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import onnx

from gehost import DataType, Graph, Node, TensorType
from gehost import Value as Tensor
from gehost_linalg.affine import Const, Dim, dims_of
from gehost_linalg.control import TRANSCENDENTAL, Control, MultiUse, one_use
from gehost_linalg.driver import DEFAULT_COMPANIONS, Block, Driver
from gehost_linalg.fusability import OpOperand, Refusal
from gehost_linalg.generic import PARALLEL, REDUCTION, Generic, Op, Opaque, Size, Value, is_known
from gehost_linalg.interpret import Rule
from gehost_linalg.lower import MLIR_DTYPES, Names, NotLowered, OnnxOp, lower, lowerings
from gehost_linalg.lower.movement import reshape

DOMAIN = "gehost.linalg"

MOST_NODES = 256
"""Nodes of one group; a larger kernel gains nothing."""

MOST_STEPS = 1000
"""Operations that are looked at for a path out of a group and back; where there are more, the
groups stay apart.
"""

INLINE_BYTES = 4096
"""Constants with one value throughout are part of a body up to this size; larger ones are inputs.
"""

GROUP_COMPANIONS = tuple(
    [each for each in DEFAULT_COMPANIONS if each not in {"split-concat", "erase-copy"}]
)
"""A node is replaced as a whole: it must not be split, nor vanish."""

FEW_ELEMENTS = 4096
"""Below, a kernel's gain is the call of a node that it saves."""

PARAMETERS: Mapping[str, tuple[int, ...]] = {
    **dict.fromkeys(("Unsqueeze", "Squeeze", "Expand", "Split", "Gather", "Trilu", "OneHot"), (1,)),
    "Slice": (1, 2, 3, 4),
    "Range": (0, 1, 2),
    "Reshape": (1,),
    **dict.fromkeys(("ReduceSum", "ReduceMean", "ReduceProd", "ReduceMax", "ReduceMin"), (1,)),
    **dict.fromkeys(
        ("ReduceSumSquare", "ReduceL1", "ReduceL2", "ReduceLogSum", "ReduceLogSumExp"), (1,)
    ),
}
"""Inputs that decide about maps, as attributes do in other opsets; they are part of a body."""

MOVEMENT = frozenset(
    {
        "Transpose",
        "Unsqueeze",
        "Squeeze",
        "Expand",
        "Slice",
        "Split",
        "Concat",
        "Gather",
        "Reshape",
        "Identity",
        "Cast",
        "CastLike",
    }
)
"""Operators that compute nothing: a group needs two others."""


# -- lowering a graph
# --------------------------------------------------------------------------------------------------


class Lowered:
    """The operations of one graph as Generics, in order; others are ``Opaque``.

    Attributes:
        ops: the operations.
        values: the value of each tensor.
        reasons: for each node that is not lowered, why.
        counts: how many operations a node was lowered to.
    """

    def __init__(
        self, graph: Graph, leave_alone: Callable[[Node], str | None], *, reshapes: bool = False
    ) -> None:
        """``reshapes``: lower each Reshape that splits or merges axes as one operation."""
        self._reshapes = reshapes
        self.ops: list[Op] = []
        self.values: dict[Tensor, Value] = {}
        self.reasons: dict[Node, str] = {}
        self.counts: dict[Node, int] = {}
        self.names = Names()
        for node in graph.nodes:
            if node.op == "Constant" or not node.outputs:
                continue
            self._lower(node, leave_alone(node))
        self.outputs = [self.values[value] for value in graph.outputs if value in self.values]

    def _lower(self, node: Node, reason: str | None) -> None:
        inputs = [None if value is None else self._value(value) for value in node.inputs]
        outputs = [None if value is None else self._output(value) for value in node.outputs]
        if reason is None and any(
            value is not None and not isinstance(value.type, TensorType) for value in node.outputs
        ):
            reason = "operand-unranked: the type of a result is unknown"
        made: list[Op] = []
        if reason is None and node.op not in lowerings():
            reason = f"not-lowered: {node.op}"
        if reason is None:
            places = PARAMETERS.get(node.op, ())
            constants = {
                place: array for place in places if (array := _array(node.input(place))) is not None
            }
            version = node.graph.model.opset() or 0
            op = OnnxOp(node.op, version, inputs, outputs, node.attrs, constants, node, self.names)
            try:
                made = lower(op, reshape if self._reshapes and node.op == "Reshape" else None)
            except NotLowered as refused:
                reason = str(refused)
            except (
                TypeError,
                ValueError,
                KeyError,
                OverflowError,
            ) as error:  # attributes of a model that is wrong
                reason = f"not-lowered: {node.op}: {error}"
        if reason is not None:
            self.reasons[node] = reason
            captured = [
                self._value(value) for body in node.bodies for _, _, value in body.captured()
            ]
            read = (*[each for each in inputs if each is not None], *captured)
            results = [value for value in outputs if value is not None]
            for value, tensor in zip(outputs, node.outputs, strict=True):
                if value is not None and tensor is not None:
                    self._state(value, tensor)
            made = [
                Opaque(
                    node.op, read, tuple(results), label=f"{node.op} {node.label}", origins=(node,)
                )
            ]
        self.counts[node] = len(made)
        self.ops += made

    def _state(self, value: Value, tensor: Tensor) -> None:
        """Take type and shape from the model; name unknown sizes."""
        known = tensor.type
        value.dtype, value.shape = _dtype(known), None
        if isinstance(known, TensorType) and known.shape is not None:
            value.shape = tuple([_named(size) or self.names.size() for size in known.shape])

    def _output(self, tensor: Tensor) -> Value:
        value = self.values[tensor] = Value(tensor.name, _dtype(tensor.type))
        shape = tensor.shape
        if shape is not None:
            value.shape = tuple([_named(size) for size in shape])
        return value

    def _value(self, tensor: Tensor) -> Value:
        known = self.values.get(tensor)
        if known is None:
            known = self.values[tensor] = Value(tensor.name, "")
            self._state(known, tensor)
            known.constant = splat_of(tensor)
        return known


def _named(size: Size) -> Size:
    """A known size as a name, other than 1.

    Lowering depends on sizes that are equal or statically 1, and on no other size. A name of the
    model that could be a number is changed.
    """
    if isinstance(size, str) and (size.isdecimal() or size.startswith("dim ")):
        return f"dim {size}"
    return str(size) if isinstance(size, int) and size != 1 else size


def _dtype(known: object) -> str:
    if not isinstance(known, TensorType):
        return "unknown"
    return MLIR_DTYPES.get(known.dtype) or known.dtype.name.lower()


def _array(tensor: Tensor | None) -> np.ndarray[Any, Any] | None:
    """The elements of a small constant."""
    if tensor is None or not tensor.is_constant:
        return None
    known = tensor.type
    if not isinstance(known, TensorType) or known.size is None or known.size > INLINE_BYTES:
        return None
    return tensor.array


def splat_of(tensor: Tensor) -> np.ndarray[Any, Any] | None:
    """The one element of a small constant with one value throughout.

    It has as many axes as the constant.
    """
    array = _array(tensor)
    if array is None or array.size == 0 or array.nbytes > INLINE_BYTES:
        return None
    if array.size > 1 and array.tobytes() != array.reshape(-1)[:1].tobytes() * array.size:
        return None
    return array.reshape(-1)[:1].reshape((1,) * array.ndim)


# -- nodes that the target fuses better ------------------------------------------------------------

_AFTER_CONV = frozenset(
    {
        "Add",
        "Sum",
        "Relu",
        "Clip",
        "Sigmoid",
        "Tanh",
        "LeakyRelu",
        "HardSigmoid",
        "BatchNormalization",
    }
)


def left_to_runtime() -> Callable[[Node], str | None]:
    """Why a node is left to ONNX Runtime."""
    after_conv: set[Node] = set()

    def reason(node: Node) -> str | None:
        if node.op in _AFTER_CONV:
            makers = [
                value.producer
                for value in node.inputs
                if value is not None and value.producer is not None
            ]
            if any(
                maker.op in {"Conv", "ConvTranspose"} or maker in after_conv for maker in makers
            ):
                if node.op in {"Add", "Sum", "BatchNormalization"}:
                    after_conv.add(node)
                return f"conv-epilogue: ONNX Runtime fuses {node.op} into the convolution"
        if any(out is not None and out.elements is not None for out in node.outputs):
            return "shape: it computes sizes, through which inference would not see in a function"
        if node.op in {"Mul", "Div"} and _scales_matmul(node):
            return f"matmul-scale: ONNX Runtime folds {node.op} into the matrix product"
        if node.op == "Transpose" and _is_transposed_operand(node):
            return "matmul-transpose: ONNX Runtime folds Transpose into the matrix product"
        if node.op == "Transpose" and _makes_short_rows(node):
            return "short-rows: Transpose makes rows of a few elements, each from another place"
        if node.op in {"Unsqueeze", "Squeeze"} and _ends_in_view(node):
            return f"view: only nodes outside of groups read it, and {node.op} moves no data"
        if node.op == "Reshape" and _is_read_outside(node):
            return "view: a node outside of groups reads it, and Reshape moves no data"
        return None

    return reason


def _scales_matmul(node: Node) -> bool:
    """Whether a node scales a MatMul's operand or result by a constant."""
    if len(node.inputs) != 2 or not node.outputs:
        return False
    scalars = [
        value is not None and value.is_constant and _is_single(value) for value in node.inputs
    ]
    if not any(scalars) or (node.op == "Div" and not scalars[1]):
        return False
    other = node.inputs[1 if scalars[0] else 0]
    out = node.outputs[0]
    made_by = other.producer if other is not None else None
    if (
        made_by is not None
        and made_by.op == "MatMul"
        and other is not None
        and len(other.readers) == 1
    ):
        return True
    reader = None if out is None else _only_reader(out)
    if reader is None or reader.op != "MatMul":
        return False
    if made_by is None or made_by.op in MOVEMENT or made_by.op not in lowerings():
        return True
    # Behind a product, an Add is its bias, which ONNX Runtime folds, too. What a group computes
    # otherwise, it scales at no cost.
    return any(
        value is not None and value.producer is not None and value.producer.op == "MatMul"
        for value in made_by.inputs
    )


def _is_single(value: Tensor) -> bool:
    known = value.type
    return isinstance(known, TensorType) and known.size == 1


def _only_reader(value: Tensor) -> Node | None:
    readers = list(value.readers)
    return readers[0] if len(readers) == 1 and isinstance(readers[0], Node) else None


def _ends_in_view(node: Node) -> bool:
    """Whether no group reads the result; another rank would keep its rows apart from theirs."""
    out = node.outputs[0] if node.outputs else None
    if out is None or out.is_graph_output or not out.readers:
        return False
    for reader in out.readers:
        if not isinstance(reader, Node):
            return False
        of_shape = reader.op in {"Expand", "Reshape"} and _array(reader.input(1)) is None
        if reader.op in lowerings() and not of_shape:
            return False
    return True


def _is_read_outside(node: Node) -> bool:
    """Whether the result is an output, or read by a node that is not lowered."""
    out = node.outputs[0] if node.outputs else None
    return (
        out is None
        or out.is_graph_output
        or not all(isinstance(each, Node) and each.op in lowerings() for each in out.readers)
    )


def _is_transposed_operand(node: Node) -> bool:
    """Whether a Transpose of the last two axes feeds a product alone, scaled or not."""
    perm, out = node.attrs.get("perm"), node.outputs[0] if node.outputs else None
    reader = None if out is None else _only_reader(out)
    if out is None or reader is None:
        return False
    scaled = reader.op in {"Mul", "Div"} and _scales_matmul(reader)
    if not scaled and reader.op != "MatMul" and (reader.op != "Gemm" or reader.input(2) is out):
        return False
    axes = list(perm) if perm is not None else [1, 0] if out.rank == 2 else []
    rank = len(axes)
    return rank >= 2 and axes == [*range(rank - 2), rank - 1, rank - 2]


def _makes_short_rows(node: Node) -> bool:
    """Whether a Transpose moves another axis to the end that is known to be short.

    Kernels transpose 16 x 16 elements at once; shorter rows are gathered element by element,
    which is slower unless there are few.
    """
    out, perm = node.outputs[0] if node.outputs else None, node.attrs.get("perm")
    known = None if out is None else out.type
    if not isinstance(known, TensorType) or not known.shape:
        return False
    last = known.shape[-1]
    if not isinstance(last, int) or not 1 < last < 16:
        return False
    moved = perm is None or perm[-1] != len(known.shape) - 1
    return moved and (known.size is None or known.size >= FEW_ELEMENTS)


# -- forming groups
# --------------------------------------------------------------------------------------------------


class Rows(NamedTuple):
    """The domain of an operation: sizes of outer loops, and the row.

    A row of 1 is one number per row.
    """

    outer: tuple[Size, ...]
    row: Size


def rows_of(op: Op) -> Rows | Refusal:
    """The outer loops and the row of an operation, or a refusal."""
    if isinstance(op, Opaque):
        if op.name not in {"tensor.extract_slice", "tensor.concat"}:
            return Refusal("not-lowered", op.name)
        shape = op.results[0].shape
        if not shape:
            return Refusal("domain", "a scalar")
        offsets = (
            [int(each) for each in str(op.attribute).split(",")]
            if op.name == "tensor.extract_slice"
            else []
        )
        if any(offsets[:-1]) or (op.name == "tensor.concat" and op.attribute != len(shape) - 1):
            return Refusal("strided", f"{op.name} along another axis than the last")
        return Rows(shape[:-1], shape[-1])
    sizes = op.extents()
    reduced = [loop for loop, kind in enumerate(op.iterators) if kind != PARALLEL]
    if reduced and reduced != [op.loops - 1]:
        return Refusal("strided", f"it reduces along d{reduced[0]}, which is not the row")
    if not sizes:
        return Rows((), 1)
    return Rows(tuple(sizes[:-1]), sizes[-1])


def joined(first: Rows, second: Rows, *, parts: bool) -> Rows | Refusal:
    """The domain of two groups together, or a refusal.

    ``parts`` allows rows of two sizes, where one is a part of the other.
    """
    if len(first.outer) != len(second.outer):
        short, long = sorted((first, second), key=lambda each: len(each.outer))
        if (*short.outer, short.row) == long.outer:  # numbers per row, without the axis of the row
            return long
        return Refusal("domain", f"{_shown(first)} against {_shown(second)}")
    outer: list[Size] = []
    for a, b in zip(first.outer, second.outer, strict=True):
        if a != b and is_known(a) and is_known(b):
            return Refusal("domain", f"{_shown(first)} against {_shown(second)}")
        outer.append(a if is_known(a) else b)
    if first.row == 1 or second.row == 1:
        return Rows(tuple(outer), second.row if first.row == 1 else first.row)
    if first.row != second.row and not parts and is_known(first.row) and is_known(second.row):
        return Refusal("domain", f"{_shown(first)} against {_shown(second)}")
    return Rows(tuple(outer), first.row if is_known(first.row) else second.row)


def _shown(rows: Rows) -> str:
    sizes = (*rows.outer, rows.row)
    shown = ["?" if size is None or str(size).startswith("?") else str(size) for size in sizes]
    return f"[{', '.join(shown)}]"


def reads_rows(consumer: Op, index: int) -> Refusal | None:
    """Refuse an operand that is not read row by row.

    Its last axis is along the row, with stride 0 or 1, and the others are in order.
    """
    if isinstance(consumer, Opaque):
        return None
    map_, loops = consumer.maps[index], consumer.loops
    results = map_.results
    for axis, each in enumerate(results):
        if isinstance(each, Const):
            continue
        if not isinstance(each, Dim):
            return Refusal("strided", f"{consumer.operands[index].name} is read by {map_.body()}")
        last = axis == len(results) - 1
        if each.index == loops - 1 and not last:
            return Refusal("strided", f"{consumer.operands[index].name} is read by {map_.body()}")
    bare = [each.index for each in results if isinstance(each, Dim)]
    if bare != sorted(bare):
        return Refusal("strided", f"{consumer.operands[index].name} is read by {map_.body()}")
    return None


_EXPENSIVE = TRANSCENDENTAL - {"math.sqrt", "math.rsqrt"}


@dataclass(eq=False)
class Group:
    """Operations that become one kernel.

    Attributes:
        ops: in order.
        rows: the domain, None where the group is one operation that has none.
        nodes: the ONNX nodes.
    """

    ops: list[Op]
    rows: Rows | Refusal
    nodes: dict[Node, None] = field(default_factory=dict[Node, None])

    @property
    def computes(self) -> int:
        """How many of its nodes compute something."""
        return sum(node.op not in MOVEMENT for node in self.nodes)

    @property
    def is_worth_a_kernel(self) -> bool:
        """Whether it saves a pass over its elements.

        It computes twice, or once on the way to another order of axes.
        """
        return self.computes > 1 or (self.computes == 1 and any(map(reorders_axes, self.nodes)))

    def expensive_scalar_op(self) -> str | None:
        """Return an operation on one number that costs more than a kernel's call, or None.

        None, too, if a row is reduced before it: the numbers then come from this kernel.
        """
        found: str | None = None
        for op in self.ops:
            if isinstance(op, Opaque) or REDUCTION in op.iterators:
                return None
            found = next((each.name for each in op.payload.ops if each.name in _EXPENSIVE), found)
        return found


def reorders_axes(node: Node) -> bool:
    """Whether a node is a Transpose to another order of axes."""
    if node.op != "Transpose":
        return False
    perm = node.attrs.get("perm")
    return perm is None or list(perm) != sorted(perm)


class Grouping:
    """Joins operations into groups.

    Attributes:
        refusals: for each operand that connects two groups, why they stay apart.
    """

    def __init__(self, block: Block, counts: Mapping[Node, int], *, rows: bool = True) -> None:
        self.block = block
        self.counts = counts
        self.refusals: dict[Op, list[tuple[OpOperand, Refusal]]] = {}
        self._group: dict[Op, Group] = {}
        self._at = {op: place for place, op in enumerate(block.ops)}
        self._rows = {op: rows_of(op) for op in self._at}
        whole: dict[Node, Group] = {}
        for op, own in self._rows.items():
            group = self._group[op] = Group([op], own, dict.fromkeys(op.origins))
            for node in op.origins:
                if counts.get(node, 1) > 1:  # a node is replaced as a whole
                    other = whole.setdefault(node, group)
                    group = self._merge(
                        other, group, other.rows if not isinstance(group.rows, Rows) else group.rows
                    )
                    whole[node] = group
        for group in set(whole.values()):
            self._whole_domain(group)
        if rows:
            for op in self._at:
                self._join(op)

    def groups(self) -> list[Group]:
        """The groups with a lowered operation, ordered by their last one."""
        found = dict.fromkeys(self._group[op] for op in self.block.ops)
        listed = [group for group in found if not any(is_boundary(op) for op in group.ops)]
        for group in listed:
            group.ops.sort(key=self._at.__getitem__)
            group.nodes = dict.fromkeys(node for op in group.ops for node in op.origins)
        return sorted(listed, key=lambda group: self._at[group.ops[-1]])

    def group_of(self, op: Op) -> Group:
        return self._group[op]

    def _whole_domain(self, group: Group) -> None:
        """Give a node of several operations the domain of all together."""
        found = self._rows[group.ops[0]]
        for op in group.ops[1:]:
            own = self._rows[op]
            if isinstance(found, Refusal) or isinstance(own, Refusal):
                found = found if isinstance(found, Refusal) else own
                break
            found = joined(found, own, parts=True)
        group.rows = found

    def _merge(self, first: Group, second: Group, rows: Rows | Refusal) -> Group:
        if first is second:
            return first
        big, small = (first, second) if len(first.ops) >= len(second.ops) else (second, first)
        big.ops += small.ops
        big.nodes.update(small.nodes)
        big.rows = rows
        for op in small.ops:
            self._group[op] = big
        return big

    def _join(self, consumer: Op) -> None:
        """Join a consumer's group with its producers' over the same rows."""
        if is_boundary(consumer):
            return
        refused: list[tuple[OpOperand, Refusal]] = []
        for index, value in enumerate(consumer.operands):
            producer = self.block.made_by.get(value)
            if producer is None or is_boundary(producer):
                continue
            first, second = self._group[producer], self._group[consumer]
            if first is second:
                continue
            refusal = self._join_pair(first, second, producer, consumer, index)
            if refusal is not None:
                refused.append((self.block.operand(consumer, index), refusal))
        if refused:
            self.refusals[consumer] = refused

    def _join_pair(
        self, first: Group, second: Group, producer: Op, consumer: Op, index: int
    ) -> Refusal | None:
        """Join two groups, or return the refusal."""
        for rows in (first.rows, second.rows):
            if isinstance(rows, Refusal):
                return rows
        assert isinstance(first.rows, Rows)
        assert isinstance(second.rows, Rows)
        refusal = reads_rows(consumer, index)
        if refusal is not None:
            return refusal
        parts = (
            isinstance(producer, Opaque)
            or isinstance(consumer, Opaque)
            or self._has_parts(first, second)
        )
        rows = joined(first.rows, second.rows, parts=parts)
        if isinstance(rows, Refusal):
            return rows
        expensive = first.expensive_scalar_op() if first.rows.row == 1 != rows.row else None
        if expensive is not None:
            return Refusal("per-row", f"{expensive} of one number per row is vectorized by itself")
        if len(first.nodes) + len(second.nodes) > MOST_NODES:
            return Refusal("too-large", f"more than {MOST_NODES} nodes")
        between = self._path_back(first, second)
        if between is not None:
            return Refusal("cycle", between)
        self._merge(first, second, rows)
        return None

    def _has_parts(self, first: Group, second: Group) -> bool:
        return any(
            isinstance(op, Opaque) for group in (first, second) for op in group.ops if op.operands
        )

    def _path_back(self, first: Group, second: Group) -> str | None:
        """Find an operation on a path out of two groups and back."""
        inside = {first, second}
        last = max(self._at[op] for group in inside for op in group.ops)
        seen: set[Op] = set()
        stack: list[Op] = []
        for group in (first, second):
            stack += [
                reader
                for op in group.ops
                for reader in self._readers(op)
                if self._group[reader] not in inside
            ]
        while stack:
            op = stack.pop()
            if op in seen or self._at[op] > last:
                continue
            seen.add(op)
            if len(seen) > MOST_STEPS:
                return f"not looked for any further than {MOST_STEPS} operations"
            for member in self._group[op].ops:  # another group is left by any of its operations
                for reader in self._readers(member):
                    if self._group[reader] in inside:
                        return f"through {op.label or op.name}"
                    stack.append(reader)
        return None

    def _readers(self, op: Op) -> Iterable[Op]:
        return [reader for value in op.results for reader in self.block.readers.get(value, ())]


def is_boundary(op: Op) -> bool:
    """An operation that no group may contain."""
    return isinstance(op, Opaque) and op.name not in {"tensor.extract_slice", "tensor.concat"}


def fused_block(
    lowered: Lowered, control: Control, multi_use: MultiUse, companions: Sequence[str]
) -> Block:
    """The operations of a graph after companions and fusion."""
    reducing = {
        node
        for op in lowered.ops
        if isinstance(op, Generic) and REDUCTION in op.iterators
        for node in op.origins
    }

    def keeps_rows(operand: OpOperand) -> bool | str:
        """A node that reduces is replaced as a whole: none of it moves to rows of a split axis."""
        producer, consumer = operand.generics()
        read = consumer.maps[operand.index].results
        if any(len(dims_of(each)) > 1 for each in read) and not reducing.isdisjoint(
            producer.origins
        ):
            return "the rest of its node reduces whole rows, which are split here"
        return control(operand)

    block = Block(lowered.ops, lowered.outputs)
    Driver(block, keeps_rows, multi_use, companions, limit=MOST_NODES).run()
    return block


# -- a group from a function body
# --------------------------------------------------------------------------------------------------


class BodyNode(NamedTuple):
    """One node of a body: values are numbered, the inputs first."""

    op: str
    inputs: tuple[int | None, ...]
    outputs: tuple[int | None, ...]
    attributes: tuple[bytes, ...]


@dataclass
class Body:
    """The nodes of a function, without names.

    Attributes:
        inputs: how many.
        nodes: in order.
        outputs: numbers of values.
        constants: the elements of values that the body itself holds.
        version: the opset.
    """

    inputs: int
    nodes: list[BodyNode]
    outputs: list[int]
    constants: dict[int, np.ndarray[Any, Any]]
    version: int

    @classmethod
    def of_nodes(
        cls, nodes: Sequence[Node], inputs: Sequence[Tensor], outputs: Sequence[Tensor]
    ) -> Body:
        """The body that the host writes for a region.

        It holds the constants that are no inputs.
        """
        numbers: dict[Tensor, int] = {value: place for place, value in enumerate(inputs)}
        constants: dict[int, np.ndarray[Any, Any]] = {}
        listed: list[BodyNode] = []
        for node in nodes:
            read: list[int | None] = []
            for value in node.inputs:
                if value is not None and value not in numbers:
                    numbers[value] = len(numbers)
                    constants[numbers[value]] = value.numpy()
                read.append(None if value is None else numbers[value])
            made: list[int | None] = []
            for value in node.outputs:
                if value is not None:
                    numbers[value] = len(numbers)
                made.append(None if value is None else numbers[value])
            attributes = tuple(
                sorted(
                    entry.SerializeToString(deterministic=True) for entry in node.proto.attribute
                )
            )
            listed.append(BodyNode(node.op, tuple(read), tuple(made), attributes))
        version = nodes[0].graph.model.opset() or 0
        return cls(len(inputs), listed, [numbers[value] for value in outputs], constants, version)

    @classmethod
    def of_function(cls, function: onnx.FunctionProto) -> Body:
        """The body of a function that was read from a file.

        Raises:
            ValueError: it reads a tensor that nothing makes, or holds a constant in a form that the
                host does not write.
        """
        numbers = {name: place for place, name in enumerate(function.input)}
        constants: dict[int, np.ndarray[Any, Any]] = {}
        tensors: dict[str, onnx.TensorProto] = {}
        listed: list[BodyNode] = []
        for node in function.node:
            op = (
                f"{node.domain}::{node.op_type}"
                if node.domain not in {"", "ai.onnx"}
                else node.op_type
            )
            if op == "Constant":
                held = [
                    entry.t
                    for entry in node.attribute
                    if entry.name == "value" and entry.type == onnx.AttributeProto.TENSOR
                ]
                if len(held) != 1:
                    raise ValueError(f"function {function.name}: a constant without a value")
                tensors[node.output[0]] = held[0]
                continue
            for name in node.input:
                if name and name not in numbers:
                    if name not in tensors:
                        raise ValueError(f'function {function.name}: nothing makes "{name}"')
                    numbers[name] = len(numbers)
                    constants[numbers[name]] = onnx.numpy_helper.to_array(tensors[name])
            for name in node.output:
                if name:
                    numbers[name] = len(numbers)
            attributes = tuple(
                sorted(entry.SerializeToString(deterministic=True) for entry in node.attribute)
            )
            read = tuple([numbers[name] if name else None for name in node.input])
            listed.append(
                BodyNode(
                    op,
                    read,
                    tuple([numbers[name] if name else None for name in node.output]),
                    attributes,
                )
            )
        version = next(
            (entry.version for entry in function.opset_import if entry.domain in {"", "ai.onnx"}), 0
        )
        missing = [name for name in function.output if name not in numbers]
        if missing:
            raise ValueError(f'function {function.name}: nothing makes output "{missing[0]}"')
        return cls(
            len(function.input),
            listed,
            [numbers[name] for name in function.output],
            constants,
            version,
        )

    def key(self) -> str:
        """Everything but sizes, as a text."""
        lines = [f"{self.version} {self.inputs} {self.outputs}"]
        for node in self.nodes:
            lines.append(
                f"{node.op} {node.inputs} {node.outputs} {[each.hex() for each in node.attributes]}"
            )
        lines += [
            f"{n} {a.dtype} {a.shape} {a.tobytes().hex()}"
            for n, a in sorted(self.constants.items())
        ]
        return "\n".join(lines)


class Signature(NamedTuple):
    """One input of a body: element type, rank, static axes of 1."""

    dtype: DataType
    rank: int
    ones: tuple[int, ...]

    @classmethod
    def of(cls, known: object) -> Signature | None:
        """From a tensor's type; None where the rank is unknown."""
        if not isinstance(known, TensorType) or known.shape is None:
            return None
        return cls(
            known.dtype,
            len(known.shape),
            tuple(axis for axis, size in enumerate(known.shape) if size == 1),
        )


@dataclass
class DerivedGroup:
    """A function as Generics, from which kernels are made.

    Attributes:
        name: ``<Kernel>_<hash>``.
        inputs: values in the order of the function's inputs.
        outputs: in the order of its outputs.
        unfused: the operations as they are lowered.
        ops: the operations after fusion.
        rules: sizes that are computed from others, by name.
    """

    name: str
    inputs: list[Value]
    outputs: list[Value]
    unfused: list[Op]
    ops: list[Op]
    rules: Mapping[str, Rule]


def derive(body: Body, signature: Sequence[Signature]) -> DerivedGroup:
    """Lower and fuse a body from its inputs' element types and ranks.

    Raises:
        NotLowered: an operator is not lowered where sizes are unknown.
    """
    names = Names()
    values: dict[int, Value] = {}
    for place, given in enumerate(signature):
        shape = [1 if axis in given.ones else names.size() for axis in range(given.rank)]
        values[place] = Value(
            f"input{place}", MLIR_DTYPES.get(given.dtype) or given.dtype.name.lower(), shape
        )
    arrays: dict[int, np.ndarray[Any, Any]] = {}
    for number, array in body.constants.items():
        arrays[number] = array
        dtype = MLIR_DTYPES.get(
            DataType(onnx.helper.np_dtype_to_tensor_dtype(array.dtype)), "unknown"
        )
        shape = [1 if size == 1 else str(size) for size in array.shape]
        values[number] = Value(f"constant{number}", dtype, shape)
        if array.size and array.tobytes() == array.reshape(-1)[:1].tobytes() * array.size:
            values[number].constant = array.reshape(-1)[:1].reshape((1,) * array.ndim)
    ops: list[Op] = []
    for place, node in enumerate(body.nodes):
        outputs = [
            None if number is None else Value(f"value{number}", "") for number in node.outputs
        ]
        inputs = [None if number is None else values[number] for number in node.inputs]
        constants = {
            slot: arrays[number]
            for slot, number in enumerate(node.inputs)
            if number is not None and number in arrays and slot in PARAMETERS.get(node.op, ())
        }
        attributes = _attributes(node.attributes)
        op = OnnxOp(node.op, body.version, inputs, outputs, attributes, constants, place, names)
        try:
            ops += lower(op, _reshape_in_body if node.op == "Reshape" else None)
        except NotLowered as refused:
            refused.place = place
            raise
        values.update(
            {
                n: v
                for n, v in zip(node.outputs, outputs, strict=True)
                if n is not None and v is not None
            }
        )
    outputs = [values[number] for number in body.outputs]
    block = Block(ops, outputs)
    Driver(block, one_use, "refuse", GROUP_COMPANIONS).run()
    fused = block.ops
    content = [body.key(), *map(str, signature), *[_maps(op) for op in fused]]
    digest = hashlib.sha256("\n".join(content).encode()).hexdigest()[:12]
    return DerivedGroup(
        f"{_kernel(body)}_{digest}",
        [values[n] for n in range(body.inputs)],
        outputs,
        ops,
        fused,
        names.rules,
    )


def _reshape_in_body(op: OnnxOp) -> None:
    """As one operation, unless its target shows that it splits the last axis.

    Other sizes do not show which axes it splits or merges.
    """
    try:
        lowerings()["Reshape"](op)
    except NotLowered:
        target = op.parameter(1, "shape")
        if target is None or op.attributes.get("allowzero"):
            raise NotLowered("not-lowered: Reshape with a zero or without a shape") from None
        out = op.single_output()
        op.settle(out, [1 if size == 1 else op.names.size() for size in target], op.input(0).dtype)
        text = ",".join(map(str, target))
        op.made.append(
            Opaque("tensor.reshape", (op.input(0),), (out,), text, op.label, (op.origin,))
        )


def _attributes(serialized: Iterable[bytes]) -> dict[str, Any]:
    entries = map(onnx.AttributeProto.FromString, serialized)
    decoded = {entry.name: onnx.helper.get_attribute_value(entry) for entry in entries}
    return {
        name: value.decode("utf-8", "replace") if isinstance(value, bytes) else value
        for name, value in decoded.items()
    }


def _maps(op: Op) -> str:
    if isinstance(op, Opaque):
        return f"{op.name} {op.attribute}"
    maybe_broadcast = [sorted(axes) for axes in op.maybe_broadcast_axes]
    return f"{' '.join(map(str, op.maps))} {' '.join(op.iterators)} {maybe_broadcast}"


def _kernel(body: Body) -> str:
    """A name that a reader recognizes: at most four operators that compute."""
    ops = [node.op.rpartition("::")[2] for node in body.nodes if node.op not in MOVEMENT] or [
        "Move"
    ]
    return "_".join(ops[:4]) + (f"_and_{len(ops) - 4}" if len(ops) > 4 else "")
