"""What ``python -m tests.validity`` looks for, on small models: it holds, and each fault is seen."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from gehost.testing import parse
from tests.validity import failures, ways

ROOT = Path(__file__).parents[1]
MODEL = """<ir_version: 9, opset_import: ["" : 18]>
g (float[2, 3] x) => (float[3, 2] y) <float[3, 2] t> { t = Transpose<perm = [1, 0]>(x) y = Exp(t) }"""


@pytest.mark.parametrize("name", ["bert.ts17", "llama.ts17", "convnet.ts17", "local_function"])
@pytest.mark.parametrize("way", list(ways()))
def test_it_holds(name: str, way: str, tmp_path: Path) -> None:
    assert not list(failures(ROOT / "tests/models" / f"{name}.onnx", ways()[way], tmp_path))


def _failures(edit: Callable[[str], str], tmp_path: Path) -> list[str]:
    """Return the failures of a way that writes the model with its text edited."""
    (model := tmp_path / "model.onnx").write_bytes(parse(MODEL).SerializeToString())

    def way(_source: Path, output: Path, _opset: int | None) -> None:
        output.write_bytes(parse(edit(MODEL)).SerializeToString())

    return list(failures(model, way, tmp_path))


def test_an_equal_output_holds(tmp_path: Path) -> None:
    assert not _failures(lambda text: text, tmp_path)


def test_a_stale_type(tmp_path: Path) -> None:
    lines = _failures(lambda text: text.replace("float[3, 2] t", "float[2, 3] t"), tmp_path)
    for reader in ("full check", "strict inference", "strict load, ORT_DISABLE_ALL"):
        for times in ("once", "twice"):
            assert any(line.startswith(f"{times} compiled, {reader}: ") for line in lines), lines


def test_other_numbers(tmp_path: Path) -> None:
    (line,) = _failures(lambda text: text.replace("Exp(t)", "Neg(t)"), tmp_path)
    assert line.startswith("differ: y")


def test_another_second_compile(tmp_path: Path) -> None:
    versions = iter(["9", "10"])
    assert _failures(
        lambda text: text.replace("ir_version: 9", f"ir_version: {next(versions)}"), tmp_path
    ) == ["a second compile gives other bytes"]
