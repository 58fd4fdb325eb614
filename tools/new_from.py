"""``python -m tools.new_from``: `gehost new --from` at random places of the corpus.

At each place, the written pass must match there in the whole model, its test must pass, and
`gehost check-pass` must find nothing, or report what it cannot check.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx

from gehost import HostOptions, Region, UsageError
from gehost.diagnose.at_stage import at_stage
from gehost.diagnose.explain.findings import Outcome
from gehost.diagnose.explain.run import explain
from gehost.ir.graph import Node
from gehost.ir.model import Model
from gehost.scaffold.write import write_pass_from
from gehost.testing import run_pass

CORPUS = Path(__file__).parents[2] / "shared" / "corpus" / "models"
STAGE = "kAfterInferShape"
MOST_NODES = 6
STYLES = ("class", "drr", "traced")


@dataclass(frozen=True)
class Result:
    """What the written pass does."""

    there: str
    """Where the nodes of the place went: ``matches``, or ``taken`` by another match; "" if nowhere."""
    tested: str
    """Last line of its test."""
    checked: str
    """Of `gehost check-pass`."""

    @property
    def ok(self) -> bool:
        fine = re.search(r": ok: |^not checked: ", self.checked) is not None
        return bool(self.there) and self.tested.startswith("1 passed") and fine


def places(path: Path, count: int, seed: int) -> list[list[str]]:
    """Choose connected, convex sets of nodes of a model's root graph, by tensors that they make."""
    return at_stage(
        str(path), HostOptions(plugins=False), STAGE, lambda model: list(_grown(model, count, seed))
    )


def _grown(model: Model, count: int, seed: int) -> Iterator[list[str]]:
    rng = np.random.default_rng(seed)
    nodes = [node for node in model.graph.nodes if _usable(node)]
    result = 0
    while result < count:
        chosen = {nodes[rng.integers(len(nodes))]: None}
        size = int(rng.integers(2, MOST_NODES + 1))
        for _ in range(20):
            beside = [near for node in chosen for near in _near(node) if near not in chosen]
            if len(chosen) >= size or not beside:
                break
            chosen[beside[rng.integers(len(beside))]] = None
        region = Region.of_nodes(chosen)
        if len(chosen) == size and region and len(region.outputs) <= 2:
            result += 1
            yield [value.name for node in region.nodes for value in node.outputs[:1] if value]


def _usable(node: Node) -> bool:
    results = [value for value in node.outputs if value is not None]
    return bool(results) and not node.bodies and not any(value.is_constant for value in results)


def _near(node: Node) -> list[Node]:
    above = [value.producer for value in node.inputs if value is not None and value.producer]
    below = [user for value in node.outputs if value is not None for user, _ in value.consumers()]
    return [near for near in (*above, *below) if near.graph is node.graph and _usable(near)]


def check_place(path: Path, nodes: list[str], style: str, directory: Path) -> Result:
    """Write the pass of a place below ``directory`` and try it."""
    (code, test, _), _ = write_pass_from(
        "acme/at_place", str(directory), str(path), nodes, style, STAGE
    )
    name = "at_place" if style in ("drr", "traced") else "AtPlacePass"
    expected = at_stage(
        str(path), HostOptions(plugins=False), STAGE, lambda model: _labels(model, nodes)
    )
    model = onnx.load(path)
    result, _ = run_pass(model, name, vendors=directory)
    origins = [
        set(json.loads(entry.value))
        for node in result.graph.node
        for entry in node.metadata_props
        if entry.key == "gehost.origin_nodes"
    ]
    tested = _run(
        [sys.executable, "-m", "pytest", "-q", "-W", "error", "-p", "no:cacheprovider", test]
    )
    checked = _run([sys.executable, "-m", "gehost", "check-pass", code, "--instances", "4"])
    there = "matches" if any(expected <= origin for origin in origins) else ""
    if not there:
        match = explain(path, name, HostOptions(vendors=[directory])).findings
        if any(origin.node in expected and origin.outcome is Outcome.TAKEN for origin in match):
            there = "taken"
    return Result(there, tested, checked)


def _labels(model: Model, tensors: list[str]) -> set[str]:
    producers = [model.graph.values[name].producer for name in tensors]
    return {node.label for node in producers if node is not None}


def _run(command: list[object]) -> str:
    process = subprocess.run(
        [str(word) for word in command], capture_output=True, text=True, check=False
    )
    lines = (process.stdout + process.stderr).strip().splitlines()
    return lines[-1] if lines else f"exit code {process.returncode}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--models", type=int, default=10)
    parser.add_argument("--places", type=int, default=2, help="of each model")
    parser.add_argument("--seed", type=int, default=0)
    argument = parser.parse_args()
    models = sorted(CORPUS.glob("*.onnx"))[:: max(1, 26 // argument.models)][: argument.models]
    bad = number = 0
    for path in models:
        for nodes in places(path, argument.places, argument.seed):
            style = STYLES[number % len(STYLES)]
            number += 1
            with tempfile.TemporaryDirectory() as directory:
                try:
                    result = check_place(path, nodes, style, Path(directory))
                except UsageError as refusal:
                    print(f"    {path.name}: {refusal}")
                    style = "class"
                    result = check_place(path, nodes, style, Path(directory))
            bad += not result.ok
            verdict = "ok " if result.ok else "BAD"
            there = result.there or "NO MATCH"
            print(
                f"{verdict} {path.name} {style} {len(nodes)} nodes: {there}; {result.tested}; {result.checked.rpartition(directory)[2]}",
                flush=True,
            )
            if not result.ok:
                print(f"    --nodes {','.join(nodes)}")
    print(f"{number} places of {len(models)} models, {bad} bad")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
