"""Summary of a run's results: failures, passes, refusals, changes since another run."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import exp, log

from gehost import printable
from gehost_zoo.work import Record

_MOST_LISTED = 20
_LEAST_SECONDS = 0.05
_LEAST_RATIO = 1.25
_DEVIATIONS = 5.0


@dataclass
class PassSummary:
    """One pass over a zoo."""

    name: str
    models: int = 0
    """On how many models it replaced something."""
    replaced: int = 0
    refused_models: int = 0
    refused: Counter[str] = field(default_factory=Counter[str])
    """Refusals by key."""


def summarize_passes(records: Iterable[Record]) -> list[PassSummary]:
    """Sum up the passes; the one that fires on most models first."""
    summaries: dict[str, PassSummary] = {}
    for record in records:
        for name, row in record.get("passes", {}).items():
            summary = summaries.setdefault(name, PassSummary(name))
            summary.models += bool(row["replaced"])
            summary.replaced += row["replaced"]
            summary.refused_models += bool(row["refused"])
            summary.refused.update(row["refused"])
    return sorted(summaries.values(), key=lambda row: (-row.models, -row.replaced, row.name))


def failures(records: Iterable[Record]) -> list[Record]:
    return [record for record in records if record["exit_code"]]


@dataclass(frozen=True)
class PassChange:
    """A pass that fires on other models, or on the same more or less often."""

    name: str
    models: tuple[int, int]
    replaced: tuple[int, int]


@dataclass(frozen=True)
class Slowdown:
    """A model that takes longer, beside all others, than noise explains."""

    model: str
    before: float
    after: float
    """Seconds of CPU time."""


@dataclass(frozen=True)
class Comparison:
    """A run beside an earlier one, over the models of both."""

    common: int
    added: list[str]
    removed: list[str]
    failed: list[Record]
    """Failures of models that did not fail, or were not there."""
    mended: list[str]
    passes: list[PassChange]
    outputs: list[str]
    """Models whose compiled file has other bytes."""
    slowdowns: list[Slowdown]
    speed: float | None
    """Median ratio of CPU times, after to before; None where too few can be compared."""
    limit: float | None
    """The ratio from which on a model counts as slower."""

    @classmethod
    def of(cls, before: Mapping[str, Record], after: Sequence[Record]) -> Comparison:
        """Compare the results of two runs."""
        pairs = [(before[r["model"]], r) for r in after if r["model"] in before]
        now = {record["model"] for record in after}
        slowdowns, speed, limit = _slowdowns(pairs)
        return cls(
            len(pairs),
            [record["model"] for record in after if record["model"] not in before],
            [name for name in before if name not in now],
            [
                r
                for r in failures(after)
                if not before.get(r["model"], {"exit_code": 0})["exit_code"]
            ],
            [new["model"] for old, new in pairs if old["exit_code"] and not new["exit_code"]],
            _pass_changes(pairs),
            [n["model"] for o, n in pairs if o.get("sha256", "") != n.get("sha256", "")],
            slowdowns,
            speed,
            limit,
        )


def _pass_changes(pairs: Sequence[tuple[Record, Record]]) -> list[PassChange]:
    """Passes that fire otherwise, over the models that were done both times."""
    successes = [(old, new) for old, new in pairs if not old["exit_code"] and not new["exit_code"]]
    before = {row.name: row for row in summarize_passes(old for old, _ in successes)}
    after = {row.name: row for row in summarize_passes(new for _, new in successes)}
    changes: list[PassChange] = []
    for name in dict.fromkeys([*before, *after]):
        old, new = before.get(name, PassSummary(name)), after.get(name, PassSummary(name))
        if (old.models, old.replaced) != (new.models, new.replaced):
            changes.append(PassChange(name, (old.models, new.models), (old.replaced, new.replaced)))
    return sorted(changes, key=lambda row: (row.replaced[1] - row.replaced[0], row.name))


def _slowdowns(
    pairs: Sequence[tuple[Record, Record]],
) -> tuple[list[Slowdown], float | None, float | None]:
    """Models whose CPU time grew more than noise explains.

    Most models of a zoo did not change, so the spread of all ratios is the noise: a model is
    slower where its ratio exceeds the median by five standard deviations (1.4826 times the median
    absolute deviation, of logarithms), by a quarter and by 50 ms. A process's first model pays
    for imports, and verification for other work, so only like is compared with like.
    """
    times = [
        (new["model"], old["measured"]["cpu"], new["measured"]["cpu"])
        for old, new in pairs
        if not old["exit_code"]
        and not new["exit_code"]
        and ("numbers" in old) == ("numbers" in new)
        and not old["measured"]["first"]
        and not new["measured"]["first"]
        and old["measured"]["cpu"] > 0
        and new["measured"]["cpu"] > 0
    ]
    if len(times) < 8:
        return [], None, None
    ratios = [log(after / before) for _, before, after in times]
    middle = statistics.median(ratios)
    spread = 1.4826 * statistics.median(abs(ratio - middle) for ratio in ratios)
    limit = middle + max(_DEVIATIONS * spread, log(_LEAST_RATIO))
    slower = [
        Slowdown(*row)
        for row, ratio in zip(times, ratios, strict=True)
        if ratio > limit and row[2] - row[1] * exp(middle) > _LEAST_SECONDS
    ]
    slower.sort(key=lambda row: row.before - row.after)
    return slower, exp(middle), exp(limit)


def summary_lines(
    records: Sequence[Record], invalid: Sequence[str], comparison: Comparison | None
) -> list[str]:
    """The end of a run in a few lines."""
    failed = failures(records)
    lines = [
        f"{_shown(record['status'], record['model'])}\n  {printable(record['replay'])}"
        for record in failed[:_MOST_LISTED]
    ]
    if len(failed) > _MOST_LISTED:
        lines.append(f"… and {len(failed) - _MOST_LISTED} more failures, in zoo.jsonl")
    if comparison is not None:
        lines += _comparison_lines(comparison)
    rewrites = sum(record.get("rewrites", 0) for record in records)
    firing = sum(bool(row.models) for row in summarize_passes(records))
    models = "1 model" if len(records) == 1 else f"{len(records)} models"
    text = f"{models}: {len(records) - len(failed)} done, {len(failed)} failed"
    if invalid:
        text += f", {len(invalid)} invalid line{'s' if len(invalid) > 1 else ''}"
    by = f"{firing} pass" if firing == 1 else f"{firing} passes"
    return [*lines, f"{text}; {rewrites} rewrites by {by}"]


def _comparison_lines(comparison: Comparison) -> list[str]:
    lines = [_shown("new failure", record["model"]) for record in comparison.failed[:_MOST_LISTED]]
    lines += [
        f"{row.name}: fires on {row.models[0]} → {row.models[1]} models,"
        f" {row.replaced[0]} → {row.replaced[1]} rewrites"
        for row in comparison.passes[:_MOST_LISTED]
    ]
    lines += [
        _shown(f"slower, {row.before:.2f} → {row.after:.2f} s", row.model)
        for row in comparison.slowdowns[:_MOST_LISTED]
    ]
    speed = "" if comparison.speed is None else f", CPU time × {comparison.speed:.2f} in the median"
    lines.append(
        f"beside the earlier run, {comparison.common} models in both:"
        f" {len(comparison.failed)} new failures, {len(comparison.mended)} mended,"
        f" {len(comparison.passes)} passes fire otherwise,"
        f" {len(comparison.outputs)} outputs differ, {len(comparison.slowdowns)} slower{speed}"
    )
    return lines


def _shown(what: str, name: str) -> str:
    return printable(f"{what}: {name}")
