"""What changed in ONNX's operators, by operator and opset.

An entry rewrites a node of the opset before into one of the same meaning. Operators that only got
more element types, or attributes and inputs whose defaults are what they did before, have none;
a test compares the schemas of all opsets with the table. Source: ONNX's operator changelog.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Final, TypeAlias

import numpy as np

from gehost.ir.types import DataType
from gehost.opset.operation import Operation, has_static_shape

Change: TypeAlias = Callable[[Operation], None]

ALLOW_ZERO_SINCE: Final = 14
_LOWEST, _HIGHEST = (float(limit) for limit in (np.finfo(np.float32).min, np.finfo(np.float32).max))


def _drops(*names: str) -> Change:
    """Return the change that removes attributes without a meaning."""

    def change(op: Operation) -> None:
        for name in names:
            op.take(name)

    return change


def _moves_to_input(name: str, slot: int = 1) -> Change:
    """Return the change of an attribute with integers to an input."""

    def change(op: Operation) -> None:
        values: Sequence[int] | None = op.take(name)
        if values is not None:
            op.set_input(slot, op.integers(values, name))

    return change


def _reduced_axes(op: Operation) -> None:
    """An empty list meant all axes, and an absent input does."""
    axes = op.take("axes")
    if axes:
        op.set_input(1, op.integers(axes, "axes"))


# operators with one function each, in alphabetical order


def _batch_normalization_7(op: Operation) -> None:
    if not op.take("is_test", 0) and op.has_several_outputs():
        raise op.refuse("it computes in training mode")


def _batch_normalization_9(op: Operation) -> None:
    if op.take("spatial", 1) != 1:
        raise op.refuse("spatial = 0 has no newer form")


def _batch_normalization_14(op: Operation) -> None:
    if op.has_several_outputs():
        raise op.refuse("it computes in training mode")
    del op.node.output[1:]


def _broadcasts_7(op: Operation) -> None:
    """Align the second input with dimension ``axis`` of the first, as numpy aligns the last."""
    axis = op.take("axis")
    if not op.take("broadcast", 0) or axis is None:
        return
    rank, other = op.rank(0), op.rank(1)
    if rank is None or other is None:
        raise op.refuse("it broadcasts along an axis, and the ranks are not known")
    following = rank - (axis + rank if axis < 0 else axis) - other
    if following > 0:
        axes = range(other, other + following)
        op.set_input(1, op.unsqueezed(op.node.input[1], axes))


def _cast_6(op: Operation) -> None:
    name = str(op.take("to")).upper()
    number = {"DOUBLE": 11, "FLOAT": 1, "FLOAT16": 10, "INT8": 3, "INT16": 5, "INT32": 6}
    number |= {"INT64": 7, "UINT8": 2, "UINT16": 4, "UINT32": 12, "UINT64": 13, "BOOL": 9}
    if name not in number:
        raise op.refuse(f"it casts to {name}")
    op.put(to=number[name])


def _clip_11(op: Operation) -> None:
    """A bound left out was the largest float, which float16 cannot hold: there it is none."""
    for slot, name, default in ((1, "min", _LOWEST), (2, "max", _HIGHEST)):
        bound = op.take(name)
        if bound is None:
            dtype = op.dtype()
            if dtype is None or dtype.numpy == np.float16:
                continue
            bound = default
        op.set_input(slot, op.number(bound, name))


def _concat_4(op: Operation) -> None:
    op.put(axis=op.attribute("axis", 1))


def _dft_20(op: Operation) -> None:
    op.set_input(2, op.constant(np.array(op.take("axis", 1), np.int64), "axis"))


def _dropout_mask(op: Operation) -> None:
    """Its mask has another element type from opset 10 on, and other elements from 12 on."""
    if op.output_is_read(1):
        raise op.refuse("something reads its mask, which is another one at newer opsets")
    del op.node.output[1:]


def _dropout_7(op: Operation) -> None:
    _dropout_mask(op)
    op.take("is_test")


def _dropout_12(op: Operation) -> None:
    _dropout_mask(op)
    op.take("ratio")  # it is the identity outside of training


def _grid_sample_20(op: Operation) -> None:
    mode = op.attribute("mode", "bilinear")
    op.put(mode={"bilinear": "linear", "bicubic": "cubic"}.get(mode, mode))


def _group_normalization_21(op: Operation) -> None:
    """Scale and bias have an element for each channel instead of each group."""
    groups = op.attribute("num_groups")
    channels = op.shape_of(op.node.input[0], 1, 2)
    item = op.add("Div", [channels, op.integers([groups], "groups")], "channels_of_a_group")
    expected = op.add("Concat", [op.integers([1], "one"), item], "channels", axis=0)
    for slot in (1, 2):
        column = op.unsqueezed(op.node.input[slot], [1])
        wide = op.add("Expand", [column, expected], "of_channels")
        op.set_input(slot, op.add("Reshape", [wide, op.integers([-1], "flat")], "of_channels"))


def _gru_3(op: Operation) -> None:
    if op.attribute("direction") == "foward":
        op.put(direction="forward")


def _mean_variance_normalization_13(op: Operation) -> None:
    """ONNX's inference refuses its body where the default is left out."""
    op.put(axes=op.attribute("axes", [0, 2, 3]))


def _pad_2(op: Operation) -> None:
    op.put(pads=op.take("paddings"))


def _pad_11(op: Operation) -> None:
    op.set_input(1, op.integers(op.take("pads"), "pads"))
    value = op.take("value", 0.0)
    if value and op.attribute("mode", "constant") == "constant":
        op.set_input(2, op.number(value, "value"))


def _pool_2(op: Operation) -> None:
    power = op.take("p", 2.0)
    if power != int(power):
        raise op.refuse(f"its p is {power}, an integer at newer opsets")
    op.put(p=int(power))


def _prelu_7(op: Operation) -> None:
    """A slope of one dimension had an element for each channel."""
    rank, slope = op.rank(0), op.rank(1)
    if rank is None or slope is None:
        raise op.refuse("the ranks of its inputs are not known")
    value = op.value(1)
    single = value is not None and value.shape in ((), (1,))
    if slope == 1 and rank > 2 and not single:
        op.set_input(1, op.unsqueezed(op.node.input[1], range(1, rank - 1)))


def _reshape_5(op: Operation) -> None:
    op.take("consumed_inputs")
    _moves_to_input("shape")(op)


def _resize_11(op: Operation) -> None:
    """It counted from the corner, and took the pixel at or before a place, or after it.

    The runtime takes the one after it where an image shrinks.
    """
    scales = op.array(1)
    mode = op.attribute("nearest_mode", "floor")
    if op.attribute("mode", "nearest") == "nearest" and op.attribute("nearest_mode") is None:
        if scales is None:
            raise op.refuse("its scales are not constant, on which rounding depends")
        if (scales < 1).any():
            if (scales > 1).any():
                raise op.refuse("it shrinks one axis and widens another")
            mode = "ceil"
    op.node.input.insert(1, op.constant(np.array([], np.float32), "roi"))
    op.put(coordinate_transformation_mode="asymmetric", nearest_mode=mode)


def _resize_13(op: Operation) -> None:
    """``tf_half_pixel_for_nn`` is half a pixel more than ``half_pixel``."""
    if op.attribute("coordinate_transformation_mode") == "tf_half_pixel_for_nn":
        mode, rounding = op.attribute("mode", "nearest"), op.attribute("nearest_mode")
        same = {"floor": "round_prefer_ceil", "round_prefer_floor": "ceil"}
        rounding = rounding or "round_prefer_floor"
        if mode != "nearest" or rounding not in same:
            raise op.refuse(
                f"coordinate_transformation_mode tf_half_pixel_for_nn with mode {mode} and "
                f"nearest_mode {rounding} has no newer form"
            )
        op.put(coordinate_transformation_mode="half_pixel", nearest_mode=same[rounding])
    for slot in (1, 2):  # an input that had to be there, empty where the other one counts
        value = op.value(slot)
        if value is not None and value.shape == (0,):
            op.set_input(slot, "")


def _roi_align_16(op: Operation) -> None:
    op.put(coordinate_transformation_mode="output_half_pixel")


def _scan_9(op: Operation) -> None:
    raise op.refuse("it has a batch dimension, which is gone at opset 9")


def _scatter_11(op: Operation) -> None:
    op.node.op_type = "ScatterElements"


def _selu_6(op: Operation) -> None:
    op.take("consumed_inputs")
    op.put(alpha=op.attribute("alpha", 1.6732), gamma=op.attribute("gamma", 1.0507))


def _slice_10(op: Operation) -> None:
    for slot, name in enumerate(("starts", "ends", "axes"), 1):
        _moves_to_input(name, slot)(op)


def _softmax_13(op: Operation) -> None:
    """It looked at all axes from ``axis`` on as one."""
    axis, rank = op.take("axis", 1), op.rank()
    if rank is not None and axis + rank * (axis < 0) == rank - 1:
        op.put(axis=-1)
        return
    source = op.node.input[0]
    shape = op.shape_of(source)
    zeros = op.target >= ALLOW_ZERO_SINCE and not has_static_shape(op.value(0))
    op.set_input(0, op.add("Flatten", [source], "flat", axis=axis))
    op.put(axis=-1)
    op.result_through("Reshape", [shape], **({"allowzero": 1} if zeros else {}))


def _split_2(op: Operation) -> None:
    if op.has_input(1):
        lengths = op.array(1)
        if lengths is None:
            raise op.refuse("the lengths of its parts are not constant")
        op.set_input(1, "")
        op.put(split=lengths.astype(np.int64).tolist())
    op.put(axis=op.attribute("axis", 0))


def _split_18(op: Operation) -> None:
    if not op.has_input(1):
        op.set_input(1, "")
        op.put(num_outputs=len(op.node.output))


def _tile_6(op: Operation) -> None:
    raise op.refuse("it repeats one axis")


def _top_k_10(op: Operation) -> None:
    op.set_input(1, op.integers([op.take("k")], "k"))


def _upsample_7(op: Operation) -> None:
    op.put(scales=[1.0, 1.0, op.take("height_scale"), op.take("width_scale")])


def _upsample_9(op: Operation) -> None:
    op.set_input(1, op.constant(np.array(op.take("scales"), np.float32), "scales"))


def _upsample_10(op: Operation) -> None:
    """It never shrinks."""
    op.node.op_type = "Resize"
    if op.target > 10:
        op.put(nearest_mode="floor")


def _each(names: str, version: int, change: Change) -> dict[tuple[str, int], Change]:
    return dict.fromkeys([(name, version) for name in names.split()], change)


CHANGES: Final[Mapping[tuple[str, int], Change]] = MappingProxyType(
    {
        **_each(
            "Abs Add BatchNormalization Ceil Clip Div Dropout Elu Exp Floor HardSigmoid "
            "InstanceNormalization LeakyRelu Log Max Mean Min Mul Neg PRelu Reciprocal Relu "
            "Sigmoid Sqrt Sub Sum Tanh",
            6,
            _drops("consumed_inputs"),
        ),
        **_each("Add And Div Equal Greater Less Mul Or Pow Sub Xor", 7, _broadcasts_7),
        **_each("GRU LSTM RNN", 7, _drops("output_sequence")),
        **_each("GlobalLpPool LpPool", 2, _pool_2),
        **_each("Hardmax LogSoftmax Softmax", 13, _softmax_13),
        **_each(
            "ReduceL1 ReduceL2 ReduceLogSum ReduceLogSumExp ReduceMax ReduceMean ReduceMin "
            "ReduceProd ReduceSumSquare",
            18,
            _reduced_axes,
        ),
        ("BatchNormalization", 7): _batch_normalization_7,
        ("BatchNormalization", 9): _batch_normalization_9,
        ("BatchNormalization", 14): _batch_normalization_14,
        ("Cast", 6): _cast_6,
        ("Clip", 11): _clip_11,
        ("Concat", 4): _concat_4,
        ("DFT", 20): _dft_20,
        ("Dropout", 7): _dropout_7,
        ("Dropout", 10): _dropout_mask,
        ("Dropout", 12): _dropout_12,
        ("GRU", 3): _gru_3,
        ("Gemm", 7): _drops("broadcast"),
        ("GridSample", 20): _grid_sample_20,
        ("GroupNormalization", 21): _group_normalization_21,
        ("MeanVarianceNormalization", 13): _mean_variance_normalization_13,
        ("PRelu", 7): _prelu_7,
        ("Pad", 2): _pad_2,
        ("Pad", 11): _pad_11,
        ("ReduceSum", 13): _reduced_axes,
        ("Reshape", 5): _reshape_5,
        ("Resize", 11): _resize_11,
        ("Resize", 13): _resize_13,
        ("RoiAlign", 16): _roi_align_16,
        ("Scan", 9): _scan_9,
        ("Scatter", 11): _scatter_11,
        ("Selu", 6): _selu_6,
        ("Slice", 10): _slice_10,
        ("Split", 2): _split_2,
        ("Split", 13): _moves_to_input("split"),
        ("Split", 18): _split_18,
        ("Squeeze", 13): _reduced_axes,
        ("Tile", 6): _tile_6,
        ("TopK", 10): _top_k_10,
        ("Unsqueeze", 13): _moves_to_input("axes"),
        ("Upsample", 7): _upsample_7,
        ("Upsample", 9): _upsample_9,
        ("Upsample", 10): _upsample_10,
    }
)
"""By operator and the opset with the new form."""

_IN_DOUBLE = "Elu HardSigmoid HardSwish LeakyRelu Mish PRelu Selu Softplus Softsign ThresholdedRelu"
_RANDOM = "Bernoulli Multinomial RandomNormal RandomNormalLike RandomUniform RandomUniformLike"
_POOLS = "GlobalLpPool MaxRoiPool RoiAlign"
LAST_OF_RUNTIME: Final[Mapping[tuple[str, DataType | None], int]] = MappingProxyType(
    {
        **dict.fromkeys([(op, DataType.DOUBLE) for op in _IN_DOUBLE.split()], 18),
        **dict.fromkeys([(op, None) for op in f"{_RANDOM} {_POOLS}".split()], 21),
        ("Swish", None): 24,
    }
)
"""The last opset at which ONNX Runtime runs an operator that it does run, by operator and element
type of input 0 (None: any). Source: ONNX Runtime 1.31, by ``python -m tools.opset``.
"""
