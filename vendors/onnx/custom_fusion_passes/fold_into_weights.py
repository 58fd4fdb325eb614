"""Scales and shifts by channel folded into the weights before them.

``x, w, (b) → Conv → y·f + s``   ==>   ``x, w·f, b·f + s → Conv``
f and s come from BatchNormalization, Mul, Div, Add or Sub; so with ConvTranspose, Gemm, MatMul.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from gehost import (
    REG_FUSION_PASS,
    CustomPassStage,
    DataType,
    EsGraphBuilder,
    FusionBasePass,
    Refusal,
    Region,
    es,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import onnx

    from gehost import CustomPassContext, Graph, Node, Value

_Array = np.ndarray[Any, np.dtype[Any]]

AFFINE = ("BatchNormalization", "Mul", "Div", "Add", "Sub")
FLOATS = (DataType.FLOAT, DataType.DOUBLE, DataType.FLOAT16, DataType.BFLOAT16)


class Affine(NamedTuple):
    """``y·factor + shift`` by channel: each one number, or one for each channel."""

    value: Value
    factor: _Array
    shift: _Array


_SHIFTS = ("Add", "Sub")


class _FoldIntoWeightsPass(FusionBasePass):
    """What both passes share: the walk, and the conditions of every operator."""

    shape_proven = True
    """A scale by channel keeps the shape, and the new node has the shape of the old one."""
    ops: tuple[str, ...] = ()

    def Run(self, graph: Graph, context: CustomPassContext) -> None:
        for node in graph.nodes_of(*AFFINE):
            producers = [None if one is None else one.producer for one in node.inputs[:2]]
            product = next((one for one in producers if one and one.op in self.ops), None)
            if product is None or (product.op == "MatMul" and node.op in _SHIFTS):
                continue  # a MatMul has no bias: nothing to explain at every linear layer
            folded = _folded(node, product)
            if isinstance(folded, str):
                context.refuse(node, folded)
                continue
            region = Region.of_nodes([product, node])
            if not region:
                context.refuse(node, region.reason)
                continue
            assert not isinstance(region, Refusal)
            builder = EsGraphBuilder("folded")
            inputs = dict(zip(region.inputs, builder.CreateInputs(len(region.inputs)), strict=True))
            x = product.inputs[0]
            assert x is not None
            attributes = {name: value for name, value in product.attrs.items() if name != "beta"}
            result = es.op(product.op)(inputs[x], *folded, **attributes)
            weights = [one for one in product.inputs[1:] if one is not None]
            if context.replace(region, builder.BuildAndReset([result])):
                for weight in weights:
                    context.folds_weight(weight)


@REG_FUSION_PASS(stage=CustomPassStage.kAfterBuiltinFusionPass, min_opset=7)
class FoldIntoConvPass(_FoldIntoWeightsPass):
    """Fold a scale or shift by channel into a Conv or ConvTranspose.

    Forms: BatchNormalization; Mul, Div, Add, Sub with a constant of one number, or one for each
        channel; several in a row; with and without a bias; any rank, groups, pads and strides.
    Shapes: w [M, C/group, …] (ConvTranspose: [C, M/group, …]); bias [M].
    Keeps: the numbers but for rounding: new weights are computed in float64 and rounded once.
    Refuses: ``training``: BatchNormalization in training mode, or with further outputs;
    ``weights``: not constant, or also read by others; ``shared``: the product is read by others;
    ``channel``: a constant that is not one number for each channel; ``overflow``, ``underflow``:
    a new weight that the type cannot hold; ``dtype``: not floating point.
    Source: ONNX Conv-11, BatchNormalization-15.
    """

    ops = ("Conv", "ConvTranspose")

    def Instances(self) -> Iterator[onnx.ModelProto]:
        """Yield a model for each operator."""
        norm = "y = BatchNormalization (c, scale, beta, mean, variance)"
        vectors = dict.fromkeys(("scale", "beta", "mean", "variance", "b"), (4,))
        yield _instance(
            "float[N, 4, L] x", "c = Conv <group = 2> (x, w, b)", norm, w=(4, 2, 3), **vectors
        )
        image = "float[N, 2, 5, 6] x"
        yield _instance(
            image,
            "c = Conv <strides = [2, 1]> (x, w)",
            "y = Mul (c, k)",
            w=(4, 2, 1, 3),
            k=(4, 1, 1),
        )
        yield _instance(
            image,
            "c = ConvTranspose <group = 2> (x, w)",
            "y = Add (k, c)",
            w=(2, 3, 2, 2),
            k=(6, 1, 1),
        )
        yield _instance(
            image,
            "c = ConvTranspose (x, w, b)",
            "y = Div (c, k)",
            w=(2, 4, 2, 2),
            b=(4,),
            k=(1, 4, 1, 1),
        )
        yield _instance(image, "c = Conv (x, w)", "y = Sub (c, k)", w=(4, 2, 1, 3), k=())


@REG_FUSION_PASS(stage=CustomPassStage.kAfterBuiltinFusionPass, min_opset=7)
class FoldIntoMatMulPass(_FoldIntoWeightsPass):
    """Fold a scale or shift by column into a Gemm; into a MatMul a scale.

    Forms, Keeps, Refuses: as ``FoldIntoConvPass``; ``shift``: one behind a MatMul, which has no
    bias.
    Shapes: w [K, N] (Gemm with transB: [N, K]); bias of one number, or [N].
    Source: ONNX Gemm-13, MatMul-13.
    """

    ops = ("Gemm", "MatMul")

    def Instances(self) -> Iterator[onnx.ModelProto]:
        """Yield a model for each operator."""
        rows = "float[N, 3] x"
        yield _instance(
            rows,
            "c = Gemm <alpha = 0.5, beta = 2.0> (x, w, b)",
            "y = Mul (c, k)",
            w=(3, 4),
            b=(4,),
            k=(4,),
        )
        yield _instance(rows, "c = Gemm <transB = 1> (x, w)", "y = Sub (c, k)", w=(4, 3), k=(1, 4))
        yield _instance(rows, "c = MatMul (x, w)", "y = Mul (k, c)", w=(3, 4), k=())


def _instance(
    inputs: str, product: str, affine: str, **weights: tuple[int, ...]
) -> onnx.ModelProto:
    """Return a model of two nodes; ``weights`` are shapes of positive random numbers."""
    import onnx

    rng = np.random.default_rng(0)
    model = onnx.parser.parse_model(
        '<ir_version: 10, opset_import: ["": 17]> '
        f"g ({inputs}) => (float y) {{ {product} {affine} }}"
    )
    model.graph.output[0].type.tensor_type.ClearField("shape")
    model.graph.initializer.extend(
        onnx.numpy_helper.from_array(rng.uniform(0.1, 1, shape).astype(np.float32), name)
        for name, shape in weights.items()
    )
    return model


def _folded(node: Node, product: Node) -> list[_Array] | str:
    """Return the new weights and bias, or why there are none."""
    w, *biases = product.inputs[1:]
    x = product.inputs[0]
    if x is None or w is None or w.dtype not in FLOATS or x.dtype != w.dtype:
        return "dtype: not floating point, or not one"
    output = product.outputs[0]
    if output is None or output.is_graph_output or len(output.uses) != 1:
        return "shared: the product is read by others, too"
    weights = [one for one in (w, *biases) if one is not None]
    if any(one.array is None for one in weights):
        return "weights: not constant"
    if len(w.uses) != 1:
        return "weights: read by others, too"
    array = np.asarray(w.array, np.float64)
    bias = np.asarray(weights[1].array, np.float64) if len(weights) > 1 else None
    layout = _layout(product, array)
    if isinstance(layout, str):
        return layout
    count, scaled = layout
    affine = _affine(node, output, count, axis=1 if product.op.startswith("Conv") else -1)
    if isinstance(affine, str):
        return affine
    if bias is not None:
        bias = bias.reshape(-1) * float(product.attrs.get("beta", 1.0))
        if bias.size not in (1, count):
            return "weights: the bias is not one number for each channel"
    with np.errstate(all="ignore"):
        new = [scaled(np.broadcast_to(affine.factor, (count,)))]
        if bias is not None or affine.shift.any():
            shifted = (0.0 if bias is None else bias) * affine.factor + affine.shift
            new.append(np.array(np.broadcast_to(shifted, (count,))))
    if len(new) > 1 and product.op == "MatMul":
        return "shift: a MatMul has no bias"
    return _rounded(new, [array], w.dtype)


def _layout(product: Node, w: _Array) -> tuple[int, Callable[[_Array], _Array]] | str:
    """Return the number of channels of a product, and its weights as a function of factors."""
    rest = [1] * (w.ndim - 2)
    if product.op == "Conv" and w.ndim > 2:
        return w.shape[0], lambda factor: w * factor.reshape(-1, 1, *rest)
    if product.op == "ConvTranspose" and w.ndim > 2:
        groups = int(product.attrs.get("group", 1))
        channels, columns = w.shape[:2]
        if channels % groups:
            return "weights: not of these groups"
        apart = w.reshape(groups, channels // groups, columns, *w.shape[2:])
        return groups * columns, lambda factor: (
            apart * factor.reshape(groups, 1, columns, *rest)
        ).reshape(w.shape)
    if product.op in ("Gemm", "MatMul") and w.ndim == 2:
        if product.attrs.get("transB", 0):
            return w.shape[0], lambda factor: w * factor[:, None]
        return w.shape[1], lambda factor: w * factor
    return "weights: not of the rank of a product by channel"


def _affine(node: Node, value: Value, count: int, *, axis: int) -> Affine | str:
    """Return the factor and the shift of a node by channel, or why there is none."""
    if node.op == "BatchNormalization":
        return _normalization(node, value, count)
    left, right = node.inputs
    constant = right if left is value else left
    array = None if constant is None else constant.array
    if left is right or array is None:
        return "weights: not constant"
    if value.rank is None or (node.op == "Div" and constant is left):
        return "channel: not a scale or shift by channel"
    if array.ndim > value.rank:
        return "channel: the constant has more axes"
    place = axis % value.rank
    sizes = [1] * (value.rank - array.ndim) + list(array.shape)
    if any(size != 1 and (one != place or size != count) for one, size in enumerate(sizes)):
        return "channel: not one number for each channel"
    numbers = np.asarray(array, np.float64).reshape(-1)
    zero, one = np.zeros(1), np.ones(1)
    if node.op == "Mul":
        return Affine(value, numbers, zero)
    if node.op == "Div":
        return Affine(value, one / numbers, zero) if numbers.all() else "overflow: divides by 0"
    if node.op == "Add":
        return Affine(value, one, numbers)
    return Affine(value, one, -numbers) if constant is right else Affine(value, -one, numbers)


def _normalization(node: Node, value: Value, count: int) -> Affine | str:
    if node.attrs.get("training_mode") or any(one is not None for one in node.outputs[1:]):
        return "training: it has more than one output"
    if node.inputs[0] is not value or not node.attrs.get("spatial", 1):
        return "channel: not by channel"
    arrays = [None if one is None else one.array for one in node.inputs[1:]]
    if any(array is None for array in arrays):
        return "weights: not constant"
    scale, beta, mean, variance = (np.asarray(array, np.float64) for array in arrays)
    if any(one.shape != (count,) for one in (scale, beta, mean, variance)):
        return "channel: scale, bias, mean and variance are not all [M]"
    with np.errstate(all="ignore"):
        factor = scale / np.sqrt(variance + float(node.attrs.get("epsilon", 1e-5)))
        return Affine(value, factor, beta - mean * factor)


def _rounded(new: list[_Array], old: list[_Array], dtype: DataType) -> list[_Array] | str:
    """Round new weights once, to their type."""
    with np.errstate(all="ignore"):
        arrays = [array.astype(dtype.numpy) for array in new]
    if not all(np.isfinite(array.astype(np.float64)).all() for array in arrays):
        return "overflow: a new weight is not finite"
    smallest = np.finfo(np.float32).tiny if dtype is not DataType.FLOAT16 else 2.0**-14
    for array, before in zip(new, old, strict=False):
        lost = (np.abs(array) < smallest) & (array != 0) & (np.abs(before) >= smallest)
        if lost.any():
            return "underflow: a new weight is too small for its type"
    return arrays
