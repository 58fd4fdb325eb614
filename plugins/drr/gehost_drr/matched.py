"""The view of a match that the functions of a rule get."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import numpy as np
from msgspec import Struct

from gehost import DataType, GehostError, Graph, MatchResult, Refusal, Value, shapes
from gehost_drr.constants import ConstantSource


class MatchedTensor(Struct, frozen=True):
    """A tensor of the model; ``value`` is gehost's own object."""

    value: Value

    def Shape(self) -> list[int | str]:
        """Return the dimensions.

        A dimension is a number, a name, or -1 where the model has none; ``[-2]`` stands for
        an unknown rank.
        """
        shape = self.value.shape
        if shape is None:
            return [-2]
        return [-1 if dim is None or shapes.is_invented(dim) else dim for dim in shape]

    def Dtype(self) -> DataType | None:
        return self.value.dtype

    def Rank(self) -> int | None:
        return self.value.rank

    def IsConstant(self) -> bool:
        return self.value.is_constant

    def Array(self) -> np.ndarray[Any, Any] | None:
        """The elements of a constant."""
        return self.value.array

    def OpType(self) -> str:
        """The operator that computes it; "" for a model input or initializer."""
        return "" if self.value.producer is None else self.value.producer.op


class MatchContext:
    """A match by the names of its rule.

    ``m.p1`` is attribute variable ``p1`` if there is one, else tensor ``p1``.
    """

    def __init__(
        self,
        match: MatchResult,
        tensors: Mapping[str, int],
        constants: Mapping[str, tuple[ConstantSource, str]] = MappingProxyType({}),
    ) -> None:
        """Wrap a match.

        Args:
            match: gehost's own object.
            tensors: the index under which each name was captured; the inputs first, as they are
                numbered.
            constants: the attribute variables that constants of the source bind.
        """
        self._constants = constants
        if _OWN.isdisjoint(match.attributes):
            # found at once; functions of a rule ask for them again and again
            vars(self).update(match.attributes)
        self._match = match
        self._inputs: list[Value] | None = None
        self._tensors = tensors

    def Attr(self, name: str) -> Any:
        """Return an attribute variable's value.

        Returns None where the node lacks the attribute and it has no default.

        Raises:
            GehostError: the source pattern has no such variable.
        """
        if name in self._constants:
            constant, attribute = self._constants[name]
            return constant.attribute(attribute, self.value(constant.tensor))
        if name not in self._match.attributes:
            raise GehostError(
                f"the rule has no attribute variable {name!r}; it has "
                f"{', '.join(self._match.attributes) or 'none'}"
            )
        return self._match.attributes[name]

    def Tensor(self, name: str) -> MatchedTensor:
        """Return the tensor of a name in the source pattern.

        Raises ``GehostError`` if there is none.
        """
        return MatchedTensor(self.value(name))

    def value(self, name: str) -> Value:
        """The same as gehost's own object."""
        index = self._tensors.get(name)
        if index is None:
            raise GehostError(f"the rule has no tensor {name!r}; it has {', '.join(self._tensors)}")
        if self._inputs is None:
            self._inputs = self._match.inputs
        return (
            self._inputs[index]
            if index < len(self._inputs)
            else self._match.GetCapturedTensor(index).value
        )

    @property
    def graph(self) -> Graph:
        return self._match.graph

    def reject(self, reason: str) -> Refusal:
        """Refuse the match, counted by the text before the first colon."""
        return self._match.reject(reason)

    def __getattr__(self, name: str) -> Any:
        if name[0] == "_":
            raise AttributeError(name)
        if name in self._match.attributes or name in self._constants:
            return self.Attr(name)
        return self.Tensor(name)


_OWN = frozenset(dir(MatchContext))
"""Names that mean something else than a variable."""
