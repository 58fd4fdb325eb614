"""What new nodes say of where they come from, in their ``metadata_props``."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from json.encoder import encode_basestring
from typing import Any, cast

from gehost.ir.graph import Node

ORIGIN_NODES = "gehost.origin_nodes"
_ORIGIN_TYPES = "gehost.origin_types"


@dataclass(frozen=True, slots=True)
class Author:
    """On whose behalf a rewrite is done: names the new nodes and goes into their provenance."""

    name: str
    vendor: str = ""

    def metadata(self, origin_nodes: str, origin_types: str) -> dict[str, str]:
        """``metadata_props`` of the new nodes, from what ``provenance`` says."""
        metadata = {"gehost.pass": self.name}
        if self.vendor:  # the name of a directory, which may be no text
            metadata["gehost.vendor"] = self.vendor.encode(errors="backslashreplace").decode()
        return {**metadata, ORIGIN_NODES: origin_nodes, _ORIGIN_TYPES: origin_types}


def provenance(nodes: Sequence[Node]) -> tuple[str, str]:
    """The names and the operators of the nodes that are replaced, as JSON; nodes that passes made give those that they carry."""
    names: dict[str, None] = {}
    types: dict[str, None] = {}
    for node in nodes:
        proto = node.proto
        label = proto.name or node.label
        if proto.metadata_props:
            carried = node.metadata
            names.update(dict.fromkeys(_carried(carried, ORIGIN_NODES, label)))
            types.update(dict.fromkeys(_carried(carried, _ORIGIN_TYPES, node.op)))
        else:
            names[label] = None
            types[node.op] = None
    return _as_json(names), _as_json(types)


def _as_json(texts: Iterable[str]) -> str:
    """What ``json.dumps(list(texts), ensure_ascii=False)`` gives, in a fraction of its time."""
    return f"[{', '.join(map(encode_basestring, texts))}]"


def _carried(metadata: Mapping[str, str], key: str, own: str) -> list[str]:
    """The list under ``key``; ``own`` where there is none, or something that gehost did not write."""
    if key not in metadata:
        return [own]
    try:
        listed: Any = json.loads(metadata[key])
    except ValueError:
        return [own]
    if not isinstance(listed, list):
        return [own]
    return [str(entry) for entry in cast("list[Any]", listed)]
