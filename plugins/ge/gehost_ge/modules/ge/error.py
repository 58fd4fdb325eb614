"""``ge.error``."""

from gehost_ge.errors import GeError

__all__ = ["GeError"]
