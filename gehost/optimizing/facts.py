"""What a model is, in one line: layers, opset, bytes, types."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import onnx
import onnx.helper

from gehost.ir.files.external import external_tensors
from gehost.ir.schemas import schema_at
from gehost.spelling import counted

_ATTENTION = ("Attention", "MultiHeadAttention", "GroupQueryAttention", "PackedMultiHeadAttention")
_BETWEEN = frozenset(("Cast", "Dropout", "Where", "IsNaN", "Mul", "Add", "Reshape", "Identity"))
"""Operators between the Softmax of attention and its product with the values."""
_QUANTIZED = ("DequantizeLinear", "MatMulInteger", "ConvInteger", "MatMulNBits", "QLinearMatMul")
_MOST_STEPS = 4


@dataclass(frozen=True)
class Facts:
    """Counts of a file; nodes are those of all graphs, without constants."""

    nodes: int
    size: int
    opset: int
    dtype: str
    attention: int
    convolutions: int
    quantized: bool
    operators: dict[str, int]

    def line(self) -> str:
        """Return what the model is, as text."""
        kind = [
            counted(self.attention, "attention layer") if self.attention else "",
            counted(self.convolutions, "convolution") if self.convolutions else "",
        ]
        what = ", ".join(filter(None, kind)) or counted(self.nodes, "node")
        quantized = ", quantized" if self.quantized else ""
        return f"{what}, opset {self.opset}, {bytes_of(self.size)}, {self.dtype}{quantized}"

    def as_dict(self) -> dict[str, Any]:
        """Return the fields as JSON data."""
        return asdict(self)


def facts_of(path: str) -> Facts:
    """Read a file and count; weights outside of it are not read."""
    model = onnx.ModelProto.FromString(Path(path).read_bytes())
    nodes = list(nodes_of(model))
    operators = Counter(operator_of(node) for node in nodes if node.op_type != "Constant")
    outside = sum(_length(tensor) for tensor in external_tensors(model))
    return Facts(
        nodes=operators.total(),
        size=Path(path).stat().st_size + outside,
        opset=next((item.version for item in model.opset_import if not item.domain), 0),
        dtype=_main_type(model),
        attention=_attention_layers(model),
        convolutions=operators["Conv"] + operators["ConvTranspose"],
        quantized=any(node.op_type in _QUANTIZED for node in nodes),
        operators=dict(operators),
    )


def foreign_nodes(model: onnx.ModelProto, others: Collection[str] = ()) -> list[onnx.NodeProto]:
    """Return the nodes that are no operators of ONNX at the model's opset, and none of others."""
    opset = next((item.version for item in model.opset_import if not item.domain), 0)
    return [
        node
        for node in nodes_of(model)
        if operator_of(node) not in others
        and (node.domain not in ("", "ai.onnx") or schema_at("", node.op_type, opset) is None)
    ]


def foreign_operators(path: str) -> list[str]:
    """Return the operators of a file that not every runtime has, functions among them."""
    model = onnx.ModelProto.FromString(Path(path).read_bytes())
    functions = {f"{function.domain}::{function.name}" for function in model.functions}
    names = {operator_of(node) for node in foreign_nodes(model)}
    return [f"{name} (a function)" if name in functions else name for name in sorted(names)]


def has_constant_nodes(path: str) -> bool:
    """Whether the main graph has a node that reads constants alone."""
    graph = onnx.ModelProto.FromString(Path(path).read_bytes()).graph
    constants = {tensor.name for tensor in graph.initializer}
    constants -= {value.name for value in graph.input}
    return any(node.input and constants.issuperset(filter(None, node.input)) for node in graph.node)


def bytes_of(size: int) -> str:
    """Return a number of bytes as text: ``2.7 MB``."""
    for unit, factor in (("GB", 10**9), ("MB", 10**6), ("kB", 10**3)):
        if size >= factor:
            return f"{size / factor:.1f} {unit}"
    return f"{size} B"


def nodes_of(model: onnx.ModelProto) -> Iterator[onnx.NodeProto]:
    """Yield the nodes of all graphs."""
    for graph in _graphs(model):
        yield from graph.node


def operator_of(node: onnx.NodeProto) -> str:
    """Return ``domain::Type``, or ``Type`` for ONNX's own."""
    return f"{node.domain}::{node.op_type}" if node.domain else node.op_type


def _graphs(model: onnx.ModelProto) -> Iterator[onnx.GraphProto]:
    waiting = [model.graph]
    while waiting:
        graph = waiting.pop()
        yield graph
        for node in graph.node:
            for attribute in node.attribute:
                waiting += [body for body in (attribute.g, *attribute.graphs) if body.node]


def _length(tensor: onnx.TensorProto) -> int:
    entries = {entry.key: entry.value for entry in tensor.external_data}
    return int(entries.get("length", 0))


def _main_type(model: onnx.ModelProto) -> str:
    """Return the type of most bytes of floating-point weights, else of the first input."""
    totals: Counter[int] = Counter()
    for tensor in model.graph.initializer:
        count = 1
        for size in tensor.dims:
            count *= size
        if "FLOAT" in onnx.TensorProto.DataType.Name(tensor.data_type):
            totals[tensor.data_type] += count
    inputs = [value.type.tensor_type.elem_type for value in model.graph.input]
    kinds = [kind for kind, _ in totals.most_common(1)] or inputs[:1]
    name = onnx.helper.tensor_dtype_to_string(kinds[0]) if kinds and kinds[0] else "no type"
    return {"float": "float32", "double": "float64"}.get(
        name := name.removeprefix("TensorProto.").lower(), name
    )


def _attention_layers(model: onnx.ModelProto) -> int:
    """Count attention operators, and each Softmax whose result is multiplied by a matrix."""
    count = 0
    for graph in _graphs(model):
        users: dict[str, list[onnx.NodeProto]] = {}
        for node in graph.node:
            for name in node.input:
                users.setdefault(name, []).append(node)
        for node in graph.node:
            if node.op_type in _ATTENTION or (
                node.op_type == "Softmax" and _reaches_product(node, users)
            ):
                count += 1
    return count


def _reaches_product(node: onnx.NodeProto, users: dict[str, list[onnx.NodeProto]]) -> bool:
    waiting = [(user, 1) for name in node.output for user in users.get(name, ())]
    while waiting:
        user, steps = waiting.pop()
        if user.op_type in ("MatMul", "Einsum", "FusedMatMul"):
            return True
        if user.op_type in _BETWEEN and steps < _MOST_STEPS:
            waiting += [(item, steps + 1) for name in user.output for item in users.get(name, ())]
    return False
