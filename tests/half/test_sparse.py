"""Sparse weights are dense in the model of float16."""

from __future__ import annotations

import numpy as np
import onnx
import onnx.checker
import onnx.helper
import onnx.parser
import pytest

from gehost import Host, HostOptions
from gehost.half import judge, to_float16
from gehost.ir.bodies import graphs_of, node_lists

HEAD = '<ir_version: 9, opset_import: ["": 17, "my": 1]> g '
BRANCHES = """If (c) <then_branch = t () => (float[4, 6] u) { u = MatMul (x, a) },
    else_branch = e () => (float[4, 6] v) { v = MatMul (x, b) }>"""
TEXTS = {
    "graph": "(float[4, 6] x, bool c) => (float[4, 6] y) { p = MatMul (x, a) y = MatMul (p, a) }",
    "branches": f"(float[4, 6] x, bool c) => (float[4, 6] y) {{ y = {BRANCHES} }}",
    "function": f"""(float[4, 6] x, bool c) => (float[4, 6] y) {{ y = my.f (x, c) }}
        <domain: "my", opset_import: ["": 17]> f (x, c) => (y) {{ y = {BRANCHES} }}""",
}


def sparse(name: str, *, linear: bool) -> onnx.SparseTensorProto:
    places = [0, 8, 20] if linear else [0, 0, 1, 2, 3, 2]
    return onnx.helper.make_sparse_tensor(
        onnx.helper.make_tensor(name, onnx.TensorProto.FLOAT, [3], [0.1, 1, -2]),
        onnx.helper.make_tensor("", onnx.TensorProto.INT64, [3] if linear else [3, 2], places),
        [6, 6],
    )


@pytest.mark.parametrize("linear", [True, False])
@pytest.mark.parametrize("form", ["initializer", "Constant"])
@pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS)
def test_sparse_weights_are_dense(text: str, form: str, linear: bool) -> None:
    model = onnx.parser.parse_model(HEAD + text)
    for nodes in list(node_lists(model)):
        for name in dict.fromkeys(node.input[1] for node in nodes if node.op_type == "MatMul"):
            if form == "Constant":
                tensor = sparse("", linear=linear)
                node = onnx.helper.make_node("Constant", [], [name], sparse_value=tensor)
                nodes.insert(0, node)
    for graph in graphs_of(model) if form == "initializer" else ():
        for name in dict.fromkeys(n.input[1] for n in graph.node if n.op_type == "MatMul"):
            graph.sparse_initializer.append(sparse(name, linear=linear))
    for function in model.functions if form == "initializer" else ():
        for entry in function.node[0].attribute:
            name = entry.g.node[0].input[1]
            entry.g.sparse_initializer.append(sparse(name, linear=linear))
    before = model.SerializeToString()
    draw = np.random.default_rng(0).normal(size=(4, 6)).astype(np.float32)
    feeds = [{"x": draw, "c": np.array(flag)} for flag in (True, False)]
    for keep_io in (False, True):
        conversion = to_float16(model, keep_io=keep_io)
        onnx.checker.check_model(conversion.model, full_check=True)
        if form == "Constant" or not model.functions:  # ONNX Runtime does not load the others
            assert judge(model, conversion, feeds).equal
    assert model.SerializeToString() == before


def test_sparse_weights_are_compiled_and_compared() -> None:
    model = onnx.parser.parse_model(
        HEAD + "(float[4, 6] x) => (float[4, 6] y) { p = MatMul (x, a) y = Relu (p) }"
    )
    model.graph.sparse_initializer.append(sparse("a", linear=True))
    for half in (False, True):
        report = Host(HostOptions(half=half, verify=True, plugins=False)).run(model)[1]
        assert report.verify is not None
        assert report.verify["equal"]
