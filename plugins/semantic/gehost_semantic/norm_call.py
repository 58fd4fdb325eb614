"""A normalization as a kernel takes it."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np

from gehost import DataType, EsGraph, EsTensor, PassError, Refused, Value, es
from gehost_semantic.activation_call import function_of
from gehost_semantic.activations import FUNCTIONS, Function
from gehost_semantic.kernel_call import KernelCall, Known, number, region_between, shared_by
from gehost_semantic.norms import Norm, NormKind

NORM_FEATURES: Mapping[str, str] = {
    "axes": "the last axes from `norm.axis` on are normalized, not the last one alone",
    "bias": "a vector that is added behind the scale (`norm.bias`)",
    "residual": "x is a sum, of which the kernel takes both parts (`norm.x`, `norm.residual`)",
    "residual bias": "a vector that is added to `norm.x` before the residual",
    "spread residual": "a residual that has size 1 where x has more, or fewer axes",
    **dict.fromkeys(FUNCTIONS, "it is applied to the result (`norm.activation`)"),
}
"""What a kernel may take beyond x, scale and epsilon."""


class NormCall(KernelCall):
    """A normalization as a kernel takes it: tensors, numbers, and ``reject``.

    Shapes: x as in the graph; scale and bias are vectors over the last axis (with ``axes`` over the
    last axes), for groups over axis 1.
    """

    title = "x normalized, times scale, plus bias; the sum of x and residual"
    operands = frozenset({"x"})
    outputs = ("output", "sum")
    example = 'es.op("npu::RmsNorm")(norm.x, norm.scale, epsilon=norm.epsilon)'

    def __init__(
        self, description: Norm, takes: Collection[str], kinds: Collection[str] = ()
    ) -> None:
        super().__init__("norm", description.node.graph.model.opset() or 0, takes)
        self.description = description
        self._kinds = kinds
        self.vector_type: DataType | None = None
        """The element type in which the kernel wants scale and bias; None: as in the graph. Set it
        before these are read.
        """
        parts = description.residual
        if parts is not None and parts.spreads and "spread residual" not in self.takes:
            parts = None
        self._parts = parts if "residual" in self.takes else None
        self._sums: list[Value] = []
        """Tensors that are ``x + residual``, also behind a cast, with users besides the norm."""

    @property
    def sum_is_read(self) -> bool:
        """Whether ``x + residual`` has users besides the norm."""
        return bool(self._sums)

    # numbers

    @number
    def kind(self) -> NormKind:
        return self.description.kind

    @number
    def epsilon(self) -> float:
        return self.description.epsilon

    @number
    def axis(self) -> int:
        """The first of the normalized axes, from the end."""
        return self.description.axis

    @number
    def groups(self) -> int:
        """The number of groups of channels; 1 but for group norms."""
        return self.description.groups

    @property
    def size(self) -> int | None:
        """The size of the last axis; None if it is not known."""
        size = self.description.shape[-1]
        return size if isinstance(size, int) else None

    @property
    def dtype(self) -> DataType | None:
        """The element type of x."""
        return self.description.x.dtype

    @property
    def compute(self) -> DataType:
        """The element type in which the model normalizes."""
        return self.description.compute

    @number
    def activation(self) -> str:
        """The function of the result; "" without one, or if the kernel does not take it."""
        function = self._function
        return "" if function is None else function.name

    @number
    def alpha(self) -> float:
        """What the argument of a ``swish`` is multiplied by."""
        return 1.0 if self._function is None else self._function.alpha

    @property
    def _function(self) -> Function | None:
        own, takes = self.description, self.takes
        adds_bias = own.bias is None or "bias" in takes
        is_taken = own.function is not None and own.function.name in takes and adds_bias
        return own.function if is_taken else None

    # tensors, in Replacement

    @property
    def x(self) -> EsTensor:
        return self._once("x", lambda: self._inputs[self._values()["x"]])

    @property
    def scale(self) -> EsTensor:
        """The scale; ones where the model has none."""
        return self._once("scale", self._scale)

    @property
    def bias(self) -> EsTensor | None:
        """The bias; None without one, or if the kernel takes none."""
        return self._vector("bias", self.description.bias) if "bias" in self.takes else None

    @property
    def full_bias(self) -> EsTensor:
        """The bias; zeros where the model has none."""
        bias = self.bias
        return self._once("full bias", lambda: self._filled(0.0)) if bias is None else bias

    @property
    def residual(self) -> EsTensor | None:
        """What is added to x; None if x is no sum, or the kernel takes none."""
        return self._source("residual")

    @property
    def residual_bias(self) -> EsTensor | None:
        """The vector that is added to x first; None without one."""
        return self._source("residual_bias")

    def _values(self) -> dict[str, Value]:
        """Return the tensors of the graph by name."""
        own, parts = self.description, self._parts
        results = {"x": own.x, "scale": own.scale, "bias": own.bias}
        if parts is not None:
            results |= {"x": parts.x, "residual": parts.residual}
            if parts.bias is not None and "residual bias" in self.takes:
                results["residual_bias"] = parts.bias
            elif parts.bias is not None:
                results["x"] = parts.biased
        return {name: value for name, value in results.items() if value is not None}

    def _scale(self) -> EsTensor:
        own = self.description
        if own.scale is not None:
            return self._as_vector(own.scale)
        return self._filled(1.0)

    def _filled(self, number: float) -> EsTensor:
        """Return a scale or bias that is one number."""
        own = self.description
        sizes = own.shape[1:2] if own.kind is NormKind.GROUP else own.shape[own.axis :]
        numbers = [size for size in sizes if isinstance(size, int)]
        if len(numbers) < len(sizes):
            raise Refused("scale", "the model has none, and the size of x is not known")
        return self._builder.CreateConst(
            np.full(numbers, number), self.vector_type or own.normalized.dtype
        )

    def _vector(self, name: str, value: Value | None) -> EsTensor | None:
        return None if value is None else self._once(name, lambda: self._as_vector(value))

    def _as_vector(self, value: Value) -> EsTensor:
        """Return a scale or bias without the axes along which it spreads."""
        own, rank = self.description, value.rank or 0
        retained = len(own.shape) - 1 if own.kind is NormKind.GROUP else -own.axis
        start = rank - retained
        end = start + (1 if own.kind is NormKind.GROUP else retained)
        single = [axis for axis in range(rank) if not start <= axis < end]
        if own.kind is NormKind.GROUP and rank == 1:  # an operator's
            single = []
        dtype = self.vector_type or value.dtype
        if not single and dtype == value.dtype:
            return self._inputs[value]
        if value.array is not None and dtype is not None:
            array = value.array.squeeze((*single,)).astype(dtype.numpy)
            return self._builder.CreateConst(array, dtype)
        vector = es.Squeeze(self._inputs[value], single) if single else self._inputs[value]
        return vector if dtype == value.dtype else es.Cast(vector, to=dtype)

    # the replacement

    def refusal(self) -> str:
        own = self.description
        if own.kind is not NormKind.GROUP and own.axis != -1 and "axes" not in self.takes:
            return f"axes: the last {-own.axis} are normalized, the kernel takes one"
        scaled = own.normalized if own.scale is None else own.scale
        if own.bias is not None and "bias" not in self.takes and scaled.dtype != own.result.dtype:
            return "bias: the kernel takes none, and it is added before a cast"
        return ""

    def begin(self) -> None:
        own = self.description
        last = own.result if self._function is None else self._function.result
        if self._parts is not None:
            region = region_between([last], list(self._values().values()))
            if region is None or shared_by(region, [last, own.x]):
                self._parts = None  # the graph's own sum stays
            else:
                self._sums = [value for value in region.outputs if self._is_sum(value)]
        self._begin([last, *self._sums], list(self._values().values()))

    def _is_sum(self, value: Value) -> bool:
        """Whether a tensor is x, or x in another element type."""
        own, casts = self.description, 0
        while value is not own.x:
            node = value.producer
            source = None if node is None or node.op != "Cast" else node.inputs[0]
            if source is None:
                return False
            casts += source.dtype != value.dtype
            value = source
        return casts <= 1

    def finish(self, output: Any, known: Known) -> EsGraph:
        results: list[Any] = [*output] if isinstance(output, list | tuple) else [output]
        if not 1 <= len(results) <= 2:
            raise PassError(
                f"Replacement must return the norm, or the norm and the sum, got {len(results)}",
                hint=f"as in {self.example}",
            )
        result, *sums = [self._result(item) for item in results]
        self._check_use([result, *sums])
        graph = result.graph
        self._define(graph, known)
        own = self.description
        if own.bias is not None and "bias" not in self.takes:
            bias = self._inputs[own.bias]
            result = es.Add(result, self._spread(bias) if own.bias.rank == 1 else bias)
        graph.outputs = [result]
        if sums:
            graph.outputs += [self._as_sum(sums[0], place) for place in range(len(self._sums))]
        elif self.region is not None:
            self.region.outputs = self.region.outputs[:1]  # the graph's own sum stays
        return graph

    def _as_sum(self, total: EsTensor, place: int) -> EsTensor:
        """Return the kernel's sum as one of the graph's tensors that are the sum."""
        dtype = self._sums[place].dtype
        if dtype is not None and dtype != self.dtype:
            return es.Cast(total, to=dtype)
        # a tensor of its own: a later norm may read this one
        return es.Identity(total) if place else total

    def needs(self) -> Collection[str]:
        return [name for name in self._values() if name != "bias" or "bias" in self.takes]

    def numbers(self) -> Collection[str]:
        own, results = self.description, ["epsilon"]
        if len(self._kinds) > 1:
            results.append("kind")
        if own.groups != 1:
            results.append("groups")
        if own.kind is not NormKind.GROUP and own.axis != -1:
            results.append("axis")
        if self._function is not None:
            results.append("activation")
            results += ["alpha"] if self._function.name == "swish" else []
        return results

    def formula(self, of: Mapping[str, EsTensor]) -> Sequence[EsTensor]:
        """Return the normalized, scaled tensor, and the sum of x and residual."""
        own = self.description
        total = of["x"]
        for name in ("residual_bias", "residual"):
            total = total + of[name] if name in of else total
        dtype, wide = own.x.dtype, total
        if dtype != own.compute:
            wide = es.Cast(total, to=own.compute)
        result, dtype = self._normalized(wide), own.compute
        for name, value in (("scale", own.scale), ("bias", own.bias)):
            if name not in of or value is None:
                continue
            if value.dtype is not None and value.dtype != dtype:
                dtype = value.dtype
                result = es.Cast(result, to=dtype)
            vector = self._spread(of[name])
            result = result * vector if name == "scale" else result + vector
        if own.result.dtype is not None and own.result.dtype != dtype:
            result = es.Cast(result, to=own.result.dtype)
        if self.activation:
            result = function_of(self.activation, self.alpha, result, own.result.dtype or dtype)
        return result, total

    def _normalized(self, x: EsTensor) -> EsTensor:
        own, rank = self.description, len(self.description.shape)
        axes = list(range(rank + own.axis, rank))
        if own.kind is NormKind.GROUP:
            axes = list(range(2, rank + 1))
            channels = own.shape[1]
            assert isinstance(channels, int)
            shape = es.Shape(x)
            batch, rest = (
                es.Slice(shape, starts=[start], ends=[end], axes=[0])
                for start, end in ((0, 1), (2, rank))
            )
            apart = es.Concat(batch, [own.groups, channels // own.groups], rest, axis=0)
            normalized = self._over(self._reshaped(x, apart), axes)
            return self._reshaped(normalized, shape)
        return self._over(x, axes)

    def _over(self, x: EsTensor, axes: list[int]) -> EsTensor:
        own = self.description
        if own.kind is not NormKind.RMS:
            x = x - es.ReduceMean(x, axes=axes, keepdims=1)
        mean = es.ReduceMean(x * x, axes=axes, keepdims=1)
        return x / es.Sqrt(mean + own.epsilon)

    def _reshaped(self, x: EsTensor, shape: EsTensor) -> EsTensor:
        # below opset 14 a size of 0 copies that of x, which is 0 there, too
        return es.Reshape(x, shape, allowzero=1) if self.opset >= 14 else es.Reshape(x, shape)

    def _spread(self, vector: EsTensor) -> EsTensor:
        """Return a vector over the channels with the axes behind them."""
        own = self.description
        if own.kind is not NormKind.GROUP or len(own.shape) == 2:
            return vector
        return es.Unsqueeze(vector, list(range(1, len(own.shape) - 1)))
