"""Advice for a replacement with an unproven size."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from gehost.ir.graph import Graph, Value
from gehost.ir.region import Region
from gehost.ir.types import is_invented
from gehost.pattern.explain.messages import named

_SIZES = re.compile(
    r"unproven: dimension \d+ of \"(?P<tensor>.*)\" was (?P<old>.+?)(?: \(dimension .*\))?, "
    r"would be (?:that of an input, )?(?P<new>.+?)(?: \(dimension .*\))?$"
)
_MOST_NAMED = 3


def advice(reason: str, region: Region, method: str) -> tuple[str, ...]:
    """Name the unproven sizes' sources and both ways to resolve them.

    Args:
        reason: of the refusal; "" is returned for any but an unproven size.
        region: the match, as it is after the refusal.
        method: the author's name of the method that judges a match.
    """
    match = _SIZES.search(reason)
    if match is None:
        return ()
    sizes = dict.fromkeys((match["old"], match["new"]))
    named_sizes = [size for size in sizes if not size.isdecimal() and size != "unknown"]
    sources = [f"{size} is {_source(size, region)}" for size in named_sizes]
    texts = [f"the new size must have the same source as {match['old']}: {'; '.join(sources)}"]
    return (
        *(texts if sources else ()),
        f"either make the sizes known: {_make_known(sizes, region.graph)}",
        (
            f"or prove them equal: check the reason in {method}, and set "
            "shape_proven = True on the class, with a comment that gives the proof"
        ),
    )


def _source(size: str, region: Region) -> str:
    """Return the dimension of this size, an input's if one has it."""
    inputs = [value for value in region.inputs if value is not None]
    for value, what in (
        *((value, "input") for value in inputs),
        *((value, "tensor") for value in _upstream(inputs)),
    ):
        for place, dim in enumerate(value.shape or ()):
            if dim == size:
                origin = "" if value.producer is None else f", made by {named(value.producer)}"
                return f'dimension {place} of {what} "{value.name}"{origin}'
    sources: list[str] = []
    for value in inputs:
        if value.shape:
            shape = ", ".join("?" if dim is None else str(dim) for dim in value.shape)
            sources.append(f'"{value.name}" [{shape}]')
    return f"computed by the match from {' and '.join(sources) or 'inputs of unknown rank'}"


def _upstream(values: Iterable[Value]) -> Iterator[Value]:
    """Yield the tensors that these are computed from, nearest first."""
    waiting, visited = list(values), set(values)
    for value in waiting:  # grows during the loop
        if value.producer is None:
            continue
        for operand in value.producer.inputs:
            if operand is not None and operand not in visited:
                visited.add(operand)
                waiting.append(operand)
                yield operand


def _make_known(sizes: Iterable[str], graph: Graph) -> str:
    """Name the open sizes of the model's inputs that can be fixed."""
    root, names_in = graph.model.graph, graph.model.sizes.names_in
    inputs = {
        name
        for value in root.inputs
        for dim in value.shape or ()
        if isinstance(dim, str)
        for name in names_in(dim)
    }
    open_names = sorted(name for name in inputs if not is_invented(name))
    candidates = [name for name in open_names if any(name in names_in(size) for size in sizes)]
    later = "register the pass at a later stage, where computed shapes are constants"
    names = candidates or open_names
    if not names:
        return later
    fixed = " ".join(f"--dim {name}=SIZE" for name in names[:_MOST_NAMED])
    return f"fix them with {fixed}, or {later}"
