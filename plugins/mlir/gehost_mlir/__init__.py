"""MLIR's syntax: texts, types, attributes and the generic form, for the products that read it."""

from __future__ import annotations
