"""Every model of the corpus: compiled and verified, its groups counted, their MLIR text fused by MLIR.

``python -m plugins.linalg.tools.corpus [MODEL…] [--no-mlir] [--controls]``
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import onnx

from gehost import Host, HostOptions
from gehost_linalg.commands import Shown, plans_of
from gehost_linalg.driver import fuse_all
from gehost_linalg.generic import Generic, Opaque
from gehost_linalg.groups.row_space import is_boundary
from gehost_linalg.mlir import Function, parse
from gehost_linalg.passes import NAME

from ..tests.oracle import Iree

MODELS = Path(__file__).resolve().parents[4] / "shared" / "corpus" / "models"
CONTROLS = ("one-use", "always", "max-operands=8", "max-body-ops=8", "no-recompute", "cost")


def compiled(path: Path, folder: str, vendors: Sequence[str]) -> list[str]:
    """Compile and verify a model; returns cells of its row."""
    output = Path(folder, "out.onnx")
    report = Host(HostOptions(vendors=vendors, enable=(NAME,), verify=True)).compile(
        str(path), str(output)
    )
    record = next(pass_ for pass_ in report.passes if pass_.name == NAME)
    model = onnx.load(output, load_external_data=False)
    onnx.checker.check_model(model)
    before = onnx.load(path, load_external_data=False)
    same = [str(v) for v in (*before.graph.input, *before.graph.output)] == [
        str(v) for v in (*model.graph.input, *model.graph.output)
    ]
    nodes = [node for node in model.graph.node if node.domain == "gehost.linalg"]
    verified = "equal" if report.verify["equal"] else f"DIFFERENT: {report.verify['summary']}"
    refused = ", ".join(f"{key} {count}" for key, count in sorted(record.rejected.items()))
    return [
        path.stem,
        str(
            report.nodes_after
            - len(nodes)
            + sum(len(function.node) for function in model.functions)
        ),
        str(len(nodes)),
        str(len({node.op_type for node in nodes})),
        verified if same else "DIFFERENT interface",
        refused,
    ]


def maps_of(function: Function) -> Counter[tuple[object, ...]]:
    """Maps in order and iterator types; MLIR folds constants of payloads, which are not compared here."""
    return Counter(
        (tuple(map(str, op.maps)), op.iterators) for op in function.ops if isinstance(op, Generic)
    )


def mlir_counts(path: Path, iree: Iree) -> Counter[str]:
    """How many texts of groups MLIR accepts, and how many it fuses to the same maps."""
    counts: Counter[str] = Counter()
    for plan in plans_of(
        str(path), {"control": "one-use", "multi_use": "refuse", "companions": ""}, (str(_empty()),)
    ):
        for group in plan.groups:
            shown = Shown(plan, group)
            before, after = shown.text(before=True), shown.text(before=False)
            counts["groups"] += 1
            if before.startswith("//") or after.startswith("//"):
                counts["no text: a size is unknown"] += 1
                print(before if before.startswith("//") else after)
                continue
            try:
                iree.verify(before)
                iree.verify(after)
            except Exception as error:  # noqa: BLE001 - whatever MLIR raises is what is counted
                counts["refused by MLIR"] += 1
                print(f"{path.stem}: {shown.name}: {str(error)[:600]}")
                continue
            counts["verified"] += 1
            theirs, ours = maps_of(iree.fused_functions(before)[0]), maps_of(parse(after)[0])
            (read,) = parse(before)
            read.ops = fuse_all(read.ops, outputs=read.outputs)
            counts["fused to the same when read again"] += maps_of(read) == ours
            if theirs == ours:
                counts["fused to the same"] += 1
            else:
                counts["fused differently"] += 1
                if counts["fused differently"] < 2:
                    print(
                        path.stem,
                        shown.name,
                        *(ours - theirs),
                        "\n MLIR's:",
                        *(theirs - ours),
                        sep="\n  ",
                    )
    return counts


def control_counts(path: Path) -> str:
    """Generics and groups by control function."""
    cells: list[str] = []
    for control in CONTROLS:
        multi_use = "duplicate" if control not in {"one-use", "max-body-ops=8"} else "refuse"
        settings = {"control": control, "multi_use": multi_use, "companions": ""}
        plans = plans_of(str(path), settings, (str(_empty()),))
        lowered = sum(
            isinstance(op, Generic | Opaque) and not is_boundary(op)
            for plan in plans
            for op in plan.lowered.ops
        )
        rest = sum(not is_boundary(op) for plan in plans for op in plan.grouping.block.ops)
        cells.append(f"{control}: {lowered} -> {rest} -> {sum(len(plan.groups) for plan in plans)}")
    return "; ".join(cells)


def _empty() -> Path:
    folder = Path(tempfile.gettempdir(), "gehost-no-vendors")
    folder.mkdir(exist_ok=True)
    return folder


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("models", nargs="*")
    parser.add_argument("--no-mlir", action="store_true")
    parser.add_argument("--no-compile", action="store_true")
    parser.add_argument("--controls", action="store_true")
    options = parser.parse_args()
    paths = [
        path
        for path in sorted(MODELS.glob("*.onnx"))
        if not options.models or path.stem in options.models
    ]
    if not paths:
        print(f"no models in {MODELS}")
        return 2
    iree = None if options.no_mlir else Iree()
    total: Counter[str] = Counter()
    failed = False
    for path in paths:
        if not options.no_compile:
            with tempfile.TemporaryDirectory() as folder:
                row = compiled(path, folder, [str(_empty())])
            failed |= row[4] != "equal"
            print("| " + " | ".join(row) + " |", flush=True)
        if options.controls:
            print(f"{path.stem}: {control_counts(path)}", flush=True)
        if iree is not None:
            counts = mlir_counts(path, iree)
            total += counts
            print(
                f"{path.stem}: " + ", ".join(f"{key} {count}" for key, count in counts.items()),
                flush=True,
            )
    print(", ".join(f"{key} {count}" for key, count in total.items()))
    return 1 if failed or total["refused by MLIR"] or total["fused differently"] else 0


if __name__ == "__main__":
    sys.exit(main())
