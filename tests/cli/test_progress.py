"""The bar for those who watch a compile."""

from __future__ import annotations

import sys
import time
from itertools import pairwise
from pathlib import Path
from typing import Any

import onnx
import pytest
import rich.progress

from gehost.cli import progress, run
from gehost.testing import parse

ONE = (
    """<ir_version: 8, opset_import: ["" : 17]> main (float[2] x) => (float[2] y) { y = Relu(x) }"""
)


@pytest.fixture
def compile_slowly(
    vendors: Any, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Any:
    vendors.write(
        "acme/a.py",
        "import time\n",
        vendors.swap("SlowPass", "Relu", "Abs", meet="time.sleep(0.4); return True"),
    )

    def run(terminal: bool, patience: float) -> tuple[str, str]:
        monkeypatch.setattr(progress, "_PATIENCE", patience)
        for name in ("TTY_COMPATIBLE", "TTY_INTERACTIVE"):
            monkeypatch.delenv(name, raising=False)
        monkeypatch.setenv("FORCE_COLOR", "1")
        monkeypatch.setattr(sys.stderr, "isatty", lambda: terminal)
        bar = progress.Progress()
        host = vendors.host(plugins=[("progress", bar)])
        with bar.showing(len(host.passes)):
            host.run(parse(ONE))
        time.sleep(0.05)
        return capsys.readouterr()

    return run


def test_progress_names_the_pass_at_work_on_a_terminal_after_a_while(compile_slowly: Any) -> None:
    out, err = compile_slowly(terminal=True, patience=0.05)
    assert out == ""
    assert "SlowPass" in err
    assert "0/1" in err
    assert "left:" in err


@pytest.mark.parametrize(("terminal", "patience"), [(True, 30.0), (False, 0.05)])
def test_progress_is_silent_for_short_work_and_for_pipes(
    compile_slowly: Any, terminal: bool, patience: float
) -> None:
    assert compile_slowly(terminal=terminal, patience=patience) == ("", "")


def test_progress_counts_the_matches_within_a_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    bar, calls = progress.Progress(), list[str]()
    monkeypatch.setattr(bar, "update", lambda what, *_: calls.append(what))
    bar._pass = "Slow"
    for number in range(96):
        bar.gehost_match_refused() if number % 3 else bar.gehost_after_rewrite()
    assert calls == [
        "Slow: 11 replaced, 21 refused",
        "Slow: 22 replaced, 42 refused",
        "Slow: 32 replaced, 64 refused",
    ]


@pytest.mark.parametrize(
    "words",
    [
        ["verify", "a.onnx", "b.onnx"],
        ["explain", "a.onnx", "--pass", "SlowPass"],
        ["show", "a.onnx"],
        ["check-pass", "vendors/acme/custom_fusion_passes/a.py"],
        ["passes"],
    ],
)
def test_each_command_shows_progress_on_a_terminal(
    words: list[str],
    vendors: Any,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    """With no patience, so that the bar starts at once."""
    vendors.write("acme/a.py", vendors.swap("SlowPass", "Relu", "Abs"))
    monkeypatch.chdir(tmp_path)
    for name in ("a.onnx", "b.onnx"):
        onnx.save(parse(ONE), name)
    shown: list[str] = []
    monkeypatch.setattr(progress, "_PATIENCE", 0.0)
    monkeypatch.setattr(progress, "is_terminal", lambda _: True)
    start = rich.progress.Progress.start
    monkeypatch.setattr(
        rich.progress.Progress,
        "start",
        lambda bar: (shown.append(bar.tasks[0].description), start(bar)),
    )
    run(words)
    capsys.readouterr()
    assert shown


def test_a_bisection_knows_how_many_runs_are_left(
    vendors: Any,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    vendors.write("acme/a.py", vendors.swap("WrongPass", "Relu", "Abs"))
    monkeypatch.chdir(tmp_path)
    names = ["x", *"abcdefgh"]
    chain = "".join(f" {output} = Relu ({read})" for read, output in pairwise(names))
    model = ONE.replace("{ y = Relu(x) }", f"{{{chain} y = Relu (h) }}")
    onnx.save(parse(model), "a.onnx")
    calls: list[tuple[int, int]] = []

    def update(_: progress.Progress, what: str, result: int, total: int) -> None:
        calls.append((result, total))

    monkeypatch.setattr(progress.Progress, "update", update)
    assert run(["bisect", "a.onnx"]) == 6
    capsys.readouterr()
    assert calls == [(1, 5), (2, 5), (3, 5), (4, 5)]  # five at most
