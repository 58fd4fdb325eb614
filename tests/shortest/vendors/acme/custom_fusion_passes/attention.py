import math

import gehost as ge
from gehost import es, ops

POWERS = {"times": 1, "on_q": 1, "on_k": 1, "over": -1}


@ops.register("acme::Attention")
def attention(q, k, v, mask=None, *, scale: float = 1.0):
    scores = es.MatMul(q, k) * scale
    return es.MatMul(es.Softmax(scores if mask is None else scores + mask, axis=-1), v)


@ge.REG_FUSION_PASS(stage=ge.CustomPassStage.kAfterBuiltinFusionPass)
class AttentionPass(ge.PatternFusionPass):
    def Patterns(self):
        builder = ge.EsGraphBuilder("attention")
        q, k, v, mask = builder.CreateInputs("q", "k", "v", "mask")
        times, on_q, on_k, over = (es.Name(n, builder.CreateScalar(1.0)) for n in POWERS)
        rest = es.Optional(lambda x: es.Mul(x, on_q), q)
        product = es.MatMul(rest, es.Optional(lambda x: es.Mul(x, on_k), k))
        scores = es.Alternatives(es.Div(product, over), es.Mul(product, times), product)
        masked = es.Optional(lambda x: es.Commutative(es.Add(x, mask)), scores)
        weights = es.constrain(es.Softmax(masked), axis=-1)
        return [ge.Pattern(builder.BuildAndReset([es.MatMul(weights, v)]))]

    def MeetRequirements(self, match):
        return all(match[n].array.size == 1 for n in POWERS if n in match)

    def Replacement(self, match):
        factors = (match[n].array.item() ** POWERS[n] for n in POWERS if n in match)
        builder = ge.EsGraphBuilder("replacement")
        q, k, v, mask = builder.CreateInputs("q", "k", "v", "mask")
        mask, scale = mask if "mask" in match else None, math.prod(factors)
        return builder.BuildAndReset([es.op("acme::Attention")(q, k, v, mask, scale=scale)])
