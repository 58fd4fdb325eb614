"""The command line run in-process on hostile input, and what a refusal looks like whatever the cause."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias

import pytest

from gehost.cli import run

Run: TypeAlias = Callable[..., tuple[int, str, str]]
Refused: TypeAlias = Callable[..., str]

NO_VENDORS = (
    "gehost: 0 passes: no vendors given, so only the clean-up runs; name some (--vendors)\n"
)
"""Standard error of a compile without vendors, as most of these are."""
DEFAULT_VENDORS = "gehost: no vendors given: using gehost:onnx\n"
"""Standard error of such a command in a process of its own."""
OLD_OUTPUT = b"what was there before"


@pytest.fixture
def gehost_run(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> Run:
    """``gehost <arguments>``: its exit code, what it printed, and what it said on stderr; native code's output included.

    It runs in ``tmp_path``, where there are no vendors unless a test puts some there.
    """
    monkeypatch.chdir(tmp_path)
    for name in ("GEHOST_VENDORS", "DUMP_GE_GRAPH", "DUMP_GRAPH_PATH"):
        monkeypatch.delenv(name, raising=False)

    def gehost_run(*arguments: str | os.PathLike[str]) -> tuple[int, str, str]:
        capfd.readouterr()
        code = run([os.fspath(argument) for argument in arguments])
        out, err = capfd.readouterr()
        assert "Traceback" not in out + err
        assert "internal error" not in err
        return code, out, err.replace(NO_VENDORS, "")

    return gehost_run


@pytest.fixture
def refused(gehost_run: Run, tmp_path: Path) -> Refused:
    """``refused(code, model, *options)`` compiles over an old output: the one line of an error that changed nothing."""
    directory = tmp_path / "outputs of refused compiles"
    directory.mkdir()
    output = directory / "out.onnx"

    def refused(code: int, model: str | os.PathLike[str], *options: str | os.PathLike[str]) -> str:
        output.write_bytes(OLD_OUTPUT)
        actual, out, err = gehost_run("compile", model, "-o", output, *options)
        assert (actual, out) == (code, ""), err
        (line,) = err.splitlines()
        assert line.startswith("gehost: ")
        assert line.isprintable()
        assert output.read_bytes() == OLD_OUTPUT
        assert [entry.name for entry in directory.iterdir()] == ["out.onnx"]
        return line

    return refused


def without_warnings(err: str) -> str:
    """Standard error without the lines about types, which these models contradict."""
    lines = err.splitlines(keepends=True)
    return "".join(line for line in lines if not line.startswith("gehost: warning: "))
