"""Cache of lowered replacements, keyed by everything lowering depends on.

A rule that fires a thousand times lowers the same operators repeatedly. Lowering, function bodies,
inference and the type proof depend on the replacement's operators and constants, on the types at
the region's boundary, on the matched nodes if a body is written from them, on the elements of
constants that inference reads, and on nothing else within one compile.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

import numpy as np
import onnx

from gehost.es.graph import EsConst, EsGraph, EsInput, EsNode, exact
from gehost.infer.local import ELEMENTS_DO_NOT_MATTER, small_array
from gehost.ir.graph import NodeTemplate, op_name
from gehost.ir.model import Model
from gehost.ir.node import PROVIDED_BY
from gehost.ir.region import Region
from gehost.ir.types import ValueType
from gehost.ops import OpRegistry
from gehost.rewrite.functions import region_key
from gehost.rewrite.provenance import ORIGIN_NODES, Author, Provenance
from gehost.rewrite.shape_proof import NodeState, states_of

_MOST_BYTES = 1024
"""Largest constant in bytes that is part of a key; replacements with larger ones are not cached."""
_UNKNOWN: Final = "unknown"
"""The type of a tensor that is present but untyped; None stands for an absent one."""

OpInput: TypeAlias = int | tuple[int, int] | np.ndarray[Any, Any] | None
"""An input of the region by its index; output ``[1]`` of the lowered operator ``[0]``; a constant;
or absent.
"""


@dataclass(slots=True)
class LoweredOp:
    """One lowered operator, independent of the graph.

    Attributes:
        op: the operator's name in the model.
        attributes: encoded.
        original: the custom operator of ``op``, if its body needed another name.
        provided_by: the runtime that has a kernel for it, "" if none is needed.
        body: the function that ``op`` calls.
        inputs: their sources.
        replaced_slots: for each output the position of the region's output that it replaces;
            None for a new tensor.
        types: of the outputs.
    """

    op: str
    attributes: list[onnx.AttributeProto]
    original: str
    provided_by: str
    body: onnx.FunctionProto | None
    inputs: list[OpInput]
    replaced_slots: list[int | None]
    types: Sequence[ValueType | None] = ()
    _stem: str = ""
    _templates: dict[str, NodeTemplate] = field(default_factory=dict[str, NodeTemplate])

    @classmethod
    def identity(cls, place: int) -> LoweredOp:
        """Return an ``Identity`` that replaces the region's output ``place``."""
        return cls("Identity", [], "", "", None, [], [place])

    def stem(self, author: Author) -> str:
        """Return the prefix of the names of such nodes."""
        if not self._stem:
            self._stem = f"{author.name}_{(self.original or self.op).rpartition('::')[2]}"
        return self._stem

    def template(self, author: Author, origin_types: str) -> NodeTemplate:
        """Return a template of such nodes without the replaced nodes' names."""
        cached = self._templates.get(origin_types)
        if cached is None:
            metadata = author.metadata(Provenance("", origin_types))
            if self.original:
                metadata["gehost.op"] = self.original
            if self.provided_by:
                metadata[PROVIDED_BY] = self.provided_by
            cached = self._templates[origin_types] = NodeTemplate.of(
                self.op, self.attributes, metadata, ORIGIN_NODES
            )
        return cached


LoweredReplacement: TypeAlias = Sequence[LoweredOp]
"""The operators of a replacement that compute all its outputs, with the types of the old ones."""


class ReplacementCache:
    """The lowered replacements of one pass."""

    def __init__(self, model: Model, registry: OpRegistry) -> None:
        self._model = model
        self._registry = registry
        self._entries: dict[Hashable, _Entry] = {}

    def get(
        self, key: Hashable | None, region: Region, replacement: EsGraph
    ) -> LoweredReplacement | None:
        """Return the cached replacement of a region that is not yet edited.

        None if there is none, or its body changed.
        """
        entry = None if key is None else self._entries.get(key)
        if entry is None:
            return None
        match: Hashable = ()
        if entry.from_match:
            match = _match_key(region, replacement, states_of(region.nodes))
        cached = entry.by_match.get(match)
        lowered = cached.get(_elements(region)) if isinstance(cached, dict) else cached
        if lowered is None:
            return None
        for op in lowered:
            if op.body is not None and self._model.function(op.op) is not op.body:
                return None
        return lowered

    def put(
        self,
        key: Hashable | None,
        region: Region,
        replacement: EsGraph,
        before: Sequence[NodeState],
        ops: LoweredReplacement,
        *,
        from_match: bool,
    ) -> None:
        """Cache a lowered replacement.

        It serves matches with the same ``key``; a key of None is not cached.

        ``from_match``: a body was written from the matched nodes.
        """
        match = _match_key(region, replacement, before) if from_match else ()
        if key is None or match is None:
            return
        entry = self._entries.get(key)
        if entry is None or entry.from_match is not from_match:
            entry = self._entries[key] = _Entry(from_match)
        own: dict[int, np.ndarray[Any, Any]] = {}
        for op in ops:
            for place, read in enumerate(op.inputs):
                if isinstance(read, np.ndarray):  # an author may change it later
                    op.inputs[place] = own.setdefault(id(read), read.copy())
        if all(self._ignores_elements(op.original or op.op, op.body) for op in ops):
            entry.by_match[match] = ops
            return
        lowered = entry.by_match.get(match)
        if isinstance(lowered, dict):
            lowered[_elements(region)] = ops
        else:
            entry.by_match[match] = {_elements(region): ops}

    def _ignores_elements(self, op: str, body: onnx.FunctionProto | None) -> bool:
        """Whether inference of an operator, and of its body, reads no elements."""
        definition = self._registry.get(op)
        if definition is not None and definition.shape is not None:
            return True  # the author's function only receives types
        if body is None:
            return op in ELEMENTS_DO_NOT_MATTER
        for node in body.node:
            inner = op_name(node.domain, node.op_type, node.overload)
            if inner != "Constant" and not self._ignores_elements(
                inner, self._model.function(inner)
            ):
                return False
        return True


@dataclass(slots=True)
class _Entry:
    """Lowered replacements with one key.

    Attributes:
        from_match: a body was written from the matched nodes, so the match is part of the key.
        by_match: one replacement if inference reads no elements, otherwise one per set of elements.
    """

    from_match: bool
    by_match: dict[Hashable, LoweredReplacement | dict[Hashable, LoweredReplacement]] = field(
        default_factory=dict[Hashable, "LoweredReplacement | dict[Hashable, LoweredReplacement]"]
    )


def cache_key(region: Region, replacement: EsGraph) -> Hashable | None:
    """Return the key of ``replacement`` for ``region``, None if not cacheable."""
    places: dict[object, int] = {}
    """The position of each operator."""
    key: list[Hashable] = []
    """Flat; each part follows the number of its entries."""
    nodes = replacement.reachable()
    key.append(len(nodes))
    for node in nodes:
        key += (node.ops, node.count, len(node.params), len(node.inputs))
        for name, parameter in node.params.items():
            token = exact(parameter)
            if token is None:
                return None
            key += (name, token)
        for tensor in node.inputs:
            if tensor is None:
                key.append(None)
                continue
            producer = tensor.producer
            if isinstance(producer, EsInput):
                key.append(producer.index)
            elif isinstance(producer, EsNode):
                key.append((places.get(producer), tensor.index))
            elif (
                isinstance(producer, EsConst)
                and producer.array.nbytes <= _MOST_BYTES
                and producer.array.dtype != object
            ):
                array = producer.array
                key.append((producer.literal, array.dtype, array.shape, array.tobytes()))
            else:
                return None
        places[node] = len(places)
    key.append(len(replacement.outputs))
    for tensor in replacement.outputs:
        place = places.get(tensor.producer)
        if place is None:
            return None
        key += (place, tensor.index)
    for value in region.inputs[: len(replacement.inputs)]:
        key.append(None if value is None else value.type or _UNKNOWN)
    for value in region.outputs:
        key.append(value.type)
    return tuple(key)


def _match_key(
    region: Region, replacement: EsGraph, before: Sequence[NodeState]
) -> Hashable | None:
    """Return the key of a body written from the match, or None.

    It has everything that the body depends on; None: the body cannot be compared.
    """
    read = {
        tensor.producer.index
        for node in replacement.reachable()
        for tensor in node.inputs
        if tensor is not None and isinstance(tensor.producer, EsInput)
    }
    # constants that the new node does not read become part of the body, by their elements
    inputs = [value if slot in read else None for slot, value in enumerate(region.inputs)]
    return region_key(region, before, inputs, region.outputs, ())


def _elements(region: Region) -> Hashable:
    """Return a key of the constant inputs' elements that inference may read."""
    elements: list[Hashable] = []
    for value in region.inputs:
        array = small_array(value)
        elements.append(None if array is None else (array.dtype, array.shape, array.tobytes()))
    return tuple(elements)
