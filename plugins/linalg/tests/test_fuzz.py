"""A short run of the fuzz: ``make linalg-fuzz`` runs it at length."""

from __future__ import annotations

import importlib.util

import pytest

from .fuzz import compare_with_mlir, compare_with_runtime


def test_random_graphs_give_the_same_numbers_in_bodies_and_loops() -> None:
    counts = compare_with_runtime(range(18))
    assert counts["groups"] >= 10
    assert not [key for key, count in counts.items() if count and "differ" in key]


@pytest.mark.skipif(
    importlib.util.find_spec("iree") is None, reason="iree-base-compiler is not installed"
)
def test_random_dags_are_fused_as_mlir_fuses_them() -> None:
    from .oracle import Iree

    counts = compare_with_mlir(range(60), Iree(), 1)
    assert (counts["dags"], counts["different"]) == (60, 0)
