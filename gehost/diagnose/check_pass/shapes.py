"""Shapes that the description of an operator allows, where inference does not check them.

The reference evaluator broadcasts what a specification forbids: a Conv with weights of rank 2, a
variance without dimensions. A pass that trusts the specification is right all the same.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final

import onnx

from gehost.ir.attributes import attribute_value
from gehost.ir.types import Dim

_Shape = tuple[Dim, ...]

_NORM = "N C +"
_FORMS: Final[Mapping[str, tuple[str, ...]]] = MappingProxyType(
    {
        "AveragePool": (_NORM,),
        "BatchNormalization": ("N C * | N", "C", "C", "C", "C"),
        "Conv": (_NORM, "M G +", "M"),
        "ConvInteger": (_NORM, "M G +"),
        "ConvTranspose": (_NORM, "C G +", "M"),
        "DeformConv": (_NORM, "M G +", "N K +", "M", "N L +"),
        "DepthToSpace": ("N C H W",),
        "Gemm": ("A B", "D E", "| x | x y"),
        "GlobalAveragePool": (_NORM,),
        "GlobalLpPool": (_NORM,),
        "GlobalMaxPool": (_NORM,),
        "GroupNormalization": (_NORM,),
        "GRU": ("S B I", "D X I", "D X H", "D Y", "B", "D B H"),
        "InstanceNormalization": (_NORM, "C", "C"),
        "LpPool": (_NORM,),
        "LRN": (_NORM,),
        "LSTM": ("S B I", "D X I", "D X H", "D Y", "B", "D B H", "D B H", "D Z"),
        "MaxPool": (_NORM,),
        "QLinearConv": (_NORM, "| 1", "| 1", "M G +", "M | | 1", "M | | 1", "| 1", "| 1", "M"),
        "RNN": ("S B I", "D X I", "D X H", "D Y", "B", "D B H"),
        "SpaceToDepth": ("N C H W",),
    }
)
"""The shape of each input: sizes of one name are equal, ``+`` is one or more other dimensions (as
many in each input), ``*`` is any number, ``|`` separates forms. An input that is not listed may
have any shape.
"""
_BROADCASTS_TO_FIRST: Final[Mapping[str, tuple[int, ...]]] = MappingProxyType(
    {
        "LayerNormalization": (1, 2),
        "PRelu": (1,),
        "RMSNormalization": (1,),
    }
)
"""Inputs that broadcast to the first one, which keeps its shape."""


def shape_fault(nodes: Iterable[onnx.NodeProto], shapes: Mapping[str, _Shape | None]) -> str:
    """Return what the specification forbids about the shapes of nodes; "" if nothing.

    Args:
        nodes: those of other domains may have any shapes.
        shapes: of all tensors, None where the rank is not known.
    """
    for node in nodes:
        if node.domain not in ("", "ai.onnx"):
            continue
        operand_shapes = [shapes.get(name) if name else None for name in node.input]
        fault = _fault(node, operand_shapes)
        if fault:
            return f"{node.op_type}: {fault}"
    return ""


def _fault(node: onnx.NodeProto, operand_shapes: Sequence[_Shape | None]) -> str:
    sizes: dict[str, Any] = {}
    forms = _FORMS.get(node.op_type, ())
    if any(entry.name == "spatial" and entry.i == 0 for entry in node.attribute):
        forms = ("N +", "+", "+", "+", "+")  # BatchNormalization-7: a number for each activation
    for slot, (form, shape) in enumerate(zip(forms, operand_shapes, strict=False)):
        if shape is not None and not any(
            _fits(one.split(), shape, sizes) for one in form.split("|")
        ):
            return f"input {slot} of shape [{','.join(map(str, shape))}], wanted [{form.strip()}]"
    first = operand_shapes[0] if operand_shapes else None
    if first is None:
        return ""
    for slot in _BROADCASTS_TO_FIRST.get(node.op_type, ()):
        shape = operand_shapes[slot] if slot < len(operand_shapes) else None
        if shape is not None and not _broadcasts(shape, first):
            return f"input {slot} of shape [{','.join(map(str, shape))}] widens the first one"
    return _wrong_groups(node, operand_shapes)


def _fits(form: Sequence[str], shape: _Shape, sizes: dict[str, Any]) -> bool:
    """Whether a shape has a form; the sizes of its names are recorded if so."""
    rest = form[-1] if form and form[-1] in "+*" else ""
    names = form[:-1] if rest else form
    more = len(shape) - len(names)
    if more < (rest == "+") or (more > 0 and not rest):
        return False
    if rest == "+" and sizes.get("+", more) != more:
        return False
    new: dict[str, Any] = {"+": more} if rest == "+" else {}
    for name, size in zip(names, shape, strict=False):
        expected = int(name) if name.isdecimal() else sizes.get(name, new.get(name, size))
        if isinstance(size, int) and isinstance(expected, int) and size != expected:
            return False
        new[name] = size if isinstance(size, int) else expected
    sizes.update(new)
    return True


def _broadcasts(shape: _Shape, onto: _Shape) -> bool:
    return len(shape) <= len(onto) and all(
        size in (1, other) or not (isinstance(size, int) and isinstance(other, int))
        for size, other in zip(reversed(shape), reversed(onto), strict=False)
    )


def _wrong_groups(node: onnx.NodeProto, operand_shapes: Sequence[_Shape | None]) -> str:
    """Return what is wrong about the groups of channels; "" if nothing."""
    attributes = {entry.name: attribute_value(entry) for entry in node.attribute}
    slot = 3 if node.op_type == "QLinearConv" else 1
    first, weights = operand_shapes[0], operand_shapes[slot] if slot < len(operand_shapes) else None
    channels = first[1] if first is not None and len(first) > 1 else None
    if node.op_type in ("Conv", "ConvInteger", "ConvTranspose", "DeformConv", "QLinearConv"):
        group = attributes.get("group", 1)
        if group < 1 or weights is None or not isinstance(channels, int) or len(weights) < 3:
            return "group below 1" if group < 1 else ""
        if node.op_type == "ConvTranspose":
            filters = weights[1] * group if isinstance(weights[1], int) else None
            bias = operand_shapes[2] if len(operand_shapes) > 2 else None
            size = bias[0] if bias else filters
            wrong = channels % group != 0 or (
                isinstance(size, int) and filters is not None and size != filters
            )
        else:
            part, count = weights[:2][::-1]
            wrong = isinstance(part, int) and channels != part * group
            wrong = wrong or (isinstance(count, int) and count % group != 0)
        if wrong:
            return f"{channels} channels, group {group}, weights {list(weights)}"
        kernel = attributes.get("kernel_shape")
        sizes = list(weights[2:])
        if kernel is not None and all(isinstance(size, int) for size in sizes) and kernel != sizes:
            return f"kernel_shape {kernel} of weights {list(weights)}"
    if node.op_type == "GroupNormalization" and isinstance(channels, int):
        groups = attributes.get("num_groups", 1)
        # opset 18 has one scale for each group, 21 one for each channel
        vectors = [shape for shape in operand_shapes[1:3] if shape is not None]
        if groups < 1 or channels % groups:
            return f"{channels} channels, num_groups {groups}"
        if any(len(shape) != 1 or shape[0] not in (groups, channels) for shape in vectors):
            return "scale and bias are no vectors of the groups or channels"
    return ""
