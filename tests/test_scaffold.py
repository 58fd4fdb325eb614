"""``gehost new``: what it writes works as it stands."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from gehost import Host, HostOptions, OutputError, UsageError
from gehost.scaffold import write_pass


def test_a_new_pass_loads_and_its_test_passes(tmp_path: Path) -> None:
    root = tmp_path / "vendors"
    written = write_pass("acme/fuse_matmul_add", str(root))
    assert written == [
        root / "acme/custom_fusion_passes/fuse_matmul_add.py",
        root / "acme/tests/test_fuse_matmul_add.py",
    ]
    (spec,) = Host(HostOptions(vendors=[root], plugins=False)).passes
    assert (spec.name, spec.vendor, spec.stage.name) == (
        "FuseMatmulAddPass",
        "acme",
        "kAfterInferShape",
    )
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        "-W",
        "error",
        str(written[1]),
    ]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "4 passed" in done.stdout


def test_two_passes_of_two_vendors_load_together(tmp_path: Path) -> None:
    for name in ("acme/one", "acme/two_pass", "zeta/three"):
        write_pass(name, str(tmp_path))
    assert Host(HostOptions(vendors=[tmp_path], plugins=False)).passes.names() == [
        "OnePass",
        "TwoPass",
        "ThreePass",
    ]


@pytest.mark.parametrize(
    "name",
    [
        "",
        "acme",
        "acme/",
        "/x",
        "acme/x/y",
        "Acme/x",
        "acme/X",
        "acme/1x",
        "acme/_x",
        "acme/x-y",
        "../x",
        "acme/..",
        "acme/class",
        "in/x",
        "acme/x\n",
        "a b/x",
    ],
)
def test_a_name_that_makes_no_module_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(UsageError, match="wanted VENDOR/PASS in lower case"):
        write_pass(name, str(tmp_path))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("existing", ["acme/custom_fusion_passes/x.py", "acme/tests/test_x.py"])
def test_nothing_is_overwritten_and_nothing_half_written(tmp_path: Path, existing: str) -> None:
    path = tmp_path / existing
    path.parent.mkdir(parents=True)
    path.write_text("mine")
    with pytest.raises(UsageError, match=f"{existing}: exists already; choose another name"):
        write_pass("acme/x", str(tmp_path))
    assert [found for found in tmp_path.rglob("*") if found.is_file()] == [path]
    assert path.read_text() == "mine"


def test_a_place_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "acme").write_text("in the way")
    with pytest.raises(OutputError, match="cannot make the directory"):
        write_pass("acme/x", str(tmp_path))
