"""XLA's fusions, and beside each what gehost's passes fused of the same source operations."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from gehost_hlo.attributes import op_name
from gehost_hlo.module import HloModule

if TYPE_CHECKING:
    import onnx

_PLUMBING = frozenset({"parameter", "constant", "tuple", "get-tuple-element", "bitcast"})


@dataclass(frozen=True)
class VendorFusion:
    """A node that a pass of gehost made.

    Attributes:
        node: its name.
        op: its operator.
        origins: the imported nodes that it stands for.
        op_names: their source operations.
    """

    node: str
    op: str
    pass_name: str
    vendor: str
    origins: tuple[str, ...]
    op_names: tuple[str, ...]


@dataclass(frozen=True)
class XlaFusion:
    """One fusion instruction of XLA.

    Attributes:
        computation: that holds it.
        calls: its own computation.
        kind: as ``kLoop``.
        instructions: opcodes inside by number, without parameters.
        op_names: source operations of the instructions inside, each once.
        vendor: what gehost's passes fused of the same source operations.
    """

    name: str
    computation: str
    calls: str
    kind: str
    instructions: Mapping[str, int]
    op_names: tuple[str, ...]
    vendor: tuple[VendorFusion, ...] = field(default=())

    @property
    def size(self) -> int:
        return sum(self.instructions.values())

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


def xla_fusions(module: HloModule, vendor: Sequence[VendorFusion] = ()) -> list[XlaFusion]:
    """List the fusions of a module in the order of its text, with those of ``vendor`` that share a source operation."""
    computations = {computation.name: computation for computation in module.computations}
    by_op_name: dict[str, list[VendorFusion]] = {}
    for each in vendor:
        for name in each.op_names:
            by_op_name.setdefault(name, []).append(each)
    found: list[XlaFusion] = []
    for computation in module.computations:
        for instruction in computation.instructions:
            if instruction.opcode != "fusion":
                continue
            calls = instruction.attributes.get("calls", "").removeprefix("%")
            inside = computations[calls].instructions if calls in computations else ()
            opcodes: dict[str, int] = {}
            for inner in inside:
                if inner.opcode != "parameter":
                    opcodes[inner.opcode] = opcodes.get(inner.opcode, 0) + 1
            names = [op_name(inner) for inner in inside if inner.opcode not in _PLUMBING] + [op_name(instruction)]
            op_names = tuple(dict.fromkeys(name for name in names if name))
            beside = dict.fromkeys(each for name in op_names for each in by_op_name.get(name, ()))
            kind = instruction.attributes.get("kind", "")
            found.append(XlaFusion(instruction.name, computation.name, calls, kind, opcodes, op_names, tuple(beside)))
    return found


def vendor_fusions(before: onnx.ModelProto, after: onnx.ModelProto) -> list[VendorFusion]:
    """List the nodes of a compiled import that passes made, with the source operations that they stand for."""
    op_names: dict[str, list[str]] = {}
    for node in _nodes(before.graph):
        name = next((entry.value for entry in node.metadata_props if entry.key == "hlo.op_name"), "")
        if name:
            op_names.setdefault(node.name, []).append(name)
    found: list[VendorFusion] = []
    for node in _nodes(after.graph):
        metadata = {entry.key: entry.value for entry in node.metadata_props}
        if "gehost.pass" not in metadata:
            continue
        origins = tuple(json.loads(metadata.get("gehost.origin_nodes", "[]")))
        names = tuple(dict.fromkeys(name for origin in origins for name in op_names.get(origin, ())))
        found.append(
            VendorFusion(node.name, node.op_type, metadata["gehost.pass"], metadata.get("gehost.vendor", ""), origins, names)
        )
    return found


def _nodes(graph: onnx.GraphProto) -> list[onnx.NodeProto]:
    """The nodes of a graph and of the bodies in it."""
    found: list[onnx.NodeProto] = []
    for node in graph.node:
        found.append(node)
        for attribute in node.attribute:
            if attribute.HasField("g"):
                found += _nodes(attribute.g)
    return found
