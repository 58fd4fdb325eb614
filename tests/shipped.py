"""Shipped passes that are off by default, which tests of the vendors as a whole enable by name."""

from __future__ import annotations

EXAMPLES = (
    "DecomposeGroupedConvPass",
    "FlattenBatchMatMulAddPass",
    "MoveReluBeforeConcatPass",
)
"""They show a way to write a pass; by themselves they make a model slower in every runtime."""
