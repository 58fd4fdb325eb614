"""The rule table, and how plugins and vendor files add to it."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from importlib.metadata import entry_points
from types import ModuleType
from typing import NamedTuple

import onnx

from gehost import ModelError, VendorError, hookimpl
from gehost_sharding.model_graph import ModelGraph, Operator
from gehost_sharding.rules import (
    attention,
    contraction,
    elementwise,
    indexing,
    recurrent,
    reduction,
    shapes,
    windows,
)
from gehost_sharding.rules.functions import compose
from gehost_sharding.rules.rule import Instance, Layout, Localizer, Rule, RuleFunction, replicate
from gehost_sharding.sharding import Shape

ENTRY_POINT_GROUP = "gehost_sharding.rules"
_MARK = "__sharding_rule__"


class _Entry(NamedTuple):
    rule: RuleFunction
    localize: Localizer | None


def sharding_rule(
    *ops: str, localize: Localizer | None = None
) -> Callable[[RuleFunction], RuleFunction]:
    """Mark a function of a vendor file or plugin as the rule of operators (``domain::Type``).

    Args:
        ops: operators; ONNX's own without a domain.
        localize: edits the node on its way into the graph of a rank, where local sizes occur in
            attributes or constants.
    """

    def mark(function: RuleFunction) -> RuleFunction:
        setattr(function, _MARK, (ops, localize))
        return function

    return mark


class RuleTable:
    """Rules by operator. An operator without one is replicated."""

    def __init__(self) -> None:
        self._entries = _built_in()

    @classmethod
    def with_plugins(cls) -> RuleTable:
        """Return the built-in rules and those of installed plugins.

        A plugin names a module of marked functions in the entry point group
        ``gehost_sharding.rules``.

        Raises:
            VendorError: a plugin's module cannot be imported.
        """
        table = cls()
        for entry in sorted(entry_points(group=ENTRY_POINT_GROUP), key=lambda entry_: entry_.name):
            try:
                module = entry.load()
            except Exception as error:  # a plugin's import may raise anything
                raise VendorError(
                    f"sharding rules {entry.name} ({entry.value}): {type(error).__name__}: {error}"
                ) from error
            table.add_module(module)
        return table

    def add(self, op: str, rule: RuleFunction, localize: Localizer | None = None) -> None:
        """Add the rule of an operator, in place of one that is there."""
        self._entries[op] = _Entry(rule, localize)

    def add_module(self, module: ModuleType) -> None:
        """Add the functions of a module that ``sharding_rule`` marked."""
        for value in list(vars(module).values()):
            ops, localize = getattr(value, _MARK, ((), None))
            for op in ops:
                self.add(op, value, localize)

    def __contains__(self, op: str) -> bool:
        return op in self._entries

    def operators(self) -> list[str]:
        """Operators that have a rule, sorted."""
        return sorted(self._entries)

    def rule(self, instance: Instance) -> Rule:
        """Return the factors of an operator; all replicated if it has no rule.

        Raises:
            VendorError: the rule does not fit the operator's shapes.
        """
        entry = self._entries.get(instance.op)
        if entry is None:
            return replicate(instance, is_known=False)
        rule = entry.rule(instance)
        present = instance.present or range(len(instance.results))
        if instance.present and len(rule.results) <= present[-1]:
            return replicate(instance)  # the rule does not say which results it means
        if len(rule.results) > len(instance.results):
            rule = dataclasses.replace(rule, results=tuple(rule.results[i] for i in present))
        _check(instance, rule)
        return rule

    def rule_of(self, graph: ModelGraph, operator: Operator) -> Rule:
        """Return the rule of an operator of a model; of a function call that of its body.

        Raises:
            VendorError: the rule does not fit the operator's shapes.
        """
        instance = graph.instance(operator)
        function = graph.functions.get(operator.op)
        if operator.op in self or function is None:
            return self.rule(instance)
        if instance.present:
            return replicate(instance)
        try:
            return compose(function, instance, lambda body: self._rules_of(body, graph))
        except ModelError:  # shapes inside the body are not fixed
            return replicate(instance, is_known=False)

    def _rules_of(
        self, body: onnx.ModelProto, outer: ModelGraph
    ) -> list[tuple[onnx.NodeProto, Rule, bool]]:
        body.functions.extend(outer.proto.functions)
        inner = ModelGraph(body)
        return [
            (operator.node, self.rule_of(inner, operator), self.localizer(operator.op) is not None)
            for operator in inner.operators
        ]

    def localizer(self, op: str) -> Localizer | None:
        """Return the function that edits a node on its way into a rank's graph, if any."""
        entry = self._entries.get(op)
        return None if entry is None else entry.localize


class RuleCollector:
    """A host plugin that adds the rules of vendor files to a table."""

    def __init__(self, table: RuleTable) -> None:
        self.table = table

    @hookimpl
    def gehost_collect_passes(self, module: ModuleType) -> None:
        self.table.add_module(module)


def _check(instance: Instance, rule: Rule) -> None:
    """Check that the factors of each dimension multiply to its size, or are none."""
    shapes = [*instance.operands, *instance.results]
    layouts = [*rule.operands, *rule.results]
    sizes = [None if layout is None else _sizes(rule, layout) for layout in layouts]
    if sizes != shapes or len(shapes) != len(layouts):
        raise VendorError(
            f"the sharding rule of {instance.op} does not fit operands {list(instance.operands)}"
            f" and results {list(instance.results)}: operands {rule.operands},"
            f" results {rule.results}, factors {[factor.size for factor in rule.factors]}"
        )


def _sizes(rule: Rule, layout: Layout) -> Shape:
    """Return the shape that a layout stands for."""
    return tuple(math.prod(rule.factors[factor].size for factor in dim) for dim in layout)


def _built_in() -> dict[str, _Entry]:
    table: dict[str, _Entry] = {}

    def add(ops: str, rule: RuleFunction, localize: Localizer | None = None) -> None:
        for op in ops.split():
            table[op] = _Entry(rule, localize)

    add(elementwise.OPERATORS, elementwise.elementwise)
    add("CastLike", elementwise.cast_like)
    add("Dropout", elementwise.dropout)
    add("BatchNormalization", elementwise.batch_normalization)
    add("QuantizeLinear DequantizeLinear", elementwise.quantize)
    add("MatMul", contraction.matmul)
    add("Gemm", contraction.gemm, contraction.add_bias_once)
    add("Einsum", contraction.einsum)
    add(" ".join(op for op in reduction.COMBINERS if op != "ReduceMean"), reduction.reduce)
    add("ReduceMean", reduction.reduce, reduction.divide_mean)
    add("Softmax LogSoftmax Hardmax", reduction.softmax)
    add("CumSum CumProd", reduction.cumsum)
    add("LayerNormalization RMSNormalization", reduction.layer_normalization)
    add("SimplifiedLayerNormalization", reduction.layer_normalization)
    add("LpNormalization", reduction.lp_normalization)
    add("InstanceNormalization", reduction.instance_normalization)
    add("GroupNormalization", reduction.group_normalization, reduction.divide_groups)
    add(
        "com.microsoft::GroupNorm com.microsoft::SkipGroupNorm",
        reduction.group_norm,
        reduction.divide_groups,
    )
    add(
        "com.microsoft::SkipLayerNormalization com.microsoft::SkipSimplifiedLayerNormalization",
        reduction.skip_normalization,
    )
    add("LRN", reduction.local_response)
    add("ArgMax ArgMin", reduction.arg_reduce)
    add("TopK", reduction.top_k)
    add("Flatten Unsqueeze", shapes.reshape)
    add("Squeeze", shapes.reshape, shapes.squeeze_by_reshape)
    add("Reshape", shapes.reshape, shapes.local_result_shape)
    add("Expand", shapes.expand, shapes.local_result_shape)
    add("ConstantOfShape", shapes.constant_of_shape, shapes.local_fill_shape)
    add("Transpose", shapes.transpose)
    add("Split", shapes.split)
    add("Slice", shapes.slice_)
    add("Pad", shapes.pad)
    add("Tile", shapes.tile)
    add("Trilu", shapes.trilu)
    add("ReverseSequence", shapes.reverse_sequence)
    add("Concat", shapes.concat)
    add("DepthToSpace SpaceToDepth", shapes.depth_space)
    add("Attention", attention.attention, attention.divide_heads)
    add("com.microsoft::MultiHeadAttention", attention.multi_head_attention, attention.divide_heads)
    add("com.microsoft::Attention", attention.packed_attention, attention.divide_heads)
    add(
        "com.microsoft::GroupQueryAttention",
        attention.group_query_attention,
        attention.divide_heads,
    )
    add(
        "RotaryEmbedding com.microsoft::RotaryEmbedding",
        attention.rotary_embedding,
        attention.divide_rotary_heads,
    )
    add("GRU LSTM RNN", recurrent.recurrent, recurrent.own_direction)
    add("Gather", indexing.gather, indexing.look_up_own_rows)
    add("GatherElements", indexing.gather_elements)
    add("GatherND", indexing.gather_nd)
    add("Scatter ScatterElements", indexing.scatter_elements)
    add("ScatterND", indexing.scatter_nd)
    add("TensorScatter", indexing.tensor_scatter)
    add("OneHot", indexing.one_hot)
    add("com.microsoft::MoE", indexing.experts, indexing.keep_input)
    add("com.microsoft::QMoE", indexing.experts)
    add("ConvTranspose", windows.conv_transpose, contraction.add_bias_once)
    add("Conv com.microsoft::FusedConv", windows.conv, windows.localize_conv)
    add("MaxPool AveragePool LpPool", windows.pool, windows.pad_own_edges)
    add("GlobalMaxPool GlobalLpPool", windows.global_pool)
    add("GlobalAveragePool", windows.global_pool, reduction.divide_mean)
    return table
