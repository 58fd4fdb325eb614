"""``make runtime-latency``: gain of the passes on the corpus' transformers, CPU time of one thread in session pairs.

Beside the original at ENABLE_ALL: the original itself (A/A), the compiled model, the same at opset 23 with ``Attention`` of ONNX; and the
compiled model beside the original at DISABLE_ALL. Compiled models run without ``SkipLayerNormFusion``, with the passes below.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from gehost import Host, HostOptions
from gehost.tune import Comparison, measure_pairs
from gehost.tune.sessions import Runtime
from gehost.verify import load_feeds

from .__main__ import CORPUS, ROOT

PASSES = [
    "OrtSizesPass",
    "OrtProjectionPass",
    "OrtRotaryPass",
    "OrtRmsNormPass",
    "OrtAttentionPass",
]
PACKED, STANDARD = [*PASSES, "OrtPackedAttentionPass"], [*PASSES, "OrtStandardAttentionPass"]
MODELS = (
    *("bert.ts", "gpt2.ts", "vit.ts", "llama.ts", "t5_encoder.ts"),
    *("bert.dyn", "bert_sdpa.dynopt", "gpt2.dynopt", "vit.dynopt", "llama.dynopt"),
)


def comparisons(
    source: Path, feeds_file: Path, vendors: Path, directory: str, seconds: float, pairs: int
) -> Iterator[tuple[str, Comparison]]:
    """Measure one model; gains by what is compared."""
    feeds = load_feeds(feeds_file)
    everything, nothing = Runtime(), Runtime(level="none")
    ours = everything.without("SkipLayerNormFusion")

    def compiled(passes: list[str], opset: int | None = None) -> str:
        target = str(Path(directory, f"{len(passes)}.{opset}.onnx"))
        assume = ["no-empty-inputs"] if "OrtStandardAttentionPass" in passes else []
        options = HostOptions(
            vendors=[vendors], plugins=False, enable=passes, opset=opset, assume=assume
        )
        Host(options).compile(source, target)
        return target

    packed, standard = compiled(PACKED), compiled(STANDARD, 23)
    original = everything.runner(str(source), feeds, 1)
    for what, first, second in (
        ("A/A", original, original),
        ("compiled", original, ours.runner(packed, feeds, 1)),
        ("opset 23", original, ours.runner(standard, feeds, 1)),
        ("over DISABLE_ALL", nothing.runner(str(source), feeds, 1), ours.runner(packed, feeds, 1)),
    ):
        yield what, measure_pairs(first, second, seconds=seconds, pairs=pairs, most_pairs=pairs)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "models",
        nargs="*",
        default=MODELS,
        help="names as in the corpus, or FILE.onnx with --feeds",
    )
    parser.add_argument("--feeds", type=Path)
    parser.add_argument("--seconds", type=float, default=10.0, help="for each comparison")
    parser.add_argument("--pairs", type=int, default=10)
    argument = parser.parse_args()
    print("| model | compared | gain | 95 % interval |\n|---|---|---|---|")
    with tempfile.TemporaryDirectory() as directory:
        (vendors := Path(directory, "vendors")).mkdir()
        (vendors / "onnxruntime").symlink_to(ROOT / "vendors" / "onnxruntime")
        for name in argument.models:
            source = Path(name) if name.endswith(".onnx") else CORPUS / "models" / f"{name}.onnx"
            feeds = argument.feeds or CORPUS / "feeds" / f"{name}.A.npz"
            result = comparisons(
                source, feeds, vendors, directory, argument.seconds, argument.pairs
            )
            for what, one in result:
                low, high = one.interval
                print(f"| {name} | {what} | {one.median:.3f} | {low:.3f}, {high:.3f} |", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
