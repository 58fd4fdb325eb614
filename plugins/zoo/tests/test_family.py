"""One switch file for a family of models."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from gehost import Host, HostOptions, tune
from gehost.cli import run
from gehost.tune.run import Trial

pytest.importorskip("pebble")

from gehost_zoo.family import choose, family_file


def tuning(model: str, whole: str = "keep", **verdicts: str) -> tune.Tuning:
    trials = [Trial("level extended", "keep")]
    trials += [Trial(kind, verdict, (f"{kind}Pass",)) for kind, verdict in verdicts.items()]
    passes = {f"{kind}Pass": verdict == "keep" for kind, verdict in verdicts.items()}
    return tune.Tuning(model, 1, {}, trials=trials, whole=Trial("whole", whole), passes=passes)


def test_a_kind_is_on_where_it_pays_on_one_and_costs_none() -> None:
    tunings = {
        "a": tuning("a", Pays="keep", Mixed="keep", Broken="keep", Quiet="noise", Alone="noise"),
        "b": tuning("b", Pays="noise", Mixed="drop", Broken="failed", Quiet="same", Alone="same"),
        "c": tuning("c", "noise", Pays="same", Alone="keep"),  # not in the whole
    }
    choices = choose(tunings)
    assert [choice.kind for choice in choices if choice.on] == ["Pays"]
    assert choices[1].line == "off Mixed: 1 keep, 1 drop; not for b"
    content = json.loads(family_file(tunings, choices))
    assert content["Switch"]["GraphFusion"] == {
        "PaysPass": "on", "MixedPass": "off", "BrokenPass": "off", "QuietPass": "off",
        "AlonePass": "off",
    }  # fmt: skip
    assert content["Evidence"]["kinds"]["Mixed"] == {
        "on": False,
        "models": {"keep": ["a"], "drop": ["b"]},
    }
    assert set(content["Evidence"]["models"]) == {"a", "b", "c"}
    assert "Mixed" in content["Evidence"]["models"]["b"]["kinds"]


def test_the_command_writes_a_file_that_a_host_takes(place: Any) -> None:
    place.model("a.onnx")
    place.model("b.onnx", "kept")
    Path("models/bad.onnx").write_bytes(b"no model")
    # a budget that a busy machine does not use up before the first comparison
    assert run(["tune-zoo", "models", "-o", "s.json", "--budget", "4s"]) == 3
    printed = place.capsys.readouterr()
    assert "failed: models/bad.onnx: " in printed.err
    assert " Treat: " in printed.out
    content = json.loads(Path("s.json").read_text(encoding="utf-8"))
    assert set(content["Evidence"]["models"]) == {"models/a.onnx", "models/b.onnx"}
    Host(HostOptions(vendors=["vendors"], fusion_switch_file="s.json"))


def test_a_budget_is_a_time(place: Any) -> None:
    place.model("a.onnx")
    assert run(["tune-zoo", "models", "-o", "s.json", "--budget", "1h"]) == 2
    assert "budget 1h: wanted seconds or minutes" in place.capsys.readouterr().err
