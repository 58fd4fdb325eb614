"""``make peers``: nodes and bytes beside other optimizers, on the corpus and on a folder of exports.

Each file is compared with its original in ONNX Runtime, with optimizations off and on, on the same
inputs. A cell has the nodes without Constant and the kilobytes, and what is wrong with the file:
``numbers`` (others), ``loads not``, ``freezes`` (an input's open size is a number in it).
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Callable, Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any

import onnx

from gehost import Host, HostOptions
from gehost.verify import Runner, compare_outputs, load_feeds, make_feeds

ROOT = Path(__file__).parents[2]
CORPUS = ROOT.parent / "shared" / "corpus"
RTOL, ATOL = 1e-3, 1e-4


def _gehost(source: Path, target: Path) -> None:
    Host(HostOptions(vendors=["gehost:onnx"], plugins=False)).compile(source, target)


def _onnxslim(source: Path, target: Path) -> None:
    import onnxslim

    onnx.save(onnxslim.slim(str(source)), target)


def _onnxsim(source: Path, target: Path) -> None:
    import onnxsim

    onnx.save(onnxsim.simplify(str(source))[0], target)


TOOLS: dict[str, Callable[[Path, Path], None]] = {
    "gehost": _gehost,
    "onnxslim": _onnxslim,
    "onnxsim": _onnxsim,
}


def nodes(model: onnx.ModelProto) -> int:
    """The nodes of a graph and its bodies, without Constant."""
    return sum(1 for node in _all(model.graph.node) if node.op_type != "Constant")


def _all(entries: Any) -> Iterator[onnx.NodeProto]:
    for node in entries:
        yield node
        for attribute in node.attribute:
            for body in (attribute.g, *attribute.graphs):
                yield from _all(body.node)


def feeds_of(path: Path) -> list[dict[str, Any]]:
    """Two sets of inputs: those of the corpus, or random ones."""
    files = sorted((CORPUS / "feeds").glob(f"{path.stem}.[AB].npz"))
    if files:
        return [load_feeds(file) for file in files]
    model = onnx.load(path)
    return [make_feeds(model, seed) for seed in (0, 1)]


def fault(path: Path, original: onnx.ModelProto, feeds: list[dict[str, Any]], wanted: Any) -> str:
    """What is wrong with an optimized file; "" for nothing."""
    try:
        for optimized in (False, True):
            runner = Runner(path, engine="onnxruntime", optimized=optimized)
            for given, expected in zip(feeds, wanted, strict=True):
                compared = compare_outputs(expected, runner.run(given), rtol=RTOL, atol=ATOL)
                if not all(one.equal for one in compared):
                    return "numbers"
    except Exception:  # noqa: BLE001 - whatever an engine raises
        return "loads not"
    model = onnx.load(path, load_external_data=False)
    return "freezes" if _sizes(model) != _sizes(original) else ""


def _sizes(model: onnx.ModelProto) -> list[list[bool]]:
    """Which sizes of the inputs without a default are open."""
    defaults = {tensor.name for tensor in model.graph.initializer}
    return [
        [not dim.HasField("dim_value") for dim in entry.type.tensor_type.shape.dim]
        for entry in model.graph.input
        if entry.name not in defaults
    ]


def row(path: Path, directory: str) -> tuple[str, bool]:
    """The line of a model, and whether no right file of a peer has fewer nodes than gehost's."""
    original = onnx.load(path)
    feeds = feeds_of(path)
    runner = Runner(path, engine="onnxruntime")
    wanted = [runner.run(given) for given in feeds]
    cells = [f"{nodes(original)} · {path.stat().st_size / 1000:.0f}"]
    right: dict[str, int] = {}
    for tool, optimize in TOOLS.items():
        target = Path(directory, f"{path.stem}.{tool}.onnx")
        try:
            optimize(path, target)
        except Exception as error:  # noqa: BLE001 - whatever a peer raises is its cell
            cells.append(f"fails: {type(error).__name__}")
            continue
        count = nodes(onnx.load(target, load_external_data=False))
        wrong = fault(target, original, feeds, wanted)
        cells.append(
            f"{count} · {target.stat().st_size / 1000:.0f}" + (f", {wrong}" if wrong else "")
        )
        if not wrong:
            right[tool] = count
    ours = right.get("gehost")
    is_best = ours is not None and ours == min(right.values())
    cells[1] = f"**{cells[1]}**" if is_best else cells[1]
    return f"| {path.stem} | {' | '.join(cells)} |", is_best


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "models", nargs="*", type=Path, help="files and folders; the corpus where none is named"
    )
    paths = parser.parse_args().models or [CORPUS / "models"]
    files = [
        file
        for path in paths
        for file in (sorted(path.glob("*.onnx")) if path.is_dir() else [path])
    ]
    print(
        ", ".join(
            f"{name} {version(name)}" for name in ("onnx", "onnxruntime", "onnxslim", "onnxsim")
        )
    )
    print("\n| model | original | gehost | onnxslim | onnxsim |\n|---|---|---|---|---|")
    best = 0
    with tempfile.TemporaryDirectory() as directory:
        for file in files:
            text, is_best = row(file, directory)
            best += is_best
            print(text, flush=True)
    print(f"\ngehost has the fewest nodes in {best} of {len(files)}.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
