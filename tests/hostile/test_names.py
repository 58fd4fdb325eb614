"""Names that models bring: they mean nothing to the terminal and never become paths."""

from __future__ import annotations

from pathlib import Path

import onnx
import pytest
from onnx import ModelProto

NAMES = {
    "nul": "a\0b",
    "newline": "a\nb",
    "carriage return": "a\rgehost: all is well",
    "parent": "../../../x",
    "absolute": "/tmp/x",
    "markup": "<script>alert(1)</script>",
    "rich markup": "[red]a[/red]",
    "ansi": "\x1b[31mred\x1b]0;title\x07",
    "right to left": "\u202egnp.exe",
    "format": "%s%n{0}{name}",
    "backslash": "..\\..\\x",
    "double colon": "a::b::c",
    "blank": "   ",
    "long": "x" * 1_000_000,
    "surrogate pair": "\U0001f600",
}


def named(name: str) -> ModelProto:
    """A model in which everything that has a name has this one."""
    proto = onnx.parser.parse_model(
        """<ir_version: 8, opset_import: ["" : 17, "D" : 1]> g (float[P] x) => (float[Q] y) <float[2] w = {1, 2}> {
        dead = D.D(x) a = Add(x, w) y = Relu(a) }"""
    )
    graph = proto.graph
    proto.producer_name = proto.doc_string = proto.domain = graph.name = graph.doc_string = name
    proto.opset_import[1].domain = graph.node[0].domain = f"d{name}"
    graph.node[0].op_type = name
    for node in graph.node:
        node.name = node.doc_string = name
    graph.input[0].name = graph.node[0].input[0] = graph.node[1].input[0] = name
    graph.input[0].type.tensor_type.shape.dim[0].dim_param = name
    graph.node[1].output[0] = graph.node[2].input[0] = f"{name}1"
    graph.output[0].name = graph.node[2].output[0] = f"{name}2"
    graph.initializer[0].name = graph.node[1].input[1] = f"{name}3"
    proto.metadata_props.add(key=name, value=name)
    return proto


def files(directory: Path) -> set[str]:
    return {str(path.relative_to(directory)) for path in directory.rglob("*")}


def is_harmless(text: str) -> bool:
    return all(line.isprintable() for line in text.split("\n"))


@pytest.mark.parametrize("name", NAMES.values(), ids=NAMES)
def test_a_model_with_such_names_is_compiled(gehost_run, tmp_path, name):
    (tmp_path / "m.onnx").write_bytes(named(name).SerializeToString())
    (tmp_path / "dumps").mkdir()
    options = ("--dump", tmp_path / "dumps", "--dump-passes", "--report", tmp_path / "r.json")
    code, out, err = gehost_run(
        "compile", tmp_path / "m.onnx", "-o", tmp_path / "out.onnx", *options
    )
    assert (code, err) == (0, "")
    assert is_harmless(out)
    assert {path for path in files(tmp_path) if not path.startswith("dumps/ge_onnx_")} == {
        "m.onnx",
        "out.onnx",
        "r.json",
        "dumps",
    }
    compiled = onnx.load(tmp_path / "out.onnx").graph
    assert [entry.name for entry in (*compiled.input, *compiled.output)] == [name, f"{name}2"]


@pytest.mark.parametrize("name", NAMES.values(), ids=NAMES)
def test_an_error_that_quotes_such_names_is_one_line(refused, tmp_path, name):
    proto = named(name)
    proto.graph.node[1].input[0] = proto.graph.node[2].output[0]
    (tmp_path / "m.onnx").write_bytes(proto.SerializeToString())
    line = refused(3, tmp_path / "m.onnx", "--dump", tmp_path / "dumps")
    assert "is part of a cycle" in line
    assert len(line) < 5000
    assert not (tmp_path / "dumps").exists()


@pytest.mark.parametrize("name", NAMES.values(), ids=NAMES)
def test_a_pass_that_fails_at_such_names_is_told_in_one_line(refused, vendors, tmp_path, name):
    vendors.write(
        "acme/a.py",
        vendors.swap(
            "Fails", "Add", "Relu", meet="raise ValueError(match.GetMatchedNodes()[0].name)"
        ),
    )
    (tmp_path / "m.onnx").write_bytes(named(name).SerializeToString())
    line = refused(5, tmp_path / "m.onnx", "--vendors", vendors.root)
    assert "Fails" in line
    assert len(line) < 5000


@pytest.mark.parametrize("name", NAMES.values(), ids=NAMES)
def test_a_pass_of_such_a_name_is_dumped_where_dumps_go(gehost_run, vendors, tmp_path, name):
    registration = f"@REG_FUSION_PASS(name={name!r})".replace("{", "{{").replace(
        "}", "}}"
    )  # it is formatted
    vendors.write("acme/a.py", vendors.swap("P", "Relu", "Abs", registration=registration))
    (tmp_path / "m.onnx").write_bytes(named("n").SerializeToString())
    before = files(tmp_path)
    dump = ("--dump", tmp_path / "dumps", "--dump-passes")
    code, out, err = gehost_run(
        "compile",
        tmp_path / "m.onnx",
        "-o",
        tmp_path / "out.onnx",
        "--vendors",
        vendors.root,
        *dump,
    )
    assert (code, err) == (0, "")
    assert is_harmless(out)
    result = {path for path in files(tmp_path) - before if "__pycache__" not in path}
    assert {path for path in result if not path.startswith("dumps/ge_onnx_")} == {
        "out.onnx",
        "dumps",
    }
    assert len(result) == 2 + 7


PLACES = (
    "producer",
    "graph",
    "nodes",
    "tensor",
    "operator",
    "attribute",
    "dimension",
    "opset",
    "key",
)


@pytest.mark.parametrize("place", PLACES)
def test_a_name_that_is_not_utf8_is_refused_where_it_stands(refused, tmp_path, place):
    proto = onnx.parser.parse_model(
        """<ir_version: 8, opset_import: ["" : 17, "opset" : 1], producer_name: "producer", metadata_props: ["key" : "value"]>
        graph (float[dimension] tensor) => (float[Q] y) { [nodes] y = opset.operator<attribute = 1>(tensor) }"""
    )
    proto.graph.name = "graph"
    content = proto.SerializeToString().replace(place.encode(), b"\xff" * len(place))
    (tmp_path / "m.onnx").write_bytes(content)
    line = refused(3, tmp_path / "m.onnx")
    assert "is not UTF-8" in line
    assert r"\xff" in line
