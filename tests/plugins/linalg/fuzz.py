"""Compare fusion with MLIR's on random DAGs: ``python -m tests.plugins.linalg.fuzz --dags 20000``."""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter

from gehost_linalg.driver import fuse_block
from gehost_linalg.generic import Generic, verify
from gehost_linalg.mlir import Function, parse, print_function
from tests.plugins.linalg.dags import random_function
from tests.plugins.linalg.oracle import Iree, signatures


def ours(function: Function, coverage: str = "preserved") -> Function:
    block = fuse_block(function.ops, outputs=function.outputs, coverage=coverage)
    for op in block.ops:
        if isinstance(op, Generic):
            verify(op)
    return Function(function.name, function.arguments, block.ops, block.outputs)


def compare_with_mlir(seeds: range, iree: Iree, show: int) -> Counter[str]:
    """Count DAGs by outcome; differences are shown."""
    counts: Counter[str] = Counter()
    for seed in seeds:
        text = print_function(random_function(seed))
        function = parse(text)[0]
        theirs = iree.fused_functions(text)[0]
        wanted = signatures(theirs)
        counts["dags"] += 1
        counts["generics"] += len(function.ops)
        fused = ours(function, "upstream")
        counts["fusions"] += len(function.ops) - len(fused.ops)
        iree.verify(print_function(fused))
        if signatures(fused) == wanted:
            if signatures(ours(parse(text)[0])) != wanted:
                counts["better: preserved outs cover a reduction"] += 1
            continue
        counts["different"] += 1
        if counts["different"] <= show:
            _show(seed, text, fused, theirs)
    return counts


def _show(seed: int, text: str, fused: Function, theirs: Function) -> None:
    print(f"seed {seed}:\n{text}")
    mine, wanted = signatures(fused), signatures(theirs)
    for each in mine - wanted:
        print("ours:  ", each)
    for each in wanted - mine:
        print("MLIR's:", each)


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--dags", type=int, default=20_000)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--show", type=int, default=3)
    options = parser.parse_args()
    begin = time.perf_counter()
    counts = compare_with_mlir(
        range(options.first, options.first + options.dags), Iree(), options.show
    )
    for key, count in counts.items():
        print(f"{key}: {count}")
    print(f"{time.perf_counter() - begin:.1f} s")
    return 1 if counts["different"] else 0


if __name__ == "__main__":
    sys.exit(main())
