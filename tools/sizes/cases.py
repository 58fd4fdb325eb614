"""One case of the sweep: a node, the opset, and the arrays it runs on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np
import onnx
import onnx.helper
import onnx.numpy_helper

Dims: TypeAlias = tuple[int | str | None, ...]

_OLDEST_IR = 8
"""From IR version 4 on an initializer need not be an input."""


@dataclass
class Case:
    """A node with its inputs.

    Attributes:
        node: reads ``i0``, ``i1``, …; an absent input has no name.
        opset: of the node's domain.
        arrays: by input; None where absent, a list for a sequence.
        constant: inputs that are initializers.
        dims: declared dimensions by input; those of the array where there are none.
        before: nodes that make inputs the graph cannot have (sequences).
    """

    node: onnx.NodeProto
    opset: int
    arrays: list[Any]
    constant: frozenset[int] = frozenset()
    dims: dict[int, Dims] = field(default_factory=dict)
    before: list[onnx.NodeProto] = field(default_factory=list)

    @property
    def op(self) -> str:
        domain = self.node.domain
        return f"{domain}::{self.node.op_type}" if domain else self.node.op_type

    @property
    def sizes(self) -> dict[str, int]:
        """The size of each symbol."""
        return {
            dim: size
            for slot, dims in self.dims.items()
            for dim, size in zip(dims, self.arrays[slot].shape, strict=True)
            if isinstance(dim, str)
        }

    def feeds(self) -> dict[str, Any]:
        """Copies of the inputs: ONNX Runtime writes into those of a BatchNormalization in training."""
        return {
            f"i{slot}": array.copy()
            for slot, array in enumerate(self.arrays)
            if array is not None and slot not in self.constant
        }

    def model(self) -> onnx.ModelProto:
        """The node alone in a graph; its outputs are declared without a type."""
        domain = self.node.domain
        newest = self.opset if not domain else onnx.defs.onnx_opset_version()
        imports = [onnx.helper.make_opsetid("", newest if not domain else min(newest, 21))]
        if domain:
            imports.append(onnx.helper.make_opsetid(domain, self.opset))
        least = onnx.helper.find_min_ir_version_for(imports[:1], ignore_unknown=True)
        graph = onnx.GraphProto(name="case", node=[*self.before, self.node])
        for slot, array in enumerate(self.arrays):
            if array is None:
                continue
            if slot in self.constant:
                graph.initializer.append(onnx.numpy_helper.from_array(array, f"i{slot}"))
            else:
                graph.input.append(_declared(f"i{slot}", array, self.dims.get(slot)))
        for name in self.node.output:
            if name:
                graph.output.add(name=name)
        return onnx.helper.make_model(
            graph, opset_imports=imports, ir_version=max(least, _OLDEST_IR)
        )


def _declared(name: str, array: np.ndarray[Any, Any], dims: Dims | None) -> onnx.ValueInfoProto:
    kind = onnx.helper.np_dtype_to_tensor_dtype(array.dtype)
    return onnx.helper.make_tensor_value_info(name, kind, array.shape if dims is None else dims)


def node_of(
    op: str,
    arrays: list[Any],
    attributes: Mapping[str, Any],
    outputs: int,
    domain: str = "",
) -> onnx.NodeProto:
    """A node over arrays; absent ones have no name."""
    names = ["" if array is None else f"i{slot}" for slot, array in enumerate(arrays)]
    results = [f"o{slot}" for slot in range(outputs)]
    node = onnx.helper.make_node(op, names, results, domain=domain)
    for name, value in attributes.items():
        kind = onnx.AttributeProto.INTS if value == [] else None  # helper cannot infer it
        node.attribute.append(onnx.helper.make_attribute(name, value, attr_type=kind))
    return node
