"""GE's published examples, spelled in Python, as a vendor directory's only file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import onnx
import onnx.parser
import pytest

from gehost import Host, HostOptions, hookimpl
from gehost.verify import Baseline

SHIPPED = Path(__file__).parents[2] / "vendors"

DOCUMENTED = """
from gehost import *

class FuseMatMulAndAddPass(PatternFusionPass):
    def Patterns(self):
        graph_builder0 = EsGraphBuilder("pattern0")
        a0, b0, c0 = graph_builder0.CreateInputs(3)
        add0 = es.Add(es.MatMul(a0, b0), c0)
        return [Pattern(graph_builder0.BuildAndReset([add0]))]

    def Replacement(self, match_result):
        builder = EsGraphBuilder("replacement")
        r_a, r_b, r_c = builder.CreateInputs(3)
        gemm = es.GEMM(r_a, r_b, r_c, builder.CreateScalar(1), builder.CreateScalar(1))
        return builder.BuildAndReset([gemm])

REG_FUSION_PASS(FuseMatMulAndAddPass).Stage(CustomPassStage.kBeforeInferShape)
"""
MATMUL_ADD = """<ir_version: 8, opset_import: ["" : 17]>
g (float[2,3] a, float[3,4] b, float[4] c) => (float[2,4] y)
<float[2,4] p> { p = MatMul(a, b) y = Add(p, c) }"""
RELU_OF_INPUTS = """<ir_version: 8, opset_import: ["" : 17]>
g (float[N,3] x) => (float[N,3] y) <float[3] w = {1, 2, 3}> {
    a = Relu(x) b = Add(a, w) y = Sub(b, x) }"""


def vendor(root: Path, code: str) -> Path:
    """Write one vendor with one file; returns the directory of vendors."""
    passes = root / "own" / "acme" / "custom_fusion_passes"
    passes.mkdir(parents=True)
    (passes / "p.py").write_text(code, encoding="utf-8")
    return root / "own"


def run(text: str, *vendors: Path, plugins: Any = ()) -> tuple[onnx.ModelProto, Any]:
    model = onnx.parser.parse_model(text)
    host = Host(HostOptions(vendors=vendors, cleanup=False), plugins=plugins)
    result, report = host.run(model)
    assert not Baseline.of(model, None).against(result).as_dict().get("differences")
    return result, {record.name: record for record in report.passes}


def ops(model: onnx.ModelProto) -> list[str]:
    return [node.op_type for node in model.graph.node]


@pytest.mark.parametrize("shipped", [False, True])
def test_the_documented_file_runs_alone_and_beside_the_shipped_vendors(tmp_path, shipped):
    own = vendor(tmp_path, DOCUMENTED)
    result, records = run(MATMUL_ADD, own, *[SHIPPED] * shipped)
    assert records["FuseMatMulAndAddPass"].replaced == 1
    assert ops(result) == ["GEMM"]


CAPTURES = """
from gehost import *

@REG_FUSION_PASS(stage=CustomPassStage.kAfterInferShape)
class SeeProducers(PatternFusionPass):
    def Patterns(self):
        builder = EsGraphBuilder("p")
        x, w, z = builder.CreateInputs(3)
        add = es.Add(x, w)
        pattern = Pattern(builder.BuildAndReset([es.Sub(add, z)]))
        pattern.CaptureTensor(NodeIo(x.GetProducer(), 0))
        return [pattern.CaptureTensor((w.GetProducer(), 0)).CaptureTensor(z)]

    def MeetRequirements(self, match):
        types, sizes = [], []
        for index in range(3):
            io = match.GetCapturedTensor(index)
            types.append(io.node.GetType())
            sizes.append(io.node.GetOutputDesc(io.index).GetShape().GetShapeSize())
        filled = NodeIo()
        assert match.GetCapturedTensor(1, filled) == GRAPH_SUCCESS
        assert filled == match.GetCapturedTensor(1)
        desc = TensorDesc()
        assert desc.GetDataType() == DataType.DT_UNDEFINED
        assert filled.node.GetOutputDesc(filled.index, desc) == GRAPH_SUCCESS
        assert desc.GetShape().GetDims() == [3] and desc.GetDataType() == DataType.DT_FLOAT
        return match.reject(f"{types} {sizes}")

    def Replacement(self, match):
        raise AssertionError
"""


def test_a_captured_placeholder_has_a_producer_to_query(tmp_path):
    _, records = run(RELU_OF_INPUTS, vendor(tmp_path, CAPTURES))
    assert dict(records["SeeProducers"].rejected) == {"['Relu', 'Const', 'Data'] [-1, 3, -1]": 1}


ONE_TO_N = """
from gehost import *

class CustomOne2NPass(DecomposePass):
    def __init__(self, op_types):
        super().__init__(op_types)
    def MeetRequirements(self, matched_node):
        return matched_node.GetType() == "Relu"
    def Replacement(self, matched_node):
        builder = EsGraphBuilder("r")
        x = builder.CreateInput(0)
        return builder.BuildAndReset([es.Max(x, 0.0)])

REG_DECOMPOSE_PASS(CustomOne2NPass, ["Relu"]).Stage(CustomPassStage.kAfterInferShape)
"""


def test_a_decompose_pass_gets_its_operators(tmp_path):
    result, records = run(RELU_OF_INPUTS, vendor(tmp_path, ONE_TO_N))
    assert records["CustomOne2NPass"].replaced == 1
    assert ops(result) == ["Max", "Add", "Sub"]


SUPPORT = """
from gehost import *

@REG_FUSION_PASS(stage=CustomPassStage.kAfterInferShape)
class AskTarget(PatternFusionPass):
    def Patterns(self):
        builder = EsGraphBuilder("p")
        x, w = builder.CreateInputs(2)
        return [Pattern(builder.BuildAndReset([es.Add(es.Relu(x), w)]))]

    def Replacement(self, match):
        builder = EsGraphBuilder("r")
        x, w = builder.CreateInputs(2)
        total = es.Sum(es.Max(x, 0.0), w)
        y = es.Cast(total, to=1)
        graph = builder.BuildAndReset([y])
        for tensor in (total, y):
            support = GeUtils.CheckNodeSupportOnAicore(tensor.GetProducer())
            if not support:
                return match.reject(f"support: {support.reason}")
        assert GeUtils.CheckNodeSupportOnAicore(match.inputs[1] and match.GetMatchedNodes()[0])
        return graph
"""


class Target:
    """A target that runs no operator called ``refused``."""

    def __init__(self, refused: str) -> None:
        self.refused = refused
        self.asked: list[Any] = []

    @hookimpl
    def gehost_check_node_support(self, node: Any) -> str | None:
        shapes = [value and (value.dtype.name, value.shape) for value in node.inputs]
        self.asked.append((node.domain, node.op_type, dict(node.attrs), shapes))
        return f"no kernel for {node.op_type}" if node.op_type == self.refused else None


@pytest.mark.parametrize("refused", ["", "Cast"])
def test_the_target_may_refuse_a_node_of_the_replacement(tmp_path, refused):
    target = Target(refused)
    result, records = run(RELU_OF_INPUTS, vendor(tmp_path, SUPPORT), plugins=[("target", target)])
    record = records["AskTarget"]
    assert target.asked[:2] == [
        ("", "Sum", {}, [("FLOAT", ("N", 3)), ("FLOAT", (3,))]),
        ("", "Cast", {"to": 1}, [("FLOAT", ("N", 3))]),
    ]
    if refused:
        assert (record.replaced, dict(record.rejected)) == (0, {"support": 1})
        assert ops(result) == ["Relu", "Add", "Sub"]
    else:
        assert record.replaced == 1
        assert ops(result) == ["Max", "Sum", "Cast", "Sub"]
