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
    window = attributes.window(
        instruction(
            "window={size=3x2 stride=2x1 pad=1_0x-1_2 lhs_dilate=1x2 rhs_dilate=3x1 rhs_reversal=0x1}"
        )
    )
    assert window == (
        DimensionWindow(3, 2, 1, 0, 1, 3, False),
        DimensionWindow(2, 1, -1, 2, 2, 1, True),
    )
    assert attributes.window(instruction("a=1")) == ()
    assert [row.outputs(9) for row in window] == [2, 17]


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
    labels = attributes.dim_labels(instruction("dim_labels=b01f_01io->b01f"))
    assert labels == DimLabels(0, 3, (1, 2), 2, 3, (0, 1), 0, 3, (1, 2))
    assert attributes.dim_labels(instruction("dim_labels=f0b_o0i->0bf")) == DimLabels(
        2, 0, (1,), 2, 0, (1,), 1, 2, (0,)
    )
    for text in ("b01f_01io", "b0f_01io->b01f", "bb0f_0io->b0f"):
        with pytest.raises(AttributeFormError, match="dim_labels"):
            attributes.dim_labels(instruction(f"dim_labels={text}"))


def test_numbers() -> None:
    row = instruction(
        "dimensions={0, 2}, slice={[0:4], [2:8:2]}, padding=1_2_3x-1_0, index=3, is_stable=true"
    )
    assert attributes.dimensions(row) == (0, 2)
    assert attributes.slices(row) == ((0, 4, 1), (2, 8, 2))
    assert attributes.padding(row) == ((1, 2, 3), (-1, 0, 0))
    assert attributes.integer(row, "index") == 3
    assert attributes.integer(row, "none", 7) == 7
    assert attributes.flag(row, "is_stable")
    with pytest.raises(AttributeFormError, match="none is missing"):
        attributes.integer(row, "none")
    with pytest.raises(AttributeFormError, match="integers"):
        attributes.integers("{0,a}")


def test_metadata() -> None:
    row = instruction(
        'metadata={op_type="Mul" op_name="a, {b}/\\"c\\"" source_file="/x.py" source_line=3 profile={1, 2}}'
    )
    assert attributes.metadata(row) == {
        "op_type": "Mul",
        "op_name": 'a, {b}/"c"',
        "source_file": "/x.py",
        "source_line": "3",
        "profile": "{1, 2}",
    }
    assert attributes.op_name(row) == 'a, {b}/"c"'
    assert attributes.op_name(instruction("a=1")) == ""


def test_called_computations() -> None:
    row = instruction("to_apply=%add.1, branch_computations={%a, b.2}, calls=f, other=g")
    assert attributes.called(row) == (
        ("to_apply", "add.1"),
        ("branch_computations", "a"),
        ("branch_computations", "b.2"),
        ("calls", "f"),
    )


@pytest.mark.parametrize(
    ("text", "expected"),
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
def test_shardings(text: str, expected: Sharding) -> None:
    assert attributes.sharding(instruction(f"sharding={text}")) == expected


def test_shardings_of_tuples() -> None:
    sharding = attributes.parse_sharding("{{replicated}, {devices=[2]<=[2]}}")
    assert (sharding.kind, [element.kind for element in sharding.elements]) == (
        "tuple",
        ["replicated", "tiled"],
    )
    with pytest.raises(AttributeFormError, match="exclude each other"):
        attributes.parse_sharding(
            "{devices=[2,1]<=[2] last_tile_dim_replicate last_tile_dims={manual}}"
        )
