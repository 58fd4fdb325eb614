"""The command line as a process: what it imports, how it ends, what it leaves."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import gehost

COMPILE = ("compile", "m.onnx", "-o", "out.onnx")
TWO_HOSTS = """
from gehost import Host, HostOptions
host = Host(HostOptions(vendors=["vendors"]), own_process=True)
Host(own_process=True)
"""
pytestmark = pytest.mark.usefixtures("here")


def process(*arguments: str, **environ: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "gehost", *arguments],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, **environ},
    )


@pytest.fixture
def installed(tmp_path: Path) -> dict[str, str]:
    """An environment in which the Netron plugin is installed, and no product."""
    for name in ("gehost", "gehost_linalg", "gehost_hlo", "gehost_sharding", "gehost_zoo"):
        info = tmp_path / "site" / f"{name}-1.0.dist-info"
        info.mkdir(parents=True)
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    info = tmp_path / "site" / "gehost-1.0.dist-info"
    (info / "entry_points.txt").write_text("[gehost]\nnetron = gehost_netron\n")
    return {"PYTHONPATH": f"{tmp_path / 'site'}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"}


@pytest.mark.parametrize(
    "arguments", [["--help"], ["compile", "--help"], ["--version"], ["nonsense"]]
)
def test_help_imports_nothing_heavy_with_plugins_installed(
    arguments: list[str], installed: dict[str, str]
) -> None:
    code = f"""
import sys
from gehost.cli import run
run({arguments!r})
heavy = {{"onnx", "numpy", "networkx", "rich", "google.protobuf", "ml_dtypes", "onnxruntime"}} & set(sys.modules)
assert "gehost_netron" in sys.modules
sys.exit(f"imported: {{heavy}}" if heavy else 0)
"""
    process = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, **installed},
    )
    assert process.returncode == 0, process.stderr


def test_a_compile_imports_nothing_that_it_does_not_need(
    installed: dict[str, str], vendors: Any
) -> None:
    lines = "drr = gehost_drr\nnetron = gehost_netron\nregister_pass = gehost_register_pass\n"
    site = Path(installed["PYTHONPATH"].split(os.pathsep)[0])
    (site / "gehost-1.0.dist-info" / "entry_points.txt").write_text(f"[gehost]\n{lines}")
    vendors.write("acme/a.py", vendors.swap("Turn", "Relu", "Abs"))
    code = f"""
import sys
import numpy, onnx
there = set(sys.modules)
from gehost.cli import run
assert run({COMPILE!r}) == 0
assert {{"gehost_drr", "gehost_netron", "gehost_register_pass"}} <= set(sys.modules)
unused_styles = {{"gehost_drr.rule", "gehost_drr.passes", "gehost_register_pass.register"}}
needless = {{"hashlib", "networkx", "jinja2", "rich", "secrets", "onnxruntime", *unused_styles}} & (set(sys.modules) - there)
sys.exit(f"imported: {{needless}}" if needless else 0)
"""
    process = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, **installed},
    )
    assert process.returncode == 0, process.stderr


@pytest.mark.parametrize(
    ("argument", "there"), [({}, "16"), ({"OPENBLAS_THREAD_TIMEOUT": "20"}, "20")]
)
def test_threads_that_numpy_starts_are_told_to_sleep_unless_they_were_told_something(
    argument: dict[str, str], there: str
) -> None:
    code = f"""
import os, sys
def at_import(event, arguments):
    if event == "import" and arguments[0] == "numpy":
        print("numpy", os.environ.get("OPENBLAS_THREAD_TIMEOUT"))
sys.addaudithook(at_import)
from gehost.cli import main
sys.argv[1:] = {COMPILE!r}
main()
"""
    environ = {
        name: value for name, value in os.environ.items() if name != "OPENBLAS_THREAD_TIMEOUT"
    }
    process = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=False,
        env={**environ, **argument},
    )
    assert process.returncode == 0, process.stderr
    assert {line for line in process.stdout.splitlines() if line.startswith("numpy")} == {
        f"numpy {there}"
    }


def test_help_and_version_say_what_there_is() -> None:
    result = process("--help")
    assert result.returncode == 0
    assert all(f"\n  {name} " in result.stdout for name in ("compile", "passes", "verify", "new"))
    assert "Exit codes: 0 done" in result.stdout
    from gehost.ir import graph

    code = ", machine code" if not str(graph.__file__).endswith(".py") else ""
    assert process("--version").stdout.strip() == f"gehost, version {gehost.__version__}{code}"


def test_a_process_ends_as_run_says(installed: dict[str, str], vendors: Any) -> None:
    vendors.write("acme/a.py", "print('a vendor prints')\n", vendors.swap("Turn", "Relu", "Abs"))
    result = process(*COMPILE, **installed)
    assert (result.returncode, result.stderr) == (0, "a vendor prints\n")
    assert json.loads(process("passes", "--json", **installed).stdout)[0]["name"] == "Turn"
    result = process(*COMPILE, "--disable", "x", **installed)
    assert (result.returncode, result.stdout, result.stderr.count("\n")) == (2, "", 2)
    Path("vendors/acme/custom_fusion_passes/b.py").write_text("1 / 0")
    result = process(*COMPILE, **installed)
    assert (result.returncode, result.stdout, result.stderr.count("\n")) == (4, "", 2)


@pytest.mark.parametrize("command", [["passes", "--json"], COMPILE])
def test_a_reader_that_went_away_is_no_error(command: list[str]) -> None:
    """141, as of commands that SIGPIPE ends; 1 would mean an internal error."""
    reading, writing = os.pipe()
    os.close(reading)
    process = subprocess.run(
        [sys.executable, "-m", "gehost", *command],
        stdout=writing,
        stderr=subprocess.PIPE,
        text=True,
        check=False,
    )
    os.close(writing)
    assert process.returncode == 141
    assert process.stderr.replace("gehost: no vendors given: using gehost:onnx\n", "") == ""


@pytest.mark.parametrize("command", [["-m", "gehost", *COMPILE], ["-c", TWO_HOSTS]])
def test_text_in_files_that_a_vendor_file_left_open_is_written(
    vendors: Any, command: list[str]
) -> None:
    left_open = """
import gc
class Ring: pass
ring = Ring()
ring.itself, ring.file = ring, open("ring.txt", "w")
ring.file.write(f"{gc.get_freeze_count() > 1000}")
"""
    vendors.write("acme/a.py", vendors.swap("Turn", "Relu", "Abs") + left_open)
    process = subprocess.run(
        [sys.executable, *command], capture_output=True, text=True, check=False
    )
    assert process.returncode == 0, process.stderr
    assert (
        Path("ring.txt").read_text() == "True"
    )  # and what was imported before it is kept from the collector
