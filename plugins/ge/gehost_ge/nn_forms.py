"""Normalization, convolution, pooling and images under GE's names."""

from __future__ import annotations

from collections.abc import Sequence

from gehost import EsTensor, Node, es
from gehost_ge.form import form, has_only, only, own_form


def _not_inference(node: Node) -> str:
    if node.attrs.get("training_mode") or node.attrs.get("spatial", 1) != 1:
        return "training: BatchNorm stands for inference"
    return "training: BatchNorm stands for inference" if len(node.outputs) > 1 else ""


@form("BatchNorm", onnx="BatchNormalization", misfit=_not_inference)
def _batch_norm(
    x: EsTensor,
    scale: EsTensor,
    offset: EsTensor,
    mean: EsTensor,
    variance: EsTensor,
    epsilon: float = 1e-4,
    data_format: str = "NHWC",
    is_training: bool = True,
    exponential_avg_factor: float = 1.0,
) -> dict[str, EsTensor]:
    """`BatchNormalization`: NCHW, `is_training=False`, output `y` alone."""
    del exponential_avg_factor
    only("BatchNorm", data_format=(data_format, "NCHW"), is_training=(bool(is_training), False))
    result = es.BatchNormalization(x, scale, offset, mean, variance, epsilon=float(epsilon))
    return {"y": result}


@form("LayerNorm", onnx="LayerNormalization")
def _layer_norm(
    x: EsTensor,
    gamma: EsTensor,
    beta: EsTensor,
    begin_norm_axis: int = 0,
    begin_params_axis: int = 0,
    epsilon: float = 1e-7,
) -> dict[str, EsTensor]:
    """`LayerNormalization`: both axes equal, output `y` alone."""
    only("LayerNorm", begin_params_axis=(begin_params_axis, begin_norm_axis))
    axis = int(begin_norm_axis)
    return {"y": es.LayerNormalization(x, gamma, beta, axis=axis, epsilon=float(epsilon))}


def _not_a_plane(node: Node) -> str:
    ranks = [
        None if value is None or value.shape is None else len(value.shape)
        for value in node.inputs[:2]
    ]
    return "" if 4 in ranks else "rank: Conv2D is of images of rank 4"


@form("Conv2D", onnx="Conv", misfit=_not_a_plane)
def _conv2d(
    x: EsTensor,
    filter: EsTensor,  # noqa: A002 - GE's name
    bias: EsTensor | None = None,
    offset_w: None = None,
    strides: Sequence[int] | None = None,
    pads: Sequence[int] | None = None,
    dilations: Sequence[int] = (1, 1, 1, 1),
    groups: int = 1,
    data_format: str = "NHWC",
    offset_x: int = 0,
) -> EsTensor:
    """`Conv`: NCHW; no `offset_w`, `offset_x`."""
    if strides is None or pads is None:
        raise TypeError("Conv2D: missing a required argument: 'strides' and 'pads'")
    only("Conv2D", offset_w=(offset_w, None), offset_x=(offset_x, 0))
    only("Conv2D", data_format=(data_format, "NCHW"))
    for what, numbers in (("strides", strides), ("dilations", dilations)):
        if len(numbers) != 4 or [*numbers[:2]] != [1, 1]:
            raise ValueError(f"Conv2D: {what} are [1, 1, height, width], got {[*numbers]}")
    top, bottom, left, right = pads
    return es.Conv(
        *(tensor for tensor in (x, filter, bias) if tensor is not None),
        strides=list(strides[2:]),
        pads=[top, left, bottom, right],
        dilations=list(dilations[2:]),
        group=groups,
    )


@form("GlobalLpPool", onnx="GlobalLpPool")
def _global_lp_pool(x: EsTensor, p: float = 2.0) -> EsTensor:
    """`GlobalLpPool`; `p` is whole."""
    if p != int(p):
        raise ValueError(f"GlobalLpPool: ONNX's p is a whole number, got {p}")
    return es.GlobalLpPool(x, p=int(p))


def _other_padding(node: Node) -> str:
    attributes = node.attrs
    fits = (
        attributes.get("auto_pad", "NOTSET") in ("NOTSET", "SAME_UPPER", "VALID")
        and not any(attributes.get("pads", ()))
        and set(attributes.get("dilations", ())) <= {1}
        and not attributes.get("ceil_mode")
        and len(attributes.get("kernel_shape", ())) == 2
    )
    return "" if fits else f"padding: GE's MaxPool has SAME or VALID; {own_form('MaxPool')}"


@form("MaxPool", onnx="MaxPool", misfit=_other_padding)
def _max_pool(
    x: EsTensor,
    ksize: Sequence[int],
    strides: Sequence[int],
    padding: str,
    data_format: str = "NHWC",
) -> EsTensor:
    """`MaxPool`: NCHW, windows of one image and channel."""
    only("MaxPool", data_format=(data_format, "NCHW"))
    paddings = {"SAME": "SAME_UPPER", "VALID": "VALID"}
    if padding not in paddings:
        raise ValueError(f"MaxPool: padding is SAME or VALID, got {padding!r}")
    if len(ksize) != 4 or len(strides) != 4 or [*ksize[:2], *strides[:2]] != [1, 1, 1, 1]:
        raise ValueError(f"MaxPool: ksize and strides are [1, 1, height, width], got {ksize!r}")
    return es.MaxPool(
        x,
        kernel_shape=list(ksize[2:]),
        strides=list(strides[2:]),
        auto_pad=paddings[padding],
    )


@form("DepthToSpace", onnx="DepthToSpace")
def _depth_to_space(
    x: EsTensor, block_size: int, mode: str = "DCR", data_format: str = "NHWC"
) -> EsTensor:
    """`DepthToSpace`: NCHW."""
    only("DepthToSpace", data_format=(data_format, "NCHW"))
    return es.DepthToSpace(x, blocksize=int(block_size), mode=mode)


@form("SpaceToDepth", onnx="SpaceToDepth")
def _space_to_depth(x: EsTensor, block_size: int, data_format: str = "NHWC") -> EsTensor:
    """`SpaceToDepth`: NCHW."""
    only("SpaceToDepth", data_format=(data_format, "NCHW"))
    return es.SpaceToDepth(x, blocksize=int(block_size))


@form("AffineGrid", onnx="AffineGrid")
def _affine_grid(theta: EsTensor, output_size: EsTensor, align_corners: bool = False) -> EsTensor:
    """`AffineGrid`."""
    return es.AffineGrid(theta, output_size, align_corners=int(align_corners))


@form(
    "Resize",
    onnx="Resize",
    misfit=has_only("Resize", "Resize", antialias=0, keep_aspect_ratio_policy="stretch"),
)
def _resize(
    x: EsTensor,
    roi: EsTensor | None = None,
    scales: EsTensor | None = None,
    sizes: EsTensor | None = None,
    coordinate_transformation_mode: str = "half_pixel",
    cubic_coeff_a: float = -0.75,
    exclude_outside: int = 0,
    extrapolation_value: float = 0.0,
    mode: str = "nearest",
    nearest_mode: str = "round_prefer_floor",
) -> EsTensor:
    """`Resize`."""
    operands = [x, roi, scales, sizes]
    while operands[-1] is None:
        operands.pop()
    return es.Resize(
        *operands,
        coordinate_transformation_mode=coordinate_transformation_mode,
        cubic_coeff_a=float(cubic_coeff_a),
        exclude_outside=int(exclude_outside),
        extrapolation_value=float(extrapolation_value),
        mode=mode,
        nearest_mode=nearest_mode,
    )
