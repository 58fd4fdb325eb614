"""Operators of ``ge.es``: ONNX's by their names, and GE's where ONNX has the same.

A name that both have takes GE's inputs and attributes: ``MatMul(x1, x2, bias, transpose_x1)``.

Source: the documented operators of GE and ONNX; each row of ``_FORMS`` states what it becomes.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any, Self, cast

from gehost import EsTensor, es
from gehost_ge.builder import GraphBuilder, TensorHolder, builder_of
from gehost_ge.errors import items_of, origin
from gehost_ge.types import to_onnx

_Form = Callable[..., Any]
_FORMS: dict[str, _Form] = {}


def _form(*names: str) -> Callable[[_Form], _Form]:
    """Register what an operator becomes, under GE's names for it."""

    def register(form: _Form) -> _Form:
        _FORMS.update(dict.fromkeys(names, form))
        return form

    return register


class Operator:
    """An operator as a function: inputs, then attributes by position or name."""

    def __init__(self, name: str, form: _Form) -> None:
        self.__name__ = name
        self._form = form
        self.__signature__ = inspect.signature(form)

    def __repr__(self) -> str:
        return f"<operator {self.__name__}>"

    def __call__(self, *operands: Any, **named: Any) -> Any:
        """Add the operator; return its output, or an object that has its outputs by name.

        Raises:
            TypeError: no tensor is among the inputs, or an argument is unknown or missing.
            ValueError: two builders' tensors are among them.
        """
        builder = builder_of(*operands, *named.values())
        with es.written_at(origin()):
            try:
                call = self.__signature__.bind(*operands, **named)
            except TypeError as error:
                raise TypeError(f"{self.__name__}: {error}") from None
            for name, value in call.arguments.items():
                if self.__signature__.parameters[name].kind is inspect.Parameter.VAR_POSITIONAL:
                    value = _spread(value)
                call.arguments[name] = _operand(builder, value)
            return self._holders(builder, self._form(*call.args, **call.kwargs))

    def _holders(self, builder: GraphBuilder, result: Any) -> Any:
        if isinstance(result, EsTensor):
            return self._holder(builder, result)
        if isinstance(result, list):
            return [self._holder(builder, tensor) for tensor in cast("list[EsTensor]", result)]
        return Outputs({name: self._holder(builder, tensor) for name, tensor in result.items()})

    def _holder(self, builder: GraphBuilder, tensor: EsTensor) -> TensorHolder:
        for name, value in getattr(tensor.producer, "params", {}).items():
            if isinstance(value, EsTensor):
                raise TypeError(f"{self.__name__}: {name} is an attribute and takes no tensor")
        builder.types[tensor.producer] = self.__name__
        return builder.holder(tensor)


def _spread(operands: Sequence[Any]) -> list[Any]:
    """Return variable inputs one by one; they may be given as one list."""
    spread: list[Any] = []
    for operand in operands:
        items = items_of(operand)
        spread += items if items and TensorHolder in map(type, items) else [operand]
    return spread


def _operand(builder: GraphBuilder, value: Any) -> Any:
    """Return a tensor as the host takes it, also inside lists; other arguments stay."""
    if isinstance(value, TensorHolder):
        return builder.own(value)
    items = items_of(value)
    if items is None or TensorHolder not in map(type, items):
        return value
    return [builder.operand(item) for item in items]


class Outputs(tuple[TensorHolder, ...]):
    """Several outputs of one operator, by position and by name."""

    _names: dict[str, TensorHolder]

    def __new__(cls, names: dict[str, TensorHolder]) -> Self:
        outputs = super().__new__(cls, names.values())
        outputs._names = names
        return outputs

    def __getattr__(self, name: str) -> TensorHolder:
        if name not in self._names:
            raise AttributeError(f"there is no output {name!r}; there are {', '.join(self._names)}")
        return self._names[name]


@cache
def operator(name: str) -> Operator:
    """Return the operator of a name.

    Raises:
        AttributeError: neither GE's form nor ONNX has it; ``from … import`` turns this into
            ``ImportError``, which published files catch.
    """
    if name in _FORMS:
        return Operator(name, _FORMS[name])
    if name not in es.operator_names(""):
        raise AttributeError(f"no operator {name}: ONNX has no such operator")
    return Operator(name, _onnx_form(es.op(name)))


def exported(name: str) -> Any:
    """Return the operator of a name, or all names for ``from ge.es.math import *``."""
    if name == "__all__":
        return sorted({*_FORMS, *es.operator_names("")})
    return operator(name)


@cache
def custom_operator(name: str) -> Operator:
    """Return an operator that a vendor file registers; the host checks it when it is used."""
    if not name[:1].isupper():
        raise AttributeError(f"no operator {name}")
    return Operator(name, _onnx_form(getattr(es, name)))


def _onnx_form(function: es.OpFunction) -> _Form:
    """Return ONNX's operator."""
    signature = function.__signature__

    def form(*operands: Any, **attributes: Any) -> Any:
        result = function(*operands, **attributes)
        if isinstance(result, EsTensor):
            return result
        return dict(result.by_name) or list(result)

    if any(p.kind is p.VAR_POSITIONAL for p in signature.parameters.values()):
        return form
    # attributes by position, as GE's documentation writes them
    parameters = [
        parameter.replace(kind=parameter.POSITIONAL_OR_KEYWORD, default=None)
        if parameter.kind is parameter.KEYWORD_ONLY
        else parameter
        for parameter in signature.parameters.values()
        if parameter.name != "num_outputs"
    ]
    names = [parameter.name for parameter in parameters]
    inputs = sum(p.kind is not p.KEYWORD_ONLY for p in signature.parameters.values())

    def by_position(*arguments: Any, **attributes: Any) -> Any:
        attributes |= dict(zip(names[inputs:], arguments[inputs:], strict=False))
        return form(
            *arguments[:inputs],
            **{name: value for name, value in attributes.items() if value is not None},
        )

    by_position.__signature__ = inspect.Signature(parameters)  # pyright: ignore[reportFunctionMemberAccess]
    return by_position


# GE's forms


def _swapped(tensor: EsTensor) -> EsTensor:
    return es.Transpose(tensor, perm=[1, 0])


@_form("MatMulV2")
def _matmul_v2(
    x1: EsTensor,
    x2: EsTensor,
    bias: EsTensor | None = None,
    offset_w: None = None,
    transpose_x1: bool = False,
    transpose_x2: bool = False,
) -> EsTensor:
    _absent("MatMulV2", "offset_w", offset_w)
    return _matmul(x1, x2, bias, transpose_x1, transpose_x2)


@_form("MatMul")
def _matmul(
    x1: EsTensor,
    x2: EsTensor,
    bias: EsTensor | None = None,
    transpose_x1: bool = False,
    transpose_x2: bool = False,
) -> EsTensor:
    left = _swapped(x1) if transpose_x1 else x1
    right = _swapped(x2) if transpose_x2 else x2
    product = es.MatMul(left, right)
    return product if bias is None else product + bias


@_form("BatchMatMul", "BatchMatMulV2")
def _batch_matmul(
    x1: EsTensor,
    x2: EsTensor,
    bias: EsTensor | None = None,
    offset_w: None = None,
    adj_x1: bool = False,
    adj_x2: bool = False,
) -> EsTensor:
    _absent("BatchMatMul", "offset_w", offset_w)
    if adj_x1 or adj_x2:
        raise ValueError("adj_x1, adj_x2: the rank is not known here; write the Transpose")
    product = es.MatMul(x1, x2)
    return product if bias is None else product + bias


@_form("GEMM")
def _gemm(
    a: EsTensor,
    b: EsTensor,
    c: EsTensor,
    alpha: Any,
    beta: Any,
    transpose_a: bool = False,
    transpose_b: bool = False,
) -> EsTensor:
    flags = {"transpose_a": transpose_a, "transpose_b": transpose_b}
    return es.GEMM(a, b, c, alpha, beta, **{name: 1 for name, flag in flags.items() if flag})


@_form("RealDiv")
def _real_div(x1: EsTensor, x2: EsTensor) -> EsTensor:
    return es.Div(x1, x2)


@_form("Maximum")
def _maximum(x1: EsTensor, x2: EsTensor) -> EsTensor:
    return es.Max(x1, x2)


@_form("Minimum")
def _minimum(x1: EsTensor, x2: EsTensor) -> EsTensor:
    return es.Min(x1, x2)


@_form("TensorMove", "Identity")
def _tensor_move(x: EsTensor) -> EsTensor:
    return es.Identity(x)


@_form("Transpose")
def _transpose(x: EsTensor, perm: Any) -> EsTensor:
    return es.Transpose(x, perm=_constants("Transpose", "perm", perm))


@_form("Cast")
def _cast(x: EsTensor, dst_type: Any) -> EsTensor:
    return es.Cast(x, to=to_onnx(dst_type))


@_form("SoftmaxV2")
def _softmax(x: EsTensor, axes: Sequence[int] = (-1,)) -> EsTensor:
    if len(axes) != 1:
        raise ValueError(f"SoftmaxV2: ONNX's Softmax has one axis, got {list(axes)}")
    return es.Softmax(x, axis=int(axes[0]))


@_form("Concat")
def _concat(concat_dim: int, x: Sequence[EsTensor], N: int | None = None) -> EsTensor:
    return _joined("Concat", x, concat_dim, N)


@_form("ConcatV2")
def _concat_v2(x: Sequence[EsTensor], concat_dim: int, N: int | None = None) -> EsTensor:
    return _joined("ConcatV2", x, concat_dim, N)


def _joined(name: str, x: Sequence[EsTensor], axis: Any, count: int | None) -> EsTensor:
    if count not in (None, len(x)):
        raise ValueError(f"{name}: N is {count}, but {len(x)} tensors are given")
    return es.Concat(*x, axis=_constant(name, "concat_dim", axis))


@_form("Split")
def _split(
    split_dim: int, x: EsTensor, outputs: int, num_split: int | None = None
) -> list[EsTensor]:
    if num_split not in (None, outputs):
        raise ValueError(f"Split: num_split is {num_split}, but {outputs} outputs are wanted")
    axis = _constant("Split", "split_dim", split_dim)
    result = es.Split(x, axis=axis, num_outputs=outputs)
    return [result] if isinstance(result, EsTensor) else list(result)


@_form("TopKV2", "TopK")
def _top_k(
    x: EsTensor,
    k: Any,
    sorted: bool = True,  # noqa: A002 - GE's name
    dim: int = -1,
    largest: bool = True,
) -> dict[str, EsTensor]:
    expected = k if isinstance(k, EsTensor) else [int(k)]
    values, indices = es.TopK(x, expected, axis=dim, largest=int(largest), sorted=int(sorted))
    return {"values": values, "indices": indices}


@_form("Conv2D")
def _conv2d(
    x: EsTensor,
    filter: EsTensor,  # noqa: A002 - GE's name
    bias: EsTensor | None = None,
    offset_w: None = None,
    strides: Sequence[int] | None = None,
    pads: Sequence[int] | None = None,
    dilations: Sequence[int] = (1, 1, 1, 1),
    groups: int = 1,
    data_format: str = "NCHW",
    offset_x: int = 0,
) -> EsTensor:
    _absent("Conv2D", "offset_w", offset_w)
    if strides is None or pads is None:
        raise TypeError("Conv2D: missing a required argument: 'strides' and 'pads'")
    if data_format != "NCHW" or offset_x:
        raise ValueError("Conv2D: ONNX's Conv has the format NCHW and no offset_x")
    top, bottom, left, right = pads
    return es.Conv(
        *(tensor for tensor in (x, filter, bias) if tensor is not None),
        strides=list(strides[2:]),
        pads=[top, left, bottom, right],
        dilations=list(dilations[2:]),
        group=groups,
    )


@_form("BiasAdd")
def _bias_add(x: EsTensor, bias: EsTensor) -> EsTensor:
    return es.Add(x, bias)


@_form("Square")
def _square(x: EsTensor) -> EsTensor:
    return es.Mul(x, x)


@_form("Rsqrt")
def _rsqrt(x: EsTensor) -> EsTensor:
    return es.Reciprocal(es.Sqrt(x))


@_form("BatchNorm")
def _batch_norm(
    x: EsTensor,
    scale: EsTensor,
    offset: EsTensor,
    mean: EsTensor,
    variance: EsTensor,
    epsilon: float = 1e-4,
) -> dict[str, EsTensor]:
    result = es.BatchNormalization(x, scale, offset, mean, variance, epsilon=epsilon)
    return {"y": result}


def _reduction(name: str) -> None:
    @_form(f"{name}D")
    def reduce(x: EsTensor, axes: Sequence[int], keep_dims: bool = False) -> EsTensor:
        return getattr(es, name)(x, axes=[int(axis) for axis in axes], keepdims=int(keep_dims))

    @_form(name)
    def reduce_by_tensor(x: EsTensor, axes: Any, keep_dims: bool = False) -> EsTensor:
        return getattr(es, name)(x, axes=axes, keepdims=int(keep_dims))

    del reduce, reduce_by_tensor


for _name in ("ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin", "ReduceProd"):
    _reduction(_name)

GE_FORMS = frozenset(_FORMS)
"""The names that take GE's form."""


def _constant(name: str, argument: str, value: Any) -> int:
    if isinstance(value, EsTensor):
        producer = value.producer
        array = getattr(producer, "array", None)
        if array is None or array.size != 1:
            raise TypeError(f"{name}: {argument} must be a number, as ONNX has it as an attribute")
        return int(array.item())
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"{name}: {argument} must be a whole number, got {value!r}")
    return value


def _constants(name: str, argument: str, value: Any) -> list[int]:
    if isinstance(value, EsTensor):
        array = getattr(value.producer, "array", None)
        if array is None or array.dtype.kind != "i":
            raise TypeError(f"{name}: {argument} must be numbers, as ONNX has it as an attribute")
        value = array.reshape(-1).tolist()
    return [int(number) for number in value]


def _absent(name: str, argument: str, value: Any) -> None:
    if value is not None:
        raise ValueError(f"{name}: ONNX has no {argument}; leave it out")
