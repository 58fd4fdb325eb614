"""Shell completion of passes, stages, styles and vendors; help texts that are not cut."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click
import pytest
from click.shell_completion import ShellComplete

from gehost.cli import _with_plugin_commands, cli


def completed(*words: str) -> list[str]:
    *arguments, incomplete = words
    found = ShellComplete(cli, {}, "gehost", "_GEHOST_COMPLETE").get_completions(
        list(arguments), incomplete
    )
    return [item.value for item in found if item.type == "plain"]


@pytest.fixture
def acme(vendors: Any, monkeypatch: pytest.MonkeyPatch) -> Path:
    vendors.write(
        "acme/a.py",
        vendors.swap("FirstPass", "Relu", "Abs"),
        vendors.swap("SecondPass", "Exp", "Abs"),
    )
    monkeypatch.chdir(vendors.root.parent)
    return vendors.root


@pytest.mark.usefixtures("acme")
@pytest.mark.parametrize(
    "words",
    [
        ("explain", "m.onnx", "--pass"),
        ("compile", "m.onnx", "--only"),
        ("compile", "m.onnx", "--enable"),
        ("bisect", "m.onnx", "--disable"),
        ("check-pass", "vendors", "--pass"),
    ],
)
def test_names_of_passes(words: tuple[str, ...]) -> None:
    assert completed(*words, "fir") == ["FirstPass"]
    assert {"FirstPass", "SecondPass"} <= set(completed(*words, ""))


def test_passes_are_those_of_the_vendors_on_the_line(acme: Path, tmp_path: Path) -> None:
    empty = tmp_path / "empty"
    empty.mkdir()
    assert "FirstPass" not in completed("compile", "--vendors", str(empty), "--only", "")
    assert "FirstPass" in completed("compile", "--vendors", str(acme), "--only", "")
    assert completed("compile", "--vendors", str(tmp_path / "none"), "--only", "") == []


def test_stages_styles_and_vendors() -> None:
    assert completed("show", "--stage", "kAfterI") == ["kAfterInferShape"]
    assert completed("new", "--stage", "kB") == ["kBeforeInferShape"]
    assert set(completed("new", "--style", "")) == {"class", "decompose", "drr", "traced"}
    assert completed("compile", "--vendors", "gehost:onnxr") == ["gehost:onnxruntime"]


def test_no_summary_of_a_command_is_cut() -> None:
    waiting: list[click.Group] = [_with_plugin_commands()]
    for group in waiting:  # grows while it is walked
        with click.Context(group, terminal_width=80, max_content_width=80) as context:
            assert "..." not in group.get_help(context).partition("Commands:")[2]
        waiting.extend(each for each in group.commands.values() if isinstance(each, click.Group))
    assert len(waiting) > 2
