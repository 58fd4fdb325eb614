"""A node and the one before it become one, or none, each only where every bit stays."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest

Cases = list[tuple[str, list[str]]]


def check(clean: Any, nodes: str, ops: list[str], kind: str = "float", **options: Any) -> None:
    """Clean ``b`` of x [2, 3, 4, 5], which another node reads, so that nothing is a graph output."""
    cleaned = clean(
        f"g ({kind}[2, 3, 4, 5] x, int64[2] given) => ({kind}[P, Q, R, S] y, {kind}[T, U, V, W] z) "
        f"{{ {nodes}  y = Abs(b) }}".replace(
            f", {kind}[T, U, V, W] z)", ")" if " z = " not in nodes else f", {kind}[T, U, V, W] z)"
        ),
        **options,
    )
    assert cleaned.ops == [*ops, "Abs"]


@pytest.mark.parametrize(
    ("nodes", "ops"),
    [
        ("a = Transpose <perm = [0, 2, 3, 1]> (x)  b = Transpose <perm = [0, 3, 1, 2]> (a)", []),
        ("a = Transpose(x)  b = Transpose(a)", []),
        ("a = Transpose(x)  b = Transpose <perm = [3, 2, 1, 0]> (a)", []),
        ("a = Transpose <perm = [0, 2, 3, 1]> (x)  b = Transpose <perm = [0, 2, 3, 1]> (a)", ["Transpose"]),
        ("a = Transpose <perm = [1, 0, 2, 3]> (x)  b = Transpose(a)", ["Transpose"]),
        (
            "a = Transpose <perm = [0, 2, 3, 1]> (x)  b = Transpose <perm = [0, 3, 1, 2]> (a)  z = Neg(a)",
            ["Transpose", "Neg"],
        ),
        (
            "a = Transpose <perm = [0, 2, 3, 1]> (x)  b = Transpose <perm = [0, 2, 3, 1]> (a)  z = Neg(a)",
            ["Transpose", "Transpose", "Neg"],
        ),
    ],
)  # fmt: skip
def test_transposes(clean: Any, nodes: str, ops: list[str]) -> None:
    check(clean, nodes, ops)


def test_a_perm_that_is_none_is_left_to_whoever_checks(clean: Any) -> None:
    nodes = "a = Transpose <perm = [0, 2, 3]> (x)  b = Transpose <perm = [0, 3, 1, 2]> (a)"
    check(clean, nodes, ["Transpose"] * 2, infer=False, runs=False)


@pytest.mark.parametrize(
    ("kind", "way", "end", "ops"),
    [
        ("float16", "FLOAT", "FLOAT16", []),
        ("bfloat16", "FLOAT", "BFLOAT16", []),
        ("float", "DOUBLE", "FLOAT", []),
        ("float", "FLOAT16", "FLOAT", ["Cast", "Cast"]),
        ("float16", "BFLOAT16", "FLOAT16", ["Cast", "Cast"]),
        ("float16", "FLOAT", "DOUBLE", ["Cast"]),
        ("float", "DOUBLE", "FLOAT16", ["Cast"]),
        ("double", "FLOAT", "FLOAT16", ["Cast", "Cast"]),
        ("int32", "INT64", "INT32", []),
        ("int32", "DOUBLE", "INT32", []),
        ("int32", "FLOAT", "INT32", ["Cast", "Cast"]),
        ("int32", "INT64", "FLOAT", ["Cast"]),
        ("int32", "DOUBLE", "FLOAT16", ["Cast", "Cast"]),
        ("int16", "FLOAT", "FLOAT16", ["Cast"]),
        ("int64", "INT32", "INT64", ["Cast", "Cast"]),
        ("int64", "DOUBLE", "INT64", ["Cast", "Cast"]),
        ("int32", "INT64", "INT8", ["Cast"]),
        ("uint8", "INT32", "INT8", ["Cast"]),
        ("uint32", "INT32", "UINT32", ["Cast", "Cast"]),
        ("int8", "UINT16", "INT8", ["Cast", "Cast"]),
        ("int8", "FLOAT16", "INT8", []),
        ("int16", "FLOAT16", "INT16", ["Cast", "Cast"]),
        ("float", "DOUBLE", "INT32", ["Cast", "Cast"]),
        ("float", "DOUBLE", "BOOL", ["Cast"]),
        ("float", "BOOL", "FLOAT", ["Cast", "Cast"]),
        ("bool", "FLOAT", "BOOL", []),
        ("bool", "INT64", "FLOAT", ["Cast"]),
    ],
)
def test_casts(clean: Any, kind: str, way: str, end: str, ops: list[str]) -> None:
    number = onnx.TensorProto.DataType.Value
    cleaned = clean(
        f"g ({kind}[N] x, {end.lower()}[1] e) => ({end.lower()}[M] y) "
        f"{{ a = Cast <to = {number(way)}> (x)  b = Cast <to = {number(end)}> (a)  y = Concat <axis = 0> (b, e) }}",
        runs=False,
    )
    assert cleaned.ops == [*ops, "Concat"]


@pytest.mark.parametrize("opset", [9, 13, 21])
@pytest.mark.parametrize(
    ("first", "second", "merged"),
    [
        ("[0], [2], [1]", "[1], [3], [2]", True),
        ("[1], [3], [1]", "[1], [2], [1]", True),
        ("[1], [9], [1]", "[1], [9], [1]", True),
        ("[2], [1], [3]", "[0], [2], [3]", True),
        ("[1], [9223372036854775807], [3]", "[9], [9223372036854775807], [3]", True),
        ("[1], [3], [-1]", "[1], [2], [3]", True),
        ("[-2], [9], [1]", "[1], [2], [1]", False),
        ("[0], [-1], [1]", "[0], [1], [1]", False),
        ("[1], [3], [1]", "[-1], [3], [1]", False),
        ("[-2], [9], [1]", "[-2], [2], [2]", True),
        ("[0, 1], [2, 3], [1, 2]", "[0], [2], [3]", True),
    ],
)
def test_slices(clean: Any, opset: int, first: str, second: str, merged: bool) -> None:
    def slicing(text: str, name: str, source: str, result: str) -> tuple[str, str]:
        starts, ends, axes = (entry.strip("[]") for entry in text.split("], "))
        if opset < 10:
            return (
                f"{result} = Slice <starts = [{starts}], ends = [{ends}], axes = [{axes}]> ({source})",
                "",
            )
        constants = ", ".join(
            f"int64[{len(numbers.split(','))}] {kind}{name} = {{{numbers}}}"
            for kind, numbers in (("s", starts), ("e", ends), ("a", axes))
        )
        return f"{result} = Slice({source}, s{name}, e{name}, a{name})", constants

    one, first_constants = slicing(first, "f", "x", "a")
    two, second_constants = slicing(second, "g", "a", "b")
    constants = ", ".join(entry for entry in (first_constants, second_constants) if entry)
    cleaned = clean(
        f"g (float[2, 3, 4, 5] x) => (float[P, Q, R, S] y) {f'<{constants}>' if constants else ''} {{ {one}  {two}  y = Neg(b) }}",
        opset=opset,
    )
    assert cleaned.ops == ["Slice"] * (1 if merged else 2) + ["Neg"]


def test_slices_in_steps(clean: Any) -> None:
    text = (
        "g (float[8, 9] x) => (float[P, Q] y) <int64[1] s = {0}, int64[1] e = {7}, int64[1] a = {0}, int64[1] t = {2}, int64[1] b = {1}> "
        "{ c = Slice(x, s, e, a, t)  d = Slice(c, s, e, %s, t)  y = Neg(d) }"
    )
    assert clean(text % "b").ops == ["Slice", "Neg"]
    assert clean(text % "a").ops == ["Slice", "Slice", "Neg"]


@pytest.mark.parametrize(
    ("nodes", "ops"),
    [
        ("c, d = Split <axis = 1, num_outputs = 2> (x)  b = Concat <axis = 1> (c, d)", []),
        ("c, d = Split <axis = 1, num_outputs = 2> (x)  b = Concat <axis = -3> (c, d)", []),
        ("c, d = Split <axis = 1, num_outputs = 2> (x)  b = Concat <axis = 1> (d, c)", ["Split", "Concat"]),
        ("c, d = Split <axis = 1, num_outputs = 2> (x)  b = Concat <axis = 2> (c, c)", ["Split", "Concat"]),
        ("c, d = Split <axis = 0, num_outputs = 2> (x)  b = Concat <axis = 1> (c, d)", ["Split", "Concat"]),
        ("c, d = Split <axis = 1, num_outputs = 2> (x)  b = Concat <axis = 1> (c, d, c)", ["Split", "Concat"]),
        ("c, d = Split <axis = 1, num_outputs = 2> (x)  b = Concat <axis = 1> (c, d)  z = Neg(c)", ["Split", "Neg"]),
        ("c, d = Split <axis = 1> (x, given)  b = Concat <axis = 1> (c, d)", []),
        ("a = Neg(x)  b = Neg(a)", []),
        ("a = Relu(x)  b = Relu(a)", ["Relu"]),
        ("a = Relu(x)  b = Relu(a)  z = Neg(a)", ["Relu", "Neg"]),
        ("a = Ceil(x)  b = Ceil(a)", ["Ceil"]),
        ("a = Ceil(x)  b = Floor(a)", ["Ceil", "Floor"]),
        ("a = Round(x)  b = Round(a)", ["Round"]),
        ("a = Sign(x)  b = Sign(a)", ["Sign"]),
        ("a = Exp(x)  b = Exp(a)", ["Exp", "Exp"]),
    ],
)  # fmt: skip
def test_undone_and_repeated(clean: Any, nodes: str, ops: list[str]) -> None:
    feeds = {
        "x": np.random.default_rng(0).standard_normal((2, 3, 4, 5)).astype(np.float32),
        "given": np.array([1, 2]),
    }
    check(clean, nodes, ops, feeds=feeds)


def test_a_graph_output_keeps_its_name(clean: Any) -> None:
    """Of two Relus the second stays, of two Transposes one."""
    assert clean("g (float[2] x) => (float[2] y) { a = Relu(x)  y = Relu(a) }").ops == ["Relu"]
    text = "g (float[2, 3] x) => (float[P, Q] y) {{ a = Transpose(x)  y = {0}(a) }}"
    assert clean(text.format("Transpose")).ops == ["Transpose"]
    first = "g (float[2] x) => (float[2] a, float[2] y) { a = Relu(x)  y = Relu(a) }"
    assert clean(first).ops == ["Relu", "Relu"]


def test_a_body_reads_the_first(clean: Any) -> None:
    text = (
        "g (float[2, 3] x, bool c) => (float[3, 2] y, float[P, Q] z) { a = Transpose(x)  b = Transpose(a)  z = Neg(b)  "
        "y = If (c) <then_branch = t () => (float[3, 2] p) { p = Neg(a) }, else_branch = e () => (float[3, 2] q) { q = Abs(a) }> }"
    )
    assert clean(text).ops == ["Transpose", "Neg", "If"]


def test_inside_bodies(clean: Any) -> None:
    text = (
        "g (float[2, 3] x, bool c) => (float[2, 3] y) { y = If (c) <then_branch = t () => (float[2, 3] p) "
        "{ a = Transpose(x)  b = Transpose(a)  p = Neg(b) }, else_branch = e () => (float[2, 3] q) "
        "{ d = Relu(x)  e = Relu(d)  q = Abs(e) }> }"
    )
    bodies = clean(text).model.graph.tail.bodies
    assert [[node.op for node in body.nodes] for body in bodies] == [["Neg"], ["Relu", "Abs"]]


# -- Pad into Conv ----------------------------------------------------------------------------------------------------

PAD_11 = "float[2, 2, 3, 3] w = {%s}, int64[8] p = {%s}, float v = {%s}"
WEIGHTS = ", ".join(str(number % 5 - 2) for number in range(36))


@pytest.mark.parametrize("opset", [11, 13, 21])
@pytest.mark.parametrize(
    ("pads", "value", "conv", "expected"),
    [
        ("0, 0, 1, 1, 0, 0, 1, 1", "0", "", [1, 1, 1, 1]),
        ("0, 0, 0, 1, 0, 0, 2, 3", "0", "strides = [2, 2]", [0, 1, 2, 3]),
        ("0, 0, 1, 1, 0, 0, 1, 1", "0", "pads = [1, 0, 0, 2]", [2, 1, 1, 3]),
        ("0, 0, 1, 1, 0, 0, 1, 1", "0", 'auto_pad = "VALID"', [1, 1, 1, 1]),
        ("0, 0, 1, 1, 0, 0, 1, 1", "0", 'auto_pad = "SAME_UPPER"', None),
        ("0, 0, 1, 1, 0, 0, 1, 1", "0.5", "", None),
        ("1, 0, 1, 1, 0, 0, 1, 1", "0", "", None),
        ("0, 0, 1, 1, 0, 0, -1, 1", "0", "", None),
    ],
)
def test_pad_into_conv(
    clean: Any, opset: int, pads: str, value: str, conv: str, expected: list[int] | None
) -> None:
    cleaned = clean(
        f"g (float[N, 2, 6, 7] x) => (float[P, Q, R, S] y) <{PAD_11 % (WEIGHTS, pads, value)}> "
        f"{{ a = Pad(x, p, v)  y = Conv <{conv}> (a, w) }}".replace("<>", ""),
        opset=opset,
    )
    assert cleaned.ops == (["Pad", "Conv"] if expected is None else ["Conv"])
    if expected is not None:
        assert list(cleaned.model.graph.tail.attrs["pads"]) == expected


@pytest.mark.parametrize(
    ("pad", "goes"),
    [
        ("Pad <pads = [0, 0, 1, 1, 0, 0, 1, 1]> (x)", True),
        ('Pad <pads = [0, 0, 1, 1, 0, 0, 1, 1], mode = "edge"> (x)', False),
        ("Pad <pads = [0, 0, 1, 1, 0, 0, 1, 1], value = 2.0> (x)", False),
        ("Pad <pads = [0, 0, 0, 0, 0, 0, 0, 0], value = 2.0> (x)", True),
    ],
)
def test_pad_with_attributes(clean: Any, pad: str, goes: bool) -> None:
    cleaned = clean(
        f"g (float[N, 2, 6, 7] x) => (float[P, Q, R, S] y) <float[2, 2, 3, 3] w = {{{WEIGHTS}}}> "
        f"{{ a = {pad}  y = Conv(a, w) }}",
        opset=9,
    )
    assert cleaned.ops == (["Conv"] if goes else ["Pad", "Conv"])


@pytest.mark.parametrize(("axes", "goes"), [("2, 3", True), ("-1, 2", True), ("0, 2", False)])
def test_pad_of_some_axes(clean: Any, axes: str, goes: bool) -> None:
    cleaned = clean(
        f"g (float[N, 2, 6, 7] x) => (float[P, Q, R, S] y) <float[2, 2, 3, 3] w = {{{WEIGHTS}}}, int64[4] p = {{1, 2, 3, 0}}, int64[2] a = {{{axes}}}> "
        "{ b = Pad(x, p, , a)  y = Conv(b, w) }"
    )
    assert cleaned.ops == (["Conv"] if goes else ["Pad", "Conv"])


def test_a_pad_that_others_read_stays(clean: Any) -> None:
    cleaned = clean(
        f"g (float[N, 2, 6, 7] x) => (float[P, Q, R, S] y, float[P, Q, T, U] z) <{PAD_11 % (WEIGHTS, '0, 0, 1, 1, 0, 0, 1, 1', 0)}> "
        "{ a = Pad(x, p, v)  y = Conv(a, w)  z = Neg(a) }"
    )
    assert cleaned.ops == ["Pad", "Conv", "Neg"]


# -- views ------------------------------------------------------------------------------------------------------------

VIEWS = "int64[3] abc = {2, 3, 20}, int64[2] flat = {6, 20}, int64[4] whole = {2, 3, 4, 5}, int64[2] open = {-1, 20}, int64[3] copied = {0, 0, -1}, int64[1] one = {1}, int64[2] two = {1, 4}, int64[1] all = {-1}"


@pytest.mark.parametrize(
    ("first", "second", "ops"),
    [
        ("Reshape(x, abc)", "Reshape(a, flat)", ["Reshape"]),
        ("Reshape(x, abc)", "Reshape(a, open)", ["Reshape"]),
        ("Reshape(x, abc)", "Reshape(a, whole)", []),
        ("Reshape(x, flat)", "Reshape(a, copied)", ["Reshape"]),
        ("Reshape(x, abc)", "Reshape(a, copied)", ["Reshape"]),
        ("Flatten(x)", "Reshape(a, abc)", ["Reshape"]),
        ("Reshape(x, abc)", "Flatten(a)", ["Reshape"]),
        ("Unsqueeze(x, one)", "Squeeze(a, one)", []),
        ("Unsqueeze(x, one)", "Unsqueeze(a, one)", ["Reshape"]),
        ("Unsqueeze(x, two)", "Squeeze(a)", []),
        ("Reshape(x, abc)", "Reshape(a, shape)", ["Reshape", "Reshape"]),
    ],
)
def test_views(clean: Any, first: str, second: str, ops: list[str]) -> None:
    cleaned = clean(
        f"g (float[2, 3, 4, 5] x, int64[2] shape) => (float[Q] y) <{VIEWS}> "
        f"{{ a = {first}  b = {second}  n = Neg(b)  y = Reshape(n, all) }}",
        runs="shape)" not in second,
        feeds={
            "x": np.arange(120, dtype=np.float32).reshape(2, 3, 4, 5),
            "shape": np.array([6, 20]),
        },
    )
    assert cleaned.ops == [*ops, "Neg", "Reshape"]


@pytest.mark.parametrize("sizes", [(3, 2), (0, 2), (3, 0)])
@pytest.mark.parametrize(
    ("first", "second", "ops"),
    [
        ("Reshape(x, heads)", "Reshape(a, joined)", []),
        ("Unsqueeze(x, one)", "Squeeze(a, one)", []),
        ("Reshape(x, rows)", "Reshape(a, flat)", ["Reshape"]),
        ("Reshape(x, heads)", "Reshape(a, wide)", ["Reshape"]),
        ("Reshape(x, heads)", "Flatten <axis = 2> (a)", ["Reshape", "Flatten"]),
    ],
)
def test_views_of_open_sizes(
    clean: Any, sizes: tuple[int, int], first: str, second: str, ops: list[str]
) -> None:
    """Also where one of them is 0."""
    rows, columns = sizes
    cleaned = clean(
        "g (float[N, M, 8] x) => (float[Q] y) <int64[4] heads = {0, 0, 2, 4}, int64[3] joined = {0, 0, 8}, int64[1] one = {1}, "
        "int64[2] rows = {-1, 8}, int64[1] flat = {-1}, int64[3] wide = {0, -1, 4}, int64[1] all = {-1}> "
        f"{{ a = {first}  b = {second}  n = Neg(b)  y = Reshape(n, all) }}",
        feeds={"x": np.ones((rows, columns, 8), np.float32)},
        runs=rows * columns > 0 or not ops,
    )
    assert cleaned.ops == [*ops, "Neg", "Reshape"] or cleaned.ops == ["Reshape", "Neg", "Reshape"]


def test_a_view_that_others_read_stays(clean: Any) -> None:
    cleaned = clean(
        f"g (float[2, 3, 4, 5] x) => (float[Q, R] y, float[S, T, U] z, float[A, B, C, D] w) <{VIEWS}> "
        "{ a = Reshape(x, abc)  b = Reshape(a, flat)  c = Reshape(a, whole)  y = Neg(b)  z = Neg(a)  w = Neg(c) }"
    )
    assert cleaned.ops == ["Reshape", "Reshape", "Neg", "Neg", "Neg"]


@pytest.mark.parametrize("opset", [5, 12, 13, 21])
def test_views_of_every_form(clean: Any, opset: int) -> None:
    axes = "<axes = [1]> (x)" if opset < 13 else "(x, one)"
    back = "<axes = [1]> (a)" if opset < 13 else "(a, one)"
    cleaned = clean(
        "g (float[2, 3] x) => (float[2, 3] y) <int64[1] one = {1}> "
        f"{{ a = Unsqueeze {axes}  b = Squeeze {back}  y = Neg(b) }}",
        opset=opset,
        runs=opset > 5,
    )
    assert cleaned.ops == ["Neg"]


def test_a_result_of_no_elements_stays(clean: Any) -> None:
    cleaned = clean(
        "g (float[0, 4] x) => (float[0, 2] y) <int64[2] s = {2, 0}, int64[2] t = {0, 2}> "
        "{ a = Reshape <allowzero = 1> (x, s)  y = Reshape <allowzero = 1> (a, t) }"
    )
    assert cleaned.ops == ["Reshape"]


def test_a_reshape_joins_the_next_one_once_its_size_is_read_no_more(clean: Any) -> None:
    """A second run used to find the pair, as the sizes were read when it was visited."""
    cleaned = clean(
        """g (float[N, 4] x, float[N, 4] z) => (float[A, B, C] y, float[D, E] w)
        <int64[2] s = {-1, 4}, int64[4] s4 = {-1, 4, 1, 1}, int64[1] i0 = {0}, int64[1] i1 = {1}> {
            r = Reshape(x, s4)  q = Relu(r)  t = Reshape(q, s)  u = Unsqueeze <axes = [0]> (t)
            v = Relu(u)  y = Neg(v)
            sh = Shape(t)  g0 = Gather(sh, i0)  g1 = Gather(sh, i1)
            k = Concat <axis = 0> (g0, g1)  w0 = Reshape(z, k)  w = Abs(w0)
        }""",
        opset=11,
    )
    assert cleaned.ops.count("Reshape") + cleaned.ops.count("Unsqueeze") == 2
