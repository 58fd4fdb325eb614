"""Small models for ``Instances`` of this vendor's passes: B batch, S length, two heads."""

from __future__ import annotations

import numpy as np
import onnx
import onnx.parser

ATTENTION = """
    qh = Reshape (q, heads) qt = Transpose <perm = [0, 2, 1, 3]> (qh)
    kh = Reshape (k, heads) kt = Transpose <perm = [0, 2, 3, 1]> (kh)
    vh = Reshape (v, heads) vt = Transpose <perm = [0, 2, 1, 3]> (vh)
    m = MatMul (qt, kt) s = Mul (m, scale) {masked} p = Softmax <axis = -1> (a)
    mixed = MatMul (p, vt) turned = Transpose <perm = [0, 2, 1, 3]> (mixed)
    y = Reshape (turned, joined)"""
"""Attention over heads of size 4; ``masked`` computes the scores a of s and ``bool keep``."""
KERNEL = "y = com.microsoft.MultiHeadAttention <num_heads = 2, scale = 0.5>"
QKV = ", ".join(f"float[B, S, 8] {name}" for name in "qkv")
KEEP = "bool[B, 1, S, S] keep"
CONSTANTS = """int64[4] heads = {0, 0, 2, 4}, int64[3] joined = {0, 0, 8},
    float scale = {0.5}, float zero = {0}, float one = {1}, float low = {-3.4e38}"""


def instance(
    inputs: str,
    lines: str,
    *,
    result: str = "float[B, S, 8] y",
    constants: str = CONSTANTS,
    opset: int = 17,
    **weights: tuple[int, ...],
) -> onnx.ModelProto:
    """Return a model in ONNX's text form; ``weights`` are shapes of positive random float32."""
    rng = np.random.default_rng(0)
    model = onnx.parser.parse_model(
        f"""<ir_version: 10, opset_import: ["": {opset}, "com.microsoft": 1]>
        g ({inputs}) => ({result}) <{constants}> {{ {lines} }}"""
    )
    model.graph.initializer.extend(
        onnx.numpy_helper.from_array(rng.uniform(0.1, 1, shape).astype(np.float32), name)
        for name, shape in weights.items()
    )
    return model
