"""What ONNX's inference reads as 0, or not at all, is declared."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest

from gehost import Host, HostOptions
from gehost.testing import parse
from gehost.verify import Runner, compare_outputs

FLATTEN = HostOptions(vendors=["gehost:ascend"], enable=["FlattenBatchMatMulAddPass"])
LINEAR = " ".join(f"{name}0 = MatMul (x, w{name}) {name} = Add ({name}0, b)" for name in "qkv")


def attention(declared: str = "", opset: int = 23) -> Any:
    rng = np.random.default_rng(0)
    return parse(
        f"""<ir_version: 10, opset_import: ["" : {opset}]>
        main (float[B, S, 8] x) => (float[B, S, 8] y) <{declared}> {{
            {LINEAR} a = Attention <q_num_heads = 2, kv_num_heads = 2> (q, k, v) y = MatMul (a, wq)
        }}""",
        {
            **{f"w{name}": rng.normal(size=(8, 8)).astype(np.float32) for name in "qkv"},
            "b": rng.normal(size=8).astype(np.float32),
        },
    )


def declared(result: onnx.ModelProto) -> dict[str, list[int]]:
    return {
        info.name: [dim.dim_value for dim in info.type.tensor_type.shape.dim]
        for info in result.graph.value_info
    }


@pytest.mark.parametrize("opset", [23, 24])
@pytest.mark.parametrize("value", ["", "float[B, S, 8] v", "float[B, S, W] v"])
def test_the_width_behind_a_computed_reshape_is_declared(value: str, opset: int) -> None:
    pytest.importorskip("onnxruntime")
    before = attention(value, opset)
    result, _ = Host(FLATTEN).run(before)
    assert sum(node.op_type == "Reshape" for node in result.graph.node) == 3
    assert declared(result)["v"][2] == 8
    onnx.checker.check_model(result, full_check=True)
    feeds = {"x": np.random.default_rng(1).normal(size=(2, 3, 8)).astype(np.float32)}
    expected, actual = Runner(before).run(feeds), Runner(result).run(feeds)
    assert all(one.equal for one in compare_outputs(expected, actual, rtol=1e-4, atol=1e-5))
    again, _ = Host(FLATTEN).run(result)
    assert again.SerializeToString(deterministic=True) == result.SerializeToString(
        deterministic=True
    )


def test_nothing_is_declared_where_inference_knows() -> None:
    result, report = Host(HostOptions(vendors=["gehost:paddle"])).run(attention())
    assert sum(record.replaced or 0 for record in report.passes)
    assert not declared(result)


def test_results_of_a_runtimes_operators() -> None:
    """Quantizers refuse what stands behind a tensor of unknown type."""
    model = parse(
        """<ir_version: 10, opset_import: ["" : 17]>
        main (float[B, 2, 8, 8] x) => (float[B, 4, 2, 2] y) {
            a = Conv <kernel_shape = [3, 3]> (x, w) r = Relu (a)
            b = Conv <kernel_shape = [3, 3], strides = [2, 2]> (r, v) y = Relu (b) }""",
        {
            "w": np.ones((4, 2, 3, 3), np.float32),
            "v": np.ones((4, 4, 3, 3), np.float32),
        },
    )
    options = HostOptions(vendors=["gehost:onnxruntime"], enable=["OrtConvActivationPass"])
    result, _ = Host(options).run(model)
    assert [node.op_type for node in result.graph.node] == ["FusedConv", "FusedConv"]
    assert not result.functions  # the calls differ
    assert declared(result) == {"r": [0, 4, 6, 6]}  # the batch has no number
    assert not result.graph.value_info[0].type.tensor_type.shape.dim[0].dim_param
    again, _ = Host(options).run(result)
    assert again.SerializeToString(deterministic=True) == result.SerializeToString(
        deterministic=True
    )
