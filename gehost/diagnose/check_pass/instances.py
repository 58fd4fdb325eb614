"""Random instances of a pattern: small models, drawn operator by operator.

A placeholder gets its type when the first operator that reads it is built, given the operands known
by then. An operator that inference refuses is drawn again; after too many tries the instance is
dropped. The host decides whether the pass accepts an instance.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

import numpy as np
import onnx

from gehost.diagnose.check_pass.assemble import Application, array_of, assemble, node_proto
from gehost.diagnose.check_pass.candidates import (
    DTYPES,
    INDEX_TYPES,
    SIZES,
    fresh_shape,
    numbers,
    numbers_like,
    one_of,
    pick,
    shape_beside,
)
from gehost.diagnose.check_pass.constraints import (
    RANKS,
    divisible,
    is_positive,
    make_consistent,
    wanted_list,
    wanted_shape,
)
from gehost.diagnose.check_pass.parameters import NoInstance, Parameters
from gehost.diagnose.check_pass.shapes import shape_fault
from gehost.errors import VendorError
from gehost.es import schemas
from gehost.es.graph import Draft, EsChoice, EsConst, EsGraph, EsInput, EsNode, EsTensor, in_dtype
from gehost.infer import Inferrer
from gehost.infer.local import array_type
from gehost.ir import tensors
from gehost.ir.graph import split_op
from gehost.ir.model import Model
from gehost.ir.types import DataType, Dim, TensorType, ValueType
from gehost.ops import OpRegistry
from gehost.pattern.source import ANY, OpPattern, SourcePattern, TensorPattern
from gehost.refusal import Refused
from gehost.rewrite.functions import op_with_body
from gehost.rewrite.lower import lower_node

_TRIES = 24
"""Number of draws of one operator before the instance is dropped."""
_MOST_ELEMENTS = 20_000
_CONSTANT = (0.3, 0.3, 0.6, 1.0)
"""Possible shares of constants among placeholders; an instance has one. 1.0 is for passes that
compute new weights: all but the first placeholder are constants.
"""
_OTHER_TYPE = 0.3
"""Share of similar instances with another element type instead of other shapes."""
_OTHER_DTYPE = 0.15
"""Probability of an operand's own dtype, where it may differ from the first one's."""
_FITTING = 0.9
"""Probability that an operand has the shape that the operator needs beside the others."""
_ONES = 0.5
"""Probability that the operand of an Expand is a single number."""
_ONE = 0.25
"""Probability that a constant beside other operands is a single number: an epsilon, a factor."""
_VARIED = 0.3
"""Probability that a constant differs from the author's, where any constant matches."""


Constants: TypeAlias = Mapping[int, np.ndarray[Any, Any]]


@dataclass(frozen=True, slots=True)
class Operand:
    """The value of a placeholder.

    It is an input of the model, or a constant.
    """

    type: TensorType
    constant: bool
    positive: bool = False
    """The numbers are above zero."""
    values: tuple[int, ...] | None = None
    """The elements of a list that an operator needs (target shape, axes); None for any."""

    def __str__(self) -> str:
        text = "" if self.values is None else f" {list(self.values)}"
        return f"{'constant ' if self.constant else ''}{self.type}{text}"


@dataclass(frozen=True, slots=True)
class Draw:
    """The choices of an instance, for reuse.

    Attributes:
        operands: the value of each placeholder; None: to be drawn.
        parameters: those that the pattern does not constrain, by number of the operator and name;
            None: all to be drawn.
        ops: the pattern's operators; the parameters and constants are only valid for these.
        constants: the numbers of the pattern's own constants that may differ from the author's,
            by number of the tensor.
    """

    operands: tuple[Operand | None, ...] = ()
    parameters: Mapping[tuple[int, str], Any] | None = None
    ops: tuple[str, ...] = ()
    constants: Mapping[int, np.ndarray[Any, Any]] = field(
        default_factory=dict[int, np.ndarray[Any, Any]]
    )

    @property
    def features(self) -> list[tuple[Any, ...]]:
        """The ranks of all operands, their element types, and which of them are constants."""
        present = [op for op in self.operands if op is not None]
        return [
            ("ranks", *[op.type.rank for op in present]),
            ("dtypes", *[op.type.dtype for op in present]),
            ("constants", *[op.constant for op in present]),
        ]

    def reopened(self, rng: np.random.Generator) -> Draw:
        """Return the choices but one operand: open, or a constant instead of an input or back."""
        operands = list(self.operands)
        if operands:
            number = int(rng.integers(len(operands)))
            op = operands[number]
            fixed = op is None or op.values is not None or op.type.size is None
            if op is None or fixed or rng.random() < 0.5:
                operands[number] = None
            else:
                operands[number] = replace(op, constant=not op.constant)
        return replace(self, operands=tuple(operands))

    def varied(self, rng: np.random.Generator) -> Draw:
        """Return the choices with other shapes, or another element type, of all operands."""
        operands = list(self.operands)
        present = [op for op in operands if op is not None]
        change = _other_shape(rng, [op.type.shape or () for op in present])
        dtype = pick(rng, DTYPES)
        other_type = rng.random() < _OTHER_TYPE
        for number, op in enumerate(operands):
            if op is None or op.values is not None:
                continue
            if not other_type:
                kind = TensorType(op.type.dtype, change(op.type.shape or ()))
            elif op.type.dtype is present[0].type.dtype:
                kind = TensorType(dtype, op.type.shape)
            else:
                continue
            operands[number] = replace(op, type=kind)
        return replace(self, operands=tuple(operands))


@dataclass(frozen=True)
class Instance:
    """A model that a pattern should match.

    Attributes:
        model: the pattern's nodes; its placeholders are inputs and initializers, its outputs
            the outputs.
        opset: of ONNX's own domain.
        drawn: the choices it was built from.
    """

    model: onnx.ModelProto
    opset: int
    drawn: Draw
    name: str = ""
    """The name of an instance that the pass offers; "" for others."""

    def __str__(self) -> str:
        if self.name:
            return self.name
        params = [f"{name}={value}" for (_, name), value in (self.drawn.parameters or {}).items()]
        return ", ".join([f"opset {self.opset}", *map(str, self.drawn.operands), *params])


def empty_model(opset: int) -> Model:
    """Return a model of an opset without nodes, for building patterns."""
    imports = [onnx.helper.make_opsetid("", opset), onnx.helper.make_opsetid("ai.onnx.ml", 2)]
    graph = onnx.helper.make_graph([], "instance", [], [])
    newest = onnx.helper.find_min_ir_version_for([imports[0]], ignore_unknown=True)
    return Model(onnx.helper.make_model(graph, opset_imports=imports, ir_version=max(8, newest)))


def draw(
    source: SourcePattern,
    opset: int,
    registry: OpRegistry,
    rng: np.random.Generator,
    like: Draw | None = None,
) -> Instance:
    """Draw an instance of a pattern.

    Args:
        source: the pattern at ``opset``, without its further variants.
        opset: of the instance.
        registry: the custom operators.
        rng: chooses types, constants and attributes.
        like: choices of another instance, reused where the pattern accepts them.

    Raises:
        NoInstance: an operator accepted none of the operands tried.
    """
    return _Drawing(source, opset, registry, rng, like or Draw()).instance()


class _Drawing:
    def __init__(
        self,
        source: SourcePattern,
        opset: int,
        registry: OpRegistry,
        rng: np.random.Generator,
        like: Draw,
    ) -> None:
        self._source = source
        self._opset = opset
        self._registry = registry
        self._rng = rng
        self._model = empty_model(opset)
        self._inferrer = Inferrer(self._model, registry)
        self._draft = EsGraph("instance").draft
        self._sizes = one_of(rng, SIZES)
        self._constant_share = one_of(rng, _CONSTANT)
        self._op = ""
        remembered = zip(source.inputs, like.operands, strict=False)
        self._like = {index: operand for index, operand in remembered if operand is not None}
        self._ops = tuple(op.label for op in source.ops)
        self._parameters = Parameters(
            self._model, rng, like.parameters if like.ops == self._ops else None
        )
        self._like_constants = like.constants if like.ops == self._ops else Draw().constants
        self._constants: dict[int, np.ndarray[Any, Any]] = {}
        first = next(iter(self._like.values()), None)
        self._dtype = _dtype_for(source, rng) if first is None else first.type.dtype
        self._operands: dict[int, Operand] = {}
        self._tensors: dict[int, EsTensor] = {}
        """The tensor of the instance for each tensor of the pattern."""
        self._types: dict[tuple[int, int], ValueType | None] = {}
        self._arrays: dict[int, np.ndarray[Any, Any]] = {}
        """The lists at placeholders, by their producers, for inference."""
        self._written: list[Application] = []

    def instance(self) -> Instance:
        for op, node in zip(self._source.ops, self._source.nodes, strict=True):
            self._build(op, node)
        operands = tuple([self._operands.get(index) for index in self._source.inputs])
        draw_ = Draw(operands, self._parameters.chosen, self._ops, self._constants)
        inputs_ = [
            (self._tensors[index], self._type_or_numbers(self._operands[index]))
            for index in self._source.inputs
            if index in self._tensors  # an option that was not drawn may read it alone
        ]
        outputs: list[tuple[EsTensor, TensorType]] = []
        for tensor in (self._tensors[index] for index in self._source.outputs):
            type_ = self._type_of(tensor)
            if not isinstance(type_, TensorType) or not type_.dtype:
                raise NoInstance("the type of an output is not known")
            outputs.append((tensor, type_))
        return Instance(assemble(self._model, inputs_, self._written, outputs), self._opset, draw_)

    # one operator

    def _build(self, op: OpPattern, node: EsNode) -> None:
        """Draw an operator, its operands and attributes until inference accepts it."""
        refusal: Exception | None = None
        for _ in range(_TRIES):
            before = (
                dict(self._operands),
                dict(self._tensors),
                dict(self._types),
                dict(self._arrays),
                self._parameters.copy(),
            )
            try:
                self._draw_op(op, node)
            except (Refused, NoInstance, VendorError) as error:
                refusal = error
                self._operands, self._tensors, self._types, self._arrays, self._parameters = before
                if self._rng.random() < 0.5:  # the reused choices may not fit this pattern
                    self._like, self._like_constants = {}, Draw().constants
                    self._parameters.like = None
            else:
                return
        text = refusal.refusal.message if isinstance(refusal, Refused) else refusal
        raise NoInstance(f"{op.label} cannot be built: {text}") from refusal

    def _draw_op(self, op: OpPattern, node: EsNode) -> None:
        name = self._op = one_of(self._rng, list(op.ops))
        signature = op.ops[name]
        if signature is None or not signature.parameters:
            signature = None
        slots = [
            op.inputs[slot] if slot < len(op.inputs) else ANY for slot in range(len(node.inputs))
        ]
        inputs: list[EsTensor | None] = [
            self._tensors.get(slot_pattern.index)
            if slot_pattern is not None and tensor is not None
            else None
            for slot_pattern, tensor in zip(slots, node.inputs, strict=True)
        ]
        for pick_constants in (False, True):  # constants take the dtype of the other inputs
            for slot, (slot_pattern, tensor) in enumerate(zip(slots, node.inputs, strict=True)):
                if tensor is None or slot_pattern is None or inputs[slot] is not None:
                    continue
                if slot_pattern is ANY:  # a number that is an attribute at this opset
                    inputs[slot] = EsTensor(_constant_of(tensor, self._draft))
                elif (slot_pattern.constant is not None) is pick_constants:
                    if slot_pattern.index not in self._tensors:  # it may be at two inputs
                        self._tensors[slot_pattern.index] = self._operand(
                            slot_pattern, tensor, slot, signature, inputs
                        )
                    inputs[slot] = self._tensors[slot_pattern.index]
        if op.commutative and all(inputs) and self._rng.random() < 0.5:
            inputs.reverse()
        first = next(
            (
                shape
                for tensor in inputs
                if tensor is not None and (shape := self._shape(tensor)) is not None
            ),
            None,
        )
        params = self._parameters.of(op, node, name, None if first is None else len(first))
        shapes = [None if tensor is None else self._shape(tensor) for tensor in inputs]
        fixed = {constraint.name for constraint in op.constraints} | node.params.keys()
        make_consistent(name, params, frozenset(fixed), shapes)
        self._parameters.agree(op.index, params, fixed)
        built = EsNode(
            self._draft, (name,), inputs, params, node.origin, node.count, node.open_slots
        )
        self._write(built)
        for pattern in op.outputs:
            self._tensors[pattern.index] = EsTensor(built, pattern.slot)

    def _write(self, node: EsNode) -> None:
        lowered = lower_node(node, self._model, self._registry, self._type_of)
        types: list[ValueType | None] = []
        arrays: list[np.ndarray[Any, Any] | None] = []
        for operand in lowered.inputs:
            if isinstance(operand, EsTensor):
                array = self._arrays.get(id(operand.producer))
                types.append(self._type_of(operand))
                arrays.append(array_of(operand) if array is None else array)
            else:
                types.append(None if operand is None else array_type(operand))
                arrays.append(operand)
        op = lowered.op
        if schemas.operator(*split_op(op)) is None:
            present = [operand is not None for operand in lowered.inputs]
            op = (
                op_with_body(
                    op,
                    types,
                    lowered.attributes,
                    self._model,
                    self._registry,
                    self._inferrer,
                    present,
                )
                or op
            )
            self._model.import_domain(split_op(op)[0], 1)
        read = [
            "" if operand is None else f"x{slot}" for slot, operand in enumerate(lowered.inputs)
        ]
        proto = node_proto(lowered, op, read, [f"y{slot}" for slot in range(len(node.outputs))])
        shapes = [type_.shape if isinstance(type_, TensorType) else None for type_ in types]
        fault = shape_fault([proto], dict(zip(read, shapes, strict=True)))
        if fault:
            raise NoInstance(fault)
        for tensor, type_ in zip(
            node.outputs, self._inferrer.proto(op, proto, types, arrays), strict=True
        ):
            if isinstance(type_, TensorType) and (type_.size or 0) > _MOST_ELEMENTS:
                raise NoInstance(f"{type_} is too large")
            self._types[id(node), tensor.index] = type_
        self._written.append(Application(lowered, op, node.outputs))

    def _type_of(self, tensor: EsTensor) -> ValueType | None:
        if isinstance(tensor.producer, EsConst):
            return array_type(tensor.producer.array)
        return self._types.get((id(tensor.producer), tensor.index))

    # operands

    def _operand(
        self,
        pattern: TensorPattern,
        tensor: EsTensor,
        slot: int,
        signature: schemas.Signature | None,
        inputs: Sequence[EsTensor | None],
    ) -> EsTensor:
        """Return input ``slot``, a placeholder or constant, beside known inputs."""
        beside = self._dtype_beside(slot, signature, inputs)
        if pattern.constant is not None:
            return EsTensor(self._constant(pattern, _constant_of(tensor, self._draft), beside))
        operand = self._like.get(pattern.index) or self._draw_operand(
            pattern, slot, signature, inputs, beside
        )
        producer = EsInput(
            self._draft,
            len(self._operands),
            self._source.origin,
            f"input{self._source.inputs.index(pattern.index)}",
        )
        self._operands[pattern.index] = operand
        self._types[id(producer), 0] = operand.type
        if operand.values is not None:
            self._arrays[id(producer)] = np.asarray(operand.values, operand.type.dtype.numpy)
        return EsTensor(producer)

    def _dtype_beside(
        self, slot: int, signature: schemas.Signature | None, inputs: Sequence[EsTensor | None]
    ) -> DataType | None:
        """Return the dtype that ``slot`` shares with another input.

        Returns None if it is not known.
        """
        own = None if signature is None else signature.parameter_at(slot)
        for position, tensor in enumerate(inputs):
            if tensor is None:
                continue
            literal = isinstance(tensor.producer, EsConst) and tensor.producer.literal
            type_ = self._type_of(tensor)
            if literal or not isinstance(type_, TensorType) or not type_.dtype:
                continue
            other = None if signature is None else signature.parameter_at(position)
            if own is None or (other is not None and other.type_name == own.type_name):
                return type_.dtype
        return None

    def _dtype_of_first(self, inputs: Sequence[EsTensor | None]) -> DataType | None:
        """Return the first input's dtype, which others mostly share, or None."""
        type_ = self._type_of(inputs[0]) if inputs and inputs[0] is not None else None
        if not isinstance(type_, TensorType) or self._rng.random() < _OTHER_DTYPE:
            return None
        return type_.dtype or None

    def _constant(
        self, pattern: TensorPattern, constant: EsConst, beside: DataType | None
    ) -> EsConst:
        assert pattern.constant is not None
        if pattern.constant.by_value or pattern.constant.array is not None:
            return constant
        array = self._like_constants.get(pattern.index, constant.array)
        if self._rng.random() < _VARIED:
            array = one_of(self._rng, numbers_like(self._rng, constant.array))
        self._constants[pattern.index] = array
        cast = array if beside is None else in_dtype(array, beside.numpy)
        if cast is None:
            raise NoInstance(
                f"the constant {constant.array.tolist()} is not a value of "
                f"{(beside or DataType.UNDEFINED).name.lower()}"
            )
        return EsConst(self._draft, cast, constant.origin)

    def _draw_operand(
        self,
        pattern: TensorPattern,
        slot: int,
        signature: schemas.Signature | None,
        inputs: Sequence[EsTensor | None],
        beside: DataType | None,
    ) -> Operand:
        rng = self._rng
        parameter = None if signature is None else signature.parameter_at(slot)
        allowed = frozenset(DTYPES) if parameter is None else parameter.dtypes
        dtype = pattern.dtype or beside or self._dtype_of_first(inputs) or self._dtype
        # the neighbours' type need not be one of this operator's: an index beside floats
        if dtype not in allowed:
            common = [types for types in DTYPES if types in allowed]
            if not common:
                raise NoInstance(f"input {slot} accepts none of the element types that are tried")
            dtype = one_of(rng, common)
        types = [
            shape
            for tensor in inputs
            if tensor is not None and (shape := self._shape(tensor)) is not None
        ]
        shape = (
            shape_beside(rng, types, self._sizes)
            if types
            else fresh_shape(rng, self._sizes, pattern.rank)
        )
        shapes = [None if tensor is None else self._shape(tensor) for tensor in inputs]
        # mostly a shape that the operator accepts, at times any: a pass may match both
        fitting = wanted_shape(rng, self._op, slot, shapes)
        if rng.random() < _FITTING:
            if fitting is not None:
                shape = fitting
            elif not types and slot == 0 and self._op in RANKS:
                shape = fresh_shape(rng, self._sizes, one_of(rng, RANKS[self._op]))
                shape = divisible(self._op, shape)
            elif not types and slot == 0 and self._op == "Expand" and rng.random() < _ONES:
                shape = (1,) * len(shape)
        # what the pattern states wins over what fits
        if pattern.rank not in (None, len(shape)):
            shape = fresh_shape(rng, self._sizes, pattern.rank)
        if pattern.shape is not None:
            shape = tuple(
                declared if declared is not None else extent
                for declared, extent in zip(pattern.shape, shape, strict=True)
            )
        index = parameter is not None and parameter.dtypes <= INDEX_TYPES
        values = wanted_list(rng, self._op, slot, shapes) if index else None
        if (
            values is not None
            and rng.random() < _FITTING
            and pattern.rank in (None, 1)
            and pattern.shape in (None, (None,), (len(values),))
        ):
            return Operand(TensorType(dtype, (len(values),)), constant=True, values=values)
        # not all operands are constant: the clean-up would fold the node before the pass sees it
        share = self._constant_share if self._operands or self._constant_share < 1 else 0.0
        constant = rng.random() < (max(0.8, share) if index else share) and all(
            isinstance(size, int) for size in shape
        )
        # scalars and [1] both broadcast, and passes may confuse them
        if constant and types and fitting is None and pattern.rank is None and rng.random() < _ONE:
            shape = one_of(rng, [(), (1,)])
        return Operand(TensorType(dtype, shape), constant, is_positive(self._op, slot))

    def _shape(self, tensor: EsTensor) -> tuple[Any, ...] | None:
        type_ = self._type_of(tensor)
        return type_.shape if isinstance(type_, TensorType) else None

    def _type_or_numbers(self, operand: Operand) -> TensorType | np.ndarray[Any, Any]:
        """Return the type of an input, or the numbers of a constant."""
        if not operand.constant or operand.type.shape is None:
            return operand.type
        if operand.values is not None:
            return np.asarray(operand.values, operand.type.dtype.numpy)
        shape = [size for size in operand.type.shape if isinstance(size, int)]
        array = numbers(self._rng, operand.type.dtype, shape)
        return np.abs(array) + array.dtype.type(0.1) if operand.positive else array


def _other_shape(
    rng: np.random.Generator, shapes: Sequence[tuple[Dim, ...]]
) -> Callable[[tuple[Dim, ...]], tuple[Dim, ...]]:
    """Return a change of the shapes of all operands that may keep them consistent."""
    most = max([len(shape) for shape in shapes], default=0)
    sizes = sorted({size for shape in shapes for size in shape if isinstance(size, int)})
    new = int(rng.integers(1, 6))
    way = rng.integers(3)
    if way == 1 and sizes:
        old = one_of(rng, sizes)
        return lambda shape: tuple([new if size == old else size for size in shape])
    if way == 2:
        return lambda shape: shape[1:] if len(shape) == most else shape
    return lambda shape: (new, *shape) if len(shape) == most else shape


def _dtype_for(source: SourcePattern, rng: np.random.Generator) -> DataType:
    """Return a dtype for most operands.

    It is one that the pattern names, or a float for fractions.
    """
    named = [tensor.dtype for tensor in source.tensors if tensor.dtype is not None]
    exact = [
        tensor.constant.array
        for tensor in source.tensors
        if tensor.constant and not tensor.constant.by_value
    ]
    named += [DataType(tensors.elem_type(array.dtype)) for array in exact if array is not None]
    if named and rng.random() < 0.9:
        return one_of(rng, named)
    arrays = [array_of(tensor) for node in source.nodes for tensor in node.inputs]
    if any(
        array is not None and array.dtype.kind == "f" and np.any(array != np.round(array))
        for array in arrays
    ):
        return pick(rng, {dtype: weight for dtype, weight in DTYPES.items() if dtype.is_float})
    return pick(rng, DTYPES)


def _constant_of(tensor: EsTensor, draft: Draft) -> EsConst:
    """Return the author's constant, also inside alternatives."""
    producer: Any = tensor.producer
    while isinstance(producer, EsChoice):
        producer = next(
            (o.producer for o in producer.options if isinstance(o.producer, EsConst | EsChoice)),
            producer.options[0],
        )
    assert isinstance(producer, EsConst)
    return EsConst(draft, producer.array, producer.origin, literal=producer.literal)
