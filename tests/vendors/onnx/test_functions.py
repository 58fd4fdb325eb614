"""Where a runtime reads no functions, the passes write none."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import onnx
import pytest

from gehost import Host, HostOptions

ROOT = Path(__file__).parents[3]
PASSES = (
    "GeluFusionPass",
    "GeluTanhFusionPass",
    "RMSNormalizationFusionPass",
    "LayerNormalizationFusionPass",
)


@pytest.mark.parametrize("name", ["bert.ts13", "bert.ts17", "llama.ts17", "gpt2.ts17", "vit.ts13"])
def test_no_function(alone: Path, name: str) -> None:
    source = onnx.load(ROOT / "tests" / "models" / f"{name}.onnx")
    settings = {f"{one}.functions": False for one in PASSES}
    without, report = Host(HostOptions(vendors=[alone], plugins=False, settings=settings)).run(
        source
    )
    assert len(without.functions) == 0
    assert {entry.domain for entry in without.opset_import} <= {"", "ai.onnx"}
    reasons: dict[str, Any] = {}
    for record in report.passes:
        reasons.update(record.rejected)
    assert "functions" in reasons
    with_them, _ = Host(HostOptions(vendors=[alone], plugins=False)).run(source)
    assert len(with_them.functions) > 0
