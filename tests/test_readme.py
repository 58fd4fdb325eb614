"""The README's rules, commands and outputs are right, and it stays short."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import onnx
import onnx.parser
import pytest

import gehost_drr
from gehost import Host, HostOptions
from gehost.cli import run
from gehost.optimizing import run as optimizing
from gehost.optimizing.search import Gain
from gehost.testing import parse
from gehost.tune import Comparison

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
RULE, CLASS = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
MODEL = """<ir_version: 8, opset_import: ["" : 17]>
main (float[2, 3] x) => (float[2, 3] y) {
    s = Sigmoid(x)
    y = Mul(s, x)
}"""


def test_a_reader_sees_all_of_it() -> None:
    assert README.count("\n") <= 100


@pytest.mark.parametrize("code", [RULE, RULE + CLASS], ids=["rule", "class"])
def test_each_form_of_the_rule_fuses(code: str, vendors: Any) -> None:
    if code != RULE:  # the class alone, beside the operator that the first form declares
        code = code[: code.index("@drr.rule")] + CLASS
    vendors.write_raw("acme/custom_fusion_passes/silu.py", code)
    host = Host(HostOptions(vendors=[vendors.root], plugins=False), [("drr", gehost_drr)])
    result, report = host.run(parse(MODEL))
    assert [node.op_type for node in result.graph.node] == ["SiLU"]
    assert [record.replaced for record in report.passes] == [1]


def test_the_figures_of_the_example_are_those_of_the_compile(tmp_path: Path) -> None:
    shown = re.search(r"`(tests/models/\S+)`\) goes from (\d+) nodes to (\d+)", README)
    assert shown is not None
    model, before, after = shown.groups()
    host = Host(HostOptions(vendors=[ROOT / "vendors"]))
    host.compile(ROOT / model, tmp_path / "out.onnx")
    counts = [len(onnx.load(path).graph.node) for path in (ROOT / model, tmp_path / "out.onnx")]
    assert counts == [int(before), int(after)]


def test_the_first_command_prints_what_is_shown(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """But for times, which are those of one machine."""

    def compare(_run: Any, _inputs: Any, _first: Any, _second: Any, what: str, **_: Any) -> Gain:
        even = what in ("the model against itself", "without residual sums apart")
        ratio = 1.0 if even else 1.2
        comparison = Comparison((ratio, ratio, ratio), 8e-5, 6e-5)
        return Gain(comparison, comparison if "whole" in what else None)

    monkeypatch.setattr(optimizing._Run, "_compare", compare)
    pytest.importorskip("onnxruntime")
    shown = re.search(r"```console\n\$ gehost (optimize .*) -o (\S+)\n(.*?)```", README, re.DOTALL)
    assert shown is not None
    monkeypatch.chdir(tmp_path)
    (tmp_path / "tests").symlink_to(ROOT / "tests")
    assert run([*shown[1].split(), "-o", shown[2]]) == 0
    printed = capsys.readouterr().out
    times = r"\d+ µs|\d\.\d\d|ONNX Runtime [\d.]+|\(largest difference [^)]*\)| +(?=  $)"
    assert re.sub(times, "T", printed) == re.sub(times, "T", shown[3])


def test_the_demo_model_is_in_the_repository() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    model = re.search(r"^DEMO_MODEL := (.+)$", makefile, re.MULTILINE)
    assert model is not None
    assert (ROOT / model[1]).is_file()


def test_the_pass_of_the_contract_with_a_run_of_its_own_runs(vendors: Any) -> None:
    text = (ROOT / "vendors" / "README.md").read_text(encoding="utf-8")
    (code,) = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    vendors.write_raw("acme/custom_fusion_passes/a.py", code)
    model = """<ir_version: 8, opset_import: ["" : 17]> g (float[2] x) => (float[2] y) { y = Relu(x) }"""
    result, report = vendors.host().run(parse(model))
    assert [node.op_type for node in result.graph.node] == ["Max"]
    assert report.passes[0].replaced == 1
