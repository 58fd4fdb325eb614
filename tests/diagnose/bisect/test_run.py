"""The one rewrite that makes the numbers wrong is found, named, and left as files that run alone."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from gehost import Host, HostOptions
from gehost.cli import run
from gehost.diagnose.bisect.run import Bisection, bisect
from gehost.errors import UsageError
from gehost.ir.model import Model
from gehost.passes.cleanup import clean_up
from gehost.testing import parse
from gehost.verify import compare, load_feeds
from gehost.verify.run import engine_name
from tests.diagnose.bisect.tower import BLOCKS, BUGS, PLANTED, RIGHT, SIGNED_BLOCK, tower

pytestmark = pytest.mark.usefixtures("here")

FIRST_MATCH = {
    "wrong_constant": [("quotient0", "Div")],
    "swapped_operand": [("difference0", "Sub"), ("negated0", "Neg")],
    "dropped_bias": [("product0", "MatMul"), ("sum0", "Add")],
    "wrong_perm": [("turned0", "Transpose"), ("back0", "Transpose")],
    "missing_condition": [(f"square{SIGNED_BLOCK}", "Mul"), (f"root{SIGNED_BLOCK}", "Sqrt")],
}
HEAD = '<ir_version: 10, opset_import: ["": 21]>'


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("tower") / "tower.onnx"
    proto = tower()
    onnx.save(proto, path)
    return str(path)


@pytest.fixture(scope="module")
def low(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("low") / "low.onnx"
    onnx.save(tower(8), path)
    return str(path)


def only(bug: str) -> HostOptions:
    others = [name for name in BUGS.values() if name != BUGS.get(bug)]
    return HostOptions(vendors=[RIGHT, PLANTED], disable=others, plugins=False)


def few_enough(actual: Bisection) -> bool:
    return actual.model_runs <= math.log2(actual.rewrites) + 3


# -- planted bugs ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("bug", BUGS)
def test_a_planted_bug_is_found_at_its_match(bug: str, model: str) -> None:
    actual = bisect(model, only(bug))
    assert actual.rewrites == 2 * BLOCKS
    assert few_enough(actual)
    captured = actual.captured
    assert captured is not None
    assert captured.pass_name == BUGS[bug]
    assert Path(captured.origin.rpartition(":")[0]).stem == bug
    assert list(captured.nodes) == FIRST_MATCH[bug]
    assert captured.number == BLOCKS + 1 + (SIGNED_BLOCK if bug == "missing_condition" else 0)
    limits = {trial.limit: trial.found.equal for trial in actual.trials}
    assert limits[captured.number - 1]
    assert not limits[captured.number]
    assert not captured.made_up
    alone = captured.compare()
    assert not alone.equal
    assert alone.error is None


def test_a_thousand_nodes_take_few_runs() -> None:
    proto = tower(60)
    assert len(proto.graph.node) >= 1000
    onnx.save(proto, "tower.onnx")
    actual = bisect("tower.onnx", only("missing_condition"))
    assert (actual.rewrites, few_enough(actual)) == (120, True)
    assert actual.captured is not None
    assert list(actual.captured.nodes) == FIRST_MATCH["missing_condition"]


@pytest.mark.parametrize("bug", BUGS)
def test_verify_of_the_compile_sees_a_planted_bug(
    bug: str, model: str, capsys: pytest.CaptureFixture[str]
) -> None:
    others = [word for name in BUGS.values() if name != BUGS[bug] for word in ("--disable", name)]
    assert (
        run(["compile", model, "-o", "out.onnx", "--vendors", str(PLANTED), "--verify", *others])
        == 6
    )
    assert "the numbers differ" in capsys.readouterr().err


def test_right_passes_are_left_in_peace(low: str) -> None:
    actual = bisect(low, only("none"))
    assert (actual.wrong, actual.captured, actual.rewrites, actual.model_runs) == (None, None, 8, 1)


def test_of_several_bugs_a_step_from_right_to_wrong_is_found(low: str) -> None:
    actual = bisect(low, HostOptions(vendors=[PLANTED, RIGHT], plugins=False))
    assert few_enough(actual)
    captured = actual.captured
    assert captured is not None
    limits = {trial.limit: trial.found.equal for trial in actual.trials}
    assert (limits[captured.number - 1], limits[captured.number]) == (True, False)


# -- the command ----------------------------------------------------------------------------------------------------


def command(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, list[str], str]:
    code = run(["bisect", *arguments])
    captured = capsys.readouterr()
    return code, captured.out.splitlines(), captured.err


def small(
    vendors: Any,
    body: str = "a = Relu(x) b = Abs(a) c = Relu(b) y = Neg(c)",
    *,
    new: str = "Softplus",
) -> None:
    """``m.onnx``, and a pass that replaces each of its Relus."""
    onnx.save(parse(f"{HEAD} g (float[n, 3] x) => (float[n, 3] y) {{ {body} }}"), "m.onnx")
    vendors.write("acme/a.py", "print('a vendor prints')\n", vendors.swap("Turn", "Relu", new))


def test_the_command_says_what_and_where_and_leaves_files_that_run_alone(
    vendors: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    small(vendors)
    code, out, err = command(capsys, "m.onnx")
    assert code == 6
    line = f"{vendors.root}/acme/custom_fusion_passes/a.py:4"
    assert err.splitlines()[-1] == (
        f'gehost: m.onnx: rewrite 1 of 2 changes the numbers: Turn ({line}) at Relu "a", which became Softplus "Turn_Softplus_0"'
    )
    assert out[0].startswith("all rewrites: differ: y[")
    assert out[-3] == "4 model runs for 2 rewrites"
    assert (
        out[-1]
        == "it is in m.bisect: gehost verify m.bisect/before.onnx m.bisect/after.onnx --feeds m.bisect/feeds.npz"
    )
    assert (
        run(
            [
                "verify",
                "m.bisect/before.onnx",
                "m.bisect/after.onnx",
                "--feeds",
                "m.bisect/feeds.npz",
            ]
        )
        == 6
    )
    readme = Path("m.bisect/README.md").read_text()
    assert "gehost verify before.onnx after.onnx --feeds feeds.npz" in readme
    assert "the values that their inputs had in the run that differed" in readme
    assert load_feeds("m.bisect/feeds.npz").keys() == {"x"}


def test_a_right_compile_ends_with_0_and_writes_nothing(
    vendors: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    small(vendors, new="LeakyRelu", body="a = Abs(x) b = Relu(a) y = Neg(b)")
    code, out, _ = command(capsys, "m.onnx")
    assert (code, out[-1]) == (0, "m.onnx: the numbers are right with all rewrites done")
    assert not Path("m.bisect").exists()


def test_an_older_reproducer_is_kept(vendors: Any, capsys: pytest.CaptureFixture[str]) -> None:
    small(vendors)
    Path("m.bisect").mkdir()
    Path("m.bisect/mine").write_text("mine")
    assert command(capsys, "m.onnx")[0] == 6
    assert {path.name for path in Path("m.bisect-2").iterdir()} == {
        "before.onnx",
        "after.onnx",
        "feeds.npz",
        "README.md",
    }
    code, out, err = command(capsys, "m.onnx", "-o", "m.bisect")
    assert (code, out) == (2, [])
    assert "exists already" in err
    assert [path.name for path in Path("m.bisect").iterdir()] == ["mine"]
    assert command(capsys, "m.onnx", "-o", "no/where")[0] == 2


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["none.onnx"], 3, "none.onnx"),
        (["m.onnx", "--feeds", "m.onnx"], 2, "not an .npz file"),
        (["m.onnx", "--disable", "Trun"], 2, "Turn"),
        (["m.onnx", "--rtol", "-1"], 2, "tolerance"),
    ],
)
def test_wrong_use_is_told_in_one_line(
    arguments: Sequence[str], code: int, said: str, vendors: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    small(vendors)
    actual, out, err = command(capsys, *arguments)
    *printed, line = err.splitlines()
    assert (actual, out, set(printed) - {"a vendor prints"}) == (code, [], set())
    assert said in line


def test_the_tolerance_and_feeds_of_the_caller_count(
    vendors: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    small(vendors)
    assert command(capsys, "m.onnx", "--atol", "10")[0] == 0
    np.savez("large.npz", x=np.full((2, 3), 100, np.float32))  # where both functions agree
    small(vendors, body="y = Relu(x)")
    assert command(capsys, "m.onnx", "--feeds", "large.npz")[0] == 0
    np.savez("small.npz", x=np.full((2, 3), -1, np.float32))
    assert command(capsys, "m.onnx", "--feeds", "small.npz")[0] == 6
    assert load_feeds("m.bisect/feeds.npz")["x"].tolist() == [[-1] * 3] * 2


def test_the_values_are_of_the_feed_whose_numbers_differ(vendors: Any) -> None:
    small(vendors)
    feeds = [
        {"x": np.full((2, 3), value, np.float32)} for value in (100, -1)
    ]  # both functions agree on the first
    captured = bisect("m.onnx", vendors.host().options, feeds=feeds).captured
    assert captured is not None
    assert captured.feeds["x"].tolist() == [[-1] * 3] * 2


def test_the_values_are_of_the_feed_on_which_the_model_does_not_run(vendors: Any) -> None:
    small(vendors, body="y = Neg(x)")
    two_rows = "es.Mul(builder.CreateInput(0), builder.CreateConst([[-1.0] * 3] * 2))"
    code = vendors.swap("Turn", "Neg", "Abs").replace("es.Abs(builder.CreateInput(0))", two_rows)
    vendors.write(
        "acme/a.py", code.replace("    def Patterns", "    shape_proven = True\n\n    def Patterns")
    )
    feeds = [{"x": np.ones((rows, 3), np.float32)} for rows in (2, 5)]
    actual = bisect("m.onnx", vendors.host().options, feeds=feeds)
    assert actual.wrong is not None
    assert actual.wrong.found.failed_feed == 1
    assert actual.captured is not None
    assert actual.captured.feeds["x"].shape == (5, 3)
    assert not actual.captured.right_alone


# -- what is not a rewrite of the main graph ------------------------------------------------------------------------


def test_errors_that_cancel_are_right_in_the_end(vendors: Any) -> None:
    small(vendors, body="a = Relu(x) b = Abs(a) y = Identity(b)", new="Softplus")
    vendors.write("acme/b.py", vendors.swap("Back", "Softplus", "Relu"))
    assert bisect("m.onnx", vendors.host().options).wrong is None


def test_a_match_in_a_body_is_named_with_made_up_feeds(vendors: Any) -> None:
    body = """
        magnitude = Abs(x)
        sum = ReduceSum <keepdims = 0> (magnitude)
        nought = Constant <value = float {0}> ()
        positive = Greater(sum, nought)
        y = If (positive) <
            then_branch = then () => (float[n, 3] a) { r = Relu(x) a = Neg(r) },
            else_branch = other () => (float[n, 3] b) { b = Neg(x) }>
    """
    small(vendors, body=body)
    captured = bisect("m.onnx", vendors.host().options).captured
    assert captured is not None
    assert (captured.inside, captured.nodes) == ("y", (("r", "Relu"),))
    assert "body" in captured.made_up
    assert not captured.compare().equal


def test_a_hook_that_is_wrong_is_told_from_rewrites(vendors: Any) -> None:
    small(vendors, body="a = Relu(x) y = Neg(a)", new="LeakyRelu")
    hook = """
@hookimpl
def gehost_after_infershape(graph):
    (node,) = graph.nodes_of("Neg")
    result = node.outputs[0]
    graph.release(result)
    graph.add_node("Abs", list(node.inputs), [result], after=node)
"""
    vendors.write("acme/b.py", hook)
    vendors.write(
        "acme/c.py", "@hookimpl\ndef gehost_after_builtin_fusion_pass(graph):\n    pass\n"
    )
    actual = bisect("m.onnx", vendors.host().options)
    assert actual.before_rewrites == "gehost_after_infershape of plugin acme/b, or the load itself"


def test_a_clean_up_that_is_wrong_is_told_from_rewrites(
    vendors: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    small(vendors, body="a = Relu(x) y = LeakyRelu <alpha = 0.5> (a)", new="Abs")

    def wrong(model: Model, *value: Any, **named: Any) -> Any:
        result = clean_up(model, *value, **named)
        model.graph.redirect(model.graph.nodes_of("LeakyRelu")[0].inputs[0], model.graph.inputs[0])
        return result

    monkeypatch.setattr("gehost.host.pipeline.clean_up", wrong)
    vendors.write("acme/a.py", vendors.swap("Right", "Relu", "Elu", meet="return False"))
    actual = bisect("m.onnx", vendors.host(cleanup=True).options)
    assert (actual.before_rewrites, actual.rewrites, actual.model_runs) == (
        "the built-in clean-up",
        0,
        2,
    )


def test_a_pass_that_edits_by_hand_is_named(vendors: Any) -> None:
    small(vendors, body="a = Relu(x) y = LeakyRelu <alpha = 0.5> (a)", new="Abs")
    vendors.write("acme/a.py", vendors.swap("Right", "Relu", "Relu"))
    by_hand = """
@REG_FUSION_PASS
class ByHand(FusionBasePass):
    def Run(self, graph, context):
        (node,) = graph.nodes_of("Relu")
        graph.set_input(graph.nodes_of("LeakyRelu")[0], 0, node.inputs[0])
"""
    vendors.write("acme/b.py", by_hand)
    actual = bisect("m.onnx", vendors.host().options)
    assert actual.captured is None
    assert [name.partition(" ")[0] for name in actual.by_hand] == ["ByHand"]


def test_a_rewrite_that_is_right_alone_is_not_blamed_for_a_pass_that_edits_by_hand(
    vendors: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    small(vendors, body="a = Relu(x) b = Abs(a) c = Neg(x) y = Add(b, c)")
    by_hand = """
@REG_FUSION_PASS
class ByHand(FusionBasePass):
    def Run(self, graph, context):
        (node,) = graph.nodes_of("Add")
        graph.set_input(node, 1, graph.inputs[0])
"""
    vendors.write(
        "acme/a.py",
        by_hand,
        vendors.swap("Right", "Abs", "Relu", stage="kAfterOriginGraphOptimize"),
    )
    code, out, err = command(capsys, "m.onnx")
    assert code == 6
    headline = err.splitlines()[-1]
    assert "m.onnx: the numbers are wrong after rewrite 1 of 1: Right (" in headline
    assert "; alone the rewrite is right within the tolerance, so it may be ByHand (" in headline
    assert (
        "), which edited the graph directly in the same step, or later nodes on the way to the outputs"
        in headline
    )
    assert out[-3:-1] == [
        "3 model runs for 1 rewrite",
        f"the match alone: equal: 1 feed, 1 output, no difference; computed by {engine_name('onnxruntime')}",
    ]


@pytest.mark.parametrize("relus", [2, 4])
def test_a_clean_up_that_is_wrong_after_a_right_rewrite_is_told(
    relus: int, vendors: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    body = " ".join(f"a{i + 1} = Relu(a{i})" for i in range(relus))
    small(vendors, body=f"a0 = Exp(x) {body} y = Neg(a{relus})", new="Abs")

    def wrong(model: Model, *value: Any, **named: Any) -> Any:
        result = clean_up(model, *value, **named)
        if model.graph.nodes_of("Abs"):
            model.graph.set_input(model.graph.nodes_of("Neg")[0], 0, model.graph.inputs[0])
        return result

    monkeypatch.setattr("gehost.host.pipeline.clean_up", wrong)
    assert few_enough(bisect("m.onnx", vendors.host(cleanup=True).options))
    decided = "; alone the rewrite is right within the tolerance, and so are the numbers without the clean-up"
    left_open = "so it may be the clean-up, for which no run was left: try --no-cleanup"
    assert {2: left_open, 4: decided}[relus] in command(capsys, "m.onnx")[2]


def test_a_hook_that_spoils_what_a_right_rewrite_made_is_a_suspect(vendors: Any) -> None:
    small(vendors, body="a = Exp(x) b = Relu(a) y = Neg(b)", new="Abs")
    hook = """
@hookimpl
def gehost_after_origin_graph_optimize(graph):
    if graph.nodes_of("Abs"):
        graph.set_input(graph.nodes_of("Neg")[0], 0, graph.inputs[0])
"""
    vendors.write("acme/b.py", hook)
    actual = bisect("m.onnx", vendors.host().options)
    assert actual.captured is not None
    assert actual.captured.right_alone
    assert actual.suspects == ("gehost_after_origin_graph_optimize of plugin acme/b",)


def test_keep_going_has_no_same_rewrites(vendors: Any) -> None:
    with pytest.raises(UsageError, match="keep_going"):
        bisect("m.onnx", vendors.host(keep_going=True).options)


# -- the two models of a match --------------------------------------------------------------------------------------


def test_function_bodies_go_with_the_match(vendors: Any) -> None:
    small(vendors, body="a = Relu(x) y = Neg(a)")
    operator = """
@ops.register("acme::Wrong")
def wrong(x):
    return es.Softplus(x)
"""
    vendors.write("acme/a.py", operator, vendors.swap("Turn", "Relu", "Wrong"))
    captured = bisect("m.onnx", vendors.host().options).captured
    assert captured is not None
    assert [function.name for function in captured.after.functions] == ["Wrong"]
    assert not captured.before.functions
    onnx.checker.check_model(captured.after)
    alone = captured.compare()
    assert (alone.equal, alone.error) == (False, None)


def test_a_forwarded_input_gives_the_output_of_the_match(vendors: Any) -> None:
    small(vendors, body="a = Neg(x) b = Relu(a) y = Neg(b)")
    vendors.write("acme/a.py", FORWARD)
    captured = bisect("m.onnx", vendors.host().options).captured
    assert captured is not None
    assert [node.op_type for node in captured.after.graph.node] == ["Identity"]
    assert [entry.name for entry in captured.after.graph.output] == ["b"]
    assert not captured.compare().equal


FORWARD = """
@REG_FUSION_PASS
class Forward(PatternFusionPass):
    def Patterns(self):
        builder = EsGraphBuilder("p")
        return [Pattern(builder.BuildAndReset([es.Relu(builder.CreateInput(0))]))]

    def Replacement(self, match):
        builder = EsGraphBuilder("r")
        return builder.BuildAndReset([builder.CreateInput(0)])
"""


def test_external_weights_stay_external_and_those_of_the_match_go_with_it(
    vendors: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    source = Path(__file__).parents[2] / "models" / "external.onnx"
    code, out, _ = command(capsys, str(source), "--vendors", str(PLANTED), "-o", "found")
    assert code == 6
    (data,) = Path("found").glob("before.onnx.*.data")
    assert data.stat().st_size < Path(f"{source}.data").stat().st_size
    assert "dropped_bias.py" in Path("found/README.md").read_text()
    assert not compare(
        "found/before.onnx", "found/after.onnx", [load_feeds("found/feeds.npz")]
    ).equal
    assert out[-2].startswith("the match alone: differ")


def test_the_compile_of_the_search_is_that_of_the_host(low: str) -> None:
    """A limit of all rewrites is the whole compile, so the search may start from it."""
    proto = onnx.load(low)
    whole, report = Host(only("dropped_bias")).run(proto)
    count = sum(record.replaced for record in report.passes)
    limited, _ = Host(HostOptions(**{**vars(only("dropped_bias")), "rewrite_limit": count})).run(
        proto
    )
    assert whole.SerializeToString(deterministic=True) == limited.SerializeToString(
        deterministic=True
    )


def test_a_class_that_is_not_registered_is_a_note(model: str, vendors: Any) -> None:
    bare = vendors.swap("Bad", "Abs", "Relu").replace("@REG", "# @REG")
    vendors.write("acme/a.py", vendors.swap("A", "Erf", "Relu"), bare)
    notes: list[str] = []
    bisect(model, HostOptions(vendors=[vendors.root], plugins=False), on_note=notes.append)
    assert [note.partition(": ")[2].partition(";")[0] for note in notes] == [
        "Bad is not registered"
    ]
