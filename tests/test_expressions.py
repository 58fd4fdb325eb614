"""What expressions mean where something is unknown; the styles' own tests cover the spellings."""

from __future__ import annotations

from typing import Any

import pytest

from gehost.expressions import (
    Binary,
    Condition,
    Constant,
    Expression,
    Item,
    Logical,
    Not,
    OpAttr,
    Part,
    Size,
    Stored,
    TensorAttr,
    Unknown,
    equal,
    parts_of,
    plain,
)
from gehost.testing import graph_of

TEXT = """<ir_version: 8, opset_import: ["" : 17]>
main (float[2, N, M] a, double[?, 3] c) => (float[2, N, M] y) { y = Relu(a) }"""


class Match:
    def __init__(self) -> None:
        self.values = graph_of(TEXT).values

    def tensor(self, key: str, /) -> Any:
        return self.values[key]

    def attribute(self, op: Any, name: str, /) -> Any:
        return {"axis": 2, "perm": [1, 0]}[name]


def number(value: Any) -> Constant:
    return Constant(value)


def size(tensor: str, axis: int) -> Expression:
    return Item(TensorAttr(tensor, "shape"), axis)


TRUE, FALSE = Condition(number(1), "==", number(1)), Condition(number(1), "==", number(2))
OPEN = Condition(size("c", 0), "==", number(3))


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        (Logical("&", (OPEN, FALSE)), False),
        (Logical("&", (OPEN, TRUE)), "a size is not known"),
        (Logical("|", (OPEN, TRUE)), True),
        (Logical("|", (OPEN, FALSE)), "a size is not known"),
        (Not(OPEN), "a size is not known"),
        (Condition(size("a", 1), "==", size("a", 1)), True),
        (Condition(size("a", 1), "==", size("a", 2)), "whether N is M is not known"),
        (Condition(size("a", 1), "<=", size("a", 1)), True),
        (Condition(size("a", 1), "<", size("a", 2)), "whether N < M is not known"),
        (Condition(size("a", 1), "<", Binary("+", size("a", 1), number(1))), True),
        (Condition(size("a", 1), ">=", number(0)), True),
        (Condition(Binary("+", size("a", 1), number(2)), "==", number(1)), False),
        (
            Condition(
                Binary("*", Binary("+", size("a", 1), size("a", 2)), number(2)),
                "==",
                Binary(
                    "+", Binary("*", number(2), size("a", 2)), Binary("*", size("a", 1), number(2))
                ),
            ),
            True,
        ),
        (
            Condition(
                Binary("%", Binary("*", size("a", 1), number(4)), number(2)), "==", number(0)
            ),
            True,
        ),
        (Binary("//", number(8), size("a", 1)), "8 // N is not known"),
        (Binary("/", size("a", 1), number(2)), "N / 2 is not known"),
        (Binary("/", number(3), number(2)), 1.5),
        (Binary("//", number(3), number(2)), 1),
        (Binary("/", number(3), number(0)), "3 / 0 has no value"),
        (Binary("%", number(3), number(0)), "3 % 0 has no value"),
        (Size(TensorAttr("a", "shape")), 3),
        (TensorAttr("a", "rank"), 3),
        (Part(TensorAttr("c", "shape"), 1, None, None), [3]),
        (Item(TensorAttr("c", "shape"), Binary("-", OpAttr(None, "axis"), number(1))), 3),
        (size("a", 5), "there is no element 5 among 3"),
        (TensorAttr("a", "value"), '"a" is no constant'),
        (TensorAttr("a", "op_type"), 'no operator computes "a"'),
        (TensorAttr("y", "op_type"), "Relu"),
    ],
)
def test_a_value_or_the_reason_why_there_is_none(expression: Expression, expected: Any) -> None:
    try:
        actual: Any = expression.at(Match())
    except Unknown as reason:
        actual = str(reason)
    assert actual == expected


def test_numbers_are_compared_as_they_are_stored() -> None:
    float32 = Stored(0.10000000149011612, "float32")
    assert equal(float32, 0.1)
    assert not equal(float32, 0.2)
    assert equal(Stored(0.1, "float32"), 0.1), "a float64 that is equal needs no rounding"
    assert not equal(float32 * 2, 0.2), "a computed number is exact"
    assert equal([1], 1)
    assert not equal([1, 1], 1)


def test_a_dtype_is_its_name_and_its_number() -> None:
    dtype = TensorAttr("a", "dtype").at(Match())
    assert dtype == "float32"
    assert equal(dtype, 1)
    assert plain([dtype, 2]) == [1, 2]


def test_the_parts_of_an_expression() -> None:
    expression = Logical("&", (Not(Condition(size("a", 0), "<", number(3))), OPEN))
    names = [part.tensor for part in parts_of(expression) if isinstance(part, TensorAttr)]
    assert names == ["a", "c"]


@pytest.mark.parametrize(
    "build",
    [
        lambda: Binary("**", number(1), number(2)),
        lambda: Condition(number(1), "=", number(2)),
        lambda: Logical("^", ()),
        lambda: TensorAttr("a", "sparsity"),
    ],
)
def test_what_does_not_exist_cannot_be_built(build: Any) -> None:
    with pytest.raises(ValueError, match="there is no "):
        build()
