"""GE's documented ``FuseMatMulAndAddPass``, transliterated line by line, runs as a vendor file."""

from __future__ import annotations

import pytest

from gehost import Host, HostOptions

DOCUMENTED = '''"""MatMul + Add (+ Relu) to GEMM, as GE's documentation has it."""
from gehost import *


@ops.register("ge::GEMM", outputs=["y"])
def gemm(a, b, c, alpha, beta, *, transpose_a=0, transpose_b=0):
    return es.MatMul(a, b) * es.CastLike(alpha, a) + c * es.CastLike(beta, a)


class FuseMatMulAndAddPass(PatternFusionPass):
    def Patterns(self):
        print("Define pattern for FuseMatMulAndAddPass")
        patterns = []

        graph_builder0 = EsGraphBuilder("pattern0")
        a0, b0, c0 = graph_builder0.CreateInputs(3)
        matmul0 = es.MatMul(a0, b0)
        add0 = es.Add(matmul0, c0)
        relu0 = es.Relu(add0)
        graph0 = graph_builder0.BuildAndReset([relu0])
        pattern0 = Pattern(graph0)
        pattern0.CaptureTensor(NodeIo(matmul0.GetProducer(), 0)).CaptureTensor(NodeIo(relu0.GetProducer(), 0))
        patterns.append(pattern0)

        graph_builder1 = EsGraphBuilder("pattern1")
        a1 = graph_builder1.CreateInput(0)
        b1 = graph_builder1.CreateInput(1)
        c1 = graph_builder1.CreateInput(2)
        matmul1 = es.MatMul(a1, b1)
        add1 = es.Add(c1, matmul1)
        relu1 = es.Relu(add1)
        graph1 = graph_builder1.BuildAndReset([relu1])
        pattern1 = Pattern(graph1)
        pattern1.CaptureTensor(NodeIo(matmul1.GetProducer(), 0)).CaptureTensor(NodeIo(relu1.GetProducer(), 0))
        patterns.append(pattern1)
        return patterns

    def MeetRequirements(self, match_result):
        print("Define MeetRequirements for FuseMatMulAndAddPass")
        matmul_io = match_result.GetCapturedTensor(0)
        relu_io = match_result.GetCapturedTensor(1)
        matmul_desc = matmul_io.node.GetOutputDesc(matmul_io.index)
        relu_desc = TensorDesc(relu_io.value)
        if matmul_desc.GetDataType() not in (DataType.DT_FLOAT, DataType.DT_FLOAT16):
            return False
        if matmul_desc.GetShape().GetShapeSize() == -1:
            return False
        for node in match_result.GetMatchedNodes():
            print(f"matched {node.GetName()} of type {node.GetType()}")
        return matmul_desc.GetShape().GetDims() == relu_desc.GetShape().GetDims()

    def Replacement(self, match_result):
        print("Define replacement for FuseMatMulAndAddPass")
        replace_graph_builder = EsGraphBuilder("replacement")
        r_a, r_b, r_c = replace_graph_builder.CreateInputs(3)
        alpha_const = replace_graph_builder.CreateScalar(1.0)
        beta_const = replace_graph_builder.CreateScalar(1.0)
        gemm = es.GEMM(r_a, r_b, r_c, alpha_const, beta_const)
        relu = es.Relu(gemm)
        replace_graph = replace_graph_builder.BuildAndReset([relu])
        (shape,) = GeUtils.InferShape(replace_graph, match_result)
        print(f"inferred {shape}")
        return replace_graph


REG_FUSION_PASS(FuseMatMulAndAddPass).Stage(CustomPassStage.kAfterInferShape)
'''

MODEL = """g (float[2,3] a, float[3,4] b, float[4] c, float[N,3] d, float[2,3] e) => (float[2,4] y, float[2,4] z, float[N,4] v) {
    t = MatMul(a, b) s = Add(t, c) y = Relu(s)
    r = MatMul(e, b) q = Add(c, r) z = Relu(q)
    p = MatMul(d, b) o = Add(p, c) v = Relu(o) }"""


@pytest.mark.parametrize("opset", [13, 17])
def test_runs(ascend, tmp_path, capsys, opset):
    directory = tmp_path / "documented" / "acme" / "custom_fusion_passes"
    directory.mkdir(parents=True)
    (directory / "fuse_matmul_add.py").write_text(DOCUMENTED)
    model = ascend.model(MODEL, opset=opset)
    host = Host(HostOptions(vendors=[tmp_path / "documented"], plugins=False))
    result, report = host.run(model)
    (record,) = report.passes
    assert (record.name, record.stage, record.vendor) == (
        "FuseMatMulAndAddPass",
        "kAfterInferShape",
        "acme",
    )
    assert (record.matched, record.replaced, dict(record.rejected)) == (
        3,
        2,
        {"MeetRequirements": 1},
    )
    assert ascend.ops(result) == {"ge::GEMM": 2, "Relu": 3, "MatMul": 1, "Add": 1}
    ascend.assert_equal(model, result, {"N": 5})
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.count("inferred float[2,4]") == 2
    assert "matched  of type MatMul" in said.err
