"""Types of tensors that the passes recognise, and whether the target has kernels for them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gehost import DataType

if TYPE_CHECKING:
    from gehost import CustomPassContext, Value

RUNTIME = "onnxruntime"
HALVES = frozenset((DataType.FLOAT16, DataType.BFLOAT16))
FLOATS = HALVES | {DataType.FLOAT}
"""Types in which attention and norms are recognised."""


def no_kernel(
    context: CustomPassContext, operator: str, value: Value | None, inside: DataType | None = None
) -> str:
    """Return why the target has no kernel of an operator for its first input, or "".

    ``inside`` is the type in which the file computes: float32 of a half type asks for as much.
    """
    if value is None:
        return context.target.why_not(operator, None, RUNTIME)
    kernel = context.target.kernel(operator, value.dtype, RUNTIME)
    dtype = context.target.in_file(value.dtype, operator)
    if kernel is not None and inside not in (None, dtype) and kernel.inside != "float32":
        release = context.target.version and f" {context.target.version}"
        where = f"{kernel.provider}{release}"
        return f"precision: float32 inside, which {operator} on {where} may not have"
    empty = value.may_be_empty and not context.options.get("no_empty_inputs")
    return context.target.why_not(operator, value.dtype, RUNTIME, empty=empty)


def not_float(value: Value | None) -> str:
    """Return why a tensor is of no type that the passes recognise, or ""."""
    dtype = None if value is None else value.dtype
    if dtype in FLOATS:
        return ""
    return f"dtype: {dtype_name(dtype)}, wanted float32, float16 or bfloat16"


def dtype_name(dtype: DataType | None) -> str:
    """Return the name of a type."""
    return str(dtype) if dtype else "unknown"
