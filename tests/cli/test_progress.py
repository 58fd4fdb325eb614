"""The bar for those who watch a compile."""

from __future__ import annotations

import sys
import time
from typing import Any

import pytest

from gehost.cli import progress
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


@pytest.mark.parametrize(("terminal", "patience"), [(True, 30.0), (False, 0.05)])
def test_progress_is_silent_for_short_work_and_for_pipes(
    compile_slowly: Any, terminal: bool, patience: float
) -> None:
    assert compile_slowly(terminal=terminal, patience=patience) == ("", "")
