"""Fix open dimensions of a model.

Each occurrence of a symbol gets the same size.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence

import onnx
import onnx.shape_inference

from gehost.errors import UsageError
from gehost.ir.bodies import bodies_of
from gehost.ir.files.skeleton import skeleton
from gehost.sizes import Scope
from gehost.spelling import nearest

_SMALL = 1024
"""Largest number of elements of initializers that may be shapes, whose data inference needs."""


def fix_dims(proto: onnx.ModelProto, dims: Mapping[str, int]) -> None:
    """Set the sizes of open dimensions of a model's inputs, in place.

    A symbol is replaced in the types of all inputs, outputs and inner tensors, nested bodies
    included, and in expressions of symbols.

    Args:
        proto: the model.
        dims: sizes by symbol, or by ``INPUT:AXIS``.

    Raises:
        UsageError: the model's inputs do not have this name, or a size contradicts another one, an
            initializer, or shape inference. The model may then be partly fixed.
    """
    before = contradictions(proto) if dims else []
    texts = [dim.dim_param for _, shape in _shapes(proto.graph) for dim in shape.dim]
    scope = Scope()
    scope.declare(filter(None, texts))
    sizes = _sizes(proto.graph, dims, scope)
    fixed = Scope()
    for symbol, size in sizes.items():
        fixed.define(symbol, size)
    fixed.declare(filter(None, texts))
    for name, shape in _shapes(proto.graph):
        for dim in shape.dim:
            if dim.dim_param and not scope.names_in(dim.dim_param).isdisjoint(sizes):
                _fix_dim(dim, fixed, name)
    _check_initializers(proto.graph)
    refuse_contradiction(dims, before, contradictions(proto) if dims else [])


def refuse_contradiction(
    dims: Mapping[str, int], before: Sequence[str], after: Sequence[str]
) -> None:
    """Refuse sizes with which inference has new findings.

    Raises:
        UsageError: names the first of them.
    """
    new = [line for line in after if line not in before]
    if new:
        sizes = ", ".join(f"{name}={size}" for name, size in dims.items())
        raise UsageError(f"the model contradicts it: {new[0]}", subject=f"--dim {sizes}")


def _sizes(graph: onnx.GraphProto, dims: Mapping[str, int], scope: Scope) -> dict[str, int]:
    """Return the sizes by symbol; set those of dimensions without a symbol."""
    sizes: dict[str, int] = {}
    given_by: dict[str, str] = {}
    inputs = {entry.name: entry.type.tensor_type for entry in graph.input}
    symbols = {
        dim.dim_param
        for kind in inputs.values()
        for dim in kind.shape.dim
        if dim.HasField("dim_param")
    }
    for name, size in dims.items():
        symbol = name
        if name not in symbols:
            dim = _dim_of_input(inputs, symbols, name, size)
            symbol = dim.dim_param
            parts = scope.names_in(symbol) & symbols - {symbol} if symbol else ()
            if parts:
                raise UsageError(
                    f'--dim {name}={size}: this dimension is "{symbol}"',
                    hint=f"give {' and '.join(sorted(parts))}",
                )
            if not symbol:
                if dim.HasField("dim_value") and dim.dim_value != size:
                    raise UsageError(f"--dim {name}={size}: this dimension is {dim.dim_value}")
                dim.dim_value = size
                continue
        if sizes.setdefault(symbol, size) != size:
            raise UsageError(
                f'--dim {name}={size}: {given_by[symbol]} makes "{symbol}" {sizes[symbol]}'
            )
        given_by.setdefault(symbol, f"--dim {name}={size}")
    return sizes


def _dim_of_input(
    inputs: Mapping[str, onnx.TypeProto.Tensor], symbols: set[str], name: str, size: int
) -> onnx.TensorShapeProto.Dimension:
    """Return the dimension of ``INPUT:AXIS``.

    Raises:
        UsageError: no open dimension has this name.
    """
    where = f"--dim {name}={size}"
    input_name, _, axis = name.rpartition(":")
    if input_name in inputs and re.fullmatch(r"-?\d+", axis):
        shape = inputs[input_name].shape.dim
        if -len(shape) <= int(axis) < len(shape):
            return shape[int(axis)]
        raise UsageError(f'{where}: input "{input_name}" has {len(shape)} dimensions')
    unnamed = [
        f"{input_name}:{axis}"
        for input_name, kind in inputs.items()
        for axis, dim in enumerate(kind.shape.dim)
        if not dim.HasField("dim_value") and not dim.dim_param
    ]
    names = [*sorted(symbols), *unnamed]
    near = nearest(name, [*names, *inputs], 2)
    if near:
        hint = f"did you mean {' or '.join(near)}?"
    else:
        hint = f"open are {', '.join(names)}" if names else "none is open"
    raise UsageError(f"{where}: no input has an open dimension of this name; {hint}")


def _shapes(graph: onnx.GraphProto) -> Iterator[tuple[str, onnx.TensorShapeProto]]:
    """Yield tensor name and shape for each declaration, bodies included."""
    for entry in (*graph.input, *graph.output, *graph.value_info):
        for shape in _shapes_of(entry.type):
            yield entry.name, shape
    for node in graph.node:
        for attribute in node.attribute:
            for kind in (attribute.tp, *attribute.type_protos):
                for shape in _shapes_of(kind):
                    yield next(iter(node.output), node.name), shape
        for body in bodies_of(node):
            yield from _shapes(body)


def _shapes_of(kind: onnx.TypeProto) -> Iterator[onnx.TensorShapeProto]:
    """Yield the shapes in a type, also of its element types."""
    field = kind.WhichOneof("value")
    if field in ("tensor_type", "sparse_tensor_type"):
        yield getattr(kind, field).shape
    elif field in ("sequence_type", "optional_type"):
        yield from _shapes_of(getattr(kind, field).elem_type)
    elif field == "map_type":
        yield from _shapes_of(kind.map_type.value_type)


def _fix_dim(dim: onnx.TensorShapeProto.Dimension, fixed: Scope, name: str) -> None:
    """Set one dimension of a tensor to what is left of its text."""
    text = dim.dim_param
    size = fixed.parse(text)
    if not isinstance(size, int):
        dim.dim_param = str(size)
    elif 0 <= size < 1 << 63:
        dim.dim_value = size
    else:
        raise UsageError(f'"{text}", a dimension of "{name}", would be {size}', subject="--dim")


def _check_initializers(graph: onnx.GraphProto) -> None:
    """Check initializers of the graph and its bodies against declared shapes.

    Raises:
        UsageError: one has another size.
    """
    dims_of = {tensor.name: tuple(tensor.dims) for tensor in graph.initializer}
    for entry in (*graph.input, *graph.output, *graph.value_info):
        dims = entry.type.tensor_type.shape.dim
        if entry.name not in dims_of or not entry.type.tensor_type.HasField("shape"):
            continue
        for axis, (dim, size) in enumerate(zip(dims, dims_of[entry.name], strict=False)):
            if dim.HasField("dim_value") and dim.dim_value != size:
                raise UsageError(
                    f'dimension {axis} of initializer "{entry.name}" is {size}, not '
                    f"{dim.dim_value}",
                    subject="--dim",
                )
    for node in graph.node:
        for body in bodies_of(node):
            _check_initializers(body)


def contradictions(proto: onnx.ModelProto) -> list[str]:
    """Return what ONNX's inference finds wrong: at most one node, and Reshapes."""
    lean = skeleton(proto, lambda tensor: math.prod(tensor.dims) <= _SMALL)
    _name_nodes(lean.graph)
    problems: list[str] = []
    try:
        inferred = _infer_strictly(lean)
    except onnx.shape_inference.InferenceError as error:
        lines = [line.strip() for line in str(error).splitlines() if "(op_type:" in line]
        line = " ".join((lines or [str(error)])[-1].split())
        problems.append(re.sub(r"\[\w+Error\] |Inference error\(s\): ", "", line))
        try:
            inferred = onnx.shape_inference.infer_shapes(lean)
        except onnx.shape_inference.InferenceError:  # of calls with fewer outputs than the function
            return problems
    return [*problems, *_wrong_reshapes(inferred.graph, {})]


def _name_nodes(graph: onnx.GraphProto) -> None:
    """Name nameless nodes by their first outputs, which ONNX's errors show."""
    for node in graph.node:
        node.name = node.name or next(filter(None, node.output), "")
        for body in bodies_of(node):
            _name_nodes(body)


def _infer_strictly(lean: onnx.ModelProto) -> onnx.ModelProto:
    try:
        return onnx.shape_inference.infer_shapes(lean, strict_mode=True, data_prop=True)
    except onnx.shape_inference.InferenceError as error:
        # two bodies may compute shapes of one name, which onnx's propagation of data refuses
        if "already exists" not in str(error):
            raise
    return onnx.shape_inference.infer_shapes(lean, strict_mode=True)


def _wrong_reshapes(graph: onnx.GraphProto, outer: Mapping[str, list[int | None]]) -> Iterator[str]:
    """Yield Reshapes whose output cannot have the elements of their input."""
    shapes: dict[str, list[int | None]] = dict(outer)
    shapes.update((tensor.name, list(tensor.dims)) for tensor in graph.initializer)
    for entry in (*graph.input, *graph.output, *graph.value_info):
        kind = entry.type.tensor_type
        if kind.HasField("shape"):
            shapes[entry.name] = [
                dim.dim_value if dim.HasField("dim_value") else None for dim in kind.shape.dim
            ]
    for node in graph.node:
        if node.op_type == "Reshape" and node.domain in ("", "ai.onnx"):
            old, new = shapes.get(node.input[0]), shapes.get(node.output[0])
            if old is not None and new is not None and not _may_be_equal(old, new):
                one, other = (
                    f"[{', '.join('?' if size is None else str(size) for size in shape)}]"
                    for shape in (old, new)
                )
                yield f'Reshape of "{node.input[0]}" from {one} to {other}'
        for body in bodies_of(node):
            yield from _wrong_reshapes(body, shapes)


def _may_be_equal(old: Sequence[int | None], new: Sequence[int | None]) -> bool:
    """Whether both shapes may have equally many elements; None is any size."""
    one, other = (math.prod(size for size in shape if size is not None) for shape in (old, new))
    if None in old and None in new:
        return True
    if None in old or None in new:
        whole, part = (other, one) if None in old else (one, other)
        return whole == 0 if part == 0 else whole % part == 0
    return one == other
