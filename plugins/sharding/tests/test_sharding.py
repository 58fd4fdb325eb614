"""Shardings: legality, local shapes, pieces."""

from __future__ import annotations

import numpy as np

from gehost_sharding.mesh import Mesh
from gehost_sharding.sharding import (
    PARTIAL_SUM,
    describe,
    is_legal,
    local_elements,
    local_shape,
    piece,
    shardings_of,
)

MESH = Mesh(("data", "model"), (2, 4))


def test_all_axes_of_a_dimension_divide_it_together() -> None:
    assert is_legal(MESH, (8, 4), (0, 0))
    assert not is_legal(MESH, (4, 4), (0, 0))
    assert not is_legal(MESH, (8, 4), (2, -1))


def test_shardings_of_a_shape() -> None:
    shardings = shardings_of(MESH, (8, 2))
    assert shardings[0] == (-1, -1)
    assert set(shardings) == {(-1, -1), (-1, 0), (0, -1), (0, 0), (1, -1), (1, 0)}


def test_several_axes_split_a_dimension_major_first() -> None:
    whole = np.arange(16)
    starts = [whole[piece(MESH, (16,), (0, 0), MESH.coordinates(d))][0] for d in range(8)]
    assert starts == list(range(0, 16, 2))


def test_local_shapes_and_sizes_agree() -> None:
    for sharding in shardings_of(MESH, (8, 4, 6)):
        shape = local_shape(MESH, (8, 4, 6), sharding)
        assert np.prod(shape) == local_elements(MESH, (8, 4, 6), sharding)
        cut = piece(MESH, (8, 4, 6), sharding, (1, 3))
        assert np.zeros((8, 4, 6))[cut].shape == shape


def test_shardings_are_described() -> None:
    assert describe(MESH, (-1, -1)) == "replicated"
    assert describe(MESH, (0, PARTIAL_SUM)) == "0:data,partial sum:model"
