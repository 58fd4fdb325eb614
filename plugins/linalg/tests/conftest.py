"""The cases as MLIR texts, and what they are fused to."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from gehost_linalg.block import Block
from gehost_linalg.control import control_named, multi_use_named
from gehost_linalg.driver import Driver, fuse_all, fuse_block
from gehost_linalg.generic import Generic, verify
from gehost_linalg.mlir import Function, parse

CASES = Path(__file__).parent / "cases"


class Case:
    """One text of ``cases``."""

    def __init__(self, name: str) -> None:
        self.function = parse((CASES / f"{name}.mlir").read_text(encoding="utf-8"))[0]

    def fused(
        self, control: str = "one-use", multi_use: str = "refuse", **options: Any
    ) -> list[Generic]:
        """The Generics that remain."""
        ops = fuse_all(
            self.function.ops, control, multi_use, outputs=self.function.outputs, **options
        )
        generics = [op for op in ops if isinstance(op, Generic)]
        for op in generics:
            verify(op)
        return generics

    def one(self, *options: str) -> Generic:
        """The only Generic that remains."""
        (op,) = self.fused(*options)
        return op

    def refusals(self, control: str = "one-use", multi_use: str = "refuse") -> list[str]:
        """Why operands of the operations that remain were not fused."""
        block = Block(self.function.ops, self.function.outputs)
        Driver(block, control_named(control), multi_use_named(multi_use)).run()
        return [str(refusal) for op in block.ops for _, refusal in block.refusals.get(op, ())]

    def fused_function(self, *options: str) -> Function:
        function = self.function
        block = fuse_block(function.ops, *options, outputs=function.outputs)
        return Function(function.name, function.arguments, block.ops, block.outputs)


@pytest.fixture
def case() -> type[Case]:
    return Case


def maps(op: Generic) -> list[str]:
    """The results of each map: ``d0, d1``."""
    return [", ".join(map(str, map_.results)) for map_ in op.maps]


def payload(op: Generic) -> list[str]:
    """Operations without their dialect; an index with its loop."""
    return [
        f"index {item.attribute}" if item.name == "linalg.index" else item.name.partition(".")[2]
        for item in op.payload.ops
    ]


@pytest.fixture(autouse=True)
def no_default_vendors(monkeypatch: pytest.MonkeyPatch) -> None:
    """Commands run without vendors unless a test names some."""
    monkeypatch.setattr("gehost.options.shipped_vendors", lambda _group: [])
