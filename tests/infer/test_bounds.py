"""What whole-model inference is kept from, and that it is kept from nothing else."""

from __future__ import annotations

from pathlib import Path

import onnx
import pytest

from gehost.infer import infer_model
from gehost.infer.bounds import grows_too_much, leave_out
from gehost.infer.local import Inferrer
from gehost.ir.model import Model
from gehost.ops import OpRegistry
from gehost.verify import make_feeds

HEAD = '<ir_version: 9, opset_import: ["" : 20]> '
MODELS = Path(__file__).parents[1] / "models"


def left_out(text: str) -> list[str]:
    """The outputs of the nodes that whole-model inference does not get to see."""
    proto = onnx.parser.parse_model(HEAD + text)
    leave_out(proto)
    found: list[str] = []
    graphs = [proto.graph]
    for graph in graphs:
        for node in graph.node:
            if " " in node.op_type:
                found.append(node.output[0])
            graphs.extend(attribute.g for attribute in node.attribute if attribute.HasField("g"))
    return found


def doubled(first: str, op: str, times: int) -> str:
    return first + "".join(f" s{step + 1} = {op}(s{step}, s{step})" for step in range(times))


def test_a_shape_that_doubles_is_left_out_once_it_is_too_long():
    nodes = doubled("s0 = Shape(x)", "Concat<axis = 0>", 14)
    assert left_out(f"g (float[2, 3] x) => (int64[N] y) {{ {nodes} y = Neg(s14) }}") == ["s12"]
    assert (
        left_out(f"g (float[2, 3] x) => (int64[N] y) {{ {doubled('s0 = Shape(x)', 'Concat<axis = 0>', 11)} y = Neg(s11) }}") == []
    )


def test_sizes_that_grow_beyond_every_number_are_infinite():
    nodes = doubled("s0 = Mul(x, x)", "Mul", 10)
    assert left_out(f"g (float[3, 3] x, float[M, N] z) => (float[A, B] y) {{ {nodes} y = Mul(s10, z) }}") == []


@pytest.mark.parametrize(
    ("nodes", "out"),
    [
        ("y = ConstantOfShape(short)", []),
        ("y = ConstantOfShape(long)", ["y"]),
        ("y = Expand(x, short)", []),
        ("y = Expand(x, long)", ["y"]),
        ("y = Reshape(x, unknown)", ["y"]),
        ("s = Shape(x) y = Reshape(x, s)", []),
        ("s = Shape(x) c = Cast<to = 7>(s) m = Mul(c, c) y = Reshape(x, m)", []),
        ("s = Shape(x) o = ConstantOfShape(s) n = Shape(o) z = ConstantOfShape(n) y = Reshape(x, n)", []),
        ("r = Range(a, b, a) y = Expand(x, r)", ["y"]),
        (
            "y = If(c) <then_branch = t () => (float p) { p = ConstantOfShape(long) }, else_branch = e () => (float q) { q = Neg(x) }>",
            ["p"],
        ),
    ],
)
def test_ranks_that_come_from_vectors_are_bounded_by_their_lengths(nodes, out):
    inputs = "float[2, 3] x, int64[4] short, int64[1000000] long, int64[N] unknown, int64 a, int64 b, bool c"
    assert left_out(f"g ({inputs}) => (float[N] y) {{ {nodes} }}") == out


def test_a_size_that_the_file_states_is_believed_whatever_makes_the_tensor():
    text = "g (float[2] x) => (float[N] y, int64[2147483648] s) { s = Shape(x) y = Expand(x, s) }"
    assert left_out(text) == ["y"]


def test_gather_adds_ranks():
    nodes = doubled("s0 = Identity(i)", "Gather", 12)
    assert left_out(f"g (int64[2, 2] i) => (int64[N] y) {{ {nodes} y = Neg(s12) }}") == ["s12"]


@pytest.mark.parametrize(("step", "out"), [(1, []), (-(2**31) + 1, []), (2**31, ["y"]), (-(2**62), ["y"])])
def test_slices_in_steps_beyond_32_bits(step, out):
    text = f"<int64[1] a = {{0}}, int64[1] b = {{4}}, int64[1] d = {{{step}}}> {{ y = Slice(x, a, b, a, d) }}"
    assert left_out(f"g (float[4] x) => (float[N] y) {text}") == out


@pytest.mark.parametrize(("said", "out"), [(2, []), (1, ["y"]), (0, ["y"]), (-1, ["y"]), (3, ["y"]), (1 << 40, ["y"])])
def test_a_split_with_another_number_of_outputs_than_it_says(said, out):
    """ONNX's inference writes past its own list, which ends the process, or takes all memory."""
    text = f"g (float[4] x) => (float[N] y, float[M] z) {{ y, z = Split <axis = 0, num_outputs = {said}> (x) }}"
    assert left_out(text) == out
    proto = onnx.parser.parse_model(HEAD + text)
    model = Model(proto)
    if out:
        assert infer_model(model, Inferrer(model, OpRegistry())) is None
        assert Inferrer(model, OpRegistry()).node(next(model.graph.nodes)) == (None, None)
        assert make_feeds(proto).keys() == {"x"}


def test_a_node_that_is_left_out_is_inferred_on_its_own():
    model = Model(
        onnx.parser.parse_model(HEAD + "g (float[2] x, int64[N] s) => (float[N] y) { r = Identity(s) y = Expand(x, r) }")
    )
    assert infer_model(model, Inferrer(model, OpRegistry())) is None
    assert str(model.graph.values["y"].type).startswith("float")


@pytest.mark.parametrize("path", sorted(MODELS.glob("*.onnx")), ids=lambda path: path.stem)
def test_of_real_models_no_less_is_known(path, monkeypatch):
    def types() -> dict[tuple[str, str], str]:
        model = Model.load(path)
        assert infer_model(model, Inferrer(model, OpRegistry())) is None
        return {(graph.name, name): str(value.type) for graph in model.graphs for name, value in graph.values.items()}

    bounded = types()
    monkeypatch.setattr("gehost.infer.whole.leave_out", lambda _: None)
    assert bounded == types()


@pytest.mark.parametrize(
    ("op", "shapes", "much"),
    [
        ("ConstantOfShape", [(4096,)], False),
        ("ConstantOfShape", [(4097,)], True),
        ("Expand", [(2, 3), None], False),
        ("Gather", [(1,) * 4000, (1,) * 200], True),
        ("Neg", [(10**9,)], False),
        ("Concat", [("N",), (None,)], False),
    ],
)
def test_the_same_for_one_node(op, shapes, much):
    assert grows_too_much(op, shapes) is much
