"""``gehost new``: a first version of a pass and its test."""

from __future__ import annotations

import click

from gehost.cli.completion import complete_stages, complete_styles
from gehost.cli.output import print_line, writing_output
from gehost.errors import UsageError


@click.command()
@click.argument("name", metavar="VENDOR/PASS")
@click.option(
    "--vendors",
    type=click.Path(),
    default="vendors",
    show_default=True,
    metavar="DIR",
    help="Directory of vendors.",
)
@click.option(
    "--from",
    "model",
    type=click.Path(),
    metavar="MODEL",
    help="Take the pattern from nodes of this model, and the test's model too.",
)
@click.option(
    "--nodes",
    metavar="A,B,C",
    help="With --from: the nodes, each by its name or by a tensor that it makes.",
)
@click.option(
    "--style",
    shell_complete=complete_styles,
    default="class",
    show_default=True,
    metavar="STYLE",
    help=(
        "class, ge (GE's Python interface); with --from: class, decompose (of one node), or a "
        "style of an installed plugin: those of gehost are declarative rules and traced functions."
    ),
)
@click.option(
    "--stage",
    shell_complete=complete_stages,
    default="kAfterInferShape",
    show_default=True,
    metavar="STAGE",
    help="With --from: where the pass runs, and in which graph the nodes are.",
)
def new(
    name: str, vendors: str, model: str | None, nodes: str | None, style: str, stage: str
) -> None:
    """Write a new pass and its test: `gehost new acme/fuse_matmul_add`.

    With --from and --nodes, the pattern is these nodes of a model: `gehost show` prints their
    names. The pass replaces them with an operator of VENDOR's, whose body they are; change it from
    there.
    """
    from gehost.cli.progress import Progress
    from gehost.host.containment import output_on_stderr
    from gehost.scaffold.write import write_pass, write_pass_from

    if (model is None) != (nodes is None):
        raise UsageError("--from MODEL and --nodes A,B,C go together")
    notes: list[str] = []
    if model is None or nodes is None:
        paths = write_pass(name, vendors, style)
    else:
        labels = [label.strip() for label in nodes.split(",") if label.strip()]
        if not labels:
            raise UsageError("names no node", where="--nodes")
        with output_on_stderr(), Progress().showing(what="reading the model"):
            paths, notes = write_pass_from(name, vendors, model, labels, style, stage)
    with writing_output():
        for path in paths:
            print_line(f"wrote {path}")
        for note in notes:
            print_line(f"note: {note}")
