"""Tensor data outside the model file: its size, location and memory map."""

from __future__ import annotations

import os
import re
import stat
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from types import MappingProxyType
from typing import Any, cast

import numpy as np
import numpy.typing as npt
import onnx

from gehost.errors import ModelError

# UINT4, INT4, FLOAT4E2M1, UINT2, INT2, FLOAT6E2M3, FLOAT6E3M2: by number, as an older onnx lacks
# the last names.
_PACKED_BITS = MappingProxyType({21: 4, 22: 4, 23: 4, 25: 2, 26: 2, 27: 6, 28: 6})
# Times 16 bytes, the largest element, a number of elements below this stays below 2**63.
_TOO_MANY_ELEMENTS = 2**59
_READ_KEYS = frozenset({"location", "offset", "length", "checksum"})
OWN_WEIGHTS = "gehost-weights.bin"
"""How the file ends that ``optimize`` keeps weights in, for as long as it runs."""
PLAIN_KINDS = frozenset(
    map(
        onnx.AttributeProto.AttributeType.Value,
        ["FLOAT", "INT", "STRING", "FLOATS", "INTS", "STRINGS"],
    )
)
"""Types of attributes that hold neither a tensor nor a graph."""


@dataclass(frozen=True, slots=True)
class ExternalLocation:
    """A region of a regular file: absolute path, first byte, byte count."""

    path: str
    offset: int
    length: int


def label(tensor: onnx.TensorProto) -> str:
    """Return a tensor's name for messages: on one line, shortened."""
    name = _text(cast("Any", tensor).name)
    return (
        f"tensor {name if len(name) <= 100 else name[:97] + '...'!r}"
        if name
        else "a tensor without a name"
    )


def numpy_dtype(elem_type: int) -> np.dtype[Any]:
    """Return the numpy dtype of an ONNX element type.

    It comes from ml_dtypes where numpy has none; STRING has ``object``.

    Raises:
        ModelError: ONNX defines no such element type, or it is UNDEFINED.
    """
    try:
        return onnx.helper.tensor_dtype_to_np_dtype(elem_type)
    except KeyError as error:
        raise ModelError(
            f"element type {elem_type} is not defined in this version of onnx"
        ) from error


@cache
def element_bits(elem_type: int) -> int:
    """Return the bits of an element in raw or external data.

    Sub-byte types are packed there.
    """
    return _PACKED_BITS.get(elem_type) or numpy_dtype(elem_type).itemsize * 8


def element_count(tensor: onnx.TensorProto) -> int:
    """Return the number of elements, from the dimensions.

    Raises:
        ModelError: a dimension is negative, or the product exceeds the address space.
    """
    count = extent = 1
    for dim in tensor.dims[:]:
        if dim < 0:
            raise ModelError(
                f"dimension {dim} is negative", subject=label(tensor), hint="export the model again"
            )
        count *= dim
        # A zero does not make absurd dimensions harmless: numpy multiplies the others.
        extent *= dim or 1
        if extent >= _TOO_MANY_ELEMENTS:
            raise ModelError(
                "its dimensions overflow, no machine holds it",
                subject=label(tensor),
                hint="export the model again",
            )
    return count


def nbytes(tensor: onnx.TensorProto) -> int:
    """Return the data size in bytes, from dimensions and element type.

    Strings count their bytes.

    Raises:
        ModelError: unknown element type, a negative dimension, or dimensions that overflow.
    """
    if tensor.data_type == onnx.TensorProto.STRING:
        return sum(map(len, tensor.string_data))
    try:
        bits = element_bits(tensor.data_type)
    except ModelError as error:
        raise ModelError(str(error), subject=label(tensor)) from error
    return (element_count(tensor) * bits + 7) // 8


def is_external(tensor: onnx.TensorProto) -> bool:
    return tensor.data_location == onnx.TensorProto.EXTERNAL


def location_problem(location: str) -> str | None:
    """Return why a text is not a ``location``, else None.

    A location is a relative POSIX path below the model.
    """
    if not location.strip():
        return "is empty"
    if "\0" in location:
        return "has a NUL character"
    if "\\" in location:
        return "has a backslash, which some systems treat as a separator"
    if location.startswith("/") or re.match("[A-Za-z]:", location):
        return "is an absolute path"
    if ".." in location.split("/"):
        return "leaves the model's directory"
    return None


def check_external(tensors: Iterable[onnx.TensorProto], base_dir: str | None) -> None:
    """Check that external data is readable, inspecting each file once.

    Raises:
        ModelError: as ``locate``.
    """
    locations: dict[str, tuple[str, int]] = {}
    for tensor in tensors:
        locate(tensor, base_dir, locations)


def locate(
    tensor: onnx.TensorProto,
    base_dir: str | None,
    locations: dict[str, tuple[str, int]] | None = None,
) -> ExternalLocation:
    """Return the location of an external tensor's data, without opening the file.

    Uses the entries ``location``, ``offset`` and ``length``; ``checksum`` is not verified, as that
    would read the whole file. Other keys are harmless metadata (ONNX Runtime writes some) and
    ignored, as in onnx.

    Args:
        tensor: an external one.
        base_dir: the model's directory; "" is the working directory, None a model without a file.
        locations: absolute path and size of files by location, which are not inspected again; new
            ones are added.

    Raises:
        ModelError: the entries are malformed, the region does not fit dimensions and element
            type or is not within the file, or the file is missing, outside ``base_dir``, a link,
            or not a regular file.
    """
    who = label(tensor)
    if base_dir is None:
        raise ModelError(
            "its data is in another file, but the model has no directory",
            subject=who,
            hint="load it from its file",
        )
    if tensor.data_type == onnx.TensorProto.STRING:
        raise ModelError(
            "strings cannot be external data", subject=who, hint="export the model again"
        )
    entries = _read_entries(tensor, who)
    size = nbytes(tensor)
    offset = _number(entries, "offset", 0, who)
    length = _number(entries, "length", size, who)
    if length != size:
        raise ModelError(
            f"its external data has length {length}, but its type and shape take {size} bytes",
            subject=who,
            hint="export the model again",
        )
    location = entries.get("location", "")
    location_file = None if locations is None else locations.get(location)
    path, file_size = location_file or _regular_file(location, os.path.abspath(base_dir), who)
    if locations is not None:
        locations[location] = path, file_size
    if offset + length > file_size:
        raise ModelError(
            f"bytes {offset} to {offset + length} are not within {_show(path)}, which has "
            f"{file_size}; the file is cut short or belongs to another model",
            subject=who,
        )
    return ExternalLocation(path, offset, length)


def _text(value: object) -> str:
    """Return a protobuf string.

    The runtime returns bytes, contrary to its stub, if the string is not UTF-8.
    """
    return value if isinstance(value, str) else repr(value)


def _show(text: str) -> str:
    return repr(text if len(text) <= 300 else text[:140] + "..." + text[-140:])


def _read_entries(tensor: onnx.TensorProto, who: str) -> dict[str, str]:
    entries: dict[str, str] = {}
    for entry in tensor.external_data:
        if entry.key not in _READ_KEYS:
            continue
        if entry.key in entries:
            raise ModelError(
                f"its external data has two entries {entry.key!r}",
                subject=who,
                hint="export the model again",
            )
        entries[entry.key] = _text(cast("Any", entry).value)
    return entries


def _number(entries: dict[str, str], key: str, default: int, who: str) -> int:
    text = entries.get(key)
    if text is None:
        return default
    # Not int(), which accepts signs, blanks, underscores, digits of other scripts, any length.
    if not re.fullmatch("[0-9]{1,19}", text) or int(text) >= 2**63:
        raise ModelError(
            f"external data {key} {_show(text)} is not a whole number from 0 to 2**63 - 1",
            subject=who,
            hint="export the model again",
        )
    return int(text)


def _regular_file(location: str, directory: str, who: str) -> tuple[str, int]:
    """Return the file's absolute path and size.

    Uses only ``lstat``, so a FIFO cannot block.
    """
    if problem := location_problem(location):
        raise ModelError(
            f"external data location {_show(location)} {problem}",
            subject=who,
            hint="put the file beside the model and name it by a relative path",
        )
    path, status = directory, None
    for part in location.split("/"):
        if part in ("", "."):
            continue
        path = os.path.join(path, part)
        try:
            status = os.lstat(path)
        except (OSError, ValueError) as error:
            reason = error.strerror if isinstance(error, OSError) else str(error)
            raise ModelError(
                f"cannot find its external data {_show(path)}: {reason}",
                subject=who,
                hint="put the file beside the model",
            ) from error
        if stat.S_ISLNK(status.st_mode):
            raise ModelError(
                f"external data {_show(path)} is a symbolic link",
                subject=who,
                hint="put a copy of the file there",
            )
    if status is None or not stat.S_ISREG(status.st_mode):
        raise ModelError(
            f"external data {_show(path)} is not a regular file",
            subject=who,
            hint="name the file with the weights",
        )
    if status.st_nlink > 1:
        raise ModelError(
            f"external data {_show(path)} is a hard link",
            subject=who,
            hint="put a copy of the file there",
        )
    return path, status.st_size


def open_data(location: ExternalLocation) -> int:
    """Return a file descriptor for reading ``location``; the caller closes it.

    Raises:
        ModelError: the file cannot be opened, or changed since ``locate``.
    """
    # O_NOFOLLOW and O_NONBLOCK: a link or FIFO placed there after ``locate`` is not followed and
    # does not block.
    flags = os.O_RDONLY
    for name in ("O_NOFOLLOW", "O_NONBLOCK", "O_CLOEXEC", "O_BINARY"):
        flags |= getattr(os, name, 0)
    try:
        descriptor = os.open(location.path, flags)
    except OSError as error:
        raise ModelError(
            f"cannot read external data {_show(location.path)}: {error.strerror}"
        ) from error
    status = os.fstat(descriptor)
    if not stat.S_ISREG(status.st_mode) or location.offset + location.length > status.st_size:
        os.close(descriptor)
        raise ModelError(
            f"external data {_show(location.path)} changed while the model was read",
            hint="run again",
        )
    return descriptor


def map_data(location: ExternalLocation) -> npt.NDArray[np.uint8]:
    """Return the bytes of a region as a read-only memory map.

    Truncating the file while it is mapped ends the process.

    Raises:
        ModelError: the file cannot be mapped, or changed since ``locate``.
    """
    if location.length == 0:
        empty = np.empty(0, np.uint8)
        empty.flags.writeable = False
        return empty
    try:
        with os.fdopen(open_data(location), "rb") as file:
            return np.memmap(file, np.uint8, "r", location.offset, (location.length,)).view(
                np.ndarray
            )
    except (OSError, ValueError) as error:
        raise ModelError(f"cannot map external data {_show(location.path)}: {error}") from error


def file_names(tensors: Iterable[onnx.TensorProto]) -> set[str]:
    """Return the ``location`` entries of external tensors, as written in the model."""
    return {
        _text(cast("Any", entry).value)
        for tensor in tensors
        for entry in tensor.external_data
        if entry.key == "location"
    }


def external_files(path: str) -> list[str]:
    """Return a model's external files, existing or not, sorted.

    Raises:
        OSError: the model cannot be read.
        google.protobuf.message.DecodeError: it is not an ONNX file.
    """
    with open(path, "rb") as file:
        proto = onnx.ModelProto.FromString(file.read())
    return sorted(
        os.path.join(os.path.dirname(path), name) for name in file_names(external_tensors(proto))
    )


def external_tensors(proto: onnx.ModelProto) -> Iterator[onnx.TensorProto]:
    """Yield every external tensor: in initializers, attributes, bodies, functions, training."""
    return filter(is_external, all_tensors(proto))


def all_tensors(
    proto: onnx.ModelProto, nodes: Iterable[onnx.NodeProto] | None = None
) -> Iterator[onnx.TensorProto]:
    """Yield every tensor; of sparse ones, values and indices.

    Args:
        proto: the model.
        nodes: nodes of the main graph that may hold tensors or bodies; None: all nodes.
    """
    graphs: deque[onnx.GraphProto] = deque()
    for training in proto.training_info:
        graphs += (training.initialization, training.algorithm)
    for function in proto.functions:
        yield from _attribute_tensors(function.attribute_proto, graphs)
        yield from _attribute_tensors(_attributes(function.node), graphs)
    yield from _graph_tensors(proto.graph, proto.graph.node if nodes is None else nodes, graphs)
    while graphs:
        graph = graphs.popleft()
        yield from _graph_tensors(graph, graph.node, graphs)


def _graph_tensors(
    graph: onnx.GraphProto, nodes: Iterable[onnx.NodeProto], graphs: deque[onnx.GraphProto]
) -> Iterator[onnx.TensorProto]:
    yield from graph.initializer
    yield from _sparse_tensors(graph.sparse_initializer)
    yield from _attribute_tensors(_attributes(nodes), graphs)


def _attributes(nodes: Iterable[onnx.NodeProto]) -> Iterator[onnx.AttributeProto]:
    for node in nodes:
        yield from node.attribute[:]


def _attribute_tensors(
    attributes: Iterable[onnx.AttributeProto], graphs: deque[onnx.GraphProto]
) -> Iterator[onnx.TensorProto]:
    """Yield the tensors of attributes; append their graphs to ``graphs``."""
    for attribute in attributes:
        kind = attribute.type
        if kind in PLAIN_KINDS:
            continue
        match kind:
            case onnx.AttributeProto.TENSOR:
                yield attribute.t
            case onnx.AttributeProto.TENSORS:
                yield from attribute.tensors
            case onnx.AttributeProto.SPARSE_TENSOR:
                yield from _sparse_tensors([attribute.sparse_tensor])
            case onnx.AttributeProto.SPARSE_TENSORS:
                yield from _sparse_tensors(attribute.sparse_tensors)
            case onnx.AttributeProto.GRAPH:
                graphs.append(attribute.g)
            case onnx.AttributeProto.GRAPHS:
                graphs.extend(attribute.graphs)
            # before IR version 2 the type is not set; the field that is set decides
            case onnx.AttributeProto.UNDEFINED:
                yield from (*([attribute.t] if attribute.HasField("t") else []), *attribute.tensors)
                graphs.extend(
                    (*([attribute.g] if attribute.HasField("g") else []), *attribute.graphs)
                )
            case _:
                pass


def _sparse_tensors(sparse: Iterable[onnx.SparseTensorProto]) -> Iterator[onnx.TensorProto]:
    for tensor in sparse:
        yield tensor.values
        yield tensor.indices
