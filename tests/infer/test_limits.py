"""Models that ONNX's inference of a whole model could not hold: here each node is asked alone, or not at all."""

from __future__ import annotations

import onnx
import pytest

from gehost.infer import infer_model
from gehost.infer.limits import grows_too_much
from gehost.infer.local import Inferrer
from gehost.ir.model import Model
from gehost.ops import OpRegistry
from gehost.verify import make_feeds

HEAD = '<ir_version: 9, opset_import: ["" : 20]> '
INPUTS = "float[2, 3] x, int64[4] short, int64[1000000] long, int64[N] unknown, int64 a, bool c"


def doubled(first: str, op: str, times: int) -> str:
    return first + "".join(f" s{step + 1} = {op}(s{step}, s{step})" for step in range(times))


@pytest.mark.parametrize(
    ("nodes", "declared"),
    [
        (doubled("s0 = Shape(x)", "Concat<axis = 0>", 40) + " y = Neg(s40)", f"int64[{2 << 40}]"),
        (doubled("s0 = Shape(x)", "Concat<axis = 0>", 80) + " y = Neg(s80)", "None"),
        (doubled("s0 = Shape(x)", "Concat<axis = 0>", 40) + " y = ConstantOfShape(s40)", "None"),
        (doubled("s0 = Shape(x)", "Mul", 40) + " y = Expand(x, s40)", "float[2,3]"),
        (doubled("s0 = Identity(short)", "Gather", 12) + " y = Neg(s12)", "int64[4]"),
        (
            "u = Unsqueeze(short, a) "
            + doubled("s0 = Reshape(short, short)", "Gather", 20)
            + " y = Neg(s20)",
            "None",
        ),
        ("y = ConstantOfShape(short)", "float[?1,?2,?3,?4]"),
        ("y = ConstantOfShape(long)", "None"),
        ("y = Expand(x, long)", "None"),
        ("y = Reshape(x, unknown)", "float[*]"),
        ("r = Range(a, a, a) y = Expand(x, r)", "float[*]"),
        (
            "y = If(c) <then_branch = t () => (float p) { p = ConstantOfShape(long) }, else_branch = e () => (float q) { q = Neg(x) }>",
            "float[*]",
        ),
    ],
)
def test_ranks_and_sizes_that_grow(nodes, declared):
    model = Model(onnx.parser.parse_model(f"{HEAD} g ({INPUTS}) => (y) {{ {nodes} }}"))
    infer_model(model)
    assert str(model.graph.values["y"].type) == declared


@pytest.mark.parametrize("step", [1, -(2**31) + 1, 2**31, -(2**62)])
def test_slices_in_steps_beyond_32_bits(step):
    text = f"<int64[1] a = {{0}}, int64[1] b = {{4}}, int64[1] d = {{{step}}}> {{ s = Shape(x) y = Slice(s, a, b, a, d) }}"
    model = Model(onnx.parser.parse_model(f"{HEAD} g (float[1, 2, 3, 4] x) => (y) {text}"))
    infer_model(model)
    assert str(model.graph.values["y"].type).startswith("int64[")


@pytest.mark.parametrize("said", [1, 0, -1, 3, 1 << 40])
def test_a_split_with_another_number_of_outputs_than_it_says(said):
    """ONNX's inference writes past its own list, which ends the process, or takes all memory."""
    text = f"g (float[4] x) => (float[N] y, float[M] z) {{ y, z = Split <axis = 0, num_outputs = {said}> (x) }}"
    proto = onnx.parser.parse_model(HEAD + text)
    model = Model(proto)
    infer_model(model)
    assert Inferrer(model, OpRegistry()).node(next(model.graph.nodes)) == (None, None)
    assert make_feeds(proto).keys() == {"x"}


@pytest.mark.parametrize(
    ("op", "shapes", "much"),
    [
        ("Concat", [(10**6,), (10**6,)], False),
        ("Gather", [(10**6,), (3,)], False),
        ("Unsqueeze", [(2,), (5000,)], True),
        ("Reshape", [(10**6,), (2,)], False),
        ("ConstantOfShape", [(4096,)], False),
        ("ConstantOfShape", [(4097,)], True),
        ("Expand", [(2, 3), None], False),
        ("Gather", [(1,) * 4000, (1,) * 200], True),
        ("Neg", [(10**9,)], False),
        ("Concat", [("N",), (None,)], False),
    ],
)
def test_what_grows_too_much(op, shapes, much):
    assert grows_too_much(op, shapes) is much
