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


def _compare(operation: _Binary) -> Kernel:
    def kernel(call: Call) -> list[Array]:
        left, right = _binary(call, _FLOATS + _SIGNED)
        return [np.asarray(operation(left, right))]

    return kernel


def _equal(call: Call) -> list[Array]:
    left, right = _binary(call, (*_FLOATS, *_SIGNED, _BOOL))
    return [np.asarray(left == right)]


def _logical(operation: _Binary) -> Kernel:
    def kernel(call: Call) -> list[Array]:
        left, right = _binary(call, (_BOOL,))
        return [np.asarray(operation(left, right))]

    return kernel


def _not(call: Call) -> list[Array]:
    array = call.array(0)
    if array.dtype != _BOOL:
        raise DeclinedError
    return [np.asarray(~array)]


def _neg(call: Call) -> list[Array]:
    array = call.array(0)
    if array.dtype not in _FLOATS + _SIGNED:
        raise DeclinedError
    if array.dtype.kind == "i":
        _decline_overflow(array.astype(_DOUBLE), array.dtype)
    return [_decline_nan(-array)]


def _unary_float(operation: Callable[[Any], Any]) -> Kernel:
    """Return a kernel of a unary float operation, correctly rounded.

    IEEE 754 requires that rounding for these operations.
    """

    def kernel(call: Call) -> list[Array]:
        array = call.array(0)
        if array.dtype not in _FLOATS:
            raise DeclinedError
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
    kept = bool(call.integer("keepdims", 1))
    over = None if axes is None else tuple(axes)
    # zeros count as 1, so that they do not hide an overflow before them
    _decline_overflow(np.prod(np.maximum(np.abs(array.astype(_DOUBLE)), 1), axis=over), array.dtype)
    return [np.asarray(np.prod(array, axis=over, keepdims=kept, dtype=array.dtype))]


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
        return _to_integer(array, target)
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


def _to_integer(array: Array, target: np.dtype[Any]) -> Array:
    limits = np.iinfo(target)
    whole = np.trunc(array.astype(_DOUBLE)) if array.dtype.kind == "f" else array
    if whole.size and not limits.min <= int(whole.min()) <= int(whole.max()) <= limits.max:
        raise DeclinedError
    return whole.astype(target)


ARITHMETIC: Mapping[str, tuple[int, Kernel]] = MappingProxyType(
    {
        "Add": (7, _arithmetic(np.add)),
        "And": (7, _logical(np.logical_and)),
        "Cast": (6, _cast),
        "Ceil": (6, _unary_float(np.ceil)),
        "Div": (7, _div),
        "Equal": (7, _equal),
        "Floor": (6, _unary_float(np.floor)),
        "Greater": (7, _compare(np.greater)),
        "GreaterOrEqual": (12, _compare(np.greater_equal)),
        "Less": (7, _compare(np.less)),
        "LessOrEqual": (12, _compare(np.less_equal)),
        "Max": (8, _extreme(np.maximum)),
        "Min": (8, _extreme(np.minimum)),
        "Mul": (7, _arithmetic(np.multiply)),
        "Neg": (6, _neg),
        "Not": (1, _not),
        "Or": (7, _logical(np.logical_or)),
        "Pow": (7, _pow),
        "Range": (11, _range),
        "ReduceProd": (1, _reduce_prod),
        "Sqrt": (6, _unary_float(np.sqrt)),
        "Sub": (7, _arithmetic(np.subtract)),
    }
)
"""Operator → first opset whose definition the kernel follows, and the kernel."""
