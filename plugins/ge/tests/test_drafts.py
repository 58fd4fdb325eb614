"""What authors may ask of a graph under construction: its operators, and types where known."""

from __future__ import annotations

from typing import Any

import pytest

from gehost import PassError

from .conftest import model, replaced

RELUS = "g (float[2,3] x) => (float[2,3] y) { a = Relu(x)  y = Relu(a) }"

PATTERN = """
@register_fusion_pass(name="P", stage=PassStage.AFTER_INFER_SHAPE)
class P(PatternFusionPass):
    def patterns(self):
        builder = GraphBuilder("relus")
        x = builder.create_input(0)
        inner = Relu(x)
        graph = builder.build_and_reset([Relu(inner)])
        pattern = create_pattern(graph)
        node = inner._get_node_snapshot()
        assert (node.type, node.get_inputs_size(), node.get_outputs_size()) == ("Relu", 1, 1)
        first, second = graph.get_direct_nodes()
        assert first == node == graph.find_node_by_name(node.name)
        assert node.get_out_data_nodes_and_port_indexes(0) == [(second, 0)]
        assert second.get_in_data_nodes_and_port_indexes(0) == (first, 0)
        assert first.get_in_data_nodes_and_port_indexes(0)[0].type == "Data"
        assert node.get_output_desc(0).data_type == DataType.DT_UNDEFINED
        assert node.get_output_desc(0).get_shape().is_unknown_shape()
        for source in (inner, node, NodeIo(node, 0), NodeIo(node)):
            pattern.capture_tensor(source)
        pattern.capture_tensor(node, 0).capture_tensor(second, index=0)
        assert [io.node.type for io in pattern.get_captured_tensors()] == ["Relu"] * 6
        return [pattern]
    def meet_requirements(self, match_result):
        names = [match_result.get_captured_tensor(index).node.name for index in range(6)]
        return names == ["a"] * 5 + ["y"]
    def replacement(self, match_result):
        builder = GraphBuilder("relu")
        x = builder.create_input(0)
        made = Relu(x)
        node = made._get_node_snapshot()
        desc = node.get_output_desc(0)
        assert (list(desc.shape), desc.data_type) == ([2, 3], DataType.DT_FLOAT)
        desc.set_shape(Shape([2, -1]))
        node.update_output_desc(0, desc)
        node.update_input_desc(0, TensorDesc(Shape([-2])))
        made.set_shape([2, 3]).set_data_type(DataType.DT_FLOAT).set_format(Format.FORMAT_ND)
        wide = Concat(1, [made, made], N=2)
        assert list(wide._get_node_snapshot().get_output_desc(0).shape) == [2, 6]
        graph = builder.build_and_reset([made])
        text = str(graph)
        assert "Node[type=Relu] (inputs = (X=%input0))" in text, text
        GeUtils.infer_shape(graph, [Shape([2, 3])])
        return graph
"""


def test_operators_of_a_draft_are_nodes(compile_with: Any) -> None:
    assert replaced(compile_with(PATTERN, model(RELUS))[1]) == {"P": 1}


@pytest.mark.parametrize(
    "statement",
    [
        "made._get_node_snapshot().update_output_desc(0, TensorDesc(Shape([2, 4])))",
        "made._get_node_snapshot().update_input_desc(0, TensorDesc(Shape([3])))",
        "made.set_shape([2, 4])",
        "made.set_shape(Shape([2, 3, 1]))",
        "made.set_data_type(DataType.DT_FLOAT16)",
        "inputs[0].set_data_type(DataType.DT_INT64)",
    ],
)
def test_a_description_that_contradicts_inference_is_an_error(
    statement: str, compile_with: Any
) -> None:
    source = f"""
@register_fusion_pass(name="P", stage=PassStage.AFTER_INFER_SHAPE)
class P(PatternFusionPass):
    @pattern
    def relus(self, inputs):
        return Relu(Relu(inputs[0]))
    def replacement(self, inputs):
        made = Relu(inputs[0])
        {statement}
        return made
"""
    with pytest.raises(PassError, match=r"passes.py:\d+\): replacement at node .*GeError: .* not "):
        compile_with(source, model(RELUS))


def test_an_attribute_of_a_draft_is_set_on_its_operator(compile_with: Any) -> None:
    source = """
from ge.es.nn import Softmax
@register_fusion_pass(name="P", stage=PassStage.AFTER_INFER_SHAPE)
class P(PatternFusionPass):
    @pattern
    def relus(self, inputs):
        return Relu(Relu(inputs[0]))
    def replacement(self, inputs):
        node = Split(1, inputs[0], 3)[0]._get_node_snapshot()
        assert node.get_attr("axis") == 1 and node.get_outputs_size() == 3
        soft = Softmax(inputs[0], axis=0)
        soft._get_node_snapshot().set_attr("axis", 1)
        return Relu(inputs[0]) + soft * 0.0
"""
    compiled, _ = compile_with(source, model(RELUS), cleanup=False)
    (softmax,) = [node for node in compiled.graph.node if node.op_type == "Softmax"]
    assert softmax.attribute[0].i == 1


def test_shapes_are_inferred_in_a_pass_on_the_graph(compile_with: Any) -> None:
    """Without a match the types are those of create_input, in the shapes."""
    source = """
@register_fusion_pass(name="P", stage=PassStage.AFTER_INFER_SHAPE)
class P(FusionBasePass):
    def run(self, graph, context):
        builder = GraphBuilder("product")
        left = builder.create_input(0, data_type=DataType.DT_FLOAT16)
        product = MatMul(left, builder.create_input(1, data_type=DataType.DT_FLOAT16))
        made = builder.build_and_reset([product])
        GeUtils.infer_shape(made, [Shape([2, -1]), [5, 7]])
        (node,) = made.get_all_nodes()
        desc = node.get_output_desc(0)
        assert (desc.data_type, list(desc.shape)) == (DataType.DT_FLOAT16, [2, 7]), desc
        for shapes in ([[2, 3], [4, 7]], [[2, 3]]):
            try:
                GeUtils.infer_shape(made, shapes)
            except GeError:
                continue
            raise AssertionError(shapes)
        context.set_error_message("seen")
        return False
"""
    with pytest.raises(PassError, match="seen"):
        compile_with(source, model(RELUS))


INFER = """
def outcome(call, shapes, count):
    builder = GraphBuilder("q")
    graph = builder.build_and_reset([call(*builder.create_inputs(count))])
    try:
        GeUtils.infer_shape(graph, [Shape(shape) for shape in shapes])
    except GeError as error:
        return str(error).partition(":")[0]
    return graph.get_direct_nodes()[-1].get_output_desc(0).shape.get_dims()

def check():
    join = lambda *x: Concat(0, list(x))
    for call, shapes, expected in [
        (MatMul, [[2, 3], [2, 3]], "MatMul"),
        (MatMul, [[2, 3], [3, 5]], [2, 5]),
        (MatMul, [[2, 3], [-1, 5]], [2, 5]),
        (Add, [[2, 3], [4, 5]], "Add"),
        (Add, [[2, -1], [4, 5]], "Add"),
        (Add, [[2, 3], [-2]], [-2]),
        (join, [[2, 3], [2, 4]], "Concat"),
        (join, [[2, 3], [2, -1]], [4, 3]),
        (Relu, [[7, 8]], [7, 8]),
        (Relu, [[2]], [2]),
        (lambda x: Split(0, x, 2)[0], [[4]], [2]),
    ]:
        actual = outcome(call, shapes, len(shapes))
        assert actual == expected, (shapes, actual)
"""
IN_METHODS = {
    "replacement": """
    @pattern
    def double(self, inputs):
        return Relu(Relu(inputs[0]))
    def replacement(self, match_result):
        check()
        builder = GraphBuilder("one")
        return builder.build_and_reset([Relu(builder.create_input(0))])
""",
    "requirements": """
    @pattern
    def double(self, inputs):
        return Relu(Relu(inputs[0]))
    def meet_requirements(self, match_result):
        check()
        return True
    def replacement(self, inputs):
        return Relu(inputs[0])
""",
    "run": """
    def run(self, graph, context):
        check()
        assert outcome(Relu, [[-1, 8]], 1) == [-1, 8]
""",
}


@pytest.mark.parametrize("size", ["2", "n"])
@pytest.mark.parametrize("stage", ["BEFORE_INFER_SHAPE", "AFTER_INFER_SHAPE"])
@pytest.mark.parametrize("method", IN_METHODS)
def test_inference_refuses_shapes_that_an_operator_does_not_take(
    method: str, stage: str, size: str, compile_with: Any
) -> None:
    base = "FusionBasePass" if method == "run" else "PatternFusionPass"
    mark = f'@register_fusion_pass(name="P", stage=PassStage.{stage})\nclass P({base}):'
    text = RELUS.replace("float[2]", f"float[{size}]")
    compile_with(f"{INFER}\n{mark}{IN_METHODS[method]}", model(text))


@pytest.mark.parametrize("stage", ["BEFORE_INFER_SHAPE", "AFTER_INFER_SHAPE"])
def test_a_constant_has_its_type_before_inference(stage: str, compile_with: Any) -> None:
    source = f"""
@register_fusion_pass(name="P", stage=PassStage.{stage})
class P(PatternFusionPass):
    @pattern
    def quotient(self, inputs):
        return inputs[0] / 3.0
    def meet_requirements(self, match_result):
        constant = match_result.get_matched_nodes()[0]
        desc, value = constant.get_output_desc(0), constant.get_attr("value")
        assert list(desc.shape) == list(value.shape)
        return desc.data_type == value.data_type == DataType.DT_FLOAT
    def replacement(self, inputs, match_result):
        (constant, _) = match_result.get_matched_nodes()
        return inputs[0] * (1.0 / constant.get_attr("value").data)
"""
    text = """g (float[2] x) => (float[2] y, float[2] z) <float i = {2.0}> {
  c = Constant <value = float {4.0}> ()
  y = Div(x, c)
  z = Div(x, i)
}"""
    assert replaced(compile_with(source, model(text))[1]) == {"P": 2}
