"""``ge.utils``."""

from gehost_ge.utils import GeUtils

__all__ = ["GeUtils"]
