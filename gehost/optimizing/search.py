"""Leave out the fusions that do not pay, one group after the other, from all on.

Nothing here measures or compiles: both are given, so that a test decides what pays.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from gehost.optimizing.build import Candidate
from gehost.tune.measure import Comparison, verdict_of

Verdict = Literal["pays", "even", "slower", "open"]
_VAGUE = 0.1
"""Width from which an interval around 1 does not show that two files are equally fast."""
MOST_NOISE = 1.02
"""No noise excuses a file that seems slower than this."""
Rebuild = Callable[[frozenset[str]], Candidate | None]
"""Builds and checks the file of some passes; None if its numbers differ."""


@dataclass(frozen=True)
class Gain:
    """How much faster a second file is, at the size that counts and at a small one."""

    large: Comparison
    small: Comparison | None = None

    def verdict(self, dead_zone: float) -> Verdict:
        """Return whether it pays: at the large size, without a cost at the small one."""
        small = "noise" if self.small is None else verdict_of(self.small, dead_zone)
        large = verdict_of(self.large, dead_zone)
        if large == "drop" or small == "drop":
            return "slower"
        return "pays" if large == "keep" or small == "keep" else "even"

    def is_even(self, dead_zone: float) -> bool:
        """Whether it is not slower by point estimate, but for noise.

        On a busy machine much is noise: that excuses no file that seems slower by more than 2 %.
        """
        medians = [item.median for item in (self.large, self.small) if item is not None]
        return min(medians) >= 1 / min(dead_zone, MOST_NOISE)

    @property
    def is_vague(self) -> bool:
        """Whether the interval leaves open if the second file is faster or slower."""
        low, high = self.large.interval
        return low <= 1 <= high and high - low > _VAGUE

    @property
    def is_below(self) -> bool:
        """Whether the whole interval says that the second file is slower, however little."""
        return self.large.interval[1] < 1

    def range(self) -> str:
        """Return the interval as text."""
        low, high = self.large.interval
        return f"{low:.2f}–{high:.2f} ×"

    def __str__(self) -> str:
        low, high = self.large.interval
        text = f"{self.large.median:.2f} × [{low:.2f}, {high:.2f}]"
        if self.small is not None and self.small.interval[1] < 1:
            text += f", {self.small.median:.2f} × at the small size"
        return text


@dataclass(frozen=True)
class GroupTrial:
    """The decision on one group of fusions."""

    name: str
    passes: tuple[str, ...]
    verdict: Verdict
    gain: Gain | None = None

    @property
    def is_on(self) -> bool:
        """Whether the group stays."""
        return self.verdict != "slower"

    def as_dict(self) -> dict[str, Any]:
        """Return it as JSON data."""
        row: dict[str, Any] = {
            "name": self.name,
            "passes": list(self.passes),
            "verdict": self.verdict,
            "on": self.is_on,
        }
        if self.gain is not None:
            row["gain"] = round(self.gain.large.median, 4)
            row["interval"] = [round(end, 4) for end in self.gain.large.interval]
        return row


def leave_out(
    best: Candidate,
    groups: Sequence[tuple[str, tuple[str, ...]]],
    rebuild: Rebuild,
    compare: Callable[[Candidate, Candidate, str], Gain],
    is_late: Callable[[], bool],
    dead_zone: float,
) -> tuple[Candidate, list[GroupTrial]]:
    """Return the best file, and what was decided on each group.

    Args:
        best: the file with all groups on.
        groups: names with passes, those first that are likely to matter.
        rebuild: builds a file.
        compare: measures how much faster the second is.
        is_late: whether no time is left; what is undecided stays on.
        dead_zone: gains below it are noise.
    """
    trials: list[GroupTrial] = []
    waiting = list(groups)
    while waiting:
        name, passes = waiting.pop(0)
        active = tuple(one for one in best.effective if one in passes)
        if not active:
            continue
        if is_late():
            trials.append(GroupTrial(name, active, "open"))
            continue
        without = rebuild(best.passes.difference(passes))
        if without is None or without.same_file(best):
            continue
        gain = compare(without, best, f"without {name}")
        verdict = gain.verdict(dead_zone)
        removes_none = without.facts.nodes <= best.facts.nodes
        if verdict == "even" and (
            not gain.is_even(dead_zone) or (removes_none and gain.large.median < MOST_NOISE)
        ):
            verdict = "slower"  # it neither removes nodes nor seems faster
        trials.append(GroupTrial(name, active, verdict, gain))
        if verdict != "slower":
            continue
        best = without
        if len(active) > 1:
            best, single = _try_alone(best, active, rebuild, compare, is_late, dead_zone)
            trials += single
    return best, trials


def _try_alone(
    best: Candidate,
    passes: Sequence[str],
    rebuild: Rebuild,
    compare: Callable[[Candidate, Candidate, str], Gain],
    is_late: Callable[[], bool],
    dead_zone: float,
) -> tuple[Candidate, list[GroupTrial]]:
    """Return the best file with single passes of a group that does not pay as a whole."""
    trials: list[GroupTrial] = []
    for one in passes:
        if is_late():
            break
        alone = rebuild(best.passes | {one})
        if alone is None or one not in alone.effective:
            continue
        gain = compare(best, alone, f"{one} alone")
        if gain.verdict(dead_zone) == "pays":
            trials.append(GroupTrial(one, (one,), "pays", gain))
            best = alone
    return best, trials
