"""The commands, and their exit codes."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import onnx
import pytest

from gehost.cli import run
from gehost.verify import save_feeds

from .recorded import programs

TEXT = "ENTRY %e { %x = f32[2]{0} parameter(0) ROOT %y = f32[2]{0} negate(%x) }\n"


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "m.hlo").write_text(TEXT)
    (tmp_path / "bad.hlo").write_text("ENTRY e {\n  x = f32[2] parameter 0\n}\n")
    return tmp_path


def test_print(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["hlo", "print", "m.hlo"]) == 0
    assert (
        capsys.readouterr().out
        == "ENTRY %e {\n  %x = f32[2]{0} parameter(0)\n  ROOT %y = f32[2]{0} negate(%x)\n}\n"
    )
    assert run(["hlo", "print", "m.hlo", "--json", "--computation", "e"]) == 0
    assert json.loads(capsys.readouterr().out)["name"] == "e"
    assert run(["hlo", "print", "m.hlo", "--tree"]) == 0
    assert "instruction y root negate" in capsys.readouterr().out
    assert run(["hlo", "print", "m.hlo", "--computation", "f"]) == 3


def test_texts_of_windows_are_read(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (here / "windows.hlo").write_bytes(b"\xef\xbb\xbf" + TEXT.replace(") ", ")\r\n").encode())
    assert run(["hlo", "print", "windows.hlo"]) == 0
    assert capsys.readouterr().out.splitlines()[1] == "  %x = f32[2]{0} parameter(0)"


def test_dataflow(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["hlo", "dataflow", "m.hlo"]) == 0
    (computation,) = json.loads(capsys.readouterr().out)
    assert computation["edges"] == [{"source": "x", "target": "y", "operand": 0}]
    assert run(["hlo", "dataflow", "m.hlo", "--dot"]) == 0
    assert capsys.readouterr().out.startswith("digraph hlo {")


def test_import(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["hlo", "import", "m.hlo", "-o", "m.onnx"]) == 0
    assert "wrote m.onnx: 1 node, 0 functions, 1 input, 1 output" in capsys.readouterr().out
    assert [node.op_type for node in onnx.load("m.onnx").graph.node] == ["Neg"]


COLLECTIVE = """HloModule m, num_partitions=2
add { a = f32[] parameter(0)
 b = f32[] parameter(1)
 ROOT s = f32[] add(a, b) }
body { t = (s32[], f32[4]) parameter(0)
 i = s32[] get-tuple-element(t), index=0
 x = f32[4] get-tuple-element(t), index=1
 y = f32[4] all-reduce(x), channel_id=1, replica_groups={{0,1}}, use_global_device_ids=true, to_apply=add
 ROOT r = (s32[], f32[4]) tuple(i, y) }
ENTRY e { k = pred[] parameter(0)
 t = (s32[], f32[4]) parameter(1)
 ROOT c = (s32[], f32[4]) conditional(k, t, t), true_computation=body, false_computation=body }
"""


def test_import_names_collectives_that_no_runtime_runs(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (here / "c.hlo").write_text(COLLECTIVE)
    assert run(["hlo", "import", "c.hlo", "-o", "c.onnx"]) == 0
    assert "note: no runtime runs hlo::AllReduce, kept as in the text" in capsys.readouterr().out
    assert run(["hlo", "import", "m.hlo", "-o", "m.onnx"]) == 0
    assert "note" not in capsys.readouterr().out


@pytest.mark.parametrize("command", [["hlo", "import"], ["compile"]])
def test_the_text_is_not_overwritten(
    here: Path, capsys: pytest.CaptureFixture[str], command: list[str]
) -> None:
    assert run([*command, "m.hlo", "-o", "m.hlo"]) == 2
    assert "cannot write 'm.hlo'" in capsys.readouterr().err
    assert (here / "m.hlo").read_text() == TEXT


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ["print", "m.hlo", "--json", "--tree"],
            "--json, --tree and --tokens exclude each other. See",
        ),
        (["fusions", "m.hlo", "--vendors", "."], "--vendors needs --before"),
        (["fusions", "m.hlo", "--constants", "random"], "--constants needs --before"),
        ([], "Missing command. See `gehost hlo --help`."),
    ],
)
def test_options_that_do_not_fit_together(
    here: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], message: str
) -> None:
    assert run(["hlo", *arguments]) == 2
    assert message in capsys.readouterr().err


def test_invalid_text_is_quoted_with_a_caret(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["hlo", "import", "bad.hlo", "-o", "out.onnx"]) == 3
    assert capsys.readouterr().err == (
        '  x = f32[2] parameter 0\n                       ^\ngehost: bad.hlo:2:24: expected "(", found "0"\n'
    )
    assert not (here / "out.onnx").exists()


@pytest.mark.parametrize("name", ["none.hlo", "binary.hlo"])
def test_files_that_cannot_be_read(
    here: Path, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    (here / "binary.hlo").write_bytes(b"\xff\xfe\x00")
    assert run(["hlo", "print", name]) == 3
    assert capsys.readouterr().err.startswith(f"gehost: {name}: ")


def test_a_text_is_a_model_for_compile(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (here / "vendors").mkdir()
    assert run(["compile", "m.hlo", "-o", "out.onnx", "--verify", "--vendors", "vendors"]) == 0
    assert run(["compile", "bad.hlo", "-o", "bad.onnx", "--vendors", "vendors"]) == 3
    assert 'bad.hlo:2:24: expected "(", found "0"' in capsys.readouterr().err
    assert not (here / "bad.onnx").exists()


def test_fusions(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    program = programs()["corpus/block"]
    (here / "before.hlo").write_text(program.text)
    (here / "after.hlo").write_text(program.after)
    vendors = ["--vendors", "gehost:onnx", "--vendors", "gehost:openxla"]
    assert run(["hlo", "fusions", "after.hlo", "--before", "before.hlo", *vendors]) == 0
    out = capsys.readouterr().out
    assert "by LayerNormalizationFusionPass (onnx)" in out
    assert "by SoftmaxFusionPass (openxla)" in out
    assert "by GeluTanhFusionPass (onnx)" in out
    assert run(["hlo", "fusions", "after.hlo", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)["fusions"]
    assert {fusion["kind"] for fusion in rows} <= {"kLoop", "kCustom", "kInput", "kOutput"}
    assert run(["hlo", "fusions", "after.hlo", *vendors]) == 2
    assert run(["hlo", "fusions", "after.hlo", "--before", "m.hlo"]) == 3
    assert "no instruction has an op_name" in capsys.readouterr().err


def test_constants(here: Path) -> None:
    (here / "c.hlo").write_text("ENTRY e { ROOT c = f32[2] constant({...}) }")
    assert run(["hlo", "import", "c.hlo", "-o", "c.onnx"]) == 3
    assert run(["hlo", "import", "c.hlo", "-o", "c.onnx", "--constants", "random"]) == 0
    np.savez("c.npz", c=np.ones(2, np.float32))
    assert run(["hlo", "import", "c.hlo", "-o", "c.onnx", "--constants", "c.npz"]) == 0
    assert run(["hlo", "import", "c.hlo", "-o", "c.onnx", "--constants", "none.npz"]) == 3


def test_arrays_for_no_constant_are_named(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (here / "c.hlo").write_text(
        "ENTRY e { w.1 = f32[2] constant({...}) ROOT y = f32[2] add(w.1, f32[2] constant({1, 2})) }"
    )
    array = np.ones(2, np.float32)
    Path("c.npz").write_bytes(save_feeds({"w.1": array, "w_1": array, "b": array}))
    assert run(["hlo", "import", "c.hlo", "-o", "c.onnx", "--constants", "c.npz"]) == 2
    expected = 'c.npz: the text has no elided constant "w_1" (did you mean "w.1"?), "b"'
    assert capsys.readouterr().err == f"gehost: {expected}\n"
    assert not Path("c.onnx").exists()
    set_ = ["--set", "hlo.constants=c.npz"]
    (here / "vendors").mkdir()
    assert run(["compile", "c.hlo", "-o", "c.onnx", "--vendors", "vendors", *set_]) == 2
    assert expected in capsys.readouterr().err
    Path("c.npz").write_bytes(save_feeds({"w.1": array}))
    assert run(["hlo", "import", "c.hlo", "-o", "c.onnx", "--constants", "c.npz"]) == 0


def test_calls_that_double_at_each_level_are_refused(
    here: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gehost_hlo.importer._INLINED", 2_000)
    calls = "a = f32[4] call(p), to_apply=c{0} b = f32[4] call(p), to_apply=c{0}"
    texts = ["c0 { p = f32[4] parameter(0) ROOT r = f32[4] add(p, p) }"] + [
        f"c{level} {{ p = f32[4] parameter(0) {calls.format(level - 1)} ROOT r = f32[4] add(a, b) }}"
        for level in range(1, 40)
    ]
    for level, code in ((39, 2), (7, 0)):
        entry = f"ENTRY e {{ x = f32[4] parameter(0) ROOT y = f32[4] call(x), to_apply=c{level} }}"
        (here / "d.hlo").write_text("\n".join([*texts, entry]))
        assert run(["hlo", "import", "d.hlo", "-o", "d.onnx"]) == code
        assert Path("d.onnx").exists() == (code == 0)
        message = capsys.readouterr().err
        if code:
            assert message.startswith("gehost: d.hlo: calls of c")
            assert "more than 3,200 instructions when they are inlined" in message
            assert message.count("\n") == 1


def test_options_of_the_importer(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (here / "vendors").mkdir()
    (here / "c.hlo").write_text(
        "ENTRY e { x = f32[2] parameter(0) c = f32[2] constant({...}) ROOT y = f32[2] add(x, c) }"
    )
    assert run(["compile", "c.hlo", "-o", "c.onnx", "--vendors", "vendors"]) == 3
    assert "give --constants (gehost hlo import)" in capsys.readouterr().err
    assert (
        run(
            [
                "compile",
                "c.hlo",
                "-o",
                "c.onnx",
                "--vendors",
                "vendors",
                "--set",
                "hlo.constants=random",
                "--verify",
            ]
        )
        == 0
    )
    assert (
        run(
            [
                "compile",
                "c.hlo",
                "-o",
                "c.onnx",
                "--vendors",
                "vendors",
                "--set",
                "hlo.fusions=none",
            ]
        )
        == 2
    )


def test_refused_instructions_have_their_lines(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Two computations have an instruction of one name."""
    (here / "two.hlo").write_text(
        "%f (p: f32[2]) -> f32[2] {\n"
        "  %p = f32[2] parameter(0)\n"
        '  ROOT %d.1 = f32[2] negate(%p), metadata={op_name="d"}\n'
        "}\n\n"
        "ENTRY %e (x: f32[2]) -> f32[2] {\n"
        "  %x = f32[2] parameter(0)\n"
        "  %d = f32[2] fusion(%x), kind=kLoop, calls=%f\n"
        "  ROOT %d.1 = f32[2] domain(%d)\n"
        "}\n"
    )
    assert run(["hlo", "import", "two.hlo", "-o", "m.onnx"]) == 3
    assert "d.1 of e (line 9, column 9): domain is not translated" in capsys.readouterr().err


def test_a_directory_of_dumps(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """As --xla_dump_hlo_as_text writes it: texts of modules, and others beside them."""
    dumps = here / "dumps"
    dumps.mkdir()
    text = f"HloModule jit_f\n\n{TEXT}"
    (dumps / "module_0001.jit_f.before_optimizations.txt").write_text(text)
    (dumps / "module_0001.jit_f.cpu_after_optimizations.txt").write_text(text)
    (dumps / "module_0001.jit_f.cpu_after_optimizations-buffer-assignment.txt").write_text(
        "BufferAssignment:\nallocation 0: size 8\n"
    )
    (dumps / "module_0001.jit_f.debug_options").write_text("xla_dump_to: 1\n")
    assert run(["hlo", "import", "dumps", "-o", "models"]) == 0
    assert sorted(path.name for path in (here / "models").iterdir()) == [
        "module_0001.jit_f.before_optimizations.onnx",
        "module_0001.jit_f.cpu_after_optimizations.onnx",
    ]
    (dumps / "module_0002.jit_g.before_optimizations.txt").write_text("HloModule g\nENTRY e { x }")
    capsys.readouterr()
    assert run(["hlo", "import", "dumps", "-o", "models"]) == 3
    error = capsys.readouterr().err
    assert "module_0002.jit_g.before_optimizations.txt:2:13: expected" in error
    assert "1 of 3 texts are not imported" in error
    (here / "empty").mkdir()
    assert run(["hlo", "import", "empty", "-o", "models"]) == 3


def test_tokens(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["hlo", "print", "bad.hlo", "--tokens"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split() for line in lines[:4]] == [
        ["1:1", "name", "ENTRY"],
        ["1:7", "name", "e"],
        ["1:9", "punctuation", "{"],
        ["2:3", "name", "x"],
    ]
    (here / "m.mlir").write_text('module @m {\n  func.func @main(%arg0: tensor<2xf32>) // "\n}\n')
    assert run(["hlo", "print", "m.mlir", "--tokens"]) == 0
    assert "@main" in capsys.readouterr().out
    (here / "bad.hlo").write_text('ENTRY e {\n  "x\n')
    assert run(["hlo", "print", "bad.hlo", "--tokens"]) == 3
    assert "bad.hlo:2:3" in capsys.readouterr().err
    assert run(["hlo", "print", "m.hlo", "--tokens", "--computation", "e"]) == 2
