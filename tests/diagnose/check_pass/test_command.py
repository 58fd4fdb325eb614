"""``gehost check-pass``: what it prints, saves and refuses."""

from __future__ import annotations

import os
from textwrap import dedent
from typing import Any

import onnx
import pytest

from gehost import (
    EsGraphBuilder,
    Pattern,
    es,
    testing,
)
from gehost.cli import run
from gehost.verify import compare, load_feeds
from tests.diagnose.check_pass import planted_patterns as planted

DOUBLE = """
    @REG_FUSION_PASS(stage=CustomPassStage.kAfterInferShape)
    class {name}(PatternFusionPass):
        def Patterns(self):
            builder = EsGraphBuilder("sum")
            x = builder.CreateInput(0)
            return [Pattern(builder.BuildAndReset([es.Add(x, x)]))]

        def Replacement(self, match):
            print("a vendor prints")
            builder = EsGraphBuilder("product")
            return builder.BuildAndReset([es.Mul(builder.CreateInput(0), {factor})])
"""


@pytest.fixture
def check(here, capsys):
    def checked(*arguments: str) -> tuple[int, list[str], str]:
        code = run(["check-pass", "--instances", "2", "--mutations", "4", *map(str, arguments)])
        captured = capsys.readouterr()
        return code, captured.out.splitlines(), captured.err.replace("a vendor prints\n", "")

    return checked


def test_a_file_that_is_right(check, vendors):
    file = vendors.write("acme/double.py", DOUBLE.format(name="Double", factor=2))
    code, (line,), err = check(file)
    assert (code, err) == (0, "")
    assert line.startswith(
        f"Double ({file}:3): ok: 2 instances (1 of 1 patterns, opsets 13 to 17), 8 mutations: "
    )


@pytest.mark.parametrize("named", ["stray.py", "."])
def test_a_file_that_only_the_variable_names(check, vendors, monkeypatch, named):
    text = "from gehost import *\n" + dedent(DOUBLE.format(name="Double", factor=2))
    file = vendors.write_raw("stray.py", text)
    monkeypatch.setenv("ASCEND_GE_PY_PASS_PATH", f"other.py{os.pathsep}{vendors.root / named}")
    code, (line,), err = check(file)
    assert (code, err) == (0, "")
    assert line.startswith(f"Double ({file}:3): ok: 2 instances")


def test_a_file_outside_the_vendors_names_the_variable(check, vendors, tmp_path):
    vendors.write("acme/double.py", DOUBLE.format(name="Double", factor=2))
    file = tmp_path / "stray.py"
    file.write_text("from gehost import *\n" + dedent(DOUBLE.format(name="Double", factor=2)))
    code, lines, err = check(file, "--vendors", str(vendors.root))
    assert (code, lines) == (2, [])
    assert err.endswith(f"it must be below {vendors.root}, or in ASCEND_GE_PY_PASS_PATH\n")


def test_a_directory_stands_for_the_files_below_it(check, vendors):
    vendors.write("acme/double.py", DOUBLE.format(name="Double", factor=2))
    vendors.write("acme/triple.py", DOUBLE.format(name="Triple", factor=3))
    vendors.write("other/again.py", DOUBLE.format(name="Again", factor=2))
    acme = vendors.root / "acme"
    for value, names in (
        (acme / "custom_fusion_passes", {"Double", "Triple"}),
        (acme, {"Double", "Triple"}),
        (vendors.root, {"Again", "Double", "Triple"}),
    ):
        code, lines, err = check(value)
        assert (code, err) == (6, f"gehost: {value}: the numbers change by Triple\n")
        assert {line.split(" ")[0] for line in lines} == names


def test_numbers_that_differ_are_saved_and_replay(check, vendors, tmp_path):
    file = vendors.write(
        "acme/x.py", DOUBLE.format(name="Right", factor=2), DOUBLE.format(name="Triple", factor=3)
    )
    code, lines, err = check(file, "--save", "found")
    assert (code, err) == (6, f"gehost: {file}: the numbers change by Triple\n")
    message = [line for line in lines if line.startswith(f"Triple ({file}:")]
    assert "wrong: 2 instances" in message[0]
    assert "numbers differ: opset 17, " in message[1]
    assert lines[-1].startswith("wrote found/finding-")
    actual = tmp_path / "found" / "finding-1"
    assert sorted(path.name for path in actual.iterdir()) == [
        "after.onnx",
        "before.onnx",
        "feeds.npz",
    ]
    before, after = (onnx.load(actual / f"{name}.onnx") for name in ("before", "after"))
    assert not compare(before, after, [load_feeds(actual / "feeds.npz")]).equal
    code, (line,), err = check(file, "--pass", "Right")
    assert (code, line.split(" ")[0], err) == (0, "Right", "")


@pytest.mark.usefixtures("few_draws")
def test_a_pass_that_never_fires(check, vendors):
    file = vendors.write(
        "acme/x.py", vendors.swap("Never", "Relu", "Abs", meet='return match.reject("never: no")')
    )
    code, lines, err = check(file)
    assert (code, err) == (0, "")
    assert ": not checked: pattern 1 of 1: could not build an instance" in lines[0]
    assert "refused: never: no" in lines[0]
    assert lines[1:] == ["not checked: Never"]
    code, again, err = check(file, "--strict")
    assert (code, again) == (5, lines)
    assert err == f"gehost: {file}: not checked (--strict): Never\n"


def test_hooks_of_vendors_do_not_run_on_instances(check, vendors):
    hook = """
        @hookimpl
        def gehost_compile_started(graph):
            raise RuntimeError("a hook")

        @hookimpl
        def gehost_after_infershape(graph):
            raise RuntimeError("a hook")
    """
    file = vendors.write("acme/x.py", DOUBLE.format(name="Double", factor=2), hook)
    vendors.write("other/y.py", hook)
    code, (line,), err = check(file)
    assert (code, err) == (0, "")
    assert ": ok: 2 instances" in line


def test_a_pass_without_a_pattern_is_told_and_no_error(check, vendors):
    file = vendors.write(
        "acme/x.py",
        """
        from gehost import *

        @REG_FUSION_PASS(stage=CustomPassStage.kAfterInferShape)
        class Walks(FusionBasePass):
            def Run(self, graph, context):
                return None
    """,
    )
    code, (line, last), err = check(file)
    assert (code, err) == (0, "")
    assert "not checked: it has no pattern (it walks the graph itself)" in line
    assert last == f"not checked: {line.split(' ')[0]}"


@pytest.mark.usefixtures("few_draws")
def test_a_pass_whose_numbers_are_random_is_told_and_no_error(check, vendors):
    file = vendors.write(
        "acme/x.py",
        vendors.swap("Random", "Bernoulli", "RandomUniformLike"),
        DOUBLE.format(name="Right", factor=2),
    )
    code, lines, err = check(file)
    assert (code, err) == (0, "")
    assert lines[-1] == "not checked: Random"


@pytest.mark.usefixtures("few_draws")
def test_the_last_line_names_all_that_is_wrong_by_kind(check, vendors):
    never = vendors.swap("Never", "Relu", "Abs", meet='return match.reject("never: no")')
    failing = vendors.swap("Failing", "Exp", "Log", meet='raise ValueError("no")')
    file = vendors.write("acme/x.py", never, failing, DOUBLE.format(name="Triple", factor=3))
    code, lines, err = check(file)
    assert code == 6
    wrong = "the numbers change by Triple; something is wrong with Failing"
    assert err == f"gehost: {file}: {wrong}\n"
    assert "not checked: Never" in lines
    code, _, err = check(file, "--strict")
    assert code == 6
    assert err == f"gehost: {file}: {wrong}; not checked (--strict): Never\n"


def test_a_package_with_relative_imports_and_an_operator(check, vendors):
    operator = """
        @ops.register("acme::Twice")
        def twice(x):
            return x + x

        @REG_FUSION_PASS(stage=CustomPassStage.kAfterInferShape)
        class Untwice(PatternFusionPass):
            def Patterns(self):
                builder = EsGraphBuilder("twice")
                return [Pattern(builder.BuildAndReset([es.op("acme::Twice")(builder.CreateInput(0))]))]

            def Replacement(self, match):
                builder = EsGraphBuilder("sum")
                x = builder.CreateInput(0)
                return builder.BuildAndReset([x * FACTOR])
    """
    vendors.write("acme/_factor.py", "FACTOR = 2\n")
    file = vendors.write("acme/package/__init__.py", "from .._factor import FACTOR\n", operator)
    for value in (file, file.parent):
        code, (line,), _ = check(value)
        assert code == 0
        assert line.startswith(f"Untwice ({file}:")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["{root}/acme/custom_fusion_passes/doubl.py"], 'no such file; did you mean "double.py"?'),
        (
            ["{root}/lost.py"],
            "lost.py: a link to nowhere, which does not exist",
        ),
        (["{root}/acme/custom_fusion_passes/_helper.py"], "_helper.py: the name starts with _"),
        (
            ["{root}/acme/custom_fusion_passes/empty.py"],
            "it registers no pass; mark the class with REG_FUSION_PASS",
        ),
        (["{root}/stray.py"], "the host loads files below VENDOR/custom_fusion_passes only"),
        (
            ["{root}/acme/custom_fusion_passes/double.py", "--pass", "Doubel"],
            'it has no pass "Doubel"; did you mean "Double"?',
        ),
        (
            ["{root}/acme/custom_fusion_passes/double.py", "--pass", "X"],
            'it has no pass "X"; it has Double',
        ),
        (
            ["{root}/acme/custom_fusion_passes/double.py", "--vendors", "{root}/none"],
            "no such directory of vendors",
        ),
    ],
)
def test_what_cannot_be_checked_is_one_line(check, vendors, arguments, message):
    vendors.write("acme/double.py", DOUBLE.format(name="Double", factor=2))
    vendors.write("acme/_helper.py", "")
    vendors.write("acme/empty.py", "")
    (vendors.root / "lost.py").symlink_to("nowhere")
    vendors.write_raw("stray.py", "")
    code, out, err = check(*[argument.format(root=vendors.root) for argument in arguments])
    assert (code, out) == (2, [])
    assert message in err
    assert err.count("\n") == 1


def test_a_place_where_nothing_can_be_saved(check, vendors, tmp_path):
    file = vendors.write("acme/x.py", DOUBLE.format(name="Triple", factor=3))
    (tmp_path / "found").write_text("in the way")
    code, _, err = check(file, "--save", "found")
    assert code == 2
    assert err == "gehost: found: cannot make the directory: File exists\n"


@pytest.mark.usefixtures("few_draws")
def test_a_pass_that_is_off_by_default_is_checked_with_its_settings(
    vendors: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    quiet = (
        '@REG_FUSION_PASS(stage={stage}, default=False, options=[PassOption("on", bool, False)])'
    )
    meet = 'return self.options["on"]'
    code = vendors.swap("Quiet", "Relu", "Abs", registration=quiet, meet=meet)
    file = vendors.write("acme/a.py", code)
    assert run(["check-pass", str(file), "--set", "Quiet.on=yes"]) == 6
    assert "Quiet" in capsys.readouterr().out
    capsys.readouterr()
    assert run(["check-pass", str(file)]) == 0
    assert "not checked: Quiet\n" in capsys.readouterr().out
    assert run(["check-pass", str(file), "--strict"]) == 5
    with pytest.raises(AssertionError, match="numbers differ"):
        testing.check_pass(
            "Quiet", instances=4, mutations=8, vendors=vendors.root, settings={"Quiet.on": True}
        )


@pytest.mark.parametrize("keeps", [True, False])
def test_patterns_are_built_once_unless_the_pass_keeps_something(keeps):
    built = []

    class Counted(planted.Rewrites):
        inputs = 1

        def __init__(self):
            if keeps:
                self.tensors = []

        def Patterns(self):
            builder = EsGraphBuilder("pattern")
            x = es.Relu(builder.CreateInput(0))
            built.append(x)
            if keeps:
                self.tensors.append(x)
            return [Pattern(builder.BuildAndReset([es.Relu(x)])).CaptureTensor(x)]

        def MeetRequirements(self, match):
            return not keeps or len(self.tensors) == 1

        def after(self, _match, x):
            return es.Relu(x)

    result = testing.check_pass(Counted, instances=2, mutations=20)
    assert result.ok
    assert result.tried >= 30
    assert (len(built) > 40) == keeps, len(built)


def test_mutations_are_spread_over_the_patterns():
    def tried(count):
        class Several(planted.Rewrites):
            inputs = 1

            def Patterns(self):
                actual = []
                for _ in range(count):
                    builder = EsGraphBuilder("pattern")
                    x = es.Relu(builder.CreateInput(0))
                    actual.append(Pattern(builder.BuildAndReset([es.Relu(x)])))
                return actual

            def after(self, _match, x):
                return es.Relu(x)

        result = testing.check_pass(Several, instances=3, mutations=8)
        return result.instances, result.tried

    assert tried(1) == (3, 24)
    assert tried(2) == (3, 24)
    assert tried(6) == (6, 24)
