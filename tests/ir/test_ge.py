"""GE's accessor names on nodes."""

from __future__ import annotations

import onnx
import pytest

from gehost.errors import GehostError
from gehost.ir.ge import NodeIo, TensorDesc
from gehost.ir.graph import Graph
from gehost.ir.model import Model
from gehost.ir.types import DataType


@pytest.fixture
def graph() -> Graph:
    text = """<ir_version: 10, opset_import: ["": 17]> g (float[N, 3] x, float16[2, 0] e, int64[] u) => (float[N, 3] y)
    <float[3] w = {1, 2, 3}> {
        [act] a = LeakyRelu<alpha = 0.5>(x)
        [sum] b = Add(a, w)
        [cut] c = Clip(b, , w)
        d = local.Unknown(c, e, u)
        y = Mul(a, b)
    }"""
    return Model(onnx.parser.parse_model(text)).graph


def test_the_accessors_of_the_documentation(graph):
    act, total, cut, unknown, last = graph.nodes
    assert [act.GetType(), act.GetName(), last.GetName(), unknown.GetType()] == [
        "LeakyRelu",
        "act",
        "",
        "Unknown",
    ]
    assert (cut.GetInputsSize(), cut.GetOutputsSize()) == (3, 1)
    assert act.GetAttr("alpha") == 0.5
    with pytest.raises(KeyError):
        act.GetAttr("beta")
    assert total.GetInDataNodesAndPortIndexs(0) == NodeIo(act, 0)
    assert total.GetInDataNodesAndPortIndexs(1).node.GetType() == "Const"
    assert total.GetInDataNodesAndPortIndexs(1).value is graph.values["w"]
    assert act.GetOutDataNodesAndPortIndexs(0) == [NodeIo(total, 0), NodeIo(last, 0)]
    assert last.GetOutDataNodesAndPortIndexs(0) == []


def test_an_attribute_that_is_set_is_undone_like_any_edit(graph):
    act = next(graph.nodes)
    mark = graph.model.mark()
    act.SetAttr("alpha", 0.25)
    assert (act.GetAttr("alpha"), act.proto.attribute[0].f) == (0.25, 0.25)
    graph.model.undo(mark)
    assert act.GetAttr("alpha") == 0.5
    with pytest.raises(GehostError):
        act.SetAttr("body", onnx.GraphProto())


def test_descriptions(graph):
    act, total, _, unknown, _ = graph.nodes
    desc = act.GetInputDesc(0)
    assert desc.GetDataType() is DataType.DT_FLOAT
    shape = desc.GetShape()
    assert (shape.GetDims(), shape.GetDim(1), shape.GetDimNum(), shape.GetShapeSize()) == (
        [-1, 3],
        3,
        2,
        -1,
    )
    empty = unknown.GetInputDesc(1).GetShape()
    assert (empty.GetDims(), empty.GetShapeSize()) == ([2, 0], 0)
    nothing = unknown.GetOutputDesc(0)
    assert nothing.GetDataType() is DataType.DT_UNDEFINED
    assert (
        nothing.GetShape().GetDims(),
        nothing.GetShape().GetDimNum(),
        nothing.GetShape().GetShapeSize(),
    ) == ([-2], -1, -1)
    assert total.GetInputDesc(1).GetShape().GetShapeSize() == 3
    assert TensorDesc(graph.values["u"]).GetShape().GetDims() == [-2]


def test_what_is_absent_is_said(graph):
    cut = list(graph.nodes)[2]
    for index in (1, 3, -1):
        with pytest.raises(IndexError, match=f"input {index} of <Node cut> is absent"):
            cut.GetInputDesc(index)
    with pytest.raises(IndexError, match="output 1 of <Node cut> is absent"):
        cut.GetOutputDesc(1)
    with pytest.raises(IndexError, match="output 1 of <Node cut> is absent"):
        cut.GetOutDataNodesAndPortIndexs(1)
    with pytest.raises(IndexError, match="input 1 of <Node cut> is absent"):
        cut.GetInDataNodesAndPortIndexs(1)
    with pytest.raises(IndexError, match="output 1 of <Node cut> is absent"):
        _ = NodeIo(cut, 1).value


def test_a_place_is_equal_to_the_same_place(graph):
    act, total, *_ = graph.nodes
    assert NodeIo(act, 0) == NodeIo.of(act.outputs[0]) != NodeIo(total, 0)
    assert len({NodeIo(act, 0), NodeIo.of(act.outputs[0]), NodeIo(act, 1)}) == 2
    assert NodeIo(act, 0).value is act.outputs[0]
    entering = NodeIo.of(graph.values["x"])
    assert (entering.node.op_type, entering.node.outputs, entering.index) == (
        "Data",
        (graph.values["x"],),
        0,
    )
