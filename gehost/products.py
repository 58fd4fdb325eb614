"""Products that are distributions of their own, and how to get one that is not installed."""

from __future__ import annotations

_ADDS = {
    "linalg": ("linalg", "kernels"),
    "hlo": ("hlo", ".hlo", ".hlo.txt"),
    "sharding": ("shard",),
    "zoo": ("zoo", "tune-zoo"),
}
"""The commands and suffixes of model files that each product adds."""


def how_to_get(command: str) -> str:
    """Return where a command is found and how to install it; "" for an unknown one."""
    for product, names in _ADDS.items():
        if command in names:
            return f"it is in gehost-{product}: in a clone, `pip install ./plugins/{product}`"
    return ""


def reader_of(path: str) -> str:
    """Return how to get the reader of a file that a product reads; "" for any other file."""
    suffixes = (name for names in _ADDS.values() for name in names if name.startswith("."))
    return next((how_to_get(suffix) for suffix in suffixes if path.endswith(suffix)), "")
