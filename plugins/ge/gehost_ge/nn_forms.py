"""Normalization, convolution, pooling and images under GE's names."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gehost import EsTensor, Node, es
from gehost_ge.attributes import (
    LAYOUT,
    REQUIRED,
    Attribute,
    array_of,
    derived,
    fixed,
    flag,
    number,
    shown,
    text,
    whole,
    whole_numbers,
)
from gehost_ge.building import in_pattern
from gehost_ge.form import form, has_only, operator, own_form, row_misfit


@form(
    "BiasAdd",
    onnx="Add",
    misfit=row_misfit("BiasAdd"),
    data_format=fixed("NHWC", "a bias of another axis has its rank: add it by Add"),
)
def _bias_add(x: EsTensor, bias: EsTensor, data_format: str = "NHWC") -> EsTensor:
    """`Add` of a bias of rank 1 along the last axis: NHWC."""
    if data_format != "NHWC":
        raise ValueError(
            f"BiasAdd: data_format {data_format!r} adds along axis 1, and the rank of x is not "
            "known here; use Add and a bias of shape [C, 1, 1]"
        )
    array = array_of(bias)
    if array is not None and array.ndim != 1 and not in_pattern():
        raise ValueError(f"BiasAdd: a bias has rank 1, got rank {array.ndim}; use Add")
    return es.Add(x, bias)


def _not_inference(node: Node) -> str:
    if node.attrs.get("training_mode") or node.attrs.get("spatial", 1) != 1:
        return "training: BatchNorm stands for inference"
    return "training: BatchNorm stands for inference" if len(node.outputs) > 1 else ""


operator(
    "BatchNorm",
    "x scale offset mean variance",
    "BatchNormalization",
    "`BatchNormalization`: NCHW, `is_training=False`, output `y` alone",
    _not_inference,
    outputs="y",
    epsilon=number("epsilon", 1e-4),
    data_format=LAYOUT,
    is_training=fixed(value=False, default=True),
    exponential_avg_factor=fixed(1.0),
)


@form(
    "LayerNorm",
    onnx="LayerNormalization",
    begin_norm_axis=whole("axis"),
    begin_params_axis=derived(lambda node: int(node.attr("axis"))),
    epsilon=number("epsilon"),
)
def _layer_norm(
    x: EsTensor,
    gamma: EsTensor,
    beta: EsTensor,
    begin_norm_axis: int = 0,
    begin_params_axis: int = 0,
    epsilon: float = 1e-7,
) -> dict[str, EsTensor]:
    """`LayerNormalization`: both axes equal, output `y` alone."""
    if begin_params_axis != begin_norm_axis:
        raise ValueError("LayerNorm: ONNX has one axis for begin_norm_axis and begin_params_axis")
    axis = int(begin_norm_axis)
    return {"y": es.LayerNormalization(x, gamma, beta, axis=axis, epsilon=float(epsilon))}


def _not_a_plane(node: Node) -> str:
    ranks = [
        None if value is None or value.shape is None else len(value.shape)
        for value in node.inputs[:2]
    ]
    if 4 not in ranks:
        return "rank: Conv2D is of images of rank 4"
    is_explicit = node.attrs.get("auto_pad", "NOTSET") in ("NOTSET", "VALID")
    return "" if is_explicit else f"auto_pad: Conv2D has pads; {own_form('Conv')}"


def _window(name: str, default: Any = REQUIRED) -> Attribute:
    """Return numbers of the height and width, which GE has for all four axes."""

    def write(value: Any) -> Mapping[str, Any]:
        numbers = [] if value is None else whole_numbers(value)
        if len(numbers) != 4 or numbers[:2] != [1, 1]:
            raise ValueError(f"it is [1, 1, height, width], got {shown(value)}")
        return {name: numbers[2:]}

    return Attribute(lambda node: [1, 1, *map(int, _pair(node, name))], write, default)


def _pair(node: Any, name: str) -> Any:
    return node.attr(name) or (1, 1)


def _pads(node: Any) -> list[int]:
    top, left, bottom, right = map(int, node.attr("pads") or (0, 0, 0, 0))
    return [top, bottom, left, right]


def _write_pads(value: Any) -> Mapping[str, Any]:
    numbers = [] if value is None else whole_numbers(value)
    if len(numbers) != 4:
        raise ValueError(f"they are [top, bottom, left, right], got {shown(value)}")
    top, bottom, left, right = numbers
    return {"pads": [top, left, bottom, right]}


operator(
    "Conv2D",
    "x filter bias?",
    "Conv",
    "`Conv`: NCHW; no `offset_w`, `offset_x`",
    _not_a_plane,
    offset_w=fixed(None),
    strides=_window("strides", None),
    pads=Attribute(_pads, _write_pads, None),
    dilations=_window("dilations", (1, 1, 1, 1)),
    groups=whole("group", 1),
    data_format=LAYOUT,
    offset_x=fixed(0),
)


def _whole_float(value: Any) -> int:
    if value != int(value):
        raise ValueError(f"ONNX's p is a whole number, got {value}")
    return int(value)


operator(
    "GlobalLpPool",
    "x",
    here="`GlobalLpPool`; `p` is whole",
    p=Attribute(lambda node: float(node.attr("p")), lambda value: {"p": _whole_float(value)}, 2.0),
)


def _other_padding(node: Node) -> str:
    attributes = node.attrs
    fits = (
        attributes.get("auto_pad", "NOTSET") in ("NOTSET", "SAME_UPPER", "VALID")
        and not any(attributes.get("pads", ()))
        and set(attributes.get("dilations", ())) <= {1}
        and not attributes.get("ceil_mode")
        and len(attributes.get("kernel_shape", ())) == 2
        and len(node.outputs) == 1
    )
    return "" if fits else f"padding: GE's MaxPool has SAME or VALID; {own_form('MaxPool')}"


_PADDINGS = {"SAME": "SAME_UPPER", "VALID": "VALID"}


def _write_padding(value: Any) -> Mapping[str, Any]:
    if value not in _PADDINGS:
        raise ValueError(f"it is SAME or VALID, got {shown(value)}")
    return {"auto_pad": _PADDINGS[value]}


operator(
    "MaxPool",
    "x",
    here="`MaxPool`: NCHW, windows of one image and channel",
    misfit=_other_padding,
    ksize=_window("kernel_shape"),
    strides=_window("strides"),
    padding=Attribute(
        lambda node: "SAME" if node.attr("auto_pad") == "SAME_UPPER" else "VALID", _write_padding
    ),
    data_format=LAYOUT,
)
operator(
    "DepthToSpace",
    "x",
    here="`DepthToSpace`: NCHW",
    block_size=whole("blocksize"),
    mode=text("mode", "DCR"),
    data_format=LAYOUT,
)
operator(
    "SpaceToDepth",
    "x",
    here="`SpaceToDepth`: NCHW",
    block_size=whole("blocksize"),
    data_format=LAYOUT,
)
operator("AffineGrid", "theta output_size", align_corners=flag("align_corners", default=False))
_is_plain = has_only("Resize", "Resize", antialias=0, keep_aspect_ratio_policy="stretch")


def _resizes_some(node: Node) -> str:
    some = node.attrs.get("axes") is not None
    return f"axes: GE's Resize has all; {own_form('Resize')}" if some else _is_plain(node)


operator(
    "Resize",
    "x roi? scales? sizes?",
    here="`Resize`; at opsets 11 and 12 a model's has `roi`, too",
    misfit=_resizes_some,
    coordinate_transformation_mode=text("coordinate_transformation_mode", "half_pixel"),
    cubic_coeff_a=number("cubic_coeff_a", -0.75),
    exclude_outside=whole("exclude_outside", 0),
    extrapolation_value=number("extrapolation_value", 0.0),
    mode=text("mode", "nearest"),
    nearest_mode=text("nearest_mode", "round_prefer_floor"),
)
