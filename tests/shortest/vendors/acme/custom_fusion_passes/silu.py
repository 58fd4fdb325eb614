from gehost import es, ops
from gehost_drr import drr


@ops.register("acme::SiLU")
def silu(x):
    return x * es.Sigmoid(x)


@drr.rule()
def fuse_silu(pat, res):
    pat.y = pat.Commutative(pat.Mul(pat.x, pat.Sigmoid(pat.x)))
    res.y = res.Op("acme::SiLU")(res.x)
