"""Conditions as expressions: how they print, and that what is not known is never taken for true."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from gehost import DataType, PatternError
from gehost.testing import graph_of
from gehost_drr import DrrPatternContext, attr

TEXT = """<ir_version: 8, opset_import: ["" : 17]>
main (float[2, N, M] a, float[2, N, 4] b, double[?, 3] c) => (float[2, N, M] y) { y = Relu(a) }"""


class Match:
    """The tensors of ``TEXT`` and some attribute variables, as an expression asks for them."""

    def __init__(self) -> None:
        self.values = graph_of(TEXT).values
        self.attributes = {
            "perm": [1, 0],
            "axis": 2,
            "absent": None,
            "alpha": float(np.float32(0.1)),
            "fill": np.array([7], np.int64),
        }

    def value(self, name: str) -> Any:
        return self.values[name]

    def Attr(self, name: str) -> Any:
        return self.attributes[name]


pat: Any = DrrPatternContext().SourcePattern()


@pytest.mark.parametrize(
    ("expression", "text", "expected"),
    [
        (pat.a.dtype == pat.b.dtype, "a.dtype == b.dtype", True),
        (pat.a.dtype == pat.c.dtype, "a.dtype == c.dtype", False),
        (pat.a.dtype != DataType.DOUBLE, "a.dtype != DOUBLE", True),
        (pat.a.dtype.one_of(DataType.DOUBLE, DataType.FLOAT), "a.dtype in (DOUBLE, FLOAT)", True),
        (pat.a.dtype.one_of(DataType.DOUBLE), "a.dtype in (DOUBLE)", False),
        (pat.a.rank + 1 == 4, "(a.rank + 1) == 4", True),
        (pat.a.rank - 1 < pat.c.rank, "(a.rank - 1) < c.rank", False),
        (pat.a.rank * 2 >= 6, "(a.rank * 2) >= 6", True),
        (pat.a.rank // 2 > 1, "(a.rank // 2) > 1", False),
        (pat.a.rank <= 3, "a.rank <= 3", True),
        (pat.b.shape[-1] % 4 == 0, "(b.shape[-1] % 4) == 0", True),
        (~pat.a.is_constant & (attr.axis == 2), "~(a.is_constant) & (axis == 2)", True),
        ((attr.axis == 1) | (attr.perm == [1, 0]), "(axis == 1) | (perm == [1, 0])", True),
        (pat.y.op_type == "Relu", "y.op_type == 'Relu'", True),
        (pat.a.shape[0] == pat.b.shape[0], "a.shape[0] == b.shape[0]", True),
        (2 * pat.a.rank == 6, "(2 * a.rank) == 6", True),
        (4 - pat.a.rank + 1 == 1 + pat.a.rank - 2, "((4 - a.rank) + 1) == ((1 + a.rank) - 2)", True),
        (pat.a.shape[:2] == pat.b.shape[:2], "a.shape[:2] == b.shape[:2]", True),
        (pat.b.shape[0:3:2] == [2, 4], "b.shape[0:3:2] == [2, 4]", True),
        (pat.b.shape[attr.axis] == 4, "b.shape[axis] == 4", True),
        (pat.b.shape[attr.axis - 2] == 4, "b.shape[axis - 2] == 4", False),
    ],
    ids=str,
)  # fmt: skip
def test_it_prints_as_it_was_written_and_has_its_value(
    expression: Any, text: str, expected: bool
) -> None:
    assert str(expression) == text
    assert expression.evaluate(Match()) is expected


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        (pat.a.shape[1] == pat.b.shape[1], True),
        (pat.a.shape[1] == pat.a.shape[2], None),
        (pat.a.shape[1] != pat.a.shape[2], None),
        (pat.a.shape[1] == 4, None),
        (pat.a.shape[1] + 1 == 4, None),
        (pat.a.shape[1] > 0, None),
        (pat.c.shape[0] == pat.c.shape[0], None),
        (pat.c.shape[0] != 3, None),
        (~(pat.c.shape[0] == 3), None),
        (pat.a.shape[7] == 1, None),
        (pat.b.shape == pat.b.shape, True),
        (pat.a.shape == pat.b.shape, None),
        (pat.a.shape == pat.c.shape, False),
        (pat.c.shape == [5, 4], False),
        (pat.a.op_type == "Relu", None),
        (attr.absent == 0, None),
        (attr.absent.one_of(0, 1), None),
        ((pat.c.shape[0] == 3) & (pat.a.rank == 2), False),
        ((pat.c.shape[0] == 3) | (pat.a.rank == 3), True),
        ((pat.c.shape[0] == 3) & (pat.a.rank == 3), None),
        (pat.a.rank % 0 == 1, None),
        (pat.a.shape[1:] == pat.b.shape[1:], None),
        (pat.b.shape[attr.absent] == 4, None),
        (pat.b.shape[pat.a.shape[1]] == 4, None),
    ],
    ids=str,
)
def test_what_is_not_known_is_neither_true_nor_false(
    expression: Any, expected: bool | None
) -> None:
    assert expression.evaluate(Match()) is expected


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        (attr.alpha == 0.1, True),
        (attr.alpha != 0.1, False),
        (attr.alpha.one_of(0.2, 0.1), True),
        (attr.alpha <= 0.1, True),
        (attr.alpha > 0.1, False),
        (attr.alpha == 0.2, False),
        (attr.alpha < 1, True),
        (attr.fill == 7, True),
        (attr.fill != [7], False),
        (attr.fill == [7, 7], False),
    ],
    ids=str,
)
def test_attributes_are_compared_as_they_are_stored(expression: Any, expected: bool) -> None:
    """A float is the float32 next to what was written; one number is a list of it; a tensor is what it holds."""
    assert expression.evaluate(Match()) is expected


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: pat.a.dtype != pat.b, 'wanted an expression over tensors .*, got tensor "b"'),
        (lambda: pat.a.dtype != "float32", "a.dtype is compared with DataType or int, got 'float32'"),
        (lambda: pat.a.dtype.one_of("float32"), "a.dtype is compared with DataType or int, got 'float32'"),
        (lambda: pat.a.shape != 3, "a.shape is compared with list or tuple, got 3"),
        (lambda: pat.a.op_type != 3, "a.op_type is compared with str, got 3"),
        (lambda: pat.a.shape[0] & (pat.a.rank == 3), r"a.shape\[0\] is neither true nor false"),
        (lambda: (pat.a.rank == 3) | pat.a.rank, "a.rank is neither true nor false"),
        (lambda: ~pat.a.rank, "a.rank is neither true nor false"),
        (lambda: pat.a.shape["N"], "a.shape takes a number, an expression or a slice of numbers"),
        (lambda: pat.a.shape[: pat.a.rank], "a.shape takes a number, an expression or a slice of numbers"),
    ],
)  # fmt: skip
def test_what_would_hold_always_or_never_is_refused_where_it_stands(
    build: Any, message: str
) -> None:
    with pytest.raises(
        PatternError, match=rf"^{__file__}:{build.__code__.co_firstlineno}: {message}"
    ):
        build()


@pytest.mark.parametrize("walk", [list, sum, lambda shape: 2 in shape, lambda shape: [*shape]])
def test_a_shape_is_not_walked_before_there_is_a_match(walk: Any) -> None:
    with pytest.raises(TypeError):
        walk(pat.a.shape)


def test_python_cannot_decide_it_before_there_is_a_match() -> None:
    with pytest.raises(
        PatternError,
        match=rf"^{__file__}:\d+: a.rank == 3 has no value before a match; write &, \| and ~",
    ):
        bool((pat.a.rank == 3) and (pat.b.rank == 3))


def test_a_tensor_has_no_other_fields() -> None:
    with pytest.raises(
        AttributeError, match="no 'dtpye'; it has dtype, shape, rank, is_constant, op_type"
    ):
        _ = pat.a.dtpye
