"""Switches, limits, explain and blame treat each group as one rewrite."""

from __future__ import annotations

import json
from pathlib import Path

import onnx
import pytest

from gehost import cli
from gehost.testing import parse
from gehost_linalg.passes import NAME

from .models import graph

MODEL = graph(
    "a = Exp(x)\nb = Tanh(a)\nm = MatMul(b, w)\nc = Exp(m)\nd = Tanh(c)\nn = MatMul(d, w)\n"
    "e = Exp(n)\ny = Tanh(e)",
    "float[4,4] x, float[4,4] w",
    "float[4,4] y",
)
ON = ("--enable", NAME)


@pytest.fixture
def model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    (tmp_path / "vendors").mkdir()
    monkeypatch.setenv("GEHOST_VENDORS", str(tmp_path / "vendors"))
    onnx.save(parse(MODEL), tmp_path / "m.onnx")
    return str(tmp_path / "m.onnx")


def fused(path: Path) -> int:
    return sum(node.domain == "gehost.linalg" for node in onnx.load(path).graph.node)


@pytest.mark.parametrize(
    ("options", "groups"),
    [((), 0), (ON, 3), ((*ON, "--rewrite-limit", "2"), 2), (("--only", NAME), 3)],
)
def test_switches_and_the_limit(
    model: str, tmp_path: Path, options: tuple[str, ...], groups: int
) -> None:
    assert cli.run(["compile", model, "-o", str(tmp_path / "out.onnx"), *options]) == 0
    assert fused(tmp_path / "out.onnx") == groups


def test_explain_lists_groups_and_refusals(model: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["explain", model, "--pass", NAME, *ON]) == 0
    output = capsys.readouterr().out
    assert "3 × rewritten" in output
    assert "not-lowered: MatMul" in output


def test_explain_explains_a_plugins_pass_that_is_off(
    model: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.run(["explain", model, "--pass", NAME]) == 0
    output = capsys.readouterr().out
    assert f"off by default; --enable {NAME} runs it; explained as if it ran" in output
    assert "3 × rewritten" in output


def test_blame_names_the_pass_and_the_original_nodes(
    model: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out.onnx"
    assert cli.run(["compile", model, "-o", str(out), *ON]) == 0
    (node, *_) = [item for item in onnx.load(out).graph.node if item.domain == "gehost.linalg"]
    capsys.readouterr()
    assert cli.run(["blame", str(out), node.name]) == 0
    output = capsys.readouterr().out
    assert NAME in output
    assert 'Exp "a"' in output
    assert 'Tanh "b"' in output


def test_the_report_counts_groups_and_refusals_by_key(model: str, tmp_path: Path) -> None:
    report = tmp_path / "report.json"
    out = str(tmp_path / "out.onnx")
    assert cli.run(["compile", model, "-o", out, *ON, "--report", str(report)]) == 0
    (record,) = [
        load for load in json.loads(report.read_text())["passes"] if load["name"] == NAME
    ]  # fmt: skip
    assert record["replaced"] == 3
    assert record["rejected"]["not-lowered"] == 2


@pytest.mark.parametrize(
    "arguments",
    [
        ("linalg", "MODEL", "--control", "one-used"),
        ("linalg", "MODEL", "--control", "max-operands=0"),
        ("compile", "MODEL", "-o", "o.onnx", *ON, "--set", f"{NAME}.control=one-used"),
        ("linalg", "MODEL", "--node", "nowhere"),
    ],
)
def test_unknown_names_end_with_2_and_one_line(
    model: str,
    tmp_path: Path,
    arguments: tuple[str, ...],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    assert cli.run([argument.replace("MODEL", model) for argument in arguments]) == 2
    assert len(capsys.readouterr().err.strip().splitlines()) == 1
    assert not (tmp_path / "o.onnx").exists()
