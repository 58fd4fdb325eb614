"""Sizes in doubt by operator, as ``make sizes`` measured them; it writes this file.

Behind each: cases in doubt with a wrong size, and cases in doubt whose sizes were right.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType

from gehost.infer.doubts import Doubt

VERSIONS: Mapping[str, str] = MappingProxyType({"onnx": "1.23.2", "onnxruntime": "1.31.1"})
"""The versions that were measured."""

DOUBTS: Mapping[str, Sequence[Doubt]] = MappingProxyType(
    {
        "ArgMax": (
            Doubt(13, None, ("a flag is neither 0 nor 1",), -1),  # 2 wrong, 0 right
        ),
        "AveragePool": (
            Doubt(7, None, ("the runtime ends elsewhere",), 2),  # 57 wrong, 3 right
            Doubt(22, None, ("VALID without dilations differs",), 2),  # 1 wrong, 1 right
        ),
        "Conv": (
            Doubt(11, None, ("a window is wider than its axis", "strided"), 2),  # 4 wrong, 0 right
        ),
        "ConvInteger": (
            Doubt(10, None, ("a window is wider than its axis", "strided"), 2),  # 4 wrong, 0 right
        ),
        "ConvTranspose": (
            Doubt(1, None, ("the rank is another",), -1),  # 8 wrong, 0 right
            Doubt(1, None, ("SAME is not the axis times the stride",), 2),  # 14 wrong, 4 right
        ),
        "DequantizeLinear": (
            Doubt(19, 20, ("a vector is not as long as its axis",), 2),  # 1 wrong, 3 right
        ),
        "Einsum": (
            Doubt(12, 27, ("a later term may be wider",), 0),  # 3 wrong, 24 right
        ),
        "GRU": (
            Doubt(14, 21, ("the initial state has another batch",), 2),  # 1 wrong, 3 right
        ),
        "GlobalMaxPool": (
            Doubt(1, None, ("the rank is not 4",), -1),  # 102 wrong, 0 right
        ),
        "LayerNormalization": (
            Doubt(17, None, ("a parameter may be wider than the tensor",), 0),  # 3 wrong, 41 right
        ),
        "LpPool": (
            Doubt(2, None, ("the runtime ends elsewhere",), 2),  # 33 wrong, 0 right
            Doubt(
                18, None, ("VALID without dilations differs", "ceil_mode=0"), 2
            ),  # 2 wrong, 0 right
        ),
        "MaxPool": (
            Doubt(10, None, ("the runtime ends elsewhere",), 2),  # 55 wrong, 3 right
            Doubt(1, None, ("SAME_LOWER rounds down",), 2),  # 22 wrong, 0 right
            Doubt(
                12, None, ("auto_pad=VALID", "rounding up changes a size"), 2
            ),  # 9 wrong, 0 right
            Doubt(11, None, ("ceil_mode=1", "not strides", "padded"), 2),  # 10 wrong, 6 right
            Doubt(10, None, ("SAME is not the axis over the stride",), 2),  # 1 wrong, 0 right
            Doubt(
                8, None, ("not dilations", "not strides", "pads taken in pairs differ"), 2
            ),  # 8 wrong, 5 right
            Doubt(11, None, ("ceil_mode=1", "not dilations", "padded"), 2),  # 19 wrong, 19 right
            Doubt(10, None, ("ceil_mode=0", "not strides", "padded"), 2),  # 6 wrong, 21 right
            Doubt(
                12, None, ("a size is not known", "ceil_mode=0", "pads taken in pairs differ"), 2
            ),  # 4 wrong, 13 right
            Doubt(12, None, ("ceil_mode=1", "dilations", "padded"), 2),  # 4 wrong, 15 right
        ),
        "MaxUnpool": (
            Doubt(11, 21, ("a size is not known", "not pads", "strides"), 1),  # 1 wrong, 8 right
        ),
        "NegativeLogLikelihoodLoss": (
            Doubt(22, None, ("the targets have other sizes",), 1),  # 1 wrong, 18 right
        ),
        "NonZero": (
            Doubt(9, None, ("the tensor is a scalar",), 0),  # 2 wrong, 1 right
        ),
        "PRelu": (
            Doubt(16, None, ("a parameter may be wider than the tensor",), -1),  # 3 wrong, 2 right
        ),
        "QLinearConv": (
            Doubt(10, None, ("a window is wider than its axis",), 2),  # 8 wrong, 0 right
            Doubt(10, None, ("pads beside auto_pad",), 2),  # 1 wrong, 0 right
            Doubt(10, None, ("SAME is not the axis over the stride",), 2),  # 1 wrong, 0 right
        ),
        "RMSNormalization": (
            Doubt(23, None, ("a parameter may be wider than the tensor",), 0),  # 5 wrong, 37 right
        ),
        "RNN": (
            Doubt(14, 21, ("hidden_size is not that of the weights",), 2),  # 1 wrong, 6 right
        ),
        "Range": (
            Doubt(11, None, ("another precision counts otherwise",), 0),  # 8 wrong, 8 right
        ),
        "ReduceMean": (
            Doubt(18, None, ("an input is empty",), -1),  # 1 wrong, 10 right
        ),
        "ReduceSumSquare": (
            Doubt(18, None, ("an input is empty",), 0),  # 1 wrong, 4 right
        ),
        "Resize": (
            Doubt(
                10, None, ("mode=nearest", "single precision scales to another size"), 1
            ),  # 10 wrong, 1 right
            Doubt(10, None, ("single precision scales to another size",), 1),  # 17 wrong, 6 right
        ),
        "RoiAlign": (
            Doubt(
                10, 15, ("mode=avg", "the regions are not as many as their batches"), 0
            ),  # 1 wrong, 7 right
        ),
        "Shape": (
            Doubt(15, None, ("a bound is before the first axis",), 0),  # 5 wrong, 19 right
        ),
        "Slice": (
            Doubt(11, None, ("a slice back begins before the axis",), 0),  # 9 wrong, 0 right
            Doubt(11, None, ("a slice back ends at the largest number",), 0),  # 4 wrong, 0 right
            Doubt(10, 10, ("a sliced axis keeps its name",), 0),  # 1 wrong, 0 right
        ),
        "Split": (
            Doubt(18, None, ("a part is empty",), 0),  # 2 wrong, 1 right
        ),
        "Squeeze": (
            Doubt(1, 10, ("axes", "axes are out of order"), -1),  # 6 wrong, 0 right
            Doubt(1, 22, ("there are no axes",), -1),  # 2 wrong, 2 right
        ),
        "Unique": (
            Doubt(
                11, 27, ("the axis is not the first", "the rank is over 2"), 0
            ),  # 2 wrong, 18 right
        ),
        "Unsqueeze": (
            Doubt(1, 10, ("axes", "axes are out of order"), 1),  # 1 wrong, 4 right
        ),
        "Upsample": (
            Doubt(7, 9, ("single precision scales to another size",), 1),  # 36 wrong, 0 right
        ),
        "ai.onnx.ml::LinearClassifier": (
            Doubt(1, None, ("a size is not known", "there is one class"), 1),  # 1 wrong, 2 right
        ),
    }
)
