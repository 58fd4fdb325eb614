"""``make runtime-peers``: nodes, fused kernels and equality beside other optimizers, on the corpus' transformers.

Each peer's file runs with all of the runtime's optimizations, on the feeds of ``make runtime``, and is compared with the original
without any. It runs in the environment of ``make bench``; a peer that is not installed, or fails, is written as such.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import onnx
import onnxruntime

from gehost import Host, HostOptions
from gehost.verify import Runner, compare_outputs, load_feeds

from .__main__ import ATOL, ATTENTIONS, CORPUS, NORMS, ROOT, RTOL, kernels, variants

MODEL_TYPES = {"gpt2": "gpt2", "vit": "vit", "t5_encoder": "t5"}
"""What onnxruntime.transformers calls them; all others are optimized as bert."""


def _gehost(source: Path, target: Path) -> None:
    vendor = ROOT / "vendors" / "onnxruntime"
    with tempfile.TemporaryDirectory() as directory:
        Path(directory, "onnxruntime").symlink_to(vendor)
        names = [spec.name for spec in Host(HostOptions(vendors=[directory], plugins=False)).passes]
        options = HostOptions(vendors=[directory], plugins=False, enable=names)
        Host(options).compile(source, target)


def _transformers(source: Path, target: Path) -> None:
    from onnxruntime.transformers import optimizer  # type: ignore[import-untyped]

    kind = MODEL_TYPES.get(source.name.split(".")[0], "bert")
    made = optimizer.optimize_model(
        str(source), model_type=kind, num_heads=4, hidden_size=64, only_onnxruntime=False
    )
    made.save_model_to_file(str(target))


def _ort_fusions(source: Path, target: Path) -> None:
    import onnx_ir
    from onnxscript.rewriter.ort_fusions import optimize_for_ort

    model = onnx_ir.load(source)
    found = optimize_for_ort(model)
    onnx_ir.save(found[0] if isinstance(found, tuple) else found, target)


def _onnxslim(source: Path, target: Path) -> None:
    import onnxslim

    onnx.save(onnxslim.slim(str(source)), target)


def _onnxsim(source: Path, target: Path) -> None:
    import onnxsim

    onnx.save(onnxsim.simplify(str(source))[0], target)


def _enable_all(source: Path, target: Path) -> None:
    options = onnxruntime.SessionOptions()
    options.log_severity_level, options.optimized_model_filepath = 4, str(target)
    onnxruntime.InferenceSession(str(source), options, providers=["CPUExecutionProvider"])


TOOLS: dict[str, Callable[[Path, Path], None]] = {
    "gehost": _gehost,
    "onnxruntime.transformers": _transformers,
    "ort_fusions": _ort_fusions,
    "onnxslim": _onnxslim,
    "onnxsim": _onnxsim,
    "ENABLE_ALL": _enable_all,
}


def row(name: str, tool: str, directory: str) -> str:
    """Nodes, kernels of attention and of normalization in the profile, and the worst difference."""
    source, target = CORPUS / "models" / f"{name}.onnx", Path(directory, f"{name}.{tool}.onnx")
    try:
        TOOLS[tool](source, target)
        nodes = len(onnx.load(target, load_external_data=False).graph.node)
        original = Runner(source)
        options = onnxruntime.SessionOptions()
        options.log_severity_level = 4
        session = onnxruntime.InferenceSession(
            str(target), options, providers=["CPUExecutionProvider"]
        )
        names = [output.name for output in session.get_outputs()]
        files = sorted((CORPUS / "feeds").glob(f"{name}.[AB].npz"))
        wrong: list[str] = []
        worst, runs = 0.0, 0
        for what, feeds in (pair for file in files for pair in variants(load_feeds(file))):
            runs += 1
            found: dict[str, Any] = dict(zip(names, session.run(names, feeds), strict=True))
            compared = compare_outputs(original.run(feeds), found, rtol=RTOL, atol=ATOL)
            worst = max([worst, *(one.max_abs for one in compared)])
            wrong += [] if all(one.equal for one in compared) else [what]
        ran = kernels(target, load_feeds(files[0]), directory)
    except Exception as error:  # noqa: BLE001 - whatever a peer raises is its row
        return f"{type(error).__name__}: {error}".splitlines()[0][:100] + " | | | |"
    attention, norms = (sum(ran[op] for op in ops) for ops in (ATTENTIONS, NORMS))
    equal = (
        "all"
        if not wrong
        else f"{runs - len(wrong)} of {runs}; not: {', '.join(sorted(set(wrong)))}"
    )
    return f"{nodes} | {attention} | {norms} | {equal} | {worst:.1e}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("models", nargs="*", default=["bert.ts", "gpt2.dynopt", "llama.ts"])
    parser.add_argument("--tools", nargs="*", default=list(TOOLS), choices=list(TOOLS))
    given = parser.parse_args()
    print("| model | tool | nodes | attention | norms | equal feeds | worst difference |")
    print("|---|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as directory:
        for name in given.models:
            for tool in given.tools:
                print(f"| {name} | {tool} | {row(name, tool, directory)} |", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
