"""Vendors that installed packages ship: ``gehost:onnx``."""

from __future__ import annotations

import json
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import onnx
import pytest

from gehost import Host, HostOptions, UsageError, VendorError
from gehost.cli import run
from gehost.shipped import DEFAULT_GROUP, shipped_directory, shipped_vendors

MODEL = Path(__file__).parent / "models" / "bert.ts17.onnx"
SHIPPED = ["gehost:ascend", "gehost:onnx", "gehost:onnxruntime", "gehost:openxla", "gehost:paddle"]


@pytest.fixture(autouse=True)
def no_default_vendors() -> None:
    """The default is what these tests are about."""


def test_the_wheel_ships_these_vendors_and_one_is_the_default() -> None:
    assert shipped_vendors() == SHIPPED
    assert shipped_vendors(DEFAULT_GROUP) == ["gehost:onnx"]


def test_a_host_without_options_does_what_the_command_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a folder without vendors: those that installed packages give by default."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("GEHOST_VENDORS", raising=False)
    Host().compile(MODEL, "of_host.onnx")
    assert run(["compile", str(MODEL), "-o", "of_command.onnx"]) == 0
    assert Path("of_host.onnx").read_bytes() == Path("of_command.onnx").read_bytes()
    assert "Gelu" in {node.op_type for node in onnx.load("of_host.onnx").graph.node}


def test_a_shipped_vendor_loads_as_its_directory_does() -> None:
    directory = shipped_directory("gehost:onnx")
    assert directory is not None
    shipped = Host(HostOptions(vendors=["gehost:onnx"], plugins=False)).passes
    assert [spec.vendor for spec in shipped] == ["onnx"] * len(shipped)
    everything = Host(HostOptions(vendors=[directory.parent], plugins=False)).passes
    assert shipped.names() == [spec.name for spec in everything if spec.vendor == "onnx"]
    assert len(shipped) > 3


def test_a_directory_of_such_a_name_is_a_path(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.chdir(tmp_path)
    Path("gehost:onnx").mkdir()
    assert shipped_directory("gehost:onnx") is None
    assert shipped_directory("vendors") is None
    assert shipped_directory(tmp_path / "vendors") is None


def test_a_vendor_that_nobody_ships() -> None:
    with pytest.raises(UsageError, match="gehost:onx: .*; did you mean gehost:onnx?"):
        Host(HostOptions(vendors=["gehost:onx"]))
    with pytest.raises(UsageError, match="acme:npu: .*; there are gehost:ascend, gehost:onnx"):
        Host(HostOptions(vendors=["acme:npu"]))


@pytest.mark.parametrize(
    ("value", "message"),
    [("no_such_module:x", "No module named"), ("os:getcwd", "is no path of a vendor")],
)
def test_an_entry_point_that_is_no_directory(monkeypatch: Any, value: str, message: str) -> None:
    entry = EntryPoint("npu", value, "gehost.vendors")
    monkeypatch.setattr("gehost.shipped.entry_points", lambda group: [entry])
    monkeypatch.setattr("gehost.shipped._spelled", lambda _entry: "acme:npu")
    with pytest.raises(VendorError, match=message):
        shipped_directory("acme:npu")


def test_the_command_line_uses_the_default_and_says_so(
    tmp_path: Path, monkeypatch: Any, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("GEHOST_VENDORS", raising=False)
    for command in (["compile", str(MODEL), "-o", "out.onnx"], ["passes", "--json"]):
        assert run(command) == 0
        out, err = capfd.readouterr()
        assert err.splitlines()[0] == "gehost: no vendors given: using gehost:onnx"
    assert {row["vendor"] for row in json.loads(out)} == {"onnx", "linalg"}
    assert run(["compile", str(MODEL), "-o", "same.onnx", "--vendors", "gehost:onnx"]) == 0
    assert "no vendors given" not in capfd.readouterr().err
    assert Path("same.onnx").read_bytes() == Path("out.onnx").read_bytes()


def test_passes_lists_what_is_shipped(capfd: pytest.CaptureFixture[str]) -> None:
    assert run(["passes", "--shipped", "--json"]) == 0
    vendors = {row["vendor"] for row in json.loads(capfd.readouterr().out)}
    assert vendors - {"linalg"} == {spelled.partition(":")[2] for spelled in SHIPPED}  # a plugin's
    assert run(["passes", "--shipped", "--vendors", "vendors"]) == 2
    assert "give either it or --vendors" in capfd.readouterr().err


def test_no_passes_are_reported(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: Any
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("vendors/acme/custom_fusion_passes").mkdir(parents=True)
    assert run(["passes"]) == 0
    assert "0 passes of 1 vendor" in capfd.readouterr().err
    assert (
        Host(HostOptions(vendors=(), plugins=False))
        .notes[0]
        .startswith("0 passes: no vendors given")
    )


def test_a_pass_of_a_shipped_vendor_is_located(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    command = ["compile", str(MODEL), "-o", "o.onnx", "--vendors", "gehost:onnx"]
    assert run([*command, "--enable", "OrtAttentionPass"]) == 2
    error = capsys.readouterr().err
    assert "gehost:onnxruntime has it: --vendors gehost:onnxruntime" in error
    assert run([*command, "--enable", "OrtAtention"]) == 2
    vendor = "of gehost:onnxruntime (--vendors gehost:onnxruntime)"
    assert f"did you mean OrtAttentionPass {vendor}" in capsys.readouterr().err
    assert run([*command, "--enable", "Gelu"]) == 2
    assert "did you mean GeluFusionPass or GeluTanhFusionPass?" in capsys.readouterr().err
    for name in ("OrtSkipNormalizationPas", "SkipLayer"):
        assert run([*command, "--enable", name]) == 2
        assert f"did you mean OrtSkipNormPass {vendor}" in capsys.readouterr().err
