"""``DataType``, ``Format``, ``Shape``, ``TensorDesc`` and ``Tensor`` with GE's numbers and names.

Source: the documented Python interface of GE (DataType, Format, Shape, TensorDesc, Tensor).
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum
from typing import Any

import numpy as np

import gehost
from gehost import Value
from gehost_ge.errors import GeError, checked


class DataType(IntEnum):
    """Element types with GE's numbers, which are not ONNX's."""

    DT_FLOAT = 0
    DT_FLOAT16 = 1
    DT_INT8 = 2
    DT_INT32 = 3
    DT_UINT8 = 4
    DT_INT16 = 6
    DT_UINT16 = 7
    DT_UINT32 = 8
    DT_INT64 = 9
    DT_UINT64 = 10
    DT_DOUBLE = 11
    DT_BOOL = 12
    DT_STRING = 13
    DT_BF16 = 27
    DT_UNDEFINED = 28
    DT_INT4 = 29


class Format(IntEnum):
    """Layouts; tensors of ONNX have none, so all are ``FORMAT_ND``."""

    FORMAT_NCHW = 0
    FORMAT_NHWC = 1
    FORMAT_ND = 2
    FORMAT_NCDHW = 30


class DumpFormat(IntEnum):
    """File formats of ``Graph.dump_to_file``."""

    kOnnx = 0  # noqa: N815 - GE's name
    kTxt = 1  # noqa: N815 - GE's name
    kReadable = 2  # noqa: N815 - GE's name


_ONNX_NAMES = {DataType.DT_BF16: "BFLOAT16"}
_TO_ONNX = {
    dtype: gehost.DataType[_ONNX_NAMES.get(dtype, dtype.name.removeprefix("DT_"))]
    for dtype in DataType
}
_FROM_ONNX = {onnx: dtype for dtype, onnx in _TO_ONNX.items()}


def to_onnx(dtype: Any) -> gehost.DataType:
    """Return ONNX's element type of one of GE's; raises ``TypeError`` for anything else."""
    checked(dtype, DataType, "a DataType")
    return _TO_ONNX[dtype]


def from_onnx(dtype: gehost.DataType | None) -> DataType:
    """Return GE's element type, ``DT_UNDEFINED`` if GE has none or it is unknown."""
    return DataType.DT_UNDEFINED if dtype is None else _FROM_ONNX.get(dtype, DataType.DT_UNDEFINED)


def _type_of(array: np.ndarray[Any, Any]) -> DataType:
    for dtype, onnx in _TO_ONNX.items():
        if dtype is not DataType.DT_UNDEFINED and onnx.numpy == array.dtype:
            return dtype
    return DataType.DT_UNDEFINED


class Shape:
    """Sizes of a tensor: -1 for an unknown size, ``[-2]`` for an unknown rank."""

    def __init__(self, dims: Sequence[int] = ()) -> None:
        self._dims = [checked(dim, int, "sizes as whole numbers") for dim in dims]

    def __repr__(self) -> str:
        return f"Shape({self._dims})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Shape) and self._dims == other._dims

    def __hash__(self) -> int:
        return hash(tuple(self._dims))

    def __len__(self) -> int:
        """Return the rank.

        Raises:
            ValueError: it is unknown.
        """
        if self._dims == [-2]:
            raise ValueError("the rank is unknown")
        return len(self._dims)

    def __getitem__(self, axis: int) -> int:
        return self._dims[axis]

    def __iter__(self) -> Any:
        return iter(self._dims)

    @property
    def sizes(self) -> tuple[int | None, ...] | None:
        """The host's form: None for an unknown size, and for an unknown rank."""
        return None if self._dims == [-2] else tuple(d if d >= 0 else None for d in self._dims)

    def get_dims(self) -> list[int]:
        return list(self._dims)

    def get_dim(self, axis: int) -> int:
        """Return one size; raises ``GeError`` if there is no such axis."""
        checked(axis, int, "an axis")
        if not 0 <= axis < len(self._dims):
            raise GeError(f"axis {axis}: the rank is {len(self._dims)}")
        return self._dims[axis]

    def set_dim(self, axis: int, size: int) -> None:
        """Set one size; raises ``GeError`` if there is no such axis."""
        self.get_dim(axis)
        self._dims[axis] = checked(size, int, "a size")

    def get_dim_num(self) -> int:
        """Return the rank, -1 if unknown."""
        return -1 if self._dims == [-2] else len(self._dims)

    def get_shape_size(self) -> int:
        """Return the number of elements: -1 if unknown, 0 for a scalar, as GE documents."""
        if self.is_unknown_shape():
            return -1
        return int(np.prod(self._dims)) if self._dims else 0

    def is_unknown_shape(self) -> bool:
        """Whether the rank or a size is unknown."""
        return any(dim < 0 for dim in self._dims)


def shape_of(dims: Sequence[int | str | None] | None) -> Shape:
    """Return GE's form of a shape: names and unknown sizes are -1, no rank is ``[-2]``."""
    if dims is None:
        return Shape([-2])
    return Shape([dim if isinstance(dim, int) else -1 for dim in dims])


class TensorDesc:
    """Element type, shape and format of a tensor."""

    def __init__(
        self,
        shape: Shape | Sequence[int] = (),
        format: Format = Format.FORMAT_ND,  # noqa: A002 - GE's name
        data_type: DataType = DataType.DT_FLOAT,
    ) -> None:
        self.shape = shape if isinstance(shape, Shape) else Shape(shape)
        self.origin_shape = self.shape
        self.format = checked(format, Format, "a Format")
        self.origin_format = self.format
        self.data_type = checked(data_type, DataType, "a DataType")

    @classmethod
    def of(cls, value: Value | Any) -> TensorDesc:
        """Describe a tensor of a model; a constant also before inference."""
        if value.dtype is None and value.is_constant and (array := value.array) is not None:
            return cls(Shape(array.shape), data_type=Tensor.of(array).data_type)
        return cls(shape_of(value.shape), data_type=from_onnx(value.dtype))

    def __repr__(self) -> str:
        return f"TensorDesc({self.shape}, {self.format.name}, {self.data_type.name})"

    def get_shape(self) -> Shape:
        return self.shape

    def set_shape(self, shape: Shape) -> None:
        self.shape = checked(shape, Shape, "a Shape")

    def get_origin_shape(self) -> Shape:
        return self.origin_shape

    def set_origin_shape(self, shape: Shape) -> None:
        self.origin_shape = checked(shape, Shape, "a Shape")

    def get_format(self) -> Format:
        return self.format

    def set_format(self, format: Format) -> None:  # noqa: A002 - GE's name
        self.format = checked(format, Format, "a Format")

    def get_origin_format(self) -> Format:
        return self.origin_format

    def set_origin_format(self, format: Format) -> None:  # noqa: A002 - GE's name
        self.origin_format = checked(format, Format, "a Format")

    def get_data_type(self) -> DataType:
        return self.data_type

    def set_data_type(self, data_type: DataType) -> None:
        self.data_type = checked(data_type, DataType, "a DataType")


class Tensor:
    """A constant: numbers with element type and shape."""

    def __init__(
        self,
        data: Any = (),
        shape: Shape | Sequence[int] | None = None,
        data_type: DataType = DataType.DT_FLOAT,
        format: Format = Format.FORMAT_ND,  # noqa: A002 - GE's name
    ) -> None:
        """Take a number or nested lists, reshaped to ``shape`` if one is given.

        Raises:
            TypeError: the element type or format is none.
            ValueError: the numbers do not fill the shape.
        """
        self.format = checked(format, Format, "a Format")
        self.data_type = checked(data_type, DataType, "a DataType")
        array = np.asarray(data, to_onnx(data_type).numpy)
        self.array = array if shape is None else array.reshape(list(shape))

    @classmethod
    def of(cls, array: np.ndarray[Any, Any]) -> Tensor:
        """Hold a constant of a model."""
        tensor = cls()
        tensor.array, tensor.data_type = array, _type_of(array)
        return tensor

    def __repr__(self) -> str:
        return f"Tensor({self.data_type.name}, {list(self.array.shape)})"

    @property
    def data(self) -> Any:
        """A number, or nested lists."""
        return self.array.tolist()

    @property
    def shape(self) -> Shape:
        return Shape(self.array.shape)

    def get_data(self) -> Any:
        return self.data

    def get_shape(self) -> Shape:
        return self.shape

    def get_data_type(self) -> DataType:
        return self.data_type

    def get_format(self) -> Format:
        return self.format
