"""Bodies of custom operators as model-local functions."""

from __future__ import annotations

import inspect
from collections.abc import Hashable, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any, TypeAlias, cast

import numpy as np
import onnx

from gehost.errors import GehostError, VendorError, described
from gehost.es.graph import EsConst, EsGraph, EsGraphBuilder, EsTensor, exact
from gehost.infer.local import Inferrer, array_type
from gehost.ir import tensors
from gehost.ir.attributes import attribute_value, encode_attribute
from gehost.ir.constants import content
from gehost.ir.graph import CONSTANTS_OF_ALL_TYPES, Node, Value, spelled, split_op
from gehost.ir.model import Model
from gehost.ir.region import Region
from gehost.ir.types import TensorType, ValueType
from gehost.ops import OpDef, OpRegistry
from gehost.refusal import Refused
from gehost.rewrite.lower import LoweredNode, Operand, lower_node
from gehost.rewrite.shape_proof import NodeState
from gehost.spelling import counted

_INLINE_LIMIT = 4096
"""Largest constant in bytes of a matched sub-graph that becomes part of a body written from it."""


def op_with_body(
    op: str,
    types: Sequence[ValueType | None],
    attributes: Mapping[str, Any],
    model: Model,
    registry: OpRegistry,
    inferrer: Inferrer,
    present: Sequence[bool] | None = None,
    cache: FunctionCache | None = None,
) -> str | None:
    """Add a registered operator's body to the model; return the body's name.

    Different bodies (other attributes, another opset) get different names, except for an operator
    that a runtime provides: if its calls need several bodies, the model carries none. None if the
    operator has no body.

    Args:
        op: the operator.
        types: of the node's inputs.
        attributes: of the node.
        model: the model to offer the body to.
        registry: the custom operators.
        inferrer: infers types inside the body, which literals need.
        present: which inputs are present; None: all.
        cache: names of bodies that were added before.

    Raises:
        Refused: the opset cannot express the body.
        VendorError: the body function is wrong.
    """
    return _BodyMaker(model, registry, inferrer, cache or FunctionCache(model)).op(
        op, types, [True] * len(types) if present is None else present, attributes
    )


def add_function(
    op: str, function: onnx.FunctionProto, model: Model, version: int = 1, *, renamed: bool = True
) -> str:
    """Offer a function as ``op``; return its name.

    The name is ``op__<hash>`` if ``op`` has another body.

    With ``renamed`` false, the operator keeps its name, and the model carries a body only while all
    its calls share one, because a runtime would use that body for all of them.

    Raises:
        Refused: the operator keeps its name, and the model came with another body for it.
    """
    function.domain, function.name = split_op(op)
    content = function.SerializeToString(deterministic=True)
    named = op
    present = model.function(op)
    differs = present is not None and present.SerializeToString(deterministic=True) != content
    if not renamed and not model.has_bodies_apart:
        if differs and op not in model.new_functions:
            raise Refused("body", f"the model came with another body for {op}")
        if op not in model.withheld and (differs or (present is None and op in model.original_ops)):
            model.withhold_function(op)
    elif differs:
        import hashlib  # with OpenSSL behind it; few models have two bodies of a name

        named = f"{op}__{hashlib.sha256(content).hexdigest()[:8]}"
        function.name = split_op(named)[1]
    model.offer_function(named, function)
    model.import_domain(split_op(named)[0], version)
    return named


def inferrer_of(model: Model, registry: OpRegistry) -> Inferrer:
    """Return an inferrer that also types calls without a body."""
    inferrer = Inferrer(model, registry)
    cache = FunctionCache(model)

    def body_of_call(
        definition: OpDef, call: onnx.NodeProto, types: Sequence[ValueType | None]
    ) -> onnx.FunctionProto | None:
        if definition.body is None:
            return None
        attributes = {attribute.name: attribute_value(attribute) for attribute in call.attribute}
        maker = _BodyMaker(model, registry, inferrer, cache)
        try:
            return maker.function(definition, types, list(map(bool, call.input)), attributes)
        except (Refused, VendorError):  # a call of the original model may not fit
            return None

    inferrer.body_of_call = body_of_call
    return inferrer


class WrongOutputsError(VendorError):
    """A body returns other outputs than declared."""


class FunctionCache:
    """Names of added bodies, by everything that the bodies depend on."""

    def __init__(self, model: Model) -> None:
        self._model = model
        self._entries: dict[Hashable, tuple[str, onnx.FunctionProto | None]] = {}

    def get(self, key: Hashable) -> str | None:
        """Return a body's name, None if absent or removed by an undo."""
        name, function = self._entries.get(key, ("", None))
        return name if function is not None and self._model.function(name) is function else None

    def put(self, key: Hashable, name: str) -> None:
        self._entries[key] = name, self._model.function(name)


class _BodyMaker:
    """Writes bodies of registered operators, and of the operators that these call."""

    def __init__(
        self, model: Model, registry: OpRegistry, inferrer: Inferrer, cache: FunctionCache
    ) -> None:
        self._model = model
        self._registry = registry
        self._inferrer = inferrer
        self._cache = cache
        self._inside: list[str] = []

    def op(
        self,
        op: str,
        types: Sequence[ValueType | None],
        present: Sequence[bool],
        attributes: Mapping[str, Any],
    ) -> str | None:
        definition = self._registry.get(op)
        if definition is None or definition.body is None:
            return None
        key = _call_key(op, types, present, attributes)
        cached = None if key is None else self._cache.get(key)
        if cached is not None:
            self._model.import_domain(split_op(cached)[0], definition.version)
            return cached
        function = self.function(definition, types, present, attributes)
        named = add_function(
            op, function, self._model, definition.version, renamed=not definition.provided_by
        )
        if key is not None:
            self._cache.put(key, named)
        return named

    def function(
        self,
        definition: OpDef,
        types: Sequence[ValueType | None],
        present: Sequence[bool],
        attributes: Mapping[str, Any],
    ) -> onnx.FunctionProto:
        """Check a call and return its body."""
        op = definition.name
        where = f"{definition.origin}: {op}"
        if op in self._inside:
            raise VendorError(f"{where} calls itself in its body")
        unknown = sorted(set(attributes) - set(definition.attributes))
        if unknown:
            raise VendorError(
                f"{where} has no attribute {unknown[0]!r}; it has {sorted(definition.attributes)}"
            )
        missing = sorted(set(definition.attributes) - set(definition.defaults) - set(attributes))
        if missing:
            raise VendorError(f"{where} needs attribute {missing[0]!r}")
        if not definition.required <= len(types) <= len(definition.inputs):
            raise VendorError(f"{where} takes {len(definition.inputs)} inputs, got {len(types)}")
        if not all(present[: definition.required]):
            raise VendorError(
                f"{where} needs input {definition.inputs[list(present).index(False)]!r}"
            )
        self._inside.append(op)
        try:
            return self._function(
                definition, _call_body(definition, present, attributes), types, attributes
            )
        finally:
            self._inside.pop()

    def _function(
        self,
        definition: OpDef,
        graph: EsGraph,
        types: Sequence[ValueType | None],
        attributes: Mapping[str, Any],
    ) -> onnx.FunctionProto:
        """Return the body as a function.

        It depends on the input types only if a literal needs its dtype from them. It declares as
        many inputs as the call has, and each optional attribute with the value that the body was
        built for: ``onnx.reference`` runs no other call.
        """
        function = onnx.FunctionProto()
        function.input.extend(definition.inputs[: len(types)])
        function.output.extend(definition.outputs)
        defaults = definition.defaults
        for name in definition.attributes:
            if name not in defaults:
                function.attribute.append(name)
                continue
            default = attributes.get(name, defaults[name])
            if default is not None:
                with suppress(TypeError):  # ONNX cannot express an empty list
                    function.attribute_proto.append(encode_attribute(name, default))
        if definition.body is not None and definition.body.__doc__:
            function.doc_string = inspect.cleandoc(definition.body.__doc__)
        names = {
            _key(tensor): name for tensor, name in zip(graph.inputs, definition.inputs, strict=True)
        }
        input_types = {
            _key(tensor): value_type
            for tensor, value_type in zip(graph.inputs, types, strict=False)
        }
        writer = _BodyWriter(function, self._model)
        domains: dict[str, None] = {"": None}

        def type_of(tensor: EsTensor) -> ValueType | None:
            if isinstance(tensor.producer, EsConst):
                return array_type(tensor.producer.array)
            return input_types.get(_key(tensor))

        def name_of(operand: Operand) -> str:
            if operand is None:
                return ""
            if isinstance(operand, np.ndarray):
                return writer.constant(operand)
            if isinstance(operand.producer, EsConst) and _key(operand) not in names:
                names[_key(operand)] = writer.constant(operand.producer.array)
            return names[_key(operand)]

        for node in graph.reachable():
            lowered = lower_node(node, self._model, self._registry, type_of)
            inputs = [name_of(operand) for operand in lowered.inputs]
            arrays = [
                operand if isinstance(operand, np.ndarray) else None for operand in lowered.inputs
            ]
            read = [
                type_of(operand)
                if isinstance(operand, EsTensor)
                else None
                if operand is None
                else array_type(operand)
                for operand in lowered.inputs
            ]
            if _keeps_dtype(lowered, read):
                names[_key(node.outputs[0])], input_types[_key(node.outputs[0])] = (
                    inputs[0],
                    read[0],
                )
                continue
            present = [operand is not None for operand in lowered.inputs]
            op = self.op(lowered.op, read, present, lowered.attributes) or lowered.op
            domains.setdefault(split_op(op)[0])
            outputs = [writer.fresh(split_op(op)[1].lower()) for _ in node.outputs]
            body = self._model.function(op)
            absent = [""] * (0 if body is None else len(body.output) - len(outputs))
            writer.node(op, inputs, [*outputs, *absent], lowered.attributes, original=lowered.op)
            try:
                results = self._inferrer.proto(op, function.node[-1], read, arrays)
            except Refused as error:
                given = zip(definition.inputs, types, strict=False)
                raise Refused("types", _misfit(definition.name, given, op, read, error)) from error
            for tensor, name, value_type in zip(node.outputs, outputs, results, strict=False):
                names[_key(tensor)] = name
                input_types[_key(tensor)] = value_type
        for tensor, name in zip(graph.outputs, definition.outputs, strict=True):
            writer.node("Identity", [name_of(tensor)], [name], {})
        _import(function, domains, self._model)
        return function


def _misfit(
    name: str,
    given: Iterable[tuple[str, ValueType | None]],
    op: str,
    read: Sequence[ValueType | None],
    error: Refused,
) -> str:
    """Say which operator of a body does not take what it reads, of which inputs."""
    inputs = ", ".join(f"{name} {_dtype(own)}" for name, own in given if own is not None)
    inner = [_dtype(own) for own in read if own is not None]
    text = f"the body of {name} does not take {inputs}: {op} of {' and '.join(inner)}"
    if len(set(inner)) > 1:
        return f"{text}; Cast an input in the replacement, or in the body"
    return f"{text}: {error.message}"


def _dtype(value_type: ValueType | None) -> str:
    return str(value_type.dtype if isinstance(value_type, TensorType) else value_type)


def _keeps_dtype(node: LoweredNode, types: Sequence[ValueType | None]) -> bool:
    """Whether a node is a cast that changes nothing.

    ONNX Runtime 1.20 to 1.27 does not load one of float16 without optimizations: it makes the
    operand float32, for a kernel that it lacks, and then the result.
    """
    if node.op not in ("Cast", "CastLike"):
        return False
    dtypes = [
        value_type.dtype if isinstance(value_type, TensorType) else None for value_type in types
    ]
    to = node.attributes["to"] if node.op == "Cast" else dtypes[1]
    return dtypes[0] is not None and dtypes[0] == to


def _call_key(
    op: str,
    types: Sequence[ValueType | None],
    present: Sequence[bool],
    attributes: Mapping[str, Any],
) -> Hashable | None:
    """Return a type-exact key of all a body depends on, or None.

    Encoded attributes would not be exact: they turn 1e-50 into 0.0.
    """
    key: list[Hashable] = [op, tuple(types), tuple(present)]
    for name, value in sorted(attributes.items()):
        token = exact(value)
        if token is None:
            return None
        key += (name, token)
    return tuple(key)


def _call_body(
    definition: OpDef, present: Sequence[bool], attributes: Mapping[str, Any]
) -> EsGraph:
    assert definition.body is not None
    builder = EsGraphBuilder(definition.name)
    inputs = builder.CreateInputs(len(definition.inputs))
    arguments = [
        tensor if position < len(present) and present[position] else None
        for position, tensor in enumerate(inputs)
    ]
    where = f"{definition.origin}: the body of {definition.name}"
    try:
        body: Any = definition.body(*arguments, **{**definition.defaults, **attributes})
        is_one = isinstance(body, EsTensor) or not isinstance(body, Iterable)
        outputs: list[Any] = [body] if is_one else list(cast("Iterable[Any]", body))
    except (GehostError, KeyboardInterrupt):
        raise
    except BaseException as error:  # an author's code may raise anything
        raise VendorError(f"{where} failed: {described(error)}") from error
    if not all(isinstance(output, EsTensor) for output in outputs):
        raise WrongOutputsError(f"{where} must return its output tensors, got {body!r}")
    if len(outputs) != len(definition.outputs):
        raise WrongOutputsError(
            f"{where} returns {counted(len(outputs), 'output')}, declared "
            f"{'is' if len(definition.outputs) == 1 else 'are'} {', '.join(definition.outputs)}"
        )
    return builder.BuildAndReset(outputs)


def check_body(definition: OpDef) -> None:
    """Build an operator's body with its defaults; count its outputs.

    A body whose attributes have no defaults cannot be built before a call, and a body that refuses
    its defaults may accept other values: both are checked at the call.

    Raises:
        VendorError: it returns another number of outputs than declared.
    """
    if definition.body is None or len(definition.defaults) < len(definition.attributes):
        return
    for count in {len(definition.inputs), definition.required}:
        try:
            _call_body(definition, [True] * count, {})
        except WrongOutputsError:
            raise
        except GehostError:
            continue


def _import(function: onnx.FunctionProto, domains: Iterable[str], model: Model) -> None:
    for domain in domains:
        function.opset_import.add(domain=domain, version=model.opset(domain) or 1)


_Key: TypeAlias = tuple[int, int]


def _key(tensor: EsTensor) -> _Key:
    return id(tensor.producer), tensor.index


class _BodyWriter:
    def __init__(self, function: onnx.FunctionProto, model: Model) -> None:
        self._function = function
        self._opset = model.opset() or 0
        self._used = {*function.input, *function.output}
        self._next: dict[str, int] = {}

    def fresh(self, stem: str) -> str:
        count = self._next.get(stem, 0)
        while (name := f"{stem}_{count}") in self._used:
            count += 1
        self._used.add(name)
        self._next[stem] = count + 1
        return name

    def node(
        self,
        op: str,
        inputs: Sequence[str],
        outputs: Sequence[str],
        attributes: Mapping[str, Any],
        original: str = "",
    ) -> None:
        spelling = spelled(op)
        node = self._function.node.add(op_type=spelling.op_type, domain=spelling.domain)
        if spelling.overload:
            node.overload = spelling.overload
        if op != "Constant":
            # inlined twice without names, two Slices of one tensor get equal names: ONNX Runtime
            # before 1.22 then does not load the file
            node.name = next(filter(None, outputs), "")
        node.input.extend(inputs)
        node.output.extend(outputs)
        node.attribute.extend(encode_attribute(name, value) for name, value in attributes.items())
        if original not in ("", op):
            node.metadata_props.add(key="gehost.op", value=original)

    def constant(self, array: np.ndarray[Any, Any]) -> str:
        if self._opset < CONSTANTS_OF_ALL_TYPES and array.dtype.kind != "f":
            raise Refused(
                "not applicable",
                f"a constant of {array.dtype} in a function body needs "
                f"opset {CONSTANTS_OF_ALL_TYPES}",
            )
        name = self.fresh("constant")
        self.node("Constant", [], [name], {"value": tensors.from_numpy(array, name)})
        return name


def function_of_region(
    region: Region,
    steps: Sequence[NodeState],
    inputs: Sequence[Value | None],
    outputs: Sequence[Value] | None = None,
    attributes: Iterable[str] = (),
) -> onnx.FunctionProto:
    """Return a matched sub-graph as a function.

    Args:
        region: the sub-graph.
        steps: its nodes as they were before any of them was edited.
        inputs: of the calling node, by position; None for absent ones.
        outputs: of the calling node, by position; None: the region's.
        attributes: names of the calling node's attributes.

    Raises:
        Refused: the sub-graph reads a tensor that is not an input, or a constant too large to
            inline, or has nested graphs.
    """
    function = onnx.FunctionProto()
    names: dict[Value, str] = {}
    for position, value in enumerate(inputs):
        function.input.append(f"input_{position}")
        if value is not None:
            names.setdefault(value, function.input[-1])
    entries = {
        value: f"output_{position}"
        for position, value in enumerate(region.outputs if outputs is None else outputs)
    }
    function.output.extend(entries.values())
    function.attribute.extend(attributes)
    writer = _BodyWriter(function, region.graph.model)
    domains: dict[str, None] = {"": None}
    for step in steps:
        node = step.node
        if node.bodies:
            raise Refused("needs a function body", f"{node.label} holds nested graphs")
        domains.setdefault(node.domain)
        read = [
            _name_in_body(value, names, writer) if value is not None else ""
            for value in step.inputs
        ]
        for value in step.outputs:
            if value is not None:
                names[value] = entries.get(value) or writer.fresh("inner")
        results = [names[value] if value is not None else "" for value in step.outputs]
        original = original_op(node)
        writer.node(
            node.op,
            read,
            results,
            {attribute.name: attribute for attribute in node.proto.attribute},
            original,
        )
    _import(function, domains, region.graph.model)
    return function


def region_key(
    region: Region,
    nodes: Sequence[NodeState],
    inputs: Sequence[Value | None],
    outputs: Sequence[Value],
    attributes: Iterable[str],
) -> Hashable:
    """Return a key of everything that ``function_of_region`` depends on, or None.

    Matches of one rule mostly give the same function.
    """
    numbers: dict[Value | None, Hashable] = {None: None}
    for position, value in enumerate(inputs):
        numbers.setdefault(value, position)
    steps: list[Hashable] = []
    for state in nodes:
        node = state.node
        read: list[Hashable] = []
        for value in state.inputs:
            if value not in numbers:
                constant = None
                if value is not None and value.is_constant:
                    constant = content(value, _INLINE_LIMIT)
                if constant is None:
                    return None
                numbers[value] = constant
            read.append(numbers[value])
        for slot, value in enumerate(state.outputs):
            numbers.setdefault(value, (len(steps), slot))
        steps.append(
            (
                node.op,
                original_op(node) if node.is_traced else node.op,
                node.encoded_attrs,
                tuple(read),
                tuple(value is None for value in state.outputs),
            )
        )
    layout = tuple(value is None for value in inputs), tuple(numbers[value] for value in outputs)
    return tuple(steps), layout, tuple(attributes), len(region.graph.model.opsets)


def _name_in_body(value: Value, names: dict[Value, str], writer: _BodyWriter) -> str:
    if value in names:
        return names[value]
    if not value.is_constant:
        raise Refused(
            "needs a function body",
            f'the match reads "{value.name}", which the new node does not take',
        )
    value_type = value.type
    too_large = (
        isinstance(value_type, TensorType)
        and value_type.size is not None
        and value_type.size > 2 * _INLINE_LIMIT
    )
    array = None if too_large else value.array
    if array is None or array.nbytes > _INLINE_LIMIT:
        raise Refused(
            "needs a function body", f'constant "{value.name}" is too large to become part of one'
        )
    names[value] = writer.constant(array)
    return names[value]


def original_op(node: Node) -> str:
    """Return the operator that a node stands for.

    Its body may have needed another name.
    """
    return next(
        (prop.value for prop in node.proto.metadata_props if prop.key == "gehost.op"), node.op
    )
