"""Types, shapes, order and selection of elements under GE's names."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gehost import DataType, EsTensor, Node, es
from gehost_ge.attributes import (
    COUNT,
    Attribute,
    array_of,
    data_type,
    derived,
    fixed,
    flag,
    ge_type,
    numbers_of,
    one,
    text,
    whole,
    whole_numbers,
)
from gehost_ge.building import in_pattern
from gehost_ge.errors import GeError
from gehost_ge.form import (
    FORMS,
    axes_of,
    check_only,
    counted,
    form,
    has_only,
    operator,
    own_form,
    swapped,
)
from gehost_ge.types import DataType as GeDataType
from gehost_ge.types import from_onnx, to_onnx


def _other_type(node: Node) -> str:
    is_known = from_onnx(DataType(node.attrs["to"])) is not GeDataType.DT_UNDEFINED
    return "" if is_known else f"to: GE has no such type; {own_form('Cast')}"


operator(
    "Cast",
    "x",
    here="`Cast`; the type has GE's number",
    misfit=_other_type,
    dst_type=data_type("to"),
)


INT64 = derived(lambda _: GeDataType.DT_INT64)
"""The type of sizes and indices, which is ONNX's."""


def _squeezed(node: Any) -> list[int]:
    is_bare = node.attr("axes") is None and (len(node.inputs) < 2 or node.inputs[1] is None)
    return [] if is_bare else numbers_of(node, "axes")


def _computes_axes(node: Node) -> str:
    """GE has them as an attribute."""
    axes = node.input(1)
    is_computed = axes is not None and axes.array is None
    return f"axes: the model computes them; {own_form(node.op)}" if is_computed else ""


def _permutation(node: Any) -> list[int]:
    perm = node.attr("perm")
    return list(map(int, perm)) if perm is not None else numbers_of(node, "perm")[::-1]


def _partial(node: Node) -> str:
    fits = not node.attrs.get("start") and "end" not in node.attrs
    return "" if fits else f"start, end: GE's Shape is of all sizes; {own_form('Shape')}"


def _typed(tensor: EsTensor, dtype: int) -> EsTensor:
    """Convert sizes, which are int64 in ONNX; in a pattern the type does not count."""
    onnx = to_onnx(ge_type(dtype))
    return tensor if in_pattern() or onnx is DataType.INT64 else es.Cast(tensor, to=onnx)


@form("Shape", onnx="Shape", misfit=_partial, dtype=INT64)
def _shape(x: EsTensor, dtype: int = GeDataType.DT_INT32) -> EsTensor:
    """`Shape`, and `Cast` unless `dtype` is int64."""
    return _typed(es.Shape(x), dtype)


@form("Size", onnx="Size", dtype=INT64)
def _size(x: EsTensor, dtype: int = GeDataType.DT_INT32) -> EsTensor:
    """`Size`, and `Cast` unless `dtype` is int64."""
    return _typed(es.Size(x), dtype)


def _copies(node: Node) -> str:
    shape = node.input(1)
    sizes = node.attrs.get("shape") if shape is None else shape.array
    copies = sizes is not None and 0 in sizes and not node.attr("allowzero")
    return f"shape: a size of 0 copies the size in ONNX; {own_form('Reshape')}" if copies else ""


@form("Reshape", onnx="Reshape", misfit=_copies, axis=fixed(0), num_axes=fixed(-1))
def _reshape(x: EsTensor, shape: EsTensor, axis: int = 0, num_axes: int = -1) -> EsTensor:
    """`Reshape` of all axes; a 0 among the numbers is refused, as ONNX copies the size."""
    check_only("Reshape", axis=(axis, 0), num_axes=(num_axes, -1))
    sizes = array_of(shape)
    if not in_pattern() and sizes is not None and not sizes.all():
        raise GeError(f"Reshape: a size of 0 copies the size in ONNX; {own_form('Reshape')}")
    return es.Reshape(x, shape)


operator("Flatten", "x", axis=whole("axis", 1))


@form(
    "Squeeze",
    onnx="Squeeze",
    misfit=_computes_axes,
    axis=Attribute(_squeezed, lambda value: {"axes": axes_of(value)}),
)
def _squeeze(x: EsTensor, axis: Any = ()) -> EsTensor:
    """`Squeeze`, of all axes of size 1 by default."""
    axes = axes_of(axis)
    return es.Squeeze(x) if axes == [] else es.Squeeze(x, axes=axes)


_AXES = Attribute(
    lambda node: numbers_of(node, "axes"), lambda value: {"axes": axes_of(value)}, default=()
)
operator("Unsqueeze", "x", misfit=_computes_axes, axes=_AXES)


def _not_one_axis(node: Node) -> str:
    try:
        axes = numbers_of(node, "axes")
    except GeError:
        return "axis: the model computes the axes; use Unsqueeze"
    return "" if len(axes) == 1 else "axis: ExpandDims adds one; use Unsqueeze"


operator(
    "ExpandDims",
    "x",
    "Unsqueeze",
    "`Unsqueeze` at one axis, a number",
    _not_one_axis,
    axis=Attribute(lambda node: numbers_of(node, "axes")[0], lambda value: {"axes": [one(value)]}),
)
_PERM = Attribute(_permutation, lambda value: {"perm": whole_numbers(value)})
operator("Transpose", "x", here="`Transpose`; `perm` is numbers", perm=_PERM)
operator("TransposeD", "x", "Transpose", perm=_PERM)


@form("Concat", onnx="Concat", concat_dim=whole("axis"), N=COUNT)
def _concat(concat_dim: int, x: Sequence[EsTensor], N: int | None = None) -> EsTensor:
    """`Concat`; the axis is a number."""
    return _joined("Concat", x, concat_dim, N)


@form("ConcatV2", "ConcatD", onnx="Concat", concat_dim=whole("axis"), N=COUNT)
def _concat_v2(x: Sequence[EsTensor], concat_dim: int, N: int | None = None) -> EsTensor:
    """`Concat`; the axis is a number."""
    return _joined("ConcatV2", x, concat_dim, N)


def _axis(name: str, attribute: str, value: Any) -> int:
    return FORMS[name].write(attribute, value)["axis"]


def _joined(name: str, x: Sequence[EsTensor], axis: Any, count: int | None) -> EsTensor:
    counted(name, x, count)
    return es.Concat(*x, axis=_axis(name, "concat_dim", axis))


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
    split_dim=whole("axis"),
    num_split=derived(lambda node: len(node.outputs)),
)
def _split(
    split_dim: int, x: EsTensor, outputs: int, num_split: int | None = None
) -> list[EsTensor]:
    """`Split` into equal parts; the axis is a number."""
    if num_split not in (None, outputs):
        raise ValueError(f"Split: num_split is {num_split}, but {outputs} outputs are wanted")
    axis = _axis("Split", "split_dim", split_dim)
    result = es.Split(x, axis=axis, num_outputs=outputs)
    return [result] if isinstance(result, EsTensor) else list(result)


@form("Slice")
def _slice(x: EsTensor, offsets: Any, size: Any) -> EsTensor:
    """`Slice` of all axes; numbers, and in replacements alone."""
    _not_in_pattern("Slice")
    starts, sizes = whole_numbers(offsets), whole_numbers(size)
    if len(starts) != len(sizes) or min(starts, default=0) < 0 or min(sizes, default=0) < -1:
        raise ValueError(f"Slice: offsets {starts} and size {sizes} are of one length, from 0 on")
    pairs = zip(starts, sizes, strict=True)
    ends = [_END if size < 0 else start + size for start, size in pairs]
    return es.Slice(x, starts=starts, ends=ends, axes=list(range(len(starts))))


_END = 2**63 - 1
"""An end of a slice behind every axis."""


def _pads(name: str, paddings: Any, *, by_axis: bool = True) -> list[int]:
    _not_in_pattern(name)
    numbers = whole_numbers(paddings)
    return [*numbers[::2], *numbers[1::2]] if by_axis else numbers


def _not_in_pattern(name: str) -> None:
    if in_pattern():
        raise GeError(f"{name}: its inputs are not those of the model's nodes; {own_form(name)}")


@form("Pad")
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


operator(
    "Gather",
    "x indices",
    here="`Gather` with axis 0",
    misfit=lambda node: (
        "axis: GE's Gather has axis 0; use GatherV2" if node.attrs.get("axis") else ""
    ),
    validate_indices=fixed(value=True),
    batch_dims=fixed(0),
)
operator(
    "GatherV2",
    "x indices",
    "Gather",
    "`Gather`; the axis is a number",
    axis=whole("axis"),
    batch_dims=fixed(0),
)
operator(
    "GatherElements", "x index", here="`GatherElements` with this `axis`", dim=whole("axis", 0)
)
operator(
    "GatherNd",
    "x indices",
    "GatherND",
    misfit=lambda node: (
        f"batch_dims: GatherNd has none; {own_form('GatherND')}"
        if node.attrs.get("batch_dims")
        else ""
    ),
)
operator(
    "ScatterElements",
    "data indices updates",
    axis=whole("axis", 0),
    reduction=text("reduction", "none"),
)
operator(
    "ReverseSequence",
    "x seq_lengths",
    here="`ReverseSequence` with `time_axis`, `batch_axis`",
    seq_dim=whole("time_axis"),
    batch_dim=whole("batch_axis", 0),
)


@form("Where")
def _where(x: EsTensor) -> EsTensor:
    """`Transpose(NonZero)`, a row for each number; ONNX's `Where` is `SelectV2`."""
    return swapped(es.NonZero(x))


def _topped(
    x: EsTensor, k: Any, *, is_sorted: bool, axis: int, largest: bool, dtype: int
) -> dict[str, EsTensor]:
    expected = k if isinstance(k, EsTensor) else [one(k)]
    values, indices = es.TopK(x, expected, axis=axis, largest=int(largest), sorted=int(is_sorted))
    return {"values": values, "indices": _typed(indices, dtype)}


_SORTED, _DIM, _LARGEST = flag("sorted"), whole("axis"), flag("largest")


@form(
    "TopKV2",
    onnx="TopK",
    sorted=_SORTED,
    dim=_DIM,
    largest=_LARGEST,
    indices_dtype=INT64,
)
def _top_k_v2(
    x: EsTensor,
    k: EsTensor,
    sorted: bool = True,  # noqa: A002 - GE's name
    dim: int = -1,
    largest: bool = True,
    indices_dtype: int = GeDataType.DT_INT64,
) -> dict[str, EsTensor]:
    """`TopK`; `indices` are int64, as ONNX's, where `indices_dtype` is left out."""
    return _topped(x, k, is_sorted=sorted, axis=dim, largest=largest, dtype=indices_dtype)


@form(
    "TopK",
    onnx="TopK",
    sorted=_SORTED,
    dim=_DIM,
    largest=_LARGEST,
    indices_dtype=INT64,
)
def _top_k_v1(
    x: EsTensor,
    k: EsTensor,
    sorted: bool = True,  # noqa: A002 - GE's name
    largest: bool = True,
    dim: int = -1,
    indices_dtype: int = GeDataType.DT_INT64,
) -> dict[str, EsTensor]:
    """`TopK`; as `TopKV2`."""
    return _topped(x, k, is_sorted=sorted, axis=dim, largest=largest, dtype=indices_dtype)


def _single_axis(name: str, onnx: str) -> None:
    @form(
        name,
        onnx=onnx,
        here=f"`{onnx}` without `keepdims`, and `Cast` unless `dtype` is int64",
        misfit=has_only(name, onnx, keepdims=0, select_last_index=0),
        dimension=whole("axis"),
        dtype=INT64,
    )
    def call(x: EsTensor, dimension: Any, dtype: int = GeDataType.DT_INT64) -> EsTensor:
        axis = _axis(name, "dimension", dimension)
        return _typed(es.op(onnx)(x, axis=axis, keepdims=0), dtype)

    del call


_single_axis("ArgMaxV2", "ArgMax")
_single_axis("ArgMin", "ArgMin")


def _not_scalar(node: Node) -> str:
    x = node.input(0)
    is_scalar = x is not None and x.shape is not None and len(x.shape) == 0
    return "" if is_scalar else "value: Fill has a scalar; use Expand"


@form("Fill", misfit=_not_scalar)
def _fill(dims: EsTensor, value: EsTensor) -> EsTensor:
    """`Expand` of a scalar."""
    return es.Expand(value, dims)


operator(
    "Range", "start limit delta", here="`Range` without its limit", is_closed=fixed(value=False)
)
operator(
    "Cumsum",
    "x axis",
    "CumSum",
    exclusive=flag("exclusive", default=False),
    reverse=flag("reverse", default=False),
)


def _may_keep(node: Node) -> str:
    """``Expand`` keeps sizes of ``x`` that are larger than those of the shape."""
    shape, result = node.input(1), node.outputs[0]
    sizes = None if shape is None else shape.array
    known = None if result is None or result.shape is None else list(result.shape)
    is_whole = sizes is not None and sizes.tolist() == known
    return "" if is_whole else f"shape: it may not be the result's; {own_form('Expand')}"


operator("BroadcastTo", "x shape", "Expand", misfit=_may_keep)
