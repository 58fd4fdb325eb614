"""Kernels against bodies on random graphs: ``python -m plugins.linalg.tests.kernels.fuzz --graphs 300 [--cc CC]``.

``make kernels-fuzz`` runs it with gcc's address and undefined-behaviour sanitizers, which end the process at a fault.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections import Counter
from pathlib import Path

import numpy as np
import onnx

from gehost import GehostError, Host, HostOptions, UsageError
from gehost.verify import compare_outputs
from gehost_linalg.kernels.library import write_library
from gehost_linalg.passes import NAME

from ..fuzz import SETTINGS
from ..onnx_graphs import random_graph
from .fused_models import Array, run, session

SPECIAL = (np.nan, np.inf, -np.inf, -0.0, 1e-40, 1e30)  # a sum of 1e38 may overflow, or not


def feeds_of(feeds: dict[str, Array], seed: int) -> list[dict[str, Array]]:
    """The feeds, and the feeds with special values."""
    random = np.random.default_rng(seed)
    special = {}
    for name, array in feeds.items():
        changed = array.copy()
        for value in SPECIAL:
            changed[random.random(array.shape) < 0.08] = value
        special[name] = changed
    return [feeds, special]


def check(seed: int, counts: Counter[str], cc: str | None, folder: str) -> None:
    """Compile one graph, build its library, compare."""
    most = (40, 20, 40) if seed % 2 else (4, 4, 6)  # tiles of 16 x 16, too
    model, feeds = random_graph(seed, most)
    settings = {f"{NAME}.{name}": value for name, value in SETTINGS[seed % len(SETTINGS)].items()}
    options = HostOptions(vendors=(folder,), enable=(NAME,), settings=settings)
    path, library = Path(folder, f"{seed}.onnx"), Path(folder, f"{seed}.so")
    try:
        result, _ = Host(options).run(model)
    except GehostError:
        counts["not compiled"] += 1
        return
    onnx.save(result, path)
    try:
        output = write_library(str(path), str(library), cc=cc)
    except UsageError as error:
        if "fails" in str(error):
            raise
        counts["without a kernel"] += 1
        return
    counts["kernels"] += len(output.kernels)
    for _, reason in output.left:
        counts[f"left: {reason}"] += 1
    body, kernel = session(path), session(path, library, threads=1 + seed % 3)
    given_feeds = feeds_of(feeds, seed)
    if any(node.op_type in {"ReduceMax", "ReduceMin"} for node in model.graph.node):
        given_feeds.pop()  # whether ONNX Runtime keeps a NaN there depends on its place
        counts["graphs without special values"] += 1
    for number, feed in enumerate(given_feeds):
        expected, argument = run(body, feed), run(kernel, feed)
        with np.errstate(all="ignore"):
            differences = [
                output for output in compare_outputs(expected, argument) if not output.equal
            ]
        counts["outputs"] += len(expected)
        for found_difference in differences:
            counts["different"] += 1
            print(f"seed {seed}, feed {number}: {found_difference}")


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--graphs", type=int, default=300)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--cc")
    argument = parser.parse_args()
    counts: Counter[str] = Counter()
    for seed in range(argument.first, argument.first + argument.graphs):
        with tempfile.TemporaryDirectory() as folder:
            check(seed, counts, argument.cc, folder)
        if seed % 20 == 19:
            print(
                f"{seed + 1 - argument.first} graphs, {counts['kernels']} kernels, {counts['different']} different",
                flush=True,
            )
    for name, count in counts.most_common():
        print(f"{name}: {count}")
    return 1 if counts["different"] else 0


if __name__ == "__main__":
    sys.exit(main())
