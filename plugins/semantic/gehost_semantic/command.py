"""``gehost show --attention``: every attention of a model, why each other Softmax is none."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:  # the command line loads this file for each command
    from gehost import Model, Node
    from gehost_semantic.attention import Attention


def add_option(show: click.Command) -> None:
    """Add ``--attention`` and its ``--json`` to ``gehost show``."""
    shown = show.callback
    if shown is None or any(param.name == "attention" for param in show.params):
        return
    show.params += [
        click.Option(
            ["--attention"],
            is_flag=True,
            help="List every attention of a model, and why each other Softmax is none.",
        ),
        click.Option(["--json", "as_json"], is_flag=True, help="With --attention: as JSON."),
    ]

    def callback(*, attention: bool, as_json: bool, **arguments: Any) -> None:
        if as_json and not attention:
            raise click.UsageError("--json belongs to --attention")
        look = {"look": _as_json if as_json else _as_text} if attention else {}
        shown(**arguments, **look)

    show.callback = callback


def _as_text(model: Model) -> str:
    return "\n".join(lines(model))


def _as_json(model: Model) -> str:
    import json

    return json.dumps([_entry(node, answer) for node, answer in _answers(model)], indent=2)


def lines(model: Model) -> list[str]:
    """Return a line for each Softmax, also of bodies; the last one counts."""
    answers = _answers(model)
    results = [
        f"{node.label}: no attention: {answer}" if isinstance(answer, str) else answer.summary()
        for node, answer in answers
    ]
    count = sum(not isinstance(answer, str) for _, answer in answers)
    inside = sum(
        node.op_type == "Softmax" for function in model.proto.functions for node in function.node
    )
    more = f"; {inside} more in functions of the model: --inline-functions" if inside else ""
    return [*results, f"{count} of {len(answers)} Softmax operators are attention{more}"]


def _answers(model: Model) -> list[tuple[Node, Attention | str]]:
    """Return for each Softmax its attention, or the step that fails and what helps."""
    from gehost import Refused
    from gehost_semantic.advice import advised
    from gehost_semantic.finder import AttentionFinder
    from gehost_semantic.views import Views

    results: list[tuple[Node, Attention | str]] = []
    for graph in model.graphs:
        softmaxes = graph.nodes_of("Softmax")
        finder = AttentionFinder(Views.shared(graph)) if softmaxes else None
        for softmax in softmaxes:
            assert finder is not None
            try:
                results.append((softmax, finder.find(softmax)))
            except Refused as refusal:
                results.append((softmax, advised(str(refusal), model, tries=True)))
    return results


def _entry(node: Node, answer: Attention | str) -> dict[str, Any]:
    """Return what JSON has of a Softmax; sizes without a number are their names."""
    if isinstance(answer, str):
        return {"node": node.label, "attention": False, "reason": answer}
    sizes = (
        "batch", "heads", "key_heads", "queries", "keys", "head_size", "value_size"
    )  # fmt: skip
    of = {name: getattr(answer, name) for name in sizes}
    return {
        "node": node.label,
        "attention": True,
        **{name: size if isinstance(size, int) else str(size) for name, size in of.items()},
        "layouts": {name: answer.layout(getattr(answer, name)) for name in "qkv"}
        | {"result": answer.result_layout()},
        "scale": answer.scale,
        "softcap": answer.softcap,
        "mask": [
            *map(str, answer.mask.limits),
            *(f"{kind} over {' '.join(sorted(roles))}" for kind, roles in answer.mask.rest),
        ],
        "past": [None if cache is None else cache.past.name for cache in answer.past],
        "summary": answer.summary(),
    }
