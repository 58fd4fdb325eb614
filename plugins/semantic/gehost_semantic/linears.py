"""Products with a constant matrix: bias, activation, and several of one tensor."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from typing import cast

from gehost import Node, Refused, Value
from gehost_semantic.activations import Function, function_behind
from gehost_semantic.extents import Extent
from gehost_semantic.view import only_reader
from gehost_semantic.views import Views


@dataclass(frozen=True, slots=True)
class Linear:
    """``activation(x · weight + bias)``."""

    node: Node
    """The product."""
    x: Value
    shape: tuple[Extent, ...]
    """The sizes of x."""
    weight: Value
    is_transposed: bool
    """Whether the weight is [n, k], not [k, n]."""
    size: int
    """n, the size of the last axis of the result."""
    product: Value
    bias: Value | None
    biased: Value
    """The product, or its sum with the bias."""
    function: Function | None = None
    """What alone reads the product, or its sum with the bias."""

    def summary(self) -> str:
        """Return one line: x, the matrix, and what follows."""
        words = [f'"{self.x.name}" {list(map(str, self.shape))} by "{self.weight.name}"']
        words += ["bias"] if self.bias is not None else []
        words += [self.function.name] if self.function is not None else []
        return f"{self.node.label}: {', '.join(words)}"


def linears(views: Views) -> list[tuple[Node, Linear | Refused]]:
    """Return each product with a constant matrix; other products with the reason."""
    cached = views.answers.get("linears")
    if cached is None:
        products = [node for node in views.graph.nodes if node.op in ("MatMul", "Gemm")]
        cached = views.answers["linears"] = [(node, _found(views, node)) for node in products]
    return cast("list[tuple[Node, Linear | Refused]]", cached)


def _found(views: Views, node: Node) -> Linear | Refused:
    try:
        linear = _linear(views, node)
    except Refused as refusal:
        return refusal
    return replace(linear, function=function_behind(views, linear.biased, linear.x.dtype))


def packs(results: Sequence[Linear], takes: Collection[str]) -> list[tuple[Linear, ...]]:
    """Return the products of one tensor together; those with a function that is taken alone."""
    groups: dict[tuple[object, ...], list[Linear]] = {}
    for linear in results:
        key = linear.x, linear.is_transposed, linear.weight.dtype
        is_alone = linear.function is not None and linear.function.name in takes
        groups.setdefault((linear,) if is_alone else key, []).append(linear)
    return [tuple(group) for group in groups.values()]


def _linear(views: Views, node: Node) -> Linear:
    x, weight, product = node.inputs[0], node.inputs[1], node.outputs[0]
    shape, sizes, view = views.shape(x), views.shape(weight), views.of(weight)
    if x is None or weight is None or product is None or shape is None or sizes is None:
        raise Refused("rank", "of an operand it is not known")
    if view is None or not view.base.is_constant or len(sizes) != 2:
        raise Refused("weight", f'"{weight.name}" is no constant matrix')
    if x.is_constant or x.dtype is None or not x.dtype.is_float or len(shape) < 2:
        raise Refused("x", f'"{x.name}" is constant, a vector, or no float tensor')
    attrs = node.attrs
    if attrs.get("transA", 0) or attrs.get("alpha", 1.0) != 1 or attrs.get("beta", 1.0) != 1:
        raise Refused("attributes", "transA, or alpha or beta is not 1")
    is_transposed = bool(attrs.get("transB", 0))
    size = sizes[0 if is_transposed else 1]
    if not isinstance(size, int):
        raise Refused("weight", "its size is not known")
    linear = Linear(node, x, shape, weight, is_transposed, size, product, None, product)
    addend = node.input(2) if node.op == "Gemm" else None
    if addend is not None:
        if not _is_bias(views, addend, size):
            raise Refused("bias", f'"{addend.name}" is no constant vector as wide as the product')
        return replace(linear, bias=addend)
    reader = only_reader(product)
    if reader is None or reader.op != "Add":
        return linear
    others = [
        operand for operand in reader.inputs if operand is not None and operand is not product
    ]
    biased = reader.outputs[0]
    if len(others) != 1 or biased is None or not _is_bias(views, others[0], size):
        return linear
    return replace(linear, bias=others[0], biased=biased)


def _is_bias(views: Views, value: Value, size: int) -> bool:
    view = views.of(value)
    return view is not None and view.base.is_constant and view.shape == (size,)
