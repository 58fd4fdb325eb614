"""Tensors of a traced program; ``gehost.expressions`` computes with them."""

from __future__ import annotations

from msgspec import Struct


class Ref(Struct, frozen=True):
    """A tensor: input ``index``, or output ``index`` of operator ``op``."""

    op: int | None
    index: int

    def __post_init__(self) -> None:
        if self.index < 0 or (self.op is not None and self.op < 0):
            raise ValueError(f"there is no tensor {self.index} of operator {self.op}")
