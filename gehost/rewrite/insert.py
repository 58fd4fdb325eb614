"""Insert a replacement's operators, cached or new, into the graph.

``Insertion`` inserts a ``LoweredOp``. If the replacement is not cached, ``Lowering`` produces these
one by one: inference needs the inserted node before the next operator can be lowered.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np

from gehost.errors import PassError, PatternError
from gehost.es.graph import EsChoice, EsConst, EsGraph, EsInput, EsNode, EsTensor
from gehost.infer.local import array_type
from gehost.infer.refined import reads_elements
from gehost.ir.attributes import encode_attribute
from gehost.ir.graph import Node, Value
from gehost.ir.region import Region
from gehost.ir.types import ValueType
from gehost.refusal import Refused
from gehost.rewrite.cache import LoweredOp, LoweredReplacement, OpInput
from gehost.rewrite.functions import (
    FunctionCache,
    add_function,
    function_of_region,
    op_with_body,
    region_key,
)
from gehost.rewrite.lower import LoweredNode, Operand, lower_node
from gehost.rewrite.provenance import HISTORY, provenance
from gehost.rewrite.session import RewriteSession
from gehost.rewrite.shape_proof import NodeState


class Insertion:
    """The new nodes of one rewrite, each inserted after the previous one.

    Attributes:
        nodes: the new nodes.
    """

    def __init__(
        self, session: RewriteSession, region: Region, after: Node, generation: int
    ) -> None:
        self._session = session
        self._region = region
        self._after = after
        self._generation = generation
        self._provenance = provenance(region.nodes)
        self._constants: dict[int, Value] = {}
        """Identity of an array → its value, shared by all users of the constant."""
        self.nodes: list[Node] = []

    def insert(self, op: LoweredOp, inputs: Sequence[Value | None]) -> Node:
        """Insert a node.

        It becomes the producer of the region's outputs in ``replaced_slots``.
        """
        session, region, origin = self._session, self._region, self._provenance
        names, author = session.model.names, session.author
        stem = op.stem(author)
        name = names.fresh(stem)
        outputs: list[Value | str | None] = []
        for place in op.replaced_slots:
            outputs.append(
                region.outputs[place]
                if place is not None
                else names.fresh(stem)
                if outputs
                else name
            )
        if op.body is not None:  # ONNX's inference wants a call to have all outputs of its function
            outputs += [None] * (len(op.body.output) - len(outputs))
        template = op.template(author, origin.origin_types)
        node = region.graph.add_like(
            template, inputs, outputs, name=name, after=self._after, text=origin.origin_nodes
        )
        if origin.history:
            region.graph.set_metadata(node, HISTORY, origin.history)
        node.generation = self._generation
        self._after = node
        self.nodes.append(node)
        return node

    def insert_cached(self, lowered: LoweredReplacement) -> None:
        """Insert a replacement from the cache, with its inferred types."""
        for op in lowered:
            node = self.insert(op, self.resolve(op.inputs))
            for slot, place in enumerate(op.replaced_slots):
                value = node.outputs[slot]
                if place is None and value is not None:
                    self._region.graph.set_type(value, op.types[slot])

    def resolve(self, inputs: Sequence[OpInput]) -> list[Value | None]:
        """Return the values of an operator's inputs; add constants to the graph."""
        values: list[Value | None] = []
        for read in inputs:
            if isinstance(read, int):
                values.append(self._region.inputs[read])
            elif isinstance(read, tuple):
                values.append(self.nodes[read[0]].outputs[read[1]])
            elif read is not None:
                values.append(self.constant(read))
            else:
                values.append(None)
        return values

    def constant(self, array: np.ndarray[Any, Any]) -> Value:
        """Return the initializer of an array, created on first use.

        Raises:
            Refused: an old opset cannot express a constant of this type.
        """
        present = self._constants.get(id(array))
        if present is not None:
            return present
        model, graph = self._session.model, self._region.graph
        if not graph.takes_constant(array.dtype):
            raise Refused(
                "not applicable", f"a new constant of {array.dtype} needs IR version 4 or opset 9"
            )
        name = model.names.fresh(f"{self._session.author.name}_Constant")
        value = self._constants[id(array)] = graph.add_initializer(array, name)
        return value

    def drop_unread_constants(self) -> bool:
        """Remove new constants without users; return whether there were any."""
        unread = [value for value in self._constants.values() if not value.readers]
        for value in unread:
            if value.producer is None:
                self._region.graph.remove_initializer(value)
            else:
                self._region.graph.remove_node(value.producer)
        return bool(unread)


class Lowering:
    """Lowers a replacement and inserts it, operator by operator.

    The operators are those of the model's opset.

    Attributes:
        replaced_slots: new tensor → position of the region's output that it replaces.
        ops: the lowered operators, in order of insertion.
        from_match: True once a body was written from the matched nodes.
        cacheable: True while the result may be cached for other matches with the same key.
    """

    def __init__(
        self,
        session: RewriteSession,
        region: Region,
        replacement: EsGraph,
        insertion: Insertion,
        before: Sequence[NodeState],
    ) -> None:
        self._session = session
        self._region = region
        self._replacement = replacement
        self._before = before
        self.insertion = insertion
        self._registry, self._functions = session.registry, session.functions
        if replacement.definitions:
            self._registry = session.registry.copy()
            for definition in replacement.definitions.values():
                self._registry.define(definition)
            # its bodies are this replacement's alone
            self._functions = FunctionCache(session.model)
        self.ops: list[LoweredOp] = []
        self.from_match = False
        self.cacheable = True
        self.replaced_slots: dict[_Key, int] = {}
        for place, tensor in enumerate(replacement.outputs):
            if isinstance(tensor.producer, EsNode):
                self.replaced_slots.setdefault(_key(tensor), place)
        self._places: dict[object, int] = {}
        """The position of each operator among ``ops``."""
        self._values: dict[_Key, Value] = {}
        self._new_types: dict[Value, ValueType | None] = {}
        """New types of replaced outputs, which keep their old types until proven."""
        for tensor, value in zip(replacement.inputs, region.inputs, strict=False):
            if value is not None:
                self._values[_key(tensor)] = value

    def insert_all(self) -> None:
        """Lower and insert every operator of the replacement.

        Raises:
            Refused: the opset lacks an operator, or inference rejects its inputs.
            PassError: the replacement reads a tensor that it does not compute.
        """
        session, insertion = self._session, self.insertion
        model, registry, inferrer = session.model, self._registry, session.inferrer
        for node in self._replacement.reachable():
            lowered = lower_node(node, model, registry, self._type_of)
            op_inputs = [self._op_input(operand) for operand in lowered.inputs]
            inputs = insertion.resolve(op_inputs)
            types = [None if value is None else self.type_of_value(value) for value in inputs]
            name = self._op_with_body(node, lowered, inputs, types)
            definition = registry.get(lowered.op)
            op = LoweredOp(
                name,
                [encode_attribute(key, value) for key, value in lowered.attributes.items()],
                lowered.op if name != lowered.op else "",
                "" if definition is None else definition.provided_by,
                model.function(name),
                op_inputs,
                [self.replaced_slots.get(_key(tensor)) for tensor in node.outputs],
            )
            new = insertion.insert(op, inputs)
            op.types = inferrer.inferred(new, types)
            self._places[node] = len(self.ops)
            self.ops.append(op)
            if reads_elements(new):
                self.cacheable = False
            refined = inferrer.refined(new, types, op.types)
            for tensor, value, value_type in zip(node.outputs, new.outputs, refined, strict=False):
                assert value is not None
                self._values[_key(tensor)] = value
                if _key(tensor) in self.replaced_slots:
                    self._new_types[value] = value_type
                else:
                    self._region.graph.set_type(value, value_type)

    def value(self, tensor: EsTensor) -> Value:
        """Return a replacement tensor's value: an input, constant or new output.

        Raises:
            PassError: the replacement does not compute it, or the input is absent here.
            PatternError: it belongs to a pattern's alternatives.
        """
        cached = self._values.get(_key(tensor))
        if cached is None:
            producer = tensor.producer
            if isinstance(producer, EsInput):
                raise PassError(
                    f"the replacement uses input {producer.index}, which is absent here",
                    where=producer.origin,
                )
            if isinstance(producer, EsChoice):
                raise PatternError(
                    "Alternatives are allowed in patterns only", where=producer.origin
                )
            if not isinstance(producer, EsConst):
                raise PassError(
                    "the replacement uses a tensor that it does not compute", where=producer.origin
                )
            cached = self._values[_key(tensor)] = self.insertion.constant(producer.array)
        return cached

    def type_of_value(self, value: Value) -> ValueType | None:
        """Return a value's type, of a replaced output its new type."""
        return self._new_types.get(value, value.type)

    def _type_of(self, tensor: EsTensor) -> ValueType | None:
        value = self._values.get(_key(tensor))
        if value is not None:
            return self.type_of_value(value)
        return array_type(tensor.producer.array) if isinstance(tensor.producer, EsConst) else None

    def _op_input(self, operand: Operand) -> OpInput:
        """Return an operand in a form that is valid for every match."""
        if operand is None or isinstance(operand, np.ndarray):
            return operand
        self.value(operand)  # raises for a tensor of another graph
        producer = operand.producer
        if isinstance(producer, EsInput):
            return producer.index
        assert isinstance(producer, EsNode)  # lowering turns constants into arrays
        return self._places[producer], operand.index

    def _op_with_body(
        self,
        node: EsNode,
        lowered: LoweredNode,
        inputs: Sequence[Value | None],
        types: Sequence[ValueType | None],
    ) -> str:
        """Return the operator name to write; add its body to the model.

        Raises:
            Refused: the operator needs a body, and the match cannot become its body.
        """
        op, attributes = lowered.op, lowered.attributes
        session, region = self._session, self._region
        model, functions = session.model, self._functions
        if op.startswith("ai.onnx.") or "::" not in op:
            return op
        present = [value is not None for value in inputs]
        name = op_with_body(
            op, types, attributes, model, self._registry, session.inferrer, present, functions
        )
        is_original = op in model.original_ops or (
            op in model.functions and op not in model.new_functions
        )
        if name is not None or is_original:
            return name or op
        outputs = self._outputs_of(node, op)
        self.from_match = True
        key = region_key(region, self._before, inputs, outputs, attributes)
        name = None if key is None else functions.get((op, key))
        if name is None:
            body = function_of_region(region, self._before, inputs, outputs, attributes)
            name = add_function(op, body, model)
            if key is not None:
                functions.put((op, key), name)
        return name

    def _outputs_of(self, node: EsNode, op: str) -> list[Value]:
        """Return the region's outputs in the order of new node ``node``."""
        if len(self._replacement.reachable()) > 1:
            raise Refused(
                "needs a function body",
                f"{op} has none, and the replacement is more than this node",
            )
        delivered = {
            _key(tensor): value
            for tensor, value in zip(self._replacement.outputs, self._region.outputs, strict=True)
        }
        outputs = [delivered.get(_key(tensor)) for tensor in node.outputs]
        results = [value for value in outputs if value is not None]
        if len(results) < len(outputs) or len(results) < len(self._region.outputs):
            raise Refused(
                "needs a function body",
                f"{op} has none, and its outputs are not those of the match",
            )
        return results


_Key: TypeAlias = tuple[object, int]


def _key(tensor: EsTensor) -> _Key:
    """Return a key shared by all ``EsTensor`` objects of one output."""
    return tensor.producer, tensor.index
