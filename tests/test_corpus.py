"""The real models of ``../shared/corpus``, where it stands beside the repository, through the whole host."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from gehost import Host, HostOptions, Report
from gehost.verify import Runner, compare, compare_outputs, load_feeds
from tests.host.test_recompile import assert_final
from tests.shipped import EXAMPLES

ROOT = Path(__file__).parents[1]
CORPUS = ROOT.parent / "shared" / "corpus"
LIGHT = Path(onnx.__file__).parent / "backend" / "test" / "data" / "light"
FUSED = ("LayerNormalization", "Gelu", "RMSNormalization")
COUNTS = {
    "bert": (25, 12, 0),
    "gpt2": (25, 12, 0),
    "vit": (25, 12, 0),
    "llama": (0, 0, 33),
    "t5": (0, 0, 25),
}
"""How many of ``FUSED``, in any domain, each compiled model of a family holds."""

pytestmark = [
    pytest.mark.corpus,
    pytest.mark.skipif(not CORPUS.is_dir(), reason="no ../shared/corpus"),
]


def _manifest() -> list[dict[str, Any]]:
    path = CORPUS / "manifest.json"
    return json.loads(path.read_text(encoding="utf-8")) if path.is_file() else []


ENTRIES = {entry["name"]: entry for entry in _manifest()}
LIGHT_NAMES = [name for name in ENTRIES if name.startswith("light_")]


def test_the_whole_corpus_is_here() -> None:
    assert len(ENTRIES) == 26
    assert len(LIGHT_NAMES) == 9
    assert {entry["file"] for entry in ENTRIES.values()} == {
        f"models/{path.name}" for path in (CORPUS / "models").glob("*.onnx")
    }


@pytest.fixture(scope="module")
def shipped() -> Host:
    return Host(HostOptions(vendors=[ROOT / "vendors"]))


@pytest.mark.parametrize("name", ENTRIES)
def test_an_output_compiled_again_is_the_same(name: str, shipped: Host, tmp_path: Path) -> None:
    for host in (shipped, Host())[: 2 if name in LIGHT_NAMES else 1]:
        host.compile(CORPUS / ENTRIES[name]["file"], tmp_path / "once.onnx")
        again = host.compile(tmp_path / "once.onnx", tmp_path / "twice.onnx")
        assert_final(name, again, tmp_path / "once.onnx", tmp_path / "twice.onnx")


@pytest.mark.parametrize("name", ENTRIES)
def test_numbers_interface_and_fusions(name: str, shipped: Host, tmp_path: Path) -> None:
    source, output = CORPUS / ENTRIES[name]["file"], tmp_path / f"{name}.onnx"
    report = shipped.with_options(enable=EXAMPLES).compile(source, output)
    assert report.problems == []
    assert _fused(report) == COUNTS.get(name.partition(".")[0].partition("_")[0], (0, 0, 0))
    before, after = (
        onnx.load(source, load_external_data=False),
        onnx.load(output, load_external_data=False),
    )
    assert list(before.graph.input) == list(after.graph.input)
    assert list(before.graph.output) == list(after.graph.output)

    light = name in LIGHT_NAMES
    feeds = (
        [_ramp(before)]
        if light
        else [load_feeds(CORPUS / "feeds" / file) for file in ENTRIES[name]["feeds"]]
    )
    result = compare(source, output, feeds, rtol=1e-3, atol=1e-4)
    assert result.equal, result.summary()
    assert result.engine == "onnxruntime"
    telling = {difference.output for difference in result.outputs if difference.telling}
    assert light or telling == {entry.name for entry in before.graph.output}


def test_folded_normalizations_leave_no_weights_behind(shipped: Host, tmp_path: Path) -> None:
    output = tmp_path / "resnet50.onnx"
    source = CORPUS / ENTRIES["resnet50.dyn"]["file"]
    shipped.compile(source, output)
    graph = onnx.load(output).graph
    read = {name for node in graph.node for name in node.input}
    assert "BatchNormalization" not in {node.op_type for node in graph.node}
    assert [tensor.name for tensor in graph.initializer if tensor.name not in read] == []
    assert output.stat().st_size < 0.6 * source.stat().st_size  # 1.72 of 2.87 MB


@pytest.mark.parametrize("name", LIGHT_NAMES)
def test_light_models_inside(name: str, shipped: Host) -> None:
    """With weights all equal, as here, all classes come out equal: also compare what a Conv in the middle gives.

    The onnx wheel says what the classes are.
    """
    source = onnx.load(CORPUS / ENTRIES[name]["file"])
    convolutions = [node for node in source.graph.node if node.op_type == "Conv"]
    inner = convolutions[len(convolutions) // 2].output[0]
    source.graph.output.append(
        onnx.helper.make_tensor_value_info(inner, onnx.TensorProto.FLOAT, None)
    )
    compiled, _ = shipped.with_options(enable=EXAMPLES).run(source)
    feeds = _ramp(source)
    original, outputs = Runner(source).run(feeds), Runner(compiled).run(feeds)
    differences = compare_outputs(original, outputs, rtol=1e-3, atol=1e-4)
    assert [difference for difference in differences if not difference.equal] == []
    assert differences[1].telling
    expected = onnx.TensorProto.FromString((LIGHT / f"{name}_output_0.pb").read_bytes())
    np.testing.assert_allclose(
        next(iter(outputs.values())), onnx.numpy_helper.to_array(expected), rtol=1e-3, atol=1e-4
    )


def _ramp(model: onnx.ModelProto) -> dict[str, np.ndarray[Any, Any]]:
    """The feed of onnx's own backend test: from 0 to 1 in even steps, for each input that is no weight."""
    weights = {tensor.name for tensor in model.graph.initializer}
    feeds: dict[str, np.ndarray[Any, Any]] = {}
    for entry in model.graph.input:
        if entry.name not in weights:
            shape = [dim.dim_value for dim in entry.type.tensor_type.shape.dim]
            size = int(np.prod(shape))
            feeds[entry.name] = (np.arange(size).reshape(shape) / size).astype(np.float32)
    return feeds


def _fused(report: Report) -> tuple[int, ...]:
    counts = report.op_types_after
    return tuple(counts.get(op, 0) + counts.get(f"gehost::{op}", 0) for op in FUSED)
