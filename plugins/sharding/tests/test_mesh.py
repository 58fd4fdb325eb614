"""Meshes: parsing, device numbers, groups."""

from __future__ import annotations

import pytest

from gehost import UsageError
from gehost_sharding.mesh import Mesh


def test_devices_are_numbered_row_major() -> None:
    mesh = Mesh.parse("data=2, model=4")
    assert (mesh.axes, mesh.sizes, mesh.devices, str(mesh)) == (
        ("data", "model"),
        (2, 4),
        8,
        "data=2,model=4",
    )
    assert mesh.coordinates(6) == (1, 2)
    assert [mesh.device(mesh.coordinates(device)) for device in range(8)] == list(range(8))


def test_groups_differ_in_one_axis() -> None:
    mesh = Mesh.parse("data=2,model=4")
    assert mesh.groups(0) == ((0, 4), (1, 5), (2, 6), (3, 7))
    assert mesh.groups(1) == ((0, 1, 2, 3), (4, 5, 6, 7))


def test_an_axis_of_size_1_has_no_effect() -> None:
    mesh = Mesh.parse("data=1,model=2")
    assert mesh.active_axes == (1,)
    assert mesh.devices == 2


def test_the_symbolic_axis_divides_every_size_but_1() -> None:
    mesh = Mesh.symbolic()
    assert mesh.is_symbolic
    assert [mesh.divides([0], size) for size in (0, 1, 2, 35)] == [False, False, True, True]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("data", "wanted axes as in data=2,model=4"),
        ("data=2,,model=2", "wanted axes"),
        ("data=0", "axis data has size 0; the least is 1"),
        ("data=-2", "axis data has size -2"),
        ("data=2,data=4", "axis data is given twice"),
        ("2=data", "wanted axes"),
    ],
)
def test_bad_meshes_are_refused(text: str, reason: str) -> None:
    with pytest.raises(UsageError, match=reason):
        Mesh.parse(text)


def test_the_mesh_is_a_networkx_graph() -> None:
    graph = Mesh.parse("data=2,model=2").graph()
    assert sorted((*edge, axis) for *edge, axis in graph.edges(data="axis")) == [
        (0, 1, "model"),
        (0, 2, "data"),
        (1, 3, "data"),
        (2, 3, "model"),
    ]
