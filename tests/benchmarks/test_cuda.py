"""``tools/benchmarks/cuda.py --small``: tiny models on the CPU show that the script works."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "tools" / "benchmarks" / "cuda.py"
NEEDED = ("onnxruntime", "onnxscript", "torch", "transformers")


def test_help_names_the_options() -> None:
    run = subprocess.run(
        [sys.executable, str(SCRIPT), "--help"], capture_output=True, text=True, check=True
    )
    for option in ("--ort", "--graphs", "--only", "--columns", "--json", "--small"):
        assert option in run.stdout


@pytest.mark.nightly
@pytest.mark.skipif(
    not all(importlib.util.find_spec(name) for name in NEEDED), reason=f"needs {NEEDED}"
)
def test_small_models_on_the_cpu_give_a_table(tmp_path: Path) -> None:
    """Each row has the columns that a CPU can measure, of equal numbers."""
    command = [sys.executable, str(SCRIPT), "--small", "--seconds", "0.2"]
    places = ["--work", str(tmp_path), "--json", str(tmp_path / "rows.json")]
    run = subprocess.run(
        [*command, *places],
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    rows = json.loads((tmp_path / "rows.json").read_text())
    assert len(rows) == 4
    for row in rows:
        assert row["gehost"]["diff"] < 0.01, row
        assert {"ENABLE_ALL", "ort_fusions"} <= set(row), row
    assert "| one token 2 × past 16 |" in run.stdout
    profile = [sys.executable, str(SCRIPT.with_name("cuda_profile.py")), "--small", "--all"]
    profile += ["--work", str(tmp_path), "--rows", str(tmp_path / "rows.json")]
    run = subprocess.run(profile, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    assert "4 of 4 rows profiled" in run.stdout
    assert "one token 2 × past 16 gehost" in run.stdout
