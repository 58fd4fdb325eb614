"""Rules on the live graph: what is offered, refused, counted, replaced, and when it ends."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import onnx
import pytest

from gehost import (
    REG_DECOMPOSE_PASS,
    CustomPassStage,
    DecomposePass,
    EsGraph,
    EsGraphBuilder,
    PassError,
    Pattern,
    PatternError,
    PatternFusionPass,
    Refusal,
    es,
)
from gehost.passes.driver import as_graph
from gehost.pattern.lower import LoweredPattern
from gehost.refusal import Refused
from gehost.testing import assert_equal_numbers, assert_refuses, assert_rewrites, parse, run_pass

CHAIN = """<ir_version: 8, opset_import: ["" : 17]>
main (float[2] x) => (float[2] y) {
    a = Relu(x)
    b = Abs(a)
    c = Relu(b)
    y = Neg(c)
}"""


def unary(*ops: str) -> EsGraph:
    """A graph that applies ``ops`` one after another to its input."""
    builder = EsGraphBuilder("unary")
    (tensor,) = builder.CreateInputs(1)
    for op in ops:
        tensor = es.op(op)(tensor)
    return builder.BuildAndReset([tensor])


class ReluToSigmoid(PatternFusionPass):
    def Patterns(self) -> Any:
        return [Pattern(unary("Relu"))]

    def Replacement(self, match: Any) -> Any:
        return unary("Sigmoid")


def op_types(model: Any) -> list[str]:
    return [node.op_type for node in model.graph.node]


def test_a_replacement_depends_on_the_alternative_that_was_found() -> None:
    class NegatedRelu(PatternFusionPass):
        def Patterns(self) -> Any:
            builder = EsGraphBuilder("negated")
            x = builder.CreateInput(0)
            self.abs = es.Abs(x)
            return Pattern(builder.BuildAndReset(-es.Relu(es.Alternatives(self.abs, x))))

        def Replacement(self, match: Any) -> Any:
            return unary("Abs", "Neg") if match.has(self.abs) else unary("Exp")

    text = """<ir_version: 8, opset_import: ["" : 17]>
    main (float[2] x, float[2] z) => (float[2] y, float[2] w) {
        a = Abs(x) b = Relu(a) y = Neg(b)
        c = Relu(z) w = Neg(c)
    }"""
    result, _ = run_pass(text, NegatedRelu)
    assert op_types(result) == ["Abs", "Neg", "Exp"]


def test_a_forwarded_tensor_makes_a_match_of_old_nodes() -> None:
    class Forwarding(PatternFusionPass):
        def Patterns(self) -> Any:
            return Pattern(unary("Neg", "Abs"))

        def Replacement(self, match: Any) -> Any:
            return EsGraphBuilder("forwarding").CreateInput(0)

    text = """<ir_version: 8, opset_import: ["" : 17]>
    main (float[2] x) => (float[2] y, float[2] z) {
        a = Neg(x) b = Neg(a) c = Abs(b) d = Abs(c) y = Relu(d)
        e = Abs(x) f = Abs(e) g = Abs(f) z = Abs(g)
    }"""
    result, record = run_pass(text, Forwarding)
    assert record.replaced == 2, "d reads a once c has gone"
    assert op_types(result) == ["Relu", "Abs", "Abs", "Abs", "Abs"]


# -- counting -------------------------------------------------------------------------------------------------------


def test_matches_are_offered_in_topological_order_and_counted() -> None:
    offered: list[str] = []

    class Choosy(ReluToSigmoid):
        def MeetRequirements(self, match: Any) -> Any:
            (node,) = match.GetMatchedNodes()
            offered.append(node.label)
            return len(offered) > 1 or match.reject("first: not this one: at all")

    result, record = run_pass(CHAIN, Choosy)
    assert offered == ["a", "c"]
    assert (record.matched, record.replaced, record.rejected, record.status) == (
        2,
        1,
        {"first": 1},
        "done",
    )
    assert op_types(result) == ["Relu", "Abs", "Sigmoid", "Neg"]


@pytest.mark.parametrize(
    ("answer", "key"),
    [
        (False, "MeetRequirements"),
        (np.bool_(False), "MeetRequirements"),
        (None, "MeetRequirements returned None"),
        (Refusal.of("rank: 3 is too much"), "rank"),
        (Refusal.of("no colon"), "no colon"),
        (Refusal.of(""), "unspecified"),
        (Refusal.of(": text"), "unspecified"),
    ],
)
def test_a_refusal_is_counted_by_the_text_before_the_first_colon(answer: Any, key: str) -> None:
    class Refusing(ReluToSigmoid):
        def MeetRequirements(self, match: Any) -> Any:
            return answer

    record = assert_refuses(CHAIN, Refusing, key)
    assert record.rejected == {key: 2}
    assert record.status == "not changed"


@pytest.mark.parametrize("answer", [True, np.bool_(True), 1])
def test_true_in_any_guise_accepts(answer: Any) -> None:
    class Accepting(ReluToSigmoid):
        def MeetRequirements(self, match: Any) -> Any:
            return answer

    assert run_pass(CHAIN, Accepting)[1].replaced == 2


def test_a_replacement_that_may_not_stand_there_is_counted_as_a_refusal() -> None:
    class Widening(ReluToSigmoid):
        def Replacement(self, match: Any) -> Any:
            builder = EsGraphBuilder("widening")
            x = builder.CreateInput(0)
            return builder.BuildAndReset([es.Concat(x, x, axis=0)])

    _, record = run_pass(CHAIN, Widening)
    assert (record.matched, record.replaced, record.status) == (2, 0, "not changed")
    assert sum(record.rejected.values()) == 2


# -- patterns -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("wrap", [list, tuple, iter, lambda patterns: patterns[0]])
def test_patterns_may_come_in_any_container(wrap: Any) -> None:
    class Wrapped(ReluToSigmoid):
        def Patterns(self) -> Any:
            return wrap([Pattern(unary("Relu"))])

    assert run_pass(CHAIN, Wrapped)[1].replaced == 2


def test_patterns_run_in_their_order_and_the_first_takes_what_overlaps() -> None:
    class Both(PatternFusionPass):
        def Patterns(self) -> Any:
            return [Pattern(unary("Relu", "Neg")), Pattern(unary("Relu"))]

        def Replacement(self, match: Any) -> Any:
            return unary("Sigmoid") if len(match.GetMatchedNodes()) == 2 else unary("Tanh")

    result, record = run_pass(CHAIN, Both)
    assert op_types(result) == ["Tanh", "Abs", "Sigmoid"]
    assert (record.matched, record.replaced) == (2, 2)


def test_a_pattern_is_worked_out_where_the_graph_has_its_operators(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    worked_out: list[str] = []
    build = LoweredPattern._op
    monkeypatch.setattr(
        LoweredPattern, "_op", lambda *args: worked_out.append("Relu") or build(*args)
    )
    assert run_pass(CHAIN.replace("Relu", "Sin"), ReluToSigmoid)[1].replaced == 0
    assert worked_out == []
    assert run_pass(CHAIN, ReluToSigmoid)[1].replaced == 2
    assert worked_out == ["Relu"]


def test_new_nodes_are_candidates_again() -> None:
    class Shorten(PatternFusionPass):
        def Patterns(self) -> Any:
            return [Pattern(unary("Relu", "Relu"))]

        def Replacement(self, match: Any) -> Any:
            return unary("Relu")

    long = """<ir_version: 8, opset_import: ["" : 17]>
    main (float[2] x) => (float[2] y) { a = Relu(x) b = Relu(a) c = Relu(b) d = Relu(c) y = Relu(d) }"""
    short = """<ir_version: 8, opset_import: ["" : 17]> main (float[2] x) => (float[2] y) { y = Relu(x) }"""
    assert_rewrites(long, Shorten, short, count=4)


def test_new_nodes_come_before_the_old_ones_that_stand_later() -> None:
    offered: list[str] = []

    class Watch(ReluToSigmoid):
        def MeetRequirements(self, match: Any) -> Any:
            (node,) = match.GetMatchedNodes()
            offered.append("new" if node.generation else node.label)
            return not node.generation

        def Replacement(self, match: Any) -> Any:
            return unary("Abs", "Relu")

    run_pass(CHAIN, Watch)
    assert offered == ["a", "new", "c", "new"]


def test_bottom_up_matches_are_taken_from_outputs_to_inputs_and_those_of_the_start_alone() -> None:
    names: list[str] = []

    class NegToTwo(PatternFusionPass):
        bottom_up = True

        def Patterns(self) -> Any:
            return [Pattern(unary("Neg"))]

        def MeetRequirements(self, match: Any) -> Any:
            names.append(match.outputs[0].name)
            return True

        def Replacement(self, match: Any) -> Any:
            return unary("Neg", "Abs")

    text = """<ir_version: 8, opset_import: ["" : 17]> main (float[2] x) => (float[2] y) { a = Neg(x) b = Neg(a) y = Neg(b) }"""
    result, record = run_pass(text, NegToTwo)
    assert names == ["y", "b", "a"]
    assert (record.replaced, op_types(result)) == (3, ["Neg", "Abs"] * 3)


def test_a_node_that_an_earlier_match_took_is_no_candidate_any_more() -> None:
    class Pair(PatternFusionPass):
        def Patterns(self) -> Any:
            builder = EsGraphBuilder("pair")
            x = builder.CreateInput(0)
            return [Pattern(builder.BuildAndReset([es.Relu(x), es.Relu(x)]))]

        def Replacement(self, match: Any) -> Any:
            builder = EsGraphBuilder("pair")
            x = builder.CreateInput(0)
            return builder.BuildAndReset([es.Abs(x), es.Neg(x)])

    model = """<ir_version: 8, opset_import: ["" : 17]>
    main (float[2] x) => (float[2] p, float[2] q, float[2] r) { p = Relu(x) q = Relu(x) r = Relu(x) }"""
    result, record = run_pass(model, Pair)
    assert (record.matched, record.replaced) == (1, 1)
    assert op_types(result) == ["Abs", "Neg", "Relu"]


def test_a_match_that_another_reader_blocked_is_tried_again_once_the_reader_is_gone() -> None:
    offered: list[str] = []

    class Merge(PatternFusionPass):
        def Patterns(self) -> Any:
            return [Pattern(unary("Relu", "Neg"))]

        def Replacement(self, match: Any) -> Any:
            offered.append(match.outputs[0].name)
            builder = EsGraphBuilder("merge")
            x = builder.CreateInput(0)
            return builder.BuildAndReset(
                [
                    es.Sigmoid(x)
                    if match.outputs[0].name == "y"
                    else builder.CreateVector([0.5, 0.5])
                ]
            )

    model = """<ir_version: 8, opset_import: ["" : 17]>
    main (float[2] x) => (float[2] y, float[2] z) { r = Relu(x) y = Neg(r) s = Relu(r) z = Neg(s) }"""
    result, record = run_pass(model, Merge)
    assert offered == ["z", "y"], "s = Relu(r) reads r too, until the match at z is gone"
    assert (record.matched, record.replaced) == (2, 2)
    assert sorted(op_types(result)) == ["Identity", "Sigmoid"]


def test_a_match_that_several_readers_block_is_tried_again_once_any_is_gone() -> None:
    class Forward(PatternFusionPass):
        def Patterns(self) -> Any:
            builder = EsGraphBuilder("zero")
            x, b = builder.CreateInputs(2)
            return [Pattern(builder.BuildAndReset(es.Commutative(es.Add(es.Mul(x, 0.0), b))))]

        def Replacement(self, match: Any) -> Any:
            builder = EsGraphBuilder("zero")
            return builder.CreateInputs(2)[1]

    model = """<ir_version: 8, opset_import: ["" : 17]>
    main (float[2] x, float[2] w, float[2] z) => (float[2] y, float[2] o, float[2] m2) <float zero = {0}> {
        m1 = Mul(x, zero) m2 = Mul(w, zero) y0 = Add(m1, m2) y = Abs(y0) m3 = Mul(m1, zero) o0 = Add(m3, z) o = Abs(o0)
    }"""
    result, record = run_pass(model, Forward)
    assert record.replaced == 2
    assert run_pass(result, Forward)[1].replaced == 0


def test_a_tensor_is_not_forwarded_into_a_body_that_hides_its_name() -> None:
    class Twice(PatternFusionPass):
        def Patterns(self) -> Any:
            return [Pattern(unary("Neg", "Neg"))]

        def Replacement(self, match: Any) -> Any:
            return EsGraphBuilder("once").CreateInput(0)

    model = """<ir_version: 8, opset_import: ["" : 17]>
    main (float[2] x, float[2] s, float[3, 2] e) => (float[2] w, float[3, 2] o) {
        q = Neg(x) y = Neg(q)
        w, o = Scan <num_scan_inputs = 1, body = b (float[2] x, float[2] i) => (float[2] v, float[2] u) { v = Add(x, y) u = Add(v, i) }> (s, e)
    }"""
    assert_refuses(model, Twice, "nested")


def test_overloads_of_a_function_are_operators_of_their_own() -> None:
    model = parse(
        """<ir_version: 10, opset_import: ["" : 21, "loc" : 1]>
        main (float[2] x) => (float[2] y, float[2] z) { y = loc.F(x) z = loc.F(x) }
        <domain: "loc", opset_import: ["" : 21]> F (a) => (b) { b = Abs(a) }"""
    )
    other = model.functions.add()
    other.CopyFrom(model.functions[0])
    other.overload, other.node[0].op_type = "o2", "Neg"
    model.graph.node[1].overload = "o2"

    class Plain(PatternFusionPass):
        def Patterns(self) -> Any:
            return [Pattern(unary("loc::F"))]

        def Replacement(self, match: Any) -> Any:
            return unary("Abs")

    class Other(Plain):
        def Patterns(self) -> Any:
            return [Pattern(unary("Neg", "loc::F:o2"))]

        def Replacement(self, match: Any) -> Any:
            return unary("loc::F:o2", "Neg")

    result, _ = run_pass(model, Plain)
    assert [(node.op_type, node.overload) for node in result.graph.node] == [
        ("Abs", ""),
        ("F", "o2"),
    ]
    assert_equal_numbers(model, result)
    negated = onnx.ModelProto()
    negated.CopyFrom(model)
    negated.graph.node.insert(1, onnx.helper.make_node("Neg", ["x"], ["n"]))
    negated.graph.node[2].input[0] = "n"
    result, _ = run_pass(negated, Other)
    assert [(node.op_type, node.overload) for node in result.graph.node] == [
        ("F", ""),
        ("F", "o2"),
        ("Neg", ""),
    ]
    assert_equal_numbers(negated, result)


def test_some_patterns_that_the_opset_lacks_leave_the_others() -> None:
    class NeedsGelu(ReluToSigmoid):
        def Patterns(self) -> Any:
            return [Pattern(unary("Gelu")), Pattern(unary("Relu"))]

    _, record = run_pass(CHAIN, NeedsGelu)
    assert (record.status, record.replaced) == ("done", 2)
    assert re.match("some of its patterns are not applicable: .*Gelu", record.message)


def test_a_pass_of_which_the_opset_lacks_every_pattern_is_not_applicable() -> None:
    class NeedsGelu(ReluToSigmoid):
        def Patterns(self) -> Any:
            return [Pattern(unary("Gelu"))]

    _, record = run_pass(CHAIN, NeedsGelu)
    assert (record.status, record.matched) == ("not applicable", 0)
    assert re.search(r"Gelu.*opset 20.*17", record.message)


# -- what Replacement may return ------------------------------------------------------------------------------------


def test_tensors_of_one_builder_are_a_replacement() -> None:
    class Loose(ReluToSigmoid):
        def Replacement(self, match: Any) -> Any:
            return es.Sigmoid(EsGraphBuilder("loose").CreateInput(0))

    assert run_pass(CHAIN, Loose)[1].replaced == 2


def test_as_graph_takes_the_outputs_in_order_and_nothing_else() -> None:
    builder, other = EsGraphBuilder("one"), EsGraphBuilder("two")
    a, b = builder.CreateInputs(2)
    assert as_graph((b, a)).outputs == [b, a]
    built = unary("Relu")
    assert as_graph(built) is built
    for nonsense in (None, [], (), "ab", 3, [a, None], [a, other.CreateInput(0)], {"a": 1}):
        with pytest.raises(PatternError, match="it must return the result of BuildAndReset"):
            as_graph(nonsense)


# -- nested bodies --------------------------------------------------------------------------------------------------

NESTED = """<ir_version: 8, opset_import: ["" : 17]>
main (bool c, float[2] x) => (float[2] y) {
    r = Relu(x)
    y = If(c) <
        then_branch = outer () => (float[2] t) {
            s = Relu(r)
            t = If(c) <
                then_branch = inner () => (float[2] u) { u = Relu(s) },
                else_branch = same () => (float[2] v) { v = Identity(s) }
            >
        },
        else_branch = other () => (float[2] e) { e = Relu(r) }
    >
}"""


def test_a_pass_runs_on_nested_bodies_depth_first_after_the_root() -> None:
    offered: list[str] = []

    class Watch(ReluToSigmoid):
        def MeetRequirements(self, match: Any) -> Any:
            offered.append(match.GetMatchedNodes()[0].label)
            return True

    result, record = run_pass(NESTED, Watch)
    assert record.replaced == 4
    assert offered[0] == "r"
    assert set(offered) == {"r", "s", "u", "e"}
    assert offered.index("u") == offered.index("s") + 1, (
        "the inner body follows the one that it is in"
    )
    assert 'op_type: "Relu"' not in str(result)


# -- limits and generations -----------------------------------------------------------------------------------------


def test_depth_is_counted_anew_in_each_pass(vendors: Any) -> None:
    """120 passes, each of which replaces what the one before it made, are a chain of rewrites but not one that feeds itself."""
    ops = ["Relu", "Abs"]
    code = [vendors.swap(f"P{k:03}", ops[k % 2], ops[(k + 1) % 2]) for k in range(120)]
    vendors.write("acme/many.py", *code)
    one = parse(
        """<ir_version: 8, opset_import: ["" : 17]> main (float[2] x) => (float[2] y) { y = Relu(x) }"""
    )
    _, report = vendors.host().run(one)
    assert [record.replaced for record in report.passes] == [1] * 120


@pytest.mark.parametrize("limit", [0, 1, 2, 3, None])
def test_a_rewrite_limit_holds_over_all_passes_of_a_compile(
    vendors: Any, limit: int | None
) -> None:
    vendors.write(
        "acme/a.py", vendors.swap("A", "Relu", "Sigmoid"), vendors.swap("B", "Abs", "Sigmoid")
    )
    host = vendors.host(rewrite_limit=limit)
    for _ in range(2):  # and anew in each compile
        _, report = host.run(parse(CHAIN))
        assert [record.replaced for record in report.passes] == {
            0: [0, 0],
            1: [1, 0],
            2: [2, 0],
        }.get(limit, [2, 1])


# -- decomposition --------------------------------------------------------------------------------------------------


def decomposer(op: str, replacement: Any, meet: Any = None) -> type[DecomposePass]:
    members: dict[str, Any] = {"op_types": (op,), "Replacement": staticmethod(replacement)}
    if meet is not None:
        members["MeetRequirements"] = staticmethod(meet)
    return type("Split", (DecomposePass,), members)


def test_nodes_that_a_decomposition_makes_are_not_visited_again() -> None:
    result, record = run_pass(CHAIN, decomposer("Relu", lambda node: unary("Abs", "Relu")))
    assert (record.matched, record.replaced) == (2, 2)
    assert op_types(result) == ["Abs", "Relu", "Abs", "Abs", "Relu", "Neg"]


def test_a_decomposition_stops_at_the_limit(vendors: Any) -> None:
    code = vendors.swap("P", "Relu", "Abs", registration="@REG_DECOMPOSE_PASS(['Relu'])")
    head, _, tail = code.partition("    def Patterns")
    tail = tail[tail.index("    def MeetRequirements") :]
    vendors.write("acme/a.py", head.replace("PatternFusionPass", "DecomposePass") + tail)
    result, report = vendors.host(rewrite_limit=1).run(parse(CHAIN))
    assert op_types(result) == ["Abs", "Abs", "Relu", "Neg"]
    assert (report.passes[0].matched, report.passes[0].replaced) == (1, 1)


def test_a_refused_decomposition_is_counted_by_its_key() -> None:
    pass_ = decomposer(
        "Relu",
        lambda node: unary("Abs"),
        lambda node: node.label == "a" or Refusal.of("place: the other one"),
    )
    _, record = run_pass(CHAIN, pass_)
    assert (record.matched, record.replaced, dict(record.rejected)) == (2, 1, {"place": 1})


CLIP = """<ir_version: 8, opset_import: ["" : 17]>
main (float[2] x, float high) => (float[2] y) { y = Clip(x, , high) }"""


def test_inputs_are_by_position_and_an_absent_one_may_be_declared_but_not_used() -> None:
    def minimum(node: Any) -> Any:
        builder = EsGraphBuilder("clip")
        x, _, high = builder.CreateInputs(3)
        return builder.BuildAndReset([es.Min(x, high)])

    def maximum(node: Any) -> Any:
        builder = EsGraphBuilder("clip")
        x, low, _ = builder.CreateInputs(3)
        return builder.BuildAndReset([es.Max(x, low)])

    result, _ = run_pass(CLIP, decomposer("Clip", minimum))
    assert [(node.op_type, list(node.input)) for node in result.graph.node] == [
        ("Min", ["x", "high"])
    ]
    short = CLIP.replace("Clip(x, , high)", "Clip(x)")
    with pytest.raises(PassError, match="the replacement uses input 2, which is absent here"):
        run_pass(short, decomposer("Clip", minimum))
    with pytest.raises(PassError, match="the replacement uses input 1, which is absent here"):
        run_pass(CLIP, decomposer("Clip", maximum))


def test_trailing_outputs_that_the_node_has_not_may_be_declared() -> None:
    def identity(node: Any) -> Any:
        builder = EsGraphBuilder("dropout")
        x = builder.CreateInput(0)
        return builder.BuildAndReset([es.Abs(x), es.Equal(x, x)])

    model = """<ir_version: 8, opset_import: ["" : 17]>
    main (float[2] x) => (float[2] y, float[2] z) { y = Dropout(x) z, m = Dropout(x) }"""
    result, _ = run_pass(model, decomposer("Dropout", identity))
    assert sorted(op_types(result)) == ["Abs", "Abs", "Equal"]


def test_absent_and_unknown_operands_are_told_apart() -> None:
    def same(node: Any) -> Any:
        builder = EsGraphBuilder("same")
        x, scale, bias = builder.CreateInputs(3)
        return builder.BuildAndReset(
            [
                es.Identity(
                    es.LayerNormalization(x, scale, bias if node.input(2) is not None else None)
                )
            ]
        )

    model = """<ir_version: 8, opset_import: ["" : 17]>
    main (float[2, 4] x, float[4] s, float[4] b) => (float[2, 4] y) {
        x1 = Relu(x) s1 = Abs(s) b1 = Neg(b) h = LayerNormalization(x1, s1) g = Relu(h) y = LayerNormalization(g, s1, b1)
    }"""
    Same = REG_DECOMPOSE_PASS(["LayerNormalization"], stage=CustomPassStage.kBeforeInferShape)(
        decomposer("LayerNormalization", same)
    )
    result, record = run_pass(model, Same)
    assert record.replaced == 2
    assert [
        len(node.input) for node in result.graph.node if node.op_type == "LayerNormalization"
    ] == [2, 3]


def test_trailing_inputs_that_the_node_has_not_may_be_declared() -> None:
    def relu(node: Any) -> Any:
        builder = EsGraphBuilder("clip")
        x, _, _ = builder.CreateInputs(3)
        return builder.BuildAndReset([es.Relu(x)])

    assert op_types(
        run_pass(CLIP.replace("Clip(x, , high)", "Clip(x)"), decomposer("Clip", relu))[0]
    ) == ["Relu"]


def test_outputs_are_by_position_also_where_one_is_absent() -> None:
    model = """<ir_version: 8, opset_import: ["" : 17, "acme" : 1]>
    main (float[3] x, int64[1] k) => (int64[1] y) { , y = acme.Two(x, k) }"""

    def first(node: Any) -> Any:
        builder = EsGraphBuilder("two")
        x, k = builder.CreateInputs(2)
        return builder.BuildAndReset([es.Relu(x), es.Abs(k)])

    assert op_types(run_pass(model, decomposer("acme::Two", first))[0]) == ["Abs"]
    with pytest.raises(PassError, match="the replacement has 2 outputs, the pattern 1"):
        run_pass(model.replace(", y =", "y ="), decomposer("acme::Two", first))


@pytest.mark.parametrize("spelt", ["Relu", "ai.onnx::Relu"])
def test_operators_are_named_with_or_without_the_default_domain(spelt: str) -> None:
    assert run_pass(CHAIN, decomposer(spelt, lambda node: unary("Abs")))[1].replaced == 2


def test_an_operator_of_another_domain_is_named_with_it() -> None:
    model = CHAIN.replace("Relu(x)", "acme.Foo(x)").replace('["" : 17]', '["" : 17, "acme" : 1]')
    _, record = run_pass(model, decomposer("acme::Foo", lambda node: unary("Abs")))
    assert record.matched == 1


@pytest.mark.parametrize("method", ["MeetRequirements", "Replacement"])
def test_what_the_rewriter_raises_is_no_refusal_where_a_method_raises_it(method: str) -> None:
    def fail(self: Any, match: Any) -> Any:
        raise Refused("far", "too far")

    with pytest.raises(
        PassError, match=rf"^Raises \(.*\): {method} at node .* Refused: far: too far$"
    ):
        run_pass(CHAIN, type("Raises", (ReluToSigmoid,), {method: fail, "__module__": __name__}))
