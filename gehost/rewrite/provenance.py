"""What new nodes say of where they come from, in their ``metadata_props``."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from json.encoder import encode_basestring

from gehost.ir.graph import Node
from gehost.rewrite.history import HISTORY, ORIGIN_NODES, ORIGIN_TYPES, PASS, VENDOR, carried, history_of


@dataclass(frozen=True, slots=True)
class Author:
    """On whose behalf a rewrite is done: names the new nodes and goes into their provenance."""

    name: str
    vendor: str = ""


def provenance(author: Author, nodes: Sequence[Node]) -> dict[str, str]:
    """``metadata_props`` of the new nodes; nodes that were made by passes give the origins that they carry."""
    names: dict[str, None] = {}
    types: dict[str, None] = {}
    told = [(node, node.metadata if node.proto.metadata_props else {}) for node in nodes]
    for node, metadata in told:
        if metadata:
            names.update(dict.fromkeys(_or_own(carried(metadata, ORIGIN_NODES), node.label)))
            types.update(dict.fromkeys(_or_own(carried(metadata, ORIGIN_TYPES), node.op)))
        else:
            names[node.label] = None
            types[node.op] = None
    history = history_of(told) if any(PASS in metadata for _, metadata in told) else ""
    metadata = {PASS: author.name}
    if author.vendor:  # the name of a directory, which may be no text
        metadata[VENDOR] = author.vendor.encode(errors="backslashreplace").decode()
    metadata[ORIGIN_NODES] = _as_json(names)
    metadata[ORIGIN_TYPES] = _as_json(types)
    if history:
        metadata[HISTORY] = history
    return metadata


def _or_own(listed: list[str] | None, own: str) -> list[str]:
    return [own] if listed is None else listed


def _as_json(texts: Iterable[str]) -> str:
    """What ``json.dumps(list(texts), ensure_ascii=False)`` gives, in a fraction of its time."""
    return f"[{', '.join(map(encode_basestring, texts))}]"
