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
    known = {each.name: each for each in functions if _is_inlined(each)}
    if not known or len(functions) == 1:
        return list(functions)
    for function in functions:
        function.ops, function.outputs = _inlined(function, known, (function.name,))
    called = {_callee(op) for function in functions for op in function.ops}
    return [each for each in functions if each.name not in known or each.name in called]


def _is_inlined(function: Function) -> bool:
    return function.visibility == "private" and not function.is_declaration


def _callee(op: Op) -> str | None:
    if not isinstance(op, Opaque) or op.name not in {"func.call", "util.call"}:
        return None
    found = _CALLEE.search(str(op.attribute))
    return found[2] if found else None


def _inlined(
    function: Function, known: Mapping[str, Function], callers: tuple[str, ...]
) -> tuple[list[Op], list[Value]]:
    """The operations and outputs of a function, with those of its calls."""
    made: list[Op] = []
    replaced: dict[Value, Value] = {}
    for op in function.ops:
        op = with_values(op, replaced) if replaced else op
        callee = known.get(_callee(op) or "")
        if callee is None or callee.name in callers:
            made.append(op)
            continue
        ops, outputs = _inlined(callee, known, (*callers, callee.name))
        values = dict(zip(callee.arguments, op.operands, strict=True))
        for each in ops:
            copies = {value: _copy(value) for value in each.results}
            made.append(_with_results(with_values(each, values), copies))
            values.update(copies)
        outputs = [values.get(value, value) for value in outputs]
        replaced.update(zip(op.results, outputs, strict=True))
    return made, [replaced.get(value, value) for value in function.outputs]


def _copy(value: Value) -> Value:
    return Value(value.name, value.dtype, value.shape, kind=value.kind)


def _with_results(op: Op, copies: Mapping[Value, Value]) -> Op:
    return replace(op, results=tuple([copies[value] for value in op.results]))


def with_values(op: Op, values: Mapping[Value, Value]) -> Op:
    """An operation that reads other values, in its operands, sizes and payload."""

    def of(value: Value) -> Value:
        if value in values:
            return values[value]
        sizes = tuple([values.get(each, each) for each in value.sizes])
        fill = values.get(value.fill, value.fill) if isinstance(value.fill, Value) else value.fill
        if sizes == value.sizes and fill is value.fill:
            return value
        return Value(value.name, value.dtype, value.shape, kind=value.kind, fill=fill, sizes=sizes)

    if isinstance(op, Opaque):
        return replace(op, operands=tuple(map(of, op.operands)))

    def ref(each: Ref) -> Ref:
        return of(each) if isinstance(each, Value) else each

    def scalar(each: ScalarOp) -> ScalarOp:
        return each._replace(operands=tuple(map(ref, each.operands)))

    payload = op.payload
    if payload.captured:
        payload = Payload(tuple(map(scalar, payload.ops)), tuple(map(ref, payload.yields)))
    return replace(op, ins=tuple(map(of, op.ins)), outs=tuple(map(of, op.outs)), payload=payload)
