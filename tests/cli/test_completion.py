"""Shell completion of passes, stages, styles and vendors; help texts that are not cut."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import click
import pytest
from click.shell_completion import ShellComplete

from gehost import Host, PassError
from gehost.cli import _with_plugin_commands, cli, run


def completed(*words: str) -> list[str]:
    *arguments, incomplete = words
    actual = ShellComplete(cli, {}, "gehost", "_GEHOST_COMPLETE").get_completions(
        list(arguments), incomplete
    )
    return [item.value for item in actual if item.type == "plain"]


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


@pytest.mark.parametrize("error", [ZeroDivisionError, PassError, UnicodeError])
def test_a_vendor_or_plugin_that_fails_prints_nothing_into_the_shell(
    error: type[Exception], monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    def fail(*_: Any) -> Any:
        print("printed by the vendor", file=sys.stderr)
        os.system("echo printed by its child")
        raise error("broken")

    monkeypatch.setattr(Host, "__init__", fail)
    monkeypatch.setattr("gehost.scaffold.styles.installed_styles", fail)
    monkeypatch.setattr("gehost.shipped.shipped_vendors", fail)
    assert completed("compile", "--only", "") == []
    assert completed("new", "--style", "") == []
    assert completed("compile", "--vendors", "gehost:") == []
    assert capfd.readouterr() == ("", "")


def test_stages_styles_and_vendors() -> None:
    assert completed("show", "--stage", "kAfterI") == ["kAfterInferShape"]
    assert completed("new", "--stage", "kB") == ["kBeforeInferShape"]
    assert set(completed("new", "--style", "")) == {"class", "decompose", "drr", "ge", "traced"}
    assert completed("compile", "--vendors", "gehost:onnxr") == ["gehost:onnxruntime"]


def test_a_deprecated_command_is_marked_once(capsys: pytest.CaptureFixture[str]) -> None:
    result = click.Command("old", help="Do the old thing.", deprecated=True)
    cli.add_command(result)
    try:
        for _ in range(2):  # the commands are shared by all calls in a process
            assert run(["--help"]) == 0
            assert capsys.readouterr().out.count("(DEPRECATED)") == 1
    finally:
        del cli.commands["old"]


def test_no_summary_of_a_command_is_cut() -> None:
    waiting: list[click.Group] = [_with_plugin_commands()]
    for group in waiting:  # grows while it is walked
        with click.Context(group, terminal_width=80, max_content_width=80) as context:
            assert "..." not in group.get_help(context).partition("Commands:")[2]
        waiting.extend(item for item in group.commands.values() if isinstance(item, click.Group))
    assert len(waiting) > 2
