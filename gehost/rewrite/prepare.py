"""What an operator of a replacement became once, kept by all that it depends on.

A rule that fires a thousand times builds the same operators over and over. What lowering, a function body and inference
make of one depends on the operator, its parameters and what is known of its operands, and on nothing else in one compile.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

import numpy as np
import onnx

from gehost.es.graph import EsConst, EsNode
from gehost.ir.graph import NodeTemplate
from gehost.ir.types import DataType, ValueType
from gehost.rewrite.history import ORIGIN_NODES
from gehost.rewrite.provenance import Author, Provenance

_MOST_BYTES = 1024
"""Constants of at most this many bytes are part of a key; an operator with a larger one is prepared anew each time."""
_PLAIN: frozenset[object] = frozenset({bool, int, float, str, bytes, DataType, type(None)})

Key: TypeAlias = Hashable
TOO_MUCH: Final = "too much"
UNKNOWN: Final = "unknown"
"""The type of an operand that is there, of which nothing is known; None is an absent one."""


@dataclass(slots=True)
class Prepared:
    """One operator as it is written.

    Attributes:
        op: the operator's name in the model.
        literals: for each input the array of a literal; None where it is the author's operand at that position.
        attributes: encoded.
        original: the custom operator that ``op`` stands for, where its body needed a name of its own.
        body: the function that ``op`` calls.
        types: of the outputs.
    """

    op: str
    literals: list[np.ndarray[Any, Any] | None]
    attributes: list[onnx.AttributeProto]
    original: str
    body: onnx.FunctionProto | None
    types: tuple[ValueType | None, ...] = ()
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
            found = self._templates[origin_types] = NodeTemplate.of(self.op, self.attributes, metadata, ORIGIN_NODES)
        return found


def key_of(node: EsNode, operands: Sequence[Hashable]) -> Key | None:
    """What the outcome for ``node`` depends on; None where that is too much to be kept.

    Args:
        node: of a replacement.
        operands: what matters of each operand; None for an absent one.
    """
    params: list[Hashable] = []
    for name, given in node.params.items():
        kind = type(given).__name__
        if type(given) not in _PLAIN and not (kind in ("list", "tuple") and all(type(entry) in _PLAIN for entry in given)):
            return None
        params.append((name, kind, repr(given)))  # 1, 1.0 and True are equal, but not alike
    return node.ops, len(node.outputs), tuple(params), tuple(operands)


def constant_key(constant: EsConst) -> Hashable:
    """What matters of a constant of the replacement."""
    array = constant.array
    if array.nbytes > _MOST_BYTES or array.dtype == object:
        return TOO_MUCH
    return constant.literal, array.dtype, array.shape, array.tobytes()
