"""A call of each operator under GE's name: tensors by letter, and attributes ``a``."""

from __future__ import annotations

from typing import Any

_CALLS = {
    "x": """
        Abs Acosh Asinh Atan Ceil Cos Cosh Det Erf Floor GlobalAveragePool HardSwish Identity Mish
        Neg Reciprocal Relu Sigmoid Sign Sin Sinh Softplus Softsign Sqrt Tan Tanh Acos Asin Atanh
        IsNan TensorMove Square Rsqrt Selu Where""",
    "x, **a": """
        CeluV2 Elu GeluV2 HardSigmoid LeakyRelu Round Shrink Swish ThresholdedRelu SoftmaxV2
        LogSoftmaxV2 Exp Log ReduceLogSum ReduceLogSumD ReduceLogSumExp ReduceLogSumExpD ReduceMax
        ReduceMaxD ReduceMean ReduceMeanD ReduceMin ReduceMinD ReduceProd ReduceProdD ReduceSum
        ReduceSumD Cast Flatten Unsqueeze ExpandDims Transpose TransposeD ArgMaxV2 ArgMin MaxPool
        GlobalLpPool DepthToSpace SpaceToDepth Size Shape""",
    "x, row": """
        Add AddV2 BiasAdd Div Equal Greater GreaterEqual Less LessEqual Maximum Minimum Mul NotEqual
        Pow RealDiv SquaredDifference Sub Mod""",
    "bits, bits": "LogicalAnd LogicalOr",
    "bits": "LogicalNot",
    "ints, ints": "BitwiseAnd BitwiseOr BitwiseXor",
    "ints": "BitwiseNot",
    "x, zero, six": "ClipByValue",
    "x, wide": "Expand",
    "x, tiles": "Tile",
    "bits, x, row": "SelectV2",
    "x=[x, x], **a": "AddN ConcatV2 ConcatD Concat",
    "[flat, mat], **a": "Einsum",
    "x, mat": "BatchMatMul",
    "x, mat, row": "BatchMatMulV2",
    "flat, mat, row, **a": "MatMul",
    "flat, mat, row, 0.5, 2.0, **a": "GEMM",
    "flat, mat, **a": "MatMulV2",
    "x, row, row, row, row, **a": "BatchNorm",
    "x, row, row, **a": "LayerNorm",
    "x, filt, **a": "Conv2D",
    "x, None, scales, **a": "Resize",
    "theta, grid, **a": "AffineGrid",
    "x, shape": "Reshape",
    "thin, **a": "Squeeze",
    "1, x, 2, **a": "Split",
    "x, idx": "Gather",
    "x, idx, **a": "GatherV2",
    "x, pairs": "GatherNd",
    "x, lens, **a": "ReverseSequence",
    "x, two, **a": "TopK TopKV2",
    "sizes, scalar": "Fill",
    "scalar, sizes": "BroadcastTo",
    "x, elements, **a": "GatherElements",
    "x, elements, updates, **a": "ScatterElements",
    "zero, scalar, six": "Range",
    "x, axis, **a": "Cumsum",
}
CALLS: dict[str, str] = {
    name: operands for operands, names in _CALLS.items() for name in names.split()
}
"""By operator: the arguments of a call."""

NOT_CALLED = {"Pad", "PadV2", "PadV3", "Slice"}
"""Operators of replacements alone."""

_PLANE: dict[str, Any] = {"data_format": "NCHW"}
ATTRIBUTES: dict[str, dict[str, Any]] = {
    "CeluV2": {"alpha": 0.5},
    "Elu": {"alpha": 0.5},
    "GeluV2": {"approximate": "tanh"},
    "HardSigmoid": {"alpha": 0.25, "beta": 0.75},
    "LeakyRelu": {"negative_slope": 0.25},
    "Shrink": {"lambd": 0.75, "bias": 0.25},
    "Swish": {"scale": 2.0},
    "ThresholdedRelu": {"alpha": 0.75},
    "SoftmaxV2": {"axes": [3]},
    "LogSoftmaxV2": {"axes": [3]},
    **{
        f"Reduce{name}{form}": {"axes": [1, -1], "keep_dims": form == ""}
        for name in ("LogSum", "LogSumExp", "Max", "Mean", "Min", "Prod", "Sum")
        for form in ("", "D")
    },
    "Cast": {"dst_type": 3},
    "Shape": {"dtype": 9},
    "Size": {"dtype": 9},
    "Flatten": {"axis": 2},
    "Squeeze": {"axis": [1]},
    "Unsqueeze": {"axes": [0, 2]},
    "ExpandDims": {"axis": 1},
    "Transpose": {"perm": [0, 3, 1, 2]},
    "TransposeD": {"perm": [3, 0, 1, 2]},
    "ArgMaxV2": {"dimension": 1},
    "ArgMin": {"dimension": 2},
    "MaxPool": {
        "ksize": [1, 1, 2, 3],
        "strides": [1, 1, 2, 1],
        "padding": "SAME",
        **_PLANE,
    },
    "GlobalLpPool": {"p": 3.0},
    "DepthToSpace": {"block_size": 2, "mode": "CRD", **_PLANE},
    "SpaceToDepth": {"block_size": 2, **_PLANE},
    "AddN": {"N": 2},
    "Concat": {"concat_dim": 1},
    "ConcatD": {"concat_dim": 2, "N": 2},
    "ConcatV2": {"concat_dim": -1},
    "Einsum": {"equation": "ij,kj->ik"},
    "GEMM": {"transpose_b": True},
    "MatMul": {"transpose_x2": True},
    "BatchNorm": {"epsilon": 0.25, "is_training": False, **_PLANE},
    "LayerNorm": {"begin_norm_axis": 3, "begin_params_axis": 3, "epsilon": 0.25},
    "Conv2D": {
        "strides": [1, 1, 2, 1],
        "pads": [1, 0, 2, 1],
        "dilations": [1, 1, 1, 2],
        "groups": 2,
        **_PLANE,
    },
    "Resize": {"mode": "linear", "coordinate_transformation_mode": "asymmetric"},
    "AffineGrid": {"align_corners": True},
    "Split": {"num_split": 2},
    "GatherElements": {"dim": 1},
    "GatherV2": {"axis": 1},
    "ScatterElements": {"axis": 1},
    "ReverseSequence": {"seq_dim": 0, "batch_dim": 1},
    "TopK": {"dim": 2, "largest": False},
    "TopKV2": {"sorted": False, "dim": 1},
    "Cumsum": {"exclusive": True, "reverse": True},
}
"""By operator: attributes other than GE's defaults."""
