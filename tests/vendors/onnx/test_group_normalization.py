"""ONNX's own GroupNormalization: numbers in ONNX Runtime and the reference, refusals by name."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import onnx
import pytest

from gehost import Host, HostOptions
from gehost.testing import parse
from gehost.verify import Runner, compare_outputs

pytest.importorskip("onnxruntime")

NAME = "GroupNormalizationPass"
VENDOR = Path(__file__).parents[3] / "vendors" / "onnx"
PARTS = """r = Reshape (x, apart) i = InstanceNormalization <epsilon = 1e-3> (r, one, zero)
    size = Shape (x) n = Reshape (i, size)"""
SCALED = f"{PARTS} m = Mul (n, gamma) y = Add (m, beta)"
TYPES = {"float": np.float32, "float16": np.float16, "double": np.float64}


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> Host:
    root = tmp_path_factory.mktemp("vendors")
    (root / "onnx").symlink_to(VENDOR)
    return Host(
        HostOptions(vendors=[root], plugins=False, enable=[NAME], assume=["no-empty-inputs"])
    )


def model(lines: str, dtype: str = "float", opset: int = 21) -> onnx.ModelProto:
    draw = np.random.default_rng(0)
    arrays = {
        "one": np.ones(2),
        "zero": np.zeros(2),
        "gamma": draw.standard_normal((8, 1, 1)),
        "beta": draw.standard_normal((1, 8, 1, 1)),
        "w": np.ones(8),
        "two": np.array([1.0, 2.0]),
        "other": np.array([-1, 4, 6, 10]),
    }
    weights = {
        name: array if name == "other" else array.astype(TYPES[dtype])
        for name, array in arrays.items()
        if name in re.findall(r"\w+", lines)
    }
    return parse(
        f"""<ir_version: 10, opset_import: ["" : {opset}]>
        main ({dtype}[N, 8, H, W] x) => ({dtype}[N, 8, H, W] y)
        <int64[3] apart = {{0, 2, -1}}> {{ {lines} }}""",
        weights,
    )


@pytest.mark.parametrize("dtype", ["float", "float16"])
@pytest.mark.parametrize("lines", [SCALED, PARTS.replace(" n =", " y =")])
@pytest.mark.parametrize("opset", [21, 24])
def test_parts_become_the_operator(host: Host, lines: str, dtype: str, opset: int) -> None:
    inputs = model(lines, dtype, opset)
    result, _ = host.run(inputs)
    assert [node.op_type for node in result.graph.node] == ["GroupNormalization"]
    onnx.checker.check_model(result)
    feeds = {"x": np.random.default_rng(1).normal(1, 2, (2, 8, 3, 5)).astype(TYPES[dtype])}
    expected, near = Runner(inputs).run(feeds), 1e-5 if dtype == "float" else 5e-3
    for engine in ("onnxruntime", "reference"):
        numbers = Runner(result, engine=engine).run(feeds)
        for entry in compare_outputs(expected, numbers, rtol=near, atol=near):
            assert entry.equal, (engine, entry)


@pytest.mark.parametrize(
    ("key", "lines", "dtype"),
    [
        ("dtype", SCALED, "double"),
        ("form", "y = GroupNormalization <num_groups = 2> (x, w, w)", "float"),
        ("scale", SCALED.replace("(r, one, zero)", "(r, two, zero)"), "float"),
        ("groups", SCALED.replace("size = Shape (x)", "size = Identity (other)"), "float"),
    ],
)
def test_what_the_operator_does_not_compute_stays(
    host: Host, key: str, lines: str, dtype: str
) -> None:
    _, report = host.run(model(lines, dtype))
    (record,) = [one for one in report.passes if one.name == NAME]
    assert (record.replaced, set(record.rejected)) == (0, {key})


def test_sizes_that_may_be_0_stay(host: Host) -> None:
    _, report = host.with_options(assume=[]).run(model(SCALED))
    (record,) = [one for one in report.passes if one.name == NAME]
    assert set(record.rejected) == {"empty"}


def test_older_opsets_have_another_operator(host: Host) -> None:
    result, _ = host.run(model(SCALED, opset=20))
    assert "GroupNormalization" not in {node.op_type for node in result.graph.node}
