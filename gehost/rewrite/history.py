"""The way of a node from the original ones, step by step, as its ``metadata_props`` carry it.

``gehost.pass`` names the pass that made a node and ``gehost.origin_nodes`` the original nodes that it comes from. Where
passes lie between them, ``gehost.history`` holds what each of these made, the oldest first, as JSON:
``{"node": …, "op": …, "pass": …, "vendor": …, "from": […]}``. The last entry is the node's own and has ``from`` alone. An
entry of ``from`` is the position of an earlier step, or ``[name, operator]`` of an original node; the operator is "" where
it was not noted down. A node that a pass made from original ones has no such key.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias, cast

from gehost.ir.graph import Node

PASS, VENDOR, HISTORY = "gehost.pass", "gehost.vendor", "gehost.history"
ORIGIN_NODES, ORIGIN_TYPES = "gehost.origin_nodes", "gehost.origin_types"

_MOST_STEPS = 500
"""Steps that a node carries; of one with more, what its sources come from is told by the original nodes alone."""

Source: TypeAlias = int | tuple[str, str]
"""The position of an earlier step, or name and operator of an original node."""


@dataclass(frozen=True, slots=True)
class Step:
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


def steps_of(node: Node) -> list[Step]:
    """What passes made on the way to a node, the oldest first and itself last; nothing for an original node."""
    metadata = node.metadata
    if PASS not in metadata:
        return []
    entries = _read(metadata.get(HISTORY, ""))
    own = entries.pop() if entries else Step("", "", "", "", tuple(_origins(metadata)))
    made = Step(node.label, node.op, metadata[PASS], metadata.get(VENDOR, ""), own.sources, own.cut)
    return [*entries, made]


def history_of(nodes: Sequence[Node]) -> str:
    """What a node that is made from ``nodes`` carries under ``gehost.history``; "" where all of them are original."""
    steps: dict[Step, int] = {}
    direct: dict[Source, None] = {}
    for node in nodes:
        places: list[int] = []
        for step in steps_of(node):
            sources = tuple(places[source] if isinstance(source, int) else source for source in step.sources)
            moved = Step(step.node, step.op, step.pass_name, step.vendor, sources, step.cut)
            places.append(steps.setdefault(moved, len(steps)))
        direct[places[-1] if places else (node.label, node.op)] = None
    if not steps:
        return ""
    if len(steps) > _MOST_STEPS:
        return _cut(nodes)
    return _written(list(steps), list(direct))


def _cut(nodes: Sequence[Node]) -> str:
    """The last step before ``nodes`` alone."""
    steps: list[Step] = []
    direct: list[Source] = []
    for node in nodes:
        metadata = node.metadata
        if PASS in metadata and len(steps) < _MOST_STEPS:
            direct.append(len(steps))
            steps.append(Step(node.label, node.op, metadata[PASS], metadata.get(VENDOR, ""), tuple(_origins(metadata)), cut=True))
        else:
            direct.append((node.label, node.op))
    return _written(steps, direct)


def _written(steps: Sequence[Step], direct: Sequence[Source]) -> str:
    entries: list[dict[str, Any]] = []
    for step in steps:
        entry: dict[str, Any] = {"node": step.node, "op": step.op, "pass": step.pass_name, "vendor": step.vendor}
        entries.append({**entry, "from": step.sources, **({"cut": True} if step.cut else {})})
    return json.dumps([*entries, {"from": direct}], ensure_ascii=False)


def _origins(metadata: Mapping[str, str]) -> list[Source]:
    """The original nodes that the four keys tell; each with its operator where there are as many of these."""
    names, types = carried(metadata, ORIGIN_NODES) or [], carried(metadata, ORIGIN_TYPES) or []
    return list(zip(names, types if len(types) == len(names) else [""] * len(names), strict=True))


def carried(metadata: Mapping[str, str], key: str) -> list[str] | None:
    """The list of texts under ``key``; None where there is none, or something that gehost did not write."""
    listed = _json_list(metadata.get(key, ""))
    return None if listed is None else [str(entry) for entry in listed]


def _json_list(text: str) -> list[Any] | None:
    try:
        listed: Any = json.loads(text)
    except (ValueError, RecursionError):  # of a file that somebody else wrote
        return None
    return cast("list[Any]", listed) if isinstance(listed, list) else None


def _read(text: str) -> list[Step]:
    """The steps that a text holds, the node's own last; none where gehost did not write it."""
    found: list[Step] = []
    for place, entry in enumerate(_json_list(text) or []):
        fields = cast("dict[str, Any]", entry) if isinstance(entry, dict) else {}
        listed = fields.get("from")
        sources = [_source(source, place) for source in cast("list[Any]", listed)] if isinstance(listed, list) else [None]
        if None in sources:
            return []
        node, op, made_by, vendor = (str(fields.get(key, "")) for key in ("node", "op", "pass", "vendor"))
        told = tuple(source for source in sources if source is not None)
        found.append(Step(node, op, made_by, vendor, told, bool(fields.get("cut"))))
    return found


def _source(given: Any, place: int) -> Source | None:
    """What an entry of ``from`` at step ``place`` says; None where it says nothing that there can be."""
    if isinstance(given, int) and not isinstance(given, bool):
        return given if 0 <= given < place else None
    if isinstance(given, list):
        pair = [str(part) for part in cast("list[Any]", given)]
        return (pair[0], pair[1]) if len(pair) == 2 else None
    return None
