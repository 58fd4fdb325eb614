"""Products, arithmetic, activations and reductions under GE's names."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gehost import EsTensor, Node, es
from gehost_ge.builder import in_pattern
from gehost_ge.form import axes_of, counted, form, only, own_form


def _swapped(tensor: EsTensor) -> EsTensor:
    swapped = es.Transpose(tensor, perm=[1, 0])
    return es.constrain(swapped, perm=[1, 0]) if in_pattern() else swapped


@form("MatMulV2", onnx="MatMul")
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
    only("MatMulV2", offset_w=(offset_w, None), offset_x=(offset_x, 0))
    return _matmul(x1, x2, bias, transpose_x1, transpose_x2)


@form("MatMul", onnx="MatMul")
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


@form("BatchMatMul", onnx="MatMul")
def _batch_matmul(
    x1: EsTensor, x2: EsTensor, adj_x1: bool = False, adj_x2: bool = False
) -> EsTensor:
    """`MatMul`; of `adj_x1`, `adj_x2` write the `Transpose`, as the rank is not known here."""
    only("BatchMatMul", adj_x1=(bool(adj_x1), False), adj_x2=(bool(adj_x2), False))
    return es.MatMul(x1, x2)


@form("BatchMatMulV2", onnx="MatMul")
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
    only("BatchMatMulV2", offset_w=(offset_w, None), offset_x=(offset_x, 0))
    only("BatchMatMulV2", adj_x1=(bool(adj_x1), False), adj_x2=(bool(adj_x2), False))
    product = es.MatMul(x1, x2)
    return product if bias is None else product + bias


@form("GEMM", onnx="Gemm")
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


@form("Einsum", onnx="Einsum")
def _einsum(x: Sequence[EsTensor], equation: str, N: int | None = None) -> EsTensor:
    """`Einsum`."""
    counted("Einsum", x, N)
    return es.Einsum(*x, equation=equation)


@form("AddN", onnx="Sum")
def _add_n(x: Sequence[EsTensor], N: int | None = None) -> EsTensor:
    """`Sum`."""
    counted("AddN", x, N)
    return es.Sum(*x)


def _logarithmic(name: str) -> None:
    @form(name, onnx=name)
    def call(x: EsTensor, base: float = -1.0, scale: float = 1.0, shift: float = 0.0) -> EsTensor:
        """To the base e, without `scale` and `shift`: ONNX's of this name."""
        only(name, base=(base, -1.0), scale=(scale, 1.0), shift=(shift, 0.0))
        return getattr(es, name)(x)

    del call


for _name in ("Exp", "Log"):
    _logarithmic(_name)


@form(
    "Mod",
    onnx="Mod",
    misfit=lambda node: (
        "" if node.attrs.get("fmod") else f"fmod: GE's Mod has C's sign; {own_form('Mod')}"
    ),
)
def _mod(x1: EsTensor, x2: EsTensor) -> EsTensor:
    """`Mod` with `fmod` 1."""
    return es.Mod(x1, x2, fmod=1)


@form("NotEqual")
def _not_equal(x1: EsTensor, x2: EsTensor) -> EsTensor:
    """`Not(Equal)`."""
    return es.Not(es.Equal(x1, x2))


@form("Rsqrt")
def _rsqrt(x: EsTensor) -> EsTensor:
    """`Reciprocal(Sqrt)`."""
    return es.Reciprocal(es.Sqrt(x))


@form("Square")
def _square(x: EsTensor) -> EsTensor:
    """`Mul` of `x` with itself."""
    return es.Mul(x, x)


@form("SquaredDifference")
def _squared_difference(x1: EsTensor, x2: EsTensor) -> EsTensor:
    """`Sub`, then `Mul` with itself."""
    difference = es.Sub(x1, x2)
    return es.Mul(difference, difference)


@form("CeluV2", onnx="Celu")
def _celu(x: EsTensor, alpha: float = 1.0) -> EsTensor:
    """`Celu`."""
    return es.Celu(x, alpha=float(alpha))


@form("Elu", onnx="Elu")
def _elu(x: EsTensor, alpha: float = 1.0, scale: float = 1.0, input_scale: float = 1.0) -> EsTensor:
    """`Elu`, without `scale` and `input_scale`."""
    only("Elu", scale=(scale, 1.0), input_scale=(input_scale, 1.0))
    return es.Elu(x, alpha=float(alpha))


@form("GeluV2", onnx="Gelu")
def _gelu(x: EsTensor, approximate: str = "none") -> EsTensor:
    """`Gelu`."""
    return es.Gelu(x, approximate=approximate)


@form("HardSigmoid", onnx="HardSigmoid")
def _hard_sigmoid(input_x: EsTensor, alpha: float = 1 / 6, beta: float = 0.5) -> EsTensor:
    """`HardSigmoid`."""
    return es.HardSigmoid(input_x, alpha=float(alpha), beta=float(beta))


@form("LeakyRelu", onnx="LeakyRelu")
def _leaky_relu(x: EsTensor, negative_slope: float = 0.0) -> EsTensor:
    """`LeakyRelu` with this `alpha`."""
    return es.LeakyRelu(x, alpha=float(negative_slope))


@form("Shrink", onnx="Shrink")
def _shrink(input_x: EsTensor, lambd: float = 0.5, bias: float = 0.0) -> EsTensor:
    """`Shrink`."""
    return es.Shrink(input_x, lambd=float(lambd), bias=float(bias))


@form("Swish", onnx="Swish")
def _swish(x: EsTensor, scale: float = 1.0) -> EsTensor:
    """`Swish` with this `alpha`."""
    return es.Swish(x, alpha=float(scale))


@form("ThresholdedRelu", onnx="ThresholdedRelu")
def _thresholded_relu(x: EsTensor, alpha: float = 1.0) -> EsTensor:
    """`ThresholdedRelu`."""
    return es.ThresholdedRelu(x, alpha=float(alpha))


def _flattens(node: Node) -> str:
    """Below opset 13, all axes from the given one on are one."""
    x, axis = node.input(0), node.attr("axis")
    last = (-1,) if x is None or x.rank is None else (-1, x.rank - 1)
    is_older = (node.graph.model.opset() or 0) < 13
    return "axis: below opset 13 it joins the axes behind" if is_older and axis not in last else ""


@form("SoftmaxV2", onnx="Softmax", misfit=_flattens)
def _softmax(x: EsTensor, axes: Sequence[int] = (-1,), half_to_float: bool = False) -> EsTensor:
    """`Softmax`, one axis, without `half_to_float`."""
    only("SoftmaxV2", half_to_float=(bool(half_to_float), False))
    return es.Softmax(x, axis=_one("SoftmaxV2", axes))


def _one(name: str, axes: Sequence[int]) -> int:
    if len(axes) != 1:
        raise ValueError(f"{name}: in ONNX it has one axis, got {list(axes)}")
    return int(axes[0])


@form("LogSoftmaxV2", onnx="LogSoftmax", misfit=_flattens)
def _log_softmax(logits: EsTensor, axes: Sequence[int] = (-1,)) -> EsTensor:
    """`LogSoftmax`, one axis."""
    return es.LogSoftmax(logits, axis=_one("LogSoftmaxV2", axes))


def _reduction(name: str) -> None:
    @form(f"{name}D", onnx=name)
    def reduce(x: EsTensor, axes: Any, keep_dims: bool = False) -> EsTensor:
        """As without `D`; `axes` is an attribute."""
        return getattr(es, name)(x, axes=axes_of(axes), keepdims=int(keep_dims))

    @form(name, onnx=name)
    def reduce_by_tensor(x: EsTensor, axes: Any, keep_dims: bool = False) -> EsTensor:
        """ONNX's of this name, with `keepdims` 0 by default."""
        return getattr(es, name)(x, axes=axes_of(axes), keepdims=int(keep_dims))

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
