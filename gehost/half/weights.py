"""Numbers of float32 in float16: rounded weights, bounded values, weights that are read in both."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import onnx
import onnx.helper

from gehost.half.names import first_of
from gehost.half.reasons import FLOAT, LARGEST, constant_of
from gehost.ir.bodies import bodies_in, graphs_of, lists_of, node_lists
from gehost.ir.tensors import from_numpy, to_numpy

_FLOAT16 = onnx.TensorProto.FLOAT16
_MANY = 128
"""Elements from where on a Cast is smaller than a second copy."""
_NOTHING = np.zeros(0, np.float16)
_WEIGHTS_ALONE = 4
"""The first IR version whose weights need not be inputs, and those that are can be fed."""

Array = np.ndarray[Any, Any]


def rounded_array(array: Array) -> Array:
    """Return an array in float16; finite numbers beyond its range become its largest."""
    finite = np.isfinite(array)
    return np.where(finite, np.clip(array, -LARGEST, LARGEST), array).astype(np.float16)


def dense(model: onnx.ModelProto, base_dir: str | None) -> onnx.ModelProto:
    """Return a model whose sparse weights of float32 are dense; the model itself without any.

    Raises:
        ModelError: the data of one cannot be read.
    """
    if not any(_sparse_weights(model)) and not any(_sparse_constants(model)):
        return model
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    for graph, places in _sparse_weights(copy):
        for place in places:
            tensor = graph.sparse_initializer.pop(place)
            graph.initializer.append(_dense(tensor, tensor.values.name, base_dir))
    for node in _sparse_constants(copy):
        array = _dense(node.attribute[0].sparse_tensor, node.output[0], base_dir)
        node.attribute[0].CopyFrom(onnx.helper.make_attribute("value", array))
    return copy


def without_default_inputs(model: onnx.ModelProto) -> onnx.ModelProto:
    """Return a model whose weights are no inputs, as before IR version 4 all of them had to be."""
    if model.ir_version >= _WEIGHTS_ALONE:
        return model
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    copy.ir_version = _WEIGHTS_ALONE
    weights = {tensor.name for tensor in copy.graph.initializer}
    for place, info in reversed([*enumerate(copy.graph.input)]):
        if info.name in weights:
            del copy.graph.input[place]
    return copy


def with_default_inputs(model: onnx.ModelProto, version: int) -> None:
    """Make inputs of the weights where an IR version wants it."""
    if version < _WEIGHTS_ALONE:
        model.ir_version = version
        model.graph.input.extend(
            onnx.helper.make_tensor_value_info(tensor.name, tensor.data_type, tensor.dims)
            for tensor in model.graph.initializer
        )


def _sparse_weights(model: onnx.ModelProto) -> Iterator[tuple[onnx.GraphProto, list[int]]]:
    """Yield the graphs that have any, and their places, from the last one."""
    inside = [body for function in model.functions for body in bodies_in(function.node)]
    for graph in (*graphs_of(model), *inside):
        kinds = [tensor.values.data_type for tensor in graph.sparse_initializer]
        if FLOAT in kinds:
            yield graph, [place for place, kind in enumerate(kinds) if kind == FLOAT][::-1]


def _sparse_constants(model: onnx.ModelProto) -> Iterator[onnx.NodeProto]:
    for nodes in node_lists(model):
        for node in nodes:
            if node.op_type == "Constant" and node.domain in ("", "ai.onnx"):
                entry = node.attribute[0]
                if (
                    entry.HasField("sparse_tensor")
                    and entry.sparse_tensor.values.data_type == FLOAT
                ):
                    yield node


def _dense(tensor: onnx.SparseTensorProto, name: str, base_dir: str | None) -> onnx.TensorProto:
    array = np.zeros(tuple(tensor.dims), np.float32)
    places = to_numpy(tensor.indices, base_dir)
    if places.ndim == 1:
        places = np.stack(np.unravel_index(places, array.shape), axis=1)
    array[tuple(places.T)] = to_numpy(tensor.values, base_dir)
    return from_numpy(array, name)


def default_opset(model: onnx.ModelProto) -> int:
    """Return the version of ONNX's own operators."""
    return max((e.version for e in model.opset_import if e.domain in ("", "ai.onnx")), default=1)


def bounded(
    name: str, result: str, fresh: Callable[[str], str], opset: int
) -> list[onnx.NodeProto]:
    """Return nodes that bound a value by half's range."""
    if opset < 8:  # Max and Min take equal sizes alone
        return [onnx.helper.make_node("Clip", [name], [result], result, min=-LARGEST, max=LARGEST)]
    low, high = fresh(f"{name} (lowest)"), fresh(f"{name} (highest)")
    above, inside = fresh(f"{name} (above)"), fresh(f"{name} (inside)")
    return [
        *(
            onnx.helper.make_node(
                "Constant", [], [item], value=from_numpy(np.array(number, np.float32), item)
            )
            for item, number in ((low, -LARGEST), (high, LARGEST))
        ),
        onnx.helper.make_node("Max", [name, low], [above], above),
        onnx.helper.make_node("Min", [above, high], [result], inside),
    ]


def cast_weights(graph: Any, constants: Mapping[str, str]) -> list[tuple[str, bool]]:
    """Let a graph or function cast large weights that it reads in both types when it runs.

    ONNX Runtime casts them when it loads the file, which has no second copy so. Where a number is
    out of half's range, both stay.

    Args:
        graph: after ``name_as_before``.
        constants: the names of constants of float32, by that of their half form.

    Returns:
        The weights, and whether each is cast.
    """
    lists = [*lists_of(graph.node)]
    bodies = [entry.g for nodes in lists for node in nodes for entry in node.attribute]
    weights = [tensor for body in (graph, *bodies) for tensor in getattr(body, "initializer", ())]
    exact = {tensor.name for tensor in weights if tensor.data_type == FLOAT}
    for nodes in lists:
        exact.update(node.output[0] for node in nodes if constant_of(node) is not None)
    results: list[tuple[str, bool]] = []

    def cast(form: str, tensor: onnx.TensorProto) -> onnx.NodeProto | None:
        name = constants.get(form, "")
        array = to_numpy(tensor, None) if name in exact else _NOTHING
        if array.size < _MANY:
            return None
        is_cast = not (np.abs(array) == LARGEST).any()
        results.append((name, is_cast))
        return onnx.helper.make_node("Cast", [name], [form], form, to=_FLOAT16) if is_cast else None

    for body in (graph, *bodies):
        for place, tensor in reversed([*enumerate(getattr(body, "initializer", ()))]):
            if node := cast(tensor.name, tensor):
                del body.initializer[place]
                body.node.insert(0, node)
    for nodes in lists:
        for node in nodes:
            if node.op_type == "Constant":
                for entry in node.attribute:
                    if entry.HasField("t") and (other := cast(node.output[0], entry.t)):
                        node.CopyFrom(other)
    return results[::-1]


def weight_notes(both: Sequence[tuple[str, bool]]) -> list[str]:
    """Return a line for the weights that are cast, and one for those that are stored twice."""
    lines: list[str] = []
    for is_cast, what in (
        (True, "stay float32, and are cast to float16 where it is read"),
        (False, "are stored in both, as they have numbers out of float16's range"),
    ):
        if names := [name for name, item in both if item is is_cast]:
            lines.append(f"half: weights read in both types {what}: {first_of(names)}")
    return lines
