"""Padding: a model with a dimension made larger, so that a mesh divides it, and equal outputs.

The dimension grows in a weight or input and in all that follows from it, as far as each element
along it is computed on its own (a *pass* factor). Where that ends, the padding is cut off.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import helper, numpy_helper

from gehost import UsageError
from gehost_sharding.model_graph import ModelGraph, Operator
from gehost_sharding.rules import contraction, indexing, reduction, shapes
from gehost_sharding.rules.elementwise import OPERATORS
from gehost_sharding.rules.rule import REDUCE, Layout, Rule
from gehost_sharding.rules.table import RuleTable
from gehost_sharding.strategies import splittable_factors

_REQUEST = re.compile(r"(?P<tensor>.+)=(?P<dim>\d+):(?P<multiple>\d+)")
_PLAIN = (
    None,
    contraction.add_bias_once,
    indexing.look_up_own_rows,
    reduction.divide_mean,
    shapes.local_result_shape,
    shapes.squeeze_by_reshape,
)
"""What edits a node on its way into a rank; others keep sizes in attributes."""

ELEMENTWISE = frozenset(OPERATORS.split())

Sizes = dict[int, int]
"""By dimension: its size with padding."""


@dataclass(frozen=True)
class Request:
    """A dimension of a weight or input, and the number that its size shall be a multiple of."""

    tensor: str
    dim: int
    multiple: int

    @classmethod
    def parse(cls, text: str, graph: ModelGraph) -> Request:
        """Read ``TENSOR=AXIS:MULTIPLE``.

        Raises:
            UsageError: not in that form, no such weight or input, or no such dimension.
        """
        match = _REQUEST.fullmatch(text)
        if match is None or int(match["multiple"]) < 1:
            raise UsageError("write TENSOR=AXIS:MULTIPLE, as in w=0:8", subject=f'pad "{text}"')
        tensor, dim = graph.tensor(match["tensor"]), int(match["dim"])
        if tensor.name in graph.producer:
            raise UsageError(
                f"{tensor.name} is computed; pad the weight or input that its size comes from",
                subject=f'pad "{text}"',
            )
        if dim >= len(tensor.shape):
            raise UsageError(
                f"{tensor.name} has {len(tensor.shape)} dimensions", subject=f'pad "{text}"'
            )
        return cls(tensor.name, dim, int(match["multiple"]))


def pad_model(
    graph: ModelGraph, requests: Sequence[Request], table: RuleTable | None = None
) -> onnx.ModelProto:
    """Return a model with the same inputs and outputs that computes with padded dimensions.

    Raises:
        UsageError: the opset is below 13, whose Pad has no sizes as an operand.
    """
    if graph.opsets.get("", 1) < 13:
        raise UsageError("padding needs opset 13 or later", where=str(graph))
    return _Padder(graph, table or RuleTable.with_plugins()).write(requests)


class _Padder:
    def __init__(self, graph: ModelGraph, table: RuleTable) -> None:
        self.graph = graph
        self.table = table
        self.sizes: dict[str, Sizes] = {}
        """Of the tensors that exist with padding alone."""
        self.names: dict[tuple[str, tuple[tuple[int, int], ...]], str] = {}
        """By tensor and padded sizes."""
        self.nodes: list[onnx.NodeProto] = []
        self.initializers: list[onnx.TensorProto] = []
        self.used = {*graph.tensors}
        self.cut: set[str] = set()
        """Tensors that a Slice has cut to their size."""

    def write(self, requests: Sequence[Request]) -> onnx.ModelProto:
        graph = self.graph
        for request in requests:
            size = graph.tensors[request.tensor].shape[request.dim]
            target = -(-size // request.multiple) * request.multiple
            if target != size:
                self.sizes.setdefault(request.tensor, {})[request.dim] = target
        by_position = {operator.position: operator for operator in graph.operators}
        for position, node in enumerate(graph.proto.graph.node):
            operator = by_position.get(position)
            if operator is not None:
                self._operator(operator)
                continue
            for name in node.input:  # of a Shape or Size
                self._whole(name)
            self.nodes.append(node)
        for name in graph.outputs:
            self._whole(name)
        model = onnx.ModelProto()
        model.CopyFrom(graph.proto)
        del model.graph.node[:]
        del model.graph.value_info[:]
        model.graph.node.extend(self.nodes)
        read = {name for node in self.nodes for name in node.input} | {*graph.outputs}
        stored = [entry for entry in model.graph.initializer if entry.name in read]
        del model.graph.initializer[:]
        model.graph.initializer.extend([*stored, *self.initializers])
        return model

    def _operator(self, operator: Operator) -> None:
        node = onnx.NodeProto()
        node.CopyFrom(operator.node)
        del node.device_configurations[:]
        rule = self.table.rule_of(self.graph, operator)
        factors = self._factors(operator, rule)
        for slot, name in enumerate(operator.node.input):
            layout = rule.operands[slot] if name else None
            if layout is None:
                continue
            own = self._own(layout, factors, self.graph.tensors[name].shape, rule)
            node.input[slot] = self._padded(name, own) if own else self._whole(name)
            if own and self._is_integer(name) and operator.op not in ELEMENTWISE:
                node.input[slot] = self._padded(name, own, zeros=True)  # may be indices
        results = [(index, name) for index, name in enumerate(operator.node.output) if name]
        for (index, name), layout in zip(results, rule.results, strict=True):
            shape = self.graph.tensors[name].shape
            own = self._own(layout, factors, shape, rule)
            if own:
                self.sizes[name] = own
                node.output[index] = self._name(name, own)
                if self.table.localizer(operator.op) is shapes.local_result_shape:
                    target = [own.get(dim, size) for dim, size in enumerate(shape)]
                    node.input[1] = self._constant(np.array(target, np.int64))
        if operator.op == "Gather" and any(rule.factors[f].kind == REDUCE for f in factors):
            self._count_from_start(operator, node)
        self.nodes.append(node)

    def _factors(self, operator: Operator, rule: Rule) -> dict[int, int]:
        """Factors that may grow in this operator, with their padded sizes."""
        sizes: dict[int, set[int]] = {}
        for slot, name in enumerate(operator.node.input):
            layout = rule.operands[slot] if name else None
            for dim, target in self.sizes.get(name, {}).items():
                of_dim = layout[dim] if layout is not None else ()
                size = self.graph.tensors[name].shape[dim]
                if of_dim and rule.factors[of_dim[0]].size * target % size == 0:
                    grown = rule.factors[of_dim[0]].size * target // size
                    sizes.setdefault(of_dim[0], set()).add(grown)
        if operator.op in {"Div", "Mod"} and self._is_integer(operator.node.input[0]):
            return {}  # the padding would be a division by 0
        is_plain = self.table.localizer(operator.op) in _PLAIN
        permitted = {*splittable_factors(rule)} - {halo.factor for halo in rule.halos}
        return {
            factor: max(grown)
            for factor, grown in sizes.items()
            if factor in permitted
            and (is_plain or _is_batch(rule, factor))
            and (rule.factors[factor].kind != REDUCE or self._is_table(operator))
        }

    def _is_table(self, operator: Operator) -> bool:
        return operator.op == "Gather" and self.graph.is_constant(operator.node.input[0])

    def _is_integer(self, name: str) -> bool:
        return self.graph.tensors[name].dtype.kind in "iu"

    def _own(
        self, layout: Layout, factors: dict[int, int], shape: Sequence[int], rule: Rule
    ) -> Sizes:
        return {
            dim: shape[dim] // rule.factors[of_dim[0]].size * factors[of_dim[0]]
            for dim, of_dim in enumerate(layout)
            if of_dim and of_dim[0] in factors
        }

    # -- tensors ------------------------------------------------------------------------------

    def _fresh(self, stem: str) -> str:
        name, number = stem, 0
        while name in self.used:
            number += 1
            name = f"{stem}_{number}"
        self.used.add(name)
        return name

    def _constant(self, value: NDArray[Any]) -> str:
        name = self._fresh("padding/sizes")
        self.initializers.append(numpy_helper.from_array(value, name))
        return name

    def _name(self, name: str, sizes: Sizes) -> str:
        key = (name, tuple(sorted(sizes.items())))
        if key not in self.names:
            self.names[key] = self._fresh(f"{name}/padded")
        return self.names[key]

    def _padded(self, name: str, sizes: Sizes, *, zeros: bool = False) -> str:
        """Return the tensor with padding.

        Where it has none, or other sizes, or ``zeros`` are asked for, it is padded with zeros.
        """
        is_computed = name in self.graph.producer
        label = f"{name}/zeros" if zeros and is_computed else name
        key = (label, tuple(sorted(sizes.items())))
        if key in self.names:
            return self.names[key]
        shape = self.graph.tensors[name].shape
        amounts = [sizes.get(dim, size) - size for dim, size in enumerate(shape)]
        result = self._name(label, sizes)
        if self.graph.is_constant(name):
            value = np.pad(self.graph.value(name), [(0, amount) for amount in amounts])
            self.initializers.append(numpy_helper.from_array(value, result))
            return result
        pads = self._constant(np.array([0] * len(shape) + amounts, np.int64))
        self.nodes.append(helper.make_node("Pad", [self._whole(name), pads], [result]))
        return result

    def _whole(self, name: str) -> str:
        """Return the tensor without padding."""
        sizes = self.sizes.get(name)
        if not sizes or name not in self.graph.producer:
            return name
        if name not in self.cut:
            self.cut.add(name)
            shape = self.graph.tensors[name].shape
            dims = sorted(sizes)
            bounds = [[0] * len(dims), [shape[dim] for dim in dims], dims]
            operands = [self._constant(np.array(values, np.int64)) for values in bounds]
            cut = helper.make_node("Slice", [self._name(name, sizes), *operands], [name])
            self.nodes.append(cut)
        return name

    def _count_from_start(self, operator: Operator, node: onnx.NodeProto) -> None:
        """Indices from the end would count the padding."""
        rows = self.graph.tensors[operator.node.input[0]].shape[0]
        kind = self.graph.tensors[operator.node.input[1]].dtype
        result = self._fresh(f"{node.input[1]}/from_start")
        size = self._constant(np.array(rows, kind))
        self.nodes.append(helper.make_node("Mod", [node.input[1], size], [result]))
        node.input[1] = result


def _is_batch(rule: Rule, factor: int) -> bool:
    """Return True for the first dimension of operand 0 where it is a dimension of its own."""
    layouts = [layout for layout in (*rule.operands, *rule.results) if layout is not None]
    first = layouts[0][0] if layouts[0] else ()
    return first == (factor,) and all(
        dim == (factor,) for layout in layouts for dim in layout if factor in dim
    )
