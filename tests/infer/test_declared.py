"""The width of v that ONNX's inference of Attention reads as 0 where it does not know it."""

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


def declared(made: onnx.ModelProto) -> dict[str, list[int]]:
    return {
        info.name: [dim.dim_value for dim in info.type.tensor_type.shape.dim]
        for info in made.graph.value_info
    }


@pytest.mark.parametrize("opset", [23, 24])
@pytest.mark.parametrize("given", ["", "float[B, S, 8] v", "float[B, S, W] v"])
def test_the_width_behind_a_computed_reshape_is_declared(given: str, opset: int) -> None:
    pytest.importorskip("onnxruntime")
    before = attention(given, opset)
    made, _ = Host(FLATTEN).run(before)
    assert sum(node.op_type == "Reshape" for node in made.graph.node) == 3
    assert declared(made)["v"][2] == 8
    onnx.checker.check_model(made, full_check=True)
    feeds = {"x": np.random.default_rng(1).normal(size=(2, 3, 8)).astype(np.float32)}
    expected, found = Runner(before).run(feeds), Runner(made).run(feeds)
    assert all(one.equal for one in compare_outputs(expected, found, rtol=1e-4, atol=1e-5))
    again, _ = Host(FLATTEN).run(made)
    assert again.SerializeToString(deterministic=True) == made.SerializeToString(deterministic=True)


def test_nothing_is_declared_where_inference_knows() -> None:
    made, report = Host(HostOptions(vendors=["gehost:paddle"])).run(attention())
    assert sum(record.replaced or 0 for record in report.passes)
    assert not declared(made)
