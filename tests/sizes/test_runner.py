"""A case that ends its process ends nothing else."""

from __future__ import annotations

import os

from tools.sizes.runner import each


def ends_at_three(number: int) -> int:
    if number == 3:
        os._exit(9)
    return number * 2


def test_a_case_that_dies_is_the_only_one_without_a_result() -> None:
    results = {outcome.number: outcome for outcome in each(ends_at_three, range(6), 1)}
    assert {n: o.result for n, o in results.items() if n != 3} == {0: 0, 1: 2, 2: 4, 4: 8, 5: 10}
    assert results[3].failure == "died: the process ended with code 9"
