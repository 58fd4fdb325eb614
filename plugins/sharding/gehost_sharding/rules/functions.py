"""Rules of model-local functions, composed from the rules of their bodies."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import onnx
from onnx import helper

from gehost_sharding.rules.rule import NEED, PASS, Factor, Instance, Layout, Rule, replicate

RuleOfBody = Callable[[onnx.ModelProto], list[tuple[onnx.NodeProto, Rule, bool]]]
"""Rules of the nodes of a model, and whether a split edits the node."""


class _Classes:
    """Factors of all body nodes, joined where a tensor carries them from one to the next."""

    def __init__(self) -> None:
        self.parent: list[int] = []
        self.needs: list[bool] = []
        self.size: list[int] = []

    def add(self, size: int, *, need: bool) -> int:
        self.parent.append(len(self.parent))
        self.needs.append(need)
        self.size.append(size)
        return len(self.parent) - 1

    def root(self, item: int) -> int:
        while self.parent[item] != item:
            item = self.parent[item]
        return item

    def join(self, a: int, b: int) -> None:
        a, b = self.root(a), self.root(b)
        self.parent[b] = a
        self.needs[a] = self.needs[a] or self.needs[b]

    def keep_whole(self, items: Sequence[int]) -> None:
        for item in items:
            self.needs[self.root(item)] = True


def compose(function: onnx.FunctionProto, instance: Instance, rules_of: RuleOfBody) -> Rule:
    """Compose the rule of a call from the rules of the function's nodes.

    A factor passes if it passes in every node that has it. A *reduce* factor would need a
    collective inside the body, a node that a split edits would need a body of its own for each
    rank, a constant of the body cannot be cut, and a Shape would measure the piece: their factors
    must be whole.
    """
    model = body_model(function, instance)
    classes = _Classes()
    layouts: dict[str, list[tuple[int, ...]]] = {}
    for name, shape in zip(function.input, instance.operands, strict=False):
        if shape is not None:
            layouts[name] = [
                () if size == 1 else (classes.add(size, need=False),) for size in shape
            ]
    flops = 0
    for node, rule, is_edited in rules_of(model):
        flops += rule.flops
        own = [
            classes.add(factor.size, need=factor.kind != PASS or is_edited)
            for factor in rule.factors
        ]
        minor = {
            factor
            for layout in (*rule.operands, *rule.results)
            for dim in layout or ()
            for factor in dim[1:]
        }
        classes.keep_whole([own[factor] for factor in minor])
        for name, layout in zip(node.input, rule.operands, strict=True):
            if name and layout is not None:
                dims = [tuple(own[factor] for factor in dim) for dim in layout]
                _unify(classes, layouts.get(name), dims)
        results = [name for name in node.output if name]
        for name, layout in zip(results, rule.results, strict=True):
            layouts[name] = [tuple(own[factor] for factor in dim) for dim in layout]
    for node in model.graph.node:
        if node.op_type in {"Shape", "Size"} and not node.domain:  # would measure the piece
            classes.keep_whole([item for dim in layouts.get(node.input[0], ()) for item in dim])
    if any(name not in layouts for name in function.output[: len(instance.results)]):
        return replicate(instance, is_known=False)
    return _rule(classes, function, instance, layouts, flops)


def _unify(
    classes: _Classes, results: list[tuple[int, ...]] | None, read: list[tuple[int, ...]]
) -> None:
    """Join the factors of a tensor as its producer lays it out with those of a reader."""
    if results is None:  # a constant of the body
        classes.keep_whole([factor for dim in read for factor in dim])
        return
    for of_producer, of_reader in zip(results, read, strict=True):
        sizes = [[classes.size[factor] for factor in dim] for dim in (of_producer, of_reader)]
        if sizes[0] == sizes[1]:
            for a, b in zip(of_producer, of_reader, strict=True):
                classes.join(a, b)
        else:
            classes.keep_whole([*of_producer, *of_reader])


def _rule(
    classes: _Classes,
    function: onnx.FunctionProto,
    instance: Instance,
    layouts: dict[str, list[tuple[int, ...]]],
    flops: int,
) -> Rule:
    numbers: dict[int, int] = {}
    factors: list[Factor] = []

    def layout(name: str) -> Layout:
        dims: list[tuple[int, ...]] = []
        for dim in layouts[name]:
            roots = [classes.root(item) for item in dim]
            for root in roots:
                if root not in numbers:
                    numbers[root] = len(factors)
                    kind = NEED if classes.needs[root] else PASS
                    factors.append(Factor(classes.size[root], kind))
            dims.append(tuple(numbers[root] for root in roots))
        return tuple(dims)

    operands = [
        None if shape is None else layout(name)
        for name, shape in zip(function.input, instance.operands, strict=False)
    ]
    results = [layout(name) for name in function.output[: len(instance.results)]]
    return Rule(tuple(factors), tuple(operands), tuple(results), flops)


def body_model(function: onnx.FunctionProto, instance: Instance) -> onnx.ModelProto:
    """Write the body of a call as a model with the call's attributes and input types."""
    model = onnx.ModelProto(ir_version=10)
    model.opset_import.extend(function.opset_import)
    graph = model.graph
    graph.name = function.name
    attributes = {
        name: helper.make_attribute(name, value) for name, value in instance.attributes.items()
    }
    attributes = {entry.name: entry for entry in function.attribute_proto} | attributes
    for node in function.node:
        copy = graph.node.add()
        copy.CopyFrom(node)
        for index in reversed(range(len(copy.attribute))):
            attribute = copy.attribute[index]
            if not attribute.ref_attr_name:
                continue
            name, value = attribute.name, attributes.get(attribute.ref_attr_name)
            del copy.attribute[index]
            if value is not None:
                entry = copy.attribute.add()
                entry.CopyFrom(value)
                entry.name = name
    operands = zip(function.input, instance.operands, instance.dtypes, strict=False)
    for name, shape, dtype in operands:
        if shape is not None:
            kind = helper.np_dtype_to_tensor_dtype(dtype or np.dtype(np.float32))
            graph.input.append(helper.make_tensor_value_info(name, kind, shape))
    for name in function.output[: len(instance.results)]:
        graph.output.add(name=name).type.tensor_type.elem_type = onnx.TensorProto.UNDEFINED
    return model
