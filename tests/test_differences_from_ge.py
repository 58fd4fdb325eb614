"""Where gehost does better than the reference on purpose: each trap as a model, and what happens on it.

``trapped`` is the graph that falling into the trap gives; its numbers differ, or ONNX refuses it, which is shown too.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
import pytest

from gehost import (
    DataType,
    EsGraphBuilder,
    HostOptions,
    PassError,
    Pattern,
    PatternFusionPass,
    PatternMatcherConfig,
    UsageError,
    es,
)
from gehost.host.host import Host
from gehost.testing import assert_equal_numbers, assert_rewrites, parse, run_pass
from gehost.verify import compare

HEADER = '<ir_version: 8, opset_import: ["": 17]> '
Describe = Callable[..., Any]


def pass_of(
    find: Describe, put: Describe, inputs: int = 1, value: Describe | None = None, **config: bool
) -> type[PatternFusionPass]:
    """A pass without conditions: ``find`` and ``put`` of the same placeholders; ``value`` makes those of ``find``."""

    def graph(describe: Describe, value: Describe | None = None) -> Any:
        builder = EsGraphBuilder("pattern")
        result = describe(*(value(builder) if value else builder.CreateInputs(inputs)))
        return builder.BuildAndReset(list(result) if isinstance(result, list | tuple) else [result])

    class Better(PatternFusionPass):
        def __init__(self) -> None:
            super().__init__(PatternMatcherConfig(**config))

        def Patterns(self) -> Any:
            return [Pattern(graph(find, value))]

        def Replacement(self, match: Any) -> Any:
            return graph(put)

    return Better


@dataclass(frozen=True)
class Trap:
    """A model in which a naive host rewrites wrongly; ``after`` is what gehost makes of it (None: it leaves it alone)."""

    model: str
    rule: type[PatternFusionPass]
    after: str | None
    trapped: str


SQUARE = pass_of(lambda x: x * x, lambda x: es.Pow(x, 2.0))
TRAPS = {
    "the same placeholder at two places is one tensor": Trap(
        "g (float[2] a, float[2] b) => (float[2] y, float[2] z) { y = Mul(a, b) z = Mul(a, a) }",
        SQUARE,
        "g (float[2] a, float[2] b) => (float[2] y, float[2] z) <float two = {2}> { y = Mul(a, b) z = Pow(a, two) }",
        "g (float[2] a, float[2] b) => (float[2] y, float[2] z) <float two = {2}> { y = Pow(a, two) z = Pow(a, two) }",
    ),
    "and one output of one node, not the node": Trap(
        "g (float[4] a) => (float[2] y) { p, q = Split(a) y = Mul(p, q) }",
        SQUARE,
        None,
        "g (float[4] a) => (float[2] y) { p, q = Split(a) two = Constant <value = float {2}> () y = Pow(p, two) }",
    ),
    "an absent input does not shift the next one": Trap(
        "g (float[2] a) => (float[2] y) { one = Constant <value = float {1}> () y = Clip(a, , one) }",
        pass_of(lambda x, low: es.Clip(x, low), lambda x, low: es.Max(x, low), 2),
        None,
        "g (float[2] a) => (float[2] y) { one = Constant <value = float {1}> () y = Max(a, one) }",
    ),
    "two operators of a pattern are two nodes": Trap(
        "g (float[2] a) => (float[2] y, float[2] z) { y = Relu(a) z = Neg(a) }",
        pass_of(lambda x: [es.Relu(x), es.Relu(x)], lambda x: [es.Relu(x), es.Abs(x)]),
        None,
        "g (float[2] a) => (float[2] y, float[2] z) { y = Abs(a) z = Neg(a) }",
    ),
    "a nested body that reads a tensor keeps it": Trap(
        """g (bool c, float[2] a) => (float[2] y, float[2] z) { r = Relu(a) y = Neg(r)
             z = If (c) <then_branch = t () => (float[2] p) { p = Abs(r) }, else_branch = e () => (float[2] q) { q = Neg(r) }> }""",
        pass_of(lambda x: -es.Relu(x), lambda x: es.Min(-x, x * 0.0)),
        None,
        """g (bool c, float[2] a) => (float[2] y, float[2] z) { n = Neg(a) o = Constant <value = float {0}> () m = Mul(a, o) y = Min(n, m)
             z = If (c) <then_branch = t () => (float[2] p) { p = Abs(r) }, else_branch = e () => (float[2] q) { q = Neg(r) }> }""",
    ),
    "self-contained is said of a tensor, not of its node": Trap(
        "g (float[4, 2] a) => (float[2, 2] y, float[2, 2] z, float[2, 2] w) { p, q = Split <axis = 0> (a) y = Relu(p) z = Neg(q) w = Abs(p) }",
        pass_of(
            lambda x: (lambda both: [es.Relu(both[0]), both[1]])(
                es.Split(x, num_outputs=2, axis=0)
            ),
            lambda x: (lambda both: [both[0], es.Slice(x, starts=[2], ends=[4], axes=[0])])(
                es.Split(es.Relu(x), num_outputs=2, axis=0)
            ),
        ),
        None,
        """g (float[4, 2] a) => (float[2, 2] y, float[2, 2] z, float[2, 2] w)
             <int64[1] s = {2}, int64[1] e = {4}, int64[1] x = {0}>
             { r = Relu(a) y, u = Split <axis = 0> (r) q = Slice(a, s, e, x) z = Neg(q) w = Abs(p) }""",
    ),
    "a constant that others read neither blocks nor goes": Trap(
        "g (float[2] a) => (float[2] y, float[2] z) { two = Constant <value = float {2}> () y = Mul(a, two) z = Sub(a, two) }",
        pass_of(lambda x: x * 2.0, lambda x: x + x),
        "g (float[2] a) => (float[2] y, float[2] z) { two = Constant <value = float {2}> () y = Add(a, a) z = Sub(a, two) }",
        "g (float[2] a) => (float[2] y, float[2] z) { y = Add(a, a) z = Sub(a, two) }",
    ),
    "a literal is a value": Trap(
        "g (float[2] a) => (float[2] y) { two = Constant <value = float {3}> () y = Mul(a, two) }",
        pass_of(lambda x: x * 2.0, lambda x: x + x),
        None,
        "g (float[2] a) => (float[2] y) { y = Add(a, a) }",
    ),
    "an input may be forwarded": Trap(
        "g (float[2] a) => (float[2] y) { n = Neg(a) m = Neg(n) y = Relu(m) }",
        pass_of(lambda x: es.Neg(es.Neg(x)), lambda x: x),
        "g (float[2] a) => (float[2] y) { y = Relu(a) }",
        "g (float[2] a) => (float[2] y) { n = Neg(a) y = Relu(n) }",
    ),
    "to a graph output too": Trap(
        "g (float[2] a) => (float[2] y) { n = Neg(a) y = Neg(n) }",
        pass_of(lambda x: es.Neg(es.Neg(x)), lambda x: x),
        "g (float[2] a) => (float[2] y) { y = Identity(a) }",
        "g (float[2] a) => (float[2] a) { y = Neg(a) }",
    ),
    "a replacement may leave an input out": Trap(
        "g (float[2] a, float[2] b) => (float[2] y) { d = Sub(b, b) y = Add(a, d) }",
        pass_of(lambda x, z: x + z * 0.0, lambda x, z: es.Identity(x), 2),
        None,
        "g (float[2] a, float[2] b) => (float[2] y) { y = Add(a, b) }",
    ),
    "and a tensor that holds one value throughout is that value": Trap(
        "g (float[2] a, float[2] b) => (float[2] y, float[2] z) <float[2] p = {1, 1}, float[2] q = {1, 2}> { y = Mul(a, p) z = Mul(b, q) }",
        pass_of(lambda x: x * 1.0, lambda x: x),
        "g (float[2] a, float[2] b) => (float[2] y, float[2] z) <float[2] q = {1, 2}> { y = Identity(a) z = Mul(b, q) }",
        "g (float[2] a, float[2] b) => (float[2] y, float[2] z) { y = Identity(a) z = Identity(b) }",
    ),
    "a constant is near to what is wanted, or another one": Trap(
        """g (float[2] a, float[2] b) => (float[2] y, float[2] z)
             <float near = {1.702}, float far = {1.75}> { y = Mul(a, near) z = Mul(b, far) }""",
        pass_of(
            lambda x, factor: x * factor,
            lambda x: x * np.float32(1.702),
            value=lambda builder: (builder.CreateInput(0), builder.CreateConst(1.7015, rtol=1e-3)),
        ),
        None,
        """g (float[2] a, float[2] b) => (float[2] y, float[2] z)
             <float near = {1.702}> { y = Mul(a, near) z = Mul(b, near) }""",
    ),
    "a parameter that matters is constrained by itself": Trap(
        """g (float[2, 2, 2] a, float[2, 2, 2] b) => (float[2, 2, 2] y, float[2, 2, 2] z)
             { p = Transpose <perm = [1, 0, 2]> (a) y = Transpose <perm = [1, 0, 2]> (p)
               q = Transpose <perm = [1, 2, 0]> (b) z = Transpose <perm = [1, 2, 0]> (q) }""",
        pass_of(
            lambda x: es.constrain(
                es.Transpose(es.constrain(es.Transpose(x), perm=[1, 0, 2])),
                perm=lambda perm: list(perm) == [1, 0, 2],
            ),
            lambda x: x,
        ),
        """g (float[2, 2, 2] a, float[2, 2, 2] b) => (float[2, 2, 2] y, float[2, 2, 2] z)
             { y = Identity(a) q = Transpose <perm = [1, 2, 0]> (b) z = Transpose <perm = [1, 2, 0]> (q) }""",
        """g (float[2, 2, 2] a, float[2, 2, 2] b) => (float[2, 2, 2] y, float[2, 2, 2] z) { y = Identity(a) z = Identity(b) }""",
    ),
    "a variadic operator has as many inputs as are written": Trap(
        "g (float[2] a, float[2] b, float[2] c) => (float[2] y, float[2] z) { y = Sum(a, b) z = Sum(a, b, c) }",
        pass_of(lambda x, z: es.Sum(x, z), lambda x, z: x + z, 2),
        "g (float[2] a, float[2] b, float[2] c) => (float[2] y, float[2] z) { y = Add(a, b) z = Sum(a, b, c) }",
        "g (float[2] a, float[2] b, float[2] c) => (float[2] y, float[2] z) { y = Add(a, b) z = Add(a, b) }",
    ),
    "operands that change places take their placeholders with them": Trap(
        "g (float[2] a, float[2] b) => (float[2] y) { e = Exp(a) y = Mul(e, b) }",
        pass_of(lambda x, z: es.Commutative(x * es.Exp(z)), lambda x, z: x / es.Exp(-z), 2),
        "g (float[2] a, float[2] b) => (float[2] y) { n = Neg(a) e = Exp(n) y = Div(b, e) }",
        "g (float[2] a, float[2] b) => (float[2] y) { n = Neg(b) e = Exp(n) y = Div(a, e) }",
    ),
    "and only those of operators that commute": Trap(
        "g (float[2] a, float[2] b) => (float[2] y) { n = Neg(a) y = Sub(n, b) }",
        pass_of(lambda x, z: x - -z, lambda x, z: x + z, 2, commutative_match=True),
        None,
        "g (float[2] a, float[2] b) => (float[2] y) { y = Add(b, a) }",
    ),
    "one of several operators is not any operator": Trap(
        "g (float[2] a, float[2] b) => (float[2] y, float[2] z) { n = Neg(a) y = Abs(n) r = Relu(b) z = Abs(r) }",
        pass_of(lambda x: es.Abs(es.AnyOf("Neg", "Abs")(x)), lambda x: es.Abs(x)),
        "g (float[2] a, float[2] b) => (float[2] y, float[2] z) { y = Abs(a) r = Relu(b) z = Abs(r) }",
        "g (float[2] a, float[2] b) => (float[2] y, float[2] z) { y = Abs(a) z = Abs(b) }",
    ),
    "an alternative is taken whole": Trap(
        """g (float[2] a, float[2] b, float[2] c) => (float[2] y, float[2] z)
             { r = Reciprocal(b) y = Mul(a, r) n = Neg(c) z = Mul(a, n) }""",
        pass_of(
            lambda x, z: es.Alternatives(x * es.Reciprocal(z), -(x * -es.Reciprocal(z))),
            lambda x, z: x / z,
            2,
        ),
        "g (float[2] a, float[2] b, float[2] c) => (float[2] y, float[2] z) { y = Div(a, b) n = Neg(c) z = Mul(a, n) }",
        "g (float[2] a, float[2] b, float[2] c) => (float[2] y, float[2] z) { y = Div(a, b) z = Div(a, c) }",
    ),
    "a placeholder may say a rank": Trap(
        """g (float[2, 2] a, float[2, 2, 2] b) => (float[2, 2] y, float[2, 2, 2] z)
             { p = Softmax <axis = 1> (a) y = Log(p) q = Softmax <axis = 1> (b) z = Log(q) }""",
        pass_of(
            lambda x: es.Log(es.constrain(es.Softmax(x), axis=1)),
            lambda x: es.LogSoftmax(x, axis=-1),
            value=lambda builder: [builder.CreateInput(0, rank=2)],
        ),
        """g (float[2, 2] a, float[2, 2, 2] b) => (float[2, 2] y, float[2, 2, 2] z)
             { y = LogSoftmax <axis = -1> (a) q = Softmax <axis = 1> (b) z = Log(q) }""",
        """g (float[2, 2] a, float[2, 2, 2] b) => (float[2, 2] y, float[2, 2, 2] z)
             { y = LogSoftmax <axis = -1> (a) z = LogSoftmax <axis = -1> (b) }""",
    ),
    "and a dtype": Trap(
        """g (float[2] a, float[2] b, int64[2] i) => (float[2] y, int64[2] z) <int64[2] j = {2, 3}>
             { p = Div(a, b) y = Mul(p, b) q = Div(i, j) z = Mul(q, j) }""",
        pass_of(
            lambda x, z: x / z * z,
            lambda x, z: x,
            2,
            value=lambda builder: [builder.CreateInput(i, dtype=DataType.FLOAT) for i in range(2)],
        ),
        """g (float[2] a, float[2] b, int64[2] i) => (float[2] y, int64[2] z) <int64[2] j = {2, 3}>
             { y = Identity(a) q = Div(i, j) z = Mul(q, j) }""",
        """g (float[2] a, float[2] b, int64[2] i) => (float[2] y, int64[2] z) { y = Identity(a) z = Identity(i) }""",
    ),
    "types are inferred and compared": Trap(
        "g (float[2] a) => (float[2] y) { y = Relu(a) }",
        pass_of(es.Relu, lambda x: es.Unsqueeze(x, axes=[0])),
        None,
        "g (float[2] a) => (float[2] y) { zero = Constant <value = int64[1] {0}> () y = Unsqueeze(a, zero) }",
    ),
    "a type that widens is another type": Trap(
        "g (float[2] a, float[3, 2] w) => (float[3, 2] y) { z = Sub(w, w) s = Abs(z) y = Add(a, s) }",
        pass_of(lambda x, z: x + es.Abs(z), lambda x, z: es.Identity(x), 2),
        None,
        "g (float[2] a, float[3, 2] w) => (float[3, 2] y) { y = Identity(a) }",
    ),
}


@pytest.mark.parametrize("name", TRAPS)
def test_the_trap_and_what_happens(name):
    trap = TRAPS[name]
    model = parse(HEADER + trap.model)
    if trap.after is None:
        result, record = run_pass(model, trap.rule)
        assert record.replaced == 0
        assert result.graph.node == model.graph.node
    else:
        assert_equal_numbers(model, assert_rewrites(model, trap.rule, HEADER + trap.after))
    assert is_wrong(model, onnx.parser.parse_model(HEADER + trap.trapped)), "this was no trap"


def is_wrong(model: onnx.ModelProto, other: onnx.ModelProto) -> bool:
    """Whether ONNX refuses ``other``, or its numbers are not those of ``model``."""
    try:
        onnx.checker.check_model(other, full_check=True)
    except (onnx.checker.ValidationError, onnx.shape_inference.InferenceError):
        return True
    interfaces = [
        [entry.name for entry in (*actual.graph.input, *actual.graph.output)]
        for actual in (model, other)
    ]
    return interfaces[0] != interfaces[1] or not compare(model, other).equal


# -- what is said, where GE is silent -------------------------------------------------------------------------------


class Failing(PatternFusionPass):
    failing = ""

    def Patterns(self) -> Any:
        self._fail("Patterns")
        builder = EsGraphBuilder("failing")
        return [Pattern(builder.BuildAndReset([es.Relu(builder.CreateInput(0))]))]

    def MeetRequirements(self, match: Any) -> bool:
        self._fail("MeetRequirements")
        return True

    def Replacement(self, match: Any) -> Any:
        self._fail("Replacement")

    def _fail(self, method: str) -> None:
        if method == self.failing:
            raise ValueError(f"{method} is broken")


RELU = HEADER + "g (float[2] a) => (float[2] y) { [here] y = Relu(a) }"


@pytest.mark.parametrize(
    ("method", "at"),
    [("Patterns", ""), ("MeetRequirements", ' at node "here"'), ("Replacement", ' at node "here"')],
)
def test_an_error_in_any_method_fails_the_compile_with_pass_file_line_and_node(method, at):
    rule = type("Failing", (Failing,), {"failing": method, "__module__": __name__})
    with pytest.raises(
        PassError,
        match=rf"^Failing \({__file__}:\d+\): {method}{at}.*: ValueError: {method} is broken$",
    ):
        run_pass(RELU, rule)


def test_with_keep_going_a_pass_that_fails_halfway_leaves_nothing_of_itself(vendors):
    """Two rewrites that are right only together: after the first alone the numbers are others."""
    model = parse(HEADER + "g (float[2] a) => (float[2] y) { n = Neg(a) [second] y = Neg(n) }")
    assert is_wrong(
        model, parse(HEADER + "g (float[2] a) => (float[2] y) { n = Abs(a) y = Neg(n) }")
    )
    meet = "return bool(1 / (match.GetMatchedNodes()[0].label != 'second'))"
    vendors.write("acme/halfway.py", vendors.swap("Halfway", "Neg", "Abs", meet=meet))
    result, report = vendors.host(keep_going=True).run(model)
    (record,) = report.passes
    assert (record.status, record.matched, record.replaced) == ("failed", 2, 0)
    assert result.graph.node == model.graph.node
    assert "ZeroDivisionError" in report.problems[0]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"disable": ["FlattenBatchMatmulAdd"]}, "FlattenBatchMatMulAdd"),
        ({"enable": ["LayerNormalisation"]}, "LayerNormalization"),
    ],
)
def test_a_switch_for_a_pass_that_does_not_exist_is_an_error_with_the_nearest_names(
    options, message
):
    with pytest.raises(UsageError, match=f"did you mean .*{message}"):
        Host(HostOptions(vendors=["vendors"], **options))


def test_an_invalid_pattern_is_an_error_with_file_and_line():
    with pytest.raises(PassError, match=rf"Patterns: {__file__}:\d+: .*no operator"):
        run_pass(RELU, pass_of(lambda x: x, lambda x: x))


def test_a_pattern_that_the_opset_lacks_is_reported_as_not_applicable():
    _, record = run_pass(RELU, pass_of(es.Gelu, es.Relu))
    assert (record.status, record.message) == (
        "not applicable",
        "Gelu needs opset 20, the model has 17",
    )


@pytest.mark.parametrize(
    "put", [lambda x: es.Relu(es.Abs(x)), lambda x: es.Abs(es.Relu(x))], ids=["below", "above"]
)
def test_rewrites_that_feed_themselves_are_stopped_with_pass_and_node(put):
    with pytest.raises(
        PassError,
        match=r"^Better .* at node .*: rewrites feed each other without end: \w+ \(Relu\) is 101 generations",
    ):
        run_pass(RELU, pass_of(es.Relu, put))


def test_a_replacement_equal_to_what_it_replaces_is_no_change():
    result, record = run_pass(RELU, pass_of(es.Relu, es.Relu))
    assert (record.matched, record.replaced, list(record.rejected)) == (1, 0, ["no change"])
    assert result == parse(RELU)
