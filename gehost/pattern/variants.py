"""The combinations of alternatives that a pattern leaves open."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias

from gehost.errors import PatternError
from gehost.es.graph import EsChoice, EsGraph, EsNode, EsTensor
from gehost.pattern.source import MAX_VARIANTS

Chosen: TypeAlias = Mapping[EsChoice, EsTensor]


def resolve(tensor: EsTensor, chosen: Chosen) -> EsTensor:
    """The tensor that stands for ``tensor`` when these options are chosen."""
    while isinstance(tensor.producer, EsChoice):
        tensor = chosen[tensor.producer]
    return tensor


def variants_of(graph: EsGraph) -> list[dict[EsChoice, EsTensor]]:
    """What is chosen in each variant, those of earlier options first; one that chooses nothing when
    all is said.

    Raises:
        PatternError: there are too many.
    """
    found: list[dict[EsChoice, EsTensor]] = []
    waiting: list[dict[EsChoice, EsTensor]] = [{}]
    while waiting:
        chosen = waiting.pop()
        choice = _next_choice(graph, chosen)
        if choice is None:
            found.append(chosen)
        else:
            waiting.extend({**chosen, choice: option} for option in reversed(choice.options))
        if len(found) + len(waiting) > MAX_VARIANTS:
            raise PatternError(
                f"{graph.origin}: pattern {graph.name!r} has more than {MAX_VARIANTS} "
                "variants; split it"
            )
    return found


def _next_choice(graph: EsGraph, chosen: Chosen) -> EsChoice | None:
    """The first choice that is open, from the outputs up."""
    seen: set[EsNode] = set()
    stack = list(reversed(graph.outputs))
    while stack:
        producer = stack.pop().producer
        if isinstance(producer, EsChoice):
            if producer not in chosen:
                return producer
            stack.append(chosen[producer])
        elif isinstance(producer, EsNode) and producer not in seen:
            seen.add(producer)
            stack.extend(tensor for tensor in reversed(producer.inputs) if tensor is not None)
    return None
