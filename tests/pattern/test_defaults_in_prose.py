"""Constraints see what the specification says in prose of an absent attribute or input."""

from __future__ import annotations

from typing import Any

import pytest

from gehost import es
from gehost.es.graph import EsTensor

REDUCTIONS = (
    "ReduceL1", "ReduceL2", "ReduceLogSum", "ReduceLogSumExp", "ReduceMax", "ReduceMean", "ReduceMin", "ReduceProd", "ReduceSum",
    "ReduceSumSquare",
)  # fmt: skip


def count(find: Any, body: str, op: str, name: str, wish: Any, opset: int, inputs: int = 1) -> int:
    """The number of matches of an operator with a constraint on one parameter."""

    def make(*xs: EsTensor) -> EsTensor:
        made = es.Resize(xs[0], None, xs[1]) if op == "Resize" else getattr(es, op)(*xs)
        return es.Identity(
            es.constrain(made if isinstance(made, EsTensor) else made[0], **{name: wish})
        )

    return len(find.matches(f"g {body}", make, inputs, opset=opset, ir=8))


@pytest.mark.parametrize("opset", [9, 13, 18, 23])
@pytest.mark.parametrize("op", REDUCTIONS)
def test_a_reduction_without_axes_is_over_all(find: Any, op: str, opset: int) -> None:
    body = f"(float[2, 3] x) => (float[A, B] y) {{ t = {op}(x) y = Identity(t) }}"
    for wish, matches in (
        ([0, 1], 1),
        ([1, 0], 1),
        ([-2, -1], 1),
        ([0], 0),
        ([1], 0),
        (lambda axes: len(axes) == 2, 1),
    ):
        assert count(find, body, op, "axes", wish, opset) == matches, wish
    unknown = (
        body.replace("x)", "x, int64[1] n)", 1)
        .replace(f"{op}(x)", f"{op}(u)")
        .replace("{", "{ u = Reshape(x, n)", 1)
    )
    assert count(find, unknown.replace("int64[1]", "int64[R]"), op, "axes", [0, 1], opset) == 0


@pytest.mark.parametrize("opset", [18, 23])
def test_an_empty_list_of_axes_is_as_none(find: Any, opset: int) -> None:
    body = "(float[2, 3] x) => (float[A, B] y) <int64[0] a = {}> { t = ReduceMax (x, a) y = Identity(t) }"
    assert count(find, body, "ReduceMax", "axes", [0, 1], opset) == 1
    assert count(find, body, "ReduceMax", "axes", [], opset) == 0
    kept = body.replace("ReduceMax (", "ReduceMax <noop_with_empty_axes = 1> (")
    assert count(find, kept, "ReduceMax", "axes", [0, 1], opset) == 0
    assert count(find, kept.replace("(x, a)", "(x)"), "ReduceMax", "axes", [0, 1], opset) == 0


def test_a_variable_holds_all_axes(find: Any) -> None:
    for opset in (13, 18):
        (match,) = find.matches(
            "g (float[2, 3] x) => (float[A, B] y) { y = ReduceMax(x) }",
            lambda x: es.constrain(es.ReduceMax(x), axes=es.Bind("a")),
            opset=opset,
        )
        assert match.attributes["a"] == [0, 1]


X = "(float[2, 1, 1, 4] x) => (float[A] y)"
SLICED = "<int64[2] s = {0, 1}, int64[2] e = {1, 3}>"


@pytest.mark.parametrize(
    ("op", "name", "opset", "body", "right", "wrong"),
    [
        ("Squeeze", "axes", 11, f"{X} {{ t = Squeeze(x) y = Identity(t) }}", [1, 2], [1]),
        ("Squeeze", "axes", 13, f"{X} {{ t = Squeeze(x) y = Identity(t) }}", [-2, 1], [2]),
        ("Transpose", "perm", 17, f"{X} {{ t = Transpose(x) y = Identity(t) }}", [3, 2, 1, 0], [0, 1, 2, 3]),
        ("Slice", "axes", 9, f"{X} {{ t = Slice<starts = [0, 1], ends = [1, 3]>(x) y = Identity(t) }}", [0, 1], [0]),
        ("Slice", "axes", 17, f"{X} {SLICED} {{ t = Slice(x, s, e) y = Identity(t) }}", [0, 1], [2, 3]),
        ("Pad", "constant_value", 17, f"{X} <int64[8] p = {{0, 0, 0, 0, 0, 0, 0, 1}}> {{ t = Pad(x, p) y = Identity(t) }}", 0, 1),
        ("Pad", "constant_value", 9, f"{X} {{ t = Pad<pads = [0, 0, 0, 0, 0, 0, 0, 1]>(x) y = Identity(t) }}", 0, 1),
        ("TopK", "axis", 17, f"{X} <int64[1] k = {{2}}> {{ t, u = TopK(x, k) y = Identity(t) }}", 3, 0),
        ("TopK", "largest", 11, f"{X} <int64[1] k = {{2}}> {{ t, u = TopK(x, k) y = Identity(t) }}", 1, 0),
        ("Resize", "axes", 18, f"{X} <float[4] k = {{1, 1, 2, 2}}> {{ t = Resize(x, , k) y = Identity(t) }}", [0, 1, 2, 3], [2, 3]),
        ("CenterCropPad", "axes", 18, f"{X} <int64[4] k = {{2, 1, 2, 2}}> {{ t = CenterCropPad(x, k) y = Identity(t) }}", [0, 1, 2, 3], [2, 3]),
        ("EyeLike", "dtype", 17, "(int32[2, 3] x) => (float[A] y) { t = EyeLike(x) y = Identity(t) }", 6, 1),
        ("Shape", "end", 17, f"{X} {{ t = Shape(x) y = Identity(t) }}", 4, 3),
        ("Split", "split", 11, f"{X} {{ t, u = Split<axis = 3>(x) y = Identity(t) }}", [2, 2], [1, 3]),
        ("Split", "split", 17, f"{X} {{ t, u = Split(x) y = Identity(t) }}", [1, 1], [2]),
        ("Split", "split", 23, f"{X} {{ t, u, v = Split<axis = 3, num_outputs = 3>(x) y = Identity(t) }}", None, [2, 1, 1]),
    ],
)  # fmt: skip
def test_other_operators(
    find: Any, op: str, name: str, opset: int, body: str, right: Any, wrong: Any
) -> None:
    if op == "Split":
        outputs = body.count(",", body.index("{"), body.index("Split")) + 1

        def split(wish: Any) -> int:
            def make(x: EsTensor) -> EsTensor:
                parts = es.Split(x, num_outputs=outputs)
                return es.Identity(es.constrain(parts[0], split=wish))

            return len(find.matches(f"g {body}", make, opset=opset, ir=8))

        assert (split(right), split(wrong)) == (1, 0)
        return
    # inputs that a pattern leaves out must be absent
    two = op in ("CenterCropPad", "Resize", "TopK") or (op == "Pad" and opset > 10)
    inputs = 3 if op == "Slice" and opset > 9 else 2 if two else 1
    assert count(find, body, op, name, right, opset, inputs) == 1
    assert count(find, body, op, name, wrong, opset, inputs) == 0


def test_axes_of_unknown_sizes_are_not_known(find: Any) -> None:
    body = "(float[N, 1, 4] x) => (float[A] y) { t = Squeeze(x) y = Identity(t) }"
    assert count(find, body, "Squeeze", "axes", [1], 17) == 0
