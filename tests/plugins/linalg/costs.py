"""Operations and bytes of the stored cases before and after fusion: ``python -m tests.plugins.linalg.costs``."""

from __future__ import annotations

from math import prod
from pathlib import Path

from gehost_linalg.control import TRANSCENDENTAL
from gehost_linalg.driver import fuse_block
from gehost_linalg.generic import INDEX, Generic, Op
from gehost_linalg.mlir import parse

CASES = Path(__file__).parent / "cases"
ROWS = (
    ("diamond", "refuse", "one-use"), ("diamond", "duplicate", "always"), ("exp_matmul", "refuse", "one-use"), ("exp_matmul", "refuse", "cost"),
    ("strided_read", "refuse", "one-use"), ("strided_read", "refuse", "no-recompute"), ("broadcast_read", "refuse", "one-use"),
    ("broadcast_read", "refuse", "no-recompute"), ("three_muls", "refuse", "one-use"), ("three_muls", "refuse", "max-operands=4"),
)  # fmt: skip


def cost(ops: list[Op], width: int) -> tuple[int, int, int]:
    """Scalar operations, exp and the like among them, and bytes of tensors written and read; 4 stands for ``width``."""
    work = dear = moved = 0
    for op in ops:
        if not isinstance(op, Generic):
            continue
        points = prod(
            width * size // 4 if isinstance(size, int) else width for size in op.extents()
        )
        work += points * sum(each.name != INDEX for each in op.payload.ops)
        dear += points * sum(each.name in TRANSCENDENTAL for each in op.payload.ops)
        moved += sum(4 * prod(width for _ in value.shape or ()) for value in (*op.ins, *op.results))
    return work, dear, moved


def main() -> None:
    print(
        "| case | control | Generics | operations | exp, tanh, … | bytes |\n|---|---|---|---|---|---|"
    )
    for name, multi_use, control in ROWS:
        function = parse((CASES / f"{name}.mlir").read_text(encoding="utf-8"))[0]
        block = fuse_block(function.ops, control, multi_use, outputs=function.outputs)
        before, after = cost(function.ops, 64), cost(block.ops, 64)
        counts = [sum(isinstance(op, Generic) for op in ops) for ops in (function.ops, block.ops)]
        cells = [f"{a:,} → {b:,}" for a, b in zip(before, after, strict=True)]
        print(
            f"| `{name}` | `{control}`, {multi_use} | {counts[0]} → {counts[1]} | {' | '.join(cells)} |"
        )


if __name__ == "__main__":
    main()
