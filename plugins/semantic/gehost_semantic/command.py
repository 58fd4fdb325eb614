"""``gehost attention``: every attention of a model, and why each other Softmax is none."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:  # the command line loads this file for each command
    from gehost import Model

_UNPROVEN = re.compile(r"([A-Za-z_]\w*) is not known to equal (\S+)$")


@click.command("attention")
@click.argument("model", type=click.Path())
def command(model: str) -> None:
    """List every attention of MODEL: layouts, sizes, masks.

    Letters: b batch, h head, g heads that share keys, s query, t key, d and v sizes of a head. For
    each Softmax that is no attention, the step that fails, and what helps.
    """
    from gehost import infer_model, print_text, read_model

    loaded = read_model(model)
    infer_model(loaded)
    print_text("\n".join(lines(loaded)) + "\n")


def lines(model: Model) -> list[str]:
    """Return a line for each Softmax, also of bodies; the last one counts."""
    from gehost_semantic.atoms import Refused
    from gehost_semantic.finder import AttentionFinder
    from gehost_semantic.views import Views

    found: list[str] = []
    count = 0
    for graph in model.graphs:
        softmaxes = graph.nodes_of("Softmax")
        finder = AttentionFinder(Views.shared(graph)) if softmaxes else None
        for softmax in softmaxes:
            assert finder is not None
            try:
                found.append(finder.find(softmax).summary())
                count += 1
            except Refused as refusal:
                found.append(f"{softmax.label}: no attention: {refusal}{_advice(str(refusal))}")
    return [*found, f"{count} of {len(found)} Softmax operators are attention"]


def _advice(reason: str) -> str:
    """Return what helps, if anything does."""
    unproven = _UNPROVEN.search(reason)
    if unproven is not None:
        return f'; if they are equal, compile with --assume "{unproven[1]} == {unproven[2]}"'
    return "; export with a fixed rank" if "rank" in reason else ""
