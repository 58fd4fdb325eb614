"""ONNX Runtime's telemetry stays off in every command, unless the user turns it on."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

MODEL = Path(__file__).parents[1] / "models" / "vit.ts13.onnx"


@pytest.mark.parametrize("command", [["verify", MODEL, MODEL], ["help", "verify"]])
def test_a_command_leaves_no_file_behind(command: list[object], tmp_path: Path) -> None:
    for name in ("home", "tmp"):
        (tmp_path / name).mkdir()
    retained = {key: text for key, text in os.environ.items() if key != "ORT_DISABLE_TELEMETRY"}
    env = {**retained, "HOME": str(tmp_path / "home"), "TMPDIR": str(tmp_path / "tmp")}
    env.pop("XDG_CACHE_HOME", None)
    words = [sys.executable, "-m", "gehost", *map(str, command)]
    result = subprocess.run(words, env=env, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


@pytest.mark.parametrize(("inputs", "expected"), [(None, "1"), ("0", "0")])
def test_the_users_choice_wins(inputs: str | None, expected: str) -> None:
    env = {key: text for key, text in os.environ.items() if key != "ORT_DISABLE_TELEMETRY"}
    if inputs is not None:
        env["ORT_DISABLE_TELEMETRY"] = inputs
    code = (
        "import os; from gehost.verify import onnx_runtime; onnx_runtime();"
        "print(os.environ['ORT_DISABLE_TELEMETRY'])"
    )
    words = [sys.executable, "-c", code]
    result = subprocess.run(words, env=env, capture_output=True, text=True, check=True)
    assert result.stdout.strip() == expected
