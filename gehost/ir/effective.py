"""What attributes mean that a node leaves out, or that an opset spells otherwise.

ONNX's schemas have defaults of plain attributes alone. This table has the rest: defaults that the
specification gives in prose, values that came, went or were renamed, and what an operator did
before it had an attribute. Source: ONNX's operator changelog; a test compares the table with the
values that ONNX Runtime and ``onnx.reference`` accept.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import cache
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

import onnx

from gehost.ir.attributes import attribute_value
from gehost.ir.schemas import history, schema_at

if TYPE_CHECKING:
    from gehost.ir.node import Node

RENAMED: Final = MappingProxyType(
    {("GridSample", "mode"): (20, {"bilinear": "linear", "bicubic": "cubic"})}
)
"""Operator and attribute → the opset of the new values, and the new value of each old one."""

_MODE, _REDUCTION = "coordinate_transformation_mode", {"max": (18, None), "min": (18, None)}
LIMITED: Final[Mapping[tuple[str, str], Mapping[str, tuple[int, int | None]]]] = MappingProxyType(
    {
        ("Pad", "mode"): {"wrap": (19, None)},
        ("Resize", "mode"): {"cubic": (11, None)},
        ("Resize", _MODE): {"half_pixel_symmetric": (19, None), "tf_half_pixel_for_nn": (11, 12)},
        ("ScatterElements", "reduction"): _REDUCTION,
        ("ScatterND", "reduction"): _REDUCTION,
    }
)
"""Values that only some opsets with the attribute have: the first and the last of them."""

LACKING: Final[Mapping[tuple[str, str], Any]] = MappingProxyType(
    {
        ("BatchNormalization", "spatial"): 1,  # opset 9 dropped it
        ("BatchNormalization", "training_mode"): 0,  # of one output, from opset 7 on
        ("Resize", _MODE): "asymmetric",
        ("Resize", "nearest_mode"): None,  # opset 10: by whether the image shrinks
        ("RoiAlign", _MODE): "output_half_pixel",
    }
)
"""What an operator does without an attribute that its opset lacks, None where no value says it.

All others that came later have as their default what the operator did before, which
``tools/opset`` compares; others that were dropped mean nothing without them.
"""

IN_PROSE: Final = MappingProxyType(
    {
        ("DFT", "axis"): -2,
        ("NonMaxSuppression", "iou_threshold"): 0.0,
        ("NonMaxSuppression", "max_output_boxes_per_class"): 0,
        ("Trilu", "k"): 0,
    }
)
"""Defaults of inputs that depend on nothing."""


def newest_spelling(op: str, name: str, value: Any) -> Any:
    """Return an attribute's value as the newest opset spells it."""
    renamed = RENAMED.get((op, name))
    return value if renamed is None or type(value) is not str else renamed[1].get(value, value)


def spelling_at(op: str, name: str, value: Any, version: int) -> Any:
    """Return a value as an opset spells it, given in the newest spelling or an older one."""
    renamed = RENAMED.get((op, name))
    if renamed is None or type(value) is not str:
        return value
    since, names = renamed
    if version >= since:
        return names.get(value, value)
    return next((old for old, new in names.items() if new == value), value)


def has_value(op: str, name: str, value: Any, version: int) -> bool:
    """Whether an opset's attribute may have a value, as far as the table limits it."""
    limits = LIMITED.get((op, name), {})
    first, last = limits.get(value, (0, None)) if type(value) is str else (0, None)
    return first <= version and (last is None or version <= last)


def effective(node: Node, name: str) -> Any:
    """Return an attribute's value, or what counts where the node leaves it out; else None.

    The value has the newest spelling.
    """
    value = node.attrs.get(name)
    return default_of(node, name) if value is None else newest_spelling(node.op, name, value)


def default_of(node: Node, name: str) -> Any:
    """Return what an absent attribute of a node means; None if nothing says so.

    Lists of one entry for each spatial axis have the right length where the rank is known.
    """
    model = node.graph.model
    function = model.function(node.op)
    if function is not None:
        entries = (default for default in function.attribute_proto if default.name == name)
        return next((attribute_value(entry) for entry in entries), None)
    version = model.opset(node.domain)
    schema = None if version is None else schema_at(node.domain, node.op_type, version)
    if schema is None:
        return None
    attribute = schema.attributes.get(name)
    if attribute is None:
        outputs = sum(value is not None for value in node.outputs)
        lacking = as_lacking(node.domain, node.op_type, name, version, outputs)
        if lacking is not None or not says_lacking(node.domain, node.op_type, name, version):
            return lacking
    elif attribute.default_value.type:
        return newest_spelling(node.op, name, attribute_value(attribute.default_value))
    rule = _RULES.get((node.op, name))
    return None if rule is None else rule(node)


def input_default(node: Node, name: str) -> Any:
    """Return what an absent input of a node means, by its other inputs; None if nothing says so."""
    rule = _RULES.get((node.op, name))
    return None if rule is None else rule(node)


@cache
def as_lacking(domain: str, op_type: str, name: str, version: int, outputs: int = 1) -> Any:
    """Return the value of an attribute that does what an opset does that lacks the attribute.

    None if no value does. Before opset 14, ``BatchNormalization`` trains if it has several outputs;
    below opset 7, another attribute says so.
    """
    if domain == "" and (op_type, name) in LACKING:
        may_train = name == "training_mode" and (version < 7 or outputs != 1)
        return None if may_train else LACKING[op_type, name]
    later = _later(domain, op_type, name, version)
    if later is None or not later.default_value.type:
        return None
    return attribute_value(later.default_value)


@cache
def says_lacking(domain: str, op_type: str, name: str, version: int) -> bool:
    """Whether operators of an opset mean a value of an attribute that the opset lacks."""
    if as_lacking(domain, op_type, name, version) is not None:
        return True
    is_later = _later(domain, op_type, name, version) is not None
    return is_later and domain == "" and (op_type, name) in _RULES


def _later(
    domain: str, op_type: str, name: str, version: int
) -> onnx.defs.OpSchema.Attribute | None:
    """Return an attribute in the first of the later opsets that have it.

    None if this opset has an input of that name.
    """
    schema = schema_at(domain, op_type, version)
    if schema is None or any(parameter.name == name for parameter in schema.inputs):
        return None
    newer = (item for item in history(domain, op_type) if item.since_version > version)
    return next((item.attributes[name] for item in newer if name in item.attributes), None)


def _rank(node: Node, slot: int) -> int | None:
    value = node.input(slot)
    return None if value is None else value.rank


def _size(node: Node, slot: int, axis: int) -> int | None:
    value = node.input(slot)
    shape = None if value is None else value.shape
    size = None if not shape or not -len(shape) <= axis < len(shape) else shape[axis]
    return size if isinstance(size, int) else None


_KERNELS: Final = MappingProxyType(
    {"Conv": 1, "ConvInteger": 1, "ConvTranspose": 1, "DeformConv": 1, "QLinearConv": 3}
)
"""The input with a convolution's weights."""


def _spatial_axes(node: Node) -> int | None:
    """Return the number of axes over which a window moves."""
    if node.op == "Col2Im":
        return _size(node, 1, 0) or _size(node, 2, 0)
    kernel = node.attrs.get("kernel_shape")
    if kernel is not None:
        return len(kernel)
    rank = _rank(node, _KERNELS.get(node.op, 0))
    rank = _rank(node, 0) if rank is None else rank
    return None if rank is None else max(rank - 2, 0)


def _ones(node: Node) -> list[int] | None:
    count = _spatial_axes(node)
    return None if count is None else [1] * count


def _no_padding(node: Node) -> list[int] | None:
    """Return zeros, unless the sizes of inputs and outputs decide."""
    decided = node.attrs.get("auto_pad", "NOTSET") not in ("NOTSET", "VALID")
    if decided or "output_shape" in node.attrs:
        return None
    count = _spatial_axes(node)
    return None if count is None else [0] * (2 * count)


def _no_output_padding(node: Node) -> list[int] | None:
    count = _spatial_axes(node)
    return None if count is None else [0] * count


def _kernel_shape(node: Node) -> list[int] | None:
    weights = node.input(_KERNELS[node.op])
    shape = None if weights is None else weights.shape
    sizes = [size for size in (shape or ())[2:] if isinstance(size, int)]
    return sizes if shape and len(sizes) == len(shape) - 2 else None


def _reversed_axes(node: Node) -> list[int] | None:
    rank = _rank(node, 0)
    return None if rank is None else list(range(rank))[::-1]


def _all_axes(node: Node) -> list[int] | None:
    rank = _rank(node, 0)
    return None if rank is None else list(range(rank))


def _reduced_axes(node: Node) -> list[int] | None:
    """Return all axes, unless the operator reduces none without axes."""
    return None if node.attrs.get("noop_with_empty_axes", 0) else _all_axes(node)


def _axes_of_size_1(node: Node) -> list[int] | None:
    value = node.input(0)
    shape = None if value is None else value.shape
    if shape is None or not all(isinstance(size, int) for size in shape):
        return None
    return [axis for axis, size in enumerate(shape) if size == 1]


def _sliced_axes(node: Node) -> list[int] | None:
    starts = node.attrs.get("starts")
    count = _size(node, 1, 0) if starts is None else len(starts)
    return None if count is None else list(range(count))


def _equal_parts(node: Node) -> list[int] | None:
    """Return the sizes of a Split's parts; the last one is smaller where they are not equal."""
    size, count = _size(node, 0, node.attrs.get("axis", 0)), len(node.outputs)
    if not size or not count:
        return None
    part = -(-size // count)
    last = size - part * (count - 1)
    return [*[part] * (count - 1), last] if last > 0 else None


def _dtype_of_input(node: Node) -> int | None:
    value = node.input(0)
    return None if value is None or not value.dtype else int(value.dtype)


def _whole_rank(node: Node) -> int | None:
    return _rank(node, 0)


def _zeros_for_scanned(node: Node) -> list[int]:
    return [0] * node.attrs["num_scan_inputs"]


def _zeros_for_results(node: Node) -> list[int]:
    states = len(node.inputs) - node.attrs["num_scan_inputs"]
    return [0] * (len(node.outputs) - states)


def _hidden_size(node: Node) -> int | None:
    return _size(node, 2, -1)


def _activations(node: Node) -> list[str]:
    names = {"RNN": ["Tanh"], "GRU": ["Sigmoid", "Tanh"], "LSTM": ["Sigmoid", "Tanh", "Tanh"]}
    return names[node.op] * (2 if node.attrs.get("direction") == "bidirectional" else 1)


def _attention_scale(node: Node) -> float | None:
    """Return 1 / √(size of a head)."""
    size, rank = _size(node, 0, -1), _rank(node, 0)
    heads = 1 if rank == 4 else node.attrs.get("q_num_heads")
    return 1 / math.sqrt(size // heads) if size and heads and rank is not None else None


_REDUCTIONS: Final = tuple(
    f"Reduce{name}"
    for name in (
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
_LIKE_INPUT: Final = ("Bernoulli", "EyeLike", "RandomNormalLike", "RandomUniformLike")
"""Operators whose results have the element type of their input."""


def _rules() -> dict[tuple[str, str], Callable[[Node], Any]]:
    pools = ("AveragePool", "LpPool", "MaxPool")
    rules: dict[tuple[str, str], Callable[[Node], Any]] = {
        ("Attention", "scale"): _attention_scale,
        ("CenterCropPad", "axes"): _all_axes,
        ("ConvTranspose", "output_padding"): _no_output_padding,
        ("Resize", "axes"): _all_axes,
        ("Scan", "scan_input_axes"): _zeros_for_scanned,
        ("Scan", "scan_input_directions"): _zeros_for_scanned,
        ("Scan", "scan_output_axes"): _zeros_for_results,
        ("Scan", "scan_output_directions"): _zeros_for_results,
        ("Shape", "end"): _whole_rank,
        ("Slice", "axes"): _sliced_axes,
        ("Split", "split"): _equal_parts,
        ("Squeeze", "axes"): _axes_of_size_1,
        ("Transpose", "perm"): _reversed_axes,
    }
    rules |= {(op, "axes"): _reduced_axes for op in _REDUCTIONS}
    rules |= {(op, "dtype"): _dtype_of_input for op in _LIKE_INPUT}
    rules |= {(op, "strides"): _ones for op in (*_KERNELS, *pools, "Col2Im", "MaxUnpool")}
    rules |= {(op, "dilations"): _ones for op in (*_KERNELS, *pools, "Col2Im")}
    rules |= {(op, "pads"): _no_padding for op in (*_KERNELS, *pools, "Col2Im", "MaxUnpool")}
    rules |= {(op, "kernel_shape"): _kernel_shape for op in _KERNELS}
    rules |= {(op, "hidden_size"): _hidden_size for op in ("GRU", "LSTM", "RNN")}
    return rules | {(op, "activations"): _activations for op in ("GRU", "LSTM", "RNN")}


_RULES: Final = _rules()

OF_SHAPES: Final = frozenset(name for _, name in _RULES) - {"perm"}
"""Attributes whose defaults depend on more than the rank of input 0."""


def may_be_left_out(op: str, name: str, value: Any) -> bool:
    """Whether a list of an attribute is what an operator does that lacks the attribute."""
    rule = _RULES.get((op, name))
    if rule not in (_ones, _no_padding, _no_output_padding) or type(value) not in (list, tuple):
        return False
    return all(number == (1 if rule is _ones else 0) for number in value)
