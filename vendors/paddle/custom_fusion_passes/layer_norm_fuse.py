"""LayerNormalization from its parts, as a traced pair.

``x → ReduceMean → m;  x, m → Sub → d → Pow 2 → ReduceMean → Add ε → Sqrt → r;``
``d, r → Div → Mul gamma → Add beta``
``==>   x, gamma, beta → LayerNormalization``
"""

from __future__ import annotations

from gehost_register_pass import InputSpec, ParamAttr, PassDesc, RegisterPass


@RegisterPass(input_specs={"x": InputSpec(dtype="float32"), "epsilon": ParamAttr()}, min_opset=17)
def layer_norm_fuse():
    """Fuse ``(x - mean(x)) / sqrt(mean((x - mean(x))²) + ε) * gamma + beta`` over the last axis.

    Shapes: x [..., D], gamma [D], beta [D].
    Keeps: dtype and shape.
    Refuses:
        no match: x not float32 (LayerNormalization computes in float32); means over another
            axis, or without keepdims; a mean of another tensor; an exponent other than 2; other
            readers of an inner tensor; ``weight``: an epsilon that is no constant; ``condition``:
            gamma or beta not [D], or D not above 1; an epsilon that is not one number above 0 and
            below 1, or of a higher rank than x, which it would widen; ``unknown``: a rank or last
            dimension that is not known; by the host, ``rank``: an exponent of a higher rank than x.
    Source: ONNX LayerNormalization-17.
    """

    def pattern(x, epsilon, gamma, beta):
        epsilon.Attr("value").Size().EQ(1)
        epsilon.Attr("shape").Size().LE(x.Attr("shape").Size())
        epsilon.Attr("value")[0].GT(0)
        epsilon.Attr("value")[0].LT(1)
        x.Attr("shape")[-1].GT(1)
        gamma.Attr("shape").EQ([x.Attr("shape")[-1]])
        beta.Attr("shape").EQ([x.Attr("shape")[-1]])

        difference = PassDesc.OP.Sub(A=x, B=_mean(x))
        variance = _mean(PassDesc.OP.Pow(X=difference, Y=2.0))
        root = PassDesc.OP.Sqrt(X=PassDesc.OP.Add(A=variance, B=epsilon).Commutative())
        scaled = PassDesc.OP.Mul(A=PassDesc.OP.Div(A=difference, B=root), B=gamma).Commutative()
        return PassDesc.OP.Add(A=scaled, B=beta).Commutative()

    def replace(x, epsilon, gamma, beta):
        layer_norm = PassDesc.OP.LayerNormalization
        layer_norm.SetAttr("axis", -1)
        layer_norm.SetAttr("epsilon", epsilon.Attr("value")[0])
        return layer_norm(X=x, Scale=gamma, B=beta)

    return pattern, replace


def _mean(tensor):
    """``ReduceMean`` over the last axis that keeps it.

    The opset may have the axes as attribute or as input.
    """
    mean = PassDesc.OP.ReduceMean(data=tensor)
    mean.SetAttr("axes", [-1])
    mean.SetAttr("keepdims", 1)
    return mean
