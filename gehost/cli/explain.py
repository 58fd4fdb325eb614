"""``gehost explain``: the reasons why a pass did not match."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import click

from gehost.cli.completion import complete_passes
from gehost.cli.options import compile_options, keep_going_option, options_of
from gehost.cli.output import print_json, print_line, writing_output
from gehost.diagnose.explain.findings import Outcome
from gehost.errors import one_line

if TYPE_CHECKING:
    from gehost.diagnose.explain.findings import Explanation, Finding, Group

_EXAMPLES = 3
"""Number of further nodes of a group that are named."""
_MOST_GROUPS = 40
"""Number of groups that are printed; ``--json`` has all."""


@click.command()
@click.argument("model", type=click.Path())
@click.option(
    "--pass",
    "pass_name",
    shell_complete=complete_passes,
    required=True,
    metavar="PASS",
    help="The pass to explain.",
)
@click.option(
    "--node",
    metavar="NAME",
    help="Only this node: its name, or the name of a tensor it produces.",
)
@compile_options
@keep_going_option
@click.option("--all", "all_", is_flag=True, help="Also list misses far from a match.")
@click.option("--json", "as_json", is_flag=True, help="As JSON, with every node.")
def explain(
    model: str, pass_name: str, node: str | None, *, all_: bool, as_json: bool, **choices: Any
) -> None:
    """Explain why PASS did not match in MODEL.

    Names the nearest miss of each candidate, in the graph as the pass meets it.
    """
    from gehost.cli.progress import Progress
    from gehost.diagnose.explain.run import explain as explain_pass
    from gehost.host.containment import output_on_stderr

    with output_on_stderr(), Progress().showing(what=f"explaining {pass_name}"):
        explanation = explain_pass(model, pass_name, options_of(choices), node)
    if as_json:
        print_json(explanation.as_dict())
        return
    with writing_output():
        _print(explanation, with_shallow=all_)


def _print(explanation: Explanation, *, with_shallow: bool) -> None:
    """Print the pass, notes on it, and a paragraph for each cause.

    With a node asked for, each of its findings has a paragraph.
    """
    about = ", ".join(
        part for part in (explanation.kind, explanation.vendor, explanation.stage) if part
    )
    lines = [
        f"{explanation.pass_name} ({about}) {_relative(explanation.origin)}",
        *explanation.notes,
    ]
    if explanation.node is None:
        counts = ", ".join(f"{count} {outcome}" for outcome, count in explanation.counts().items())
        lines.append(f"candidates: {counts or 'none'}")
    if len(explanation.variants) > 1:
        variants = [f'{number} "{name}"' for number, name in enumerate(explanation.variants, 1)]
        lines.append(f"patterns: {', '.join(variants)}")
    groups, shallow = explanation.near_and_shallow()
    if with_shallow:
        groups, shallow = explanation.groups(), []
    several = len(explanation.variants) > 1
    for group in groups[:_MOST_GROUPS]:
        lines.extend(["", *_paragraph(group, several=several)])
    if len(groups) > _MOST_GROUPS:
        lines.extend(
            ["", f"… and {len(groups) - _MOST_GROUPS} more causes that match less; --json has all"]
        )
    if shallow:
        count = sum(len(group.findings) for group in shallow)
        lines.extend(["", f"{count} × far from a match (--all lists them)"])
    for line in lines:
        indent = len(line) - len(line.lstrip())
        print_line(" " * indent + one_line(line))


def _paragraph(group: Group, *, several: bool) -> list[str]:
    """Return the paragraph of a group.

    It has count, depth and place, the first node's reason, and the other nodes.
    """
    first = group.first
    parts = [f"{len(group.findings)} × {first.outcome}" if first.node else str(first.outcome)]
    if several and first.pattern is not None:
        parts.append(f'pattern {first.pattern + 1} "{first.variant}"')
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
                f"of {_relative(first.origin)}"
            )
    others = [f'"{finding.node}"' for finding in group.findings[1 : 1 + _EXAMPLES]]
    more = (
        f" and {len(group.findings) - 1 - _EXAMPLES} more"
        if len(group.findings) > 1 + _EXAMPLES
        else ""
    )
    also = [f"    also at {', '.join(others)}{more}"] if others else []
    advice = [f"        {line}" for line in first.advice]
    return [", ".join(parts), f"    {_reason(first)}", *advice, *also]


def _reason(finding: Finding) -> str:
    """Return the reason, with the node if it is not named there."""
    body = f' (in graph "{finding.graph}")' if finding.graph else ""
    reason = finding.reason.replace(f" of {os.path.join(os.getcwd(), '')}", " of ")
    if finding.outcome is Outcome.GONE or not finding.node:
        return reason
    if finding.outcome is Outcome.MISSED and f'"{finding.node}"' in reason:
        return reason + body
    return f'{finding.op} "{finding.node}": {reason}{body}'


def _relative(origin: str) -> str:
    """Return ``file:line`` relative to the working directory."""
    return origin.removeprefix(os.path.join(os.getcwd(), ""))
