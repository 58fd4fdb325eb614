"""Element types of ONNX Runtime's CPU kernels, and their carriers.

A carrier is a type that carries another through an operator.

Measured with ONNX Runtime 1.31 at opset 21, with numbers at the ends of each type: a kernel that
computes something else there, as Max of s64 does, counts as none. An element type without a kernel
is cast to its carrier and back; a carrier holds every value of the type, and wraps as the type does
when the result is cast back.
"""

from __future__ import annotations

_FLOATS = frozenset({"f16", "f32", "f64"})
_SINGLE = frozenset({"f16", "f32"})
_INTEGERS = frozenset({"s8", "u8", "s16", "u16", "s32", "u32", "s64", "u64"})
_NUMBERS = _FLOATS | _INTEGERS
_EXTREMA = _NUMBERS - {"s16", "u16"}
_REDUCED = _FLOATS | {"s32", "s64"}
_MOVED = _NUMBERS | {"pred", "bf16"}

KERNELS: dict[str, frozenset[str]] = {
    **dict.fromkeys(
        (
            "Add",
            "Sub",
            "Mul",
            "Div",
            "Mod",
            "Less",
            "Greater",
            "LessOrEqual",
            "GreaterOrEqual",
            "Abs",
        ),
        _NUMBERS,
    ),
    **dict.fromkeys(
        ("Max", "Min"), _EXTREMA - {"s64"}
    ),  # of s64 they compare the lower halves as signed
    "Pow": _FLOATS,
    "Equal": _NUMBERS | {"pred"},
    **dict.fromkeys(("And", "Or", "Xor", "Not"), frozenset({"pred"})),
    **dict.fromkeys(("BitwiseAnd", "BitwiseOr", "BitwiseXor", "BitwiseNot"), _INTEGERS),
    "BitShift": frozenset({"u8", "u32", "u64"}),
    "Neg": _FLOATS | {"s8", "s16", "s32", "s64"},
    "Sign": _NUMBERS - {"f16", "s64"},  # of f16 it drops nan, of s64 it is wrong
    **dict.fromkeys(
        (
            "Exp",
            "Log",
            "Sqrt",
            "Tanh",
            "Sigmoid",
            "Sin",
            "Cos",
            "Floor",
            "Ceil",
            "Round",
            "Reciprocal",
        ),
        _FLOATS,
    ),
    **dict.fromkeys(
        ("Tan", "Atan", "Asin", "Acos", "Sinh", "Cosh", "Asinh", "Acosh", "Atanh", "Erf", "Conv"),
        _SINGLE,
    ),
    **dict.fromkeys(("IsNaN", "IsInf"), _FLOATS),
    "ReduceSum": _FLOATS | {"s64"},  # of s32 it does not wrap; of s64 it is exact up to 2⁵³
    "ReduceProd": _FLOATS,  # of integers it does not wrap
    **dict.fromkeys(("CumSum", "Einsum"), _REDUCED),
    **dict.fromkeys(
        ("ReduceMax", "ReduceMin"), _FLOATS | {"s32", "s8", "u8", "pred"}
    ),  # wrong for s64, as Max
    **dict.fromkeys(("ArgMax", "ArgMin"), _REDUCED | {"s8", "u8"}),
    "TopK": _REDUCED | {"s8", "u8", "s16"},
    "MatMul": _REDUCED | {"u32", "u64"},
    "MaxPool": _FLOATS | {"s8", "u8"},
    "AveragePool": _SINGLE,
    "Where": _FLOATS | {"s8", "u8", "s32", "u32", "s64"},
    "Expand": _NUMBERS | {"pred"},
    "Pad": _NUMBERS - {"s16", "u16"} | {"pred"},
    **dict.fromkeys(
        ("Reshape", "Transpose", "Slice", "Concat", "Gather", "GatherElements", "ScatterElements"),
        _MOVED,
    ),
    "ScatterElements reduced": _NUMBERS - {"f16"},
}

_CARRIERS: dict[str, tuple[str, ...]] = {
    "pred": ("u8", "s32"),
    "s4": ("s8", "s32"),
    "u4": ("u8", "s32"),
    "s8": ("s32", "s64"),
    "u8": ("s32", "s64"),
    "s16": ("s32", "s64"),
    "u16": ("s32", "u32", "s64"),
    "s32": ("s64",),
    "u32": ("s64", "u64", "f64"),
    "u64": ("s64",),
    "f16": ("f32",),
    "bf16": ("f32",),
    "f8e4m3fn": ("f32",),
    "f8e5m2": ("f32",),
    "f8e4m3fnuz": ("f32",),
    "f8e5m2fnuz": ("f32",),
}

_ORDERED = frozenset(
    (
        "Less",
        "Greater",
        "LessOrEqual",
        "GreaterOrEqual",
        "Max",
        "Min",
        "ReduceMax",
        "ReduceMin",
        "TopK",
        "Div",
        "Mod",
    )
)
"""Operators whose result changes where the largest numbers become negative, as those of u64 in s64
do.
"""


def carrier(op: str, kind: str) -> str | None:
    """Return the element type to run ``op`` in, or None.

    It is ``kind`` itself, or its carrier.
    """
    kernels = KERNELS.get(op)
    if kernels is None or kind in kernels:
        return kind
    base = op.partition(" ")[0]
    kernel = next((kind_ for kind_ in _CARRIERS.get(kind, ()) if kind_ in kernels), None)
    if (kernel == "s64" and kind == "u64" and base in _ORDERED) or (
        kernel == "f64" and base not in {"ReduceMax", "ReduceMin"}
    ):
        return None  # the order of u64 in s64 differs; f64 does not wrap
    return kernel
