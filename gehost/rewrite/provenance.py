"""What new nodes say of where they come from, in their ``metadata_props``."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import lru_cache
from json.encoder import encode_basestring

from gehost.ir.graph import Node
from gehost.rewrite.history import (
    HISTORY,
    ORIGIN_NODES,
    ORIGIN_TYPES,
    PASS,
    VENDOR,
    as_text,
    carried,
    history_of,
    origins_of,
)


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
        label = node.listing.name(node.place) or node.label
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
    """What ``json.dumps(list(texts), ensure_ascii=False)`` gives, in a fraction of its time."""
    plain = '", "'.join(texts)
    # nothing is to be escaped
    if plain.isprintable() and "\\" not in plain and plain.count('"') == 2 * len(texts) - 2:
        return f'["{plain}"]'
    return as_text(f"[{', '.join(map(encode_basestring, texts))}]")
