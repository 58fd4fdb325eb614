"""Copy a model without its weights, at the cost of its nodes."""

from __future__ import annotations

from collections.abc import Callable

import onnx


def skeleton(proto: onnx.ModelProto, keep: Callable[[onnx.TensorProto], bool]) -> onnx.ModelProto:
    """Return a copy with only the initializer data that ``keep`` accepts.

    The others keep name, dtype, shape and the reference to external data. Initializers of nested
    bodies are small and always copied.
    """
    copy = onnx.ModelProto()
    for field, value in proto.ListFields():
        if field.name == "graph":
            continue
        if field.is_repeated:
            getattr(copy, field.name).extend(value)
        else:
            setattr(copy, field.name, value)
    source, graph = proto.graph, copy.graph
    graph.SetInParent()
    for field, value in source.ListFields():
        if field.name == "initializer":
            for tensor in source.initializer:
                if keep(tensor):
                    graph.initializer.append(tensor)
                else:
                    graph.initializer.add(
                        name=tensor.name,
                        data_type=tensor.data_type,
                        dims=tensor.dims,
                        external_data=tensor.external_data,
                        data_location=tensor.data_location,
                    )
        elif field.is_repeated:
            getattr(graph, field.name).extend(value)
        else:
            setattr(graph, field.name, value)
    return copy
