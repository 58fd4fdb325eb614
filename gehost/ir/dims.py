"""Fix open dimensions of a model.

Each occurrence of a symbol gets the same size.
"""

from __future__ import annotations

import ast
import difflib
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from types import MappingProxyType

import onnx
import onnx.shape_inference

from gehost.errors import UsageError
from gehost.ir.files.skeleton import skeleton

_SMALL = 1024
"""Largest number of elements of initializers that may be shapes, whose data inference needs."""

_OPERATORS: Mapping[type[ast.operator], Callable[[int, int], int]] = MappingProxyType(
    {
        ast.Add: lambda a, b: a + b,
        ast.Sub: lambda a, b: a - b,
        ast.Mult: lambda a, b: a * b,
        ast.FloorDiv: lambda a, b: a // b,
        ast.Mod: lambda a, b: a % b,
    }
)


def fix_dims(proto: onnx.ModelProto, dims: Mapping[str, int]) -> None:
    """Set the sizes of open dimensions of a model's inputs, in place.

    A symbol is replaced in the types of all inputs, outputs and inner tensors, nested bodies
    included, and in sums, differences, products and whole quotients of symbols.

    Args:
        proto: the model.
        dims: sizes by symbol, or by ``INPUT:AXIS``.

    Raises:
        UsageError: the model's inputs do not have this name, or a size contradicts another one, an
            initializer, or shape inference. The model may then be partly fixed.
    """
    before = "" if not dims else contradiction(proto)
    sizes = _sizes(proto.graph, dims)
    for name, shape in _shapes(proto.graph):
        for dim in shape.dim:
            _fix(dim, sizes, name)
    _check_initializers(proto.graph)
    after = contradiction(proto)
    if after and not before:
        given = ", ".join(f"{name}={size}" for name, size in dims.items())
        raise UsageError(f"the model contradicts it: {after}", subject=f"--dim {given}")


def _sizes(graph: onnx.GraphProto, dims: Mapping[str, int]) -> dict[str, int]:
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
            dim = _input_dim(inputs, name)
            if dim is None:
                raise UsageError(f"--dim {name}={size}: {_unknown(name, inputs, symbols)}")
            symbol = dim.dim_param
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


def _input_dim(
    inputs: Mapping[str, onnx.TypeProto.Tensor], name: str
) -> onnx.TensorShapeProto.Dimension | None:
    """Return the dimension of ``INPUT:AXIS``; None if there is none."""
    known, _, axis = name.rpartition(":")
    if known not in inputs or not re.fullmatch(r"-?\d+", axis):
        return None
    shape = inputs[known].shape.dim
    return shape[int(axis)] if -len(shape) <= int(axis) < len(shape) else None


def _unknown(name: str, inputs: Mapping[str, onnx.TypeProto.Tensor], symbols: set[str]) -> str:
    """Return the message for a name that no open dimension has."""
    known, _, axis = name.rpartition(":")
    if known in inputs and re.fullmatch(r"-?\d+", axis):
        return f'input "{known}" has {len(inputs[known].shape.dim)} dimensions'
    unnamed = [
        f"{known}:{axis}"
        for known, kind in inputs.items()
        for axis, dim in enumerate(kind.shape.dim)
        if not dim.HasField("dim_value") and not dim.dim_param
    ]
    listed = [*sorted(symbols), *unnamed]
    near = difflib.get_close_matches(name, [*listed, *inputs], 2)
    if near:
        hint = f"did you mean {' or '.join(near)}?"
    else:
        hint = f"open are {', '.join(listed)}" if listed else "none is open"
    return f"no input has an open dimension of this name; {hint}"


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
            for body in (attribute.g, *attribute.graphs):
                yield from _shapes(body)


def _shapes_of(kind: onnx.TypeProto) -> Iterator[onnx.TensorShapeProto]:
    """Yield the shapes in a type, also of its element types."""
    held = kind.WhichOneof("value")
    if held in ("tensor_type", "sparse_tensor_type"):
        yield getattr(kind, held).shape
    elif held in ("sequence_type", "optional_type"):
        yield from _shapes_of(getattr(kind, held).elem_type)
    elif held == "map_type":
        yield from _shapes_of(kind.map_type.value_type)


def _fix(dim: onnx.TensorShapeProto.Dimension, sizes: Mapping[str, int], name: str) -> None:
    """Set the size of one dimension if its symbols have one."""
    text = dim.dim_param
    if not text:
        return
    if text in sizes:
        dim.dim_value = sizes[text]
        return
    tree = _expression(text)
    if tree is None or not any(
        isinstance(part, ast.Name) and part.id in sizes for part in ast.walk(tree)
    ):
        return
    found = _evaluated(tree, sizes)
    if isinstance(found, ast.Constant):
        size = found.value
        if not isinstance(size, int) or not 0 <= size < 1 << 63:
            raise UsageError(f'"{text}", a dimension of "{name}", would be {size}', subject="--dim")
        dim.dim_value = size
    else:
        dim.dim_param = ast.unparse(found)


def _expression(text: str) -> ast.expr | None:
    """Parse sums, products etc. of names and integers, None otherwise."""
    try:
        tree = ast.parse(text.strip(), mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    wanted = (ast.BinOp, ast.Name, ast.Constant, ast.expr_context, *_OPERATORS)
    return tree if all(isinstance(part, wanted) for part in ast.walk(tree)) else None


def _evaluated(tree: ast.expr, sizes: Mapping[str, int]) -> ast.expr:
    """Substitute sizes for symbols and evaluate as far as possible."""
    if isinstance(tree, ast.Name):
        return ast.Constant(sizes[tree.id]) if tree.id in sizes else tree
    if not isinstance(tree, ast.BinOp):
        return tree
    left, right = _evaluated(tree.left, sizes), _evaluated(tree.right, sizes)
    if isinstance(left, ast.Constant) and isinstance(right, ast.Constant):
        one, other = left.value, right.value
        if isinstance(one, int) and isinstance(other, int):
            try:
                return ast.Constant(_OPERATORS[type(tree.op)](one, other))
            except ZeroDivisionError:
                pass
    return ast.BinOp(left, tree.op, right)


def _check_initializers(graph: onnx.GraphProto) -> None:
    """Check initializers of the graph and its bodies against declared shapes.

    Raises:
        UsageError: one does not.
    """
    held = {tensor.name: tuple(tensor.dims) for tensor in graph.initializer}
    for entry in (*graph.input, *graph.output, *graph.value_info):
        stated = entry.type.tensor_type.shape.dim
        if entry.name not in held or not entry.type.tensor_type.HasField("shape"):
            continue
        for axis, (dim, size) in enumerate(zip(stated, held[entry.name], strict=False)):
            if dim.HasField("dim_value") and dim.dim_value != size:
                raise UsageError(
                    f'dimension {axis} of initializer "{entry.name}" is {size}, not '
                    f"{dim.dim_value}",
                    subject="--dim",
                )
    for node in graph.node:
        for attribute in node.attribute:
            for body in (attribute.g, *attribute.graphs):
                _check_initializers(body)


def contradiction(proto: onnx.ModelProto) -> str:
    """Return where shape inference finds a contradiction, or ""."""
    lean = skeleton(proto, lambda tensor: math.prod(tensor.dims) <= _SMALL)
    try:
        inferred = onnx.shape_inference.infer_shapes(lean, strict_mode=True, data_prop=True)
    except onnx.shape_inference.InferenceError as error:
        lines = [line.strip() for line in str(error).splitlines() if "(op_type:" in line]
        line = " ".join((lines or [str(error)])[-1].split())
        return re.sub(r"\[\w+Error\] |Inference error\(s\): ", "", line)
    return next(_wrong_reshapes(inferred.graph, {}), "")


def _wrong_reshapes(graph: onnx.GraphProto, outer: Mapping[str, list[int]]) -> Iterator[str]:
    """Yield Reshapes whose output has another number of elements than their input."""
    shapes = {**outer, **{tensor.name: list(tensor.dims) for tensor in graph.initializer}}
    for entry in (*graph.input, *graph.output, *graph.value_info):
        kind = entry.type.tensor_type
        if kind.HasField("shape") and all(dim.HasField("dim_value") for dim in kind.shape.dim):
            shapes[entry.name] = [dim.dim_value for dim in kind.shape.dim]
    for node in graph.node:
        if node.op_type == "Reshape" and node.domain in ("", "ai.onnx"):
            old, new = shapes.get(node.input[0]), shapes.get(node.output[0])
            if old is not None and new is not None and math.prod(old) != math.prod(new):
                yield f'Reshape of "{node.input[0]}" from {old} to {new}'
        for body in _bodies(node.attribute):
            yield from _wrong_reshapes(body, shapes)


def _bodies(attributes: Iterable[onnx.AttributeProto]) -> Iterator[onnx.GraphProto]:
    for attribute in attributes:
        yield from attribute.graphs
        if attribute.HasField("g"):
            yield attribute.g
