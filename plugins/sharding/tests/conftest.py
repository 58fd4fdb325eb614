"""Split models run in one process, rank by rank in lock step, without MPI."""

from __future__ import annotations

import importlib
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
import pytest
from numpy.typing import NDArray

from gehost.testing import parse
from gehost.verify import compare_outputs
from gehost_sharding.annotations import annotate
from gehost_sharding.assignment import Assignment
from gehost_sharding.check import read_annotations
from gehost_sharding.collectives import Collective
from gehost_sharding.hardware import Hardware
from gehost_sharding.mesh import Mesh
from gehost_sharding.model_graph import ModelGraph
from gehost_sharding.partition import split_rank
from gehost_sharding.redistribution import (
    ALL_GATHER,
    ALL_REDUCE,
    REDUCE_SCATTER,
    Redistributions,
    wire_bytes,
)
from gehost_sharding.rules.table import RuleTable
from gehost_sharding.segments import SegmentedModel
from gehost_sharding.sharding import Shape, Sharding, piece

Array = NDArray[Any]

SLOW = Hardware(flops=2e9, memory_bandwidth=1e9, link_bandwidth=1e9, latency=0.0)
"""Devices so slow that small models are worth splitting."""

FUSED = """<ir_version: 10, opset_import: ["" : 21]>
fused (float[3,35,1024] p0, float[3,35,1024] p1, int32 p2, int32 p3, float[3,35] p4,
       float[3,35] p5, int32 p6, float[3,35,1024] p7, float[3,35,1024] p8, float[3,35,1024] p9,
       int32 p10, int32 p11, int32 p12, float[3,35] p13, float[3,35] p14)
      => (float[3,35,1024] add_9075) {
  negate_1964 = Neg (p14)
  negate_1965 = Neg (p13)
  add_9068 = Add (negate_1964, negate_1965)
  constant_8355 = Constant <value = bool {0}> ()
  constant_8354 = Constant <value = int32 {840}> ()
  maximum_1386 = Max (constant_8354, p12)
  constant_8353 = Constant <value = int32 {0}> ()
  compare_2227 = Less (maximum_1386, constant_8353)
  compare_2228 = Xor (constant_8355, compare_2227)
  select_606 = Where (compare_2228, p10, p11)
  convert_2718 = Cast <to = 1> (select_606)
  matrix = Constant <value = int64[2] {3,35}> ()
  broadcast_18365 = Expand (convert_2718, matrix)
  divide_3442 = Div (add_9068, broadcast_18365)
  column = Constant <value = int64[3] {3,35,1}> ()
  divide_3442_r = Reshape (divide_3442, column)
  cube = Constant <value = int64[3] {3,35,1024}> ()
  broadcast_18367 = Expand (divide_3442_r, cube)
  add_9069 = Add (p9, broadcast_18367)
  add_9070 = Add (add_9069, p8)
  add_9071 = Add (add_9070, p7)
  negate_1966 = Neg (p5)
  negate_1967 = Neg (p4)
  add_9072 = Add (negate_1966, negate_1967)
  maximum_1385 = Max (constant_8354, p6)
  compare_2225 = Less (maximum_1385, constant_8353)
  compare_2226 = Xor (constant_8355, compare_2225)
  select_605 = Where (compare_2226, p2, p3)
  convert_2717 = Cast <to = 1> (select_605)
  broadcast_18368 = Expand (convert_2717, matrix)
  divide_3443 = Div (add_9072, broadcast_18368)
  divide_3443_r = Reshape (divide_3443, column)
  broadcast_18369 = Expand (divide_3443_r, cube)
  add_9073 = Add (add_9071, broadcast_18369)
  add_9074 = Add (add_9073, p1)
  add_9075 = Add (add_9074, p0)
}"""
"""A TensorFlow function of 46 HLO instructions, translated to ONNX."""


def model_of(
    text: str, weights: Mapping[str, Array] | None = None, opset: int = 20, ir: int = 10
) -> onnx.ModelProto:
    """A model of ONNX text without its header."""
    header = f'<ir_version: {ir}, opset_import: ["" : {opset}, "com.microsoft" : 1]>\nmain '
    return parse(header + text, weights)


def graph_of(text: str, weights: Mapping[str, Array] | None = None, opset: int = 20) -> ModelGraph:
    return ModelGraph(model_of(text, weights, opset))


def feeds_of(graph: ModelGraph, seed: int = 0) -> dict[str, Array]:
    """Distinct inputs; integers are small, as for indices."""
    rng = np.random.default_rng(seed)
    feeds: dict[str, Array] = {}
    for name in graph.inputs:
        tensor = graph.tensors[name]
        if tensor.dtype.kind == "f":
            feeds[name] = rng.standard_normal(tensor.shape).astype(tensor.dtype)
        elif tensor.dtype.kind == "b":
            feeds[name] = rng.random(tensor.shape) < 0.5
        else:
            feeds[name] = rng.integers(0, 4, tensor.shape).astype(tensor.dtype)
    return feeds


def session(model: onnx.ModelProto) -> Any:
    ort: Any = importlib.import_module("onnxruntime")
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 3
    return ort.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )


def whole_run(graph: ModelGraph, feeds: Mapping[str, Array]) -> dict[str, Array]:
    """Outputs of the unsplit model."""
    results = session(graph.proto).run(graph.outputs, dict(feeds))
    return dict(zip(graph.outputs, map(np.asarray, results), strict=True))


@dataclass
class LockStep:
    """Collectives between threads; each thread is a rank."""

    world: int
    sent: list[int] = field(default_factory=list)
    spoil: Callable[[Collective, Array], Array | None] | None = None
    """May replace the result of a collective, to see that the numbers then differ."""

    def __post_init__(self) -> None:
        self.sent = [0] * self.world
        self.slots: list[Array | None] = [None] * self.world
        self.barrier = threading.Barrier(self.world, timeout=60)

    def exchange(self, rank: int) -> Callable[[Collective, Array], Array]:
        def do(collective: Collective, value: Array) -> Array:
            self.slots[rank] = value
            self.barrier.wait()
            group = next(group for group in collective.groups if rank in group)
            values = [np.asarray(self.slots[other]) for other in group]
            self.barrier.wait()
            self.sent[rank] += self._bytes(collective, value, len(group))
            result = _collect(collective, values, group.index(rank))
            spoiled = self.spoil(collective, value) if self.spoil is not None else None
            return result if spoiled is None else spoiled

        return do

    def _bytes(self, collective: Collective, value: Array, size: int) -> int:
        gathers = collective.kind not in {ALL_REDUCE, REDUCE_SCATTER}
        return wire_bytes(collective.kind, value.nbytes * (size if gathers else 1), size)


def _collect(collective: Collective, values: Sequence[Array], position: int) -> Array:
    size = len(values)
    if collective.kind == ALL_GATHER:
        return np.concatenate(values, axis=collective.concat_axis)
    if collective.kind in {ALL_REDUCE, REDUCE_SCATTER}:
        operation = {"sum": np.add, "max": np.maximum, "min": np.minimum, "prod": np.multiply}
        total = operation[collective.reduction].reduce(np.stack(values))
        if collective.kind == ALL_REDUCE:
            return np.asarray(total)
        return np.split(total, size, axis=collective.split_axis)[position]
    pieces = [np.split(value, size, axis=collective.split_axis)[position] for value in values]
    return np.concatenate(pieces, axis=collective.concat_axis)


def assemble(mesh: Mesh, shape: Shape, sharding: Sharding, locals_: Sequence[Array]) -> Array:
    """Put the pieces of all devices together; replicas must be equal."""
    whole = np.zeros(shape, locals_[0].dtype)
    covered = np.zeros(shape, bool)
    for device, local in enumerate(locals_):
        place = piece(mesh, shape, sharding, mesh.coordinates(device))
        assert whole[place].shape == local.shape
        if covered[place].all():
            np.testing.assert_array_equal(whole[place], local)
        whole[place], covered[place] = local, True
    assert covered.all()
    return whole


def split_run(
    assignment: Assignment,
    feeds: Mapping[str, Array],
    *,
    dialect: str = "gehost",
    table: RuleTable | None = None,
    lock_step: LockStep | None = None,
    edit: Callable[[int, onnx.ModelProto], None] | None = None,
) -> tuple[dict[str, Array], LockStep]:
    """Run every rank of a split, each in a thread; returns the whole outputs."""
    mesh, graph = assignment.mesh, assignment.graph
    lock_step = lock_step or LockStep(mesh.devices)
    redistributions = Redistributions(mesh)
    models: list[SegmentedModel] = []
    for rank in range(mesh.devices):
        part = split_rank(
            assignment, rank, table=table, dialect=dialect, redistributions=redistributions
        )
        if edit is not None:
            edit(rank, part.model)
        models.append(SegmentedModel(part.model, mesh.devices))
    results: list[dict[str, Array] | None] = [None] * mesh.devices
    errors: list[BaseException] = []

    def run(rank: int) -> None:
        local = {
            name: np.asarray(
                value[
                    piece(
                        mesh, value.shape, assignment.input_sharding(name), mesh.coordinates(rank)
                    )
                ]
            )
            for name, value in feeds.items()
        }
        try:
            results[rank] = models[rank].run(local, lock_step.exchange(rank))
        except BaseException as error:  # noqa: BLE001 - handed to the caller
            errors.append(error)
            lock_step.barrier.abort()

    threads = [threading.Thread(target=run, args=(rank,)) for rank in range(mesh.devices)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        real = [item for item in errors if not isinstance(item, threading.BrokenBarrierError)]
        raise (real or errors)[0]
    whole = {
        name: assemble(
            mesh,
            graph.tensors[name].shape,
            assignment.output_sharding(name),
            [np.asarray((results[rank] or {})[name]) for rank in range(mesh.devices)],
        )
        for name in graph.outputs
    }
    return whole, lock_step


def reread(assignment: Assignment, table: RuleTable | None = None) -> Assignment:
    """The assignment as it comes back from the annotations."""
    model = onnx.ModelProto.FromString(annotate(assignment).SerializeToString())
    annotated = read_annotations(ModelGraph(model), table)
    assert not annotated.findings, annotated.findings
    assert annotated.assignment is not None
    return annotated.assignment


def assert_equal(expected: Mapping[str, Array], actual: Mapping[str, Array]) -> None:
    """Equal within the host's tolerances."""
    wrong = [difference for difference in compare_outputs(expected, actual) if not difference.equal]
    assert not wrong, wrong


def differs(expected: Mapping[str, Array], actual: Mapping[str, Array]) -> bool:
    return any(not difference.equal for difference in compare_outputs(expected, actual))


@pytest.fixture(autouse=True)
def no_default_vendors(monkeypatch: pytest.MonkeyPatch) -> None:
    """Commands run without vendors unless a test names some."""
    monkeypatch.setattr("gehost.options.shipped_vendors", lambda _group: [])
