"""reduce-precision, bitcast-convert and mulhi, on numbers at the ends of each type."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from .recorded import Array, imported, run

DTYPES = {
    "f16": np.float16,
    "f32": np.float32,
    "s8": np.int8,
    "u8": np.uint8,
    "s16": np.int16,
    "u16": np.uint16,
    "s32": np.int32,
    "u32": np.uint32,
    "s64": np.int64,
    "u64": np.uint64,
}


def one(instruction: str, **operands: Array) -> Array:
    lines = [
        f"  {name} = {kind_of(array)}[{','.join(map(str, array.shape))}] parameter({number})\n"
        for number, (name, array) in enumerate(operands.items())
    ]
    model = imported(f"ENTRY e {{\n{''.join(lines)}  ROOT r = {instruction}\n}}")
    return run(model, list(operands.values()))[0]


def kind_of(array: Array) -> str:
    return next(kind for kind, dtype in DTYPES.items() if array.dtype == dtype)


ODD = np.array(
    [
        0.0,
        -0.0,
        1.0,
        -1.5,
        3.14159,
        65504.0,
        65519.0,
        65520.0,
        6.2e-5,
        6.1e-5,
        1e-7,
        448.0,
        1e30,
        np.inf,
        -np.inf,
        np.nan,
    ],
    np.float32,
)


def test_reduce_precision_to_the_width_of_f16() -> None:
    with np.errstate(over="ignore"):
        expected = ODD.astype(np.float16).astype(np.float32)
    expected[np.abs(expected) < 2.0**-14] *= 0  # below the normal numbers nothing is left
    actual = one("f32[16] reduce-precision(x), exponent_bits=5, mantissa_bits=10", x=ODD)
    np.testing.assert_array_equal(actual, expected)
    np.testing.assert_array_equal(np.signbit(actual[:2]), [False, True])


def test_reduce_precision_keeps_the_exponent() -> None:
    x = np.random.default_rng(1).standard_normal(200).astype(np.float32)
    expected = x.astype(ml_dtypes.bfloat16).astype(np.float32)
    actual = one("f32[200] reduce-precision(x), exponent_bits=8, mantissa_bits=7", x=x)
    np.testing.assert_array_equal(actual, expected)
    wider = one("f32[200] reduce-precision(x), exponent_bits=8, mantissa_bits=12", x=x)
    bits = x.view(np.uint32).astype(np.uint64)
    rounded = (bits + ((bits >> 11) & 1) + 0x3FF) & ~np.uint64(0x7FF)
    np.testing.assert_array_equal(wider.view(np.uint32), rounded.astype(np.uint32))


@pytest.mark.parametrize("mantissa", [0, 3, 9])
def test_reduce_precision_of_f16(mantissa: int) -> None:
    x = np.random.default_rng(2).standard_normal(100).astype(np.float16)
    actual = one(f"f16[100] reduce-precision(x), exponent_bits=5, mantissa_bits={mantissa}", x=x)
    dropped = 10 - mantissa
    bits = x.view(np.uint16).astype(np.uint32)
    last = (bits >> dropped) & 1
    rounded = (bits + last + (1 << dropped - 1) - 1) & ~np.uint32((1 << dropped) - 1)
    np.testing.assert_array_equal(actual.view(np.uint16), rounded.astype(np.uint16))


def test_bits_of_f16() -> None:
    every = np.arange(1 << 16, dtype=np.uint32).astype(np.uint16)
    numbers = every[~np.isnan(every.view(np.float16))]
    count = len(numbers)
    to_float = one(f"f16[{count}] bitcast-convert(x)", x=numbers)
    np.testing.assert_array_equal(to_float.view(np.uint16), numbers)
    back = one(f"u16[{count}] bitcast-convert(x)", x=numbers.view(np.float16))
    np.testing.assert_array_equal(back, numbers)


@pytest.mark.parametrize(
    ("source", "target"),
    [("f32", "u8"), ("f16", "s8"), ("f32", "s16"), ("u32", "f16"), ("s64", "f32"), ("f16", "u16")],
)
def test_bitcasts_between_widths(source: str, target: str) -> None:
    narrow = np.random.default_rng(3).standard_normal((5, 4)).astype(np.float16)
    x = np.ascontiguousarray(narrow.view(np.uint8)).view(DTYPES[source])
    if source.startswith("f"):
        x = np.nan_to_num(x)
    ratio = x.itemsize // np.dtype(DTYPES[target]).itemsize
    expected = x[..., None].view(DTYPES[target]) if ratio > 1 else x.view(DTYPES[target])
    shape = ",".join(map(str, expected.shape))
    actual = one(f"{target}[{shape}] bitcast-convert(x)", x=x)
    plain = ~np.isnan(expected) if target.startswith("f") else np.full(expected.shape, True)
    np.testing.assert_array_equal(actual[plain], expected[plain])
    if ratio > 1 and not target.startswith("f"):
        whole = one(f"{source}[{','.join(map(str, x.shape))}] bitcast-convert(x)", x=expected)
        np.testing.assert_array_equal(whole, x)


@pytest.mark.parametrize("kind", ["s8", "u8", "s16", "u16", "s32", "u32", "s64", "u64"])
def test_high_half_of_a_product(kind: str) -> None:
    info = np.iinfo(DTYPES[kind])
    draw = np.random.default_rng(4)
    a = draw.integers(info.min, info.max, 40, DTYPES[kind], endpoint=True)
    b = draw.integers(info.min, info.max, 40, DTYPES[kind], endpoint=True)
    a[:4], b[:4] = [info.min, info.max, info.min, 0], [info.min, info.max, info.max, info.max]
    expected = [(int(x) * int(y)) >> info.bits for x, y in zip(a, b, strict=True)]
    actual = one(f"{kind}[40] mulhi(a, b)", a=a, b=b)
    assert actual.tolist() == expected
