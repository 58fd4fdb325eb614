"""Generate inputs for a model from its signature.

They are seeded, of consistent sizes, with valid indices.

Values by the use of the input:

| input | values |
|---|---|
| floating point | standard normal |
| "mask" in its name, or only compared, cast to bool, | 0 and 1, the first of each row 1 |
| or subtracted from 1 | |
| an index into a table | below the table's size |
| other integers | 0 to 3; of 8 bits: 0 to 127 |
| bool | both |
| string | "a" to "f" |
"""

from __future__ import annotations

import io
import math
import os
import re
import sys
import zipfile
import zlib
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import onnx
import onnx.helper
import onnx.numpy_helper

from gehost.errors import ModelError, UsageError
from gehost.infer import infer_model
from gehost.ir.model import Model
from gehost.verify.sizes import Dims, Sizes

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Array = NDArray[Any]

_TENSOR = onnx.TensorProto
_INTEGERS = frozenset(
    value for name, value in _TENSOR.DataType.items() if re.fullmatch(r"U?INT\d+", name)
)
_NO_NUMBER = (_TENSOR.UNDEFINED, _TENSOR.STRING)
# Operator: slot of the indices → slot of the table.
_TABLES = MappingProxyType(
    {
        "Gather": {1: 0},
        "GatherElements": {1: 0},
        "GatherND": {1: 0},
        "ScatterElements": {1: 0},
        "ScatterND": {1: 0},
        "EmbedLayerNormalization": {0: 2, 1: 4},
    }
)
_SAME_VALUES = frozenset(
    ("Cast", "CastLike", "Identity", "Reshape", "Flatten", "Squeeze", "Unsqueeze", "Transpose")
).union(("Expand", "Tile", "Slice", "Split", "Gather"))
_SAME_VALUES_FROM_ANY = frozenset(("Concat", "Where"))
_ONLY_TYPE_OR_SHAPE = frozenset(("Shape", "Size", "CastLike"))
_TESTS = frozenset(
    ["Equal", "Greater", "GreaterOrEqual", "Less", "LessOrEqual", "Not", "And", "Or", "Xor"]
)
# Larger initializers are not used to infer shapes.
_SMALL = 64
_MOST_AXES = 64
"""Of an array of numpy."""
_WIDEST = 16
"""Largest number of bytes of an element while it is generated."""


_DENORMALS = (1e-40, -1e-40)
_SPECIAL = (
    (math.nan,),
    (math.inf,),
    (-math.inf,),
    (-0.0,),
    _DENORMALS,
    (88.5, -88.5),
    (1e38, -1e38),
)


class InputTooLargeError(UsageError):
    """An input needs more memory than there is."""


class FeedMaker:
    """Generates inputs of various sizes for one model.

    Its weights need not be loaded.

    Raises:
        UsageError: An input is a sequence, a map or an optional, has no rank (the caller must
            give the inputs), or has more axes than an array of numpy.
    """

    def __init__(self, model: onnx.ModelProto) -> None:
        self._inputs = _inputs(model)
        users = _Users(model) if any(spec.element in _INTEGERS for spec in self._inputs) else None
        self._uses = (
            {i.name: users.use(i.name) for i in self._inputs if i.element in _INTEGERS}
            if users
            else {}
        )

    @property
    def shapes(self) -> list[Dims]:
        """The dimensions of each input.

        An unnamed one is a symbol of its own.
        """
        return [spec.dims for spec in self._inputs]

    @property
    def names(self) -> list[str]:
        """The names of the inputs."""
        return [spec.name for spec in self._inputs]

    def elements(self, variant: int, ties: Mapping[str, Sequence[str]]) -> int:
        """Return the number of elements that ``make`` would create.

        It is the total over the inputs.
        """
        sizes = Sizes(self.shapes, variant, ties)
        return sum(math.prod(sizes[dim] for dim in dims) for dims in self.shapes)

    def make(
        self, seed: int = 0, variant: int = 0, ties: Mapping[str, Sequence[str]] | None = None
    ) -> dict[str, Array]:
        """Return a value for every input without initializer.

        For the arguments see ``Sizes``.

        Raises:
            InputTooLargeError: There is not enough memory for one of them.
        """
        return self._make(Sizes(self.shapes, variant, ties or {}), seed, variant)

    def make_sized(
        self,
        sizes: Mapping[str, int],
        seed: int = 0,
        ties: Mapping[str, Sequence[str]] | None = None,
    ) -> dict[str, Array]:
        """Return a value for every input without initializer, in these sizes of the symbols.

        Raises:
            InputTooLargeError: There is not enough memory for one of them.
        """
        return self._make(Sizes(self.shapes, 0, ties or {}, sizes), seed, 0)

    def _make(self, sizes: Sizes, seed: int, variant: int) -> dict[str, Array]:
        feeds: dict[str, Array] = {}
        for spec in self._inputs:
            # By name: a model with an additional input, or another order, gets the same values for
            # the others.
            rng = np.random.default_rng([seed, variant, zlib.crc32(spec.name.encode())])
            use = self._uses.get(spec.name, _Use())
            bound = min(sizes.known(use.tables), default=None)
            shape = tuple(sizes[dim] for dim in spec.dims)
            if math.prod(shape) * _WIDEST > sys.maxsize:  # numpy may raise another error
                raise _too_large(spec, shape)
            try:
                feeds[spec.name] = _draw_values(spec, shape, bound, use, rng)
            except MemoryError as error:
                raise _too_large(spec, shape) from error
        return feeds


def make_feeds(model: onnx.ModelProto, seed: int = 0, variant: int = 0) -> dict[str, Array]:
    """Generate a value for every input that has no initializer.

    Args:
        model: The model; its weights need not be loaded.
        seed: Of the random numbers.
        variant: Of the sizes: 0, 1, 2 small ones (in 1 the batch is 1), from 3 on larger ones.

    Raises:
        UsageError: An input is a sequence, a map or an optional, or has no rank: the caller must
            give the inputs.
    """
    return FeedMaker(model).make(seed, variant)


def load_feeds(path: str | os.PathLike[str]) -> dict[str, Array]:
    """Read inputs by name from an ``.npz`` file.

    Raises:
        UsageError: The file cannot be read, is not an ``.npz``, or holds pickled objects.
    """
    name = os.fspath(path)
    try:
        with np.load(path, allow_pickle=False) as archive:
            results: dict[str, Any] = {entry: archive[entry] for entry in archive.files}
            if not all(isinstance(array, np.ndarray) for array in results.values()):
                raise TypeError("an entry of the archive is not an array")
            return results
    except FileNotFoundError as error:
        raise UsageError("there is no such file", where=name) from error
    except OSError as error:
        raise UsageError(f"{name} cannot be read: {error.strerror or error}") from error
    # numpy's message is dropped: it recommends loading pickled objects, which may run code.
    except (
        EOFError,
        ValueError,
        AttributeError,
        TypeError,
        RuntimeError,
        zipfile.BadZipFile,
        zlib.error,
    ) as error:
        raise UsageError(
            f"{name} is not an .npz file with one array of numbers or text for each input"
        ) from error


def save_feeds(feeds: Mapping[str, Array]) -> bytes:
    """Return the content of an ``.npz`` file of inputs.

    They are stored by name; any name is allowed.
    """
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, array in feeds.items():
            plain = (
                array.astype(str)
                if array.dtype.kind == "O"
                else np.ascontiguousarray(array).reshape(array.shape)
            )
            with archive.open(zipfile.ZipInfo(f"{name}.npy"), "w", force_zip64=True) as entry:
                np.lib.format.write_array(entry, plain, allow_pickle=False)
    return content.getvalue()


def with_special_values(feeds: Mapping[str, Array], seed: int = 0) -> Iterator[dict[str, Array]]:
    """Yield the feeds with special values at an eighth of float places.

    The places are drawn for each float input.

    In turn: NaN, infinity, its negative, -0.0, denormals, +-88.5 (where float32's exp overflows),
    and +-1e38, or the largest value of a smaller type.

    Args:
        feeds: Inputs by name; those that are not floats stay as they are.
        seed: Of the places.
    """
    for number, values in enumerate(_SPECIAL):
        rng = np.random.default_rng([seed, number])
        results = dict(feeds)
        for name, array in feeds.items():
            if is_float(array):
                results[name] = _with_special(array, values, rng)
        yield results


def is_float(array: Array) -> bool:
    """Whether the elements are real floating-point numbers."""
    return "float" in array.dtype.name


def _with_special(array: Array, values: Sequence[float], rng: np.random.Generator) -> Array:
    special = np.array(values, np.float64)
    if array.dtype.kind == "f":
        info = np.finfo(array.dtype)
        if values is _DENORMALS:
            special = np.array([float(info.tiny) / 2, float(info.tiny) / -2])
        elif np.isfinite(special).all():
            special = special.clip(float(info.min), float(info.max))
    places = np.asarray(rng.random(array.shape) < 1 / 8)
    if array.size:
        places.flat[rng.integers(array.size)] = True
    changed = array.copy()
    changed[places] = rng.choice(special, int(places.sum())).astype(array.dtype)
    return changed


def nudged(feeds: Mapping[str, Array]) -> dict[str, Array]:
    """Return the feeds with each number of a float input a unit of float32 off, up or down.

    Half becomes float32, as its widened form takes.
    """
    results = dict(feeds)
    for name, array in feeds.items():
        if array.dtype.name in ("float16", "bfloat16", "float32"):
            rng = np.random.default_rng(zlib.crc32(name.encode()))
            wide = array.astype(np.float32)
            ends = np.where(rng.random(array.shape) < 1 / 2, -np.inf, np.inf).astype(np.float32)
            with np.errstate(over="ignore"):
                results[name] = np.where(wide == 0, wide, np.nextafter(wide, ends))
    return results


def with_declared_types(feeds: Mapping[str, Array], model: onnx.ModelProto) -> dict[str, Array]:
    """Return inputs of a file in the model's types.

    numpy's files lack some, such as bfloat16.
    """
    declared = {value.name: value.type.tensor_type.elem_type for value in model.graph.input}
    results = dict(feeds)
    for name, array in feeds.items():
        if array.dtype.kind == "V" and declared.get(name):
            dtype = onnx.helper.tensor_dtype_to_np_dtype(declared[name])
            if dtype.itemsize == array.dtype.itemsize:
                results[name] = array.view(dtype)
    return results


class _Input(NamedTuple):
    name: str
    element: int
    dims: Dims


class _Use(NamedTuple):
    """The use of an integer input.

    ``tables`` has the sizes of the tables that it indexes; ``tested`` is set if only whether it
    is zero matters.
    """

    tables: Dims = ()
    tested: bool = False


class _Users:
    """The users of each tensor in a model.

    Functions are inlined and shapes inferred.
    """

    def __init__(self, model: onnx.ModelProto) -> None:
        self._users: dict[str, list[tuple[onnx.NodeProto, int]]] = defaultdict(list)
        from gehost.ir.inline import inline_functions

        lean = without_weights(model)
        if lean.functions:
            lean = inline_functions(lean)
        self._shapes = _shapes(lean)
        self._ones: set[str] = set()
        self._index(lean.graph)

    def use(self, name: str) -> _Use:
        """Follow an input to the nodes whose result depends on its values."""
        pending, visited = [name], {name}
        tables: list[int | str] = []
        tests = others = 0
        while pending:
            for node, slot in self._users.get(pending.pop(), ()):
                if slot in (indexed := _TABLES.get(node.op_type, {})):
                    table = indexed[slot]
                    dims = (
                        self._shapes.get(node.input[table], ()) if table < len(node.input) else ()
                    )
                    if not node.op_type.endswith("ND"):  # whose tuples of indices use all axes
                        axis = next((a.i for a in node.attribute if a.name == "axis"), 0)
                        dims = dims[axis : axis + 1 or None]
                    tables += dims
                    others += 1
                elif self._is_test(node, slot):
                    tests += 1
                elif node.op_type in (_SAME_VALUES if slot == 0 else _SAME_VALUES_FROM_ANY):
                    pending += [output for output in node.output if output not in visited]
                    visited.update(node.output)
                elif node.op_type not in _ONLY_TYPE_OR_SHAPE:
                    others += 1
        return _Use(tuple(tables), tests > 0 == others)

    def _index(self, graph: onnx.GraphProto) -> None:
        self._ones.update(tensor.name for tensor in graph.initializer if _is_one(tensor))
        for node in graph.node:
            for slot, name in enumerate(node.input):
                self._users[name].append((node, slot))
            for attribute in node.attribute:
                if node.op_type == "Constant" and (
                    attribute.f == 1 or attribute.i == 1 or _is_one(attribute.t)
                ):
                    self._ones.update(node.output)
                for body in (attribute.g, *attribute.graphs):
                    self._index(body)

    def _is_test(self, node: onnx.NodeProto, slot: int) -> bool:
        if node.op_type == "Cast":
            return any(a.name == "to" and a.i == _TENSOR.BOOL for a in node.attribute)
        if node.op_type == "Sub":
            return slot == 1 and node.input[0] in self._ones
        return node.op_type in _TESTS or (node.op_type == "Where" and slot == 0)


def _inputs(model: onnx.ModelProto) -> list[_Input]:
    """List the inputs that have no initializer."""
    initialized = {t.name for t in model.graph.initializer} | {
        t.values.name for t in model.graph.sparse_initializer
    }
    results: list[_Input] = []
    for value in model.graph.input:
        if value.name in initialized:
            continue
        declared = value.type.tensor_type
        kind = value.type.WhichOneof("value") or "value of unknown type"
        if kind != "tensor_type":
            raise UsageError(
                f"input {value.name!r} is a {kind.removesuffix('_type')}", hint="give --feeds"
            )
        if not declared.HasField("shape"):
            raise UsageError(f"input {value.name!r} has no declared rank", hint="give --feeds")
        rank = len(declared.shape.dim)
        if rank > _MOST_AXES:
            raise UsageError(
                f"input {value.name!r} has {rank} axes, and numpy's arrays have {_MOST_AXES} at "
                "most: its numbers cannot be compared"
            )
        dims = tuple(
            d.dim_value
            if d.HasField("dim_value") and d.dim_value >= 0
            else d.dim_param or f"{value.name}:{axis}"
            for axis, d in enumerate(declared.shape.dim)
        )
        results.append(_Input(value.name, declared.elem_type, dims))
    return results


def _draw_values(
    spec: _Input, shape: tuple[int, ...], bound: int | None, use: _Use, rng: np.random.Generator
) -> Array:
    if spec.element == _TENSOR.STRING:
        return rng.choice(np.array(list("abcdef"), dtype=object), shape)
    dtype = onnx.helper.tensor_dtype_to_np_dtype(spec.element)
    if "mask" in spec.name.lower() or (use.tested and bound is None):
        mask = rng.integers(0, 2, shape)
        if shape:  # a row without any 1 gives only NaN after a softmax
            mask[..., :1] = 1
        return mask.astype(dtype)
    if spec.element == _TENSOR.BOOL:
        return rng.integers(0, 2, shape).astype(dtype)
    if spec.element in _INTEGERS:
        default = 128 if spec.element in (_TENSOR.INT8, _TENSOR.UINT8) else 4
        return rng.integers(0, default if bound is None else max(bound, 1), shape).astype(dtype)
    values = rng.standard_normal(shape)
    return (values + 1j * rng.standard_normal(shape) if dtype.kind == "c" else values).astype(dtype)


def _too_large(spec: _Input, shape: tuple[int, ...]) -> InputTooLargeError:
    dtype = onnx.helper.tensor_dtype_to_np_dtype(spec.element)
    size = math.prod(shape) * dtype.itemsize
    sizes = str(list(shape)) if len(shape) <= 8 else f" of {len(shape)} axes"
    return InputTooLargeError(
        f"input {spec.name!r} as {dtype.name}{sizes} needs "
        f"{f'{size:,}' if size <= sys.maxsize else 'more than 2**63'} bytes, which cannot be "
        "allocated",
        hint="fix its open sizes by --dim, or give --feeds"
        if any(isinstance(dim, str) for dim in spec.dims)
        else "compare on a machine with more memory",
    )


def _is_one(tensor: onnx.TensorProto) -> bool:
    if (
        math.prod(tensor.dims) != 1
        or tensor.data_location == _TENSOR.EXTERNAL
        or tensor.data_type in _NO_NUMBER
    ):
        return False
    return bool(np.all(onnx.numpy_helper.to_array(tensor) == 1))


def without_weights(model: onnx.ModelProto) -> onnx.ModelProto:
    """Return a copy whose large initializers are inputs; small ones stay."""
    graph = model.graph
    lean = onnx.ModelProto(
        ir_version=max(model.ir_version, 4),
        opset_import=model.opset_import,
        functions=model.functions,
    )
    lean.graph.name = graph.name
    lean.graph.node.extend(graph.node)
    lean.graph.output.extend(graph.output)
    lean.graph.value_info.extend(graph.value_info)
    lean.graph.initializer.extend(
        [
            item
            for item in graph.initializer
            if math.prod(item.dims) <= _SMALL and item.data_location != _TENSOR.EXTERNAL
        ]
    )
    arguments = {tensor.name for tensor in lean.graph.initializer}
    lean.graph.input.extend([value for value in graph.input if value.name not in arguments])
    arguments.update(value.name for value in graph.input)
    for tensor in graph.sparse_initializer:
        lean.graph.input.append(
            onnx.helper.make_tensor_value_info(
                tensor.values.name, tensor.values.data_type, tensor.dims
            )
        )
        arguments.add(tensor.values.name)
    for tensor in graph.initializer:
        if tensor.name not in arguments:
            lean.graph.input.append(
                onnx.helper.make_tensor_value_info(tensor.name, tensor.data_type, tensor.dims)
            )
    return lean


def _shapes(lean: onnx.ModelProto) -> dict[str, Dims]:
    """Return known sizes of all tensors, {} if the model is invalid.

    Its run reports an invalid model.
    """
    try:
        model = Model(lean)
    except ModelError:
        return {}
    infer_model(model)
    return {
        name: tuple(
            [f"{name}:{axis}" if dim is None else dim for axis, dim in enumerate(value.shape)]
        )
        for graph in model.graphs
        for name, value in graph.values.items()
        if value.shape is not None
    }
