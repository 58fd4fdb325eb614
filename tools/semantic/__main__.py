"""Describe the attention of models, and recompute each description in float64.

    python -m tools.semantic [-v] MODEL...

Prints a line for each model: layers described, Softmax operators, the largest difference to the
graph's own numbers in two runs of different sizes, nodes and seconds.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

import numpy as np
import onnx

from gehost import Refused, infer_model
from gehost.ir.model import Model
from gehost_semantic import AttentionFinder, Views
from gehost_semantic.attention import Attention
from tools.semantic.check import differences, random_feed

RUNS = [
    {"batch": 3, "seq": 13, "past": 11, "total": 24, "mem": 5, "height": 32, "width": 64, "s": 6},
    {"batch": 1, "seq": 5, "past": 3, "total": 8, "mem": 7, "height": 64, "width": 32, "s": 4},
]
LARGEST = 1e-5


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("models", nargs="+", type=Path)
    parser.add_argument("-v", "--verbose", action="store_true", help="print each description")
    parser.add_argument("-n", "--no-numbers", action="store_true", help="run nothing")
    options = parser.parse_args()
    wrong = [
        describe(path, verbose=options.verbose, numbers=not options.no_numbers)
        for path in options.models
    ]
    return int(any(wrong))


def describe(path: Path, *, verbose: bool, numbers: bool) -> bool:
    """Print the attention of a model; return whether a description is wrong."""
    proto = onnx.load(path)
    model = Model(proto)
    infer_model(model)
    start = time.process_time()
    views = Views(model.graph)
    finder = AttentionFinder(views)
    results: list[Attention] = []
    refusals: list[str] = []
    for node in model.graph.nodes_of("Softmax"):
        try:
            results.append(finder.find(node))
        except Refused as refusal:
            refusals.append(f"{node.label}: {refusal}")
    seconds = time.process_time() - start
    worst: list[float | str] = []
    for run, named in enumerate(RUNS if numbers and results else []):
        retained = path.parents[1] / "feeds" / f"{path.stem}.{'AB'[run]}.npz"
        sizes = {**named, **{str(k): v for k, v in facts_of(views).items()}}
        feed = (
            dict(np.load(retained))
            if retained.exists()
            else random_feed(model.graph, sizes, np.random.default_rng(run))
        )
        try:
            worst.append(max(differences(proto, views, results, feed), key=lambda x: (x != x, x)))
        except Exception as error:  # noqa: BLE001 - of a runtime, or a false claim: printed
            worst.append(f"{type(error).__name__}: {str(error).splitlines()[0][:90]}")
    shown = [f"{item:.0e}" if isinstance(item, float) else item for item in worst]
    count = f"{len(results)}/{len(results) + len(refusals)}"
    print(f"{path.name:32} {count:6} {shown} {len(model.graph)} nodes, {seconds:.2f} s", flush=True)
    for line in refusals:
        print("   -", line)
    for attention in results if verbose else []:
        print("   ", attention.summary())
    return any(not isinstance(item, float) or not item <= LARGEST for item in worst)


def facts_of(views: Views) -> dict[str, int]:
    """Return the numbers that facts give to names of inputs: a trace may fix a length."""
    names = {
        dim for value in views.graph.inputs for dim in value.shape or () if isinstance(dim, str)
    }
    sizes = {name: views.extents.read(name) for name in names}
    return {name: size for name, size in sizes.items() if isinstance(size, int)}


if __name__ == "__main__":
    sys.exit(main())
