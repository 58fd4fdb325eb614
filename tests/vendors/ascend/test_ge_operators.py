from __future__ import annotations

import numpy as np
import onnx
import pytest

from gehost import Host, HostOptions

PASS = """
from gehost import EsGraphBuilder, Pattern, PatternFusionPass, REG_FUSION_PASS, DataType, es

@REG_FUSION_PASS
class WriteGemmPass(PatternFusionPass):
    def Patterns(self):
        builder = EsGraphBuilder("p")
        a, b, c = builder.CreateInputs(3)
        return [Pattern(builder.BuildAndReset([es.Sum(a, b, c)]))]

    def Replacement(self, match):
        builder = EsGraphBuilder("r")
        a, b, c = builder.CreateInputs(3)
        alpha, beta = {factors}
        return builder.BuildAndReset([es.GEMM(a, b, c, alpha, beta, **{attributes})])
"""


@pytest.mark.parametrize("opset", [13, 17])
@pytest.mark.parametrize("factors", [(0.5, -2.0), (3, 2)], ids=["float", "integer"])
@pytest.mark.parametrize("left", [0, 1])
@pytest.mark.parametrize("right", [0, 1])
def test_body_is_the_general_product(ascend, tmp_path, left, right, factors, opset):
    directory = tmp_path / "other" / "custom_fusion_passes"
    directory.mkdir(parents=True)
    (tmp_path / "ascend").symlink_to(ascend.root / "ascend")
    scalars = ", ".join(f"builder.CreateScalar({factor})" for factor in factors)
    attributes = {"transpose_a": left, "transpose_b": right}
    (directory / "write.py").write_text(PASS.format(factors=f"({scalars})", attributes=attributes))
    text = "g (float[3,3] a, float[3,3] b, float[3] c) => (float[3,3] y) { y = Sum(a, b, c) }"
    model = ascend.model(text, opset=opset)
    result, _ = type(ascend)(tmp_path).run(model, "WriteGemmPass")
    assert ascend.ops(result) == {"ge::GEMM": 1}
    onnx.checker.check_model(result)
    feeds = ascend.feeds(model, {})
    a, b, c = feeds.values()
    alpha, beta = factors
    expected = alpha * ((a.T if left else a) @ (b.T if right else b)) + beta * c
    np.testing.assert_allclose(ascend.outputs(result, feeds)[0], expected, rtol=1e-4, atol=1e-5)


def test_registered_for_every_file_of_the_host(ascend):
    host = Host(HostOptions(vendors=[ascend.root], plugins=False))
    gemm = host.ops.get("ge::GEMM")
    assert gemm.inputs == ("a", "b", "c", "alpha", "beta")
    assert gemm.attributes == {"transpose_a": 0, "transpose_b": 0}
    assert host.ops.resolve("GEMM") == "ge::GEMM"
