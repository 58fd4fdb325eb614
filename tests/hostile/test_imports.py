"""Modules in the current directory: neither gehost nor a process that it starts imports them."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from gehost.testing import parse

PACKAGES = ("click", "distributed", "google", "mpi4py", "msgspec", "networkx", "numpy", "onnx",
            "onnxruntime", "pebble", "pluggy", "psutil", "rich", "ziglang")  # fmt: skip
NAMES = sorted({*sys.stdlib_module_names, *PACKAGES, "gehost", "gehost_sharding", "gehost_zoo"})
"""Whatever Python or gehost may import."""


@pytest.fixture
def plant(here: Path) -> Any:
    """Write modules that leave a file where they are imported."""

    def plant(names: Sequence[str]) -> None:
        for name in names:
            Path(f"{name}.py").write_text(
                f"open({str(here / 'imported')!r}, 'a').write({name!r} + '\\n')\n"
            )

    return plant


def imported() -> list[str]:
    return Path("imported").read_text().split() if Path("imported").exists() else []


def process(*command: str) -> subprocess.CompletedProcess[str]:
    environ = {name: value for name, value in os.environ.items() if name != "PYTHONSAFEPATH"}
    return subprocess.run(command, capture_output=True, text=True, check=False, env=environ)


SCRIPT = str(Path(sys.executable).parent / "gehost")
COMPILE = "compile m.onnx -o out.onnx --verify"


def gehost(line: str) -> subprocess.CompletedProcess[str]:
    return process(SCRIPT, *line.split(" "))


def test_the_command(plant: Any) -> None:
    plant(NAMES)
    result = gehost(COMPILE)
    assert (result.returncode, imported()) == (0, []), result.stderr


def test_python_with_the_module(plant: Any) -> None:
    """Python itself reads some modules of its library before the first line of gehost runs."""
    plant(PACKAGES)
    result = process(sys.executable, "-m", "gehost", *COMPILE.split(" "))
    assert (result.returncode, imported()) == (0, []), result.stderr


def test_workers_of_a_zoo(plant: Any) -> None:
    pytest.importorskip("pebble")
    pytest.importorskip("distributed")
    os.mkdir("models")
    shutil.copy("m.onnx", "models")
    plant(NAMES)
    result = gehost("zoo models -o out --jobs 1 --verify")
    assert (result.returncode, imported()) == (0, []), result.stderr


def test_ranks_of_a_split_model(plant: Any) -> None:
    pytest.importorskip("mpi4py")
    text = """<ir_version: 8, opset_import: ["" : 17]>
    g (float[4, 8] x, float[8, 8] w) => (float[4, 8] y) { y = MatMul(x, w) }"""
    onnx.save(parse(text), "mm.onnx")
    assert gehost("shard plan mm.onnx --mesh d=2 -o plan.onnx").returncode == 0
    assert gehost("shard split plan.onnx -o split").returncode == 0
    np.savez("feeds.npz", x=np.ones((4, 8), np.float32), w=np.ones((8, 8), np.float32))
    plant(NAMES)
    result = gehost("shard run split --feeds feeds.npz")
    assert (result.returncode, imported()) == (0, []), result.stderr


def test_the_compiler_of_a_package(plant: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    building: Any = pytest.importorskip("gehost_linalg.kernels.build")
    monkeypatch.delenv("CC", raising=False)
    monkeypatch.setenv("PATH", "")
    monkeypatch.setattr(building, "find_spec", str)
    plant(NAMES)
    process(*building.compiler(None), "--version")
    assert imported() == []
