"""Mistakes that change what a compile does without an error: each is one line that names what is meant."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import onnx
import pytest

from gehost import (
    CustomPassStage,
    FusionBasePass,
    Host,
    HostOptions,
    PassRegistry,
    PassSpec,
    UsageError,
    VendorError,
    hookimpl,
)
from gehost.cli import run
from gehost.testing import parse
from tests.hostile.conftest import NO_VENDORS

MODEL = """<ir_version: 8, opset_import: ["" : 17]> main (float[2] x) => (float[2] y) { a = Relu(x) y = Neg(a) }"""
PATTERN = """
    def Patterns(self):
        builder = EsGraphBuilder("p")
        return [Pattern(builder.BuildAndReset([es.Neg(builder.CreateInput(0))]))]
"""
REPLACEMENT = """
    def Replacement(self, match):
        builder = EsGraphBuilder("r")
        return builder.BuildAndReset([{}])
"""


def pass_of(name: str, replacement: str, mark: str = "@REG_FUSION_PASS", more: str = "") -> str:
    """A pass that replaces ``Neg`` by an expression of ``builder.CreateInput(0)``, written ``x``."""
    result = REPLACEMENT.format(replacement.replace("(x", "(builder.CreateInput(0)"))
    return f"\n{mark}\nclass {name}(PatternFusionPass):{PATTERN}{result}{more}\n"


@pytest.fixture
def model(tmp_path: Path) -> Path:
    onnx.save(parse(MODEL), tmp_path / "m.onnx")
    return tmp_path / "m.onnx"


@pytest.fixture
def line(model: Path, vendors: Any, refused: Any) -> Any:
    """``line(code, *source)``: the one line of a compile with this vendor file, which ends with ``code``."""

    def line(code: int, *source: str) -> str:
        vendors.write("acme/a.py", *source)
        return refused(code, model, "--vendors", vendors.root)

    return line


@pytest.fixture
def notes(model: Path, vendors: Any, gehost_run: Any, tmp_path: Path) -> Any:
    """``notes()``: the lines that a compile that ends with 0 leaves on standard error."""

    def notes(*options: str, root: Path | None = None) -> list[str]:
        code, _, err = gehost_run(
            "compile", model, "-o", tmp_path / "o.onnx", "--vendors", root or vendors.root, *options
        )
        assert code == 0, err
        return err.splitlines()

    return notes


# -- classes --------------------------------------------------------------------------------------------------------


def test_two_classes_of_one_name_are_an_error(line: Any) -> None:
    message = line(4, pass_of("P", "es.Relu(x)"), pass_of("P", "es.Abs(x)"))
    assert "a pass called P is registered already at" in message
    assert "a.py:3; rename one" in message


def test_classes_of_one_name_that_are_registered_under_two_names_both_run(vendors: Any) -> None:
    vendors.write(
        "acme/a.py",
        pass_of("P", "es.Relu(x)", "@REG_FUSION_PASS(name='One')"),
        pass_of("P", "es.Abs(x)", "@REG_FUSION_PASS(name='Two')"),
    )
    assert vendors.host().passes.names() == ["One", "Two"]


def test_a_class_that_a_function_registers_runs(vendors: Any) -> None:
    vendors.write("acme/_mark.py", "def mark(cls): return REG_FUSION_PASS()(cls)\n")
    vendors.write(
        "acme/a.py",
        "from ._mark import mark\n",
        pass_of("Wrapped", "es.Relu(x)", "@mark"),
        "def make():\n    class Local(Wrapped): pass\n    REG_FUSION_PASS(Local)\nmake()\n",
    )
    host = vendors.host()
    assert host.passes.names() == ["Wrapped", "Local"]
    assert {Path(spec.origin).name.partition(":")[0] for spec in host.passes} == {"a.py"}


def test_a_class_is_registered_once(line: Any) -> None:
    message = line(
        4, pass_of("P", "es.Relu(x)"), "REG_FUSION_PASS(P).Stage(CustomPassStage.kAfterInferShape)"
    )
    assert "P is registered already at" in message


def test_a_pass_that_is_not_registered_is_told(vendors: Any, notes: Any) -> None:
    vendors.write("acme/a.py", pass_of("Good", "es.Relu(x)"), pass_of("Bad", "es.Abs(x)", ""))
    (note,) = notes()
    assert "a.py:15: Bad is not registered; put @REG_FUSION_PASS" in note


def test_a_pass_that_is_not_registered_is_a_finding_of_check_pass(
    vendors: Any, gehost_run: Any
) -> None:
    path = vendors.write("acme/a.py", pass_of("Bad", "es.Relu(x)", ""))
    code, out, err = gehost_run("check-pass", path)
    assert (code, err.strip()) == (5, f"gehost: {path}: something is wrong with Bad")
    actual, detail = out.splitlines()
    assert actual.endswith("a.py:4): wrong: nothing was checked")
    assert "Bad (" in detail
    assert "not registered: put @REG_FUSION_PASS or @REG_DECOMPOSE_PASS above it" in detail
    vendors.write("acme/a.py", pass_of("Good", "es.Neg(x)"), pass_of("Bad", "es.Abs(x)", ""))
    code, out, _ = gehost_run("check-pass", path, "--json", "--pass", "Bad")
    (result,) = json.loads(out)
    assert (code, result["verdict"], result["findings"][0]["wrong"]) == (
        5,
        "wrong",
        "not registered",
    )


def test_a_pass_that_is_not_registered_is_a_note_of_explain(
    vendors: Any, model: Path, gehost_run: Any
) -> None:
    vendors.write("acme/a.py", pass_of("Good", "es.Relu(x)"), pass_of("Bad", "es.Abs(x)", ""))
    command = "explain", model, "--vendors", vendors.root, "--pass"
    code, out, _ = gehost_run(*command, "Good")
    assert (code, out.count("Bad is not registered; put @REG_FUSION_PASS")) == (0, 1)
    code, _, err = gehost_run(*command, "Bad")
    assert code == 2
    assert "a.py:15: Bad is not registered; put @REG_FUSION_PASS" in err


@pytest.mark.parametrize(
    "more",
    [
        pass_of("_Bad", "es.Abs(x)", ""),
        pass_of("Base", "es.Abs(x)", "") + "@REG_FUSION_PASS\nclass Derived(Base): pass\n",
        f"class Half(PatternFusionPass):{PATTERN}",
        "class Helper: pass\n",
        "from gehost.passes.base import PatternFusionPass as Another\n",
    ],
    ids=["private", "base", "abstract", "helper", "imported"],
)
def test_helpers_are_not(vendors: Any, notes: Any, more: str) -> None:
    vendors.write("acme/a.py", pass_of("Good", "es.Relu(x)"), more)
    assert notes() == []


def test_a_pass_that_is_registered_where_it_is_not_loaded_is_told(vendors: Any, notes: Any) -> None:
    vendors.write("acme/_b.py", pass_of("B", "es.Relu(x)"))
    vendors.write("acme/a.py", "from . import _b\n", pass_of("Good", "es.Relu(x)"))
    vendors.write("acme/pack/__init__.py", "from . import c\n", pass_of("Own", "es.Relu(x)"))
    vendors.write("acme/pack/c.py", pass_of("C", "es.Relu(x)"))
    first, second = notes()
    assert (
        "_b.py:3: B is not registered; move it to a file whose name does not start with _" in first
    )
    assert "c.py:3: C is not registered; import it in the __init__.py" in second


# -- methods and hooks ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("base", "name", "intended"),
    [
        ("PatternFusionPass", "MeetRequirement", "MeetRequirements"),
        ("PatternFusionPass", "meet_requirements", "MeetRequirements"),
        ("PatternFusionPass", "Requirements", "MeetRequirements"),
        ("PatternFusionPass", "MeetRequirments", "MeetRequirements"),
        ("PatternFusionPass", "Paterns", "Patterns"),
        ("PatternFusionPass", "Replacment", "Replacement"),
        ("DecomposePass", "MeetsRequirements", "MeetRequirements"),
        ("DecomposePass", "replacement", "Replacement"),
        ("FusionBasePass", "run", "Run"),
    ],
)
def test_a_misspelled_method_is_met_with_the_right_one(
    line: Any, base: str, name: str, intended: str
) -> None:
    methods = [item for item in ("Patterns", "Replacement", "Run") if item != intended]
    code = f"@REG_FUSION_PASS\nclass P({base}):\n" + "".join(
        f"    def {method}(self, *args): pass\n"
        for method in (*methods, name)
        if (method != "Run") or base == "FusionBasePass"
    )
    assert f"a.py:2: P defines {name}; did you mean {intended}?" in line(4, code)


@pytest.mark.parametrize(
    ("name", "intended"), [("shape_prooven", "shape_proven"), ("bottomup", "bottom_up")]
)
def test_so_is_a_setting_of_the_class(line: Any, name: str, intended: str) -> None:
    message = line(4, pass_of("P", "es.Relu(x)", more=f"    {name} = True\n"))
    assert f"P defines {name}; did you mean {intended}?" in message


def test_a_base_class_of_the_vendors_is_looked_at_too(line: Any) -> None:
    base = pass_of(
        "_Base", "es.Relu(x)", "", "    def MeetRequirement(self, match): return False\n"
    )
    assert "_Base defines MeetRequirement; did you mean" in line(
        4, base, "@REG_FUSION_PASS\nclass P(_Base): pass\n"
    )


@pytest.mark.parametrize("name", ["Helper", "_MeetRequirement", "Pattern2", "Check", "kind_of"])
def test_other_methods_are_the_authors_own(vendors: Any, notes: Any, name: str) -> None:
    more = f"    def {name}(self): pass\n    def MeetRequirements(self, match): return True\n"
    vendors.write("acme/a.py", pass_of("P", "es.Relu(x)", more=more))
    assert notes() == []


@pytest.mark.parametrize("mark", ["@hookimpl\n", ""])
@pytest.mark.parametrize(
    ("name", "intended"),
    [
        ("gehost_compile_startd", "gehost_compile_started"),
        ("gehost_before_infer_shape", "gehost_before_infershape"),
        ("gehost_afterpass", "gehost_after_pass"),
        ("gehots_after_pass", "gehost_after_pass"),
        ("gehost_check_support", "gehost_check_node_support"),
    ],
)
def test_a_misspelled_hook_of_a_file_is_met_with_the_right_one(
    line: Any, mark: str, name: str, intended: str
) -> None:
    if mark and not name.startswith("gehost"):
        mark = ""
    message = line(4, pass_of("P", "es.Relu(x)"), f"{mark}def {name}(): pass\n")
    assert f"did you mean {intended}?" in message


def test_so_is_that_of_a_plugin() -> None:
    class Plugin:
        def gehost_pass_faild(self) -> None:
            pass

    with pytest.raises(
        VendorError,
        match=rf"^{__file__}:\d+: plugin mine: there is no hook gehost_pass_faild; did you mean gehost_pass_failed\?$",
    ):
        Host(HostOptions(plugins=False), [("mine", Plugin())])


@pytest.mark.parametrize("name", ["register_ops", "gehost_helper", "after_pass"])
def test_other_functions_are_the_authors_own_too(vendors: Any, notes: Any, name: str) -> None:
    vendors.write("acme/a.py", pass_of("P", "es.Relu(x)"), f"def {name}(): pass\n")
    assert notes() == []


# -- operators ------------------------------------------------------------------------------------------------------

SILU = "@ops.register('acme::SiLU')\ndef silu(x, *, by=1.0): return x * es.Sigmoid(x)\n"
SOFTPLUS = "@ops.register('acme::Softplus')\ndef softplus(x): return es.op('Softplus')(x)\n"


def test_a_name_that_is_onnx_s_and_the_vendor_s_own_has_to_be_said(
    line: Any, vendors: Any, notes: Any
) -> None:
    message = line(5, SOFTPLUS, pass_of("P", "es.Softplus(x)"))
    assert "es.Softplus is ONNX's or acme::Softplus" in message
    assert 'write es.op("Softplus") or es.op("acme::Softplus")' in message
    for op in ("Softplus", "acme::Softplus"):
        vendors.write("acme/a.py", SOFTPLUS, pass_of("P", f"es.op('{op}')(x)"))
        assert notes() == []
        assert [node.op_type for node in onnx.load(vendors.root.parent / "o.onnx").graph.node][
            1
        ] == "Softplus"


def test_an_operator_in_another_file_of_the_vendor_counts_and_another_vendor_s_does_not(
    line: Any, vendors: Any, notes: Any
) -> None:
    vendors.write("other/ops.py", SOFTPLUS)
    vendors.write("acme/a.py", pass_of("P", "es.Softplus(x)"))
    assert notes() == []
    vendors.write("acme/b.py", SOFTPLUS.replace("acme::", "ac::"))
    assert "es.Softplus is ONNX's or ac::Softplus" in line(5, pass_of("P", "es.Softplus(x)"))


@pytest.mark.parametrize("reading", ["acme", "other"])
def test_an_operator_that_two_vendors_declare_alike_is_each_one_s_own(
    line: Any, vendors: Any, notes: Any, reading: str
) -> None:
    for vendor in ("acme", "other"):
        vendors.write(f"{vendor}/ops.py", SILU, SOFTPLUS)
    vendors.write(f"{reading}/b.py", pass_of("P", "es.SiLU(x)"))
    assert notes() == []
    vendors.write(f"{reading}/b.py", pass_of("P", "es.op('acme::SilU')(x)"))
    assert "did you mean acme::SiLU" in line(5)
    vendors.write(f"{reading}/b.py", pass_of("P", "es.Softplus(x)"))
    assert "es.Softplus is ONNX's or acme::Softplus" in line(5)


@pytest.mark.parametrize(
    ("value", "intended"),
    [
        ("es.op('acme::SilU')", "did you mean acme::SiLU"),
        ("es.op('acme::Silu')", "did you mean acme::SiLU"),
        ("es.op('acm::SiLU')", "did you mean acme::SiLU"),
        ("es.op('ACME::SiLU')", "did you mean acme::SiLU"),
        ("es.SILU", "has an operator SILU; did you mean acme::SiLU?"),
        ("es.op('Sofplus')", "has an operator Sofplus; did you mean Softplus?"),
        ("es.op('ai.onnx::Sofplus')", "has an operator Sofplus; did you mean Softplus?"),
        (
            "es.op('ai.onnx.ml::Scalr')",
            "domain ai.onnx.ml has no operator Scalr; did you mean Scaler?",
        ),
    ],
)
def test_a_misspelled_operator_is_met_with_the_nearest(
    line: Any, value: str, intended: str
) -> None:
    assert intended in line(5, SILU, pass_of("P", f"{value}(x)"))
    pattern = pass_of("P", "es.Relu(x)").replace("es.Neg", value)
    assert intended in line(5, SILU, pattern)
    if "acme" in value:
        (name,) = [part for part in value.split("'") if "::" in part]
        decompose = f"@REG_DECOMPOSE_PASS(['{name}'])\nclass P(DecomposePass):\n    def Replacement(self, node): pass\n"
        assert intended in line(5, SILU, decompose)


@pytest.mark.parametrize("name", ["acme::SiLUGrad", "acme::Other", "com.microsoft::SiLU"])
def test_another_operator_that_is_not_registered_is_not_a_slip(
    vendors: Any, notes: Any, name: str
) -> None:
    vendors.write("acme/a.py", SILU, pass_of("P", f"es.op('{name}')(x)"))
    assert notes() == []


@pytest.mark.parametrize(
    ("traits", "message"),
    [
        ("['radnom']", 'there is no trait "radnom"; did you mean random?'),
        ("['Stateful']", 'there is no trait "Stateful"; did you mean stateful?'),
        ("['pure']", 'there is no trait "pure"; there are commutative, random, stateful'),
        ("'random'", 'traits must be a list, as in ["random"]'),
    ],
)
def test_traits_are_a_closed_set(line: Any, traits: str, message: str) -> None:
    assert message in line(4, f"ops.register('acme::F', inputs=['x'], traits={traits})\n")


TYPED = "@ops.register('acme::F')\ndef f(x, *, flag=False, size=1, by=1.0, how='a', axes=(0,), scales=[1.0, 2], name: str): return es.Relu(x)\n"


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("flag='no'", "attribute \"flag\" must be True or False, got 'no'"),
        ("flag=2", 'attribute "flag" must be True or False, got 2'),
        ("size='1'", 'attribute "size" must be an integer'),
        ("size=1.5", 'attribute "size" must be an integer'),
        ("by='1'", 'attribute "by" must be a number'),
        ("by=True", 'attribute "by" must be a number'),
        ("how=1", 'attribute "how" must be a string'),
        ("axes=0", 'attribute "axes" must be a list, each entry an integer'),
        ("axes=[0.5]", 'attribute "axes" must be a list, each entry an integer'),
        ("scales=['a']", 'attribute "scales" must be a list, each entry a number'),
        ("name=1", 'attribute "name" must be a string'),
        ("flags=True", 'acme::F has no attribute "flags"; did you mean flag?'),
    ],
)
@pytest.mark.parametrize("body", [True, False])
def test_attributes_of_registered_operators_are_checked(
    line: Any, value: str, message: str, body: bool
) -> None:
    column = TYPED
    if not body:
        column = "ops.register('acme::F', inputs=['x'], attributes=dict(flag=False, size=1, by=1.0, how='a', axes=(0,), scales=[1.0, 2], name=''))\n"
    needed = "" if value.startswith("name") else ", name='n'"
    assert message in line(5, column, pass_of("P", f"es.op('acme::F')(x, {value}{needed})"))
    if not value.startswith("name"):
        pattern = (
            pass_of("P", "es.Relu(x)")
            .replace("es.Neg(", "es.constrain(es.op('acme::F')(")
            .replace("CreateInput(0))", f"CreateInput(0)), {value})", 1)
        )
        assert message in line(5, column, pattern)


def test_right_attributes_are_taken(vendors: Any, notes: Any) -> None:
    right = (
        "flag=1, size=np.int64(2), by=2, how='b', axes=np.array([1, 2]), scales=[1, 2.5], name='n'"
    )
    vendors.write(
        "acme/a.py", "import numpy as np\n", TYPED, pass_of("P", f"es.op('acme::F')(x, {right})")
    )
    assert notes() == []


def test_a_default_that_onnx_has_no_kind_for_is_refused_at_load(line: Any) -> None:
    assert 'attribute "by": ONNX has no type for values of object' in line(
        4, "@ops.register('acme::F')\ndef f(x, *, by=object()): return x\n"
    )


@pytest.mark.parametrize(
    ("outputs", "body", "message"),
    [
        ("'y', 'z'", "es.Relu(x)", "returns 1 output, declared are y, z"),
        ("'y',", "(es.Relu(x), es.Neg(x))", "returns 2 outputs, declared is y"),
        ("'y', 'z'", "es.Split(x, num_outputs=3, axis=0)", "returns 3 outputs, declared are y, z"),
        ("'y',", "None", "must return its output tensors, got None"),
        ("'y',", "es.Relu(x) if bias is not None else [x, x]", "returns 2 outputs, declared is y"),
    ],
)
def test_a_body_with_another_number_of_outputs_is_refused_at_load(
    line: Any, outputs: str, body: str, message: str
) -> None:
    code = f"@ops.register('acme::F', outputs=[{outputs}])\ndef f(x, bias=None, *, by=1): return {body}\n"
    assert f"a.py:2: the body of acme::F {message}" in line(4, code)


def test_a_body_that_refuses_its_defaults_is_not(vendors: Any, notes: Any) -> None:
    body = "@ops.register('acme::F')\ndef f(x, *, by=0): return es.Relu(x) if 1 / by else x\n"
    vendors.write("acme/a.py", body, pass_of("P", "es.op('acme::F')(x, by=1)"))
    assert notes() == []


SUM = """
@ops.register('acme::Total', {traits})
def sum_(x, y): return es.Add(x, y)

@REG_FUSION_PASS
class P(PatternFusionPass):
    {init}
    def Patterns(self):
        builder = EsGraphBuilder("p")
        a, b = builder.CreateInputs(2)
        return [Pattern(builder.BuildAndReset([{pattern}]))]

    def Replacement(self, match):
        builder = EsGraphBuilder("r")
        a, b = builder.CreateInputs(2)
        return builder.BuildAndReset([es.Max(a, b)])
"""
SUMS = """<ir_version: 8, opset_import: ["" : 17, "acme" : 1]>
main (float[2] x, float[2] y) => (float[2] a, float[2] b) {
    n = Neg(x)
    m = Neg(x)
    a = acme.Total(m, y)
    b = acme.Total(y, n)
}"""


@pytest.mark.parametrize(
    ("init", "pattern"),
    [
        ("", "es.Commutative(es.Total(es.Neg(a), b))"),
        ("", "es.Commutative(es.op('acme::Total')(es.Neg(a), b))"),
        (
            "def __init__(self): super().__init__(PatternMatcherConfigBuilder().EnableCommutativeMatch().Build())",
            "es.op('acme::Total')(es.Neg(a), b)",
        ),
    ],
)
def test_an_operator_with_the_trait_commutes(vendors: Any, init: str, pattern: str) -> None:
    vendors.write(
        "acme/a.py", SUM.format(traits="traits=['commutative']", init=init, pattern=pattern)
    )
    _, report = vendors.host().run(parse(SUMS))
    assert report.passes[0].replaced == 2


def test_an_operator_without_it_does_not(line: Any) -> None:
    pattern = "es.Commutative(es.op('acme::Total')(es.Neg(a), b))"
    assert 'acme::Total is not known to commute; register it with traits=["commutative"]' in line(
        5, SUM.format(traits="", init="", pattern=pattern)
    )


# -- other styles ---------------------------------------------------------------------------------------------------

DRR = "from gehost_drr import *\n"
RULE = "class R(DrrPatternBase):\n    def __call__(self, ctx):\n        pat = ctx.SourcePattern()\n        pat.y = pat.Relu(pat.x)\n        res = pat.ResultPattern()\n        res.y = res.Abs(res.x)\n"
TRACED = "from gehost_register_pass import RegisterPass, op\n"
PAIR = "@RegisterPass\ndef f():\n    return (lambda x: op.Relu(x)), (lambda x: op.Abs(x))\n"


@pytest.mark.parametrize(
    ("code", "message"),
    [
        (DRR + RULE + RULE, "the class R hides the one at"),
        (DRR + RULE + "class P(PatternRewritePass): pass\n" * 2, "the class P hides the one at"),
        (TRACED + PAIR + PAIR, "a pass called f is registered already at"),
        (
            DRR
            + RULE
            + "@REG_IR_PASS('p')\nclass P(PatternRewritePass):\n    patern = patterns = [R]\n    def InitialisePatterns(self, context): pass\n",
            "P defines InitialisePatterns; did you mean InitializePatterns?",
        ),
        (
            DRR
            + "@REG_IR_PASS('p')\nclass P(Pass):\n    def Run(self, graph): pass\n    def CanApply(self, graph): return False\n",
            "P defines CanApply; did you mean CanApplyOn?",
        ),
        (DRR + RULE + "    benefits = 3\n", "R defines benefits; did you mean benefit?"),
    ],
)
def test_other_styles(line: Any, code: str, message: str) -> None:
    assert message in line(4, code)


def test_a_pass_of_another_style_that_is_not_registered_is_told(vendors: Any, notes: Any) -> None:
    vendors.write(
        "acme/a.py",
        DRR,
        RULE,
        "class Whole(Pass):\n    def Run(self, graph): pass\nclass _Own(Whole): pass\nclass P(Pass):\n    def Run(self, graph): pass\n",
    )
    (note,) = notes()
    assert "P is not registered; put @REG_IR_PASS() above it" in note


# -- directories ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (".", "no vendor is in it; give the directory that holds them: {top}/project/vendors"),
        (
            "project",
            "no vendor is in it; give the directory that holds them: {top}/project/vendors",
        ),
        (
            "project/vendors/acme",
            "this is one vendor's directory; give the one that holds it: {top}/project/vendors",
        ),
        (
            "project/vendors/acme/custom_fusion_passes",
            "the one that holds the vendor: {top}/project/vendors",
        ),
        (
            "project/vendors/acme/custom_fusion_passes/pack",
            "the one that holds the vendor: {top}/project/vendors",
        ),
        (
            "project/vendors/acme/custom_fusion_passes/a.py",
            "it is a file; give the one that holds <vendor>/custom_fusion_passes/a.py",
        ),
        ("project/vendor", "no such directory of vendors; did you mean vendors?"),
    ],
)
def test_a_directory_at_another_level_is_met_with_the_right_one(
    model: Path, refused: Any, tmp_path: Path, value: str, message: str
) -> None:
    top = tmp_path / "top"
    pack = top / "project/vendors/acme/custom_fusion_passes/pack"
    pack.mkdir(parents=True)
    (pack / "__init__.py").write_text("")
    (pack.parent / "a.py").write_text("")
    assert message.format(top=top) in refused(2, model, "--vendors", os.path.normpath(top / value))


def test_few_passes_are_told_in_a_line(
    vendors: Any, notes: Any, gehost_run: Any, model: Path, tmp_path: Path, capfd: Any
) -> None:
    assert notes() == ["gehost: 0 passes of 0 vendors"]
    passes = vendors.root / "acme/custom_fusion_passes"
    passes.mkdir(parents=True)
    assert notes() == ["gehost: 0 passes of 1 vendor"]
    (passes / "notes.md").write_text("")
    (passes / "_helper.py").write_text("")
    assert notes() == ["gehost: 0 passes of 1 vendor; 2 files skipped (-v lists them)"]
    skipped = [line for line in notes("-v") if line.startswith("skipped: ")]
    assert len(skipped) == 2
    vendors.write("acme/a.py", pass_of("P", "es.Relu(x)"))
    assert notes() == ["gehost: 1 pass of 1 vendor; 2 files skipped (-v lists them)"]
    (passes / "notes.md").unlink()
    assert notes() == []
    (passes / "empty.py").write_text("")
    assert notes() == ["gehost: 1 pass of 1 vendor; 2 files skipped (-v lists them)"]
    (passes / "empty.py").unlink()
    (vendors.root / "idle/custom_fusion_passes").mkdir(parents=True)
    assert notes() == ["gehost: 1 pass of 2 vendors, none of idle; 1 file skipped (-v lists them)"]
    code, _, err = gehost_run("passes", "--vendors", vendors.root, "--json")
    assert (code, err) == (
        0,
        "gehost: 1 pass of 2 vendors, none of idle; 1 file skipped (-v lists them)\n",
    )
    code, _, err = gehost_run("compile", model, "-o", tmp_path / "o.onnx")
    assert (code, err.splitlines()) == (0, notes(root=vendors.root))
    os.rename(vendors.root, tmp_path / "elsewhere")
    code, _, err = gehost_run("compile", model, "-o", tmp_path / "o.onnx")
    assert (code, err) == (0, "")
    assert run(["compile", str(model), "-o", str(tmp_path / "o.onnx")]) == 0
    assert capfd.readouterr().err == NO_VENDORS


def test_passes_of_plugins_alone_are_passes(model: Path, tmp_path: Path) -> None:
    class Plugin:
        @hookimpl
        def gehost_register_passes(self, registry: PassRegistry) -> None:
            registry.add(
                PassSpec("Idle", CustomPassStage.kAfterInferShape, "p.py:1", "fusion", Idle)
            )

    host = Host(HostOptions(plugins=False), plugins=[("mine", Plugin())])
    assert host.compile(model, tmp_path / "o.onnx").notes == host.notes == []
    assert Host(HostOptions(plugins=False)).notes[0].startswith("0 passes: no vendors given")


class Idle(FusionBasePass):
    def Run(self, graph: Any, context: Any) -> None:
        del graph, context


def test_the_files_that_are_skipped_are_listed(vendors: Any, gehost_run: Any) -> None:
    vendors.write("acme/a.py", pass_of("P", "es.Relu(x)"))
    skipped = vendors.write("acme/b.py", "")
    code, _, err = gehost_run("passes", "--vendors", vendors.root, "-v")
    assert (code, len(err.splitlines())) == (0, 2)
    assert err.splitlines()[0].startswith(f"skipped: {skipped}: it registers no pass")
    assert err.splitlines()[1].endswith("; 1 file skipped (-v lists them)")


# -- Python ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("value", [b"", None, 3])
def test_host_run_takes_models_and_paths_alone(value: Any) -> None:
    with pytest.raises(
        UsageError,
        match=rf"Host.run wants a path, an onnx.ModelProto or an onnx_ir.Model, got {type(value).__name__}$",
    ):
        Host(HostOptions(plugins=False)).run(value)


def test_host_compile_takes_paths_alone(model: Path) -> None:
    host = Host(HostOptions(plugins=False))
    with pytest.raises(
        UsageError,
        match="Host.compile wants the path of a file as model, got ModelProto; Host.run takes models",
    ):
        host.compile(parse(MODEL), "o.onnx")  # pyright: ignore[reportArgumentType]
    with pytest.raises(UsageError, match="wants the path of a file as output, got NoneType"):
        host.compile(model, None)  # pyright: ignore[reportArgumentType]


def test_notes_are_in_the_host_and_the_report(vendors: Any, model: Path, tmp_path: Path) -> None:
    host = vendors.host()
    assert host.notes == ["0 passes of 0 vendors"]
    report = host.compile(model, tmp_path / "o.onnx")
    assert (report.notes, report.exit_code) == (host.notes, 0)
