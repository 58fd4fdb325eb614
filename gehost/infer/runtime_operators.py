"""Result types of ONNX Runtime's own operators, which ONNX's inference does not know.

Read in the operators' documentation; the tests compare them with what the runtime infers. A shape
stands here where it follows from the operands' shapes and the attributes; of other operators only
the element type is known.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, TypeAlias

from gehost.ir.graph import split_op
from gehost.ir.types import DataType, Dim, TensorType, ValueType

DOMAIN = "com.microsoft"
_IN_ONNX = "SimplifiedLayerNormalization"
"""The runtime's operator in the domain of ONNX."""
_Types: TypeAlias = Sequence["TensorType | None"]
_Shape: TypeAlias = "tuple[Dim, ...] | None"
_Shapes: TypeAlias = list[_Shape]
_Attributes: TypeAlias = Mapping[str, Any]


def _first(shapes: _Shapes, _attributes: _Attributes) -> _Shapes:
    return [shapes[0]]


def _skip(shapes: _Shapes, _attributes: _Attributes) -> _Shapes:
    """The norm, mean and deviation of each row, and the sum."""
    x = shapes[0]
    row = None if x is None else (*x[:-1], 1)
    return [x, row, row, x]


def _first_twice(shapes: _Shapes, _attributes: _Attributes) -> _Shapes:
    return [shapes[0], shapes[0]]


def _half_as_wide(shapes: _Shapes, _attributes: _Attributes) -> _Shapes:
    x = shapes[0]
    if not x:
        return []
    return [(*x[:-1], x[-1] // 2 if isinstance(x[-1], int) else None)]


def _weights_of_bits(shapes: _Shapes, attributes: _Attributes) -> _Shapes:
    """[..., K] -> [..., N]."""
    x, width = shapes[0], attributes.get("N")
    return [(*x[:-1], width)] if x and isinstance(width, int) else []


def _product(shapes: _Shapes, attributes: _Attributes) -> _Shapes:
    """Matrices of at least two axes, perhaps transposed."""
    first, second = shapes[0], shapes[1]
    batches = attributes.get("transBatchA", 0) or attributes.get("transBatchB", 0)
    if first is None or second is None or min(len(first), len(second)) < 2 or batches:
        return []
    rows = first[-1 if attributes.get("transA", 0) else -2]
    columns = second[-2 if attributes.get("transB", 0) else -1]
    return [(*_broadcast(first[:-2], second[:-2]), rows, columns)]


def _elementwise(first: int, second: int) -> Callable[[_Shapes, _Attributes], _Shapes]:
    def results(shapes: _Shapes, _attributes: _Attributes) -> _Shapes:
        a, b = shapes[first], shapes[second]
        return [] if a is None or b is None else [_broadcast(a, b)]

    return results


def _broadcast(first: tuple[Dim, ...], second: tuple[Dim, ...]) -> tuple[Dim, ...]:
    rank = max(len(first), len(second))
    pairs = zip(
        (1,) * (rank - len(first)) + first, (1,) * (rank - len(second)) + second, strict=True
    )
    return tuple([_wider(a, b) for a, b in pairs])


def _wider(a: Dim, b: Dim) -> Dim:
    """Return the size of two axes together, None where that is open."""
    if b == 1 or (a is not None and a == b):
        return a
    if a == 1:
        return b
    # the other is equal or 1
    return next((size for size in (a, b) if isinstance(size, int)), None)


def _packed_attention(shapes: _Shapes, attributes: _Attributes) -> _Shapes:
    """[B, S, I], weights [I, q + k + v] -> [B, S, v], and keys and values by head."""
    x, weights = shapes[0], shapes[1]
    if x is None or len(x) != 3:
        return []
    sizes: Sequence[int] = attributes.get("qkv_hidden_sizes") or ()
    width: Dim = None
    if len(sizes) == 3:
        width = sizes[2]
    elif weights is not None and len(weights) == 2 and isinstance(weights[1], int):
        width = weights[1] // 3
    heads = attributes.get("num_heads")
    return [(x[0], x[1], width), (2, x[0], heads, None, _quotient(width, heads))]


def _multi_head_attention(shapes: _Shapes, attributes: _Attributes) -> _Shapes:
    """Of q [B, S, H·D] and v [B, T, H·E] or [B, H, T, E], or both in one [B, S, H, 3, D]."""
    query, value, heads = shapes[0], shapes[2], attributes.get("num_heads")
    if query is None or len(query) not in (3, 5):
        return []
    width: Dim = None
    if len(query) == 5:
        width = _times(heads, query[4])
    elif value is not None:
        width = value[2] if len(value) == 3 else _times(heads, value[-1])
    batch = query[0]
    size = _quotient(query[2], heads) if len(query) == 3 else query[4]
    return [
        (batch, query[1], width),
        (batch, heads, None, size),
        (batch, heads, None, _quotient(width, heads)),
    ]


def _group_query_attention(shapes: _Shapes, attributes: _Attributes) -> _Shapes:
    """As the query; its heads alone where keys and values are packed with it."""
    query, key = shapes[0], shapes[1]
    heads, groups = attributes.get("num_heads"), attributes.get("kv_num_heads")
    if query is None or len(query) != 3 or not isinstance(heads, int) or not heads:
        return []
    width = query[2]
    if key is None:
        together = heads + 2 * groups if isinstance(groups, int) else None
        width = _times(heads, _quotient(width, together))
    # caches of 4 bits hold two numbers in a byte
    packed = attributes.get("kv_cache_bit_width", 0) == 4
    cache = (query[0], groups, None, None if packed else _quotient(width, heads))
    return [(query[0], query[1], width), cache, cache]


def _embeddings(shapes: _Shapes, _attributes: _Attributes) -> _Shapes:
    ids, words = shapes[0], shapes[2]
    if ids is None or len(ids) != 2:
        return []
    rows = (*ids, words[1] if words is not None and len(words) == 2 else None)
    return [rows, (ids[0],), rows]


def _gemm(shapes: _Shapes, attributes: _Attributes) -> _Shapes:
    first, second = shapes[0], shapes[1]
    return _product([first, second], attributes) if first and len(first) == 2 else []


def _times(first: Any, second: Any) -> Dim:
    return first * second if isinstance(first, int) and isinstance(second, int) else None


def _quotient(size: Any, by: Any) -> Dim:
    return size // by if isinstance(size, int) and isinstance(by, int) and by > 0 else None


_SHAPES: Mapping[str, Callable[[_Shapes, _Attributes], _Shapes]] = MappingProxyType(
    {
        **dict.fromkeys(
            (
                *("BiasAdd", "BiasDropout", "BiasGelu", "BiasSoftmax", "DequantizeLinear"),
                *("FastGelu", "Gelu", "GroupNorm", "Inverse", "LongformerAttention", "MoE"),
                *("QLinearLeakyRelu", "QLinearSigmoid", "QLinearSoftmax", "QMoE"),
                *("QuantizeLinear", "QuickGelu", "RotaryEmbedding", "Trilu"),
            ),
            _first,
        ),
        "Attention": _packed_attention,
        "BiasSplitGelu": _half_as_wide,
        "DecoderMaskedMultiHeadAttention": _multi_head_attention,
        "DynamicQuantizeMatMul": _product,
        "EmbedLayerNormalization": _embeddings,
        "FusedGemm": _gemm,
        "FusedMatMul": _product,
        "FusedMatMulActivation": _product,
        "GroupQueryAttention": _group_query_attention,
        "MatMulBnb4": _weights_of_bits,
        "MatMulInteger16": _product,
        "MatMulIntegerToFloat": _product,
        "MatMulNBits": _weights_of_bits,
        "MultiHeadAttention": _multi_head_attention,
        "QAttention": _packed_attention,
        "QEmbedLayerNormalization": _embeddings,
        "QLinearAdd": _elementwise(0, 3),
        "QLinearMul": _elementwise(0, 3),
        "SimplifiedLayerNormalization": _first,
        "SkipGroupNorm": _first_twice,
        "SkipLayerNormalization": _skip,
        "SkipSimplifiedLayerNormalization": _skip,
        "TransposeMatMul": _product,
    }
)

_FLOAT, _INT32 = DataType.FLOAT, DataType.INT32
_ELEMENTS: Mapping[str, Sequence[int | DataType | None]] = MappingProxyType(
    {
        "BiasDropout": (0, DataType.BOOL),
        "DequantizeLinear": (1,),
        "EmbedLayerNormalization": (2, 0, 2),
        "GatherBlockQuantized": (2,),
        "GemmaRotaryEmbedding": (1, 1),
        "GroupQueryAttention": (0, 3, 4),
        "LinearAttention": (0, 3),
        "MatMulInteger16": (_INT32,),
        "MatMulIntegerToFloat": (2,),
        "NGramRepeatBlock": (1,),
        "PagedAttention": (0, 3, 4),
        "QAttention": (3, 3),
        "QEmbedLayerNormalization": (8, 0),
        "QLinearConcat": (1,),
        "QLinearConv": (7,),
        "QLinearWhere": (1,),
        "QuantizeLinear": (2,),
        "SimplifiedLayerNormalization": (1, _FLOAT),
        "SkipLayerNormalization": (0, _FLOAT, _FLOAT, 0),
        "SkipSimplifiedLayerNormalization": (0, _FLOAT, _FLOAT, 0),
        **dict.fromkeys(
            (
                *("Attention", "DecoderMaskedSelfAttention"),
                *("MatMulNBitsMlp", "SkipGroupNorm"),
            ),
            (0, 0),
        ),
        **dict.fromkeys(("DecoderAttention", "DecoderMaskedMultiHeadAttention"), (0, 0, 0)),
        **dict.fromkeys(("MultiHeadAttention", "SparseAttention"), (0, 0, 0)),
        "MatMulNBitsQkv": (0, 0, 0, 0),
        **dict.fromkeys(
            (
                *("BiasAdd", "BiasGelu", "BiasSoftmax", "BiasSplitGelu", "BranchwiseRMSNorm"),
                *("CDist", "CausalConvWithState", "ComplexMul", "ComplexMulConj"),
                *("ConvTransposeWithDynamicPads", "CropAndResize", "DynamicQuantizeMatMul"),
                *("ExpandDims", "FastGelu", "FusedConv", "FusedGemm", "FusedMatMul"),
                *("FusedMatMulActivation", "GatedAdd", "GatedRMSNorm", "GatherND", "Gelu"),
                *("GatedRelativePositionBias", "GemmFastGelu", "GroupNorm", "Inverse", "Irfft"),
                *("LongformerAttention", "MRotaryEmbedding", "MatMulBlockQuantizedFp4Weight"),
                *("MatMulBlockQuantizedFp8Weight", "MatMulBnb4", "MatMulFpQ4", "MatMulNBits"),
                *("MaxpoolWithMask", "MoE", "NhwcConv", "NhwcFusedConv", "NhwcMaxPool"),
                *("PackedAttention", "PackedMultiHeadAttention", "Pad", "QLinearAdd"),
                *("QLinearAveragePool", "QLinearGlobalAveragePool", "QLinearLeakyRelu"),
                *("QLinearMul", "QLinearReduceMean", "QLinearSigmoid", "QLinearSoftmax"),
                *("QMoE", "QuickGelu", "Range", "RelativePositionBias", "RemovePadding"),
                *("RestorePadding", "Rfft", "RotaryEmbedding", "SampleOp", "ScaledSiLU"),
                *("TorchEmbedding", "TransposeMatMul", "Trilu", "UnfoldTensor", "Unique"),
            ),
            (0,),
        ),
    }
)
"""The element type of each result: that of an operand, by its place, or one of its own."""


def result_types(
    op: str, types: Sequence[ValueType | None], attributes: Mapping[str, Any], count: int
) -> tuple[ValueType | None, ...]:
    """Return the types of an operator's results; None for those that are not known.

    Args:
        op: ``domain::Type``.
        types: of the operands, None for one that is not known or left out.
        attributes: of the node.
        count: of the results.
    """
    domain, name = split_op(op)
    elements = _ELEMENTS.get(name, ()) if (domain or op) in (DOMAIN, _IN_ONNX) else ()
    operands = [kind if isinstance(kind, TensorType) else None for kind in types]
    operands += [None] * (10 - len(operands))
    rule = _SHAPES.get(name)
    shapes = [kind and kind.shape for kind in operands]
    sizes = rule(shapes, attributes) if rule is not None and elements else []
    results: list[ValueType | None] = []
    for place in range(count):
        dtype = _element(operands, elements[place] if place < len(elements) else None)
        shape = sizes[place] if place < len(sizes) else None
        results.append(None if dtype is None else TensorType(dtype, shape))
    return tuple(results)


def _element(operands: _Types, source: int | DataType | None) -> DataType | None:
    if source is None or isinstance(source, DataType):
        return source
    kind = operands[source]
    return None if kind is None or not kind.dtype else kind.dtype
