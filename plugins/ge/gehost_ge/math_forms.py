"""Products, arithmetic, activations and reductions under GE's names."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gehost import EsTensor, Node, es
from gehost_ge.attributes import (
    COUNT,
    Attribute,
    fixed,
    flag,
    number,
    numbers_of,
    one,
    structure,
    text,
)
from gehost_ge.form import (
    axes_of,
    check_only,
    counted,
    form,
    has_only,
    operator,
    own_form,
    row_misfit,
    swapped,
)


def _not_matrices(node: Node) -> str:
    ranks = [value.rank for value in node.inputs[:2] if value is not None]
    return "rank: a vector is no matrix; use ge.es.custom.MatMul" if 1 in ranks else ""


_BIAS = {"Add": row_misfit("MatMul")}
_BY_NODE = structure(value=False)
_NO, _NONE = fixed(value=False), fixed(0)


@form(
    "MatMulV2",
    onnx="MatMul",
    misfit=_not_matrices,
    beside=_BIAS,
    transpose_x1=_BY_NODE,
    transpose_x2=_BY_NODE,
    offset_x=_NONE,
)
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
    check_only("MatMulV2", offset_w=(offset_w, None), offset_x=(offset_x, 0))
    return _matmul(x1, x2, bias, transpose_x1, transpose_x2)


@form(
    "MatMul",
    onnx="MatMul",
    misfit=_not_matrices,
    beside=_BIAS,
    transpose_x1=_BY_NODE,
    transpose_x2=_BY_NODE,
)
def _matmul(
    x1: EsTensor,
    x2: EsTensor,
    bias: EsTensor | None = None,
    transpose_x1: bool = False,
    transpose_x2: bool = False,
) -> EsTensor:
    """`MatMul`, with `Transpose` and `Add` where they are asked for."""
    left = swapped(x1) if transpose_x1 else x1
    right = swapped(x2) if transpose_x2 else x2
    product = _product(left, right)
    return product if bias is None else product + bias


def _product(left: Any, right: Any) -> EsTensor:
    if not isinstance(left, EsTensor) and not isinstance(right, EsTensor):
        raise TypeError("x1 and x2 are numbers, whose type is not known; use create_const_float")
    return es.MatMul(left, right)


operator(
    "BatchMatMul",
    "x1 x2",
    "MatMul",
    "`MatMul`; of `adj_x1`, `adj_x2` write the `Transpose`, as the rank is not known here",
    _not_matrices,
    adj_x1=_NO,
    adj_x2=_NO,
)


@form(
    "BatchMatMulV2",
    onnx="MatMul",
    misfit=_not_matrices,
    beside=_BIAS,
    adj_x1=_NO,
    adj_x2=_NO,
    offset_x=_NONE,
)
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
    check_only("BatchMatMulV2", offset_w=(offset_w, None), offset_x=(offset_x, 0))
    check_only("BatchMatMulV2", adj_x1=(bool(adj_x1), False), adj_x2=(bool(adj_x2), False))
    product = _product(x1, x2)
    return product if bias is None else product + bias


@form(
    "GEMM",
    onnx="ge::GEMM",
    transpose_a=flag("transpose_a", default=False),
    transpose_b=flag("transpose_b", default=False),
)
def _gemm(
    a: EsTensor,
    b: EsTensor,
    c: EsTensor,
    alpha: Any,
    beta: Any,
    transpose_a: bool = False,
    transpose_b: bool = False,
) -> EsTensor:
    """A function `ge::GEMM` of `MatMul`, `Mul` and `Add`; ONNX's is `Gemm`."""
    flags = {"transpose_a": transpose_a, "transpose_b": transpose_b}
    return es.GEMM(a, b, c, alpha, beta, **{name: 1 for name, flag in flags.items() if flag})


@form("Einsum", onnx="Einsum", equation=text("equation"), N=COUNT)
def _einsum(x: Sequence[EsTensor], equation: str, N: int | None = None) -> EsTensor:
    """`Einsum`."""
    counted("Einsum", x, N)
    return es.Einsum(*x, equation=equation)


@form("AddN", onnx="Sum", N=COUNT)
def _add_n(x: Sequence[EsTensor], N: int | None = None) -> EsTensor:
    """`Sum`."""
    counted("AddN", x, N)
    return es.Sum(*x)


for _name in ("Exp", "Log"):
    operator(
        _name,
        "x",
        here="To the base e, without `scale` and `shift`: ONNX's of this name",
        base=fixed(-1.0),
        scale=fixed(1.0),
        shift=fixed(0.0),
    )


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


def _not_real(node: Node) -> str:
    x = node.input(0)
    is_whole = x is not None and x.dtype is not None and x.dtype.numpy.kind in "iu"
    return "type: RealDiv of whole numbers is not ONNX's Div, which truncates" if is_whole else ""


operator("RealDiv", "x1 x2", "Div", "`Div` of real numbers", _not_real)


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


operator("CeluV2", "x", "Celu", alpha=number("alpha", 1.0))
operator(
    "Elu",
    "x",
    here="`Elu`, without `scale` and `input_scale`",
    alpha=number("alpha", 1.0),
    scale=fixed(1.0),
    input_scale=fixed(1.0),
)
operator("GeluV2", "x", "Gelu", approximate=text("approximate", "none"))
operator("HardSigmoid", "input_x", alpha=number("alpha", 1 / 6), beta=number("beta", 0.5))
operator(
    "LeakyRelu", "x", here="`LeakyRelu` with this `alpha`", negative_slope=number("alpha", 0.0)
)
operator("Round", "x", here="`Round`, without `decimals`", decimals=fixed(0))
operator(
    "Selu",
    "x",
    misfit=has_only("Selu", "Selu", alpha=1.6732631921768188, gamma=1.0507010221481323),
)
operator("Shrink", "input_x", lambd=number("lambd", 0.5), bias=number("bias", 0.0))
operator("Swish", "x", here="`Swish` with this `alpha`", scale=number("alpha", 1.0))
operator("ThresholdedRelu", "x", alpha=number("alpha", 1.0))


def _flattens(node: Node) -> str:
    """Below opset 13, all axes from the given one on are one."""
    shape = None if (x := node.input(0)) is None else x.shape
    axis = node.attr("axis")
    behind = None if shape is None else list(shape[axis % len(shape) :][1:]) if shape else []
    is_one = axis == -1 or (behind is not None and set(behind) <= {1})
    is_older = (node.graph.model.opset() or 0) < 13
    return "axis: below opset 13 it joins the axes behind" if is_older and not is_one else ""


_LAST = Attribute(
    lambda node: [int(node.attr("axis"))], lambda value: {"axis": one(value)}, default=(-1,)
)
operator(
    "SoftmaxV2",
    "x",
    "Softmax",
    "`Softmax`, one axis, without `half_to_float`",
    _flattens,
    axes=_LAST,
    half_to_float=fixed(value=False),
)
operator("LogSoftmaxV2", "logits", "LogSoftmax", "`LogSoftmax`, one axis", _flattens, axes=_LAST)


def _reduced(value: Any) -> dict[str, Any]:
    axes = axes_of(value)
    if axes == []:
        raise ValueError("empty, for which ONNX's operator reduces all axes; name the axes")
    return {"axes": axes}


def _other_axes(node: Node) -> str:
    """Numbers of a pattern stand for a constant, which says the axes."""
    axes = node.attrs.get("axes")
    if axes is None and (tensor := node.input(1)) is not None:
        axes = tensor.array
        if axes is None:
            return f"axes: the model computes them; {own_form(node.op)}"
    may_reduce_nothing = node.attr("noop_with_empty_axes") and (axes is None or not len(axes))
    return f"axes: none may be reduced; {own_form(node.op)}" if may_reduce_nothing else ""


_AXES = Attribute(lambda node: numbers_of(node, "axes"), _reduced)
for _name in (
    *("ReduceLogSum", "ReduceLogSumExp", "ReduceMax", "ReduceMean", "ReduceMin", "ReduceProd"),
    "ReduceSum",
):
    for _form, _here in (
        (_name, "ONNX's of this name, with `keepdims` 0 by default"),
        (f"{_name}D", "As without `D`; `axes` is an attribute"),
    ):
        operator(
            *(_form, "x", _name, _here, _other_axes),
            axes=_AXES,
            keep_dims=flag("keepdims", default=False),
        )
