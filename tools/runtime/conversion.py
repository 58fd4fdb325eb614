"""``make half-conversion``: ``gehost.half.to_float16`` on the corpus and on the tests' models.

Each model is converted as it is, and compiled with all passes of the vendor for ONNX Runtime. A line has the nodes that
keep float32, whether the runtime loads the result, and the verdict of ``gehost.half.judge`` on the model's feeds. Exit
code 1 where one is not equal or does not load.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from gehost import GehostError, Host
from gehost.half import to_float16
from gehost.half.judge import judge
from gehost.verify import make_feeds
from tools.runtime.half import ROOT, every_pass, loads

CORPUS = ROOT.parent / "shared" / "corpus"
HALF = onnx.TensorProto.FLOAT16

Feed = dict[str, np.ndarray[Any, Any]]


def models(only: str) -> Iterator[tuple[Path, list[Feed]]]:
    """Yield each model with its feeds."""
    for folder, feeds in (
        (CORPUS / "models", CORPUS / "feeds"),
        (ROOT / "tests" / "models", ROOT / "tests" / "models" / "feeds"),
    ):
        for path in sorted(folder.glob(f"{only}*.onnx")):
            files = sorted(feeds.glob(f"{path.stem}.*.npz"))
            yield path, [dict(np.load(file)) for file in files]


def line(model: onnx.ModelProto, feeds: list[Feed], base: str, directory: str) -> tuple[bool, str]:
    """Convert a model; return whether it is right, and what a reader should know."""
    conversion = to_float16(model, feeds=feeds, base_dir=base)
    path = Path(directory, "half.onnx")
    onnx.save(conversion.model, path)
    loaded = loads(path)
    result = judge(model, conversion, feeds, base)
    retained = [note.removeprefix("half: ") for note in conversion.notes]
    casts = Counter(node.op_type for node in conversion.model.graph.node)["Cast"]
    halves = sum(item.data_type == HALF for item in conversion.model.graph.initializer)
    text = f"{'' if loaded else 'DOES NOT LOAD; '}{result.summary()}"
    return (
        result.equal and loaded,
        f"{text}; {halves} half weights, {casts} Cast; {'; '.join(retained)}",
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="", help="models whose name starts so")
    only: str = parser.parse_args().only
    passes = Host(every_pass())
    right = wrong = 0
    with tempfile.TemporaryDirectory() as directory:
        for path, feeds in models(only):
            original = onnx.load(path)
            feeds = feeds or [make_feeds(original)]
            for form in ("as it is", "compiled"):
                start = time.monotonic()
                try:
                    model = original if form == "as it is" else passes.run(original)[0]
                    equal, text = line(model, feeds, str(path.parent), directory)
                except GehostError as error:
                    equal, text = False, f"refused: {error}"
                right, wrong = right + equal, wrong + (not equal)
                spent = time.monotonic() - start
                print(f"{path.stem:20} {form:8} {text} ({spent:.1f} s)", flush=True)
    print(f"{right} conversions are equal and load, {wrong} are not")
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main())
