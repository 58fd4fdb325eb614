"""Classify nodes by how far the clean-up may change them."""

from __future__ import annotations

from enum import IntEnum
from typing import Any, cast

import onnx

from gehost.ir.constants import elements
from gehost.ir.graph import Node, op_name, split_op
from gehost.ir.model import Model
from gehost.ir.schemas import RANDOM, schema_at
from gehost.ops import OpRegistry

_CONTROL_FLOW = frozenset({"If", "Loop", "Scan"})
"""Operators that run their bodies when they run themselves; graph attributes of other operators may
have any meaning.
"""


class Trust(IntEnum):
    """The permitted changes of a node, the minimum over its parts."""

    OPAQUE = 0
    """None: unknown operators, and registered ones that are stateful or random."""
    RANDOM = 1
    """It may be removed if unused; two of them are never merged, and none is folded."""
    PURE = 2
    """Equal inputs give equal outputs, and there are no other effects."""


class Purity:
    """Classifies the nodes of one model."""

    def __init__(self, model: Model, registry: OpRegistry) -> None:
        self._model = model
        self._registry = registry
        self._functions = {
            op_name(function.domain, function.name, function.overload): function
            for function in (*model.new_functions.values(), *model.proto.functions)
        }
        self._operators: dict[tuple[str, int | None], Trust] = {}
        self._nodes: dict[str, Trust] = {}
        self._signatures: dict[str, tuple[dict[str, int], int, int]] = {}
        self._owners: dict[Node, Trust] = {}
        self._placed = model.has_device_configurations

    def of(self, node: Node) -> Trust:
        op = node.op
        trust = self._nodes.get(op)
        if trust is None:
            trust = self._nodes[op] = self._operator(op, self._model.opset(split_op(op)[0]))
        if node.bodies:
            if not self.has_open_bodies(node):
                return Trust.OPAQUE
            inside = self._owners.get(node)
            if inside is None:
                parts = (self.of(inner) for body in node.bodies for inner in body.nodes)
                inside = self._owners[node] = min(parts, default=Trust.PURE)
            return min(trust, inside)
        if op == "Dropout" and not self.drops_nothing(node):
            return min(trust, Trust.RANDOM)
        if "::" in op and self._has_traits(node.metadata.get("gehost.op", op)):
            return Trust.OPAQUE
        return Trust.OPAQUE if self._placed and node.proto.device_configurations else trust

    def is_builtin(self, op: str) -> bool:
        """Whether an operator is ONNX's own.

        One that a function of the model overrides is not.
        """
        return "::" not in op and op not in self._functions

    def is_well_formed(self, node: Node) -> bool:
        """Whether an ONNX node has known attributes and enough inputs.

        Its attributes are those of its operator; the number of its inputs is valid.
        """
        cached = self._signatures.get(node.op)
        if cached is None:
            schema = schema_at("", node.op, self._model.opset() or 0)
            if schema is None:
                return False
            kinds: dict[str, int] = {}
            for name, attribute in schema.attributes.items():
                # the stub leaves out that it is an enumeration
                kinds[name] = cast("Any", attribute.type).value
            cached = self._signatures[node.op] = (kinds, schema.min_input, schema.max_input)
        kinds, least, most = cached
        return least <= len(node.inputs) <= most and all(
            kinds.get(entry.name) == entry.type for entry in node.proto.attribute[:]
        )

    def has_open_bodies(self, node: Node) -> bool:
        return node.op in _CONTROL_FLOW and self.is_builtin(node.op)

    def drops_nothing(self, node: Node) -> bool:
        """Whether a ``Dropout`` is in inference mode.

        It always is at opsets 7 to 11; from 12 on unless ``training_mode`` is set.
        """
        version = self._model.opset() or 0
        mode = node.input(2)
        if version < 12 or mode is None:
            return version >= 7
        array = elements(mode)
        return array is not None and array.size == 1 and not array.item()

    def _has_traits(self, op: str) -> bool:
        definition = self._registry.get(op)
        return definition is not None and definition.impure

    def _operator(self, op: str, version: int | None) -> Trust:
        """Classify an operator, without its nodes' inputs and bodies."""
        key = (op, version)
        cached = self._operators.get(key)
        if cached is not None:
            return cached
        self._operators[key] = Trust.OPAQUE  # the result for a recursive function
        domain, op_type = split_op(op)
        if self._has_traits(op):
            trust = Trust.OPAQUE
        elif op in self._functions:
            trust = self._function(self._functions[op])
        elif self._registry.get(op) is not None:
            trust = Trust.PURE
        elif version is None or schema_at(domain, op_type, version) is None:
            trust = Trust.OPAQUE
        else:
            trust = Trust.RANDOM if op in RANDOM else Trust.PURE
        self._operators[key] = trust
        return trust

    def _function(self, function: onnx.FunctionProto) -> Trust:
        versions = {
            entry.domain if entry.domain != "ai.onnx" else "": entry.version
            for entry in function.opset_import
        }
        trust = Trust.PURE
        waiting = list(function.node)
        while waiting:
            node = waiting.pop()
            op = op_name(node.domain, node.op_type, node.overload)
            version = versions.get(split_op(op)[0])
            trust = min(trust, self._operator(op, version))
            if op == "Dropout" and ((version or 0) < 7 or len(node.input) > 2):
                trust = min(trust, Trust.RANDOM)
            for attribute in node.attribute:
                if attribute.type == onnx.AttributeProto.GRAPH and op in _CONTROL_FLOW:
                    waiting.extend(attribute.g.node)
                elif attribute.type in (onnx.AttributeProto.GRAPH, onnx.AttributeProto.GRAPHS):
                    trust = Trust.OPAQUE
        return trust
