"""Scalar functions in C that compilers vectorize, with ONNX's special values.

The polynomials come from ``fit.py``. Largest error, on all exponents
(``plugins/linalg/tests/kernels``): exp 1.1 ulp, log 0.8, log1p 2.4, tanh 5.4, erf 5; sigmoid and
softplus are payloads built from these. Every function ends by returning a NaN that it was given.
Other functions are C's own, which no compiler vectorizes.
"""

from __future__ import annotations

PRELUDE = r"""
#include <float.h>
#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define FN static inline __attribute__((always_inline, unused))

FN uint32_t bits_f32(float x) { uint32_t b; memcpy(&b, &x, 4); return b; }
FN float f32_bits(uint32_t b) { float x; memcpy(&x, &b, 4); return x; }

/* The lesser of a and a positive b by their bits, which is one instruction; loses a NaN. */
FN float least_f32(float a, float b) {
  int32_t m = (int32_t)bits_f32(a), n = (int32_t)bits_f32(b);
  return f32_bits((uint32_t)(m < n ? m : n));
}

/* A number of at least 0 with the sign of x. */
FN float signed_f32(float a, float x) {
  return f32_bits(bits_f32(a) | (bits_f32(x) & 0x80000000u));
}

/* a b + c in one instruction, where the CPU has it. */
#if defined(__FMA__) || defined(__aarch64__)
#define MAD(a, b, c) __builtin_fmaf(a, b, c)
#else
#define MAD(a, b, c) ((a) * (b) + (c))
#endif
"""

FUNCTIONS: dict[str, str] = {
    "exp_f32": r"""
/* exp(n ln2 + r) = 2^n exp(r); 2^n in two steps, as n may be no exponent of a float. Where the
   result is 0, one factor is 0: a product that underflows is slow, and a mask gives many. */
FN float exp_f32(float x) {
  uint32_t kept = x > -104.0f ? UINT32_MAX : 0;
  float c = least_f32(f32_bits(bits_f32(x) & kept), 89.0f);
  float k = MAD(c, 0x1.715476p0f, 0x1.8p23f);
  uint32_t n = bits_f32(k) << 23; /* as an exponent, of 9 bits */
  k -= 0x1.8p23f;
  float r = MAD(-k, 0x1.7f7d1cp-20f, MAD(-k, 0x1.62e4p-1f, c));
  float p = 0.0013901533f;
  p = MAD(p, r, 0.00836374f);
  p = MAD(p, r, 0.04166686f);
  p = MAD(p, r, 0.16666573f);
  p = MAD(p, r, 0.5f);
  p = MAD(p, r * r, r) + 1.0f;
  uint32_t half = (uint32_t)((int32_t)n >> 24) << 23;
  float y = f32_bits(bits_f32(p) + half) * f32_bits((n - half + 0x3f800000u) & kept);
  return x != x ? x : y;
}
""",
    "log_f32": r"""
/* log(2^e (1 + f)) = e ln2 + log(1 + f); NaN below 0, -inf at 0; a denormal is scaled up first. */
FN float log_f32(float x) {
  float s = x < FLT_MIN ? x * 0x1p25f : x;
  uint32_t b = bits_f32(s) - 0x3f3504f3u;
  float e = (float)((int32_t)b >> 23) - (x < FLT_MIN ? 25.0f : 0.0f);
  float f = f32_bits((b & 0x7fffffu) + 0x3f3504f3u) - 1.0f;
  float p = 0.07037678f;
  p = MAD(p, f, -0.11514611f);
  p = MAD(p, f, 0.11677001f);
  p = MAD(p, f, -0.12420141f);
  p = MAD(p, f, 0.14249323f);
  p = MAD(p, f, -0.16668057f);
  p = MAD(p, f, 0.20000714f);
  p = MAD(p, f, -0.24999994f);
  p = MAD(p, f, 0.3333333f);
  float ff = f * f;
  float y = MAD(e, -0x1.bd0106p-13f, p * f * ff);
  y = MAD(e, 0x1.63p-1f, MAD(-0.5f, ff, y) + f);
  y = x == 0.0f ? -INFINITY : y;
  y = x < 0.0f ? NAN : y;
  y = x == INFINITY ? x : y;
  return x != x ? x : y;
}
""",
    "log1p_f32": r"""
/* log(1 + x) without the digits that 1 + x loses: log(u) x / (u - 1) for the rounded u. */
FN float log1p_f32(float x) {
  float u = 1.0f + x, d = u - 1.0f;
  float y = d == 0.0f ? x : log_f32(u) * (x / d);
  return x == INFINITY || x != x ? x : y;
}
""",
    "tanh_f32": r"""
/* x P(x²) / Q(x²); where x² is cut off, the quotient is above 1. */
FN float tanh_f32(float x) {
  float u = least_f32(x * x, 81.0f);
  float p = 2.5791354e-14f;
  p = MAD(p, u, -3.1748514e-11f);
  p = MAD(p, u, 4.5737078e-08f);
  p = MAD(p, u, 3.300381e-05f);
  p = MAD(p, u, 0.004094273f);
  p = MAD(p, u, 0.13855912f);
  p = MAD(p, u, 1.0f);
  float q = 1.6699998e-06f;
  q = MAD(q, u, 0.0004350711f);
  q = MAD(q, u, 0.028058426f);
  q = MAD(q, u, 0.47189245f);
  q = MAD(q, u, 1.0f);
  float y = signed_f32(least_f32(f32_bits(bits_f32(x * p / q) & 0x7fffffffu), 1.0f), x);
  return x != x ? x : y;
}
""",
    "erf_f32": r"""
/* As tanh. */
FN float erf_f32(float x) {
  float u = least_f32(x * x, 16.0f);
  float p = -1.3202219e-08f;
  p = MAD(p, u, 4.684775e-06f);
  p = MAD(p, u, 0.0003796088f);
  p = MAD(p, u, 0.0038496132f);
  p = MAD(p, u, 0.054316916f);
  p = MAD(p, u, 0.18520327f);
  p = MAD(p, u, 1.1283792f);
  float q = 6.311056e-05f;
  q = MAD(q, u, 0.0013075701f);
  q = MAD(q, u, 0.015462093f);
  q = MAD(q, u, 0.11395843f);
  q = MAD(q, u, 0.49746552f);
  q = MAD(q, u, 1.0f);
  float y = signed_f32(least_f32(f32_bits(bits_f32(x * p / q) & 0x7fffffffu), 1.0f), x);
  return x != x ? x : y;
}
""",
}

NEEDS = {"log1p_f32": ("log_f32",)}
"""Functions that a function calls."""

COMMON = r"""
/* A NaN on either side stays; of equal operands the second is taken, as ONNX Runtime does. */
#define CHOOSE(T, S) \
  FN T max_##S(T a, T b) { T m = a > b ? a : b; return a != a ? a : m; } \
  FN T min_##S(T a, T b) { T m = a < b ? a : b; return a != a ? a : m; }
CHOOSE(float, f32)
CHOOSE(double, f64)

/* Integers wrap around; a division by 0 gives 0. A cast to an integer and back is no truncation,
   which would keep the sign of -0.5. */
#define WRAP(T, U, S, LEAST) \
  FN T add_##S(T a, T b) { return (T)((U)a + (U)b); } \
  FN T sub_##S(T a, T b) { return (T)((U)a - (U)b); } \
  FN T mul_##S(T a, T b) { return (T)((U)a * (U)b); } \
  FN T abs_##S(T a) { return a < 0 ? (T)(0 - (U)a) : a; } \
  FN T div_##S(T a, T b) { return b == 0 ? 0 : b == -1 ? (T)(0 - (U)a) : a / b; } \
  FN T rem_##S(T a, T b) { return b == 0 || b == -1 ? 0 : a % b; } \
  FN T max_##S(T a, T b) { return a > b ? a : b; } \
  FN T min_##S(T a, T b) { return a < b ? a : b; } \
  FN T to_##S(double x) { \
    x = x > -1 && x < 1 ? 0 : x; \
    return x >= (double)LEAST && x < -(double)LEAST ? (T)x : LEAST; }
WRAP(int32_t, uint32_t, i32, INT32_MIN)
WRAP(int64_t, uint64_t, i64, INT64_MIN)

/* C's pow, but for exponents that are multiplied out or are a root; compilers take sqrt for 0.5
   at -inf, too. */
#define POW(T, S, F) \
  FN T pow_##S(T x, T y) { \
    return y == 2 ? x * x : y == 3 ? x * x * x : y != (T)0.5 ? pow##F(x, y) \
           : x == -INFINITY ? INFINITY : sqrt##F(x + 0); }
POW(float, f32, f)
POW(double, f64, )
"""
