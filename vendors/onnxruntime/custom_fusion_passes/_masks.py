"""Masks of an attention as one addend: whether that keeps the numbers, and which it may hold."""

from __future__ import annotations

import math
from itertools import product
from typing import TYPE_CHECKING

import numpy as np

from gehost import DataType
from gehost_semantic import Add, Floor, Select

from ._numbers import FAR, Numbers, is_near, is_near_or_far, is_zero_or_far_below, numbers, rounded
from ._types import HALVES, dtype_name, not_float

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gehost import Value
    from gehost_semantic import AttentionCall, Operand

_LARGEST_SCALE = 1e6
_LEAST_FILL = -1e9
_ABSORBS = -1e30
"""What a finite fill becomes at most: ``AttentionCall.mask``."""


def problem_of_types(attention: AttentionCall) -> str:
    """Return why q, k and v are of no type that the passes take, or of several; "" if they are."""
    description = attention.description
    types = [description.q.value.dtype, description.k.value.dtype, attention.value_type]
    if len(set(types)) > 1:
        return f"dtype: q, k and v are {', '.join(map(dtype_name, types))}"
    if attention.dtype == DataType.FLOAT and attention.inner_types & HALVES:
        return "dtype: float32, cast to half and back inside"
    if DataType.DOUBLE in attention.inner_types:
        return "dtype: float64 inside, in which the kernel does not compute"
    return not_float(description.q.value)


def mask_problem(attention: AttentionCall) -> str:
    """Return why masks are not one addend with the same numbers, or "".

    Notes whether a row may be without positions.
    """
    if not attention.has_mask:
        attention.may_have_empty_rows = False
        return ""
    steps = attention.description.after
    addends = [step.operand for step in steps if isinstance(step, Add)]
    fills = [step.fill for step in steps if isinstance(step, Select)]
    if fills and max(fills) > _LEAST_FILL:
        return f"mask: a fill of {max(fills):g}, wanted at most {_LEAST_FILL:g}"
    scaled = [step for step in steps if isinstance(step, Add) and abs(step.factor) != 1]
    if (fills or scaled) and attention.scale > _LARGEST_SCALE:
        return f"scale: {attention.scale:g}, so that scores may be infinite"
    if not all(_is_plain(step.operand.value) for step in scaled):
        return f"mask: under a scale, not proven to hold 0, small numbers and at most {-FAR:g}"
    if len(addends) > 1 and not _agree(addends):
        return "mask: the sum of its addends differs in another order"
    content = held_by(attention)
    if attention.score_type != attention.dtype:
        dtype = attention.dtype
        if content is None or dtype is None or content.between:
            return f"mask: not proven to hold numbers of {dtype_name(dtype)} alone"
        if any(rounded(number, dtype) != number for number in content.known):
            return f"mask: it holds numbers that {dtype_name(dtype)} lacks"
    attention.may_have_empty_rows = content is None or content.may_be(-math.inf)
    return ""


def _is_plain(value: Value) -> bool:
    return is_zero_or_far_below(value) or is_near(value)


def _agree(addends: Sequence[Operand]) -> bool:
    """Whether float32 sums of scores and several addends agree in both orders.

    They do where all but one hold 0 and numbers that absorb scores and biases, or where all are
    small or at least 1e30 in magnitude. Of a number between, as -1e4 or -1e9, they do not (5e-4): a
    row of it throughout rounds the sums to its neighbours. A product of the model, as of relative
    positions, is as large as the scores, which are rounded as it is.
    """
    rest = [addend for addend in addends if not is_zero_or_far_below(addend.value)]
    others = [addend.value for addend in rest if not (_is_product(addend) or is_near(addend.value))]
    return len(rest) < 2 or (len(others) < 2 and all(map(is_near_or_far, others)))


def _is_product(operand: Operand) -> bool:
    node = operand.base.producer
    is_product = node is not None and node.op in ("MatMul", "Einsum") and len(node.inputs) == 2
    return is_product and abs(operand.factor) <= 1


def held_by(attention: AttentionCall) -> Numbers | None:
    """Return the numbers that the merged mask may hold; None if they are not known."""
    result: Numbers | None = Numbers((0.0,), between=False)
    for step in attention.description.after:
        if result is None:
            return None
        if isinstance(step, Add):
            added = None if step.factor != 1 else numbers(step.operand.value)
            result = None if added is None else _sum(result, added)
        elif isinstance(step, Select):
            low = step.fill if math.isinf(step.fill) else min(step.fill, _ABSORBS)
            result = Numbers.of({*result.known, low}, between=result.between)
        else:
            assert isinstance(step, Floor)
            result = Numbers.of(
                {max(number, step.least) for number in result.known}, between=result.between
            )
    return result


def _sum(left: Numbers, right: Numbers) -> Numbers | None:
    pairs = product(map(np.float32, left.known), map(np.float32, right.known))
    with np.errstate(over="ignore", invalid="ignore"):
        results = {float(a + b) for a, b in pairs}
    return Numbers.of(results, between=left.between or right.between)
