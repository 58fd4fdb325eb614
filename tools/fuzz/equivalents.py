"""The same numbers by other operators, to the bit: what stands for one operator, and detours that change nothing."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from gehost import es
from gehost.es.graph import EsTensor
from gehost.ir.graph import Node, Value
from gehost.ir.types import DataType


@dataclass(frozen=True)
class Call:
    """A matched node and what stands for its inputs."""

    node: Node
    operands: list[EsTensor]
    parameters: dict[str, Any]

    @property
    def kind(self) -> str:
        """Of the first output's element type."""
        return _kind(self.node.outputs[0])


def _kind(value: Value | None) -> str:
    """f, i, b, or nothing where it is not known.

    Nothing for float16 too: ONNX Runtime computes it in float32 on the CPU and, where such operators meet, leaves out
    the rounding between them, so that even a multiplication by 1 shows.
    """
    dtype = value.dtype if value is not None else None
    if dtype is None or dtype in (DataType.FLOAT16, DataType.STRING):
        return ""
    return (
        "b"
        if dtype == DataType.BOOL
        else "f"
        if "FLOAT" in dtype.name or dtype == DataType.DOUBLE
        else "i"
    )


def _identity(call: Call) -> EsTensor:
    return call.operands[0]


def _dropout(call: Call) -> EsTensor | None:
    return call.operands[0] if len(call.node.outputs) == 1 or call.node.outputs[1] is None else None


def _transpose(call: Call) -> EsTensor | None:
    order = call.parameters.get("perm")
    if order is None or not order:
        return None
    last = len(order) - 1
    return es.Transpose(
        es.Transpose(call.operands[0], perm=list(range(last, -1, -1))),
        perm=[last - axis for axis in order],
    )


def _concat(call: Call) -> EsTensor | None:
    joined = call.operands[0]
    for operand in call.operands[1:]:
        joined = es.Concat(joined, operand, axis=call.parameters["axis"])
    return joined if len(call.operands) > 2 else None


def _clip(call: Call) -> EsTensor | None:
    if len(call.operands) > 1 or not call.parameters:
        return None
    return es.Clip(es.Clip(call.operands[0], **call.parameters), **call.parameters)


def _reduced(call: Call) -> EsTensor | None:
    axes = call.parameters.get("axes")
    if axes is None or call.parameters.get("keepdims", 1) == 1:
        return None
    return es.Squeeze(es.op(call.node.op)(call.operands[0], axes=axes, keepdims=1), axes=axes)


def _nand(call: Call) -> EsTensor:
    a, b = call.operands
    return es.Not(es.Or(es.Not(a), es.Not(b)))


# Not the other way round with swapped branches: ONNX Runtime adds up the chosen elements, and a zero loses its sign.
SUBSTITUTES: dict[str, Callable[[Call], EsTensor | None]] = {
    "Identity": _identity,
    "Dropout": _dropout,
    "Add": lambda call: es.Add(*call.operands[::-1]) if call.kind else None,
    "Mul": lambda call: es.Mul(*call.operands[::-1]),
    "Sub": lambda call: es.Add(call.operands[0], es.Neg(call.operands[1])),
    "Neg": lambda call: call.operands[0] * -1 if call.kind else None,
    "Ceil": lambda call: es.Neg(es.Floor(es.Neg(call.operands[0]))),
    "Not": lambda call: es.Xor(call.operands[0], np.array(True)),
    "And": _nand,
    "Less": lambda call: es.Greater(*call.operands[::-1]),
    "Greater": lambda call: es.Less(*call.operands[::-1]),
    "Where": lambda call: es.Where(es.Not(es.Not(call.operands[0])), *call.operands[1:]),
    "Concat": _concat,
    "Transpose": _transpose,
    "Clip": _clip,
    **dict.fromkeys(("ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin"), _reduced),
}


# -- ways that lead nowhere -----------------------------------------------------------------------------------------


def same(tensor: EsTensor | None, value: Value | None, way: int) -> Any:
    """The same tensor by a way of several nodes; which ones there are depends on what is known of its type."""
    if tensor is None:
        return None
    ways = _ways(value)
    return ways[way % len(ways)](tensor)


def _ways(value: Value | None) -> list[Callable[[EsTensor], EsTensor]]:
    kind = _kind(value)
    results: list[Callable[[EsTensor], EsTensor]] = [es.Identity, lambda t: es.op("fz::Same")(t)]
    if value is not None and value.dtype is not None:
        results.append(lambda t: es.Cast(t, to=int(value.dtype or 0)))
    if kind == "f":
        results += [
            lambda t: t * 1.0,
            lambda t: t + -0.0,
            lambda t: es.Neg(-t),
            lambda t: es.op("fz::Scale")(t, factor=1),
            lambda t: 1 * t,
        ]
    elif kind == "i":
        results += [lambda t: t * 1, lambda t: t + 0, lambda t: t - 0]
    elif kind == "b":
        results += [
            lambda t: es.Not(es.Not(t)),
            lambda t: es.Or(t, t),
            lambda t: es.And(t, np.array(True)),
        ]
    if value is not None and value.rank:
        order = list(range(value.rank - 1, -1, -1))
        results.append(lambda t: es.Transpose(es.Transpose(t, perm=order), perm=order))
        if (
            kind != "i"
        ):  # ONNX Runtime infers a wrong size where a shape goes through both into a ConstantOfShape
            results.append(lambda t: es.Squeeze(es.Unsqueeze(t, axes=[-1]), axes=[-1]))
        results.append(lambda t: es.Concat(t, axis=0))
    return results
