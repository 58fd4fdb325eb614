"""Each operator under GE's name has GE's form, with its numbers, or names what to use."""

from __future__ import annotations

import inspect
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.parser
import onnxruntime
import pytest
from onnx.reference import ReferenceEvaluator

from gehost import GehostError, Host, HostOptions, es
from gehost_ge.forms import FORMS, REFUSED, SAME
from plugins.ge.tools.operators_table import table

from .conftest import HEADER, Compiled, replaced
from .test_names import importable

HERE = Path(__file__).parent
PAGE = HERE.parents[2] / "docs" / "differences" / "ge.md"


def test_each_operator_is_equal_mapped_or_refused() -> None:
    names = set(es.operator_names(""))
    assert names >= SAME.keys()
    assert not FORMS.keys() & REFUSED.keys()
    for name, parameters in SAME.items():
        own = es.op(name).__signature__.parameters.values()
        required = [p for p in own if p.kind is not p.KEYWORD_ONLY and p.default is p.empty]
        variable = [p for p in own if p.kind is p.VAR_POSITIONAL]
        assert len(parameters.split()) == len(required) or variable, name
    with importable():
        module: Any = import_module("ge.es.all")
        assert set(module.__all__) == names | FORMS.keys() | REFUSED.keys()
        builder = import_module("ge.es").GraphBuilder("g")
        tensor = builder.create_input(0)
        for name in REFUSED:
            with pytest.raises(RuntimeError, match=rf"^{name}: GE's operator is {name}\(.*; \w"):
                getattr(module, name)(tensor)
        for name in names - FORMS.keys() - REFUSED.keys():
            own = es.op(name).__signature__.parameters.values()
            if all(p.kind is not p.VAR_POSITIONAL for p in own):
                called = inspect.signature(getattr(module, name)).parameters
                assert {*called} == {p.name for p in own} - {"num_outputs"}, name


@pytest.mark.parametrize(("opset", "op"), [(21, "Relu"), (24, "Neg")])
def test_each_operator_computes_what_ge_documents(opset: int, op: str, tmp_path: Path) -> None:
    text = f"g (float[2] x) => (float[2] y) {{ y = {op}(x) }}"
    header = f'<ir_version: 10, opset_import: ["" : {opset}]>\n'
    onnx.save(onnx.parser.parse_model(header + text), tmp_path / "m.onnx")
    passes = tmp_path / "operators.py"
    passes.write_text((HERE / "operators.py.txt").read_text())
    options = HostOptions(pass_paths=[passes], cleanup=False)
    Host(options).compile(tmp_path / "m.onnx", tmp_path / "out.onnx")
    compiled = onnx.load(tmp_path / "out.onnx")
    names = sorted(FORMS.keys() - {"Swish"}) if op == "Relu" else ["Swish"]
    (differences,) = [
        node
        for node in compiled.graph.node
        if node.op_type == "Concat" and len(node.input) == len(names)
    ]
    compiled.graph.output.append(onnx.ValueInfoProto(name=differences.output[0]))
    feeds = {"x": np.zeros(2, np.float32)}
    values: Any
    if op == "Relu":
        values = onnxruntime.InferenceSession(compiled.SerializeToString()).run(None, feeds)[1]
    else:  # the runtime lacks it
        values = ReferenceEvaluator(compiled).run(None, feeds)[1]
    pairs = zip(names, values, strict=True)
    assert [(name, float(value)) for name, value in pairs if not value < 1e-5] == []


MISFITS = {
    "Gather": ("Gather(x, i)", "y = Gather <axis = 1> (x, i)", "axis: GE's Gather has axis 0"),
    "GatherNd": ("GatherNd(x, j)", "y = GatherND <batch_dims = 1> (x, j)", "batch_dims: "),
    "Mod": ("Mod(i, i)", "y = Mod (i, i)", "fmod: GE's Mod has C's sign"),
    "Shape": ("Shape(x)", "y = Shape <start = 1> (x)", "start, end: GE's Shape is of all sizes"),
    "MaxPool": (
        "MaxPool(p, [1, 1, 2, 2], [1, 1, 1, 1], 'VALID')",
        "y = MaxPool <kernel_shape = [2, 2], pads = [1, 1, 1, 1]> (p)",
        "padding: GE's MaxPool has SAME or VALID",
    ),
    "Conv2D": (
        "Conv2D(x, w, None, None, [1] * 4, [0] * 4)",
        "y = Conv (line, filter)",
        "rank: Conv2D is of images of rank 4",
    ),
    "BatchNorm": (
        "BatchNorm(x, s, s, s, s).y",
        "y, m, v = BatchNormalization <training_mode = 1> (p, s, s, s, s)",
        "training: BatchNorm stands for inference",
    ),
    "ArgMaxV2": (
        "ArgMaxV2(x, 0)",
        "y = ArgMax <axis = 0, keepdims = 0, select_last_index = 1> (p)",
        "select_last_index: GE's ArgMaxV2 has 0 alone",
    ),
    "ArgMin": ("ArgMin(x, 0)", "y = ArgMin (x)", "keepdims: GE's ArgMin has 0 alone"),
    "Resize": (
        "Resize(x, None, s)",
        'y = Resize <antialias = 1, mode = "linear"> (p, , scales)',
        "antialias: GE's Resize has 0 alone",
    ),
    "ResizeAxes": (
        "Resize(x, None, s)",
        'y = Resize <axes = [2, 3], mode = "linear"> (p, , half)',
        "axes: GE's Resize has all",
    ),
    "SoftmaxV2": (
        "SoftmaxV2(x, [1])",
        "y = Softmax <axis = 1> (p)",
        "axis: below opset 13 it joins the axes behind",
    ),
    "Squeeze": ("Squeeze(x)", "y = Squeeze (line, run)", "axes: the model computes them"),
    "Unsqueeze": ("Unsqueeze(x, [0])", "y = Unsqueeze (x, run)", "axes: the model computes them"),
    "ExpandDims": ("ExpandDims(x, 0)", "y = Unsqueeze (x, both)", "axis: ExpandDims adds one"),
    "BroadcastTo": ("BroadcastTo(x, i)", "y = Expand (x, less)", "shape: it may not be the resu"),
    "Fill": ("Fill(i, x)", "y = Expand (line, less)", "value: Fill has a scalar"),
    "Selu": ("Selu(x)", "y = Selu <alpha = 1.5> (x)", "alpha: GE's Selu has 1.67"),
    "RealDiv": ("RealDiv(i, i)", "y = Div (i, i)", "type: RealDiv of whole numbers"),
    "Reshape": ("Reshape(x, i)", "y = Reshape (x, copying)", "shape: a size of 0 copies"),
    "ReduceMean": (
        "ReduceMean(x, [0])",
        "y = ReduceMean (x, run)",
        "axes: the model computes them",
    ),
    "ReduceSum": (
        "ReduceSum(x, [0])",
        "y = ReduceSum <noop_with_empty_axes = 1> (x, none)",
        "axes: none may be reduced",
    ),
    "LogSoftmaxV2": (
        "LogSoftmaxV2(x, [1])",
        "y = LogSoftmax <axis = 1> (p)",
        "axis: below opset 13 it joins the axes behind",
    ),
    "MatMul": ("MatMul(x, s, w)", "m = MatMul (p, x) y = Add (m, x)", "rank: the bias of MatMul"),
    "MatMulV2": ("MatMulV2(x, s)", "y = MatMul (x, i32)", "rank: a vector is no matrix"),
    "Split": ("Split(0, x, 2)", "y, z = Split (i, parts)", "split: the sizes are not equal"),
}
"""By operator: a pattern, a node of ONNX's operator that is none of GE's, and the reason."""


@pytest.mark.parametrize("name", MISFITS)
def test_a_node_that_is_none_of_ges_operator_does_not_match(name: str, compile_with: Any) -> None:
    call, node, reason = MISFITS[name]
    source = f"""
from ge.es.all import {call.partition("(")[0]}
from ge.passes import *

@register_fusion_pass(name="P", stage=PassStage.AFTER_INFER_SHAPE)
class P(PatternFusionPass):
    @pattern
    def one(self, inputs):
        letters = [c for c in "xijpsw" if c in {call!r}.partition("(")[2]]
        x, i, j, p, s, w = (inputs[letters.index(c)] if c in letters else None for c in "xijpsw")
        return {call}
    def replacement(self, match_result):
        raise AssertionError
"""
    text = f"""g (float[4,4] x, int64[4] i, int64[4,1] j, float[1,1,4,4] p, float[1] s,
        float[1,1,4] line, float[1,1,2] filter, int64[1] run) => (y)
    <int64[2] parts = {{1, 3}}, float[4] scales = {{1, 1, 0.5, 0.5}},
        int64[2] both = {{0, 1}}, int64[2] copying = {{0, 4}}, int64[0] none = {{}}, int64[2] less = {{1, 4}}, float[2] half = {{0.5, 0.5}},
        float[4] i32 = {{1, 2, 3, 4}}> {{ {node} }}"""
    opset = {
        "SoftmaxV2": 12,
        "LogSoftmaxV2": 12,
        "ReduceMean": 18,
        "Resize": 18,
        "ResizeAxes": 18,
    }.get(name, 17)
    are_whole = name in ("ArgMaxV2", "ArgMin", "Mod", "RealDiv", "Shape", "Split")
    model = onnx.parser.parse_model(
        f'<ir_version: 8, opset_import: ["" : {opset}]>\n'
        + text.replace("(y)", "(int64[1] y)" if are_whole else "(float[1] y)")
    )
    model.graph.output[0].type.tensor_type.ClearField("shape")
    compiled: Compiled = compile_with(source, model)
    (record,) = [record for record in compiled[1].passes if record.name == "P"]
    assert (record.matched, record.replaced) == (1, 0)
    assert list(record.rejected) == [reason.partition(":")[0]]


@pytest.mark.parametrize(
    ("node", "count"), [("<axis = 1> (x)", 1), ("(x)", 1), ("<axis = -1> (x)", 1), ("(z)", 0)]
)
def test_a_softmax_of_old_models_is_of_one_axis_where_those_behind_are_one(
    node: str, count: int, compile_with: Any
) -> None:
    source = """
from ge.es.all import ReduceSum, SoftmaxV2
@register_fusion_pass(name="P", stage=PassStage.AFTER_INFER_SHAPE)
class P(PatternFusionPass):
    @pattern
    def one(self, inputs):
        return SoftmaxV2(inputs[0])
    def replacement(self, inputs, match_result):
        power = Exp(inputs[0])
        return power / ReduceSum(power, match_result.get_matched_nodes()[0].get_attr("axes"), True)
"""
    shape = "1,4,1,1" if "x" in node else "1,4,2,n"
    text = f"g (float[1,4,1,1] x, float[1,4,2,n] z) => (float[{shape}] y) {{ y = Softmax {node} }}"
    model = onnx.parser.parse_model('<ir_version: 7, opset_import: ["" : 12]>\n' + text)
    (record,) = [record for record in compile_with(source, model)[1].passes if record.name == "P"]
    assert record.replaced == count


READ = {
    "LeakyRelu(x)": ("LeakyRelu (r)", {"negative_slope": 0.01}),
    "Cast(x, 3)": ("Cast <to = 7> (r)", {"dst_type": 9}),
    "CeluV2(x)": ("Celu <alpha = 0.5> (r)", {"alpha": 0.5}),
    "MaxPool(x, [1] * 4, [1] * 4, 'SAME')": (
        'MaxPool <kernel_shape = [2, 3], auto_pad = "SAME_UPPER", strides = [1, 2]> (r)',
        {
            "ksize": [1, 1, 2, 3],
            "strides": [1, 1, 1, 2],
            "padding": "SAME",
            "data_format": "NCHW",
        },
    ),
    "MaxPool(x, [1] * 4, [1] * 4, 'VALID')": (
        "MaxPool <kernel_shape = [2, 2]> (r)",
        {"ksize": [1, 1, 2, 2], "strides": [1, 1, 1, 1], "padding": "VALID"},
    ),
    "Conv2D(x, inputs[1], None, None, [1] * 4, [0] * 4)": (
        "Conv <pads = [1, 2, 3, 4], group = 1> (r, w)",
        {
            "pads": [1, 3, 2, 4],
            "strides": [1, 1, 1, 1],
            "dilations": [1, 1, 1, 1],
            "groups": 1,
            "data_format": "NCHW",
            "offset_x": 0,
        },
    ),
    "SoftmaxV2(x)": ("Softmax (r)", {"axes": [-1], "half_to_float": False}),
    "ReduceSum(x, [0])": ("ReduceSum <keepdims = 0> (r, one)", {"axes": [1], "keep_dims": False}),
    "ReduceMax(x, [0])": ("ReduceMax (r)", {"axes": [0, 1, 2, 3], "keep_dims": True}),
    "Transpose(x, [0])": ("Transpose (r)", {"perm": [3, 2, 1, 0]}),
    "Squeeze(x)": ("Squeeze (r)", {"axis": []}),
    "Squeeze(x, [0])": ("Squeeze (r, one)", {"axis": [1]}),
    "Concat(0, [x, x])": ("Concat <axis = 2> (r, r)", {"concat_dim": 2, "N": 2}),
    "Shape(x)": ("Shape (r)", {"dtype": 9}),
    "TopKV2(x, inputs[1]).values": (
        "TopK <largest = 0> (r, one)",
        {"dim": -1, "largest": False, "sorted": True, "indices_dtype": 9},
    ),
    "BiasAdd(x, inputs[1])": ("Add (r, bias)", {"data_format": "NHWC"}),
    "LogSoftmaxV2(x, [0])": ("LogSoftmax <axis = 2> (r)", {"axes": [2]}),
    "HardSigmoid(x)": ("HardSigmoid (r)", {"alpha": 0.2, "beta": 0.5}),
}
"""By a pattern: the model's node, and GE's attributes that it has."""


@pytest.mark.parametrize("call", READ)
def test_a_matched_node_has_ges_attributes(call: str, compile_with: Any) -> None:
    node, expected = READ[call]
    name = call.partition("(")[0]
    source = f"""
from ge.es.all import {name}
@register_fusion_pass(name="P", stage=PassStage.AFTER_INFER_SHAPE)
class P(PatternFusionPass):
    @pattern
    def one(self, inputs):
        x = Relu(inputs[0])
        return {call}
    def meet_requirements(self, match_result):
        (node,) = (node for node in match_result.get_matched_nodes() if node.type == {name!r})
        out = match_result.get_captured_tensor(len({call!r}.split("inputs")))
        assert out.node == node and out.node.type == {name!r}
        for name, value in {expected!r}.items():
            assert node.has_attr(name) and out.node.has_attr(name), name
            read = node.get_attr(name)
            assert read == value or abs(read - value) < 1e-6, (name, read)
        assert not node.has_attr("other")
        return False
    def replacement(self, match_result):
        raise AssertionError
"""
    element = "int64" if name == "Shape" or "to = 7" in node else "float"
    text = f"""g (float[1,1,4,4] x, float[4] bias) => ({element}[1] y)
        <float[1,1,2,2] w = {{1, 1, 1, 1}}, int64[1] one = {{1}}> {{
        r = Relu(x) {"y, z" if "TopK" in name else "y"} = {node} }}"""
    model = onnx.parser.parse_model('<ir_version: 8, opset_import: ["" : 17]>\n' + text)
    model.graph.output[0].type.tensor_type.ClearField("shape")
    (record,) = [record for record in compile_with(source, model)[1].passes if record.name == "P"]
    assert dict(record.rejected) == {"meet_requirements": 1}


def test_a_pass_sets_ges_attributes(compile_with: Any) -> None:
    source = """
from ge.es.all import Conv2D, LeakyRelu, MaxPool

def fails(kind, text, call, *arguments):
    try:
        call(*arguments)
    except kind as error:
        assert text in str(error), error
    else:
        raise AssertionError(text)

@register_fusion_pass(name="P", stage=PassStage.AFTER_INFER_SHAPE)
class P(FusionBasePass):
    def run(self, graph, context):
        leaky, cast, pool, total = graph.get_direct_nodes()
        assert leaky.get_attr("negative_slope") == 0.25
        leaky.set_attr("negative_slope", 0.5)
        assert leaky.get_attr("negative_slope") == leaky.get_attr("alpha") == 0.5
        leaky.set_attr("negative_slope", 0.25)
        cast.set_attr("dst_type", 11)
        assert cast.get_attr("dst_type") == 11 and cast.get_attr("to") == 11
        cast.set_attr("dst_type", DataType.DT_FLOAT)
        fails(TypeError, "Cast: dst_type: expected a DataType", cast.set_attr, "dst_type", "float")
        assert pool.get_attr("strides") == [1, 1, 1, 2]
        pool.set_attr("strides", [1, 1, 2, 1])
        assert pool.get_attr("strides") == [1, 1, 2, 1]
        pool.set_attr("strides", [1, 1, 1, 2])
        pool.set_attr("padding", "SAME")
        assert not pool.has_attr("pads") and pool.get_attr("auto_pad") == "SAME_UPPER"
        pool.set_attr("padding", "VALID")
        pool.set_attr("data_format", "NCHW")
        fails(ValueError, "MaxPool: data_format: ONNX has", pool.set_attr, "data_format", "NHWC")
        fails(ValueError, "MaxPool: ksize: it is [1, 1, h", pool.set_attr, "ksize", [2, 2])
        total.set_attr("keep_dims", True)
        fails(GeError, "axes of ReduceSum", total.set_attr, "axes", [0])
        self.draft()

    def draft(self):
        b = GraphBuilder("draft")
        x = LeakyRelu(b.create_input(0), 0.5)
        node = x._get_node_snapshot()
        assert node.type == "LeakyRelu" and node.get_attr("negative_slope") == 0.5
        node.set_attr("negative_slope", 1.0)
        assert node.get_attr("alpha") == 1.0
        pool = MaxPool(x, [1, 1, 2, 2], [1] * 4, "SAME", "NCHW")
        b.set_node_attr_string(pool, "padding", "VALID")
        assert pool._get_node_snapshot().get_attr("padding") == "VALID"
        assert pool._get_node_snapshot().get_attr("auto_pad") == "VALID"
"""
    text = """g (float[1,1,4,4] x) => (float[1,1,3,2] y, float[1,1,1,1] z)
        <int64[4] all = {0, 1, 2, 3}> {
        r = LeakyRelu <alpha = 0.25> (x) c = Cast <to = 1> (r)
        y = MaxPool <kernel_shape = [2, 2], strides = [1, 2], pads = [0, 0, 0, 0]> (c) z = ReduceSum (c, all) }"""
    compile_with(source, onnx.parser.parse_model(HEADER + text))


def test_a_decompose_pass_is_for_nodes_of_ges_operator(compile_with: Any) -> None:
    source = """
from ge.es.all import GatherV2
@register_decompose_pass(name="P", stage=PassStage.AFTER_INFER_SHAPE, op_types=["Gather"])
class P(DecomposePass):
    def replacement(self, node):
        assert node.type == "Gather" and node.get_attr("batch_dims") == 0
        b = GraphBuilder("g")
        x, i = b.create_inputs(2)
        return b.build_and_reset([Relu(GatherV2(x, i, 0))])
"""
    text = """g (float[4,4] x, int64[1] i) => (float[1,4] y, float[4,1] z) {
        r = Relu(x) y = Gather(r, i) z = Gather <axis = 1> (r, i) }"""
    _, report = compile_with(source, onnx.parser.parse_model(HEADER + text))
    (record,) = [record for record in report.passes if record.name == "P"]
    assert record.replaced == 1
    assert dict(record.rejected) == {"axis": 1}


@pytest.mark.parametrize("name", ["Rsqrt", "Where", "PadV2"])
def test_op_types_are_single_nodes(name: str, compile_with: Any) -> None:
    source = f"""
@register_decompose_pass(name="P", stage=PassStage.AFTER_INFER_SHAPE, op_types=["{name}"])
class P(DecomposePass):
    def replacement(self, node):
        raise AssertionError
"""
    text = "g (float[4] x) => (float[4] y) { y = Relu(x) }"
    with pytest.raises(GehostError, match=f"op_types: {name} is no single node here, but `"):
        compile_with(source, onnx.parser.parse_model(HEADER + text))


@pytest.mark.parametrize(("layout", "count"), [("", 0), (', data_format="NCHW"', 1)])
def test_the_layout_of_a_pattern_counts_where_attributes_count(
    layout: str, count: int, compile_with: Any
) -> None:
    source = f"""
from ge.es.all import MaxPool
@register_fusion_pass(name="P", stage=PassStage.AFTER_INFER_SHAPE)
class P(PatternFusionPass):
    def __init__(self):
        super().__init__(PatternMatcherConfigBuilder().enable_ir_attr_match().build())
    @pattern
    def one(self, inputs):
        return MaxPool(Relu(inputs[0]), [1, 1, 2, 2], [1] * 4, "VALID"{layout})
    def replacement(self, inputs):
        return Relu(MaxPool(inputs[0], [1, 1, 2, 2], [1] * 4, "VALID", "NCHW"))
"""
    text = """g (float[1,1,4,4] x) => (float[1,1,3,3] y) {
        r = Relu(x) y = MaxPool <auto_pad = "VALID", kernel_shape = [2, 2]> (r) }"""
    _, report = compile_with(source, onnx.parser.parse_model(HEADER + text))
    (record,) = [record for record in report.passes if record.name == "P"]
    assert record.replaced == count
    assert list(record.rejected) == ([] if count else ["data_format"])


BIASES = {
    "y = Add (x, bias)": "",
    "y = Add (x, plane)": "rank",
    "y = Add (x, one)": "channels",
    "y = Add (bias, x)": "rank",
    "y = Add (x, loose)": "channels",
}


@pytest.mark.parametrize("node", BIASES)
def test_a_bias_is_of_rank_1_along_the_last_axis(node: str, compile_with: Any) -> None:
    source = """
from ge.es.all import BiasAdd, Neg, Sub
@register_fusion_pass(name="P", stage=PassStage.AFTER_INFER_SHAPE)
class P(PatternFusionPass):
    @pattern
    def one(self, inputs):
        return BiasAdd(inputs[0], inputs[1])
    def replacement(self, inputs):
        return Sub(inputs[0], Neg(inputs[1]))
"""
    text = f"""g (float[2,3,4] x, float[4] bias, float[3,4] plane, float[1] one, float[n] loose)
        => (float[2,3,4] y) {{ {node} }}"""
    model = onnx.parser.parse_model('<ir_version: 8, opset_import: ["" : 17]>\n' + text)
    (record,) = [record for record in compile_with(source, model)[1].passes if record.name == "P"]
    assert list(record.rejected) == ([BIASES[node]] if BIASES[node] else [])
    assert record.replaced == (not BIASES[node])


@pytest.mark.parametrize("opset", [17, 18])
@pytest.mark.parametrize("axes", ["[-1]", "inputs[0].builder.create_vector_int64([-1])"])
def test_axes_fit_models_with_an_attribute_and_with_an_input(
    axes: str, opset: int, compile_with: Any
) -> None:
    source = f"""
from ge.es.all import ReduceMean, ReduceSum, Square

@register_fusion_pass(name="P", stage=PassStage.AFTER_INFER_SHAPE)
class P(PatternFusionPass):
    @pattern
    def mean(self, inputs):
        return ReduceMean(Square(inputs[0]), {axes}, True)
    def replacement(self, inputs):
        return ReduceSum(inputs[0] * inputs[0], {axes}, True) / 4.0
"""
    node = "<axes = [-1]> (s)" if opset == 17 else "(s, axes)"
    text = f"""g (float[4,4] x) => (float[4,1] y) <int64[1] axes = {{-1}}> {{
        s = Mul(x, x) y = ReduceMean {node} }}"""
    model = onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["" : {opset}]>\n' + text)
    compiled: Compiled = compile_with(source, model)
    assert replaced(compiled[1]) == {"P": 1}


NUMBERS = {
    "Transpose(x, [0, 2, 1])": ("Transpose <perm = [{}]> (r)", "0, 2, 1", "1, 0, 2"),
    "GatherV2(x, inputs[1], 1)": ("Gather <axis = {}> (r, i)", "1", "2"),
    "ReduceMax(x, [-1], True)": ("ReduceMax <axes = [{}]> (r)", "2", "1"),
    "ReduceSum(x, [1], True)": ("ReduceSum (r, a{})", "1", "0"),
    "ConcatV2([x, x], 2)": ("Concat <axis = {}> (r, r)", "-1", "0"),
}
"""By a pattern: the model's node, numbers that it holds, and others."""


@pytest.mark.parametrize("is_equal", [True, False])
@pytest.mark.parametrize("call", NUMBERS)
def test_numbers_of_inputs_are_compared_as_constants_are(
    call: str, is_equal: bool, compile_with: Any
) -> None:
    node, equal, other = NUMBERS[call]
    source = f"""
from ge.es.all import {call.partition("(")[0]}

@register_fusion_pass(name="P", stage=PassStage.AFTER_INFER_SHAPE)
class P(PatternFusionPass):
    def __init__(self):
        super().__init__(PatternMatcherConfigBuilder().enable_const_value_match().build())
    @pattern
    def one(self, inputs):
        x = Relu(inputs[0])
        return {call}
    def replacement(self, inputs):
        x = inputs[0]
        return Relu({call})
"""
    text = f"""g (float[2,2,2] x, int64[2] i) => (float[a,b,c] y)
    <int64[1] a0 = {{0}}, int64[1] a1 = {{1}}> {{
        r = Relu(x) y = {node.format(equal if is_equal else other)} }}"""
    if "Sum" in call:  # it does not commute with Relu
        source = source.replace("return Relu(", "x = Relu(x)\n        return (")
    model = onnx.parser.parse_model('<ir_version: 8, opset_import: ["" : 17]>\n' + text)
    (record,) = [record for record in compile_with(source, model)[1].passes if record.name == "P"]
    assert bool(record.matched) is is_equal


def test_the_page_has_each_operator() -> None:
    assert table() in PAGE.read_text(), "run python -m plugins.ge.tools.operators_table"


M = np.array([[1, 2], [3, 5]])
LITERALS: dict[str, tuple[int, Any]] = {
    "MatMul(x, M, None, False, True)": (11, lambda x: x @ M.T),
    "MatMul(M, x, None, True, False)": (13, lambda x: M.T @ x),
    "MatMul(M, x, [1.0, 2.0], True, True)": (21, lambda x: M.T @ x.T + [1, 2]),
    "MatMul(x, np.array(M, np.float32), None, True, True)": (17, lambda x: x.T @ M.T),
    "MatMulV2(x, M, None, None, False, True)": (13, lambda x: x @ M.T),
    "MatMulV2(M, x, [1.0, 2.0], None, True, False)": (11, lambda x: M.T @ x + [1, 2]),
    "BatchMatMul(M, x)": (17, lambda x: M @ x),
    "BatchMatMulV2(x, M, [1.0, 2.0])": (17, lambda x: x @ M + [1, 2]),
    "SquaredDifference(M, x)": (17, lambda x: (M - x) ** 2),
    "NotEqual(x, 1.0)": (17, lambda x: x != 1),
    "AddN([x, M, 2.0])": (17, lambda x: x + M + 2),
    "ConcatV2([x, M], 0)": (17, lambda x: np.concatenate([x, M])),
    "Einsum([M, x], 'ij,jk->ik')": (17, lambda x: M @ x),
    "Fill([2, 2], ReduceMax(x, [0, 1]))": (17, lambda x: np.full((2, 2), x.max())),
    "PadV2(x, [[0, 1], [1, 0]], 2.0)": (
        17,
        lambda x: np.pad(x, [[0, 1], [1, 0]], constant_values=2),
    ),
    "PadV3(M, [[0, 1], [1, 0]], ReduceMax(x, [0, 1]))": (
        17,
        lambda x: np.pad(M, [[0, 1], [1, 0]], constant_values=x.max()),
    ),
    "BiasAdd(x, [1.0, 2.0])": (17, lambda x: x + [1, 2]),
    "ClipByValue(x, 0.0, 1.5)": (17, lambda x: np.clip(x, 0, 1.5)),
    "SelectV2(NotEqual(x, 1.0), x, M)": (17, lambda x: np.where(x != 1, x, M)),
    "GEMM(x, M, [1.0, 2.0], 0.5, 2.0, False, True)": (17, lambda x: 0.5 * (x @ M.T) + [2, 4]),
    "GEMM(M, x, [1.0, 2.0], 0.5, 2.0, True, False)": (17, lambda x: 0.5 * (M.T @ x) + [2, 4]),
}
"""Calls with numbers where GE takes tensors: an opset, and what they compute."""


@pytest.mark.parametrize("half", [False, True])
@pytest.mark.parametrize("opset", [11, 13, 17, 21])
def test_numbers_stand_where_ge_takes_tensors(opset: int, half: bool, tmp_path: Path) -> None:
    kind, name = ("float16", "DT_FLOAT16") if half else ("float", "DT_FLOAT")
    text = f"g ({kind}[2, 2] x) => ({kind}[2, 2] y) {{ y = Neg(x) }}"
    header = f'<ir_version: 10, opset_import: ["" : {opset}]>\n'
    onnx.save(onnx.parser.parse_model(header + text), tmp_path / "m.onnx")
    names = [call for call, (own, _) in LITERALS.items() if own == opset]
    calls = [call.replace("float32", "float16") for call in names] if half else names
    lines = "\n        ".join(f"results.append(Cast({call}, DataType.DT_FLOAT))" for call in calls)
    (tmp_path / "numbers.py").write_text(
        f"""
import numpy as np
from ge.es.all import *
from ge.graph import DataType
from ge.passes import *

M = [[1.0, 2.0], [3.0, 5.0]]

@register_fusion_pass(name="P", stage=PassStage.AFTER_INFER_SHAPE)
class P(PatternFusionPass):
    @pattern
    def neg(self, inputs):
        return Neg(inputs[0])
    def replacement(self, inputs):
        x = inputs[0]
        results = []
        {lines}
        total = ConcatV2([Reshape(result, [-1]) for result in results], 0)
        return Mul(x, Cast(ReduceSum(total, [0]), DataType.{name}))
"""
    )
    options = HostOptions(pass_paths=[tmp_path / "numbers.py"], cleanup=False)
    Host(options).compile(tmp_path / "m.onnx", tmp_path / "out.onnx")
    compiled = onnx.load(tmp_path / "out.onnx")
    (total,) = [node for node in compiled.graph.node if node.op_type == "ReduceSum"][-1:]
    compiled.graph.output.append(onnx.ValueInfoProto(name=total.input[0]))
    x = np.array([[1, 2], [-1, 4]], np.float16 if half else np.float32)
    values: Any = onnxruntime.InferenceSession(compiled.SerializeToString()).run(None, {"x": x})[1]
    expected = [np.ravel(LITERALS[call][1](x.astype(np.float32))) for call in names]
    assert values.tolist() == np.concatenate(expected).tolist()
