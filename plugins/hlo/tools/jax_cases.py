"""Some four hundred small jax programs, several for each operation of StableHLO; needs jax.

Each is a function of arrays and a list of inputs, as in ``jax_programs``.
"""

from __future__ import annotations

# fmt: off
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
from jax import lax
from jax.sharding import AxisType
from jax.sharding import PartitionSpec as P
from jax_programs import Program, draw, ints

FLOATS = {"f32": np.float32, "f16": np.float16, "bf16": ml_dtypes.bfloat16}
INTEGERS = {"s8": np.int8, "u8": np.uint8, "s16": np.int16, "u16": np.uint16, "s32": np.int32, "u32": np.uint32}


def positive(seed: int, *shape: int, dtype: Any = np.float32) -> Any:
    return (np.random.default_rng(seed).uniform(0.1, 3.0, shape)).astype(dtype)


def unit(seed: int, *shape: int, dtype: Any = np.float32) -> Any:
    return (np.random.default_rng(seed).uniform(-0.95, 0.95, shape)).astype(dtype)


def flags(seed: int, *shape: int) -> Any:
    return np.random.default_rng(seed).integers(0, 2, shape).astype(bool)


def bits_of(seed: int, *shape: int, dtype: Any = np.int32) -> Any:
    info = np.iinfo(dtype)
    return np.random.default_rng(seed).integers(info.min, info.max, shape, endpoint=True, dtype=dtype)


def cases() -> dict[str, Program]:
    """All programs by name."""
    results: dict[str, Program] = {}
    for group in (elementwise, integer_operations, conversions, contractions, convolutions, reductions, windows, movements, indexing, control, sorting, random_numbers, networks, calls, transforms, collectives, libraries):
        for name, program in group():
            assert name not in results, name
            results[name] = program
    return results


Rows = Iterator[tuple[str, Program]]


def elementwise() -> Rows:
    anything = ["abs", "ceil", "cos", "exp", "expm1", "floor", "neg", "sign", "sin", "tanh", "tan", "cbrt", "logistic", "erf", "sinh", "cosh", "asinh", "atan", "square", "erfc"]
    for kind, dtype in FLOATS.items():
        for op in anything:
            yield f"{op}_{kind}", (getattr(lax, op), [draw(1, 3, 5, dtype=dtype)])
        for op in ("log", "log1p", "rsqrt", "sqrt", "acosh", "lgamma", "digamma"):
            data = positive(2, 3, 5, dtype=dtype) + dtype(op == "acosh")
            yield f"{op}_{kind}", (getattr(lax, op), [data])
        for op in ("acos", "asin", "atanh", "erf_inv"):
            yield f"{op}_{kind}", (getattr(lax, op), [unit(3, 3, 5, dtype=dtype)])
        for op in ("add", "sub", "mul", "div", "max", "min", "atan2", "rem", "nextafter"):
            if op == "nextafter" and kind != "f32":
                continue
            yield (f"{op}_{kind}", (getattr(lax, op), [draw(4, 3, 5, dtype=dtype), draw(5, 3, 5, dtype=dtype)]))
        yield f"pow_{kind}", (lax.pow, [positive(6, 3, 5, dtype=dtype), draw(7, 3, 5, dtype=dtype)])
        yield f"clamp_{kind}", (lambda x: jnp.clip(x, -0.5, 0.5), [draw(8, 3, 5, dtype=dtype)])
        yield (f"compare_{kind}", (lambda x, y: (x < y, x <= y, x == y, x != y, x > y, x >= y), [draw(9, 8, dtype=dtype), draw(9, 8, dtype=dtype)]))
        yield (f"where_{kind}", (jnp.where, [flags(1, 3, 5), draw(1, 3, 5, dtype=dtype), draw(2, 3, 5, dtype=dtype)]))
    for power in (2, 3, 5, -1, -3):
        yield f"integer_pow_{power}", (partial(lax.integer_pow, y=power), [positive(1, 4)])
    odd = np.array([np.nan, np.inf, -np.inf, 0.0, -0.0, 1.5, -2.5], np.float32)
    for op in (jnp.isnan, jnp.isinf, jnp.isfinite, jnp.round, jnp.signbit, jnp.nan_to_num, jnp.rint, jnp.trunc):
        yield f"{op.__name__}_odd", (op, [odd])
    yield "round_away", (lambda x: lax.round(x, lax.RoundingMethod.AWAY_FROM_ZERO), [odd[3:] * 1.0])
    yield "sort_odd", (jnp.sort, [odd])
    yield "max_odd", (lambda x: (x.max(), jnp.nanmax(x), jnp.argmax(x)), [odd])
    yield "reduce_precision", (lambda x: lax.reduce_precision(x, 5, 10), [draw(1, 3, 5, scale=300)])
    yield "reduce_precision_bf16", (lambda x: lax.reduce_precision(x, 8, 7), [draw(1, 3, 5)])
    yield ("reduce_precision_small", (lambda x: lax.reduce_precision(x, 4, 3), [draw(1, 3, 5, scale=20)]))
    yield ("reduce_precision_f16", (lambda x: lax.reduce_precision(x, 4, 5), [draw(1, 3, 5, dtype=np.float16)]))
    yield "hypot", (jnp.hypot, [draw(1, 6), draw(2, 6)])
    yield "logaddexp", (jnp.logaddexp, [draw(1, 6), draw(2, 6)])
    yield "sinc", (jnp.sinc, [draw(1, 6)])
    yield "heaviside", (jnp.heaviside, [draw(1, 6), draw(2, 6)])
    yield "copysign", (jnp.copysign, [draw(1, 6), draw(2, 6)])
    yield "ldexp", (jnp.ldexp, [draw(1, 6), ints(2, 6, low=-4, high=4)])
    yield "frexp", (jnp.frexp, [draw(1, 6, scale=30)])
    yield "modf", (jnp.modf, [draw(1, 6, scale=3)])
    yield "floor_divide", (jnp.floor_divide, [draw(1, 6, scale=9), positive(2, 6)])
    yield "mod_float", (jnp.mod, [draw(1, 6, scale=9), draw(2, 6)])
    yield "xlogy", (jax.scipy.special.xlogy, [positive(1, 6), positive(2, 6)])
    yield "i0e", (lax.bessel_i0e, [draw(1, 6)])
    yield "i1e", (lax.bessel_i1e, [draw(1, 6)])
    yield "igamma", (lax.igamma, [positive(1, 6), positive(2, 6)])
    yield ("betainc", (lax.regularized_incomplete_beta if hasattr(lax, "regularized_incomplete_beta") else lax.betainc, [positive(1, 6), positive(2, 6), unit(3, 6) * 0.4 + 0.5]))
    yield "polygamma", (jax.scipy.special.polygamma, [np.ones(6, np.int32), positive(2, 6)])


def integer_operations() -> Rows:
    for kind, dtype in INTEGERS.items():
        full, other = bits_of(1, 3, 5, dtype=dtype), bits_of(2, 3, 5, dtype=dtype)
        small = np.maximum(np.abs(ints(3, 3, 5, low=1, high=9)), 1).astype(dtype)
        for op in ("add", "sub", "mul", "max", "min", "bitwise_and", "bitwise_or", "bitwise_xor"):
            yield f"{op}_{kind}", (getattr(lax, op), [full, other])
        for op in ("div", "rem"):
            yield f"{op}_{kind}", (getattr(lax, op), [full, small])
        for op in ("shift_left", "shift_right_logical", "shift_right_arithmetic"):
            yield f"{op}_{kind}", (getattr(lax, op), [full, (small % 7).astype(dtype)])
        for op in ("bitwise_not", "population_count", "clz", "sign"):
            yield f"{op}_{kind}", (getattr(lax, op), [full])
        yield f"floor_mod_{kind}", (lambda a, b: (a // b, a % b), [full, small])
        yield f"sum_{kind}", (lambda x: (x.sum(0), x.max(), x.min(1), x.prod(0)), [full])
        yield f"argmax_{kind}", (lambda x: (jnp.argmax(x, 0), jnp.argmin(x, 1)), [full])
        yield f"sort_{kind}", (lambda x: jnp.sort(x, 0), [full])
        yield f"cumsum_{kind}", (lambda x: jnp.cumsum(x, 0, dtype=x.dtype), [full])
        yield (f"matmul_{kind}", (lambda a, b: lax.dot(a, b.T, preferred_element_type=np.int32), [full, other]))
    yield "abs_s32", (lax.abs, [bits_of(1, 7)])
    yield "neg_u32", (lax.neg, [bits_of(1, 7, dtype=np.uint32)])
    yield ("mulhi_s32", (lax.mulhi, [bits_of(1, 9), bits_of(2, 9)]) if hasattr(lax, "mulhi") else ("abs_s32_again", (lax.abs, [bits_of(1, 7)])))
    if hasattr(lax, "mulhi"):
        for kind, dtype in INTEGERS.items():
            if kind != "s32":
                yield (f"mulhi_{kind}", (lax.mulhi, [bits_of(1, 9, dtype=dtype), bits_of(2, 9, dtype=dtype)]))
    yield "integer_pow_s32", (lambda x: x**5, [ints(1, 7)])
    yield "power_s32", (jnp.power, [ints(1, 7), ints(2, 7, low=0, high=6)])
    yield "gcd", (jnp.gcd, [ints(1, 7, low=1, high=90), ints(2, 7, low=1, high=90)])
    yield "bool_logic", (lambda a, b: (a & b, a | b, a ^ b, ~a), [flags(1, 9), flags(2, 9)])
    yield "bool_reduce", (lambda a: (a.any(0), a.all(1), a.sum(), jnp.argmax(a)), [flags(1, 4, 5)])
    yield ("bool_compare", (lambda a, b: (a == b, a < b, jnp.maximum(a, b)), [flags(1, 9), flags(2, 9)]))
    yield "unpackbits", (jnp.unpackbits, [bits_of(1, 6, dtype=np.uint8)])
    yield "packbits", (jnp.packbits, [flags(1, 32)])
    yield "bit_count", (jnp.bitwise_count, [bits_of(1, 7)])


def conversions() -> Rows:
    kinds = {**FLOATS, **INTEGERS, "pred": np.bool_}
    for source in ("f32", "f16", "bf16", "s32", "u8", "pred", "s8", "u32"):
        for target in ("f32", "f16", "bf16", "s32", "u8", "pred"):
            if source != target:
                data = flags(1, 7) if source == "pred" else (np.abs(draw(1, 7)) * 20).astype(kinds[source])
                yield f"convert_{source}_{target}", (lambda x, t=kinds[target]: x.astype(t), [data])
    for name, data, target in (
        ("f32_s32", draw(1, 6), np.int32),
        ("s32_f32", draw(1, 6).view(np.int32), np.float32),
        ("f32_u8", draw(1, 6), np.uint8),
        ("u8_f32", draw(1, 6).view(np.uint8).reshape(6, 4), np.float32),
        ("u8_u32", bits_of(1, 5, 4, dtype=np.uint8), np.uint32),
        ("u32_u8", bits_of(1, 5, dtype=np.uint32), np.uint8),
        ("u32_u16", bits_of(1, 5, dtype=np.uint32), np.uint16),
        ("u16_u32", bits_of(1, 5, 2, dtype=np.uint16), np.uint32),
        ("s16_u8", bits_of(1, 5, dtype=np.int16), np.uint8),
        ("f16_u16", draw(1, 6, dtype=np.float16), np.uint16),
        ("u16_f16", draw(1, 6, dtype=np.float16).view(np.uint16), np.float16),
        ("bf16_u16", draw(1, 6, dtype=ml_dtypes.bfloat16), np.uint16),
        ("u16_bf16", draw(1, 6, dtype=np.float16).view(np.uint16) & np.uint16(0xBF7F), ml_dtypes.bfloat16),
        ("f16_u8", draw(1, 6, dtype=np.float16), np.uint8),
    ):
        yield f"bitcast_{name}", (partial(lax.bitcast_convert_type, new_dtype=target), [data])
    yield ("convert_element_float8", (lambda x: x.astype(jnp.float8_e4m3fn).astype(np.float32), [draw(1, 6)]))


def contractions() -> Rows:
    for spec, left, right in (
        ("ij,jk->ik", (3, 4), (4, 5)),
        ("bij,bjk->bik", (2, 3, 4), (2, 4, 5)),
        ("bhqd,bhkd->bhqk", (2, 2, 3, 4), (2, 2, 5, 4)),
        ("ij,kj->ki", (3, 4), (5, 4)),
        ("abc,cd->abd", (2, 3, 4), (4, 5)),
        ("i,j->ij", (3,), (4,)),
        ("ij,ij->", (3, 4), (3, 4)),
        ("bij,kbj->ibk", (2, 3, 4), (5, 2, 4)),
        ("ii,i->i", (3, 3), (3,)),
        ("abcd,cdef->abef", (2, 3, 4, 5), (4, 5, 2, 2)),
    ):
        name = spec.replace(",", "_").replace("->", "_to_")
        yield f"einsum_{name}", (partial(jnp.einsum, spec), [draw(1, *left), draw(2, *right)])
    for kind, dtype in FLOATS.items():
        yield f"dot_{kind}", (jnp.matmul, [draw(1, 4, 6, dtype=dtype), draw(2, 6, 5, dtype=dtype)])
    yield ("dot_f16_to_f32", (lambda a, b: lax.dot(a, b, preferred_element_type=np.float32), [draw(1, 4, 6, dtype=np.float16), draw(2, 6, 5, dtype=np.float16)]))
    yield ("dot_highest", (lambda a, b: jnp.dot(a, b, precision="highest"), [draw(1, 4, 6), draw(2, 6, 5)]))
    yield "vdot", (jnp.vdot, [draw(1, 7), draw(2, 7)])
    yield "outer", (jnp.outer, [draw(1, 7), draw(2, 6)])
    yield ("tensordot", (lambda a, b: jnp.tensordot(a, b, axes=([1, 2], [0, 1])), [draw(1, 2, 3, 4), draw(2, 3, 4, 5)]))
    yield "kron", (jnp.kron, [draw(1, 2, 3), draw(2, 3, 2)])
    yield "dot_s32", (jnp.matmul, [ints(1, 3, 4), ints(2, 4, 5)])
    yield "dot_bool", (jnp.matmul, [flags(1, 3, 4), flags(2, 4, 5)])
    yield "dot_empty", (jnp.matmul, [draw(1, 3, 0), draw(2, 0, 5)])
    yield ("dot_grad", (jax.grad(lambda a, b: jnp.sum(jnp.tanh(a @ b)), (0, 1)), [draw(1, 3, 4), draw(2, 4, 5)]))
    yield ("ragged_dot", (lax.ragged_dot, [draw(1, 6, 4), draw(2, 3, 4, 5), np.array([2, 1, 3], np.int32)]))
    yield ("multi_dot", (lambda a, b, c: jnp.linalg.multi_dot([a, b, c]), [draw(1, 3, 4), draw(2, 4, 5), draw(3, 5, 2)]))


def convolutions() -> Rows:
    x, w = draw(1, 2, 8, 8, 4), draw(2, 3, 3, 4, 6, scale=0.3)
    nhwc = ("NHWC", "HWIO", "NHWC")
    for name, options in (
        ("same", {"window_strides": (1, 1), "padding": "SAME"}),
        ("valid", {"window_strides": (1, 1), "padding": "VALID"}),
        ("strided", {"window_strides": (2, 2), "padding": "SAME"}),
        ("dilated", {"window_strides": (1, 1), "padding": "VALID", "rhs_dilation": (2, 2)}),
        ("transposed", {"window_strides": (1, 1), "padding": ((2, 2), (2, 2)), "lhs_dilation": (2, 2)}),
        ("padded", {"window_strides": (1, 2), "padding": ((0, 3), (2, 1))}),
        ("negative_pad", {"window_strides": (1, 1), "padding": ((-1, 1), (0, -1))}),
    ):
        yield (f"conv_{name}", (partial(lax.conv_general_dilated, dimension_numbers=nhwc, **options), [x, w]))
    yield ("conv_grouped", (partial(lax.conv_general_dilated, window_strides=(1, 1), padding="SAME", dimension_numbers=nhwc, feature_group_count=2), [x, draw(3, 3, 3, 2, 6)]))
    yield ("conv_depthwise", (partial(lax.conv_general_dilated, window_strides=(1, 1), padding="SAME", dimension_numbers=nhwc, feature_group_count=4), [x, draw(3, 3, 3, 1, 8)]))
    yield ("conv_batch_groups", (partial(lax.conv_general_dilated, window_strides=(1, 1), padding="SAME", dimension_numbers=nhwc, batch_group_count=2), [x, draw(3, 3, 3, 4, 6)]))
    yield ("conv_nchw", (lambda x, w: lax.conv(x, w, (1, 1), "SAME"), [draw(1, 2, 3, 6, 6), draw(2, 4, 3, 3, 3)]))
    yield ("conv_1d", (lambda x, w: lax.conv_general_dilated(x, w, (1,), "SAME", dimension_numbers=("NWC", "WIO", "NWC")), [draw(1, 2, 9, 3), draw(2, 3, 3, 4)]))
    yield ("conv_3d", (lambda x, w: lax.conv_general_dilated(x, w, (1, 1, 1), "VALID", dimension_numbers=("NDHWC", "DHWIO", "NDHWC")), [draw(1, 1, 4, 5, 5, 2), draw(2, 2, 2, 2, 2, 3)]))
    yield ("conv_f16", (lambda x, w: lax.conv_general_dilated(x, w, (1, 1), "SAME", dimension_numbers=nhwc), [x.astype(np.float16), w.astype(np.float16)]))
    yield ("conv_grad", (jax.grad(lambda x, w: jnp.sum(jnp.square(lax.conv_general_dilated(x, w, (2, 2), "SAME", dimension_numbers=nhwc))), (0, 1)), [x, w]))
    yield "conv_transpose", (lambda x, w: lax.conv_transpose(x, w, (2, 2), "SAME"), [x, w])
    yield "convolve", (jnp.convolve, [draw(1, 9), draw(2, 4)])
    yield "correlate", (lambda a, b: jnp.correlate(a, b, "same"), [draw(1, 9), draw(2, 4)])
    yield ("conv_patches", (lambda x: lax.conv_general_dilated_patches(x, (2, 2), (1, 1), "VALID"), [draw(1, 1, 2, 5, 5)]))


def reductions() -> Rows:
    x = draw(1, 3, 4, 5)
    for op in ("sum", "mean", "max", "min", "prod", "var", "std", "median", "ptp"):
        for name, axis in (("all", None), ("last", -1), ("first", 0)):
            yield f"reduce_{op}_{name}", (partial(getattr(jnp, op), axis=axis), [x])
    for kind, dtype in (("f16", np.float16), ("bf16", ml_dtypes.bfloat16)):
        yield f"reduce_sum_{kind}", (lambda x: (x.sum(-1), x.max(0), x.mean()), [x.astype(dtype)])
    for op in ("cumsum", "cumprod", "cummax", "cummin", "cumlogsumexp"):
        yield f"{op}_axis0", (partial(getattr(lax, op), axis=0), [x])
        yield f"{op}_reverse", (partial(getattr(lax, op), axis=1, reverse=True), [x])
    yield "argmax_argmin", (lambda x: (jnp.argmax(x, 1), jnp.argmin(x)), [x])
    yield "logsumexp", (lambda x: jax.scipy.special.logsumexp(x, axis=1), [x])
    yield "softmax", (jax.nn.softmax, [x])
    yield "log_softmax", (jax.nn.log_softmax, [x])
    yield "norm", (lambda x: (jnp.linalg.norm(x), jnp.linalg.norm(x, axis=1)), [x[0]])
    yield "count_nonzero", (jnp.count_nonzero, [ints(1, 4, 5, low=0, high=2)])
    yield ("average", (lambda x, w: jnp.average(x, axis=0, weights=w), [draw(1, 4, 3), positive(2, 4, 3)]))
    yield "nansum", (jnp.nansum, [np.array([1, np.nan, 3], np.float32)])
    yield ("reduce_own", (lambda x: lax.reduce(x, np.float32(0), lambda a, b: a + b + a * b * 0.5, (1,)), [unit(1, 3, 1)]))
    yield ("reduce_pair", (lambda x: lax.reduce((x, x * 2), (np.float32(0), np.float32(1)), lambda a, b: (a[0] + b[0], a[1] * b[1]), (0,)), [x[0]]))
    yield ("reduce_and", (lambda x: lax.reduce(x, np.int32(-1), lax.bitwise_and, (0,)), [bits_of(1, 4, 3)]))
    yield ("reduce_xor", (lambda x: lax.reduce(x, np.uint32(0), lax.bitwise_xor, (1,)), [bits_of(1, 4, 3, dtype=np.uint32)]))
    yield "trace", (jnp.trace, [draw(1, 4, 4)])
    yield "cov", (jnp.cov, [draw(1, 3, 9)])
    yield "corrcoef", (jnp.corrcoef, [draw(1, 3, 9)])
    yield "quantile", (lambda x: jnp.quantile(x, 0.3), [draw(1, 9)])
    yield "reduce_empty", (lambda x: (x.sum(0), x.max(0, initial=-1.0)), [draw(1, 0, 3)])
    yield "associative_scan", (lambda x: lax.associative_scan(jnp.multiply, x), [draw(1, 9)])


def windows() -> Rows:
    x = draw(1, 1, 8, 8, 3)
    whole = (1, 2, 2, 1)
    for padding in ("SAME", "VALID"):
        p = padding.lower()
        yield (f"max_pool_{p}", (lambda x, p=padding: lax.reduce_window(x, -jnp.inf, lax.max, (1, 3, 3, 1), whole, p), [x]))
        yield (f"sum_pool_{p}", (lambda x, p=padding: lax.reduce_window(x, 0.0, lax.add, (1, 3, 3, 1), whole, p), [x]))
        yield (f"min_pool_{p}", (lambda x, p=padding: lax.reduce_window(x, jnp.inf, lax.min, (1, 3, 3, 1), whole, p), [x]))
    yield ("pool_dilated", (lambda x: lax.reduce_window(x, 0.0, lax.add, (1, 2, 2, 1), (1, 1, 1, 1), "VALID", window_dilation=(1, 2, 2, 1)), [x]))
    yield ("pool_base_dilated", (lambda x: lax.reduce_window(x, 0.0, lax.add, (1, 2, 2, 1), (1, 1, 1, 1), "VALID", base_dilation=(1, 2, 2, 1)), [x]))
    yield ("pool_integers", (lambda x: lax.reduce_window(x, np.int32(0), lax.add, (3,), (1,), "SAME"), [ints(1, 9)]))
    yield ("pool_own", (lambda x: lax.reduce_window(x, np.float32(0), lambda a, b: jnp.maximum(jnp.abs(a), jnp.abs(b)), (3,), (1,), "VALID"), [draw(1, 9)]))
    yield ("max_pool_grad", (jax.grad(lambda x: jnp.sum(jnp.square(lax.reduce_window(x, -jnp.inf, lax.max, (1, 2, 2, 1), whole, "VALID")))), [x]))
    yield ("max_pool_grad_same", (jax.grad(lambda x: jnp.sum(jnp.square(lax.reduce_window(x, -jnp.inf, lax.max, (1, 3, 3, 1), whole, "SAME")))), [x]))
    yield ("avg_pool_grad", (jax.grad(lambda x: jnp.sum(jnp.square(lax.reduce_window(x, 0.0, lax.add, (1, 2, 2, 1), whole, "VALID")))), [x]))
    yield ("min_pool_grad", (jax.grad(lambda x: jnp.sum(jnp.square(lax.reduce_window(x, jnp.inf, lax.min, (1, 2, 2, 1), whole, "VALID")))), [x]))
    yield "cumsum_grad", (jax.grad(lambda x: jnp.sum(jnp.square(jnp.cumsum(x, 0)))), [x[0, 0]])


def movements() -> Rows:
    x = draw(1, 3, 4, 5)
    for name, op in (
        ("transpose", lambda x: x.transpose(2, 0, 1)),
        ("reshape", lambda x: x.reshape(5, 12)),
        ("ravel", jnp.ravel),
        ("flip", lambda x: jnp.flip(x, (0, 2))),
        ("roll", lambda x: jnp.roll(x, 2, 1)),
        ("tile", lambda x: jnp.tile(x, (2, 1, 1))),
        ("repeat", lambda x: jnp.repeat(x, 2, axis=1)),
        ("stack", lambda x: jnp.stack([x, x * 2], 1)),
        ("concatenate", lambda x: jnp.concatenate([x, x, x * 3], 2)),
        ("split", lambda x: jnp.split(x, 2, 1)),
        ("slice", lambda x: x[1:, ::2, 1:4]),
        ("slice_negative", lambda x: x[::-1, :, ::-2]),
        ("pad", lambda x: jnp.pad(x, ((0, 1), (2, 0), (1, 1)))),
        ("pad_reflect", lambda x: jnp.pad(x, ((0, 0), (1, 1), (2, 1)), mode="reflect")),
        ("pad_edge", lambda x: jnp.pad(x, ((0, 0), (1, 1), (2, 1)), mode="edge")),
        ("pad_wrap", lambda x: jnp.pad(x, ((0, 0), (1, 1), (2, 1)), mode="wrap")),
        ("pad_interior", lambda x: lax.pad(x, 0.5, ((0, 0, 1), (1, -1, 2), (-1, 2, 0)))),
        ("expand_dims", lambda x: jnp.expand_dims(x, (0, 2))),
        ("squeeze", lambda x: jnp.squeeze(x[:1])),
        ("broadcast_to", lambda x: jnp.broadcast_to(x[None], (2, 3, 4, 5))),
        ("moveaxis", lambda x: jnp.moveaxis(x, 0, -1)),
        ("rot90", jnp.rot90),
        ("tril", lambda x: (jnp.tril(x), jnp.triu(x, 1))),
        ("diagonal", lambda x: jnp.diagonal(x, axis1=1, axis2=2)),
        ("diff", lambda x: jnp.diff(x, axis=1)),
        ("meshgrid", lambda x: jnp.meshgrid(x[0, 0], x[0, :, 0])),
        ("scalar_index", lambda x: x[1, 2, 3]),
        ("empty_slice", lambda x: x[:0]),
    ):
        yield f"move_{name}", (op, [x])
    yield ("move_pred", (lambda x: (x.T, jnp.concatenate([x, ~x]), x[::2], jnp.pad(x, 1)), [flags(1, 3, 4)]))
    yield ("move_u16", (lambda x: (x.T, jnp.concatenate([x, x]), x[::2], jnp.pad(x, 1)), [bits_of(1, 3, 4, dtype=np.uint16)]))
    yield ("move_bf16", (lambda x: (x.T, jnp.concatenate([x, x]), x[::2], jnp.pad(x, 1)), [draw(1, 3, 4, dtype=ml_dtypes.bfloat16)]))
    yield ("iota", (lambda x: (x + lax.broadcasted_iota(np.float32, (3, 4), 1), lax.iota(np.int32, 5), jnp.arange(3, 9, 2)), [draw(1, 3, 4)]))
    yield "linspace", (lambda x: jnp.linspace(x, 1.0, 7), [np.float32(-2.0)])
    yield "eye", (lambda x: x @ jnp.eye(4, k=1), [draw(1, 3, 4)])
    yield ("constants", (lambda x: (x + np.arange(12, dtype=np.float32).reshape(3, 4), np.array([1.5, np.inf, np.nan], np.float32)), [draw(1, 3, 4)]))
    table = draw(9, 64, 8)
    yield "constant_large", (lambda x: x @ table, [draw(1, 3, 64)])
    big = np.arange(4096, dtype=np.int32)
    yield "constant_integers", (lambda x: x + big, [np.int32(3)])
    yield "constant_bool", (lambda x: jnp.where(np.arange(40) % 3 == 0, x, 0.0), [draw(1, 40)])
    half = draw(8, 40).astype(ml_dtypes.bfloat16)
    yield "constant_bf16", (lambda x: x * half, [draw(1, 40, dtype=ml_dtypes.bfloat16)])


def indexing() -> Rows:
    x, rows = draw(1, 6, 5), ints(2, 4, low=0, high=6)
    wide = ints(3, 4, low=-9, high=12)
    for mode in ("clip", "fill", "wrap"):
        yield f"take_{mode}", (lambda x, i, m=mode: jnp.take(x, i, axis=0, mode=m), [x, wide])
    yield "gather_rows", (lambda x, i: x[i], [x, rows])
    yield "gather_columns", (lambda x, i: x[:, i], [x, rows % 5])
    yield "gather_pairs", (lambda x, i, j: x[i, j], [x, rows, rows % 5])
    yield "gather_2d", (lambda x, i: x[i], [x, rows.reshape(2, 2)])
    yield "gather_mixed", (lambda x, i: x[i, :, i], [draw(1, 6, 3, 6), rows])
    yield ("take_along_axis", (lambda x, i: jnp.take_along_axis(x, i, 1), [x, ints(2, 6, 3, low=0, high=5)]))
    yield "dynamic_index", (lambda x, i: lax.dynamic_index_in_dim(x, i, 1), [x, np.int32(3)])
    yield "dynamic_slice", (lambda x, i: lax.dynamic_slice(x, (i, i), (2, 3)), [x, np.int32(3)])
    yield ("dynamic_slice_clamped", (lambda x, i: lax.dynamic_slice(x, (i, 0), (2, 5)), [x, np.int32(30)]))
    yield ("dynamic_update", (lambda x, u, i: lax.dynamic_update_slice(x, u, (i, 1)), [x, draw(3, 2, 2), np.int32(2)]))
    yield "dynamic_update_row", (lambda x, u, i: x.at[i].set(u), [x, draw(3, 5), np.int32(2)])
    for op in ("set", "add", "multiply", "min", "max", "subtract", "divide", "power"):
        indices = np.array([4, 1, 0, 5], np.int32)
        yield (f"at_{op}", (lambda x, i, u, o=op: getattr(x.at[i], o)(u), [np.abs(x) + 0.5, indices, positive(3, 4, 5)]))
    for op in ("add", "min", "max"):
        yield (f"at_{op}_repeated", (lambda x, i, u, o=op: getattr(x.at[i], o)(u), [x, np.array([1, 1, 3, 1], np.int32), draw(3, 4, 5)]))
        yield (f"at_{op}_s32", (lambda x, i, u, o=op: getattr(x.at[i], o)(u), [ints(1, 6), np.array([1, 1, 3, 9], np.int32), ints(3, 4)]))
    yield ("at_mul_repeated", (lambda x, i, u: x.at[i].mul(u), [x, np.array([1, 1, 3, 1], np.int32), draw(3, 4, 5)]))
    yield "at_bool", (lambda x, i: x.at[i].set(True), [flags(1, 9), rows])
    yield "at_column", (lambda x, i, u: x.at[:, i].add(u), [x, rows % 5, draw(3, 6, 4)])
    yield "at_window", (lambda x, u: x.at[1:4, 2:].set(u), [x, draw(3, 3, 3)])
    yield "at_apply", (lambda x, i: x.at[i].apply(jnp.sin), [x, np.array([1, 3], np.int32)])
    yield ("scatter_apply", (lambda x, i: lax.scatter_apply(x, i, jnp.square, lax.ScatterDimensionNumbers((), (0,), (0,)), update_shape=(3,)), [draw(1, 7), np.array([[1], [3], [6]], np.int32)]))
    yield ("at_f16", (lambda x, i, u: x.at[i].add(u), [x.astype(np.float16), rows, draw(3, 4, 5, dtype=np.float16)]))
    yield ("at_bf16", (lambda x, i, u: x.at[i].set(u), [x.astype(ml_dtypes.bfloat16), np.array([4, 1, 0, 5], np.int32), draw(3, 4, 5, dtype=ml_dtypes.bfloat16)]))
    yield "at_drop", (lambda x, i, u: x.at[i].add(u, mode="drop"), [x, wide, draw(3, 4, 5)])
    yield ("segment_sum", (lambda x, i: jax.ops.segment_sum(x, i, 4), [draw(1, 9), ints(2, 9, low=0, high=4)]))
    yield ("segment_max", (lambda x, i: jax.ops.segment_max(x, i, 4), [draw(1, 9), ints(2, 9, low=0, high=4)]))
    yield ("segment_prod", (lambda x, i: jax.ops.segment_prod(x, i, 4), [draw(1, 9), ints(2, 9, low=0, high=4)]))
    yield "bincount", (lambda i: jnp.bincount(i, length=6), [ints(1, 20, low=0, high=6)])
    yield "histogram", (lambda x: jnp.histogram(x, 5, range=(-2, 2))[0], [draw(1, 20)])
    yield "searchsorted", (jnp.searchsorted, [np.sort(draw(1, 9)), draw(2, 5)])
    yield "interp", (jnp.interp, [draw(1, 5), np.sort(draw(2, 7)), draw(3, 7)])
    yield "nonzero", (lambda x: jnp.nonzero(x, size=4), [flags(1, 9)])
    yield "unique", (lambda x: jnp.unique(x, size=6), [ints(1, 9, low=0, high=5)])
    yield ("choose", (lambda i, x: jnp.choose(i, [x, x * 2, x * 3], mode="clip"), [ints(1, 5, low=0, high=3), draw(2, 5)]))
    yield "select_list", (lambda x: jnp.select([x > 1, x > 0], [x * 2, x * 3], -1.0), [draw(1, 7)])
    yield "embedding_grad", (jax.grad(lambda x, i: jnp.sum(jnp.square(x[i]))), [x, rows])
    yield "gather_batched", (jax.vmap(lambda x, i: x[i]), [x, ints(2, 6, 2, low=0, high=5)])
    yield ("scatter_batched", (jax.vmap(lambda x, i, u: x.at[i].add(u)), [x, ints(2, 6, 2, low=0, high=5), draw(3, 6, 2)]))
    yield ("dynamic_slice_batched", (jax.vmap(lambda x, i: lax.dynamic_slice(x, (i,), (2,))), [x, ints(2, 6, low=0, high=5)]))
    yield ("map_coordinates", (lambda x, c: jax.scipy.ndimage.map_coordinates(x, [c, c], 1), [x, positive(2, 4)]))


def control() -> Rows:
    x = draw(1, 3, 4)
    yield "cond", (lambda x, p: lax.cond(p, jnp.sin, jnp.cos, x), [x, np.bool_(True)])
    yield ("cond_tuple", (lambda x, p: lax.cond(p > 0, lambda a: (a, a * 2), lambda a: (a + 1, a), x), [x, np.float32(-1)]))
    yield ("cond_nested", (lambda x, p: lax.cond(p > 0, lambda a: lax.cond(p > 5, jnp.sin, jnp.tan, a), lambda a: a * p, x), [x, np.float32(2)]))
    for index in (-3, 0, 1, 2, 9):
        yield (f"switch_{index}".replace("-", "m"), (lambda i, x: lax.switch(i, [jnp.sin, jnp.cos, jnp.tanh], x), [np.int32(index), x]))
    yield "fori", (lambda x: lax.fori_loop(0, 5, lambda i, a: a * 0.9 + i, x), [x])
    yield ("fori_dynamic", (lambda x, n: lax.fori_loop(0, n, lambda i, a: a * 0.9 + i, x), [x, np.int32(4)]))
    yield ("while", (lambda x: lax.while_loop(lambda s: s[0] < 10.0, lambda s: (s[0] * 1.7, s[1] + 1), (jnp.abs(x).sum() * 0.1 + 0.1, 0)), [x]))
    yield ("while_never", (lambda x: lax.while_loop(lambda s: s.sum() > 1e9, lambda s: s * 2, x), [x]))
    yield ("while_captures", (lambda x, w: lax.while_loop(lambda s: (s * w).sum() < 50.0, lambda s: s + jnp.abs(w), x), [x, draw(2, 3, 4)]))
    yield "scan", (lambda x: lax.scan(lambda c, a: (c + a, c * a), jnp.zeros(4), x), [x])
    yield ("scan_weights", (lambda x, w: lax.scan(lambda c, a: (jnp.tanh(c @ w + a), c), jnp.zeros(4), x), [draw(1, 5, 4), draw(2, 4, 4)]))
    yield ("scan_reverse", (lambda x: lax.scan(lambda c, a: (c + a, c), jnp.zeros(4), x, reverse=True), [x]))
    yield ("scan_unrolled", (lambda x: lax.scan(lambda c, a: (c + a, c), jnp.zeros(4), x, unroll=True), [x]))
    yield ("scan_grad", (jax.grad(lambda x, w: lax.scan(lambda c, a: (jnp.tanh(c @ w + a), c), jnp.zeros(4), x)[0].sum(), (0, 1)), [draw(1, 5, 4), draw(2, 4, 4)]))
    yield "map", (lambda x: lax.map(lambda a: jnp.sort(a) * 2, x), [x])
    yield ("scan_nested", (lambda x: lax.scan(lambda c, a: (lax.fori_loop(0, 3, lambda i, b: b * 0.5 + a, c), c), jnp.zeros(4), x), [x]))
    yield ("while_cond", (lambda x: lax.fori_loop(0, 6, lambda i, a: lax.cond(i % 2 == 0, lambda b: b + 1, lambda b: b * 0.5, a), x), [x]))
    yield ("while_vmap", (jax.vmap(lambda x: lax.while_loop(lambda s: s < 10.0, lambda s: s * 2.0, x)), [positive(1, 5)]))
    yield ("cond_vmap", (jax.vmap(lambda p, x: lax.cond(p, jnp.sin, jnp.cos, x)), [flags(1, 5), draw(1, 5)]))
    yield "fori_pred", (lambda x: lax.fori_loop(0, 3, lambda i, a: ~a, x), [flags(1, 5)])
    yield "platform", (lambda x: lax.platform_dependent(x, cpu=jnp.sin, default=jnp.cos), [x])


def sorting() -> Rows:
    x = draw(1, 4, 9)
    yield "sort", (jnp.sort, [x])
    yield "sort_axis0", (lambda x: jnp.sort(x, 0), [x])
    yield "sort_descending", (lambda x: jnp.sort(x, descending=True), [x])
    yield "argsort", (jnp.argsort, [x])
    yield "argsort_stable_ties", (jnp.argsort, [ints(1, 30, low=0, high=4)])
    yield "sort_pairs", (lambda k, v: lax.sort((k, v), num_keys=1), [ints(1, 9), draw(2, 9)])
    yield ("sort_two_keys", (lambda a, b: lax.sort((a, b), num_keys=2), [ints(1, 20, low=0, high=3), draw(2, 20)]))
    yield ("lexsort", (lambda a, b: jnp.lexsort((a, b)), [ints(1, 20, low=0, high=3), ints(2, 20, low=0, high=3)]))
    yield "top_k", (lambda x: lax.top_k(x, 3), [x])
    yield "top_k_s32", (lambda x: lax.top_k(x, 3), [ints(1, 4, 9)])
    yield "top_k_bf16", (lambda x: lax.top_k(x, 3), [x.astype(ml_dtypes.bfloat16)])
    yield "approx_max_k", (lambda x: lax.approx_max_k(x, 3), [x])
    yield "partition", (lambda x: jnp.partition(x, 3), [x])
    yield "median", (lambda x: jnp.median(x, 1), [x])
    yield "sort_f16", (jnp.sort, [x.astype(np.float16)])
    yield "sort_bool", (jnp.sort, [flags(1, 9)])
    yield "rank", (lambda x: jnp.argsort(jnp.argsort(x)), [x])
    yield "percentile", (lambda x: jnp.percentile(x, np.array([10.0, 50.0, 90.0])), [x])


def random_numbers() -> Rows:
    key = np.array([3, 9], np.uint32)
    for name, op in (
        ("uniform", lambda k: jax.random.uniform(k, (7,))),
        ("normal", lambda k: jax.random.normal(k, (7,))),
        ("bits", lambda k: jax.random.bits(k, (7,))),
        ("randint", lambda k: jax.random.randint(k, (7,), 0, 10)),
        ("bernoulli", lambda k: jax.random.bernoulli(k, 0.3, (7,))),
        ("categorical", lambda k: jax.random.categorical(k, jnp.log(jnp.array([0.1, 0.2, 0.7])), shape=(5,))),
        ("split", lambda k: jax.random.split(k, 3)),
        ("fold_in", lambda k: jax.random.fold_in(k, 5)),
        ("permutation", lambda k: jax.random.permutation(k, 9)),
        ("truncated", lambda k: jax.random.truncated_normal(k, -1.0, 1.0, (5,))),
        ("gumbel", lambda k: jax.random.gumbel(k, (5,))),
        ("exponential", lambda k: jax.random.exponential(k, (5,))),
        ("choice", lambda k: jax.random.choice(k, 9, (4,), replace=False)),
        ("dropout", lambda k: jnp.where(jax.random.bernoulli(k, 0.5, (8,)), 2.0, 0.0)),
    ):
        yield f"random_{name}", (op, [key])
    state = np.array([1, 2, 3, 4], np.uint32)
    for algorithm in ("THREE_FRY", "PHILOX", "DEFAULT"):
        chosen = getattr(lax.RandomAlgorithm, f"RNG_{algorithm}")
        yield (f"rng_{algorithm.lower()}", (lambda k, a=chosen: lax.rng_bit_generator(k, (5, 3), algorithm=a), [state]))
    yield "rng_u8", (lambda k: lax.rng_bit_generator(k, (9,), dtype=np.uint8), [state])


def networks() -> Rows:
    x, w1, w2 = draw(1, 4, 8), draw(2, 8, 16, scale=0.3), draw(3, 16, 3, scale=0.3)

    def loss(x: Any, w1: Any, w2: Any, y: Any) -> Any:
        logits = jax.nn.relu(x @ w1) @ w2
        return -jnp.mean(jnp.sum(jax.nn.log_softmax(logits) * jax.nn.one_hot(y, 3), -1))

    labels = np.array([0, 2, 1, 1], np.int32)
    for name in ("relu", "gelu", "silu", "softplus", "elu", "selu", "leaky_relu", "swish", "mish", "hard_tanh", "relu6", "glu", "log_sigmoid", "soft_sign", "celu", "hard_swish", "squareplus", "sparse_plus"):
        yield f"nn_{name}", (getattr(jax.nn, name), [draw(1, 3, 6)])
    yield "nn_gelu_exact", (partial(jax.nn.gelu, approximate=False), [draw(1, 3, 6)])
    yield "nn_one_hot", (lambda i: jax.nn.one_hot(i, 5), [ints(1, 4, low=0, high=5)])
    yield "nn_standardize", (jax.nn.standardize, [draw(1, 3, 6)])
    yield ("nn_attention", (jax.nn.dot_product_attention, [draw(1, 2, 5, 2, 8), draw(2, 2, 5, 2, 8), draw(3, 2, 5, 2, 8)]))
    yield ("nn_attention_causal", (partial(jax.nn.dot_product_attention, is_causal=True), [draw(1, 2, 5, 2, 8), draw(2, 2, 5, 2, 8), draw(3, 2, 5, 2, 8)]))
    yield "mlp_loss", (loss, [x, w1, w2, labels])
    yield "mlp_grad", (jax.grad(loss, (0, 1, 2)), [x, w1, w2, labels])
    yield ("mlp_bf16", (lambda x, a, b: jax.nn.gelu(x @ a) @ b, [v.astype(ml_dtypes.bfloat16) for v in (x, w1, w2)]))
    yield ("layer_norm", (lambda x: (x - x.mean(-1, keepdims=True)) * lax.rsqrt(x.var(-1, keepdims=True) + 1e-5), [x]))
    yield ("layer_norm_grad", (jax.grad(lambda x: jnp.sum(jnp.sin((x - x.mean(-1, keepdims=True)) * lax.rsqrt(x.var(-1, keepdims=True) + 1e-5)))), [x]))
    yield "hessian", (jax.hessian(lambda x: jnp.sum(jnp.tanh(x) ** 3)), [draw(1, 4)])
    yield "jacobian", (jax.jacrev(lambda x: jnp.sin(x) * x[0]), [draw(1, 4)])
    yield ("jvp", (lambda x, t: jax.jvp(lambda a: jnp.sin(a) * a, (x,), (t,)), [draw(1, 4), draw(2, 4)]))
    yield ("adam", (lambda w, g, m, v: w - 0.01 * (0.9 * m + 0.1 * g) / (jnp.sqrt(0.999 * v + 0.001 * g * g) + 1e-8), [draw(k, 5, 4) if k < 4 else positive(k, 5, 4) for k in (1, 2, 3, 4)]))
    yield ("batch_norm", (lambda x, g, b: (x - x.mean((0, 1, 2))) / jnp.sqrt(x.var((0, 1, 2)) + 1e-5) * g + b, [draw(1, 2, 4, 4, 3), draw(2, 3), draw(3, 3)]))
    yield ("rotary", (lambda x, t: jnp.concatenate([x[..., :4] * jnp.cos(t) - x[..., 4:] * jnp.sin(t), x[..., 4:] * jnp.cos(t) + x[..., :4] * jnp.sin(t)], -1), [draw(1, 3, 8), draw(2, 3, 4)]))
    yield ("kv_cache", (lambda c, k, i, q: jax.nn.softmax(jnp.where(jnp.arange(8) <= i, q @ lax.dynamic_update_slice(c, k, (i, 0)).T, -1e9)), [draw(1, 8, 4), draw(2, 1, 4), np.int32(3), draw(3, 2, 4)]))
    yield "image_resize", (lambda x: jax.image.resize(x, (6, 6), "bilinear"), [draw(1, 4, 4)])
    yield "image_nearest", (lambda x: jax.image.resize(x, (7, 5), "nearest"), [draw(1, 4, 4)])
    yield ("checkpoint", (jax.grad(lambda x: jnp.sum(jax.checkpoint(lambda a: jnp.sin(jnp.sin(a)))(x))), [draw(1, 5)]))


def calls() -> Rows:
    inner = jax.jit(lambda x: jnp.sin(x) * 2)
    outer = jax.jit(lambda x: inner(x) + inner(x + 1))
    yield "call_nested", (lambda x: outer(x) * inner(x), [draw(1, 4)])
    yield "call_tuple", (lambda x: jax.jit(lambda a: (a + 1, a * 2))(x), [draw(1, 4)])
    yield "call_unused", (lambda x, y: inner(x), [draw(1, 4), draw(2, 4)])
    yield "call_in_loop", (lambda x: lax.fori_loop(0, 3, lambda i, a: inner(a), x), [draw(1, 4)])
    yield "call_remat", (jax.remat(lambda x: inner(x).sum()), [draw(1, 4)])
    yield "custom_jvp", (lambda x: jax.nn.relu(x) + jax.nn.silu(x), [draw(1, 4)])
    yield "identity", (lambda x: x, [draw(1, 4)])
    yield "swap", (lambda x, y: (y, x), [draw(1, 4), draw(2, 3)])
    yield "constant_result", (lambda x: (x, 3.0), [draw(1, 4)])
    yield "same_twice", (lambda x: (x + 1, x + 1, x), [draw(1, 4)])
    yield "barrier", (lambda x: lax.optimization_barrier((x, x * 2)), [draw(1, 4)])
    yield ("pytree", (lambda d: {"a": d["x"] + 1, "b": [d["y"], d["x"]]}, [{"x": draw(1, 4), "y": draw(2, 3)}]))
    yield "scalar", (lambda x: x * 2 + 1, [np.float32(3)])
    yield "empty", (lambda x: jnp.sin(x), [draw(1, 0, 4)])


def transforms() -> Rows:
    x = draw(1, 4, 8)
    yield "rfft", (lambda x: jnp.abs(jnp.fft.rfft(x)), [x])
    yield "fft_real_imag", (lambda x: (jnp.fft.fft(x).real, jnp.fft.fft(x).imag), [x])
    yield "irfft", (lambda x: jnp.fft.irfft(jnp.fft.rfft(x)), [x])
    yield "fft2", (lambda x: jnp.abs(jnp.fft.fft2(x)), [x])
    yield ("fft_conv", (lambda x, y: jnp.fft.irfft(jnp.fft.rfft(x) * jnp.fft.rfft(y)), [x, draw(2, 4, 8)]))
    yield "complex_abs", (lambda x, y: jnp.abs(lax.complex(x, y)), [x, draw(2, 4, 8)])
    yield ("complex_multiply", (lambda x, y: (lax.complex(x, y) * lax.complex(y, x)).real, [x, draw(2, 4, 8)]))
    yield "complex_exp", (lambda x: jnp.exp(1j * x).imag, [x])
    yield ("complex_rotary", (lambda x, t: (lax.complex(x[:, :4], x[:, 4:]) * jnp.exp(1j * t)).real, [x, draw(2, 4, 4)]))
    yield "complex_input", (lambda x: x * 2, [(x + 1j * x).astype(np.complex64)])


def collectives() -> Rows:
    mesh = jax.make_mesh((4, 2), ("x", "y"), axis_types=(AxisType.Auto, AxisType.Auto))
    one = jax.make_mesh((1,), ("x",), axis_types=(AxisType.Auto,))
    data = draw(1, 8, 4)

    def mapped(function: Callable[..., Any], into: Any, out: Any, over: Any = mesh) -> Any:
        return jax.shard_map(function, mesh=over, in_specs=into, out_specs=out, check_vma=False)

    yield "shard_psum", (mapped(lambda x: lax.psum(x, "x"), P("x"), P()), [data])
    yield "shard_pmean", (mapped(lambda x: lax.pmean(x, ("x", "y")), P("x", "y"), P()), [data])
    yield "shard_pmax", (mapped(lambda x: lax.pmax(x, "y"), P("x", "y"), P("x")), [data])
    yield ("shard_all_gather", (mapped(lambda x: lax.all_gather(x, "x", tiled=True), P("x"), P()), [data]))
    yield ("shard_all_gather_untiled", (mapped(lambda x: lax.all_gather(x, "y"), P("x", "y"), P(None, "x")), [data]))
    yield ("shard_reduce_scatter", (mapped(lambda x: lax.psum_scatter(x, "x", tiled=True), P(None, "y"), P("x", "y")), [data]))
    yield ("shard_all_to_all", (mapped(lambda x: lax.all_to_all(x, "x", 1, 0, tiled=True), P("x"), P(None, "x")), [data]))
    yield ("shard_permute", (mapped(lambda x: lax.ppermute(x, "x", [(0, 1), (1, 2), (2, 3), (3, 0)]), P("x"), P("x")), [data]))
    yield ("shard_permute_partial", (mapped(lambda x: lax.ppermute(x, "x", [(0, 1), (2, 0)]), P("x"), P("x")), [data]))
    yield ("shard_axis_index", (mapped(lambda x: x + lax.axis_index("x").astype(np.float32), P("x"), P("x")), [data]))
    yield "shard_elementwise", (mapped(jnp.sin, P("x", "y"), P("x", "y")), [data])
    yield ("shard_matmul", (mapped(lambda x, w: lax.psum(x @ w, "x"), (P(None, "x"), P("x", None)), P()), [draw(1, 3, 8), draw(2, 8, 5)]))
    yield ("shard_loop", (mapped(lambda x: lax.fori_loop(0, 3, lambda i, a: a * 0.5 + 1, x), P("x"), P("x")), [data]))
    yield ("shard_ring", (mapped(lambda x: lax.fori_loop(0, 4, lambda i, a: lax.ppermute(a, "x", [(0, 1), (1, 2), (2, 3), (3, 0)]) + 1, x), P("x"), P("x")), [data]))
    yield "shard_one_device", (mapped(lambda x: lax.psum(x, "x") * 2, P("x"), P(), one), [data])
    yield ("sharding_constraint", (lambda x: lax.with_sharding_constraint(x * 2, jax.sharding.NamedSharding(mesh, P("x", "y"))), [data]))


def libraries() -> Rows:
    square = draw(1, 4, 4)
    definite = square @ square.T + 4 * np.eye(4, dtype=np.float32)
    yield "cholesky", (jnp.linalg.cholesky, [definite])
    yield ("triangular_solve", (lambda a, b: jax.scipy.linalg.solve_triangular(a, b, lower=True), [np.tril(definite), draw(2, 4, 2)]))
    yield "solve", (jnp.linalg.solve, [definite, draw(2, 4, 2)])
    yield "inv", (jnp.linalg.inv, [definite])
    yield "det", (jnp.linalg.det, [definite])
    yield "qr", (jnp.linalg.qr, [square])
    yield "matrix_power", (lambda a: jnp.linalg.matrix_power(a, 3), [square])
    yield "expm", (jax.scipy.linalg.expm, [square * 0.1])
