"""The products with constant matrices that q, k and v of an attention are."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from gehost import Refusal, Refused, Value
from gehost_semantic.extents import Extent
from gehost_semantic.layouts import way_up
from gehost_semantic.linears import Linear, linears
from gehost_semantic.view import View, cut, is_whole, regroup
from gehost_semantic.views import Views

_NONE = Refusal("layout", "q, k and v are not all projections")


@dataclass(frozen=True, slots=True)
class Projections:
    """Products of one tensor, as one product."""

    x: Value
    """[b, s, d]."""
    weights: np.ndarray
    """[d, n], those of q, k and v side by side."""
    bias: np.ndarray
    """[n]; 0 where the graph adds none."""
    widths: tuple[int, ...]
    """The columns of q, k and v."""


def projections(views: Views, values: Sequence[Value], widths: Sequence[int]) -> Projections:
    """Return the products that tensors [b, s, ...] are, or of one of which they are the parts.

    Raises:
        Refused: they are none, or of different tensors, or others read one.
    """
    answers = dict(linears(views))
    products = {item.biased: item for item in answers.values() if isinstance(item, Linear)}
    own = [view for value in values if (view := views.of(value)) is not None]
    is_one = len({view.base for view in own}) == 1
    parts: dict[Linear, None] = {}
    xs: list[Value] = []
    for place, (view, width) in enumerate(zip(own, widths, strict=True)):
        product = products.get(view.base)
        if product is None:
            reason = None if view.base.producer is None else answers.get(view.base.producer)
            raise reason if isinstance(reason, Refused) else Refused(_NONE)
        parts[product] = None
        x, rows = _rows(views, product, view.shape)
        part = cut(views.extents, rows, 2, sum(widths[:place]) if is_one else 0, width)
        if part is None or part != regroup(views.extents, view, part.shape):
            raise Refused(_NONE)
        xs.append(x)
    if any(x is not xs[0] for x in xs):
        raise Refused("input", "q, k and v are projections of different tensors")
    if sum(widths) != sum(part.size for part in parts):
        raise Refused("layout", "q, k and v are parts of the product")
    for value in {*values, *(part.biased for part in parts)}:
        readers = {reader for reader, _ in value.consumers() if reader.op != "Shape"}
        if value.is_graph_output or len(readers) != 1:
            raise Refused("shared", "a projection is read by others, too")
    weights = [_array(views, part.weight) for part in parts]
    joined = [w.T if part.is_transposed else w for w, part in zip(weights, parts, strict=True)]
    biases = [
        np.zeros(part.size, w.dtype) if part.bias is None else _array(views, part.bias)
        for w, part in zip(weights, parts, strict=True)
    ]
    return Projections(xs[0], np.concatenate(joined, axis=1), np.concatenate(biases), tuple(widths))


def _rows(views: Views, product: Linear, shape: Sequence[Extent]) -> tuple[Value, View]:
    """Return the tensor [b, s, d] of which a product has the rows, and the product as [b, s, n]."""
    view, result = views.of(product.x), views.of(product.biased)
    assert view is not None
    assert result is not None
    for value in way_up(views, product.x, view.base):
        own, sizes = views.of(value), views.shape(value)
        if own is not None and sizes is not None and len(sizes) == 3 and sizes[:2] == shape[:2]:
            rows = regroup(views.extents, result, (*sizes[:2], product.size))
            if rows is not None and regroup(views.extents, own, product.shape) == view:
                return value, rows
    raise Refused(_NONE)


def _array(views: Views, value: Value) -> np.ndarray:
    view = views.of(value)
    assert view is not None
    is_same = view.factor == 1 and not view.casts and is_whole(view, views.of(view.base))
    array = view.base.array if is_same else value.array
    if array is None:
        raise Refused("weight", f'"{value.name}" is no constant of the graph')
    return array
