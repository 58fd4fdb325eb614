"""The form of a rule: dimensions of operands and results as products of factors."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np
import onnx
from numpy.typing import NDArray

from gehost_sharding.mesh import Mesh
from gehost_sharding.sharding import PARTIAL_SUM, Shape, Sharding, local_shape

PASS, REDUCE, NEED = "pass", "reduce", "need"

Dim: TypeAlias = tuple[int, ...]
"""One dimension as a product of factors (indices into ``Rule.factors``), major first."""

Layout: TypeAlias = tuple[Dim, ...]


@dataclass(frozen=True)
class Factor:
    """A part of the iteration space of an operator."""

    size: int
    kind: str = PASS
    """``pass`` may be split; ``reduce`` may be split and leaves a partial result; ``need`` may
    not be split."""
    combine: int = PARTIAL_SUM
    """For ``reduce``: the partial placement of the result."""


@dataclass(frozen=True)
class Halo:
    """Rows that an operator reads beyond the edges of its piece of operand 0."""

    factor: int
    dim: int
    """Of operand 0; its layout is the factor, then the stride."""
    before: int
    after: int

    @property
    def rows(self) -> int:
        return self.before + self.after


@dataclass(frozen=True)
class Rule:
    """Factors of one operator with known shapes, and the layouts of its operands and results."""

    factors: tuple[Factor, ...]
    operands: tuple[Layout | None, ...]
    """None for an operand that is left out."""
    results: tuple[Layout, ...]
    flops: int
    """Operations of the whole operator; a factor that is split divides them."""
    is_known: bool = True
    """False if no rule covers the operator, so that everything is replicated."""
    halos: tuple[Halo, ...] = ()
    """Edges of operand 0 that devices exchange where a factor is split; one of them at a time."""
    advice: str = ""
    """What a model may do instead, for the message that refuses a split."""


@dataclass(frozen=True)
class Instance:
    """An operator with its shapes: all that a rule depends on."""

    op: str
    """``domain::Type``, or the type alone in ONNX's own domain."""
    opset: int
    attributes: dict[str, Any]
    operands: tuple[Shape | None, ...]
    results: tuple[Shape, ...]
    constants: dict[int, NDArray[Any]]
    """Values of small constant operands that are integers or bool, by position."""
    dtypes: tuple[np.dtype[Any] | None, ...]
    """Element types of the operands."""
    present: tuple[int, ...] = ()
    """Position of each result in the operator's list, where some are left out; else empty."""

    def attribute(self, name: str, default: Any) -> Any:
        return self.attributes.get(name, default)

    def operand(self, index: int) -> Shape | None:
        """Shape of an operand; None if it is left out."""
        return self.operands[index] if index < len(self.operands) else None

    def shape(self, index: int) -> Shape:
        """Shape of an operand that must be present."""
        shape = self.operand(index)
        assert shape is not None, f"{self.op}: operand {index} is left out"
        return shape


class Factors:
    """Collects the factors of a rule; each method returns a dimension."""

    def __init__(self) -> None:
        self.factors: list[Factor] = []

    def add(self, size: int, kind: str = PASS, combine: int = PARTIAL_SUM) -> Dim:
        """Add a factor; a dimension of size 1 has none, an empty one cannot be split."""
        if size == 1:
            return ()
        self.factors.append(Factor(size, kind if size else NEED, combine))
        return (len(self.factors) - 1,)

    def need(self, shape: Sequence[int] | None) -> Layout | None:
        """Give each dimension a factor that must be whole."""
        return None if shape is None else tuple(self.add(size, NEED) for size in shape)

    def rule(
        self,
        operands: Sequence[Layout | None],
        results: Sequence[Layout],
        flops: int,
        halos: Sequence[Halo] = (),
    ) -> Rule:
        return Rule(tuple(self.factors), tuple(operands), tuple(results), flops, halos=tuple(halos))


def replicate(instance: Instance, *, is_known: bool = True) -> Rule:
    """Return the rule under which nothing may be split."""
    factors = Factors()
    operands = tuple(factors.need(shape) for shape in instance.operands)
    results = tuple(factors.need(shape) or () for shape in instance.results)
    flops = sum(math.prod(shape) for shape in instance.results)
    return Rule(tuple(factors.factors), operands, results, flops, is_known=is_known)


@dataclass
class LocalNode:
    """One operator on its way into the graph of one rank."""

    node: onnx.NodeProto
    """A copy with the names of the rank's graph; a localizer edits it."""
    instance: Instance
    rule: Rule
    factor_of_axis: tuple[int, ...]
    """The strategy: per mesh axis the factor that it splits, or -1."""
    result_shapes: tuple[Shape, ...]
    """Local shapes."""
    mesh: Mesh
    coordinates: tuple[int, ...]
    add_constant: Callable[[NDArray[Any], str], str]
    """Add an initializer with a name like the given one; returns its name."""
    operand_shardings: tuple[Sharding | None, ...] = ()
    before: list[onnx.NodeProto] = field(default_factory=list)
    """Nodes to write before this one."""
    after: list[onnx.NodeProto] = field(default_factory=list)
    """Nodes to write after this one."""

    def pieces(self, factor: int) -> int:
        """Return into how many pieces a factor is split."""
        return self.mesh.extent(self._axes(factor))

    def position(self, factor: int) -> int:
        """Return which of the pieces of a factor this rank has."""
        place = 0
        for axis in self._axes(factor):
            place = place * self.mesh.sizes[axis] + self.coordinates[axis]
        return place

    def local_operand(self, slot: int) -> Shape:
        """Return the shape of this rank's piece of an operand."""
        sharding = self.operand_shardings[slot]
        assert sharding is not None, f"{self.instance.op}: operand {slot} is left out"
        return local_shape(self.mesh, self.instance.shape(slot), sharding)

    def _axes(self, factor: int) -> list[int]:
        return [axis for axis, split in enumerate(self.factor_of_axis) if split == factor]

    def set_attribute(self, name: str, value: Any) -> None:
        """Set an attribute of the node, in place of one of that name."""
        for index, attribute in enumerate(self.node.attribute):
            if attribute.name == name:
                del self.node.attribute[index]
                break
        self.node.attribute.append(onnx.helper.make_attribute(name, value))

    @property
    def is_first_summand(self) -> bool:
        """True unless this rank's coordinate on an axis that splits a *reduce* factor is not 0."""
        return all(
            self.coordinates[axis] == 0
            for axis, factor in enumerate(self.factor_of_axis)
            if factor >= 0 and self.rule.factors[factor].kind == REDUCE
        )


RuleFunction = Callable[[Instance], Rule]
Localizer = Callable[[LocalNode], None]
