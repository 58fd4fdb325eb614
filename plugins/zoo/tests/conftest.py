"""Small models that a vendor's pass treats by the name of their nodes."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import onnx
import pytest

from gehost.cli import run
from gehost.testing import parse

MODEL = """<ir_version: 8, opset_import: ["" : 17]>
main (float[{size}] x) => (float[{size}] y) {{
    [{name}] a = Relu(x)
    y = Neg(a)
}}"""
PASS = '''
import os, signal, time
from gehost import *

@REG_FUSION_PASS(stage=CustomPassStage.kAfterInferShape)
class Treat(PatternFusionPass):
    """Relu(x) -> LeakyRelu(x, alpha=0), unless the node's name asks for trouble."""

    def Patterns(self):
        builder = EsGraphBuilder("relu")
        return [Pattern(builder.BuildAndReset([es.Relu(builder.CreateInput(0))]))]

    def MeetRequirements(self, match):
        name = match.GetMatchedNodes()[0].name
        if name == "crash":
            os.kill(os.getpid(), signal.SIGSEGV)
        if name == "once" and not os.path.exists(FLAG):
            open(FLAG, "w").close()
            os.kill(os.getpid(), signal.SIGKILL)
        if name == "killed":
            with open(FLAG, "a") as file:
                file.write("x")
            if os.path.getsize(FLAG) < 6:
                os.kill(os.getpid(), signal.SIGKILL)
        if name == "leave":
            os._exit(0)
        if name == "stop":
            raise KeyboardInterrupt
        if name == "orphan" and not os.path.exists(FLAG):
            open(FLAG, "w").close()
            os.kill(os.getppid(), signal.SIGKILL)
        if name == "sleep":
            time.sleep(600)
        if name == "hog":
            self.hoard = bytearray(b"x") * (600 << 20)
            time.sleep(600)
        if name == "raise":
            raise ValueError("no such thing")
        return name != "kept" or match.reject("name: it is kept")

    def Replacement(self, match):
        builder = EsGraphBuilder("new")
        x = builder.CreateInput(0)
        if match.GetMatchedNodes()[0].name == "wrong":
            return builder.BuildAndReset([es.Abs(x)])
        return builder.BuildAndReset([es.LeakyRelu(x, alpha=0.0)])
'''


@dataclass
class Place:
    """A directory with a vendor and models."""

    root: Path
    capsys: Any

    def model(self, path: str, name: str = "", size: str = "2") -> None:
        file = self.root / "models" / path
        file.parent.mkdir(parents=True, exist_ok=True)
        onnx.save(parse(MODEL.format(name=name or file.stem, size=size)), file)

    def zoo(self, *arguments: str) -> int:
        return run(["zoo", *arguments])

    def output(self) -> str:
        return self.capsys.readouterr().out

    def errors(self) -> str:
        return self.capsys.readouterr().err

    def results(self, directory: str = "out") -> dict[str, Any]:
        """The records by model, without what was measured; each model once."""
        lines = (self.root / directory / "zoo.jsonl").read_text(encoding="utf-8").splitlines()
        records = [json.loads(line) for line in lines]
        for record in records:
            record.pop("measured", None)
        rows = {record.pop("model"): record for record in records}
        assert len(rows) == len(lines)
        return rows


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> Place:
    folder = tmp_path / "vendors" / "acme" / "custom_fusion_passes"
    folder.mkdir(parents=True)
    code = PASS.replace("FLAG", repr(str(tmp_path / "flag")))
    (folder / "treat.py").write_text(code, encoding="utf-8")
    for name in ("GEHOST_VENDORS", "DUMP_GE_GRAPH", "DUMP_GRAPH_PATH"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)
    return Place(tmp_path, capsys)


@pytest.fixture(autouse=True)
def no_default_vendors(monkeypatch: pytest.MonkeyPatch) -> None:
    """Commands run without vendors unless a test names some."""
    monkeypatch.setattr("gehost.options.shipped_vendors", lambda _group: [])
