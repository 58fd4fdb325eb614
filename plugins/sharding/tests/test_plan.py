"""Plans: optimal, pinned, under a capacity, weighted."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from gehost import ModelError, UsageError
from gehost_sharding.assignment import all_transfers
from gehost_sharding.cost_graph import Objective
from gehost_sharding.elimination import evaluate
from gehost_sharding.hardware import Hardware
from gehost_sharding.mesh import Mesh
from gehost_sharding.model_graph import ModelGraph
from gehost_sharding.plan import Plan, Planner, Solved, objective_value
from gehost_sharding.propagation import Pin
from gehost_sharding.redistribution import Redistributions
from gehost_sharding.rules.table import RuleTable

from .conftest import SLOW, graph_of, reread
from .decoder import decoder
from .models import block

MESH = Mesh(("data", "model"), (2, 4))


def planner(graph: ModelGraph, mesh: Mesh = MESH, hardware: Hardware = SLOW) -> Planner:
    return Planner(graph, mesh, hardware, RuleTable())


TINY = """(float[4,8] x, float[8,8] w) => (float[4,8] z) {
    a = Relu (x)
    b = MatMul (a, w)
    c = Softmax <axis = 1> (b)
    z = Add (a, c)
}"""


@pytest.mark.parametrize("mesh", ["x=2", "x=2,y=2"])
@pytest.mark.parametrize("objective", [Objective(), Objective(0.0, 0.0, 2.0, 3.0)])
def test_the_plan_costs_the_minimum_over_all_states(mesh: str, objective: Objective) -> None:
    graph = graph_of(TINY)
    search = planner(graph, Mesh.parse(mesh))
    solved = search.plan(objective=objective).solved
    costs, edges, _ = search.cost_graph().tables(objective, {})
    spaces = [range(len(cost)) for cost in costs]
    if np.prod([len(space) for space in spaces]) < 300_000:
        best = min(evaluate(costs, edges, states) for states in itertools.product(*spaces))
        assert solved.minimum.cost == pytest.approx(best)
    assert solved.recomputed == pytest.approx(solved.minimum.cost)
    assert objective_value(objective, solved) == pytest.approx(solved.minimum.cost)


def test_a_tensor_with_several_readers_is_gathered_once() -> None:
    """q, k and v share the gather of their input."""
    solved = planner(block(), Mesh.parse("x=2")).plan().solved
    moved = [
        (transfer.tensor, transfer.source, transfer.move.after) for transfer in solved.transfers
    ]
    assert len(moved) == len({*moved})


def megatron(graph: ModelGraph, layers: int) -> list[Pin]:
    """q, k, v, w1 by columns, wo, w2 by rows, the batch over data."""
    pins = ["x=0:data"]
    for layer in range(layers):
        pins += [f"l{layer}.w{letter}=1:model" for letter in "qkv1"]
        pins += [f"l{layer}.w{letter}=0:model" for letter in "o2"]
    return [Pin.parse(pin, graph, MESH) for pin in pins]


def decoder_plan(batch: int, length: int, price: float = 0.0) -> tuple[Plan, dict[str, Solved]]:
    graph = ModelGraph(decoder(8, batch=batch, length=length))
    search = planner(graph, MESH, Hardware())
    plan = search.plan(objective=Objective(weights=price))
    search.compare(plan, {"megatron": megatron(graph, 8)})
    compared: dict[str, Solved] = {}
    for label, result in plan.compared.items():
        assert isinstance(result, Solved)
        compared[label] = result
        assert plan.solved.minimum.cost <= result.minimum.cost * (1 + 1e-9)
    assert plan.is_proven
    return plan, compared


def test_a_large_batch_is_split_over_both_axes() -> None:
    plan, compared = decoder_plan(8, 2048)
    assert plan.solved.wire_bytes == 0
    both = compared["data parallelism over data, model"]
    assert plan.solved.totals["seconds"] == pytest.approx(both.totals["seconds"])
    assert plan.solved.totals["seconds"] < compared["megatron"].totals["seconds"]


def test_a_short_batch_gets_megatrons_columns_and_rows() -> None:
    plan, compared = decoder_plan(2, 128)
    solved = plan.solved
    assert solved.totals["seconds"] == pytest.approx(0.719e-3, rel=0.01)
    assert solved.totals["seconds"] <= compared["megatron"].totals["seconds"]
    assert sum(entry["count"] for entry in solved.by_collective().values()) == 16
    for operator in plan.assignment.graph.operators:
        weights = [name for name in operator.node.input if ".w" in name]
        for name in weights:
            expected = plan.assignment.strategy(operator.index).operands[1]
            assert expected == (-1, 0 if name[-1] in "o2" else 1), name


def test_a_long_sequence_is_split_with_all_to_all_around_attention() -> None:
    plan, compared = decoder_plan(2, 2048)
    assert set(plan.solved.by_collective()) == {"all_to_all"}
    assert plan.solved.wire_bytes == pytest.approx(91e6, rel=0.01)
    assert plan.solved.totals["seconds"] < 0.87 * compared["megatron"].totals["seconds"]


def test_priced_weights_get_megatron_with_sequence_parallelism() -> None:
    plan, compared = decoder_plan(2, 2048, 2e-12)
    kinds = plan.solved.by_collective()
    assert kinds["reduce_scatter"]["count"] == 16
    assert kinds["all_gather"]["count"] == 15
    assert "all_reduce" not in kinds
    assert plan.solved.minimum.cost < compared["megatron"].minimum.cost


def test_predicted_bytes_are_those_of_the_annotations() -> None:
    plan = planner(block(), Mesh.parse("data=2,model=2")).plan()
    again = reread(plan.assignment)
    transfers = list(all_transfers(again, Redistributions(again.mesh)))
    assert [(t.tensor, t.move) for t in transfers] == [
        (t.tensor, t.move) for t in plan.solved.transfers
    ]


def narrow_decoder() -> ModelGraph:
    return ModelGraph(decoder(2, batch=8, length=16, width=128, heads=4))


def least_bytes(search: Planner) -> int:
    with pytest.raises(ModelError, match=r"no plan on mesh .* was found that holds 1 bytes") as one:
        search.plan(memory=1)
    return int(str(one.value).partition("the least found is ")[2].split()[0])


def test_a_capacity_is_kept_and_the_bound_holds() -> None:
    search = planner(narrow_decoder(), Mesh.parse("x=4"))
    free = search.plan()
    low, high = least_bytes(search), free.solved.memory_bytes
    assert low < high
    previous = float("inf")
    for memory in np.linspace(low, high, 5).astype(int):
        plan = search.plan(memory=int(memory))
        assert plan.solved.memory_bytes <= memory
        seconds = plan.solved.totals["seconds"]
        assert plan.bound <= seconds * (1 + 1e-9)
        assert seconds <= previous * (1 + 1e-9)
        if plan.is_proven:
            assert plan.bound == pytest.approx(seconds)
        previous = seconds
    assert previous == pytest.approx(free.solved.totals["seconds"])


SHARED = """(float[1,16] x) => (float[1,16] z) {
    a = MatMul (x, w)
    b = Softmax (a)
    c = MatMul (b, w)
    d = Softmax (c)
    z = MatMul (d, w)
}"""
"""One weight that three operators read; splitting it costs time at the Softmax."""


def every_plan(search: Planner) -> list[tuple[int, float]]:
    """Bytes held and seconds of every choice of states."""
    cost_graph = search.cost_graph(prices_weights=True)
    plans: list[tuple[int, float]] = []
    for states in itertools.product(*(range(vertex.states) for vertex in cost_graph.vertices)):
        masks = {
            number: np.arange(cost_graph.vertices[number].states) == state
            for number, state in enumerate(states)
        }
        solved = search.solve(cost_graph, Objective(), masks)
        plans.append((solved.memory_bytes, solved.totals["seconds"]))
    return plans


@pytest.mark.parametrize("shared_from", [1, 1 << 16])
def test_bounds_under_a_capacity_are_those_of_brute_force(
    shared_from: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gehost_sharding.cost_graph.SHARED_WEIGHT", shared_from)
    weights = {"w": np.ones((16, 16), np.float32)}
    search = planner(graph_of(SHARED, weights), Mesh.parse("x=2"), Hardware())
    plans = every_plan(search)
    least = min(size for size, _ in plans)
    assert search.cost_graph(prices_weights=True).least_bytes({}) <= least
    assert least <= least_bytes(search)
    for memory in sorted({size for size, _ in plans}):
        if memory >= least_bytes(search):
            fastest = min(seconds for size, seconds in plans if size <= memory)
            plan = search.plan(memory=memory)
            assert plan.bound <= fastest * (1 + 1e-9)
            assert plan.solved.totals["seconds"] >= fastest * (1 - 1e-9)
            if plan.is_proven:
                assert plan.solved.totals["seconds"] == pytest.approx(fastest)


def test_results_count_as_memory() -> None:
    """Activations alone exceed the capacity: the plan splits what it would hold whole."""
    graph = graph_of("""(float[8,4096] x) => (float[8,4096] y) {
        a = Exp (x)
        y = Neg (a)
    }""")
    # a latency so high that splitting never pays
    search = Planner(graph, Mesh.parse("x=4"), Hardware(latency=1.0))
    pinned = [Pin.parse("y=-1:x", graph, search.mesh), Pin.parse("a=-1:x", graph, search.mesh)]
    whole = search.plan(pins=pinned)
    assert whole.solved.held_weights() == 0
    assert whole.solved.activation_bytes == 2 * 8 * 4096 * 4  # an operand and a result
    plan = search.plan(memory=3 * 8 * 4096)
    assert plan.solved.activation_bytes == 2 * 8 * 4096 * 4 // 4
    with pytest.raises(ModelError, match="the least possible is 65536 bytes, of which 0 are w"):
        search.plan(memory=65535)


def test_activations_are_counted_while_they_are_alive() -> None:
    graph = graph_of("""(float[8,16] x, float[8,16] b) => (float[8,16] y) {
        s = Add (x, b)
        t = Exp (s)
        u = Neg (t)
        v = Add (u, s)
        y = Neg (v)
    }""")
    mesh = Mesh.parse("d=1")
    solved = planner(graph, mesh).plan().solved
    row = 8 * 16 * 4
    assert solved.activation_bytes == 3 * row  # t, u and s, which v still reads


def test_the_weighted_objective_is_exact_on_bytes() -> None:
    """alpha alone splits all that can be; beta alone sends nothing."""
    search = planner(block(), Mesh.parse("x=2"))
    memory = search.plan(objective=Objective(0.0, 0.0, 1.0, 0.0)).solved
    wire = search.plan(objective=Objective(0.0, 0.0, 0.0, 1.0)).solved
    assert wire.totals["wire"] == 0
    assert memory.totals["memory"] < wire.totals["memory"]
    both = search.plan(objective=Objective(0.0, 0.0, 1.0, 1.0)).solved
    assert both.minimum.cost <= memory.totals["memory"] + memory.totals["wire"]


def test_a_mesh_of_one_device_has_nothing_to_compare_with() -> None:
    search = planner(block(), Mesh.parse("x=1"))
    plan = search.plan()
    search.compare(plan, {})
    assert plan.compared == {}
    assert plan.solved.wire_bytes == 0


def test_pins_hold() -> None:
    graph = block()
    mesh = Mesh.parse("data=2,model=2")
    pins = [Pin.parse(text, graph, mesh) for text in ("w1=1:model", "h=1:data", "ids=-1:data")]
    plan = planner(graph, mesh).plan(pins=pins)
    by_label = {operator.label: operator.index for operator in graph.operators}
    assert plan.assignment.strategy(by_label["u"]).operands[1][1] == 1
    assert plan.assignment.specs["h"][0] == 1
    assert plan.assignment.input_sharding("ids")[0] == -1


def test_pins_that_contradict_each_other_are_both_named() -> None:
    graph = block()
    mesh = Mesh.parse("x=2")
    pins = [Pin.parse(text, graph, mesh) for text in ("w1=1:x", "w1=0:x")]
    with pytest.raises(UsageError, match='pin "w1=1:x" and pin "w1=0:x" contradict each other'):
        planner(graph, mesh).plan(pins=pins)


def test_links_of_single_mesh_axes_have_their_own_bandwidth() -> None:
    """A slow axis carries less."""
    graph = block()
    mesh = Mesh.parse("fast=2,slow=2")
    hardware = Hardware(2e9, 1e9, 1e9, 0.0, axis_bandwidth={"slow": 1e6})
    plan = planner(graph, mesh, hardware).plan().solved
    sent = [0, 0]
    for transfer in plan.transfers:
        sent[transfer.move.axis] += transfer.bytes
    assert sent[1] < sent[0]
    with pytest.raises(UsageError, match='axis "other", which mesh'):
        planner(graph, mesh, Hardware(axis_bandwidth={"other": 1.0}))


WIDE = (
    """(float[8,8] x, float[8,8] a, float[8,8] b, float[8,8] c) => (float[8,8] z) {
    p = Exp (a) q = Exp (b) r = Exp (c)
"""
    + "".join(
        f"""    m{i} = MatMul ({"x" if not i else f"h{i - 1}"}, p)
    n{i} = MatMul (q, m{i})
    h{i} = MatMul (n{i}, r)
"""
        for i in range(4)
    )
    + "    z = Add (h3, x)\n}"
)
"""Three tensors that every layer reads."""


def test_above_the_width_limit_the_plan_is_not_proven() -> None:
    mesh = Mesh.parse("data=2,model=2")
    plan = Planner(graph_of(WIDE), mesh, SLOW, RuleTable(), most_cells=100).plan()
    exact = planner(graph_of(WIDE), mesh).plan()
    assert exact.is_proven
    assert exact.solved.minimum.width > 2
    assert plan.solved.minimum.fixed
    assert not plan.is_proven
    assert plan.solved.minimum.cost >= exact.solved.minimum.cost - 1e-12


def test_the_cost_graph_can_be_inspected() -> None:
    plan = planner(block(), Mesh.parse("x=2")).plan()
    graph = plan.graph
    assert graph.number_of_nodes() == len(plan.solved.cost_graph.vertices)
    assert {"tensor h", "tensor n", "tensor y"} <= {label for _, label in graph.nodes(data="label")}
    u, v, data = next(iter(graph.edges(data=True)))
    assert data["seconds"].shape == (graph.nodes[u]["states"], graph.nodes[v]["states"])


def test_the_mesh_of_a_plan_can_be_inspected() -> None:
    graph = planner(block(), Mesh.parse("data=2,model=4")).plan().mesh.graph()
    assert graph.nodes[6]["coordinates"] == (1, 2)
    assert graph.edges[2, 6]["axis"] == "data"
    assert sorted(graph[6]) == [2, 4, 5, 7]


def test_a_mesh_of_five_axes_is_refused() -> None:
    with pytest.raises(UsageError, match="at most 4 mesh axes larger than 1, not 5: a=2,b=2"):
        Planner(block(), Mesh.parse("a=2,b=2,c=2,d=2,e=2,f=1"))
