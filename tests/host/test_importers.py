"""Readers of other formats, by suffix."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import onnx
import pytest

from gehost import Host, HostOptions, ModelError, VendorError, hookimpl
from gehost.host.importers import ImporterRegistry
from gehost.testing import parse

TEXT = (
    """<ir_version: 8, opset_import: ["" : 17]> main (float[2] x) => (float[2] y) { y = Relu(x) }"""
)


def read_text(path: str) -> onnx.ModelProto:
    return parse(Path(path).read_text())


class Reads:
    """A plugin that brings an importer."""

    def __init__(self, suffix: str, importer: Any) -> None:
        self.suffix, self.importer = suffix, importer

    @hookimpl
    def gehost_register_importers(self, registry: Any) -> None:
        registry.add(self.suffix, self.importer)


def host(suffix: str, importer: Any, **options: Any) -> Host:
    return Host(
        HostOptions(plugins=False, **options), plugins=[("reader", Reads(suffix, importer))]
    )


def test_a_file_is_read_by_the_importer_of_its_suffix_and_compared_with_what_that_gave(
    tmp_path: Path,
) -> None:
    source, output = tmp_path / "m.onnxtext", tmp_path / "out.onnx"
    source.write_text(TEXT)
    report = host(".onnxtext", read_text, verify=True).compile(source, output)
    assert report.model == str(source)
    assert report.verify["equal"] is True
    assert [node.op_type for node in onnx.load(output).graph.node] == ["Relu"]


def test_other_files_are_onnx(tmp_path: Path) -> None:
    onnx.save(parse(TEXT), tmp_path / "m.model")
    assert (
        host(".onnxtext", read_text)
        .compile(tmp_path / "m.model", tmp_path / "out.onnx")
        .nodes_after
        == 1
    )


def test_the_longest_suffix_counts() -> None:
    registry = ImporterRegistry()
    registry.add(".txt", read_text)
    registry.add(".hlo.txt", onnx.load)
    assert registry.find("a.hlo.txt") is onnx.load
    assert registry.find("hlo.txt") is read_text
    assert registry.find("a.onnx") is None


def fails(path: str) -> Any:
    raise ValueError("line 3 makes no sense")


def test_an_importer_that_fails_is_named(tmp_path: Path) -> None:
    line = fails.__code__.co_firstlineno + 1
    with pytest.raises(VendorError) as caught:
        host(".bad", fails).compile(tmp_path / "m.bad", tmp_path / "out.onnx")
    where = f"importer {fails.__module__}.fails ({__file__}:{line})"
    assert str(caught.value) == f"{where}: {tmp_path / 'm.bad'}: ValueError: line 3 makes no sense"


def test_an_importer_that_returns_no_model_is_named(tmp_path: Path) -> None:
    with pytest.raises(
        VendorError,
        match=r"importer .*<lambda>: .*m.bad: TypeError: it must return a ModelProto, got None",
    ):
        host(".bad", lambda path: None).compile(tmp_path / "m.bad", tmp_path / "out.onnx")


@pytest.mark.parametrize("importer", [read_text, lambda path: onnx.ModelProto()])
def test_a_missing_file_and_an_empty_model_are_the_models_fault(
    tmp_path: Path, importer: Any
) -> None:
    with pytest.raises(
        ModelError, match=r"m.txt: (cannot read the model: No such file|the model has no graph)"
    ):
        host(".txt", importer).compile(tmp_path / "m.txt", tmp_path / "out.onnx")


def test_what_an_importer_prints_goes_to_stderr(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "m.txt").write_text(TEXT)
    host(".txt", lambda path: print("reading") or read_text(path)).compile(
        tmp_path / "m.txt", tmp_path / "out.onnx"
    )
    assert capsys.readouterr() == ("", "reading\n")


@pytest.mark.parametrize("suffix", ["hlo", "", ".onnx"])
def test_a_suffix_that_is_none(suffix: str) -> None:
    with pytest.raises(VendorError, match=f'read_text: "{suffix}" is no suffix'):
        host(suffix, read_text)


def test_two_importers_of_one_suffix() -> None:
    with pytest.raises(
        VendorError, match=r'two importers for ".hlo" files, .*read_text and .*fails; take one away'
    ):
        Host(
            HostOptions(plugins=False),
            plugins=[("a", Reads(".hlo", read_text)), ("b", Reads(".hlo", fails))],
        )
