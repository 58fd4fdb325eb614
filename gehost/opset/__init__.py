"""Raise a model's opset."""

from gehost.opset.raising import raise_opset

__all__ = ["raise_opset"]
