"""The README's Python code runs, and does what the text around it says."""

import re
import shutil
from pathlib import Path
from typing import Any

import onnx
import onnx.parser
import pytest

from gehost.cli import run
from gehost.testing import parse

ROOT = Path(__file__).parents[1]
BLOCKS = re.findall(
    r"```python\n(.*?)```", (ROOT / "README.md").read_text(encoding="utf-8"), re.DOTALL
)
MODEL = """<ir_version: 8, opset_import: ["" : 17]>
main (float[2, 3] x, float[3, 4] w, float[4] b) => (float[2, 4] y) {
    product = MatMul(x, w)
    y = Add(b, product)
}"""


def test_the_first_pass_fuses_and_the_host_reports_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.chdir(tmp_path)
    vendor_file, script = BLOCKS
    home = tmp_path / "vendors" / "acme" / "custom_fusion_passes"
    home.mkdir(parents=True)
    (home / "my_pass.py").write_text(vendor_file, encoding="utf-8")
    onnx.save(onnx.parser.parse_model(MODEL), tmp_path / "model.onnx")

    exec(compile(script, "README.md", "exec"), {})

    assert capsys.readouterr().out == "[('FuseMatMulAndAddPass', 1, 1, {})]\n"
    assert [node.op_type for node in onnx.load(tmp_path / "fused.onnx").graph.node] == ["Gemm"]


def test_the_first_pass_is_what_gehost_new_writes_in_substance(tmp_path: Path):
    from gehost.scaffold import write_pass

    path, _ = write_pass("acme/fuse_mat_mul_and_add_pass", str(tmp_path))
    written = path.read_text(encoding="utf-8")
    for line in re.findall(r"^        \S.*", BLOCKS[0], re.MULTILINE):
        if any(
            word in line
            for word in ("MeetRequirements", "return match.reject", "shapes.broadcasts_into")
        ):
            assert line in written


def test_explain_prints_what_is_shown(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    shown = re.search(
        r"```text\n\$ gehost (explain .*)\n((?:.*\n)*?)…\n```",
        (ROOT / "README.md").read_text(encoding="utf-8"),
    )
    assert shown is not None
    monkeypatch.chdir(ROOT)
    assert run(shown[1].split()) == 0
    assert capsys.readouterr().out.startswith(shown[2])


def test_commands_are_exactly_two():
    console = re.search(
        r"```console\n(.*?)```", (ROOT / "README.md").read_text(encoding="utf-8"), re.DOTALL
    )
    assert console is not None
    assert [line.split("#")[0].strip() for line in console[1].splitlines()] == [
        "$ make demo",
        "$ make test",
    ]


def test_the_files_that_the_map_names_exist():
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    section = text[text.index("## Where things are") :]
    named = re.findall(r"^\| (`[^|]+`) \|", section, re.MULTILINE)
    assert named
    for cell in named:
        for path in re.findall(r"`([^`]+)`", cell):
            assert (ROOT / path).exists(), path


def test_the_demo_model_is_in_the_repository():
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    model = re.search(r"^DEMO_MODEL := (.+)$", makefile, re.MULTILINE)
    assert model is not None
    assert (ROOT / model[1]).is_file()
    assert shutil.which("make")


def test_the_pass_of_the_contract_with_a_run_of_its_own_runs(vendors: Any) -> None:
    text = (ROOT / "vendors" / "README.md").read_text(encoding="utf-8")
    (code,) = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    vendors.write_raw("acme/custom_fusion_passes/a.py", code)
    model = """<ir_version: 8, opset_import: ["" : 17]> g (float[2] x) => (float[2] y) { y = Relu(x) }"""
    result, report = vendors.host().run(parse(model))
    assert [node.op_type for node in result.graph.node] == ["Max"]
    assert report.passes[0].replaced == 1
