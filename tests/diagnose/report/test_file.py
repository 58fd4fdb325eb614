"""Reports as files, also those of compiles that fail."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import onnx
import pytest

from gehost import Report
from gehost.cli import run
from gehost.diagnose.report.file import versions, write_report

COMPILE = (
    "compile",
    "m.onnx",
    "-o",
    "out.onnx",
    "--vendors",
    "vendors",
    "--report",
    "r.html",
    "--report",
    "r.json",
)

pytestmark = pytest.mark.usefixtures("here")


def reported() -> tuple[dict[str, Any], str]:
    return json.loads(Path("r.json").read_text()), Path("r.html").read_text()


def test_the_ending_says_the_format(tmp_path: Path) -> None:
    report = Report(model="m.onnx")
    for name in ("r.json", "r.html"):
        write_report(str(tmp_path / name), report)
    assert json.loads((tmp_path / "r.json").read_text()) == report.as_dict()
    assert (tmp_path / "r.html").read_text().startswith("<!DOCTYPE html>")


def test_versions_are_those_of_what_is_installed() -> None:
    assert versions("9.9") == {**versions("9.9"), "gehost": "9.9", "onnx": onnx.__version__}


def test_a_compile_writes_both_with_its_rewrites(vendors: Any) -> None:
    vendors.write("acme/a.py", vendors.swap("Turn", "Relu", "Abs"))
    assert run(list(COMPILE)) == 0
    plain, page = reported()
    assert [one["nodes"] for one in plain["passes"][0]["rewrites"][0]["matches"]] == [["a"]]
    assert plain["options"]["vendors"] == ["vendors"]
    assert plain["versions"]["gehost"]
    assert plain["error"] == ""
    assert "Turn" in page


def test_without_a_report_nothing_is_recorded(
    vendors: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    vendors.write("acme/a.py", vendors.swap("Turn", "Relu", "Abs"))
    monkeypatch.setattr("gehost.diagnose.report.recorder.RewriteRecorder", None)
    assert run(list(COMPILE[: COMPILE.index("--report")])) == 0


@pytest.mark.parametrize(
    ("code", "breaks", "message"),
    [
        (5, lambda vendors: vendors.write("acme/a.py", FAILING), "no way"),
        (4, lambda vendors: vendors.write("acme/a.py", "1 / 0"), "ZeroDivisionError"),
        (3, lambda vendors: Path("m.onnx").write_bytes(b"no model"), "m.onnx"),
    ],
)
def test_a_compile_that_fails_writes_what_it_did_until_then(
    vendors: Any, capsys: pytest.CaptureFixture[str], code: int, breaks: Any, message: str
) -> None:
    breaks(vendors)
    assert run(list(COMPILE)) == code
    assert capsys.readouterr().err.count("\n") == 1
    plain, page = reported()
    assert message in plain["error"]
    assert plain["model"] == "m.onnx"
    assert "The compile failed" in page
    assert not Path("out.onnx").exists()


FAILING = """
@REG_FUSION_PASS()
class Fails(FusionBasePass):
    def Run(self, graph, context):
        raise ValueError("no way")
"""


def test_the_report_of_a_failed_compile_names_the_pass(vendors: Any) -> None:
    vendors.write(
        "acme/a.py", vendors.swap("Turn", "Relu", "Abs", stage="kBeforeInferShape"), FAILING
    )
    assert run(list(COMPILE)) == 5
    plain, _ = reported()
    assert [(row["name"], row["status"]) for row in plain["passes"]] == [
        ("Turn", "done"),
        ("Fails", "failed"),
    ]
    assert plain["op_types_before"] == {"Neg": 1, "Relu": 1}
    assert plain["op_types_after"] == {}


def test_a_report_that_cannot_be_written_hides_no_failure(
    vendors: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    vendors.write("acme/a.py", FAILING)
    Path("r.html").mkdir()
    assert run(list(COMPILE)) == 5
    unwritten, failure = capsys.readouterr().err.splitlines()
    assert unwritten.startswith("gehost: cannot write 'r.html'")
    assert "no way" in failure
