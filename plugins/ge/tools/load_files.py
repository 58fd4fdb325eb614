"""Time loading 50 files of passes in GE's Python interface against the same with C++ names.

Run with ``python -m plugins.ge.tools.load_files [PAIRS]``: processes in turns, CPU time of loading
the files without starting gehost, and of a compile behind it.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

FILES = 50
IN_PYTHON_NAMES = """
from ge.es.math import MatMul
from ge.es.nn import Relu
from ge.passes import PassStage, PatternFusionPass, pattern, register_fusion_pass

@register_fusion_pass(name="P{number}", stage=PassStage.AFTER_INFER_SHAPE)
class P{number}(PatternFusionPass):
    @pattern
    def relus(self, inputs):
        return Relu(Relu(MatMul(inputs[0], inputs[1])))

    def replacement(self, inputs):
        return Relu(MatMul(inputs[0], inputs[1]))
"""
IN_CPP_NAMES = """
from gehost import CustomPassStage, EsGraphBuilder, Pattern, PatternFusionPass, REG_FUSION_PASS, es

@REG_FUSION_PASS(name="P{number}", stage=CustomPassStage.kAfterInferShape)
class P{number}(PatternFusionPass):
    def Patterns(self):
        builder = EsGraphBuilder("pattern")
        x, y = builder.CreateInputs(2)
        return [Pattern(builder.BuildAndReset([es.Relu(es.Relu(es.MatMul(x, y)))]))]

    def Replacement(self, match):
        builder = EsGraphBuilder("replacement")
        x, y = builder.CreateInputs(2)
        return builder.BuildAndReset([es.Relu(es.MatMul(x, y))])
"""
TIMED = '''
import sys, time
from gehost import Host, HostOptions
from gehost.testing import parse
model = parse("""<ir_version: 8, opset_import: ["" : 17]>
g (float[2, 2] x, float[2, 2] w) => (float[2, 2] y) {
    m = MatMul (x, w)
    r = Relu (m)
    y = Relu (r)
}""")
Host(HostOptions()).run(model)
start = time.process_time()
host = Host(HostOptions(vendors=[sys.argv[1]]))
passes = len(host.passes)
loaded = time.process_time()
host.run(model)
print(loaded - start, time.process_time() - start, passes)
'''


def seconds(vendors: Path) -> tuple[float, float]:
    """Return the CPU seconds of loading the files, and of that with a compile."""
    environ = {**os.environ, "PYTHONDONTWRITEBYTECODE": ""}  # as installed: modules are compiled
    command = [sys.executable, "-c", TIMED, str(vendors)]
    out = subprocess.run(command, env=environ, capture_output=True, text=True, check=True).stdout
    load, whole, passes = map(float, out.split())
    assert passes >= FILES, out
    return load, whole


def main(pairs: int) -> None:
    with tempfile.TemporaryDirectory() as home:
        roots = {"ge": IN_PYTHON_NAMES, "C++": IN_CPP_NAMES}
        for name, text in roots.items():
            folder = Path(home, name, "acme", "custom_fusion_passes")
            folder.mkdir(parents=True)
            for number in range(FILES):
                (folder / f"p{number}.py").write_text(text.format(number=number))
            seconds(Path(home, name))  # writes the bytecode
        runs: dict[str, list[tuple[float, float]]] = {name: [] for name in roots}
        for number in range(pairs):
            for name in roots if number % 2 else reversed(roots):
                runs[name].append(seconds(Path(home, name)))
    for place, what in enumerate(("load", "load and compile")):
        ge, cpp = ([run[place] for run in runs[name]] for name in roots)
        ratios = sorted(one / other for one, other in zip(ge, cpp, strict=True))
        print(
            f"{what}: {statistics.median(ratios):.2f} × ({ratios[0]:.2f} to {ratios[-1]:.2f}), "
            f"{1000 * statistics.median(ge):.0f} ms, C++ names {1000 * statistics.median(cpp):.0f} ms"
        )


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 15)
