"""``ge.graph.types``."""

from gehost_ge.types import DataType, DumpFormat, Format

__all__ = ["DataType", "DumpFormat", "Format"]
