"""``ge.graph``."""

from gehost_ge.graph import Graph, Node
from gehost_ge.types import DataType, DumpFormat, Format, Shape, Tensor, TensorDesc

__all__ = ["DataType", "DumpFormat", "Format", "Graph", "Node", "Shape", "Tensor", "TensorDesc"]
