"""Scores of attention to which a bias is added, perhaps while heads and batch are one axis.

``q·kᵀ, bias → Add → (Reshape [B·N, S, T] → [B, N, S, T])``
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from gehost import es

from ._attention import is_product
from ._shapes import all_same, same, shape_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from gehost import EsTensor, Node, Value


@dataclass
class BiasedScores:
    """A sum of a product and a bias."""

    add: Node
    product: Value
    bias: Value
    reshape: Node | None
    """It takes the heads of the sum from the first axis."""
    heads: int

    @property
    def read(self) -> list[Value]:
        """The tensors that ``parts`` reads."""
        shape = None if self.reshape is None else self.reshape.inputs[1]
        return [self.product, self.bias, *([] if shape is None else [shape])]

    def parts(self, inputs: Mapping[Value, EsTensor]) -> tuple[EsTensor, EsTensor]:
        """Product and bias, each as behind the Reshape."""
        product, bias = inputs[self.product], inputs[self.bias]
        shape = None if self.reshape is None else self.reshape.inputs[1]
        if shape is None:
            return product, bias
        last_two = es.Slice(es.Shape(bias), np.array([1]), np.array([3]))
        apart = es.Concat(np.array([-1, self.heads]), last_two, axis=0)
        return es.Reshape(product, inputs[shape]), es.Reshape(bias, apart)


def biased_scores(value: Value | None) -> BiasedScores | None:
    """Return the parts of scores, None where they are no product with a bias.

    A Reshape between is proven to take N from the first axis, of product and bias.
    """
    node = None if value is None else value.producer
    reshape = node if node is not None and node.op == "Reshape" else None
    if reshape is not None:
        below = reshape.inputs[0]
        node = None if below is None else below.producer
    if node is None or node.op != "Add":
        return None
    for place in (0, 1):
        product, bias = node.inputs[place], node.inputs[1 - place]
        if product is None or bias is None or not is_product(product):
            continue
        if reshape is None:
            return BiasedScores(node, product, bias, None, 0)
        given, added, made = shape_of(product), shape_of(bias), shape_of(value)
        if given is None or added is None or made is None:
            return None
        if (len(given), len(added), len(made)) != (3, 3, 4) or not same(given[0], added[0]):
            return None
        fits = (one == 1 or same(one, size) for one, size in zip(added[1:], given[1:], strict=True))
        heads = made[1]
        if not all_same(given[1:], made[2:]) or not all(fits) or not isinstance(heads, int):
            return None
        return BiasedScores(node, product, bias, reshape, heads)
    return None


def read_once(value: Value) -> bool:
    """Whether one node reads a value's elements, and others at most its shape."""
    readers = [node for node, _ in value.consumers() if node.op != "Shape"]
    return len(readers) == 1 and not value.is_graph_output
