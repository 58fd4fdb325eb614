"""``gehost new``: a first version of a pass and its test."""

from __future__ import annotations

import click

from gehost.cli.output import writing_output


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
def new(name: str, vendors: str) -> None:
    """Write a new pass and its test: `gehost new acme/fuse_matmul_add`."""
    from gehost.scaffold import write_pass

    with writing_output():
        for path in write_pass(name, vendors):
            click.echo(f"wrote {path}")
