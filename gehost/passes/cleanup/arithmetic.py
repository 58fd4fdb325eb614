"""Kernels that compute where all runtimes agree: exact integers, correctly rounded floats.

Each declines cases in which runtimes may differ: integer overflow, integer division by zero, NaN,
casts that do not fit, float minima of signed zeros, float sums. Half precision is only cast.
Source: the operators' definitions in ONNX, as in ``movement``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, TypeAlias

import numpy as np

from gehost.ir.constants import Array
from gehost.ir.types import DataType
from gehost.passes.cleanup.call import Call, DeclinedError, whole_numbers
from gehost.passes.cleanup.movement import Kernel

_Binary: TypeAlias = Callable[[Any, Any], Any]

_FLOATS = (np.dtype(np.float32), np.dtype(np.float64))
_SIGNED = (np.dtype(np.int32), np.dtype(np.int64))
_INTEGERS = frozenset(np.dtype(f"{kind}{size}") for kind in "iu" for size in (1, 2, 4, 8))
_BOOL, _HALF, _FLOAT, _DOUBLE = (
    np.dtype(name) for name in ("bool", "float16", "float32", "float64")
)


def _binary(call: Call, dtypes: tuple[np.dtype[Any], ...]) -> tuple[Array, Array]:
    """Return two operands of one of these types.

    Checks first that there is room for a result of that type.
    """
    left, right = call.same_type()
    if left.dtype not in dtypes:
        raise DeclinedError
    call.claim(np.broadcast_shapes(left.shape, right.shape), left)
    return left, right


def _arithmetic(operation: _Binary) -> Kernel:
    def kernel(call: Call) -> list[Array]:
        left, right = _binary(call, _FLOATS + _SIGNED)
        if left.dtype.kind == "i":
            _decline_overflow(operation(left.astype(_DOUBLE), right.astype(_DOUBLE)), left.dtype)
        return [_decline_nan(operation(left, right))]

    return kernel


def _decline_overflow(estimate: Array, dtype: np.dtype[Any]) -> None:
    """Decline possible overflow; half the range allows for rounding in the estimate."""
    if np.max(np.abs(estimate), initial=0) >= 2.0 ** (dtype.itemsize * 8 - 2):
        raise DeclinedError


def _decline_nan(result: Any) -> Array:
    """Return the result as an array; decline NaN, which runtimes compute differently."""
    array = np.asarray(result)
    if array.dtype.kind == "f" and np.isnan(array).any():
        raise DeclinedError
    return array


def _div(call: Call) -> list[Array]:
    left, right = _binary(call, _FLOATS + _SIGNED)
    if left.dtype.kind == "f":
        return [_decline_nan(left / right)]
    if not right.all():
        raise DeclinedError
    _decline_overflow(left.astype(_DOUBLE), left.dtype)
    quotient = left // right
    # ONNX rounds toward zero, numpy down.
    return [np.asarray(quotient + ((left % right != 0) & ((left < 0) != (right < 0))))]


def _mod(call: Call) -> list[Array]:
    left, right = call.same_type()
    truncates = bool(call.attribute("fmod", 0))
    if left.dtype not in _INTEGERS and not (truncates and left.dtype in _FLOATS):
        raise DeclinedError
    call.claim(np.broadcast_shapes(left.shape, right.shape), left)
    if not right.all():
        raise DeclinedError
    # without fmod the result has the divisor's sign, as in numpy
    return [_decline_nan(np.fmod(left, right) if truncates else np.mod(left, right))]


def _pow(call: Call) -> list[Array]:
    base, exponent = call.array(0), call.array(1)
    if base.dtype != _FLOAT or exponent.dtype.kind not in "fi" or not (exponent == 2).all():
        raise DeclinedError
    shape = np.broadcast_shapes(base.shape, exponent.shape)
    call.claim(shape, base)
    return [np.broadcast_to(_decline_nan(base * base), shape)]


def _extreme(operation: _Binary) -> Kernel:
    def kernel(call: Call) -> list[Array]:
        arrays = call.same_type()
        if arrays[0].dtype not in _SIGNED:
            raise DeclinedError
        call.claim(np.broadcast_shapes(*(array.shape for array in arrays)), arrays[0])
        result = arrays[0]
        for array in arrays[1:]:
            result = operation(result, array)
        return [np.asarray(result)]

    return kernel


def _compare(operation: _Binary, *dtypes: np.dtype[Any]) -> Kernel:
    """Return a kernel of a comparison, or of a logical operation."""

    def kernel(call: Call) -> list[Array]:
        left, right = _binary(call, dtypes)
        return [np.asarray(operation(left, right))]

    return kernel


def _unary(operation: Callable[[Any], Any], *dtypes: np.dtype[Any]) -> Kernel:
    """Return a kernel of a unary operation.

    IEEE 754 requires correct rounding of those of floats.
    """

    def kernel(call: Call) -> list[Array]:
        array = call.array(0)
        if array.dtype not in dtypes:
            raise DeclinedError
        if array.dtype.kind == "i":
            _decline_overflow(operation(array.astype(_DOUBLE)), array.dtype)
        return [_decline_nan(operation(array))]

    return kernel


def _range(call: Call) -> list[Array]:
    start, limit, delta = call.same_type()
    if start.dtype not in _SIGNED or not start.size == limit.size == delta.size == 1:
        raise DeclinedError
    first, end, step = (whole_numbers(array)[0] for array in (start, limit, delta))
    if step == 0:
        raise DeclinedError
    call.claim([max(-((first - end) // step), 0)], start)  # (end - first) / step, rounded up
    return [np.arange(first, end, step, dtype=start.dtype)]


def _reduce_prod(call: Call) -> list[Array]:
    array, axes = call.array(0), call.integers("axes", 1, since=18)
    if array.dtype not in _SIGNED or axes == [] or call.attribute("noop_with_empty_axes", 0):
        raise DeclinedError
    retained = bool(call.integer("keepdims", 1))
    over = None if axes is None else tuple(axes)
    # zeros count as 1, so that they do not hide an overflow before them
    _decline_overflow(np.prod(np.maximum(np.abs(array.astype(_DOUBLE)), 1), axis=over), array.dtype)
    return [np.asarray(np.prod(array, axis=over, keepdims=retained, dtype=array.dtype))]


def _cast(call: Call) -> list[Array]:
    try:
        target = DataType(call.integer("to"))
    except ValueError as error:
        raise DeclinedError from error
    return [convert(call, call.array(0), target)]


def convert(call: Call, array: Array, to: DataType) -> Array:
    """Cast where all runtimes agree."""
    source, target = array.dtype, to.numpy
    if source == target:
        return array
    call.claim(array.shape, np.empty((), target))
    if DataType.BFLOAT16.numpy == source and target == _FLOAT:
        return _decline_nan(array.astype(target))
    if not (_is_plain(source) and _is_plain(target)):
        raise DeclinedError
    if (
        source.kind == "f"
        and not np.isfinite(array).all()
        and (target.kind != "f" or np.isnan(array).any())
    ):
        raise DeclinedError
    if target == _BOOL:
        return np.asarray(array != 0)
    if target.kind in "iu":
        limits = np.iinfo(target.name)
        whole = np.trunc(array.astype(_DOUBLE)) if source.kind == "f" else array
        if whole.size and not limits.min <= int(whole.min()) <= int(whole.max()) <= limits.max:
            raise DeclinedError
        return whole.astype(target)
    result = array.astype(target)
    if target == _HALF and (
        source == _DOUBLE or (source.kind != "f" and not np.array_equal(result, array))
    ):
        raise DeclinedError  # runtimes may round twice, via float32
    if source.kind == "f" and not np.array_equal(np.isinf(result), np.isinf(array)):
        raise DeclinedError
    return result


def _is_plain(dtype: np.dtype[Any]) -> bool:
    return dtype in (_BOOL, _HALF, _FLOAT, _DOUBLE) or dtype in _INTEGERS


ARITHMETIC: Mapping[str, tuple[int, Kernel]] = MappingProxyType(
    {
        "Add": (7, _arithmetic(np.add)),
        "And": (7, _compare(np.logical_and, _BOOL)),
        "Cast": (6, _cast),
        "Ceil": (6, _unary(np.ceil, *_FLOATS)),
        "Div": (7, _div),
        "Equal": (7, _compare(np.equal, *_FLOATS, *_SIGNED, _BOOL)),
        "Floor": (6, _unary(np.floor, *_FLOATS)),
        "Greater": (7, _compare(np.greater, *_FLOATS, *_SIGNED)),
        "GreaterOrEqual": (12, _compare(np.greater_equal, *_FLOATS, *_SIGNED)),
        "Less": (7, _compare(np.less, *_FLOATS, *_SIGNED)),
        "LessOrEqual": (12, _compare(np.less_equal, *_FLOATS, *_SIGNED)),
        "Max": (8, _extreme(np.maximum)),
        "Min": (8, _extreme(np.minimum)),
        "Mod": (10, _mod),
        "Mul": (7, _arithmetic(np.multiply)),
        "Neg": (6, _unary(np.negative, *_FLOATS, *_SIGNED)),
        "Not": (1, _unary(np.logical_not, _BOOL)),
        "Or": (7, _compare(np.logical_or, _BOOL)),
        "Pow": (7, _pow),
        "Range": (11, _range),
        "ReduceProd": (1, _reduce_prod),
        "Sqrt": (6, _unary(np.sqrt, *_FLOATS)),
        "Sub": (7, _arithmetic(np.subtract)),
    }
)
"""Operator → first opset whose definition the kernel follows, and the kernel."""
