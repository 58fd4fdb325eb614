"""Element-wise operators with broadcasting."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from gehost import DataType, Refused
from gehost_linalg.affine import Dim
from gehost_linalg.generic import Arg, Literal, Ref, Value
from gehost_linalg.lower.nodes import (
    FLOAT_DTYPES,
    MLIR_DTYPES,
    Lowering,
    OnnxOp,
    Scalars,
    args,
)
from gehost_linalg.operations import OPERATIONS

Unary = Callable[[Scalars, Ref, str], Ref]


def _math(name: str) -> Unary:
    return lambda s, x, dtype: s.add(name, x, dtype=dtype)


def number(value: float, dtype: str) -> Literal:
    """A constant of an element type."""
    return Literal(float(value) if dtype in FLOAT_DTYPES else int(value), dtype)


def add(s: Scalars, a: Ref, b: Ref, dtype: str) -> Ref:
    return s.add("arith.addf", a, b, dtype=dtype)


def mul(s: Scalars, a: Ref, b: Ref, dtype: str) -> Ref:
    return s.add("arith.mulf", a, b, dtype=dtype)


def div(s: Scalars, a: Ref, b: Ref, dtype: str) -> Ref:
    return s.add("arith.divf", a, b, dtype=dtype)


def sub(s: Scalars, a: Ref, b: Ref, dtype: str) -> Ref:
    return s.add("arith.subf", a, b, dtype=dtype)


def sigmoid(s: Scalars, x: Ref, dtype: str) -> Ref:
    """1 / (1 + exp(-x))."""
    grown = s.add("math.exp", s.add("arith.negf", x, dtype=dtype), dtype=dtype)
    return div(s, number(1, dtype), add(s, grown, number(1, dtype), dtype), dtype)


def softplus(s: Scalars, x: Ref, dtype: str) -> Ref:
    """log(1 + exp(x)), as max(x, 0) + log1p(exp(-|x|))."""
    small = s.add("arith.negf", s.add("math.absf", x, dtype=dtype), dtype=dtype)
    tail = s.add("math.log1p", s.add("math.exp", small, dtype=dtype), dtype=dtype)
    return add(s, s.add("arith.maximumf", x, number(0, dtype), dtype=dtype), tail, dtype)


def _sign(s: Scalars, x: Ref, dtype: str) -> Ref:
    zero = number(0, dtype)
    up = s.add("arith.cmpf", x, zero, dtype="i1", attribute="ogt")
    down = s.add("arith.cmpf", x, zero, dtype="i1", attribute="olt")
    nan = s.add("arith.cmpf", x, x, dtype="i1", attribute="uno")
    rest = s.add("arith.select", nan, x, zero, dtype=dtype)
    lower = s.add("arith.select", down, number(-1, dtype), rest, dtype=dtype)
    return s.add("arith.select", up, number(1, dtype), lower, dtype=dtype)


def _softsign(s: Scalars, x: Ref, dtype: str) -> Ref:
    absolute = s.add("math.absf", x, dtype=dtype)
    return div(s, x, add(s, absolute, number(1, dtype), dtype), dtype)


def _mish(s: Scalars, x: Ref, dtype: str) -> Ref:
    return mul(s, x, s.add("math.tanh", softplus(s, x, dtype), dtype=dtype), dtype)


def _same(types: str, operands: int) -> dict[str, str]:
    """The operators that one scalar operation computes, with its name."""
    return {
        operator: name
        for name, row in OPERATIONS.items()
        if row.types == types and row.operands == operands and row.form == "plain"
        for operator in row.onnx
    }


FLOAT_UNARY: Mapping[str, Unary] = {
    **{operator: _math(name) for operator, name in _same("float", 1).items()},
    "Sigmoid": sigmoid,
    "Softplus": softplus,
    "Sign": _sign,
    "Reciprocal": lambda s, x, dtype: div(s, number(1, dtype), x, dtype),
    "Relu": lambda s, x, dtype: s.add("arith.maximumf", number(0, dtype), x, dtype=dtype),
    "Softsign": _softsign,
    "Mish": _mish,
}  # fmt: skip

INT_UNARY: Mapping[str, Unary] = {
    "Neg": lambda s, x, dtype: s.add("arith.subi", number(0, dtype), x, dtype=dtype),
    **{operator: _math(name) for operator, name in _same("integer", 1).items()},
    "Relu": lambda s, x, dtype: s.add("arith.maxsi", x, number(0, dtype), dtype=dtype),
}


def _float(op: OnnxOp, value: Value) -> str:
    if value.dtype not in FLOAT_DTYPES:
        raise Refused("not-lowered", f"{op.op} of {value.dtype}")
    return value.dtype


def _unary(op: OnnxOp) -> None:
    x, out = op.input(0), op.single_output()
    entry = FLOAT_UNARY if x.dtype in FLOAT_DTYPES else INT_UNARY
    if op.op not in entry or x.dtype == "i1":
        raise Refused("not-lowered", f"{op.op} of {x.dtype}")
    s = Scalars()
    out.dtype = x.dtype
    op.same_loops([x], out, s.payload(entry[op.op](s, Arg(0), x.dtype)))


def _attribute(op: OnnxOp, name: str, default: float) -> float:
    return float(np.float32(op.attributes.get(name, default)))


def _select_negative(s: Scalars, dtype: str, below: Ref) -> Ref:
    """``below`` where x < 0, else x."""
    negative = s.add("arith.cmpf", Arg(0), number(0, dtype), dtype="i1", attribute="olt")
    return s.add("arith.select", negative, below, Arg(0), dtype=dtype)


def _exponential_minus_one(s: Scalars, x: Ref, dtype: str) -> Ref:
    return sub(s, s.add("math.exp", x, dtype=dtype), number(1, dtype), dtype)


def _activation(op: OnnxOp) -> None:
    """Activations with attributes."""
    x, out, s = op.input(0), op.single_output(), Scalars()
    dtype = out.dtype = _float(op, x)
    if op.op == "LeakyRelu":
        result = _select_negative(
            s, dtype, mul(s, Arg(0), number(_attribute(op, "alpha", 0.01), dtype), dtype)
        )
    elif op.op == "Elu":
        grown = _exponential_minus_one(s, Arg(0), dtype)
        result = _select_negative(
            s, dtype, mul(s, grown, number(_attribute(op, "alpha", 1.0), dtype), dtype)
        )
    elif op.op == "Selu":
        alpha, gamma = (
            _attribute(op, "alpha", 1.67326319217681884765625),
            _attribute(op, "gamma", 1.05070102214813232421875),
        )
        grown = mul(s, _exponential_minus_one(s, Arg(0), dtype), number(alpha, dtype), dtype)
        positive = s.add("arith.cmpf", Arg(0), number(0, dtype), dtype="i1", attribute="ogt")
        chosen = s.add("arith.select", positive, Arg(0), grown, dtype=dtype)
        result = mul(s, chosen, number(gamma, dtype), dtype)
    elif op.op == "ThresholdedRelu":
        above = s.add(
            "arith.cmpf",
            Arg(0),
            number(_attribute(op, "alpha", 1.0), dtype),
            dtype="i1",
            attribute="ogt",
        )
        result = s.add("arith.select", above, Arg(0), number(0, dtype), dtype=dtype)
    elif op.op in {"HardSigmoid", "HardSwish"}:
        alpha = 1 / 6 if op.op == "HardSwish" else _attribute(op, "alpha", 0.2)
        scaled = add(
            s,
            mul(s, Arg(0), number(alpha, dtype), dtype),
            number(_attribute(op, "beta", 0.5), dtype),
            dtype,
        )
        result = s.add("arith.maximumf", number(0, dtype), scaled, dtype=dtype)
        result = s.add("arith.minimumf", number(1, dtype), result, dtype=dtype)
        result = mul(s, Arg(0), result, dtype) if op.op == "HardSwish" else result
    else:
        result = _gelu(op, s, dtype)
    op.same_loops([x], out, s.payload(result))


def _gelu(op: OnnxOp, s: Scalars, dtype: str) -> Ref:
    """X / 2 · (1 + erf(x / √2)), or its approximation by tanh."""
    x = Arg(0)
    if op.attributes.get("approximate", "none") in {"tanh", b"tanh"}:
        cubed = mul(s, mul(s, x, x, dtype), x, dtype)
        inner = add(s, x, mul(s, cubed, number(0.044715, dtype), dtype), dtype)
        bent = s.add(
            "math.tanh", mul(s, inner, number(math.sqrt(2 / math.pi), dtype), dtype), dtype=dtype
        )
    else:
        bent = s.add("math.erf", mul(s, x, number(math.sqrt(0.5), dtype), dtype), dtype=dtype)
    return mul(
        s, mul(s, x, number(0.5, dtype), dtype), add(s, bent, number(1, dtype), dtype), dtype
    )


_FLOAT_BINARY = {**_same("float", 2), "Sum": "arith.addf", "Mean": "arith.addf"}
_LOGIC = {
    operator: name
    for operator, name in _same("integer", 2).items()
    if name in {"arith.andi", "arith.ori", "arith.xori"}
}
_INT_BINARY = {
    operator: name for operator, name in _same("integer", 2).items() if operator not in _LOGIC
}


def _arithmetic(op: OnnxOp) -> None:
    """Two operands, or any number for Max, Min, Sum and Mean."""
    values = [op.input(index) for index in range(len(op.inputs))]
    out, s, dtype = op.single_output(), Scalars(), values[0].dtype
    name = (_FLOAT_BINARY if dtype in FLOAT_DTYPES else _INT_BINARY).get(op.op)
    if name is None or dtype == "i1" or any(value.dtype != dtype for value in values):
        raise Refused("not-lowered", f"{op.op} of {dtype}")
    result, *others = args(len(values))
    for other in others:
        pair = (result, other)
        # of 0.0 and -0.0 ONNX Runtime takes the second, or the one that is a number
        if op.op in {"Max", "Min"} and result == Arg(0) and values[0].constant is not None:
            pair = (other, result)
        result = s.add(name, *pair, dtype=dtype)
    if op.op == "Mean":
        result = div(s, result, number(len(values), dtype), dtype)
    out.dtype = dtype
    op.same_loops(values, out, s.payload(result))


def _logic(op: OnnxOp) -> None:
    a, b, out, s = op.input(0), op.input(1), op.single_output(), Scalars()
    name = _LOGIC[op.op]
    out.dtype = a.dtype
    op.same_loops([a, b], out, s.payload(s.add(name, Arg(0), Arg(1), dtype=a.dtype)))


def _not(op: OnnxOp) -> None:
    x, out, s = op.input(0), op.single_output(), Scalars()
    out.dtype = "i1"
    op.same_loops([x], out, s.payload(s.add("arith.xori", Arg(0), Literal(True, "i1"), dtype="i1")))  # noqa: FBT003


_COMPARISONS = {
    "Equal": "eq",
    "Less": "lt",
    "Greater": "gt",
    "LessOrEqual": "le",
    "GreaterOrEqual": "ge",
}


def _comparison(op: OnnxOp) -> None:
    a, b, out, s = op.input(0), op.input(1), op.single_output(), Scalars()
    kind = _COMPARISONS[op.op]
    if a.dtype in FLOAT_DTYPES:
        result = s.add("arith.cmpf", Arg(0), Arg(1), dtype="i1", attribute=f"o{kind}")
    else:
        predicate = kind if kind == "eq" else f"u{kind}" if a.dtype == "i1" else f"s{kind}"
        result = s.add("arith.cmpi", Arg(0), Arg(1), dtype="i1", attribute=predicate)
    out.dtype = "i1"
    op.same_loops([a, b], out, s.payload(result))


_EXACT = 2**24
"""Up to here f32 holds each integer."""


def _pow(op: OnnxOp) -> None:
    x, y, out, s = op.input(0), op.input(1), op.single_output(), Scalars()
    dtype = out.dtype = _float(op, x)
    exponent: Ref = Arg(1)
    if y.dtype in {"i32", "i64"} and not (y.splat and abs(int(y.splat.value)) <= _EXACT):
        raise Refused("not-lowered", f"Pow by {y.dtype} numbers that {dtype} may not hold")
    if y.dtype != dtype:
        exponent = cast_scalar(s, Arg(1), y.dtype, dtype)
    op.same_loops([x, y], out, s.payload(s.add("math.powf", Arg(0), exponent, dtype=dtype)))


def _mod(op: OnnxOp) -> None:
    a, b, out, s = op.input(0), op.input(1), op.single_output(), Scalars()
    if a.dtype not in FLOAT_DTYPES or not op.attributes.get("fmod", 0):
        raise Refused("not-lowered", f"{op.op} of {a.dtype}")
    out.dtype = a.dtype
    op.same_loops([a, b], out, s.payload(s.add("arith.remf", Arg(0), Arg(1), dtype=a.dtype)))


def _where(op: OnnxOp) -> None:
    condition, a, b, out, s = op.input(0), op.input(1), op.input(2), op.single_output(), Scalars()
    out.dtype = a.dtype
    result = s.add("arith.select", Arg(0), Arg(1), Arg(2), dtype=a.dtype)
    op.same_loops([condition, a, b], out, s.payload(result))


def _prelu(op: OnnxOp) -> None:
    x, slope, out, s = op.input(0), op.input(1), op.single_output(), Scalars()
    dtype = out.dtype = _float(op, x)
    if op.version < 7:
        raise Refused("not-lowered", f"PRelu of opset {op.version}, whose slope is per channel")
    op.same_loops(
        [x, slope], out, s.payload(_select_negative(s, dtype, mul(s, Arg(0), Arg(1), dtype)))
    )


_LARGEST: Mapping[str, float] = {
    "f16": 65504.0,
    "bf16": 3.3895313892515355e38,
    "f32": 3.4028234663852886e38,
    "f64": sys.float_info.max,
}


def _clip(op: OnnxOp) -> None:
    """min(max(x, low), high); a bound that is not given is the largest finite number."""
    x, out, s = op.input(0), op.single_output(), Scalars()
    dtype = out.dtype = x.dtype
    is_float = dtype in FLOAT_DTYPES
    ins, result = [x], args(1)[0]
    for position, (attribute, name) in enumerate((("min", "max"), ("max", "min"))):
        bound: Ref | None = None
        if attribute in op.attributes:
            bound = number(float(op.attributes[attribute]), dtype)
        elif (argument := op.optional(position + 1)) is not None:
            if argument.rank != 0:
                raise Refused("not-lowered", f"{op.op} with bounds of rank {argument.rank}")
            bound = Arg(len(ins))
            ins.append(argument)
        elif is_float:
            bound = number(_LARGEST[dtype] * (-1 if position == 0 else 1), dtype)
        if bound is not None:
            result = s.add(
                f"arith.{name}imumf" if is_float else f"arith.{name}si", bound, result, dtype=dtype
            )
    op.same_loops(ins, out, s.payload(result))


def cast_scalar(s: Scalars, x: Ref, source: str, target: str) -> Ref:
    """A scalar in another element type, as ONNX's Cast converts it."""
    widths = {
        "i1": 1,
        "i8": 8,
        "i16": 16,
        "i32": 32,
        "i64": 64,
        "f16": 16,
        "bf16": 16,
        "f32": 32,
        "f64": 64,
    }
    if source == target:
        return x
    if source in FLOAT_DTYPES and target in FLOAT_DTYPES:
        if widths[source] == widths[target]:
            return cast_scalar(s, cast_scalar(s, x, source, "f32"), "f32", target)
        return s.add(
            "arith.extf" if widths[target] > widths[source] else "arith.truncf", x, dtype=target
        )
    if source in FLOAT_DTYPES:
        if target == "i1":
            return s.add("arith.cmpf", x, number(0, source), dtype="i1", attribute="une")
        return s.add("arith.fptosi", x, dtype=target)
    if target in FLOAT_DTYPES:
        return s.add("arith.uitofp" if source == "i1" else "arith.sitofp", x, dtype=target)
    if target == "i1":
        return s.add("arith.cmpi", x, number(0, source), dtype="i1", attribute="ne")
    if source == "i1":
        return s.add("arith.extui", x, dtype=target)
    return s.add(
        "arith.extsi" if widths[target] > widths[source] else "arith.trunci", x, dtype=target
    )


def _cast(op: OnnxOp) -> None:
    x, out, s = op.input(0), op.single_output(), Scalars()
    if op.op == "CastLike":
        target = op.inputs[1].dtype if op.inputs[1] is not None else ""
    else:
        try:
            target = MLIR_DTYPES.get(DataType(int(op.attributes["to"])), "")
        except (KeyError, ValueError):
            target = ""
    if not target:
        raise Refused("dtype", f"{op.op} to {op.attributes.get('to')}")
    out.dtype = target
    op.same_loops([x], out, s.payload(cast_scalar(s, Arg(0), x.dtype, target)))


def _is_nan(op: OnnxOp) -> None:
    x, out, s = op.input(0), op.single_output(), Scalars()
    _float(op, x)
    out.dtype = "i1"
    op.same_loops(
        [x], out, s.payload(s.add("arith.cmpf", Arg(0), Arg(0), dtype="i1", attribute="uno"))
    )


def _is_inf(op: OnnxOp) -> None:
    x, out, s = op.input(0), op.single_output(), Scalars()
    dtype = _float(op, x)
    result: Ref = Literal(False, "i1")  # noqa: FBT003
    for attribute, value in (("detect_positive", math.inf), ("detect_negative", -math.inf)):
        if int(op.attributes.get(attribute, 1)):
            equal = s.add("arith.cmpf", Arg(0), number(value, dtype), dtype="i1", attribute="oeq")
            result = s.add("arith.ori", result, equal, dtype="i1")
    out.dtype = "i1"
    op.same_loops([x], out, s.payload(result))


def _batch_normalization(op: OnnxOp) -> None:
    """(x - mean) / √(variance + ε) · scale + bias, along axis 1."""
    x, out, s = op.input(0), op.single_output(), Scalars()
    dtype = out.dtype = _float(op, x)
    if int(op.attributes.get("training_mode", 0)) or op.version < 7:
        raise Refused("not-lowered", "BatchNormalization in training")
    shape = op.shape()
    if len(shape) < 2:
        raise Refused("not-lowered", f"BatchNormalization of rank {len(shape)}")
    per_channel = [op.input(index) for index in (1, 2, 3, 4)]
    if any(value.rank != 1 or value.dtype != dtype for value in per_channel):
        raise Refused("not-lowered", "BatchNormalization of several element types")
    shifted = add(s, Arg(4), number(_attribute(op, "epsilon", 1e-5), dtype), dtype)
    centred = div(s, sub(s, Arg(0), Arg(3), dtype), s.add("math.sqrt", shifted, dtype=dtype), dtype)
    result = add(s, mul(s, centred, Arg(1), dtype), Arg(2), dtype)
    identity = [Dim(loop) for loop in range(len(shape))]
    op.assign_type(out, shape)
    ins: list[Any] = [(x, identity), *[(value, [Dim(1)]) for value in per_channel]]
    op.generic(ins, out, identity, len(shape), s.payload(result))


def _identity(op: OnnxOp) -> None:
    x, out = op.input(0), op.single_output()
    out.dtype = x.dtype
    op.same_loops([x], out, Scalars().payload(Arg(0)))


LOWERINGS: Mapping[str, Lowering] = {
    **dict.fromkeys([*FLOAT_UNARY, *INT_UNARY], _unary),
    **dict.fromkeys(
        ("LeakyRelu", "Elu", "Selu", "ThresholdedRelu", "HardSigmoid", "HardSwish", "Gelu"),
        _activation,
    ),
    **dict.fromkeys([*_FLOAT_BINARY, *_INT_BINARY], _arithmetic),
    **dict.fromkeys(_LOGIC, _logic),
    **dict.fromkeys(_COMPARISONS, _comparison),
    "Not": _not,
    "Pow": _pow,
    "Mod": _mod,
    "Where": _where,
    "PRelu": _prelu,
    "Clip": _clip,
    "Cast": _cast,
    "CastLike": _cast,
    "IsNaN": _is_nan,
    "IsInf": _is_inf,
    "BatchNormalization": _batch_normalization,
    "Identity": _identity,
}
