"""Count and compare what ``tools.families.export`` wrote: attention and rotary embeddings.

    python -m tools.families DIR [NAME...] [--all-vendors] [--opset N]

Sizes that the caller means to be one, as all pasts, and that the exporter names apart, are assumed to
be equal; that none is 0 is assumed where only that describes more. For each file: Softmax operators
that a description covers, recomputed in float64; those that the vendor onnxruntime and the passes of
gehost_semantic's README replace; rotations and the operators RotaryEmbedding; the largest difference
of the outputs in runs with masks to the right, left, at random, of one row and of all, with batches
0, 1 and 3, lengths 1 and 13 (twice the example's and one), pasts of 0, 3 and 11, and as exported.
Exit code 1 where a number is wrong.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import onnx
import onnxruntime as ort

from gehost import GehostError, Host, HostOptions, Refused, infer_model
from gehost.ir.model import Model
from gehost.verify import compare, compare_outputs
from gehost_semantic import AttentionFinder, Views
from gehost_semantic.attention import Attention
from gehost_semantic.rotary import rotations
from tools.runtime.half import ROOT
from tools.semantic.check import differences

Feed: TypeAlias = dict[str, np.ndarray[Any, Any]]
KERNELS = ("MultiHeadAttention", "Attention", "GroupQueryAttention", "PackedMultiHeadAttention")
NO_ATTENTION = "probabilities: no product reads them"
"""Of a Softmax that picks experts, or whose result is an output."""
RTOL, ATOL = 1e-3, 1e-4
LARGEST = 1e-4
"""Relative, of a description recomputed in float64: untrained davit and fastvit have 1e-5 and 3e-5."""
README = ROOT / "plugins" / "semantic" / "README.md"
HEAD = (
    "| export | attention | described | kernels | FlashAttention | rotations | RotaryEmbedding | Rotary "
    "| AddRmsNorm | runs | difference |"
)


@dataclass
class Row:
    """What is printed of a file."""

    described: int = 0
    refusals: list[str] = field(default_factory=list[str])
    recomputed: float | str = 0.0
    kernels: Counter[str] = field(default_factory=Counter[str])
    npu: Counter[str] = field(default_factory=Counter[str])
    rotations: int = 0
    runs: int = 0
    worst: float = 0.0
    wrong: list[str] = field(default_factory=list[str])
    notes: list[str] = field(default_factory=list[str])

    @property
    def layers(self) -> int:
        return self.described + sum(NO_ATTENTION not in refusal for refusal in self.refusals)

    @property
    def fused(self) -> int:
        return sum(self.kernels[op] for op in KERNELS)

    def line(self, name: str) -> str:
        """Return the row of the table."""
        cells = (
            *(name, self.layers, self.described, self.fused, self.npu["FlashAttention"]),
            *(self.rotations, self.kernels["RotaryEmbedding"], self.npu["Rotary"]),
            *(self.npu["AddRmsNorm"], self.runs, f"{self.worst:.0e}"),
        )
        return f"| {' | '.join(map(str, cells))} |"


def feeds(path: Path) -> Iterator[tuple[str, Feed]]:
    """Yield inputs of other sizes, and masks, from the example that was exported."""
    example, axes = exported(path)
    sizes = {
        name: example[of].shape[int(axis)] for of, own in axes.items() for axis, name in own.items()
    }
    long = {name: 2 * size + 1 for name, size in sizes.items()} | {"batch": 3}
    runs: list[tuple[str, dict[str, int]]] = [("long", long), ("batch 1", long | {"batch": 1})]
    if set(sizes) - {"batch"}:
        runs.append(("length 1", dict.fromkeys(sizes, 1) | {"batch": 3}))
    if "past" in sizes:
        runs = [
            (f"{what} past {past}", {**run, "past": past})
            for what, run in runs
            for past in (0, 3, 11)
        ]
    for what, run in [*runs, ("batch 0", long | {"batch": 0})]:
        if "past" in run:
            run["past + length"] = run["past"] + run["length"]
        feed = {name: _resized(array, axes[name], run) for name, array in example.items()}
        masks = [name for name in feed if "mask" in name and feed[name].ndim == 2]
        if not masks:
            yield what, feed
            continue
        for kind, mask in _masks(*feed[masks[0]].shape):
            yield (
                f"{what} {kind}",
                feed
                | {name: mask[:, : feed[name].shape[1]].astype(feed[name].dtype) for name in masks},
            )
    yield "as exported", example  # traces may have its sizes alone


def exported(path: Path) -> tuple[Feed, dict[str, dict[str, str]]]:
    """Return the example's inputs, and the caller's names of their open axes."""
    with np.load(path) as file:
        example = {name: file[name] for name in file.files if name != "axes"}
        return example, json.loads(str(file["axes"]))


def equalities(proto: onnx.ModelProto, path: Path) -> list[str]:
    """Return what ``--assume`` says of sizes of one name for which the exporter has several."""
    axes = exported(path)[1]
    names: dict[str, list[str]] = {}
    for value in proto.graph.input:
        for axis, name in axes.get(value.name, {}).items():
            own = value.type.tensor_type.shape.dim[int(axis)].dim_param
            if own and own not in names.setdefault(name, []):
                names[name].append(own)
    facts = [f"{name} == {own[0]}" for own in names.values() for name in own[1:]]
    total, parts = names.get("past + length"), (names.get("past"), names.get("length"))
    if total and all(parts) and total[0] != "past + length":
        facts.append(f"{total[0]} == {' + '.join(part[0] for part in parts if part)}")
    return facts


def _resized(array: Any, axes: Mapping[str, str], sizes: Mapping[str, int]) -> Any:
    for axis, name in axes.items():
        places = np.arange(sizes[name]) % max(1, array.shape[int(axis)])
        array = np.take(array, places, axis=int(axis))
    return array


def _masks(batch: int, length: int) -> Iterator[tuple[str, Any]]:
    whole = np.ones((batch, length), np.int64)
    yield "no mask", whole
    part = max(1, length // 3)
    for what, places in (
        ("right", slice(length - part, None)),
        ("left", slice(0, part)),
        ("row", slice(None)),
    ):
        mask = whole.copy()
        mask[-1:, places] = 0
        yield what, mask
    yield "random", np.random.default_rng(0).integers(0, 2, whole.shape)
    yield "all", np.zeros_like(whole)


def session(model: onnx.ModelProto, *, plain: bool) -> ort.InferenceSession:
    options = ort.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    if plain:
        options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    return ort.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )


@dataclass(frozen=True)
class Way:
    """How the exports are compiled."""

    all_vendors: bool = False
    """Beside the vendor onnxruntime."""
    opset: int | None = None


def hosts(directory: Path, assume: Sequence[str], way: Way) -> dict[str, Host]:
    """Return a host with all passes for ONNX Runtime, and one with the README's pass."""
    passes = directory / "npu" / "npu" / "custom_fusion_passes"
    passes.mkdir(parents=True)
    for name in ("flash_attention", "add_rms_norm", "rotary"):
        code = README.read_text().split(f'{name}.py"\n', 1)[1].split("```", 1)[0]
        (passes / f"{name}.py").write_text(code)
    (directory / "ort").mkdir()
    (directory / "ort" / "onnxruntime").symlink_to(ROOT / "vendors" / "onnxruntime")
    every = Host(HostOptions(vendors=[directory / "ort"], plugins=False)).passes
    names = [spec.name for spec in every if spec.vendor == "onnxruntime"]
    places = [ROOT / "vendors"] if way.all_vendors else [directory / "ort"]
    common = HostOptions(plugins=False, assume=assume, opset=way.opset)
    return {
        "ort": Host(replace(common, vendors=places, enable=names)),
        "npu": Host(replace(common, vendors=[directory / "npu"])),
    }


def describe(proto: onnx.ModelProto, inputs: Feed | None, assume: Sequence[str], row: Row) -> None:
    """Count what is described, and recompute it."""
    model = Model(onnx.ModelProto.FromString(proto.SerializeToString()))
    model.assume(assume)
    infer_model(model)
    for graph in model.graphs:
        views = Views.shared(graph)
        finder = AttentionFinder(views)
        results: list[Attention] = []
        for softmax in graph.nodes_of("Softmax"):
            try:
                results.append(finder.find(softmax))
            except Refused as refusal:
                row.refusals.append(f"{softmax.label}: {refusal}")
        row.described += len(results)
        row.rotations += sum(not isinstance(item, Refused) for _, item in rotations(views))
        if results and inputs is not None and graph is model.graph:
            try:
                row.recomputed = max(differences(proto, views, results, inputs))
            except Exception as error:  # noqa: BLE001 - of a runtime, or a false claim: printed
                row.recomputed = f"{type(error).__name__}: {str(error).splitlines()[0][:120]}"
                if type(error).__module__.startswith("onnxruntime"):
                    row.notes.append(f"not recomputed, the original does not run: {row.recomputed}")
                    continue
            if not isinstance(row.recomputed, float) or not row.recomputed <= LARGEST:
                row.wrong.append(f"a description recomputed: {row.recomputed}")


def check(path: Path, way: Way) -> Row:
    """Return the row of a file."""
    proto, row = onnx.load(path), Row()
    example = path.with_suffix("").with_suffix(".npz")
    examples, assume = list(feeds(example)), equalities(proto, example)
    inputs = next((feed for what, feed in examples if "random" in what), examples[0][1])
    describe(proto, inputs, assume, row)
    if row.refusals:
        not_empty = Row()
        describe(proto, inputs, [*assume, "sizes >= 1"], not_empty)
        if not_empty.described > row.described:
            row = not_empty
            assume.append("sizes >= 1")
            examples = [
                (what, feed)
                for what, feed in examples
                if all(array.size for array in feed.values())
            ]
    if assume:
        row.notes.append(f"--assume {', '.join(assume)}")
    results: dict[str, onnx.ModelProto] = {}
    with tempfile.TemporaryDirectory() as directory:
        for name, host in hosts(Path(directory), assume, way).items():
            try:
                results[name], report = host.run(
                    onnx.ModelProto.FromString(proto.SerializeToString())
                )
            except GehostError as error:
                row.wrong.append(f"{name}: {str(error)[:200]}")
                continue
            ops = Counter(node.op_type.partition("__")[0] for node in results[name].graph.node)
            if name == "npu":
                row.npu = ops
                row.notes += [f"README's pass: {reason}" for reason in reasons(report)]
            else:
                row.kernels = ops
                row.notes += [f"onnxruntime: {reason}" for reason in reasons(report)]
    try:
        original = session(proto, plain=True)
    except Exception as error:  # noqa: BLE001 - the runtime's errors have no common class
        row.notes = [f"the runtime does not load the export: {' '.join(str(error).split())[:200]}"]
        row.notes += row.wrong  # gehost may refuse it, too
        row.wrong = []
        return row
    names = [output.name for output in original.get_outputs()]
    expectations: list[tuple[str, Feed, Feed]] = []
    for what, feed in examples:
        try:
            expected = dict(zip(names, original.run(names, feed), strict=True))
        except Exception as error:  # noqa: BLE001 - the runtime's errors have no common class
            row.notes.append(f"{what.split()[0]}: the original does not run: {str(error)[:100]}")
            continue
        expectations.append((what, feed, expected))
    row.runs = len(expectations)
    if not expectations:  # the sizes of what never runs may be found not to fit
        return row
    sessions = {name: session(model, plain=False) for name, model in results.items()}
    for what, feed, expected in expectations:
        for name, own in sessions.items():
            try:
                actual = dict(zip(names, own.run(names, feed), strict=True))
            except Exception as error:  # noqa: BLE001
                # as FusedMatMul, which the runtime makes of Transpose and MatMul, does at batch 0
                plain = compare(proto, results[name], [feed]).equal
                rows = row.notes if plain else row.wrong
                note = "without the runtime's optimizations it runs and is equal; with them: "
                rows.append(f"{name}, {what}: {note if plain else ''}{str(error)[:200]}")
                continue
            compared = list(compare_outputs(expected, actual, rtol=RTOL, atol=ATOL))
            worst = max((one.max_abs for one in compared if one.equal), default=0.0)
            row.worst = max(row.worst, worst)
            different = [one for one in compared if not one.equal]
            if not different:
                continue
            if compare(proto, results[name], [feed]).equal:
                row.notes.append(f"{name}, {what}: equal without the runtime's optimizations")
                continue
            row.wrong += [f"{name}, {what}: {one.place}: {one.a} and {one.b}" for one in different]
    return row


def reasons(report: Any) -> list[str]:
    """Return why attention passes refused, once each."""
    results: Counter[str] = Counter()
    for record in report.passes:
        if "Attention" in record.name or "Rotary" in record.name:
            results.update({f"{record.name}: {key}": n for key, n in record.rejected.items()})
    return [f"{text} ({count})" for text, count in results.items()]


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("exports", type=Path)
    parser.add_argument("names", nargs="*", help="families; all by default")
    parser.add_argument("--all-vendors", action="store_true", help="beside onnxruntime's passes")
    parser.add_argument("--opset", type=int, help="compile to this opset")
    parser.add_argument("--alone", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_intermixed_args()
    way = Way(options.all_vendors, options.opset)
    if options.alone:  # a runtime may end the process
        row = check(options.exports, way)
        print(row.line(options.exports.stem))
        for line in dict.fromkeys([*row.wrong, *row.refusals, *row.notes]):
            print(f"{'WRONG ' if line in row.wrong else '  - '}{line}")
        return bool(row.wrong)
    print(f"{HEAD}\n|{'---|' * (HEAD.count('|') - 1)}")
    failed, rows = 0, dict[str, list[int]]()
    for path in sorted(options.exports.glob("*.onnx")):
        if options.names and path.name.split(".")[0].removesuffix("_past") not in options.names:
            continue
        process = subprocess.run(
            [
                *(sys.executable, "-W", "ignore", "-m", "tools.families", path, "--alone"),
                *(["--all-vendors"] if way.all_vendors else []),
                *(["--opset", str(way.opset)] if way.opset else []),
            ],
            capture_output=True,
            text=True,
            check=False,
        )
        failed += process.returncode != 0
        print(process.stdout, end="")
        if process.stdout.startswith("|"):
            name, *cells, _ = process.stdout.splitlines()[0].strip("| ").split(" | ")
            rows[name] = [int(cell) for cell in cells]
        if process.returncode not in (0, 1) or not process.stdout:
            print(f"{path.stem}: exit code {process.returncode}: {process.stderr[-400:]}")
        sys.stdout.flush()
    for path in sorted(options.exports.glob("*.txt")):
        if not options.names or path.name.split(".")[0].removesuffix("_past") in options.names:
            print(f"{path.stem}: not exported: {' '.join(path.read_text().split())[:150]}")
    print_totals(rows)
    return bool(failed)


def print_totals(rows: dict[str, list[int]]) -> None:
    """Print sums, and the exports in which all is described and replaced."""
    ran = {name: cells for name, cells in rows.items() if cells[-1]}
    sums = [sum(column) for column in zip(*ran.values(), strict=True)]
    print(f"{len(ran)} exports that run: {sums}; {len(rows) - len(ran)} do not")
    complete = [
        name
        for name, (layers, *own, rotations, kernels, passed, _, _) in ran.items()
        if {*own} == {layers} and kernels == passed == rotations
    ]
    print(f"complete, {len(complete)}: {', '.join(complete)}")


if __name__ == "__main__":
    sys.exit(main())
