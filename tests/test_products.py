from __future__ import annotations

import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import gehost
from gehost.host.importers import ImporterRegistry
from gehost.products import how_to_get, reader_of

ROOT = Path(__file__).parents[1]


@pytest.mark.parametrize(
    ("command", "product"),
    [("linalg", "linalg"), ("kernels", "linalg"), ("hlo", "hlo"), ("shard", "sharding")],
)
def test_a_command_whose_product_is_missing_says_how_to_get_it(
    tmp_path: Path, command: str, product: str
) -> None:
    """In a process that finds gehost alone."""
    advice = f"it is in gehost-{product}: in a clone, `pip install ./plugins/{product}`"
    code = (
        "import sys; from importlib import metadata; metadata.entry_points = lambda **_: ();"
        "from gehost.cli import run; sys.exit(run(sys.argv[1:]))"
    )
    process = subprocess.run(
        [sys.executable, "-c", code, command, "m.onnx"],
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(Path(gehost.__file__).parents[1])},
    )
    line = f"gehost: No such command '{command}'; {advice}. See `gehost --help`.\n"
    assert (process.returncode, process.stderr) == (2, line)


@pytest.mark.parametrize("suffix", [".hlo", ".hlo.txt"])
def test_a_file_whose_reader_is_missing_says_how_to_get_it(tmp_path: Path, suffix: str) -> None:
    file = tmp_path / f"m{suffix}"
    file.write_text("HloModule m")
    with pytest.raises(gehost.ModelError, match="no installed plugin reads") as caught:
        ImporterRegistry().load(str(file))
    assert "`pip install ./plugins/hlo`" in str(caught.value)


def test_other_names_have_no_product() -> None:
    assert how_to_get("compil") == ""
    assert reader_of("m.onnx") == reader_of("hlo") == ""


def test_every_product_is_here_with_all_that_it_adds() -> None:
    from gehost.cli import _with_plugin_commands, cli

    for project in ROOT.glob("plugins/*/pyproject.toml"):
        name = tomllib.loads(project.read_text(encoding="utf-8"))["project"]["name"]
        assert name.removeprefix("gehost-") == project.parent.name
    own = {"attention"}  # of gehost_semantic, in gehost's own distribution
    added = _with_plugin_commands().commands.keys() - cli.commands.keys() - own
    products = {how_to_get(command).partition(":")[0] for command in added}
    assert products == {
        f"it is in gehost-{file.parent.name}" for file in ROOT.glob("plugins/*/pyproject.toml")
    }
