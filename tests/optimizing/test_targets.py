"""Targets: those that ship, the default, and OpenVINO as a second runtime."""

from __future__ import annotations

import importlib.util
import warnings
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.numpy_helper
import onnx.version_converter
import pytest

import gehost
from gehost import UsageError, VendorError
from gehost.optimizing import Target, find_target, kernels, run, target, targets
from gehost.testing import parse
from gehost.tune import Comparison
from gehost_shipped.targets import openvino

MODELS = Path(__file__).parents[1] / "models"
needs_openvino = pytest.mark.skipif(
    importlib.util.find_spec("openvino") is None, reason="OpenVINO is not installed"
)


TWICE = """<ir_version: 8, opset_import: ["" : 17]> m (float[2] x) => (float[2] y)
{ z = Identity(x)
  y = Relu(z) }"""


class Entry:
    """Stands for an entry point."""

    def __init__(self, name: str, result: Any) -> None:
        self.name, self.value, self._made = name, "package:function", result

    def load(self) -> Any:
        if isinstance(self._made, Exception):
            raise self._made
        return lambda: self._made


class There(Target):
    name = "there"

    def missing(self) -> str:
        return ""


class Absent(There):
    def missing(self) -> str:
        return "it is not installed: pip install it"


def with_targets(monkeypatch: pytest.MonkeyPatch, **result: Any) -> None:
    entries = [Entry(name, item) for name, item in result.items()]
    monkeypatch.setattr(target, "entry_points", lambda group: entries)


def runs_there(path: str | Path) -> Any:
    """Load a file in OpenVINO."""
    return find_target("openvino").loaded(str(path))


def test_ours_ship() -> None:
    assert list(targets()) == ["any", "cpu", "cuda", "openvino"]
    for name, entry in targets().items():
        assert entry.name == name


@pytest.mark.parametrize(
    ("results", "expected"),
    [
        ({"cpu": There(), "any": Absent()}, "cpu"),
        ({"cuda": There(), "cpu": There(), "any": There()}, "cuda"),
        ({"cuda": Absent(), "cpu": There()}, "cpu"),
        ({"cuda": Absent(), "cpu": Absent(), "any": Absent()}, "any"),
    ],
)
def test_the_default_is_the_best_that_is_installed(
    monkeypatch: pytest.MonkeyPatch, results: dict[str, Target], expected: str
) -> None:
    with_targets(monkeypatch, **results)
    assert find_target() is results[expected]


def test_a_target_that_is_not_there_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with_targets(monkeypatch, cpu=There(), cuda=Absent())
    with pytest.raises(UsageError, match="--for cuda: it is not installed: pip install it"):
        find_target("cuda")
    with pytest.raises(UsageError, match="--for wasm: no such target; .*cpu, cuda"):
        find_target("wasm")
    with_targets(monkeypatch, own=ValueError("no"))
    with pytest.raises(VendorError, match=r"the target own \(package:function\) cannot be loaded"):
        targets()


def test_passes_of_the_targets_exist() -> None:
    for entry in targets().values():
        host = gehost.Host(gehost.HostOptions(vendors=entry.vendors))
        assert set(entry.passes) <= {spec.name for spec in host.passes}


@pytest.mark.parametrize(
    ("release", "name", "expected"),
    [
        ("1.29.1", "bert.ts17", {"SkipLayerNormalization": 4, "Sum": 0}),
        ("1.30.0", "bert.ts17", {"SkipLayerNormalization": 0, "Sum": 5}),
        ("1.30.0", "llama.ts17", {"SkipSimplifiedLayerNormalization": 4, "Sum": 0}),
    ],
)
def test_cpu_has_the_faster_form_of_residual_norms(
    release: str,
    name: str,
    expected: dict[str, int],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """SkipLayerNormalization takes 8 times as long as its parts from ONNX Runtime 1.30 on."""
    monkeypatch.setattr(pytest.importorskip("onnxruntime"), "__version__", release)
    path = tmp_path / "r.onnx"
    gehost.optimize(MODELS / f"{name}.onnx", "cpu", measured=False, output=path)
    operators = Counter(node.op_type for node in onnx.load(path).graph.node)
    assert {op: operators[op] for op in expected} == expected


@needs_openvino
@pytest.mark.parametrize("name", ["bert.ts17", "vit.dyn20", "gpt2.ts17"])
def test_what_any_writes_loads_in_openvino_and_computes_the_same(name: str, tmp_path: Path) -> None:
    path = MODELS / f"{name}.onnx"
    original, result = onnx.load(path), tmp_path / "r.onnx"
    gehost.optimize(path, "any", measured=False, output=result)
    feeds = gehost.verify.make_feeds(original)
    if name == "bert.ts17":
        feeds = {key: array[:, :8] for key, array in feeds.items()}
    expected, actual = (runs_there(item)(feeds) for item in (path, result))
    for output, array in expected.items():
        np.testing.assert_allclose(actual[output], array, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("name", ["bert.ts17", "vit.ts17"])
def test_the_usual_next_tools_take_what_any_writes(name: str, tmp_path: Path) -> None:
    quantization = pytest.importorskip("onnxruntime.quantization")
    result, quantized = tmp_path / "r.onnx", tmp_path / "q.onnx"
    gehost.optimize(MODELS / f"{name}.onnx", "any", measured=False, output=result)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        quantization.quantize_dynamic(result, quantized)
    assert "MatMulInteger" in {node.op_type for node in onnx.load(quantized).graph.node}
    gehost.verify.Runner(quantized)
    assert onnx.version_converter.convert_version(onnx.load(result), 21)
    again = gehost.optimize(quantized, "cpu", measured=False).model
    kernels = [
        [node.op_type for node in onnx.load(path).graph.node].count("MatMulInteger")
        for path in (quantized, again)
    ]
    assert kernels[0] == kernels[1]


@needs_openvino
def test_openvino_checks_and_measures_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def measure(first: Any, second: Any, **_options: Any) -> Comparison:
        assert len(first()()) == len(second()()) == 1
        return Comparison((1.0, 1.001, 0.999))

    monkeypatch.setattr(run, "measure_pairs", measure)
    path = tmp_path / "m.onnx"
    onnx.save(parse(TWICE), path)
    result = gehost.optimize(path, "openvino")
    assert result.report.title.startswith("OpenVINO ")
    assert result.report.gain is not None
    assert onnx.load(result.model).graph.node[0].op_type == "Relu"


def test_without_openvino_the_line_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> Any:
        raise ImportError(name)

    monkeypatch.setattr(importlib, "import_module", missing)
    monkeypatch.setattr(target, "entry_points", lambda group: [])
    from gehost_shipped.targets.openvino import OpenVino

    assert "pip install 'openvino>=2025.1'" in OpenVino().missing()


@needs_openvino
def test_operators_that_openvino_lacks_are_those_of_the_input(tmp_path: Path) -> None:
    """A file of another target is no model to start from."""
    lacking = onnx.parser.parse_model(
        '<ir_version: 8, opset_import: ["" : 17, "com.microsoft" : 1]>'
        "m (float[2] x) => (float[2] y) { y = com.microsoft.NGramRepeatBlock(x) }"
    )
    onnx.save(lacking, path := tmp_path / "m.cpu.onnx")
    with pytest.raises(gehost.ModelError, match="does not load in OpenVINO") as caught:
        gehost.optimize(path, "openvino", measured=False)
    assert "com.microsoft::NGramRepeatBlock; where gehost wrote the input" in str(caught.value.hint)
    assert "optimize its original model --for openvino" in str(caught.value.hint)


@needs_openvino
def test_openvino_gets_the_attention_that_its_importer_takes(tmp_path: Path) -> None:
    path, result = MODELS / "vit.dyn20.onnx", tmp_path / "r.onnx"
    match = gehost.optimize(path, "openvino", measured=False, output=result)
    text = onnx.load(result)
    assert [node.op_type for node in text.graph.node if node.domain] == ["Attention"] * 2
    assert not text.functions
    assert "any plain session of OpenVINO runs it" in " ".join(map(str.strip, match.report.lines()))
    feeds = gehost.verify.make_feeds(onnx.load(path))
    expected, actual = (runs_there(item)(feeds) for item in (path, result))
    for output, array in expected.items():
        np.testing.assert_allclose(actual[output], array, rtol=1e-3, atol=1e-4)


@needs_openvino
@pytest.mark.parametrize("channels", [512, 1024])  # both need a kilobyte or more
@pytest.mark.parametrize("made", [False, True])
def test_openvino_fuses_equal_biases_into_their_convolutions(
    channels: int, made: bool, tmp_path: Path
) -> None:
    """Read by both, they and the Relu behind them are layers of their own."""
    fills = "".join(
        f"{bias} = ConstantOfShape <value = float[1] {{0.5}}> ({size}) "
        for bias, size in ("bn", "cm")
        if made
    )
    text = f"""<ir_version: 8, opset_import: ["" : 17]>
    m (float[1, 4, 2, 2] x) => (float[1, {channels}, 2, 2] y) <int64[1] n = {{{channels}}}, int64[1] m = {{{channels}}}> {{
        {fills}d = Conv(x, w, b)  e = Relu(d)  f = Conv(e, v, c)  y = Relu(f)
    }}"""
    draw = np.random.default_rng(0).standard_normal
    weights = {"w": draw((channels, 4, 1, 1)), "v": draw((channels, channels, 1, 1))}
    biases = {} if made else dict.fromkeys("bc", np.full(channels, 0.5))
    model = onnx.parser.parse_model(text)
    for name, array in (weights | biases).items():
        tensor = onnx.numpy_helper.from_array(array.astype(np.float32), name)
        model.graph.initializer.append(tensor)
    onnx.save(model, path := tmp_path / "m.onnx")
    result = gehost.optimize(path, "openvino", measured=False).model
    assert executed(result) == executed(path)
    assert "Subgraph" not in executed(result)


def executed(path: str | Path) -> list[str]:
    """Return the kinds of layers that OpenVINO executes, without constants."""
    model = openvino._compiled(str(path), 1).get_runtime_model()
    kinds = [op.get_rt_info()["layerType"].astype(str) for op in model.get_ordered_ops()]
    return sorted(kind for kind in kinds if kind not in ("Const", "Reshape", "Reorder"))


@needs_openvino
def test_what_openvino_computes_otherwise_is_dropped_and_named(tmp_path: Path) -> None:
    model, path = onnx.load(MODELS / "bert.ts17.onnx"), tmp_path / "m.onnx"
    for node in model.graph.node:  # its importer ignores the scale of Attention
        if node.op_type == "Constant" and "layer.0/attention/self/Constant_6_" in node.output[0]:
            node.attribute[0].t.CopyFrom(onnx.numpy_helper.from_array(np.float32(2)))
    onnx.save(model, path)
    result = gehost.optimize(path, "openvino", measured=False)
    assert result.report.dropped["OrtPackedAttentionPass"].startswith("differs in OpenVINO ")
    feeds = {name: array[:, :8] for name, array in gehost.verify.make_feeds(model).items()}
    expected, actual = (runs_there(item)(feeds) for item in (path, result.model))
    for output, array in expected.items():
        np.testing.assert_allclose(actual[output], array, rtol=1e-3, atol=1e-4)


def test_kernels_need_a_package_and_a_session_that_takes_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    path = MODELS / "bert.ts17.onnx"
    with pytest.raises(UsageError, match=r"--kernels: ONNX Runtime .* takes none .*--for any"):
        gehost.optimize(path, "any", kernels=True)
    with pytest.raises(UsageError, match="kernels are written beside a file"):
        gehost.optimize(onnx.load(path), "cpu", kernels=True)
    monkeypatch.setattr(kernels, "entry_points", lambda group: [])
    with pytest.raises(UsageError, match="--kernels: nothing here writes any; .*gehost-linalg"):
        gehost.optimize(path, "cpu", kernels=True)


class Compiled:
    """Stands for a compiled file of OpenVINO that raises where ``fails`` says so."""

    def __init__(self, model: Any, fails: Any) -> None:
        self._model, self._fails, self.outputs = model, fails, model.outputs

    def __call__(self, feeds: Any) -> Any:
        if self._fails(feeds):
            raise RuntimeError("Check 'axis < rank' failed\nat x.cpp:7")
        return self._model(feeds)

    def create_infer_request(self) -> Any:
        return self

    def infer(self, feeds: Any, **_options: Any) -> Any:
        return self(feeds)


@needs_openvino
@pytest.mark.parametrize("measured", [False, True])
def test_a_model_that_does_not_run_there_is_not_called_equal_there(
    measured: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    compiled = openvino._compiled
    monkeypatch.setattr(openvino, "_compiled", lambda *a: Compiled(compiled(*a), lambda _: True))
    path = tmp_path / "m.onnx"
    onnx.save(parse(TWICE), path)
    report = gehost.optimize(path, "openvino", measured=measured).report
    assert "in ONNX Runtime alone: the original runs on none of the inputs" in report.numbers
    assert report.numbers.endswith("Check 'axis < rank' failed at x.cpp:7")
    assert not measured or "the original does not run in OpenVINO" in report.unmeasured


@needs_openvino
def test_a_fusion_that_fails_at_the_size_to_measure_with_is_dropped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    compiled = openvino._compiled

    def fused_fails(path: str, threads: int) -> Any:
        has_fusion = any(node.op_type == "Attention" for node in onnx.load(path).graph.node)
        return Compiled(
            compiled(path, threads),
            lambda feeds: has_fusion and max(feed.shape[1] for feed in feeds.values()) > 20,
        )

    monkeypatch.setattr(openvino, "_compiled", fused_fails)
    monkeypatch.setattr(run, "measure_pairs", lambda *_args, **_options: Comparison((1.0,) * 3))
    report = gehost.optimize(
        MODELS / "bert.ts17.onnx", "openvino", output=tmp_path / "r.onnx"
    ).report
    assert "does not run in OpenVINO" in report.dropped["OrtPackedAttentionPass"]
    assert "Attention" not in {op.rpartition("::")[2] for op in report.fused}


@needs_openvino
def test_a_result_with_two_names_is_compared_by_the_name_of_the_output() -> None:
    """OpenVINO gives the result behind an Identity both names; without it, one."""
    model = parse(
        """<ir_version: 8, opset_import: ["" : 17]> m (float[2] x) => (float[2] out, float[2] z)
        { a = Relu(x) b = Softplus(a) out = Identity(b) z = Exp(a) }"""
    )
    result = gehost.optimize(model, "openvino", measured=False).model
    assert [node.op_type for node in result.graph.node] == ["Relu", "Softplus", "Exp"]
