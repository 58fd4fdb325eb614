"""A rotary embedding as a kernel takes it."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from gehost import DataType, EsGraph, EsTensor, Refused, es
from gehost_semantic.kernel_call import KernelCall, Known, number
from gehost_semantic.rotary import Rotary, Table
from gehost_semantic.views import Views

ROTARY_FEATURES: Mapping[str, str] = {
    "interleaved": "a pair is 2p, 2p + 1 (`rotary.interleaved`), not p, p + rotary_size / 2",
    "partial": "x may be longer than what is rotated: its first `rotary.rotary_size` elements",
}
"""What a kernel may take beyond x, cos and sin."""

LAYOUTS = ("", "b h s d", "b s h d")


class RotaryCall(KernelCall):
    """A rotary embedding as a kernel takes it: tensors in one layout, numbers, and ``reject``.

    Shapes: x [..., d]; cos and sin of the same rank, [..., rotary_size / 2], with 1 where they
    spread. A pass with the ``layout`` "b h s d" or "b s h d" gets four axes in this order.
    """

    title = "pairs of the last axis of x, turned by cos and sin"
    operands = frozenset({"x", "cos", "sin"})
    example = 'es.op("npu::Rotary")(rotary.x, rotary.cos, rotary.sin)'

    def __init__(
        self, views: Views, description: Rotary, takes: Collection[str], layout: str = ""
    ) -> None:
        super().__init__("rotary", description.node.graph.model.opset() or 0, takes)
        self.description = description
        self.layout = layout
        self._views = views

    # numbers

    @property
    def rotary_size(self) -> int:
        """The number of elements that are rotated."""
        return self.description.rotary_size

    @property
    def head_size(self) -> int:
        """The size of the last axis of x."""
        own = self.description
        is_turned = (own.interleaved or own.x_interleaved) and not self._interleaved
        is_whole = "partial" in self.takes and not own.start and not is_turned
        return own.head_size if is_whole else self.rotary_size

    @property
    def heads(self) -> int | None:
        """The number of heads, with a ``layout``; None where it is no number."""
        if not self.layout:
            return None
        axis = self._order()[self.layout.split().index("h")]
        size = 1 if axis is None else self.description.shape[axis]
        return size if isinstance(size, int) else None

    @property
    def spreads(self) -> bool:
        """Whether x, cos or sin may have one element along an axis where the result has more."""
        own = self.description
        tables = [(table, self._views.shape(table.tensor)) for table in (own.cos, own.sin)]
        return own.spreads or any(
            axis != len(own.shape) - 1 and isinstance(axis, int) and own.shape[axis] != size
            for table, sizes in tables
            for form, size in zip(table.place, sizes or (), strict=True)
            for axis, _ in form.strides
        )

    @number
    def interleaved(self) -> bool:
        """Whether a pair is 2p, 2p + 1: always False unless the pass takes it."""
        return self._interleaved

    @property
    def _interleaved(self) -> bool:
        own = self.description
        return own.interleaved and own.x_interleaved and "interleaved" in self.takes

    @property
    def dtype(self) -> DataType | None:
        """The element type of x."""
        return self.description.x.dtype

    # tensors, in Replacement

    @property
    def x(self) -> EsTensor:
        return self._once("x", self._x)

    @property
    def cos(self) -> EsTensor:
        """The cosines, [..., rotary_size / 2]."""
        return self._once("cos", lambda: self._placed(self._own_table(self.description.cos)))

    @property
    def sin(self) -> EsTensor:
        """The sines, [..., rotary_size / 2]."""
        return self._once("sin", lambda: self._placed(self._own_table(self.description.sin)))

    # x and the result, between the axes of the graph and those of the kernel

    def _x(self) -> EsTensor:
        own = self.description
        x = self._whole()
        if self.head_size < own.head_size:
            x = _slice(x, len(own.shape) - 1, own.start, own.rotary_size)
        if own.x_interleaved and not self._interleaved:
            x = self._turned(x, own.rotary_size // 2, 2)
        return self._placed(x)

    def finish(self, output: Any, known: Known) -> EsGraph:
        own = self.description
        result = self._result(output)
        self._check_use([result])
        graph = result.graph
        self._define(graph, known)
        order = self._order()
        absent = [place for place, axis in enumerate(order) if axis is None]
        if absent:
            result = es.Squeeze(result, absent)
        present = [axis for axis in order if axis is not None]
        if present != sorted(present):
            result = es.Transpose(result, perm=[present.index(axis) for axis in sorted(present)])
        if own.interleaved and not self._interleaved:
            result = self._turned(result, 2, own.rotary_size // 2)
        if self.head_size < own.head_size:
            x, last, end = self._whole(), len(own.shape) - 1, own.start + own.rotary_size
            ranges = [(0, own.start), (end, own.head_size - end)]
            before, behind = (
                [_slice(x, last, start, count)] if count else [] for start, count in ranges
            )
            result = es.Concat(*before, result, *behind, axis=last)
        graph.outputs = [result]
        return graph

    def _whole(self) -> EsTensor:
        """Return x in the axes of the graph, with the sizes of the result."""
        own = self.description
        x = self._inputs[own.x]
        if not own.spreads:
            return x
        shape = es.Shape(self._own_table(own.cos))
        outer = es.Slice(shape, starts=[0], ends=[len(own.shape) - 1], axes=[0])
        return es.Expand(x, es.Concat(outer, [1], axis=0))

    def _turned(self, tensor: EsTensor, outer: int, inner: int) -> EsTensor:
        """Return a tensor whose last axis counts ``outer`` times ``inner`` the other way."""
        rank = len(self.description.shape)
        apart = es.Reshape(tensor, [*[0] * (rank - 1), outer, inner])
        turned = es.Transpose(apart, perm=[*range(rank - 1), rank, rank - 1])
        return es.Reshape(turned, [*[0] * (rank - 1), outer * inner])

    def _order(self) -> list[int | None]:
        """Return the axes of the graph in the order of the layout; None for a new one."""
        own = self.description
        rank = len(own.shape)
        if not self.layout:
            return [*range(rank)]
        positions = own.positions
        if rank > 4:
            raise Refused("layout", "x has more than four axes")
        if len(positions) not in (1, 2):
            raise Refused("angles", "they vary along no axis, or along the heads")
        length = positions[-1]
        others = [axis for axis in range(rank - 1) if axis != length]
        batch = positions[0] if len(positions) > 1 else others[0] if len(others) > 1 else None
        heads = next((axis for axis in others if axis != batch), None)
        of = {"b": batch, "h": heads, "s": length, "d": rank - 1}
        return [of[letter] for letter in self.layout.split()]

    def _placed(self, tensor: EsTensor) -> EsTensor:
        """Return a tensor with the axes of the graph's x in the order of the layout."""
        order = self._order()
        present = [axis for axis in order if axis is not None]
        if present != sorted(present):
            tensor = es.Transpose(tensor, perm=present)
        absent = [place for place, axis in enumerate(order) if axis is None]
        return es.Unsqueeze(tensor, absent) if absent else tensor

    def _own_table(self, table: Table) -> EsTensor:
        """Return cos or sin in the axes of the graph's x, half as long."""
        own = self.description
        rank, half = len(own.shape), own.rotary_size // 2
        shape = self._views.shape(table.tensor)
        assert shape is not None
        tensor = self._inputs[table.tensor]
        axes: list[int | None] = []
        for place, (form, size) in enumerate(zip(table.place, shape, strict=True)):
            start = form.constant
            if not isinstance(start, int) or len(form.strides) > 1:
                raise Refused("angles", "an axis of their tensor is no axis of the result")
            if not form.strides:
                if size != 1:
                    tensor = _slice(tensor, place, start, 1)
                axes.append(None)
                continue
            ((axis, step),) = form.strides
            if not isinstance(axis, int) or not isinstance(step, int):
                raise Refused("angles", "an axis of their tensor is no axis of the result")
            if axis == rank - 1:
                if size != half or start or step != 1:
                    tensor = _slice(tensor, place, start, half, step)
            elif start or step != 1:
                raise Refused("angles", "their tensor is read in part")
            axes.append(axis)
        tensor = _spread(tensor, axes, rank)
        if table.factor != 1:
            tensor = es.Mul(
                tensor, self._number(table.factor, table.tensor.dtype or DataType.FLOAT)
            )
        return tensor

    # the replacement

    def refusal(self) -> str:
        try:
            self._order()
        except Refused as refusal:
            return str(refusal)
        return ""

    def begin(self) -> None:
        own = self.description
        self._begin([own.result], [own.x, own.cos.tensor, own.sin.tensor])

    def numbers(self) -> Collection[str]:
        return ["interleaved"] if self._interleaved else []

    def formula(self, of: Mapping[str, EsTensor]) -> EsTensor:
        """Return ``x0·cos - x1·sin`` and ``x1·cos + x0·sin`` for each pair."""
        x, cos, sin = of["x"], of["cos"], of["sin"]
        size, last = self.rotary_size, len(self._order()) - 1
        if self._interleaved:
            low, high = (_slice(x, last, start, size // 2, 2) for start in (0, 1))
        else:
            low, high = (_slice(x, last, start, size // 2) for start in (0, size // 2))
        pair = low * cos - high * sin, high * cos + low * sin
        if self._interleaved:
            both = es.Concat(*(es.Unsqueeze(item, [last + 1]) for item in pair), axis=last + 1)
            turned = es.Reshape(both, [*[0] * last, size])
        else:
            turned = es.Concat(*pair, axis=last)
        if size == self.head_size:
            return turned
        return es.Concat(turned, _slice(x, last, size, self.head_size - size), axis=last)


def _slice(tensor: EsTensor, axis: int, start: int, count: int, step: int = 1) -> EsTensor:
    """Return ``count`` elements of an axis from ``start`` on."""
    end = start + (count - 1) * step + 1
    return es.Slice(tensor, starts=[start], ends=[end], axes=[axis], steps=[step])


def _spread(tensor: EsTensor, axes: Sequence[int | None], rank: int) -> EsTensor:
    """Return a tensor with an axis for each of ``rank``: those that it has, else of size 1.

    ``axes``: for each axis of the tensor, its place; None for one of size 1.
    """
    shift = rank - len(axes)
    if all(axis in (None, place + shift) for place, axis in enumerate(axes)) and shift >= 0:
        return es.Unsqueeze(tensor, [*range(shift)]) if shift else tensor
    single = [place for place, axis in enumerate(axes) if axis is None]
    if single:
        tensor = es.Squeeze(tensor, single)
    present = [axis for axis in axes if axis is not None]
    if len(set(present)) < len(present):
        raise Refused("angles", "their tensor is read as a diagonal")
    if present != sorted(present):
        tensor = es.Transpose(tensor, perm=[present.index(axis) for axis in sorted(present)])
    missing = [axis for axis in range(rank) if axis not in present]
    return es.Unsqueeze(tensor, missing) if missing else tensor
