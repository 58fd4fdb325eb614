"""Sizes that ONNX's inference states and that need not be those of the tensor that is computed.

A doubt is an operator, a range of opsets, and conditions on one node. Where all of them hold, the
sizes are unknown to all of gehost: clean-up folds none of them, and no proof uses them. Which
operators have which doubts is measured: ``make sizes`` compares inferred sizes with those of ONNX
Runtime and of ``onnx.reference``, and writes ``doubtful_sizes``. Here are the conditions that it
chooses from.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple, cast

import numpy as np

from gehost.ir.types import Dim, TensorType, ValueType


class Doubt(NamedTuple):
    """Sizes of an operator that are unknown under conditions.

    Attributes:
        first: the first opset.
        last: the last opset; None where the newest has the doubt too.
        when: names of conditions, which must all hold. A name is one of ``CONDITIONS``,
            ``attribute=value``, ``attribute`` (it is present) or ``rank=n`` (of input 0); after
            ``not `` it must not hold.
        certain: how many leading sizes of each output hold all the same; -1 where not even the
            rank does.
    """

    first: int
    last: int | None
    when: tuple[str, ...]
    certain: int


class Statement(NamedTuple):
    """What inference states of one node, and from what.

    Attributes:
        attributes: with the defaults of the operator.
        types: of the inputs.
        arrays: of the inputs that are small constants.
        present: for each input whether it is.
        stated: types of the outputs.
    """

    op: str
    attributes: Mapping[str, Any]
    types: Sequence[ValueType | None]
    arrays: Sequence[np.ndarray[Any, Any] | None]
    present: Sequence[bool]
    stated: Sequence[ValueType | None]

    def shape(self, slot: int) -> tuple[Dim, ...] | None:
        """The dimensions of an input; None where it is absent or its rank unknown."""
        return _shape(self.types, slot)

    def result(self, slot: int = 0) -> tuple[Dim, ...] | None:
        """The dimensions stated of an output."""
        return _shape(self.stated, slot)

    def has(self, slot: int) -> bool:
        """Whether an input is present."""
        return slot < len(self.present) and self.present[slot]

    def numbers(self, slot: int, attribute: str = "") -> list[Any] | None:
        """The entries of a constant input or, where it has none, of an attribute."""
        array = self.arrays[slot] if slot < len(self.arrays) else None
        if array is not None:
            return cast("list[Any]", array.reshape(-1).tolist())
        found = self.attributes.get(attribute)
        return None if found is None else list(found)


def _shape(types: Sequence[ValueType | None], slot: int) -> tuple[Dim, ...] | None:
    known = types[slot] if slot < len(types) else None
    return known.shape if isinstance(known, TensorType) else None


def believed(
    doubts: Sequence[Doubt], version: int, statement: Statement
) -> Sequence[ValueType | None]:
    """The stated types, without the sizes that are in doubt."""
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
    """Whether a condition holds, by its name."""
    if name.startswith("not "):
        return not holds(name.removeprefix("not "), statement)
    condition = CONDITIONS.get(name)
    if condition is not None:
        return condition(statement)
    attribute, _, value = name.partition("=")
    if attribute == "rank":
        shape = statement.shape(0)
        return shape is not None and len(shape) == int(value)
    found = statement.attributes.get(attribute)
    return found is not None if not value else str(found) == value


# -- windows: pools and convolutions
# ------------------------------------------------------------------------------------------------------


class _Window(NamedTuple):
    """The window along one spatial axis; ``stated`` is the size that inference gives."""

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
    """The windows along the axes whose sizes are known."""
    shape, result = s.shape(0), s.result()
    slot = _WEIGHTS.get(s.op)
    kernel: Sequence[Dim] | None = s.attributes.get("kernel_shape")
    if not kernel and slot is not None:
        kernel = (s.shape(slot) or ())[2:]
    if shape is None or not kernel:
        return
    count = len(shape) - 2
    pads = s.attributes.get("pads") or [0] * (2 * count)
    strides, dilations = (s.attributes.get(name) or [1] * count for name in ("strides", "dilations"))
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
    """The window, or what is left of it between the pads, is wider than the axis."""
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


def _dilates_and_pads_itself(s: Statement) -> bool:
    return s.attributes.get("auto_pad", "NOTSET") != "NOTSET" and any(
        w.dilation > 1 for w in _windows(s)
    )


def _is_dilated(s: Statement) -> bool:
    return any(dilation != 1 for dilation in s.attributes.get("dilations") or ())


def _rounds_up_into_padding(s: Statement) -> bool:
    """``ceil_mode`` gives a window that begins behind the axis, which only inference counts."""
    if not s.attributes.get("ceil_mode"):
        return False
    for w in _windows(s):
        if _pads_itself(s):
            padded = max((-(-w.size // w.stride) - 1) * w.stride + w.kernel - w.size, 0)
            before = padded // 2
        else:
            before, padded = w.before, w.before + w.after
        count = -(-(w.size + padded - w.extent) // w.stride) + 1
        if (count - 1) * w.stride >= w.size + before:
            count -= 1
        if isinstance(w.stated, int) and w.stated != count:
            return True
    return False


def _rounds_up_where_it_divides(s: Statement) -> bool:
    """``ceil_mode`` changes the size of an axis."""
    return bool(s.attributes.get("ceil_mode")) and any(
        (w.size + w.before + w.after - w.extent) % w.stride for w in _windows(s)
    )


def _differs_from_plain(s: Statement) -> bool:
    """The size is not that of a window that is padded itself: the axis over the stride."""
    return _pads_itself(s) and any(
        isinstance(w.stated, int) and w.stated != -(-w.size // w.stride) for w in _windows(s)
    )


def _is_not_padded_to_multiple(s: Statement) -> bool:
    """A transposed window that is padded itself does not give the axis times the stride."""
    return _pads_itself(s) and any(
        isinstance(w.stated, int) and w.stated != w.size * w.stride for w in _windows(s)
    )


def _has_pads(s: Statement) -> bool:
    return any(s.attributes.get("pads") or ())


def _has_strides(s: Statement) -> bool:
    return any(stride != 1 for stride in s.attributes.get("strides") or ())


# -- sizes that floats decide
# ------------------------------------------------------------------------------------------------------


def _depends_on_rounding(number: float) -> bool:
    """Whether arithmetic in another precision may round down to another whole number."""
    return abs(number - round(number)) <= 1e-5 * max(1.0, abs(number))


def _scales(s: Statement) -> list[float] | None:
    return s.numbers(1 if s.op == "Upsample" or not s.has(2) else 2, "scales")


def _scaled_size_depends_on_rounding(s: Statement) -> bool:
    """A size times its scale is next to a whole number, which it is not exactly."""
    shape, scales = s.shape(0), _scales(s)
    if shape is None or not scales or len(scales) > len(shape):
        return False
    axes = s.attributes.get("axes") or range(len(scales))
    for axis, scale in zip(axes, scales, strict=False):
        size = shape[axis]
        if isinstance(size, int) and scale != 1 and float(size) * scale != round(size * scale):
            if _depends_on_rounding(size * scale):
                return True
        elif isinstance(size, int):
            if math.floor(np.float32(size) * np.float32(scale)) != math.floor(size * scale):
                return True
    return False


def _count_depends_on_rounding(s: Statement) -> bool:
    """The count of a float ``Range`` is next to a whole number, or single precision changes it."""
    numbers = [s.numbers(slot) for slot in range(3)]
    known = s.types[0] if s.types else None
    if not isinstance(known, TensorType) or not known.dtype.is_float or None in numbers:
        return False
    start, limit, delta = (part[0] for part in numbers if part)
    if not delta:
        return True
    counts = [
        math.ceil(kind(kind(limit) - kind(start)) / kind(delta))
        for kind in (np.float32, np.float64)
    ]
    exact = (limit - start) / delta
    return counts[0] != counts[1] or (exact != round(exact) and _depends_on_rounding(exact))


# -- inputs and attributes that do not go together
# ------------------------------------------------------------------------------------------------------


def _has_odd_flag(s: Statement) -> bool:
    return any(s.attributes.get(name, 0) not in (0, 1) for name in _FLAGS)


_FLAGS = ("keepdims", "onesided", "inverse", "ceil_mode", "new_axis", "layout", "noop_with_empty_axes", "transA", "transB", "allowzero")  # fmt: skip


def _is_wider(s: Statement) -> bool:
    """A parameter may be wider than the tensor: it would have to be broadcast to it."""
    shape = s.shape(0)
    if shape is None:
        return True
    for slot in range(1, len(s.types)):
        other = s.shape(slot)
        if not s.has(slot):
            continue
        if other is None or len(other) > len(shape):
            return True
        if any(a not in (1, b) for a, b in zip(reversed(other), reversed(shape), strict=False)):
            return True
    return False


def _axes(s: Statement) -> list[Any] | None:
    return s.numbers(1, "axes")


def _has_no_axes(s: Statement) -> bool:
    return _axes(s) == [] or (s.has(1) and s.shape(1) == (0,))


def _axes_out_of_order(s: Statement) -> bool:
    axes = _axes(s) or []
    return axes != sorted(set(axes)) or len({axis < 0 for axis in axes}) > 1


def _has_negative_axes(s: Statement) -> bool:
    return any(axis < 0 for axis in _axes(s) or ())


def _is_empty(s: Statement) -> bool:
    return any(0 in (s.shape(slot) or ()) for slot in range(len(s.types)))


def _may_be_empty(s: Statement) -> bool:
    """An input is empty, or has a size that is not known."""
    return any(
        dim == 0 or not isinstance(dim, int)
        for slot in range(len(s.types))
        for dim in s.shape(slot) or ()
    )


def _has_symbols(s: Statement) -> bool:
    """A size of an input is not known."""
    return any(
        s.has(slot) and not all(isinstance(dim, int) for dim in s.shape(slot) or (None,))
        for slot in range(len(s.types))
    )


def _is_computed(*slots: int) -> Callable[[Statement], bool]:
    def condition(s: Statement) -> bool:
        return any(s.has(slot) and s.numbers(slot) is None for slot in slots)

    return condition


def _has_empty_part(s: Statement) -> bool:
    """The parts of a ``Split`` are so long that the last ones are empty or do not fit."""
    shape, count = s.shape(0), len(s.stated)
    axis = s.attributes.get("axis", 0)
    if shape is None or not -len(shape) <= axis < len(shape):
        return True
    size = shape[axis]
    if s.has(1) or s.attributes.get("split") or not isinstance(size, int):
        return False
    return -(-size // count) * (count - 1) >= size


def _slices_backwards(s: Statement) -> Iterator[tuple[int, int, int, Dim]]:
    """Start, end, step and size of each axis that is sliced with a negative step."""
    shape = s.shape(0)
    starts, ends = s.numbers(1, "starts"), s.numbers(2, "ends")
    if shape is None or starts is None or ends is None:
        return
    axes = s.numbers(3, "axes") or list(range(len(starts)))
    steps = s.numbers(4) or [1] * len(starts)
    for start, end, step, axis in zip(starts, ends, steps, axes, strict=False):
        if step < 0 and -len(shape) <= axis < len(shape):
            yield start, end, step, shape[axis]


def _ends_behind_the_axis(s: Statement) -> bool:
    """A slice goes backwards from or to a place beyond the axis."""
    for start, end, _, size in _slices_backwards(s):
        if not isinstance(size, int) or end >= size or start < -size:
            return True
    return False


def _leading_sizes_differ(s: Statement) -> bool:
    """Inputs of two dimensions or more may have different first sizes."""
    shapes = [s.shape(slot) for slot in range(len(s.types)) if s.has(slot)]
    leading = {shape[0] for shape in shapes if shape is not None and len(shape) > 1}
    return len(leading) > 1 or None in leading


def _hidden_size_differs(s: Statement) -> bool:
    """The sizes of a recurrent operator's weights are not those of its attributes."""
    weights, hidden = s.shape(2), s.attributes.get("hidden_size")
    if weights is None or len(weights) != 3:
        return True
    both = 2 if s.attributes.get("direction") == "bidirectional" else 1
    return weights[2] != hidden or weights[0] != both


def _state_is_not_kernel(s: Statement) -> bool:
    """The state of a causal convolution is not as long as the kernel less one."""
    weights, state = s.shape(1), s.shape(3)
    if state is None or weights is None or len(state) != 3 or len(weights) != 3:
        return s.has(3)
    width, length = weights[2], state[2]
    return not isinstance(width, int) or not isinstance(length, int) or length != width - 1


def _affine_batch_differs(s: Statement) -> bool:
    theta, size = s.shape(0), s.numbers(1)
    return not theta or not size or theta[0] != size[0]


def _axis_is_not_first(s: Statement) -> bool:
    return s.attributes.get("axis", 0) != 0


CONDITIONS: Mapping[str, Callable[[Statement], bool]] = MappingProxyType(
    {
        "any node": lambda _: True,
        "a window is wider than its axis": _is_too_wide,
        "pads beside auto_pad": _pads_twice,
        "dilations beside auto_pad": _dilates_and_pads_itself,
        "dilated": _is_dilated,
        "padded": _has_pads,
        "strided": _has_strides,
        "the last window begins behind the axis": _rounds_up_into_padding,
        "rounding up changes a size": _rounds_up_where_it_divides,
        "SAME is not the axis over the stride": _differs_from_plain,
        "SAME is not the axis times the stride": _is_not_padded_to_multiple,
        "a scaled size depends on rounding": _scaled_size_depends_on_rounding,
        "the count depends on rounding": _count_depends_on_rounding,
        "a flag is neither 0 nor 1": _has_odd_flag,
        "a parameter may be wider than the tensor": _is_wider,
        "there are no axes": _has_no_axes,
        "axes are out of order": _axes_out_of_order,
        "an axis is negative": _has_negative_axes,
        "an input is empty": _is_empty,
        "an input may be empty": _may_be_empty,
        "a size is not known": _has_symbols,
        "input 1 is computed": _is_computed(1),
        "a bound is computed": _is_computed(1, 2, 3, 4),
        "a part is empty": _has_empty_part,
        "a slice back begins or ends beyond the axis": _ends_behind_the_axis,
        "leading sizes may differ": _leading_sizes_differ,
        "hidden_size is not that of the weights": _hidden_size_differs,
        "the state is not as long as the kernel": _state_is_not_kernel,
        "the batch is not that of the size": _affine_batch_differs,
        "the axis is not the first": _axis_is_not_first,
    }
)
