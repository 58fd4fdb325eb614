"""Chains of Add become one Sum.

``a, b → Add;  c → Add;  d → Add   ==>   a, b, c, d → Sum``
"""

from __future__ import annotations

from functools import reduce

from gehost import CustomPassStage
from gehost_register_pass import RegisterPass, native, op


@native
def is_computed_by_sum(dtype: str) -> bool:
    """Whether Sum exists for a dtype.

    ONNX has it for all floating point, ONNX Runtime for these; of integers ONNX has none.
    """
    return dtype in {"float32", "float64"}


@RegisterPass(stage=CustomPassStage.kAfterOriginGraphOptimize, min_opset=8, shape_proven=True)
def add_to_sum():
    """Fuse three or two Adds in a row, the longest chain first.

    Runs last: an Add of a bias belongs to the operator before it, if a fusion takes both.
    Shapes: any that broadcast, as Sum broadcasts too (from opset 8 on). ``shape_proven``: the
    shape to which several tensors broadcast is the one to which they do so one after another.
    Keeps: dtype, shape, and the order in which the operands are added.
    Refuses: ``condition``: another dtype than float32 and float64; ``unknown``: no known dtype.
        No match: an inner sum that others read.
    Source: ONNX Sum-13.
    """

    def longest():
        def pattern(a, b, c, d):
            is_computed_by_sum(a.Attr("dtype")).Holds()
            return _chain(a, b, c, d)

        def replace(a, b, c, d):
            return op.Sum(a, b, c, d)

        return pattern, replace

    def shortest():
        def pattern(a, b, c):
            is_computed_by_sum(a.Attr("dtype")).Holds()
            return _chain(a, b, c)

        def replace(a, b, c):
            return op.Sum(a, b, c)

        return pattern, replace

    return [longest(), shortest()]


def _chain(*tensors):
    """The sum so far may be either operand: which one does not change a sum of two."""
    return reduce(lambda total, tensor: op.Add(total, tensor).Commutative(), tensors)
