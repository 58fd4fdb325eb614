"""Conditions and sub-patterns that the fusions of this directory share."""

from __future__ import annotations

from collections.abc import Mapping
from math import isfinite
from typing import Any

from gehost import DataType, EsTensor, MatchResult, PassOption, Value, es, shapes

FUNCTIONS = PassOption(
    "functions", bool, default=True, help="write a function where the opset has no such operator"
)
"""Off for runtimes that read no functions of the model: ``--set PASS.functions=false``."""
TOLERANCES = {
    DataType.DOUBLE: 1e-14,
    DataType.FLOAT: 1e-6,
    DataType.FLOAT16: 1e-3,
    DataType.BFLOAT16: 8e-3,
}
"""How far a constant may be off, relatively: the rounding of its dtype; for float32 seven
digits, as people write them.
"""


def square_of(x: EsTensor) -> EsTensor:
    """x², as Pow or as Mul."""
    return es.Alternatives(es.Pow(x, 2.0), es.Mul(x, x))


def quotient_of(x: EsTensor, root: EsTensor) -> EsTensor:
    """``x / root``, as Div, or as Mul with Reciprocal or 1/root."""
    return es.Alternatives(
        es.Div(x, root),
        es.Commutative(es.Mul(x, es.Reciprocal(root))),
        es.Commutative(es.Mul(x, es.Div(1.0, root))),
    )


def mean_of_last_axis(x: EsTensor) -> EsTensor:
    """``ReduceMean`` over the last axis that keeps it.

    The opset may have the axes as attribute or as input.
    """
    return es.constrain(es.ReduceMean(x), axes=[-1], keepdims=1)


def number(constant: Value, x: Value) -> float | None:
    """The one number that a constant holds.

    Returns None when it holds several, or has a higher rank than ``x`` and so widens it.
    """
    array = constant.array
    if (
        array is None
        or array.size != 1
        or (array.ndim > 0 and (x.rank is None or array.ndim > x.rank))
    ):
        return None
    return float(array.reshape(-1)[0])


def is_near(constant: Value, expected: float, x: Value) -> bool:
    """Whether a constant is ``expected`` to the precision of its dtype."""
    value = number(constant, x)
    tolerance = TOLERANCES.get(constant.dtype or DataType.UNDEFINED)
    return (
        value is not None
        and tolerance is not None
        and abs(value - expected) <= tolerance * expected
    )


def function_problem(op: str, options: Mapping[str, Any], *, is_standard: bool) -> str:
    """Whether a function would take the place of an operator, and none may."""
    return "" if is_standard or options["functions"] else f"functions: {op} would be one"


def dtype_problem(x: Value) -> str:
    """Only floating point.

    Elsewhere division and roots mean something else, and the fused operators do not exist.
    """
    if x.dtype is None or not x.dtype.is_float:
        return (
            f'dtype: "{x.name}" is {x.dtype.name.lower() if x.dtype else "unknown"}, wanted '
            "floating point"
        )
    return ""


def widening_problem(match: MatchResult, x: Value) -> str:
    """A literal must not widen ``x``.

    It matches any tensor that holds its number throughout; one of several elements or more axes
    would widen ``x``.
    """
    for node in match.GetMatchedNodes():
        if node.op == "ReduceMean":
            continue  # its constant is the list of axes
        for value in node.inputs:
            if (
                value is not None
                and value.is_constant
                and value not in match.inputs
                and number(value, x) is None
            ):
                return f'scalar: constant "{value.name}" {_text(value.shape)} may widen "{x.name}"'
    return ""


def epsilon_problem(epsilon: Value, x: Value) -> str:
    """Epsilon must be one positive number: it becomes an attribute."""
    value = number(epsilon, x)
    if value is None:
        return f'epsilon: "{epsilon.name}" {_text(epsilon.shape)} is not one number'
    return "" if isfinite(value) and value > 0 else f"epsilon: {value} is not positive"


def vector_problem(what: str, vector: Value, x: Value) -> str:
    """A scale or bias must be [D].

    D is proven to be the last dimension of ``x``: a longer one would widen the result. ONNX
    Runtime's kernels refuse D = 0, and before 1.24.1 D = 1.
    """
    result, expected = vector.shape, x.shape
    if (
        result is not None
        and expected
        and len(result) == 1
        and shapes.same_dim(result[0], expected[-1])
    ):
        size = expected[-1]
        if isinstance(size, int) and size > 1:
            return ""
        return (
            f'{what}: the last axis of "{x.name}" {_text(expected)} is not known '
            "to be longer than 1"
        )
    return (
        f'{what}: "{vector.name}" {_text(result)} is not known to be as long as the last axis '
        f'of "{x.name}" {_text(expected)}'
    )


def _text(shape: tuple[int | str | None, ...] | None) -> str:
    return (
        "of unknown rank"
        if shape is None
        else f"[{', '.join('?' if dim is None else str(dim) for dim in shape)}]"
    )
