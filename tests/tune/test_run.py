"""What tune keeps, from comparisons that are given instead of measured; the file, and its use."""

from __future__ import annotations

import importlib
import json
import re
import sys
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

import gehost
from gehost import HostOptions, ModelError, UsageError
from gehost.cli import run as command
from gehost.host.switches import read_switch_file
from gehost.testing import parse
from gehost.tune import Comparison, sessions, tune
from gehost.tune import run as tuning
from gehost.tune.sessions import satisfies
from gehost.verify import device

pytest.importorskip("onnxruntime")

MODEL = """<ir_version: 8, opset_import: ["" : 17]>
main (float[2] x) => (float[2] y) {
    a = Relu(x)
    b = Abs(a)
    y = Softplus(b)
}"""
SAME = Comparison((1.001, 0.999, 1.0))
GAIN = Comparison((1.30, 1.31, 1.32))
LOSS = Comparison((0.70, 0.71, 0.72))
OPTIMIZERS = ["without SkipLayerNormFusion", "level extended"]


class Scales:
    """Stands for measuring: a gain for each pass that the second has and the first has not."""

    def __init__(self, **gains: Comparison) -> None:
        self.gains, self.compared = gains, []

    def measure(self, first: Any, second: Any, _decided: Any) -> Comparison:
        added = sorted(second.passes - first.passes)
        self.compared.append(added)
        return self.gains.get("_".join(added), SAME)


@pytest.fixture
def model(tmp_path: Path) -> Path:
    path = tmp_path / "m.onnx"
    onnx.save(parse(MODEL), path)
    return path


@pytest.fixture
def equal_vendors(vendors: Any) -> Any:
    """Passes that keep the numbers: on positive values Abs is Relu."""
    vendors.write(
        "acme/a.py",
        vendors.swap("A", "Abs", "Relu"),
        vendors.swap("Wrong", "Softplus", "Exp"),
        vendors.swap("Idle", "Tan", "Sin"),
    )
    return vendors


def tuned(
    monkeypatch: pytest.MonkeyPatch, model: Path, vendors: Any, **gains: Comparison
) -> tuple[tuning.Tuning, Scales]:
    scales = Scales(**gains)
    monkeypatch.setattr(tuning._Tuner, "_measure", scales.measure)
    options = HostOptions(vendors=[vendors.root], plugins=False)
    return tune(model, options), scales


def verdicts(actual: tuning.Tuning) -> dict[str, str]:
    return {trial.name: trial.verdict for trial in actual.trials if trial.name not in OPTIMIZERS}


def test_what_pays_is_kept(monkeypatch: Any, model: Path, equal_vendors: Any) -> None:
    actual, scales = tuned(monkeypatch, model, equal_vendors, A=GAIN)
    assert verdicts(actual) == {"A": "keep", "Wrong": "failed", "Idle": "same"}
    assert actual.pays
    assert actual.passes == {"A": True, "Wrong": False, "Idle": False}
    # the model against itself, one kind, the whole; equal files are not measured
    assert scales.compared == [[], ["A"], ["A"]]


def test_a_class_that_is_not_registered_is_a_note(
    monkeypatch: Any, model: Path, vendors: Any
) -> None:
    marked = vendors.swap("Bad", "Abs", "Relu")
    assert "@REG_FUSION_PASS" in marked
    bare = "\n".join(line for line in marked.splitlines() if not line.startswith("@"))
    vendors.write("acme/a.py", vendors.swap("A", "Abs", "Relu"), bare)
    monkeypatch.setattr(tuning._Tuner, "_measure", Scales().measure)
    notes: list[str] = []
    tune(model, HostOptions(vendors=[vendors.root], plugins=False), progress=notes.append)
    assert sum("Bad is not registered" in note for note in notes) == 1


def test_a_kind_that_changes_numbers_is_excluded_with_the_reason(
    monkeypatch: Any, model: Path, equal_vendors: Any
) -> None:
    actual, _ = tuned(monkeypatch, model, equal_vendors, Wrong=GAIN)
    (trial,) = [trial for trial in actual.trials if trial.name == "Wrong"]
    assert trial.reason.startswith("numbers differ: y[")


def test_numbers_are_compared_on_several_sequences_though_one_is_measured(
    monkeypatch: Any, tmp_path: Path, vendors: Any
) -> None:
    """As --verify does: kernels differ on padded batches, where one sequence has no padding."""
    vendors.write("acme/a.py", vendors.swap("Wrong", "ArgMax", "ArgMin"))
    model = tmp_path / "m.onnx"
    onnx.save(
        parse("""<ir_version: 8, opset_import: ["" : 17]>
        main (float[B, 2] x) => (int64[1, 2] y) { y = ArgMax (x) }"""),
        model,
    )
    monkeypatch.setattr(tuning._Tuner, "_measure", Scales(Wrong=GAIN).measure)
    actual = tune(model, HostOptions(vendors=[vendors.root], plugins=False, dims={"B": 1}))
    assert verdicts(actual)["Wrong"] == "failed"


@pytest.mark.parametrize(("gain", "verdict"), [(LOSS, "drop"), (SAME, "noise")])
def test_a_loss_and_noise_are_off(
    monkeypatch: Any, model: Path, equal_vendors: Any, gain: Comparison, verdict: str
) -> None:
    actual, scales = tuned(monkeypatch, model, equal_vendors, A=gain)
    assert verdicts(actual)["A"] == verdict
    assert not actual.pays
    assert not any(actual.passes.values())
    assert scales.compared == [[], ["A"]]


def test_the_clean_up_alone_is_compared_with_the_original(
    monkeypatch: Any, model: Path, equal_vendors: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    """A Neg that is computed twice; [] stands for the model against itself and for the whole."""
    onnx.save(
        parse(MODEL.replace("b = Abs(a)", "c = Neg(a) d = Neg(a) e = Mul(c, d) b = Abs(e)")), model
    )
    ratios = iter([SAME, SAME, GAIN])
    monkeypatch.setattr(tuning._Tuner, "_measure", lambda *_: next(ratios))
    output = str(model.with_suffix(".json"))
    assert command(["tune", str(model), "-o", output, "--vendors", str(equal_vendors.root)]) == 0
    assert " passes on; the clean-up alone pays" in capsys.readouterr().out
    switched = json.loads(Path(output).read_text())
    assert switched["Evidence"]["whole"]["verdict"] == "keep"


def test_passes_of_one_kind_are_measured_together(
    monkeypatch: Any, model: Path, vendors: Any
) -> None:
    vendors.write(
        "acme/a.py",
        vendors.swap("A", "Abs", "Relu"),
        vendors.swap("B", "Relu", "Abs"),
        "\n@hookimpl\ndef gehost_tune_kinds(registry):\n    registry.add('both', ['A', 'B'])\n",
    )
    positive = MODEL.replace("Relu(x)", "Exp(x)").replace("Softplus", "Relu")
    onnx.save(parse(positive), model)
    actual, scales = tuned(monkeypatch, model, vendors, A_B=GAIN)
    assert verdicts(actual) == {"both": "keep"}
    assert scales.compared == [[], ["A", "B"], ["A", "B"]]
    assert actual.as_dict()["Evidence"]["kinds"]["both"]["passes"] == ["A", "B"]


@pytest.mark.parametrize("disable", [[], ["A"]])
def test_a_pass_that_is_off_by_default_is_measured_in_a_kind(
    monkeypatch: Any, model: Path, vendors: Any, disable: list[str]
) -> None:
    off = vendors.swap("A", "Abs", "Relu").replace("stage=", "default=False, stage=")
    assert "default=False" in off
    vendors.write(
        "acme/a.py",
        off,
        off.replace("class A(", "class B("),
        "\n@hookimpl\ndef gehost_tune_kinds(registry):\n    registry.add('mine', ['A'])\n",
    )
    monkeypatch.setattr(tuning._Tuner, "_measure", Scales(A=GAIN).measure)
    options = HostOptions(vendors=[vendors.root], plugins=False, disable=disable)
    actual = tune(model, options)
    assert verdicts(actual) == ({} if disable else {"mine": "keep"})
    assert actual.passes == {"A": not disable, "B": False}


def test_a_kind_of_a_pass_that_there_is_not(monkeypatch: Any, model: Path, vendors: Any) -> None:
    vendors.write(
        "acme/a.py",
        vendors.swap("A", "Abs", "Relu"),
        "\n@hookimpl\ndef gehost_tune_kinds(registry):\n    registry.add('both', ['A', 'Bee'])\n",
    )
    with pytest.raises(gehost.VendorError, match="kind both: there is no pass Bee"):
        tuned(monkeypatch, model, vendors)


def test_a_whole_that_does_not_pay_is_turned_off(
    monkeypatch: Any, model: Path, equal_vendors: Any
) -> None:
    gains = iter([SAME, GAIN, LOSS])
    monkeypatch.setattr(tuning._Tuner, "_measure", lambda *_: next(gains))
    actual = tune(model, HostOptions(vendors=[equal_vendors.root], plugins=False))
    assert verdicts(actual)["A"] == "keep"
    assert actual.whole is not None
    assert actual.whole.verdict == "drop"
    assert not any(actual.passes.values())


def test_the_file_has_switches_and_evidence(
    monkeypatch: Any, tmp_path: Path, model: Path, equal_vendors: Any
) -> None:
    actual, _ = tuned(monkeypatch, model, equal_vendors, A=GAIN)
    path = tmp_path / "s.json"
    path.write_text(actual.to_json())
    read = read_switch_file(str(path))
    assert dict(read.passes) == {"A": True, "Wrong": False, "Idle": False}
    assert read.runtime == {"level": "all", "disabled_optimizers": [], "libraries": []}
    assert read.evidence["kinds"]["A"]["pairs"] == [1.3, 1.31, 1.32]
    assert read.evidence["sizes"] == {"x": [2]}
    assert read.foreign() == []
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        options = gehost.runtime_options(path)
    import onnxruntime

    assert options.graph_optimization_level == onnxruntime.GraphOptimizationLevel.ORT_ENABLE_ALL


def switch_file(path: Path, runtime: Any = None, evidence: Any = None) -> Path:
    content = {"Switch": {"GraphFusion": {}, "Runtime": runtime or {}}, "Evidence": evidence or {}}
    path.write_text(json.dumps(content))
    return path


def test_runtime_options_refuse_a_version_for_which_passes_are_not_exact(tmp_path: Path) -> None:
    path = switch_file(tmp_path / "s.json", evidence={"requires": ["onnxruntime>=99"]})
    with pytest.raises(UsageError, match="exact with onnxruntime>=99, this is"):
        gehost.runtime_options(path)


def test_runtime_options_take_level_and_optimizers(tmp_path: Path) -> None:
    runtime = {"level": "basic", "disabled_optimizers": ["GeluFusionL2", "BiasGeluFusion"]}
    options = gehost.runtime_options(switch_file(tmp_path / "s.json", runtime))
    key = "optimization.disable_specified_optimizers"
    assert options.get_session_config_entry(key) == "GeluFusionL2;BiasGeluFusion"
    with pytest.raises(UsageError, match='level "fast": wanted none, basic, extended, all'):
        gehost.runtime_options(switch_file(tmp_path / "s.json", {"level": "fast"}))


def test_evidence_from_elsewhere_is_a_warning(tmp_path: Path) -> None:
    evidence = {"cpu": "Other CPU", "versions": {"onnx": "0.1"}}
    path = switch_file(tmp_path / "s.json", evidence=evidence)
    with pytest.warns(UserWarning, match="the evidence is from") as caught:
        gehost.runtime_options(path)
    message = [str(warning.message) for warning in caught]
    assert any("the evidence is from onnx 0.1, this is" in line for line in message)
    assert any("the evidence is from cpu Other CPU, this is" in line for line in message)
    host = gehost.Host(HostOptions(fusion_switch_file=path, plugins=False))
    assert sum("the evidence is from" in note for note in host.notes) == 2


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({"Switch": {"GraphFusion": {}}, "Evidenze": {}}, 'there is no key "Evidenze"; did you'),
        ({"Switch": {"GraphFusion": {}, "Run": {}}}, 'Switch: there is no key "Run"'),
        (
            {"Switch": {"GraphFusion": {}, "Runtime": {"levels": "all"}}},
            'Runtime: there is no key "levels"; did you mean level?',
        ),
        (
            {"Switch": {"GraphFusion": {}, "Runtime": {"libraries": "x.so"}}},
            "Runtime: libraries is 'x.so'; wanted a list of texts",
        ),
    ],
)
def test_unknown_keys_are_errors(tmp_path: Path, content: Any, message: str) -> None:
    path = tmp_path / "s.json"
    path.write_text(json.dumps(content))
    with pytest.raises(UsageError, match=message.replace("[", r"\[")):
        read_switch_file(str(path))


def test_the_command_writes_the_file_and_a_picture(
    monkeypatch: Any, tmp_path: Path, model: Path, equal_vendors: Any, capsys: Any
) -> None:
    scales = Scales(A=GAIN)
    monkeypatch.setattr(tuning._Tuner, "_measure", scales.measure)
    output = tmp_path / "s.json"
    vendors = str(equal_vendors.root)
    assert command(["tune", str(model), "-o", str(output), "--vendors", vendors]) == 0
    captured = capsys.readouterr()
    assert read_switch_file(str(output)).passes["A"]
    (line,) = [line for line in captured.out.splitlines() if line.startswith("A ")]
    assert "keep" in line
    assert "●" in line
    assert "comparisons left" in captured.err
    compiled = tmp_path / "out.onnx"
    arguments = ["--vendors", vendors, "--fusion-switch-file", str(output)]
    assert command(["compile", str(model), "-o", str(compiled), *arguments]) == 0
    operators = [node.op_type for node in onnx.load(compiled).graph.node]
    assert operators == ["Relu", "Softplus"]  # of two Relus the clean-up leaves one


def test_an_interrupted_run_writes_nothing(
    monkeypatch: Any, tmp_path: Path, model: Path, equal_vendors: Any
) -> None:
    def interrupt(*_: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(tuning._Tuner, "_measure", interrupt)
    output = tmp_path / "s.json"
    arguments = ["-o", str(output), "--vendors", str(equal_vendors.root)]
    assert command(["tune", str(model), *arguments]) == 130
    assert not output.exists()


def test_without_onnx_runtime_it_is_one_line(
    monkeypatch: Any, tmp_path: Path, model: Path, capsys: Any
) -> None:
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    assert command(["tune", str(model), "-o", str(tmp_path / "s.json")]) == 2
    message = capsys.readouterr().err
    assert message == "gehost: ONNX Runtime is not installed: pip install 'onnxruntime>=1.21.1'\n"


@pytest.mark.parametrize("budget", ["", "fast", "-3s", "1h"])
def test_a_budget_is_a_time(tmp_path: Path, model: Path, capsys: Any, budget: str) -> None:
    output = str(tmp_path / "s.json")
    assert command(["tune", str(model), "-o", output, f"--budget={budget}"]) == 2
    assert "wanted seconds or minutes" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("installed", "needed", "fits"),
    [
        ("1.31.1", "onnxruntime>=1.31", True),
        ("1.31.0", "onnxruntime==1.31", True),
        ("1.9.0", "onnxruntime>=1.31", False),
        ("1.32.0", "onnxruntime>=1.31,<1.32", False),
        ("2.0", "onnxruntime", True),
        ("1.31.1", "onnxruntime!=1.31.1", False),
    ],
)
def test_versions_are_compared_as_numbers(installed: str, needed: str, fits: bool) -> None:
    assert satisfies(installed, needed) is fits


@pytest.mark.parametrize("text", ["no model", None])
def test_a_file_that_is_no_model_is_the_models_fault(tmp_path: Path, text: str | None) -> None:
    path = tmp_path / "m.onnx"
    if text is not None:
        path.write_text(text)
    with pytest.raises(ModelError, match="m.onnx: (not an ONNX model|cannot read)"):
        tune(path)


def takes(monkeypatch: pytest.MonkeyPatch, seconds: float, answer: Any) -> list[float]:
    """Let each comparison of three pairs take so long, on a clock of its own; returns that."""
    now = [0.0]
    monkeypatch.setattr(tuning.time, "perf_counter", lambda: now[0])

    def measured(first: Any, second: Any, **_: Any) -> Comparison:
        now[0] += seconds
        return answer(first, second)

    monkeypatch.setattr(tuning, "measure_pairs", measured)
    return now


def test_a_budget_begins_with_loading(
    monkeypatch: pytest.MonkeyPatch, model: Path, vendors: Any
) -> None:
    vendors.write("acme/a.py", vendors.swap("A", "Abs", "Relu"))
    now = takes(monkeypatch, 10.0, lambda *_: SAME)
    realistic_inputs = tuning.realistic_inputs

    def slowly(*value: Any) -> Any:
        now[0] += 6
        return realistic_inputs(*value)

    monkeypatch.setattr(tuning, "realistic_inputs", slowly)
    monkeypatch.setattr(tuning, "_SWITCHES", ())
    with pytest.raises(UsageError, match="budget of 35 s: no time for 1 of 3 comparisons"):
        tune(model, HostOptions(vendors=[vendors.root], plugins=False), budget=35.0)
    assert now == [16.0]


def test_a_short_budget_leaves_kinds_unmeasured_and_states_a_longer_one(
    monkeypatch: pytest.MonkeyPatch, model: Path, vendors: Any
) -> None:
    vendors.write(
        "acme/a.py", vendors.swap("A", "Abs", "Relu"), vendors.swap("B", "Softplus", "Softplus")
    )
    comparisons = iter([SAME, GAIN, GAIN])
    takes(monkeypatch, 10.0, lambda *_: next(comparisons))
    monkeypatch.setattr(tuning, "_SWITCHES", ())
    actual = tune(model, HostOptions(vendors=[vendors.root], plugins=False), budget=35.0)
    # 4 comparisons of 10 s: the model itself, A, the whole; no time for B
    assert verdicts(actual) == {"A": "keep", "B": "unmeasured"}
    assert actual.whole is not None
    assert actual.passes == {"A": True, "B": False}
    assert actual.short == (
        "budget of 35 s: no time for 1 of 4 comparisons; all take about 50 s: --budget 50s"
    )


def test_kinds_come_before_switches_of_the_runtime_where_time_is_short(
    monkeypatch: pytest.MonkeyPatch, model: Path, vendors: Any
) -> None:
    vendors.write("acme/a.py", vendors.swap("A", "Abs", "Relu"))
    comparisons = iter([SAME, GAIN, GAIN])
    takes(monkeypatch, 10.0, lambda *_: next(comparisons))
    actual = tune(model, HostOptions(vendors=[vendors.root], plugins=False), budget=35.0)
    assert [trial.verdict for trial in actual.trials] == ["unmeasured", "unmeasured", "keep"]
    assert actual.pays


def test_a_budget_too_short_for_any_kind_writes_no_file(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, model: Path, equal_vendors: Any, capsys: Any
) -> None:
    takes(monkeypatch, 50.0, lambda *_: SAME)
    output = tmp_path / "s.json"
    vendors = str(equal_vendors.root)
    for value, seconds in (("1m", "60"), ("0.1", "0.1")):
        arguments = ["-o", str(output), "--vendors", vendors, "--budget", value]
        assert command(["tune", str(model), *arguments]) == 2
        error = capsys.readouterr().err
        assert f"at most {float(seconds):.1f} s" in error
        assert f"budget of {seconds} s: no time for 5 of 7 comparisons" in error
        assert not output.exists()


def test_an_original_whose_numbers_the_runtime_changes_is_reported(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    equal_vendors: Any,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """ONNX Runtime's fusion takes another epsilon if that is the first operand of the Add."""
    text = """<ir_version: 8, opset_import: ["" : 17]> g (float[2,8] x, float[2,8] z) => (float[2,8] y)
    <float e = {0.001}, float two = {2}, float[8] g = {1, 1, 1, 1, 1, 1, 1, 1}> {
      a = Add (x, z) m = ReduceMean <axes = [-1]> (a) d = Sub (a, m) p = Pow (d, two)
      v = ReduceMean <axes = [-1]> (p) w = Add (e, v) s = Sqrt (w) n = Div (d, s) k = Mul (n, g)
      y = Add (k, g)
    }"""
    path, feeds = tmp_path / "m.onnx", tmp_path / "feeds.npz"
    onnx.save(parse(text), path)
    small = np.random.default_rng(0).standard_normal((2, 2, 8)).astype(np.float32) / 100
    np.savez(feeds, x=small[0], z=small[1])
    monkeypatch.setattr(tuning, "measure_pairs", lambda *_, **__: SAME)
    arguments = ["-o", str(tmp_path / "s.json"), "--vendors", str(equal_vendors.root)]
    assert command(["tune", str(path), "--feeds", str(feeds), *arguments]) == 0
    shown = capsys.readouterr().out
    assert "the original with ONNX Runtime's optimizations: numbers differ: y[" in shown


@pytest.mark.filterwarnings("ignore:Duplicate provider")  # the CPU beside itself
def test_on_a_device_a_cuda_graph_is_tried_and_the_file_names_the_provider(
    monkeypatch: pytest.MonkeyPatch, model: Path, equal_vendors: Any
) -> None:
    """The CPU stands for the device: bound inputs and outputs, wall time."""
    for module in (sessions, tuning, device):
        monkeypatch.setattr(module, "check_provider", lambda _: "CPUExecutionProvider")
    monkeypatch.setattr(device, "_DEVICES", {})
    compare = importlib.import_module("gehost.verify.compare")
    monkeypatch.setattr(compare, "check_provider", lambda _: "CPUExecutionProvider")
    options = HostOptions(vendors=[equal_vendors.root], plugins=False)
    actual = tune(model, options, provider="cuda", budget=20)
    trials = {trial.name: trial for trial in actual.trials}
    assert trials["CUDA graph"].verdict in ("keep", "drop", "noise")
    assert trials["A"].verdict in ("keep", "drop", "noise")
    assert trials["Wrong"].reason.startswith("numbers differ: y[")
    table = actual.as_dict()
    assert table["Switch"]["Runtime"]["provider"] == "cuda"
    assert re.fullmatch(r"on cuda: (all )?\d+ .*", actual.placement)
    assert table["Evidence"]["clock"] == "wall time"
    runtime = sessions.Runtime.of({"provider": "cuda", "cuda_graph": True}, "s.json")
    settings = {"enable_cuda_graph": "1"}
    assert runtime.providers() == [("CPUExecutionProvider", settings), "CPUExecutionProvider"]


def test_the_switch_file_does_not_replace_the_model(
    model: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = model.read_bytes()
    assert command(["tune", str(model), "-o", str(model)]) == 2
    assert "is read, too; name another file for the switches" in capsys.readouterr().err
    assert model.read_bytes() == before


@pytest.mark.parametrize("needed", [3, "onnxruntime>=abc", "onnxruntime~=1.31"])
def test_versions_that_cannot_be_read_are_refused(tmp_path: Path, needed: object) -> None:
    path = switch_file(tmp_path / "s.json", evidence={"requires": [needed]})
    with pytest.raises(UsageError, match="Evidence.requires: "):
        gehost.runtime_options(path)


def test_a_budget_that_suffices_is_spread_over_the_comparisons(
    monkeypatch: pytest.MonkeyPatch, model: Path, equal_vendors: Any
) -> None:
    shares: list[float] = []

    def measured(*_: Any, seconds: float, **__: Any) -> Comparison:
        shares.append(seconds)
        return SAME

    monkeypatch.setattr(tuning, "measure_pairs", measured)
    actual = tune(model, HostOptions(vendors=[equal_vendors.root], plugins=False), budget=700.0)
    assert not actual.short
    assert 95 < shares[0] <= 100  # 7 comparisons
    assert all(share >= 95 for share in shares)
