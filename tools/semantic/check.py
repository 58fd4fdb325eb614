"""Descriptions against numbers: a graph's tensors from ONNX Runtime, and what they are said to be."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
import onnx
import onnxruntime as ort

from gehost import Graph, Value
from gehost_semantic.attention import Attention
from gehost_semantic.views import Views
from tools.semantic.recompute import Recomputed, bases, difference, sizes_of_run, sources

Array: TypeAlias = np.ndarray[Any, Any]


def differences(
    proto: onnx.ModelProto,
    views: Views,
    attentions: Sequence[Attention],
    feed: Mapping[str, Array],
) -> list[float]:
    """Run a model; return the difference of each description to the graph's own result.

    Raises:
        AssertionError: a mask has no numbers that fit its causal or window limit.
    """
    graph = views.graph
    expected = [value for attention in attentions for value in bases(attention)]
    expected += [value for value, _ in sources(views.graph).values()]
    arrays = tensors(proto, graph, expected, feed)
    sizes = sizes_of_run(views.graph, arrays)
    results: list[float] = []
    for attention in attentions:
        again = Recomputed(attention, views.extents, arrays, sizes)
        results.append(difference(again.expected(), again.result()))
        claims = again.false_claims()
        assert not claims, f"{attention.softmax.label}: {claims[0]}"
    return results


def tensors(
    proto: onnx.ModelProto, graph: Graph, values: Sequence[Value], feed: Mapping[str, Array]
) -> dict[Value, Array]:
    """Return the numbers of tensors in a run without optimizations."""
    proto = onnx.ModelProto.FromString(proto.SerializeToString())
    del proto.graph.value_info[:]
    inputs = {value.name for value in graph.inputs}
    entries = {value: feed[value.name] for value in values if value.name in feed}
    computed: dict[str, Value] = {}
    for value in values:
        if value.graph is not graph or value in entries:
            continue
        if value.is_constant and value.array is not None:
            entries[value] = value.array
        elif value.producer is not None:
            computed[value.name] = value
    have = {output.name for output in proto.graph.output}
    proto.graph.output.extend(
        onnx.ValueInfoProto(name=name) for name in computed if name not in have
    )
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 4
    session = ort.InferenceSession(
        proto.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    arguments = {name: array for name, array in feed.items() if name in inputs}
    results: Sequence[Any] = session.run(list(computed), arguments) if computed else []
    return entries | {computed[name]: array for name, array in zip(computed, results, strict=True)}


def random_feed(
    graph: Graph, sizes: Mapping[str, int], generator: np.random.Generator
) -> dict[str, Array]:
    """Return inputs by their name: masks, positions, identifiers, numbers.

    ``sizes``: of names that contain a key; all others are 2.
    """
    shapes = {value.name: _shape(value, sizes) for value in graph.inputs if not value.is_constant}
    past = next((shape for name, shape in shapes.items() if name.startswith("past")), None)
    mask, ids = shapes.get("attention_mask"), shapes.get("input_ids")
    if mask is not None and ids is not None and len(mask) == len(ids) == 2:
        mask[1] = ids[1] + (past[2] if past is not None else 0)
        mask[0] = ids[0]
    results: dict[str, Array] = {}
    for value in graph.inputs:
        if value.is_constant or value.dtype is None:
            continue
        shape, name = shapes[value.name], value.name
        if "mask" in name or value.dtype.name == "BOOL":
            retained = generator.random(shape) < 0.7
            if retained.size and retained.ndim:
                retained[..., 0] = retained[..., -1] = True
            array = ~retained if "pad" in name else retained
        elif value.dtype.is_float:
            array = generator.standard_normal(shape)
        elif "position" in name:
            array = np.broadcast_to(np.arange(shape[-1]), shape)
        elif "type" in name:
            array = np.zeros(shape)
        elif "bbox" in name:
            array = np.sort(generator.integers(0, 60, shape), axis=-1)
        else:
            array = generator.integers(3, 30, shape)
        results[name] = np.asarray(array).astype(value.dtype.numpy)
    return results


def _shape(value: Value, sizes: Mapping[str, int]) -> list[int]:
    results: list[int] = []
    for dim in value.shape or ():
        named = next(
            (size for key, size in sizes.items() if isinstance(dim, str) and key in dim), 2
        )
        results.append(dim if isinstance(dim, int) else named)
    return results
