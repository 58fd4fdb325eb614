"""Latency of half-precision models on a GPU: ENABLE_ALL, gehost, its peers, torch.compile.

    python tools/benchmarks/cuda.py [--ort WHEEL] [--graphs DIRECTORY] [--only bert,decode] [--small]
    python tools/benchmarks/cuda_profile.py --work DIRECTORY --rows ROWS.json

Needs torch, onnx, transformers, onnxscript and an ONNX Runtime with CUDA (`--ort` unpacks a wheel
and puts it first on the path). Models come from `cuda_models.py`, or are read from `--graphs`.
Each row holds one session of every column at once and times them in turn, with inputs and outputs
bound on the device, so that a row is a set of pairs; `x` is the median of the ratios of
ENABLE_ALL to the column, `by` that of the ratios of ort_fusions to it. `diff` is the largest
difference to ENABLE_ALL's first output, by the largest value there. torch.compile is measured last,
in pairs of its own. Files in `--work` are used again; `--until` ends the rows after that many
seconds. `cuda_profile.py` names the kernels of the rows where ort_fusions is ahead. `--small` runs
tiny models on the CPU and shows only that the script works.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
import traceback
import zipfile
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")
sys.path.insert(0, str(Path(__file__).parent))


@dataclass(frozen=True)
class Row:
    family: str
    batch: int
    length: int = 0
    past: int = 0
    graph: bool = False
    """Also as a file of fixed sizes in a CUDA graph."""

    @property
    def label(self) -> str:
        if self.family == "vit":
            return f"ViT-B {self.batch} images"
        names = {"bert": "BERT-base", "llama": "Llama-like", "decode": "one token"}
        size = (
            f"{self.batch}×{self.length}" if not self.past else f"{self.batch} × past {self.past}"
        )
        return f"{names[self.family]} {size}"

    @property
    def stem(self) -> str:
        return f"{self.batch}.{self.length}.{self.past}"


ROWS = (
    Row("bert", 8, 512),
    Row("bert", 8, 128),
    Row("bert", 1, 128, graph=True),
    Row("vit", 32),
    Row("vit", 1, graph=True),
    Row("llama", 1, 512),
    Row("llama", 1, 2048),
    Row("llama", 4, 512),
    *(Row("decode", batch, 1, past) for batch in (1, 8) for past in (512, 2048, 8192)),
)
SMALL_ROWS = (Row("bert", 2, 16), Row("vit", 1), Row("llama", 2, 16), Row("decode", 2, 1, 16))
FAMILIES = ("bert", "vit", "llama", "decode")
PASSES = (
    "OrtSizesPass",
    "OrtProjectionPass",
    "OrtRotaryPass",
    "OrtRmsNormPass",
    "OrtSkipNormPass",
    "OrtSkipRmsNormPass",
    "OrtAttentionPass",
    "OrtCausalAttentionPass",
    "OrtPackedAttentionPass",
    "OrtBiasGeluPass",
    "OrtQuickGeluPass",
)
COLUMNS = ("ENABLE_ALL", "gehost", "ort_fusions", "genai", "gehost graph", "torch.compile")


# --- files: one process each -------------------------------------------------------------------


def write_original(family: str, graphs: Path | None, directory: Path, small: bool) -> str:
    import cuda_models
    import onnx

    name = "genai" if family == "genai" else family
    target = directory / f"{name}.onnx"
    source = graphs / f"{name}.onnx" if graphs else cuda_models.write(directory, name, small)
    model = onnx.load(source)
    cuda_models.fill(model)
    onnx.save(model, target)
    return f"{name}: {len(model.graph.node)} nodes"


def write_gehost(source: Path, target: Path, small: bool, fixed: dict[str, int]) -> str:
    command = [sys.executable, "-m", "gehost", "compile", str(source), "-o", str(target)]
    command += ["--vendors", "gehost:onnx", "--vendors", "gehost:onnxruntime"]
    for name in PASSES:
        command += ["--enable", name]
    if not small:
        command += ["--target", "cuda"]
    for name, size in fixed.items():
        command += ["--dim", f"{name}={size}"]
    start = time.perf_counter()
    run = subprocess.run(command, check=False, capture_output=True, text=True)
    if run.returncode:
        raise RuntimeError(f"gehost: exit code {run.returncode}: {run.stderr[-400:]}")
    return f"{target.name}: {time.perf_counter() - start:.1f} s"


def write_ort_fusions(source: Path, target: Path) -> str:
    import onnx_ir as ir
    from onnxscript.rewriter.ort_fusions import optimize_for_ort

    start = time.perf_counter()
    model = ir.load(source)
    optimized = optimize_for_ort(model)
    ir.save(optimized[0] if isinstance(optimized, tuple) else optimized, target)
    return f"{target.name}: {time.perf_counter() - start:.1f} s"


def operators(path: Path) -> dict[str, int]:
    """Count the fused operators of a file."""
    import onnx

    model = onnx.load(path, load_external_data=False)
    counts: dict[str, int] = {}
    for node in model.graph.node:
        if node.domain not in {"", "ai.onnx"} or node.op_type in {"Attention", "Softmax"}:
            counts[node.op_type] = counts.get(node.op_type, 0) + 1
    return {"nodes": len(model.graph.node), **dict(sorted(counts.items()))}


# --- sessions ----------------------------------------------------------------------------------


@dataclass
class Column:
    name: str
    run: Callable[[], object]
    output: Callable[[], np.ndarray]
    times: list[float] = field(default_factory=list)


def open_session(path: Path, small: bool, graph: bool = False, profile: str = "") -> Any:
    """Open a file on the device; `profile`: a prefix of ONNX Runtime's profiles."""
    import onnxruntime as ort

    options = ort.SessionOptions()
    options.log_severity_level = 3
    if profile:
        options.enable_profiling = True
        options.profile_file_prefix = profile
    cuda = ("CUDAExecutionProvider", {"enable_cuda_graph": "1"} if graph else {})
    providers = ["CPUExecutionProvider"] if small else [cuda, "CPUExecutionProvider"]
    session = ort.InferenceSession(path, options, providers=providers)
    if not small and "CUDAExecutionProvider" not in session.get_providers():
        raise RuntimeError("CUDA does not start: ONNX Runtime left it out")
    return session


def session_column(
    name: str, session: Any, feeds: dict[str, np.ndarray], small: bool, shared: bool, first_at: Any
) -> Column:
    """Bind one session's inputs and outputs on the device.

    Args:
        name: of the column.
        session: of ONNX Runtime.
        feeds: its inputs.
        small: on the CPU.
        shared: presents are written over pasts.
        first_at: where the first output goes, None: the session chooses.
    """
    import onnxruntime as ort

    device = "cpu" if small else "cuda"
    binding = session.io_binding()
    expected = {one.name for one in session.get_inputs()}
    values = {
        key: ort.OrtValue.ortvalue_from_numpy(value, device, 0)
        for key, value in feeds.items()
        if key in expected
    }
    for key, value in values.items():
        binding.bind_ortvalue_input(key, value)
    first, *others = [one.name for one in session.get_outputs()]
    rows = feeds.get("input_ids")
    if first_at is None:
        binding.bind_output(first, device)
    else:
        binding.bind_ortvalue_output(first, first_at)
    for other in others:
        past = other.replace("present", "past_key_values")
        if shared and rows is not None and past in values:
            binding.bind_ortvalue_output(other, values[past])
        else:
            binding.bind_output(other, device)

    def run() -> None:
        session.run_with_iobinding(binding)
        binding.synchronize_outputs()

    def output() -> np.ndarray:
        run()
        return binding.get_outputs()[0].numpy()

    return Column(name, run, output)


def torch_column(row: Row, feeds: dict[str, np.ndarray]) -> Column:
    import cuda_models
    import torch

    torch._dynamo.reset()
    model = cuda_models.module(row.family, cuda_models.shape_of(row.family, small=False)).cuda()
    tensors = [torch.from_numpy(value).cuda() for value in feeds.values()]
    compiled = torch.compile(model, dynamic=False)

    def run() -> Any:
        with torch.inference_mode():
            result = compiled(*tensors)
        torch.cuda.synchronize()
        return result

    def output() -> np.ndarray:
        result = run()
        return (result[0] if isinstance(result, tuple) else result).float().cpu().numpy()

    return Column("torch.compile", run, output)


def measure(columns: list[Column], seconds: float) -> None:
    """Time the columns in turn, in rounds, each round a few runs of one column."""
    for column in columns:
        for _ in range(5):
            column.run()
    start = time.perf_counter()
    columns[0].run()
    once = time.perf_counter() - start
    runs = max(1, min(20, round(0.03 / once)))
    deadline = time.perf_counter() + seconds
    rounds = 0
    while rounds < 5 or (time.perf_counter() < deadline and rounds < 60):
        for column in columns if rounds % 2 else columns[::-1]:
            start = time.perf_counter()
            for _ in range(runs):
                column.run()
            column.times.append((time.perf_counter() - start) / runs * 1e3)
        rounds += 1


def row_feeds(row: Row, name: str, small: bool) -> dict[str, np.ndarray]:
    """Inputs of a row for a column: the builder's loop keeps one buffer for past and present."""
    import cuda_models

    shape = cuda_models.shape_of(row.family, small)
    feeds = cuda_models.inputs(row.family, shape, row.batch, row.length, row.past)
    if name == "genai":
        mask = feeds["attention_mask"]
        feeds = cuda_models.inputs(row.family, shape, row.batch, row.length, row.past + 1)
        feeds["attention_mask"] = mask
    return feeds


def file_of(row: Row, name: str, directory: Path) -> Path:
    """The file of a column."""
    return (
        directory
        / {
            "ENABLE_ALL": f"{row.family}.onnx",
            "gehost": f"{row.family}.gehost.onnx",
            "ort_fusions": f"{row.family}.peer.onnx",
            "genai": "genai.onnx" if row.family == "decode" else "none",
            "gehost graph": f"{row.family}.{row.stem}.onnx",
            "torch.compile": "none",
        }[name]
    )


def row_columns(row: Row, names: Sequence[str], directory: Path, small: bool) -> list[Column]:
    """Open the columns of a row that there is a file for; a failure is printed."""
    import onnxruntime as ort

    columns: list[Column] = []
    for name in names:
        path = file_of(row, name, directory)
        compiles = name == "torch.compile" and not small
        if not compiles and not path.exists():
            continue
        try:
            feeds = row_feeds(row, name, small)
            if compiles:
                column = torch_column(row, feeds)
            else:
                place = None
                if (
                    name == "gehost graph"
                ):  # a captured graph writes to the addresses of its first run
                    plain = session_column(
                        name, open_session(path, small), feeds, small, False, None
                    )
                    device = "cpu" if small else "cuda"
                    place = ort.OrtValue.ortvalue_from_numpy(plain.output(), device, 0)
                session = open_session(path, small, graph=name == "gehost graph")
                column = session_column(name, session, feeds, small, name == "genai", place)
            column.run()
            columns.append(column)
        except Exception as error:  # noqa: BLE001 - a column that fails leaves the others
            print(f"{row.label}: {name}: {str(error)[:300]}", flush=True)
    return columns


def run_row(
    row: Row, names: Sequence[str], directory: Path, options: argparse.Namespace
) -> dict[str, Any]:
    """Measure columns of a row in turn; return milliseconds, ratios and differences."""
    columns = row_columns(row, names, directory, options.small)
    if not columns:
        return {"row": row.label}
    measure(columns, options.seconds)
    base = columns[0]
    peer = next((item for item in columns if item.name == "ort_fusions"), None)
    expected = base.output().astype(np.float32)
    scale = float(np.abs(expected).max()) or 1.0
    result: dict[str, Any] = {"row": row.label}
    for column in columns:
        entry = {"ms": round(median(column.times), 3), "x": ratio(base, column)}
        if peer is not None:
            entry["by"] = ratio(peer, column)
        if column.name not in {"torch.compile", "genai"}:  # other weights
            difference = np.abs(column.output().astype(np.float32) - expected).max()
            entry["diff"] = float(f"{difference / scale:.1e}")
        result[column.name] = entry
    print(json.dumps(result), flush=True)
    return result


def ratio(base: Column, column: Column) -> float:
    """How many times as fast as `base` a column is: the median of pairs."""
    pairs = zip(base.times, column.times, strict=True)
    return round(median(mine / other for mine, other in pairs), 3)


def table(results: list[dict[str, Any]]) -> str:
    lines = ["| model | " + " | ".join(COLUMNS) + " |", "|---" * (len(COLUMNS) + 1) + "|"]
    for result in results:
        cells = []
        for name in COLUMNS:
            one = result.get(name)
            cells.append("–" if one is None else f"{one['ms']:.2f} ({one['x']:.2f} ×)")
        lines.append(f"| {result['row']} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


# --- the whole run -----------------------------------------------------------------------------


def prepare(families: list[str], rows: list[Row], directory: Path, options: Any) -> None:
    """Write all files, a process each; none where the originals are there."""
    small = options.small
    names = [*families, *(["genai"] if "decode" in families else [])]
    if all((directory / f"{name}.onnx").exists() for name in names):
        return
    with ProcessPoolExecutor(max_workers=min(8, os.cpu_count() or 1)) as pool:
        jobs = {
            name: pool.submit(write_original, name, options.graphs, directory, small)
            for name in names
        }
        finish(jobs)
        jobs = {}
        for family in families:
            source = directory / f"{family}.onnx"
            target = directory / f"{family}.gehost.onnx"
            jobs[f"{family} gehost"] = pool.submit(write_gehost, source, target, small, {})
            peer = directory / f"{family}.peer.onnx"
            jobs[f"{family} ort_fusions"] = pool.submit(write_ort_fusions, source, peer)
        for row in rows:
            if row.graph:
                source = directory / f"{row.family}.onnx"
                target = directory / f"{row.family}.{row.stem}.onnx"
                fixed = {"batch": row.batch, **({"length": row.length} if row.length else {})}
                jobs[target.name] = pool.submit(write_gehost, source, target, small, fixed)
        finish(jobs)
    for path in sorted(directory.glob("*.onnx")):
        print(f"{path.name}: {operators(path)}", flush=True)


def finish(jobs: dict[str, Any]) -> None:
    for name, job in jobs.items():
        try:
            print(job.result(), flush=True)
        except Exception as error:  # noqa: BLE001 - a column that fails leaves the others
            print(f"{name}: {str(error)[:500]}", flush=True)
            traceback.print_exc(limit=2)


def versions(small: bool) -> str:
    import onnx
    import onnxruntime
    import torch

    card = "CPU" if small or not torch.cuda.is_available() else torch.cuda.get_device_name()
    return (
        f"{card}; onnxruntime {onnxruntime.__version__} {onnxruntime.get_available_providers()}, "
        f"torch {torch.__version__}, onnx {onnx.__version__}, {time.strftime('%Y-%m-%d')}"
    )


def use_runtime(wheel: Path | None, scratch: Path) -> None:
    """Put ONNX Runtime first on the path: a wheel, which is unpacked, or a folder."""
    if wheel and wheel.suffix == ".whl":
        zipfile.ZipFile(wheel).extractall(scratch / "ort")
        wheel = scratch / "ort"
    if wheel:
        sys.path.insert(0, str(wheel))


def run_rows(
    rows: list[Row], directory: Path, options: argparse.Namespace, start: float
) -> list[dict[str, Any]]:
    """Measure all rows, torch.compile after all others; the results are written after each."""
    results: dict[str, dict[str, Any]] = {}
    sessions = [name for name in options.columns if name != "torch.compile"]
    rounds = [sessions] if len(sessions) > 1 else []
    if "torch.compile" in options.columns and not options.small:
        rounds.append(["ENABLE_ALL", "torch.compile"])
    for names in rounds:
        for row in rows:
            if time.perf_counter() - start > options.until:
                print(f"{row.label}: {names[-1]} not measured, no time left", flush=True)
                continue
            measured = run_row(row, names, directory, options)
            results[row.label] = measured | results.get(row.label, {})
            if options.json:
                options.json.write_text(json.dumps(list(results.values()), indent=1))
    return list(results.values())


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ort", type=Path, help="wheel or folder of ONNX Runtime with CUDA")
    parser.add_argument("--graphs", type=Path, help="graphs that cuda_models.py wrote")
    parser.add_argument("--only", default=",".join(FAMILIES), help="families, by comma")
    parser.add_argument("--columns", default=",".join(COLUMNS), help="columns, by comma")
    parser.add_argument("--seconds", type=float, default=2.0, help="for each row")
    parser.add_argument("--json", type=Path, help="write the results here, too")
    parser.add_argument("--work", type=Path, help="folder for the models; kept and used again")
    parser.add_argument("--until", type=float, default=480.0, help="seconds: no row begins later")
    parser.add_argument("--small", action="store_true", help="tiny models on the CPU")
    options = parser.parse_args()
    start = time.perf_counter()
    options.columns = options.columns.split(",")
    families = options.only.split(",")
    rows = [row for row in (SMALL_ROWS if options.small else ROWS) if row.family in families]
    with tempfile.TemporaryDirectory() as scratch:
        use_runtime(options.ort, Path(scratch))
        directory = options.work or Path(scratch)
        directory.mkdir(parents=True, exist_ok=True)
        prepare(families, rows, directory, options)
        print(versions(options.small), flush=True)
        print(table(run_rows(rows, directory, options, start)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
