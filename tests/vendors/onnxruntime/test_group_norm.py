"""Normalization by groups of channels is CUDA's kernel; no CPU has one, so its body runs here."""

from __future__ import annotations

import numpy as np
import onnx
import onnx.parser
import pytest

from gehost import Host, HostOptions, Report
from gehost.errors import UnsupportedModelError
from gehost.verify import compare
from tests.vendors.onnxruntime.conftest import OWN

PASS = "OrtGroupNormPass"
TYPES = {"float": np.float32, "float16": np.float16, "double": np.float64}
PARTS = """r = Reshape (s, apart) i = InstanceNormalization <epsilon = 1e-3> (r, one, zero)
    sh = Shape (s) b = Reshape (i, sh) m = Mul (b, gamma) n = Add (m, beta)"""
STANDARD = "n = GroupNormalization <num_groups = 2, epsilon = 1e-3> (s, gamma1, beta1)"
SILU = "g = Sigmoid (n) y = Mul (n, g)"
IMAGE = "[N, 8, H, W]"


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> Host:
    """A host for CUDA, with this pass."""
    return _host(tmp_path_factory, "cuda")


def _host(factory: pytest.TempPathFactory, target: str, *, assumed: bool = True) -> Host:
    root = factory.mktemp("vendors")
    (root / OWN.name).symlink_to(OWN)
    assume = ["no-empty-inputs"] if assumed else []
    return Host(
        HostOptions(vendors=[root], plugins=False, target=target, enable=[PASS], assume=assume)
    )


def model(
    lines: str, dtype: str = "float", *, z: str = IMAGE, outputs: str = "", opset: int = 17
) -> onnx.ModelProto:
    result = onnx.parser.parse_model(
        f"""<ir_version: 10, opset_import: ["": {opset}]>
        g ({dtype}{IMAGE} x, {dtype}{z} z) => ({dtype}{IMAGE} y{outputs})
        <int64[3] apart = {{0, 2, -1}}> {{ {lines} }}"""
    )
    rng = np.random.default_rng(0)
    arrays = {
        "one": np.ones(2),
        "zero": np.zeros(2),
        "gamma": rng.standard_normal((8, 1, 1)),
        "beta": rng.standard_normal((1, 8, 1, 1)),
        "gamma1": rng.standard_normal(8),
        "beta1": rng.standard_normal(8),
        "each": np.array([0, 8, -1]),
        "one8": np.ones(8),
        "zero8": np.zeros(8),
        "two": np.array([1.0, 2.0]),
    }
    result.graph.initializer.extend(
        onnx.numpy_helper.from_array(
            array if array.dtype.kind == "i" else array.astype(TYPES[dtype]), name
        )
        for name, array in arrays.items()
        if f"{name}," in lines or f"{name})" in lines
    )
    return result


def attributes(result: onnx.ModelProto, op: str) -> dict[str, float]:
    (node,) = [item for item in result.graph.node if item.op_type == op]
    return {entry.name: onnx.helper.get_attribute_value(entry) for entry in node.attribute}


FORMS = {
    "scaled": ("s = Relu (x)", "y = Identity (n)", "GroupNorm", 0),
    "silu": ("s = Relu (x)", SILU, "GroupNorm", 1),
    "sum": ("s = Add (x, z)", "y = Identity (n)", "SkipGroupNorm", 0),
    "sum and silu": ("s = Add (z, x)", SILU, "SkipGroupNorm", 1),
}


@pytest.mark.parametrize("dtype", ["float", "float16"])
@pytest.mark.parametrize(("opset", "parts"), [(17, PARTS), (21, STANDARD)])
@pytest.mark.parametrize("form", FORMS)
def test_every_form(host: Host, form: str, opset: int, parts: str, dtype: str) -> None:
    before, after, op, silu = FORMS[form]
    inputs = model(f"{before} {parts} {after}", dtype, opset=opset)
    output, report = host.run(inputs)
    onnx.checker.check_model(output)
    expected = {"groups": 2, "activation": silu, "epsilon": pytest.approx(1e-3)}
    assert attributes(output, op) == expected
    assert not {node.op_type for node in output.graph.node} & {"Reshape", "Sigmoid", "Add"}
    scales = [scale for scale in output.graph.initializer if tuple(scale.dims) == (8,)]
    assert {scale.data_type for scale in scales[-2:]} == {onnx.TensorProto.FLOAT}
    assert report.needs == ["onnxruntime>=1.21.1"]
    result = compare(inputs, output)
    assert result.equal, result.summary()


@pytest.mark.parametrize("dtype", ["float", "float16"])
def test_a_sum_that_others_read_is_the_second_result(host: Host, dtype: str) -> None:
    """As in a residual block; the second addend is one number for each channel."""
    lines = f"s = Add (x, z) {PARTS} {SILU} t = Neg (s)"
    inputs = model(lines, dtype, z="[N, 8, 1, 1]", outputs=f", {dtype}{IMAGE} t")
    output, _ = host.run(inputs)
    (node,) = [item for item in output.graph.node if item.op_type == "SkipGroupNorm"]
    assert len(node.output) == 2
    assert "Add" not in {item.op_type for item in output.graph.node}
    result = compare(inputs, output)
    assert result.equal, result.summary()


def test_without_scale_and_shift(host: Host) -> None:
    lines = "s = Relu (x) " + PARTS.partition(" m = ")[0].replace("b = Reshape", "y = Reshape")
    inputs = model(lines)
    result, _ = host.run(inputs)
    assert attributes(result, "GroupNorm")["activation"] == 0
    assert compare(inputs, result).equal


LINES = f"s = Relu (x) {PARTS} {SILU}"
REFUSED = {
    "double": ("dtype", LINES, "double", 17),
    "one channel a group": (
        "groups",
        LINES.replace("apart", "each").replace("one, zero", "one8, zero8"),
        "float",
        17,
    ),
    "a scale for each group": ("scale", LINES.replace("one, zero", "two, zero"), "float", 17),
    "GroupNormalization of opset 18": (
        "scale",
        "s = Relu (x) y = GroupNormalization <num_groups = 2> (s, two, zero)",
        "float",
        18,
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_the_kernel_does_not_compute_stays(host: Host, name: str) -> None:
    reason, lines, dtype, opset = REFUSED[name]
    result, report = host.run(model(lines, dtype, opset=opset))
    assert "GroupNorm" not in {node.op_type for node in result.graph.node}
    assert rejected(report) == {reason}


def rejected(report: Report) -> set[str]:
    (record,) = [pass_ for pass_ in report.passes if pass_.name == PASS]
    return set(record.rejected)


def test_a_result_of_another_shape(host: Host) -> None:
    """The reshape behind the normalization leads to another shape than that of x."""
    lines = f"s = Relu (x) {PARTS} {SILU}".replace("sh = Shape (s)", "sh = Shape (z)")
    result, report = host.run(model(lines, z="[N, 4, H, K]"))
    assert "GroupNorm" not in {node.op_type for node in result.graph.node}
    assert rejected(report) == {"groups"}


def test_sizes_that_may_be_0(tmp_path_factory: pytest.TempPathFactory) -> None:
    _, report = _host(tmp_path_factory, "cuda", assumed=False).run(model(LINES))
    assert rejected(report) == {"empty"}


def test_a_step_that_is_an_output_stays(host: Host) -> None:
    inputs = model(LINES, outputs=f", float{IMAGE} m")
    result, _ = host.run(inputs)
    assert [node.op_type for node in result.graph.node if node.op_type == "Sigmoid"]
    assert compare(inputs, result).equal


def test_the_cpu_has_no_kernel(tmp_path_factory: pytest.TempPathFactory) -> None:
    _, report = _host(tmp_path_factory, "cpu").run(model(LINES))
    assert rejected(report) == {"kernel"}


def test_two_activations_have_no_body_and_need_the_device(host: Host) -> None:
    """A runtime would run one body for all calls, so that the file carries none."""
    again = "q = GroupNormalization <num_groups = 2> (k, gamma1, beta1) y = Add (q, x)"
    inputs = model(f"s = Relu (x) {STANDARD} g = Sigmoid (n) k = Mul (n, g) {again}", opset=21)
    result, _ = host.run(inputs)
    assert [node.op_type for node in result.graph.node].count("GroupNorm") == 2
    assert not result.functions
    with pytest.raises(UnsupportedModelError, match="no kernel of GroupNorm on a CPU.*--provider"):
        compare(inputs, result)
