"""The operators that are lowered, and the lowering of one node."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache

from gehost import Refused
from gehost_linalg.generic import DTYPES, Op
from gehost_linalg.lower import elementwise, index, movement, normalizations, reductions
from gehost_linalg.lower.nodes import Lowering, OnnxOp


@cache
def lowerings() -> Mapping[str, Lowering]:
    """The functions that lower operators, by operator."""
    results: dict[str, Lowering] = {}
    for family in (elementwise, movement, reductions, normalizations, index):
        results.update(family.LOWERINGS)
    return results


def lower(op: OnnxOp, function: Lowering | None = None) -> list[Op]:
    """The Generics that compute a node, by ``function`` instead of the operator's own.

    Raises:
        Refused: with the reason.
    """
    function = function or lowerings().get(op.op)
    if function is None:
        raise Refused("not-lowered", op.op)
    if op.attributes.get("broadcast"):  # operands of lower rank stand at the attribute "axis"
        raise Refused("not-lowered", f"{op.op} of opset {op.version} with broadcast")
    for value in (*op.inputs, *op.outputs):
        if value is not None and value.dtype and value.dtype not in DTYPES:
            raise Refused("dtype", f"{value.name} is {value.dtype}")
    function(op)
    return op.made
