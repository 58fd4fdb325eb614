"""Two statements about one value."""

from __future__ import annotations

import pytest

from gehost.ir.types import DataType, OtherType, TensorType
from gehost.passes.cleanup.state import ContradictionError, join

F, L, U = DataType.FLOAT, DataType.INT64, DataType.UNDEFINED


def t(dtype: DataType, *shape: int | str | None) -> TensorType:
    return TensorType(dtype, shape)


@pytest.mark.parametrize(
    ("declared", "other", "expected"),
    [
        (None, None, None),
        (None, t(F, 2), t(F, 2)),
        (t(F, 2), None, t(F, 2)),
        (t(F, None, "N", 3), t(F, 4, 5, "K"), t(F, 4, 5, 3)),
        (t(F, "N", None, None), t(F, "M", "K", None), t(F, "N", "K", None)),
        (TensorType(F, None), t(F, "N"), t(F, "N")),
        (t(F, "N"), TensorType(F, None), t(F, "N")),
        (t(U, 2), t(F, None), t(F, 2)),
        (t(F), t(F), t(F)),
        (OtherType(b"a"), OtherType(b"a"), OtherType(b"a")),
        (OtherType(b"a"), None, OtherType(b"a")),
    ],
)
def test_join(
    declared: TensorType | None, other: TensorType | None, expected: TensorType | None
) -> None:
    assert join(declared, other) == expected


@pytest.mark.parametrize(
    ("declared", "other"),
    [
        (t(F, 2), t(F, 3)),
        (t(F, 2), t(L, 2)),
        (t(F, 2), t(F, 2, 1)),
        (t(F), t(F, 1)),
        (OtherType(b"a"), OtherType(b"b")),
        (OtherType(b"a"), t(F)),
    ],
)
def test_contradictions(declared: TensorType, other: TensorType) -> None:
    for pair in ((declared, other), (other, declared)):
        with pytest.raises(ContradictionError):
            join(*pair)
