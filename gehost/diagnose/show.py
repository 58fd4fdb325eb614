"""What ``gehost explain`` and ``gehost blame`` print."""

from __future__ import annotations

import os
from collections.abc import Sequence

import rich.markup
from rich.console import Console
from rich.tree import Tree

from gehost.diagnose.blame import Ancestor, Ancestry
from gehost.diagnose.explain.findings import Explanation, Finding, Group, Outcome
from gehost.errors import one_line

_EXAMPLES = 3
"""Further nodes of a group that are named."""
_MOST_GROUPS = 40
"""Groups that are shown; ``--json`` has all."""
_PIPE_WIDTH = 10_000

_NO_NOTE = (
    "no note: as in the original, or made by a hook that edits by hand; what a pass or hook "
    "changed by hand is not told"
)
_MERGED = (
    "the clean-up leaves no note: of equal nodes, whoever made them, it keeps one, and what it "
    "computes or removes is not told"
)


def _escape(text: str) -> str:
    """A text that models, vendors or plugins bring: on one line, and without meaning to the
    terminal.
    """
    return rich.markup.escape(one_line(text))


def _console_of_stdout() -> Console:
    """A console that wraps nothing when its output is piped."""
    console = Console(highlight=False)
    return console if console.is_terminal else Console(highlight=False, width=_PIPE_WIDTH)


def print_explanation(told: Explanation) -> None:
    """The pass, what is to be said of it as a whole, and a paragraph for each cause; for a
    single node one for each finding.
    """
    about = ", ".join(part for part in (told.kind, told.vendor, told.stage) if part)
    lines = [f"{told.pass_name} ({about}) {_here(told.origin)}", *told.notes]
    if told.node is None:
        counts = ", ".join(f"{count} {outcome}" for outcome, count in told.counts().items())
        lines.append(f"candidates: {counts or 'none'}")
    groups = told.groups()
    for group in groups[:_MOST_GROUPS]:
        lines.extend(["", *_paragraph(group)])
    if len(groups) > _MOST_GROUPS:
        lines.extend(
            ["", f"… and {len(groups) - _MOST_GROUPS} more causes, farther off; --json has all"]
        )
    console = _console_of_stdout()
    for line in lines:
        indent = len(line) - len(line.lstrip())
        console.print(" " * indent + _escape(line), soft_wrap=True)


def _paragraph(group: Group) -> list[str]:
    """How many, how far and where; then what happened at the first node, and which others it
    happened to.
    """
    first = group.first
    parts = [f"{len(group.findings)} × {first.outcome}" if first.node else str(first.outcome)]
    if first.outcome is Outcome.MISSED:
        all_found = first.depth == first.size
        if first.size:
            parts.append(
                "all operators found"
                if all_found
                else f"{first.depth} of {first.size} operators found"
            )
        if first.pattern_op:
            parts.append(
                f"{'but the match fails at' if all_found else 'then'} {first.pattern_op} "
                f"of {_here(first.origin)}"
            )
    others = [f'"{found.node}"' for found in group.findings[1 : 1 + _EXAMPLES]]
    more = (
        f" and {len(group.findings) - 1 - _EXAMPLES} more"
        if len(group.findings) > 1 + _EXAMPLES
        else ""
    )
    also = [f"    also at {', '.join(others)}{more}"] if others else []
    return [", ".join(parts), f"    {_reason(first)}", *also]


def _reason(found: Finding) -> str:
    """The reason, with the node where it does not name it."""
    body = f' (in graph "{found.graph}")' if found.graph else ""
    if found.outcome is Outcome.GONE or not found.node:
        return found.reason
    if found.outcome is Outcome.MISSED and f'"{found.node}"' in found.reason:
        return found.reason + body
    return f'{found.op} "{found.node}": {found.reason}{body}'


def _here(origin: str) -> str:
    """``file:line`` without the working directory."""
    return origin.removeprefix(os.path.join(os.getcwd(), ""))


def print_ancestries(found: Sequence[Ancestry]) -> None:
    """A tree for each node, down to those without a note, and what a note does not tell."""
    console = _console_of_stdout()
    for ancestry in found:
        console.print(_tree(ancestry))
    if any(_without_note(ancestor) for ancestry in found for ancestor in ancestry.ancestors):
        console.print(_NO_NOTE, soft_wrap=True)
    console.print(_MERGED, soft_wrap=True)


def _tree(ancestry: Ancestry) -> Tree:
    first = ancestry.ancestors[0]
    about = f", stands for {ancestry.stands_for}" if ancestry.stands_for else ""
    about += f', in graph "{ancestry.graph}"' if ancestry.graph else ""
    root = Tree(_escape(_ancestor(first, about)))
    branches = {0: root}
    waiting = [0]
    for position in waiting:  # grows while it is walked
        for source in ancestry.ancestors[position].sources:
            if source in branches:
                branches[position].add(_escape(f"{_called(ancestry.ancestors[source])}: see there"))
            else:
                branches[source] = branches[position].add(
                    _escape(_ancestor(ancestry.ancestors[source]))
                )
                waiting.append(source)
    return root


def _ancestor(ancestor: Ancestor, about: str = "") -> str:
    called = f"{_called(ancestor)}{about}"
    if _without_note(ancestor):
        return f"{called}, no note"
    if not ancestor.pass_name:  # below IR version 4 also what is new
        return (
            f"{called}, of which nothing is kept: an original, a literal of a pass or computed "
            "by the clean-up"
        )
    vendor = f" ({ancestor.vendor})" if ancestor.vendor else ""
    cut = ", after more steps than are kept" if ancestor.cut else ""
    made = f"{called}, made by {ancestor.pass_name}{vendor}{cut}"
    return f"{made} from" if ancestor.sources else f"{made} by hand; from what, it does not say"


def _without_note(ancestor: Ancestor) -> bool:
    return not ancestor.pass_name and ancestor.op != "Constant"


def _called(ancestor: Ancestor) -> str:
    return f'{ancestor.op} "{ancestor.node}"'.lstrip()
