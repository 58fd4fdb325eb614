"""What rules match and what they put there, in the published spelling and in the short one."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest

from gehost import DataType, GehostError, Host, HostOptions, PassError, hookimpl
from gehost.testing import assert_equal_numbers
from gehost_drr import DrrPatternBase, DrrPatternContext, DrrRule, attr, drr

from .conftest import Apply, model_of, ops_of

PAIR = """(float[2, 3, 4, 5] x) => (float[4, 2, 3, 5] y) {
    t = Transpose<perm = [0, 2, 1, 3]>(x)
    y = Transpose<perm = [1, 0, 2, 3]>(t)
}"""


class Published(DrrPatternBase):
    """As Paddle's documentation writes it."""

    name = "redundant_transpose"
    benefit = 2
    labels = ("layout",)

    def __call__(self, ctx: DrrPatternContext) -> None:
        pat = ctx.SourcePattern()
        first = pat.Op("Transpose", {"perm": pat.Attr("perm_1")})
        second = pat.Op("Transpose", {"perm": pat.Attr("perm_2")})
        pat.Tensor("ret").Assign(second(first(pat.Tensor("x"))))
        pat.RequireNativeCall(lambda m: len(m.Attr("perm_1")) == len(m.Tensor("x").Shape()))
        res = pat.ResultPattern()
        perm = res.Attr(lambda m: [m.Attr("perm_1")[i] for i in m.Attr("perm_2")])
        res.Op("Transpose", {"perm": perm})([res.Tensor("x")], [res.Tensor("ret")])


@drr.rule(name="redundant_transpose", benefit=2, labels=["layout"])
def short(pat: Any, res: Any) -> None:
    pat.ret = pat.Transpose(perm=attr.p2)(pat.Transpose(perm=attr.p1)(pat.x))
    pat.RequireNativeCall(lambda m: len(m.p1) == len(m.x.Shape()))
    res.ret = res.Transpose(perm=lambda m: [m.p1[i] for i in m.p2])(res.x)


@pytest.mark.parametrize("rule", [Published().rule(), short], ids=["published", "short"])
def test_two_transposes_become_one_in_either_spelling(apply: Apply, rule: DrrRule) -> None:
    outcome = apply(rule, PAIR)
    (node,) = outcome.model.graph.node
    assert list(node.attribute[0].ints) == [2, 0, 1, 3]
    assert (outcome.record.name, outcome.record.kind, outcome.record.replaced) == (
        "redundant_transpose",
        "drr",
        1,
    )
    assert (rule.benefit, rule.labels) == (2, {"layout"})
    assert_equal_numbers(model_of(PAIR), outcome.model)


def test_a_variable_may_have_the_name_of_what_a_match_can_do(apply: Apply) -> None:
    @drr.rule()
    def named(pat: Any, res: Any) -> None:
        pat.ret = pat.Transpose(perm=attr.Attr)(pat.Transpose(perm=attr.value)(pat.x))
        pat.where(pat.x.rank == 4)
        pat.RequireNativeCall(
            lambda m: m.value("x").rank == len(m.Attr("value")) == len(m.Attr("Attr"))
        )
        res.ret = res.Transpose(perm=lambda m: [m.Attr("value")[i] for i in m.Attr("Attr")])(res.x)

    outcome = apply(named, PAIR)
    assert outcome.record.replaced == 1
    assert_equal_numbers(model_of(PAIR), outcome.model)


def test_a_rule_is_read_as_text() -> None:
    lines = str(short).splitlines()
    assert lines[0].startswith("redundant_transpose (benefit 2, layout) at ")
    assert [line.split("<")[0].rstrip() for line in lines[1:] if "native" not in line] == [
        "  match    %0 = Transpose(x) {perm: p1}",
        "  match    ret = Transpose(%0) {perm: p2}",
        "  replace  ret = Transpose(x) {perm:",
    ]


def test_all_that_a_rule_asks_is_read() -> None:
    @drr.rule(min_opset=13)
    def rule(pat: Any, res: Any) -> None:
        pat.t = pat.Commutative(pat.Add(pat.Clip(pat.x, None, pat.NoneTensor()), 2.0))
        pat.Op(["TopK"], {"axis": -1})([pat.t, pat.k], [pat.Tensor("y"), pat.NoneTensor()])
        pat.where((pat.x.rank == 2) & pat.k.is_constant)
        res.y = res.x

    assert str(rule).splitlines() == [
        f"rule (benefit 1, opsets 13 to any) at {rule.origin}",
        "  match    %0 = Clip(x, none, none)",
        "  match    t = Add(%0, 2.0) in any order",
        "  match    y, none = TopK(t, k) {axis: -1}",
        "  where    (x.rank == 2) & k.is_constant",
        "  replace  y = x",
    ]


# -- attributes -----------------------------------------------------------------------------------------------------


@drr.rule()
def same_axis(pat: Any, res: Any) -> None:
    pat.y = pat.Softmax(axis=attr.axis)(pat.Softmax(axis=attr.axis)(pat.x))
    res.y = res.LogSoftmax(axis=attr.axis)(res.x)


@pytest.mark.parametrize(("first", "count"), [(1, 1), (0, 0)])
def test_a_variable_used_twice_wants_equal_values(apply: Apply, first: int, count: int) -> None:
    text = f"(float[2, 3, 4] x) => (float[2, 3, 4] y) {{ t = Softmax<axis = {first}>(x) y = Softmax<axis = 1>(t) }}"
    outcome = apply(same_axis, text)
    assert outcome.record.replaced == count
    if count:
        assert outcome.model.graph.node[0].attribute[0].i == 1


@pytest.mark.parametrize(("axis", "count"), [(1, 1), (-2, 1), (2, 0)])
def test_a_literal_attribute_is_a_condition(apply: Apply, axis: int, count: int) -> None:
    @drr.rule()
    def rule(pat: Any, res: Any) -> None:
        pat.y = pat.Softmax(axis=1)(pat.x)
        res.y = res.Neg(res.x)

    outcome = apply(
        rule, f"(float[2, 3, 4] x) => (float[2, 3, 4] y) {{ y = Softmax<axis = {axis}>(x) }}"
    )
    assert outcome.record.replaced == count


@pytest.mark.parametrize(("shape", "axis"), [("2, 3", 1), ("N, 3", None), ("?, 3", None)])
def test_an_attribute_of_the_result_that_is_not_known_refuses_the_match(
    apply: Apply, shape: str, axis: int | None
) -> None:
    """Left out it would be the default, which is another axis."""

    @drr.rule()
    def rule(pat: Any, res: Any) -> None:
        pat.y = pat.Relu(pat.x)
        res.y = res.Softmax(axis=pat.x.shape[0] - 1)(res.x)

    outcome = apply(rule, f"(float[{shape}] x) => (float[{shape}] y) {{ y = Relu(x) }}")
    assert dict(outcome.record.rejected) == ({} if axis else {"result": 1})
    assert [entry.i for entry in outcome.model.graph.node[0].attribute] == ([axis] if axis else [])


def test_a_text_may_be_written_as_bytes(apply: Apply) -> None:
    @drr.rule()
    def rule(pat: Any, res: Any) -> None:
        pat.y = pat.Pad(mode=b"edge")(pat.x, pat.p)
        res.y = res.Pad(mode=b"reflect")(res.x, res.p)

    text = '(float[2] x) => (float[4] y) <int64[2] p = {1, 1}> { y = Pad<mode = "edge">(x, p) }'
    (node,) = apply(rule, text).model.graph.node
    assert node.attribute[0].s == b"reflect"


def test_an_attribute_that_the_result_computes_as_none_is_left_out(apply: Apply) -> None:
    @drr.rule()
    def rule(pat: Any, res: Any) -> None:
        pat.y = pat.Transpose(perm=[1, 0])(pat.x)
        res.y = res.Transpose(perm=lambda m: None)(res.x)

    node = apply(
        rule, "(float[2, 3] x) => (float[3, 2] y) { y = Transpose<perm = [1, 0]>(x) }"
    ).model.graph.node[0]
    assert not node.attribute


# -- tensors --------------------------------------------------------------------------------------------------------


def test_a_forwarded_input_replaces_a_tensor(apply: Apply) -> None:
    @drr.rule()
    def rule(pat: Any, res: Any) -> None:
        pat.y = pat.Neg(pat.Neg(pat.x))
        res.y = res.x

    assert apply(
        rule, "(float[2] x) => (float[2] z) { a = Neg(x) b = Neg(a) z = Relu(b) }"
    ).ops == ["Relu"]


def test_an_absent_input_must_be_absent(apply: Apply) -> None:
    @drr.rule()
    def no_minimum(pat: Any, res: Any) -> None:
        pat.y = pat.Clip(pat.x, pat.NoneTensor(), pat.most)
        res.y = res.Min(res.x, res.most)

    text = "(float[2] x, float low, float high) => (float[2] y) {{ y = Clip(x, {low}, high) }}"
    assert apply(no_minimum, text.format(low="")).ops == ["Min"]
    assert apply(no_minimum, text.format(low="low")).record.matched == 0


def test_the_result_may_leave_an_input_absent(apply: Apply) -> None:
    @drr.rule()
    def rule(pat: Any, res: Any) -> None:
        pat.y = pat.Min(pat.x, pat.most)
        res.y = res.Op("Clip")(
            [res.Tensor("x"), res.NoneTensor(), res.Tensor("most")], [res.Tensor("y")]
        )

    outcome = apply(rule, "(float[2] x, float high) => (float[2] y) { y = Min(x, high) }")
    assert list(outcome.model.graph.node[0].input) == ["x", "", "high"]


def test_several_outputs_are_named_and_replaced(apply: Apply) -> None:
    @drr.rule()
    def rule(pat: Any, res: Any) -> None:
        pat.Op("Split")([pat.Tensor("x"), pat.Tensor("sizes")], [pat.Tensor("a"), pat.Tensor("b")])
        res.a = res.Slice(res.x, [0], [1], [0])
        res.b = res.Slice(res.x, [1], [2], [0])

    text = "(float[2, 3] x) => (float[1, 3] p, float[1, 3] q) <int64[2] s = {1, 1}> { p, q = Split<axis = 0>(x, s) }"
    outcome = apply(rule, text)
    assert outcome.ops == ["Slice", "Slice"]
    assert_equal_numbers(model_of(text), outcome.model)


def test_tensors_without_a_name_are_each_patterns_own(apply: Apply) -> None:
    @drr.rule()
    def rule(pat: Any, res: Any) -> None:
        pat.y = pat.Neg(pat.Relu(pat.x))
        res.y = res.Abs(res.Exp(res.x))

    assert rule.outputs == ("y",)
    assert apply(rule, "(float[2] x) => (float[2] y) { t = Relu(x) y = Neg(t) }").ops == [
        "Exp",
        "Abs",
    ]


def test_operators_may_be_written_in_any_order(apply: Apply) -> None:
    @drr.rule()
    def rule(pat: Any, res: Any) -> None:
        pat.Op("Neg")([pat.Tensor("t")], [pat.Tensor("y")])
        pat.Op("Relu")([pat.Tensor("s")], [pat.Tensor("t")])
        pat.Op("Sqrt")([pat.Tensor("x")], [pat.Tensor("s")])
        res.Op("Abs")([res.Tensor("v")], [res.Tensor("y")])
        res.Op("Sin")([res.Tensor("u")], [res.Tensor("v")])
        res.Op("Exp")([res.Tensor("x")], [res.Tensor("u")])

    text = "(float[2] x) => (float[2] y) { s = Sqrt(x) t = Relu(s) y = Neg(t) }"
    assert apply(rule, text).ops == ["Exp", "Sin", "Abs"]


def test_numbers_are_matched_by_value_and_operands_may_swap(apply: Apply) -> None:
    @drr.rule()
    def rule(pat: Any, res: Any) -> None:
        pat.y = pat.Commutative(pat.Mul(pat.x, 2.0))
        res.y = res.Add(res.x, res.x)

    text = "(float[2] x) => (float[2] y) <float c = {{{number}}}> {{ y = Mul({operands}) }}"
    assert apply(rule, text.format(number=2, operands="c, x")).ops == ["Add"]
    assert apply(rule, text.format(number=3, operands="c, x")).ops == ["Mul"]


def test_a_computed_constant_stands_in_the_result(apply: Apply) -> None:
    @drr.rule()
    def rule(pat: Any, res: Any) -> None:
        pat.y = pat.Add(pat.Add(pat.x, pat.a), pat.b)
        pat.where(pat.a.is_constant & pat.b.is_constant)
        res.y = res.Add(res.x, res.Const(lambda m: m.a.Array() + m.Tensor("b").Array()))

    text = "(float[2] x) => (float[2] y) <float[2] a = {1, 2}, float[2] b = {3, 5}> { t = Add(x, a) y = Add(t, b) }"
    outcome = apply(rule, text)
    assert outcome.ops == ["Add"]
    assert_equal_numbers(model_of(text), outcome.model)


def test_each_computed_value_stands_where_it_was_written(apply: Apply) -> None:
    @drr.rule()
    def rule(pat: Any, res: Any) -> None:
        pat.y = pat.Neg(pat.Concat(axis=attr.axis)(pat.x, pat.c))
        negated = res.Tensor("negated")  # read before it is made
        res.Op("Concat", {"axis": lambda m: m.axis})(
            [negated, res.Const(lambda m: (-m.c.Array()).tolist())], [res.Tensor("y")]
        )
        res.Op("Mul")([res.x, res.Const(lambda m: -1)], [negated])

    text = """(float[2] x) => (float[4] y, float[4] z, float[4] u)
    <float[2] a = {1, 2}, float[2] b = {3, 5}, float[2] c = {1, 2}> {
        s = Concat<axis = 0>(x, a) y = Neg(s)
        t = Concat<axis = 0>(x, b) z = Neg(t)
        r = Concat<axis = -1>(x, c) u = Neg(r)
    }"""
    outcome = apply(rule, text)
    assert sorted(outcome.ops) == ["Concat"] * 3 + ["Mul"] * 3
    assert_equal_numbers(model_of(text), outcome.model)


@pytest.mark.parametrize("filled", [[0.0, 0.0], np.zeros(2, np.float32)], ids=["list", "array"])
def test_what_an_author_fills_anew_for_each_match_is_read_anew(apply: Apply, filled: Any) -> None:
    @drr.rule()
    def rule(pat: Any, res: Any) -> None:
        def fill(m: Any) -> bool:
            filled[:] = (m.a.Array() + m.b.Array()).tolist()
            return True

        pat.y = pat.Add(pat.Add(pat.x, pat.a), pat.b)
        pat.RequireNativeCall(fill)
        res.y = res.Add(res.x, filled)

    text = """(float[2] x) => (float[2] y, float[2] z) <float[2] a = {1, 2}, float[2] b = {3, 5}, float[2] c = {1, 1}> {
        s = Add(x, a) y = Add(s, b)
        t = Add(x, b) z = Add(t, c)
    }"""
    outcome = apply(rule, text)
    assert list(outcome.ops) == ["Add", "Add"]
    assert_equal_numbers(model_of(text), outcome.model)


@pytest.mark.parametrize("number", [2, 2.5, [2.5, 1]])
def test_a_computed_number_takes_its_partners_dtype(apply: Apply, number: Any) -> None:
    @drr.rule()
    def rule(pat: Any, res: Any) -> None:
        pat.y = pat.Relu(pat.x)
        res.y = res.Add(res.x, res.Const(lambda m: number))

    assert apply(rule, "(float16[2] x) => (float16[2] y) { y = Relu(x) }").ops == ["Add"]


def test_a_constant_that_is_none_is_not_left_out(apply: Apply) -> None:
    @drr.rule()
    def rule(pat: Any, res: Any) -> None:
        pat.y = pat.Max(pat.x, pat.low)
        res.y = res.Clip(res.x, res.Const(lambda m: m.low.Array()))

    with pytest.raises(
        PassError, match="constant: wanted a tensor, a number or a list of numbers, got NoneType"
    ):
        apply(rule, "(float[2] x, float low) => (float[2] y) { y = Max(x, low) }")


def test_one_of_several_operators_tells_which_it_was(apply: Apply) -> None:
    @drr.rule()
    def rule(pat: Any, res: Any) -> None:
        pat.y = pat.Op(["Selu", "Elu"])(pat.x)
        pat.where(pat.y.op_type == "Elu", "which: not Elu")
        res.y = res.Celu(res.x)

    outcome = apply(rule, "(float[2] x) => (float[2] y, float[2] z) { y = Elu(x) z = Selu(x) }")
    assert sorted(outcome.ops) == ["Celu", "Selu"]
    assert outcome.record.rejected == {"which": 1}


# -- conditions -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("condition", "reasons"),
    [
        (lambda pat: pat.where(pat.x.rank == 2), {"where": 1}),
        (lambda pat: pat.where(pat.x.rank == 2, "rank: no matrix"), {"rank": 1}),
        (lambda pat: pat.RequireNativeCall(lambda m: m.x.Rank() == 2), {"native call": 1}),
        (
            lambda pat: pat.RequireNativeCall(lambda m: m.x.Rank() == 2, "rank: no matrix"),
            {"rank": 1},
        ),
        (lambda pat: pat.RequireNativeCall(lambda m: m.reject("rank: no matrix")), {"rank": 1}),
        (lambda pat: pat.RequireNativeCall(lambda m: None, "rank: no matrix"), {"native call": 1}),
        (lambda pat: pat.RequireNativeCall(lambda m: np.bool_(True)), {}),
        (lambda pat: pat.where(pat.x.rank == 1), {}),
    ],
)
def test_a_match_is_refused_for_its_reason(
    apply: Apply, condition: Any, reasons: dict[str, int]
) -> None:
    @drr.rule()
    def rule(pat: Any, res: Any) -> None:
        pat.y = pat.Relu(pat.x)
        condition(pat)
        res.y = res.Abs(res.x)

    outcome = apply(rule, "(float[2] x) => (float[2] y) { y = Relu(x) }")
    assert dict(outcome.record.rejected) == reasons
    assert outcome.ops == (["Relu"] if reasons else ["Abs"])


@pytest.mark.parametrize(
    ("size", "message"),
    [
        ("3", "false"),
        ("N", "not known: whether N is 2 is not known"),
        ("?", "not known: whether ?1 is 2 is not known"),
    ],
)
def test_a_condition_tells_what_is_false_from_what_is_not_known(size: str, message: str) -> None:
    @drr.rule()
    def rule(pat: Any, res: Any) -> None:
        pat.y = pat.Relu(pat.x)
        pat.where(pat.x.shape[0] == 2)
        res.y = res.x

    class Spy:
        @hookimpl
        def gehost_match_refused(self, reason: str) -> None:
            assert reason == f"where: x.shape[0] == 2 is {message}"

    host = Host(HostOptions(plugins=False), plugins=[("spy", Spy())])
    host.passes.add(rule.spec())
    _, report = host.run(model_of(f"(float[{size}] x) => (float[{size}] y) {{ y = Relu(x) }}"))
    assert dict(report.passes[0].rejected) == {"where": 1}


def test_a_function_sees_shape_and_dtype_of_what_is_known(apply: Apply) -> None:
    visited: list[Any] = []

    @drr.rule()
    def rule(pat: Any, res: Any) -> None:
        pat.y = pat.Relu(pat.x)
        pat.RequireNativeCall(
            lambda m: visited.extend(
                (m.x.Shape(), m.x.Dtype(), m.y.OpType(), m.x.OpType(), m.x.IsConstant())
            )
        )
        res.y = res.x

    apply(rule, "(float[2, N, ?] x) => (float[2, N, M] y) { y = Relu(x) }")
    assert visited == [[2, "N", -1], DataType.FLOAT, "Relu", "", False]


@pytest.mark.parametrize(
    "answer", ["shapes differ", [1], (False, "why"), float("nan"), np.array([False])]
)
def test_a_function_that_answers_neither_yes_nor_no_fails_the_pass(
    apply: Apply, answer: Any
) -> None:
    """A text or a tuple is true to Python, and the author meant a refusal."""

    @drr.rule()
    def rule(pat: Any, res: Any) -> None:
        pat.y = pat.Relu(pat.x)
        pat.RequireNativeCall(lambda m: answer)
        res.y = res.x

    with pytest.raises(
        PassError,
        match=rf"the native call at {__file__}:\d+ must return True, False or m.reject\(reason\), got",
    ):
        apply(rule, "(float[2] x) => (float[2] y) { y = Relu(x) }")


@pytest.mark.parametrize(
    ("ask", "message"),
    [("Attr", "no attribute variable 'z'; it has none"), ("Tensor", "no tensor 'z'; it has x, y")],
)
def test_a_name_that_the_rule_has_not_fails_the_pass(apply: Apply, ask: str, message: str) -> None:
    @drr.rule()
    def rule(pat: Any, res: Any) -> None:
        pat.y = pat.Relu(pat.x)
        pat.RequireNativeCall(lambda m: getattr(m, ask)("z"))
        res.y = res.x

    with pytest.raises(
        PassError, match=rf"^rule \({__file__}:\d+\): MeetRequirements at node .* {message}"
    ) as caught:
        apply(rule, "(float[2] x) => (float[2] y) { y = Relu(x) }")
    assert isinstance(caught.value.__cause__, GehostError)


def test_a_rule_that_the_opset_cannot_express_does_not_apply(apply: Apply) -> None:
    @drr.rule()
    def rule(pat: Any, res: Any) -> None:
        pat.y = pat.Gelu(pat.x)
        res.y = res.x

    record = apply(rule, "(float[2] x) => (float[2] y) { y = Relu(x) }").record
    assert (record.status, record.message) == (
        "not applicable",
        "Gelu needs opset 20, the model has 17",
    )


@pytest.mark.parametrize(("proven", "count"), [(False, 0), (True, 1)])
def test_a_rule_may_vouch_for_sizes_that_cannot_be_compared(
    apply: Apply, proven: bool, count: int
) -> None:
    @drr.rule(shape_proven=proven)
    def rule(pat: Any, res: Any) -> None:
        pat.y = pat.Reshape(pat.Relu(pat.x), pat.s)
        res.y = res.Relu(res.Reshape(res.x, res.s))

    outcome = apply(
        rule, "(float[N, 4] x, int64[2] s) => (float[?, ?] y) { t = Relu(x) y = Reshape(t, s) }"
    )
    assert outcome.record.replaced == count
    assert dict(outcome.record.rejected) == ({} if proven else {"unproven": 1})


def test_a_rule_is_lowered_once_for_all_compiles_of_a_host(tmp_path):
    """The pass object, which has the lowered pattern, serves the next compile."""
    folder = tmp_path / "acme" / "custom_fusion_passes"
    folder.mkdir(parents=True)
    (folder / "rule.py").write_text(
        "from gehost_drr import drr\n@drr.rule()\ndef relu(pat, res):\n"
        "    pat.y = pat.Relu(pat.Abs(pat.x))\n    res.y = res.Abs(res.x)\n"
    )
    host = Host(HostOptions(vendors=[str(tmp_path)]))
    spec = host.passes.get("relu")
    assert spec is not None
    results: list[object] = []

    def counting() -> object:
        results.append(spec.factory())
        return results[-1]

    host.passes.keep_only(dataclasses.replace(spec, factory=counting))
    text = "(float[2] x) => (float[2] y) { a = Abs(x) y = Relu(a) }"
    for opset in (17, 17, 18, 17):
        model, report = host.run(model_of(text, opset))
        assert ops_of(model) == {"Abs": 1}
        assert report.passes[0].replaced == 1
    assert len(results) == 1


@pytest.mark.parametrize(
    "method", ["", "    def Initialize(self, context):\n        super().Initialize(context)\n"]
)
def test_a_pass_of_rules_serves_the_next_compile_unless_it_has_methods(tmp_path, method):
    """Its rules keep the lowered patterns; nothing keeps the model."""
    folder = tmp_path / "acme" / "custom_fusion_passes"
    folder.mkdir(parents=True)
    (folder / "rules.py").write_text(
        "from gehost_drr import PatternRewritePass, REG_IR_PASS, drr\n@drr.rule()\ndef relu(pat, res):\n"
        "    pat.y = pat.Relu(pat.Abs(pat.x))\n    res.y = res.Abs(res.x)\n"
        f"@REG_IR_PASS('many')\nclass Many(PatternRewritePass):\n    patterns = (relu,)\n{method}"
    )
    host = Host(HostOptions(vendors=[str(tmp_path)]))
    spec = host.passes.get("many")
    assert spec is not None
    results: list[Any] = []

    def counting() -> object:
        results.append(spec.factory())
        return results[-1]

    host.passes.keep_only(dataclasses.replace(spec, factory=counting))
    text = "(float[2] x) => (float[2] y) { a = Abs(x) y = Relu(a) }"
    for opset in (17, 17, 18, 17):
        model, report = host.run(model_of(text, opset))
        assert ops_of(model) == {"Abs": 1}
        assert report.passes[0].replaced == 1
        assert not hasattr(results[-1].subject, "context")
    assert len(results) == (4 if method else 1)


@pytest.mark.parametrize("ops", ["acme::Source", ["acme::Source", "acme::Other"]])
def test_an_operator_without_inputs_is_matched(apply: Apply, ops: Any) -> None:
    @drr.rule()
    def fuse(pat: Any, res: Any) -> None:
        pat.s = pat.Op(ops, {"k": 1})()
        pat.y = pat.Add(pat.x, pat.s)
        res.y = res.Op("acme::AddTo")(res.x)

    body = "(float[2] x) => (float[2] z) {{ s = acme.Source<k={k}>() y = Add(x, s) z = Relu(y) }}"
    assert apply(fuse, body.format(k=1)).ops == ["AddTo", "Relu"]
    assert apply(fuse, body.format(k=2)).ops == ["Source", "Add", "Relu"]


def test_an_operator_without_inputs_is_written(apply: Apply) -> None:
    @drr.rule()
    def add_noise(pat: Any, res: Any) -> None:
        pat.y = pat.Relu(pat.x)
        res.t = res.Op("RandomUniform", {"shape": [2]})()
        res.y = res.Sub(res.x, res.t)

    body = "(float[2] x) => (float[2] z) { y = Relu(x) z = Abs(y) }"
    assert apply(add_noise, body).ops == ["RandomUniform", "Sub", "Abs"]


# -- any number of operands -----------------------------------------------------------------------------------------


@drr.rule(any_number_of="Concat", least=2)
def relu_after_concat(pat: Any, res: Any, number: int) -> None:
    names = [f"x{place}" for place in range(number)]
    pat.y = pat.Concat(axis=attr.axis)(*[pat.Relu(pat.Tensor(name)) for name in names])
    pat.where(pat.x0.rank == pat.Tensor(names[-1]).rank, "rank: differs")
    res.y = res.Relu(res.Concat(axis=attr.axis)(*[res.Tensor(name) for name in names]))


@pytest.mark.parametrize("number", [1, 2, 3, 7])
def test_a_rule_for_any_number_of_operands(apply: Apply, number: int) -> None:
    places = range(number)
    inputs = ", ".join(f"float[2] x{place}" for place in places)
    relus = " ".join(f"r{place} = Relu(x{place})" for place in places)
    listing = ", ".join(f"r{place}" for place in places)
    text = f"({inputs}) => (float[{2 * number}] y) {{ {relus} y = Concat<axis = 0>({listing}) }}"
    outcome = apply(relu_after_concat, text)
    assert outcome.record.replaced == (number > 1)
    assert number == 1 or outcome.ops == ["Concat", "Relu"]
    assert number in [len(node.input) for node in outcome.model.graph.node]
