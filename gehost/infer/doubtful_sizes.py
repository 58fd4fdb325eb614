"""Sizes in doubt by operator.

``make sizes`` measured them and writes this file.

Before each: cases in doubt with a wrong size, cases in doubt whose sizes were right by both
witnesses, and by one that runs them alone.
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
            # 2 wrong, 238 right, 59 by one
            Doubt(20, None, ("batch_mismatch",), 0, ("onnx.reference",)),
        ),
        "ArgMax": (
            # 5 wrong, 0 right
            Doubt(13, None, ("flag_not_0_or_1",), -1, ("onnx.reference",)),
        ),
        "ArgMin": (
            # 2 wrong, 0 right
            Doubt(13, None, ("flag_not_0_or_1",), -1, ("onnx.reference",)),
        ),
        "Attention": (
            # 2 wrong, 107 right, 127 by one
            Doubt(25, None, ("leading_sizes_differ",), 0, ("onnx.reference",)),
        ),
        "AveragePool": (
            # 307 wrong, 2 right, 13 by one
            Doubt(7, None, ("pool_output_size_differs",), 2, ("onnx.reference", "onnxruntime")),
            # 18 wrong, 1 right, 3 by one
            Doubt(
                19, None, ("valid_size_ignores_dilations",), 2, ("onnx.reference", "onnxruntime")
            ),
            # 2 wrong, 0 right
            Doubt(19, None, ("flag_not_0_or_1",), 2, ("onnx.reference", "onnxruntime")),
            # 12 wrong, 4 right, 9 by one
            Doubt(19, None, ("auto_pad=SAME_UPPER", "dilated", "strided"), 2, ("onnxruntime",)),
        ),
        "BatchNormalization": (
            # 2 wrong, 47 right, 2 by one
            Doubt(9, 13, ("vector_longer_than_axis",), 1, ("onnx.reference",)),
        ),
        "CausalConvWithState": (
            # 3 wrong, 0 right, 4 by one
            Doubt(27, None, ("state_length_mismatch",), 2, ("onnx.reference",)),
        ),
        "Conv": (
            # 18 wrong, 0 right, 9 by one
            Doubt(1, None, ("window_wider_than_axis", "strided"), 2, ("onnx.reference",)),
            # 3 wrong, 0 right
            Doubt(1, None, ("same_size_not_axis_over_stride",), 2, ("onnx.reference",)),
            # 1 wrong, 0 right
            Doubt(11, None, ("auto_pad=VALID", "pads_beside_auto_pad"), 2, ("onnx.reference",)),
        ),
        "ConvInteger": (
            # 28 wrong, 0 right, 6 by one
            Doubt(10, None, ("window_wider_than_axis", "strided"), 2, ("onnx.reference",)),
            # 3 wrong, 0 right
            Doubt(10, None, ("same_size_not_axis_over_stride",), 2, ("onnx.reference",)),
            # 2 wrong, 0 right, 1 by one
            Doubt(10, None, ("auto_pad=VALID", "pads_beside_auto_pad"), 2, ("onnx.reference",)),
        ),
        "ConvTranspose": (
            # 115 wrong, 0 right, 24 by one
            Doubt(1, None, ("same_size_not_axis_times_stride",), 2, ("onnx.reference",)),
            # 68 wrong, 0 right
            Doubt(1, None, ("rank_mismatch",), -1, ("onnx.reference", "onnxruntime")),
        ),
        "DFT": (
            # 3 wrong, 25 right, 8 by one
            Doubt(20, None, ("input_1_computed",), 0, ("onnx.reference", "onnxruntime")),
        ),
        "DequantizeLinear": (
            # 2 wrong, 40 right, 59 by one
            Doubt(19, 27, ("vector_longer_than_axis",), 1, ("onnx.reference",)),
        ),
        "Einsum": (
            # 12 wrong, 118 right, 18 by one
            Doubt(12, None, ("later_term_wider",), 0, ("onnx.reference", "onnxruntime")),
        ),
        "GRU": (
            # 0 wrong, 0 right
            Doubt(14, 21, ("flag_not_0_or_1",), 2, ("onnx.reference",)),
            # 4 wrong, 160 right, 105 by one
            Doubt(7, None, ("hidden_size_mismatch",), 2, ("onnx.reference",)),
            # 1 wrong, 16 right, 17 by one
            Doubt(14, 21, ("initial_batch_mismatch",), 2, ("onnx.reference",)),
        ),
        "GlobalMaxPool": (
            # 738 wrong, 0 right
            Doubt(1, None, ("rank_not_4",), -1, ("onnx.reference",)),
        ),
        "GridSample": (
            # 1 wrong, 74 right
            Doubt(16, 19, ("leading_sizes_differ", "mode=bilinear"), 0, ("onnx.reference",)),
        ),
        "InstanceNormalization": (
            # 6 wrong, 199 right, 16 by one
            Doubt(6, None, ("vector_longer_than_axis",), 1, ("onnx.reference",)),
        ),
        "LSTM": (
            # 0 wrong, 0 right
            Doubt(14, 21, ("flag_not_0_or_1",), 2, ("onnx.reference",)),
            # 2 wrong, 163 right, 94 by one
            Doubt(7, None, ("hidden_size_mismatch",), 2, ("onnx.reference",)),
            # 0 wrong, 18 right, 24 by one
            Doubt(14, 21, ("initial_batch_mismatch",), 2, ("onnx.reference",)),
        ),
        "LayerNormalization": (
            # 7 wrong, 171 right, 44 by one
            Doubt(17, None, ("parameter_wider",), 0, ("onnx.reference",)),
        ),
        "LpPool": (
            # 231 wrong, 2 right, 8 by one
            Doubt(2, None, ("pool_output_size_differs",), 2, ("onnx.reference",)),
            # 12 wrong, 0 right, 3 by one
            Doubt(
                18, None, ("valid_size_ignores_dilations", "ceil_mode=0"), 2, ("onnx.reference",)
            ),
        ),
        "MaxPool": (
            # 375 wrong, 2 right, 14 by one
            Doubt(1, None, ("pool_output_size_differs",), 2, ("onnx.reference", "onnxruntime")),
            # 160 wrong, 0 right
            Doubt(1, None, ("same_lower_rounds_down",), 2, ("onnx.reference", "onnxruntime")),
            # 85 wrong, 14 right, 24 by one
            Doubt(10, None, ("ceil_mode=1", "reference_pad_order_differs"), 2, ("onnx.reference",)),
            # 31 wrong, 5 right, 1 by one
            Doubt(10, None, ("auto_pad=VALID", "ceil_mode_changes_size"), 2, ("onnx.reference",)),
            # 36 wrong, 0 right
            Doubt(
                1, None, ("same_size_not_axis_over_stride",), 2, ("onnx.reference", "onnxruntime")
            ),
            # 29 wrong, 2 right, 61 by one
            Doubt(
                10,
                None,
                ("ceil_mode=0", "not strides", "reference_pad_order_differs"),
                2,
                ("onnx.reference", "onnxruntime"),
            ),
            # 6 wrong, 1 right, 1 by one
            Doubt(
                12,
                None,
                ("dilations", "strides", "reference_pad_order_differs"),
                2,
                ("onnx.reference",),
            ),
            # 24 wrong, 4 right, 35 by one
            Doubt(
                1,
                None,
                ("not dilations", "strides", "reference_pad_order_differs"),
                2,
                ("onnx.reference",),
            ),
            # 96 wrong, 14 right, 104 by one
            Doubt(
                1,
                None,
                ("not dilations", "not strides", "reference_pad_order_differs"),
                2,
                ("onnx.reference",),
            ),
        ),
        "MaxUnpool": (
            # 2 wrong, 3 right, 2 by one
            Doubt(
                22, None, ("not strides", "padded", "index_sizes_differ"), 1, ("onnx.reference",)
            ),
            # 3 wrong, 23 right, 3 by one
            Doubt(11, None, ("not strides", "pads", "index_sizes_differ"), 1, ("onnx.reference",)),
            # 3 wrong, 77 right, 14 by one
            Doubt(11, None, ("not pads", "strides", "index_sizes_differ"), 1, ("onnx.reference",)),
            # 1 wrong, 26 right, 1 by one
            Doubt(11, 21, ("padded", "strides", "index_sizes_differ"), 1, ("onnx.reference",)),
        ),
        "Min": (
            # 1 wrong, 0 right
            Doubt(6, 7, ("size_unknown",), 2, ("onnx.reference",)),
        ),
        "NegativeLogLikelihoodLoss": (
            # 1 wrong, 98 right, 42 by one
            Doubt(22, None, ("target_size_mismatch",), 1, ("onnxruntime",)),
        ),
        "NonZero": (
            # 14 wrong, 0 right, 4 by one
            Doubt(9, None, ("scalar",), 0, ("onnxruntime",)),
        ),
        "PRelu": (
            # 31 wrong, 43 right, 5 by one
            Doubt(7, None, ("parameter_wider",), -1, ("onnx.reference", "onnxruntime")),
        ),
        "QLinearConv": (
            # 28 wrong, 0 right, 12 by one
            Doubt(10, None, ("window_wider_than_axis", "strided"), 2, ("onnx.reference",)),
            # 2 wrong, 0 right
            Doubt(10, None, ("same_size_not_axis_over_stride",), 2, ("onnx.reference",)),
            # 2 wrong, 0 right, 2 by one
            Doubt(10, None, ("auto_pad=VALID", "pads_beside_auto_pad"), 2, ("onnx.reference",)),
        ),
        "QuantizeLinear": (
            # 2 wrong, 35 right, 47 by one
            Doubt(19, 27, ("vector_longer_than_axis", "axis"), 0, ("onnx.reference",)),
        ),
        "RMSNormalization": (
            # 13 wrong, 139 right, 61 by one
            Doubt(23, None, ("parameter_wider",), 0, ("onnx.reference",)),
        ),
        "RNN": (
            # 1 wrong, 0 right
            Doubt(14, 21, ("flag_not_0_or_1",), 2, ("onnx.reference",)),
            # 9 wrong, 193 right, 68 by one
            Doubt(7, None, ("hidden_size_mismatch",), 2, ("onnx.reference",)),
            # 0 wrong, 25 right, 17 by one
            Doubt(14, 21, ("initial_batch_mismatch",), 2, ("onnx.reference",)),
        ),
        "Range": (
            # 73 wrong, 0 right
            Doubt(11, None, ("float64_count_differs",), 0, ("onnx.reference", "onnxruntime")),
        ),
        "ReduceL1": (
            # 1 wrong, 2 right, 1 by one
            Doubt(18, None, ("reduced_axis_empty", "input_empty"), 2, ("onnxruntime",)),
        ),
        "ReduceL2": (
            # 1 wrong, 0 right
            Doubt(18, None, ("flag_not_0_or_1",), -1, ("onnx.reference",)),
            # 1 wrong, 0 right
            Doubt(11, 12, ("input_empty", "axes"), 0, ("onnxruntime",)),
            # 1 wrong, 45 right, 16 by one
            Doubt(18, None, ("input_empty", "not axes"), 2, ("onnxruntime",)),
            # 2 wrong, 53 right
            Doubt(11, 17, ("reduced_axis_empty", "axes"), 0, ("onnxruntime",)),
        ),
        "ReduceLogSum": (
            # 1 wrong, 1 right
            Doubt(13, 17, ("input_empty", "axes"), 1, ("onnxruntime",)),
        ),
        "ReduceLogSumExp": (
            # 2 wrong, 0 right
            Doubt(18, 27, ("flag_not_0_or_1",), -1, ("onnx.reference",)),
            # 1 wrong, 5 right, 1 by one
            Doubt(18, 27, ("reduced_axis_empty", "input_empty", "not axes"), 1, ("onnxruntime",)),
        ),
        "ReduceMax": (
            # 1 wrong, 0 right
            Doubt(20, None, ("flag_not_0_or_1",), -1, ("onnx.reference",)),
            # 1 wrong, 0 right
            Doubt(
                18, 19, ("reduced_axis_empty", "size_unknown", "input_empty"), 3, ("onnxruntime",)
            ),
            # 2 wrong, 17 right
            Doubt(18, 19, ("reduced_axis_empty", "size_unknown", "not axes"), 1, ("onnxruntime",)),
        ),
        "ReduceMean": (
            # 1 wrong, 4 right, 2 by one
            Doubt(18, None, ("reduced_axis_empty", "input_empty"), -1, ("onnxruntime",)),
        ),
        "ReduceMin": (
            # 1 wrong, 0 right
            Doubt(20, None, ("flag_not_0_or_1",), -1, ("onnx.reference",)),
            # 2 wrong, 0 right
            Doubt(18, 19, ("reduced_axis_empty", "input_empty"), -1, ("onnxruntime",)),
        ),
        "ReduceProd": (
            # 4 wrong, 0 right
            Doubt(1, None, ("flag_not_0_or_1",), -1, ("onnx.reference",)),
            # 2 wrong, 62 right, 19 by one
            Doubt(
                18, None, ("reduced_axis_empty", "not axes"), -1, ("onnx.reference", "onnxruntime")
            ),
        ),
        "ReduceSum": (
            # 2 wrong, 0 right
            Doubt(13, None, ("flag_not_0_or_1",), -1, ("onnx.reference",)),
        ),
        "ReduceSumSquare": (
            # 1 wrong, 0 right
            Doubt(18, None, ("flag_not_0_or_1",), -1, ("onnx.reference",)),
            # 2 wrong, 2 right, 1 by one
            Doubt(18, None, ("reduced_axis_empty", "input_empty"), 0, ("onnxruntime",)),
        ),
        "Resize": (
            # 170 wrong, 0 right, 38 by one
            Doubt(10, None, ("float32_scale_differs",), 1, ("onnxruntime",)),
        ),
        "RoiAlign": (
            # 2 wrong, 105 right, 1 by one
            Doubt(10, 21, ("mode=avg", "region_count_mismatch"), 0, ("onnx.reference",)),
        ),
        "Shape": (
            # 21 wrong, 3 right, 2 by one
            Doubt(15, None, ("bound_before_first_axis",), 0, ("onnx.reference",)),
        ),
        "Slice": (
            # 62 wrong, 0 right
            Doubt(10, None, ("reverse_slice_starts_before_axis",), 0, ("onnx.reference",)),
            # 18 wrong, 4 right
            Doubt(10, 10, ("sliced_axis_keeps_name",), 0, ("onnx.reference", "onnxruntime")),
            # 20 wrong, 4 right, 5 by one
            Doubt(10, None, ("reverse_slice_ends_at_maximum",), 0, ("onnxruntime",)),
        ),
        "Split": (
            # 14 wrong, 0 right, 25 by one
            Doubt(18, None, ("split_part_empty",), 0, ("onnx.reference",)),
        ),
        "Squeeze": (
            # 23 wrong, 0 right
            Doubt(1, 10, ("axes", "axes_unordered"), -1, ("onnx.reference", "onnxruntime")),
            # 15 wrong, 5 right, 2 by one
            Doubt(1, None, ("no_axes",), -1, ("onnxruntime",)),
        ),
        "Unique": (
            # 9 wrong, 9 right, 8 by one
            Doubt(11, 27, ("sorted=0", "axis_not_first", "rank_over_2"), 0, ("onnx.reference",)),
            # 13 wrong, 18 right, 14 by one
            Doubt(11, None, ("sorted=0", "axis_not_first"), 0, ("onnx.reference",)),
        ),
        "Unsqueeze": (
            # 1 wrong, 0 right
            Doubt(11, 12, ("input_empty", "axes_unordered"), 0, ("onnx.reference",)),
            # 9 wrong, 13 right, 24 by one
            Doubt(1, 12, ("axes", "axes_unordered"), 0, ("onnx.reference",)),
        ),
        "Upsample": (
            # 234 wrong, 0 right
            Doubt(7, 9, ("float32_scale_differs",), 0, ("onnxruntime",)),
        ),
        "ai.onnx.ml::LinearClassifier": (
            # 1 wrong, 0 right, 14 by one
            Doubt(1, None, ("size_unknown", "single_class"), 1, ("onnx.reference",)),
        ),
    }
)
