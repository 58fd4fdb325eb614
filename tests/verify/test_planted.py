"""Planted faults are found, right compiles pass: a share of the table of ``tools/verify/planted.py``."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from tools.verify.planted import FAULTS, measure

pytest.importorskip("onnxruntime")
BERT = Path(__file__).parents[1] / "models" / "bert.ts17.onnx"


@pytest.mark.parametrize("kind", ["float32", "float16", "bfloat16"])
def test_faults_of_bert_are_found_and_its_compiles_pass(kind: str) -> None:
    counts: Counter[str] = Counter()
    lines: list[str] = []
    measure(BERT, kind, counts, lines.append)
    assert (counts[f"{kind} refused"], counts[f"{kind} accepted"]) == (0, 0), lines
    assert counts[f"{kind} right"] == 2
    assert counts[f"{kind} planted"] >= 15


def test_there_are_25_kinds_of_faults() -> None:
    assert len(FAULTS) == 25
