"""One graph in ONNX Runtime and in the interpreter: as its model states types, and derived from its body alone."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import onnx
import onnxruntime

from gehost import Model
from gehost.testing import parse
from gehost_linalg.block import Block
from gehost_linalg.driver import fuse_block
from gehost_linalg.generic import Generic, Opaque, verify
from gehost_linalg.groups.body import Body, Signature
from gehost_linalg.groups.derive import derive
from gehost_linalg.groups.lowered import Lowered
from gehost_linalg.interpret import interpret

Arrays = Mapping[str, "np.ndarray[Any, Any]"]


def lowered(model: onnx.ModelProto) -> tuple[Model, Lowered]:
    """The operations of a model's graph, none left alone."""
    inferred = onnx.shape_inference.infer_shapes(model, data_prop=True)
    loaded = Model(inferred)
    result = Lowered(loaded.graph, lambda _: None)
    for op in result.ops:
        if isinstance(op, Generic):
            verify(op)
    return loaded, result


def run_runtime(model: onnx.ModelProto, feeds: Arrays) -> list[np.ndarray[Any, Any]]:
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    return session.run(None, {name: np.asarray(array) for name, array in feeds.items()})


def run_lowered(model: onnx.ModelProto, feeds: Arrays, *, fuse: bool) -> list[np.ndarray[Any, Any]]:
    """The graph's operations in the interpreter; raises if a node is not lowered."""
    loaded, result = lowered(model)
    assert not result.reasons, result.reasons
    inputs = {}
    for tensor, value in result.values.items():
        if tensor.producer is None:
            inputs[value] = (
                np.asarray(feeds[tensor.name]) if tensor.name in feeds else tensor.numpy()
            )
    for tensor in result.values:
        if tensor.is_constant and result.values[tensor] not in inputs:
            inputs[result.values[tensor]] = tensor.numpy()
    block = Block(result.ops, result.outputs)
    if fuse:
        block = fuse_block(result.ops, "always", "duplicate", outputs=result.outputs)
    del loaded
    return interpret(block.ops, inputs, block.outputs, result.names.rules)


def run_derived(
    model: onnx.ModelProto, feeds: Arrays, *, fused: bool
) -> list[np.ndarray[Any, Any]]:
    """The same from the body and the ranks of its inputs alone; initializers are constants of the body."""
    graph = model.graph
    function = onnx.FunctionProto(
        name="f",
        domain="test",
        input=[v.name for v in graph.input],
        output=[v.name for v in graph.output],
    )
    for tensor in graph.initializer:
        function.node.append(onnx.helper.make_node("Constant", [], [tensor.name], value=tensor))
    function.node.extend(graph.node)
    function.opset_import.extend(model.opset_import)
    signature = []
    for value in graph.input:
        array = feeds[value.name]
        dims = value.type.tensor_type.shape.dim
        ones = tuple(axis for axis, dim in enumerate(dims) if dim.dim_value == 1)
        signature.append(
            Signature(Model(model).graph.inputs[len(signature)].dtype, array.ndim, ones)
        )
    group = derive(Body.of_function(function), signature)
    for op in group.unfused:
        if isinstance(op, Generic):
            verify(op)
        assert isinstance(op, Generic | Opaque)
    inputs = dict(zip(group.inputs, [np.asarray(feeds[v.name]) for v in graph.input], strict=True))
    return interpret(group.ops if fused else group.unfused, inputs, group.outputs, group.rules)


def check(text: str, feeds: Arrays, *, rtol: float = 2e-5, atol: float = 1e-6) -> None:
    """ONNX Runtime, the lowered graph and the derived group give equal outputs, fused and not."""
    model = parse(text)
    expected = run_runtime(model, feeds)
    for name, result in (
        ("lowered", run_lowered(model, feeds, fuse=False)),
        ("lowered and fused", run_lowered(model, feeds, fuse=True)),
        ("derived", run_derived(model, feeds, fused=False)),
        ("derived and fused", run_derived(model, feeds, fused=True)),
    ):
        assert len(result) == len(expected)
        for argument, other in zip(result, expected, strict=True):
            assert argument.dtype == other.dtype, name
            np.testing.assert_allclose(argument, other, rtol=rtol, atol=atol, err_msg=name)


def graph(body: str, inputs: str, outputs: str, opset: int = 20) -> str:
    """A model as text; its opset may be any."""
    return f'<ir_version: 10, opset_import: ["" : {opset}]>\nmain ({inputs}) => ({outputs}) {{\n{body}\n}}'
