"""Weights that are read in both types, and those that several bodies read."""

from __future__ import annotations

import numpy as np
import onnx
import onnx.checker
import onnx.numpy_helper
import onnx.parser
import pytest

from gehost.half import judge, to_float16
from gehost.ir.bodies import node_lists

READERS = {
    "graph": "y = MatMul (a, w)",
    "branch": """y = If (yes) <then_branch = t () => (float[n, 64] p) { p = MatMul (a, w) },
        else_branch = e () => (float[n, 64] q) { k = MatMul (a, w) q = Tanh (k) }>""",
    "loop": """y = Loop (two, yes, a) <body = l (int64 i, bool k, float[n, 64] s)
        => (bool on, float[n, 64] z) { on = Identity (k) z = MatMul (s, w) }>""",
    "function": "y = own.f (a)",
}
FUNCTION = """ <domain: "own", opset_import: ["": 17]> f (x) => (y) {
    w = Constant <value = float[64, 64] {WEIGHT}> () a = MatMul (x, w) y = MatMul (a, w) }"""


def reads_a_weight_twice(reader: str, form: str) -> onnx.ModelProto:
    """Return a model whose last reader of a weight is named "last"."""
    array = np.random.default_rng(0).standard_normal((64, 64)).astype(np.float32)
    text = f"""<ir_version: 9, opset_import: ["": 17, "own": 1]>
        g (float[n, 64] x) => (float[n, 64] y) <bool yes = {{1}}, int64 two = {{2}}> {{
        a = MatMul (x, w) {READERS[reader]} }}"""
    if reader == "function":
        text += FUNCTION.replace("WEIGHT", ", ".join(map(str, array.ravel())))
    proto = onnx.parser.parse_model(text)
    if form == "initializer":
        proto.graph.initializer.append(onnx.numpy_helper.from_array(array, "w"))
    else:
        value = onnx.numpy_helper.from_array(array)
        proto.graph.node.insert(0, onnx.helper.make_node("Constant", [], ["w"], value=value))
    readers = [node for nodes in node_lists(proto) for node in nodes if "w" in node.input]
    readers[-1].name = "last"
    return proto


@pytest.mark.parametrize("form", ["initializer", "constant"])
@pytest.mark.parametrize("reader", READERS)
def test_a_large_weight_of_both_types_is_in_the_file_once(reader: str, form: str) -> None:
    """It was there in both, or in each body; a Cast makes the other, which the runtime folds."""
    proto = reads_a_weight_twice(reader, form)
    size = len(proto.SerializeToString())
    feeds = [{"x": np.random.default_rng(1).standard_normal((2, 64)).astype(np.float32)}]
    half = to_float16(proto)
    assert len(half.model.SerializeToString()) < size * 0.6
    both = to_float16(proto, keep_float32=["last"])
    assert len(both.model.SerializeToString()) < size * 1.1
    line = "half: weights read in both types stay float32, and are cast to float16 where it is read"
    assert f"{line}: w" in both.notes
    assert not any("both" in note for note in half.notes)
    for conversion in (half, both):
        onnx.checker.check_model(conversion.model, full_check=True)
        result = judge(proto, conversion, feeds)
        assert result.equal, result.summary()
        assert result.off is not None
        assert result.off.distance < 2e-3


def test_a_large_mask_of_both_types_is_stored_in_both() -> None:
    """A Cast would make infinities of its fills, whose half form is the lowest number."""
    proto = onnx.parser.parse_model(
        """<ir_version: 9, opset_import: ["": 17]>
        g (float[64, 64] x) => (float[64, 64] y) { a = Add (x, w) b = Tanh (a) y = Add (b, w) }"""
    )
    mask = np.where(np.tri(64, dtype=np.float32), 0, -3e38).astype(np.float32)
    proto.graph.initializer.append(onnx.numpy_helper.from_array(mask, "w"))
    proto.graph.node[-1].name = "last"
    result = to_float16(proto, keep_float32=["last"])
    tensors = {tensor.name: tensor for tensor in result.model.graph.initializer}
    lowest = [onnx.numpy_helper.to_array(tensors[name]).min() for name in ("w", "w (float16)")]
    assert lowest == [np.float32(-3e38), -65504]
    line = "half: weights read in both types are stored in both, as they have numbers out of"
    assert f"{line} float16's range: w" in result.notes
