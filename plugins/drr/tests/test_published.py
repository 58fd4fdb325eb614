"""The spellings of Paddle's pass infrastructure, as published."""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
import pytest

from gehost import Host, HostOptions, PassError, UsageError, es
from gehost.testing import parse
from gehost.verify import compare
from gehost_drr import (
    ApplyPatternsGreedily,
    Builder,
    DeadCodeEliminationPass,
    DrrPatternBase,
    FrozenRewritePatternSet,
    GreedyRewriteConfig,
    IrContext,
    Pass,
    PassManager,
    RewritePatternSet,
    drr,
)

HEAD = '<ir_version: 8, opset_import: ["" : 17]>\n'
TWO_TRANSPOSES = (
    HEAD
    + """g (float[2,3,4] x) => (float[2,3,4] y) {
    a = Transpose <perm = [1, 2, 0]> (x) b = Transpose <perm = [2, 0, 1]> (a) y = Relu(b) }"""
)
DEAD = (
    HEAD
    + """g (float[2] x) => (float[2] y) <float[2] w = {1, 2}, float[2] v = {3, 4}> {
    d = Add(x, w) y = Add(x, v) }"""
)


class RemoveRedundentTransposePattern(DrrPatternBase):
    def __call__(self, ctx):
        pat = ctx.SourcePattern()
        first = pat.Op("Transpose", {"perm": pat.Attr("perm_1")})
        second = pat.Op("Transpose", {"perm": pat.Attr("perm_2")})
        pat.Tensor("ret").Assign(second(first(pat.Tensor("x"))))
        res = pat.ResultPattern()
        perm = res.Attr(lambda m: [m.Attr("perm_1")[i] for i in m.Attr("perm_2")])
        res.Tensor("ret").Assign(res.Op("Transpose", {"perm": perm})(res.Tensor("x")))


def redundant(add: Callable[[RewritePatternSet, Any], Any]) -> type[Pass]:
    class RemoveRedundentTransposePass(Pass):
        def __init__(self):
            super().__init__("RemoveRedundentTransposePass", 1)

        def Initialize(self, context):
            ps = RewritePatternSet(context)
            add(ps, context)
            self.patterns_ = FrozenRewritePatternSet(ps)
            return True

        def Run(self, op):
            cfg = GreedyRewriteConfig()
            cfg.use_top_down_traversal = True
            cfg.max_iterations = 10
            ApplyPatternsGreedily(op.region(0), self.patterns_, cfg)

        def CanApplyOn(self, op):
            return op.name() == "builtin.module" and op.num_regions() > 0

    return RemoveRedundentTransposePass


@pytest.mark.parametrize(
    "add",
    [
        lambda ps, ctx: ps.Add(RemoveRedundentTransposePattern, ctx),
        lambda ps, ctx: ps.Add(RemoveRedundentTransposePattern().Build(ctx)),
        lambda ps, ctx: ps.Add(RemoveRedundentTransposePattern()),
    ],
)
@pytest.mark.parametrize(
    "manager",
    [
        lambda: PassManager(IrContext.Instance()),
        lambda: PassManager(IrContext.Instance(), 3),
        lambda: PassManager(3),
        lambda: PassManager(opt_level=3),
    ],
)
def test_a_context_is_accepted_wherever_published_code_passes_it(add, manager):
    output = manager()
    stream = io.StringIO()
    output.EnableIRPrinting(stream=stream)
    result = output.AddPass(redundant(add)()).Run(parse(TWO_TRANSPOSES))
    assert [node.op_type for node in result.model.graph.node] == ["Transpose", "Relu"]
    header = stream.getvalue().splitlines()[:3]
    assert header[0] == header[2]
    assert set(header[0]) == set("=-")
    title = "IRPrinting on builtin.module before RemoveRedundentTransposePass pass"
    assert header[1].strip() == title


def test_what_is_no_context_is_refused():
    with pytest.raises(UsageError, match="wants a context or an opt_level, got 'high'"):
        PassManager("high")


def test_a_configuration_is_checked_when_it_is_used():
    class Wrong(redundant(lambda ps, ctx: ps.Add(RemoveRedundentTransposePattern, ctx))):
        def Run(self, op):
            cfg = GreedyRewriteConfig()
            cfg.max_iterations = 0
            ApplyPatternsGreedily(op.region(0), self.patterns_, cfg)

    with pytest.raises(PassError, match="max_iterations must be 1 or more, got 0"):
        PassManager().AddPass(Wrong()).Run(parse(TWO_TRANSPOSES))


class DeadCodeElimination(Pass):
    def Run(self, op):
        block = op.region(0).front()
        erased = [
            inner
            for inner in block
            if all(inner.result(i).use_empty() for i in range(inner.num_results()))
        ]
        for inner in erased:
            block.erase(inner)
        assert [item.name() for item in block] == ["Add"]


@pytest.mark.parametrize("pass_", [DeadCodeElimination, DeadCodeEliminationPass])
def test_dead_code_goes_with_its_weights(pass_):
    result = PassManager().AddPass(pass_()).Run(parse(DEAD)).model
    assert [node.op_type for node in result.graph.node] == ["Add"]
    assert [weight.name for weight in result.graph.initializer] == ["v"]


def test_operands_and_results_by_declared_name():
    visited = []

    class Look(Pass):
        def Run(self, op):
            for inner in op.region(0).front():
                if inner.name() == "Add":
                    visited.append((inner.a().name, inner.b().value.name, inner.c().use_empty()))
                    visited.append(inner.num_operands())
                    with pytest.raises(
                        AttributeError, match="declares no 'x'; it declares a, b, c"
                    ):
                        inner.x()

    PassManager().AddPass(Look()).Run(parse(DEAD))
    assert visited == [("x", "w", True), 2, ("x", "v", False), 2]


class Walk(Pass):
    """Each method of an operation once."""

    def Run(self, op):
        program = op.GetParentProgram()
        assert list(program.parameters()) == ["w", "v"]
        assert len(program.block()) == len(op.block()) == 2
        assert (program.module_op().name(), op.isa("builtin.module")) == ("builtin.module", True)
        op.Verify()
        first, second = op.region(0).front()
        assert first.isa("Add")
        assert first.isa(es.Add)
        assert first.dyn_cast("Add") == first
        assert first.dyn_cast(es.Relu) is None
        assert (first.attributes(), first.has_attribute("axis")) == ({}, False)
        assert first.operand(0).source().value.name == "x"
        assert (first.operand(1).owner(), first.operand(1).index()) == (first, 1)
        assert len(second.operands()) == 2
        with pytest.raises(IndexError, match="Add has 2 operands, not 2"):
            first.operand(2)
        with pytest.raises(TypeError, match="wanted the name of an operator, got 3"):
            first.isa(3)
        x = first.operand_source(0)
        assert (x.use_count(), first.result(0).use_count(), x.type()) == (2, 0, "tensor<2xf32>")
        assert (first.block().size(), first.GetParentProgram().block().size()) == (2, 2)
        first.Verify()
        with pytest.raises(
            NotImplementedError, match=r"HasInterface\('InferShape'\): operators have"
        ):
            first.HasInterface("InferShape")
        assert not first.HasTrait("commutative")
        with pytest.raises(
            ValueError, match="no trait 'inplace'; there are commutative, random, st"
        ):
            first.HasTrait("inplace")
        # the result of the second Add becomes (x + w) + v
        second.operand(0).set_source(first.result(0))
        assert first.result(0).use_count() == 1
        for call in (
            lambda: first.result(0).ReplaceAllUsesWith("x"),
            lambda: first.ReplaceAllUsesWith("x"),
            lambda: first.operand(0).set_source("x"),
        ):
            with pytest.raises(TypeError, match="wanted an OpResult, got 'x'"):
                call()
        with pytest.raises(TypeError, match="wanted an Operation, got 'x'"):
            first.block().erase("x")
        first.result(0).ReplaceAllUsesWith(x)
        first.ReplaceAllUsesWith([x])
        assert first.use_empty()
        op.region(0).front().erase(first)


def test_each_method_of_an_operation_once():
    result = PassManager().AddPass(Walk()).Run(parse(DEAD)).model
    (add,) = result.graph.node
    assert list(add.input) == ["x", "v"]


class Construct(Pass):
    """HardSwish in parts, whose results are typed as soon as they are there."""

    def Run(self, op):
        block = op.block()
        for swish in block:
            if not swish.isa("HardSwish"):
                continue
            x = swish.operand_source(0)
            builder = Builder(self.context, block)
            builder.set_insertion_point(swish)
            gate = builder.Build(es.HardSigmoid, [x], {"alpha": 1 / 6}).result(0)
            assert (gate.dtype.name, gate.shape, gate.type()) == (
                "FLOAT",
                ("N", 6),
                "tensor<-1x6xf32>",
            )
            left, right = builder.Build("Split", [gate], {"axis": 1}, num_results=2).results
            assert (left.type(), right.shape) == ("tensor<-1x3xf32>", ("N", 3))
            joined = builder.Build("Concat", [left, right], {"axis": 1})
            builder.SetInsertionPointAfter(joined)
            wide = builder.Build("Cast", [joined.result(0)], {"to": 11}).result(0)
            assert wide.type() == "tensor<-1x6xf64>"
            narrow = builder.Build("CastLike", [wide, x])
            swish.ReplaceAllUsesWith(builder.Build("Mul", [x, narrow.result(0)]).results)
            block.erase(swish)
            self.AddStatistics(1)


def test_results_of_a_new_operation_have_a_dtype_and_a_shape() -> None:
    model = parse(f"{HEAD}g (float[N, 6] x) => (float[N, 6] y) {{ a = HardSwish(x) y = Neg(a) }}")
    result = PassManager().AddPass(Construct()).Run(model)
    assert [node.op_type for node in result.model.graph.node] == [
        *("HardSigmoid", "Split", "Concat", "Cast", "CastLike", "Mul", "Neg")
    ]
    assert compare(model, result.model).equal


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda b, x: b.Build("Concat", [x, x], {"axis": 7}), "Concat.*axis"),
        (lambda b, x: b.Build("Cast", [x]), "Cast"),
        (lambda b, x: b.Build(3, [x]), "wanted the name of an operator, got 3"),
        (lambda b, x: b.Build("Relu", [3]), "wanted the result of an operation, got 3"),
        (lambda b, x: b.Build("Reluu", [x]), "Reluu"),
        (
            lambda b, x: b.Build("acme::Gate", [x]),
            "Gate: the model does not import acme; context.r",
        ),
    ],
)
def test_an_operation_that_cannot_be_built_is_one_line(build: Any, message: str) -> None:
    class Wrong(Pass):
        def Run(self, op):
            swish, _ = op.block()
            build(Builder(self.context, op.block()), swish.operand_source(0))

    model = parse(f"{HEAD}g (float[N, 6] x) => (float[N, 6] y) {{ a = HardSwish(x) y = Neg(a) }}")
    with pytest.raises(PassError, match=message) as caught:
        PassManager().AddPass(Wrong()).Run(model)
    assert str(caught.value).count("\n") == 0
    assert "test_published.py:" in str(caught.value)


REGISTERED = """
from gehost import es, ops
from gehost_drr import REG_IR_PASS, Pass

@ops.register("acme::Gate", outputs=["out", "aux"], traits=["stateful"])
def gate(x, scale):
    return es.Mul(x, scale), es.Neg(x)

@REG_IR_PASS("look")
class Look(Pass):
    def Run(self, op):
        (inner,) = op.region(0).front()
        assert (inner.x().name, inner.scale().name) == ("a", "b")
        assert (inner.out().name, inner.aux()) == ("y", None)
        assert (inner.HasTrait("stateful"), inner.HasTrait("random")) == (True, False)
"""


def test_names_of_a_registered_operator(tmp_path):
    folder = tmp_path / "acme" / "custom_fusion_passes"
    folder.mkdir(parents=True)
    (folder / "a.py").write_text(REGISTERED)
    text = '<ir_version: 8, opset_import: ["" : 17, "acme" : 1]> g (float[4] a, float[4] b)'
    model = parse(f"{text} => (float[4] y) {{ y = acme.Gate(a, b) }}")
    _, report = Host(HostOptions(vendors=[tmp_path])).run(model)
    assert [pass_.status for pass_ in report.passes if pass_.name == "look"] == ["not changed"]


CONSTANTS = (
    HEAD
    + """g (float[4] x, float[4] z) => (float[4] y) <float[4] two = {2, 2, 2, 2}> {
    half = Constant <value = float[4] {0.5, 0.5, 0.5, 0.25}> ()
    a = Mul(x, two) b = Mul(a, half) y = Mul(b, z) }"""
)


def _compiled(rule: Any) -> tuple[list[str], Any]:
    host = Host(HostOptions(plugins=False, cleanup=False))
    host.passes.add(rule.spec())
    result, report = host.run(parse(CONSTANTS))
    return [node.op_type for node in result.graph.node], report.passes[0]


def test_a_source_operator_without_inputs_matches_a_constant():
    @drr.rule()
    def divide(pat, res):
        full_1 = pat.Op("full_int_array")
        pat.y = pat.Mul(pat.x, full_1())
        res.y = res.Div(res.x, 2.0)

    _, record = _compiled(divide)
    assert (record.replaced, dict(record.rejected)) == (2, {"constant": 1})


def test_a_constant_is_matched_by_its_attributes():
    def rule(**attributes):
        @drr.rule()
        def doubled(pat, res):
            pat.y = pat.Mul(pat.x, pat.Op("full", attributes)())
            res.y = res.Add(res.x, res.x)

        return doubled

    ops, record = _compiled(rule(value=2.0, shape=[4]))
    assert (ops.count("Add"), record.replaced) == (1, 1)
    assert dict(record.rejected) == {"constant": 2}
    ops, record = _compiled(rule(shape=[4], value=lambda value: value > 3))
    assert (ops.count("Add"), dict(record.rejected)) == (0, {"constant": 3})
    with pytest.raises(Exception, match='full has no attribute "axis"; it has value, shape, dtype'):
        rule(axis=1)


def test_a_variable_is_bound_by_a_constant():
    @drr.rule()
    def scaled(pat, res):
        pat.y = pat.Mul(pat.x, pat.Op("full", {"value": pat.Attr("v")})())
        pat.RequireNativeCall(lambda m: m.Attr("v") == 2 and m.v == 2, "value: another")
        res.y = res.Div(res.x, res.Const(lambda m: 1 / m.Attr("v")))

    ops, record = _compiled(scaled)
    assert (ops.count("Div"), dict(record.rejected)) == (1, {"constant": 2})


def test_a_matched_constant_that_nothing_else_reads_goes_with_its_match():
    text = """g (float[4] x) => (float[4] y, float[4] z) {
    one = Constant <value = float[4] {2, 2, 2, 2}> ()
    two = Constant <value = float[4] {3, 3, 3, 3}> ()
    a = Mul(x, one) b = Mul(a, two) y = Neg(b) z = Add(x, two) }"""

    @drr.rule()
    def halved(pat, res):
        pat.y = pat.Mul(pat.x, pat.Op("full")())
        res.y = res.Div(res.x, 2.0)

    host = Host(HostOptions(plugins=False, cleanup=False))
    host.passes.add(halved.spec())
    result, report = host.run(parse(HEAD + text))
    assert report.passes[0].replaced == 2
    assert [node.output[0] for node in result.graph.node if node.op_type == "Constant"] == ["two"]


@pytest.mark.parametrize(
    ("put", "values"),
    [
        (lambda res: res.Op("full", {"value": 1.5, "shape": [4]})(), [1.5] * 4),
        (lambda res: res.Op("full", {"value": 2, "shape": [4], "dtype": 1})(), [2.0] * 4),
        (lambda res: res.Op("full", {"value": res.Attr(lambda m: 0.5)})(), 0.5),
    ],
)
def test_an_operator_without_inputs_makes_a_constant_of_the_result(put, values):
    @drr.rule()
    def filled(pat, res):
        pat.y = pat.Mul(pat.x, pat.Op("full", {"value": 2.0})())
        res.y = res.Sub(res.x, put(res))

    assert _weight_of(filled, "Sub") == values


def test_a_computed_constant_is_assigned():
    @drr.rule()
    def filled(pat, res):
        pat.y = pat.Mul(pat.x, pat.Op("full", {"value": 2.0})())
        res.Tensor("c").Assign(res.Const(lambda m: np.full(4, 0.25, np.float32)))
        res.d = res.Const(lambda m: 3.0)
        res.y = res.Mul(res.Sub(res.x, res.Tensor("c")), res.d)

    assert _weight_of(filled, "Sub") == [0.25] * 4

    @drr.rule()
    def axes(pat, res):
        pat.y = pat.Unsqueeze(pat.x, pat.Op("full_int_array", {"value": [0]})())
        res.shape = res.Op("full_int_array", {"value": [1, 4]})()
        res.y = res.Reshape(res.x, res.shape)

    text = """g (float[4] x) => (float[1, 4] y) <int64[1] k = {0}> { y = Unsqueeze(x, k) }"""
    host = Host(HostOptions(plugins=False, cleanup=False))
    host.passes.add(axes.spec())
    (node,) = host.run(parse(HEAD + text))[0].graph.node
    assert node.op_type == "Reshape"

    @drr.rule()
    def entry(pat, res):
        pat.y = pat.Sub(pat.x, pat.x)
        pat.where(pat.x.shape == [4])
        res.y = res.Const(lambda m: np.zeros(4, np.float32))

    host = Host(HostOptions(plugins=False, cleanup=False))
    host.passes.add(entry.spec())
    text = "g (float[4] x) => (float[4] z) { y = Sub(x, x) z = Neg(y) }"
    result, report = host.run(parse(HEAD + text))
    assert report.passes[0].replaced == 1
    assert "Sub" not in [node.op_type for node in result.graph.node]


def test_a_constant_of_a_result_is_checked():
    with pytest.raises(Exception, match="full needs a value"):

        @drr.rule()
        def empty(pat, res):
            pat.y = pat.Relu(pat.x)
            res.y = res.Add(res.x, res.Op("full")())

    with pytest.raises(Exception, match='full has no attribute "axis"; it has value, shape, dtype'):

        @drr.rule()
        def wrong(pat, res):
            pat.y = pat.Relu(pat.x)
            res.y = res.Add(res.x, res.Op("full", {"axis": 1, "value": 1.0})())


def _weight_of(rule: Any, op: str) -> Any:
    """The second operand of the operator that the rule makes."""
    host = Host(HostOptions(plugins=False, cleanup=False))
    host.passes.add(rule.spec())
    result, _ = host.run(parse(CONSTANTS))
    (node,) = (node for node in result.graph.node if node.op_type == op)
    graph = result.graph
    arrays = {weight.name: onnx.numpy_helper.to_array(weight) for weight in graph.initializer}
    arrays |= {
        node.output[0]: onnx.numpy_helper.to_array(node.attribute[0].t)
        for node in graph.node
        if node.op_type == "Constant"
    }
    return arrays[node.input[1]].tolist()
