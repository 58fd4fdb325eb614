"""What each operator of ``ge.es`` becomes: GE's published signature, and ONNX's operators.

A name is in one table: ``SAME`` has ONNX's inputs and no attributes, ``FORMS`` is written out
below, ``REFUSED`` has no equal. Names of ONNX that GE does not publish are ONNX's operators.

Source: the documented operators of GE and ONNX.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from gehost import DataType, EsTensor, Node, es
from gehost_ge.builder import in_pattern
from gehost_ge.errors import GeError
from gehost_ge.types import DataType as GeDataType
from gehost_ge.types import to_onnx


def _text(parameter: inspect.Parameter) -> str:
    default = parameter.default
    if isinstance(default, GeDataType):
        return f"{parameter.name}={default.name}"
    return parameter.name if default is parameter.empty else f"{parameter.name}={default!r}"


def _fits(node: Node) -> str:
    del node
    return ""


@dataclass(frozen=True)
class Form:
    """An operator under GE's name.

    Attributes:
        call: builds it; its signature is the published one. Parameters annotated as ``EsTensor``
            are inputs.
        onnx: the operator of a model that GE's name stands for, ``""`` if it is several.
        misfit: says why a node of ``onnx`` is none of GE's operator, ``""`` if it is.
    """

    call: Callable[..., Any]
    onnx: str
    misfit: Callable[[Node], str] = _fits

    @property
    def signature(self) -> inspect.Signature:
        return inspect.signature(self.call)

    @property
    def published(self) -> str:
        """The parameters as GE documents them."""
        return ", ".join(map(_text, self.signature.parameters.values()))

    @property
    def here(self) -> str:
        """What it becomes, for the page."""
        return (self.call.__doc__ or f"`{self.onnx}`").partition("\n")[0].removesuffix(".")

    def is_input(self, parameter: inspect.Parameter) -> bool:
        """Whether numbers of a pattern stand for any constant there."""
        return "EsTensor" in str(parameter.annotation)


_SAME = {
    "x": """
        Abs Acos Acosh Asin Asinh Atan Atanh BitwiseNot Ceil Cos Cosh Det Erf Floor
        GlobalAveragePool HardSwish Identity Mish Neg Reciprocal Relu Round Selu Sigmoid Sign Sin
        Sinh Softplus Softsign Sqrt Tan Tanh""",
    "x1 x2": "Add BitwiseAnd BitwiseOr BitwiseXor Div Equal Greater Less Mul Pow Sub",
    "x shape": "Expand",
    "x multiples": "Tile",
}
SAME = {name: parameters for parameters, names in _SAME.items() for name in names.split()}
"""Operators of one name, the same inputs and no attributes; the inputs have GE's names."""

RENAMED = {
    "AddV2": ("x1 x2", "Add"),
    "BiasAdd": ("x bias", "Add"),
    "BroadcastTo": ("x shape", "Expand"),
    "ClipByValue": ("x clip_value_min clip_value_max", "Clip"),
    "GreaterEqual": ("x1 x2", "GreaterOrEqual"),
    "IsNan": ("x", "IsNaN"),
    "LessEqual": ("x1 x2", "LessOrEqual"),
    "LogicalAnd": ("x1 x2", "And"),
    "LogicalNot": ("x", "Not"),
    "LogicalOr": ("x1 x2", "Or"),
    "Maximum": ("x1 x2", "Max"),
    "Minimum": ("x1 x2", "Min"),
    "RealDiv": ("x1 x2", "Div"),
    "SelectV2": ("condition then else_", "Where"),
    "TensorMove": ("x", "Identity"),
}
"""Operators with the same inputs and no attributes that ONNX calls otherwise."""

REFUSED = {
    "ArgMax": ("x, dimension", "ArgMaxV2(x, dimension) is GE's name"),
    "BlackmanWindow": ("window_length, periodic", ""),
    "Celu": ("x, alpha1, alpha2, alpha3", "use CeluV2(x, alpha)"),
    "Compress": ("weight, …: it packs weights", ""),
    "Const": ("value", "use create_const_… or create_scalar_… of GraphBuilder"),
    "Constant": ("value", "use create_const_… or create_scalar_… of GraphBuilder"),
    "DequantizeLinear": ("x, x_scale, x_zero_point, …, its own attributes", ""),
    "Dropout": ("x, dropout_ratio, scale_train, alpha, beta", ""),
    "Gelu": ("x, without its formula", "use GeluV2(x, approximate='none' or 'tanh')"),
    "GridSample": ("x, grid, interpolation_mode, padding_mode, align_corners", ""),
    "HammingWindow": ("length, periodic, alpha, beta", ""),
    "HannWindow": ("length, periodic", ""),
    "If": ("cond, input, then_branch, else_branch", "bodies are not built here"),
    "IsInf": ("x, without signs", ""),
    "LRN": ("x, depth_radius, bias, alpha, beta, norm_region", ""),
    "LSTM": ("x, cont, w_x, bias, w_h, …", ""),
    "Multinomial": ("logits, num_samples, dtype, seed, seed2", ""),
    "NonMaxSuppression": ("boxes, scores, max_output_size, iou_threshold", ""),
    "NonZero": ("x, transpose, dtype", "use Where(x), which has a row for each number"),
    "OneHot": ("x, depth, on_value, off_value, axis", ""),
    "PRelu": ("x, weight, with a weight for each channel", ""),
    "QuantizeLinear": ("x, y_scale, y_zero_point, …, its own attributes", ""),
    "RNN": ("x, cont, x_static, h_0, w_xh, …", ""),
    "RandomNormal": ("shape, mean, std, …", "a pass keeps the numbers equal"),
    "RandomUniform": ("shape, dtype, seed, seed2", "a pass keeps the numbers equal"),
    "RegexFullMatch": ("x, pattern", ""),
    "STFT": ("x, window, hop_length, …", ""),
    "Select": (
        "condition, x1, x2, with a condition for each row",
        "use SelectV2(condition, then, else_)",
    ),
    "SoftmaxCrossEntropyLoss": ("scores, labels, weights, ignore_index=0, reduction", ""),
    "StringNormalizer": ("x, stopwords, …", ""),
    "StringSplit": ("x, delimiter, skip_empty", ""),
    "Unique": ("x, out_idx", ""),
    "Upsample": ("x, scale, stride_h, stride_w", ""),
}
_SEQUENCES = """
    ConcatFromSequence SequenceAt SequenceConstruct SequenceEmpty SequenceErase SequenceInsert
    SequenceLength SplitToSequence"""
REFUSED.update(dict.fromkeys(_SEQUENCES.split(), ("handle, …", "")))
"""GE's signature of an operator without an equal, and what to use, by default ONNX's operator."""


def refusal(name: str) -> str:
    """Return the line that names what to use in place of an operator."""
    return f"{name}: GE's operator is {name}({REFUSED[name][0]}); {instead_of(name)}"


def instead_of(name: str) -> str:
    """Return what to use in place of an operator that is refused."""
    return REFUSED[name][1] or _own_form(name)


def _own_form(name: str) -> str:
    return f"ONNX's is ge.es.custom.{name}"


FORMS: dict[str, Form] = {}
"""All operators that are called with GE's signature."""


def _same(parameters: str, onnx: str) -> Form:
    def call(*operands: Any) -> Any:
        return es.op(onnx)(*operands)

    kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
    call.__signature__ = inspect.Signature(  # pyright: ignore[reportFunctionMemberAccess]
        [inspect.Parameter(name, kind, annotation="EsTensor") for name in parameters.split()]
    )
    return Form(call, onnx)


FORMS.update({name: _same(parameters, name) for name, parameters in SAME.items()})
FORMS.update({name: _same(names, onnx) for name, (names, onnx) in RENAMED.items()})


def _form(
    *names: str, onnx: str = "", misfit: Callable[[Node], str] = _fits
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Register what an operator becomes, under GE's names for it."""

    def register(call: Callable[..., Any]) -> Callable[..., Any]:
        FORMS.update(dict.fromkeys(names, Form(call, onnx, misfit)))
        return call

    return register


# products


def _swapped(tensor: EsTensor) -> EsTensor:
    swapped = es.Transpose(tensor, perm=[1, 0])
    return es.constrain(swapped, perm=[1, 0]) if in_pattern() else swapped


@_form("MatMulV2", onnx="MatMul")
def _matmul_v2(
    x1: EsTensor,
    x2: EsTensor,
    bias: EsTensor | None = None,
    offset_w: None = None,
    transpose_x1: bool = False,
    transpose_x2: bool = False,
    offset_x: int = 0,
) -> EsTensor:
    """As `MatMul`; no `offset_w`, `offset_x`."""
    _only("MatMulV2", offset_w=(offset_w, None), offset_x=(offset_x, 0))
    return _matmul(x1, x2, bias, transpose_x1, transpose_x2)


@_form("MatMul", onnx="MatMul")
def _matmul(
    x1: EsTensor,
    x2: EsTensor,
    bias: EsTensor | None = None,
    transpose_x1: bool = False,
    transpose_x2: bool = False,
) -> EsTensor:
    """`MatMul`, with `Transpose` and `Add` where they are asked for."""
    left = _swapped(x1) if transpose_x1 else x1
    right = _swapped(x2) if transpose_x2 else x2
    product = es.MatMul(left, right)
    return product if bias is None else product + bias


@_form("BatchMatMul", onnx="MatMul")
def _batch_matmul(
    x1: EsTensor, x2: EsTensor, adj_x1: bool = False, adj_x2: bool = False
) -> EsTensor:
    """`MatMul`; of `adj_x1`, `adj_x2` write the `Transpose`, as the rank is not known here."""
    _only("BatchMatMul", adj_x1=(bool(adj_x1), False), adj_x2=(bool(adj_x2), False))
    return es.MatMul(x1, x2)


@_form("BatchMatMulV2", onnx="MatMul")
def _batch_matmul_v2(
    x1: EsTensor,
    x2: EsTensor,
    bias: EsTensor | None = None,
    offset_w: None = None,
    adj_x1: bool = False,
    adj_x2: bool = False,
    offset_x: int = 0,
) -> EsTensor:
    """As `BatchMatMul`, and `Add`; no `offset_w`, `offset_x`."""
    _only("BatchMatMulV2", offset_w=(offset_w, None), offset_x=(offset_x, 0))
    _only("BatchMatMulV2", adj_x1=(bool(adj_x1), False), adj_x2=(bool(adj_x2), False))
    product = es.MatMul(x1, x2)
    return product if bias is None else product + bias


@_form("GEMM", onnx="Gemm")
def _gemm(
    a: EsTensor,
    b: EsTensor,
    c: EsTensor,
    alpha: Any,
    beta: Any,
    transpose_a: bool = False,
    transpose_b: bool = False,
) -> EsTensor:
    """`Gemm`; `alpha` and `beta` are numbers."""
    flags = {"transpose_a": transpose_a, "transpose_b": transpose_b}
    return es.GEMM(a, b, c, alpha, beta, **{name: 1 for name, flag in flags.items() if flag})


@_form("Einsum", onnx="Einsum")
def _einsum(x: Sequence[EsTensor], equation: str, N: int | None = None) -> EsTensor:
    """`Einsum`."""
    _counted("Einsum", x, N)
    return es.Einsum(*x, equation=equation)


# arithmetic


@_form("AddN", onnx="Sum")
def _add_n(x: Sequence[EsTensor], N: int | None = None) -> EsTensor:
    """`Sum`."""
    _counted("AddN", x, N)
    return es.Sum(*x)


def _logarithmic(name: str) -> None:
    @_form(name, onnx=name)
    def call(x: EsTensor, base: float = -1.0, scale: float = 1.0, shift: float = 0.0) -> EsTensor:
        """To the base e, without `scale` and `shift`: ONNX's of this name."""
        _only(name, base=(base, -1.0), scale=(scale, 1.0), shift=(shift, 0.0))
        return getattr(es, name)(x)

    del call


for _name in ("Exp", "Log"):
    _logarithmic(_name)


@_form(
    "Mod",
    onnx="Mod",
    misfit=lambda node: (
        "" if node.attrs.get("fmod") else f"fmod: GE's Mod has C's sign; {_own_form('Mod')}"
    ),
)
def _mod(x1: EsTensor, x2: EsTensor) -> EsTensor:
    """`Mod` with `fmod` 1."""
    return es.Mod(x1, x2, fmod=1)


@_form("NotEqual")
def _not_equal(x1: EsTensor, x2: EsTensor) -> EsTensor:
    """`Not(Equal)`."""
    return es.Not(es.Equal(x1, x2))


@_form("Rsqrt")
def _rsqrt(x: EsTensor) -> EsTensor:
    """`Reciprocal(Sqrt)`."""
    return es.Reciprocal(es.Sqrt(x))


@_form("Square")
def _square(x: EsTensor) -> EsTensor:
    """`Mul` of `x` with itself."""
    return es.Mul(x, x)


@_form("SquaredDifference")
def _squared_difference(x1: EsTensor, x2: EsTensor) -> EsTensor:
    """`Sub`, then `Mul` with itself."""
    difference = es.Sub(x1, x2)
    return es.Mul(difference, difference)


# activations


@_form("CeluV2", onnx="Celu")
def _celu(x: EsTensor, alpha: float = 1.0) -> EsTensor:
    """`Celu`."""
    return es.Celu(x, alpha=float(alpha))


@_form("Elu", onnx="Elu")
def _elu(x: EsTensor, alpha: float = 1.0, scale: float = 1.0, input_scale: float = 1.0) -> EsTensor:
    """`Elu`, without `scale` and `input_scale`."""
    _only("Elu", scale=(scale, 1.0), input_scale=(input_scale, 1.0))
    return es.Elu(x, alpha=float(alpha))


@_form("GeluV2", onnx="Gelu")
def _gelu(x: EsTensor, approximate: str = "none") -> EsTensor:
    """`Gelu`."""
    return es.Gelu(x, approximate=approximate)


@_form("HardSigmoid", onnx="HardSigmoid")
def _hard_sigmoid(input_x: EsTensor, alpha: float = 1 / 6, beta: float = 0.5) -> EsTensor:
    """`HardSigmoid`."""
    return es.HardSigmoid(input_x, alpha=float(alpha), beta=float(beta))


@_form("LeakyRelu", onnx="LeakyRelu")
def _leaky_relu(x: EsTensor, negative_slope: float = 0.0) -> EsTensor:
    """`LeakyRelu` with this `alpha`."""
    return es.LeakyRelu(x, alpha=float(negative_slope))


@_form("Shrink", onnx="Shrink")
def _shrink(input_x: EsTensor, lambd: float = 0.5, bias: float = 0.0) -> EsTensor:
    """`Shrink`."""
    return es.Shrink(input_x, lambd=float(lambd), bias=float(bias))


@_form("Swish", onnx="Swish")
def _swish(x: EsTensor, scale: float = 1.0) -> EsTensor:
    """`Swish` with this `alpha`."""
    return es.Swish(x, alpha=float(scale))


@_form("ThresholdedRelu", onnx="ThresholdedRelu")
def _thresholded_relu(x: EsTensor, alpha: float = 1.0) -> EsTensor:
    """`ThresholdedRelu`."""
    return es.ThresholdedRelu(x, alpha=float(alpha))


@_form("SoftmaxV2", onnx="Softmax")
def _softmax(x: EsTensor, axes: Sequence[int] = (-1,), half_to_float: bool = False) -> EsTensor:
    """`Softmax`, one axis, without `half_to_float`."""
    _only("SoftmaxV2", half_to_float=(bool(half_to_float), False))
    return es.Softmax(x, axis=_one("SoftmaxV2", axes))


def _one(name: str, axes: Sequence[int]) -> int:
    if len(axes) != 1:
        raise ValueError(f"{name}: in ONNX it has one axis, got {list(axes)}")
    return int(axes[0])


@_form("LogSoftmaxV2", onnx="LogSoftmax")
def _log_softmax(logits: EsTensor, axes: Sequence[int] = (-1,)) -> EsTensor:
    """`LogSoftmax`, one axis."""
    return es.LogSoftmax(logits, axis=_one("LogSoftmaxV2", axes))


# normalization, convolution, pooling


def _not_inference(node: Node) -> str:
    if node.attrs.get("training_mode") or node.attrs.get("spatial", 1) != 1:
        return "training: BatchNorm stands for inference"
    return "training: BatchNorm stands for inference" if len(node.outputs) > 1 else ""


@_form("BatchNorm", onnx="BatchNormalization", misfit=_not_inference)
def _batch_norm(
    x: EsTensor,
    scale: EsTensor,
    offset: EsTensor,
    mean: EsTensor,
    variance: EsTensor,
    epsilon: float = 1e-4,
    data_format: str = "NHWC",
    is_training: bool = True,
    exponential_avg_factor: float = 1.0,
) -> dict[str, EsTensor]:
    """`BatchNormalization`: NCHW, `is_training=False`, output `y` alone."""
    del exponential_avg_factor
    _only("BatchNorm", data_format=(data_format, "NCHW"), is_training=(bool(is_training), False))
    result = es.BatchNormalization(x, scale, offset, mean, variance, epsilon=float(epsilon))
    return {"y": result}


@_form("LayerNorm", onnx="LayerNormalization")
def _layer_norm(
    x: EsTensor,
    gamma: EsTensor,
    beta: EsTensor,
    begin_norm_axis: int = 0,
    begin_params_axis: int = 0,
    epsilon: float = 1e-7,
) -> dict[str, EsTensor]:
    """`LayerNormalization`: both axes equal, output `y` alone."""
    _only("LayerNorm", begin_params_axis=(begin_params_axis, begin_norm_axis))
    axis = int(begin_norm_axis)
    return {"y": es.LayerNormalization(x, gamma, beta, axis=axis, epsilon=float(epsilon))}


def _not_a_plane(node: Node) -> str:
    ranks = [
        None if value is None or value.shape is None else len(value.shape)
        for value in node.inputs[:2]
    ]
    return "" if 4 in ranks else "rank: Conv2D is of images of rank 4"


@_form("Conv2D", onnx="Conv", misfit=_not_a_plane)
def _conv2d(
    x: EsTensor,
    filter: EsTensor,  # noqa: A002 - GE's name
    bias: EsTensor | None = None,
    offset_w: None = None,
    strides: Sequence[int] | None = None,
    pads: Sequence[int] | None = None,
    dilations: Sequence[int] = (1, 1, 1, 1),
    groups: int = 1,
    data_format: str = "NHWC",
    offset_x: int = 0,
) -> EsTensor:
    """`Conv`: NCHW; no `offset_w`, `offset_x`."""
    if strides is None or pads is None:
        raise TypeError("Conv2D: missing a required argument: 'strides' and 'pads'")
    _only("Conv2D", offset_w=(offset_w, None), offset_x=(offset_x, 0))
    _only("Conv2D", data_format=(data_format, "NCHW"))
    top, bottom, left, right = pads
    return es.Conv(
        *(tensor for tensor in (x, filter, bias) if tensor is not None),
        strides=list(strides[2:]),
        pads=[top, left, bottom, right],
        dilations=list(dilations[2:]),
        group=groups,
    )


@_form("GlobalLpPool", onnx="GlobalLpPool")
def _global_lp_pool(x: EsTensor, p: float = 2.0) -> EsTensor:
    """`GlobalLpPool`; `p` is whole."""
    if p != int(p):
        raise ValueError(f"GlobalLpPool: ONNX's p is a whole number, got {p}")
    return es.GlobalLpPool(x, p=int(p))


def _other_padding(node: Node) -> str:
    attributes = node.attrs
    fits = (
        attributes.get("auto_pad", "NOTSET") in ("NOTSET", "SAME_UPPER", "VALID")
        and not any(attributes.get("pads", ()))
        and set(attributes.get("dilations", ())) <= {1}
        and not attributes.get("ceil_mode")
        and len(attributes.get("kernel_shape", ())) == 2
    )
    return "" if fits else f"padding: GE's MaxPool has SAME or VALID; {_own_form('MaxPool')}"


@_form("MaxPool", onnx="MaxPool", misfit=_other_padding)
def _max_pool(
    x: EsTensor,
    ksize: Sequence[int],
    strides: Sequence[int],
    padding: str,
    data_format: str = "NHWC",
) -> EsTensor:
    """`MaxPool`: NCHW, windows of one image and channel."""
    _only("MaxPool", data_format=(data_format, "NCHW"))
    paddings = {"SAME": "SAME_UPPER", "VALID": "VALID"}
    if padding not in paddings:
        raise ValueError(f"MaxPool: padding is SAME or VALID, got {padding!r}")
    if len(ksize) != 4 or len(strides) != 4 or [*ksize[:2], *strides[:2]] != [1, 1, 1, 1]:
        raise ValueError(f"MaxPool: ksize and strides are [1, 1, height, width], got {ksize!r}")
    return es.MaxPool(
        x,
        kernel_shape=list(ksize[2:]),
        strides=list(strides[2:]),
        auto_pad=paddings[padding],
    )


@_form("DepthToSpace", onnx="DepthToSpace")
def _depth_to_space(
    x: EsTensor, block_size: int, mode: str = "DCR", data_format: str = "NHWC"
) -> EsTensor:
    """`DepthToSpace`: NCHW."""
    _only("DepthToSpace", data_format=(data_format, "NCHW"))
    return es.DepthToSpace(x, blocksize=int(block_size), mode=mode)


@_form("SpaceToDepth", onnx="SpaceToDepth")
def _space_to_depth(x: EsTensor, block_size: int, data_format: str = "NHWC") -> EsTensor:
    """`SpaceToDepth`: NCHW."""
    _only("SpaceToDepth", data_format=(data_format, "NCHW"))
    return es.SpaceToDepth(x, blocksize=int(block_size))


@_form("AffineGrid", onnx="AffineGrid")
def _affine_grid(theta: EsTensor, output_size: EsTensor, align_corners: bool = False) -> EsTensor:
    """`AffineGrid`."""
    return es.AffineGrid(theta, output_size, align_corners=int(align_corners))


@_form("Resize", onnx="Resize")
def _resize(
    x: EsTensor,
    roi: EsTensor | None = None,
    scales: EsTensor | None = None,
    sizes: EsTensor | None = None,
    coordinate_transformation_mode: str = "half_pixel",
    cubic_coeff_a: float = -0.75,
    exclude_outside: int = 0,
    extrapolation_value: float = 0.0,
    mode: str = "nearest",
    nearest_mode: str = "round_prefer_floor",
) -> EsTensor:
    """`Resize`."""
    operands = [x, roi, scales, sizes]
    while operands[-1] is None:
        operands.pop()
    return es.Resize(
        *operands,
        coordinate_transformation_mode=coordinate_transformation_mode,
        cubic_coeff_a=float(cubic_coeff_a),
        exclude_outside=int(exclude_outside),
        extrapolation_value=float(extrapolation_value),
        mode=mode,
        nearest_mode=nearest_mode,
    )


# types, shapes and order of elements


@_form("Cast", onnx="Cast")
def _cast(x: EsTensor, dst_type: Any) -> EsTensor:
    """`Cast`; the type has GE's number."""
    is_number = isinstance(dst_type, int) and dst_type in list(GeDataType)
    return es.Cast(x, to=to_onnx(GeDataType(dst_type) if is_number else dst_type))


def _partial(node: Node) -> str:
    fits = not node.attrs.get("start") and "end" not in node.attrs
    return "" if fits else f"start, end: GE's Shape is of all sizes; {_own_form('Shape')}"


def _typed(tensor: EsTensor, dtype: int) -> EsTensor:
    """Convert sizes, which are int64 in ONNX; in a pattern the type does not count."""
    onnx = to_onnx(GeDataType(dtype))
    return tensor if in_pattern() or onnx is DataType.INT64 else es.Cast(tensor, to=onnx)


@_form("Shape", onnx="Shape", misfit=_partial)
def _shape(x: EsTensor, dtype: int = GeDataType.DT_INT32) -> EsTensor:
    """`Shape`, and `Cast` unless `dtype` is int64."""
    return _typed(es.Shape(x), dtype)


@_form("Size", onnx="Size")
def _size(x: EsTensor, dtype: int = GeDataType.DT_INT32) -> EsTensor:
    """`Size`, and `Cast` unless `dtype` is int64."""
    return _typed(es.Size(x), dtype)


@_form("Reshape", onnx="Reshape")
def _reshape(x: EsTensor, shape: EsTensor, axis: int = 0, num_axes: int = -1) -> EsTensor:
    """`Reshape` of all axes; a 0 among the numbers is refused, as ONNX copies the size."""
    _only("Reshape", axis=(axis, 0), num_axes=(num_axes, -1))
    sizes = _array(shape)
    if not in_pattern() and sizes is not None and not sizes.all():
        raise GeError(f"Reshape: a size of 0 copies the size in ONNX; {_own_form('Reshape')}")
    return es.Reshape(x, shape)


@_form("Flatten", onnx="Flatten")
def _flatten(x: EsTensor, axis: int = 1) -> EsTensor:
    """`Flatten`."""
    return es.Flatten(x, axis=int(axis))


@_form("Squeeze", onnx="Squeeze")
def _squeeze(x: EsTensor, axis: Any = ()) -> EsTensor:
    """`Squeeze`, of all axes of size 1 by default."""
    axes = _axes(axis)
    return es.Squeeze(x) if axes == [] else es.Squeeze(x, axes=axes)


@_form("Unsqueeze", onnx="Unsqueeze")
def _unsqueeze(x: EsTensor, axes: Any = ()) -> EsTensor:
    """`Unsqueeze`."""
    return es.Unsqueeze(x, axes=_axes(axes))


@_form("ExpandDims", onnx="Unsqueeze")
def _expand_dims(x: EsTensor, axis: Any) -> EsTensor:
    """`Unsqueeze` at one axis, a number."""
    return es.Unsqueeze(x, axes=[_constant("ExpandDims", "axis", axis)])


def _axes(value: Any) -> EsTensor | list[int]:
    """Return numbers, which old opsets take as an attribute; another tensor stays."""
    is_computed = isinstance(value, EsTensor) and _array(value) is None
    return value if is_computed else _constants("an operator", "axes", value)


@_form("Transpose", onnx="Transpose")
def _transpose(x: EsTensor, perm: Any) -> EsTensor:
    """`Transpose`; `perm` is numbers."""
    return es.Transpose(x, perm=_constants("Transpose", "perm", perm))


@_form("TransposeD", onnx="Transpose")
def _transpose_d(x: EsTensor, perm: Sequence[int]) -> EsTensor:
    """`Transpose`."""
    return es.Transpose(x, perm=_constants("TransposeD", "perm", perm))


@_form("Concat", onnx="Concat")
def _concat(concat_dim: int, x: Sequence[EsTensor], N: int | None = None) -> EsTensor:
    """`Concat`; the axis is a number."""
    return _joined("Concat", x, concat_dim, N)


@_form("ConcatV2", "ConcatD", onnx="Concat")
def _concat_v2(x: Sequence[EsTensor], concat_dim: int, N: int | None = None) -> EsTensor:
    """`Concat`; the axis is a number."""
    return _joined("ConcatV2", x, concat_dim, N)


def _joined(name: str, x: Sequence[EsTensor], axis: Any, count: int | None) -> EsTensor:
    _counted(name, x, count)
    return es.Concat(*x, axis=_constant(name, "concat_dim", axis))


def _is_uneven_split(node: Node) -> bool:
    """Whether a node is GE's SplitV: its sizes differ, or may."""
    sizes = node.attrs.get("split")
    if len(node.inputs) > 1 and node.inputs[1] is not None:
        sizes = node.inputs[1].array
        if sizes is None:
            return True
    if sizes is not None:
        return len({int(size) for size in sizes}) > 1
    parts = node.attrs.get("num_outputs")  # the last of these may be smaller
    if parts is None:
        return False
    split = node.inputs[0]
    shape = None if split is None else split.shape
    size = None if shape is None else shape[int(node.attrs.get("axis", 0))]
    return not isinstance(size, int) or size % int(parts) != 0


@_form(
    "Split",
    onnx="Split",
    misfit=lambda node: (
        "split: the sizes are not equal, as those of GE's Split are"
        if _is_uneven_split(node)
        else ""
    ),
)
def _split(
    split_dim: int, x: EsTensor, outputs: int, num_split: int | None = None
) -> list[EsTensor]:
    """`Split` into equal parts; the axis is a number."""
    if num_split not in (None, outputs):
        raise ValueError(f"Split: num_split is {num_split}, but {outputs} outputs are wanted")
    axis = _constant("Split", "split_dim", split_dim)
    result = es.Split(x, axis=axis, num_outputs=outputs)
    return [result] if isinstance(result, EsTensor) else list(result)


@_form("Slice", onnx="Slice")
def _slice(x: EsTensor, offsets: Any, size: Any) -> EsTensor:
    """`Slice` of all axes; numbers, and in replacements alone."""
    _not_in_pattern("Slice")
    starts, sizes = _constants("Slice", "offsets", offsets), _constants("Slice", "size", size)
    if len(starts) != len(sizes) or min(starts, default=0) < 0 or min(sizes, default=0) < -1:
        raise ValueError(f"Slice: offsets {starts} and size {sizes} are of one length, from 0 on")
    pairs = zip(starts, sizes, strict=True)
    ends = [_END if size < 0 else start + size for start, size in pairs]
    return es.Slice(x, starts=starts, ends=ends, axes=list(range(len(starts))))


_END = 2**63 - 1
"""An end of a slice behind every axis."""


def _pads(name: str, paddings: Any, *, by_axis: bool = True) -> list[int]:
    _not_in_pattern(name)
    numbers = _constants(name, "paddings", paddings)
    return [*numbers[::2], *numbers[1::2]] if by_axis else numbers


def _not_in_pattern(name: str) -> None:
    if in_pattern():
        raise GeError(f"{name}: its inputs are not those of the model's nodes; {_own_form(name)}")


@_form("Pad", onnx="Pad")
def _pad(x: EsTensor, paddings: Any) -> EsTensor:
    """`Pad` with zeros; numbers, and in replacements alone."""
    return es.Pad(x, pads=_pads("Pad", paddings))


@_form("PadV2")
def _pad_v2(x: EsTensor, paddings: Any, constant_values: EsTensor) -> EsTensor:
    """`Pad`; as `Pad`."""
    return es.Pad(x, _pads("Pad", paddings), constant_values)


@_form("PadV3")
def _pad_v3(
    x: EsTensor,
    paddings: Any,
    constant_values: EsTensor | None = None,
    mode: str = "constant",
    paddings_contiguous: bool = True,
) -> EsTensor:
    """`Pad`: constant, reflect or edge; as `Pad`."""
    pads = _pads("Pad", paddings, by_axis=paddings_contiguous)
    if mode not in ("constant", "reflect", "edge"):
        raise ValueError(f"PadV3: mode is constant, reflect or edge, got {mode!r}")
    if constant_values is None:
        return es.Pad(x, pads=pads, mode=mode)
    return es.Pad(x, pads, constant_values, mode=mode)


# selection


@_form(
    "Gather",
    onnx="Gather",
    misfit=lambda node: (
        "axis: GE's Gather has axis 0; use GatherV2" if node.attrs.get("axis") else ""
    ),
)
def _gather(
    x: EsTensor, indices: EsTensor, validate_indices: bool = True, batch_dims: int = 0
) -> EsTensor:
    """`Gather` with axis 0."""
    del validate_indices
    _only("Gather", batch_dims=(batch_dims, 0))
    return es.Gather(x, indices, axis=0)


@_form("GatherV2", onnx="Gather")
def _gather_v2(x: EsTensor, indices: EsTensor, axis: Any, batch_dims: int = 0) -> EsTensor:
    """`Gather`; the axis is a number."""
    _only("GatherV2", batch_dims=(batch_dims, 0))
    return es.Gather(x, indices, axis=_constant("GatherV2", "axis", axis))


@_form("GatherElements", onnx="GatherElements")
def _gather_elements(x: EsTensor, index: EsTensor, dim: int = 0) -> EsTensor:
    """`GatherElements` with this `axis`."""
    return es.GatherElements(x, index, axis=int(dim))


@_form(
    "GatherNd",
    onnx="GatherND",
    misfit=lambda node: (
        f"batch_dims: GatherNd has none; {_own_form('GatherND')}"
        if node.attrs.get("batch_dims")
        else ""
    ),
)
def _gather_nd(x: EsTensor, indices: EsTensor) -> EsTensor:
    """`GatherND`."""
    return es.GatherND(x, indices)


@_form("ScatterElements", onnx="ScatterElements")
def _scatter_elements(
    data: EsTensor, indices: EsTensor, updates: EsTensor, axis: int = 0, reduction: str = "none"
) -> EsTensor:
    """`ScatterElements`."""
    return es.ScatterElements(data, indices, updates, axis=int(axis), reduction=reduction)


@_form("ReverseSequence", onnx="ReverseSequence")
def _reverse_sequence(
    x: EsTensor, seq_lengths: EsTensor, seq_dim: int, batch_dim: int = 0
) -> EsTensor:
    """`ReverseSequence` with `time_axis`, `batch_axis`."""
    return es.ReverseSequence(x, seq_lengths, time_axis=int(seq_dim), batch_axis=int(batch_dim))


@_form("Where")
def _where(x: EsTensor) -> EsTensor:
    """`Transpose(NonZero)`, a row for each number; ONNX's `Where` is `SelectV2`."""
    return es.Transpose(es.NonZero(x), perm=[1, 0])


def _topped(
    x: EsTensor, k: Any, *, is_sorted: bool, axis: int, largest: bool
) -> dict[str, EsTensor]:
    expected = k if isinstance(k, EsTensor) else [int(k)]
    values, indices = es.TopK(x, expected, axis=axis, largest=int(largest), sorted=int(is_sorted))
    return {"values": values, "indices": indices}


@_form("TopKV2", onnx="TopK")
def _top_k_v2(
    x: EsTensor,
    k: EsTensor,
    sorted: bool = True,  # noqa: A002 - GE's name
    dim: int = -1,
    largest: bool = True,
) -> dict[str, EsTensor]:
    """`TopK`; `indices` are int64."""
    return _topped(x, k, is_sorted=sorted, axis=dim, largest=largest)


@_form("TopK", onnx="TopK")
def _top_k_v1(
    x: EsTensor,
    k: EsTensor,
    sorted: bool = True,  # noqa: A002 - GE's name
    *,
    largest: bool = True,
    dim: int = -1,
) -> dict[str, EsTensor]:
    """`TopK`; `indices` are int64."""
    return _topped(x, k, is_sorted=sorted, axis=dim, largest=largest)


@_form("ArgMaxV2", onnx="ArgMax")
def _arg_max(x: EsTensor, dimension: Any, dtype: int = GeDataType.DT_INT64) -> EsTensor:
    """`ArgMax` without `keepdims`, and `Cast` unless `dtype` is int64."""
    axis = _constant("ArgMaxV2", "dimension", dimension)
    return _typed(es.ArgMax(x, axis=axis, keepdims=0), dtype)


@_form("ArgMin", onnx="ArgMin")
def _arg_min(x: EsTensor, dimension: Any, dtype: int = GeDataType.DT_INT64) -> EsTensor:
    """`ArgMin` without `keepdims`, and `Cast` unless `dtype` is int64."""
    axis = _constant("ArgMin", "dimension", dimension)
    return _typed(es.ArgMin(x, axis=axis, keepdims=0), dtype)


@_form("Fill")
def _fill(dims: EsTensor, value: EsTensor) -> EsTensor:
    """`Expand` of a scalar."""
    return es.Expand(value, dims)


@_form("Range", onnx="Range")
def _range(start: EsTensor, limit: EsTensor, delta: EsTensor, is_closed: bool = False) -> EsTensor:
    """`Range` without its limit."""
    _only("Range", is_closed=(bool(is_closed), False))
    return es.Range(start, limit, delta)


@_form("Cumsum", onnx="CumSum")
def _cumsum(
    x: EsTensor, axis: EsTensor, exclusive: bool = False, reverse: bool = False
) -> EsTensor:
    """`CumSum`."""
    return es.CumSum(x, axis, exclusive=int(exclusive), reverse=int(reverse))


def _reduction(name: str) -> None:
    @_form(f"{name}D", onnx=name)
    def reduce(x: EsTensor, axes: Any, keep_dims: bool = False) -> EsTensor:
        """As without `D`; `axes` is an attribute."""
        return getattr(es, name)(x, axes=_axes(axes), keepdims=int(keep_dims))

    @_form(name, onnx=name)
    def reduce_by_tensor(x: EsTensor, axes: Any, keep_dims: bool = False) -> EsTensor:
        """ONNX's of this name, with `keepdims` 0 by default."""
        return getattr(es, name)(x, axes=_axes(axes), keepdims=int(keep_dims))

    del reduce, reduce_by_tensor


for _name in (
    "ReduceLogSum",
    "ReduceLogSumExp",
    "ReduceMax",
    "ReduceMean",
    "ReduceMin",
    "ReduceProd",
    "ReduceSum",
):
    _reduction(_name)


# arguments


def _only(name: str, **arguments: tuple[Any, Any]) -> None:
    """Check the attributes of which ONNX has one value."""
    for argument, (value, expected) in arguments.items():
        if value != expected and not (in_pattern() and argument in _FREE):
            raise ValueError(f"{name}: ONNX has {argument}={expected!r} only, got {value!r}")


_FREE = frozenset({"data_format", "is_training"})
"""Attributes whose default in GE ONNX does not have; a pattern may leave them out."""


def _counted(name: str, x: Sequence[Any], count: int | None) -> None:
    if count not in (None, len(x)):
        raise ValueError(f"{name}: N is {count}, but {len(x)} tensors are given")


def _array(value: Any) -> np.ndarray[Any, Any] | None:
    """Return the numbers of a literal or a constant of the builder."""
    if isinstance(value, EsTensor):
        return getattr(value.producer, "array", None)
    return np.asarray(value)


def _constant(name: str, argument: str, value: Any) -> int:
    numbers = _constants(name, argument, value, what="a number")
    if len(numbers) != 1:
        raise TypeError(f"{name}: {argument} must be one number, got {numbers}")
    return numbers[0]


def _constants(name: str, argument: str, value: Any, what: str = "numbers") -> list[int]:
    array = _array(value)
    if array is None:
        raise TypeError(f"{name}: {argument} must be {what}, as ONNX has it as an attribute")
    if array.size and array.dtype.kind not in "iu":
        raise TypeError(f"{name}: {argument} must be whole numbers, got {value!r}")
    return [int(number) for number in array.reshape(-1)]
