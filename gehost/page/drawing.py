"""Lay out pictures of rewrites as boxes, lines and texts.

A template writes them as SVG.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import PurePath
from typing import Literal

from gehost.errors import one_line
from gehost.ir import schemas
from gehost.ir.graph import split_op
from gehost.page.layout import LAYER_GAP, Layout, Point, Size, lay_out
from gehost.passes.snapshots import Picture, PictureNode, PictureTensor

KINDS = ("math", "nn", "tensor", "reduction", "logical", "custom", "other")
"""The chapters of ONNX's operators; ``other`` for the small ones, ``custom`` for other domains."""

_CELL = 6.62
"""Width of a character of 11 px; the page sets a monospaced font with 0.602 em per character."""
_HEAD_CELL = 7.83
_HEAD_HEIGHT = 24
_LINE_HEIGHT = 15
_PAD = 10
_MARGIN = 12
_LEAN = 8
_LONGEST_NAME = 24
_LONGEST_TITLE = 160


@dataclass(frozen=True, slots=True)
class Line:
    """A text in a box."""

    text: str
    x: float
    y: float
    kind: Literal["op", "row", "name"]


@dataclass(frozen=True, slots=True)
class Box:
    """A node, or a tensor from or to nodes outside the picture."""

    x: float
    y: float
    width: float
    height: float
    role: str
    """A role of a node, or ``outside``."""
    kind: str
    title: str
    lines: list[Line] = field(default_factory=list[Line])


@dataclass(frozen=True, slots=True)
class Label:
    """The types of the tensors that leave a box, written below it."""

    text: str
    title: str
    x: float
    y: float
    ends: bool
    """Whether the text ends at ``x``, as the edges go to the right; otherwise it starts there."""


@dataclass(frozen=True, slots=True)
class Drawing:
    """The content of an SVG."""

    width: int
    height: int
    summary: str
    boxes: list[Box]
    paths: list[str]
    """Values of ``d``, each ending in an arrow."""
    labels: list[Label]
    left_out: int


@dataclass(frozen=True, slots=True)
class _Content:
    """The content of a box without its position."""

    role: str
    kind: str
    title: str
    head: str
    rows: list[str]
    name: str
    label: str = ""
    label_title: str = ""

    @property
    def size(self) -> Size:
        lines = [*self.rows, *([self.name] if self.name else [])]
        widest = max(
            [
                _cells(self.head) * _HEAD_CELL if self.head else 0,
                *(_cells(line) * _CELL for line in lines),
            ]
        )
        height = (_HEAD_HEIGHT if self.head else 3) + len(lines) * _LINE_HEIGHT + 6
        reach = 2 * (_cells(self.label) * _CELL + 8) if self.label else 0
        return Size(max(64 if self.head else 28, widest + 2 * _PAD), height, reach)


def draw(picture: Picture) -> Drawing:
    """Lay out a picture."""
    contents, edges = _Plan(picture).contents_and_edges()
    layout = lay_out({number: content.size for number, content in enumerate(contents)}, edges)
    inside = [node.op for node in picture.nodes if node.role != "around"]
    counts = {op: inside.count(op) for op in inside}
    lines = ", ".join(
        f"{count} × {op}" if count > 1 else op for op, count in list(counts.items())[:10]
    )
    summary = shortened(lines or "no nodes", 120)
    return _place(contents, edges, layout, summary, picture.left_out)


def shortened(text: str, most: int = _LONGEST_NAME) -> str:
    """Return a text on one line.

    Above ``most`` cells, its middle is left out.
    """
    long = len(text) > 4 * most
    shown = one_line(text[: 2 * most] + text[-2 * most :] if long else text)
    if not long and _cells(shown) <= most:
        return shown
    half = (most - 1) // 2
    return f"{_first(shown, most - 1 - half)}…{_first(shown[::-1], half)[::-1]}"


def kind_of(op: str) -> str:
    """Return the kind of an operator.

    It is the directory of the file in which ONNX defines it.
    """
    domain, op_type = split_op(op)
    versions = schemas.history(domain, op_type)
    if not versions:
        return "custom"
    chapter = PurePath(versions[-1].file).parent.name
    return chapter if chapter in KINDS else "other"


class _Plan:
    """The boxes and the edges between them."""

    def __init__(self, picture: Picture) -> None:
        self._picture = picture
        self._contents: list[_Content] = []
        self._edges: dict[tuple[int, int], None] = {}
        self._makers: dict[int, int] = {}
        """Tensor → the box that it comes from."""

    def contents_and_edges(self) -> tuple[list[_Content], list[tuple[int, int]]]:
        nodes, tensors = self._picture.nodes, self._picture.tensors
        for node in nodes:
            for tensor in node.outputs:
                if tensor is not None:
                    self._makers[tensor] = len(self._contents)
            self._contents.append(self._node_box(node))
        for number, node in enumerate(nodes):
            for tensor in node.inputs:
                if tensor is not None and tensors[tensor].source != "constant":
                    self._edges[self._maker(tensor), number] = None
        for index, tensor in enumerate(tensors):
            if tensor.source != "constant" and tensor.is_output:
                self._join(index, _tensor_box("output", tensor))
            if tensor.source != "constant" and tensor.other_uses:
                more = f"{tensor.other_uses} more user{'s' if tensor.other_uses > 1 else ''}"
                self._join(
                    index,
                    _Content(
                        "outside", "other", f"{more} of {_title(tensor.name)}", "", [], f"+ {more}"
                    ),
                )
        return self._contents, list(self._edges)

    def _join(self, tensor: int, content: _Content) -> None:
        maker = self._maker(tensor)
        self._edges[maker, len(self._contents)] = None
        self._contents.append(content)

    def _maker(self, tensor: int) -> int:
        """Return the box that a tensor comes from.

        An outside tensor gets a box of its own.
        """
        number = self._makers.get(tensor)
        if number is None:
            number = self._makers[tensor] = len(self._contents)
            outside = self._picture.tensors[tensor]
            source = {"input": "input", "outer": "outer tensor"}.get(outside.source, "tensor")
            self._contents.append(_tensor_box(source, outside, label=outside.type))
        return number

    def _node_box(self, node: PictureNode) -> _Content:
        tensors = self._picture.tensors
        versions = schemas.history(*split_op(node.op))
        formal = [str(parameter.name) for parameter in versions[-1].inputs] if versions else []
        constants = [
            (formal[slot] if slot < len(formal) else f"input {slot}", tensors[tensor])
            for slot, tensor in enumerate(node.inputs)
            if tensor is not None and tensors[tensor].source == "constant"
        ]
        rows: list[str] = []
        if node.role != "around":
            rows += [_row(name, constant.value, constant.type) for name, constant in constants]
            rows += [_row(name, text) for name, text in node.attributes.items()]
            if node.more_inputs:
                rows.append(f"+ {node.more_inputs} more inputs")
        results = [tensors[tensor] for tensor in node.outputs if tensor is not None]
        types = [tensor.type for tensor in results if tensor.type]
        title = [
            f"{_title(node.op)} “{_title(node.name)}”",
            *(
                f"{name}: constant “{_title(constant.name)}” {_title(constant.type)}"
                for name, constant in constants
            ),
        ]
        return _Content(
            node.role,
            kind_of(node.op),
            "\n".join(title),
            shortened(node.op),
            rows,
            shortened(node.name),
            shortened(", ".join(dict.fromkeys(types))) if types else "",
            "\n".join(
                f"{_title(tensor.name)}: {_title(tensor.type) or 'of unknown type'}"
                for tensor in results
            ),
        )


def _tensor_box(what: str, tensor: PictureTensor, label: str = "") -> _Content:
    title = f"{what} “{_title(tensor.name)}” {_title(tensor.type)}"
    name = f"{what} {shortened(tensor.name)}"
    return _Content("outside", "other", title, "", [], name, shortened(label), title)


def _row(name: str, value: str, type_: str = "") -> str:
    return (
        f"{shortened(name, 16)} = {shortened(value)}"
        if value
        else f"{shortened(name, 16)} {shortened(type_)}".rstrip()
    )


def _title(text: str) -> str:
    return shortened(text, _LONGEST_TITLE)


def _place(
    contents: Sequence[_Content],
    edges: Iterable[tuple[int, int]],
    layout: Layout,
    summary: str,
    left_out: int,
) -> Drawing:
    leaning: dict[int, list[float]] = {}
    for (start, _), path in zip(edges, layout.paths, strict=True):
        leaning.setdefault(start, []).append(path[2][0] - path[0][0])
    boxes: list[Box] = []
    labels: list[Label] = []
    for number, content in enumerate(contents):
        size = content.size
        x, y = (coordinate + _MARGIN for coordinate in layout.tops[number])
        lines: list[Line] = []
        baseline = y + (16 if content.head else 3)
        if content.head:
            lines.append(Line(content.head, _round(x), _round(baseline), "op"))
            baseline += 5
        for row in content.rows:
            baseline += _LINE_HEIGHT
            lines.append(Line(row, _round(x), _round(baseline - 2), "row"))
        if content.name:
            lines.append(Line(content.name, _round(x), _round(baseline + _LINE_HEIGHT - 2), "name"))
        x_left = _round(x - size.width / 2)
        boxes.append(
            Box(
                x_left,
                _round(y),
                _round(size.width),
                size.height,
                content.role,
                content.kind,
                content.title,
                lines,
            )
        )
        if content.label and number in leaning:
            ends = min(leaning[number]) > _LEAN
            place = _round(x - 6 if ends else x + 6), _round(y + size.height + 14)
            labels.append(Label(content.label, content.label_title, *place, ends))
    paths = [_curve([(x + _MARGIN, y + _MARGIN) for x, y in path]) for path in layout.paths]
    width, height = int(layout.width + 2 * _MARGIN) + 1, int(layout.height + 2 * _MARGIN) + 1
    return Drawing(width, height, summary, boxes, paths, labels, left_out)


def _curve(points: Sequence[Point]) -> str:
    """Return a path that is straight through layers.

    Its tangents between them are vertical.
    """
    (x, y), *others = points
    parts = [f"M{x:.1f} {y:.1f}"]
    for number, (to_x, to_y) in enumerate(others):
        if number % 2 == 0:
            parts.append(f"L{to_x:.1f} {to_y:.1f}")
        else:
            bend = 0.6 * LAYER_GAP
            parts.append(
                f"C{x:.1f} {y + bend:.1f} {to_x:.1f} {to_y - bend:.1f} {to_x:.1f} {to_y:.1f}"
            )
        x, y = to_x, to_y
    return "".join(parts)


def _round(number: float) -> float:
    return round(number, 1)


def _cells(text: str) -> int:
    return len(text) if text.isascii() else sum(map(_width, text))


def _width(character: str) -> int:
    """Return the number of monospaced cells of a character."""
    if unicodedata.combining(character):
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1


def _first(text: str, cells: int) -> str:
    """Return the longest start of a text that fits."""
    if text.isascii():
        return text[:cells]
    end = used = 0
    for end, character in enumerate(text):
        used += _width(character)
        if used > cells:
            return text[:end]
    return text
