"""Self-attention with constant projections as one operation with packed weights.

``x → MatMul wq → Add bq → Reshape → Transpose → Mul scale → q``  and so k and v, without scale;
``q, k → MatMul [→ Add mask] → Softmax; v → MatMul → Transpose → Reshape``
``==>   x, w, b [, mask] → paddle::multihead_matmul``

The projections may also be ``x → Flatten → Gemm w, b → Reshape``, as ``vendors/ascend`` leaves
them; not where clean-up has made one Flatten of the three, nor where a size of x has neither number
nor name, as such sizes are not proven to be equal.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np
import onnx
import onnx.numpy_helper
import onnx.parser

from gehost import DataType, EsTensor, Refusal, es, ops, shapes
from gehost_drr import REG_IR_PASS, DrrRule, MatchContext, PatternRewritePass, drr

PATHS = ("q", "k", "v")


@ops.register("paddle::multihead_matmul", outputs=["out"])
def multihead_matmul(
    input: EsTensor,  # noqa: A002 - the published name
    w: EsTensor,
    bias: EsTensor,
    bias_qk: EsTensor | None = None,
    *,
    alpha: float,
    head_number: int,
    head_size: int,
) -> EsTensor:
    """Self-attention over ``head_number`` heads.

    softmax(alpha · q · kᵀ + bias_qk) · v.

    Shapes: input [B, S, H]; w [H, 3, D], the weights of q, k and v side by side on axis 1; bias [3,
    D]; bias_qk broadcasts to [B, heads, S, S]; result [B, S, D]; D = head_number · head_size. No
    size is left over (-1): B or S may be 0.
    """
    weights, biases = es.Split(w, num_outputs=3, axis=1), es.Split(bias, num_outputs=3, axis=0)
    q, k, v = (
        es.Reshape(
            es.MatMul(input, es.Squeeze(weight, axes=[1])) + one, [0, 0, head_number, head_size]
        )
        for weight, one in zip(weights, biases, strict=True)
    )
    scores = es.MatMul(
        es.Transpose(q, perm=[0, 2, 1, 3]) * alpha, es.Transpose(k, perm=[0, 2, 3, 1])
    )
    if bias_qk is not None:
        scores = scores + bias_qk
    mixed = es.MatMul(es.Softmax(scores, axis=-1), es.Transpose(v, perm=[0, 2, 1, 3]))
    return es.Reshape(es.Transpose(mixed, perm=[0, 2, 1, 3]), [0, 0, head_number * head_size])


def _attention(
    pat: Any, res: Any, *, with_mask: bool, k_transposed_twice: bool, flattened: bool
) -> None:
    """The rule, with its variants.

    Shapes: x [B, S, H]; wq, wk, wv [H, D]; bq, bk, bv [D]; heads · d = D; mask broadcasts; result
    [B, S, D].
    Keeps: dtype. B and S of the Reshapes are copied, or proven to be those of x.
    Refuses: ``dtype``: not float32 or float16, whose numbers ``alpha`` holds; ``weight``: a weight
    or bias that is no constant of the wanted shape; ``scale``: not one constant number; ``rows``: a
    projection's Reshape that is not known to give back B and S; ``heads``: a Reshape that does not
    split D into the same heads, or does not put them together. No match: other perms, a softmax
    over another axis, a scale elsewhere, a tensor between that is read elsewhere.
    """
    heads = {path: _heads(pat, path, flattened=flattened) for path in PATHS}
    q = pat.Commutative(pat.Mul(pat.Transpose(perm=[0, 2, 1, 3])(heads["q"]), pat.scale))
    if k_transposed_twice:
        k = pat.Transpose(perm=[0, 1, 3, 2])(pat.Transpose(perm=[0, 2, 1, 3])(heads["k"]))
    else:
        k = pat.Transpose(perm=[0, 2, 3, 1])(heads["k"])
    scores = pat.MatMul(q, k)
    if with_mask:
        scores = pat.Commutative(pat.Add(scores, pat.mask))
    mixed = pat.MatMul(pat.Softmax(axis=-1)(scores), pat.Transpose(perm=[0, 2, 1, 3])(heads["v"]))
    pat.out = pat.Reshape(pat.Transpose(perm=[0, 2, 1, 3])(mixed), pat.joined)
    pat.where(
        pat.x.dtype.one_of(DataType.FLOAT, DataType.FLOAT16), "dtype: wanted float32 or float16"
    )
    pat.where(pat.x.rank == 3, "rank: x is not [B, S, H]")
    pat.RequireNativeCall(_has_constant_projections)
    if flattened:
        pat.RequireNativeCall(_gives_back_rows)
    pat.RequireNativeCall(_splits_and_joins_heads)
    heads_of = {
        "head_number": res.Attr(lambda m: _heads_of(m)[0]),
        "head_size": res.Attr(lambda m: _heads_of(m)[1]),
    }
    fused = res.Op("paddle::multihead_matmul", {"alpha": res.Attr(_alpha), **heads_of})
    packed = (
        res.Const(lambda m: _packed(m, "w", axis=1)),
        res.Const(lambda m: _packed(m, "b", axis=0)),
    )
    res.out = fused(res.x, *packed, res.mask) if with_mask else fused(res.x, *packed)


def _heads(pat: Any, path: str, *, flattened: bool) -> Any:
    """``Reshape(x · w + b)`` of one path; its tensors are called after it."""
    weight, bias = pat.Tensor(f"w{path}"), pat.Tensor(f"b{path}")
    if flattened:
        gemm = pat.Gemm(alpha=1.0, beta=1.0, transA=0, transB=0)(
            pat.Flatten(axis=2)(pat.x), weight, bias
        )
        projected = pat.Reshape(gemm, pat.Tensor(f"rows{path}"))
        pat.Tensor(f"projected{path}").Assign(projected)
    else:
        projected = pat.Commutative(pat.Add(pat.MatMul(pat.x, weight), bias))
    reshaped = pat.Reshape(projected, pat.Tensor(f"split{path}"))
    pat.Tensor(f"heads{path}").Assign(reshaped)
    return reshaped


def _packed(m: MatchContext, what: str, axis: int) -> np.ndarray[Any, Any]:
    """Weights on a new axis 1, [H, 3, D]; biases on a new axis 0, [3, D]."""
    return np.stack([m.value(f"{what}{path}").numpy() for path in PATHS], axis=axis)


def _alpha(m: MatchContext) -> float:
    return float(m.value("scale").numpy().reshape(-1)[0])


def _heads_of(m: MatchContext) -> tuple[int, int]:
    """The number of heads and their size, which the conditions saw to."""
    result = _split(m, "q")
    assert result is not None
    return result


def _has_constant_projections(m: MatchContext) -> bool | Refusal:
    weights = [m.value(f"w{path}") for path in PATHS]
    biases = [m.value(f"b{path}") for path in PATHS]
    shape = weights[0].shape
    if any(not value.is_constant for value in (*weights, *biases)):
        return m.reject("weight: not all weights and biases are constants")
    if shape is None or len(shape) != 2 or any(weight.shape != shape for weight in weights):
        return m.reject("weight: the weights are no matrices of one shape")
    if any(bias.shape != shape[1:] for bias in biases):
        return m.reject("weight: a bias is not as long as its weight is wide")
    scale = m.Tensor("scale").Array()
    if scale is None or scale.size != 1:
        return m.reject("scale: not one constant number")
    return True


def _splits_and_joins_heads(m: MatchContext) -> bool | Refusal:
    splits = [_split(m, path) for path in PATHS]
    if splits[0] is None or any(split != splits[0] for split in splits):
        return m.reject("heads: q, k and v are not all split into the same heads")
    target, width = m.Tensor("joined").Array(), m.value("wq").numpy().shape[1]
    if (
        target is None
        or target.shape != (3,)
        or target[2] not in (-1, width)
        or not _keeps_batch(m, "out", target.tolist())
    ):
        return m.reject("heads: the last Reshape does not put them together")
    return True


def _split(m: MatchContext, path: str) -> tuple[int, int] | None:
    """Return the number of heads and their size.

    Returns None where the Reshape does something else, or may.
    """
    target, width = m.Tensor(f"split{path}").Array(), m.value(f"w{path}").numpy().shape[1]
    if (
        target is None
        or target.shape != (4,)
        or not _keeps_batch(m, f"heads{path}", target.tolist())
    ):
        return None
    number, size = (int(entry) for entry in target[2:])
    if number > 0 and size == -1:
        size = width // number
    elif number == -1 and size > 0:
        number = width // size
    return (number, size) if number > 0 and number * size == width else None


def _gives_back_rows(m: MatchContext) -> bool | Refusal:
    """Whether each projection is [B, S, D] again.

    It was computed over all rows.
    """
    for path in PATHS:
        target, width = m.Tensor(f"rows{path}").Array(), m.value(f"w{path}").numpy().shape[1]
        # Where the target does not name B and S, neither may be left over: both sizes must be
        # proven.
        sizes = (
            target.tolist()
            if target is not None and target.shape == (3,) and target[2] == width
            else [1, 1]
        )
        if (m.value(f"projected{path}").rank or 0) < 3 or not _keeps_batch(
            m, f"projected{path}", sizes, may_copy=False
        ):
            return m.reject("rows: a projection is not known to be [B, S, D] again")
    return True


def _keeps_batch(m: MatchContext, name: str, target: list[int], *, may_copy: bool = True) -> bool:
    """Whether a Reshape leaves B and S as they are.

    They are copied, or of proven size.

    One of them may be the size left over (-1).
    """
    result, x = m.value(name), m.value("x")
    copies = (
        may_copy and result.producer is not None and not result.producer.attrs.get("allowzero", 0)
    )
    proven = [
        (copies and target[axis] == 0)
        or (
            result.shape is not None
            and x.shape is not None
            and shapes.same_dim(result.shape[axis], x.shape[axis])
        )
        for axis in (0, 1)
    ]
    return all(
        entry or (target[axis] == -1 and proven[1 - axis]) for axis, entry in enumerate(proven)
    )


def _rule(**variant: bool) -> DrrRule:
    """A variant as a rule."""
    name = "_".join(["multihead_matmul", *(said for said, is_so in variant.items() if is_so)])

    @drr.rule(name=name, labels=["attention"])
    def rule(pat: Any, res: Any) -> None:
        _attention(pat, res, **variant)

    return rule


@REG_IR_PASS("multihead_matmul_fuse_pass")
class MultiheadMatmulFusePass(PatternRewritePass):
    """Self-attention, with or without a mask; k transposed at once or in two steps; over all
    rows of x, or batch by batch.
    """

    patterns = tuple(
        _rule(with_mask=mask, k_transposed_twice=twice, flattened=flattened)
        for mask in (False, True)
        for twice in (False, True)
        for flattened in (False, True)
    )

    def Instances(self) -> Iterator[onnx.ModelProto]:
        """Yield a model of each rule.

        Random draws hardly ever agree in weights, heads and targets.
        """
        for mask, twice, flattened in itertools.product((False, True), repeat=3):
            yield _instance(with_mask=mask, k_transposed_twice=twice, flattened=flattened)


def _instance(*, with_mask: bool, k_transposed_twice: bool, flattened: bool) -> onnx.ModelProto:
    """A model of one rule: x [2, 5, 12], three heads of size 4."""
    lines: list[str] = []
    for path in PATHS:
        if flattened:
            lines += [
                f"f{path} = Flatten <axis = 2> (x)",
                f"g{path} = Gemm (f{path}, w{path}, b{path})",
                f"a{path} = Reshape (g{path}, rows)",
            ]
        else:
            lines += [f"p{path} = MatMul (x, w{path})", f"a{path} = Add (p{path}, b{path})"]
        lines.append(f"r{path} = Reshape (a{path}, split)")
        if path == "k" and not k_transposed_twice:
            lines.append("tk = Transpose <perm = [0, 2, 3, 1]> (rk)")
        elif path == "k":
            lines.append("uk = Transpose <perm = [0, 2, 1, 3]> (rk)")
            lines.append("tk = Transpose <perm = [0, 1, 3, 2]> (uk)")
        else:
            lines.append(f"t{path} = Transpose <perm = [0, 2, 1, 3]> (r{path})")
    lines += ["sq = Mul (tq, scale)", "qk = MatMul (sq, tk)"]
    if with_mask:
        lines.append("masked = Add (qk, mask)")
    lines += [
        f"shares = Softmax <axis = -1> ({'masked' if with_mask else 'qk'})",
        "mixed = MatMul (shares, tv)",
        "turned = Transpose <perm = [0, 2, 1, 3]> (mixed)",
        "out = Reshape (turned, joined)",
    ]
    inputs = f"float[2,5,12] x{', float[2,3,5,5] mask' if with_mask else ''}"
    rows = "int64[3] rows = {2,5,12}, " if flattened else ""
    constants = (
        f"{rows}int64[4] split = {{0,0,3,4}}, int64[3] joined = {{0,0,12}}, float scale = {{0.5}}"
    )
    model = onnx.parser.parse_model(
        f'<ir_version: 8, opset_import: ["": 17]> attention ({inputs}) => (float[2,5,12] out) '
        f"<{constants}> {{ {' '.join(lines)} }}"
    )
    random = np.random.default_rng(0)
    for path in PATHS:
        for name, shape in ((f"w{path}", (12, 12)), (f"b{path}", (12,))):
            array = random.standard_normal(shape).astype(np.float32)
            model.graph.initializer.append(onnx.numpy_helper.from_array(array, name))
    return model
