"""Conditions as expressions: how they print, and that what is not known is never taken for true."""

from __future__ import annotations

from typing import Any

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
        self.attributes = {"perm": [1, 0], "axis": 2, "absent": None}

    def value(self, name: str) -> Any:
        return self.values[name]

    def Attr(self, name: str) -> Any:
        return self.attributes[name]


pat: Any = DrrPatternContext().SourcePattern()


@pytest.mark.parametrize(
    ("expression", "text", "wanted"),
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
    ],
    ids=str,
)  # fmt: skip
def test_it_prints_as_it_was_written_and_has_its_value(expression: Any, text: str, wanted: bool) -> None:
    assert str(expression) == text
    assert expression.evaluate(Match()) is wanted


@pytest.mark.parametrize(
    ("expression", "wanted"),
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
    ],
    ids=str,
)
def test_what_is_not_known_is_neither_true_nor_false(expression: Any, wanted: bool | None) -> None:
    assert expression.evaluate(Match()) is wanted


def test_python_cannot_decide_it_before_there_is_a_match() -> None:
    with pytest.raises(PatternError, match=rf"^{__file__}:\d+: a.rank == 3 has no value before a match; write &, \| and ~"):
        bool((pat.a.rank == 3) and (pat.b.rank == 3))


def test_a_tensor_has_no_other_fields() -> None:
    with pytest.raises(AttributeError, match="no 'dtpye'; it has dtype, shape, rank, is_constant, op_type"):
        _ = pat.a.dtpye
