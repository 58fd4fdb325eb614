"""A style that the core has never heard of, installed beside it: collected from a vendor's file, compiled, explained, checked."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path
from typing import Any

import onnx
import pytest

from gehost.cli import run
from gehost.testing import parse

PLUGIN = Path(__file__).with_name("text_style.py")
RULES = """from text_style import TextRule

to_and_fro = TextRule(
    "source (float[a, b] x) => (float[a, b] y) { t = Transpose<perm = [1, 0]>(x) y = Transpose<perm = [1, 0]>(t) }",
    "result (float[a, b] x) => (float[a, b] y) { y = Identity(x) }",
)
"""
TWICE = "to_and_fro = TextRule('g (float[1] x) => (float[1] y) { y = Relu(x) }', 'g (float[1] x) => (float[1] y) { y = Neg(x) }')"
MODEL = """<ir_version: 8, opset_import: ["" : 17]>
main (float[2, 3] x) => (float[2, 3] y, float[3, 2] z) {
    t = Transpose<perm = [1, 0]>(x)
    y = Transpose<perm = [1, 0]>(t)
    a = Transpose<perm = [0, 1]>(t)
    b = Relu(x)
    c = Transpose<perm = [1, 0]>(b)
    d = Transpose<perm = [1, 0]>(c)
    z = Transpose<perm = [1, 0]>(d)
}"""


@pytest.fixture
def here(vendors: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory with a model and a vendor's file; the plugin is installed, as a distribution with an entry point."""
    site = tmp_path / "site"
    described = site / "text_style-1.0.dist-info"
    described.mkdir(parents=True)
    shutil.copy(PLUGIN, site)
    (described / "METADATA").write_text(
        "Metadata-Version: 2.1\nName: text-style\nVersion: 1.0\n", encoding="utf-8"
    )
    (described / "entry_points.txt").write_text("[gehost]\ntext = text_style\n", encoding="utf-8")
    monkeypatch.syspath_prepend(site)
    monkeypatch.delitem(sys.modules, "text_style", raising=False)
    monkeypatch.chdir(tmp_path)
    vendors.write_raw("acme/custom_fusion_passes/a.py", RULES)
    onnx.save(parse(MODEL), "m.onnx")
    return tmp_path


def told(capsys: pytest.CaptureFixture[str], *arguments: str) -> Any:
    assert run([*arguments, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


@pytest.mark.usefixtures("here")
def test_it_is_a_pass_like_any_other(vendors: Any, capsys: pytest.CaptureFixture[str]) -> None:
    (listing,) = [
        entry
        for entry in told(capsys, "passes", "--vendors", str(vendors.root))
        if entry["kind"] == "text"
    ]
    assert (listing["name"], listing["vendor"]) == ("to_and_fro", "acme")
    assert listing["origin"] == f"{vendors.root}/acme/custom_fusion_passes/a.py:3"


def test_it_compiles_and_is_reported(here: Path, vendors: Any) -> None:
    arguments = [
        "m.onnx",
        "-o",
        "out.onnx",
        "--vendors",
        str(vendors.root),
        "--no-cleanup",
        "--verify",
        "--report",
        "r.json",
    ]
    assert run(["compile", *arguments]) == 0
    assert [node.op_type for node in onnx.load("out.onnx").graph.node].count("Identity") == 1
    (record,) = json.loads((here / "r.json").read_text(encoding="utf-8"))["passes"]
    assert (record["name"], record["vendor"], record["kind"], record["replaced"]) == (
        "to_and_fro",
        "acme",
        "text",
        1,
    )


@pytest.mark.usefixtures("here")
def test_it_is_explained_with_the_authors_line(
    vendors: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    explained = json.dumps(
        told(capsys, "explain", "m.onnx", "--pass", "to_and_fro", "--vendors", str(vendors.root))
    )
    assert f"{vendors.root}/acme/custom_fusion_passes/a.py:3" in explained
    assert "rewritten" in explained
    assert "near miss" in explained


@pytest.mark.usefixtures("here")
@pytest.mark.parametrize(
    ("rules", "code"),
    [(RULES, 0), (f"from text_style import TextRule\n{TWICE}\n", 6)],
    ids=["right", "wrong"],
)
def test_it_is_checked(
    vendors: Any, capsys: pytest.CaptureFixture[str], rules: str, code: int
) -> None:
    file = vendors.write_raw("acme/custom_fusion_passes/a.py", rules)
    assert run(["check-pass", str(file)]) == code
    out = capsys.readouterr().out
    assert "to_and_fro" in out
    assert ("numbers differ" in out) is (code == 6)


@pytest.mark.usefixtures("here")
def test_a_malformed_rule_is_told_with_its_line(
    vendors: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    file = vendors.write_raw(
        "acme/custom_fusion_passes/a.py", RULES.replace("Identity(x)", "Identity<axes = [1]>(x)")
    )
    assert run(["compile", "m.onnx", "-o", "out.onnx", "--vendors", str(vendors.root)]) == 5
    (line,) = capsys.readouterr().err.splitlines()
    assert (
        line
        == f'gehost: to_and_fro ({file}:3): Replacement at node "d" (Transpose): Identity has no parameter "axes"; it has none'
    )
