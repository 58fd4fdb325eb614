"""Products with constant matrices as a kernel takes them."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np

from gehost import DataType, EsGraph, EsTensor, Value, es
from gehost_semantic.activation_call import function_of
from gehost_semantic.activations import FUNCTIONS
from gehost_semantic.kernel_call import KernelCall, Known, number
from gehost_semantic.linears import Linear

LINEAR_FEATURES: Mapping[str, str] = {
    "bias": "a vector that is added to the product (`linear.bias`)",
    "packed": "products of one x become one, which is split behind the kernel",
    "transposed": "the weight may be [n, k] (`linear.is_transposed`)",
    **dict.fromkeys(FUNCTIONS, "it is applied to the sum (`linear.activation`)"),
}
"""What a kernel may take beyond x and weight."""


class LinearCall(KernelCall):
    """A product with a constant matrix as a kernel takes it, or several of one x.

    Shapes: x [..., k], weight [k, n] (with ``transposed`` [n, k] where the graph has it so), bias
    [n]; the result is [..., n].
    """

    title = "x times weight, plus bias, and a function of that"
    operands = frozenset({"x", "weight"})
    example = 'es.op("npu::Linear")(linear.x, linear.weight, linear.bias)'

    def __init__(self, descriptions: Sequence[Linear], takes: Collection[str]) -> None:
        first = descriptions[0]
        super().__init__("linear", first.node.graph.model.opset() or 0, takes)
        self.descriptions = tuple(descriptions)
        """One, or with ``packed`` the products of one x."""

    # numbers

    @number
    def activation(self) -> str:
        """The function of the sum; "" without one, or if the kernel does not take it."""
        return self._activation

    @property
    def _activation(self) -> str:
        function = self.descriptions[0].function
        is_taken = function is not None and function.name in self.takes and self._adds_bias
        return function.name if function is not None and is_taken else ""

    @number
    def alpha(self) -> float:
        """What the argument of a ``swish`` is multiplied by."""
        function = self.descriptions[0].function
        return 1.0 if function is None else function.alpha

    @number
    def is_transposed(self) -> bool:
        """Whether the weight is [n, k]: always False unless the pass takes it."""
        return self._is_transposed

    @property
    def _is_transposed(self) -> bool:
        return self.descriptions[0].is_transposed and "transposed" in self.takes

    @property
    def size(self) -> int:
        """n, the size of the last axis of the result."""
        return sum(description.size for description in self.descriptions)

    @property
    def dtype(self) -> DataType | None:
        """The element type of x."""
        return self.descriptions[0].x.dtype

    @property
    def _has_bias(self) -> bool:
        return any(description.bias is not None for description in self.descriptions)

    @property
    def _adds_bias(self) -> bool:
        """Whether the kernel's result has what is added in the graph."""
        return "bias" in self.takes or not self._has_bias

    # tensors, in Replacement

    @property
    def x(self) -> EsTensor:
        return self._once("x", lambda: self._inputs[self.descriptions[0].x])

    @property
    def weight(self) -> EsTensor:
        return self._once("weight", self._weight)

    @property
    def bias(self) -> EsTensor | None:
        """The bias; None without one, or if the kernel takes none."""
        if not self._has_bias or "bias" not in self.takes:
            return None
        return self._once("bias", self._bias)

    def _weight(self) -> EsTensor:
        parts: list[EsTensor] = []
        for description in self.descriptions:
            part = self._inputs[description.weight]
            if description.is_transposed and not self._is_transposed:
                part = es.Transpose(part, perm=[1, 0])
            parts.append(part)
        axis = 0 if self._is_transposed else 1
        return parts[0] if len(parts) == 1 else es.Concat(*parts, axis=axis)

    def _bias(self) -> EsTensor:
        parts = [
            self._builder.CreateConst(np.zeros(description.size), self.dtype)
            if description.bias is None
            else self._inputs[description.bias]
            for description in self.descriptions
        ]
        return parts[0] if len(parts) == 1 else es.Concat(*parts, axis=0)

    # the replacement

    def _results(self) -> list[Value]:
        function = self.descriptions[0].function
        if function is not None and self._activation:
            return [function.result]
        return [
            description.biased
            if self._adds_bias or description.node.op == "Gemm"
            else description.product
            for description in self.descriptions
        ]

    def begin(self) -> None:
        values = [self.descriptions[0].x]
        for description in self.descriptions:
            values += [
                description.weight,
                *([] if description.bias is None else [description.bias]),
            ]
        self._begin(self._results(), values)

    def finish(self, output: Any, known: Known) -> EsGraph:
        result = self._result(output)
        self._check_use([result])
        graph = result.graph
        self._define(graph, known)
        parts = [result] if len(self.descriptions) == 1 else self._split(result)
        if not self._adds_bias:
            # a Gemm has no product without it
            parts = [
                es.Add(part, self._inputs[description.bias])
                if description.node.op == "Gemm" and description.bias is not None
                else part
                for part, description in zip(parts, self.descriptions, strict=True)
            ]
        graph.outputs = parts
        return graph

    def needs(self) -> Collection[str]:
        return ["x", "weight", *(["bias"] if self._has_bias and "bias" in self.takes else [])]

    def numbers(self) -> Collection[str]:
        results = ["is_transposed"] if self._is_transposed else []
        if self._activation:
            results.append("activation")
            results += ["alpha"] if self._activation == "swish" else []
        return results

    def _split(self, result: EsTensor) -> list[EsTensor]:
        """Return the parts of the last axis."""
        axis = len(self.descriptions[0].shape) - 1
        parts: list[EsTensor] = []
        start = 0
        for description in self.descriptions:
            end = start + description.size
            parts.append(es.Slice(result, starts=[start], ends=[end], axes=[axis]))
            start = end
        return parts

    def formula(self, of: Mapping[str, EsTensor]) -> EsTensor:
        weight = of["weight"]
        if self._is_transposed:
            weight = es.Transpose(weight, perm=[1, 0])
        result = es.MatMul(of["x"], weight)
        if "bias" in of:
            result = result + of["bias"]
        if not self.activation:
            return result
        return function_of(self.activation, self.alpha, result, self.dtype or DataType.FLOAT)
