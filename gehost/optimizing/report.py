"""What was done to a model, as lines of at most 80 columns and as data."""

from __future__ import annotations

import os
import textwrap
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from gehost.errors import one_line
from gehost.host.report import Report
from gehost.optimizing.facts import Facts, bytes_of
from gehost.optimizing.search import Gain, GroupTrial
from gehost.optimizing.target import original_wanted
from gehost.spelling import counted

_WIDTH = 80
_MOST_REASONS = 4
_TIDYING = (
    "AddZeroPass",
    "FoldIntoConvPass",
    "FoldIntoMatMulPass",
    "OrtResidualSumPass",
    "SlicesToSplitPass",
)
"""Passes that fuse nothing; what they leave says little to a person who has a model."""
_DESCRIPTIONS = {
    "Attention": "softmax(q·kᵀ·scale + mask)·v, q, k, v packed",
    "MultiHeadAttention": "softmax(q·kᵀ·scale + mask)·v",
    "GroupQueryAttention": "causal attention, heads of k and v shared",
    "SkipLayerNormalization": "residual, then LayerNormalization",
    "SkipSimplifiedLayerNormalization": "residual, then RMS normalization",
    "LayerNormalization": "(x − mean) / σ · scale + bias",
    "SimplifiedLayerNormalization": "x / root mean square · scale",
    "RMSNormalization": "x / root mean square · scale",
    "BiasGelu": "x + bias, then Gelu",
    "Gelu": "x · Φ(x)",
    "FusedConv": "convolution, then an activation",
    "QuickGelu": "x · sigmoid(α·x)",
    "RotaryEmbedding": "rotation of positions in q and k",
    "Gemm": "a·b + c",
    "Sum": "a + b, apart from the norm behind it",
}
"""What an operator computes, for the table of fusions."""


@dataclass
class OptimizeReport:
    """The result of ``optimize``; ``lines`` is what the command prints."""

    model: str
    """Its path, "" for one in memory."""
    target: str
    title: str
    """Runtime and version."""
    threads: int
    before: Facts
    after: Facts
    sizes: str = ""
    """The inputs that were measured with."""
    notes: list[str] = field(default_factory=list[str])
    """About sizes, opset and functions."""
    fused: dict[str, tuple[int, str]] = field(default_factory=dict[str, tuple[int, str]])
    """New operators: how many, and what each is."""
    gain: Gain | None = None
    """Over the original; None if it was not measured."""
    unmeasured: str = ""
    """Why it was not."""
    numbers: str = ""
    """What was compared, and how far apart the numbers are."""
    verify: dict[str, Any] = field(default_factory=dict[str, Any])
    """The comparison of outputs, for the page."""
    kept_float32: dict[str, list[str]] = field(default_factory=dict[str, list[str]])
    """Nodes that compute in float32 in a file of float16, by reason."""
    unconverted: str = ""
    """Why the file is not in float16, where that was asked for."""
    trials: list[GroupTrial] = field(default_factory=list[GroupTrial])
    dropped: dict[str, str] = field(default_factory=dict[str, str])
    """Passes that failed or changed numbers, with the reason."""
    refused: dict[str, str] = field(default_factory=dict[str, str])
    """Passes that found candidates and took none, with the reason."""
    passes: dict[str, list[str]] = field(default_factory=dict[str, list[str]])
    """The passes that rewrote something, with the operators in the file that each made."""
    omitted: tuple[str, ...] = ()
    """What is not in the file for its size."""
    foreign: list[str] = field(default_factory=list[str])
    """Operators in a file for any runtime that not every runtime has."""
    libraries: tuple[str, ...] = ()
    """Names of the user's libraries without which the file does not load."""
    written: str = ""
    result: str = "optimized"
    """What was written: optimized, cleaned, or original."""
    python: str = ""
    """How to create the session, where a plain one is not the best."""
    switch: str = ""
    kernels: str = ""
    """How many nodes have a generated kernel."""
    next: str = ""
    compile: Report | None = None
    seconds: dict[str, float] = field(default_factory=dict[str, float])

    @property
    def pays(self) -> bool:
        """Whether the file is measurably faster than the original."""
        return self.gain is not None and self.gain.large.interval[0] > 1

    def headline(self) -> str:
        """Return the result in one line."""
        removed = f"{self.before.nodes} → {self.after.nodes} nodes"
        sizes = f"{bytes_of(self.before.size)} → {bytes_of(self.after.size)}"
        gain = "not measured" if self.gain is None else f"{self.gain.large.median:.2f} ×"
        if self.gain is not None and self.gain.is_vague:
            gain = f"not measured well ({self.gain.range()})"
        results = [f"{self.written or self.model or 'the model'}: {gain}", removed, sizes]
        return ", ".join([*results, *([self.unconverted] if self.unconverted else [])])

    def lines(self) -> list[str]:
        """Return the report as text."""
        name = one_line(os.path.basename(self.model)) or "the model"
        results = [f"{name}: {self.before.line()}"]
        where = f"for {self.target}: {self.title}, {counted(self.threads, 'thread')}"
        results.append(f"{where}; {self.sizes} (--measure)" if self.sizes else where)
        results += [f"  {note}" for note in self.notes]
        results += ["", *self._table_of_fusions(), "", *self._table_of_sizes()]
        if self.unmeasured:
            results.append(f"not measured: {self.unmeasured}")
        results.append(f"numbers: {self.numbers}")
        if self.gain is not None and not self.pays:
            between = self.gain.range()
            wrote = {"original": "the model without its notes"}.get(
                self.result, f"the {self.result} model"
            )
            if self.gain.is_vague:
                results.append(
                    f"not measured well: {between}; a longer --budget helps, and a machine that "
                    f"does nothing else; wrote {wrote}"
                )
            elif self.result == "optimized":
                results.append(f"as fast as the original here ({between})")
            else:
                results.append(f"nothing pays here ({between}); wrote {wrote}")
        if self.written:
            results.append(f"wrote {one_line(self.written)}: {self._loads()}")
        if self.passes:
            passes = [
                f"{name} ({', '.join(op.rpartition('::')[2] for op in ops)})" if ops else name
                for name, ops in self.passes.items()
            ]
            results.append(f"passes (--disable PASS): {', '.join(passes)}")
        if self.omitted:
            results.append(f"not in the file, for its size: {'; '.join(self.omitted)}")
        results += self._reasons()
        if self.next:
            results.append(f"next: {self.next}")
        lines = [part for line in results for part in _folded(line)]
        if self.python:
            lines += [*_folded(f"{self.switch}; it cannot travel in the file:"), ""]
            lines += [f"    {line}" for line in self.python.splitlines()]
        return lines

    def _loads(self) -> str:
        if self.foreign:
            return (
                f"not for every runtime: it still has {original_wanted(self.foreign, self.target)}"
            )
        if self.target == "any":
            return "ONNX's own operators alone"
        runtime = self.title.rpartition(" ")[0]
        if self.libraries:
            return f"a session of {runtime} with {', '.join(self.libraries)} registered runs it"
        return f"any plain session of {runtime} runs it"

    def _table_of_fusions(self) -> list[str]:
        rows = [(op.rpartition("::")[2], count, what) for op, (count, what) in self.fused.items()]
        removed = self.before.nodes - self.after.nodes
        rows.append(("removed", removed, "nodes in all, fused and superfluous"))
        width = max(len(name) for name, _, _ in rows)
        table = [f"  {'fused':{width}}  count   what it is"]
        table += [f"  {name:{width}}  {count:5}   {what}".rstrip() for name, count, what in rows]
        return [line[:_WIDTH] for line in table]

    def _table_of_sizes(self) -> list[str]:
        gain = self.gain
        results = [
            f"  {'':6} {'nodes':>7} {'size':>10}" + ("" if gain is None else f" {'latency':>9}")
        ]
        times = (0.0, 0.0) if gain is None else (gain.large.first, gain.large.second)
        rows = (("before", self.before), ("after", self.after))
        for (name, facts), seconds in zip(rows, times, strict=True):
            line = f"  {name:6} {facts.nodes:7} {bytes_of(facts.size):>10}"
            results.append(line if gain is None else f"{line} {duration(seconds):>9}")
        if gain is not None:
            low, high = gain.large.interval
            results[-1] += f"   {gain.large.median:.2f} × [{low:.2f}, {high:.2f}]"
            if gain.small is not None:
                results[-1] += f", small {gain.small.median:.2f} ×"
        return results

    def _reasons(self) -> list[str]:
        reasons = [f"{name}: {one_line(why)}" for name, why in self.dropped.items()]
        reasons += [
            f"{trial.name} ({trial.gain})"
            for trial in self.trials
            if not trial.is_on and trial.gain is not None
        ]
        reasons += [f"{name}: {why}" for name, why in self.refused.items()]
        results = [f"not used: {_cut(reason)}" for reason in reasons[:_MOST_REASONS]]
        if len(reasons) > _MOST_REASONS:
            results.append(f"not used: {len(reasons) - _MOST_REASONS} more (--json)")
        undecided = [trial.name for trial in self.trials if trial.verdict == "open"]
        if undecided:
            results.append(f"no time to measure alone: {', '.join(undecided)} (on; --budget)")
        return results

    def as_dict(self) -> dict[str, Any]:
        """Return the report as JSON data."""
        return {
            "model": self.model,
            "output": self.written,
            "loads": self._loads() if self.written else "",
            "foreign": self.foreign,
            "target": self.target,
            "runtime": self.title,
            "threads": self.threads,
            "result": self.result,
            "pays": self.pays,
            "sizes": self.sizes,
            "notes": self.notes,
            "unconverted": self.unconverted,
            "before": self.before.as_dict(),
            "after": self.after.as_dict(),
            "fused": {op: {"count": n, "what": what} for op, (n, what) in self.fused.items()},
            "gain": None if self.gain is None else _gain_data(self.gain),
            "measured_well": self.gain is not None and not self.gain.is_vague,
            "unmeasured": self.unmeasured,
            "numbers": self.numbers,
            "kept_float32": self.kept_float32,
            "trials": [trial.as_dict() for trial in self.trials],
            "passes": self.passes,
            "omitted": list(self.omitted),
            "dropped": self.dropped,
            "refused": self.refused,
            "kernels": self.kernels,
            "python": self.python,
            "next": self.next,
            "seconds": {name: round(value, 3) for name, value in self.seconds.items()},
        }


def _gain_data(gain: Gain) -> dict[str, Any]:
    results: dict[str, Any] = {}
    for name, item in (("large", gain.large), ("small", gain.small)):
        if item is not None:
            results[name] = {
                "gain": round(item.median, 4),
                "interval": [round(end, 4) for end in item.interval],
                "seconds": [item.first, item.second],
                "pairs": len(item.ratios),
            }
    return results


def fused(before: Facts, after: Facts) -> dict[str, tuple[int, str]]:
    """Return the operators that are more than before, with their number."""
    gains = {op: count - before.operators.get(op, 0) for op, count in after.operators.items()}
    return {
        op: (gain, _DESCRIPTIONS.get(op.rpartition("::")[2], ""))
        for op, gain in sorted(gains.items(), key=lambda item: -item[1])
        if gain > 0 and op.rpartition("::")[2] in _DESCRIPTIONS
    }


def refusals(report: Report | None, texts: Mapping[tuple[str, str], str]) -> Mapping[str, str]:
    """Return the passes that found candidates and rewrote none, with the most common reason.

    ``texts`` has the words of a reason, by pass and key.
    """
    results: dict[str, str] = {}
    for record in report.passes if report is not None else ():
        if not record.replaced and record.rejected and record.name not in _TIDYING:
            key, _ = record.rejected.most_common(1)[0]
            results[record.name] = one_line(texts.get((record.name, key)) or key)
    return results


def duration(seconds: float) -> str:
    if seconds >= 1:
        return f"{seconds:.2f} s"
    return f"{seconds * 1e3:.1f} ms" if seconds >= 1e-3 else f"{seconds * 1e6:.0f} µs"


def _cut(text: str) -> str:
    return text if len(text) <= 2 * _WIDTH else f"{text[: 2 * _WIDTH - 1]}…"


def _folded(line: str) -> list[str]:
    """Return a line in pieces that fit; names that are longer stay whole."""
    if len(line) <= _WIDTH:
        return [line]
    return textwrap.wrap(
        line, _WIDTH, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False
    )
