"""Transfers: each move once, in the order in which tensors are read."""

from __future__ import annotations

from gehost_sharding.assignment import Assignment, Transfers, gather_transfers
from gehost_sharding.mesh import Mesh
from gehost_sharding.propagation import OperatorStrategies
from gehost_sharding.redistribution import ALL_GATHER, REDUCE_SCATTER, Redistributions
from gehost_sharding.rules.table import RuleTable
from gehost_sharding.sharding import PARTIAL_SUM

from .conftest import graph_of

TEXT = """(float[4,8] x, float[8,4] w) => (float[4,4] a, float[4,4] b) {
    p = MatMul (x, w)
    a = Softmax <axis = 1> (p)
    b = Softmax <axis = 0> (p)
}"""


def assignment(spec: tuple[int, ...]) -> Assignment:
    """The product reduced over k, kept as ``spec``; a along 0, b along 1."""
    graph = graph_of(TEXT)
    mesh = Mesh.parse("x=2")
    strategies = OperatorStrategies(graph, mesh, RuleTable())
    targets = [(PARTIAL_SUM,), (0,), (1,)]
    chosen = [
        next(n for n, s in enumerate(strategies[i].choices) if s.results == (sharding,))
        for i, sharding in enumerate(targets)
    ]
    return Assignment(graph, mesh, strategies, chosen, {"p": spec, "a": (0,), "b": (1,)})


def test_a_shared_tensor_is_reduced_once_and_redistributed_from_there() -> None:
    result = assignment((0,))
    transfers = Transfers(result, Redistributions(result.mesh))
    first = transfers.to("p", (0,))
    assert [(transfer.move.kind, transfer.bytes) for transfer in first] == [(REDUCE_SCATTER, 32)]
    assert transfers.to("p", (0,)) == []
    assert [transfer.move.kind for transfer in transfers.to("p", (1,))] == ["all_to_all"]
    assert transfers.to("p", (1,)) == []


def test_steps_on_the_way_are_shared() -> None:
    result = assignment((-1,))
    transfers = Transfers(result, Redistributions(result.mesh))
    assert [transfer.move.kind for transfer in transfers.to("p", (1,))] == ["all_reduce", "slice"]
    assert [transfer.move.kind for transfer in transfers.to("p", (0,))] == ["slice"]


def test_constants_and_inputs_need_no_move() -> None:
    result = assignment((0,))
    assert Transfers(result, Redistributions(result.mesh)).to("x", (1,)) == []
    assert result.input_sharding("x") == (1,)


def test_outputs_are_gathered_apart() -> None:
    result = assignment((0,))
    moves = gather_transfers(result, Redistributions(result.mesh))
    assert [(transfer.tensor, transfer.move.kind, transfer.bytes) for transfer in moves] == [
        ("a", ALL_GATHER, 32),
        ("b", ALL_GATHER, 32),
    ]
