"""Part of a model as text, dot and SVG, as a stage meets it."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import onnx
import pytest

from gehost import HostOptions, UsageError
from gehost.cli import run
from gehost.diagnose.show import show
from gehost.testing import parse

CHAIN = """<ir_version: 8, opset_import: ["" : 17]>
main (float[2,3] x) => (float[2,3] e) <float[3] w = {1.0, 2.0, 3.0}> {
    [first] a = Relu(x)
    [second] b = Softmax <axis=1> (a)
    [third] c = Mul(b, w)
    [fourth] d = Exp(c)
    [fifth] e = Neg(d)
}"""
BRANCHES = """<ir_version: 8, opset_import: ["" : 17]>
main (bool c, float[2] x) => (float[2] y) {
    [whole] r = Relu(x)
    [choice] y = If (c) <then_branch = yes () => (float[2] t) { [inner] t = Relu(r) },
                else_branch = no () => (float[2] f) { f = Exp(r) }>
}"""


@pytest.fixture
def model(tmp_path: Path) -> str:
    onnx.save(parse(CHAIN), tmp_path / "m.onnx")
    return str(tmp_path / "m.onnx")


def shown(model: str, **options: Any) -> str:
    return show(model, HostOptions(plugins=False), **options)


def test_a_node_is_shown_with_types_constants_and_neighbours(model: str) -> None:
    assert shown(model, around="third", depth=1).splitlines() == [
        f"{model}: 3 of 5 nodes",
        "",
        '  Softmax "second" axis=1',
        '      in a float[2,3], from Relu "first"',
        '      out b float[2,3], to Mul "third"',
        "",
        '> Mul "third"',
        '      in b float[2,3], from Softmax "second"',
        "      in w float[3], constant [1.0, 2.0, 3.0]",
        '      out c float[2,3], to Exp "fourth"',
        "",
        '  Exp "fourth"',
        '      in c float[2,3], from Mul "third"',
        '      out d float[2,3], to Neg "fifth"',
    ]


@pytest.mark.parametrize(("depth", "count"), [(0, 1), (1, 3), (2, 5), (9, 5)])
def test_depth_counts_steps_both_ways(model: str, depth: int, count: int) -> None:
    assert shown(model, around="c", depth=depth).startswith(f"{model}: {count} of 5")


def test_a_stage_has_inferred_types_and_what_passes_before_it_did(model: str, vendors: Any) -> None:
    vendors.write("acme/a.py", vendors.swap("Early", "Exp", "Abs"))
    vendors.write("acme/b.py", vendors.swap("Late", "Abs", "Relu", stage="kAfterBuiltinFusionPass"))
    options = HostOptions(vendors=[vendors.root], plugins=False)

    def ops(stage: str) -> str:
        text = show(model, options, around="d", depth=0, stage=stage)
        assert "in c float[2,3]" in text or stage == "kBeforeInferShape"
        return text.splitlines()[2].split()[1]

    assert ops("kBeforeInferShape") == "Exp"
    assert ops("kAfterInferShape") == "Exp"
    assert ops("kAfterBuiltinFusionPass") == "Abs"
    assert ops("kAfterOriginGraphOptimize") == "Relu"


def test_nodes_of_an_operator_are_found_in_all_graphs(tmp_path: Path) -> None:
    onnx.save(parse(BRANCHES), tmp_path / "b.onnx")
    path = str(tmp_path / "b.onnx")
    lines = shown(path, ops=["Relu"], depth=0).splitlines()
    assert lines[0].endswith("2 of 4 nodes")
    assert '> Relu "whole"' in lines
    assert 'in graph "yes" of If "choice":' in lines
    assert '      in r float[2], from Relu "whole"' in lines
    with pytest.raises(UsageError, match="these nodes are in 2 graphs"):
        shown(path, ops=["Relu"], form="svg")


def test_an_operator_without_its_domain_is_the_only_one_of_its_name(tmp_path: Path) -> None:
    path = str(tmp_path / "d.onnx")
    text = """<ir_version: 8, opset_import: ["": 17, "a": 1, "b": 1]>
    g (float[2] x) => (float[2] z) { u = a.F(x) v = a.G(u) w = b.G(v) z = a.Relu(w) }"""
    onnx.save(parse(text), path)
    assert "> a::F" in shown(path, ops=["F"], depth=0)
    with pytest.raises(UsageError, match="no G; did you mean a::G"):
        shown(path, ops=["G"], depth=0)


def test_dot_joins_users_with_producers(model: str) -> None:
    lines = shown(model, ops=["Softmax"], depth=1, form="dot").splitlines()
    assert '  1 [label="Softmax second" style=bold];' in lines
    assert '  0 -> 1 [label="float[2,3]"];' in lines
    assert len(lines) == 8


def test_svg_is_a_document_with_every_node(model: str) -> None:
    root = ET.fromstring(shown(model, ops=["Mul"], depth=1, form="svg"))
    assert root.tag == "{http://www.w3.org/2000/svg}svg"
    texts = {text.text for text in root.iter("{http://www.w3.org/2000/svg}text")}
    assert {"Softmax", "Mul", "Exp", "axis = 1"} <= texts


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"around": "thrid"}, 'no node "thrid"; did you mean third'),
        ({"ops": ["Sofmax"]}, "no Sofmax; did you mean Softmax"),
        ({"stage": "kAfterInfershape"}, "no stage kAfterInfershape; did you mean kAfterInferShape"),
    ],
)
def test_unknown_names_get_the_nearest(model: str, options: Any, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        shown(model, **options)


def test_the_command_prints_and_exits(model: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["show", model, "--op", "Neg", "--depth", "0"]) == 0
    assert capsys.readouterr().out.splitlines()[2] == '> Neg "fifth"'
    assert run(["show", model, "--op", "Nge"]) == 2


@pytest.mark.parametrize("option", ["--vendors", "--enable", "--disable", "--only"])
def test_a_choice_of_passes_needs_a_stage(
    model: str, option: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Without one no pass is looked at, so that a name that does not exist went unnoticed."""
    assert run(["show", model, option, "nosuch"]) == 2
    assert f"{option} has an effect with --stage alone" in capsys.readouterr().err
    assert run(["show", model, option, "nosuch", "--stage", "kAfterInferShape"]) == 2
    assert "nosuch" in capsys.readouterr().err


def test_vendors_are_mentioned_only_where_they_run(
    model: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """There is no ./vendors here."""
    (tmp_path / "shipped" / "acme" / "custom_fusion_passes").mkdir(parents=True)
    monkeypatch.setattr("gehost.options.shipped_vendors", lambda _: [str(tmp_path / "shipped")])
    monkeypatch.chdir(tmp_path)
    assert run(["show", model]) == 0
    assert capsys.readouterr().err == ""
    assert run(["show", model, "--stage", "kAfterInferShape"]) == 0
    assert f"no vendors given: using {tmp_path / 'shipped'}" in capsys.readouterr().err
