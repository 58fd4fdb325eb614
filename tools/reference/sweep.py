"""Cases of every operator and version, run by the reference evaluator and by ONNX Runtime."""

from __future__ import annotations

import random
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import onnx
import onnx.reference

from gehost.diagnose.check_pass.shapes import shape_fault
from gehost.ir.attributes import attribute_value
from gehost.ir.schemas import RANDOM, history, operator_names
from gehost.verify import OutputDifference, compare_outputs
from tools.sizes.cases import Case
from tools.sizes.draws import FIRST_OPSET, draw
from tools.sizes.witnesses import session

EQUAL, DIFFERS, FAILS = "equal", "other numbers", "fails"
NOT_DRAWN, NO_KERNEL, ALIKE = "not drawn", "not run by ONNX Runtime", "random"


@dataclass(frozen=True)
class Seen:
    """What the reference evaluator makes of a case beside ONNX Runtime."""

    op: str
    since: int
    verdict: str
    attributes: frozenset[str] = frozenset()
    """Those of the case that are numbers or texts: ``auto_pad=VALID``."""
    about: str = ""
    """The types of the case's inputs, and the difference."""


@cache
def targets() -> tuple[tuple[str, int, int], ...]:
    """Each version of each operator, with its first and last opset here."""
    newest = onnx.defs.onnx_opset_version()
    results: list[tuple[str, int, int]] = []
    for op in sorted(operator_names()):
        versions = history("", op)
        lasts = [schema.since_version - 1 for schema in versions[1:]] + [newest]
        for schema, last in zip(versions, lasts, strict=True):
            first = max(schema.since_version, FIRST_OPSET)
            if first <= last and not schema.deprecated:
                results.append((op, schema.since_version, last))
    return tuple(results)


def look(number: int) -> Seen:
    """Draw a case of a number and run it in both engines."""
    op, since, last = targets()[number % len(targets())]
    rng = random.Random(number)
    if op in RANDOM:
        return Seen(op, since, ALIKE)
    case = draw(op, rng.randint(max(since, FIRST_OPSET), last), rng)
    if case is None or _is_undefined(case):
        return Seen(op, since, NOT_DRAWN)
    verdict, about = _judge(case)
    return Seen(op, since, verdict, _attributes(case), f"{_types(case)}: {about}"[:300])


def _is_undefined(case: Case) -> bool:
    """Whether ONNX does not define the numbers.

    Of a training Dropout, of a flag of 2, and, often, of nothing.
    """
    if case.arrays and not isinstance(case.arrays[0], list) and np.size(case.arrays[0]) == 0:
        return True
    flags = ("keepdims", "ceil_mode", "largest", "select_last_index")
    arguments = {entry.name: entry.i for entry in case.node.attribute}
    return any(arguments.get(name, 0) not in (0, 1) for name in flags) or (
        case.op == "Dropout" and len(case.arrays) > 2
    )


def _judge(case: Case) -> tuple[str, str]:
    """Return the verdict, and what it is about."""
    model = case.model()
    shapes = {
        f"i{slot}": None if array is None or isinstance(array, list) else tuple(np.shape(array))
        for slot, array in enumerate(case.arrays)
    }
    if shape_fault([case.node], shapes):
        return NOT_DRAWN, ""
    names = [entry.name for entry in model.graph.output]
    try:
        expected = _named(names, session(model).run(None, case.feeds()))
    except Exception as error:  # noqa: BLE001 - the engines raise whatever they like
        return NO_KERNEL, str(error)
    try:
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            evaluator = onnx.reference.ReferenceEvaluator(model)
            actual = _named(names, evaluator.run(None, case.feeds()))
    except Exception as error:  # noqa: BLE001 - as above
        return FAILS, f"{type(error).__name__}: {error}"
    wrong = [
        output
        for output in compare_outputs(expected, actual)
        if not (output.equal or _is_rounding(output, expected))
    ]
    if not wrong:
        return EQUAL, ""
    first = wrong[0]
    return DIFFERS, f"{first.reason or f'{first.place} {first.b} for {first.a}'}"


def _named(names: list[str], values: list[Any]) -> Mapping[str, Any]:
    arrays = {
        name: np.asarray(value)
        for name, value in zip(names, values, strict=False)
        if value is not None and not isinstance(value, list | dict)
    }
    return {
        name: array.astype(object) if array.dtype.kind in "US" else array
        for name, array in arrays.items()
    }


def _attributes(case: Case) -> frozenset[str]:
    kinds = (onnx.AttributeProto.INT, onnx.AttributeProto.STRING)
    return frozenset(
        f"{entry.name}={attribute_value(entry)}"
        for entry in case.node.attribute
        if entry.type in kinds
    )


def _types(case: Case) -> str:
    arrays = [array for array in case.arrays if not isinstance(array, list)]
    return ", ".join(
        "none" if array is None else f"{np.asarray(array).dtype}{list(np.shape(array))}"
        for array in arrays
    )


def _is_rounding(result: OutputDifference, expected: Mapping[str, Any]) -> bool:
    """Whether a difference is small beside the largest number of its output."""
    array = expected.get(result.output)
    if result.reason or array is None or array.dtype.kind != "f":
        return False
    largest = np.max(np.abs(array[np.isfinite(array)]), initial=0.0)
    return bool(result.max_abs <= 1e-4 * largest)
