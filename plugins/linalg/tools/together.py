"""Kernels beside the passes for ONNX Runtime: ``python -m plugins.linalg.tools.together MODEL FEEDS.npz …``.

Speed over the original at ENABLE_ALL, one thread, CPU time of alternating pairs: of the passes alone, and with the kernels that
``--measure`` keeps. The passes and the runtime's switch are those that ``gehost tune`` keeps for most models.
"""

from __future__ import annotations

import argparse
import math
import statistics
import tempfile
from pathlib import Path

from gehost import Host, HostOptions, UsageError
from gehost.tune.measure import dead_zone_of, measure_pairs
from gehost.tune.sessions import Runtime
from gehost.verify import load_feeds
from gehost_linalg.kernels.library import write_library
from gehost_linalg.passes import NAME

VENDOR = Path(__file__).parents[3] / "vendors" / "onnxruntime"
ON = (
    "OrtSizesPass",
    "OrtProjectionPass",
    "OrtAttentionPass",
    "OrtPackedAttentionPass",
    "OrtRotaryPass",
    "OrtRmsNormPass",
)
OFF = ("OrtSkipNormPass", "OrtSkipRmsNormPass", "OrtResidualSumPass")
WITHOUT = ("SkipLayerNormFusion",)


def measured(
    model: Path, feeds: Path, folder: Path, seconds: float, pairs: int
) -> tuple[float, float]:
    """The speed of the passes alone and with kernels, over the original's."""
    argument = load_feeds(str(feeds))
    vendor, fused, library = (
        folder / "vendor.onnx",
        folder / "fused.onnx",
        folder / f"{model.stem}.so",
    )
    (folder / "vendors").mkdir()
    (folder / "vendors" / "onnxruntime").symlink_to(VENDOR)
    for target, extra in ((vendor, ()), (fused, (NAME,))):
        options = HostOptions(vendors=(str(folder / "vendors"),), enable=(*ON, *extra), disable=OFF)
        Host(options).compile(str(model), str(target))
    try:
        result = write_library(str(fused), str(library), measure=str(feeds))
        retained, libraries = f"{len(result.kernels)} of {len(result.gains)}", (str(library),)
    except UsageError as error:
        retained, libraries, fused = f"none ({error.message})", (), vendor
    session = Runtime().session(str(model), 1)
    argument = {operand.name: argument[operand.name] for operand in session.get_inputs()}
    original = Runtime().runner(str(model), argument, 1)
    same = measure_pairs(original, original, seconds=seconds / 2)
    gains = []
    shown = []
    for path, runtime in (
        (vendor, Runtime(disabled_optimizers=WITHOUT)),
        (fused, Runtime(disabled_optimizers=WITHOUT, libraries=libraries)),
    ):
        other = runtime.runner(str(path), argument, 1)
        compared = measure_pairs(original, other, seconds=seconds, pairs=pairs)
        gains.append(compared.median)
        shown.append("{:.3f}, {:.3f} to {:.3f}".format(compared.median, *compared.interval))
    print(
        f"| {model.stem} | {' | '.join(shown)} | {dead_zone_of(same):.3f} | {retained} |",
        flush=True,
    )
    return gains[0], gains[1]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("files", nargs="+", type=Path, help="MODEL FEEDS.npz, in turn")
    parser.add_argument("--seconds", type=float, default=4.0, help="of each comparison")
    parser.add_argument("--pairs", type=int, default=5)
    argument = parser.parse_args()
    print(
        "| model | passes alone | with kernels | dead zone | kernels kept |\n|---|---|---|---|---|"
    )
    gains: list[tuple[float, float]] = []
    for model, feeds in zip(argument.files[::2], argument.files[1::2], strict=True):
        with tempfile.TemporaryDirectory() as folder:
            gains.append(measured(model, feeds, Path(folder), argument.seconds, argument.pairs))
    for name, column in zip(
        ("passes alone", "with kernels"), zip(*gains, strict=True), strict=True
    ):
        print(f"{name}: geometric mean {math.exp(statistics.fmean(map(math.log, column))):.3f}")


if __name__ == "__main__":
    main()
