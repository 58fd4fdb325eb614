"""Options and conditions that the fusions of this directory share."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import onnx.version_converter

from gehost import DataType, PassOption, es

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from gehost import EsTensor, Value
    from gehost_semantic import Extent, NormCall

FUNCTIONS = PassOption(
    "functions", bool, default=True, help="write a function where the opset has no such operator"
)
"""Off for runtimes that read no functions of the model: ``--set PASS.functions=false``."""
NO_EMPTY_INPUTS = PassOption(
    "no_empty_inputs",
    bool,
    False,  # noqa: FBT003 - the default
    "batch, lengths and images have sizes of at least 1",
    assumption=True,
)
SHARED = "shared: a tensor inside is read by others, too"


def function_problem(op: str, options: Mapping[str, Any], *, is_standard: bool) -> str:
    """Whether a function would take the place of an operator, and none may."""
    return "" if is_standard or options["functions"] else f"functions: {op} would be one"


def empty_problem(sizes: Mapping[str, Extent], options: Mapping[str, Any]) -> str:
    """Return which size may be 0, where the operator takes none such, or ""."""
    for name, size in sizes.items():
        if size == 0 or not (options["no_empty_inputs"] or isinstance(size, int)):
            return f"empty: {name} {size} may be 0; --dim fixes it, or --assume no-empty-inputs"
    return ""


def also_at(opset: int, models: Iterable[onnx.ModelProto]) -> Iterator[onnx.ModelProto]:
    """Yield each model as it is and at a later opset, for ``gehost check-pass``."""
    for model in models:
        yield model
        yield onnx.version_converter.convert_version(model, opset)


def cast(x: EsTensor, source: DataType | None, to: DataType | None) -> EsTensor:
    """Return a tensor of one type in another."""
    return x if source == to or to is None else es.Cast(x, to=to)


def is_as_precise(dtype: DataType | None, other: DataType | None) -> bool:
    """Whether a type is another one, or has more digits."""
    if dtype is None or other is None:
        return False
    return dtype == other or dtype.numpy.itemsize > other.numpy.itemsize


def dtype_of(norm: NormCall) -> DataType | None:
    """Return the type of a normalization's scale, which an operator of ONNX has as a whole."""
    scale = norm.description.scale
    return None if scale is None else scale.dtype


def norm_problem(norm: NormCall) -> str:
    """Return why an operator of ONNX does not compute a normalization by parts, or "".

    ONNX Runtime's kernels refuse a last axis of size 0, and before 1.24.1 of size 1.
    """
    own, dtype = norm.description, dtype_of(norm)
    if own.scale is None:
        return "scale: no vector over the last axis is multiplied"
    if not is_as_precise(dtype, own.x.dtype) or (own.bias is not None and own.bias.dtype != dtype):
        return f"dtype: {_name(own.x)}, scale {_name(own.scale)}, bias {_name(own.bias)}"
    if norm.size is None or norm.size < 2:
        return f'scale: the last axis of "{own.x.name}" is not known to be longer than 1'
    return ""


def normalized(op: str, norm: NormCall, **attributes: Any) -> EsTensor:
    """Return a normalization by an operator of ONNX, between casts to and from its type."""
    own, dtype = norm.description, dtype_of(norm)
    bias = () if norm.bias is None else (norm.bias,)
    x = cast(norm.x, own.x.dtype, dtype)
    result = es.op(op)(x, norm.scale, *bias, axis=-1, epsilon=norm.epsilon, **attributes)
    return cast(result, dtype, own.result.dtype)


def _name(value: Value | None) -> str:
    return str(value.dtype) if value is not None and value.dtype is not None else "none"
