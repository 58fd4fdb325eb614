"""Predicates of both matchers: do parameters, types and elements fit the pattern?"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from typing import Any, Final, TypeAlias

import numpy as np

from gehost.errors import PassError, described
from gehost.es import schemas
from gehost.es.opset import same_parameter
from gehost.es.schemas import Signature
from gehost.ir.effective import default_of, input_default, newest_spelling
from gehost.ir.graph import Graph, Node, Value, by_order
from gehost.ir.region import Region
from gehost.pattern.source import (
    ANY,
    ConstantPattern,
    Constraint,
    Kind,
    OpPattern,
    SourcePattern,
    TensorPattern,
)

ABSENT: Final = object()
UNREADABLE: Final = object()
RANK_OF: Final = "\0rank of "
"""Before a variable's name: the rank to which its axes refer, beside its value."""
_AXES = ("axis", "axes")
_MUST_BE_ABSENT, _BIND, _PREDICATE = Kind.ABSENT, Kind.BIND, Kind.PREDICATE
_AS_ABSENT = Kind.AS_ABSENT
"""Local names, as the lookup of an enum member costs as much as a call, and constraints are checked
at each node.
"""


def parameter(node: Node, name: str, signature: Signature | None) -> Any:
    """Return a parameter's value, an attribute or constant input at this opset.

    A text has the newest opset's spelling, and a reduction over an empty list has no axes.
    It is ``ABSENT`` if the node does not have it, ``UNREADABLE`` if it is an input and not
    constant.
    """
    attribute = name if signature is None else signature.attribute_of(name)
    if attribute is None and signature is not None and name in signature.parameters:
        operand = node.input(signature.parameters[name].slot)
        if operand is None:
            return ABSENT
        array = operand.array
        value = UNREADABLE if array is None else array.tolist()
    else:
        value = node.attrs.get(attribute or name, ABSENT)
    if value == [] and name == "axes" and node.op.startswith("Reduce"):
        return ABSENT  # no axes mean the same as none
    return newest_spelling(node.op, name, value) if type(value) is str else value


def _where_absent(node: Node, name: str, signature: Signature | None) -> Any:
    """Return what counts where a node lacks a parameter; None if nothing says so."""
    attribute = None if signature is None else signature.attribute_of(name)
    if signature is None:
        return None
    if attribute is None:
        if name not in signature.parameters:
            return default_of(node, name)
        default = schemas.newest_default(node.domain, node.op_type, name)
        return input_default(node, name) if default is None else default
    value = signature.attributes[attribute]
    return default_of(node, attribute) if value is None else newest_spelling(node.op, name, value)


def parameter_holds(
    constraint: Constraint, node: Node, signature: Signature | None, bound: dict[str, Any]
) -> bool:
    """Whether a parameter of ``node`` satisfies ``constraint``; BIND writes to ``bound``.

    Raises:
        PassError: an author's condition failed.
    """
    value = parameter(node, constraint.name, signature)
    if value is UNREADABLE:
        return False
    kind = constraint.kind
    if kind is _MUST_BE_ABSENT:
        return value is ABSENT
    if kind is _AS_ABSENT:
        return value is ABSENT or (
            (default := _where_absent(node, constraint.name, signature)) is not None
            and same_parameter(value, default)
        )
    if value is ABSENT:
        value = _where_absent(node, constraint.name, signature)
    if constraint.name == "axis" and signature is not None and signature.flattens:
        # only on the last axis is flattening the same as working on one axis
        first = node.input(0)
        if first is None or not first.rank or value not in (-1, first.rank - 1):
            return False
    if kind is _BIND:
        return _is_bound(constraint, value, node, bound)
    if value is None:
        return False
    if kind is _PREDICATE:
        try:
            return bool(constraint.wanted(value))
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # an author's code may raise anything
            at = f'the condition on {constraint.name} at node "{node.label}" ({node.op})'
            failure = PassError(f"{at}: {described(error)}")
            failure.__cause__ = error  # machine code ignores "raise … from"
            raise failure.with_traceback(error.__traceback__) from error
    expected = constraint.wanted
    if same_parameter(value, expected):
        return True
    return constraint.name in _AXES and _same_axes(value, expected, node)


def _is_bound(constraint: Constraint, value: Any, node: Node, bound: dict[str, Any]) -> bool:
    """Whether a variable has this value; its first use gives it one.

    Axes of tensors of one rank are equal when counted from the front.
    """
    variable = constraint.wanted
    if constraint.name not in _AXES:
        return same_parameter(value, bound.setdefault(variable, value))
    first = node.input(0)
    rank = None if first is None else first.rank
    if variable not in bound:
        bound[variable], bound[RANK_OF + variable] = value, rank
        return True
    other = bound[variable]
    if same_parameter(value, other):
        return True
    same_rank = rank is not None and rank == bound.get(RANK_OF + variable)
    return same_rank and None not in (value, other) and _same_axes(value, other, node)


def _same_axes(value: Any, expected: Any, node: Node) -> bool:
    """Whether axes are equal when counted from the front.

    The order matters, except for operators that take a set of axes.
    """
    first = node.input(0)
    rank = first.rank if first is not None else None
    if rank is None or np.ndim(value) > 1:
        return False
    counted: list[list[int]] = []
    for axes in (value, expected):
        count = schemas.axes_rank(node.op, rank, axes)
        counted.append(
            [int(axis) + count if axis < 0 else int(axis) for axis in np.atleast_1d(axes)]
        )
    here, there = counted
    if node.op.startswith("Reduce") or node.op in ("Squeeze", "Unsqueeze"):
        here.sort()
        there.sort()
    return here == there


def has_other_attributes(op: OpPattern, node: Node) -> bool:
    """Whether a node carries an attribute that the pattern excludes."""
    return op.exact_attributes is not None and not op.exact_attributes.issuperset(node.attrs)


def operand_fits(tensor: TensorPattern | None, value: Value | None) -> bool:
    """Whether a value, without its producer, may stand for an operand.

    For an operand None the value must be absent.
    """
    if tensor is None or tensor is ANY:
        return tensor is ANY or value is None
    return value is not None and tensor_holds(tensor, value)


def is_constrained(tensor: TensorPattern) -> bool:
    """Whether ``tensor_holds`` has anything to check."""
    return any(part is not None for part in (tensor.constant, *tensor.constraints))


Operand: TypeAlias = tuple[int, int, TensorPattern | None, bool]
"""An operand: its index among the values, or -1; its producer if that must not be bound yet, or -1;
its tensor; whether a value is checked against it. A tuple, which machine code unpacks fast.
"""


def operand_of(tensor: TensorPattern | None, source: SourcePattern) -> Operand:
    """Return the constraints of a tensor as an operand."""
    if tensor is None or tensor is ANY:
        return -1, -1, tensor, True
    # with choices, an output that was absent when its producer was bound fits no operand
    producer = tensor.producer if source.has_choices and tensor.producer is not None else -1
    return tensor.index, producer, tensor, is_constrained(tensor)


def no_more_inputs(op: OpPattern) -> Callable[[Node], bool]:
    """Return the check that a node has only the pattern's inputs.

    Slots that other opsets hold in an attribute do not count.
    """
    count = len(op.inputs)
    allowed: dict[str, set[int]] = {}
    for op_name, signature in op.ops.items():
        parameters = {} if signature is None else signature.parameters
        allowed[op_name] = {
            parameter.slot
            for name, parameter in parameters.items()
            if signature is not None and parameter.slot >= count and name in signature.migrating
        }

    def check(node: Node) -> bool:
        inputs, open_slots = node.inputs, allowed[node.op]
        for slot in range(count, len(inputs)):
            if inputs[slot] is not None and slot not in open_slots:
                return False
        return True

    return check


def required_operands(op: OpPattern) -> int:
    """Return the number of operands that must be present."""
    return sum(tensor is not None and tensor is not ANY for tensor in op.inputs)


def equal_operands(op: OpPattern, source: SourcePattern) -> list[int]:
    """Return for each operand the first one equal to it, or itself.

    Two operands are equal if no part of the pattern distinguishes them: placeholders with the same
    constraints that nothing else reads, operands without constraints, and absent ones.
    """
    reads: dict[int, int] = {}
    for tensor in (operand for reader in source.ops for operand in reader.inputs):
        if tensor is not None:
            reads[tensor.index] = reads.get(tensor.index, 0) + 1
    for choice in source.tensors:
        for option in choice.options:
            reads[option] = reads.get(option, 0) + 1
    firsts: dict[object, int] = {}
    equals: list[int] = []
    for position, tensor in enumerate(op.inputs):
        key: object = position
        if tensor is None or tensor is ANY:
            key = tensor is None
        elif tensor.is_input and reads[tensor.index] == 1:
            key = tensor.constraints
        equals.append(firsts.setdefault((type(key), key), position))
    return equals


def rivals_of(source: SourcePattern) -> dict[frozenset[str], Sequence[int]]:
    """Return operators that may fit the same nodes, by operators' names."""
    by_name: dict[str, list[int]] = {}
    for op in source.ops:
        for name in op.ops:
            by_name.setdefault(name, []).append(op.index)
    return {
        names: sorted({index for name in names for index in by_name[name]})
        for names in {frozenset(op.ops) for op in source.ops}
    }


def slots_to_try(equals: Sequence[int], used: Sequence[int], inputs: Sequence[object]) -> list[int]:
    """Return the inputs to try for operand ``len(taken)``.

    Equal operands (``equal_operands``) take inputs in ascending order only, and of equal inputs one
    is tried, as any other order is the same match: without this, eight placeholders would have
    40,320 orders.
    """
    position = len(used)
    first = equals[position]
    previous = max((used[at] for at in range(position) if equals[at] == first), default=-1)
    others = sum(equals[at] != first for at in range(position + 1, len(equals)))
    slots: list[int] = []
    tried: set[object] = set()
    passed_over = 0
    for slot in range(len(equals)):
        if slot in used:
            continue
        if passed_over > others:  # no operand would be left for the inputs passed over
            break
        passed_over += 1
        if slot > previous and inputs[slot] not in tried:
            tried.add(inputs[slot])
            slots.append(slot)
    return slots


def is_output(value: Value, ops: Container[str], slot: int) -> bool:
    """Whether a value is output ``slot`` of one of ``ops``."""
    node = value.producer
    return node is not None and node.op in ops and value.index == slot


def counted_ops(op: OpPattern) -> frozenset[str]:
    """Return operators whose nodes must have the pattern's number of outputs."""
    return frozenset(
        name
        for name, signature in op.ops.items()
        if signature is not None and signature.variadic_outputs
    )


def output_fits(value: Value | None, bound: Value | None, *, needed: bool) -> bool:
    """Whether an output may stand for a tensor, perhaps bound to ``bound``.

    With ``needed`` the output must be there.
    """
    return value is bound if bound is not None else value is not None or not needed


def outside_readers(value: Value, inside: Container[Node | Graph | None]) -> list[Node | Graph]:
    """Return an inner tensor's outside readers, each forbidding the match."""
    return [reader for reader in value.readers if reader not in inside]


def cyclic_region(
    source: SourcePattern,
    graph: Graph,
    nodes: Iterable[Node],
    values: Sequence[Value | None] | Mapping[int, Value | None],
) -> Region | None:
    """Return a match's region if it would feed itself.

    The match is complete, and the region counts as one node.

    With a single output it cannot.
    """
    outputs = [value for index in source.outputs if (value := values[index]) is not None]
    if len(outputs) < 2:
        return None
    inputs = [values[index] for index in source.inputs]
    region = Region(graph, inputs, outputs, sorted(nodes, key=by_order))
    return region if region.closes_cycle() else None


def tensor_holds(pattern: TensorPattern, value: Value) -> bool:
    """Whether a value is known to fit dtype, rank, shape and elements."""
    if pattern.constant is not None:
        return constant_holds(pattern.constant, value)
    if pattern.dtype is not None and value.dtype != pattern.dtype:
        return False
    if pattern.rank is not None and value.rank != pattern.rank:
        return False
    if pattern.shape is not None:
        shape = value.shape
        return shape is not None and all(
            want is None or want == size for want, size in zip(pattern.shape, shape, strict=True)
        )
    return True


def constant_holds(pattern: ConstantPattern, value: Value) -> bool:
    """Whether a value is a constant with the wanted elements."""
    if not value.is_constant:
        return False
    if pattern.array is None:
        return True
    anywhere = pattern.by_value and pattern.array.ndim == 0
    if value.rank is not None and not anywhere and pattern.array.shape != value.shape:
        return False  # without reading a constant that may be large
    array = value.array
    if array is None:
        return False
    if pattern.by_value:
        return _equal_by_value(pattern, array)
    if array.dtype != pattern.array.dtype or array.shape != pattern.array.shape:
        return False
    if pattern.rtol or pattern.atol:
        return bool(
            np.allclose(
                _comparable(array), _comparable(pattern.array), rtol=pattern.rtol, atol=pattern.atol
            )
        )
    return array.tobytes() == pattern.array.tobytes()


def _comparable(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    return array.astype(np.complex128 if array.dtype.kind == "c" else np.float64)


def _equal_by_value(pattern: ConstantPattern, array: np.ndarray[Any, Any]) -> bool:
    """Whether ``array`` equals the literal in its own dtype.

    A single number fits any shape.
    """
    if array.size == 0 or array.dtype == object:
        return False
    literal = pattern.in_dtype(array.dtype)
    if literal is None:
        return False
    if array.size == 1 and literal.ndim == 0:
        one, other = array.item(), literal.item()
        return bool(one == other or (np.isnan(one) and np.isnan(other)))
    if literal.ndim == 0:
        # The first element nearly always decides, so that large weights are not read any further.
        return _same(array.reshape(-1)[:1], literal) and _same(array, literal)
    return array.shape == literal.shape and _same(array, literal)


def _same(array: np.ndarray[Any, Any], literal: np.ndarray[Any, Any]) -> bool:
    equal = array == literal
    if not np.all(equal) and literal.dtype.kind not in "biu":
        equal |= np.isnan(array) & np.isnan(literal)
    return bool(np.all(equal))
