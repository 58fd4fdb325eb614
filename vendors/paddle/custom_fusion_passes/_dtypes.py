"""Which element types hold all values of which others."""

from __future__ import annotations

from types import MappingProxyType

from gehost import DataType

_INTEGERS = MappingProxyType(
    {
        DataType.INT8: (7, True),
        DataType.INT16: (15, True),
        DataType.INT32: (31, True),
        DataType.INT64: (63, True),
        DataType.UINT8: (8, False),
        DataType.UINT16: (16, False),
        DataType.UINT32: (32, False),
        DataType.UINT64: (64, False),
    }
)
"""Bits of the magnitude, and whether there is a sign."""
_FLOATS = MappingProxyType(
    {
        DataType.FLOAT16: (11, 5),
        DataType.BFLOAT16: (8, 8),
        DataType.FLOAT: (24, 8),
        DataType.DOUBLE: (53, 11),
    }
)
"""Bits of the significand, with the implied one, and of the exponent."""


def holds(values_of: DataType, by: int) -> bool:
    """Whether element type ``by`` holds every value of another.

    A cast there and back then changes nothing.
    """
    if by == values_of:
        return values_of is DataType.BOOL or values_of in _INTEGERS or values_of in _FLOATS
    wide = DataType(by) if by in (*_INTEGERS, *_FLOATS) else None
    if wide is None:
        return False
    if values_of is DataType.BOOL:
        return True
    if values_of in _FLOATS:
        return wide in _FLOATS and all(
            w >= n for w, n in zip(_FLOATS[wide], _FLOATS[values_of], strict=True)
        )
    if values_of not in _INTEGERS:
        return False
    bits, signed = _INTEGERS[values_of]
    if wide in _FLOATS:
        return bits <= _FLOATS[wide][0]
    return bits <= _INTEGERS[wide][0] and (_INTEGERS[wide][1] or not signed)


def cast_by_way_of(start: DataType | None, way: int, end: int) -> bool:
    """Whether casts from ``start`` by ``way`` to ``end`` equal one cast.

    The way must hold all values. The last step is the same from every dtype where it rounds to a
    float or asks for zero (bool); to an integer type only from an integer one, or where nothing is
    cut off.
    """
    if start is None or not holds(start, way):
        return False
    if end in _FLOATS or end == DataType.BOOL:
        return True
    if end not in _INTEGERS or start in _FLOATS:
        return False
    return way not in _FLOATS or holds(start, end)
