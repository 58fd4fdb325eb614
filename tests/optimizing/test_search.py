"""Which groups of fusions stay, from times that are given instead of measured."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gehost.host.report import Report
from gehost.optimizing.build import Candidate
from gehost.optimizing.facts import Facts
from gehost.optimizing.search import Gain, leave_out
from gehost.passes.context import PassRecord
from gehost.tune import Comparison

GROUPS = [("attention", ("A", "B")), ("norms", ("N",)), ("activation", ("G",))]
FASTER, SLOWER = Comparison((1.2, 1.21, 1.22)), Comparison((0.8, 0.81, 0.82))
EVEN, A_LITTLE_SLOWER = Comparison((1.0, 1.01, 1.02)), Comparison((0.93, 0.97, 1.02))


class Bench:
    """Builds files of one node fewer for each pass; the gain of a pass is given."""

    def __init__(self, folder: Path, **gains: Comparison | Gain) -> None:
        self.folder, self.gains, self.compared = folder, gains, list[str]()
        self.wrong, self.useless = set[str](), set[str]()

    def build(self, passes: frozenset[str]) -> Candidate | None:
        if passes & self.wrong:
            return None
        path = self.folder / f"{'_'.join(sorted(passes)) or 'none'}.onnx"
        path.write_text(path.name, encoding="utf-8")
        nodes = 10 - len(passes - self.useless)
        records = [PassRecord(n, "", "", "", replaced=1) for n in sorted(passes)]
        facts = Facts(nodes, 0, 17, "float32", 0, 0, quantized=False, operators={})
        return Candidate(str(path), passes, facts, Report(passes=records))

    def compare(self, without: Candidate, best: Candidate, _what: str) -> Gain:
        added = "_".join(sorted(best.passes - without.passes))
        self.compared.append(added)
        gain = self.gains.get(added, EVEN)
        return gain if isinstance(gain, Gain) else Gain(gain)

    def search(self, is_late: Callable[[], bool] = lambda: False) -> tuple[list[str], Any]:
        start = self.build(frozenset("ABNG"))
        assert start is not None
        best, trials = leave_out(start, GROUPS, self.build, self.compare, is_late, 1.02)
        return sorted(best.passes), {trial.name: trial.verdict for trial in trials}


def test_what_pays_and_what_removes_nodes_for_nothing_stays(tmp_path: Path) -> None:
    bench = Bench(tmp_path, A_B=FASTER)
    assert bench.search() == (
        ["A", "B", "G", "N"], {"attention": "pays", "norms": "even", "activation": "even"},
    )  # fmt: skip


def test_what_costs_is_left_out(tmp_path: Path) -> None:
    bench = Bench(tmp_path, N=SLOWER)
    passes, verdicts = bench.search()
    assert passes == ["A", "B", "G"]
    assert verdicts["norms"] == "slower"


def test_what_is_undecided_goes_where_it_seems_slower_or_removes_no_node(tmp_path: Path) -> None:
    bench = Bench(tmp_path, N=A_LITTLE_SLOWER)
    bench.useless = {"G"}
    assert bench.search()[0] == ["A", "B"]


def test_what_removes_no_node_stays_where_it_seems_faster(tmp_path: Path) -> None:
    """Sums apart from norms seemed 1.18 times as fast on a busy machine, and were left out."""
    bench = Bench(tmp_path, G=Comparison((0.9, 1.18, 1.5)))
    bench.useless = {"G"}
    assert "G" in bench.search()[0]


@pytest.mark.parametrize(("small", "stays"), [(SLOWER, False), (A_LITTLE_SLOWER, True)])
def test_a_gain_at_the_large_size_does_not_pay_for_a_loss_at_the_small_one(
    tmp_path: Path, small: Comparison, stays: bool
) -> None:
    bench = Bench(tmp_path, N=Gain(FASTER, small))
    assert ("N" in bench.search()[0]) is stays


def test_single_passes_are_tried_where_a_group_does_not_pay(tmp_path: Path) -> None:
    bench = Bench(tmp_path, A_B=SLOWER, B=FASTER)
    passes, verdicts = bench.search()
    assert passes == ["B", "G", "N"]
    assert verdicts == {"attention": "slower", "B": "pays", "norms": "even", "activation": "even"}
    assert bench.compared == ["A_B", "A", "B", "N", "G"]


def test_without_time_groups_stay_undecided(tmp_path: Path) -> None:
    bench = Bench(tmp_path, A_B=SLOWER)
    passes, verdicts = bench.search(lambda: True)
    assert passes == ["A", "B", "G", "N"]
    assert set(verdicts.values()) == {"open"}
    assert bench.compared == []


def test_a_file_with_wrong_numbers_is_never_taken(tmp_path: Path) -> None:
    bench = Bench(tmp_path, A_B=SLOWER, A=FASTER, B=FASTER)
    start = bench.build(frozenset("AB"))
    assert start is not None
    bench.wrong = {"A"}
    best, _ = leave_out(start, GROUPS, bench.build, bench.compare, lambda: False, 1.02)
    assert sorted(best.passes) == ["B"]


def test_a_busy_machine_does_not_excuse_a_file_that_seems_slower() -> None:
    wide = 1.2  # the model beside itself
    assert Gain(EVEN).is_even(wide)
    assert Gain(Comparison((0.81, 0.985, 1.1))).is_even(wide)
    assert not Gain(Comparison((0.81, 0.945, 1.1))).is_even(wide)
