"""A graph that was built before is used again where its values are alike, and nowhere else."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from gehost import DataType, EsGraph, EsGraphBuilder, es
from gehost.es import reuse


@pytest.fixture
def built() -> list[Sequence[Any]]:
    """The values for which a graph was built."""
    return []


@pytest.fixture
def recipe(built: list[Sequence[Any]]) -> es.Recipe:
    def build(values: Sequence[Any]) -> EsGraph:
        built.append(values)
        builder = EsGraphBuilder("built")
        return builder.BuildAndReset(
            [es.op("acme::Op")(builder.CreateInput(0), value=list(values))]
        )

    return es.Recipe(build)


def test_no_values_are_one_graph(recipe: es.Recipe) -> None:
    assert recipe.graph([]) is recipe.graph([])


@pytest.mark.parametrize(
    "value", [1, 0.5, "a", True, None, b"a", [1, 2], (1, 2), DataType.FLOAT, float("nan")]
)
def test_values_that_are_alike_are_one_graph(recipe: es.Recipe, value: Any) -> None:
    assert recipe.graph([value, 7]) is recipe.graph([value, 7])


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (1, 2),
        (1, 1.0),
        (1, True),
        (0.0, -0.0),
        ("1", 1),
        ([1], [1.0]),
        ([1], 1),
        ([1], (1,)),
        ("a", b"a"),
        (None, 0),
        (1, DataType(1)),
    ],
)
def test_values_that_differ_are_two_graphs(recipe: es.Recipe, one: Any, other: Any) -> None:
    first, second = recipe.graph([one]), recipe.graph([other])
    assert repr(first.nodes[0].params["value"]) == repr([one])
    assert repr(second.nodes[0].params["value"]) == repr([other])


def test_where_one_value_ends_and_the_next_begins(
    recipe: es.Recipe, built: list[Sequence[Any]]
) -> None:
    for values in (["1, 2"], [1, 2], ["1", "2"], [[1, 2]], ["1', '2"]):
        recipe.graph(values)
    assert len(built) == 5


class AlikeInPrint(list[int]):
    def __repr__(self) -> str:
        return "alike"


@pytest.mark.parametrize(
    "value",
    [
        np.ones(2),
        np.float32(1),
        [[1], [2]],
        object(),
        AlikeInPrint([1]),
        [0] * 257,
        (0,) * 257,
        "a" * 257,
        b"a" * 257,
    ],
)
def test_other_values_are_built_anew(recipe: es.Recipe, value: Any) -> None:
    assert recipe.graph([value]) is not recipe.graph([value])


def test_a_list_that_its_author_changes(recipe: es.Recipe) -> None:
    mine = [1, 2]
    first = recipe.graph([mine])
    mine[:] = [3, 4]
    assert first.nodes[0].params["value"] == [[1, 2]]
    assert recipe.graph([mine]).nodes[0].params["value"] == [[3, 4]]
    assert recipe.graph([[1, 2]]) is first


def test_not_all_graphs_are_kept(
    recipe: es.Recipe, built: list[Sequence[Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reuse, "_MOST", 3)
    for value in (0, 1, 2, 3, 3, 0):
        assert recipe.graph([value]).nodes[0].params["value"] == [value]
    assert [values[0] for values in built] == [0, 1, 2, 3, 0]
