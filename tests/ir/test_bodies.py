"""Names that bodies give and read."""

from __future__ import annotations

import numpy as np
import onnx
import onnx.checker
import pytest

from gehost.ir.bodies import captures, graphs_of, unique_names
from gehost.testing import parse

onnxruntime = pytest.importorskip("onnxruntime")
IF = """y = If (c) <then_branch = t () => (float[n] a) { b = Neg (x) a = Add (b, z) },
else_branch = e () => (float[n] b) { a = Abs (x) b = If (c) <then_branch = u () => (float[n] d)
{ d = Sub (a, z) }, else_branch = v () => (float[n] w) { d = Mul (a, x) w = Add (d, a) }> }>"""
HEAD = '<ir_version: 9, opset_import: ["": 17, "my": 1]> g (float[n] x, bool c) => (float[n] y)'
GRAPH = f"{HEAD} {{ z = Relu (x) {IF} }}"
FUNCTION = f"""{HEAD} {{ y = my.f (x, c) }} <domain: "my", opset_import: ["": 17]>
f (x, c) => (y) {{ z = Relu (x) {IF} }}"""


@pytest.mark.parametrize("text", [GRAPH, FUNCTION])
def test_bodies_get_names_of_their_own(text: str) -> None:
    model = parse(text)
    unique = unique_names(model)
    onnx.checker.check_model(unique, full_check=True)
    body = unique.functions[0] if unique.functions else unique.graph
    assert [[*node.output] for node in body.node] == [["z"], ["y"]]
    assert captures(body.node[-1]) == ["x", "z", "c"]
    single = onnx.ModelProto(graph=onnx.GraphProto(node=body.node))
    names = [name for graph in graphs_of(single) for node in graph.node for name in node.output]
    assert len(names) == len(set(names))
    for flag in (True, False):
        feed = {"x": np.array([-2, 3], np.float32), "c": np.array(flag)}
        before, after = (
            onnxruntime.InferenceSession(item.SerializeToString()).run(None, feed)
            for item in (model, unique)
        )
        assert np.array_equal(before, after)
    assert unique_names(unique) is unique
