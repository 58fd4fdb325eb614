"""Typed views of attributes."""

from __future__ import annotations

import pytest

from gehost_hlo import attributes, parse
from gehost_hlo.attributes import AttributeFormError, DimensionWindow, DimLabels, Sharding
from gehost_hlo.module import HloInstruction


def instruction(text: str) -> HloInstruction:
    return parse(
        f"ENTRY e {{ x = f32[2] parameter(0) ROOT y = f32[2] negate(x), {text} }}"
    ).entry.root


def test_windows() -> None:
    found = attributes.window(
        instruction(
            "window={size=3x2 stride=2x1 pad=1_0x-1_2 lhs_dilate=1x2 rhs_dilate=3x1 rhs_reversal=0x1}"
        )
    )
    assert found == (
        DimensionWindow(3, 2, 1, 0, 1, 3, False),
        DimensionWindow(2, 1, -1, 2, 2, 1, True),
    )
    assert attributes.window(instruction("a=1")) == ()
    assert [row.outputs(9) for row in found] == [2, 17]


@pytest.mark.parametrize(
    "text",
    [
        "{size=3 pad=1}",
        "{size=3x3 stride=2}",
        "{stride=2}",
        "{size=ax2}",
        "{size=0}",
        "{size=3 stride=0}",
    ],
)
def test_windows_that_cannot_be_read(text: str) -> None:
    with pytest.raises(AttributeFormError, match="window"):
        attributes.window(instruction(f"window={text}"))


def test_dimension_numbers_of_a_convolution() -> None:
    found = attributes.dim_labels(instruction("dim_labels=b01f_01io->b01f"))
    assert found == DimLabels(0, 3, (1, 2), 2, 3, (0, 1), 0, 3, (1, 2))
    assert attributes.dim_labels(instruction("dim_labels=f0b_o0i->0bf")) == DimLabels(
        2, 0, (1,), 2, 0, (1,), 1, 2, (0,)
    )
    for text in ("b01f_01io", "b0f_01io->b01f", "bb0f_0io->b0f"):
        with pytest.raises(AttributeFormError, match="dim_labels"):
            attributes.dim_labels(instruction(f"dim_labels={text}"))


def test_numbers() -> None:
    found = instruction(
        "dimensions={0, 2}, slice={[0:4], [2:8:2]}, padding=1_2_3x-1_0, index=3, is_stable=true"
    )
    assert attributes.dimensions(found) == (0, 2)
    assert attributes.slices(found) == ((0, 4, 1), (2, 8, 2))
    assert attributes.padding(found) == ((1, 2, 3), (-1, 0, 0))
    assert attributes.integer(found, "index") == 3
    assert attributes.integer(found, "none", 7) == 7
    assert attributes.flag(found, "is_stable")
    with pytest.raises(AttributeFormError, match="none is missing"):
        attributes.integer(found, "none")
    with pytest.raises(AttributeFormError, match="integers"):
        attributes.integers("{0,a}")


def test_metadata() -> None:
    found = instruction(
        'metadata={op_type="Mul" op_name="a, {b}/\\"c\\"" source_file="/x.py" source_line=3 profile={1, 2}}'
    )
    assert attributes.metadata(found) == {
        "op_type": "Mul",
        "op_name": 'a, {b}/"c"',
        "source_file": "/x.py",
        "source_line": "3",
        "profile": "{1, 2}",
    }
    assert attributes.op_name(found) == 'a, {b}/"c"'
    assert attributes.op_name(instruction("a=1")) == ""


def test_called_computations() -> None:
    found = instruction("to_apply=%add.1, branch_computations={%a, b.2}, calls=f, other=g")
    assert attributes.called(found) == (
        ("to_apply", "add.1"),
        ("branch_computations", "a"),
        ("branch_computations", "b.2"),
        ("calls", "f"),
    )


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("{replicated}", Sharding("replicated", "{replicated}")),
        ("{manual}", Sharding("manual", "{manual}")),
        ("{maximal device=3}", Sharding("maximal", "{maximal device=3}", devices="3")),
        ("{devices=[2,4]<=[8]}", Sharding("tiled", "{devices=[2,4]<=[8]}", (2, 4), "<=[8]")),
        ("{devices=[2,1,4]<=[2,4]T(1,0) last_tile_dim_replicate}", Sharding("tiled", "{devices=[2,1,4]<=[2,4]T(1,0) last_tile_dim_replicate}", (2, 1, 4), "<=[2,4]T(1,0)", True)),
        ("{devices=[2]1,0}", Sharding("tiled", "{devices=[2]1,0}", (2,), "1,0")),
        ("{mesh['x'=2]}", Sharding("other", "{mesh['x'=2]}")),
    ],
)  # fmt: skip
def test_shardings(text: str, wanted: Sharding) -> None:
    assert attributes.sharding(instruction(f"sharding={text}")) == wanted


def test_shardings_of_tuples() -> None:
    found = attributes.parse_sharding("{{replicated}, {devices=[2]<=[2]}}")
    assert (found.kind, [element.kind for element in found.elements]) == (
        "tuple",
        ["replicated", "tiled"],
    )
    with pytest.raises(AttributeFormError, match="exclude each other"):
        attributes.parse_sharding(
            "{devices=[2,1]<=[2] last_tile_dim_replicate last_tile_dims={manual}}"
        )
