"""The runtimes that a compiled file needs, in its metadata and in the report."""

from __future__ import annotations

import re

from gehost.errors import UsageError
from gehost.host.report import Report
from gehost.ir.model import Model
from gehost.ir.node import PROVIDED_BY
from gehost.kernels import Target, Use, release, runtimes

_NEED = re.compile(r"(?P<runtime>[\w.-]+)>=(?P<since>\d{1,6}(\.\d{1,6})*)")


def name_runtimes(model: Model, target: str, report: Report, types: Model | None = None) -> None:
    """Put the runtimes that a file needs, and its target, in its metadata and the report.

    The input's own target holds where the compile has none. For one provider a release is never
    lowered: an earlier compile chose operators that older kernels compute less precisely.

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
    before = _target_of(model)
    after = Target.of(target) if target else before
    report.needs = runtimes(uses, after)
    if after.provider == before.provider:
        report.needs = _not_older(report.needs, model.metadata("gehost.needs") or "")
    if report.needs:
        model.set_metadata("gehost.needs", ", ".join(report.needs))
        if target:
            model.set_metadata("gehost.target", target)


def _target_of(model: Model) -> Target:
    """Return the target that a file names; none where no table has it."""
    try:
        return Target.of(model.metadata("gehost.target") or "")
    except UsageError:
        return Target()


def _not_older(needs: list[str], stated: str) -> list[str]:
    """Return runtimes with their releases, none older than the file states."""
    before = {need["runtime"]: need["since"] for need in _NEED.finditer(stated)}
    results: list[str] = []
    for text in needs:
        need = _NEED.fullmatch(text)
        if need is not None:
            since = max(need["since"], before.get(need["runtime"], "0"), key=release)
            text = f"{need['runtime']}>={since}"
        results.append(text)
    return results
