"""Propagation: solutions, pins, conflicts."""

from __future__ import annotations

import itertools
import random

import pytest

from gehost import UsageError
from gehost.testing import parse
from gehost_sharding.mesh import Mesh
from gehost_sharding.model_graph import ModelGraph
from gehost_sharding.propagation import (
    ConflictError,
    Pin,
    Propagation,
    check_mesh,
    strategy_rows,
)
from gehost_sharding.rules.table import RuleTable
from gehost_sharding.sharding import Sharding, shardings_of

from .conftest import FUSED, graph_of

CUBES = {"p0", "p1", "p7", "p8", "p9"}
MATRICES = {"p4", "p5", "p13", "p14"}


def solutions(graph: ModelGraph, mesh: Mesh, *pins: str) -> list[dict[str, Sharding]]:
    propagation = Propagation(graph, mesh, RuleTable())
    parsed = [Pin.parse(pin, graph, mesh) for pin in pins]
    return [dict(solution.inputs) for solution in propagation.solutions(parsed)]


@pytest.fixture(scope="module")
def fused() -> ModelGraph:
    return ModelGraph(parse(FUSED))


def fused_solution(dim: int) -> dict[str, Sharding]:
    """0 and 1 split the matrices too; 2 is made by the broadcast; scalars are replicated."""
    return {
        f"p{number}": (
            dim if f"p{number}" in CUBES or (f"p{number}" in MATRICES and dim < 2) else -1,
        )
        for number in range(15)
    }


def test_the_46_instruction_function_has_four_solutions(fused: ModelGraph) -> None:
    actual = solutions(fused, Mesh.symbolic())
    assert len(actual) == 4
    assert all(fused_solution(dim) in actual for dim in (-1, 0, 1, 2))


def test_an_axis_of_2_divides_only_the_last_dimension(fused: ModelGraph) -> None:
    actual = solutions(fused, Mesh.parse("x=2"))
    assert len(actual) == 2
    assert all(fused_solution(dim) in actual for dim in (-1, 2))


@pytest.mark.parametrize(("pin", "dim"), [("p14=1:x", 1), ("p0=2:x", 2), ("p4=0", 0)])
def test_a_pin_decides_the_rest(fused: ModelGraph, pin: str, dim: int) -> None:
    assert solutions(fused, Mesh.symbolic(), pin) == [fused_solution(dim)]


def test_contradicting_pins_are_both_named_with_the_operators_between(fused: ModelGraph) -> None:
    with pytest.raises(ConflictError) as error:
        solutions(fused, Mesh.symbolic(), "p14=1:x", "p0=0:x")
    message = str(error.value)
    assert "p14=1:x" in message
    assert "p0=0:x" in message
    assert 'Div "divide_3442"' in message
    assert "contradict each other" in message


@pytest.mark.parametrize(
    ("pin", "chain"),
    [
        ("x=1:x", 'x=1:x through Relu "r", Neg "m", MatMul "h"'),
        ("r=1:x", 'r=1:x through Neg "m", MatMul "h"'),
    ],
)
def test_a_pin_that_cannot_hold_names_the_operators_to_the_conflict(pin: str, chain: str) -> None:
    """The product over the split dimension would be partial."""
    model = parse("""<ir_version: 10, opset_import: ["": 20]> main (float[4,8] x, float[8,8] w) => (float[4,8] y)
        { r = Relu (x) m = Neg (r) h = MatMul (m, w) y = Relu (h) }""")
    with pytest.raises(ConflictError, match="the pin cannot hold: no sharding without") as error:
        solutions(ModelGraph(model), Mesh.symbolic(), pin)
    assert str(error.value).endswith(f": {chain}")


def test_two_pins_of_one_tensor_and_axis_contradict_each_other(fused: ModelGraph) -> None:
    with pytest.raises(ConflictError, match="p0=1:x.*p0=0:x|p0=0:x.*p0=1:x"):
        solutions(fused, Mesh.symbolic(), "p0=0:x", "p0=1:x")


SMALL = """(float[4,8] x, float[8,4] w, float[4] b) => (float[4,4] z) {
    a = MatMul (x, w)
    c = Add (a, b)
    z = Softmax <axis = 1> (c)
}"""


def brute_force(graph: ModelGraph, mesh: Mesh) -> set[tuple[Sharding, ...]]:
    """Every assignment of all tensors, tested operator by operator."""
    strategies = Propagation(graph, mesh, RuleTable()).strategies
    names = [name for name in graph.tensors if name in graph.readers or name in graph.producer]
    domains = [shardings_of(mesh, graph.tensors[name].shape) for name in names]
    rows = [
        (
            [*operator.node.input, operator.node.output[0]],
            {(*row.operands, row.results[0]) for row in strategies[operator].choices},
        )
        for operator in graph.operators
    ]
    actual: set[tuple[Sharding, ...]] = set()
    for choice in itertools.product(*domains):
        placed = dict(zip(names, choice, strict=True))
        if all(tuple(placed[name] for name in slots) in allowed for slots, allowed in rows):
            actual.add(tuple(placed[name] for name in graph.inputs))
    return actual


@pytest.mark.parametrize("mesh", ["x=2", "x=2,y=2", "x=4"])
def test_the_solutions_are_those_of_brute_force(mesh: str) -> None:
    graph = graph_of(SMALL)
    actual = solutions(graph, Mesh.parse(mesh))
    as_set = {tuple(solution[name] for name in graph.inputs) for solution in actual}
    assert len(as_set) == len(actual)
    assert as_set == brute_force(graph, Mesh.parse(mesh))


def test_partial_results_are_kept_on_demand() -> None:
    graph = graph_of("(float[4,8] x, float[8,4] w) => (float[4,4] z) { z = MatMul (x, w) }")
    mesh = Mesh.parse("x=2")
    assert len(solutions(graph, mesh)) == 3
    propagation = Propagation(graph, mesh, RuleTable(), keep_partial=True)
    assert {(1,), (0,)} <= {solution.inputs["x"] for solution in propagation.solutions()}


def test_weights_are_cut_as_the_inputs_need() -> None:
    """A solution is a sharding of the inputs; initializers follow."""
    import numpy as np

    weights = {"w": np.ones((8, 4), np.float32), "b": np.ones(4, np.float32)}
    graph = graph_of(SMALL, weights)
    actual = solutions(graph, Mesh.parse("x=2"))
    assert actual == [{"x": (-1,)}, {"x": (0,)}]


def test_the_estimate_is_there_before_the_first_solution(fused: ModelGraph) -> None:
    propagation = Propagation(fused, Mesh.symbolic(), RuleTable())
    pin = Pin.parse("p0=2", fused, Mesh.symbolic())
    propagation.solutions([pin])
    estimate = propagation.estimate
    assert estimate is not None
    assert (estimate.operators, estimate.most_strategies) == (30, 4)
    assert estimate.rows_after == 30 < estimate.rows_before
    assert estimate.log10_after == 0


@pytest.mark.parametrize(
    ("pin", "reason"),
    [
        ("x", "wanted TENSOR=AXIS:MESHAXIS"),
        ("wx=0:x", 'no tensor "wx"; the nearest: w|no tensor "wx"; the nearest: x'),
        ("x=2:x", "x has 2 dimensions .*wanted 0 to 1"),
        ("x=0:y", 'no mesh axis "y"; the mesh has x'),
        ("x=0:x", "does not divide dimension 0 of x, which has size 4"),
    ],
)
def test_bad_pins_are_refused(pin: str, reason: str) -> None:
    with pytest.raises(UsageError, match=reason):
        Pin.parse(pin, graph_of(SMALL), Mesh.parse("x=8"))


def test_a_pin_without_a_mesh_axis_is_refused_where_there_are_several() -> None:
    graph, mesh = graph_of(SMALL), Mesh.parse("x=2,y=2")
    with pytest.raises(UsageError, match=r"wanted a mesh axis, as in x=-1:x; the mesh has x, y"):
        Pin.parse("x=-1", graph, mesh)
    assert Pin.parse("x=-1", graph, Mesh.parse("x=2")).axis == 0


def test_a_mesh_that_divides_nothing_is_refused() -> None:
    with pytest.raises(UsageError, match="axis y of size 3 divides no dimension"):
        check_mesh(graph_of(SMALL), Mesh.parse("x=2,y=3"))


NODES = (
    "{z} = Add ({x}, {y})", "{z} = MatMul ({x}, {y})", "{z} = Softmax <axis = 1> ({x})",
    "{z} = Transpose <perm = [1, 0]> ({x})", "{z} = Exp ({x})", "{z} = Softmax <axis = 0> ({x})",
)  # fmt: skip
"""On matrices of 4 by 4."""


@pytest.mark.parametrize("seed", range(300))
def test_random_graphs_have_the_solutions_of_brute_force(seed: int) -> None:
    rng = random.Random(seed)
    names, lines = ["a", "b", "c"], list[str]()
    for number in range(rng.randint(2, 5)):
        x, y = rng.choice(names), rng.choice(names)
        lines.append(rng.choice(NODES).format(x=x, y=y, z=f"t{number}"))
        names.append(f"t{number}")
    read = [
        name for name in "abc" if any(f"({name}" in line or f" {name})" in line for line in lines)
    ]
    inputs = ", ".join(f"float[4,4] {name}" for name in read)
    graph = graph_of(f"({inputs}) => (float[4,4] {names[-1]}) {{ {' '.join(lines)} }}")
    mesh = Mesh.symbolic()
    strategies = Propagation(graph, mesh, RuleTable()).strategies
    expected: set[tuple[int, ...]] = set()
    for rows in itertools.product(*(rows.values() for rows in strategy_rows(graph, strategies))):
        dims: dict[str, set[int]] = {}
        for row in rows:
            for name, dim in row.items():
                dims.setdefault(name, set()).add(dim)
        if all(len(values) == 1 for values in dims.values()):
            expected.add(tuple(next(iter(dims[name])) for name in graph.inputs))
    actual = solutions(graph, mesh)
    assert {tuple(sharding[0] for sharding in result.values()) for result in actual} == expected
