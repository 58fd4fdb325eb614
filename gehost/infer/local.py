"""Inference of single nodes by ONNX; cached by operator, attributes and types."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any, cast

import numpy as np
import onnx
import onnx.shape_inference

from gehost.errors import GehostError, ModelError, VendorError, described
from gehost.infer.calls import as_a_model, body_nodes, constant_of, opsets_of
from gehost.infer.doubtful_sizes import DOUBTS
from gehost.infer.doubts import Doubt, Statement, believed
from gehost.infer.limits import grows_too_much, miscounts_outputs
from gehost.infer.onnx_workarounds import checked, spelled_out
from gehost.infer.refined import (
    MAY_READ_ELEMENTS,
    REFINED,
    computed_numbers,
    is_complete,
    merge_types,
    reads_elements,
    refine,
    refine_sizes,
)
from gehost.infer.runtime_operators import result_types
from gehost.ir import tensors
from gehost.ir.attributes import attribute_value
from gehost.ir.constants import content
from gehost.ir.graph import GRAPH_KINDS, Graph, Node, Value, op_name, split_op
from gehost.ir.model import Model
from gehost.ir.schemas import declared_schema_at
from gehost.ir.types import (
    DataType,
    Dim,
    TensorType,
    ValueType,
    decode_type,
    dtype_from_number,
    encode_type,
    is_invented,
    plain_shape,
)
from gehost.ops import OpDef, OpRegistry
from gehost.refusal import Refused
from gehost.sizes import Origin

_DATA_LIMIT = 1024
"""Largest integer constants in bytes that inference functions see (shapes, axes, pads)."""
_SCALES_LIMIT = 24
"""The same for floats (bounds of Range, scales of Resize). Longer ones are weights, with which each
layer would be a case of its own in the cache.
"""

_SCAN_WITHOUT_BATCH = 9

_WHOLE = frozenset(
    dtype for dtype in DataType if dtype.name.removeprefix("U").startswith("INT")
) | {DataType.BOOL}

ELEMENTS_DO_NOT_MATTER = frozenset(
    (
        *("Abs", "Add", "And", "BatchNormalization", "Cast", "Concat", "Conv", "ConvTranspose"),
        *("Div", "Equal", "Erf", "Exp", "Gather", "Gelu", "Gemm", "Greater", "Identity"),
        *("InstanceNormalization", "LayerNormalization", "Less", "Log", "MatMul", "Max", "Mean"),
        *("Min", "Mul", "Neg", "Not", "Or", "Pow", "PRelu", "Reciprocal", "Relu"),
        *("RMSNormalization", "Shape", "Sigmoid", "Softmax", "Sqrt", "Sub", "Sum", "Tanh"),
        *("Transpose", "Where", "Xor"),
    )
)
"""Common operators whose output types depend on types and attributes alone."""


class Inferrer:
    """Infers output types of nodes of one model."""

    def __init__(
        self,
        model: Model,
        registry: OpRegistry,
        doubts: Mapping[str, Sequence[Doubt]] = DOUBTS,
    ) -> None:
        """Create an inferrer with an empty cache.

        Args:
            model: has the opsets and the bodies of functions.
            registry: the operators of vendors.
            doubts: by operator; sizes in doubt count as unknown.
        """
        self._model = model
        self._registry = registry
        self._doubts = doubts
        self._known: dict[tuple[Any, ...], tuple[ValueType | None, ...]] = {}
        self._bodies: dict[int, onnx.FunctionProto] = {}
        """Bodies that cached results depend on; held so that their ids stay unique."""
        self._inside: set[str] = set()
        """Operators whose bodies are being inferred."""
        self.failures: dict[Node, str] = {}
        """Nodes of the model whose operators do not accept their inputs, and why."""
        self.body_of_call: (
            Callable[[OpDef, onnx.NodeProto, Sequence[ValueType | None]], onnx.FunctionProto | None]
            | None
        ) = None
        """Returns the body of one call of a runtime's operator, if the model has none."""
        self.walk: Callable[[Graph, Inferrer], None] | None = None
        """Inference of a whole graph, which bodies may need; set by ``infer_model``."""
        self._taken: set[str] | None = set()
        """Names of sizes that the file uses; None if sizes without a name get none."""

    def node(
        self, node: Node, types: Sequence[ValueType | None] | None = None
    ) -> tuple[ValueType | None, ...]:
        """Return the output types of a node.

        They follow from its inputs' types, or from ``types`` instead.

        Raises:
            Refused: the operator does not accept these inputs.
        """
        if types is None:
            types = [value.type if value is not None else None for value in node.inputs]
        return self.refined(node, types, self.inferred(node, types))

    def inferred(
        self, node: Node, types: Sequence[ValueType | None]
    ) -> tuple[ValueType | None, ...]:
        """Return the output types that follow from the node alone.

        Raises:
            Refused: as ``node``.
        """
        op, inputs, outputs = node.op, node.inputs, node.outputs
        body, opsets = self._model.function(op), self._model.opsets
        if body is not None:
            self._bodies[id(body)] = body
        key = (
            op,
            op if "::" not in op else _original(op, node.proto),
            id(body),
            opsets.get(split_op(op)[0]),
            node.encoded_attrs,
            tuple(types),
            () if None not in types else tuple([value is None for value in inputs]),
            len(outputs) if None not in outputs else tuple([value is None for value in outputs]),
            () if op in ELEMENTS_DO_NOT_MATTER else tuple(map(_deciding_content, inputs)),
        )
        results = self._known.get(key)
        if results is None:
            arrays = [deciding_array(op, value) for value in inputs]
            results = self._known[key] = self._compute(op, node.proto, types, arrays, opsets)
        return results

    def refined(
        self, node: Node, types: Sequence[ValueType | None], results: tuple[ValueType | None, ...]
    ) -> tuple[ValueType | None, ...]:
        """Return the inferred types ``results``, refined by the nodes around."""
        if (
            node.op not in MAY_READ_ELEMENTS
            or all(map(is_complete, results))
            or not reads_elements(node)
        ):
            return results
        if node.op not in REFINED:
            return self._with_computed(node, types, results)
        refined = refine(node, types, results[0]) if len(results) == 1 else None
        return results if refined is None or refined is results[0] else (refined,)

    def _with_computed(
        self, node: Node, types: Sequence[ValueType | None], results: tuple[ValueType | None, ...]
    ) -> tuple[ValueType | None, ...]:
        """Return the inferred types ``results``, with computed axes as if they were constants."""
        arrays = [computed_numbers(value) for value in node.inputs]
        if all(array is None for array in arrays):
            return results
        constants = [deciding_array(node.op, value) for value in node.inputs]
        read = [b if a is None else a for a, b in zip(arrays, constants, strict=True)]
        try:
            return tuple(map(merge_types, results, self.proto(node.op, node.proto, types, read)))
        except Refused:  # the node fails, if it runs
            return results

    def proto(
        self,
        op: str,
        proto: onnx.NodeProto,
        types: Sequence[ValueType | None],
        arrays: Sequence[np.ndarray[Any, Any] | None] | None = None,
        opsets: Mapping[str, int] | None = None,
    ) -> tuple[ValueType | None, ...]:
        """Return the output types of a protobuf, as ``inferred`` for a node.

        Args:
            op: the operator's name.
            proto: the node; the names of its inputs only show which are present.
            types: of its inputs.
            arrays: the elements of constant inputs.
            opsets: those of the function that contains the node; None for the model's.

        Raises:
            Refused: as ``node``.
        """
        small = [None] * len(types) if arrays is None else [_small(array) for array in arrays]
        opsets = self._model.opsets if opsets is None else opsets
        body = self._model.function(op)
        if body is not None:
            self._bodies[id(body)] = body
        attributes = tuple(
            sorted(entry.SerializeToString(deterministic=True) for entry in proto.attribute[:])
        )
        data = tuple(
            None if array is None else (array.dtype, array.shape, array.tobytes())
            for array in small
        )
        present = (tuple(map(bool, proto.input[:])), tuple(map(bool, proto.output[:])))
        key = (
            op,
            _original(op, proto),
            id(body),
            opsets.get(split_op(op)[0]),
            attributes,
            tuple(types),
            data,
            present,
        )
        results = self._known.get(key)
        if results is None:
            results = self._known[key] = self._compute(op, proto, types, small, opsets)
        return results

    def named(
        self,
        value_type: ValueType | None,
        declared: ValueType | None = None,
        value: Value | None = None,
    ) -> ValueType | None:
        """Return the type with a name for each unknown size.

        The name is that of ``declared`` if no other size has it, or a new one, whose origin is
        ``value``.
        """
        names, scope = self._taken, self._model.sizes
        if (
            names is None
            or not isinstance(value_type, TensorType)
            or value_type.shape is None
            or None not in value_type.shape
        ):
            return value_type
        offered = declared.shape if isinstance(declared, TensorType) else None
        if offered is None or len(offered) != len(value_type.shape):
            offered = (None,) * len(value_type.shape)
        dims: list[Dim] = []
        for axis, (dim, name) in enumerate(zip(value_type.shape, offered, strict=True)):
            if dim is not None:
                dims.append(dim)
            elif isinstance(name, str) and (
                is_invented(name) or names.isdisjoint(scope.names_in(name))
            ):
                names.update(scope.names_in(name))
                dims.append(name)
            else:
                unnamed = scope.unnamed()
                dims.append(unnamed)
                if value is not None:
                    scope.symbol(unnamed, _origin(value, axis))
        return TensorType(value_type.dtype, tuple(dims))

    def take_names(self, value_type: ValueType | None) -> None:
        """Record the names of sizes in the type of an input."""
        if self._taken is not None and isinstance(value_type, TensorType):
            for dim in value_type.shape or ():
                if isinstance(dim, str):
                    self._taken.update(self._model.sizes.names_in(dim))

    def names_in(self, dim: str) -> frozenset[str]:
        """Return the names in a size's text."""
        return self._model.sizes.names_in(dim)

    def body(self, op: str) -> onnx.FunctionProto | None:
        """Return the body of an operator, or None."""
        return self._model.function(op)

    def _compute(
        self,
        op: str,
        proto: onnx.NodeProto,
        types: Sequence[ValueType | None],
        arrays: Sequence[np.ndarray[Any, Any] | None],
        opsets: Mapping[str, int],
    ) -> tuple[ValueType | None, ...]:
        definition = self._registry.get(_original(op, proto))
        if definition is not None and definition.shape is not None:
            return _ask_author(definition, proto, types)
        body = self._model.function(op)
        if body is None and definition is not None and definition.provided_by and self.body_of_call:
            body = self.body_of_call(definition, proto, types)
        if body is not None:
            return self._through_body(op, body, proto, types, arrays)
        domain, op_type = split_op(op)
        version = opsets.get(domain)
        schema = None if version is None else declared_schema_at(domain, op_type, version)
        if schema is None:
            attributes = {entry.name: attribute_value(entry) for entry in proto.attribute}
            return result_types(op, types, attributes, len(proto.output))
        if (
            is_scan(op, version)
            or grows_too_much(op, [k.shape if isinstance(k, TensorType) else None for k in types])
            or miscounts_outputs(proto)
        ):
            return (None,) * len(proto.output)
        if not schema.has_type_and_shape_inference_function:
            body = _function_of(schema, proto, types)
            if body is not None:
                return self._through_body(op, body, proto, types, arrays)
        imports = [
            onnx.OperatorSetIdProto(domain=name, version=number) for name, number in opsets.items()
        ]
        inferred = _ask_onnx(schema, proto, types, arrays, imports)

        def ask(others: Sequence[ValueType | None]) -> tuple[ValueType | None, ...] | None:
            try:
                return _ask_onnx(schema, proto, others, arrays, imports)
            except Refused:
                return None

        results = checked(op, types, inferred, ask)
        doubts = self._doubts.get(op)
        if doubts is not None:
            present = tuple(map(bool, proto.input))
            attributes = _with_defaults(schema, proto)
            statement = Statement(op, attributes, types, arrays, present, results)
            certain = believed(doubts, version or 0, statement)
            if certain is not results:  # doubtful sizes are not computed either
                return tuple(certain)
        return tuple(refine_sizes(self._model.sizes, op, proto, types, results))

    def _through_body(
        self,
        op: str,
        body: onnx.FunctionProto,
        call: onnx.NodeProto,
        types: Sequence[ValueType | None],
        arrays: Sequence[np.ndarray[Any, Any] | None],
    ) -> tuple[ValueType | None, ...]:
        if op in self._inside:
            return (None,) * len(call.output)  # recursive, which ONNX forbids
        if len(call.output) > len(body.output):
            raise Refused(
                "types", f"{op} has {len(body.output)} outputs, the node wants {len(call.output)}"
            )
        results = self._infer_stepwise(op, body, call, types, arrays)
        if (
            self.walk is None
            or all(map(is_complete, results))
            or not any(  # more than the inputs' types may decide these nodes' types
                node.op_type in REFINED
                or any(entry.type in GRAPH_KINDS for entry in node.attribute)
                for node in body.node
            )
        ):
            return results
        self._inside.add(op)
        try:
            return tuple(
                map(
                    merge_types, results, self._infer_as_model(body, call, types, arrays, self.walk)
                )
            )
        except ModelError:  # the body has names that no model may have
            return results
        finally:
            self._inside.discard(op)

    def _infer_as_model(
        self,
        body: onnx.FunctionProto,
        call: onnx.NodeProto,
        types: Sequence[ValueType | None],
        arrays: Sequence[np.ndarray[Any, Any] | None],
        walk: Callable[[Graph, Inferrer], None],
    ) -> list[ValueType | None]:
        """Infer a call as a model, with bodies and computed shapes."""
        model = Model(as_a_model(body, call, types, arrays))
        model.functions, model.new_functions = self._model.functions, self._model.new_functions
        model.sizes = self._model.sizes
        inferrer = Inferrer(model, self._registry, self._doubts)
        inferrer._known, inferrer._bodies, inferrer._inside = (
            self._known,
            self._bodies,
            self._inside,
        )
        inferrer.body_of_call, inferrer.walk, inferrer._taken = self.body_of_call, walk, None
        for name, value_type, array in zip(body.input, types, arrays, strict=False):
            if array is None and name in model.graph.values:
                model.graph.values[name].known_type = value_type  # may have invented names
        walk(model.graph, inferrer)
        return [value.type for value in model.graph.outputs]

    def _infer_stepwise(
        self,
        op: str,
        body: onnx.FunctionProto,
        call: onnx.NodeProto,
        types: Sequence[ValueType | None],
        arrays: Sequence[np.ndarray[Any, Any] | None],
    ) -> tuple[ValueType | None, ...]:
        """Infer a call node by node, each from its inputs' types."""
        scope: dict[str, ValueType | None] = dict(zip(body.input, types, strict=False))
        data: dict[str, np.ndarray[Any, Any] | None] = dict(zip(body.input, arrays, strict=False))
        opsets = opsets_of(body)
        self._inside.add(op)
        try:
            for proto in body_nodes(body, call):
                array = constant_of(proto)
                if array is not None:
                    scope[proto.output[0]], data[proto.output[0]] = array_type(array), array
                    continue
                name = op_name(proto.domain, proto.op_type, proto.overload)
                read = [scope.get(entry) if entry else None for entry in proto.input]
                constants = [data.get(entry) if entry else None for entry in proto.input]
                scope.update(
                    zip(proto.output, self.proto(name, proto, read, constants, opsets), strict=True)
                )
        finally:
            self._inside.discard(op)
        return tuple(scope.get(name) for name in body.output[: len(call.output)])


def _origin(value: Value, axis: int) -> Origin:
    node = value.producer
    if node is None:
        return Origin(value.name, axis, reason="an input" if value.is_input else "")
    return Origin(value.name, axis, f'{node.op} "{node.label}"')


def is_scan(op: str, version: int | None) -> bool:
    """Whether this is a Scan without a batch axis.

    ONNX's inference assumes that the sizes of its states never change.
    """
    return op == "Scan" and (version or 0) >= _SCAN_WITHOUT_BATCH


def _ask_onnx(
    schema: onnx.defs.OpSchema,
    proto: onnx.NodeProto,
    types: Sequence[ValueType | None],
    arrays: Sequence[np.ndarray[Any, Any] | None],
    imports: list[onnx.OperatorSetIdProto],
) -> tuple[ValueType | None, ...]:
    given_types: dict[str, onnx.TypeProto] = {}
    given_data: dict[str, onnx.TensorProto] = {}
    for name, value_type, array in zip(proto.input, types, arrays, strict=True):
        if name:
            given_types[name] = (
                onnx.TypeProto() if value_type is None else encode_type(value_type, all_names=True)
            )
            if array is not None:
                given_data[name] = tensors.from_numpy(array, name)
    named = spelled_out(proto)
    try:
        inferred = onnx.shape_inference.infer_node_outputs(
            schema, named, given_types, given_data, opset_imports=imports
        )
    except (
        onnx.shape_inference.InferenceError,
        onnx.checker.ValidationError,
        RuntimeError,
        ValueError,
    ) as error:
        unknown = any(
            name
            and (
                value_type is None or (isinstance(value_type, TensorType) and not value_type.dtype)
            )
            for name, value_type in zip(proto.input, types, strict=True)
        )
        if unknown or any(entry.type in GRAPH_KINDS for entry in proto.attribute):
            # the cause may be an unknown input type, or a tensor that a body captures
            return (None,) * len(proto.output)
        raise Refused("types", " ".join(str(error).split())) from error
    return tuple(
        decode_type(inferred[name], all_names=True) if name in inferred else None
        for name in proto.output
    )


def _with_defaults(schema: onnx.defs.OpSchema, proto: onnx.NodeProto) -> dict[str, Any]:
    """Return a node's attributes, with the operator's defaults for absent ones."""
    attributes = {
        name: attribute_value(entry.default_value)
        for name, entry in schema.attributes.items()
        if entry.default_value.type
    }
    attributes.update((entry.name, attribute_value(entry)) for entry in proto.attribute)
    return attributes


def _function_of(
    schema: onnx.defs.OpSchema, proto: onnx.NodeProto, types: Sequence[ValueType | None]
) -> onnx.FunctionProto | None:
    """Return the body by which ONNX defines an operator, or None."""
    functions = cast("Any", schema)  # the stub lacks them
    if functions.has_function:
        body = onnx.FunctionProto()
        body.CopyFrom(schema.function_body)
        declared = {entry.name for entry in body.attribute_proto}
        defaults = [
            attribute.default_value
            for name, attribute in schema.attributes.items()
            if name not in declared
        ]
        body.attribute_proto.extend([default for default in defaults if default.type])
        return body
    if not functions.has_context_dependent_function or None in types:
        return None
    encoded = [
        encode_type(value_type).SerializeToString()
        for value_type in types
        if value_type is not None
    ]
    return onnx.FunctionProto.FromString(
        functions.get_context_dependent_function(proto.SerializeToString(), encoded)
    )


def _original(op: str, proto: onnx.NodeProto) -> str:
    """Return the registered operator of a node.

    Its body may have needed another name.
    """
    if "::" not in op:
        return op
    return next((entry.value for entry in proto.metadata_props if entry.key == "gehost.op"), op)


def _ask_author(
    definition: OpDef, proto: onnx.NodeProto, types: Sequence[ValueType | None]
) -> tuple[ValueType | None, ...]:
    """Return the types from the shape function of a registered operator."""
    assert definition.shape is not None
    if len(proto.output) > len(definition.outputs):  # another form of the operator, of the model's
        return (None,) * len(proto.output)
    attributes = {entry.name: attribute_value(entry) for entry in proto.attribute}
    operands = [value_type if isinstance(value_type, TensorType) else None for value_type in types]
    operands += [None] * (len(definition.inputs) - len(operands))
    where = f"{definition.origin}: the shape function of {definition.name}"
    try:
        returned: Sequence[Any] = definition.shape(operands, {**definition.defaults, **attributes})
        results = tuple(returned)
    except (GehostError, KeyboardInterrupt):
        raise
    except BaseException as error:  # an author's code may raise anything
        raise VendorError(f"{where} failed: {described(error)}") from error
    # a single TensorType is a tuple, too
    if any(
        value_type is not None and not isinstance(value_type, TensorType) for value_type in results
    ):
        raise VendorError(
            f"{where} gives {returned!r}; wanted a list, with a TensorType or None for each output"
        )
    if len(results) < len(proto.output):
        raise VendorError(f"{where} gives {len(results)} types for {len(proto.output)} outputs")
    try:
        types_out: list[ValueType | None] = []
        for result in results[: len(proto.output)]:
            types_out.append(
                None if result is None else TensorType(result.dtype, plain_shape(result.shape))
            )
        return tuple(types_out)
    except TypeError as error:
        raise VendorError(f"{where} gives {returned!r}: {error}") from error


# constants


def array_type(array: np.ndarray[Any, Any]) -> TensorType:
    return TensorType(dtype_from_number(tensors.elem_type(array.dtype)), array.shape)


def _deciding_content(value: Value | None) -> Hashable:
    """Return a key for a constant's visible part, without an array."""
    if value is None or not value.is_constant:
        return None
    constant = content(value, _DATA_LIMIT)
    if constant is None:
        return None
    kind, _, bits = cast("tuple[int, object, Sequence[object]]", constant)
    # uses the constant's own type, as the value's may not be decoded yet
    return constant if kind in _WHOLE or len(bits) <= _SCALES_LIMIT else None


def deciding_array(op: str, value: Value | None) -> np.ndarray[Any, Any] | None:
    """Return a small constant's elements if inference of ``op`` may read them.

    Returns None otherwise.
    """
    return None if op in ELEMENTS_DO_NOT_MATTER else small_array(value)


def small_array(value: Value | None) -> np.ndarray[Any, Any] | None:
    """Return the elements of a small constant; large ones are not read."""
    if value is None or not value.is_constant:
        return None
    value_type = value.type
    if (
        isinstance(value_type, TensorType)
        and value_type.size is not None
        and value_type.size > 2 * _DATA_LIMIT
    ):
        return None
    return _small(value.array)


def _small(array: np.ndarray[Any, Any] | None) -> np.ndarray[Any, Any] | None:
    if array is None or array.dtype == object:
        return None
    limit = _DATA_LIMIT if array.dtype.kind in "iub" else _SCALES_LIMIT
    return array if array.nbytes <= limit else None
