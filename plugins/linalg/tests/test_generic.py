"""The verifier of Generics, and payloads."""

from __future__ import annotations

import numpy as np
import pytest

from gehost_linalg import Generic, GenericError, Payload, ScalarOp, Value
from gehost_linalg.affine import Dim
from gehost_linalg.generic import Arg, Literal, Res

I2, R0 = "affine_map<(d0, d1) -> (d0, d1)>", "affine_map<(d0, d1) -> (d0)>"
P2 = ("parallel", "parallel")
COPY = Payload((), (Arg(0),))


def tensor(*shape: int | str | None, dtype: str = "f32") -> Value:
    return Value("t", dtype, shape)


def test_loops_have_the_sizes_of_bare_axes() -> None:
    op = Generic.of([tensor(4, None)], [tensor(None, 5)], [I2, I2], P2, COPY)
    assert op.extents() == [4, 5]
    assert Generic.of([tensor("n", 3)], [tensor(None, 3)], [I2, I2], P2, COPY).extents() == ["n", 3]


@pytest.mark.parametrize(
    ("ins", "outs", "maps", "payload", "reason"),
    [
        ([tensor(4, 5)], [tensor(4, 5)], [I2], COPY, "1 indexing maps for 2 operands"),
        ([tensor(4, 5)], [tensor(4, 5)], [R0, I2], COPY, "has 1 results, operand %t: tensor<4x5xf32> has rank 2"),
        ([tensor(4, 5)], [tensor(4, 5)], ["affine_map<(d0) -> (d0, d0)>", I2], COPY, "has 1 dims, the Generic 2 loops"),
        ([tensor(4)], [tensor(4)], [R0, R0], COPY, "loop d1 is no bare result"),
        ([tensor(4, 5)], [tensor(4, 6)], [I2, I2], COPY, "loop d1 has size 5 and, by %t: tensor<4x6xf32>, 6"),
        ([tensor(6)], [tensor(4, 5)], ["affine_map<(d0, d1) -> (d0 * 2)>", I2], COPY, "d0 * 2 reaches index 6 of axis 0"),
        ([tensor(4)], [tensor(4, 5)], ["affine_map<(d0, d1) -> (d0 - 1)>", I2], COPY, "d0 - 1 reaches index -1"),
        ([tensor(4, 5)], [tensor(4, 5)], [I2, I2], Payload((), (Res(0),)), "yield 0 is result 0 of 0"),
        ([tensor(4, 5)], [tensor(4, 5)], [I2, I2], Payload((), (Arg(7),)), "yield 0 is argument 7 of 2"),
        ([tensor(4, 5, dtype="i32")], [tensor(4, 5)], [I2, I2], COPY, "yield 0 is i32, its out f32"),
        ([tensor(4, 5)], [tensor(4, 5)], [I2, I2], Payload((), ()), "1 outs, 1 results and 0 yielded values"),
        ([tensor(4, 5)], [tensor(4, 5, dtype="index")], [I2, I2],
         Payload((ScalarOp("linalg.index", (), "index", Dim(2)),), (Res(0),)), "index d2 is no loop: there are 2"),
        ([tensor(4, 5)], [tensor(4, 5)], [I2, I2],
         Payload((ScalarOp("math.exp", (Res(0),), "f32"),), (Res(0),)), "reads result 0, which is not computed yet"),
    ],
)  # fmt: skip
def test_what_means_nothing_is_refused(
    ins: list[Value], outs: list[Value], maps: list[str], payload: Payload, reason: str
) -> None:
    with pytest.raises(GenericError) as caught:
        Generic.of(ins, outs, maps, P2, payload)
    assert reason in str(caught.value)


def test_an_empty_axis_is_not_read() -> None:
    op = Generic.of([tensor(1)], [tensor(0, 5)], ["affine_map<(d0, d1) -> (d0 + 7)>", I2], P2, COPY)
    assert op.extents() == [0, 5]


def test_two_to_the_31_elements_and_forty_axes() -> None:
    assert Generic.of(
        [tensor(2**31)], [tensor(2**31)], ["affine_map<(d0) -> (d0)>"] * 2, ("parallel",), COPY
    ).extents() == [2**31]
    names = ", ".join(f"d{axis}" for axis in range(40))
    many = f"affine_map<({names}) -> ({names})>"
    assert (
        Generic.of(
            [tensor(*[2] * 40)], [tensor(*[2] * 40)], [many] * 2, ("parallel",) * 40, COPY
        ).loops
        == 40
    )


def test_operations_that_nothing_uses_go() -> None:
    ops = (
        ScalarOp("math.exp", (Arg(0),), "f32"),
        ScalarOp("math.tanh", (Arg(0),), "f32"),
        ScalarOp("math.sqrt", (Res(1),), "f32"),
    )
    assert Payload(ops, (Res(2),)).live() == Payload(
        (ops[1], ScalarOp("math.sqrt", (Res(0),), "f32")), (Res(1),)
    )
    whole = Payload(ops[:1], (Res(0),))
    assert whole.live() is whole


def test_literals_are_equal_by_their_bits() -> None:
    assert Literal(0.0, "f32") != Literal(-0.0, "f32")
    assert Literal(float("nan"), "f32") == Literal(float("nan"), "f32")
    assert Literal(1, "i32") != Literal(1.0, "f32")


def test_a_splat_has_one_value_throughout() -> None:
    assert Value("a", "f32", (2,), constant=np.float32([1, 1])).splat == Literal(1.0, "f32")
    assert Value("a", "f32", (2,), constant=np.float32([0.0, -0.0])).splat is None
    assert Value("a", "f32", (0,), constant=np.zeros(0, np.float32)).splat is None
