"""Base classes of other products serve passes in GE's Python form."""

from __future__ import annotations

from typing import Any

import pytest

from gehost import PassError, VendorError

from .conftest import model, replaced

ATTENTION = """
g (float[2,4,5,8] q, float[2,4,7,8] k, float[2,4,7,8] v) => (float[2,4,5,8] y) {
  kt = Transpose <perm = [0, 1, 3, 2]> (k)
  scores = MatMul (q, kt)
  scale = Constant <value = float {0.25}> ()
  scaled = Mul (scores, scale)
  p = Softmax <axis = -1> (scaled)
  y = MatMul (p, v)
}"""
FILE = """
from gehost import es
from gehost_semantic import AttentionFusionPass
@register_fusion_pass(name="NpuAttention", stage=PassStage.AFTER_INFER_SHAPE)
class NpuAttention(AttentionFusionPass):
    takes = {"mask"}
    def meet_requirements(self, attention):
        return attention.head_size <= 128 or attention.reject("head size: at most 128")
    def replacement(self, attention):
        return es.op("npu::FlashAttention")(
            attention.q, attention.k, attention.v, attention.mask, scale=attention.scale)
"""


def test_a_pass_on_attention_has_methods_by_python_names(compile_with: Any) -> None:
    compiled, report = compile_with(FILE, model(ATTENTION))
    assert replaced(report) == {"NpuAttention": 1}
    assert [node.op_type for node in compiled.graph.node] == ["FlashAttention"]


def test_a_refusal_has_the_reason_of_the_author(compile_with: Any) -> None:
    _, report = compile_with(FILE.replace("128 or", "4 or"), model(ATTENTION))
    (record,) = [record for record in report.passes if record.name == "NpuAttention"]
    assert dict(record.rejected) == {"head size": 1}


def test_an_error_is_one_line_with_the_line_of_the_author(compile_with: Any) -> None:
    with pytest.raises(
        PassError, match=r"passes.py:1\d\): meet_requirements at node .*no attribute 'missing'"
    ) as caught:
        compile_with(FILE.replace("attention.head_size", "attention.missing"), model(ATTENTION))
    assert "\n" not in str(caught.value)


def test_a_missing_method_has_its_python_name(compile_with: Any) -> None:
    source = FILE.partition("    def meet")[0]
    with pytest.raises(VendorError, match="NpuAttention does not define replacement"):
        compile_with(source, model(ATTENTION))


def test_a_pass_in_c_names_is_registered_by_the_python_decorator(compile_with: Any) -> None:
    source = """
import gehost
from gehost import EsGraphBuilder, es
@register_fusion_pass(name="Twice", stage=PassStage.AFTER_INFER_SHAPE)
class Twice(gehost.PatternFusionPass):
    def Patterns(self):
        builder = EsGraphBuilder("p")
        return [gehost.Pattern(builder.BuildAndReset([es.Relu(es.Relu(builder.CreateInput(0)))]))]
    def Replacement(self, match):
        builder = EsGraphBuilder("r")
        return builder.BuildAndReset([es.Relu(builder.CreateInput(0))])
"""
    text = "g (float[2] x) => (float[2] y) { r = Relu(x)  y = Relu(r) }"
    assert replaced(compile_with(source, model(text))[1]) == {"Twice": 1}
