"""One model in a worker process: compile, verify, measure, and the result as a record."""

from __future__ import annotations

import errno
import glob
import hashlib
import itertools
import json
import os
import platform
import shlex
import time
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

from gehost import (
    CompileContext,
    GehostError,
    Host,
    HostOptions,
    NumbersDifferError,
    OutputError,
    Report,
    RewriteRecorder,
    hookimpl,
    optimizing,
    outcome,
    verify,
    write_report,
)

Record = dict[str, Any]
"""A line of ``zoo.jsonl``; ``measured`` holds values that differ from run to run."""

LOST = 7
"""Exit code of a model whose process died or exceeded a limit."""


@dataclass(frozen=True)
class Task:
    """Everything that a worker needs to compile one model."""

    name: str
    path: str
    directory: str
    """Of the run; ``output`` and ``report`` are relative to it."""
    output: str
    report: str | None
    options: str
    """``HostOptions`` as JSON, without dims and feeds."""
    dims: dict[str, int]
    feeds: str | None
    hashes: dict[str, str]
    optimize: str = ""
    """Target, budget and whether to measure, as JSON; "": compile."""

    def record(self, status: str, exit_code: int, error: str) -> Record:
        """The beginning of this model's result."""
        row: Record = {"model": self.name, "status": status, "exit_code": exit_code}
        if error:
            row |= {"error": error, "replay": self.replay()}
        return {**row, "hashes": self.hashes}

    def replay(self) -> str:
        """The command line that compiles this model alone."""
        options = json.loads(self.options)
        if self.optimize:
            return self._replay_of_optimize(options, json.loads(self.optimize))
        words = ["gehost", "compile", self.path, "-o", "out.onnx"]
        for flag in ("vendors", "enable", "disable", "only", "assume"):
            words += [word for value in options[flag] for word in (f"--{flag}", value)]
        words += [w for k, v in options["settings"].items() for w in ("--set", f"{k}={v}")]
        words += [w for name, size in self.dims.items() for w in ("--dim", f"{name}={size}")]
        if options["fusion_switch_file"]:
            words += ["--fusion-switch-file", options["fusion_switch_file"]]
        for flag in ("opset", "rewrite_limit", "rtol", "atol"):
            if options[flag] is not None:
                words += [f"--{flag.replace('_', '-')}", str(options[flag])]
        for flag in ("inline_functions", "keep_going", "verify", "special_values"):
            words += [f"--{flag.replace('_', '-')}"] if options[flag] else []
        words += [] if options["provider"] == "cpu" else ["--provider", options["provider"]]
        words += [] if options["cleanup"] else ["--no-cleanup"]
        words += ["--feeds", self.feeds] if self.feeds else []
        words += [word for value in options["ort_libraries"] for word in ("--ort-library", value)]
        return shlex.join(words)

    def _replay_of_optimize(self, options: Record, chosen: Record) -> str:
        words = ["gehost", "optimize", self.path, "-o", "out.onnx", "--for", chosen["target"]]
        words += ["--budget", f"{chosen['budget']:g}s"] if chosen["measured"] else ["--no-measure"]
        for flag in ("vendors", "enable", "disable", "assume"):
            words += [word for value in options[flag] for word in (f"--{flag}", value)]
        words += [w for k, v in options["settings"].items() for w in ("--set", f"{k}={v}")]
        words += [w for name, size in self.dims.items() for w in ("--dim", f"{name}={size}")]
        words += [] if options["opset"] is None else ["--opset", str(options["opset"])]
        return shlex.join(words)


_compiled = itertools.count()
"""Models that this process began."""


class DiskFullError(OutputError):
    """No space is left for results; the run stops and can be resumed."""


class _Watcher:
    """Keeps the report of the compile that runs, also where it fails."""

    def __init__(self) -> None:
        self.report: Report | None = None

    @hookimpl
    def gehost_compile_started(self, context: CompileContext) -> None:
        self.report = context.report


@lru_cache(maxsize=8)
def _host(options: str, vendors: str, *, recorded: bool) -> tuple[Host, _Watcher]:
    """The warm host of these options; ``vendors`` is the hash of their files."""
    del vendors
    watcher = _Watcher()
    plugins: list[tuple[str, Any]] = [("watcher", watcher)]
    if recorded:
        plugins.append(("recorder", RewriteRecorder()))
    return Host(HostOptions(**json.loads(options)), plugins, own_process=True), watcher


def warm_up(task: Task) -> int:
    """Import and load everything that a run needs; returns the id of the process."""
    if json.loads(task.options)["verify"] or task.optimize:
        with suppress(ImportError):
            verify.onnx_runtime()
    with suppress(GehostError):  # the first model reports it
        _host(task.options, task.hashes["vendors"], recorded=task.report is not None)
    return os.getpid()


def compile_model(task: Task) -> Record:
    """Compile a model and give its record.

    Raises:
        DiskFullError: there is no space for the output.
    """
    output = Path(task.directory, "models", task.output)
    report: Report | None = None
    optimized: optimizing.OptimizeReport | None = None
    status, code, error = "done", 0, ""
    watcher = _Watcher()
    first = next(_compiled) == 0
    _reset_peak()
    start, cpu = time.perf_counter(), time.process_time()
    try:
        _clear(output)
        if task.optimize:
            optimized = _optimized(task, output)
            report = optimized.compile or Report(model=task.path)
        else:
            host, watcher = _host(
                task.options, task.hashes["vendors"], recorded=task.report is not None
            )
            watcher.report = None
            start, cpu = time.perf_counter(), time.process_time()
            report = host.with_options(dims=task.dims, feeds=task.feeds).compile(task.path, output)
        if report.exit_code:
            status, code, error = "failed", report.exit_code, report.problems[0]
    except NumbersDifferError as differ:
        _raise_if_full(differ)  # the refused model was not kept
        status, code, error, report = "differs", differ.exit_code, str(differ), differ.report
    except OSError as failure:
        _raise_if_full(failure)
        status, code, error = "failed", OutputError.exit_code, str(failure)
        report = watcher.report
    except (Exception, KeyboardInterrupt, SystemExit) as failure:  # noqa: BLE001 - see below
        # a fault of gehost, or an author's exit, ends this model alone; Ctrl-C is not sent here
        _raise_if_full(failure)
        status, report = "failed", watcher.report
        code, error = outcome(failure)
    measured: Record = {
        "seconds": round(time.perf_counter() - start, 6),
        "cpu": round(time.process_time() - cpu, 6),
        "memory": _peak(),
        "first": first,
        "worker": f"{platform.node()}:{os.getpid()}",
    }
    # results stay right where the directory moves, and compare with those of another
    row = task.record(status, code, error.replace(os.path.join(task.directory, ""), ""))
    if report is not None:
        row |= _facts(report)
        measured["phases"] = {name: round(value, 6) for name, value in report.seconds.items()}
    if optimized is not None:
        row |= {
            "nodes_before": optimized.before.nodes,
            "nodes_after": optimized.after.nodes,
            "numbers": {"equal": True, "feeds": 1, "summary": optimized.numbers},
        }
        if optimized.gain is not None:
            measured["gain"] = round(optimized.gain.large.median, 4)
    if status != "differs" and output.exists():
        row |= _file_facts(output)
    if task.report is not None:
        shown = report or Report(model=task.path, options=json.loads(task.options))
        _write_page(Path(task.directory, "reports", task.report), shown, error if code else "")
        row["report"] = task.report
    return {**row, "measured": measured}


def _optimized(task: Task, output: Path) -> optimizing.OptimizeReport:
    """Optimize a model instead of compiling it."""
    chosen, options = json.loads(task.optimize), json.loads(task.options)
    return optimizing.optimize_file(
        task.path,
        optimizing.OptimizeOptions(
            target=chosen["target"],
            output=os.fspath(output),
            measured=chosen["measured"],
            budget=chosen["budget"],
            feeds=task.feeds,
        ),
        HostOptions(**{name: options[name] for name in _OPTIMIZED}, dims=task.dims),
    )[0]


_OPTIMIZED = ("vendors", "enable", "disable", "assume", "settings", "opset")


def _facts(report: Report) -> Record:
    """Return the record of a compile, as far as it came."""
    passes: dict[str, Record] = {}
    for record in report.passes:
        if record.matched or record.status == "failed":
            row = passes.setdefault(record.name, {"matched": 0, "replaced": 0, "refused": {}})
            row["matched"] += record.matched
            row["replaced"] += record.replaced
            for key, count in record.rejected.items():
                row["refused"][key] = row["refused"].get(key, 0) + count
    facts: Record = {
        "nodes_before": report.nodes_before,
        "nodes_after": report.nodes_after,
        "rewrites": sum(record.replaced for record in report.passes),
        "passes": passes,
    }
    if report.verify:
        facts["numbers"] = {key: report.verify[key] for key in ("equal", "feeds", "summary")}
    return facts


def _file_facts(output: Path) -> Record:
    """Return size and hash of the written files."""
    with open(output, "rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    size = sum(file.stat().st_size for file in (output, *_data_of(output)))
    return {"bytes": size, "sha256": digest}


def _clear(output: Path) -> None:
    """Remove an earlier run's files in the place of an output."""
    output.parent.mkdir(parents=True, exist_ok=True)
    refused = output.with_name(f"{output.name.removesuffix('.onnx')}.refused.onnx")
    for path in (output, refused):
        for file in (path, *_data_of(path)):
            file.unlink(missing_ok=True)


def _data_of(output: Path) -> list[Path]:
    """Return the files of weights beside an output."""
    return list(output.parent.glob(f"{glob.escape(output.name)}.*.data"))


def _write_page(path: Path, report: Report, error: str) -> None:
    report.error = error
    report.versions = {name: version(name) for name in ("gehost", "onnx", "numpy")}
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_report(str(path), report)
    except (OutputError, OSError) as failure:
        _raise_if_full(failure)
        raise


def _raise_if_full(failure: BaseException) -> None:
    error: BaseException | None = failure
    while error is not None:
        if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise DiskFullError(f"{failure}; --resume continues when there is space") from failure
        error = error.__cause__


def _reset_peak() -> None:
    """Start measuring the process's largest resident size (Linux)."""
    with suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5", encoding="ascii")


def _peak() -> int | None:
    """The largest resident size since ``_reset_peak``, in bytes; None where it is not known."""
    with suppress(OSError):
        for line in Path("/proc/self/status").read_text(encoding="ascii").splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    return None
