"""Sizes that ONNX's inference states and computed tensors may not have.

A doubt is an operator, a range of opsets, and conditions on one node. If all of them hold, gehost
treats the sizes as unknown: clean-up folds none of them, and no proof uses them. The doubts are
measured: ``make sizes`` compares inferred sizes with those of ONNX Runtime and of
``onnx.reference``, and writes ``doubtful_sizes``. This file has the conditions to choose from.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np

from gehost.ir.types import Dim, TensorType, ValueType


class Doubt(NamedTuple):
    """Sizes of an operator that are unknown under conditions.

    Attributes:
        first: the first opset.
        last: the last opset; None if the newest one is affected, too.
        when: names of conditions, which must all hold. A name is one of ``CONDITIONS``,
            ``attribute=value`` or ``attribute`` (it is present); after ``not `` it must not hold.
        certain: number of leading sizes of each output that are still right; -1 if even the rank is
            not.
        differs: who computes other sizes than ``onnx.shape_inference`` infers, of "onnxruntime" and
            "onnx.reference". A row can go when neither does with the versions that gehost takes.
    """

    first: int
    last: int | None
    when: tuple[str, ...]
    certain: int
    differs: tuple[str, ...] = ()


class Statement(NamedTuple):
    """The result of inference for one node, and its inputs.

    Attributes:
        attributes: with the defaults of the operator.
        types: of the inputs.
        arrays: of the inputs that are small constants.
        present: whether each input is present.
        stated: types of the outputs, as inferred.
    """

    op: str
    attributes: Mapping[str, Any]
    types: Sequence[ValueType | None]
    arrays: Sequence[np.ndarray[Any, Any] | None]
    present: Sequence[bool]
    stated: Sequence[ValueType | None]

    def shape(self, slot: int) -> tuple[Dim, ...] | None:
        """Return an input's dimensions, None if absent or of unknown rank."""
        return _shape(self.types, slot)

    def result(self, slot: int = 0) -> tuple[Dim, ...] | None:
        """Return the inferred dimensions of an output."""
        return _shape(self.stated, slot)

    def has(self, slot: int) -> bool:
        """Whether an input is present."""
        return slot < len(self.present) and self.present[slot]

    def numbers(self, slot: int, attribute: str = "") -> list[Any] | None:
        """Return the elements of a constant input, else of the attribute."""
        array = self.arrays[slot] if slot < len(self.arrays) else None
        if array is not None:
            return array.reshape(-1).tolist()
        attribute_value = self.attributes.get(attribute)
        return None if attribute_value is None else list(attribute_value)


def _shape(types: Sequence[ValueType | None], slot: int) -> tuple[Dim, ...] | None:
    value_type = types[slot] if slot < len(types) else None
    return value_type.shape if isinstance(value_type, TensorType) else None


def believed(
    doubts: Sequence[Doubt], version: int, statement: Statement
) -> Sequence[ValueType | None]:
    """Return the inferred types, without the sizes that are in doubt."""
    certain = [
        doubt.certain
        for doubt in doubts
        if doubt.first <= version <= (doubt.last or version)
        and all(holds(name, statement) for name in doubt.when)
    ]
    if not certain:
        return statement.stated
    least = min(certain)
    types: list[ValueType | None] = []
    for value_type in statement.stated:
        if isinstance(value_type, TensorType) and value_type.shape is not None:
            dims = (dim if axis < least else None for axis, dim in enumerate(value_type.shape))
            types.append(TensorType(value_type.dtype, None if least < 0 else tuple(dims)))
        else:
            types.append(value_type)
    return types


def holds(name: str, statement: Statement) -> bool:
    """Whether the condition of this name holds."""
    if name.startswith("not "):
        return not holds(name.removeprefix("not "), statement)
    condition = CONDITIONS.get(name)
    if condition is not None:
        return condition.holds(statement)
    attribute, _, value = name.partition("=")
    attribute_value = statement.attributes.get(attribute)
    return attribute_value is not None if not value else str(attribute_value) == value


# windows of pools and convolutions


class _Window(NamedTuple):
    """The window along one spatial axis.

    Attributes:
        before: the pad before the axis, 0 for VALID; for SAME, as the attribute has it.
        stated: the inferred size.
    """

    size: int
    kernel: int
    stride: int
    dilation: int
    before: int
    after: int
    stated: Dim

    @property
    def extent(self) -> int:
        return self.dilation * (self.kernel - 1) + 1

    @property
    def padded(self) -> int:
        return self.before + self.size + self.after


_WEIGHTS = MappingProxyType(
    {"Conv": 1, "ConvInteger": 1, "ConvTranspose": 1, "DeformConv": 1, "QLinearConv": 3}
)


def _windows(s: Statement) -> Iterator[_Window]:
    """Yield the windows along the axes of known size."""
    shape, result = s.shape(0), s.result()
    slot = _WEIGHTS.get(s.op)
    kernel: Sequence[Dim] | None = s.attributes.get("kernel_shape")
    if not kernel and slot is not None:
        kernel = (s.shape(slot) or ())[2:]
    if shape is None or not kernel:
        return
    count = len(shape) - 2
    pads = s.attributes.get("pads") or [0] * (2 * count)
    strides, dilations = (
        s.attributes.get(name) or [1] * count for name in ("strides", "dilations")
    )
    if not len(kernel) == len(strides) == len(dilations) == count == len(pads) / 2:
        return
    if _auto_pad(s) == "VALID":
        pads = [0] * (2 * count)
    sizes = (None,) * count if result is None or len(result) != count + 2 else result[2:]
    for axis, size in enumerate(shape[2:]):
        width = kernel[axis]
        if isinstance(size, int) and isinstance(width, int) and strides[axis] > 0:
            around = pads[axis], pads[count + axis]
            yield _Window(size, width, strides[axis], dilations[axis], *around, sizes[axis])


def _auto_pad(s: Statement) -> str:
    return s.attributes.get("auto_pad", "NOTSET")


def _is_same(s: Statement) -> bool:
    return _auto_pad(s) in ("SAME_UPPER", "SAME_LOWER")


def _has_other(s: Statement, attribute: str, number: int) -> bool:
    """Whether a list has another number than this one, its default."""
    return any(entry != number for entry in s.attributes.get(attribute) or ())


def _runtime_ends_elsewhere(s: Statement) -> bool:
    """Whether ONNX Runtime counts another number of windows of a pool.

    It drops the last window of ``ceil_mode`` if that begins after the axis, and pads for SAME as if
    there were no dilations.
    """
    auto = _auto_pad(s)
    for w in _windows(s):
        before, padding = w.before, w.before + w.after
        if auto not in ("NOTSET", "VALID"):
            padding = max((-(-w.size // w.stride) - 1) * w.stride + w.kernel - w.size, 0)
            before = padding // 2 if auto == "SAME_UPPER" else padding - padding // 2
        room = w.size + padding - w.extent
        count = room // w.stride + 1
        if s.attributes.get("ceil_mode"):
            count = -(-room // w.stride) + 1
            if (count - 1) * w.stride >= w.size + before:
                count -= 1
        if isinstance(w.stated, int) and w.stated != max(count, 0):
            return True
    return False


def _reference_pads_otherwise(s: Statement) -> bool:
    """Whether the reference takes pads in another order.

    It does where all strides and dilations are 1.
    """
    pads = list(s.attributes.get("pads") or ())
    if _has_other(s, "strides", 1) or _has_other(s, "dilations", 1) or not any(pads):
        return False
    count = len(pads) // 2
    if count != 2:  # of other ranks, the reference reads only the pads at the beginning of axes
        return any(pads[count:])
    return bool(s.attributes.get("ceil_mode")) or any(
        pads[2 * i] + pads[2 * i + 1] != pads[i] + pads[count + i] for i in range(count)
    )


# sizes that depend on floating-point rounding


def _scales_to_another_size(s: Statement) -> bool:
    """Whether float32 gives another size.

    ONNX Runtime multiplies size and scale in it.
    """
    shape, result = s.shape(0), s.result()
    scales = s.numbers(1 if s.op == "Upsample" or len(s.present) == 2 else 2, "scales")
    if shape is None or result is None or not scales:
        return False
    axes: Sequence[int] = s.attributes.get("axes") or range(len(scales))
    return any(
        isinstance(size := shape[axis], int)
        and isinstance(result_size := result[axis], int)
        and math.floor(np.float32(size) * np.float32(scale)) != result_size
        for axis, scale in zip(axes, scales, strict=False)
    )


def _float64_counts_otherwise(s: Statement) -> bool:
    """Whether a Range of floats has another count if computed in float64."""
    numbers = [s.numbers(slot) for slot in range(3)]
    value_type, result = s.types[0] if s.types else None, s.result()
    if not isinstance(value_type, TensorType) or not value_type.dtype.is_float or not result:
        return False
    if not all(numbers):
        return False
    start, limit, delta = (part[0] for part in numbers if part)
    with np.errstate(all="ignore"):
        ratio = float((np.float64(limit) - np.float64(start)) / np.float64(delta))
    return not math.isfinite(ratio) or max(math.ceil(ratio), 0) != result[0]


# inputs that may be broadcast to a wider result


def _widens(dim: Dim, other: Dim) -> bool:
    """Whether ``other`` may be 1 and be broadcast to ``dim``."""
    return dim not in (1, other) and not (isinstance(other, int) and other > 1)


def _parameter_may_be_wider(s: Statement) -> bool:
    """Whether the tensor may have to be broadcast to a parameter."""
    shape = s.shape(0)
    if shape is None:
        return True
    others = [s.shape(slot) for slot in range(1, len(s.types)) if s.has(slot)]
    return any(
        other is None
        or len(other) > len(shape)
        or any(map(_widens, reversed(other), reversed(shape)))
        for other in others
    )


def _vector_may_be_longer(s: Statement) -> bool:
    """Whether a vector may be longer than its axis of the tensor."""
    shape = s.shape(0)
    axis: int = s.attributes.get("axis", 1)
    if shape is None or not -len(shape) <= axis < len(shape):
        return True
    vectors = [s.shape(slot) for slot in range(1, len(s.types)) if s.has(slot)]
    return any(v is None or (len(v) == 1 and _widens(v[0], shape[axis])) for v in vectors)


def _later_term_may_be_wider(s: Statement) -> bool:
    """Whether a later term of an ``Einsum`` may be wider.

    It may be so in a letter, or in an axis of the dots.
    """
    terms = str(s.attributes.get("equation", "")).replace(" ", "").split("->")[0].split(",")
    first: dict[str | int, Dim] = {}
    for slot, term in enumerate(terms):
        shape = s.shape(slot)
        if shape is None:
            return True
        front, dots, back = term.partition("...")
        count = len(shape) - len(front) - len(back)
        dotted = range(-count, 0) if dots else ()
        for letter, dim in zip((*front, *dotted, *back), shape, strict=False):
            before = first.setdefault(letter, dim)
            joined = bool(dots) and before == 1 and isinstance(dim, int)  # inference sees it
            if dim is None or (dim not in (1, before) and not joined):
                return True
    return False


# axes


def _reduced_axis_may_be_empty(s: Statement) -> bool:
    shape, axes = s.shape(0), s.numbers(1, "axes")
    if shape is None or (axes is None and s.has(1)):
        return True
    if not axes:
        axes = [] if s.attributes.get("noop_with_empty_axes") else list(range(len(shape)))
    return any(
        not -len(shape) <= axis < len(shape) or not isinstance(shape[axis], int) or shape[axis] == 0
        for axis in axes
    )


def _last_part_is_empty(s: Statement) -> bool:
    """Whether a ``Split``'s last parts are empty or do not fit."""
    shape, count = s.shape(0), len(s.stated)
    axis: int = s.attributes.get("axis", 0)
    if shape is None or not -len(shape) <= axis < len(shape):
        return True
    size = shape[axis]
    if s.has(1) or s.attributes.get("split") or not isinstance(size, int):
        return False
    return -(-size // count) * (count - 1) >= size


class _Slice(NamedTuple):
    """The slice of one axis; ``stated`` is the inferred size."""

    start: int
    end: int
    step: int
    size: Dim
    stated: Dim


def _slices(s: Statement) -> Iterator[_Slice]:
    shape, result = s.shape(0), s.result()
    starts, ends = s.numbers(1, "starts"), s.numbers(2, "ends")
    if shape is None or result is None or starts is None or ends is None:
        return
    axes = s.numbers(3, "axes") or list(range(len(starts)))
    steps = s.numbers(4) or [1] * len(starts)
    for start, end, step, axis in zip(starts, ends, steps, axes, strict=False):
        if -len(shape) <= axis < len(shape) == len(result):
            yield _Slice(start, end, step, shape[axis], result[axis])


# inconsistent sizes of inputs


def _leading_sizes_may_differ(s: Statement) -> bool:
    """Whether first sizes of inputs may differ.

    Only inputs of rank 2 or more count, and masks do not.
    """
    slots = [slot for slot in range(len(s.types)) if (s.op, slot) != ("Attention", 3)]
    shapes = [s.shape(slot) for slot in slots if s.has(slot)]
    leading = {shape[0] for shape in shapes if shape is not None and len(shape) > 1}
    return len(leading) > 1 or None in leading


def _hidden_size_differs(s: Statement) -> bool:
    weights, hidden = s.shape(2), s.attributes.get("hidden_size")
    if weights is None or len(weights) != 3:
        return True
    both = 2 if s.attributes.get("direction") == "bidirectional" else 1
    return (hidden is not None and weights[2] != hidden) or weights[0] != both


def _initial_batch_differs(s: Statement) -> bool:
    shape, batch = s.shape(0), 0 if s.attributes.get("layout") else 1
    states = [s.shape(slot) for slot in (5, 6) if s.has(slot)]
    if shape is None or len(shape) != 3:
        return bool(states)
    return any(state is None or len(state) != 3 or state[batch] != shape[batch] for state in states)


def _state_is_not_kernel(s: Statement) -> bool:
    """Whether a causal convolution's state is not the kernel less one."""
    weights, state = s.shape(1), s.shape(3)
    if state is None or weights is None or len(state) != 3 or len(weights) != 3:
        return s.has(3)
    width, length = weights[2], state[2]
    return not isinstance(width, int) or not isinstance(length, int) or length != width - 1


def _first_differs(left: Sequence[Any] | None, right: Sequence[Any] | None) -> bool:
    return not left or not right or left[0] != right[0]


# the table


@dataclass(frozen=True)
class Condition:
    """A condition, and the operators it applies to; None for all."""

    holds: Callable[[Statement], bool]
    ops: Collection[str] | None = None


_FLAGS = (
    *("keepdims", "onesided", "inverse", "ceil_mode", "new_axis", "layout"),
    *("noop_with_empty_axes", "transA", "transB", "allowzero"),
)
_POOLS = ("AveragePool", "LpPool", "MaxPool")
_TRANSPOSED = ("ConvTranspose", "MaxUnpool")
_SLIDING = (*_POOLS, "Conv", "ConvInteger", "DeformConv", "QLinearConv", *_TRANSPOSED)
_RECURRENT = ("GRU", "LSTM", "RNN")
_REDUCTIONS = (
    *("ReduceL1", "ReduceL2", "ReduceLogSum", "ReduceLogSumExp", "ReduceMax"),
    *("ReduceMean", "ReduceMin", "ReduceProd", "ReduceSum", "ReduceSumSquare"),
)

CONDITIONS: Mapping[str, Condition] = MappingProxyType(
    {
        "any_node": Condition(lambda _: True),
        "flag_not_0_or_1": Condition(
            lambda s: any(s.attributes.get(name, 0) not in (0, 1) for name in _FLAGS)
        ),
        "input_empty": Condition(
            lambda s: any(0 in (s.shape(slot) or ()) for slot in range(len(s.types)))
        ),
        "size_unknown": Condition(
            lambda s: any(
                s.has(slot) and not all(isinstance(dim, int) for dim in s.shape(slot) or (None,))
                for slot in range(len(s.types))
            )
        ),
        "scalar": Condition(lambda s: not s.shape(0), ("NonZero",)),
        "input_1_computed": Condition(
            lambda s: s.has(1) and s.numbers(1) is None, ("DFT", "Upsample", "Resize")
        ),
        "leading_sizes_differ": Condition(
            _leading_sizes_may_differ,
            ("Attention", "GridSample", "LinearAttention", "RotaryEmbedding", "TensorScatter"),
        ),
        "parameter_wider": Condition(
            _parameter_may_be_wider,
            ("GroupNormalization", "LayerNormalization", "PRelu", "RMSNormalization"),
        ),
        "window_wider_than_axis": Condition(
            lambda s: any(
                w.size == 0 or (w.extent > w.padded and not _is_same(s)) for w in _windows(s)
            ),
            _SLIDING,
        ),
        "pads_beside_auto_pad": Condition(
            lambda s: _auto_pad(s) != "NOTSET" and _has_other(s, "pads", 0), _SLIDING
        ),
        "dilated": Condition(lambda s: _has_other(s, "dilations", 1), _SLIDING),
        "padded": Condition(lambda s: _has_other(s, "pads", 0), _SLIDING),
        "strided": Condition(lambda s: _has_other(s, "strides", 1), _SLIDING),
        "same_size_not_axis_over_stride": Condition(
            lambda s: (
                _is_same(s)
                and any(
                    isinstance(w.stated, int) and w.stated != -(-w.size // w.stride)
                    for w in _windows(s)
                )
            ),
            _SLIDING,
        ),
        "pool_output_size_differs": Condition(_runtime_ends_elsewhere, _POOLS),
        "ceil_mode_changes_size": Condition(
            lambda s: (
                bool(s.attributes.get("ceil_mode"))
                and any((w.padded - w.extent) % w.stride for w in _windows(s))
            ),
            _POOLS,
        ),
        "valid_size_ignores_dilations": Condition(
            lambda s: (
                _auto_pad(s) == "VALID"
                and any(
                    (w.size - w.kernel) // w.stride != (w.size - w.extent) // w.stride
                    for w in _windows(s)
                )
            ),
            _POOLS,
        ),
        # the reference divides the axis by the stride; inference rounds the quotient up
        "same_lower_rounds_down": Condition(
            lambda s: _auto_pad(s) == "SAME_LOWER" and any(w.size % w.stride for w in _windows(s)),
            _POOLS,
        ),
        "reference_pad_order_differs": Condition(_reference_pads_otherwise, ("MaxPool",)),
        "same_size_not_axis_times_stride": Condition(
            lambda s: (
                _is_same(s)
                and not s.attributes.get("output_shape")
                and any(
                    isinstance(w.stated, int) and w.stated != w.size * w.stride for w in _windows(s)
                )
            ),
            _TRANSPOSED,
        ),
        "index_sizes_differ": Condition(
            lambda s: s.shape(0) is None or s.shape(0) != s.shape(1), ("MaxUnpool",)
        ),
        "rank_mismatch": Condition(
            lambda s: (
                (shape := s.shape(0)) is not None
                and (result := s.result()) is not None
                and len(shape) != len(result)
            ),
            _TRANSPOSED,
        ),
        "float32_scale_differs": Condition(_scales_to_another_size, ("Resize", "Upsample")),
        "float64_count_differs": Condition(_float64_counts_otherwise, ("Range",)),
        # without axes, Squeeze removes those of size 1
        "no_axes": Condition(
            lambda s: (
                (s.numbers(1, "axes") == [] or (s.has(1) and s.shape(1) == (0,)))
                and (
                    (shape := s.shape(0)) is None
                    or any(not isinstance(dim, int) or dim == 1 for dim in shape)
                )
            ),
            ("Squeeze",),
        ),
        "axes_unordered": Condition(
            lambda s: (
                len(axes := s.numbers(1, "axes") or []) > 1
                and (axes != sorted(set(axes)) or axes[0] < 0)
            ),
            ("Squeeze", "Unsqueeze"),
        ),
        "reduced_axis_empty": Condition(_reduced_axis_may_be_empty, _REDUCTIONS),
        "split_part_empty": Condition(_last_part_is_empty, ("Split",)),
        # the result is the first element, or empty
        "reverse_slice_starts_before_axis": Condition(
            lambda s: any(
                part.step < 0
                and isinstance(part.size, int)
                and part.start < -part.size
                and part.stated != 0
                for part in _slices(s)
            ),
            ("Slice",),
        ),
        "reverse_slice_ends_behind_axis": Condition(
            lambda s: any(
                part.step < 0 and (not isinstance(part.size, int) or part.end >= part.size)
                for part in _slices(s)
            ),
            ("Slice",),
        ),
        # the number may mean the axis's begin
        "reverse_slice_ends_at_maximum": Condition(
            lambda s: any(
                part.step < 0 and part.end in (2**63 - 1, 2**31 - 1) for part in _slices(s)
            ),
            ("Slice",),
        ),
        "sliced_axis_keeps_name": Condition(
            lambda s: any(
                isinstance(part.stated, str)
                and (
                    part.end < 2**31 - 1
                    or (part.stated == part.size and (part.start, part.step) != (0, 1))
                )
                for part in _slices(s)
            ),
            ("Slice",),
        ),
        "bound_before_first_axis": Condition(
            lambda s: (
                (shape := s.shape(0)) is None
                or -2 * len(shape) < s.attributes.get("end", 0) < -len(shape)
            ),
            ("Shape",),
        ),
        "rank_not_4": Condition(
            lambda s: (shape := s.shape(0)) is not None and len(shape) != 4,
            ("GlobalAveragePool", "GlobalLpPool", "GlobalMaxPool"),
        ),
        "rank_over_2": Condition(lambda s: len(s.shape(0) or ()) > 2, ("Unique",)),
        "axis_not_first": Condition(lambda s: s.attributes.get("axis", 0) != 0, ("Unique",)),
        "hidden_size_mismatch": Condition(_hidden_size_differs, _RECURRENT),
        "state_length_mismatch": Condition(_state_is_not_kernel, ("CausalConvWithState",)),
        "batch_mismatch": Condition(
            lambda s: _first_differs(s.shape(0), s.numbers(1)), ("AffineGrid",)
        ),
        "vector_longer_than_axis": Condition(
            _vector_may_be_longer,
            ("BatchNormalization", "DequantizeLinear", "InstanceNormalization", "QuantizeLinear"),
        ),
        "region_count_mismatch": Condition(
            lambda s: _first_differs(s.shape(1), s.shape(2)), ("RoiAlign",)
        ),
        # targets have the scores' sizes but that of the class axis
        "target_size_mismatch": Condition(
            lambda s: (scores := s.shape(0)) is None or (*scores[:1], *scores[2:]) != s.shape(1),
            ("NegativeLogLikelihoodLoss", "SoftmaxCrossEntropyLoss"),
        ),
        "later_term_wider": Condition(_later_term_may_be_wider, ("Einsum",)),
        "initial_batch_mismatch": Condition(_initial_batch_differs, _RECURRENT),
        "single_class": Condition(
            lambda s: any(
                len(s.attributes.get(name) or ()) == 1
                for name in ("classlabels_ints", "classlabels_strings", "classlabels_int64s")
            ),
            ("ai.onnx.ml::LinearClassifier", "ai.onnx.ml::SVMClassifier"),
        ),
    }
)
