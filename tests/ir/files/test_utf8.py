"""Texts that are not UTF-8 are found wherever a message has one."""

from __future__ import annotations

import onnx
import pytest

from gehost.errors import ModelError
from gehost.ir.files.utf8 import check_utf8

MODEL = onnx.parser.parse_model(
    """<ir_version: 8, opset_import: ["" : 17, "import" : 1], producer_name: "maker", metadata_props: ["key" : "value"]>
    g (float[size] x) => (float[N] y) { [node] y = If(x) <then_branch = body () => (float[N] inner) { inner = Op(x) }> }
    <domain: "import", opset_import: ["" : 17]> function (p) => (q) { q = Relu(p) }"""
)
PLACES = {
    "maker": r"producer_name",
    "value": r"metadata_props\[0\].value",
    "size": r"graph.input\[0\].type.tensor_type.shape.dim\[0\].dim_param",
    "node": r"graph.node\[0\].name",
    "then_branch": r"graph.node\[0\].attribute\[0\].name",
    "inner": r"graph.node\[0\].attribute\[0\].g.node\[0\].output\[0\]",
    "import": r"opset_import\[1\].domain",
    "function": r"functions\[0\].name",
}


def test_a_model_of_good_texts():
    check_utf8(MODEL)
    check_utf8(onnx.ModelProto(producer_name="ünï\0\U0001f600"))


@pytest.mark.parametrize(("text", "place"), PLACES.items(), ids=PLACES)
def test_the_first_bad_one_is_named(text, place):
    content = MODEL.SerializeToString()
    assert text.encode() in content
    with pytest.raises(ModelError, match=rf"^{place} \(b'\\xff.*'\) is not UTF-8"):
        check_utf8(onnx.ModelProto.FromString(content.replace(text.encode(), b"\xff" * len(text))))


def test_bytes_that_are_no_text_may_be_anything():
    proto = onnx.ModelProto()
    proto.CopyFrom(MODEL)
    proto.graph.initializer.add(name="w", raw_data=b"\xff\xfe", string_data=[b"\xff"])
    proto.graph.node[0].attribute.add(name="s", s=b"\xff")
    check_utf8(proto)
