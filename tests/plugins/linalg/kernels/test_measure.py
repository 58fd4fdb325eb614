"""``gehost kernels --measure``: kernels that do not gain are left to their bodies."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest

from gehost import UsageError
from gehost_linalg.kernels import measure
from gehost_linalg.kernels.library import names_in, write_library
from gehost_linalg.kernels.measure import Gain, gains
from tests.plugins.linalg.kernels.fused_models import Case, fused_model

CASES = [
    Case("float[N] x, float[N] z", "s = Add(x, z)\ny = Tanh(s)"),
    Case("float[N] x, float[N] z", "s = Mul(x, z)\ny = Exp(s)"),
]


def files(folder: Path) -> tuple[onnx.ModelProto, str, str]:
    model = fused_model(CASES)
    onnx.save(model, folder / "fused.onnx")
    np.savez(
        folder / "feeds.npz", **{value.name: np.ones(8, np.float32) for value in model.graph.input}
    )
    return model, str(folder / "fused.onnx"), str(folder / "feeds.npz")


def test_only_kernels_that_gain_are_kept(
    cc: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, path, feeds = files(tmp_path)
    first, second = (node.op_type for node in model.graph.node)
    monkeypatch.setattr(
        measure, "gains", lambda *_: {first: Gain(0.8, keep=False), second: Gain(1.5, keep=True)}
    )
    found = write_library(path, str(tmp_path / "a.so"), measure=feeds)
    assert names_in(str(tmp_path / "a.so")) == [second]
    assert found.left == [(first, "does not gain: 0.80 times the speed of the body")]
    monkeypatch.setattr(measure, "gains", lambda *_: {first: Gain(0.8, keep=False)})
    with pytest.raises(UsageError, match="no kernel gains"):
        write_library(path, str(tmp_path / "b.so"), measure=feeds)
    assert not (tmp_path / "b.so").exists()


def test_each_kernel_is_measured_alone(cc: str, tmp_path: Path) -> None:
    model, path, _ = files(tmp_path)
    names = [node.op_type for node in model.graph.node]
    library = tmp_path / "measured.so"
    write_library(path, str(library))
    feeds = {value.name: np.ones(8, np.float32) for value in model.graph.input}
    found = gains(path, library, names, feeds, seconds=0)
    assert list(found) == names
    assert all(gain.ratio > 0 for gain in found.values())


def test_feeds_that_do_not_fit(tmp_path: Path) -> None:
    model, path, _ = files(tmp_path)
    model.graph.node[1].input[0] = "s"
    model.graph.node.insert(0, onnx.helper.make_node("Neg", [model.graph.input[0].name], ["s"]))
    onnx.save(model, path)
    with pytest.raises(UsageError, match="the model does not run on the feeds"):
        gains(
            path,
            tmp_path / "none.so",
            [model.graph.node[2].op_type],
            {"other": np.ones(3)},
            seconds=0,
        )
