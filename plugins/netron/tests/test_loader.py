"""Dumps open in Netron: its own loader, in node, reads what the dumps hold."""

from __future__ import annotations

import json
import shutil
import subprocess
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.parser
import pytest
from google.protobuf import text_format
from onnx.numpy_helper import from_array

from gehost import Host, HostOptions

HERE = Path(__file__).parent
NODE = shutil.which("node")
NETRON = find_spec("netron")
pytestmark = [
    pytest.mark.nightly,
    pytest.mark.skipif(NODE is None or NETRON is None, reason="needs node and `make netron`"),
]

PASS = """
from ge.es.custom import Gate
from ge.es.math import Mul
from ge.passes import PassStage, PatternFusionPass, pattern, register_fusion_pass
from gehost import es, ops

@ops.register("acme::Gate")
def gate(data, scale, *, power=1):
    return es.Mul(data, scale)

@register_fusion_pass(name="MakeGate", stage=PassStage.AFTER_INFER_SHAPE)
class MakeGate(PatternFusionPass):
    @pattern
    def product(self, inputs):
        return Mul(inputs[0], inputs[1])

    def replacement(self, inputs):
        return Gate(inputs[0], inputs[1])
"""
MODEL = """<ir_version: 8, opset_import: ["" : 17]>
main (bool c, float[N, 300] x) => (float[N, 300] y) {
    m = Mul(x, w)
    k = Constant <value = int64[2] {3, 4}> ()
    y = If(c) <
        then_branch = t () => (float[N, 300] p) { p = Relu(m) },
        else_branch = e () => (float[N, 300] q) { q = Neg(m) }
    >
}"""


def loaded(files: list[Path], directory: Path) -> list[Any]:
    """Load files with the modules of the installed Netron, which are no package of node's."""
    assert NETRON is not None
    assert NETRON.origin is not None
    assert NODE is not None
    for file in (*Path(NETRON.origin).parent.glob("*.js*"), HERE / "load.mjs"):
        shutil.copy(file, directory)
    (directory / "package.json").write_text('{"type": "module"}')
    process = subprocess.run(
        [NODE, directory / "load.mjs", *files], capture_output=True, text=True, check=True
    )
    return [json.loads(line) for line in process.stdout.splitlines()]


def proto_of(path: Path) -> onnx.ModelProto:
    if path.suffix == ".onnx":
        return onnx.load(path)
    return text_format.Parse(path.read_text(encoding="utf-8"), onnx.ModelProto())


@pytest.mark.parametrize("level", [1, 2, 3])
def test_dumps_of_each_level_open_with_all_their_nodes(tmp_path: Path, level: Any) -> None:
    (tmp_path / "passes.py").write_text(PASS)
    model = onnx.parser.parse_model(MODEL)
    model.graph.initializer.append(from_array(np.arange(300, dtype=np.float32), "w"))
    host = Host(
        HostOptions(
            pass_paths=[tmp_path / "passes.py"], dump=tmp_path / "dumps", dump_level=level,
            dump_format=["pbtxt", "onnx"], cleanup=False,
        ),
    )  # fmt: skip
    _, report = host.run(model)
    files = [Path(name) for name in report.dumps]
    assert len(files) == 12
    for path, count in zip(files, loaded(files, tmp_path), strict=True):
        graph = proto_of(path).graph
        assert count.get("format") == "ONNX v8", count
        assert [node["type"] for node in count["nodes"]] == [node.op_type for node in graph.node]
        assert count["inputs"] == [[["c", "boolean"]], [["x", "float32[N,300]"]]]
        assert count["outputs"] == [[["y", "float32[N,300]"]]]
    gates = [node for node in count["nodes"] if node["type"] == "Gate"]
    assert gates == [{"type": "Gate", "inputs": [["data", ["x"]], ["scale", ["w"]]]}]
