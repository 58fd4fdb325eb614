"""Pictures as boxes and texts: what is written where, and that names of any kind are short and harmless."""

from __future__ import annotations

from typing import Any

import pytest

from gehost.page.drawing import KINDS, Drawing, draw, kind_of, shortened
from gehost.passes.snapshots import Picture, PictureNode, PictureTensor


def gemm(**more: Any) -> Picture:
    """``a`` (from Relu) and the constants ``w``, ``c`` into Gemm, its output to the caller."""
    tensors = (
        PictureTensor("a", "float[N,4]"),
        PictureTensor("w", "float[4,4]", "constant"),
        PictureTensor("c", "float[]", "constant", "0.5"),
        PictureTensor("y", "float[N,4]", is_output=True, other_uses=2),
    )
    matched = PictureNode("/fc/Gemm", "Gemm", "matched", (0, 1, 2), (3,), {"transB": "1"})
    return Picture((matched, PictureNode("r", "Relu", "around", (), (0,))), tensors, **more)


def boxes(drawing: Drawing) -> dict[str, list[str]]:
    """The lines of each box below its first."""
    return {box.lines[0].text: [line.text for line in box.lines[1:]] for box in drawing.boxes}


def test_a_box_says_operator_constants_attributes_and_name() -> None:
    drawing = draw(gemm())
    assert boxes(drawing) == {
        "Gemm": ["B float[4,4]", "C = 0.5", "transB = 1", "/fc/Gemm"],
        "Relu": ["r"],
        "output y": [],
        "+ 2 more users": [],
    }
    assert len(drawing.paths) == 3
    assert [label.text for label in drawing.labels] == ["float[N,4]", "float[N,4]"]
    assert drawing.summary == "Gemm"


def test_boxes_have_the_role_and_the_kind_of_their_nodes() -> None:
    assert [(box.role, box.kind) for box in draw(gemm()).boxes] == [
        ("matched", "math"),
        ("around", "math"),
        ("outside", "other"),
        ("outside", "other"),
    ]


def test_titles_have_whole_names_and_types() -> None:
    long = f"/model/{'layer/' * 20}Gemm"
    picture = gemm()
    node = PictureNode(long, "Gemm", "matched", (0, 1, 2), (3,))
    box, *_ = draw(Picture((node, picture.nodes[1]), picture.tensors)).boxes
    assert long in box.title
    assert "B: constant “w” float[4,4]" in box.title
    assert long not in [line.text for line in box.lines]


def test_texts_fit_into_their_boxes() -> None:
    for box in draw(gemm()).boxes:
        for line in box.lines:
            cell = 7.83 if line.kind == "op" else 6.62
            assert len(line.text) * cell <= box.width
            assert box.y < line.y < box.y + box.height


def test_a_tensor_that_no_shown_node_makes_has_a_box() -> None:
    picture = Picture(
        (PictureNode("n", "Neg", "around", (0, 1, 2), ()),),
        tuple(map(made, ("input", "outer", "node"))),
    )
    assert set(boxes(draw(picture))) == {
        "Neg",
        "input t_input",
        "outer tensor t_outer",
        "tensor t_node",
    }


def made(source: Any) -> PictureTensor:
    return PictureTensor(f"t_{source}", "", source)


def test_what_the_picture_leaves_out_is_said() -> None:
    assert draw(gemm(left_out=7)).left_out == 7


@pytest.mark.parametrize(
    ("text", "most", "expected"),
    [
        ("short", 24, "short"),
        ("x" * 24, 24, "x" * 24),
        ("/model/layers.0/self_attn/MatMul", 16, "/model/l…/MatMul"),
        ("a\x00b\u202ec", 24, r"a\x00b\u202ec"),
        ("two\nlines", 24, "two lines"),
        ("矩阵" * 10, 9, "矩阵…矩阵"),
        ("", 24, ""),
    ],
)
def test_long_texts_lose_their_middle_and_control_characters_are_spelled_out(
    text: str, most: int, expected: str
) -> None:
    assert shortened(text, most) == expected


def test_of_a_very_long_text_both_ends_are_shown() -> None:
    shown = shortened(f"begin{'x' * 100_000}end", 24)
    assert (shown[:5], shown[-3:], len(shown)) == ("begin", "end", 24)


@pytest.mark.parametrize(
    ("op", "kind"),
    [
        ("MatMul", "math"),
        ("Conv", "nn"),
        ("Reshape", "tensor"),
        ("ReduceSum", "reduction"),
        ("And", "logical"),
        ("If", "other"),
        ("ge::GEMM", "custom"),
        ("NoSuchOperator", "custom"),
    ],
)
def test_an_operator_is_of_the_kind_that_onnx_puts_it_in(op: str, kind: str) -> None:
    assert kind_of(op) == kind
    assert kind in KINDS
