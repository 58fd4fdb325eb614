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
        "Attention": (
            Doubt(25, None, ("leading sizes may differ", "rank=4"), 0),  # 1 wrong, 19 right
        ),
        "AveragePool": (
            Doubt(10, 21, ("the last window begins behind the axis",), 2),  # 13 wrong, 0 right
            Doubt(
                10, None, ("a window is wider than its axis", "ceil_mode=0"), 2
            ),  # 6 wrong, 1 right
            Doubt(22, None, ("dilations beside auto_pad", "rank=3"), 2),  # 1 wrong, 0 right
            Doubt(22, None, ("dilations beside auto_pad", "rank=5"), 3),  # 1 wrong, 0 right
        ),
        "Conv": (
            Doubt(1, 21, ("a window is wider than its axis",), 2),  # 3 wrong, 0 right
        ),
        "ConvInteger": (
            Doubt(10, None, ("a window is wider than its axis", "dilated"), 2),  # 1 wrong, 1 right
        ),
        "ConvTranspose": (
            Doubt(
                11, 21, ("SAME is not the axis times the stride", "rank=4"), 3
            ),  # 2 wrong, 1 right
            Doubt(
                22, None, ("a window is wider than its axis", "not strides"), -1
            ),  # 1 wrong, 0 right
            Doubt(22, None, ("auto_pad=SAME_LOWER", "output_shape"), -1),  # 1 wrong, 0 right
        ),
        "DequantizeLinear": (
            Doubt(
                19, 20, ("a parameter may be wider than the tensor", "rank=4"), 2
            ),  # 1 wrong, 0 right
        ),
        "Einsum": (
            Doubt(
                12,
                27,
                ("a parameter may be wider than the tensor", "leading sizes may differ", "rank=2"),
                0,
            ),  # 1 wrong, 16 right
        ),
        "GlobalMaxPool": (
            Doubt(1, None, ("rank=3",), -1),  # 31 wrong, 0 right
            Doubt(1, None, ("rank=2",), -1),  # 28 wrong, 0 right
            Doubt(1, None, ("rank=5",), -1),  # 19 wrong, 0 right
        ),
        "InstanceNormalization": (
            Doubt(6, 21, ("rank=4",), 1),  # 1 wrong, 22 right
        ),
        "LSTM": (
            Doubt(
                22,
                None,
                (
                    "an input may be empty",
                    "hidden_size is not that of the weights",
                    "the state is not as long as the kernel",
                ),
                2,
            ),  # 1 wrong, 5 right
            Doubt(
                7, None, ("hidden_size is not that of the weights", "leading sizes may differ"), 2
            ),  # 2 wrong, 38 right
        ),
        "LayerNormalization": (
            Doubt(
                17, None, ("leading sizes may differ", "rank=2", "the axis is not the first"), 0
            ),  # 1 wrong, 1 right
            Doubt(
                17,
                None,
                ("a parameter may be wider than the tensor", "leading sizes may differ", "rank=3"),
                0,
            ),  # 2 wrong, 8 right
        ),
        "LpPool": (
            Doubt(18, None, ("the last window begins behind the axis",), 2),  # 4 wrong, 0 right
            Doubt(18, None, ("ceil_mode=0", "dilations beside auto_pad"), 2),  # 3 wrong, 0 right
            Doubt(
                2, 17, ("a window is wider than its axis", "auto_pad=VALID"), 2
            ),  # 2 wrong, 0 right
            Doubt(
                11, None, ("a window is wider than its axis", "rank=4", "strided"), 2
            ),  # 2 wrong, 3 right
        ),
        "MaxPool": (
            Doubt(12, 21, ("the last window begins behind the axis",), 2),  # 6 wrong, 0 right
            Doubt(
                12, None, ("auto_pad=VALID", "rounding up changes a size"), 2
            ),  # 5 wrong, 0 right
            Doubt(
                12, None, ("auto_pad=SAME_LOWER", "dilations beside auto_pad"), 2
            ),  # 5 wrong, 1 right
            Doubt(
                12, None, ("a window is wider than its axis", "not dilations", "strided"), 2
            ),  # 6 wrong, 1 right
            Doubt(1, None, ("not strides", "padded", "rank=4"), 2),  # 4 wrong, 6 right
            Doubt(
                10, 21, ("SAME is not the axis times the stride", "a part is empty"), 2
            ),  # 2 wrong, 0 right
            Doubt(12, None, ("ceil_mode=1", "padded", "rank=5"), 2),  # 2 wrong, 2 right
            Doubt(12, None, ("an input may be empty", "padded", "rank=4"), 2),  # 3 wrong, 6 right
        ),
        "NegativeLogLikelihoodLoss": (
            Doubt(22, None, ("an input may be empty", "rank=7"), 1),  # 1 wrong, 0 right
        ),
        "NonZero": (
            Doubt(13, None, ("a part is empty",), 0),  # 2 wrong, 1 right
        ),
        "PRelu": (
            Doubt(16, None, ("a parameter may be wider than the tensor",), -1),  # 3 wrong, 2 right
        ),
        "QLinearConv": (
            Doubt(10, None, ("a window is wider than its axis",), 2),  # 4 wrong, 1 right
            Doubt(10, None, ("pads beside auto_pad",), 2),  # 2 wrong, 0 right
            Doubt(10, None, ("SAME is not the axis over the stride",), 2),  # 2 wrong, 0 right
        ),
        "RMSNormalization": (
            Doubt(23, None, ("leading sizes may differ", "rank=2"), 0),  # 2 wrong, 3 right
            Doubt(
                23,
                None,
                ("a parameter may be wider than the tensor", "leading sizes may differ", "rank=3"),
                0,
            ),  # 1 wrong, 5 right
        ),
        "RNN": (
            Doubt(
                7, 13, ("an input may be empty", "hidden_size is not that of the weights"), 2
            ),  # 1 wrong, 9 right
        ),
        "Range": (
            Doubt(11, None, ("the count depends on rounding",), 0),  # 2 wrong, 23 right
        ),
        "ReduceMean": (
            Doubt(18, None, ("a flag is neither 0 nor 1",), -1),  # 1 wrong, 0 right
        ),
        "Resize": (
            Doubt(
                11, 12, ("a scaled size depends on rounding", "there are no axes"), 2
            ),  # 3 wrong, 1 right
            Doubt(
                19,
                None,
                ("a scaled size depends on rounding", "keep_aspect_ratio_policy=stretch", "rank=5"),
                1,
            ),  # 2 wrong, 2 right
            Doubt(
                13,
                17,
                ("coordinate_transformation_mode=pytorch_half_pixel", "mode=cubic", "rank=4"),
                3,
            ),  # 1 wrong, 0 right
        ),
        "RoiAlign": (
            Doubt(
                22,
                None,
                ("an input may be empty", "coordinate_transformation_mode=half_pixel", "mode=avg"),
                0,
            ),  # 1 wrong, 7 right
        ),
        "Shape": (
            Doubt(25, None, ("rank=4",), 0),  # 1 wrong, 5 right
        ),
        "Slice": (
            Doubt(
                11,
                None,
                (
                    "a scaled size depends on rounding",
                    "a slice back begins or ends beyond the axis",
                ),
                0,
            ),  # 4 wrong, 0 right
            Doubt(
                11, 12, ("a size is not known", "an axis is negative", "rank=3"), 1
            ),  # 1 wrong, 0 right
        ),
        "Split": (
            Doubt(18, None, ("a part is empty",), 0),  # 1 wrong, 1 right
        ),
        "Squeeze": (
            Doubt(1, 20, ("rank=3", "there are no axes"), -1),  # 4 wrong, 0 right
            Doubt(1, 10, ("axes", "axes are out of order"), -1),  # 4 wrong, 0 right
            Doubt(1, 22, ("there are no axes",), -1),  # 6 wrong, 1 right
        ),
        "Unique": (
            Doubt(11, 27, ("a part is empty", "rank=3"), 0),  # 1 wrong, 3 right
            Doubt(11, 27, ("rank=3", "the axis is not the first"), 0),  # 2 wrong, 12 right
        ),
        "Unsqueeze": (
            Doubt(1, 10, ("axes", "axes are out of order"), 1),  # 3 wrong, 1 right
        ),
        "Upsample": (
            Doubt(7, 9, ("a scaled size depends on rounding", "rank=3"), 2),  # 2 wrong, 0 right
            Doubt(
                7, 9, ("a scaled size depends on rounding", "mode=nearest"), 2
            ),  # 9 wrong, 11 right
            Doubt(
                9,
                9,
                (
                    "a parameter may be wider than the tensor",
                    "a scaled size depends on rounding",
                    "an input may be empty",
                ),
                1,
            ),  # 1 wrong, 0 right
        ),
        "ai.onnx.ml::LinearClassifier": (
            Doubt(1, None, ("an input may be empty",), 1),  # 1 wrong, 5 right
        ),
    }
)
