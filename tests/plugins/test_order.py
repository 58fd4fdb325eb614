"""Passes of several styles in one file run as they stand there."""

from __future__ import annotations

from pathlib import Path

import pytest

import gehost_drr
import gehost_register_pass
from gehost import Host, HostOptions

FILE = """from gehost import REG_FUSION_PASS, EsGraphBuilder, Pattern, PatternFusionPass, es
from gehost_drr import drr
from gehost_register_pass import RegisterPass, op


@RegisterPass
def first():
    return lambda x: op.Neg(op.Neg(x)), lambda x: x


@REG_FUSION_PASS(name="second")
class Second(PatternFusionPass):
    def Patterns(self):
        builder = EsGraphBuilder()
        return [Pattern(builder.BuildAndReset(es.Neg(builder.CreateInput(0))))]

    def Replacement(self, match):
        raise NotImplementedError


@drr.rule()
def third(pat, res):
    pat.y = pat.Relu(pat.Relu(pat.x))
    res.y = res.Relu(res.x)


@RegisterPass
def fourth():
    return lambda x: op.Exp(op.Log(x)), lambda x: x


@drr.rule(benefit=BENEFIT)
def fifth(pat, res):
    pat.y = pat.Abs(pat.Abs(pat.x))
    res.y = res.Abs(res.x)
"""
STYLES = [("drr", gehost_drr), ("register_pass", gehost_register_pass)]


@pytest.mark.parametrize("plugins", [STYLES, STYLES[::-1]])
@pytest.mark.parametrize(
    ("benefit", "order"),
    [
        (1, ["first", "second", "third", "fourth", "fifth"]),
        (2, ["first", "second", "fourth", "fifth", "third"]),
    ],
)
def test_a_file_s_passes_run_in_its_order_whatever_their_style(
    tmp_path: Path, plugins: list[tuple[str, object]], benefit: int, order: list[str]
) -> None:
    """Rules of one style that have an order of their own, as by benefit, keep it."""
    folder = tmp_path / "acme" / "custom_fusion_passes"
    folder.mkdir(parents=True)
    (folder / "passes.py").write_text(FILE.replace("BENEFIT", str(benefit)))
    assert Host(HostOptions(vendors=[tmp_path], plugins=False), plugins).passes.names() == order
