"""The assertions that authors test with: each holds where it should, and says what is wrong where it does not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from gehost import (
    REG_FUSION_PASS,
    CustomPassStage,
    DecomposePass,
    EsGraph,
    EsGraphBuilder,
    FusionBasePass,
    PassRegistry,
    PassSpec,
    Pattern,
    PatternFusionPass,
    PatternMatcher,
    VendorError,
    es,
    hookimpl,
)
from gehost.testing import (
    assert_equal_numbers,
    assert_fuses,
    assert_refuses,
    assert_rewrites,
    graph_of,
    parse,
    random_weights,
    report_of,
    run_pass,
)
from tests.conftest import Vendors

HEAD = '<ir_version: 8, opset_import: ["" : 17]> main '
TWICE = HEAD + "(float[2] x) => (float[2] y) { a = Neg(x) y = Neg(a) }"
ONCE = HEAD + "(float[2] x) => (float[2] y) { y = Identity(x) }"


def unary(*ops: str) -> EsGraph:
    builder = EsGraphBuilder("unary")
    (tensor,) = builder.CreateInputs(1)
    for op in ops:
        tensor = es.op(op)(tensor)
    return builder.BuildAndReset([tensor])


class RemoveNegPairPass(PatternFusionPass):
    def Patterns(self) -> Any:
        return [Pattern(unary("Neg", "Neg"))]

    def MeetRequirements(self, match: Any) -> Any:
        return match.inputs[0].rank == 1 or match.reject("rank: only vectors")

    def Replacement(self, match: Any) -> Any:
        return unary("Identity")


class Wrong(RemoveNegPairPass):
    def Replacement(self, match: Any) -> Any:
        return unary("Abs")


class Restless(RemoveNegPairPass):
    """Makes what it looks for, once a run."""

    def MeetRequirements(self, match: Any) -> Any:
        return match.GetMatchedNodes()[0].generation == 0

    def Replacement(self, match: Any) -> Any:
        return unary("Neg", "Identity", "Neg", "Neg", "Neg")


def says(message: str) -> Any:
    return pytest.raises(AssertionError, match=message)


def test_assert_rewrites() -> None:
    result = assert_rewrites(TWICE, RemoveNegPairPass, ONCE)
    assert [node.op_type for node in result.graph.node] == ["Identity"]
    with says(r"wanted 2 rewrites, got 1; refused: {}"):
        assert_rewrites(TWICE, RemoveNegPairPass, ONCE, count=2)
    with says(r'"y": wanted Identity of 1 inputs, got Abs of 1'):
        assert_rewrites(TWICE, Wrong, ONCE)


def test_a_second_run_must_change_nothing() -> None:
    expected = (
        HEAD
        + "(float[2] x) => (float[2] y) { a = Neg(x) b = Identity(a) c = Neg(b) d = Neg(c) y = Neg(d) }"
    )
    with says("a second run rewrites again, 1 times|a second run rewrites again, 2 times"):
        assert_rewrites(TWICE, Restless, expected)
    with says("a second run rewrites again"):
        assert_fuses(TWICE, Restless)


def test_assert_refuses() -> None:
    matrix = TWICE.replace("float[2]", "float[2, 2]")
    record = assert_refuses(matrix, RemoveNegPairPass, "rank")
    assert record.rejected == {"rank": 1}
    with says(r'wanted "dtype", got 0; refused: {\'rank\': 1}'):
        assert_refuses(matrix, RemoveNegPairPass, "dtype")
    with says(r"wanted no match, got 1"):
        assert_refuses(matrix, RemoveNegPairPass)
    with says(r"wanted no rewrite, got 1"):
        assert_refuses(TWICE, RemoveNegPairPass, "rank")
    assert_refuses(HEAD + "(float[2] x) => (float[2] y) { y = Neg(x) }", RemoveNegPairPass)


def test_assert_refuses_where_a_pass_does_not_apply() -> None:
    class Gelus(RemoveNegPairPass):
        def Patterns(self) -> Any:
            return [Pattern(unary("Gelu"))]

    assert_refuses(TWICE, Gelus, "needs opset 20")
    with says('wanted "rank", got "Gelu'):
        assert_refuses(TWICE, Gelus, "rank")


def test_assert_fuses_compares_numbers() -> None:
    assert_fuses(TWICE, RemoveNegPairPass)
    with says("differ: y"):
        assert_fuses(TWICE, Wrong)
    with says("wanted 3 rewrites, got 1"):
        assert_fuses(TWICE, RemoveNegPairPass, 3)


def test_assert_equal_numbers_on_feeds_and_tolerances() -> None:
    before, after = parse(TWICE), parse(TWICE.replace("Neg(a)", "Abs(a)"))
    assert_equal_numbers(before, after, [{"x": np.array([1, 2], np.float32)}])
    with says("differ: y"):
        assert_equal_numbers(before, after, [{"x": np.array([-1, 2], np.float32)}])
    assert_equal_numbers(before, after, [{"x": np.array([-1, 2], np.float32)}], atol=2.0, rtol=0.0)


# -- comparing graphs -----------------------------------------------------------------------------------------------


class Nothing(FusionBasePass):
    """Rewrites nothing, so that ``assert_rewrites`` compares two models."""

    def Run(self, graph: Any, context: Any) -> Any:
        return None


SAME = (
    HEAD
    + "(float[2] x) => (float[2] y) <float[2] w = {1, 2}> { a = Add(x, w) b = LeakyRelu <alpha = 0.5> (a) y = Mul(a, b) }"
)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({}, ""),
        ({" a = ": " other = ", "(a": "(other"}, ""),
        ({"float[2] x": "float[2] z", "Add(x": "Add(z"}, r"inputs: wanted \['z'\], got \['x'\]"),
        (
            {"float[2] y": "float[2] z", "y = Mul": "z = Mul"},
            r"outputs: wanted \['z'\], got \['y'\]",
        ),
        ({"{1, 2}": "{1, 3}"}, 'constant "w": wanted array'),
        ({"float[2] w": "double[2] w"}, 'constant "w": wanted array'),
        ({"0.5": "0.25"}, 'attributes of LeakyRelu at "b": wanted .*0.25.*, got .*0.5'),
        ({"Mul(a, b)": "Mul(b, a)"}, '"b": wanted LeakyRelu of 1 inputs, got Add of 2'),
        ({"Mul(a, b)": "Mul(a, a)"}, '"a": wanted one tensor in two places, got another at "b"'),
        ({"y = Mul": "dead = Abs(a) y = Mul"}, "nodes: wanted .*Abs"),
        ({"Add(x, w)": "Add(x, x)"}, '"x": wanted one tensor in two places, got another at "w"'),
        ({"Add(x, w)": "Add(w, w)"}, '"w": wanted constant "w", got input "x"'),
        (
            {"LeakyRelu <alpha = 0.5> (a)": "Clip(a, , x)"},
            "wanted Clip of 3 inputs, got LeakyRelu of 1",
        ),
    ],
)
def test_two_graphs_are_the_same_up_to_inner_names(changes: dict[str, str], message: str) -> None:
    expected = SAME
    for old, new in changes.items():
        assert old in expected
        expected = expected.replace(old, new)
    proto = onnx.parser.parse_model(expected)
    if not message:
        assert_rewrites(SAME, Nothing, proto, count=0)
    else:
        with says(message):
            assert_rewrites(SAME, Nothing, proto, count=0)


def test_an_absent_input_is_not_a_present_one() -> None:
    model = HEAD + "(float[2] x, float low, float high) => (float[2] y) { y = Clip(x, low, high) }"
    with says("an input of Clip is absent on one side"):
        assert_rewrites(model, Nothing, model.replace("Clip(x, low", "Clip(x, "), count=0)


def test_long_chains_are_no_problem() -> None:
    steps = " ".join(f"t{k + 1} = Abs(t{k})" for k in range(3000))
    model = HEAD + f"(float[2] t0) => (float[2] t3000) {{ {steps} }}"
    assert_rewrites(model, Nothing, model, count=0)


# -- models and passes ----------------------------------------------------------------------------------------------


def test_weights_take_the_place_of_inputs_that_the_text_declares_or_not() -> None:
    weights = random_weights({"w": (3, 2), "v": (2,)})
    model = parse(
        HEAD
        + "(float[1, 3] x, float[3, 2] w) => (float[1, 2] y) { a = MatMul(x, w) y = Add(a, v) }",
        weights,
    )
    assert [entry.name for entry in model.graph.input] == ["x"]
    assert [tensor.name for tensor in model.graph.initializer] == ["w", "v"]
    assert len(np.unique(np.concatenate([array.ravel() for array in weights.values()]))) == 8
    again = random_weights({"w": (3, 2), "v": (2,)})
    assert all(np.array_equal(weights[name], again[name]) for name in weights)
    assert random_weights({"w": (2,)}, seed=1, dtype=np.float64)["w"].dtype == np.float64


def test_a_graph_to_try_a_matcher_on() -> None:
    matcher = PatternMatcher(Pattern(unary("Neg")), graph_of(TWICE))
    assert [match.GetMatchedNodes()[0].label for match in matcher] == ["a", "y"]


def test_run_pass_takes_a_class_as_it_is_registered() -> None:
    @REG_FUSION_PASS(stage=CustomPassStage.kAfterOriginGraphOptimize, name="Named", max_opset=16)
    class Marked(RemoveNegPairPass):
        pass

    _, record = run_pass(TWICE, Marked)
    assert (record.name, record.stage, record.status) == (
        "Named",
        "kAfterOriginGraphOptimize",
        "not applicable",
    )
    _, record = run_pass(TWICE, RemoveNegPairPass)
    assert (record.name, record.stage, record.origin) == (
        "RemoveNegPairPass",
        "kAfterInferShape",
        f"{__file__}:1",
    )


def test_run_pass_refuses_a_class_that_lacks_a_method() -> None:
    class Half(DecomposePass):
        pass

    with pytest.raises(VendorError, match=f"^{__file__}:1: Half does not define Replacement"):
        run_pass(TWICE, Half)


def test_run_pass_takes_the_name_of_a_vendors_pass_and_runs_that_alone(vendors: Any) -> None:
    vendors.write("acme/a.py", vendors.swap("One", "Neg", "Abs"), vendors.swap("Two", "Abs", "Sin"))
    result, record = run_pass(TWICE, "One", vendors=vendors.root)
    assert [node.op_type for node in result.graph.node] == ["Abs", "Abs"]
    assert record.replaced == 2
    result, _ = run_pass(TWICE, RemoveNegPairPass, vendors=vendors.root)
    assert [node.op_type for node in result.graph.node] == ["Identity"]
    result, _ = run_pass(TWICE, RemoveNegPairPass, cleanup=True)
    assert [node.op_type for node in result.graph.node] == ["Identity"]
    with says(r"no pass Three below .*; there are One, Two"):
        run_pass(TWICE, "Three", vendors=vendors.root)


def test_passes_may_be_below_several_directories_of_vendors(vendors: Any, tmp_path: Path) -> None:
    vendors.write("acme/a.py", vendors.swap("One", "Neg", "Abs"))
    other = Vendors(tmp_path / "others")
    other.write("zeta/b.py", vendors.swap("Two", "Neg", "Sin"))
    roots = [vendors.root, str(other.root)]
    for name, op in (("One", "Abs"), ("Two", "Sin")):
        result, _ = run_pass(TWICE, name, vendors=roots)
        assert [node.op_type for node in result.graph.node] == [op, op]
    _, report = report_of(TWICE, roots)
    assert [record.name for record in report.passes] == ["One", "Two"]
    with says(r"no pass Three below .*vendors, .*others; there are One, Two"):
        run_pass(TWICE, "Three", vendors=roots)


def test_vendors_are_loaded_once_and_again_when_a_file_changes(vendors: Any) -> None:
    file = vendors.write("acme/a.py", vendors.swap("One", "Neg", "Abs"))
    helper = vendors.write_raw("acme/custom_fusion_passes/_loads.py", "")
    origins = file.parent / "loads.txt"
    note = f"with open({str(origins)!r}, 'a') as log: log.write('+')"
    file.write_text(f"{file.read_text()}\n{note}\n")
    for new, loads in (("Abs", "+"), ("Abs", "+"), ("Sin", "++"), ("Sin", "++")):
        text = file.read_text().replace("es.Abs", f"es.{new}")
        if text != file.read_text():
            file.write_text(f"{text}\n")
        result, _ = run_pass(TWICE, "One", vendors=vendors.root)
        assert [node.op_type for node in result.graph.node] == [new, new]
        assert origins.read_text() == loads
    helper.write_text("# changed")
    run_pass(TWICE, "One", vendors=vendors.root)
    assert origins.read_text() == "+++"
    vendors.write("acme/b.py", vendors.swap("Two", "Neg", "Exp"))
    result, _ = run_pass(TWICE, "Two", vendors=vendors.root)
    assert [node.op_type for node in result.graph.node] == ["Exp", "Exp"]


def test_two_classes_of_one_name_do_not_share_what_was_loaded() -> None:
    def swap(new: str) -> type[FusionBasePass]:
        class Swap(RemoveNegPairPass):
            def Patterns(self) -> list[Pattern]:
                return [Pattern(unary("Neg"))]

            def Replacement(self, match: Any) -> EsGraph:
                return unary(new)

        return Swap

    for new in ("Abs", "Sin", "Abs"):
        result, _ = run_pass(TWICE, swap(new))
        assert [node.op_type for node in result.graph.node] == [new, new]


def test_a_pass_under_test_does_not_stay_in_the_host(vendors: Any) -> None:
    @REG_FUSION_PASS
    class One(RemoveNegPairPass):
        pass

    run_pass(TWICE, One)
    vendors.write("acme/a.py", vendors.swap("One", "Neg", "Abs"))
    with pytest.raises(VendorError, match="a pass called One is registered already"):
        run_pass(TWICE, One, vendors=vendors.root)
    _, record = run_pass(TWICE, One)
    assert record.replaced == 1


def test_report_of_runs_all_passes(vendors: Any) -> None:
    vendors.write("acme/a.py", vendors.swap("One", "Neg", "Abs"), vendors.swap("Two", "Abs", "Sin"))
    result, report = report_of(TWICE, vendors.root, cleanup=False)
    assert [node.op_type for node in result.graph.node] == ["Sin", "Sin"]
    assert [record.replaced for record in report.passes] == [2, 2]


def test_run_pass_loads_the_installed_plugins_unless_given_others(vendors: Any) -> None:
    rule = """
        from gehost_drr import drr

        @drr.rule()
        def once(pat, res):
            pat.y = pat.Neg(pat.Neg(pat.x))
            res.y = res.Identity(res.x)
    """
    vendors.write("acme/rule.py", rule)
    _, record = run_pass(TWICE, "once", vendors=vendors.root)
    assert (record.kind, record.replaced) == ("drr", 1)
    with pytest.raises(AssertionError, match="no pass once below"):
        run_pass(TWICE, "once", vendors=vendors.root, plugins=[])


def test_run_pass_asks_plugins_for_passes_of_other_styles(vendors: Any) -> None:
    class Style:
        @hookimpl
        def gehost_collect_passes(self, module: Any, registry: PassRegistry) -> None:
            stage, origin = CustomPassStage.kAfterInferShape, f"{module.__file__}:1"
            registry.add(PassSpec(module.CLAIMED, stage, origin, "other", RemoveNegPairPass))

    vendors.write("acme/a.py", "CLAIMED = 'Claimed'")
    _, record = run_pass(TWICE, "Claimed", vendors=vendors.root, plugins=[("style", Style())])
    assert (record.kind, record.replaced) == ("other", 1)
