"""``gehost new --style ge`` writes a first pass that loads, and its test passes."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from gehost import UsageError
from gehost.scaffold.write import write_pass, write_pass_from


def test_a_first_pass_and_its_test(tmp_path: Path) -> None:
    code, test = write_pass("acme/first", str(tmp_path / "vendors"), "ge")
    assert "from ge.passes import" in code.read_text()
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-W", "error", test]
    process = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, check=False)
    assert process.returncode == 0, process.stdout + process.stderr
    assert "4 passed" in process.stdout


def test_styles_say_what_they_write(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="style drr takes its pattern from a model; give --from"):
        write_pass("acme/first", str(tmp_path), "drr")
    with pytest.raises(UsageError, match="style ge writes a first pass; leave --from and --nodes"):
        write_pass_from("acme/first", str(tmp_path), "m.onnx", ["a"], "ge", "kAfterInferShape")
    with pytest.raises(UsageError, match="there is no style gee; did you mean ge"):
        write_pass("acme/first", str(tmp_path), "gee")
