"""No command lets a name of a model steer the terminal, or look like a line of gehost's."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Any

import onnx
import pytest

import gehost
from gehost.cli import run
from gehost.errors import printable
from tests.hostile_names import model_of

NAME = "a\x1b[31m\nINJECTED\u202e\r\x9b1m\u2028INJECTED\u2066"
COMMANDS = {
    "compile": ["compile", "m.onnx", "-o", "out.onnx", "--verify"],
    "compile, verbose": [
        "compile",
        "m.onnx",
        "-o",
        "out.onnx",
        "-v",
        "--dump",
        ".",
        "--dump-passes",
    ],
    "passes": ["passes", "-v"],
    "verify": ["verify", "m.onnx", "m.onnx"],
    "verify of others": ["verify", "m.onnx", "other.onnx"],
    "new": ["new", "acme/other", "--from", "m.onnx", "--nodes", f"{NAME} of Relu"],
    "new, no node": ["new", "acme/other", "--from", "m.onnx", "--nodes", f"{NAME} of Relo"],
    "show": ["show", "m.onnx"],
    "show around": ["show", "m.onnx", "--around", f"{NAME} of Mul"],
    "show dot": ["show", "m.onnx", "--dot"],
    "show no node": ["show", "m.onnx", "--around", "of Mul"],
    "explain": ["explain", "m.onnx", "--pass", "Turn", "--all"],
    "explain another": ["explain", "m.onnx", "--pass", "Pair", "--all"],
    "explain node": ["explain", "m.onnx", "--pass", "Turn", "--node", f"{NAME} of Mul"],
    "blame": ["blame", "m.onnx", f"{NAME} of Mul"],
    "check-pass": ["check-pass", "vendors", "--instances", "2"],
    "bisect": ["bisect", "m.onnx", "--only", "Wrong", "-o", "found"],
    "tune": ["tune", "m.onnx", "-o", "s.json", "--budget", "1s"],
    "linalg": ["linalg", "m.onnx"],
    "linalg mlir": ["linalg", "m.onnx", "--format", "mlir"],
    "linalg dot": ["linalg", "m.onnx", "--format", "dot"],
    "linalg no node": ["linalg", "m.onnx", "--node", f"{NAME} of Relu"],
    "shard propagate": ["shard", "propagate", "fixed.onnx", "--all"],
    "shard graph": ["shard", "propagate", "fixed.onnx", "--graph", "g.dot"],
    "shard plan": [
        "shard",
        "plan",
        "fixed.onnx",
        "--mesh",
        "d=2",
        "-o",
        "p.onnx",
        "-v",
        "--dot",
        "c.dot",
    ],
    "shard check": ["shard", "check", "fixed.onnx"],
    "shard pin": ["shard", "propagate", "fixed.onnx", "--pin", f"{NAME}0=0:d", "--mesh", "d=2"],
    "shard split": ["shard", "split", "fixed.onnx", "-o", "s"],
    "zoo": ["zoo", "m.onnx", "-o", "z", "--report", "z.html", "--jobs", "1"],
    "kernels": ["kernels", "m.onnx", "-o", "k.so"],
}
TURN = "return match.reject(match.GetMatchedNodes()[0].name)"


@pytest.mark.parametrize("command", COMMANDS.values(), ids=COMMANDS)
def test_names_are_escaped(
    capfd: Any, monkeypatch: Any, tmp_path: Path, vendors: Any, command: list[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    onnx.save(model_of(NAME), "m.onnx")
    other = model_of(NAME)
    other.graph.initializer[0].float_data[:] = [3]
    onnx.save(other, "other.onnx")
    for value in (*other.graph.input, *other.graph.output):
        value.type.tensor_type.shape.dim[1].dim_value = 4
    onnx.save(other, "fixed.onnx")
    vendors.write("acme/turn.py", vendors.swap("Turn", "Softmax", "Abs", meet=TURN))
    vendors.write("acme/wrong.py", vendors.swap("Wrong", "Relu", "Neg"))
    run(command)
    out, err = capfd.readouterr()
    for stream in (out, err, *(path.read_text() for path in tmp_path.glob("*.dot"))):
        lines = stream.split("\n")
        assert all(line.isprintable() for line in lines), ascii(stream)
        assert not any(line.lstrip("| ").startswith("INJECTED") for line in lines), stream
    assert "internal error" not in err
    assert out or err


@pytest.mark.parametrize("line", ["", "a  b", "a\tb", "a\nb", "\x1b[0m", "\u202ea", "\x85", "é😀"])
def test_a_printable_line_is_one_line(line: str) -> None:
    shown = printable(line)
    assert shown.isprintable()
    assert shown == line or not line.isprintable()


def test_commands_print_by_these_functions_alone() -> None:
    root = Path(gehost.__file__).parent
    products = [*root.parent.glob("plugins/*/gehost_*"), *root.parent.glob("gehost_*")]
    files = [file for folder in (root / "cli", *products) for file in folder.rglob("*.py")]
    assert len(files) > 50
    own = {root / "cli" / "output.py", root / "cli" / "blame.py", root / "cli" / "progress.py"}
    for file in files:
        if file in own or "__main__" in file.read_text("utf-8"):
            continue
        for node in ast.walk(ast.parse(file.read_text("utf-8"))):
            if isinstance(node, ast.Call):
                assert ast.unparse(node.func) not in {"click.echo", "print", "click.secho"}, file
