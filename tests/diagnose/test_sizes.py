"""``gehost show --sizes``, and facts about sizes in a compile."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import onnx
import pytest

from gehost import Host, HostOptions
from gehost.cli import run
from gehost.diagnose.sizes import show_sizes
from gehost.errors import UsageError
from gehost.testing import parse

TEXT = """<ir_version: 8, opset_import: ["" : 17]>
    main (float[batch, total, 4] x, float[batch, past, 4] p, float[batch, seq, 4] n, bool[k] m)
    => (float[a, b, c] y, int64[?, ?] z) <float[4] w = {1, 2, 3, 4}> {
        both = Concat <axis = 1> (p, n) y = Mul (x, both) z = NonZero (m) }"""
EQUAL = "total == past + seq"


def model(tmp_path: Path) -> str:
    path = tmp_path / "m.onnx"
    onnx.save(parse(TEXT), path)
    return str(path)


def test_each_size_has_its_first_place(tmp_path: Path) -> None:
    shown = show_sizes(model(tmp_path), HostOptions(plugins=False))
    assert "sizes: 5 names, 1 unnamed, 2 computed" in shown
    assert 'past the length of "p" (axis 1, an input); 1 axis' in shown
    assert 'the length of "z" (axis 1, from NonZero "z"); 1 axis' in shown
    assert 'past + seq the length of "both" (axis 1, from Concat "both"); 1 axis' in shown
    assert "no pass refused an unproven size" in shown


def test_what_no_empty_tensor_would_name(tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    onnx.save(
        parse("""<ir_version: 8, opset_import: ["" : 17]> main (float[k] x, float[n] w) => (float[?, ?] y)
        { f = Constant<value_ints = [-1]>() n = Shape(w) s = Concat<axis = 0>(f, n)
          y = Reshape<allowzero = 1>(x, s) }"""),
        path,
    )
    shown = show_sizes(str(path), HostOptions(plugins=False))
    assert 'with --assume "sizes >= 1": 0 unnamed' in shown
    assert "--assume" not in show_sizes(model(tmp_path), HostOptions(plugins=False))


def test_a_fact_makes_two_sizes_one(tmp_path: Path) -> None:
    shown = show_sizes(model(tmp_path), HostOptions(plugins=False, assume=[EQUAL]))
    assert "total = past + seq" in shown
    assert 'past + seq the length of "x" (axis 1, an input); 3 axes' in shown


VENDOR = """
from gehost import CustomPassStage, EsGraphBuilder, Pattern, PatternFusionPass, REG_FUSION_PASS, es

@REG_FUSION_PASS(stage=CustomPassStage.kAfterInferShape)
class SumOfEqualPass(PatternFusionPass):
    def Patterns(self):
        builder = EsGraphBuilder("p")
        x, p, n = builder.CreateInputs(3)
        return [Pattern(builder.BuildAndReset([es.Mul(x, es.Concat(p, n, axis=1))]))]

    def Replacement(self, match):
        builder = EsGraphBuilder("r")
        x, p, n = builder.CreateInputs(3)
        return builder.BuildAndReset([es.Neg(es.Neg(x))])
"""


def test_an_equality_that_would_unlock_a_fusion(tmp_path: Path) -> None:
    (tmp_path / "equal.py").write_text(VENDOR)
    options = HostOptions(pass_paths=[tmp_path / "equal.py"], plugins=False)
    shown = show_sizes(model(tmp_path), options)
    assert "1 × SumOfEqualPass: dimension 1" in shown
    assert 'unlocked by --assume "total == past + seq"' in shown
    _, report = Host(replace(options, assume=[EQUAL])).run(model(tmp_path))
    assert [record.replaced for record in report.passes] == [1]


@pytest.mark.parametrize(
    ("fact", "message"),
    [
        ("totl == past + seq", 'no input has a size "totl"; named sizes of inputs: batch, k, past'),
        ("total == 3 <= 4", "the right side is no size"),
        ("total <= seq", "no number on the right"),
    ],
)
def test_what_is_no_fact_is_refused(tmp_path: Path, fact: str, message: str) -> None:
    with pytest.raises(UsageError) as caught:
        Host(HostOptions(plugins=False, assume=[fact])).run(model(tmp_path))
    assert message in str(caught.value)


def test_facts_come_in_any_order(tmp_path: Path) -> None:
    facts = [EQUAL, "seq >= 1", "past % 2 == 0"]
    shown = show_sizes(model(tmp_path), HostOptions(plugins=False, assume=facts))
    assert "total = past + seq" in shown


def test_the_command(tmp_path: Path, capsys: Any) -> None:
    assert run(["show", model(tmp_path), "--sizes", "--assume", EQUAL, "--no-plugins"]) == 0
    assert "computed" in capsys.readouterr().out
