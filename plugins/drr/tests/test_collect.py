"""Which rules and passes of a vendor file are registered, and in which order."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest

import gehost_drr
from gehost import CustomPassStage, Host, HostOptions, PassError, VendorError
from gehost.testing import check_pass, run_pass

from .conftest import model_of, ops_of

HEAD = "from gehost_drr import *\nfrom gehost import CustomPassStage\n"
RULE = """
@drr.rule({options})
def {name}(pat, res):
    pat.y = pat.{old}(pat.x)
    res.y = res.{new}(res.x)
"""
MODEL = "(float[2] x) => (float[2] y) { y = Relu(x) }"
PLUGINS = [("drr", gehost_drr)]


def rule(name: str, old: str = "Relu", new: str = "Abs", options: str = "") -> str:
    return RULE.format(name=name, old=old, new=new, options=options)


@pytest.fixture
def host(vendors: Any) -> Any:
    def load(code: str) -> Host:
        vendors.write_raw("acme/custom_fusion_passes/a.py", HEAD + code)
        return Host(HostOptions(vendors=[vendors.root], plugins=False, cleanup=False), PLUGINS)

    return load


def test_rules_are_registered_by_benefit_then_as_they_are_written(host: Any) -> None:
    assert host(
        rule("b") + rule("a") + rule("c", options="benefit=3, labels=['x']")
    ).passes.names() == ["c", "b", "a"]


def test_a_rule_is_a_pass_like_any_other(host: Any, vendors: Any) -> None:
    (spec,) = host(
        rule(
            "r",
            options="benefit=3, labels=['x'], stage=CustomPassStage.kBeforeInferShape, max_opset=18",
        )
    ).passes
    assert (spec.kind, spec.vendor, spec.benefit, spec.labels) == ("drr", "acme", 3, {"x"})
    assert (spec.stage, spec.min_opset, spec.max_opset) == (
        CustomPassStage.kBeforeInferShape,
        None,
        18,
    )
    assert spec.origin == f"{vendors.root}/acme/custom_fusion_passes/a.py:4"
    result, record = run_pass(model_of(MODEL), "r", vendors=vendors.root, plugins=PLUGINS)
    assert (ops_of(result), record.replaced) == ({"Abs": 1}, 1)
    assert {entry.key: entry.value for entry in result.graph.node[0].metadata_props}[
        "gehost.pass"
    ] == "r"


def test_classes_are_registered_unless_they_are_the_files_own_or_anothers(host: Any) -> None:
    code = """
class _Base(DrrPatternBase):
    def __call__(self, ctx):
        pat = ctx.SourcePattern()
        pat.y = pat.Relu(pat.x)
        pat.ResultPattern().y = pat.ResultPattern().Abs(pat.ResultPattern().x)

class First(_Base):
    pass

class Second(_Base):
    name, benefit = "second", 2
"""
    assert host(code).passes.names() == ["second", "First"]


def test_rules_that_a_file_imports_are_anothers(host: Any, vendors: Any) -> None:
    vendors.write_raw("acme/custom_fusion_passes/_shared.py", HEAD + rule("shared"))
    assert host("from ._shared import shared\n" + rule("own", "Neg")).passes.names() == ["own"]


def test_rules_that_a_registered_pass_lists_run_in_it_alone(host: Any) -> None:
    code = """
@REG_IR_PASS("both")
class Both(PatternRewritePass):
    stage = CustomPassStage.kAfterBuiltinFusionPass
    patterns = (one, two)

class NotRegistered(PatternRewritePass):
    patterns = (three,)
"""
    output = host(
        rule("one", "Relu", "Abs") + rule("two", "Abs", "Neg") + rule("three", "Neg", "Exp") + code
    )
    assert output.passes.names() == ["three", "both"]
    result, report = output.run(model_of(MODEL))
    assert ops_of(result) == {"Neg": 1}
    assert [
        (record.name, record.kind, record.stage, record.replaced) for record in report.passes
    ] == [
        ("three", "drr", "kAfterInferShape", 0),
        ("both", "drr", "kAfterBuiltinFusionPass", 2),
    ]


@pytest.mark.parametrize(
    "method",
    ["", "__init__", "Initialize", "InitializePatterns", "InitializeConfig", "CanApplyOn", "Run"],
)
def test_a_pass_that_may_edit_by_hand_beside_its_rules_is_checked(host: Any, method: str) -> None:
    edits = (
        """
    def __init__(self):
        self.InitializeConfig = self.edit

    def edit(self):
        graph = self.context.model.graph
        graph.move_after(next(graph.nodes), graph.tail)
        return super().InitializeConfig()
"""
        if method == "__init__"
        else f"""
    def {method}(self, *given):
        graph = self.context.model.graph
        graph.move_after(next(graph.nodes), graph.tail)
        return super().{method}(*given)
"""
    )
    code = f"\n@REG_IR_PASS('p')\nclass P(PatternRewritePass):\n    patterns = (one,){edits if method else ''}"
    result, model = (
        host(rule("one", "Neg") + code),
        model_of("(float[2] x) => (float[2] y, float[2] z) { a = Abs(x) z = Exp(a) y = Neg(x) }"),
    )
    if method:
        with pytest.raises(
            PassError, match=r"^p .*: it left an invalid graph: .*before it is made"
        ):
            result.run(model)
    else:
        assert result.run(model)[1].passes[0].replaced == 1


def test_a_function_of_a_rule_that_edits_by_hand_is_refused(host: Any) -> None:
    code = """
def edits(m):
    m.graph.move_after(next(m.graph.nodes), m.graph.tail)
    return True

@drr.rule()
def one(pat, res):
    pat.y = pat.Neg(pat.x)
    pat.RequireNativeCall(edits)
    res.y = res.Abs(res.x)

@REG_IR_PASS('p')
class P(PatternRewritePass):
    patterns = (one,)
"""
    with pytest.raises(PassError, match=r"^p .* it edited the graph"):
        host(code).run(
            model_of("(float[2] x) => (float[2] y) { a = Abs(x) b = Abs(a) y = Neg(b) }")
        )


def test_two_rules_of_one_name_are_refused(host: Any, vendors: Any) -> None:
    file = f"{vendors.root}/acme/custom_fusion_passes/a.py"
    with pytest.raises(VendorError) as hidden:
        host(rule("r") + rule("r", "Neg", options="name='other'"))
    assert str(hidden.value) == f"{file}:9: the function r hides the rule at {file}:4; rename one"
    with pytest.raises(VendorError) as named:
        host(rule("r") + rule("s", "Neg", options="name='r'"))
    assert (
        str(named.value)
        == f"{file}:9: a pass called r is registered already at {file}:4; rename one"
    )


PARAMETERS = """
class Chosen(DrrPatternBase):
    def __init__(self, new):
        self.new = new

    def __call__(self, ctx):
        pat = ctx.SourcePattern()
        pat.y = pat.Relu(pat.x)
        res = pat.ResultPattern()
        res.y = res.Op(self.new)(res.x)
"""


def test_a_class_with_parameters_is_no_pass_unless_objects_of_it_are_listed(
    host: Any, vendors: Any
) -> None:
    with pytest.raises(VendorError) as caught:
        host(PARAMETERS)
    file = f"{vendors.root}/acme/custom_fusion_passes/a.py"
    assert str(caught.value).startswith(f"{file}:4: Chosen: TypeError: ")
    code = (
        '\n@REG_IR_PASS("both")\nclass Both(PatternRewritePass):\n    patterns = (Chosen("Abs"),)\n'
    )
    result = host(PARAMETERS + code)
    assert result.passes.names() == ["both"]
    assert ops_of(result.run(model_of(MODEL))[0]) == {"Abs": 1}


def test_what_a_class_raises_is_told_at_its_line(host: Any, vendors: Any) -> None:
    code = "\nclass Broken(DrrPatternBase):\n    def __call__(self, ctx):\n        ctx.SourcePattern().Typo.x()\n"
    with pytest.raises(
        VendorError,
        match=rf"^{vendors.root}/acme/custom_fusion_passes/a.py:6: Broken: AttributeError: ",
    ):
        host(code)


RULES = """
@drr.rule()
def three(pat, res):
    pat.y = pat.Neg(pat.Neg(pat.Neg(pat.x)))
    res.y = res.Neg(res.x)

@drr.rule()
def two(pat, res):
    pat.y = pat.Relu(pat.Relu(pat.x))
    res.y = res.{new}(res.x)

@REG_IR_PASS("both")
class Both(PatternRewritePass):
    patterns = (three, two)
"""


def test_a_pass_of_rules_can_be_checked_like_any_other(host: Any, vendors: Any) -> None:
    host(RULES.format(new="Relu"))
    assert check_pass("both", vendors=vendors.root, plugins=PLUGINS).patterns == (2, 2)
    host(RULES.format(new="Abs"))
    with pytest.raises(AssertionError, match="numbers differ"):
        check_pass("both", vendors=vendors.root, plugins=PLUGINS)


def test_switches_take_the_name(vendors: Any, host: Any) -> None:
    host(rule("r"))
    off = Host(HostOptions(vendors=[vendors.root], plugins=False, disable=["r"]), PLUGINS)
    result, report = off.run(model_of(MODEL))
    assert (ops_of(result), report.passes[0].status) == ({"Relu": 1}, "disabled")


CLASS = """
class Off(DrrPatternBase):
    default = False

    def __call__(self, ctx):
        pat = ctx.SourcePattern()
        pat.y = pat.Relu(pat.x)
        res = pat.ResultPattern()
        res.y = res.Abs(res.x)
"""
REGISTERED = """
@REG_IR_PASS("Off", default=False, options=[PassOption("new", str, "Abs")])
class Greedy(Pass):
    def Run(self, graph):
        (node,) = graph.nodes_of("Relu")
        made = graph.add_node(self.context.options["new"], node.inputs, ["made"], after=node)
        graph.redirect(node.outputs[0], made.outputs[0])
"""


@pytest.mark.parametrize(
    "code",
    [rule("Off", options="default=False"), CLASS, "from gehost import PassOption\n" + REGISTERED],
)
def test_a_rule_or_pass_may_be_off_by_default(vendors: Any, host: Any, code: str) -> None:
    (spec,) = host(code).passes
    assert (spec.name, spec.default) == ("Off", False)
    chosen = {"vendors": [vendors.root], "plugins": False}
    off = Host(HostOptions(**chosen), PLUGINS).run(model_of(MODEL))[1].passes[0]
    assert (off.status, off.replaced) == ("disabled", 0)
    on = Host(HostOptions(**chosen, enable=["Off"]), PLUGINS).run(model_of(MODEL))[1].passes[0]
    assert on.status == "done"


def test_a_registered_pass_reads_its_options(vendors: Any, host: Any) -> None:
    host("from gehost import PassOption\n" + REGISTERED)
    chosen = {"vendors": [vendors.root], "plugins": False, "enable": ["Off"], "cleanup": False}
    options = HostOptions(**chosen, settings={"Off.new": "Neg"})
    assert "Neg" in ops_of(Host(options, PLUGINS).run(model_of(MODEL))[0])


@pytest.mark.parametrize(
    ("code", "message"),
    [
        (
            "\n@REG_IR_PASS('p')\nclass NoPass:\n    pass\n",
            "REG_IR_PASS wants a subclass of gehost_drr.Pass",
        ),
        (
            "\n@REG_IR_PASS('p')\nclass Empty(Pass):\n    pass\n",
            "Empty does not define Run(self, op)",
        ),
    ],
)
def test_what_is_no_pass_cannot_be_registered(
    host: Any, vendors: Any, code: str, message: str
) -> None:
    with pytest.raises(
        VendorError, match=rf"^{vendors.root}/acme/custom_fusion_passes/a.py:4: "
    ) as caught:
        host(code)
    assert message in str(caught.value)


def test_it_loads_nothing_heavy() -> None:
    code = "import sys, gehost_drr; print([m for m in ('onnx', 'numpy', 'networkx', 'rich') if m in sys.modules])"
    process = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert process.stdout == "[]\n"


def test_every_public_name_is_there() -> None:
    assert [name for name in gehost_drr.__all__ if not hasattr(gehost_drr, name)] == []
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = gehost_drr.nothing
