"""Small changes of a model.

A pass must refuse the changed model or rewrite it correctly.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import onnx
import onnx.shape_inference

from gehost.activity import INFERENCE, running
from gehost.diagnose.check_pass.candidates import DTYPES, numbers, one_of
from gehost.diagnose.check_pass.coverage import Form
from gehost.diagnose.check_pass.forms import (
    Change,
    NodeForm,
    attributes_together,
    in_turn,
    node_forms,
    optional_inputs,
    optional_outputs,
    other_attributes,
    other_opsets,
    reshaping,
)
from gehost.diagnose.check_pass.shapes import shape_fault
from gehost.ir import tensors
from gehost.ir.types import DataType, Dim, TensorType, decode_type, dtype_from_number, encode_type


@dataclass(frozen=True)
class Mutation:
    """One change of a model.

    Attributes:
        kind: its category.
        what: a description of the change.
        apply: changes a model in place; any model with the nodes and tensors of the original.
        typed: whether the changed model states the types of its inner tensors.
        others: other ways, tried in order where the result of ``apply`` does not run.
        form: the form of an operator that it shows; None if it shows none.
        node: the number of the node that it changes, if it names parts.
        parts: attributes and optional inputs that it changes, named as in a form.
    """

    kind: str
    what: str
    apply: Change
    typed: bool = True
    others: Sequence[Change] = ()
    form: Form | None = None
    node: int = 0
    parts: Sequence[str] = ()


def mutations(model: onnx.ModelProto, rng: np.random.Generator) -> list[Mutation]:
    """Return the single changes of a model to try, kinds alternating.

    Attributes, which patterns do not constrain by default, are changed a second time in a model
    whose sizes are all equal: wrong shapes do not reveal errors there.
    """
    attributes, options = _forms(model, rng)
    kinds = (
        attributes,
        options,
        _constants(model, rng),
        (
            Mutation("opset", f"at opset {opset}", change, form=form)
            for opset, form, change in other_opsets(model)
        ),
        readers(model),
        _shapes(model, rng),
        _dtypes(model),
        _operands(model, rng),
        (
            Mutation("place", "with a Neg before each input", _op_before_inputs("Neg", model)),
            Mutation("place", "with a Neg behind each output", _op_after_outputs("Neg", model)),
        ),
    )
    groups = [_shuffled(list(kind), rng) for kind in kinds]  # each uses rng when it is listed
    equal = Mutation(
        "attribute",
        _EQUAL,
        reshaping(
            {n: _WHOLE[_EQUAL](t.shape) for n, t in _operand_types(model).items() if t.shape}
        ),
    )
    groups.append(
        [
            replace(
                both(equal, mutation), form=mutation.form, node=mutation.node, parts=mutation.parts
            )
            for mutation in _shuffled(groups[0], rng)
        ]
    )
    return [
        mutation
        for turn in itertools.zip_longest(*groups)
        for mutation in turn
        if mutation is not None
    ]


def both(first: Mutation, second: Mutation) -> Mutation:
    """Return the two changes in sequence.

    The kind is that of the second one.
    """
    ways = [in_turn(first.apply, way) for way in (second.apply, *second.others)]
    return Mutation(
        second.kind,
        f"{first.what}; {second.what}",
        ways[0],
        first.typed and second.typed,
        ways[1:],
    )


def mutated(
    model: onnx.ModelProto, mutation: Mutation, name: str = ""
) -> Iterator[onnx.ModelProto]:
    """Yield a changed copy of a model for each way of a mutation that gives a valid one.

    Its types are inferred, unless the mutation wants none. Whoever watches gets ``name``: a fault
    of ONNX's inference may end the process.
    """
    for way in (mutation.apply, *mutation.others):
        copy = onnx.ModelProto()
        copy.CopyFrom(model)
        try:
            way(copy)
            with running(INFERENCE, name):
                inferred = typed(copy)
        # the first of two changes removed a part that the second one changes
        except (KeyError, ValueError, IndexError):
            continue
        if inferred is None or shape_fault(inferred.graph.node, _shapes_of(inferred)):
            continue
        if not mutation.typed:
            del inferred.graph.value_info[:]
        yield inferred


def _shapes_of(model: onnx.ModelProto) -> dict[str, tuple[Dim, ...] | None]:
    """Return the stated shape of each tensor."""
    graph = model.graph
    shapes: dict[str, tuple[Dim, ...] | None] = {}
    for value in (*graph.input, *graph.value_info, *graph.output):
        type_ = decode_type(value.type)
        shapes[value.name] = type_.shape if isinstance(type_, TensorType) else None
    return shapes | {tensor.name: tuple(tensor.dims) for tensor in graph.initializer}


def typed(model: onnx.ModelProto) -> onnx.ModelProto | None:
    """Return the model with new inferred types.

    An output that a vendor's operator makes keeps its element type and rank.
    Returns None if inference or the checker refuses it.
    """
    del model.graph.value_info[:]
    types = [onnx.TypeProto.FromString(one.type.SerializeToString()) for one in model.graph.output]
    for output in model.graph.output:
        output.ClearField("type")
    try:
        inferred = onnx.shape_inference.infer_shapes(
            model, check_type=True, strict_mode=True, data_prop=True
        )
        for output, type_ in zip(inferred.graph.output, types, strict=True):
            if not output.type.WhichOneof("value"):
                for dim in type_.tensor_type.shape.dim:
                    dim.Clear()
                output.type.CopyFrom(type_)
        onnx.checker.check_model(inferred)  # pyright: ignore[reportUnknownMemberType] - onnx leaves PathLike's parameter open
    except (onnx.shape_inference.InferenceError, onnx.checker.ValidationError, RuntimeError):
        return None
    return inferred


def _shuffled(mutations_: list[Mutation], rng: np.random.Generator) -> list[Mutation]:
    return [mutations_[position] for position in rng.permutation(len(mutations_))]


# forms of operators, and constants


def _forms(
    model: onnx.ModelProto, rng: np.random.Generator
) -> tuple[list[Mutation], list[Mutation]]:
    """Return each operator's other attributes, and its other optional inputs and outputs."""
    attributes: list[Mutation] = []
    options: list[Mutation] = []
    types = _types(model)
    for of in node_forms(model, types, _operand_types(model)):
        op = of.node.op_type
        for what, form, ways in other_attributes(of, rng):
            change = f"{op}: {what}"
            attributes.append(_in_ways("attribute", change, ways, form, of, (form.feature,)))
        for parts, what, form, change in attributes_together(of):
            attributes.append(_in_ways("attribute", f"{op}: {what}", [change], form, of, parts))
        for what, form, ways in optional_inputs(of, rng):
            if ways:
                parts = (form.feature,)
                options.append(_in_ways("option", f"{op}: {what}", ways, form, of, parts))
        for what, form, ways in optional_outputs(of):
            options.append(_in_ways("option", f"{op}: {what}", ways, form, of, ()))
    return attributes, options


def _in_ways(
    kind: str, what: str, ways: Sequence[Change], form: Form, of: NodeForm, parts: Sequence[str]
) -> Mutation:
    return Mutation(
        kind, what, ways[0], others=ways[1:], form=form, node=of.number, parts=tuple(parts)
    )


def _constants(model: onnx.ModelProto, rng: np.random.Generator) -> Iterator[Mutation]:
    """Yield changes of each constant.

    A constant gets other numbers or another shape, or becomes an input or an overridable one.
    """
    for tensor in model.graph.initializer:
        array = tensors.to_numpy(tensor, None)
        for what, other in _other_numbers(array, rng):
            yield _with_constant(tensor.name, what, other)
        if array.ndim == 0:
            for shape in ((1,), (2,), (3, 1), (1,) * 6):
                yield _with_constant(tensor.name, f"of shape {list(shape)}", np.full(shape, array))
        kind = TensorType(dtype_from_number(tensor.data_type), tuple(tensor.dims))
        yield _as_input(tensor.name, kind, overridable=False)
        yield _as_input(tensor.name, kind, overridable=True)


def _other_numbers(
    array: np.ndarray[Any, Any], rng: np.random.Generator
) -> Iterator[tuple[str, np.ndarray[Any, Any]]]:
    dtype = dtype_from_number(tensors.elem_type(array.dtype))
    if dtype.is_float:
        with np.errstate(over="ignore"):  # the lowest number of a mask
            larger = (array * 1.01).astype(array.dtype)
        yield "times 1.01", larger
        yield "with its sign changed", -array
        yield "plus 0.01", (array + 0.01).astype(array.dtype)
        yield "of zeros", np.zeros_like(array)
    elif array.dtype.kind in "iu":
        yield "plus 1", array + array.dtype.type(1)
        yield "reversed", array[::-1].copy() if array.ndim == 1 else array
    if array.size > 1 and array.dtype != np.bool_:
        other = array.copy()
        other.reshape(-1)[-1] += 1
        yield "with another last element", other
    yield "of other numbers", numbers(rng, dtype, array.shape)


def _with_constant(name: str, what: str, array: np.ndarray[Any, Any]) -> Mutation:
    def change(model: onnx.ModelProto) -> None:
        _initializer(model, name).CopyFrom(tensors.from_numpy(np.asarray(array), name))

    return Mutation("constant", f'constant "{name}" {what}', change)


def _initializer(model: onnx.ModelProto, name: str) -> onnx.TensorProto:
    """Return an initializer; raises ``KeyError`` if there is none of that name."""
    initializer = next((tensor for tensor in model.graph.initializer if tensor.name == name), None)
    if initializer is None:
        raise KeyError(name)
    return initializer


def _as_input(name: str, kind: TensorType, *, overridable: bool) -> Mutation:
    def apply(model: onnx.ModelProto) -> None:
        tensor = _initializer(model, name)
        model.graph.input.add(name=name, type=encode_type(kind))
        if not overridable:
            model.graph.initializer.remove(tensor)

    role = "that a caller may override" if overridable else "as an input"
    return Mutation("constant as input", f'constant "{name}" {role}', apply)


# users and places


def readers(model: onnx.ModelProto) -> Iterator[Mutation]:
    """Yield inner tensors with another user, or as a graph output."""
    outputs = {output.name for output in model.graph.output}
    for node in model.graph.node:
        for name in node.output:
            if name and name not in outputs:
                yield _with_user(name, by_output=False)
                yield _with_user(name, by_output=True)


def _with_user(name: str, *, by_output: bool) -> Mutation:
    def apply(model: onnx.ModelProto) -> None:
        if not by_output:
            model.graph.node.add(op_type="Identity", input=[name], output=["extra"])
        model.graph.output.add(name=name if by_output else "extra")

    return Mutation(
        "reader",
        f'inner tensor "{name}" {"is an output" if by_output else "has one more user"}',
        apply,
    )


def untyped(model: onnx.ModelProto) -> Mutation:
    """Return the model inside another one whose inner tensors have no types.

    An exported model may be like this before shape inference.
    """
    placed = both(
        Mutation("types", "", _op_before_inputs("Identity", model)),
        Mutation("types", "", _op_after_outputs("Identity", model)),
    )
    return Mutation(
        "types",
        "between Identities, the types of all but the model's inputs and outputs unknown",
        placed.apply,
        typed=False,
    )


def _op_before_inputs(op: str, model: onnx.ModelProto) -> Change:
    """Return a change that puts an operator before each input."""
    names = [value.name for value in model.graph.input]

    def apply(model: onnx.ModelProto) -> None:
        for name in names:
            _rename(model, name, f"{name}_inner", read=True)
            model.graph.node.insert(0, onnx.helper.make_node(op, [name], [f"{name}_inner"]))

    return apply


def _op_after_outputs(op: str, model: onnx.ModelProto) -> Change:
    """Return a change that puts an operator behind each output."""
    names = [value.name for value in model.graph.output]

    def apply(model: onnx.ModelProto) -> None:
        for name in names:
            _rename(model, name, f"{name}_outer", read=False)
            model.graph.node.append(onnx.helper.make_node(op, [f"{name}_outer"], [name]))

    return apply


def _rename(model: onnx.ModelProto, name: str, other: str, *, read: bool) -> None:
    """Replace ``name`` by ``other`` in inputs, without ``read`` also in outputs."""
    for node in model.graph.node:
        for names in (node.input,) if read else (node.input, node.output):
            for slot, old_name in enumerate(names):
                if old_name == name:
                    names[slot] = other


# types of operands


def _types(model: onnx.ModelProto) -> dict[str, TensorType]:
    """Return the known type of each tensor of a model."""
    types: dict[str, TensorType] = {}
    inferred = onnx.shape_inference.infer_shapes(model)
    for value in (*inferred.graph.input, *inferred.graph.value_info, *inferred.graph.output):
        type_ = decode_type(value.type)
        if isinstance(type_, TensorType):
            types[value.name] = type_
    for tensor in model.graph.initializer:
        types[tensor.name] = TensorType(dtype_from_number(tensor.data_type), tuple(tensor.dims))
    return types


def _operand_types(model: onnx.ModelProto) -> dict[str, TensorType]:
    """Return the types of inputs and initializers."""
    names = {value.name for value in model.graph.input} | {
        tensor.name for tensor in model.graph.initializer
    }
    return {
        name: type_
        for name, type_ in _types(model).items()
        if name in names and type_.shape is not None
    }


def _shapes(model: onnx.ModelProto, rng: np.random.Generator) -> Iterator[Mutation]:
    """Yield other ranks and sizes for each operand and all together."""
    operands = _operand_types(model)
    for name, type_ in operands.items():
        assert type_.shape is not None
        for shape in _other_shapes(type_.shape, rng):
            sizes = ",".join(map(str, shape))
            yield Mutation(
                "shape", f'"{name}" {type_} of shape [{sizes}]', reshaping({name: shape})
            )
    whole = {name: type_.shape for name, type_ in operands.items() if type_.shape}
    names = {value.name for value in model.graph.input}
    for change_name, change in _WHOLE.items():
        shapes = {name: change(shape) for name, shape in whole.items()}
        yield Mutation("shape", change_name, reshaping(shapes))
        yield Mutation(
            "shape",
            f"{change_name}, constants as they are",
            reshaping({n: s for n, s in shapes.items() if n in names}),
        )


_EQUAL = "all sizes 3"
_WHOLE: dict[str, Callable[[tuple[Dim, ...]], tuple[Dim, ...]]] = {
    _EQUAL: lambda shape: (3,) * len(shape),
    "all sizes 1": lambda shape: (1,) * len(shape),
    "one axis more everywhere": lambda shape: (2, *shape),
    "one axis less everywhere": lambda shape: shape[1:],
    "the first size unknown everywhere": lambda shape: ("S", *shape[1:]),
    "all sizes unknown": lambda shape: tuple([f"S{axis}" for axis in range(len(shape))]),
    "all symbols 2": lambda shape: tuple([2 if isinstance(size, str) else size for size in shape]),
}


def _other_shapes(shape: tuple[Dim, ...], rng: np.random.Generator) -> Iterator[tuple[Dim, ...]]:
    yield (2, *shape)
    yield (1, *shape)
    yield (3, 2, *shape)
    if shape:
        yield shape[1:]
        yield shape[-1:]
        yield tuple([shape[int(axis)] for axis in rng.permutation(len(shape))])
    for axis, size in enumerate(shape):
        for other in (1, "S", 2 if size == 1 else 3):
            if size != other:
                yield (*shape[:axis], other, *shape[axis + 1 :])


def _dtypes(model: onnx.ModelProto) -> Iterator[Mutation]:
    """Yield all operands of one dtype in another one."""
    for dtype in dict.fromkeys(type_.dtype for type_ in _operand_types(model).values()):
        for other in DTYPES:
            if other is not dtype:
                yield Mutation(
                    "dtype",
                    f"{dtype.name.lower()} becomes {other.name.lower()}",
                    _casting(dtype, other),
                )


def _casting(dtype: DataType, other: DataType) -> Change:
    def apply(model: onnx.ModelProto) -> None:
        for tensor in model.graph.initializer:
            if tensor.data_type == dtype:
                array = tensors.to_numpy(tensor, None)
                with np.errstate(all="ignore"):
                    tensor.CopyFrom(tensors.from_numpy(array.astype(other.numpy), tensor.name))
        for value in model.graph.input:
            if value.type.tensor_type.elem_type == dtype:
                value.type.tensor_type.elem_type = int(other)

    return apply


# wiring


def _operands(model: onnx.ModelProto, rng: np.random.Generator) -> Iterator[Mutation]:
    """Yield swapped operands, and one tensor in the place of another."""
    for number, node in enumerate(model.graph.node):
        for first, second in itertools.combinations(range(len(node.input)), 2):
            if node.input[first] and node.input[second] and node.input[first] != node.input[second]:
                swapped = {first: node.input[second], second: node.input[first]}
                yield _rewired(
                    number, f"{node.op_type}: inputs {first} and {second} swapped", swapped
                )
                change = f'{node.op_type}: input {second} is "{node.input[first]}" too'
                yield _rewired(number, change, {second: node.input[first]})
    names = list(_operand_types(model))
    for first, second in itertools.permutations(names, 2):
        yield Mutation("operands", f'"{first}" in place of "{second}"', _in_place_of(first, second))
    earlier: list[str] = []
    for number, node in enumerate(model.graph.node):
        if earlier and node.input:
            name, slot = one_of(rng, earlier), int(rng.integers(len(node.input)))
            yield _rewired(number, f'{node.op_type}: input {slot} is "{name}"', {slot: name})
        earlier += [name for name in node.output if name]


def _rewired(number: int, what: str, inputs: dict[int, str]) -> Mutation:
    def apply(model: onnx.ModelProto) -> None:
        for slot, name in inputs.items():
            model.graph.node[number].input[slot] = name

    return Mutation("operands", what, apply)


def _in_place_of(survivor: str, gone: str) -> Change:
    def apply(model: onnx.ModelProto) -> None:
        _rename(model, gone, survivor, read=True)
        parts: tuple[Any, ...] = (model.graph.input, model.graph.initializer)
        for entries in parts:
            for entry in [entry for entry in entries if entry.name == gone]:
                entries.remove(entry)

    return apply
