"""Names that models bring stay names in every text that gehost writes."""

from __future__ import annotations

import ast
import json
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import onnx
import pytest

from gehost import UsageError
from gehost.cli import run
from gehost.quoting import mlir_string, python_string, text_of_mlir
from gehost.scaffold.write import write_pass_from
from gehost.testing import run_pass
from gehost_linalg import mlir
from tests.hostile_names import NAMES, model_of

STYLES = ("class", "drr", "traced", "decompose")
ALL_NAMES = pytest.mark.parametrize("name", NAMES, ids=ascii)


@pytest.fixture(autouse=True)
def nothing_is_executed(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    yield
    assert not list(tmp_path.rglob("PWNED"))


def skeleton(code: str) -> str:
    """A program without its texts."""
    tree = ast.parse(code)
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            node.value = ""
    return ast.dump(tree)


def written(name: str, style: str, folder: Path) -> tuple[str, str, str]:
    model = folder / "m.onnx"
    proto = model_of(name)
    onnx.save(proto, model)
    nodes = [node.output[0] for node in proto.graph.node]
    nodes = nodes[1:2] if style == "decompose" else nodes
    (code, test, _), _ = write_pass_from(
        "acme/here", str(folder / "v"), str(model), nodes, style, "kAfterInferShape"
    )
    return code.read_text("utf-8"), test.read_text("utf-8"), str(test)


@ALL_NAMES
@pytest.mark.parametrize("style", STYLES)
def test_a_pass_from_nodes_of_such_names(tmp_path: Path, style: str, name: str) -> None:
    try:
        code, test, path = written(name, style, tmp_path)
    except UsageError:
        assert name in ("self", "tensor", "num_outputs")
        assert not (tmp_path / "v").exists()
        return
    if not name.isidentifier():
        (tmp_path / "plain").mkdir()
        plain = written("a b", style, tmp_path / "plain")
        assert [skeleton(code), skeleton(test)] == [skeleton(item) for item in plain[:2]]
    assert all(line.isprintable() for text in (code, test) for line in text.split("\n"))
    name = "here" if style in ("drr", "traced") else "HerePass"
    _, record = run_pass(onnx.load(Path(path).with_name("here.onnx")), name, vendors=tmp_path / "v")
    assert record.replaced == 1


@ALL_NAMES
def test_a_quoted_text_reads_as_itself(name: str) -> None:
    assert ast.literal_eval(python_string(name)) == name
    assert python_string(name)[0] == python_string(name)[-1] == '"'
    assert python_string(name).isprintable()


@ALL_NAMES
def test_mlir_strings_read_as_themselves(name: str) -> None:
    assert re.fullmatch(r'"([ !#-\[\]-~]|\\[0-9A-F]{2})*"', mlir_string(name))
    assert text_of_mlir(mlir_string(name)) == name


DOT_STRING = re.compile(r'"(?:[^"\\]|\\.)*"', re.DOTALL)


def is_harmless(text: str) -> bool:
    return all(line.isprintable() for line in text.split("\n"))


def shape_of(text: str) -> list[str]:
    """The lines of a text without its strings, comments and names of SSA values."""
    lines = [DOT_STRING.sub('""', line).partition("//")[0] for line in text.split("\n")]
    return [re.sub(r"%[A-Za-z0-9_]+", "%", line) for line in lines]


def compiled(name: str) -> Path:
    onnx.save(model_of(name), "m.onnx")
    return Path("m.onnx")


def printed(capfd: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert run([str(item) for item in arguments]) == 0
    out, err = capfd.readouterr()
    assert is_harmless(out)
    assert is_harmless(err)
    return out


GRAPHS = {
    "show": ["show", "m.onnx", "--dot"],
    "linalg dot": ["linalg", "m.onnx", "--format", "dot"],
    "linalg mlir": ["linalg", "m.onnx", "--format", "mlir"],
    "linalg table": ["linalg", "m.onnx"],
    "linalg before": ["linalg", "m.onnx", "--format", "mlir", "--before"],
    "show text": ["show", "m.onnx"],
}


@ALL_NAMES
@pytest.mark.parametrize("command", GRAPHS.values(), ids=GRAPHS)
def test_a_graph_keeps_its_lines(capfd: Any, command: list[str], name: str) -> None:
    compiled(name)
    hostile = printed(capfd, *command)
    compiled("plain")
    plain = printed(capfd, *command)
    if command[-1] == "m.onnx":  # a table
        assert len(hostile.split("\n")) == len(plain.split("\n"))
    else:
        assert shape_of(hostile) == shape_of(plain)
    if "mlir" in command:
        assert mlir.parse(hostile)


# of XML 1.0; the parsers of browsers are laxer
FORBIDDEN = re.compile("[\0-\x08\x0b\x0c\x0e-\x1f\ufffe\uffff]")


class Page(HTMLParser):
    """The elements of a page with their attributes, without texts."""

    def __init__(self) -> None:
        super().__init__()
        self.elements: list[tuple[str, list[str]]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, [name for name, _ in attrs]))


def elements(text: str) -> list[tuple[str, list[str]]]:
    page = Page()
    page.feed(text)
    return page.elements


@ALL_NAMES
def test_a_page_and_a_picture_have_the_elements_of_a_plain_name(
    capfd: Any, vendors: Any, name: str
) -> None:
    vendors.write(
        "acme/a.py",
        vendors.swap(
            "Turn", "Softmax", "Abs", meet="return match.reject(match.GetMatchedNodes()[0].name)"
        ),
    )
    actual = []
    for item in (name, "plain"):
        compiled(item)
        printed(
            capfd,
            "compile",
            "m.onnx",
            "-o",
            "out.onnx",
            "--vendors",
            vendors.root,
            "--report",
            "r.html",
            "--report",
            "r.json",
        )
        picture = printed(capfd, "show", "m.onnx", "--svg")
        ET.fromstring(picture)
        page = Path("r.html").read_text("utf-8")
        assert not FORBIDDEN.search(page)
        report = json.loads(Path("r.json").read_text("utf-8"))
        assert f"d{item}::{item}" in report["op_types_before"]
        actual.append((elements(page), elements(picture)))
    assert actual[0] == actual[1]
