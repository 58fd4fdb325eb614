"""Where new nodes come from: their ``metadata_props``, step by step back to the original nodes.

``gehost.pass`` names the pass that made a node and ``gehost.origin_nodes`` the original nodes that
it comes from. Where passes lie between them, ``gehost.history`` holds what each of these made, the
oldest first, as JSON lists ``[node, operator, pass, vendor, sources, cut]``; the last entry is the
list of the node's own sources. A source is the position of an earlier step, or ``[name, operator]``
of an original node; its operator is "" where it was not noted down. A node that a pass made from
original ones has no such key.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple, TypeAlias, cast

from gehost.ir.graph import Node

PASS, VENDOR, HISTORY = "gehost.pass", "gehost.vendor", "gehost.history"
ORIGIN_NODES, ORIGIN_TYPES = "gehost.origin_nodes", "gehost.origin_types"

_MOST_STEPS = 500
"""Most steps that a node carries; with more, its sources name the original nodes alone."""

Source: TypeAlias = int | tuple[str, str]
"""The position of an earlier step, or name and operator of an original node."""

_ENCODER = json.JSONEncoder(ensure_ascii=False)


class HistoryStep(NamedTuple):
    """One node that a pass made.

    Attributes:
        sources: what it was made from.
        cut: steps between ``sources`` and it were left out, as there were too many.
    """

    node: str
    op: str
    pass_name: str
    vendor: str
    sources: tuple[Source, ...]
    cut: bool = False


def steps_of(node: Node, metadata: Mapping[str, str]) -> list[HistoryStep]:
    """What passes made on the way to a node, the oldest first and itself last; nothing for an
    original node.

    Args:
        node: whose history is asked for.
        metadata: its own.
    """
    if PASS not in metadata:
        return []
    steps, sources = _read(metadata.get(HISTORY, "")) or ([], origins_of(metadata))
    steps.append(
        HistoryStep(node.label, node.op, metadata[PASS], metadata.get(VENDOR, ""), sources)
    )
    return steps


def history_of(nodes: Sequence[tuple[Node, Mapping[str, str]]]) -> str:
    """What a node that is made from ``nodes``, given with their metadata, carries; "" where all
    of them are original.
    """
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


def as_text(written: str) -> str:
    """JSON as UTF-8 can hold it: half a pair, which JSON can spell and a file brought, stays
    spelled.
    """
    return written if written.isascii() else written.encode(errors="backslashreplace").decode()


def _cut(nodes: Sequence[tuple[Node, Mapping[str, str]]]) -> str:
    """The last step before ``nodes`` alone."""
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
    """The original nodes that the metadata names, each with its operator.

    An older gehost wrote each operator once: it is known where all nodes have the same, else "".
    """
    names, types = carried(metadata, ORIGIN_NODES) or [], carried(metadata, ORIGIN_TYPES) or []
    if len(types) == 1:
        types *= len(names)
    return tuple(zip(names, types if len(types) == len(names) else [""] * len(names), strict=True))


def carried(metadata: Mapping[str, str], key: str) -> list[str] | None:
    """The list of texts under ``key``; None where there is none, or something that gehost did
    not write.
    """
    listed = _json_list(metadata.get(key, ""))
    return None if listed is None else [str(entry) for entry in listed]


def _json_list(text: str) -> list[Any] | None:
    if not text:
        return None
    try:
        listed: Any = json.loads(text)
    except (ValueError, RecursionError):  # of a file that somebody else wrote
        return None
    return cast("list[Any]", listed) if isinstance(listed, list) else None


def _read(text: str) -> tuple[list[HistoryStep], tuple[Source, ...]] | None:
    """The steps before a node's own, and its sources; None where there are none, or something
    that gehost did not write.
    """
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


def _sources(given: Any, place: int) -> tuple[Source, ...] | None:
    """The sources of the step at ``place``; None where they are not what there can be."""
    found: list[Source] = []
    for source in cast("list[Any]", given) if isinstance(given, list) else ():
        if isinstance(source, list):
            pair = tuple(cast("list[Any]", source))
            if len(pair) != 2 or not all(isinstance(part, str) for part in pair):
                return None
            found.append(pair)
        elif type(source) is int and 0 <= source < place:
            found.append(source)
        else:
            return None
    return tuple(found)


class Provenance:
    """Names and operators of the nodes that are replaced, as JSON; and the steps that led to
    them, "" for original nodes.
    """

    __slots__ = ("history", "origin_nodes", "origin_types")

    def __init__(self, origin_nodes: str, origin_types: str, history: str = "") -> None:
        self.origin_nodes = origin_nodes
        self.origin_types = origin_types
        self.history = history


@dataclass(frozen=True, slots=True)
class Author:
    """On whose behalf a rewrite is done: names the new nodes and goes into their provenance."""

    name: str
    vendor: str = ""

    def signature(self) -> dict[str, str]:
        """``metadata_props`` that say who made a node."""
        if not self.vendor:
            return {PASS: self.name}
        # a directory's may be no text
        return {PASS: self.name, VENDOR: self.vendor.encode(errors="backslashreplace").decode()}

    def metadata(self, found: Provenance) -> dict[str, str]:
        """``metadata_props`` of the new nodes."""
        metadata = self.signature()
        metadata[ORIGIN_NODES] = found.origin_nodes
        metadata[ORIGIN_TYPES] = found.origin_types
        if found.history:
            metadata[HISTORY] = found.history
        return metadata


def provenance(nodes: Sequence[Node]) -> Provenance:
    """Where what replaces ``nodes`` comes from; those that passes made give the origins that
    they carry.
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
                    [(each, each.metadata if each.is_traced else {}) for each in nodes]
                )
        else:
            origins.setdefault(label, node.op)
    return Provenance(_as_json(origins), _types_as_json(tuple(origins.values())), history)


@lru_cache(maxsize=1024)
def _types_as_json(types: tuple[str, ...]) -> str:
    """The operators of the original nodes; those of a match are mostly those of another."""
    return _as_json(types)


def _as_json(texts: Collection[str]) -> str:
    return as_text(_ENCODER.encode(list(texts)))
