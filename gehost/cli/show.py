"""``gehost show``: print part of a model as text or picture."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click

from gehost.cli.completion import complete_stages
from gehost.cli.options import compile_options, options_of
from gehost.cli.output import print_text, writing_output
from gehost.errors import UsageError

if TYPE_CHECKING:
    from gehost.ir.model import Model


@click.command()
@click.argument("model", type=click.Path())
@click.option("--around", metavar="NODE", help="Show this node, or the producer of this tensor.")
@click.option(
    "--op", "ops", multiple=True, metavar="OP", help="Show nodes of this operator; repeatable."
)
@click.option(
    "--depth",
    type=click.IntRange(0),
    default=2,
    show_default=True,
    help="Steps to producers and users of each chosen node.",
)
@click.option(
    "--stage",
    shell_complete=complete_stages,
    metavar="STAGE",
    help="Show the graph as this stage's first pass meets it.",
)
@click.option("--text", "form", flag_value="text", default="text", help="Print text (default).")
@click.option("--dot", "form", flag_value="dot", help="Print a Graphviz graph.")
@click.option("--svg", "form", flag_value="svg", help="Print a picture; redirect it into a file.")
@click.option(
    "--sizes",
    is_flag=True,
    help="List the model's sizes, and which equalities would unlock a fusion.",
)
@compile_options
def show(
    model: str,
    around: str | None,
    ops: tuple[str, ...],
    depth: int,
    stage: str | None,
    form: Any,
    sizes: bool,
    look: Callable[[Model], str] | None = None,
    **choices: Any,
) -> None:
    """Show part of MODEL with types and constants.

    It is --around a node, or each --op, or all of it.

    \f
    A plugin's option may call this with ``look``, which renders the model.
    """
    from gehost.cli.progress import Progress
    from gehost.diagnose.show import look_at
    from gehost.diagnose.show import show as render
    from gehost.diagnose.sizes import show_sizes
    from gehost.host.containment import output_on_stderr

    if stage is None and look is None and not sizes:
        for name in ("vendors", "enable", "disable", "only"):
            if choices[name]:
                raise UsageError(f"--{name} has an effect with --stage alone")
    options = options_of(choices, quiet=stage is None)
    with output_on_stderr(), Progress().showing(what="reading"):
        if look is not None:
            shown = look_at(model, options, stage, look)
        elif sizes:
            shown = show_sizes(model, options)
        else:
            shown = render(
                model, options, around=around, ops=ops, depth=depth, stage=stage, form=form
            )
    with writing_output():
        print_text(shown)
