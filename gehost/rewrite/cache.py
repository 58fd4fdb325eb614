"""What a replacement became once, kept by all that it depends on, so that its like need not be made
out again.

A rule that fires a thousand times builds the same operators over and over. What lowering, function
bodies, inference and the comparison of types make of a replacement depends on its operators and
constants, on the types of the tensors at its ends, on the matched nodes where a body is made from
them, on the elements of constants where inference looks at them, and on nothing else in one compile.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

import numpy as np
import onnx

from gehost.es.graph import EsConst, EsGraph, EsInput, EsNode
from gehost.es.literals import exact
from gehost.infer.local import small_array
from gehost.ir.graph import NodeTemplate
from gehost.ir.region import Region
from gehost.ir.types import ValueType
from gehost.rewrite.provenance import ORIGIN_NODES, Author, Provenance

_MOST_BYTES = 1024
"""Constants of at most this many bytes are part of a key; a replacement with a larger one is
made out anew each time.
"""
_UNKNOWN: Final = "unknown"
"""The type of a tensor that is there, of which nothing is known; None is an absent one."""

Key: TypeAlias = Hashable
Read: TypeAlias = int | tuple[int, int] | np.ndarray[Any, Any] | None
"""What a planned node reads: an input of the region by its index, output ``[1]`` of the earlier
planned node ``[0]``, a constant, nothing.
"""


@dataclass(slots=True)
class PlannedNode:
    """One operator as it is written.

    Attributes:
        op: the operator's name in the model.
        attributes: encoded.
        original: the custom operator that ``op`` stands for, where its body needed a name of
            its own.
        provided_by: the runtime that has a kernel for it, "" if none is needed.
        body: the function that ``op`` calls.
        reads: its inputs.
        replaces: for each output the position of the region's output that it becomes; None for
            a new tensor.
        types: of the outputs.
    """

    op: str
    attributes: list[onnx.AttributeProto]
    original: str
    provided_by: str
    body: onnx.FunctionProto | None
    reads: list[Read]
    replaces: list[int | None]
    types: Sequence[ValueType | None] = ()
    _stem: str = ""
    _templates: dict[str, NodeTemplate] = field(default_factory=dict[str, NodeTemplate])

    def stem(self, author: Author) -> str:
        """What the names of such nodes begin with."""
        if not self._stem:
            self._stem = f"{author.name}_{(self.original or self.op).rpartition('::')[2]}"
        return self._stem

    def template(self, author: Author, origin_types: str) -> NodeTemplate:
        """Such a node, but for the names of the nodes that it replaces."""
        found = self._templates.get(origin_types)
        if found is None:
            metadata = author.metadata(Provenance("", origin_types))
            if self.original:
                metadata["gehost.op"] = self.original
            if self.provided_by:
                metadata["gehost.provided_by"] = self.provided_by
            found = self._templates[origin_types] = NodeTemplate.of(
                self.op, self.attributes, metadata, ORIGIN_NODES
            )
        return found


Plan: TypeAlias = Sequence[PlannedNode]
"""The nodes of a replacement of which all outputs are made by them, with the types that were
there.
"""


class Plans:
    """The plans for one replacement in place of matches with equal types at their ends.

    Attributes:
        from_match: a body is made from the matched nodes, so that the plan depends on them.
    """

    __slots__ = ("_by_match", "from_match")

    def __init__(self, *, from_match: bool) -> None:
        self.from_match = from_match
        self._by_match: dict[Hashable, Plan | dict[Hashable, Plan]] = {}
        """One plan where inference looks at no elements, else one for each set of elements."""

    def get(self, match: Hashable, region: Region) -> Plan | None:
        """The plan for a region, of which ``match`` holds all that a body depends on."""
        found = self._by_match.get(match)
        return found.get(_elements(region)) if isinstance(found, dict) else found

    def put(self, match: Hashable, region: Region, plan: Plan, *, blind: bool) -> None:
        """Keep a plan; ``blind``: it holds whatever the elements of constants are."""
        found = self._by_match.get(match)
        if blind:
            self._by_match[match] = plan
        elif isinstance(found, dict):
            found[_elements(region)] = plan
        else:
            self._by_match[match] = {_elements(region): plan}


def as_plan(planned: Iterable[PlannedNode]) -> Plan:
    """A plan of nodes that were planned for one rewrite; its constants are its own, as an author
    may change his arrays.
    """
    own: dict[int, np.ndarray[Any, Any]] = {}
    plan = list(planned)
    for node in plan:
        for place, read in enumerate(node.reads):
            if isinstance(read, np.ndarray):
                node.reads[place] = own.setdefault(id(read), read.copy())
    return plan


def key_of(region: Region, replacement: EsGraph) -> Key | None:
    """The key of ``Plans`` for ``replacement`` in place of ``region``; None where it would be
    too large.
    """
    places: dict[object, int] = {}
    """Where each operator stands among them."""
    key: list[Hashable] = []
    """One after the other, each part behind the number of its entries."""
    nodes = replacement.reachable()
    key.append(len(nodes))
    for node in nodes:
        key += (node.ops, node.count, len(node.params), len(node.inputs))
        for name, given in node.params.items():
            told = exact(given)
            if told is None:
                return None
            key += (name, told)
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


def inputs_read(replacement: EsGraph) -> set[int]:
    """The positions of the inputs that a replacement reads."""
    return {
        tensor.producer.index
        for node in replacement.reachable()
        for tensor in node.inputs
        if tensor is not None and isinstance(tensor.producer, EsInput)
    }


def _elements(region: Region) -> Hashable:
    """The elements of the constants that enter, as far as inference is shown them."""
    found: list[Hashable] = []
    for value in region.inputs:
        array = small_array(value)
        found.append(None if array is None else (array.dtype, array.shape, array.tobytes()))
    return tuple(found)
