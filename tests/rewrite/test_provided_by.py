"""Operators that a runtime provides keep their name; patterns take all bodies of an operator."""

from __future__ import annotations

import json
import runpy

import numpy as np
import onnx
import onnx.parser
import onnxruntime
import pytest
from onnx.reference import ReferenceEvaluator

from gehost import Host, HostOptions, VendorError, es, ops
from gehost.cli import run
from gehost.infer import infer_model
from gehost.ir.model import Model
from gehost.ops import OpRegistry
from gehost.rewrite.functions import inferrer_of

OPS = '''
from gehost import *

@ops.register("com.microsoft::MultiHeadAttention", provided_by="onnxruntime>=1.31")
def attention(query, key, value, *, num_heads: int, scale: float = 0.0):
    """Attention over num_heads heads of width 4."""
    q, k, v = (
        es.Transpose(es.Reshape(x, [0, 0, num_heads, 4]), perm=[0, 2, 1, 3])
        for x in (query, key, value)
    )
    scores = es.MatMul(q, es.Transpose(k, perm=[0, 1, 3, 2])) * 0.5
    mixed = es.MatMul(es.Softmax(scores, axis=-1), v)
    return es.Reshape(es.Transpose(mixed, perm=[0, 2, 1, 3]), [0, 0, 4 * num_heads])
'''
PASS = '''
@REG_FUSION_PASS(stage=CustomPassStage.kAfterInferShape)
class AttentionPass(PatternFusionPass):
    """Put the operator in the place of the model's own call acme::Attend."""

    def Patterns(self):
        builder = EsGraphBuilder("attend")
        q, k, v = builder.CreateInputs(3)
        return [Pattern(builder.BuildAndReset([es.op("acme::Attend")(q, k, v)]))]

    def Replacement(self, match):
        builder = EsGraphBuilder("attention")
        heads = match.GetMatchedNode(0).attrs["heads"]
        attend = es.op("com.microsoft::MultiHeadAttention")
        return builder.BuildAndReset([attend(*builder.CreateInputs(3), num_heads=heads)])
'''
BODY = """
<domain: "acme", opset_import: ["": 17]>
Attend <heads> (q, k, v) => (y) { y = Add (q, q) }
"""


def model(*heads: int, head: str = "") -> onnx.ModelProto:
    """One call of acme::Attend a number of heads, each of x [2, 3, 4 * heads]."""
    inputs = ", ".join(f"float[2,3,{4 * n}] x{i}" for i, n in enumerate(heads))
    outputs = ", ".join(f"float[2,3,{4 * n}] y{i}" for i, n in enumerate(heads))
    calls = "".join(
        f"y{i} = acme.Attend <heads = {n}> (x{i}, x{i}, x{i})\n" for i, n in enumerate(heads)
    )
    imports = '"": 17, "acme": 1, "com.microsoft": 1'
    return onnx.parser.parse_model(
        f"<ir_version: 8, opset_import: [{imports}]> g ({inputs}) => ({outputs}) {{ {head} {calls} }}"
        + BODY
    )


def compiled(tmp_path, source: onnx.ModelProto, text: str = OPS + PASS):
    folder = tmp_path / "runtime" / "custom_fusion_passes"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "attention.py").write_text(text)
    return Host(HostOptions(vendors=[str(tmp_path)])).run(source)


def kernels(model: onnx.ModelProto, feeds, tmp_path) -> list[str]:
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.enable_profiling = True
    options.profile_file_prefix = str(tmp_path / "profile")
    session = onnxruntime.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    session.run(None, feeds)
    with open(session.end_profiling()) as file:
        events = json.load(file)
    return [event["args"]["op_name"] for event in events if event["name"].endswith("_kernel_time")]


def feeds_of(model: onnx.ModelProto) -> dict[str, np.ndarray]:
    random = np.random.default_rng(0)
    return {
        value.name: random.standard_normal(
            [size.dim_value for size in value.type.tensor_type.shape.dim]
        ).astype(np.float32)
        for value in model.graph.input
    }


def test_two_bodies_keep_the_name_and_the_runtimes_kernel(tmp_path):
    result, report = compiled(tmp_path, model(2, 4))
    assert [node.op_type for node in result.graph.node] == ["MultiHeadAttention"] * 2
    assert not result.functions, "one body would be wrong for the other call"
    assert kernels(result, feeds_of(result), tmp_path) == ["MultiHeadAttention"] * 2
    (note,) = (note for note in report.notes if "MultiHeadAttention" in note)
    assert note == (
        "com.microsoft::MultiHeadAttention has no body in the model, as its calls need several: "
        "it runs in onnxruntime>=1.31 alone"
    )
    onnx.checker.check_model(result)


def test_one_body_for_all_calls_is_in_the_model(tmp_path):
    result, report = compiled(tmp_path, model(2, 2))
    assert [function.name for function in result.functions] == ["MultiHeadAttention"]
    assert not [note for note in report.notes if "no body" in note]
    feeds = feeds_of(result)
    reference = ReferenceEvaluator(result).run(None, feeds)
    session = onnxruntime.InferenceSession(result.SerializeToString())
    for actual, expected in zip(session.run(None, feeds), reference, strict=True):
        np.testing.assert_allclose(actual, expected, rtol=1e-4, atol=1e-5)


def test_nodes_carry_the_runtime(tmp_path):
    result, _ = compiled(tmp_path, model(2, 4))
    carried = [
        {entry.key: entry.value for entry in node.metadata_props} for node in result.graph.node
    ]
    assert [actual["gehost.provided_by"] for actual in carried] == ["onnxruntime>=1.31"] * 2


def test_a_call_that_came_without_a_body_gets_none(tmp_path):
    call = "o = com.microsoft.MultiHeadAttention <num_heads = 1> (x0, x0, x0)\n"
    result, _ = compiled(tmp_path, model(2, head=call))
    assert [node.op_type for node in result.graph.node].count("MultiHeadAttention") == 1
    source = model(2, head=call)
    source.graph.output.append(onnx.helper.make_tensor_value_info("o", 1, [2, 3, 8]))
    result, _ = compiled(tmp_path, source)
    assert [node.op_type for node in result.graph.node] == ["MultiHeadAttention"] * 2
    assert not result.functions


def test_another_body_that_came_with_the_model_refuses_the_rewrite(tmp_path):
    source = model(2, head="o = com.microsoft.MultiHeadAttention (x0)\n")
    source.graph.output.append(onnx.helper.make_tensor_value_info("o", 1, [2, 3, 8]))
    function = source.functions.add()
    function.CopyFrom(
        onnx.helper.make_function(
            "com.microsoft",
            "MultiHeadAttention",
            ["q", "k", "v"],
            ["y"],
            [onnx.helper.make_node("Identity", ["q"], ["y"])],
            [onnx.helper.make_opsetid("", 17)],
        )
    )
    _, report = compiled(tmp_path, source)
    assert dict(report.passes[0].rejected) == {"body": 1}


def test_compiling_again_gives_the_same_bytes(tmp_path):
    result, _ = compiled(tmp_path, model(2, 4))
    again, _ = compiled(tmp_path, result)
    assert again.SerializeToString() == result.SerializeToString()


def test_types_of_calls_without_a_body_are_known(tmp_path):
    """The Relu behind a call of each kind is only replaced where its type is known."""
    tail = """
@REG_FUSION_PASS(stage=CustomPassStage.kAfterBuiltinFusionPass)
class TypedPass(PatternFusionPass):
    def Patterns(self):
        builder = EsGraphBuilder("p")
        q, k, v = builder.CreateInputs(3)
        attend = es.op("com.microsoft::MultiHeadAttention")
        return [Pattern(builder.BuildAndReset([attend(q, k, v)]))]

    def MeetRequirements(self, match):
        return match.reject(f"found: {match.outputs[0].shape}")

    def Replacement(self, match):
        raise AssertionError
"""
    result, _ = compiled(tmp_path, model(2, 4))
    for name in ("y0", "y1"):  # not from the outputs' declared types
        result.graph.node.add(op_type="Identity", input=[name], output=[f"{name}_"])
    for output in result.graph.output:
        output.name += "_"
    _, report = compiled(tmp_path, result, OPS + PASS + tail)
    assert report.passes[-1].matched == 2


def test_calls_without_a_body_are_typed_inside_functions_too(tmp_path):
    """A function with a computed shape is inferred as a model; its results are shared."""
    (tmp_path / "ops.py").write_text(OPS)
    registry = OpRegistry()
    registry.add_marked(runpy.run_path(str(tmp_path / "ops.py")))
    call = "com.microsoft.MultiHeadAttention <num_heads = 2> (x, x, x)"
    result = Model(
        onnx.parser.parse_model(
            """<ir_version: 8, opset_import: ["": 17, "f": 1, "com.microsoft": 1]>
            g (float[2, 3, 8] x) => (float[] y) { y = f.F (x) z = CALL }
            <domain: "f", opset_import: ["": 17, "com.microsoft": 1]>
            F (x) => (y) { a = CALL s = Shape (a) y = Reshape (a, s) }""".replace("CALL", call)
        )
    )
    infer_model(result, inferrer_of(result, registry))
    actual = [str(result.graph.values[name].type) for name in ("y", "z")]
    assert actual == ["float[2,3,8]"] * 2


@pytest.mark.parametrize("wrong", ["", "onnxruntime", "onnxruntime>=1.31", "onnxruntime>=1.31,<2"])
def test_runtimes(wrong):
    ops.register("acme::Op" + wrong.replace(".", "").replace(">", ""), provided_by=wrong)


@pytest.mark.parametrize(
    "wrong", [">=1.31", "onnxruntime 1.31", "onnxruntime>=", "onnxruntime>=1,"]
)
def test_what_is_no_runtime_is_refused(wrong):
    with pytest.raises(VendorError, match="provided_by must be a runtime, as in"):
        ops.register("acme::Wrong", provided_by=wrong)


VARIANTS = """
from gehost import *

@ops.register("acme::Times")
def times(x, *, by: float):
    return x * by

@REG_FUSION_PASS(stage=CustomPassStage.kBeforeInferShape)
class TimesPass(PatternFusionPass):
    def Patterns(self):
        builder = EsGraphBuilder("scaled")
        x = builder.CreateInput(0)
        factor = builder.CreateScalar(1.0)
        return [Pattern(builder.BuildAndReset([es.Mul(x, factor)])).CaptureTensor(factor)]

    def Replacement(self, match):
        builder = EsGraphBuilder("times")
        by = float(match.GetCapturedTensor(0).value.array)
        return builder.BuildAndReset([es.op("acme::Times")(builder.CreateInput(0), by=by)])

@REG_FUSION_PASS(stage=CustomPassStage.kAfterInferShape)
class TimesReluPass(PatternFusionPass):
    def Patterns(self):
        builder = EsGraphBuilder("times_relu")
        x = builder.CreateInput(0)
        return [Pattern(builder.BuildAndReset([es.Relu(es.op("acme::Times")(x))]))]

    def Replacement(self, match):
        builder = EsGraphBuilder("relu_times")
        by = match.GetMatchedNode(0).attrs["by"]
        return builder.BuildAndReset([es.Relu(builder.CreateInput(0)) * by])

@REG_DECOMPOSE_PASS(["acme::Times"], stage=CustomPassStage.kAfterBuiltinFusionPass, default=False)
class TakeApartPass(DecomposePass):
    def Replacement(self, node):
        builder = EsGraphBuilder("mul")
        return builder.BuildAndReset([builder.CreateInput(0) * node.attrs["by"]])
"""


def scaled() -> onnx.ModelProto:
    return onnx.parser.parse_model(
        '<ir_version: 8, opset_import: ["": 17]> g (float[2] x) => (float[2] y, float[2] z) '
        "<float two = {2.0}, float three = {3.0}> "
        "{ a = Mul(x, two) y = Relu(a) b = Mul(x, three) z = Relu(b) }"
    )


def test_a_pattern_over_a_custom_operator_matches_all_its_bodies(tmp_path):
    result, report = compiled(tmp_path, scaled(), VARIANTS)
    assert [(outcome.name, outcome.replaced) for outcome in report.passes][:2] == [
        ("TimesPass", 2),
        ("TimesReluPass", 2),
    ]
    x = np.array([-1.0, 2.0], np.float32)
    actual = onnxruntime.InferenceSession(result.SerializeToString()).run(None, {"x": x})
    np.testing.assert_array_equal(actual, [[0.0, 4.0], [0.0, 6.0]])


def test_a_decompose_pass_takes_all_bodies_of_its_operator(tmp_path):
    folder = tmp_path / "runtime" / "custom_fusion_passes"
    folder.mkdir(parents=True)
    (folder / "times.py").write_text(VARIANTS)
    options = HostOptions(
        vendors=[str(tmp_path)], enable=["TakeApartPass"], disable=["TimesReluPass"]
    )
    result, report = Host(options).run(scaled())
    assert report.passes[-1].replaced == 2
    assert not result.functions


OUTPUTS = """
from gehost import *

@ops.register("acme::Both", outputs=["sum", "difference"])
def both(x, y):
    return x + y, x - y

@REG_FUSION_PASS(stage=CustomPassStage.kAfterInferShape)
class BothPass(PatternFusionPass):
    def Patterns(self):
        builder = EsGraphBuilder("difference")
        x, y = builder.CreateInputs(2)
        return [Pattern(builder.BuildAndReset([es.Sub(x, y)]))]

    def Replacement(self, match):
        builder = EsGraphBuilder("both")
        return builder.BuildAndReset([es.op("acme::Both")(*builder.CreateInputs(2))[INDEX]])
"""


def subtracted() -> onnx.ModelProto:
    return onnx.parser.parse_model(
        '<ir_version: 8, opset_import: ["": 17]> g (float[2] x, float[2] y) => (float[2] z) '
        "{ z = Sub(x, y) }"
    )


def test_outputs_are_known_from_the_declaration(tmp_path):
    result, report = compiled(tmp_path, subtracted(), OUTPUTS.replace("INDEX", "1"))
    assert report.passes[0].replaced == 1
    feeds = {"x": np.array([3.0, 5.0], np.float32), "y": np.ones(2, np.float32)}
    (z,) = onnxruntime.InferenceSession(result.SerializeToString()).run(None, feeds)
    np.testing.assert_array_equal(z, [2.0, 4.0])


def test_an_output_that_is_not_declared_is_an_error(tmp_path):
    with pytest.raises(Exception, match="acme::Both has outputs sum, difference, no output 2"):
        compiled(tmp_path, subtracted(), OUTPUTS.replace("INDEX", "2"))


def test_only_custom_operators_have_an_index():
    from gehost import EsGraphBuilder, PatternError

    x = EsGraphBuilder("g").CreateInput(0)
    with pytest.raises(PatternError, match="only outputs of custom operators have an index"):
        es.Relu(x)[0]
    with pytest.raises(PatternError, match="write \\[0\\], \\[1\\]"):
        _, _ = es.op("acme::Both")(x)


def test_bodies_of_another_runtime_are_compared_apart(tmp_path, capsys):
    """acmert is not the runtime that --verify has, and the file has neither body of two calls."""
    text = (OPS + PASS).replace("com.microsoft::MultiHead", "acme::MultiHead")
    text = text.replace("onnxruntime>=1.31", "acmert>=2")
    right = text.replace(
        "    q, k, v = (",
        "    return es.Reshape(query * 2.0, [0, 0, 4 * num_heads])\n    q, k, v = (",
    )
    source, out = tmp_path / "two.onnx", tmp_path / "out.onnx"
    onnx.save(model(2, 4), source)
    command = ["compile", str(source), "-o", str(out), "--verify", "--vendors", str(tmp_path)]
    compiled(tmp_path, model(2), right)
    assert run(command) == 0
    assert "acme::MultiHeadAttention: verified by its bodies" in capsys.readouterr().err
    result = onnx.load(out)
    assert [node.op_type for node in result.graph.node] == ["MultiHeadAttention"] * 2
    assert not result.functions
    compiled(tmp_path, model(2), text)  # another formula than the model's
    assert run(command) == 6
    onnx.save(model(2), source)
    assert run(command) == 6
