"""``make peers``: gehost optimize beside other optimizers: nodes, bytes, latency, numbers.

Every file runs in ONNX Runtime with all its optimizations and is compared with the original
without any, on the inputs of ``make runtime``; its latency is measured in pairs with gehost's
file, at the sizes that optimize measures with. A file that does not load, computes other numbers,
or froze what a user may choose (an open size, a weight that is also an input) has no part in the
comparison. Rows are kept in ``--rows`` and not computed a second time.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from datetime import date
from pathlib import Path
from typing import Any

import onnx

import gehost
from gehost.tune import measure_pairs
from gehost.tune.inputs import realistic_inputs
from gehost.tune.sessions import Runtime
from gehost.verify import Runner, compare_outputs, load_feeds, onnx_runtime
from tools.peers.tool import PEERS
from tools.runtime.__main__ import ATOL, CORPUS, RTOL, variants

_TOOL = Path(__file__).with_name("tool.py")
_NOISE = 0.02
"""Differences of latency below it are none."""


def nodes(model: onnx.ModelProto) -> int:
    """The nodes of a graph and its bodies, without Constant."""
    return sum(1 for node in _all(model.graph.node) if node.op_type != "Constant")


def _all(entries: Any) -> Iterator[onnx.NodeProto]:
    for node in entries:
        yield node
        for attribute in node.attribute:
            for body in (attribute.g, *attribute.graphs):
                yield from _all(body.node)


def runs_of(path: Path) -> list[tuple[dict[str, Any], dict[str, Any]]]:
    """Inputs with the outputs of the original, with optimizations off."""
    stored = sorted((CORPUS / "feeds").glob(f"{path.stem}.[AB].npz"))
    sets = [load_feeds(file) for file in stored] or realistic_inputs(Runner(path)).feeds
    original = Runner(path)
    results: list[tuple[dict[str, Any], dict[str, Any]]] = []
    for feeds in sets:
        for what, variant in variants(dict(feeds)):
            try:
                results.append((variant, original.run(variant)))
            except Exception:
                if what == "as given":
                    raise
    return results


def fault(path: Path, original: onnx.ModelProto, runs: Any) -> str:
    """What is wrong with an optimized file; "" for nothing."""
    try:
        session = Runtime().session(str(path), 1)
        names = [output.name for output in session.get_outputs()]
        for feeds, expected in runs:
            results = dict(zip(names, session.run(names, feeds), strict=True))
            if not all(o.equal for o in compare_outputs(expected, results, rtol=RTOL, atol=ATOL)):
                return "numbers"
    except Exception:  # noqa: BLE001 - whatever the runtime raises
        return "does not load" if "session" not in locals() else "does not run"
    return frozen(original, onnx.load(path, load_external_data=False))


def frozen(original: onnx.ModelProto, result: onnx.ModelProto) -> str:
    """What a user could choose before and cannot now: "" for nothing."""
    used = {name for node in _all(original.graph.node) for name in node.input}
    after = {entry.name: _open(entry) for entry in result.graph.input}
    for entry in original.graph.input:
        if entry.name not in after and entry.name in used:
            return "freezes inputs"
        if entry.name in after and _open(entry) != after[entry.name]:
            return "freezes sizes"
    return ""


def _open(entry: onnx.ValueInfoProto) -> list[bool]:
    return [not dim.HasField("dim_value") for dim in entry.type.tensor_type.shape.dim]


def row(path: Path, python: str, directory: str, budget: str, seconds: float) -> dict[str, Any]:
    """Nodes, bytes, fault and gain of each tool's file."""
    original = onnx.load(path)
    runs = runs_of(path)
    ours = Path(directory, "gehost.onnx")
    command = [sys.executable, "-m", "gehost", "optimize", str(path), "--for", "cpu", "-q"]
    command += ["-o", str(ours), "--budget", budget]
    subprocess.run(command, check=True, capture_output=True, cwd=directory)
    feeds = realistic_inputs(Runner(path)).largest
    cells: dict[str, Any] = {"original": _cell(path, "", path, ours, feeds, seconds)}
    cells["gehost"] = _cell(ours, fault(ours, original, runs), ours, ours, feeds, 0)
    for tool in PEERS:
        target = Path(directory, f"{tool}.onnx")
        command = [python, "-W", "ignore", str(_TOOL), tool, str(path), str(target)]
        try:
            ended = subprocess.run(
                command, check=False, capture_output=True, text=True, cwd=directory, timeout=300
            )
        except subprocess.TimeoutExpired:
            cells[tool] = {"fault": "no end in 300 s"}
            continue
        if ended.returncode or not target.exists():
            last = (ended.stderr.strip().splitlines() or ["no file"])[-1]
            cells[tool] = {"fault": "fails", "why": last[:300]}
            continue
        cells[tool] = _cell(target, fault(target, original, runs), target, ours, feeds, seconds)
    return {"model": path.stem, "cells": cells}


def _cell(
    path: Path, wrong: str, first: Path, ours: Path, feeds: Any, seconds: float
) -> dict[str, Any]:
    """Facts of a file; "gain": how many times as fast gehost's file is."""
    model = onnx.load(path)
    results = {"nodes": nodes(model), "bytes": model.ByteSize(), "fault": wrong}
    if seconds and not wrong:
        runtime = Runtime()
        pairs = measure_pairs(
            runtime.runner(str(first), feeds, 1),
            runtime.runner(str(ours), feeds, 1),
            seconds=seconds,
            pairs=7,
            most_pairs=15,
        )
        results |= {"gain": pairs.median, "interval": pairs.interval}
    return results


def worse(cells: dict[str, Any]) -> list[str]:
    """Where a right file of a peer is faster than gehost's, or as fast and smaller."""
    ours, results = cells["gehost"], []
    for tool in PEERS:
        cell = cells[tool]
        if cell["fault"]:
            continue
        low, high = cell["interval"]
        if high < 1 - _NOISE:
            results.append(f"{tool} is faster ({1 / cell['gain']:.2f} ×)")
        elif low <= 1 + _NOISE:
            for what in ("nodes", "bytes"):
                if cell[what] < ours[what]:
                    results.append(f"{tool} has fewer {what} ({cell[what]}, gehost {ours[what]})")
    return results


def _text(cell: dict[str, Any]) -> str:
    if "nodes" not in cell:
        return cell["fault"]
    if cell["fault"]:
        return f"{cell['nodes']} · {cell['bytes'] / 1000:.0f}, {cell['fault']}"
    gain = f" · {cell['gain']:.2f}" if "gain" in cell else ""
    return f"{cell['nodes']} · {cell['bytes'] / 1000:.0f}{gain}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("models", nargs="*", type=Path, help="files and folders; default: corpus")
    # each tool runs in a folder of its own
    parser.add_argument("--python", required=True, type=os.path.abspath, help="of the peers")
    parser.add_argument("--rows", type=Path, required=True, help="folder of results")
    parser.add_argument("--budget", default="20s", help="of gehost optimize")
    parser.add_argument("--seconds", type=float, default=3.0, help="of a comparison of latency")
    parser.add_argument("--minutes", type=float, default=0, help="begin no model after them")
    argument = parser.parse_args()
    argument.rows.mkdir(parents=True, exist_ok=True)

    started = time.monotonic()
    for path in [model.resolve() for model in argument.models or [CORPUS / "models"]]:
        for file in sorted(path.glob("*.onnx")) if path.is_dir() else [path]:
            result = argument.rows / f"{file.stem}.json"
            if result.exists():
                continue
            if argument.minutes and time.monotonic() - started > 60 * argument.minutes:
                break
            with tempfile.TemporaryDirectory() as directory:
                match = row(file, argument.python, directory, argument.budget, argument.seconds)
            result.write_text(json.dumps(match))
            print(file.stem, *worse(match["cells"]), sep="; ", file=sys.stderr, flush=True)
    print_table(argument.rows, argument.python)
    return 0


def print_table(rows: Path, python: str) -> None:
    """Print all rows as a table with versions, and where a peer's file is better."""
    request = subprocess.run(
        [python, str(_TOOL), "versions"], check=True, capture_output=True, text=True
    )
    versions = {"gehost": gehost.__version__, **json.loads(request.stdout)}
    versions["onnxruntime (here)"] = onnx_runtime().__version__
    print(", ".join(f"{name} {version}" for name, version in versions.items()))
    print(f"{platform.machine()}, one thread, {date.today()}\n")  # noqa: DTZ011 - for a reader
    columns = ("original", "gehost", *PEERS)
    print(f"| model | {' | '.join(columns)} |\n|---|{'---|' * len(columns)}")
    results = [json.loads(file.read_text()) for file in sorted(rows.glob("*.json"))]
    for item in results:
        cells = " | ".join(_text(item["cells"][column]) for column in columns)
        print(f"| {item['model']} | {cells} |")
    print()
    better = {item["model"]: worse(item["cells"]) for item in results}
    for model, lines in better.items():
        for line in lines:
            print(f"- {model}: {line}")
    print(f"\nNo right file of a peer is better in {sum(not x for x in better.values())}", end="")
    print(f" of {len(results)} models.")


if __name__ == "__main__":
    sys.exit(main())
