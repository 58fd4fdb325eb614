"""A pass that fails leaves a directory in which it fails again, in the same way."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from gehost.cli import run
from gehost.testing import parse

MODEL = """<ir_version: 8, opset_import: ["" : 17]>
main (float[n, 3] x) => (float[n, 3] y) {
    a = Relu(x)
    b = Identity(a)
    c = Exp(b)
    y = Tanh(c)
}"""


@pytest.fixture(autouse=True)
def before(here: Path, vendors: Any) -> None:
    """A model, and passes whose work the failing pass needs: a custom operator, and an operator that comes from a rewrite."""
    onnx.save(parse(MODEL), here / "m.onnx")
    operator = '@ops.register("acme::Twice")\ndef twice(x):\n    return x + x\n'
    vendors.write("acme/a.py", operator, vendors.swap("First", "Relu", "Twice"))


def failing(vendors: Any, raised: str, stage: str = "kAfterInferShape") -> None:
    """A pass that fails where it meets what ``First`` made, with the type that inference gave it."""
    vendors.write_raw("bcme/custom_fusion_passes/_helper.py", f"def fail(match):\n    {raised}\n")
    vendors.write(
        "bcme/b.py",
        "from ._helper import fail\n",
        vendors.swap("Failing", "Exp", "Abs", stage=stage, meet="return fail(match)"),
    )


INVALID = """
@REG_FUSION_PASS(stage=CustomPassStage.kAfterInferShape)
class Invalid(FusionBasePass):
    def Run(self, graph, context):
        graph.redirect(graph.nodes_of("acme::Twice")[0].outputs[0], graph.outputs[0])
"""
HOOK = """
@hookimpl
def gehost_after_builtin_fusion_pass(graph):
    raise ValueError(f"{len(graph)} nodes")
"""
NEEDS_TYPES = 'raise ValueError(f"{match.inputs[0].type} from {match.inputs[0].producer.op}")'


def compiled(capsys: pytest.CaptureFixture[str], *more: str) -> tuple[int, str]:
    capsys.readouterr()
    code = run(["compile", "m.onnx", "-o", "out.onnx", "--vendors", "vendors", *more])
    return code, capsys.readouterr().err.strip()


def replayed(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, directory: Path
) -> tuple[int, str]:
    """Run the command of the README in its directory."""
    text = (directory / "README.md").read_text()
    (line,) = (line.strip() for line in text.splitlines() if line.startswith("    gehost "))
    with monkeypatch.context() as patch:
        patch.chdir(directory)
        code = run(shlex.split(line)[1:])
    return code, capsys.readouterr().err.strip()


@pytest.mark.parametrize(
    "stage", ["kBeforeInferShape", "kAfterInferShape", "kAfterBuiltinFusionPass"]
)
def test_the_replay_fails_with_the_same_error(
    stage: str,
    vendors: Any,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    here: Path,
) -> None:
    failing(vendors, NEEDS_TYPES, stage)
    code, message = compiled(capsys, "--reproducer", "again")
    assert code == 5
    assert message.endswith(
        "; again holds the model before it, the vendors' files and the command that replays it"
    )
    assert not Path("out.onnx").exists()
    source = {
        "kBeforeInferShape": "Identity",
        "kAfterInferShape": "Identity",
        "kAfterBuiltinFusionPass": "acme::Twice",
    }[stage]
    assert f"from {source}" in message
    assert ("float[n,3]" in message) == (stage != "kBeforeInferShape")
    assert message.splitlines()[0] == message

    switches = json.loads(Path("again/fusion_switch.json").read_text())
    assert switches == {"Switch": {"GraphFusion": {"ALL": "off", "Failing": "on"}}}
    assert bool(onnx.load("again/model.onnx").graph.value_info) == (stage != "kBeforeInferShape")

    again, said = replayed(capsys, monkeypatch, here / "again")
    assert again == 5
    assert said.replace(f"{here}/again/", f"{here}/") == message.partition("; again holds")[0]


@pytest.mark.parametrize("code", [INVALID, HOOK])
def test_a_failed_check_and_a_failed_hook_replay_too(
    code: str,
    vendors: Any,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    here: Path,
) -> None:
    vendors.write("bcme/b.py", code)
    failed, message = compiled(capsys, "--reproducer", "again")
    assert failed == 5
    again, said = replayed(capsys, monkeypatch, here / "again")
    assert again == 5
    assert _without_paths(said, here) == _without_paths(message.partition("; again holds")[0], here)


def _without_paths(message: str, here: Path) -> str:
    return (
        message.replace(f"{here}/again/", "")
        .replace(f"{here}/", "")
        .replace("model.onnx", "m.onnx")
    )


def test_a_compile_that_keeps_going_leaves_the_first_failure(
    vendors: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    failing(vendors, "1 / 0")
    vendors.write("bcme/c.py", INVALID)
    code, message = compiled(capsys, "--keep-going", "--reproducer", "again")
    assert (code, message.partition("\n")[0]) == (
        5,
        "again holds the model before it, the vendors' files and the command that replays it",
    )
    assert "Failing" in Path("again/README.md").read_text()
    assert Path("out.onnx").exists()


def test_vendor_files_that_did_not_load_are_left_out_so_that_the_replay_fails_as_the_pass_did(
    vendors: Any, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, here: Path
) -> None:
    failing(vendors, "1 / 0")
    vendors.write("bcme/broken.py", "def :\n")
    vendors.write("bcme/twice.py", '@ops.register("acme::Twice")\ndef twice(x):\n    return x\n')
    vendors.write("ccme/package/__init__.py", "import no_such_module\n")
    assert compiled(capsys, "--keep-going", "--reproducer", "again")[0] == 4
    assert {path.name for path in Path("again/vendors/bcme/custom_fusion_passes").iterdir()} == {
        "b.py",
        "_helper.py",
    }
    assert not list(Path("again/vendors/ccme/custom_fusion_passes").iterdir())
    readme = Path("again/README.md").read_text()
    for name in (
        "bcme/custom_fusion_passes/broken.py",
        "bcme/custom_fusion_passes/twice.py",
        "ccme/custom_fusion_passes/package",
    ):
        assert f"Not copied, as it did not load: `{here}/vendors/{name}`" in readme
    again, said = replayed(capsys, monkeypatch, here / "again")
    assert (again, "ZeroDivisionError" in said) == (5, True)


def test_the_readme_tells_of_a_hook_that_ends_the_replay(
    vendors: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    failing(vendors, "1 / 0")
    vendors.write(
        "ccme/c.py", "@hookimpl\ndef gehost_register_ops(registry):\n    raise ValueError('no')\n"
    )
    compiled(capsys, "--keep-going", "--reproducer", "again")
    message = (
        "This failed too, and ends the replay before the pass; remove it first: `plugin ccme/c ("
    )
    assert message in Path("again/README.md").read_text()


def test_the_readme_says_that_files_elsewhere_are_not_copied(
    vendors: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    failing(vendors, "1 / 0")
    vendors.write_raw("bcme/table.txt", "")
    compiled(capsys, "--reproducer", "again")
    assert not Path("again/vendors/bcme/table.txt").exists()
    assert (
        "Files that a pass reads from other places are not copied"
        in Path("again/README.md").read_text()
    )


def test_the_replay_does_no_clean_up_where_the_compile_did_none(
    vendors: Any, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, here: Path
) -> None:
    failing(vendors, NEEDS_TYPES, "kAfterBuiltinFusionPass")
    _, message = compiled(capsys, "--no-cleanup", "--reproducer", "again")
    assert "from Identity" in message
    _, said = replayed(capsys, monkeypatch, here / "again")
    assert "from Identity" in said


def test_without_a_failure_nothing_is_written(capsys: pytest.CaptureFixture[str]) -> None:
    assert compiled(capsys, "--reproducer", "again") == (0, "")
    assert not Path("again").exists()


def test_what_stands_there_is_kept_and_told_before_anything_runs(
    vendors: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    vendors.write("acme/a.py", "raise SystemExit\n")
    Path("again").mkdir()
    Path("again/mine").write_text("mine")
    code, message = compiled(capsys, "--reproducer", "again")
    assert (code, "exists already" in message) == (2, True)
    assert [path.name for path in Path("again").iterdir()] == ["mine"]


def test_the_failure_is_told_also_where_the_reproducer_cannot_be_written(
    vendors: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    failing(vendors, "import pathlib; pathlib.Path('again').write_text('mine'); 1 / 0")
    code, message = compiled(capsys, "--reproducer", "again")
    assert code == 5
    assert "ZeroDivisionError" in message
    assert "; no reproducer: again: exists already" in message
    assert Path("again").read_text() == "mine"
    assert not list(Path().glob(".gehost-*"))


def test_weights_stay_outside_the_model_and_are_told(
    vendors: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    failing(vendors, "1 / 0")
    model = parse(
        MODEL.replace("Relu(x)", "Add(x, w)")
        .replace("x)", "x, float[1024, 3] w)", 1)
        .replace("[n, 3]", "[1024, 3]")
    )
    weights = np.random.default_rng(0).normal(size=(1024, 3)).astype(np.float32)
    del model.graph.input[1]
    model.graph.initializer.append(onnx.numpy_helper.from_array(weights, "w"))
    onnx.save(model, "m.onnx", save_as_external_data=True, location="m.data", size_threshold=0)
    _, message = compiled(capsys, "--reproducer", "again")
    assert "with 0.0 MiB of weights beside it" in message
    assert Path("again/model.onnx").stat().st_size < 2000
    (data,) = Path("again").glob("model.onnx.*.data")
    assert np.array_equal(np.fromfile(data, np.float32, weights.size), weights.ravel())


def test_large_files_beside_a_pass_are_left_out_and_named(
    vendors: Any, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    failing(vendors, "1 / 0")
    monkeypatch.setattr("gehost.diagnose.reproduce._LARGEST", 4096)
    vendors.write_raw("bcme/custom_fusion_passes/table.bin", "x" * 5000)
    compiled(capsys, "--reproducer", "again")
    assert {path.name for path in Path("again/vendors/bcme/custom_fusion_passes").iterdir()} == {
        "b.py",
        "_helper.py",
    }
    assert "table.bin" in Path("again/README.md").read_text()


def test_the_replay_has_the_settings_and_switch_of_the_pass(
    vendors: Any, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    vendors.write(
        "bcme/b.py",
        """
        @REG_FUSION_PASS(name="Failing", default=False, options=[PassOption("why", str, "")])
        class Failing(FusionBasePass):
            def Run(self, graph, context):
                raise ValueError(context.options["why"])
        """,
    )
    value = ("--enable", "Failing", "--set", "Failing.why=as told", "--reproducer", "found")
    code, message = compiled(capsys, *value)
    assert code == 5
    again, retold = replayed(capsys, monkeypatch, Path("found"))
    assert again == 5
    assert "ValueError: as told" in message
    assert "ValueError: as told" in retold
