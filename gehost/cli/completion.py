"""Shell completion of names that the vendors and the pipeline give."""

from __future__ import annotations

import click
from click.shell_completion import CompletionItem


def complete_passes(context: click.Context, _: click.Parameter, incomplete: str) -> list[str]:
    """The passes that the command line can name so far.

    Those of the vendors that it names, and of plugins.
    """
    from gehost.errors import GehostError
    from gehost.host.containment import output_on_stderr
    from gehost.host.host import Host
    from gehost.options import from_environment

    try:
        with output_on_stderr():
            given = {"vendors": context.params.get("vendors") or ()}
            names = Host(from_environment(given)).passes.names()
    except GehostError:
        return []  # the command itself reports it
    return _beginning(names, incomplete)


def complete_stages(_: click.Context, __: click.Parameter, incomplete: str) -> list[str]:
    """The stages at which passes run, in order."""
    from gehost.stages import RUN_STAGES

    return _beginning([stage.name for stage in RUN_STAGES], incomplete)


def complete_styles(_: click.Context, __: click.Parameter, incomplete: str) -> list[str]:
    """The styles in which ``gehost new --from`` writes a pass."""
    from gehost.scaffold.styles import installed_styles

    return _beginning(list(installed_styles()), incomplete)


def complete_vendors(
    _: click.Context, __: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """Vendors of installed packages, and directories."""
    from gehost.shipped import shipped_vendors

    shipped = [CompletionItem(name) for name in _beginning(shipped_vendors(), incomplete)]
    return [*shipped, CompletionItem(incomplete, type="dir")]


def _beginning(names: list[str], incomplete: str) -> list[str]:
    return [name for name in names if name.lower().startswith(incomplete.lower())]
