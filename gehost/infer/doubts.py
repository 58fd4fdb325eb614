"""Sizes that ONNX's inference states and that the computed tensor may not have.

A doubt is an operator, a range of opsets, and conditions on one node. If all of them hold, gehost
treats the sizes as unknown: clean-up folds none of them, and no proof uses them. The doubts are
measured: ``make sizes`` compares inferred sizes with those of ONNX Runtime and of
``onnx.reference``, and writes ``doubtful_sizes``. This file has the conditions to choose from.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
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
    """

    first: int
    last: int | None
    when: tuple[str, ...]
    certain: int


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
        """Return the elements of a constant input, or, where it is absent, of the attribute."""
        array = self.arrays[slot] if slot < len(self.arrays) else None
        if array is not None:
            return array.reshape(-1).tolist()
        found = self.attributes.get(attribute)
        return None if found is None else list(found)


def _shape(types: Sequence[ValueType | None], slot: int) -> tuple[Dim, ...] | None:
    known = types[slot] if slot < len(types) else None
    return known.shape if isinstance(known, TensorType) else None


def believed(
    doubts: Sequence[Doubt], version: int, statement: Statement
) -> Sequence[ValueType | None]:
    """Return the inferred types, without the sizes that are in doubt."""
    stated = statement.stated
    for doubt in doubts:
        if doubt.first <= version <= (doubt.last or version) and all(
            holds(name, statement) for name in doubt.when
        ):
            stated = [_without(known, doubt.certain) for known in stated]
    return stated


def _without(known: ValueType | None, certain: int) -> ValueType | None:
    if not isinstance(known, TensorType) or known.shape is None:
        return known
    if certain < 0:
        return TensorType(known.dtype, None)
    rest = max(len(known.shape) - certain, 0)
    return TensorType(known.dtype, known.shape[:certain] + (None,) * rest)


def holds(name: str, statement: Statement) -> bool:
    """Whether the condition of this name holds."""
    if name.startswith("not "):
        return not holds(name.removeprefix("not "), statement)
    condition = CONDITIONS.get(name)
    if condition is not None:
        return condition.holds(statement)
    attribute, _, value = name.partition("=")
    found = statement.attributes.get(attribute)
    return found is not None if not value else str(found) == value


# windows of pools and convolutions


class _Window(NamedTuple):
    """The window along one spatial axis; ``stated`` is the inferred size."""

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
    stated = (None,) * count if result is None or len(result) != count + 2 else result[2:]
    for axis, size in enumerate(shape[2:]):
        width = kernel[axis]
        if isinstance(size, int) and isinstance(width, int) and strides[axis] > 0:
            around = pads[axis], pads[count + axis]
            yield _Window(size, width, strides[axis], dilations[axis], *around, stated[axis])


def _pads_itself(s: Statement) -> bool:
    return s.attributes.get("auto_pad", "NOTSET") in ("SAME_UPPER", "SAME_LOWER")


def _is_too_wide(s: Statement) -> bool:
    """Whether a window, less its pads, is wider than the axis."""
    auto = s.attributes.get("auto_pad", "NOTSET")
    return any(
        w.size == 0
        or (
            not _pads_itself(s)
            and w.extent > w.size + (0 if auto == "VALID" else w.before + w.after)
        )
        for w in _windows(s)
    )


def _pads_twice(s: Statement) -> bool:
    return s.attributes.get("auto_pad", "NOTSET") != "NOTSET" and any(
        s.attributes.get("pads") or ()
    )


def _is_dilated(s: Statement) -> bool:
    return any(dilation != 1 for dilation in s.attributes.get("dilations") or ())


def _runtime_ends_elsewhere(s: Statement) -> bool:
    """Whether ONNX Runtime counts another number of windows of a pool.

    It drops the last window of ``ceil_mode`` if that begins after the axis, and pads for SAME as if
    there were no dilations.
    """
    auto = s.attributes.get("auto_pad", "NOTSET")
    for w in _windows(s):
        before, padding = w.before, w.before + w.after
        if auto == "VALID":
            before = padding = 0
        elif auto != "NOTSET":
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


def _same_lower_rounds_down(s: Statement) -> bool:
    """Whether the reference rounds axis / stride down.

    Inference rounds it up.
    """
    return s.attributes.get("auto_pad") == "SAME_LOWER" and any(
        w.size % w.stride for w in _windows(s)
    )


def _rounding_up_counts(s: Statement) -> bool:
    """Whether ``ceil_mode`` changes the size of an axis."""
    is_valid = s.attributes.get("auto_pad") == "VALID"
    return bool(s.attributes.get("ceil_mode")) and any(
        (w.size + (0 if is_valid else w.before + w.after) - w.extent) % w.stride
        for w in _windows(s)
    )


def _valid_without_dilations(s: Statement) -> bool:
    """Whether an undilated window would give another size."""
    return s.attributes.get("auto_pad") == "VALID" and any(
        (w.size - w.kernel) // w.stride != (w.size - w.extent) // w.stride for w in _windows(s)
    )


def _reference_pads_otherwise(s: Statement) -> bool:
    """Whether the reference takes pads in another order.

    It does where all strides and dilations are 1.
    """
    pads = list(s.attributes.get("pads") or ())
    if _has_strides(s) or _is_dilated(s) or not any(pads):
        return False
    count = len(pads) // 2
    if count != 2:  # of other ranks, the reference reads only the pads at the beginning of axes
        return any(pads[count:])
    return bool(s.attributes.get("ceil_mode")) or any(
        pads[2 * i] + pads[2 * i + 1] != pads[i] + pads[count + i] for i in range(count)
    )


def _differs_from_plain(s: Statement) -> bool:
    """Whether a size with automatic padding is not axis / stride."""
    return _pads_itself(s) and any(
        isinstance(w.stated, int) and w.stated != -(-w.size // w.stride) for w in _windows(s)
    )


def _is_not_padded_to_multiple(s: Statement) -> bool:
    """Whether a transposed size with automatic padding is not axis * stride."""
    return (
        _pads_itself(s)
        and not s.attributes.get("output_shape")
        and any(isinstance(w.stated, int) and w.stated != w.size * w.stride for w in _windows(s))
    )


def _loses_axes(s: Statement) -> bool:
    """Whether the result has another rank than the tensor."""
    shape, result = s.shape(0), s.result()
    return shape is not None and result is not None and len(shape) != len(result)


def _has_pads(s: Statement) -> bool:
    return any(s.attributes.get("pads") or ())


def _has_strides(s: Statement) -> bool:
    return any(stride != 1 for stride in s.attributes.get("strides") or ())


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
        and isinstance(stated := result[axis], int)
        and math.floor(np.float32(size) * np.float32(scale)) != stated
        for axis, scale in zip(axes, scales, strict=False)
    )


def _counts_otherwise(s: Statement) -> bool:
    """Whether a Range of floats has another count if computed in float64."""
    numbers = [s.numbers(slot) for slot in range(3)]
    known, result = s.types[0] if s.types else None, s.result()
    if not isinstance(known, TensorType) or not known.dtype.is_float or not result:
        return False
    if not all(numbers):
        return False
    start, limit, delta = (part[0] for part in numbers if part)
    with np.errstate(all="ignore"):
        ratio = float((np.float64(limit) - np.float64(start)) / np.float64(delta))
    return not math.isfinite(ratio) or max(math.ceil(ratio), 0) != result[0]


# inconsistent inputs and attributes


def _has_odd_flag(s: Statement) -> bool:
    return any(s.attributes.get(name, 0) not in (0, 1) for name in _FLAGS)


_FLAGS = (
    *("keepdims", "onesided", "inverse", "ceil_mode", "new_axis", "layout"),
    *("noop_with_empty_axes", "transA", "transB", "allowzero"),
)


def _is_wider(s: Statement) -> bool:
    """Whether a parameter may be wider than the tensor.

    The tensor would have to be broadcast.
    """
    shape = s.shape(0)
    if shape is None:
        return True
    for slot in range(1, len(s.types)):
        other = s.shape(slot)
        if not s.has(slot):
            continue
        if other is None or len(other) > len(shape):
            return True
        if any(map(_widens, reversed(other), reversed(shape))):
            return True
    return False


def _widens(dim: Dim, other: Dim) -> bool:
    """Whether ``other`` may be 1 and be broadcast to ``dim``."""
    return dim not in (1, other) and not (isinstance(other, int) and other > 1)


def _axes(s: Statement) -> list[Any] | None:
    return s.numbers(1, "axes")


def _has_no_axes(s: Statement) -> bool:
    """Whether no axes are given, and a size may be 1."""
    shape = s.shape(0)
    none = _axes(s) == [] or (s.has(1) and s.shape(1) == (0,))
    return none and (shape is None or any(not isinstance(dim, int) or dim == 1 for dim in shape))


def _axes_out_of_order(s: Statement) -> bool:
    axes = _axes(s) or []
    return len(axes) > 1 and (axes != sorted(set(axes)) or axes[0] < 0)


def _is_empty(s: Statement) -> bool:
    return any(0 in (s.shape(slot) or ()) for slot in range(len(s.types)))


def _reduces_nothing(s: Statement) -> bool:
    """Whether a reduced axis may be empty, also if axes are unknown."""
    shape, axes = s.shape(0), _axes(s)
    if shape is None or (axes is None and s.has(1)):
        return True
    if not axes:
        axes = [] if s.attributes.get("noop_with_empty_axes") else list(range(len(shape)))
    if any(not -len(shape) <= axis < len(shape) for axis in axes):
        return True
    sizes = [shape[axis] for axis in axes]
    return any(not isinstance(size, int) or size == 0 for size in sizes)


def _has_symbols(s: Statement) -> bool:
    """Whether a size of an input is unknown."""
    return any(
        s.has(slot) and not all(isinstance(dim, int) for dim in s.shape(slot) or (None,))
        for slot in range(len(s.types))
    )


def _is_computed(*slots: int) -> Callable[[Statement], bool]:
    def condition(s: Statement) -> bool:
        return any(s.has(slot) and s.numbers(slot) is None for slot in slots)

    return condition


def _has_empty_part(s: Statement) -> bool:
    """Whether the parts of a ``Split`` are too long.

    The last ones are then empty or do not fit.
    """
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


def _begins_before_the_axis(s: Statement) -> bool:
    """Whether a backward slice begins before the axis.

    The result is its first element, or empty.
    """
    return any(
        part.step < 0
        and isinstance(part.size, int)
        and part.start < -part.size
        and part.stated != 0
        for part in _slices(s)
    )


def _ends_at_the_largest(s: Statement) -> bool:
    """Whether a backward slice ends at the largest number.

    That may mean the axis's begin.
    """
    return any(part.step < 0 and part.end in (2**63 - 1, 2**31 - 1) for part in _slices(s))


def _ends_behind_the_axis(s: Statement) -> bool:
    return any(
        part.step < 0 and (not isinstance(part.size, int) or part.end >= part.size)
        for part in _slices(s)
    )


def _keeps_a_name(s: Statement) -> bool:
    """Whether a sliced axis of unknown size keeps its name."""
    return any(
        isinstance(part.stated, str)
        and part.stated == part.size
        and (part.start, part.step) != (0, 1)
        for part in _slices(s)
    ) or any(isinstance(part.stated, str) and part.end < 2**31 - 1 for part in _slices(s))


def _bound_before_first_axis(s: Statement) -> bool:
    shape = s.shape(0)
    end: int = s.attributes.get("end", 0)
    return shape is None or -2 * len(shape) < end < -len(shape)


def _rank_is(*ranks: int) -> Callable[[Statement], bool]:
    def condition(s: Statement) -> bool:
        shape = s.shape(0)
        return shape is None or len(shape) in ranks

    return condition


def _leading_sizes_differ(s: Statement) -> bool:
    """Whether first sizes of inputs may differ.

    Only inputs of rank 2 or more count, and masks do not.
    """
    slots = [slot for slot in range(len(s.types)) if (s.op, slot) != ("Attention", 3)]
    shapes = [s.shape(slot) for slot in slots if s.has(slot)]
    leading = {shape[0] for shape in shapes if shape is not None and len(shape) > 1}
    return len(leading) > 1 or None in leading


def _hidden_size_differs(s: Statement) -> bool:
    """Whether a recurrent operator's weights have other sizes than its attributes."""
    weights, hidden = s.shape(2), s.attributes.get("hidden_size")
    if weights is None or len(weights) != 3:
        return True
    both = 2 if s.attributes.get("direction") == "bidirectional" else 1
    return (hidden is not None and weights[2] != hidden) or weights[0] != both


def _state_is_not_kernel(s: Statement) -> bool:
    """Whether a causal convolution's state has another length.

    It should be as long as the kernel less one.
    """
    weights, state = s.shape(1), s.shape(3)
    if state is None or weights is None or len(state) != 3 or len(weights) != 3:
        return s.has(3)
    width, length = weights[2], state[2]
    return not isinstance(width, int) or not isinstance(length, int) or length != width - 1


def _parameters_are_longer(s: Statement) -> bool:
    """Whether a vector may be longer than its axis of the tensor."""
    shape = s.shape(0)
    if shape is None:
        return True
    axis: int = s.attributes.get("axis", 1)
    if not -len(shape) <= axis < len(shape):
        return True
    vectors = [s.shape(slot) for slot in range(1, len(s.types)) if s.has(slot)]
    return any(v is None or (len(v) == 1 and _widens(v[0], shape[axis])) for v in vectors)


def _rois_differ(s: Statement) -> bool:
    rois, batches = s.shape(1), s.shape(2)
    return not rois or not batches or rois[0] != batches[0]


def _targets_differ(s: Statement) -> bool:
    """Whether the targets' sizes differ from the scores'.

    The class axis does not count.
    """
    scores, targets = s.shape(0), s.shape(1)
    return scores is None or targets is None or (*scores[:1], *scores[2:]) != targets


def _later_is_wider(s: Statement) -> bool:
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


def _initial_state_differs(s: Statement) -> bool:
    """Whether an initial state has another batch size than the sequence."""
    shape, batch = s.shape(0), 0 if s.attributes.get("layout") else 1
    states = [s.shape(slot) for slot in (5, 6) if s.has(slot)]
    if shape is None or len(shape) != 3:
        return bool(states)
    return any(state is None or len(state) != 3 or state[batch] != shape[batch] for state in states)


def _has_one_class(s: Statement) -> bool:
    names = ("classlabels_ints", "classlabels_strings", "classlabels_int64s")
    return any(len(s.attributes.get(name) or ()) == 1 for name in names)


def _affine_batch_differs(s: Statement) -> bool:
    theta, size = s.shape(0), s.numbers(1)
    return not theta or not size or theta[0] != size[0]


def _indices_differ(s: Statement) -> bool:
    """Whether the indices of a ``MaxUnpool`` have other sizes than the tensor."""
    return s.shape(0) is None or s.shape(0) != s.shape(1)


def _axis_is_not_first(s: Statement) -> bool:
    return s.attributes.get("axis", 0) != 0


def _is_any(_: Statement) -> bool:
    return True


def _rank_is_not_4(s: Statement) -> bool:
    return not _rank_is(4)(s)


def _rank_is_over_2(s: Statement) -> bool:
    return not _rank_is(0, 1, 2)(s)


class Condition(NamedTuple):
    """A condition, and the operators it applies to; None for all."""

    holds: Callable[[Statement], bool]
    ops: frozenset[str] | None = None


_POOLS = frozenset({"AveragePool", "LpPool", "MaxPool"})
_CONVOLUTIONS = frozenset({"Conv", "ConvInteger", "DeformConv", "QLinearConv"})
_TRANSPOSED = frozenset({"ConvTranspose", "MaxUnpool"})
_REDUCTIONS = frozenset(
    f"Reduce{kind}"
    for kind in (
        "L1",
        "L2",
        "LogSum",
        "LogSumExp",
        "Max",
        "Mean",
        "Min",
        "Prod",
        "Sum",
        "SumSquare",
    )
)
_SLIDING = _POOLS | _CONVOLUTIONS | _TRANSPOSED


def _of(*ops: str) -> frozenset[str]:
    return frozenset(ops)


CONDITIONS: Mapping[str, Condition] = MappingProxyType(
    {
        "any node": Condition(_is_any),
        "a flag is neither 0 nor 1": Condition(_has_odd_flag),
        "an input is empty": Condition(_is_empty),
        "a size is not known": Condition(_has_symbols),
        "the tensor is a scalar": Condition(_rank_is(0), _of("NonZero")),
        "input 1 is computed": Condition(_is_computed(1), _of("DFT", "Upsample", "Resize")),
        "leading sizes may differ": Condition(
            _leading_sizes_differ,
            _of("Attention", "GridSample", "LinearAttention", "RotaryEmbedding", "TensorScatter"),
        ),
        "a parameter may be wider than the tensor": Condition(
            _is_wider, _of("GroupNormalization", "LayerNormalization", "PRelu", "RMSNormalization")
        ),
        "a window is wider than its axis": Condition(_is_too_wide, _SLIDING),
        "pads beside auto_pad": Condition(_pads_twice, _SLIDING),
        "dilated": Condition(_is_dilated, _SLIDING),
        "padded": Condition(_has_pads, _SLIDING),
        "strided": Condition(_has_strides, _SLIDING),
        "SAME is not the axis over the stride": Condition(_differs_from_plain, _SLIDING),
        "the runtime ends elsewhere": Condition(_runtime_ends_elsewhere, _POOLS),
        "rounding up changes a size": Condition(_rounding_up_counts, _POOLS),
        "VALID without dilations differs": Condition(_valid_without_dilations, _POOLS),
        "SAME_LOWER rounds down": Condition(_same_lower_rounds_down, _POOLS),
        "the reference pads otherwise": Condition(_reference_pads_otherwise, _of("MaxPool")),
        "SAME is not the axis times the stride": Condition(_is_not_padded_to_multiple, _TRANSPOSED),
        "the indices have other sizes": Condition(_indices_differ, _of("MaxUnpool")),
        "the rank is another": Condition(_loses_axes, _TRANSPOSED),
        "single precision scales to another size": Condition(
            _scales_to_another_size, _of("Resize", "Upsample")
        ),
        "double precision counts otherwise": Condition(_counts_otherwise, _of("Range")),
        "there are no axes": Condition(_has_no_axes, _of("Squeeze")),
        "axes are out of order": Condition(_axes_out_of_order, _of("Squeeze", "Unsqueeze")),
        "a reduced axis may be empty": Condition(_reduces_nothing, _REDUCTIONS),
        "a part is empty": Condition(_has_empty_part, _of("Split")),
        "a slice back begins before the axis": Condition(_begins_before_the_axis, _of("Slice")),
        "a slice back ends behind the axis": Condition(_ends_behind_the_axis, _of("Slice")),
        "a slice back ends at the largest number": Condition(_ends_at_the_largest, _of("Slice")),
        "a sliced axis keeps its name": Condition(_keeps_a_name, _of("Slice")),
        "a bound is before the first axis": Condition(_bound_before_first_axis, _of("Shape")),
        "the rank is not 4": Condition(
            _rank_is_not_4, _of("GlobalAveragePool", "GlobalLpPool", "GlobalMaxPool")
        ),
        "the rank is over 2": Condition(_rank_is_over_2, _of("Unique")),
        "the axis is not the first": Condition(_axis_is_not_first, _of("Unique")),
        "hidden_size is not that of the weights": Condition(
            _hidden_size_differs, _of("GRU", "LSTM", "RNN")
        ),
        "the state is not as long as the kernel": Condition(
            _state_is_not_kernel, _of("CausalConvWithState")
        ),
        "the batch is not that of the size": Condition(_affine_batch_differs, _of("AffineGrid")),
        "a vector is longer than its axis": Condition(
            _parameters_are_longer,
            _of(
                "BatchNormalization", "DequantizeLinear", "InstanceNormalization", "QuantizeLinear"
            ),
        ),
        "the regions are not as many as their batches": Condition(_rois_differ, _of("RoiAlign")),
        "the targets have other sizes": Condition(
            _targets_differ, _of("NegativeLogLikelihoodLoss", "SoftmaxCrossEntropyLoss")
        ),
        "a later term may be wider": Condition(_later_is_wider, _of("Einsum")),
        "the initial state has another batch": Condition(
            _initial_state_differs, _of("GRU", "LSTM", "RNN")
        ),
        "there is one class": Condition(
            _has_one_class,
            _of("ai.onnx.ml::LinearClassifier", "ai.onnx.ml::SVMClassifier"),
        ),
    }
)
