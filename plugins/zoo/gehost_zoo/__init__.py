"""Compile many models in warm worker processes, here or on a cluster: ``gehost zoo``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gehost import hookimpl

if TYPE_CHECKING:
    import click


@hookimpl
def gehost_register_commands(cli: click.Group) -> None:
    """Add ``gehost zoo`` and ``gehost tune-zoo``."""
    from gehost_zoo.command import tune_command, zoo_command

    cli.add_command(zoo_command(cli.commands["compile"]))
    cli.add_command(tune_command(cli.commands["compile"]))
