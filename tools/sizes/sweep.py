"""Numbered cases of every operator: what is inferred of each, and what it has."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

import onnx

from gehost.ir.schemas import operator_names, schema_at
from tools.sizes.cases import Case
from tools.sizes.draws import FAMILIES, FIRST_OPSET, draw
from tools.sizes.witnesses import (
    Shapes,
    actual_shapes,
    gehost_shapes,
    judge,
    onnx_shapes,
)

_OFTEN = 4
"""How much more often an operator is drawn that has a function in ``draws``."""
_WINDOWS = frozenset(
    ["AveragePool", "ConvTranspose", "LpPool", "MaxPool", "Range", "Resize", "Slice", "Upsample"]
)
"""Operators whose sizes have the most rules, drawn four times as often as those."""


NOT_DRAWN, FAILED = "not drawn", "gehost fails"


@dataclass
class Seen:
    """A case with everything that was seen of it; ``case`` is None where none was drawn."""

    number: int
    op: str
    opset: int
    case: Case | None = None
    inferred: Shapes | None = None
    """By gehost, without its doubts."""
    by_onnx: Shapes | None = None
    actual: dict[str, Shapes] | None = None
    refused: dict[str, str] | None = None
    verdict: str = NOT_DRAWN
    by_onnx_verdict: str = NOT_DRAWN


@cache
def targets() -> tuple[tuple[str, int, int], ...]:
    """Each operator that has a tensor output at some opset, with its first and last opset."""
    newest = onnx.defs.onnx_opset_version()
    results: list[tuple[str, int, int]] = []
    for op in sorted(operator_names()):
        versions = [v for v in range(FIRST_OPSET, newest + 1) if schema_at("", op, v) is not None]
        times = (_OFTEN if op in FAMILIES else 1) * (4 if op in _WINDOWS else 1)
        results += [(op, versions[0], versions[-1])] * times
    newest = max(s.since_version for s in onnx.defs.get_all_schemas() if s.domain == "ai.onnx.ml")
    for name in sorted(operator_names("ai.onnx.ml")):
        op = f"ai.onnx.ml::{name}"
        versions = [v for v in range(1, newest + 1) if schema_at("ai.onnx.ml", name, v) is not None]
        results.append((op, versions[0], versions[-1]))
    return tuple(results)


def drawn(number: int) -> tuple[str, int, Case | None]:
    """The operator, opset and case of a number."""
    rng = random.Random(number)
    op, first, last = targets()[number % len(targets())]
    opset = rng.randint(first, last)
    return op, opset, draw(op, opset, rng)


def look(number: int) -> Seen:
    """Draw a case, infer its sizes, and run it."""
    op, opset, case = drawn(number)
    visited = Seen(number, op, opset, case)
    if case is None:
        return visited
    model = case.model()
    try:
        visited.by_onnx = onnx_shapes(case, model)
    except onnx.shape_inference.InferenceError:
        visited.by_onnx = [None] * len(case.node.output)
    try:
        visited.inferred = gehost_shapes(case, model, {})
    except Exception as error:  # noqa: BLE001 - whatever it is, it is a defect of gehost
        visited.verdict, visited.refused = FAILED, {"gehost": repr(error)}
        return visited
    visited.actual, visited.refused = actual_shapes(case, model)
    visited.verdict = judge(case, visited.inferred, visited.actual)
    visited.by_onnx_verdict = judge(case, visited.by_onnx, visited.actual)
    return visited


def left_out(visited: Sequence[Seen]) -> dict[str, list[str]]:
    """Operators of whose sizes less is known than two witnesses say, by the reason."""
    ops = sorted({op for op, _, _ in targets()})
    results: dict[str, list[str]] = {}
    for op in ops:
        cases = [case for case in visited if case.op == op and case.case is not None]
        witnesses = {name for case in cases for name in case.actual or ()}
        reason = ""
        if not cases:
            reason = "no case is drawn: its inputs are no tensors"
        elif not witnesses:
            reason = "neither witness runs a case"
        elif witnesses == {"reference"}:
            reason = "the reference is the only witness: ONNX Runtime has no kernel"
        elif witnesses == {"onnxruntime"}:
            reason = "ONNX Runtime is the only witness"
        if reason:
            results.setdefault(reason, []).append(op)
    return results
