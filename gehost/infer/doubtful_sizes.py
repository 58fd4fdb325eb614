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
        "AffineGrid": (
            Doubt(20, None, ("the batch is not that of the size",), 0),  # 2 wrong, 88 right
        ),
        "ArgMax": (
            Doubt(13, None, ("a flag is neither 0 nor 1",), -1),  # 2 wrong, 0 right
        ),
        "Attention": (
            Doubt(25, None, ("leading sizes may differ",), 0),  # 2 wrong, 83 right
        ),
        "AveragePool": (
            Doubt(7, None, ("the runtime ends elsewhere",), 2),  # 79 wrong, 5 right
            Doubt(19, None, ("VALID without dilations differs",), 2),  # 2 wrong, 2 right
        ),
        "CausalConvWithState": (
            Doubt(27, None, ("the state is not as long as the kernel",), 2),  # 2 wrong, 1 right
        ),
        "Conv": (
            Doubt(1, None, ("a window is wider than its axis", "strided"), 2),  # 8 wrong, 2 right
        ),
        "ConvInteger": (
            Doubt(10, None, ("a window is wider than its axis", "strided"), 2),  # 8 wrong, 2 right
            Doubt(10, None, ("SAME is not the axis over the stride",), 2),  # 2 wrong, 0 right
        ),
        "ConvTranspose": (
            Doubt(1, None, ("the rank is another",), -1),  # 12 wrong, 0 right
            Doubt(
                1, None, ("SAME is not the axis times the stride", "output_padding"), 2
            ),  # 10 wrong, 1 right
            Doubt(1, None, ("SAME is not the axis times the stride",), 2),  # 18 wrong, 5 right
        ),
        "DFT": (
            Doubt(20, None, ("input 1 is computed",), 2),  # 2 wrong, 10 right
        ),
        "DequantizeLinear": (
            Doubt(19, 20, ("a vector is longer than its axis",), 2),  # 1 wrong, 6 right
        ),
        "Einsum": (
            Doubt(12, 27, ("a later term may be wider",), 0),  # 4 wrong, 44 right
        ),
        "GRU": (
            Doubt(14, 21, ("the initial state has another batch",), 2),  # 1 wrong, 8 right
        ),
        "GlobalMaxPool": (
            Doubt(1, None, ("the rank is not 4",), -1),  # 212 wrong, 0 right
        ),
        "InstanceNormalization": (
            Doubt(6, 21, ("a vector is longer than its axis",), 1),  # 1 wrong, 63 right
        ),
        "LSTM": (
            Doubt(7, None, ("hidden_size is not that of the weights",), 2),  # 2 wrong, 74 right
        ),
        "LayerNormalization": (
            Doubt(17, None, ("a parameter may be wider than the tensor",), 0),  # 5 wrong, 77 right
        ),
        "LpPool": (
            Doubt(2, None, ("the runtime ends elsewhere",), 2),  # 37 wrong, 0 right
            Doubt(
                18, None, ("VALID without dilations differs", "ceil_mode=0"), 2
            ),  # 5 wrong, 1 right
        ),
        "MaxPool": (
            Doubt(10, None, ("the runtime ends elsewhere",), 2),  # 66 wrong, 3 right
            Doubt(1, None, ("SAME_LOWER rounds down",), 2),  # 24 wrong, 0 right
            Doubt(
                12, None, ("auto_pad=VALID", "rounding up changes a size"), 2
            ),  # 11 wrong, 1 right
            Doubt(
                11, None, ("ceil_mode=1", "strides", "the reference pads otherwise"), 2
            ),  # 7 wrong, 1 right
            Doubt(
                11, None, ("ceil_mode=1", "the reference pads otherwise"), 2
            ),  # 20 wrong, 10 right
            Doubt(10, None, ("SAME is not the axis over the stride",), 2),  # 7 wrong, 0 right
            Doubt(
                12, None, ("ceil_mode=0", "the reference pads otherwise"), 2
            ),  # 6 wrong, 15 right
            Doubt(
                1, None, ("not strides", "the reference pads otherwise"), 2
            ),  # 20 wrong, 24 right
        ),
        "MaxUnpool": (
            Doubt(
                11, 21, ("not pads", "strides", "the indices have other sizes"), 1
            ),  # 2 wrong, 18 right
        ),
        "NegativeLogLikelihoodLoss": (
            Doubt(22, None, ("the targets have other sizes",), 1),  # 1 wrong, 33 right
        ),
        "NonZero": (
            Doubt(9, None, ("the tensor is a scalar",), 0),  # 3 wrong, 1 right
        ),
        "PRelu": (
            Doubt(16, None, ("a parameter may be wider than the tensor",), -1),  # 6 wrong, 4 right
        ),
        "QLinearConv": (
            Doubt(10, None, ("a window is wider than its axis",), 2),  # 12 wrong, 2 right
            Doubt(10, None, ("SAME is not the axis over the stride",), 2),  # 3 wrong, 0 right
            Doubt(10, None, ("pads beside auto_pad",), 2),  # 2 wrong, 1 right
        ),
        "RMSNormalization": (
            Doubt(23, None, ("a parameter may be wider than the tensor",), 0),  # 7 wrong, 74 right
        ),
        "RNN": (
            Doubt(7, 21, ("hidden_size is not that of the weights",), 2),  # 2 wrong, 43 right
        ),
        "Range": (
            Doubt(11, None, ("another precision counts otherwise",), 0),  # 11 wrong, 10 right
        ),
        "ReduceL2": (
            Doubt(18, None, ("a flag is neither 0 nor 1",), -1),  # 1 wrong, 0 right
        ),
        "ReduceMean": (
            Doubt(18, None, ("a flag is neither 0 nor 1",), -1),  # 1 wrong, 0 right
            Doubt(18, None, ("an input is empty",), -1),  # 1 wrong, 17 right
        ),
        "ReduceSumSquare": (
            Doubt(18, None, ("an input is empty",), 0),  # 1 wrong, 15 right
        ),
        "Resize": (
            Doubt(
                10, None, ("mode=nearest", "single precision scales to another size"), 1
            ),  # 14 wrong, 2 right
            Doubt(
                13,
                None,
                (
                    "coordinate_transformation_mode=half_pixel",
                    "mode=linear",
                    "single precision scales to another size",
                ),
                2,
            ),  # 3 wrong, 0 right
            Doubt(
                11,
                17,
                ("a size is not known", "mode=cubic", "single precision scales to another size"),
                3,
            ),  # 2 wrong, 0 right
            Doubt(
                11,
                None,
                (
                    "coordinate_transformation_mode=align_corners",
                    "single precision scales to another size",
                ),
                2,
            ),  # 4 wrong, 0 right
            Doubt(
                10, None, ("mode=linear", "single precision scales to another size"), 2
            ),  # 5 wrong, 4 right
        ),
        "RoiAlign": (
            Doubt(
                10, None, ("mode=avg", "the regions are not as many as their batches"), 0
            ),  # 2 wrong, 54 right
        ),
        "Shape": (
            Doubt(15, None, ("a bound is before the first axis",), 0),  # 6 wrong, 41 right
        ),
        "Slice": (
            Doubt(11, None, ("a slice back begins before the axis",), 0),  # 13 wrong, 0 right
            Doubt(11, None, ("a slice back ends at the largest number",), 0),  # 4 wrong, 0 right
            Doubt(10, 10, ("a sliced axis keeps its name",), 0),  # 2 wrong, 0 right
        ),
        "Split": (
            Doubt(18, None, ("a part is empty",), 0),  # 3 wrong, 4 right
        ),
        "Squeeze": (
            Doubt(1, 10, ("axes", "axes are out of order"), -1),  # 11 wrong, 0 right
            Doubt(1, 10, ("axes", "there are no axes"), -1),  # 6 wrong, 1 right
            Doubt(13, 22, ("an input is empty",), -1),  # 4 wrong, 3 right
        ),
        "Unique": (
            Doubt(
                11, 27, ("the axis is not the first", "the rank is over 2"), 0
            ),  # 5 wrong, 33 right
            Doubt(11, 27, ("the axis is not the first",), 0),  # 6 wrong, 57 right
        ),
        "Unsqueeze": (
            Doubt(1, 10, ("axes", "axes are out of order"), 1),  # 3 wrong, 4 right
        ),
        "Upsample": (
            Doubt(7, 9, ("single precision scales to another size",), 0),  # 52 wrong, 0 right
        ),
        "ai.onnx.ml::LinearClassifier": (
            Doubt(1, None, ("a size is not known", "there is one class"), 1),  # 1 wrong, 2 right
        ),
    }
)
