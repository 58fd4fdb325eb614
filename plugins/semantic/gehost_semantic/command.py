"""``gehost show --attention``: every attention of a model, why each other Softmax is none."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:  # the command line loads this file for each command
    from gehost import Model


def add_option(show: click.Command) -> None:
    """Add ``--attention MODEL`` to ``gehost show``."""
    if not any(param.name == "attention" for param in show.params):
        show.params.append(
            click.Option(
                ["--attention"],
                metavar="MODEL",
                type=click.Path(),
                is_eager=True,
                expose_value=False,
                callback=_list,
                help="List every attention of a model, and why each other Softmax is none.",
            )
        )


def _list(context: click.Context, option: click.Parameter, model: str | None) -> None:
    """Print each attention: layouts, sizes, masks; else the step that fails, and what helps."""
    del option
    if model is None:
        return
    from gehost import infer_model, print_text, read_model

    loaded = read_model(model)
    infer_model(loaded)
    print_text("\n".join(lines(loaded)) + "\n")
    context.exit()


def lines(model: Model) -> list[str]:
    """Return a line for each Softmax, also of bodies; the last one counts."""
    from gehost_semantic.advice import advised
    from gehost_semantic.atoms import Refused
    from gehost_semantic.finder import AttentionFinder
    from gehost_semantic.views import Views

    results: list[str] = []
    count = 0
    for graph in model.graphs:
        softmaxes = graph.nodes_of("Softmax")
        finder = AttentionFinder(Views.shared(graph)) if softmaxes else None
        for softmax in softmaxes:
            assert finder is not None
            try:
                results.append(finder.find(softmax).summary())
                count += 1
            except Refused as refusal:
                results.append(f"{softmax.label}: no attention: {advised(str(refusal))}")
    return [*results, f"{count} of {len(results)} Softmax operators are attention"]
