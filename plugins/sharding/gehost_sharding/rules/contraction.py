"""Rules of contractions: MatMul, Gemm, Einsum."""

from __future__ import annotations

import math

import numpy as np

from gehost_sharding.rules.elementwise import align
from gehost_sharding.rules.rule import (
    NEED,
    PASS,
    REDUCE,
    Dim,
    Factors,
    Instance,
    Layout,
    LocalNode,
    Rule,
    replicate,
)


def matmul(instance: Instance) -> Rule:
    """(b, m, k), (b, k, n) -> (b, m, n): k is *reduce*."""
    a, b = instance.shape(0), instance.shape(1)
    result = instance.results[0]
    factors = Factors()
    k_size = a[len(a) - 1]
    m = [factors.add(a[-2])] if len(a) > 1 else []
    n = [factors.add(b[-1])] if len(b) > 1 else []
    k = factors.add(k_size, REDUCE)
    batch_shape = result[: len(result) - len(m) - len(n)]
    batch = tuple(factors.add(size) for size in batch_shape)
    of_a = (*align(batch, batch_shape, a[:-2]), *m, k)
    of_b = (*align(batch, batch_shape, b[:-2]), k, *n)
    return factors.rule([of_a, of_b], [(*batch, *m, *n)], 2 * math.prod(result) * k_size)


def gemm(instance: Instance) -> Rule:
    """(m, k), (k, n), (m, n) -> (m, n) with transA and transB; only one summand of k adds C."""
    a, c = instance.shape(0), instance.operand(2)
    factors = Factors()
    (m_size, n_size), k_size = instance.results[0], a[0 if instance.attribute("transA", 0) else 1]
    m, n, k = factors.add(m_size), factors.add(n_size), factors.add(k_size, REDUCE)
    of_a = (k, m) if instance.attribute("transA", 0) else (m, k)
    of_b = (n, k) if instance.attribute("transB", 0) else (k, n)
    operands: list[Layout | None] = [of_a, of_b]
    if c is not None:
        operands.append(align((m, n), instance.results[0], c))
    return factors.rule(operands, [(m, n)], 2 * m_size * n_size * k_size)


def add_bias_once(local: LocalNode) -> None:
    """Drop operand 2 on every rank but the one that holds the first summand."""
    if local.is_first_summand or len(local.node.input) < 3 or not local.node.input[2]:
        return
    if local.instance.op != "Gemm" or local.instance.opset >= 11:
        del local.node.input[2:]
    else:  # C is not optional there; a scalar broadcasts
        zero = np.zeros((), local.instance.dtypes[0])
        local.node.input[2] = local.add_constant(zero, local.node.input[2])


def einsum(instance: Instance) -> Rule:
    """Letters are factors; those that the result lacks are *reduce*.

    The dimensions of an ellipsis broadcast as in an elementwise operator. A letter that one operand
    has twice is a diagonal and must be whole.
    """
    equation = instance.attribute("equation", b"")
    text = (equation.decode() if isinstance(equation, bytes) else equation).replace(" ", "")
    left, arrow, right = text.partition("->")
    shapes = [operand or () for operand in instance.operands]
    terms = [_labels(term, len(shape)) for term, shape in zip(left.split(","), shapes, strict=True)]
    named = [label for term in terms for label in term if label.isalpha()]
    dots = sorted(
        {label for term in terms for label in term if not label.isalpha()}, key=int, reverse=True
    )
    if arrow:
        result = [*right.partition("...")[0], *dots, *right.partition("...")[2]]
        # the result drops the ellipsis: no split
        if dots and "..." not in right:
            return replicate(instance)
    else:
        result = [*dots, *sorted(label for label in {*named} if named.count(label) == 1)]
    sizes: dict[str, int] = {}
    for term, shape in zip(terms, shapes, strict=True):
        for label, size in zip(term, shape, strict=True):
            # a size of 1 broadcasts, so another operand's size counts
            sizes[label] = size if sizes.get(label, 1) == 1 else sizes[label]
    twice = {label for labels in (*terms, result) for label in labels if labels.count(label) > 1}
    factors = Factors()
    dims: dict[str, Dim] = {}
    for label, size in sizes.items():
        # a diagonal needs its whole matrix; what the result lacks is a partial sum
        kind = NEED if label in twice else PASS if label in result else REDUCE
        dims[label] = factors.add(size, kind)
    operands = [
        tuple(dims[label] if size != 1 else () for label, size in zip(term, shape, strict=True))
        for term, shape in zip(terms, shapes, strict=True)
    ]
    flops = 2 * math.prod(sizes.values())
    return factors.rule(operands, [tuple(dims[label] for label in result)], flops)


def _labels(term: str, rank: int) -> list[str]:
    """Name each dimension of an operand: its letter, or in an ellipsis its distance from the end.

    ``a...b`` of rank 4 -> a, 2, 1, b.
    """
    before, ellipsis, after = term.partition("...")
    count = rank - len(before) - len(after) if ellipsis else 0
    return [*before, *(str(place) for place in range(count, 0, -1)), *after]
