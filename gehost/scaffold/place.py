"""Describe nodes of a model in Python: operators, parameters, captures and names."""

from __future__ import annotations

import builtins
import keyword
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
import onnx

from gehost.diagnose.bisect.submodel import submodel
from gehost.diagnose.nodes import check_name, near_names, nodes_named
from gehost.errors import GehostError, UsageError
from gehost.es import schemas
from gehost.ir.graph import Node, Value, split_op
from gehost.ir.model import Model
from gehost.ir.region import Region
from gehost.ir.schemas import history
from gehost.pattern.explain.messages import named
from gehost.quoting import in_docstring, python_string
from gehost.refusal import Refusal
from gehost.verify import Runner, find_feeds

_BESIDE_NUMBERS = frozenset(
    [
        "Add",
        "Sub",
        "Mul",
        "Div",
        "Pow",
        "Max",
        "Min",
        "Mod",
        "Equal",
        "Greater",
        "GreaterOrEqual",
        "Less",
        "LessOrEqual",
        "Clip",
    ]
)
"""Operators where a constant of one element is written as a number."""
_TAKEN = {*keyword.kwlist, *keyword.softkwlist, *dir(builtins)}.union(
    [
        "attr",
        "body",
        "builder",
        "es",
        "fused",
        "made",
        "match",
        "native",
        "node",
        "np",
        "op",
        "ops",
        "pat",
        "pattern",
        "replace",
        "res",
        "self",
    ],
    ["where"],
)
"""Names that the generated Python uses for other things."""
_ARGUMENTS = {"num_outputs", "self", "tensor"}
"""Names of arguments of the functions that build patterns, which no attribute can have there."""
_LONGEST = 24
"""Longest name that is taken from the model, in characters."""


@dataclass(frozen=True)
class Operator:
    """One node: its variables and parameters in Python."""

    op: str
    """``domain::Type`` for domains other than ONNX's."""
    operands: Sequence[str]
    """Names of tensors, numbers, or ``None`` for an absent one."""
    results: Sequence[str]
    """A name for each output."""
    given: Mapping[str, str]
    """The parameters that are set on the node, as Python."""
    asked: Mapping[str, str]
    """All parameters of the operator, as Python; ``None`` must be absent."""
    exact: Mapping[str, str]
    """The values of ``asked`` as ``Node.attrs`` has them: floats of float32 in full."""
    defaults: Mapping[str, str]
    """The values of parameters that a node leaves out, written like ``exact``."""

    @property
    def split_only(self) -> Mapping[str, str]:
        """The ``split`` parameter, which sets the number of outputs of a Split."""
        return {name: text for name, text in self.given.items() if name == "split"}


@dataclass(frozen=True)
class Place:
    """Nodes that a pass has to match, and the sub-model of them."""

    inputs: Sequence[str]
    """Tensors that are computed outside, in the order of their first reader."""
    constants: Sequence[str]
    """Constants that are captured by name."""
    operators: Sequence[Operator]
    """In topological order."""
    outputs: Sequence[str]
    """Tensors that are read outside; the one that is computed last comes first."""
    model: onnx.ModelProto
    """The nodes, with their constants and the nodes that compute their sizes and indices."""
    alone: bool
    """Whether the model has no other nodes."""

    @property
    def operands(self) -> list[str]:
        """The operands of an operator that replaces the nodes."""
        return [*self.inputs, *self.constants]

    @property
    def picture(self) -> str:
        """The operators in order, for the headline of a docstring."""
        return in_docstring(" → ".join(split_op(operator.op)[1] for operator in self.operators))


def chosen_nodes(model: Model, names: Sequence[str]) -> list[Node]:
    """Find nodes by their names, or by those of their outputs.

    Raises:
        UsageError: there is no node of a name, or several.
    """
    nodes_: dict[Node, None] = {}
    for name in names:
        check_name(name)
        nodes = nodes_named(model, name)
        if not nodes:
            raise UsageError(
                f'the model has no node "{name}"; {near_names(model, name)}', where="--nodes"
            )
        if len(nodes) > 1:
            raise UsageError(
                f'{len(nodes)} nodes are called "{name}"',
                where="--nodes",
                hint="name each by a tensor that it makes",
            )
        nodes_[nodes[0]] = None
    return list(nodes_)


def place_of(
    model: Model,
    nodes: Iterable[Node],
    inputs: Sequence[Value] | None = None,
    outputs: Sequence[Value] | None = None,
) -> Place:
    """Describe nodes of a model as a pattern.

    Args:
        model: with inferred types.
        nodes: of one graph; ``Constant`` nodes among them count as constants.
        inputs: the placeholders in order, also for constants; then other constants are written
            as lists. None: the tensors computed outside, and constants are captured.
        outputs: the results in order. None: the tensors read outside, the last one first.

    Raises:
        UsageError: the nodes cannot form a pattern: a path leaves them and comes back, one holds
            nested graphs, nothing reads their outputs, or one of ``outputs`` is a constant.
    """
    region = Region.of_nodes(
        node for node in nodes if not all(v is not None and v.is_constant for v in node.outputs)
    )
    if isinstance(region, Refusal):
        raise UsageError(f"no pattern can be made of these nodes: {region.reason}", where="--nodes")
    for node in region.nodes:
        if node.bodies:
            raise UsageError(
                f"{named(node)} holds nested graphs, which a pattern cannot", where="--nodes"
            )
    writer = _Writer(model, region, inputs)
    operators = [writer.operator(node) for node in region.nodes]
    if outputs is None:
        outputs = region.outputs[::-1]
    fixed = next((value for value in outputs if value not in writer.names), None)
    if fixed is not None:
        raise UsageError(f'output "{fixed.name}" is a constant', where="--nodes")
    # begin at tensors of unknown sizes only if the part then runs on random inputs
    near, far = (
        _part_inputs(model, writer.inputs, open_sizes=is_open) for is_open in (True, False)
    )
    part = alone(model, outputs, near)
    if near != far:
        try:
            find_feeds(Runner(part))
        except GehostError:
            part = alone(model, outputs, far)
    results = {
        name for node in part.graph.node if node.op_type != "Constant" for name in node.output
    }
    return Place(
        inputs=[writer.names[value] for value in writer.inputs],
        constants=[writer.names[value] for value in writer.constants],
        operators=operators,
        outputs=[writer.names[value] for value in outputs],
        model=part,
        alone=results <= {value.name for node in region.nodes for value in node.outputs if value},
    )


def alone(model: Model, outputs: Sequence[Value], inputs: Sequence[Value]) -> onnx.ModelProto:
    """Copy the nodes between these tensors into a model.

    Their external data is copied, too.
    """
    part = submodel(model, [(value.name, value) for value in outputs], inputs, name="place")
    model_ = onnx.ModelProto()
    model_.CopyFrom(part)
    values = {value.name: value for graph in model.graphs for value in graph.values.values()}
    for tensor in model_.graph.initializer:
        if tensor.data_location == onnx.TensorProto.EXTERNAL:
            array = values[tensor.name].numpy()
            tensor.CopyFrom(onnx.numpy_helper.from_array(array, tensor.name))
    return model_


def _part_inputs(model: Model, inputs: Iterable[Value], *, open_sizes: bool) -> list[Value]:
    """Find where the sub-model begins.

    It begins at float tensors of known sizes, or of any with ``open_sizes``, or the model's
    inputs.

    Whole numbers and flags come with the nodes that compute them: they are mostly sizes and
    indices, which fit the other inputs only as the model computes them.
    """
    names = {dim for value in model.graph.inputs for dim in value.shape or () if dim}
    values: dict[Value, None] = {}
    waiting, visited = list(inputs), set[Value]()
    while waiting:
        value = waiting.pop()
        if value in visited or value.is_constant:
            continue
        visited.add(value)
        shape = value.shape
        chosen = (
            value.dtype is not None
            and value.dtype.is_float
            and shape is not None
            and (open_sizes or all(isinstance(dim, int) or dim in names for dim in shape))
        )
        if chosen or value.producer is None or value.producer.bodies:
            values[value] = None
        else:
            waiting.extend(operand for operand in value.producer.inputs if operand is not None)
    return list(values)


class _Writer:
    """Names each tensor and writes each node as Python."""

    def __init__(self, model: Model, region: Region, inputs: Sequence[Value] | None) -> None:
        self._model = model
        self._captures = inputs is None
        self._taken = set(_TAKEN)
        self.names: dict[Value, str] = {}
        outside = [value for value in region.inputs if value is not None]
        self.inputs = (
            [value for value in outside if not value.is_constant] if inputs is None else inputs
        )
        self.constants: list[Value] = []
        for value in self.inputs:
            self.names[value] = self._name(_short(value, "x"))

    def operator(self, node: Node) -> Operator:
        domain, _ = split_op(node.op)
        signature = None
        if self._model.function(node.op) is None:
            signature = schemas.signature(*split_op(node.op), self._model.opset(domain) or 1)
        parameters = self._parameters(node, signature)
        if signature is None and (names := _ARGUMENTS & parameters[1].keys()):
            raise UsageError(
                f"attribute {min(names)} of {named(node)} has the name of an argument",
                where="--nodes",
                hint="leave the node out",
            )
        texts, checks, _ = (_texts(parameter, node) for parameter in parameters)
        _, exact, defaults = (_texts(parameter, node, exact=True) for parameter in parameters)
        inputs = list(node.inputs)
        if (
            self._captures
            and signature is not None
            and "axes" in signature.migrating
            and signature.parameters["axes"].slot == len(inputs) - 1
            and (axes := inputs[-1]) is not None
            and axes.is_constant
        ):
            texts["axes"] = checks["axes"] = _text(axes.numpy().tolist(), node, "axes")
            inputs.pop()
        operands: list[str] = []
        for value in inputs:
            if value is None:
                operands.append("None")
            elif value in self.names:
                operands.append(self.names[value])
            elif (number := _number(node, value)) is not None:
                operands.append(number)
            elif not self._captures:
                operands.append(_text(value.numpy().tolist(), node, f'constant "{value.name}"'))
            else:
                self.constants.append(value)
                self.names[value] = self._name(_short(value, "constant"))
                operands.append(self.names[value])
        while operands and operands[-1] == "None":
            operands.pop()
        results = [
            self._name(
                _plain_name(split_op(node.op)[1], "result") if value is not None else "unused"
            )
            for value in node.outputs
        ]
        self.names.update(
            (value, name)
            for value, name in zip(node.outputs, results, strict=True)
            if value is not None
        )
        return Operator(node.op, operands, results, texts, checks, exact, defaults)

    def _parameters(
        self, node: Node, signature: schemas.Signature | None
    ) -> tuple[dict[str, Any], dict[str, Any], dict[str, Any]]:
        """Return the parameters that are set, those to ask for, and the defaults of the latter."""
        if signature is None:
            function = self._model.function(node.op)
            declared = [] if function is None else _attributes_of(function)
            return {**node.attrs}, {**dict.fromkeys(declared), **node.attrs}, {}
        new_names = {old: new for new, old in signature.old_names.items()}
        own = {new_names.get(name, name): value for name, value in node.attrs.items()}
        defaults = {new_names.get(name, name): v for name, v in signature.attributes.items()}
        checks = dict(defaults)
        if self._captures:  # an input past the last one is not compared where it is a parameter
            count = max(slot for slot, value in enumerate(node.inputs) if value is not None) + 1
            slots = {name: signature.parameters[name].slot for name in signature.migrating}
            checks.update({name: None for name in sorted(slots) if slots[name] >= count})
        # the operators of the place behave as without the attributes of newer opsets
        newest = history(*split_op(node.op))[-1]
        newer = {*newest.attributes} - signature.migrating - signature.attributes.keys()
        checks.update(dict.fromkeys(sorted(newer)))
        checks.update(own)
        if node.op == "Split":  # the number of outputs implies it
            for table in (checks, own, defaults):
                table.pop("num_outputs", None)
        if signature.flattens:
            checks["axis"] = own["axis"] = -1
        return own, checks, defaults

    def _name(self, preferred: str) -> str:
        name, number = preferred, 0
        while name in self._taken:
            number += 1
            name = f"{preferred}_{number}"
        self._taken.add(name)
        return name


def _number(node: Node, value: Value) -> str | None:
    """Return a one-element constant as Python.

    It is beside a tensor of at least its rank.
    """
    array = value.array
    if node.op not in _BESIDE_NUMBERS or array is None or array.size != 1:
        return None
    others = [operand for operand in node.inputs if operand is not None and operand is not value]
    ranks = [operand.rank for operand in others if not operand.is_constant]
    if not ranks or any(rank is None or rank < array.ndim for rank in ranks):
        return None
    if array.dtype.kind not in "fiu" or not np.isfinite(array.item()):
        return None
    return _python(array.reshape(())[()])


def _attributes_of(function: onnx.FunctionProto) -> list[str]:
    return [*function.attribute, *(attribute.name for attribute in function.attribute_proto)]


def _texts(values: Mapping[str, Any], node: Node, *, exact: bool = False) -> dict[str, str]:
    """Return parameters as Python; ``exact``: as ``Node.attrs`` has them."""
    return {name: _text(value, node, name, exact=exact) for name, value in values.items()}


def _text(value: Any, node: Node, name: str, *, exact: bool = False) -> str:
    """Return a parameter as Python."""
    text = _python(value, exact=exact)
    if text is None:
        raise UsageError(
            f"{name} of {named(node)} is no number, text or list of them",
            where="--nodes",
            hint="leave the node out",
        )
    return text


def _python(value: Any, *, exact: bool = False) -> str | None:
    """Return a number, text, array or list as Python, None for others.

    A float that came from float32 is the shortest text that reads back as this float32, with
    ``exact`` as this Python float.
    """
    if value is None or isinstance(value, bool):
        return repr(value)
    if isinstance(value, bytes):
        value = value.decode(errors="replace")
    if isinstance(value, str):
        return python_string(value)
    if isinstance(value, np.ndarray | np.generic):
        array: np.ndarray[Any, Any] = np.asarray(value)  # pyright: ignore[reportUnknownArgumentType]
        if array.dtype.kind not in "fiub":
            return None
        if isinstance(value, np.generic) or array.ndim == 0:
            return _float(array) if array.dtype.kind == "f" else repr(array.item())
        return f'np.array({_python(array.tolist())}, "{array.dtype}")'
    if isinstance(value, float):
        if exact and math.isfinite(value):
            return repr(value)
        return _float(np.asarray(value, np.float32 if value == np.float32(value) else np.float64))
    if isinstance(value, int):
        return repr(value)
    if isinstance(value, list | tuple):
        texts = [_python(item, exact=exact) for item in cast("Sequence[Any]", value)]
        return None if None in texts else f"[{', '.join(text for text in texts if text)}]"
    return None


def _float(number: np.ndarray[Any, Any]) -> str:
    """Return the shortest text that reads back as this number.

    It does so in the number's dtype.
    """
    if not math.isfinite(number.item()):
        return f'float("{number.item()}")'
    text = str(number[()])
    return text if "." in text or "e" in text else f"{text}.0"


def _short(value: Value, default: str) -> str:
    """Return a tensor name's last part, ``default`` if unusable in Python.

    A part is unusable if it is long or not valid in Python.
    """
    last = re.split(r"[./:]", value.name)[-1].lower()
    return default if re.search(r"_output_\d+$|^val_\d+$", last) else _plain_name(last, default)


def _plain_name(name: str, default: str) -> str:
    """Return a name in lower case, ``default`` where Python cannot take it or it is long."""
    lower = name.lower()
    return lower if len(name) <= _LONGEST and re.fullmatch("[a-z][a-z0-9_]*", lower) else default
