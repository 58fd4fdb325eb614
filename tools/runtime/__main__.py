"""``make runtime``: the passes of ``vendors/onnxruntime`` on the corpus: numbers, kernels, nodes.

Each model is compiled with the vendor alone and runs with all of the runtime's optimizations; the original runs with none.
Feeds: those of the corpus; with the first positions masked; with one row masked throughout; of length 1; of batch 1. The
kernels are counted in the runtime's profile. Exit code 1 where a number differs, or an attention, a normalization or an activation is left in parts.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import onnx
import onnxruntime

from gehost import Host, HostOptions
from gehost.verify import Runner, compare_outputs, load_feeds

ROOT = Path(__file__).parents[2]
CORPUS = ROOT.parent / "shared" / "corpus"
NORMS = (
    *("SkipLayerNormalization", "LayerNormalization"),
    *("SkipSimplifiedLayerNormalization", "SimplifiedLayerNormalization"),
)
ATTENTIONS = ("MultiHeadAttention", "Attention", "GroupQueryAttention")
PARTS = ("Softmax", "Sqrt", "Erf", "Tanh")
"""What an unfused attention, normalization or activation leaves."""
RTOL, ATOL = 1e-3, 1e-4


def variants(feeds: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Feeds on which a wrong mask shows, by what they are."""
    yield "as given", feeds
    if "attention_mask" in feeds:
        length = feeds["attention_mask"].shape[1]
        padded = feeds["attention_mask"].copy()
        padded[0, : max(1, length // 3)] = 0
        yield "first positions masked", {**feeds, "attention_mask": padded}
        nothing = feeds["attention_mask"].copy()
        nothing[-1, :] = 0
        yield "a row masked throughout", {**feeds, "attention_mask": nothing}
    if "input_ids" in feeds:
        now = feeds["input_ids"].shape[1]
        short = dict(feeds)
        for name in ("input_ids", "token_type_ids", "attention_mask"):
            if name in short:  # the mask covers the past, too
                short[name] = short[name][:, : short[name].shape[1] - now + 1]
        yield "length 1", short
    yield "batch 1", {name: array[:1] for name, array in feeds.items()}


def kernels(path: Path, feeds: dict[str, Any], directory: str) -> Counter[str]:
    """The operators that the runtime runs."""
    options = onnxruntime.SessionOptions()
    options.enable_profiling, options.log_severity_level = True, 4
    options.profile_file_prefix = str(Path(directory, "profile"))
    session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    session.run(None, feeds)
    events = json.loads(Path(session.end_profiling()).read_text())
    return Counter(
        event["args"]["op_name"] for event in events if "op_name" in event.get("args", {})
    )


def check(name: str, host: Host, directory: str) -> tuple[list[str], dict[str, Any]]:
    """Problems of a model, and its row of the table."""
    source, target = CORPUS / "models" / f"{name}.onnx", Path(directory, f"{name}.onnx")
    report = host.compile(source, target)
    onnx.checker.check_model(onnx.load(target), full_check=False)
    layers = sum(node.op_type == "Softmax" for node in onnx.load(source).graph.node)
    original = Runner(source)
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(str(target), options, providers=["CPUExecutionProvider"])
    names = [output.name for output in session.get_outputs()]
    problems: list[str] = []
    worst, runs = 0.0, 0
    files = sorted((CORPUS / "feeds").glob(f"{name}.[AB].npz"))
    for file in files:
        for what, feeds in variants(load_feeds(file)):
            runs += 1
            expected = original.run(feeds)
            results = dict(zip(names, session.run(names, feeds), strict=True))
            for one in compare_outputs(expected, results, rtol=RTOL, atol=ATOL):
                worst = max(worst, one.max_abs)
                if not one.equal:
                    problems.append(f"{file.stem}, {what}: {one.place}: {one.a} and {one.b}")
    ran = kernels(target, load_feeds(files[0]), directory)
    rest = {op: ran[op] for op in PARTS if ran[op]}
    fused = sum(ran[op] for op in ATTENTIONS)
    if rest or fused != layers:
        problems.append(f"kernels: {fused} of {layers} layers; left: {rest}")
    reference = Runner(target, engine="reference").run(load_feeds(files[0]))
    for one in compare_outputs(original.run(load_feeds(files[0])), reference, rtol=RTOL, atol=ATOL):
        if not one.equal:
            problems.append(f"body in onnx.reference: {one.place}: {one.a} and {one.b}")
    row = {
        "nodes": (report.nodes_before, report.nodes_after),
        "attention": f"{fused} of {layers}: " + ", ".join(op for op in ATTENTIONS if ran[op]),
        "norms": ", ".join(f"{ran[op]} {op}" for op in NORMS if ran[op]),
        "feeds": runs,
        "worst": worst,
    }
    return problems, row


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("models", nargs="*", help="names as in the corpus; all transformers else")
    parser.add_argument("--opset", type=int, help="raise the models to this opset first")
    parser.add_argument("--disable", action="append", default=[], metavar="PASS")
    parser.add_argument("--assume", action="append", default=[], metavar="NAME")
    argument = parser.parse_args()
    named = argument.models or [
        entry["name"]
        for entry in json.loads((CORPUS / "manifest.json").read_text())
        if not entry["name"].startswith(("light_", "resnet", "mobilenet"))
    ]
    with tempfile.TemporaryDirectory() as directory:
        (vendors := Path(directory, "vendors")).mkdir()
        (vendors / "onnxruntime").symlink_to(ROOT / "vendors" / "onnxruntime")
        host = Host(HostOptions(vendors=[vendors], plugins=False))
        host = Host(
            HostOptions(
                vendors=[vendors],
                plugins=False,
                enable=[spec.name for spec in host.passes if spec.name not in argument.disable],
                opset=argument.opset,
                assume=argument.assume,
            )
        )
        failed = 0
        print(
            "| model | nodes | attention | norms | feeds | worst difference |\n|---|---|---|---|---|---|"
        )
        for name in named:
            problems, row = check(name, host, directory)
            before, after = row["nodes"]
            print(
                f"| {name} | {before} → {after} | {row['attention']} | {row['norms']} | {row['feeds']} | {row['worst']:.1e} |",
                flush=True,
            )
            for problem in problems:
                print(f"  {name}: {problem}")
            failed += bool(problems)
    return int(bool(failed))


if __name__ == "__main__":
    sys.exit(main())
