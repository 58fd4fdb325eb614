"""Five rules in three styles on real models: as many matches, refusals and rewrites in each, and the same bytes."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import onnx
import onnx.version_converter

from gehost import Host, HostOptions
from tools.benchmarks.figures import STYLED, STYLES
from tools.benchmarks.processes import ROOT
from tools.benchmarks.style_rules import RULES

EXPORTS = ROOT / "tests" / "models"
RAISED = ("gpt2.ts13", 17)
"""A raw export with decomposed LayerNormalizations, and the opset from which they can be fused; no other model has both."""


@dataclass
class Agreement:
    """What one rule did to one model; the counts are those of GE's style."""

    matched: int
    replaced: int
    equal: bool
    """Counts and bytes are equal in all styles."""


def agreement(rule: str, model: onnx.ModelProto) -> Agreement:
    """Compile a model with a rule in each style."""
    results: list[tuple[int, int, int, bytes]] = []
    for style in STYLES:
        host = Host(HostOptions(plugins=False, cleanup=False))
        host.passes.add(RULES[rule].spec(style))
        result, report = host.run(model)
        (record,) = report.passes
        refused = sum(record.rejected.values())
        results.append(
            (record.matched, record.replaced, refused, result.SerializeToString(deterministic=True))
        )
    matched, replaced, *_ = results[0]
    return Agreement(matched, replaced, all(other == results[0] for other in results))


def compare_styles(corpus: Path, names: Sequence[str] = ()) -> dict[str, dict[str, Agreement]]:
    """Each rule on each model: those of the corpus (all, or some) where there is one, and the repository's exports."""
    compared: dict[str, dict[str, Agreement]] = {}
    for name, model in _models(corpus, names):
        compared[name] = {rule: agreement(rule, model) for rule in STYLED}
        print(
            f"styles on {name}: {sum(item.replaced for item in compared[name].values())} rewrites",
            file=sys.stderr,
            flush=True,
        )
    return compared


def _models(corpus: Path, names: Sequence[str]) -> Iterator[tuple[str, onnx.ModelProto]]:
    if corpus.is_dir():
        for entry in json.loads((corpus / "manifest.json").read_text(encoding="utf-8")):
            if not names or entry["name"] in names:
                yield entry["name"], onnx.load(corpus / entry["file"])
    for path in sorted(EXPORTS.glob("*.onnx")):
        yield f"tests/models/{path.stem}", onnx.load(path)
    name, opset = RAISED
    yield (
        f"tests/models/{name} at opset {opset}",
        onnx.version_converter.convert_version(onnx.load(EXPORTS / f"{name}.onnx"), opset),
    )
