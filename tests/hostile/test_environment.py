"""Names that the system takes, streams that are closed or full, and odd environments."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import onnx
import pytest

from tests.hostile.conftest import DEFAULT_VENDORS

COMPILE = ("compile", "m.onnx", "-o", "out.onnx")
pytestmark = pytest.mark.usefixtures("here")


def process(*arguments: Any, **options: Any) -> tuple[int, str, str]:
    streams = {
        "stdout": subprocess.PIPE,
        "stderr": subprocess.PIPE,
        "text": True,
        "errors": "replace",
        **options,
    }
    process = subprocess.run(
        [sys.executable, "-m", "gehost", *arguments], check=False, timeout=120, **streams
    )
    err = process.stderr and process.stderr.replace(DEFAULT_VENDORS, "")
    return process.returncode, process.stdout, err


# -- names ----------------------------------------------------------------------------------------------------------

NAMES = [
    "a b",
    "ünïcödé 模型",
    "new\nline",
    "tab\tbell\x07",
    os.fsdecode(b"not \xff utf-8"),
    "-dash",
    "'quote\"s'",
    "[red]x",
    "%s{0}$HOME",
    "~",
    "a;b|c&d",
    "...",
]


@pytest.mark.parametrize("name", NAMES)
def test_any_name_that_the_system_takes(
    gehost_run: Any, vendors: Any, name: str, tmp_path: Path
) -> None:
    os.mkdir(name)
    os.rename("m.onnx", f"{name}/{name}.onnx")
    os.rename(vendors.root, f"{name}/vendors")
    passes = Path(f"{name}/vendors/acme {name}/custom_fusion_passes")
    passes.mkdir(parents=True)
    (passes / f"{name.lstrip('.-')} pass.py").write_text(
        "from gehost import *\n" + vendors.swap("Turn", "Relu", "Abs")
    )
    code, _, err = gehost_run(
        "compile",
        "-o",
        f"{name}/out {name}.onnx",
        "--vendors",
        f"{name}/vendors",
        "--dump",
        f"{name}/dumps",
        "--report",
        f"{name}/r.json",
        "--",
        f"{name}/{name}.onnx",
    )
    assert (code, err) == (0, "")
    assert [node.op_type for node in onnx.load(f"{name}/out {name}.onnx").graph.node] == [
        "Abs",
        "Neg",
    ]
    assert len(os.listdir(f"{name}/dumps")) == 6
    assert gehost_run("verify", "--", f"{name}/{name}.onnx", f"{name}/{name}.onnx")[0] == 0


# -- streams and environments ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "arguments",
    [
        COMPILE,
        ("passes",),
        ("passes", "--json"),
        ("new", "acme/my_pass"),
        ("verify", "m.onnx", "m.onnx"),
    ],
)
def test_standard_output_that_is_full_is_an_error(arguments: tuple[str, ...]) -> None:
    with open("/dev/full", "w") as full:
        code, _, err = process(*arguments, stdout=full)
    assert (code, err) == (2, "gehost: cannot write to standard output: No space left on device\n")


@pytest.mark.parametrize("arguments", [COMPILE, ("passes", "--json")])
def test_a_reader_that_went_away_ends_it_quietly(arguments: tuple[str, ...]) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    code, _, err = process(*arguments, stdout=writing)
    os.close(writing)
    assert (code, err) == (141, "")


@pytest.mark.parametrize("closed", [[0], [1], [2], [0, 1, 2]])
def test_streams_that_are_closed_from_the_start(closed: list[int]) -> None:
    code, _, err = process(*COMPILE, preexec_fn=lambda: [os.close(number) for number in closed])
    assert (code, err) == (0, "")
    assert [node.op_type for node in onnx.load("out.onnx").graph.node] == ["Relu", "Neg"]


@pytest.mark.parametrize(
    "environ",
    [
        {"HOME": None, "TERM": "dumb", "PYTHONIOENCODING": "ascii", "PYTHONHASHSEED": "1"},
        {"HOME": "/nowhere", "USER": None, "TERM": None, "COLUMNS": "1", "PATH": None},
        {"NO_COLOR": "1", "LANG": "C", "LC_ALL": "C", "PYTHONWARNINGS": "error"},
        {"FORCE_COLOR": "1", "PYTHONIOENCODING": "latin-1:strict", "TMPDIR": "/nowhere"},
        {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"},
        {"PYTHONOPTIMIZE": "2"},
    ],
    ids=str,
)
def test_odd_environments_change_nothing(environ: dict[str, str | None], vendors: Any) -> None:
    """Several in one process, but none that hides another: each start takes half a second."""
    code = vendors.swap("Turn", "Relu", "Abs", registration="@REG_FUSION_PASS(name='Türn …')")
    vendors.write("acme/a.py", code)
    changed = {key: value for key, value in {**os.environ, **environ}.items() if value is not None}
    code, out, err = process(*COMPILE, "--vendors", vendors.root, "--dump", "dumps", env=changed)
    assert (code, err) == (0, "")
    assert "out.onnx: 2 nodes before, 2 after" in out
    assert [node.op_type for node in onnx.load("out.onnx").graph.node] == ["Abs", "Neg"]


def test_a_working_directory_that_is_gone_is_told(here: Path) -> None:
    gone = here / "gone"
    gone.mkdir()
    command = f'cd "{gone}" && rmdir "{gone}" && exec "{sys.executable}" -P -m gehost compile ../m.onnx -o ../out.onnx'
    process = subprocess.run(["sh", "-c", command], capture_output=True, text=True, check=False)
    message = "gehost: the working directory cannot be used: No such file or directory; change into another one\n"
    assert (process.returncode, process.stdout, process.stderr) == (2, "", message)


def test_a_working_directory_that_cannot_be_written_to_is_none_of_its_business(here: Path) -> None:
    assert process("compile", here / "m.onnx", "-o", here / "out.onnx", cwd="/proc")[0] == 0
    assert sorted(os.listdir()) == ["m.onnx", "out.onnx"]
