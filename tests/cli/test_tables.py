"""Tables at the end of a compile."""

from __future__ import annotations

import re
import sys
from collections import Counter
from typing import Any

import pytest

from gehost import PassRecord, Report
from gehost.cli.tables import print_passes, print_report
from gehost.host.registry import PassSpec
from gehost.stages import CustomPassStage


def rows(text: str) -> list[list[str]]:
    """The cells below the headers of each table, told from each other by where the columns of dashes are."""
    actual: list[list[str]] = []
    columns: list[slice] = []
    for line in text.splitlines():
        if line.startswith("--"):
            columns = [slice(*dashes.span()) for dashes in re.finditer("-+", line)]
        elif not line:
            columns = []
        elif columns:
            actual.append([line[column].strip() for column in columns])
    return actual


def record(name: str, **more: Any) -> PassRecord:
    return PassRecord(name, "kAfterInferShape", "p.py:1", "pattern", vendor="acme", **more)


def test_operators_that_changed_come_one_by_one_and_the_others_together(
    capsys: pytest.CaptureFixture[str],
) -> None:
    report = Report(
        nodes_before=10,
        nodes_after=9,
        op_types_before={"Add": 5, "Relu": 2, "Abs": 2, "MatMul": 1},
        op_types_after={"Add": 5, "Relu": 1, "Abs": 2, "acme::Gemm": 1},
        seconds={"load": 0.25, "passes": 0.5},
    )
    print_report(report, "out.onnx")
    out = capsys.readouterr().out
    assert rows(out)[:5] == [
        ["Relu", "2", "1"],
        ["MatMul", "1", "0"],
        ["acme::Gemm", "0", "1"],
        ["unchanged operators", "7", "7"],
        ["all", "10", "9"],
    ]
    assert out.splitlines()[-1] == "out.onnx: 10 nodes before, 9 after, 0.75 s"


def test_each_pass_says_what_it_did_or_why_it_did_not(capsys: pytest.CaptureFixture[str]) -> None:
    passes = [
        record("Done", matched=5, replaced=3, rejected=Counter(rank=1, dtype=1), seconds=0.0125),
        record("Idle", status="not changed"),
        record("Greedy", matched=9, replaced=9, message="not converged after 10 iterations"),
        record(
            "Part",
            matched=1,
            rejected=Counter(rank=1),
            message="some of its patterns are not applicable: opset 17 has no Gelu",
        ),
        record("Off", status="disabled"),
        record("Old", status="not applicable", message="needs opset 20"),
        record("Bad", status="failed", matched=1, message="Bad (p.py:1): no [way]"),
    ]
    print_report(
        Report(passes=passes, cleanup={"dead_nodes": 2, "merged": 0}, seconds={"cleanup": 0.001}),
        "out.onnx",
    )
    out = capsys.readouterr().out
    assert "\noff: 1 pass; `gehost passes` lists them\n" in out
    actual = rows(out)[-7:]
    assert actual == [
        ["Done", "acme", "5", "3", "12.5", "dtype: 1, rank: 1"],
        ["Idle", "acme", "0", "0", "0.0", ""],
        ["Greedy", "acme", "9", "9", "0.0", "not converged after 10 iterations"],
        [
            "Part",
            "acme",
            "1",
            "0",
            "0.0",
            "rank: 1; some of its patterns are not applicable: opset 17 has no Gelu",
        ],
        ["Old", "acme", "0", "0", "0.0", "not applicable: needs opset 20"],
        ["Bad", "acme", "1", "0", "0.0", "failed: Bad (p.py:1): no [way]"],
        ["built-in clean-up", "", "", "", "1.0", "dead_nodes: 2"],
    ]


def test_problems_numbers_and_dumps_are_told(capsys: pytest.CaptureFixture[str]) -> None:
    report = Report(
        problems=["a [b] c", "d"],
        verify={"summary": "equal: 1 feed"},
        dumps=["there/0.pbtxt", "there/1.pbtxt"],
    )
    print_report(report, "out.onnx")
    lines = capsys.readouterr().out.splitlines()
    assert lines[-5:-1] == [
        "problem: a [b] c",
        "problem: d",
        "verify: equal: 1 feed",
        "dumps: there/0.pbtxt … (2 files; open them in Netron)",
    ]
    print_report(Report(dumps=["there/0.txt"]), "out.onnx")
    assert "dumps: there/0.txt … (1 file)\n" in capsys.readouterr().out
    print_report(Report(dumps=["there/0.txt", "there/0.onnx"]), "out.onnx")
    printed = capsys.readouterr().out
    assert "dumps: there/0.onnx … (1 file; open them in Netron, 1 readable)\n" in printed


@pytest.mark.parametrize(
    ("least", "most", "message"),
    [(None, None, ""), (11, None, "11–"), (None, 17, "–17"), (11, 17, "11–17")],
)
def test_passes_are_listed_with_their_opsets(
    capsys: pytest.CaptureFixture[str], least: Any, most: Any, message: str
) -> None:
    stage = CustomPassStage.kAfterInferShape
    print_passes([PassSpec("P", stage, "p.py:1", "pattern", lambda: None, "acme", least, most)])  # type: ignore[arg-type, return-value]
    assert rows(capsys.readouterr().out) == [
        ["kAfterInferShape", "P", "acme", "pattern", message, "on", "p.py:1"]
    ]


def test_a_host_without_passes_lists_none(capsys: pytest.CaptureFixture[str]) -> None:
    print_passes([])
    out = capsys.readouterr().out
    assert out.split()[:3] == ["stage", "pass", "vendor"]
    assert rows(out) == []


@pytest.mark.parametrize(("width", "lines"), [(None, 1), (200, 1), (100, 2), (80, 3), (20, 3)])
def test_reasons_are_wrapped_to_fit_a_terminal(
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    width: int | None,
    lines: int,
) -> None:
    reason = "some of its patterns are not applicable: opset 17 has no Gelu"
    monkeypatch.setattr(sys.stdout, "isatty", lambda: width is not None)
    monkeypatch.setenv("COLUMNS", str(width or 20))
    print_report(Report(passes=[record("Part", message=reason)]), "out.onnx")
    out = capsys.readouterr().out
    message = [row[-1] for row in rows(out)[1:-1]]
    assert len(message) == lines
    assert " ".join(message) == reason
    if width in (100, 80):
        assert max(map(len, out.splitlines())) <= width
