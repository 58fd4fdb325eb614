"""Calls of private functions, replaced by their operations."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace

from gehost_linalg.generic import Op, Opaque, Payload, Ref, ScalarOp, Value
from gehost_linalg.mlir.function import Function

_CALLEE = re.compile(r'callee = @("?)([^">}]+)\1')


def inlined(functions: Sequence[Function]) -> list[Function]:
    """The functions without the private ones, which stand where they were called.

    A call of a public function, of a declaration or of a function that calls itself stays.
    """
    entries = {item.name: item for item in functions if _is_inlined(item)}
    if not entries or len(functions) == 1:
        return list(functions)
    for function in functions:
        function.ops, function.outputs = _inlined(function, entries, (function.name,))
    called = {_callee(op) for function in functions for op in function.ops}
    return [item for item in functions if item.name not in entries or item.name in called]


def _is_inlined(function: Function) -> bool:
    return function.visibility == "private" and not function.is_declaration


def _callee(op: Op) -> str | None:
    if not isinstance(op, Opaque) or op.name not in {"func.call", "util.call"}:
        return None
    match = _CALLEE.search(str(op.attribute))
    return match[2] if match else None


def _inlined(
    function: Function, entries: Mapping[str, Function], callers: tuple[str, ...]
) -> tuple[list[Op], list[Value]]:
    """The operations and outputs of a function, with those of its calls."""
    results: list[Op] = []
    replaced: dict[Value, Value] = {}
    for op in function.ops:
        op = with_values(op, replaced) if replaced else op
        callee = entries.get(_callee(op) or "")
        if callee is None or callee.name in callers:
            results.append(op)
            continue
        ops, outputs = _inlined(callee, entries, (*callers, callee.name))
        values = dict(zip(callee.arguments, op.operands, strict=True))
        for item in ops:
            copies = {value: _copy(value) for value in item.results}
            results.append(_with_results(with_values(item, values), copies))
            values.update(copies)
        outputs = [values.get(value, value) for value in outputs]
        replaced.update(zip(op.results, outputs, strict=True))
    return results, [replaced.get(value, value) for value in function.outputs]


def _copy(value: Value) -> Value:
    return Value(value.name, value.dtype, value.shape, kind=value.kind)


def _with_results(op: Op, copies: Mapping[Value, Value]) -> Op:
    return replace(op, results=tuple([copies[value] for value in op.results]))


def with_values(op: Op, values: Mapping[Value, Value]) -> Op:
    """An operation that reads other values, in its operands, sizes and payload."""

    def of(value: Value) -> Value:
        if value in values:
            return values[value]
        sizes = tuple([values.get(size, size) for size in value.sizes])
        fill = values.get(value.fill, value.fill) if isinstance(value.fill, Value) else value.fill
        if sizes == value.sizes and fill is value.fill:
            return value
        return Value(value.name, value.dtype, value.shape, kind=value.kind, fill=fill, sizes=sizes)

    if isinstance(op, Opaque):
        return replace(op, operands=tuple(map(of, op.operands)))

    def ref(size: Ref) -> Ref:
        return of(size) if isinstance(size, Value) else size

    def scalar(size: ScalarOp) -> ScalarOp:
        return size._replace(operands=tuple(map(ref, size.operands)))

    payload = op.payload
    if payload.captured:
        payload = Payload(tuple(map(scalar, payload.ops)), tuple(map(ref, payload.yields)))
    return replace(op, ins=tuple(map(of, op.ins)), outs=tuple(map(of, op.outs)), payload=payload)
