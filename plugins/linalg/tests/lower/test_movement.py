"""Operators that move elements against ONNX Runtime, and what is not lowered."""

from __future__ import annotations

import numpy as np
import pytest

from gehost.infer.whole import infer_model
from gehost.ir.model import Model
from gehost.testing import parse
from gehost_linalg.groups.lowered import Lowered

from ..models import check, graph, lowered

X = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
INPUT = "float[2,3,4] x"


@pytest.mark.parametrize(
    ("call", "shape"),
    [
        ("Transpose<perm=[2,0,1]>(x)", "4,2,3"), ("Transpose(x)", "4,3,2"), ("Transpose<perm=[0,2,1]>(x)", "2,4,3"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("sizes", ["2,3,4", "a,b,c"])
def test_transpose(call: str, shape: str, sizes: str) -> None:
    output = shape if sizes == "2,3,4" else "o,p,q"
    check(graph(f"y = {call}", f"float[{sizes}] x", f"float[{output}] y"), {"x": X})


def test_unsqueeze_and_squeeze() -> None:
    body = """a = Constant<value = int64[2] {0, -1}>()
b = Constant<value = int64[1] {0}>()
u = Unsqueeze(x, a)
e = Exp(u)
y = Squeeze(e, b)"""
    check(graph(body, INPUT, "float[2,3,4,1] y"), {"x": X / 24})


def test_squeeze_of_every_axis_of_size_one_depends_on_sizes() -> None:
    _, result = lowered(parse(graph("y = Squeeze(x)", "float[1,3,1] x", "float[3] y")))
    assert list(result.reasons.values()) == [
        "not-lowered: Squeeze of every axis of size 1, where sizes are unknown"
    ]


def test_axes_as_attributes() -> None:
    check(
        graph("u = Unsqueeze<axes=[1]>(x)\ny = Squeeze<axes=[1]>(u)", INPUT, "float[2,3,4] y", 11),
        {"x": X},
    )


@pytest.mark.parametrize("sizes", ["1,3,1", "a,3,b"])
def test_expand(sizes: str) -> None:
    body = "s = Constant<value = int64[4] {5, 2, 1, 4}>()\na = Neg(x)\ny = Expand(a, s)"
    check(graph(body, f"float[{sizes}] x", "float[5,2,3,4] y"), {"x": X[:1, :, :1]})


@pytest.mark.parametrize(
    ("starts", "ends", "axes", "steps", "shape"),
    [
        ("1", "3", "1", "1", "2,2,4"), ("1", "100", "2", "2", "2,3,2"), ("0", "2", "2", "1", "2,3,2"), ("2", "-1", "2", "1", "2,3,1"),
        ("0", "9223372036854775807", "0", "1", "2,3,4"), ("1", "2", "0", "1", "1,3,4"), ("0", "4", "-1", "3", "2,3,2"),
    ],
)  # fmt: skip
def test_slice(starts: str, ends: str, axes: str, steps: str, shape: str) -> None:
    names = [f"{name} = Constant<value = int64[1] {{{value}}}>()" for name, value in
             (("s", starts), ("e", ends), ("a", axes), ("t", steps))]  # fmt: skip
    check(
        graph(
            "\n".join([*names, "p = Slice(x, s, e, a, t)", "y = Exp(p)"]),
            INPUT,
            f"float[{shape}] y",
        ),
        {"x": X / 24},
    )


def test_a_slice_to_the_largest_int32_is_no_whole_longer_axis() -> None:
    body = """b = Constant<value = int64[1] {0}>()
e = Constant<value = int64[1] {2147483647}>()
y = Slice(x, b, e)"""
    model = Model(parse(graph(body, "float[3000000000] x", "float[2147483647] y")))
    infer_model(model)
    result = Lowered(model.graph, lambda _: None)
    assert [value.shape for value in result.ops[-1].results] == [("2147483647",)]


@pytest.mark.parametrize(("axis", "place", "shape"), [(1, 2, "2,4"), (0, 0, "3,4"), (-2, 1, "2,4")])
def test_one_place_of_an_axis(axis: int, place: int, shape: str) -> None:
    body = f"i = Constant<value = int64 {{{place}}}>()\np = Gather<axis={axis}>(x, i)\ny = Exp(p)"
    check(graph(body, INPUT, f"float[{shape}] y"), {"x": X / 24})


@pytest.mark.parametrize(
    ("axis", "index", "reason"),
    [
        (2, "int64 {1}", "strided: Gather along the last axis"),
        (1, "int64 {3}", "not-lowered: Gather of 3 from an axis of 3"),
        (1, "int64 {-1}", "not-lowered: Gather of -1 from an axis of 3"),
        (1, "int64[1] {1}", "not-lowered: Gather, but for one constant index"),
    ],
)
def test_gathers_that_are_not_lowered(axis: int, index: str, reason: str) -> None:
    body = f"i = Constant<value = {index}>()\ny = Gather<axis={axis}>(x, i)"
    _, result = lowered(parse(graph(body, INPUT, "float[a,b] y")))
    assert list(result.reasons.values()) == [reason]


def test_squeeze_of_an_axis_of_unknown_size() -> None:
    body = "a = Constant<value = int64[1] {0}>()\ny = Squeeze(x, a)"
    _, result = lowered(parse(graph(body, "float[n,3] x", "float[3] y")))
    assert list(result.reasons.values()) == ["not-lowered: Squeeze of axes [0] of ['n', '3']"]


def test_rotary_halves() -> None:
    body = """z = Constant<value = int64[1] {0}>()
h = Constant<value = int64[1] {2}>()
l = Constant<value = int64[1] {9223372036854775807}>()
a = Constant<value = int64[1] {2}>()
first = Slice(x, z, h, a)
second = Slice(x, h, l, a)
minus = Neg(second)
turned = Concat<axis=-1>(minus, first)
c = Mul(x, cos)
s = Mul(turned, sin)
y = Add(c, s)"""
    feeds = {"x": X, "cos": np.cos(X[0]), "sin": np.sin(X[0])}
    check(graph(body, f"{INPUT}, float[3,4] cos, float[3,4] sin", "float[2,3,4] y"), feeds)


@pytest.mark.parametrize(
    ("target", "shape"),
    [
        ("0, 0, 2, 2", "2,3,2,2"),
        ("0, 0, -1, 2", "2,3,2,2"),
        ("0, 0, 1, 4", "2,3,1,4"),
        ("0, 0, -1, 2, 1, 2", "2,3,1,2,1,2"),
    ],
)
@pytest.mark.parametrize("sizes", ["2,3,4", "a,b,4", "a,b,c"])
def test_a_reshape_that_splits_the_last_axis(target: str, shape: str, sizes: str) -> None:
    rank = target.count(",") + 1
    body = f"""k = Constant<value = int64[{rank}] {{{target}}}>()
a = Add(x, b)
r = Reshape(a, k)
t = Transpose<perm={[rank - 2, *range(rank - 2), rank - 1]}>(r)
y = Neg(t)"""
    axes = shape.split(",")
    declared = ",".join([axes[-2], *axes[:-2], axes[-1]] if sizes == "2,3,4" else "opqrst"[:rank])
    feeds = {"x": X, "b": np.arange(4, dtype=np.float32)}
    check(graph(body, f"float[{sizes}] x, float[4] b", f"float[{declared}] y"), feeds)


@pytest.mark.parametrize("place", [0, 1])
@pytest.mark.parametrize("sizes", ["2,3,4", "a,b,c"])
def test_one_part_of_the_last_axis(place: int, sizes: str) -> None:
    """At 0 its index is a bare loop, which must not stand for the whole axis."""
    body = f"""k = Constant<value = int64[4] {{0, 0, 2, 2}}>()
i = Constant<value = int64 {{{place}}}>()
a = Abs(x)
r = Reshape(a, k)
p = Gather<axis=2>(r, i)
y = Neg(p)"""
    check(graph(body, f"float[{sizes}] x", "float[o,p,q] y"), {"x": X})


@pytest.mark.parametrize(
    "target",
    [
        "0, 0, 2, -1",
        "0, 3, 2, 2",
        "-1, 0, 2, 2",
        "0, 0, 4",
        "0, 12",
        "0, 0, 3, 2",
        "0, 0, -1, 3",
        "0, 0, 0, 2",
    ],
)
def test_other_reshapes_are_not_lowered(target: str) -> None:
    rank = target.count(",") + 1
    body = f"k = Constant<value = int64[{rank}] {{{target}}}>()\ny = Reshape(x, k)"
    _, result = lowered(
        parse(graph(body, "float[a,b,4] x", f"float[{','.join('opqrst'[:rank])}] y"))
    )
    assert [reason.partition(",")[0][:20] for reason in result.reasons.values()] == [
        "not-lowered: Reshape"
    ]


def test_split_and_concat() -> None:
    body = """s = Constant<value = int64[2] {1, 3}>()
a, b = Split<axis=2>(x, s)
e = Exp(b)
y = Concat<axis=2>(e, a)"""
    check(graph(body, INPUT, "float[2,3,4] y"), {"x": X / 24})


@pytest.mark.parametrize(
    ("body", "inputs", "reason"),
    [
        (
            "y = Expand(x, s)",
            "float[2,3] x, int64[2] s",
            "not-lowered: Expand to a shape that is computed",
        ),
        (
            "y = Reshape(x, s)",
            "float[2,3] x, int64[2] s",
            "not-lowered: Reshape with shape that are computed",
        ),
        (
            "y = Slice(x, s, s)",
            "float[2,3] x, int64[2] s",
            "not-lowered: Slice with starts that are computed",
        ),
        ("y = Add(x, x)", "uint8[2] x", "dtype: x is uint8"),
        (
            "y = Pow(x, k)",
            "float[2] x, int64[2] k",
            "not-lowered: Pow by i64 numbers that f32 may not hold",
        ),
        ("y = Abs(x)", "bfloat16[2] x, float z", ""),
    ],
)
def test_what_is_not_lowered_has_a_reason(body: str, inputs: str, reason: str) -> None:
    dtype = inputs.partition("[")[0]
    loaded, result = lowered(
        parse(
            graph(body, inputs, f"{dtype} y").replace(
                f"{dtype} y", f"{dtype}[a,b] y" if reason else f"{dtype}[2] y"
            )
        )
    )
    assert list(result.reasons.values()) == ([reason] if reason else [])
    assert loaded.graph


def test_a_negative_start_and_a_negative_step_are_left_alone() -> None:
    for start, step in (("-2", "1"), ("3", "-1")):
        body = f"""s = Constant<value = int64[1] {{{start}}}>()
e = Constant<value = int64[1] {{0}}>()
a = Constant<value = int64[1] {{2}}>()
t = Constant<value = int64[1] {{{step}}}>()
y = Slice(x, s, e, a, t)"""
        _, result = lowered(parse(graph(body, INPUT, "float[2,3,c] y")))
        assert [reason.partition(":")[0] for reason in result.reasons.values()] == ["not-lowered"]
