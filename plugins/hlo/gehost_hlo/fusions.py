"""XLA's fusions, and gehost's beside them.

Both are of the same source operations.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from gehost_hlo.attributes import metadata, op_name, unquoted
from gehost_hlo.module import HloInstruction, HloModule

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
        sources: the same with their place in the program, where the text has stack frames.
    """

    node: str
    op: str
    pass_name: str
    vendor: str
    origins: tuple[str, ...]
    op_names: tuple[str, ...]
    sources: tuple[str, ...] = field(default=(), repr=False)

    def as_dict(self) -> dict[str, Any]:
        fields = asdict(self)
        del fields["sources"]
        return fields


@dataclass(frozen=True)
class XlaFusion:
    """One fusion instruction of XLA.

    Attributes:
        computation: that holds it.
        calls: its own computation.
        kind: as ``kLoop``.
        instructions: opcodes inside by number, without parameters.
        op_names: source operations of the instructions inside, each once.
        vendor: the fusions by gehost's passes of the same source operations, those that share most
            first.
        shared: number of source operations that each of ``vendor`` shares.
    """

    name: str
    computation: str
    calls: str
    kind: str
    instructions: Mapping[str, int]
    op_names: tuple[str, ...]
    vendor: tuple[VendorFusion, ...] = ()
    shared: tuple[int, ...] = ()

    @property
    def size(self) -> int:
        return sum(self.instructions.values())

    def as_dict(self) -> dict[str, Any]:
        return {**asdict(self), "vendor": [row.as_dict() for row in self.vendor]}


def xla_fusions(module: HloModule, vendor: Sequence[VendorFusion] = ()) -> list[XlaFusion]:
    """List the fusions of a module in the order of its text.

    Each comes with those of ``vendor`` that share a source operation.

    A source operation is an ``op_name`` and, where both texts have stack frames, the lines of the
    program that it comes from: layers that run the same function have the same names.
    """
    computations = {computation.name: computation for computation in module.computations}
    frames = stack_frames(module)
    located = bool(frames) and any("@" in source for item in vendor for source in item.sources)
    by_source: dict[str, list[VendorFusion]] = {}
    for item in vendor:
        for source in item.sources if located else item.op_names:
            by_source.setdefault(source, []).append(item)
    rows: list[XlaFusion] = []
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
            named = [
                item
                for item in (*inside, instruction)
                if item.opcode not in _PLUMBING and op_name(item)
            ]
            op_names = tuple(dict.fromkeys(op_name(item) for item in named))
            sources = (
                dict.fromkeys(source_of(item, frames) for item in named) if located else op_names
            )
            counts: dict[VendorFusion, int] = {}
            for source in sources:
                for item in dict.fromkeys(by_source.get(source, ())):
                    counts[item] = counts.get(item, 0) + 1
            beside = sorted(counts, key=lambda item: -counts[item])
            rows.append(
                XlaFusion(
                    instruction.name,
                    computation.name,
                    calls,
                    instruction.attributes.get("kind", ""),
                    opcodes,
                    op_names,
                    tuple(beside),
                    tuple(counts[item] for item in beside),
                )
            )
    return rows


def stack_frames(module: HloModule) -> dict[str, str]:
    """Return the lines of each stack frame of a module's tables.

    The innermost comes first; {} where it has none.
    """
    tables = {table.name: dict(table.entries) for table in module.tables}
    if not {"FileNames", "FileLocations", "StackFrames"} <= tables.keys():
        return {}

    def number(text: str, name: str) -> int:
        match = re.search(rf"\b{name}=([0-9]+)", text)
        return int(match[1]) if match else 0

    places = {
        key: f"{unquoted(tables['FileNames'].get(number(text, 'file_name_id'), ''))}"
        f":{number(text, 'line')}:{number(text, 'column')}"
        for key, text in tables["FileLocations"].items()
    }
    first = tables["StackFrames"].get(1, "")
    offset = (
        1 if number(first, "parent_frame_id") == 1 else 0
    )  # jaxlib 0.10 counts parents from 1, where 1 is none
    sources: dict[str, str] = {}
    for key in tables["StackFrames"]:
        lines: list[str] = []
        visited: set[int] = set()
        frame = key
        while frame in tables["StackFrames"] and frame not in visited:
            visited.add(frame)
            text = tables["StackFrames"][frame]
            lines.append(places.get(number(text, "file_location_id"), ""))
            frame = number(text, "parent_frame_id") - offset
        sources[str(key)] = " < ".join(lines)
    return sources


def source_of(instruction: HloInstruction, frames: Mapping[str, str]) -> str:
    """Return an instruction's source operation: ``op_name@file:line:column < …``."""
    fields = metadata(instruction)
    lines = frames.get(fields.get("stack_frame_id", ""), "")
    return f"{fields.get('op_name', '')}@{lines}" if lines else fields.get("op_name", "")


def vendor_fusions(
    module: HloModule, before: onnx.ModelProto, after: onnx.ModelProto
) -> list[VendorFusion]:
    """List the nodes of a compiled import that passes made.

    Each comes with the source operations that it stands for.

    Args:
        module: the text that was imported.
        before: its import.
        after: the import, compiled by gehost.
    """
    frames = stack_frames(module)
    named: dict[str, list[tuple[str, str]]] = {}
    for node in _nodes(before.graph):
        fields = {entry.key: entry.value for entry in node.metadata_props}
        name = fields.get("hlo.op_name", "")
        if name:
            lines = frames.get(fields.get("hlo.stack_frame_id", ""), "")
            named.setdefault(node.name, []).append((name, f"{name}@{lines}" if lines else name))
    rows: list[VendorFusion] = []
    for node in _nodes(after.graph):
        fields = {entry.key: entry.value for entry in node.metadata_props}
        if "gehost.pass" not in fields:
            continue
        origins = tuple(json.loads(fields.get("gehost.origin_nodes", "[]")))
        pairs = [pair for origin in origins for pair in named.get(origin, ())]
        op_names, sources = (
            tuple(dict.fromkeys(pair[index] for pair in pairs)) for index in (0, 1)
        )
        vendor = fields.get("gehost.vendor", "")
        rows.append(
            VendorFusion(
                node.name, node.op_type, fields["gehost.pass"], vendor, origins, op_names, sources
            )
        )
    return rows


def _nodes(graph: onnx.GraphProto) -> list[onnx.NodeProto]:
    """The nodes of a graph and of the bodies in it."""
    nodes: list[onnx.NodeProto] = []
    for node in graph.node:
        nodes.append(node)
        for attribute in node.attribute:
            if attribute.HasField("g"):
                nodes += _nodes(attribute.g)
    return nodes
