"""Weights of a large model lie apart while it is optimized, and inside the result again."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

import gehost
from gehost.optimizing import apart, build
from gehost.testing import parse

MODELS = Path(__file__).parents[1] / "models"


@pytest.mark.parametrize("name", ["bert.ts17", "vit.dyn20"])
def test_the_result_is_the_same_byte_by_byte(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("onnxruntime")
    text: list[bytes] = []
    sizes: list[Any] = []
    for limit in (1 << 40, 0):
        monkeypatch.setattr(build, "LARGE", limit)
        output = tmp_path / f"{limit}.onnx"
        result = gehost.optimize(MODELS / f"{name}.onnx", output=output, measured=False)
        text.append(output.read_bytes())
        sizes.append((result.report.before.size, result.report.after.size))
        assert sizes[-1][1] == output.stat().st_size
    assert text[0] == text[1]
    assert sizes[0] == sizes[1]
    assert {path.name for path in tmp_path.iterdir()} == {"0.onnx", f"{1 << 40}.onnx"}


def test_equal_weights_lie_there_once(tmp_path: Path) -> None:
    array = np.arange(4096, dtype=np.float32).reshape(64, 64)
    text = "g (float[N, 64] x) => (float[N, 64] y) { a = MatMul (x, v)  y = MatMul (a, w) }"
    text = f'<ir_version: 8, opset_import: ["": 17]> {text}'
    model = parse(text, {"v": array, "w": array})
    before = model.SerializeToString()
    place = str(tmp_path / "here-")
    apart.put_apart(model, place)
    assert not any(tensor.raw_data for tensor in model.graph.initializer)
    assert sum(path.stat().st_size for path in tmp_path.iterdir()) == array.nbytes
    assert apart.size_inside(model) == len(before)
    pieces = [*apart.pieces_inside(model, place)]
    assert b"".join(pieces) == before
    assert max(map(len, pieces)) < array.nbytes + 100  # one weight at a time in memory


def test_the_size_is_that_of_the_written_files(tmp_path: Path) -> None:
    """In another folder the weights have another file's name."""
    array = np.arange(4096, dtype=np.float32).reshape(64, 64)
    text = "g (float[N, 64] x) => (float[N, 64] y) { a = MatMul (x, w)  y = Relu (a) }"
    model = parse(f'<ir_version: 8, opset_import: ["": 17]> {text}', {"w": array})
    (tmp_path / "in").mkdir()
    onnx.save(
        model,
        tmp_path / "in" / "m.onnx",
        save_as_external_data=True,
        location="w.data",
        size_threshold=0,
    )
    for folder in ("in", "out"):
        (tmp_path / folder).mkdir(exist_ok=True)
        output = tmp_path / folder / "o.onnx"
        result = gehost.optimize(tmp_path / "in" / "m.onnx", output=output, measured=False)
        assert result.report.after.size == output.stat().st_size + array.nbytes
