"""A rank's graph in segments: one ONNX Runtime session per level, collectives between them.

The level of a tensor is the largest number of collectives on a path to it. All ranks run the
collectives of a level in the order of the file, which is the same on all of them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import numpy_helper

from gehost import ModelError, verify
from gehost_sharding.collectives import Collective, read_collective

Array = NDArray[Any]
Exchange = Callable[[Collective, Array], Array]

_TYPES = {
    f"tensor({name})": kind
    for name, kind in {
        "float": onnx.TensorProto.FLOAT,
        "double": onnx.TensorProto.DOUBLE,
        "float16": onnx.TensorProto.FLOAT16,
        "bfloat16": onnx.TensorProto.BFLOAT16,
        "bool": onnx.TensorProto.BOOL,
        "int8": onnx.TensorProto.INT8,
        "int16": onnx.TensorProto.INT16,
        "int32": onnx.TensorProto.INT32,
        "int64": onnx.TensorProto.INT64,
        "uint8": onnx.TensorProto.UINT8,
        "uint16": onnx.TensorProto.UINT16,
        "uint32": onnx.TensorProto.UINT32,
        "uint64": onnx.TensorProto.UINT64,
    }.items()
}


@dataclass
class Segment:
    """The nodes of one level, and the collectives that follow them."""

    nodes: list[onnx.NodeProto] = field(default_factory=list[onnx.NodeProto])
    collectives: list[tuple[onnx.NodeProto, Collective]] = field(
        default_factory=list[tuple[onnx.NodeProto, Collective]]
    )
    inputs: list[str] = field(default_factory=list[str])
    outputs: list[str] = field(default_factory=list[str])
    session: Any = None
    """An ``onnxruntime.InferenceSession``; None if the segment has no nodes."""


class SegmentedModel:
    """A rank's model, ready to run."""

    def __init__(self, model: onnx.ModelProto, world: int) -> None:
        """Cut the graph at its collectives and load the segments.

        Raises:
            ModelError: ONNX Runtime refuses a segment.
        """
        self.model = model
        self.outputs = [entry.name for entry in model.graph.output]
        self.segments = cut(model, world)
        self._load()
        initializers = {entry.name: entry for entry in model.graph.initializer}
        outside = {node.input[0] for segment in self.segments for node, _ in segment.collectives}
        self.constants = {
            name: numpy_helper.to_array(initializers[name])
            for name in (outside | {*self.outputs}) & initializers.keys()
        }
        """Constants that are read outside the sessions: by a collective, or as an output."""

    def run(self, feeds: Mapping[str, Array], exchange: Exchange) -> dict[str, Array]:
        """Compute the outputs; ``exchange`` does a collective with the other ranks."""
        values: dict[str, Array] = {**self.constants, **feeds}
        for segment in self.segments:
            if segment.session is not None:
                own = {name: values[name] for name in segment.inputs}
                results = segment.session.run(segment.outputs, own)
                for name, value in zip(segment.outputs, results, strict=True):
                    values[name] = np.asarray(value)
            for node, collective in segment.collectives:
                values[node.output[0]] = exchange(collective, values[node.input[0]])
        return {name: values[name] for name in self.outputs}

    def _load(self) -> None:
        graph = self.model.graph
        initializers = {entry.name: entry for entry in graph.initializer}
        kinds = {entry.name: entry.data_type for entry in graph.initializer}
        for entry in graph.input:
            kinds.setdefault(entry.name, entry.type.tensor_type.elem_type)
        for number, segment in enumerate(self.segments):
            if segment.outputs:  # else nothing is read of what its nodes compute
                part = self._part(segment, initializers, kinds, number)
                segment.session = session(part, f"segment {number}")
                for output in segment.session.get_outputs():
                    kinds[output.name] = _TYPES[output.type]
            for node, _ in segment.collectives:
                kinds[node.output[0]] = kinds[node.input[0]]

    def _part(
        self,
        segment: Segment,
        initializers: Mapping[str, onnx.TensorProto],
        kinds: Mapping[str, int],
        number: int,
    ) -> onnx.ModelProto:
        part = onnx.ModelProto(ir_version=self.model.ir_version)
        part.opset_import.extend(self.model.opset_import)
        part.functions.extend(self.model.functions)
        part.graph.name = f"segment{number}"
        part.graph.node.extend(segment.nodes)
        read = {name for node in segment.nodes for name in node.input}
        part.graph.initializer.extend(
            initializers[name] for name in sorted(read & initializers.keys())
        )
        for name in segment.inputs:
            part.graph.input.add(name=name).type.tensor_type.elem_type = kinds[name]
        for name in segment.outputs:
            part.graph.output.add(name=name)
        return part


def session(model: onnx.ModelProto, subject: str) -> Any:
    """Return a session of one thread that computes a model as it is.

    Raises:
        ModelError: ONNX Runtime refuses the model, which ``subject`` names.
    """
    ort: Any = verify.onnx_runtime()  # its stubs leave most types open
    options = ort.SessionOptions()
    options.intra_op_num_threads = 1
    options.inter_op_num_threads = 1
    options.log_severity_level = 3
    # as the host's own comparisons of numbers, and quicker to load
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    try:
        return ort.InferenceSession(
            model.SerializeToString(), options, providers=["CPUExecutionProvider"]
        )
    except Exception as error:  # ONNX Runtime raises types of its own
        raise ModelError(f"ONNX Runtime refuses {subject}: {error}") from error


def cut(model: onnx.ModelProto, world: int) -> list[Segment]:
    """Cut a rank's graph into segments, by level."""
    graph = model.graph
    initializers = {entry.name for entry in graph.initializer}
    level: dict[str, int] = {}
    segments: list[Segment] = [Segment()]
    for node in graph.node:
        own = max((level.get(name, 0) for name in node.input), default=0)
        while len(segments) <= own + 1:
            segments.append(Segment())
        collective = read_collective(node, world)
        if collective is None:
            segments[own].nodes.append(node)
        else:
            segments[own].collectives.append((node, collective))
        for name in node.output:
            level[name] = own + (collective is not None)
    while len(segments) > 1 and not segments[-1].nodes and not segments[-1].collectives:
        segments.pop()
    _connect(segments, initializers, {entry.name for entry in graph.output})
    return segments


def _connect(segments: list[Segment], initializers: set[str], outputs: set[str]) -> None:
    """Find the tensors that each segment reads from before it and leaves for after it."""
    needed = set(outputs)
    for segment in reversed(segments):
        produced = {name for node in segment.nodes for name in node.output if name}
        needed |= {node.input[0] for node, _ in segment.collectives}
        segment.outputs = sorted(produced & needed)
        read = {name for node in segment.nodes for name in node.input if name}
        segment.inputs = sorted(read - produced - initializers)
        needed |= {*segment.inputs}
