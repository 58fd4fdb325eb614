"""Names that are near others."""

from __future__ import annotations

import pytest

from gehost.spelling import counted, hint, is_misspelled, nearest, nearest_functions


@pytest.mark.parametrize(
    ("name", "declared", "near"),
    [
        ("silu", ["acme::SiLU", "Relu"], ["acme::SiLU"]),
        ("acme::SilU", ["acme::SiLU", "Relu"], ["acme::SiLU"]),
        ("Reluu", ["acme::SiLU", "Relu"], ["Relu"]),
        ("Quux", ["acme::SiLU", "Relu"], []),
    ],
)
def test_the_nearest(name, declared, near):
    assert nearest(name, declared) == near
    assert hint(name, declared) == (f"; did you mean {near[0]}?" if near else "")


def test_several():
    assert nearest("Gelu", ["GeluFusionPass", "SiluPass"]) == ["GeluFusionPass"]
    assert nearest("Add", ["AddToSumPass"]) == []
    assert nearest("Passs", ["Pass", "Past", "Other"], 2) == ["Pass", "Past"]
    assert hint("Passs", ["Pass", "Past", "Other"], 2) == "; did you mean Pass or Past?"


@pytest.mark.parametrize(
    ("name", "intended", "is_slip"),
    [
        ("SilU", "SiLU", True),
        ("Rms_Norm", "RMSNorm", True),
        ("Sofplus", "Softplus", True),
        ("Sotfplus", "Softplus", True),
        ("SiLU", "SiLU", False),
        ("Add", "AddN", False),
        ("Conv1D", "Conv2D", False),
        ("MatMulV2", "MatMul", False),
        ("FlashAttention", "FlashAttentionGrad", False),
        ("MaxPool", "AveragePool", False),
    ],
)
def test_slips_and_other_names(name, intended, is_slip):
    assert is_misspelled(name, intended) is is_slip


def test_functions_are_few():
    methods = ["MeetRequirements", "Patterns", "Replacement"]
    assert nearest_functions("meet_requirement", methods) == ["MeetRequirements"]
    assert nearest_functions("Requirements", methods) == ["MeetRequirements"]
    assert nearest_functions("Helper", methods) == []


def test_counts():
    assert (counted(1, "file"), counted(0, "pass", "passes")) == ("1 file", "0 passes")
