"""The lines of two passes in the shortest style, and what they find in models of four exporters."""

from __future__ import annotations

from pathlib import Path

import pytest

from gehost import Host, HostOptions

VENDORS = Path(__file__).parent / "vendors"
FILES = VENDORS / "acme" / "custom_fusion_passes"
CORPUS = Path(__file__).parents[3] / "shared" / "corpus"


def lines(name: str) -> int:
    """The lines of a pass with its imports, without empty ones."""
    text = (FILES / f"{name}.py").read_text(encoding="utf-8")
    return sum(bool(line.strip()) for line in text.splitlines())


def test_the_lines_are_those_that_the_page_states() -> None:
    assert lines("silu") == 9
    assert lines("attention") == 28
    page = Path(__file__).parents[2] / "docs" / "differences" / "onnxscript.md"
    assert "SiLU in 9 lines, attention in 28" in " ".join(page.read_text(encoding="utf-8").split())


@pytest.mark.corpus
@pytest.mark.parametrize(
    ("model", "fused"),
    [("bert.dyn", 12), ("bert.ts", 12), ("gpt2.ts", 12), ("vit.ts", 12), ("llama.ts", 16)],
)
def test_attention_of_each_layer_is_found_and_the_numbers_stay(
    model: str, fused: int, tmp_path: Path
) -> None:
    path = CORPUS / "models" / f"{model}.onnx"
    if not path.exists():
        pytest.skip("no corpus")
    options = HostOptions(
        vendors=[VENDORS],
        only=["AttentionPass"],
        verify=True,
        feeds=CORPUS / "feeds" / f"{model}.A.npz",
    )
    report = Host(options).compile(path, tmp_path / "fused.onnx")
    assert [record.replaced for record in report.passes if record.replaced] == [fused]
    assert report.verify["equal"]


@pytest.mark.corpus
def test_silu_of_each_layer_is_found_and_the_numbers_stay(tmp_path: Path) -> None:
    path = CORPUS / "models" / "llama.ts.onnx"
    if not path.exists():
        pytest.skip("no corpus")
    options = HostOptions(
        vendors=[VENDORS],
        only=["fuse_silu"],
        verify=True,
        feeds=CORPUS / "feeds" / "llama.ts.A.npz",
    )
    report = Host(options).compile(path, tmp_path / "fused.onnx")
    assert [record.replaced for record in report.passes if record.replaced] == [16]
    assert report.verify["equal"]
