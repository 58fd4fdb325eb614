"""The command line: exit codes, one line for each error, JSON that stays clean."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import click
import onnx
import pytest

from gehost import hookimpl
from gehost.cli import cli, run
from gehost.testing import parse
from gehost.verify import Runner

pytestmark = pytest.mark.usefixtures("here")


@pytest.fixture
def swapping(vendors: Any) -> Any:
    """``./vendors`` with a file that prints, and a pass that changes the numbers."""
    vendors.write("acme/a.py", "print('a vendor prints')\n", vendors.swap("Turn", "Relu", "Abs"))
    return vendors


def of_vendors(listing: str) -> list[dict[str, Any]]:
    """The passes that ``gehost passes --json`` lists, without those of installed plugins."""
    return [row for row in json.loads(listing) if row["vendor"] != "linalg"]


def outcome(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    code = run(list(arguments))
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def fails(capsys: pytest.CaptureFixture[str], code: int, *arguments: str) -> str:
    """The one line on stderr of a run that ends with ``code``."""
    Path("out.onnx").write_text("what was there")
    actual, out, err = outcome(capsys, *arguments)
    assert (actual, out) == (code, "")
    *printed, line = err.splitlines()
    assert all(text == "a vendor prints" for text in printed)
    assert line.startswith("gehost: ")
    assert "Traceback" not in err
    assert Path("out.onnx").read_text() == "what was there"
    return line


COMPILE = ("compile", "m.onnx", "-o", "out.onnx")


# -- done -----------------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("swapping")
def test_a_compile_writes_the_model_a_report_and_two_tables(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    code, out, err = outcome(
        capsys, *COMPILE, "--report", "r.json", "--dump", "dumps", "--dump-format", "onnx"
    )
    assert (code, err) == (0, "a vendor prints\n")
    assert [node.op_type for node in onnx.load("out.onnx").graph.node] == ["Abs", "Neg"]
    rows = [line.split() for line in out.splitlines()]
    assert ["Relu", "1", "0"] in rows
    assert ["Abs", "0", "1"] in rows
    assert ["all", "2", "2"] in rows
    assert [row[:4] for row in rows if row[:1] == ["Turn"]] == [["Turn", "acme", "1", "1"]]
    assert (
        "dumps: dumps/ge_onnx_00000000_graph_0_PreRunBegin.onnx … (6 files; open them in Netron)"
        in out
    )
    report = json.loads(Path("r.json").read_text())
    assert [row["replaced"] for row in report["passes"]] == [1]
    assert report["model"] == "m.onnx"
    assert len(report["dumps"]) == len(list((tmp_path / "dumps").iterdir())) == 6


@pytest.mark.usefixtures("swapping")
def test_no_line_of_a_piped_table_is_wrapped(
    vendors: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    name = "Long" * 60
    vendors.write("acme/b.py", vendors.swap(name, "Cos", "Sin"))
    _, out, _ = outcome(capsys, "passes")
    (line,) = (line for line in out.splitlines() if name in line)
    assert "acme/custom_fusion_passes/b.py:3" in line


def test_what_models_and_vendors_bring_means_nothing_to_the_terminal(
    vendors: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    name = "[red]a\x1b[31m\nb"
    registration = f"@REG_FUSION_PASS(name={name!r})"
    vendors.write("acme/a.py", vendors.swap("P", "Relu", "Abs", registration=registration))
    _, out, _ = outcome(capsys, *COMPILE)
    assert "\x1b" not in out
    assert "\n[red]a\\x1b[31m b  " in out


@pytest.mark.usefixtures("swapping")
def test_passes_as_json_are_clean_when_a_vendor_prints(
    capsys: pytest.CaptureFixture[str], vendors: Any
) -> None:
    code, out, err = outcome(capsys, "passes", "--json")
    assert (code, err) == (0, "a vendor prints\n")
    (row,) = of_vendors(out)
    assert list(row) == [
        "name",
        "stage",
        "vendor",
        "kind",
        "origin",
        "min_opset",
        "max_opset",
        "default",
        "options",
    ]
    origin = f"{vendors.root}/acme/custom_fusion_passes/a.py:4"
    shown = ["Turn", "kAfterInferShape", "acme", "pattern", origin, None, None, True, []]
    assert list(row.values()) == shown


def test_passes_are_listed_in_the_order_in_which_they_run(
    capsys: pytest.CaptureFixture[str], vendors: Any
) -> None:
    vendors.write(
        "a/a.py",
        vendors.swap("Late", "Relu", "Abs", stage="kAfterOriginGraphOptimize"),
        vendors.swap("Second", "Relu", "Abs"),
    )
    vendors.write(
        "b/b.py",
        vendors.swap("First", "Relu", "Abs", stage="kBeforeInferShape"),
        vendors.swap("Third", "Relu", "Abs"),
    )
    _, out, _ = outcome(capsys, "passes", "--json", "--vendors", "vendors")
    assert [row["name"] for row in of_vendors(out)] == ["First", "Second", "Third", "Late"]
    _, out, _ = outcome(capsys, "passes")
    assert [out.index(name) for name in ("First", "Second", "Third", "Late")] == sorted(
        map(out.index, ("First", "Second", "Third", "Late"))
    )


def test_several_vendors_in_the_order_given(
    capsys: pytest.CaptureFixture[str], vendors: Any, tmp_path: Path
) -> None:
    other = type(vendors)(tmp_path / "other")
    other.write("b/b.py", vendors.swap("Other", "Relu", "Abs"))
    vendors.write("a/a.py", vendors.swap("Mine", "Relu", "Abs"))
    _, out, _ = outcome(capsys, "passes", "--json", "--vendors", "other", "--vendors", "vendors")
    assert [row["name"] for row in of_vendors(out)] == ["Other", "Mine"]


@pytest.mark.usefixtures("swapping")
def test_options_reach_the_host(capsys: pytest.CaptureFixture[str], vendors: Any) -> None:
    vendors.write_raw("acme/custom_fusion_passes/notes.txt", "")
    Path("switch.json").write_text('{"Switch": {"GraphFusion": {"ALL": "off"}}}')

    def result(*options: str) -> list[str]:
        code, _, _ = outcome(capsys, *COMPILE, *options)
        assert code == 0
        return [node.op_type for node in onnx.load("out.onnx").graph.node]

    assert result() == ["Abs", "Neg"]
    assert result("--disable", "Turn") == result("--rewrite-limit", "0") == ["Relu", "Neg"]
    assert result("--fusion-switch-file", "switch.json") == ["Relu", "Neg"]
    assert result("--fusion-switch-file", "switch.json", "--enable", "Turn") == ["Abs", "Neg"]
    _, out, err = outcome(
        capsys, *COMPILE, "-v", "--no-cleanup", "--dump", "d", "--dump-passes", "--dump-level", "3"
    )
    assert (
        f"skipped: {vendors.root}/acme/custom_fusion_passes/notes.txt: no Python file"
        in err.splitlines()
    )
    assert "(7 files" in out
    assert "clean-up" in out


def test_dumps_where_ges_variables_say(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DUMP_GE_GRAPH", "3")
    monkeypatch.setenv("DUMP_GRAPH_PATH", "there")
    assert outcome(capsys, *COMPILE)[0] == 0
    assert len(list(Path("there").glob("pid_*_deviceid_0/*"))) == 6


def test_a_new_pass_is_written_and_found(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = outcome(capsys, "new", "acme/fuse_it")
    assert (code, out.splitlines()) == (
        0,
        [
            "wrote vendors/acme/custom_fusion_passes/fuse_it.py",
            "wrote vendors/acme/tests/test_fuse_it.py",
        ],
    )
    _, out, _ = outcome(capsys, "passes", "--json")
    assert json.loads(out)[0]["name"] == "FuseItPass"


def test_passes_keeps_going_and_ends_with_the_code_of_the_file(
    capsys: pytest.CaptureFixture[str], vendors: Any
) -> None:
    vendors.write("acme/a.py", "1 / 0\n")
    vendors.write("acme/b.py", vendors.swap("Good", "Relu", "Abs"))
    code, out, err = outcome(capsys, "passes", "--keep-going")
    assert (code, "Good" in out, "a.py:2: ZeroDivisionError" in err) == (4, True, True)
    code, out, _ = outcome(capsys, "passes")
    assert (code, out) == (4, "")


def test_keep_going_writes_the_output_and_ends_with_the_code_of_the_first_failure(
    capsys: pytest.CaptureFixture[str], vendors: Any
) -> None:
    vendors.write("acme/a.py", "1 / 0\n")
    vendors.write("acme/b.py", vendors.swap("Bad", "Relu", "Abs", meet="return 1 / 0"))
    code, out, err = outcome(capsys, *COMPILE, "--keep-going")
    (line,) = err.splitlines()
    assert "out.onnx is written; kept going after: " in line
    assert (code, "a.py:2: ZeroDivisionError" in line) == (4, True)
    problems = [line for line in out.splitlines() if line.startswith("problem: ")]
    assert ["a.py:2: ZeroDivisionError" in problems[0], "Bad (" in problems[1], len(problems)] == [
        True,
        True,
        2,
    ]
    assert [node.op_type for node in onnx.load("out.onnx").graph.node] == ["Relu", "Neg"]
    (vendors.root / "acme/custom_fusion_passes/a.py").unlink()
    code, _, err = outcome(capsys, *COMPILE, "--keep-going")
    assert (code, "kept going after: Bad (" in err) == (5, True)


# -- 2: usage -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), "Missing command"),
        (("compil",), "No such command 'compil'; did you mean compile?"),
        (("compile", "m.onnx"), "Missing option '-o'"),
        (("compile", "-o", "out.onnx"), "Missing argument 'MODEL'"),
        ((*COMPILE, "--nonsense"), "No such option"),
        ((*COMPILE, "--dump-level", "4"), "4 is not in the range"),
        ((*COMPILE, "--dump-format", "txt"), "'txt' is not"),
        ((*COMPILE, "--rewrite-limit", "x"), "'x' is not a valid"),
        ((*COMPILE, "--report", "r.txt"), "wanted a file name that ends in .json or .html"),
        ((*COMPILE, "--vendors", "missing"), "missing: no such directory of vendors"),
        ((*COMPILE, "--disable", "Nobody"), "there is no pass Nobody"),
        ((*COMPILE, "--fusion-switch-file", "missing.json"), "cannot read the fusion-switch file"),
        (("compile", "m.onnx", "-o", "no/out.onnx"), "cannot write 'no/out.onnx'"),
        ((*COMPILE, "--dump", "m.onnx"), "cannot write|cannot make the directory for dumps"),
        (("new", "nonsense"), "wanted VENDOR/PASS"),
        (("passes", "--vendors", "m.onnx"), "m.onnx: no such directory of vendors"),
    ],
)
def test_wrong_usage_is_2(
    capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], message: str
) -> None:
    assert re.search(message, fails(capsys, 2, *arguments))


def test_wrong_usage_says_where_help_is(capsys: pytest.CaptureFixture[str]) -> None:
    assert fails(capsys, 2, "compile", "m.onnx").endswith("See `gehost compile --help`.")


# -- 3, 4, 5, 6 -----------------------------------------------------------------------------------------------------


def test_a_model_at_fault_is_3(capsys: pytest.CaptureFixture[str]) -> None:
    assert "missing.onnx: cannot read the model: No such file" in fails(
        capsys, 3, "compile", "missing.onnx", "-o", "out.onnx"
    )
    Path("bad.onnx").write_bytes(b"\xff" * 20)
    assert "bad.onnx: not an ONNX model" in fails(
        capsys, 3, "compile", "bad.onnx", "-o", "out.onnx"
    )
    assert "bad.onnx" in fails(capsys, 3, "verify", "bad.onnx", "m.onnx")


@pytest.mark.parametrize(
    ("code", "message"),
    [
        ("this is no Python\n", ":2: SyntaxError"),
        ("import no_such_module\n", ":2: ModuleNotFoundError"),
        ("print('a vendor prints')\nimport sys\nsys.exit(0)\n", ":4: SystemExit: 0"),
        ("raise ValueError('two\\nlines')\n", ":2: ValueError: two lines"),
    ],
)
@pytest.mark.parametrize("arguments", [COMPILE, ("passes",), ("passes", "--json")])
def test_a_vendor_file_at_fault_is_4_with_file_and_line(
    capsys: pytest.CaptureFixture[str],
    vendors: Any,
    code: str,
    message: str,
    arguments: tuple[str, ...],
) -> None:
    file = vendors.write("acme/a.py", code)
    assert f"{file}{message}" in fails(capsys, 4, *arguments)


def test_a_pass_that_fails_is_5_with_pass_file_line_and_node(
    capsys: pytest.CaptureFixture[str], vendors: Any
) -> None:
    file = vendors.write(
        "acme/a.py", vendors.swap("Bad", "Relu", "Abs", meet="raise ValueError('no\\nway')")
    )
    line = fails(capsys, 5, *COMPILE)
    assert (
        line == f'gehost: Bad ({file}:10): MeetRequirements at node "a" (Relu): ValueError: no way'
    )


@pytest.mark.usefixtures("swapping")
def test_numbers_that_differ_are_6(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = outcome(capsys, *COMPILE, "--verify")
    assert code == 6
    assert err.splitlines()[-1].startswith(
        "gehost: out.onnx: the numbers differ from those of m.onnx: differ: y["
    )
    assert "Turn" in out
    assert out.splitlines()[-1].startswith("out.onnx (refused): ")
    assert not Path("out.onnx").exists()
    code, out, err = outcome(capsys, "verify", "m.onnx", "out.refused.onnx")
    assert (code, out, err.count("\n")) == (6, "", 1)
    assert outcome(capsys, "verify", "m.onnx", "out.refused.onnx", "--atol", "100")[0] == 0
    code, out, err = outcome(capsys, "verify", "m.onnx", "m.onnx")
    assert (code, out.startswith("equal: "), err) == (0, True, "")


@pytest.mark.usefixtures("swapping")
def test_other_numbers_are_6_also_after_failures_that_the_compile_kept_going_after(
    capsys: pytest.CaptureFixture[str], vendors: Any
) -> None:
    vendors.write("acme/z.py", "1 / 0\n")
    vendors.write("acme/y.py", "")
    code, out, err = outcome(capsys, *COMPILE, "--verify", "--keep-going")
    assert code == 6
    assert err.splitlines()[:-1] == [
        "a vendor prints",
        "gehost: 1 pass of 1 vendor; 1 file skipped (-v lists them)",
    ]
    assert "the numbers differ" in err.splitlines()[-1]
    assert any(line.startswith("problem: ") for line in out.splitlines())
    assert not Path("out.onnx").exists()


@pytest.mark.usefixtures("swapping")
def test_the_report_of_a_refused_model_has_the_comparison(
    capsys: pytest.CaptureFixture[str],
) -> None:
    Path("out.onnx").write_text("what was there")
    assert outcome(capsys, *COMPILE, "--verify", "--report", "r.json", "--report", "r.html")[0] == 6
    assert Path("out.onnx").read_text() == "what was there"
    report = json.loads(Path("r.json").read_text())
    assert report["verify"]["equal"] is False
    assert "the refused model is out.refused.onnx" in report["error"]
    assert "the refused model is out.refused.onnx" in Path("r.html").read_text()


# -- 1, 130, traceback ----------------------------------------------------------------------------------------------


def test_an_internal_error_is_1_and_one_line(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gehost.host.host.Host.compile", lambda *_: [*_][9])
    assert fails(capsys, 1, *COMPILE).startswith(
        "gehost: internal error: IndexError: list index out of range (run `gehost --traceback"
    )
    code, _, err = outcome(capsys, "--traceback", *COMPILE)
    assert code == 1
    assert err.startswith("Traceback")
    assert err.splitlines()[-1].startswith("gehost: internal error")


def test_an_interrupt_is_130(capsys: pytest.CaptureFixture[str], vendors: Any) -> None:
    vendors.write("acme/a.py", vendors.swap("Slow", "Relu", "Abs", meet="raise KeyboardInterrupt"))
    Path("out.onnx").write_text("what was there")
    code, out, err = outcome(capsys, *COMPILE)
    assert (code, out, err.strip()) == (130, "", "gehost: interrupted")
    assert Path("out.onnx").read_text() == "what was there"


def test_a_traceback_of_an_error_is_shown_when_asked_for(
    capsys: pytest.CaptureFixture[str], vendors: Any
) -> None:
    vendors.write("acme/a.py", vendors.swap("Bad", "Relu", "Abs", meet="return 1 / 0"))
    code, _, err = outcome(capsys, "--traceback", *COMPILE)
    assert code == 5
    assert "ZeroDivisionError" in err
    assert "return 1 / 0" in err


# -- options of passes ----------------------------------------------------------------------------------------------

COUNTING = """
OPTIONS = [PassOption("most", int, 4, "how many"), PassOption("deep", bool, False)]

@REG_FUSION_PASS(default=False, options=OPTIONS)
class Counting(FusionBasePass):
    def Run(self, graph, context):
        context.record.message = f"most {context.options['most']}"
"""


def test_passes_lists_what_is_off_by_default_and_the_options(
    capsys: pytest.CaptureFixture[str], vendors: Any
) -> None:
    vendors.write("acme/a.py", COUNTING)
    code, out, _ = outcome(capsys, "passes")
    assert code == 0
    assert re.search(r"Counting +acme +fusion +off ", out)
    assert "most" not in out
    _, out, _ = outcome(capsys, "passes", "-v")
    assert re.search(r"Counting\.most +int +4 +how many", out)
    assert re.search(r"Counting\.deep +bool +false", out)
    (row,) = of_vendors(outcome(capsys, "passes", "--json")[1])
    assert row["default"] is False
    assert row["options"][0] == {"name": "most", "type": "int", "default": 4, "help": "how many"}


def test_set_gives_an_option_its_value(capsys: pytest.CaptureFixture[str], vendors: Any) -> None:
    vendors.write("acme/a.py", COUNTING)
    value = ("--enable", "Counting", "--set", "Counting.most=9")
    code, out, _ = outcome(capsys, *COMPILE, *value)
    assert code == 0
    assert "most 9" in out
    _, out, _ = outcome(capsys, "explain", "m.onnx", "--pass", "Counting", *value)
    assert "most 9" in out


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (["Counting.most=x"], "setting Counting.most='x': wanted a whole number"),
        (["Counting.mots=1"], "Counting has no option mots; did you mean most?"),
        (["Counting.most"], '"Counting.most": wanted PASS.OPTION=VALUE'),
        (["Counting.most=1", "Counting.most=2"], "Counting.most is given twice, 1 and 2; give one"),
    ],
)
def test_a_wrong_setting_is_a_usage_error(
    capsys: pytest.CaptureFixture[str], vendors: Any, value: list[str], message: str
) -> None:
    vendors.write("acme/a.py", COUNTING)
    assert message in fails(
        capsys, 2, *COMPILE, *(word for text in value for word in ("--set", text))
    )


# -- plugins --------------------------------------------------------------------------------------------------------


class Commands:
    """A plugin that adds a command."""

    def __init__(self, name: str) -> None:
        self.name = name

    @hookimpl
    def gehost_register_commands(self, cli: click.Group) -> None:
        print("a vendor prints")

        @cli.command(self.name)
        @click.pass_context
        def leave(ctx: click.Context) -> None:
            ctx.exit(7)


def test_a_plugins_command_is_there_for_one_run_and_ends_as_it_says(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    before = dict(cli.commands)
    monkeypatch.setattr(
        "gehost.host.plugins.installed_plugins", lambda: [("commands", Commands("leave"))]
    )
    assert outcome(capsys, "leave") == (7, "", "a vendor prints\n")
    assert cli.commands == before
    monkeypatch.setattr("gehost.host.plugins.installed_plugins", list)
    assert "No such command 'leave'" in fails(capsys, 2, "leave")


def test_a_plugin_cannot_take_a_commands_name(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "gehost.host.plugins.installed_plugins", lambda: [("commands", Commands("compile"))]
    )
    assert "a plugin replaces the command `gehost compile`" in fails(capsys, 4, "passes")


@pytest.mark.parametrize("option", [["--rtol", "-1"], ["--atol", "nan"], ["--seed", "-5"]])
def test_verify_refuses_a_tolerance_or_seed_that_is_none(tmp_path: Path, option: list[str]) -> None:
    path = tmp_path / "m.onnx"
    onnx.save(
        parse(
            '<ir_version: 8, opset_import: ["" : 17]> main (float[2] x) => (float[2] y) { y = Relu(x) }'
        ),
        path,
    )
    assert run(["verify", str(path), str(path), *option]) == 2


@pytest.mark.parametrize("engine", ["onnxruntime", "reference"])
@pytest.mark.usefixtures("swapping")
def test_verify_runs_on_the_engine_that_is_named(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, engine: str
) -> None:
    used: list[str] = []
    run = Runner.run
    monkeypatch.setattr(
        Runner, "run", lambda self, feeds: used.append(self.engine) or run(self, feeds)
    )
    assert outcome(capsys, "verify", "m.onnx", "m.onnx", "--engine", engine)[0] == 0
    assert set(used) == {engine}


def test_verify_of_what_is_no_model_is_the_models_fault(tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    onnx.save(
        parse(
            '<ir_version: 8, opset_import: ["" : 17]> main (float[2] x) => (float[2] y) { y = Relu(x) }'
        ),
        path,
    )
    (tmp_path / "text.onnx").write_text("no model")
    assert run(["verify", str(path), str(tmp_path / "missing.onnx")]) == 3
    assert run(["verify", str(path), str(tmp_path / "text.onnx")]) == 3


@pytest.mark.parametrize("report", ["nowhere/r.json", "o.json", "m.json"])
def test_a_report_that_has_no_place_is_refused_before_anything_is_done(
    tmp_path: Path, report: str
) -> None:
    path, output = tmp_path / "m.json", tmp_path / "o.json"
    onnx.save(
        parse(
            '<ir_version: 8, opset_import: ["" : 17]> main (float[2] x) => (float[2] y) { y = Relu(x) }'
        ),
        path,
        "protobuf",
    )
    assert run(["compile", str(path), "-o", str(output), "--report", str(tmp_path / report)]) == 2
    assert not output.exists()


def test_explain_gives_lines_of_alternatives_relative_to_the_directory(
    capsys: pytest.CaptureFixture[str], vendors: Any
) -> None:
    vendors.write(
        "acme/a.py",
        """
@REG_FUSION_PASS(stage=CustomPassStage.kAfterInferShape)
class Choice(PatternFusionPass):
    def Patterns(self):
        builder = EsGraphBuilder("choice")
        x, y = builder.CreateInputs(2)
        either = es.Alternatives(es.Add(es.Abs(x), y), es.Mul(es.Abs(x), y))
        return [Pattern(builder.BuildAndReset([es.Relu(either)]))]

    def Replacement(self, match):
        raise AssertionError
""",
    )
    text = '<ir_version: 8, opset_import: ["" : 17]> g (float[4] x) => (float[4] y) {'
    onnx.save(onnx.parser.parse_model(f"{text} s = Add (x, x) y = Relu (s) }}"), "m.onnx")
    code, out, _ = outcome(capsys, "explain", "m.onnx", "--pass", "Choice")
    assert code == 0
    assert re.search(
        r"in alternative 1 of vendors/acme/custom_fusion_passes/a\.py:\d+$", out, re.MULTILINE
    )
    assert str(Path.cwd()) not in out


def test_help_shows_the_help_of_a_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert outcome(capsys, "help", "linalg")[:2] == outcome(capsys, "linalg", "--help")[:2]
    assert outcome(capsys, "help")[:2] == outcome(capsys, "--help")[:2]
    code, _, err = outcome(capsys, "help", "complie")
    assert (code, "no command complie; did you mean compile?" in err) == (2, True)
