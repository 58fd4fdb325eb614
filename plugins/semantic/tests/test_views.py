"""A view's elements are the operator's, at random sizes, also 0 and 1."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from gehost import Value, infer_model
from gehost.ir.model import Model
from gehost.testing import graph_of
from gehost_semantic import View, Views
from gehost_semantic.extents import Extents
from tools.semantic.check import Array, tensors
from tools.semantic.graphs import RandomGraph
from tools.semantic.recompute import evaluate, sizes_of_run, sources

HEAD = '<ir_version: 9, opset_import: ["" : 18]> g '


def elements(view: View, base: Array, extents: Extents, sizes: dict[str, int]) -> Array:
    """The elements of a view, read from its base."""
    shape = [evaluate(extents.scope, size, sizes) for size in view.shape]
    places = [
        np.full((1,) * len(shape), evaluate(extents.scope, offset, sizes))
        for offset in view.offsets
    ]
    for axis, dim in enumerate(view.dims):
        rest = np.arange(shape[axis])
        for term in reversed(dim):
            size, stride = (evaluate(extents.scope, x, sizes) for x in (term.size, term.stride))
            digit, rest = (rest % size, rest // size) if size else (rest, rest)
            if term.axis is not None:
                along = [-1 if n == axis else 1 for n in range(len(shape))]
                places[term.axis] = places[term.axis] + stride * digit.reshape(along)
    index = tuple(np.broadcast_to(place, shape) for place in places)
    return (base[index] if index else np.broadcast_to(base, shape)) * view.factor


def random_layouts(seed: int) -> onnx.ModelProto:
    """Layout operators in a row, each result an output."""
    chosen = random.Random(seed)
    graph = RandomGraph(chosen)
    graph.sizes = {"b": "b", "s": "s", "h": 2, "g": 3, "d": 4}
    axes = graph.input("x", "bshgd", merges=True)
    tensor, outputs = "x", list[str]()
    for _ in range(8):
        target = [[letter] for axis in axes for letter in axis]
        chosen.shuffle(target)
        if chosen.random() < 0.5:
            place = chosen.randrange(len(target) - 1)
            target[place : place + 2] = [target[place] + target[place + 1]]
        tensor, axes = graph.wander(tensor, axes, target), target
        fixed = [n for n, axis in enumerate(axes) if all(graph.sizes[x] in (2, 3, 4) for x in axis)]
        way = chosen.random()
        if way < 0.2:
            wide = graph.op("Unsqueeze", tensor, graph.constant([0]))
            repeats = graph.constant([2, *[1] * len(axes)])
            outputs.append(graph.op(chosen.choice(["Tile", "Expand"]), wide, repeats))
        elif way < 0.4 and fixed:
            at = chosen.choice(fixed)
            bounds = [graph.constant([1]), graph.constant([2**31]), graph.constant([at])]
            outputs.append(graph.op("Slice", tensor, *bounds))
        elif way < 0.6 and fixed:
            at = chosen.choice(fixed)
            outputs.append(
                graph.op("Gather", tensor, graph.constant(chosen.choice([1, -1])), axis=at)
            )
        outputs.append(tensor)
    graph.nodes.append(helper.make_node("Mul", [tensor, graph.constant(np.float32(0.5))], ["half"]))
    results = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, None)
        for name in dict.fromkeys([*outputs, "half"])
        if name != "x"
    ]
    proto = helper.make_graph(graph.nodes, "layouts", graph.inputs, results, graph.constants)
    opsets = [helper.make_opsetid("", 18)]
    return helper.make_model(proto, opset_imports=opsets, ir_version=9)


@pytest.mark.parametrize("seed", range(40))
def test_random_layouts_have_the_elements_of_their_view(seed: int) -> None:
    proto = random_layouts(seed)
    model = Model(onnx.ModelProto.FromString(proto.SerializeToString()))
    infer_model(model)
    views = Views(model.graph)
    results = {value: views.of(value) for value in model.graph.outputs}
    checked = [(v, view) for v, view in results.items() if view is not None and view.base is not v]
    assert len(checked) >= 0.8 * len(results)
    bases = list({view.base for _, view in checked})
    for b, s in ((3, 5), (1, 1), (2, 1), (1, 4)):
        shape = [{"b": b, "s": s}.get(str(dim), dim) for dim in model.graph.inputs[0].shape or ()]
        x = np.arange(math.prod(map(int, shape)), dtype=np.float32).reshape(list(map(int, shape)))
        sized = [value for value, _ in sources(views.graph).values()]
        arrays = tensors(proto, model.graph, [*bases, *sized, *results], {"x": x})
        sizes = sizes_of_run(views.graph, arrays)
        for value, view in checked:
            actual = elements(view, arrays[view.base], views.extents, sizes)
            np.testing.assert_array_equal(actual, arrays[value], err_msg=value.name)


def view_of(body: str, inputs: str = "float[b, s, 12] x") -> tuple[Views, Value, View]:
    model_graph = graph_of(f"{HEAD}({inputs}) => (float[?] y) {{ {body} }}")
    infer_model(model_graph.model)
    views, (y,) = Views(model_graph), model_graph.outputs
    view = views.of(y)
    assert view is not None
    return views, y, view


def constants(**numbers: Sequence[int]) -> str:
    lines = (f"{k} = Constant <value_ints = {list(v)}> ()" for k, v in numbers.items())
    return "\n".join(lines) + "\n"


def test_empty_axes_have_no_elements_to_tell_apart() -> None:
    views, _, view = view_of(constants(t=[0, 0, 3, 4]) + "y = Reshape (x, t)")
    assert [str(size) for size in view.shape] == ["b", "s", "3", "4"]
    assert elements(view, np.zeros((0, 5, 12)), views.extents, {"b": 0, "s": 5}).shape == (
        0,
        5,
        3,
        4,
    )


def test_a_size_that_may_be_1_is_not_spread() -> None:
    """Expand of [b, s, 12] to [b, 7, 12] is a view only if s is known."""
    _, y, view = view_of(constants(t=[1, 7, 1]) + "y = Expand (x, t)")
    assert view.base is y
    _, _, view = view_of(constants(t=[1, 7, 1]) + "y = Expand (x, t)", "float[b, 7, 12] x")
    assert view.base.name == "x"


def test_a_reshape_that_cuts_a_term_is_a_base_of_its_own() -> None:
    _, y, view = view_of(constants(t=[-1, 8]) + "y = Reshape (x, t)")
    assert view.base is y


def test_an_unsigned_slice_is_opaque() -> None:
    """x[:, :n - 3] needs n >= 3."""
    body = constants(z=[0], e=[-3], a=[1]) + "y = Slice (x, z, e, a)"
    _, y, view = view_of(body)
    assert view.base is y


def test_facts_of_a_matmul_make_two_names_one() -> None:
    body = constants(p=[0]) + "t = Transpose <perm = [0, 2, 1]> (x)\ny = MatMul (t, z)"
    views, _, _ = view_of(body, "float[b, s, 12] x, float[b, u, 5] z")
    assert views.extents.read("u") == views.extents.read("s")


def test_an_operator_that_no_output_reads_proves_nothing() -> None:
    body = "t = Transpose <perm = [0, 2, 1]> (x)\nw = MatMul (t, z)\ny = Neg (x)"
    views, _, _ = view_of(body, "float[b, s, 12] x, float[b, u, 5] z")
    assert views.extents.read("u") != views.extents.read("s")


DROPOUTS = {
    # opset, nodes, and whether y is x
    "inference": (13, "y = Dropout (x)", True),
    "mode off": (13, "y = Dropout (x, ratio, off)", True),
    "mode computed": (13, "mode = Not (on) y = Dropout (x, ratio, mode)", True),
    "mode on": (13, "y = Dropout (x, ratio, on)", False),
    "mode cast": (13, "mode = Cast <to = 9> (one) y = Dropout (x, ratio, mode)", False),
    "mode of the caller": (13, "y = Dropout (x, ratio, training)", False),
    "the mask": (13, "d, m = Dropout (x) y = Cast <to = 1> (m)", False),
    "opset 7": (7, "y = Dropout (x)", True),
    "opset 6": (6, "y = Dropout (x)", False),
    "opset 6, test": (6, "y = Dropout <is_test = 1> (x)", True),
}


@pytest.mark.parametrize("name", DROPOUTS)
def test_a_dropout_is_its_input_where_it_drops_nothing(name: str) -> None:
    opset, nodes, is_x = DROPOUTS[name]
    model = Model(
        onnx.parser.parse_model(
            f"""<ir_version: 8, opset_import: ["" : {opset}]> g (float[2, 3] x, bool training)
            => (float[2, 3] y) <float ratio = {{0.5}}, bool on = {{1}}, bool off = {{0}},
            int64 one = {{1}}> {{ {nodes} }}"""
        )
    )
    infer_model(model)
    y = model.graph.outputs[0]
    view = Views(model.graph).of(y)
    assert view is not None
    assert (view.base is model.graph.inputs[0]) == is_x
