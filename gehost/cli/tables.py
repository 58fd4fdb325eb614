"""Tables of a compile's report, of passes and of their options."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Mapping, Sequence
from functools import partial

from tabulate import SEPARATING_LINE, tabulate

from gehost.cli.output import is_terminal, print_line, print_text
from gehost.errors import one_line
from gehost.host.registry import PassSpec
from gehost.host.report import Report
from gehost.settings import PassOption, assumed_name
from gehost.spelling import counted

_NARROWEST = 20
"""Smallest width in characters of a column that is wrapped to fit the terminal."""


def print_report(report: Report, output: str) -> None:
    """Print op counts before and after, then a row for each pass."""
    print_text(f"Nodes\n{_op_table(report)}\n\nPasses\n{_pass_table(report)}\n\n")
    if off := sum(record.status == "disabled" for record in report.passes):
        print_line(f"off: {counted(off, 'pass', 'passes')}; `gehost passes` lists them")
    for problem in report.problems:
        print_line(f"problem: {one_line(problem)}")
    if report.needs:
        target = str(report.options.get("target") or "")
        print_line(f"needs {', '.join(report.needs)}{target and f', target {target}'}")
    if report.verify:
        print_line(f"verify: {one_line(str(report.verify['summary']))}")
    if report.dumps:
        opened = [path for path in report.dumps if not path.endswith(".txt")]  # *.txt: readable
        files = counted(len(opened or report.dumps), "file")
        advice = "; open them in Netron" if opened else ""
        rest = len(report.dumps) - len(opened) if opened else 0
        also = f", {rest} readable" if rest else ""
        print_line(f"dumps: {one_line((opened or report.dumps)[0])} … ({files}{advice}{also})")
    seconds = sum(report.seconds.values())
    print_line(
        f"{one_line(output)}: {counted(report.nodes_before, 'node')} before, {report.nodes_after} "
        f"after, {seconds:.2f} s"
    )


def _op_table(report: Report) -> str:
    rows: list[Sequence[str]] = []
    before, after = report.op_types_before, report.op_types_after
    same = 0
    for op in sorted(
        {*before, *after}, key=lambda op: (-max(before.get(op, 0), after.get(op, 0)), op)
    ):
        if before.get(op, 0) == after.get(op, 0):
            same += before[op]
        else:
            rows.append((one_line(op), str(before.get(op, 0)), str(after.get(op, 0))))
    if same:
        rows.append(("unchanged operators", str(same), str(same)))
    rows.extend([SEPARATING_LINE, ("all", str(report.nodes_before), str(report.nodes_after))])
    return _table({"operator": "left", "before": "right", "after": "right"}, rows)


def _pass_table(report: Report) -> str:
    rows: list[Sequence[str]] = []
    for record in report.passes:
        if record.status == "disabled":
            continue
        refused = ", ".join(
            f"{reason}: {count}" for reason, count in sorted(record.rejected.items())
        )
        if record.status in ("failed", "not applicable"):
            refused = f"{record.status}: {record.message}" if record.message else record.status
        elif record.message:
            refused = f"{refused}; {record.message}" if refused else record.message
        cells = (str(record.matched), str(record.replaced), f"{record.seconds * 1000:.1f}")
        rows.append((one_line(record.name), one_line(record.vendor), *cells, one_line(refused)))
    cleaned = ", ".join(f"{what}: {count}" for what, count in report.cleanup.items() if count)
    cleaning = f"{report.seconds.get('cleanup', 0) * 1000:.1f}"
    rows.extend([SEPARATING_LINE, ("built-in clean-up", "", "", "", cleaning, one_line(cleaned))])
    numbers = dict.fromkeys(("matched", "replaced", "ms"), "right")
    return _table(
        {"pass": "left", "vendor": "left", **numbers, "refused": "left"}, rows, wrap_last=True
    )


def print_passes(specs: Sequence[PassSpec]) -> None:
    """Print the registered passes in running order."""
    rows: list[Sequence[str]] = []
    for spec in specs:
        opsets = (
            f"{spec.min_opset or ''}–{spec.max_opset or ''}"
            if spec.min_opset or spec.max_opset
            else ""
        )
        default = "on" if spec.default else "off"
        texts = (spec.name, spec.vendor, spec.kind, opsets, default, spec.origin)
        rows.append((spec.stage.name, *map(one_line, texts)))
    columns = ("stage", "pass", "vendor", "kind", "opsets", "default", "registered at")
    print_text(_table(dict.fromkeys(columns, "left"), rows))


def print_options(
    declared: Mapping[str, Sequence[PassOption]], of_any_name: Sequence[str] = ()
) -> None:
    """Print the options of passes and importers, one per line.

    Args:
        declared: the options of each owner.
        of_any_name: passes that take options without a declaration.
    """
    rows: list[tuple[str, ...]] = []
    for owner, options in declared.items():
        for option in options:
            name = (
                f"--assume {assumed_name(option.name)} ({owner})"
                if option.assumption
                else f"{owner}.{option.name}"
            )
            default = str(option.default)
            if isinstance(option.default, bool):
                default = default.lower()
            rows.append(tuple(map(one_line, (name, option.type.__name__, default, option.help))))
    rows.extend((f"{one_line(name)}.NAME", "str", "None", "any name") for name in of_any_name)
    columns = ("option", "type", "default", "meaning")
    print_text(f"\n{_table(dict.fromkeys(columns, 'left'), rows)}" if rows else "\nno options")


def _table(
    columns: dict[str, str], rows: Sequence[Sequence[str]], *, wrap_last: bool = False
) -> str:
    """Return a table; ``columns`` maps each header to its alignment.

    On a terminal the last column can be wrapped to fit.
    """
    draw = partial(
        tabulate, rows, list(columns), colalign=list(columns.values()), disable_numparse=True
    )
    text = draw()
    if wrap_last and is_terminal(sys.stdout):
        width = max(len(line) for line in text.splitlines())
        last = max(len(row[-1]) for row in rows)
        room = last - width + shutil.get_terminal_size().columns
        if room < last:
            return draw(maxcolwidths=[*[None] * (len(columns) - 1), max(room, _NARROWEST)])
    return text
