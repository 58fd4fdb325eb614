"""Padding: a model with a dimension made larger, so that a mesh divides it, and equal outputs.

The dimension grows in a weight or input and in all that follows from it, as far as each element
along it is computed on its own (a *pass* factor). Where that ends, the padding is cut off. A
matrix product sums over padding where a weight or input of it is to be padded: with zeros.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
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
from gehost_sharding.segments import session
from gehost_sharding.strategies import splittable_factors

_REQUEST = re.compile(r"(?P<tensor>.+)=(?P<dim>\d+):(?P<multiple>\d+)")
_PLAIN = (
    None,
    contraction.add_bias_once,
    indexing.keep_input,
    indexing.look_up_own_rows,
    reduction.divide_mean,
    shapes.local_result_shape,
    shapes.squeeze_by_reshape,
)
"""What edits a node on its way into a rank; others keep sizes in attributes."""

ELEMENTWISE = frozenset(OPERATORS.split())
_PRODUCTS = frozenset(["MatMul", "Gemm", "Einsum"])

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
        UsageError: the opset is below 13, whose Pad has no sizes as an operand; or a request that
            no reader of its tensor can carry out.
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
        self.requests: dict[tuple[str, int], int] = {}
        """By tensor and dimension: the multiple that is asked for."""
        self.carried: dict[tuple[str, int], int] = {}
        """Requests with the size that a reader takes."""
        self.values: dict[tuple[str, int], float] = {}
        """By result and padded dimension: the one number that the padding consists of."""

    def write(self, requests: Sequence[Request]) -> onnx.ModelProto:
        graph = self.graph
        for request in requests:
            key = request.tensor, request.dim
            multiple = math.lcm(self.requests.get(key, 1), request.multiple)
            size = graph.tensors[request.tensor].shape[request.dim]
            if size % multiple:
                self.requests[key] = multiple
                own = self.sizes.setdefault(request.tensor, {})
                own[request.dim] = -(-size // multiple) * multiple
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
        self._check()
        names = self._restore_names()
        model = onnx.ModelProto()
        model.CopyFrom(graph.proto)
        del model.graph.node[:]
        del model.graph.value_info[:]
        model.graph.node.extend(self.nodes)
        read = {name for node in self.nodes for name in node.input} | {*graph.outputs}
        for entry in model.graph.initializer:
            entry.name = names.get(entry.name, entry.name)
        padded = {entry.name for entry in self.initializers}
        stored = [entry for entry in model.graph.initializer if entry.name in read - padded]
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
            may_be_indices = self._is_integer(name) and operator.op not in ELEMENTWISE
            if own and (may_be_indices or self._may_spoil(name, layout, own, rule)):
                node.input[slot] = self._padded(name, own, zeros=True)
            for dim, size in own.items():
                self.carried.setdefault((name, dim), size)
        results = [(index, name) for index, name in enumerate(operator.node.output) if name]
        for (index, name), layout in zip(results, rule.results, strict=True):
            shape = self.graph.tensors[name].shape
            own = self._own(layout, factors, shape, rule)
            if own:
                self.sizes[name] = own
                for dim in own:
                    value = self._result_value(operator, factors, layout[dim][0])
                    if value is not None:
                        self.values[name, dim] = value
                node.output[index] = self._name(name, own)
                if self.table.localizer(operator.op) is shapes.local_result_shape:
                    target = [own.get(dim, size) for dim, size in enumerate(shape)]
                    node.input[1] = self._constant(np.array(target, np.int64))
        if operator.op == "Gather" and any(rule.factors[f].kind == REDUCE for f in factors):
            self._count_from_start(operator, node)
        self.nodes.append(node)
        if self.table.localizer(operator.op) is indexing.keep_input:
            is_true = self._constant(np.ones((), bool))
            self.nodes.append(indexing.read_behind(node, is_true))

    def _factors(self, operator: Operator, rule: Rule) -> dict[int, int]:
        """Factors that may grow in this operator, with their padded sizes."""
        sizes: dict[int, set[int]] = {}
        requested: set[int] = set()
        for slot, name in enumerate(operator.node.input):
            layout = rule.operands[slot] if name else None
            for dim, target in self.sizes.get(name, {}).items():
                of_dim = layout[dim] if layout is not None else ()
                size = self.graph.tensors[name].shape[dim]
                if of_dim and rule.factors[of_dim[0]].size * target % size == 0:
                    grown = rule.factors[of_dim[0]].size * target // size
                    sizes.setdefault(of_dim[0], set()).add(grown)
                    if (name, dim) in self.requests and operator.op in _PRODUCTS:
                        requested.add(of_dim[0])
        if operator.op in {"Div", "Mod"} and self._is_integer(operator.node.input[0]):
            return {}  # the padding would be a division by 0
        is_plain = self.table.localizer(operator.op) in _PLAIN
        permitted = {*splittable_factors(rule)} - {halo.factor for halo in rule.halos}
        return {
            factor: max(grown)
            for factor, grown in sizes.items()
            if factor in permitted
            and (is_plain or _is_batch(rule, factor))
            and (
                rule.factors[factor].kind != REDUCE
                or self._is_table(operator)
                or factor in requested
            )
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

    # -- requests -----------------------------------------------------------------------------

    def _check(self) -> None:
        """Refuse a request that no reader of the tensor has carried out."""
        for (name, dim), multiple in self.requests.items():
            size = self.carried.get((name, dim))
            if size is not None and size % multiple == 0:
                continue
            readers = [self.graph.operators[index] for index, _ in self.graph.readers.get(name, [])]
            listing = " and ".join([f"{reader.op} {reader.label}" for reader in readers])
            if size is not None:
                why = f"other requests make dimension {dim} {size}; ask for one multiple"
            else:
                why = f"{listing} needs dimension {dim} as it is" if listing else "nothing reads it"
            raise UsageError(why, subject=f'pad "{name}={dim}:{multiple}"')

    def _restore_names(self) -> dict[str, str]:
        """Give the padded form of a tensor its name, if it is the form that was asked for.

        That is where nothing reads it without padding, or it is a constant with a request. Pins
        and annotations then name what they named before. Returns the new names.
        """
        read = {name for node in self.nodes for name in node.input}
        self.nodes = [node for node in self.nodes if {*read, *self.graph.outputs} & {*node.output}]
        fixed = {*self.graph.outputs, *(entry.name for entry in self.graph.proto.graph.input)}
        requested = {name for name, _ in self.requests if self.graph.is_constant(name)}
        names: dict[str, str] = {}
        for (name, _), padded in self.names.items():
            if name in fixed or name in names or padded not in read:
                continue
            if name in self.graph.tensors and (name not in read or name in requested):
                names |= {padded: name, name: self._fresh(f"{name}/whole")}
        for node in self.nodes:
            node.input[:] = [names.get(name, name) for name in node.input]
            node.output[:] = [names.get(name, name) for name in node.output]
        for entry in self.initializers:
            entry.name = names.get(entry.name, entry.name)
        return names

    # -- numbers that padding consists of -------------------------------------------------------

    def _may_spoil(self, name: str, layout: Layout, own: Sizes, rule: Rule) -> bool:
        """Return True where a sum would add padding times 0 that may be inf or nan."""
        summed = [dim for dim in own if rule.factors[layout[dim][0]].kind == REDUCE]
        values = [self._value(name, dim, own) for dim in summed]
        return any(value is None or not math.isfinite(value) for value in values)

    def _value(self, name: str, dim: int, own: Sizes) -> float | None:
        """Return the number that the padding of an operand consists of."""
        if name not in self.graph.producer or self.sizes.get(name) != own:
            return 0.0  # padded here
        return self.values.get((name, dim))

    def _result_value(
        self, operator: Operator, factors: dict[int, int], factor: int
    ) -> float | None:
        """Return the number that the padding of a result consists of, from that of the operands."""
        rule, node = self.table.rule_of(self.graph, operator), operator.node
        values: dict[int, float | None] = {}
        for slot, (name, layout) in enumerate(zip(node.input, rule.operands, strict=True)):
            tensor = self.graph.tensors[name] if name else None
            if tensor is None or layout is None:
                continue
            places = [dim for dim, of_dim in enumerate(layout) if factor in of_dim]
            if places:
                own = self._own(layout, factors, tensor.shape, rule)
                values[slot] = self._value(name, places[0], own)
            else:
                is_number = self.graph.is_constant(name) and tensor.elements == 1
                values[slot] = float(self.graph.value(name).reshape(())) if is_number else None
        if operator.op in _PRODUCTS:
            bias = values.pop(2, 0.0) if operator.op == "Gemm" else 0.0
            return 0.0 if bias == 0 and 0 in values.values() else None
        if operator.op not in ELEMENTWISE or None in values.values():
            return None
        return self._computed(
            node, {slot: value for slot, value in values.items() if value is not None}
        )

    def _computed(self, node: onnx.NodeProto, values: Mapping[int, float]) -> float | None:
        """One element of an elementwise operator; None where it is not known."""
        operands: dict[str, NDArray[Any]] = {}
        for slot, value in values.items():
            dtype = self.graph.tensors[node.input[slot]].dtype
            # one dimension, as BiasGelu needs one; the CPU has hardly a kernel of bfloat16
            operands[node.input[slot]] = np.full(
                1, value, np.float32 if dtype.name == "bfloat16" else dtype
            )
        inputs = [
            helper.make_tensor_value_info(
                name, helper.np_dtype_to_tensor_dtype(value.dtype), value.shape
            )
            for name, value in operands.items()
        ]
        results = [onnx.ValueInfoProto(name=node.output[0])]
        model = helper.make_model(
            helper.make_graph([node], "element", inputs, results),
            opset_imports=self.graph.proto.opset_import,
            ir_version=self.graph.proto.ir_version,
        )
        try:
            (result,) = session(model, node.op_type).run(None, operands)
        except Exception:  # noqa: BLE001  # ONNX Runtime raises types of its own
            return None
        return float(result[0])

    # -- tensors ------------------------------------------------------------------------------

    def _fresh(self, stem: str) -> str:
        name, number = stem, 0
        while name in self.used:
            number += 1
            name = f"{stem}_{number}"
        self.used.add(name)
        return name

    def _constant(self, value: NDArray[Any]) -> str:
        name = self._fresh("padding/constant")
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
