"""The runtimes that a compiled file needs, in its metadata and in the report."""

from __future__ import annotations

from gehost.host.report import Report
from gehost.ir.model import Model
from gehost.ir.node import PROVIDED_BY
from gehost.kernels import Target, Use, runtimes


def name_runtimes(model: Model, target: str, report: Report, types: Model | None = None) -> None:
    """Put the runtimes that a file needs, and its target, in its metadata and the report.

    Args:
        model: what is written.
        target: of the compile, "" for none.
        report: of the compile.
        types: the same model with the types of its tensors, where ``model`` itself lacks them.
    """
    uses = {
        Use(
            node.op,
            None if first is None else first.dtype,
            node.metadata[PROVIDED_BY],
            first is None or first.may_be_empty,
            frozenset(node.attrs),
        )
        for graph in (types or model).graphs
        for node in graph.nodes
        if PROVIDED_BY in node.metadata
        for first in (node.input(0),)
    }
    report.needs = runtimes(uses, Target.of(target))
    if report.needs:
        model.set_metadata("gehost.needs", ", ".join(report.needs))
        if target:
            model.set_metadata("gehost.target", target)
