"""One case, in one variant, through gehost: does it still give what is expected, and is what was inferred of it true?"""

from __future__ import annotations

import dataclasses
import functools
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

import onnx
import onnx.checker
import onnx.shape_inference

from gehost import Host, HostOptions
from gehost.verify.draws import unseeded
from tests.shipped import EXAMPLES
from tools.backend.cases import Case, Run, Values, load
from tools.backend.engines import ENGINES, bits_equal, differences, is_exact
from tools.backend.types import TypeRecorder, contradictions
from tools.backend.variants import VARIANTS

VENDORS = Path(__file__).parents[2] / "vendors"
_FOLDED_ULPS = 2
"""Of the largest number of an output: DFT has a zero as 2e-7 in float32, beside numbers of 54."""


@dataclass
class Outcome:
    """What was seen of a case; right if there are no ``findings``."""

    engine: str = ""
    """The first engine that gave the expected outputs before; "" where none did."""
    failures: dict[str, str] = field(default_factory=dict)
    """Why the engines that were tried before did not, in one line each."""
    findings: list[str] = field(default_factory=list)
    wrong: bool = False
    """Whether an output is not as expected afterwards, or there is none."""
    rewritten: int = 0
    cleaned: int = 0
    folded: int = 0
    exact: int = 0
    """Runs that had to give every bit as before, as no pass replaced anything."""
    typed: int = 0
    """Tensors whose inferred types were compared with their values."""


@functools.cache
def host(variant: str, *, vendors: bool = True) -> tuple[Host, TypeRecorder]:
    recorder = TypeRecorder()
    options = HostOptions(
        vendors=[VENDORS] if vendors else [],
        plugins=False,
        enable=EXAMPLES if vendors else (),
        inline_functions=variant == "inlined",
    )
    return Host(options, plugins=[("types", recorder)]), recorder


def check(name: str, variant: str, *, vendors: bool = True) -> Outcome | None:
    """Compile a case and compare; None where there is no such variant of it."""
    case, outcome = load(name), Outcome()
    for run in case.runs:
        result = VARIANTS[variant](case.model, run.feeds)
        if result is None:
            return None
        _check_run(
            dataclasses.replace(case, model=result[0]),
            Run(result[1], run.expected),
            host(variant, vendors=vendors),
            outcome,
        )
    return outcome


def _check_run(case: Case, run: Run, through: tuple[Host, TypeRecorder], outcome: Outcome) -> None:
    before = run_as_expected(case, run, outcome)
    compiler, recorder = through
    try:
        compiled, report = compiler.run(case.model)
        after = ENGINES[outcome.engine](compiled, run.feeds) if before is not None else {}
    except Exception as error:  # noqa: BLE001 - whatever it is, it is what was to be found
        outcome.findings.append(
            f"does not compile, or not run afterwards: {type(error).__name__}: {error}"
        )
        outcome.wrong = True
        return
    outcome.rewritten += sum(record.replaced for record in report.passes)
    outcome.cleaned += sum(report.cleanup.values()) - report.cleanup["grown"]
    outcome.folded += report.cleanup["folded"]
    outcome.findings += [*report.problems, *_invalid(case.model, compiled)]
    if before is None:
        return
    outputs = _only(after, run.expected)
    # folded floats are rounded once, from float64: runtimes differ from that in the last bits
    is_folded = bool(report.cleanup["folded"])
    differing = differences(
        run.expected, outputs, case.rtol, case.atol, ulps=_FOLDED_ULPS if is_folded else 0
    )
    outcome.findings += differing
    outcome.wrong |= bool(differing)
    is_same = not is_folded and not any(r.replaced for r in report.passes)
    if is_same and is_exact(outcome.engine, before):
        outcome.exact += 1
        if not bits_equal(_only(before, run.expected), outputs):
            outcome.findings.append("clean-up alone changed bits of an output")
    for types, values in (
        (recorder.inferred, {**run.feeds, **before}),
        (recorder.final, {**run.feeds, **after}),
    ):
        outcome.typed += len(types.keys() & values.keys())
        outcome.findings += contradictions(types, values)


def run_as_expected(case: Case, run: Run, outcome: Outcome) -> Values | None:
    """What the first engine computes that gives the expected outputs; None where none does, or only by chance."""
    if unseeded(case.model) is not None:
        outcome.failures["each"] = "draws other random numbers in each run"
        return None
    for name, engine in ENGINES.items():
        try:
            values = engine(case.model, run.feeds)
        except Exception as error:  # noqa: BLE001 - the engines raise whatever they like
            outcome.failures[name] = _first_line(error)
            continue
        if not differences(run.expected, _only(values, run.expected), case.rtol, case.atol):
            outcome.engine = name
            return values
        outcome.failures[name] = "other outputs than expected"
    outcome.engine = ""
    return None


def _first_line(error: Exception) -> str:
    """Without ONNX Runtime's own prefix, and its place in its source."""
    text = re.sub(r"^\[ONNXRuntimeError\] : \d+ : \w+ : (/\S+ .*?\) )?", "", str(error))
    return f"{type(error).__name__}: {text}".splitlines()[0]


def _only(values: Values, names: Iterable[str]) -> Values:
    return {name: values[name] for name in names}


def _invalid(before: onnx.ModelProto, after: onnx.ModelProto) -> list[str]:
    """What is wrong with the compiled model by itself: another interface, or what ``onnx.checker`` refuses only now."""
    results = [
        f"the {what} changed"
        for what in ("input", "output")
        if list(getattr(before.graph, what)) != list(getattr(after.graph, what))
    ]
    refused = _refused(after)
    return (
        [*results, f"refused by onnx.checker: {refused}"]
        if refused and not _refused(before)
        else results
    )


def _refused(model: onnx.ModelProto) -> str:
    try:
        onnx.checker.check_model(model, full_check=True)
    except (onnx.checker.ValidationError, onnx.shape_inference.InferenceError) as error:
        return " ".join(str(error).split())
    return ""
