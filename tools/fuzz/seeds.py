"""Small models to damage: those of ``tests/models``, and some that hold what those do not."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

MODELS = Path(__file__).parents[2] / "tests" / "models"
_LARGEST = 100_000

_TEXTS = (
    # What the shipped vendors fuse.
    """<ir_version: 8, opset_import: ["" : 17]> g (float[3, 4] a, float[4, 5] b, float[5] c) => (float[3, 5] y)
    { p = MatMul(a, b) q = Add(p, c) r = Relu(q) t = Transpose<perm = [1, 0]>(r) y = Transpose<perm = [1, 0]>(t) }""",
    """<ir_version: 8, opset_import: ["" : 17]> g (float[N, 4] x) => (float[N, 4] y) <float[4] w = {1, 2, 3, 4}, float e = {0.00001},
    float two = {2}, float zero = {0}> { m = ReduceMean<axes = [-1]>(x) d = Sub(x, m) p = Pow(d, two) v = ReduceMean<axes = [-1]>(p)
    s = Add(v, e) r = Sqrt(s) n = Div(d, r) o = Mul(n, w) y = Add(o, zero) }""",
    # Shapes that are computed, and what reads them.
    """<ir_version: 9, opset_import: ["" : 20]> g (float[N, 6] x) => (float[A, B] y, int64[2] s) <int64[1] zero = {0}, int64[1] three = {3},
    int64[1] minus = {-1}> { s = Shape(x) n = Gather(s, zero) k = Concat<axis = 0>(n, three, minus) r = Reshape(x, k)
    l = Slice(k, zero, three) e = Expand(x, s) f = Flatten<axis = 1>(r) t = Add(f, x) y = Identity(t) }""",
    """<ir_version: 9, opset_import: ["" : 18]> g (float[2, 3] x) => (float[A] y, float[B] z, int64[C] r) <int64[2] big = {100, 200},
    int64[2] twice = {2, 2}, int64 a = {0}, int64 b = {9}, int64 d = {3}> { c = ConstantOfShape<value = float[1] {1.5}>(big)
    t = Tile(x, twice) r = Range(a, b, d) o = Unsqueeze(x, d) p = Pad(t, big) y = Resize<mode = "nearest">(o, , , big) z = CastLike(r, x) }""",
    # Bodies in bodies, captures, sequences, functions that call functions.
    """<ir_version: 8, opset_import: ["" : 17]> g (bool c, float[2] x) => (float[2] y) { a = Relu(x) y = If(c) <then_branch =
    t () => (float[2] p) { p = If(c) <then_branch = u () => (float[2] q) { q = Add(a, x) }, else_branch = v () => (float[2] r)
    { k = Constant<value = float[2] {1, 2}>() r = Mul(a, k) }> }, else_branch = e () => (float[2] s) { s = Identity(a) }> }""",
    """<ir_version: 8, opset_import: ["" : 17, "local" : 1]> g (float[2] x) => (float[2] y) { a = local.F<alpha = 2.0>(x) y = local.G(a) }
    <domain: "local", opset_import: ["" : 17]> F <alpha> (p) => (q) { q = LeakyRelu<alpha: float = @alpha>(p) }
    <domain: "local", opset_import: ["" : 17, "local" : 1]> G (p) => (q) { r = local.F<alpha = 0.5>(p) k = Constant<value_floats = [1.0, 2.0]>()
    q = Add(r, k) }""",
    """<ir_version: 8, opset_import: ["" : 17]> g (float[4] x, int64 i) => (float[A] y, seq(float[N]) z) { s = SplitToSequence(x)
    e = SequenceAt(s, i) z = SequenceInsert(s, e) o = Optional(e) y = OptionalGetElement(o) }""",
    """<ir_version: 4, opset_import: ["" : 9, "ai.onnx.ml" : 1]> g (float[1, 2, 4, 4] x, float[3, 2, 3, 3] w) => (float[A, B, C, D] y)
    <float[3, 2, 3, 3] w = {1,2,3,4,5,6,7,8,9,1,2,3,4,5,6,7,8,9,1,2,3,4,5,6,7,8,9,1,2,3,4,5,6,7,8,9,1,2,3,4,5,6,7,8,9,1,2,3,4,5,6,7,8,9}>
    { c = Conv(x, w) u = Upsample(c, k) d = Dropout(u) k = Constant<value = float[4] {1, 1, 2, 2}>() y = Relu(d) }""",
)


def _types_and_sparse() -> onnx.ModelProto:
    """A constant of each element type, a sparse initializer and string attributes."""
    graph = helper.make_graph([helper.make_node("Identity", ["x"], ["y"])], "g", [], [])
    graph.input.append(helper.make_tensor_value_info("x", TensorProto.STRING, [2]))
    graph.output.append(helper.make_tensor_value_info("y", TensorProto.STRING, [2]))
    for number in TensorProto.DataType.values():
        if number not in (TensorProto.UNDEFINED, TensorProto.STRING):
            array = np.array([0, 1, 1], np.float32).astype(helper.tensor_dtype_to_np_dtype(number))
            graph.initializer.append(numpy_helper.from_array(array, f"w{number}"))
            graph.node.add(op_type="Identity", input=[f"w{number}"], output=[f"y{number}"])
            graph.output.append(helper.make_tensor_value_info(f"y{number}", number, [3]))
    sparse = graph.sparse_initializer.add(dims=[4])
    sparse.values.CopyFrom(numpy_helper.from_array(np.array([1.5], np.float32), "sparse"))
    sparse.indices.CopyFrom(numpy_helper.from_array(np.array([2], np.int64), "indices"))
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 25)], ir_version=13)


def _external() -> onnx.ModelProto:
    """Weights in the file of ``tests/models/external.onnx``, also in a body, and one that is a shape."""
    proto = onnx.parser.parse_model(
        """<ir_version: 8, opset_import: ["" : 17]> g (bool c, float[4] x) => (float[A] y) { r = Reshape(x, s) a = Add(r, w)
        y = If(c) <then_branch = t () => (float[4] p) { p = Mul(a, v) }, else_branch = e () => (float[4] q) { q = Neg(a) }> }"""
    )
    for graph, name, kind in (
        (proto.graph, "s", TensorProto.INT64),
        (proto.graph, "w", TensorProto.FLOAT),
        (proto.graph.node[2].attribute[0].g, "v", TensorProto.FLOAT),
    ):
        tensor = graph.initializer.add(
            name=name, data_type=kind, dims=[4], data_location=TensorProto.EXTERNAL
        )
        for key, value in (
            ("location", "external.onnx.data"),
            ("offset", "64"),
            ("length", "32" if name == "s" else "16"),
        ):
            tensor.external_data.add(key=key, value=value)
    return proto


def seed_models() -> Iterator[bytes]:
    """The files to damage; some read weights from the ``data_files``."""
    for path in sorted(MODELS.glob("*.onnx")):
        if path.stat().st_size < _LARGEST:
            yield path.read_bytes()
    for proto in (*map(onnx.parser.parse_model, _TEXTS), _types_and_sparse(), _external()):
        yield proto.SerializeToString()


def data_files() -> list[Path]:
    return [MODELS / "external.onnx.data"]
