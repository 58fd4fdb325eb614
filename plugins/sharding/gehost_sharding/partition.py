"""Split: one ONNX model per rank, from the annotations alone."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import helper, numpy_helper

from gehost import OutputError, UsageError
from gehost_sharding.assignment import (
    Assignment,
    Transfer,
    Transfers,
    gather_transfers,
    halo_transfer,
)
from gehost_sharding.collectives import Collective, Writer
from gehost_sharding.model_graph import Operator
from gehost_sharding.redistribution import ALL_GATHER, SLICE, Redistributions
from gehost_sharding.rules.rule import LocalNode
from gehost_sharding.rules.table import RuleTable
from gehost_sharding.sharding import (
    REDUCTIONS,
    Sharding,
    local_shape,
    piece,
    replicated,
)
from gehost_sharding.strategies import Exchange

MANIFEST = "split.json"
_EXTERNAL = 1 << 30
"""Bytes of weights from which they are written beside the model."""


@dataclass
class RankModel:
    """The model of one rank."""

    model: onnx.ModelProto
    transfers: list[Transfer]
    """Moves in the order in which the graph has them."""


class _Rank:
    """Writes the graph of one rank."""

    def __init__(
        self,
        assignment: Assignment,
        table: RuleTable,
        redistributions: Redistributions,
        rank: int,
        dialect: str,
    ) -> None:
        self.assignment = assignment
        self.graph = assignment.graph
        self.mesh = assignment.mesh
        self.table = table
        self.rank = rank
        self.position = self.mesh.coordinates(rank)
        self.transfers = Transfers(assignment, redistributions)
        self.moves: list[Transfer] = []
        self.names: dict[tuple[str, Sharding], str] = {}
        """Local tensor by tensor and sharding."""
        self.used = {*self.graph.tensors}
        self.nodes: list[onnx.NodeProto] = []
        self.initializers: list[onnx.TensorProto] = []
        self.constants: dict[tuple[bytes, str, tuple[int, ...]], str] = {}
        self.opset = self.graph.opsets.get("", 1)
        self.writer = Writer(dialect, rank, self.opset, self.fresh, self.constant)

    def write(self) -> RankModel:
        assignment = self.assignment
        inputs = [self._input(name) for name in self.graph.inputs]
        for operator in self.graph.operators:
            self._operator(operator)
        outputs = [self._output(name) for name in self.graph.outputs]
        proto = self.graph.proto
        # annotations alone need the IR version of the annotated model; 10 has functions and int4
        least = onnx.helper.find_min_ir_version_for(list(proto.opset_import), ignore_unknown=True)
        version = min(proto.ir_version, max(least, 10))
        model = onnx.ModelProto(ir_version=version, producer_name="gehost")
        model.opset_import.extend(proto.opset_import)
        domains = {entry.domain for entry in proto.opset_import}
        for domain in sorted({node.domain for node in self.nodes} - domains):
            model.opset_import.add(domain=domain, version=1)
        model.functions.extend(proto.functions)
        model.graph.name = f"{proto.graph.name or 'graph'}_rank{self.rank}"
        model.graph.node.extend(self.nodes)
        model.graph.initializer.extend(self.initializers)
        model.graph.input.extend(inputs)
        model.graph.output.extend(outputs)
        metadata = {
            "gehost.sharding.rank": str(self.rank),
            "gehost.sharding.mesh": str(assignment.mesh),
        }
        helper.set_model_props(model, metadata)
        return RankModel(model, self.moves)

    # -- tensors ------------------------------------------------------------------------------

    def fresh(self, stem: str) -> str:
        name, number = stem, 0
        while name in self.used:
            number += 1
            name = f"{stem}_{number}"
        self.used.add(name)
        return name

    def constant(self, value: NDArray[Any], stem: str) -> str:
        """Add an initializer, or find one of the same value."""
        key = (value.tobytes(), str(value.dtype), value.shape)
        if key not in self.constants:
            name = self.constants[key] = self.fresh(stem)
            self.initializers.append(numpy_helper.from_array(np.asarray(value), name))
        return self.constants[key]

    def _input(self, name: str) -> onnx.ValueInfoProto:
        tensor = self.graph.tensors[name]
        sharding = self.assignment.input_sharding(name)
        self.names[name, sharding] = name
        return _declared(name, tensor.dtype, local_shape(self.mesh, tensor.shape, sharding))

    def _output(self, name: str) -> onnx.ValueInfoProto:
        tensor = self.graph.tensors[name]
        sharding = self.assignment.output_sharding(name)
        local = self.local(name, sharding)
        if local != name:  # a constant, an input, or a tensor that was moved
            self.nodes.append(helper.make_node("Identity", [local], [name]))
        return _declared(name, tensor.dtype, local_shape(self.mesh, tensor.shape, sharding))

    def local(self, name: str, sharding: Sharding) -> str:
        """Return the local tensor that holds ``name`` as ``sharding``; writes moves to it."""
        for transfer in self.transfers.to(name, sharding):
            self._move(transfer)
        if (name, sharding) not in self.names:
            if self.graph.is_constant(name):
                self.names[name, sharding] = self._cut_constant(name, sharding)
            else:  # an input that arrives whole
                whole = self.names[name, replicated(self.mesh)]
                shape = self.graph.tensors[name].shape
                cut = piece(self.mesh, shape, sharding, self.position)
                bounds = {
                    dim: (axis.start, axis.stop)
                    for dim, axis in enumerate(cut)
                    if axis.stop - axis.start != shape[dim]
                }
                result = self.fresh(f"{name}/{self._suffix(sharding)}")
                self._slice(whole, result, bounds)
                self.names[name, sharding] = result
        return self.names[name, sharding]

    def _cut_constant(self, name: str, sharding: Sharding) -> str:
        whole = sharding == replicated(self.mesh)
        local = name if whole else self.fresh(f"{name}/{self._suffix(sharding)}")
        if whole and name in self.graph.initializers and not self.graph.is_external(name):
            self.initializers.append(self.graph.initializers[name])
            return local
        shape = self.graph.tensors[name].shape
        value = self.graph.value(name)[piece(self.mesh, shape, sharding, self.position)]
        self.initializers.append(numpy_helper.from_array(np.array(value, order="C"), local))
        return local

    def _suffix(self, sharding: Sharding) -> str:
        parts = [
            f"{dim if dim >= 0 else REDUCTIONS[dim]}{axis}"
            for axis, dim in zip(self.mesh.axes, sharding, strict=True)
            if dim != -1
        ]
        return "shard_" + "_".join(parts or ["whole"])

    # -- nodes --------------------------------------------------------------------------------

    def _slice(self, source: str, result: str, bounds: dict[int, tuple[int, int]]) -> None:
        starts = [start for start, _ in bounds.values()]
        ends = [end for _, end in bounds.values()]
        if self.opset < 10:
            attributes: dict[str, Any] = {"starts": starts, "ends": ends, "axes": list(bounds)}
            self.nodes.append(helper.make_node("Slice", [source], [result], **attributes))
            return
        operands = [
            self.constant(np.array(values, np.int64), f"{result}/{name}")
            for name, values in (("starts", starts), ("ends", ends), ("axes", list(bounds)))
        ]
        self.nodes.append(helper.make_node("Slice", [source, *operands], [result]))

    def _move(self, transfer: Transfer) -> None:
        move, name = transfer.move, transfer.tensor
        shape = self.graph.tensors[name].shape
        source = self.names[name, transfer.source]
        result = self.fresh(f"{name}/{self._suffix(move.after)}")
        self.names[name, move.after] = result
        self.moves.append(transfer)
        size = self.mesh.sizes[move.axis]
        local = local_shape(self.mesh, shape, _without_partial(transfer.source))
        if move.kind == SLICE:
            step = local[move.target] // size
            start = self.position[move.axis] * step
            self._slice(source, result, {move.target: (start, start + step)})
            return
        collective = Collective(
            move.kind,
            self.mesh.groups(move.axis),
            REDUCTIONS.get(move.source, "sum"),
            split_axis=max(move.target, 0),
            concat_axis=max(move.source, 0),
        )
        self.nodes.extend(self.writer.write(collective, source, result, local))

    def _with_halo(self, source: str, transfer: Transfer, exchange: Exchange) -> str:
        """Add the neighbours' edges to a piece; the first and the last piece have one each."""
        shape = self.graph.tensors[transfer.tensor].shape
        local = local_shape(self.mesh, shape, transfer.source)
        halo, place, count = exchange.halo, self.position[exchange.axis], exchange.pieces
        dim, size = halo.dim, local[halo.dim]
        self.moves.append(transfer)
        edges: list[str] = []
        for rows, start in ((halo.before, size - halo.before), (halo.after, 0)):
            if rows:
                edges.append(self.fresh(f"{source}/edge"))
                self._slice(source, edges[-1], {dim: (start, start + rows)})
        sent = self._joined(edges, dim, f"{source}/edges")
        gathered = self.fresh(f"{source}/edges_of_all")
        collective = Collective(ALL_GATHER, self.mesh.groups(exchange.axis), concat_axis=dim)
        edge_shape = (*local[:dim], halo.rows, *local[dim + 1 :])
        self.nodes.extend(self.writer.write(collective, sent, gathered, edge_shape))
        parts = [source]
        if place > 0 and halo.before:
            start = (place - 1) * halo.rows
            parts.insert(0, self.fresh(f"{source}/before"))
            self._slice(gathered, parts[0], {dim: (start, start + halo.before)})
        if place < count - 1 and halo.after:
            start = (place + 1) * halo.rows + halo.before
            parts.append(self.fresh(f"{source}/behind"))
            self._slice(gathered, parts[-1], {dim: (start, start + halo.after)})
        return self._joined(parts, dim, f"{source}/with_halo")

    def _joined(self, parts: list[str], dim: int, stem: str) -> str:
        if len(parts) == 1:
            return parts[0]
        name = self.fresh(stem)
        self.nodes.append(helper.make_node("Concat", parts, [name], axis=dim))
        return name

    def _operator(self, operator: Operator) -> None:
        strategy = self.assignment.strategy(operator.index)
        strategies = self.assignment.strategies[operator]
        node = onnx.NodeProto()
        node.CopyFrom(operator.node)
        del node.device_configurations[:]
        for slot, name in enumerate(operator.node.input):
            sharding = strategy.operands[slot] if name else None
            if sharding is not None:
                node.input[slot] = self.local(name, sharding)
        halo = halo_transfer(self.assignment, operator)
        if halo is not None and strategy.exchange is not None:
            node.input[0] = self._with_halo(node.input[0], halo, strategy.exchange)
        shapes: list[tuple[int, ...]] = []
        results = [(i, name) for i, name in enumerate(operator.node.output) if name]
        for (index, name), sharding in zip(results, strategy.results, strict=True):
            tensor = self.graph.tensors[name]
            shapes.append(local_shape(self.mesh, tensor.shape, _without_partial(sharding)))
            final = name not in self.graph.outputs or sharding == self.assignment.specs[name]
            local = name if final else self.fresh(f"{name}/{self._suffix(sharding)}")
            node.output[index] = local
            self.names[name, sharding] = local
        localize = self.table.localizer(operator.op)
        before: list[onnx.NodeProto] = []
        after: list[onnx.NodeProto] = []
        if localize is not None:
            local_node = LocalNode(
                node,
                self.graph.instance(operator),
                strategies.rule,
                strategy.factors,
                tuple(shapes),
                self.mesh,
                self.position,
                self.constant,
                strategy.operands,
            )
            localize(local_node)
            before, after = local_node.before, local_node.after
        self.nodes.extend([*before, node, *after])


def _without_partial(sharding: Sharding) -> Sharding:
    return tuple(max(dim, -1) for dim in sharding)


def _declared(name: str, dtype: np.dtype[Any], shape: tuple[int, ...]) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(dtype), shape)


def split_rank(
    assignment: Assignment,
    rank: int,
    *,
    table: RuleTable | None = None,
    dialect: str = "gehost",
    redistributions: Redistributions | None = None,
) -> RankModel:
    """Write the model of one rank.

    Raises:
        UsageError: the dialect cannot express a collective.
    """
    return _Rank(
        assignment,
        table or RuleTable.with_plugins(),
        redistributions or Redistributions(assignment.mesh),
        rank,
        dialect,
    ).write()


def write_split(
    assignment: Assignment,
    directory: str,
    *,
    table: RuleTable | None = None,
    dialect: str = "gehost",
    progress: Callable[[int], None] | None = None,
) -> list[Transfer]:
    """Write ``rank0.onnx`` … and ``split.json`` into a directory, all or nothing.

    Returns:
        The moves of the model, the same on every rank.

    Raises:
        UsageError: the directory holds other files, or the dialect cannot express a collective.
        OutputError: a file cannot be written.
    """
    target = Path(directory)
    if target.exists() and not _is_split(target):
        raise UsageError(
            "exists and holds other files", where=directory, hint="name a new directory"
        )
    table = table or RuleTable.with_plugins()
    redistributions = Redistributions(assignment.mesh)
    transfers: list[Transfer] = []
    try:
        target.absolute().parent.mkdir(parents=True, exist_ok=True)
        staging = Path(tempfile.mkdtemp(prefix=".split-", dir=target.absolute().parent))
    except OSError as error:
        raise OutputError(
            f"cannot be written: {error.strerror or error}", where=directory
        ) from error
    try:
        for rank in range(assignment.mesh.devices):
            part = split_rank(
                assignment, rank, table=table, dialect=dialect, redistributions=redistributions
            )
            transfers = part.transfers
            _save(part.model, staging / f"rank{rank}.onnx")
            if progress is not None:
                progress(rank)
        manifest = _manifest(assignment, dialect, transfers, redistributions)
        (staging / MANIFEST).write_text(json.dumps(manifest, indent=1), encoding="utf-8")
        os.chmod(staging, 0o755)  # noqa: S103 - as any new directory; mkdtemp's is private
        if target.exists():
            shutil.rmtree(target)
        os.replace(staging, target)
    except OSError as error:
        raise OutputError(
            f"cannot be written: {error.strerror or error}", where=directory
        ) from error
    finally:
        shutil.rmtree(staging, ignore_errors=True)
    return transfers


def _is_split(directory: Path) -> bool:
    if not directory.is_dir():
        return False
    names = [entry.name for entry in directory.iterdir()]
    return all(name == MANIFEST or (name.startswith("rank") and ".onnx" in name) for name in names)


def _save(model: onnx.ModelProto, path: Path) -> None:
    size = sum(len(entry.raw_data) for entry in model.graph.initializer)
    if size < _EXTERNAL:
        path.write_bytes(model.SerializeToString())
        return
    onnx.save(  # pyright: ignore[reportUnknownMemberType]
        model, path, save_as_external_data=True, location=f"{path.name}.data", size_threshold=1024
    )


def _manifest(
    assignment: Assignment,
    dialect: str,
    transfers: list[Transfer],
    redistributions: Redistributions,
) -> dict[str, Any]:
    """Return ``run``'s data beside the rank models: how to cut inputs and gather outputs."""
    graph, mesh = assignment.graph, assignment.mesh
    path = os.path.abspath(graph.path) if graph.path else None
    gathers = gather_transfers(assignment, redistributions)
    return {
        "mesh": {"axes": list(mesh.axes), "sizes": list(mesh.sizes)},
        "dialect": dialect,
        "model": path,
        "model_sha256": _digest(path) if path else None,
        "inputs": {
            name: {
                "shape": list(graph.tensors[name].shape),
                "dtype": str(graph.tensors[name].dtype),
                "sharding": list(assignment.input_sharding(name)),
            }
            for name in graph.inputs
        },
        "outputs": {
            name: {
                "shape": list(graph.tensors[name].shape),
                "dtype": str(graph.tensors[name].dtype),
                "sharding": list(assignment.output_sharding(name)),
            }
            for name in graph.outputs
        },
        "predicted": {
            "bytes": sum(transfer.bytes for transfer in transfers),
            "output_bytes": sum(transfer.bytes for transfer in gathers),
        },
    }


def _digest(path: str) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
