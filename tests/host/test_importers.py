"""Readers of other formats, by suffix."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import onnx
import pytest

from gehost import (
    Host,
    HostOptions,
    ModelError,
    OutputError,
    PassOption,
    UsageError,
    VendorError,
    hookimpl,
    read_model,
)
from gehost.cli import run
from gehost.host.importers import ImporterRegistry
from gehost.location import SourceLocation
from gehost.testing import parse

TEXT = (
    """<ir_version: 8, opset_import: ["" : 17]> main (float[2] x) => (float[2] y) { y = Relu(x) }"""
)


def read_text(path: str, options: Any) -> onnx.ModelProto:
    return parse(Path(path).read_text())


class Reads:
    """A plugin that brings an importer."""

    def __init__(self, suffix: str, importer: Any, **more: Any) -> None:
        self.suffix, self.importer, self.more = suffix, importer, more

    @hookimpl
    def gehost_register_importers(self, registry: Any) -> None:
        registry.add(self.suffix, self.importer, **self.more)


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


def test_a_model_is_not_written_over_the_source_of_an_importer(tmp_path: Path) -> None:
    source = tmp_path / "m.onnxtext"
    source.write_text(TEXT)
    with pytest.raises(OutputError, match="its name is that of onnxtext files"):
        host(".onnxtext", read_text).compile(source, source)
    assert source.read_text() == TEXT


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


def fails(path: str, options: Any) -> Any:
    raise ValueError("line 3 makes no sense")


def test_an_importer_that_fails_is_named(tmp_path: Path) -> None:
    line = fails.__code__.co_firstlineno + 1
    with pytest.raises(VendorError) as caught:
        host(".bad", fails).compile(tmp_path / "m.bad", tmp_path / "out.onnx")
    where = f"importer {fails.__module__}.fails ({__file__}:{line})"
    assert caught.value.where == SourceLocation(__file__, line)
    assert str(caught.value) == f"{where}: {tmp_path / 'm.bad'}: ValueError: line 3 makes no sense"


def test_an_importer_that_returns_no_model_is_named(tmp_path: Path) -> None:
    with pytest.raises(
        VendorError,
        match=r"importer .*<lambda>: .*m.bad: TypeError: it must return a ModelProto, got None",
    ):
        host(".bad", lambda path, options: None).compile(tmp_path / "m.bad", tmp_path / "out.onnx")


@pytest.mark.parametrize("importer", [read_text, lambda path, options: onnx.ModelProto()])
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
    host(".txt", lambda path, options: print("reading") or read_text(path, options)).compile(
        tmp_path / "m.txt", tmp_path / "out.onnx"
    )
    assert capsys.readouterr() == ("", "reading\n")


@pytest.mark.parametrize("suffix", ["hlo", "", ".onnx", ".hlo.onnx"])
def test_a_suffix_that_is_none(suffix: str) -> None:
    with pytest.raises(VendorError, match=f'read_text: suffix "{suffix}" cannot'):
        host(suffix, read_text)


def test_two_importers_of_one_suffix() -> None:
    with pytest.raises(
        VendorError, match=r'two importers for ".hlo" files, .*read_text and .*fails; remove one'
    ):
        Host(
            HostOptions(plugins=False),
            plugins=[("a", Reads(".hlo", read_text)), ("b", Reads(".hlo", fails))],
        )


# -- options ----------------------------------------------------------------------------------------------------------

OPTIONS = (PassOption("op", str, "Relu", "the operator"), PassOption("count", int, 1))


def read_op(path: str, options: Any) -> onnx.ModelProto:
    """One node of the operator that the options name, as often as they say."""
    if not Path(path).read_text().strip():
        raise ModelError(f"{path}: line 1: there is no text")
    names = [*(f"t{k}" for k in range(options["count"] - 1)), "y"]
    body = " ".join(
        f"{name} = {options['op']}({'x' if k == 0 else names[k - 1]})"
        for k, name in enumerate(names)
    )
    return parse(TEXT.replace("y = Relu(x)", body))


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An installed plugin with an importer, and a file for it."""
    plugin = Reads(".ops", read_op, options=OPTIONS, command="gehost ops import")
    for module in ("plugins", "model_files", "loaded"):
        monkeypatch.setattr(f"gehost.host.{module}.installed_plugins", lambda: [("reads", plugin)])
    path = tmp_path / "m.ops"
    path.write_text("text")
    return path


def ops_of(model: onnx.ModelProto) -> list[str]:
    return [node.op_type for node in model.graph.node]


def test_read_model_takes_the_installed_importers_and_their_options(installed: Path) -> None:
    assert ops_of(read_model(installed).proto) == ["Relu"]
    settings = {"ops.op": "Abs", "ops.count": "2"}
    assert ops_of(read_model(installed, settings).proto) == ["Abs", "Abs"]
    onnx.save(parse(TEXT), installed.with_suffix(".onnx"))
    assert ops_of(read_model(installed.with_suffix(".onnx"), settings).proto) == ["Relu"]


@pytest.mark.parametrize("name", ["m.ops", "m.onnx"])
@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"opps.op": 1}, "setting opps.op: there is no importer opps; did you mean ops?"),
        ({"ops.cont": 1}, "setting ops.cont: ops has no option cont; did you mean count?"),
        ({"ops.count": "x"}, "setting ops.count='x': wanted a whole number"),
    ],
)
def test_a_setting_of_no_importer_is_refused(
    installed: Path, name: str, settings: Any, message: str
) -> None:
    with pytest.raises(UsageError) as caught:
        read_model(installed.with_name(name), settings)
    assert str(caught.value) == message


def test_a_compile_takes_the_options_of_importers_also_to_verify(installed: Path) -> None:
    output = installed.with_name("out.onnx")
    options = HostOptions(verify=True, settings={"ops.op": "Neg", "ops.count": 3}, cleanup=False)
    report = Host(options).compile(installed, output)
    assert ops_of(onnx.load(output)) == ["Neg"] * 3
    assert report.verify["equal"] is True


def test_every_command_that_takes_a_model_reads_it_through_the_importers(
    installed: Path, vendors: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    vendors.write("acme/a.py", vendors.swap("P", "Relu", "Abs"))
    value = ["--vendors", str(vendors.root), "--set", "ops.count=2"]
    model, other = str(installed), str(installed.with_name("o.onnx"))
    assert run(["compile", model, "-o", other, *value]) == 0
    assert run(["explain", model, "--pass", "P", *value]) == 0
    assert "2 rewritten" in capsys.readouterr().out
    assert run(["bisect", model, "-o", str(installed.with_name("found")), *value]) == 6
    assert run(["verify", model, model, "--set", "ops.op=Sin"]) == 0
    assert run(["verify", model, other, "--set", "ops.count=2"]) == 6
    assert run(["blame", model, "t0", "--set", "ops.count=2"]) == 0
    assert run(["blame", model, "t0"]) == 2
    capsys.readouterr()
    assert run(["passes", "-v", "--vendors", str(vendors.root)]) == 0
    assert "ops.op" in capsys.readouterr().out


def test_the_error_of_an_importer_names_its_command(
    installed: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    installed.write_text("")
    message = f"gehost: {installed}: line 1: there is no text; see `gehost ops import --help`\n"
    for command in (["blame", str(installed), "y"], ["verify", str(installed), str(installed)]):
        assert run(command) == 3
        assert capsys.readouterr().err == message
    registry = ImporterRegistry()
    registry.add(".bad", fails, command="gehost bad import")
    with pytest.raises(VendorError, match=r"makes no sense; see `gehost bad import --help`$"):
        registry.load("m.bad")


def test_what_an_installed_importer_prints_goes_to_stderr(
    installed: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    loud = Reads(".ops", lambda path, options: print("reading") or parse(TEXT))
    monkeypatch.setattr("gehost.host.model_files.installed_plugins", lambda: [("loud", loud)])
    read_model(installed)
    assert capsys.readouterr() == ("", "reading\n")


def test_names_of_importers_are_their_own(installed: Path, vendors: Any) -> None:
    registry = ImporterRegistry()
    registry.add(".a", read_op, name="ops", options=OPTIONS)
    registry.add(".b", read_op, name="ops", options=OPTIONS)
    with pytest.raises(
        VendorError, match="two importers are called ops and have different options"
    ):
        registry.add(".c", read_op, name="ops")
    vendors.write("acme/a.py", vendors.swap("ops", "Relu", "Abs"))
    with pytest.raises(VendorError, match="importer ops: a pass of this name is registered"):
        vendors.host(plugins=[("reads", Reads(".ops", read_op))])
