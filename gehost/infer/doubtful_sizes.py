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
            Doubt(7, None, ("the runtime ends elsewhere",), 2),  # 59 wrong, 3 right
            Doubt(19, None, ("VALID without dilations differs",), 2),  # 2 wrong, 1 right
        ),
        "Conv": (
            Doubt(11, None, ("a window is wider than its axis", "strided"), 2),  # 4 wrong, 1 right
        ),
        "ConvInteger": (
            Doubt(10, None, ("a window is wider than its axis", "strided"), 2),  # 4 wrong, 0 right
            Doubt(10, None, ("SAME is not the axis over the stride",), 2),  # 1 wrong, 0 right
        ),
        "ConvTranspose": (
            Doubt(1, None, ("the rank is another",), -1),  # 8 wrong, 0 right
            Doubt(1, None, ("SAME is not the axis times the stride",), 2),  # 16 wrong, 4 right
        ),
        "DequantizeLinear": (
            Doubt(19, 20, ("a vector is longer than its axis",), 2),  # 1 wrong, 3 right
        ),
        "Einsum": (
            Doubt(12, 27, ("a later term may be wider",), 0),  # 4 wrong, 26 right
        ),
        "GRU": (
            Doubt(14, 21, ("the initial state has another batch",), 2),  # 1 wrong, 4 right
        ),
        "GlobalMaxPool": (
            Doubt(1, None, ("the rank is not 4",), -1),  # 113 wrong, 0 right
        ),
        "LayerNormalization": (
            Doubt(17, None, ("a parameter may be wider than the tensor",), 1),  # 2 wrong, 43 right
        ),
        "LpPool": (
            Doubt(2, None, ("the runtime ends elsewhere",), 2),  # 34 wrong, 0 right
            Doubt(
                18, None, ("VALID without dilations differs", "ceil_mode=0"), 2
            ),  # 4 wrong, 1 right
        ),
        "MaxPool": (
            Doubt(10, None, ("the runtime ends elsewhere",), 2),  # 59 wrong, 3 right
            Doubt(1, None, ("SAME_LOWER rounds down",), 2),  # 22 wrong, 0 right
            Doubt(
                11, None, ("ceil_mode=1", "the reference pads otherwise"), 2
            ),  # 17 wrong, 4 right
            Doubt(
                12, None, ("auto_pad=VALID", "rounding up changes a size"), 2
            ),  # 8 wrong, 0 right
            Doubt(10, None, ("SAME is not the axis over the stride",), 2),  # 6 wrong, 0 right
            Doubt(
                12, None, ("ceil_mode=0", "the reference pads otherwise"), 2
            ),  # 5 wrong, 10 right
            Doubt(
                8, None, ("a size is not known", "not strides", "the reference pads otherwise"), 2
            ),  # 3 wrong, 8 right
        ),
        "MaxUnpool": (
            Doubt(11, 21, ("a size is not known", "not pads", "strides"), 1),  # 1 wrong, 8 right
        ),
        "NegativeLogLikelihoodLoss": (
            Doubt(22, None, ("the targets have other sizes",), 1),  # 1 wrong, 20 right
        ),
        "NonZero": (
            Doubt(9, None, ("the tensor is a scalar",), 0),  # 2 wrong, 1 right
        ),
        "PRelu": (
            Doubt(16, None, ("a parameter may be wider than the tensor",), -1),  # 3 wrong, 2 right
        ),
        "QLinearConv": (
            Doubt(10, None, ("a window is wider than its axis",), 2),  # 8 wrong, 1 right
            Doubt(10, None, ("pads beside auto_pad",), 2),  # 1 wrong, 0 right
            Doubt(10, None, ("SAME is not the axis over the stride",), 2),  # 1 wrong, 0 right
        ),
        "RMSNormalization": (
            Doubt(23, None, ("a parameter may be wider than the tensor",), 0),  # 5 wrong, 40 right
        ),
        "RNN": (
            Doubt(14, 21, ("hidden_size is not that of the weights",), 2),  # 1 wrong, 8 right
        ),
        "Range": (
            Doubt(11, None, ("another precision counts otherwise",), 0),  # 9 wrong, 8 right
        ),
        "ReduceMean": (
            Doubt(18, None, ("an input is empty",), -1),  # 1 wrong, 11 right
        ),
        "ReduceSumSquare": (
            Doubt(18, None, ("an input is empty",), 0),  # 1 wrong, 5 right
        ),
        "Resize": (
            Doubt(
                10, None, ("mode=nearest", "single precision scales to another size"), 1
            ),  # 10 wrong, 2 right
            Doubt(
                10, None, ("mode=linear", "single precision scales to another size"), 2
            ),  # 5 wrong, 3 right
            Doubt(
                11,
                17,
                ("a size is not known", "mode=cubic", "single precision scales to another size"),
                3,
            ),  # 2 wrong, 0 right
        ),
        "RoiAlign": (
            Doubt(
                10, 15, ("mode=avg", "the regions are not as many as their batches"), 0
            ),  # 1 wrong, 7 right
        ),
        "Shape": (
            Doubt(15, None, ("a bound is before the first axis",), 0),  # 6 wrong, 21 right
        ),
        "Slice": (
            Doubt(11, None, ("a slice back begins before the axis",), 0),  # 11 wrong, 0 right
            Doubt(11, None, ("a slice back ends at the largest number",), 0),  # 3 wrong, 0 right
            Doubt(10, 10, ("a sliced axis keeps its name",), 0),  # 2 wrong, 0 right
        ),
        "Split": (
            Doubt(18, None, ("a part is empty",), 0),  # 2 wrong, 1 right
        ),
        "Squeeze": (
            Doubt(1, 10, ("axes", "axes are out of order"), -1),  # 7 wrong, 0 right
            Doubt(1, 22, ("there are no axes",), -1),  # 2 wrong, 3 right
        ),
        "Unique": (
            Doubt(
                11, 27, ("the axis is not the first", "the rank is over 2"), 0
            ),  # 2 wrong, 19 right
        ),
        "Unsqueeze": (
            Doubt(1, 10, ("axes", "axes are out of order"), 1),  # 1 wrong, 4 right
        ),
        "Upsample": (
            Doubt(7, 9, ("single precision scales to another size",), 0),  # 38 wrong, 0 right
        ),
        "ai.onnx.ml::LinearClassifier": (
            Doubt(1, None, ("a size is not known", "there is one class"), 1),  # 1 wrong, 2 right
        ),
    }
)
