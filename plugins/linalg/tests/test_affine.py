"""Map algebra, and the text form."""

from __future__ import annotations

import pytest

from gehost_linalg import AffineMap, MlirError


def m(text: str) -> AffineMap:
    return AffineMap.parse(text)


@pytest.mark.parametrize(
    "text",
    [
        "affine_map<(d0, d1) -> (d1, 0)>", "affine_map<() -> ()>", "affine_map<(d0) -> (d0 * 2)>", "affine_map<(d0) -> (d0 * 2 + 3)>",
        "affine_map<(d0, d1) -> (d0 + d1)>", "affine_map<(d0) -> (d0 floordiv 2, d0 mod 2)>", "affine_map<(d0) -> (d0 - 1)>",
        "affine_map<(d0, d1) -> (d0 - d1)>", "affine_map<(d0, d1) -> ((d0 + d1) * 3)>", "affine_map<(d0) -> (-d0)>",
        "affine_map<(d0) -> (d0 ceildiv 4)>", "affine_map<(d0, d1) -> (d0 - d1 * 2)>", "affine_map<(d0) -> ((d0 * 3) mod 4)>",
    ],
)  # fmt: skip
def test_texts_are_printed_as_they_are_read(text: str) -> None:
    assert str(m(text)) == text


@pytest.mark.parametrize(
    ("text", "simple"),
    [
        ("(i, j) -> (j, i)", "(d0, d1) -> (d1, d0)"), ("(d0) -> (d0 * 1 + 0)", "(d0) -> (d0)"), ("(d0) -> (2 * d0)", "(d0) -> (d0 * 2)"),
        ("(d0) -> ((d0 * 4) floordiv 2)", "(d0) -> (d0 * 2)"), ("(d0) -> ((d0 * 4) mod 2)", "(d0) -> (0)"), ("(d0) -> (1 + d0 + 2)", "(d0) -> (d0 + 3)"),
        ("(d0, d1) -> ((d1 + d0 * 4 + 8) floordiv 4)", "(d0, d1) -> (d1 floordiv 4 + d0 + 2)"), ("(d0, d1) -> ((d0 * 4 + d1) mod 4)", "(d0, d1) -> (d1 mod 4)"),
        ("(d0, d1) -> ((d1 + d0 * 4) mod 4)", "(d0, d1) -> (d1 mod 4)"), ("(d0, d1) -> ((d0 * 4 + d1) ceildiv 4)", "(d0, d1) -> ((d0 * 4 + d1) ceildiv 4)"),
        ("(d0) -> (d0 - d0)", "(d0) -> (0)"), ("(d0) -> (7 floordiv 2)", "(d0) -> (3)"), ("(d0) -> (d0 * 0)", "(d0) -> (0)"),
    ],
)  # fmt: skip
def test_texts_are_simplified(text: str, simple: str) -> None:
    assert m(text).body() == simple


def test_a_map_can_be_called() -> None:
    transposed = m("(d0, d1) -> (d1, d0)")
    assert transposed(2, 3) == (3, 2)
    assert m("(d0) -> (d0 * 2 + 1, d0 floordiv 2, d0 mod 3, -d0, (d0 + 1) ceildiv 2)")(5) == (
        11,
        2,
        2,
        -5,
        3,
    )
    with pytest.raises(TypeError, match="takes 2 indices, got 1"):
        transposed(1)


def test_compose_is_application_one_after_the_other() -> None:
    outer, inner = m("(d0, d1) -> (d1, d0 * 2)"), m("(d0, d1, d2) -> (d2, d0 + 1)")
    assert outer.compose(inner) == m("(d0, d1, d2) -> (d0 + 1, d2 * 2)")
    for point in ((0, 1, 2), (3, 4, 5)):
        assert outer.compose(inner)(*point) == outer(*inner(*point))
    with pytest.raises(ValueError, match="takes 2 indices"):
        outer.compose(m("(d0) -> (d0)"))


def test_inverse_takes_the_first_bare_result() -> None:
    assert m("(d0, d1, d2) -> (d1, d1, d0, d2, d1)").inverse() == m(
        "(e0, e1, e2, e3, e4) -> (e2, e0, e3)"
    )
    assert m("(d0, d1) -> (d1, 0, d0)").inverse() == m("(d0, d1, d2) -> (d2, d0)")
    assert m("(d0, d1) -> (d0, d0 + d1)").inverse() is None
    assert m("() -> ()").inverse() == m("() -> ()")


def test_permutations() -> None:
    assert m("() -> ()").is_permutation
    assert m("(d0, d1) -> (d1, d0)").is_permutation
    assert not m("(d0, d1) -> (d0)").is_permutation
    assert m("(d0, d1) -> (d0)").is_projected_permutation
    assert not m("(d0, d1) -> (d0, 0)").is_projected_permutation
    assert not m("(d0) -> (d0, d0)").is_projected_permutation


def test_concat_and_sub() -> None:
    joined = AffineMap.concat([m("(d0) -> (d0)"), m("(d0, d1) -> (d1, 0)")])
    assert joined == m("(d0, d1) -> (d0, d1, 0)")
    assert joined.sub(1) == m("(d0, d1) -> (d1)")


def test_forty_axes() -> None:
    names = ", ".join(f"d{axis}" for axis in range(40))
    backwards = ", ".join(f"d{39 - axis}" for axis in range(40))
    big = m(f"({names}) -> ({backwards})")
    assert big.is_permutation
    assert big.compose(big) == AffineMap.identity(40)


@pytest.mark.parametrize(
    ("text", "column", "reason"),
    [
        ("affine_map<(d0) -> (d1)>", 21, "'d1' is not a loop of this map; it has d0"), ("(d0) -> d0", 9, "expected '(', found 'd0'"),
        ("(d0, d0) -> (d0)", 6, "loop 'd0' is named twice"), ("(d0, d1) -> (d0 * d1)", 17, "not affine"),
        ("(d0) -> (d0 mod 0)", 13, "needs a positive constant"), ("(d0)[s0] -> (s0)", 5, "symbols are not supported"),
        ("(d0) -> (d0", 12, "found the end of the text"), ("(d0) -> (d0) x", 14, "expected the end of the map"),
        ("(d0) -> (" + "(" * 200 + "d0", 110, "nested more than 100 deep"), ("", 1, "expected '('"),
    ],
)  # fmt: skip
def test_malformed_texts_name_line_and_column(text: str, column: int, reason: str) -> None:
    with pytest.raises(MlirError) as caught:
        m(text)
    assert reason in str(caught.value)
    assert (caught.value.line, caught.value.column) == (1, column)
    assert str(caught.value).splitlines()[-1] == " " * (column - 1) + "^"


def test_a_map_uses_loops_that_it_has() -> None:
    with pytest.raises(ValueError, match="uses a loop that a map with 1 dims does not have"):
        AffineMap(1, [1])
