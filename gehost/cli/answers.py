"""The commands that answer questions about a compile: ``explain``, ``blame``."""

from __future__ import annotations

from typing import Any

import click

from gehost.cli.base import cli, options_of, telling, vendors_option


@cli.command()
@click.argument("model", type=click.Path())
@click.option("--pass", "pass_name", required=True, metavar="PASS", help="The pass to explain.")
@click.option("--node", metavar="NAME", help="Tell of this node only: its name, or that of a tensor that it makes.")
@vendors_option
@click.option("--enable", multiple=True, metavar="PASS", help="Run a pass that the switch file turns off; repeatable.")
@click.option("--disable", multiple=True, metavar="PASS", help="Do not run a pass; repeatable.")
@click.option("--fusion-switch-file", type=click.Path(), metavar="FILE", help="GE's JSON file of switches.")
@click.option("--no-cleanup", is_flag=True, help="Leave out the built-in clean-up.")
@click.option("--keep-going", is_flag=True, help="Undo a pass that fails, skip a vendor file that does not load, and go on.")
@click.option("--inline-functions", is_flag=True, help="Inline the model's local functions first.")
@click.option("--json", "as_json", is_flag=True, help="As JSON, with every node.")
def explain(model: str, pass_name: str, node: str | None, *, as_json: bool, **given: Any) -> None:
    """Tell why PASS did not match in MODEL: the nearest miss of each candidate, in the graph that it meets."""
    from gehost.diagnose.explain import explain as explain_pass
    from gehost.host.containment import output_on_stderr

    given["cleanup"] = not given.pop("no_cleanup")
    with output_on_stderr():
        told = explain_pass(model, pass_name, options_of(given), node)
    with telling():
        if as_json:
            import json

            click.echo(json.dumps(told.as_dict(), indent=2))
        else:
            from gehost.diagnose.show import print_explanation

            print_explanation(told)


@cli.command()
@click.argument("model", type=click.Path())
@click.argument("node")
@click.option("--json", "as_json", is_flag=True, help="As JSON.")
def blame(model: str, node: str, *, as_json: bool) -> None:
    """Tell what NODE of MODEL was before: which passes made it, step by step, from which original nodes."""
    from gehost.diagnose.blame import blame as history_of

    found = history_of(model, node)
    with telling():
        if as_json:
            import json

            click.echo(json.dumps([ancestry.as_dict() for ancestry in found], indent=2))
        else:
            from gehost.diagnose.show import print_ancestries

            print_ancestries(found)
