"""Operations that undo, repeat or restate each other.

The rules feed each other and run until none applies.

``x → Transpose p1 → Transpose p2   ==>   x → Transpose p1[p2]``
``x → Transpose identity            ==>   x``
``x → Reshape s1 → Reshape s2       ==>   x → Reshape s2``
``x → Reshape to its own shape      ==>   x``
``x → Cast t1 → Cast t2             ==>   x → Cast t2, or x``
``x → Cast to its own dtype         ==>   x``
``equal numbers → Expand s          ==>   s → ConstantOfShape``
"""

from __future__ import annotations

from typing import Any

import numpy as np

from gehost import Refusal
from gehost_drr import REG_IR_PASS, MatchContext, PatternRewritePass, attr, drr

from ._dtypes import cast_by_way_of, holds

CONSTANT_OF_SHAPE_DTYPES = frozenset(
    {"FLOAT16", "FLOAT", "DOUBLE", "INT8", "INT16", "INT32", "INT64"}
) | frozenset({"UINT8", "UINT16", "UINT32", "UINT64", "BOOL"})


def _perm(m: MatchContext, name: str) -> list[int] | None:
    """Return a perm of the match.

    An absent one is all axes in reverse, which needs a known rank.
    """
    declared = m.Attr(name)
    if declared is not None:
        return declared
    rank = m.Tensor("x").Rank()
    return None if rank is None else list(reversed(range(rank)))


@drr.rule(labels=["layout"])
def remove_redundant_transpose(pat: Any, res: Any) -> None:
    """Transpose once: axis i of the result is axis p1[p2[i]] of x.

    Shapes: x any. Keeps: dtype. Refuses: ``rank``: a perm left out where the rank is unknown. A
    first result that is read elsewhere does not match.
    """
    pat.ret = pat.Transpose(perm=attr.p2)(pat.Transpose(perm=attr.p1)(pat.x))
    pat.RequireNativeCall(
        lambda m: _perm(m, "p1") is not None and _perm(m, "p2") is not None,
        "rank: unknown, so that an absent perm is unknown, too",
    )
    res.ret = res.Transpose(perm=lambda m: [_perm(m, "p1")[i] for i in _perm(m, "p2")])(res.x)


@drr.rule(labels=["layout"])
def remove_identity_transpose(pat: Any, res: Any) -> None:
    """Forward x where each axis stays. Refuses: ``perm``: another, or none and a rank that is
    not 0 or 1.
    """
    pat.ret = pat.Transpose(perm=attr.p)(pat.x)
    pat.RequireNativeCall(
        lambda m: (perm := _perm(m, "p")) is not None and perm == sorted(perm),
        "perm: moves an axis",
    )
    res.ret = res.x


def _is_free_of_zeros(m: MatchContext) -> bool:
    """Whether the second target is complete by itself.

    A 0 would copy a size of the Reshape that is removed.
    """
    target = m.Tensor("s2").Array()
    return _allowzero(m) == 1 or (target is not None and bool((target != 0).all()))


def _allowzero(m: MatchContext) -> int:
    producer = m.value("ret").producer
    return 0 if producer is None else producer.attrs.get("allowzero", 0)


@drr.rule(labels=["layout"])
def remove_redundant_reshape(pat: Any, res: Any) -> None:
    """Reshape once, to the second target.

    Shapes: both keep the elements and their order, and a target without copied
    sizes gives the result from their number alone. Keeps: dtype, ``allowzero``. Refuses:
    ``target``: a second target that copies a size (0), or that is no constant and so may.
    """
    pat.ret = pat.Reshape(pat.Reshape(pat.x, pat.s1), pat.s2)
    pat.RequireNativeCall(_is_free_of_zeros, "target: copies a size of the first result, or may")
    res.ret = res.Reshape(allowzero=lambda m: _allowzero(m) or None)(res.x, res.s2)


@drr.rule(labels=["layout"])
def remove_useless_reshape(pat: Any, res: Any) -> None:
    """Forward x where its shape stays. Refuses: ``shape``: not known to stay; two unknown sizes
    are not equal.
    """
    pat.ret = pat.Reshape(pat.x, pat.shape_of_ret)
    pat.where(pat.ret.shape == pat.x.shape, "shape: not known to stay")
    res.ret = res.x


def _is_round_trip(m: MatchContext) -> bool | Refusal:
    dtype = m.Tensor("x").Dtype()
    if dtype is None or m.Attr("t2") != dtype:
        return m.reject("dtype: the second does not lead back")
    return holds(dtype, m.Attr("t1")) or m.reject("lossy: the first cannot hold all values of x")


@drr.rule(labels=["dtype"], benefit=2, min_opset=6)
def remove_redundant_cast(pat: Any, res: Any) -> None:
    """Forward x where a dtype that holds all its values is left again.

    Refuses: ``dtype``: the second does not lead back, or the dtype of x is unknown; ``lossy``: the
    first rounds or cuts off.
    """
    pat.ret = pat.Cast(to=attr.t2)(pat.Cast(to=attr.t1)(pat.x))
    pat.RequireNativeCall(_is_round_trip)
    res.ret = res.x


@drr.rule(labels=["dtype"], min_opset=6)
def merge_casts(pat: Any, res: Any) -> None:
    """Cast once where the dtype between holds all values of x.

    Refuses: ``lossy``: it does not, or the last step is one that depends on the dtype that it
    starts from (a float that an integer type cannot hold).
    """
    pat.ret = pat.Cast(to=attr.t2)(pat.Cast(to=attr.t1)(pat.x))
    pat.RequireNativeCall(
        lambda m: cast_by_way_of(m.Tensor("x").Dtype(), m.Attr("t1"), m.Attr("t2")),
        "lossy: the way round gives other numbers",
    )
    res.ret = res.Cast(to=attr.t2)(res.x)


@drr.rule(labels=["dtype"], min_opset=6)
def remove_useless_cast(pat: Any, res: Any) -> None:
    """Forward x where it has the dtype already. Refuses: ``where``: it has not, or it is
    unknown.
    """
    pat.ret = pat.Cast(to=attr.to)(pat.x)
    pat.where(attr.to == pat.x.dtype)
    res.ret = res.x


def _fills_target(m: MatchContext) -> bool | Refusal:
    one, target = m.Tensor("one"), m.Tensor("s").Array()
    dtype, rank, sizes = one.Dtype(), one.Rank(), one.Shape()
    if dtype is None or dtype.name not in CONSTANT_OF_SHAPE_DTYPES:
        return m.reject("dtype: ConstantOfShape has it not")
    if rank is None or not _is_one_number(one.Array()):
        return m.reject("value: not one number")
    if target is None or target.ndim != 1 or (target < 0).any():
        return m.reject("target: no constant list of sizes")
    if rank > target.size:
        return m.reject("target: of lower rank than the number, whose axes stay")
    last = target[target.size - rank :].tolist()
    wider = any(size not in (1, expected) for size, expected in zip(sizes, last, strict=True))
    return m.reject("target: a size of the number stays") if wider else True


def _is_one_number(array: np.ndarray[Any, Any] | None) -> bool:
    """Whether all elements are the same number, bit by bit: 0.0 is not -0.0."""
    if array is None or not array.size:
        return False
    return array.tobytes() == array.reshape(-1)[:1].tobytes() * array.size


@drr.rule(labels=["constant"], min_opset=9)
def fold_expand_of_constant(pat: Any, res: Any) -> None:
    """Fill the target where one number, or a constant of equal numbers, is expanded.

    Shapes: s [r], of sizes; one of at most r axes, each of size 1 or as in s; result of shape s.
    Keeps: dtype. Refuses: ``constant``: computed; ``value``: different elements; ``dtype``: not one
    of ConstantOfShape-9; ``target``: no constant list, negative sizes, of lower rank, or a size of
    1 where one has more.
    """
    pat.ret = pat.Expand(pat.Op("Constant")([], [pat.one]), pat.s)
    pat.RequireNativeCall(_fills_target)
    res.ret = res.ConstantOfShape(value=lambda m: m.Tensor("one").Array().reshape(-1)[:1])(res.s)


@REG_IR_PASS("remove_redundant_ops_pass")
class RemoveRedundantOpsPass(PatternRewritePass):
    """All rules of this file, by benefit, until none applies."""

    patterns = (
        remove_redundant_transpose,
        remove_identity_transpose,
        remove_redundant_reshape,
        remove_useless_reshape,
        remove_redundant_cast,
        merge_casts,
        remove_useless_cast,
        fold_expand_of_constant,
    )
