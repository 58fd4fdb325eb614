"""``make tune-check``: tune drops a pass that slows a model, keeps one that speeds it up, and calls the rest noise.

It measures, so it is no test: its answer may depend on the machine. Each of ``--runs`` runs is a line; the end states how
often the verdicts agreed, and whether two contradicted each other (keep against drop).
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections import Counter
from pathlib import Path

import onnx

from gehost import HostOptions
from gehost.testing import parse
from gehost.tune import tune

WIDTH, LAYERS = 256, 6
VENDOR = """
from gehost import *


def _swap(name, make_old, make_new):
    def Patterns(self):
        builder = EsGraphBuilder(name)
        return [Pattern(builder.BuildAndReset([make_old(builder.CreateInput(0))]))]

    def Replacement(self, match):
        builder = EsGraphBuilder(name)
        return builder.BuildAndReset([make_new(builder.CreateInput(0))])

    REG_FUSION_PASS(stage=CustomPassStage.kAfterInferShape)(
        type(name, (PatternFusionPass,), {"Patterns": Patterns, "Replacement": Replacement})
    )


# equal numbers, more work
def slow(x):
    y = es.Max(x, x * -1.0)
    for _ in range(3):
        y = es.Exp(es.Log(y))
    return y


_swap("Slow", es.Abs, slow)
# another operator of the same cost
_swap("Neutral", es.Neg, lambda x: es.Mul(x, -1.0))
# much work for nothing
_swap("Fast", lambda x: es.Sin(es.Asin(es.Tanh(es.Atanh(x)))), lambda x: x)
"""


def model() -> onnx.ModelProto:
    lines: list[str] = []
    now = "x"
    for layer in range(LAYERS):
        lines.append(f"m{layer} = MatMul({now}, w) s{layer} = Sigmoid(m{layer})")
        lines.append(
            f"h{layer} = Mul(s{layer}, half) n{layer} = Neg(h{layer}) a{layer} = Abs(n{layer})"
        )
        lines.append(
            f"t{layer} = Atanh(a{layer}) u{layer} = Tanh(t{layer}) v{layer} = Asin(u{layer}) z{layer} = Sin(v{layer})"
        )
        now = f"z{layer}"
    return parse(f"""<ir_version: 8, opset_import: ["" : 17]>
    main (float[N, {WIDTH}] x, float[{WIDTH}, {WIDTH}] w) => (float[N, {WIDTH}] y)
    <float half = {{0.5}}> {{ {" ".join(lines)} y = Identity({now}) }}""")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--budget", type=float, default=20.0)
    argument = parser.parse_args()
    expected = {"Slow": "drop", "Neutral": "noise", "Fast": "keep"}
    visited: dict[str, Counter[str]] = {name: Counter() for name in expected}
    with tempfile.TemporaryDirectory() as directory:
        folder = Path(directory, "vendors", "planted", "custom_fusion_passes")
        folder.mkdir(parents=True)
        (folder / "a.py").write_text(VENDOR)
        path = Path(directory, "m.onnx")
        onnx.save(model(), path)
        options = HostOptions(
            vendors=[Path(directory, "vendors")], plugins=False, dims={"N": 128}, cleanup=False
        )
        for number in range(argument.runs):
            result = tune(path, options, budget=argument.budget)
            now = {trial.name: trial for trial in result.trials if trial.name in expected}
            for name, trial in now.items():
                visited[name][trial.verdict] += 1
            message = ", ".join(
                f"{name} {trial.verdict}"
                + (f" {trial.comparison.median:.3f}" if trial.comparison else f" {trial.reason}")
                for name, trial in now.items()
            )
            print(f"{number + 1}: dead zone {result.dead_zone:.3f}; {message}", flush=True)
    agreed = sum(max(counts.values()) for counts in visited.values()) / (
        argument.runs * len(expected)
    )
    contradicted = [name for name, counts in visited.items() if counts["keep"] and counts["drop"]]
    wrong = {n: dict(c) for n, c in visited.items() if c.most_common(1)[0][0] != expected[n]}
    print(
        f"verdicts agree in {agreed:.0%}; contradictions: {contradicted or 'none'}; not as planted: {wrong or 'none'}"
    )
    return int(bool(contradicted or wrong or agreed < 0.9))


if __name__ == "__main__":
    sys.exit(main())
