"""Which functions and domains of a model are in use."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import onnx

from gehost.ir.graph import op_name, split_op
from gehost.ir.model import Model


@dataclass(frozen=True)
class Usage:
    """What the nodes of a model need beside the graphs, at one time."""

    functions: frozenset[str]
    """Operators with a function that nodes call, directly or through other functions."""
    domains: frozenset[str]
    """Domains of nodes, and those that the called functions are of and import."""

    @classmethod
    def of(cls, model: Model, spared: Iterable[str] = ()) -> Usage:
        """Look at a model as its index is; ``spared`` functions count as called."""
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
    """Remove functions and imports that were in use ``before``, or were added since, and are not
    in use now. A function or import that was never in use stays. Commits.
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
    """The operators of nodes and of those in their graphs."""
    for node in nodes:
        yield op_name(node.domain, node.op_type, node.overload)
        for attribute in node.attribute:
            for graph in (attribute.g, *attribute.graphs):
                yield from _operators(graph.node)
