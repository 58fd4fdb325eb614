"""Which kernels cost the time of a row of `cuda.py`, for gehost and ort_fusions.

    python tools/benchmarks/cuda_profile.py --work DIRECTORY --rows ROWS.json [--all] [--json FILE]

Each launch waits for its kernel here (CUDA_LAUNCH_BLOCKING), so that ONNX Runtime's profile has the
time on the device of each node; the sums by operator, in microseconds of one run, hold some ten
microseconds of waiting for each launch. torch's profiler adds the kernels by name, without waiting. Rows: those
in which gehost is more than 3 % behind ort_fusions, or all.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

os.environ["CUDA_LAUNCH_BLOCKING"] = "1"
sys.path.insert(0, str(Path(__file__).parent))

import cuda

RUNS = 10
BEHIND = 0.97


def by_operator(path: Path, scratch: Path, row: cuda.Row, name: str, small: bool) -> dict[str, Any]:
    """Microseconds and nodes of one run by operator, from ONNX Runtime's profile."""
    session = cuda.open_session(path, small, profile=str(scratch / "run"))
    feeds = cuda.row_feeds(row, name, small)
    column = cuda.session_column(name, session, feeds, small, name == "genai", None)
    for _ in range(RUNS):
        column.run()
    profile = Path(session.end_profiling())
    events = json.loads(profile.read_text())
    nodes = [
        event
        for event in events
        if event.get("cat") == "Node" and event["name"].endswith("_kernel_time")
    ]
    runs: dict[str, list[dict[str, Any]]] = {}
    for event in nodes:
        runs.setdefault(event["name"], []).append(event)
    times: Counter[str] = Counter()
    counts: Counter[str] = Counter()
    for run in runs.values():
        args = run[0]["args"]
        operator = args["op_name"] + ("" if args["provider"].startswith("CUDA") else " (CPU)")
        # the first runs choose algorithms and allocate
        times[operator] += sorted(event["dur"] for event in run)[len(run) // 2]
        counts[operator] += 1
    items = {op: [time, counts[op]] for op, time in times.most_common()}
    return {"us": sum(times.values()), "nodes": sum(counts.values()), "operators": items}


def by_kernel(path: Path, row: cuda.Row, name: str, small: bool) -> dict[str, Any]:
    """Microseconds and launches of one run by kernel, from torch's profiler."""
    import torch

    session = cuda.open_session(path, small)
    feeds = cuda.row_feeds(row, name, small)
    column = cuda.session_column(name, session, feeds, small, name == "genai", None)
    for _ in range(3):
        column.run()
    times: Counter[str] = Counter()
    counts: Counter[str] = Counter()
    with tempfile.TemporaryDirectory() as folder:
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
            for _ in range(RUNS):
                column.run()
        trace = Path(folder, "trace.json")
        profile.export_chrome_trace(str(trace))
        for event in json.loads(trace.read_text())["traceEvents"]:
            if event.get("cat") in {"kernel", "gpu_memcpy", "gpu_memset"}:
                times[event["name"][:120]] += event["dur"]
                counts[event["name"][:120]] += 1
    items = {
        kernel: [round(time / RUNS, 1), counts[kernel] / RUNS]
        for kernel, time in times.most_common(25)
    }
    return {
        "us": round(sum(times.values()) / RUNS, 1),
        "launches": sum(counts.values()) / RUNS,
        "kernels": items,
    }


def is_behind(result: dict[str, Any]) -> bool:
    return "ort_fusions" in result and result.get("gehost", {}).get("by", 1.0) < BEHIND


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--work", type=Path, required=True, help="folder with the models")
    parser.add_argument("--rows", type=Path, required=True, help="results of cuda.py")
    parser.add_argument("--ort", type=Path, help="wheel or folder of ONNX Runtime with CUDA")
    parser.add_argument("--json", type=Path, help="write the sums here, too")
    parser.add_argument("--all", action="store_true", help="all rows")
    parser.add_argument("--small", action="store_true", help="the tiny models, on the CPU")
    options = parser.parse_args()
    results = {load["row"]: load for load in json.loads(options.rows.read_text())}
    rows = cuda.SMALL_ROWS if options.small else cuda.ROWS
    sums: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as scratch:
        cuda.use_runtime(options.ort, Path(scratch))
        for row in rows:
            result = results.get(row.label, {})
            if not (options.all or is_behind(result)):
                continue
            for name in ("gehost", "ort_fusions", "genai"):
                if name not in result:
                    continue
                path = cuda.file_of(row, name, options.work)
                entry = sums.setdefault(row.label, {}).setdefault(name, {})
                try:
                    entry |= by_operator(path, Path(scratch), row, name, options.small)
                    entry["by kernel"] = by_kernel(path, row, name, options.small)
                except Exception as error:  # noqa: BLE001 - a profile that fails leaves the others
                    entry["error"] = str(error)[:300]
                print(row.label, name, json.dumps(entry)[:1200], flush=True)
                if options.json:
                    options.json.write_text(json.dumps(sums, indent=1))
    print(f"{len(sums)} of {len(rows)} rows profiled")
    return 0


if __name__ == "__main__":
    sys.exit(main())
