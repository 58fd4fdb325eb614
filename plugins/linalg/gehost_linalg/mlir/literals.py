"""Constants as MLIR writes them."""

from __future__ import annotations

import math
import re
from typing import Any

import numpy as np

from gehost_linalg.generic import Literal, Value, is_known
from gehost_linalg.interpret import numpy_dtype
from gehost_linalg.mlir.types import TypeReader
from gehost_linalg.operations import FLOATS
from gehost_mlir.source import OPERATION, STRING, balanced

_WIDTHS = {"f16": np.float16, "f32": np.float32, "f64": np.float64}
_DIGITS_OF = {"f16": 4, "bf16": 4, "f32": 8, "f64": 16}
"""Hexadecimal."""
_MOST_DIGITS = 66
"""Of an integer; 64 bits have fewer in any base."""
_CORE = re.compile(
    r"(?:tensor<(?:\*x|(?:[0-9]+|\?)x)*)?(?:f16|bf16|f32|f64|i1|i8|i16|i32|i64|index)(?![\w<])"
)
_VALUE = re.compile(r"dense(?:_resource)?<|[-+\w.]+|[#\[(]")
_TYPE = re.compile(r"\s*:\s*")
_SCALAR = re.compile(r"0x[0-9A-Fa-f]+|-?[0-9]+(\.[0-9]*([eE][+-]?[0-9]+)?)?|true|false")


def literal_text(literal: Literal) -> str:
    """A constant as MLIR writes it; infinities and NaNs by their bits."""
    value, dtype = literal.value, literal.dtype
    if dtype == "i1":
        return "true" if value else "false"
    if dtype not in FLOATS:
        return str(int(value))
    if np.isfinite(value):
        mantissa, e, exponent = repr(float(value)).partition("e")
        return f"{mantissa if '.' in mantissa else mantissa + '.0'}{e}{exponent}"
    wide = np.asarray(value, np.float32 if dtype == "bf16" else _WIDTHS[dtype])
    bits = int.from_bytes(wide.tobytes(), "little")
    if dtype == "bf16":
        bits >>= 16
    return f"0x{bits:0{_DIGITS_OF[dtype]}X}"


def dense_text(array: np.ndarray[Any, Any], dtype: str) -> str:
    """The elements of a constant, nested."""
    if array.ndim == 0:
        return literal_text(Literal(array.item(), dtype))
    return f"[{', '.join(dense_text(item, dtype) for item in array)}]"


def has_elements(reader: TypeReader) -> bool:
    """Whether a constant is of a type whose elements are read; others stay texts."""
    start = reader.skip()
    match = _VALUE.match(reader.text, start)
    if match is None:
        return True
    end = balanced(reader.text, match.end() - 1) if match.group().endswith("<") else match.end()
    name = reader.text[match.end() : end].rstrip("> ")
    if match.group().startswith("dense_resource") and name not in reader.resources:
        return False
    kind = _TYPE.match(reader.text, end)
    return kind is None or _CORE.match(reader.text, kind.end()) is not None


def _read_bytes(reader: TypeReader, ssa: str, start: int) -> Value:
    """``dense_resource<name>`` or ``dense<"0x…">``, with the type behind it."""
    is_resource = reader.accept("dense_resource")
    if not is_resource:
        reader.expect("dense")
    reader.expect("<")
    if is_resource:
        data = reader.resources.get(reader.take(OPERATION, "a resource"), b"")[4:]  # alignment
    else:
        digits = reader.take(STRING, "a string")[1:-1].removeprefix("0x")
        if re.fullmatch("(?:[0-9A-Fa-f]{2})*", digits) is None:
            raise reader.error("the string of a constant has hexadecimal digits", start)
        data = bytes.fromhex(digits)
    reader.expect(">")
    reader.expect(":")
    value = reader.type(ssa[1:])
    shape = value.shape or ()
    sizes = [size for size in shape if isinstance(size, int)]
    dtype = numpy_dtype(value.dtype)
    if value.is_scalar or len(sizes) < len(shape) or len(data) % dtype.itemsize:
        raise reader.error(f"{len(data)} bytes do not make {value.type_text}", start)
    array = np.frombuffer(data, dtype)
    if len(data) == dtype.itemsize:
        array = array.reshape((1,) * len(shape))
    elif array.size != math.prod(sizes):
        raise reader.error(f"{array.size} elements do not make {value.type_text}", start)
    else:
        array = array.reshape(sizes)
    value.constant = array
    return value


def read_constant(reader: TypeReader, ssa: str) -> Value:
    """A constant; its type stands behind it, and decides how its numbers are read."""
    start = reader.skip()
    if reader.peek("dense_resource") or reader.peek('dense<"'):
        return _read_bytes(reader, ssa, start)
    dense = reader.accept("dense")
    if dense:
        reader.expect("<")
    begin = reader.position
    _skip_numbers(reader)
    end = reader.position
    if dense:
        reader.expect(">")
    if reader.accept(":"):
        value = reader.type(ssa[1:])
    else:
        if reader.text[begin:end].strip() not in {"true", "false"}:
            raise reader.error(f"expected ':' and a type, found {reader.shown()}")
        value = Value(ssa[1:], "i1", kind="scalar")
    if (value.shape is None or not all(map(is_known, value.shape))) or dense == value.is_scalar:
        form = "dense<…> has a tensor type with known sizes; without it, a scalar type"
        raise reader.error(f"{form}, not {value.type_text}", start)
    after, reader.position = reader.position, begin
    nested = _nested(reader, value.dtype, start)
    if reader.skip() != end and reader.position < end:
        raise reader.error(f"expected a number, found {reader.shown()}")
    reader.position = after
    with np.errstate(over="ignore"):  # beyond the type: infinite, as MLIR reads it
        array = np.asarray(nested, numpy_dtype(value.dtype))
    shape = value.shape or ()
    if dense and array.size == 1 and array.ndim == 0:
        value.constant = array.reshape((1,) * len(shape))
    elif array.shape != shape:
        raise reader.error(
            f"{array.size} elements of shape {array.shape} do not make {value.type_text}", start
        )
    else:
        value.constant = array
    return value


def _skip_numbers(reader: TypeReader) -> None:
    while reader.match(_SCALAR) is not None or any(map(reader.accept, ("[", "]", ","))):
        pass


def _nested(reader: TypeReader, dtype: str, start: int) -> Any:
    if not reader.accept("["):
        return _number(reader, dtype, start)
    rows: list[Any] = []
    while not reader.accept("]"):
        if rows:
            reader.expect(",")
        rows.append(_nested(reader, dtype, start))
    if len({np.shape(row) for row in rows}) > 1:
        raise reader.error("the elements of a constant are not nested evenly", start)
    return rows


def _number(reader: TypeReader, dtype: str, start: int) -> bool | int | float:
    shown = reader.take(_SCALAR, "a number")
    if (shown in {"true", "false"}) and dtype == "i1":
        return shown == "true"
    if shown.startswith("0x") and dtype in FLOATS and len(shown) <= 2 + _DIGITS_OF[dtype]:
        return _from_bits(int(shown, 16), dtype)
    if dtype in FLOATS and "." in shown:
        return float(shown)
    if dtype in FLOATS or not re.fullmatch(r"-?[0-9]+|0x[0-9A-Fa-f]+", shown):
        raise reader.error(f"{shown} is no {dtype}", start)
    base = 16 if shown.startswith("0x") else 10
    digits = int(shown, base) if len(shown) <= _MOST_DIGITS else 1 << 64
    bits = 64 if dtype == "index" else int(dtype[1:])
    if not -(1 << (bits - 1)) <= digits < 1 << bits:
        raise reader.error(f"{shown[:_MOST_DIGITS]} does not fit {dtype}", start)
    if dtype == "i1":
        return bool(digits)
    return digits - (1 << bits) if digits >= 1 << (bits - 1) else digits


def _from_bits(bits: int, dtype: str) -> float:
    if dtype == "bf16":
        bits, dtype = bits << 16, "f32"
    size = {"f16": 2, "f32": 4, "f64": 8}[dtype]
    return float(np.frombuffer(bits.to_bytes(size, "little"), _WIDTHS[dtype])[0])
