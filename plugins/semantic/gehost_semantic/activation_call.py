"""An activation as a kernel takes it."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from math import pi, sqrt
from typing import Any

from gehost import DataType, EsGraph, EsTensor, Value, es
from gehost_semantic.activations import Activation, ActivationKind, Gate
from gehost_semantic.kernel_call import KernelCall, Known, is_rounded, number

ACTIVATION_FEATURES: Mapping[str, str] = {
    "bias": "a vector over the last axis that is added to x first (`activation.bias`)",
    "gate": "a factor of the activation, of its shape (`activation.gate`)",
    "packed": "x and the factor as the halves of one tensor (`activation.is_packed`)",
}
"""What a kernel may take beyond x."""


class ActivationCall(KernelCall):
    """An activation as a kernel takes it: tensors, numbers, and ``reject``."""

    title = "a function of each element of x, times the gate"
    operands = frozenset({"x"})
    example = 'es.op("npu::Gelu")(activation.x)'

    def __init__(
        self, description: Activation, takes: Collection[str], kinds: Collection[str] = ()
    ) -> None:
        super().__init__("activation", description.node.graph.model.opset() or 0, takes)
        self.description = description
        self._kinds = kinds

    # numbers

    @number
    def kind(self) -> ActivationKind:
        return self.description.kind

    @number
    def alpha(self) -> float:
        """What the argument of the sigmoid is multiplied by; 1 but for ``swish``."""
        return self.description.alpha

    @property
    def dtype(self) -> DataType | None:
        """The element type of x."""
        return self.description.x.dtype

    @property
    def has_gate(self) -> bool:
        """Whether the kernel gets a factor of the activation."""
        return self._own_gate() is not None

    @number
    def is_packed(self) -> bool:
        """Whether x is [..., 2 d], with the factor as the other half."""
        return self._is_packed

    @property
    def _is_packed(self) -> bool:
        gate = self.description.gate
        return "packed" in self.takes and gate is not None and gate.packed is not None

    @number
    def gate_is_first(self) -> bool:
        """Whether the factor is the first half of a packed x."""
        return self._gate_is_first

    @property
    def _gate_is_first(self) -> bool:
        gate = self.description.gate
        return self._is_packed and gate is not None and gate.is_first

    # tensors, in Replacement

    @property
    def x(self) -> EsTensor:
        return self._once("x", lambda: self._inputs[self._values()["x"]])

    @property
    def bias(self) -> EsTensor | None:
        """The vector that is added to x; None without one, or if the kernel takes none."""
        return self._source("bias")

    @property
    def gate(self) -> EsTensor | None:
        """The factor; None without one, if x is packed, or if the kernel takes none."""
        return self._source("gate")

    def _values(self) -> dict[str, Value]:
        own, gate = self.description, self._own_gate()
        if self._is_packed and gate is not None and gate.packed is not None:
            return {"x": gate.packed}
        results = {"x": own.x}
        if own.addend is not None and "bias" in self.takes:
            results["x"], results["bias"] = own.addend
        if gate is not None:
            results["gate"] = gate.value
        return results

    def _own_gate(self) -> Gate | None:
        return self.description.gate if "gate" in self.takes or self._is_packed else None

    # the replacement

    def begin(self) -> None:
        gate = self._own_gate()
        result = self.description.result if gate is None else gate.result
        self._begin([result], list(self._values().values()))

    def finish(self, output: Any, known: Known) -> EsGraph:
        result = self._result(output)
        self._check_use([result])
        self._define(result.graph, known)
        graph = result.graph
        graph.outputs = [result]
        return graph

    def needs(self) -> Collection[str]:
        return self._values()

    def numbers(self) -> Collection[str]:
        swish = {ActivationKind.SILU, ActivationKind.SWISH}  # one with alpha 1, and any other
        results = ["kind"] if len(self._kinds) > 1 and not swish.issuperset(self._kinds) else []
        if self.description.kind is ActivationKind.SWISH:
            results.append("alpha")
        if self._is_packed:
            results.append("is_packed")
            results += ["gate_is_first"] if self._gate_is_first else []
        return results

    def formula(self, of: Mapping[str, EsTensor]) -> EsTensor:
        """Return the function of ``x + bias``, times the gate."""
        own, x, gate = self.description, of["x"], of.get("gate")
        if self._is_packed:
            x, gate = self._halves(x)
        if "bias" in of:
            x = x + of["bias"]
        is_wider = own.x.dtype != own.compute
        wide = es.Cast(x, to=own.compute) if is_wider else x
        result = function_of(own.kind, own.alpha, wide, own.compute)
        if is_wider:
            assert own.x.dtype is not None
            result = es.Cast(result, to=own.x.dtype)
        return result if gate is None else result * gate

    def _halves(self, packed: EsTensor) -> tuple[EsTensor, EsTensor]:
        """Return x and the gate."""
        shape = self.description.shape
        assert shape is not None
        last, size = len(shape) - 1, shape[-1]
        assert isinstance(size, int)
        low, high = (
            es.Slice(packed, starts=[start], ends=[start + size], axes=[last])
            for start in (0, size)
        )
        return (high, low) if self.gate_is_first else (low, high)


_NUMBERS: Mapping[str, tuple[float, ...]] = {
    **dict.fromkeys(("relu", "sigmoid", "tanh", ActivationKind.SILU), ()),
    ActivationKind.GELU: (sqrt(2.0),),
    ActivationKind.GELU_TANH: (0.044715, sqrt(2 / pi)),
}


def function_of(name: str, alpha: float, x: EsTensor, dtype: DataType) -> EsTensor:
    """Return one of ``FUNCTIONS`` by its formula; in float32 where half rounds a number of it."""
    numbers = _NUMBERS.get(name, (alpha,))
    if any(is_rounded(number, dtype) for number in numbers):
        wide = function_of(name, alpha, es.Cast(x, to=DataType.FLOAT), DataType.FLOAT)
        return es.Cast(wide, to=dtype)
    match name:
        case "relu":
            return es.Relu(x)
        case "sigmoid":
            return es.Sigmoid(x)
        case "tanh":
            return es.Tanh(x)
        case ActivationKind.GELU:
            return x * 0.5 * (es.Erf(x / sqrt(2.0)) + 1.0)
        case ActivationKind.GELU_TANH:
            inner = (x + x * x * x * 0.044715) * sqrt(2 / pi)
            return x * 0.5 * (es.Tanh(inner) + 1.0)
        case ActivationKind.SILU:
            return x * es.Sigmoid(x)
        case _:
            return x * es.Sigmoid(x * alpha)
