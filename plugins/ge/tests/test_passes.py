"""Passes in GE's Python form run as written, and as their C++-named twins do."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import onnx
import pytest

from gehost import Host, HostOptions, PassError, UsageError
from gehost.diagnose.explain.run import explain

from .conftest import model, replaced

CHAIN = """
g (float[2,3] a, float[3,4] b, float[2,4] c, float[2,4] d)
    => (float[2,4] y, float[2,4] z, float[2,4] s, float[2,4] w) {
  mm = MatMul(a, b)
  y = Add(mm, c)
  r = Relu(d)
  z = Relu(r)
  s = Add(c, d)
  m = Relu(s)
  w = LeakyRelu <alpha=0.2> (m)
}"""

PUBLISHED = (Path(__file__).parent / "published_style.py.txt").read_text()
TWINS = """
from gehost import CustomPassStage, DecomposePass, EsGraphBuilder, Pattern, PatternFusionPass
from gehost import REG_DECOMPOSE_PASS, REG_FUSION_PASS, DataType, es

@REG_FUSION_PASS(name="MatMulBiasToGemm", stage=CustomPassStage.kAfterInferShape)
class MatMulBiasToGemm(PatternFusionPass):
    def Patterns(self):
        b = EsGraphBuilder()
        x, y, z = b.CreateInputs(3)
        out = es.MatMul(x, y) + z
        return [Pattern(b.BuildAndReset(out)).CaptureTensor(out)]
    def MeetRequirements(self, match):
        value = match.GetCapturedTensor(0).value
        return len(value.shape) == 2 and value.dtype == DataType.FLOAT
    def Replacement(self, match):
        b = EsGraphBuilder()
        x, y, z = b.CreateInputs(3)
        return b.BuildAndReset(es.GEMM(x, y, z, 1.0, 1.0))

@REG_FUSION_PASS(name="DropReluOfRelu", stage=CustomPassStage.kAfterInferShape)
class DropReluOfRelu(PatternFusionPass):
    def Patterns(self):
        b = EsGraphBuilder()
        (x,) = b.CreateInputs(1)
        return [Pattern(b.BuildAndReset(es.Relu(es.Relu(x))))]
    def Replacement(self, match):
        b = EsGraphBuilder()
        (x,) = b.CreateInputs(1)
        return b.BuildAndReset(es.Relu(x))

@REG_FUSION_PASS(name="ReluOfSumToMax", stage=CustomPassStage.kBeforeInferShape)
class ReluOfSumToMax(PatternFusionPass):
    def Patterns(self):
        b = EsGraphBuilder()
        x, y = b.CreateInputs(2)
        total = x + y
        return [Pattern(b.BuildAndReset([total, es.Relu(total)]))]
    def Replacement(self, match):
        b = EsGraphBuilder()
        x, y = b.CreateInputs(2)
        total = x + y
        return b.BuildAndReset([total, es.Max(total, 0.0)])

@REG_DECOMPOSE_PASS(["LeakyRelu"], name="ExpandLeakyRelu", stage=CustomPassStage.kAfterInferShape)
class ExpandLeakyRelu(DecomposePass):
    def Replacement(self, node):
        slope = node.attrs.get("alpha", 0.01)
        b = EsGraphBuilder()
        (x,) = b.CreateInputs(1)
        return b.BuildAndReset(es.Relu(x) - es.Relu(x * -1.0) * slope)
"""


def test_published_form_fires_and_equals_its_twin(tmp_path: Path) -> None:
    onnx.save(model(CHAIN), tmp_path / "m.onnx")
    published = tmp_path / "published.py"
    published.write_text(PUBLISHED)
    twins = tmp_path / "twins.py"
    twins.write_text(TWINS)
    outputs: list[bytes] = []
    for file in (published, twins):
        host = Host(HostOptions(pass_paths=[file], verify=True))
        report = host.compile(tmp_path / "m.onnx", tmp_path / "out.onnx")
        assert replaced(report) == dict.fromkeys(
            ("MatMulBiasToGemm", "DropReluOfRelu", "ReluOfSumToMax", "ExpandLeakyRelu"), 1
        )
        compiled = onnx.load(tmp_path / "out.onnx")
        for node in compiled.graph.node:
            del node.metadata_props[:]  # the vendor is the directory of the file
        outputs.append(compiled.SerializeToString(deterministic=True))
    first, second = (onnx.printer.to_text(onnx.load_from_string(output)) for output in outputs)
    assert first == second
    assert outputs[0] == outputs[1]


def test_a_vendor_file_uses_ge_too(tmp_path: Path) -> None:
    home = tmp_path / "acme" / "custom_fusion_passes"
    home.mkdir(parents=True)
    (home / "passes.py").write_text(PUBLISHED)
    host = Host(HostOptions(vendors=[tmp_path]))
    assert {spec.vendor for spec in host.passes if spec.kind != "elementwise"} >= {"acme"}
    onnx.save(model(CHAIN), tmp_path / "m.onnx")
    report = host.compile(tmp_path / "m.onnx", tmp_path / "out.onnx")
    assert sum(replaced(report).values()) == 4


def test_a_file_beside_installed_packages_leaves_them_loaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in a clone, where gehost lies beside the file."""
    (tmp_path / "clone" / "package").mkdir(parents=True)
    (tmp_path / "clone" / "package" / "beside_the_pass.py").write_text("")
    monkeypatch.syspath_prepend(tmp_path / "clone" / "package")
    file = tmp_path / "clone" / "passes.py"
    file.write_text("import beside_the_pass\n" + PUBLISHED)
    host = Host(HostOptions(pass_paths=[file]))
    assert {"MatMulBiasToGemm", "ExpandLeakyRelu"} <= set(host.passes.names())
    assert "beside_the_pass" in sys.modules
    monkeypatch.delitem(sys.modules, "beside_the_pass")


def test_an_answer_of_numpy_counts(compile_with: Any) -> None:
    source = """
import numpy as np
@register_fusion_pass(name="P", stage=PassStage.AFTER_INFER_SHAPE)
class P(PatternFusionPass):
    @pattern
    def relus(self, inputs):
        return Relu(Relu(inputs[0]))
    def meet_requirements(self, match_result):
        return np.all([len(match_result.get_matched_nodes()) == 2])
    def replacement(self, inputs):
        return Relu(inputs[0])
"""
    assert replaced(compile_with(source, model(CHAIN))[1]) == {"P": 1}


def test_captured_tensors_are_the_inputs_then_the_results(compile_with: Any) -> None:
    source = """
seen = []
@register_fusion_pass(name="P", stage=PassStage.AFTER_INFER_SHAPE)
class P(PatternFusionPass):
    @pattern
    def product(self, inputs):
        left, right = inputs[:2]
        return MatMul(left, right) + inputs[2]
    def meet_requirements(self, match_result, context):
        names = [(c.node.name, c.index) for c in map(match_result.get_captured_tensor, range(4))]
        nodes = [node.type for node in match_result.get_matched_nodes()]
        context.set_error_message(
            f"{names} {nodes} {match_result.get_pattern_graph_name()} {context.get_pass_name()}")
        return False
    def replacement(self, inputs, match_result):
        return Add(inputs[0], inputs[1])
"""
    _, report = compile_with(source, model(CHAIN))
    (record,) = [record for record in report.passes if record.name == "P"]
    assert list(record.rejected) == [
        "[('a', 0), ('b', 0), ('c', 0), ('y', 0)] ['MatMul', 'Add'] P_product_pattern P"
    ]


def test_a_constant_of_a_pattern_is_any_constant_unless_values_count(compile_with: Any) -> None:
    text = """
g (float[2] x) => (float[2] y, float[2] z) <float k = {2.0}, float[1] v = {3.0}> {
  y = Mul(x, k)
  z = Mul(x, v)
}"""
    source = """
@register_fusion_pass(name="P", stage=PassStage.AFTER_INFER_SHAPE)
class P(PatternFusionPass):
    def __init__(self):
        super().__init__(CONFIG.build())
    @pattern
    def scaled(self, inputs):
        return inputs[0] * 2.0
    def meet_requirements(self, match_result):
        constant, node = match_result.get_matched_nodes()
        tensor = constant.get_attr("value")
        return (constant.type, node.type, tensor.data_type) == ("Const", "Mul", DataType.DT_FLOAT)
    def replacement(self, inputs, match_result):
        constant = match_result.get_matched_nodes()[0].get_attr("value")
        return inputs[0] / (1.0 / constant.data) if constant.shape.get_dim_num() == 0 else (
            inputs[0] / [1.0 / constant.data[0]])
"""
    for config, expected in (
        ("PatternMatcherConfigBuilder()", 2),
        ("PatternMatcherConfigBuilder().enable_const_value_match()", 1),
    ):
        compiled, report = compile_with(source.replace("CONFIG", config), model(text))
        assert replaced(report) == {"P": expected}, config
        assert sum(node.op_type == "Div" for node in compiled.graph.node) == expected


def test_attributes_count_only_where_asked(compile_with: Any) -> None:
    text = """
g (float[2,3] x) => (float[2,3] y, float[2,3] z) {
  y = Softmax <axis=0> (x)
  z = Softmax <axis=1> (x)
}"""
    source = """
from ge.es.nn import Softmax
@register_fusion_pass(name="P", stage=PassStage.AFTER_INFER_SHAPE)
class P(PatternFusionPass):
    def __init__(self):
        super().__init__(CONFIG.build())
    @pattern
    def softmax(self, inputs):
        return Softmax(inputs[0], axis=0)
    def meet_requirements(self, match_result):
        return match_result.get_captured_tensor(0).node.type == "Data"
    def replacement(self, inputs, match_result):
        axis = match_result.get_matched_nodes()[0].get_attr("axis")
        return Softmax(Relu(inputs[0]) - Relu(inputs[0] * -1.0), axis)
"""
    for config, expected in (
        ("PatternMatcherConfigBuilder()", 2),
        ("PatternMatcherConfigBuilder().enable_ir_attr_match()", 1),
    ):
        _, report = compile_with(source.replace("CONFIG", config), model(text))
        assert replaced(report)["P"] == expected, config


def test_partial_functions_are_methods(compile_with: Any) -> None:
    source = """
import functools
@register_fusion_pass(name="P", stage=PassStage.AFTER_INFER_SHAPE)
class P(PatternFusionPass):
    @pattern
    def one(self, inputs):
        return Relu(Exp(inputs[0]))
    meet_requirements = staticmethod(functools.partial(lambda answer, match_result: answer, True))
    replacement = staticmethod(functools.partial(lambda factor, inputs: Exp(inputs[0]) * factor, 1.0))

@register_fusion_pass(name="Q", stage=PassStage.AFTER_INFER_SHAPE)
class Q(PatternFusionPass):
    @pattern
    def one(self, inputs):
        return Relu(Relu(inputs[0]))
    @functools.lru_cache
    def meet_requirements(self, match_result):
        return True
    def _with(self, operator, inputs):
        return operator(inputs[0])
    replacement = functools.partialmethod(_with, Relu)
"""
    text = "g (float[2] x) => (float[2] y, float[2] z) { e = Exp(x) y = Relu(e) a = Relu(x) z = Relu(a) }"
    assert replaced(compile_with(source, model(text))[1]) == {"P": 1, "Q": 1}


def test_a_graph_pass_rewrites_by_boundary_and_by_hand(compile_with: Any) -> None:
    source = """
@register_fusion_pass(name="P", stage=PassStage.AFTER_INFER_SHAPE)
class P(FusionBasePass):
    def run(self, graph, context):
        inner = next(n for n in graph.get_direct_nodes() if n.type == "Relu")
        outer, slot = inner.get_out_data_nodes_and_port_indexes(0)[0]
        assert (outer.type, slot) == ("Relu", 0)
        assert can_fuse([inner, outer]).ok
        assert not can_fuse([]).ok
        boundary = SubgraphBoundary()
        boundary.add_input(0, SubgraphInput([(inner, 0)]))
        boundary.add_output(0, SubgraphOutput(outer, 0))
        builder = GraphBuilder("one")
        made = builder.build_and_reset([Relu(builder.create_input(0))])
        assert SubgraphRewriter.replace(boundary, made, context=context) == 0
        assert graph.find_node_by_name("y").type == "Add"
"""
    compiled, report = compile_with(source, model(CHAIN))
    assert replaced(report) == {"P": 1}
    assert [node.op_type for node in compiled.graph.node].count("Relu") == 2


def test_an_edit_by_hand_is_reported(compile_with: Any) -> None:
    source = """
@register_fusion_pass(name="P", stage=PassStage.AFTER_INFER_SHAPE)
class P(FusionBasePass):
    def run(self, graph, context):
        outer = graph.find_node_by_name("z")
        inner, port = outer.get_in_data_nodes_and_port_indexes(0)
        assert can_fuse([inner, outer]).ok
        report_match([inner, outer], context)
        source, source_port = inner.get_in_data_nodes_and_port_indexes(0)
        graph.add_data_edge(source, source_port, outer, 0)
        report_fuse([inner], [outer], context)
        graph.remove_node(inner)
"""
    compiled, report = compile_with(source, model(CHAIN))
    assert replaced(report) == {"P": 1}
    assert [node.op_type for node in compiled.graph.node].count("Relu") == 2


def test_options_need_no_declaration(compile_with: Any) -> None:
    source = """
@register_fusion_pass(name="P", stage=PassStage.AFTER_INFER_SHAPE)
class P(FusionBasePass):
    def run(self, graph, context):
        assert context.get_option_value("mode") == "fast"
        assert context.get_option_value("limit.of.nodes") == "3"
        assert context.get_option_value("ge.exec.mode") == "1"
        try:
            context.get_option_value("absent")
        except RuntimeError as error:
            context.set_error_message(str(error))
        return False
"""
    settings = {"P.mode": "fast", "P.limit.of.nodes": 3, "ge.exec.mode": "1"}
    with pytest.raises(PassError, match=r'run: option "absent" has no value; set it: --set P\.a'):
        compile_with(source, model(CHAIN), settings=settings)
    with pytest.raises(UsageError, match=r"setting Q.mode: there is no pass or importer Q"):
        compile_with(source, model(CHAIN), settings={"Q.mode": "fast"})


def test_a_refusal_has_the_name_of_the_method(compile_with: Any, tmp_path: Path) -> None:
    source = """
@register_fusion_pass(name="P", stage=PassStage.AFTER_INFER_SHAPE)
class P(PatternFusionPass):
    @pattern
    def relus(self, inputs):
        return Relu(Relu(inputs[0]))
    def meet_requirements(self, match_result):
        return False
    def replacement(self, inputs):
        return Relu(inputs[0])
"""
    _, report = compile_with(source, model(CHAIN))
    (record,) = [record for record in report.passes if record.name == "P"]
    assert dict(record.rejected) == {"meet_requirements": 1}
    options = HostOptions(pass_paths=[tmp_path / "passes.py"])
    findings = explain(tmp_path / "in.onnx", "P", options).findings
    assert "meet_requirements: it returned False" in [finding.reason for finding in findings]


def test_a_refused_boundary_is_a_status_or_an_error(compile_with: Any) -> None:
    source = """
@register_fusion_pass(name="P", stage=PassStage.AFTER_INFER_SHAPE)
class P(FusionBasePass):
    def run(self, graph, context):
        node = graph.find_node_by_name("y")
        boundary = SubgraphBoundary()
        boundary.add_output(0, SubgraphOutput(node, 0))
        builder = GraphBuilder("one")
        made = builder.build_and_reset([Relu(builder.create_input(0))])
        assert SubgraphRewriter.replace(boundary, made) == 1
        try:
            SubgraphRewriter.replace(boundary, made, context=context)
        except GeError:
            return True
        return False
"""
    _, report = compile_with(source, model(CHAIN))
    assert replaced(report) == {}


def test_forms_of_ge_become_operators_of_onnx(compile_with: Any) -> None:
    text = """
g (float[2,4] x, float[2,4] t) => (float[4,4] y) {
  u = Transpose <perm=[1,0]> (x)
  y = MatMul(u, t)
}"""
    source = """
@register_fusion_pass(name="P", stage=PassStage.AFTER_INFER_SHAPE)
class P(PatternFusionPass):
    @pattern
    def product(self, inputs):
        return MatMul(inputs[0], inputs[1], None, transpose_x1=True)
    def meet_requirements(self, match_result):
        return match_result.get_captured_tensor(0).node.type == "Data"
    def replacement(self, inputs):
        first, second = Split(1, inputs[0], 2, num_split=2)
        both = Concat(1, [first, second], N=2)
        return MatMul(both, inputs[1], transpose_x1=True)
"""
    compiled, report = compile_with(source, model(text), cleanup=False)
    assert replaced(report) == {"P": 1}
    assert [node.op_type for node in compiled.graph.node] == [
        "Split",
        "Concat",
        "Transpose",
        "MatMul",
    ]


@pytest.mark.parametrize("operands", ["inputs[:3]", "*inputs[:3]"])
def test_variable_inputs_are_a_list_or_one_by_one(operands: str, compile_with: Any) -> None:
    source = f"""
from ge.es.all import Sum
@register_fusion_pass(name="P", stage=PassStage.AFTER_INFER_SHAPE)
class P(PatternFusionPass):
    @pattern
    def sums(self, inputs):
        return Add(Add(inputs[0], inputs[1]), inputs[2])
    def replacement(self, inputs):
        return Sum({operands})
"""
    text = "g (float[2] a, float[2] b) => (float[2] y) { s = Add(a, b)  y = Add(s, b) }"
    compiled, report = compile_with(source, model(text))
    assert replaced(report) == {"P": 1}
    assert [node.op_type for node in compiled.graph.node] == ["Sum"]


def test_nothing_is_imported_where_no_file_uses_ge(tmp_path: Path) -> None:
    """The plugin's own module alone, which names its hooks."""
    home = tmp_path / "acme" / "custom_fusion_passes"
    home.mkdir(parents=True)
    (home / "passes.py").write_text(TWINS)
    onnx.save(model(CHAIN), tmp_path / "m.onnx")
    code = f"""
import sys
from gehost import Host, HostOptions
host = Host(HostOptions(vendors=[{str(tmp_path)!r}]))
assert "MatMulBiasToGemm" in host.passes.names()
host.compile({str(tmp_path / "m.onnx")!r}, {str(tmp_path / "out.onnx")!r})
print(sorted(name for name in sys.modules if name.partition(".")[0] in ("gehost_ge", "ge")))
"""
    process = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=tmp_path
    )
    assert process.stdout == "['gehost_ge']\n"


@pytest.mark.parametrize("count", [1, 2])
def test_hosts_keep_a_real_ge_as_it_is(
    count: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A module named ge that is installed is not ours, also after compiles."""
    real = tmp_path / "site" / "ge"
    real.mkdir(parents=True)
    (real / "__init__.py").write_text("REAL = True\n")
    (real / "passes.py").write_text("REAL = True\n")
    monkeypatch.syspath_prepend(tmp_path / "site")
    import ge.passes  # pyright: ignore[reportMissingImports]

    before = sys.modules["ge.passes"]
    file = tmp_path / "published.py"
    file.write_text(PUBLISHED)
    for _ in range(count):
        host = Host(HostOptions(pass_paths=[file]))
        assert len([spec for spec in host.passes if spec.default]) == 4
    assert sys.modules["ge.passes"] is before
    assert ge.passes.REAL
    monkeypatch.delitem(sys.modules, "ge.passes")
    monkeypatch.delitem(sys.modules, "ge")


@pytest.mark.parametrize(("sizes", "count"), [("{2, 2}", 1), ("{1, 3}", 0)])
def test_a_split_has_equal_parts(compile_with: Any, sizes: str, count: int) -> None:
    """ONNX's of other sizes is GE's SplitV."""
    source = """
@register_fusion_pass(name="Halves", stage=PassStage.AFTER_INFER_SHAPE)
class Halves(PatternFusionPass):
    def patterns(self):
        builder = GraphBuilder("halves")
        first, second = Split(1, builder.create_input(0), 2, num_split=2)
        return [create_pattern(builder.build_and_reset([Concat(1, [Exp(first), second])]))]

    def replacement(self, match):
        builder = GraphBuilder("halves")
        first, second = Split(1, builder.create_input(0), 2, num_split=2)
        return builder.build_and_reset([Concat(1, [Exp(first), second])])
"""
    text = f"""g (float[N, 4] x) => (float[N, 4] y) <int64[2] sizes = {sizes}> {{
        a, b = Split <axis = 1> (x, sizes) e = Exp(a) y = Concat <axis = 1> (e, b) }}"""
    _, report = compile_with(source, model(text))
    assert replaced(report).get("Halves", 0) == count


@pytest.mark.parametrize(("config", "count"), [("", 2), ("const_value", 1)])
def test_a_number_among_any_number_of_inputs_is_any_constant(
    config: str, count: int, compile_with: Any
) -> None:
    source = """
@register_fusion_pass(name="P", stage=PassStage.AFTER_INFER_SHAPE)
class P(PatternFusionPass):
    def __init__(self):
        builder = PatternMatcherConfigBuilder()
        super().__init__(builder.CONFIGbuild())
    @pattern
    def largest(self, inputs):
        return Exp(Max(inputs[0], 0.0))
    def replacement(self, inputs, match_result):
        maximum, exp = [n for n in match_result.get_matched_nodes() if n.type != "Const"]
        constant, _ = maximum.get_in_data_nodes_and_port_indexes(1)
        return Exp(Add(Relu(inputs[0] - constant.get_attr("value").data),
                       constant.get_attr("value").data))
"""
    text = """
g (float[2] x) => (float[2] y, float[2] z) <float zero = {0.0}, float two = {2.0}> {
  a = Max(x, zero)
  y = Exp(a)
  b = Max(x, two)
  z = Exp(b)
}"""
    enabled = f"enable_{config}_match()." if config else ""
    report = compile_with(source.replace("CONFIG", enabled), model(text))[1]
    assert replaced(report) == {"P": count}
