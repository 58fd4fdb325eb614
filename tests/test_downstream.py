"""Quantizers, converters and onnxslim take outputs; ``python -m tests.downstream`` runs them on the corpus."""

from __future__ import annotations

from pathlib import Path

import onnx.parser
import pytest

from gehost.verify import load_feeds
from tests.downstream import TOOLS, failure, is_installed, new_failures

MODELS = Path(__file__).parent / "models"

pytestmark = pytest.mark.filterwarnings("ignore")  # of the tools


@pytest.mark.parametrize("tool", list(filter(is_installed, TOOLS)))
@pytest.mark.parametrize("name", ["bert.ts17", "convnet.ts17", "llama.ts17"])
def test_a_tool_takes_the_output_of_a_model(name: str, tool: str, tmp_path: Path) -> None:
    feeds = load_feeds(MODELS / "feeds" / f"{name}.A.npz")
    assert not list(new_failures(tool, MODELS / f"{name}.onnx", feeds, tmp_path))


def test_a_model_that_a_tool_does_not_take_is_a_failure(tmp_path: Path) -> None:
    text = """<ir_version: 8, opset_import: ["" : 17, "a" : 1]>
    g (float[2] x) => (float[2] y) { y = a.B(x) }"""
    onnx.save(onnx.parser.parse_model(text), tmp_path / "m.onnx")
    assert failure("quantize_dynamic", tmp_path / "m.onnx", tmp_path / "q.onnx", {})
