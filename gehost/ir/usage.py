"""Find the functions and domains of a model that are in use."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import onnx

from gehost.ir.graph import op_name, split_op
from gehost.ir.model import Model


@dataclass(frozen=True)
class Usage:
    """The functions and domains that a model's nodes use at one time."""

    functions: frozenset[str]
    """Operators whose function is called, directly or through other functions."""
    domains: frozenset[str]
    """Domains of nodes, of called functions, and of the imports of these."""

    @classmethod
    def of(cls, model: Model, spared: Iterable[str] = ()) -> Usage:
        """Return the current usage of a model; ``spared`` functions count as called."""
        called: dict[str, None] = {}
        ops = [op for graph in model.graphs for op, nodes in graph.by_op.items() if nodes]
        domains = {split_op(op)[0] for op in ops}
        waiting = [*ops, *spared]
        while waiting:
            op = waiting.pop()
            function = model.function(op)
            if function is None or op in called:
                continue
            called[op] = None
            domains.add(function.domain)
            domains.update(entry.domain for entry in function.opset_import)
            waiting.extend(_operators(function.node))
        return cls(frozenset(called), frozenset(domains))


def remove_unused(model: Model, before: Usage) -> None:
    """Remove functions and imports that became unused, and commit.

    Each of them was in use ``before`` or was added since; others that were never in use stay.
    """
    spared = [op for op in model.functions if op not in {*before.functions, *model.new_functions}]
    now = Usage.of(model, spared)
    functions = [op for op in before.functions - now.functions if op in model.functions]
    if functions:
        model.remove_functions(functions)
    domains = [
        domain
        for domain in model.opsets
        if domain
        and domain not in now.domains
        and (domain in before.domains or domain not in model.original_domains)
    ]
    if domains:
        model.remove_imports(domains)


def _operators(nodes: Iterable[onnx.NodeProto]) -> Iterator[str]:
    """Yield the operators of nodes and of those in their bodies."""
    for node in nodes:
        yield op_name(node.domain, node.op_type, node.overload)
        for attribute in node.attribute:
            for graph in (attribute.g, *attribute.graphs):
                yield from _operators(graph.node)
