"""The command that measures the README's figures gives a row for each group."""

from __future__ import annotations

import re
from pathlib import Path

import onnx
import pytest

from . import figures
from .figures import GROUPS, HEADS, group_model, rows


@pytest.mark.parametrize("name", GROUPS)
def test_each_group_is_a_model(name: str, tmp_path: Path) -> None:
    path, feeds = group_model(name, tmp_path)
    model = onnx.load(path)
    onnx.checker.check_model(model, full_check=True)
    assert {value.name for value in model.graph.input} == set(feeds)


def test_without_a_name_all_tables_are_printed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(figures, "HEADS", {name: HEADS[name] for name in ("groups", "wide")})
    figures.main(["--only", "no row"])
    printed = capsys.readouterr().out
    assert HEADS["groups"] in printed
    assert HEADS["wide"] in printed
    with pytest.raises(SystemExit):
        figures.main(["group"])
    assert "no table group: there are groups, wide" in capsys.readouterr().err


def test_a_group_is_compared_and_measured() -> None:
    ((name, cells),) = rows("groups", "heads", 0.0, "native")
    assert name == "bias + heads + Transpose"
    assert re.fullmatch(r"\d+\.\d{3} \(\d+\.\d{3} to \d+\.\d{3}\)", cells[0])
    assert cells[2] == "8"
