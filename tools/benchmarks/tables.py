"""The measurements as tables: cost a node, cost a rewrite, the ratio to the peer, and the goal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich.table import Table

from tools.benchmarks.commands import PEERS, CorpusModel, goal_of
from tools.benchmarks.comparison import Graphs, Row, Side
from tools.benchmarks.figures import (
    EQUAL,
    GROWTH_BOUND,
    GROWTH_FROM,
    GROWTH_TO,
    OPTIMIZERS,
    STYLED,
    STYLES,
)
from tools.benchmarks.processes import Outcome
from tools.benchmarks.style_models import Agreement


def figures_table(rows: Sequence[Row]) -> Table:
    """Gehost beside its peers on generated graphs."""
    table = Table(title="CPU time, medians; memory is that above what the process held before")
    for heading in (
        "figure",
        "nodes",
        "unit",
        "gehost",
        "a rewrite",
        "peer",
        "its cost",
        "a rewrite",
        "ratio",
        "goal",
        "",
    ):
        table.add_column(
            heading,
            justify="left" if heading in ("figure", "peer", "goal") else "right",
            no_wrap=heading != "peer",
        )
    for row in rows:
        own, other = row.own, row.other
        table.add_row(
            row.title, f"{row.size:,}", row.unit, _cost(own), _number(own.rewrite), row.peer, _cost(other), _number(other.rewrite),
            _ratio(row), row.goal, _verdict(row.met),
        )  # fmt: skip
    return table


def styles_table(rows: Sequence[Row]) -> Table:
    """What a rewrite costs in each style."""
    table = Table(
        "rule",
        "nodes",
        "GE class",
        title="five rules in three styles: µs CPU a rewrite, and that of GE's class in it",
    )
    for style in STYLES[1:]:
        table.add_column(f"{style}, goal {EQUAL}")
    results = {(row.title, row.size): row for row in rows}
    for rule in STYLED:
        for size in dict.fromkeys(row.size for row in rows):
            ge, *others = (results.get((f"{rule}, {style}", size)) for style in STYLES)
            table.add_row(rule, f"{size:,}", _rewrite(ge), *map(_rewrite, others))
    return table


def _rewrite(row: Row | None) -> str:
    if row is None or row.own.problem:
        return "" if row is None else row.own.problem
    return f"{_number(row.own.rewrite)}{f' ({_ratio(row)})' if row.other.cost else ''}"


def agreement_table(compared: Mapping[str, Mapping[str, Agreement]]) -> Table:
    """How often each rule fired, and whether all styles did the same."""
    title = f"five rules in three styles on {len(compared)} models: rewrites of matches; counts and bytes are compared"
    table = Table("model", *STYLED, title=title)
    for name, rules in compared.items():
        if any(item.matched or not item.equal for item in rules.values()):
            table.add_row(name, *[_agreed(rules[rule]) for rule in STYLED])
    silent = sum(not any(item.matched for item in rules.values()) for rules in compared.values())
    table.add_row(f"{silent} others", *["" for _ in STYLED])
    totals = [[rules[rule] for rules in compared.values()] for rule in STYLED]
    table.add_row("all", *[_agreed(_sum(total)) for total in totals])
    return table


def _sum(results: Sequence[Agreement]) -> Agreement:
    equal = all(item.equal for item in results)
    return Agreement(
        sum(item.matched for item in results), sum(item.replaced for item in results), equal
    )


def _agreed(item: Agreement) -> str:
    counts = f"{item.replaced} of {item.matched}" if item.matched else ""
    return counts if item.equal else f"{counts} DIFFERENT"


def growth_table(rows: Sequence[Mapping[str, Any]]) -> Table:
    table = Table(
        "task",
        "what",
        "growth",
        "goal",
        "",
        title=f"cost a node at {GROWTH_TO:,} nodes against {GROWTH_FROM:,}",
    )
    for row in rows:
        table.add_row(
            row["task"],
            row["what"],
            f"{row['growth']:.2f} ×",
            f"≤ {GROWTH_BOUND} ×",
            _verdict(row["met"]),
        )
    return table


def optimizers_table(graphs: Graphs) -> Table:
    sizes = [size for kind, size in graphs if kind == "decoder"]
    table = Table(
        "tool",
        *(f"{size:,} nodes" for size in sizes),
        title="whole optimizers, in process: µs CPU a node",
    )
    for tool in ("gehost.compile", *OPTIMIZERS):
        cells: list[str] = []
        for size in sizes:
            graph = graphs["decoder", size]
            cached = graph.tasks.get(tool, Outcome())
            cells.append(
                cached.failure or _number(cached.seconds and cached.seconds / graph.nodes * 1e6)
            )
        if any(cells):
            table.add_row(tool, *cells)
    return table


def corpus_table(corpus: Mapping[str, CorpusModel]) -> Table:
    shown = [tool for tool in PEERS if any(tool in model.tools for model in corpus.values())]
    table = Table(
        "model",
        "nodes",
        "gehost",
        *shown,
        title="whole commands: CPU seconds, and gehost's part of the peer's; ! is above the goal",
    )
    for name, model in sorted(corpus.items(), key=lambda item: item[1].nodes):
        own: Outcome = model.tools["gehost"]
        cells = [_against(own, model.tools.get(tool), goal_of(model.nodes, tool)) for tool in shown]
        table.add_row(name, f"{model.nodes:,}", own.failure or f"{own.seconds:.2f}", *cells)
    return table


def _against(own: Outcome, other: Outcome | None, bound: float | None) -> str:
    if other is None or other.failure or own.failure:
        return "" if other is None else other.failure[:40]
    ratio = own.seconds / other.seconds
    return f"{other.seconds:.2f} ({ratio:.2f}){' !' if bound is not None and ratio > bound else ''}"


def external_table(external: Mapping[str, Outcome]) -> Table:
    table = Table(
        "tool",
        "CPU s",
        "wall s",
        "peak MiB",
        "goal",
        "",
        "",
        title="external weights, whole command",
    )
    for tool, result in external.items():
        own = tool.startswith("gehost")
        met = bool(
            not result.failure and not result.note and result.wall <= 2 and result.peak < 300
        )
        goal = ("< 300 MiB, ≤ 2 s", _verdict(met)) if own else ("", "")
        costs = (
            (result.failure, "", "")
            if result.failure
            else (f"{result.seconds:.2f}", f"{result.wall:.2f}", f"{result.peak:.0f}")
        )
        table.add_row(tool, *costs, *goal, result.note)
    return table


def _cost(side: Side) -> str:
    return side.problem if side.cost is None else _number(side.cost)


def _ratio(row: Row) -> str:
    for tool, side in (("gehost", row.own), ("the peer", row.other)):
        if side.problem and side.cost is not None:
            return f"none: {tool} did {side.problem}"
    if not row.ratio:
        return ""
    return (
        f"{row.ratio:.2f} ×"
        if row.ratio >= 1 or row.unit == "MiB"
        else f"{1 / row.ratio:.1f} × faster"
    )


def _verdict(met: bool | None) -> str:
    return "" if met is None else "met" if met else "not met"


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.3g}" if value < 100 else f"{value:,.0f}"
