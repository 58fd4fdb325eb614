"""ONNX's own Attention: forms, numbers in ONNX Runtime and the reference, refusals by name."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from gehost import Host, HostOptions
from gehost.testing import parse
from gehost.verify import Runner, compare_outputs
from tests.conftest import is_older

pytest.importorskip("onnxruntime")

NAME = "AttentionOperatorPass"
VENDOR = Path(__file__).parents[3] / "vendors" / "onnx"
CAUSAL = """n = Shape <start = 2, end = 3> (q) square = Concat <axis = 0> (n, n)
    lows = Expand (low, square) one = Constant <value = int64 {1}> ()
    mask = Trilu <upper = 1> (lows, one) a = Add (s, mask)"""
REPEATED = """two = Constant <value_ints = [2]> () times = Constant <value_ints = [1, 1, 2, 1, 1]> ()
    all = Constant <value_ints = [0, 4, -1, 8]> ()
    ku = Unsqueeze (k0, two) ke = Expand (ku, times) k = Reshape (ke, all)
    vu = Unsqueeze (v0, two) ve = Expand (vu, times) v = Reshape (ve, all)"""


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> Host:
    root = tmp_path_factory.mktemp("vendors")
    (root / "onnx").symlink_to(VENDOR)
    return Host(
        HostOptions(vendors=[root], plugins=False, enable=[NAME], assume=["no-empty-inputs"])
    )


def model(
    masked: str = "a = Identity (s)", repeated: str = "", *, dtype: str = "float", opset: int = 23
) -> onnx.ModelProto:
    heads, end = (2, "0") if repeated else (4, "")
    return parse(f"""<ir_version: 10, opset_import: ["" : {opset}]>
    main ({dtype}[B, 4, S, 8] q, {dtype}[B, {heads}, S, 8] k{end}, {dtype}[B, {heads}, S, 8] v{end},
          {dtype}[B, 1, 1, S] row) => ({dtype}[B, 4, S, 8] y)
    <{dtype} low = {{-1e30}}, {dtype} scale = {{0.25}}, {dtype} cap = {{2.0}}> {{
        {repeated} kt = Transpose <perm = [0, 1, 3, 2]> (k) m = MatMul (q, kt) s = Mul (m, scale)
        {masked} p = Softmax <axis = -1> (a) y = MatMul (p, v)
    }}""")


def feeds(model: onnx.ModelProto, batch: int, rows: int) -> dict[str, Any]:
    rng = np.random.default_rng(0)
    sizes = {"B": batch, "S": rows}
    return {
        value.name: rng.normal(
            size=[
                sizes[dim.dim_param] if dim.dim_param else dim.dim_value
                for dim in value.type.tensor_type.shape.dim
            ]
        ).astype(np.float32)
        for value in model.graph.input
    }


FORMS = {
    "plain": ("a = Identity (s)", ""),
    "capped": ("c = Div (s, cap) t = Tanh (c) a = Mul (t, cap)", ""),
    "causal": (CAUSAL, ""),
    "heads of k and v that are shared": (CAUSAL, REPEATED),
}


@pytest.mark.parametrize(("masked", "repeated"), FORMS.values(), ids=FORMS)
@pytest.mark.parametrize("opset", [23, 24])
def test_forms(host: Host, masked: str, repeated: str, opset: int) -> None:
    inputs = model(masked, repeated, opset=opset)
    result, report = host.run(inputs)
    (record,) = [one for one in report.passes if one.name == NAME]
    assert record.replaced == 1, dict(record.rejected)
    kernels = [node for node in result.graph.node if node.op_type == "Attention"]
    assert len(kernels) == 1
    assert not any(node.op_type in {"Softmax", "Trilu", "Tanh"} for node in result.graph.node)
    onnx.checker.check_model(result, full_check=True)
    for batch, rows in ((2, 5), (1, 1)):
        fed = feeds(inputs, batch, rows)
        expected = Runner(inputs).run(fed)
        runners = [Runner(result, engine="reference")]
        runners += [] if is_older("1.28") else [Runner(result)]
        for runner in runners:
            for one in compare_outputs(expected, runner.run(fed), rtol=1e-3, atol=1e-4):
                assert one.equal, one


REFUSED = {
    "a mask of an input": ({"masked": "a = Add (s, row)"}, "mask"),
    "a causal mask and another": (
        {"masked": CAUSAL.replace("a = Add", "b = Add") + " a = Add (b, row)"},
        "mask",
    ),
    "float64": ({"dtype": "double"}, "dtype"),
}


@pytest.mark.parametrize(("changes", "reason"), REFUSED.values(), ids=REFUSED)
def test_refusals(host: Host, changes: Any, reason: str) -> None:
    _, report = host.run(model(**changes))
    (record,) = [one for one in report.passes if one.name == NAME]
    assert list(record.rejected) == [reason]


def test_sizes_that_may_be_0_and_older_releases_and_opsets(host: Host) -> None:
    _, report = host.with_options(assume=[]).run(model())
    (record,) = [one for one in report.passes if one.name == NAME]
    assert list(record.rejected) == ["empty"]
    _, report = host.with_options(target="cpu:1.27").run(model())
    (record,) = [one for one in report.passes if one.name == NAME]
    assert list(record.rejected) == ["kernel"]
    _, report = host.run(model(opset=22))
    (record,) = [one for one in report.passes if one.name == NAME]
    assert record.status == "not applicable"
