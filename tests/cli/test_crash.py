"""A model on which ONNX Runtime ends the process gives one line and an exit code."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import onnx
import pytest

from gehost.cli.crash import runs_models
from gehost.testing import parse

pytest.importorskip("onnxruntime")

BATCH_NORMALIZATION = """<ir_version: 8, opset_import: ["" : 7]>
g (float[n, 3, 4, 4] x, float[3] s, float[3] b, float[3] m, float[3] v) => (float[n, 3, 4, 4] y) {
    y = BatchNormalization (x, s, b, m, v)
}"""


def crashing() -> onnx.ModelProto:
    """BatchNormalization-7 with five output slots, of which four are empty."""
    model = parse(BATCH_NORMALIZATION)
    model.graph.node[0].output.extend([""] * 4)
    return model


@pytest.mark.parametrize("command", ["verify", "compile"])
def test_a_crash_on_the_original_is_one_line(command: str, tmp_path: Path) -> None:
    onnx.save(crashing(), tmp_path / "m.onnx")
    arguments = {
        "verify": ["verify", "m.onnx", "m.onnx"],
        "compile": ["compile", "m.onnx", "-o", "out.onnx", "--verify"],
    }[command]
    process = subprocess.run(
        [sys.executable, "-m", "gehost", *arguments],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    line = "gehost: ONNX Runtime ended the process (SIGSEGV) while it ran m.onnx"
    if process.returncode == 0:
        pytest.skip("this version of ONNX Runtime runs the model")
    assert (process.returncode, process.stderr.splitlines()[-1]) == (3, line)
    assert not (tmp_path / "out.onnx").exists()


@pytest.mark.parametrize(
    ("number", "role", "code", "line"),
    [
        (signal.SIGSEGV, "original", 3, "ONNX Runtime ended the process (SIGSEGV) while it ran m"),
        (signal.SIGABRT, "result", 6, "ONNX Runtime ended the process (SIGABRT) while it ran m"),
        (signal.SIGKILL, "original", 2, "was killed while it ran m; if nobody did, there was not"),
        (signal.SIGSEGV, "inference", 1, "ONNX's shape inference ended the process (SIGSEGV) on m"),
        (signal.SIGTERM, "original", 143, "terminated"),
        (signal.SIGSEGV, "", 1, "internal error: the process ended by SIGSEGV"),
    ],
)
def test_the_signal_and_the_model_decide(
    number: signal.Signals,
    role: str,
    code: int,
    line: str,
) -> None:
    program = f"""
import os, signal, sys
from gehost.cli.crash import run_in_child
from gehost.activity import running
def run():
    if {role!r}:
        with running({role!r}, "m"):
            os.kill(os.getpid(), {int(number)})
            signal.pause()
    os.kill(os.getpid(), {int(number)})
    signal.pause()
sys.exit(run_in_child(run))
"""
    process = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=300, check=False
    )
    assert process.returncode == code
    assert line in process.stderr


def test_a_process_that_has_loaded_onnx_runtime_ends_with_its_own_code() -> None:
    """Its threads do not survive a fork: the child aborted or hung at its end."""
    pytest.importorskip("onnxruntime")
    program = """
import onnxruntime, sys
from gehost.cli.crash import run_in_child
sys.exit(run_in_child(lambda: 7))
"""
    process = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=300, check=False
    )
    assert (process.returncode, process.stderr) == (7, "")


def test_which_commands_run_models() -> None:
    for command in ("verify a b", "--traceback tune m", "compile m -o o --verify", "bisect m"):
        assert runs_models(command.split())
    for command in ("compile m -o o", "show m", "--help", ""):
        assert not runs_models(command.split())
