"""What ``gehost explain`` and ``gehost blame`` print."""

from __future__ import annotations

import os
from collections.abc import Sequence

from rich.table import Table
from rich.tree import Tree

from gehost.diagnose.blame import Ancestor, Ancestry
from gehost.diagnose.findings import Explanation, Finding, Group, Outcome
from gehost.tables import console_of_stdout, escape

_EXAMPLES = 3
"""Further nodes of a group that are named."""
_MOST_ROWS = 40
"""Groups that are shown; ``--json`` has all."""


def print_explanation(told: Explanation) -> None:
    """The pass, what is to be said of it as a whole, and one row for each cause; for a single node one for each finding."""
    console = console_of_stdout()
    about = ", ".join(part for part in (told.kind, told.vendor, told.stage) if part)
    console.print(f"{escape(told.pass_name)} ({escape(about)}) {escape(told.origin)}")
    for note in told.notes:
        console.print(escape(note))
    groups = told.groups()
    if told.node is None:
        counts = ", ".join(f"{count} {outcome}" for outcome, count in told.counts().items())
        console.print(f"candidates: {counts or 'none'}")
    if groups:
        console.print(_table(groups[:_MOST_ROWS]))
    if len(groups) > _MOST_ROWS:
        console.print(f"… and {len(groups) - _MOST_ROWS} more causes, farther off; --json has all")


def _table(groups: list[Group]) -> Table:
    table = Table("outcome")
    table.add_column("nodes", justify="right")
    for column in ("matched", "pattern operator", "why, at the first of them", "also at"):
        table.add_column(column, overflow="fold")
    for group in groups:
        first = group.first
        others = [f'"{found.node}"' for found in group.findings[1 : 1 + _EXAMPLES]]
        more = " …" if len(group.findings) > 1 + _EXAMPLES else ""
        table.add_row(
            first.outcome,
            str(len(group.findings)) if first.node else "0",
            f"{first.depth} of {first.size}" if first.size else "",
            escape(_pattern_operator(first)),
            escape(_reason(first)),
            escape(", ".join(others) + more),
        )
    return table


def _pattern_operator(found: Finding) -> str:
    return f"{found.pattern_op}, {os.path.basename(found.origin)}" if found.pattern_op else ""


def _reason(found: Finding) -> str:
    """The reason, with the node where it does not name it."""
    body = f' (in graph "{found.graph}")' if found.graph else ""
    if found.outcome is Outcome.GONE or not found.node:
        return found.reason
    if found.outcome is Outcome.MISSED and f'"{found.node}"' in found.reason:
        return found.reason + body
    return f'{found.op} "{found.node}": {found.reason}{body}'


def print_ancestries(found: Sequence[Ancestry]) -> None:
    """A tree for each node, down to the original ones."""
    console = console_of_stdout()
    for ancestry in found:
        console.print(_tree(ancestry))
        if len(ancestry.ancestors) == 1:
            console.print("no pass made it; what the clean-up merged or computed around it leaves no note")


def _tree(ancestry: Ancestry) -> Tree:
    first = ancestry.ancestors[0]
    about = f", stands for {ancestry.stands_for}" if ancestry.stands_for else ""
    about += f', in graph "{ancestry.graph}"' if ancestry.graph else ""
    root = Tree(escape(_ancestor(first) + about))
    branches = {0: root}
    waiting = [0]
    for position in waiting:  # grows while it is walked
        for source in ancestry.ancestors[position].sources:
            if source in branches:
                branches[position].add(escape(f"{_called(ancestry.ancestors[source])}: see there"))
            else:
                branches[source] = branches[position].add(escape(_ancestor(ancestry.ancestors[source])))
                waiting.append(source)
    return root


def _ancestor(ancestor: Ancestor) -> str:
    called = _called(ancestor)
    if not ancestor.pass_name:
        return f"{called}, as in the original"
    vendor = f" ({ancestor.vendor})" if ancestor.vendor else ""
    cut = ", after more steps than are kept" if ancestor.cut else ""
    return f"{called}, made by {ancestor.pass_name}{vendor}{cut} from"


def _called(ancestor: Ancestor) -> str:
    return f'{ancestor.op} "{ancestor.node}"'.lstrip()
