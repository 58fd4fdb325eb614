"""``--provider`` of each command that compares: here, absent, and there but without kernels.

ONNX Runtime's wheels for the CPU also have ``azure``, which runs no node: all fall back to the CPU.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from gehost.cli import run

GELU = Path(__file__).parents[2] / "vendors" / "onnx" / "custom_fusion_passes" / "gelu.py"
onnxruntime = pytest.importorskip("onnxruntime")
pytestmark = pytest.mark.usefixtures("here")
COMMANDS = {
    "verify": "verify m.onnx m.onnx",
    "compile": "compile m.onnx -o out.onnx --verify",
    "bisect": "bisect m.onnx",
    "check-pass": f"check-pass {GELU} --instances 1 --mutations 4",
    "tune": "tune m.onnx -o switches.json --budget 2s",
    "zoo": "zoo m.onnx -o run --verify --jobs 1",
}


def line(capsys: pytest.CaptureFixture[str], command: str, provider: str) -> tuple[int, str]:
    code = run([*COMMANDS[command].split(), "--provider", provider])
    captured = capsys.readouterr()
    return code, captured.out + captured.err


@pytest.mark.parametrize("command", COMMANDS)
def test_a_provider_that_is_not_installed_is_one_line(
    capsys: pytest.CaptureFixture[str], command: str
) -> None:
    code, message = line(capsys, command, "dml")
    assert code == 2
    assert "provider 'dml': ONNX Runtime" in message
    assert "install the package onnxruntime-directml in place of onnxruntime" in message


@pytest.mark.parametrize("command", COMMANDS)
def test_nodes_that_fall_back_to_the_cpu_are_named(
    capsys: pytest.CaptureFixture[str], command: str
) -> None:
    if "AzureExecutionProvider" not in onnxruntime.get_available_providers():
        pytest.skip("this build of ONNX Runtime has no azure")
    code, message = line(capsys, command, "azure")
    assert code == 0, message
    message += Path("run/zoo.jsonl").read_text(encoding="utf-8") if command == "zoo" else ""
    fallback = ", also on azure, which left " if command == "check-pass" else "on azure: 0 of "
    assert fallback in message
    assert ("Erf" if command == "check-pass" else "Relu") in message
