"""What a compile adds or makes dead after its clean-up is gone from the output; the rest stays."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from gehost import Host, HostOptions
from gehost.testing import parse

VENDORS = Path(__file__).parents[2] / "vendors"

LATE = ("kAfterBuiltinFusionPass", "kAfterOriginGraphOptimize")
FOLD = """
@REG_FUSION_PASS(stage=CustomPassStage.{stage})
class FoldScale(PatternFusionPass):
    def Patterns(self):
        builder = EsGraphBuilder("scaled")
        x = builder.CreateInput(0)
        w, scale = builder.CreateConst(0.0), builder.CreateConst(0.0)
        product = es.MatMul(x, w)
        pattern = Pattern(builder.BuildAndReset([es.Mul(product, scale)]))
        return [pattern.CaptureTensor(w).CaptureTensor(scale)]

    def Replacement(self, match):
        w, scale = (match.GetCapturedTensor(i).value.array for i in (0, 1))
        builder = EsGraphBuilder("product")
        return builder.BuildAndReset(
            [es.MatMul(builder.CreateInput(0), builder.CreateConst(w * scale))]
        )
"""
SCALED = """<ir_version: 8, opset_import: ["" : 17]>
g (float[2, 3] x{more}) => (float[2, 4] y) {{ p = MatMul(x, w) y = Mul(p, s) }}"""


def weights() -> dict[str, np.ndarray[Any, Any]]:
    rng = np.random.default_rng(0)
    return {
        "w": rng.standard_normal((3, 4)).astype(np.float32),
        "s": rng.standard_normal(4).astype(np.float32),
    }


def initializers(model: onnx.ModelProto) -> list[str]:
    return [tensor.name for tensor in model.graph.initializer]


@pytest.mark.parametrize("stage", LATE)
def test_weights_that_a_late_pass_leaves_unread_are_removed(vendors: Any, stage: str) -> None:
    vendors.write("acme/a.py", FOLD.format(stage=stage))
    result, report = vendors.host(cleanup=True, verify=True).run(
        parse(SCALED.format(more=""), weights())
    )
    assert initializers(result) == ["FoldScale_Constant_0"]
    assert report.cleanup["dead_initializers"] == 2
    again, _ = vendors.host(cleanup=True).run(result)
    assert again.SerializeToString() == result.SerializeToString()


@pytest.mark.parametrize("stage", LATE)
def test_without_clean_up_nothing_is_removed(vendors: Any, stage: str) -> None:
    vendors.write("acme/a.py", FOLD.format(stage=stage))
    result, report = vendors.host().run(parse(SCALED.format(more=""), weights()))
    assert initializers(result) == ["w", "s", "FoldScale_Constant_0"]
    assert report.cleanup == {}


def test_an_initializer_that_is_a_graph_input_stays(vendors: Any) -> None:
    """Below IR version 4 it cannot be overridden, and so is a constant."""
    vendors.write("acme/a.py", FOLD.format(stage=LATE[0]))
    model = parse(SCALED.format(more=""), weights())
    for name, shape in (("w", [3, 4]), ("s", [4])):
        model.graph.input.append(onnx.helper.make_tensor_value_info(name, 1, shape))
    model.ir_version = 3
    result, report = vendors.host(cleanup=True).run(model)
    assert [record.replaced for record in report.passes] == [1]
    assert initializers(result) == ["w", "s"]
    assert [info.name for info in result.graph.input] == ["x", "w", "s"]


def test_nodes_that_a_late_hook_leaves_unread_are_removed(vendors: Any) -> None:
    """In a nested body as well; a node that nothing but the host knows to be pure stays."""
    hook = """
        @hookimpl
        def gehost_after_origin_graph_optimize(graph):
            for each in graph.model.graphs:
                for node in each.nodes_of("Neg"):
                    each.set_input(node, 0, graph.inputs[0])
        """
    vendors.write("acme/a.py", hook)
    text = """<ir_version: 8, opset_import: ["" : 17, "other" : 1]>
    g (float[2] x, bool c) => (float[2] y) {
        a = Abs(x) o = other.Opaque(x)
        b = If (c) <then_branch = t () => (float[2] u) { r = Relu(a) u = Neg(r) },
                    else_branch = e () => (float[2] v) { v = Neg(o) }>
        y = Neg(b)
    }"""
    result, _ = vendors.host(cleanup=True).run(parse(text))
    assert [node.op_type for node in result.graph.node] == ["Opaque", "Neg"]


SHARED = """
@REG_FUSION_PASS(stage=CustomPassStage.kAfterBuiltinFusionPass)
class AddOne(PatternFusionPass):
    def Patterns(self):
        builder = EsGraphBuilder("relu")
        return [Pattern(builder.BuildAndReset([es.Relu(builder.CreateInput(0))]))]

    def Replacement(self, match):
        builder = EsGraphBuilder("add")
        x = builder.CreateInput(0)
        return builder.BuildAndReset([es.Max(es.Add(x, builder.CreateScalar(1.0)), 1.0)])
"""


@pytest.mark.parametrize(
    ("constant", "remaining"),
    [
        ("", ["AddOne_Constant_0"]),
        ("one", ["one"]),
        ("k = Constant<value_float = 1.0>()", []),
    ],
)
def test_equal_constants_that_late_passes_add_are_one(
    vendors: Any, constant: str, remaining: list[str]
) -> None:
    vendors.write("acme/a.py", SHARED)
    text = """<ir_version: 8, opset_import: ["" : 17]>
    g (float[2] x) => (float[2] y, float[2] z) { BEFORE a = Relu(x) y = Neg(a) b = Relu(y) z = Sub(b, WITH) }"""
    body = constant if "(" in constant else ""
    read = {"": "x", "one": "one"}.get(constant, "k")
    model = parse(
        text.replace("BEFORE", body).replace("WITH", read),
        {"one": np.float32(1)} if read == "one" else {},
    )
    result, report = vendors.host(cleanup=True).run(model)
    assert [record.replaced for record in report.passes] == [2]
    assert len(initializers(result)) <= 1
    assert (
        sum(node.op_type == "Constant" for node in result.graph.node) + len(initializers(result))
        == 1
    )
    if remaining:
        assert initializers(result) == remaining
    again, second = vendors.host(cleanup=True, disable=["AddOne"]).run(result)
    assert not any(second.cleanup.values())
    assert again.SerializeToString() == result.SerializeToString()


NEGATE = """
@REG_FUSION_PASS(stage=CustomPassStage.{stage})
class AddNegative(PatternFusionPass):
    def Patterns(self):
        builder = EsGraphBuilder("difference")
        x, c = builder.CreateInputs(2)
        return [Pattern(builder.BuildAndReset([es.Sub(x, c)]))]

    def Replacement(self, match):
        builder = EsGraphBuilder("total")
        x, c = builder.CreateInputs(2)
        return builder.BuildAndReset([es.Add(x, es.Neg(c))])
"""


@pytest.mark.parametrize("stage", LATE)
def test_constants_that_a_late_pass_computes_with_are_folded(vendors: Any, stage: str) -> None:
    vendors.write("acme/a.py", NEGATE.format(stage=stage))
    text = """<ir_version: 8, opset_import: ["" : 17]> g (float[4] x) => (float[4] y)
    <float[4] c = {1, -2, 3, 4}> { y = Sub(x, c) }"""
    result, _ = vendors.host(cleanup=True, verify=True).run(parse(text))
    assert [node.op_type for node in result.graph.node] == ["Add"]
    again, _ = vendors.host(cleanup=True).run(result)
    assert again.SerializeToString() == result.SerializeToString()


FUNCTIONS = """<ir_version: 8, opset_import: ["" : 17, "l" : 1, "m" : 1, "n" : 1, "never" : 1]>
g (float[2] x) => (float[2] y) { a = l.Used(x) b = Relu(a) y = m.Kept(b) }
<domain: "l", opset_import: ["" : 17, "n" : 1]> Used (i) => (o) { o = n.Inner(i) }
<domain: "n", opset_import: ["" : 17]> Inner (i) => (o) { o = Abs(i) }
<domain: "m", opset_import: ["" : 17]> Kept (i) => (o) { o = Neg(i) }
<domain: "l", opset_import: ["" : 17]> NeverCalled (i) => (o) { o = Neg(i) }"""
UNCALL = """
@REG_FUSION_PASS(stage=CustomPassStage.{stage})
class Uncall(PatternFusionPass):
    def Patterns(self):
        builder = EsGraphBuilder("used")
        return [Pattern(builder.BuildAndReset([es.op("l::Used")(builder.CreateInput(0))]))]

    def Replacement(self, match):
        builder = EsGraphBuilder("abs")
        return builder.BuildAndReset([es.Abs(builder.CreateInput(0))])
"""


@pytest.mark.parametrize("stage", ["kBeforeInferShape", "kAfterInferShape", *LATE])
def test_functions_and_imports_that_nothing_uses_any_more_are_removed(
    vendors: Any, stage: str
) -> None:
    vendors.write("acme/a.py", UNCALL.format(stage=stage))
    model = parse(FUNCTIONS)
    result, report = vendors.host(cleanup=True, verify=True).run(model)
    assert [record.replaced for record in report.passes] == [1]
    assert [function.name for function in result.functions] == ["Kept", "NeverCalled"]
    assert [entry.domain for entry in result.opset_import] == ["", "l", "m", "never"]
    again, _ = vendors.host(cleanup=True).run(result)
    assert again.SerializeToString() == result.SerializeToString()
    result, _ = vendors.host().run(model)
    assert len(result.functions) == 4
    assert len(result.opset_import) == 5


def test_a_function_that_an_uncalled_one_calls_stays(vendors: Any) -> None:
    vendors.write("acme/a.py", UNCALL.format(stage=LATE[0]))
    own = '<domain: "l", opset_import: ["" : 17]> NeverCalled (i) => (o) { o = Neg(i) }'
    other = own.replace("17]", '17, "n" : 1]').replace("Neg", "n.Inner")
    assert own in FUNCTIONS
    result, _ = vendors.host(cleanup=True).run(parse(FUNCTIONS.replace(own, other)))
    assert [function.name for function in result.functions] == ["Inner", "Kept", "NeverCalled"]
    assert [entry.domain for entry in result.opset_import] == ["", "l", "m", "n", "never"]


def test_an_import_that_a_pass_added_and_another_made_needless_is_removed(vendors: Any) -> None:
    vendors.write(
        "acme/a.py",
        """
        @ops.register("acme::Twice")
        def twice(x):
            return es.Add(x, x)
        """,
        vendors.swap("A", "Relu", "Twice"),
        vendors.swap("B", "Twice", "Sin", stage=LATE[0]),
    )
    text = '<ir_version: 8, opset_import: ["" : 17]> g (float[2] x) => (float[2] y) { y = Relu(x) }'
    result, report = vendors.host(cleanup=True).run(parse(text))
    assert [record.replaced for record in report.passes] == [1, 1]
    assert [entry.domain for entry in result.opset_import] == [""]
    assert not result.functions
    result, _ = vendors.host().run(parse(text))
    assert [entry.domain for entry in result.opset_import] == ["", "acme"]


def test_functions_that_were_inlined_leave_no_import_behind() -> None:
    host = Host(HostOptions(plugins=False, inline_functions=True))
    result, _ = host.run(parse(FUNCTIONS))
    assert [entry.domain for entry in result.opset_import] == ["", "never"]


def test_what_no_pass_touches_comes_out_byte_for_byte(vendors: Any, tmp_path: Path) -> None:
    """Also what was unused when it came."""
    vendors.write("acme/a.py", FOLD.format(stage=LATE[0]))
    path = tmp_path / "m.onnx"
    onnx.save(parse(FUNCTIONS), path)
    vendors.host(cleanup=True).compile(path, tmp_path / "out.onnx")
    assert (tmp_path / "out.onnx").read_bytes() == path.read_bytes()


def test_a_second_compile_folds_no_more() -> None:
    """The first one filled the room that it had freed; the second one frees none."""
    sizes = (150_000, 125_000, 100_000)
    shapes = ", ".join(f"int64[1] s{n} = {{{size}}}" for n, size in enumerate(sizes))
    fills = " ".join(
        f"c{n} = ConstantOfShape(s{n}) d{n} = Mul(x, c{n}) r{n} = ReduceMax<keepdims = 0>(d{n})"
        for n in range(3)
    )
    text = f"""<ir_version: 8, opset_import: ["" : 17]>
    g (float x) => (float y) <{shapes}> {{ {fills} y = Sum(x, r0, r1, r2) }}"""
    model = parse(text)
    model.graph.initializer.add(name="unused", data_type=2, dims=[10**6], raw_data=bytes(10**6))
    host = Host(HostOptions(plugins=False))
    result, report = host.run(model)
    assert report.cleanup["folded"] == 2
    assert result.ByteSize() <= model.ByteSize()
    again, report = host.run(result)
    assert report.cleanup["folded"] == 0
    assert again.SerializeToString() == result.SerializeToString()


BRANCH = """<ir_version: 8, opset_import: ["": 17]> g (float[2, 4] x, float[2, 4] z, bool c) => (float[2, 4] y)
    <bool no = {0}, float two = {1.4142135}, float one = {1.0}, float half = {0.5}> {
    d = Div(x, two) CONDITION
    e = If(k) <then_branch = g1 () => (float[A, B] o) { o = Abs(z) }, else_branch = g2 () => (float[2, 4] p) { p = Erf(d) }>
    f = Add(e, one) h = Mul(f, x) y = Mul(h, half) }"""


@pytest.mark.parametrize("condition", ["k = Constant<value = bool {0}>()", ""])
def test_a_branch_that_is_surely_taken_is_fused_with_what_is_outside(condition: str) -> None:
    text = BRANCH.replace("CONDITION", condition)
    if not condition:
        text = text.replace("If(k)", "If(no)")
    model = onnx.parser.parse_model(text)
    host = Host(HostOptions(vendors=[VENDORS], plugins=False))
    first = host.run(model)[0]
    assert [node.op_type for node in first.graph.node] == ["Gelu"]
    again = host.run(first)[0]
    assert again.SerializeToString() == first.SerializeToString()


def test_a_branch_is_decided_by_a_constant_and_an_unknown() -> None:
    model = onnx.parser.parse_model(BRANCH.replace("CONDITION", "k = And(c, no)"))
    result = Host(HostOptions(vendors=[], plugins=False)).run(model)[0]
    assert [node.op_type for node in result.graph.node] == ["Div", "Erf", "Add", "Mul", "Mul"]


def test_an_if_in_a_function_stays_unless_it_is_inlined() -> None:
    model = onnx.parser.parse_model(
        """<ir_version: 8, opset_import: ["": 17, "f": 1]> g (float[2, 4] x) => (float[2, 4] y) { y = f.F(x) }
        <domain: "f", opset_import: ["": 17]> F (p) => (q) { c = Constant<value = bool {1}>()
            q = If(c) <then_branch = g1 () => (float[2, 4] o) { o = Neg(p) }, else_branch = g2 () => (float[2, 4] r) { r = Abs(p) }> }"""
    )
    result, _ = Host(HostOptions(vendors=[], plugins=False)).run(model)
    assert [node.op_type for node in result.functions[0].node] == ["Constant", "If"]
    result, _ = Host(HostOptions(vendors=[], plugins=False, inline_functions=True)).run(model)
    assert [node.op_type for node in result.graph.node] == ["Neg"]
