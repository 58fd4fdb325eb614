"""``gehost blame``: the origin of a node."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from gehost.cli.options import importer_option, json_option
from gehost.cli.output import print_json, writing_output
from gehost.errors import one_line

if TYPE_CHECKING:
    from rich.tree import Tree

    from gehost.diagnose.blame import Ancestor, Ancestry

_PIPE_WIDTH = 10_000

_NO_NOTE = (
    "no note: an original node, or added by a hook; direct edits by a pass or hook are not recorded"
)
_MERGED = (
    "not recorded: equal nodes merged by the clean-up, constants it computed and nodes it removed"
)


@click.command()
@click.argument("model", type=click.Path())
@click.argument("node")
@importer_option
@json_option
def blame(model: str, node: str, settings: dict[str, str], *, as_json: bool) -> None:
    """Show the history of NODE in MODEL.

    Lists its passes, step by step, down to the original nodes.
    """
    from gehost.cli.progress import Progress
    from gehost.diagnose.blame import blame as history_of
    from gehost.host.containment import output_on_stderr

    with output_on_stderr(), Progress().showing(what="reading"):
        ancestries = history_of(model, node, settings)
    if as_json:
        print_json([ancestry.as_dict() for ancestry in ancestries])
        return
    with writing_output():
        print_ancestries(ancestries)


def print_ancestries(ancestries: Sequence[Ancestry]) -> None:
    """Print the tree of each node, and a line on missing notes."""
    from rich.console import Console

    console = Console(highlight=False)
    if not console.is_terminal:  # piped lines are not wrapped
        console = Console(highlight=False, width=_PIPE_WIDTH)
    for ancestry in ancestries:
        console.print(_tree(ancestry))
    if any(_without_note(ancestor) for ancestry in ancestries for ancestor in ancestry.ancestors):
        console.print(_NO_NOTE, soft_wrap=True)
    console.print(_MERGED, soft_wrap=True)


def _tree(ancestry: Ancestry) -> Tree:
    from rich.tree import Tree

    first = ancestry.ancestors[0]
    about = f", stands for {ancestry.stands_for}" if ancestry.stands_for else ""
    about += f', in graph "{ancestry.graph}"' if ancestry.graph else ""
    root = Tree(_escape(_ancestor(first, about)))
    branches = {0: root}
    waiting = [0]
    for position in waiting:  # grows while it is walked
        for source in ancestry.ancestors[position].sources:
            if source in branches:
                branches[position].add(_escape(f"{_label(ancestry.ancestors[source])}: see above"))
            else:
                branches[source] = branches[position].add(
                    _escape(_ancestor(ancestry.ancestors[source]))
                )
                waiting.append(source)
    return root


def _ancestor(ancestor: Ancestor, about: str = "") -> str:
    called = f"{_label(ancestor)}{about}"
    if _without_note(ancestor):
        return f"{called}, no note"
    if not ancestor.pass_name:  # below IR version 4 also new nodes
        return (
            f"{called}, without a record: an original, a literal of a pass or computed by the "
            "clean-up"
        )
    vendor = f" ({ancestor.vendor})" if ancestor.vendor else ""
    cut = ", after more steps than are recorded" if ancestor.cut else ""
    origin = f"{called}, made by {ancestor.pass_name}{vendor}{cut}"
    return f"{origin} from" if ancestor.sources else f"{origin} directly, from unknown nodes"


def _without_note(ancestor: Ancestor) -> bool:
    return not ancestor.pass_name and ancestor.op != "Constant"


def _label(ancestor: Ancestor) -> str:
    return f'{ancestor.op} "{ancestor.node}"'.lstrip()


def _escape(text: str) -> str:
    """Return text of a model, vendor or plugin as one escaped line."""
    from rich.markup import escape

    return escape(one_line(text))
