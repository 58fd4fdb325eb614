"""The sizes of a model: names, where computed ones come from, and what would unlock a fusion."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

from gehost.diagnose.at_stage import at_stage
from gehost.errors import one_line
from gehost.host.hookspecs import hookimpl
from gehost.host.host import Host
from gehost.host.report import Report
from gehost.ir.model import Model
from gehost.options import HostOptions
from gehost.sizes import Origin, Scope, fact_for, is_invented
from gehost.spelling import counted

_STAGE = "kAfterInferShape"
_NOT_EMPTY = "sizes >= 1"
_PAIRS = (
    re.compile(r"was (.+?)(?: \(dimension .*?\))?, would be (.+?)(?: \(dimension .*\))?$"),
    re.compile(r"(\S.*?) of \w+, (?:.+ of \w+, )?(.+?) of \w+: not proven equal"),
    re.compile(r": ([^:;]+) is not known to equal ([^:;]+)"),
)
"""Two sizes in a refusal that are not proven equal."""


def show_sizes(path: str, options: HostOptions) -> str:
    """Describe a model's sizes, and the refusals of its passes that sizes decide.

    Raises:
        UsageError: an option does not fit the model.
        ModelError: the model cannot be read.
    """
    lines, scope, unnamed = at_stage(path, options, _STAGE, _listed)
    refused: Counter[tuple[str, str]] = Counter()

    def match_refused(record: Any, reason: str) -> None:
        if "proven" in reason or "is not known to equal" in reason:
            refused[record.name, reason.partition(": ")[2]] += 1

    watch = SimpleNamespace(gehost_match_refused=hookimpl(match_refused))
    _, report = Host(options.rewrites_only(), plugins=[("sizes", watch)]).run(path)
    lines += ["", "not fused, as not proven" if refused else "no pass refused an unproven size"]
    for (name, reason), count in sorted(refused.items(), key=lambda row: (-row[1], row[0])):
        lines.append(f"  {count} × {name}: {reason}")
        match = next(filter(None, (pair.search(reason) for pair in _PAIRS)), None)
        fact = match and fact_for(scope, *match.groups())
        lines += [f'      unlocked by --assume "{fact}"'] if fact else []
    lines += _if_not_empty(path, options, unnamed, _rewrites(report))
    return "\n".join(map(_one_line, [f"{path}: {lines[0]}", *lines[1:]]))


def _rewrites(report: Report) -> Counter[str]:
    counts: Counter[str] = Counter()
    for record in report.passes:
        counts[record.name] += record.replaced
    return counts


def _if_not_empty(
    path: str, options: HostOptions, unnamed: int, rewrites: Counter[str]
) -> list[str]:
    """Return a line about what the fact that no size is 0 would change, if anything."""
    if _NOT_EMPTY in options.assume:
        return []
    assumed = replace(options, assume=[*options.assume, _NOT_EMPTY])
    _, _, rest = at_stage(path, assumed, _STAGE, _listed)
    _, report = Host(assumed.rewrites_only()).run(path)
    more = _rewrites(report) - rewrites
    changes = [f"{rest} unnamed"] if rest < unnamed else []
    changes += [f"{count} more × {name}" for name, count in sorted(more.items())]
    return [f'with --assume "{_NOT_EMPTY}": {", ".join(changes)}'] if changes else []


def _one_line(line: str) -> str:
    text = line.lstrip()
    return " " * (len(line) - len(text)) + one_line(text)


def _listed(model: Model) -> tuple[list[str], Scope, int]:
    """Return a section for names, unnamed and computed sizes, each with its first place.

    Also returns the model's scope and the number of unnamed sizes.
    """
    scope = model.sizes
    first: dict[str, Origin] = {}
    counts: Counter[str] = Counter()
    for graph in model.graphs:
        for value in graph.values.values():
            for axis, dim in enumerate(value.shape or ()):
                if isinstance(dim, str):
                    node = value.producer
                    producer = "" if node is None else f'{node.op} "{node.label}"'
                    first.setdefault(
                        dim, Origin(value.name, axis, producer, "" if producer else "an input")
                    )
                    counts[dim] += 1
    symbols = scope.symbols()
    sections = {
        "names": [dim for dim in first if dim in symbols and not is_invented(dim)],
        "unnamed": [dim for dim in first if dim in symbols and is_invented(dim)],
        "computed": [dim for dim in first if dim not in symbols],
    }
    head = ", ".join(f"{len(dims)} {what}" for what, dims in sections.items())
    lines = [f"sizes: {head}"]
    for what, dims in sections.items():
        lines += ["", what] if dims else []
        width = min(max(map(len, dims), default=0), 32)
        for dim in dims:
            origin = first[dim]
            lines.append(f"  {dim:<{width}}  {origin}; {counted(counts[dim], 'axis', 'axes')}")
        if what == "names":
            lines += [f"  {name} = {size}" for name, size in symbols.items() if str(size) != name]
    return lines, scope, len(sections["unnamed"])
