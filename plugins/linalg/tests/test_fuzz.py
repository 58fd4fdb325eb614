"""A short run of the fuzz: ``make linalg-fuzz`` runs it at length."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable

import pytest

from gehost_linalg.mlir import Function, parse, print_function

from .dags import function_with_reshapes, random_function
from .fuzz import compare_with_mlir, compare_with_runtime, ours
from .mixed import mixed_function


def test_random_graphs_give_the_same_numbers_in_bodies_and_loops() -> None:
    counts = compare_with_runtime(range(18))
    assert counts["groups"] >= 10
    assert not [key for key, count in counts.items() if count and "differ" in key]


@pytest.mark.skipif(
    importlib.util.find_spec("iree") is None, reason="iree-base-compiler is not installed"
)
@pytest.mark.parametrize("make", [random_function, function_with_reshapes, mixed_function])
def test_random_functions_are_fused_as_mlir_fuses_them(make: Callable[[int], Function]) -> None:
    from .oracle import Iree

    counts = compare_with_mlir(range(40), Iree(), 1, make)
    assert (counts["dags"], counts["different"]) == (40, 0)


def test_functions_with_regions_stay_well_formed() -> None:
    for seed in range(30):
        fused, _ = ours(parse(print_function(mixed_function(seed)))[0])
        printed = print_function(fused)
        assert print_function(parse(printed)[0]) == printed
