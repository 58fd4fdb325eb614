"""Named control functions, and functions of the caller's."""

from __future__ import annotations

import pytest

from gehost_linalg import control
from gehost_linalg.block import Block
from gehost_linalg.control import ControlError, asked, control_named
from gehost_linalg.driver import fuse_all
from gehost_linalg.fusability import OpOperand
from gehost_linalg.operations import OPERATIONS

from .conftest import Case, payload


def operand(name: str, index: int = 0, consumer: int = -1) -> OpOperand:
    function = Case(name).function
    return Block(function.ops, function.outputs).operand(function.ops[consumer], index)


@pytest.mark.parametrize(
    ("control", "case", "reason"),
    [
        ("one-use", "add_mul", None),
        ("one-use", "diamond", "the producer has 2 uses"),
        ("always", "diamond", None),
        ("no-recompute", "add_mul", None),
        ("no-recompute", "broadcast_read", "reading by (d0, d1) -> (d0) computes elements again"),
        (
            "no-recompute",
            "exp_matmul",
            "reading by (d0, d1, d2) -> (d0, d2) computes elements again",
        ),
        ("cost", "exp_matmul", "math.exp would be computed again"),
        ("cost", "broadcast_read", None),
        ("cost", "strided_read", "math.exp would be computed again"),
        ("cost", "read_transposed", "a would be read with a stride in loop d1"),
        ("max-operands=3", "add_mul", None),
        ("max-operands=2", "add_mul", "3 operands, at most 2"),
        ("max-body-ops=1", "add_mul", None),
        ("max-body-ops=2", "indices_of_transposed", "the producer has 4 operations, at most 2"),
        ("max-live=4", "add_mul", None),
        ("max-live=3", "add_mul", "4 live values, at most 3"),
    ],
)
def test_what_each_accepts(control: str, case: str, reason: str | None) -> None:
    assert asked(control_named(control), operand(case)) == reason


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("max-operands", "control max-operands needs a number from 1 to 999999999: max-operands=8"),
        ("max-operands=0", "needs a number from 1 to 999999999"),
        ("max-live=x", "needs a number from 1 to 999999999"),
        ("max-live=\u0663", "needs a number from 1 to 999999999"),
        ("max-operands=" + "9" * 5000, "needs a number from 1 to 999999999: max-operands=8"),
        ("one-use=3", "control one-use takes no number"),
        ("measured", "belongs to gehost kernels --measure"),
        ("allways", "no control is called 'allways'; nearest: always"),
    ],
)
def test_names_that_mean_nothing(text: str, message: str) -> None:
    with pytest.raises(ControlError) as caught:
        control_named(text)
    assert message in str(caught.value)


def test_a_function_decides_with_producer_consumer_and_index() -> None:
    visited: list[tuple[str, str, int]] = []

    def only_into_additions(operand: OpOperand) -> bool | str:
        producer, consumer = operand.generics()
        visited.append((producer.name, consumer.name, operand.index))
        return consumer.payload.ops[0].name == "arith.addf" or "no addition"

    function = Case("three_muls").function
    ops = fuse_all(function.ops, only_into_additions, outputs=function.outputs)
    assert [payload(op) for op in ops] == [["mulf"], ["mulf"], ["mulf", "addf", "addf"]]
    assert visited[0] == ("0", "3", 0)


def test_a_function_that_returns_nonsense_is_an_error() -> None:
    with pytest.raises(ControlError, match="returned None; wanted True or a reason"):
        fuse_all(Case("add_mul").function.ops, lambda _: None)  # type: ignore[arg-type, return-value]


def test_a_function_that_raises_is_an_error_with_its_place() -> None:
    def fails(operand: OpOperand) -> bool | str:
        raise KeyError(operand.index)

    with pytest.raises(
        ControlError, match=r"control fails \(.*test_control.py:\d+\) raised KeyError: 0"
    ):
        fuse_all(Case("add_mul").function.ops, fails)


def test_false_is_a_refusal() -> None:
    assert len(fuse_all(Case("add_mul").function.ops, lambda _: False)) == 2


def test_every_function_of_math_that_costs_is_known() -> None:
    cheap = {"absf", "absi", "ceil", "copysign", "floor", "round", "roundeven", "trunc", "clampf", "ctlz", "ctpop", "cttz", "fma", "isfinite", "isinf", "isnan", "isnormal"}  # fmt: skip
    entries = {name for name in OPERATIONS if name.startswith("math.")}
    assert entries - {f"math.{name}" for name in cheap} <= control.TRANSCENDENTAL
