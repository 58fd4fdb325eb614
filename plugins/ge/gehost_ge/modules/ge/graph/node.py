"""``ge.graph.node``."""

from gehost_ge.graph import Node

__all__ = ["Node"]
