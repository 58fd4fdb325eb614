"""Every recorded program gives XLA's numbers, or is refused by name."""

from __future__ import annotations

import re

import numpy as np
import pytest

from gehost_hlo import UntranslatableError

from .recorded import difference, imported, programs, run

TOLERANCE = 2e-6
"""In units of the largest number of an output; ONNX Runtime and XLA round float32 differently."""
COARSE = {
    "more/bf16_more": 8e-3,
    "small/bf16": 8e-3,
    "more/f16": 1e-3,
    "more/mixed_dots": 8e-3,
    "more/random_truncated": 8e-3,
}
"""Programs in 16-bit floats: XLA leaves out the rounding between the steps that it fuses."""
REFUSED = {
    "more/cholesky": 'a custom call of "lapack_spotrf_ffi"',
    "more/complex": "c64 has no ONNX type",
    "more/fft": "fft is not translated",
    "more/rbg": "rng-bit-generator is not translated",
    "wide/double_erf": "ONNX Runtime has no Erf for f64",
}
NAMES = sorted(programs())
SHARDED = {"corpus/sharded"}
"""After XLA's passes the program belongs to one of eight devices and is not run."""


@pytest.mark.parametrize("name", [name for name in NAMES if name not in REFUSED])
def test_numbers_are_those_of_xla(name: str) -> None:
    program = programs()[name]
    actual = run(imported(program.text), program.inputs)
    assert difference(actual, program.outputs) <= COARSE.get(name, TOLERANCE)


@pytest.mark.parametrize("name", sorted(REFUSED))
def test_programs_without_a_translation_are_refused_by_name(name: str) -> None:
    with pytest.raises(UntranslatableError, match=re.escape(REFUSED[name])) as raised:
        imported(programs()[name].text)
    assert all(instruction for _, instruction, _ in raised.value.problems)


@pytest.mark.parametrize("fusions", ["functions", "inline"])
@pytest.mark.parametrize(
    "name", [name for name in NAMES if programs()[name].after and name not in SHARDED]
)
def test_numbers_after_xlas_passes_are_those_before(name: str, fusions: str) -> None:
    program = programs()[name]
    actual = run(imported(program.after, fusions=fusions), program.inputs)
    assert difference(actual, program.outputs) <= TOLERANCE


@pytest.mark.parametrize("scale", ["corpus", "corpus_0.05"])
@pytest.mark.parametrize("name", ["block", "block_step", "mlp", "scan"])
def test_the_error_is_no_larger_than_four_times_that_of_xla(name: str, scale: str) -> None:
    """Both are compared with the same import in float64, on inputs of unit size and on small ones."""
    program = programs()[f"{scale}/{name}"]
    exact = imported(re.sub(r"\bf32\[", "f64[", program.text))
    inputs = [
        array.astype(np.float64) if array.dtype == np.float32 else array for array in program.inputs
    ]
    reference = run(exact, inputs)
    actual = run(imported(program.text), program.inputs)
    for index, expected in enumerate(reference):
        ours = np.abs(actual[index] - expected).max()
        xla = np.abs(program.outputs[index] - expected).max()
        rounding = np.finfo(np.float32).eps * np.abs(expected).max()
        assert ours <= 4 * max(xla, rounding), (index, ours, xla)


NUMBERS = [1.5, 449, 470, 1e9, -300, np.nan, -1.7, np.inf, 0.4]
NAN, INF = np.nan, np.inf
CONVERTED = {
    "f8e4m3fn": [1.5, 448, NAN, NAN, -288, NAN, -1.75, NAN, 0.40625],
    "f8e5m2": [1.5, 448, 448, INF, -320, NAN, -1.75, INF, 0.375],
    "f8e4m3fnuz": [1.5, NAN, NAN, NAN, NAN, NAN, -1.75, NAN, 0.40625],
    "f8e5m2fnuz": [1.5, 448, 448, NAN, -320, NAN, -1.75, NAN, 0.375],
    "s4": [1, 7, 7, 7, -8, 0, -1, 7, 0],
    "u4": [1, 15, 15, 15, 0, 0, 0, 15, 0],
    "s8": [1, 127, 127, 127, -128, 0, -1, 127, 0],
    "u8": [1, 255, 255, 255, 0, 0, 0, 255, 0],
    "s32": [1, 449, 470, 1e9, -300, 0, -1, 2147483647, 0],
    "f16": [1.5, 449, 470, INF, -300, NAN, -1.7, INF, 0.4],
}
"""What XLA (jax 0.10.2 on a CPU) converts ``NUMBERS`` to: out of range, between numbers, no number."""


@pytest.mark.parametrize("kind", CONVERTED)
def test_conversions_to_narrow_types_are_those_of_xla(kind: str) -> None:
    text = f"""ENTRY e {{
        x = f32[9] parameter(0)
        y = {kind}[9] convert(x)
        ROOT z = f32[9] convert(y)
    }}"""
    (actual,) = run(imported(text), [np.array(NUMBERS, np.float32)])
    np.testing.assert_allclose(actual, CONVERTED[kind], rtol=1e-3)


def test_the_angle_of_negative_zero_is_that_of_xla() -> None:
    """The constant is broadcast, where ONNX Runtime's Where loses the sign of -0."""
    text = """ENTRY e {
        y = f32[1,3] constant({ {0, -0, 1} })
        a = f32[3] reshape(y)
        b = f32[2,3] broadcast(a), dimensions={1}
        x = f32[2,3] parameter(0)
        ROOT z = f32[2,3] atan2(b, x)
    }"""
    x = np.array([[-1, -1, -1], [-0.0, -0.0, 0]], np.float32)
    (actual,) = run(imported(text), [x])
    expected = [[np.pi, -np.pi, 0.75 * np.pi], [np.pi, -np.pi, np.pi / 2]]
    np.testing.assert_allclose(actual, expected, rtol=1e-6)


@pytest.mark.parametrize(
    ("kind", "expected"), [("s4", [[7, -5], [-4, -5]]), ("u4", [[7, 11], [12, 11]])]
)
def test_reductions_of_4_bit_integers(kind: str, expected: list[list[int]]) -> None:
    """Sums wrap."""
    low = -8 if kind == "s4" else 0
    text = f"""
        most {{ a = {kind}[] parameter(0) b = {kind}[] parameter(1) ROOT c = {kind}[] maximum(a, b) }}
        add {{ d = {kind}[] parameter(0) e = {kind}[] parameter(1) ROOT f = {kind}[] add(d, e) }}
        ENTRY e {{
            x = s32[2,3] parameter(0)
            y = {kind}[2,3] convert(x)
            low = {kind}[] constant({low})
            zero = {kind}[] constant(0)
            m = {kind}[2] reduce(y, low), dimensions={{1}}, to_apply=most
            s = {kind}[2] reduce(y, zero), dimensions={{1}}, to_apply=add
            mw = s32[2] convert(m)
            sw = s32[2] convert(s)
            ROOT t = (s32[2], s32[2]) tuple(mw, sw)
        }}"""
    most, total = run(imported(text), [np.array([[7, 5, 0], [-8, -8, -5]], np.int32)])
    assert [most.tolist(), total.tolist()] == expected


@pytest.mark.parametrize("kind", ["s4", "u4", "f8e4m3fn", "f8e5m2", "bf16"])
def test_narrow_types_are_moved(kind: str) -> None:
    """ONNX Runtime has no Expand, Reshape or Transpose of them; wider types carry them."""
    text = f"""ENTRY e {{
        x = f32[2] parameter(0)
        y = {kind}[2] convert(x)
        b = {kind}[3,2] broadcast(y), dimensions={{1}}
        r = {kind}[6] reshape(b)
        s = {kind}[3] slice(r), slice={{[1:6:2]}}
        t = {kind}[2,3] transpose(b), dimensions={{1,0}}
        bw = f32[3,2] convert(b)
        sw = f32[3] convert(s)
        tw = f32[2,3] convert(t)
        ROOT o = (f32[3,2], f32[3], f32[2,3]) tuple(bw, sw, tw)
    }}"""
    b, s, t = run(imported(text), [np.array([1, 4], np.float32)])
    assert [b.tolist(), s.tolist(), t.tolist()] == [[[1, 4]] * 3, [4] * 3, [[1] * 3, [4] * 3]]


def test_nan_is_the_largest_in_a_total_order() -> None:
    text = """
        compare {
            a = f32[] parameter(0)
            b = f32[] parameter(1)
            zero = f32[] constant(0)
            nan = f32[] constant(nan)
            az = pred[] compare(a, zero), direction=EQ
            as = f32[] select(az, zero, a)
            an = pred[] compare(a, a), direction=NE
            ak = f32[] select(an, nan, as)
            bz = pred[] compare(b, zero), direction=EQ
            bs = f32[] select(bz, zero, b)
            bn = pred[] compare(b, b), direction=NE
            bk = f32[] select(bn, nan, bs)
            ROOT r = pred[] compare(ak, bk), direction=GT, type=TOTALORDER
        }
        ENTRY e {
            x = f32[5] parameter(0)
            ROOT s = f32[5] sort(x), dimensions={0}, is_stable=true, to_apply=compare
        }"""
    (actual,) = run(imported(text), [np.array([1, NAN, INF, -2, NAN], np.float32)])
    np.testing.assert_array_equal(actual, [NAN, NAN, INF, 1, -2])


@pytest.mark.parametrize("opcode", ["add", "multiply", "maximum", "minimum"])
def test_scatters_of_f16(opcode: str) -> None:
    """ONNX Runtime has no ScatterElements of f16 that adds."""
    text = f"""
        update {{
            a = f16[] parameter(0)
            b = f16[] parameter(1)
            ROOT r = f16[] {opcode}(a, b)
        }}
        ENTRY e {{
            x = f16[3] parameter(0)
            i = s32[2] constant({{0, 2}})
            u = f16[2] parameter(1)
            ROOT s = f16[3] scatter(x, i, u), update_window_dims={{}}, inserted_window_dims={{0}},
                scatter_dims_to_operand_dims={{0}}, index_vector_dim=1, to_apply=update
        }}"""
    x, u = np.array([1, 2, 3], np.float16), np.array([5, 0.5], np.float16)
    (actual,) = run(imported(text), [x, u])
    function = {"add": np.add, "multiply": np.multiply}.get(
        opcode, np.maximum if opcode == "maximum" else np.minimum
    )
    np.testing.assert_array_equal(actual, [function(x[0], u[0]), x[1], function(x[2], u[1])])


def test_a_dot_of_no_elements_is_zero() -> None:
    text = """ENTRY e {
        x = f32[2,0,0,3] parameter(0)
        y = f32[0,2,0,4] parameter(1)
        ROOT d = f32[2,3,4] dot(x, y), lhs_batch_dims={0}, rhs_batch_dims={1},
            lhs_contracting_dims={1,2}, rhs_contracting_dims={2,0}
    }"""
    x, y = np.zeros((2, 0, 0, 3), np.float32), np.zeros((0, 2, 0, 4), np.float32)
    (actual,) = run(imported(text), [x, y])
    np.testing.assert_array_equal(actual, np.zeros((2, 3, 4)))


def test_a_reduction_whose_computation_has_a_copy() -> None:
    text = """
        largest {
            a = f32[] parameter(0)
            b = f32[] parameter(1)
            c = f32[] copy(a)
            ROOT m = f32[] maximum(c, b)
        }
        ENTRY e {
            x = f32[2,3] parameter(0)
            low = f32[] constant(-inf)
            ROOT r = f32[2] reduce(x, low), dimensions={1}, to_apply=largest
        }"""
    (actual,) = run(imported(text), [np.arange(6, dtype=np.float32).reshape(2, 3)])
    np.testing.assert_array_equal(actual, [2, 5])


@pytest.mark.parametrize("kind", ["f8e4m3fn", "f8e5m2", "bf16", "f16", "f32", "f64"])
def test_negative_zero_is_false(kind: str) -> None:
    text = f"""ENTRY e {{
        x = f32[4] parameter(0)
        y = {kind}[4] convert(x)
        ROOT z = pred[4] convert(y)
    }}"""
    (actual,) = run(imported(text), [np.array([0, -0.0, -1, NAN], np.float32)])
    assert actual.tolist() == [False, False, True, True]


@pytest.mark.parametrize(
    ("kind", "integer", "largest"),
    [("f32", "s32", 2147483647), ("f64", "s64", 9223372036854775807), ("bf16", "s16", 32767)],
)
def test_an_order_of_bits_is_that_of_floats(kind: str, integer: str, largest: int) -> None:
    """XLA's passes write the total order of floats so."""
    side = """
        {x} = {kind}[] parameter({number})
        {x}z = pred[] compare({x}, zero), direction=EQ
        {x}s = {kind}[] select({x}z, zero, {x})
        {x}b = {integer}[] bitcast({x}s)
        {x}n = pred[] compare({x}b, none), direction=LT
        {x}t = {integer}[] xor(most, {x}b)
        {x}k = {integer}[] select({x}n, {x}t, {x}b)"""
    sides = "".join(
        side.format(x=x, kind=kind, integer=integer, number=number)
        for number, x in enumerate(("a", "b"))
    )
    text = f"""
        compare {{
            zero = {kind}[] constant(0)
            none = {integer}[] constant(0)
            most = {integer}[] constant({largest}){sides}
            ROOT r = pred[] compare(ak, bk), direction=LT
        }}
        ENTRY e {{
            x = f32[5] parameter(0)
            y = {kind}[5] convert(x)
            s = {kind}[5] sort(y), dimensions={{0}}, is_stable=true, to_apply=compare
            ROOT z = f32[5] convert(s)
        }}"""
    (actual,) = run(imported(text), [np.array([3, -1, INF, -2, 0], np.float32)])
    np.testing.assert_array_equal(actual, [-2, -1, 0, 3, INF])


@pytest.mark.parametrize(
    ("kind", "integer", "largest"),
    [("f32", "s32", 2147483647), ("f64", "s64", 9223372036854775807), ("bf16", "s16", 32767)],
)
def test_a_total_order_of_bits_has_negative_zero_below_zero(
    kind: str, integer: str, largest: int
) -> None:
    """XLA's passes make such a sort of top_k; 16-bit floats are rounded in the comparator."""
    side = """
        {x} = f32[] parameter({number})
        {x}r = {kind}[] convert({x})
        {x}b = {integer}[] bitcast({x}r)
        {x}n = pred[] compare({x}b, none), direction=LT
        {x}t = {integer}[] xor(most, {x}b)
        {x}k = {integer}[] select({x}n, {x}t, {x}b)"""
    if kind == "f32":
        side = side.replace("{kind}[] convert({x})", "f32[] copy({x})")
    sides = "".join(
        side.format(x=x, kind=kind, integer=integer, number=number)
        for number, x in enumerate(("a", "b"))
    )
    text = f"""
        compare {{
            none = {integer}[] constant(0)
            most = {integer}[] constant({largest}){sides}
            c = s32[] parameter(2)
            d = s32[] parameter(3)
            ROOT r = pred[] compare(ak, bk), direction=GT
        }}
        ENTRY e {{
            x = f32[8] parameter(0)
            i = s32[8] iota(), iota_dimension=0
            ROOT s = (f32[8], s32[8]) sort(x, i), dimensions={{0}}, is_stable=true, to_apply=compare
        }}"""
    x = np.array([-0.0, 0, 1, -0.0, NAN, 0, -INF, -1e-30], np.float32)
    values, order = run(imported(text), [x])
    assert order.tolist() == [4, 2, 1, 5, 0, 3, 7, 6]
    np.testing.assert_array_equal(values, x[order])


def test_a_sort_by_a_function_of_an_operand() -> None:
    text = """
        compare {
            a = s32[] parameter(0)
            b = s32[] parameter(1)
            c = f32[] parameter(2)
            d = f32[] parameter(3)
            cs = f32[] multiply(c, c)
            ds = f32[] multiply(d, d)
            ROOT r = pred[] compare(cs, ds), direction=LT
        }
        ENTRY e {
            i = s32[4] iota(), iota_dimension=0
            x = f32[4] parameter(0)
            ROOT s = (s32[4], f32[4]) sort(i, x), dimensions={0}, is_stable=true, to_apply=compare
        }"""
    order, values = run(imported(text), [np.array([3, -1, -4, 2], np.float32)])
    assert (order.tolist(), values.tolist()) == ([1, 3, 0, 2], [-1, 2, 3, -4])


@pytest.mark.parametrize(
    "root", ["compare(as, d), direction=LT", "compare(a, b), direction=EQ", "and(p, q)"]
)
def test_a_comparator_of_different_functions_is_refused(root: str) -> None:
    text = f"""
        compare {{
            a = f32[] parameter(0)
            b = f32[] parameter(1)
            c = f32[] parameter(2)
            d = f32[] parameter(3)
            as = f32[] multiply(a, c)
            p = pred[] compare(a, b), direction=LT
            q = pred[] compare(c, d), direction=LT
            ROOT r = pred[] {root}
        }}
        ENTRY e {{
            x = f32[4] parameter(0)
            y = f32[4] parameter(1)
            ROOT s = (f32[4], f32[4]) sort(x, y), dimensions={{0}}, to_apply=compare
        }}"""
    with pytest.raises(UntranslatableError, match="its comparator compare is not known"):
        imported(text)


def test_top_k_has_negative_zero_below_zero() -> None:
    text = """ENTRY e {
        x = f32[6] parameter(0)
        ROOT t = (f32[4], s32[4]) topk(x), k=4, largest=true
    }"""
    x = np.array([-0.0, 0, -1, -0.0, 0, NAN], np.float32)
    _, order = run(imported(text), [x])
    assert order.tolist() == [5, 1, 4, 0]


@pytest.mark.parametrize("direction", ["LT", "GT", "LE", "GE", "EQ", "NE"])
def test_a_total_order_is_compared(direction: str) -> None:
    text = f"""ENTRY e {{
        x = f32[6,6] parameter(0)
        y = f32[6,6] parameter(1)
        ROOT c = pred[6,6] compare(x, y), direction={direction}, type=TOTALORDER
    }}"""
    line = np.array([-INF, -1, -0.0, 0, INF, NAN], np.float32)
    x, y = np.broadcast_to(line[:, None], (6, 6)), np.broadcast_to(line, (6, 6))
    (actual,) = run(imported(text), [x, y])
    rank = np.arange(6)
    function = {
        "LT": np.less, "GT": np.greater, "LE": np.less_equal, "GE": np.greater_equal,
        "EQ": np.equal, "NE": np.not_equal,
    }[direction]  # fmt: skip
    np.testing.assert_array_equal(actual, function(rank[:, None], rank))


SCATTER = """
    ENTRY e {{
        x = {kind}[3] parameter(0)
        i = s32[3] constant({{0, 2, 2}})
        u = {kind}[3] parameter(1)
        ROOT s = {kind}[3] scatter(x, i, u), update_window_dims={{}}, inserted_window_dims={{0}},
            scatter_dims_to_operand_dims={{0}}, index_vector_dim=1, to_apply=update
    }}"""


@pytest.mark.parametrize("kind", ["f32", "s32", "u8"])
def test_a_scatter_subtracts(kind: str) -> None:
    text = f"""update {{
        a = {kind}[] parameter(0)
        b = {kind}[] parameter(1)
        ROOT r = {kind}[] subtract(a, b)
    }}{SCATTER.format(kind=kind)}"""
    dtype = {"f32": np.float32, "s32": np.int32, "u8": np.uint8}[kind]
    (actual,) = run(imported(text), [np.array([9, 8, 7], dtype), np.array([1, 2, 3], dtype)])
    assert actual.tolist() == [8, 8, 2]


def test_a_scatter_rounds_to_16_bits_as_xlas_passes_write_it() -> None:
    text = f"""update {{
        a = f32[] parameter(0)
        b = f32[] parameter(1)
        c = f32[] add(a, b)
        d = bf16[] convert(c)
        ROOT r = f32[] convert(d)
    }}{SCATTER.format(kind="f32")}"""
    (actual,) = run(
        imported(text), [np.array([9, 8, 7], np.float32), np.array([1, 2, 3], np.float32)]
    )
    assert actual.tolist() == [10, 8, 12]
    inputs = [np.array([9, 8, 7], np.float32), np.array([1, 2, 3], np.float32)]
    (actual,) = run(imported(text.replace("bf16[] convert", "s8[] convert")), inputs)
    assert actual.tolist() == [10, 8, 12]
    (actual,) = run(imported(text.replace("add(a, b)", "subtract(b, a)")), inputs)
    assert actual.tolist() == [-8, 8, 8]


@pytest.mark.parametrize(
    ("source", "kind"), [("s64", "u8"), ("s64", "s32"), ("u32", "s16"), ("s16", "s8")]
)
def test_bits_of_integers_are_cut_and_joined(source: str, kind: str) -> None:
    """The lowest bits come first, along the last dimension."""
    wide, narrow = (
        np.dtype(f"{'iu'[name[0] == 'u']}{int(name[1:]) // 8}") for name in (source, kind)
    )
    count = wide.itemsize // narrow.itemsize
    text = f"""ENTRY e {{
        x = {source}[2,3] parameter(0)
        y = {kind}[2,3,{count}] bitcast-convert(x)
        z = {source}[2,3] bitcast-convert(y)
        ROOT t = ({kind}[2,3,{count}], {source}[2,3]) tuple(y, z)
    }}"""
    limits = np.iinfo(wide)
    x = np.random.default_rng(0).integers(limits.min, limits.max, (2, 3), wide)
    parts, joined = run(imported(text), [x])
    np.testing.assert_array_equal(parts, x.view(narrow).reshape(2, 3, count))
    np.testing.assert_array_equal(joined, x)
