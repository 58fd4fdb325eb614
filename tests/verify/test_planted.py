"""Planted faults are found, right compiles pass: a share of the table of ``tools/verify/planted.py``."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import onnx
import onnx.numpy_helper
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


def test_a_fault_that_does_not_load_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """A fault of a mixed file may put two types into one node; it ended the program."""

    def clash(model: onnx.ModelProto) -> Iterator[tuple[str, onnx.ModelProto]]:
        other = onnx.ModelProto()
        other.CopyFrom(model)
        node = next(node for node in other.graph.node if node.op_type == "Mul")  # of integers
        other.graph.initializer.append(onnx.numpy_helper.from_array(np.float32(1), "one"))
        node.input[1] = "one"
        yield "clash", other

    monkeypatch.setattr("tools.verify.planted.planted", clash)
    counts: Counter[str] = Counter()
    lines: list[str] = []
    measure(BERT, "float32", counts, lines.append)
    assert len(lines) == 1, lines
    assert "clash: left out: " in lines[0]
    assert counts["float32 planted"] == 0


def test_there_are_25_kinds_of_faults() -> None:
    assert len(FAULTS) == 25
