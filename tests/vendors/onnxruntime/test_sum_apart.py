"""Sums that ONNX Runtime would fuse with a normalization, and those that it would not."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from gehost import Host, HostOptions
from gehost.testing import parse
from gehost.verify import Runner

VENDOR = Path(__file__).parents[3] / "vendors" / "onnxruntime"
LAYER = "y = LayerNormalization <epsilon = 1e-5> (s, g, b)"
PARTS = """m = ReduceMean <axes = [-1]> (s) d = Sub (s, m) q = Pow (d, two)
    v = ReduceMean <axes = [-1]> (q) e = Add (v, eps) r = Sqrt (e) n = Div (d, r)
    h = Mul (n, g) y = Add (h, b)"""


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> Host:
    """A host with this pass alone."""
    root = tmp_path_factory.mktemp("vendors")
    (root / VENDOR.name).symlink_to(VENDOR)
    return Host(HostOptions(vendors=[root], plugins=False, enable=["OrtResidualSumPass"]))


def model(norm: str = LAYER, other: str = "float[2, 3, 8] z", kind: str = "float") -> Any:
    return parse(
        f"""<ir_version: 8, opset_import: ["" : 17]>
    main ({kind}[2, 3, 8] x, {other}) => ({kind}[2, 3, 8] y)
    <float two = {{2}}, float eps = {{1e-5}}, {kind}[8] g = {{1, 2, 3, 4, 5, 6, 7, 8}},
     {kind}[8] b = {{8, 7, 6, 5, 4, 3, 2, 1}}> {{ s = Add (x, z) {norm} }}"""
    )


def in_session(proto: onnx.ModelProto, path: Path) -> Counter[str]:
    """The operators of the graph that a plain session of the runtime runs."""
    onnxruntime = pytest.importorskip("onnxruntime")
    options = onnxruntime.SessionOptions()
    options.optimized_model_filepath = str(path)
    options.log_severity_level = 3
    onnxruntime.InferenceSession(proto.SerializeToString(), options)
    return Counter(node.op_type for node in onnx.load(path).graph.node)


@pytest.mark.parametrize("norm", [LAYER, PARTS], ids=["operator", "parts"])
def test_the_runtime_leaves_the_sum_alone(host: Host, norm: str, tmp_path: Path) -> None:
    original = model(norm)
    compiled, _ = host.run(original)
    assert in_session(original, tmp_path / "before.onnx")["SkipLayerNormalization"] == 1
    operators = in_session(compiled, tmp_path / "after.onnx")
    assert operators == {"Sum": 1, "LayerNormalization": 1}
    feeds = {
        name: np.random.default_rng(0).normal(size=(2, 3, 8)).astype(np.float32) for name in "xz"
    }
    for one, other in zip(
        Runner(original).run(feeds).values(), Runner(compiled).run(feeds).values(), strict=True
    ):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize(
    "changes",
    [{"other": "float[8] z"}, {"kind": "double", "other": "double[2, 3, 8] z"}],
    ids=["a bias", "another type"],
)
def test_near_misses(host: Host, changes: dict[str, str]) -> None:
    compiled, report = host.run(model(**changes))
    assert [node.op_type for node in compiled.graph.node] == ["Add", "LayerNormalization"]
    (record,) = [record for record in report.passes if record.name == "OrtResidualSumPass"]
    assert list(record.rejected) == ["sum"]


def test_a_sum_before_something_else_is_no_candidate(host: Host) -> None:
    compiled, report = host.run(model("m = ReduceMean <axes = [-1]> (s) y = Div (s, m)"))
    assert [node.op_type for node in compiled.graph.node] == ["Add", "ReduceMean", "Div"]
    assert not any(record.matched for record in report.passes)
