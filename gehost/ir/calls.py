"""Checks of calls to model-local functions: arity, recursion, total size."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from graphlib import CycleError, TopologicalSorter

import onnx

from gehost.errors import ModelError
from gehost.ir.node import op_name

# Most nodes after inlining, as inliners and inference through functions do it. Models in use have
# up to 100,000.
_MOST_NODES = 1_000_000


def check_calls(functions: Mapping[str, onnx.FunctionProto], nodes: Mapping[str, int]) -> None:
    """Check that functions can be inlined into the nodes that call them.

    Args:
        functions: by operator.
        nodes: number of nodes by operator in the graphs.

    Raises:
        ModelError: a call in a function has too many inputs or outputs; a function calls itself,
            directly or not; or the inlined calls have too many nodes.
    """
    calls = {op: _count_operators(function.node, functions) for op, function in functions.items()}
    sizes: dict[str, int] = {}
    try:
        order = list(
            TopologicalSorter(
                {op: called.keys() & calls.keys() for op, called in calls.items()}
            ).static_order()
        )
    except CycleError as error:
        raise ModelError(
            f'function "{error.args[1][0]}" calls itself, which ONNX does not allow',
            hint="export the model again",
        ) from error
    for op in order:
        sizes[op] = _inlined_size(calls[op], sizes)
    if _inlined_size(nodes, sizes) - sum(nodes.values()) > _MOST_NODES:
        raise ModelError(
            "its functions call each other so often that they stand for more than "
            f"{_MOST_NODES:,} nodes"
        )


def check_arity(function: onnx.FunctionProto, call: onnx.NodeProto) -> None:
    """Refuse a call with more inputs or outputs than the function.

    Raises:
        ModelError: it has more.
    """
    for what, count, limit in (
        ("inputs", call.input, function.input),
        ("outputs", call.output, function.output),
    ):
        if len(count) > len(limit):
            called = op_name(function.domain, function.name, function.overload)
            raise ModelError(
                f'node "{call.name or call.op_type}" calls function "{called}" with '
                f"{len(count)} {what}, where it has {len(limit)}",
                hint="export the model again",
            )


def _count_operators(
    nodes: Iterable[onnx.NodeProto], functions: Mapping[str, onnx.FunctionProto]
) -> Counter[str]:
    """Count nodes by operator, nested bodies included; check function calls."""
    counts: Counter[str] = Counter()
    waiting = list(nodes)
    while waiting:
        node = waiting.pop()
        op = op_name(node.domain, node.op_type, node.overload)
        counts[op] += 1
        if op in functions:
            check_arity(functions[op], node)
        for attribute in node.attribute:
            waiting.extend(attribute.g.node)
            for graph in attribute.graphs:
                waiting.extend(graph.node)
    return counts


def _inlined_size(operators: Mapping[str, int], sizes: Mapping[str, int]) -> int:
    # Sizes may double with each level; above the limit the exact number does not matter.
    return min(sum(count * sizes.get(op, 1) for op, count in operators.items()), 10 * _MOST_NODES)
