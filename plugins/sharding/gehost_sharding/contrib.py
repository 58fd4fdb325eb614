"""Result shapes of operators that onnx infers none for: most are ONNX Runtime's."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from typing import Any, TypeAlias

import onnx
from onnx import defs, helper

from gehost_sharding.sharding import Shape

DOMAIN = "com.microsoft"
Shapes: TypeAlias = list["Shape | None"]
ShapeFunction = Callable[[Shapes, Callable[[str, Any], Any]], Shapes]
"""Shapes of the results, by those of the operands (None if left out) and the attributes."""


def _same(operands: Shapes, _attribute: Callable[[str, Any], Any]) -> Shapes:
    return [operands[0]]


def _skip(operands: Shapes, _attribute: Callable[[str, Any], Any]) -> Shapes:
    """The norm, mean and deviation of each row, and the sum."""
    x = operands[0]
    if x is None:
        return []
    return [x, (*x[:-1], 1), (*x[:-1], 1), x]


def _same_twice(operands: Shapes, _attribute: Callable[[str, Any], Any]) -> Shapes:
    return [operands[0], operands[0]]


def _multi_head(operands: Shapes, attribute: Callable[[str, Any], Any]) -> Shapes:
    """(b, q, h·d), (b, k, h·d), (b, k, h·v) -> (b, q, h·v), and keys and values by head."""
    query, key, value, past = operands[0], operands[1], operands[2], operands[6]
    heads = attribute("num_heads", 1)
    if query is None or key is None or value is None or len(query) != 3 or len(key) == 5:
        return []
    results: Shapes = [(query[0], query[1], value[2] if len(value) == 3 else heads * value[3])]
    before = past[2] if past is not None else 0
    for new in (key, value):
        size = new[2] // heads if len(new) == 3 else new[3]
        results.append((query[0], heads, before + new[-2], size))
    return results


def _packed(operands: Shapes, attribute: Callable[[str, Any], Any]) -> Shapes:
    """(b, s, i), (i, q+k+v) -> (b, s, v), and keys and values by head."""
    x, weights, past, heads = operands[0], operands[1], operands[4], attribute("num_heads", 1)
    if x is None or weights is None:
        return []
    sizes = attribute("qkv_hidden_sizes", None) or [weights[1] // 3] * 3
    before = past[3] if past is not None else 0
    return [(x[0], x[1], sizes[2]), (2, x[0], heads, before + x[1], sizes[0] // heads)]


def _group_query(operands: Shapes, attribute: Callable[[str, Any], Any]) -> Shapes:
    """As the query; the present has no size where past and present share a buffer."""
    query, key, past = operands[0], operands[1], operands[3]
    heads, kv_heads = attribute("num_heads", 1), attribute("kv_num_heads", 1)
    if query is None:
        return []
    size = query[2] // (heads if key is not None else heads + 2 * kv_heads)
    present = None
    if past is not None:
        present = (query[0], kv_heads, past[2] + query[1], size)
    return [(query[0], query[1], heads * size), present, present]


RESULTS: dict[str, ShapeFunction] = {
    "Attention": _packed,
    "BiasGelu": _same,
    "FastGelu": _same,
    "Gelu": _same,
    "GroupNorm": _same,
    "GroupNormalization": _same,
    "GroupQueryAttention": _group_query,
    "MultiHeadAttention": _multi_head,
    "MoE": _same,
    "QMoE": _same,
    "QuickGelu": _same,
    "RotaryEmbedding": _same,
    "SimplifiedLayerNormalization": _same,
    "SkipGroupNorm": _same_twice,
    "SkipLayerNormalization": _skip,
    "SkipSimplifiedLayerNormalization": _skip,
}
_OF_ONNX = ("GroupNormalization", "SimplifiedLayerNormalization")
"""Operators above that stand in ONNX's own domain."""


def node_to_infer(node: onnx.NodeProto) -> onnx.NodeProto:
    """A node whose results onnx infers while ``contrib_shapes`` is open; else the node itself."""
    is_fused_conv = (node.domain, node.op_type) == (DOMAIN, "FusedConv")
    if not is_fused_conv and (node.domain or node.op_type not in _OF_ONNX):
        return node
    result = onnx.NodeProto()
    result.CopyFrom(node)
    if is_fused_conv:  # a Conv whose sum and activation leave the shape as it is
        result.domain, result.op_type = "", "Conv"
        del result.input[3:]
    else:
        result.domain = DOMAIN
    return result


@contextmanager
def contrib_shapes(nodes: Sequence[onnx.NodeProto]) -> Generator[None]:
    """Let onnx infer the results of these operators while the block runs."""
    ops = {node.op_type for node in nodes if node.domain == DOMAIN} & RESULTS.keys()
    ops = {op for op in ops if not defs.has(op, DOMAIN)}
    for op in ops:
        defs.register_schema(_schema(op, RESULTS[op]))
    try:
        yield
    finally:
        for op in ops:
            defs.deregister_schema(op, 1, DOMAIN)


def _schema(op: str, results: ShapeFunction) -> defs.OpSchema:
    parameter, many = defs.OpSchema.FormalParameter, defs.OpSchema.FormalParameterOption.Variadic
    types = defs.get_schema("Identity", 13).type_constraints[0].allowed_type_strs
    schema = defs.OpSchema(
        op,
        DOMAIN,
        1,
        inputs=[parameter("operands", "T", param_option=many, is_homogeneous=False)],
        outputs=[parameter("results", "T", param_option=many, is_homogeneous=False)],
        type_constraints=[("T", types, "")],
    )

    def infer(context: Any) -> None:  # its types do not say that a type or attribute may lack
        def attribute(name: str, default: Any) -> Any:
            entry = context.get_attribute(name)
            return default if entry is None else helper.get_attribute_value(entry)

        kinds: list[onnx.TypeProto | None] = [
            context.get_input_type(slot) for slot in range(context.get_num_inputs())
        ]
        shapes = [_shape(kind) for kind in kinds]
        for index, kind in enumerate(kinds):
            if kind is not None and kind.HasField("tensor_type") and shapes[index] is None:
                return  # an operand is there, but its shape is open
        shapes += [None] * (8 - len(shapes))
        every = results(shapes, attribute)[: context.get_num_outputs()]
        for index, shape in enumerate(every):
            if shape is not None and kinds[0] is not None:
                elem_type = kinds[0].tensor_type.elem_type
                context.set_output_type(index, helper.make_tensor_type_proto(elem_type, shape))

    schema.set_type_and_shape_inference_function(infer)
    return schema


def _shape(kind: onnx.TypeProto | None) -> Shape | None:
    if kind is None or not kind.tensor_type.HasField("shape"):
        return None
    dims = kind.tensor_type.shape.dim
    if not all(dim.HasField("dim_value") for dim in dims):
        return None
    return tuple(dim.dim_value for dim in dims)
