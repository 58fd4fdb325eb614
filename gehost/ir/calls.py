"""Calls of model-local functions: none may give or want more than the function has, come back to
itself, or stand for more nodes than a machine can look at.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from graphlib import CycleError, TopologicalSorter

import onnx

from gehost.errors import ModelError
from gehost.ir.node import op_name

# Written out, as whoever inlines a function or infers through it does; of models that are used some
# have 100,000.
_MOST_NODES = 1_000_000


def check_calls(functions: Mapping[str, onnx.FunctionProto], nodes: Mapping[str, int]) -> None:
    """Prove that functions can be written out in place of the nodes that call them.

    Args:
        functions: by operator.
        nodes: how many nodes of each operator the graphs have.

    Raises:
        ModelError: a call in a function does not fit what it calls; a function calls itself,
            through others or not; or all calls together stand for too many nodes.
    """
    calls = {op: _operators(function.node, functions) for op, function in functions.items()}
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
        sizes[op] = _written_out(calls[op], sizes)
    if _written_out(nodes, sizes) - sum(nodes.values()) > _MOST_NODES:
        raise ModelError(
            "its functions call each other so often that they stand for more than "
            f"{_MOST_NODES:,} nodes"
        )


def check_arity(function: onnx.FunctionProto, call: onnx.NodeProto) -> None:
    """Prove that a call gives no more inputs than a function takes, and wants no more outputs than
    it has.

    Raises:
        ModelError: it does.
    """
    for what, given, known in (
        ("inputs", call.input, function.input),
        ("outputs", call.output, function.output),
    ):
        if len(given) > len(known):
            called = op_name(function.domain, function.name, function.overload)
            raise ModelError(
                f'node "{call.name or call.op_type}" calls function "{called}" with '
                f"{len(given)} {what}, where it has {len(known)}",
                hint="export the model again",
            )


def _operators(
    nodes: Iterable[onnx.NodeProto], functions: Mapping[str, onnx.FunctionProto]
) -> Counter[str]:
    """How many nodes of each operator there are, nested bodies included; proves those that are
    calls.
    """
    found: Counter[str] = Counter()
    waiting = list(nodes)
    while waiting:
        node = waiting.pop()
        op = op_name(node.domain, node.op_type, node.overload)
        found[op] += 1
        if op in functions:
            check_arity(functions[op], node)
        for attribute in node.attribute:
            waiting.extend(attribute.g.node)
            for graph in attribute.graphs:
                waiting.extend(graph.node)
    return found


def _written_out(operators: Mapping[str, int], sizes: Mapping[str, int]) -> int:
    # The numbers double with each level; beyond the limit only that they are matters.
    return min(sum(count * sizes.get(op, 1) for op, count in operators.items()), 10 * _MOST_NODES)
