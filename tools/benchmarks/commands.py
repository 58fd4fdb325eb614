"""Whole commands, start-up included: what somebody types to optimize one model file."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from tools.benchmarks.processes import ROOT, Outcome, medians, run

_SCRIPTS = {
    "onnxscript": (
        "import sys, onnx_ir, onnxscript.optimizer as o; m = onnx_ir.load(sys.argv[1]); o.optimize(m); onnx_ir.save(m, sys.argv[2])"
    ),
    "onnxruntime": (
        "import sys, onnxruntime as r; o = r.SessionOptions(); o.log_severity_level = 3; o.optimized_model_filepath = sys.argv[2]; "
        "o.graph_optimization_level = r.GraphOptimizationLevel.ORT_ENABLE_EXTENDED; "
        "r.InferenceSession(sys.argv[1], o, providers=['CPUExecutionProvider'])"
    ),
    "onnxoptimizer": (
        "import sys, onnx, onnxoptimizer as o; onnx.save(o.optimize(onnx.load(sys.argv[1])), sys.argv[2])"
    ),
}
PEERS = ("onnxslim", "onnxsim", "onnxscript", "onnxruntime", "onnxoptimizer")
REQUIRED = ("onnxslim", "onnxsim", "onnxscript")
"""Those that gehost is to stay below on every model."""


@dataclass
class CorpusModel:
    """A model and what each tool took for it."""

    nodes: int
    tools: Mapping[str, Outcome]


def installed(package: str) -> bool:
    return find_spec(package) is not None


def command(tool: str, model: str, out: str) -> list[str]:
    if tool == "gehost":
        return [
            sys.executable,
            "-m",
            "gehost",
            "compile",
            model,
            "-o",
            out,
            "--vendors",
            str(ROOT / "vendors"),
        ]
    if tool in _SCRIPTS:
        return [sys.executable, "-c", _SCRIPTS[tool], model, out]
    script = Path(sys.executable).with_name(tool)
    return [str(script) if script.exists() else shutil.which(tool) or tool, model, out]


def measure_corpus(
    corpus: Path,
    names: Sequence[str],
    tools: Sequence[str],
    scratch: Path,
    repeat: int,
    limit: float,
) -> dict[str, CorpusModel]:
    """Each model of a corpus through each tool."""
    measured: dict[str, CorpusModel] = {}
    for entry in json.loads((corpus / "manifest.json").read_text(encoding="utf-8")):
        if names and entry["name"] not in names:
            continue
        model = str(corpus / entry["file"])

        def one(tool: str, model: str = model) -> Outcome:
            if tool != "gehost" and not installed(tool):
                return Outcome(failure="not installed")
            outcome = run(command(tool, model, str(scratch / "out.onnx")), limit)
            print(
                f"{Path(model).stem}, {tool}: {outcome.failure or f'{outcome.seconds:.2f} s'}",
                file=sys.stderr,
                flush=True,
            )
            return outcome

        measured[entry["name"]] = CorpusModel(entry["nodes"], medians(tools, one, repeat))
    return measured


def goal_of(nodes: int, tool: str) -> float | None:
    """How many times a tool's CPU time gehost may take; None where there is no goal."""
    if tool in REQUIRED:
        return 1.0
    if tool == "onnxruntime":
        return 1.0 if nodes >= 2000 else 3.0 if nodes < 500 else None
    return None


def measure_external(
    model: Path, tools: Sequence[str], scratch: Path, repeat: int, limit: float
) -> dict[str, Outcome]:
    """A model whose weights lie in a file beside it; the output goes beside it too, so that nothing need be copied."""
    out = model.with_name("compiled.onnx")
    dumps = scratch / "dumps"

    def one(tool: str) -> Outcome:
        name, _, dumped = tool.partition(" ")
        if name == "gehost":
            task = command("gehost", str(model), str(out))
            outcome = run([*task, "--dump", str(dumps)] if dumped else task, limit)
        elif not installed(name):
            return Outcome(failure="not installed")
        else:
            result = scratch / "result.json"
            task = [
                sys.executable,
                "-m",
                "tools.benchmarks.worker",
                "onnxscript.rewrite",
                str(model),
                str(out),
                str(result),
            ]
            outcome = run(
                task if name == "onnxscript" else command(name, str(model), str(out)), limit
            )
        copied = sum(path.stat().st_size for path in model.parent.glob("compiled*")) - (
            out.stat().st_size if out.exists() else 0
        )
        if copied:
            outcome.note = f"writes {copied / 2**30:.1f} GiB of weights"
        for path in model.parent.glob("compiled*"):
            path.unlink()
        shutil.rmtree(dumps, ignore_errors=True)
        return outcome

    return medians(tools, one, repeat)
