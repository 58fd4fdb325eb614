"""``gehost passes``: list the passes in running order."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from gehost.cli.options import json_option, keep_going_option, options_of, vendors_option
from gehost.cli.output import print_json, print_notes, print_skipped, writing_output
from gehost.errors import UsageError, VendorError

if TYPE_CHECKING:
    from gehost.host.host import Host


@click.command()
@vendors_option
@click.option(
    "--shipped", is_flag=True, help="Of all vendors that installed packages ship, not --vendors."
)
@keep_going_option
@json_option
@click.option(
    "-v",
    "--verbose",
    is_flag=True,
    help="Also list the options that --set takes, and the files that are skipped.",
)
def passes(
    vendors: tuple[str, ...], *, shipped: bool, keep_going: bool, as_json: bool, verbose: bool
) -> None:
    """List the passes of vendors and plugins in running order."""
    from gehost.cli.progress import Progress
    from gehost.host.containment import output_on_stderr
    from gehost.host.host import Host
    from gehost.shipped import shipped_vendors
    from gehost.stages import RUN_STAGES

    if shipped and vendors:
        raise UsageError("--shipped lists the installed vendors; give either it or --vendors")
    if shipped:
        vendors = tuple(shipped_vendors())
    with output_on_stderr(), Progress().showing(what="loading vendors"):
        host = Host(options_of({"vendors": vendors, "keep_going": keep_going}))
    if verbose:
        print_skipped(host.skipped)
    specs = [spec for stage in RUN_STAGES for spec in host.passes.at(stage)]
    if not as_json:
        from gehost.cli.tables import print_options, print_passes

        with writing_output():
            print_passes(specs)
            if verbose:
                print_options(
                    host.declared_options(), [spec.name for spec in specs if spec.any_option]
                )
        _finish(host)
        return
    rows = [
        {
            "name": spec.name,
            "stage": spec.stage.name,
            "vendor": spec.vendor,
            "kind": spec.kind,
            "origin": spec.origin,
            "min_opset": spec.min_opset,
            "max_opset": spec.max_opset,
            "default": spec.default,
            "options": [
                {
                    "name": option.name,
                    "type": option.type.__name__,
                    "default": option.default,
                    "help": option.help,
                }
                for option in spec.options
            ],
        }
        for spec in specs
    ]
    print_json(rows)
    _finish(host)


def _finish(host: Host) -> None:
    """Print the notes; end as a compile does where a vendor file did not load."""
    print_notes([*host.problems, *host.notes])
    if host.problems:
        click.get_current_context().exit(VendorError.exit_code)
