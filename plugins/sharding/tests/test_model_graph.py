"""Models as sharding sees them: shapes, constants, open dimensions."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnx.parser
import pytest
from onnx import numpy_helper

from gehost import ModelError, UsageError
from gehost_sharding.mesh import Mesh
from gehost_sharding.model_graph import ModelGraph, fix_dims, read_model
from gehost_sharding.plan import Planner
from gehost_sharding.rules.table import RuleTable

from .conftest import SLOW, assert_equal, feeds_of, graph_of, model_of, reread, split_run, whole_run


def test_shape_and_size_are_constants() -> None:
    """A Shape of a split tensor would be that of the piece."""
    graph = graph_of(
        """(float[4,8] x) => (float[4,8] z, int64 n) {
            y = Exp (x)
            s = Shape (y)
            n = Size (y)
            o = ConstantOfShape <value = float[1] {2.0}> (s)
            z = Mul (y, o)
        }"""
    )
    assert [operator.op for operator in graph.operators] == ["Exp", "ConstantOfShape", "Mul"]
    assert graph.value("s").tolist() == [4, 8]
    feeds = feeds_of(graph)
    plan = Planner(graph, Mesh.parse("x=2"), SLOW, RuleTable()).plan()
    assert plan.assignment.specs["z"] != (-1,)
    assert_equal(whole_run(graph, feeds), split_run(reread(plan.assignment), feeds)[0])


def test_a_stale_declared_shape_is_not_believed() -> None:
    model = model_of("(float[4,8] x) => (float[4,8] z) { y = Exp (x) z = Neg (y) }")
    model.graph.value_info.append(
        onnx.helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, [2, 16])
    )
    assert ModelGraph(model).tensors["y"].shape == (4, 8)


def test_a_tensor_without_a_shape_is_named() -> None:
    model = model_of(
        """(float[4,8] x) => (float[n,2] z) {
            m = NonZero (x)
            t = Transpose (m)
            z = Cast <to = 1> (t)
        }"""
    )
    with pytest.raises(ModelError, match='the shape of tensor "m" .*is not fixed; give --dim'):
        ModelGraph(model)


def test_computed_shapes_are_folded(tmp_path: Path) -> None:
    text = """(float["n",8] x) => (float["n","m","k"] z) {
        s = Shape (x)
        i = Constant <value = int64[1] {0}> ()
        n = Gather (s, i)
        r = Constant <value = int64[2] {2, 4}> ()
        t = Concat <axis = 0> (n, r)
        z = Reshape (x, t)
    }"""
    path = tmp_path / "m.onnx"
    onnx.save(model_of(text), path)
    graph = read_model(str(path), {"n": 4})
    assert graph.tensors["z"].shape == (4, 2, 4)


def test_dims_by_name_and_by_position() -> None:
    model = model_of('(float["n","m"] x, float["n"] y) => (float["n"] z) { z = Neg (y) }')
    fix_dims(model, {"n": 4, "x:1": 8})
    graph = ModelGraph(model)
    assert (graph.tensors["x"].shape, graph.tensors["z"].shape) == ((4, 8), (4,))
    with pytest.raises(UsageError, match="--dim k: no input of .* open: none"):
        fix_dims(model, {"k": 4})


def test_external_data_is_read_where_it_is_cut(tmp_path: Path) -> None:
    weights = {"w": np.arange(4096, dtype=np.float32).reshape(64, 64)}
    model = model_of("(float[4,64] x) => (float[4,64] z) { z = MatMul (x, w) }", weights)
    path = tmp_path / "model.onnx"
    onnx.save(model, path, save_as_external_data=True, location="w.data", size_threshold=0)
    graph = read_model(str(path))
    assert graph.is_external("w")
    np.testing.assert_array_equal(graph.value("w"), weights["w"])


def test_the_operators_of_equal_layers_share_a_signature() -> None:
    graph = graph_of("(float[4,8] x) => (float[4,8] z) { a = Exp (x) b = Exp (a) z = Neg (b) }")
    first, second, third = (graph.signature(operator) for operator in graph.operators)
    assert first == second != third


def test_integer_constants_are_part_of_the_signature() -> None:
    graph = graph_of(
        """(float[4,8] x) => (float[8,4] a, float[2,16] b) {
            s = Constant <value = int64[2] {8, 4}> ()
            t = Constant <value = int64[2] {2, 16}> ()
            a = Reshape (x, s)
            b = Reshape (x, t)
        }"""
    )
    first, second = (graph.signature(operator) for operator in graph.operators)
    assert first != second


@pytest.mark.parametrize(
    ("training", "is_refused"), [("bool {1}", True), ("bool {0}", False), (None, True)]
)
def test_dropout_that_trains_is_refused(training: str | None, is_refused: bool) -> None:
    constant = f"t = Constant <value = {training}> ()" if training else ""
    model = model_of(
        f"(float[4] x{'' if training else ', bool t'}) => (float[4] z)"
        f" {{ r = Constant <value = float {{0.5}}> () {constant} z = Dropout (x, r, t) }}"
    )
    if not is_refused:
        ModelGraph(model)
        return
    with pytest.raises(ModelError, match="Dropout .*draws random numbers"):
        ModelGraph(model)


def test_random_numbers_inside_a_function_are_refused() -> None:
    text = """<ir_version: 10, opset_import: ["" : 20, "acme" : 1]>
    main (float[4,8] x) => (float[4,8] z) { z = acme.Noise (x) }
    <domain: "acme", opset_import: ["" : 20]>
    Noise (x) => (z) { r = RandomNormalLike (x) z = Add (x, r) }"""
    with pytest.raises(ModelError, match="RandomNormalLike .*draws random numbers"):
        ModelGraph(onnx.parser.parse_model(text))


def test_strings_are_refused() -> None:
    model = model_of("(string[4] x) => (string[4] z) { z = Identity (x) }")
    with pytest.raises(ModelError, match="cannot be sharded"):
        ModelGraph(model)


def test_initializers_listed_as_inputs_are_weights() -> None:
    model = model_of("(float[4] x, float[4] w) => (float[4] z) { z = Add (x, w) }")
    model.graph.initializer.append(numpy_helper.from_array(np.ones(4, np.float32), "w"))
    assert ModelGraph(model).inputs == ["x"]


def test_sequences_are_refused_by_name() -> None:
    with pytest.raises(ModelError, match='"q" is a sequence; only tensors are sharded'):
        graph_of("""(float[4] x) => (float[4] y) {
            q = SequenceConstruct (x, x)
            i = Constant <value_int = 0> ()
            y = SequenceAt (q, i)
        }""")


def test_a_function_that_calls_itself_is_refused() -> None:
    model = onnx.parser.parse_model("""<ir_version: 10, opset_import: ["" : 20, "my" : 1]>
        main (float[4] x) => (float[4] y) { y = my.f (x) }
        <domain: "my", opset_import: ["" : 20, "my" : 1]> f (a) => (b) { b = my.f (a) }""")
    with pytest.raises(ModelError, match=r"my::f -> my::f"):
        ModelGraph(model)


def test_small_weights_of_ir_version_3_have_shapes() -> None:
    """Inference takes initializers that are no inputs into account from IR version 4 on."""
    text = """(float[4,3,8,8] x, float[6,3,3,3] w) => (float[4,6,6,6] z) {
        y = Conv <kernel_shape = [3, 3]> (x, w)
        z = Relu (y)
    }"""
    model = model_of(text, opset=9, ir=3)
    w = np.random.default_rng(0).standard_normal((6, 3, 3, 3)).astype(np.float32)
    model.graph.initializer.append(numpy_helper.from_array(w, "w"))
    graph = ModelGraph(model)
    assert graph.tensors["y"].shape == (4, 6, 6, 6)
    plan = Planner(graph, Mesh.parse("x=2"), SLOW, RuleTable()).plan()
    feeds = feeds_of(graph)
    assert_equal(whole_run(graph, feeds), split_run(reread(plan.assignment), feeds)[0])


def test_results_of_onnx_runtimes_operators_have_shapes() -> None:
    """Also the statistics of a norm, which gehost names though nothing reads them."""
    text = """(float[2,4,8] x, float[8] s, float[8,24] w) => (float[2,4,8] y) {
        a = com.microsoft.Attention <num_heads = 2> (x, w)
        z, m, v, t = com.microsoft.SkipLayerNormalization (x, a, s)
        q = com.microsoft.MultiHeadAttention <num_heads = 2> (z, t, t)
        y = Relu (q)
    }"""
    graph = graph_of(text)
    shapes = {name: graph.tensors[name].shape for name in ("a", "z", "m", "v", "t", "q")}
    assert shapes == dict.fromkeys("aztq", (2, 4, 8)) | dict.fromkeys("mv", (2, 4, 1))
    assert not onnx.defs.has("SkipLayerNormalization", "com.microsoft")


@pytest.mark.parametrize(
    "node",
    [
        "GroupNormalization <num_groups = 2> (x, w, w)",
        "SimplifiedLayerNormalization (x, v)",
        'com.microsoft.FusedConv <activation = "Relu", pads = [1, 1]> (x, k, w)',
    ],
)
def test_results_that_onnx_does_not_infer_have_shapes(node: str) -> None:
    text = f"(float[2,4,6] x, float[4] w, float[6] v, float[4,4,3] k) => (z) {{ y = {node} z = Neg (y) }}"
    contrib = ', "com.microsoft" : 1' if "com.microsoft" in node else ""
    model = onnx.parser.parse_model(f'<ir_version: 10, opset_import: ["" : 21{contrib}]>\nf {text}')
    graph = ModelGraph(model)
    assert graph.tensors["y"].shape == graph.tensors["z"].shape == (2, 4, 6)
    assert [node.op_type for node in graph.proto.graph.node] == [
        node.op_type for node in model.graph.node
    ]
