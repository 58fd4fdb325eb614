"""Provenance of new nodes in ``metadata_props``, back to the original nodes.

``gehost.pass`` names the pass that created a node and ``gehost.origin_nodes`` its original nodes.
If other passes came in between, ``gehost.history`` lists the nodes that they created, oldest first,
as JSON lists ``[node, operator, pass, vendor, sources, cut]``; the last entry is the list of the
node's own sources. A source is the position of an earlier step, or ``[name, operator]`` of an
original node; its operator is "" if it was not recorded. A node that a pass created from original
nodes has no such key.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from json.encoder import encode_basestring
from typing import Any, NamedTuple, TypeAlias, cast

from gehost.ir.graph import Node

PASS, VENDOR, HISTORY = "gehost.pass", "gehost.vendor", "gehost.history"
ORIGIN_NODES, ORIGIN_TYPES = "gehost.origin_nodes", "gehost.origin_types"

_MOST_STEPS = 500
"""Largest number of steps stored in a node; with more, its sources are the original nodes."""

Source: TypeAlias = int | tuple[str, str]
"""The position of an earlier step, or name and operator of an original node."""

_ENCODER = json.JSONEncoder(ensure_ascii=False)


class HistoryStep(NamedTuple):
    """One node that a pass created.

    Attributes:
        sources: the nodes it was created from.
        cut: steps between ``sources`` and it were left out, as there were too many.
    """

    node: str
    op: str
    pass_name: str
    vendor: str
    sources: tuple[Source, ...]
    cut: bool = False


def steps_of(node: Node, metadata: Mapping[str, str]) -> list[HistoryStep]:
    """Return a node's steps, oldest first, none for an original node.

    The last step is the node's own.

    Args:
        node: the node.
        metadata: its metadata.
    """
    if PASS not in metadata:
        return []
    steps, sources = _read(metadata.get(HISTORY, "")) or ([], origins_of(metadata))
    steps.append(
        HistoryStep(node.label, node.op, metadata[PASS], metadata.get(VENDOR, ""), sources)
    )
    return steps


def history_of(nodes: Sequence[tuple[Node, Mapping[str, str]]]) -> str:
    """Return the history of a node from ``nodes``, "" without earlier steps."""
    steps: dict[HistoryStep, int] = {}
    direct: dict[Source, None] = {}
    for node, metadata in nodes:
        place: Source = node.label, node.op
        places: list[int] = []
        for step in steps_of(node, metadata):
            sources = tuple(
                [places[source] if isinstance(source, int) else source for source in step.sources]
            )
            place = steps.setdefault(
                step if sources == step.sources else step._replace(sources=sources), len(steps)
            )
            places.append(place)
        direct[place] = None
    if not steps:
        return ""
    return _encode([*steps, list(direct)]) if len(steps) <= _MOST_STEPS else _cut(nodes)


def _encode(steps: Sequence[object]) -> str:
    return as_text(_ENCODER.encode(steps))


def as_text(encoded: str) -> str:
    """Return JSON as valid UTF-8; lone surrogates from a file stay escaped."""
    return encoded if encoded.isascii() else encoded.encode(errors="backslashreplace").decode()


def _cut(nodes: Sequence[tuple[Node, Mapping[str, str]]]) -> str:
    """Return a history with only the last step before each of ``nodes``."""
    steps: list[HistoryStep] = []
    direct: list[Source] = []
    for node, metadata in nodes:
        if PASS in metadata:
            direct.append(len(steps))
            steps.append(
                HistoryStep(
                    node.label,
                    node.op,
                    metadata[PASS],
                    metadata.get(VENDOR, ""),
                    origins_of(metadata),
                    cut=True,
                )
            )
        else:
            direct.append((node.label, node.op))
    return _encode([*steps, direct])


def origins_of(metadata: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    """Return the original nodes in the metadata, each with its operator.

    Older versions wrote each operator once: if all nodes have the same it is known, otherwise "".
    """
    names, types = carried(metadata, ORIGIN_NODES) or [], carried(metadata, ORIGIN_TYPES) or []
    if len(types) == 1:
        types *= len(names)
    return tuple(zip(names, types if len(types) == len(names) else [""] * len(names), strict=True))


def carried(metadata: Mapping[str, str], key: str) -> list[str] | None:
    """Return the texts under ``key``, None if absent or not gehost's."""
    entries = _json_list(metadata.get(key, ""))
    return None if entries is None else [str(entry) for entry in entries]


def _json_list(text: str) -> list[Any] | None:
    if not text:
        return None
    try:
        content: Any = json.loads(text)
    except (ValueError, RecursionError):  # not written by gehost
        return None
    return cast("list[Any]", content) if isinstance(content, list) else None


def _read(text: str) -> tuple[list[HistoryStep], tuple[Source, ...]] | None:
    """Return a node's earlier steps and sources, None without gehost's text."""
    entries = _json_list(text)
    if not entries:
        return None
    steps: list[HistoryStep] = []
    for place, entry in enumerate(entries):
        last = place + 1 == len(entries)
        fields = cast("list[Any]", entry) if isinstance(entry, list) else []
        if not last and (
            len(fields) != len(HistoryStep._fields)
            or not all(isinstance(field, str) for field in fields[:4])
        ):
            return None
        sources = _sources(fields if last else fields[4], place)
        if not sources:
            return None
        if last:
            return steps, sources
        steps.append(
            HistoryStep(fields[0], fields[1], fields[2], fields[3], sources, bool(fields[5]))
        )
    return None


def _sources(content: Any, place: int) -> tuple[Source, ...] | None:
    """Return the sources of the step at ``place``, None if invalid."""
    sources: list[Source] = []
    for source in cast("list[Any]", content) if isinstance(content, list) else ():
        if isinstance(source, list):
            pair = tuple(cast("list[Any]", source))
            if len(pair) != 2 or not all(isinstance(part, str) for part in pair):
                return None
            sources.append(pair)
        elif type(source) is int and 0 <= source < place:
            sources.append(source)
        else:
            return None
    return tuple(sources)


class Provenance:
    """The replaced nodes' names and operators as JSON, and their history.

    The history is "" for original nodes.
    """

    __slots__ = ("history", "origin_nodes", "origin_types")

    def __init__(self, origin_nodes: str, origin_types: str, history: str = "") -> None:
        self.origin_nodes = origin_nodes
        self.origin_types = origin_types
        self.history = history


@dataclass(frozen=True, slots=True)
class Author:
    """The author of a rewrite, for new nodes' names and provenance."""

    name: str
    vendor: str = ""

    def signature(self) -> dict[str, str]:
        """Return ``metadata_props`` with the author of a node."""
        if not self.vendor:
            return {PASS: self.name}
        # the name of a vendor's directory may not be valid text
        return {PASS: self.name, VENDOR: self.vendor.encode(errors="backslashreplace").decode()}

    def metadata(self, origin: Provenance) -> dict[str, str]:
        """Return ``metadata_props`` of the new nodes."""
        metadata = self.signature()
        metadata[ORIGIN_NODES] = origin.origin_nodes
        metadata[ORIGIN_TYPES] = origin.origin_types
        if origin.history:
            metadata[HISTORY] = origin.history
        return metadata


def provenance(nodes: Sequence[Node]) -> Provenance:
    """Return the provenance of a replacement of ``nodes``.

    It includes the history of nodes that passes created.
    """
    origins: dict[str, str] = {}
    history = ""
    for node in nodes:
        label = node.label
        metadata = node.metadata if node.is_traced else None
        if metadata:
            if carried(metadata, ORIGIN_NODES) is None:
                origins.setdefault(label, node.op)
            for name, op in origins_of(metadata):
                origins.setdefault(name, op)
            if PASS in metadata and not history:
                history = history_of(
                    [
                        (source_node, source_node.metadata if source_node.is_traced else {})
                        for source_node in nodes
                    ]
                )
        else:
            origins.setdefault(label, node.op)
    return Provenance(_as_json(origins), _types_as_json(tuple(origins.values())), history)


@lru_cache(maxsize=1024)
def _types_as_json(types: tuple[str, ...]) -> str:
    """Return the operators of the original nodes as JSON.

    Matches of a rule mostly share them.
    """
    return _as_json(types)


def _as_json(texts: Collection[str]) -> str:
    return as_text(f"[{', '.join([encode_basestring(text) for text in texts])}]")
