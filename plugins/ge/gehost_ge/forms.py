"""All operators of ``ge.es`` with GE's published signatures.

A name is in one table: ``SAME`` and ``RENAMED`` have ONNX's inputs and no attributes, ``FORMS``
has these and what the modules of forms write out, ``REFUSED`` has no equal. Names of ONNX that GE
does not publish are ONNX's operators.

Source: the documented operators of GE and ONNX.
"""

from __future__ import annotations

import importlib

from gehost_ge.form import FORMS, operator, own_form

__all__ = ["FORMS", "REFUSED", "RENAMED", "SAME", "instead_of", "refusal"]

for _module in ("array_forms", "math_forms", "nn_forms"):  # each fills FORMS
    importlib.import_module(f"gehost_ge.{_module}")

_SAME = {
    "x": """
        Abs Acos Acosh Asin Asinh Atan Atanh BitwiseNot Ceil Cos Cosh Det Erf Floor
        GlobalAveragePool HardSwish Identity Mish Neg Reciprocal Relu Sigmoid Sign Sin
        Sinh Softplus Softsign Sqrt Tan Tanh""",
    "x1 x2": "Add BitwiseAnd BitwiseOr BitwiseXor Div Equal Greater Less Mul Pow Sub",
    "x shape": "Expand",
    "x multiples": "Tile",
}
SAME = {name: parameters for parameters, names in _SAME.items() for name in names.split()}
"""Operators of one name, the same inputs and no attributes; the inputs have GE's names."""

RENAMED = {
    "AddV2": ("x1 x2", "Add"),
    "ClipByValue": ("x clip_value_min clip_value_max", "Clip"),
    "GreaterEqual": ("x1 x2", "GreaterOrEqual"),
    "IsNan": ("x", "IsNaN"),
    "LessEqual": ("x1 x2", "LessOrEqual"),
    "LogicalAnd": ("x1 x2", "And"),
    "LogicalNot": ("x", "Not"),
    "LogicalOr": ("x1 x2", "Or"),
    "Maximum": ("x1 x2", "Max"),
    "Minimum": ("x1 x2", "Min"),
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


for _name, _inputs in SAME.items():
    operator(_name, _inputs)
for _name, (_inputs, _onnx) in RENAMED.items():
    operator(_name, _inputs, _onnx)


def refusal(name: str) -> str:
    """Return the line that names what to use in place of an operator."""
    return f"{name}: GE's operator is {name}({REFUSED[name][0]}); {instead_of(name)}"


def instead_of(name: str) -> str:
    """Return what to use in place of an operator that is refused."""
    return REFUSED[name][1] or own_form(name)
