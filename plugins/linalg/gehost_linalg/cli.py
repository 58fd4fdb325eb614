"""The command ``gehost linalg``, imported when it runs.

The command line starts quickly then.
"""

from __future__ import annotations

import click

from gehost import print_text


@click.command("linalg")
@click.argument("model", type=click.Path())
@click.option("--node", metavar="NAME", help="Only the group with this node.")
@click.option(
    "--before/--after",
    default=False,
    help="The operations as they are lowered, or after fusion (default).",
)
@click.option(
    "--format",
    "form",
    type=click.Choice(["table", "mlir", "dot"]),
    help="table (default), mlir or dot; a text is always shown as MLIR.",
)
@click.option(
    "--control", default="one-use", show_default=True, help="Which legal fusions are done."
)
@click.option(
    "--multi-use",
    default="refuse",
    show_default=True,
    help="Other readers of a producer: refuse, duplicate, share.",
)
@click.option(
    "--companions",
    default="",
    metavar="LIST",
    help="Companion patterns to add, or -NAME to leave out.",
)
@click.option(
    "--vendors", multiple=True, type=click.Path(), metavar="DIR", help="As in gehost compile."
)
def command(
    model: str,
    node: str | None,
    form: str | None,
    control: str,
    multi_use: str,
    companions: str,
    vendors: tuple[str, ...],
    *,
    before: bool,
) -> None:
    """Show how the element-wise operators of MODEL are fused, or fuse the text FILE.mlir."""
    from gehost_linalg.commands import show

    settings = {"control": control, "multi_use": multi_use, "companions": companions}
    print_text(show(model, node, form, settings, vendors, before=before))
