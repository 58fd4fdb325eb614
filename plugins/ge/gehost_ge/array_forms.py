"""Types, shapes, order and selection of elements under GE's names."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gehost import DataType, EsTensor, Node, es
from gehost_ge.builder import in_pattern
from gehost_ge.errors import GeError
from gehost_ge.form import (
    array_of,
    axes_of,
    constant,
    constants,
    counted,
    form,
    has_only,
    only,
    own_form,
)
from gehost_ge.types import DataType as GeDataType
from gehost_ge.types import to_onnx


@form("Cast", onnx="Cast")
def _cast(x: EsTensor, dst_type: Any) -> EsTensor:
    """`Cast`; the type has GE's number."""
    is_number = isinstance(dst_type, int) and dst_type in list(GeDataType)
    return es.Cast(x, to=to_onnx(GeDataType(dst_type) if is_number else dst_type))


def _partial(node: Node) -> str:
    fits = not node.attrs.get("start") and "end" not in node.attrs
    return "" if fits else f"start, end: GE's Shape is of all sizes; {own_form('Shape')}"


def _typed(tensor: EsTensor, dtype: int) -> EsTensor:
    """Convert sizes, which are int64 in ONNX; in a pattern the type does not count."""
    onnx = to_onnx(GeDataType(dtype))
    return tensor if in_pattern() or onnx is DataType.INT64 else es.Cast(tensor, to=onnx)


@form("Shape", onnx="Shape", misfit=_partial)
def _shape(x: EsTensor, dtype: int = GeDataType.DT_INT32) -> EsTensor:
    """`Shape`, and `Cast` unless `dtype` is int64."""
    return _typed(es.Shape(x), dtype)


@form("Size", onnx="Size")
def _size(x: EsTensor, dtype: int = GeDataType.DT_INT32) -> EsTensor:
    """`Size`, and `Cast` unless `dtype` is int64."""
    return _typed(es.Size(x), dtype)


@form("Reshape", onnx="Reshape")
def _reshape(x: EsTensor, shape: EsTensor, axis: int = 0, num_axes: int = -1) -> EsTensor:
    """`Reshape` of all axes; a 0 among the numbers is refused, as ONNX copies the size."""
    only("Reshape", axis=(axis, 0), num_axes=(num_axes, -1))
    sizes = array_of(shape)
    if not in_pattern() and sizes is not None and not sizes.all():
        raise GeError(f"Reshape: a size of 0 copies the size in ONNX; {own_form('Reshape')}")
    return es.Reshape(x, shape)


@form("Flatten", onnx="Flatten")
def _flatten(x: EsTensor, axis: int = 1) -> EsTensor:
    """`Flatten`."""
    return es.Flatten(x, axis=int(axis))


@form("Squeeze", onnx="Squeeze")
def _squeeze(x: EsTensor, axis: Any = ()) -> EsTensor:
    """`Squeeze`, of all axes of size 1 by default."""
    axes = axes_of(axis)
    return es.Squeeze(x) if axes == [] else es.Squeeze(x, axes=axes)


@form("Unsqueeze", onnx="Unsqueeze")
def _unsqueeze(x: EsTensor, axes: Any = ()) -> EsTensor:
    """`Unsqueeze`."""
    return es.Unsqueeze(x, axes=axes_of(axes))


@form("ExpandDims", onnx="Unsqueeze")
def _expand_dims(x: EsTensor, axis: Any) -> EsTensor:
    """`Unsqueeze` at one axis, a number."""
    return es.Unsqueeze(x, axes=[constant("ExpandDims", "axis", axis)])


@form("Transpose", onnx="Transpose")
def _transpose(x: EsTensor, perm: Any) -> EsTensor:
    """`Transpose`; `perm` is numbers."""
    return es.Transpose(x, perm=constants("Transpose", "perm", perm))


@form("TransposeD", onnx="Transpose")
def _transpose_d(x: EsTensor, perm: Sequence[int]) -> EsTensor:
    """`Transpose`."""
    return es.Transpose(x, perm=constants("TransposeD", "perm", perm))


@form("Concat", onnx="Concat")
def _concat(concat_dim: int, x: Sequence[EsTensor], N: int | None = None) -> EsTensor:
    """`Concat`; the axis is a number."""
    return _joined("Concat", x, concat_dim, N)


@form("ConcatV2", "ConcatD", onnx="Concat")
def _concat_v2(x: Sequence[EsTensor], concat_dim: int, N: int | None = None) -> EsTensor:
    """`Concat`; the axis is a number."""
    return _joined("ConcatV2", x, concat_dim, N)


def _joined(name: str, x: Sequence[EsTensor], axis: Any, count: int | None) -> EsTensor:
    counted(name, x, count)
    return es.Concat(*x, axis=constant(name, "concat_dim", axis))


def _is_uneven_split(node: Node) -> bool:
    """Whether a node is GE's SplitV: its sizes differ, or may."""
    sizes = node.attrs.get("split")
    if len(node.inputs) > 1 and node.inputs[1] is not None:
        sizes = node.inputs[1].array
        if sizes is None:
            return True
    if sizes is not None:
        return len({int(size) for size in sizes}) > 1
    parts = node.attrs.get("num_outputs")  # the last of these may be smaller
    if parts is None:
        return False
    split = node.inputs[0]
    shape = None if split is None else split.shape
    size = None if shape is None else shape[int(node.attrs.get("axis", 0))]
    return not isinstance(size, int) or size % int(parts) != 0


@form(
    "Split",
    onnx="Split",
    misfit=lambda node: (
        "split: the sizes are not equal, as those of GE's Split are"
        if _is_uneven_split(node)
        else ""
    ),
)
def _split(
    split_dim: int, x: EsTensor, outputs: int, num_split: int | None = None
) -> list[EsTensor]:
    """`Split` into equal parts; the axis is a number."""
    if num_split not in (None, outputs):
        raise ValueError(f"Split: num_split is {num_split}, but {outputs} outputs are wanted")
    axis = constant("Split", "split_dim", split_dim)
    result = es.Split(x, axis=axis, num_outputs=outputs)
    return [result] if isinstance(result, EsTensor) else list(result)


@form("Slice", onnx="Slice")
def _slice(x: EsTensor, offsets: Any, size: Any) -> EsTensor:
    """`Slice` of all axes; numbers, and in replacements alone."""
    _not_in_pattern("Slice")
    starts, sizes = constants("Slice", "offsets", offsets), constants("Slice", "size", size)
    if len(starts) != len(sizes) or min(starts, default=0) < 0 or min(sizes, default=0) < -1:
        raise ValueError(f"Slice: offsets {starts} and size {sizes} are of one length, from 0 on")
    pairs = zip(starts, sizes, strict=True)
    ends = [_END if size < 0 else start + size for start, size in pairs]
    return es.Slice(x, starts=starts, ends=ends, axes=list(range(len(starts))))


_END = 2**63 - 1
"""An end of a slice behind every axis."""


def _pads(name: str, paddings: Any, *, by_axis: bool = True) -> list[int]:
    _not_in_pattern(name)
    numbers = constants(name, "paddings", paddings)
    return [*numbers[::2], *numbers[1::2]] if by_axis else numbers


def _not_in_pattern(name: str) -> None:
    if in_pattern():
        raise GeError(f"{name}: its inputs are not those of the model's nodes; {own_form(name)}")


@form("Pad", onnx="Pad")
def _pad(x: EsTensor, paddings: Any) -> EsTensor:
    """`Pad` with zeros; numbers, and in replacements alone."""
    return es.Pad(x, pads=_pads("Pad", paddings))


@form("PadV2")
def _pad_v2(x: EsTensor, paddings: Any, constant_values: EsTensor) -> EsTensor:
    """`Pad`; as `Pad`."""
    return es.Pad(x, _pads("Pad", paddings), constant_values)


@form("PadV3")
def _pad_v3(
    x: EsTensor,
    paddings: Any,
    constant_values: EsTensor | None = None,
    mode: str = "constant",
    paddings_contiguous: bool = True,
) -> EsTensor:
    """`Pad`: constant, reflect or edge; as `Pad`."""
    pads = _pads("Pad", paddings, by_axis=paddings_contiguous)
    if mode not in ("constant", "reflect", "edge"):
        raise ValueError(f"PadV3: mode is constant, reflect or edge, got {mode!r}")
    if constant_values is None:
        return es.Pad(x, pads=pads, mode=mode)
    return es.Pad(x, pads, constant_values, mode=mode)


@form(
    "Gather",
    onnx="Gather",
    misfit=lambda node: (
        "axis: GE's Gather has axis 0; use GatherV2" if node.attrs.get("axis") else ""
    ),
)
def _gather(
    x: EsTensor, indices: EsTensor, validate_indices: bool = True, batch_dims: int = 0
) -> EsTensor:
    """`Gather` with axis 0."""
    del validate_indices
    only("Gather", batch_dims=(batch_dims, 0))
    return es.Gather(x, indices, axis=0)


@form("GatherV2", onnx="Gather")
def _gather_v2(x: EsTensor, indices: EsTensor, axis: Any, batch_dims: int = 0) -> EsTensor:
    """`Gather`; the axis is a number."""
    only("GatherV2", batch_dims=(batch_dims, 0))
    return es.Gather(x, indices, axis=constant("GatherV2", "axis", axis))


@form("GatherElements", onnx="GatherElements")
def _gather_elements(x: EsTensor, index: EsTensor, dim: int = 0) -> EsTensor:
    """`GatherElements` with this `axis`."""
    return es.GatherElements(x, index, axis=int(dim))


@form(
    "GatherNd",
    onnx="GatherND",
    misfit=lambda node: (
        f"batch_dims: GatherNd has none; {own_form('GatherND')}"
        if node.attrs.get("batch_dims")
        else ""
    ),
)
def _gather_nd(x: EsTensor, indices: EsTensor) -> EsTensor:
    """`GatherND`."""
    return es.GatherND(x, indices)


@form("ScatterElements", onnx="ScatterElements")
def _scatter_elements(
    data: EsTensor, indices: EsTensor, updates: EsTensor, axis: int = 0, reduction: str = "none"
) -> EsTensor:
    """`ScatterElements`."""
    return es.ScatterElements(data, indices, updates, axis=int(axis), reduction=reduction)


@form("ReverseSequence", onnx="ReverseSequence")
def _reverse_sequence(
    x: EsTensor, seq_lengths: EsTensor, seq_dim: int, batch_dim: int = 0
) -> EsTensor:
    """`ReverseSequence` with `time_axis`, `batch_axis`."""
    return es.ReverseSequence(x, seq_lengths, time_axis=int(seq_dim), batch_axis=int(batch_dim))


@form("Where")
def _where(x: EsTensor) -> EsTensor:
    """`Transpose(NonZero)`, a row for each number; ONNX's `Where` is `SelectV2`."""
    return es.Transpose(es.NonZero(x), perm=[1, 0])


def _topped(
    x: EsTensor, k: Any, *, is_sorted: bool, axis: int, largest: bool
) -> dict[str, EsTensor]:
    expected = k if isinstance(k, EsTensor) else [int(k)]
    values, indices = es.TopK(x, expected, axis=axis, largest=int(largest), sorted=int(is_sorted))
    return {"values": values, "indices": indices}


@form("TopKV2", onnx="TopK")
def _top_k_v2(
    x: EsTensor,
    k: EsTensor,
    sorted: bool = True,  # noqa: A002 - GE's name
    dim: int = -1,
    largest: bool = True,
) -> dict[str, EsTensor]:
    """`TopK`; `indices` are int64."""
    return _topped(x, k, is_sorted=sorted, axis=dim, largest=largest)


@form("TopK", onnx="TopK")
def _top_k_v1(
    x: EsTensor,
    k: EsTensor,
    sorted: bool = True,  # noqa: A002 - GE's name
    largest: bool = True,
    dim: int = -1,
) -> dict[str, EsTensor]:
    """`TopK`; `indices` are int64."""
    return _topped(x, k, is_sorted=sorted, axis=dim, largest=largest)


@form(
    "ArgMaxV2",
    onnx="ArgMax",
    misfit=has_only("ArgMaxV2", "ArgMax", keepdims=0, select_last_index=0),
)
def _arg_max(x: EsTensor, dimension: Any, dtype: int = GeDataType.DT_INT64) -> EsTensor:
    """`ArgMax` without `keepdims`, and `Cast` unless `dtype` is int64."""
    axis = constant("ArgMaxV2", "dimension", dimension)
    return _typed(es.ArgMax(x, axis=axis, keepdims=0), dtype)


@form("ArgMin", onnx="ArgMin", misfit=has_only("ArgMin", "ArgMin", keepdims=0, select_last_index=0))
def _arg_min(x: EsTensor, dimension: Any, dtype: int = GeDataType.DT_INT64) -> EsTensor:
    """`ArgMin` without `keepdims`, and `Cast` unless `dtype` is int64."""
    axis = constant("ArgMin", "dimension", dimension)
    return _typed(es.ArgMin(x, axis=axis, keepdims=0), dtype)


@form("Fill")
def _fill(dims: EsTensor, value: EsTensor) -> EsTensor:
    """`Expand` of a scalar."""
    return es.Expand(value, dims)


@form("Range", onnx="Range")
def _range(start: EsTensor, limit: EsTensor, delta: EsTensor, is_closed: bool = False) -> EsTensor:
    """`Range` without its limit."""
    only("Range", is_closed=(bool(is_closed), False))
    return es.Range(start, limit, delta)


@form("Cumsum", onnx="CumSum")
def _cumsum(
    x: EsTensor, axis: EsTensor, exclusive: bool = False, reverse: bool = False
) -> EsTensor:
    """`CumSum`."""
    return es.CumSum(x, axis, exclusive=int(exclusive), reverse=int(reverse))
