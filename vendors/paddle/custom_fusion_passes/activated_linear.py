"""A linear layer with its activation as one operation.

``x, y → MatMul, bias → Add [→ Relu | Gelu]   ==>   x, y, bias → paddle::fused_gemm_epilogue``
"""

from __future__ import annotations

from typing import Any

from gehost import CustomPassStage, DataType, EsTensor, es, ops
from gehost_drr import REG_IR_PASS, PatternRewritePass, attr, drr

GELU_FORMS = ("none", "tanh")


@ops.register("paddle::fused_gemm_epilogue", outputs=["out"])
def fused_gemm_epilogue(
    x: EsTensor, y: EsTensor, bias: EsTensor, *, activation: str = "none"
) -> EsTensor:
    """``activation(x · y + bias)``: x [..., K], y [K, N], bias [N]; result [..., N].

    ``activation``: none, relu, gelu (exact, by erf) or gelu_tanh; the last two are ONNX's Gelu, of
    opset 20 and newer, so that the numbers are those of the model.
    """
    out = es.MatMul(x, y) + bias
    if activation == "relu":
        return es.Relu(out)
    if activation == "gelu":
        return es.Gelu(out)
    if activation == "gelu_tanh":
        return es.Gelu(out, approximate="tanh")
    return out


def _linear(pat: Any) -> Any:
    """``x · y + bias`` with its conditions.

    Shapes: x [..., K], y [K, N], bias [N], N proven equal in both. Refuses: ``dtype``, ``matrix``,
    ``bias``.
    """
    total = pat.Commutative(pat.Add(pat.MatMul(pat.x, pat.y), pat.bias))
    floats = (DataType.FLOAT16, DataType.BFLOAT16, DataType.FLOAT, DataType.DOUBLE)
    pat.where(pat.x.dtype.one_of(*floats), "dtype: not floating point, or unknown")
    pat.where(pat.y.rank == 2, "matrix: y is none, or its rank is unknown")
    pat.where(
        (pat.bias.rank == 1) & (pat.bias.shape[0] == pat.y.shape[1]),
        "bias: not known to be as long as y is wide",
    )
    return total


@drr.rule(labels=["linear"])
def fused_linear(pat: Any, res: Any) -> None:
    """Without activation."""
    pat.out = _linear(pat)
    res.out = res.Op("paddle::fused_gemm_epilogue", {"activation": "none"})(res.x, res.y, res.bias)


@drr.rule(labels=["linear"], benefit=2)
def fused_linear_relu(pat: Any, res: Any) -> None:
    """With Relu, tried before the rule without."""
    pat.out = pat.Relu(_linear(pat))
    res.out = res.Op("paddle::fused_gemm_epilogue", {"activation": "relu"})(res.x, res.y, res.bias)


@drr.rule(labels=["linear"], benefit=2)
def fused_linear_gelu(pat: Any, res: Any) -> None:
    """With Gelu, which ONNX has from opset 20 on, in the form of ``approximate``.
    Refuses: ``approximate``: neither.
    """
    pat.out = pat.Gelu(approximate=attr.form)(_linear(pat))
    pat.where(attr.form.one_of(*GELU_FORMS), "approximate: neither none nor tanh")
    activation = res.Attr(lambda m: "gelu_tanh" if m.form == "tanh" else "gelu")
    res.out = res.Op("paddle::fused_gemm_epilogue", {"activation": activation})(
        res.x, res.y, res.bias
    )


@REG_IR_PASS("fused_gemm_epilogue_pass")
class FusedLinearPass(PatternRewritePass):
    """All linear layers, after larger fusions, as of attention, and before ``add_to_sum``."""

    stage = CustomPassStage.kAfterOriginGraphOptimize
    patterns = (fused_linear, fused_linear_relu, fused_linear_gelu)
