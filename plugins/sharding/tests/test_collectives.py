"""Collectives as nodes: what is written is read back."""

from __future__ import annotations

import onnx
import pytest
from onnx import helper

from gehost import UsageError
from gehost_sharding.collectives import Collective, Writer, read_collective
from gehost_sharding.redistribution import ALL_GATHER, ALL_REDUCE, ALL_TO_ALL, REDUCE_SCATTER

GROUPS = ((0, 1), (2, 3))


@pytest.mark.parametrize(
    "collective",
    [
        Collective(ALL_REDUCE, GROUPS, "max"),
        Collective(ALL_GATHER, GROUPS, "sum", 2, 2),
        Collective(REDUCE_SCATTER, GROUPS, "sum", 1, 1),
        Collective(ALL_TO_ALL, GROUPS, "sum", 1, 2),
    ],
)
def test_our_own_domain_round_trips(collective: Collective) -> None:
    writer = Writer("gehost", 0, 20, str, lambda _value, name: name)
    (node,) = writer.write(collective, "x", "y", (4, 4, 4))
    assert node.domain == "gehost.collective"
    back = read_collective(node, 4)
    assert back is not None
    assert (back.kind, back.groups) == (collective.kind, GROUPS)
    if collective.kind in {ALL_REDUCE, REDUCE_SCATTER}:
        assert back.reduction == collective.reduction
    if collective.kind != ALL_REDUCE:
        assert (back.split_axis, back.concat_axis) == (
            collective.split_axis,
            collective.concat_axis,
        )


def test_a_distcollective_without_groups_is_the_world() -> None:
    node = helper.make_node(
        "DistCollective", ["x"], ["y"], collective_operation="ALL_GATHER", reduce_op="NONE"
    )
    collective = read_collective(node, 3)
    assert collective is not None
    assert (collective.kind, collective.groups) == (ALL_GATHER, ((0, 1, 2),))


def test_unknown_collectives_are_refused() -> None:
    broadcast = helper.make_node(
        "DistCollective", ["x"], ["y"], collective_operation="broadcast", reduce_op="none"
    )
    with pytest.raises(UsageError, match="broadcast is not run here"):
        read_collective(broadcast, 2)
    other = helper.make_node("Permute", ["x"], ["y"], domain="gehost.collective")
    with pytest.raises(UsageError, match="no collective of gehost.collective"):
        read_collective(other, 2)


def test_other_nodes_are_no_collectives() -> None:
    for op, domain in (("Relu", ""), ("FusedMatMul", "com.microsoft"), ("AllReduce", "acme")):
        assert read_collective(onnx.NodeProto(op_type=op, domain=domain), 2) is None
