"""``gehost kernels --measure``: kernels that do not gain are left to their bodies."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest

import gehost
from gehost import HostOptions, ModelError, UsageError
from gehost.host.switches import read_switch_file
from gehost.testing import parse
from gehost.tune import run
from gehost.tune.measure import Comparison
from gehost_linalg.groups.body import DOMAIN
from gehost_linalg.kernels import measure
from gehost_linalg.kernels.library import Fused, names_in, summary, write_library
from gehost_linalg.kernels.measure import Gain, gains
from gehost_linalg.passes import NAME

from .fused_models import Case, fused_model

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
        measure, "gains", lambda *_: {first: Gain(0.8, "drop"), second: Gain(1.5, "keep")}
    )
    monkeypatch.setattr(measure, "whole", lambda *_: Gain(1.0, "noise"))
    result = write_library(path, str(tmp_path / "a.so"), measure=feeds)
    assert names_in(str(tmp_path / "a.so")) == [second]
    assert result.left == [(first, "does not gain: 0.80 times the speed of the body")]
    monkeypatch.setattr(measure, "gains", lambda *_: {first: Gain(0.8, "drop")})
    with pytest.raises(UsageError, match="no kernel gains"):
        write_library(path, str(tmp_path / "b.so"), measure=feeds)
    assert not (tmp_path / "b.so").exists()


def test_kernels_that_lose_together_are_not_kept(
    cc: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, path, feeds = files(tmp_path)
    names = [node.op_type for node in model.graph.node]
    monkeypatch.setattr(measure, "gains", lambda *_: {name: Gain(1.5, "keep") for name in names})
    monkeypatch.setattr(measure, "whole", lambda *_: Gain(0.9, "drop"))
    with pytest.raises(UsageError, match=r"the model has 0\.90 times the speed"):
        write_library(path, str(tmp_path / "a.so"), measure=feeds)
    assert not (tmp_path / "a.so").exists()


@pytest.mark.parametrize(
    ("gain", "message"),
    [
        (
            Gain(1.0, "noise", dead_zone=1.04),
            r"speed of .*original\.onnx; less than 1\.040 is noise",
        ),
        (Gain(0.9, "drop"), r"it has 0\.90 times the speed of .*original\.onnx; less than"),
        (Gain(1.2, "keep"), None),
    ],
)
def test_kernels_are_written_only_if_they_gain_over_the_original(
    cc: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, gain: Gain, message: str | None
) -> None:
    model, path, feeds = files(tmp_path)
    names = [node.op_type for node in model.graph.node]
    original = str(tmp_path / "original.onnx")
    onnx.save(onnx.inliner.inline_local_functions(model), original)
    monkeypatch.setattr(measure, "gains", lambda *_: {name: Gain(1.5, "keep") for name in names})
    monkeypatch.setattr(measure, "whole", lambda *_: Gain(1.0, "noise"))
    monkeypatch.setattr(measure, "over_original", lambda *_: gain)
    library, switches = tmp_path / "a.so", tmp_path / "switches.json"

    def write() -> Fused:
        return write_library(
            path, str(library), measure=feeds, original=original, switch_file=str(switches)
        )

    if message is None:
        assert (
            summary(write(), "a.so")[1]
            == "the model with them: 1.20 times the speed of the original"
        )
        result = read_switch_file(str(switches)).evidence["kinds"]["kernels over the original"]
        assert result == {"verdict": "keep", "gain": 1.2}
    else:
        with pytest.raises(UsageError, match=message):
            write()
        assert not library.exists()
        assert not switches.exists()


def test_the_original_is_measured(cc: str, tmp_path: Path) -> None:
    model, path, _ = files(tmp_path)
    original = str(tmp_path / "original.onnx")
    onnx.save(onnx.inliner.inline_local_functions(model), original)
    write_library(path, str(tmp_path / "all.so"))
    feeds = {value.name: np.ones(8, np.float32) for value in model.graph.input}
    assert measure.over_original(original, path, tmp_path / "all.so", feeds, seconds=0).ratio > 0


def test_an_original_that_onnx_runtime_computes_wrongly(tmp_path: Path) -> None:
    """Its optimizer takes another epsilon if that is the first operand of the Add."""
    text = """<ir_version: 8, opset_import: ["" : 17]> g (float[2,8] x) => (float[2,8] y)
    <float e = {0.001}, float two = {2}, float[8] g = {1, 1, 1, 1, 1, 1, 1, 1}> {
      m = ReduceMean <axes = [-1]> (x) d = Sub (x, m) p = Pow (d, two) v = ReduceMean <axes = [-1]> (p)
      w = Add (e, v) s = Sqrt (w) n = Div (d, s) k = Mul (n, g) y = Add (k, g)
    }"""
    original, path = str(tmp_path / "original.onnx"), str(tmp_path / "fused.onnx")
    onnx.save(parse(text), original)
    gehost.Host(HostOptions(vendors=["gehost:onnx"], enable=[NAME])).compile(original, path)
    x = np.random.default_rng(0).standard_normal((2, 8)).astype(np.float32) / 100
    measure.check_original(original, path, {"x": x})


def test_another_model_is_not_the_original(
    cc: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, path, feeds = files(tmp_path)
    monkeypatch.setattr(measure, "gains", lambda *_: pytest.fail("measured for nothing"))
    original = str(tmp_path / "original.onnx")
    other = onnx.inliner.inline_local_functions(model)
    other.graph.node[-1].op_type = "Sin"
    onnx.save(other, original)
    with pytest.raises(UsageError, match=r"fused\.onnx was not compiled from it: "):
        write_library(path, str(tmp_path / "a.so"), measure=feeds, original=original)
    other.graph.input[0].type.tensor_type.elem_type = onnx.TensorProto.DOUBLE
    onnx.save(other, original)
    with pytest.raises(UsageError, match=r"original\.onnx: does not run on the feeds"):
        write_library(path, str(tmp_path / "a.so"), measure=feeds, original=original)
    with pytest.raises(ModelError, match=r"none\.onnx: cannot read the model"):
        write_library(
            path, str(tmp_path / "a.so"), measure=feeds, original=str(tmp_path / "none.onnx")
        )
    assert not (tmp_path / "a.so").exists()


def test_the_whole_model_is_measured(cc: str, tmp_path: Path) -> None:
    model, path, _ = files(tmp_path)
    write_library(path, str(tmp_path / "all.so"))
    feeds = {value.name: np.ones(8, np.float32) for value in model.graph.input}
    assert measure.whole(path, tmp_path / "all.so", feeds, seconds=0).ratio > 0


def test_a_switch_file_has_the_library_and_the_gains(
    cc: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The file of ``gehost tune`` keeps what it has; ``runtime_options`` loads the library."""
    model, path, feeds = files(tmp_path)
    first, second = (node.op_type for node in model.graph.node)
    switches = tmp_path / "switches.json"
    switches.write_text(
        json.dumps(
            {
                "Switch": {"GraphFusion": {"Other": "off"}, "Runtime": {"level": "extended"}},
                "Evidence": {"kinds": {"Other": {"verdict": "drop"}}},
            }
        )
    )
    monkeypatch.setattr(
        measure, "gains", lambda *_: {first: Gain(0.8, "drop"), second: Gain(1.5, "keep")}
    )
    monkeypatch.setattr(measure, "whole", lambda *_: Gain(1.0, "noise"))
    library = tmp_path / "a.so"
    for _ in range(2):
        write_library(path, str(library), measure=feeds, switch_file=str(switches))
    result = read_switch_file(str(switches))
    assert dict(result.passes) == {"Other": False, NAME: True}
    assert result.runtime == {"level": "extended", "libraries": [str(library)]}
    assert result.evidence["kinds"] == {
        "Other": {"verdict": "drop"},
        f"kernel {first}": {"verdict": "drop", "gain": 0.8},
        f"kernel {second}": {"verdict": "keep", "gain": 1.5},
    }
    session = onnxruntime.InferenceSession(
        model.SerializeToString(), gehost.runtime_options(switches)
    )
    inputs = {value.name: np.ones(8, np.float32) for value in model.graph.input}
    assert session.run(None, inputs)
    switches.write_text("{}")
    with pytest.raises(UsageError, match="not a fusion-switch file"):
        write_library(path, str(tmp_path / "b.so"), switch_file=str(switches))
    assert not (tmp_path / "b.so").exists()


def test_a_switch_file_is_begun(cc: str, tmp_path: Path) -> None:
    _, path, _ = files(tmp_path)
    switches = tmp_path / "new.json"
    write_library(path, str(tmp_path / "a.so"), switch_file=str(switches))
    result = read_switch_file(str(switches))
    assert result.runtime == {"libraries": [str(tmp_path / "a.so")]}
    assert result.foreign() == []


def test_a_switch_file_has_one_library_of_kernels(cc: str, tmp_path: Path) -> None:
    """ONNX Runtime refuses a second one of a domain."""
    model, path, _ = files(tmp_path)
    switches = tmp_path / "new.json"
    for name in ("a.so", "b.so"):
        write_library(path, str(tmp_path / name), switch_file=str(switches))
    assert read_switch_file(str(switches)).runtime == {"libraries": [str(tmp_path / "b.so")]}
    onnxruntime.InferenceSession(model.SerializeToString(), gehost.runtime_options(switches))


def test_external_data_that_is_not_there(cc: str, tmp_path: Path) -> None:
    model, path, feeds = files(tmp_path)
    weight = onnx.numpy_helper.from_array(np.ones(8, np.float32), "w")
    model.graph.initializer.append(weight)
    onnx.save(model, path, save_as_external_data=True, location="data", size_threshold=0)
    (tmp_path / "data").unlink()
    with pytest.raises(ModelError, match=r"fused\.onnx: cannot be read"):
        write_library(path, str(tmp_path / "a.so"), measure=feeds)


def test_each_kernel_is_measured_alone(cc: str, tmp_path: Path) -> None:
    model, path, _ = files(tmp_path)
    names = [node.op_type for node in model.graph.node]
    library = tmp_path / "measured.so"
    write_library(path, str(library))
    feeds = {value.name: np.ones(8, np.float32) for value in model.graph.input}
    result = gains(path, library, names, feeds, seconds=0)
    assert list(result) == names
    assert all(gain.ratio > 0 for gain in result.values())


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


def test_feeds_of_another_type(cc: str, tmp_path: Path) -> None:
    model, path, feeds = files(tmp_path)
    np.savez(feeds, **{value.name: np.ones(8) for value in model.graph.input})
    with pytest.raises(UsageError, match="the model does not run on the feeds: .*invalid"):
        write_library(path, str(tmp_path / "a.so"), measure=feeds)


def test_an_original_whose_inputs_are_not_fed(tmp_path: Path) -> None:
    model, path, _ = files(tmp_path)
    first = model.graph.input[0].name
    with pytest.raises(UsageError, match=f'{path}: the feeds have no input "{first}"'):
        measure.check_original(path, path, {})
    with pytest.raises(ModelError):
        measure.check_original(str(tmp_path / "none.onnx"), path, {})


def test_tune_measures_the_pass_with_its_kernels(
    cc: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Enabled, the pass is one more kind; its file runs with the library."""
    fused, path, feeds = files(tmp_path)
    library, original = tmp_path / "kernels.so", tmp_path / "original.onnx"
    write_library(path, str(library))
    onnx.save(onnx.inliner.inline_local_functions(fused), original)
    fused_files: list[list[str]] = []

    def measure_candidates(_: object, first: Any, second: Any, decided: object) -> Comparison:
        nodes = onnx.load(second.path).graph.node
        fused_files.append([node.op_type for node in nodes if node.domain == DOMAIN])
        assert second.runtime.libraries == (str(library),)
        return Comparison((1.0,) * 3 if first is second else (1.5,) * 3)

    monkeypatch.setattr(run._Tuner, "_measure", measure_candidates)
    options = HostOptions(vendors=(), enable=(NAME,))
    result = run.tune(original, options, feeds=feeds, libraries=[library])
    assert result.passes[NAME]
    assert result.runtime.libraries == (str(library),)
    assert set(fused_files[-1]) == set(names_in(str(library)))
