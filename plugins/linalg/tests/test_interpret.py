"""The interpreter: loops, scalars, sizes that are decided at run time."""

from __future__ import annotations

import math

import ml_dtypes
import numpy as np
import pytest

from gehost_linalg.affine import AffineMap
from gehost_linalg.block import Block
from gehost_linalg.fuse import Fused, fuse_elementwise_ops
from gehost_linalg.generic import Arg, Generic, Payload, Res, ScalarOp, Value
from gehost_linalg.interpret import interpret, run_generic

from .conftest import Case

I1 = AffineMap.identity(1)


def apply(
    name: str,
    *numbers: object,
    dtype: str = "f32",
    result: str | None = None,
    attribute: str | None = None,
) -> object:
    """One scalar operation on arrays of one element."""
    kinds = {
        "f32": np.float32,
        "i32": np.int32,
        "i1": np.bool_,
        "bf16": ml_dtypes.bfloat16,
        "i64": np.int64,
        "i8": np.int8,
    }
    values = [Value(f"a{place}", dtype, (1,)) for place in range(len(numbers))]
    out = Value("o", result or dtype, (1,), kind="empty")
    payload = Payload(
        (
            ScalarOp(
                name, tuple(Arg(place) for place in range(len(numbers))), result or dtype, attribute
            ),
        ),
        (Res(0),),
    )
    op = Generic.of(values, [out], [I1] * (len(values) + 1), ["parallel"], payload)
    return run_generic(op, [np.asarray([number], kinds[dtype]) for number in numbers] + [None], {})[
        0
    ][0].item()


@pytest.mark.parametrize(
    ("name", "numbers", "expected"),
    [
        ("arith.maximumf", (1.0, math.nan), math.nan), ("arith.maximumf", (math.nan, 1.0), math.nan), ("arith.maxnumf", (math.nan, 1.0), 1.0),
        ("arith.minimumf", (0.0, -0.0), -0.0), ("arith.maximumf", (-0.0, 0.0), 0.0), ("math.log", (-1.0,), math.nan), ("math.exp", (-math.inf,), 0.0),
        ("math.round", (-2.5,), -3.0), ("math.roundeven", (2.5,), 2.0), ("math.erf", (math.nan,), math.nan), ("arith.divf", (1.0, 0.0), math.inf),
        ("math.rsqrt", (4.0,), 0.5), ("arith.remf", (-5.5, 2.0), -1.5), ("math.powf", (-math.inf, 0.5), math.inf), ("math.powf", (-0.0, 0.5), 0.0),
    ],
)  # fmt: skip
def test_scalars(name: str, numbers: tuple[float, ...], expected: float) -> None:
    inputs = apply(name, *numbers)
    np.testing.assert_array_equal(inputs, np.float32(expected))
    assert math.copysign(1, inputs) == math.copysign(1, expected) or math.isnan(expected)


@pytest.mark.parametrize(
    ("name", "expected"), [("arith.divsi", -3), ("arith.floordivsi", -4), ("arith.remsi", -1)]
)
def test_integer_division(name: str, expected: int) -> None:
    assert apply(name, -7, 2, dtype="i32") == expected


@pytest.mark.parametrize(
    ("predicate", "pair", "expected"),
    [
        ("olt", (1.0, 2.0), True),
        ("oeq", (math.nan, math.nan), False),
        ("une", (math.nan, 1.0), True),
        ("uno", (math.nan, 1.0), True),
        ("ord", (1.0, 2.0), True),
    ],
)
def test_comparisons(predicate: str, pair: tuple[float, float], expected: bool) -> None:
    assert apply("arith.cmpf", *pair, result="i1", attribute=predicate) is expected
    assert apply("arith.cmpi", -1, 1, dtype="i32", result="i1", attribute="ult") is False


def test_casts() -> None:
    assert apply("arith.fptosi", -1.7, result="i32") == -1
    assert apply("arith.sitofp", 3, dtype="i32", result="f32") == 3.0
    assert apply("arith.extui", True, dtype="i1", result="i64") == 1
    assert apply("arith.extsi", True, dtype="i1", result="i64") == -1
    assert apply("arith.trunci", 300, dtype="i32", result="i8") == 44
    assert apply("arith.truncf", 1.00390625, result="bf16") == 1.0


def test_a_map_reads_and_writes_elsewhere() -> None:
    function = Case("loop_point").function
    a, b = (
        np.arange(20, dtype=np.float32).reshape(4, 5),
        np.arange(20, dtype=np.float32).reshape(5, 4),
    )
    (inputs,) = interpret(
        function.ops, dict(zip(function.arguments, (a, b), strict=True)), function.outputs
    )
    np.testing.assert_array_equal(inputs, a + b.T)


def test_of_several_writes_the_last_one_stands() -> None:
    payload = Payload((), (Arg(0),))
    op = Generic.of(
        [Value("a", "f32", (3,))],
        [Value("o", "f32", ())],
        [I1, AffineMap(1, [])],
        ["parallel"],
        payload,
    )
    (inputs,) = run_generic(op, [np.float32([1, 2, 3]), np.float32(0)], {})
    assert inputs == 3


def test_sizes_that_differ_are_refused() -> None:
    op = Generic.of([Value("a", "f32", (None,)), Value("b", "f32", (None,))], [Value("o", "f32", (None,), kind="empty")], [I1] * 3,
                    ["parallel"], Payload((), (Arg(0),)))  # fmt: skip
    with pytest.raises(ValueError, match="loop d0 has sizes 3 and 2"):
        run_generic(op, [np.zeros(3, np.float32), np.zeros(2, np.float32), None], {})


@pytest.mark.parametrize(("left", "right"), [(3, 3), (1, 3), (3, 1), (1, 1), (0, 1)])
def test_a_stride_that_is_decided_at_run_time_stays_so_when_fused(left: int, right: int) -> None:
    """P = a + b, C = exp(P) · c, where each size may be 1."""
    a, b, c, p, r = (Value(name, "f32", (None,)) for name in "abcpr")
    one = frozenset({0})
    add = Payload((ScalarOp("arith.addf", (Arg(0), Arg(1)), "f32"),), (Res(0),))
    scale = Payload(
        (ScalarOp("math.exp", (Arg(0),), "f32"), ScalarOp("arith.mulf", (Res(0), Arg(1)), "f32")),
        (Res(1),),
    )
    empty = [Value(name, "f32", (None,), kind="empty") for name in "xy"]
    producer = Generic(
        (a, b), (empty[0],), (I1,) * 3, ("parallel",), add, (p,), (one, one, frozenset())
    )
    consumer = Generic(
        (p, c), (empty[1],), (I1,) * 3, ("parallel",), scale, (r,), (one, one, frozenset())
    )
    fused = fuse_elementwise_ops(Block([producer, consumer]).operand(consumer, 0))
    assert isinstance(fused, Fused)
    assert fused.generic.maybe_broadcast == (one, one, one, frozenset())
    for size in {1, max(left, right) if min(left, right) else 0}:
        inputs = {
            a: np.arange(left, dtype=np.float32),
            b: np.arange(right, dtype=np.float32),
            c: np.arange(2, 2 + size, dtype=np.float32),
        }
        (expected,) = interpret([producer, consumer], inputs, [r])
        (values,) = interpret([fused.generic], inputs, [r])
        np.testing.assert_array_equal(values, expected)
        np.testing.assert_allclose(values, np.exp(inputs[a] + inputs[b]) * inputs[c], rtol=1e-6)
