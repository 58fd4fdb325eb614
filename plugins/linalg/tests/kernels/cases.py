"""The bodies that the tests' library has kernels for, by name."""

from __future__ import annotations

from .fused_models import Case

UNARY = [
    "Neg",
    "Abs",
    "Exp",
    "Log",
    "Sqrt",
    "Tanh",
    "Erf",
    "Sin",
    "Cos",
    "Tan",
    "Sinh",
    "Cosh",
    "Asin",
    "Acos",
    "Atan",
    "Asinh",
    "Acosh",
    "Atanh",
    "Floor",
    "Ceil",
    "Round",
    "Sigmoid",
    "Softplus",
    "Sign",
    "Reciprocal",
    "Relu",
    "Softsign",
    "Mish",
    "LeakyRelu",
    "Elu",
    "Selu",
    "ThresholdedRelu",
    "HardSigmoid",
    "HardSwish",
    "Gelu",
]
BINARY = ["Add", "Sub", "Mul", "Div", "Max", "Min", "Pow", "Mod", "PRelu"]
COMPARISONS = ["Equal", "Less", "Greater", "LessOrEqual", "GreaterOrEqual"]
REDUCTIONS = [
    "ReduceSum",
    "ReduceMean",
    "ReduceProd",
    "ReduceMax",
    "ReduceMin",
    "ReduceSumSquare",
    "ReduceL1",
    "ReduceL2",
    "ReduceLogSum",
    "ReduceLogSumExp",
]

AXIS = "a = Constant<value = int64[1] {-1}>()\n"

ELEMENT_WISE = {
    **{name: Case("float[N] x", f"y = {name}(x)") for name in UNARY},
    "Gelu tanh": Case("float[N] x", 'y = Gelu<approximate="tanh">(x)'),
    "Clip": Case(
        "float[N] x",
        "l = Constant<value = float {-1.0}>()\nh = Constant<value = float {2.0}>()\ny = Clip(x, l, h)",
    ),
    "Clip at 0": Case("float[N] x", "l = Constant<value = float {0.0}>()\ny = Clip(x, l)"),
    **{
        name: Case("float[N] x", f"c = Constant<value = float {{{value}}}>()\ny = {call}")
        for name, value, call in (
            ("Max with 0", "0.0", "Max(x, c)"),
            ("Max of -0", "-0.0", "Max(c, x)"),
            ("Min with 0", "0.0", "Min(c, x)"),
            ("Min with -0", "-0.0", "Min(x, c)"),
        )
    },
    "Cast to int64 and back": Case("float[N] x", "i = Cast<to = 7>(x)\ny = Cast<to = 1>(i)"),
    "Cast to int32 and back": Case("float[N] x", "i = Cast<to = 6>(x)\ny = Cast<to = 1>(i)"),
    "Pow 3 as an integer": Case("float[N] x", "e = Constant<value = int64 {3}>()\ny = Pow(x, e)"),
    "IsNaN": Case("float[N] x", "y = IsNaN(x)", "bool[…] y"),
    "IsInf": Case("float[N] x", "y = IsInf(x)", "bool[…] y"),
    "Cast to double": Case("float[N] x", "y = Cast<to = 11>(x)", "double[…] y"),
    "Cast to int64": Case("float[N] x", "y = Cast<to = 7>(x)", "int64[…] y"),
    "Cast to int32": Case("float[N] x", "y = Cast<to = 6>(x)", "int32[…] y"),
    "Cast to bool": Case("float[N] x", "y = Cast<to = 9>(x)", "bool[…] y"),
    **{
        name: Case(
            "float[N] x, float[N] z", f"y = {name}{'<fmod = 1>' if name == 'Mod' else ''}(x, z)"
        )
        for name in BINARY
    },
    **{
        name: Case("float[N] x, float[N] z", f"y = {name}(x, z)", "bool[…] y")
        for name in COMPARISONS
    },
    **{
        f"Pow {each}": Case(
            "float[N] x", f"e = Constant<value = float {{{each}}}>()\ny = Pow(x, e)"
        )
        for each in (2.0, 3.0, 0.5)
    },
    **{
        f"{name} of a quotient": Case(
            "float[N] x",
            f"c = Constant<value = float {{7.0}}>()\nq = Div(x, c)\nf = {name}(q)\ny = Neg(f)",
        )
        for name in ("Erf", "Floor")
    },
    "double": Case("double[N] d", "y = Exp(d)\n", "double[…] y"),
}

ROWS = {
    **{name: Case("float[M, N] x", f"{AXIS}y = {name}(x, a)") for name in REDUCTIONS},
    "Softmax": Case("float[M, N] x", "y = Softmax(x)"),
    "LogSoftmax": Case("float[M, N] x", "y = LogSoftmax(x)"),
    "LayerNormalization": Case(
        "float[M, N] x, float[N] g, float[N] b", "y = LayerNormalization(x, g, b)"
    ),
    "Quotient by a root": Case(
        "float[M, N] x", f"{AXIS}s = Mul(x, x)\nm = ReduceMean(s, a)\nr = Sqrt(m)\ny = Div(x, r)"
    ),
    "Floor of a quotient by a root": Case(
        "float[M, N] x", f"{AXIS}r = ReduceL2(x, a)\nq = Div(x, r)\ny = Floor(q)"
    ),
    "Comparison of a quotient by a root": Case(
        "float[M, N] x",
        f"{AXIS}o = Constant<value = float {{1.0}}>()\nr = ReduceL2(x, a)\nq = Div(x, r)\n"
        "s = ReduceSum(q, a)\nl = Less(s, o)\nz = Cast<to = 1>(l)\ny = Sub(q, z)",
    ),
    "ReduceMean without its axis": Case(
        "float[M, N] x", f"{AXIS}y = ReduceMean<keepdims = 0>(x, a)"
    ),
}

LAYOUTS = {
    "residual": Case("float[A, B, N] x, float[A, B, N] z, float[N] g, float[N] b", "h = Add(x, z)\ny = LayerNormalization(h, g, b)",
                     "float[…] y, float[…] h"),
    "broadcast": Case("float[A, B, N] p, float[C, D, E] q, float[F] r", "s = Add(p, q)\nt = Mul(s, r)\ny = Sub(t, p)"),
    "masked softmax": Case("float[A, H, S, T] p, float[B, 1, S2, T2] q", "s = Add(p, q)\ny = Softmax(s)"),
    "norm of doubles": Case("double[M, N] d", "g = Constant<value = double {1.0}>()\ns = LayerNormalization(d, g)\ny = Neg(s)", "double[…] y"),
    "outputs of two sizes": Case("bool[A, B, C] m, float[D, E, F] q",
                                 "f = Constant<value = float {1.0}>()\ng = Constant<value = float {-9.0}>()\nw = Where(m, f, g)\n"
                                 "s = Add(w, q)\ny = Softmax(s)", "float[…] w, float[…] y"),
    "rotary": Case("float[A, S, H, D] p, float[1, 1, S, D] q, float[1, 1, S, D] r",
                   "t = Transpose<perm = [0, 2, 1, 3]>(p)\nz = Constant<value = int64[1] {0}>()\nh = Constant<value = int64[1] {4}>()\n"
                   "e = Constant<value = int64[1] {9223372036854775807}>()\na = Constant<value = int64[1] {3}>()\n"
                   "one = Constant<value = int64[1] {1}>()\nu = Slice(t, z, h, a, one)\nv = Slice(t, h, e, a, one)\nn = Neg(v)\n"
                   "c = Concat<axis = -1>(n, u)\ni = Mul(t, q)\nj = Mul(c, r)\ny = Add(i, j)"),
    "norm then rotary": Case("float[A, S, H, D] p, float[D] g, float[1, 1, S, D] q, float[1, 1, S, D] r",
                   "k = Constant<value = int64[1] {-1}>()\nm = Mul(p, p)\nw = ReduceMean(m, k)\nx = Sqrt(w)\nf = Div(p, x)\nb = Mul(f, g)\n"
                   "t = Transpose<perm = [0, 2, 1, 3]>(b)\nz = Constant<value = int64[1] {0}>()\nh = Constant<value = int64[1] {4}>()\n"
                   "e = Constant<value = int64[1] {9223372036854775807}>()\na = Constant<value = int64[1] {3}>()\n"
                   "one = Constant<value = int64[1] {1}>()\nu = Slice(t, z, h, a, one)\nv = Slice(t, h, e, a, one)\nn = Neg(v)\n"
                   "c = Concat<axis = -1>(n, u)\ni = Mul(t, q)\nj = Mul(c, r)\ny = Add(i, j)"),
    "heads": Case("float[A, S, N] p, float[M] q", "k = Constant<value = int64[4] {0, 0, 3, 8}>()\ns = Add(p, q)\n"
                  "r = Reshape(s, k)\ny = Transpose<perm = [0, 2, 1, 3]>(r)"),
    "heads of keys": Case("float[A, S, N] p, float[M] q", "k = Constant<value = int64[4] {0, 0, -1, 8}>()\ns = Add(p, q)\nt = Relu(s)\n"
                          "r = Reshape(t, k)\ny = Transpose<perm = [0, 2, 3, 1]>(r)"),
    "heads in three": Case("float[S, N] p", "k = Constant<value = int64[4] {0, 2, 3, 4}>()\nr = Reshape(p, k)\n"
                           "t = Transpose<perm = [2, 0, 1, 3]>(r)\nu = Exp(t)\ny = Neg(u)"),
    "queries of three": Case("float[A, S, N] p, float[M] q", "k = Constant<value = int64[5] {0, 0, 3, 2, 4}>()\ni = Constant<value = int64 {0}>()\n"
                             "s = Add(p, q)\nr = Reshape(s, k)\nt = Transpose<perm = [2, 0, 3, 1, 4]>(r)\nu = Gather<axis = 0>(t, i)\ny = Neg(u)"),
    "keys of three": Case("float[A, S, N] p, float[M] q", "k = Constant<value = int64[5] {0, 0, 3, 2, 4}>()\ni = Constant<value = int64 {1}>()\n"
                          "s = Add(p, q)\nr = Reshape(s, k)\nt = Transpose<perm = [2, 0, 3, 1, 4]>(r)\nu = Gather<axis = 0>(t, i)\ny = Neg(u)"),
    "one head": Case("float[A, S, N] p", "k = Constant<value = int64[4] {0, 0, 3, 8}>()\ni = Constant<value = int64 {0}>()\n"
                     "r = Reshape(p, k)\nt = Transpose<perm = [0, 2, 1, 3]>(r)\nu = Gather<axis = 1>(t, i)\nv = Erf(u)\ny = Neg(v)"),
    "last heads": Case("float[S, N] p, float[M] q", "i = Constant<value = int64[1] {1}>()\nj = Constant<value = int64[1] {9}>()\n"
                       "k = Constant<value = int64[3] {0, 3, 8}>()\nm = Add(p, q)\nr = Reshape(m, k)\ns = Slice(r, i, j, i)\ny = Tanh(s)"),
    "rotary of heads": Case("float[A, S, N] p, float[1, 1, S, D] q, float[1, 1, S, D] r",
                   "k = Constant<value = int64[4] {0, 0, 3, 8}>()\nw = Reshape(p, k)\nt = Transpose<perm = [0, 2, 1, 3]>(w)\n"
                   "z = Constant<value = int64[1] {0}>()\nh = Constant<value = int64[1] {4}>()\n"
                   "e = Constant<value = int64[1] {9223372036854775807}>()\na = Constant<value = int64[1] {3}>()\n"
                   "one = Constant<value = int64[1] {1}>()\nu = Slice(t, z, h, a, one)\nv = Slice(t, h, e, a, one)\nn = Neg(v)\n"
                   "c = Concat<axis = -1>(n, u)\ni = Mul(t, q)\nj = Mul(c, r)\ny = Add(i, j)"),
    "three axes turned": Case("float[A, B, C, N] p, float[D, E, F, M] q",
                              "k = Constant<value = int64[1] {-1}>()\nm = ReduceMax(p, k)\nf = Sub(p, m)\ng = Exp(f)\n"
                              "t = Transpose<perm = [1, 2, 0, 3]>(g)\ny = Add(t, q)"),
    "transposed": Case("float[A, B, N] p, float[N, B] q", "t = Transpose<perm = [1, 0]>(q)\ns = Add(p, t)\ny = Tanh(s)"),
    "columns": Case("float[A, B, N] p, float[N] q", "s = Add(p, q)\ny = Transpose<perm = [0, 2, 1]>(s)"),
    "columns of doubles": Case("double[A, N] d", "t = Transpose(d)\ny = Neg(t)", "double[…] y"),
    "columns of bools": Case("bool[A, N] m", "t = Transpose(m)\ny = Not(t)", "bool[…] y"),
    "softmax of columns": Case("float[A, N] p, float[B, M] q, float[B] r",
                               "s = Add(p, q)\nt = Transpose(s)\nu = Add(t, r)\ny = Softmax(u)"),
    "strided": Case("float[A, N] p", "b = Constant<value = int64[1] {1}>()\ne = Constant<value = int64[1] {9223372036854775807}>()\n"
                    "a = Constant<value = int64[1] {1}>()\nt = Constant<value = int64[1] {2}>()\ns = Slice(p, b, e, a, t)\n"
                    "u = Exp(s)\ny = Add(u, s)"),
    "recurrence": Case("float[A, B, T, N] p, float[A, B, T, N] q, float[A, B, N] h",
                       "".join(f"i{n} = Constant<value = int64 {{{n}}}>()\np{n} = Gather<axis = 2>(p, i{n})\n"
                               f"q{n} = Gather<axis = 2>(q, i{n})\nm{n} = Mul(p{n}, {f'h{n - 1}' if n else 'h'})\n"
                               f"h{n} = Add(m{n}, q{n})\n" for n in range(3)), "float[…] h0, float[…] h1, float[…] h2"),
    "first place": Case("float[A, B, N] p", "i = Constant<value = int64 {0}>()\ns = Gather<axis = 1>(p, i)\nt = Exp(s)\ny = Neg(t)"),
    "triangle": Case("float[A, B, N] p", "s = Exp(p)\nt = Trilu(s)\ny = Mul(t, p)"),
    "numbers": Case("int64 i, int64 j", "s = Mul(i, j)\nt = Div(s, i)\ny = Sub(t, j)", "int64[…] y"),
    "least of 32 bits": Case("int64[N] i", "c = Constant<value = int64 {-2147483648}>()\nd = Constant<value = int64 {-9223372036854775808}>()\n"
                             "s = Add(i, c)\nt = Mul(s, i)\ny = Max(t, d)", "int64[…] y"),
    "sum of broadcast": Case("float[A, N] p, float[A, N] q", f"{AXIS}s = Add(p, q)\nt = Relu(s)\ny = ReduceSum(t, a)"),
    "shape": Case("int64 i, int64 j", "o = Constant<value = int64[1] {0}>()\nu = Unsqueeze(i, o)\nv = Unsqueeze(j, o)\n"
                  "c = Constant<value = int64[2] {7, 7}>()\ny = Concat<axis = 0>(u, c, v)", "int64[…] y"),
    "row of one reduced": Case("float[A, N] p, float[B, C] q", f"{AXIS}s = ReduceSum(p, a)\nt = Mul(p, q)\ny = Add(s, t)"),
}  # fmt: skip

CASES = {**ELEMENT_WISE, **ROWS, **LAYOUTS}
