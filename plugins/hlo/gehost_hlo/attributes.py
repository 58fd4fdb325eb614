"""Typed views of attributes, computed on access.

The attributes themselves stay as written.
"""

from __future__ import annotations

import math
import re
from typing import NamedTuple

import numpy as np

from gehost_hlo.module import HloInstruction

_INTEGER = re.compile(r"-?[0-9]{1,12}")
_SLICE = re.compile(r"\[\s*([0-9]{1,12})\s*:\s*([0-9]{1,12})\s*(?::\s*([0-9]{1,12})\s*)?\]")
_PAIR = re.compile(r'([A-Za-z_][\w.-]*)=("(?:[^"\\]|\\.)*"|\{[^{}]*\}|[^\s}"{]+)', re.DOTALL)
_ESCAPE = re.compile(r"\\(?:([0-7]{1,3})|x([0-9A-Fa-f]{1,2})|(.))", re.DOTALL)
_ESCAPED = {"n": "\n", "t": "\t", "r": "\r"}
_NAME = re.compile(r"%?([A-Za-z_][A-Za-z0-9_.-]*)")

CALLED = (
    "to_apply",
    "calls",
    "condition",
    "body",
    "select",
    "scatter",
    "true_computation",
    "false_computation",
)
"""Attributes that name one computation."""
CALLED_LISTS = ("branch_computations", "called_computations")
"""Attributes that name several."""


class AttributeFormError(ValueError):
    """An attribute is missing, or has the wrong form.

    Its view needs that form.
    """


class DimensionWindow(NamedTuple):
    """The window along one dimension."""

    size: int
    stride: int = 1
    low: int = 0
    high: int = 0
    base_dilation: int = 1
    dilation: int = 1
    reversed: bool = False

    def outputs(self, length: int) -> int:
        """Number of places that the window takes along a dimension of ``length``."""
        padded = (
            (0 if length == 0 else (length - 1) * self.base_dilation + 1) + self.low + self.high
        )
        span = (self.size - 1) * self.dilation + 1
        return 0 if padded < span else (padded - span) // self.stride + 1


class DimLabels(NamedTuple):
    """Dimension numbers of a convolution.

    They are indices into the operands' and the result's shapes.
    """

    batch: int
    feature: int
    spatial: tuple[int, ...]
    kernel_input: int
    kernel_output: int
    kernel_spatial: tuple[int, ...]
    output_batch: int
    output_feature: int
    output_spatial: tuple[int, ...]


class Sharding(NamedTuple):
    """How a tensor is laid out over devices.

    Attributes:
        kind: ``replicated``, ``maximal``, ``manual``, ``unknown``, ``tiled``, ``tuple``, or
            ``other`` for a form not known here.
        tiles: parts in each dimension, in a tiled one; further entries belong to
            ``last_tile_dims``.
        devices: as written, an explicit list or ``<=[…]``.
        replicated_last: whether the last entry of ``tiles`` counts copies.
        elements: of a tuple.
        text: as written.
    """

    kind: str
    text: str
    tiles: tuple[int, ...] = ()
    devices: str = ""
    replicated_last: bool = False
    elements: tuple[Sharding, ...] = ()


def integers(text: str) -> tuple[int, ...]:
    """Read ``{0,1}``.

    Raises:
        AttributeFormError: it holds something else.
    """
    inside = text.strip()
    if not (inside.startswith("{") and inside.endswith("}")):
        raise AttributeFormError(f"expected {{…}} of integers, found {text}")
    parts = [part.strip() for part in inside[1:-1].split(",")] if inside[1:-1].strip() else []
    if not all(_INTEGER.fullmatch(part) for part in parts):
        raise AttributeFormError(f"expected integers, found {text}")
    return tuple(map(int, parts))


def dimensions(instruction: HloInstruction, name: str = "dimensions") -> tuple[int, ...]:
    """Read an attribute of integers in braces; () where it is absent."""
    text = instruction.attributes.get(name)
    return () if text is None else integers(text)


def dimension(instruction: HloInstruction, rank: int) -> int:
    """Read ``dimensions={k}``, the one dimension of an array of ``rank``.

    Raises:
        AttributeFormError: it is absent, names several, or is none of the array.
    """
    axes = dimensions(instruction)
    if len(axes) != 1 or not 0 <= axes[0] < rank:
        text = instruction.attributes.get("dimensions", "nothing")
        raise AttributeFormError(f"dimensions: expected one of {rank}, found {text}")
    return axes[0]


def integer(instruction: HloInstruction, name: str, default: int | None = None) -> int:
    """Read an attribute of one integer.

    Raises:
        AttributeFormError: it is absent and has no default, or is no integer.
    """
    text = instruction.attributes.get(name)
    if text is None:
        if default is None:
            raise AttributeFormError(f"{name} is missing")
        return default
    if not _INTEGER.fullmatch(text):
        raise AttributeFormError(f"{name}: expected an integer, found {text}")
    return int(text)


def flag(instruction: HloInstruction, name: str) -> bool:
    return instruction.attributes.get(name) == "true"


def slices(instruction: HloInstruction) -> tuple[tuple[int, int, int], ...]:
    """Read ``slice={[0:4], [2:8:2]}`` as (start, limit, stride)."""
    text = instruction.attributes.get("slice", "{}")
    bounds = [
        (int(start), int(limit), int(stride or 1)) for start, limit, stride in _SLICE.findall(text)
    ]
    if re.sub(r"[{},\s]", "", _SLICE.sub("", text)):
        raise AttributeFormError(f"slice: expected {{[start:limit:stride], …}}, found {text}")
    return tuple(bounds)


def window(instruction: HloInstruction) -> tuple[DimensionWindow, ...]:
    """Read ``window={size=3x3 stride=2x2 pad=1_1x0_1 lhs_dilate=… rhs_dilate=… …}``."""
    text = instruction.attributes.get("window", "{}")
    fields = dict(re.findall(r"(\w+)=([-\w]+)", text))
    if not fields:
        return ()
    if any(len(number) > 9 for number in re.findall(r"[0-9]+", text)):
        raise AttributeFormError(f"window: cannot read {text}")
    try:
        sizes = [int(part) for part in fields["size"].split("x")]
        rank = len(sizes)

        def numbers(name: str, default: int) -> list[int]:
            windows = (
                [int(part) for part in fields[name].split("x")]
                if name in fields
                else [default] * rank
            )
            if len(windows) != rank:
                raise ValueError(name)
            return windows

        pads = (
            [part.split("_") for part in fields["pad"].split("x")]
            if "pad" in fields
            else [["0", "0"]] * rank
        )
        if len(pads) != rank:
            raise ValueError("pad")
        rows = zip(
            sizes,
            numbers("stride", 1),
            [int(low) for low, _ in pads],
            [int(high) for _, high in pads],
            numbers("lhs_dilate", 1),
            numbers("rhs_dilate", 1),
            [bool(part) for part in numbers("rhs_reversal", 0)],
            strict=True,
        )
        windows = tuple(DimensionWindow(*row) for row in rows)
    except (KeyError, ValueError) as error:
        raise AttributeFormError(f"window: cannot read {text}") from error
    if any(
        row.size < 1 or row.stride < 1 or row.dilation < 1 or row.base_dilation < 1
        for row in windows
    ):
        raise AttributeFormError(f"window: sizes, strides and dilations start at 1: {text}")
    return windows


def dim_labels(instruction: HloInstruction) -> DimLabels:
    """Read ``dim_labels=b01f_01io->b01f``."""
    text = instruction.attributes.get("dim_labels", "")
    match = re.fullmatch(r"([bf0-9?]+)_([io0-9?]+)->([bf0-9?]+)", text)
    if match is None:
        raise AttributeFormError(f"dim_labels: cannot read {text}")
    rest, kernel, out = match.groups()
    spatial = [str(axis) for axis in range(len(rest) - 2)]
    if (
        sorted(rest) != sorted([*spatial, "b", "f"])
        or sorted(out) != sorted(rest)
        or sorted(kernel) != sorted([*spatial, "i", "o"])
    ):
        raise AttributeFormError(f"dim_labels: cannot read {text}")
    return DimLabels(
        rest.index("b"),
        rest.index("f"),
        tuple(rest.index(axis) for axis in spatial),
        kernel.index("i"),
        kernel.index("o"),
        tuple(kernel.index(axis) for axis in spatial),
        out.index("b"),
        out.index("f"),
        tuple(out.index(axis) for axis in spatial),
    )


def padding(instruction: HloInstruction) -> tuple[tuple[int, int, int], ...]:
    """Read ``padding=1_2_1x0_0`` as (low, high, interior)."""
    text = instruction.attributes.get("padding", "")
    rows: list[tuple[int, int, int]] = []
    for part in text.split("x") if text else ():
        match = re.fullmatch(r"(-?[0-9]{1,9})_(-?[0-9]{1,9})(?:_([0-9]{1,9}))?", part)
        if match is None:
            raise AttributeFormError(f"padding: cannot read {text}")
        rows.append((int(match[1]), int(match[2]), int(match[3] or 0)))
    return tuple(rows)


def metadata(instruction: HloInstruction) -> dict[str, str]:
    """Read ``metadata={op_type="Add" op_name="…"}``; strings without quotes and escapes."""
    text = instruction.attributes.get("metadata")
    if text is None:
        return {}
    return {name: unquoted(value) for name, value in _PAIR.findall(text)}


def op_name(instruction: HloInstruction) -> str:
    """Return the ``op_name`` of the metadata; "" without one."""
    text = instruction.attributes.get("metadata")
    if text is None or "op_name=" not in text:
        return ""
    return metadata(instruction).get("op_name", "")


def unquoted(text: str) -> str:
    """Return a string's content; other text as it is."""
    if len(text) < 2 or text[0] != '"':
        return text
    return _ESCAPE.sub(_unescape, text[1:-1]) if "\\" in text else text[1:-1]


def _unescape(match: re.Match[str]) -> str:
    octal, hexadecimal, character = match.groups()
    if octal:
        return chr(int(octal, 8))
    return chr(int(hexadecimal, 16)) if hexadecimal else _ESCAPED.get(character, character)


def called(instruction: HloInstruction) -> tuple[tuple[str, str], ...]:
    """Return (attribute, computation) of each computation that the instruction names, without
    ``%``.
    """
    pairs: list[tuple[str, str]] = []
    for attribute, value in instruction.attributes.items():
        if attribute in CALLED or attribute in CALLED_LISTS:
            pairs += [(attribute, name) for name in _NAME.findall(value)]
    return tuple(pairs)


def sharding(instruction: HloInstruction) -> Sharding | None:
    """Read ``sharding={devices=[2,4]<=[8]}``; None where it is absent."""
    text = instruction.attributes.get("sharding")
    return None if text is None else parse_sharding(text)


def parse_sharding(text: str) -> Sharding:
    """Read a sharding.

    Raises:
        AttributeFormError: ``last_tile_dims`` and ``last_tile_dim_replicate`` are both there.
    """
    inside = re.sub(r"/\*.*?\*/", "", text, flags=re.DOTALL).strip()
    inside = inside[1:-1].strip() if inside.startswith("{") else inside
    if "last_tile_dims" in inside and "last_tile_dim_replicate" in inside:
        raise AttributeFormError(
            "sharding: last_tile_dims and last_tile_dim_replicate exclude each other"
        )
    if inside.startswith("{"):
        return Sharding(
            "tuple",
            text,
            elements=tuple(map(parse_sharding, re.findall(r"\{(?:[^{}]|\{[^{}]*\})*\}", inside))),
        )
    if inside.startswith("maximal"):
        return Sharding(
            "maximal",
            text,
            devices=inside.partition("device=")[2].split()[0] if "device=" in inside else "",
        )
    for kind in ("replicated", "manual", "unknown"):
        if inside == kind:
            return Sharding(kind, text)
    tiled = re.match(r"devices=\[([0-9,]+)\](<=\[[0-9,]+\](?:T\([0-9,]+\))?|[0-9,]+)", inside)
    if tiled is None:
        return Sharding("other", text)
    tiles = tuple(int(size) for size in tiled[1].split(","))
    return Sharding("tiled", text, tiles, tiled[2], "last_tile_dim_replicate" in inside)


_IOTA = re.compile(r"\[([0-9,]+)\]<=\[([0-9,]+)\](?:T\(([0-9,]+)\))?")
_MESH_GROUPS = re.compile(r"mesh\[([^\]]*)\]\s*\{([^}]*)\}")


def replica_groups(instruction: HloInstruction, count: int) -> list[list[int]]:
    """Read ``{{0,1},{2,3}}``, ``[2,2]<=[2,2]T(1,0)`` or ``mesh['x'=2,'y'=2] {'x'}``.

    Without groups, all of ``count`` devices are one.

    Raises:
        AttributeFormError: it is written in another way, or names another device.
    """
    text = re.sub(r"/\*.*?\*/", "", instruction.attributes.get("replica_groups", "{}")).strip()
    iota, mesh = _IOTA.fullmatch(text), _MESH_GROUPS.fullmatch(text)
    if iota is not None:
        rows = _numbered(iota, "replica_groups")
    elif mesh is not None:
        axes = {name: int(size) for name, size in re.findall(r"'([^']+)'=([0-9]+)", mesh[1])}
        own = re.findall(r"'([^']+)'", mesh[2])
        if not set(own) <= axes.keys() or ":" in mesh[2]:
            raise AttributeFormError(f"replica_groups: cannot read {text}")
        names = list(axes)
        order = [names.index(name) for name in names if name not in own]
        order += [names.index(name) for name in own]
        width = math.prod(axes[name] for name in own)
        groups = np.arange(math.prod(axes.values())).reshape(*axes.values()).transpose(order)
        rows = [[int(device) for device in row] for row in groups.reshape(-1, width)]
    else:
        if re.fullmatch(r"\{(?:\s*\{[0-9,\s]*\}\s*,?)*\}", text) is None:
            raise AttributeFormError(f"replica_groups: cannot read {text}")
        result = re.findall(r"\{([0-9,\s]+)\}", text)
        rows = [[int(device) for device in row.split(",")] for row in result]
    if any(not 0 <= device < count for row in rows for device in row):
        raise AttributeFormError(f"replica_groups: {text} has other devices than 0 … {count - 1}")
    return rows or [list(range(count))]


def _numbered(iota: re.Match[str], attribute: str) -> list[list[int]]:
    """The rows of ``[2,2]<=[2,2]T(1,0)``."""
    shape, sizes = ([int(size) for size in part.split(",")] for part in iota.groups()[:2])
    order = [int(axis) for axis in iota[3].split(",")] if iota[3] else list(range(len(sizes)))
    if math.prod(shape) != math.prod(sizes) or sorted(order) != list(range(len(sizes))):
        raise AttributeFormError(f"{attribute}: cannot read {iota[0]}")
    groups = np.arange(math.prod(sizes)).reshape(sizes).transpose(order).reshape(shape[0], -1)
    return [[int(device) for device in row] for row in groups]


def tile_devices(layout: Sharding) -> list[int]:
    """The devices of the parts of a tiled sharding, row-major.

    Raises:
        AttributeFormError: they are not each of 0, 1, … once.
    """
    count = math.prod(layout.tiles)
    iota = _IOTA.fullmatch(f"[1,{count}]{layout.devices}")
    devices = (
        _numbered(iota, "sharding")[0] if iota else [int(d) for d in layout.devices.split(",")]
    )
    if sorted(devices) != list(range(count)):
        raise AttributeFormError(f"sharding: {layout.text} does not name each device once")
    return devices


def source_target_pairs(instruction: HloInstruction) -> list[tuple[int, int]]:
    """Read ``{{0,1},{1,2}}``."""
    text = instruction.attributes.get("source_target_pairs", "{}")
    return [(int(a), int(b)) for a, b in re.findall(r"\{\s*([0-9]+)\s*,\s*([0-9]+)\s*\}", text)]
