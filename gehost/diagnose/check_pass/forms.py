"""Other forms of a model's operators.

Each attribute gets other values, present or absent; each optional input and output comes or goes.
A form often needs more than its own change to be valid (training has more outputs, a group
needs more channels), so a mutation has several ways, tried in order.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
import onnx

from gehost.diagnose.check_pass.candidates import DTYPES, INDEX_TYPES, attribute_values, numbers
from gehost.diagnose.check_pass.constraints import wanted_list, wanted_shape
from gehost.diagnose.check_pass.coverage import Form, opsets_of, value_text
from gehost.es import schemas
from gehost.ir import tensors
from gehost.ir.attributes import attribute_value, encode_attribute
from gehost.ir.graph import op_name
from gehost.ir.schemas import history, schema_at
from gehost.ir.types import DataType, Dim, TensorType, encode_type

Change: TypeAlias = Callable[[onnx.ModelProto], None]
Types: TypeAlias = Mapping[str, TensorType]

_VALUES_TRIED = 3
"""Largest number of other values tried for one attribute that is a number or a list."""
_OLDEST_OPSET = 7
_OPTION = onnx.defs.OpSchema.FormalParameterOption
_WINDOW = frozenset({"dilations", "strides", "pads", "auto_pad", "kernel_shape", "output_padding"})
"""Attributes of a window, which may not be larger than its padded input."""
_OTHER_SIZES = ("output_padding", "output_shape")
"""Attributes that state the size of a window's result, too."""


class NodeForm:
    """A node with its operator's signature, and what is known of its operands."""

    def __init__(
        self, number: int, node: onnx.NodeProto, opset: int, types: Types, operands: Types
    ) -> None:
        """Take node ``number``, the types of all tensors and those of inputs and constants."""
        self.number = number
        self.node = node
        schema = schema_at(node.domain, node.op_type, opset)
        signature = schemas.signature(node.domain, node.op_type, opset)
        assert schema is not None
        assert signature is not None
        self.schema = schema
        self.signature = signature
        self.types = types
        self.operands = operands
        self.given = {entry.name: attribute_value(entry) for entry in node.attribute}

    def form(self, feature: str, value: str) -> Form:
        op = op_name(self.node.domain, self.node.op_type, "")
        return Form(op, self.schema.since_version, feature, value)

    def shape(self, slot: int) -> tuple[Dim, ...] | None:
        names = self.node.input
        type_ = self.types.get(names[slot]) if slot < len(names) and names[slot] else None
        return None if type_ is None else type_.shape


def node_forms(model: onnx.ModelProto, types: Types, operands: Types) -> Iterator[NodeForm]:
    """Yield the nodes whose operators ONNX knows."""
    opsets = opsets_of(model)
    for number, node in enumerate(model.graph.node):
        domain = "" if node.domain == "ai.onnx" else node.domain
        opset = opsets.get(domain, 1)
        if schemas.signature(domain, node.op_type, opset) is not None:
            yield NodeForm(number, node, opset, types, operands)


# attributes


def other_attributes(
    of: NodeForm, rng: np.random.Generator
) -> Iterator[tuple[str, Form, list[Change]]]:
    """Yield what changes, the new form and its ways, for each attribute."""
    for name, default in of.signature.attributes.items():
        now = of.given.get(name, default)
        for value in _other_values(of, name, default, now, rng):
            form = of.form(name, value_text(name, value, default))
            yield f"{name} set to {value}", form, list(_ways(of, name, value))
        if name in of.given and name not in of.signature.needed:
            yield f"{name} left out", of.form(name, "default"), [_attribute(of.number, name, None)]


def _other_values(
    of: NodeForm, name: str, default: Any, now: Any, rng: np.random.Generator
) -> list[Any]:
    first, kind = of.shape(0), of.signature.kinds[name]
    weights = of.shape(1)
    if name == "kernel_shape" and len(of.node.input) > 1:  # that of the weights
        sizes = [] if weights is None else list(weights[2:])
        return [sizes] if sizes and sizes != now else []
    if name == "group":
        return [group for group in _groups(of) if group != now]
    rank = None if first is None else len(first)
    values = attribute_values(rng, name, kind, default, rank, now, op=of.node.op_type)
    others = [value for value in values if value != now]
    if kind == onnx.AttributeProto.STRING:
        return others
    return [others[place] for place in rng.permutation(len(others))[:_VALUES_TRIED]]


def _groups(of: NodeForm) -> list[int]:
    """Return numbers of groups that the weights of a convolution allow."""
    weights = of.shape(1)
    if weights is None or not weights or not isinstance(weights[0], int):
        return [1, 2]
    return [group for group in range(1, weights[0] + 1) if weights[0] % group == 0]


def _ways(of: NodeForm, name: str, value: Any) -> Iterator[Change]:
    """Yield changes that set an attribute, the simplest first."""
    alone, first = _attribute(of.number, name, value), of.shape(0)
    yield alone
    if name == "group":
        yield from (in_turn(alone, change) for change in _regrouped(of, value))
    if name == "spatial" and value == 0:  # one number for each activation
        activation = (first or ())[1:]
        yield in_turn(alone, reshaping(dict.fromkeys(of.node.input[1:5], activation)))
    if name == "noop_with_empty_axes" and len(of.node.input) > 1:  # it only matters without axes
        yield in_turn(alone, reshaping({of.node.input[1]: (0,)}))
    if name in _WINDOW:
        wider = _wider(of)
        if wider is not None:
            yield in_turn(alone, wider)
        strides = [2] * max(len(first or ()) - 2, 1)
        if name == "output_padding" and wider is not None:
            yield in_turn(in_turn(alone, wider), _attribute(of.number, "strides", strides))
        if name == "pads" and "auto_pad" in of.given:
            yield in_turn(alone, _attribute(of.number, "auto_pad", None))
    every = list(optional_outputs(of))
    if every:
        yield in_turn(alone, every[-1][2][0])


def attributes_together(
    of: NodeForm,
) -> Iterator[tuple[tuple[str, ...], str, Form, Change]]:
    """Yield attributes that change together, what changes, the new form and its change.

    Each change alone is not valid, or the type of the result shows it.
    """
    for values, input_sizes in itertools.chain(
        _windows(of), _sequence_axes(of), _axes_without_dims(of)
    ):
        parts = tuple(name for name in values if name != "keepdims")
        others = dict.fromkeys(_OTHER_SIZES) if "pads" in values else {}
        changes = [_attribute(of.number, name, value) for name, value in (values | others).items()]
        first, name = of.shape(0), of.node.input[0]
        if input_sizes is not None and first is not None and name in of.operands:
            changes.append(reshaping({name: (*first[:2], *input_sizes)}))
        text = ", ".join(
            f"{name} set to {value}" for name, value in values.items() if value is not None
        )
        form = of.form("together", text)
        yield parts, text, form, functools.reduce(in_turn, changes)


def _windows(of: NodeForm) -> Iterator[tuple[dict[str, Any], Sequence[int] | None]]:
    """Yield attributes of a window that hide from the shape of its result, and its input's sizes.

    It is the same without pads and dilations; without pads and strides; without pads, or without
    dilations; and, by ONNX's inference, without auto_pad.
    """
    known, weights = of.signature.attributes, of.shape(1)
    kernel = of.given.get("kernel_shape") or (weights or ())[2:]
    sizes = [size for size in kernel if isinstance(size, int)]
    if "pads" not in known or len(sizes) < len(kernel) or max(sizes, default=1) < 2:
        return
    ends, twos = [0] * len(sizes), [2] * len(sizes)
    one = [*(int(size > 1) for size in sizes), *ends]
    if "dilations" in known:
        full = [*(size - 1 for size in sizes), *ends]
        yield {"pads": full, "dilations": twos, "strides": None}, None
    if of.node.op_type.endswith("Transpose"):
        return
    yield {"pads": one, "dilations": None, "strides": twos}, sizes
    if "dilations" in known:
        far, wide = [size + 1 for size in sizes], [2 * size - 1 for size in sizes]
        yield {"pads": one, "dilations": twos, "strides": far}, wide
    if "auto_pad" in known:
        short = [max(size - 1, 1) for size in sizes]
        yield {"auto_pad": "SAME_UPPER", "dilations": None, "strides": sizes}, short


def _sequence_axes(of: NodeForm) -> Iterator[tuple[dict[str, Any], None]]:
    """Yield the axes of a ReverseSequence in the other order: one alone would be both."""
    if of.node.op_type == "ReverseSequence":
        for batch in (0, 1):
            if batch != of.given.get("batch_axis", 1):
                yield {"batch_axis": batch, "time_axis": 1 - batch}, None


def _axes_without_dims(of: NodeForm) -> Iterator[tuple[dict[str, Any], None]]:
    """Yield axes of a reduction that does not keep them: its shape may be that of other axes."""
    rank = len(of.shape(0) or ())
    if "keepdims" not in of.signature.attributes or rank < 2:
        return
    for name, every in (("axis", range(rank)), ("axes", [[axis] for axis in range(rank)])):
        if name in of.signature.attributes:
            for value in every:
                if value != of.given.get(name, of.signature.attributes[name]):
                    yield {name: value, "keepdims": 0}, None


def _regrouped(of: NodeForm, group: int) -> Iterator[Change]:
    """Yield changes of channels that fit a number of groups."""
    first, weights = of.shape(0), of.shape(1)
    if first is None or weights is None or len(first) < 2 or len(weights) < 2:
        return
    x, w = of.node.input[0], of.node.input[1]
    channels, part = first[1], weights[1]
    if not isinstance(channels, int) or not isinstance(part, int):
        return
    if x in of.operands and not of.node.op_type.endswith("Transpose"):
        yield reshaping({x: (first[0], part * group, *first[2:])})
    if w in of.operands and channels % group == 0:
        if of.node.op_type.endswith("Transpose"):
            groups = of.given.get("group", 1) * part
            if groups % group == 0:
                yield reshaping({w: (channels, groups // group, *weights[2:])})
        else:
            yield reshaping({w: (weights[0], channels // group, *weights[2:])})


def _wider(of: NodeForm) -> Change | None:
    """Return a change to a larger window's input, None if another operator makes it."""
    first, name = of.shape(0), of.node.input[0] if of.node.input else ""
    if first is None or name not in of.operands or len(first) < 3:
        return None
    wide = (size + 7 if isinstance(size, int) else size for size in first[2:])
    return reshaping({name: (*first[:2], *wide)})


def _attribute(number: int, name: str, value: Any) -> Change:
    def apply(model: onnx.ModelProto) -> None:
        node = model.graph.node[number]
        gone = {name}
        if name in ("auto_pad", "pads") and value is not None:
            gone |= {"auto_pad", "pads"}  # a node has only one of them
        others = [entry for entry in node.attribute if entry.name not in gone]
        del node.attribute[:]
        node.attribute.extend(others if value is None else [*others, encode_attribute(name, value)])

    return apply


# optional inputs and outputs


def optional_outputs(of: NodeForm) -> Iterator[tuple[str, Form, list[Change]]]:
    """Yield each optional output that a node lacks, with those before it; nobody reads them.

    An output between two others gets a name, too: ONNX Runtime crashes on some empty ones.
    """
    for slot, parameter in enumerate(of.schema.outputs):
        absent = slot >= len(of.node.output) or not of.node.output[slot]
        if parameter.option == _OPTION.Optional and absent:
            form = of.form(f"output {parameter.name}", "present")
            yield f"output {parameter.name} added", form, [_outputs(of.number, slot)]


def _outputs(number: int, last: int) -> Change:
    def apply(model: onnx.ModelProto) -> None:
        node = model.graph.node[number]
        node.output.extend("" for _ in range(last + 1 - len(node.output)))
        for slot in range(last + 1):
            if not node.output[slot]:
                node.output[slot] = f"{node.output[0]}_{slot}"

    return apply


def optional_inputs(
    of: NodeForm, rng: np.random.Generator
) -> Iterator[tuple[str, Form, list[Change]]]:
    """Yield each optional input that a node lacks or has, added or removed."""
    for slot, parameter in enumerate(of.schema.inputs):
        if parameter.option != _OPTION.Optional:
            continue
        feature = f"input {parameter.name}"
        if slot < len(of.node.input) and of.node.input[slot]:
            yield f"{feature} left out", of.form(feature, "absent"), [_without(of.number, slot)]
        else:
            ways = [
                _with_input(of.number, slot, operand) for operand in _operands_for(of, slot, rng)
            ]
            yield f"{feature} added", of.form(feature, "present"), ways


def _without(number: int, slot: int) -> Change:
    def apply(model: onnx.ModelProto) -> None:
        names = model.graph.node[number].input
        names[slot] = ""
        while names and not names[-1]:
            del names[-1]

    return apply


def _with_input(number: int, slot: int, operand: TensorType | np.ndarray[Any, Any]) -> Change:
    def apply(model: onnx.ModelProto) -> None:
        node, name = model.graph.node[number], f"added{number}_{slot}"
        node.input.extend("" for _ in range(slot + 1 - len(node.input)))
        node.input[slot] = name
        if isinstance(operand, TensorType):
            model.graph.input.add(name=name, type=encode_type(operand))
        else:
            model.graph.initializer.append(tensors.from_numpy(operand, name))

    return apply


def _operands_for(
    of: NodeForm, slot: int, rng: np.random.Generator
) -> Iterator[TensorType | np.ndarray[Any, Any]]:
    """Yield operands that may fit an optional input, constants first."""
    parameter = of.signature.parameter_at(slot)
    if parameter is None:
        return
    dtypes = [dtype for dtype in DTYPES if dtype in parameter.dtypes]
    for other, name in enumerate(of.node.input):
        beside = of.signature.parameter_at(other)
        type_ = of.types.get(name)
        if type_ and type_.dtype and beside and beside.type_name == parameter.type_name:
            dtypes = [type_.dtype]
    if not dtypes:
        return
    dtype = dtypes[0]
    shapes = [of.shape(position) for position in range(len(of.node.input))]
    if parameter.dtypes <= INDEX_TYPES:
        values = wanted_list(rng, of.node.op_type, slot, shapes)
        if values is not None:
            yield np.asarray(values, dtype.numpy)
    yield from _constants_and_inputs(rng, dtype, list(_shapes_for(of, slot, shapes, rng)))


def _constants_and_inputs(
    rng: np.random.Generator, dtype: DataType, shapes: Sequence[tuple[Dim, ...]]
) -> Iterator[TensorType | np.ndarray[Any, Any]]:
    for shape in shapes:
        sizes = [size for size in shape if isinstance(size, int)]
        if len(sizes) == len(shape):
            yield numbers(rng, dtype, sizes)
    yield from (TensorType(dtype, shape) for shape in shapes)


def _shapes_for(
    of: NodeForm,
    slot: int,
    shapes: Sequence[tuple[Dim, ...] | None],
    rng: np.random.Generator,
) -> Iterator[tuple[Dim, ...]]:
    fitting = wanted_shape(rng, of.node.op_type, slot, shapes)
    first = shapes[0] if shapes else None
    if fitting is not None:
        yield fitting
    yield from ((), (1,))
    if first:
        yield from dict.fromkeys((first[1:2], first[-1:], first[:1], first))
    others = itertools.islice((shape for shape in shapes[1:] if shape), 2)
    yield from others


# versions


def other_opsets(model: onnx.ModelProto) -> Iterator[tuple[int, Form, Change]]:
    """Yield each opset at which an operator has another version: it, the form, the change.

    Only the number changes, so most are no valid models.
    """
    opset = opsets_of(model).get("")
    newest = onnx.defs.onnx_opset_version()
    opsets = {opset}
    for node in model.graph.node:
        op = op_name(node.domain, node.op_type, "")
        for schema in history(node.domain, node.op_type) if node.domain in ("", "ai.onnx") else ():
            version = max(schema.since_version, _OLDEST_OPSET)
            if opset is not None and version not in opsets and version <= newest:
                opsets.add(version)
                yield version, Form(op, schema.since_version, "", ""), _at_opset(version)


def _at_opset(version: int) -> Change:
    def apply(model: onnx.ModelProto) -> None:
        for entry in model.opset_import:
            if entry.domain in ("", "ai.onnx"):
                entry.version = version
                least = onnx.helper.find_min_ir_version_for([entry], ignore_unknown=True)
                model.ir_version = max(model.ir_version, least)

    return apply


# changes


def in_turn(first: Change, second: Change) -> Change:
    """Return both changes as one."""

    def apply(model: onnx.ModelProto) -> None:
        first(model)
        second(model)

    return apply


def reshaping(shapes: Mapping[str, tuple[Dim, ...]]) -> Change:
    """Return a change of operands' shapes.

    A constant's numbers are repeated to fit.
    """

    def apply(model: onnx.ModelProto) -> None:
        for tensor in model.graph.initializer:
            if tensor.name in shapes:
                array = tensors.to_numpy(tensor, None)
                sizes = [size if isinstance(size, int) else 3 for size in shapes[tensor.name]]
                tensor.CopyFrom(tensors.from_numpy(np.resize(array, sizes), tensor.name))
        for value in model.graph.input:
            if value.name in shapes:
                dtype = DataType(value.type.tensor_type.elem_type)
                value.type.CopyFrom(encode_type(TensorType(dtype, shapes[value.name])))

    return apply
